//! Physical Region Pages: from the addresses in a command to segments of the host's memory (Base 2.1, 4.3.1).
//!
//! Invariants:
//! - Each list entry is read once, and only the value read is checked and used: a host that changes a list meanwhile
//!   gains nothing.
//! - The walk is bounded by the length: a list page holds at least 511 data entries where another follows it, except
//!   the first, which may start at its page's last entry. A list that points to itself runs out of length.
//! - Consecutive pages become one segment.
//!
//! It does NOT check the length against MDTS (the caller does), and it moves no data.

use arrayvec::ArrayVec;
use memory::{DmaView, Hint, Iova, Near, Need, Segment};
use nvme_spec::Status;
use nvme_spec::prp::{
    LIST_ALIGNMENT_MASK, OFFSET_ALIGNMENT_MASK, PAGE_SIZE, list_entries, page_offset,
};

/// Most bytes of one walk.
pub const MAX_TRANSFER: u32 = 4 << 20;

/// Most segments of one command: a transfer of [`MAX_TRANSFER`] that starts inside a page, every page apart, which are
/// 1025; and as many again as an SGL of 256 descriptors has when none of them starts at a page.
pub const MAX_SEGMENTS: usize = 1280;

const PAGE: u32 = PAGE_SIZE as u32;

/// List entries copied from the host at a time.
const ENTRIES_AT_A_TIME: usize = 64;

/// Where a command's data is, in order.
pub type Segments<'v> = ArrayVec<Segment<'v>, MAX_SEGMENTS>;

/// Finds the `len` bytes that `prp1` and `prp2` describe, and leaves them in `out` (emptied first).
///
/// # Errors
/// - PRP Offset Invalid: a first entry that is not dword aligned, a list pointer that is not qword aligned, or an
///   offset anywhere else.
/// - Data Transfer Error: memory that is not mapped, that the device may not access as it `need`s to, or that came
///   without a descriptor.
/// - Invalid Field in Command: longer than [`MAX_TRANSFER`].
#[inline]
pub fn walk<'v>(
    view: &'v DmaView,
    hint: &mut Hint,
    prp1: u64,
    prp2: u64,
    len: u32,
    need: Need,
    out: &mut Segments<'v>,
) -> Result<(), Status> {
    out.clear();
    if prp1 & OFFSET_ALIGNMENT_MASK != 0 {
        return Err(Status::PRP_OFFSET_INVALID);
    }
    let mut walk = Walk {
        view,
        hint,
        need,
        out,
    };
    let first = PAGE - page_offset(prp1) as u32;
    if len <= first {
        return walk.push(Run { start: prp1, len });
    }
    let run = Run {
        start: prp1,
        len: first,
    };
    let rest = len - first;
    if len > MAX_TRANSFER {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    if rest > PAGE {
        return walk.list(run, prp2, rest);
    }
    let run = walk.page(run, prp2, rest)?;
    walk.push(run)
}

/// Finds the same bytes where they are one run within the region that was `near` the last time: in one page, or in two
/// that follow each other. `None` says nothing of them: [`walk`] does.
#[inline]
#[must_use]
pub fn straight<'v>(
    near: &Near<'v>,
    [prp1, prp2]: [u64; 2],
    len: u32,
    need: Need,
) -> Option<Segment<'v>> {
    let first = PAGE - page_offset(prp1) as u32;
    let follows = len <= first || len <= first + PAGE && prp1.wrapping_add(first.into()) == prp2;
    if prp1 & OFFSET_ALIGNMENT_MASK != 0 || !follows {
        return None;
    }
    near.translate(Iova(prp1), len, need)
}

/// Consecutive bytes of the host's address space that are not translated yet.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    len: u32,
}

struct Walk<'a, 'v> {
    view: &'v DmaView,
    hint: &'a mut Hint,
    need: Need,
    out: &'a mut Segments<'v>,
}

impl Walk<'_, '_> {
    /// Takes a list of more than one entry at `list` for the `rest` bytes behind `run`.
    #[inline(never)]
    fn list(&mut self, mut run: Run, mut list: u64, mut rest: u32) -> Result<(), Status> {
        if list & LIST_ALIGNMENT_MASK != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        loop {
            let here = list_entries(list) as usize;
            let needed = rest.div_ceil(PAGE) as usize;
            if needed <= here {
                (run, _) = self.entries(run, list, needed, false, &mut rest)?;
                return self.push(run);
            }
            // More than the page holds: its last entry points to the next page of the list, and like every entry of a
            // list has no offset.
            let next;
            (run, next) = self.entries(run, list, here - 1, true, &mut rest)?;
            if page_offset(next) != 0 {
                return Err(Status::PRP_OFFSET_INVALID);
            }
            list = next;
        }
    }

    /// Reads the entries of `pages` pages at `list` and takes them as the next of the `rest` bytes. Where a pointer is
    /// `chained` behind them, it is read too, and comes back; otherwise 0 does.
    fn entries(
        &mut self,
        mut run: Run,
        list: u64,
        pages: usize,
        chained: bool,
        rest: &mut u32,
    ) -> Result<(Run, u64), Status> {
        let count = pages + usize::from(chained);
        // A list does not leave its page, and so lies in one region.
        let bytes = (count * 8) as u32;
        let memory = self
            .view
            .translate(self.hint, Iova(list), bytes, Need::DeviceReads)
            .map_err(|_| Status::DATA_TRANSFER_ERROR)?;
        if memory.len() != bytes {
            return Err(Status::DATA_TRANSFER_ERROR);
        }
        let mut copy = [0; ENTRIES_AT_A_TIME * 8];
        let mut pointer = 0;
        for start in (0..count).step_by(ENTRIES_AT_A_TIME) {
            let n = ENTRIES_AT_A_TIME.min(count - start);
            memory.read_into((start * 8) as u32, &mut copy[..n * 8]);
            for (index, entry) in (start..).zip(copy[..n * 8].as_chunks().0) {
                let entry = u64::from_le_bytes(*entry);
                if index == pages {
                    pointer = entry;
                    break;
                }
                let len = PAGE.min(*rest);
                run = self.page(run, entry, len)?;
                *rest -= len;
            }
        }
        Ok((run, pointer))
    }

    /// Takes the page at `entry`: as more of `run` where it follows it, otherwise as a run of its own.
    #[inline]
    fn page(&mut self, run: Run, entry: u64, len: u32) -> Result<Run, Status> {
        if page_offset(entry) != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        if run.start.checked_add(u64::from(run.len)) == Some(entry) {
            let len = run.len + len;
            return Ok(Run { len, ..run });
        }
        self.push(run)?;
        Ok(Run { start: entry, len })
    }

    /// Translates a run, which may lie in several regions.
    #[inline]
    fn push(&mut self, run: Run) -> Result<(), Status> {
        let (mut at, mut left) = (run.start, run.len);
        while left > 0 {
            let segment = self
                .view
                .translate(self.hint, Iova(at), left, self.need)
                .map_err(|_| Status::DATA_TRANSFER_ERROR)?;
            left = left.saturating_sub(segment.len());
            at = at.wrapping_add(u64::from(segment.len()));
            // Regions end at page boundaries, so there is room for every page of the longest transfer.
            self.out
                .try_push(segment)
                .map_err(|_| Status::INVALID_FIELD_IN_COMMAND)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
