//! A load generator on queue pairs: busy polling, seeded, and able to check every byte it wrote.
//!
//! Each slot of a queue has its own places for data, and data pointers are built once: an entry per
//! command is assembled from them. A command allocates nothing and makes no system call, and the
//! clock is read once per batch of completions.
//!
//! Time in which this thread did not run, as its own reads of the clock show, is excluded and
//! counted: neither that time, nor completions in it, nor the latency of a command that was in
//! flight in it is in the result. This does not apply to a job that verifies: checking data takes
//! time, too.
//!
//! If nothing completes for as long although this thread polls, it cannot know whether the server
//! did not run or took so long. Such lulls are counted, and a caller that knows excludes them
//! ([`JobResult::without_lulls`]).
//!
//! It does not pin its thread and owns no clock: both are the caller's. The same seed gives the
//! same sequence of commands.

pub mod beside;
mod drive;
mod neighbour;
mod places;
pub mod random;
mod traffic;
mod verify;
mod zones;

use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use beside::Beside;
use drive::{Drive, Record};
use hdrhistogram::Histogram;
use memory::HostMemory;
pub use neighbour::Neighbour;
use nvme_spec::Status;
use traffic::{Plain, Sequence, Verified};
use verify::Ledger;
pub use verify::Mismatch;

use crate::bus::Bus;
use crate::io::Namespace;
use crate::zoned::{Zone, Zones};
use crate::{DriverError, QueuePair, Rung};

/// Units of a job's block size that can be verified: each takes four bytes.
const VERIFIED_UNITS_MAX: u64 = 1 << 26;

/// Longest latency that is distinguished, in nanoseconds: a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// A turn takes microseconds, and the clock is read every few of them. If two reads are further
/// apart, the machine has not let this thread run, and that time says nothing about the drive.
const STALL_NS: u64 = 200_000;

/// Commands of a job, and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rw {
    /// Reads at random.
    RandRead,
    /// Writes at random.
    RandWrite,
    /// Reads and writes at random.
    RandRw,
    /// Reads in order, again and again.
    Read,
    /// Writes in order, again and again. In zones, each command in flight writes a zone of its own.
    Write,
    /// Appends to zones, one after the other.
    Append,
}

impl Rw {
    /// The name that a command line has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
            Self::RandRw => "randrw",
            Self::Read => "read",
            Self::Write => "write",
            Self::Append => "append",
        }
    }

    /// Every one, in the order of a help text.
    pub const ALL: [Self; 6] = [
        Self::RandRead,
        Self::RandWrite,
        Self::RandRw,
        Self::Read,
        Self::Write,
        Self::Append,
    ];

    /// Whether it writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::RandRead | Self::Read)
    }
}

impl fmt::Display for Rw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// When a job writes the tail doorbell of its queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ring {
    /// Once for all commands that take the places of those that completed together.
    #[default]
    Batch,
    /// For each command.
    Command,
}

impl Ring {
    /// The name that a command line has for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Command => "command",
        }
    }

    /// Every one, in the order of a help text.
    pub const ALL: [Self; 2] = [Self::Batch, Self::Command];
}

/// A job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Name of the result.
    pub name: String,
    /// Its commands.
    pub rw: Rw,
    /// Share of reads in [`Rw::RandRw`], in percent.
    pub reads_percent: u8,
    /// Bytes of each command; a multiple of the namespace's blocks.
    pub block_size: u32,
    /// Commands in flight.
    pub queue_depth: u16,
    /// Run time, without verification.
    pub runtime: Duration,
    /// Fill blocks before reading them, mark written blocks, and check every byte read and, at the
    /// end, every block written.
    pub verify: bool,
    /// Seed of the order of commands and of the data.
    pub seed: u64,
    /// Bytes used, from the namespace's start; `None` for all of them.
    pub span: Option<u64>,
    /// Bytes of host memory whose places commands use in turn; `None` for one
    /// place for each command in flight.
    pub buffers: Option<u64>,
    /// Pause whenever everything submitted is done.
    pub pause: Duration,
    /// When doorbells are written.
    pub ring: Ring,
    /// Zones that [`Rw::Write`] and [`Rw::Append`] use, with as many of them at a time; `None` for
    /// a namespace without zones. They are reset first, and again whenever they are full.
    pub zones: Option<JobZones>,
}

