//! The steps of a command: Verify reads piece by piece and keeps nothing (NVM 1.1, 3.3.5), Copy
//! reads a piece and writes it (NVM 1.1, 3.3.2).
//!
//! Everything that can be checked is checked before the first step, so that an invalid command
//! changes nothing. The namespace, which may change between two steps, is looked up again for each.
//!
//! Copy goes through the ranges in order, which is one of the orders that a host must expect if a
//! source overlaps the destination (format 0h allows that). Its writes are no more atomic than
//! other writes longer than AWUN, which is one block. A range that requests only a fast copy is
//! rejected: with one piece at a time, a host that reads and writes in parallel may be quicker (NVM
//! 1.1, 3.3.2.1).

use std::io;

use arrayvec::ArrayVec;
use memory::{Need, Scratch};
use nvme_spec::copy::{CopyDescriptorFormat, SourceRange};
use nvme_spec::{Sqe, Status};
use port::namespace::Namespace;
use port::{ByteRange, Channel, ChannelId, Request};

use super::issue::{Issuer, permit, range};
use crate::command::{
    self, Blocks, COPY_BYTES, COPY_RANGE_BYTES, COPY_RANGES, Command, CopyRanges,
};
use crate::gate::Gate;
use crate::state::{SlotState, ordered};

/// Commands that go on at a time.
pub(super) const MOST: usize = 4;

/// Bytes that Copy carries in one step.
pub(super) const SCRATCH_BYTES: u32 = 128 << 10;

/// Bytes that Verify reads in one step.
pub(super) const VERIFY_BYTES: u32 = 1 << 20;

/// Resources that one Copy command holds until its end: created when first needed, and kept for
/// others.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) scratch: Scratch,
    sources: Vec<Source>,
}

/// A range to copy, with its namespace.
#[derive(Clone, Copy, Debug)]
struct Source {
    nsid: u32,
    blocks: Blocks,
}

impl Room {
    fn new() -> io::Result<Self> {
        Ok(Room {
            scratch: Scratch::new(SCRATCH_BYTES)?,
            sources: Vec::with_capacity(COPY_RANGES),
        })
    }
}

/// A command that runs in steps.
#[derive(Debug)]
pub(super) enum Plan {
    Verify(Verify),
    Copy(Copy),
}

#[derive(Debug)]
pub(super) struct Verify {
    nsid: u32,
    shift: u8,
    /// First, written data is flushed to non-volatile media (Force Unit Access).
    flush: bool,
    /// Blocks still to be read.
    blocks: Blocks,
    /// Blocks of the step.
    piece: u32,
}

#[derive(Debug)]
pub(super) struct Copy {
    nsid: u32,
    shift: u8,
    fua: bool,
    /// Sources, and how many of them were copied.
    sources: usize,
    copied: usize,
    /// Blocks of the next source that were copied.
    done: u32,
    /// Destination of the next block.
    destination: u64,
    /// Blocks of the step, and whether they are the source's last.
    piece: u32,
    last: bool,
    /// They were read: the step is to write them.
    carried: bool,
}

/// A step: the request, its medium, and the location of the bytes.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) channel: ChannelId,
    pub(super) request: Request<'static>,
    pub(super) data: Data,
}

/// The bytes of a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Data {
    Nothing,
    /// So many are read and thrown away.
    Discarded(u32),
    /// So many in the command's room.
    Carried(u32, Need),
}

impl Data {
    /// Bytes that move.
    pub(super) fn len(self) -> u32 {
        match self {
            Data::Nothing => 0,
            Data::Discarded(len) | Data::Carried(len, _) => len,
        }
    }
}

impl Plan {
    /// The next step.
    pub(super) fn next<C: Channel, G: Gate>(
        &mut self,
        issuer: &Issuer<'_, C, G>,
        room: Option<&Room>,
    ) -> Result<Ask, Status> {
        match self {
            Plan::Verify(verify) => verify.next(issuer),
            Plan::Copy(copy) => {
                let source = room.and_then(|room| room.sources.get(copy.copied));
                copy.next(issuer, source.ok_or(Status::INTERNAL_ERROR)?)
            }
        }
    }

