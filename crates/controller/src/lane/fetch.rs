//! A turn of a lane: doorbells, fetching and issuing.

use nvme_spec::Sqe;
use port::Channel;

use super::issue::Issuer;
use super::message::{QueueName, Quota};
use super::outcome::{Asked, Issued, Went};
use super::queues::Queues;
use super::straight::{Met, PREFETCH};
use super::{LaneTurn, admission};
use crate::gate::{FlowId, Gate};
use crate::queue::RingAbsent;
use crate::state::{CommandState, Counted};

/// Commands fetched from one submission queue in one turn. Large enough to share the cost of a
/// turn, small enough that a flooded queue holds up the others for microseconds only.
pub const BATCH: u32 = 32;

/// Further looks, in one turn, of a lane with one submission queue that is alone and expects a
/// single command: as long as a few turns without work take.
const LOOKS: u32 = 16;

impl Queues {
    /// One look at every queue; a bounded batch from each, beginning with another one each turn.
    #[inline]
    pub(super) fn turn<C: Channel, G: Gate>(&mut self, issuer: &mut Issuer<'_, C, G>) -> LaneTurn {
        let mut turn = LaneTurn::default();
        self.kicked = false;
        if self.service.is_still() {
            if self.service.replays() {
                self.replay(issuer, &mut turn);
            }
            return turn;
        }
        self.look_at_cq();
        self.blocked = false;
        if G::HOLDS && self.held.count() > 0 {
            self.let_go(issuer, &mut turn);
        }
        let count = self.order.len();
        self.first = if self.first + 1 >= count {
            0
        } else {
            self.first + 1
        };
        for step in 0..count {
            let at = self.first + step;
            let at = if at >= count { at - count } else { at };
            self.serve(usize::from(self.order[at]), issuer, &mut turn);
        }
        if let Some(steps) = &self.steps
            && steps.wants_turn()
        {
            self.advance_steps(issuer, &mut turn);
        }
        turn
    }

    /// Fetches and issues commands of the submission queue at `position`, up to a batch.
    fn serve<C: Channel, G: Gate>(
        &mut self,
        position: usize,
        issuer: &mut Issuer<'_, C, G>,
        turn: &mut LaneTurn,
    ) {
        let expects_single = self.singles.are_expected();
        if expects_single {
            self.prefetch_entry(position);
        }
        let Some(mut available) = self.look_at_sq(position) else {
            return;
        };
        if available == 0 && expects_single && self.is_alone && self.in_flight == 0 {
            available = self.look_again(position);
        }
        if G::WATCHES {
            self.look_for_watched(position, available);
        }
        let waiting = self.member(position).and_then(|m| m.waiting.take());
        if let Some(index) = waiting {
            let sqe = self.slots.slot(index).sqe();
            let went = self.issue(index, position, &sqe, issuer);
            // the second of two fused commands
            self.count_fetched(available - self.available(position));
            match went {
                Went::On => {}
                Went::Two => available = self.available(position),
                Went::Full => {
                    turn.pending += 1 + available;
                    return;
                }
                Went::NoPlace => return,
                Went::Held => turn.pending += 1,
            }
        }
        if available == 0 || !self.service.fetches() {
            return;
        }
        // With one namespace all commands behind a deferred one wait for the same flow: they stay
        // in the host's ring.
        if G::HOLDS && self.held.count() > 0 && issuer.namespaces.len() == 1 {
            return;
        }
        if issuer.channels.keep_time() {
            issuer.channels.arrive();
        }
        if self.place.is_behind() {
            turn.pending += available;
            return;
        }
        let room = self.room(position);
        if room == 0 {
            self.blocked = true;
            return;
        }
        // The host of a lane inside the process is on this processor.
        if !issuer.is_inside {
            if expects_single {
                self.cq.prefetch();
            }
            self.singles.found(available);
        }
        let quota = self.take_quota(position);
        let count = room.min(available).min(quota);
        let went = if !G::WATCHES {
            self.fetch(position, count, issuer)
        } else {
            self.fetch_some_watched(position, count, issuer)
        };
        let left = self.available(position);
        turn.fetched += available - left;
        self.count_fetched(available - left);
        if self.is_absent(position) {
            self.ring_absent(position);
            return;
        }
        // Another turn can do as much as there is room for, and the commands that wait for their
        // channel.
        let room = room.saturating_sub(available - left);
        turn.pending += match went {
            Went::On | Went::Two => left.min(room),
            Went::Full => left.min(room) + 1,
            Went::Held => 1,
            Went::NoPlace => 0,
        };
        self.blocked |= left > room && went != Went::Full;
    }

