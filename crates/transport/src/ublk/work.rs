//! Requests become commands, and completions results.

use memory::{Buffer, HostMemory};
use nvme_spec::command::DsmRange;
use nvme_spec::zoned::ZoneSendAction;
use nvme_spec::{Cqe, Sqe, Status};
use rustix::io::Errno;
use ublk::{Descriptor, Operation, SECTOR};
use zerocopy::IntoBytes as _;

use super::disk::Disk;
use super::requests::Requests;
use super::zones;
use crate::host::{Blocks, Entries, Rings};

/// A request at the controller.
#[derive(Clone, Copy, Debug)]
struct Task {
    operation: Operation,
    /// Bytes of data.
    len: u32,
}

/// What a completion has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completed {
    Done {
        has_failed: bool,
    },
    /// The controller has given a command up that hangs: its medium may still have the memory.
    Hangs,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Work {
    memory: HostMemory,
    pub(super) rings: Rings,
    /// Where the buffers begin, and bytes of each.
    at: usize,
    buffer_len: usize,
    tasks: Box<[Option<Task>]>,
    in_flight: u16,
    nsid: u32,
    lba_shift: u8,
    zone_blocks: u64,
    /// Zeroes may be deallocated blocks.
    zeroes_deallocate: bool,
}

impl Work {
    /// Of a disk, with `tags` buffers of `buffer_len` bytes.
    pub(super) fn new(
        memory: HostMemory,
        rings: Rings,
        buffers: &Buffer,
        (tags, buffer_len): (u16, u32),
        disk: &Disk,
    ) -> Self {
        Self {
            memory,
            rings,
            at: buffers.offset(),
            buffer_len: buffer_len as usize,
            tasks: vec![None; tags.into()].into_boxed_slice(),
            in_flight: 0,
            nsid: disk.nsid,
            lba_shift: disk.lba_shift,
            zone_blocks: disk.zone_blocks,
            zeroes_deallocate: disk.zeroes_deallocate,
        }
    }

    /// Whether no request is at the controller.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Whether there is such a tag, and no request of it at the controller.
    #[inline]
    pub(super) fn is_free(&self, index: u16) -> bool {
        matches!(self.tasks.get(usize::from(index)), Some(None))
    }

    /// Fails all requests at the controller. Media may still use their buffers. How many
    /// there were.
    pub(super) fn abandon(&mut self, requests: &mut impl Requests) -> u16 {
        for (index, task) in self.tasks.iter_mut().enumerate() {
            if task.take().is_some() {
                requests.refuse(index as u16, Errno::IO);
            }
        }
        std::mem::take(&mut self.in_flight)
    }

    fn buffer_at(&self, index: u16) -> usize {
        self.at + usize::from(index) * self.buffer_len
    }

    /// Begins with a request of a tag that [`Self::is_free`]. One that fails at once is committed.
    /// Whether it was begun.
    #[inline]
    pub(super) fn begin(
        &mut self,
        index: u16,
        request: &Descriptor,
        requests: &mut impl Requests,
    ) -> bool {
        match self.start(index, request, requests) {
            Ok((sqe, len)) => {
                self.tasks[usize::from(index)] = Some(Task {
                    operation: request.operation(),
                    len,
                });
                self.in_flight += 1;
                self.rings.store(&sqe);
                true
            }
            Err(errno) => {
                requests.commit(index, -errno.raw_os_error());
                false
            }
        }
    }

