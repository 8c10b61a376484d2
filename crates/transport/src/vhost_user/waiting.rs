//! Replies that wait: until no request of a ring is in flight, or no command that may use memory
//! that was taken away.
//!
//! A medium may hang. After [`ABANDON_NS`] commands that still hang are aborted, by which the front
//! end ends: no memory may be used again that a medium may still have.

use std::sync::Arc;

use memory::guest::dma::Reach;
use port::time::Time;
use vhost_user::Header;

/// How long commands in flight may take before they are aborted.
pub(super) const ABANDON_NS: u64 = 4_000_000_000;
/// How long all may take.
pub(super) const END_NS: u64 = 5_000_000_000;

/// The event that a reply waits for.
#[derive(Clone, Debug)]
pub(super) enum Until {
    /// This ring has no request in flight.
    Stopped(usize),
    /// No ring has a request in flight: the device is reset.
    Reset,
    /// No command issued before the view with this epoch is in flight, and no device reaches what
    /// was removed.
    Drained {
        epoch: u64,
        reached: Vec<Arc<Reach>>,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) request: Header,
    pub(super) until: Until,
    pub(super) since: Time,
    pub(super) is_abandoned: bool,
}

impl Waiting {
    pub(super) fn new(request: &Header, until: Until, now: Time) -> Self {
        Self {
            request: *request,
            until,
            since: now,
            is_abandoned: false,
        }
    }

    /// When a bound is reached next.
    pub(super) fn deadline(&self) -> Time {
        self.since
            + if self.is_abandoned {
                END_NS
            } else {
                ABANDON_NS
            }
    }
}
