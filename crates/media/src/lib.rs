//! Storage media: `null`, `ram`, `file`, `drive` and `keyvalue`, optionally with zones and the
//! timing of a drive on top.
//!
//! A [`Medium`] is opened once and shared; each reactor creates a [`Channel`] and uses it through
//! the port of the crate `controller`. A medium is a range of bytes, or holds keys and values; it
//! has no namespaces, no LBAs except the smallest size, and no hosts. A medium with more state than
//! bytes has one channel.
//!
//! Invariants:
//! - A medium's size never changes.
//! - An accepted ticket comes back exactly once; `add`, `submit` and `reap` never wait.
//! - Nothing is allocated per command.
//!
//! Not included: checks of requests against namespaces (the controller has done them; only the
//! medium's own end is checked again), scheduling, a clock, and retries that the host can do.
//!
//! The only unsafe code is in `file/ring/mod.rs`.
#![deny(
    unsafe_code,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

#[macro_use]
mod vendors;

mod channel;
#[cfg(test)]
mod disk;
pub mod drive;
mod error;
mod file;
mod journal;
mod kept;
mod keyvalue;
mod look;
mod medium;
mod null;
mod order;
mod overlap;
mod possible;
mod ram;
pub mod scripted;
mod size;
mod trouble;
mod vendor;
mod zoned;

pub use self::channel::Channel;
pub use self::drive::{DriveCounts, Duty};
pub use self::error::MediumError;
pub use self::file::{Direct, FileCounts, FileIo, IoCounts};
pub use self::journal::{RecordSink, StateError};
pub use self::kept::{KeptError, KeptFiles};
pub use self::keyvalue::Dialect;
pub use self::look::{Asked, Look, PairsLook, Stalls, TimingLook};
pub use self::medium::{MAX_DEPTH, Medium, MediumKind, MediumSpec, RECORD_MAX};
pub use self::trouble::{Trouble, TroubleLook, Troubles};
pub use self::vendor::Vendor;
pub use self::zoned::{ZoneLook, ZoneLoss, ZoneLossError, ZoneSpec, ZonesLook, ZonesState};

/// A reactor's part in the completions of a drive's channels.
pub type Relay = drive::Relay<driver::bus::place::AnyBus>;
