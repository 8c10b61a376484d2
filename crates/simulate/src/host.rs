//! A host thread: one queue pair, and its next commands.
//!
//! Data is not transferred, so all commands share one buffer. By default a host takes no time: it
//! reacts to a completion at the same instant. With a cost it is one processor, which each
//! submission and each completion occupies for a fixed time.

use std::rc::Rc;

use driver::QueuePair;
use driver::bus::Bus;
use driver::io::{Blocks, Namespace};
use driver::workload::random::Random;
use media::scripted;
use memory::Buffer;
use model::{KvOp, Op as ModelOp, ZoneOp};
use nvme_spec::command::{DsmCdw10, DsmCdw11, DsmRange};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::zoned::{ZoneSendAction, ZoneSendCdw13, ZonedOpcode};
use nvme_spec::{Sqe, Status};
use zerocopy::IntoBytes;

use crate::error::Error;
use crate::fixed::{LOG_BITS, exponential};
use crate::job::{Arrivals, Job, Kind, Op};
use crate::pace::{Pace, direction};
use crate::stream::Stream;
use crate::trace::Arrival;

/// Bytes of a logical block.
pub(crate) const BLOCK: u64 = 512;
/// Completions per poll.
const BATCH: usize = 64;
/// Idle time after which a queue may be cold, so that not every turn checks its doorbell.
const ASIDE_NS: u64 = 500_000;
/// Bytes of memory reserved for each command.
pub(crate) const ASIDE_LEN: usize = 128;
/// A second.
const SECOND: u128 = 1_000_000_000;
/// Without a wake-up time: waits only for completions.
pub(crate) const NEVER: u64 = u64::MAX;

/// Cost of a host's software.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCost {
    /// Time per command before the drive is notified.
    pub submission_ns: u64,
    /// Time per command after the drive has posted its completion.
    pub completion_ns: u64,
}

/// The next step of a host.
enum Next {
    /// A command, the time from which its latency counts, and its number in a trace.
    Op(Op, u64, usize),
    /// Nothing before that time.
    At(u64),
    /// That command when nothing is in flight any more, and no further ones.
    Last(Op),
    /// No further commands.
    End,
}

/// A job's worker with its timing.
#[derive(Debug)]
struct Paced {
    stream: Stream,
    end: u64,
    runtime_ns: Option<u64>,
    delay_ns: u64,
    /// Earliest time of the next submission.
    not_before: u64,
    rates: [Option<Pace>; 3],
    arrivals: Arrivals,
    distances: Random,
    /// Due times of the next reads, writes and trims of a rate, and the bytes of those before.
    due: [u64; 3],
    issued: [u64; 3],
    ramp_ns: u64,
    flush_at_end: bool,
    begun: u64,
    think_ns: u64,
    think_commands: u64,
    done: u64,
}

impl Paced {
    fn begin(&mut self, now: u64) {
        self.begun = now.saturating_add(self.delay_ns);
        self.not_before = self.begun;
        self.due = [self.begun; 3];
        let runtime = self.runtime_ns.unwrap_or(NEVER);
        self.end = self
            .begun
            .saturating_add(runtime.saturating_add(self.ramp_ns));
    }

    #[inline]
    fn next(&mut self, now: u64) -> Next {
        if now >= self.end {
            return self.last();
        }
        if now < self.not_before {
            return Next::At(self.not_before.min(self.end));
        }
        if self.rates.iter().any(Option::is_some)
            && let Some(due) = self.due(now)
        {
            return Next::At(due.min(self.end));
        }
        let Some(op) = self.stream.next() else {
            return self.last();
        };
        if let Some(kind) = direction(op.kind)
            && let Some(pace) = self.rates[kind]
        {
            self.space(kind, pace, op.len);
        }
        Next::Op(op, now, 0)
    }

    fn last(&self) -> Next {
        if !self.flush_at_end || !self.stream.has_written() {
            return Next::End;
        }
        Next::Last(Op {
            kind: Kind::Flush,
            offset: 0,
            len: 0,
            fua: false,
        })
    }

