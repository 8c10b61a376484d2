//! Test rig: a drive, its [`Keeper`], which works only when called, a channel and a host.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use controller::Controller;
use controller::config::{ControllerConfig, DoorbellMode, Interface};
use driver::{Device, DriverError, Options};
use loopback::InProcess;
use memory::{
    Access, Buffer, Claims, ClientMappings, DmaMap, DmaView, DoorbellPages, Hint, HostMemory, Iova,
    Mapping, Need, Reach, Segment,
};
use port::namespace::Namespace;
use port::ticket::Ticket;
use port::{
    Added, Channel as Port, ChannelId, Channels, Done, DriveReport, Outcome, Request, testing,
};
use subsystem::{Subsystem, SubsystemConfig};

use crate::drive::channel::DriveChannel;
use crate::drive::keeper::Keeper;
use crate::drive::{Drive, Duty, Known, Relay, ShownPage, options};
use crate::{Channel, Medium, MediumKind, MediumSpec};

/// Bytes of the drive's namespace.
pub(super) const SIZE: u64 = 4 << 20;
/// Bytes of a host's memory: a region that is worth a window.
pub(super) const MEMORY: usize = 4 << 20;
/// Where a host's memory is for it.
pub(super) const BASE: u64 = 0x8_0000_0000;
/// Address at which a command may get stuck.
pub(super) const STUCK: u64 = 1 << 20;
/// Turns that nothing takes.
const MANY: u32 = 100_000;

pub(super) type Bus = InProcess<Moody>;

/// A drive's medium whose behaviour the test controls.
pub(super) struct Moody {
    inner: Channel,
    mood: Arc<Mood>,
    held: Vec<Ticket>,
}

/// Controls of the medium.
#[derive(Debug, Default)]
pub(super) struct Mood {
    /// Whether it keeps commands without executing them.
    pub(super) hangs: AtomicBool,
    /// Whether it has no room for requests that begin at [`STUCK`], which its controller then
    /// keeps: they can be aborted.
    pub(super) is_stuck: AtomicBool,
    /// Whether it executes the kept commands.
    pub(super) releases: AtomicBool,
    /// Most bytes that one command has moved.
    pub(super) largest: AtomicU32,
    /// Commands so far.
    pub(super) commands: AtomicU32,
}

impl Port for Moody {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if self.is_full(request) {
            return Added::Full(ticket);
        }
        let bytes: u32 = segments.iter().map(Segment::len).sum();
        self.mood.largest.fetch_max(bytes, Ordering::Relaxed);
        self.mood.commands.fetch_add(1, Ordering::Relaxed);
        if self.mood.hangs.load(Ordering::Relaxed) {
            self.held.push(ticket);
            return Added::Pending;
        }
        self.inner.add(ticket, request, segments, view)
    }

    fn submit(&mut self) {
        self.inner.submit();
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        self.inner.reap(done);
        if self.mood.releases.load(Ordering::Relaxed) {
            let outcome = Outcome::OK;
            let held = self.held.drain(..);
            done.extend(held.map(|ticket| Done { ticket, outcome }));
        }
    }

    fn is_full(&self, request: &Request<'_>) -> bool {
        let is_there = matches!(request, Request::Read { offset, .. } if *offset == STUCK);
        is_there && self.mood.is_stuck.load(Ordering::Relaxed)
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + u32::try_from(self.held.len()).unwrap()
    }
}

impl Drop for Moody {
    fn drop(&mut self) {
        self.held.drain(..).for_each(Ticket::retire);
    }
}

/// Properties of a drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) lba_shift: u8,
    pub(super) max_transfer: u32,
    /// The first byte of its NGUID.
    pub(super) name: u8,
}

impl Default for Shape {
    fn default() -> Self {
        Shape {
            lba_shift: 9,
            max_transfer: 16 << 10,
            name: 1,
        }
    }
}

/// A drive that is enabled.
pub(super) fn device(
    medium: &Arc<Medium>,
    mood: &Arc<Mood>,
    shape: Shape,
    says: &Arc<DriveReport>,
) -> Result<Device<Bus>, DriverError> {
    let mut device = Device::open(bus(medium, mood, shape, says), &rig_options())?;
    device.enable()?;
    Ok(device)
}

pub(super) fn rig_options() -> Options {
    Options {
        memory_len: 32 << 20,
        interrupts: true,
        ..options()
    }
}

