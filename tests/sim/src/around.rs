//! A host's surroundings in a step, and the counts of a simulation.

use std::fmt;

use crate::ledger::Ledger;
use crate::reservations::Reservations;
use crate::wire::Wire;
use crate::zones::Zones;

/// Failure of a simulation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(pub String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How long things may take, in virtual nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// An I/O command.
    pub io_ns: u64,
    /// An admin command.
    pub admin_ns: u64,
    /// An unmap: a host waits for 5 s.
    pub unmap_ns: u64,
    /// A reset, a shutdown, or a new host's turn.
    pub reset_ns: u64,
}

/// Events of a simulation, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// I/O commands that completed.
    pub commands: u64,
    /// Of them, those with an error that they may have.
    pub errors: u64,
    /// I/O commands that reservations have refused.
    pub conflicts: u64,
    /// I/O commands that ended with their queue or their controller's life.
    pub dropped: u64,
    /// Admin commands.
    pub admin: u64,
    /// Resets by CC.EN, of the function, and shutdowns.
    pub resets: u64,
    /// Queues that were deleted.
    pub deletions: u64,
    /// Regions that were unmapped, data or rings.
    pub unmaps: u64,
    /// Aborts.
    pub aborts: u64,
    /// Hosts that died.
    pub deaths: u64,
    /// Lanes that were asked to move.
    pub moves: u64,
    /// Changes of namespaces.
    pub changes: u64,
    /// Deaths of the process.
    pub kills: u64,
    /// Doorbells rung by messages.
    pub rings: u64,
    /// Interrupts taken.
    pub interrupts: u64,
    /// The longest that a command took.
    pub longest_ns: u64,
}

/// Around a host.
#[derive(Debug)]
pub struct Around<'a> {
    /// Virtual time.
    pub now: u64,
    /// To and from its controller.
    pub wire: &'a mut Wire,
    /// Possible contents of blocks.
    pub ledger: &'a mut Ledger,
    /// Possible reservations.
    pub reservations: &'a mut Reservations,
    /// Possible zones.
    pub zones: &'a mut Zones,
    /// Bounds.
    pub bounds: Bounds,
    /// Events, counted.
    pub tally: &'a mut Tally,
    /// Nothing new is to begin: the end is near.
    pub ending: bool,
    /// Media fail now and then.
    pub faults: bool,
    /// When the process died last; 0 for never.
    pub killed_at: u64,
    /// For each namespace until when it may have been taken away.
    pub absent_until: &'a [u64],
    /// Events are printed.
    pub traced: bool,
}

impl Around<'_> {
    /// Prints an event, where events are printed.
    #[inline]
    pub fn trace(&self, host: usize, text: impl FnOnce() -> String) {
        if self.traced {
            println!("{:>14} host {host}: {}", self.now, text());
        }
    }
}
