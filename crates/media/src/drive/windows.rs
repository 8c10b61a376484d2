//! Windows: the address on a drive's bus of each region that a host has lent.
//!
//! Each shared region has its own window, from its first use until neither a view nor a command in
//! flight can reach it: then no reference to its [`Lent`] is left. A window is found by the
//! region's number, which is never used for another region, so a closed window cannot be used
//! again, and no notification has to arrive in time.
//!
//! Not included: requests to the drive; the keeper makes them and records the results here.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};

use driver::DriverError;
use memory::{Iova, Lent, Reach};

/// Address of the first window: above the memory that the driver itself shares.
const FIRST: u64 = 1 << 36;
/// End of the windows: the range that the narrowest IOMMUs translate (39 bits).
const END: u64 = 1 << 39;
/// A window begins at a multiple of this, so that large pages can be mapped as such.
const ALIGN: u64 = 2 << 20;
/// Smallest region that gets a window: behind a virtual IOMMU a guest maps single pages for a short
/// time. Their data is copied instead.
pub(super) const LEAST_BYTES: u64 = 2 << 20;
/// Maximum number of windows.
const MAX_WINDOWS: usize = 256;

/// A window, as channels see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// [`Lent::id`].
    id: u64,
    /// Drive address of its first byte.
    bus: u64,
}

/// All windows, as channels see them, ascending by number.
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
        // The number 0 is never used for a region.
        let last = Window { id: 0, bus: 0 };
        Table { windows, last }
    }

    /// Drive address of the region's first byte; `None` if the drive does not reach it.
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

/// Memory that a drive reaches, until one of those that may close it does so.
#[derive(Debug)]
pub(super) struct Opening {
    at: Iova,
    len: u64,
    reach: Arc<Reach>,
    step: AtomicU8,
}

/// Steps of an [`Opening`].
mod step {
    pub(super) const OPEN: u8 = 0;
    /// One side is about to unmap it from the drive.
    pub(super) const CLOSING: u8 = 1;
    pub(super) const CLOSED: u8 = 2;
}

impl Opening {
    /// Its address on the drive's bus, and its length.
    pub(super) fn range(&self) -> (Iova, u64) {
        (self.at, self.len)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.step.load(Ordering::Acquire) == step::CLOSED
    }

    /// Whether its host has unmapped the memory.
    pub(super) fn is_taken_back(&self) -> bool {
        self.reach.is_taken_back()
    }

    /// Unmaps it from the drive with `unshare`, unless that was done. Returns whether it is closed
    /// now; if not, another thread is about to close it.
    ///
    /// # Errors
    /// That of `unshare`: it stays open.
    pub(super) fn close<E>(
        &self,
        unshare: impl FnOnce(Iova, u64) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (ours, order) = (step::CLOSING, Ordering::AcqRel);
        let taken = self
            .step
            .compare_exchange(step::OPEN, ours, order, Ordering::Acquire);
        if let Err(found) = taken {
            return Ok(found == step::CLOSED);
        }
        let result = unshare(self.at, self.len);
        let now = match &result {
            Ok(()) => {
                self.reach.let_go();
                step::CLOSED
            }
            Err(_) => step::OPEN,
        };
        self.step.store(now, Ordering::Release);
        result.map(|()| true)
    }
}

/// State of a region.
#[derive(Clone, Debug)]
enum State {
    /// The drive reaches it.
    Open(Arc<Opening>),
    /// The drive, or the path to it, rejected the mapping.
    Refused,
    /// The drive was reopened and does not have the mapping yet.
    Forgotten,
}

#[derive(Debug)]
struct Entry {
    window: Window,
    len: u64,
    lent: Weak<Lent>,
    state: State,
    /// Tick since which its host has unmapped it while the drive has commands there, and whether
    /// that was reported.
    taken_back: Option<u32>,
    is_told: bool,
}

/// The windows of one drive, as the drive supervisor ([`super::keeper`]) sees them.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Ascending by address.
    entries: Vec<Entry>,
}

