//! Registration of hosts' memory with the kernel, which then need not look up and pin the pages of
//! every command.
//!
//! Registering is slow: the pages are allocated and pinned, which takes a second for some
//! gigabytes. So one thread of the process does it, with a ring that has no other use
//! ([`Registrar`]); the channels' rings get the registered buffers by reference, which takes
//! microseconds ([`Buffers`]). Commands do not wait for registration: until it is done they use
//! unregistered memory.
//!
//! Invariants:
//! - A registered region lasts from its map to its unmap ([`Lent`]), and is found by its number. A
//!   command finds only regions of its own view, so the pages are those that the host had there
//!   when it mapped them.
//! - Memory that no view contains any more is released: first by the channels, without being asked
//!   twice ([`Buffers::tend`]), and last by the thread, because the last release does the work.
//! - The total is within the limit on locked memory (`RLIMIT_MEMLOCK`), also if the process may
//!   exceed it.
//! - A channel never waits for a lock, and takes none for a command.
//!
//! Not included: detection of a host that frees pages without unmapping them. See decision 11.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Once, OnceLock, Weak};
use std::time::Duration;

use io_uring::IoUring;
use io_uring::types::CloneBuffersFlags;
use memory::{DmaView, Lent};
use rustix::process::{Resource, getrlimit};

use super::register_buffer;

/// The kernel's maximum size of a buffer.
const SLICE_BYTES: u64 = 1 << 30;
/// Maximum number of slices.
const MAX_SLICES: u16 = 1024;
/// Smallest region that is registered: behind an IOMMU, regions are single pages with a short life.
const LEAST_BYTES: u64 = 2 << 20;
/// Bytes allocated at once. A mapping made meanwhile waits as long.
const POPULATE_BYTES: u64 = 4 << 20;
/// Time without requests after which a map counts as stable.
const SETTLE: Duration = Duration::from_millis(500);
/// Interval of checks for memory that can be released.
const LOOK: Duration = Duration::from_millis(250);
/// Unregistered commands before a channel's first request; each further request takes twice as
/// many.
const FIRST_ASK: u64 = 256;
/// A channel that has no registered memory yet.
const NOTHING: u64 = u64::MAX;

/// A registered part of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slice {
    /// [`Lent::id`].
    id: u64,
    start: usize,
    len: usize,
    /// Its index in every ring that has it.
    index: u16,
}

impl Slice {
    fn holds(&self, id: u64, at: usize, len: usize) -> bool {
        // For an address before the slice's start the difference wraps to more than any length.
        let offset = at.wrapping_sub(self.start);
        self.id == id && offset <= self.len && len <= self.len - offset
    }
}

/// Registered memory of this process.
#[derive(Debug)]
struct Registrar {
    asks: SyncSender<Vec<Weak<Lent>>>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Version of the state, readable without the lock.
    version: AtomicU64,
    #[expect(
        clippy::disallowed_types,
        reason = "channels only try, and never for a command"
    )]
    state: std::sync::Mutex<State>,
}

struct State {
    ring: IoUring,
    entries: Vec<Entry>,
    /// Grows with every change of `entries`.
    version: u64,
    /// Version that each channel has seen, or [`NOTHING`].
    followers: Vec<Weak<AtomicU64>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut state = f.debug_struct("State");
        state
            .field("entries", &self.entries)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Entry {
    slice: Slice,
    lent: Weak<Lent>,
    /// The version from which on channels do not have it; `None` while they do.
    retired: Option<u64>,
}

impl Registrar {
    /// The only one of the process. `None` if registration is impossible, which is logged.
    fn get() -> Option<&'static Registrar> {
        static REGISTRAR: OnceLock<Option<Registrar>> = OnceLock::new();
        let start = || {
            let limit = limit();
            if limit < LEAST_BYTES {
                tracing::info!(
                    limit,
                    "hosts' memory is not registered for files: the limit of locked memory is too low"
                );
                return None;
            }
            Registrar::start()
                .inspect_err(|error| {
                    tracing::info!(%error, "hosts' memory cannot be registered for files");
                })
                .ok()
        };
        REGISTRAR.get_or_init(start).as_ref()
    }

