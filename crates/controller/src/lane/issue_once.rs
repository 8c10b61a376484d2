//! Commands whose second execution would have another result than the first: they are marked, or
//! noted, before a medium gets them, so that a restart knows of them.

use std::sync::Arc;

use memory::Need;
use nvme_spec::{Sqe, Status};
use port::namespace::Namespace;
use port::set::{self, CommandSet, Data};
use port::ticket::Ticket;
use port::{Added, Channel, ChannelId, Request, status};

use super::issue::{Issuer, weighed};
use super::outcome::Issued;
use super::{restrictions, watch};
use crate::gate::Gate;
use crate::state::{SlotState, ordered};

impl<C: Channel, G: Gate> Issuer<'_, C, G> {
    /// Finds the data of a command of the namespace's own set, and hands it to the medium.
    #[inline(never)]
    pub(super) fn command(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        sqe: &Sqe,
        namespace: &Namespace,
        asked: &set::Asked,
    ) -> Result<Issued, Status> {
        if let Some(restrictions) = &namespace.restrictions {
            restrictions::check_access(restrictions, asked.access)?;
        }
        let request = Request::Command {
            sqe,
            extent: namespace.extent(),
            lba_shift: namespace.lba_shift,
            fua: self.write_through,
        };
        let (bytes, need) = match asked.data {
            Data::Nothing => (0, Need::DeviceReads),
            Data::FromHost(bytes) => (bytes, Need::DeviceReads),
            Data::ToHost(bytes) => (bytes, Need::DeviceWrites),
        };
        if bytes > u64::from(self.mdts_bytes) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        slot.bytes = bytes as u32;
        self.segments.clear();
        if bytes > 0 {
            self.walk(sqe, slot.bytes, need)?;
        }
        let is_noted = |set: &Arc<dyn CommandSet>| set.is_noted(sqe);
        if namespace.traits.notes && namespace.set.as_ref().is_some_and(is_noted) {
            return self.add_noted(index, slot, namespace.channel, &request);
        }
        let Some(channel) = self.channels.get_mut(namespace.channel) else {
            return Err(Status::NAMESPACE_NOT_READY);
        };
        if channel.copies() {
            self.copied += weighed(channel, bytes);
        }
        slot.marks.set_acted(true);
        ordered();
        let ticket = Ticket::issue(self.key, index, slot.generation());
        let begun = watch::begin::<G>(self.clock);
        let added = channel.add(ticket, &request, &self.segments, self.view);
        watch::end(begun, &*channel, &mut self.handed);
        Ok(match added {
            Added::Done(ticket, outcome) => {
                let _ = ticket.fulfil();
                slot.set_result(outcome.result);
                Issued::Ended(status::of(outcome.cause))
            }
            Added::Pending => {
                slot.outstanding += 1;
                Issued::Pending
            }
            Added::Full(ticket) => {
                let _ = ticket.fulfil();
                slot.marks.set_acted(false);
                Issued::Full
            }
        })
    }

    /// Hands the one request of a command to a channel with notes: the note is stored before the
    /// medium acts, and a command that has one is executed again.
    #[inline(never)]
    pub(super) fn add_noted(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        channel: ChannelId,
        request: &Request<'_>,
    ) -> Result<Issued, Status> {
        let Some(channel) = self.channels.get_mut(channel) else {
            return Err(Status::NAMESPACE_NOT_READY);
        };
        if channel.copies() {
            self.copied += weighed(channel, slot.bytes.into());
        }
        let ticket = Ticket::issue(self.key, index, slot.generation());
        let begun = watch::begin::<G>(self.clock);
        let again = slot.medium_note();
        let again = again.filter(|note| channel.has_begun(request, note.get()));
        let added = if let Some(note) = again {
            let noted = (request, note.get());
            channel.add_again(ticket, noted, &self.segments, self.view)
        } else {
            if let Some(note) = channel.note(request) {
                slot.take_note(note);
            }
            let added = channel.add(ticket, request, &self.segments, self.view);
            // It was rejected: another command may get this note.
            let note = slot.medium_note();
            if note.is_some_and(|note| !channel.uses_note(note.get())) {
                slot.drop_note();
            }
            added
        };
        watch::end(begun, &*channel, &mut self.handed);
        Ok(match added {
            Added::Done(ticket, outcome) => {
                let _ = ticket.fulfil();
                if outcome.result != 0 {
                    slot.take_result(outcome.result);
                }
                Issued::Ended(status::of(outcome.cause))
            }
            Added::Pending => {
                slot.outstanding += 1;
                Issued::Pending
            }
            Added::Full(ticket) => {
                let _ = ticket.fulfil();
                if again.is_none() {
                    slot.drop_note();
                }
                Issued::Full
            }
        })
    }
}
