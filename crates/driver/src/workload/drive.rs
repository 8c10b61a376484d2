//! The loop: submit while there is room, ring (once, or for each command), take what completed.

use std::ops::ControlFlow;

use hdrhistogram::Histogram;
use memory::HostMemory;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::registers::{CSTS, Csts};
use nvme_spec::zoned::{ZoneSendAction, ZoneSendCdw13, ZonedOpcode};
use nvme_spec::{Cqe, Status};

use super::beside::{Beside, Submitted};
use super::places::Places;
use super::traffic::{Kind, Op, Traffic};
use super::{Clock, Job, LATENCY_MAX_NS, Phase, Progress, Ring, STALL_NS};
use crate::bus::Bus;
use crate::io::{Blocks, Namespace};
use crate::{DriverError, QueuePair};

/// Looks in vain between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 256;
/// Looks in vain after which the thread gives its processor away between them:
/// a drive that takes longer may need it.
const LOOKS_BEFORE_YIELD: u32 = 1 << 14;
/// Time between two reports of progress.
const TICK_NS: u64 = 100_000_000;
/// The little-endian words of an entry that hold its opcode and its first block.
const OPCODE_WORD: usize = 0;
const SLBA_WORD: usize = 5;
/// Dwords 12 and 13: of Zone Management Send, nothing and the action.
const ACTION_WORD: usize = 6;

/// Measurements of one phase of a job.
pub(super) struct Record {
    /// Latency of commands that were not in flight in a lull.
    pub(super) latency: Histogram<u64>,
    /// Latency of commands that were.
    pub(super) late: Histogram<u64>,
    /// Latency of commands that were in flight in a stall.
    pub(super) stalled: Histogram<u64>,
    /// Commands that completed outside stalls.
    pub(super) commands: u64,
    /// Commands that completed in a stall.
    pub(super) commands_in_stalls: u64,
    /// Zones that were reset.
    pub(super) resets: u64,
    pub(super) errors: u64,
    pub(super) first_error: Option<Status>,
    /// Without stalls.
    pub(super) elapsed_ns: u64,
    pub(super) stalls: u64,
    pub(super) stalled_ns: u64,
    pub(super) lulls: u64,
    pub(super) lulled_ns: u64,
    /// Commands whose completion ended a lull.
    pub(super) commands_ending_lulls: u64,
}

impl Record {
    pub(super) fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
            .expect("the bounds are in order and three digits are possible");
        Self {
            late: latency.clone(),
            stalled: latency.clone(),
            latency,
            commands: 0,
            commands_in_stalls: 0,
            resets: 0,
            errors: 0,
            first_error: None,
            elapsed_ns: 0,
            stalls: 0,
            stalled_ns: 0,
            lulls: 0,
            lulled_ns: 0,
            commands_ending_lulls: 0,
        }
    }

    pub(super) fn add_errors(&mut self, other: &Self) {
        self.errors += other.errors;
        self.first_error = self.first_error.or(other.first_error);
    }
}

/// Data of one command in flight.
struct Slot {
    /// Its entry, without opcode, data pointers and first block.
    words: [u64; 8],
    /// Index of the place of its data.
    place: usize,
    op: Op,
    submitted_ns: u64,
}

/// A queue pair with places for the data of its slots.
pub(super) struct Line<'a, B: Bus> {
    pub(super) queue: &'a mut QueuePair<B>,
    places: Places,
    slots: Vec<Slot>,
    /// Each command is rung by itself.
    rings_each: bool,
}

/// Time as the loop sees it.
#[derive(Clone, Copy, Default)]
pub(super) struct Times {
    started: u64,
    pub(super) now: u64,
    /// When the last stall ended, and the last lull.
    stall_end: u64,
    lull_end: u64,
    /// When something completed last, or the phase began.
    last_taken: u64,
    /// Nothing is submitted before.
    resume: u64,
    /// Time without a look before the last one, if that was as long as a stall and found nothing:
    /// it is one if the next look at the queues finds something, which may have been there for as
    /// long. Otherwise nothing was missed.
    gap: u64,
}

