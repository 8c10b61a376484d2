//! Outcomes of the ways of a command through a lane: of issuing it, of one request to a channel,
//! and for the rest of its submission queue.
//!
//! It does NOT decide any: `issue`, `fetch` and `fused` do.

use nvme_spec::Status;

/// Outcome of a command.
pub(super) enum Issued {
    /// It is done; no ticket is out.
    Ended(Status),
    /// Wholly issued, and a ticket is out.
    Pending,
    /// It takes several steps, of which none was begun.
    InSteps,
    /// It is one of two fused commands, and not looked at yet.
    Fused,
    /// Handed to the subsystem, with a ticket.
    Forwarded,
    /// A channel was full; try again after a reap. Of a command that goes to several media some
    /// tickets may be out.
    Full,
}

/// Outcome of a request.
pub(super) enum Asked {
    /// It is done.
    Done(Status),
    /// A ticket is out.
    Pending,
    /// The channel was full; try again after a reap.
    Full,
}

/// Outcome of an issued command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Went {
    /// It is done, or with a medium.
    On,
    /// As well, and the next one of its queue with it.
    Two,
    /// Its channel was full: it waits at the head of its queue.
    Full,
    /// It waits there for a place in the completion queue.
    NoPlace,
    /// It waits beside its queue for its flow's turn.
    Held,
}
