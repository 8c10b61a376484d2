//! Keep Alive (Base 2.1, 3.9 and 5.1.14): a host that set a timeout and then falls silent loses its
//! controller.
//!
//! Over PCIe it is command based: only a Keep Alive command restarts the timer, apart from the
//! events that start it (the controller becomes ready, or the timeout is set). The timer is checked
//! after the admin queue was served, so that a late reactor does not blame the host.
//!
//! Over fabrics it is traffic based: all that comes from the host restarts it
//! ([`Controller::heard`]). It runs from Connect on, so that a host which connects and falls silent
//! ends as well. It does not expire in the turn that finds it late, but in one that comes
//! [`GRACE_NS`] later and has heard nothing either: a reactor that was stopped finds what has come
//! meanwhile only when it reads its sockets.

use nvme_spec::Status;
use port::time::Time;

use super::Reply;
use super::error_log::LoggedError;
use crate::controller::{Controller, Failure};

/// KAS of Identify Controller, in units of 100 ms.
pub(crate) const KAS: u16 = 1;
/// Timeouts are multiples of this.
pub(crate) const KEEP_ALIVE_UNIT_MS: u32 = KAS as u32 * 100;
/// Time for the transport to read what a host has sent: the granularity of the timer.
const GRACE_NS: u64 = KEEP_ALIVE_UNIT_MS as u64 * 1_000_000;

impl Controller {
    /// Keep Alive.
    pub(super) fn keep_alive(&mut self) -> Reply {
        self.restart_keep_alive();
        Reply::Done(0)
    }

    /// Restarts the timer.
    pub(crate) fn restart_keep_alive(&mut self) {
        self.admin.keep_alive_from = self.now;
        self.admin.keep_alive_late = None;
    }

    /// When the timer is looked at; `None` while it is not active: it is while commands are served,
    /// or a host has connected, no shutdown was asked for, and the timeout is not 0.
    #[inline]
    pub(crate) fn keep_alive_deadline(&self) -> Option<Time> {
        let timeout_ms = u64::from(self.features.keep_alive_ms());
        let has_host = self.admin.queue.is_some() || self.waits_for_enable();
        let active = timeout_ms != 0 && has_host && !self.is_shutting_down();
        let expires = self.admin.keep_alive_from + timeout_ms * 1_000_000;
        let late = self.admin.keep_alive_late.map(|since| since + GRACE_NS);
        active.then_some(late.unwrap_or(expires))
    }

    /// Fails the controller if the timer has expired, and records the reason in the error log.
    #[inline]
    pub(crate) fn check_keep_alive(&mut self) {
        if self.host.take_heard() {
            self.restart_keep_alive();
        }
        if self.keep_alive_deadline().is_some_and(|at| self.now >= at) {
            self.keep_alive_is_late();
        }
    }

    #[cold]
    fn keep_alive_is_late(&mut self) {
        if self.config().is_over_fabrics() && self.admin.keep_alive_late.is_none() {
            self.admin.keep_alive_late = Some(self.now);
            return;
        }
        self.logs.errors.add(LoggedError {
            status: Status::KEEP_ALIVE_TIMER_EXPIRED,
            ..LoggedError::default()
        });
        self.fail(Failure::KeepAlive);
    }
}
