//! The end of a wait: whether a reply that waits is due, and what is done before it is sent.

use controller::Controller;
use port::time::Time;
use vhost_user::Header;

use super::end::End;
use super::session::Session;
use super::waiting::{ABANDON_NS, END_NS, Until, Waiting};

impl Session {
    /// Whether what a reply waited for has come: it is sent then.
    ///
    /// # Errors
    /// The wait times out, or the connection fails.
    pub(super) fn is_over(
        &mut self,
        waiting: &mut Waiting,
        controller: &mut Controller,
        now: Time,
    ) -> Result<bool, End> {
        let is_over = match &waiting.until {
            Until::Stopped(index) => self.rings[*index].in_flight == 0,
            Until::Reset => self.has_drained(),
            Until::Drained { epoch, reached } => {
                controller.drained(*epoch) && !reached.iter().any(|reach| reach.is_held())
            }
        };
        if is_over {
            self.finish(&waiting.request, &waiting.until, now)?;
            return Ok(true);
        }
        let waited = now.since(waiting.since);
        if waited >= END_NS {
            return Err(End::MediumHangs);
        }
        if waited >= ABANDON_NS && !waiting.is_abandoned {
            waiting.is_abandoned = true;
            controller.abandon(match waiting.until {
                Until::Drained { epoch, .. } => epoch,
                Until::Stopped(_) | Until::Reset => u64::MAX,
            });
        }
        Ok(false)
    }

    /// Sends a reply that has waited.
    fn finish(&mut self, request: &Header, until: &Until, now: Time) -> Result<(), End> {
        match until {
            Until::Stopped(index) => {
                let base = self.stop_ring(*index);
                let index = *index as u32;
                let body = [index.to_le_bytes(), base.to_le_bytes()];
                self.connection
                    .reply(request, &[body.as_flattened()], None, now)
            }
            Until::Reset => {
                self.reset();
                self.acknowledge(request, 0, now)
            }
            Until::Drained { .. } => self.acknowledge(request, 0, now),
        }
    }
}
