//! Answers of commands whose effect is in the record.
//!
//! A process may die between the moment at which a record with a command's effect is kept and the
//! command's completion. The record has the command's answer together with its effect, under the
//! command's *name*, which the controller has saved with the command: a process that continues
//! executes the command again, finds the answer, and changes nothing.
//!
//! Invariants: a record has an effect and its answer, or neither; an answer is there until its
//! command has completed, or its controller was reset. Names come from the controllers, begin with
//! a number that each process has of its own ([`super::SubsystemConfig::process`]), and are never
//! used twice.

use serde::{Deserialize, Serialize};

use super::set::ControllerId;

/// The name of a command that needs none: a second execution has the same effect and result.
pub const UNNAMED: u64 = 0;

/// The answer of a command whose effect is in the same record: success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptAnswer {
    /// The controller that has the command.
    pub controller: ControllerId,
    /// The command's name.
    pub name: u64,
    /// Dword 0 of its completion.
    pub dw0: u32,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    answer: KeptAnswer,
    /// The namespace whose reservation the command has changed, if it is such a command.
    reservation: Option<u32>,
    /// The command is being executed in this process.
    is_claimed: bool,
}

impl Known {
    fn is_of(&self, controller: ControllerId, name: u64) -> bool {
        (self.answer.controller, self.answer.name) == (controller, name)
    }
}

/// The answers of a subsystem.
#[derive(Debug, Default)]
pub(super) struct Answers(Vec<Known>);

impl Answers {
    /// Those that another process has kept.
    pub(super) fn found(answers: Vec<KeptAnswer>) -> Self {
        let known = |answer| Known {
            answer,
            reservation: None,
            is_claimed: false,
        };
        Answers(answers.into_iter().map(known).collect())
    }

    /// Whether the effect of a command is there.
    pub(super) fn has(&self, controller: ControllerId, name: u64) -> bool {
        self.0.iter().any(|it| it.is_of(controller, name))
    }

    /// Dword 0 of a command that is executed again, if its effect is there.
    pub(super) fn claim(&mut self, controller: ControllerId, name: u64) -> Option<u32> {
        let mut known = self.0.iter_mut();
        let known = known.find(|it| it.is_of(controller, name))?;
        known.is_claimed = true;
        Some(known.answer.dw0)
    }

    /// The effect of a command is there.
    pub(super) fn add(&mut self, answer: KeptAnswer, reservation: Option<u32>) {
        self.0.push(Known {
            answer,
            reservation,
            is_claimed: true,
        });
    }

    /// A command has completed, or its effect is undone.
    pub(super) fn remove(&mut self, controller: ControllerId, name: u64) {
        self.0.retain(|it| !it.is_of(controller, name));
    }

    /// No command of this controller is in flight.
    pub(super) fn forget(&mut self, controller: ControllerId) {
        self.0.retain(|it| it.answer.controller != controller);
    }

    /// Every command of this controller that is executed again has begun.
    pub(super) fn forget_unclaimed(&mut self, controller: ControllerId) {
        self.0
            .retain(|it| it.is_claimed || it.answer.controller != controller);
    }

    /// Those of commands that have changed the reservation of this namespace; `None`: the others.
    pub(super) fn of(&self, reservation: Option<u32>) -> Vec<KeptAnswer> {
        let of = self.0.iter().filter(|it| it.reservation == reservation);
        of.map(|it| it.answer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(controller: u16, name: u64) -> KeptAnswer {
        KeptAnswer {
            controller: ControllerId(controller),
            name,
            dw0: 7,
        }
    }

    #[test]
    fn an_answer_is_there_until_its_command_has_completed_or_cannot_come() {
        let mut answers = Answers::found(vec![answer(1, 5), answer(1, 6), answer(2, 5)]);
        answers.add(answer(2, 9), Some(3));
        let (first, second) = (ControllerId(1), ControllerId(2));
        assert_eq!(answers.claim(first, 4), None);
        assert_eq!(answers.claim(first, 5), Some(7));
        answers.forget_unclaimed(first);
        assert_eq!(answers.of(None), [answer(1, 5), answer(2, 5)]);
        assert_eq!(answers.of(Some(3)), [answer(2, 9)]);
        answers.remove(first, 5);
        assert_eq!(answers.of(None), [answer(2, 5)]);
        answers.forget(second);
        assert!(answers.of(None).is_empty() && answers.of(Some(3)).is_empty());
    }
}
