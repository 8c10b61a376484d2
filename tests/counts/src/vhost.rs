//! A front end of vhost-user-blk and its session in one thread, to count what a request costs the
//! back end from its ring to its ring.
//!
//! The driver's own part is in the count, too: it makes a chain available for each request, and
//! takes it back.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use driver::bus::Bus as _;
use loopback::InProcess;
use media::{Channel, MediumKind};
use memory::{Buffer, DoorbellPages};
use port::time::Time;
use port::{ChannelId, Channels};
use subsystem::{Subsystem, SubsystemConfig};
use tests_vhost_front::ring::{Ring, Segment};
use tests_vhost_front::{Guest, Raw, feature};
use transport::vhost_user::{QUEUE_DEPTH, QUEUES, Session, disk};

use crate::{channel, namespace, null, ram};

const MAX_TRANSFER: u32 = 128 << 10;
const DATA_LEN: u32 = 4096;
const SIZE: u16 = 256;
const GUEST_LEN: usize = 8 << 20;

/// Messages of a front end (vhost-user, "Front-end message types").
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
/// There is no descriptor beside the message.
const NO_FD: u64 = 1 << 8;

/// The medium of a disk, and the kind of its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VhostLoad {
    /// Reads of a null medium over a split ring.
    NullSplit,
    /// Reads of a null medium over a packed ring.
    NullPacked,
    /// Reads of a RAM medium over a split ring.
    RamSplit,
}

/// See the module.
pub struct Vhost {
    bus: InProcess<Channel>,
    /// The entrance itself serves no host.
    _entrance: Controller,
    session: Session,
    _raw: Raw,
    ring: Ring,
    chains: Vec<Chain>,
    /// The chain of each identifier of the ring.
    by_id: Vec<usize>,
    _guest: Guest,
}

/// The memory of one request.
struct Chain {
    status: Buffer,
    _kept: [Buffer; 2],
    segments: [Segment; 3],
}

impl Vhost {
    /// A driver with one queue, ready for batches of at most `batch` requests.
    #[must_use]
    pub fn new(load: VhostLoad, batch: u16) -> Self {
        let medium = match load {
            VhostLoad::RamSplit => ram(),
            VhostLoad::NullSplit | VhostLoad::NullPacked => null(),
        };
        let (bus, entrance) = back_end(medium);
        let is_packed = load == VhostLoad::NullPacked;
        let guest = Guest::new(GUEST_LEN, 1).unwrap();
        let ring = Ring::new(&guest, SIZE, is_packed, false).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let session = bus.with_controller(|controller| {
            let namespace = controller.namespaces().get(1).unwrap();
            let disk = disk(namespace, "serial").unwrap();
            Session::new(theirs.into(), disk, 1, controller, Time(0)).unwrap()
        });
        let raw = Raw::new(ours);
        introduce(&raw, &guest, &ring, is_packed);
        let chains = (0..batch).map(|at| chain(&guest, at.into())).collect();
        let mut vhost = Vhost {
            bus,
            _entrance: entrance,
            session,
            _raw: raw,
            ring,
            chains,
            by_id: vec![0; SIZE.into()],
            _guest: guest,
        };
        // Messages, and the controller's own start.
        for _ in 0..64 {
            vhost.turn(false);
        }
        // Pages are touched, and it knows them.
        vhost.batches(4, batch.into());
        vhost
    }

    /// Has batches of requests done.
    pub fn batches(&mut self, count: u32, size: u32) {
        for _ in 0..count {
            for (at, chain) in self.chains[..size as usize].iter().enumerate() {
                let id = self.ring.add(&chain.segments, false).unwrap();
                self.by_id[usize::from(id)] = at;
            }
            assert!(!self.ring.publish(), "it polls");
            let mut left = size;
            // One turn, or some more where a burst ends before the batch.
            for _ in 0..=size {
                self.turn(true);
                while let Some(used) = self.ring.pop().unwrap() {
                    let chain = &self.chains[self.by_id[usize::from(used.id)]];
                    assert_eq!(chain.status.load_u16(0), 0, "the request failed");
                    left -= 1;
                }
                if left == 0 {
                    break;
                }
            }
            assert_eq!(left, 0, "requests that were not done");
        }
    }

