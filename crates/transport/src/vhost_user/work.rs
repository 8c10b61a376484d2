//! Requests become commands, and completions outcomes.
//!
//! A request has one command at a time: one that is longer than a command's data, or than a
//! command's blocks, goes on when the part before has completed. A slot keeps what it needs for
//! that, so that no descriptor of the driver is read twice.

use arrayvec::ArrayVec;
use memory::{Buffer, DmaView, Hint, HostMemory, Iova, Need};
use nvme_spec::command::DsmRange;
use nvme_spec::{Cqe, Sqe, Status};
use vhost_user::block::{ID_LEN, Outcome, RANGE_LEN, Range, RequestType, SECTOR};
use vhost_user::zones::{APPEND_SECTOR_LEN, REPORT_UNIT};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::config::MAX_RANGES;
use super::disk::{CHUNK, Disk};
use super::entry::{prps, with_data};
use super::queue::{Head, MAX_PIECES, Piece, Pieces};
use super::request::{Data, Plain, Request};
use super::zones::{REPORTED, action, outcome, pass_on, write_header};
use crate::host::{Blocks, Entries, PAGE, Rings, Zones};

/// Requests at the same time. More wait in their rings.
pub(super) const SLOTS: usize = 512;
/// Bytes of a slot: the list of a command's pieces or ranges, and the pieces of all of a request
/// that is longer than a command.
const SLOT_LEN: usize = 2 * PAGE;
/// Bytes of all slots.
pub(super) const SLOTS_LEN: usize = SLOTS * SLOT_LEN;
/// Blocks of one Write Zeroes: what its field has room for.
const ZEROED: u64 = 1 << 16;

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

/// The outcome of a completion.
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
    /// A report of zones: each command has some of them.
    Report,
    /// It has one command, as have those below.
    Other,
    Append,
    /// A change of zones.
    Manage,
}

