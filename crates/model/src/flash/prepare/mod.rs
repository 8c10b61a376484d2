//! Drives in the state of long use: what uniform random overwrites of single pages lead to.
//!
//! - [`Flash::precondition`] plays it: every page is placed and collected as in use, in no time. It
//!   is what steady state means here.
//! - [`Flash::seeded`] writes it down, for drives too large for that: a small drive of the same
//!   lines and over-provisioning is played, and the lines of the large one are given as many valid
//!   pages. Which pages those are is drawn; how often lines were erased is not known and left at 0.
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

/// How far a preparation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The round: 0 while every page is written in order.
    pub round: u32,
    /// Pages of this round that were written.
    pub written: u64,
    /// Pages of a round.
    pub pages: u64,
    /// Write amplification of the round before, in thousandths; 0 in the first two.
    pub write_amplification_permille: u64,
}

/// Pages between two words on progress.
const STRIDE: u64 = 1 << 18;

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

/// Writes every page in order, and then capacities at random until write amplification has changed
/// by less than 2 % from one to the next.
fn play(drive: &mut impl Overwrite, seed: u64, tell: &mut dyn FnMut(Progress)) -> Prepared {
    let pages = drive.pages();
    let begin = drive.written();
    let mut random = Random::new(seed);
    let mut before = 0;
    let mut rounds = 0;
    loop {
        let start = drive.written();
        for written in 0..pages {
            if written % STRIDE == 0 {
                tell(Progress {
                    round: rounds,
                    written,
                    pages,
                    write_amplification_permille: before,
                });
            }
            let page = match rounds {
                0 => written,
                _ => random.below(pages),
            };
            drive.overwrite(page);
        }
        let end = drive.written();
        let amplification = per_mille(end.1 - start.1, end.0 - start.0);
        let change = amplification.abs_diff(before);
        if rounds > 0 && (change * 50 < before || rounds == MOST_ROUNDS) {
            return Prepared {
                method: Method::Played,
                write_amplification_permille: amplification,
                rounds,
                page_operations: end.1 - begin.1,
            };
        }
        before = if rounds == 0 { 0 } else { amplification };
        rounds += 1;
    }
}

/// `part / whole` in thousandths.
fn per_mille(part: u64, whole: u64) -> u64 {
    let thousandths = u128::from(part) * 1000 / u128::from(whole.max(1));
    u64::try_from(thousandths).unwrap_or(u64::MAX)
}

impl Flash {
    /// Brings the drive into the steady state of uniform random overwrites of single pages, by real
    /// page operations and in no time: every page in order, then capacities at random until write
    /// amplification has changed by less than 2 % from one to the next.
    pub fn precondition(&mut self, seed: u64) -> Prepared {
        self.precondition_telling(seed, &mut |_| ())
    }

    /// The same, with word of how far it is now and then.
    pub fn precondition_telling(&mut self, seed: u64, tell: &mut dyn FnMut(Progress)) -> Prepared {
        let prepared = play(self, seed, tell);
        self.prepared = Some(prepared);
        prepared
    }
}
