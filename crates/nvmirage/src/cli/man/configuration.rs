//! `nvmirage.toml(5)`: the book's reference of configuration keys as a manual page.
//!
//! The book's page is generated from the types that read a configuration, and a test keeps it
//! current. Only what that page has of Markdown is converted: headings, paragraphs, lists, tables
//! whose first column is a key, code and links.

use std::fmt::Write as _;

/// The book's page.
const KEYS: &str = include_str!("../../../../../book/src/reference/keys.md");

const NAME: &str = "\
.SH NAME
nvmirage.toml \\- configuration of nvmirage, in TOML
.SH SYNOPSIS
/etc/nvmirage/nvmirage.toml, or any file with \\fBnvmirage serve \\-\\-config\\fR
.SH DESCRIPTION
A configuration lists what a server serves: media, namespaces on them, controllers that hosts attach
to, and reactors and tenants. Sizes, times, ranges and addresses are text with units. The book's page
\\fIConfiguration file\\fR explains behaviour and conditions. The options of \\fBnvmirage create\\fR have the
same names. Each key stands with its value, and when it can change:
.PP
";

const REST: &str = "\
.SH EXAMPLES
.nf
[[media]]
name = \"disk\"
kind = \"file\"
path = \"/var/lib/vm/disk.img\"
size = \"64GiB\"

[[namespace]]
name = \"ns1\"
media = \"disk\"

[[controller]]
name = \"nvme0\"
listen = \"vfio\\-user:/run/nvmirage/nvme0.sock\"
namespaces = [\"ns1\"]
.fi
.PP
\\fBnvmirage check FILE\\fR prints a configuration with all its defaults.
.SH \"SEE ALSO\"
nvmirage(1), nvmirage\\-serve(1), nvmirage\\-check(1), nvmirage\\-reload(1)
";

/// The manual page in roff.
pub(super) fn page() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let mut page =
        format!(".TH nvmirage.toml 5 \"\" \"nvmirage {version}\" \"File formats\"\n{NAME}");
    // the introduction is about the book
    for line in KEYS.lines().skip_while(|line| !line.starts_with("- ")) {
        line_of(line, &mut page);
    }
    page + REST
}

fn line_of(line: &str, page: &mut String) {
    if let Some(heading) = line.strip_prefix("## ") {
        let heading = text(heading)
            .to_uppercase()
            .replace("\\FB", "")
            .replace("\\FR", "");
        let _ = writeln!(page, ".SH \"{heading}\"");
    } else if let Some(item) = line.strip_prefix("- ") {
        let _ = writeln!(page, ".IP \\(bu 2\n{}", shown_line(item));
    } else if let Some(row) = line.strip_prefix("| `") {
        key(row, page);
    } else if line.is_empty() {
        page.push_str(".PP\n");
    } else if !line.starts_with('|') {
        let _ = writeln!(page, "{}", shown_line(line));
    }
}

/// One row of a table, without its first `` | ` ``.
fn key(row: &str, page: &mut String) {
    let row = row.trim_end_matches(" |").replace("\\|", "\u{1}");
    let cells: Vec<String> = row
        .split(" | ")
        .map(|cell| cell.replace('\u{1}', "|"))
        .collect();
    let name = cells[0].trim_end_matches('`');
    let _ = writeln!(page, ".TP\n.B {}", escaped(name));
    let (Some(kind), Some(about)) = (cells.get(1), cells.last()) else {
        return;
    };
    let when = match cells.len() {
        4 => format!(", {}", cells[2]),
        _ => String::new(),
    };
    let _ = writeln!(page, "({}{when}) {}", text(kind), text(about));
}

/// Characters that roff would read.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// A line of text, which is no request of roff.
fn shown_line(line: &str) -> String {
    let guard = if line.starts_with(['.', '\'']) {
        "\\&"
    } else {
        ""
    };
    format!("{guard}{}", text(line))
}

/// Inline Markdown: code becomes bold, a link its text.
fn text(line: &str) -> String {
    let mut shown = String::new();
    for (at, part) in line.split('`').enumerate() {
        match at % 2 {
            0 => shown.push_str(&unlinked(part)),
            _ => {
                let _ = write!(shown, "\\fB{}\\fR", escaped(part));
            }
        }
    }
    shown
}

/// Text in which `[text](target)` is `text`.
fn unlinked(mut part: &str) -> String {
    let mut shown = String::new();
    while let Some((before, behind)) = part.split_once("](") {
        let target = behind.find(')');
        let begin = before.rfind('[');
        let (Some(begin), Some(end)) = (begin, target) else {
            break;
        };
        shown.push_str(&escaped(&before[..begin]));
        shown.push_str(&escaped(&before[begin + 1..]));
        part = &behind[end + 1..];
    }
    shown + &escaped(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_key_of_the_book_once() {
        let page = page();
        let keys = KEYS.lines().filter(|line| line.starts_with("| `")).count();
        assert!(keys > 100, "{keys}");
        assert_eq!(page.matches("\n.TP\n.B ").count(), keys);
        assert!(page.contains("\n.SH \"[[NAMESPACE]]\"\n"), "{page}");
        for left in ["](", "| ---", "|---", "`"] {
            assert!(!page.contains(left), "{left}");
        }
    }

    #[test]
    fn rows_and_sentences_are_converted() {
        let mut shown = String::new();
        line_of(
            "| `a_b` | text, `\"x\\|y\"` | live | Says `-v`. See [b](c.md#d). |",
            &mut shown,
        );
        let row = ".TP\n.B a_b\n(text, \\fB\"x|y\"\\fR, live) Says \\fB\\-v\\fR. See b.\n";
        assert_eq!(shown, row);
        assert_eq!(shown_line(".a [b] `c`"), "\\&.a [b] \\fBc\\fR");
    }
}
