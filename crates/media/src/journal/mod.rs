//! A log of what changes a medium's state, behind its bytes in the same file, so that one flush
//! makes both durable.
//!
//! The owner of the state appends **records** ([`Journal::append`]; a long one in parts,
//! [`Journal::begin`]). They gather in a **frame**, which is written when it is full or when it is
//! told to be ([`Journal::seal`]). A frame is there whole or not at all: it has a checksum, its
//! place in the log, and the incarnation of the log that wrote it. After a crash the log ends in
//! front of the first frame that is not there, and the records before, in their order, make the
//! state again ([`Journal::recover`]).
//!
//! The log lies in a ring. When it has become long ([`Journal::is_long`]) the owner begins a
//! **checkpoint**: it appends all of its state, a little at a time, between the records of what
//! happens meanwhile, and when it has come round the log begins where the checkpoint began. There
//! is no copy of the state, and no pause. So that this works, a record says how something **is**
//! and not how it changed, or can be ignored where what it changes is not there yet.
//!
//! Everything goes through the channel of the medium, as ordinary requests with tickets of the
//! journal's own: the owner gives it turns ([`Journal::drive`]) and what ends
//! ([`Journal::complete`]). A frame goes there in pieces, as many bytes in a turn as its owner
//! allows ([`Journal::set_slice`]): a file in memory, or in the page cache, takes them by a copy. A
//! host's Flush is done in this order: its frames are written ([`Journal::settled`] has come to
//! [`Journal::end`]), then the medium below is flushed.
//!
//! Invariants:
//! - Nothing is overwritten that recovery may need: the ring's room ends at the log's start, and
//!   that moves when the superblock that says so is durable.
//! - A frame of an earlier incarnation that lies where the log of a later one ends is not taken for
//!   its continuation.
//! - Nothing is allocated after it was made.
//! - What could not be written stays in memory, in its order, and is written again as a whole
//!   ([`stall`]): what is behind it does not count before, in memory or after a crash.
//! - Whatever stands in a file, reading it ends, takes no more memory than a frame, and changes
//!   nothing where it is refused.
//!
//! It does NOT know what records mean, order them against the medium's bytes, or flush for its
//! owner.

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

/// Frames that a journal has in memory: one that is filled, and those that are being written.
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
    /// The file has none.
    #[error(
        "no state of zones or keys at its end: it was not created for such a medium, or its length has changed; move it away to have a new one created"
    )]
    NotOurs,
    /// The file has one, and was to be a medium without.
    #[error(
        "it contains {what} with their log, which a block medium would overwrite: {remedy}, or move it away to have a new one created"
    )]
    IsOurs {
        /// What there is.
        what: &'static str,
        /// What to configure.
        remedy: &'static str,
    },
    /// A program of another version has written it.
    #[error(
        "its state has the unsupported format {found}; this program reads format {}: use the program that wrote it, or move it away to have a new one created",
        layout::FORMAT
    )]
    Format {
        /// The format.
        found: u32,
    },
    /// What was written is not there.
    #[error(
        "its state is damaged ({0}), and was left as it is: restore it from a copy, or move it away to have a new one created"
    )]
    Damaged(&'static str),
    /// It belongs to another medium than the configured one.
    #[error(
        "its {what} is {found}, but {configured} is configured: correct the configuration, or move it away to have a new one created"
    )]
    Differs {
        /// What is another one.
        what: &'static str,
        /// What is in the file.
        found: String,
        /// What is wanted.
        configured: String,
    },
    /// The system refused an operation.
    #[error("its state cannot be read or written: {0}")]
    Io(#[from] io::Error),
}

/// The log is not where such a medium has it.
pub(crate) const MISPLACED: StateError =
    StateError::Damaged("its log is not of the length that its superblock's shape has");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nobody uses it.
    Free,
    /// It is complete, and to be written, or being written.
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
    /// Bytes of them that the medium was handed, and pieces of those that it has not written yet.
    handed: u32,
    pieces: u32,
    /// One of them could not be written: all of it is written again.
    failed: bool,
}

/// The frame that takes records.
#[derive(Clone, Copy, Debug)]
struct Open {
    frame: usize,
    filled: u32,
    /// Bytes that the last record lacks.
    lacks: u32,
    crc: Crc,
}

