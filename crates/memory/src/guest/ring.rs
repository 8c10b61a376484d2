//! Submission and completion queues in the host's memory, from the controller's side.
//!
//! A queue is contiguous for the host (PC = 1), yet a vIOMMU may map it as single 4 KiB pages
//! anywhere in the client's file. So a ring keeps one address per page of the queue, and one
//! address for the whole queue if the pages are contiguous for us too, as they are without a
//! vIOMMU.
//!
//! Invariants:
//! - A ring holds the view that its addresses came from, so they stay valid until it is resolved
//!   with another.
//! - A page is present only if all of it is mapped with a descriptor and in the direction that the
//!   ring needs.
//! - An absent page is never accessed: the caller gets an error, and the queue is lost to the host.
//!
//! Not included: head, tail, phase, and the wrap of an index.

use std::ptr;
use std::sync::Arc;

use crate::guest::address::Iova;
use crate::guest::dma::{DmaView, Hint, Need, TranslateError};
use crate::own::PAGE;
use crate::sync::order;

/// The most entries of a queue: QSIZE is a 16-bit 0's-based value (NVMe Base 2.1, 5.2.1 and 5.2.2).
pub const MAX_RING_ENTRIES: u32 = 65_536;

const SQE_BYTES: u64 = 64;
const CQE_BYTES: u64 = 16;

/// Why a queue cannot lie where the host put it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// A page of the queue is not mapped, or the queue ends behind the last address.
    #[error("a page of the queue is not mapped")]
    Unmapped,
    /// A page of the queue came without a descriptor.
    #[error(
        "the queue is in memory that the host does not share: start QEMU with memory-backend-memfd,share=on"
    )]
    NoDescriptor,
    /// A page of the queue does not allow the access that the device needs.
    #[error("the host mapped the memory of the queue without the access that the device needs")]
    Denied,
    /// The queue does not start at a page.
    #[error("the queue does not start at a multiple of {PAGE} bytes")]
    Misaligned,
}

impl From<TranslateError> for RingError {
    fn from(error: TranslateError) -> Self {
        match error {
            TranslateError::Unmapped | TranslateError::Wraps => RingError::Unmapped,
            TranslateError::NoDescriptor => RingError::NoDescriptor,
            TranslateError::Denied => RingError::Denied,
        }
    }
}

/// The pages of a range of host memory, each with its address here.
#[derive(Debug)]
pub(crate) struct Pages {
    base: Iova,
    need: Need,
    /// One address per page; null: absent. Its length never changes.
    each: Box<[*mut u8]>,
    /// The address of the first page where all are present and contiguous; null otherwise.
    flat: *mut u8,
    /// Keeps the addresses valid.
    view: Arc<DmaView>,
}

// SAFETY: the addresses point into mappings that `view` holds, and a DmaView is Send and Sync. They
// are accessed only by the helpers of `order`, which race with the host at any rate.
unsafe impl Send for Pages {}
// SAFETY: as above; a shared reference only loads and stores atomics.
unsafe impl Sync for Pages {}

impl Pages {
    /// The pages of `bytes` bytes from `base`, all of them present.
    pub(crate) fn new(
        view: &Arc<DmaView>,
        base: Iova,
        bytes: u64,
        need: Need,
    ) -> Result<Self, RingError> {
        let mut pages = Self::absent(view, base, bytes, need)?;
        fill(&mut pages.each, view, base, need)?;
        pages.flat = flat(&pages.each);
        Ok(pages)
    }

    /// The pages of `bytes` bytes from `base` as a view has them: some may be absent.
    pub(crate) fn found(
        view: &Arc<DmaView>,
        base: Iova,
        bytes: u64,
        need: Need,
    ) -> Result<Self, RingError> {
        let mut pages = Self::absent(view, base, bytes, need)?;
        pages.resolve(view);
        Ok(pages)
    }

    /// The same, all of them absent.
    fn absent(view: &Arc<DmaView>, base: Iova, bytes: u64, need: Need) -> Result<Self, RingError> {
        if base.page_offset() != 0 {
            return Err(RingError::Misaligned);
        }
        Ok(Pages {
            base,
            need,
            each: vec![ptr::null_mut(); bytes.div_ceil(PAGE) as usize].into_boxed_slice(),
            flat: ptr::null_mut(),
            view: view.clone(),
        })
    }

    /// Finds the pages again, in another view. Those that are gone become absent.
    pub(crate) fn resolve(&mut self, view: &Arc<DmaView>) {
        // Absent pages report the error when they are needed.
        let _ = fill(&mut self.each, view, self.base, self.need);
        self.flat = flat(&self.each);
        self.view = view.clone();
    }

