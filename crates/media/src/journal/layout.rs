//! Layout of a state area, and of the heads of its superblocks and frames.
//!
//! ```text
//! [ring: the log, frame after frame, from its end back to its start] [superblock] [superblock]
//! ```
//!
//! The superblocks are the last two blocks of the file. The newer valid one counts, and the other
//! one is written next, so that one is valid at any moment. All numbers are little-endian.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::crc::{self, Crc};
use super::{StateError, Storage};

/// Alignment of frames and superblocks, and unit of writes.
pub(crate) const BLOCK: u64 = 4096;
/// Number of words that describe a medium's shape.
pub(crate) const SHAPE_WORDS: usize = 6;
/// The only format that is written and read.
pub(super) const FORMAT: u32 = 1;
/// The most bytes of a frame.
pub(super) const FRAME_MAX: u64 = 16 << 20;
/// Bytes that two superblocks take.
pub(crate) const SUPERBLOCKS: u64 = 2 * BLOCK;
const MAGIC: [u8; 8] = *b"nvmirage";
const FRAME_MAGIC: u32 = 0x6d72_666e;

/// Kind of the medium that the state belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Zoned = 1,
    KeyValue = 2,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Kind::Zoned => "zones",
            Kind::KeyValue => "keys",
        })
    }
}

/// Kind and shape of a medium, in words of its owner's choice. Media that differ in it are
/// different.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: Kind,
    pub(crate) words: [u64; SHAPE_WORDS],
}

/// Position of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// First byte of the ring: a multiple of [`BLOCK`].
    pub(crate) ring: u64,
    /// Bytes of the ring: a multiple of [`BLOCK`], and of eight frames at least.
    pub(crate) ring_len: u64,
    /// Bytes of the largest frame: a multiple of [`BLOCK`].
    pub(crate) frame_len: u32,
}

impl Layout {
    /// Bytes of the file.
    pub(crate) fn file_len(&self) -> u64 {
        self.ring + self.ring_len + SUPERBLOCKS
    }

    /// Position of the superblock with this number.
    pub(super) fn superblock(&self, sequence: u64) -> u64 {
        self.ring + self.ring_len + sequence % 2 * BLOCK
    }

    /// Position in the file of the frame at this position of the log.
    pub(super) fn place(&self, position: u64) -> u64 {
        self.ring + position % self.ring_len
    }

    /// Position of the frame after one that ends at `end`: at the ring's start, if the largest
    /// frame would not fit before the ring's end.
    pub(super) fn next(&self, end: u64) -> u64 {
        let left = self.ring_len - end % self.ring_len;
        if left < self.frame_len.into() {
            end + left
        } else {
            end
        }
    }

    fn is_possible(&self, file_len: u64) -> bool {
        let (ring, ring_len, frame_len) = (self.ring, self.ring_len, u64::from(self.frame_len));
        let blocks = [ring, ring_len, frame_len];
        let end = ring
            .checked_add(ring_len)
            .and_then(|end| end.checked_add(SUPERBLOCKS));
        blocks.iter().all(|len| len.is_multiple_of(BLOCK))
            && (BLOCK..=FRAME_MAX).contains(&frame_len)
            && ring_len >= 8 * frame_len
            && end == Some(file_len)
    }
}

/// Contents of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub(crate) shape: Shape,
    pub(crate) layout: Layout,
    /// Identifier of the log, unique to it.
    pub(super) log: u64,
    /// Number of times that the log was opened: a frame of an earlier incarnation does not continue
    /// a later one.
    pub(super) incarnation: u32,
    /// Number of superblocks written before.
    pub(super) sequence: u64,
    /// Start of the log; everything before it is unused.
    pub(super) start: u64,
    /// Minimum end of the log.
    pub(super) known: u64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
struct SuperblockBytes {
    magic: [u8; 8],
    format: U32,
    /// Checksum of the whole block, with zeros here.
    crc: U32,
    kind: U32,
    frame_len: U32,
    incarnation: U32,
    _reserved: U32,
    log: U64,
    sequence: U64,
    ring: U64,
    ring_len: U64,
    start: U64,
    known: U64,
    shape: [U64; SHAPE_WORDS],
    _rest: [u8; 3968],
}

const _: () = assert!(size_of::<SuperblockBytes>() as u64 == BLOCK);

/// Contents of a block that may be a superblock.
enum Found {
    Whole(Superblock),
    /// A superblock of another format.
    Other(u32),
    /// A damaged superblock.
    Broken,
    Nothing,
}

impl Superblock {
    /// The encoded block.
    pub(super) fn to_bytes(self) -> [u8; BLOCK as usize] {
        let mut bytes = SuperblockBytes {
            magic: MAGIC,
            format: FORMAT.into(),
            crc: 0.into(),
            kind: (self.shape.kind as u32).into(),
            frame_len: self.layout.frame_len.into(),
            incarnation: self.incarnation.into(),
            _reserved: 0.into(),
            log: self.log.into(),
            sequence: self.sequence.into(),
            ring: self.layout.ring.into(),
            ring_len: self.layout.ring_len.into(),
            start: self.start.into(),
            known: self.known.into(),
            shape: self.shape.words.map(U64::new),
            _rest: [0; 3968],
        };
        bytes.crc = crc::of(bytes.as_bytes()).into();
        zerocopy::transmute!(bytes)
    }

