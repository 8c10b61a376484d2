//! Two hosts, their controllers on one engine, and the drive.

use std::sync::Arc;

use controller::config::{ControllerConfig, DoorbellMode, Interface};
use controller::{Controller, Interrupt};
use driver::{Device, DriverError};
use engine::{ControllerSlot, Engine, Mode};
use media::drive::{Drive, DriveChannel, Duty, Keeper, Relay, options};
use memory::{Claims, DoorbellPages};
use port::namespace::Namespace;
use port::time::Time;
use port::{ChannelId, MediumTraits};
use subsystem::{Subsystem, SubsystemConfig};

use crate::host::{ENTRIES, QUEUES};
use crate::{BLOCK, Completion, Host, PARTS, UNTOUCHED, Witness, Words, command};

/// A turn, in nanoseconds.
const TURN_NS: u64 = 50_000;
/// The keeper's ticks, in nanoseconds.
const TICK_NS: u64 = 250_000_000;
/// Turns in which everything that does not hang is done.
const MANY: u32 = 2_000;
/// Commands that the channel holds.
const DEPTH: u16 = 32;
/// Bytes of a test's own block of the honest host: as many as its commands move.
const HONEST_BLOCKS: u32 = 16;

/// Which host: the one that means harm, and the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenant {
    /// It does what it likes.
    Hostile = 0,
    /// It writes, reads and compares its own blocks.
    Honest = 1,
}

/// See the module.
pub struct World {
    engine: Engine<DriveChannel<Witness>>,
    keeper: Keeper<Witness>,
    relays: Vec<Relay<Witness>>,
    /// The drive.
    pub witness: Witness,
    /// Its hosts.
    pub hosts: [Host; 2],
    slots: [ControllerSlot; 2],
    now: Time,
    ticks: u32,
    /// Bytes of the honest host's part.
    model: Vec<u8>,
    /// Writes of its that failed: where, and what. Each was done whole or not at all.
    unsure: Vec<(usize, Vec<u8>)>,
    round: u64,
    next_cid: u16,
}

/// Opens a drive, as far as its size.
///
/// # Errors
/// It reports an unsupported namespace.
pub fn size_of(witness: &Witness) -> Result<u64, DriverError> {
    let its = witness.clone();
    let reopen = Box::new(move || open(&its));
    let (drive, _keeper) = Drive::of("witness".into(), open(witness)?, None, reopen)?;
    Ok(drive.size())
}

fn open(witness: &Witness) -> Result<Device<Witness>, DriverError> {
    let options = driver::Options {
        memory_len: 4 << 20,
        transfer_len_max: 64 << 10,
        // It has none.
        interrupts: false,
        ..options()
    };
    let mut device = Device::open(witness.clone(), &options)?;
    device.enable()?;
    Ok(device)
}

impl World {
    /// A drive, and both hosts with their queues.
    ///
    /// # Errors
    /// The drive reports an unsupported namespace.
    pub fn new(witness: Witness) -> Result<World, DriverError> {
        World::split(witness, &[])
    }

    /// The same, where others do these parts of the completion side of the drive.
    ///
    /// # Errors
    /// The drive reports an unsupported namespace.
    pub fn split(witness: Witness, duties: &[Duty]) -> Result<World, DriverError> {
        let its = witness.clone();
        let reopen = Box::new(move || open(&its));
        let (drive, keeper) = Drive::of("witness".into(), open(&witness)?, None, reopen)?;
        let relays = duties
            .iter()
            .map(|duty| drive.relay(*duty).expect("a descriptor"));
        let relays = relays.collect();
        let mut engine = Engine::new(Mode::Poll, Time(0));
        let claims = Claims::new();
        let claimant = claims.claimant().expect("the first");
        let channel = drive.channel(DEPTH, claimant).expect("a queue pair");
        assert!(engine.add_channel(ChannelId(0), channel, 256).is_ok());
        let mut seats = PARTS.iter().enumerate().map(|(index, part)| {
            let config = config(index);
            let doorbells = DoorbellPages::new(config.doorbell_slots()).expect("pages");
            let doorbells = Arc::new(doorbells);
            let namespace = namespace(part.clone());
            let subsystem = SubsystemConfig::with_namespaces(4, [namespace]);
            let mut subsystem = Subsystem::new(subsystem).expect("a subsystem");
            let controller = Controller::new(config, doorbells.clone(), &mut subsystem);
            let subsystem = engine.add_subsystem(subsystem);
            let slot = engine.add_controller(controller.expect("a controller"), subsystem);
            let host = Host::new(0x10_0000 + ((index as u64) << 36), doorbells);
            witness.know_host(host.memory());
            (host, slot)
        });
        let (first, second) = (seats.next(), seats.next());
        drop(seats);
        let ((a, a_slot), (b, b_slot)) = first.zip(second).expect("two parts");
        let part = &PARTS[Tenant::Honest as usize];
        let mut world = World {
            engine,
            keeper,
            relays,
            witness,
            hosts: [a, b],
            slots: [a_slot, b_slot],
            now: Time(0),
            ticks: 0,
            model: vec![UNTOUCHED; (part.end - part.start) as usize],
            unsure: Vec::new(),
            round: 0,
            next_cid: 0,
        };
        world.tick(1);
        for tenant in [Tenant::Hostile, Tenant::Honest] {
            world.map(tenant, true);
            world.start(tenant);
        }
        // Both are shown to the drive, so that data goes directly.
        world.honest();
        let page = world.hosts[0].page(0);
        world.run(Tenant::Hostile, command(2, 0, 1, [page, 0]));
        world.tick(3);
        Ok(world)
    }

