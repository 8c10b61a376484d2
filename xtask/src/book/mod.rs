//! The book is run: every block of commands in it, and in the README, is run as a reader runs it,
//! or says why it is not.
//!
//! `page` reads blocks and their marks, `session` runs those of a page, `output` compares what
//! comes with what is shown, and `guest` has the guests of pages. Pages are independent of each
//! other, and two are run at a time. Why it is so, and the marks, are decision 46 of the book.

mod guest;
mod output;
mod page;
mod session;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, thread};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use page::{Kind, Page};
use session::{Ran, With};

use crate::counts::Counts;
use crate::process::Interrupt;
use crate::stages::Context;
use crate::tidy::Finding;
use crate::workspace::Workspace;

const SOURCE: &str = "book/src";
const SUMMARY: &str = "book/src/SUMMARY.md";
const README: &str = "README.md";
/// Pages that are run at a time.
const WORKERS: usize = 2;

/// What of the book is run.
#[derive(Debug, Args)]
pub(crate) struct BookArgs {
    /// Run only pages that have this in their name, such as howto/tenants
    #[arg(value_name = "PAGE")]
    pages: Vec<String>,
    /// The program that the book is about; default: the release build
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Runs the pages that are asked for, prints what became of them, and returns whether all went
/// well.
///
/// # Errors
/// A page cannot be read or run.
pub(crate) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &BookArgs) -> Result<bool> {
    let mut all = pages(&workspace.root)?;
    all.retain(|page| {
        args.pages.is_empty()
            || args
                .pages
                .iter()
                .any(|part| page.name.contains(part.as_str()))
    });
    ensure!(!all.is_empty(), "no page has such a name");
    let program = args.program.clone().unwrap_or_else(|| workspace.program());
    let with = With {
        workspace,
        program: &program,
        interrupt,
    };
    let ran = run_pages(&all, with, &|name, ran: &Ran| {
        println!("{}", line_of(name, ran))
    })?;
    let sum = sum(ran);
    print!("{}", report(&sum));
    Ok(sum.failures.is_empty())
}

/// The stage: all of the book, and that it can be built.
///
/// # Errors
/// A page cannot be read or run, or we are asked to stop.
pub(crate) fn stage(context: &mut Context<'_>) -> Result<Counts> {
    let into = context.workspace.target.join("book");
    let mut build = context.workspace.command("mdbook".as_ref())?;
    build.arg("build").arg("--dest-dir").arg(&into).arg("book");
    let said = context.run(&mut build)?;
    ensure!(!said.contains("WARN"), "mdbook warns: see the log");
    let pages = pages(&context.workspace.root)?;
    let program = context.workspace.program();
    let with = With {
        workspace: context.workspace,
        program: &program,
        interrupt: context.interrupt,
    };
    let line = Mutex::new(&mut *context.line);
    let ran = run_pages(&pages, with, &|name, ran| {
        let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
        line.at(&line_of(name, ran));
    })?;
    let sum = sum(ran);
    let report = report(&sum);
    let first = report.lines().next().unwrap_or_default();
    context.line.note(first);
    let mut log = fs::read_to_string(&context.log)?;
    log += &report;
    fs::write(&context.log, log)?;
    for (place, reason) in &sum.not_run {
        context.line.note(&format!("{place}: not run: {reason}"));
    }
    Ok(Counts {
        passed: 1 + sum.commands + sum.checked + sum.outputs,
        failed: u32::try_from(sum.failures.len())?,
        ignored: 0,
    })
}

/// What is wrong with the marks of pages, and with the table of contents. `texts` has all pages of
/// Markdown.
///
/// # Errors
/// A page cannot be read.
pub(crate) fn check(root: &Path, texts: &BTreeMap<String, String>) -> Result<Vec<Finding>> {
    let summary = texts.get(SUMMARY).context("the book has no SUMMARY.md")?;
    let named = names(summary);
    let mut findings = Vec::new();
    for name in named.iter().filter(|name| texts.contains_key(*name)) {
        findings.extend(page::read(root, name)?.1);
    }
    let unnamed = texts
        .keys()
        .filter(|name| name.starts_with(SOURCE) && *name != SUMMARY && !named.contains(*name));
    findings.extend(unnamed.map(|name| Finding {
        file: name.clone(),
        line: 0,
        what: format!("{SUMMARY} does not name it"),
    }));
    Ok(findings)
}

/// The README, and the pages that a table of contents names.
fn names(summary: &str) -> BTreeSet<String> {
    let pages = page::pages_of(summary).into_iter();
    let mut names: BTreeSet<_> = pages.map(|name| format!("{SOURCE}/{name}")).collect();
    names.insert(README.to_owned());
    names
}

/// All pages; those that take longest first.
fn pages(root: &Path) -> Result<Vec<Page>> {
    let summary = fs::read_to_string(root.join(SUMMARY))?;
    let mut pages = Vec::new();
    for name in names(&summary) {
        let (page, findings) = page::read(root, &name)?;
        ensure!(findings.is_empty(), "{}", findings[0]);
        pages.push(page);
    }
    // guests take longest
    let weight = |page: &Page| -> usize {
        let of = |kind: &Kind| match kind {
            Kind::Commands(commands) if commands.guest.is_some() => 100,
            Kind::Commands(_) => 1,
            _ => 0,
        };
        page.blocks.iter().map(|block| of(&block.kind)).sum()
    };
    pages.sort_by_key(|page| std::cmp::Reverse(weight(page)));
    Ok(pages)
}

/// Runs pages, some at a time; `done` gets the result of each.
fn run_pages(
    pages: &[Page],
    with: With<'_>,
    done: &(dyn Fn(&str, &Ran) + Sync),
) -> Result<Vec<Ran>> {
    let next = Mutex::new(pages.iter());
    let worker = || -> Result<Vec<Ran>> {
        let mut all = Vec::new();
        loop {
            let page = next.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(page) = page else {
                return Ok(all);
            };
            let ran = session::run(page, with).with_context(|| page.name.clone())?;
            done(&page.name, &ran);
            all.push(ran);
        }
    };
    let results: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker does not panic"))
            .collect()
    });
    let mut all = Vec::new();
    for result in results {
        all.extend(result?);
    }
    Ok(all)
}

fn sum(all: Vec<Ran>) -> Ran {
    let mut sum = Ran::default();
    for ran in all {
        sum.commands += ran.commands;
        sum.checked += ran.checked;
        sum.outputs += ran.outputs;
        sum.not_run.extend(ran.not_run);
        sum.failures.extend(ran.failures);
    }
    sum.not_run.sort();
    sum
}

fn line_of(name: &str, ran: &Ran) -> String {
    format!(
        "{name}: {} run, {} checked, {} compared, {} not run, {} failed",
        ran.commands,
        ran.checked,
        ran.outputs,
        ran.not_run.len(),
        ran.failures.len()
    )
}

/// What became of all pages: counts in the first line, then what was not run and why, and what
/// failed.
fn report(sum: &Ran) -> String {
    let mut text = format!(
        "{} blocks run, {} files checked, {} outputs compared; {} not run:\n",
        sum.commands,
        sum.checked,
        sum.outputs,
        sum.not_run.len()
    );
    for (place, reason) in &sum.not_run {
        let _ = writeln!(text, "{place}: not run: {reason}");
    }
    for failure in &sum.failures {
        let _ = writeln!(text, "\n{failure}");
    }
    text
}
