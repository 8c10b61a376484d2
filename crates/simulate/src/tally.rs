//! Counters of a simulation: of jobs, of the drive, and over time.

use model::Model;

use crate::histogram::Histogram;
use crate::host::Finished;
use crate::job::{Job, Kind};

/// Commands of one kind.
#[derive(Clone, Debug, Default)]
pub struct Commands {
    /// Bytes of the successful ones.
    pub bytes: u64,
    /// Their latencies in nanoseconds.
    pub latency_ns: Histogram,
}

/// Properties of a job's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Random rather than in order.
    pub random: bool,
    /// Commands in flight of each worker.
    pub depth: u16,
    /// Workers, each with a queue pair.
    pub workers: u16,
    /// Whether it waits between commands, for a rate or thinking time.
    pub paced: bool,
    /// Sizes of reads, writes and trims, if all of a kind have the same.
    pub sizes: [Option<u32>; 3],
}

impl Asked {
    fn new(job: &Job) -> Self {
        let one = |sizes: &Vec<(u32, u8)>| match sizes.as_slice() {
            [(size, _)] => Some(*size),
            _ => None,
        };
        Self {
            random: job.random,
            depth: job.depth,
            workers: job.workers,
            paced: job.rates.iter().any(Option::is_some)
                || job.think_ns > 0
                || job.refill_at.is_some(),
            sizes: job.sizes.each_ref().map(one),
        }
    }
}

/// Results of a job in the measured time.
#[derive(Clone, Debug)]
pub struct JobTally {
    /// Its name.
    pub name: String,
    /// Properties of its commands; `None` for a trace.
    pub asked: Option<Asked>,
    /// By [`Kind`].
    pub kinds: [Commands; Kind::ALL.len()],
    /// Number of failed commands.
    pub errors: u64,
    /// Status of the first failed command.
    pub first_error: Option<String>,
}

impl JobTally {
    pub(crate) fn of_job(job: &Job) -> Self {
        Self {
            asked: Some(Asked::new(job)),
            ..Self::new(&job.name)
        }
    }

    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            asked: None,
            kinds: Default::default(),
            errors: 0,
            first_error: None,
        }
    }

    #[inline]
    pub(crate) fn count(&mut self, finished: &Finished) {
        if !finished.status.is_success() {
            self.fail(finished);
            return;
        }
        let kind = &mut self.kinds[finished.kind.index()];
        // Zone commands move no data.
        if !finished.kind.is_of_zones() {
            kind.bytes += finished.len;
        }
        kind.latency_ns.record(finished.at - finished.since);
    }

    #[cold]
    fn fail(&mut self, finished: &Finished) {
        self.errors += 1;
        self.first_error
            .get_or_insert_with(|| finished.status.to_string());
    }
}

/// Internal counters of a drive since its creation. All 0 for a drive without any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pages of 4096 bytes that hosts wrote.
    pub pages_written: u64,
    /// Pages rewritten by collection.
    pub pages_collected: u64,
    /// Lines that were collected.
    pub lines_collected: u64,
    /// Free lines of all partitions.
    pub lines_free: u64,
    /// Reads of hosts, when they were submitted.
    pub reads: u64,
    /// Those of them that touched a page without data, which costs no sense.
    pub unmapped_reads: u64,
    /// Whether the drive has lines.
    pub has_lines: bool,
}

impl Figures {
    /// The counters of a drive at this moment.
    pub(crate) fn of(drive: &media::Channel) -> Self {
        let Some(Model::Flash(flash)) = drive.model() else {
            return Self::default();
        };
        let counters = flash.counters();
        let free = flash.partitions().map(|partition| partition.lines.free());
        Self {
            pages_written: counters.host_pages,
            pages_collected: counters.collected_pages,
            lines_collected: counters.erased_lines,
            lines_free: free.sum::<usize>() as u64,
            reads: counters.reads,
            unmapped_reads: counters.unmapped_reads,
            has_lines: true,
        }
    }

    /// Difference from `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            pages_written: self.pages_written - before.pages_written,
            pages_collected: self.pages_collected - before.pages_collected,
            lines_collected: self.lines_collected - before.lines_collected,
            reads: self.reads - before.reads,
            unmapped_reads: self.unmapped_reads - before.unmapped_reads,
            ..*self
        }
    }

    /// Pages written per page written by hosts, in thousandths, rounded down; 1000 without host
    /// writes.
    #[must_use]
    pub fn amplification_thousandths(&self) -> u64 {
        let all = u128::from(self.pages_written) + u128::from(self.pages_collected);
        let thousandths = (all * 1000).checked_div(self.pages_written.into());
        thousandths.map_or(1000, |value| u64::try_from(value).unwrap_or(u64::MAX))
    }
}

/// One interval of a series.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its end, in nanoseconds since the start.
    pub end_ns: u64,
    /// Its length.
    pub len_ns: u64,
    /// Reads and writes that completed in it; with keys, retrieves, and stores, appends and
    /// compound commands.
    pub kinds: [Moment; 2],
    /// Internal counters of the drive in it.
    pub drive: Figures,
}

/// Commands of one kind in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    /// Number of commands.
    pub commands: u64,
    /// Total size in bytes.
    pub bytes: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

/// A series of intervals.
#[derive(Debug)]
pub(crate) struct Series {
    interval_ns: u64,
    /// End of the current interval.
    boundary_ns: u64,
    kinds: [Commands; 2],
    before: Figures,
    pub(crate) points: Vec<Point>,
}

impl Series {
    /// A series for a drive with the counters `before`.
    pub(crate) fn new(interval_ns: u64, before: Figures) -> Self {
        Self {
            interval_ns,
            boundary_ns: interval_ns,
            kinds: Default::default(),
            before,
            points: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn count(&mut self, finished: &Finished) {
        let kind = match finished.kind {
            Kind::Read | Kind::Retrieve => &mut self.kinds[0],
            Kind::Write | Kind::Store | Kind::Append | Kind::Compound => &mut self.kinds[1],
            _ => return,
        };
        kind.bytes += finished.len;
        kind.latency_ns.record(finished.at - finished.since);
    }

    /// Whether an interval ends at or before `at`.
    #[inline]
    pub(crate) fn ends_by(&self, at: u64) -> bool {
        at >= self.boundary_ns
    }

    /// Ends all intervals up to `at`; the caller guarantees that no command completed since the
    /// last counted one.
    pub(crate) fn end_by(&mut self, at: u64, figures: Figures) {
        while self.ends_by(at) {
            self.close(self.boundary_ns, self.interval_ns, figures);
            self.boundary_ns = self.boundary_ns.saturating_add(self.interval_ns);
        }
    }

    /// Ends the last interval, which may be shorter.
    pub(crate) fn end(&mut self, at: u64, figures: Figures) {
        self.end_by(at, figures);
        let len = at - (self.boundary_ns - self.interval_ns);
        if len > 0 {
            self.close(at, len, figures);
        }
    }

    fn close(&mut self, end_ns: u64, len_ns: u64, figures: Figures) {
        let kinds = self.kinds.each_mut().map(|kind| {
            let latency = &kind.latency_ns;
            let moment = Moment {
                commands: latency.count(),
                bytes: kind.bytes,
                p50_ns: latency.percentile(50, 100),
                p99_ns: latency.percentile(99, 100),
                max_ns: latency.most(),
            };
            kind.latency_ns.clear();
            kind.bytes = 0;
            moment
        });
        self.points.push(Point {
            end_ns,
            len_ns,
            kinds,
            drive: figures.since(&self.before),
        });
        self.before = figures;
    }
}
