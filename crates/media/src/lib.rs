//! Where the data lives: `null`, `ram`, `file`, `drive` and `keyvalue`, with zones and the time of
//! a drive over them where wanted.
//!
//! A [`Medium`] is opened once and shared; each reactor makes a [`Channel`] and enters through the
//! port of the crate `controller`. A medium is a run of bytes, or holds keys and values: it knows
//! no namespaces, no LBAs beyond the smallest one, and no hosts. One that has more state than bytes
//! has one channel.
//!
//! Invariants:
//! - A medium's size never changes.
//! - A ticket that is taken comes back exactly once; `add`, `submit` and `reap` never wait.
//! - Nothing is allocated per command.
//!
//! What it does NOT do: check requests against namespaces (the controller has; only the medium's
//! own end is looked at again), schedule, have a clock of its own, or retry what the host can
//! retry.
//!
//! Unsafe code stands in `file/ring/mod.rs` alone.
#![deny(
    unsafe_code,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

mod channel;
#[cfg(test)]
mod disk;
pub mod drive;
mod error;
mod file;
mod journal;
mod keyvalue;
mod look;
mod medium;
mod null;
mod order;
mod overlap;
mod possible;
mod ram;
mod size;
pub mod told;
mod trouble;
mod zoned;

pub use self::channel::Channel;
pub use self::drive::DriveCounts;
pub use self::error::MediumError;
pub use self::file::{Direct, FileCounts, FileIo, IoCounts};
pub use self::journal::{RecordSink, StateError};
pub use self::keyvalue::Dialect;
pub use self::look::{Asked, Look, PairsLook, Stalls, TimingLook};
pub use self::medium::{MAX_DEPTH, Medium, MediumKind, MediumSpec, RECORD_MAX};
/// A reactor's part in the completions of a drive's channels.
pub type Relay = drive::Relay<driver::bus::place::AnyBus>;
pub use self::drive::Duty;
pub use self::trouble::{Trouble, TroubleLook, Troubles};
pub use self::zoned::{ZoneLook, ZoneLoss, ZoneLossError, ZoneSpec, ZonesLook, ZonesState};
