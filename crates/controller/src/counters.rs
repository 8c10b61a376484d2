//! Counters of the command path: one writer each, read by any thread without a lock.
//!
//! A lane's counters outlive the lane: its controller keeps them and sums them up for the SMART
//! log.

use std::collections::BTreeMap;
use std::sync::Arc;

use memory::Counter;
use subsystem::HealthRecord;

use crate::flight::{FlightRecords, LaneFlight, StatusCounts, Watched};

/// Counters of a lane.
#[derive(Debug, Default)]
pub struct LaneCounters {
    /// Commands fetched.
    pub fetched: Counter,
    /// Completions posted.
    pub completions: Counter,
    /// Read commands that succeeded.
    pub reads: Counter,
    /// Bytes of those.
    pub read_bytes: Counter,
    /// Write commands that succeeded.
    pub writes: Counter,
    /// Bytes of those.
    pub write_bytes: Counter,
    /// Compare commands that ran, equal or not.
    pub compares: Counter,
    /// Bytes of those.
    pub compare_bytes: Counter,
    /// Verify commands that succeeded.
    pub verifies: Counter,
    /// Bytes of those.
    pub verify_bytes: Counter,
    /// Copy commands that succeeded.
    pub copies: Counter,
    /// Bytes of those, which were read and written.
    pub copy_bytes: Counter,
    /// Flush commands that succeeded.
    pub flushes: Counter,
    /// Write Zeroes and Dataset Management commands that succeeded.
    pub deallocations: Counter,
    /// Commands that completed with an error of any kind.
    pub errors: Counter,
    /// Those, by their status.
    pub statuses: StatusCounts,
    /// Commands of each namespace.
    pub namespaces: EachNamespace,
    /// Commands that a medium failed.
    pub media_errors: Counter,
    /// Media errors that were not logged, because the controller had not taken the earlier ones.
    pub unlogged_errors: Counter,
    /// Interrupts handed to the transport.
    pub interrupts: Counter,
    /// Those that were not, as the host had consumed everything by then.
    pub interrupts_spared: Counter,
    /// Requests to the host to ring for its next command, because none had arrived for a while.
    pub rests: Counter,
    /// Commands of a process that died which were executed again.
    pub replayed: Counter,
    /// Those that ended as Command Interrupted or with an error instead.
    pub interrupted: Counter,
}

impl LaneCounters {
    /// Adds what the lane counted to a controller's record. Compare and Copy count as reads, and
    /// Copy as a write, too; Verify reads data, but counts as no read command; Write Zeroes as
    /// neither (NVM 1.1, 1.4.2).
    pub(crate) fn add_to(&self, record: &mut HealthRecord) {
        let read = [
            &self.read_bytes,
            &self.compare_bytes,
            &self.verify_bytes,
            &self.copy_bytes,
        ];
        record.bytes_read += read.iter().map(|bytes| bytes.get()).sum::<u64>();
        record.bytes_written += self.write_bytes.get() + self.copy_bytes.get();
        record.read_commands += self.reads.get() + self.compares.get() + self.copies.get();
        record.write_commands += self.writes.get() + self.copies.get();
        record.media_errors += self.media_errors.get();
    }
}

/// Namespaces that are counted apart: those with identifiers up to this.
pub const NAMESPACES: usize = 32;

/// Commands of each namespace, by its identifier: one writer, any number of readers. An identifier
/// that is reused for another namespace keeps its counts.
#[derive(Debug, Default)]
pub struct EachNamespace {
    /// By identifier, from 1 on.
    known: [NamespaceCounters; NAMESPACES],
    /// All namespaces with larger identifiers together.
    more: NamespaceCounters,
}

/// Commands of a namespace, as the SMART log counts them ([`HealthRecord`]), and failures.
#[derive(Debug, Default)]
pub struct NamespaceCounters {
    /// Commands that read it.
    pub reads: Counter,
    /// Bytes that were read.
    pub read_bytes: Counter,
    /// Commands that wrote it.
    pub writes: Counter,
    /// Bytes that were written.
    pub write_bytes: Counter,
    /// Commands that completed with an error.
    pub errors: Counter,
}

