//! What the targets share: a controller in an engine, media that may hold on to commands, and a
//! host's memory of which a part must never change.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use controller::{Controller, ControllerConfig, DoorbellMode, Interface, Interrupt};
use engine::{ControllerSlot, Engine, Mode};
use media::{Medium, MediumKind, MediumSpec};
use memory::{
    Access, Buffer, ClientMappings, DmaMap, DmaView, DoorbellPages, HostMemory, Iova, Mapping,
    Segment,
};
use port::namespace::Namespace;
use port::ticket::Ticket;
use port::time::Time;
use port::{Added, Channel, ChannelId, Done, MediumTraits, Outcome, Request};
use subsystem::{Subsystem, SubsystemConfig};

use crate::gate::Gated;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Pages of the host's memory.
pub(crate) const PAGES: usize = 64;
/// Pages from here on are mapped for reading only, or not at all: no command may change them.
pub(crate) const READ_ONLY_FROM: usize = 40;
/// Pages from here on are never mapped.
pub(crate) const UNMAPPED_FROM: usize = 48;
/// Where the host's memory begins for the device.
pub(crate) const BASE: u64 = 0x10_0000;
/// What the pages that must not change are filled with.
const CANARY: u8 = 0xa5;
/// Bytes of each namespace's medium.
const MEDIUM_LEN: u64 = 1 << 20;

/// A medium of either manner.
pub(crate) enum FuzzChannel {
    /// Real media.
    Real(media::Channel),
    /// Keeps commands until it may let them go.
    Held(Held),
    /// A real one whose completions wait.
    Gated(Gated),
}

/// A medium that keeps what it is given until it may let go.
#[derive(Clone, Default)]
pub(crate) struct Held(Rc<RefCell<Holding>>);

#[derive(Default)]
struct Holding {
    tickets: VecDeque<Ticket>,
    let_go: bool,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.tickets.drain(..).for_each(Ticket::retire);
    }
}

/// Commands that [`Held`] takes.
const HELD_MAX: usize = 24;

impl Channel for FuzzChannel {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        match self {
            FuzzChannel::Real(channel) => channel.add(ticket, request, segments, view),
            FuzzChannel::Gated(channel) => channel.add(ticket, request, segments, view),
            FuzzChannel::Held(held) => {
                let mut holding = held.0.borrow_mut();
                if holding.tickets.len() == HELD_MAX {
                    return Added::Full(ticket);
                }
                holding.tickets.push_back(ticket);
                Added::Pending
            }
        }
    }

    fn submit(&mut self) {
        match self {
            FuzzChannel::Real(channel) => channel.submit(),
            FuzzChannel::Gated(channel) => channel.submit(),
            FuzzChannel::Held(_) => {}
        }
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        match self {
            FuzzChannel::Real(channel) => channel.reap(done),
            FuzzChannel::Gated(channel) => channel.reap(done),
            FuzzChannel::Held(held) => {
                let mut holding = held.0.borrow_mut();
                if holding.let_go {
                    let outcome = Outcome::OK;
                    let tickets = holding.tickets.drain(..);
                    done.extend(tickets.map(|ticket| Done { ticket, outcome }));
                }
            }
        }
    }

    fn in_flight(&self) -> u32 {
        match self {
            FuzzChannel::Real(channel) => channel.in_flight(),
            FuzzChannel::Gated(channel) => channel.in_flight(),
            FuzzChannel::Held(held) => u32::try_from(held.0.borrow().tickets.len()).unwrap(),
        }
    }
}

/// The whole: engine, controller, host memory.
pub(crate) struct Rig {
    /// The engine under test.
    pub(crate) engine: Engine<FuzzChannel>,
    /// The one controller in it.
    pub(crate) slot: ControllerSlot,
    /// Its doorbells.
    pub(crate) doorbells: Arc<DoorbellPages>,
    /// The host's memory, all of it.
    pub(crate) ram: Buffer,
    held: Held,
    memory: HostMemory,
    mapping: Arc<Mapping>,
    mappings: ClientMappings,
    map: DmaMap,
    now: Time,
}

