//! The reactor's lanes: their storage, and the set of hot lanes.
//!
//! A hot lane runs in every turn of the reactor; a cold one costs nothing. A lane that stays idle
//! for a while grows cold, after [`Lane::rest`] has made sure that new work will wake it: a host
//! with doorbell buffers is asked to ring, which is a message and heats the lane. Without doorbell
//! buffers every doorbell write is a message. Only doorbells that are mapped into a host are stored
//! without a message: the engine watches their pages.
//!
//! Lanes of this engine's controllers that live on another engine have an entry here, too
//! ([`Away`]), and visiting lanes are stored beside its own; `travel` describes how they move.

mod travel;

use std::collections::VecDeque;

use controller::lane::{Answered, Lane, LaneCommand, LaneEvent, LaneTable, Posted};
use port::ticket::{OwnerKey, Ticket};
use port::time::Time;
use subsystem::Forward;

pub(crate) use self::travel::Manner;
pub use self::travel::Moved;
use self::travel::{Away, Guest, Journey};
use crate::mail::{About, Mail, MoveError};
use crate::slot::EngineId;
use crate::tenants::{Left, TenantId};

/// How long an idle lane stays hot. Longer than the gaps of an active host: a command to a cold
/// queue costs a host with doorbell buffers an exit.
const HOT_NS: u64 = 1_000_000;
/// Bits of a key's number that name the slot; the bits above count how often the slot was used.
const SLOT_BITS: u32 = 16;
/// Mask of the generation: a key's number has 31 bits.
pub(crate) const GENERATION_MASK: u32 = OwnerKey::LIMIT / (1 << SLOT_BITS) - 1;

/// The number of a key: its slot, and how often that slot was used. An outdated ticket matches no
/// lane.
pub(crate) fn number_of(slot: usize, generation: u32) -> u32 {
    let slot = u32::try_from(slot).unwrap_or(u32::MAX) & ((1 << SLOT_BITS) - 1);
    (generation & GENERATION_MASK) << SLOT_BITS | slot
}

/// Whose lane it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A controller's of this engine, by its place.
    Controller(usize),
    /// Another engine's: it visits.
    Guest(Guest),
}

/// Reports of a lane on another engine.
#[derive(Debug, Default)]
struct Heard {
    events: VecDeque<LaneEvent>,
    forwards: VecDeque<Forward>,
}

/// A place for one lane.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) lane: Option<Lane>,
    /// Its place, if it visits another engine.
    pub(crate) away: Option<Away>,
    /// Its reports from there that were not processed yet.
    heard: Option<Box<Heard>>,
    generation: u32,
    pub(crate) whose: Whose,
    /// The tenant of its commands, unless their namespace names another.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) journey: Option<Journey>,
    pub(crate) hot: bool,
    /// When it last found something to do.
    worked: Time,
    /// Completions of the lane that were counted.
    completions: u64,
}

impl Slot {
    fn free() -> Self {
        Slot {
            lane: None,
            away: None,
            heard: None,
            generation: 0,
            whose: Whose::Controller(usize::MAX),
            tenant: None,
            journey: None,
            hot: false,
            worked: Time(0),
            completions: 0,
        }
    }
}

impl Slot {
    /// Number of messages that are kept for a lane on its way home.
    pub(crate) fn keeps(&self) -> usize {
        let kept = self.away.as_ref().and_then(|away| away.kept.as_ref());
        kept.map_or(0, Vec::len)
    }
}

/// Completions that a lane elsewhere has posted, for its controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VisitorPost {
    pub(crate) controller: usize,
    pub(crate) posted: Posted,
}

/// All lanes of one reactor.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    pub(crate) engine: EngineId,
    pub(crate) slots: Vec<Slot>,
    free: Vec<usize>,
    hot: Vec<usize>,
    now: Time,
    /// Mail to be carried.
    pub(crate) outbox: VecDeque<(EngineId, Mail)>,
    /// Slots of lanes that were made since the last look, and of those that are to move.
    pub(crate) fresh: Vec<usize>,
    pub(crate) travelling: Vec<usize>,
    /// Requested moves that have ended.
    pub(crate) moved: Vec<Moved>,
    /// Whether the fields below may need attention. False for most engines at all times.
    pub(crate) abroad: bool,
    /// Commands that media still had of lanes that have ended, for tenants.
    pub(crate) left: Left,
    /// Whose the commands of controllers are.
    owners: Vec<(EngineId, usize, TenantId)>,
    /// Number of lanes that live elsewhere, and the slots of visitors.
    pub(crate) away: usize,
    pub(crate) guests: Vec<usize>,
    /// A visitor has left since the last look.
    pub(crate) guest_left: bool,
}

