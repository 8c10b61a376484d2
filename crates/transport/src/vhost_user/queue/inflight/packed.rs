//! The record of a packed ring.
//!
//! Descriptors are copied here, since used ones overwrite them in the ring. The entries of a
//! request are a list; so are the free ones. The fields without `old_` are the state that is being
//! made, and those with it the state that holds:
//!
//! - A request is in flight from the store of `old_free_head` on, which takes its entries from the
//!   free list.
//! - It is used from the store of its descriptor's flags on. A successor that finds the used
//!   position unlike the old one looks at these flags: it either finishes what they began, or
//!   undoes it. A request is published alone, so that no flags of a later one can be there then.
//! - Used index and wrap counter, which are in one word of 64 bits, are stored at once: neither of
//!   them alone says whether the position has changed.

use memory::{PackedDescriptor, PackedRing, SharedArea};

use super::{COUNT_AT, FEATURES_AT, Record, VERSION, VERSION_AT, in_order, is_in_flight};
use crate::vhost_user::queue::fault::RingFault;
use crate::vhost_user::queue::position::Position;

/// Bytes of the header and of an entry.
pub(super) const HEADER: u32 = 32;
pub(super) const ENTRY: u32 = 32;
/// Where the header has the heads of the free list, and the word with used indices and wrap
/// counters: index, old index, wrap counter, old wrap counter.
const FREE_AT: u32 = 12;
const OLD_FREE_AT: u32 = 14;
const USED_AT: u32 = 16;
/// Where an entry has its fields. Identifier, flags and length are one word.
const INFLIGHT_AT: u32 = 0;
const NEXT_AT: u32 = 2;
const LAST_AT: u32 = 4;
const NUM_AT: u32 = 6;
const COUNTER_AT: u32 = 8;
const SECOND_AT: u32 = 16;
const ADDR_AT: u32 = 24;

/// See the module.
#[derive(Debug)]
pub(in crate::vhost_user::queue) struct PackedRecord {
    area: SharedArea,
    /// That of the next request.
    counter: u64,
    /// The first free entry, or the number of entries.
    free: u16,
    /// The next of each entry, in its list.
    links: Box<[u16]>,
    /// Where the next used descriptor is stored.
    used: Position,
}

/// The state that a former back end has left.
#[derive(Debug)]
pub(in crate::vhost_user::queue) struct Left {
    /// First entries of the requests to take again, and their descriptors; the first request is the
    /// last here.
    pub(in crate::vhost_user::queue) pending: Vec<(u16, u16)>,
    /// Positions of the used and of the available side; `None` without a former back end.
    pub(in crate::vhost_user::queue) positions: Option<[Position; 2]>,
}

impl PackedRecord {
    /// The record of a ring of `size` entries, whose next used position is `used` where the record
    /// is new.
    pub(in crate::vhost_user::queue) fn open(
        record: Record,
        ring: &PackedRing,
        size: u16,
        used: Position,
    ) -> Result<(Self, Left), RingFault> {
        let (area, entries, was_used) = record.open(size, true)?;
        if was_used {
            return continued(area, ring, entries, size);
        }
        let links: Box<[u16]> = (1..=entries).collect();
        for (entry, next) in (0..).zip(&links) {
            area.record_u8(at(entry) + INFLIGHT_AT, 0);
            area.record_u16(at(entry) + NEXT_AT, *next);
        }
        area.record_u64(FEATURES_AT, 0);
        area.record_u16(COUNT_AT, entries);
        area.record_u16(FREE_AT, 0);
        area.record_u16(OLD_FREE_AT, 0);
        area.record_u64(USED_AT, used_word(used, used));
        area.record_u16(VERSION_AT, VERSION);
        let record = Self {
            area,
            counter: 0,
            free: 0,
            links,
            used,
        };
        let left = Left {
            pending: Vec::new(),
            positions: None,
        };
        Ok((record, left))
    }

    /// A request with these descriptors was taken. There are as many free entries. Its first entry.
    #[inline]
    pub(in crate::vhost_user::queue) fn taken(&mut self, descriptors: &[PackedDescriptor]) -> u16 {
        let (first, area) = (self.free, &self.area);
        let at_first = at(first);
        area.record_u16(at_first + NUM_AT, 0);
        area.record_u64(at_first + COUNTER_AT, self.counter);
        self.counter += 1;
        area.record_u8(at_first + INFLIGHT_AT, 1);
        let mut last = first;
        for (done, descriptor) in (1..).zip(descriptors) {
            last = self.free;
            let at = at(last);
            area.record_u64(at + SECOND_AT, second(descriptor));
            area.record_u64(at + ADDR_AT, descriptor.addr);
            area.record_u16(at_first + NUM_AT, done);
            self.free = self.links[usize::from(last)];
        }
        area.record_u16(at_first + LAST_AT, last);
        area.record_u16(FREE_AT, self.free);
        area.record_u16(OLD_FREE_AT, self.free);
        first
    }

    /// The descriptors of a request to take again, into `descriptors`, which is empty and has room.
    pub(in crate::vhost_user::queue) fn read(
        &self,
        first: u16,
        count: u16,
        descriptors: &mut Vec<PackedDescriptor>,
    ) {
        let mut entry = first;
        for _ in 0..count {
            let at = at(entry);
            let second = self.area.load_u64(at + SECOND_AT);
            descriptors.push(PackedDescriptor {
                addr: self.area.load_u64(at + ADDR_AT),
                len: (second >> 32) as u32,
                id: second as u16,
                flags: (second >> 16) as u16,
            });
            entry = self.links[usize::from(entry)];
        }
    }

