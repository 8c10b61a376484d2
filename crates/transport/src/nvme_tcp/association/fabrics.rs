//! Fabrics commands: properties of the admin queue, and the authentication of all queues.

use controller::Controller;
use nvme_spec::fabrics::FabricsType;
use nvme_spec::registers::{CC, Cc};
use nvme_spec::{Sqe, Status};
use port::time::Time;

use super::{Association, Io, place};
use crate::host::{point, state};
use crate::nvme_tcp::connection::End;
use crate::nvme_tcp::properties;

/// Fabrics commands that carry messages of an exchange.
const COMMANDS: [FabricsType; 2] = [
    FabricsType::AUTHENTICATION_SEND,
    FabricsType::AUTHENTICATION_RECEIVE,
];

impl Association {
    /// Executes Fabrics commands.
    pub(super) fn execute_fabrics(&mut self, controller: &mut Controller, now: Time) -> bool {
        let mut worked = false;
        while let Some((index, sqe)) = self.admin.next_fabrics() {
            worked = true;
            let kind = sqe.fabrics_type();
            if COMMANDS.contains(&kind) {
                self.admin.take_message(index, kind, now);
                continue;
            }
            let result = if sqe.fabrics_type() == FabricsType::PROPERTY_GET {
                properties::get(controller, &sqe)
            } else {
                self.set_property(controller, &sqe, now).map(|()| 0)
            };
            let (status, value) = match result {
                Ok(value) => (Status::SUCCESSFUL_COMPLETION, value),
                Err(status) => (status, 0),
            };
            let words = [(value & 0xffff_ffff) as u32, (value >> 32) as u32];
            self.admin.answer(index, status, words);
        }
        for io in self.io[..self.used].iter_mut().flatten() {
            if let Io::Open(queue) = io {
                while let Some((index, sqe)) = queue.next_fabrics() {
                    worked = true;
                    queue.take_message(index, sqe.fabrics_type(), now);
                }
            }
        }
        worked
    }

    fn set_property(
        &mut self,
        controller: &mut Controller,
        sqe: &Sqe,
        now: Time,
    ) -> Result<(), Status> {
        let (offset, value) = properties::to_set(controller, sqe)?;
        let (cc, _) = state(controller);
        if offset == CC && Cc::from(value).en() && !cc.en() {
            point(controller, &mut self.admin.rings);
        }
        controller.bar_write(0, offset, &value.to_le_bytes());
        self.follow(controller, now);
        Ok(())
    }

    /// Sees how far the exchanges of all queues are. An I/O queue whose exchange fails ends alone:
    /// its peer may be another host than that of the admin queue.
    pub(super) fn authenticate(
        &mut self,
        controller: &mut Controller,
        now: Time,
    ) -> Result<(), End> {
        if self.admin.authenticate(now)? {
            controller.host_has_proved();
            self.changes += 1;
        }
        for qid in (1..).take(self.used) {
            if let Some(Io::Open(queue)) = &mut self.io[place(qid)] {
                match queue.authenticate(now) {
                    Ok(has_proved) => {
                        self.changes += u64::from(has_proved);
                        self.openings += u64::from(has_proved);
                    }
                    Err(end) => self.lose(qid, &end, now),
                }
            }
        }
        Ok(())
    }
}
