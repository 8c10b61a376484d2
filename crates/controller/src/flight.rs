//! Records of single commands: the start of each stage, and the outcome.
//!
//! On request ([`crate::lane::LaneCommand::Watch`]) a lane samples, or **watches**, some commands:
//! on average one in N, each at a random distance from the one before, so that no pattern of a host
//! hides from it. A watched command is fetched by the general path, and its stages are timed by a
//! clock; all others are processed as usual. The results go into a ring of records and into
//! histograms ([`LaneFlight`]), which have one writer and are read by any thread, without a lock.
//!
//! The caller passes in the clock as a function, as this crate has none.

use std::sync::{Arc, OnceLock};

use memory::{Counter, Histogram, LogHistogram, RECORD_WORDS, Records};
use nvme_spec::Status;
use nvme_spec::key_value::KEY_MAX;
use nvme_spec::opcode::{Csi, NvmOpcode};
use nvme_spec::zoned::ZonedOpcode;
use port::time::Time;

/// Where the time of a command goes, in the order in which it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// In the host's ring: from the look that saw its doorbell until it was fetched.
    Ring,
    /// Fetched, and waiting for its tenant's turn.
    Fairness,
    /// Parsed and checked, its addresses translated.
    Translation,
    /// In its medium: all of that time or, with a timing model, the time that the medium took to do
    /// the work.
    Medium,
    /// Done, and deferred until its timing model completes it.
    Model,
    /// Posted, until its turn was over and its interrupt could be raised.
    Interrupt,
}

impl Stage {
    /// All of them.
    pub const ALL: [Stage; 6] = [
        Stage::Ring,
        Stage::Fairness,
        Stage::Translation,
        Stage::Medium,
        Stage::Model,
        Stage::Interrupt,
    ];

    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Stage::Ring => "ring",
            Stage::Fairness => "fairness",
            Stage::Translation => "translation",
            Stage::Medium => "medium",
            Stage::Model => "model",
            Stage::Interrupt => "interrupt",
        }
    }
}

/// Operations whose latencies are recorded separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read, and Retrieve of key-value namespaces.
    Read,
    /// Write, Zone Append, and Store of key-value namespaces.
    Write,
    /// Any other I/O command.
    Other,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 3] = [Operation::Read, Operation::Write, Operation::Other];

    /// The operation of an opcode. The opcodes of key-value namespaces are the same numbers as
    /// those of blocks (KV 1.1, 3).
    #[must_use]
    pub fn of(opcode: u8) -> Self {
        const APPEND: u8 = ZonedOpcode::ZONE_APPEND.0;
        match NvmOpcode(opcode) {
            NvmOpcode::READ => Operation::Read,
            NvmOpcode::WRITE | NvmOpcode(APPEND) => Operation::Write,
            _ => Operation::Other,
        }
    }

    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Other => "other",
        }
    }
}

/// A command that has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightRecord {
    /// When its doorbell was seen.
    pub begun: Time,
    /// Duration of each stage, in nanoseconds, by [`Stage::ALL`]; saturates at 4.29 s.
    pub stages: [u32; Stage::ALL.len()],
    /// Its submission queue.
    pub sqid: u16,
    /// Its command identifier.
    pub cid: u16,
    /// Its opcode.
    pub opcode: u8,
    /// Whether it had Force Unit Access.
    pub fua: bool,
    /// Its status.
    pub status: Status,
    /// Its namespace.
    pub nsid: u32,
    /// The command set of its namespace, where that was there.
    pub csi: Csi,
    /// Size of a logical block of its namespace as a power of two; 0 where the namespace was not
    /// there.
    pub lba_shift: u8,
    /// Its first logical block, of a command that has one; of Dataset Management that of its first
    /// range.
    pub slba: u64,
    /// Logical blocks that it names, of a command that names some; of Dataset Management those of
    /// its first range; of one with a key the bytes of the value or of the host's buffer, as its
    /// CDW10 has them.
    pub blocks: u32,
    /// Further fields that are needed to repeat it: for Dataset Management the number of its
    /// ranges, for the Zone Management commands CDW13, for other commands that name blocks the
    /// upper half of CDW12, for one with a key the lower half of CDW11, and 0 for all others.
    pub detail: u32,
    /// The key, of a command of the Key Value command set; zeros behind it.
    pub key: [u8; KEY_MAX],
    /// Bytes that it moved.
    pub bytes: u32,
    /// Commands of its queue that were fetched and not completed when it was, with it.
    pub depth: u16,
}

