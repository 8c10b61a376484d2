//! A log that could not be written, and is written again.
//!
//! What failed to be written stays in memory and in its order, so that it can be written again: a
//! frame as a whole, at its place. After a crash in between the log ends in front of it. So an
//! error that passes, of a disk that was full for a while, costs nothing that was acknowledged.
//!
//! While the log is stalled it asks the medium for nothing by itself. A request that needs the log
//! has it **try** again, waits for that, and ends as the attempt has: so a host learns at once that
//! there is room again, and a disk that is full costs one write for each request.
//!
//! A flush that failed is remembered by the file below, which lets no later one succeed: what it
//! may have lost is not in memory any more.

use port::Outcome;

use super::{FRAMES, Frame, Journal, Move, SUPERBLOCK, SYNC, Stage};

/// Turns after which nobody can learn any more how an attempt has ended: who waited for it was
/// there in the next one.
const VERDICT_TURNS: u8 = 3;

/// Whether the log can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stall {
    None,
    /// It could not. `verdict`: for so many turns, whoever has waited for an attempt may learn that
    /// it failed.
    Stalled {
        outcome: Outcome,
        verdict: u8,
    },
    /// It is tried; somebody may wait for that.
    Trying {
        waits: bool,
    },
}

impl Stall {
    /// A turn has begun.
    pub(super) fn age(&mut self) {
        if let Stall::Stalled { verdict, .. } = self {
            *verdict = verdict.saturating_sub(1);
        }
    }
}

/// What somebody who needs the log may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writable {
    /// Go on.
    Yes,
    /// Ask again: it is being tried.
    Later,
    /// It was tried, and failed so.
    No(Outcome),
}

impl Frame {
    /// All of a frame that has failed is written again, once the medium has none of it any more.
    pub(super) fn heal(&mut self) {
        if self.failed && self.pieces == 0 {
            (self.handed, self.failed) = (0, false);
        }
    }
}

impl Journal {
    /// How everything ends that waits for the log: it could not be written, and is not being tried.
    pub(crate) fn stalled(&self) -> Option<Outcome> {
        match self.stall {
            Stall::Stalled { outcome, .. } => Some(outcome),
            Stall::None | Stall::Trying { .. } => None,
        }
    }

    /// Whether someone should be told that an attempt has failed, which nobody has learnt yet.
    pub(crate) fn has_verdict(&self) -> bool {
        matches!(self.stall, Stall::Stalled { verdict: 1.., .. })
    }

    /// Whether something may be appended; has a log that is stalled try again.
    pub(crate) fn writable(&mut self) -> Writable {
        match &mut self.stall {
            Stall::None => Writable::Yes,
            Stall::Stalled { outcome, verdict } if *verdict > 0 => {
                *verdict = 0;
                Writable::No(*outcome)
            }
            Stall::Stalled { .. } => {
                self.stall = Stall::Trying { waits: true };
                self.recover_from_stall();
                match self.stall {
                    Stall::None => Writable::Yes,
                    _ => Writable::Later,
                }
            }
            Stall::Trying { waits } => {
                *waits = true;
                Writable::Later
            }
        }
    }

    /// Has a log that is stalled try again, for something that waits for its frames, or as there
    /// may be room again.
    pub(crate) fn retry(&mut self) {
        if self.stalled().is_some() {
            self.stall = Stall::Trying { waits: false };
            self.recover_from_stall();
        }
    }

    /// A request of the journal's has failed.
    pub(super) fn failed(&mut self, number: u32, outcome: Outcome) {
        match number {
            SYNC => {
                if let Move::Sync { start, until, .. } = self.moving {
                    self.moving = Move::Waits { start, until };
                }
            }
            SUPERBLOCK => {
                if let Move::Superblock { going, .. } = &mut self.moving {
                    *going = false;
                }
            }
            piece => {
                let frame = &mut self.frames[piece as usize % FRAMES];
                frame.pieces -= 1;
                frame.failed = true;
                frame.heal();
            }
        }
        let verdict = match self.stall {
            Stall::Trying { waits: true } => VERDICT_TURNS,
            Stall::Stalled { verdict, .. } => verdict,
            Stall::None | Stall::Trying { .. } => 0,
        };
        if self.stall == Stall::None {
            tracing::warn!(
                ?outcome,
                "the log of a medium's state cannot be written: what it would have to say waits in memory, and is tried again with the next request that needs it"
            );
        }
        self.stall = Stall::Stalled { outcome, verdict };
    }

    /// An attempt has succeeded when nothing is left of what could not be written.
    pub(super) fn recover_from_stall(&mut self) {
        let sealed = |index: &usize| self.frames[*index].stage == Stage::Sealed;
        let is_done = !self.queue.iter().any(sealed) && self.moving == Move::None;
        if matches!(self.stall, Stall::Trying { .. }) && is_done {
            self.stall = Stall::None;
            tracing::info!("the log of a medium's state is written again");
        }
    }
}
