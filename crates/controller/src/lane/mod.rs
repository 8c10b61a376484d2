//! A lane: one completion queue with every submission queue that completes into it. The unit of
//! placement.
//!
//! This is the command path. A turn checks the doorbells, fetches a bounded batch, parses, checks
//! and walks each command, and adds it to its medium's channel; completions come back through
//! [`Lane::complete`].
//!
//! Invariants:
//! - A command is fetched only when an entry of the completion queue and a slot are reserved for
//!   it. A full completion queue stalls its submission queues, and nothing is lost.
//! - An entry is read once, into its slot. Every fetched command completes exactly once: its ticket
//!   is the obligation.
//! - A submission queue's commands are issued in order; if a channel is full, the command waits at
//!   the head of its queue, holding no address of the host.
//! - A command of several steps continues from turn to turn, beside its queue and not at its head
//!   (`steps`).
//! - An aborted command completes at once and leaves a zombie: a slot, but no entry of the
//!   completion queue, until its ticket comes back, which posts nothing.
//! - A command identifier that is already outstanding is not detected: it would take a table of
//!   65,536 bits for each queue and two touches of it per command, to report a host's own mistake
//!   (Base 2.1, 4.1.1). Slots and tickets do not depend on identifiers, so such commands both
//!   complete.
//! - A command whose flow may not go waits beside its queue ([`crate::gate`], `held`).
//! - Abort reaches a command that waits in the lane. It does not search the host's ring, as entries
//!   are read once; a command in a medium ends by itself. Abort is best effort (Base 2.1, 5.1.1).
//!
//! It does NOT submit or reap channels, decide on interrupts (`crate::controller` does), or know
//! when to sleep: the engine does. It does NOT know whether doorbells are mapped: mapped or
//! trapped, values are stored in the same slots.

mod admission;
mod advance;
mod allocation;
mod complete;
mod control;
mod doorbells;
mod epochs;
mod fetch;
mod forward;
mod fused;
mod held;
mod inspection;
mod issue;
mod issue_once;
mod member;
mod message;
mod outcome;
mod place;
mod plan;
mod polling;
mod queues;
mod release;
mod replays;
mod reports;
mod restore;
mod restrictions;
mod service;
mod share;
mod singles;
mod slots;
mod steps;
mod straight;
mod unannounced;
mod watch;
mod watched;

use std::collections::VecDeque;
use std::sync::Arc;

use arrayvec::ArrayVec;
use memory::{Area, DmaView, DoorbellPages, Hint, Iova, MailCount, ShadowDoorbells};
use nvme_spec::{Sqe, Status};
use port::namespace::NamespaceTable;
use port::prp::Segments;
use port::ticket::{OwnerKey, Ticket};
use port::time::Time;
use port::{ByteRange, Channel, Channels, Outcome};

use self::doorbells::Doorbells;
use self::epochs::Epochs;
pub use self::fetch::BATCH;
use self::issue::Issuer;
pub(crate) use self::message::DOORBELLS;
pub use self::message::{
    AbortRequest, Answered, Copying, Demand, FailedCommand, KnownSq, LaneCommand, LaneEvent,
    LaneFault, LaneTable, LaneTurn, Posted, QueueName, Quota, Registration, ShadowSpec, SqSpec,
};
use self::place::Place;
use self::queues::Queues;
use self::replays::Replays;
use self::reports::Reports;
pub use self::restore::{RestoreError, Suspects, is_trying};
use self::service::Service;
use self::share::Share;
use self::singles::Singles;
use self::slots::Slots;
use self::unannounced::Unannounced;
use crate::counters::LaneCounters;
use crate::gate::{Gate, Open, Watched};
use crate::inspect;
use crate::queue::{Bells, Cq, QueueError};
use crate::state::{MAX_SQS, QueueHead, QueueState, SlotState};