/// Queue pairs that do one job.
pub(super) struct Drive<'a, B: Bus, K, W> {
    lines: Vec<Line<'a, B>>,
    clock: &'a K,
    beside: &'a mut W,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    blocks_per_unit: u64,
    unit_len: u64,
    pause_ns: u64,
    /// Whether stalls are excluded from the measurements. Checking data takes time, too.
    notes_stalls: bool,
    times: Times,
    /// The caller wants no more.
    stopped: bool,
}

impl<'a, B: Bus, K: Clock, W: Beside> Drive<'a, B, K, W> {
    pub(super) fn new(
        job: &Job,
        namespace: &Namespace,
        queues: &'a mut [QueuePair<B>],
        memory: &HostMemory,
        clock: &'a K,
        beside: &'a mut W,
        progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Self, DriverError> {
        let (nlb, words) = entry(job, namespace)?;
        let number = u64::try_from(queues.len()).expect("usize fits in 64 bits");
        let share = job.buffers.map(|total| total / number.max(1));
        let lines = queues
            .iter_mut()
            .map(|queue| Line::new(job, queue, memory, words, share))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            lines,
            clock,
            beside,
            progress,
            blocks_per_unit: u64::from(nlb.get()),
            unit_len: job.block_size.into(),
            pause_ns: u64::try_from(job.pause.as_nanos()).unwrap_or(u64::MAX),
            notes_stalls: !job.verify,
            times: Times::default(),
            stopped: false,
        })
    }

    fn in_flight(&self) -> bool {
        self.lines.iter().any(|line| line.queue.in_flight() > 0)
    }

    /// Issues `traffic` until it ends, `runtime_ns` have passed, or the caller stops it; then waits
    /// for commands in flight.
    pub(super) fn run(
        &mut self,
        traffic: &mut impl Traffic,
        phase: Phase,
        runtime_ns: Option<u64>,
        record: &mut Record,
    ) -> Result<(), DriverError> {
        let started = self.clock.now_ns();
        let end = runtime_ns.map_or(u64::MAX, |runtime| started.saturating_add(runtime));
        let mut tick = started + TICK_NS;
        self.times = Times {
            started,
            now: started,
            last_taken: started,
            ..Times::default()
        };
        let mut going = !self.stopped;
        loop {
            let submitted = going && self.submit(traffic)?;
            let busy = self.in_flight();
            let pausing = going && self.times.now < self.times.resume;
            going &= submitted || busy || pausing;
            if !busy && !pausing {
                break;
            }
            self.turn(traffic, record)?;
            self.beside.turn(self.times.now)?;
            let now = self.times.now;
            if now >= end {
                going = false;
            }
            if now >= tick {
                self.stopped |= (self.progress)(Progress {
                    phase,
                    commands: record.commands,
                    elapsed_ns: now - started,
                })
                .is_break();
                going &= !self.stopped;
                // A drive that works on may be asked back all the same.
                if let Some(line) = self.lines.first() {
                    line.queue.bus().check_alive()?;
                }
                // The time of showing it is no stall.
                self.times.now = self.clock.now_ns();
                tick = self.times.now + TICK_NS;
            }
        }
        Ok(())
    }

    /// Fills the queues; whether anything was submitted.
    #[inline]
    fn submit(&mut self, traffic: &mut impl Traffic) -> Result<bool, DriverError> {
        let now = self.times.now;
        if now < self.times.resume {
            return Ok(false);
        }
        let mut any = false;
        let blocks_per_unit = self.blocks_per_unit;
        let unit_len = self.unit_len;
        for (queue, line) in self.lines.iter_mut().enumerate() {
            let beside = &mut *self.beside;
            any |= line.submit(traffic, now, blocks_per_unit, |op| {
                beside.submitted(Submitted {
                    at_ns: now,
                    queue,
                    write: op.is_write(),
                    offset: op.unit * unit_len,
                    len: unit_len,
                });
            })?;
        }
        Ok(any)
    }

    /// Rings, and takes completions.
    #[inline]
    fn turn(&mut self, traffic: &mut impl Traffic, record: &mut Record) -> Result<(), DriverError> {
        let mut any = false;
        for at in 0..self.lines.len() {
            let queue = &mut *self.lines[at].queue;
            queue.ring()?;
            let taken = queue.poll()?;
            if taken == 0 {
                continue;
            }
            any = true;
            let stalled = self.look(record);
            let lull = self.ends_lull(record);
            let times = self.times;
            let line = &mut self.lines[at];
            let before = record.commands;
            while let Some(cqe) = line.queue.next_completion() {
                line.complete(traffic, &cqe, &times, stalled, record);
            }
            // of those that count, like all others
            if lull {
                record.commands_ending_lulls += record.commands - before;
            }
            self.times.last_taken = times.now;
            record.elapsed_ns = times.now - times.started - record.stalled_ns;
        }
        if !any {
            self.idle(record)?;
        } else if self.pause_ns > 0 && !self.in_flight() {
            self.times.resume = self.times.now.saturating_add(self.pause_ns);
        }
        Ok(())
    }

    /// Looks at the clock; whether the thread has not run since the last look.
    #[inline]
    fn look(&mut self, record: &mut Record) -> bool {
        let now = self.clock.now_ns();
        let since = now - self.times.now + std::mem::take(&mut self.times.gap);
        self.times.now = now;
        let stalled = since > STALL_NS && self.notes_stalls;
        if stalled {
            record.stalls += 1;
            record.stalled_ns += since;
            self.times.stall_end = now;
        }
        stalled
    }

    /// Whether something completes now after nothing did for a while, in which this thread looked
    /// and had commands in flight: what did not run then was the server, or it took so long.
    #[inline]
    fn ends_lull(&mut self, record: &mut Record) -> bool {
        let times = &mut self.times;
        let since = times.now - times.last_taken;
        let lull = since > STALL_NS && times.stall_end < times.last_taken && self.notes_stalls;
        if lull {
            record.lulls += 1;
            record.lulled_ns += since;
            times.lull_end = times.now;
        }
        lull
    }

    /// Called when nothing has completed. Reads the clock now and then, and fails if a drive does
    /// nothing for the queue's timeout.
    fn idle(&mut self, record: &mut Record) -> Result<(), DriverError> {
        let Some(line) = self.lines.first() else {
            return Ok(());
        };
        if !self.in_flight() {
            // Pausing: nothing is rung or completed.
            self.look(record);
            self.times.last_taken = self.times.now;
            std::hint::spin_loop();
            return Ok(());
        }
        // The queues have just been looked at, and nothing was there.
        self.times.gap = 0;
        let looks = line.queue.empty_looks();
        if looks > LOOKS_BEFORE_YIELD {
            // Hundreds of these take as long as a stall, so each is looked at by itself.
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
            if !looks.is_multiple_of(LOOKS_PER_CLOCK) {
                return Ok(());
            }
        }
        let timeout = line.queue.timeout();
        let now = self.clock.now_ns();
        let since = now - std::mem::replace(&mut self.times.now, now);
        self.times.gap = if since > STALL_NS { since } else { 0 };
        if u128::from(self.times.now - self.times.last_taken) > timeout.as_nanos() {
            let csts = self.lines[0].queue.bus().read32(CSTS)?;
            if Csts::from(csts).cfs() || csts == u32::MAX {
                return Err(DriverError::ControllerFatal { csts });
            }
            return Err(DriverError::Timeout {
                what: "an I/O command",
                after: timeout,
            });
        }
        Ok(())
    }
}