    /// The step was successful. True where it was the last one.
    pub(super) fn took(&mut self, slot: &mut SlotState) -> bool {
        match self {
            Plan::Verify(verify) => verify.took(),
            Plan::Copy(copy) => {
                let ended = copy.took();
                // Dword 0 of a command that fails: the first range that was not wholly copied (NVM
                // 1.1, 3.3.2.5).
                slot.set_result(if ended { 0 } else { copy.copied as u64 });
                ended
            }
        }
    }
}

impl Verify {
    fn next<C: Channel, G: Gate>(&mut self, issuer: &Issuer<'_, C, G>) -> Result<Ask, Status> {
        self.piece = self.blocks.count.min(VERIFY_BYTES >> self.shift);
        let blocks = Blocks {
            count: self.piece,
            ..self.blocks
        };
        let command = Command::Verify { blocks, fua: false };
        let (channel, offset, len) = issuer.piece(self.nsid, self.shift, blocks, &command)?;
        if self.flush {
            return Ok(Ask {
                channel,
                request: Request::Flush,
                data: Data::Nothing,
            });
        }
        Ok(Ask {
            channel,
            request: Request::Read { offset, len },
            data: Data::Discarded(len),
        })
    }

    fn took(&mut self) -> bool {
        if !std::mem::take(&mut self.flush) {
            self.blocks.slba += u64::from(self.piece);
            self.blocks.count -= self.piece;
        }
        self.blocks.count == 0
    }
}

impl Copy {
    fn next<C: Channel, G: Gate>(
        &mut self,
        issuer: &Issuer<'_, C, G>,
        source: &Source,
    ) -> Result<Ask, Status> {
        if self.carried {
            let blocks = Blocks {
                slba: self.destination,
                count: self.piece,
            };
            let fua = self.fua || issuer.write_through;
            let command = Command::Write { blocks, fua };
            let (channel, offset, len) = issuer.piece(self.nsid, self.shift, blocks, &command)?;
            return Ok(Ask {
                channel,
                request: Request::Write { offset, len, fua },
                data: Data::Carried(len, Need::DeviceReads),
            });
        }
        let left = source.blocks.count - self.done;
        self.piece = left.min(SCRATCH_BYTES >> self.shift);
        self.last = self.piece == left;
        let blocks = Blocks {
            slba: source.blocks.slba + u64::from(self.done),
            count: self.piece,
        };
        let command = Command::Read { blocks, fua: false };
        let (channel, offset, len) = issuer.piece(source.nsid, self.shift, blocks, &command)?;
        Ok(Ask {
            channel,
            request: Request::Read { offset, len },
            data: Data::Carried(len, Need::DeviceWrites),
        })
    }

    fn took(&mut self) -> bool {
        self.carried = !self.carried;
        if self.carried {
            return false;
        }
        self.destination += u64::from(self.piece);
        self.done += self.piece;
        if self.last {
            self.done = 0;
            self.copied += 1;
        }
        self.copied == self.sources
    }
}