impl Windows {
    /// Maps a region for the drive with `share`, which returns whether that succeeded. Returns the
    /// window, if there is a new one.
    pub(super) fn open(
        &mut self,
        lent: &Weak<Lent>,
        share: impl FnOnce(&Lent, u64) -> bool,
    ) -> Option<Arc<Opening>> {
        let region = lent.upgrade()?;
        let (_, len) = region.as_raw();
        let known = self.entries.iter().any(|e| e.window.id == region.id());
        if known || len < LEAST_BYTES || self.entries.len() == MAX_WINDOWS {
            return None;
        }
        let (index, bus) = self.room(len)?;
        let state = State::of(&region, bus, share);
        let opening = state.opening().cloned();
        let entry = Entry {
            window: Window {
                id: region.id(),
                bus,
            },
            len,
            lent: lent.clone(),
            state,
            taken_back: None,
            is_told: false,
        };
        self.entries.insert(index, entry);
        opening
    }

    /// The first gap of `len` bytes: its address, and its index among the entries.
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

    /// Closes the windows of regions that are no longer reachable, with `unshare`.
    ///
    /// # Errors
    /// That of `unshare`, after which the drive is unusable.
    pub(super) fn close_unused<E>(
        &mut self,
        mut unshare: impl FnMut(Iova, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut result = Ok(());
        self.entries.retain(|entry| {
            if entry.lent.strong_count() > 0 || result.is_err() {
                return true;
            }
            let Some(opening) = entry.state.opening() else {
                return false;
            };
            // While it is being closed it keeps its address.
            let is_closed = opening.close(&mut unshare);
            is_closed.map_or_else(
                |error| {
                    result = Err(error);
                    true
                },
                |is_closed| !is_closed,
            )
        });
        result
    }

    /// Whether a host unmapped memory at least `ticks` ticks ago in which the drive still has
    /// commands. Reports each region once.
    pub(super) fn is_kept_from_host(&mut self, now: u32, ticks: u32) -> bool {
        let mut is_so = false;
        for entry in &mut self.entries {
            let opening = entry.state.opening();
            if opening.is_some_and(|opening| opening.is_taken_back()) {
                let since = *entry.taken_back.get_or_insert(now);
                let is_late = now.wrapping_sub(since) >= ticks;
                is_so |= is_late && !entry.is_told;
                entry.is_told |= is_late;
            }
        }
        is_so
    }

    /// Handles the loss of the drive. Unmaps everything with `unshare`, if given; otherwise the
    /// drive may continue to reach it. Returns the number of bytes that it may still reach.
    pub(super) fn forget(&mut self, unshare: Option<&dyn Fn(Iova, u64) -> bool>) -> u64 {
        let mut left = 0;
        for entry in &mut self.entries {
            if let Some(opening) = entry.state.opening() {
                let closed = opening.close(|at, len| match unshare {
                    Some(unshare) if unshare(at, len) => Ok(()),
                    _ => Err(()),
                });
                if closed.is_err() {
                    left += entry.len;
                }
            }
            entry.state = State::Forgotten;
        }
        left
    }

    /// Maps the remaining regions for a reopened drive, each at its old address. Returns the open
    /// windows.
    pub(super) fn open_again(
        &mut self,
        mut share: impl FnMut(&Lent, u64) -> bool,
    ) -> Vec<Arc<Opening>> {
        for entry in &mut self.entries {
            if matches!(entry.state, State::Forgotten)
                && let Some(region) = entry.lent.upgrade()
            {
                entry.state = State::of(&region, entry.window.bus, &mut share);
                (entry.taken_back, entry.is_told) = (None, false);
            }
        }
        let open = self.entries.iter();
        open.filter_map(|entry| entry.state.opening().cloned())
            .collect()
    }

    /// The windows, as sent to channels.
    pub(super) fn table(&self) -> Arc<[Window]> {
        let open = self.entries.iter().filter(|e| e.state.opening().is_some());
        let mut windows: Vec<Window> = open.map(|entry| entry.window).collect();
        windows.sort_unstable_by_key(|window| window.id);
        windows.into()
    }
}

/// Whether a request to map memory had no answer. After a rejection, or a failure on this side, the
/// data is copied instead.
pub(super) fn is_silence(error: &DriverError) -> bool {
    matches!(error, DriverError::Timeout { .. } | DriverError::Gone)
}

impl State {
    /// State of a region after `share` maps it at an address. A region that its host unmaps
    /// meanwhile is not mapped.
    fn of(region: &Lent, bus: u64, share: impl FnOnce(&Lent, u64) -> bool) -> State {
        let reach = region.reach();
        if !reach.hold() {
            return State::Refused;
        }
        if !share(region, bus) {
            reach.let_go();
            return State::Refused;
        }
        State::Open(Arc::new(Opening {
            at: Iova(bus),
            len: region.as_raw().1,
            reach: reach.clone(),
            step: AtomicU8::new(step::OPEN),
        }))
    }