/// Dwords 12 and 13 of a command that manages a zone.
fn action(kind: Kind) -> u64 {
    let action = match kind {
        Kind::Finish => ZoneSendAction::FINISH,
        _ => ZoneSendAction::RESET,
    };
    u64::from(u32::from(ZoneSendCdw13::new().with_zsa(action))) << 32
}

/// A job's blocks per command, and the words that its commands have in common.
pub(super) fn entry(job: &Job, namespace: &Namespace) -> Result<(Blocks, [u64; 8]), DriverError> {
    let nlb = Blocks::new(job.block_size / namespace.block_len).ok_or_else(|| {
        DriverError::Unsupported(format!(
            "a block size of {} bytes is not a whole number of logical blocks",
            job.block_size
        ))
    })?;
    // Flush's opcode is 0: the command's own is put over it.
    let entry = namespace.transfer(NvmOpcode::FLUSH, 0, nlb, false);
    Ok((nlb, entry.to_words()))
}

impl<'a, B: Bus> Line<'a, B> {
    pub(super) fn new(
        job: &Job,
        queue: &'a mut QueuePair<B>,
        memory: &HostMemory,
        words: [u64; 8],
        buffers: Option<u64>,
    ) -> Result<Self, DriverError> {
        if queue.in_flight() != 0 {
            return Err(DriverError::Unsupported(format!(
                "{} commands are in flight in the queue; poll them first",
                queue.in_flight()
            )));
        }
        if job.block_size > queue.transfer_len() {
            return Err(DriverError::Unsupported(format!(
                "a command of this queue transfers at most {} bytes, not {}",
                queue.transfer_len(),
                job.block_size
            )));
        }
        queue.order_slots();
        let len = usize::try_from(job.block_size).expect("u32 fits in usize");
        let slots = usize::from(job.queue_depth);
        let total = buffers.map(|total| usize::try_from(total).unwrap_or(usize::MAX));
        let places = Places::new(queue, memory, len, slots, total)?;
        let slot = |place| Slot {
            words,
            place,
            op: Op::default(),
            submitted_ns: 0,
        };
        Ok(Self {
            queue,
            places,
            slots: (0..slots).map(slot).collect(),
            rings_each: job.ring == Ring::Command,
        })
    }

