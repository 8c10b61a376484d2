//! Controller state that must outlive the serving process: area 0 of the state file, and area 1 for
//! the admin queue.
//!
//! Each area has two copies of the state. A change is written whole into the copies that are not
//! current, and then one word makes them current, the sequence number of area 0: a process that
//! dies leaves the state before the change or the state after it.
//!
//! A completion of the admin queue, like a lane's (see [`crate::state`]): the state with everything
//! that the command changed, the entry and the mark `posting`; then the entry in the host's memory;
//! then the new tail without the mark, in one word. An entry found with the mark is written again
//! at the saved tail, with the same contents.
//!
//! The state is written before another party can learn of it: after a write to a register or to
//! configuration space, before that is answered; after an admin command, before its completion is
//! posted; with a command that waits, before a lane or the subsystem acts on it.
//!
//! It does NOT restore anything: it is the layout that restoring builds on.

use std::sync::Arc;

use bitfield_struct::bitfield;
use memory::{Area, StateError, StateFile};
use nvme_spec::{Cqe, Sqe, Status};
use subsystem::UNNAMED;
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout};

use super::Controller;
use super::admin::events::{REQUESTS, TYPES};
use super::admin::features::{FeatureValues, Values};
use super::admin::reservations::NOTIFICATION_WORDS;
use super::admin::{AdminQueue, Named, Waiting};
use super::bus::Withheld;
use super::failure::RestoreError;
use crate::config::{ConfigError, ControllerConfig, MAX_IO_QUEUES};
use crate::lane::{AbortRequest, DOORBELLS, Registration, ShadowSpec};
use crate::pci;
use crate::registers::SavedRegisters;
use crate::state::{
    ABORT_LIMIT, BellState, FORMAT_VERSION, NAMED_SINCE, NUMBERED_SINCE, OLDEST_VERSION,
    area_bytes, ordered,
};

/// Area of the controller.
const CONTROLLER_AREA: usize = 0;
/// Area of the admin queue: 1 + queue identifier 0.
const ADMIN_AREA: usize = 1;
/// Admin commands that can wait: one deletion of each queue, the aborts, the subsystem's
/// operations, and one flush.
const WAITING: usize = 2 * MAX_IO_QUEUES as usize + ABORT_LIMIT + super::admin::OPERATION_LIMIT + 1;
/// Slots of a registration of doorbell buffers: its number, what each doorbell had, and a bit for
/// each that is known.
const REGISTRATION: usize = 1 + DOORBELLS + DOORBELLS.div_ceil(32);
/// Slots of an MSI-X table: four for each vector, the admin queue's among them.
const MSIX: usize = 4 * (MAX_IO_QUEUES as usize + 1);

/// The controller: registers, features, queues. Its slots are, for each copy, Error Recovery of
/// each namespace id, from 1, and then Reservation Notification Mask of each; after those of both
/// copies, the registration of doorbell buffers of each, for which files that were made before
/// version 6 have no room; the MSI-X table of each, since version 7; and then the reservation
/// notifications of each, since version 8.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ControllerState {
    /// How many changes were written up to this one. The copy with the larger number is current, in
    /// both areas.
    pub sequence: u64,
    /// Registers.
    pub registers: SavedRegisters,
    /// The first bytes of configuration space; the others never change.
    pub pci: [u8; pci::SAVED],
    /// 1: the host has set Bus Master Enable since power-on.
    pub mastered: u64,
    /// Features of the controller.
    pub features: FeatureValues,
    /// Doorbell Buffer Config: address of the shadow, and of EventIdx; both 0 where there is none.
    pub doorbell_buffers: [u64; 2],
    /// Bit `n`: completion queue `n + 1` exists. The area of any other has no lane.
    pub cqs: u64,
    /// Completion queue of each submission queue from 1 on; 0 where there is none. The rest of a
    /// queue's state is in its lane's area.
    pub sq_cqids: [u16; MAX_IO_QUEUES as usize],
    /// Queue Priority of each submission queue from 1 on.
    pub sq_priorities: [u8; MAX_IO_QUEUES as usize],
    /// Address of each of them: a lane may not have it yet.
    pub sq_bases: [u64; MAX_IO_QUEUES as usize],
    /// Size of each of them, 0's based.
    pub sq_sizes: [u16; MAX_IO_QUEUES as usize],
}

