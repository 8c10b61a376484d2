//! A host that polls a completion queue although interrupts are enabled there.
//!
//! Some drivers look for completions for a while before they wait for an interrupt, and an
//! interrupt handler goes on as long as it finds some. An interrupt for what such a host has
//! consumed already tells it nothing, and costs both sides more than the command did. So what is
//! acknowledged by the time that it would be told of is not told. A host that was met so a moment
//! ago gets some turns to consume the next entries, too; a host that waits for its interrupts is
//! never met so, and is told at once.
//!
//! Only for MSI-X without coalescing: coalescing has a time of its own, and MSI and the pin ask for
//! what is not acknowledged.

use super::{Lane, Posted};

/// Turns that a host which was seen to poll gets to consume what was posted: some hundred
/// nanoseconds each.
const PATIENCE: u8 = 8;

impl Lane {
    /// Whether its host is not to be interrupted now for what was posted. Where it may be later,
    /// [`Lane::take_posted`] has it again in the next turn.
    #[inline]
    pub fn host_polls(&mut self, posted: Posted) -> bool {
        let queues = &mut self.queues;
        if !queues.is_unacknowledged() && queues.serving && !queues.cq.is_frozen() {
            queues.patience = PATIENCE;
            queues.counters.interrupts_spared.add(1);
            return true;
        }
        if queues.patience == 0 {
            return false;
        }
        queues.patience -= 1;
        queues.posted += posted.entries;
        queues.failed |= posted.failed;
        true
    }
}
