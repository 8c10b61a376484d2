//! The points at which drives are compared: with a second reading of their models, with what a
//! host's clock sees, and with what was published of them.
//!
//! A point is a closed loop of one kind of command, of one size, at one depth. Its commands are a
//! list that neither chance nor time changes, so the same ones can be given to a drive for real, to
//! one in virtual time, and to the oracle in `tests/oracle`.
//!
//! Beside the points stand [`collection`], [`one_zone`] and [`zones_in_turn`]: what is looked at
//! over time, or is not compared with the oracle.
//!
//! Invariants: reads read what [`Points::prepare`] has written and no point writes; every point
//! begins on a drive at rest, as its [`Measured::before`] leaves it.
//!
//! What it does NOT do: say what a drive should take (that is the model), or wait for real.

mod courses;
mod latencies;
mod oracle;
mod table;
mod virtual_time;

#[cfg(test)]
mod tests;

pub use courses::{Course, collection, one_zone, zones_in_turn};
pub use driver::program::{Command, key};
pub use latencies::Latencies;
pub use oracle::recorded;
pub use table::of;
pub use virtual_time::{compound, measure};

/// What a point's commands do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointOp {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Stores of values.
    Store,
    /// Retrieves of values.
    Retrieve,
    /// Compound commands of eight stores of values.
    StoreEight,
    /// Zone Appends.
    Append,
}

impl PointOp {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            PointOp::Read => "read",
            PointOp::Write => "write",
            PointOp::Store => "store",
            PointOp::Retrieve => "retrieve",
            PointOp::StoreEight => "store-eight",
            PointOp::Append => "append",
        }
    }
}

/// One point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// What its commands do.
    pub op: PointOp,
    /// Bytes of each, or of its value.
    pub block_size: u32,
    /// Commands in flight of each worker.
    pub queue_depth: u16,
    /// Queue pairs at work.
    pub workers: u16,
}

impl Point {
    /// Its name, which no other point of a drive has.
    #[must_use]
    pub fn name(&self) -> String {
        format!(
            "{} {} qd{} x{}",
            self.op.name(),
            self.block_size,
            self.queue_depth,
            self.workers
        )
    }
}

/// Commands of several workers, each with so many in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Commands in flight of each worker.
    pub depth: u16,
    /// What each worker does.
    pub workers: Vec<Vec<Command>>,
}

/// A point with what it consists of.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which.
    pub point: Point,
    /// What is done before, and is not measured.
    pub before: Phase,
    /// What is measured.
    pub program: Phase,
}

/// All points of a kind of drive.
#[derive(Clone, Debug)]
pub struct Points {
    /// Bytes of the drive.
    pub size_bytes: u64,
    /// What a fresh drive is given once.
    pub prepare: Phase,
    /// The points.
    pub measured: Vec<Measured>,
}

/// How long a drive rests between two phases: longer than any drive's buffer takes to be written.
pub const REST_NS: u64 = 50_000_000;

/// Keys of a key-value drive, at most.
pub const KEYS_MAX: u32 = 1 << 16;

impl Phase {
    /// No commands.
    #[must_use]
    pub fn none() -> Self {
        Self {
            depth: 1,
            workers: Vec::new(),
        }
    }

    /// Bytes of its largest command.
    #[must_use]
    pub fn largest(&self) -> u32 {
        let all = self.workers.iter().flatten().map(Command::data_len);
        all.max().unwrap_or(0)
    }
}

impl Points {
    /// Bytes of the largest command of all, and the most workers and commands in flight of one.
    #[must_use]
    pub fn needs(&self) -> (u32, u16, u16) {
        let measured = self.measured.iter().flat_map(|m| [&m.before, &m.program]);
        let phases = std::iter::once(&self.prepare).chain(measured);
        phases.fold((0, 1, 1), |(bytes, workers, depth), phase| {
            let count = u16::try_from(phase.workers.len()).unwrap_or(u16::MAX);
            (
                bytes.max(phase.largest()),
                workers.max(count),
                depth.max(phase.depth),
            )
        })
    }
}
