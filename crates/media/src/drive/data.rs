//! Location of a command's data: pieces of host memory, as drive addresses or as host addresses.
//!
//! The choice is made when the command arrives. If the drive reaches all of the data and PRP
//! entries can express it, we never touch it; otherwise it goes through a bounce buffer.
//!
//! Host memory is found again by its address in the view that the command's pin keeps, so nothing
//! here outlives that pin.

use std::sync::Arc;

use memory::{Buffer, DmaView, Hint, Iova, Need, Segment};
use nvme_spec::prp::PAGE_SIZE;
use port::prp::MAX_SEGMENTS;

use super::op::Cursor;
use super::windows::Table;

/// Bytes per comparison step.
const COMPARE_PIECE: usize = 4096;
/// Flag in a piece's second word, above its length: data read into it is discarded.
const SINK: u64 = 1 << 32;

/// The pieces of every slot's data, [`MAX_SEGMENTS`] per slot: an address and a length. The type
/// allows zeroed allocation, so unused pages are never touched.
#[derive(Debug)]
pub(super) struct Pieces {
    table: Vec<[u64; 2]>,
}

impl Pieces {
    pub(super) fn new(slots: usize) -> Self {
        Pieces {
            table: vec![[0; 2]; slots * MAX_SEGMENTS],
        }
    }

    #[inline]
    fn of(&self, slot: u16) -> &[[u64; 2]] {
        &self.table[usize::from(slot) * MAX_SEGMENTS..][..MAX_SEGMENTS]
    }

    /// Stores a command's data as drive addresses. Returns false if the drive does not reach all of
    /// it, or PRP entries cannot express it: only the first piece may begin inside a page, at a
    /// dword, and only the last one may end inside a page (Base 2.1, 4.1.1).
    #[inline]
    pub(super) fn set_direct(
        &mut self,
        slot: u16,
        segments: &[Segment<'_>],
        windows: &mut Table,
    ) -> bool {
        let places = &mut self.table[usize::from(slot) * MAX_SEGMENTS..];
        let last = segments.len().wrapping_sub(1);
        for (index, (place, segment)) in places.iter_mut().zip(segments).enumerate() {
            let Some(window) = windows.find(segment.lent_id()) else {
                return false;
            };
            let (bus, len) = (window + segment.lent_offset(), u64::from(segment.len()));
            let begins = if index == 0 { 4 } else { PAGE_SIZE };
            let is_odd_end = index != last && !(bus + len).is_multiple_of(PAGE_SIZE);
            if !bus.is_multiple_of(begins) || is_odd_end || len == 0 {
                return false;
            }
            *place = [bus, len];
        }
        true
    }

    /// Stores a command's data as host addresses, for a bounce buffer.
    pub(super) fn set_bounced(&mut self, slot: u16, segments: &[Segment<'_>]) {
        let places = &mut self.table[usize::from(slot) * MAX_SEGMENTS..];
        for (place, segment) in places.iter_mut().zip(segments) {
            let len = u64::from(segment.len());
            *place = if segment.is_sink() {
                [0, len | SINK]
            } else {
                [segment.iova().0, len]
            };
        }
    }

    /// The pieces of `bytes` bytes from a position: the start of each, and its length. Also returns
    /// the position after them.
    #[inline]
    pub(super) fn run(&self, slot: u16, from: Cursor, bytes: u32) -> Run<'_> {
        Run {
            pieces: self.of(slot),
            cursor: from,
            left: bytes,
        }
    }

    /// The position `bytes` further on.
    pub(super) fn after(&self, slot: u16, from: Cursor, bytes: u32) -> Cursor {
        let mut run = self.run(slot, from, bytes);
        while run.next().is_some() {}
        run.cursor
    }
}

/// Part of a command's data, piece by piece. See [`Pieces::run`].
pub(super) struct Run<'a> {
    pieces: &'a [[u64; 2]],
    cursor: Cursor,
    left: u32,
}

/// A part of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) at: u64,
    pub(super) len: u32,
    pub(super) is_sink: bool,
}

impl Run<'_> {
    /// The current position.
    pub(super) fn cursor(&self) -> Cursor {
        self.cursor
    }
}

impl Iterator for Run<'_> {
    type Item = Part;

    #[inline]
    fn next(&mut self) -> Option<Part> {
        if self.left == 0 {
            return None;
        }
        let [at, word] = *self.pieces.get(usize::from(self.cursor.piece))?;
        let room = word as u32 - self.cursor.within;
        let len = room.min(self.left);
        let part = Part {
            at: at + u64::from(self.cursor.within),
            len,
            is_sink: word & SINK != 0,
        };
        self.left -= len;
        self.cursor = if len == room {
            Cursor {
                piece: self.cursor.piece + 1,
                within: 0,
            }
        } else {
            Cursor {
                within: self.cursor.within + len,
                ..self.cursor
            }
        };
        Some(part)
    }
}

/// Calls `each` for every part of a run, with the host's memory (`None` for discarded data) and the
/// offset in the run. Returns false if host memory is missing, which cannot happen while the view
/// is the one in which it was found.
fn walk(
    run: Run<'_>,
    view: &Arc<DmaView>,
    need: Need,
    mut each: impl FnMut(Option<Segment<'_>>, usize, usize) -> bool,
) -> bool {
    let mut hint = Hint::default();
    let mut done = 0;
    for part in run {
        let len = part.len as usize;
        if part.is_sink {
            if !each(None, done, len) {
                return false;
            }
        } else {
            match view.translate(&mut hint, Iova(part.at), part.len, need) {
                Ok(segment) if segment.len() == part.len => {
                    if !each(Some(segment), done, len) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
        done += len;
    }
    true
}

/// Copies the start of a buffer to the host.
pub(super) fn scatter(run: Run<'_>, view: &Arc<DmaView>, from: &Buffer) -> bool {
    walk(run, view, Need::DeviceWrites, |segment, at, len| {
        if let Some(segment) = segment {
            segment.write_from_buffer(0, from, at, len);
        }
        true
    })
}

/// Copies host data to the start of a buffer.
pub(super) fn gather(run: Run<'_>, view: &Arc<DmaView>, to: &Buffer) -> bool {
    walk(run, view, Need::DeviceReads, |segment, at, len| {
        segment.is_some_and(|segment| {
            segment.read_into_buffer(0, to, at, len);
            true
        })
    })
}

/// Whether host data equals the start of a buffer.
pub(super) fn equal(run: Run<'_>, view: &Arc<DmaView>, with: &Buffer) -> bool {
    let mut copy = [0; COMPARE_PIECE];
    walk(run, view, Need::DeviceReads, |segment, at, len| {
        let Some(segment) = segment else { return false };
        let mut done = 0;
        while done < len {
            let now = (len - done).min(COMPARE_PIECE);
            with.read_into(at + done, &mut copy[..now]);
            if !segment.compare(done as u32, &copy[..now]) {
                return false;
            }
            done += now;
        }
        true
    })
}
