//! The interface of a medium, and the requests to it: requests, tickets, time and command sets.
//!
//! A controller hands requests to channels ([`Channel`]), and a channel gives every ticket back
//! with an outcome. Neither side knows the other: `controller` and `media` both depend on this
//! crate, and not on each other.
//!
//! Reading order: [`channel`] (the contract), [`ticket`] (the duty to complete a command once),
//! [`time`], [`namespace`] (where bytes are, and what commands may not do), [`set`] (command sets
//! beside NVM), [`allocation`] (which blocks hold data), [`prp`] (where a command's data is),
//! [`status`] (what the host sees).
//!
//! Not included: I/O, and any state.
#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

pub mod allocation;
pub mod channel;
pub mod namespace;
pub mod prp;
mod ranges;
pub mod set;
pub mod status;
#[cfg(any(test, feature = "testing"))]
#[allow(
    missing_docs,
    missing_debug_implementations,
    clippy::unwrap_used,
    clippy::new_without_default,
    reason = "for tests"
)]
pub mod testing;
pub mod ticket;
pub mod time;

pub use channel::{
    Added, ByteRange, Cause, Channel, ChannelId, Channels, Done, DriveReport, FUSED_BYTES,
    MediumTraits, Outcome, ReportedPage, Request,
};
pub use ranges::{BlockRanges, RANGES_MAX, TooManyRanges};
