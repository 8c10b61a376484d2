//! One turn of a reactor, from doorbells to interrupts.

use std::sync::Arc;

use controller::controller::{Left, RestoreError};
use controller::flight::WatchSpec;
use controller::{Controller, ControllerConfig, Interrupt};
use port::ticket::OwnerKey;
use port::time::Time;
use port::{Channel, ChannelId, Channels, Done};
use subsystem::Subsystem;

use crate::lanes::{Lanes, LanesOf, VisitorPost, Whose, number_of, slot_of};
use crate::members::{Member, Members};
use crate::slot::{ControllerSlot, EngineId, SubsystemSlot};
use crate::tenants::{Budget, NamespaceKey, TenantId, TenantSpec, Tenants};
use crate::wait::{EARLY_NS, Waiting};
use crate::{Idle, Mode};

/// Busy turns after which every hot controller gets one: admin commands wait no longer than that.
const CONTROLLER_TURNS: u32 = 16;
/// No interrupt is withheld.
const NEVER: Time = Time(u64::MAX);
/// Interval between checks of the doorbells of every controller, for stores without a message: a
/// first command in an idle queue waits no longer than that beside busy ones.
const BELL_ROUND_NS: u64 = 30_000;

/// Work of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Whether anything was done.
    pub worked: bool,
    /// I/O commands fetched.
    pub commands: u32,
    /// I/O commands completed.
    pub completions: u64,
}

/// Delivery of interrupts.
pub trait Interrupts {
    /// Delivers an interrupt of a controller.
    fn raise(&mut self, controller: ControllerSlot, interrupt: Interrupt);

    /// Delivers a vector of MSI-X of a controller of another engine; false where only that can.
    fn raise_for(&mut self, _home: EngineId, _controller: ControllerSlot, _vector: u16) -> bool {
        false
    }
}

impl<F: FnMut(ControllerSlot, Interrupt)> Interrupts for F {
    fn raise(&mut self, controller: ControllerSlot, interrupt: Interrupt) {
        self(controller, interrupt);
    }
}

/// The controllers, lanes and channels of one reactor.
#[derive(Debug)]
pub struct Engine<C> {
    pub(crate) members: Members,
    /// Controllers and subsystems that were ever taken: a part of the next one's key.
    pub(crate) taken: u32,
    pub(crate) lanes: Lanes,
    channels: Channels<C>,
    done: Vec<Done>,
    waiting: Waiting,
    /// Busy turns until controllers get theirs.
    pub(crate) turns_to_look: u32,
    /// See [`Engine::take_messages_wanted`].
    messages_wanted: Vec<ControllerSlot>,
    /// Completions that visitors of other engines have posted for controllers of this one.
    pub(crate) posted: Vec<VisitorPost>,
    /// Whose doorbells are looked at next, and when.
    bell_cursor: usize,
    next_bells: Time,
    /// When the first interrupt that some controller withholds is due.
    interrupts_due: Time,
    /// Tenants, if there are any.
    pub(crate) tenants: Option<Box<Tenants>>,
}

impl<C: Channel> Engine<C> {
    /// An engine with nothing to do, whose idle time counts from `now`.
    #[must_use]
    pub fn new(mode: Mode, now: Time) -> Self {
        Engine {
            members: Members::default(),
            taken: 0,
            lanes: Lanes::default(),
            channels: Channels::new(),
            done: Vec::new(),
            waiting: Waiting::new(mode, now),
            turns_to_look: 0,
            messages_wanted: Vec::new(),
            posted: Vec::new(),
            bell_cursor: 0,
            next_bells: now,
            interrupts_due: NEVER,
            tenants: None,
        }
    }

    /// Sets the index of the engine in its process. Default: the first.
    pub fn set_id(&mut self, id: EngineId) {
        self.lanes.engine = id;
    }

    /// Takes a channel that holds at most `depth` commands. Its id names the medium on every engine
    /// of a process: a lane that moves finds the same medium by it.
    ///
    /// # Errors
    /// The channel itself, where there is one with this id.
    pub fn add_channel(&mut self, id: ChannelId, channel: C, depth: usize) -> Result<(), C> {
        self.channels.insert_at(id, channel)?;
        self.done.reserve(depth);
        Ok(())
    }

