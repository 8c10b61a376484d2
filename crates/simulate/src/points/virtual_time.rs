//! Points in virtual time: with driver, controller, engine and medium as in real time, on a clock
//! that jumps to the next event.

use std::sync::Arc;

use controller::Controller;
use controller::config::{self, ControllerConfig, DoorbellMode, Interface};
use driver::key_value::{Dialect, Keys};
use driver::program::{self, Command, Pace, Ran, Rules, Target, Worker};
use driver::{Device, Doorbells, DriverError, Options, QueuePair};
use engine::{Engine, Mode};
use media::{MAX_DEPTH, Medium, MediumKind, MediumSpec, ZoneSpec};
use memory::{Buffer, DoorbellPages};
use model::Parameters;
use port::ChannelId;
use port::namespace::Namespace;
use port::time::Time;
use subsystem::{Subsystem, SubsystemConfig};

use super::{KEYS_MAX, Latencies, Measured, Phase, Points, REST_NS};
use crate::Error;
use crate::bus::Virtual;

/// Time at which a drive is up and at rest. A multiple of the slots of links and channels with
/// `arithmetic = "code"`.
const START_NS: u64 = 1_179_648_000;
/// Number of turns at one instant after which the simulation counts as stuck.
const TURNS_MAX: u32 = 1 << 24;
/// Blocks of 512 bytes, as small as any host may have them.
const BLOCK_SHIFT: u8 = 9;

/// Virtual time.
struct Clockwork<'a> {
    bus: &'a Virtual,
    now: u64,
    turns: u32,
}

impl Pace for Clockwork<'_> {
    fn now_ns(&mut self) -> u64 {
        self.now
    }

    fn pass(&mut self, next: Option<u64>) -> Result<(), DriverError> {
        let worked = self.bus.turn_at(self.now).worked;
        let due = self.bus.next_due();
        self.turns += 1;
        let going_on = worked || due.is_some_and(|due| due <= self.now);
        if (going_on || self.bus.look_at_doorbells()) && self.turns < TURNS_MAX {
            return Ok(());
        }
        let next = due.into_iter().chain(next).min();
        match next.filter(|_| self.turns < TURNS_MAX) {
            Some(next) => {
                self.turns = 0;
                self.now = self.now.max(next);
                Ok(())
            }
            None => Err(DriverError::Broken(
                "nothing happens any more on the drive".to_owned(),
            )),
        }
    }
}

/// A drive in virtual time with a driver.
struct Rig {
    device: Device<Virtual>,
    queues: Vec<QueuePair<Virtual>>,
    buffer: Buffer,
    target: Target,
    now: u64,
}

impl Rig {
    /// A fresh drive, with queue pairs of this depth.
    fn new(
        parameters: &Parameters,
        size: u64,
        (largest, workers, depth): (u32, u16, u16),
    ) -> Result<Self, Error> {
        let largest = largest.max(4096).next_multiple_of(4096);
        let mut device = bring_up(parameters, size, workers, largest, depth)?;
        let target = match parameters {
            Parameters::Kv(_) => Target::Keys(Keys {
                nsid: 1,
                dialect: Dialect::Samsung,
            }),
            _ => Target::Blocks(device.namespace(1)?),
        };
        let queues = (0..workers).map(|_| device.create_queue_pair(depth, false));
        let queues = queues.collect::<Result<_, _>>()?;
        let buffer = device.alloc(largest as usize)?;
        device.bus().start();
        Ok(Self {
            device,
            queues,
            buffer,
            target,
            now: START_NS,
        })
    }

    /// Runs a whole phase, and lets the drive rest.
    fn run(&mut self, phase: &Phase, delay_ns: u64) -> Result<Ran, Error> {
        let mut pace = Clockwork {
            bus: self.device.bus(),
            now: self.now,
            turns: 0,
        };
        let buffer = &self.buffer;
        let workers = self.queues.iter_mut().zip(&phase.workers);
        let workers = workers.map(|(queue, commands)| Worker {
            queue,
            buffer,
            depth: phase.depth,
            commands,
        });
        let rules = Rules {
            delay_ns,
            ..Rules::default()
        };
        let mut workers: Vec<Worker<'_, Virtual>> = workers.collect();
        let ran = program::run(&mut workers, &self.target, rules, &mut pace)?;
        self.now = pace.now + REST_NS;
        Ok(ran)
    }
}

