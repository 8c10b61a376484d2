//! Counters of a drive.

use super::Flash;
use super::ftl::Writer;
use super::lines::Lines;
use crate::activity::{Activity, Server};

/// Counters since the drive was created, all partitions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Pages written by hosts, counted as whole pages.
    pub host_pages: u64,
    /// Pages rewritten by collection.
    pub collected_pages: u64,
    /// Erased lines.
    pub erased_lines: u64,
    /// Submissions without room in the buffer.
    pub stalls: u64,
    /// Pages of wordlines folded out of the cache of single-bit cells.
    pub folded_pages: u64,
    /// Map pages that were not in memory.
    pub map_misses: u64,
    /// Reads of hosts since the drive was created or restored.
    pub reads: u64,
    /// Those of them that touched a page without data, which costs no sense.
    pub unmapped_reads: u64,
}

impl Counters {
    /// Pages written per page written by hosts, in thousandths; 1000 without host writes. Use the
    /// difference of two counters for a period.
    pub fn write_amplification_permille(&self) -> u64 {
        let all = u128::from(self.host_pages) + u128::from(self.collected_pages);
        match self.host_pages {
            0 => 1000,
            host => u64::try_from(all * 1000 / u128::from(host)).unwrap_or(u64::MAX),
        }
    }
}

/// Erase counts of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wear {
    /// Erases of the least erased line.
    pub least: u32,
    /// Erases of the most erased line.
    pub most: u32,
    /// Total erases.
    pub total: u64,
    /// Number of lines.
    pub lines: u64,
}

/// Collected lines since the drive was created or restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collections {
    /// Triggered by host writes, whose commands wait for the work of the dies.
    pub foreground: u64,
    /// In the background, while the drive was idle.
    pub background: u64,
}

/// The cache of single-bit cells, of all partitions together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlcState {
    /// Capacity in pages.
    pub pages: u64,
    /// Pages of wordlines that are not folded yet.
    pub used_pages: u64,
}

/// A line being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLine {
    /// Its writer.
    pub writer: Writer,
    /// Its number.
    pub line: u32,
    /// Pages taken of it.
    pub taken: u32,
}

/// View of one partition.
#[derive(Clone, Copy, Debug)]
pub struct PartitionView<'a> {
    /// Pages written by hosts.
    pub host_pages: u64,
    /// Pages rewritten by collection.
    pub collected_pages: u64,
    /// Open lines of the host and of collection.
    pub open: [Option<OpenLine>; 2],
    /// Its lines.
    pub lines: &'a Lines,
}

impl PartitionView<'_> {
    /// Number of full lines.
    pub fn full(&self) -> usize {
        let open = self.open.iter().flatten().count();
        self.lines.all().len() - self.lines.free() - open
    }
}

impl Flash {
    /// The partitions, in order.
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

    /// The counters.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters {
            stalls: self.stalls,
            reads: self.reads,
            unmapped_reads: self.unmapped_reads,
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

    /// Collections by reason.
    pub fn collections(&self) -> Collections {
        let mut collections = Collections::default();
        for partition in &self.partitions {
            collections.foreground += partition.ftl.foreground;
            collections.background += partition.background;
        }
        collections
    }

    /// Thresholds of free lines of a partition: at or below the first a host's write collects,
    /// below the second an idle drive does; 0: never.
    pub fn thresholds(&self) -> (u32, usize) {
        let first = self.partitions.first();
        let below = self.background.map_or(0, |background| background.below);
        (first.map_or(0, |first| first.ftl.collect_below), below)
    }

    /// The cache of single-bit cells; `None` if the drive has none.
    pub fn slc(&self) -> Option<SlcState> {
        let wordline = u64::from(self.geometry.die.wordline);
        let cache = self.slc.as_ref()?;
        let cached = self.partitions.iter().map(|p| p.cached.dies.len() as u64);
        Some(SlcState {
            pages: cache.wordlines as u64 * self.partitions.len() as u64 * wordline,
            used_pages: cached.sum::<u64>() * wordline,
        })
    }

    /// Activity of its dies, channels and link.
    pub fn activity(&self) -> Activity {
        let mut servers = self.dies.servers().to_vec();
        servers.push((Server::Link, 1));
        let mut busy = self.dies.busy().to_vec();
        busy.extend(self.link.busy());
        Activity { servers, busy }
    }

    /// Size of the write buffer in bytes, and the taken part, at the time of the last call.
    pub fn buffer(&self) -> (u64, u64) {
        self.buffer.fill()
    }

    /// Erase counts.
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

    /// Free lines of the partition with the fewest.
    pub fn free_lines(&self) -> usize {
        let free = self.partitions().map(|partition| partition.lines.free());
        free.min().unwrap_or(0)
    }

    /// Taken bytes of the write buffer, at the time of the last call.
    pub fn buffer_used(&self) -> u64 {
        self.buffer.used(0)
    }

    /// Histogram of full lines by valid pages: bin `i` of `bins` counts those with at least `i /
    /// bins` and less than `(i + 1) / bins` of their pages valid; the last one includes entirely
    /// valid lines. 0 bins count as 1.
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
