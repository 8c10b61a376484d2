//! Commands that only the subsystem can execute: reservations, and marks of uncorrectable blocks.
//!
//! The lane reads the command's data once, and forwards both with the command's ticket; the answer
//! returns with the ticket ([`super::Lane::answer`]). Meanwhile the command counts as in flight,
//! like one in a medium, so that resets and deletions wait for it or abort it as usual. But no
//! change of the map or of namespaces waits for it, because it may have requested that change.

use nvme_spec::{Sqe, Status};
use port::prp::Segments;
use port::ticket::Ticket;
use subsystem::{DATA_LEN, Forward, UNNAMED};

use super::Lane;
use super::message::LaneEvent;
use super::queues::Queues;
use crate::command::{self, Command};
use crate::state::CommandState;

impl Lane {
    /// Forwards commands with marks of uncorrectable blocks to clear to the subsystem; each
    /// completes with the answer, when no read finds the marks any more.
    #[inline]
    pub(super) fn forward_clears(&mut self) {
        if !self.queues.clears.is_empty() {
            self.forward_all_clears();
        }
    }

    #[cold]
    fn forward_all_clears(&mut self) {
        for index in std::mem::take(&mut self.queues.clears) {
            let slot = self.queues.slots.slot(index);
            let sqe = slot.sqe();
            let written = self.namespaces.get(sqe.nsid).and_then(|namespace| {
                let bytes = u64::from(slot.bytes);
                written(&sqe, bytes >> namespace.lba_shift)
            });
            let Some((slba, blocks)) = written else {
                // The namespace is gone, and its marks with it.
                let status = Status::SUCCESSFUL_COMPLETION;
                self.queues.finish(index, status);
                continue;
            };
            let mut data = [0; DATA_LEN];
            data[..8].copy_from_slice(&slba.to_le_bytes());
            data[8..].copy_from_slice(&blocks.to_le_bytes());
            let ticket = Ticket::issue(self.home_key, index, slot.generation());
            slot.outstanding = 1;
            slot.set_state(CommandState::IN_FLIGHT);
            self.queues.count_forwarded(index);
            self.forwards.push_back(Forward {
                ticket,
                sqe,
                data,
                name: UNNAMED,
            });
        }
    }

    /// The next command for the subsystem.
    #[inline]
    pub fn take_forward(&mut self) -> Option<Forward> {
        self.forwards.pop_front()
    }

    /// The subsystem has answered a command that was handed to it: it completes with the status, or
    /// with the bytes in the host's memory, of which as many are given as the command has room for.
    pub fn answer(&mut self, ticket: Ticket, result: Result<&[u8], Status>) {
        let status = match result.and_then(|data| self.give(&ticket, data)) {
            Ok(()) => Status::SUCCESSFUL_COMPLETION,
            Err(status) => status,
        };
        let name = self.queues.name_of(&ticket);
        self.queues.answer(ticket, status);
        // The subsystem needs its answer no longer.
        if let Some(name) = name {
            self.queues.reports.add(LaneEvent::Answered { name });
        }
    }

    fn give(&mut self, ticket: &Ticket, data: &[u8]) -> Result<(), Status> {
        // The host may have reused the memory of an aborted command already.
        let Some(sqe) = self.queues.sqe_of(ticket).filter(|_| !data.is_empty()) else {
            return Ok(());
        };
        let len = data.len() as u32;
        let mut segments = Segments::new();
        super::issue::walk(
            &self.view,
            &mut self.hint,
            &sqe,
            len,
            memory::Need::DeviceWrites,
            &mut segments,
        )?;
        let mut rest = data;
        for segment in &segments {
            let (part, after) = rest.split_at(segment.len() as usize);
            segment.write_from(0, part);
            rest = after;
        }
        Ok(())
    }
}

/// The blocks that a command has written: first block and number of blocks; `carried` of them, if
/// its entry does not say.
fn written(sqe: &Sqe, carried: u64) -> Option<(u64, u64)> {
    match command::parse(sqe).ok()? {
        Command::Write { blocks, .. } | Command::WriteZeroes { blocks, .. } => {
            Some((blocks.slba, blocks.count.into()))
        }
        Command::Copy { slba, .. } => Some((slba, carried)),
        _ => None,
    }
}

impl Queues {
    /// The name of a ticket's command, if it has one.
    fn name_of(&mut self, ticket: &Ticket) -> Option<u64> {
        let (index, generation) = ticket.place();
        let slot = self.slots.named(index, generation)?;
        if command::is_named(&slot.sqe()) {
            slot.known_name()
        } else {
            None
        }
    }

    /// The command of a ticket, unless it was aborted.
    fn sqe_of(&mut self, ticket: &Ticket) -> Option<Sqe> {
        let (index, generation) = ticket.place();
        let slot = self.slots.named(index, generation)?;
        let live = slot.state() == CommandState::IN_FLIGHT;
        live.then(|| slot.sqe())
    }
}
