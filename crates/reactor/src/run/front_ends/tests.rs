//! Front ends at a reactor whose turns the test takes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::{ControllerConfig, Interrupt};
use engine::{EngineId, SubsystemSlot};
use machine::clock::Clock;
use memory::{Bell, EventFd};
use port::namespace::Namespace;
use port::{ChannelId, MediumTraits};
use subsystem::{Allocated, ControllerSet, OperatorRequest, SubsystemConfig};

use super::*;
use crate::answer::answer;
use crate::hosted::link::Cause;
use crate::hosted::target::tests::template;
use crate::message::{Address, Message, NewController, NewSubsystem, VhostListening, Way};
use crate::poller::Source;
use crate::presence::Presence;
use crate::subsystems::Subsystems;

const BOUND: Duration = Duration::from_secs(10);
const ADAPTIVE: Mode = Mode::Adaptive {
    spin_ns: 1_000_000,
    budget_percent: 100,
};
/// `VHOST_USER_GET_FEATURES`, version 1, without a payload.
const GET_FEATURES: [u8; 12] = [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

/// A reactor with a back end, and no thread.
struct Rig {
    reactor: Reactor,
    index: usize,
    address: Address,
    folder: tempfile::TempDir,
    presence: Arc<Presence>,
}

fn namespace(nsid: u32) -> Allocated {
    let namespace = Namespace {
        nsid,
        channel: ChannelId(0),
        start: 0,
        blocks: 8,
        lba_shift: 9,
        nguid: [nsid as u8; 16],
        eui64: [nsid as u8; 8],
        traits: MediumTraits::default(),
        restrictions: None,
        set: None,
    };
    Allocated {
        name: Some(format!("disk{nsid}")),
        shared: true,
        ..Allocated::everywhere(namespace)
    }
}

impl Rig {
    fn new(mode: Mode, namespaces: u32) -> Self {
        let (sender, mailbox) = memory::sync::mailbox::channel(4);
        let (bell, wake) = (Arc::new(Bell::new()), EventFd::new().unwrap());
        let address = Address::new(sender, bell.clone(), wake.clone());
        let clock = Clock::of_process();
        let counters = Arc::default();
        let id = EngineId(0);
        let made = Reactor::new(
            id,
            mode,
            clock,
            mailbox,
            address.clone(),
            bell,
            wake,
            counters,
        );
        let mut reactor = made.unwrap();
        let new = NewSubsystem {
            config: SubsystemConfig {
                namespaces: (1..=namespaces).map(namespace).collect(),
                ..SubsystemConfig::with_namespaces(8, [])
            },
            keeper: None,
        };
        let subsystem = reactor.subsystems.add(&mut reactor.engine, new).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let presence = Arc::new(Presence::new(|_, _| ()));
        let mut rig = Self {
            reactor,
            index: 0,
            address,
            folder,
            presence,
        };
        rig.index = rig.add(subsystem);
        rig
    }

    fn add(&mut self, subsystem: SubsystemSlot) -> usize {
        let listener = UnixListener::bind(self.folder.path().join("s")).unwrap();
        listener.set_nonblocking(true).unwrap();
        // The keys that the reactor reads are those of any controller.
        let keys = br#"{"name":"c","listen":"nvme-tcp:127.0.0.1:4420"}"#;
        let new = NewController {
            config: ControllerConfig {
                max_transfer: 64 << 10,
                ..template()
            },
            subsystem,
            way: Way::VhostUserBlk(VhostListening { listener, rings: 1 }),
            presence: self.presence.clone(),
            doorbell_messages: Arc::default(),
            keys: Arc::new(api::from_json(keys).unwrap()),
            custody: None,
        };
        self.reactor.add_controller(new).unwrap().0
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.folder.path().join("s")).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    }

    /// Polls the listening socket, and no other one.
    fn accept(&mut self) {
        let now = self.reactor.clock.now();
        self.reactor.poll_hosted(self.index, now, Hosted::poll_door);
    }

    fn reactor_now(&self) -> Time {
        self.reactor.clock.now()
    }

    fn turn(&mut self) {
        let now = self.reactor.clock.now();
        let turn = self
            .reactor
            .engine
            .turn(now, |_: ControllerSlot, _: Interrupt| {});
        let posted = turn.worked || turn.completions > 0;
        self.reactor.serve_front_ends(now, posted);
        self.reactor.look_around(Duration::ZERO);
    }

    fn until(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + BOUND;
        while !is_so(self) {
            self.turn();
            assert!(Instant::now() < until, "it does not come to that");
        }
    }

    fn refused(&mut self, name: &str) -> u64 {
        let roster = self.reactor.roster_mut(self.index).unwrap();
        roster.counts().refused.get(name).copied().unwrap_or(0)
    }

    /// Controllers of front ends.
    fn controllers(&self) -> Vec<ControllerSlot> {
        self.reactor.hosts_of_entrance(self.index)
    }

    /// The front end ends, and its controller is not looked at afterwards.
    fn end(&mut self) -> ControllerSlot {
        let [slot] = self.controllers()[..] else {
            panic!("there is one front end");
        };
        let hosted = self.reactor.hosted[slot.0].as_mut().unwrap();
        let controller = self.reactor.engine.controller_mut(slot).unwrap();
        let attached = hosted.association_mut().unwrap();
        attached.end(controller, Cause::Removed, Time(0));
        self.reactor.take_leaving(slot.0);
        slot
    }

    fn attached(&mut self) -> &mut Attached {
        let [slot] = self.controllers()[..] else {
            panic!("there is one front end");
        };
        let hosted = self.reactor.hosted[slot.0].as_mut().unwrap();
        hosted.association_mut().unwrap()
    }
}

