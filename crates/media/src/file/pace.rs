//! How many bytes the processor copies for a channel in one turn, by our hand or the kernel's: what
//! is left waits for the next turn, so that others have theirs, and what is due is looked for in
//! between.

use super::direct::Access;
use super::op::{Buffer, Io};
use super::open::Opened;
use super::ring::BOUNCE_BYTES;

/// Where operations are calls that end at once: bytes in a turn.
const TURN_BYTES: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes that are copied at a time.
    slice: u32,
    /// Bytes in a turn; all ones where that does not matter.
    turn: u64,
    /// Of this turn.
    left: u64,
    /// The kernel copies what it reads and writes.
    is_buffered: bool,
}

impl Pace {
    /// `slice`: of a medium with the time of a drive, where no more is copied in a turn.
    pub(super) fn new(slice: Option<u32>, opened: &Opened) -> Pace {
        let turn = match (slice, opened.is_memory) {
            (Some(slice), _) => slice.into(),
            (None, true) => TURN_BYTES,
            (None, false) => u64::MAX,
        };
        Pace {
            slice: slice.map_or(BOUNCE_BYTES, |slice| slice.min(BOUNCE_BYTES)),
            turn,
            left: turn,
            is_buffered: matches!(opened.access, Access::Buffered(_)),
        }
    }

    /// Whether a command of so many bytes is done in slices. `bounced`: we copy it.
    #[inline]
    pub(super) fn slices(&self, bytes: u64, bounced: bool) -> bool {
        let is_copied = bounced || self.is_buffered;
        is_copied && self.turn == u64::from(self.slice) && bytes > self.turn
    }

    /// Of so many bytes, those that are copied at a time.
    #[inline]
    pub(super) fn round(&self, bytes: u64) -> u32 {
        bytes.min(self.slice.into()) as u32
    }

    /// Whether there is something left of the turn.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.left > 0
    }

    /// Spends what the processor copies for an operation; `left`: the bytes of its command.
    #[inline]
    pub(super) fn spend_on(&mut self, io: Io, left: u64) {
        if self.turn == u64::MAX {
            return;
        }
        let (Io::Read { into: buffer, .. } | Io::Write { from: buffer, .. }) = io else {
            return;
        };
        self.spend(match buffer {
            Buffer::Bounce(bytes) => bytes.into(),
            Buffer::Zeros(bytes) if self.is_buffered => bytes.into(),
            Buffer::Segments if self.is_buffered => left,
            Buffer::Zeros(_) | Buffer::Segments => 0,
        });
    }

    #[inline]
    pub(super) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }

    /// The next turn begins.
    #[inline]
    pub(super) fn renew(&mut self) {
        self.left = self.turn;
    }
}
