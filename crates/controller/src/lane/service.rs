//! Whether a lane serves: its stops, its leaves of the bus, and its pauses.
//!
//! Invariants:
//! - A lane that has stopped, or has lost a ring, never serves again: it fetches nothing and posts
//!   nothing.
//! - A turn of a lane that is still touches no memory of the host, except for the data of writes
//!   that are executed again.
//! - A stop ends a leave of the bus.
//! - A lane that has commands to execute again, after a restart, does nothing else.

use super::message::LaneEvent;

/// Progress of a [`super::LaneCommand::Stop`], or of a [`super::LaneCommand::LeaveBus`], which a
/// stop ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    No,
    /// Commands fetched before the bus is left must still complete.
    Leaving,
    /// They have, and that was reported.
    Left,
    Asked,
    Told,
}

#[derive(Debug)]
pub(super) struct Service {
    /// False once a ring was lost or a stop was asked for.
    serving: bool,
    /// A turn does not look at the queues: the lane does not serve, has left the bus, or replays.
    still: bool,
    /// Commands of a process that died are to be executed again first.
    replaying: bool,
    /// Nothing is fetched: commands of a process that died have not completed, here or elsewhere.
    restored: Restored,
    /// It has stopped, left the bus, or is about to; or executes commands again.
    ending: bool,
    stop: Stop,
    /// The round of the last [`super::LaneCommand::LeaveBus`].
    bus_round: u32,
    /// That one waits for aborted commands, too.
    to_idle: bool,
    /// Nothing is fetched: the lane is to move.
    to_move: bool,
    /// Nothing is fetched: the function may issue no memory requests.
    off_bus: bool,
}

/// Progress of a lane that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restored {
    /// It was not, or it was released.
    No,
    /// Commands of the process that died have not completed.
    Replaying,
    /// They have, and that was reported.
    Told,
}

/// Condition for the end of a stop or of a leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    /// No command in a medium, and no write to execute again.
    Media,
    /// No command that was fetched.
    Commands,
    /// No command in any stage, not even an aborted one.
    Idle,
    /// The same, of a lane that was restored.
    Replays,
}

impl Service {
    pub(super) fn new() -> Self {
        Service {
            serving: true,
            still: false,
            replaying: false,
            restored: Restored::No,
            ending: false,
            stop: Stop::No,
            bus_round: 0,
            to_idle: false,
            to_move: false,
            off_bus: false,
        }
    }

    /// False once a ring was lost or a stop was asked for.
    #[inline]
    pub(super) fn is_serving(&self) -> bool {
        self.serving
    }

    /// Whether a turn does not look at the queues.
    #[inline]
    pub(super) fn is_still(&self) -> bool {
        self.still
    }

    /// Whether a turn executes commands of a process that died, and nothing else.
    pub(super) fn replays(&self) -> bool {
        self.replaying && (self.serving || self.stop == Stop::Asked)
    }

    /// There are commands of a process that died, or there are none any more.
    pub(super) fn set_replaying(&mut self, replaying: bool) {
        self.replaying = replaying;
        self.settle();
    }

    /// Finds out whether a turn looks at the queues, and whether an end is awaited.
    fn settle(&mut self) {
        self.still = !self.serving || self.replaying || self.stop == Stop::Left;
        self.ending = self.stop != Stop::No || self.restored == Restored::Replaying;
    }

    /// Whether commands may be fetched.
    #[inline]
    pub(super) fn fetches(&self) -> bool {
        self.serving && !self.is_paused()
    }

    /// Whether fetching is paused.
    #[inline]
    pub(super) fn is_paused(&self) -> bool {
        self.to_move || self.off_bus || self.restored != Restored::No
    }

    /// The lane was restored: it fetches nothing until it is released.
    pub(super) fn restore(&mut self) {
        self.restored = Restored::Replaying;
        self.settle();
    }

    /// More commands of the process that died are to complete, and that is to be reported.
    pub(super) fn replay_more(&mut self) {
        if self.restored != Restored::No {
            self.restored = Restored::Replaying;
            self.settle();
        }
    }

    /// It may fetch.
    pub(super) fn release(&mut self) {
        self.restored = Restored::No;
        self.settle();
    }

    /// Whether it is to move.
    pub(super) fn is_to_move(&self) -> bool {
        self.to_move
    }

    /// It is to move, or is not.
    pub(super) fn set_to_move(&mut self, to_move: bool) {
        self.to_move = to_move;
    }

    /// A ring is gone.
    pub(super) fn lose(&mut self) {
        self.serving = false;
        self.settle();
    }

    /// It is to stop. False where it was before.
    pub(super) fn stop(&mut self) -> bool {
        if matches!(self.stop, Stop::Asked | Stop::Told) {
            return false;
        }
        self.stop = Stop::Asked;
        // Nothing is posted from here on: the host may use the rings for something else.
        self.serving = false;
        self.settle();
        true
    }

    /// It is to leave the bus: it fetches no more commands, and finishes those fetched.
    pub(super) fn leave_bus(&mut self, round: u32, idle: bool) {
        if matches!(self.stop, Stop::Asked | Stop::Told) {
            return;
        }
        self.stop = Stop::Leaving;
        self.bus_round = round;
        self.to_idle = idle;
        self.off_bus = true;
        self.settle();
    }

    /// It may use the bus again.
    pub(super) fn take_bus(&mut self) {
        if matches!(self.stop, Stop::Leaving | Stop::Left) {
            self.stop = Stop::No;
            self.settle();
        }
        self.off_bus = false;
    }

    /// Whether it leaves the bus and has not left it.
    pub(super) fn is_leaving(&self) -> bool {
        self.stop == Stop::Leaving
    }

    /// Whether it has stopped, left the bus, or is about to; or executes commands again.
    #[inline]
    pub(super) fn is_ending(&self) -> bool {
        self.ending
    }

    /// The condition that a stop or a leave of the bus still waits for, if there is one.
    pub(super) fn awaits(&self) -> Option<Awaits> {
        match self.stop {
            Stop::No | Stop::Leaving | Stop::Left if self.restored == Restored::Replaying => {
                Some(Awaits::Replays)
            }
            Stop::No | Stop::Left | Stop::Told => None,
            Stop::Asked => Some(Awaits::Media),
            Stop::Leaving if self.to_idle => Some(Awaits::Idle),
            Stop::Leaving => Some(Awaits::Commands),
        }
    }

    /// That has come. The report of it; `copies`: commands of a process that died wait to copy.
    pub(super) fn come_to_rest(&mut self, copies: bool) -> Option<LaneEvent> {
        match self.awaits()? {
            Awaits::Media => {
                self.stop = Stop::Told;
                Some(LaneEvent::Stopped)
            }
            Awaits::Replays => {
                self.restored = Restored::Told;
                self.settle();
                Some(LaneEvent::Replayed { copies })
            }
            Awaits::Commands | Awaits::Idle => {
                self.stop = Stop::Left;
                self.settle();
                let round = self.bus_round;
                Some(LaneEvent::LeftBus { round })
            }
        }
    }
}