    /// The command of a request, and bytes of its data.
    fn start(
        &mut self,
        index: u16,
        request: &Descriptor,
        requests: &mut impl Requests,
    ) -> Result<(Sqe, u32), Errno> {
        let entries = Entries {
            nsid: self.nsid,
            cid: index,
            at: self.buffer_at(index),
        };
        let flags = request.flags;
        match request.operation() {
            Operation::READ => {
                let (blocks, len) = self.data(request)?;
                Ok((entries.with_data(entries.read(blocks), len.into()), len))
            }
            Operation::WRITE => {
                let (blocks, len) = self.data(request)?;
                self.fetch_data(index, len, requests)?;
                let sqe = entries.write(blocks, flags.fua());
                Ok((entries.with_data(sqe, len.into()), len))
            }
            Operation::FLUSH => Ok((entries.flush(), 0)),
            Operation::DISCARD => {
                let blocks = self.blocks(request)?;
                let range = DsmRange {
                    cattr: 0,
                    nlb: u32::try_from(blocks.count).map_err(|_| Errno::INVAL)?,
                    slba: blocks.slba,
                };
                self.memory.write(entries.at, range.as_bytes());
                Ok((entries.deallocate(1), 0))
            }
            Operation::WRITE_ZEROES => {
                let blocks = self.blocks(request)?;
                if blocks.count > 1 << 16 {
                    return Err(Errno::INVAL);
                }
                let deallocates = self.zeroes_deallocate && !flags.nounmap();
                Ok((entries.zero(blocks, flags.fua(), deallocates), 0))
            }
            operation if self.zone_blocks > 0 => {
                self.start_zoned(&entries, operation, request, requests)
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// The same, of a request about zones.
    fn start_zoned(
        &mut self,
        entries: &Entries,
        operation: Operation,
        request: &Descriptor,
        requests: &mut impl Requests,
    ) -> Result<(Sqe, u32), Errno> {
        let slba = self.block(request.start)?;
        let send = |action, all| Ok((entries.send(action, slba, all), 0));
        match operation {
            Operation::ZONE_OPEN => send(ZoneSendAction::OPEN, false),
            Operation::ZONE_CLOSE => send(ZoneSendAction::CLOSE, false),
            Operation::ZONE_FINISH => send(ZoneSendAction::FINISH, false),
            Operation::ZONE_RESET => send(ZoneSendAction::RESET, false),
            Operation::ZONE_RESET_ALL => send(ZoneSendAction::RESET, true),
            Operation::ZONE_APPEND => {
                let (blocks, len) = self.data(request)?;
                self.fetch_data(entries.cid, len, requests)?;
                let sqe = entries.append(blocks, request.flags.fua());
                Ok((entries.with_data(sqe, len.into()), len))
            }
            Operation::REPORT_ZONES => {
                let zones = zones::room(request.sectors, self.buffer_len);
                Ok((entries.report(slba, zones), zones))
            }
            _ => Err(Errno::OPNOTSUPP),
        }
    }

    /// Has the data of a write in its buffer.
    fn fetch_data(&self, index: u16, len: u32, requests: &mut impl Requests) -> Result<(), Errno> {
        if requests.has_user_copy() {
            let copied = requests.copy(index, len as usize, true);
            copied.map_err(|_| Errno::IO)?;
        }
        Ok(())
    }

    /// The block that begins with a sector.
    fn block(&self, sector: u64) -> Result<u64, Errno> {
        let per_block = (1u64 << self.lba_shift) / SECTOR;
        if !sector.is_multiple_of(per_block) {
            return Err(Errno::INVAL);
        }
        Ok(sector / per_block)
    }

    /// The blocks of a request: at least one.
    fn blocks(&self, request: &Descriptor) -> Result<Blocks, Errno> {
        let count = self.block(request.sectors.into())?;
        if count == 0 {
            return Err(Errno::INVAL);
        }
        let slba = self.block(request.start)?;
        Ok(Blocks { slba, count })
    }

    /// The blocks of a request with data that its buffer has room for, and bytes of those.
    fn data(&self, request: &Descriptor) -> Result<(Blocks, u32), Errno> {
        let blocks = self.blocks(request)?;
        let len = u64::from(request.sectors) * SECTOR;
        if len > self.buffer_len as u64 {
            return Err(Errno::INVAL);
        }
        Ok((blocks, len as u32))
    }

    /// Takes a completion, and commits its request.
    #[inline]
    pub(super) fn complete(
        &mut self,
        cqe: &Cqe,
        requests: &mut impl Requests,
    ) -> Option<Completed> {
        let (index, status) = (cqe.cid, cqe.status.status());
        let task = self.tasks.get_mut(usize::from(index))?;
        if status == Status::COMMAND_ABORT_REQUESTED && task.is_some() {
            return Some(Completed::Hangs);
        }
        let task = task.take()?;
        self.in_flight -= 1;
        let result = if status.is_success() {
            self.finish(index, &task, requests)
        } else {
            Err(errno(status))
        };
        let has_failed = result.is_err();
        let result = result.unwrap_or_else(|errno| -errno.raw_os_error());
        if task.operation == Operation::ZONE_APPEND && !has_failed {
            let block = u64::from(cqe.dw0) | u64::from(cqe.dw1) << 32;
            let sector = (block << self.lba_shift) / SECTOR;
            requests.commit_append(index, result, sector);
        } else {
            requests.commit(index, result);
        }
        Some(Completed::Done { has_failed })
    }

    /// The result of a request whose command has succeeded.
    fn finish(
        &mut self,
        index: u16,
        task: &Task,
        requests: &mut impl Requests,
    ) -> Result<i32, Errno> {
        let mut result = task.len;
        let copied = match task.operation {
            Operation::READ if requests.has_user_copy() => task.len as usize,
            Operation::READ => {
                // Media write by another mapping. Linux 6.12 fails a read whose pages it cannot
                // bring as this process is killed, where it should give it to the next server.
                self.memory.touch(self.buffer_at(index), task.len as usize);
                0
            }
            Operation::REPORT_ZONES => {
                // The driver ends the report where it has no more zones, and wants no part of one.
                result = self.buffer_len as u32;
                let sizes = (self.lba_shift, self.zone_blocks);
                zones::convert(&self.memory, self.buffer_at(index), task.len, sizes)
            }
            _ => 0,
        };
        if copied > 0 {
            let done = requests.copy(index, copied, false);
            done.map_err(|_| Errno::IO)?;
        }
        Ok(result.cast_signed())
    }
}

/// What the block layer calls an error: its `errno_to_blk_status`.
fn errno(status: Status) -> Errno {
    match status {
        Status::CAPACITY_EXCEEDED => Errno::NOSPC,
        Status::UNRECOVERED_READ_ERROR | Status::UNRECOVERED_ERROR => Errno::NODATA,
        Status::RESERVATION_CONFLICT => Errno::BADE,
        Status::INVALID_COMMAND_OPCODE => Errno::OPNOTSUPP,
        Status::TOO_MANY_OPEN_ZONES => Errno::TOOMANYREFS,
        Status::TOO_MANY_ACTIVE_ZONES => Errno::OVERFLOW,
        _ => Errno::IO,
    }
}