/// Configuration of a lane.
#[derive(Debug)]
pub struct LaneConfig {
    /// Identifier of the completion queue.
    pub cqid: u16,
    /// Its size.
    pub entries: u32,
    /// Address of its ring, 4 KiB aligned.
    pub base: Iova,
    /// Its interrupt vector, or `None` where interrupts are not enabled (IEN = 0).
    pub vector: Option<u16>,
    /// The doorbell pages. The queue's slot is zero by now: the creator of a queue clears it before
    /// the Create command completes.
    pub doorbells: Arc<DoorbellPages>,
    /// The host's doorbell buffers, where it registered some.
    pub shadow: Option<Registration>,
    /// The host's memory. A lane begins drained up to this view's epoch, and does not tell so.
    pub view: Arc<DmaView>,
    /// The attached namespaces.
    pub namespaces: Arc<NamespaceTable>,
    /// The generation of that table. A lane begins drained up to it, and does not tell so.
    pub generation: u64,
    /// Zeroed, with at least [`crate::state::slots_for`] slots.
    pub state: Area<QueueState, SlotState>,
    /// Most bytes of one command, at most [`port::prp::MAX_TRANSFER`].
    pub mdts_bytes: u32,
    /// Whether the volatile write cache is disabled.
    pub write_through: bool,
    /// The limit of each submission queue's fetches in a turn.
    pub quota: Quota,
    /// Limits of a Copy command.
    pub copying: Copying,
    /// Whether its host is inside the process, and may send [`port::allocation`] queries.
    pub is_inside: bool,
    /// Its counters.
    pub counters: Arc<LaneCounters>,
    /// Count of its controller's messages to its lanes.
    pub mail_count: Arc<MailCount>,
    /// The first of its names for commands ([`subsystem::KeptAnswer`]), which follow each other.
    pub first_name: u64,
}

impl LaneConfig {
    /// The part of the completion queue that is saved once.
    fn queue(&self) -> QueueHead {
        QueueHead {
            base: self.base.0,
            entries: self.entries,
            cqid: self.cqid,
            vector: self.vector,
        }
    }
}

/// One completion queue with every submission queue that completes into it.
#[derive(Debug)]
pub struct Lane {
    key: OwnerKey,
    /// Its key on its controller's reactor.
    home_key: OwnerKey,
    view: Arc<DmaView>,
    namespaces: Arc<NamespaceTable>,
    hint: Hint,
    /// Ranges of the Dataset Management command being issued.
    ranges: Vec<ByteRange>,
    /// Commands for the subsystem, at most as many as there are slots.
    forwards: VecDeque<subsystem::Forward>,
    /// The name of the next command that needs one.
    next_name: u64,
    mdts_bytes: u32,
    /// Every write is FUA.
    write_through: bool,
    copying: Copying,
    is_inside: bool,
    queues: Queues,
}

impl Lane {
    /// A lane without submission queues.
    ///
    /// # Errors
    /// The size cannot be, the ring or the doorbell buffers cannot be reached, or the state area is
    /// too small.
    pub fn new(config: LaneConfig) -> Result<Self, QueueError> {
        let LaneConfig {
            cqid,
            entries,
            base,
            ..
        } = config;
        let head = config.queue();
        let registration = config.shadow.clone();
        let shadow = registration.as_ref().map(|it| it.spec().find(&config.view));
        Self::with(config, shadow.transpose()?, |state, view, bells| {
            let mut cq = Cq::new(view, cqid, base, entries, bells)?;
            let mut slots = Slots::new(state, entries)?;
            let saved = slots.queue();
            head.write_to(saved);
            saved.cq_tail = cq.tail_and_phase();
            (saved.shadow, saved.bell) = cq.saved_bell();
            saved.registration = registration.map_or(0, |it| it.count());
            Ok((cq, slots))
        })
    }

