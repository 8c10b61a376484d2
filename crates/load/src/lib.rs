//! Hosts that load drives: the loops of benchmarks, replays and key-value benchmarks, and the
//! measurement of the machine itself.
//!
//! Everything that a figure depends on is here, and is compiled for speed. [`host`] has the jobs,
//! with what runs beside them ([`beside`], [`host::idle`], [`record`]), [`keys`] the commands of
//! keys, [`trace`] recorded commands, [`program`] those of a program, [`moving`] a job on a drive
//! that moves, [`floor`] and [`placement`] the machine. It does NOT parse command lines or print:
//! `lab` does, which is not optimised. So no function here is generic in what `lab` passes for each
//! command, as `lab` would contain another instance of it.
#![forbid(unsafe_code)]

pub mod beside;
pub mod floor;
pub mod host;
pub mod keys;
pub mod moving;
pub mod placement;
pub mod program;
pub mod record;
pub mod trace;

pub use host::{Host, Needs, Queue};