impl Kind {
    /// Whether only a device with zones has such a request.
    fn is_of_zones(self) -> bool {
        matches!(self, Kind::Report | Kind::Append | Kind::Manage)
    }
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
    /// Bytes of data before those, or of a report as far as it is written; and pieces that are
    /// kept.
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
    /// It erases what zeroes are written to.
    erases: bool,
    zones: Option<Zones>,
    /// The driver does not know of the zones.
    is_unaware: bool,
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
            deallocates: disk.deallocates,
            erases: disk.erases,
            zones: disk.zones,
            is_unaware: disk.zones.is_some(),
            is_writethrough: true,
            hint: Hint::default(),
        })
    }

    /// Whether the driver flushes: where not, writes are on stable media when they are done.
    pub(super) fn set_writethrough(&mut self, is_writethrough: bool) {
        self.is_writethrough = is_writethrough;
    }

    /// Whether the driver knows of zones. Where the device has some and it does not, requests fail.
    pub(super) fn set_zoned(&mut self, is_zoned: bool) {
        self.is_unaware = self.zones.is_some() && !is_zoned;
    }

    /// Whether the device has zones of which the driver does not know.
    pub(super) fn is_unaware(&self) -> bool {
        self.is_unaware
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
    #[inline]
    pub(super) fn begin(&mut self, whose: Whose, pieces: &Pieces, view: &DmaView) -> Option<Done> {
        if self.zones.is_none()
            && let Some(plain) = Plain::parse(pieces, view, &mut self.hint)
            && self.begin_plain(whose, &plain)
        {
            return None;
        }
        self.begin_any(whose, pieces, view)
    }

    /// Begins with a plain request of one command whose data PRPs can describe. Otherwise it does
    /// nothing, and returns false.
    #[inline]
    fn begin_plain(&mut self, whose: Whose, plain: &Plain) -> bool {
        let len = u64::from(plain.len);
        let Ok((slba, count)) = self.blocks(plain.sector, len) else {
            return false;
        };
        // A command has at least as many bytes as two entries can describe.
        let Some((prp1, prp2)) = prps(plain.at, plain.len) else {
            return false;
        };
        let written = if plain.is_write { 1 } else { plain.len + 1 };
        let slot = self.take(Task {
            whose,
            outcome_at: plain.outcome_at,
            written,
            kind: Kind::Other,
            slba: 0,
            blocks: 0,
            at: 0,
            pieces: 0,
        });
        let (entries, blocks) = (self.entries(slot), Blocks { slba, count });
        let entry = if plain.is_write {
            entries.write(blocks, self.is_writethrough)
        } else {
            entries.read(blocks)
        };
        self.rings.store(&Sqe {
            prp1,
            prp2,
            ..entry
        });
        true
    }

    /// Begins with a request of any kind.
    fn begin_any(&mut self, whose: Whose, pieces: &Pieces, view: &DmaView) -> Option<Done> {
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
        let (kind, sector) = (asked.header.kind, asked.header.sector);
        if self.is_unaware && kind != RequestType::GET_ID {
            return Err(if kind.is_of_zones() {
                Outcome::UNSUPP
            } else {
                Outcome::IOERR
            });
        }
        match kind {
            RequestType::IN => {
                let (slba, blocks) = self.blocks(sector, asked.into.len)?;
                self.check_zone(slba, blocks)?;
                self.transfer(task(Kind::Read, slba, blocks), &asked.into);
            }
            RequestType::OUT => {
                let (slba, blocks) = self.written(sector, asked.out.len)?;
                self.check_zone(slba, blocks)?;
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
                return Err(written_or_failed(is_written));
            }
            RequestType::DISCARD if self.deallocates => {
                self.deallocate(task(Kind::Other, 0, 0), &asked.out, view)?;
            }
            RequestType::WRITE_ZEROES if self.zones.is_none() => {
                let range = self.range(&asked.out, Range::UNMAP, view)?;
                let (slba, blocks) = self.blocks_of(&range)?;
                let kind = Kind::Zero {
                    deallocates: range.flags & Range::UNMAP != 0,
                };
                self.transfer(task(kind, slba, blocks), &Data::NONE);
            }
            RequestType::SECURE_ERASE if self.erases => {
                let range = self.range(&asked.out, 0, view)?;
                let (slba, blocks) = self.blocks_of(&range)?;
                let kind = Kind::Zero { deallocates: false };
                self.transfer(task(kind, slba, blocks), &Data::NONE);
            }
            kind if kind.is_of_zones() => {
                let zones = self.zones.ok_or(Outcome::UNSUPP)?;
                self.start_zoned(&zones, task(Kind::Manage, 0, 0), asked, view)?;
            }
            _ => return Err(Outcome::UNSUPP),
        }
        Ok(())
    }

    /// The same, of a request about zones.
    fn start_zoned(
        &mut self,
        zones: &Zones,
        task: Task,
        asked: &Request<'_>,
        view: &DmaView,
    ) -> Result<(), Outcome> {
        let sector = asked.header.sector;
        let invalid = Outcome::ZONE_INVALID_CMD;
        let block = sector / (1 << self.lba_shift >> SECTOR.ilog2());
        match asked.header.kind {
            RequestType::ZONE_REPORT => {
                let room = asked.into.len / REPORT_UNIT as u64;
                let (first, count) = (block / zones.blocks, u64::from(zones.count));
                if room == 0 || first >= count {
                    return Err(invalid);
                }
                let wanted = (room - 1).min(count - first);
                let mut task = Task {
                    kind: Kind::Report,
                    slba: first * zones.blocks,
                    blocks: wanted * zones.blocks,
                    at: REPORT_UNIT as u64,
                    ..task
                };
                if wanted == 0 {
                    let is_written = write_header(&asked.into, task.at, view, &mut self.hint);
                    return Err(written_or_failed(is_written));
                }
                let slot = self.keep(&mut task, &asked.into);
                self.advance(slot, &Data::NONE);
            }
            RequestType::ZONE_APPEND => {
                // The place that it has written, if it was executed before, cannot be found.
                if task.whose.head.is_again {
                    return Err(Outcome::IOERR);
                }
                let zone = zones.blocks << self.lba_shift >> SECTOR.ilog2();
                let is_first = sector.is_multiple_of(zone);
                // Linux has bytes without meaning between the sector and the outcome.
                let has_place = asked.into.len >= APPEND_SECTOR_LEN as u64;
                if !is_first || !has_place || !(1..=zones.append_len).contains(&asked.out.len) {
                    return Err(invalid);
                }
                let (slba, count) = self.written(sector, asked.out.len)?;
                let mut task = Task {
                    kind: Kind::Append,
                    ..task
                };
                let slot = self.keep(&mut task, &asked.into);
                let entries = self.entries(slot);
                let sqe = entries.append(Blocks { slba, count }, self.is_writethrough);
                let sqe = with_data(sqe, &asked.out, &self.memory, entries.at);
                self.rings.store(&sqe);
            }
            kind => {
                let (action, all) = action(kind).ok_or(Outcome::UNSUPP)?;
                let slba = if all { 0 } else { block };
                if !all && !sector.is_multiple_of(1 << self.lba_shift >> SECTOR.ilog2()) {
                    return Err(invalid);
                }
                let slot = self.take(task);
                let sqe = self.entries(slot).send(action, slba, all);
                self.rings.store(&sqe);
            }
        }
        Ok(())
    }

    /// The one range of a request, without other flags than these.
    fn range(&mut self, data: &Data<'_>, flags: u32, view: &DmaView) -> Result<Range, Outcome> {
        let mut bytes = [0; RANGE_LEN];
        let has_one = data.len == RANGE_LEN as u64;
        if !has_one || !data.read(view, &mut self.hint, &mut bytes) {
            return Err(Outcome::IOERR);
        }
        let range = Range::parse(&bytes);
        if range.flags & !flags != 0 {
            return Err(Outcome::UNSUPP);
        }
        Ok(range)
    }

    fn blocks_of(&self, range: &Range) -> Result<(u64, u64), Outcome> {
        self.blocks(range.sector, u64::from(range.sectors) * SECTOR)
    }

    /// The blocks of a write. On a device with zones, one of half a block is not at the write
    /// pointer, or moves it to where it cannot be.
    fn written(&self, sector: u64, len: u64) -> Result<(u64, u64), Outcome> {
        let block = 1u64 << self.lba_shift;
        let is_whole = sector.is_multiple_of(block / SECTOR) && len.is_multiple_of(block);
        if self.zones.is_some() && !is_whole {
            return Err(Outcome::ZONE_UNALIGNED_WP);
        }
        self.blocks(sector, len)
    }

    /// Whether blocks lie in one zone, where there are zones.
    fn check_zone(&self, slba: u64, blocks: u64) -> Result<(), Outcome> {
        let zone = |block: u64| self.zones.map(|zones| block / zones.blocks);
        if zone(slba) == zone(slba + (blocks - 1)) {
            Ok(())
        } else {
            Err(Outcome::ZONE_INVALID_CMD)
        }
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
        let guest = |sqe| with_data(sqe, &data.part(0, len), &self.memory, entries.at);
        let sqe = match task.kind {
            Kind::Read => guest(entries.read(at)),
            Kind::Write => guest(entries.write(at, fua)),
            Kind::Zero { deallocates } => entries.zero(at, fua, deallocates),
            Kind::Report => entries.report(at.slba, (count / self.zone_blocks()) as u32),
            Kind::Other | Kind::Append | Kind::Manage => return,
        };
        task.slba += count;
        task.blocks -= count;
        if task.kind != Kind::Report {
            task.at += len;
        }
        self.tasks[usize::from(slot)] = Some(task);
        self.rings.store(&sqe);
    }

    /// Blocks of the next command of a request.
    fn next_count(&self, task: &Task) -> u64 {
        let most = match task.kind {
            Kind::Zero { .. } => ZEROED,
            Kind::Report => u64::from(REPORTED) * self.zone_blocks(),
            _ => self.chunk >> self.lba_shift,
        };
        task.blocks.min(most)
    }

    /// Blocks of a zone; 1 without zones.
    fn zone_blocks(&self) -> u64 {
        self.zones.map_or(1, |zones| zones.blocks)
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
            match self.blocks_of(&range) {
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
        self.memory.write(entries.at, ranges.as_bytes());
        self.rings.store(&entries.deallocate(ranges.len()));
        Ok(())
    }

    /// Takes a completion.
    pub(super) fn complete(&mut self, cqe: &Cqe, view: &DmaView) -> Option<Completed> {
        let (slot, status) = (cqe.cid, cqe.status.status());
        if status == Status::COMMAND_ABORT_REQUESTED {
            return Some(Completed::Hangs);
        }
        let task = self.tasks.get(usize::from(slot))?.as_ref()?;
        if !status.is_success() || task.kind != Kind::Other {
            let task = *task;
            return self.complete_any(task, cqe, view);
        }
        Some(self.end(slot, Outcome::OK, view))
    }

    /// Takes the completion of a request that has failed, or of one of several commands.
    fn complete_any(&mut self, mut task: Task, cqe: &Cqe, view: &DmaView) -> Option<Completed> {
        let (slot, status) = (cqe.cid, cqe.status.status());
        let mut outcome = outcome(status, task.kind.is_of_zones());
        if outcome == Outcome::OK && matches!(task.kind, Kind::Report | Kind::Append) {
            outcome = written_or_failed(self.answer(slot, &mut task, cqe, view));
        }
        if outcome == Outcome::OK && task.blocks > 0 {
            self.go_on(slot, &task);
            return Some(Completed::GoesOn);
        }
        Some(self.end(slot, outcome, view))
    }

    /// Ends a request, which is in a slot.
    #[inline]
    fn end(&mut self, slot: u16, outcome: Outcome, view: &DmaView) -> Completed {
        let task = self.tasks[usize::from(slot)].take();
        let task = task.expect("the slot has a request");
        self.free.push(slot);
        self.note(task.outcome_at, outcome, view);
        Completed::Done(Done {
            whose: task.whose,
            written: task.written,
            has_failed: outcome != Outcome::OK,
        })
    }

    /// Writes what the command of a report or an append has come to. False where the memory for it
    /// is not mapped.
    #[cold]
    fn answer(&mut self, slot: u16, task: &mut Task, cqe: &Cqe, view: &DmaView) -> bool {
        let pieces = self.kept(slot, task);
        let len = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        let into = Data::new(&pieces, 0, len);
        if task.kind == Kind::Append {
            let block = u64::from(cqe.dw0) | u64::from(cqe.dw1) << 32;
            let sector = block << self.lba_shift >> SECTOR.ilog2();
            return into.write(view, &mut self.hint, &sector.to_le_bytes());
        }
        let report = (&self.memory, self.entries(slot).at);
        let sizes = (self.lba_shift, self.zone_blocks());
        let end = pass_on(report, sizes, (&into, task.at), view, &mut self.hint);
        let Some(end) = end else {
            return false;
        };
        task.at = end;
        self.tasks[usize::from(slot)] = Some(*task);
        task.blocks > 0 || write_header(&into, end, view, &mut self.hint)
    }

    /// The next command of a request whose last one was done.
    fn go_on(&mut self, slot: u16, task: &Task) {
        let pieces = self.kept(slot, task);
        let left = task.blocks << self.lba_shift;
        let data = match task.kind {
            Kind::Read | Kind::Write => Data::new(&pieces, task.at, left),
            _ => Data::NONE,
        };
        self.advance(slot, &data);
    }

    /// The pieces that are kept of a request.
    fn kept(&self, slot: u16, task: &Task) -> ArrayVec<Piece, MAX_PIECES> {
        let mut kept = [KeptPiece { at: 0, len: 0 }; MAX_PIECES];
        let kept = &mut kept[..task.pieces.into()];
        self.memory.read(self.kept_at(slot), kept.as_mut_bytes());
        kept.iter()
            .map(|piece| Piece {
                at: piece.at,
                len: piece.len as u32,
                is_writable: false,
            })
            .collect()
    }

    /// Writes an outcome where the driver looks for it. Without its memory there is none.
    #[inline]
    fn note(&mut self, at: u64, outcome: Outcome, view: &DmaView) {
        if let Ok(place) = view.translate(&mut self.hint, Iova(at), 1, Need::DeviceWrites) {
            place.write_from(0, &[outcome.0]);
        }
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
            at: self.slots.offset() + usize::from(slot) * SLOT_LEN,
        }
    }

    /// Where a slot keeps the pieces of all of a request.
    fn kept_at(&self, slot: u16) -> usize {
        self.slots.offset() + usize::from(slot) * SLOT_LEN + PAGE
    }
}

/// The outcome of what was to be written to the driver's memory.
fn written_or_failed(is_written: bool) -> Outcome {
    if is_written {
        Outcome::OK
    } else {
        Outcome::IOERR
    }
}
