//! Delivery of mail from other engines, and work of an engine for lanes that are not its own.

use controller::Controller;
use controller::lane::{Lane, LaneCommand, Posted};
use port::Channel;
use port::ticket::OwnerKey;
use port::time::Time;

use crate::Engine;
use crate::lanes::{Lanes, Manner, Moved, VisitorPost, Whose};
use crate::mail::{About, Mail, MoveError};
use crate::members::Places;
use crate::slot::{ControllerSlot, EngineId};
use crate::turn::Interrupts;

impl<C: Channel> Engine<C> {
    /// The next message to carry, and to whom. In this order for each of them.
    pub fn take_mail(&mut self) -> Option<(EngineId, Mail)> {
        self.lanes.outbox.pop_front()
    }

    /// Whether there is mail to carry.
    #[inline]
    #[must_use]
    pub fn has_mail(&self) -> bool {
        !self.lanes.outbox.is_empty()
    }

    /// Whether some visiting lane has doorbells that hosts store without waking the reactor.
    #[must_use]
    pub fn has_silent_guests(&self) -> bool {
        let mut guests = self.lanes.guests.iter();
        guests.any(
            |index| matches!(self.lanes.slots[*index].whose, Whose::Guest(guest) if guest.silent),
        )
    }

    /// Whether there may be mail to exchange or a move to end: some lane of this engine lives on
    /// another or moves there, or another engine's lane visits.
    #[inline]
    #[must_use]
    pub fn expects_mail(&self) -> bool {
        self.lanes.abroad || self.has_mail() || !self.lanes.moved.is_empty()
    }

    /// A message has come from another engine.
    pub fn deliver(&mut self, from: EngineId, mail: Mail) {
        let Mail { key, about } = mail;
        match about {
            About::Arrival(arrival) => self.lanes.arrive(from, key, *arrival),
            About::Event(event) => {
                self.lanes.hear(key, event);
                self.heat_owner(key);
            }
            About::Forward(forward) => {
                self.lanes.hear_forward(key, forward);
                self.heat_owner(key);
            }
            About::Posted(posted) => {
                if let Some(controller) = self.owner(key) {
                    self.lanes.abroad = true;
                    self.posted.push(VisitorPost { controller, posted });
                }
            }
            About::Empty { pauses } => self.ask_back(from, key, pauses),
            About::Back(lane) => self.lanes.welcome(key, *lane),
            about => self.deliver_to_guest(from, key, about),
        }
    }

    fn deliver_to_guest(&mut self, from: EngineId, key: OwnerKey, about: About) {
        let lanes = &mut self.lanes;
        let Some(index) = lanes.guest(from, key) else {
            // The lane has returned home, and the message crossed it on the way.
            if let About::Answer { ticket, .. } = about {
                ticket.retire();
            }
            return;
        };
        let own = lanes.key_of(index);
        if let About::Plain(plain) = about {
            if let Some(guest) = lanes.guest_mut(index) {
                guest.plain = plain;
            }
            return;
        }
        if matches!(about, About::HandBack) {
            return lanes.hand_back(index);
        }
        if let About::Command { command, .. } = &about
            && matches!(command, LaneCommand::Pause)
            && let Some(guest) = lanes.guest_mut(index)
        {
            guest.pauses += 1;
            guest.empty = false;
        }
        let Some(lane) = lanes.warm(own) else {
            return;
        };
        match about {
            About::Command {
                command,
                mail_count,
            } => {
                lane.command(command);
                lane.has_taken(mail_count);
            }
            About::Kick => lane.kick(),
            About::Answer { ticket, result } => {
                lane.answer(ticket, result.as_deref().map_err(|status| *status));
            }
            _ => (),
        }
    }

    /// A lane of ours is empty, where it is: if it is still to move, it is asked for.
    fn ask_back(&mut self, from: EngineId, key: OwnerKey, pauses: u32) {
        let Some(slot) = self.lanes.slot_mut(key) else {
            return;
        };
        let travels = slot.journey.is_some();
        if let Some(away) = &mut slot.away
            && (away.engine, away.pauses) == (from, pauses)
            && away.kept.is_none()
            && travels
        {
            away.kept = Some(Vec::new());
            self.lanes.send(from, key, About::HandBack);
        }
    }

    /// The controller of a lane of ours.
    fn owner(&mut self, key: OwnerKey) -> Option<usize> {
        match self.lanes.slot_mut(key)?.whose {
            Whose::Controller(controller) => Some(controller),
            Whose::Guest(_) => None,
        }
    }

    fn heat_owner(&mut self, key: OwnerKey) {
        if let Some(controller) = self.owner(key) {
            self.members.heat(controller);
            self.turns_to_look = 0;
        }
    }