    #[inline]
    pub(super) fn submit(
        &mut self,
        traffic: &mut impl Traffic,
        now: u64,
        blocks_per_unit: u64,
        mut submitted: impl FnMut(Op),
    ) -> Result<bool, DriverError> {
        let mut any = false;
        while let Some(slot) = self
            .queue
            .next_cid()
            .and_then(|cid| self.slots.get_mut(usize::from(cid)))
        {
            let Some(op) = traffic.next() else { break };
            slot.place = self.places.after(slot.place);
            let place = self.places.get(slot.place);
            traffic.start(op, &self.places.buffer, place.at);
            let opcode = match op.kind {
                Kind::Read => NvmOpcode::READ.0,
                Kind::Write => NvmOpcode::WRITE.0,
                Kind::Append => ZonedOpcode::ZONE_APPEND.0,
                Kind::Reset | Kind::Finish => ZonedOpcode::ZONE_MANAGEMENT_SEND.0,
            };
            // A copy: writing parts of the slot's words and reading them back
            // whole would wait for the stores.
            let mut words = slot.words;
            words[OPCODE_WORD] |= u64::from(opcode);
            words[SLBA_WORD] = op.unit * blocks_per_unit;
            if op.kind.moves_data() {
                place.pointer.put_words(&mut words);
            } else {
                words[ACTION_WORD] = action(op.kind);
            }
            slot.op = op;
            slot.submitted_ns = now;
            self.queue
                .submit_words(words)
                .expect("the queue has just named a free slot");
            if op.kind.moves_data() {
                submitted(op);
            }
            if self.rings_each {
                self.queue.ring()?;
            }
            any = true;
        }
        Ok(any)
    }

    #[inline]
    pub(super) fn complete(
        &mut self,
        traffic: &mut impl Traffic,
        cqe: &Cqe,
        times: &Times,
        stalled: bool,
        record: &mut Record,
    ) {
        // The queue lets no identifier through that it did not give.
        let slot = &self.slots[usize::from(cqe.cid)];
        let status = cqe.status.status();
        // A command that failed is no throughput: it has moved nothing. Completions while this
        // thread did not run belong to that time.
        let moves_data = slot.op.kind.moves_data();
        let counts = status.is_success() && moves_data;
        record.resets += u64::from(status.is_success() && slot.op.kind == Kind::Reset);
        record.commands += u64::from(counts && !stalled);
        record.commands_in_stalls += u64::from(counts && stalled);
        let latency = if slot.submitted_ns < times.stall_end {
            &mut record.stalled
        } else if slot.submitted_ns < times.lull_end {
            &mut record.late
        } else {
            &mut record.latency
        };
        if moves_data {
            latency.saturating_record(times.now - slot.submitted_ns);
        }
        if !status.is_success() {
            record.errors += 1;
            record.first_error.get_or_insert(status);
        }
        let at = self.places.get(slot.place).at;
        traffic.finish(slot.op, status.is_success(), &self.places.buffer, at);
    }
}
