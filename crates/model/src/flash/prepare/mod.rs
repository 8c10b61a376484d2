//! State of new drives: [`Initial`] names the choices.
//!
//! Preconditioned drives are in the steady state of uniform random overwrites of single pages:
//!
//! - [`Flash::precondition`] simulates it: every page is placed and collected as in use, in no
//!   time. This defines steady state here.
//! - [`Flash::seeded`] constructs it, for drives too large for that: it simulates a small drive
//!   with the same lines and over-provisioning, and gives the lines of the large one the same
//!   proportions of valid pages. The valid pages are chosen at random; erase counts are unknown and
//!   left at 0.
//!
//! Not included: other workloads.

mod permutation;
mod seeded;

use super::Flash;
use super::extra::random::Random;
use crate::error::ParameterError;
use crate::parameters::FlashParameters;

/// Rounds after which write amplification has always settled.
const MOST_ROUNDS: u32 = 50;

/// Maximum size in bytes up to which preconditioning simulates every page operation.
pub const PLAYED_MAX: u64 = 64 << 30;

/// Default seed of the steady state's random writes.
pub const STEADY_SEED: u64 = 1;

/// State of a new drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Initial {
    /// Nothing is written: reads cost no sense.
    #[default]
    Fresh,
    /// Every page was written once, in order.
    Filled,
    /// The steady state of random overwrites.
    Steady,
}

/// Method of preconditioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Every page operation was simulated.
    Played,
    /// Constructed from the state of a small drive of the same kind.
    Seeded,
}

/// Result of preconditioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// Method.
    pub method: Method,
    /// Write amplification in the last round, of the simulated drive, in thousandths.
    pub write_amplification_permille: u64,
    /// Rounds: number of times that the capacity was overwritten at random.
    pub rounds: u32,
    /// Pages written, for hosts and for collection.
    pub page_operations: u64,
}

/// Progress of preconditioning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Current round: 0 while every page is written in order.
    pub round: u32,
    /// Pages written in this round.
    pub written: u64,
    /// Pages of a round.
    pub pages: u64,
    /// Write amplification of the previous round, in thousandths; 0 in the first two.
    pub write_amplification_permille: u64,
}

/// Pages between two progress reports.
const STRIDE: u64 = 1 << 18;

/// A drive for overwrites.
trait Overwrite {
    /// Logical pages.
    fn pages(&self) -> u64;

    /// Overwrites a page.
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

/// Writes every page in order, and then overwrites the capacity at random until write amplification
/// changes by less than 2 % from one round to the next.
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
    /// Creates a drive at rest in a state. `seed` is that of the steady state's random writes.
    ///
    /// A filled drive is constructed, which takes as long as a fresh one at any size; its counters
    /// begin at 0. The steady state of a drive of up to [`PLAYED_MAX`] bytes is simulated, and its
    /// counters include these writes; that of a larger one is seeded.
    ///
    /// # Errors
    ///
    /// Those of [`Flash::new`].
    pub fn in_state(
        parameters: &FlashParameters,
        initial: Initial,
        seed: u64,
    ) -> Result<Self, ParameterError> {
        if initial == Initial::Steady && parameters.size_bytes > PLAYED_MAX {
            return Ok(Self::seeded(parameters, seed)?.0);
        }
        let mut flash = Self::new(parameters)?;
        match initial {
            Initial::Fresh => {}
            Initial::Filled => {
                let partitions = flash.partitions.iter_mut();
                partitions.for_each(|partition| partition.ftl.fill());
            }
            Initial::Steady => {
                flash.precondition(seed);
            }
        }
        Ok(flash)
    }

    /// Brings the drive into the steady state of uniform random overwrites of single pages, with
    /// real page operations in no time: every page in order, then the capacity at random until
    /// write amplification changes by less than 2 % from one round to the next.
    pub fn precondition(&mut self, seed: u64) -> Prepared {
        self.precondition_telling(seed, &mut |_| ())
    }

    /// The same with periodic progress reports.
    pub fn precondition_telling(&mut self, seed: u64, tell: &mut dyn FnMut(Progress)) -> Prepared {
        let prepared = play(self, seed, tell);
        self.prepared = Some(prepared);
        prepared
    }
}