    /// Placement of new lanes of a controller: the lane of completion queue 1 goes to the first of
    /// these engines, the next one to the next, and so on in turn; all stay on this engine if the
    /// list is empty.
    pub fn spread(&mut self, slot: ControllerSlot, over: Vec<EngineId>) {
        self.members.set_spread(slot, over);
    }

    /// The engines of [`Self::spread`].
    #[must_use]
    pub fn spread_of(&self, slot: ControllerSlot) -> Vec<EngineId> {
        self.members.spread_of(slot)
    }

    /// Moves one lane of a controller, named by its completion queue. How it ends comes from
    /// [`Engine::take_moved`], unless the lane is there already.
    ///
    /// # Errors
    /// It cannot move, or not now.
    pub fn move_lane(
        &mut self,
        slot: ControllerSlot,
        cqid: u16,
        to: EngineId,
        now: Time,
    ) -> Result<bool, MoveError> {
        let places = self.lanes.places_of(slot.0);
        let index = places.iter().find(|(_, id)| *id == cqid);
        let Some(&(index, _)) = index else {
            return Err(MoveError::NoQueue(cqid));
        };
        let key = self.lanes.key_of(index);
        let may = |controller: &mut Controller| controller.may_visit(key);
        if to != self.lanes.engine && !self.members.get_mut(slot.0).is_some_and(may) {
            return Err(MoveError::MustStay(cqid));
        }
        self.lanes.set_out(index, to, now, true)
    }

    /// A move that has ended.
    pub fn take_moved(&mut self) -> Option<Moved> {
        self.lanes.moved.pop()
    }

    /// The completion queues of a controller with the engine that each lives on.
    pub fn residences(&self, slot: ControllerSlot) -> Vec<(u16, EngineId)> {
        let places = self.lanes.places_of(slot.0).into_iter();
        let mut all: Vec<_> = places
            .map(|(index, cqid)| (cqid, self.lanes.residence(index)))
            .collect();
        all.sort_unstable();
        all
    }

    /// Whether lanes of this engine live on another.
    #[inline]
    #[must_use]
    pub fn has_lanes_away(&self) -> bool {
        self.lanes.away > 0
    }

    /// The lanes of a controller that live on other engines, by their completion queues. One that
    /// is on its way home is none.
    #[must_use]
    pub fn lanes_away(&self, slot: ControllerSlot) -> Vec<(u16, EngineId)> {
        let slots = self.lanes.slots.iter();
        let away = slots.filter_map(|it| {
            let away = it.away.as_ref()?;
            let is_its = it.whose == Whose::Controller(slot.0) && away.kept.is_none();
            is_its.then_some((away.cqid, away.engine))
        });
        away.collect()
    }

    /// The key of a lane that visits this engine, by its controller and its completion queue.
    pub fn find_guest(
        &self,
        home: EngineId,
        controller: ControllerSlot,
        cqid: u16,
    ) -> Option<OwnerKey> {
        let is_it = |index: &&usize| match self.lanes.slots[**index].whose {
            Whose::Guest(guest) => {
                (guest.home, guest.controller) == (home, controller.0)
                    && self.lanes.cqid_at(**index) == Some(cqid)
            }
            Whose::Controller(_) => false,
        };
        let index = self.lanes.guests.iter().find(is_it)?;
        Some(self.lanes.key_of(*index))
    }

    /// Whether a lane that visited this engine has left since the last call.
    #[inline]
    pub fn take_guest_left(&mut self) -> bool {
        std::mem::take(&mut self.lanes.guest_left)
    }

    /// Whether the lane of that key visits this engine still.
    #[inline]
    #[must_use]
    pub fn has_guest(&mut self, key: OwnerKey) -> bool {
        self.lanes.get_mut(key).is_some()
    }

    /// A lane that visits this engine, for its host, which is served here. It gets a turn.
    #[inline]
    pub fn guest_mut(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        self.lanes.warm(key)
    }