/// Zones of a job.
#[derive(Clone, Debug)]
pub struct JobZones {
    /// Their common properties.
    pub common: Zones,
    /// The zones.
    pub zones: Vec<Zone>,
    /// How many of them [`Rw::Append`] uses at a time.
    pub open: u16,
}

impl Default for Job {
    /// Random reads of 4 KiB, one at a time, for a second.
    fn default() -> Self {
        Self {
            name: String::new(),
            rw: Rw::RandRead,
            reads_percent: 50,
            block_size: 4096,
            queue_depth: 1,
            runtime: Duration::from_secs(1),
            verify: false,
            seed: 1,
            span: None,
            buffers: None,
            pause: Duration::ZERO,
            ring: Ring::Batch,
            zones: None,
        }
    }
}

/// Latencies of commands, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: f64,
    /// Shortest.
    pub min: u64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// 99.99th percentile.
    pub p9999: u64,
    /// Longest.
    pub max: u64,
}

/// Result of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobResult {
    /// The job's name.
    pub name: String,
    /// Its commands.
    pub rw: Rw,
    /// Bytes of each command.
    pub block_size: u32,
    /// Commands in flight.
    pub queue_depth: u16,
    /// Commands that succeeded per second.
    pub iops: f64,
    /// Data moved per second, in units of 2^20 bytes.
    pub mib_s: f64,
    /// Latency from just before a command's batch is submitted until just after its completion is
    /// seen, of commands that were not in flight in a stall. If there were none, or the drive went
    /// on during the stalls, of all commands, and so are rates and times.
    pub latency_ns: Latency,
    /// Commands that failed, and blocks that read back wrong.
    pub errors: u64,
    /// Status of the first command that failed.
    pub first_error: Option<Status>,
    /// The first block that read back wrong.
    pub first_mismatch: Option<Mismatch>,
    /// Commands that succeeded in the measured time.
    pub commands: u64,
    /// Zones that were reset in the measured time.
    pub zone_resets: u64,
    /// Logical blocks whose every byte was checked.
    pub blocks_verified: u64,
    /// The measured time, in nanoseconds; without stalls, unless they are included.
    pub elapsed_ns: u64,
    /// Stalls: how often this thread did not run for longer than a turn takes.
    pub stalls: u64,
    /// Total time of stalls, in nanoseconds.
    pub stalled_ns: u64,
    /// Whether the figures include them.
    pub stalls_included: bool,
    /// When nothing completed although this thread ran: among the figures.
    pub lulls: Lulls,
    /// Commands of all phases per move of a submission queue's tail.
    pub batch: f64,
    /// Doorbells rung by a register write, for each of those commands.
    pub messages_per_command: f64,
}

/// Times in which commands were in flight and none completed, each as long as a stall.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lulls {
    /// Their number.
    pub count: u64,
    /// Their total time, in nanoseconds.
    pub ns: u64,
    /// Commands whose completions ended one.
    pub commands: u64,
    /// Latency of commands that were in flight in none.
    pub latency_ns_of_others: Latency,
}

/// Progress of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Its current phase.
    pub phase: Phase,
    /// Commands completed in this phase.
    pub commands: u64,
    /// Time in this phase, in nanoseconds.
    pub elapsed_ns: u64,
}

/// The parts of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Fills blocks that will be read.
    Fill,
    /// The measured part.
    Measure,
    /// Reads back written blocks.
    Verify,
}

/// A source of time: nanoseconds from some start, never going back.
pub trait Clock {
    /// Now.
    fn now_ns(&self) -> u64;
}

