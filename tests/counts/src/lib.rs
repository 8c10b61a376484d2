//! A host and a reactor's engine in one thread, to count what a command costs the reactor.
//!
//! The host's part is done beforehand: a submission queue that is filled once, of which a few
//! entries at a time are announced by its doorbell. The count between covers the engine alone,
//! except for two doorbell stores per batch.
//!
//! `benches/path.rs` counts under callgrind; `cargo xtask instructions` runs it and compares with
//! `baseline.json`.

#![expect(clippy::unwrap_used, reason = "a count ends where its host fails")]

mod mediated;
mod tcp;
mod vhost;

use std::path::Path;
use std::sync::Arc;

use controller::flight::{TraceRings, TraceSpec, WatchSpec};
use controller::{Controller, ControllerConfig, DoorbellMode, Interface};
use engine::{ControllerSlot, Engine, Mode};
use media::{Channel, Direct, FileIo, Medium, MediumKind, MediumSpec};
pub use mediated::{Direct as DirectDrive, Mediated};
use memory::{
    Access, Buffer, ClientMappings, DmaMap, DmaView, DoorbellPages, HostCq, HostMemory, HostSq,
    Iova,
};
use nvme_spec::{Cqe, Sqe};
use port::namespace::Namespace;
use port::time::Time;
use port::{Channel as Port, ChannelId, MediumTraits};
use subsystem::{Subsystem, SubsystemConfig};
pub use tcp::{Tcp, TcpLoad};
pub use vhost::{Vhost, VhostLoad};

/// Commands of every count. A queue that is filled once has 1,023; these are whole batches of 32.
pub const COMMANDS: u32 = 992;
/// Entries of the queues.
const ENTRIES: u32 = 1024;
const ADMIN_ENTRIES: u32 = 16;
/// Bytes of a host's memory.
const MEMORY_LEN: usize = 32 << 20;
/// Bytes of a medium.
const MEDIUM_LEN: u64 = 16 << 20;
/// Bytes of the data that the commands of one queue move, before they come to the same place again.
const DATA_LEN: usize = 8 << 20;
/// Where the host's memory lies for the device.
const BASE: Iova = Iova(1 << 32);

/// How the host rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doorbells {
    /// It stores into our page.
    Mapped,
    /// It stores into a page of its own (Doorbell Buffer Config).
    Shadow,
}

/// A host's memory and the device's view of it.
pub struct Memory {
    memory: HostMemory,
    /// The device's view.
    pub view: Arc<DmaView>,
    /// Keeps the memory in the view: dropping it unmaps it.
    _map: DmaMap,
}

impl Memory {
    /// [`MEMORY_LEN`] bytes.
    #[must_use]
    pub fn new() -> Self {
        let memory = HostMemory::new(MEMORY_LEN).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        let mut map = DmaMap::new(16);
        let backing = Some((mapping, 0));
        map.map(BASE, MEMORY_LEN as u64, Access::READ_WRITE, backing)
            .unwrap();
        let view = map.view();
        Memory {
            memory,
            view,
            _map: map,
        }
    }

    /// A buffer of whole pages, each touched.
    #[must_use]
    pub fn alloc(&self, len: usize) -> Buffer {
        let buffer = self.memory.alloc(len, 4096).unwrap();
        buffer.fill(1);
        buffer
    }