    /// The engines other than this one that lanes of a controller live on.
    pub fn hosts_of(&self, slot: ControllerSlot) -> Vec<EngineId> {
        let mut all: Vec<_> = self.residences(slot).iter().map(|(_, id)| *id).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|id| *id != self.lanes.engine);
        all
    }

    /// Reports the unacknowledged entries of that controller's visitors to its home again.
    pub fn post_again(&mut self, home: EngineId, controller: ControllerSlot) {
        for at in 0..self.lanes.guests.len() {
            let index = self.lanes.guests[at];
            let slot = &self.lanes.slots[index];
            if let (Whose::Guest(guest), Some(lane)) = (slot.whose, &slot.lane)
                && (guest.home, guest.controller) == (home, controller.0)
                && lane.is_unacknowledged()
                && let Some(vector) = lane.vector()
            {
                let posted = Posted {
                    vector,
                    entries: 1,
                    failed: false,
                };
                self.lanes.post(guest, posted);
            }
        }
    }

    /// Work of a turn, after that of the lanes, for lanes that do not live with their controllers.
    /// Returns whether there was any.
    #[cold]
    pub(crate) fn look_abroad(&mut self, now: Time, raise: &mut impl Interrupts) -> bool {
        let posted = !self.posted.is_empty();
        if posted {
            self.raise_for_visitors(now, raise);
        }
        self.hear_guests(raise);
        self.travel(now);
        self.lanes.note_abroad();
        posted
    }

    /// Raises interrupts for completions that visitors of other engines have posted.
    fn raise_for_visitors(&mut self, now: Time, raise: &mut impl Interrupts) {
        for VisitorPost { controller, posted } in std::mem::take(&mut self.posted) {
            let slot = ControllerSlot(controller);
            let Some(controller) = self.members.get_mut(slot.0) else {
                continue;
            };
            match controller.interrupt_for_visitor(posted, now) {
                Some(interrupt) => raise.raise(slot, interrupt),
                None => self.note_due(slot),
            }
        }
    }

    /// After the turns of the lanes: collects completions and reports of visitors.
    fn hear_guests(&mut self, raise: &mut impl Interrupts) {
        // From the last one on, as some end meanwhile.
        for at in (0..self.lanes.hot_count()).rev() {
            let index = self.lanes.hot_at(at);
            let slot = &mut self.lanes.slots[index];
            let (Whose::Guest(guest), Some(lane)) = (slot.whose, &mut slot.lane) else {
                continue;
            };
            let posted = lane.take_posted();
            if let Some(posted) = posted.filter(|posted| !guest.plain || !lane.host_polls(*posted))
            {
                let raised = guest.plain
                    && raise.raise_for(guest.home, ControllerSlot(guest.controller), posted.vector);
                if raised {
                    lane.counters().interrupts.add(1);
                } else {
                    self.lanes.post(guest, posted);
                }
            }
            self.lanes.tell_home(index);
        }
    }

    /// Looks at the doorbells of a guest, which may be stored without a message.
    pub(crate) fn look_at_bells_of_guest(&mut self, at: usize) {
        let Some(&index) = self.lanes.guests.get(at) else {
            return;
        };
        let slot = &self.lanes.slots[index];
        if !slot.hot && matches!(&slot.lane, Some(lane) if lane.is_rung()) {
            self.lanes.heat(index);
        }
    }

    /// Moves on every lane that is to move.
    fn travel(&mut self, now: Time) {
        let Engine { lanes, members, .. } = self;
        let manner = |slot: usize| members.get_mut(slot).and_then(|its| manner_of(its));
        lanes.travel(now, manner);
    }
}

/// A controller's settings for a lane that leaves; `None` while it has messages for its lanes.
fn manner_of(controller: &Controller) -> Option<Manner> {
    controller.has_told_everything().then(|| Manner {
        silent: controller.has_silent_doorbells(),
        plain: controller.interrupts_plainly(),
    })
}

impl Lanes {
    /// After a turn of a controller: sends its new lanes to their places, calls home those that
    /// must be there, and informs the others of their interrupt mechanism.
    #[inline]
    pub(crate) fn place_lanes(
        &mut self,
        slot: usize,
        controller: &Controller,
        places: &mut Places,
        now: Time,
    ) {
        if !self.abroad {
            return;
        }
        let way = (controller.interrupts_plainly(), controller.lanes_may_part());
        if places.settled != Some(way) || !self.fresh.is_empty() {
            let all = self.place_lanes_of(slot, controller, &places.spread, now);
            places.settled = all.then_some(way);
        }
    }

    /// Returns whether all of it was done; some may have to wait for a move to end.
    #[cold]
    fn place_lanes_of(
        &mut self,
        slot: usize,
        controller: &Controller,
        spread: &[EngineId],
        now: Time,
    ) -> bool {
        let mut all = true;
        for (index, cqid) in self.places_of(slot) {
            let key = self.key_of(index);
            let may = controller.may_visit(key);
            if self.fresh.contains(&index) {
                let at = usize::from(cqid.saturating_sub(1)) % spread.len().max(1);
                let to = *spread.get(at).filter(|_| may).unwrap_or(&self.engine);
                all &= self.set_out(index, to, now, false).is_ok();
                self.fresh.retain(|fresh| *fresh != index);
            } else if !may && self.residence(index) != self.engine {
                // One that is on its way somewhere is asked for when it is there.
                all &= self.set_out(index, self.engine, now, false).is_ok();
            }
            self.tell_plain(index, key, controller.interrupts_plainly());
        }
        all
    }

    fn tell_plain(&mut self, index: usize, key: OwnerKey, plain: bool) {
        if let Some(away) = &mut self.slots[index].away
            && away.kept.is_none()
            && std::mem::replace(&mut away.plain, plain) != plain
        {
            let to = away.engine;
            self.send(to, key, About::Plain(plain));
        }
    }
}
