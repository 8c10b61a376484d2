//! Fabrics commands, which are executed here: Connect, properties and messages of authentication.

use nvme_spec::cqe::StatusField;
use nvme_spec::{Sqe, Status};
use nvme_tcp::Piece;

use super::Queue;
use crate::nvme_tcp::connection::Pdu;

impl Queue {
    /// The command of a Fabrics command that is to be executed.
    pub(in crate::nvme_tcp) fn next_fabrics(&mut self) -> Option<(u16, Sqe)> {
        let index = self.fabrics.pop_front()?;
        Some((index, self.commands.get(index).sqe))
    }

    /// Answers Connect.
    pub(in crate::nvme_tcp) fn accept(&mut self, dw0: u32) {
        let mut cqe = self.cqe(self.cid, dw0, 0, StatusField::new());
        if self.head.is_none() {
            // Where flow control is off this says so (Base 2.1, 6.3).
            cqe.sq_head = 0xffff;
        }
        let head = self.connection.encoder().response(&cqe);
        self.connection.push(Pdu::bare(head, None));
    }

    /// The data of a Fabrics command that came, which are in its small slot.
    pub(in crate::nvme_tcp) fn message(&self, index: u16) -> Vec<u8> {
        let mut bytes = vec![0; self.commands.get(index).data.len as usize];
        self.memory.read(self.small_at(index), &mut bytes);
        bytes
    }

    /// Answers a Fabrics command with data, which zeros fill up. False: they are longer than its
    /// host has room for.
    pub(in crate::nvme_tcp) fn answer_with(&mut self, index: u16, bytes: &[u8]) -> bool {
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
        let head = self.connection.encoder().c2h_data(&piece, false);
        self.connection.push_data(head, at, len, None);
        self.answer(index, Status::SUCCESSFUL_COMPLETION, [0, 0]);
        true
    }
}
