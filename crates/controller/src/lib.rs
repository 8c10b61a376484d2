//! The behaviour of an NVMe controller: a pure state machine, and the ports that media and
//! transports implement.
//!
//! It uses no clock, thread, descriptor or async: time is an argument ([`time::Time`]), memory
//! comes as a view of the host's mappings (`memory::DmaView`), and the caller decides when a
//! controller gets a turn.
//!
//! Reading order: [`port`] (implemented by a medium), [`ticket`] (the obligation to complete a
//! command once), [`lane`] (one completion queue with its submission queues: the hot path),
//! [`prp`], [`sgl`], [`command`], [`set`] (command sets beside NVM), then the admin side.
//!
//! What it does NOT do: it raises no interrupt and answers no socket (transports do), moves no data
//! (media do), and does not schedule (the engine does).
#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

pub mod admin;
mod arbitration;
pub mod command;
pub mod config;
pub mod controller;
pub mod counters;
pub mod flight;
pub mod gate;
pub mod identity;
pub mod inspect;
pub mod lane;
pub mod namespace;
mod pci;
pub mod port;
pub mod prp;
pub mod queue;
mod registers;
pub mod set;
pub mod sgl;
pub mod state;
pub mod status;
pub mod subsystem;
pub mod ticket;
pub mod time;

pub use admin::logs::{REACTOR_LOG, ReactorLog};
pub use config::{ConfigError, ControllerConfig, DoorbellMode};
pub use controller::{Controller, Failure, Interrupt};

#[cfg(test)]
mod testing;