    /// Its address for the device.
    #[must_use]
    pub fn address(buffer: &Buffer) -> u64 {
        buffer.iova(BASE).0
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

/// A queue pair, as the host has it.
struct Queue {
    sq: HostSq,
    cq: HostCq,
    tail: u32,
    head: u32,
}

impl Queue {
    fn new(memory: &Memory, entries: u32) -> Self {
        let sq = memory.alloc(entries as usize * 64);
        let cq = memory.alloc(entries as usize * 16);
        cq.zero();
        Queue {
            sq: HostSq::new(sq),
            cq: HostCq::new(cq),
            tail: 0,
            head: 0,
        }
    }
}

/// A host with a controller in an engine, and a queue pair.
pub struct Rig<C = Channel> {
    engine: Engine<C>,
    slot: ControllerSlot,
    memory: Memory,
    pages: Arc<DoorbellPages>,
    /// The shadow and the EventIdx page.
    shadow: Option<[Buffer; 2]>,
    io: Queue,
    data: Buffer,
    /// A page for the PRP list of each command.
    lists: Buffer,
    now: Time,
    /// Interrupts raised.
    pub raised: u64,
}

/// The commands that fill the queue.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Read or write.
    pub opcode: u8,
    /// Bytes of each.
    pub bytes: u32,
}

impl Load {
    /// Reads of 4 KiB.
    pub const READ: Load = Load {
        opcode: 2,
        bytes: 4096,
    };
    /// Writes of 4 KiB.
    pub const WRITE: Load = Load {
        opcode: 1,
        bytes: 4096,
    };
}

/// A channel of a new medium.
#[must_use]
pub fn channel(kind: MediumKind) -> Channel {
    let spec = MediumSpec { kind };
    let medium = Medium::open(&spec).unwrap();
    if let MediumKind::File { path, .. } = &spec.kind {
        std::fs::remove_file(path).unwrap();
    }
    medium.channel(1024).unwrap()
}

/// Nothing at all.
#[must_use]
pub fn null() -> MediumKind {
    MediumKind::Null { size: MEDIUM_LEN }
}

/// A file in `dir`, which loses its name when it is opened: on a disk its commands go to the kernel
/// by a ring, in memory by a call for each.
#[must_use]
pub fn file(dir: &str) -> MediumKind {
    let path = Path::new(dir).join(format!("counts-{}", std::process::id()));
    std::fs::write(&path, vec![1; MEDIUM_LEN as usize]).unwrap();
    MediumKind::File {
        path,
        size: Some(MEDIUM_LEN),
        direct: Direct::Auto,
        // in which of two ways a command goes is a matter of time otherwise
        io: FileIo {
            register_memory: false,
            ..FileIo::default()
        },
    }
}

/// Memory.
#[must_use]
pub fn ram() -> MediumKind {
    MediumKind::Ram { size: MEDIUM_LEN }
}

impl Rig {
    /// A host with a queue pair full of commands, on a medium of its own. Nothing was rung.
    #[must_use]
    pub fn new(kind: MediumKind, doorbells: Doorbells, load: Load) -> Self {
        let mut rig = Rig::on(channel(kind), doorbells, load);
        // Work that is done once, at the first command: pages of the state file, branches of the
        // first turn.
        rig.batches(1, 31);
        rig
    }
}

impl Rig {
    /// The same, and one command of `every` is watched.
    #[must_use]
    pub fn watched(mut self, every: u32) -> Self {
        let clock = || Time(0);
        let spec = WatchSpec {
            every,
            clock,
            records: 256,
            trace: None,
        };
        self.engine.watch_commands(self.slot, Some(spec));
        self
    }
}

impl Rig {
    /// The same, with every command recorded for a trace, whose records no reader takes out.
    #[must_use]
    pub fn traced(mut self) -> Self {
        let clock = || Time(0);
        let rings = TraceRings::new(1, 4096);
        let spec = WatchSpec {
            every: 256,
            clock,
            records: 256,
            trace: Some(TraceSpec {
                every: 1,
                rings: Arc::new(rings),
            }),
        };
        self.engine.watch_commands(self.slot, Some(spec));
        self
    }
}

impl<C: Port> Rig<C> {
    /// The same on a channel that there is, and without a command that was done.
    fn on(channel: C, doorbells: Doorbells, load: Load) -> Self {
        let mut engine = Engine::new(Mode::Poll, Time(0));
        let id = ChannelId(0);
        let taken = engine.add_channel(id, channel, 1024);
        assert!(taken.is_ok(), "it is the first");
        let subsystem = SubsystemConfig::with_namespaces(4, [namespace(id)]);
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        let config = config(doorbells);
        let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let memory = Memory::new();
        let mut controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
        controller.set_view(memory.view.clone(), ClientMappings::new().lost());
        let subsystem = engine.add_subsystem(subsystem);
        let slot = engine.add_controller(controller, subsystem);
        let mut rig = Rig {
            engine,
            slot,
            pages,
            shadow: None,
            io: Queue::new(&memory, ENTRIES),
            data: memory.alloc(DATA_LEN),
            lists: memory.alloc(ENTRIES as usize * 4096),
            memory,
            now: Time(0),
            raised: 0,
        };
        rig.bring_up(doorbells);
        rig.fill(load);
        rig
    }

    /// Enables the controller and creates the queue pair.
    fn bring_up(&mut self, doorbells: Doorbells) {
        let mut admin = Queue::new(&self.memory, ADMIN_ENTRIES);
        // AQA, ASQ, ACQ, CC (Base 2.1, 3.5.1).
        self.write(0x24, &0x000f_000f_u32.to_le_bytes());
        self.write(0x28, &Memory::address(admin.sq.buffer()).to_le_bytes());
        self.write(0x30, &Memory::address(admin.cq.buffer()).to_le_bytes());
        self.write(0x14, &0x0046_0001_u32.to_le_bytes());
        (0..4).for_each(|_| self.turn());
        if doorbells == Doorbells::Shadow {
            let shadow = self.memory.alloc(4096);
            let events = self.memory.alloc(4096);
            shadow.zero();
            let register = Sqe {
                opcode: 0x7c,
                prp1: Memory::address(&shadow),
                prp2: Memory::address(&events),
                ..Sqe::default()
            };
            self.admin(&mut admin, register);
            self.shadow = Some([shadow, events]);
        }
        let size_and_id = (ENTRIES - 1) << 16 | 1;
        let cq = Sqe {
            opcode: 5,
            prp1: Memory::address(self.io.cq.buffer()),
            cdw10: size_and_id,
            // Interrupts on vector 1.
            cdw11: 1 << 16 | 3,
            ..Sqe::default()
        };
        let sq = Sqe {
            opcode: 1,
            prp1: Memory::address(self.io.sq.buffer()),
            cdw10: size_and_id,
            cdw11: 1 << 16 | 1,
            ..Sqe::default()
        };
        self.admin(&mut admin, cq);
        self.admin(&mut admin, sq);
    }

