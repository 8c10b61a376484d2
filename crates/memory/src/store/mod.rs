//! The bytes of the RAM medium.
//!
//! Sparse: a page exists once it is written. Pages are huge ones where the system has them, because
//! a copy from a random address otherwise spends much of its time on address translation
//! ([`StorePages`]). Several reactors copy at the same time and use claims to keep copies that
//! share bytes apart ([`crate::sync::claims`]). No reference to the bytes is ever created, so a
//! race could only produce a mixture of old and new bytes.

pub mod allocated;
pub mod pieces;
mod stream;
mod ways;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Instant;
use std::{io, ptr};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::Advice;

use crate::guest::dma::Segment;
use crate::numa;
use crate::own::huge::HUGE_PAGE_LEN;
use crate::own::map::OwnMap;
use crate::store::pieces::Pieces;
use crate::store::ways::Ways;
use crate::sync::order;

/// Bytes of a usual page.
const PAGE_LEN: usize = 4096;
/// Bytes compared at once.
const COMPARE_LEN: usize = 512;
/// Bytes of one range that are prefetched. The processor prefetches the rest by itself while the
/// first are copied.
const EXPECTED_LEN: u64 = 4096;
/// Prefetches every eighth cache line: the processor fetches the others of a page by itself.
/// Prefetching all of them takes longer than it saves.
const PREFETCH_STEP: usize = 512;

/// The page type of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StorePages {
    /// Huge ones that an operator has set aside. All of them are taken at once.
    Reserved,
    /// Huge ones, as far as the system has some when they are first written.
    HugeAsWritten,
    /// Huge ones that are put together from usual ones once those are used: the system gives huge
    /// ones to private memory that asks, but none to a memfd.
    HugeOnceUsed,
    /// Usual ones: the system gives no others to who does not ask for each.
    Usual,
}

/// A run of bytes, all zero at first.
#[derive(Debug)]
pub struct Store {
    map: OwnMap,
    pages: StorePages,
    /// The file that the bytes are in, where another process may go on with them.
    file: Option<OwnedFd>,
    /// How long ranges are copied out.
    ways: Ways,
}

impl Store {
    /// A store of `len` bytes.
    ///
    /// # Errors
    /// What the system says: mostly that there is no room for so many addresses.
    pub fn new(len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (map, pages) = private(len)?;
        Ok(Store {
            map,
            pages,
            file: None,
            ways: Ways::default(),
        })
    }

    /// As [`Self::new`], in a memfd with which another process can go on ([`Self::adopt`]).
    ///
    /// # Errors
    /// What the system says.
    pub fn shared(len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (whole, align) = shared_layout(len)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        if align == HUGE_PAGE_LEN
            && let Ok(reserved) = Self::of_memfd(len, whole, align, flags | MemfdFlags::HUGETLB)
        {
            return Ok(Store {
                pages: StorePages::Reserved,
                ..reserved
            });
        }
        Self::of_memfd(len, whole, align, flags)
    }

    fn of_memfd(len: usize, whole: usize, align: usize, flags: MemfdFlags) -> io::Result<Self> {
        let file = rustix::fs::memfd_create("nvmirage-ram", flags)?;
        rustix::fs::ftruncate(&file, whole as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = OwnMap::shared_aligned(&file, whole, align)?;
        Ok(Store {
            pages: shared_pages(&map, align),
            map: map.shortened(len),
            file: Some(file),
            ways: Ways::default(),
        })
    }

    /// The store of `len` bytes that another process has made ([`Self::shared`]), as it is. That
    /// process has ended.
    ///
    /// # Errors
    /// `InvalidInput`: the file has another length, or could be shortened; and the system's.
    pub fn adopt(file: OwnedFd, len: u64) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let (whole, align) = shared_layout(len)?;
        let seals = rustix::fs::fcntl_get_seals(&file)?;
        let is_whole = rustix::fs::fstat(&file)?.st_size as u64 == whole as u64;
        if !is_whole || !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let unit = rustix::fs::fstatfs(&file)?.f_bsize;
        let map = OwnMap::shared_aligned(&file, whole, align)?;
        Ok(Store {
            // hugetlbfs(5) reports the length of its pages as that of a block.
            pages: if unit as usize == HUGE_PAGE_LEN {
                StorePages::Reserved
            } else {
                shared_pages(&map, align)
            },
            map: map.shortened(len),
            file: Some(file),
            ways: Ways::default(),
        })
    }

