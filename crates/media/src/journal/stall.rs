//! Recovery of a log after a failed write.
//!
//! Frames that could not be written stay in memory, in order, so that they can be written again:
//! each as a whole, at its position. After a crash in between the log ends before them. So a
//! temporary error, of a disk that was full for a while, loses nothing that was acknowledged.
//!
//! While the log is stalled it does not send requests by itself. A request that needs the log
//! triggers another **attempt**, waits for it, and ends with its result: a host learns at once that
//! there is room again, and a full disk costs one write per request.
//!
//! A failed flush is remembered by the file below, which fails all later ones: the lost data may no
//! longer be in memory.

use port::Outcome;

use super::{FRAMES, Frame, Journal, Move, SUPERBLOCK, SYNC, Stage};

/// Turns for which the result of an attempt is kept: the requests that waited for it learn it in
/// the next turn.
const VERDICT_TURNS: u8 = 3;

/// Whether the log can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stall {
    None,
    /// It cannot be written. `verdict`: turns for which requests that waited for an attempt may
    /// learn that it failed.
    Stalled {
        outcome: Outcome,
        verdict: u8,
    },
    /// An attempt is in progress; requests may wait for it.
    Trying {
        waits: bool,
    },
}

impl Stall {
    /// Called at the start of a turn.
    pub(super) fn age(&mut self) {
        if let Stall::Stalled { verdict, .. } = self {
            *verdict = verdict.saturating_sub(1);
        }
    }
}

/// Answer to a request that needs the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writable {
    /// Continue.
    Yes,
    /// Ask again later: an attempt is in progress.
    Later,
    /// The attempt failed with this outcome.
    No(Outcome),
}

impl Frame {
    /// Requeues failed frames completely, once the medium has no piece of them any more.
    pub(super) fn heal(&mut self) {
        if self.failed && self.pieces == 0 {
            (self.handed, self.failed) = (0, false);
        }
    }
}

impl Journal {
    /// The outcome of everything that waits for the log, if a write failed and no attempt is in
    /// progress.
    pub(crate) fn stalled(&self) -> Option<Outcome> {
        match self.stall {
            Stall::Stalled { outcome, .. } => Some(outcome),
            Stall::None | Stall::Trying { .. } => None,
        }
    }

    /// Whether a failed attempt has not been reported to any request yet.
    pub(crate) fn has_verdict(&self) -> bool {
        matches!(self.stall, Stall::Stalled { verdict: 1.., .. })
    }

    /// Whether a record may be appended; starts an attempt if the log is stalled.
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

    /// Starts an attempt if the log is stalled: for a request that waits for its frames, or because
    /// there may be room again.
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

    /// Ends the stall when no failed frame remains.
    pub(super) fn recover_from_stall(&mut self) {
        let sealed = |index: &usize| self.frames[*index].stage == Stage::Sealed;
        let is_done = !self.queue.iter().any(sealed) && self.moving == Move::None;
        if matches!(self.stall, Stall::Trying { .. }) && is_done {
            self.stall = Stall::None;
            tracing::info!("the log of a medium's state is written again");
        }
    }
}
