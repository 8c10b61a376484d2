//! Submission of a plan's commands, and collection of the results.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use driver::DriverError;
use driver::key_value::{Dialect, Keys};
use machine::clock::Clock;
use memory::Buffer;
use nvme_spec::Sqe;
use nvme_spec::command::DsmRange;
use nvme_spec::opcode::{AdminOpcode, Csi};
use terminal::interrupt::Interrupt;
use trace_file::stats::Latencies;
use zerocopy::IntoBytes;

use super::make::{Data, Held};
use super::plan::Step;
use super::{KindReplayed, Plan, Replayed, Speed, Target};
use crate::host::{Host, Queue};

/// Maximum time without any completion before the drive counts as unresponsive.
const SILENCE_NS: u64 = 30_000_000_000;
/// The thread sleeps until the next command if that is further away than this, and up to this long.
const NAP_ABOVE_NS: u64 = 500_000;
const NAP_MAX_NS: u64 = 10_000_000;

/// A drive prepared for a replay.
pub struct Drive<'h> {
    host: &'h mut Host,
    queues: Vec<Lane>,
}

/// A queue pair with a buffer for each command.
struct Lane {
    queue: Queue,
    buffer: Buffer,
    /// Bytes of each buffer.
    room: usize,
    /// Command in flight of each buffer: its submission time and its step.
    slots: Vec<Option<(u64, usize)>>,
}

impl<'h> Drive<'h> {
    /// Properties of the drive.
    pub fn describe(host: &mut Host) -> anyhow::Result<Target> {
        let mut namespaces = Vec::new();
        for nsid in host.device().active_namespaces()? {
            namespaces.extend(held(host, nsid)?);
            if namespaces.len() == MOST_NAMESPACES {
                break;
            }
        }
        let device = host.device();
        Ok(Target {
            namespaces,
            transfer_len: device.transfer_len_max(),
            queues: device.queues_max(),
        })
    }

    /// Creates the queue pairs of a plan.
    pub fn prepare(host: &'h mut Host, plan: &Plan, depth: u16) -> anyhow::Result<Self> {
        let room = (plan.transfer_len as usize).next_multiple_of(4096);
        let mut queues = Vec::new();
        for _ in 0..plan.queues {
            let device = host.device();
            let queue = device.create_queue_pair(depth.min(device.depth_max()), false);
            let queue = queue.context("cannot create a queue pair")?;
            let depth = usize::from(queue.depth());
            let buffer = host.device().alloc(room * depth)?;
            fill(&buffer);
            queues.push(Lane {
                queue,
                buffer,
                room,
                slots: vec![None; depth],
            });
        }
        Ok(Drive { host, queues })
    }
}

/// Maximum number of namespaces to examine.
const MOST_NAMESPACES: usize = 256;

