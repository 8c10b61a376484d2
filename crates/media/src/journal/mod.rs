//! A log of changes to a medium's state, after its bytes in the same file, so that one flush makes
//! both durable.
//!
//! The owner of the state appends **records** ([`Journal::append`]; a long one in parts,
//! [`Journal::begin`]). Records collect in a **frame**, which is written when it is full or sealed
//! ([`Journal::seal`]). A frame is valid completely or not at all: it has a checksum, its position
//! in the log, and the incarnation of the log that wrote it. After a crash the log ends before the
//! first invalid frame, and the earlier records, in order, restore the state
//! ([`Journal::recover`]).
//!
//! The log is a ring. When it has become long ([`Journal::is_long`]) the owner begins a
//! **checkpoint**: it appends its complete state, a little at a time, between the records of
//! current changes, and at its end the log is cut off at the position where the checkpoint began.
//! There is no copy of the state, and no pause. This requires that a record states the new
//! **value** rather than the change, or can be ignored if the object that it changes does not exist
//! yet.
//!
//! All I/O goes through the channel of the medium, as ordinary requests with the journal's own
//! tickets: the owner gives it turns ([`Journal::drive`]) and completions ([`Journal::complete`]).
//! A frame is written in pieces, with a limit of bytes per turn ([`Journal::set_slice`]), because a
//! file in memory or in the page cache takes them by a copy. A host's Flush first waits until its
//! frames are written ([`Journal::settled`] has reached [`Journal::end`]), then flushes the medium
//! below.
//!
//! Invariants:
//! - Data that recovery may need is not overwritten: the ring's free room ends at the log's start,
//!   which moves only after the superblock that says so is durable.
//! - A frame of an earlier incarnation at the end of a later incarnation's log is not mistaken for
//!   its continuation: neither after a frame of the later one, nor behind the end that its
//!   superblock names.
//! - Nothing is allocated after creation.
//! - Frames that could not be written stay in memory, in order, and are rewritten as a whole
//!   ([`stall`]): later frames do not count before that, in memory or after a crash.
//! - Reading any file ends, takes no more memory than a frame, and changes nothing if the file is
//!   rejected.
//!
//! Not included: the meaning of records, their order relative to the medium's bytes, and flushes
//! for the owner.

mod append;
mod crc;
mod layout;
mod replay;
mod stall;
mod storage;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;

use memory::{Need, Scratch};
use port::ticket::Ticket;
use port::{Added, ByteRange, Channel as Port, Outcome, Request};

use self::crc::Crc;
pub(crate) use self::layout::{BLOCK, Kind, Layout, SHAPE_WORDS, Shape, Superblock};
use self::stall::Stall;
pub(crate) use self::stall::Writable;
pub(crate) use self::storage::Storage;

/// Frames in memory: one that is being filled, and those that are being written.
const FRAMES: usize = 4;
/// Numbers of a journal's tickets: no other channel counts so far. That of a frame's piece says
/// which frame and which of its blocks.
const TICKETS: u32 = 0xFFFF_0000;
/// For a byte that the medium is handed in a turn it is asked to take so many back: pages are freed
/// in less time than they are copied.
const GIVEN_BACK_PER_BYTE: u64 = 64;
const SYNC: u32 = TICKETS | 0x8000;
const SUPERBLOCK: u32 = TICKETS | 0x8001;
const GIVE_BACK: u32 = TICKETS | 0x8002;

/// Takes a record: its kind, and its bytes.
pub type RecordSink<'a> = dyn FnMut(u8, &[u8]) -> io::Result<()> + 'a;

/// Why a state cannot be taken from a file.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file has no state.
    #[error(
        "no state of zones or keys at its end: it was not created for such a medium, or its length has changed; move it away to have a new one created"
    )]
    NotOurs,
    /// The file has a state, but the medium was configured without one.
    #[error(
        "it contains {what} with their log, which a block medium would overwrite: {remedy}, or move it away to have a new one created"
    )]
    IsOurs {
        /// Kind of the state.
        what: &'static str,
        /// Configuration to use.
        remedy: &'static str,
    },
    /// Another version of the program has written it.
    #[error(
        "its state has the unsupported format {found}; this program reads format {}: use the program that wrote it, or move it away to have a new one created",
        layout::FORMAT
    )]
    Format {
        /// The format.
        found: u32,
    },
    /// Written data is missing.
    #[error(
        "its state is damaged ({0}), and was left as it is: restore it from a copy, or move it away to have a new one created"
    )]
    Damaged(&'static str),
    /// It belongs to another medium than the configured one.
    #[error(
        "its {what} is {found}, but {configured} is configured: correct the configuration, or move it away to have a new one created"
    )]
    Differs {
        /// The property that differs.
        what: &'static str,
        /// Its value in the file.
        found: String,
        /// Its configured value.
        configured: String,
    },
    /// The system refused an operation.
    #[error("its state cannot be read or written: {0}")]
    Io(#[from] io::Error),
}

