//! Doorbells: single words that one side stores and the other polls.
//!
//! [`DoorbellPages`] is our register page, shared with a client: a memfd that a client may map, so
//! that a guest's doorbell write is a plain store into it. [`ShadowDoorbells`] is the host's own
//! copy (Doorbell Buffer Config, NVMe Base 2.1, 5.2.5): the host stores tails and heads into one
//! page and reads from the other when a register write is wanted.
//!
//! Invariants:
//! - A client that holds the descriptor of our pages cannot shrink or grow them.
//! - We only read the shadow page. We write the EventIdx page, and read it only to display it: no
//!   decision depends on it.
//!
//! Not included: checks of values. The controller detects a doorbell that moved past its queue.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};

use crate::guest::address::Iova;
use crate::guest::dma::{DmaView, Need};
use crate::guest::lost::LostFlag;
use crate::guest::mapping::{self, MapError, Mapping};
use crate::guest::ring::{Pages, RingError};
use crate::own::PAGE;
use crate::own::map::OwnMap;
use crate::sync::order;
pub use crate::sync::order::{full_fence, loads_done};

/// Bytes of a doorbell (CAP.DSTRD = 0).
const SLOT_BYTES: usize = 4;

/// Doorbell registers in shared memory: slots of 32 bits, slot 2y the tail of submission queue y,
/// slot 2y + 1 the head of completion queue y.
#[derive(Debug)]
pub struct DoorbellPages {
    fd: OwnedFd,
    /// The first slot, aligned to a page.
    base: *mut u8,
    slots: usize,
    /// Raised when a server takes its pages away, or a device is gone; never for our own.
    lost: LostFlag,
    /// Keeps `base` valid for `slots`.
    _pages: Owner,
}

/// Whose pages they are; held for its drop.
#[derive(Debug)]
enum Owner {
    Ours { _map: OwnMap },
    Server { _mapping: Mapping },
}

// SAFETY: `base` points into `_pages`, which is Send and Sync and lives as long. The words are
// accessed only by the helpers of `order`, which race with the other process at any rate.
unsafe impl Send for DoorbellPages {}
// SAFETY: as above; a shared reference only loads and stores atomics.
unsafe impl Sync for DoorbellPages {}

