//! The record of a split ring.
//!
//! A request is in flight from the store of its `inflight` on, and used from the store of the used
//! ring's index on. Between that store and those of `inflight` the list of the last batch names
//! what was used.

use memory::SharedArea;

use super::{COUNT_AT, FEATURES_AT, Record, VERSION, VERSION_AT, in_order, is_in_flight};
use crate::vhost_user::queue::fault::RingFault;

/// Bytes of the header and of an entry.
pub(super) const HEADER: u32 = 16;
pub(super) const ENTRY: u32 = 16;
/// Where the header has the head of the last batch and the used index.
const BATCH_AT: u32 = 12;
const USED_AT: u32 = 14;
/// Where an entry has its fields.
const INFLIGHT_AT: u32 = 0;
const NEXT_AT: u32 = 6;
const COUNTER_AT: u32 = 8;

/// See the module.
#[derive(Debug)]
pub(in crate::vhost_user::queue) struct SplitRecord {
    area: SharedArea,
    /// That of the next request.
    counter: u64,
    /// The newest request of the last batch.
    newest: u16,
    /// The requests of the batch that is not published yet. Its room is the ring's size.
    batch: Vec<u16>,
}

/// The state that a former back end has left.
#[derive(Debug)]
pub(in crate::vhost_user::queue) struct Left {
    /// First descriptors of the requests to take again; the first one is the last here.
    pub(in crate::vhost_user::queue) pending: Vec<u16>,
    /// There was a former back end.
    pub(in crate::vhost_user::queue) was_used: bool,
}

impl SplitRecord {
    /// The record of a ring of `size` entries whose used index is `used`.
    pub(in crate::vhost_user::queue) fn open(
        record: Record,
        size: u16,
        used: u16,
    ) -> Result<(Self, Left), RingFault> {
        let (area, entries, was_used) = record.open(size, false)?;
        let pending = if was_used {
            continued(&area, entries, size, used)?
        } else {
            for entry in 0..entries {
                area.record_u8(at(entry) + INFLIGHT_AT, 0);
            }
            area.record_u64(FEATURES_AT, 0);
            area.record_u16(COUNT_AT, entries);
            area.record_u16(BATCH_AT, 0);
            area.record_u16(USED_AT, used);
            area.record_u16(VERSION_AT, VERSION);
            Vec::new()
        };
        let (pending, counter) = in_order(pending)?;
        let newest = area.load_u16(BATCH_AT);
        let record = Self {
            area,
            counter,
            newest,
            batch: Vec::with_capacity(size.into()),
        };
        Ok((record, Left { pending, was_used }))
    }

    /// A request was taken.
    #[inline]
    pub(in crate::vhost_user::queue) fn taken(&mut self, head: u16) {
        let at = at(head);
        self.area.record_u64(at + COUNTER_AT, self.counter);
        self.counter += 1;
        self.area.record_u8(at + INFLIGHT_AT, 1);
    }

    /// A request will be used with the next used index.
    #[inline]
    pub(in crate::vhost_user::queue) fn given_back(&mut self, head: u16) {
        self.area.record_u16(at(head) + NEXT_AT, self.newest);
        self.area.record_u16(BATCH_AT, head);
        self.newest = head;
        self.batch.push(head);
    }

    /// The used index was stored.
    #[inline]
    pub(in crate::vhost_user::queue) fn published(&mut self, used: u16) {
        for head in self.batch.drain(..) {
            self.area.record_u8(at(head) + INFLIGHT_AT, 0);
        }
        self.area.record_u16(USED_AT, used);
    }
}

/// The requests in flight in a record that was used: counters and first descriptors.
fn continued(
    area: &SharedArea,
    entries: u16,
    size: u16,
    used: u16,
) -> Result<Vec<(u64, u16)>, RingFault> {
    let mut in_flight = vec![false; entries.into()];
    for entry in 0..entries {
        in_flight[usize::from(entry)] = is_in_flight(area.load_u8(at(entry) + INFLIGHT_AT))?;
    }
    // Without requests in flight the ring may have begun again.
    let batch = used.wrapping_sub(area.load_u16(USED_AT));
    if batch != 0 && in_flight.contains(&true) {
        if batch > size {
            return Err(RingFault::Record("its used index is not the ring's"));
        }
        let mut seen = vec![false; entries.into()];
        let mut entry = area.load_u16(BATCH_AT);
        for _ in 0..batch {
            match seen.get_mut(usize::from(entry)) {
                None => return Err(RingFault::Record("its last batch leaves it")),
                Some(true) => return Err(RingFault::Record("its last batch is a circle")),
                Some(seen) => *seen = true,
            }
            in_flight[usize::from(entry)] = false;
            area.record_u8(at(entry) + INFLIGHT_AT, 0);
            entry = area.load_u16(at(entry) + NEXT_AT);
        }
    }
    area.record_u16(USED_AT, used);
    let found = (0..entries).filter(|entry| in_flight[usize::from(*entry)]);
    let found: Vec<_> = found
        .map(|entry| (area.load_u64(at(entry) + COUNTER_AT), entry))
        .collect();
    if found.iter().any(|(_, entry)| *entry >= size) {
        return Err(RingFault::Record("a request in flight is not in the ring"));
    }
    Ok(found)
}

/// Where an entry is.
#[inline]
fn at(entry: u16) -> u32 {
    HEADER + ENTRY * u32::from(entry)
}