impl EachNamespace {
    /// Counters of the namespace with this identifier; for one that does not exist, as a host may
    /// have named it, or is too large, the shared ones.
    #[inline]
    #[must_use]
    pub fn of(&self, nsid: u32) -> &NamespaceCounters {
        let place = nsid.wrapping_sub(1) as usize;
        self.known.get(place).unwrap_or(&self.more)
    }

    /// Adds the counts of another one, which no longer counts; only its one writer calls this.
    pub fn absorb(&self, other: &EachNamespace) {
        let pairs = self.known.iter().zip(&other.known);
        for (own, its) in pairs.chain([(&self.more, &other.more)]) {
            own.reads.add(its.reads.get());
            own.read_bytes.add(its.read_bytes.get());
            own.writes.add(its.writes.get());
            own.write_bytes.add(its.write_bytes.get());
            own.errors.add(its.errors.get());
        }
    }
}

/// Counters of a reactor; in the vendor log page.
#[derive(Debug, Default)]
pub struct ReactorCounters {
    /// Nanoseconds of turns that found work.
    pub busy_ns: Counter,
    /// Completions of all lanes.
    pub completions: Counter,
    /// Turns taken.
    pub turns: Counter,
    /// Turns that found work.
    pub turns_with_work: Counter,
    /// Nanoseconds of turns that found none.
    pub spun_ns: Counter,
    /// Turns during which the system ran something else for more than 200 us.
    pub stalls: Counter,
    /// Nanoseconds that the system ran something else in turns longer than 200 us. They are in no
    /// time of the others.
    pub stalled_ns: Counter,
    /// Nanoseconds asleep.
    pub slept_ns: Counter,
    /// Times that it went to sleep.
    pub sleeps: Counter,
}

/// Records that are kept of queues that are gone.
const PAST_RECORDS: usize = 256;

/// Counts of a controller's queues that are gone.
#[derive(Debug)]
pub struct Past {
    /// Errors.
    pub statuses: StatusCounts,
    /// Commands for each namespace.
    pub namespaces: EachNamespace,
    /// Watched commands.
    pub flight: LaneFlight,
    /// The last ones.
    pub records: FlightRecords,
    /// Sums by the identifier of the completion queue.
    pub queues: BTreeMap<u16, PastQueue>,
}

/// Counts of the completion queues of one identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastQueue {
    /// Completions posted.
    pub completions: u64,
    /// Those with an error.
    pub errors: u64,
}

impl Default for Past {
    fn default() -> Self {
        Past {
            statuses: StatusCounts::default(),
            namespaces: EachNamespace::default(),
            flight: LaneFlight::default(),
            records: FlightRecords::new(PAST_RECORDS),
            queues: BTreeMap::new(),
        }
    }
}

/// Counts of a controller, all of one time.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Counts of its SMART log.
    pub health: HealthRecord,
    /// Counts of its existing I/O completion queues since their creation.
    pub queues: Vec<QueueCounted>,
    /// Counts of its deleted ones.
    pub past: Arc<Past>,
    /// Latency sampling rate: on average one in N commands is timed; 0 disables sampling.
    pub sample: u32,
    /// Number of timed commands that each completion queue keeps.
    pub records: usize,
    /// Counts of the controllers of its hosts over a network; they are not in the fields above,
    /// except in `health`, and those of hosts that have left in `past`.
    pub hosts: Vec<HostCounted>,
}

impl Counted {
    /// The counts of a host over a network alone.
    #[must_use]
    pub fn of_host(&self, cntlid: u16) -> Option<Counted> {
        let host = self.hosts.iter().find(|host| host.cntlid == cntlid)?;
        Some(Counted {
            queues: host.queues.clone(),
            past: host.past.clone(),
            sample: self.sample,
            records: self.records,
            ..Counted::default()
        })
    }

    /// The queues that exist, of its hosts over a network, too.
    pub fn all_queues(&self) -> impl Iterator<Item = &QueueCounted> {
        let of_hosts = self.hosts.iter().flat_map(|host| &host.queues);
        self.queues.iter().chain(of_hosts)
    }

    /// The counts of queues that were deleted, of its hosts over a network, too.
    pub fn all_past(&self) -> impl Iterator<Item = &Past> {
        let of_hosts = self.hosts.iter().map(|host| &*host.past);
        std::iter::once(&*self.past).chain(of_hosts)
    }
}

