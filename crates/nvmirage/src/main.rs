//! nvmirage: NVMe drives in software.
//!
//! This crate is the command line: each command is that of the server, of the client or of the
//! laboratory, or puts them together.
#![forbid(unsafe_code)]

#[cfg(test)]
mod book;
mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
