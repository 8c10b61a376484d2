//! The log of written pages: which pages of a host's memory a device has written since it was asked
//! last.
//!
//! A client that moves a VM copies its memory while the device works, and copies the pages of each
//! report again. So no page may be missing from the report that follows a write's end:
//! - **The bytes first, then the bit.** A page is marked when its write has ended. A bit that is
//!   set before could be reported, and the page copied, before the bytes are there.
//! - **Always with a read-modify-write.** A mark that is left out because the bit is set already
//!   could be a load that passes the store of the bytes, and the bit may be reported in between.
//!
//! Release in [`WrittenLog::mark`] and Acquire in [`WrittenLog::take`] pair: the bytes of each
//! reported write are there when the report is.
//!
//! Everything that writes passes one of these places: [`Segment`](crate::Segment) and
//! [`Store`](crate::Store) for copies, [`CqRing`](crate::CqRing),
//! [`ShadowDoorbells`](crate::ShadowDoorbells), and a medium that gives a segment's address to the
//! kernel ([`Segment::as_raw`](crate::Segment::as_raw)), which marks when the kernel has ended.
//!
//! A log belongs to the views from its start to its end. A command that has a view from before
//! writes without a mark, so a start is over when no such command is in flight.
//!
//! Not included: writes of a device with its own access to the memory, as a drive has, and those of
//! the host's own processors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

use crate::guest::address::Iova;
use crate::guest::mapping::MAX_SESSION_BYTES;
use crate::own::PAGE;
use crate::own::map::OwnMap;

/// Maximum number of ranges of a log. The kernel's VFIO takes 256 at least.
pub const MAX_LOG_RANGES: usize = 1024;
/// Maximum number of bytes that a log covers: as many as a session may map. Its bitmap has 512 MiB
/// of address space then; the system allocates what is marked.
pub const MAX_LOG_BYTES: u64 = MAX_SESSION_BYTES;

const BITS: u64 = u64::BITS as u64;

/// Why a log is refused, or a report.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A log is kept already.
    #[error("written pages are logged already: stop that log first")]
    Started,
    /// No log is kept.
    #[error("no written pages are logged: start a log, and copy all memory")]
    Off,
    /// More ranges than [`MAX_LOG_RANGES`].
    #[error("the log has more than {MAX_LOG_RANGES} ranges: join some")]
    TooMany,
    /// More bytes than [`MAX_LOG_BYTES`].
    #[error("the ranges have more than {MAX_LOG_BYTES} bytes: give those of memory alone")]
    TooLarge,
    /// A range of no bytes.
    #[error("a range is empty: give a length of at least one page")]
    Empty,
    /// An address or a length that is not a multiple of 4 KiB.
    #[error("addresses and lengths must be multiples of {PAGE} bytes")]
    Misaligned,
    /// A range ends behind the last address.
    #[error("a range ends past the 64-bit address space")]
    Wraps,
    /// Two ranges have a page in common.
    #[error("two ranges overlap: give each page once")]
    Overlaps,
    /// A report about a page that is not logged.
    #[error("the range is not logged: report ranges of the log alone")]
    Outside,
    /// There is no memory for the bitmap.
    #[error("cannot allocate the bitmap: {0}")]
    System(#[from] io::Error),
}

/// Pages in a row.
#[derive(Clone, Copy, Debug)]
struct Range {
    /// Numbers of pages: addresses in units of [`PAGE`].
    first: u64,
    last: u64,
    /// The first word of its bits.
    word: usize,
}

/// A bit for each page of some ranges.
pub struct WrittenLog {
    /// Ascending; none overlaps or touches another.
    ranges: Box<[Range]>,
    words: OwnMap,
}

impl WrittenLog {
    /// A log of these ranges, in any order, with no page marked.
    ///
    /// # Errors
    /// See [`LogError`].
    pub fn new(ranges: &[(Iova, u64)]) -> Result<Self, LogError> {
        if ranges.len() > MAX_LOG_RANGES {
            return Err(LogError::TooMany);
        }
        Self::of(ranges.to_vec())
    }

