//! The host: queues, commands, and what must come of them.

mod events;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use driver::bus::Bus as _;
use driver::bus::vfio_user::VfioUser;
use driver::io::{Blocks, Namespace};
use driver::{Device, Doorbells, Options, QueuePair};
use memory::{Buffer, HostMemory, Iova};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::{Cqe, Sqe, Status};
use tests_sim::ledger::{Effect, Ledger, Span};
use tests_sim::random::Random;
use tests_sim::stamp::{self, Found, Place};

use crate::Args;
use crate::journal::{Entry, Journal};

/// Queue pairs, and commands out in each.
const QUEUES: usize = 3;
const DEPTH: u16 = 32;
const BLOCK: usize = 4096;
/// Blocks of one command at most: two pages need no list.
const BLOCKS_MAX: u32 = 2;
/// Bytes of a command's place in a region.
const PLACE: usize = BLOCKS_MAX as usize * BLOCK;
const REGION: usize = QUEUES * DEPTH as usize * PLACE;
const REGIONS: usize = 2;
/// Where the first region is for the device, and how far from each other they are.
const REGION_BASE: u64 = 1 << 40;
const POISON: u8 = 0xa5;
/// A step of this loop that takes longer was held up by the machine.
const HELD_UP: Duration = Duration::from_millis(20);
/// How long a command may take, beside that.
const BOUND: Duration = Duration::from_secs(4);
const CHECKS: Duration = Duration::from_millis(50);

struct Out {
    writes: bool,
    span: Span,
    mark: u64,
    since: Instant,
    /// Time that the machine had taken by then.
    held_up: Duration,
    region: usize,
    /// Its memory was taken away meanwhile.
    lost: bool,
}

struct Queue {
    pair: QueuePair<VfioUser>,
    out: Vec<Option<Out>>,
    interrupt: bool,
}

struct Region {
    memory: HostMemory,
    buffer: Buffer,
    base: Iova,
    mapped: bool,
}

#[derive(Default)]
struct Tally {
    commands: u64,
    resets: u64,
    unmaps: u64,
    deletions: u64,
    waits: u64,
    machine_stalls: u64,
    longest: Duration,
}

pub(crate) struct Host {
    device: Device<VfioUser>,
    namespace: Namespace,
    verified: bool,
    random: Random,
    queues: Vec<Option<Queue>>,
    regions: Vec<Region>,
    ledger: Ledger,
    journal: Journal,
    entries: Vec<Entry>,
    /// Blocks of which only a read can tell what they hold, one that is submitted after this
    /// moment.
    unknown: Vec<(u64, u64)>,
    depth: u16,
    tally: Tally,
    held_up: Duration,
    last_step: Instant,
}

impl Host {
    /// Connects, waits for its turn, and verifies what was acknowledged to the host before.
    pub(crate) fn connect(args: &Args) -> Result<Self> {
        let options = Options {
            memory_len: 16 << 20,
            doorbells: match args.doorbells.as_str() {
                "mapped" => Doorbells::Mapped,
                "shadow" => Doorbells::Shadow,
                _ => Doorbells::Trapped,
            },
            interrupts: true,
            timeout: Duration::from_secs(20),
            transfer_len_max: 128 << 10,
            ..Options::default()
        };
        let mut device = Device::connect(&args.socket, &options)?;
        device.enable()?;
        let namespace = device.namespace(1)?;
        ensure!(
            namespace.block_len as usize == BLOCK,
            "blocks of 4 KiB are needed"
        );
        let (journal, entries) = Journal::open(&args.journal, namespace.blocks)?;
        let mut host = Host {
            device,
            namespace,
            verified: !args.unverified,
            random: Random::new(args.seed),
            queues: Vec::new(),
            regions: Vec::new(),
            ledger: Ledger::default(),
            journal,
            entries,
            unknown: Vec::new(),
            depth: DEPTH,
            tally: Tally::default(),
            held_up: Duration::ZERO,
            last_step: Instant::now(),
        };
        host.ledger.add_space(namespace.blocks);
        for number in 0..REGIONS {
            let memory = HostMemory::new(REGION)?;
            let buffer = memory.alloc(REGION, BLOCK).context("all of it")?;
            let base = Iova(REGION_BASE + ((number as u64) << 32));
            host.device.bus().share(&memory, base)?;
            host.regions.push(Region {
                memory,
                buffer,
                base,
                mapped: true,
            });
        }
        host.learn()?;
        host.make_queues()?;
        Ok(host)
    }

