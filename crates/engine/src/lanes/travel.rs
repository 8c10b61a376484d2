//! Moves of lanes between engines; `mail` describes the protocol.

use std::sync::Arc;

use controller::lane::{Lane, LaneCommand, LaneEvent};
use memory::MailCount;
use port::ticket::OwnerKey;
use port::time::Time;

use super::{Lanes, Slot, Whose, slot_of};
use crate::mail::{About, Arrival, Mail, MoveError};
use crate::slot::{ControllerSlot, EngineId};

/// How long a lane may take to become empty.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Mail that may wait to be carried. With more of it guests are heard no more, and controllers
/// whose lanes it is for get no turn.
const OUTBOX: usize = 256;

/// Place of a lane of ours on another engine.
#[derive(Debug)]
pub(crate) struct Away {
    pub(crate) engine: EngineId,
    pub(crate) cqid: u16,
    pub(crate) mail_count: Arc<MailCount>,
    /// On its way back: messages for it, kept until it has arrived.
    pub(crate) kept: Option<Vec<LaneCommand>>,
    /// The last interrupt setting sent to it.
    pub(crate) plain: bool,
    /// How often it was asked to pause there.
    pub(crate) pauses: u32,
}

/// A lane that lives here, and whose controller does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Guest {
    pub(crate) home: EngineId,
    /// Its key there.
    pub(crate) key: OwnerKey,
    /// Its controller's place there.
    pub(crate) controller: usize,
    /// No message announces that its doorbells are rung.
    pub(crate) silent: bool,
    /// Its interrupts may be raised here.
    pub(crate) plain: bool,
    /// How often it was paused here.
    pub(crate) pauses: u32,
    /// Its home knows that it is empty since the last of these.
    pub(crate) empty: bool,
}

/// A lane of ours that is to move.
#[derive(Debug)]
pub(crate) struct Journey {
    pub(crate) to: EngineId,
    deadline: Time,
    /// A caller waits for its outcome.
    asked: bool,
}

/// Outcome of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Whose lane.
    pub controller: ControllerSlot,
    /// Which: its completion queue.
    pub cqid: u16,
    /// Its result.
    pub result: Result<(), MoveError>,
}

/// A controller's settings for a lane that leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    pub(crate) silent: bool,
    pub(crate) plain: bool,
}

impl Lanes {
    /// The completion queue of the lane at a place.
    pub(crate) fn cqid_at(&self, index: usize) -> Option<u16> {
        let slot = &self.slots[index];
        let here = slot.lane.as_ref().map(Lane::cqid);
        here.or_else(|| slot.away.as_ref().map(|away| away.cqid))
    }

    /// The places of a controller's lanes, here and elsewhere, with their completion queues.
    pub(crate) fn places_of(&self, controller: usize) -> Vec<(usize, u16)> {
        let slots = self.slots.iter().enumerate();
        let of_it = slots.filter(|(_, slot)| slot.whose == Whose::Controller(controller));
        let places = of_it.filter_map(|(index, _)| Some((index, self.cqid_at(index)?)));
        places.collect()
    }

    /// Whether there is anything to look after still.
    pub(crate) fn note_abroad(&mut self) {
        let lists = [&self.guests, &self.travelling, &self.fresh];
        self.abroad = self.away > 0 || lists.iter().any(|list| !list.is_empty());
    }

    /// The engine on which the lane at a place lives.
    pub(crate) fn residence(&self, index: usize) -> EngineId {
        let away = self.slots[index].away.as_ref();
        away.map_or(self.engine, |away| away.engine)
    }

    /// Sets out to move the lane at a place; false where it is there already.
    ///
    /// # Errors
    /// It is being moved.
    pub(crate) fn set_out(
        &mut self,
        index: usize,
        to: EngineId,
        now: Time,
        asked: bool,
    ) -> Result<bool, MoveError> {
        let cqid = self.cqid_at(index).unwrap_or_default();
        if self.slots[index].journey.is_some() {
            return Err(MoveError::Moving(cqid));
        }
        if self.residence(index) == to {
            return Ok(false);
        }
        let key = self.key_of(index);
        self.command(key, LaneCommand::Pause);
        if let Some(away) = &mut self.slots[index].away {
            away.pauses += 1;
        }
        self.slots[index].journey = Some(Journey {
            to,
            deadline: now + PATIENCE_NS,
            asked,
        });
        self.travelling.push(index);
        self.abroad = true;
        Ok(true)
    }