/// Contents of a namespace; `None` for other kinds.
fn held(host: &mut Host, nsid: u32) -> anyhow::Result<Option<Held>> {
    match host.device().command_set(nsid) {
        Ok(Csi::KEY_VALUE) => {
            let dialect = Dialect::Nvme;
            return Ok(Some(Held::Keys(Keys { nsid, dialect })));
        }
        // a drive before NVMe 1.3 has no descriptors, and only blocks
        Ok(_) | Err(DriverError::Status { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let namespace = match host.device().namespace(nsid) {
        Ok(namespace) => namespace,
        Err(DriverError::Status { .. } | DriverError::Unsupported(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(if has_zones(host, nsid)? {
        Held::Zones(namespace)
    } else {
        Held::Blocks(namespace)
    }))
}

/// Whether a namespace has zones: it has the Identify structure of zoned namespaces (ZNS 1.1,
/// 4.1.5.1; CNS 05h).
fn has_zones(host: &mut Host, nsid: u32) -> anyhow::Result<bool> {
    let device = host.device();
    let page = device.alloc(4096)?;
    let sqe = Sqe {
        opcode: AdminOpcode::IDENTIFY.0,
        nsid,
        cdw10: 5,
        cdw11: u32::from(Csi::ZONED_NAMESPACE.0) << 24,
        ..Sqe::default()
    };
    match device.admin(sqe, Some(&page)) {
        Ok(_) => {
            // some answer with zeros: a zoned namespace has extended LBA formats, the first of
            // which has a zone size
            let mut zone_size = [0; 8];
            page.read_into(2816, &mut zone_size);
            Ok(u64::from_le_bytes(zone_size) > 0)
        }
        Err(DriverError::Status { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Fills a buffer with bytes that no drive can compress.
fn fill(buffer: &Buffer) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut page = [0u8; 4096];
    for at in (0..buffer.len()).step_by(page.len()) {
        for word in page.chunks_exact_mut(8) {
            // xorshift64, Marsaglia 2003
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let len = page.len().min(buffer.len() - at);
        buffer.write_from(at, &page[..len]);
    }
}

impl Lane {
    /// Submits a step; the lane must have room.
    fn submit(&mut self, at: usize, step: &Step, now: u64) -> anyhow::Result<()> {
        let cid = self.queue.next_cid().context("the queue is full")?;
        let place = usize::from(cid) * self.room;
        let mut sqe = step.sqe;
        let len = match step.data {
            Data::Nothing => 0,
            Data::ToHost(len) => len as usize,
            Data::FromHost {
                len,
                block_len,
                lba,
            } => {
                self.stamp(place, (len, block_len, lba), at as u64);
                len as usize
            }
            Data::Value(len) => {
                let number = (at as u64).to_le_bytes();
                let len = len as usize;
                self.buffer
                    .write_from(place, &number[..len.min(number.len())]);
                len
            }
            Data::Range { lba, blocks } => {
                let range = DsmRange {
                    cattr: 0,
                    nlb: blocks,
                    slba: lba,
                };
                self.buffer.write_from(place, range.as_bytes());
                size_of::<DsmRange>()
            }
        };
        if len > 0 {
            let pointer = self.queue.pointer(cid, &self.buffer, place, len)?;
            pointer.put(&mut sqe);
        }
        let cid = self.queue.submit(sqe).context("the queue is full")?;
        self.slots[usize::from(cid)] = Some((now, at));
        Ok(())
    }

    /// Each block of a write begins with its address and the number of its command, so that no two
    /// are the same.
    fn stamp(&self, place: usize, (len, block_len, lba): (u32, u32, u64), number: u64) {
        for block in 0..len / block_len {
            let at = place + (block * block_len) as usize;
            let words = [lba + u64::from(block), number];
            self.buffer.write_from(at, words.as_bytes());
        }
    }
}

/// Statistics of a replay.
struct Notes {
    late: Vec<u64>,
    kinds: Vec<(u64, Vec<u64>, Vec<u64>)>,
    errors: BTreeMap<String, u64>,
    waited: u64,
    /// The step that last found its queue full.
    full_for: Option<usize>,
    in_flight: usize,
    /// Time of the last completion, or of a later submission with nothing in flight.
    heard: u64,
}

/// Submits everything and waits for the end; `progress` receives the number of submitted commands.
///
/// # Errors
/// The drive is gone, returns an invalid answer, or does not answer.
pub fn run(
    mut drive: Drive<'_>,
    plan: &Plan,
    interrupt: &Interrupt,
    progress: &mut dyn FnMut(usize),
) -> anyhow::Result<Replayed> {
    let clock = drive.host.clock();
    let mut notes = Notes {
        late: Vec::with_capacity(plan.steps.len()),
        kinds: vec![Default::default(); plan.kinds.len()],
        errors: BTreeMap::new(),
        waited: 0,
        full_for: None,
        in_flight: 0,
        heard: 0,
    };
    let start = clock.now();
    let elapsed = |clock: &Clock| clock.now().since(start);
    let mut next = 0;
    let mut steps = plan.steps.len();
    while next < steps || notes.in_flight > 0 {
        let taken = take(&mut drive, plan, &mut notes, || elapsed(&clock))?;
        if interrupt.is_set() {
            steps = next;
        }
        let before = next;
        next = submit_due(&mut drive, &plan.steps[..steps], next, &mut notes, || {
            elapsed(&clock)
        })?;
        for lane in &mut drive.queues {
            lane.queue.ring()?;
        }
        let now = elapsed(&clock);
        if taken == 0 && next == before {
            if notes.in_flight > 0 && now.saturating_sub(notes.heard) > SILENCE_NS {
                bail!(
                    "the drive has not completed a command for {} s, with {} in flight",
                    SILENCE_NS / 1_000_000_000,
                    notes.in_flight
                );
            }
            let due = plan.steps[..steps]
                .get(next)
                .map_or(now, |step| step.due_ns);
            let left = due.saturating_sub(now);
            if notes.in_flight == 0 && left > NAP_ABOVE_NS {
                std::thread::sleep(Duration::from_nanos((left / 2).min(NAP_MAX_NS)))
            } else {
                std::thread::yield_now()
            }
        }
        progress(next);
    }
    let elapsed_ns = elapsed(&clock);
    for lane in drive.queues {
        drive.host.device().delete_queue_pair(lane.queue)?;
    }
    Ok(report(plan, notes, elapsed_ns, next))
}

/// Submits due commands that find room, in the order of the trace.
fn submit_due(
    drive: &mut Drive<'_>,
    steps: &[Step],
    mut next: usize,
    notes: &mut Notes,
    elapsed: impl Fn() -> u64,
) -> anyhow::Result<usize> {
    let mut now = elapsed();
    while let Some(step) = steps.get(next).filter(|step| step.due_ns <= now) {
        let lane = &mut drive.queues[usize::from(step.queue)];
        if lane.queue.next_cid().is_none() {
            if notes.full_for != Some(next) {
                notes.full_for = Some(next);
                notes.waited += 1;
            }
            break;
        }
        now = elapsed();
        if notes.in_flight == 0 {
            notes.heard = now;
        }
        lane.submit(next, step, now)?;
        notes.late.push(now - step.due_ns);
        notes.in_flight += 1;
        next += 1;
    }
    Ok(next)
}

/// Takes completions; returns their number.
fn take(
    drive: &mut Drive<'_>,
    plan: &Plan,
    notes: &mut Notes,
    elapsed: impl Fn() -> u64,
) -> anyhow::Result<usize> {
    let mut taken = 0;
    for lane in &mut drive.queues {
        let count = lane.queue.poll()?;
        if count == 0 {
            continue;
        }
        let now = elapsed();
        notes.heard = now;
        while let Some(cqe) = lane.queue.next_completion() {
            let slot = lane.slots[usize::from(cqe.cid)].take();
            let (since, at) = slot.context("the drive posted a completion without a command")?;
            let step = &plan.steps[at];
            let (errors, latencies, recorded) = &mut notes.kinds[usize::from(step.kind)];
            latencies.push(now - since);
            recorded.push(step.recorded_ns);
            let status = cqe.status.status();
            if !status.is_success() {
                *errors += 1;
                *notes.errors.entry(status.to_string()).or_default() += 1;
            }
        }
        notes.in_flight -= count;
        taken += count;
    }
    Ok(taken)
}

fn report(plan: &Plan, notes: Notes, elapsed_ns: u64, submitted: usize) -> Replayed {
    let kinds = plan.kinds.iter().zip(notes.kinds);
    let kinds = kinds.filter(|(_, (_, latencies, _))| !latencies.is_empty());
    Replayed {
        commands: submitted as u64,
        elapsed_ns,
        recorded_ns: plan.recorded_ns,
        late: (plan.speed != Speed::Max).then(|| Latencies::of(notes.late)),
        waited: notes.waited,
        kinds: kinds
            .map(|(name, (errors, latencies, recorded))| KindReplayed {
                command: name.clone(),
                count: latencies.len() as u64,
                errors,
                latency: Latencies::of(latencies),
                recorded: Latencies::of(recorded),
            })
            .collect(),
        errors: notes.errors.into_iter().collect(),
        left_out: plan.left_out.clone(),
        interrupted: submitted < plan.steps.len(),
    }
}
