//! Hosts that send as much as they may to one medium, each with a controller of its own, in virtual
//! time.
//!
//! A turn takes no time, and everything that can happen at an instant does; then the clock moves on
//! to whatever is next.

use std::sync::Arc;

use controller::{Controller, ControllerConfig, DoorbellMode, Interface, Interrupt};
use engine::tenants::{Budget, Cap, NamespaceKey, TenantFigures, TenantId, TenantSpec};
use engine::{ControllerSlot, Engine, EngineId, Mode};
use media::{Channel, Medium, MediumKind, MediumSpec};
use memory::{
    Access, Buffer, ClientMappings, DmaMap, DoorbellPages, HostCq, HostMemory, HostSq, Iova,
};
use model::{Flash, Parameters};
use nvme_spec::{Cqe, Sqe};
use port::namespace::Namespace;
use port::time::Time;
use port::{Channel as _, ChannelId};
use subsystem::{Subsystem, SubsystemConfig};

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const READ: u8 = 2;
pub(crate) const WRITE: u8 = 1;

const MEMORY_LEN: usize = 4 << 20;
const BASE: Iova = Iova(1 << 32);
const ADMIN_ENTRIES: u32 = 16;
const ENTRIES: u32 = 1024;
const BLOCK: u64 = 4096;
/// Bytes of the largest command.
const LARGEST: u64 = 1 << 20;
/// When hosts begin.
const START: u64 = SECOND;
const MEDIUM: ChannelId = ChannelId(0);
/// After so long without a command a lane may be cold, and its doorbell is not looked at in every
/// turn.
const ASIDE_NS: u64 = 500_000;

/// Commands of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) opcode: u8,
    pub(crate) bytes: u32,
    pub(crate) depth: u32,
    /// To which of the host's namespaces.
    pub(crate) nsid: u32,
    /// It begins and ends so long after the start.
    pub(crate) from: u64,
    pub(crate) until: u64,
}

impl Load {
    pub(crate) fn reads(bytes: u32, depth: u32) -> Load {
        Load {
            opcode: READ,
            bytes,
            depth,
            nsid: 1,
            from: 0,
            until: u64::MAX,
        }
    }
}

/// A command that is done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    /// When, since the start, and how long it took.
    pub(crate) at: u64,
    pub(crate) took: u64,
}

struct Flight {
    load: usize,
    since: u64,
}

/// A host: one queue pair, on which it keeps all of its loads going.
struct Host {
    slot: ControllerSlot,
    pages: Arc<DoorbellPages>,
    sq: HostSq,
    cq: HostCq,
    tail: u32,
    head: u32,
    phase: bool,
    data: u64,
    list: u64,
    _memory: (HostMemory, Vec<Buffer>),
    loads: Vec<(Load, u32)>,
    flights: Vec<Option<Flight>>,
    free: Vec<u16>,
    blocks: u64,
    random: u64,
    last: u64,
}

pub(crate) struct World {
    engine: Engine<Channel>,
    hosts: Vec<Host>,
    pub(crate) now: u64,
    size: u64,
    /// By host and load.
    pub(crate) done: Vec<Vec<Vec<Done>>>,
    budgets: Vec<Arc<Budget>>,
}

fn nobody(_: ControllerSlot, _: Interrupt) {}

/// How a host is made: its loads, and how many namespaces it has.
pub(crate) struct Asked {
    pub(crate) loads: Vec<Load>,
    pub(crate) namespaces: u32,
}

impl From<Load> for Asked {
    fn from(load: Load) -> Self {
        Asked {
            loads: vec![load],
            namespaces: 1,
        }
    }
}

/// A drive of a preset.
pub(crate) fn preset(name: &str, size: u64) -> Parameters {
    let preset = model::preset::preset(name).unwrap();
    preset.parameters(size, None).unwrap()
}

