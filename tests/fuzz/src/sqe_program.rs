//! A host that writes any registers, doorbells, queue entries and memory, in any order.
//!
//! Found would be: a panic, a turn without end, a reset that hangs, a byte written where the host
//! did not allow it.

use arbitrary::Arbitrary;
use controller::DoorbellMode;

use crate::rig::{BASE, PAGE, PAGES, READ_ONLY_FROM, Rig};

/// What the host does next.
#[derive(Arbitrary, Debug)]
enum Step {
    /// Any bytes to any register.
    Register {
        offset: u16,
        value: u64,
        wide: bool,
    },
    /// Any bytes to configuration space.
    Config {
        offset: u16,
        value: u32,
    },
    /// A doorbell, as a store into the page.
    Doorbell {
        slot: u8,
        value: u16,
    },
    /// A doorbell, as a message.
    Trapped {
        slot: u8,
        value: u16,
    },
    /// A queue entry of any bytes, in the ring of `queue`.
    Entry {
        queue: u8,
        index: u8,
        words: [u64; 8],
    },
    /// A queue entry that is nearly right.
    Command {
        queue: u8,
        opcode: u8,
        nsid: u8,
        cid: u16,
        prp1: Address,
        prp2: Address,
        dwords: [u8; 6],
    },
    /// The tail that makes what was put visible.
    Ring {
        queue: u8,
    },
    /// The host takes completions: the head of `queue` moves.
    Consume {
        queue: u8,
        count: u8,
    },
    /// The admin commands that make a queue pair.
    Create {
        queue: u8,
        entries: u8,
        vector: u8,
    },
    /// Any word of the host's memory.
    Poke {
        page: u8,
        word: u16,
        value: Address,
    },
    Map {
        first: u8,
        count: u8,
    },
    Unmap {
        first: u8,
        count: u8,
    },
    /// The medium of namespace 2 lets go, or not.
    LetGo(bool),
    Reset,
    Turns(u8),
    Seconds(u8),
}

/// An address: mostly one in the host's memory.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Address {
    Page(u8),
    Inside(u8, u16),
    Any(u64),
}

impl Address {
    fn value(self) -> u64 {
        let page = |page: u8| BASE + u64::from(page) % PAGES as u64 * PAGE as u64;
        match self {
            Address::Page(number) => page(number),
            Address::Inside(number, offset) => page(number) + u64::from(offset) % PAGE as u64,
            Address::Any(value) => value,
        }
    }
}

#[derive(Arbitrary, Debug)]
pub(crate) struct Program {
    mapped: bool,
    enabled: bool,
    steps: Vec<Step>,
}

/// Queues that the host keeps book of; 0 is the admin queue.
const QUEUES: usize = 5;
/// Entries of the admin queue, and at most of any.
const ENTRIES: u16 = 32;
/// Most steps of one program.
const STEPS_MAX: usize = 300;

/// The host's book: where it puts the next entry.
struct Book {
    tails: [u16; QUEUES],
    heads: [u16; QUEUES],
    entries: [u16; QUEUES],
}

/// Submission queues lie in pages 0 to 4, completion queues in 8 to 12.
fn sq_page(queue: usize) -> usize {
    queue
}

fn cq_page(queue: usize) -> usize {
    8 + queue
}

fn address_of(page: usize) -> u64 {
    BASE + (page * PAGE) as u64
}

fn put(rig: &Rig, queue: usize, index: u16, words: [u64; 8]) {
    let at = sq_page(queue) * PAGE + usize::from(index % 64) * 64;
    for (word, value) in words.iter().enumerate() {
        rig.ram.write_from(at + word * 8, &value.to_le_bytes());
    }
}

impl Book {
    fn push(&mut self, rig: &Rig, queue: usize, words: [u64; 8]) {
        put(rig, queue, self.tails[queue], words);
        self.tails[queue] = (self.tails[queue] + 1) % self.entries[queue];
    }

