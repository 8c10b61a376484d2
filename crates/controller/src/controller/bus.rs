//! Whether the function may issue memory requests (Bus Master Enable: PCI 3.0, 6.2.2; PCIe 6.0,
//! 7.5.1.1.3).
//!
//! While it may not, no command is fetched, no completion is posted, and no interrupt is sent by
//! MSI or MSI-X, which are memory writes; the transport keeps those. Nothing is lost: commands wait
//! in the host's rings, and completions of admin commands here. When the function leaves the bus,
//! the lanes first finish the commands that they had fetched, so that no medium holds an address of
//! the host. [`Controller::has_left_bus`] reports the end. Commands that still hang after
//! [`DEADLINE_NS`] are aborted and their mapping is kept, as for an unmap.
//!
//! A controller that is [halted](Controller::halt) is to move to another process: its lanes leave
//! the bus in the same way, and until no medium has anything of an aborted command. Admin commands
//! that wait complete, and none is fetched. One that is let go on serves at once only where its
//! queues may: while a reset ends them, or another server has the media, it stays halted until it
//! is quiet.
//!
//! It does NOT delay resets, shutdowns or register accesses: none of them touches the host's
//! memory.

use nvme_spec::Status;
use port::time::Time;

use super::{Controller, DEADLINE_NS};
use crate::lane::{LaneCommand, LaneTable};

/// The completion of an admin command that waits for the bus.
pub(super) type Withheld = (u16, [u32; 2], Status);

/// Whether a controller serves, as far as migrations are concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Halt {
    /// It does.
    #[default]
    No,
    /// It does not.
    Yes,
    /// It does not, until it is quiet: the queues that it has must not fetch again.
    UntilQuiet,
}

#[derive(Debug, Default)]
pub(super) struct Bus {
    /// The function may issue no memory requests.
    off: bool,
    /// It is to be copied, or was: it serves nothing.
    halted: Halt,
    /// It was on another server, and fetches when it serves again.
    pub(super) moved: bool,
    /// Counts the changes, so that the answer to an earlier one is recognised.
    round: u32,
    /// The lanes must be informed in the next turn.
    changed: bool,
    /// The time when commands in flight are aborted.
    deadline: Option<Time>,
    withheld: Vec<Withheld>,
}

impl Bus {
    pub(super) fn has_work(&self) -> bool {
        self.changed || !self.off && !self.withheld.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.deadline
    }

    /// Whether the lanes must be informed of a change, or a change waits for them.
    #[inline]
    pub(super) fn is_changing(&self) -> bool {
        self.changed || self.deadline.is_some()
    }

    /// Completions that wait for it.
    pub(super) fn withheld(&self) -> &[Withheld] {
        &self.withheld
    }

    /// A completion is to be posted when the function may, and when its turn comes.
    pub(super) fn withhold(&mut self, completion: Withheld) {
        self.withheld.push(completion);
    }

    /// The queues end, with their pending completions. Lanes that do not know yet that they may
    /// serve are not told so.
    pub(super) fn forget(&mut self) {
        self.withheld.clear();
        if self.changed && self.halted == Halt::No {
            self.halted = Halt::UntilQuiet;
        }
    }
}

impl Controller {
    /// Whether no issued command can still access the host's memory while the function may issue no
    /// requests. True if it may.
    #[must_use]
    pub fn has_left_bus(&self) -> bool {
        !self.bus.off || self.lanes_have_left()
    }

    fn lanes_have_left(&self) -> bool {
        let has_left = |left: u32| left == self.bus.round;
        let mut cqs = self.queues.cqs();
        !self.bus.changed && cqs.all(|(_, cq)| cq.lane.is_none() || has_left(cq.left_bus))
    }

    /// Has it serve nothing, or serve again. Halting is over when [`Self::has_halted`]; commands
    /// that hang are not aborted, so the caller bounds the wait. It serves again when its queues
    /// may fetch: if a reset is ending them, or another server has its media, not before it is
    /// quiet.
    pub fn halt(&mut self, halted: bool) {
        let was_halted = self.bus.halted != Halt::No;
        self.bus.halted = match halted {
            true => Halt::Yes,
            false if was_halted => Halt::UntilQuiet,
            false => Halt::No,
        };
        if halted && !was_halted {
            self.change_bus();
        }
        self.serve_when_quiet();
    }

