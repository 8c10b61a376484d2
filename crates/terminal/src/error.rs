//! Format of errors: one block, the outermost message first, each cause on its own line.

use std::fmt::Write as _;

/// A usage error that shows only when several arguments are considered together.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}

/// The error and its causes. A cause that the sentence before it repeats is left out.
pub fn shown(error: &anyhow::Error) -> String {
    let mut text = String::from("error: ");
    let mut before = String::new();
    for (depth, cause) in error.chain().enumerate() {
        let said = cause.to_string();
        if depth > 0 {
            if before.contains(&said) {
                continue;
            }
            text.push_str("\n  because: ");
        }
        let mut lines = said.trim_end().lines();
        text.push_str(lines.next().unwrap_or_default());
        for line in lines {
            let _ = write!(text, "\n    {line}");
        }
        before = said;
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::{Context, anyhow};

    use super::*;

    #[test]
    fn causes_stand_below_and_are_not_repeated() {
        let missing = std::io::Error::other("no such thing");
        let error = Err::<(), _>(missing)
            .context("cannot read a: no such thing")
            .context("a cannot be used")
            .unwrap_err();
        assert_eq!(
            shown(&error),
            "error: a cannot be used\n  because: cannot read a: no such thing"
        );
    }

    #[test]
    fn lines_of_one_cause_stay_together() {
        let error = anyhow!("one\ntwo").context("all wrong");
        assert_eq!(shown(&error), "error: all wrong\n  because: one\n    two");
    }
}