    fn step(&mut self, rig: &mut Rig, step: Step) {
        match step {
            Step::Register {
                offset,
                value,
                wide,
            } => {
                let bytes = value.to_le_bytes();
                let len = if wide { 8 } else { 4 };
                rig.controller()
                    .bar_write(0, u64::from(offset % 0x60), &bytes[..len]);
            }
            Step::Config { offset, value } => {
                rig.controller()
                    .config_write(u64::from(offset % 0x200), &value.to_le_bytes());
            }
            Step::Doorbell { slot, value } => {
                let slot = usize::from(slot) % (2 * QUEUES);
                rig.doorbells.store(slot, value.into());
            }
            Step::Trapped { slot, value } => {
                let offset = 0x1000 + 4 * u64::from(slot);
                rig.controller()
                    .bar_write(0, offset, &u32::from(value).to_le_bytes());
            }
            Step::Entry {
                queue,
                index,
                words,
            } => {
                put(rig, usize::from(queue) % QUEUES, index.into(), words);
            }
            Step::Command {
                queue,
                opcode,
                nsid,
                cid,
                prp1,
                prp2,
                dwords,
            } => {
                let queue = usize::from(queue) % QUEUES;
                let dword = |n: usize| u64::from(dwords[n]);
                // Every fourth has an SGL: what would be its second PRP says how long and of which
                // type.
                let (psdt, second) = match nsid {
                    192.. => (0x4000, prp2.value() & 0xffff | u64::from(cid & 0x30) << 56),
                    _ => (0, prp2.value()),
                };
                let words = [
                    u64::from(opcode) | psdt | u64::from(cid) << 16 | u64::from(nsid % 5) << 32,
                    0,
                    0,
                    prp1.value(),
                    second,
                    dword(0) | dword(1) << 32,
                    dword(2) | dword(3) << 32,
                    dword(4) | dword(5) << 32,
                ];
                self.push(rig, queue, words);
            }
            Step::Ring { queue } => {
                let queue = usize::from(queue) % QUEUES;
                rig.doorbells.store(2 * queue, self.tails[queue].into());
            }
            Step::Consume { queue, count } => {
                let queue = usize::from(queue) % QUEUES;
                self.heads[queue] = (self.heads[queue] + u16::from(count)) % self.entries[queue];
                rig.doorbells.store(2 * queue + 1, self.heads[queue].into());
            }
            Step::Create {
                queue,
                entries,
                vector,
            } => {
                self.create(rig, 1 + usize::from(queue) % (QUEUES - 1), entries, vector);
            }
            Step::Poke { page, word, value } => {
                let page = usize::from(page) % READ_ONLY_FROM;
                let at = page * PAGE + usize::from(word) % (PAGE / 8) * 8;
                rig.ram.write_from(at, &value.value().to_le_bytes());
            }
            Step::Map { first, count } => {
                rig.map_pages(usize::from(first) % PAGES, usize::from(count) % 16);
            }
            Step::Unmap { first, count } => {
                rig.unmap_pages(usize::from(first) % PAGES, usize::from(count) % (PAGES + 1));
            }
            Step::LetGo(let_go) => rig.let_go(let_go),
            Step::Reset => rig.controller().function_reset(),
            Step::Turns(count) => rig.turns(usize::from(count % 16)),
            Step::Seconds(seconds) => rig.advance(u64::from(seconds % 8) * 1_000_000_000),
        }
    }

    fn create(&mut self, rig: &mut Rig, queue: usize, entries: u8, vector: u8) {
        let entries = u16::from(entries % 31) + 2;
        let size_and_id = u64::from(entries - 1) << 16 | queue as u64;
        let command = |opcode: u64, page, cdw11: u64| {
            let prp1 = address_of(page);
            [
                opcode | 7 << 16,
                0,
                0,
                prp1,
                0,
                size_and_id | cdw11 << 32,
                0,
                0,
            ]
        };
        let interrupt = u64::from(vector % 6) << 16;
        self.push(rig, 0, command(5, cq_page(queue), interrupt | 3));
        self.push(rig, 0, command(1, sq_page(queue), (queue as u64) << 16 | 1));
        rig.doorbells.store(0, self.tails[0].into());
        rig.turns(4);
        self.heads[0] = (self.heads[0] + 2) % self.entries[0];
        rig.doorbells.store(1, self.heads[0].into());
        (self.tails[queue], self.heads[queue], self.entries[queue]) = (0, 0, entries);
    }
}

pub(crate) fn run(program: Program) {
    let mode = if program.mapped {
        DoorbellMode::Mapped
    } else {
        DoorbellMode::Unmapped
    };
    let mut rig = Rig::new(mode);
    let mut book = Book {
        tails: [0; QUEUES],
        heads: [0; QUEUES],
        entries: [ENTRIES; QUEUES],
    };
    if program.enabled {
        let size = u32::from(ENTRIES - 1);
        let controller = rig.controller();
        controller.bar_write(0, 0x24, &(size << 16 | size).to_le_bytes());
        controller.bar_write(0, 0x28, &address_of(sq_page(0)).to_le_bytes());
        controller.bar_write(0, 0x30, &address_of(cq_page(0)).to_le_bytes());
        controller.bar_write(0, 0x14, &0x0046_0001u32.to_le_bytes());
        rig.turns(4);
        book.create(&mut rig, 1, 14, 1);
    }
    for step in program.steps.into_iter().take(STEPS_MAX) {
        book.step(&mut rig, step);
    }
    rig.finish();
}