    /// Logs `len` bytes from byte `at` on, which have just been written.
    #[inline]
    pub(crate) fn written(&self, at: u64, len: u64) {
        if self.view.log().is_some() {
            self.mark(at, len);
        }
    }

    #[cold]
    fn mark(&self, at: u64, len: u64) {
        if let Some(log) = self.view.log() {
            log.mark(Iova(self.base.0.wrapping_add(at)), len);
        }
    }

    /// The address of byte `at`, `None` where the page is absent. `at` lies within the pages.
    #[inline]
    pub(crate) fn at(&self, at: u64) -> Option<*mut u8> {
        debug_assert!(at < self.each.len() as u64 * PAGE);
        if !self.flat.is_null() {
            return Some(self.flat.wrapping_add(at as usize));
        }
        self.scattered(at)
    }

    #[inline(never)]
    fn scattered(&self, at: u64) -> Option<*mut u8> {
        let page = *self.each.get((at / PAGE) as usize)?;
        (!page.is_null()).then(|| page.wrapping_add((at % PAGE) as usize))
    }
}

/// Finds the pages from `base` on, region by region. A page that is not there becomes null; the
/// first one's error is returned in the end.
///
/// Regions are whole pages at whole pages of their files, so a page lies in one region, and its
/// address is aligned to a page here too.
fn fill(each: &mut [*mut u8], view: &DmaView, base: Iova, need: Need) -> Result<(), RingError> {
    let mut hint = Hint::default();
    let mut outcome = Ok(());
    let mut page = 0;
    while page < each.len() {
        let rest = (each.len() - page) as u32 * PAGE as u32;
        let found = base
            .checked_add(page as u64 * PAGE)
            .ok_or(TranslateError::Wraps)
            .and_then(|at| view.translate(&mut hint, at, rest, need));
        match found {
            Ok(segment) => {
                let (start, len) = segment.as_raw();
                debug_assert!((start as u64 | len as u64).is_multiple_of(PAGE));
                let count = len / PAGE as usize;
                for (index, address) in each[page..page + count].iter_mut().enumerate() {
                    *address = start.wrapping_add(index * PAGE as usize);
                }
                page += count;
            }
            Err(error) => {
                outcome = outcome.and(Err(error.into()));
                each[page] = ptr::null_mut();
                page += 1;
            }
        }
    }
    outcome
}

fn flat(each: &[*mut u8]) -> *mut u8 {
    let follows = |pair: &[*mut u8]| pair[0].wrapping_add(PAGE as usize) == pair[1];
    match each.first() {
        // A null page follows none: nothing is mapped at the end of the address space.
        Some(first) if !first.is_null() && each.windows(2).all(follows) => *first,
        _ => ptr::null_mut(),
    }
}

/// A submission queue: the host writes entries of 64 bytes, we read them.
#[derive(Debug)]
pub struct SqRing {
    pages: Pages,
    entries: u32,
}

impl SqRing {
    /// The queue of `entries` entries at `base`.
    ///
    /// # Errors
    /// See [`RingError`].
    ///
    /// # Panics
    /// If there are more than [`MAX_RING_ENTRIES`] entries.
    pub fn new(view: &Arc<DmaView>, base: Iova, entries: u32) -> Result<Self, RingError> {
        assert!(entries <= MAX_RING_ENTRIES, "QSIZE has 16 bits");
        let bytes = u64::from(entries) * SQE_BYTES;
        let pages = Pages::new(view, base, bytes, Need::DeviceReads)?;
        Ok(SqRing { pages, entries })
    }

    /// A queue that there was before: pages that are gone are absent.
    ///
    /// # Errors
    /// It does not start at a page.
    ///
    /// # Panics
    /// As of [`SqRing::new`].
    pub fn restore(view: &Arc<DmaView>, base: Iova, entries: u32) -> Result<Self, RingError> {
        assert!(entries <= MAX_RING_ENTRIES, "QSIZE has 16 bits");
        let bytes = u64::from(entries) * SQE_BYTES;
        let pages = Pages::found(view, base, bytes, Need::DeviceReads)?;
        Ok(SqRing { pages, entries })
    }

    /// Finds the queue's pages again after the map has changed. Pages that are gone become absent.
    pub fn resolve(&mut self, view: &Arc<DmaView>) {
        self.pages.resolve(view);
    }

