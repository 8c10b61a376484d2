//! Timing models of drives: event machines in whole nanoseconds that compute when a command
//! completes.
//!
//! A model holds no data and reads no clock. The caller submits commands ([`Timing::submit`]) and
//! advances time ([`Timing::advance`]), and gets the completions. So the same machine serves a real
//! host, with the time of a clock, and a simulation, with its own time. The book's *Timing models,
//! exactly* defines each model to the nanosecond.
//!
//! Invariants:
//! - The same calls give the same results on any machine: no floating point, no unordered
//!   iteration, no randomness except from a seed.
//! - Nothing is allocated per command once a model has reached its size.
//! - A submission that stalls has changed nothing.
//!
//! Not included: storing or checking data, hosts, queues and namespaces, and waiting.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    warn(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_lossless
    )
)]

#[macro_use]
mod policies;

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
    Collections, Counters, DieShape, Flash, Geometry, Initial, Lines, Method, OpenLine, PLAYED_MAX,
    PartitionView, Policy, Prepared, Progress, Room, STEADY_SEED, SlcState, Snapshot, StateError,
    Wear, Writer,
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

/// Result of a submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The command is in flight; its id comes back from [`Timing::advance`].
    Accepted,
    /// There is no room, and nothing has changed. Retry after the next event.
    Stall,
}

/// A completed command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Due {
    /// Completion time in nanoseconds.
    pub at: u64,
    /// Its id from the submission.
    pub id: u64,
}

/// A timing model.
pub trait Timing {
    /// Submits a command that arrives at `now`, in nanoseconds. Time never decreases: a `now`
    /// before that of the previous call counts as that.
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission;

    /// Whether a [`Timing::submit`] of `op` would be accepted in the state after the last
    /// [`Timing::advance`].
    fn has_room(&self, op: &Op<'_>) -> bool;

    /// Time of the next event: a command completes, or room becomes free. `None` if nothing is in
    /// flight.
    fn next_event(&self) -> Option<u64>;

    /// Processes all events due up to `now`, and appends completions: by time, then in the order of
    /// submission.
    fn advance(&mut self, now: u64, done: &mut Vec<Due>);
}