/// A drive that nothing has been done to.
pub(super) fn bus(
    medium: &Arc<Medium>,
    mood: &Arc<Mood>,
    shape: Shape,
    says: &Arc<DriveReport>,
) -> Bus {
    let config = ControllerConfig {
        name: "drive".into(),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: "S0001".into(),
        model_number: "a drive".into(),
        firmware_revision: "1".into(),
        subnqn: "nqn.2014-08.org.example:drive".into(),
        queues: 4,
        queue_depth: 64,
        max_transfer: shape.max_transfer,
        doorbells: DoorbellMode::Mapped,
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    };
    let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
    let moody = Moody {
        inner: medium.channel(256).unwrap(),
        mood: mood.clone(),
        held: Vec::new(),
    };
    let mut channels = Channels::new();
    assert_eq!(channels.insert(moody).ok(), Some(ChannelId(0)));
    let namespace = Namespace {
        nsid: 1,
        channel: ChannelId(0),
        start: 0,
        blocks: SIZE >> shape.lba_shift,
        lba_shift: shape.lba_shift,
        nguid: [shape.name; 16],
        eui64: [1; 8],
        traits: medium.traits(),
        restrictions: None,
        set: None,
    };
    let subsystem = SubsystemConfig::with_namespaces(4, [namespace]);
    let mut subsystem = Subsystem::new(subsystem).unwrap();
    let mut controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
    controller.drive_reported(ChannelId(0), Some(says));
    let bus = InProcess::new(controller, subsystem, pages, true, channels);
    // Waits of seconds are over in some ten thousand turns.
    bus.set_turn_ns(100_000);
    bus
}

thread_local! {
    /// Duties of relays in the rigs that this thread creates.
    static DUTIES: RefCell<Vec<Duty>> = const { RefCell::new(Vec::new()) };
}

/// Runs a test with rigs whose completion side is split: in two, and in three.
pub(super) fn split(test: fn()) {
    for duties in [vec![Duty::Entries], vec![Duty::Entries, Duty::Heads]] {
        DUTIES.set(duties);
        test();
    }
    DUTIES.take();
}

/// A drive with one channel.
pub(super) struct Rig {
    pub(super) mood: Arc<Mood>,
    pub(super) drive: Drive<Bus>,
    pub(super) keeper: Keeper<Bus>,
    pub(super) channel: DriveChannel<Bus>,
    pub(super) relays: Vec<Relay<Bus>>,
    pub(super) claims: Claims,
    pub(super) now: u32,
    next: u64,
    done: Vec<Done>,
    pub(super) ended: BTreeMap<u64, Outcome>,
}

impl Rig {
    pub(super) fn new(shape: Shape) -> Rig {
        Rig::saying(shape, DriveReport::default(), Vec::new())
    }

    /// A drive with this health report and these pages for hosts.
    pub(super) fn saying(shape: Shape, says: DriveReport, shown: Vec<ShownPage>) -> Rig {
        let says = Arc::new(says);
        let medium = Rig::medium();
        let mood = Arc::<Mood>::default();
        let first = device(&medium, &mood, shape, &says).unwrap();
        let its = mood.clone();
        let reopen = Box::new(move || device(&medium, &its, shape, &says));
        let opened = Drive::of("test".into(), first, None, reopen).unwrap();
        Rig::with(mood, opened, shown)
    }

    /// The medium of a drive.
    pub(super) fn medium() -> Arc<Medium> {
        let kind = MediumKind::Ram { size: SIZE };
        Medium::open(&MediumSpec { kind }).unwrap()
    }

    /// The drive of another rig, which has ended, for a process that follows. It cannot be reached
    /// the first `failures` times.
    pub(super) fn again(known: &[u8], shape: Shape, failures: u32) -> Rig {
        let medium = Rig::medium();
        let mood = Arc::<Mood>::default();
        let its = mood.clone();
        let mut left = failures;
        let reopen = Box::new(move || {
            if left > 0 {
                left -= 1;
                return Err(DriverError::Gone);
            }
            device(&medium, &its, shape, &Arc::default())
        });
        let known = Known::from_bytes(known).unwrap();
        let opened = Drive::known("test".into(), known, reopen, true);
        Rig::with(mood, opened, Vec::new())
    }

    fn with(mood: Arc<Mood>, opened: (Drive<Bus>, Keeper<Bus>), shown: Vec<ShownPage>) -> Rig {
        let (drive, keeper) = opened;
        let keeper = keeper.showing(shown);
        let relays = DUTIES.with_borrow(|duties| {
            let relays = duties.iter().map(|duty| drive.relay(*duty).unwrap());
            relays.collect()
        });
        let claims = Claims::new();
        let channel = drive.channel(32, claims.claimant().unwrap()).unwrap();
        let mut rig = Rig {
            mood,
            drive,
            keeper,
            channel,
            relays,
            claims,
            now: 0,
            next: 1,
            done: Vec::with_capacity(64),
            ended: BTreeMap::new(),
        };
        rig.tick(1);
        rig
    }

