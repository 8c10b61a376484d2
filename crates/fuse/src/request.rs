//! A request of the kernel in progress: its plan, its memory, and its reply.
//!
//! A request has one command in flight at a time. Almost every request is a single command.
//! Requests that start or end inside of a block, or exceed the drive's maximum transfer size, are
//! several commands, one after the other.

use std::time::Instant;

use driver::bus::vfio_user::VfioUser;
use driver::io::{Blocks, Namespace};
use driver::{DriverError, QueuePair};
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};
use memory::Buffer;
use nvme_spec::Sqe;
use nvme_spec::command::WriteZeroesCdw12;
use nvme_spec::opcode::NvmOpcode;

use super::claims::Claim;
use super::memory::{EDGE_LEN, Pool};
use super::plan::{Edge, Place, Plan, Step, first_zeroes};

/// Reply to the kernel.
#[derive(Debug)]
pub(super) enum Answer {
    /// That many bytes of the data.
    Data(ReplyData, u32),
    /// That many bytes were written.
    Written(ReplyWrite, u32),
    /// Success.
    Done(ReplyEmpty),
}

impl Answer {
    pub(super) fn fail(self, errno: Errno) {
        match self {
            Answer::Data(reply, _) => reply.error(errno),
            Answer::Written(reply, _) => reply.error(errno),
            Answer::Done(reply) => reply.error(errno),
        }
    }
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) namespace: Namespace,
    pub(super) plan: Plan,
    pub(super) answer: Answer,
    pub(super) memory: Memory,
    /// Held until the request is answered.
    pub(super) claim: Option<Claim>,
    /// When its current command was submitted.
    pub(super) since: Instant,
}

/// Memory of a request, which the drive reads and writes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    pub(super) data: Option<Buffer>,
    pub(super) edges: Option<Buffer>,
}

impl Memory {
    /// Returns all memory. No command of the request is in flight.
    pub(super) fn give_back(self, pool: &Pool) {
        for buffer in [self.data, self.edges].into_iter().flatten() {
            pool.give_back(buffer);
        }
    }

    fn buffer(&self, place: Place) -> (&Buffer, usize) {
        let has = "a request has the memory that its plan names";
        match place {
            Place::Data(at) => (self.data.as_ref().expect(has), at),
            Place::Edge(Edge::First) => (self.edges.as_ref().expect(has), 0),
            Place::Edge(Edge::Last) => (self.edges.as_ref().expect(has), EDGE_LEN),
        }
    }
}

impl Request {
    /// The next command, with its data pointers in the slot that the queue uses next; `None` after
    /// the last one. Executes the steps between commands.
    ///
    /// # Errors
    /// [`DriverError::Unsupported`] if the transfer is too large for the queue.
    pub(super) fn next_command(
        &mut self,
        queue: &QueuePair<VfioUser>,
        cid: u16,
    ) -> Result<Option<Sqe>, DriverError> {
        while let Some(step) = self.plan.steps.pop_front() {
            let sqe = match step {
                Step::Keep { edge, bytes, at } => {
                    self.keep(edge, bytes.start, bytes.len(), at);
                    continue;
                }
                Step::Blank { edge, bytes } => {
                    let (buffer, base) = self.memory.buffer(Place::Edge(edge));
                    buffer.write_from(base + bytes.start, &vec![0; bytes.len()]);
                    continue;
                }
                Step::Read { lba, blocks, place } => {
                    self.transfer(queue, cid, NvmOpcode::READ, lba, blocks, place, false)?
                }
                Step::Write {
                    lba,
                    blocks,
                    place,
                    fua,
                } => self.transfer(queue, cid, NvmOpcode::WRITE, lba, blocks, place, fua)?,
                Step::Zeroes { lba, blocks } => {
                    let (now, rest) = first_zeroes(lba, blocks);
                    if let Some(rest) = rest {
                        self.plan.steps.push_front(rest);
                    }
                    self.zeroes(lba, now)
                }
                Step::Flush => Sqe {
                    opcode: NvmOpcode::FLUSH.0,
                    nsid: self.namespace.nsid,
                    ..Sqe::default()
                },
            };
            return Ok(Some(sqe));
        }
        Ok(None)
    }

    fn keep(&self, edge: Edge, from: usize, len: usize, at: usize) {
        let (edge, base) = self.memory.buffer(Place::Edge(edge));
        let mut bytes = vec![0; len];
        edge.read_into(base + from, &mut bytes);
        let (data, _) = self.memory.buffer(Place::Data(at));
        data.write_from(at, &bytes);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one command")]
    fn transfer(
        &self,
        queue: &QueuePair<VfioUser>,
        cid: u16,
        opcode: NvmOpcode,
        lba: u64,
        blocks: u32,
        place: Place,
        fua: bool,
    ) -> Result<Sqe, DriverError> {
        let count = Blocks::new(blocks).expect("a plan's commands have 1 to 65536 blocks");
        let mut sqe = self.namespace.transfer(opcode, lba, count, fua);
        let len = u64::from(blocks) * u64::from(self.namespace.block_len);
        let len = usize::try_from(len).expect("a request fits in an address space");
        let (buffer, at) = self.memory.buffer(place);
        queue.pointer(cid, buffer, at, len)?.put(&mut sqe);
        Ok(sqe)
    }

    /// Write Zeroes with deallocation: the blocks then read as zero, and the drive may free their
    /// space. Deallocate alone promises neither.
    fn zeroes(&self, lba: u64, blocks: u32) -> Sqe {
        let count = Blocks::new(blocks).expect("a command's part of zeros has 1 to 65536 blocks");
        let mut sqe = self
            .namespace
            .transfer(NvmOpcode::WRITE_ZEROES, lba, count, false);
        let cdw12 = WriteZeroesCdw12::from(sqe.cdw12);
        sqe.cdw12 = cdw12.with_deac(true).into();
        sqe
    }

    /// Answers the request, and returns its memory and claim. None of its commands is in flight.
    /// `scratch` is reused.
    pub(super) fn end(self, result: Result<(), Errno>, pool: &Pool, scratch: &mut Vec<u8>) {
        let Request {
            plan,
            answer,
            memory,
            claim,
            ..
        } = self;
        // before the answer, after which the program may write at once
        drop(claim);
        match (result, answer) {
            (Err(errno), answer) => answer.fail(errno),
            (Ok(()), Answer::Written(reply, len)) => reply.written(len),
            (Ok(()), Answer::Done(reply)) => reply.ok(),
            (Ok(()), Answer::Data(reply, len)) => {
                let len = usize::try_from(len).expect("a request fits in an address space");
                scratch.resize(scratch.len().max(len), 0);
                let bytes = &mut scratch[..len];
                let (data, _) = memory.buffer(Place::Data(0));
                data.read_into(plan.skip, bytes);
                reply.data(bytes);
            }
        }
        memory.give_back(pool);
    }
}
