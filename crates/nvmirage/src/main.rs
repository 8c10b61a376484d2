//! nvmirage: NVMe drives in software.
//!
//! This crate is the program: threads, clocks, descriptors, configuration, control API and command
//! line. The other crates contain the controller and the data path.
#![forbid(unsafe_code)]

#[cfg(test)]
mod book;
mod cli;
mod control;
mod events;
mod fuse;
mod identity;
mod interrupt;
mod keep;
mod logging;
mod memory_care;
mod nodes;
mod observe;
mod partition;
mod reactor;
mod reload;
mod saved;
mod service;
mod supervisor;
mod trace;
mod trouble;

fn main() -> std::process::ExitCode {
    cli::main()
}
