//! Refusals in the words of the command line: the server and the rules of configurations speak of
//! keys and of HTTP methods, which an operator at a prompt has not written.

/// The text with options in the place of parameters of requests, as `--detach-hosts`.
#[must_use]
pub(crate) fn of_parameters(text: &str) -> String {
    replaced(text, &PARAMETERS)
}

fn replaced(text: &str, all: &[(&str, &str)]) -> String {
    let one = |text: String, (of_api, of_command_line): &(&str, &str)| {
        text.replace(of_api, of_command_line)
    };
    all.iter().fold(text.to_owned(), one)
}

/// The text with options in the place of keys: `write size = "8GiB"` becomes `write --size 8GiB`.
#[must_use]
pub fn of_command_line(text: &str) -> String {
    let text = replaced(&of_parameters(text), &KEYS);
    let mut shown = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find("write ") {
        let (before, behind) = rest.split_at(at + "write ".len());
        shown.push_str(before);
        rest = match option(behind) {
            Some((option, rest)) => {
                shown.push_str(&option);
                rest
            }
            None => behind,
        };
    }
    shown + rest
}

/// Texts of the API about parameters, and their form on the command line.
const PARAMETERS: [(&str, &str); 2] = [
    ("with detach_hosts=true", "with --detach-hosts"),
    ("with shrink=true", "with --shrink"),
];

/// Texts of the API about methods and configurations, and their form on the command line.
const KEYS: [(&str, &str); 2] = [
    (
        "Change it with PATCH where possible",
        "Change it with `nvmirage set` where possible",
    ),
    (
        "write a [[tenant]] with that name",
        "create it: nvmirage create tenant NAME",
    ),
];

/// The option for `KEY = "VALUE"` or `KEY = ["VALUE"]` at the begin of a text, and the text behind
/// it.
fn option(text: &str) -> Option<(String, &str)> {
    let (key, behind) = text.split_once(" = ")?;
    let (behind, end) = match behind.strip_prefix("[\"") {
        Some(behind) => (behind, "\"]"),
        None => (behind.strip_prefix('"')?, "\""),
    };
    if key.is_empty() || !key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_') {
        return None;
    }
    let (value, behind) = behind.split_once(end)?;
    if value.contains('"') {
        return None;
    }
    Some((format!("--{} {value}", key.replace('_', "-")), behind))
}

/// As [`of_command_line`], for an error without causes.
pub(crate) fn of_error(error: anyhow::Error) -> anyhow::Error {
    if error.chain().count() > 1 {
        return error;
    }
    let said = error.to_string();
    let shown = of_command_line(&said);
    if shown == said {
        error
    } else {
        anyhow::Error::msg(shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_options() {
        for (said, shown) in [
            ("write size = \"8GiB\"", "write --size 8GiB"),
            (
                "a: write lba_size = \"512\", or write path = \"d\".",
                "a: write --lba-size 512, or write --path d.",
            ),
            (
                "write namespaces = [\"NAME\"], or none",
                "write --namespaces NAME, or none",
            ),
            ("write a = [\"b\", \"c\"]", "write a = [\"b\", \"c\"]"),
            ("write 512 or 4096", "write 512 or 4096"),
            (
                "end its host first, or let it lose its drive with detach_hosts=true",
                "end its host first, or let it lose its drive with --detach-hosts",
            ),
            ("allow that with shrink=true", "allow that with --shrink"),
            ("write Size = \"8\"", "write Size = \"8\""),
            ("write size = \"8", "write size = \"8"),
            (
                "differs. Change it with PATCH where possible, or delete and recreate it",
                "differs. Change it with `nvmirage set` where possible, or delete and recreate it",
            ),
        ] {
            assert_eq!(of_command_line(said), shown);
        }
    }
}