    /// Loads the entry at `index`, each word once; `None` where its page is absent or the queue has
    /// no such entry.
    ///
    /// The caller has loaded the tail behind the entry with
    /// [`DoorbellPages::load`](crate::DoorbellPages::load) or
    /// [`ShadowDoorbells::load`](crate::ShadowDoorbells::load), whose Acquire orders these loads
    /// behind the host's stores.
    #[inline]
    pub fn load(&self, index: u32) -> Option<[u64; 8]> {
        let words = self.at(index)?.cast::<u64>();
        // SAFETY: `at` gives the address of 64 bytes in a present page, aligned to 64 bytes, mapped
        // and readable while `pages` holds its view.
        Some(std::array::from_fn(|word| unsafe {
            order::load_sqe_word(words.add(word))
        }))
    }

    /// One word of the entry at `index`, as a hint: code that decides about the entry loads it
    /// again, and must not rely on anything that was seen here.
    #[inline]
    pub fn glance(&self, index: u32, word: usize) -> Option<u64> {
        debug_assert!(word < 8);
        let words = self.at(index)?.cast::<u64>();
        // SAFETY: as in `load`, for one word of the entry.
        Some(unsafe { order::load_sqe_word(words.add(word & 7)) })
    }

    /// Prefetches the entry at `index`.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        if let Some(entry) = self.at(index) {
            order::prefetch(entry);
        }
    }

    #[inline]
    fn at(&self, index: u32) -> Option<*mut u8> {
        if index >= self.entries {
            return None;
        }
        self.pages.at(u64::from(index) * SQE_BYTES)
    }
}

/// A completion queue: we write entries of 16 bytes, the host reads them.
#[derive(Debug)]
pub struct CqRing {
    pages: Pages,
    entries: u32,
}

impl CqRing {
    /// The queue of `entries` entries at `base`.
    ///
    /// # Errors
    /// See [`RingError`].
    ///
    /// # Panics
    /// If there are more than [`MAX_RING_ENTRIES`] entries.
    pub fn new(view: &Arc<DmaView>, base: Iova, entries: u32) -> Result<Self, RingError> {
        assert!(entries <= MAX_RING_ENTRIES, "QSIZE has 16 bits");
        let bytes = u64::from(entries) * CQE_BYTES;
        let pages = Pages::new(view, base, bytes, Need::DeviceWrites)?;
        Ok(CqRing { pages, entries })
    }

    /// A queue that there was before: pages that are gone are absent.
    ///
    /// # Errors
    /// It does not start at a page.
    ///
    /// # Panics
    /// As of [`CqRing::new`].
    pub fn restore(view: &Arc<DmaView>, base: Iova, entries: u32) -> Result<Self, RingError> {
        assert!(entries <= MAX_RING_ENTRIES, "QSIZE has 16 bits");
        let bytes = u64::from(entries) * CQE_BYTES;
        let pages = Pages::found(view, base, bytes, Need::DeviceWrites)?;
        Ok(CqRing { pages, entries })
    }

    /// Finds the queue's pages again after the map has changed. Pages that are gone become absent.
    pub fn resolve(&mut self, view: &Arc<DmaView>) {
        self.pages.resolve(view);
    }

    /// Stores the entry at `index`: DW0-1, then DW2-3 with the phase tag (Release). False, and
    /// nothing stored, where its page is absent or the queue has no such entry.
    #[inline]
    pub fn store(&self, index: u32, cqe: [u64; 2]) -> bool {
        let Some(entry) = self.at(index) else {
            return false;
        };
        // SAFETY: `at` gives the address of 16 bytes in a present page, aligned to 16 bytes, mapped
        // while `pages` holds its view, and writable: it was translated for DeviceWrites.
        unsafe { order::store_cqe(entry.cast(), cqe) };
        self.pages.written(u64::from(index) * CQE_BYTES, CQE_BYTES);
        true
    }

    /// Asks for the cache line of the entry at `index`, to which a store will come.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        if let Some(entry) = self.at(index) {
            order::prefetch_to_write(entry);
        }
    }

    /// Loads the entry at `index`; `None` where its page is absent or the queue has no such entry.
    #[inline]
    pub fn load(&self, index: u32) -> Option<[u64; 2]> {
        let entry = self.at(index)?;
        // SAFETY: as in `store`; what is writable here is readable too.
        Some(unsafe { order::load_cqe(entry.cast()) })
    }

    #[inline]
    fn at(&self, index: u32) -> Option<*mut u8> {
        if index >= self.entries {
            return None;
        }
        self.pages.at(u64::from(index) * CQE_BYTES)
    }
}
