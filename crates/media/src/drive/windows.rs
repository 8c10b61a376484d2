//! Where a drive finds hosts' memory: the region that a host lent, and its address on the drive's bus.
//!
//! Each region that is shared has a window of its own on the bus, from the time that it is first wanted until nobody can
//! reach it any more, neither by a view nor by a command in flight: then no [`Lent`] is left of it. A window is found by the
//! region's number, which no other region ever gets, so that one that is closed is never used again, and nobody has to be
//! told in time.
//!
//! What this does NOT do: it asks no drive for anything; the keeper does, and says here what came of it.

use std::sync::{Arc, Weak};

use memory::Lent;

/// The first address of windows: behind the memory that the driver itself shares.
const FIRST: u64 = 1 << 36;
/// The end of them: what the narrowest IOMMUs translate (39 bits).
const END: u64 = 1 << 39;
/// A window begins at a multiple of this, so that large pages can be mapped as such.
const ALIGN: u64 = 2 << 20;
/// The smallest region that is worth a window: behind an IOMMU of its own a guest maps single pages that come and go. Their
/// bytes are copied instead.
pub(super) const LEAST_BYTES: u64 = 2 << 20;
/// Windows there are at most.
const MAX_WINDOWS: usize = 256;

/// A window, as channels know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// [`Lent::id`].
    id: u64,
    /// The address of its first byte for the drive.
    bus: u64,
}

/// Every window there is, as channels have them: ascending by number.
#[derive(Clone, Debug)]
pub(super) struct Table {
    windows: Arc<[Window]>,
    /// The one found last.
    last: Window,
}

impl Default for Table {
    fn default() -> Self {
        Table::new(Arc::new([]))
    }
}

impl Table {
    pub(super) fn new(windows: Arc<[Window]>) -> Self {
        // No region has the number 0.
        let last = Window { id: 0, bus: 0 };
        Table { windows, last }
    }

    /// Where the drive finds the region's first byte; `None` where it does not reach it.
    #[inline]
    pub(super) fn find(&mut self, id: u64) -> Option<u64> {
        if self.last.id == id && id != 0 {
            return Some(self.last.bus);
        }
        let at = self.windows.binary_search_by_key(&id, |window| window.id);
        self.last = self.windows[at.ok()?];
        Some(self.last.bus)
    }
}

/// What became of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The drive reaches it.
    Open,
    /// The drive, or the way to it, would not have it.
    Refused,
    /// The drive has been opened anew and does not know it yet.
    Forgotten,
}

#[derive(Debug)]
struct Entry {
    window: Window,
    len: u64,
    lent: Weak<Lent>,
    state: State,
}

/// The windows of one drive, as its keeper has them.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Ascending by address.
    entries: Vec<Entry>,
}

/// What is to be taken back from the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    /// Where it was, and how much.
    pub(super) bus: u64,
    pub(super) len: u64,
}

impl Windows {
    /// Has the drive reach a region, by `share`, which says whether that could be done. Whether there is a new window.
    pub(super) fn open(
        &mut self,
        lent: &Weak<Lent>,
        share: impl FnOnce(&Lent, u64) -> bool,
    ) -> bool {
        let Some(region) = lent.upgrade() else {
            return false;
        };
        let (_, len) = region.as_raw();
        let known = self.entries.iter().any(|e| e.window.id == region.id());
        if known || len < LEAST_BYTES || self.entries.len() == MAX_WINDOWS {
            return false;
        }
        let Some((index, bus)) = self.room(len) else {
            return false;
        };
        let is_open = share(&region, bus);
        let entry = Entry {
            window: Window {
                id: region.id(),
                bus,
            },
            len,
            lent: lent.clone(),
            state: match is_open {
                true => State::Open,
                false => State::Refused,
            },
        };
        self.entries.insert(index, entry);
        is_open
    }

    /// The first gap of so many bytes: its address, and where it stands among the entries.
    fn room(&self, len: u64) -> Option<(usize, u64)> {
        let mut start = FIRST;
        for (index, entry) in self.entries.iter().enumerate() {
            if entry.window.bus - start >= len {
                return Some((index, start));
            }
            start = (entry.window.bus + entry.len).next_multiple_of(ALIGN);
        }
        (start <= END && len <= END - start).then_some((self.entries.len(), start))
    }

    /// Closes the windows of regions that nobody can reach any more; what is to be taken back from the drive.
    pub(super) fn close_unused(&mut self) -> Vec<Closed> {
        let mut closed = Vec::new();
        self.entries.retain(|entry| {
            let is_used = entry.lent.strong_count() > 0;
            if !is_used && entry.state == State::Open {
                closed.push(Closed {
                    bus: entry.window.bus,
                    len: entry.len,
                });
            }
            is_used
        });
        closed
    }