    fn start() -> io::Result<Registrar> {
        let ring = IoUring::builder().dontfork().build(1)?;
        ring.submitter()
            .register_buffers_sparse(MAX_SLICES.into())?;
        try_handing_on(&ring)?;
        let state = State {
            ring,
            entries: Vec::new(),
            version: 0,
            followers: Vec::new(),
        };
        let shared = Arc::new(Shared {
            version: AtomicU64::new(0),
            state: state.into(),
        });
        let (asks, asked) = sync_channel(64);
        let its = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("registrar".to_owned())
            .spawn(move || its.run(&asked))?;
        Ok(Registrar { asks, shared })
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        let state = self.state.lock();
        state.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Registers what channels request, and releases unused memory.
    fn run(&self, asked: &Receiver<Vec<Weak<Lent>>>) {
        let mut waiting = Vec::new();
        loop {
            let idle = waiting.is_empty() && self.lock().entries.is_empty();
            let wait = if waiting.is_empty() { LOOK } else { SETTLE };
            let ask = if idle {
                asked.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                asked.recv_timeout(wait)
            };
            match ask {
                Ok(ask) => waiting.extend(ask),
                Err(RecvTimeoutError::Timeout) => {
                    for lent in waiting.drain(..) {
                        self.register(&lent);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.release_unused();
        }
    }

    /// Registers the unregistered parts of a region, up to the limit.
    fn register(&self, weak: &Weak<Lent>) {
        let Some(lent) = weak.upgrade() else { return };
        let (base, bytes) = lent.as_raw();
        for offset in (0..bytes).step_by(SLICE_BYTES as usize) {
            let len = SLICE_BYTES.min(bytes - offset);
            let start = base.wrapping_add(offset as usize);
            let slice = self.lock().vacant(lent.id(), start.addr(), len as usize);
            let Some(slice) = slice else { continue };
            // The map may change meanwhile. If this is the last reference to the region, the rest
            // is not worth registering.
            let parts = (offset..offset + len).step_by(POPULATE_BYTES as usize);
            for at in parts {
                let is_gone = Arc::strong_count(&lent) == 1;
                let part = POPULATE_BYTES.min(offset + len - at);
                if is_gone || lent.populate(at, part).is_err() {
                    return;
                }
            }
            let mut state = self.lock();
            if let Err(error) = register_buffer(&state.ring, slice.index, start, slice.len) {
                tracing::info!(%error, "a host's memory cannot be registered; it is used as it is");
                return;
            }
            state.entries.push(Entry {
                slice,
                lent: weak.clone(),
                retired: None,
            });
            self.publish(&mut state);
            tracing::debug!(bytes = len, "registered memory of a host");
        }
    }

    /// Retires slices that no view has any more, and releases those that no channel has any more.
    fn release_unused(&self) {
        let state = &mut *self.lock();
        let next = state.version + 1;
        let mut gone = false;
        for entry in &mut state.entries {
            if entry.retired.is_none() && entry.lent.strong_count() == 0 {
                entry.retired = Some(next);
                gone = true;
            }
        }
        if gone {
            self.publish(state);
        }
        state.followers.retain(|seen| seen.strong_count() > 0);
        let seen = state.followers.iter().filter_map(Weak::upgrade);
        let seen = seen.map(|seen| seen.load(Ordering::Relaxed)).min();
        let seen = seen.unwrap_or(NOTHING);
        let ring = &state.ring;
        state.entries.retain(|entry| {
            let is_over = entry.retired.is_some_and(|version| version <= seen);
            // on failure the index is not reused: the entry stays
            !(is_over && register_buffer(ring, entry.slice.index, std::ptr::null_mut(), 0).is_ok())
        });
    }

    fn publish(&self, state: &mut State) {
        state.version += 1;
        // Only a hint to check: the data is behind the lock.
        self.version.store(state.version, Ordering::Relaxed);
    }
}

impl State {
    /// A slice for unregistered memory; `None` if the memory is registered already, or may not be.
    fn vacant(&self, id: u64, start: usize, len: usize) -> Option<Slice> {
        let mut slices = self.entries.iter().map(|entry| entry.slice);
        if slices.any(|slice| slice.holds(id, start, len)) {
            return None;
        }
        let taken: usize = self.entries.iter().map(|entry| entry.slice.len).sum();
        let limit = limit();
        if (taken + len) as u64 > limit {
            static TOLD: Once = Once::new();
            TOLD.call_once(|| {
                tracing::info!(
                    bytes = len,
                    registered = taken,
                    limit,
                    "a host's memory is not registered for files: it would exceed the limit of locked memory"
                );
            });
            return None;
        }
        let is_free = |index: &u16| self.entries.iter().all(|e| e.slice.index != *index);
        let index = (0..MAX_SLICES).find(is_free)?;
        Some(Slice {
            id,
            start,
            len,
            index,
        })
    }
}

/// Limit on locked bytes of the process.
fn limit() -> u64 {
    getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX)
}

/// Registered memory in one channel's ring.
#[derive(Debug)]
pub(super) struct Buffers {
    registrar: &'static Registrar,
    /// Ascending by region and address.
    slices: Vec<Slice>,
    /// The version of `slices`, shared with the registrar; [`NOTHING`] at first.
    seen: Arc<AtomicU64>,
    version: u64,
    /// Whether the ring also accepts commands of several pieces (Linux 6.15).
    vectored: bool,
    /// Whether the kernel has rejected the transfer of a buffer.
    refused: bool,
    /// Commands with registered memory, and without.
    counts: [u64; 2],
    ask_at: u64,
    ask: Option<Arc<DmaView>>,
}

impl Buffers {
    /// Empty at first. `None` if registration is impossible.
    pub(super) fn new(vectored: bool) -> Option<Buffers> {
        let registrar = Registrar::get()?;
        let seen = Arc::new(AtomicU64::new(NOTHING));
        let mut state = registrar.shared.lock();
        state.followers.push(Arc::downgrade(&seen));
        drop(state);
        Some(Buffers {
            registrar,
            slices: Vec::new(),
            seen,
            version: 0,
            vectored,
            refused: false,
            counts: [0; 2],
            ask_at: FIRST_ASK,
            ask: None,
        })
    }

    /// Commands with registered memory, and without.
    pub(super) fn counts(&self) -> [u64; 2] {
        self.counts
    }

    /// The buffer that contains all pieces of a command, each given as region number, address and
    /// length. Counts the command, which belongs to `view`.
    #[inline]
    pub(super) fn of(
        &mut self,
        mut pieces: impl ExactSizeIterator<Item = (u64, usize, usize)>,
        view: &Arc<DmaView>,
    ) -> Option<u16> {
        let may = !self.slices.is_empty() && (self.vectored || pieces.len() == 1);
        if may && let Some(first) = pieces.next() {
            let slice = self.find(first);
            if let Some(slice) = slice
                && pieces.all(|(id, at, len)| slice.holds(id, at, len))
            {
                self.counts[0] += 1;
                return Some(slice.index);
            }
        }
        self.counts[1] += 1;
        if self.counts[1] >= self.ask_at {
            self.ask_at = 2 * self.counts[1];
            self.ask = Some(Arc::clone(view));
        }
        None
    }

    #[inline]
    fn find(&self, (id, at, len): (u64, usize, usize)) -> Option<Slice> {
        let after = self.slices.partition_point(|s| (s.id, s.start) <= (id, at));
        let slice = *self.slices.get(after.checked_sub(1)?)?;
        slice.holds(id, at, len).then_some(slice)
    }

    /// Requests registration for commands that lacked it, and applies the registrar's changes. For
    /// periodic calls on the ring's own thread, also without commands in flight.
    #[inline]
    pub(super) fn tend(&mut self, ring: &IoUring) {
        if self.ask.is_some()
            || self.registrar.shared.version.load(Ordering::Relaxed) != self.version
        {
            self.follow(ring);
        }
    }

    #[cold]
    fn follow(&mut self, ring: &IoUring) {
        if let Some(view) = self.ask.take()
            && !self.refused
        {
            let large = |lent: &&Arc<Lent>| lent.is_writable() && lent.as_raw().1 >= LEAST_BYTES;
            let regions: Vec<_> = view.lent().filter(large).map(Arc::downgrade).collect();
            // if too many channels ask, this one asks again later
            let _ = self.registrar.asks.try_send(regions);
        }
        let Ok(state) = self.registrar.shared.state.try_lock() else {
            return;
        };
        self.version = state.version;
        let mut wanted: Vec<Slice> = Vec::new();
        if !self.refused {
            let live = state.entries.iter().filter(|entry| entry.retired.is_none());
            wanted.extend(live.map(|entry| entry.slice));
        }
        wanted.sort_unstable_by_key(|slice| (slice.id, slice.start));
        for old in self.slices.iter().filter(|old| !wanted.contains(old)) {
            // no command in flight uses it, and after a failure it lasts until the end of the ring
            let _ = register_buffer(ring, old.index, std::ptr::null_mut(), 0);
        }
        let had = std::mem::take(&mut self.slices);
        for slice in &wanted {
            let is_new = !had.contains(slice);
            if is_new && let Err(error) = take_over(ring, &state.ring, slice.index) {
                tracing::info!(%error, "registered memory cannot be had by a ring; it goes without");
                self.refused = true;
            }
        }
        if self.refused {
            for slice in &wanted {
                let _ = register_buffer(ring, slice.index, std::ptr::null_mut(), 0);
            }
            wanted.clear();
        }
        self.slices = wanted;
        self.seen.store(
            if self.refused { NOTHING } else { state.version },
            Ordering::Relaxed,
        );
    }
}

/// Tests with a page of our own whether the kernel can pass registered memory from ring to ring;
/// without that, registration is useless.
fn try_handing_on(ring: &IoUring) -> io::Result<()> {
    let page = [0u8; 4096];
    register_buffer(ring, 0, page.as_ptr().cast_mut(), page.len())?;
    let other = IoUring::builder().dontfork().build(1)?;
    take_over(&other, ring, 0)?;
    register_buffer(ring, 0, std::ptr::null_mut(), 0)
}

/// Takes over one buffer of another ring.
fn take_over(to: &IoUring, from: &IoUring, index: u16) -> io::Result<()> {
    let index = index.into();
    let flags = CloneBuffersFlags::DST_REPLACE;
    let from = from.as_raw_fd();
    to.submitter()
        .register_buffers_clone_offset(from, index, index, 1, flags)
}
