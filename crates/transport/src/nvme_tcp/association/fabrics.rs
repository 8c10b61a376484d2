//! Fabrics commands of the admin queue: properties, and the authentication of the host.

use authentication::{Next, Outcome};
use controller::Controller;
use nvme_spec::fabrics::FabricsType;
use nvme_spec::registers::{ACQ, AQA, ASQ, Aqa, CC, Cc};
use nvme_spec::{Sqe, Status};
use port::time::Time;

use super::Association;
use crate::nvme_tcp::authentication::Proof;
use crate::nvme_tcp::connection::End;
use crate::nvme_tcp::properties;

/// Fabrics commands that carry messages of an exchange.
const COMMANDS: [FabricsType; 2] = [
    FabricsType::AUTHENTICATION_SEND,
    FabricsType::AUTHENTICATION_RECEIVE,
];

impl Association {
    /// Executes Fabrics commands of the admin queue.
    pub(super) fn execute_fabrics(&mut self, controller: &mut Controller, now: Time) -> bool {
        let mut worked = false;
        while let Some((index, sqe)) = self.admin.next_fabrics() {
            worked = true;
            let kind = sqe.fabrics_type();
            if COMMANDS.contains(&kind) {
                self.take_authentication(index, kind, now);
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
        worked
    }

    fn set_property(
        &mut self,
        controller: &mut Controller,
        sqe: &Sqe,
        now: Time,
    ) -> Result<(), Status> {
        let (offset, value) = properties::to_set(controller, sqe)?;
        let (cc, _) = properties::state(controller);
        if offset == CC && Cc::from(value).en() && !cc.en() {
            self.admin.rings.reset();
            let entries_z = self.admin.rings.entries() - 1;
            let entries_z = u16::try_from(entries_z).expect("an admin queue is shorter");
            let aqa = Aqa::new().with_asqs_z(entries_z).with_acqs_z(entries_z);
            let (asq, acq) = self.admin.rings.addresses();
            controller.bar_write(0, AQA, &u32::from(aqa).to_le_bytes());
            controller.bar_write(0, ASQ, &asq.to_le_bytes());
            controller.bar_write(0, ACQ, &acq.to_le_bytes());
        }
        controller.bar_write(0, offset, &value.to_le_bytes());
        self.follow(controller, now);
        Ok(())
    }

    /// Executes Authentication Send, and begins Authentication Receive.
    fn take_authentication(&mut self, index: u16, kind: FabricsType, now: Time) {
        let status = match &mut self.exchange {
            Some((exchange, _)) if kind == FabricsType::AUTHENTICATION_SEND => {
                exchange.take(&self.admin.message(index), now);
                Status::SUCCESSFUL_COMPLETION
            }
            Some((_, fetching @ None)) => {
                *fetching = Some(index);
                return;
            }
            _ => Status::COMMAND_SEQUENCE_ERROR,
        };
        self.admin.answer(index, status, [0, 0]);
    }

    /// Answers Authentication Receive when there is a message, and sees how far the exchange is.
    pub(super) fn authenticate(&mut self, now: Time) -> Result<(), End> {
        let Some((exchange, fetching)) = &mut self.exchange else {
            return Ok(());
        };
        exchange.look(now);
        if let Some(index) = *fetching
            && let Next::Message(message) = exchange.next()
        {
            *fetching = None;
            if !self.admin.answer_with(index, &message) {
                let status = Status::INVALID_FIELD_IN_COMMAND;
                self.admin.answer(index, status, [0, 0]);
            }
            self.admin.send(&mut self.slots, now)?;
        }
        match exchange.outcome() {
            Outcome::Pending if now >= exchange.until() => Err(End::Unauthenticated),
            Outcome::Pending => Ok(()),
            Outcome::Failed(failed) => Err(End::Authentication(failed)),
            Outcome::Authenticated { both } => {
                self.proof = if both { Proof::Both } else { Proof::Host };
                self.changes += 1;
                self.exchange = None;
                Ok(())
            }
        }
    }
}
