//! A neighbour on a drive that is shared, over vfio-user: `neighbour SOCKET honest|hostile [CPU]`.
//! An honest one reads blocks of its own, 32 at a time. One that means harm has as many commands in
//! flight, most of which no drive may ever see, and beside them stores anything into doorbells, has
//! commands aborted, makes and deletes queues, takes memory back that commands use, and resets its
//! controller. Both do so until the caller closes their standard input, or for a minute, and then
//! print what they have done.

use std::io::Read as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use driver::bus::Bus;
use driver::bus::vfio_user::VfioUser;
use driver::io::{Blocks, Namespace};
use driver::{Device, DriverError, Options, QueuePair};
use memory::{Buffer, HostMemory, Iova};
use nvme_spec::Sqe;
use nvme_spec::opcode::NvmOpcode;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Commands in flight.
const DEPTH: u16 = 32;
/// How long there is a neighbour at most.
const LONGEST: Duration = Duration::from_secs(60);
/// Memory that is unmapped and mapped again, and where it is for the controller.
const LENT: usize = 4 << 20;
const LENT_AT: Iova = Iova(1 << 40);
/// Commands of the hostile one between two admin commands, and of those between two resets.
const COMMANDS_PER_ACT: u64 = 64;
const ACTS_PER_RESET: u64 = 500;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(socket), Some(kind)) = (args.first(), args.get(1)) else {
        eprintln!("write: neighbour SOCKET honest|hostile [CPU]");
        return ExitCode::FAILURE;
    };
    match run(socket, kind == "hostile", args.get(2)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("neighbour: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    socket: &str,
    is_hostile: bool,
    cpu: Option<&String>,
) -> Result<(), Box<dyn std::error::Error>> {
    if let Some(cpu) = cpu {
        let mut set = CpuSet::new();
        set.set(cpu.parse()?);
        sched_setaffinity(None, &set)?;
    }
    let over = Arc::new(AtomicBool::new(false));
    let ended = over.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        ended.store(true, Ordering::Relaxed);
    });
    let mut neighbour = Neighbour::attach(socket)?;
    println!("ready");
    let start = Instant::now();
    while !over.load(Ordering::Relaxed) && start.elapsed() < LONGEST {
        for _ in 0..COMMANDS_PER_ACT {
            neighbour.turn(is_hostile)?;
        }
        if is_hostile {
            neighbour.act()?;
        }
    }
    let Neighbour {
        commands,
        refused,
        acts,
        resets,
        ..
    } = neighbour;
    println!(
        "{{\"commands\":{commands},\"refused\":{refused},\"acts\":{acts},\"resets\":{resets}}}"
    );
    Ok(())
}

struct Neighbour {
    device: Device<VfioUser>,
    namespace: Namespace,
    queue: QueuePair<VfioUser>,
    buffer: Buffer,
    lent: HostMemory,
    state: u64,
    /// Completions, and those that say that the command was no good; admin commands and the like;
    /// resets.
    commands: u64,
    refused: u64,
    acts: u64,
    resets: u64,
}

impl Neighbour {
    fn attach(socket: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let path = socket.trim_start_matches("vfio-user:");
        let options = Options {
            memory_len: 32 << 20,
            ..Options::default()
        };
        let mut device = Device::connect(path, &options)?;
        device.enable()?;
        let lent = HostMemory::new(LENT)?;
        device.bus().share(&lent, LENT_AT)?;
        Ok(Self {
            namespace: device.namespace(1)?,
            queue: device.create_queue_pair(DEPTH, false)?,
            buffer: device.alloc(4096)?,
            lent,
            device,
            state: 1,
            commands: 0,
            refused: 0,
            acts: 0,
            resets: 0,
        })
    }

    /// The next of a row of numbers (xorshift64).
    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// A read of a block of its own, as it should be.
    fn read(&mut self) -> Sqe {
        let lba = self.random() % self.namespace.blocks;
        let one = Blocks::new(1).expect("a command carries one block");
        let mut sqe = self.namespace.transfer(NvmOpcode::READ, lba, one, false);
        sqe.prp1 = self.queue.iova(&self.buffer).0;
        sqe
    }

    /// A command that is wrong in some way, or in none.
    fn wrong(&mut self) -> Sqe {
        let mut sqe = self.read();
        let wild = self.random();
        match self.random() % 12 {
            // An opcode that there is none of, or another command set's, or a vendor's.
            0 => sqe.opcode = wild as u8 | 0x80,
            // Behind its end, across it, and so far that it comes round.
            1 => sqe.cdw11 = wild as u32 | 1 << 31,
            2 => {
                let last = self.namespace.blocks - 1;
                (sqe.cdw10, sqe.cdw11) = (last as u32, (last >> 32) as u32);
                sqe.cdw12 |= 0xffff;
            }
            3 => (sqe.cdw10, sqe.cdw11) = (u32::MAX, u32::MAX),
            // Unmapped memory, a place that no pointer may have, a list that is none.
            4 => sqe.prp1 = wild & !0xfff,
            5 => sqe.prp1 |= 3,
            6 => {
                sqe.cdw12 |= 31;
                sqe.prp2 = wild & !7;
            }
            // Another's namespace; a fused pair's second half; metadata.
            7 => sqe.nsid = wild as u32,
            8 => sqe.flags = 2.into(),
            9 => sqe.flags = 0x80.into(),
            // Memory that is about to be unmapped, and blocks of its own.
            10 => sqe.prp1 = LENT_AT.0 + (wild % (LENT as u64 / 4096)) * 4096,
            _ => {}
        }
        sqe
    }

    /// Takes what has completed and submits as much.
    fn turn(&mut self, is_hostile: bool) -> Result<(), DriverError> {
        self.commands += self.queue.poll()? as u64;
        while let Some(cqe) = self.queue.next_completion() {
            self.refused += u64::from(!cqe.status.status().is_success());
        }
        while self.queue.next_cid().is_some() {
            let sqe = if is_hostile {
                self.wrong()
            } else {
                self.read()
            };
            self.queue
                .submit(sqe)
                .expect("there is an identifier for it");
        }
        self.queue.ring()
    }

    /// Its actions beside its commands.
    fn act(&mut self) -> Result<(), DriverError> {
        self.acts += 1;
        if self.acts.is_multiple_of(ACTS_PER_RESET) {
            return self.reset();
        }
        match self.acts % 4 {
            // Any of its commands, whether it is there or not.
            0 => {
                let cid = self.random() as u16;
                self.device.post_abort(self.queue.qid(), cid % 64)
            }
            1 => {
                let other = self.device.create_queue_pair(DEPTH, false)?;
                self.device.delete_queue_pair(other)
            }
            // A doorbell of a queue that has nothing, any value: the queue is of no use any more.
            2 => {
                let other = self.device.create_queue_pair(DEPTH, false)?;
                for offset in other.doorbell_offsets() {
                    let value = self.random() as u32;
                    let mapped = self.device.bus().doorbells();
                    match mapped.as_ref().and_then(|m| Some((m, m.slot(offset)?))) {
                        Some((mapped, slot)) => mapped.pages.store(slot, value),
                        None => self.device.bus().ring(offset, value)?,
                    }
                }
                self.device.delete_queue_pair(other)
            }
            _ => {
                let bus = self.device.bus();
                bus.unshare(LENT_AT, LENT as u64)?;
                bus.share(&self.lent, LENT_AT)
            }
        }
    }

    /// With commands in flight.
    fn reset(&mut self) -> Result<(), DriverError> {
        self.resets += 1;
        self.device.reset()?;
        self.queue = self.device.create_queue_pair(DEPTH, false)?;
        Ok(())
    }
}