/// Counts of the controller of a host over a network.
#[derive(Clone, Debug)]
pub struct HostCounted {
    /// Its controller identifier.
    pub cntlid: u16,
    /// Counts of its existing I/O completion queues.
    pub queues: Vec<QueueCounted>,
    /// Counts of its deleted ones.
    pub past: Arc<Past>,
}

impl Past {
    /// Its counts and those of a queue that is gone. A new value: a snapshot that holds both the
    /// former one and the queue counts nothing twice.
    #[must_use]
    pub fn with_queue(
        &self,
        cqid: u16,
        counters: &LaneCounters,
        watched: Option<&Watched>,
    ) -> Past {
        let mut all = Past::default();
        all.absorb_past(self);
        all.absorb_queue(cqid, counters, watched);
        all
    }

    /// The same with all of a controller that is gone.
    #[must_use]
    pub fn with(&self, gone: &Counted) -> Past {
        let mut all = Past::default();
        all.absorb_past(self);
        all.absorb_past(&gone.past);
        for queue in &gone.queues {
            all.absorb_queue(queue.cqid, &queue.counters, queue.watched.as_ref());
        }
        all
    }

    fn absorb_queue(&mut self, cqid: u16, counters: &LaneCounters, watched: Option<&Watched>) {
        self.queues.entry(cqid).or_default().add(PastQueue {
            completions: counters.completions.get(),
            errors: counters.errors.get(),
        });
        self.statuses.absorb(&counters.statuses);
        self.namespaces.absorb(&counters.namespaces);
        if let Some(watched) = watched {
            self.flight.absorb(&watched.flight);
            self.records.absorb(&watched.records);
        }
    }

    fn absorb_past(&mut self, past: &Past) {
        for (cqid, queue) in &past.queues {
            self.queues.entry(*cqid).or_default().add(*queue);
        }
        self.statuses.absorb(&past.statuses);
        self.namespaces.absorb(&past.namespaces);
        self.flight.absorb(&past.flight);
        self.records.absorb(&past.records);
    }
}

impl PastQueue {
    fn add(&mut self, other: PastQueue) {
        self.completions += other.completions;
        self.errors += other.errors;
    }
}

/// Counts of a completion queue, with every submission queue that completes into it.
#[derive(Clone, Debug)]
pub struct QueueCounted {
    /// The completion queue.
    pub cqid: u16,
    /// Commands fetched and not completed, about now.
    pub in_flight: u64,
    /// Completions posted.
    pub completions: u64,
    /// Those with an error.
    pub errors: u64,
    /// Interrupts sent.
    pub interrupts: u64,
    /// Interrupts that were not, as the host had consumed everything by then.
    pub interrupts_spared: u64,
    /// Requests to the host to ring for its next command, because none had arrived for a while.
    pub rests: u64,
    /// Commands of a process that died which were executed again.
    pub replayed: u64,
    /// Those that ended as Command Interrupted or with an error instead.
    pub interrupted: u64,
    /// All of its counters, which go on.
    pub counters: Arc<LaneCounters>,
    /// Its commands that were watched, if some were.
    pub watched: Option<Watched>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(past: &Past) -> u64 {
        past.namespaces.of(1).reads.get()
    }

    #[test]
    fn a_snapshot_counts_nothing_twice_when_a_queue_goes() {
        let lane = LaneCounters::default();
        lane.namespaces.of(1).reads.add(3);
        lane.completions.add(4);
        lane.errors.add(1);
        let before = Arc::new(Past::default().with_queue(1, &lane, None));
        assert_eq!(reads(&before), 3);
        let after = before.with_queue(1, &lane, None).with_queue(2, &lane, None);
        assert_eq!((reads(&before), reads(&after)), (3, 9));
        let sums = |past: &Past| {
            let queues = past.queues.iter();
            let sums = queues.map(|(cqid, queue)| (*cqid, queue.completions, queue.errors));
            sums.collect::<Vec<_>>()
        };
        assert_eq!(sums(&before), [(1, 4, 1)]);
        assert_eq!(sums(&after), [(1, 8, 2), (2, 4, 1)]);
        let gone = Counted {
            past: Arc::new(after),
            ..Counted::default()
        };
        let all = before.with(&gone);
        assert_eq!((reads(&all), reads(&before)), (12, 3));
        assert_eq!(sums(&all), [(1, 12, 3), (2, 4, 1)]);
    }
}