/// Bytes of the pages for `slots` doorbells, and of their file.
fn lengths(slots: usize) -> io::Result<(usize, usize)> {
    let unit = rustix::param::page_size();
    let len = slots.max(1).checked_mul(SLOT_BYTES);
    let len = len.and_then(|bytes| bytes.checked_next_multiple_of(unit));
    let file_len = len.and_then(|len| len.checked_add(DoorbellPages::FILE_OFFSET));
    let lengths = len.zip(file_len);
    lengths.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

impl DoorbellPages {
    /// Offset of the first slot of our own pages in their file, in bytes: the start of doorbells in
    /// BAR0 (PCIe Transport 1.1, 3.1.2). A vfio-user client maps the file at the offset that an
    /// area has in its region, so the file is laid out like the region.
    pub const FILE_OFFSET: usize = 0x1000;

    /// Pages for `slots` doorbells, all zero, in a memfd of our own.
    ///
    /// # Errors
    /// Those of memfd_create(2), ftruncate(2), fcntl(2) and mmap(2).
    pub fn new(slots: usize) -> io::Result<Self> {
        let (len, file_len) = lengths(slots)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("nvmirage-doorbells", flags)?;
        rustix::fs::ftruncate(&fd, file_len as u64)?;
        // A client that could shrink the file could stop every reactor that polls it. SEAL: it
        // cannot add seals either.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&fd, seals)?;
        Self::ours(fd, len, file_len)
    }

    /// Pages for `slots` doorbells that another process has made ([`Self::new`]), as they are. That
    /// process has ended.
    ///
    /// # Errors
    /// `InvalidInput`: the file has another length, or could be shortened; and the system's.
    pub fn adopt(fd: OwnedFd, slots: usize) -> io::Result<Self> {
        let (len, file_len) = lengths(slots)?;
        let seals = rustix::fs::fcntl_get_seals(&fd)?;
        let is_whole = rustix::fs::fstat(&fd)?.st_size as u64 == file_len as u64;
        if !is_whole || !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Self::ours(fd, len, file_len)
    }

    fn ours(fd: OwnedFd, len: usize, file_len: usize) -> io::Result<Self> {
        let map = OwnMap::shared(&fd, file_len)?;
        Ok(DoorbellPages {
            fd,
            base: map.at(Self::FILE_OFFSET, len),
            slots: len / SLOT_BYTES,
            lost: LostFlag::default(),
            _pages: Owner::Ours { _map: map },
        })
    }

    /// Maps a server's doorbell pages for a host: `len` bytes at `offset` of its file.
    ///
    /// The server is trusted with more than a client is: its file may lie in any file system.
    ///
    /// # Errors
    /// See [`MapError`]: `offset` and `len` are whole pages within a regular file that may be
    /// written.
    pub fn map_client(fd: OwnedFd, offset: u64, len: usize) -> Result<Self, MapError> {
        let lost = LostFlag::default();
        let mapping = mapping::map_pages(&fd, offset, len as u64, &lost)?;
        Ok(DoorbellPages {
            fd,
            base: mapping.base(),
            slots: len / SLOT_BYTES,
            lost,
            _pages: Owner::Server { _mapping: mapping },
        })
    }

    /// Maps a device's doorbell registers for a host: `len` bytes at `offset` of its descriptor,
    /// which is VFIO's.
    ///
    /// # Errors
    /// See [`MapError`]; the system's for what the device does not have there.
    pub(crate) fn map_device(fd: OwnedFd, offset: u64, len: u64) -> Result<Self, MapError> {
        let lost = LostFlag::default();
        let mapping = mapping::map_device(&fd, offset, len, &lost)?;
        let slots = usize::try_from(len).expect("it was mapped") / SLOT_BYTES;
        Ok(DoorbellPages {
            fd,
            base: mapping.base(),
            slots,
            lost,
            _pages: Owner::Server { _mapping: mapping },
        })
    }

    /// The file, for the process that maps it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes: whole pages.
    #[expect(clippy::len_without_is_empty, reason = "there is always a page")]
    pub fn len(&self) -> usize {
        self.slots * SLOT_BYTES
    }

    /// Doorbells.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Whether a server has taken its pages away (its file was shrunk), or a device its registers;
    /// they read as zeros then.
    pub fn is_lost(&self) -> bool {
        self.lost.is_lost()
    }

    /// The last value stored into `slot`. Acquire: entries that the other side stored before are
    /// seen after.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline]
    pub fn load(&self, slot: usize) -> u32 {
        // SAFETY: `at` gives an aligned word of a mapping that `self` holds.
        unsafe { order::load_doorbell(self.at(slot)) }
    }

    /// The values of both doorbells of queue pair `pair`, the tail in the lower half: to detect a
    /// change since the last time. Not ordered: call [`DoorbellPages::load`] before reading
    /// anything because of it.
    ///
    /// # Panics
    /// If there is no such pair.
    #[inline]
    pub fn load_pair(&self, pair: usize) -> u64 {
        // the whole pair lies within the pages: they end with an odd slot
        let word = self.at(pair * 2).cast::<u64>();
        // SAFETY: `at` gives a word of a mapping that `self` holds; even slots are aligned to
        // 8 bytes.
        unsafe { order::load_doorbell_pair(word) }
    }

    /// Rings `slot`. Release: a reader that sees the value sees the entries stored before.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline]
    pub fn store(&self, slot: usize, value: u32) {
        // SAFETY: as in `load`; all of these pages are mapped for writing.
        unsafe { order::store_doorbell(self.at(slot), value) };
    }

    /// Stores 0 into every slot, as a controller reset does.
    pub fn zero_all(&self) {
        (0..self.slots).for_each(|slot| self.store(slot, 0));
    }

    #[inline]
    fn at(&self, slot: usize) -> *mut u32 {
        assert!(slot < self.slots, "doorbell {slot} of {}", self.slots);
        self.base.wrapping_add(slot * SLOT_BYTES).cast()
    }
}

/// The two pages of Doorbell Buffer Config in the host's memory. Their slots are numbered as the
/// registers are.
#[derive(Debug)]
pub struct ShadowDoorbells {
    shadow: Pages,
    event_idx: Pages,
}

/// Doorbells in a page: 512 queue pairs.
const SHADOW_SLOTS: usize = PAGE as usize / SLOT_BYTES;

impl ShadowDoorbells {
    /// The shadow page at `shadow` (PRP1) and the EventIdx page at `event_idx` (PRP2).
    ///
    /// # Errors
    /// See [`RingError`].
    pub fn new(view: &Arc<DmaView>, shadow: Iova, event_idx: Iova) -> Result<Self, RingError> {
        Ok(ShadowDoorbells {
            shadow: Pages::new(view, shadow, PAGE, Need::DeviceReads)?,
            event_idx: Pages::new(view, event_idx, PAGE, Need::DeviceWrites)?,
        })
    }

    /// Buffers that were registered before: a page that is gone is absent.
    ///
    /// # Errors
    /// One does not start at a page.
    pub fn restore(view: &Arc<DmaView>, shadow: Iova, event_idx: Iova) -> Result<Self, RingError> {
        Ok(ShadowDoorbells {
            shadow: Pages::found(view, shadow, PAGE, Need::DeviceReads)?,
            event_idx: Pages::found(view, event_idx, PAGE, Need::DeviceWrites)?,
        })
    }

    /// Finds both pages again after the map has changed. A page that is gone becomes absent.
    pub fn resolve(&mut self, view: &Arc<DmaView>) {
        self.shadow.resolve(view);
        self.event_idx.resolve(view);
    }

    /// The host's value in `slot` of the shadow page (Acquire); `None` if the page is absent or has
    /// no such slot.
    #[inline]
    pub fn load(&self, slot: usize) -> Option<u32> {
        let word = at(&self.shadow, slot)?;
        // SAFETY: `at` gives an aligned word of a present page, readable while `shadow` holds its
        // view.
        Some(unsafe { order::load_doorbell(word) })
    }

    /// The value in `slot` of the EventIdx page, as the host reads it: for queue inspection. The
    /// host may have stored another value there. `None` if the page is absent or has no such slot.
    pub fn event_idx(&self, slot: usize) -> Option<u32> {
        let word = at(&self.event_idx, slot)?;
        // SAFETY: as in `load`; every mapping of a host's memory can be read.
        Some(unsafe { order::load_doorbell(word) })
    }

    /// Tells the host at which value of `slot` it shall write the register again. Nothing happens
    /// where the page is absent. [`full_fence`] comes after, then the second look at the shadow.
    #[inline]
    pub fn store_event_idx(&self, slot: usize, value: u32) {
        if let Some(word) = at(&self.event_idx, slot) {
            // SAFETY: as in `load`, and writable: it was translated for DeviceWrites.
            unsafe { order::store_doorbell(word, value) };
            let at = (slot * SLOT_BYTES) as u64;
            self.event_idx.written(at, SLOT_BYTES as u64);
        }
    }
}

#[inline]
fn at(pages: &Pages, slot: usize) -> Option<*mut u32> {
    if slot >= SHADOW_SLOTS {
        return None;
    }
    Some(pages.at((slot * SLOT_BYTES) as u64)?.cast())
}