    /// Gives a channel back; nothing may be in flight on it.
    pub fn remove_channel(&mut self, id: ChannelId) -> Option<C> {
        self.channels.remove(id)
    }

    /// Adds a tenant, or changes it. The caller gives every engine of a process the same values,
    /// with the same budget.
    pub fn set_tenant(&mut self, id: TenantId, spec: TenantSpec, budget: Arc<Budget>) {
        self.tenants.get_or_insert_default().set(id, spec, budget);
    }

    /// Whose a namespace's commands are, whichever controller they come by, and its weight beside
    /// others of the same tenant. `None`: the controller's.
    pub fn assign_namespace(
        &mut self,
        namespace: NamespaceKey,
        tenant: Option<TenantId>,
        weight: u32,
    ) {
        let tenants = self.tenants.get_or_insert_default();
        tenants.assign(namespace, tenant, weight);
    }

    /// Whose the commands of a controller of that engine are.
    pub fn assign_controller(
        &mut self,
        home: EngineId,
        controller: ControllerSlot,
        tenant: Option<TenantId>,
    ) {
        self.lanes.assign(home, controller.0, tenant);
    }

    /// Removes a tenant, which nothing names any more. Its commands that media still have end like
    /// those of no tenant.
    pub fn remove_tenant(&mut self, id: TenantId) {
        if let Some(tenants) = &mut self.tenants {
            tenants.remove(id);
        }
    }

    pub(crate) fn channels(&self) -> &Channels<C> {
        &self.channels
    }

    /// The channels, to wait on what they signal.
    pub fn channels_mut(&mut self) -> &mut Channels<C> {
        &mut self.channels
    }

    /// Takes a subsystem.
    pub fn add_subsystem(&mut self, mut subsystem: Subsystem) -> SubsystemSlot {
        let index = self.members.free_subsystem();
        self.taken = self.taken.wrapping_add(1);
        subsystem.set_key(OwnerKey::subsystem(number_of(index, self.taken)));
        self.members.add_subsystem(subsystem, index);
        SubsystemSlot(index)
    }

    /// A subsystem, for its operator. The next turn looks at it.
    pub fn subsystem_mut(&mut self, slot: SubsystemSlot) -> Option<&mut Subsystem> {
        self.turns_to_look = 0;
        self.members.heat_subsystem(slot.0);
        self.members.subsystem_mut(slot)
    }

    /// Every subsystem, for the code that keeps their records.
    pub fn subsystems_mut(&mut self) -> impl Iterator<Item = (SubsystemSlot, &mut Subsystem)> {
        self.members.subsystems_mut()
    }

    /// Gives a subsystem back; its controllers are gone.
    pub fn remove_subsystem(&mut self, slot: SubsystemSlot) -> Option<Subsystem> {
        self.members.take_subsystem(slot)
    }

    /// Takes a controller of that subsystem.
    pub fn add_controller(
        &mut self,
        mut controller: Controller,
        subsystem: SubsystemSlot,
    ) -> ControllerSlot {
        let index = self.members.free_controller();
        self.taken = self.taken.wrapping_add(1);
        controller.set_key(OwnerKey::controller(number_of(index, self.taken)));
        self.members.add_controller(controller, subsystem, index);
        ControllerSlot(index)
    }

    /// Takes a controller of a process that died, with its lanes ([`Controller::restore`]). No turn
    /// may come before the media have ended what that process had asked for.
    ///
    /// # Errors
    /// As of [`Controller::restore`].
    pub fn restore_controller(
        &mut self,
        config: ControllerConfig,
        left: Left,
        subsystem: SubsystemSlot,
    ) -> Result<Option<ControllerSlot>, RestoreError> {
        let mut lanes = LanesOf {
            lanes: &mut self.lanes,
            controller: self.members.free_controller(),
        };
        let Some(its) = self.members.subsystem_mut(subsystem) else {
            return Ok(None);
        };
        let controller = Controller::restore(config, left, its, &mut lanes)?;
        Ok(Some(self.add_controller(controller, subsystem)))
    }

    /// Lets a controller that was restored copy ([`Controller::release_copies`]).
    pub fn release_copies(&mut self, slot: ControllerSlot) {
        self.release_with(slot, |controller, lanes| controller.release_copies(lanes));
    }

