//! A host that shares a drive with another one does what it likes: any entries, doorbells,
//! registers and memory, in any order, with a drive that may hang.
//!
//! Found would be: a command that came to the drive and must not, a byte of the other host's that
//! changed, a command of the other host's that was not done, a panic, a reset that hangs.

use arbitrary::Arbitrary;
use tests_hostile::{BLOCK, Lie, PAGE, PARTS, Tenant, Witness, World};

/// What the host does next.
#[derive(Arbitrary, Debug)]
pub(crate) enum Step {
    /// Any bytes to any register.
    Register {
        offset: u16,
        value: u64,
    },
    /// Any value into any doorbell.
    Doorbell {
        slot: u8,
        value: u16,
    },
    /// A queue entry of any bytes.
    Entry {
        queue: u8,
        cid: u16,
        words: [u64; 8],
    },
    /// A queue entry that is nearly right.
    Command(Command),
    /// The tail that makes what was put visible.
    Ring {
        queue: u8,
    },
    Reap {
        queue: u8,
    },
    Create {
        queue: u8,
    },
    /// Any word of its memory.
    Poke {
        page: u8,
        word: u16,
        value: Address,
    },
    Map(bool),
    Reset,
    Turns(u8),
    /// Quarters of a second.
    Ticks(u8),
    /// The drive keeps what it is asked for, or goes on.
    Hang(bool),
    /// The other host does something.
    Other,
}

#[derive(Arbitrary, Debug)]
pub(crate) struct Command {
    queue: u8,
    cid: u8,
    opcode: u8,
    nsid: u8,
    flags: u8,
    prp1: Address,
    prp2: Address,
    lba: Lba,
    blocks: u8,
    more: [u8; 3],
}

/// An address: mostly one of its own.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Address {
    Page(u8),
    Inside(u8, u16),
    /// Where the drive finds somebody's memory.
    Window(u8, u16),
    /// The other host's.
    Other(u8),
    Any(u64),
}

impl Address {
    fn value(self, world: &World) -> u64 {
        let [hostile, honest] = &world.hosts;
        match self {
            Address::Page(number) => hostile.page(number.into()),
            Address::Inside(number, at) => hostile.page(number.into()) + u64::from(at) % PAGE,
            Address::Window(number, page) => {
                let windows = world.witness.windows();
                let (base, len, _) = windows[usize::from(number) % windows.len()];
                base + u64::from(page) * PAGE % len
            }
            Address::Other(number) => honest.page(number.into()),
            Address::Any(value) => value,
        }
    }
}

/// A first block.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Lba {
    Own(u16),
    End(i8),
    Any(u64),
}

impl Lba {
    fn value(self) -> u64 {
        let blocks = (PARTS[0].end - PARTS[0].start) / BLOCK;
        match self {
            Lba::Own(at) => u64::from(at) % blocks,
            Lba::End(by) => blocks.wrapping_add_signed(by.into()),
            Lba::Any(value) => value,
        }
    }
}

/// Most steps of one program.
const STEPS_MAX: usize = 200;
/// Queues: the admin queue and two others.
const QUEUES: usize = 3;
/// Quarters of a second in which whatever hangs has ended.
const LONG: u32 = 24;

fn step(world: &mut World, step: Step, hangs: &mut bool) {
    let number = |queue: u8| usize::from(queue) % QUEUES;
    match step {
        Step::Register { offset, value } => {
            let controller = world.controller(Tenant::Hostile);
            controller.bar_write(0, u64::from(offset % 0x60), &value.to_le_bytes());
        }
        Step::Doorbell { slot, value } => {
            world.host(Tenant::Hostile).bell(slot.into(), value.into());
        }
        Step::Entry { queue, cid, words } => {
            world.host(Tenant::Hostile).put(number(queue), cid, words);
        }
        Step::Command(command) => put(world, &command),
        Step::Ring { queue } => world.host(Tenant::Hostile).ring(number(queue)),
        Step::Reap { queue } => drop(world.host(Tenant::Hostile).reap(number(queue))),
        Step::Create { queue } => world.create(Tenant::Hostile, 1 + usize::from(queue) % 2),
        Step::Poke { page, word, value } => {
            let value = value.value(world);
            let at = world.hosts[0].page(page.into()) + u64::from(word) * 8 % PAGE;
            world.hosts[0].poke(at, &value.to_le_bytes());
        }
        Step::Map(is_mapped) => world.map(Tenant::Hostile, is_mapped),
        Step::Reset => world.controller(Tenant::Hostile).function_reset(),
        Step::Turns(count) => world.turns(u32::from(count) % 16),
        Step::Ticks(count) => world.tick(u32::from(count) % 20),
        Step::Hang(is_so) => {
            *hangs = is_so;
            world.witness.lie(is_so.then_some(Lie::Hangs));
        }
        Step::Other if !*hangs => {
            // What the drive had before may have to end first, with a queue that is deleted.
            if world.try_honest().is_err() {
                world.tick(LONG);
                world.honest();
            }
        }
        Step::Other => {}
    }
}

fn put(world: &mut World, command: &Command) {
    let (prp1, prp2) = (command.prp1.value(world), command.prp2.value(world));
    // Every fourth has an SGL: what would be its second PRP says how long and of which type.
    let (psdt, second) = match command.flags {
        192.. => (0x4000, prp2 & 0xffff | u64::from(command.cid & 0x30) << 56),
        _ => (0, prp2),
    };
    let [a, b, c] = command.more.map(u64::from);
    let nsid = if command.nsid < 224 {
        1
    } else {
        u64::from(command.nsid)
    };
    let words = [
        u64::from(command.opcode) | psdt | nsid << 32,
        0,
        0,
        prp1,
        second,
        command.lba.value(),
        u64::from(command.blocks) | a << 24 | b << 32,
        c,
    ];
    let queue = usize::from(command.queue) % QUEUES;
    world
        .host(Tenant::Hostile)
        .put(queue, command.cid.into(), words);
}

pub(crate) fn run(steps: Vec<Step>) {
    let mut world = World::new(Witness::default()).expect("the drive is as it should be");
    let mut hangs = false;
    for next in steps.into_iter().take(STEPS_MAX) {
        step(&mut world, next, &mut hangs);
    }
    world.witness.lie(None);
    world.reset(Tenant::Hostile);
    world.tick(LONG);
    world.honest();
    world.check();
}