/// The log's position does not fit such a medium.
pub(crate) const MISPLACED: StateError =
    StateError::Damaged("its log is not of the length that its superblock's shape has");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Unused.
    Free,
    /// Complete, and waiting to be written or being written.
    Sealed,
    /// It is written.
    Written,
}

/// A frame in memory.
#[derive(Debug)]
struct Frame {
    scratch: Scratch,
    stage: Stage,
    position: u64,
    /// Bytes to write.
    len: u32,
    /// Bytes handed to the medium, and the number of pieces that it has not written yet.
    handed: u32,
    pieces: u32,
    /// Whether a piece could not be written: the whole frame is written again.
    failed: bool,
}

/// The frame that takes records.
#[derive(Clone, Copy, Debug)]
struct Open {
    frame: usize,
    filled: u32,
    /// Missing bytes of the last record.
    lacks: u32,
    crc: Crc,
}

/// A pending move of the log's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    None,
    /// Waits until all frames up to `until` are written.
    Waits {
        start: u64,
        until: u64,
    },
    /// The frames are written, and are being made durable.
    Sync {
        start: u64,
        until: u64,
        going: bool,
    },
    /// The frames are durable; the superblock is being written.
    Superblock {
        start: u64,
        until: u64,
        going: bool,
    },
}

/// The log; see the module.
#[derive(Debug)]
pub(crate) struct Journal {
    /// The current superblock.
    superblock: Superblock,
    frames: Box<[Frame]>,
    open: Option<Open>,
    /// Sealed frames, the oldest first, until they are written.
    queue: VecDeque<usize>,
    /// Position of the next frame.
    head: u64,
    /// Frames before this position are written.
    settled: u64,
    /// Length of the log after the last checkpoint.
    last_len: u64,
    /// Start of the current checkpoint.
    checkpoint: Option<u64>,
    moving: Move,
    block: Scratch,
    /// Whether the ring's space is freed behind the log's start, and the position up to which that
    /// is done: space beyond it is not reused before.
    gives_back: bool,
    given_back: u64,
    /// Requests in flight at the medium.
    in_flight: u32,
    /// Bytes of frames handed to the medium per turn, the rest in this turn, and whether space was
    /// freed in it.
    slice: u32,
    left: u32,
    has_given_back: bool,
    stall: Stall,
}