    /// Lets a controller that was restored fetch commands ([`Controller::release`]).
    pub fn release_controller(&mut self, slot: ControllerSlot) {
        self.release_with(slot, |controller, lanes| controller.release(lanes));
    }

    fn release_with(
        &mut self,
        slot: ControllerSlot,
        release: impl FnOnce(&mut Controller, &mut LanesOf<'_>),
    ) {
        self.turns_to_look = 0;
        self.members.heat(slot.0);
        let mut lanes = LanesOf {
            lanes: &mut self.lanes,
            controller: slot.0,
        };
        if let Some(controller) = self.members.get_mut(slot.0) {
            release(controller, &mut lanes);
        }
    }

    /// Has all controllers fetch no more commands, or go on.
    pub fn set_paused(&mut self, paused: bool) {
        self.turns_to_look = 0;
        for controller in 0..self.members.len() {
            self.members.heat(controller);
            let mut lanes = LanesOf {
                lanes: &mut self.lanes,
                controller,
            };
            match self.members.get_mut(controller) {
                Some(controller) if paused => controller.pause(&mut lanes),
                Some(controller) => controller.resume(&mut lanes),
                None => {}
            }
        }
    }

    /// Whether the lanes that live here are paused, and have no command in any stage.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.lanes.all_empty()
    }

    /// A controller, for its transport. The next turn looks at it.
    pub fn controller_mut(&mut self, slot: ControllerSlot) -> Option<&mut Controller> {
        self.turns_to_look = 0;
        self.members.heat(slot.0);
        let controller = self.members.get_mut(slot.0)?;
        let mut lanes = LanesOf {
            lanes: &mut self.lanes,
            controller: slot.0,
        };
        controller.refresh_interrupt_status(&mut lanes);
        Some(controller)
    }

    /// The transport of this controller has rung doorbells of I/O queues: their lanes look, and the
    /// controller gets a turn only if it has a reason of its own.
    pub fn rung(&mut self, slot: ControllerSlot) {
        let Some(controller) = self.members.get_mut(slot.0) else {
            return;
        };
        for key in controller.take_kicks() {
            self.lanes.kick(key);
        }
        if controller.has_work() {
            self.turns_to_look = 0;
            self.members.heat(slot.0);
        }
    }

    /// A controller, for a look of its transport that mostly finds nothing: it gets no turn for
    /// that. Where the transport has done something, [`Self::controller_mut`] is to be called.
    pub fn peek_controller(&mut self, slot: ControllerSlot) -> Option<&mut Controller> {
        self.members.get_mut(slot.0)
    }

    /// Watches commands of a controller from now on, or none any more
    /// ([`Controller::watch_commands`]).
    pub fn watch_commands(&mut self, slot: ControllerSlot, spec: Option<WatchSpec>) {
        let mut lanes = LanesOf {
            lanes: &mut self.lanes,
            controller: slot.0,
        };
        if let Some(controller) = self.members.get_mut(slot.0) {
            controller.watch_commands(spec, &mut lanes);
        }
    }

    /// Gives a controller back, which leaves its subsystem; it must be quiet
    /// ([`Controller::is_quiet`]).
    pub fn remove_controller(&mut self, slot: ControllerSlot) -> Option<Controller> {
        let Member {
            controller,
            subsystem,
            ..
        } = self.members.take_controller(slot)?;
        if let Some(subsystem) = self.subsystem_mut(subsystem) {
            subsystem.leave(controller.id());
        }
        Some(controller)
    }

