//! Reservation notifications of controllers (Base 2.1, 8.1.22), over a death of the process.
//!
//! A command's effect and its notifications are in the same record. A controller gets a
//! notification when that record is kept, saves it, and saves its number as that of the last one:
//! a process that continues has those of the record after the controller's last one.
//!
//! Invariants:
//! - A record has the notifications that its controller has not taken, and perhaps some that it
//!   has, which are then the oldest ones.
//! - A number is used once: it begins with the number of the process.

use nvme_spec::reservation::ReservationNotificationType;
use serde::{Deserialize, Serialize};

use super::set::ControllerId;

/// Notifications that wait for a controller; more are lost, and their count shows that (Base 2.1,
/// 5.1.12.1.32).
const MOST: usize = 255;

/// A reservation notification of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The namespace.
    pub nsid: u32,
    /// What happened to its reservation.
    pub what: ReservationNotificationType,
    /// Its number, which no other one has had.
    pub number: u64,
}

/// A notification that a controller may not have taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptNotice {
    /// The controller.
    pub controller: ControllerId,
    /// The namespace.
    pub nsid: u32,
    /// What happened to its reservation: a Reservation Notification Log Page Type.
    pub what: u8,
    /// Its number.
    pub number: u64,
    /// Its place among those of its record.
    pub order: u64,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    notice: Notice,
    order: u64,
    /// The version of the first record that has it.
    version: u64,
}

impl Pending {
    /// One of the record of a process before.
    fn found(kept: KeptNotice) -> Self {
        Pending {
            notice: Notice {
                nsid: kept.nsid,
                what: ReservationNotificationType(kept.what),
                number: kept.number,
            },
            order: kept.order,
            version: 0,
        }
    }
}

/// The notifications of one controller, oldest first.
#[derive(Debug, Default)]
pub(super) struct Notices(Vec<Pending>);

impl Notices {
    /// Whether there are any that a record has which is kept, of this version or before.
    pub(super) fn are_kept(&self, version: u64) -> bool {
        self.0.first().is_some_and(|it| it.version <= version)
    }

    /// Drops all of them; the number of the last one.
    pub(super) fn clear(&mut self) -> Option<u64> {
        self.0.drain(..).next_back().map(|it| it.notice.number)
    }

    /// Takes those that such a record has. Mostly there are none, which each turn sees.
    #[inline]
    pub(super) fn take(&mut self, version: u64) -> Vec<Notice> {
        if self.0.is_empty() {
            return Vec::new();
        }
        self.take_some(version)
    }

    #[cold]
    fn take_some(&mut self, version: u64) -> Vec<Notice> {
        let kept = self.0.partition_point(|it| it.version <= version);
        self.0.drain(..kept).map(|it| it.notice).collect()
    }

    /// The controller has taken the one with this number, and those before it.
    pub(super) fn forget_through(&mut self, number: u64) {
        if let Some(at) = self.0.iter().position(|it| it.notice.number == number) {
            self.0.drain(..=at);
        }
    }

    /// One of the record of a process before.
    pub(super) fn find(&mut self, kept: KeptNotice) {
        self.add(Pending::found(kept));
    }

    /// One that the record of this version is the first to have.
    pub(super) fn notify(
        &mut self,
        (nsid, what): (u32, ReservationNotificationType),
        numbers: &mut Numbers,
        version: u64,
    ) {
        let (number, order) = numbers.next();
        self.add(Pending {
            notice: Notice { nsid, what, number },
            order,
            version,
        });
    }

    fn add(&mut self, pending: Pending) {
        if self.0.len() < MOST {
            self.0.push(pending);
        }
    }

    /// Those of the next record.
    pub(super) fn kept(&self, controller: ControllerId) -> impl Iterator<Item = KeptNotice> {
        self.0.iter().map(move |it| KeptNotice {
            controller,
            nsid: it.notice.nsid,
            what: it.notice.what.0,
            number: it.notice.number,
            order: it.order,
        })
    }
}

/// The numbers of a process.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u64,
    order: u64,
}

impl Numbers {
    pub(super) fn of(process: u64) -> Self {
        Numbers {
            next: process,
            order: 0,
        }
    }

    /// Its record has one with this place.
    pub(super) fn find(&mut self, order: u64) {
        self.order = self.order.max(order.saturating_add(1));
    }

    fn next(&mut self) -> (u64, u64) {
        let (number, order) = (self.next, self.order);
        self.next = number.wrapping_add(1);
        self.order = order.saturating_add(1);
        (number, order)
    }
}
