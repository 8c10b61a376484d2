//! Common part of the polls of associations and of queues away from them: how often they are due,
//! and their results.

use super::connection::End;

/// How long a connection is read in every turn after something has come or has been sent, which a
/// host answers.
pub(super) const HOT_NS: u64 = 50_000;
/// How often commands are looked at that wait for their host.
pub(super) const CHECK_NS: u64 = 1_000_000_000;
/// How often a queue is looked at that waits for a large slot which another one has, perhaps on
/// another reactor.
pub(super) const SLOT_NS: u64 = 1_000_000;

/// Result of a poll of an association, or of a queue away from it.
#[derive(Debug)]
pub struct Polled {
    /// There was something to do, and there may be more.
    pub worked: bool,
    /// Why it is over, when it is. Of an association: call
    /// [`Association::end`](super::Association::end), and reset its controller.
    pub ended: Option<End>,
}
