//! One turn of a reactor, from doorbells to interrupts.

use controller::{
    Controller, Interrupt,
    port::{Channel, ChannelId, Channels, Done},
    subsystem::Subsystem,
    ticket::OwnerKey,
    time::Time,
};

use crate::{
    Idle, Mode,
    lanes::{Lanes, LanesOf, number_of, slot_of},
    wait::Waiting,
};

/// Busy turns after which every controller is looked at: admin commands wait no longer than that.
const CONTROLLER_LOOK_TURNS: u32 = 16;
/// No interrupt is withheld.
const NEVER: Time = Time(u64::MAX);
/// Cold lanes looked at in a turn while others are hot, and while none is.
const COLD_LOOKS_BUSY: usize = 1;
const COLD_LOOKS_IDLE: usize = 16;

/// A controller's place in its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerSlot(pub usize);

/// A subsystem's place in its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SubsystemSlot(pub usize);

/// A controller, and the subsystem it belongs to.
#[derive(Debug)]
struct Member {
    controller: Controller,
    subsystem: SubsystemSlot,
}

/// What a turn did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Whether anything was done.
    pub worked: bool,
    /// I/O commands fetched.
    pub commands: u32,
    /// I/O commands completed.
    pub completions: u64,
}

/// The controllers, lanes and channels of one reactor.
#[derive(Debug)]
pub struct Engine<C> {
    controllers: Vec<Option<Member>>,
    subsystems: Vec<Option<Subsystem>>,
    /// Controllers and subsystems that were ever taken: a part of the next one's key.
    taken: u32,
    lanes: Lanes,
    channels: Channels<C>,
    done: Vec<Done>,
    waiting: Waiting,
    turns_to_look: u32,
    /// When the first interrupt that some controller withholds is due.
    interrupts_due: Time,
}

impl<C: Channel> Engine<C> {
    /// An engine with nothing to do, whose idle time counts from `now`.
    #[must_use]
    pub fn new(mode: Mode, now: Time) -> Self {
        Engine {
            controllers: Vec::new(),
            subsystems: Vec::new(),
            taken: 0,
            lanes: Lanes::default(),
            channels: Channels::new(),
            done: Vec::new(),
            waiting: Waiting::new(mode, now),
            turns_to_look: 0,
            interrupts_due: NEVER,
        }
    }

    /// Takes a channel that holds at most `depth` commands, or gives it back where there is no id left for it.
    ///
    /// # Errors
    /// The channel itself.
    pub fn add_channel(&mut self, channel: C, depth: usize) -> Result<ChannelId, C> {
        self.done.reserve(depth);
        self.channels.insert(channel)
    }

    /// Gives a channel back; nothing may be in flight on it.
    pub fn remove_channel(&mut self, id: ChannelId) -> Option<C> {
        self.channels.remove(id)
    }

    /// The channels, to wait on what they signal.
    pub fn channels_mut(&mut self) -> &mut Channels<C> {
        &mut self.channels
    }

    /// Takes a subsystem.
    pub fn add_subsystem(&mut self, mut subsystem: Subsystem) -> SubsystemSlot {
        let index = free_place(&mut self.subsystems);
        self.taken = self.taken.wrapping_add(1);
        subsystem.set_key(OwnerKey::subsystem(number_of(index, self.taken)));
        self.subsystems[index] = Some(subsystem);
        SubsystemSlot(index)
    }

    /// A subsystem, for its operator. The next turn looks at it.
    pub fn subsystem_mut(&mut self, slot: SubsystemSlot) -> Option<&mut Subsystem> {
        self.turns_to_look = 0;
        self.subsystems.get_mut(slot.0)?.as_mut()
    }

    /// Every subsystem, for whoever keeps their records.
    pub fn subsystems_mut(&mut self) -> impl Iterator<Item = (SubsystemSlot, &mut Subsystem)> {
        let subsystems = self.subsystems.iter_mut().enumerate();
        subsystems.filter_map(|(index, s)| Some((SubsystemSlot(index), s.as_mut()?)))
    }

    /// Gives a subsystem back; its controllers are gone.
    pub fn remove_subsystem(&mut self, slot: SubsystemSlot) -> Option<Subsystem> {
        self.subsystems.get_mut(slot.0)?.take()
    }