impl FlightRecord {
    /// Nanoseconds from its doorbell until it was posted.
    #[must_use]
    pub fn latency_ns(&self) -> u64 {
        let [stages @ .., _interrupt] = &self.stages;
        stages.iter().map(|stage| u64::from(*stage)).sum()
    }

    fn words(&self) -> [u64; RECORD_WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let [a, b, c, d, e, f] = self.stages;
        let low = u32::from(self.sqid) | u32::from(self.cid) << 16;
        let high = u32::from(self.opcode) | u32::from(self.fua) << 8 | u32::from(self.depth) << 16;
        let key = u128::from_le_bytes(self.key);
        let mut words = [0; RECORD_WORDS];
        let all = [
            self.begun.0,
            pair(a, b),
            pair(c, d),
            pair(e, f),
            self.slba,
            pair(self.nsid, self.bytes),
            pair(low, high),
            pair(
                u32::from(self.status.0)
                    | u32::from(self.lba_shift) << 16
                    | u32::from(self.csi.0) << 24,
                self.blocks,
            ),
            self.detail.into(),
            key as u64,
            (key >> 64) as u64,
        ];
        words[..all.len()].copy_from_slice(&all);
        words
    }

    fn from_words(words: [u64; RECORD_WORDS]) -> Self {
        let (low, high) = (|word: u64| word as u32, |word: u64| (word >> 32) as u32);
        let [
            begun,
            ab,
            cd,
            ef,
            slba,
            nsid_bytes,
            names,
            status,
            detail,
            key_low,
            key_high,
            ..,
        ] = words;
        FlightRecord {
            begun: Time(begun),
            stages: [low(ab), high(ab), low(cd), high(cd), low(ef), high(ef)],
            sqid: names as u16,
            cid: (names >> 16) as u16,
            opcode: (names >> 32) as u8,
            fua: names >> 40 & 1 != 0,
            status: Status(status as u16),
            nsid: low(nsid_bytes),
            csi: Csi((status >> 24) as u8),
            lba_shift: (status >> 16) as u8,
            slba,
            blocks: high(status),
            detail: low(detail),
            key: (u128::from(key_low) | u128::from(key_high) << 64).to_le_bytes(),
            bytes: high(nsid_bytes),
            depth: (names >> 48) as u16,
        }
    }
}

/// The last records of a lane.
#[derive(Debug)]
pub struct FlightRecords(Records);

impl FlightRecords {
    /// Room for so many.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        FlightRecords(Records::new(entries))
    }

    /// Adds those of another one, to which no more are written, as far as there is room; only its
    /// one writer calls this.
    pub fn absorb(&self, other: &FlightRecords) {
        for record in other.last(self.room()) {
            self.0.push(record.words());
        }
    }

    /// Capacity in records.
    #[must_use]
    pub fn room(&self) -> usize {
        self.0.len()
    }

    /// Number of records written so far: the number of the next one.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.0.written()
    }

    /// Record `number`, if it is there still.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<FlightRecord> {
        self.0.get(number).map(FlightRecord::from_words)
    }

    /// The last `count` that are there, the oldest first.
    #[must_use]
    pub fn last(&self, count: usize) -> Vec<FlightRecord> {
        let written = self.written();
        let count = count.min(self.room()) as u64;
        let first = written.saturating_sub(count);
        (first..written).filter_map(|n| self.get(n)).collect()
    }
}

