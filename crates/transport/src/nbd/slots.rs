//! Slots for the data of a client's commands, in its private memory.

use memory::{Buffer, HostMemory};
use nvme_spec::Status;

use super::extents::Extents;
use super::split::Piece;
use super::{LARGE, SMALL};
use crate::host::PAGE;

/// Bytes of a small slot: a page of data that does not begin with a page, or a block as it was and
/// as it is to be.
pub(super) const SMALL_LEN: usize = 2 * PAGE;
/// Bytes of a large slot.
pub(super) const LARGE_LEN: usize = 128 << 10;

/// Bytes of all slots.
pub(super) const SLOTS_LEN: usize = SMALL * SMALL_LEN + LARGE * LARGE_LEN;

/// Use of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Data of a write come.
    Receiving,
    /// One command, whose completion is the piece's.
    Command,
    /// The block of a part is read.
    ReadPart,
    /// It is compared with what was read, and written: which of the two has completed, whether it
    /// is the second, and its status.
    Exchange(Option<(bool, Status)>),
    /// Blocks are deallocated.
    Trim,
    /// A query for the next extent, whose descriptors lie in the slot.
    Status(Extents),
    /// Data of a read wait for the reply.
    Held,
}

/// A slot in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Task {
    /// Index of its request.
    pub(super) request: u16,
    pub(super) piece: Piece,
    pub(super) is: Use,
    /// How often the part of a block was tried again.
    pub(super) retries: u32,
    /// The slot with the next data of its request.
    pub(super) next: Option<u16>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Slots {
    buffer: Buffer,
    free_small: Vec<u16>,
    free_large: Vec<u16>,
    tasks: Box<[Option<Task>]>,
}

impl Slots {
    /// `None`: there is no memory.
    pub(super) fn new(memory: &HostMemory) -> Option<Self> {
        let (small, all) = (SMALL as u16, (SMALL + LARGE) as u16);
        Some(Self {
            buffer: memory.reserve(SLOTS_LEN, PAGE)?,
            free_small: (0..small).rev().collect(),
            free_large: (small..all).rev().collect(),
            tasks: vec![None; all.into()].into_boxed_slice(),
        })
    }

    /// A slot for a task with `len` bytes of data, if one of that size is free.
    pub(super) fn take(&mut self, len: u64, task: Task) -> Option<u16> {
        let free = if len <= SMALL_LEN as u64 {
            &mut self.free_small
        } else {
            &mut self.free_large
        };
        let slot = free.pop()?;
        self.tasks[usize::from(slot)] = Some(task);
        Some(slot)
    }

    /// A slot is free.
    pub(super) fn give_back(&mut self, slot: u16) {
        let task = self.tasks[usize::from(slot)].take();
        debug_assert!(task.is_some(), "a slot is given back once");
        if usize::from(slot) < SMALL {
            self.free_small.push(slot);
        } else {
            self.free_large.push(slot);
        }
    }

    /// The task of a slot, if it is in use.
    pub(super) fn get_mut(&mut self, slot: u16) -> Option<&mut Task> {
        self.tasks.get_mut(usize::from(slot))?.as_mut()
    }

    /// Whether a part of this block is being written.
    pub(super) fn has_part_of(&self, slba: u64) -> bool {
        let is_part = |task: &Task| {
            task.piece.slba == slba && matches!(task.is, Use::ReadPart | Use::Exchange(_))
        };
        self.tasks[..SMALL].iter().flatten().any(is_part)
    }

    /// Where a slot lies in the private memory.
    pub(super) fn at(&self, slot: u16) -> usize {
        let slot = usize::from(slot);
        self.buffer.offset()
            + if slot < SMALL {
                slot * SMALL_LEN
            } else {
                SMALL * SMALL_LEN + (slot - SMALL) * LARGE_LEN
            }
    }
}
