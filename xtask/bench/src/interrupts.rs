//! Which processor takes the interrupts of what is being measured.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};

/// How many interrupts of devices each processor has taken, by the interrupt's number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrivals {
    cpus: Vec<u32>,
    /// A count for each of `cpus`.
    counts: BTreeMap<u32, Vec<u64>>,
}

impl Arrivals {
    /// Until now.
    pub(super) fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/interrupts").context("cannot read interrupts")?;
        Self::parse(&text).context("/proc/interrupts has no line of CPUs")
    }

    /// A line that names processors, and one for each interrupt (proc_interrupts(5)). Those that
    /// are no device's have letters instead of a number.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let cpus = lines.next()?.split_whitespace();
        let cpus: Vec<u32> = cpus
            .map(|cpu| cpu.strip_prefix("CPU")?.parse().ok())
            .collect::<Option<_>>()?;
        let counts = lines.filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            let counts = rest.split_whitespace().take(cpus.len());
            let counts: Vec<u64> = counts.map_while(|count| count.parse().ok()).collect();
            (counts.len() == cpus.len()).then_some((number.trim().parse().ok()?, counts))
        });
        let counts = counts.collect();
        Some(Self { cpus, counts })
    }

    /// The processor that took most of the interrupt that came most often since `before`.
    pub(super) fn most_since(&self, before: &Self) -> Option<u32> {
        let grown = self.counts.iter().map(|(number, counts)| {
            let earlier = before.counts.get(number);
            let earlier = |at: usize| earlier.and_then(|e| e.get(at)).copied().unwrap_or(0);
            (0..)
                .zip(counts)
                .map(|(at, count)| count.saturating_sub(earlier(at)))
                .collect::<Vec<u64>>()
        });
        let most = grown.max_by_key(|counts| counts.iter().sum::<u64>())?;
        let (at, count) = (0..).zip(&most).max_by_key(|(_, count)| **count)?;
        (*count > 0).then(|| self.cpus.get(at).copied()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "           CPU0       CPU2
 36:          5   18374736 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
 41:      14595          0 PCI-MSIX-0000:00:04.0   1-edge      virtio3-rx
LOC:   90000000   90000000   Local timer interrupts
ERR:          0
";

    #[test]
    fn who_takes_most_of_what_comes_most() {
        let before = Arrivals::parse(BEFORE).unwrap();
        assert_eq!(before.counts.len(), 2, "{before:?}");
        assert_eq!(before.most_since(&before), None);
        let after = BEFORE.replace("18374736", "18384736");
        let after = after
            .replace("14595", "14695")
            .replace("LOC:   9", "LOC:   8");
        let after = Arrivals::parse(&after).unwrap();
        assert_eq!(after.most_since(&before), Some(2));
        assert!(Arrivals::parse("no processors").is_none());
    }
}
