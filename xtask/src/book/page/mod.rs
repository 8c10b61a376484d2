//! A page of the book: its fenced blocks, and the marks that say what is done with each.
//!
//! A mark is an HTML comment before a block, which no reader sees: `<!-- book: background -->`.
//! Without one a block is what its language says: `sh` is run, `toml` is checked as a
//! configuration, `json` is parsed, and the others are shown. What a mark may say stands in the
//! book's decision 46. A block that is not run says so with a reason.
//!
//! It does not know what commands do, nor the rest of Markdown.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::tidy::Finding;

/// What a server prints when hosts can attach, which a block in the background is waited for by.
const READY: &str = "ready: ";

/// Languages of blocks that are shown and nothing else.
const SHOWN: &[&str] = &["text", "rust,ignore", "xml", "yaml", "ini"];

/// A page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    /// Its path, from the root of the project.
    pub(crate) name: String,
    /// What is done with it, in order.
    pub(crate) blocks: Vec<Block>,
}

/// A block, or commands that no reader sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Where it begins, counted from 1.
    pub(crate) line: usize,
    /// What is done with it.
    pub(crate) kind: Kind,
    /// Its lines.
    pub(crate) text: String,
}

/// What is done with a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its commands are run.
    Commands(Commands),
    /// It is checked as a configuration, with these lines before it, and kept as a file where that
    /// has a name.
    Configuration {
        before: String,
        file: Option<String>,
    },
    /// It is a file of this name.
    File(String),
    /// It is parsed.
    Json,
    /// It is what the commands before it print; other numbers are as good where they vary.
    Output { numbers_vary: bool },
    /// It is shown, and this says why nothing is done.
    NotRun(String),
    /// It is shown.
    Shown,
}

/// How commands are run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Commands {
    /// No reader sees them: they set up what the page takes for granted.
    pub(crate) hidden: bool,
    /// The first of them runs until the page ends, and the others when it has printed this.
    pub(crate) background: Option<String>,
    /// They are typed into the guest of this number, from 1.
    pub(crate) guest: Option<u32>,
    /// They are to fail.
    pub(crate) fails: bool,
}

/// What one mark says.
#[derive(Debug, PartialEq, Eq)]
enum Mark {
    Run(Commands),
    Commands(Commands),
    Before,
    File(String),
    Output { numbers_vary: bool },
    NotRun(String),
}

/// A mark, where it stands, and its further lines.
#[derive(Debug)]
struct Marked {
    line: usize,
    mark: Mark,
    text: String,
}

/// Reads the page `name` of the project in `root`, and what is wrong with its marks.
///
/// # Errors
/// It, or a file that it includes, cannot be read.
pub(crate) fn read(root: &Path, name: &str) -> Result<(Page, Vec<Finding>)> {
    let path = root.join(name);
    let source = fs::read_to_string(&path).with_context(|| format!("cannot read {name}"))?;
    let folder = path.parent().context("a page lies in a folder")?;
    let include = |file: &str| fs::read_to_string(folder.join(file)).ok();
    Ok(parse(name, &source, &include))
}

/// Reads the page `name` from its `source`; `include` gives the text of files that it includes.
pub(crate) fn parse(
    name: &str,
    source: &str,
    include: &dyn Fn(&str) -> Option<String>,
) -> (Page, Vec<Finding>) {
    let mut reader = Reader {
        name,
        include,
        blocks: Vec::new(),
        marks: Vec::new(),
        findings: Vec::new(),
    };
    let mut lines = source.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        if let Some(rest) = line.trim_start().strip_prefix("```") {
            let indent = line.len() - line.trim_start().len();
            let inside = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| line.trim() != "```")
                .map(|line| line.get(indent..).unwrap_or_default());
            let text = inside.fold(String::new(), |text, line| text + line + "\n");
            reader.fence(number, rest.trim(), &text);
        } else if let Some(rest) = line.strip_prefix("<!-- book:") {
            let (first, text) = match rest.split_once("-->") {
                Some((first, _)) => (first, String::new()),
                None => {
                    let inside = lines
                        .by_ref()
                        .map(|(_, line)| line)
                        .take_while(|line| line.trim() != "-->");
                    (
                        rest,
                        inside.fold(String::new(), |text, line| text + line + "\n"),
                    )
                }
            };
            reader.mark(number, first.trim(), text);
        } else if !line.trim().is_empty() {
            reader.unused_marks();
        }
    }
    reader.unused_marks();
    let page = Page {
        name: name.to_owned(),
        blocks: reader.blocks,
    };
    (page, reader.findings)
}

