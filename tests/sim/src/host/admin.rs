//! Admin commands: some one after the other, others beside them.

use std::collections::VecDeque;

use super::queue::{self, Completion, excuse};
use super::ram::{PAGE, RINGS_IOVA};
use super::{Host, Phase};
use crate::around::{Around, Failure};

/// An admin command. Queues by their index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Doorbell Buffer Config.
    Doorbells,
    /// Set Features, Interrupt Coalescing.
    Coalescing(u16),
    /// Set Features, Host Identifier, of 64 bits.
    Identifier,
    /// Set Features, Host Behavior Support: Copy Descriptor Format 2h.
    Behavior,
    CreateCq(usize),
    CreateSq(usize),
    DeleteSq(usize),
    DeleteCq(usize),
    Abort(usize, u16),
    Identify,
}

#[derive(Clone, Copy, Debug)]
struct Out {
    cid: u16,
    op: Op,
    since: u64,
}

/// Commands to be sent, and those that are out.
#[derive(Debug, Default)]
pub(super) struct Admin {
    next: VecDeque<Op>,
    out: Vec<Out>,
    cid: u16,
}

impl Op {
    /// Whether it goes beside others. A command that creates or deletes waits for earlier ones.
    fn is_beside(self) -> bool {
        matches!(self, Op::Abort(..) | Op::Identify)
    }
}

impl Admin {
    pub(super) fn push(&mut self, op: Op) {
        self.next.push_back(op);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.next.is_empty() && self.out.is_empty()
    }

    /// Whether an Abort is to be sent, or out.
    pub(super) fn aborts(&self) -> bool {
        let mut next = self.next.iter().chain(self.out.iter().map(|out| &out.op));
        next.any(|op| matches!(op, Op::Abort(..)))
    }

    pub(super) fn late(&self, now: u64, bound_ns: u64) -> Option<Op> {
        let mut out = self.out.iter();
        let late = out.find(|out| now.saturating_sub(out.since) > bound_ns);
        late.map(|out| out.op)
    }

    fn may_send(&self) -> Option<Op> {
        let op = *self.next.front()?;
        let alone = self.out.iter().all(|out| out.op.is_beside());
        (self.out.len() < 8 && (op.is_beside() || alone)).then_some(op)
    }
}

impl Host {
    /// Sends what may be sent.
    pub(super) fn send_admin(&mut self, around: &mut Around<'_>) {
        let mut sent = false;
        while let Some(op) = self.admin.may_send() {
            self.admin.next.pop_front();
            self.admin.cid = self.admin.cid.wrapping_add(1);
            let cid = self.admin.cid;
            around.trace(self.id, || format!("admin {cid}: {op:?}"));
            let words = self.admin_words(op, cid, around);
            self.admin_sq.put(&self.ram, words);
            self.admin.out.push(Out {
                cid,
                op,
                since: around.now,
            });
            sent = true;
        }
        if sent {
            self.ring_tail(None, around);
        }
    }

    /// The entry (Base 2.1, 5.1 to 5.2; a queue's identifier is its index and one).
    fn admin_words(&mut self, op: Op, cid: u16, around: &mut Around<'_>) -> [u64; 8] {
        let id = |index: usize| index as u64 + 1;
        let size = |entries: u32| u64::from(entries - 1) << 16;
        let page = |page: usize| RINGS_IOVA + (page * PAGE) as u64;
        let mut words = [0; 8];
        let (opcode, prp1, prp2, cdw10, cdw11) = match op {
            Op::DeleteSq(sq) => (0x00, 0, 0, id(sq), 0),
            Op::CreateSq(index) => {
                let sq = &self.sqs[index];
                let cdw10 = size(sq.entries) | id(index);
                (0x01, sq.place.iova(), 0, cdw10, id(sq.cq) << 16 | 1)
            }
            Op::DeleteCq(cq) => (0x04, 0, 0, id(cq), 0),
            Op::CreateCq(index) => {
                let cq = &self.cqs[index];
                let cdw10 = size(cq.entries) | id(index);
                let cdw11 = id(index) << 16 | u64::from(cq.interrupts) << 1 | 1;
                (0x05, cq.place.iova(), 0, cdw10, cdw11)
            }
            Op::Identify => (0x06, page(queue::IDENTIFY_PAGE), 0, 1, 0),
            Op::Abort(sq, cid) => {
                around.tally.aborts += 1;
                (0x08, 0, 0, u64::from(cid) << 16 | id(sq), 0)
            }
            Op::Identifier => {
                let at = queue::BEHAVIOR_PAGE * PAGE;
                self.ram.fill_ring_page(queue::BEHAVIOR_PAGE, false);
                self.ram.put_ring(at, &self.identifier().to_le_bytes());
                (0x09, page(queue::BEHAVIOR_PAGE), 0, 0x81, 0)
            }
            Op::Behavior => {
                let at = queue::BEHAVIOR_PAGE * PAGE;
                self.ram.fill_ring_page(queue::BEHAVIOR_PAGE, false);
                // Copy Descriptor Formats Enable: format 2h.
                self.ram.put_ring(at + 4, &(1_u16 << 2).to_le_bytes());
                (0x09, page(queue::BEHAVIOR_PAGE), 0, 0x16, 0)
            }
            Op::Coalescing(value) => (0x09, 0, 0, 0x08, u64::from(value)),
            Op::Doorbells => {
                let pages = [queue::SHADOW_PAGE, queue::EVENT_IDX_PAGE];
                for page in pages {
                    self.ram.fill_ring_page(page, false);
                }
                (0x7c, page(pages[0]), page(pages[1]), 0, 0)
            }
        };
        words[0] = opcode | u64::from(cid) << 16;
        words[3] = prp1;
        words[4] = prp2;
        words[5] = cdw10 | cdw11 << 32;
        words
    }

