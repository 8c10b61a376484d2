//! Expected write amplification under uniformly random writes of one page: closed forms to compare
//! with a model's counters.
//!
//! Let `a` be the pages of a partition that can hold data divided by those that do, `n` the pages
//! of a line, and `x` the valid pages of a victim. Blocks lose valid pages at a rate proportional
//! to their number, so in the steady state the number of blocks with `i` valid pages is
//! proportional to `1/i`, for `x < i <= n` (greedy). Under FIFO, a block is collected after a fixed
//! time:
//!
//! - greedy: `a (n - x) / n = H(n) - H(x)`, with harmonic numbers `H`
//! - FIFO: `p = exp(-(1 - p) a)`, `p = x / n`: greedy in the limit of large `n`
//!
//! The amplification is `n / (n - x)`. See P. Desnoyers, *Analytic Modeling of SSD Write
//! Performance*, SYSTOR 2012. Lines that collection keeps free, and half of each of the two open
//! lines, hold no data and do not count.

use model::FlashParameters;
use model::parameter::{PAGE_BYTES, Shape};
use serde::Serialize;

/// Expected values for one drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Amplification {
    /// Amplification with `policy = "greedy"`.
    pub(crate) greedy: f64,
    /// Amplification with `policy = "fifo"`.
    pub(crate) fifo: f64,
    /// Space that can hold data beyond the data, as a fraction.
    pub(crate) effective_overprovisioning: f64,
    /// Upper bound on page writes per second by the time of the dies, including the work of greedy
    /// collection: programs, a sense of each flash page of a victim, erases.
    pub(crate) most_sustained_random_writes_per_s: f64,
}

impl Amplification {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a closed form with three digits"
    )]
    pub(crate) fn expected(shape: &Shape, flash: &FlashParameters) -> Self {
        let kept_free = u64::from(flash.collect_below) + 1;
        let lines = shape.lines.saturating_sub(kept_free) as f64;
        let line = shape.pages_per_line as f64;
        let over = lines * line / (shape.logical_pages.max(1) as f64);
        let greedy = greedy(over, line);
        let per_page = die_ns_per_page(shape, flash, greedy);
        Amplification {
            greedy,
            fifo: fifo(over),
            effective_overprovisioning: over - 1.0,
            most_sustained_random_writes_per_s: shape.dies as f64 * 1e9 / per_page,
        }
    }
}

/// Die time for each page that a host writes, if each is written `amplification` times.
#[expect(
    clippy::cast_precision_loss,
    reason = "a closed form with three digits"
)]
fn die_ns_per_page(shape: &Shape, flash: &FlashParameters, amplification: f64) -> f64 {
    let page = PAGE_BYTES as f64;
    let transfer_ns = flash.firmware_channel_transfer_ns as f64
        + match flash.channel_bandwidth_bytes_per_s {
            0 => 0.0,
            bandwidth => page * 1e9 / bandwidth as f64,
        };
    let per_program = f64::from(flash.oneshot_bytes) / page;
    let program = flash.program_ns as f64 / per_program + transfer_ns;
    let cells = &flash.read_ns[..usize::from(flash.cell_bits.clamp(1, 4))];
    let sense = cells.iter().sum::<u64>() as f64 / cells.len() as f64;
    // A victim still has `1 - 1/A` of its pages valid: nearly every flash page holds one that must
    // be read.
    let per_sense = f64::from(flash.flash_page_bytes) / page * (1.0 - 1.0 / amplification);
    let read = sense / per_sense.max(1.0) + transfer_ns;
    let erase = flash.erase_ns as f64 / shape.pages_per_block as f64;
    amplification * (program + erase) + (amplification - 1.0) * read
}

/// FIFO amplification; `over` is physical over logical space, above 1.
fn fifo(over: f64) -> f64 {
    let p = root(|p| p - (-(1.0 - p) * over).exp());
    1.0 / (1.0 - p)
}

fn greedy(over: f64, pages: f64) -> f64 {
    // H(n) is ln(n + 1/2) plus a constant, up to terms below 1 / (24 n^2).
    let harmonics = |x: f64| ((pages + 0.5) / (pages * x + 0.5)).ln();
    let x = root(|x| over * (1.0 - x) - harmonics(x));
    1.0 / (1.0 - x)
}

/// The root between 0 and 1, exclusive, of a function that is negative below it and positive above
/// it.
fn root(f: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0 - 1e-9);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if f(middle) < 0.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use model::preset::preset;
    use model::{Admission, Flash, Moment, Op, Parameters, Timing};

    use super::*;

    fn near(value: f64, expected: f64, share: f64) {
        let off = (value / expected - 1.0).abs();
        assert!(off < share, "{value} is not {expected}");
    }

    /// The solutions of the equation at 7, 14 and 28 %.
    #[test]
    fn fifo_by_over_provisioning() {
        near(fifo(1.07), 7.82, 0.002);
        near(fifo(1.14), 4.25, 0.002);
        near(fifo(1.28), 2.48, 0.002);
    }

    /// The model itself in the steady state of random writes that keep all dies busy. Write
    /// amplification matches the closed form. The rate stays below the time of the dies: while one
    /// partition collects, the shared buffer fills and the others wait.
    #[test]
    fn a_model_that_collects() {
        let preset = preset("samsung-970-pro").unwrap();
        let mut parameters = preset.parameters(1 << 30, None).unwrap();
        for (name, text) in [("block", "512KiB"), ("overprovisioning", "20%")] {
            parameters.set(name, text, Moment::Creation).unwrap();
        }
        let Parameters::Flash(flash) = &parameters else {
            panic!("another kind");
        };
        let shape = Shape::of(flash).unwrap();
        let expected = Amplification::expected(&shape, flash);
        let mut drive = Flash::new(flash).unwrap();
        let pages = flash.size_bytes / PAGE_BYTES;
        (0..pages).for_each(|page| drive.place_only(page));
        let mut seed = 1u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % pages
        };
        (0..4 * pages).for_each(|_| drive.place_only(random()));
        let (writes, mut now, mut done) = (100_000u64, 0, Vec::new());
        let before = drive.counters();
        for id in 0..writes {
            let offset = random() * PAGE_BYTES;
            let op = Op::Write {
                offset,
                len: 4096,
                fua: false,
            };
            while drive.submit(now, id, &op) == Admission::Stall {
                now = drive.next_event().unwrap();
                drive.advance(now, &mut done);
            }
        }
        let collected = drive.counters().collected_pages - before.collected_pages;
        let counted = 1.0 + collected as f64 / writes as f64;
        near(counted, expected.greedy, 0.05);
        let rate = writes as f64 * 1e9 / now as f64;
        let most = expected.most_sustained_random_writes_per_s;
        assert!(
            (most / 2.0..most).contains(&rate),
            "{rate} is not near {most}"
        );
    }

    /// Counters of a simulation of 512 blocks of 64 pages, two of them kept free.
    #[test]
    fn greedy_by_over_provisioning() {
        for (over, counted) in [(1.07, 7.4), (1.14, 4.1), (1.28, 2.4)] {
            near(greedy(over * 509.0 / 512.0, 64.0), counted, 0.04);
        }
        // with many pages per line, greedy approaches FIFO
        near(greedy(1.07, 1e6), fifo(1.07), 0.001);
        assert!(greedy(1.07, 64.0) < fifo(1.07));
    }
}
