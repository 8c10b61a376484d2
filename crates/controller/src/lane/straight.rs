//! The way of nearly every command: a read or a write with nothing special about it (`command::plain`) goes straight
//! from the host's ring to its medium and, where that does it at once, into the completion queue.
//!
//! Invariants:
//! - It does what the general way (`fetch`, `issue`, `complete`) does to such a command, with the same stores in the
//!   same order, and nothing else. What is decided about a command in more than one test is left to the general way.
//! - What was not found to be as usual was not touched: the command is in its slot, fetched, and nothing was asked.
//!
//! It does NOT count commands one by one: a batch is counted when it is over.

use nvme_spec::{Cqe, Status};

use super::fetch::PREFETCH;
use super::issue::{Asked, COPIED_PER_TURN, Issuer, Next};
use super::message::QueueName;
use super::queues::Queues;
use crate::command;
use crate::gate::Gate;
use crate::port::Channel;
use crate::queue::RingAbsent;
use crate::state::{ordered, slot_state};

/// Why the straight way ended.
pub(super) enum Met {
    /// All that was to be fetched has gone it, or as many bytes were copied as may be in a turn.
    End,
    /// This command was fetched, and has to go the general way.
    Other(u16),
    /// This plain command was asked for, and it went another way than most.
    Asked(u16, Asked),
    /// A ring was used while its page was not mapped.
    RingLost(QueueName),
}

/// What a batch of plain commands that were done at once came to.
#[derive(Debug, Default)]
struct Tally {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
}

impl Queues {
    /// Fetches `left` commands of the submission queue at `position`, as long as they are plain ones. What is left of
    /// them is left in `left`. The order of the stores is that of [`crate::state`].
    pub(super) fn go_straight<C: Channel, G: Gate>(
        &mut self,
        position: usize,
        left: &mut u32,
        issuer: &mut Issuer<'_, C, G>,
    ) -> Met {
        let mut tally = Tally::default();
        let met = self.go(position, left, issuer, &mut tally);
        self.add_up(&tally);
        met
    }

    #[inline(always)]
    fn go<C: Channel, G: Gate>(
        &mut self,
        position: usize,
        left: &mut u32,
        issuer: &mut Issuer<'_, C, G>,
        tally: &mut Tally,
    ) -> Met {
        let Some(member) = &mut self.sqs[position] else {
            return Met::End;
        };
        let (queue, slots, free) = self.slots.split();
        let saved = &mut queue.sqs[position];
        let (sqid, ticks) = (member.sq.id(), self.ticks);
        let mut first = true;
        while *left > 0 && issuer.copied < COPIED_PER_TURN {
            let Some(&index) = free.last() else {
                return Met::End;
            };
            let slot = &mut slots[usize::from(index)];
            let Ok((words, number)) = member.sq.fetch() else {
                return Met::RingLost(QueueName::Submission(sqid));
            };
            if *left > PREFETCH {
                member.sq.prefetch(PREFETCH - 1);
            }
            *left -= 1;
            slot.hold(words, number, sqid, ticks);
            ordered();
            slot.state = slot_state::FETCHED;
            ordered();
            saved.fetched = member.sq.progress();
            self.cq.reserve();
            self.share.take(position);
            let Some(plain) = command::plain(&words) else {
                free.pop();
                member.outstanding += 1;
                return Met::Other(index);
            };
            let next = Next {
                sq: &member.sq,
                left: *left,
                first,
            };
            first = false;
            match issuer.issue_plain(index, slot, &plain, next) {
                Some(Asked::Done(Status::SUCCESSFUL_COMPLETION)) => {}
                asked => {
                    free.pop();
                    member.outstanding += 1;
                    return match asked {
                        Some(asked) => Met::Asked(index, asked),
                        None => Met::Other(index),
                    };
                }
            }
            if plain.writes {
                tally.writes += 1;
                tally.write_bytes += u64::from(slot.bytes);
            } else {
                tally.reads += 1;
                tally.read_bytes += u64::from(slot.bytes);
            }
            let tail = self.cq.tail();
            slot.posting = tail;
            ordered();
            slot.state = slot_state::POSTING;
            ordered();
            let after = self.cq.tail_and_phase_after();
            let posted = self.cq.post(Cqe {
                sq_head: member.sq.head() as u16,
                sq_id: sqid,
                cid: (words[0] >> 16) as u16,
                ..Cqe::default()
            });
            ordered();
            queue.cq_tail_phase = after;
            ordered();
            self.share.posted(position, tail);
            slot.release();
            if posted == Err(RingAbsent) {
                return Met::RingLost(QueueName::Completion(self.cq.id()));
            }
        }
        Met::End
    }

    /// Counts what a batch came to.
    #[inline]
    fn add_up(&mut self, tally: &Tally) {
        let done = tally.reads + tally.writes;
        if done == 0 {
            return;
        }
        self.posted += done as u32;
        let counters = &self.counters;
        counters.completions.add(done);
        counters.reads.add(tally.reads);
        counters.read_bytes.add(tally.read_bytes);
        counters.writes.add(tally.writes);
        counters.write_bytes.add(tally.write_bytes);
    }
}
