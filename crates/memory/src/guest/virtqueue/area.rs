//! A range of memory that another process shares, accessed as aligned words.

use std::mem::size_of;
use std::sync::Arc;

use crate::guest::address::Iova;
use crate::guest::dma::{DmaView, Hint, Need, TranslateError};
use crate::guest::mapping::Mapping;
use crate::sync::order::{self, RingWord};

/// Why an area cannot lie where it was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AreaError {
    /// A part of it cannot be reached.
    #[error("{0}")]
    Unreachable(#[from] TranslateError),
    /// It lies in several regions that are not adjacent in this process.
    #[error("it lies in several pieces of shared memory: share the guest's memory as one piece")]
    Scattered,
    /// It does not start at the alignment that it needs.
    #[error("its address is not a multiple of {0}")]
    Misaligned(u32),
    /// A file does not have these bytes, or must not be written.
    #[error("it lies outside of its file, or the file is read-only")]
    OutOfFile,
}

/// Owner of the memory, which keeps an address valid.
#[derive(Debug)]
enum Keeper {
    /// Guest memory: the view that translated it.
    Guest(Arc<DmaView>),
    /// A file.
    File {
        /// Held, not used.
        _mapping: Arc<Mapping>,
    },
}

/// A range of shared memory. See the module.
#[derive(Debug)]
pub struct SharedArea {
    /// Of `len` bytes.
    base: *mut u8,
    len: u32,
    /// Address for the guest; 0 in a file.
    at: Iova,
    need: Need,
    keeper: Keeper,
}

// SAFETY: the address points into a mapping that `keeper` holds, and a DmaView and a Mapping are
// Send and Sync. It is accessed only by the helpers of `order`, which race with the other side at
// any rate.
unsafe impl Send for SharedArea {}
// SAFETY: as above; a shared reference only loads and stores atomics.
unsafe impl Sync for SharedArea {}

impl SharedArea {
    /// The `len` bytes of guest memory at `at`, which is a multiple of `align`.
    ///
    /// # Errors
    /// See [`AreaError`].
    ///
    /// # Panics
    /// If `len` is 0.
    pub fn new(
        view: &Arc<DmaView>,
        at: Iova,
        len: u32,
        align: u32,
        need: Need,
    ) -> Result<Self, AreaError> {
        assert!(len > 0, "an area has bytes");
        if !at.0.is_multiple_of(u64::from(align)) {
            return Err(AreaError::Misaligned(align));
        }
        Ok(SharedArea {
            base: find(view, at, len, need)?,
            len,
            at,
            need,
            keeper: Keeper::Guest(view.clone()),
        })
    }

    /// The `len` bytes of a file from `offset` on, a multiple of 8.
    ///
    /// # Errors
    /// `Misaligned`; `OutOfFile`.
    ///
    /// # Panics
    /// If `len` is 0.
    pub fn in_file(mapping: &Arc<Mapping>, offset: u64, len: u32) -> Result<Self, AreaError> {
        assert!(len > 0, "an area has bytes");
        if !offset.is_multiple_of(8) {
            return Err(AreaError::Misaligned(8));
        }
        let base = mapping.at(offset, len.into());
        let base = base.filter(|_| mapping.is_writable());
        Ok(SharedArea {
            base: base.ok_or(AreaError::OutOfFile)?.as_ptr(),
            len,
            at: Iova(0),
            need: Need::DeviceWrites,
            keeper: Keeper::File {
                _mapping: mapping.clone(),
            },
        })
    }

    /// Finds it again after the map has changed. On an error it stays where it was. An area of a
    /// file does not depend on the map.
    ///
    /// # Errors
    /// See [`AreaError`].
    pub fn resolve(&mut self, view: &Arc<DmaView>) -> Result<(), AreaError> {
        if let Keeper::Guest(kept) = &mut self.keeper {
            self.base = find(view, self.at, self.len, self.need)?;
            *kept = view.clone();
        }
        Ok(())
    }

    /// Bytes; never 0.
    #[expect(clippy::len_without_is_empty, reason = "an area is never empty")]
    #[must_use]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Loads the 8-bit word at byte `at`. Nothing is ordered.
    ///
    /// # Panics
    /// If it does not lie inside.
    #[must_use]
    pub fn load_u8(&self, at: u32) -> u8 {
        self.load(at)
    }

