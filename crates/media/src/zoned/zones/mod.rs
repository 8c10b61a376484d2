//! The states of zones and their transitions (ZNS 1.1, 2.1.1): a pure state machine, in bytes of
//! the medium.
//!
//! Everything is checked before anything changes: a rejected operation has changed nothing. A write
//! is checked first ([`Zones::check_write`]) and takes effect later ([`Zones::written`]), when the
//! medium below has accepted it.
//!
//! Invariants:
//! - The numbers of open and active zones never exceed their limits. An implicit open beyond the
//!   limit closes the zone that was implicitly opened longest ago; explicitly opened zones stay
//!   open.
//! - Bytes after a write pointer were not written since the zone was last reset, except in a random
//!   write area.
//! - A random write area belongs to an active zone that was empty when it got the area, and the
//!   number of areas never exceeds the limit.
//!
//! - With a table ([`super::table`]) every change of a zone is stored there, once, when it is
//!   complete.
//!
//! Not included: data, and logical blocks.

use std::collections::VecDeque;

use nvme_spec::Status;
use nvme_spec::zoned::{ZoneSendAction, ZoneState};

use super::table::Table;
pub(crate) use super::zone::{Geometry, Zone};
use super::zone::{is_active, is_open};

/// Numbers of states: four bits.
const STATES: usize = 16;

/// Index of a state's count.
fn place(state: ZoneState) -> usize {
    usize::from(state.0) % STATES
}

/// An accepted write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// Its zone.
    pub(crate) zone: u32,
    /// First byte, in the medium.
    pub(crate) offset: u64,
    /// Bytes from the zone's start to its end.
    pub(crate) end: u64,
    /// Position to which it moves the write pointer, from the zone's start; an earlier write may
    /// have moved it further.
    pub(crate) moves_to: u64,
    /// The zone that is closed for it.
    pub(crate) closes: Option<u32>,
}

/// The zones of a medium.
#[derive(Debug)]
pub(crate) struct Zones {
    geometry: Geometry,
    zones: Vec<Zone>,
    open: u32,
    active: u32,
    /// Number of zones with a random write area.
    random: u32,
    /// Number of zones in each state.
    states: [u32; STATES],
    /// Implicitly opened zones, the oldest first. Only kept if there is a limit.
    implicit: VecDeque<u32>,
    /// Where another process finds the zones.
    table: Option<Table>,
}

impl Zones {
    /// Creates empty zones.
    pub(crate) fn new(geometry: Geometry) -> Self {
        Zones {
            geometry,
            zones: vec![Zone::EMPTY; geometry.zones as usize],
            open: 0,
            active: 0,
            random: 0,
            states: std::array::from_fn(|state| {
                if state == place(ZoneState::EMPTY) {
                    geometry.zones
                } else {
                    0
                }
            }),
            implicit: VecDeque::with_capacity(geometry.max_open.min(geometry.zones) as usize),
            table: None,
        }
    }

    /// Stores the zones, and every change of them, in `table` from now on.
    pub(super) fn set_table(&mut self, table: Table) {
        self.table = Some(table);
        for zone in 0..self.geometry.zones {
            if self.get(zone) != Zone::EMPTY {
                self.publish(zone);
            }
        }
    }