impl<F: Fn() -> u64> Clock for F {
    fn now_ns(&self) -> u64 {
        self()
    }
}

/// Resources of a job.
pub struct Setting<'a, B: Bus, K, W> {
    /// The namespace under test.
    pub namespace: &'a Namespace,
    /// Idle queue pairs; each has the job's queue depth.
    pub queues: &'a mut [QueuePair<B>],
    /// The source of buffers.
    pub memory: &'a HostMemory,
    /// The time.
    pub clock: &'a K,
    /// Work beside the job.
    pub beside: &'a mut W,
}

/// Runs `job` on `queue`, which must be idle, with buffers from `memory`. It reports its progress
/// to `progress` about ten times a second, and ends early, with the result so far, when that asks
/// for it.
///
/// # Errors
/// [`DriverError::Unsupported`] for a job that does not fit the namespace or
/// the queue; [`DriverError::NoMemory`] for its buffers;
/// [`DriverError::Timeout`], [`DriverError::ControllerFatal`] and
/// [`DriverError::Gone`] when nothing completes any more. Commands that fail,
/// and bytes that are wrong, are counted in the result.
pub fn run<B: Bus>(
    job: &Job,
    namespace: &Namespace,
    queue: &mut QueuePair<B>,
    memory: &HostMemory,
    clock: &impl Clock,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<JobResult, DriverError> {
    let setting = Setting {
        namespace,
        queues: std::slice::from_mut(queue),
        memory,
        clock,
        beside: &mut (),
    };
    run_in(job, setting, progress)
}

/// As [`run`], on several queue pairs, with something else beside it.
///
/// # Errors
/// As [`run`].
pub fn run_in<B: Bus, K: Clock, W: Beside>(
    job: &Job,
    setting: Setting<'_, B, K, W>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<JobResult, DriverError> {
    let Setting {
        namespace,
        queues,
        memory,
        clock,
        beside,
    } = setting;
    let depth = queues.iter().map(QueuePair::depth).min().unwrap_or(0);
    let units = check(job, namespace, depth, queues.len())?;
    let in_flight = usize::from(job.queue_depth) * queues.len();
    let rung_before = rung(queues);
    let mut drive = Drive::new(job, namespace, queues, memory, clock, beside, progress)?;
    let runtime_ns = u64::try_from(job.runtime.as_nanos()).unwrap_or(u64::MAX);
    let mut measured = Record::new();
    if let Some(zones) = zones::of(job, namespace, in_flight)? {
        let mut unmeasured = Record::new();
        let (mut resets, mut writer) = zones;
        drive.run(&mut resets, Phase::Fill, None, &mut unmeasured)?;
        drive.run(&mut writer, Phase::Measure, Some(runtime_ns), &mut measured)?;
        measured.add_errors(&unmeasured);
        return Ok(result(job, &measured, None).with_rung(rung_before, rung(queues)));
    }
    let mut plain = Plain::new(job, units);
    if !job.verify {
        drive.run(&mut plain, Phase::Measure, Some(runtime_ns), &mut measured)?;
        return Ok(result(job, &measured, None).with_rung(rung_before, rung(queues)));
    }
    let mut ledger = Ledger::new(job, namespace, units);
    let mut unmeasured = Record::new();
    if matches!(job.rw, Rw::Read | Rw::RandRead) {
        let mut fill = Verified::new(Sequence::new(0..units, true), &mut ledger);
        drive.run(&mut fill, Phase::Fill, None, &mut unmeasured)?;
    }
    let mut traffic = Verified::new(&mut plain, &mut ledger);
    drive.run(
        &mut traffic,
        Phase::Measure,
        Some(runtime_ns),
        &mut measured,
    )?;
    if !matches!(job.rw, Rw::Read | Rw::RandRead) {
        let mut back = Verified::new(Sequence::new(0..units, false), &mut ledger).only_written();
        drive.run(&mut back, Phase::Verify, None, &mut unmeasured)?;
    }
    measured.add_errors(&unmeasured);
    Ok(result(job, &measured, Some(&ledger)).with_rung(rung_before, rung(queues)))
}

/// How often queue pairs have rung so far, and how many commands that was for.
#[derive(Clone, Copy)]
struct RungSoFar {
    submitted: u64,
    rung: Rung,
}

fn rung<B: Bus>(queues: &[QueuePair<B>]) -> RungSoFar {
    let mut sum = RungSoFar {
        submitted: 0,
        rung: Rung::default(),
    };
    for queue in queues {
        sum.submitted += queue.submitted();
        sum.rung.submissions += queue.rung().submissions;
        sum.rung.messages += queue.rung().messages;
    }
    sum
}

impl JobResult {
    /// Excludes lulls, completions at their ends, and the latency of commands that were in flight
    /// in one: for callers that know that the server did not run then. `None` where nothing would
    /// remain, or the drive went on.
    #[must_use]
    pub fn without_lulls(&self) -> Option<Self> {
        let commands = self.commands - self.lulls.commands;
        let elapsed_ns = self.elapsed_ns - self.lulls.ns;
        if self.stalls_included
            || went_on((self.lulls.commands, self.lulls.ns), (commands, elapsed_ns))
            || self.lulls.latency_ns_of_others.max == 0
        {
            return None;
        }
        let iops = rate(commands, elapsed_ns);
        Some(Self {
            iops,
            mib_s: mib_s(iops, self.block_size),
            latency_ns: self.lulls.latency_ns_of_others,
            commands,
            elapsed_ns,
            ..self.clone()
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "means of counts")]
    fn with_rung(self, before: RungSoFar, after: RungSoFar) -> Self {
        let commands = (after.submitted - before.submitted) as f64;
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let doorbells = (after.rung.submissions - before.rung.submissions) as f64;
        let messages = (after.rung.messages - before.rung.messages) as f64;
        Self {
            batch: ratio(commands, doorbells),
            messages_per_command: ratio(messages, commands),
            ..self
        }
    }
}

/// Units of the job's block size that it works on.
fn check(job: &Job, namespace: &Namespace, depth: u16, queues: usize) -> Result<u64, DriverError> {
    let unsupported = |why: String| Err(DriverError::Unsupported(why));
    let in_flight = u64::from(job.queue_depth)
        .saturating_mul(u64::try_from(queues).expect("usize fits in 64 bits"));
    let (block_size, block_len) = (job.block_size, namespace.block_len);
    if block_size == 0 || !block_size.is_multiple_of(block_len) || block_size / block_len > 65536 {
        return unsupported(format!(
            "a block size of {block_size} bytes is not 1 to 65536 times the namespace's {block_len}"
        ));
    }
    if job.queue_depth == 0 || job.queue_depth > depth {
        return unsupported(format!(
            "a queue depth of {} is not between 1 and the queue's {depth}",
            job.queue_depth
        ));
    }
    let (bytes, len) = (job.span.unwrap_or(namespace.len()), namespace.len());
    if bytes > len {
        return unsupported(format!(
            "a span of {bytes} bytes is more than the namespace, which has {len}"
        ));
    }
    let units = bytes / u64::from(block_size);
    if units == 0 {
        return unsupported(format!(
            "{bytes} bytes are less than one block of {block_size} bytes"
        ));
    }
    if job.verify && units > VERIFIED_UNITS_MAX {
        return unsupported(format!(
            "verification tracks at most {VERIFIED_UNITS_MAX} blocks, not {units}: use a smaller span or larger blocks"
        ));
    }
    if job.verify && units < in_flight {
        return unsupported(format!(
            "verification needs a block for each command in flight: {units} blocks are too few for {in_flight} commands"
        ));
    }
    let needed = in_flight.saturating_mul(job.block_size.into());
    if let Some(buffers) = job.buffers
        && buffers < needed
    {
        return unsupported(format!(
            "{buffers} bytes of buffers are too few: {in_flight} commands in flight need {needed}"
        ));
    }
    Ok(units)
}

/// A second.
#[expect(
    clippy::cast_precision_loss,
    reason = "rates need no more than 52 bits"
)]
fn rate(count: u64, elapsed_ns: u64) -> f64 {
    match elapsed_ns {
        0 => 0.0,
        _ => count as f64 * 1e9 / elapsed_ns as f64,
    }
}

