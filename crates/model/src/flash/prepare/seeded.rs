//! Construction of the steady state from a small simulated drive.

use super::permutation::Permutation;
use super::{Method, Overwrite, Prepared, play};
use crate::error::ParameterError;
use crate::flash::extra::random::Random;
use crate::flash::ftl::{Ftl, NoWork, Writer};
use crate::flash::{DieShape, Flash, Geometry};
use crate::parameter::Shape;
use crate::parameters::FlashParameters;

/// Maximum number of lines of the small drive, from which on the few lines kept free do not matter.
const MOST_LINES: u32 = 4096;
/// Number of samples: each line follows one of them at random, so that random deviations of a
/// single moment do not matter.
const LOOKS: u64 = 64;
/// Minimum pages per line, if the large drive's lines have as many.
const LEAST_LINE: u32 = 64;
/// Approximate maximum number of pages: lines of a thousand pages cost 1 % less than larger ones,
/// lines of 256 pages 3 %.
const MOST_PAGES: u32 = 1 << 22;

impl Flash {
    /// A drive in the steady state of uniform random overwrites of single pages, like that of
    /// [`Flash::precondition`], without the page operations: its lines have the proportions of
    /// valid pages of a small drive that was simulated.
    ///
    /// # Errors
    ///
    /// Those of [`Flash::new`].
    pub fn seeded(
        parameters: &FlashParameters,
        seed: u64,
    ) -> Result<(Self, Prepared), ParameterError> {
        let mut flash = Self::new(parameters)?;
        let mut small = Small::new(&flash.geometry, parameters)?;
        let played = play(&mut small, seed, &mut |_| ());
        let mut random = Random::new(!seed);
        let state = State::of(&mut small, &mut random);
        for partition in &mut flash.partitions {
            state.write(&mut partition.ftl, &mut random);
        }
        let prepared = Prepared {
            method: Method::Seeded,
            ..played
        };
        flash.prepared = Some(prepared);
        Ok((flash, prepared))
    }
}

/// One partition with the same number of lines and spare space, and fewer pages.
struct Small(Ftl);

impl Small {
    fn new(large: &Geometry, parameters: &FlashParameters) -> Result<Self, ParameterError> {
        let lines = large
            .lines
            .min(MOST_LINES.max(lines_that_have_spare(large, &Shape::of(parameters)?)));
        let line = large.line.min((MOST_PAGES / lines).max(LEAST_LINE));
        // Rounded down, so that at least as much is spare.
        let logical = scale(
            u64::from(line) * u64::from(lines),
            large.logical,
            large.physical(),
        );
        let geometry = Geometry {
            die: DieShape {
                flash_page: 1,
                wordline: 1,
                rows: line,
                cell_bits: 1,
                planes: 1,
            },
            partitions: 1,
            channels: 1,
            dies: 1,
            line,
            lines,
            logical,
        };
        Ftl::new(geometry, parameters).map(Self)
    }
}

/// Number of lines with enough spare ones, at the over-provisioning of the large drive.
fn lines_that_have_spare(large: &Geometry, shape: &Shape) -> u32 {
    let needed = shape.spare_lines;
    let spare = u64::from(large.physical() - large.logical);
    let lines = (needed * u64::from(large.physical())).div_ceil(spare.max(1)) + 1;
    u32::try_from(lines).unwrap_or(u32::MAX)
}

/// `value * part / whole`, rounded down; the caller guarantees a result below 2^32.
fn scale(value: u64, part: u32, whole: u32) -> u32 {
    let scaled = u128::from(value) * u128::from(part) / u128::from(whole);
    u32::try_from(scaled).expect("no more than the pages of a partition")
}

impl Overwrite for Small {
    fn pages(&self) -> u64 {
        u64::from(self.0.geometry.logical)
    }

    fn overwrite(&mut self, page: u64) {
        let logical = u32::try_from(page).expect("a partition has fewer than 2^32 pages");
        self.0.write(logical, &mut NoWork);
    }

    fn written(&self) -> (u64, u64) {
        (
            self.0.host_pages,
            self.0.host_pages + self.0.collected_pages,
        )
    }
}

