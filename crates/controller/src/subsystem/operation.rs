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
use port::{Channel, Channels};

use super::Subsystem;
use super::directory::Change;
use super::erase::{Budget, Erase, Erasing};
use super::plan::Plan;
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
    /// No caller waits for it.
    Nobody,
}

impl Requester {
    pub(super) fn controller(&self) -> Option<ControllerId> {
        match self {
            Requester::Admin { controller, .. } | Requester::Io { controller, .. } => {
                Some(*controller)
            }
            Requester::Operator(_) | Requester::Nobody => None,
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
        }
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

/// Result of a step.
enum Progress {
    /// It waits.
    Waits,
    /// The next step may begin.
    Next,
    /// It failed.
    Failed(Status),
}

impl Subsystem {
    /// Moves an operation on as far as it goes now.
    pub(super) fn advance_one<C: Channel>(
        &mut self,
        running: &mut Running,
        channels: &mut Channels<C>,
        budget: &mut Budget,
    ) -> Moved {
        let mut worked = false;
        loop {
            let polled = match self.poll_wait(running, channels, budget, &mut worked) {
                Progress::Waits => return Moved::Waits(worked),
                Progress::Failed(status) => Err(status),
                Progress::Next => Ok(()),
            };
            worked = true;
            let operation = &mut running.operation;
            let begun = polled.and_then(|()| match operation.steps.pop_front() {
                None => Ok(None),
                Some(step) => self.begin_step(operation, step).map(Some),
            });
            match begun {
                Ok(Some(wait)) => running.wait = wait,
                Ok(None) => return Moved::Ended(Ok(operation.dw0)),
                Err(status) => return Moved::Ended(Err(self.undo(operation, status))),
            }
        }
    }

    /// Begins a step; returns the event that it waits for.
    fn begin_step(&mut self, operation: &mut Operation, step: Step) -> Result<Wait, Status> {
        Ok(match step {
            Step::Plan(plan) => {
                for step in self.plan(*plan, operation)?.into_iter().rev() {
                    operation.steps.push_front(step);
                }
                Wait::None
            }
            Step::Change(change) => {
                self.apply(change, operation.by.controller())?;
                Wait::None
            }
            Step::Reserve { host, command } => {
                self.reserve(operation.nsid, host, &command)?;
                Wait::None
            }
            Step::Drain => Wait::Drain {
                generation: self.generation,
                since: self.now,
            },
            Step::Erase(erase) => Wait::Erase(Box::new(Erasing::new(erase))),
            Step::Answer { on_failure } => {
                operation.on_failure = on_failure;
                let to = std::mem::replace(&mut operation.by, Requester::Nobody);
                self.ended(to.controller());
                let data = std::mem::take(&mut operation.data);
                self.answer_to(to, data, 0, Ok(operation.dw0));
                Wait::None
            }
            Step::Keep => {
                if self.failed_version == self.version && !self.is_kept() {
                    // What could not be kept for others is tried again for this one.
                    self.touch();
                }
                Wait::Keep {
                    version: self.version,
                }
            }
        })
    }

    /// Undoes a failed operation; returns its final status.
    fn undo(&mut self, operation: &mut Operation, status: Status) -> Status {
        for change in std::mem::take(&mut operation.on_failure) {
            // What undoes something is no change that can fail.
            let undone = self.apply(change, operation.by.controller());
            debug_assert_eq!(undone, Ok(()));
        }
        status
    }

    fn poll_wait<C: Channel>(
        &mut self,
        running: &mut Running,
        channels: &mut Channels<C>,
        budget: &mut Budget,
        worked: &mut bool,
    ) -> Progress {
        let (slot, generation) = running.place();
        let name = (self.key, slot, generation);
        match &mut running.wait {
            Wait::None => Progress::Next,
            Wait::Drain { generation, .. } => {
                if self.is_drained(*generation) {
                    Progress::Next
                } else {
                    Progress::Waits
                }
            }
            Wait::Erase(erasing) => {
                *worked |= erasing.advance(name, channels, budget);
                self.directory.note_passes(erasing.passes_done());
                match erasing.ended_well() {
                    None => Progress::Waits,
                    Some(true) => Progress::Next,
                    Some(false) => Progress::Failed(running.operation.failure),
                }
            }
            Wait::Keep { version } => {
                if self.kept_version >= *version {
                    Progress::Next
                } else if self.failed_version >= *version {
                    Progress::Failed(Status::INTERNAL_ERROR)
                } else {
                    Progress::Waits
                }
            }
        }
    }

    fn is_drained(&self, generation: u64) -> bool {
        let mut present = self.members.iter().filter(|m| m.present);
        present.all(|m| m.acknowledged >= generation)
    }

    pub(super) fn answer(&mut self, operation: Operation, result: Result<u32, Status>) {
        self.answer_to(operation.by, operation.data, operation.information, result);
    }

    fn answer_to(
        &mut self,
        to: Requester,
        data: Vec<u8>,
        information: u64,
        result: Result<u32, Status>,
    ) {
        let to = match to {
            Requester::Nobody => return,
            Requester::Operator(token) => {
                return self.operator_answers.push_back((token, result));
            }
            to => to,
        };
        let id = to.controller();
        let answer = Answer {
            to,
            result,
            data,
            information,
        };
        match id.and_then(|id| self.member_mut(id)) {
            Some(member) if member.present => member.answers.push_back(answer),
            _ => answer.retire(),
        }
    }

    /// Whether a turn would advance an operation whose turn it is.
    pub(super) fn can_move(&self, running: &Running) -> bool {
        match &running.wait {
            Wait::None => true,
            Wait::Drain { generation, .. } => self.is_drained(*generation),
            // Completions come from a channel, whose descriptor wakes; so does room in one that was
            // full.
            Wait::Erase(erasing) => erasing.ended_well().is_some() || erasing.can_add(),
            Wait::Keep { version } => self.kept_version.max(self.failed_version) >= *version,
        }
    }
}
