//! The committed inputs of each target (`fuzz/corpus`), replayed with debug assertions.
//!
//! A target that is not replayed, and one without inputs, is a failure. The search for more inputs
//! is not here: `cargo xtask fuzz`.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use std::{fs, thread};

/// Bound on one input, that of the search (`-timeout` in xtask/src/fuzz.rs).
const BOUND: Duration = Duration::from_secs(20);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Replays the inputs of a folder.
///
/// # Panics
/// There is none, one is no input of the target, or the target panics or does not end in time with
/// one.
fn replay(folder: &Path, target: fn(&[u8]) -> bool, bound: Duration) {
    let names = names(folder);
    assert!(!names.is_empty(), "no input in {}", folder.display());
    let inputs: Vec<Vec<u8>> = names
        .iter()
        .map(|name| fs::read(folder.join(name)).unwrap())
        .collect();
    // One thread for all of them, as targets keep what is dear to make in thread-local variables.
    let (done, outcomes) = channel();
    thread::spawn(move || {
        for input in inputs {
            if done.send(catch_unwind(|| target(&input)).ok()).is_err() {
                return;
            }
        }
    });
    let mut wrong = Vec::new();
    for name in names {
        match outcomes.recv_timeout(bound) {
            Ok(Some(true)) => {}
            Ok(Some(false)) => wrong.push(format!("{name} is no input of the target: delete it")),
            Ok(None) => wrong.push(format!("the target panics with {name}")),
            // What follows waits behind it.
            Err(RecvTimeoutError::Timeout) => {
                panic!("{name} takes more than {bound:?}; before it: {wrong:?}")
            }
            Err(RecvTimeoutError::Disconnected) => panic!("the replay ended before {name}"),
        }
    }
    let folder = folder.display();
    assert!(wrong.is_empty(), "{folder}:\n{}", wrong.join("\n"));
}

/// A test for each target, and their names.
macro_rules! replayed {
    ($($target:ident)*) => {
        const REPLAYED: &[&str] = &[$(stringify!($target)),*];

        $(#[test]
        fn $target() {
            let folder = root().join("corpus").join(stringify!($target));
            replay(&folder, tests_fuzz::$target, BOUND);
        })*
    };
}

replayed! {
    authentication
    mediated
    moved_state
    nbd_client
    nbd_negotiation
    prp_walk
    session_bytes
    sgl_walk
    sqe_program
    state_area
    tcp_host
    tcp_stream
    tcp_target
    tls_hello
    trace_file
    ublk_session
    vhost_session
}

#[test]
fn every_target_is_replayed_and_every_corpus_has_a_target() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let programs = manifest.split("[[bin]]").skip(1);
    let targets: BTreeSet<&str> = programs
        .filter_map(|program| program.trim().strip_prefix("name = \"")?.split('"').next())
        .collect();
    let corpora = names(&root().join("corpus"));
    let replayed: BTreeSet<&str> = REPLAYED.iter().copied().collect();
    assert_eq!(replayed, targets);
    assert_eq!(replayed, corpora.iter().map(String::as_str).collect());
}

/// A folder with these inputs.
fn folder(inputs: &[&[u8]]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (number, input) in inputs.iter().enumerate() {
        fs::write(folder.path().join(number.to_string()), input).unwrap();
    }
    folder
}

#[test]
fn inputs_that_are_good_pass() {
    replay(folder(&[b"a", b"b"]).path(), |_| true, BOUND);
}

#[test]
#[should_panic(expected = "cannot read")]
fn a_missing_corpus_is_found() {
    replay(&folder(&[]).path().join("none"), |_| true, BOUND);
}

#[test]
#[should_panic(expected = "no input in")]
fn an_empty_corpus_is_found() {
    replay(folder(&[]).path(), |_| true, BOUND);
}

#[test]
#[should_panic(expected = "1 is no input of the target")]
fn bytes_that_are_no_input_are_found() {
    replay(
        folder(&[b"a", b""]).path(),
        |bytes| !bytes.is_empty(),
        BOUND,
    );
}

#[test]
#[should_panic(expected = "the target panics with 1")]
fn an_input_that_breaks_the_target_is_found() {
    let target = |bytes: &[u8]| {
        assert_ne!(bytes, b"b");
        true
    };
    replay(folder(&[b"a", b"b", b"c"]).path(), target, BOUND);
}

#[test]
#[should_panic(expected = "0 takes more than 50ms")]
fn an_input_that_takes_too_long_is_found() {
    let target = |_: &[u8]| {
        thread::sleep(Duration::from_secs(2));
        true
    };
    replay(folder(&[b"a"]).path(), target, Duration::from_millis(50));
}