    fn make_queues(&mut self) -> Result<()> {
        self.queues.clear();
        for _ in 0..QUEUES {
            let queue = self.make_queue()?;
            self.queues.push(Some(queue));
        }
        Ok(())
    }

    fn make_queue(&mut self) -> Result<Queue> {
        let interrupt = self.random.once_in(2);
        Ok(Queue {
            pair: self.device.create_queue_pair(DEPTH, interrupt)?,
            out: (0..DEPTH).map(|_| None).collect(),
            interrupt,
        })
    }

    /// Reads every block and passes its contents to `each`.
    fn read_all(
        &mut self,
        mut each: impl FnMut(&mut Self, u64, Found) -> Result<()>,
    ) -> Result<()> {
        const AT_ONCE: u64 = 16;
        let mut pair = self.device.create_queue_pair(1, false)?;
        let buffer = self.device.alloc(AT_ONCE as usize * BLOCK)?;
        let mut data = vec![0; buffer.len()];
        for first in (0..self.namespace.blocks).step_by(AT_ONCE as usize) {
            let count = AT_ONCE.min(self.namespace.blocks - first);
            buffer.fill(POISON);
            pair.read(&self.namespace, first, count as u32, &buffer)?;
            buffer.read_into(0, &mut data);
            for (lba, block) in (first..first + count).zip(data.chunks_exact(BLOCK)) {
                let found = stamp::look(block, Place { space: 0, lba });
                each(self, lba, found)?;
            }
        }
        self.device.delete_queue_pair(pair)?;
        self.last_step = Instant::now();
        Ok(())
    }

    /// Learns the data that the host before has left: acknowledged to it, or in flight.
    fn learn(&mut self) -> Result<()> {
        if !self.verified {
            return Ok(());
        }
        let writes = self.entries.iter();
        let last = writes.map(|e| e.acknowledged.max(e.submitted)).max();
        self.ledger.skip_writes(last.unwrap_or(0));
        self.read_all(|host, lba, found| {
            let Entry {
                acknowledged,
                submitted,
            } = host.entries[lba as usize];
            let write = match found {
                Found::Zeroes => 0,
                Found::Write(write) => write,
                Found::Copy(..) | Found::Wrong { .. } => bail!("block {lba} holds {found:?}"),
            };
            let open = submitted != 0 && write == submitted;
            ensure!(
                write == acknowledged || open,
                "block {lba} holds {found:?}: write {acknowledged} was acknowledged to the host before, which had {submitted} out"
            );
            host.ledger.set(Place { space: 0, lba }, write);
            host.settle(lba, write)
        })
    }

    /// Nothing but this write is in a block.
    fn settle(&mut self, lba: u64, write: u64) -> Result<()> {
        self.entries[lba as usize] = Entry {
            acknowledged: write,
            submitted: 0,
        };
        Ok(self.journal.acknowledge(lba, write)?)
    }

    /// Loads and verifies until it is to stop.
    pub(crate) fn run(&mut self, stop: &AtomicBool) -> Result<()> {
        let started = Instant::now();
        let (mut next_event, mut next_check, mut next_line) = (started, started, started);
        self.last_step = started;
        let mut pause_until = started;
        while !stop.load(Ordering::Relaxed) {
            let now = self.step_time();
            let any = self.poll()?;
            if now >= pause_until {
                self.submit()?;
            } else if !any {
                thread::sleep(Duration::from_micros(200));
            }
            if now >= next_event {
                next_event = now + Duration::from_micros(self.random.spread(1_000, 200_000));
                if let Some(pause) = self.event()? {
                    pause_until = Instant::now() + pause;
                }
            }
            if now >= next_check {
                next_check = now + CHECKS;
                self.check_time(now)?;
            }
            if now >= next_line {
                next_line = now + Duration::from_secs(1);
                self.say("at");
            }
        }
        self.finish()
    }

    /// The time; what this loop was held up by the machine is no fault of the server's.
    fn step_time(&mut self) -> Instant {
        let now = Instant::now();
        let step = now - self.last_step;
        if step > HELD_UP {
            self.tally.machine_stalls += 1;
            self.held_up += step;
        }
        self.last_step = now;
        now
    }