    #[inline]
    fn count_fetched(&self, commands: u32) {
        self.counters.fetched.add(commands.into());
    }

    /// Looks at the doorbell of the submission queue at `position`: how many entries are submitted
    /// and not fetched. `None` where nothing may be fetched.
    #[inline]
    pub(super) fn look_at_sq(&mut self, position: usize) -> Option<u32> {
        let bells = self.doorbells.bells();
        let member = self.sqs[position].as_mut()?;
        if member.removing {
            return None;
        }
        if let Err(bad) = member.sq.look(bells) {
            let queue = QueueName::Submission(member.sq.id());
            self.bad_doorbell(queue, bad);
            return None;
        }
        let available = member.sq.available();
        if available > 0 {
            self.slots.queue().sqs[position].tail = member.sq.tail();
        }
        if member.sq.is_bell_unsaved() {
            self.save_sq_bell(position);
        }
        Some(available)
    }

    /// Looks some more times at the doorbell of the lane's only submission queue, which is at
    /// `position` and where a single command is expected: with one look in each turn a command
    /// waits for half a turn on average. With more queues the looks would add up, so none is made.
    #[inline(never)]
    fn look_again(&mut self, position: usize) -> u32 {
        if self.order.len() > 1 {
            return 0;
        }
        for _ in 0..LOOKS {
            std::hint::spin_loop();
            self.prefetch_entry(position);
            match self.look_at_sq(position) {
                Some(0) => {}
                found => return found.unwrap_or(0),
            }
        }
        0
    }

    /// Tells the processor to bring the next entry of the submission queue at `position`.
    #[inline]
    fn prefetch_entry(&self, position: usize) {
        if let Some(member) = &self.sqs[position] {
            member.sq.prefetch(0);
        }
    }

    /// Number of commands of the submission queue at `position` that may be fetched in this turn;
    /// consumes its allotment.
    #[inline]
    fn take_quota(&mut self, position: usize) -> u32 {
        let allotted = self.quota == Quota::Allotted;
        match self.member(position) {
            Some(member) if allotted => std::mem::take(&mut member.quota),
            Some(member) => member.quota,
            None => 0,
        }
    }

    /// Number of commands that the submission queue at `position` may have fetched now.
    #[inline]
    pub(super) fn room(&self, position: usize) -> u32 {
        if self.cq.is_frozen() {
            return 0;
        }
        let places = self.share.allowance(position, self.cq.free());
        places.min(self.slots.free())
    }

    /// Entries submitted to the submission queue at `position` and not fetched.
    #[inline]
    pub(super) fn available(&self, position: usize) -> u32 {
        match &self.sqs[position] {
            Some(member) => member.sq.available(),
            None => 0,
        }
    }

    /// Fetches `count` commands, or up to one that has to wait. Returns the outcome of the last
    /// one.
    // By itself: in its caller the loop would have fewer registers.
    #[inline(never)]
    pub(super) fn fetch<C: Channel, G: Gate>(
        &mut self,
        position: usize,
        count: u32,
        issuer: &mut Issuer<'_, C, G>,
    ) -> Went {
        if let Some(member) = &self.sqs[position] {
            for ahead in 0..PREFETCH.min(count) {
                member.sq.prefetch(ahead);
            }
        }
        let mut left = count;
        loop {
            let went = match self.go_straight(position, &mut left, issuer) {
                Met::End => return Went::On,
                Met::Other(index) => {
                    let sqe = self.slots.get(index).sqe();
                    self.issue(index, position, &sqe, issuer)
                }
                Met::Asked(index, asked) => self.asked(index, position, asked),
                Met::RingAbsent => Went::NoPlace,
                Met::RingLost(queue) => {
                    self.ring_lost(queue);
                    Went::NoPlace
                }
            };
            match went {
                // Its completion may have found the ring gone.
                _ if !self.service.is_serving() => return Went::NoPlace,
                Went::On => {}
                Went::Held if issuer.namespaces.len() > 1 => {}
                Went::Two => left = left.min(self.available(position)).min(self.room(position)),
                wait => return wait,
            }
        }
    }

