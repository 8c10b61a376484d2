//! The authentication of the host: its messages, and how far it is.

use authentication::{Next, Outcome};
use nvme_spec::Status;
use nvme_spec::fabrics::FabricsType;
use port::time::Time;

use super::Association;
use crate::nvme_tcp::authentication::Proof;
use crate::nvme_tcp::connection::End;

/// Fabrics commands that carry messages of an exchange.
pub(super) const COMMANDS: [FabricsType; 2] = [
    FabricsType::AUTHENTICATION_SEND,
    FabricsType::AUTHENTICATION_RECEIVE,
];

impl Association {
    /// Executes Authentication Send, and begins Authentication Receive.
    pub(super) fn take_authentication(&mut self, index: u16, kind: FabricsType, now: Time) {
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
