//! Front ends of vhost-user-blk at a running reactor: how they come and go. Their messages are
//! those of QEMU's "Vhost-user Protocol".

#![expect(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::{ControllerConfig, DoorbellMode, Interface};
use engine::{ControllerSlot, Mode, MoveError, SubsystemSlot};
use media::{Medium, MediumKind, MediumSpec};
use port::ChannelId;
use port::namespace::Namespace;
use reactor::handle::ReactorHandle;
use reactor::message::{Movable, NewController, NewSubsystem, VhostListening, Way};
use reactor::network::NetworkCounts;
use reactor::presence::{HostView, Presence};
use subsystem::{Allocated, OperatorRequest, SubsystemConfig};
use tests_vhost_front::{Disk, Options};

const BOUND: Duration = Duration::from_secs(20);
/// Bytes of each namespace.
const LEN: u64 = 1 << 20;
const ADAPTIVE: Mode = Mode::Adaptive {
    spin_ns: 50_000,
    budget_percent: 10,
};

/// A reactor with a back end.
struct Rig {
    reactor: ReactorHandle,
    subsystem: SubsystemSlot,
    slot: ControllerSlot,
    presence: Arc<Presence>,
    folder: tempfile::TempDir,
    medium: Arc<Medium>,
}

fn namespace(medium: &Medium, nsid: u32, name: &str) -> Allocated {
    let namespace = Namespace {
        nsid,
        channel: ChannelId(0),
        start: LEN * u64::from(nsid - 1),
        blocks: LEN >> 9,
        lba_shift: 9,
        nguid: [nsid as u8; 16],
        eui64: [nsid as u8; 8],
        traits: medium.traits(),
        restrictions: None,
        set: None,
    };
    Allocated {
        name: Some(name.to_owned()),
        shared: true,
        ..Allocated::everywhere(namespace)
    }
}

fn new_controller(
    name: &str,
    subsystem: SubsystemSlot,
    path: &Path,
    presence: Arc<Presence>,
) -> NewController {
    let listener = UnixListener::bind(path).unwrap();
    listener.set_nonblocking(true).unwrap();
    // The keys that the reactor reads are those of any controller.
    let keys = br#"{"name":"c","listen":"nvme-tcp:127.0.0.1:4420"}"#;
    NewController {
        config: ControllerConfig {
            name: name.into(),
            vendor_id: 0x4e56,
            device_id: 1,
            serial: "S".into(),
            model_number: "M".into(),
            firmware_revision: "1".into(),
            subnqn: "nqn.2026-11.t:s0".into(),
            queues: 1,
            queue_depth: 32,
            max_transfer: 256 << 10,
            doorbells: DoorbellMode::Trapped,
            msix: false,
            intx: false,
            interface: Interface::Pcie,
        },
        subsystem,
        way: Way::VhostUserBlk(VhostListening { listener, rings: 4 }),
        presence,
        doorbell_messages: Arc::default(),
        keys: Arc::new(api::from_json(keys).unwrap()),
        custody: None,
    }
}

fn add_subsystem(reactor: &ReactorHandle, namespaces: Vec<Allocated>) -> SubsystemSlot {
    let config = SubsystemConfig {
        namespaces,
        ..SubsystemConfig::with_namespaces(8, [])
    };
    let new = NewSubsystem {
        config,
        keeper: None,
    };
    reactor.add_subsystem(new).unwrap()
}

impl Rig {
    fn new(mode: Mode) -> Self {
        let kind = MediumKind::Ram { size: 4 * LEN };
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        let reactor = ReactorHandle::start(0, None, mode).unwrap();
        reactor.open_channel(medium.clone(), ChannelId(0)).unwrap();
        // One that is for certain hosts is no disk of a front end, which has no name.
        let masked = Allocated {
            hosts: Some(["nqn.2026-11.t:host".to_owned()].into()),
            ..namespace(&medium, 2, "masked")
        };
        let namespaces = vec![namespace(&medium, 1, "disk"), masked];
        let subsystem = add_subsystem(&reactor, namespaces);
        let folder = tempfile::tempdir().unwrap();
        let presence = Arc::new(Presence::new(|_, _| ()));
        let path = folder.path().join("s");
        let new = new_controller("c", subsystem, &path, presence.clone());
        let slot = reactor.add_controller(new).unwrap();
        Self {
            reactor,
            subsystem,
            slot,
            presence,
            folder,
            medium,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn connect(&self) -> FrontEnd {
        FrontEnd::new(&self.path())
    }

    fn counts(&self) -> NetworkCounts {
        let all = self.reactor.network_counts().unwrap();
        let mut its = all.into_iter().filter(|(slot, _)| *slot == self.slot);
        its.next().unwrap().1
    }

    /// The front ends, once there are so many.
    fn hosts(&self, count: usize) -> Vec<HostView> {
        until(|| self.presence.hosts().len() == count);
        self.presence.hosts()
    }
}

fn until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + BOUND;
    while !is_so() {
        assert!(Instant::now() < until, "it does not come to that");
        std::thread::sleep(Duration::from_millis(1));
    }
}

struct FrontEnd(UnixStream);

impl FrontEnd {
    fn new(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        Self(stream)
    }