/// The next entry of the admin completion queue. All 0 where there is no admin queue.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AdminTail {
    /// Its position.
    pub tail: u16,
    /// The phase that it gets.
    pub phase: bool,
    /// [`AdminState::cqe`] is being posted there.
    pub posting: bool,
    /// There is an admin queue.
    pub exists: bool,
    #[bits(13)]
    __: u16,
}

/// Lists of changes that were not empty: after a death the host is to look at everything.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Unread {
    /// The Changed Attached Namespace List.
    pub namespaces: bool,
    /// A Changed Zone List.
    pub zones: bool,
    #[bits(6)]
    __: u8,
}

open_enum! {
    /// Event that an admin command waits for.
    pub struct WaitingKind(u16) {
        /// The deletion of a submission queue.
        DELETE_SQ = 1;
        /// The deletion of a completion queue.
        DELETE_CQ = 2;
        /// An abort.
        ABORT = 3;
        /// The flush of media whose volatile write cache is turned off.
        FLUSH_CACHE = 4;
        /// An operation of the subsystem.
        OPERATION = 5;
        /// Nothing: it has ended, and its completion is to be posted, which may wait for the bus.
        ENDED = 6;
    }
}

/// The admin queue's positions and held requests. Its slots are, for each copy, the commands that
/// wait.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AdminState {
    /// The next entry to fetch.
    pub sq_head: u32,
    /// The next entry to post to, and whether that is being done.
    pub cq_tail: AdminTail,
    /// Slots in use.
    pub waiting: u32,
    /// Held Asynchronous Event Requests.
    pub held: u32,
    /// Their command identifiers.
    pub held_cids: [u16; REQUESTS],
    /// Bit `n`: request `n` of [`AdminState::aborted_cids`] was aborted, and waits for a place.
    pub aborted: u32,
    /// Command identifiers of requests that were held and aborted.
    pub aborted_cids: [u16; REQUESTS],
    /// Events that wait to be reported, a bit each.
    pub events_raised: u32,
    /// For each type of events, the one that was reported last and not read about, plus one.
    pub events_told: [u8; TYPES],
    /// The shadows of both doorbells when they were registered, where they are known.
    pub sq_shadow: u32,
    /// As `sq_shadow`.
    pub cq_shadow: u32,
    /// State of the doorbells.
    pub sq_bell: BellState,
    /// As `sq_bell`.
    pub cq_bell: BellState,
    /// Logs and events that the host has not read.
    pub unread: Unread,
    /// 0.
    pub reserved: u8,
    /// Aborts of commands for I/O that there were.
    pub aborts: u32,
    /// The last completion, without its phase.
    pub cqe: [u64; 2],
}

/// A command that waits for a lane, a medium or the subsystem.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct WaitingState {
    /// The first words of its submission queue entry, which the host may use for another command.
    /// Of one that has ended, Dwords 0 and 1 of its completion are the first word.
    pub sqe_begin: [u64; 2],
    /// Its name ([`subsystem::KeptAnswer`]); of an Abort, its number. Its entry has the Metadata
    /// Pointer here, which admin commands do not use, and so had the state before version 7.
    pub name: u64,
    /// The other words of its entry.
    pub sqe_end: [u64; 5],
    /// Its command identifier.
    pub cid: u16,
    /// Event that it waits for.
    pub kind: WaitingKind,
    /// The queue of that: it is deleted, or holds the command to abort. Of one that has ended, its
    /// status.
    pub qid: u16,
    /// The command to abort.
    pub target_cid: u16,
}