    /// Lets it serve again, if that was asked for and its queues may fetch.
    pub(super) fn serve_when_quiet(&mut self) {
        let may_fetch = !self.is_stopping() && !self.holds.elsewhere();
        if self.bus.halted == Halt::UntilQuiet && (may_fetch || self.is_quiet()) {
            self.bus.halted = Halt::No;
            self.change_bus();
        }
    }

    /// Whether another server has its media, so that it must not be enabled.
    pub fn set_elsewhere(&mut self, elsewhere: bool) {
        self.holds.set_elsewhere(elsewhere);
        self.serve_when_quiet();
    }

    /// Whether it is halted, and its state can be copied: no command is in any stage, no admin
    /// command waits except for an event, and no reset or shutdown is in progress.
    #[must_use]
    pub fn has_halted(&self) -> bool {
        self.bus.halted != Halt::No
            && self.lanes_have_left()
            && self.bus.withheld.is_empty()
            && self.admin.pending.iter().next().is_none()
            && self.admin.interrupted.is_empty()
            && !self.is_transient()
            && self.has_replayed()
    }

    /// Whether interrupts by MSI and MSI-X may go out.
    #[must_use]
    pub fn may_master(&self) -> bool {
        !self.bus.off
    }

    /// Configuration space may say something else now.
    pub(super) fn follow_bus(&mut self) {
        let off = !self.function.config_space.may_master();
        if off == self.bus.off {
            return;
        }
        self.bus.off = off;
        self.change_bus();
        tracing::debug!(controller = self.config.name, off, "bus mastering changed");
        if !off {
            self.interrupts.recheck();
        }
    }

    fn change_bus(&mut self) {
        self.bus.round = self.bus.round.wrapping_add(1);
        self.bus.changed = true;
        self.bus.deadline = None;
        self.news.count();
    }

    /// Tells the lanes, and bounds the wait for them.
    #[cold]
    pub(super) fn advance_bus(&mut self, lanes: &mut impl LaneTable) -> bool {
        let changed = std::mem::take(&mut self.bus.changed);
        let round = self.bus.round;
        let off = self.bus.off;
        let halted = self.bus.halted != Halt::No;
        match (changed, off || halted) {
            (true, true) => {
                self.bus.deadline = off.then_some(self.now + DEADLINE_NS);
                self.tell_lanes(lanes, || LaneCommand::LeaveBus {
                    round,
                    idle: halted,
                });
            }
            (true, false) => {
                self.tell_lanes(lanes, || LaneCommand::TakeBus);
                if std::mem::take(&mut self.bus.moved) {
                    self.release(lanes);
                }
            }
            (false, _) => (),
        }
        if self.bus.deadline.is_some() && self.has_left_bus() {
            self.bus.deadline = None;
        }
        if let Some(deadline) = self.bus.deadline
            && self.now >= deadline
        {
            self.bus.deadline = None;
            self.tell_lanes(lanes, || LaneCommand::AbandonAll);
        }
        changed
    }

    /// A lane has nothing in flight any more.
    pub(super) fn lane_left_bus(&mut self, cqid: u16, round: u32) {
        if let Some(cq) = self.queues.cq_mut(cqid) {
            cq.left_bus = round;
        }
    }

    /// Keeps the completion of an admin command while it may not be posted; whether it did.
    pub(crate) fn withholds_completion(&mut self, completion: Withheld) -> bool {
        let off = self.bus.off;
        if off {
            self.bus.withheld.push(completion);
            // Its command waits for nothing else any more.
            self.save();
        }
        off
    }

    /// Posts the completions that had to wait.
    #[inline]
    pub(crate) fn post_withheld(&mut self) -> bool {
        if self.bus.withheld.is_empty() {
            return false;
        }
        // Completions that are not posted yet are saved with each one that is.
        while !self.bus.off && !self.bus.withheld.is_empty() {
            let (cid, dwords, status) = self.bus.withheld.remove(0);
            self.post_admin_with(cid, dwords, status);
        }
        true
    }

    /// Whether admin commands may be fetched, and their completions posted.
    pub(crate) fn serves_admin(&self) -> bool {
        !self.bus.off && self.bus.halted == Halt::No && !self.holds.until_release()
    }
}
