//! The paths that a file names, and in which module.
//!
//! It does NOT say what a path leads to.

use super::super::lexer::split;

/// A file of a crate.
pub(super) struct File {
    /// Its path in the crate.
    pub(super) path: String,
    /// Its module; empty: the root.
    pub(super) module: Vec<String>,
    pub(super) found: Found,
}

/// What is in a file, tests apart.
#[derive(Default)]
pub(super) struct Found {
    pub(super) paths: Vec<Named>,
    /// Modules that are there for tests alone.
    pub(super) tests: Vec<Vec<String>>,
    /// Modules in braces.
    pub(super) inline: Vec<Vec<String>>,
}

/// A path that is named.
#[derive(Debug)]
pub(super) struct Named {
    /// In which module.
    pub(super) within: Vec<String>,
    pub(super) path: Vec<String>,
    pub(super) line: usize,
    pub(super) import: Import,
}

#[derive(Debug)]
pub(super) enum Import {
    /// It stands in code.
    None,
    /// In a `use`, with the name that it gives; and whether that is given to others.
    As(String, bool),
}

/// The crate of a file, and what is in that file.
pub(super) fn file<'a>(path: &'a str, source: &str) -> Option<(&'a str, File)> {
    let (name, inside) = path.strip_prefix("crates/")?.split_once('/')?;
    let stem = inside.strip_prefix("src/")?.strip_suffix(".rs")?;
    if stem.starts_with("bin/") {
        return None;
    }
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    let module = match stem {
        "lib" | "main" => Vec::new(),
        _ => stem.split('/').map(str::to_owned).collect(),
    };
    let code = split(source).code;
    let mut found = Found::default();
    if let Some(tokens) = production(&tokens(&code), &module, &mut found) {
        read(&tokens, &module, &mut found);
    }
    let path = inside.to_owned();
    Some((
        name,
        File {
            path,
            module,
            found,
        },
    ))
}

/// A word, `::`, or another character.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

impl Token<'_> {
    fn is_word(&self) -> bool {
        self.text
            .starts_with(|c: char| c.is_alphabetic() || c == '_')
    }
}

fn tokens(code: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let is_part = |c: char| c.is_alphanumeric() || c == '_';
            let len = match first {
                _ if is_part(first) => rest.find(|c| !is_part(c)).unwrap_or(rest.len()),
                ':' if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            let (text, behind) = rest.split_at(len);
            let line = index + 1;
            tokens.push(Token { text, line });
            rest = behind.trim_start();
        }
    }
    tokens
}

/// The index of what closes the bracket at `open`; of the last token where nothing does.
fn close(tokens: &[Token<'_>], open: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return index;
        }
    }
    tokens.len().saturating_sub(1)
}

/// The tokens without what is for tests alone; `None` where the whole file is.
fn production<'a>(
    tokens: &[Token<'a>],
    module: &[String],
    found: &mut Found,
) -> Option<Vec<Token<'a>>> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let text = |ahead: usize| tokens.get(at + ahead).map_or("", |token| token.text);
        let inner = usize::from(text(1) == "!");
        if text(0) != "#" || text(1 + inner) != "[" {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        let open = at + 1 + inner;
        let end = close(tokens, open);
        let is_test = is_for_tests(&tokens[open + 1..end.max(open + 1)]);
        if is_test && inner == 1 {
            return None;
        }
        if !is_test {
            kept.extend(&tokens[at..=end]);
            at = end + 1;
            continue;
        }
        at = end + 1;
        let behind = item_end(tokens, at);
        let mut words = tokens[at..behind].windows(2);
        if let Some([_, name]) = words.find(|words| words[0].text == "mod") {
            found.tests.push(child(module, name.text));
        }
        at = behind;
    }
    Some(kept)
}

/// Whether what is inside the brackets of an attribute is of tests alone.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let words: Vec<&str> = attribute.iter().map(|token| token.text).collect();
    match words.as_slice() {
        ["test"] | ["cfg", "(", "test", ")"] => true,
        ["cfg", "(", "all", "(", inside @ ..] => {
            inside.contains(&"test") && !inside.contains(&"not")
        }
        _ => false,
    }
}

