//! Execution of operations, step by step.
//!
//! It does NOT choose which of them go on: [`super::schedule`] does.

use nvme_spec::Status;
use port::{Channel, Channels};

use super::Subsystem;
use crate::answers::{KeptAnswer, UNNAMED};
use crate::erase::{Budget, Erasing};
use crate::operation::{Answer, Moved, Operation, Requester, Running, Step, Wait};

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
            if begun.is_ok() {
                self.note_answer(operation);
            }
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
                let to = std::mem::replace(&mut operation.by, Requester::Internal);
                self.ended(to.controller());
                let data = std::mem::take(&mut operation.data);
                let name = std::mem::replace(&mut operation.name, UNNAMED);
                self.answer_to((to, name), data, 0, Ok(operation.dw0));
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

    /// From now on each record has the answer of an operation, if it has its effect.
    fn note_answer(&mut self, operation: &mut Operation) {
        let &mut Operation {
            ref by, name, dw0, ..
        } = operation;
        let Some(controller) = by.controller() else {
            return;
        };
        if name == UNNAMED || operation.is_answered || !operation.has_acted() {
            return;
        }
        // No process goes on with a dynamic controller.
        if controller.is_dynamic() {
            return;
        }
        // Of the commands on queues for I/O, only those of reservations have names.
        let reserves = matches!(by, Requester::Io { .. });
        let answer = KeptAnswer {
            controller,
            name,
            dw0,
        };
        let nsid = operation.nsid;
        self.answers.add(answer, reserves.then_some(nsid));
        operation.is_answered = true;
    }

    /// Undoes a failed operation; returns its final status.
    fn undo(&mut self, operation: &mut Operation, status: Status) -> Status {
        if let Some(controller) = operation.by.controller()
            && !operation.on_failure.is_empty()
        {
            self.answers.remove(controller, operation.name);
        }
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
        let to = (operation.by, operation.name);
        self.answer_to(to, operation.data, operation.information, result);
    }

    fn answer_to(
        &mut self,
        (to, name): (Requester, u64),
        data: Vec<u8>,
        information: u64,
        result: Result<u32, Status>,
    ) {
        let to = match to {
            Requester::Internal => return,
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
            name,
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