impl Journal {
    /// Creates an empty log in a file of the layout's length, durably.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn create(
        storage: &impl Storage,
        shape: Shape,
        layout: Layout,
        log: u64,
    ) -> io::Result<Superblock> {
        let superblock = Superblock {
            shape,
            layout,
            log,
            incarnation: 0,
            sequence: 0,
            start: 0,
            known: 0,
        };
        storage.write_at(layout.superblock(0), &superblock.to_bytes())?;
        storage.sync()?;
        Ok(superblock)
    }

    /// The superblock of a file; that of a new log, if the file is newly created.
    ///
    /// # Errors
    /// Those of [`Superblock::read`].
    pub(crate) fn find_or_create(
        storage: &impl Storage,
        file_len: u64,
        shape: Shape,
        layout: Layout,
    ) -> Result<Superblock, StateError> {
        let is_new = file_len == layout.file_len() && storage.find_data(0, file_len)?.is_none();
        if !is_new {
            return Superblock::read(storage, file_len);
        }
        let log = RandomState::new().build_hasher().finish();
        Ok(Journal::create(storage, shape, layout, log)?)
    }

    /// Loads a log: passes every record to `each`, in order, and continues after them.
    /// `gives_back`: free the file's space that the log leaves behind.
    ///
    /// # Errors
    /// Errors of `each`; [`StateError::Damaged`] if earlier data is missing; the system's. In these
    /// cases nothing has changed.
    pub(crate) fn recover(
        storage: &impl Storage,
        superblock: Superblock,
        gives_back: bool,
        each: impl FnMut(u8, &[u8]) -> Result<(), StateError>,
    ) -> Result<Journal, StateError> {
        let (head, last) = replay::replay(storage, &superblock, each)?;
        let incarnation = last.max(superblock.incarnation).checked_add(1);
        let incarnation = incarnation.ok_or(StateError::Damaged("it was opened too often"))?;
        let frame_len = superblock.layout.frame_len;
        let frame = || -> io::Result<Frame> {
            Ok(Frame {
                scratch: Scratch::new(frame_len)?,
                stage: Stage::Free,
                position: 0,
                len: 0,
                handed: 0,
                pieces: 0,
                failed: false,
            })
        };
        let frames: io::Result<Box<[Frame]>> = (0..FRAMES).map(|_| frame()).collect();
        let mut journal = Journal {
            frames: frames?,
            open: None,
            queue: VecDeque::with_capacity(FRAMES),
            head,
            settled: head,
            last_len: 0,
            checkpoint: None,
            moving: Move::None,
            block: Scratch::new(BLOCK as u32)?,
            gives_back,
            given_back: superblock.start,
            in_flight: 0,
            slice: u32::MAX,
            left: u32::MAX,
            has_given_back: false,
            stall: Stall::None,
            superblock: Superblock {
                incarnation,
                ..superblock
            },
        };
        // The frames may still be only in a cache.
        storage.sync()?;
        journal.write_superblock(storage)?;
        Ok(journal)
    }

    /// Writes all records and makes them durable, with blocking calls: for a clean stop, while no
    /// channel has the journal.
    ///
    /// # Errors
    /// The system's; a later call writes the rest.
    pub(crate) fn finish(&mut self, storage: &impl Storage) -> io::Result<()> {
        self.seal();
        let mut bytes = vec![0; self.superblock.layout.frame_len as usize];
        while let Some(index) = self.queue.front().copied() {
            let frame = &mut self.frames[index];
            let bytes = &mut bytes[..frame.len as usize];
            let segment = frame.scratch.segment(frame.len, Need::DeviceReads);
            segment.read_into(0, bytes);
            storage.write_at(self.superblock.layout.place(frame.position), bytes)?;
            frame.stage = Stage::Free;
            self.queue.pop_front();
        }
        self.settled = self.head;
        storage.sync()?;
        self.write_superblock(storage)?;
        self.stall = Stall::None;
        Ok(())
    }

    /// Writes a superblock, after everything up to the head is durable.
    fn write_superblock(&mut self, storage: &impl Storage) -> io::Result<()> {
        let next = Superblock {
            sequence: self.superblock.sequence + 1,
            known: self.head,
            ..self.superblock
        };
        let at = next.layout.superblock(next.sequence);
        storage.write_at(at, &next.to_bytes())?;
        storage.sync()?;
        self.superblock = next;
        Ok(())
    }

    /// The channel has ended, and its requests in flight with it. Their results are unknown, so
    /// they are repeated.
    pub(crate) fn detach(&mut self) {
        self.in_flight = 0;
        self.given_back = self.superblock.start;
        for index in &self.queue {
            let frame = &mut self.frames[*index];
            if frame.stage == Stage::Sealed {
                (frame.handed, frame.pieces, frame.failed) = (0, 0, false);
            }
        }
        match &mut self.moving {
            Move::Sync { going, .. } | Move::Superblock { going, .. } => *going = false,
            Move::None | Move::Waits { .. } => {}
        }
    }

    /// Bytes from the log's start to its end.
    fn len(&self) -> u64 {
        self.head - self.superblock.start
    }

    /// Bytes of the ring that must not change.
    fn taken(&self) -> u64 {
        self.head - self.given_back
    }

    /// Whether the log is long enough to justify a checkpoint; false during one.
    pub(crate) fn is_long(&self) -> bool {
        let layout = &self.superblock.layout;
        let worth = 2 * self.last_len + 4 * u64::from(layout.frame_len);
        let is_idle = self.checkpoint.is_none() && self.moving == Move::None;
        is_idle && self.len() >= worth.min(layout.ring_len / 2)
    }

    /// Begins a checkpoint: from now on the owner appends its complete state.
    pub(crate) fn begin_checkpoint(&mut self) {
        // The records in the open frame are older, which does no harm.
        self.checkpoint = Some(self.head);
    }

    /// Ends the checkpoint: the complete state has been appended since it began.
    pub(crate) fn end_checkpoint(&mut self) {
        self.seal();
        if let Some(start) = self.checkpoint.take() {
            let until = self.head;
            self.moving = Move::Waits { start, until };
        }
    }

    /// End of the log, including unsealed records.
    pub(crate) fn reaches(&self) -> u64 {
        self.head + self.open.map_or(0, |open| u64::from(open.filled))
    }

    /// End of the log, without unsealed records.
    pub(crate) fn end(&self) -> u64 {
        self.head
    }

    /// Frames that begin before this position are written.
    pub(crate) fn settled(&self) -> u64 {
        self.settled
    }

    /// Whether all records are written.
    pub(crate) fn is_settled(&self) -> bool {
        self.open.is_none() && self.queue.is_empty()
    }

    /// Whether a complete frame is not written, or some space is not freed.
    pub(crate) fn has_to_write(&self) -> bool {
        !self.queue.is_empty() || self.given_back < self.superblock.start
    }

    /// Number of times that the log was opened, which no other opening has.
    pub(crate) fn incarnation(&self) -> u32 {
        self.superblock.incarnation
    }

    /// The journal's requests at the medium.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether a ticket is the journal's.
    pub(crate) fn owns(ticket: &Ticket) -> bool {
        ticket.number().is_some_and(|number| number >= TICKETS)
    }

    /// Begins a turn of the owner, which renews the limit on bytes of frames.
    pub(crate) fn begin_turn(&mut self) {
        self.left = self.slice;
        self.has_given_back = false;
        self.stall.age();
    }

    /// Sets the bytes of frames per turn, a multiple of [`BLOCK`].
    pub(crate) fn set_slice(&mut self, slice: u32) {
        debug_assert!(slice > 0 && u64::from(slice).is_multiple_of(BLOCK));
        (self.slice, self.left) = (slice, slice);
    }

    /// Hands pending work to the medium, as far as it has room. Call before the medium is
    /// submitted.
    pub(crate) fn drive(&mut self, below: &mut impl Port) {
        if self.stalled().is_some() {
            return;
        }
        if !self.has_given_back && self.given_back < self.superblock.start && !self.give_back(below)
        {
            return;
        }
        for at in 0..self.queue.len() {
            let index = self.queue[at];
            if !self.write_frame(index, below) {
                return;
            }
        }
        self.move_start(below);
    }

    /// Frees a piece of the ring. Returns false if the medium has no room.
    fn give_back(&mut self, below: &mut impl Port) -> bool {
        let Layout { ring, ring_len, .. } = self.superblock.layout;
        let at = self.given_back % ring_len;
        let left = self.superblock.start - self.given_back;
        let most = u64::from(self.slice).saturating_mul(GIVEN_BACK_PER_BYTE);
        let range = ByteRange {
            offset: ring + at,
            len: left.min(ring_len - at).min(most),
        };
        let request = Request::Deallocate { ranges: &[range] };
        let taken = self.ask(below, GIVE_BACK, &request, None);
        if taken {
            self.given_back += range.len;
            self.has_given_back = true;
        }
        taken
    }

    /// Hands out the rest of a frame, up to the slice. Returns false if part of it remains.
    fn write_frame(&mut self, index: usize, below: &mut impl Port) -> bool {
        loop {
            let frame = &self.frames[index];
            let (from, len) = (frame.handed, (frame.len - frame.handed).min(self.left));
            if frame.handed == frame.len {
                return true;
            }
            if len == 0 {
                return false;
            }
            let request = Request::Write {
                offset: self.superblock.layout.place(frame.position) + u64::from(from),
                len,
                fua: false,
            };
            // Before the request, because the request may end at once.
            let frame = &mut self.frames[index];
            (frame.handed, frame.pieces) = (from + len, frame.pieces + 1);
            let number = TICKETS | (from / BLOCK as u32 * FRAMES as u32) | index as u32;
            if !self.ask(below, number, &request, Some((index, from))) {
                let frame = &mut self.frames[index];
                (frame.handed, frame.pieces) = (from, frame.pieces - 1);
                return false;
            }
            self.left -= len;
        }
    }

    /// Requests I/O of a frame's or the superblock's bytes. Returns false if the medium has no
    /// room.
    fn ask(
        &mut self,
        below: &mut impl Port,
        number: u32,
        request: &Request<'_>,
        frame: Option<(usize, u32)>,
    ) -> bool {
        let (scratch, from) = match frame {
            Some((index, from)) => (&self.frames[index].scratch, from),
            None => (&self.block, 0),
        };
        let segment;
        let segments: &[_] = match *request {
            Request::Write { len, .. } => {
                let all = scratch.segment(from + len, Need::DeviceReads);
                segment = [all.part(from, len)];
                &segment
            }
            _ => &[],
        };
        let added = below.add(Ticket::numbered(number), request, segments, scratch.view());
        match added {
            Added::Pending => self.in_flight += 1,
            Added::Done(ticket, outcome) => {
                self.in_flight += 1;
                self.complete(ticket, outcome);
            }
            Added::Full(ticket) => {
                ticket.retire();
                return false;
            }
        }
        true
    }

    /// Handles the end of a journal's request.
    pub(crate) fn complete(&mut self, ticket: Ticket, outcome: Outcome) {
        let number = ticket.number().unwrap_or_default();
        ticket.retire();
        self.in_flight -= 1;
        if outcome.cause != Outcome::OK.cause && number != GIVE_BACK {
            self.failed(number, outcome);
            return;
        }
        match number {
            GIVE_BACK => {}
            SYNC => {
                if let Move::Sync { start, until, .. } = self.moving {
                    let going = false;
                    self.moving = Move::Superblock {
                        start,
                        until,
                        going,
                    };
                }
            }
            SUPERBLOCK => {
                if let Move::Superblock { start, until, .. } = self.moving {
                    self.moved(start, until);
                }
            }
            piece => {
                let frame = &mut self.frames[piece as usize % FRAMES];
                frame.pieces -= 1;
                frame.heal();
                if frame.pieces == 0 && frame.handed == frame.len {
                    frame.stage = Stage::Written;
                    self.take_written();
                }
            }
        }
        self.recover_from_stall();
    }

    /// Reuses the memory of written frames.
    fn take_written(&mut self) {
        while let Some(index) = self.queue.front().copied()
            && self.frames[index].stage == Stage::Written
        {
            self.queue.pop_front();
            let frame = &mut self.frames[index];
            frame.stage = Stage::Free;
            let end = frame.position + u64::from(frame.len);
            self.settled = self.superblock.layout.next(end);
        }
    }

    fn move_start(&mut self, below: &mut impl Port) {
        if let Move::Waits { start, until } = self.moving
            && self.settled >= until
        {
            let going = false;
            self.moving = Move::Sync {
                start,
                until,
                going,
            };
        }
        match self.moving {
            Move::Sync {
                start,
                until,
                going: false,
            } => {
                let going = true;
                self.moving = Move::Sync {
                    start,
                    until,
                    going,
                };
                if !self.ask(below, SYNC, &Request::Flush, None) {
                    self.moving = Move::Waits { start, until };
                }
            }
            Move::Superblock {
                start,
                until,
                going: false,
            } => self.ask_superblock(start, until, below),
            _ => {}
        }
    }

    fn ask_superblock(&mut self, start: u64, until: u64, below: &mut impl Port) {
        let next = self.superblock_at(start, until);
        let block = self.block.segment(BLOCK as u32, Need::DeviceWrites);
        block.write_from(0, &next.to_bytes());
        let request = Request::Write {
            offset: next.layout.superblock(next.sequence),
            len: BLOCK as u32,
            fua: true,
        };
        let mut going = true;
        self.moving = Move::Superblock {
            start,
            until,
            going,
        };
        if !self.ask(below, SUPERBLOCK, &request, None) {
            going = false;
            self.moving = Move::Superblock {
                start,
                until,
                going,
            };
        }
    }

    fn superblock_at(&self, start: u64, known: u64) -> Superblock {
        Superblock {
            sequence: self.superblock.sequence + 1,
            start,
            known,
            ..self.superblock
        }
    }

    /// Moves the log to its new start.
    fn moved(&mut self, start: u64, until: u64) {
        self.superblock = self.superblock_at(start, until);
        self.last_len = until - start;
        self.moving = Move::None;
        if !self.gives_back {
            self.given_back = start;
        }
    }
}

#[cfg(test)]
mod tests;
