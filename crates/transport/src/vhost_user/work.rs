//! Requests become commands, and completions outcomes.
//!
//! A request has one command at a time: one that is longer than a command's data, or than a
//! command's blocks, goes on when the part before has completed. A slot keeps what it needs for
//! that, so that no descriptor of the driver is read twice.

use arrayvec::ArrayVec;
use memory::{Buffer, DmaView, Hint, HostMemory};
use nvme_spec::command::DsmRange;
use nvme_spec::{Cqe, Status};
use vhost_user::block::{ID_LEN, Outcome, RANGE_LEN, Range, RequestType, SECTOR};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::config::MAX_RANGES;
use super::disk::Disk;
use super::entry::{Blocks, Entries};
use super::queue::{Head, MAX_PIECES, Piece, Pieces};
use super::request::{Data, Request};
use crate::host::{PAGE, Rings};

/// Requests at the same time. More wait in their rings.
pub(super) const SLOTS: usize = 512;
/// Bytes of a slot: the list of a command's pieces or ranges, and the pieces of all of a request
/// that is longer than a command.
const SLOT_LEN: usize = 2 * PAGE;
/// Bytes of all slots.
pub(super) const SLOTS_LEN: usize = SLOTS * SLOT_LEN;
/// Blocks of one Write Zeroes: what its field has room for.
const ZEROED: u64 = 1 << 16;
/// Most bytes of data of a command.
const CHUNK: u64 = 1 << 20;

// The submission queue has room for the commands of all slots.
const _: () = assert!(SLOTS < super::QUEUE_DEPTH as usize);
const _: () = assert!(MAX_PIECES * size_of::<KeptPiece>() <= PAGE);
const _: () = assert!(MAX_RANGES * size_of::<DsmRange>() <= PAGE);

/// A piece in the private memory.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct KeptPiece {
    at: u64,
    len: u64,
}

/// Whose request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Whose {
    /// Index of the ring.
    pub(super) ring: u16,
    pub(super) head: Head,
}

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) whose: Whose,
    /// Bytes that were written, with the outcome.
    pub(super) written: u32,
    pub(super) has_failed: bool,
}

/// What a completion has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completed {
    /// The next part of the request is at the controller.
    GoesOn,
    Done(Done),
    /// The controller has given a command up that hangs: its medium may still have the memory.
    Hangs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Zero {
        deallocates: bool,
    },
    /// It has one command.
    Other,
}

/// A request at the controller.
#[derive(Clone, Copy, Debug)]
struct Task {
    whose: Whose,
    outcome_at: u64,
    written: u32,
    kind: Kind,
    /// Blocks that have no command yet.
    slba: u64,
    blocks: u64,
    /// Bytes of data before those, and pieces that are kept.
    at: u64,
    pieces: u16,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Work {
    memory: HostMemory,
    pub(super) rings: Rings,
    slots: Buffer,
    free: Vec<u16>,
    tasks: Box<[Option<Task>]>,
    nsid: u32,
    lba_shift: u8,
    id: [u8; ID_LEN],
    /// Bytes of a command's data at most.
    chunk: u64,
    /// The device deallocates.
    deallocates: bool,
    /// Writes are on stable media when they are done.
    is_writethrough: bool,
    hint: Hint,
}

impl Work {
    /// For a disk. `None`: there is no memory.
    pub(super) fn new(
        memory: HostMemory,
        rings: Rings,
        disk: &Disk,
        max_transfer: u64,
        deallocates: bool,
    ) -> Option<Self> {
        Some(Self {
            slots: memory.reserve(SLOTS_LEN, PAGE)?,
            memory,
            rings,
            free: (0..SLOTS as u16).rev().collect(),
            tasks: vec![None; SLOTS].into_boxed_slice(),
            nsid: disk.nsid,
            lba_shift: disk.lba_shift,
            id: disk.id,
            chunk: max_transfer.min(CHUNK),
            deallocates,
            is_writethrough: true,
            hint: Hint::default(),
        })
    }

    /// Whether the driver flushes: where not, writes are on stable media when they are done.
    pub(super) fn set_writethrough(&mut self, is_writethrough: bool) {
        self.is_writethrough = is_writethrough;
    }

    /// Whether it takes another request.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() && self.rings.room() > 0
    }

    /// Whether no request is at the controller.
    pub(super) fn is_idle(&self) -> bool {
        self.free.len() == SLOTS
    }

    /// Begins with a request, for which there is room. One that is done at once is returned.
    pub(super) fn begin(&mut self, whose: Whose, pieces: &Pieces, view: &DmaView) -> Option<Done> {
        let request = Request::parse(pieces, view, &mut self.hint);
        let Some(request) = request else {
            // It has no place for an outcome.
            return Some(Done {
                whose,
                written: 0,
                has_failed: true,
            });
        };
        match self.start(whose, &request, view) {
            Ok(()) => None,
            Err(outcome) => {
                self.note(request.outcome_at, outcome, view);
                Some(Done {
                    whose,
                    written: request.written,
                    has_failed: outcome != Outcome::OK,
                })
            }
        }
    }