impl Lanes {
    /// The lane of a key, unless it is gone or elsewhere.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        let slot = self.slots.get_mut(slot_of(key))?;
        (slot.generation == generation_of(key)).then_some(slot.lane.as_mut())?
    }

    /// The place of a lane that is not gone, wherever it is.
    pub(crate) fn slot_mut(&mut self, key: OwnerKey) -> Option<&mut Slot> {
        let slot = self.placed(key)?;
        let taken = slot.lane.is_some() || slot.away.is_some();
        taken.then_some(slot)
    }

    /// The place that was given with a key, also when its lane is gone.
    #[inline]
    fn placed(&mut self, key: OwnerKey) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(slot_of(key))?;
        (slot.generation == generation_of(key)).then_some(slot)
    }

    /// A place for a lane, and the key that goes with it.
    pub(crate) fn place(&mut self, whose: Whose) -> (usize, OwnerKey) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::free());
            self.slots.len() - 1
        });
        let tenant = self.tenant_of(whose);
        let slot = &mut self.slots[index];
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        (slot.whose, slot.tenant) = (whose, tenant);
        (index, OwnerKey::lane(number_of(index, slot.generation)))
    }

    /// Puts a lane into its place, and gives it turns.
    pub(crate) fn put(&mut self, index: usize, lane: Lane) {
        let slot = &mut self.slots[index];
        slot.completions = lane.counters().completions.get();
        slot.lane = Some(lane);
        self.heat(index);
    }

    /// Takes a lane out of its place, which stays its own.
    pub(crate) fn take(&mut self, index: usize) -> Option<Lane> {
        let slot = &mut self.slots[index];
        slot.hot = false;
        self.hot.retain(|&hot| hot != index);
        slot.lane.take()
    }

    /// Whose the commands of a lane are.
    fn tenant_of(&self, whose: Whose) -> Option<TenantId> {
        let (engine, controller) = match whose {
            Whose::Controller(controller) => (self.engine, controller),
            Whose::Guest(guest) => (guest.home, guest.controller),
        };
        let mut owners = self.owners.iter();
        let found = owners.find(|(home, at, _)| (*home, *at) == (engine, controller));
        found.map(|(_, _, tenant)| *tenant)
    }

    /// Whose the commands of a controller of that engine are from now on.
    pub(crate) fn assign(&mut self, home: EngineId, controller: usize, tenant: Option<TenantId>) {
        let is_it = |(engine, at, _): &(EngineId, usize, _)| (*engine, *at) == (home, controller);
        self.owners.retain(|owner| !is_it(owner));
        let owner = tenant.map(|tenant| (home, controller, tenant));
        self.owners.extend(owner);
        for at in 0..self.slots.len() {
            let tenant = self.tenant_of(self.slots[at].whose);
            self.slots[at].tenant = tenant;
        }
    }

    /// Releases a place. Its lane's commands for the subsystem are aborted.
    pub(crate) fn vacate(&mut self, index: usize) {
        if let Some(cqid) = self.cqid_at(index) {
            self.end_journey(index, Err(MoveError::Gone(cqid)));
        }
        if let Some(mut lane) = self.take(index) {
            lane.leave(&mut self.left);
            lane.end();
        }
        let slot = &mut self.slots[index];
        self.guest_left |= matches!(slot.whose, Whose::Guest(_));
        let heard = slot.heard.take().unwrap_or_default();
        let forwards = heard.forwards.into_iter();
        forwards.for_each(|forward| forward.ticket.retire());
        if slot.away.take().is_some() {
            self.away -= 1;
        }
        self.guests.retain(|guest| *guest != index);
        self.fresh.retain(|fresh| *fresh != index);
        self.free.push(index);
    }

    /// The key of the lane at a place.
    pub(crate) fn key_of(&self, index: usize) -> OwnerKey {
        OwnerKey::lane(number_of(index, self.slots[index].generation))
    }

    /// Makes a lane hot: something points to work on it.
    pub(crate) fn kick(&mut self, key: OwnerKey) {
        let Some(slot) = self.slot_mut(key) else {
            return;
        };
        if let Some(lane) = &mut slot.lane {
            lane.kick();
            self.heat(slot_of(key));
        } else if let Some(away) = &slot.away {
            let to = away.engine;
            // One is enough, however often a host rings while the mail is not carried.
            let is_told =
                |(_, mail): &(_, Mail)| mail.key == key && matches!(mail.about, About::Kick);
            if !self.outbox.iter().any(is_told) {
                self.send(to, key, About::Kick);
            }
        }
    }

    /// Writes a message.
    pub(crate) fn send(&mut self, to: EngineId, key: OwnerKey, about: About) {
        self.outbox.push_back((to, Mail { key, about }));
    }

    /// The lane of a key, made hot: it has posted, so it has an interrupt to raise, and may have
    /// room to fetch more.
    #[inline]
    pub(crate) fn warm(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        self.get_mut(key)?;
        self.heat(slot_of(key));
        self.get_mut(key)
    }

    #[inline]
    pub(crate) fn heat(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.worked = self.now;
        if !slot.hot {
            slot.hot = true;
            self.hot.push(index);
        }
    }

    /// It is `now`: a lane that gets work from here on is hot from then on.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time) {
        self.now = now;
    }

    /// Gives every hot lane a turn at `now`; one that found nothing for long becomes cold.
    #[inline]
    pub(crate) fn each_hot(&mut self, now: Time, mut turn: impl FnMut(&mut Slot) -> bool) {
        self.now = now;
        let mut at = 0;
        while let Some(&index) = self.hot.get(at) {
            let slot = &mut self.slots[index];
            // Code that removes a lane removes it from the list.
            if turn(slot) {
                slot.worked = now;
            } else if now.since(slot.worked) > HOT_NS && slot.lane.as_mut().is_none_or(Lane::rest) {
                slot.hot = false;
                self.hot.swap_remove(at);
                continue;
            }
            at += 1;
        }
    }

    /// Shows the hot lanes with whose each is. How many commands they completed since the last
    /// time.
    #[inline]
    pub(crate) fn hot_mut(&mut self, mut each: impl FnMut(&Whose, &mut Lane)) -> u64 {
        let mut completed = 0;
        for &index in &self.hot {
            let slot = &mut self.slots[index];
            if let Some(lane) = &mut slot.lane {
                each(&slot.whose, lane);
                let completions = lane.counters().completions.get();
                completed += completions.wrapping_sub(slot.completions);
                slot.completions = completions;
            }
        }
        completed
    }

    pub(crate) fn hot_count(&self) -> usize {
        self.hot.len()
    }

    /// The place of a hot lane.
    pub(crate) fn hot_at(&self, at: usize) -> usize {
        self.hot[at]
    }

    /// Whether every lane that lives here is paused and holds nothing.
    pub(crate) fn all_empty(&self) -> bool {
        let mut lanes = self.slots.iter().filter_map(|slot| slot.lane.as_ref());
        lanes.all(Lane::is_empty)
    }

    /// Whether no lane is hot.
    pub(crate) fn all_cold(&self) -> bool {
        self.hot.is_empty()
    }

    /// Arms every hot lane; the cold ones are armed.
    pub(crate) fn arm_hot(&mut self) {
        for &index in &self.hot {
            if let Some(lane) = &mut self.slots[index].lane {
                lane.arm();
            }
        }
    }

    /// The second look before sleeping: whether there is a hot lane with work.
    pub(crate) fn second_look(&self) -> bool {
        let mut hot = self.hot.iter();
        hot.any(|index| self.slots[*index].lane.as_ref().is_some_and(Lane::has_work))
    }

    /// A report of a lane of ours that lives elsewhere.
    pub(crate) fn hear(&mut self, key: OwnerKey, event: LaneEvent) {
        if let Some(slot) = self.slot_mut(key) {
            slot.heard.get_or_insert_default().events.push_back(event);
        }
    }

    /// A command of such a lane for the subsystem.
    pub(crate) fn hear_forward(&mut self, key: OwnerKey, forward: Forward) {
        match self.slot_mut(key) {
            Some(slot) => slot
                .heard
                .get_or_insert_default()
                .forwards
                .push_back(forward),
            None => forward.ticket.retire(),
        }
    }
}

