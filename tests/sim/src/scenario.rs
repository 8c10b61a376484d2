//! The scenario of a seed: reactors, subsystems, controllers, media, hosts.

use std::rc::Rc;
use std::sync::Arc;

use controller::{Controller, ControllerConfig, DoorbellMode, Interface};
use engine::{Engine, EngineId, Mode};
use media::ZoneSpec;
use memory::DoorbellPages;
use model::Parameters;
use port::ChannelId;
use port::namespace::Namespace;
use port::time::Time;
use subsystem::{Subsystem, SubsystemConfig};

use crate::Options;
use crate::around::{Bounds, Tally};
use crate::drive::{self, Real};
use crate::host::{Doorbells, Host, Manners, Space};
use crate::ledger::Ledger;
use crate::medium::{Clock, Disk, HANG_NS, Habits, TRAITS};
use crate::operator::Operator;
use crate::random::Random;
use crate::reactor::Reactor;
use crate::reservations::Reservations;
use crate::seat::Seat;
use crate::world::{Attached, Bytes, Medium, Post, World};
use crate::zones::Zones;

/// Commands that a channel holds at most.
const DEPTH: u16 = 256;
/// Bytes of each namespace at most.
const SPACE_LEN: u64 = 1 << 20;
/// Bytes that one command may move.
const MAX_TRANSFER: u32 = 32 << 10;
const MILLISECOND: u64 = 1_000_000;

/// The world of a seed.
#[must_use]
pub fn build(options: &Options) -> World {
    let Options {
        seed,
        trace_from,
        kills,
        more,
        ..
    } = *options;
    let mut random = Random::new(seed);
    let hangs = random.once_in(3);
    let faults = random.once_in(3);
    let pauses = random.pick(&[0, 3_000, 30_000]);
    let reactors = random.between(1, 3);
    let reactors = (0..reactors).map(|id| {
        let mode = mode(&mut random);
        let mut engine = Engine::new(mode, Time(0));
        engine.set_id(EngineId(id as u16));
        Reactor::new(engine, mode, random.fork(), pauses)
    });
    let reactors = reactors.collect();
    let bounds = if hangs {
        Bounds {
            io_ns: 5 * HANG_NS,
            admin_ns: 2 * HANG_NS,
            unmap_ns: 4_700 * MILLISECOND,
            reset_ns: 10 * HANG_NS,
        }
    } else {
        // Each death is a pause of all, and a queue may complete its commands one after the other.
        let deaths = if kills { 10 } else { 1 };
        Bounds {
            io_ns: deaths * 100 * MILLISECOND,
            admin_ns: deaths * 100 * MILLISECOND,
            unmap_ns: deaths * 100 * MILLISECOND,
            reset_ns: deaths * 300 * MILLISECOND,
        }
    };
    let mut world = World {
        hosts: Vec::new(),
        reactors,
        media: Vec::new(),
        spaces: Vec::new(),
        ledger: Ledger::default(),
        reservations: Reservations::default(),
        zones: Zones::default(),
        clock: Rc::new(Clock::default()),
        bounds,
        faults,
        tally: Tally::default(),
        steps: 0,
        trace_from,
        now: 0,
        ending: false,
        random: random.fork(),
        post: Post::default(),
        post_ns: random.spread(500, 50_000),
        move_ns: random.spread(10_000, 500_000),
        operator: Operator::default(),
        subsystems: Vec::new(),
        absent_until: Vec::new(),
        configs: Vec::new(),
        kills,
        killed_at: 0,
        replays: false,
        copies: false,
        more,
    };
    let busy = random.spread(200, 20_000);
    for _ in 0..random.between(1, 3) {
        let habits = habits(&mut random, hangs, faults);
        add_subsystem(&mut world, &mut random, habits, busy);
    }
    // A medium with zones has one reactor.
    if more && world.reactors.len() == 1 {
        add_zones(&mut world, &mut random, busy);
    }
    world.reservations = Reservations::new(world.spaces.len(), world.hosts.len());
    world
}