    /// `VHOST_USER_GET_FEATURES`, which has a reply; with `VIRTIO_F_VERSION_1`.
    fn serves(&mut self) {
        let head = [1_u32, 1, 0].map(u32::to_le_bytes).concat();
        self.0.write_all(&head).unwrap();
        let mut reply = [0; 20];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..12], [1_u32, 5, 8].map(u32::to_le_bytes).concat());
        let features = u64::from_le_bytes(reply[12..].try_into().unwrap());
        assert!(features & (1 << 32) != 0, "{features:#x}");
    }

    /// It is closed, or is soon.
    fn ends(&mut self) {
        match self.0.read(&mut [0; 64]) {
            Ok(len) => assert_eq!(len, 0, "it sends something"),
            Err(error) => assert_ne!(error.kind(), ErrorKind::WouldBlock, "it stays open"),
        }
    }

    /// Nothing comes.
    fn waits(&mut self) {
        let pause = Some(Duration::from_millis(100));
        self.0.set_read_timeout(pause).unwrap();
        let early = self.0.read(&mut [0]).unwrap_err().kind();
        assert_eq!(early, ErrorKind::WouldBlock);
        self.0.set_read_timeout(Some(BOUND)).unwrap();
    }
}

#[test]
fn a_front_end_is_listed_until_it_leaves() {
    for mode in [Mode::Interrupt, ADAPTIVE, Mode::Poll] {
        let rig = Rig::new(mode);
        let mut front_end = rig.connect();
        front_end.serves();
        let hosts = rig.hosts(1);
        let expected = HostView {
            cntlid: hosts[0].cntlid,
            nqn: String::new(),
            export: Some("disk".to_owned()),
            address: None,
            proof: transport::nvme_tcp::Proof::Unasked,
            is_secured: false,
            io_queues: 1,
            keep_alive_ms: 0,
            connected: hosts[0].connected,
        };
        assert_eq!(hosts, [expected]);
        // Past the time in which it is polled in each turn, and armed.
        std::thread::sleep(Duration::from_millis(5));
        front_end.serves();
        drop(front_end);
        rig.hosts(0);
        until(|| rig.reactor.associations(rig.slot).unwrap().is_empty());
        let counts = rig.counts();
        assert_eq!((counts.hosts, counts.ended), (1, [("closed", 1)].into()));
    }
}

/// A driver notifies where the reactor may sleep, and not where it polls.
#[test]
fn a_driver_is_served_in_every_mode() {
    for (mode, is_packed) in [
        (Mode::Interrupt, false),
        (Mode::Interrupt, true),
        (ADAPTIVE, false),
        (ADAPTIVE, true),
        (Mode::Poll, false),
        (Mode::Poll, true),
    ] {
        let rig = Rig::new(mode);
        let options = Options {
            is_packed,
            ..Options::default()
        };
        let mut disk = Disk::connect(&rig.path(), options).unwrap();
        for round in 0..40 {
            // Shorter and longer than it is polled in each turn, and than it is polled at all.
            let pause = [0, 20, 200, 1500, 4000][round % 5];
            std::thread::sleep(Duration::from_micros(pause));
            let data = [round as u8; 512];
            disk.write(round as u64, &data).unwrap();
            assert_eq!(disk.read(round as u64, 512).unwrap(), data);
        }
        let kicks = rig.counts().vhost.kicks;
        if mode == Mode::Poll {
            assert!(kicks <= 2, "{kicks} beside the first ones");
        } else {
            assert!(kicks >= 16, "{kicks} after long pauses");
        }
    }
}

#[test]
fn a_second_front_end_is_refused_and_the_next_one_is_not() {
    let rig = Rig::new(Mode::Interrupt);
    let mut first = rig.connect();
    first.serves();
    let mut second = rig.connect();
    second.ends();
    first.serves();
    assert_eq!(rig.counts().refused, [("taken", 1)].into());
    // As QEMU with `reconnect-ms`, which connects again at once.
    for _ in 0..50 {
        drop(first);
        first = rig.connect();
        first.serves();
    }
    let counts = rig.counts();
    assert_eq!((counts.hosts, counts.refused), (51, [("taken", 1)].into()));
    rig.hosts(1);
}

#[test]
fn a_front_end_ends_when_its_disk_is_detached_and_comes_back_with_it() {
    for mode in [Mode::Interrupt, Mode::Poll] {
        let rig = Rig::new(mode);
        let mut first = rig.connect();
        first.serves();
        let entrance = rig.reactor.view(rig.subsystem).unwrap().controllers[0].id;
        let controllers = subsystem::ControllerSet::NONE.with(entrance);
        let request = |request| {
            let answered = rig.reactor.request(rig.subsystem, request);
            answered.unwrap().unwrap()
        };
        // The reactor looks at it no more without an event.
        std::thread::sleep(Duration::from_millis(50));
        request(OperatorRequest::Detach {
            nsid: 1,
            controllers,
        });
        // It sends nothing, and would write to what gets the identifier next.
        first.ends();
        until(|| rig.counts().ended.get("changed") == Some(&1));
        let mut none = rig.connect();
        none.ends();
        assert_eq!(rig.counts().refused, [("no-disk", 1)].into());
        request(OperatorRequest::Attach {
            nsid: 1,
            controllers,
        });
        let mut again = rig.connect();
        again.serves();
        // A second one is not what this one has, and does not end it.
        let other = namespace(&rig.medium, 3, "other");
        request(OperatorRequest::Create(Box::new(other)));
        again.serves();
        drop(again);
        rig.hosts(0);
        rig.connect().ends();
        assert_eq!(rig.counts().refused, [("no-disk", 2)].into());
    }
}