pub(crate) fn slot_of(key: OwnerKey) -> usize {
    (key.number() & ((1 << SLOT_BITS) - 1)) as usize
}

fn generation_of(key: OwnerKey) -> u32 {
    key.number() >> SLOT_BITS
}

/// The lanes as one controller sees them: those that it makes are its own.
pub(crate) struct LanesOf<'a> {
    pub(crate) lanes: &'a mut Lanes,
    pub(crate) controller: usize,
}

impl LaneTable for LanesOf<'_> {
    fn insert(&mut self, mut lane: Lane) -> OwnerKey {
        let (index, key) = self.lanes.place(Whose::Controller(self.controller));
        lane.settle(key);
        self.lanes.put(index, lane);
        self.lanes.fresh.push(index);
        self.lanes.abroad = true;
        key
    }

    fn local(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        self.lanes.get_mut(key)
    }

    fn command(&mut self, key: OwnerKey, command: LaneCommand) -> bool {
        self.lanes.command(key, command)
    }

    fn take_event(&mut self, key: OwnerKey) -> Option<LaneEvent> {
        let slot = self.lanes.placed(key)?;
        if let Some(heard) = &mut slot.heard
            && let Some(event) = heard.events.pop_front()
        {
            return Some(event);
        }
        slot.lane.as_mut()?.take_event()
    }

    fn take_forward(&mut self, key: OwnerKey) -> Option<Forward> {
        let slot = self.lanes.placed(key)?;
        if let Some(heard) = &mut slot.heard
            && let Some(forward) = heard.forwards.pop_front()
        {
            return Some(forward);
        }
        slot.lane.as_mut()?.take_forward()
    }

    fn answer(&mut self, ticket: Ticket, result: Answered) {
        let key = ticket.owner();
        if let Some(lane) = self.lanes.warm(key) {
            return lane.answer(ticket, result.as_deref().map_err(|status| *status));
        }
        let slot = self.lanes.slot_mut(key);
        match slot.and_then(|slot| slot.away.as_ref()) {
            Some(away) => {
                let to = away.engine;
                self.lanes.send(to, key, About::Answer { ticket, result });
            }
            None => ticket.retire(),
        }
    }

    fn remove(&mut self, key: OwnerKey) {
        // One that lived elsewhere has ended there before it told that it has stopped.
        if self.lanes.slot_mut(key).is_some() {
            self.lanes.vacate(slot_of(key));
        }
    }
}

