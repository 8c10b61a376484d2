//! The order of imports: the standard library, other crates, the crate's own; a blank line between
//! two groups and none within one; and one `use` for each module.
//!
//! rustfmt has options for this (`group_imports`, `imports_granularity`), but not where it is
//! stable. It sorts within a group. Only imports at the beginning of a line are looked at: those of
//! a file, not of a function or an inline module.

use std::collections::BTreeSet;

use super::Finding;
use super::lexer::split;

/// An import at the top of a file.
#[derive(Debug)]
struct Import {
    line: usize,
    /// Of its last line.
    end: usize,
    group: Group,
    /// The module that it names, with its visibility; `None` where another import of that module
    /// may stand beside it: with an attribute of its own, or another name for one thing.
    module: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Standard,
    Other,
    Own,
}

impl Group {
    fn name(self) -> &'static str {
        match self {
            Group::Standard => "the standard library",
            Group::Other => "other crates",
            Group::Own => "this crate",
        }
    }
}

/// Checks a source.
pub(super) fn check(name: &str, source: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut modules = BTreeSet::new();
    let imports = imports(&split(source).code);
    for (index, import) in imports.iter().enumerate() {
        let mut find = |what: String| {
            findings.push(Finding {
                file: name.to_owned(),
                line: import.line,
                what,
            });
        };
        if let Some(module) = &import.module
            && !modules.insert(module)
        {
            find(format!(
                "imports from `{module}` a second time: use one for each module"
            ));
        }
        let Some(before) = index.checked_sub(1).map(|before| &imports[before]) else {
            continue;
        };
        let lines: Vec<&str> = source.lines().skip(before.end).collect();
        let between = &lines[..import.line - 1 - before.end];
        // Attributes and comments of an import are its own.
        let is_blank = between.iter().any(|line| line.trim().is_empty());
        let is_apart = between.iter().any(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with("//") && !line.starts_with("#[")
        });
        if is_apart {
            continue;
        }
        if import.group < before.group {
            let (own, before) = (import.group.name(), before.group.name());
            find(format!(
                "imports from {own} behind those from {before}: put them before"
            ));
        } else if is_blank == (import.group == before.group) {
            let is_new = import.group != before.group;
            let what = if is_new {
                "needs a blank line before it"
            } else {
                "needs no blank line before it"
            };
            find(format!("an import from {} {what}", import.group.name()));
        }
    }
    findings
}

fn imports(code: &str) -> Vec<Import> {
    let mut imports = Vec::new();
    let mut lines = (1..).zip(code.lines());
    let mut has_attribute = false;
    while let Some((line, text)) = lines.next() {
        let is_own = std::mem::replace(&mut has_attribute, text.starts_with("#["));
        let Some((visibility, _)) = text.split_once("use ").filter(|(before, _)| {
            before.is_empty() || before.starts_with("pub") && before.ends_with(' ')
        }) else {
            continue;
        };
        let mut whole = text.to_owned();
        let mut end = line;
        while !whole.contains(';') {
            let Some((number, more)) = lines.next() else {
                break;
            };
            whole.push_str(more.trim());
            end = number;
        }
        let path = whole[visibility.len() + 4..]
            .split(';')
            .next()
            .unwrap_or_default();
        let first = path.split([':', ';', '{', ' ']).next().unwrap_or_default();
        let group = match first {
            "std" | "core" | "alloc" => Group::Standard,
            "crate" | "self" | "super" => Group::Own,
            _ => Group::Other,
        };
        let head = path.split('{').next().unwrap_or_default();
        let module = head.trim_end_matches("::");
        let module = if path.contains('{') {
            module
        } else {
            module.rsplit_once("::").map_or("", |(module, _)| module)
        };
        let is_renamed = path.contains(" as ") && !path.contains('{');
        let is_alone = is_own || is_renamed || module.is_empty();
        let module = (!is_alone).then(|| format!("{visibility}{module}"));
        imports.push(Import {
            line,
            end,
            group,
            module,
        });
    }
    imports
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(source: &str) -> Vec<String> {
        let findings = check("a.rs", source);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn imports_in_order_pass() {
        let source = "\
            //! Text.\n\nmod a;\n\nuse std::fmt;\nuse std::io::{\n    self, Read,\n};\n\
            #[expect(x)]\nuse std::io::Write;\n\nuse anyhow::Result;\n\
            use other::x as y;\nuse other::Y;\n\nuse self::a::A;\npub(crate) use self::a::B;\n// Why.\n\
            #[cfg(test)]\nuse super::*;\n\nfn f() {\n    use std::io;\n}\n";
        assert_eq!(said(source), [""; 0]);
    }

    #[test]
    fn other_orders_are_found() {
        for (source, what) in [
            (
                "use other::A;\n\nuse std::fmt;\n",
                "a.rs:3: imports from the standard library behind",
            ),
            (
                "use std::fmt;\nuse other::A;\n",
                "a.rs:2: an import from other crates needs a blank",
            ),
            (
                "use a::A;\n\nuse b::B;\n",
                "a.rs:3: an import from other crates needs no blank",
            ),
            (
                "use super::A;\nuse b::B;\n",
                "a.rs:2: imports from other crates behind those from this",
            ),
            (
                "use a::{\n    B,\n};\nuse a::C;\n",
                "a.rs:4: imports from `a` a second time",
            ),
        ] {
            let found = said(source);
            assert_eq!(found.len(), 1, "{source}: {found:?}");
            assert!(found[0].starts_with(what), "{found:?}");
        }
    }
}