    /// Loads the 16-bit word at byte `at`. Nothing is ordered.
    ///
    /// # Panics
    /// If it does not lie inside, or is not aligned.
    #[must_use]
    pub fn load_u16(&self, at: u32) -> u16 {
        self.load(at)
    }

    /// Loads the 64-bit word at byte `at`. Nothing is ordered.
    ///
    /// # Panics
    /// If it does not lie inside, or is not aligned.
    #[must_use]
    pub fn load_u64(&self, at: u32) -> u64 {
        self.load(at)
    }

    /// Stores an 8-bit word at byte `at`. Every store before it, into any memory that outlives the
    /// process, is there if this one is.
    ///
    /// # Panics
    /// If it does not lie inside, or the area is for reading.
    #[inline]
    pub fn record_u8(&self, at: u32, value: u8) {
        self.record(at, value);
    }

    /// The same, of a 16-bit word.
    ///
    /// # Panics
    /// If it does not lie inside, is not aligned, or the area is for reading.
    #[inline]
    pub fn record_u16(&self, at: u32, value: u16) {
        self.record(at, value);
    }

    /// The same, of a 64-bit word.
    ///
    /// # Panics
    /// If it does not lie inside, is not aligned, or the area is for reading.
    #[inline]
    pub fn record_u64(&self, at: u32, value: u64) {
        self.record(at, value);
    }

    /// A word that the other side stores before another one, or an event suppression.
    #[inline]
    pub(super) fn load<W: RingWord>(&self, at: u32) -> W {
        // SAFETY: `word` gives an aligned word of a mapping that `keeper` holds, which is readable.
        unsafe { order::load_ring(self.word::<W>(at)) }
    }

    /// A word that says whose others are (Acquire).
    #[inline]
    pub(super) fn load_first(&self, at: u32) -> u16 {
        // SAFETY: as in `load`.
        unsafe { order::load_ring_word(self.word::<u16>(at)) }
    }

    #[inline]
    pub(super) fn store<W: RingWord>(&self, at: u32, value: W) {
        self.assert_writable();
        // SAFETY: as in `load`, and writable, by the line before.
        unsafe { order::store_ring(self.word::<W>(at), value) };
        self.stored(at, size_of::<W>());
    }

    /// A word that says whose others are (Release).
    #[inline]
    pub(super) fn store_last(&self, at: u32, value: u16) {
        self.assert_writable();
        // SAFETY: as in `store`.
        unsafe { order::store_ring_word(self.word::<u16>(at), value) };
        self.stored(at, size_of::<u16>());
    }

    /// Asks for the cache line of byte `at`, where it lies inside.
    #[inline]
    pub(super) fn prefetch(&self, at: u32) {
        if at < self.len {
            order::prefetch(self.base.wrapping_add(at as usize));
        }
    }

    /// The same, for a store to it.
    #[inline]
    pub(super) fn prefetch_to_write(&self, at: u32) {
        if at < self.len {
            order::prefetch_to_write(self.base.wrapping_add(at as usize));
        }
    }

    #[inline]
    fn record<W: RingWord>(&self, at: u32, value: W) {
        self.assert_writable();
        // SAFETY: as in `store`.
        unsafe { order::store_record(self.word::<W>(at), value) };
        self.stored(at, size_of::<W>());
    }

    /// Logs a store. For tests, the process may die behind it.
    #[inline]
    fn stored(&self, at: u32, len: usize) {
        if let Keeper::Guest(view) = &self.keeper
            && let Some(log) = view.log()
        {
            log.mark(Iova(self.at.0 + u64::from(at)), len as u64);
        }
        #[cfg(feature = "crash")]
        crate::own::crash::point();
    }

    #[inline]
    fn assert_writable(&self) {
        assert!(self.need == Need::DeviceWrites, "an area for reading");
    }

    /// The address of the word at byte `at`.
    #[inline]
    fn word<W>(&self, at: u32) -> *mut W {
        let fits = at as usize + size_of::<W>() <= self.len as usize;
        assert!(fits, "a word at {at} of an area of {}", self.len);
        let word = self.base.wrapping_add(at as usize).cast::<W>();
        assert!(word.addr().is_multiple_of(size_of::<W>()), "aligned words");
        word
    }
}

