//! When a command is done: models of drives, as event machines in whole nanoseconds.
//!
//! A model holds no bytes and reads no clock. It is told what arrives ([`Timing::submit`]) and how
//! far time has come ([`Timing::advance`]), and hands out what is done. The same machine so serves
//! a real host, with the time of a clock, and a simulation, with a time of its own. What each model
//! does is defined, to the nanosecond, in the book's *Timing models, exactly*.
//!
//! Invariants:
//! - The same calls give the same results on any machine: no floating point, no unordered
//!   iteration, no randomness but from a seed.
//! - Nothing is allocated per command once a model has reached its size.
//! - A submission that stalls has changed nothing.
//!
//! What it does NOT do: hold or check data, know of hosts, queues or namespaces, or wait.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_lossless
    )
)]

mod activity;
mod code;
mod error;
mod explain;
mod flash;
mod kv;
mod machine;
mod moving;
mod nvm;
mod op;
pub mod parameter;
mod parameters;
mod pending;
pub mod preset;
mod server;
mod units;
mod zones;

pub use self::activity::{Activity, Busy, Server, Work};
pub use self::code::Simple;
pub use self::error::ParameterError;
pub use self::explain::{Ceiling, Explanation, Latency, ZoneShape};
pub use self::flash::{
    Collections, Counters, DieShape, Flash, Geometry, Lines, Method, OpenLine, PartitionView,
    Policy, Prepared, Progress, Room, SlcState, Snapshot, StateError, Wear, Writer,
};
pub use self::kv::Kv;
pub use self::machine::{Arrival, Model, Recorded, Recording};
pub use self::nvm::Nvm;
pub use self::op::{KvKind, KvOp, Op, ZoneOp, key_hash};
pub use self::parameter::{Change, InvalidParameter, Kind, Moment, Unit, Value};
pub use self::parameters::{
    Arithmetic, CollectionPolicy, CompoundRule, Direction, FlashExtras, FlashParameters,
    KvParameters, NvmParameters, Parameters, ZonesParameters,
};
pub use self::zones::Zones;

/// What became of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It is under way; its id comes back from [`Timing::advance`].
    Accepted,
    /// There is no room now, and nothing has changed. To be tried again after the next event.
    Stall,
}

/// A command that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    /// When, in nanoseconds.
    pub at: u64,
    /// What it was submitted as.
    pub id: u64,
}

/// A timing model.
pub trait Timing {
    /// A command arrives at `now`, in nanoseconds. Time never falls: an earlier `now` than that of
    /// the call before counts as that.
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission;

    /// Whether a [`Timing::submit`] of `op` would be accepted as things stand after the last
    /// [`Timing::advance`].
    fn has_room(&self, op: &Op<'_>) -> bool;

    /// When something is due next: a command is done, or room comes free. `None` where nothing is
    /// under way.
    fn next_event(&self) -> Option<u64>;

    /// Lets everything happen that is due up to `now`, and appends what is done: by time, then in
    /// the order of submission.
    fn advance(&mut self, now: u64, done: &mut Vec<Due>);
}
