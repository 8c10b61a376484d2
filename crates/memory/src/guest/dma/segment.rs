//! Pieces of host memory, translated.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Need, Region};
use crate::guest::address::Iova;
use crate::guest::host::Buffer;
use crate::sync::order;

/// The bytes of a piece that [`Segment::compare`] looks at in one go.
const COMPARE_PIECE: usize = 1024;

/// A contiguous range of host memory within one region. It lives as long as the view that
/// translated it, or forever if it is [`Segment::sink`].
///
/// The host, or other guests' devices, may change the bytes at any moment, also during a copy. That
/// race cannot be prevented and is the host's own: a copy then holds some mixture of old and new
/// bytes. It is tolerated in exactly one way: bytes move by plain memory copies between raw
/// pointers, never through a reference, and no decision depends on reading host memory twice.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'v> {
    /// Its `base` is not null.
    pub(super) region: &'v Region,
    /// From the region's first byte; `offset + len <= region.len`.
    offset: u64,
    len: u32,
    /// Translated for writing, so that the mapping is writable.
    writable: bool,
}

impl<'v> Segment<'v> {
    /// At most `len` bytes from `offset`, which lies inside the region; fewer at its end. The
    /// region has memory and allows `need`.
    #[inline]
    pub(super) fn new(region: &'v Region, offset: u64, len: u32, need: Need) -> Self {
        debug_assert!(!region.base.is_null() && offset < region.len);
        let room = region.len - offset;
        let len = if room < u64::from(len) {
            room as u32
        } else {
            len
        };
        Segment {
            region,
            offset,
            len,
            writable: need == Need::DeviceWrites,
        }
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether its length is 0.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of the memory it lies in ([`crate::Lent::id`]); 0 for the sink.
    #[inline]
    pub fn lent_id(&self) -> u64 {
        self.region.id
    }

    /// Offset of its first byte in that memory.
    #[inline]
    pub fn lent_offset(&self) -> u64 {
        self.offset
    }

    /// The host's address of the first byte.
    #[inline]
    pub fn iova(&self) -> Iova {
        Iova(self.region.iova.0 + self.offset)
    }

    /// Copies `bytes` into host memory, from the segment's byte `at` on.
    ///
    /// # Panics
    /// If they do not fit, or the segment was translated for reading.
    #[inline]
    pub fn write_from(&self, at: u32, bytes: &[u8]) {
        self.assert_writable();
        let to = self.at(at, bytes.len());
        // SAFETY: `at` has checked that the destination lies in the region's mapping, and the line
        // before that it is writable. Our own `bytes` cannot overlap a client's mapping. The host
        // may access the destination meanwhile: see the type's documentation.
        unsafe { bytes.as_ptr().copy_to_nonoverlapping(to, bytes.len()) }
        self.written(at, bytes.len());
    }

    /// Copies host memory into `bytes`, from the segment's byte `at` on.
    ///
    /// # Panics
    /// If the segment has fewer bytes.
    #[inline]
    pub fn read_into(&self, at: u32, bytes: &mut [u8]) {
        let from = self.at(at, bytes.len());
        // SAFETY: `at` has checked that the source lies in the region's mapping. Our own `bytes`
        // cannot overlap a client's mapping. The host may write the source meanwhile: see the
        // type's documentation.
        unsafe {
            bytes
                .as_mut_ptr()
                .copy_from_nonoverlapping(from, bytes.len())
        }
    }

    /// Asks for the cache line of its first byte.
    #[inline]
    pub fn prefetch(&self) {
        order::prefetch(self.region.base.wrapping_add(self.offset as usize));
    }

    /// Asks for the cache line of its first byte, to which a store will come.
    #[inline]
    pub fn prefetch_to_write(&self) {
        order::prefetch_to_write(self.region.base.wrapping_add(self.offset as usize));
    }

    /// Copies `len` bytes of `buffer` from its byte `from` on into host memory, from the segment's
    /// byte `at` on.
    ///
    /// # Panics
    /// If one of them has fewer bytes, or the segment was translated for reading.
    pub fn write_from_buffer(&self, at: u32, buffer: &Buffer, from: usize, len: usize) {
        self.assert_writable();
        let (to, from) = (self.at(at, len), buffer.at(from, len));
        // SAFETY: both ranges were checked to lie in their mappings, and the line before says that
        // ours is writable. A buffer's memory may be a segment's of a view of its own file, so the
        // copy is one that may overlap. Others that have the memory may access it meanwhile: see
        // the types' documentation.
        unsafe { from.copy_to(to, len) }
        self.written(at, len);
    }

    /// Copies `len` bytes of host memory, from the segment's byte `at` on, to `buffer` from its
    /// byte `to` on.
    ///
    /// # Panics
    /// If one of them has fewer bytes.
    pub fn read_into_buffer(&self, at: u32, buffer: &Buffer, to: usize, len: usize) {
        let (from, to_bytes) = (self.at(at, len), buffer.at(to, len));
        // SAFETY: as for `write_from_buffer`; a buffer's memory is always writable.
        unsafe { from.copy_to(to_bytes, len) }
        buffer.written(to, len);
    }

    /// Some of the segment's words, which are little-endian in memory. Each is loaded once, when
    /// the iterator gets there.
    ///
    /// # Panics
    /// If they do not begin at a multiple of 8 in the host's address space, or the segment does not
    /// have so many.
    #[inline]
    pub fn words(&self, range: Range<u32>) -> impl Iterator<Item = u64> {
        let count = (range.end - range.start) as usize;
        let first = self.at(range.start * 8, count * 8).cast::<u64>();
        assert!(first.is_aligned(), "aligned words");
        (0..count).map(move |index| {
            // SAFETY: `at` has checked that the words lie in the region's mapping, which the view
            // keeps, and they are aligned. The host may store them meanwhile, which atomic loads
            // are there for.
            let word = unsafe { AtomicU64::from_ptr(first.add(index)) };
            u64::from_le(word.load(Ordering::Relaxed))
        })
    }

    /// Whether host memory from the segment's byte `at` on equals `bytes`. Each byte is read once.
    ///
    /// # Panics
    /// If the segment has fewer bytes.
    pub fn compare(&self, at: u32, bytes: &[u8]) -> bool {
        let mut from = self.at(at, bytes.len()).cast_const();
        let mut copy = [0u8; COMPARE_PIECE];
        for piece in bytes.chunks(COMPARE_PIECE) {
            // SAFETY: the pieces together are the `bytes.len()` bytes that `at` has checked; `copy`
            // holds one piece and is ours. The host may write the source meanwhile, which is why a
            // copy is compared.
            unsafe {
                copy.as_mut_ptr()
                    .copy_from_nonoverlapping(from, piece.len());
                from = from.add(piece.len());
            }
            if copy[..piece.len()] != *piece {
                return false;
            }
        }
        true
    }

    /// Fills host memory with zeros.
    ///
    /// # Panics
    /// If the segment was translated for reading.
    #[inline]
    pub fn zero(&self) {
        self.assert_writable();
        let to = self.at(0, self.len as usize);
        // SAFETY: as for `write_from`.
        unsafe { to.write_bytes(0, self.len as usize) }
        self.written(0, self.len as usize);
    }

    /// `len` of its bytes, from byte `at` on.
    ///
    /// # Panics
    /// If the segment has fewer bytes.
    #[inline]
    #[must_use]
    pub fn part(&self, at: u32, len: u32) -> Segment<'v> {
        let fits = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {at} of a segment of {}", self.len);
        Segment {
            offset: self.offset + u64::from(at),
            len,
            ..*self
        }
    }

