//! What a controller knows of its admin queue: the queue, the commands that wait, and the events
//! and notifications that are still to be reported.
//!
//! Invariant: all of it ends with a reset, as the host expects no answer of an earlier life.

use port::time::Time;

use super::events::Events;
use super::pending::Waiting;
use super::reservations::Notifications;
use super::{AdminQueue, Pending};

/// The commands of a process that died which cannot go on: their command identifiers, and what they
/// waited for. Each has an entry of the completion queue.
pub(crate) type Interrupted = Vec<(u16, Waiting)>;

#[derive(Debug)]
pub(crate) struct AdminSide {
    /// The queue, of a controller that is enabled.
    pub(crate) queue: Option<AdminQueue>,
    /// Since when the queue's next entry could not be reached.
    pub(crate) absent_since: Option<Time>,
    pub(crate) pending: Pending,
    /// Held requests that were aborted and wait for a place in the completion queue.
    pub(crate) aborted_requests: Vec<u16>,
    pub(crate) events: Events,
    pub(crate) notifications: Notifications,
    /// What a process that died has left to complete first.
    pub(crate) interrupted: Interrupted,
    /// Since when the Keep Alive Timer runs, where it is active.
    pub(crate) keep_alive_from: Time,
}

impl AdminSide {
    /// That of a controller that is not enabled.
    pub(crate) fn new() -> Self {
        AdminSide {
            queue: None,
            absent_since: None,
            pending: Pending::default(),
            aborted_requests: Vec::new(),
            events: Events::default(),
            notifications: Notifications::default(),
            interrupted: Vec::new(),
            keep_alive_from: Time(0),
        }
    }

    /// A reset: everything ends, without an answer.
    pub(crate) fn forget(&mut self) {
        *self = AdminSide {
            keep_alive_from: self.keep_alive_from,
            ..AdminSide::new()
        };
    }
}