    /// The lane of a process that died, with what that has left in the area. Its first turns
    /// execute again the commands that had no completion. Give it no turn before the media have
    /// ended what the process had asked for. The lane's submission queues are those of `sqs`: what
    /// the area has of any other is void, and one that it does not have was on its way to the lane.
    ///
    /// Commands that go on, in the order in which they were fetched:
    ///
    /// | found | goes on |
    /// |---|---|
    /// | a completion that was being written | is written again, with the same contents |
    /// | Read, Write, Flush, Write Zeroes, Compare, Dataset Management, Verify | again |
    /// | Copy | again; Command Interrupted where the destination overlaps a source |
    /// | a command of its namespace's set that repeats ([`CommandSet::repeats`]) | again |
    /// | any other that was not handed over | again |
    /// | any other, and fused commands | Command Interrupted |
    /// | a command of a queue that was being deleted | aborted, as by the deletion |
    /// | one by which the process may have died twice | as [`Suspects`] says |
    ///
    /// [`CommandSet::repeats`]: port::set::CommandSet::repeats
    ///
    /// # Errors
    /// What was saved contradicts itself or the configuration, or a queue cannot be reached.
    pub fn restore(
        config: LaneConfig,
        sqs: &[KnownSq],
        suspects: Suspects,
    ) -> Result<Self, RestoreError> {
        let head = config.queue();
        let registration = config.shadow.clone();
        let shadow = registration
            .as_ref()
            .map(|it| it.spec().find_again(&config.view));
        let mut lane = Self::with(config, shadow.transpose()?, |mut state, view, _| {
            if let Some(registration) = &registration {
                restore::register(state.parts().0, registration);
            }
            let cq = restore::completion_queue(&state, view, head)?;
            Ok::<_, RestoreError>((cq, Slots::restore(state)))
        })?;
        lane.queues.restore(
            sqs,
            &lane.view,
            &lane.namespaces,
            suspects,
            registration.as_ref(),
        )?;
        Ok(lane)
    }

    /// Commands of the process that died which do not go on because it may have died by them twice,
    /// each with the status that it gets.
    #[must_use]
    pub fn accused(&self) -> &[(Sqe, Status)] {
        &self.queues.replays.accused
    }

    /// A lane without submission queues, with the completion queue and the slots of `queues`.
    fn with<E: From<QueueError>>(
        config: LaneConfig,
        shadow: Option<ShadowDoorbells>,
        queues: impl FnOnce(
            Area<QueueState, SlotState>,
            &Arc<DmaView>,
            Bells<'_>,
        ) -> Result<(Cq, Slots), E>,
    ) -> Result<Self, E> {
        let LaneConfig {
            entries,
            vector,
            doorbells,
            view,
            namespaces,
            generation,
            state,
            mdts_bytes,
            write_through,
            quota,
            copying,
            is_inside,
            counters,
            mail_count,
            first_name,
            ..
        } = config;
        let doorbells = Doorbells::new(doorbells, shadow);
        let (cq, slots) = queues(state, &view, doorbells.bells())?;
        let queues = Queues {
            cq,
            sqs: (0..MAX_SQS).map(|_| None).collect(),
            order: ArrayVec::new(),
            first: 0,
            slots,
            share: Share::new(entries),
            epochs: Epochs::new(&view, generation),
            doorbells,
            service: Service::new(),
            in_flight: 0,
            blocked: false,
            kicked: false,
            ticks: 0,
            singles: Singles::default(),
            is_alone: false,
            unannounced: Unannounced::new(vector),
            clears: Vec::new(),
            reports: Reports::new(view.epoch(), generation),
            counters,
            quota,
            patience: 0,
            place: Place::at_home(mail_count),
            steps: None,
            held: held::Held::default(),
            replays: Replays::default(),
            watch: None,
        };
        Ok(Lane {
            key: OwnerKey::lane(0),
            home_key: OwnerKey::lane(0),
            view,
            namespaces,
            hint: Hint::default(),
            ranges: Vec::with_capacity(nvme_spec::command::DSM_RANGES_MAX),
            forwards: VecDeque::new(),
            next_name: first_name,
            mdts_bytes: mdts_bytes.min(port::prp::MAX_TRANSFER),
            write_through,
            copying,
            is_inside,
            queues,
        })
    }

    /// Identifier of the completion queue.
    #[must_use]
    pub fn cqid(&self) -> u16 {
        self.queues.cq.id()
    }

    /// Whose name its tickets carry.
    #[must_use]
    pub fn key(&self) -> OwnerKey {
        self.key
    }