    /// After something that this loop waited for on purpose.
    fn waited(&mut self) {
        let now = Instant::now();
        self.held_up += now - self.last_step;
        self.last_step = now;
    }

    fn say(&self, what: &str) {
        let Tally {
            commands,
            resets,
            unmaps,
            deletions,
            waits,
            machine_stalls,
            longest,
        } = &self.tally;
        println!(
            "{what} commands={commands} resets={resets} unmaps={unmaps} deletions={deletions} waits={waits} stalls={machine_stalls} longest_us={}",
            longest.as_micros()
        );
    }

    /// Takes what has completed; whether anything had.
    fn poll(&mut self) -> Result<bool> {
        let mut any = false;
        for at in 0..QUEUES {
            let Some(queue) = &mut self.queues[at] else {
                continue;
            };
            any |= queue.pair.poll()? > 0;
            while let Some(cqe) = self.next_completion(at) {
                self.done(at, &cqe)?;
            }
        }
        Ok(any)
    }

    fn next_completion(&mut self, at: usize) -> Option<Cqe> {
        self.queues[at].as_mut()?.pair.next_completion()
    }

    fn done(&mut self, at: usize, cqe: &Cqe) -> Result<()> {
        let cid = usize::from(cqe.cid);
        let queue = self.queues[at].as_mut().context("a queue that is there")?;
        let Some(out) = queue.out[cid].take() else {
            bail!("{cqe:?} completes nothing");
        };
        self.tally.commands += 1;
        let took = out.since.elapsed();
        let took = took.saturating_sub(self.held_up - out.held_up);
        self.tally.longest = self.tally.longest.max(took);
        let status = cqe.status.status();
        if !status.is_success() {
            let excused = [Status::DATA_TRANSFER_ERROR, Status::COMMAND_ABORT_REQUESTED];
            ensure!(
                out.lost && excused.contains(&status),
                "a command ended with {status}: {:?}",
                out.span
            );
            return self.drop(&out);
        }
        if !self.verified {
            return Ok(());
        }
        if out.writes {
            self.ledger.end_write(out.span, out.mark);
            for lba in blocks(out.span) {
                self.settle(lba, out.mark)?;
            }
            return Ok(());
        }
        if out.lost {
            return self.drop(&out);
        }
        let mut data = [0; PLACE];
        let len = out.span.count as usize * BLOCK;
        let place = place_of(at, cqe.cid);
        self.regions[out.region]
            .buffer
            .read_into(place, &mut data[..len]);
        let mut seen = [0; BLOCKS_MAX as usize];
        let looked = self.ledger.end_read(out.span, out.mark, |n, place| {
            let found = stamp::look(&data[n as usize * BLOCK..][..BLOCK], place);
            if let Found::Write(write) = found {
                seen[n as usize] = write;
            }
            found
        });
        if let Err(wrong) = looked {
            bail!("{wrong}");
        }
        for (lba, write) in blocks(out.span).zip(seen) {
            // One that was on its way before may have seen what was there before.
            let tells = |(unknown, since): &(u64, u64)| *unknown == lba && *since < out.mark;
            if let Some(known) = self.unknown.iter().position(tells) {
                self.unknown.swap_remove(known);
                self.settle(lba, write)?;
            }
        }
        Ok(())
    }

    /// A command ends with an unknown effect, which later reads show. It has no effect from now on.
    fn drop(&mut self, out: &Out) -> Result<()> {
        if !self.verified {
            return Ok(());
        }
        if out.writes {
            self.ledger.leave_open(0, out.span, out.mark, Effect::Data);
            self.ledger.settle(0, u64::MAX);
            let since = self.ledger.moment();
            self.unknown
                .extend(blocks(out.span).map(|lba| (lba, since)));
        } else {
            self.ledger.drop_read(out.span);
        }
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        for at in 0..QUEUES {
            let batch = self.random.spread(1, 16);
            let mut put = false;
            for _ in 0..batch {
                let Some(queue) = &self.queues[at] else {
                    break;
                };
                if queue.pair.in_flight() >= self.depth || !self.put(at)? {
                    break;
                }
                put = true;
            }
            if put && let Some(queue) = &mut self.queues[at] {
                queue.pair.ring()?;
            }
        }
        Ok(())
    }

