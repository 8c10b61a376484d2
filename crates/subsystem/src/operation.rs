//! Operations: commands that take more than a turn, as lists of steps.
//!
//! [`super::schedule`] decides which of them run in parallel. A decision that depends on current
//! state is made when the operation begins ([`Step::Plan`]), together with its first changes: two
//! operations that want the same space or identifier never both get it. A step that fails ends its
//! operation with a status; the operation defines what to undo then ([`Operation::on_failure`]).

use std::collections::VecDeque;

use nvme_spec::Status;
use port::ticket::Ticket;
use port::time::Time;

use super::answers::UNNAMED;
use super::directory::Change;
use super::erase::{Erase, Erasing};
use super::request::Plan;
use super::reservation::{Host, ReservationCommand};
use super::set::ControllerId;

/// NSID of an [`Operation`] that concerns no namespace.
pub const NSID_NONE: u32 = 0;

/// Origin of an operation.
#[derive(Debug)]
pub enum Requester {
    /// An admin command of a controller, in this life of its admin queue.
    Admin {
        /// The controller.
        controller: ControllerId,
        /// Counts the controller's resets: the answer to a command of an earlier life is dropped.
        life: u32,
        /// Command identifier.
        cid: u16,
    },
    /// An I/O command of a controller; the ticket is the lane's.
    Io {
        /// The controller.
        controller: ControllerId,
        /// The command's ticket.
        ticket: Ticket,
    },
    /// The operator, with a token for the answer.
    Operator(u64),
    /// The subsystem itself; no caller waits for an answer.
    Internal,
}

impl Requester {
    pub(super) fn controller(&self) -> Option<ControllerId> {
        match self {
            Requester::Admin { controller, .. } | Requester::Io { controller, .. } => {
                Some(*controller)
            }
            Requester::Operator(_) | Requester::Internal => None,
        }
    }
}

/// Outcome of the operation of a controller's command.
#[derive(Debug)]
pub struct Answer {
    /// To whom.
    pub to: Requester,
    /// Dword 0 of the completion, or the error.
    pub result: Result<u32, Status>,
    /// Data for the host's memory.
    pub data: Vec<u8>,
    /// Command Specific Information of an error (Base 2.1, 5.1.12.1.2); 0 for none.
    pub information: u64,
    /// The command's name.
    pub name: u64,
}

impl Answer {
    /// Drops it: its requester is gone.
    pub(super) fn retire(self) {
        if let Requester::Io { ticket, .. } = self.to {
            ticket.retire();
        }
    }
}

/// One step of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Decide what to do, by the current state; the decision comes before the steps that follow.
    Plan(Box<Plan>),
    /// Edit the directory.
    Change(Change),
    /// Wait until nothing that was fetched before the last change is in flight anywhere.
    Drain,
    /// Do a reservation command; where that fails, the operation ends with its status.
    Reserve {
        /// Whose.
        host: Host,
        /// What.
        command: ReservationCommand,
    },
    /// Erase parts of media.
    Erase(Erase),
    /// Answer now; later steps run without a requester.
    Answer {
        /// Changes that undo it from now on if a step fails.
        on_failure: Vec<Change>,
    },
    /// Wait until the record, as it is now, is on stable storage.
    Keep,
}

/// Work of a command in the subsystem.
#[derive(Debug)]
pub struct Operation {
    /// Receiver of the answer.
    pub by: Requester,
    /// The namespace it is about; others may go on beside it. `NSID_ALL`: all of them;
    /// [`NSID_NONE`]: none.
    pub nsid: u32,
    /// Its steps, in order.
    pub steps: VecDeque<Step>,
    /// Dword 0 of the completion where all goes well.
    pub dw0: u32,
    /// Data for the host's memory on success.
    pub data: Vec<u8>,
    /// Command Specific Information of an error; 0 for none.
    pub information: u64,
    /// Changes that undo it if a step fails; without a wait after them.
    pub on_failure: Vec<Change>,
    /// Status for the host if a medium fails.
    pub failure: Status,
    /// The name of its command, with which another process finds the answer; or [`UNNAMED`].
    pub name: u64,
    /// Its answer is among those of the record.
    pub(super) is_answered: bool,
}

impl Operation {
    /// An operation of these steps.
    #[must_use]
    pub fn new(by: Requester, nsid: u32, steps: impl IntoIterator<Item = Step>) -> Self {
        Operation {
            by,
            nsid,
            steps: steps.into_iter().collect(),
            dw0: 0,
            data: Vec::new(),
            information: 0,
            on_failure: Vec::new(),
            failure: Status::INTERNAL_ERROR,
            name: UNNAMED,
            is_answered: false,
        }
    }

    /// Whether its whole effect is there: up to its answer it only waits.
    pub(super) fn has_acted(&self) -> bool {
        let steps = self.steps.iter();
        let mut before_answer = steps.take_while(|step| !matches!(step, Step::Answer { .. }));
        before_answer.all(|step| matches!(step, Step::Drain | Step::Keep))
    }

    /// Whether it only waits: later operations may begin.
    pub(super) fn only_waits(&self) -> bool {
        let waits = |step: &Step| matches!(step, Step::Drain | Step::Keep);
        self.on_failure.is_empty() && self.steps.iter().all(waits)
    }
}

/// The event that the current step waits for.
#[derive(Debug)]
pub(super) enum Wait {
    /// Its turn has not come, or the next step has not begun.
    None,
    /// Acknowledgements of this generation.
    Drain { generation: u64, since: Time },
    /// Media.
    Erase(Box<Erasing>),
    /// This version of the record.
    Keep { version: u64 },
}

/// An operation that has begun, or will.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) operation: Operation,
    pub(super) wait: Wait,
    /// Counts operations. Half of it goes with its tickets, so that a late one is recognised.
    pub(super) number: u64,
}

impl Running {
    /// Slot and generation in its tickets.
    pub(super) fn place(&self) -> (u16, u16) {
        (self.number as u16, (self.number >> 16) as u16)
    }
}

/// Result of advancing an operation.
#[derive(Debug)]
pub(super) enum Moved {
    /// It waits; whether it did anything.
    Waits(bool),
    /// It ended.
    Ended(Result<u32, Status>),
}