    fn write(&mut self, register: u64, bytes: &[u8]) {
        let controller = self.engine.controller_mut(self.slot).unwrap();
        controller.bar_write(0, register, bytes);
    }

    fn admin(&mut self, admin: &mut Queue, sqe: Sqe) {
        admin.sq.store(admin.tail, sqe.to_words());
        admin.tail += 1;
        self.pages.store(0, admin.tail);
        for _ in 0..64 {
            self.turn();
            let cqe = Cqe::from_words(admin.cq.load(admin.head));
            if cqe.status.phase() {
                assert!(cqe.status.status().is_success(), "{cqe:?}");
                admin.head += 1;
                self.pages.store(1, admin.head);
                return;
            }
        }
        panic!("an admin command did not complete");
    }

    /// Fills the submission queue with commands at blocks and buffers that lie a large odd number
    /// of pages apart.
    fn fill(&mut self, load: Load) {
        let pages = u64::from(load.bytes.div_ceil(4096));
        let places = DATA_LEN as u64 / 4096 / pages;
        for index in 0..ENTRIES {
            let place = u64::from(index) * 389 % places;
            let data = Memory::address(&self.data) + place * pages * 4096;
            let slba = (u64::from(index) * 769 % places) * pages;
            let prp2 = match pages {
                1 => 0,
                2 => data + 4096,
                _ => self.list(index, data, pages),
            };
            let sqe = Sqe {
                opcode: load.opcode,
                cid: index as u16,
                nsid: 1,
                prp1: data,
                prp2,
                cdw10: slba as u32,
                cdw12: pages as u32 - 1,
                ..Sqe::default()
            };
            self.io.sq.store(index, sqe.to_words());
        }
    }

    /// The address of a list of every page of `data` but the first.
    fn list(&self, index: u32, data: u64, pages: u64) -> u64 {
        let at = index as usize * 4096;
        for page in 1..pages {
            let entry = (data + page * 4096).to_le_bytes();
            self.lists.write_from(at + 8 * (page as usize - 1), &entry);
        }
        Memory::address(&self.lists) + at as u64
    }

    #[inline]
    fn store(&self, slot: usize, value: u32) {
        match &self.shadow {
            Some([shadow, _]) => shadow.store_u32(4 * slot, value),
            None => self.pages.store(slot, value),
        }
    }

    /// `count` times: announces `size` commands, lets the engine take a turn, and acknowledges what
    /// it has completed.
    ///
    /// # Panics
    /// A command was not completed in its turn.
    #[inline]
    pub fn batches(&mut self, count: u32, size: u32) {
        for _ in 0..count {
            self.io.tail = (self.io.tail + size) % ENTRIES;
            self.store(2, self.io.tail);
            self.turn();
            self.store(3, self.io.tail);
        }
    }

    /// One turn, a microsecond after the last.
    #[inline]
    pub fn turn(&mut self) {
        self.now = Time(self.now.0 + 1000);
        let raised = &mut self.raised;
        self.engine.turn(self.now, |_, _| *raised += 1);
    }

    /// Checks that every command so far has completed with success.
    ///
    /// # Panics
    /// One has not.
    pub fn check(&self) {
        let done = self.io.tail;
        for index in 0..done {
            let cqe = Cqe::from_words(self.io.cq.load(index));
            assert_eq!(u32::from(cqe.cid), index);
            assert!(cqe.status.phase() && cqe.status.status().is_success());
        }
        assert_eq!(done, ENTRIES - 1, "all commands were announced");
    }
}

fn config(doorbells: Doorbells) -> ControllerConfig {
    ControllerConfig {
        name: "counted".into(),
        vendor_id: controller::config::DEFAULT_VENDOR_ID,
        device_id: controller::config::DEFAULT_DEVICE_ID,
        serial: "1".into(),
        model_number: "counted".into(),
        firmware_revision: "1".into(),
        subnqn: "nqn.2014-08.org.example:counted".into(),
        queues: 4,
        queue_depth: ENTRIES as u16,
        max_transfer: 1 << 20,
        doorbells: match doorbells {
            Doorbells::Mapped => DoorbellMode::Mapped,
            Doorbells::Shadow => DoorbellMode::Unmapped,
        },
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    }
}

/// All of a medium, in blocks of 4 KiB.
#[must_use]
pub fn namespace(channel: ChannelId) -> Namespace {
    Namespace {
        nsid: 1,
        channel,
        start: 0,
        blocks: MEDIUM_LEN / 4096,
        lba_shift: 12,
        nguid: [1; 16],
        eui64: [1; 8],
        traits: MediumTraits::default(),
        restrictions: None,
        set: None,
    }
}
