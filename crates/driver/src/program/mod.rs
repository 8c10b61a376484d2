//! Fixed programs: commands in closed loops, of which neither chance nor time decides which comes
//! next.
//!
//! So the same program can be given to a drive for real, to one in virtual time, and, as a list, to
//! anything else that says when commands are done. Who runs it brings the time ([`Pace`]).
//!
//! A worker is a queue pair with a list of commands and a depth: that many are in flight until the
//! list ends, each following one that is done. What is measured of each is the time from just
//! before its doorbell is stored until its completion is seen.
//!
//! What it does NOT do: check data (that is [`crate::workload`]), or give every command a buffer of
//! its own: those of a worker share one.

mod command;
mod run;

#[cfg(test)]
mod tests;

pub use command::{Command, KEY_LEN, Target, key};
pub use run::{Pace, Ran, Rules, Worker, run};