    /// When the next command is due, if that is later. As in fio, a command of the other kind takes
    /// the place of one that is not due yet, if it is due earlier (`rate_ddir` in io_u.c).
    fn due(&mut self, now: u64) -> Option<u64> {
        let kind = self.stream.direction()?;
        let mut due = self.due[kind];
        if due > now && self.stream.is_mixed() {
            let other = self.due[1 - kind.min(1)];
            if other < due {
                self.stream.turn();
                due = other;
            }
        }
        (due > now).then_some(due)
    }

    /// Computes the due time of the command of its kind after this one.
    fn space(&mut self, kind: usize, pace: Pace, len: u64) {
        let len = if len == 0 { pace.smallest } else { len };
        self.issued[kind] = self.issued[kind].saturating_add(len);
        self.due[kind] = match self.arrivals {
            Arrivals::Even => {
                let since = (u128::from(self.issued[kind]) * SECOND).div_ceil(pace.bytes_per_s);
                self.begun
                    .saturating_add(u64::try_from(since).unwrap_or(NEVER))
            }
            Arrivals::Poisson => {
                let distance = u128::from(exponential(self.distances.next_u64())) * SECOND;
                let ns = (distance / u128::from(pace.per_s)) >> LOG_BITS;
                self.due[kind].saturating_add(u64::try_from(ns).unwrap_or(NEVER))
            }
        };
    }

    /// Handles the end of a command.
    fn finished(&mut self, now: u64) {
        if self.think_ns > 0 {
            self.done += 1;
            if self.done == self.think_commands {
                self.done = 0;
                self.not_before = now.saturating_add(self.think_ns);
            }
        }
    }
}

#[derive(Debug)]
enum Source {
    Job(Box<Paced>),
    Trace {
        arrivals: Vec<Arrival>,
        next: usize,
        begun: u64,
    },
}

impl Source {
    #[inline]
    fn next(&mut self, now: u64) -> Next {
        match self {
            Source::Job(job) => job.next(now),
            Source::Trace {
                arrivals,
                next,
                begun,
            } => {
                let Some(arrival) = arrivals.get(*next) else {
                    return Next::End;
                };
                let at = begun.saturating_add(arrival.at);
                if now < at {
                    return Next::At(at);
                }
                let number = *next;
                *next += 1;
                // Counts from the arrival, also if the queue had no room then.
                Next::Op(arrival.op, at, number)
            }
        }
    }
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
struct Slot {
    since: u64,
    op: Op,
    number: usize,
}

/// A completed command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    /// Number of the arrival in its trace, from 0.
    pub(crate) number: usize,
    pub(crate) kind: Kind,
    pub(crate) len: u64,
    pub(crate) since: u64,
    pub(crate) at: u64,
    pub(crate) status: Status,
}

/// Data pointers to memory that all commands share.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    /// Address of the buffer's first page.
    pub(crate) buffer: u64,
    /// Address of the PRP list of its further pages.
    pub(crate) list: u64,
}

/// Resources of a host other than its queue.
pub(crate) struct Means {
    /// Where data is.
    pub(crate) data: Data,
    /// See [`ASIDE_LEN`].
    pub(crate) aside: Buffer,
    /// See [`Telling`].
    pub(crate) telling: Option<Rc<Telling>>,
    /// Cost of its software.
    pub(crate) cost: HostCost,
}

/// Commands for operations without a block command, on a drive whose hosts choose its model's
/// operations ([`media::scripted`]).
#[derive(Debug, Default)]
pub(crate) struct Telling {
    /// Zone size in bytes.
    pub(crate) zone: u64,
    /// The parts of compound commands.
    pub(crate) compounds: Vec<Vec<KvOp>>,
}