    /// Copies the next entry into a slot: the slot and the command. The order of the stores is that
    /// of [`crate::state`].
    pub(super) fn fetch_one(&mut self, position: usize) -> Option<(u16, Sqe)> {
        let member = self.sqs[position].as_mut()?;
        let index = self.slots.next_free()?;
        let entry = self.cq.reserve()?;
        let (queue, slot) = self.slots.parts(index);
        let saved = &mut queue.sqs[position];
        let words = match member.sq.fetch_into(slot, saved, self.ticks) {
            Ok(words) => words,
            Err(RingAbsent) => {
                self.cq.release(entry);
                return None;
            }
        };
        member.outstanding += 1;
        slot.park(entry);
        self.slots.take();
        self.share.take(position);
        Some((index, Sqe::from_words(words)))
    }

    /// Issues the command in a slot, for the first time or again.
    pub(super) fn issue<C: Channel, G: Gate>(
        &mut self,
        index: u16,
        position: usize,
        sqe: &Sqe,
        issuer: &mut Issuer<'_, C, G>,
    ) -> Went {
        // A command that was issued in part is not deferred half-way.
        let flow = if G::HOLDS && self.slots.get(index).outstanding == 0 {
            match issuer.may_pass(sqe.nsid) {
                Ok(flow) => flow,
                Err(flow) => {
                    issuer.gate.held(flow);
                    return self.hold(index, position, flow);
                }
            }
        } else {
            None
        };
        self.issue_passed(index, position, sqe, issuer, flow)
    }

    /// The same for a command that its gate has admitted.
    pub(super) fn issue_passed<C: Channel, G: Gate>(
        &mut self,
        index: u16,
        position: usize,
        sqe: &Sqe,
        issuer: &mut Issuer<'_, C, G>,
        flow: Option<FlowId>,
    ) -> Went {
        if G::WATCHES && self.slots.get(index).marks.is_any() {
            self.note_passed(index, issuer);
        }
        let slot = self.slots.slot(index);
        let asked = match issuer.issue(index, slot, sqe) {
            // A part of it is with a medium since an earlier try: its namespace is gone meanwhile,
            // say.
            Issued::Ended(status) if slot.outstanding > 0 => {
                slot.note(status);
                Asked::Pending
            }
            Issued::Ended(status) => Asked::Done(status),
            Issued::Pending => Asked::Pending,
            Issued::Full => Asked::Full,
            Issued::Forwarded => {
                slot.set_state(CommandState::IN_FLIGHT);
                self.count_forwarded(index);
                return Went::On;
            }
            Issued::InSteps => {
                self.begin_steps(index);
                return Went::On;
            }
            Issued::Fused => return self.issue_fused(index, position, sqe, issuer, flow),
        };
        let bytes = slot.bytes;
        admission::report(&mut issuer.gate, flow, slot, bytes, &asked);
        if G::WATCHES && issuer.clock.is_some() {
            self.note_handed(index, issuer);
        }
        self.asked(index, position, asked)
    }

    /// The command in a slot was handed to a medium.
    #[inline]
    fn asked(&mut self, index: u16, position: usize, asked: Asked) -> Went {
        match asked {
            Asked::Done(status) => {
                self.finish(index, status);
                Went::On
            }
            Asked::Pending => {
                self.slots.slot(index).set_state(CommandState::IN_FLIGHT);
                self.count_issued(index);
                Went::On
            }
            Asked::Full => {
                if self.slots.get(index).outstanding > 0 {
                    self.count_issued(index);
                }
                if let Some(member) = self.member(position) {
                    member.waiting = Some(index);
                }
                Went::Full
            }
        }
    }

    /// Tickets of the slot are out.
    #[inline]
    pub(super) fn count_issued(&mut self, index: u16) {
        let slot = self.slots.slot(index);
        if !slot.counted.in_flight() {
            slot.epoch = self.epochs.current().epoch;
            slot.counted = const { Counted::new() }
                .with_in_flight(true)
                .with_group(self.epochs.add());
            self.in_flight += 1;
        }
    }

    /// The subsystem has the command of a slot.
    pub(super) fn count_forwarded(&mut self, index: u16) {
        let slot = self.slots.slot(index);
        slot.counted = Counted::new().with_in_flight(true).with_in_subsystem(true);
        self.in_flight += 1;
    }

    /// No ticket of the slot is out any more.
    #[inline]
    pub(super) fn uncount(&mut self, index: u16) {
        let slot = self.slots.slot(index);
        let counted = std::mem::take(&mut slot.counted);
        if !counted.in_flight() {
            return;
        }
        if !counted.in_subsystem() {
            self.epochs.remove(counted.group());
        }
        self.in_flight -= 1;
    }
}