    /// Takes a controller of that subsystem.
    pub fn add_controller(
        &mut self,
        mut controller: Controller,
        subsystem: SubsystemSlot,
    ) -> ControllerSlot {
        let index = free_place(&mut self.controllers);
        self.taken = self.taken.wrapping_add(1);
        controller.set_key(OwnerKey::controller(number_of(index, self.taken)));
        self.controllers[index] = Some(Member {
            controller,
            subsystem,
        });
        ControllerSlot(index)
    }

    /// A controller, for its transport. The next turn looks at it.
    pub fn controller_mut(&mut self, slot: ControllerSlot) -> Option<&mut Controller> {
        self.turns_to_look = 0;
        let controller = &mut self.controllers.get_mut(slot.0)?.as_mut()?.controller;
        let mut lanes = LanesOf {
            lanes: &mut self.lanes,
            controller: slot.0,
        };
        controller.refresh_interrupt_status(&mut lanes);
        Some(controller)
    }

    /// Gives a controller back, which leaves its subsystem; it must be quiet ([`Controller::is_quiet`]).
    pub fn remove_controller(&mut self, slot: ControllerSlot) -> Option<Controller> {
        let Member {
            controller,
            subsystem,
        } = self.controllers.get_mut(slot.0)?.take()?;
        if let Some(subsystem) = self.subsystem_mut(subsystem) {
            subsystem.leave(controller.id());
        }
        Some(controller)
    }

    /// One turn at `now`. `raise` is called with a controller and what its transport is to deliver; at most once for each
    /// completion queue that has posted.
    pub fn turn(&mut self, now: Time, mut raise: impl FnMut(ControllerSlot, Interrupt)) -> Turn {
        let mut turn = Turn::default();
        if self.turns_to_look == 0 {
            self.turns_to_look = CONTROLLER_LOOK_TURNS;
            turn.worked |= self.look_at_controllers(now, &mut raise);
        }
        let cold_looks = if self.lanes.all_cold() {
            COLD_LOOKS_IDLE
        } else {
            COLD_LOOKS_BUSY
        };
        self.lanes.look_at_cold(cold_looks);
        let channels = &mut self.channels;
        let mut worked = false;
        self.lanes.each_hot(|lane| {
            let done = lane.turn(channels);
            turn.commands += done.fetched;
            let busy = done.fetched > 0 || done.steps > 0;
            worked |= busy;
            busy || done.pending > 0
        });
        worked |= self.drive_channels();
        // also in a turn without work: what the controller gave up has posted, too
        let (controllers, due) = (&mut self.controllers, &mut self.interrupts_due);
        turn.completions = self.lanes.hot_mut(|slot, lane| {
            if let Some(posted) = lane.take_posted()
                && let Some(Some(Member { controller, .. })) = controllers.get_mut(slot)
            {
                match controller.interrupt(posted, lane, now) {
                    Some(interrupt) => raise(ControllerSlot(slot), interrupt),
                    None => *due = (*due).min(controller.interrupts_due().unwrap_or(NEVER)),
                }
            }
        });
        if now >= self.interrupts_due {
            self.take_interrupts(now, &mut raise);
        }
        turn.worked |= worked;
        if turn.worked {
            self.waiting.worked(now);
        } else {
            // an idle reactor has time to look at everything in every turn
            self.turns_to_look = 0;
        }
        self.turns_to_look = self.turns_to_look.saturating_sub(1);
        turn
    }

    fn look_at_controllers(
        &mut self,
        now: Time,
        raise: &mut impl FnMut(ControllerSlot, Interrupt),
    ) -> bool {
        let (mut worked, mut every_turn) = (false, false);
        for subsystem in self.subsystems.iter_mut().flatten() {
            worked |= subsystem.turn(now, &mut self.channels);
        }
        for (index, member) in self.controllers.iter_mut().enumerate() {
            let Some(Member {
                controller,
                subsystem,
            }) = member
            else {
                continue;
            };
            let Some(Some(subsystem)) = self.subsystems.get_mut(subsystem.0) else {
                continue;
            };
            let mut lanes = LanesOf {
                lanes: &mut self.lanes,
                controller: index,
            };
            worked |= controller.turn(now, &mut self.channels, &mut lanes, subsystem);
            every_turn |= controller.is_arbitrating();
            for key in controller.take_kicks() {
                lanes.lanes.kick(key);
            }
        }
        if every_turn {
            self.turns_to_look = 1;
        }
        self.take_interrupts(now, raise);
        worked
    }