    /// A zone has changed.
    #[inline]
    fn publish(&mut self, at: u32) {
        if let Some(table) = &mut self.table {
            table.store(at, self.zones[at as usize]);
        }
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The zone with this number, which must exist.
    pub(crate) fn get(&self, zone: u32) -> Zone {
        self.zones[zone as usize]
    }

    /// The number of the zone that contains a byte.
    pub(crate) fn at(&self, offset: u64) -> Option<u32> {
        let zone = u32::try_from(offset / self.geometry.zone_bytes).ok()?;
        (zone < self.geometry.zones).then_some(zone)
    }

    /// First byte of a zone.
    pub(crate) fn start(&self, zone: u32) -> u64 {
        u64::from(zone) * self.geometry.zone_bytes
    }

    /// Numbers of open zones, of active zones, and of zones with a random write area.
    pub(crate) fn used(&self) -> (u32, u32, u32) {
        (self.open, self.active, self.random)
    }

    /// Number of zones in a state.
    pub(crate) fn count(&self, state: ZoneState) -> u32 {
        self.states[place(state)]
    }

    /// Numbers of open and of active zones.
    #[cfg(test)]
    pub(crate) fn in_use(&self) -> (u32, u32) {
        (self.open, self.active)
    }

    /// Checks a read: an offline zone cannot be read. Reads may cross zones.
    pub(crate) fn check_read(&self, offset: u64, len: u64) -> Result<(), Status> {
        let last = offset.saturating_add(len.saturating_sub(1));
        let (Some(first), Some(last)) = (self.at(offset), self.at(last)) else {
            return Err(Status::LBA_OUT_OF_RANGE);
        };
        let offline = |zone: u32| self.get(zone).state == ZoneState::OFFLINE;
        if (first..=last).any(offline) {
            Err(Status::ZONE_IS_OFFLINE)
        } else {
            Ok(())
        }
    }

    /// Checks a write: it must begin at the zone's write pointer, or be inside its random write
    /// area or the area of the same size after it, which moves the write pointer.
    pub(crate) fn check_write(&self, offset: u64, len: u64) -> Result<Write, Status> {
        let zone = self.at(offset).ok_or(Status::LBA_OUT_OF_RANGE)?;
        let into = offset - self.start(zone);
        let Zone {
            state,
            written,
            random,
            ..
        } = self.get(zone);
        check_writable(state)?;
        let end = into.checked_add(len).ok_or(Status::ZONE_BOUNDARY_ERROR)?;
        if end > self.geometry.capacity {
            return Err(Status::ZONE_BOUNDARY_ERROR);
        }
        let in_areas = into >= written && end - written <= 2 * self.geometry.random_bytes();
        let fits = if random { in_areas } else { into == written };
        if !fits {
            return Err(Status::ZONE_INVALID_WRITE);
        }
        let closes = self.room(state)?;
        let moves_to = if !random {
            end
        } else {
            let step = self.geometry.granularity();
            let first = written % step;
            let over = end.saturating_sub(first + self.geometry.random_bytes());
            first + over.next_multiple_of(step)
        };
        Ok(Write {
            zone,
            offset,
            end,
            moves_to,
            closes,
        })
    }

    /// Whether a write overwrites only zeros: nothing was written there before.
    pub(crate) fn is_new(&self, write: &Write) -> bool {
        write.offset - self.start(write.zone) >= self.get(write.zone).reached
    }

    /// Checks an append to a zone; returns its position.
    pub(crate) fn check_append(&self, zone: u32, len: u64) -> Result<Write, Status> {
        let Zone {
            state,
            written,
            random,
            ..
        } = self.get(zone);
        check_writable(state)?;
        if random {
            return Err(Status::INVALID_ZONE_OPERATION_REQUEST);
        }
        if len > self.geometry.capacity - written {
            return Err(Status::ZONE_BOUNDARY_ERROR);
        }
        self.check_write(self.start(zone) + written, len)
    }

    /// Applies a checked write that the medium below has accepted.
    pub(crate) fn written(&mut self, write: Write) {
        self.close(write.closes);
        let zone = &mut self.zones[write.zone as usize];
        zone.reached = zone.reached.max(write.end);
        let to = zone.written.max(write.moves_to);
        self.move_to(write.zone, to);
        self.publish(write.zone);
    }

    /// Closes a zone to make room for another one.
    fn close(&mut self, other: Option<u32>) {
        if let Some(other) = other {
            self.set(other, ZoneState::CLOSED);
            self.publish(other);
        }
    }

    /// A zone without the writes that would move its write pointer further than this. A zone that
    /// accepts no more writes is unchanged.
    pub(crate) fn up_to(&self, zone: u32, pointer: u64) -> Zone {
        let zone = self.get(zone);
        if matches!(zone.state, ZoneState::READ_ONLY | ZoneState::OFFLINE) {
            return zone;
        }
        let written = zone.written.min(pointer);
        let area = if zone.random {
            self.geometry.random_bytes()
        } else {
            0
        };
        Zone {
            written,
            reached: zone.reached.min(written + area),
            ..zone
        }
    }

    /// Moves the write pointer of an active or empty zone, which is then full or open.
    fn move_to(&mut self, at: u32, to: u64) {
        let zone = &mut self.zones[at as usize];
        zone.written = to;
        zone.reached = zone.reached.max(to);
        let state = zone.state;
        if to == self.geometry.capacity {
            self.set(at, ZoneState::FULL);
        } else if !is_open(state) {
            self.set(at, ZoneState::IMPLICITLY_OPENED);
        }
    }

    /// Flush Explicit ZRWA Range: moves the write pointer of a zone to a byte of the medium.
    /// Returns the zone that was closed for it.
    pub(crate) fn commit(&mut self, zone: u32, to: u64) -> Result<Option<u32>, Status> {
        let Zone {
            state,
            written,
            random,
            ..
        } = self.get(zone);
        let to = to - self.start(zone);
        let most = (written + self.geometry.random_bytes()).min(self.geometry.capacity);
        let is_inside = to > written && to <= most;
        if !random || !is_inside || !(to - written).is_multiple_of(self.geometry.granularity()) {
            return Err(Status::INVALID_ZONE_OPERATION_REQUEST);
        }
        let closes = self.room(state)?;
        self.close(closes);
        self.move_to(zone, to);
        self.publish(zone);
        Ok(closes)
    }

    /// Checks whether a zone can get a random write area, which requires that it is empty.
    fn check_random(&self, from: ZoneState) -> Result<(), Status> {
        if from != ZoneState::EMPTY {
            return Err(Status::INVALID_ZONE_OPERATION_REQUEST);
        }
        match self.geometry.random {
            Some(areas) if self.random < areas.zones => Ok(()),
            _ => Err(Status::ZRWA_RESOURCES_UNAVAILABLE),
        }
    }

    fn give_random(&mut self, zone: u32) {
        self.zones[zone as usize].random = true;
        self.random += 1;
    }

    /// Open Zone with a random write area; returns the zone that was closed for it.
    pub(crate) fn open_random(&mut self, zone: u32) -> Result<Option<u32>, Status> {
        self.check_random(self.get(zone).state)?;
        let Acted::Changed { closed } = self.change(ZoneSendAction::OPEN, zone)? else {
            return Ok(None);
        };
        self.give_random(zone);
        self.publish(zone);
        Ok(closed)
    }

    /// The medium below could not write accepted data, so the zone's contents are unknown. Makes
    /// the zone read-only; returns whether it was not before.
    pub(crate) fn failed(&mut self, zone: u32) -> bool {
        self.give_up(zone, ZoneState::READ_ONLY)
    }

    /// Moves the write pointer of a zone back to the end of the successful writes: nothing after it
    /// was written. `is_clean`: the rest reads as zero. A full zone becomes closed, if another may
    /// be active.
    pub(crate) fn rewind(&mut self, at: u32, to: u64, is_clean: bool) {
        let Zone {
            state,
            written,
            random,
            ..
        } = self.get(at);
        if random || written <= to || check_writable(state) == Err(Status::ZONE_IS_READ_ONLY) {
            return;
        }
        if state == ZoneState::FULL {
            if self.check_active(state).is_err() {
                return;
            }
            self.set(at, ZoneState::CLOSED);
        }
        let zone = &mut self.zones[at as usize];
        zone.written = to;
        if is_clean {
            zone.reached = to;
        }
        self.publish(at);
    }

    /// Restores a zone's state before a failed reset; an open zone becomes closed.
    pub(crate) fn put_back(&mut self, at: u32, before: Zone) {
        let mut before = before.after_restart();
        if self.check_active(ZoneState::EMPTY).is_err() && is_active(before.state) {
            (before.state, before.random) = (ZoneState::FULL, false);
        }
        self.restore(at, before);
    }

    /// Makes a zone read-only or offline, as a failing drive does (ZNS 1.1, 2.1.1.3). Returns false
    /// if it was so, or offline, before.
    pub(crate) fn give_up(&mut self, zone: u32, to: ZoneState) -> bool {
        let gives = match self.get(zone).state {
            ZoneState::OFFLINE => false,
            ZoneState::READ_ONLY => to == ZoneState::OFFLINE,
            _ => true,
        };
        if gives {
            self.set(zone, to);
            self.publish(zone);
        }
        gives
    }

    /// Performs an action of Zone Management Send on one zone; returns whether it changed, and the
    /// zone that was closed for it. Without the descriptor extension.
    pub(crate) fn act(&mut self, action: ZoneSendAction, zone: u32) -> Result<Acted, Status> {
        let acted = self.change(action, zone)?;
        if acted != Acted::Nothing {
            self.publish(zone);
        }
        Ok(acted)
    }

    /// [`Zones::act`], without the table.
    fn change(&mut self, action: ZoneSendAction, zone: u32) -> Result<Acted, Status> {
        use ZoneState as S;
        let from = self.get(zone).state;
        let invalid = Err(Status::INVALID_ZONE_STATE_TRANSITION);
        let mut closed = None;
        let to = match (action, from) {
            (ZoneSendAction::OPEN, S::EXPLICITLY_OPENED)
            | (ZoneSendAction::CLOSE, S::CLOSED)
            | (ZoneSendAction::FINISH, S::FULL)
            | (ZoneSendAction::RESET, S::EMPTY)
            | (ZoneSendAction::OFFLINE, S::OFFLINE) => return Ok(Acted::Nothing),
            (ZoneSendAction::OPEN, S::EMPTY | S::CLOSED | S::IMPLICITLY_OPENED) => {
                closed = self.room(from)?;
                S::EXPLICITLY_OPENED
            }
            (ZoneSendAction::CLOSE, S::IMPLICITLY_OPENED | S::EXPLICITLY_OPENED) => S::CLOSED,
            (ZoneSendAction::FINISH, from) if from == S::EMPTY || is_active(from) => S::FULL,
            (ZoneSendAction::RESET, from) if from == S::FULL || is_active(from) => S::EMPTY,
            (ZoneSendAction::OFFLINE, S::READ_ONLY) => S::OFFLINE,
            _ => return invalid,
        };
        self.close(closed);
        self.set(zone, to);
        Ok(Acted::Changed { closed })
    }

    /// Whether Zone Management Send with Select All applies to a zone in this state (ZNS 1.1,
    /// 3.4.3.1).
    pub(crate) fn is_selected(action: ZoneSendAction, state: ZoneState) -> bool {
        match action {
            ZoneSendAction::OPEN => state == ZoneState::CLOSED,
            ZoneSendAction::CLOSE => is_open(state),
            ZoneSendAction::FINISH => is_active(state),
            ZoneSendAction::RESET => is_active(state) || state == ZoneState::FULL,
            ZoneSendAction::OFFLINE => state == ZoneState::READ_ONLY,
            _ => false,
        }
    }

    /// Checks whether all closed zones from `first` to `last` can be opened at once; implicitly
    /// opened zones may be closed for that.
    pub(crate) fn check_open_all(&self, first: u32, last: u32) -> Result<(), Status> {
        let is = |state| move |zone: &&Zone| zone.state == state;
        let explicit = self.zones.iter().filter(is(ZoneState::EXPLICITLY_OPENED));
        let concerned = &self.zones[first as usize..=last as usize];
        let closed = concerned.iter().filter(is(ZoneState::CLOSED));
        let needed = explicit.count() + closed.count();
        match self.geometry.max_open {
            0 => Ok(()),
            most if needed <= most as usize => Ok(()),
            _ => Err(Status::TOO_MANY_OPEN_ZONES),
        }
    }

    /// Gives an empty zone a descriptor extension, which makes it active, and a random write area
    /// if requested.
    pub(crate) fn extend(&mut self, zone: u32, random: bool) -> Result<(), Status> {
        if self.get(zone).state != ZoneState::EMPTY {
            return Err(Status::INVALID_ZONE_STATE_TRANSITION);
        }
        if random {
            self.check_random(ZoneState::EMPTY)?;
        }
        self.check_active(ZoneState::EMPTY)?;
        self.set(zone, ZoneState::CLOSED);
        self.zones[zone as usize].extended = true;
        if random {
            self.give_random(zone);
        }
        self.publish(zone);
        Ok(())
    }

    fn check_active(&self, from: ZoneState) -> Result<(), Status> {
        let most = self.geometry.max_active;
        if most > 0 && !is_active(from) && self.active >= most {
            Err(Status::TOO_MANY_ACTIVE_ZONES)
        } else {
            Ok(())
        }
    }

    /// Checks whether a zone in this state can be opened; returns the zone to close for it.
    fn room(&self, from: ZoneState) -> Result<Option<u32>, Status> {
        self.check_active(from)?;
        let most = self.geometry.max_open;
        if most == 0 || is_open(from) || self.open < most {
            return Ok(None);
        }
        let longest = self.implicit.front().copied();
        longest.map(Some).ok_or(Status::TOO_MANY_OPEN_ZONES)
    }

    /// Restores a zone's state from before a restart ([`Zone::after_restart`]).
    pub(crate) fn restore(&mut self, at: u32, zone: Zone) {
        self.set(at, ZoneState::EMPTY);
        self.set(at, zone.state);
        let random = zone.random && self.geometry.random.is_some();
        self.random += u32::from(random);
        self.zones[at as usize] = Zone { random, ..zone };
        self.publish(at);
    }

    fn set(&mut self, at: u32, to: ZoneState) {
        let zone = &mut self.zones[at as usize];
        let from = std::mem::replace(&mut zone.state, to);
        self.states[place(from)] -= 1;
        self.states[place(to)] += 1;
        if !is_active(to) && std::mem::take(&mut zone.random) {
            self.random -= 1;
        }
        if to == ZoneState::EMPTY {
            *zone = Zone::EMPTY;
        }
        self.open = self.open + u32::from(is_open(to)) - u32::from(is_open(from));
        self.active = self.active + u32::from(is_active(to)) - u32::from(is_active(from));
        if self.geometry.max_open == 0 {
            return;
        }
        if from == ZoneState::IMPLICITLY_OPENED {
            self.implicit.retain(|zone| *zone != at);
        }
        if to == ZoneState::IMPLICITLY_OPENED {
            self.implicit.push_back(at);
        }
    }
}

/// Result of an action on a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acted {
    /// The zone was in that state already.
    Nothing,
    /// The zone has changed.
    Changed {
        /// The zone that was closed for it.
        closed: Option<u32>,
    },
}

/// Checks whether a zone in this state accepts writes.
fn check_writable(state: ZoneState) -> Result<(), Status> {
    match state {
        ZoneState::FULL => Err(Status::ZONE_IS_FULL),
        ZoneState::READ_ONLY => Err(Status::ZONE_IS_READ_ONLY),
        ZoneState::OFFLINE => Err(Status::ZONE_IS_OFFLINE),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
