//! Expected write amplification under uniformly random writes of one page: closed forms, for comparison with what a model counts.
//!
//! Let `a` be the pages of a partition that can hold data over those that do, `n` the pages of a line, `x` the valid pages of a
//! victim. Blocks lose valid pages at a rate that is proportional to how many they have, so in the steady state there are as many
//! blocks with `i` valid pages as `1/i` says, for `x < i <= n` (greedy), and a block is collected after equal time (FIFO):
//!
//! - greedy: `a (n - x) / n = H(n) - H(x)`, with harmonic numbers `H`
//! - FIFO: `p = exp(-(1 - p) a)`, `p = x / n`: the same for `n` without bound
//!
//! and the amplification is `n / (n - x)`. See P. Desnoyers, *Analytic Modeling of SSD Write Performance*, SYSTOR 2012. Lines that
//! collection keeps free, and half of each of the two open ones, hold no data and do not count.

use model::parameter::Shape;
use serde::Serialize;

/// What is expected.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Amplification {
    /// `policy = "greedy"`.
    pub(super) greedy: f64,
    /// `policy = "fifo"`.
    pub(super) fifo: f64,
    /// Space that can hold data beyond the data, as a fraction.
    pub(super) effective_overprovisioning: f64,
}

impl Amplification {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a closed form with three digits"
    )]
    pub(super) fn expected(shape: &Shape, collect_below: u32) -> Self {
        let kept_free = u64::from(collect_below) + 1;
        let lines = shape.lines.saturating_sub(kept_free) as f64;
        let line = shape.pages_per_line as f64;
        let over = lines * line / (shape.logical_pages.max(1) as f64);
        Amplification {
            greedy: greedy(over, line),
            fifo: fifo(over),
            effective_overprovisioning: over - 1.0,
        }
    }
}

/// `over` is physical over logical, above 1.
fn fifo(over: f64) -> f64 {
    let p = root(|p| p - (-(1.0 - p) * over).exp());
    1.0 / (1.0 - p)
}

fn greedy(over: f64, pages: f64) -> f64 {
    // H(n) is ln(n + 1/2) and a constant, but for terms below 1 / (24 n^2).
    let harmonics = |x: f64| ((pages + 0.5) / (pages * x + 0.5)).ln();
    let x = root(|x| over * (1.0 - x) - harmonics(x));
    1.0 / (1.0 - x)
}

/// The root between 0 and 1, other than 1, of a function that is negative before it and positive behind it.
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

    /// What a simulation of 512 blocks of 64 pages, two of them kept free, counts.
    #[test]
    fn greedy_by_over_provisioning() {
        for (over, counted) in [(1.07, 7.4), (1.14, 4.1), (1.28, 2.4)] {
            near(greedy(over * 509.0 / 512.0, 64.0), counted, 0.04);
        }
        // with many pages in a line it is what FIFO gives
        near(greedy(1.07, 1e6), fifo(1.07), 0.001);
        assert!(greedy(1.07, 64.0) < fifo(1.07));
    }
}
