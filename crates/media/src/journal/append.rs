//! Appending of records to frames.

use memory::{Need, Segment};

use super::layout::{FRAME_HEAD, FrameHead, frame_bytes};
use super::{Crc, Journal, Open, Stage};

/// Size of a record's head: its kind, and its length in three bytes.
pub(super) const RECORD_HEAD: usize = 4;

/// The head of a record.
pub(super) fn record_head(kind: u8, len: usize) -> [u8; RECORD_HEAD] {
    debug_assert!(len < 1 << 24, "a record fits a frame");
    (u32::from(kind) << 24 | len as u32).to_le_bytes()
}

/// The kind and the length in a record's head.
pub(super) fn of_record_head(head: [u8; RECORD_HEAD]) -> (u8, usize) {
    let word = u32::from_le_bytes(head);
    ((word >> 24) as u8, (word & 0xFF_FFFF) as usize)
}

/// A record that is being appended.
#[derive(Debug)]
pub(crate) struct Appending<'f> {
    segment: Segment<'f>,
    open: &'f mut Open,
}

impl Appending<'_> {
    /// Appends the record's next bytes.
    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.open.crc.add(bytes);
        self.segment.write_from(self.open.filled, bytes);
        let len = bytes.len() as u32;
        self.open.filled += len;
        self.open.lacks =
            (self.open.lacks.checked_sub(len)).expect("a record is as long as it was said to be");
    }
}

impl Journal {
    /// Whether a record of `len` bytes can be appended now. If not, frames must be written first,
    /// or the log must become shorter.
    pub(crate) fn has_room(&self, len: usize) -> bool {
        let needs = RECORD_HEAD + len;
        let frame_len = self.frame_len();
        debug_assert!(FRAME_HEAD + needs <= frame_len);
        if let Some(open) = &self.open
            && open.filled as usize + needs <= frame_len
        {
            return true;
        }
        self.has_frames(1)
    }

    /// Whether `count` more frames can certainly be filled now, for several records.
    pub(crate) fn has_frames(&self, count: usize) -> bool {
        let frames = (0..self.frames.len()).filter(|index| self.is_free(*index));
        // The open frame, and after each frame a possible jump to the ring's start, which takes
        // less than a frame.
        let needs = (2 * count as u64 + 2) * self.frame_len() as u64;
        frames.count() >= count && self.taken() + needs <= self.superblock.layout.ring_len
    }

    /// Bytes of the largest frame.
    pub(crate) fn frame_len(&self) -> usize {
        self.superblock.layout.frame_len as usize
    }

    fn is_free(&self, index: usize) -> bool {
        let is_open = self.open.is_some_and(|open| open.frame == index);
        self.frames[index].stage == Stage::Free && !is_open
    }

    /// Appends a record of `len` bytes, which `fill` provides. There must be room for it
    /// ([`Journal::has_room`]), and the previous record must be complete.
    ///
    /// # Panics
    /// One of these conditions is not met.
    pub(crate) fn append(&mut self, kind: u8, len: usize, fill: impl FnOnce(&mut Appending<'_>)) {
        self.begin(kind, len);
        fill(&mut self.record());
        assert!(self.is_whole(), "a record is as long as it was said to be");
    }

    /// Begins a record of `len` bytes, which are added in parts ([`Journal::record`]). There must
    /// be room for it, and the previous record must be complete.
    ///
    /// # Panics
    /// One of these conditions is not met.
    pub(crate) fn begin(&mut self, kind: u8, len: usize) {
        assert!(self.is_whole(), "records do not mix");
        self.reserve(len);
        if self.open.is_none() {
            let free = (0..self.frames.len()).find(|index| self.is_free(*index));
            self.open = Some(Open {
                frame: free.expect("the caller has seen that there is room"),
                filled: FRAME_HEAD as u32,
                lacks: 0,
                crc: Crc::new(),
            });
        }
        let open = self.open.as_mut().expect("it was just made");
        open.lacks = (RECORD_HEAD + len) as u32;
        self.record().put(&record_head(kind, len));
    }

    /// The incomplete record.
    ///
    /// # Panics
    /// There is none.
    pub(crate) fn record(&mut self) -> Appending<'_> {
        let frame_len = self.superblock.layout.frame_len;
        let open = self.open.as_mut().expect("a record was begun");
        let scratch = &self.frames[open.frame].scratch;
        let segment = scratch.segment(frame_len, Need::DeviceWrites);
        Appending { segment, open }
    }

    /// Whether the last record is complete: before that no record can be appended, and no frame
    /// ends.
    pub(crate) fn is_whole(&self) -> bool {
        self.open.is_none_or(|open| open.lacks == 0)
    }

    /// Ends the frame if it has no room for `len` bytes: several records of that total size are
    /// then in one frame, and after a crash all of them exist or none.
    pub(crate) fn reserve(&mut self, len: usize) {
        let needs = RECORD_HEAD + len;
        let is_full = |open: &Open| open.filled as usize + needs > self.frame_len();
        if self.open.as_ref().is_some_and(is_full) {
            self.seal();
        }
    }

    /// Ends the frame that takes records, if any; the next turns write it. The last record must be
    /// complete.
    ///
    /// # Panics
    /// It is incomplete.
    pub(crate) fn seal(&mut self) {
        assert!(self.is_whole(), "a frame ends behind a record");
        let Some(open) = self.open.take() else {
            return;
        };
        let records = open.filled as usize - FRAME_HEAD;
        let superblock = &self.superblock;
        let (log, incarnation) = (superblock.log, superblock.incarnation);
        let head = FrameHead::new(log, self.head, incarnation, records as u32, open.crc);
        let len = frame_bytes(records) as u32;
        let frame = &mut self.frames[open.frame];
        let segment = frame.scratch.segment(len, Need::DeviceWrites);
        segment.write_from(0, zerocopy::IntoBytes::as_bytes(&head));
        (frame.stage, frame.position, frame.len) = (Stage::Sealed, self.head, len);
        (frame.handed, frame.pieces, frame.failed) = (0, 0, false);
        self.queue.push_back(open.frame);
        self.head = superblock.layout.next(self.head + u64::from(len));
    }
}