/// One thread with its queue pair.
pub(crate) struct Host<B: Bus> {
    queue: QueuePair<B>,
    namespace: Namespace,
    data: Data,
    /// [`ASIDE_LEN`] bytes per slot: the range of a Deallocate, or the parts of a compound command.
    aside: Buffer,
    /// Set if its drive is such a drive.
    telling: Option<Rc<Telling>>,
    source: Source,
    slots: Vec<Slot>,
    cost: HostCost,
    /// Index of its job.
    pub(crate) job: usize,
    begun: bool,
    ended: bool,
    /// Whether completions may be present.
    pub(crate) look: bool,
    busy_until: u64,
    /// Commands in the queue without a doorbell write, and how many of them are worth one.
    unrung: u32,
    batch: u32,
    /// See [`Job::refill_at`]; whether it submits until its depth is reached.
    refill_at: Option<u16>,
    fills: bool,
    /// Time from which its commands count.
    pub(crate) counts_from: u64,
    last_active: u64,
    /// Time of its next own step.
    pub(crate) wake: u64,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stepped {
    /// Commands announced to the drive.
    pub(crate) rung: u32,
    /// Whether the queue may have been cold before.
    pub(crate) was_aside: bool,
}

impl<B: Bus> Host<B> {
    /// A thread that runs a job.
    pub(crate) fn of_job(
        queue: QueuePair<B>,
        namespace: Namespace,
        means: Means,
        (number, job, stream, seed): (usize, &Job, Stream, u64),
    ) -> Self {
        let source = Source::Job(Box::new(Paced {
            stream,
            end: NEVER,
            runtime_ns: job.runtime_ns,
            delay_ns: job.start_delay_ns,
            not_before: 0,
            rates: [0, 1, 2].map(|kind| Pace::of(job, kind)),
            arrivals: job.arrivals,
            distances: Random::new(!seed),
            due: [0; 3],
            issued: [0; 3],
            ramp_ns: job.ramp_ns,
            flush_at_end: job.flush_at_end,
            begun: 0,
            think_ns: job.think_ns,
            think_commands: job.think_commands,
            done: 0,
        }));
        Self {
            batch: job.batch.max(1).into(),
            refill_at: job.refill_at,
            ..Self::new(queue, namespace, means, number, source)
        }
    }

    /// A thread that replays a trace.
    pub(crate) fn of_trace(
        queue: QueuePair<B>,
        namespace: Namespace,
        means: Means,
        arrivals: Vec<Arrival>,
    ) -> Self {
        let source = Source::Trace {
            arrivals,
            next: 0,
            begun: 0,
        };
        Self::new(queue, namespace, means, 0, source)
    }

    fn new(
        queue: QueuePair<B>,
        namespace: Namespace,
        means: Means,
        job: usize,
        source: Source,
    ) -> Self {
        let Means {
            data,
            aside,
            telling,
            cost,
        } = means;
        let nothing = Slot {
            since: 0,
            number: 0,
            op: Op {
                kind: Kind::Flush,
                offset: 0,
                len: 0,
                fua: false,
            },
        };
        Self {
            slots: vec![nothing; queue.depth().into()],
            queue,
            namespace,
            data,
            aside,
            telling,
            source,
            cost,
            job,
            begun: false,
            ended: false,
            look: false,
            busy_until: 0,
            unrung: 0,
            batch: 1,
            refill_at: None,
            fills: true,
            counts_from: 0,
            last_active: 0,
            wake: NEVER,
        }
    }

    /// Starts its time.
    pub(crate) fn begin(&mut self, now: u64) {
        self.begun = true;
        self.wake = now;
        match &mut self.source {
            Source::Job(job) => {
                job.begin(now);
                if job.ramp_ns > 0 {
                    self.counts_from = job.begun.saturating_add(job.ramp_ns);
                }
            }
            Source::Trace { begun, .. } => *begun = now,
        }
    }

    /// Stops submissions.
    pub(crate) fn end(&mut self) {
        self.ended = true;
        // One with commands in flight still has completions to take.
        if self.in_flight() == 0 {
            self.wake = NEVER;
        }
    }

    /// Whether it has begun, has stopped submitting, and has nothing in flight.
    pub(crate) fn is_done(&self) -> bool {
        self.begun && self.ended && self.in_flight() == 0
    }

    /// Whether its time has started.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    pub(crate) fn in_flight(&self) -> u16 {
        self.queue.in_flight()
    }