    fn find(block: [u8; BLOCK as usize], file_len: u64) -> Found {
        let mut bytes: SuperblockBytes = zerocopy::transmute!(block);
        if bytes.magic != MAGIC {
            return Found::Nothing;
        }
        let crc = std::mem::take(&mut bytes.crc);
        if crc.get() != crc::of(bytes.as_bytes()) {
            return Found::Broken;
        }
        if bytes.format != FORMAT {
            return Found::Other(bytes.format.get());
        }
        let kind = match bytes.kind.get() {
            1 => Kind::Zoned,
            2 => Kind::KeyValue,
            _ => return Found::Broken,
        };
        let layout = Layout {
            ring: bytes.ring.get(),
            ring_len: bytes.ring_len.get(),
            frame_len: bytes.frame_len.get(),
        };
        let (start, known) = (bytes.start.get(), bytes.known.get());
        let ends = start
            .checked_add(layout.ring_len)
            .filter(|end| *end < u64::MAX / 2);
        let is_possible = layout.is_possible(file_len)
            && bytes.sequence.get() < u64::MAX / 2
            && start.is_multiple_of(BLOCK)
            && ends.is_some_and(|end| (start..=end).contains(&known));
        if !is_possible {
            return Found::Broken;
        }
        Found::Whole(Superblock {
            shape: Shape {
                kind,
                words: bytes.shape.map(U64::get),
            },
            layout,
            log: bytes.log.get(),
            incarnation: bytes.incarnation.get(),
            sequence: bytes.sequence.get(),
            start,
            known,
        })
    }

    /// Reads the valid superblock of a file of this length.
    ///
    /// # Errors
    /// [`StateError`]: it is not ours, of another format, or damaged.
    pub(crate) fn read(storage: &impl Storage, file_len: u64) -> Result<Superblock, StateError> {
        let Some(at) = file_len.checked_sub(SUPERBLOCKS) else {
            return Err(StateError::NotOurs);
        };
        let mut found = [Found::Nothing, Found::Nothing];
        for (index, found) in (0..).zip(&mut found) {
            let mut block = [0; BLOCK as usize];
            storage.read_at(at + index * BLOCK, &mut block)?;
            *found = Self::find(block, file_len);
        }
        match found {
            [Found::Whole(one), Found::Whole(two)] if one.sequence > two.sequence => Ok(one),
            [_, Found::Whole(one)] | [Found::Whole(one), _] => Ok(one),
            [Found::Other(format), _] | [_, Found::Other(format)] => {
                Err(StateError::Format { found: format })
            }
            [Found::Nothing, Found::Nothing] => Err(StateError::NotOurs),
            _ => Err(StateError::Damaged("both of its superblocks are broken")),
        }
    }
}

/// Head of a frame.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Clone, Copy)]
#[repr(C)]
pub(super) struct FrameHead {
    magic: U32,
    /// Checksum of the records, and then of this head with zeros here.
    crc: U32,
    log: U64,
    position: U64,
    incarnation: U32,
    /// Bytes of the records.
    len: U32,
}

/// Bytes of a frame's head.
pub(super) const FRAME_HEAD: usize = size_of::<FrameHead>();

impl FrameHead {
    /// The head of a frame whose records have this checksum.
    pub(super) fn new(log: u64, position: u64, incarnation: u32, len: u32, records: Crc) -> Self {
        let mut head = FrameHead {
            magic: FRAME_MAGIC.into(),
            crc: 0.into(),
            log: log.into(),
            position: position.into(),
            incarnation: incarnation.into(),
            len: len.into(),
        };
        head.crc = head.checksum(records).into();
        head
    }

    fn checksum(mut self, mut records: Crc) -> u32 {
        self.crc = 0.into();
        records.add(self.as_bytes());
        records.value()
    }

    /// Length of the records of a frame that belongs here, of this incarnation or a later one. A
    /// later incarnation than the superblock's was written under a newer superblock, which is
    /// damaged.
    pub(super) fn belongs(&self, (log, position): (u64, u64), earliest: u32) -> Option<usize> {
        let is_it = self.magic == FRAME_MAGIC && self.log == log && self.position == position;
        let belongs = is_it && self.incarnation.get() >= earliest;
        belongs.then_some(self.len.get() as usize)
    }

    pub(super) fn incarnation(&self) -> u32 {
        self.incarnation.get()
    }

    /// Whether the checksum matches these records.
    pub(super) fn is_of(&self, records: &[u8]) -> bool {
        let mut crc = Crc::new();
        crc.add(records);
        self.checksum(crc) == self.crc.get()
    }
}

/// Size of a frame with this many bytes of records.
pub(super) fn frame_bytes(records: usize) -> u64 {
    ((FRAME_HEAD + records) as u64).next_multiple_of(BLOCK)
}
