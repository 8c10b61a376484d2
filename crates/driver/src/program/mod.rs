//! Fixed programs: commands in closed loops, whose order depends neither on chance nor on time.
//!
//! So the same program can run on a real drive, on one in virtual time, and, as a list, on any
//! other model that says when commands complete. The caller provides the time ([`Pace`]).
//!
//! A worker is a queue pair with a list of commands and a depth: that many are in flight until the
//! list ends, and each completion starts the next. The latency of each command is measured from
//! just before its doorbell is stored until its completion is seen.
//!
//! Not included: the check of data (see [`crate::workload`]), and a buffer for every command: the
//! commands of a worker share one.

mod command;
mod run;

#[cfg(test)]
mod tests;

pub use command::{Command, KEY_LEN, Target, key};
pub use run::{Pace, Ran, Rules, Worker, run};