/// How many front ends are polled in every turn, and how many now and then.
fn lists(rig: &Rig) -> (usize, usize) {
    let all = &rig.reactor.front_ends;
    (all.active.len(), all.warm.len())
}

fn is_open(mut stream: &UnixStream) -> bool {
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn there_is_one_front_end_and_a_second_one_is_refused() {
    let mut rig = Rig::new(Mode::Interrupt, 1);
    let first = rig.connect();
    rig.accept();
    let [host] = &rig.presence.hosts()[..] else {
        panic!("there is one host");
    };
    let expected = HostView {
        cntlid: host.cntlid,
        nqn: String::new(),
        export: Some("disk1".to_owned()),
        address: None,
        proof: Proof::Unasked,
        is_secured: false,
        io_queues: 1,
        keep_alive_ms: 0,
        connected: host.connected,
    };
    assert_eq!(*host, expected);
    let others = [rig.connect(), rig.connect()];
    rig.accept();
    assert!(is_open(&first) && !others.iter().any(is_open));
    assert_eq!((rig.controllers().len(), rig.refused("taken")), (1, 2));
    // Refused connections are not counted as hosts.
    let counts = rig.reactor.network_counts().remove(0).1;
    assert_eq!((counts.hosts, counts.ended.len()), (1, 0));
    assert_eq!(rig.presence.hosts().len(), 1);
}

#[test]
fn one_that_comes_before_the_reactor_knows_that_the_last_has_left_is_served() {
    let mut rig = Rig::new(Mode::Interrupt, 1);
    let first = rig.connect();
    rig.accept();
    let before = rig.attached().cntlid();
    drop(first);
    let second = rig.connect();
    // Only the listening socket is looked at: that of the first one has not been.
    rig.accept();
    assert!(is_open(&second));
    rig.until(|rig| rig.presence.hosts().len() == 1);
    assert!(is_open(&second) && rig.refused("taken") == 0);
    let counts = rig.reactor.network_counts().remove(0).1;
    assert_eq!((counts.hosts, counts.ended), (2, [("closed", 1)].into()));
    rig.until(|rig| rig.controllers().len() == 1);
    assert_ne!(rig.attached().cntlid(), before);
}

#[test]
fn a_reactor_is_not_woken_for_one_that_waits() {
    let mut rig = Rig::new(Mode::Interrupt, 1);
    let _first = rig.connect();
    rig.accept();
    let slot = rig.end();
    let second = rig.connect();
    let door = Source::Door(rig.index);
    rig.reactor.wait_for_events(Duration::from_millis(20));
    assert!(!rig.reactor.ready.contains(&door), "it would spin");
    rig.reactor.note_transition(slot.0);
    rig.until(|rig| rig.presence.hosts().len() == 1);
    assert!(is_open(&second));
}

#[test]
fn one_that_comes_while_the_controller_of_the_last_is_there_waits() {
    let mut rig = Rig::new(Mode::Interrupt, 1);
    let _first = rig.connect();
    rig.accept();
    let slot = rig.end();
    // The next one was accepted before it had.
    let (kept, second) = UnixStream::pair().unwrap();
    second.set_nonblocking(true).unwrap();
    let back_end = rig.reactor.back_end_mut(rig.index).unwrap();
    back_end.keep(kept.into());
    for _ in 0..3 {
        rig.accept();
        assert_eq!(rig.presence.hosts(), [], "the last one keeps its place");
    }
    assert!(is_open(&second) && rig.refused("taken") == 0);
    rig.reactor.note_transition(slot.0);
    rig.until(|rig| rig.presence.hosts().len() == 1);
    let third = rig.connect();
    rig.until(|_| !is_open(&third));
    assert!(is_open(&second));
    assert_eq!((rig.controllers().len(), rig.refused("taken")), (1, 1));
    // Nor does one that waits outlive the beginning of an upgrade.
    let back_end = rig.reactor.back_end_mut(rig.index).unwrap();
    let (kept, fourth) = UnixStream::pair().unwrap();
    back_end.keep(kept.into());
    rig.reactor.disconnect_all();
    fourth.set_nonblocking(true).unwrap();
    assert!(!is_open(&fourth) && !is_open(&second));
}

#[test]
fn there_is_no_front_end_without_exactly_one_disk() {
    for namespaces in [0, 2] {
        let mut rig = Rig::new(Mode::Interrupt, namespaces);
        let stream = rig.connect();
        rig.accept();
        assert!(!is_open(&stream), "{namespaces} namespaces");
        assert_eq!(rig.refused("no-disk"), 1);
        assert!(rig.controllers().is_empty() && rig.presence.hosts().is_empty());
    }
}

#[test]
fn the_operator_ends_one_and_a_removal_ends_all() {
    let mut rig = Rig::new(Mode::Interrupt, 1);
    let first = rig.connect();
    rig.accept();
    let cntlid = rig.attached().cntlid();
    let others = rig
        .reactor
        .end_associations(rig.index, |it| it.cntlid() == cntlid + 1);
    assert!(others.is_empty() && is_open(&first));
    let named = rig
        .reactor
        .end_associations(rig.index, |it| it.cntlid() == cntlid);
    assert_eq!(named, [cntlid]);
    assert!(!is_open(&first) && rig.presence.hosts().is_empty());
    let second = rig.connect();
    rig.until(|rig| rig.presence.hosts().len() == 1);
    let (answer, answered) = answer();
    rig.reactor
        .remove_controller(ControllerSlot(rig.index), answer);
    assert!(!is_open(&second));
    rig.until(|rig| rig.reactor.hosted.iter().flatten().count() == 0);
    assert_eq!(answered.within(BOUND), Some(()));
    assert!(rig.reactor.front_ends.is_empty() && rig.presence.hosts().is_empty());
    UnixStream::connect(rig.folder.path().join("s")).unwrap_err();
}

#[test]
fn front_ends_wait_for_the_end_of_an_upgrade() {
    let mut rig = Rig::new(Mode::Interrupt, 1);
    let first = rig.connect();
    rig.accept();
    rig.reactor.disconnect_all();
    assert!(!is_open(&first));
    let second = rig.connect();
    for _ in 0..100 {
        rig.turn();
    }
    assert!(is_open(&second) && rig.presence.hosts().is_empty());
    rig.reactor.open_targets();
    rig.until(|rig| rig.presence.hosts().len() == 1);
    let ended = rig.reactor.network_counts().remove(0).1.ended;
    assert_eq!(ended, [("removed", 1)].into());
}

#[test]
fn an_idle_front_end_is_armed_and_costs_no_turn() {
    let mut rig = Rig::new(ADAPTIVE, 1);
    let stream = rig.connect();
    rig.accept();
    assert!(!rig.attached().is_armed());
    assert_eq!(rig.reactor.front_ends.active.len(), 1);
    rig.until(|rig| rig.attached().is_armed());
    assert_eq!(lists(&rig), (0, 0));
    // The front end sends something: it is polled, and its driver does not notify.
    (&stream).write_all(&GET_FEATURES).unwrap();
    rig.until(|rig| !rig.attached().is_armed());
    assert_eq!(lists(&rig), (1, 0));
    rig.until(|rig| rig.attached().is_armed());
    assert_eq!(lists(&rig), (0, 0));
    assert!(is_open(&stream));
}

#[test]
fn a_reactor_that_never_sleeps_arms_none() {
    let mut rig = Rig::new(Mode::Poll, 1);
    let _stream = rig.connect();
    rig.accept();
    let until = rig.reactor.clock.now() + 5 * WARM_NS;
    rig.until(|rig| {
        assert!(!rig.attached().is_armed());
        rig.reactor.clock.now() >= until
    });
    assert_eq!(lists(&rig), (0, 1));
}

#[test]
fn all_are_armed_before_the_reactor_sleeps() {
    let mut rig = Rig::new(Mode::Interrupt, 1);
    let _stream = rig.connect();
    rig.accept();
    rig.until(|rig| {
        let now = rig.reactor_now();
        !rig.attached().is_hot(now)
    });
    for _ in 0..2 {
        assert!(!rig.attached().is_armed());
        rig.reactor.sleep(Duration::ZERO);
        assert!(rig.attached().is_armed());
        // A front end that is not hot is not polled for nothing.
        rig.turn();
        assert!(rig.attached().is_armed());
        assert_eq!(lists(&rig), (0, 0));
        let now = rig.reactor_now();
        rig.reactor
            .poll_hosted(rig.controllers()[0].0, now, Hosted::poll);
    }
}

#[test]
fn an_armed_front_end_ends_when_its_namespace_is_detached() {
    let mut rig = Rig::new(ADAPTIVE, 1);
    let stream = rig.connect();
    rig.accept();
    rig.until(|rig| rig.attached().is_armed());
    // The looks that its beginning has led to are over.
    rig.until(|rig| rig.reactor.front_ends.next_check().is_none());
    let subsystem = rig.reactor.roster_mut(rig.index).unwrap().subsystem();
    let view = Subsystems::view(&mut rig.reactor.engine, subsystem);
    let entrance = view.controllers[0].id;
    let request = OperatorRequest::Detach {
        nsid: 1,
        controllers: ControllerSet::NONE.with(entrance),
    };
    let (answer, answered) = answer();
    let message = Message::Request(subsystem, request, answer);
    rig.address.try_send(message).unwrap();
    rig.until(|rig| rig.presence.hosts().is_empty());
    assert!(!is_open(&stream));
    assert_eq!(answered.within(BOUND), Some(Ok(0)));
    let ended = rig.reactor.network_counts().remove(0).1.ended;
    assert_eq!(ended, [("changed", 1)].into());
}