impl WaitingState {
    /// A command, without what it waits for.
    fn of(command: &Named) -> Self {
        let [first, second, _, rest @ ..] = command.sqe.to_words();
        WaitingState {
            sqe_begin: [first, second],
            name: command.name,
            sqe_end: rest,
            ..WaitingState::new_zeroed()
        }
    }

    /// The completion of a command that has ended.
    fn ended(&(cid, [dw0, dw1], status): &Withheld) -> Self {
        WaitingState {
            sqe_begin: [u64::from(dw0) | u64::from(dw1) << 32, 0],
            cid,
            kind: WaitingKind::ENDED,
            qid: status.0,
            ..WaitingState::new_zeroed()
        }
    }

    /// The command.
    pub(super) fn command(&self) -> Named {
        let ([first, second], [a, b, c, d, e]) = (self.sqe_begin, self.sqe_end);
        Named {
            sqe: Sqe::from_words([first, second, 0, a, b, c, d, e]),
            name: self.name,
        }
    }

    /// The completion of one that has ended.
    pub(super) fn completion(&self) -> Withheld {
        let [dwords, _] = self.sqe_begin;
        let dwords = [dwords as u32, (dwords >> 32) as u32];
        (self.cid, dwords, Status(self.qid))
    }
}

/// The state file, with both areas.
#[derive(Debug)]
pub(crate) struct Saved {
    file: Arc<StateFile>,
    controller: Area<[ControllerState; 2], u32>,
    admin: Area<[AdminState; 2], WaitingState>,
}

/// The state file of a controller: area 0 is its own, area 1 its admin queue's, area 1 + cqid a
/// lane's.
pub(super) fn create(
    config: &ControllerConfig,
    namespace_limit: u32,
) -> Result<Saved, ConfigError> {
    let namespaces = namespace_limit as usize;
    let mut areas = vec![
        size_of::<[ControllerState; 2]>().next_multiple_of(64)
            + controller_slots(namespaces) * size_of::<u32>(),
        size_of::<[AdminState; 2]>().next_multiple_of(64) + 2 * WAITING * size_of::<WaitingState>(),
    ];
    areas.resize(
        2 + usize::from(config.queues),
        area_bytes(config.queue_depth.into()),
    );
    let file =
        StateFile::create(&config.name, FORMAT_VERSION, &areas).map_err(ConfigError::State)?;
    Ok(Saved {
        controller: file.take(CONTROLLER_AREA, controller_slots(namespaces))?,
        admin: file.take(ADMIN_AREA, 2 * WAITING)?,
        file,
    })
}

/// Saved state of a process that died.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) state: ControllerState,
    /// Of each namespace id.
    pub(super) error_recovery: Vec<u32>,
    pub(super) reservation_masks: Vec<u32>,
    /// Number and initial values of the registration of doorbell buffers.
    pub(super) registration: (u32, [Option<u32>; DOORBELLS]),
    /// The MSI-X table, of a process that has saved it.
    pub(super) msix: Option<Vec<u8>>,
    /// The reservation notifications, of a file with room for them.
    pub(super) notifications: Option<Vec<u32>>,
    pub(super) admin: AdminState,
    pub(super) waiting: Vec<WaitingState>,
}

