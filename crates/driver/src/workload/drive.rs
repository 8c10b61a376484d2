//! The loop: submit while there is room, ring once, take what completed.

use std::ops::ControlFlow;

use hdrhistogram::Histogram;
use memory::{Buffer, HostMemory};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::registers::{CSTS, Csts};
use nvme_spec::{Cqe, Status};

use super::traffic::{Op, Traffic};
use super::{Clock, Job, Phase, Progress};
use crate::bus::Bus;
use crate::io::{Blocks, Namespace};
use crate::{DriverError, QueuePair};

/// Completions taken in one look.
const BATCH: usize = 64;
/// Looks in vain between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 256;
/// Looks in vain after which the thread gives its processor away between them:
/// a drive that takes longer may need it.
const LOOKS_BEFORE_YIELD: u32 = 1 << 14;
/// Time between two reports of progress.
const TICK_NS: u64 = 100_000_000;
/// Longest latency told apart, in nanoseconds: a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// The little-endian word of an entry that holds its opcode, and the one that
/// holds its first block.
const OPCODE_WORD: usize = 0;
const SLBA_WORD: usize = 5;

/// What one phase of a job measured.
pub(super) struct Record {
    pub(super) latency: Histogram<u64>,
    pub(super) commands: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<Status>,
    pub(super) elapsed_ns: u64,
}

impl Record {
    pub(super) fn new() -> Self {
        Self {
            latency: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
                .expect("the bounds are in order and three digits are possible"),
            commands: 0,
            errors: 0,
            first_error: None,
            elapsed_ns: 0,
        }
    }

    pub(super) fn add_errors(&mut self, other: &Self) {
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
    }
}

/// What belongs to one command in flight.
struct Slot {
    /// Its entry, without opcode and first block.
    words: [u64; 8],
    /// Where its data lies in the buffer.
    at: usize,
    op: Op,
    submitted_ns: u64,
}

/// A queue pair with a buffer for each slot.
pub(super) struct Drive<'a, B: Bus, K> {
    queue: &'a mut QueuePair<B>,
    clock: &'a K,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    buffer: Buffer,
    slots: Vec<Slot>,
    blocks_per_unit: u64,
    /// When something completed last, or the phase began.
    last_taken_ns: u64,
    /// The caller wants no more.
    stopped: bool,
}