/// Statistics of a lane's sampled commands.
#[derive(Debug, Default)]
pub struct LaneFlight {
    /// From the doorbell to the completion, in nanoseconds, by [`Operation::ALL`].
    pub latency: [LogHistogram; Operation::ALL.len()],
    /// Nanoseconds of the stages, by [`Stage::ALL`], of all operations together.
    pub stages: [StageTimes; Stage::ALL.len()],
    /// Those that succeeded, by their namespace.
    pub namespaces: NamespaceCounts,
}

/// Namespaces that are counted separately.
pub const NAMESPACES: usize = 32;

/// Watched commands that succeeded, by their namespace: of the first [`NAMESPACES`] that some came
/// to.
#[derive(Debug, Default)]
pub struct NamespaceCounts([NamespaceCount; NAMESPACES]);

/// Commands of one namespace.
#[derive(Debug, Default)]
pub struct NamespaceCount {
    /// Which; 0 of one that nothing came to yet.
    nsid: Counter,
    /// Commands, by [`Operation::ALL`].
    pub commands: [Counter; Operation::ALL.len()],
    /// Bytes that they moved, likewise.
    pub bytes: [Counter; Operation::ALL.len()],
}

impl NamespaceCounts {
    /// The place of a namespace, if it has one or may have one; only the one writer calls this.
    fn of(&self, nsid: u32) -> Option<&NamespaceCount> {
        let nsid = u64::from(nsid);
        let mut all = self.0.iter();
        let place = all.find(|one| [0, nsid].contains(&one.nsid.get()))?;
        if place.nsid.get() == 0 {
            place.nsid.add(nsid);
        }
        Some(place)
    }

    fn count(&self, record: &FlightRecord) {
        if record.nsid == 0 || !record.status.is_success() {
            return;
        }
        if let Some(place) = self.of(record.nsid) {
            let operation = Operation::of(record.opcode) as usize;
            place.commands[operation].add(1);
            place.bytes[operation].add(record.bytes.into());
        }
    }

    /// Those that something came to, by their identifiers.
    pub fn counts(&self) -> impl Iterator<Item = (u32, &NamespaceCount)> {
        let there = self.0.iter().filter(|one| one.nsid.get() != 0);
        // it was an identifier of 32 bits
        there.map(|one| (one.nsid.get() as u32, one))
    }

    fn absorb(&self, other: &NamespaceCounts) {
        for (nsid, others) in other.counts() {
            let Some(mine) = self.of(nsid) else {
                continue;
            };
            for (mine, others) in mine.commands.iter().zip(&others.commands) {
                mine.add(others.get());
            }
            for (mine, others) in mine.bytes.iter().zip(&others.bytes) {
                mine.add(others.get());
            }
        }
    }
}

/// Times of one stage, in nanoseconds.
#[derive(Debug, Default)]
pub struct StageTimes {
    /// In powers of two.
    pub times: Histogram,
    /// All of them together.
    pub sum: Counter,
}

impl LaneFlight {
    fn count(&self, record: &FlightRecord) {
        let operation = Operation::of(record.opcode) as usize;
        self.latency[operation].record(record.latency_ns());
        for (stage, time) in self.stages.iter().zip(record.stages) {
            stage.times.record(time.into());
            stage.sum.add(time.into());
        }
        self.namespaces.count(record);
    }

    /// Adds the counts of another one, which no longer counts; only its one writer calls this.
    pub fn absorb(&self, other: &LaneFlight) {
        for (mine, others) in self.latency.iter().zip(&other.latency) {
            mine.absorb(others);
        }
        for (mine, others) in self.stages.iter().zip(&other.stages) {
            mine.times.absorb(&others.times);
            mine.sum.add(others.sum.get());
        }
        self.namespaces.absorb(&other.namespaces);
    }
}

/// A lane's records for a trace, for a reader that takes them in time.
#[derive(Debug)]
pub struct TraceRing {
    records: FlightRecords,
    missed: Counter,
}

impl TraceRing {
    fn new(entries: usize) -> Self {
        TraceRing {
            records: FlightRecords::new(entries),
            missed: Counter::default(),
        }
    }

    /// The records; those that were not taken in time are written over.
    #[must_use]
    pub fn records(&self) -> &FlightRecords {
        &self.records
    }

