//! A controller's side of its admin queue: the queue, the commands that wait, and the events and
//! notifications that are still to be reported.
//!
//! Invariant: all of it ends with a reset, as the host expects no answer of an earlier life.

use port::time::Time;
use subsystem::UNNAMED;

use super::events::Events;
use super::pending::Waiting;
use super::reservations::Notifications;
use super::{AdminQueue, Pending};

/// The commands of a process that died which waited for nothing that goes on: their command
/// identifiers, and what they waited for. Each has an entry of the completion queue.
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
    /// Commands of a process that died, to execute again or to complete before any other.
    pub(crate) interrupted: Interrupted,
    /// A process before has had it, and no command has been executed since.
    pub(crate) is_restored: bool,
    /// The name of the command that is being executed.
    pub(crate) name: u64,
    /// The name of the next command.
    pub(crate) next_name: u64,
    /// Aborts of commands for I/O that there were, in every process and life.
    pub(crate) aborts: u32,
    /// Since when the Keep Alive Timer runs, where it is active.
    pub(crate) keep_alive_from: Time,
    /// When a turn found that it has expired, which a later one is to confirm.
    pub(crate) keep_alive_late: Option<Time>,
}

impl AdminSide {
    /// That of a controller that is not enabled.
    pub(crate) fn new(first_name: u64) -> Self {
        AdminSide {
            queue: None,
            absent_since: None,
            pending: Pending::default(),
            aborted_requests: Vec::new(),
            events: Events::default(),
            notifications: Notifications::default(),
            interrupted: Vec::new(),
            is_restored: false,
            name: UNNAMED,
            next_name: first_name,
            aborts: 0,
            keep_alive_from: Time(0),
            keep_alive_late: None,
        }
    }

    /// A reset: everything ends, without an answer.
    pub(crate) fn forget(&mut self) {
        self.notifications.forget();
        *self = AdminSide {
            notifications: std::mem::take(&mut self.notifications),
            aborts: self.aborts,
            keep_alive_from: self.keep_alive_from,
            ..AdminSide::new(self.next_name)
        };
    }

    /// A name that no command has had.
    pub(crate) fn new_name(&mut self) -> u64 {
        let name = self.next_name;
        self.next_name = name.wrapping_add(1);
        name
    }
}