impl Saved {
    /// The state of a process that died, of a controller with so many namespace ids.
    ///
    /// # Errors
    /// The file is of another version, or of another controller.
    pub(super) fn adopt(
        file: Arc<StateFile>,
        namespace_limit: u32,
    ) -> Result<(Self, Found), RestoreError> {
        let found = file.format_version();
        if !(OLDEST_VERSION..=FORMAT_VERSION).contains(&found) {
            return Err(RestoreError::Version { found });
        }
        let namespaces = namespace_limit as usize;
        let slots = controller_slots(namespaces);
        // A process of version 7, of version 6, or of version 5 or before, has made the file.
        let seventh = slots - 2 * NOTIFICATION_WORDS;
        let older = [seventh, seventh - 2 * MSIX, 2 * 2 * namespaces];
        let mut controller = file.adopt(CONTROLLER_AREA, slots);
        for slots in older {
            if matches!(controller, Err(StateError::TooLarge { .. })) {
                controller = file.adopt(CONTROLLER_AREA, slots);
            }
        }
        let mut saved = Saved {
            controller: controller?,
            admin: file.adopt(ADMIN_AREA, 2 * WAITING)?,
            file,
        };
        let current = saved.current();
        let (head, slots) = saved.controller.parts();
        let slots = ControllerSlots::of(slots, current, namespaces);
        let (error_recovery, reservation_masks) = (slots.recovery.to_vec(), slots.masks.to_vec());
        let registration = slots
            .registration
            .map_or((0, [None; DOORBELLS]), |it| found_bells(it));
        // An older process does not write there.
        let msix = slots.msix.filter(|_| found >= NAMED_SINCE);
        let msix = msix.map(|words| words.as_bytes().to_vec());
        let notifications = slots.notifications.map(|words| words.to_vec());
        let (admin, waiting) = saved.admin.parts();
        let admin = admin[current];
        let waiting = half(waiting, current).get(..admin.waiting as usize);
        let waiting = waiting.ok_or(RestoreError::Damaged("too many commands wait"))?;
        let mut waiting = waiting.to_vec();
        if found < NAMED_SINCE {
            waiting.iter_mut().for_each(|it| it.name = UNNAMED);
        }
        if found < NUMBERED_SINCE {
            let aborts = waiting
                .iter_mut()
                .filter(|it| it.kind == WaitingKind::ABORT);
            aborts.for_each(|it| it.name = UNNAMED);
        }
        let found = Found {
            state: head[current],
            error_recovery,
            reservation_masks,
            registration,
            msix,
            notifications,
            admin,
            waiting,
        };
        Ok((saved, found))
    }

    /// The file is of this program's version from now on: the program before it does not go on any
    /// more.
    pub(super) fn renew_version(&self) {
        if let Err(error) = self.file.set_format_version(FORMAT_VERSION) {
            tracing::error!(%error, "the state file keeps its old version: upgrade again");
        }
    }

    /// Whether a process of another version has made the file.
    pub(super) fn is_old(&self) -> bool {
        self.file.format_version() != FORMAT_VERSION
    }

    /// The state file.
    pub(crate) fn file(&self) -> &Arc<StateFile> {
        &self.file
    }

    /// The copy that is current.
    fn current(&self) -> usize {
        let [first, second] = self.controller.head();
        usize::from(second.sequence > first.sequence)
    }
}

/// Slots of area 0, of a controller with so many namespace ids.
fn controller_slots(namespaces: usize) -> usize {
    2 * (2 * namespaces + REGISTRATION + MSIX + NOTIFICATION_WORDS)
}

/// The slots of area 0 that belong to a copy.
struct ControllerSlots<'a> {
    recovery: &'a mut [u32],
    masks: &'a mut [u32],
    /// None in a file that was made before version 6.
    registration: Option<&'a mut [u32]>,
    /// None in a file that was made before version 7.
    msix: Option<&'a mut [u32]>,
    /// None in a file that was made before version 8.
    notifications: Option<&'a mut [u32]>,
}

impl<'a> ControllerSlots<'a> {
    fn of(slots: &'a mut [u32], copy: usize, namespaces: usize) -> Self {
        let (features, rest) = slots.split_at_mut(2 * 2 * namespaces);
        let (registrations, rest) = rest.split_at_mut(rest.len().min(2 * REGISTRATION));
        let (tables, notifications) = rest.split_at_mut(rest.len().min(2 * MSIX));
        let (recovery, masks) = half(features, copy).split_at_mut(namespaces);
        ControllerSlots {
            recovery,
            masks,
            registration: (!registrations.is_empty()).then(|| half(registrations, copy)),
            msix: (!tables.is_empty()).then(|| half(tables, copy)),
            notifications: (!notifications.is_empty()).then(|| half(notifications, copy)),
        }
    }
}

