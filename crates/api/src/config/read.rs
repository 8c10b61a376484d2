//! Reading of configurations, with errors that name the place and suggest the nearest word.

use std::io;
use std::path::Path;

use anyhow::{Context, anyhow, bail};

use super::Config;

/// Largest configuration that is read.
pub const MAX_FILE_LEN: u64 = 1 << 20;

/// How a file is read as text, of up to so many bytes.
pub type Read = fn(&Path, u64) -> io::Result<String>;

/// Reads and validates a configuration file, and the presets that it names.
///
/// # Errors
/// A file cannot be read, is too long, or its text is no configuration.
pub fn from_file(path: &Path, read: Read) -> anyhow::Result<Config> {
    let shown = path.display();
    from_text(&text_of(path, read)?, read).with_context(|| format!("{shown} cannot be used"))
}

/// Reads the text of a configuration file.
///
/// # Errors
/// It cannot be read, or is too long.
pub fn text_of(path: &Path, read: Read) -> anyhow::Result<String> {
    let read = read(path, MAX_FILE_LEN).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => anyhow!("{error}, the maximum for a configuration"),
        _ => error.into(),
    });
    read.with_context(|| format!("cannot read the configuration {}", path.display()))
}

/// Reads and validates a configuration without files of presets.
///
/// # Errors
/// The text is no configuration, or an object in it is wrong.
pub fn from_toml(text: &str) -> anyhow::Result<Config> {
    from_text(text, |_, _| Err(io::ErrorKind::Unsupported.into()))
}

/// Reads and validates a configuration, and the presets that it names.
///
/// # Errors
/// The text is no configuration, or an object in it is wrong.
pub fn from_text(text: &str, read: Read) -> anyhow::Result<Config> {
    let config: Config = toml::from_str(text)
        .map_err(|error| anyhow::anyhow!(with_suggestion(&error.to_string())))?;
    config.read_presets(read);
    let problems = config.problems_of_new();
    if !problems.is_empty() {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        bail!("{}", lines.join("\n"));
    }
    Ok(config)
}

/// serde's message with types in words, and with "did you mean" for an unknown key or value.
pub fn with_suggestion(message: &str) -> String {
    let message = in_words(message.trim_end());
    match nearest(&message) {
        Some(word) => format!("{message}\ndid you mean `{word}`?"),
        None => message,
    }
}