fn medium_of(parameters: &Parameters, size: u64) -> MediumKind {
    match parameters {
        Parameters::Kv(_) => MediumKind::KeyValue {
            path: None,
            size,
            keys: Some(KEYS_MAX),
            dialect: media::Dialect::Samsung,
        },
        Parameters::Zones(zones) => MediumKind::Zoned {
            of: Box::new(MediumKind::Null { size }),
            zones: ZoneSpec {
                zone_size: zones.zone_size_bytes,
                zone_capacity: zones.zone_capacity_bytes,
                max_open: 0,
                max_active: 0,
                descriptor_extension: 0,
                append_limit: 0,
                random: None,
            },
        },
        Parameters::Nvm(_) | Parameters::Flash(_) => MediumKind::Null { size },
    }
}

fn bring_up(
    parameters: &Parameters,
    size: u64,
    queues: u16,
    largest: u32,
    depth: u16,
) -> Result<Device<Virtual>, Error> {
    let config = ControllerConfig {
        name: "points".into(),
        vendor_id: config::DEFAULT_VENDOR_ID,
        device_id: config::DEFAULT_DEVICE_ID,
        serial: "POINTS".into(),
        model_number: "nvmirage points".into(),
        firmware_revision: "1".into(),
        subnqn: "nqn.2024-01.org.nvmirage:points".into(),
        queues,
        queue_depth: config::MAX_QUEUE_DEPTH,
        max_transfer: largest.next_power_of_two().max(8 << 10),
        doorbells: DoorbellMode::Mapped,
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    };
    let pages = DoorbellPages::new(config.doorbell_slots()).map_err(Error::Memory)?;
    let pages = Arc::new(pages);
    let spec = MediumSpec {
        kind: medium_of(parameters, size),
    };
    let medium = Medium::open_timed(&spec, parameters)?;
    let set = medium.set();
    let has_blocks = set.as_ref().is_none_or(|set| set.has_blocks());
    let namespace = Namespace {
        nsid: 1,
        channel: ChannelId(0),
        start: 0,
        blocks: if has_blocks { size >> BLOCK_SHIFT } else { 0 },
        lba_shift: BLOCK_SHIFT,
        nguid: [1; 16],
        eui64: [1; 8],
        traits: medium.traits(),
        restrictions: None,
        set,
    };
    let mut subsystem = Subsystem::new(SubsystemConfig::with_namespaces(1, [namespace]))?;
    let controller = Controller::new(config, pages.clone(), &mut subsystem)?;
    let mut engine = Engine::new(Mode::Poll, Time(0));
    let drive = medium.channel(MAX_DEPTH).map_err(Error::Channel)?;
    let added = engine.add_channel(ChannelId(0), drive, MAX_DEPTH.into());
    assert!(added.is_ok(), "it is the only one");
    let subsystem = engine.add_subsystem(subsystem);
    let slot = engine.add_controller(controller, subsystem);
    let lists = usize::from(queues) * usize::from(depth) * (4096 + 128);
    let options = Options {
        memory_len: largest as usize + lists + (16 << 20),
        doorbells: Doorbells::Mapped,
        transfer_len_max: largest,
        command_sets: driver::CommandSets::All,
        ..Options::default()
    };
    let mut device = Device::open(Virtual::new(engine, slot, pages), &options)?;
    device.enable()?;
    Ok(device)
}

/// Times of a point in virtual time, with `delay_ns` between a completion and the next command: of
/// each command, and of all.
///
/// # Errors
/// Invalid parameters.
pub fn measure(
    parameters: &Parameters,
    points: &Points,
    measured: &Measured,
    delay_ns: u64,
) -> Result<(Ran, Latencies), Error> {
    let mut rig = Rig::new(parameters, points.size_bytes, points.needs())?;
    rig.run(&points.prepare, 0)?;
    rig.run(&measured.before, 0)?;
    let ran = rig.run(&measured.program, delay_ns)?;
    let latencies = Latencies::of(&ran);
    Ok((ran, latencies))
}

/// Times of eight stores of 4 KiB in virtual time, separately and in one compound command.
///
/// # Errors
/// Invalid parameters, or a drive without keys.
pub fn compound(parameters: &Parameters) -> Result<[u64; 2], Error> {
    let single = (0..8).map(|key| Command::Store { key, len: 4096 });
    let together = Command::StoreTogether {
        key: 0,
        count: 8,
        len: 4096,
    };
    let mut times = [0; 2];
    for (time, commands) in times
        .iter_mut()
        .zip([single.collect::<Vec<_>>(), vec![together]])
    {
        let phase = Phase {
            depth: 1,
            workers: vec![commands],
        };
        let size = 256 << 20;
        let mut rig = Rig::new(parameters, size, (phase.largest(), 1, 1))?;
        *time = rig.run(&phase, 0)?.elapsed_ns;
    }
    Ok(times)
}
