//! Controller state that must outlive the serving process: area 0 of the state file, and area 1 for
//! the admin queue.
//!
//! A completion of the admin queue, like a lane's (see [`crate::state`]): the entry and `posting` =
//! 1, then everything else that the command changed, then the entry in the host's memory, then
//! `cq_tail` with `posting` = 0. An entry found with `posting` set is written again at the
//! saved tail, with the same contents.
//!
//! The state is written before the host can learn of it: after a write to a register or to
//! configuration space, before that is answered; after an admin command, before its completion is
//! posted. It is rewritten whole. This does NOT restore anything yet; it is the layout that
//! restoring builds on.

use std::sync::Arc;

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
use crate::state::{FORMAT_VERSION, TailPhase, area_bytes, ordered};

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

/// The admin queue's positions and held requests. Its slots are the commands that wait.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AdminState {
    /// The next entry to fetch.
    pub sq_head: u32,
    /// The next entry to post to; 0 where there is no admin queue.
    pub cq_tail: TailPhase,
    /// Slots in use.
    pub waiting: u32,
    /// Held Asynchronous Event Requests.
    pub held: u32,
    /// Their command identifiers.
    pub held_cids: [u16; REQUESTS],
    /// The completion being posted, whose phase is in `cq_tail`.
    pub cqe: [u64; 2],
    /// 1 while it is being posted.
    pub posting: u32,
    /// 0.
    pub reserved: u32,
}

/// A command that waits for a lane.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct WaitingState {
    /// Its command identifier.
    pub cid: u16,
    /// 1: deletion of a submission queue; 2: of a completion queue; 3: abort; 4: the volatile write
    /// cache is turned off; 5: an operation of the subsystem.
    pub kind: u16,
    /// The queue that is deleted, or that holds the command to abort.
    pub qid: u16,
    /// The command to abort.
    pub target_cid: u16,
}

/// Both areas.
#[derive(Debug)]
pub(crate) struct Saved {
    controller: Area<ControllerState, u32>,
    admin: Area<AdminState, WaitingState>,
}

/// The state file of a controller: area 0 is its own, area 1 its admin queue's, area 1 + cqid a
/// lane's.
pub(super) fn create(
    config: &ControllerConfig,
    namespace_limit: u32,
) -> Result<(Arc<StateFile>, Saved), ConfigError> {
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
    let saved = Saved {
        controller: file.take(CONTROLLER_AREA, 2 * namespaces)?,
        admin: file.take(ADMIN_AREA, WAITING)?,
    };
    Ok((file, saved))
}

impl Controller {
    /// Writes the persistent state.
    pub(crate) fn save(&mut self) {
        let Values {
            controller: values,
            error_recovery,
            reservation_masks,
        } = &self.features.current;
        let doorbell_buffers = self.shadow.map_or([0; 2], |spec| {
            let ShadowSpec { shadow, event_idx } = spec;
            [shadow.0, event_idx.0]
        });
        let (head, slots) = self.saved.controller.parts();
        *head = ControllerState {
            registers: self.registers.saved(),
            pci: self.pci.saved(),
            features: *values,
            doorbell_buffers,
            sq_cqids: self.queues.saved(),
            sq_priorities: self.queues.saved_priorities(),
        };
        let (of_recovery, of_masks) = slots.split_at_mut(error_recovery.len());
        of_recovery.copy_from_slice(error_recovery);
        of_masks.copy_from_slice(reservation_masks);

        let held = self.events.held();
        let mut held_cids = [0; REQUESTS];
        held_cids[..held.len()].copy_from_slice(held);
        let (head, slots) = self.saved.admin.parts();
        let mut waiting = 0;
        for (slot, command) in slots.iter_mut().zip(self.pending.iter()) {
            let (kind, qid, target_cid) = match command.waiting {
                Waiting::DeleteSq { sqid } => (1, sqid, 0),
                Waiting::DeleteCq { cqid } => (2, cqid, 0),
                Waiting::Abort { sqid, cid } => (3, sqid, cid),
                Waiting::FlushCache => (4, 0, 0),
                Waiting::Operation => (5, 0, 0),
            };
            *slot = WaitingState {
                cid: command.cid,
                kind,
                qid,
                target_cid,
            };
            waiting += 1;
        }
        let admin = self.admin.as_ref();
        *head = AdminState {
            sq_head: admin.map_or(0, |admin| admin.sq.head()),
            cq_tail: admin.map_or(TailPhase::new(), |admin| admin.cq.tail_and_phase()),
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
        head.posting = 1;
        ordered();
        self.save();
        ordered();
    }

    /// Writes that the completion was posted.
    pub(crate) fn save_posted(&mut self) {
        ordered();
        let tail = self
            .admin
            .as_ref()
            .map_or(TailPhase::new(), |admin| admin.cq.tail_and_phase());
        let (head, _) = self.saved.admin.parts();
        (head.cq_tail, head.posting) = (tail, 0);
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
}
