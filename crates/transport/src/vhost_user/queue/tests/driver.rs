//! The driver's side of both layouts, as plain code (VIRTIO 1.3, 2.7.13 to 2.7.14, 2.8.21).

use std::collections::{BTreeMap, VecDeque};

use super::super::Piece;
use super::guest::{BASE, DESCRIPTORS, DEVICE, DRIVER, Guest, TABLES};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

/// A request that the device has.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    /// In the order of offers.
    pub(super) serial: u64,
    pub(super) pieces: Vec<Piece>,
    /// Its descriptors in the table or ring.
    descriptors: Vec<u16>,
}

#[derive(Debug)]
pub(super) struct Driver {
    is_packed: bool,
    has_event_idx: bool,
    size: u16,
    /// Free descriptors (split); how many there are (packed).
    free: VecDeque<u16>,
    free_ids: VecDeque<u16>,
    /// Available index (split); position, and its wrap counter (packed).
    pub(super) available: u16,
    available_wrap: bool,
    pub(super) used: u16,
    used_wrap: bool,
    serial: u64,
    pub(super) outstanding: BTreeMap<u16, Offer>,
}

impl Driver {
    pub(super) fn new(guest: &Guest) -> Self {
        let size = guest.setup.size;
        Self {
            is_packed: guest.setup.is_packed,
            has_event_idx: guest.setup.has_event_idx,
            size,
            free: (0..size).collect(),
            free_ids: (0..size).collect(),
            available: 0,
            available_wrap: true,
            used: 0,
            used_wrap: true,
            serial: 0,
            outstanding: BTreeMap::new(),
        }
    }

    /// Begins at this index, of both sides (split).
    pub(super) fn start_at(&mut self, guest: &Guest, index: u16) {
        (self.available, self.used) = (index, index);
        guest.put16(DRIVER + 2, index);
        guest.put16(DEVICE + 2, index);
    }

    /// Pieces of a request: readable ones, then writable ones, each with an address of its own.
    pub(super) fn pieces(&self, readable: u16, writable: u16) -> Vec<Piece> {
        (0..readable + writable)
            .map(|index| Piece {
                at: self.serial << 16 | u64::from(index),
                len: u32::from(index) * 512,
                is_writable: index >= readable,
            })
            .collect()
    }

    /// Offers a request. False where there is no room. With `indirect`, its last so many pieces are
    /// in a table.
    pub(super) fn offer(&mut self, guest: &Guest, pieces: Vec<Piece>, indirect: usize) -> bool {
        let direct = pieces.len() - indirect;
        let count = direct + usize::from(indirect > 0);
        if count == 0 || self.free.len() < count {
            return false;
        }
        let mut entries: Vec<(u64, u32, u16)> = pieces[..direct].iter().map(plain).collect();
        if indirect > 0 {
            // A table for each slot of the ring: 64 descriptors.
            let place = TABLES + u64::from(self.free[0] % 2048) * 64 * 16;
            assert!(indirect <= 64);
            for (index, piece) in pieces[direct..].iter().enumerate() {
                let (addr, len, flags) = plain(piece);
                let at = place + index as u64 * 16;
                if self.is_packed {
                    guest.put_descriptor(at, addr, len, [0xffff, flags]);
                } else {
                    let last = index + 1 == indirect;
                    let next = if last { 0 } else { NEXT };
                    guest.put_descriptor(at, addr, len, [flags | next, index as u16 + 1]);
                }
            }
            entries.push((BASE + place, indirect as u32 * 16, INDIRECT));
        }
        let (id, descriptors) = if self.is_packed {
            self.offer_packed(guest, &entries)
        } else {
            self.offer_split(guest, &entries)
        };
        let offer = Offer {
            serial: self.serial,
            pieces,
            descriptors,
        };
        self.serial += 1;
        assert!(self.outstanding.insert(id, offer).is_none());
        true
    }

    fn offer_split(&mut self, guest: &Guest, entries: &[(u64, u32, u16)]) -> (u16, Vec<u16>) {
        let used: Vec<u16> = self.free.drain(..entries.len()).collect();
        for (place, (addr, len, flags)) in entries.iter().enumerate() {
            let next = used.get(place + 1).copied();
            let more = if next.is_some() { NEXT } else { 0 };
            let at = DESCRIPTORS + u64::from(used[place]) * 16;
            guest.put_descriptor(at, *addr, *len, [flags | more, next.unwrap_or(0xffff)]);
        }
        let slot = u64::from(self.available % self.size);
        guest.put16(DRIVER + 4 + slot * 2, used[0]);
        self.available = self.available.wrapping_add(1);
        guest.put16(DRIVER + 2, self.available);
        (used[0], used)
    }

