//! A holder between a real host and workers that misbehave.
//!
//! This program is all processes of its tests: it starts itself as a holder, and that starts it as
//! its worker. A host is a socket of the test, whose bytes are written here and not by the code
//! under test. A worker does what a host asks it to do (`worker`), wrong things included.
//!
//! Invariants: every wait has a bound; a process that a test starts ends with the test, and lives
//! for [`LIFE`] at most.
#![allow(clippy::unwrap_used)]

mod cases;
mod control;
mod host;
mod rig;
mod worker;

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use nix::sys::signal::SigSet;

/// The environment variable by which the program knows that it is a holder.
const HOLDER: &str = "HOSTILE_HOLDER";
/// The environment variable by which it knows that it writes to a socket without end.
const SCRIBBLER: &str = "HOSTILE_SCRIBBLER";
/// How long a process of a test lives at most.
const LIFE: Duration = Duration::from_secs(60);
/// Tests at a time.
const THREADS: usize = 2;

type Test = (&'static str, fn());

fn main() -> ExitCode {
    let has = |name| std::env::var_os(name).is_some();
    if has(SCRIBBLER) {
        end_after_life();
        worker::scribble();
        return ExitCode::SUCCESS;
    }
    if has("NVMIRAGE_HOLDER") {
        end_after_life();
        worker::run();
        return ExitCode::SUCCESS;
    }
    if has(HOLDER) {
        return be_holder();
    }
    be_tests(std::env::args().skip(1).collect())
}

/// Ends this process when its time is over.
fn end_after_life() {
    std::thread::spawn(|| {
        std::thread::sleep(LIFE);
        std::process::exit(99);
    });
}

fn be_holder() -> ExitCode {
    // The thread that ends it must take no signal that is the holder's.
    SigSet::all().thread_block().unwrap();
    end_after_life();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    match holder::hold(std::env::args_os().collect(), false) {
        Ok(holder::Ended::Worker(status)) => ExitCode::from(status),
        Ok(holder::Ended::Signal) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the holder failed: {error}");
            ExitCode::from(77)
        }
    }
}

/// The options of Rust's test programs, as far as cargo and nextest give them.
fn be_tests(arguments: Vec<String>) -> ExitCode {
    let has = |name: &str| arguments.iter().any(|it| it == name);
    let names: Vec<_> = arguments.iter().filter(|it| !it.starts_with('-')).collect();
    let is_chosen = |test: &str| {
        let is_exact = has("--exact");
        let is_named = |name: &str| test == name || !is_exact && test.contains(name);
        names.is_empty() || names.iter().any(|name| is_named(name))
    };
    let all = cases::all();
    let chosen: Vec<Test> = all.into_iter().filter(|(it, _)| is_chosen(it)).collect();
    if has("--list") {
        if !has("--ignored") {
            chosen.iter().for_each(|(name, _)| println!("{name}: test"));
        }
        return ExitCode::SUCCESS;
    }
    rig::adopt_orphans();
    let (left, failed) = (Mutex::new(chosen), Mutex::new(Vec::new()));
    let next = || left.lock().unwrap().pop();
    let work = || {
        while let Some((name, test)) = next() {
            let result = std::thread::Builder::new().name(name.into()).spawn(test);
            match result.unwrap().join() {
                Ok(()) => println!("test {name} ... ok"),
                Err(_) => failed.lock().unwrap().push(name),
            }
        }
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|_| drop(scope.spawn(work)));
    });
    rig::reap_orphans();
    let failed = failed.into_inner().unwrap();
    failed.iter().for_each(|name| println!("FAILED {name}"));
    ExitCode::from(u8::from(!failed.is_empty()))
}