    /// Puts a command into a queue; false where none can be made now.
    fn put(&mut self, at: usize) -> Result<bool> {
        let region = self.random.index(REGIONS);
        if !self.regions[region].mapped {
            return Ok(false);
        }
        let count = if self.random.once_in(4) {
            BLOCKS_MAX
        } else {
            1
        };
        let lba = self
            .random
            .below(self.namespace.blocks - u64::from(count) + 1);
        let mut span = Span {
            space: 0,
            lba,
            count,
        };
        let mut writes = self.random.once_in(2);
        if let Some(&(lba, _)) = self.unknown.last() {
            span = Span {
                lba,
                count: 1,
                ..span
            };
            writes = false;
        }
        // One write of a block at a time: the journal has room for one.
        writes &= blocks(span).all(|lba| self.entries[lba as usize].submitted == 0);
        let Some(queue) = &mut self.queues[at] else {
            return Ok(false);
        };
        let Some(cid) = queue.pair.next_cid() else {
            return Ok(false);
        };
        let place = place_of(at, cid);
        let memory = &self.regions[region];
        let mark = match (self.verified, writes) {
            (false, _) => 0,
            (true, false) => {
                memory.buffer.write_from(place, &[POISON; 16]);
                self.ledger.begin_read(span)
            }
            (true, true) => {
                let write = self.ledger.next_write();
                let mut data = [0; PLACE];
                for (lba, block) in blocks(span).zip(data.chunks_exact_mut(BLOCK)) {
                    stamp::fill(block, Place { space: 0, lba }, write);
                    self.entries[lba as usize].submitted = write;
                    self.journal.submit(lba, write)?;
                }
                let len = span.count as usize * BLOCK;
                memory.buffer.write_from(place, &data[..len]);
                self.ledger.begin_write(span, write, false);
                write
            }
        };
        let opcode = if writes {
            NvmOpcode::WRITE
        } else {
            NvmOpcode::READ
        };
        let nlb = Blocks::new(span.count).context("one or two")?;
        let fua = self.random.once_in(64);
        let first = memory.base.0 + place as u64;
        let sqe = Sqe {
            prp1: first,
            prp2: if span.count > 1 {
                first + BLOCK as u64
            } else {
                0
            },
            ..self.namespace.transfer(opcode, span.lba, nlb, fua)
        };
        let given = queue.pair.submit(sqe)?;
        queue.out[usize::from(given)] = Some(Out {
            writes,
            span,
            mark,
            since: Instant::now(),
            held_up: self.held_up,
            region,
            lost: false,
        });
        Ok(true)
    }

    fn check_time(&self, now: Instant) -> Result<()> {
        for queue in self.queues.iter().flatten() {
            for out in queue.out.iter().flatten() {
                let waits = now.saturating_duration_since(out.since);
                let waits = waits.saturating_sub(self.held_up - out.held_up);
                ensure!(
                    waits <= BOUND,
                    "a stall: a command of queue {} is out for {waits:?}: {:?}",
                    queue.pair.qid(),
                    out.span
                );
            }
        }
        Ok(())
    }

    /// Waits for what is out, and verifies everything.
    fn finish(&mut self) -> Result<()> {
        while self
            .queues
            .iter()
            .flatten()
            .any(|queue| queue.pair.in_flight() > 0)
        {
            let now = self.step_time();
            self.check_time(now)?;
            if !self.poll()? {
                thread::sleep(Duration::from_micros(100));
            }
        }
        self.map_again()?;
        let at = self.random.index(QUEUES);
        self.delete_queue_at(at)?;
        if self.verified {
            self.read_all(|host, lba, found| {
                let span = Span {
                    space: 0,
                    lba,
                    count: 1,
                };
                let mark = host.ledger.begin_read(span);
                let looked = host.ledger.end_read(span, mark, |_, _| found);
                looked.map_err(|wrong| anyhow::anyhow!("in the end, {wrong}"))
            })?;
        }
        self.say("done");
        Ok(())
    }

    fn delete_queue_at(&mut self, at: usize) -> Result<()> {
        if let Some(queue) = self.drop_queue(at)? {
            self.device.delete_queue_pair(queue.pair)?;
        }
        Ok(())
    }
}

fn place_of(queue: usize, cid: u16) -> usize {
    (queue * usize::from(DEPTH) + usize::from(cid)) * PLACE
}

fn blocks(span: Span) -> std::ops::Range<u64> {
    span.lba..span.lba + u64::from(span.count)
}