/// Whether a drive completed in the excluded time, in commands and nanoseconds, at least half as
/// many commands per second as in the rest. A queue of a drive that waits for the host completes at
/// most its depth in a stall, which is nothing beside what a fast drive does otherwise; one that a
/// disk keeps busy goes on, and without the stall its figures would be too low.
pub(crate) fn went_on(excluded: (u64, u64), rest: (u64, u64)) -> bool {
    let ((commands, ns), (other, other_ns)) = (excluded, rest);
    2 * u128::from(commands) * u128::from(other_ns) >= u128::from(other) * u128::from(ns)
}

fn mib_s(iops: f64, block_size: u32) -> f64 {
    iops * f64::from(block_size) / f64::from(1 << 20)
}

fn result(job: &Job, record: &Record, ledger: Option<&Ledger>) -> JobResult {
    let mut all = record.latency.clone();
    all.add(&record.late).expect("the bounds are the same");
    let (mut commands, mut elapsed_ns) = (record.commands, record.elapsed_ns);
    let excluded = (record.commands_in_stalls, record.stalled_ns);
    let stalls_included =
        record.stalls > 0 && (all.is_empty() || went_on(excluded, (commands, elapsed_ns)));
    if stalls_included {
        all.add(&record.stalled).expect("the bounds are the same");
        commands += record.commands_in_stalls;
        elapsed_ns += record.stalled_ns;
    }
    let iops = rate(commands, elapsed_ns);
    JobResult {
        name: job.name.clone(),
        rw: job.rw,
        block_size: job.block_size,
        queue_depth: job.queue_depth,
        iops,
        mib_s: mib_s(iops, job.block_size),
        latency_ns: summary(&all),
        errors: record.errors + ledger.map_or(0, Ledger::mismatches),
        first_error: record.first_error,
        first_mismatch: ledger.and_then(Ledger::first_mismatch),
        commands,
        zone_resets: record.resets,
        blocks_verified: ledger.map_or(0, Ledger::checked),
        elapsed_ns,
        stalls: record.stalls,
        stalled_ns: record.stalled_ns,
        stalls_included,
        lulls: Lulls {
            count: record.lulls,
            ns: record.lulled_ns,
            commands: record.commands_ending_lulls,
            latency_ns_of_others: summary(&record.latency),
        },
        batch: 0.0,
        messages_per_command: 0.0,
    }
}

fn summary(latency: &Histogram<u64>) -> Latency {
    Latency {
        mean: latency.mean(),
        min: latency.min(),
        p50: latency.value_at_quantile(0.5),
        p90: latency.value_at_quantile(0.9),
        p99: latency.value_at_quantile(0.99),
        p999: latency.value_at_quantile(0.999),
        p9999: latency.value_at_quantile(0.9999),
        max: latency.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_went_on_in_a_stall_is_one_that_did_as_much_as_otherwise() {
        // commands and milliseconds in stalls, and outside of them
        for (excluded, rest, expected) in [
            // 32 of a fast drive's queue, which then waited
            ((32, 5), (5_000_000, 1_000), false),
            // a disk of 1,000 commands per second
            ((3_800, 3_400), (120, 600), true),
            ((2_500, 2_600), (1_392, 1_400), true),
            // its host had less than half of the time for the queue
            ((5_000, 2_900), (11_000, 1_100), false),
            ((1, 5), (0, 100), true),
        ] {
            assert_eq!(went_on(excluded, rest), expected, "{excluded:?} {rest:?}");
        }
    }
}
