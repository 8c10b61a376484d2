//! Zone Management Send (ZNS 1.1, 3.4.3), and format, which resets all zones.

use std::sync::Arc;

use memory::{DmaView, Segment};
use model::{Op, ZoneOp};
use nvme_spec::zoned::{ZoneSendAction, ZoneSendCdw13, ZoneState, zone_slba};
use nvme_spec::{Sqe, Status};
use port::ticket::Ticket;
use port::{Added, ByteRange, Channel as Port, Outcome, Request};

use super::place::{offset_of, zone_of};
use super::zones::{Acted, Zones};
use super::{Out, RANGES_MAX, Stopped, Taken, ZonedChannel, id_of};

impl<C: Port> ZonedChannel<C> {
    /// Zone Management Send.
    pub(super) fn send(
        &mut self,
        ticket: &mut Option<Ticket>,
        (sqe, extent, lba_shift): (&Sqe, ByteRange, u8),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Result<Added, Stopped> {
        let cdw13 = ZoneSendCdw13::from(sqe.cdw13);
        let action = cdw13.zsa();
        // Open Zone and Set Zone Descriptor Extension: allocate a random write area.
        let random = cdw13.zsaso();
        if action == ZoneSendAction::FLUSH_EXPLICIT_ZRWA {
            return self.commit(offset_of(extent, lba_shift, zone_slba(sqe))?, lba_shift);
        }
        if cdw13.select_all() {
            return self.act_on_all(ticket, action, extent, view);
        }
        let zone = zone_of(self.zones(), sqe, extent, lba_shift)?;
        if action == ZoneSendAction::SET_DESCRIPTOR_EXTENSION {
            let state = self.state();
            state.zones.extend(zone, random)?;
            self.set_extension(zone, segments);
            return Err(Stopped::Ends(Outcome::OK));
        }
        if action == ZoneSendAction::RESET {
            return match self.zones().get(zone).state {
                ZoneState::EMPTY => Err(Stopped::Ends(Outcome::OK)),
                state if Zones::is_selected(action, state) => self.reset(ticket, zone, zone, view),
                _ => Err(Status::INVALID_ZONE_STATE_TRANSITION.into()),
            };
        }
        if action == ZoneSendAction::OPEN && random {
            let closed = self.zones().open_random(zone)?;
            self.tell_closed(closed);
            self.happened.push(Op::Zone(ZoneOp::Open { zone }));
            if let Some(keeper) = self.keeper() {
                keeper.touch(zone);
            }
            return Err(Stopped::Ends(Outcome::OK));
        }
        if action == ZoneSendAction::FINISH {
            self.may_erase(zone, zone)?;
        }
        self.act(action, zone)?;
        Err(Stopped::Ends(Outcome::OK))
    }

    /// Stores the descriptor extension of a zone.
    pub(super) fn set_extension(&mut self, zone: u32, segments: &[Segment<'_>]) {
        let state = self.state();
        let at = zone as usize * state.extension_bytes;
        let bytes = &mut state.extensions[at..at + state.extension_bytes];
        let mut place = &mut *bytes;
        for segment in segments {
            let (now, later) = place.split_at_mut(segment.len() as usize);
            segment.read_into(0, now);
            place = later;
        }
        if let Some(kept) = &mut state.kept_extensions {
            kept.store(at, bytes);
        }
        if let Some(keeper) = self.keeper() {
            keeper.touch_extension(zone);
        }
    }

    /// Flush Explicit ZRWA Range, up to and including the block at `offset`.
    fn commit(&mut self, offset: u64, lba_shift: u8) -> Result<Added, Stopped> {
        let zone = self.zones().at(offset).ok_or(Status::LBA_OUT_OF_RANGE)?;
        // Data that a reset still erases must not be before the write pointer.
        self.may_write(zone)?;
        let zones = self.zones();
        let closed = zones.commit(zone, offset + (1 << lba_shift))?;
        let to = zones.get(zone).written;
        self.tell_closed(closed);
        if let Some(keeper) = self.keeper() {
            keeper.moved(zone, to);
        }
        Err(Stopped::Ends(Outcome::OK))
    }

    fn act(&mut self, action: ZoneSendAction, zone: u32) -> Result<(), Status> {
        if let Acted::Changed { closed } = self.zones().act(action, zone)? {
            self.tell_closed(closed);
            let told = match action {
                ZoneSendAction::OPEN => Some(ZoneOp::Open { zone }),
                ZoneSendAction::CLOSE => Some(ZoneOp::Close { zone }),
                ZoneSendAction::FINISH => Some(ZoneOp::Finish { zone }),
                ZoneSendAction::RESET => Some(ZoneOp::Reset { zone }),
                _ => None,
            };
            self.happened.extend(told.map(Op::Zone));
            if let Some(keeper) = self.keeper() {
                match action {
                    ZoneSendAction::RESET => keeper.reset(zone),
                    _ => keeper.touch(zone),
                }
            }
        }
        Ok(())
    }

    /// Zone Management Send with Select All.
    fn act_on_all(
        &mut self,
        ticket: &mut Option<Ticket>,
        action: ZoneSendAction,
        extent: ByteRange,
        view: &Arc<DmaView>,
    ) -> Result<Added, Stopped> {
        let Some((first, last)) = self.zones_of(extent) else {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT.into());
        };
        if action == ZoneSendAction::RESET {
            return self.reset(ticket, first, last, view);
        }
        if action == ZoneSendAction::OPEN {
            self.zones().check_open_all(first, last)?;
        }
        if action == ZoneSendAction::FINISH {
            self.may_erase(first, last)?;
        }
        // Selected before any change: a zone that is closed to make room must not be opened by the
        // same command.
        let mut selected = std::mem::take(&mut self.selected);
        selected.clear();
        let zones = self.zones();
        let concerned = |zone: &u32| Zones::is_selected(action, zones.get(*zone).state);
        selected.extend((first..=last).filter(concerned));
        let acted = selected.iter().try_for_each(|zone| self.act(action, *zone));
        self.selected = selected;
        acted?;
        Err(Stopped::Ends(Outcome::OK))
    }

    /// The first and the last zone of a namespace.
    fn zones_of(&mut self, extent: ByteRange) -> Option<(u32, u32)> {
        let zones = self.zones();
        let last = extent.offset.checked_add(extent.len.checked_sub(1)?)?;
        Some((zones.at(extent.offset)?, zones.at(last)?))
    }

    /// Resets every zone from `first` to `last` that can be reset: zeroes the written data first.
    fn reset(
        &mut self,
        ticket: &mut Option<Ticket>,
        first: u32,
        last: u32,
        view: &Arc<DmaView>,
    ) -> Result<Added, Stopped> {
        self.may_erase(first, last)?;
        if self.is_kept() {
            return self.reset_kept(ticket, first, last);
        }
        let mut ranges = std::mem::take(&mut self.ranges);
        let id = id_of(ticket);
        let found = self.find_written(first, last, &mut ranges);
        let added = found.map(|()| self.erase(ticket, &ranges, view));
        self.ranges = ranges;
        let added = added?;
        if matches!(added, Some(Added::Full(_))) {
            return added.ok_or(Stopped::Waits);
        }
        self.reset_states(first, last)?;
        let what = Taken::Erase { first, last };
        match added {
            None => Err(Stopped::Ends(Outcome::OK)),
            Some(added) => Ok(self.taken(added, id, what)),
        }
    }

    fn reset_states(&mut self, first: u32, last: u32) -> Result<(), Status> {
        for zone in first..=last {
            if Zones::is_selected(ZoneSendAction::RESET, self.zones().get(zone).state) {
                self.act(ZoneSendAction::RESET, zone)?;
            }
        }
        Ok(())
    }

    /// Like [`Self::reset`], with the log updated first.
    fn reset_kept(
        &mut self,
        ticket: &mut Option<Ticket>,
        first: u32,
        last: u32,
    ) -> Result<Added, Stopped> {
        if self.waiting.is_full() || self.out.iter().any(|out| out.what.is_erase()) {
            return Err(Stopped::Waits);
        }
        let mut ranges = std::mem::take(&mut self.ranges);
        let found = self.find_written(first, last, &mut ranges);
        let erases = !ranges.is_empty();
        self.ranges = ranges;
        found?;
        self.before.clear();
        for number in first..=last {
            let zone = self.zones().get(number);
            if Zones::is_selected(ZoneSendAction::RESET, zone.state) {
                self.before.push((number, zone));
            }
        }
        self.reset_states(first, last)?;
        match ticket.take_if(|_| erases) {
            None => Err(Stopped::Ends(Outcome::OK)),
            Some(ticket) => {
                let (id, what) = (Some(ticket.id()), Taken::Erase { first, last });
                self.out.push(Out { id, what });
                self.hold_reset(ticket);
                Ok(Added::Pending)
            }
        }
    }

    /// Finds the written ranges of the resettable zones, in few pieces: gaps between two of them
    /// may be erased too, unless they are in a zone that cannot be reset.
    fn find_written(
        &mut self,
        first: u32,
        last: u32,
        ranges: &mut Vec<ByteRange>,
    ) -> Result<(), Status> {
        ranges.clear();
        let zones = self.zones();
        let mut apart = true;
        for number in first..=last {
            let zone = zones.get(number);
            let selected = Zones::is_selected(ZoneSendAction::RESET, zone.state);
            if !selected {
                apart |= zone.state != ZoneState::EMPTY;
                continue;
            }
            if zone.reached == 0 {
                continue;
            }
            let (offset, end) = (zones.start(number), zones.start(number) + zone.reached);
            let is_full = ranges.len() == RANGES_MAX;
            match ranges.last_mut().filter(|_| !apart) {
                Some(range) => range.len = end - range.offset,
                None if is_full => return Err(Status::INTERNAL_ERROR),
                None => ranges.push(ByteRange {
                    offset,
                    len: zone.reached,
                }),
            }
            apart = false;
        }
        Ok(())
    }

    /// Zeroes ranges. `None` if there are none.
    fn erase(
        &mut self,
        ticket: &mut Option<Ticket>,
        ranges: &[ByteRange],
        view: &Arc<DmaView>,
    ) -> Option<Added> {
        let request = match ranges {
            [] => return None,
            [range] if !self.home.deallocates() => Request::WriteZeroes {
                offset: range.offset,
                len: range.len,
                deallocate: true,
                fua: false,
            },
            ranges => Request::Deallocate { ranges },
        };
        Some(self.hand_on(ticket, &request, &[], view))
    }

    /// Empties every zone of a namespace.
    pub(super) fn renew(
        &mut self,
        ticket: &mut Option<Ticket>,
        extent: ByteRange,
        view: &Arc<DmaView>,
    ) -> Result<Added, Stopped> {
        match self.zones_of(extent) {
            Some((first, last)) => self.reset(ticket, first, last, view),
            None => Err(Stopped::Ends(Outcome::OK)),
        }
    }
}