impl World {
    /// Hosts on equal parts of a medium of `size` bytes, with this timing model, if any.
    pub(crate) fn new(timing: Option<Parameters>, size: u64, hosts: Vec<Asked>) -> Self {
        let kind = MediumKind::Null { size };
        let mut medium = Medium::open(&MediumSpec { kind }).unwrap();
        match timing {
            // Reads find something.
            Some(Parameters::Flash(flash)) => {
                let mut drive = Flash::new(&flash).unwrap();
                drive.precondition(1);
                let mut state = Vec::new();
                drive.save(&mut state);
                let timing = Parameters::Flash(flash);
                Medium::restore_timing(&mut medium, timing, &state).unwrap();
            }
            Some(timing) => Medium::set_timing(&mut medium, timing).unwrap(),
            None => {}
        }
        let mut engine = Engine::new(Mode::Poll, Time(0));
        let depth = 4096;
        let channel = medium.channel(depth).unwrap();
        assert!(engine.add_channel(MEDIUM, channel, depth.into()).is_ok());
        let mut world = World {
            engine,
            done: hosts
                .iter()
                .map(|host| vec![Vec::new(); host.loads.len()])
                .collect(),
            hosts: Vec::new(),
            now: 0,
            size: size / hosts.len() as u64 / BLOCK * BLOCK,
            budgets: Vec::new(),
        };
        for (number, asked) in hosts.into_iter().enumerate() {
            let traits = medium.traits();
            let part = world.size / u64::from(asked.namespaces) / BLOCK;
            let namespaces = (1..=asked.namespaces).map(|nsid| Namespace {
                nsid,
                channel: MEDIUM,
                start: number as u64 * world.size + u64::from(nsid - 1) * part * BLOCK,
                blocks: part,
                lba_shift: BLOCK.ilog2() as u8,
                nguid: [nsid as u8; 16],
                eui64: [nsid as u8; 8],
                traits,
                restrictions: None,
                set: None,
            });
            let namespaces: Vec<_> = namespaces.collect();
            world.add(number, namespaces, part, asked.loads);
        }
        world.now = START;
        world
    }

    fn add(&mut self, number: usize, namespaces: Vec<Namespace>, blocks: u64, loads: Vec<Load>) {
        let config = config(number);
        let subsystem = SubsystemConfig::with_namespaces(16, namespaces);
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let mut controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
        let memory = HostMemory::new(MEMORY_LEN).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        let mut map = DmaMap::new(16);
        let whole = (MEMORY_LEN as u64, Access::READ_WRITE, Some((mapping, 0)));
        map.map(BASE, whole.0, whole.1, whole.2).unwrap();
        controller.set_view(map.view(), ClientMappings::new().lost());
        let subsystem = self.engine.add_subsystem(subsystem);
        let slot = self.engine.add_controller(controller, subsystem);
        let alloc = |len: usize| {
            let buffer = memory.alloc(len, 4096).unwrap();
            buffer.zero();
            buffer
        };
        let (data, list) = (alloc(LARGEST as usize), alloc(4096));
        for page in 1..LARGEST / 4096 {
            let entry = data.iova(BASE).0 + page * 4096;
            list.write_from((page as usize - 1) * 8, &entry.to_le_bytes());
        }
        let (sq, cq) = (alloc(ENTRIES as usize * 64), alloc(ENTRIES as usize * 16));
        let admin = (alloc(4096), alloc(4096));
        let mut host = Host {
            slot,
            pages,
            sq: HostSq::new(sq),
            cq: HostCq::new(cq),
            tail: 0,
            head: 0,
            phase: true,
            data: data.iova(BASE).0,
            list: list.iova(BASE).0,
            _memory: (memory, vec![data, list]),
            loads: loads.into_iter().map(|load| (load, 0)).collect(),
            flights: (0..ENTRIES).map(|_| None).collect(),
            free: (0..ENTRIES as u16 - 1).rev().collect(),
            blocks,
            random: number as u64 + 1,
            last: 0,
        };
        host.bring_up(self, admin);
        self.hosts.push(host);
    }

    /// Makes a host's controller a tenant's.
    pub(crate) fn tenant(&mut self, host: usize, id: u16, spec: TenantSpec) {
        self.change(id, spec, None, None);
        let slot = self.hosts[host].slot;
        let home = EngineId::default();
        self.engine
            .assign_controller(home, slot, Some(TenantId(id)));
    }

    /// Makes one of its namespaces a tenant's, with a weight of its own.
    pub(crate) fn namespace(&mut self, host: usize, nsid: u32, tenant: Option<u16>, weight: u32) {
        let part = self.hosts[host].blocks * BLOCK;
        let key = NamespaceKey {
            channel: MEDIUM,
            start: host as u64 * self.size + u64::from(nsid - 1) * part,
        };
        self.engine
            .assign_namespace(key, tenant.map(TenantId), weight);
    }