    /// Gives a request to the controller, or its outcome.
    fn start(&mut self, whose: Whose, asked: &Request<'_>, view: &DmaView) -> Result<(), Outcome> {
        let task = |kind, slba, blocks| Task {
            whose,
            outcome_at: asked.outcome_at,
            written: asked.written,
            kind,
            slba,
            blocks,
            at: 0,
            pieces: 0,
        };
        let sector = asked.header.sector;
        match asked.header.kind {
            RequestType::IN => {
                let (slba, blocks) = self.blocks(sector, asked.into.len)?;
                self.transfer(task(Kind::Read, slba, blocks), &asked.into);
            }
            RequestType::OUT => {
                let (slba, blocks) = self.blocks(sector, asked.out.len)?;
                self.transfer(task(Kind::Write, slba, blocks), &asked.out);
            }
            RequestType::FLUSH => {
                let slot = self.take(task(Kind::Other, 0, 0));
                let sqe = self.entries(slot).flush();
                self.rings.store(&sqe);
            }
            RequestType::GET_ID => {
                let len = (ID_LEN as u64).min(asked.into.len);
                let into = asked.into.part(0, len);
                let is_written = into.write(view, &mut self.hint, &self.id[..len as usize]);
                return Err(if is_written {
                    Outcome::OK
                } else {
                    Outcome::IOERR
                });
            }
            RequestType::DISCARD if self.deallocates => {
                self.deallocate(task(Kind::Other, 0, 0), &asked.out, view)?;
            }
            RequestType::WRITE_ZEROES => {
                let mut bytes = [0; RANGE_LEN];
                let has_one = asked.out.len == RANGE_LEN as u64;
                if !has_one || !asked.out.read(view, &mut self.hint, &mut bytes) {
                    return Err(Outcome::IOERR);
                }
                let range = Range::parse(&bytes);
                if range.flags & !Range::UNMAP != 0 {
                    return Err(Outcome::UNSUPP);
                }
                let len = u64::from(range.sectors) * SECTOR;
                let (slba, blocks) = self.blocks(range.sector, len)?;
                let kind = Kind::Zero {
                    deallocates: range.flags & Range::UNMAP != 0,
                };
                self.transfer(task(kind, slba, blocks), &Data::NONE);
            }
            _ => return Err(Outcome::UNSUPP),
        }
        Ok(())
    }

    /// First block and number of blocks of bytes from a sector on. The outcome where they are not
    /// whole blocks, or none.
    fn blocks(&self, sector: u64, len: u64) -> Result<(u64, u64), Outcome> {
        let shift = u32::from(self.lba_shift);
        let per_block = (1u64 << shift) / SECTOR;
        // The end has a number, too: parts of a request go on from there.
        let is_whole = sector.is_multiple_of(per_block) && len.is_multiple_of(1 << shift);
        if !is_whole || sector.checked_add(len / SECTOR).is_none() {
            return Err(Outcome::IOERR);
        }
        match len >> shift {
            0 => Err(Outcome::OK),
            blocks => Ok((sector / per_block, blocks)),
        }
    }

    /// Begins with a request of blocks that have these data.
    fn transfer(&mut self, mut task: Task, data: &Data<'_>) {
        let first = self.next_count(&task);
        let slot = if first < task.blocks {
            self.keep(&mut task, data)
        } else {
            self.take(task)
        };
        self.advance(slot, data);
    }

    /// Takes a slot for a request of several commands, and keeps its pieces there.
    fn keep(&mut self, task: &mut Task, data: &Data<'_>) -> u16 {
        let kept = |(at, len): (u64, u32)| KeptPiece {
            at,
            len: len.into(),
        };
        let pieces: ArrayVec<KeptPiece, MAX_PIECES> = data.iter().map(kept).collect();
        task.pieces = pieces.len() as u16;
        let slot = self.take(*task);
        self.memory.write(self.kept_at(slot), pieces.as_bytes());
        slot
    }

    /// Gives the controller the next command of a request of blocks with these data: those that
    /// have no command yet.
    fn advance(&mut self, slot: u16, data: &Data<'_>) {
        let Some(mut task) = self.tasks[usize::from(slot)] else {
            return;
        };
        let count = self.next_count(&task);
        let (at, len) = (
            Blocks {
                slba: task.slba,
                count,
            },
            count << self.lba_shift,
        );
        let (entries, fua) = (self.entries(slot), self.is_writethrough);
        let sqe = match task.kind {
            Kind::Read => entries.read(at, &data.part(0, len), &self.memory),
            Kind::Write => entries.write(at, fua, &data.part(0, len), &self.memory),
            Kind::Zero { deallocates } => entries.zero(at, fua, deallocates),
            Kind::Other => return,
        };
        task.slba += count;
        task.blocks -= count;
        task.at += len;
        self.tasks[usize::from(slot)] = Some(task);
        self.rings.store(&sqe);
    }