    /// Gives it its place in the lane table of its controller's reactor. Before its first turn
    /// there.
    pub fn settle(&mut self, key: OwnerKey) {
        (self.key, self.home_key) = (key, key);
        self.queues.place.come_home();
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> &Arc<LaneCounters> {
        &self.queues.counters
    }

    /// Sets the time to `now`: it applies to commands fetched from here on.
    #[inline]
    pub fn note_time(&mut self, now: Time) {
        self.queues.ticks = inspect::tick_after(now);
    }

    /// Whether nothing else is hot where it has its turns: it may look for longer then.
    #[inline]
    pub fn set_alone(&mut self, is_alone: bool) {
        self.queues.is_alone = is_alone;
    }

    /// Checks the doorbells, fetches a bounded batch from each submission queue, and adds it to the
    /// media's channels. The caller then submits and reaps the channels, and passes their results
    /// to [`Lane::complete`].
    #[inline]
    pub fn turn<C: Channel>(&mut self, channels: &mut Channels<C>) -> LaneTurn {
        self.turn_through(channels, Open)
    }

    /// The same, for commands that go through a gate.
    #[inline]
    pub fn turn_through<C: Channel, G: Gate>(
        &mut self,
        channels: &mut Channels<C>,
        gate: G,
    ) -> LaneTurn {
        match self.queues.watch {
            None => self.turn_in(channels, gate),
            Some(_) => self.turn_watched(channels, gate),
        }
    }

    /// The same while commands are watched.
    #[inline(never)]
    fn turn_watched<C: Channel, G: Gate>(
        &mut self,
        channels: &mut Channels<C>,
        gate: G,
    ) -> LaneTurn {
        self.turn_in(channels, Watched(gate))
    }

    #[inline(always)]
    fn turn_in<C: Channel, G: Gate>(&mut self, channels: &mut Channels<C>, gate: G) -> LaneTurn {
        let Lane {
            key,
            home_key,
            view,
            namespaces,
            hint,
            ranges,
            forwards,
            next_name,
            mdts_bytes,
            write_through,
            copying,
            is_inside,
            queues,
        } = self;
        // Dropped where it is: `drop` would move it, all of its segments, wherever the compiler
        // does not inline that.
        let turn = {
            let mut issuer = Issuer {
                key: *key,
                home_key: *home_key,
                view,
                namespaces,
                channels,
                near: view.near(hint),
                copied: 0,
                hint,
                segments: Segments::new(),
                ranges,
                forwards,
                next_name,
                mdts_bytes: *mdts_bytes,
                write_through: *write_through,
                copying: *copying,
                is_inside: *is_inside,
                gate,
                clock: None,
                handed: None,
                range: None,
            };
            queues.turn(&mut issuer)
        };
        self.forward_clears();
        turn
    }

    /// A medium has ended a request of this lane: completes the command.
    #[inline]
    pub fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        self.queues.complete(ticket, outcome);
        self.forward_clears();
    }

    /// The same, for commands that went through a gate.
    pub fn complete_through<G: Gate>(&mut self, ticket: Ticket, outcome: Outcome, gate: &mut G) {
        let (index, generation) = ticket.place();
        self.queues.leave(index, generation, gate);
        self.complete(ticket, outcome);
    }

    /// Releases the gate's charge for every command of this lane: the lane ends, and no later
    /// completion of an aborted command is counted.
    pub fn leave<G: Gate>(&mut self, gate: &mut G) {
        self.queues.leave_all(gate);
    }

    /// Commands that wait for their flow's turn.
    #[must_use]
    pub fn held(&self) -> u32 {
        self.queues.held.count()
    }

    /// Completions posted since the last call; `None` if there were none, or interrupts are not
    /// enabled. Call it once per turn, so that a batch raises one interrupt.
    #[inline]
    pub fn take_posted(&mut self) -> Option<Posted> {
        let queues = &mut self.queues;
        if !queues.unannounced.is_any() {
            return None;
        }
        if let Some(watch) = &mut queues.watch
            && watch.has_posted()
        {
            watch.land_all();
        }
        queues.unannounced.take()
    }

