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

/// Notifications that the host has not read, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notifications {
    waiting: VecDeque<(u64, Notice)>,
    /// Notifications since the last reset.
    count: u64,
}

impl Notifications {
    fn add(&mut self, notice: Notice) {
        // It wraps to 1: 0 says that there is none.
        self.count = self.count.checked_add(1).unwrap_or(1);
        if self.waiting.len() == MAX_WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((self.count, notice));
    }

    /// The oldest one.
    pub(crate) fn page(&self) -> ReservationNotificationLog {
        let mut log = ReservationNotificationLog::new_zeroed();
        if let Some((count, notice)) = self.waiting.front() {
            log.lpc = *count;
            (log.rnlpt, log.nsid) = (notice.what, notice.nsid);
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
        if notices.is_empty() {
            return false;
        }
        // A host that is not there yet has asked for nothing.
        if self.admin.queue.is_none() {
            return true;
        }
        for notice in notices {
            if !is_masked(self.features.reservation_mask(notice.nsid), notice.what) {
                self.admin.notifications.add(notice);
                self.raise(Event::ReservationNotification);
            }
        }
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