/// A registration, to its slots.
fn save_bells(to: &mut [u32], count: u32, initial: &[Option<u32>; DOORBELLS]) {
    let (head, values) = to.split_at_mut(1);
    let (values, known) = values.split_at_mut(DOORBELLS);
    head[0] = count;
    known.fill(0);
    for (slot, value) in initial.iter().enumerate() {
        values[slot] = value.unwrap_or(0);
        known[slot / 32] |= u32::from(value.is_some()) << (slot % 32);
    }
}

/// The number and the initial values in such slots.
fn found_bells(from: &[u32]) -> (u32, [Option<u32>; DOORBELLS]) {
    let (values, known) = from[1..].split_at(DOORBELLS);
    let is_known = |slot: usize| known[slot / 32] >> (slot % 32) & 1 == 1;
    let initial = std::array::from_fn(|slot| is_known(slot).then_some(values[slot]));
    (from[0], initial)
}

/// The half of the slots that belongs to a copy.
fn half<S>(slots: &mut [S], copy: usize) -> &mut [S] {
    let len = slots.len() / 2;
    &mut slots[copy * len..][..len]
}

impl Controller {
    /// Writes the persistent state.
    pub(crate) fn save(&mut self) {
        let current = self.saved.current();
        let admin = self.saved.admin.head()[current];
        self.save_with(admin.cq_tail.posting(), admin.cqe);
    }