    /// The completion queue's interrupt vector, where interrupts are enabled.
    #[must_use]
    pub fn vector(&self) -> Option<u16> {
        self.queues.unannounced.vector()
    }

    /// The completion queue's head, as the host has last reported it.
    #[must_use]
    pub fn head(&self) -> u32 {
        self.queues.cq.head()
    }

    /// Whether interrupts are enabled and the host has yet to acknowledge entries.
    #[must_use]
    pub fn is_unacknowledged(&self) -> bool {
        self.queues.is_unacknowledged()
    }

    /// The same, for the pin: a host with doorbell buffers is asked to ring for the next
    /// acknowledgement.
    pub fn asserts_pin(&mut self) -> bool {
        self.queues.asserts_pin()
    }

    /// A trapped doorbell write has arrived: there is something to look at. Its value is in the
    /// doorbell's slot.
    pub fn kick(&mut self) {
        self.queues.kicked = true;
    }

    /// Asks the host to ring from now on, if it registered doorbell buffers: for every submission
    /// queue from its next submission, and for the completion queue if that delays a command.
    /// Follow it with `memory::full_fence()` and [`Lane::has_work`] before sleeping: a host that
    /// stored a doorbell just before it could see this does not ring.
    pub fn arm(&mut self) {
        let bells = self.queues.doorbells.bells();
        for member in self.queues.sqs.iter().flatten() {
            member.sq.arm(bells);
        }
        if self.queues.blocked {
            self.queues.cq.arm(bells);
        }
    }

    /// Lets it rest without turns, if that loses nothing: from now on the host rings where it
    /// registered doorbell buffers. False where there is something to do, so that it needs another
    /// turn, or it is to move, which begins when a turn finds it empty. Doorbells in pages that a
    /// host has mapped are for others to watch ([`crate::Controller::look_at_doorbells`]).
    pub fn rest(&mut self) -> bool {
        if self.queues.doorbells.has_shadow() && !self.queues.service.is_still() {
            self.queues.counters.rests.add(1);
            self.arm();
            memory::full_fence();
        }
        !self.has_work() && !self.queues.service.is_to_move()
    }

    /// Whether it fetches as much as its controller has allotted, which then needs a turn before
    /// each of the lane's.
    #[inline]
    #[must_use]
    pub fn is_allotted(&self) -> bool {
        self.queues.quota == Quota::Allotted
    }

    /// True where there is an event or something for the subsystem to take.
    #[inline]
    #[must_use]
    pub fn has_news(&self) -> bool {
        !self.forwards.is_empty() || self.queues.has_event()
    }

    /// True where a turn would find something to do, or there is an event or an interrupt to take.
    /// Commands that wait for a channel are no work until it was reaped; commands that wait for a
    /// place in the completion queue are none until the host has consumed some.
    #[must_use]
    pub fn has_work(&self) -> bool {
        let unannounced = &self.queues.unannounced;
        let interrupt = unannounced.is_any() && unannounced.vector().is_some();
        interrupt || !self.forwards.is_empty() || self.queues.has_event() || self.queues.has_work()
    }

    /// Whether a changed doorbell is a reason for a turn: there is work, or an invalid head, which
    /// must be reported to the host.
    #[must_use]
    pub fn is_rung(&self) -> bool {
        let queues = &self.queues;
        self.has_work()
            || !queues.service.is_still() && queues.cq.has_bad_head(queues.doorbells.bells())
    }

    /// Commands in a medium, without aborted ones.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.queues.in_flight
    }
}

#[cfg(test)]
impl Lane {
    /// The next entries to post to and to be consumed.
    pub(crate) fn cq_positions(&self) -> (u32, u32) {
        (self.queues.cq.tail(), self.queues.cq.head())
    }

    /// The next entry to fetch of a submission queue of the lane.
    pub(crate) fn sq_head(&self, sqid: u16) -> Option<u32> {
        let member = self.queues.sqs.get(usize::from(sqid) - 1)?.as_ref()?;
        Some(member.sq.head())
    }
}

#[cfg(test)]
mod tests;
