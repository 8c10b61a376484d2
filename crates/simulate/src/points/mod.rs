//! Points at which drives are compared: with an independent implementation of their models (the
//! oracle), with a host's clock, and with published figures.
//!
//! A point is a closed loop of one kind of command, of one size, at one depth. Its commands are a
//! fixed list, independent of chance and time, so the same ones can be sent to a drive in real
//! time, in virtual time, and to the oracle in `tests/oracle`.
//!
//! [`collection`], [`one_zone`] and [`zones_in_turn`] are additional measurements: over time, or
//! not compared with the oracle.
//!
//! Invariants: reads read data that [`Points::prepare`] has written, and no point writes there;
//! every point begins on a drive at rest, as its [`Measured::before`] leaves it.
//!
//! Not included: the expected times of a drive (the model has them), and waiting in real time.

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

/// Kind of a point's commands.
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
    /// Kind of its commands.
    pub op: PointOp,
    /// Size of each command or of its value in bytes.
    pub block_size: u32,
    /// Commands in flight of each worker.
    pub queue_depth: u16,
    /// Active queue pairs.
    pub workers: u16,
}

impl Point {
    /// Its name, unique among the points of a drive.
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

/// Commands of several workers, each with `depth` in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    /// Commands in flight of each worker.
    pub depth: u16,
    /// Commands of each worker.
    pub workers: Vec<Vec<Command>>,
}

/// A point with its commands.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The point.
    pub point: Point,
    /// Commands before the measurement.
    pub before: Phase,
    /// Measured commands.
    pub program: Phase,
}

/// All points of a kind of drive.
#[derive(Clone, Debug)]
pub struct Points {
    /// Size of the drive in bytes.
    pub size_bytes: u64,
    /// Commands that are run once on a fresh drive.
    pub prepare: Phase,
    /// The points.
    pub measured: Vec<Measured>,
}

/// Rest of a drive between two phases: longer than any drive takes to write its buffer.
pub const REST_NS: u64 = 50_000_000;

/// Maximum number of keys of a key-value drive.
pub const KEYS_MAX: u32 = 1 << 16;

impl Phase {
    /// A phase without commands.
    #[must_use]
    pub fn none() -> Self {
        Self {
            depth: 1,
            workers: Vec::new(),
        }
    }

    /// Size of its largest command in bytes.
    #[must_use]
    pub fn largest(&self) -> u32 {
        let all = self.workers.iter().flatten().map(Command::data_len);
        all.max().unwrap_or(0)
    }
}

impl Points {
    /// Size of the largest command of all, and the maximum numbers of workers and commands in
    /// flight of one.
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