    /// Performs all steps at `now`; passes every completed command to `finished`.
    #[inline]
    pub(crate) fn step(
        &mut self,
        now: u64,
        mut finished: impl FnMut(Finished),
    ) -> Result<Stepped, Error> {
        let mut stepped = Stepped::default();
        let was_idle = self.queue.in_flight() == 0;
        let was_aside = was_idle && now.saturating_sub(self.last_active) >= ASIDE_NS;
        self.wake = NEVER;
        let mut is_busy = false;
        loop {
            if now < self.busy_until {
                self.wake = self.busy_until;
                is_busy = true;
                break;
            }
            if self.cost.submission_ns > 0 && self.unrung >= self.batch {
                stepped.rung += self.ring()?;
            }
            if self.look && self.reap(now, &mut finished)? {
                continue;
            }
            if self.ended || !self.has_room() {
                break;
            }
            match self.source.next(now) {
                Next::Op(op, since, number) => {
                    self.submit(Slot { since, op, number })?;
                    self.busy_until = now + self.cost.submission_ns;
                }
                Next::At(at) => {
                    self.wake = at;
                    break;
                }
                Next::Last(op) => {
                    if self.in_flight() > 0 {
                        break;
                    }
                    let since = now;
                    let number = 0;
                    self.submit(Slot { since, op, number })?;
                    self.ended = true;
                }
                Next::End => self.ended = true,
            }
        }
        if !is_busy || self.cost.submission_ns == 0 {
            stepped.rung += self.ring()?;
        }
        stepped.was_aside = was_aside && stepped.rung > 0;
        self.last_active = now;
        Ok(stepped)
    }

    /// Whether it may submit: its depth is not reached, and a queue that was full has drained.
    #[inline]
    fn has_room(&mut self) -> bool {
        if self.queue.next_cid().is_none() {
            self.fills = false;
            return false;
        }
        if let Some(refill_at) = self.refill_at {
            self.fills |= self.queue.in_flight() <= refill_at;
            return self.fills;
        }
        true
    }

    #[inline]
    fn ring(&mut self) -> Result<u32, Error> {
        let unrung = std::mem::take(&mut self.unrung);
        if unrung > 0 {
            self.queue.ring()?;
        }
        Ok(unrung)
    }

    /// Polls completions; returns whether to continue at once.
    #[inline]
    fn reap(&mut self, now: u64, finished: &mut impl FnMut(Finished)) -> Result<bool, Error> {
        let cost = self.cost.completion_ns;
        let most = if cost > 0 { 1 } else { BATCH };
        let taken = self.queue.poll_up_to(most)?;
        self.look = taken == most;
        let at = now + cost;
        while let Some(cqe) = self.queue.next_completion() {
            let Slot { since, op, number } = self.slots[usize::from(cqe.cid)];
            finished(Finished {
                number,
                kind: op.kind,
                len: op.len,
                since,
                at,
                status: cqe.status.status(),
            });
            if let Source::Job(job) = &mut self.source {
                job.finished(at);
            }
        }
        if taken > 0 {
            self.busy_until = at;
        }
        Ok(self.look)
    }

    #[inline]
    fn submit(&mut self, slot: Slot) -> Result<(), Error> {
        let op = &slot.op;
        let cid = self.queue.next_cid().expect("the caller has looked");
        let mut sqe = match op.kind {
            Kind::Read => self.transfer(NvmOpcode::READ, op)?,
            Kind::Write => self.transfer(NvmOpcode::WRITE, op)?,
            Kind::Flush => Sqe {
                opcode: NvmOpcode::FLUSH.0,
                ..Sqe::default()
            },
            _ => self.other(cid, op)?,
        };
        sqe.nsid = self.namespace.nsid;
        let given = self.queue.submit(sqe);
        debug_assert_eq!(given, Ok(cid));
        self.slots[usize::from(cid)] = slot;
        self.unrung += 1;
        Ok(())
    }

    /// A command without blocks.
    fn other(&self, cid: u16, op: &Op) -> Result<Sqe, Error> {
        if let Some(telling) = &self.telling {
            return self.told(cid, op, telling);
        }
        match op.kind {
            Kind::Finish => Ok(zone(op, ZoneSendAction::FINISH)),
            Kind::Open => Ok(zone(op, ZoneSendAction::OPEN)),
            Kind::Close => Ok(zone(op, ZoneSendAction::CLOSE)),
            Kind::Reset => Ok(zone(op, ZoneSendAction::RESET)),
            _ => self.deallocate(cid, op),
        }
    }