impl<'a, B: Bus, K: Clock> Drive<'a, B, K> {
    pub(super) fn new(
        job: &Job,
        namespace: &Namespace,
        queue: &'a mut QueuePair<B>,
        memory: &HostMemory,
        clock: &'a K,
        progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Self, DriverError> {
        if queue.in_flight() != 0 {
            return Err(DriverError::Unsupported(format!(
                "{} commands are in flight in the queue; poll them first",
                queue.in_flight()
            )));
        }
        if job.block_size > queue.transfer_len() {
            return Err(DriverError::Unsupported(format!(
                "a command moves at most {} bytes here, not {}",
                queue.transfer_len(),
                job.block_size
            )));
        }
        queue.order_slots();
        let len = usize::try_from(job.block_size).expect("u32 fits in usize");
        let stride = len.next_multiple_of(4096);
        let wanted = stride * usize::from(job.queue_depth);
        let buffer = memory
            .alloc(wanted, 4096)
            .ok_or(DriverError::NoMemory { wanted })?;
        let nlb = Blocks::new(job.block_size / namespace.block_len).ok_or_else(|| {
            DriverError::Unsupported(format!("{len} bytes are no number of blocks"))
        })?;
        let slots = (0..job.queue_depth).map(|cid| {
            let at = stride * usize::from(cid);
            // Flush's opcode is 0: the command's own is put over it.
            let mut sqe = namespace.transfer(NvmOpcode::FLUSH, 0, nlb, false);
            let prps = queue.prps(cid, &buffer, at, len)?;
            (sqe.prp1, sqe.prp2) = (prps.prp1, prps.prp2);
            Ok(Slot {
                words: sqe.to_words(),
                at,
                op: Op::default(),
                submitted_ns: 0,
            })
        });
        let slots = slots.collect::<Result<Vec<_>, DriverError>>()?;
        Ok(Self {
            queue,
            clock,
            progress,
            buffer,
            slots,
            blocks_per_unit: u64::from(nlb.get()),
            last_taken_ns: 0,
            stopped: false,
        })
    }

    /// Issues `traffic` until it ends, `runtime_ns` have passed, or the caller
    /// wants no more; then waits for what is in flight.
    pub(super) fn run(
        &mut self,
        traffic: &mut impl Traffic,
        phase: Phase,
        runtime_ns: Option<u64>,
        record: &mut Record,
    ) -> Result<(), DriverError> {
        let mut cqes = [Cqe::default(); BATCH];
        let started = self.clock.now_ns();
        let end = runtime_ns.map_or(u64::MAX, |runtime| started.saturating_add(runtime));
        let mut now = started;
        let mut tick = started + TICK_NS;
        self.last_taken_ns = started;
        let mut going = !self.stopped;
        loop {
            if going {
                going = self.submit(traffic, now) || self.queue.in_flight() > 0;
            }
            self.queue.ring()?;
            if self.queue.in_flight() == 0 {
                break;
            }
            let taken = self.queue.poll(&mut cqes)?;
            if taken == 0 {
                now = self.idle(now)?;
            } else {
                now = self.clock.now_ns();
                for cqe in &cqes[..taken] {
                    self.complete(traffic, cqe, now, record);
                }
                record.elapsed_ns = now - started;
                self.last_taken_ns = now;
            }
            if now >= end {
                going = false;
            }
            if now >= tick {
                tick = now + TICK_NS;
                self.stopped |= (self.progress)(Progress {
                    phase,
                    commands: record.commands,
                    elapsed_ns: now - started,
                })
                .is_break();
                going &= !self.stopped;
            }
        }
        Ok(())
    }

    /// Fills the queue; whether anything was submitted.
    #[inline]
    fn submit(&mut self, traffic: &mut impl Traffic, now: u64) -> bool {
        let mut any = false;
        while let Some(slot) = self
            .queue
            .next_cid()
            .and_then(|cid| self.slots.get_mut(usize::from(cid)))
        {
            let Some(op) = traffic.next() else { break };
            traffic.start(op, &self.buffer, slot.at);
            let opcode = if op.write {
                NvmOpcode::WRITE
            } else {
                NvmOpcode::READ
            };
            // A copy: writing parts of the slot's words and reading them back
            // whole would wait for the stores.
            let mut words = slot.words;
            words[OPCODE_WORD] |= u64::from(opcode.0);
            words[SLBA_WORD] = op.unit * self.blocks_per_unit;
            slot.op = op;
            slot.submitted_ns = now;
            self.queue
                .submit_words(words)
                .expect("the queue has just named a free slot");
            any = true;
        }
        any
    }

    #[inline]
    fn complete(&mut self, traffic: &mut impl Traffic, cqe: &Cqe, now: u64, record: &mut Record) {
        // The queue lets no identifier through that it did not give.
        let slot = &self.slots[usize::from(cqe.cid)];
        let status = cqe.status.status();
        record.commands += 1;
        record.latency.saturating_record(now - slot.submitted_ns);
        if !status.is_success() {
            record.errors += 1;
            record.first_error.get_or_insert(status);
        }
        traffic.finish(slot.op, status.is_success(), &self.buffer, slot.at);
    }

    /// Nothing has completed. Looks at the clock now and then, and gives up on
    /// a drive that does nothing for the queue's timeout.
    fn idle(&mut self, now: u64) -> Result<u64, DriverError> {
        let looks = self.queue.empty_looks();
        if looks > LOOKS_BEFORE_YIELD {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
        if !looks.is_multiple_of(LOOKS_PER_CLOCK) {
            return Ok(now);
        }
        let now = self.clock.now_ns();
        let timeout = self.queue.timeout();
        if u128::from(now - self.last_taken_ns) > timeout.as_nanos() {
            let csts = self.queue.bus().read32(CSTS)?;
            if Csts::from(csts).cfs() || csts == u32::MAX {
                return Err(DriverError::ControllerFatal { csts });
            }
            return Err(DriverError::Timeout {
                what: "an I/O command",
                after: timeout,
            });
        }
        Ok(now)
    }
}
