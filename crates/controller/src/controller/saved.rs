//! Controller state that must outlive the serving process: area 0 of the state file, and area 1 for
//! the admin queue.
//!
//! A completion of the admin queue, like a lane's (see [`crate::state`]): the entry and the mark
//! `posting`, then everything else that the command changed, then the entry in the host's memory,
//! then the new tail without the mark. Both are in one word, so that no process dies between them.
//! An entry found with the mark is written again at the saved tail, with the same contents.
//!
//! The state is written before the host can learn of it: after a write to a register or to
//! configuration space, before that is answered; after an admin command, before its completion is
//! posted. It is rewritten whole. This does NOT restore anything yet; it is the layout that
//! restoring builds on.

use std::sync::Arc;

use bitfield_struct::bitfield;
use memory::{Area, StateFile};
use nvme_spec::Cqe;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Controller;
use super::admin::Waiting;
use super::admin::events::REQUESTS;
use super::admin::features::{FeatureValues, Values};
use crate::config::{ConfigError, ControllerConfig, MAX_IO_QUEUES};
use crate::lane::ShadowSpec;
use crate::pci;
use crate::registers::SavedRegisters;
use crate::state::{FORMAT_VERSION, area_bytes, ordered};

/// Area of the controller.
const CONTROLLER_AREA: usize = 0;
/// Area of the admin queue: 1 + queue identifier 0.
const ADMIN_AREA: usize = 1;
/// Admin commands that can wait: one deletion of each queue, the aborts, the subsystem's
/// operations, and one flush.
const WAITING: usize =
    2 * MAX_IO_QUEUES as usize + super::admin::ABORT_LIMIT + super::admin::OPERATION_LIMIT + 1;

/// The controller: registers, features, queues. Its slots are Error Recovery of each namespace id,
/// from 1, and then Reservation Notification Mask of each.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ControllerState {
    /// Registers.
    pub registers: SavedRegisters,
    /// The first bytes of configuration space; the others never change.
    pub pci: [u8; pci::SAVED],
    /// Features of the controller.
    pub features: FeatureValues,
    /// Doorbell Buffer Config: address of the shadow, and of EventIdx; both 0 where there is none.
    pub doorbell_buffers: [u64; 2],
    /// Completion queue of each submission queue from 1 on; 0 where there is none. What else there
    /// is to know of a queue is in its lane's area.
    pub sq_cqids: [u16; MAX_IO_QUEUES as usize],
    /// Queue Priority of each submission queue from 1 on.
    pub sq_priorities: [u8; MAX_IO_QUEUES as usize],
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

open_enum! {
    /// What an admin command waits for.
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
    }
}

/// The admin queue's positions and held requests. Its slots are the commands that wait.
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
    /// The last completion, without its phase.
    pub cqe: [u64; 2],
    /// 0.
    pub reserved: [u32; 2],
}

/// A command that waits for a lane.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct WaitingState {
    /// Its command identifier.
    pub cid: u16,
    /// What it waits for.
    pub kind: WaitingKind,
    /// The queue of that: it is deleted, or holds the command to abort.
    pub qid: u16,
    /// The command to abort.
    pub target_cid: u16,
}

/// The state file, with both areas.
#[derive(Debug)]
pub(crate) struct Saved {
    file: Arc<StateFile>,
    controller: Area<ControllerState, u32>,
    admin: Area<AdminState, WaitingState>,
}

/// The state file of a controller: area 0 is its own, area 1 its admin queue's, area 1 + cqid a
/// lane's.
pub(super) fn create(
    config: &ControllerConfig,
    namespace_limit: u32,
) -> Result<Saved, ConfigError> {
    let namespaces = namespace_limit as usize;
    let mut areas = vec![
        size_of::<ControllerState>().next_multiple_of(64) + 2 * namespaces * size_of::<u32>(),
        size_of::<AdminState>().next_multiple_of(64) + WAITING * size_of::<WaitingState>(),
    ];
    areas.resize(
        2 + usize::from(config.queues),
        area_bytes(config.queue_depth.into()),
    );
    let file =
        StateFile::create(&config.name, FORMAT_VERSION, &areas).map_err(ConfigError::State)?;
    Ok(Saved {
        controller: file.take(CONTROLLER_AREA, 2 * namespaces)?,
        admin: file.take(ADMIN_AREA, WAITING)?,
        file,
    })
}

impl Saved {
    /// The state file.
    pub(crate) fn file(&self) -> &Arc<StateFile> {
        &self.file
    }
}

impl Controller {
    /// Writes the persistent state.
    pub(crate) fn save(&mut self) {
        let Values {
            controller: values,
            error_recovery,
            reservation_masks,
        } = &self.features.current;
        let doorbell_buffers = self.doorbells.shadow.map_or([0; 2], |spec| {
            let ShadowSpec { shadow, event_idx } = spec;
            [shadow.0, event_idx.0]
        });
        let (head, slots) = self.saved.controller.parts();
        *head = ControllerState {
            registers: self.registers.saved(),
            pci: self.function.config_space.saved(),
            features: *values,
            doorbell_buffers,
            sq_cqids: self.queues.saved(),
            sq_priorities: self.queues.saved_priorities(),
        };
        let (of_recovery, of_masks) = slots.split_at_mut(error_recovery.len());
        of_recovery.copy_from_slice(error_recovery);
        of_masks.copy_from_slice(reservation_masks);

        let tail = self.admin_tail();
        let held = self.admin.events.held();
        let mut held_cids = [0; REQUESTS];
        held_cids[..held.len()].copy_from_slice(held);
        let (head, slots) = self.saved.admin.parts();
        let mut waiting = 0;
        for (slot, command) in slots.iter_mut().zip(self.admin.pending.iter()) {
            let (kind, qid, target_cid) = match command.waiting {
                Waiting::DeleteSq { sqid } => (WaitingKind::DELETE_SQ, sqid, 0),
                Waiting::DeleteCq { cqid } => (WaitingKind::DELETE_CQ, cqid, 0),
                Waiting::Abort { sqid, cid } => (WaitingKind::ABORT, sqid, cid),
                Waiting::FlushCache => (WaitingKind::FLUSH_CACHE, 0, 0),
                Waiting::Operation => (WaitingKind::OPERATION, 0, 0),
            };
            *slot = WaitingState {
                cid: command.cid,
                kind,
                qid,
                target_cid,
            };
            waiting += 1;
        }
        *head = AdminState {
            sq_head: self.admin.queue.as_ref().map_or(0, |admin| admin.sq.head()),
            cq_tail: tail.with_posting(head.cq_tail.posting()),
            waiting,
            held: held.len() as u32,
            held_cids,
            ..*head
        };
    }

    /// Writes the persistent state, and that this completion is about to be posted.
    pub(crate) fn save_posting(&mut self, cqe: &Cqe) {
        let (head, _) = self.saved.admin.parts();
        head.cqe = cqe.to_words();
        ordered();
        head.cq_tail.set_posting(true);
        ordered();
        self.save();
        ordered();
    }

    /// Writes that the completion was posted.
    pub(crate) fn save_posted(&mut self) {
        ordered();
        let tail = self.admin_tail();
        let (head, _) = self.saved.admin.parts();
        head.cq_tail = tail;
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
        *self.saved.controller.head()
    }

    /// Contents of area 1.
    pub(super) fn saved_admin(&self) -> AdminState {
        *self.saved.admin.head()
    }

    /// Its first command that waits.
    pub(super) fn saved_waiting(&self) -> WaitingState {
        self.saved.admin.slots()[0]
    }
}
