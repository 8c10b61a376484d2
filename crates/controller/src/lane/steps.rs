//! The commands of a lane that take several steps: those that go on, and those that wait to.
//!
//! At most [`MOST`] go on at a time, as each holds memory of ours; the others wait in order of
//! arrival.
//!
//! It does NOT take a step ([`super::advance`] does), or know the steps of a command
//! ([`super::plan`] does).

use std::collections::VecDeque;

use arrayvec::ArrayVec;

use super::plan::{MOST, Plan, Room};

/// The commands of a lane that go on in steps, and those that wait to.
#[derive(Debug)]
pub(super) struct Steps {
    pub(super) going: ArrayVec<Going, MOST>,
    pub(super) waiting: VecDeque<u16>,
    /// Memory that is not in use.
    pub(super) spare: ArrayVec<Room, MOST>,
}

#[derive(Debug)]
pub(super) struct Going {
    pub(super) slot: u16,
    pub(super) at: At,
    pub(super) plan: Plan,
    /// Resources that a command with data holds until its end.
    pub(super) room: Option<Room>,
}

/// State of a running command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    /// Its next step can be asked for.
    Between,
    /// As well, and it found its channel full.
    Full,
    /// A medium is at its step.
    Step,
    /// It was aborted while a medium executed its step.
    GivenUp,
}

impl Going {
    /// No medium is at a step of it.
    pub(super) fn is_with_us(&self) -> bool {
        matches!(self.at, At::Between | At::Full)
    }
}

impl Steps {
    /// Room for every slot to wait.
    pub(super) fn new(slots: usize) -> Box<Self> {
        Box::new(Steps {
            going: ArrayVec::new(),
            waiting: VecDeque::with_capacity(slots),
            spare: ArrayVec::new(),
        })
    }

    /// True where a turn would find something to do. A command that found its channel full is no
    /// work before a reap.
    pub(super) fn is_due(&self) -> bool {
        let begins = !self.waiting.is_empty() && !self.going.is_full();
        begins || self.going.iter().any(|going| going.at == At::Between)
    }

    /// True where a turn may find something to do.
    pub(super) fn wants_turn(&self) -> bool {
        self.is_due() || self.going.iter().any(|going| going.at == At::Full)
    }

    /// The command at `at` has ended: its memory is free for another.
    pub(super) fn end(&mut self, at: usize) {
        if let Some(room) = self.going.swap_remove(at).room {
            self.spare.push(room);
        }
    }

    /// The slots of all of them.
    pub(super) fn slots(&self) -> impl Iterator<Item = u16> {
        let going = self.going.iter().map(|going| going.slot);
        going.chain(self.waiting.iter().copied())
    }

    pub(super) fn find(&self, slot: u16, at: At) -> Option<usize> {
        let mut going = self.going.iter();
        going.position(|going| going.slot == slot && going.at == at)
    }
}
