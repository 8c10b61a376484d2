//! A lane's queues and the commands it holds; all of a lane except the state that issuing reads.

use std::sync::Arc;

use arrayvec::ArrayVec;
use memory::{DmaView, ShadowDoorbells};

use super::doorbells::Doorbells;
use super::epochs::Epochs;
use super::held::Held;
use super::member::Member;
use super::message::{LaneEvent, LaneFault, QueueName, Quota, Registration};
use super::place::Place;
use super::replays::Replays;
use super::reports::Reports;
use super::service::Service;
use super::share::Share;
use super::singles::Singles;
use super::slots::Slots;
use super::steps::Steps;
use super::unannounced::Unannounced;
use super::watch::Watch;
use crate::counters::LaneCounters;
use crate::queue::{BadDoorbell, Cq};
use crate::state::{MAX_SQS, ordered};

#[derive(Debug)]
pub(super) struct Queues {
    pub(super) cq: Cq,
    /// Submission queue `n + 1` at `n`.
    pub(super) sqs: Box<[Option<Member>]>,
    /// Positions in `sqs` that are taken, in the order they came.
    pub(super) order: ArrayVec<u8, MAX_SQS>,
    /// Index in `order` at which the next turn begins.
    pub(super) first: usize,
    pub(super) slots: Slots,
    pub(super) share: Share,
    pub(super) epochs: Epochs,
    pub(super) doorbells: Doorbells,
    pub(super) service: Service,
    /// Commands in a medium; without aborted ones.
    pub(super) in_flight: u32,
    /// An entry could not be fetched for want of a place in the completion queue, or of a slot.
    pub(super) blocked: bool,
    pub(super) kicked: bool,
    pub(super) singles: Singles,
    /// Nothing else is hot where it has its turns.
    pub(super) is_alone: bool,
    /// When the turn began, in the ticks of [`crate::inspect`].
    pub(super) ticks: u32,
    pub(super) unannounced: Unannounced,
    /// Finished commands with marks of uncorrectable blocks that the subsystem must clear. Taken at
    /// once.
    pub(super) clears: Vec<u16>,
    pub(super) reports: Reports,
    pub(super) counters: Arc<LaneCounters>,
    pub(super) quota: Quota,
    /// Turns for which a host that polls is not interrupted.
    pub(super) patience: u8,
    pub(super) place: Place,
    /// Made with the first command that takes several steps.
    pub(super) steps: Option<Box<Steps>>,
    /// Commands that wait for their flow's turn.
    pub(super) held: Held,
    /// Commands of a process that died.
    pub(super) replays: Replays,
    /// The commands that are watched, where some are.
    pub(super) watch: Option<Box<Watch>>,
}

impl Queues {
    /// The submission queue at a position. A slot that holds a command keeps its queue there.
    #[inline]
    pub(super) fn member(&mut self, position: usize) -> Option<&mut Member> {
        self.sqs.get_mut(position)?.as_mut()
    }

    /// Takes the completion queue's new head.
    #[inline]
    pub(super) fn look_at_cq(&mut self) {
        let head = self.cq.head();
        match self.cq.look(self.doorbells.bells()) {
            Ok(0) => {}
            Ok(consumed) => {
                self.share.consumed(head, consumed);
                self.slots.queue().cq_head = self.cq.head();
            }
            Err(bad) => self.bad_doorbell(QueueName::Completion(self.cq.id()), bad),
        }
        if self.cq.is_bell_unsaved() {
            self.save_cq_bell();
        }
    }

    /// Saves what is known of the completion queue's doorbell.
    #[cold]
    fn save_cq_bell(&mut self) {
        let saved = self.slots.queue();
        (saved.shadow, saved.bell) = self.cq.saved_bell();
    }

    /// Saves what is known of a submission queue's doorbell.
    #[cold]
    pub(super) fn save_sq_bell(&mut self, position: usize) {
        if let Some(member) = &mut self.sqs[position] {
            let saved = &mut self.slots.queue().sqs[position];
            (saved.shadow, saved.bell) = member.sq.saved_bell();
        }
    }

    #[cold]
    pub(super) fn bad_doorbell(&mut self, queue: QueueName, bad: BadDoorbell) {
        let value = bad.value;
        tracing::debug!(?queue, value, "invalid doorbell value: queue frozen");
        let fault = LaneFault::InvalidDoorbell { queue, value };
        self.reports.add(LaneEvent::Fault(fault));
    }