    /// Takes a tenant or changes it, with its caps of commands and bytes.
    pub(crate) fn change(
        &mut self,
        id: u16,
        spec: TenantSpec,
        commands: Option<Cap>,
        bytes: Option<Cap>,
    ) {
        while self.budgets.len() <= id.into() {
            self.budgets.push(Arc::new(Budget::default()));
        }
        let budget = &self.budgets[usize::from(id)];
        budget.set(commands, bytes, Time(self.now));
        self.engine.set_tenant(TenantId(id), spec, budget.clone());
    }

    pub(crate) fn in_flight(&mut self) -> u32 {
        self.engine.channels_mut().get(MEDIUM).unwrap().in_flight()
    }

    pub(crate) fn figures(&self, id: u16) -> TenantFigures {
        self.budgets[usize::from(id)].figures()
    }

    /// Goes on for so many turns that take their time, whatever is done in them.
    pub(crate) fn run_turns(&mut self, turns: u64, each_ns: u64) {
        for _ in 0..turns {
            for host in &mut self.hosts {
                host.submit(self.now);
            }
            self.engine.turn(Time(self.now), nobody);
            for (host, done) in self.hosts.iter_mut().zip(&mut self.done) {
                host.reap(self.now, done);
            }
            self.now += each_ns;
        }
    }

    /// Goes on until so long after the start.
    pub(crate) fn run(&mut self, until: u64) {
        let end = START + until;
        while self.now < end {
            self.instant();
            let due = self.engine.next_due().map(|due| due.0.max(self.now + 1));
            let wake = self.hosts.iter().filter_map(|host| host.wakes(self.now));
            let next = due.into_iter().chain(wake).min();
            let Some(next) = next else {
                assert!(
                    self.hosts.iter().all(Host::is_idle),
                    "commands wait for nothing"
                );
                break;
            };
            self.now = next.min(end);
        }
    }

    /// Everything that can happen now.
    fn instant(&mut self) {
        for turns in 0.. {
            assert!(turns < 100_000, "an instant does not end");
            let (mut moved, mut aside) = (false, false);
            for host in &mut self.hosts {
                if host.submit(self.now) {
                    moved = true;
                    aside |= self.now - host.last > ASIDE_NS;
                    host.last = self.now;
                }
            }
            if aside {
                // Whether it finds something shows in the turn that follows.
                let _ = self.engine.arm();
            }
            moved |= self.engine.turn(Time(self.now), nobody).worked;
            for (host, done) in self.hosts.iter_mut().zip(&mut self.done) {
                moved |= host.reap(self.now, done);
            }
            if !moved {
                return;
            }
        }
    }

    /// Commands that were done in a time since the start.
    pub(crate) fn count(&self, host: usize, load: usize, from: u64, until: u64) -> u64 {
        let done = self.done[host][load].iter();
        done.filter(|one| (from..until).contains(&one.at)).count() as u64
    }

    /// How long they took: of so many of a thousand no longer.
    pub(crate) fn percentile(&self, host: usize, from: u64, per_mille: usize) -> u64 {
        let done = self.done[host][0].iter().filter(|one| one.at >= from);
        let mut took: Vec<u64> = done.map(|one| one.took).collect();
        took.sort_unstable();
        took[(took.len() * per_mille / 1000).min(took.len() - 1)]
    }
}

