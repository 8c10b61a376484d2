//! A host process of the soak test: it loads one controller over vfio-user, does at random by seed
//! what hosts do, and verifies all data, also that of the host before it, which was killed.
//!
//! It ends when its standard input does: it then waits for what is out, verifies everything once
//! more, and says so. Progress is a line a second on standard output. Exit code 1 says that
//! something was wrong.

#![forbid(unsafe_code)]

mod host;
mod journal;

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Parser;

use crate::host::Host;

/// Loads a controller and verifies.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The controller's socket
    #[arg(long)]
    socket: PathBuf,
    /// Where it is noted what was written
    #[arg(long)]
    journal: PathBuf,
    /// How it rings
    #[arg(long, value_parser = ["mapped", "shadow", "trapped"])]
    doorbells: String,
    /// Seed of the random numbers
    #[arg(long)]
    seed: u64,
    /// The medium keeps nothing
    #[arg(long)]
    unverified: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    thread::spawn(move || {
        let mut byte = [0];
        // The other end never writes: the read returns when that end is closed.
        while matches!(std::io::stdin().read(&mut byte), Ok(1..)) {}
        stopped.store(true, Ordering::Relaxed);
    });
    let ran = Host::connect(&args).and_then(|mut host| host.run(&stop));
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("FAILED: {error:#}");
            ExitCode::FAILURE
        }
    }
}