    fn offer_packed(&mut self, guest: &Guest, entries: &[(u64, u32, u16)]) -> (u16, Vec<u16>) {
        let id = self.free_ids.pop_front().unwrap();
        let used: Vec<u16> = self.free.drain(..entries.len()).collect();
        let mut first = (0, 0);
        for (place, (addr, len, flags)) in entries.iter().enumerate() {
            let more = if place + 1 < entries.len() { NEXT } else { 0 };
            let whose = if self.available_wrap { AVAIL } else { USED };
            let at = DESCRIPTORS + u64::from(self.available) * 16;
            let flags = flags | more | whose;
            if place == 0 {
                // Its flags come last.
                let before = guest.get16(at + 14);
                guest.put_descriptor(at, *addr, *len, [id, before]);
                first = (at + 14, flags);
            } else {
                guest.put_descriptor(at, *addr, *len, [id, flags]);
            }
            self.available += 1;
            if self.available == self.size {
                (self.available, self.available_wrap) = (0, !self.available_wrap);
            }
        }
        guest.put16(first.0, first.1);
        (id, used)
    }

    /// The next request that the device has used, and the bytes that it wrote.
    pub(super) fn collect(&mut self, guest: &Guest) -> Option<(Offer, u32)> {
        let (id, written) = if self.is_packed {
            let at = DESCRIPTORS + u64::from(self.used) * 16;
            let flags = guest.get16(at + 14);
            let (avail, used) = (flags & AVAIL != 0, flags & USED != 0);
            if avail != used || used != self.used_wrap {
                return None;
            }
            let written = guest.get32(at + 8);
            assert_eq!(flags & WRITE != 0, written > 0);
            (guest.get16(at + 12), written)
        } else {
            if guest.get16(DEVICE + 2) == self.used {
                return None;
            }
            let slot = u64::from(self.used % self.size);
            let at = DEVICE + 4 + slot * 8;
            let id = u16::try_from(guest.get32(at)).unwrap();
            (id, guest.get32(at + 4))
        };
        let offer = self.outstanding.remove(&id);
        let offer = offer.unwrap_or_else(|| panic!("{id} is used, and was not offered"));
        if self.is_packed {
            self.free_ids.push_back(id);
            self.used += offer.descriptors.len() as u16;
            if self.used >= self.size {
                (self.used, self.used_wrap) = (self.used - self.size, !self.used_wrap);
            }
        } else {
            self.used = self.used.wrapping_add(1);
        }
        self.free.extend(&offer.descriptors);
        Some((offer, written))
    }

    /// Wants to be notified, `ahead` used entries from here; or, without an index of events, of the
    /// next one.
    pub(super) fn want(&self, guest: &Guest, ahead: u16) {
        if self.is_packed {
            let at = self.used + ahead;
            let (at, wrap) = if at >= self.size {
                (at - self.size, !self.used_wrap)
            } else {
                (at, self.used_wrap)
            };
            guest.put16(DRIVER, at | if wrap { 0x8000 } else { 0 });
            guest.put16(DRIVER + 2, if self.has_event_idx { 2 } else { 0 });
        } else if self.has_event_idx {
            let at = DRIVER + 4 + u64::from(self.size) * 2;
            guest.put16(at, self.used.wrapping_add(ahead));
        } else {
            guest.put16(DRIVER, 0);
        }
    }

    /// Wants no notifications, where flags say so.
    pub(super) fn want_none(&self, guest: &Guest) {
        if self.is_packed {
            guest.put16(DRIVER + 2, 1);
        } else {
            guest.put16(DRIVER, 1);
        }
    }

    /// Whether the device is to be notified of the request that was offered last, which has `count`
    /// descriptors.
    pub(super) fn must_kick(&self, guest: &Guest, count: u16) -> bool {
        if !self.is_packed {
            if !self.has_event_idx {
                return guest.get16(DEVICE) & 1 == 0;
            }
            let event = guest.get16(DEVICE + 4 + u64::from(self.size) * 8);
            return event == self.available.wrapping_sub(1);
        }
        match guest.get16(DEVICE + 2) & 3 {
            0 => true,
            1 => false,
            2 => {
                assert!(self.has_event_idx);
                let event = guest.get16(DEVICE);
                // Each of its descriptors, with the counter of its lap.
                (1..=count).any(|back| {
                    let (at, wrap) = if self.available >= back {
                        (self.available - back, self.available_wrap)
                    } else {
                        (self.available + self.size - back, !self.available_wrap)
                    };
                    event == at | if wrap { 0x8000 } else { 0 }
                })
            }
            _ => panic!("flags 3 are reserved"),
        }
    }
}

fn plain(piece: &Piece) -> (u64, u32, u16) {
    let flags = if piece.is_writable { WRITE } else { 0 };
    (piece.at, piece.len, flags)
}