impl Host {
    fn bring_up(&mut self, world: &mut World, (admin_sq, admin_cq): (Buffer, Buffer)) {
        let mut write = |register: u64, bytes: &[u8]| {
            let controller = world.engine.controller_mut(self.slot).unwrap();
            controller.bar_write(0, register, bytes);
        };
        // AQA, ASQ, ACQ, CC (Base 2.1, 3.5.1).
        let sizes = (ADMIN_ENTRIES - 1) << 16 | (ADMIN_ENTRIES - 1);
        write(0x24, &sizes.to_le_bytes());
        write(0x28, &admin_sq.iova(BASE).0.to_le_bytes());
        write(0x30, &admin_cq.iova(BASE).0.to_le_bytes());
        write(0x14, &0x0046_0001_u32.to_le_bytes());
        // RDY comes before the first command does.
        for _ in 0..64 {
            world.now += 1_000;
            world.engine.turn(Time(world.now), nobody);
        }
        let (sq, cq) = (HostSq::new(admin_sq), HostCq::new(admin_cq));
        let size_and_id = (ENTRIES - 1) << 16 | 1;
        let commands = [(5, self.cq.buffer(), 1), (1, self.sq.buffer(), 1 << 16 | 1)];
        for (at, (opcode, buffer, cdw11)) in (0..).zip(commands) {
            let sqe = Sqe {
                opcode,
                prp1: buffer.iova(BASE).0,
                cdw10: size_and_id,
                cdw11,
                ..Sqe::default()
            };
            sq.store(at, sqe.to_words());
            self.pages.store(0, at + 1);
            for _ in 0..64 {
                world.now += 1_000;
                world.engine.turn(Time(world.now), nobody);
            }
            let cqe = Cqe::from_words(cq.load(at));
            assert!(
                cqe.status.phase() && cqe.status.status().is_success(),
                "{cqe:?}"
            );
            self.pages.store(1, at + 1);
        }
    }

    /// When it begins something by itself.
    fn wakes(&self, now: u64) -> Option<u64> {
        let starts = self.loads.iter().map(|(load, _)| START + load.from);
        starts.filter(|start| *start > now).min()
    }

    fn is_idle(&self) -> bool {
        self.loads.iter().all(|(_, in_flight)| *in_flight == 0)
    }

    fn submit(&mut self, now: u64) -> bool {
        let before = self.tail;
        for at in 0..self.loads.len() {
            while self.wants(at, now) {
                let Some(cid) = self.free.pop() else {
                    break;
                };
                let (load, in_flight) = &mut self.loads[at];
                *in_flight += 1;
                let load = *load;
                let sqe = self.command(cid, load);
                self.sq.store(self.tail, sqe.to_words());
                self.tail = (self.tail + 1) % ENTRIES;
                self.flights[usize::from(cid)] = Some(Flight {
                    load: at,
                    since: now,
                });
            }
        }
        if self.tail != before {
            self.pages.store(2, self.tail);
        }
        self.tail != before
    }

    fn wants(&self, at: usize, now: u64) -> bool {
        let (load, in_flight) = self.loads[at];
        let since = now.checked_sub(START + load.from);
        since.is_some() && now < START.saturating_add(load.until) && in_flight < load.depth
    }

    fn command(&mut self, cid: u16, load: Load) -> Sqe {
        let blocks = u64::from(load.bytes) / BLOCK;
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let slba = (self.random >> 20) % (self.blocks / blocks) * blocks;
        Sqe {
            opcode: load.opcode,
            cid,
            nsid: load.nsid,
            prp1: self.data,
            prp2: match blocks {
                1 => 0,
                2 => self.data + 4096,
                _ => self.list,
            },
            cdw10: slba as u32,
            cdw11: (slba >> 32) as u32,
            cdw12: blocks as u32 - 1,
            ..Sqe::default()
        }
    }

    fn reap(&mut self, now: u64, done: &mut [Vec<Done>]) -> bool {
        let before = self.head;
        loop {
            let cqe = Cqe::from_words(self.cq.load(self.head));
            if cqe.status.phase() != self.phase {
                break;
            }
            assert!(cqe.status.status().is_success(), "{cqe:?}");
            self.head = (self.head + 1) % ENTRIES;
            self.phase ^= self.head == 0;
            let flight = self.flights[usize::from(cqe.cid)].take();
            let flight = flight.expect("a command completes once");
            self.free.push(cqe.cid);
            self.loads[flight.load].1 -= 1;
            done[flight.load].push(Done {
                at: now - START,
                took: now - flight.since,
            });
        }
        if self.head != before {
            self.pages.store(3, self.head);
        }
        self.head != before
    }
}

fn config(number: usize) -> ControllerConfig {
    ControllerConfig {
        name: format!("tenant {number}"),
        vendor_id: controller::config::DEFAULT_VENDOR_ID,
        device_id: controller::config::DEFAULT_DEVICE_ID,
        serial: "1".into(),
        model_number: "shared".into(),
        firmware_revision: "1".into(),
        subnqn: format!("nqn.2014-08.org.example:{number}"),
        queues: 4,
        queue_depth: ENTRIES as u16,
        max_transfer: LARGEST as u32,
        doorbells: DoorbellMode::Mapped,
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    }
}
