//! Times of a point.

use driver::program::Ran;
use serde::{Deserialize, Serialize};

/// Times of a point: in JSON, three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 3]", into = "[u64; 3]")]
pub struct Latencies {
    /// Total time of all commands.
    pub sum_ns: u64,
    /// Number of commands.
    pub count: u64,
    /// Time from the first command until the last completion.
    pub elapsed_ns: u64,
}

impl Latencies {
    /// Mean time of a command, rounded to the nearest.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        let count = self.count.max(1);
        (self.sum_ns + count / 2) / count
    }

    pub(super) fn of(ran: &Ran) -> Self {
        let all = ran.latencies_ns.iter().flatten().flatten();
        Self {
            sum_ns: all.clone().sum(),
            count: all.count() as u64,
            elapsed_ns: ran.elapsed_ns,
        }
    }
}

impl From<[u64; 3]> for Latencies {
    fn from([sum_ns, count, elapsed_ns]: [u64; 3]) -> Self {
        Self {
            sum_ns,
            count,
            elapsed_ns,
        }
    }
}

impl From<Latencies> for [u64; 3] {
    fn from(latencies: Latencies) -> Self {
        [latencies.sum_ns, latencies.count, latencies.elapsed_ns]
    }
}
