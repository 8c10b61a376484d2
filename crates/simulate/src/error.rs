//! Why a simulation cannot be run, and what to do about it.

use controller::config::ConfigError;
use driver::DriverError;
use media::MediumError;

/// Why a simulation cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The driver cannot.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// The controller cannot be made.
    #[error(transparent)]
    Controller(#[from] ConfigError),
    /// The subsystem cannot be made.
    #[error(transparent)]
    Subsystem(#[from] subsystem::ConfigError),
    /// The drive cannot be made.
    #[error(transparent)]
    Medium(#[from] MediumError),
    /// It cannot be used.
    #[error("cannot use the drive: {0}")]
    Channel(#[source] std::io::Error),
    /// There is no memory.
    #[error("cannot make memory for doorbells: {0}")]
    Memory(#[source] std::io::Error),
    /// A job does not fit the drive.
    #[error("[{name}]: {why}")]
    Job {
        /// Its section.
        name: String,
        /// Why, and what to do.
        why: String,
    },
    /// More workers than queue pairs.
    #[error("{count} workers in all: a controller has 64 queue pairs; lower numjobs")]
    Workers {
        /// How many.
        count: usize,
    },
    /// A command is too large.
    #[error("a command of {len} bytes: the drive takes 2097152 at most")]
    TooLarge {
        /// Its bytes.
        len: u64,
    },
    /// An arrival lies beyond the end of the drive.
    #[error(
        "{len} bytes at {offset} lie beyond the end of a drive of {size} bytes: give a larger --size, or --wrap"
    )]
    BeyondEnd {
        /// Its first byte.
        offset: u64,
        /// Its bytes.
        len: u64,
        /// The drive's.
        size: u64,
    },
    /// A trace asks for what the drive has not.
    #[error(
        "the workload has a {command}, and a drive of kind {kind} has no such command: take another preset"
    )]
    NoSuchCommand {
        /// Which.
        command: &'static str,
        /// The drive's kind.
        kind: &'static str,
    },
    /// The drive cannot be prepared.
    #[error(transparent)]
    Prepared(#[from] model::ParameterError),
    /// It is of another kind.
    #[error("only a drive of flash that collects is prepared: this one is of kind {kind}")]
    NotPrepared {
        /// Its kind.
        kind: &'static str,
    },
    /// The state that the drive should begin with is not that of such a drive.
    #[error("cannot begin with the state of a drive: {0}")]
    State(#[from] model::StateError),
    /// Commands are in flight, and nothing happens any more.
    #[error(
        "after {at_ns} ns nothing happens any more: {told} commands submitted, {fetched} fetched, {posted} done"
    )]
    Stuck {
        /// When, since the start.
        at_ns: u64,
        /// Commands that the drive was told of.
        told: u64,
        /// Those that it took.
        fetched: u64,
        /// Those that it finished.
        posted: u64,
    },
}