    /// Whether the last fetch from the submission queue at a position found no memory.
    #[inline]
    pub(super) fn is_absent(&self, position: usize) -> bool {
        let member = self.sqs[position].as_ref();
        member.is_some_and(|member| member.sq.is_absent())
    }

    /// The submission queue at a position has a doorbell that was rung, and no memory. Its host may
    /// be about to delete it, or to map the memory again; the other queues go on. Told once for
    /// each change of the map.
    #[cold]
    pub(super) fn ring_absent(&mut self, position: usize) {
        if let Some(member) = self.member(position) {
            member.sq.forget_tail();
            let queue = QueueName::Submission(member.sq.id());
            let fault = LaneFault::RingAbsent { queue };
            self.reports.add(LaneEvent::Fault(fault));
        }
    }

    /// A ring was used while its page was not mapped: nothing more is fetched or posted. Told once.
    #[cold]
    pub(super) fn ring_lost(&mut self, queue: QueueName) {
        if self.service.is_serving() {
            tracing::debug!(
                ?queue,
                "a queue was used while one of its pages was not mapped"
            );
            self.service.lose();
            let fault = LaneFault::RingLost { queue };
            self.reports.add(LaneEvent::Fault(fault));
        }
    }

    /// A queue came or went.
    pub(super) fn recount(&mut self) {
        let posted = self.cq.posted();
        let fetched = self.slots.placed().map(|sqid| usize::from(sqid) - 1);
        self.share
            .recount(&self.order, fetched, self.cq.head(), posted);
    }

    /// Whether the host has yet to acknowledge entries of a completion queue with interrupts
    /// enabled. A queue that is frozen or stopped asks for nothing: its host could never
    /// acknowledge them.
    #[inline]
    pub(super) fn is_unacknowledged(&self) -> bool {
        let enabled = self.service.is_serving() && self.unannounced.vector().is_some();
        enabled && self.cq.is_unacknowledged(self.doorbells.bells())
    }

    /// The same, for the pin: if the host registered doorbell buffers, it is asked to ring when it
    /// acknowledges the next entry, whether or not that is posted yet. A monitor takes the write as
    /// the end of the interrupt, and without it would assert its line forever.
    ///
    /// The race: the host stores its head and then loads EventIdx; we store EventIdx and then load
    /// the head, with a full fence between on both sides. So either we see that entries were
    /// acknowledged, and look again, or the host rings.
    pub(super) fn asserts_pin(&mut self) -> bool {
        if !self.service.is_serving() || self.unannounced.vector().is_none() {
            return false;
        }
        if self.service.is_still() {
            // EventIdx is the host's memory, and so may be the head.
            return self.cq.posted() > 0 && !self.cq.is_frozen();
        }
        // The host can move its head once for each entry that is posted, and no other is meanwhile.
        loop {
            self.look_at_cq();
            let bells = self.doorbells.bells();
            self.cq.arm(bells);
            memory::full_fence();
            if !self.cq.has_news(bells) {
                return self.cq.posted() > 0 && !self.cq.is_frozen();
            }
        }
    }

    /// The host's memory map changed.
    pub(super) fn resolve(&mut self, view: &Arc<DmaView>) {
        self.cq.resolve(view);
        for member in self.sqs.iter_mut().flatten() {
            member.sq.resolve(view);
        }
        self.doorbells.resolve(view);
        self.epochs.advance(view.epoch());
        self.reports.expect_map();
    }

    /// The registration of the shadow ended.
    pub(super) fn forget_shadow(&mut self) {
        self.doorbells.set_shadow(None);
        self.tell_doorbells(|_| None);
    }

    /// The host has registered doorbell buffers.
    pub(super) fn register(&mut self, shadow: ShadowDoorbells, registration: &Registration) {
        self.doorbells.set_shadow(Some(shadow));
        self.tell_doorbells(|slot| registration.initial(slot));
        ordered();
        self.slots.queue().registration = registration.count();
    }

    /// Informs every queue that the registration of the shadow began or ended, and of its contents.
    fn tell_doorbells(&mut self, initial: impl Fn(usize) -> Option<u32>) {
        self.cq.register(&initial);
        for member in self.sqs.iter_mut().flatten() {
            member.sq.register(&initial);
        }
        self.save_cq_bell();
        (0..self.sqs.len()).for_each(|position| self.save_sq_bell(position));
    }
}