fn mode(random: &mut Random) -> Mode {
    match random.below(5) {
        0 => Mode::Poll,
        1 | 2 => Mode::Interrupt,
        _ => Mode::Adaptive {
            spin_ns: random.spread(2_000, 100_000),
            budget_percent: random.pick(&[5, 30, 100]),
        },
    }
}

fn habits(random: &mut Random, hangs: bool, faults: bool) -> Habits {
    Habits {
        at_once: random.pick(&[0, 1, 2, 4]),
        usual_ns: random.spread(500, 20_000),
        slow: random.pick(&[0, 50, 500]),
        hangs: if hangs { 10_000 } else { 0 },
        fails: if faults { 300 } else { 0 },
        full: random.pick(&[0, 8, 100]),
        depth: random.spread(2, DEPTH.into()) as usize,
    }
}

fn add_subsystem(world: &mut World, random: &mut Random, habits: Habits, busy: u64) {
    let reactor = random.index(world.reactors.len());
    let shifts = [9, random.pick(&[9, 12])];
    let blocks = shifts.map(|shift| random.spread(16, SPACE_LEN >> shift));
    let lens = [0, 1].map(|at| blocks[at] << shifts[at]);
    let len = (lens[0] + lens[1]) as usize;
    let number = world.media.len();
    // The same id names the medium on every reactor.
    let channel = ChannelId(number as u16);
    // A medium with a timing model has one reactor.
    let is_timed = world.reactors.len() == 1 && random.once_in(2);
    let real = (is_timed || random.once_in(4)).then(|| {
        let timing = is_timed.then(|| drive::timing(random, len as u64));
        Real::new(len as u64, timing)
    });
    let disk = Disk::new(len, habits, random.fork());
    let traits = real.as_ref().map_or(TRAITS, Real::traits);
    let medium = Medium {
        channel,
        bytes: match real {
            Some(real) => Bytes::Real(Box::new(real)),
            None => Bytes::Simulated(disk),
        },
        depth: DEPTH,
    };
    open_channels(world, &medium);
    let spaces = [0, 1].map(|at| Space {
        space: world.ledger.add_space(blocks[at]),
        nsid: at as u32 + 1,
        blocks: blocks[at],
        shift: shifts[at],
        medium: number,
        start: if at == 0 { 0 } else { lens[0] },
    });
    let namespaces = spaces.map(|space| Namespace {
        nsid: space.nsid,
        channel,
        start: space.start,
        blocks: space.blocks,
        lba_shift: space.shift,
        nguid: [space.space as u8 + 1; 16],
        eui64: [space.space as u8 + 1; 8],
        traits,
        restrictions: None,
        set: None,
    });
    world.media.push(medium);
    let spaces = spaces.to_vec();
    add_hosts(world, random, busy, (reactor, spaces, namespaces.to_vec()));
}

/// A subsystem of a namespace with zones.
fn add_zones(world: &mut World, random: &mut Random, busy: u64) {
    let (shift, zone) = (12, 16);
    let count = random.between(2, 8);
    let capacity = random.between(4, zone);
    let blocks = count * zone;
    let spec = ZoneSpec {
        zone_size: zone << shift,
        zone_capacity: capacity << shift,
        max_open: 0,
        max_active: 0,
        descriptor_extension: 0,
        append_limit: 0,
        random: None,
    };
    let timing = (!random.once_in(4)).then(|| Parameters::Nvm(drive::low_latency(random)));
    let real = Real::zoned(blocks << shift, spec, timing);
    let (traits, set) = (real.traits(), real.set());
    let number = world.media.len();
    let channel = ChannelId(number as u16);
    let medium = Medium {
        channel,
        bytes: Bytes::Real(Box::new(real)),
        depth: DEPTH,
    };
    open_channels(world, &medium);
    world.media.push(medium);
    let space = Space {
        space: world.ledger.add_space(blocks),
        nsid: 1,
        blocks,
        shift,
        medium: number,
        start: 0,
    };
    world.zones = Zones::new(space.space, count as usize, zone, capacity);
    let namespace = Namespace {
        nsid: space.nsid,
        channel,
        start: space.start,
        blocks,
        lba_shift: shift,
        nguid: [space.space as u8 + 1; 16],
        eui64: [space.space as u8 + 1; 8],
        traits,
        restrictions: None,
        set,
    };
    add_hosts(world, random, busy, (0, vec![space], vec![namespace]));
}