    /// A turn as a reactor gives it.
    fn turn(&mut self, is_hot: bool) {
        let now = Time(self.bus.now_ns());
        let session = &mut self.session;
        let polled = self.bus.with_controller(|it| session.poll(it, now, is_hot));
        assert!(polled.ended.is_none());
        self.bus.turn();
        self.bus.with_controller(|it| session.drain(it, now));
    }
}

/// Says everything that a front end without protocol features says.
fn introduce(raw: &Raw, guest: &Guest, ring: &Ring, is_packed: bool) {
    let say = |request, words: &[u64]| {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let memory = guest.memory().fd();
        let fds = [memory.as_fd()];
        let fds = &fds[..usize::from(request == SET_MEM_TABLE)];
        raw.send(request, 0, &body, fds).unwrap();
    };
    // The index of the only ring is 0, so it is in no word.
    let high = |word: u64| word << 32;
    let packed = if is_packed { feature::RING_PACKED } else { 0 };
    say(SET_OWNER, &[]);
    say(SET_FEATURES, &[feature::VERSION_1 | packed]);
    let region = guest.regions()[0];
    let table = [1, region.guest, region.len, region.user, region.offset];
    say(SET_MEM_TABLE, &table);
    say(SET_VRING_NUM, &[high(SIZE.into())]);
    // Of a packed ring: both wrap counters are 1.
    let base = if is_packed { 0x8000_8000 } else { 0 };
    say(SET_VRING_BASE, &[high(base)]);
    let [table, driver, device] = ring.areas().map(|it| guest.user_address(it).unwrap());
    say(SET_VRING_ADDR, &[0, table, device, driver, 0]);
    say(SET_VRING_CALL, &[NO_FD]);
    say(SET_VRING_KICK, &[NO_FD]);
}

/// A read of the block `at`: header, data and outcome in buffers of their own.
fn chain(guest: &Guest, at: u64) -> Chain {
    let header = guest.alloc(16, 64).unwrap();
    let sector = at * u64::from(DATA_LEN) / 512;
    header.write_from(8, &sector.to_le_bytes());
    let data = guest.alloc(DATA_LEN as usize, 4096).unwrap();
    let status = guest.alloc(2, 64).unwrap();
    let segment = |buffer: &Buffer, len, is_writable| Segment {
        address: guest.guest_address(buffer, 0),
        len,
        is_writable,
    };
    Chain {
        segments: [
            segment(&header, 16, false),
            segment(&data, DATA_LEN, true),
            segment(&status, 1, true),
        ],
        status,
        _kept: [header, data],
    }
}

/// A controller of front ends over a medium, and their entrance.
fn back_end(medium: MediumKind) -> (InProcess<Channel>, Controller) {
    let mut channels = Channels::new();
    assert!(channels.insert(channel(medium)).is_ok());
    let namespaces = [namespace(ChannelId(0))];
    let subsystem = SubsystemConfig::with_namespaces(2, namespaces);
    let mut subsystem = Subsystem::new(subsystem).unwrap();
    let mut controller = |interface| {
        let config = of_controller(interface);
        let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
        (controller, pages)
    };
    let (entrance, _) = controller(Interface::Pcie);
    let (controller, pages) = controller(Interface::Fabrics(Fabrics {
        entrance: entrance.id(),
        in_capsule: 0,
    }));
    let bus = InProcess::new(controller, subsystem, pages, false, channels);
    (bus, entrance)
}

fn of_controller(interface: Interface) -> ControllerConfig {
    ControllerConfig {
        name: "c".into(),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: "S".into(),
        model_number: "M".into(),
        firmware_revision: "1".into(),
        subnqn: "nqn.2026-11.t:s0".into(),
        queues: QUEUES,
        queue_depth: QUEUE_DEPTH,
        max_transfer: MAX_TRANSFER,
        doorbells: DoorbellMode::Trapped,
        msix: false,
        intx: false,
        interface,
    }
}
