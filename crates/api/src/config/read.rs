//! Reading of configurations, with errors that name the place and suggest the nearest word.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};

use super::Config;

/// Largest configuration that is read.
const MAX_FILE_LEN: u64 = 1 << 20;

/// Reads and validates a configuration file, which may be a pipe.
pub fn from_file(path: &Path) -> anyhow::Result<Config> {
    let shown = path.display();
    let text = read(path).with_context(|| format!("cannot read the configuration {shown}"))?;
    from_toml(&text).with_context(|| format!("{shown} cannot be used"))
}

/// Reads and validates a configuration file for the second time.
///
/// # Errors
/// As [`from_file`]. Also where the file cannot be read twice, such as a pipe, or is empty, such as
/// a file that is being rewritten.
pub fn from_file_again(path: &Path) -> anyhow::Result<Config> {
    let shown = path.display();
    let metadata = std::fs::metadata(path)
        .with_context(|| format!("cannot read the configuration {shown}"))?;
    if !metadata.is_file() {
        bail!(
            "{shown} is not a regular file, so it cannot be reloaded: serve a configuration from a regular file, or restart the server"
        );
    }
    let text = read(path).with_context(|| format!("cannot read the configuration {shown}"))?;
    if text.trim().is_empty() {
        bail!(
            "{shown} is empty, which would delete every object: write the new file elsewhere and rename it; to delete everything, put a comment in it"
        );
    }
    from_toml(&text).with_context(|| format!("{shown} cannot be used"))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    file.take(MAX_FILE_LEN + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_LEN {
        bail!("it is larger than {MAX_FILE_LEN} bytes, the maximum for a configuration");
    }
    Ok(text)
}

/// Reads and validates a configuration.
pub fn from_toml(text: &str) -> anyhow::Result<Config> {
    let config: Config = toml::from_str(text)
        .map_err(|error| anyhow::anyhow!(with_suggestion(&error.to_string())))?;
    let problems = config.validate();
    if !problems.is_empty() {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        bail!("{}", lines.join("\n"));
    }
    Ok(config)
}

/// Adds "did you mean" to serde's message for an unknown field or variant.
pub fn with_suggestion(message: &str) -> String {
    let message = message.trim_end();
    match nearest(message) {
        Some(word) => format!("{message}\ndid you mean `{word}`?"),
        None => message.to_owned(),
    }
}

/// The word that serde expected which is nearest to the one it found.
fn nearest(message: &str) -> Option<String> {
    let at = message
        .find("unknown field")
        .or_else(|| message.find("unknown variant"))?;
    // serde writes: unknown field `a`, expected one of `b`, `c` (or: expected `b`, or: `b` or `c`)
    let mut words = message[at..].split('`').skip(1).step_by(2);
    let found = words.next()?;
    nearest_word(found, words).map(str::to_owned)
}

/// The word that is nearest to `found`, if any is similar.
pub(super) fn nearest_word<'a>(
    found: &str,
    words: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    words
        .map(|word| (strsim::damerau_levenshtein(found, word), word))
        .filter(|(distance, word)| *distance <= word.len().max(found.len()).div_ceil(2))
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
    fn a_size_without_quotes_says_what_to_write() {
        let message = error_of("[[media]]\nname = \"a\"\nkind = \"ram\"\nsize = 4096\n");
        assert!(message.contains("in quotes with a unit"), "{message}");
    }
}