struct Reader<'a> {
    name: &'a str,
    include: &'a dyn Fn(&str) -> Option<String>,
    blocks: Vec<Block>,
    marks: Vec<Marked>,
    findings: Vec<Finding>,
}

impl Reader<'_> {
    fn finding(&mut self, line: usize, what: impl Into<String>) {
        self.findings.push(Finding {
            file: self.name.to_owned(),
            line,
            what: what.into(),
        });
    }

    fn unused_marks(&mut self) {
        for marked in std::mem::take(&mut self.marks) {
            self.finding(marked.line, "a mark of the book that no block follows");
        }
    }

    fn mark(&mut self, line: usize, first: &str, text: String) {
        let mark = match parse_mark(first) {
            Ok(mark) => mark,
            Err(why) => return self.finding(line, why),
        };
        let takes_lines = matches!(mark, Mark::Run(_) | Mark::Before);
        if takes_lines == text.trim().is_empty() {
            let what = if takes_lines {
                "this mark has its lines below it, before the -->"
            } else {
                "this mark is one line"
            };
            return self.finding(line, what);
        }
        match mark {
            Mark::Run(commands) => self.blocks.push(Block {
                line,
                kind: Kind::Commands(commands),
                text,
            }),
            mark => self.marks.push(Marked { line, mark, text }),
        }
    }

    fn fence(&mut self, line: usize, language: &str, text: &str) {
        let marks = std::mem::take(&mut self.marks);
        let text = self.included(line, text);
        match kind(language, &text, marks) {
            Ok(kind) => self.blocks.push(Block { line, kind, text }),
            Err(why) => self.finding(line, why),
        }
    }

    /// The text with the files that it includes.
    fn included(&mut self, line: usize, text: &str) -> String {
        let mut whole = String::new();
        for part in text.lines() {
            let asked = part
                .strip_prefix("{{#include ")
                .and_then(|rest| rest.strip_suffix("}}"));
            let Some(asked) = asked else {
                whole += part;
                whole.push('\n');
                continue;
            };
            // FILE, FILE:FROM: or FILE:FROM:TO
            let mut words = asked.split(':');
            let file = words.next().unwrap_or_default();
            let number = |word: Option<&str>| word.and_then(|word| word.parse().ok());
            let from = number(words.next()).unwrap_or(1_usize);
            let to = number(words.next()).unwrap_or(usize::MAX);
            let Some(content) = (self.include)(file) else {
                self.finding(line, format!("includes {file}, which cannot be read"));
                continue;
            };
            let wanted = content.lines().take(to).skip(from.saturating_sub(1));
            whole = wanted.fold(whole, |whole, line| whole + line + "\n");
        }
        whole
    }
}

