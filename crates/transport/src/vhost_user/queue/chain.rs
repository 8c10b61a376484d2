//! The walk of a request's descriptors (VIRTIO 1.3, 2.7.5, 2.8.5 to 2.8.8).
//!
//! Invariants:
//! - A descriptor is copied once, and only the copy is checked and used.
//! - A walk ends after as many descriptors as its table or ring has, and after [`MAX_PIECES`]
//!   pieces. Every broken rule is a fault of the whole ring: a driver that breaks one is not to be
//!   trusted with the next request.
//!
//! It does NOT check whether the pieces lie in the guest's memory.

use memory::{DmaView, Hint, Iova, Need, SplitRing};

use super::fault::RingFault;
use super::request::{MAX_PIECES, Piece, Pieces};
use crate::host::BASE;

/// `VIRTQ_DESC_F_NEXT`, `_WRITE` and `_INDIRECT`.
pub(super) const NEXT: u16 = 1;
pub(super) const WRITE: u16 = 1 << 1;
pub(super) const INDIRECT: u16 = 1 << 2;

/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;
/// Most descriptors of an indirect table: indices have 15 bits.
const MAX_TABLE: u32 = 1 << 15;
/// Descriptors of an indirect table that are copied at once.
const COPIED: usize = 32;

/// The guest's memory, for indirect tables.
#[derive(Debug)]
pub(super) struct Tables<'a> {
    pub(super) view: &'a DmaView,
    pub(super) hint: &'a mut Hint,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub(super) are_allowed: bool,
}

/// The pieces of one request, while they are found.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    pieces: &'a mut Pieces,
    len: u64,
}

impl<'a> Chain<'a> {
    /// No pieces.
    #[inline]
    pub(super) fn new(pieces: &'a mut Pieces) -> Self {
        pieces.clear();
        Self { pieces, len: 0 }
    }

    /// Adds the piece of a descriptor that is not indirect.
    #[inline]
    pub(super) fn add(&mut self, at: u64, len: u32, flags: u16) -> Result<(), RingFault> {
        let is_writable = flags & WRITE != 0;
        if !is_writable && self.pieces.last().is_some_and(|last| last.is_writable) {
            return Err(RingFault::Order);
        }
        self.len += u64::from(len);
        if self.len > u64::from(u32::MAX) {
            return Err(RingFault::TooLong);
        }
        let piece = Piece {
            at,
            len,
            is_writable,
        };
        let added = self.pieces.try_push(piece);
        added.map_err(|_| RingFault::Pieces)
    }

    /// Adds the pieces of a table whose descriptors lie one behind the other (packed).
    pub(super) fn add_list(
        &mut self,
        tables: &mut Tables<'_>,
        at: u64,
        len: u32,
        flags: u16,
    ) -> Result<(), RingFault> {
        let mut table = Table::new(tables, at, len, flags)?;
        if table.count as usize > MAX_PIECES {
            return Err(RingFault::Pieces);
        }
        for index in 0..table.count {
            let (at, second) = table.descriptor(index)?;
            let flags = (second >> 48) as u16;
            if flags & INDIRECT != 0 {
                return Err(RingFault::Nested);
            }
            self.add(at, second as u32, flags)?;
        }
        Ok(())
    }

    /// Adds the pieces of a table whose descriptors name their next one (split).
    fn add_table(
        &mut self,
        tables: &mut Tables<'_>,
        at: u64,
        len: u32,
        flags: u16,
    ) -> Result<(), RingFault> {
        let mut table = Table::new(tables, at, len, flags)?;
        let mut index = 0;
        for _ in 0..table.count {
            let (at, second) = table.descriptor(index)?;
            let (flags, next) = ((second >> 32) as u16, (second >> 48) as u16);
            if flags & INDIRECT != 0 {
                return Err(RingFault::Nested);
            }
            self.add(at, second as u32, flags)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = u32::from(next);
            if index >= table.count {
                return Err(RingFault::Index(next));
            }
        }
        Err(RingFault::Endless)
    }
}

/// Walks the chain from descriptor `head` of a split ring of `size` entries.
pub(super) fn walk(
    ring: &SplitRing,
    size: u16,
    head: u16,
    tables: &mut Tables<'_>,
    pieces: &mut Pieces,
) -> Result<(), RingFault> {
    let mut chain = Chain::new(pieces);
    let mut index = head;
    for _ in 0..size {
        if index >= size {
            return Err(RingFault::Index(index));
        }
        let descriptor = ring.descriptor(index);
        let (addr, len, flags) = (descriptor.addr, descriptor.len, descriptor.flags);
        if flags & INDIRECT != 0 {
            return chain.add_table(tables, addr, len, flags);
        }
        chain.add(addr, len, flags)?;
        if flags & NEXT == 0 {
            return Ok(());
        }
        index = descriptor.next;
    }
    Err(RingFault::Endless)
}

/// An indirect table, copied piece by piece.
struct Table<'a, 'b> {
    tables: &'a mut Tables<'b>,
    at: u64,
    count: u32,
    copy: [u8; COPIED * DESCRIPTOR],
    /// The descriptors in `copy`: the first one, and how many.
    first: u32,
    copied: u32,
}

impl<'a, 'b> Table<'a, 'b> {
    /// The table that an indirect descriptor names.
    fn new(tables: &'a mut Tables<'b>, at: u64, len: u32, flags: u16) -> Result<Self, RingFault> {
        if !tables.are_allowed {
            return Err(RingFault::Indirect);
        }
        if flags & NEXT != 0 {
            return Err(RingFault::IndirectNext);
        }
        let count = len / DESCRIPTOR as u32;
        if !len.is_multiple_of(DESCRIPTOR as u32) || !(1..=MAX_TABLE).contains(&count) {
            return Err(RingFault::TableLength(len));
        }
        // Above lies what is not the guest's.
        if at.checked_add(len.into()).is_none_or(|end| end > BASE) {
            return Err(RingFault::Table);
        }
        Ok(Self {
            tables,
            at,
            count,
            copy: [0; COPIED * DESCRIPTOR],
            first: 0,
            copied: 0,
        })
    }

    /// A descriptor: its address, and the word with its other fields.
    #[inline]
    fn descriptor(&mut self, index: u32) -> Result<(u64, u64), RingFault> {
        if !(self.first..self.first + self.copied).contains(&index) {
            self.copy_from(index)?;
        }
        let at = (index - self.first) as usize * DESCRIPTOR;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&self.copy[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Ok((word(at), word(at + 8)))
    }

    fn copy_from(&mut self, index: u32) -> Result<(), RingFault> {
        let count = (self.count - index).min(COPIED as u32);
        let mut at = self.at + u64::from(index) * DESCRIPTOR as u64;
        let mut rest = &mut self.copy[..count as usize * DESCRIPTOR];
        let Tables { view, hint, .. } = &mut *self.tables;
        while !rest.is_empty() {
            let found = view.translate(hint, Iova(at), rest.len() as u32, Need::DeviceReads);
            let segment = found.map_err(|_| RingFault::Table)?;
            let (now, later) = rest.split_at_mut(segment.len() as usize);
            segment.read_into(0, now);
            at = at.wrapping_add(u64::from(segment.len()));
            rest = later;
        }
        (self.first, self.copied) = (index, count);
        Ok(())
    }
}