    /// Advances every move in progress. `manner`: the settings of the lane's controller, which has
    /// sent all of its messages.
    pub(crate) fn travel(&mut self, now: Time, mut manner: impl FnMut(usize) -> Option<Manner>) {
        let mut at = 0;
        while let Some(&index) = self.travelling.get(at) {
            match self.step(index, now, &mut manner) {
                None => at += 1,
                Some(result) => self.end_journey(index, result),
            }
        }
    }

    fn step(
        &mut self,
        index: usize,
        now: Time,
        manner: &mut impl FnMut(usize) -> Option<Manner>,
    ) -> Option<Result<(), MoveError>> {
        let key = self.key_of(index);
        let engine = self.engine;
        let cqid = self.cqid_at(index).unwrap_or_default();
        let slot = &mut self.slots[index];
        let (Whose::Controller(controller), Some(journey)) = (slot.whose, &slot.journey) else {
            return None;
        };
        let (to, late) = (journey.to, now >= journey.deadline);
        if let Some(away) = &slot.away {
            // Once it was asked for, it comes.
            if late && away.kept.is_none() {
                self.command(key, LaneCommand::Resume);
                return Some(Err(MoveError::Busy(cqid)));
            }
            return None;
        }
        let lane = slot.lane.as_mut()?;
        let manner = manner(controller).filter(|_| lane.is_empty());
        match manner {
            Some(_) if to == engine => {
                lane.command(LaneCommand::Resume);
                self.heat(index);
                Some(Ok(()))
            }
            Some(manner) => {
                self.depart(index, controller, to, manner);
                Some(Ok(()))
            }
            None if late => {
                lane.command(LaneCommand::Resume);
                self.heat(index);
                Some(Err(MoveError::Busy(cqid)))
            }
            None => None,
        }
    }

    fn depart(&mut self, index: usize, controller: usize, to: EngineId, manner: Manner) {
        let key = self.key_of(index);
        let Some(mut lane) = self.take(index) else {
            return;
        };
        lane.leave_home();
        lane.command(LaneCommand::Resume);
        self.slots[index].away = Some(Away {
            engine: to,
            cqid: lane.cqid(),
            mail_count: lane.mail_count().clone(),
            kept: None,
            plain: manner.plain,
            pauses: 0,
        });
        self.away += 1;
        let arrival = Box::new(Arrival {
            lane,
            controller,
            silent: manner.silent,
            plain: manner.plain,
        });
        self.send(to, key, About::Arrival(arrival));
    }

    /// Ends a move and records its result for the caller that requested it.
    pub(crate) fn end_journey(&mut self, index: usize, result: Result<(), MoveError>) {
        self.travelling.retain(|other| *other != index);
        let cqid = self.cqid_at(index).unwrap_or_default();
        let slot = &mut self.slots[index];
        let asked = slot.journey.take().is_some_and(|journey| journey.asked);
        if let (true, Whose::Controller(controller)) = (asked, slot.whose) {
            self.moved.push(Moved {
                controller: ControllerSlot(controller),
                cqid,
                result,
            });
        }
    }

    /// The earliest time at which a move times out.
    pub(crate) fn patience_ends(&self) -> Option<Time> {
        let slots = self.travelling.iter().map(|index| &self.slots[*index]);
        slots
            .filter_map(|slot| Some(slot.journey.as_ref()?.deadline))
            .min()
    }