    /// Commands that could not be watched, as too many were already.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.missed.get()
    }

    pub(crate) fn push(&self, record: &FlightRecord) {
        self.records.0.push(record.words());
    }

    pub(crate) fn miss(&self) {
        self.missed.add(1);
    }
}

/// Rings of a controller's completion queues, each made with the first queue of its identifier, so
/// that a host which makes and deletes queues takes no more memory. A queue is gone, and its lane
/// writes no more, before there is another one of its identifier.
#[derive(Debug)]
pub struct TraceRings {
    rings: Box<[OnceLock<Arc<TraceRing>>]>,
    entries: usize,
}

impl TraceRings {
    /// For completion queues 1 to `queues`, each with room for so many records.
    #[must_use]
    pub fn new(queues: u16, entries: usize) -> Self {
        TraceRings {
            rings: (0..=queues).map(|_| OnceLock::new()).collect(),
            entries,
        }
    }

    /// Those that there are, each with the identifier of its completion queue.
    pub fn rings(&self) -> impl Iterator<Item = (u16, &TraceRing)> {
        let rings = (0..).zip(&self.rings);
        rings.filter_map(|(cqid, ring)| Some((cqid, &**ring.get()?)))
    }

    fn of(&self, cqid: u16) -> Option<Arc<TraceRing>> {
        let ring = self.rings.get(usize::from(cqid))?;
        Some(
            ring.get_or_init(|| Arc::new(TraceRing::new(self.entries)))
                .clone(),
        )
    }
}

/// A trace of a controller: one command of so many of every queue, with all that is known of it.
#[derive(Clone, Debug)]
pub struct TraceSpec {
    /// One command of so many, 1 or more: 1 is every one.
    pub every: u32,
    /// Destination of the records.
    pub rings: Arc<TraceRings>,
}

/// A trace of a lane.
#[derive(Clone, Debug)]
pub struct Tracing {
    /// One command of so many, 1 or more.
    pub every: u32,
    /// Destination of the records.
    pub ring: Arc<TraceRing>,
}

impl TraceSpec {
    /// The tracing of the completion queue `cqid`.
    #[must_use]
    pub fn of_queue(&self, cqid: u16) -> Option<Tracing> {
        Some(Tracing {
            every: self.every.max(1),
            ring: self.rings.of(cqid)?,
        })
    }
}

/// Sampling settings of a lane.
#[derive(Clone, Debug)]
pub struct Watching {
    /// One command of so many is watched, 1 or more; or 0, where there are but those of a trace.
    pub every: u32,
    /// The time.
    pub clock: fn() -> Time,
    /// Destination of records.
    pub records: Arc<FlightRecords>,
    /// Statistics of the records.
    pub flight: Arc<LaneFlight>,
    /// An active trace: it samples as many commands as it needs, and of those one of `every` of all
    /// goes to `records` and `flight`, as without it.
    pub trace: Option<Tracing>,
}

/// Sampling settings of a controller.
#[derive(Clone, Debug)]
pub struct WatchSpec {
    /// One command of so many, 1 or more; or 0 for none but those of a trace.
    pub every: u32,
    /// The time.
    pub clock: fn() -> Time,
    /// Number of records that each completion queue keeps.
    pub records: usize,
    /// An active trace.
    pub trace: Option<TraceSpec>,
}

/// Samples of a completion queue.
#[derive(Clone, Debug)]
pub struct Watched {
    /// In numbers.
    pub flight: Arc<LaneFlight>,
    /// The last ones.
    pub records: Arc<FlightRecords>,
}

impl Watching {
    pub(crate) fn land(&self, record: &FlightRecord) {
        self.records.0.push(record.words());
        self.flight.count(record);
    }
}

/// Number of error statuses that are counted separately; the rest counts together.
const STATUSES: usize = 24;

/// Errors by their status: one writer, any number of readers.
#[derive(Debug, Default)]
pub struct StatusCounts {
    /// A status and one, 0 where the place is free, with its count.
    known: [(Counter, Counter); STATUSES],
    /// Errors with a status that found no place.
    more: Counter,
}

