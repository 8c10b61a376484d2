//! A host that polls a completion queue although interrupts are enabled there.
//!
//! Some drivers poll for completions for a while before they wait for an interrupt, and an
//! interrupt handler continues as long as it finds some. An interrupt for completions that such a
//! host has consumed already carries no information, and costs both sides more than the command
//! did. So completions that are acknowledged before their interrupt is due raise none. A host that
//! was found polling a moment ago gets some turns to consume the next entries, too. A host that
//! waits for its interrupts is never found polling, and is interrupted at once.
//!
//! Only for MSI-X without coalescing: coalescing has its own time, and MSI and the pin already
//! depend on unacknowledged entries.

use super::{Lane, Posted};

/// Turns that a polling host gets to consume posted entries: some hundred nanoseconds each.
const PATIENCE: u8 = 8;

impl Lane {
    /// Whether its host must not be interrupted now for posted entries. If it may be later,
    /// [`Lane::take_posted`] returns them again in the next turn.
    #[inline(always)]
    pub fn host_polls(&mut self, posted: Posted) -> bool {
        let queues = &mut self.queues;
        if !queues.is_unacknowledged() && queues.service.is_serving() && !queues.cq.is_frozen() {
            queues.patience = PATIENCE;
            queues.counters.interrupts_spared.add(1);
            return true;
        }
        if queues.patience == 0 {
            return false;
        }
        queues.patience -= 1;
        queues.unannounced.put_back(posted);
        true
    }
}
