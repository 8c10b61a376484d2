//! Admin commands that wait for a lane or a medium: the event that each waits for, and since when.
//!
//! Bounded: each holds an entry of the admin completion queue, and there is at most one deletion
//! per queue, [`ABORT_LIMIT`] aborts, [`OPERATION_LIMIT`] operations of the subsystem, and one
//! flush.

use nvme_spec::Sqe;
use port::time::Time;

use crate::lane::AbortRequest;
use crate::state::{ABORT_LIMIT, AbortState};

/// Operations of the subsystem that one controller may have outstanding; with more, nothing is
/// fetched.
pub(crate) const OPERATION_LIMIT: usize = 16;

/// The event that a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The lane releases the submission queue.
    DeleteSq { sqid: u16 },
    /// The lane stops.
    DeleteCq { cqid: u16 },
    /// The lane has looked for the command.
    Abort(AbortRequest),
    /// Media are flushed, as the volatile write cache was turned off.
    FlushCache,
    /// The subsystem answers.
    Operation,
}

impl Waiting {
    /// Whether it is aborted after some time. Flushes and operations of the subsystem have their
    /// own bounds.
    pub(crate) fn is_bounded(self) -> bool {
        !matches!(self, Waiting::Operation | Waiting::FlushCache)
    }
}

/// A command that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingCommand {
    pub(crate) cid: u16,
    pub(crate) waiting: Waiting,
    /// When it was accepted.
    pub(crate) since: Time,
}

/// The commands that wait, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    commands: Vec<WaitingCommand>,
    /// Their commands, for the error log and a restart.
    asked: Vec<Named>,
}

/// A command, and its name over processes ([`subsystem::KeptAnswer`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) sqe: Sqe,
    pub(crate) name: u64,
}

impl Pending {
    pub(crate) fn add(&mut self, cid: u16, waiting: Waiting, now: Time) {
        self.commands.push(WaitingCommand {
            cid,
            waiting,
            since: now,
        });
    }

    /// Records a waiting command.
    pub(crate) fn note(&mut self, command: Named) {
        self.asked.push(command);
    }

    /// A command that waits.
    pub(crate) fn asked(&self, cid: u16) -> Option<&Named> {
        self.asked.iter().find(|asked| asked.sqe.cid == cid)
    }

    /// Removes the record of a command that waited; `None` for one that did not wait.
    pub(crate) fn take_asked(&mut self, cid: u16) -> Option<Named> {
        let index = self.asked.iter().position(|asked| asked.sqe.cid == cid)?;
        Some(self.asked.remove(index))
    }

    /// Takes out the oldest command that waits for this; its command identifier.
    pub(crate) fn take(&mut self, waiting: Waiting) -> Option<u16> {
        let index = self.commands.iter().position(|c| c.waiting == waiting)?;
        Some(self.commands.remove(index).cid)
    }

    /// Takes out the command with this identifier that waits for this.
    pub(crate) fn take_command(&mut self, cid: u16, waiting: Waiting) {
        let of_command = |c: &WaitingCommand| c.cid == cid && c.waiting == waiting;
        if let Some(index) = self.commands.iter().position(of_command) {
            self.commands.remove(index);
        }
    }

    pub(crate) fn operations(&self) -> usize {
        let is_operation = |c: &&WaitingCommand| c.waiting == Waiting::Operation;
        self.commands.iter().filter(is_operation).count()
    }

    /// The place of another Abort; none where [`ABORT_LIMIT`] are outstanding.
    pub(crate) fn place_of_abort(&self) -> Option<usize> {
        let numbers = self.commands.iter().filter_map(|c| match c.waiting {
            Waiting::Abort(AbortRequest { number, .. }) => Some(number),
            _ => None,
        });
        let taken: Vec<usize> = numbers.map(AbortState::place).collect();
        (0..ABORT_LIMIT).find(|place| !taken.contains(place))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WaitingCommand> {
        self.commands.iter()
    }
}
