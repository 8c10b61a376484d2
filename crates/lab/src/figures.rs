//! Results of commands, in the JSON of every command that measures: rates per second, latencies in
//! nanoseconds. `simulate` prints the same keys for each kind of command.

use driver::workload::Latency;
use serde::Serialize;

/// Latencies in nanoseconds, from submission until the host sees the completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct LatencyReport {
    pub(crate) mean: f64,
    pub(crate) min: u64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) p9999: u64,
    pub(crate) max: u64,
}

impl LatencyReport {
    pub(crate) fn new(latency: &Latency) -> Self {
        LatencyReport {
            mean: rounded(latency.mean),
            min: latency.min,
            p50: latency.p50,
            p90: latency.p90,
            p99: latency.p99,
            p999: latency.p999,
            p9999: latency.p9999,
            max: latency.max,
        }
    }

    /// Figures of all these latencies, which it sorts.
    pub(crate) fn of(latencies: &mut [u64]) -> Self {
        if latencies.is_empty() {
            return LatencyReport::default();
        }
        latencies.sort_unstable();
        let count = latencies.len();
        // the smallest value that at least this share of all does not exceed
        let at = |per_10_000: usize| {
            let rank = (count * per_10_000).div_ceil(10_000);
            latencies[rank.clamp(1, count) - 1]
        };
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let mean = latencies.iter().sum::<u64>() as f64 / count as f64;
        LatencyReport {
            mean: rounded(mean),
            min: latencies[0],
            p50: at(5_000),
            p90: at(9_000),
            p99: at(9_900),
            p999: at(9_990),
            p9999: at(9_999),
            max: latencies[count - 1],
        }
    }
}

/// Bytes per second, whole.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative, and whole bytes are exact enough"
)]
pub(crate) fn bytes_per_s(iops: f64, bytes: u32) -> u64 {
    (iops * f64::from(bytes)).round() as u64
}

/// Rounds to a thousandth; further digits are noise.
pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut latencies: Vec<u64> = (1..=10_000).rev().collect();
        let report = LatencyReport::of(&mut latencies);
        let expected = LatencyReport {
            mean: 5_000.5,
            min: 1,
            p50: 5_000,
            p90: 9_000,
            p99: 9_900,
            p999: 9_990,
            p9999: 9_999,
            max: 10_000,
        };
        assert_eq!(report, expected);
        let one = LatencyReport::of(&mut [7]);
        assert_eq!((one.min, one.p50, one.p9999, one.max), (7, 7, 7, 7));
        assert_eq!(LatencyReport::of(&mut []), LatencyReport::default());
        assert_eq!(bytes_per_s(1000.5, 4096), 4_098_048);
    }
}
