//! Messages between engines, so that a lane may live on another reactor than its controller.
//!
//! The engine of the controller is the lane's *home*; on another engine the lane is a *visitor*.
//! Both write to each other by [`Mail`], which the caller carries from one engine to another:
//! completely, in order, and without loss. Its latency affects only the host: a visitor that knows
//! of mail in transit waits for it ([`memory::MailCount`]).
//!
//! How a lane moves: it is paused, so that it fetches nothing, and is *empty* when its commands
//! have completed. From its home it then leaves at once. From elsewhere it is handed back first:
//! its visitor's engine reports that it is empty, its home requests it and from then on keeps the
//! messages for it until it has arrived. So no command of its controller overtakes it in transit,
//! and no command of its host is ever in two places. A lane that does not become empty in time
//! continues where it was.

use controller::lane::{Answered, Lane, LaneCommand, LaneEvent, Posted};
use port::ticket::{OwnerKey, Ticket};
use subsystem::Forward;

use crate::slot::ControllerSlot;

/// A message from one engine to another, about the lane that has this key at its home.
#[derive(Debug)]
pub struct Mail {
    pub(crate) key: OwnerKey,
    pub(crate) about: About,
}

impl Mail {
    /// Whose lane it brings, if it brings one to live elsewhere.
    #[must_use]
    pub fn brings_lane_of(&self) -> Option<ControllerSlot> {
        match &self.about {
            About::Arrival(arrival) => Some(ControllerSlot(arrival.controller)),
            _ => None,
        }
    }

    /// Whether it is for a lane, from its home.
    pub(crate) fn is_from_home(&self) -> bool {
        match self.about {
            About::Arrival(_)
            | About::Command { .. }
            | About::Kick
            | About::Answer { .. }
            | About::Plain(_)
            | About::HandBack => true,
            About::Event(_)
            | About::Forward(_)
            | About::Posted(_)
            | About::Empty { .. }
            | About::Back(_) => false,
        }
    }
}

/// Content of a message.
#[derive(Debug)]
pub(crate) enum About {
    /// From its home: it comes to live here.
    Arrival(Box<Arrival>),
    /// From its home: a command, and its number among the messages.
    Command {
        command: LaneCommand,
        mail_count: usize,
    },
    /// From its home: its host has rung a doorbell that was not mapped.
    Kick,
    /// From its home: the subsystem's answer to a command.
    Answer { ticket: Ticket, result: Answered },
    /// From its home: whether its own reactor alone handles its interrupts.
    Plain(bool),
    /// From its home: hand it back. It is empty.
    HandBack,
    /// From a visitor.
    Event(LaneEvent),
    /// From a visitor: a command for the subsystem.
    Forward(Forward),
    /// From a visitor: it has posted, which is a reason to interrupt its host.
    Posted(Posted),
    /// From a visitor: it is paused, for the so-manyeth time, and holds nothing.
    Empty { pauses: u32 },
    /// From a visitor's engine: here it is.
    Back(Box<Lane>),
}

/// A lane that comes to live on another reactor.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) lane: Lane,
    /// Its controller's place at its home.
    pub(crate) controller: usize,
    /// Its doorbells are mapped into its host: no message announces that they are rung.
    pub(crate) silent: bool,
    pub(crate) plain: bool,
}

/// Why a lane was not moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoveError {
    /// There is no such queue.
    #[error("its host has no completion queue {0}")]
    NoQueue(u16),
    /// It is being moved already.
    #[error("completion queue {0} is already being moved: wait until the move ends")]
    Moving(u16),
    /// A command did not end in time; it goes on where it was.
    #[error(
        "completion queue {0} was not moved: its commands did not complete in time; check whether its medium hangs"
    )]
    Busy(u16),
    /// Interrupts, arbitration or an NBD client need it at home.
    #[error(
        "completion queue {0} stays on its controller's reactor: its host is an NBD client, uses MSI or pin interrupts, or has selected weighted round robin arbitration"
    )]
    MustStay(u16),
    /// The queue was deleted meanwhile.
    #[error("completion queue {0} was deleted before it was moved")]
    Gone(u16),
}