impl StatusCounts {
    /// Counts an error; only its one writer calls this.
    #[cold]
    #[inline(never)]
    pub fn count(&self, status: Status) {
        self.add(status, 1);
    }

    fn add(&self, status: Status, count: u64) {
        let named = u64::from(status.0) + 1;
        for (name, counted) in &self.known {
            if name.get() == 0 {
                name.add(named);
            }
            if name.get() == named {
                return counted.add(count);
            }
        }
        self.more.add(count);
    }

    /// Adds the counts of another one, which no longer counts; only its one writer calls this.
    pub fn absorb(&self, other: &StatusCounts) {
        other.counts().for_each(|(status, count)| match status {
            Some(status) => self.add(status, count),
            None => self.more.add(count),
        });
    }

    /// Every status that was met with its count, and those together that found no place.
    pub fn counts(&self) -> impl Iterator<Item = (Option<Status>, u64)> {
        let known = self.known.iter().filter(|(name, _)| name.get() != 0);
        let known = known.map(|(name, count)| (Some(Status((name.get() - 1) as u16)), count.get()));
        let more = Some((None, self.more.get())).filter(|(_, count)| *count > 0);
        known.chain(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_words() {
        let record = FlightRecord {
            begun: Time(u64::MAX - 1),
            stages: [1, u32::MAX, 3, 4, 5, 6],
            sqid: 0xfedc,
            cid: 0xba98,
            opcode: 0x7d,
            fua: true,
            status: Status(0x7fff),
            nsid: 0xfffffffe,
            csi: Csi(0xfd),
            lba_shift: 0xfc,
            slba: u64::MAX,
            blocks: 0x8000_0002,
            detail: 0x8000_0003,
            key: *b"\xff234567890123456",
            bytes: 0x80000001,
            depth: 0xf00f,
        };
        assert_eq!(FlightRecord::from_words(record.words()), record);
        let plain = FlightRecord {
            fua: false,
            depth: 1,
            ..record
        };
        assert_eq!(FlightRecord::from_words(plain.words()), plain);
        // what follows the posting is not the command's time
        assert_eq!(plain.latency_ns(), 1 + u64::from(u32::MAX) + 3 + 4 + 5);
    }

    #[test]
    fn of_those_that_are_gone_the_last_stay() {
        let record = |cid| FlightRecord {
            begun: Time(cid),
            stages: [0; 6],
            sqid: 1,
            cid: cid as u16,
            opcode: 2,
            fua: false,
            status: Status::SUCCESSFUL_COMPLETION,
            nsid: 1,
            csi: Csi::NVM,
            lba_shift: 9,
            slba: 0,
            blocks: 1,
            detail: 0,
            key: [0; KEY_MAX],
            bytes: 512,
            depth: 1,
        };
        let gone = FlightRecords::new(8);
        (0..20).for_each(|cid| gone.0.push(record(cid).words()));
        let past = FlightRecords::new(4);
        past.0.push(record(90).words());
        past.absorb(&FlightRecords::new(8));
        assert_eq!(past.last(4), [record(90)]);
        past.absorb(&gone);
        assert_eq!(past.last(4), [16, 17, 18, 19].map(record));
    }

    #[test]
    fn errors_are_told_apart_as_far_as_there_is_room() {
        let counts = StatusCounts::default();
        for status in 0..30 {
            (0..=status).for_each(|_| counts.count(Status(status)));
        }
        let all: Vec<_> = counts.counts().collect();
        assert_eq!(all.len(), STATUSES + 1);
        assert_eq!(all[0], (Some(Status(0)), 1));
        assert_eq!(all[23], (Some(Status(23)), 24));
        // 25 + 26 + 27 + 28 + 29 + 30
        assert_eq!(all[24], (None, 165));

        let sum = StatusCounts::default();
        sum.count(Status(5));
        sum.absorb(&counts);
        let five = sum.counts().find(|(status, _)| *status == Some(Status(5)));
        assert_eq!(five, Some((Some(Status(5)), 7)));
        assert_eq!(sum.counts().map(|(_, count)| count).sum::<u64>(), 466);
    }
}