#[test]
fn the_operator_ends_a_front_end() {
    let rig = Rig::new(Mode::Interrupt);
    let mut first = rig.connect();
    first.serves();
    let cntlid = rig.hosts(1)[0].cntlid;
    let ended = rig.reactor.disconnect(rig.slot, vec![cntlid + 1]);
    assert!(ended.unwrap().is_empty());
    first.serves();
    let ended = rig.reactor.disconnect(rig.slot, vec![cntlid]);
    assert_eq!(ended.unwrap(), [cntlid]);
    first.ends();
    let mut second = rig.connect();
    second.serves();
    rig.reactor.disconnect_all().unwrap();
    second.ends();
    assert!(rig.reactor.has_parted().unwrap());
    rig.hosts(0);
    assert_eq!(rig.counts().ended, [("removed", 2)].into());
    // Others wait for the process that takes over, or for this one.
    let mut waiting = rig.connect();
    waiting.waits();
    rig.reactor.set_paused(false).unwrap();
    waiting.serves();
}

#[test]
fn a_back_end_is_removed_with_its_front_end_and_its_medium_is_free_then() {
    let rig = Rig::new(Mode::Interrupt);
    let mut first = rig.connect();
    first.serves();
    rig.reactor.remove_controller(rig.slot).unwrap();
    first.ends();
    assert_eq!(rig.presence.hosts(), []);
    assert!(rig.reactor.end_subsystem(rig.subsystem).unwrap());
    rig.reactor.close_channel(rig.medium.clone()).unwrap();
    let refused = UnixStream::connect(rig.path());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn a_back_end_that_is_added_during_an_upgrade_accepts_none() {
    let rig = Rig::new(Mode::Interrupt);
    rig.reactor.disconnect_all().unwrap();
    let path = rig.folder.path().join("late");
    let presence = Arc::new(Presence::new(|_, _| ()));
    let new = new_controller("late", rig.subsystem, &path, presence);
    rig.reactor.add_controller(new).unwrap();
    let mut front_end = FrontEnd::new(&path);
    front_end.waits();
    rig.reactor.set_paused(false).unwrap();
    front_end.serves();
}

#[test]
fn the_queue_of_a_front_end_stays_on_the_reactor_of_its_controller() {
    let rig = Rig::new(Mode::Interrupt);
    let second = ReactorHandle::start(1, None, Mode::Interrupt).unwrap();
    let channel = second.open_channel(rig.medium.clone(), ChannelId(0));
    channel.unwrap();
    // Also where those of hosts over NVMe/TCP would go elsewhere.
    rig.reactor.spread(rig.slot, &[1]).unwrap();
    let mut front_end = rig.connect();
    front_end.serves();
    let all = rig.reactor.associations(rig.slot).unwrap();
    let [(cntlid, slot)] = all[..] else {
        panic!("there is one front end");
    };
    assert_eq!(cntlid, rig.hosts(1)[0].cntlid);
    until(|| rig.reactor.residences(slot).unwrap() == [(1, 0)]);
    let queue = Movable {
        controller: rig.slot,
        slot,
        cqid: 1,
    };
    let moved = rig.reactor.move_queue(queue, 1).unwrap();
    assert_eq!(moved, Err(MoveError::MustStay(1)));
    front_end.serves();
}

#[test]
fn a_hundred_idle_front_ends_let_the_reactor_sleep() {
    const COUNT: usize = 100;
    let rig = Rig::new(ADAPTIVE);
    let mut front_ends = Vec::new();
    for at in 0..COUNT {
        let path = rig.folder.path().join(at.to_string());
        let presence = Arc::new(Presence::new(|_, _| ()));
        let namespaces = vec![namespace(&rig.medium, 1, "disk")];
        let subsystem = add_subsystem(&rig.reactor, namespaces);
        let new = new_controller("c", subsystem, &path, presence);
        rig.reactor.add_controller(new).unwrap();
        let mut front_end = FrontEnd::new(&path);
        front_end.serves();
        front_ends.push(front_end);
    }
    let awake_ns = || {
        let counters = rig.reactor.counters();
        counters.busy_ns.get() + counters.spun_ns.get()
    };
    std::thread::sleep(Duration::from_millis(100));
    let (before, begun) = (awake_ns(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    let (awake_ns, passed) = (awake_ns() - before, begun.elapsed());
    // At most one per cent of a core.
    assert!(
        u128::from(awake_ns) * 100 <= passed.as_nanos(),
        "{awake_ns} ns"
    );
    for front_end in &mut front_ends {
        front_end.serves();
    }
}
