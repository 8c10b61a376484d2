//! Zones that outlive their process, and commands of a process that died.
//!
//! A write or an append is noted before it moves its zone's write pointer ([`State::note`]). The
//! next process finds the zones as the last one left them, so it sees whether a noted command moved
//! the pointer: if so, the bytes are written again at the same place, and nothing else changes.
//! Commands that read, and those that leave a zone as it is where they have had their effect, need
//! no note.
//!
//! The comparison is with the zones that were found, and not with those of now: a command that is
//! executed again may meanwhile have moved the write pointer that another one had noted.

use std::sync::Arc;

use memory::{DmaView, Segment, StateFile, Store};
use nvme_spec::Sqe;
use nvme_spec::zoned::{
    ZoneAppendCdw12, ZoneSendAction, ZoneSendCdw13, ZoneState, ZonedOpcode, zone_slba,
};
use port::ticket::Ticket;
use port::{Added, ByteRange, Channel as Port, Outcome, Request};

use super::place::{find_append, offset_of, zone_of};
use super::zones::{Geometry, Write, Zone};
use super::{Once, State, Stopped, Times, ZonedChannel, table};
use crate::kept::{Kept, KeptError};

impl State {
    /// Has the zones outlive the process where `kept` says so: those of this state, or of a process
    /// that has ended, which are newer than those of a log. Returns the memory.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub(super) fn keep(&mut self, kept: Kept) -> Result<Option<Arc<StateFile>>, KeptError> {
        let geometry = *self.zones.geometry();
        let extension_bytes = self.extension_bytes;
        let (kept, is_new) = match kept {
            Kept::No => return Ok(None),
            Kept::New => (table::Kept::create(&geometry, extension_bytes)?, true),
            Kept::Of(file) => (table::Kept::adopt(file, &geometry, extension_bytes)?, false),
        };
        let table::Kept {
            table,
            ended,
            mut extensions,
            file,
        } = kept;
        let mut changed = Vec::new();
        if is_new {
            extensions.store(0, &self.extensions);
        } else {
            let found = table.zones(&geometry)?;
            for (number, zone) in (0..).zip(&found) {
                let logged = self.zones.get(number);
                if logged != zone.after_restart() {
                    changed.push((number, zone.extended));
                }
                if logged != *zone {
                    self.zones.restore(number, *zone);
                }
            }
            self.extensions.copy_from_slice(extensions.bytes());
            self.found = found;
        }
        self.zones.set_table(table);
        if let Some(keeper) = &mut self.keeper {
            keeper.go_on(ended, &self.zones, changed.into_iter(), is_new);
        }
        self.kept_extensions = Some(extensions);
        Ok(Some(file))
    }

    /// Zeroes all bytes after write pointers. No effect on zones of this process.
    pub(super) fn sweep(&self, store: &Store) {
        if self.found.is_empty() {
            return;
        }
        let Geometry {
            zone_bytes, zones, ..
        } = *self.zones.geometry();
        // The bytes from here on are zeroed together.
        let mut from = 0;
        for zone in 0..zones {
            let (start, reached) = (self.zones.start(zone), self.zones.get(zone).reached);
            if reached > 0 {
                if from < start {
                    store.zero(from, start - from, true);
                }
                from = start + reached;
            }
        }
        let end = zone_bytes * u64::from(zones);
        if from < end {
            store.zero(from, end - from, true);
        }
    }

    /// See [`Port::note`].
    pub(super) fn note(&self, request: &Request<'_>) -> Option<u64> {
        let zones = &self.zones;
        match *request {
            Request::Write { offset, len, .. } => {
                zones.check_write(offset, len.into()).ok().map(|_| 0)
            }
            Request::WriteZeroes { offset, len, .. } => {
                zones.check_write(offset, len).ok().map(|_| 0)
            }
            Request::Command {
                sqe,
                extent,
                lba_shift,
                ..
            } => match ZonedOpcode(sqe.opcode) {
                ZonedOpcode::ZONE_APPEND => {
                    let (write, _) = find_append(zones, sqe, extent, lba_shift).ok()?;
                    Some((write.offset - extent.offset) >> lba_shift)
                }
                ZonedOpcode::ZONE_MANAGEMENT_SEND => {
                    let sent = self.sent(sqe, extent, lba_shift)?;
                    self.admits(sent).then_some(0)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// See [`Port::has_begun`].
    pub(super) fn has_begun(&self, request: &Request<'_>, note: u64) -> bool {
        if self.found.is_empty() {
            return false;
        }
        if let Request::Command {
            sqe,
            extent,
            lba_shift,
            ..
        } = *request
            && ZonedOpcode(sqe.opcode) == ZonedOpcode::ZONE_MANAGEMENT_SEND
        {
            let sent = self.sent(sqe, extent, lba_shift);
            return sent.is_some_and(|sent| self.is_done(sent));
        }
        self.begun(request, note).is_some()
    }

    /// The command of Zone Management Send that cannot be repeated; `None` for others, and for one
    /// that names no zone.
    fn sent(&self, sqe: &Sqe, extent: ByteRange, lba_shift: u8) -> Option<Sent> {
        let cdw13 = ZoneSendCdw13::from(sqe.cdw13);
        match cdw13.zsa() {
            ZoneSendAction::FLUSH_EXPLICIT_ZRWA => {
                let lba = zone_slba(sqe);
                let offset = offset_of(extent, lba_shift, lba).ok()?;
                let zone = self.zones.at(offset)?;
                let to = offset + (1 << lba_shift) - self.zones.start(zone);
                Some(Sent::Commit(zone, to))
            }
            _ if cdw13.select_all() => None,
            ZoneSendAction::SET_DESCRIPTOR_EXTENSION => {
                let zone = zone_of(&self.zones, sqe, extent, lba_shift).ok()?;
                Some(Sent::Extension(zone))
            }
            ZoneSendAction::OPEN if cdw13.zsaso() => {
                let zone = zone_of(&self.zones, sqe, extent, lba_shift).ok()?;
                Some(Sent::OpenRandom(zone))
            }
            _ => None,
        }
    }

    /// Whether a zone is as a command needs it.
    fn admits(&self, sent: Sent) -> bool {
        match sent {
            Sent::Extension(zone) | Sent::OpenRandom(zone) => {
                self.zones.get(zone).state == ZoneState::EMPTY
            }
            Sent::Commit(zone, to) => self.zones.get(zone).written < to,
        }
    }

    /// Whether the process that died has executed a command, and its effect is still there.
    fn is_done(&self, sent: Sent) -> bool {
        let both = |zone: u32, has: fn(&Zone) -> bool| {
            has(&self.found[zone as usize]) && has(&self.zones.get(zone))
        };
        match sent {
            Sent::Extension(zone) => both(zone, |zone| zone.extended),
            Sent::OpenRandom(zone) => both(zone, |zone| zone.random),
            Sent::Commit(zone, to) => {
                let is_there = |zone: &Zone| zone.written >= to;
                is_there(&self.found[zone as usize]) && is_there(&self.zones.get(zone))
            }
        }
    }

    /// A write that had moved its zone's write pointer when the process died.
    fn begun(&self, request: &Request<'_>, note: u64) -> Option<Write> {
        let (place, len) = match *request {
            Request::Write { offset, len, .. } => (offset, len.into()),
            Request::WriteZeroes { offset, len, .. } => (offset, len),
            Request::Command {
                sqe,
                extent,
                lba_shift,
                ..
            } if ZonedOpcode(sqe.opcode) == ZonedOpcode::ZONE_APPEND => {
                let blocks = u64::from(ZoneAppendCdw12::from(sqe.cdw12).nlb_z()) + 1;
                let place = offset_of(extent, lba_shift, note).ok()?;
                let named = zone_of(&self.zones, sqe, extent, lba_shift).ok()?;
                if self.zones.at(place) != Some(named) {
                    return None;
                }
                (place, blocks << lba_shift)
            }
            _ => return None,
        };
        let number = self.zones.at(place)?;
        let from = place - self.zones.start(number);
        let end = from.checked_add(len)?;
        let is_in = |zone: Zone| from < zone.written && end <= zone.reached;
        let now = self.zones.get(number);
        let is_writable = !matches!(now.state, ZoneState::READ_ONLY | ZoneState::OFFLINE);
        let begun = is_in(self.found[number as usize]) && is_in(now) && is_writable;
        begun.then_some(Write {
            zone: number,
            offset: place,
            end,
            moves_to: if now.random { now.written } else { end },
            closes: None,
        })
    }
}

/// Commands of Zone Management Send whose second execution would fail: the zone is not any more as
/// they need it.
#[derive(Clone, Copy, Debug)]
enum Sent {
    /// Set Zone Descriptor Extension of a zone.
    Extension(u32),
    /// Open Zone of a zone with a random write area.
    OpenRandom(u32),
    /// Flush Explicit ZRWA Range of a zone, to this many bytes from its start.
    Commit(u32, u64),
}

impl<C: Port> ZonedChannel<C> {
    /// Completes a noted command that the process which died had begun.
    pub(super) fn try_again(
        &mut self,
        ticket: &mut Option<Ticket>,
        (request, note): (&Request<'_>, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Result<Added, Stopped> {
        if let Some(write) = self.state().begun(request, note) {
            let once = Once(write, Times::Again);
            return match *request {
                Request::Write { len, fua, .. } => {
                    self.write(ticket, once, (len, fua, 0), segments, view)
                }
                Request::WriteZeroes { len, fua, .. } => {
                    self.may_write(write.zone)?;
                    Ok(self.overwrite(ticket, once, (len, fua), request, view))
                }
                Request::Command { sqe, fua, .. } => {
                    let len = write.end - (write.offset - self.zones().start(write.zone));
                    let fua = fua || ZoneAppendCdw12::from(sqe.cdw12).fua();
                    // An append is not longer than a command's data.
                    self.write(ticket, once, (len as u32, fua, note), segments, view)
                }
                _ => self.try_add(ticket, request, segments, view),
            };
        }
        if let Request::Command {
            sqe,
            extent,
            lba_shift,
            ..
        } = *request
            && let Some(sent) = self.state().sent(sqe, extent, lba_shift)
            && self.state().is_done(sent)
        {
            if let Sent::Extension(zone) = sent {
                self.set_extension(zone, segments);
            }
            return Err(Stopped::Ends(Outcome::OK));
        }
        self.try_add(ticket, request, segments, view)
    }
}
