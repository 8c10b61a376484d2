//! Admin commands that wait for a lane or a medium: what each waits for, and since when.
//!
//! Bounded: each holds a place in the admin completion queue, and there is one deletion per queue at most,
//! [`ABORT_LIMIT`] aborts, and one flush.

use crate::time::Time;

/// Abort commands that may be outstanding: ACL + 1.
pub(crate) const ABORT_LIMIT: usize = 4;

/// What a command waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// The lane lets go of the submission queue.
    DeleteSq { sqid: u16 },
    /// The lane stops.
    DeleteCq { cqid: u16 },
    /// The lane has looked for the command.
    Abort { sqid: u16, cid: u16 },
    /// Media are flushed, as the volatile write cache was turned off.
    FlushCache,
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
}

impl Pending {
    pub(crate) fn add(&mut self, cid: u16, waiting: Waiting, now: Time) {
        self.commands.push(WaitingCommand {
            cid,
            waiting,
            since: now,
        });
    }

    /// Takes out the oldest command that waits for this; its command identifier.
    pub(crate) fn take(&mut self, waiting: Waiting) -> Option<u16> {
        let index = self.commands.iter().position(|c| c.waiting == waiting)?;
        Some(self.commands.remove(index).cid)
    }

    pub(crate) fn aborts(&self) -> usize {
        let is_abort = |c: &&WaitingCommand| matches!(c.waiting, Waiting::Abort { .. });
        self.commands.iter().filter(is_abort).count()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &WaitingCommand> {
        self.commands.iter()
    }

    pub(crate) fn clear(&mut self) {
        self.commands.clear();
    }
}