    /// Takes what every controller has to raise beside what its lanes have just posted.
    fn take_interrupts(&mut self, now: Time, raise: &mut impl FnMut(ControllerSlot, Interrupt)) {
        self.interrupts_due = NEVER;
        for (index, member) in self.controllers.iter_mut().enumerate() {
            let Some(Member { controller, .. }) = member else {
                continue;
            };
            let mut lanes = LanesOf {
                lanes: &mut self.lanes,
                controller: index,
            };
            let raise = |interrupt| raise(ControllerSlot(index), interrupt);
            controller.take_interrupts(now, &mut lanes, raise);
            let due = controller.interrupts_due().unwrap_or(NEVER);
            self.interrupts_due = self.interrupts_due.min(due);
        }
    }

    /// Submits and reaps every channel and completes what is done.
    #[inline]
    fn drive_channels(&mut self) -> bool {
        for (_, channel) in self.channels.iter_mut() {
            if channel.in_flight() > 0 {
                channel.submit();
                channel.reap(&mut self.done);
            }
        }
        let worked = !self.done.is_empty();
        for Done { ticket, outcome } in self.done.drain(..) {
            let owner = ticket.owner();
            if owner.is_lane() {
                match self.lanes.warm(owner) {
                    Some(lane) => lane.complete(ticket, outcome),
                    None => ticket.retire(),
                }
            } else if owner.is_controller() {
                let member = self.controllers.get_mut(slot_of(owner));
                match member.and_then(Option::as_mut) {
                    Some(member) if member.controller.key() == owner => {
                        member.controller.complete(ticket, outcome);
                    }
                    _ => ticket.retire(),
                }
            } else {
                let subsystem = self.subsystems.get_mut(slot_of(owner));
                match subsystem.and_then(Option::as_mut) {
                    Some(subsystem) if subsystem.key() == owner => {
                        subsystem.complete(ticket, outcome);
                    }
                    _ => ticket.retire(),
                }
            }
        }
        worked
    }

    /// What to do after a turn at `now` that found nothing. `unwoken`: a doorbell page is mapped into some host.
    #[must_use]
    pub fn idle(&self, now: Time, unwoken: bool, other_deadline: Option<Time>) -> Idle {
        let controllers = self.controllers.iter().flatten();
        let subsystems = self.subsystems.iter().flatten();
        let deadline = controllers
            .filter_map(|member| member.controller.next_deadline())
            .chain(subsystems.filter_map(Subsystem::next_deadline))
            .chain(other_deadline)
            .min();
        self.waiting.idle(now, unwoken, deadline)
    }

    /// The engine's part of going to sleep; the caller has published that it sleeps. Arms every event index (queue 0 has
    /// none: its doorbells are always registers), then looks again: true means that nothing came meanwhile and the caller may wait for its descriptors.
    ///
    /// The race: a host stores a tail, then loads the event index; we store the event index, then load the tail. With
    /// a full fence between store and load on both sides at least one of the two sees the other's store, so either the
    /// host rings or we do not sleep (Base 2.1, Annex B.5).
    #[must_use]
    pub fn arm(&mut self) -> bool {
        for lane in self.lanes.iter_mut() {
            lane.arm();
        }
        memory::full_fence();
        let mut found = self.lanes.second_look();
        for member in self.controllers.iter().flatten() {
            found |= member.controller.has_work();
        }
        for subsystem in self.subsystems.iter().flatten() {
            found |= subsystem.has_work();
        }
        if found {
            self.turns_to_look = 0;
        }
        !found
    }
}

/// The index of an empty place, which is added where there is none.
fn free_place<T>(places: &mut Vec<Option<T>>) -> usize {
    places.iter().position(Option::is_none).unwrap_or_else(|| {
        places.push(None);
        places.len() - 1
    })
}
