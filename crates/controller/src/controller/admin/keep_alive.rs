//! Keep Alive (Base 2.1, 3.9 and 5.1.14): a host that set a timeout and then falls silent loses its
//! controller.
//!
//! Command based: only a Keep Alive command restarts the timer, apart from the events that start it
//! (the controller becomes ready, or the timeout is set). The timer is checked after the admin
//! queue was served, so that a late reactor does not blame the host.

use nvme_spec::Status;
use port::time::Time;

use super::Reply;
use super::error_log::LoggedError;
use crate::controller::{Controller, Failure};

/// KAS of Identify Controller, in units of 100 ms.
pub(crate) const KAS: u16 = 1;
/// Timeouts are multiples of this.
pub(crate) const KEEP_ALIVE_UNIT_MS: u32 = KAS as u32 * 100;

impl Controller {
    /// Keep Alive.
    pub(super) fn keep_alive(&mut self) -> Reply {
        self.restart_keep_alive();
        Reply::Done(0)
    }

    /// Restarts the timer.
    pub(crate) fn restart_keep_alive(&mut self) {
        self.admin.keep_alive_from = self.now;
    }

    /// When the timer expires; `None` while it is not active: it is while commands are served, no
    /// shutdown was asked for, and the timeout is not 0.
    #[inline]
    pub(crate) fn keep_alive_deadline(&self) -> Option<Time> {
        let timeout_ms = u64::from(self.features.keep_alive_ms());
        let active = timeout_ms != 0 && self.admin.queue.is_some() && !self.is_shutting_down();
        active.then(|| self.admin.keep_alive_from + timeout_ms * 1_000_000)
    }

    /// Fails the controller if the timer has expired, and records the reason in the error log.
    #[inline]
    pub(crate) fn check_keep_alive(&mut self) {
        if self.keep_alive_deadline().is_some_and(|at| self.now >= at) {
            self.logs.errors.add(LoggedError {
                status: Status::KEEP_ALIVE_TIMER_EXPIRED,
                ..LoggedError::default()
            });
            self.fail(Failure::KeepAlive);
        }
    }
}