/// State of a partition, independent of the number and size of its lines.
struct State {
    /// Pages of each line.
    pages: u32,
    free: u32,
    /// Valid pages of the full lines, in the order in which they were filled, for each sample.
    full: Vec<Vec<u32>>,
    /// Pages taken of the line that each writer has open, and the number of valid ones.
    open: [(Writer, u32, u32); 2],
    credits: i64,
    refill: u32,
}

impl State {
    /// Samples a drive repeatedly while its capacity is written once more.
    fn of(small: &mut Small, random: &mut Random) -> Self {
        let pages = small.pages();
        let mut full = Vec::new();
        for _ in 0..LOOKS {
            (0..pages.div_ceil(LOOKS)).for_each(|_| small.overwrite(random.below(pages)));
            let lines = &small.0.lines;
            let valid: Vec<u32> = lines.by_age().map(|line| lines.valid(line)).collect();
            full.push(valid);
        }
        let ftl = &small.0;
        let open = |writer| {
            let (taken, valid) = ftl.open(writer);
            (writer, taken, valid)
        };
        let (credits, refill) = ftl.credits();
        Self {
            pages: ftl.lines.pages(),
            free: u32::try_from(ftl.lines.free()).expect("lines are counted in 32 bits"),
            full,
            open: [open(Writer::Host), open(Writer::Collection)],
            credits,
            refill,
        }
    }

    /// Fills a fresh partition in the same proportions.
    fn write(&self, ftl: &mut Ftl, random: &mut Random) {
        let shape = ftl.geometry;
        let grown = |pages: u32| scale(u64::from(pages), shape.line, self.pages);
        let open = self
            .open
            .map(|(writer, taken, valid)| (writer, grown(taken), grown(valid)));
        let opened = open
            .iter()
            .map(|&(_, taken, _)| u32::from(taken > 0))
            .sum::<u32>();
        let mut valid = self.spread(shape.lines - self.free - opened, grown, random);
        let in_open: u32 = open.iter().map(|&(_, _, valid)| valid).sum();
        level(&mut valid, u64::from(shape.logical - in_open), shape.line);

        let full = valid.iter().map(|&valid| (Writer::Host, shape.line, valid));
        let permutation = Permutation::new(shape.logical, random);
        let mut pages = (0..shape.logical).map(|index| permutation.apply(index));
        for (writer, taken, valid) in full.chain(open) {
            let mut left = valid;
            for slots in (1..=u64::from(taken)).rev() {
                if random.below(slots) < u64::from(left)
                    && let Some(page) = pages.next()
                {
                    left -= 1;
                    ftl.place(writer, page, &mut NoWork);
                } else {
                    ftl.skip(writer);
                }
            }
        }
        let credits = self.credits * i64::from(shape.line) / i64::from(self.pages);
        ftl.set_credits(credits, grown(self.refill).max(1));
    }

    /// Valid pages of `lines` full lines with the sampled distribution.
    fn spread(&self, lines: u32, grown: impl Fn(u32) -> u32, random: &mut Random) -> Vec<u32> {
        let like = |line: u32| {
            let full = &self.full[index(random.below(self.full.len() as u64))];
            let like = u64::from(line) * full.len() as u64 / u64::from(lines);
            grown(full[index(like)])
        };
        (0..lines).map(like).collect()
    }
}

fn index(small: u64) -> usize {
    usize::try_from(small).expect("below the length of a vector")
}

/// Adjusts all values a little, so that their sum is `total`, and none exceeds `most`.
fn level(all: &mut [u32], total: u64, most: u32) {
    let mut sum: u64 = all.iter().copied().map(u64::from).sum();
    while sum != total {
        let share = (sum.abs_diff(total) / all.len() as u64).max(1);
        let share = u32::try_from(share).unwrap_or(most);
        for one in all.iter_mut() {
            let step = u64::from(share).min(sum.abs_diff(total));
            let step = u32::try_from(step).expect("no more than the share");
            let before = u64::from(*one);
            *one = if sum < total {
                one.saturating_add(step).min(most)
            } else {
                one.saturating_sub(step)
            };
            sum = sum - before + u64::from(*one);
        }
    }
}
