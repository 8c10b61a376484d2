//! Reservation data of a controller: the notification log (Base 2.1, 5.1.12.1.32), and the feature
//! that makes reservations persist (5.1.25.1.30). The reservations themselves are the subsystem's.

use std::collections::VecDeque;

use nvme_spec::command::GetFeaturesCdw10;
use nvme_spec::features::Select;
use nvme_spec::reservation::{
    ReservationNotificationLog, ReservationNotificationMask, ReservationNotificationType,
    ReservationPersistence,
};
use nvme_spec::{NSID_ALL, Sqe, Status};
use subsystem::{Change, Notice, Step, Subsystem};
use zerocopy::FromZeros;

use super::Reply;
use super::events::Event;
use super::features::check_attached;
use crate::controller::Controller;

/// Notifications that wait to be read; more are lost, which their count shows.
const MAX_WAITING: usize = 256;

/// Words of the saved state: number of the last one that was taken, count, how many wait, and two
/// words for each.
pub(crate) const NOTIFICATION_WORDS: usize = 5 + 2 * MAX_WAITING;

/// Notifications that the host has not read, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notifications {
    /// Each with its count.
    waiting: VecDeque<(u64, u32, ReservationNotificationType)>,
    /// Notifications since the last reset.
    count: u64,
    /// The number of the last one that was taken from the subsystem, and 0 before that.
    last: u64,
}

impl Notifications {
    fn add(&mut self, notice: Notice) {
        // It wraps to 1: 0 says that there is none.
        self.count = self.count.checked_add(1).unwrap_or(1);
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting
            .push_back((self.count, notice.nsid, notice.what));
    }

    /// A reset: none are left, and those that were taken do not come again.
    pub(crate) fn forget(&mut self) {
        *self = Notifications {
            last: self.last,
            ..Self::default()
        };
    }

    /// The one with this number, and those before it, are of no interest.
    pub(crate) fn skip(&mut self, number: u64) {
        self.last = number;
    }

    /// Saves them.
    pub(crate) fn save(&self, to: &mut [u32]) {
        let halves = |word: u64| [word as u32, (word >> 32) as u32];
        to[..2].copy_from_slice(&halves(self.last));
        to[2..4].copy_from_slice(&halves(self.count));
        to[4] = self.waiting.len() as u32;
        for ((_, nsid, what), to) in self.waiting.iter().zip(to[5..].chunks_exact_mut(2)) {
            to.copy_from_slice(&[*nsid, u32::from(what.0)]);
        }
    }

    /// Those of a process that died; `None` where more wait than may.
    pub(crate) fn found(from: &[u32]) -> Option<Self> {
        let word = |at: usize| u64::from(from[at]) | u64::from(from[at + 1]) << 32;
        let (last, count, waiting) = (word(0), word(2), from[4] as usize);
        if waiting > MAX_WAITING {
            return None;
        }
        let of = |(at, words): (usize, &[u32])| {
            let behind = (waiting - 1 - at) as u64;
            let what = ReservationNotificationType(words[1] as u8);
            (count.wrapping_sub(behind), words[0], what)
        };
        let words = from[5..].chunks_exact(2).take(waiting);
        Some(Notifications {
            waiting: words.enumerate().map(of).collect(),
            count,
            last,
        })
    }

    /// The number of the last one that was taken.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// The oldest one.
    pub(crate) fn page(&self) -> ReservationNotificationLog {
        let mut log = ReservationNotificationLog::new_zeroed();
        if let Some((count, nsid, what)) = self.waiting.front() {
            log.lpc = *count;
            (log.rnlpt, log.nsid) = (*what, *nsid);
            log.nalp = u8::try_from(self.waiting.len() - 1).unwrap_or(u8::MAX);
        }
        log
    }

    /// The host has read the oldest one; whether there are more.
    pub(crate) fn read(&mut self) -> bool {
        self.waiting.pop_front();
        !self.waiting.is_empty()
    }
}

/// Whether the host has masked this notification (Base 2.1, 5.1.25.1.29).
fn is_masked(mask: ReservationNotificationMask, what: ReservationNotificationType) -> bool {
    match what {
        ReservationNotificationType::REGISTRATION_PREEMPTED => mask.regpre(),
        ReservationNotificationType::RESERVATION_RELEASED => mask.resrel(),
        ReservationNotificationType::RESERVATION_PREEMPTED => mask.respre(),
        _ => true,
    }
}

impl Controller {
    /// Takes the subsystem's reservation notifications.
    pub(crate) fn take_reservation_notices(&mut self, subsystem: &mut Subsystem) -> bool {
        let notices = subsystem.take_notices(self.id());
        let Some(last) = notices.last() else {
            return false;
        };
        self.admin.notifications.skip(last.number);
        // A host that is not there yet has asked for nothing.
        let has_host = self.admin.queue.is_some();
        for notice in notices.into_iter().filter(|_| has_host) {
            if !is_masked(self.features.reservation_mask(notice.nsid), notice.what) {
                self.admin.notifications.add(notice);
                self.raise(Event::ReservationNotification);
            }
        }
        // The next record does not have them any more.
        self.save();
        true
    }

    /// Get Features of Reservation Persistence: the state is the namespace's, for every controller.
    pub(super) fn get_reservation_persistence(
        &self,
        sqe: &Sqe,
        subsystem: &Subsystem,
    ) -> Result<Reply, Status> {
        check_attached(sqe.nsid, &self.feature_context())?;
        let namespace = subsystem.directory().get(sqe.nsid);
        let persists = namespace.is_some_and(|n| n.reservation.persists());
        // It is never saved beside, and by default nothing persists.
        let current = GetFeaturesCdw10::from(sqe.cdw10).sel() == Select::CURRENT;
        let value = ReservationPersistence::new().with_ptpl(persists && current);
        Ok(Reply::Done(value.into()))
    }

    /// Set Features of Reservation Persistence, of one namespace or of each that is attached.
    pub(super) fn set_reservation_persistence(
        &mut self,
        sqe: &Sqe,
        subsystem: &mut Subsystem,
    ) -> Result<Reply, Status> {
        let persists = ReservationPersistence::from(sqe.cdw11).ptpl();
        let attached = self.attached.table.iter().map(|n| n.nsid);
        let named = attached.filter(|nsid| [*nsid, NSID_ALL].contains(&sqe.nsid));
        let mut steps: Vec<Step> = named
            .map(|nsid| Step::Change(Change::SetPersists { nsid, persists }))
            .collect();
        steps.push(Step::Keep);
        let operation = self.begin_operation(sqe, sqe.nsid, steps);
        subsystem.begin(operation);
        Ok(Reply::Waits)
    }
}