    /// Blocks of the next command of a request.
    fn next_count(&self, task: &Task) -> u64 {
        let most = match task.kind {
            Kind::Zero { .. } => ZEROED,
            _ => self.chunk >> self.lba_shift,
        };
        task.blocks.min(most)
    }

    /// Begins to deallocate ranges.
    fn deallocate(&mut self, task: Task, data: &Data<'_>, view: &DmaView) -> Result<(), Outcome> {
        let mut bytes = [0; MAX_RANGES * RANGE_LEN];
        let len = usize::try_from(data.len).unwrap_or(usize::MAX);
        let Some(bytes) = bytes.get_mut(..len) else {
            return Err(Outcome::IOERR);
        };
        if len == 0 || len % RANGE_LEN != 0 || !data.read(view, &mut self.hint, bytes) {
            return Err(Outcome::IOERR);
        }
        let mut ranges: ArrayVec<DsmRange, MAX_RANGES> = ArrayVec::new();
        for bytes in bytes.as_chunks::<RANGE_LEN>().0 {
            let range = Range::parse(bytes);
            if range.flags != 0 {
                return Err(Outcome::UNSUPP);
            }
            match self.blocks(range.sector, u64::from(range.sectors) * SECTOR) {
                Ok((slba, blocks)) => ranges.push(DsmRange {
                    cattr: 0,
                    nlb: blocks as u32,
                    slba,
                }),
                Err(Outcome::OK) => {}
                Err(outcome) => return Err(outcome),
            }
        }
        if ranges.is_empty() {
            return Err(Outcome::OK);
        }
        let slot = self.take(task);
        let entries = self.entries(slot);
        self.memory.write(entries.list_at, ranges.as_bytes());
        self.rings.store(&entries.deallocate(ranges.len()));
        Ok(())
    }

    /// Takes a completion.
    pub(super) fn complete(&mut self, cqe: &Cqe, view: &DmaView) -> Option<Completed> {
        let (slot, status) = (cqe.cid, cqe.status.status());
        if status == Status::COMMAND_ABORT_REQUESTED {
            return Some(Completed::Hangs);
        }
        let task = (*self.tasks.get(usize::from(slot))?)?;
        if status.is_success() && task.blocks > 0 {
            self.go_on(slot, &task);
            return Some(Completed::GoesOn);
        }
        self.tasks[usize::from(slot)] = None;
        self.free.push(slot);
        let outcome = if status.is_success() {
            Outcome::OK
        } else {
            Outcome::IOERR
        };
        self.note(task.outcome_at, outcome, view);
        Some(Completed::Done(Done {
            whose: task.whose,
            written: task.written,
            has_failed: outcome != Outcome::OK,
        }))
    }

    /// The next command of a request whose last one was done.
    fn go_on(&mut self, slot: u16, task: &Task) {
        let mut kept = [KeptPiece { at: 0, len: 0 }; MAX_PIECES];
        let kept = &mut kept[..task.pieces.into()];
        self.memory.read(self.kept_at(slot), kept.as_mut_bytes());
        let pieces: ArrayVec<Piece, MAX_PIECES> = kept
            .iter()
            .map(|piece| Piece {
                at: piece.at,
                len: piece.len as u32,
                is_writable: false,
            })
            .collect();
        let left = task.blocks << self.lba_shift;
        let data = match task.kind {
            Kind::Read | Kind::Write => Data::new(&pieces, task.at, left),
            Kind::Zero { .. } | Kind::Other => Data::NONE,
        };
        self.advance(slot, &data);
    }

    /// Writes an outcome where the driver looks for it. Without its memory there is none.
    fn note(&mut self, at: u64, outcome: Outcome, view: &DmaView) {
        let place = [Piece {
            at,
            len: 1,
            is_writable: true,
        }];
        Data::new(&place, 0, 1).write(view, &mut self.hint, &[outcome.0]);
    }

    /// Takes a slot: there is one.
    fn take(&mut self, task: Task) -> u16 {
        let slot = self.free.pop().expect("there is room");
        self.tasks[usize::from(slot)] = Some(task);
        slot
    }

    fn entries(&self, slot: u16) -> Entries {
        Entries {
            nsid: self.nsid,
            cid: slot,
            list_at: self.slots.offset() + usize::from(slot) * SLOT_LEN,
        }
    }

    /// Where a slot keeps the pieces of all of a request.
    fn kept_at(&self, slot: u16) -> usize {
        self.slots.offset() + usize::from(slot) * SLOT_LEN + PAGE
    }
}