    /// A host.
    pub fn host(&mut self, tenant: Tenant) -> &mut Host {
        &mut self.hosts[tenant as usize]
    }

    /// A host's controller.
    pub fn controller(&mut self, tenant: Tenant) -> &mut Controller {
        let slot = self.slots[tenant as usize];
        self.engine.controller_mut(slot).expect("it is there")
    }

    /// A host maps its memory for its controller, or takes it back.
    pub fn map(&mut self, tenant: Tenant, is_mapped: bool) {
        let host = self.host(tenant);
        if is_mapped {
            host.map()
        } else {
            host.unmap()
        }
        let (view, lost) = host.view();
        self.controller(tenant).set_view(view, lost);
    }

    /// A host resets its controller, which gives up what hangs.
    pub fn reset(&mut self, tenant: Tenant) {
        self.controller(tenant).function_reset();
        self.turns(4);
        for _ in 0..40 {
            if self.controller(tenant).is_quiet() {
                return;
            }
            self.tick(1);
        }
        panic!("a reset hangs");
    }

    /// A host enables its controller, and makes its I/O queues.
    pub fn start(&mut self, tenant: Tenant) {
        let host = self.host(tenant);
        host.forget_rings();
        let (sq, cq) = (host.sq(0), host.cq(0));
        let size = u32::from(ENTRIES - 1);
        let controller = self.controller(tenant);
        controller.bar_write(0, 0x24, &(size << 16 | size).to_le_bytes());
        controller.bar_write(0, 0x28, &sq.to_le_bytes());
        controller.bar_write(0, 0x30, &cq.to_le_bytes());
        controller.bar_write(0, 0x14, &0x0046_0001u32.to_le_bytes());
        self.turns(8);
        for queue in 1..QUEUES {
            self.create(tenant, queue);
        }
    }

    /// A host makes an I/O queue pair.
    pub fn create(&mut self, tenant: Tenant, queue: usize) {
        let host = self.host(tenant);
        host.forget_ring(queue);
        let (sq, cq) = (host.sq(queue), host.cq(queue));
        let size_and_id = u64::from(ENTRIES - 1) << 16 | queue as u64;
        let create = |opcode, at, more: u64| [opcode, 0, 0, at, 0, size_and_id | more << 32, 0, 0];
        for words in [create(5, cq, 1), create(1, sq, (queue as u64) << 16 | 1)] {
            self.admin(tenant, words);
        }
    }

    /// A host does an admin command.
    pub fn admin(&mut self, tenant: Tenant, words: Words) -> Option<Completion> {
        self.on_queue(tenant, 0, words)
    }

    /// A host does a command in its first I/O queue; `None` where it does not end.
    pub fn run(&mut self, tenant: Tenant, words: Words) -> Option<Completion> {
        self.on_queue(tenant, 1, words)
    }

    fn on_queue(&mut self, tenant: Tenant, queue: usize, words: Words) -> Option<Completion> {
        // Not one that a test gives, nor one that may still be in flight.
        self.next_cid = self.next_cid % 0x1000 + 1;
        let cid = self.next_cid | 0x4000;
        let host = self.host(tenant);
        host.put(queue, cid, words);
        host.ring(queue);
        for _ in 0..MANY {
            self.turns(1);
            let taken = self.host(tenant).reap(queue);
            if let Some(completion) = taken.into_iter().find(|taken| taken.cid == cid) {
                return Some(completion);
            }
        }
        None
    }

    /// Turns of the engine.
    pub fn turns(&mut self, count: u32) {
        for _ in 0..count {
            self.now = self.now + TURN_NS;
            for relay in &mut self.relays {
                relay.tend();
                relay.carry();
            }
            let turn = self.engine.turn(self.now, |_, interrupt| match interrupt {
                Interrupt::Vector(vector) => assert!(vector <= 4),
                Interrupt::Message(message) => assert!(message < 32),
                Interrupt::Pin(_) => {}
            });
            // At most a batch of each queue in a turn: no queue delays the others for longer.
            assert!(turn.commands <= 2 * 32 * 3, "{}", turn.commands);
            for (_, channel) in self.engine.channels_mut().iter_mut() {
                channel.tend();
            }
        }
    }

