//! Fabrics commands, which are executed here: Connect, properties and messages of authentication.

use authentication::{Next, Outcome};
use nvme_spec::cqe::StatusField;
use nvme_spec::fabrics::{ConnectDw0, FabricsType};
use nvme_spec::{Sqe, Status};
use nvme_tcp::Piece;
use port::time::Time;

use super::Queue;
use crate::nvme_tcp::connection::{End, Pdu};
use crate::nvme_tcp::proof::Proof;

impl Queue {
    /// The command of a Fabrics command that is to be executed.
    pub(in crate::nvme_tcp) fn next_fabrics(&mut self) -> Option<(u16, Sqe)> {
        let index = self.fabrics.pop_front()?;
        Some((index, self.commands.get(index).sqe))
    }

    /// Answers Connect: with the identifier of the controller, and whether the host is to prove who
    /// it is, and to make a key of TLS.
    pub(in crate::nvme_tcp) fn accept(&mut self, cntlid: u16) {
        let exchange = self.exchange.as_ref();
        let concatenates = exchange.is_some_and(|(exchange, _)| exchange.must_concatenate());
        let dw0 = ConnectDw0::new()
            .with_ascr(concatenates)
            .with_atr(exchange.is_some())
            .with_cntlid(cntlid);
        let mut cqe = self.cqe(self.cid, dw0.into(), 0, StatusField::new());
        if self.head.is_none() {
            // Where flow control is off this says so (Base 2.1, 6.3).
            cqe.sq_head = 0xffff;
        }
        let head = self.connection.encoder().response(&cqe);
        self.connection.push(Pdu::bare(head, None));
    }

    /// Answers a Fabrics command.
    pub(in crate::nvme_tcp) fn answer(&mut self, index: u16, status: Status, dwords: [u32; 2]) {
        self.answer_as(index, StatusField::new().with_status(status), dwords);
    }

    /// The data of a Fabrics command that came, which are in its small slot.
    fn message(&self, index: u16) -> Vec<u8> {
        let mut bytes = vec![0; self.commands.get(index).data.len as usize];
        self.memory.read(self.small_at(index), &mut bytes);
        bytes
    }

    /// Answers a Fabrics command with data, which zeros fill up. False: they are longer than its
    /// host has room for.
    fn answer_with(&mut self, index: u16, bytes: &[u8]) -> bool {
        let command = self.commands.get(index);
        let (cid, len) = (command.sqe.cid, command.data.len);
        if bytes.len() > len as usize {
            return false;
        }
        let at = self.small_at(index);
        self.memory.clear(at, len as usize);
        self.memory.write(at, bytes);
        let piece = Piece {
            cccid: cid,
            ttag: 0,
            offset: 0,
            len,
            last: true,
        };
        self.connection.push_data(&piece, false, at, None);
        self.answer(index, Status::SUCCESSFUL_COMPLETION, [0, 0]);
        true
    }

    /// Proof of its host on this queue.
    pub(in crate::nvme_tcp) fn proof(&self) -> Proof {
        self.proof
    }

    /// When its exchange is to be looked at.
    pub(in crate::nvme_tcp) fn exchange_deadline(&self) -> Option<Time> {
        let exchange = self.exchange.as_ref();
        exchange.map(|(exchange, _)| exchange.deadline())
    }

    /// Executes Authentication Send, and begins Authentication Receive.
    pub(in crate::nvme_tcp) fn take_message(&mut self, index: u16, kind: FabricsType, now: Time) {
        let message = self.message(index);
        let status = match &mut self.exchange {
            Some((exchange, _)) if kind == FabricsType::AUTHENTICATION_SEND => {
                exchange.take(&message, now);
                Status::SUCCESSFUL_COMPLETION
            }
            Some((_, fetching @ None)) => {
                *fetching = Some(index);
                return;
            }
            _ => Status::COMMAND_SEQUENCE_ERROR,
        };
        self.answer(index, status, [0, 0]);
    }

    /// Answers Authentication Receive when there is a message, and sees how far the exchange is.
    /// True when the host has just proved its secret.
    pub(in crate::nvme_tcp) fn authenticate(&mut self, now: Time) -> Result<bool, End> {
        let Some((exchange, fetching)) = &mut self.exchange else {
            return Ok(false);
        };
        exchange.look(now);
        let mut next = None;
        if let Some(index) = *fetching
            && let Next::Message(message) = exchange.next(now)
        {
            *fetching = None;
            next = Some((index, message));
        }
        let (outcome, until) = (exchange.outcome(), exchange.until());
        let is_concatenated = exchange.is_concatenated();
        if let Some((index, message)) = next {
            if !self.answer_with(index, &message) {
                self.answer(index, Status::INVALID_FIELD_IN_COMMAND, [0, 0]);
            }
            self.send(now)?;
        }
        match outcome {
            Outcome::Pending if now >= until => Err(End::Unauthenticated),
            Outcome::Pending => Ok(false),
            Outcome::Failed(failed) => Err(End::Authentication(failed)),
            // Its host closes the connection.
            Outcome::Authenticated { .. } if is_concatenated => {
                self.proof = Proof::Concatenated;
                if now >= until {
                    return Err(End::Concatenated);
                }
                Ok(false)
            }
            Outcome::Authenticated { both } => {
                self.proof = Proof::authenticated(both);
                self.exchange = None;
                Ok(true)
            }
        }
    }
}