/// Types as serde names them in its errors, and as a reader knows them.
const TYPES: [(&str, &str); 13] = [
    ("u8", "a number from 0 to 255"),
    ("u16", "a number from 0 to 65535"),
    ("u32", "a number from 0 to 4294967295"),
    ("u64", "a number from 0"),
    ("usize", "a number from 0"),
    ("i64", "a whole number"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a sequence", "a list"),
    ("a string", "text in quotes"),
    ("path string", "a path in quotes"),
    ("a map", "a table of keys"),
    (
        "struct Timing",
        "a table of keys, as in { preset = \"optane-p4800x\" }",
    ),
];

/// Values as serde and the TOML parser name them in their errors, and as a reader knows them.
const FOUND: [(&str, &str); 7] = [
    ("unknown field `", "unknown key `"),
    ("unknown variant `", "unknown value `"),
    ("invalid type: map,", "invalid type: table,"),
    ("invalid type: sequence,", "invalid type: list,"),
    ("invalid type: floating point ", "invalid type: number "),
    ("missing field `", "missing key `"),
    ("wanted string or table", "expected text in quotes"),
];

/// The message with types in words.
fn in_words(message: &str) -> String {
    const EXPECTED: &str = ", expected ";
    let message = FOUND.iter().fold(message.to_owned(), |text, (from, to)| {
        text.replacen(from, to, 1)
    });
    let Some(at) = message.rfind(EXPECTED).map(|at| at + EXPECTED.len()) else {
        return message;
    };
    let (before, expected) = message.split_at(at);
    let named = TYPES.iter().find_map(|(name, words)| {
        // The place in the text follows, if there is one.
        let rest = expected.strip_prefix(name)?;
        (!rest.starts_with(|c: char| c.is_alphanumeric())).then(|| format!("{before}{words}{rest}"))
    });
    named.unwrap_or(message)
}

/// The word that serde expected which is nearest to the one it found.
fn nearest(message: &str) -> Option<String> {
    let at = message
        .find("unknown key")
        .or_else(|| message.find("unknown value"))?;
    // as serde has it: unknown key `a`, expected one of `b`, `c` (or: expected `b`, or: `b` or `c`)
    let mut words = message[at..].split('`').skip(1).step_by(2);
    let found = words.next()?;
    nearest_word(found, words).map(str::to_owned)
}

/// The word that is nearest to `found`, if any is similar: `found` is its beginning, or up to half
/// of the longer one differs.
pub(super) fn nearest_word<'a>(
    found: &str,
    words: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let is_similar = |distance: usize, word: &str| {
        let begins = found.len() > 2 && word.starts_with(found);
        begins || distance <= word.len().max(found.len()) / 2
    };
    words
        .map(|word| (strsim::damerau_levenshtein(found, word), word))
        .filter(|(distance, word)| is_similar(*distance, word))
        .min()
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> String {
        format!("{:#}", from_toml(text).expect_err("this must be refused"))
    }

    #[test]
    fn unknown_keys_are_refused_with_a_suggestion() {
        let message = error_of("[[media]]\nname = \"a\"\nkind = \"ram\"\nsizes = \"1GiB\"\n");
        assert!(message.contains("did you mean `size`?"), "{message}");
        assert!(message.contains("line 4"), "{message}");
        let message = error_of("[[medai]]\nname = \"a\"\n");
        assert!(message.contains("did you mean `media`?"), "{message}");
        let message = error_of("[[media]]\nname = \"a\"\nkind = \"rma\"\n");
        assert!(message.contains("did you mean `ram`?"), "{message}");
    }

    #[test]
    fn types_are_named_in_words() {
        let controller = |key: &str| {
            error_of(&format!(
                "[[controller]]\nname = \"a\"\nlisten = \"vfio-user:/a\"\nnamespaces = [\"a\"]\n{key}\n"
            ))
        };
        for (key, words) in [
            (
                "reactor = \"r\"",
                "invalid type: string \"r\", expected a number from 0",
            ),
            ("reactor = -1", "expected a number from 0"),
            ("queues = 100000", "expected a number from 0 to 65535"),
            ("queues = 1.5", "expected a number from 0 to 65535"),
        ] {
            let message = controller(key);
            assert!(message.contains(words), "{message}");
        }
        for (text, words) in [
            (
                "timing = \"optane-p4800x\"",
                "expected a table of keys, as in { preset",
            ),
            ("timing = {}", "missing key `preset`"),
            ("zoned = 5", "expected a table of keys"),
            ("path = 5", "expected a path in quotes"),
            ("size = 8.5", "invalid type: number `8.5`"),
        ] {
            let media = "[[media]]\nname = \"a\"\nkind = \"ram\"\n";
            let message = error_of(&format!("{media}{text}\n"));
            assert!(message.contains(words), "{message}");
        }
        for (text, words) in [
            ("huge_pages = true", "expected text in quotes"),
            ("state_dir = 5", "expected a path in quotes"),
            ("[[media]]\nname = 5", "expected text in quotes"),
            ("[[controller]]\nfuse = 1", "expected a table of keys"),
        ] {
            let message = error_of(&format!("{text}\n"));
            assert!(message.contains(words), "{message}");
        }
        let message = error_of("[[media]]\nname = \"a\"\nkind = \"ram\"\nread_only = 1\n");
        assert!(message.contains("expected true or false"), "{message}");
        let places = in_words("x: invalid type: map, expected usize at line 1 column 2");
        assert!(
            places.ends_with("expected a number from 0 at line 1 column 2"),
            "{places}"
        );
        assert_eq!(in_words("a, expected u8x"), "a, expected u8x");
    }

    #[test]
    fn a_size_without_quotes_says_what_to_write() {
        let message = error_of("[[media]]\nname = \"a\"\nkind = \"ram\"\nsize = 4096\n");
        assert!(message.contains("in quotes with a unit"), "{message}");
    }
}