/// Every reactor gets a channel of a medium.
fn open_channels(world: &mut World, medium: &Medium) {
    for Reactor { engine, .. } in &mut world.reactors {
        let port = medium.port(&world.clock);
        let added = engine.add_channel(medium.channel, port, DEPTH.into());
        assert!(added.is_ok(), "each medium has its own id");
    }
}

/// A subsystem of these namespaces, of the medium that was added last, with its hosts.
fn add_hosts(
    world: &mut World,
    random: &mut Random,
    busy: u64,
    (reactor, spaces, namespaces): (usize, Vec<Space>, Vec<Namespace>),
) {
    let number = world.media.len() - 1;
    let zoned = namespaces.iter().any(|namespace| namespace.set.is_some());
    world.spaces.extend(&spaces);
    world.absent_until.extend(spaces.iter().map(|_| 0));
    let mut config = SubsystemConfig::with_namespaces(8, namespaces);
    for namespace in &mut config.namespaces {
        namespace.shared = true;
    }
    world.configs.push(config.clone());
    let subsystem = Subsystem::new(config).expect("a subsystem");
    let subsystem = world.reactors[reactor].engine.add_subsystem(subsystem);
    world.subsystems.push((reactor, subsystem));
    let reserves = world.more && !zoned && random.once_in(2);
    for _ in 0..random.between(1, 3) {
        let id = world.hosts.len();
        let manners = Manners {
            zoned,
            copies: world.more && !zoned,
            reserves,
            ..manners(random, busy)
        };
        let Reactor { engine, seats, .. } = &mut world.reactors[reactor];
        let config = controller_config(id, manners.doorbells);
        let slots = config.doorbell_slots();
        let pages = Arc::new(DoorbellPages::new(slots).expect("doorbells"));
        let its = engine.subsystem_mut(subsystem).expect("it was just added");
        let controller = Controller::new(config.clone(), pages.clone(), its);
        let controller = controller.expect("a controller");
        let slot = engine.add_controller(controller, subsystem);
        let mapped = manners.doorbells == Doorbells::Mapped;
        seats.push(Seat::new(slot, number, config, pages, mapped));
        world.hosts.push(Attached {
            host: Host::new(id, manners, spaces.clone(), random.fork()),
            reactor,
            seat: seats.len() - 1,
        });
    }
}

fn manners(random: &mut Random, busy: u64) -> Manners {
    Manners {
        doorbells: random.pick(&[Doorbells::Mapped, Doorbells::Shadow, Doorbells::Trapped]),
        cqs: random.between(1, 4) as usize,
        sqs: random.between(1, 8) as usize,
        think_ns: random.spread(100, busy),
        event_ns: random.spread(10_000, MILLISECOND / 2),
        // Aggregation Time in 100 us, Aggregation Threshold, 0's based.
        coalescing: if random.once_in(4) {
            0x100 * random.between(1, 3) as u16 + random.between(1, 20) as u16
        } else {
            0
        },
        large: random.pick(&[2, 8, 64]),
        buffered_admin: random.once_in(2),
        zoned: false,
        reserves: false,
        copies: false,
    }
}

fn controller_config(id: usize, doorbells: Doorbells) -> ControllerConfig {
    ControllerConfig {
        name: format!("c{id}"),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: format!("S{id:04}"),
        model_number: "simulated".into(),
        firmware_revision: "1".into(),
        subnqn: format!("nqn.2024-01.org.example:{id}"),
        queues: 8,
        queue_depth: 256,
        max_transfer: MAX_TRANSFER,
        doorbells: match doorbells {
            Doorbells::Mapped => DoorbellMode::Mapped,
            Doorbells::Shadow => DoorbellMode::Unmapped,
            Doorbells::Trapped => DoorbellMode::Trapped,
        },
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    }
}