    /// Joins two segments if `next` continues in the same region at the end of `self`; otherwise
    /// returns both.
    ///
    /// # Errors
    /// The two segments, unchanged: they are not adjacent, or too long for one.
    #[inline]
    pub fn merge(self, next: Segment<'v>) -> Result<Segment<'v>, (Segment<'v>, Segment<'v>)> {
        let adjacent = std::ptr::eq(self.region, next.region)
            && self.offset + u64::from(self.len) == next.offset
            && self.writable == next.writable;
        match self.len.checked_add(next.len) {
            Some(len) if adjacent => Ok(Segment { len, ..self }),
            _ => Err((self, next)),
        }
    }

    /// Logs `len` bytes from the segment's byte `at` on, which have just been written. With no log
    /// it is one branch.
    #[inline]
    pub(crate) fn written(&self, at: u32, len: usize) {
        if self.region.log.is_some() {
            self.mark(at, len);
        }
    }

    #[cold]
    fn mark(&self, at: u32, len: usize) {
        if let Some(log) = &self.region.log {
            log.mark(Iova(self.iova().0 + u64::from(at)), len as u64);
        }
    }

    /// The bytes to mark in the log of its view ([`DmaView::log`](super::DmaView::log)) when a
    /// write to [`Self::as_raw`] has ended: address and length. Length 0 where it was translated
    /// for reading, or is the sink.
    #[inline]
    #[must_use]
    pub fn to_mark(&self) -> (Iova, u32) {
        let marks = self.writable && !self.is_sink();
        (self.iova(), if marks { self.len } else { 0 })
    }

    /// The address and the length for a system call that does its own I/O. Valid while the view is
    /// alive; the call may only access the bytes as the segment was translated for. Code that
    /// writes through it marks [`Self::to_mark`] afterwards.
    #[inline]
    pub fn as_raw(&self) -> (*mut u8, usize) {
        (self.at(0, 0), self.len as usize)
    }

    /// # Panics
    /// If the segment was translated for reading.
    #[inline]
    pub(crate) fn assert_writable(&self) {
        assert!(self.writable, "the segment was translated for reading");
    }

    /// The address of the segment's byte `at`.
    #[inline]
    fn at(&self, at: u32, len: usize) -> *mut u8 {
        let fits = (at as usize)
            .checked_add(len)
            .is_some_and(|end| end <= self.len as usize);
        assert!(fits, "{len} bytes at {at} of a segment of {}", self.len);
        // SAFETY: offset + at <= region.len, and the region's `len` bytes at `base` lie in its
        // mapping; a region's length in memory fits a usize, as its mapping's does.
        unsafe { self.region.base.add(self.offset as usize + at as usize) }
    }
}