    /// Lets this many ticks pass.
    pub(super) fn tick(&mut self, ticks: u32) {
        for _ in 0..ticks {
            self.now += 1;
            self.keeper.look(self.now);
            if !self.relays.is_empty() {
                self.relays.iter_mut().for_each(Relay::tend);
                self.keeper.look(self.now);
                self.relays.iter_mut().for_each(Relay::tend);
            }
            self.channel.tend();
            self.reap();
        }
    }

    /// Lets this many ticks pass while the keeper is busy.
    pub(super) fn pass(&mut self, ticks: u32) {
        self.now += ticks;
        self.drive.pass(ticks);
    }

    /// Adds a request; `None` where there is no room for it.
    pub(super) fn try_add(
        &mut self,
        host: &Host,
        request: &Request<'_>,
        pieces: &[(u64, u32)],
    ) -> Option<u64> {
        let id = self.next;
        let segments = host.segments(pieces);
        let ticket = Ticket::numbered(id as u32);
        match self.channel.add(ticket, request, &segments, &host.view) {
            Added::Pending => {}
            Added::Done(ticket, outcome) => {
                self.ended
                    .insert(u64::from(testing::number(ticket)), outcome);
            }
            Added::Full(ticket) => {
                ticket.retire();
                return None;
            }
        }
        self.next += 1;
        Some(id)
    }

    pub(super) fn add(&mut self, host: &Host, request: &Request<'_>, pieces: &[(u64, u32)]) -> u64 {
        self.try_add(host, request, pieces).expect("room")
    }

    /// A turn.
    pub(super) fn reap(&mut self) {
        self.channel.submit();
        for relay in &mut self.relays {
            relay.carry();
        }
        self.channel.reap(&mut self.done);
        for Done { ticket, outcome } in self.done.drain(..) {
            let twice = self
                .ended
                .insert(u64::from(testing::number(ticket)), outcome);
            assert!(twice.is_none(), "each ticket comes back once");
        }
    }

    /// Turns until nothing is in flight.
    pub(super) fn drain(&mut self) {
        for _ in 0..MANY {
            if self.channel.in_flight() == 0 {
                return;
            }
            self.reap();
        }
        panic!("a command hangs");
    }

    /// Does one request.
    pub(super) fn run(
        &mut self,
        host: &Host,
        request: &Request<'_>,
        pieces: &[(u64, u32)],
    ) -> Outcome {
        let id = self.add(host, request, pieces);
        self.drain();
        self.ended.remove(&id).expect("it has ended")
    }
}

/// Memory of a host, mapped as a client's is.
pub(super) struct Host {
    pub(super) buffer: Buffer,
    memory: HostMemory,
    mapping: Arc<Mapping>,
    map: DmaMap,
    pub(super) view: Arc<DmaView>,
}

impl Host {
    pub(super) fn new() -> Host {
        let memory = HostMemory::new(MEMORY).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        let buffer = memory.alloc(MEMORY, 4096).unwrap();
        let mut host = Host {
            buffer,
            memory,
            mapping,
            map: DmaMap::new(8),
            view: DmaView::empty(),
        };
        host.map();
        host
    }

    pub(super) fn map(&mut self) {
        let len = self.memory.len() as u64;
        let backing = Some((self.mapping.clone(), 0));
        self.map
            .map(Iova(BASE), len, Access::READ_WRITE, backing)
            .unwrap();
        self.view = self.map.view();
    }

    pub(super) fn unmap(&mut self) {
        self.map.unmap_all();
        self.view = self.map.view();
    }

    /// The regions that the host has unmapped while the drive reached them.
    pub(super) fn reached(&mut self) -> Vec<Arc<Reach>> {
        self.map.take_reached()
    }

    /// Segments for (offset, length) in the memory; `u64::MAX` is where bytes are discarded.
    pub(super) fn segments(&self, pieces: &[(u64, u32)]) -> Vec<Segment<'_>> {
        let mut hint = Hint::default();
        let translate = |&(offset, len): &(u64, u32)| {
            if offset == u64::MAX {
                return Segment::sink(len);
            }
            let at = Iova(BASE + offset);
            let segment = self.view.translate(&mut hint, at, len, Need::DeviceWrites);
            segment.unwrap()
        };
        pieces.iter().map(translate).collect()
    }

    pub(super) fn get(&self, pieces: &[(u64, u32)]) -> Vec<u8> {
        let mut all = Vec::new();
        for &(at, len) in pieces {
            let mut bytes = vec![0; len as usize];
            self.buffer
                .read_into(usize::try_from(at).unwrap(), &mut bytes);
            all.extend(bytes);
        }
        all
    }

    pub(super) fn put(&self, pieces: &[(u64, u32)], bytes: &[u8]) {
        let mut rest = bytes;
        for &(at, len) in pieces {
            let (now, later) = rest.split_at(len as usize);
            self.buffer.write_from(usize::try_from(at).unwrap(), now);
            rest = later;
        }
    }
}