    fn opening(&self) -> Option<&Arc<Opening>> {
        match self {
            State::Open(opening) => Some(opening),
            State::Refused | State::Forgotten => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use memory::{Access, ClientMappings, DmaMap, HostMemory, Iova};

    use super::*;

    /// A host's regions of these sizes in MiB, all of one file.
    fn map(mib: &[u64]) -> DmaMap {
        let memory = HostMemory::new(64 << 20).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        let mut map = DmaMap::new(16);
        for (index, mib) in (0u64..).zip(mib) {
            let backing = Some((mapping.clone(), index << 23));
            map.map(Iova(index << 32), mib << 20, Access::READ_WRITE, backing)
                .unwrap();
        }
        map
    }

    fn regions(map: &DmaMap) -> Vec<Weak<Lent>> {
        map.view().lent().map(Arc::downgrade).collect()
    }

    /// Closes unused windows; returns their addresses and sizes.
    fn closed(windows: &mut Windows) -> Vec<(u64, u64)> {
        let mut closed = Vec::new();
        let result: Result<(), ()> = windows.close_unused(|at, len| {
            closed.push((at.0, len));
            Ok(())
        });
        assert_eq!(result, Ok(()));
        closed
    }

    #[test]
    fn windows_are_apart_and_come_again_where_a_region_went() {
        let (first, second) = (map(&[2, 3]), map(&[2, 4]));
        let mut windows = Windows::default();
        let mut shared = Vec::new();
        for lent in regions(&first).iter().chain(&regions(&second)) {
            let opened = windows.open(lent, |lent, bus| {
                shared.push((bus, lent.as_raw().1));
                true
            });
            assert!(opened.is_some());
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
        let ids: Vec<u64> = first.view().lent().map(|lent| lent.id()).collect();
        assert_eq!(table.find(ids[1]), Some(shared[1].0));
        assert_eq!(table.find(ids[0]), Some(shared[0].0));
        assert_eq!(table.find(0), None, "memory without a number");
        drop(first);
        let expected = [(shared[0].0, 2 << 20), (shared[1].0, 3 << 20)];
        assert_eq!(closed(&mut windows), expected);
        let mut table = Table::new(windows.table());
        assert_eq!(table.find(ids[1]), None);
        let third = map(&[2]);
        let again = &regions(&third)[0];
        assert!(windows.open(again, |_, bus| bus == shared[0].0).is_some());
    }

    #[test]
    fn small_regions_and_those_that_are_there_get_none() {
        let map = map(&[1, 2]);
        let regions = regions(&map);
        let mut windows = Windows::default();
        let small = windows.open(&regions[0], |_, _| panic!("too small"));
        assert!(small.is_none());
        assert!(windows.open(&regions[1], |_, _| true).is_some());
        let twice = windows.open(&regions[1], |_, _| panic!("twice"));
        assert!(twice.is_none());
    }

    #[test]
    fn what_was_refused_is_not_asked_for_again() {
        let map = map(&[2]);
        let region = &regions(&map)[0];
        let mut windows = Windows::default();
        assert!(windows.open(region, |_, _| false).is_none());
        assert!(windows.open(region, |_, _| panic!("twice")).is_none());
        assert_eq!(windows.table().len(), 0);
        drop(map);
        assert_eq!(closed(&mut windows), [], "the drive has nothing of it");
    }

    #[test]
    fn a_drive_that_comes_back_finds_everything_where_it_was() {
        let map = map(&[2, 2]);
        let mut windows = Windows::default();
        for region in &regions(&map) {
            windows.open(region, |_, _| true);
        }
        let before = windows.table();
        assert_eq!(windows.forget(Some(&|_, _| true)), 0);
        assert_eq!(windows.table().len(), 0);
        let mut again = Vec::new();
        let open = windows.open_again(|lent, bus| {
            again.push(Window { id: lent.id(), bus });
            true
        });
        assert_eq!(open.len(), 2);
        assert_eq!((&*again, &*windows.table()), (&*before, &*before));
    }
}
