//! What records have for a process that continues: answers of commands in flight, and reservation
//! notifications that controllers have not taken.

use nvme_spec::reservation::ReservationNotificationType;

use super::{Member, Subsystem};
use crate::answers::UNNAMED;
use crate::notices::{KeptNotice, Notice};
use crate::set::ControllerId;

impl Subsystem {
    /// A command with this name has completed.
    pub fn completed(&mut self, controller: ControllerId, name: u64) {
        if name != UNNAMED {
            self.answers.remove(controller, name);
        }
    }

    /// No command of this controller is in flight.
    pub fn forget_answers(&mut self, controller: ControllerId) {
        self.answers.forget(controller);
    }

    /// Every command of this controller that is executed again has begun.
    pub fn forget_unclaimed_answers(&mut self, controller: ControllerId) {
        self.answers.forget_unclaimed(controller);
    }

    /// Whether the effect of a command with this name is there. It is executed again then by an
    /// operation without steps.
    #[must_use]
    pub fn has_answer(&self, controller: ControllerId, name: u64) -> bool {
        name != UNNAMED && self.answers.has(controller, name)
    }

    /// Notifications that the process before has kept.
    pub(super) fn find_notices(&mut self, mut found: Vec<KeptNotice>) {
        found.sort_by_key(|it| it.order);
        for kept in found {
            self.numbers.find(kept.order);
            if let Some(member) = self.member_mut(kept.controller) {
                member.notices.find(kept);
            }
        }
    }

    /// Notifies the controllers that are `told` of a change that is in the next record.
    pub(super) fn notify(
        &mut self,
        nsid: u32,
        what: ReservationNotificationType,
        told: impl Fn(&Member) -> bool,
    ) {
        let (numbers, version) = (&mut self.numbers, self.version);
        for member in self.members.iter_mut().filter(|member| told(member)) {
            member.notices.notify((nsid, what), numbers, version);
        }
    }

    /// Notifications for a controller since the last call whose record is kept, or cannot be. The
    /// caller saves them, with the number of the last one.
    #[inline]
    pub fn take_notices(&mut self, id: ControllerId) -> Vec<Notice> {
        let version = self.kept_version.max(self.failed_version);
        let member = self.member_mut(id);
        let notices = member.map(|member| member.notices.take(version));
        notices.unwrap_or_default()
    }

    /// A controller that goes on in this process has taken the notification with this number, and
    /// those before it.
    pub fn continue_notices(&mut self, id: ControllerId, last: u64) {
        if let Some(member) = self.member_mut(id) {
            member.notices.forget_through(last);
        }
    }

    /// The host of a controller knows of no notification. The number of the last one that waited.
    pub fn forget_notices(&mut self, id: ControllerId) -> Option<u64> {
        self.member_mut(id)?.notices.clear()
    }

    /// Those of the next record. No process goes on with a dynamic controller.
    pub(super) fn kept_notices(&self) -> Vec<KeptNotice> {
        let members = self.members.iter().filter(|m| !m.id.is_dynamic());
        members.flat_map(|m| m.notices.kept(m.id)).collect()
    }
}