    /// One turn at `now`. `raise` is called with a controller and the interrupt that its transport
    /// must deliver; at most once for each completion queue that has posted.
    pub fn turn(&mut self, now: Time, mut raise: impl Interrupts) -> Turn {
        let mut turn = Turn::default();
        let mut worked = self.channels.keep_time() && self.tell_time(now);
        self.members.remember_cold(now);
        if now >= self.next_bells || self.lanes.all_cold() {
            self.look_at_bells(now);
        }
        if self.turns_to_look == 0 && !self.members.all_cold() {
            self.turns_to_look = CONTROLLER_TURNS;
            turn.worked |= self.turn_members(now, &mut raise);
        }
        if self.tenants.is_some() {
            worked |= self.turn_through_tenants(now, &mut turn);
        } else {
            let channels = &mut self.channels;
            let is_alone = self.lanes.hot_count() == 1;
            self.lanes.each_hot(now, |slot| {
                let Some(lane) = &mut slot.lane else {
                    return false;
                };
                lane.note_time(now);
                lane.set_alone(is_alone);
                let done = lane.turn(channels);
                turn.commands += done.fetched;
                let busy = done.fetched > 0 || done.steps > 0;
                worked |= busy;
                busy || done.pending > 0
            });
            worked |= self.drive_channels::<false>(now);
        }
        // also in a turn without work: what the controller gave up has posted, too
        let (members, due) = (&mut self.members, &mut self.interrupts_due);
        turn.completions = self.lanes.hot_mut(|whose, lane| {
            let &Whose::Controller(slot) = whose else {
                return;
            };
            if let Some(posted) = lane.take_posted()
                && let Some(controller) = members.get_mut(slot)
            {
                match controller.interrupt(posted, lane, now) {
                    Some(interrupt) => raise.raise(ControllerSlot(slot), interrupt),
                    None => *due = (*due).min(controller.interrupts_due().unwrap_or(NEVER)),
                }
            }
            if lane.has_news() || lane.is_allotted() {
                members.heat(slot);
            }
        });
        if self.lanes.abroad {
            worked |= self.look_abroad(now, &mut raise);
        }
        if now >= self.interrupts_due {
            self.take_interrupts(now, &mut raise);
        }
        turn.worked |= worked;
        if turn.worked {
            self.waiting.worked(now);
            self.turns_to_look = self.turns_to_look.saturating_sub(1);
        } else {
            // an idle reactor has time to look at all that is hot in every turn
            self.turns_to_look = 0;
        }
        turn
    }

    /// The turns of lanes and channels where there are tenants. Whether anything was done.
    #[inline(never)]
    fn turn_through_tenants(&mut self, now: Time, turn: &mut Turn) -> bool {
        let Some(tenants) = &mut self.tenants else {
            return false;
        };
        tenants.begin_turn(now, &mut self.lanes.left);
        let mut worked = self.complete_done::<true>();
        let Some(tenants) = &mut self.tenants else {
            return worked;
        };
        let channels = &mut self.channels;
        let is_alone = self.lanes.hot_count() == 1;
        self.lanes.each_hot(now, |slot| {
            let Some(lane) = &mut slot.lane else {
                return false;
            };
            lane.note_time(now);
            lane.set_alone(is_alone);
            let done = lane.turn_through(channels, tenants.gate(slot.tenant));
            turn.commands += done.fetched;
            let busy = done.fetched > 0 || done.steps > 0 || done.released > 0;
            worked |= busy;
            busy || done.pending > 0
        });
        worked |= self.drive_channels::<true>(now);
        if let Some(tenants) = &mut self.tenants {
            tenants.end_turn();
        }
        worked
    }

    /// Passes the time to channels that keep one, and completes commands that are due by then:
    /// before anything is fetched, which would have to wait for it (with tenants when their turn
    /// has begun, which counts it). Returns whether there were any.
    #[inline(never)]
    fn tell_time(&mut self, now: Time) -> bool {
        self.channels.set_time(now, &mut self.done);
        // Or a lane that was idle for long would grow cold in this turn, with what is posted to it.
        self.lanes.begin(now);
        self.tenants.is_none() && self.complete_done::<false>()
    }

