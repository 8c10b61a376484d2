//! Physical Region Pages: from the addresses in a command to segments of the host's memory
//! (Base 2.1, 4.3.1).
//!
//! Invariants:
//! - Each list entry is read once, and only the value read is checked and used: a host that changes
//!   a list meanwhile gains nothing.
//! - The walk is bounded by the length: a list page holds at least 511 data entries where another
//!   follows it, except the first, which may start at its page's last entry. A list that points to
//!   itself runs out of length.
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

/// Most segments of one command: a transfer of [`MAX_TRANSFER`] that starts inside a page, every
/// page apart, which are 1025; and as many again as an SGL of 256 descriptors has when none of them
/// starts at a page.
pub const MAX_SEGMENTS: usize = 1280;

const PAGE: u32 = PAGE_SIZE as u32;

/// Segments of a command's data, in order.
pub type Segments<'v> = ArrayVec<Segment<'v>, MAX_SEGMENTS>;

/// Finds the `len` bytes that `prp1` and `prp2` describe, and leaves them in `out` (emptied first).
///
/// # Errors
/// - PRP Offset Invalid: a first entry that is not dword aligned, a list pointer that is not qword
///   aligned, or an offset anywhere else.
/// - Data Transfer Error: memory that is not mapped, that the device may not access as it `need`s
///   to, or that came without a descriptor.
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
        near: view.near(hint),
        view,
        hint,
        need,
        out,
    };
    let first = PAGE - page_offset(prp1) as u32;
    if len <= first {
        return walk.push(prp1, len);
    }
    if len > MAX_TRANSFER {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    let rest = len - first;
    if rest > PAGE {
        return walk.list(prp1, prp2, len);
    }
    if page_offset(prp2) != 0 {
        return Err(Status::PRP_OFFSET_INVALID);
    }
    if prp1.wrapping_add(first.into()) == prp2 {
        return walk.push(prp1, len);
    }
    walk.push(prp1, first)?;
    walk.push(prp2, rest)
}

/// Finds the same bytes if they are one run within the region that was `near` the last time: in one
/// page, or in two adjacent ones. `None` does not mean that they are invalid: [`walk`] decides
/// that.
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

/// Consecutive pages that are not translated yet, of which the first may lack its beginning. Where
/// they end at the last address, that is an end of 0.
#[derive(Clone, Copy)]
struct Run {
    start: u64,
    end: u64,
}

impl Run {
    fn len(self) -> u32 {
        self.end.wrapping_sub(self.start) as u32
    }
}

struct Walk<'a, 'v> {
    view: &'v DmaView,
    hint: &'a mut Hint,
    /// The region of `hint`.
    near: Near<'v>,
    need: Need,
    out: &'a mut Segments<'v>,
}

impl<'v> Walk<'_, 'v> {
    /// Takes a list of more than one entry at `list` for the rest of `len` bytes after the page of
    /// `prp1`.
    #[inline(never)]
    fn list(&mut self, prp1: u64, mut list: u64, len: u32) -> Result<(), Status> {
        if list & LIST_ALIGNMENT_MASK != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        let first = PAGE - page_offset(prp1) as u32;
        let mut run = Run {
            start: prp1,
            end: prp1.wrapping_add(first.into()),
        };
        let mut needed = (len - first).div_ceil(PAGE);
        // Of the last page only a part is asked for.
        let beyond = first + needed * PAGE - len;
        loop {
            let here = list_entries(list) as u32;
            if needed <= here {
                let memory = self.list_page(list, needed)?;
                self.entries(&mut run, &memory, needed)?;
                return self.push(run.start, run.len() - beyond);
            }
            // More than the page holds: its last entry points to the next page of the list, and
            // like every entry of a list has no offset.
            let (memory, pages) = (self.list_page(list, here)?, here - 1);
            self.entries(&mut run, &memory, pages)?;
            list = memory.words(pages..here).next().unwrap_or(0);
            if page_offset(list) != 0 {
                return Err(Status::PRP_OFFSET_INVALID);
            }
            needed -= pages;
        }
    }

    /// Takes the first `pages` entries of a list: as more of `run` where they follow it, otherwise
    /// as runs of their own.
    #[inline]
    fn entries(&mut self, run: &mut Run, list: &Segment<'_>, pages: u32) -> Result<(), Status> {
        let Run { mut start, mut end } = *run;
        for entry in list.words(0..pages) {
            if entry != end {
                if page_offset(entry) != 0 {
                    return Err(Status::PRP_OFFSET_INVALID);
                }
                self.push(start, Run { start, end }.len())?;
                start = entry;
            }
            end = entry.wrapping_add(PAGE.into());
        }
        *run = Run { start, end };
        Ok(())
    }

    /// The `count` entries at `list`. Where data is mostly found is not forgotten over that.
    #[inline]
    fn list_page(&self, list: u64, count: u32) -> Result<Segment<'v>, Status> {
        let (at, bytes, need) = (Iova(list), count * 8, Need::DeviceReads);
        if let Some(memory) = self.near.translate(at, bytes, need) {
            return Ok(memory);
        }
        // A list does not leave its page, and so lies in one region.
        match self.view.translate(&mut Hint::default(), at, bytes, need) {
            Ok(memory) if memory.len() == bytes => Ok(memory),
            _ => Err(Status::DATA_TRANSFER_ERROR),
        }
    }

    /// Translates `len` bytes at `start`.
    #[inline]
    fn push(&mut self, start: u64, len: u32) -> Result<(), Status> {
        match self.near.translate(Iova(start), len, self.need) {
            Some(segment) => self.put(segment),
            None => self.push_elsewhere(start, len),
        }
    }

    /// The same where they do not all lie in the region where the last ones did.
    #[inline(never)]
    fn push_elsewhere(&mut self, mut at: u64, mut left: u32) -> Result<(), Status> {
        while left > 0 {
            // Entries may name the last page and then the first.
            let here = match at.checked_add(u64::from(left) - 1) {
                Some(_) => left,
                None => at.wrapping_neg() as u32,
            };
            let segment = self
                .view
                .translate(self.hint, Iova(at), here, self.need)
                .map_err(|_| Status::DATA_TRANSFER_ERROR)?;
            left -= segment.len();
            at = at.wrapping_add(u64::from(segment.len()));
            self.put(segment)?;
        }
        self.near = self.view.near(self.hint);
        Ok(())
    }

    #[inline]
    fn put(&mut self, segment: Segment<'v>) -> Result<(), Status> {
        // Regions end at page boundaries, so there is room for every page of the longest transfer.
        if self.out.is_full() {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.out.push(segment);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