impl Lanes {
    /// Gives a lane a command, wherever it is. Whether it is anywhere.
    pub(crate) fn command(&mut self, key: OwnerKey, command: LaneCommand) -> bool {
        let Some(slot) = self.slot_mut(key) else {
            return false;
        };
        if let Some(lane) = &mut slot.lane {
            lane.command(command);
            self.heat(slot_of(key));
            return true;
        }
        let Some(away) = &mut slot.away else {
            return false;
        };
        let mail_count = away.mail_count.count();
        let to = away.engine;
        match &mut away.kept {
            Some(kept) => kept.push(command),
            None => self.send(
                to,
                key,
                About::Command {
                    command,
                    mail_count,
                },
            ),
        }
        true
    }

    /// Completions that a visitor has posted, merged with those still to be carried.
    pub(crate) fn post(&mut self, guest: Guest, posted: Posted) {
        let waiting = self.outbox.iter_mut().find_map(|(to, mail)| match mail {
            Mail {
                key,
                about: About::Posted(waiting),
            } if (*to, *key) == (guest.home, guest.key) => Some(waiting),
            _ => None,
        });
        match waiting {
            Some(waiting) => {
                waiting.entries = waiting.entries.saturating_add(posted.entries);
                waiting.failed |= posted.failed;
            }
            None => self.send(guest.home, guest.key, About::Posted(posted)),
        }
    }
}