    /// Writes the persistent state, with the last completion and whether it is being posted.
    fn save_with(&mut self, posting: bool, cqe: [u64; 2]) {
        let current = self.saved.current();
        let next = 1 - current;
        let Values {
            controller: values,
            error_recovery,
            reservation_masks,
        } = &self.features.current;
        let doorbell_buffers = self.doorbells.shadow.as_ref().map_or([0; 2], |it| {
            let ShadowSpec { shadow, event_idx } = it.spec();
            [shadow.0, event_idx.0]
        });
        let (head, slots) = self.saved.controller.parts();
        head[next] = ControllerState {
            // It is not current before the end.
            sequence: head[next].sequence,
            registers: self.registers.saved(),
            pci: self.function.config_space.saved(),
            mastered: self.function.config_space.was_mastered().into(),
            features: *values,
            doorbell_buffers,
            cqs: self.queues.saved_cqs(),
            sq_cqids: self.queues.saved(),
            sq_priorities: self.queues.saved_priorities(),
            sq_bases: self.queues.saved_bases(),
            sq_sizes: self.queues.saved_sizes(),
        };
        let slots = ControllerSlots::of(slots, next, error_recovery.len());
        slots.recovery.copy_from_slice(error_recovery);
        slots.masks.copy_from_slice(reservation_masks);
        if let Some(to) = slots.registration {
            let initial = self
                .doorbells
                .shadow
                .as_ref()
                .map(Registration::all_initial);
            let none = [None; DOORBELLS];
            save_bells(to, self.doorbells.registrations, initial.unwrap_or(&none));
        }
        if let Some(to) = slots.msix {
            let table = self.function.msix.table();
            to.as_mut_bytes()[..table.len()].copy_from_slice(table);
        }
        if let Some(to) = slots.notifications {
            self.admin.notifications.save(to);
        }
        ordered();

        let tail = self.admin_tail();
        let (events_raised, events_told) = self.admin.events.saved();
        let bells = |admin: &mut AdminQueue| (admin.sq.saved_bell(), admin.cq.saved_bell());
        let bells = self.admin.queue.as_mut().map(bells);
        let ((sq_shadow, sq_bell), (cq_shadow, cq_bell)) = bells.unwrap_or_default();
        let held = self.admin.events.held();
        let mut held_cids = [0; REQUESTS];
        held_cids[..held.len()].copy_from_slice(held);
        let mut aborted_cids = [0; REQUESTS];
        let mut aborted = 0;
        for (at, (to, cid)) in
            (aborted_cids.iter_mut().zip(&self.admin.aborted_requests)).enumerate()
        {
            *to = *cid;
            aborted |= 1 << at;
        }
        let (head, slots) = self.saved.admin.parts();
        let mut waiting = 0;
        for (slot, command) in half(slots, next).iter_mut().zip(self.admin.pending.iter()) {
            let (kind, qid, target_cid) = match command.waiting {
                Waiting::DeleteSq { sqid } => (WaitingKind::DELETE_SQ, sqid, 0),
                Waiting::DeleteCq { cqid } => (WaitingKind::DELETE_CQ, cqid, 0),
                Waiting::Abort(AbortRequest { sqid, cid, .. }) => (WaitingKind::ABORT, sqid, cid),
                Waiting::FlushCache => (WaitingKind::FLUSH_CACHE, 0, 0),
                Waiting::Operation => (WaitingKind::OPERATION, 0, 0),
            };
            let asked = self.admin.pending.asked(command.cid);
            *slot = WaitingState {
                cid: command.cid,
                kind,
                qid,
                target_cid,
                ..asked.map_or_else(WaitingState::new_zeroed, WaitingState::of)
            };
            if let Waiting::Abort(request) = command.waiting {
                slot.name = request.number.into();
            }
            waiting += 1;
        }
        let withheld = self.bus.withheld();
        for (slot, completion) in half(slots, next)[waiting..].iter_mut().zip(withheld) {
            *slot = WaitingState::ended(completion);
            waiting += 1;
        }
        head[next] = AdminState {
            sq_head: self.admin.queue.as_ref().map_or(0, AdminQueue::head),
            cq_tail: tail.with_posting(posting),
            waiting: waiting as u32,
            held: held.len() as u32,
            held_cids,
            aborted,
            aborted_cids,
            events_raised,
            events_told,
            sq_shadow,
            cq_shadow,
            sq_bell,
            cq_bell,
            unread: Unread::new()
                .with_namespaces(!self.logs.changed_namespaces.is_empty())
                .with_zones(self.logs.changed_zones.first().is_some()),
            reserved: 0,
            aborts: self.admin.aborts,
            cqe,
        };
        ordered();
        let (head, _) = self.saved.controller.parts();
        head[next].sequence = head[current].sequence + 1;
        ordered();
    }

    /// Writes the persistent state, and that this completion is about to be posted.
    pub(crate) fn save_posting(&mut self, cqe: &Cqe) {
        self.save_with(true, cqe.to_words());
    }

    /// Writes that the completion was posted.
    pub(crate) fn save_posted(&mut self) {
        ordered();
        let tail = self.admin_tail();
        let current = self.saved.current();
        self.saved.admin.parts().0[current].cq_tail = tail;
        ordered();
    }

    /// The next entry of the admin completion queue, to which nothing is being posted.
    fn admin_tail(&self) -> AdminTail {
        let Some(admin) = &self.admin.queue else {
            return AdminTail::new();
        };
        let next = admin.cq.tail_and_phase();
        AdminTail::new()
            .with_tail(next.tail())
            .with_phase(next.phase())
            .with_exists(true)
    }
}

#[cfg(test)]
impl Controller {
    /// Contents of area 0.
    pub(super) fn saved_state(&self) -> ControllerState {
        self.saved.controller.head()[self.saved.current()]
    }

    /// Contents of area 1.
    pub(super) fn saved_admin(&self) -> AdminState {
        self.saved.admin.head()[self.saved.current()]
    }

    /// Its first command that waits.
    pub(super) fn saved_waiting(&self) -> WaitingState {
        self.saved.admin.slots()[self.saved.current() * WAITING]
    }
}
