//! Points of a measurement, as every format of files has them.

use super::samples::{Act, BLOCK_MAX, DEPTH_MAX, Keys, SUSTAINED, Sample, Writers};

/// The name of each job with its point, or the reason why it is not usable.
pub(super) type Points = Result<Vec<(String, Result<Sample, String>)>, String>;

/// Properties of a point that every format has.
pub(super) struct Asked<'a> {
    pub(super) name: &'a str,
    /// Kind of the commands; the prefix `rand` marks random ones.
    pub(super) rw: &'a str,
    pub(super) block_bytes: u64,
    /// Commands in flight of each queue, and the number of queues.
    pub(super) depth: u64,
    pub(super) queues: u64,
    pub(super) mean_ns: f64,
    pub(super) errors: u64,
}

impl Asked<'_> {
    pub(super) fn sample(&self) -> Result<Sample, String> {
        let (random, act) = match self.rw.strip_prefix("rand") {
            Some(act) => (true, act),
            None => (false, self.rw),
        };
        let act = Act::named(act);
        let act = act.ok_or_else(|| format!("{} is neither reads nor writes alone", self.rw))?;
        if self.errors > 0 {
            return Err(format!("{} commands failed", self.errors));
        }
        if !(self.mean_ns.is_finite() && self.mean_ns >= 1.0) {
            return Err("no command was measured".to_owned());
        }
        let within = |value: u64, most: u32| {
            let value = u32::try_from(value).ok();
            value.filter(|value| (1..=most).contains(value))
        };
        let depth = within(self.depth.saturating_mul(self.queues), DEPTH_MAX);
        let depth = depth.ok_or("its depth cannot be")?;
        let block_bytes = if act.is_bare() {
            0
        } else {
            within(self.block_bytes, BLOCK_MAX).ok_or("its block size cannot be")?
        };
        let writers = match (act, random) {
            (Act::Write, false) => u32::try_from(self.queues).unwrap_or(depth),
            _ => 1,
        };
        Ok(Sample {
            act,
            random,
            block_bytes,
            depth,
            writers: Writers {
                count: writers,
                apart: 0,
            },
            keys: Keys::Places,
            mean_ns: self.mean_ns,
            sustained: self.name.starts_with(SUSTAINED),
        })
    }
}
