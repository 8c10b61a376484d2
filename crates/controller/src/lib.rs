//! The behaviour of an NVMe controller: a pure state machine.
//!
//! It uses no clock, thread, descriptor or async: time is an argument ([`port::time::Time`]),
//! memory comes as a view of the host's mappings (`memory::DmaView`), and the caller decides when a
//! controller gets a turn.
//!
//! Reading order: [`port`] (implemented by a medium), [`lane`] (one completion queue with its
//! submission queues: the hot path), [`sgl`], [`command`], then the admin side.
//!
//! Not included: interrupts and answers on sockets (transports), moving data (media), and
//! scheduling (the engine).
#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

#[macro_use]
mod open_enum;

mod arbitration;
pub mod command;
pub mod config;
pub mod controller;
pub mod counters;
pub mod flight;
pub mod gate;
pub mod inspect;
pub mod lane;
mod pci;
pub mod queue;
mod registers;
pub mod sgl;
pub mod state;

pub use config::{ConfigError, ControllerConfig, DoorbellMode, Fabrics, Interface};
pub use controller::{Controller, Failure, Interrupt, REACTOR_LOG, ReactorLog};
#[cfg(feature = "crash")]
pub use memory::own::crash;