impl Rig {
    /// A controller with a RAM namespace and one whose medium holds on, and mapped memory.
    pub(crate) fn new(mode: DoorbellMode) -> Rig {
        let mut engine = Engine::new(Mode::Poll, Time(0));
        let kind = MediumKind::Ram { size: MEDIUM_LEN };
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        let held = Held::default();
        let channels = [
            FuzzChannel::Real(medium.channel(64).unwrap()),
            FuzzChannel::Held(held.clone()),
        ];
        let ids = [ChannelId(0), ChannelId(1)];
        for (id, channel) in ids.into_iter().zip(channels) {
            assert!(engine.add_channel(id, channel, 256).is_ok());
        }
        let namespaces = ids.iter().zip(1..).map(|(&channel, nsid)| Namespace {
            nsid,
            channel,
            start: 0,
            blocks: MEDIUM_LEN >> 9,
            lba_shift: 9,
            nguid: [nsid as u8; 16],
            eui64: [nsid as u8; 8],
            traits: MediumTraits {
                deallocate: true,
                deallocated_reads_zero: true,
                volatile_cache: true,
                read_only: false,
                notes: false,
                allocation: false,
                erases: false,
                optimal_bytes: 4096,
            },
            restrictions: None,
            set: None,
        });
        let subsystem = SubsystemConfig::with_namespaces(4, namespaces);
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        let config = ControllerConfig {
            name: "fuzz".into(),
            vendor_id: 0x1234,
            device_id: 1,
            serial: "1".into(),
            model_number: "fuzz".into(),
            firmware_revision: "1".into(),
            subnqn: "nqn.2014-08.org.example:fuzz".into(),
            queues: 4,
            queue_depth: 32,
            max_transfer: 64 << 10,
            doorbells: mode,
            msix: true,
            intx: true,
            interface: Interface::Pcie,
        };
        let doorbells = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let controller = Controller::new(config, doorbells.clone(), &mut subsystem).unwrap();
        let subsystem = engine.add_subsystem(subsystem);
        let slot = engine.add_controller(controller, subsystem);
        let memory = HostMemory::new(PAGES * PAGE).unwrap();
        let mut mappings = ClientMappings::new();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = mappings.map(fd).unwrap();
        let ram = memory.alloc(PAGES * PAGE, PAGE).unwrap();
        ram.write_from(
            READ_ONLY_FROM * PAGE,
            &[CANARY; (PAGES - READ_ONLY_FROM) * PAGE],
        );
        let mut rig = Rig {
            engine,
            slot,
            doorbells,
            ram,
            held,
            memory,
            mapping,
            mappings,
            map: DmaMap::new(PAGES),
            now: Time(0),
        };
        rig.map_pages(0, READ_ONLY_FROM);
        rig.map_pages(READ_ONLY_FROM, UNMAPPED_FROM - READ_ONLY_FROM);
        rig
    }

    /// The memfd of the host's memory.
    pub(crate) fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// The controller.
    pub(crate) fn controller(&mut self) -> &mut Controller {
        self.engine.controller_mut(self.slot).unwrap()
    }

    /// Maps pages for the device: the canary's first part for reading only, its rest never.
    pub(crate) fn map_pages(&mut self, first: usize, count: usize) {
        let access = if first < READ_ONLY_FROM {
            Access::READ_WRITE
        } else {
            Access::READ
        };
        let end = if first < READ_ONLY_FROM {
            READ_ONLY_FROM
        } else {
            UNMAPPED_FROM
        };
        let count = count.min(end.saturating_sub(first));
        let iova = Iova(BASE + (first * PAGE) as u64);
        let backing = Some((self.mapping.clone(), (first * PAGE) as u64));
        // what overlaps or is empty is refused: also a result
        if self
            .map
            .map(iova, (count * PAGE) as u64, access, backing)
            .is_ok()
        {
            self.show_view();
        }
    }

    /// Unmaps pages.
    pub(crate) fn unmap_pages(&mut self, first: usize, count: usize) {
        let iova = Iova(BASE + (first * PAGE) as u64);
        if self.map.unmap(iova, (count * PAGE) as u64).is_ok() {
            self.show_view();
        }
    }

    /// The memory as the device sees it.
    pub(crate) fn view(&self) -> Arc<DmaView> {
        self.map.view()
    }

    /// Shows the controller the memory.
    pub(crate) fn show_view(&mut self) {
        let (view, lost) = (self.map.view(), self.mappings.lost());
        self.controller().set_view(view, lost);
    }

    /// Whether the medium that holds on lets go.
    pub(crate) fn let_go(&self, let_go: bool) {
        self.held.0.borrow_mut().let_go = let_go;
    }

    /// Turns, a microsecond apart.
    pub(crate) fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.advance(1_000);
            let turn = self.engine.turn(self.now, |_, interrupt| match interrupt {
                Interrupt::Vector(vector) => assert!(vector <= 4),
                Interrupt::Message(message) => assert!(message < 32),
                Interrupt::Pin(_) => {}
            });
            // at most a batch of each queue in a turn: no doorbell value makes one long
            assert!(turn.commands <= 4 * 32, "{}", turn.commands);
        }
    }

    /// Time passes.
    pub(crate) fn advance(&mut self, ns: u64) {
        self.now = Time(self.now.0.saturating_add(ns));
    }

    /// The time.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Whatever went before: a function reset ends within its bounds, and the device wrote only
    /// where the host allowed it.
    pub(crate) fn finish(mut self) {
        self.controller().function_reset();
        for _ in 0..4 {
            self.turns(8);
            self.advance(subsystem::DEADLINE_NS);
        }
        self.turns(8);
        assert!(self.controller().is_quiet(), "a reset hangs");
        self.let_go(true);
        self.turns(4);
        let mut kept = vec![0; (PAGES - READ_ONLY_FROM) * PAGE];
        self.ram.read_into(READ_ONLY_FROM * PAGE, &mut kept);
        assert!(
            kept.iter().all(|&byte| byte == CANARY),
            "a write where none is allowed"
        );
    }
}