/// The address here of `len` bytes of guest memory.
fn find(view: &DmaView, at: Iova, len: u32, need: Need) -> Result<*mut u8, AreaError> {
    let mut hint = Hint::default();
    let (base, first) = view.translate(&mut hint, at, len, need)?.as_raw();
    let mut found = first as u32;
    while found < len {
        // It does not wrap: the first translation has checked the whole range.
        let next = Iova(at.0 + u64::from(found));
        let (start, more) = view.translate(&mut hint, next, len - found, need)?.as_raw();
        if start != base.wrapping_add(found as usize) {
            return Err(AreaError::Scattered);
        }
        found += more as u32;
    }
    Ok(base)
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;

    use super::*;
    use crate::guest::dma::{Access, DmaMap};
    use crate::guest::mapping::ClientMappings;

    fn file(len: u64) -> Arc<Mapping> {
        let fd = rustix::fs::memfd_create("area", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, len).unwrap();
        ClientMappings::new().map(fd).unwrap()
    }

    #[test]
    fn a_file_need_not_be_whole_pages() {
        let mapping = file(4000);
        let area = SharedArea::in_file(&mapping, 3968, 32).unwrap();
        area.record_u64(24, 0x0102_0304_0506_0708);
        area.record_u16(2, 9);
        area.record_u8(1, 5);
        assert_eq!(
            (area.load_u64(24), area.load_u16(26)),
            (0x0102_0304_0506_0708, 0x0506)
        );
        assert_eq!(
            (area.load_u64(0), area.load_u8(1), area.len()),
            (0x9_0500, 5, 32)
        );
        let refused = |offset, len| SharedArea::in_file(&mapping, offset, len).unwrap_err();
        assert_eq!(refused(3968, 33), AreaError::OutOfFile);
        assert_eq!(refused(u64::MAX - 7, 8), AreaError::OutOfFile);
        assert_eq!(refused(4, 8), AreaError::Misaligned(8));
    }

    #[test]
    #[should_panic(expected = "a word at 25 of an area of 32")]
    fn a_word_lies_inside() {
        let area = SharedArea::in_file(&file(32), 0, 32).unwrap();
        let _ = area.load_u64(25);
    }

    #[test]
    #[should_panic(expected = "aligned words")]
    fn a_word_is_aligned() {
        let area = SharedArea::in_file(&file(32), 0, 32).unwrap();
        let _ = area.load_u64(4);
    }

    #[test]
    #[should_panic(expected = "an area for reading")]
    fn an_area_for_reading_is_not_written() {
        let mut map = DmaMap::new(1);
        let access = Access::READ;
        map.map(Iova(0), 4096, access, Some((file(4096), 0)))
            .unwrap();
        let view = map.view();
        let refused = SharedArea::new(&view, Iova(0), 8, 4, Need::DeviceWrites);
        assert_eq!(
            refused.unwrap_err(),
            AreaError::Unreachable(TranslateError::Denied)
        );
        let area = SharedArea::new(&view, Iova(0), 8, 4, Need::DeviceReads).unwrap();
        area.record_u8(0, 1);
    }
    /// Two regions are one area where they are adjacent here, too.
    #[test]
    fn an_area_is_one_range_here() {
        let mapping = file(3 * 4096);
        for (second, expected) in [(4096, None), (8192, Some(AreaError::Scattered))] {
            let mut map = DmaMap::new(2);
            for (at, offset) in [(0, 0), (4096, second)] {
                let backing = Some((mapping.clone(), offset));
                map.map(Iova(at), 4096, Access::READ_WRITE, backing)
                    .unwrap();
            }
            let area = SharedArea::new(&map.view(), Iova(4088), 16, 8, Need::DeviceWrites);
            assert_eq!(area.err(), expected);
        }
    }

    #[test]
    fn stores_are_logged() {
        let mut map = DmaMap::new(1);
        let backing = Some((file(8192), 0));
        map.map(Iova(0), 8192, Access::READ_WRITE, backing).unwrap();
        map.start_log(&[]).unwrap();
        let area = SharedArea::new(&map.view(), Iova(4094), 4, 2, Need::DeviceWrites).unwrap();
        let marked = || {
            let mut pages = [0];
            let log = map.log().unwrap();
            log.take(Iova(0), 8192, 4096, &mut pages).unwrap();
            pages[0]
        };
        area.store(0, 1u16);
        assert_eq!(marked(), 1);
        area.store_last(2, 1);
        assert_eq!(marked(), 2);
        let _ = area.load_u16(0);
        assert_eq!(marked(), 0);
    }
}
