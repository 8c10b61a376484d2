//! Relays: completion queue duties that this reactor performs for drives whose commands other
//! reactors submit.

use std::io;
use std::sync::Arc;

use media::{Duty, Medium, Relay};

use super::poller::{Poller, Source};

/// Duties of this reactor.
#[derive(Debug, Default)]
pub(crate) struct Relays(Vec<(Arc<Medium>, Relay)>);

impl Relays {
    pub(crate) fn open(
        &mut self,
        medium: Arc<Medium>,
        duty: Duty,
        poller: &Poller,
    ) -> io::Result<()> {
        let relay = medium.relay(duty)?;
        poller.add(relay.wait_fd(), Source::Channel)?;
        self.0.push((medium, relay));
        Ok(())
    }

    pub(crate) fn close(&mut self, medium: &Arc<Medium>, poller: &Poller) {
        let of_it = |(of, _): &mut (Arc<Medium>, Relay)| Arc::ptr_eq(of, medium);
        for (_, relay) in self.0.extract_if(.., of_it) {
            if let Err(error) = poller.remove(relay.wait_fd()) {
                tracing::error!("a reactor cannot forget a drive's completions: {error}");
            }
        }
    }

    /// Runs a turn of every relay; whether there was work.
    #[inline]
    pub(crate) fn carry(&mut self) -> bool {
        let mut worked = false;
        for (_, relay) in &mut self.0 {
            worked |= relay.carry();
        }
        worked
    }

    /// Handles messages from the drives' supervisors.
    pub(crate) fn tend(&mut self) {
        self.0.iter_mut().for_each(|(_, relay)| relay.tend());
    }

    /// The last check before sleeping; every relay needs it.
    pub(crate) fn are_due(&mut self) -> bool {
        let each = self.0.iter_mut().map(|(_, relay)| relay.is_due());
        each.fold(false, |any, due| any | due)
    }

    pub(crate) fn are_polled(&self) -> bool {
        self.0.iter().any(|(_, relay)| relay.is_polled())
    }
}
