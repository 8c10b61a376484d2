//! The fast path of nearly every command: a plain read or write (`command::plain`) goes straight
//! from the host's ring to its medium and, if that completes it at once, into the completion queue.
//!
//! Invariants:
//! - It has the same effects as the general path (`fetch`, `issue`, `complete`), with the same
//!   stores in the same order, and nothing else. Every decision about a command that takes more
//!   than one test is left to the general path.
//! - A command that is not plain is untouched: it is in its slot, fetched, and nothing was
//!   requested.
//!
//! It does NOT count commands one by one: a batch is counted when it is over.

use nvme_spec::{Cqe, Status};
use port::Channel;

use super::issue::{COPIED_PER_TURN, Issuer, Next};
use super::message::QueueName;
use super::outcome::Asked;
use super::queues::Queues;
use crate::command;
use crate::counters::LaneCounters;
use crate::gate::Gate;
use crate::queue::{Batch, RingAbsent};

/// How many entries ahead of the one being fetched are prefetched.
pub(super) const PREFETCH: u32 = 4;

/// Why the straight way ended.
pub(super) enum Met {
    /// All that was to be fetched has gone it, or as many bytes were copied as may be in a turn.
    End,
    /// This command was fetched, and has to go the general way.
    Other(u16),
    /// This plain command was asked for, and it went another way than most.
    Asked(u16, Asked),
    /// The next entry's page is not mapped.
    RingAbsent,
    /// An entry was posted to a page that is not mapped.
    RingLost(QueueName),
}

/// Counts of a batch of plain commands of a namespace that completed at once.
#[derive(Debug, Default)]
struct Tally {
    nsid: u32,
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
}

impl Queues {
    /// Fetches `left` commands of the submission queue at `position`, as long as they are plain
    /// ones. The number of the remaining ones is in `left` then. The order of the stores is that of
    /// [`crate::state`].
    pub(super) fn go_straight<C: Channel, G: Gate>(
        &mut self,
        position: usize,
        left: &mut u32,
        issuer: &mut Issuer<'_, C, G>,
    ) -> Met {
        let mut tally = Tally::of(1);
        let batch = self.cq.reserve_batch(*left);
        let (met, rest) = self.go(position, batch, issuer, &mut tally);
        *left = self.cq.release_batch(rest);
        self.unannounced.add(tally.done() as u32);
        tally.add_to(&self.counters);
        met
    }

    #[inline(always)]
    fn go<C: Channel, G: Gate>(
        &mut self,
        position: usize,
        mut batch: Batch,
        issuer: &mut Issuer<'_, C, G>,
        tally: &mut Tally,
    ) -> (Met, Batch) {
        let Some(member) = &mut self.sqs[position] else {
            return (Met::End, batch);
        };
        let (queue, slots, free) = self.slots.split();
        let saved = &mut queue.sqs[position];
        let (sqid, ticks) = (member.sq.id(), self.ticks);
        let mut first = true;
        // A command that completes at once leaves its slot to the next one.
        let Some(&index) = free.last() else {
            return (Met::End, batch);
        };
        let slot = &mut slots[usize::from(index)];
        while issuer.copied < COPIED_PER_TURN {
            let Some(entry) = batch.take() else {
                break;
            };
            let Ok(words) = member.sq.fetch_into(slot, saved, ticks) else {
                batch.put_back(entry);
                return (Met::RingAbsent, batch);
            };
            let left = batch.left();
            if left >= PREFETCH {
                member.sq.prefetch(PREFETCH - 1);
            }
            self.share.take(position);
            let Some(plain) = command::plain(&words) else {
                free.pop();
                member.outstanding += 1;
                slot.park(entry);
                return (Met::Other(index), batch);
            };
            let next = Next {
                sq: &member.sq,
                left,
                first,
            };
            first = false;
            match issuer.issue_plain(index, slot, &plain, next) {
                Some(Asked::Done(Status::SUCCESSFUL_COMPLETION)) => {}
                asked => {
                    free.pop();
                    member.outstanding += 1;
                    slot.park(entry);
                    let met = match asked {
                        Some(asked) => Met::Asked(index, asked),
                        None => Met::Other(index),
                    };
                    return (met, batch);
                }
            }
            if plain.nsid != tally.nsid {
                self.unannounced.add(tally.done() as u32);
                tally.turn_to(plain.nsid, &self.counters);
            }
            if plain.writes {
                tally.writes += 1;
                tally.write_bytes += u64::from(slot.bytes);
            } else {
                tally.reads += 1;
                tally.read_bytes += u64::from(slot.bytes);
            }
            let tail = self.cq.tail();
            let cqe = Cqe {
                sq_head: member.sq.head() as u16,
                sq_id: sqid,
                cid: slot.cid(),
                ..Cqe::default()
            };
            let posted = self.cq.post_from(slot, &mut queue.cq_tail, entry, cqe);
            self.share.posted(position, tail);
            slot.release();
            if posted == Err(RingAbsent) {
                return (Met::RingLost(QueueName::Completion(self.cq.id())), batch);
            }
        }
        (Met::End, batch)
    }
}

impl Tally {
    /// Nothing yet of this namespace; most hosts have the first one only.
    fn of(nsid: u32) -> Self {
        Tally {
            nsid,
            ..Tally::default()
        }
    }

    /// Another namespace's commands follow.
    #[cold]
    #[inline(never)]
    fn turn_to(&mut self, nsid: u32, counters: &LaneCounters) {
        self.add_to(counters);
        *self = Tally::of(nsid);
    }

    fn done(&self) -> u64 {
        self.reads + self.writes
    }

    /// Counts it.
    #[inline]
    fn add_to(&self, counters: &LaneCounters) {
        if self.done() == 0 {
            return;
        }
        counters.completions.add(self.done());
        counters.reads.add(self.reads);
        counters.read_bytes.add(self.read_bytes);
        counters.writes.add(self.writes);
        counters.write_bytes.add(self.write_bytes);
        let namespace = counters.namespaces.of(self.nsid);
        namespace.reads.add(self.reads);
        namespace.read_bytes.add(self.read_bytes);
        namespace.writes.add(self.writes);
        namespace.write_bytes.add(self.write_bytes);
    }
}
