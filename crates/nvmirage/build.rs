//! Tells the program which commit it is built from, for `nvmirage --version`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=NVMIRAGE_COMMIT");
    // A source archive has no repository; NVMIRAGE_COMMIT then names its commit.
    let commit = std::env::var("NVMIRAGE_COMMIT").ok().or_else(commit);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo:rustc-env=NVMIRAGE_COMMIT={commit}");
    let target = std::env::var("TARGET").unwrap_or_default();
    println!("cargo:rustc-env=NVMIRAGE_TARGET={target}");
}

/// The checked-out commit, if this is a repository.
fn commit() -> Option<String> {
    let git = |args: &[&str]| {
        let ran = Command::new("git").args(args).output().ok()?;
        let text = String::from_utf8(ran.stdout).ok()?;
        ran.status.success().then(|| text.trim().to_owned())
    };
    // HEAD's log grows with each commit and checkout
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo:rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}