    /// The descriptor with which another process can go on ([`Self::adopt`]); none for private
    /// memory.
    #[must_use]
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// Has memory that is taken from now on come from `node`, as long as that has some: for the
    /// processor that copies.
    ///
    /// # Errors
    /// The system's: it has no such node.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        numa::prefer(&self.map, node)
    }

    /// The nodes of memory that its pages lie on, of some of those that are there: how many on
    /// each.
    ///
    /// # Errors
    /// The system's, mostly that it knows no nodes.
    pub fn nodes(&self) -> io::Result<Vec<(u32, usize)>> {
        let first = NonNull::new(self.map.at(0, 0)).ok_or(io::ErrorKind::InvalidInput)?;
        numa::nodes_of(first, self.map.len())
    }

    /// The pieces that could become huge pages: the first one's address, and their number.
    pub(crate) fn huge_pieces(&self) -> Option<(NonNull<u8>, usize)> {
        let first = NonNull::new(self.map.at(0, 0))?;
        let count = self.map.len() / HUGE_PAGE_LEN;
        let can = matches!(self.pages, StorePages::Usual | StorePages::HugeOnceUsed);
        (can && count > 0).then_some((first, count))
    }

    /// Makes the system allocate a range without changing its bytes, on huge pages if the store is
    /// to be on such ([`StorePages::HugeOnceUsed`]) and the system has some.
    ///
    /// # Errors
    /// The system's: there is no memory, or the kernel is older than 5.14.
    ///
    /// # Panics
    /// If the range does not lie inside the store.
    pub fn populate(&self, offset: u64, len: u64) -> io::Result<()> {
        let fits = |bytes| usize::try_from(bytes).expect("a range of the store fits an address");
        let (offset, len) = (fits(offset), fits(len));
        let start = offset / PAGE_LEN * PAGE_LEN;
        let populate = Advice::LinuxPopulateWrite;
        if self.pages == StorePages::HugeOnceUsed {
            for index in offset.div_ceil(HUGE_PAGE_LEN)..(offset + len) / HUGE_PAGE_LEN {
                // One page first: with all of them, the kernel would copy each. A piece that cannot
                // be put together now stays as it is.
                self.map.advise(index * HUGE_PAGE_LEN, PAGE_LEN, populate)?;
                let _ = Pieces::collapse(self, index);
            }
        }
        self.map.advise(start, offset + len - start, populate)
    }

    /// Its page type.
    #[must_use]
    pub fn pages(&self) -> StorePages {
        self.pages
    }

    /// The unit in which memory is freed.
    fn page_len(&self) -> usize {
        match self.pages {
            // The system cannot take back a part of such a page, and would say that it has.
            StorePages::Reserved => HUGE_PAGE_LEN,
            StorePages::HugeAsWritten | StorePages::HugeOnceUsed | StorePages::Usual => PAGE_LEN,
        }
    }

    /// Bytes it holds.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether it holds no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.len() == 0
    }

    /// The address of a range.
    ///
    /// # Panics
    /// If the range does not lie inside: the caller has checked it.
    #[inline]
    fn at(&self, offset: u64, len: usize) -> *mut u8 {
        let offset = usize::try_from(offset).expect("an offset inside the store fits an address");
        self.map.at(offset, len)
    }

    /// Prefetches bytes, or only the first ones of a long range. A range outside the store is not
    /// an error.
    #[inline]
    pub fn prefetch(&self, offset: u64, len: u64) {
        let len = len.min(EXPECTED_LEN);
        if offset >= self.len() || len > self.len() - offset {
            return;
        }
        let first = self.at(offset, len as usize);
        for at in (0..len as usize).step_by(PREFETCH_STEP) {
            order::prefetch(first.wrapping_add(at));
        }
    }

    /// Copies from the store into host memory.
    ///
    /// # Panics
    /// If the range does not lie inside the store, or the segment was translated for reading.
    #[inline]
    pub fn copy_to(&self, offset: u64, segment: &Segment<'_>) {
        segment.assert_writable();
        let (host, len) = segment.as_raw();
        let ours = self.at(offset, len);
        if len >= stream::PARTS_MIN && self.map.len() >= stream::STORE_MIN {
            self.copy_long(ours, host, len);
        } else {
            // SAFETY: both ranges are mapped for as long as `self` and the segment's view live, and
            // they are different mappings. Host and other reactors may write meanwhile: the copy is
            // of bytes, any mixture is a valid result.
            unsafe { ptr::copy_nonoverlapping(ours, host, len) };
        }
        segment.written(0, len);
    }

    /// Copies a long range as [`Self::copy_to`] does, which has checked it.
    // The time of a copy only chooses how later ones are made: what they store is the same.
    #[expect(
        clippy::disallowed_methods,
        reason = "it is the machine's time that is wanted"
    )]
    fn copy_long(&self, ours: *const u8, host: *mut u8, len: usize) {
        let (in_parts, is_tried) = self.ways.next();
        let begun = is_tried.then(Instant::now);
        // SAFETY: as in `copy_to`.
        let copied = in_parts && unsafe { stream::copy_in_parts(ours, host, len) };
        if !copied {
            // SAFETY: as in `copy_to`.
            unsafe { ptr::copy_nonoverlapping(ours, host, len) };
        }
        if let Some(begun) = begun {
            self.ways.note(copied, len, begun.elapsed());
        }
    }

    /// Copies from host memory into the store.
    ///
    /// # Panics
    /// If the range does not lie inside the store.
    #[inline]
    pub fn copy_from(&self, offset: u64, segment: &Segment<'_>) {
        let (host, len) = segment.as_raw();
        let ours = self.at(offset, len);
        if len >= stream::STREAM_MIN && self.map.len() >= stream::STORE_MIN {
            // SAFETY: as in `copy_to`.
            let copied = unsafe { stream::copy(host, ours, len) };
            if copied {
                return;
            }
        }
        // SAFETY: as in `copy_to`.
        unsafe { ptr::copy_nonoverlapping(host, ours, len) };
    }

    /// Whether the store holds the same bytes as host memory.
    ///
    /// # Panics
    /// If the range does not lie inside the store.
    #[must_use]
    pub fn compare(&self, offset: u64, segment: &Segment<'_>) -> bool {
        let (_, len) = segment.as_raw();
        let mut ours = [0; COMPARE_LEN];
        let mut theirs = [0; COMPARE_LEN];
        (0..len).step_by(COMPARE_LEN).all(|at| {
            let part = COMPARE_LEN.min(len - at);
            self.read_bytes(offset + at as u64, &mut ours[..part]);
            let at = u32::try_from(at).expect("a segment's length fits 32 bits");
            segment.read_into(at, &mut theirs[..part]);
            ours[..part] == theirs[..part]
        })
    }

    /// Makes a range read as zeros. With `deallocate`, whole pages are returned to the system.
    ///
    /// # Panics
    /// If the range does not lie inside the store.
    pub fn zero(&self, offset: u64, len: u64, deallocate: bool) {
        let len = usize::try_from(len).expect("a length inside the store fits an address");
        let start = usize::try_from(offset).expect("an offset inside the store fits an address");
        let first = self.at(offset, len);
        let end = start + len;
        let page = self.page_len();
        let pages = start.next_multiple_of(page)..end / page * page;
        let give_back = || match self.file {
            Some(_) => self.map.remove(pages.start, pages.len()),
            None => self.map.discard(pages.start, pages.len()),
        };
        let given_back = deallocate && !pages.is_empty() && give_back().is_ok();
        if given_back {
            self.fill_zero(start, pages.start - start);
            self.fill_zero(pages.end, end - pages.end);
        } else {
            // SAFETY: the range lies inside the store, as `at` has checked; racing copies see any
            // mixture.
            unsafe { ptr::write_bytes(first, 0, len) };
        }
    }

    fn fill_zero(&self, at: usize, len: usize) {
        // SAFETY: the range lies inside the store; racing copies see any mixture.
        unsafe { ptr::write_bytes(self.map.at(at, len), 0, len) };
    }

    /// Copies from the store into `bytes`.
    ///
    /// # Panics
    /// If the range does not lie inside the store.
    pub fn read_bytes(&self, offset: u64, bytes: &mut [u8]) {
        let ours = self.at(offset, bytes.len());
        // SAFETY: the range lies inside the store, and `bytes` is not part of it.
        unsafe { ptr::copy_nonoverlapping(ours, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies `bytes` into the store.
    ///
    /// # Panics
    /// If the range does not lie inside the store.
    pub fn write_bytes(&self, offset: u64, bytes: &[u8]) {
        let ours = self.at(offset, bytes.len());
        // SAFETY: as in `read_bytes`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), ours, bytes.len()) };
    }
}

/// Length of the memfd of a store of `len` bytes, and the alignment of its mapping.
fn shared_layout(len: usize) -> io::Result<(usize, usize)> {
    let align = if len < HUGE_PAGE_LEN {
        PAGE_LEN
    } else {
        HUGE_PAGE_LEN
    };
    let whole = len.max(1).checked_next_multiple_of(align);
    Ok((whole.ok_or(io::ErrorKind::OutOfMemory)?, align))
}

/// The page type of a memfd's mapping with that alignment, for which it asks.
fn shared_pages(map: &OwnMap, align: usize) -> StorePages {
    // An error is a kernel without huge pages.
    let asked = align == HUGE_PAGE_LEN && map.advise(0, map.len(), Advice::LinuxHugepage).is_ok();
    if !asked || !gives_where_asked("enabled") {
        StorePages::Usual
    } else if gives_where_asked("shmem_enabled") {
        StorePages::HugeAsWritten
    } else {
        StorePages::HugeOnceUsed
    }
}

/// Private memory of `len` bytes, all zero, on huge pages where there are some, and where `len`
/// would fill one.
///
/// # Errors
/// There is no room for so many addresses.
fn private(len: usize) -> io::Result<(OwnMap, StorePages)> {
    if len < HUGE_PAGE_LEN {
        return Ok((OwnMap::anonymous(len)?, StorePages::Usual));
    }
    let whole = len
        .checked_next_multiple_of(HUGE_PAGE_LEN)
        .ok_or(io::ErrorKind::OutOfMemory)?;
    if let Ok(map) = OwnMap::reserved_huge(whole) {
        return Ok((map.shortened(len), StorePages::Reserved));
    }
    let map = OwnMap::anonymous_aligned(whole, HUGE_PAGE_LEN)?;
    // An error is a kernel without huge pages.
    let asked = map.advise(0, whole, Advice::LinuxHugepage).is_ok();
    let pages = if asked && gives_where_asked("enabled") {
        StorePages::HugeAsWritten
    } else {
        StorePages::Usual
    };
    Ok((map.shortened(len), pages))
}

/// Whether the system gives huge pages to memory that asks for them: private memory by the setting
/// `enabled` (`madvise`, or `always`), a memfd by `shmem_enabled` (`advise`, or more).
fn gives_where_asked(setting: &str) -> bool {
    let chosen = std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{setting}"));
    chosen.is_ok_and(|chosen| !chosen.contains("[never]") && !chosen.contains("[deny]"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::own::huge::tests::huge_kib;

    const LEN: usize = 5 * PAGE_LEN;

    proptest! {
        #[test]
        fn behaves_as_a_vec(steps in prop::collection::vec((0..LEN, 1..LEN, any::<u8>(), 0..3u8), 1..30)) {
            let store = Store::new(LEN as u64).unwrap();
            let mut model = vec![0; LEN];
            for (at, len, byte, step) in steps {
                let len = len.min(LEN - at);
                let model_part = &mut model[at..at + len];
                match step {
                    0 => {
                        store.write_bytes(at as u64, &vec![byte; len]);
                        model_part.fill(byte);
                    }
                    kind => {
                        store.zero(at as u64, len as u64, kind == 1);
                        model_part.fill(0);
                    }
                }
                let mut all = vec![1; LEN];
                store.read_bytes(0, &mut all);
                prop_assert_eq!(&all, &model);
            }
        }
    }

    #[test]
    fn private_memory_lies_on_the_pages_that_it_says() {
        let (map, pages) = private(2 * HUGE_PAGE_LEN - 1).unwrap();
        assert_eq!(map.at(0, 1).addr() % HUGE_PAGE_LEN, 0);
        // SAFETY: the byte lies inside the mapping, which is writable.
        unsafe { map.at(HUGE_PAGE_LEN - 1, 1).write(1) };
        let huge = huge_kib(&map);
        match pages {
            StorePages::Reserved => assert!(huge >= 2048, "{huge}"),
            // A system that is short of memory gives usual ones.
            StorePages::HugeAsWritten => assert!(huge == 0 || huge == 2048, "{huge}"),
            StorePages::HugeOnceUsed | StorePages::Usual => assert_eq!(huge, 0),
        }
        // Memory that would not fill a huge page does not ask for one.
        assert_eq!(private(4096).unwrap().1, StorePages::Usual);
    }

    /// Resident pages of this process, from /proc/self/statm (proc(5)).
    fn resident_pages() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn a_shared_store_continues_in_another_mapping() {
        for len in [1, 4097, HUGE_PAGE_LEN as u64, 2 * HUGE_PAGE_LEN as u64 + 1] {
            let store = Store::shared(len).unwrap();
            assert_eq!(store.len(), len);
            store.write_bytes(len - 1, &[7]);
            let file = store.file().unwrap().try_clone_to_owned().unwrap();
            let pages = store.pages();
            drop(store);
            let other = file.try_clone().unwrap();
            let error = Store::adopt(other, len + HUGE_PAGE_LEN as u64).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            let store = Store::adopt(file, len).unwrap();
            assert_eq!(store.pages(), pages);
            let mut byte = [0];
            store.read_bytes(len - 1, &mut byte);
            assert_eq!(byte, [7]);
            store.zero(0, len, true);
            store.read_bytes(len - 1, &mut byte);
            assert_eq!(byte, [0]);
        }
        assert!(Store::new(4096).unwrap().file().is_none());
        let unsealed = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&unsealed, 4096).unwrap();
        Store::adopt(unsealed, 4096).unwrap_err();
    }

    #[test]
    fn a_shared_store_is_sparse_and_gives_memory_back() {
        const PART: u64 = 64 << 20;
        let store = Store::shared(1 << 40).unwrap();
        let blocks = || rustix::fs::fstat(store.file().unwrap()).unwrap().st_blocks;
        store.write_bytes(1 << 39, &vec![1; PART as usize]);
        assert!(blocks() >= 120_000, "{}", blocks());
        store.zero(1 << 39, PART, true);
        assert!(blocks() < 10_000, "{}", blocks());
    }

    #[test]
    fn a_large_store_is_sparse_and_deallocating_gives_memory_back() {
        const PART: u64 = 64 << 20;
        let store = Store::new(1 << 40).unwrap();
        let before = resident_pages();
        store.write_bytes(1 << 39, &vec![1; PART as usize]);
        let written = resident_pages();
        store.zero(1 << 39, PART, true);
        let after = resident_pages();
        assert!(written > before + 12_000, "{before} {written}");
        assert!(after < written - 8_000, "{written} {after}");
    }

    #[test]
    fn a_range_is_allocated_before_it_is_touched() {
        const PART: u64 = 64 << 20;
        let store = Store::new(1 << 40).unwrap();
        store.write_bytes(1 << 39, b"before");
        let before = resident_pages();
        store.populate(1 << 39, PART).unwrap();
        let after = resident_pages();
        assert!(after > before + 12_000, "{before} {after}");
        let mut bytes = [0; 7];
        store.read_bytes(1 << 39, &mut bytes);
        assert_eq!(&bytes, b"before\0");
    }

    #[test]
    #[should_panic(expected = "bytes at")]
    fn a_range_outside_is_refused() {
        Store::new(4096).unwrap().write_bytes(4095, &[0, 0]);
    }
}