/// What is done with a block of `language` that has these marks.
fn kind(language: &str, text: &str, marks: Vec<Marked>) -> Result<Kind, String> {
    let mut mark = None;
    let mut before = String::new();
    for marked in marks {
        match marked.mark {
            Mark::Before => before += &marked.text,
            other if mark.is_none() => mark = Some(other),
            _ => return Err("has two marks that say different things".into()),
        }
    }
    if !before.is_empty() && language != "toml" {
        return Err("`before` is for configurations: blocks of toml".into());
    }
    if mark.is_none()
        && let Some(reason) = not_run(text)
    {
        return Ok(Kind::NotRun(reason?));
    }
    match (language, mark) {
        ("", _) => {
            Err("has no language: sh is run, toml and json are checked, text is shown".into())
        }
        (_, Some(Mark::NotRun(reason))) => Ok(Kind::NotRun(reason)),
        ("toml", Some(Mark::File(name))) => Ok(Kind::Configuration {
            before,
            file: Some(name),
        }),
        (_, Some(Mark::File(name))) => Ok(Kind::File(name)),
        ("sh", None) => Ok(Kind::Commands(Commands::default())),
        ("sh", Some(Mark::Commands(commands))) => Ok(Kind::Commands(commands)),
        ("toml", None) => Ok(Kind::Configuration { before, file: None }),
        ("text" | "json" | "toml", Some(Mark::Output { numbers_vary })) => {
            Ok(Kind::Output { numbers_vary })
        }
        ("json", None) => Ok(Kind::Json),
        (language, None) if SHOWN.contains(&language) => Ok(Kind::Shown),
        (_, Some(_)) => Err(format!("this mark does not apply to a block of {language}")),
        (other, None) => Err(format!(
            "is of the language {other}, which this book does not have: xtask/src/book/page/mod.rs says what is done with each"
        )),
    }
}

/// The reason in the first line of a block that is not run: a comment with `not run: REASON`.
fn not_run(text: &str) -> Option<Result<String, String>> {
    let first = text.lines().next()?.trim_start();
    let comment = first
        .strip_prefix('#')
        .or_else(|| first.strip_prefix("<!--")?.strip_suffix("-->"))?;
    let reason = comment.trim().strip_prefix("not run")?;
    Some(reason_of(reason))
}

/// The reason behind `not run`.
fn reason_of(rest: &str) -> Result<String, String> {
    let reason = rest.strip_prefix(':').unwrap_or_default().trim();
    if reason.is_empty() {
        Err("`not run:` needs a reason behind it".into())
    } else {
        Ok(reason.to_owned())
    }
}

fn parse_mark(text: &str) -> Result<Mark, String> {
    if let Some(rest) = text.strip_prefix("not run") {
        return Ok(Mark::NotRun(reason_of(rest)?));
    }
    if let Some(name) = text.strip_prefix("file ") {
        let inside = !name.contains(['/', ' ', '\'']) && !name.starts_with('.');
        return if inside {
            Ok(Mark::File(name.to_owned()))
        } else {
            Err("a file lies in the page's folder, and has no space in its name".into())
        };
    }
    let mut words = text.split(',').map(str::trim);
    match text {
        "before" => return Ok(Mark::Before),
        "output" => {
            return Ok(Mark::Output {
                numbers_vary: false,
            });
        }
        "output, numbers vary" => return Ok(Mark::Output { numbers_vary: true }),
        _ => {}
    }
    let mut commands = Commands::default();
    if words.clone().next() == Some("run") {
        commands.hidden = true;
        words.next();
    }
    for word in words {
        if word == "background" {
            commands.background = Some(READY.to_owned());
        } else if let Some(until) = word.strip_prefix("background until ") {
            commands.background = Some(until.trim_matches('"').to_owned());
        } else if word == "guest" {
            commands.guest = Some(1);
        } else if let Some(number) = word.strip_prefix("guest ") {
            commands.guest = Some(number.parse().map_err(|_| "guests have numbers, from 1")?);
        } else if word == "fails" {
            commands.fails = true;
        } else {
            return Err(format!(
                "`{word}` is no mark: decision 46 of the book has all of them"
            ));
        }
    }
    if commands.hidden {
        Ok(Mark::Run(commands))
    } else {
        Ok(Mark::Commands(commands))
    }
}

/// The pages that a table of contents names, in its order, without what follows a `#`.
pub(crate) fn pages_of(summary: &str) -> Vec<&str> {
    let targets = summary.split("](").skip(1);
    let mut pages: Vec<_> = targets
        .filter_map(|rest| rest.split([')', '#']).next())
        .filter(|target| target.ends_with(".md"))
        .collect();
    pages.dedup();
    pages
}

#[cfg(test)]
mod tests;