    /// A lane comes to live here.
    pub(crate) fn arrive(&mut self, home: EngineId, key: OwnerKey, arrival: Arrival) {
        let Arrival {
            mut lane,
            controller,
            silent,
            plain,
        } = arrival;
        let (index, own) = self.place(Whose::Guest(Guest {
            home,
            key,
            controller,
            silent,
            plain,
            pauses: 0,
            empty: false,
        }));
        lane.visit(own);
        self.put(index, lane);
        self.guests.push(index);
        self.abroad = true;
    }

    /// The place of a guest, by its home and its key there.
    pub(crate) fn guest(&self, home: EngineId, key: OwnerKey) -> Option<usize> {
        let is_it = |index: &usize| match self.slots[*index].whose {
            Whose::Guest(guest) => (guest.home, guest.key) == (home, key),
            Whose::Controller(_) => false,
        };
        self.guests.iter().copied().find(is_it)
    }

    pub(crate) fn guest_mut(&mut self, index: usize) -> Option<&mut Guest> {
        match &mut self.slots[index].whose {
            Whose::Guest(guest) => Some(guest),
            Whose::Controller(_) => None,
        }
    }

    /// Sends a visitor's reports home. A stopped visitor ends before its home can learn of that:
    /// the resources that it used may be reused by then.
    pub(crate) fn tell_home(&mut self, index: usize) {
        let Whose::Guest(guest) = self.slots[index].whose else {
            return;
        };
        if self.outbox.len() >= OUTBOX {
            // The reports stay with the lane, which has limits of its own, and keep it hot.
            return;
        }
        while let Some(event) = self.of_guest(index, Lane::take_event) {
            let has_stopped = matches!(event, LaneEvent::Stopped);
            self.send(guest.home, guest.key, About::Event(event));
            if has_stopped {
                return self.vacate(index);
            }
        }
        while let Some(forward) = self.of_guest(index, Lane::take_forward) {
            self.send(guest.home, guest.key, About::Forward(forward));
        }
        let is_empty = matches!(&self.slots[index].lane, Some(lane) if lane.is_empty());
        if is_empty && !guest.empty {
            let pauses = guest.pauses;
            self.send(guest.home, guest.key, About::Empty { pauses });
        }
        if let Some(guest) = self.guest_mut(index) {
            guest.empty = is_empty;
        }
    }

    fn of_guest<T>(&mut self, index: usize, take: impl Fn(&mut Lane) -> Option<T>) -> Option<T> {
        self.slots[index].lane.as_mut().and_then(take)
    }

    /// Whether so much mail for lanes of that controller is waiting that it must send no more for
    /// now: its host may change its memory map, or send admin commands, faster than a hanging
    /// reactor takes mail.
    #[inline]
    pub(crate) fn owes_much(&self, controller: usize) -> bool {
        self.away > 0 && self.owes(controller)
    }

    fn owes(&self, controller: usize) -> bool {
        let is_its =
            |slot: &Slot| matches!(slot.whose, Whose::Controller(its) if its == controller);
        let mut kept = self.travelling.iter().map(|index| &self.slots[*index]);
        if kept.any(|slot| is_its(slot) && slot.keeps() >= OUTBOX) {
            return true;
        }
        let to_lane = |mail: &Mail| mail.is_from_home() && is_its(&self.slots[slot_of(mail.key)]);
        self.outbox.len() >= OUTBOX && self.outbox.iter().any(|(_, mail)| to_lane(mail))
    }

    /// A guest goes back to its home.
    pub(crate) fn hand_back(&mut self, index: usize) {
        let Whose::Guest(guest) = self.slots[index].whose else {
            return;
        };
        if let Some(lane) = self.take(index) {
            self.send(guest.home, guest.key, About::Back(Box::new(lane)));
        }
        self.vacate(index);
    }

    /// A lane of ours has come back, still paused.
    pub(crate) fn welcome(&mut self, key: OwnerKey, mut lane: Lane) {
        let Some(slot) = self.slot_mut(key) else {
            // It has ended meanwhile.
            return lane.end();
        };
        let kept = slot.away.take().and_then(|away| away.kept);
        self.away -= 1;
        lane.settle(key);
        for command in kept.into_iter().flatten() {
            lane.command(command);
        }
        self.put(slot_of(key), lane);
    }
}
