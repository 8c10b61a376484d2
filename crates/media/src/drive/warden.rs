//! Unmaps hosts' memory from a drive that does not release it.
//!
//! A host that unmaps memory gets its answer after 4 s at the latest, also if a command hangs at
//! the drive. The keeper has the queue of such a command deleted, and may then wait for the drive
//! for as long. So the warden checks meanwhile: memory that its host has unmapped and that the
//! drive still reaches 3.5 s later is unmapped in the machine's IOMMU, whatever the drive does. A
//! later transfer is a fault of the drive that no host sees.
//!
//! Not included: drives behind vfio-user, which are processes that map memory themselves; and the
//! deletion of queues, which is the keeper's.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use driver::bus::Bus;

use super::windows::Opening;

/// Ticks that a drive has to release memory. Together with the tick that may pass before the warden
/// sees it, less than the 4 s after which the host gets its answer.
pub(super) const REVOKE_TICKS: u32 = 14;

/// A window of a drive, with the drive's bus.
type Opened<B> = (Weak<B>, Arc<Opening>);

/// State of the warden; see the module.
pub(super) struct Warden<B> {
    opened: Receiver<Opened<B>>,
    /// Windows, with the tick at which the host was first seen to have unmapped the memory.
    watched: Vec<(Opened<B>, Option<u32>)>,
}

/// The keeper's side: sends new windows to the warden.
pub(super) struct Tell<B>(Sender<Opened<B>>);

impl<B: Bus> Tell<B> {
    pub(super) fn opened(&self, bus: &Arc<B>, opening: &Arc<Opening>) {
        // The warden's thread ends after the keeper.
        let _ = self.0.send((Arc::downgrade(bus), opening.clone()));
    }
}

impl<B: Bus> Warden<B> {
    pub(super) fn new() -> (Tell<B>, Self) {
        let (tell, opened) = channel();
        let watched = Vec::new();
        (Tell(tell), Warden { opened, watched })
    }

    /// Checks every `tick` until the keeper has ended.
    #[expect(
        clippy::disallowed_methods,
        reason = "a thread of its own, which waits and serves no host"
    )]
    pub(super) fn run(mut self, tick: Duration) {
        let started = Instant::now();
        loop {
            match self.opened.recv_timeout(tick) {
                Ok(opened) => self.watched.push((opened, None)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let ticks = started.elapsed().as_nanos() / tick.as_nanos();
            self.look(u32::try_from(ticks).unwrap_or(u32::MAX));
        }
    }

    /// Does the work of one tick.
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
            // The addresses of a bus that is gone are gone, too.
            let Some(bus) = bus.upgrade() else {
                return false;
            };
            let (at, bytes) = opening.range();
            match opening.close(|at, len| bus.unshare(at, len)) {
                Ok(_) => tracing::warn!(
                    bytes,
                    "a drive has not released memory that its host has unmapped: the IOMMU mapping is removed"
                ),
                Err(error) => tracing::error!(
                    at = at.0,
                    bytes,
                    "a drive has not released memory that its host has unmapped, and the IOMMU mapping cannot be removed: {error}"
                ),
            }
            false
        });
    }
}