    /// The request whose entries are `count` from `first` on will be used by the next store of
    /// flags, which moves the used position to `to`.
    #[inline]
    pub(in crate::vhost_user::queue) fn given_back(
        &mut self,
        first: u16,
        count: u16,
        to: Position,
    ) {
        let mut last = first;
        for _ in 1..count {
            last = self.links[usize::from(last)];
        }
        self.area.record_u16(at(last) + NEXT_AT, self.free);
        self.links[usize::from(last)] = self.free;
        self.area.record_u16(FREE_AT, first);
        self.free = first;
        self.area.record_u64(USED_AT, used_word(to, self.used));
    }

    /// The flags were stored.
    #[inline]
    pub(in crate::vhost_user::queue) fn published(&mut self, first: u16, to: Position) {
        self.area.record_u8(at(first) + INFLIGHT_AT, 0);
        self.area.record_u16(OLD_FREE_AT, self.free);
        self.area.record_u64(USED_AT, used_word(to, to));
        self.used = to;
    }
}

/// A record that was used.
fn continued(
    area: SharedArea,
    ring: &PackedRing,
    entries: u16,
    size: u16,
) -> Result<(PackedRecord, Left), RingFault> {
    let (free, used) = settled(&area, ring, size)?;
    let links: Box<[u16]> = (0..entries)
        .map(|entry| area.load_u16(at(entry) + NEXT_AT))
        .collect();
    // Whether an entry was found in a list.
    let mut seen = vec![false; entries.into()];
    let mut entry = free;
    while entry != entries {
        visit(&mut seen, entry)?;
        area.record_u8(at(entry) + INFLIGHT_AT, 0);
        entry = links[usize::from(entry)];
    }
    let mut found = Vec::new();
    let mut counts = vec![0; entries.into()];
    let mut in_flight = 0;
    for first in 0..entries {
        if !is_in_flight(area.load_u8(at(first) + INFLIGHT_AT))? {
            continue;
        }
        let count = area.load_u16(at(first) + NUM_AT);
        if count == 0 || count > size {
            return Err(RingFault::Record(
                "a request has no descriptors, or too many",
            ));
        }
        let (mut entry, mut last) = (first, first);
        for _ in 0..count {
            visit(&mut seen, entry)?;
            last = entry;
            entry = links[usize::from(entry)];
        }
        if last != area.load_u16(at(first) + LAST_AT) {
            return Err(RingFault::Record("a request ends elsewhere than it says"));
        }
        found.push((area.load_u64(at(first) + COUNTER_AT), first));
        counts[usize::from(first)] = count;
        in_flight += u32::from(count);
    }
    if seen.contains(&false) || in_flight > u32::from(size) {
        return Err(RingFault::Record("its lists do not have each entry once"));
    }
    let (pending, counter) = in_order(found)?;
    let pending = pending.into_iter();
    let available = used.advanced(in_flight as u16, size);
    let left = Left {
        pending: pending
            .map(|first| (first, counts[usize::from(first)]))
            .collect(),
        positions: Some([used, available]),
    };
    let record = PackedRecord {
        area,
        counter,
        free,
        links,
        used,
    };
    Ok((record, left))
}

/// Finishes or undoes what was begun: the first free entry, and the used position.
fn settled(area: &SharedArea, ring: &PackedRing, size: u16) -> Result<(u16, Position), RingFault> {
    let word = area.load_u64(USED_AT);
    let position = |index: u64, wrap: u64| match (index as u16, wrap as u8) {
        (index, wrap @ 0..=1) if index < size => Ok(Position {
            index,
            wrap: wrap == 1,
        }),
        _ => Err(RingFault::Record("its used index is not in the ring")),
    };
    let new = position(word, word >> 32)?;
    let old = position(word >> 16, word >> 40)?;
    let is_published = new != old && !old.is_available(ring.flags(old.index));
    if is_published {
        let free = area.load_u16(FREE_AT);
        area.record_u16(OLD_FREE_AT, free);
        area.record_u64(USED_AT, used_word(new, new));
        return Ok((free, new));
    }
    let free = area.load_u16(OLD_FREE_AT);
    area.record_u16(FREE_AT, free);
    area.record_u64(USED_AT, used_word(old, old));
    Ok((free, old))
}

/// Notes that an entry is in a list.
fn visit(seen: &mut [bool], entry: u16) -> Result<(), RingFault> {
    match seen.get_mut(usize::from(entry)) {
        None => Err(RingFault::Record("a list leaves it")),
        Some(true) => Err(RingFault::Record("an entry is in two lists")),
        Some(seen) => {
            *seen = true;
            Ok(())
        }
    }
}

/// Used indices and wrap counters, as they lie in memory.
#[inline]
fn used_word(new: Position, old: Position) -> u64 {
    u64::from(new.index)
        | u64::from(old.index) << 16
        | u64::from(new.wrap) << 32
        | u64::from(old.wrap) << 40
}

/// Identifier, flags and length, as they lie in memory.
#[inline]
fn second(descriptor: &PackedDescriptor) -> u64 {
    u64::from(descriptor.id) | u64::from(descriptor.flags) << 16 | u64::from(descriptor.len) << 32
}

/// Where an entry is.
#[inline]
fn at(entry: u16) -> u32 {
    HEADER + ENTRY * u32::from(entry)
}