impl<C: Channel, G: Gate> Issuer<'_, C, G> {
    /// Checks a command of several steps, and returns its steps.
    pub(super) fn plan(
        &mut self,
        slot: &mut SlotState,
        sqe: &Sqe,
        spare: &mut ArrayVec<Room, MOST>,
    ) -> Result<(Plan, Option<Room>), Status> {
        match command::parse(sqe)? {
            Command::Verify { blocks, fua } => {
                let namespace = self.named(sqe.nsid)?;
                let bytes = range(namespace, blocks)?;
                slot.bytes = bytes.len as u32;
                let verify = Verify {
                    nsid: sqe.nsid,
                    shift: namespace.lba_shift,
                    flush: fua && namespace.traits.volatile_cache,
                    blocks,
                    piece: 0,
                };
                Ok((Plan::Verify(verify), None))
            }
            Command::Copy { .. } => {
                let mut room = match spare.pop() {
                    Some(room) => room,
                    None => Room::new().map_err(|_| Status::INSUFFICIENT_RESOURCES)?,
                };
                match self.plan_copy(slot, sqe, &mut room.sources) {
                    Ok(copy) => Ok((Plan::Copy(copy), Some(room))),
                    Err(status) => {
                        spare.push(room);
                        Err(status)
                    }
                }
            }
            _ => Err(Status::INTERNAL_ERROR),
        }
    }

    fn plan_copy(
        &mut self,
        slot: &mut SlotState,
        sqe: &Sqe,
        sources: &mut Vec<Source>,
    ) -> Result<Copy, Status> {
        let Command::Copy {
            slba,
            ranges,
            format,
            fua,
        } = command::parse(sqe)?
        else {
            return Err(Status::INTERNAL_ERROR);
        };
        let across = format == CopyDescriptorFormat::FORMAT_2;
        if across && !self.copying.across {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        if usize::from(ranges) > COPY_RANGES {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
        }
        let destination = self.named(sqe.nsid)?.clone();
        let mut list = CopyRanges::new(ranges);
        self.read_list(sqe, list.as_mut_bytes())?;
        sources.clear();
        let mut blocks = 0;
        for entry in list.entries() {
            let source = self.source(&destination, entry, across)?;
            blocks += u64::from(source.blocks.count);
            sources.push(source);
        }
        if blocks << destination.lba_shift > COPY_BYTES {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
        }
        let target = Blocks {
            slba,
            count: blocks as u32,
        };
        slot.bytes = range(&destination, target)?.len as u32;
        let overlaps = |source: &Source| source.nsid == sqe.nsid && source.blocks.overlaps(target);
        if across && sources.iter().any(overlaps) {
            return Err(Status::OVERLAPPING_IO_RANGE);
        }
        // It would read what it has written, or write where a zone goes on.
        let bytes = destination.set.as_ref().is_none_or(|set| set.keeps_bytes());
        let repeats = bytes && !sources.iter().any(overlaps);
        slot.marks.set_acted(!repeats);
        ordered();
        Ok(Copy {
            nsid: sqe.nsid,
            shift: destination.lba_shift,
            fua,
            sources: sources.len(),
            copied: 0,
            done: 0,
            destination: slba,
            piece: 0,
            last: false,
            carried: false,
        })
    }

    /// Checks one range of a Copy command to `destination`; where it goes `across` namespaces, the
    /// range names its own.
    fn source(
        &self,
        destination: &Namespace,
        entry: &SourceRange,
        across: bool,
    ) -> Result<Source, Status> {
        let blocks = Blocks {
            slba: entry.slba,
            count: u32::from(entry.nlb_z) + 1,
        };
        let namespace = if !across {
            destination
        } else {
            self.named(entry.snsid)?
        };
        if namespace.lba_shift != destination.lba_shift {
            return Err(Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT);
        }
        if across && entry.sopt.fco() {
            return Err(Status::FAST_COPY_NOT_POSSIBLE);
        }
        if u64::from(blocks.count) << namespace.lba_shift > COPY_RANGE_BYTES {
            return Err(Status::COMMAND_SIZE_LIMIT_EXCEEDED);
        }
        range(namespace, blocks)?;
        permit(namespace, &Command::Read { blocks, fua: false })?;
        Ok(Source {
            nsid: namespace.nsid,
            blocks,
        })
    }

    /// Location of a step's blocks. Since the command began, its namespace may have gone, may have
    /// got another format, or may reject the step.
    fn piece(
        &self,
        nsid: u32,
        shift: u8,
        blocks: Blocks,
        command: &Command,
    ) -> Result<(ChannelId, u64, u32), Status> {
        let namespace = self.named(nsid)?;
        if namespace.lba_shift != shift {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
        }
        permit(namespace, command)?;
        let ByteRange { offset, len } = range(namespace, blocks)?;
        Ok((namespace.channel, offset, len as u32))
    }
}
