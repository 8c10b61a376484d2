//! Limit on bytes copied by the processor for a channel in one turn, by us or by the kernel. The
//! rest waits for the next turn, so that other channels get theirs, and due completions are handled
//! in between.

use super::direct::Access;
use super::op::{Buffer, Io};
use super::open::Opened;
use super::ring::BOUNCE_BYTES;

/// Bytes per turn if operations are synchronous calls.
const TURN_BYTES: u64 = 256 << 10;

#[derive(Debug)]
pub(super) struct Pace {
    /// Bytes per copy.
    slice: u32,
    /// Bytes per turn; all ones without a limit.
    turn: u64,
    /// Bytes left in this turn.
    left: u64,
    /// Whether the kernel copies the data that it reads and writes.
    is_buffered: bool,
}

impl Pace {
    /// `slice` is the limit of a medium with timing, which also applies per turn.
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

    /// Whether a command of this many bytes runs in slices. `bounced`: its data goes through a
    /// bounce buffer.
    #[inline]
    pub(super) fn slices(&self, bytes: u64, bounced: bool) -> bool {
        let is_copied = bounced || self.is_buffered;
        is_copied && self.turn == u64::from(self.slice) && bytes > self.turn
    }

    /// Bytes of the next copy, out of this many.
    #[inline]
    pub(super) fn round(&self, bytes: u64) -> u32 {
        bytes.min(self.slice.into()) as u32
    }

    /// Whether the turn has bytes left.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.left > 0
    }

    /// Accounts for the bytes that the processor copies for an operation; `left` is the rest of its
    /// command.
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

    /// Starts the next turn.
    #[inline]
    pub(super) fn renew(&mut self) {
        self.left = self.turn;
    }
}
