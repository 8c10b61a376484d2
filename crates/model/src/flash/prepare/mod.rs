//! Drives in the state of long use: what uniform random overwrites of single pages lead to.
//!
//! - [`Flash::precondition`] plays it: every page is placed and collected as in use, in no time. It is what steady state means here.
//! - [`Flash::seeded`] writes it down, for drives too large for that: a small drive of the same lines and over-provisioning is played, and the lines of the large one are
//!   given as many valid pages. Which pages those are is drawn; how often lines were erased is not known and left at 0.
//!
//! What it does NOT do: prepare for another workload.

mod permutation;
mod seeded;

use super::Flash;
use super::extra::random::Random;

/// Rounds in which write amplification has always settled.
const MOST_ROUNDS: u32 = 50;

/// How a drive was prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Every page operation was done.
    Played,
    /// From what a small drive of the same kind came to.
    Seeded,
}

/// What came of a preparation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// How it was done.
    pub method: Method,
    /// Write amplification in the last round, of the drive that was played, in thousandths.
    pub write_amplification_permille: u64,
    /// Rounds: capacities that were overwritten at random.
    pub rounds: u32,
    /// Pages that were written, for hosts and for collection.
    pub page_operations: u64,
}

/// A drive as far as it can be overwritten.
trait Overwrite {
    /// Pages that hosts see.
    fn pages(&self) -> u64;

    /// Writes one of them.
    fn overwrite(&mut self, page: u64);

    /// Pages written by hosts, and by hosts and collection, so far.
    fn written(&self) -> (u64, u64);
}

impl Overwrite for Flash {
    fn pages(&self) -> u64 {
        self.geometry.pages()
    }

    fn overwrite(&mut self, page: u64) {
        self.place_only(page);
    }

    fn written(&self) -> (u64, u64) {
        let counters = self.counters();
        let host = counters.host_pages;
        (host, host + counters.collected_pages)
    }
}

/// Writes every page in order, and then capacities at random until write amplification has changed by less than 2 % from one to the next.
fn play(drive: &mut impl Overwrite, seed: u64) -> Prepared {
    let pages = drive.pages();
    let begin = drive.written();
    (0..pages).for_each(|page| drive.overwrite(page));
    let mut random = Random::new(seed);
    let mut before = 0;
    let mut rounds = 0;
    loop {
        let start = drive.written();
        (0..pages).for_each(|_| drive.overwrite(random.below(pages)));
        let end = drive.written();
        let amplification = per_mille(end.1 - start.1, end.0 - start.0);
        rounds += 1;
        let change = amplification.abs_diff(before);
        if change * 50 < before || rounds == MOST_ROUNDS {
            return Prepared {
                method: Method::Played,
                write_amplification_permille: amplification,
                rounds,
                page_operations: end.1 - begin.1,
            };
        }
        before = amplification;
    }
}

/// `part / whole` in thousandths.
fn per_mille(part: u64, whole: u64) -> u64 {
    let thousandths = u128::from(part) * 1000 / u128::from(whole.max(1));
    u64::try_from(thousandths).unwrap_or(u64::MAX)
}

impl Flash {
    /// Brings the drive into the steady state of uniform random overwrites of single pages, by real page operations and in no time: every page in order, then capacities
    /// at random until write amplification has changed by less than 2 % from one to the next.
    pub fn precondition(&mut self, seed: u64) -> Prepared {
        play(self, seed)
    }
}