/// Where the item, field or statement that begins at `at`, with what attributes it may have, has
/// ended.
fn item_end(tokens: &[Token<'_>], mut at: usize) -> usize {
    // Of these a comma stands among generics.
    let mut is_item = false;
    while let Some(token) = tokens.get(at) {
        match token.text {
            "," if is_item => {}
            "fn" | "impl" | "struct" | "enum" | "trait" | "type" => is_item = true,
            ";" | "," => return at + 1,
            "{" => {
                let end = close(tokens, at) + 1;
                let is_more = tokens.get(end).is_some_and(|token| token.text == ";");
                return end + usize::from(is_more);
            }
            "(" | "[" => at = close(tokens, at),
            _ => {}
        }
        at += 1;
    }
    tokens.len()
}

fn child(module: &[String], name: &str) -> Vec<String> {
    let mut module = module.to_vec();
    module.push(name.to_owned());
    module
}

/// Finds the paths that are named in a module's tokens.
fn read(tokens: &[Token<'_>], module: &[String], found: &mut Found) {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text);
    let mut at = 0;
    let mut given = false;
    while at < tokens.len() {
        let token = tokens[at];
        if token.text == "mod" && text(at + 2) == "{" {
            let end = close(tokens, at + 2);
            let inner = child(module, text(at + 1));
            found.inline.push(inner.clone());
            read(&tokens[at + 3..end.max(at + 3)], &inner, found);
            at = end + 1;
        } else if token.text == "use" {
            let mut tree = Vec::new();
            at = use_tree(tokens, at + 1, &[], &mut tree);
            found
                .paths
                .extend(tree.into_iter().map(|(path, name, line)| Named {
                    within: module.to_vec(),
                    path,
                    line,
                    import: Import::As(name, given),
                }));
        } else if token.text == "pub" {
            given = true;
            at += 1;
            if text(at) == "(" {
                at = close(tokens, at) + 1;
            }
            continue;
        } else if token.is_word() {
            let mut path = vec![token.text.to_owned()];
            let begins = at == 0 || !matches!(tokens[at - 1].text, "." | "::");
            while text(at + 1) == "::" && tokens.get(at + 2).is_some_and(Token::is_word) {
                at += 2;
                path.push(tokens[at].text.to_owned());
            }
            at += 1;
            let is_local = path.len() == 1
                && token.text.starts_with(|c: char| !c.is_uppercase())
                && !matches!(text(at), "(" | "!");
            if begins && !is_local {
                found.paths.push(Named {
                    within: module.to_vec(),
                    path,
                    line: token.line,
                    import: Import::None,
                });
            }
        } else {
            at += 1;
        }
        given = false;
    }
}

/// Reads the tree of a `use` from `at` on: each path with the name that it gives, and its line.
/// Returns what comes behind.
fn use_tree(
    tokens: &[Token<'_>],
    mut at: usize,
    before: &[String],
    tree: &mut Vec<(Vec<String>, String, usize)>,
) -> usize {
    let mut path = before.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.text {
            "{" => {
                let end = close(tokens, at);
                at += 1;
                while at < end {
                    let next = use_tree(tokens, at, &path, tree);
                    let is_comma = tokens.get(next).is_some_and(|token| token.text == ",");
                    at = (next + usize::from(is_comma)).max(at + 1);
                }
                return end + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).map_or("_", |token| token.text);
                tree.push((path, name.to_owned(), token.line));
                return at + 2;
            }
            "::" => {}
            // The module that stands before it.
            "self" if !path.is_empty() => {}
            "*" => {
                let line = token.line;
                tree.push((path, "*".to_owned(), line));
                return at + 1;
            }
            _ if token.is_word() => path.push(token.text.to_owned()),
            _ => break,
        }
        at += 1;
    }
    // What ends it: a comma, a brace, or a semicolon.
    let line = tokens[at.saturating_sub(1).min(tokens.len() - 1)].line;
    let name = path.last().cloned().unwrap_or_default();
    tree.push((path, name, line));
    at
}