    /// The same, without a limit of their number.
    pub(crate) fn of(mut ranges: Vec<(Iova, u64)>) -> Result<Self, LogError> {
        ranges.sort_unstable();
        let mut joined: Vec<Range> = Vec::new();
        let mut bytes = 0u64;
        for (iova, len) in ranges {
            let (first, last) = pages_of(iova, len)?;
            bytes = bytes.checked_add(len).ok_or(LogError::TooLarge)?;
            match joined.last_mut() {
                Some(before) if before.last >= first => return Err(LogError::Overlaps),
                Some(before) if before.last + 1 == first => before.last = last,
                _ => joined.push(Range {
                    first,
                    last,
                    word: 0,
                }),
            }
        }
        if bytes > MAX_LOG_BYTES {
            return Err(LogError::TooLarge);
        }
        let mut words = 0;
        for range in &mut joined {
            range.word = words;
            words += ((range.last - range.first) / BITS + 1) as usize;
        }
        Ok(WrittenLog {
            ranges: joined.into(),
            words: OwnMap::anonymous(words.max(1) * size_of::<u64>())?,
        })
    }

    /// The `len` bytes at `at` have been written. Pages outside the ranges are not logged.
    ///
    /// Call it when the bytes are there: see the module's documentation.
    #[inline]
    pub fn mark(&self, at: Iova, len: u64) {
        if len > 0 {
            self.mark_pages(at.0 / PAGE, at.0.saturating_add(len - 1) / PAGE);
        }
    }

    #[inline(never)]
    fn mark_pages(&self, first: u64, last: u64) {
        let begin = self.ranges.partition_point(|range| range.last < first);
        for range in &self.ranges[begin..] {
            if range.first > last {
                break;
            }
            let (first, last) = (first.max(range.first), last.min(range.last));
            for (word, mask) in masks(first - range.first, last - range.first) {
                self.word(range.word + word)
                    .fetch_or(mask, Ordering::Release);
            }
        }
    }

    /// Reports and forgets the marks of a range: a bit of `out` for each `unit` bytes, the lowest
    /// bit of the first word for those at `at`. `unit` is a power of two of at least a page, and
    /// `at` and `len` are multiples of it.
    ///
    /// # Errors
    /// `Empty`, `Misaligned`, `Wraps`, `Outside`; nothing is forgotten then.
    ///
    /// # Panics
    /// If `out` has fewer bits.
    pub fn take(&self, at: Iova, len: u64, unit: u64, out: &mut [u64]) -> Result<(), LogError> {
        let (first, last) = pages_of(at, len)?;
        let index = self.ranges.partition_point(|range| range.last < first);
        let range = self.ranges.get(index);
        let inside = range.filter(|range| range.first <= first && last <= range.last);
        let range = inside.ok_or(LogError::Outside)?;
        let (first, last) = (first - range.first, last - range.first);
        for (word, mask) in masks(first, last) {
            let cell = self.word(range.word + word);
            // A mark that this load does not see is not ordered before the report: the next one
            // has it. Pages of the bitmap without marks stay unallocated.
            if cell.load(Ordering::Relaxed) & mask == 0 {
                continue;
            }
            let mut bits = cell.fetch_and(!mask, Ordering::Acquire) & mask;
            while bits != 0 {
                let page = word as u64 * BITS + u64::from(bits.trailing_zeros()) - first;
                let bit = page / (unit / PAGE);
                out[(bit / BITS) as usize] |= 1 << (bit % BITS);
                bits &= bits - 1;
            }
        }
        Ok(())
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        let at = self.words.at(index * size_of::<u64>(), size_of::<u64>());
        // SAFETY: `at` gives an address inside the mapping, which lives as long as `self` and is
        // aligned to a page, so that each eighth byte is aligned; the bytes are zeros at first, and
        // accessed as atomics only.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }
}

impl fmt::Debug for WrittenLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WrittenLog")
            .field("ranges", &self.ranges.len())
            .finish_non_exhaustive()
    }
}

/// The numbers of the first and the last page of a range.
fn pages_of(at: Iova, len: u64) -> Result<(u64, u64), LogError> {
    if len == 0 {
        return Err(LogError::Empty);
    }
    if at.page_offset() != 0 || !len.is_multiple_of(PAGE) {
        return Err(LogError::Misaligned);
    }
    let last = at.checked_add(len - 1).ok_or(LogError::Wraps)?;
    Ok((at.0 / PAGE, last.0 / PAGE))
}

/// The words that hold the bits from `first` to `last`, both included, and which bits of each.
fn masks(first: u64, last: u64) -> impl Iterator<Item = (usize, u64)> {
    (first / BITS..=last / BITS).map(move |word| {
        let low = first.saturating_sub(word * BITS);
        let high = (last - word * BITS).min(BITS - 1);
        (
            word as usize,
            (u64::MAX >> (BITS - 1 - high)) & (u64::MAX << low),
        )
    })
}

#[cfg(test)]
mod tests;
