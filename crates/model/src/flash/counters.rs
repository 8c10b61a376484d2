//! What a drive has done, counted.

use super::Flash;
use super::ftl::Writer;
use super::lines::Lines;
use crate::activity::{Activity, Server};

/// Counts since the drive was made, all partitions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages that hosts wrote, as whole pages.
    pub host_pages: u64,
    /// Pages that collection wrote again.
    pub collected_pages: u64,
    /// Lines that were erased.
    pub erased_lines: u64,
    /// Submissions that found no room in the buffer.
    pub stalls: u64,
    /// Pages of wordlines that were folded out of the cache of single-bit cells.
    pub folded_pages: u64,
    /// Pages of the map that were not in memory.
    pub map_misses: u64,
}

impl Counters {
    /// Pages written over pages that hosts wrote, in thousandths; 1000 where no host wrote any.
    /// Take the difference of two counts for the time between them.
    pub fn write_amplification_permille(&self) -> u64 {
        let all = u128::from(self.host_pages) + u128::from(self.collected_pages);
        match self.host_pages {
            0 => 1000,
            host => u64::try_from(all * 1000 / u128::from(host)).unwrap_or(u64::MAX),
        }
    }
}

/// How often lines were erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// The line that was erased least.
    pub least: u32,
    /// The line that was erased most.
    pub most: u32,
    /// All erases.
    pub total: u64,
    /// Lines.
    pub lines: u64,
}

/// Lines that were collected since the drive was made or restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collections {
    /// Because a host wrote, whose command waits for what that asks of the dies.
    pub foreground: u64,
    /// While nobody asked for anything.
    pub background: u64,
}

/// The cache of single-bit cells, of all partitions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlcState {
    /// Pages that it takes.
    pub pages: u64,
    /// Pages of wordlines that are in it and not folded yet.
    pub used_pages: u64,
}

/// A line that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLine {
    /// By whom.
    pub writer: Writer,
    /// Which.
    pub line: u32,
    /// Pages of it that were taken.
    pub taken: u32,
}

/// One partition, looked at.
#[derive(Clone, Copy, Debug)]
pub struct PartitionView<'a> {
    /// Pages that hosts wrote.
    pub host_pages: u64,
    /// Pages that collection wrote again.
    pub collected_pages: u64,
    /// Those of its lines that are being written: the host's and collection's.
    pub open: [Option<OpenLine>; 2],
    /// Its lines.
    pub lines: &'a Lines,
}

impl PartitionView<'_> {
    /// Lines that are full.
    pub fn full(&self) -> usize {
        let open = self.open.iter().flatten().count();
        self.lines.all().len() - self.lines.free() - open
    }
}

impl Flash {
    /// The partitions, in their order.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionView<'_>> {
        self.partitions.iter().map(|partition| PartitionView {
            host_pages: partition.ftl.host_pages,
            collected_pages: partition.ftl.collected_pages,
            open: partition.ftl.open_lines().map(|open| {
                open.map(|(writer, line, taken)| OpenLine {
                    writer,
                    line,
                    taken,
                })
            }),
            lines: &partition.ftl.lines,
        })
    }

    /// What was done so far.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters {
            stalls: self.stalls,
            ..Counters::default()
        };
        for partition in self.partitions() {
            counters.host_pages += partition.host_pages;
            counters.collected_pages += partition.collected_pages;
            counters.erased_lines += partition.lines.erased();
        }
        for partition in &self.partitions {
            counters.folded_pages += partition.cached.folded_pages;
            counters.map_misses += partition.map_misses;
        }
        counters
    }

    /// Why lines were collected.
    pub fn collections(&self) -> Collections {
        let mut collections = Collections::default();
        for partition in &self.partitions {
            collections.foreground += partition.ftl.foreground;
            collections.background += partition.background;
        }
        collections
    }

    /// Free lines of a partition at or below which a host's write collects, and below which an idle
    /// drive does: 0 where it does not.
    pub fn thresholds(&self) -> (u32, usize) {
        let first = self.partitions.first();
        let below = self.background.map_or(0, |background| background.below);
        (first.map_or(0, |first| first.ftl.collect_below), below)
    }

    /// The cache of single-bit cells; `None` where it has none.
    pub fn slc(&self) -> Option<SlcState> {
        let wordline = u64::from(self.geometry.die.wordline);
        let cache = self.slc.as_ref()?;
        let cached = self.partitions.iter().map(|p| p.cached.dies.len() as u64);
        Some(SlcState {
            pages: cache.wordlines as u64 * self.partitions.len() as u64 * wordline,
            used_pages: cached.sum::<u64>() * wordline,
        })
    }

    /// What its dies, channels and link have done.
    pub fn activity(&self) -> Activity {
        let mut servers = self.dies.servers().to_vec();
        servers.push((Server::Link, 1));
        let mut busy = self.dies.busy().to_vec();
        busy.extend(self.link.busy());
        Activity { servers, busy }
    }

    /// Bytes of the write buffer, and those of them that are taken, at the time of the last call.
    pub fn buffer(&self) -> (u64, u64) {
        self.buffer.fill()
    }

    /// How often lines were erased.
    pub fn wear(&self) -> Wear {
        let mut wear = Wear {
            least: u32::MAX,
            ..Wear::default()
        };
        for lines in self.partitions().map(|partition| partition.lines) {
            for erases in lines.all().map(|line| lines.erases(line)) {
                wear.least = wear.least.min(erases);
                wear.most = wear.most.max(erases);
                wear.lines += 1;
            }
            wear.total += lines.erased();
        }
        wear
    }

    /// Free lines of the partition that has the fewest.
    pub fn free_lines(&self) -> usize {
        let free = self.partitions().map(|partition| partition.lines.free());
        free.min().unwrap_or(0)
    }

    /// Bytes of the write buffer that are taken, at the time of the last call.
    pub fn buffer_used(&self) -> u64 {
        self.buffer.used(0)
    }

    /// How many full lines have how many valid pages: bin `i` of `bins` counts those with at least
    /// `i / bins` and less than `(i + 1) / bins` of their pages valid, the last one also those with
    /// all. `bins` of 0 is as 1.
    pub fn valid_histogram(&self, bins: usize) -> Vec<u64> {
        let bins = bins.max(1);
        let mut histogram = vec![0; bins];
        for lines in self.partitions().map(|partition| partition.lines) {
            for line in lines.by_age() {
                let bin = lines.valid(line) as usize * bins / lines.pages() as usize;
                histogram[bin.min(bins - 1)] += 1;
            }
        }
        histogram
    }
}
