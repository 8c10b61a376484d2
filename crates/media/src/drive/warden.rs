//! Takes hosts' memory away from a drive that does not let go of it.
//!
//! A host that takes memory back gets its answer after 4 s, also where a command hangs at the
//! drive. The drive's keeper has the queue of such a command deleted, and may then wait for the
//! drive for as long. So somebody else looks meanwhile: memory that its host has taken back, and
//! that the drive still reaches 3.5 s later, is taken out of its reach by the machine's IOMMU,
//! whatever the drive does. A transfer that comes after that is a fault of the drive's, which no
//! host sees.
//!
//! What this does NOT do: a drive behind vfio-user is a process that maps memory itself, and has no
//! warden; deleting queues is the keeper's.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Instant;

use driver::bus::Bus;

use super::keeper::TICK;
use super::windows::Opening;

/// Ticks that a drive has for letting go of memory: with the one that may pass before it is seen,
/// less than the 4 s after which the host gets its answer.
pub(super) const REVOKE_TICKS: u32 = 14;

/// A window of a drive that is on this bus.
type Opened<B> = (Weak<B>, Arc<Opening>);

/// See the module.
pub(super) struct Warden<B> {
    opened: Receiver<Opened<B>>,
    /// With the tick at which it was first seen to be taken back.
    watched: Vec<(Opened<B>, Option<u32>)>,
}

/// What the keeper tells a warden of windows by.
pub(super) struct Tell<B>(Sender<Opened<B>>);

impl<B: Bus> Tell<B> {
    pub(super) fn opened(&self, bus: &Arc<B>, opening: &Arc<Opening>) {
        // Its thread ends after the keeper.
        let _ = self.0.send((Arc::downgrade(bus), opening.clone()));
    }
}

impl<B: Bus> Warden<B> {
    pub(super) fn new() -> (Tell<B>, Self) {
        let (tell, opened) = channel();
        let watched = Vec::new();
        (Tell(tell), Warden { opened, watched })
    }

    /// Looks until the keeper has ended.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread of its own, which waits and serves no host"
    )]
    pub(super) fn run(mut self) {
        let started = Instant::now();
        loop {
            match self.opened.recv_timeout(TICK) {
                Ok(opened) => self.watched.push((opened, None)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let ticks = started.elapsed().as_millis() / TICK.as_millis();
            self.look(u32::try_from(ticks).unwrap_or(u32::MAX));
        }
    }

    /// It is that tick.
    pub(super) fn look(&mut self, now: u32) {
        let news = self.opened.try_iter().map(|opened| (opened, None));
        self.watched.extend(news);
        self.watched.retain_mut(|((bus, opening), since)| {
            if opening.is_closed() {
                return false;
            }
            if !opening.is_taken_back() {
                return true;
            }
            if now.wrapping_sub(*since.get_or_insert(now)) < REVOKE_TICKS {
                return true;
            }
            // A bus that is gone has taken its addresses with it.
            let Some(bus) = bus.upgrade() else {
                return false;
            };
            let (at, bytes) = opening.range();
            match opening.close(|at, len| bus.unshare(at, len)) {
                Ok(_) => tracing::warn!(
                    bytes,
                    "a drive hangs on to memory that its host has taken back: it is taken out of the drive's reach"
                ),
                Err(error) => tracing::error!(
                    at = at.0,
                    bytes,
                    "a drive hangs on to memory that its host has taken back, which cannot be taken out of its reach: {error}"
                ),
            }
            false
        });
    }
}