    /// The same for a drive whose hosts choose its model's operations.
    fn told(&self, cid: u16, op: &Op, telling: &Telling) -> Result<Sqe, Error> {
        let too_large = Error::TooLarge { len: op.len };
        let Some(op) = telling.op(op) else {
            return Err(too_large);
        };
        let Some((mut sqe, len)) = scripted::command(&op) else {
            return Err(too_large);
        };
        match op {
            ModelOp::Compound(parts) => {
                let at = usize::from(cid) * ASIDE_LEN;
                for (number, part) in parts.iter().enumerate() {
                    let at = at + number * scripted::PART_LEN;
                    self.aside.write_from(at, &scripted::part(part));
                }
                sqe.prp1 = self.queue.iova(&self.aside).0 + at as u64;
            }
            _ => (sqe.prp1, sqe.prp2) = self.data.pointers(len.into()),
        }
        Ok(sqe)
    }

    #[inline]
    fn transfer(&self, opcode: NvmOpcode, op: &Op) -> Result<Sqe, Error> {
        let blocks = u32::try_from(op.len / BLOCK).ok().and_then(Blocks::new);
        let blocks = blocks.ok_or(Error::TooLarge { len: op.len })?;
        let sqe = self
            .namespace
            .transfer(opcode, op.offset / BLOCK, blocks, op.fua);
        let (prp1, prp2) = self.data.pointers(op.len);
        Ok(Sqe { prp1, prp2, ..sqe })
    }

    fn deallocate(&self, cid: u16, op: &Op) -> Result<Sqe, Error> {
        let nlb = u32::try_from(op.len / BLOCK).map_err(|_| Error::TooLarge { len: op.len })?;
        let range = DsmRange {
            cattr: 0,
            nlb,
            slba: op.offset / BLOCK,
        };
        let at = usize::from(cid) * ASIDE_LEN;
        self.aside.write_from(at, range.as_bytes());
        Ok(Sqe {
            opcode: NvmOpcode::DATASET_MANAGEMENT.0,
            prp1: self.queue.iova(&self.aside).0 + at as u64,
            cdw10: DsmCdw10::new().with_nr_z(0).into(),
            cdw11: DsmCdw11::new().with_ad(true).into(),
            ..Sqe::default()
        })
    }
}

/// Zone Management Send (ZNS 1.1, 3.4.3).
fn zone(op: &Op, action: ZoneSendAction) -> Sqe {
    let slba = op.offset / BLOCK;
    Sqe {
        opcode: ZonedOpcode::ZONE_MANAGEMENT_SEND.0,
        cdw10: (slba & u64::from(u32::MAX)) as u32,
        cdw11: (slba >> 32) as u32,
        cdw13: ZoneSendCdw13::new().with_zsa(action).into(),
        ..Sqe::default()
    }
}

impl Data {
    /// PRP entries for `len` bytes, up to the maximum transfer size; they are harmless in a command
    /// without data.
    #[inline]
    fn pointers(&self, len: u64) -> (u64, u64) {
        let second = match len {
            0..=4096 => 0,
            4097..=8192 => self.buffer + 4096,
            _ => self.list,
        };
        (self.buffer, second)
    }
}

impl Telling {
    /// The model's operation; `None` if there is none.
    fn op(&self, op: &Op) -> Option<ModelOp<'_>> {
        let Op {
            kind, offset, len, ..
        } = *op;
        let zone = || {
            let zone = offset.checked_div(self.zone)?;
            u32::try_from(zone).ok()
        };
        Some(match kind {
            Kind::Read | Kind::Write | Kind::Flush => return None,
            Kind::Trim => ModelOp::Deallocate { offset, len },
            Kind::Reset => ModelOp::Zone(ZoneOp::Reset { zone: zone()? }),
            Kind::Finish => ModelOp::Zone(ZoneOp::Finish { zone: zone()? }),
            Kind::Open => ModelOp::Zone(ZoneOp::Open { zone: zone()? }),
            Kind::Close => ModelOp::Zone(ZoneOp::Close { zone: zone()? }),
            Kind::Compound => {
                let number = usize::try_from(offset).ok()?;
                ModelOp::Compound(self.compounds.get(number)?)
            }
            kind => ModelOp::Kv(KvOp {
                kind: kind.of_model()?,
                hash: u32::try_from(offset).ok()?,
                len: u32::try_from(len).ok()?,
            }),
        })
    }
}