    /// When something happens on a channel by itself next.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        let held = self.tenants.as_ref().and_then(|tenants| tenants.retry_at());
        self.channels.next_due().into_iter().chain(held).min()
    }

    /// Checks doorbells that are stored without a message: of the next controllers that are due,
    /// or, if no lane is hot and so no host is delayed, of one in every turn.
    fn look_at_bells(&mut self, now: Time) {
        let count = self.bells();
        let interval = BELL_ROUND_NS / count.max(1) as u64;
        // after a long turn, or a sleep, each once
        let behind = now.since(self.next_bells) / interval.max(1);
        let looks = usize::try_from(behind).unwrap_or(usize::MAX).min(count);
        for _ in 0..looks.max(1) {
            self.bell_cursor += 1;
            if self.bell_cursor >= count {
                self.bell_cursor = 0;
            }
            self.look_at_bells_of(self.bell_cursor);
        }
        self.next_bells = now + interval;
    }

    /// Number of sets of doorbells to check: those of every controller, and of every visitor.
    fn bells(&self) -> usize {
        self.members.places() + self.lanes.guests.len()
    }

    /// Wakes the lanes whose doorbells changed.
    #[inline]
    fn look_at_bells_of(&mut self, index: usize) {
        let Some(controller) = self.members.get_mut(index) else {
            // After the controllers come the guests.
            if let Some(guest) = index.checked_sub(self.members.places()) {
                self.look_at_bells_of_guest(guest);
            }
            return;
        };
        let lanes = &mut self.lanes;
        let admin = controller.look_at_doorbells(|key| {
            // A head that no command waits for, for example, is no work.
            if lanes.get_mut(key).is_some_and(|lane| lane.is_rung()) {
                lanes.warm(key);
            }
        });
        if admin {
            self.turns_to_look = 0;
            self.members.heat(index);
        }
    }

    /// Controllers whose admin commands wait until the messages of their hosts have been read
    /// ([`Controller::messages_read`]): read those now, even if no socket reports any.
    pub fn take_messages_wanted(&mut self) -> Vec<ControllerSlot> {
        std::mem::take(&mut self.messages_wanted)
    }

    /// Gives every hot subsystem and controller a turn.
    fn turn_members(&mut self, now: Time, raise: &mut impl Interrupts) -> bool {
        let Engine {
            members,
            lanes,
            channels,
            interrupts_due,
            messages_wanted,
            ..
        } = self;
        let mut worked = members.turn_subsystems(now, channels);
        let mut every_turn = false;
        worked |= members.turn_controllers(|index, controller, subsystem, places| {
            if lanes.owes_much(index) {
                return (false, true);
            }
            let mut lanes = LanesOf {
                lanes,
                controller: index,
            };
            let worked = controller.turn(now, channels, &mut lanes, subsystem);
            for key in controller.take_kicks() {
                lanes.lanes.kick(key);
            }
            let raise = |interrupt| raise.raise(ControllerSlot(index), interrupt);
            controller.take_interrupts(now, &mut lanes, raise);
            lanes.lanes.place_lanes(index, controller, places, now);
            let due = controller.interrupts_due().unwrap_or(NEVER);
            *interrupts_due = (*interrupts_due).min(due);
            let unread = controller.waits_for_messages();
            if unread && !messages_wanted.contains(&ControllerSlot(index)) {
                messages_wanted.push(ControllerSlot(index));
            }
            every_turn |= unread || controller.is_arbitrating();
            (worked, controller.has_work())
        });
        if every_turn {
            self.turns_to_look = 1;
        }
        worked
    }

    /// Collects the interrupts of every controller beside those for entries that its lanes have
    /// just posted.
    fn take_interrupts(&mut self, now: Time, raise: &mut impl Interrupts) {
        self.interrupts_due = NEVER;
        for (index, controller) in self.members.iter_mut() {
            let due = controller.interrupts_due();
            if due.is_some_and(|due| now >= due) {
                let mut lanes = LanesOf {
                    lanes: &mut self.lanes,
                    controller: index,
                };
                let raise = |interrupt| raise.raise(ControllerSlot(index), interrupt);
                controller.take_interrupts(now, &mut lanes, raise);
            }
            let due = controller.interrupts_due().unwrap_or(NEVER);
            self.interrupts_due = self.interrupts_due.min(due);
        }
    }

    /// Interrupts of a controller may be due earlier than was thought.
    pub(crate) fn note_due(&mut self, slot: ControllerSlot) {
        let due = self
            .members
            .get_mut(slot.0)
            .and_then(|its| its.interrupts_due());
        self.interrupts_due = self.interrupts_due.min(due.unwrap_or(NEVER));
    }

    /// Submits and reaps every channel and completes finished commands. `TENANTS`: there may be
    /// tenants.
    #[inline]
    fn drive_channels<const TENANTS: bool>(&mut self, now: Time) -> bool {
        let mut worked = false;
        for (_, channel) in self.channels.iter_mut() {
            if channel.in_flight() > 0 {
                // A slice of a large command, if not all of it. One that keeps a time may only wait
                // for that; it is asked before, since after the last slice there may be room for a
                // command that waits.
                let due = || channel.next_due().is_some_and(|due| due <= now);
                worked |= channel.copies() && (!channel.keeps_time() || due());
                channel.submit();
                channel.reap(&mut self.done);
            }
        }
        worked | self.complete_done::<TENANTS>()
    }

    /// Completes commands that channels have returned. Returns whether there were any.
    #[inline]
    fn complete_done<const TENANTS: bool>(&mut self) -> bool {
        let worked = !self.done.is_empty();
        if worked {
            self.complete_each::<TENANTS>();
        }
        worked
    }

    // A part of the turn, as it always was: by itself it costs every command a few instructions.
    #[inline(always)]
    fn complete_each<const TENANTS: bool>(&mut self) {
        for Done { ticket, outcome } in self.done.drain(..) {
            let owner = ticket.owner();
            if owner.is_lane() {
                match self.lanes.warm(owner) {
                    Some(lane) => match &mut self.tenants {
                        Some(tenants) if TENANTS => {
                            lane.complete_through(ticket, outcome, &mut tenants.gate(None));
                        }
                        _ => lane.complete(ticket, outcome),
                    },
                    None => ticket.retire(),
                }
            } else if owner.is_controller() {
                self.members.heat(slot_of(owner));
                match self.members.get_mut(slot_of(owner)) {
                    Some(controller) if controller.key() == owner => {
                        controller.complete(ticket, outcome);
                    }
                    _ => ticket.retire(),
                }
            } else {
                debug_assert!(owner.is_subsystem(), "a channel's own: {ticket:?}");
                let slot = SubsystemSlot(slot_of(owner));
                self.members.heat_subsystem(slot.0);
                match self.members.subsystem_mut(slot) {
                    Some(subsystem) if subsystem.key() == owner => {
                        subsystem.complete(ticket, outcome);
                    }
                    _ => ticket.retire(),
                }
            }
        }
    }

    /// Whether a turn at `now` that found nothing is to be followed by another one at once.
    #[inline]
    #[must_use]
    pub fn spins(&self, now: Time) -> bool {
        self.waiting.spins(now)
    }

    /// Whether some subsystem may have a record or an answer to take since the last call.
    pub fn take_subsystem_news(&mut self) -> bool {
        self.members.take_news()
    }

    /// The action after a turn at `now` that found nothing. `unwoken`: a doorbell page is mapped
    /// into some host.
    pub fn idle(&mut self, now: Time, unwoken: bool, other_deadline: Option<Time>) -> Idle {
        let controllers = self.members.iter().filter_map(Controller::next_deadline);
        let subsystems = self.members.subsystems();
        let subsystems = subsystems.filter_map(Subsystem::next_deadline);
        let deadlines = controllers.chain(subsystems).chain(other_deadline);
        let deadlines = deadlines.chain(self.lanes.patience_ends());
        let leave = self
            .next_due()
            .map(|due| Time(due.0.saturating_sub(EARLY_NS)));
        let deadlines = deadlines.chain(leave);
        self.waiting.idle(now, unwoken, deadlines.min())
    }

    /// The engine's part of going to sleep; the caller has published that it sleeps. Arms every
    /// event index (queue 0 has none: its doorbells are always registers), then looks again: true
    /// means that nothing came meanwhile and the caller may wait for its descriptors.
    ///
    /// The race: a host stores a tail, then loads the event index; we store the event index, then
    /// load the tail. With a full fence between store and load on both sides at least one of the
    /// two sees the other's store, so either the host rings or we do not sleep (Base 2.1, Annex
    /// B.5).
    #[must_use]
    pub fn arm(&mut self) -> bool {
        self.lanes.arm_hot();
        memory::full_fence();
        for index in 0..self.bells() {
            self.look_at_bells_of(index);
        }
        let lanes = self.lanes.second_look();
        let members = self.members.heat_busy();
        if members {
            self.turns_to_look = 0;
        }
        let mail = !self.lanes.outbox.is_empty() || !self.posted.is_empty();
        !lanes && !members && !mail
    }
}
