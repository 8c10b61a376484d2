//! Rates of the commands of a job: as fio has them, of bytes, by the smallest size.

use crate::job::{Job, Kind, Rate};

/// A rate of commands of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) bytes_per_s: u128,
    /// Commands of the smallest size per second.
    pub(crate) per_s: u64,
    pub(crate) smallest: u64,
}

impl Pace {
    /// fio converts a rate of commands into bytes by the smallest size (HOWTO, `rate_iops`).
    pub(crate) fn of(job: &Job, kind: usize) -> Option<Self> {
        let sizes = job.sizes[kind].iter().map(|(size, _)| *size);
        let smallest = u64::from(sizes.min().unwrap_or(1).max(1));
        let (bytes_per_s, per_s) = match job.rates[kind]? {
            Rate::Commands(per_s) => (u128::from(per_s) * u128::from(smallest), per_s),
            Rate::Bytes(bytes) => (u128::from(bytes), (bytes / smallest).max(1)),
        };
        Some(Self {
            bytes_per_s: bytes_per_s.max(1),
            per_s: per_s.max(1),
            smallest,
        })
    }
}

/// Index of an operation among reads, writes and trims, of which each has a rate.
pub(crate) fn direction(kind: Kind) -> Option<usize> {
    match kind {
        Kind::Read | Kind::Retrieve => Some(0),
        Kind::Write | Kind::Store => Some(1),
        Kind::Trim | Kind::Delete => Some(2),
        _ => None,
    }
}