/// A start of the log that is to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    None,
    /// When all frames up to `until` are written.
    Waits {
        start: u64,
        until: u64,
    },
    /// They are; they are being made durable.
    Sync {
        start: u64,
        until: u64,
        going: bool,
    },
    /// They are; the superblock is being written.
    Superblock {
        start: u64,
        until: u64,
        going: bool,
    },
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Journal {
    /// What the next superblock differs from.
    superblock: Superblock,
    frames: Box<[Frame]>,
    open: Option<Open>,
    /// Sealed frames, the oldest first, until they are written.
    queue: VecDeque<usize>,
    /// Where the next frame goes.
    head: u64,
    /// Frames before this are written.
    settled: u64,
    /// Bytes that the log had after the last checkpoint.
    last_len: u64,
    /// Where the checkpoint began that goes on.
    checkpoint: Option<u64>,
    moving: Move,
    block: Scratch,
    /// Whether the ring's space is given back where the log has left it, and up to where that was
    /// done: what is behind is not written to before.
    gives_back: bool,
    given_back: u64,
    /// What was asked of the medium and has not ended.
    in_flight: u32,
    /// Bytes of frames that the medium is handed in a turn, and what is left of them in this one;
    /// and whether it was asked to take space back.
    slice: u32,
    left: u32,
    has_given_back: bool,
    stall: Stall,
}

impl Journal {
    /// Makes an empty log in a file of the layout's length, durably.
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

    /// The superblock of a file; that of a new log, where the file is as it was created.
    ///
    /// # Errors
    /// See [`Superblock::read`].
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

    /// Takes up a log: hands each record that is there to `each`, in their order, and goes on
    /// behind them. `gives_back`: the file is to lose what the log has left.
    ///
    /// # Errors
    /// What `each` refuses; [`StateError::Damaged`] where something is missing that was there; the
    /// system's. Then nothing has changed.
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
        // The frames that were found may be in a cache yet.
        storage.sync()?;
        journal.write_superblock(storage)?;
        Ok(journal)
    }

    /// Writes all that was appended and makes it durable, with calls that wait: for a clean stop,
    /// while no channel has the journal.
    ///
    /// # Errors
    /// The system's; what is not written then is written by a later call.
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

    /// Everything up to the head is durable; so it is said.
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

    /// The channel is gone, and what was under way with it: nobody knows how far it came, so it is
    /// done again.
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

    /// Bytes of the ring that have to stay as they are.
    fn taken(&self) -> u64 {
        self.head - self.given_back
    }

    /// Whether the log is so long that a checkpoint is worth its bytes; false while one goes on.
    pub(crate) fn is_long(&self) -> bool {
        let layout = &self.superblock.layout;
        let worth = 2 * self.last_len + 4 * u64::from(layout.frame_len);
        let is_idle = self.checkpoint.is_none() && self.moving == Move::None;
        is_idle && self.len() >= worth.min(layout.ring_len / 2)
    }

    /// A checkpoint begins: from now on the owner appends all of its state.
    pub(crate) fn begin_checkpoint(&mut self) {
        // The records that are in the open frame are older, and do no harm.
        self.checkpoint = Some(self.head);
    }

    /// All of the state was appended since the checkpoint began.
    pub(crate) fn end_checkpoint(&mut self) {
        self.seal();
        if let Some(start) = self.checkpoint.take() {
            let until = self.head;
            self.moving = Move::Waits { start, until };
        }
    }

    /// Where the log ends, with what is not sealed.
    pub(crate) fn reaches(&self) -> u64 {
        self.head + self.open.map_or(0, |open| u64::from(open.filled))
    }

    /// Where the log ends, but for what is not sealed.
    pub(crate) fn end(&self) -> u64 {
        self.head
    }

    /// Frames that begin before this are written.
    pub(crate) fn settled(&self) -> u64 {
        self.settled
    }

    /// Whether all that was appended is written.
    pub(crate) fn is_settled(&self) -> bool {
        self.open.is_none() && self.queue.is_empty()
    }

    /// Whether some frame is complete and not written, or some space not given back.
    pub(crate) fn has_to_write(&self) -> bool {
        !self.queue.is_empty() || self.given_back < self.superblock.start
    }

    /// Requests of its own that the medium has.
    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether a ticket is the journal's.
    pub(crate) fn owns(ticket: &Ticket) -> bool {
        ticket.number().is_some_and(|number| number >= TICKETS)
    }

    /// A turn of the owner's has begun: of frames the medium is handed a slice in it.
    pub(crate) fn begin_turn(&mut self) {
        self.left = self.slice;
        self.has_given_back = false;
        self.stall.age();
    }

    /// From now on so many bytes of frames are handed to the medium in one turn, a multiple of
    /// [`BLOCK`].
    pub(crate) fn set_slice(&mut self, slice: u32) {
        debug_assert!(slice > 0 && u64::from(slice).is_multiple_of(BLOCK));
        (self.slice, self.left) = (slice, slice);
    }

    /// Hands the medium what is to be done, as far as it has room. To be called before it is
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

    /// Gives a piece of the ring back. False where the medium has no room.
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

    /// Hands out what is left of a frame, as far as a slice goes. False where that is not all of
    /// it.
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
            // Before it is asked, which may end it at once.
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

    /// Asks the medium for something with a frame's bytes, or the superblock's. False where it has
    /// no room.
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

    /// A request of the journal's has ended.
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

    /// Frames that are written make room for others.
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

    /// The log begins at its new start.
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