    /// The drive has been opened anew and knows nothing any more.
    pub(super) fn forget(&mut self) {
        for entry in &mut self.entries {
            entry.state = State::Forgotten;
        }
    }

    /// Has a drive that was opened anew reach what is still there, each region where it was.
    pub(super) fn open_again(&mut self, mut share: impl FnMut(&Lent, u64) -> bool) {
        for entry in &mut self.entries {
            if entry.state == State::Forgotten
                && let Some(region) = entry.lent.upgrade()
            {
                entry.state = match share(&region, entry.window.bus) {
                    true => State::Open,
                    false => State::Refused,
                };
            }
        }
    }

    /// What channels are told.
    pub(super) fn table(&self) -> Arc<[Window]> {
        let open = self.entries.iter().filter(|e| e.state == State::Open);
        let mut windows: Vec<Window> = open.map(|entry| entry.window).collect();
        windows.sort_unstable_by_key(|window| window.id);
        windows.into()
    }
}

#[cfg(test)]
mod tests {
    use memory::{Access, ClientMappings, DmaMap, DmaView, HostMemory, Iova};

    use super::*;

    /// A view of regions of so many MiB, all of one file.
    fn view(mib: &[u64]) -> Arc<DmaView> {
        let memory = HostMemory::new(64 << 20).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        let mut map = DmaMap::new(16);
        for (index, mib) in (0u64..).zip(mib) {
            let backing = Some((mapping.clone(), index << 23));
            map.map(Iova(index << 32), mib << 20, Access::READ_WRITE, backing)
                .unwrap();
        }
        map.view()
    }

    fn regions(view: &Arc<DmaView>) -> Vec<Weak<Lent>> {
        view.lent().map(Arc::downgrade).collect()
    }

    #[test]
    fn windows_are_apart_and_come_again_where_a_region_went() {
        let (first, second) = (view(&[2, 3]), view(&[2, 4]));
        let mut windows = Windows::default();
        let mut shared = Vec::new();
        for lent in regions(&first).iter().chain(&regions(&second)) {
            assert!(windows.open(lent, |lent, bus| {
                shared.push((bus, lent.as_raw().1));
                true
            }));
        }
        for (at, (bus, len)) in shared.iter().enumerate() {
            assert_eq!(bus % ALIGN, 0);
            assert!(
                shared[at + 1..]
                    .iter()
                    .all(|(other, n)| bus + len <= *other || other + n <= *bus)
            );
        }
        let mut table = Table::new(windows.table());
        let ids: Vec<u64> = first.lent().map(|lent| lent.id()).collect();
        assert_eq!(table.find(ids[1]), Some(shared[1].0));
        assert_eq!(table.find(ids[0]), Some(shared[0].0));
        assert_eq!(table.find(0), None, "memory without a number");
        drop(first);
        let closed = windows.close_unused();
        let expected = [(shared[0].0, 2 << 20), (shared[1].0, 3 << 20)];
        assert_eq!(
            closed.iter().map(|c| (c.bus, c.len)).collect::<Vec<_>>(),
            expected
        );
        let mut table = Table::new(windows.table());
        assert_eq!(table.find(ids[1]), None);
        let third = view(&[2]);
        let again = &regions(&third)[0];
        assert!(windows.open(again, |_, bus| bus == shared[0].0));
    }

    #[test]
    fn small_regions_and_those_that_are_there_get_none() {
        let view = view(&[1, 2]);
        let regions = regions(&view);
        let mut windows = Windows::default();
        assert!(!windows.open(&regions[0], |_, _| panic!("too small")));
        assert!(windows.open(&regions[1], |_, _| true));
        assert!(!windows.open(&regions[1], |_, _| panic!("twice")));
    }

    #[test]
    fn what_was_refused_is_not_asked_for_again() {
        let view = view(&[2]);
        let region = &regions(&view)[0];
        let mut windows = Windows::default();
        assert!(!windows.open(region, |_, _| false));
        assert!(!windows.open(region, |_, _| panic!("twice")));
        assert_eq!(windows.table().len(), 0);
        drop(view);
        assert_eq!(windows.close_unused(), [], "the drive has nothing of it");
    }

    #[test]
    fn a_drive_that_comes_back_finds_everything_where_it_was() {
        let view = view(&[2, 2]);
        let mut windows = Windows::default();
        for region in &regions(&view) {
            windows.open(region, |_, _| true);
        }
        let before = windows.table();
        windows.forget();
        assert_eq!(windows.table().len(), 0);
        let mut again = Vec::new();
        windows.open_again(|lent, bus| {
            again.push(Window { id: lent.id(), bus });
            true
        });
        assert_eq!((&*again, &*windows.table()), (&*before, &*before));
    }
}