    /// A completion of the admin queue.
    pub(super) fn admin_done(
        &mut self,
        completion: Completion,
        around: &mut Around<'_>,
    ) -> Result<(), Failure> {
        let mut out = self.admin.out.iter();
        let Some(at) = out.position(|out| out.cid == completion.cid) else {
            return self.fail(
                around,
                format!("nobody sent this admin command: {completion:?}"),
            );
        };
        if completion.sqid != 0 || !self.admin_sq.fetched(completion.sq_head) {
            return self.fail(around, format!("not of the admin queue: {completion:?}"));
        }
        let op = self.admin.out.swap_remove(at).op;
        around.tally.admin += 1;
        around.trace(self.id, || format!("admin {}: done", completion.cid));
        if completion.status != 0 && self.phase == Phase::ShuttingDown {
            return Ok(());
        }
        if completion.status != 0 {
            return self.fail(around, format!("{op:?} ended with {completion:?}"));
        }
        match op {
            Op::Doorbells => self.shadowed = true,
            Op::Behavior => self.copies_across = true,
            Op::CreateSq(sq) => {
                let sq = &mut self.sqs[sq];
                sq.open = true;
                sq.depth = self.random.spread(1, 64) as usize;
            }
            Op::DeleteSq(sq) => {
                around.tally.deletions += 1;
                // All completions of the queue have been posted by now.
                self.look_at_queue(self.sqs[sq].cq, usize::MAX, around)?;
                self.drop_queue(sq, around);
                return self.renew_sq(sq, around);
            }
            Op::DeleteCq(cq) => return self.renew_cq(cq, around),
            Op::CreateCq(_) | Op::Coalescing(_) | Op::Identifier | Op::Abort(..) | Op::Identify => {
            }
        }
        Ok(())
    }

    /// A queue that comes to be begins at 0, in the doorbell buffers, too.
    fn clear_doorbell(&self, slot: usize) {
        for page in [queue::SHADOW_PAGE, queue::EVENT_IDX_PAGE] {
            self.ram.put_ring(page * PAGE + 4 * slot, &[0; 4]);
        }
    }

    /// A completion queue that does not exist gets another ring and another size.
    pub(super) fn renew_cq(&mut self, cq: usize, around: &Around<'_>) -> Result<(), Failure> {
        // Often so small that it is full now and then, which holds up its submission queues.
        let most = self.random.pick(&[8, queue::CQ_ENTRIES.into()]);
        let entries = self.random.spread(2, most) as u32;
        let interrupts = !self.random.once_in(3);
        let queue = &mut self.cqs[cq];
        queue.interrupts = interrupts;
        self.clear_doorbell(2 * (cq + 1) + 1);
        let queue = &mut self.cqs[cq];
        if queue.renew(&self.ram, entries) {
            Ok(())
        } else {
            self.fail(
                around,
                format!("completion queue {}: written to after its end", cq + 1),
            )
        }
    }

    /// The same for a submission queue.
    pub(super) fn renew_sq(&mut self, sq: usize, around: &Around<'_>) -> Result<(), Failure> {
        let entries = self.random.spread(2, queue::SQ_ENTRIES.into()) as u32;
        self.clear_doorbell(2 * (sq + 1));
        if self.sqs[sq].renew(&self.ram, entries) {
            Ok(())
        } else {
            self.fail(around, format!("submission queue {}: written to", sq + 1))
        }
    }

    /// Deletes queues and creates them again: one, or a completion queue with all of its submission
    /// queues.
    pub(super) fn delete_queues(&mut self, around: &Around<'_>) {
        debug_assert_eq!(self.phase, Phase::Running);
        let cq = self.random.index(self.cqs.len());
        let whole = self.random.once_in(3);
        let of_it = |sq: &usize| self.sqs[*sq].cq == cq;
        let mut sqs: Vec<usize> = (0..self.sqs.len()).filter(of_it).collect();
        if !whole {
            sqs = vec![self.random.index(self.sqs.len())];
        }
        around.trace(self.id, || format!("deletes {sqs:?}, of a whole: {whole}"));
        for &sq in &sqs {
            self.sqs[sq].open = false;
            self.admin.push(Op::DeleteSq(sq));
        }
        if whole {
            self.admin.push(Op::DeleteCq(cq));
            self.admin.push(Op::CreateCq(cq));
        }
        for &sq in &sqs {
            self.admin.push(Op::CreateSq(sq));
        }
        self.excuse(excuse::DELETE, |at, _| sqs.contains(&at));
    }
}
