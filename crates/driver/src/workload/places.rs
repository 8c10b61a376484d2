//! The places of commands' data: pieces of one buffer, each with its data pointers built before the
//! first command.
//!
//! Every slot of the queue has the same number of places and uses them in turn, so a place is never
//! in two commands at once.

use memory::{Buffer, HostMemory};
use nvme_spec::prp::{ENTRY_SIZE, PAGE_SIZE};

use crate::bus::Bus;
use crate::{DataPointer, DriverError, QueuePair, prp};

const PAGE: usize = 4096;
const _: () = assert!(PAGE as u64 == PAGE_SIZE);

/// One piece of the buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its offset in the buffer.
    pub(super) at: usize,
    pub(super) pointer: DataPointer,
}

/// The pieces of a buffer.
pub(super) struct Places {
    pub(super) buffer: Buffer,
    /// Slot `s` has those at `s`, `s + slots`, and so on.
    all: Vec<Place>,
    slots: usize,
    /// Lists that data pointers refer to; they must stay allocated.
    _lists: Option<Buffer>,
}

impl Places {
    /// Places of `len` bytes for `slots` slots: one page-aligned piece each, or
    /// as many as `total` bytes hold, one behind the other.
    pub(super) fn new<B: Bus>(
        queue: &QueuePair<B>,
        memory: &HostMemory,
        len: usize,
        slots: usize,
        total: Option<usize>,
    ) -> Result<Self, DriverError> {
        let (stride, rounds) = match total {
            None => (len.next_multiple_of(PAGE), 1),
            Some(total) => (len, (total / len / slots).max(1)),
        };
        let count = slots * rounds;
        let alloc = |wanted: usize| {
            let buffer = memory.alloc(wanted, PAGE);
            buffer.ok_or(DriverError::NoMemory { wanted })
        };
        let buffer = alloc(stride * count)?;
        let list_len = list_len(len);
        let lists = match list_len {
            0 => None,
            _ => Some(alloc(list_len * count)?),
        };
        let place = |index: usize| {
            let at = stride * index;
            let list = lists.as_ref().map(|lists| (lists, list_len * index));
            let pointer = queue.pointer_in(list, &buffer, at, len)?;
            Ok(Place { at, pointer })
        };
        let all = (0..count).map(place).collect::<Result<_, DriverError>>()?;
        Ok(Self {
            buffer,
            all,
            slots,
            _lists: lists,
        })
    }

    /// The place at `index`.
    #[inline]
    pub(super) fn get(&self, index: usize) -> Place {
        self.all[index]
    }

    /// The next place of the slot that had the one at `index`.
    #[inline]
    pub(super) fn after(&self, index: usize) -> usize {
        after(index, self.slots, self.all.len())
    }
}

/// The place that follows the one at `index` of `count`, for the same one of `slots` slots.
#[inline]
fn after(index: usize, slots: usize, count: usize) -> usize {
    let next = index + slots;
    if next < count { next } else { index % slots }
}

/// Bytes of a list for `len` bytes of data at any offset in a page. Lists of at
/// most a page are a power of two long, so that none crosses the end of a page
/// where they lie one behind the other.
pub(super) fn list_len(len: usize) -> usize {
    let wide = u64::try_from(len).expect("usize fits in 64 bits");
    // One entry for each page beyond the first; an offset adds one.
    let entries = wide.div_ceil(PAGE_SIZE);
    let bytes = match entries {
        0 | 1 => 0,
        _ if entries * ENTRY_SIZE <= PAGE_SIZE => (entries * ENTRY_SIZE).next_power_of_two(),
        _ => prp::list_pages(wide) * PAGE_SIZE,
    };
    usize::try_from(bytes).expect("less than the data that it describes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_use_every_place_and_share_none() {
        let (slots, count) = (3, 12);
        let mut used = vec![0; count];
        for slot in 0..slots {
            let mut at = slot;
            for _ in 0..count / slots {
                used[at] += 1;
                at = after(at, slots, count);
            }
            assert_eq!(at, slot, "around");
        }
        assert_eq!(used, vec![1; count]);
        assert_eq!(after(1, 2, 2), 1, "one place for each slot");
    }

    #[test]
    fn short_lists_cross_no_page_and_long_ones_are_whole_pages() {
        assert_eq!(list_len(512), 0);
        assert_eq!(list_len(4096), 0, "two pages at most: no list");
        assert_eq!(list_len(8192), 16);
        assert_eq!(list_len(5 * 4096), 64);
        assert_eq!(list_len(512 * 4096), 4096);
        assert_eq!(list_len(513 * 4096), 2 * 4096);
        assert_eq!(list_len(4 << 20), 3 * 4096);
    }
}