    /// Quarters of a second.
    pub fn tick(&mut self, count: u32) {
        for _ in 0..count {
            self.ticks += 1;
            self.now = self.now + TICK_NS;
            self.keeper.look(self.ticks);
            if !self.relays.is_empty() {
                // A relay that it wants back comes back in the same tick.
                self.relays.iter_mut().for_each(Relay::tend);
                self.keeper.look(self.ticks);
            }
            self.turns(4);
        }
    }

    /// The honest host writes some of its blocks, and reads them and others back: all of it
    /// succeeds.
    pub fn honest(&mut self) {
        let outcome = self.try_honest();
        assert_eq!(outcome, Ok(()), "the other host's commands are done");
    }

    /// As [`World::honest`], where the drive may fail: the status of what failed, all ones for what
    /// did not end.
    ///
    /// # Errors
    /// That.
    pub fn try_honest(&mut self) -> Result<(), u16> {
        self.settle();
        self.round += 1;
        let bytes = u64::from(HONEST_BLOCKS) * BLOCK;
        let places = self.model.len() as u64 / bytes;
        let write_at = self.round.wrapping_mul(7) % places;
        let pages = [0, 1].map(|page| self.hosts[1].page(page));
        let data = vec![self.round as u8; bytes as usize];
        self.hosts[1].poke(pages[0], &data);
        let lba = write_at * u64::from(HONEST_BLOCKS);
        let at = (write_at * bytes) as usize;
        let written = self.run(Tenant::Honest, command(1, lba, HONEST_BLOCKS, pages));
        match written {
            Some(Completion { status: 0, .. }) => {
                self.model[at..at + data.len()].copy_from_slice(&data);
            }
            other => {
                self.unsure.push((at, data));
                return Err(other.map_or(u16::MAX, |completion| completion.status));
            }
        }
        for place in [write_at, (write_at + self.round) % places] {
            let lba = place * u64::from(HONEST_BLOCKS);
            let read = self.run(Tenant::Honest, command(2, lba, HONEST_BLOCKS, pages));
            let status = read.map_or(u16::MAX, |completion| completion.status);
            if status != 0 {
                return Err(status);
            }
            let at = (place * bytes) as usize;
            let found = self.hosts[1].peek(pages[0], bytes as usize);
            assert!(found == self.model[at..at + bytes as usize], "block {lba}");
        }
        Ok(())
    }

    /// Finds out what became of writes that failed.
    fn settle(&mut self) {
        let part = PARTS[Tenant::Honest as usize].start;
        for (at, data) in self.unsure.drain(..) {
            let range = part + at as u64..part + (at + data.len()) as u64;
            let found = self.witness.bytes(range);
            let known = &mut self.model[at..at + data.len()];
            assert!(found == known || found == data, "a write was done in part");
            known.copy_from_slice(&found);
        }
    }

    /// Checks that the drive got only permitted commands, that the other host's bytes and those
    /// outside the parts are unchanged, and that only permitted memory was written.
    pub fn check(&mut self) {
        self.settle();
        let violations = self.witness.violations();
        assert!(violations.is_empty(), "{violations:#?}");
        let [hostile, honest] = &PARTS;
        let is_untouched = |range: std::ops::Range<u64>| {
            let len = (range.end - range.start) as usize;
            self.witness.bytes(range) == vec![UNTOUCHED; len]
        };
        assert!(is_untouched(0..hostile.start), "before all parts");
        assert!(is_untouched(hostile.end..honest.start), "between the parts");
        assert!(
            is_untouched(honest.end..crate::DRIVE_LEN),
            "behind all parts"
        );
        let bytes = self.witness.bytes(honest.clone());
        assert!(bytes == self.model, "the other host's blocks");
        for host in &self.hosts {
            assert!(host.is_intact(), "memory that may not be written");
        }
    }
}

fn config(index: usize) -> ControllerConfig {
    ControllerConfig {
        name: format!("host {index}"),
        vendor_id: 0x1234,
        device_id: 1,
        serial: format!("{index}"),
        model_number: "a part of a drive".into(),
        firmware_revision: "1".into(),
        subnqn: format!("nqn.2014-08.org.example:{index}"),
        queues: 4,
        queue_depth: ENTRIES,
        max_transfer: 64 << 10,
        doorbells: DoorbellMode::Mapped,
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    }
}

fn namespace(part: std::ops::Range<u64>) -> Namespace {
    Namespace {
        nsid: 1,
        channel: ChannelId(0),
        start: part.start,
        blocks: (part.end - part.start) / BLOCK,
        lba_shift: 9,
        nguid: [1; 16],
        eui64: [1; 8],
        traits: MediumTraits {
            deallocate: true,
            deallocated_reads_zero: false,
            volatile_cache: true,
            optimal_bytes: 4096,
            read_only: false,
            notes: false,
            allocation: false,
            erases: false,
        },
        restrictions: None,
        set: None,
    }
}
