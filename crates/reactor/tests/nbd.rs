//! NBD clients of a running reactor, in the bytes of `doc/proto.md` of the NBD project.

#![expect(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use controller::{ControllerConfig, DoorbellMode, Interface};
use engine::{ControllerSlot, Mode, MoveError, SubsystemSlot};
use media::{Medium, MediumKind, MediumSpec};
use port::ChannelId;
use port::namespace::Namespace;
use reactor::handle::ReactorHandle;
use reactor::message::{Movable, NbdListener, NbdListening, NewController, NewSubsystem, Way};
use reactor::network::NetworkCounts;
use reactor::presence::{HostView, Presence};
use subsystem::{Allocated, SubsystemConfig};

const BOUND: Duration = Duration::from_secs(20);
/// Bytes of each namespace.
const LEN: u64 = 64 << 20;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;

/// A reactor with an entrance of NBD clients.
struct Rig {
    reactor: ReactorHandle,
    subsystem: SubsystemSlot,
    slot: ControllerSlot,
    presence: Arc<Presence>,
    folder: tempfile::TempDir,
    medium: Arc<Medium>,
}

fn namespace(medium: &Medium, nsid: u32, name: Option<&str>) -> Allocated {
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
        name: name.map(str::to_owned),
        shared: true,
        ..Allocated::everywhere(namespace)
    }
}

fn new_controller(
    subsystem: SubsystemSlot,
    listener: NbdListener,
    clients: usize,
    presence: Arc<Presence>,
) -> NewController {
    // The keys that the reactor reads are those of any controller.
    let keys = br#"{"name":"c","listen":"nvme-tcp:127.0.0.1:4420"}"#;
    NewController {
        config: ControllerConfig {
            name: "c".into(),
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
        way: Way::Nbd(NbdListening {
            listener,
            clients,
            tls: None,
        }),
        presence,
        doorbell_messages: Arc::default(),
        keys: Arc::new(api::from_json(keys).unwrap()),
        custody: None,
    }
}

impl Rig {
    /// With a place for so many clients.
    fn new(clients: usize, mode: Mode) -> Self {
        let kind = MediumKind::Ram { size: 4 * LEN };
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        let reactor = ReactorHandle::start(0, None, mode).unwrap();
        reactor.open_channel(medium.clone(), ChannelId(0)).unwrap();
        let mut golden = namespace(&medium, 2, Some("golden"));
        golden.namespace.traits.read_only = true;
        let masked = Allocated {
            hosts: Some(["nqn.2026-11.t:host".to_owned()].into()),
            ..namespace(&medium, 3, Some("masked"))
        };
        let namespaces = vec![
            namespace(&medium, 1, Some("disk")),
            golden,
            masked,
            namespace(&medium, 4, None),
        ];
        let config = SubsystemConfig {
            namespaces,
            ..SubsystemConfig::with_namespaces(8, [])
        };
        let new = NewSubsystem {
            config,
            keeper: None,
        };
        let subsystem = reactor.add_subsystem(new).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let presence = Arc::new(Presence::new(|_, _| ()));
        let way = NbdListener::Unix(listener);
        let new = new_controller(subsystem, way, clients, presence.clone());
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

    fn connect(&self) -> Client<UnixStream> {
        let stream = UnixStream::connect(self.folder.path().join("s")).unwrap();
        stream.set_read_timeout(Some(BOUND)).unwrap();
        stream.set_write_timeout(Some(BOUND)).unwrap();
        Client(stream)
    }

    fn counts(&self) -> NetworkCounts {
        let all = self.reactor.network_counts().unwrap();
        let mut its = all.into_iter().filter(|(slot, _)| *slot == self.slot);
        its.next().unwrap().1
    }

    /// The clients, once there are so many.
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

struct Client<S>(S);

impl<S: Read + Write> Client<S> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn send(&mut self, parts: &[&[u8]]) {
        self.0.write_all(&parts.concat()).unwrap();
    }

    fn greet(&mut self) {
        assert_eq!(self.take(), *b"NBDMAGICIHAVEOPT\0\x03");
        self.send(&[&[0, 0, 0, 3]]);
    }

    /// Chooses an export (`NBD_OPT_EXPORT_NAME`): its size and flags.
    fn choose(&mut self, export: &str) -> (u64, u16) {
        self.greet();
        let len = (export.len() as u32).to_be_bytes();
        self.send(&[b"IHAVEOPT\0\0\0\x01", &len, export.as_bytes()]);
        (
            u64::from_be_bytes(self.take()),
            u16::from_be_bytes(self.take()),
        )
    }

    /// Chooses an export (`NBD_OPT_GO`): the type of the last reply.
    fn go(&mut self, export: &str) -> u32 {
        let (len, all) = (export.len() as u32, export.len() as u32 + 6);
        let (len, all) = (len.to_be_bytes(), all.to_be_bytes());
        let data = [&len, export.as_bytes(), &[0, 0]].concat();
        self.send(&[b"IHAVEOPT\0\0\0\x07", &all, &data]);
        loop {
            let head: [u8; 20] = self.take();
            let mut data = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
            self.0.read_exact(&mut data).unwrap();
            let kind = u32::from_be_bytes(head[12..16].try_into().unwrap());
            // NBD_REP_INFO comes before the last one.
            if kind != 3 {
                return kind;
            }
        }
    }

    /// Names of all exports (`NBD_OPT_LIST`).
    fn list(&mut self) -> Vec<String> {
        self.send(&[b"IHAVEOPT", &[0, 0, 0, 3, 0, 0, 0, 0]]);
        let mut names = Vec::new();
        loop {
            let head: [u8; 20] = self.take();
            assert_eq!(head[..12], *b"\x00\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x03");
            if head[12..16] == [0, 0, 0, 1] {
                return names;
            }
            assert_eq!(head[12..16], [0, 0, 0, 2], "NBD_REP_SERVER");
            let len = u32::from_be_bytes(head[16..].try_into().unwrap());
            let mut data = vec![0; len as usize];
            self.0.read_exact(&mut data).unwrap();
            assert_eq!(data[..4], (len - 4).to_be_bytes());
            names.push(String::from_utf8(data[4..].to_vec()).unwrap());
        }
    }

    fn request(&mut self, command: u16, cookie: u64, (offset, len): (u64, u32), data: &[u8]) {
        self.send(&[
            &0x2560_9513_u32.to_be_bytes(),
            &[0; 2],
            &command.to_be_bytes(),
            &cookie.to_be_bytes(),
            &offset.to_be_bytes(),
            &len.to_be_bytes(),
            data,
        ]);
    }

    /// A simple reply without an error.
    fn reply(&mut self, cookie: u64, len: usize) -> Vec<u8> {
        assert_eq!(self.take(), 0x6744_6698_u32.to_be_bytes());
        assert_eq!(self.take(), [0; 4], "no error");
        assert_eq!(u64::from_be_bytes(self.take()), cookie);
        let mut data = vec![0; len];
        self.0.read_exact(&mut data).unwrap();
        data
    }

    /// Writes these bytes and reads them.
    fn serves(&mut self, offset: u64, byte: u8) {
        let data = vec![byte; 5000];
        let range = (offset, data.len() as u32);
        self.request(WRITE, 7, range, &data);
        self.reply(7, 0);
        self.request(READ, 8, range, &[]);
        assert!(self.reply(8, data.len()) == data);
    }

    /// It is closed, or is soon.
    fn ends(&mut self) {
        let mut rest = [0; 4096];
        loop {
            match self.0.read(&mut rest) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    assert_ne!(error.kind(), ErrorKind::WouldBlock, "it stays open");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_client_reads_what_it_wrote_and_is_listed_until_it_leaves() {
    let rig = Rig::new(4, Mode::Interrupt);
    let mut client = rig.connect();
    let (size, flags) = client.choose("disk");
    // It has flags, and takes flush, FUA, trim, zeroes, several connections, cache and fast zeroes;
    // no more.
    assert_eq!((size, flags), (LEN, 0b1101_0110_1101));
    client.serves(512, 0x5a);
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
    // Before its end and after it, the same is counted.
    let counts = rig.counts();
    assert_eq!((counts.hosts, counts.nbd.requests), (1, 2));
    assert!(counts.nbd.received > 5000 && counts.nbd.sent > 5000);
    client.request(DISCONNECT, 9, (0, 0), &[]);
    client.ends();
    rig.hosts(0);
    until(|| rig.reactor.associations(rig.slot).unwrap().is_empty());
    let after = rig.counts();
    assert_eq!(after.ended, [("closed", 1)].into());
    assert_eq!(after.nbd.sent, counts.nbd.sent);
    // Data moved by its queue counts for the entrance.
    let all = rig.reactor.counts().unwrap();
    let counted = all.iter().find(|(slot, _)| *slot == rig.slot).unwrap();
    assert!(counted.1.health.write_commands >= 1);
}

#[test]
fn clients_are_offered_the_namespaces_that_are_for_every_host() {
    let rig = Rig::new(4, Mode::Interrupt);
    let mut client = rig.connect();
    client.greet();
    assert_eq!(client.list(), ["disk", "golden", "ns4"]);
    let mut reader = rig.connect();
    assert_eq!(reader.choose("golden").1 & 0b10, 0b10, "it is read-only");
    let mut unnamed = rig.connect();
    unnamed.choose("ns4");
    unnamed.serves(0, 3);
    // One that is for certain hosts is not to be had by its name.
    let mut masked = rig.connect();
    masked.greet();
    masked.send(&[b"IHAVEOPT\0\0\0\x01\0\0\0\x06masked"]);
    masked.ends();
}

#[test]
fn namespaces_that_are_attached_later_are_offered_then() {
    let rig = Rig::new(4, Mode::Interrupt);
    let mut first = rig.connect();
    first.choose("disk");
    first.serves(0, 1);
    let entrance = rig.reactor.view(rig.subsystem).unwrap().controllers;
    assert_eq!(entrance.len(), 1);
    let controllers = subsystem::ControllerSet::NONE.with(entrance[0].id);
    let request = |request| {
        let answered = rig.reactor.request(rig.subsystem, request);
        answered.unwrap().unwrap()
    };
    // The reactor looks at its socket no more without an event.
    std::thread::sleep(Duration::from_millis(20));
    request(subsystem::OperatorRequest::Detach {
        nsid: 1,
        controllers,
    });
    // It sends nothing, and would write to what gets the identifier next.
    first.ends();
    until(|| rig.counts().ended.get("changed") == Some(&1));
    let mut late = rig.connect();
    late.greet();
    assert_eq!(late.list(), ["golden", "ns4"]);
    request(subsystem::OperatorRequest::Attach {
        nsid: 1,
        controllers,
    });
    // It was offered what there was when it came.
    assert_eq!(late.list(), ["golden", "ns4"]);
    let mut again = rig.connect();
    again.choose("disk");
    again.serves(0, 2);
}

#[test]
fn one_client_too_many_is_refused_until_another_has_left() {
    let rig = Rig::new(1, Mode::Interrupt);
    let mut first = rig.connect();
    first.choose("disk");
    first.serves(0, 1);
    let mut second = rig.connect();
    second.greet();
    let policy = 0x8000_0002;
    assert_eq!(second.go("disk"), policy);
    let refused = || rig.counts().refused.get("too-many-clients").copied();
    assert_eq!(refused(), Some(1));
    // The old way to choose has no answer for it.
    let mut third = rig.connect();
    third.greet();
    third.send(&[b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk"]);
    third.ends();
    first.serves(0, 2);
    drop(first);
    until(|| rig.reactor.associations(rig.slot).unwrap().is_empty());
    rig.hosts(0);
    assert_eq!(second.go("disk"), 1, "NBD_REP_ACK");
    second.serves(0, 3);
    assert_eq!((refused(), rig.counts().hosts), (Some(2), 2));
}

#[test]
fn a_client_over_tcp_has_its_address() {
    let rig = Rig::new(4, Mode::Interrupt);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at: SocketAddr = listener.local_addr().unwrap();
    let presence = Arc::new(Presence::new(|_, _| ()));
    let way = NbdListener::Tcp(listener);
    let mut new = new_controller(rig.subsystem, way, 1, presence.clone());
    new.config.name = "d".into();
    rig.reactor.add_controller(new).unwrap();
    let stream = TcpStream::connect(at).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let from = stream.local_addr().unwrap();
    let mut client = Client(stream);
    client.choose("disk");
    client.serves(4096, 9);
    until(|| presence.hosts().len() == 1);
    assert_eq!(presence.hosts()[0].address, Some(from));
    assert_eq!(rig.presence.hosts(), []);
}

#[test]
fn a_client_that_reads_late_gets_all() {
    const PIECE: u32 = 32 << 20;
    // The reactor sleeps meanwhile: only the socket wakes it.
    let rig = Rig::new(1, Mode::Interrupt);
    let mut client = rig.connect();
    client.choose("disk");
    client.serves(u64::from(PIECE) - 2500, 0x77);
    client.request(READ, 1, (0, PIECE), &[]);
    client.request(READ, 2, (u64::from(PIECE), PIECE), &[]);
    std::thread::sleep(Duration::from_millis(300));
    for (cookie, written) in [(1, PIECE as usize - 2500..PIECE as usize), (2, 0..2500)] {
        let data = client.reply(cookie, PIECE as usize);
        let ones = data.iter().filter(|byte| **byte == 0x77).count();
        assert_eq!(ones, 2500);
        assert!(data[written].iter().all(|byte| *byte == 0x77));
    }
    client.serves(0, 1);
}

#[test]
fn a_client_that_reads_nothing_lets_the_reactor_sleep() {
    const PIECE: u32 = 128 << 10;
    let rig = Rig::new(1, Mode::Interrupt);
    let mut client = rig.connect();
    client.choose("disk");
    client.serves(0, 1);
    // More than the input takes: some wait in the socket, and their replies for the client.
    client.0.set_nonblocking(true).unwrap();
    let mut head = 0x2560_9513_u32.to_be_bytes().to_vec();
    head.extend([0; 20]);
    head.extend(PIECE.to_be_bytes());
    let mut asked = 0;
    let patience = Instant::now() + Duration::from_millis(500);
    while Instant::now() < patience {
        match client.0.write(&head) {
            Ok(len) => {
                assert_eq!(len, head.len());
                asked += 1;
            }
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    assert!(client.0.write(&head).is_err(), "the socket takes no more");
    let turns = || rig.reactor.counters().turns.get();
    let before = turns();
    std::thread::sleep(Duration::from_millis(300));
    let turned = turns() - before;
    assert!(turned < 1000, "{turned} turns without work");
    client.0.set_nonblocking(false).unwrap();
    for _ in 0..asked {
        client.reply(0, PIECE as usize);
    }
    client.serves(0, 2);
}

#[test]
fn requests_are_served_by_reactors_that_poll_and_that_sleep() {
    for mode in [Mode::Interrupt, Mode::Poll] {
        let rig = Rig::new(2, mode);
        let mut clients = [rig.connect(), rig.connect()];
        for client in &mut clients {
            client.choose("disk");
        }
        for round in 0..20 {
            for (at, client) in (0..).zip(&mut clients) {
                client.serves(at << 20, round);
            }
            // Past the time in which its socket is read in each turn.
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn the_operator_ends_one_client_or_all() {
    let rig = Rig::new(4, Mode::Interrupt);
    let mut clients = [rig.connect(), rig.connect(), rig.connect()];
    for client in &mut clients {
        client.choose("disk");
        client.serves(0, 1);
    }
    let hosts = rig.hosts(3);
    let ended = rig.reactor.disconnect(rig.slot, vec![hosts[1].cntlid]);
    assert_eq!(ended.unwrap(), [hosts[1].cntlid]);
    let [first, second, third] = &mut clients;
    second.ends();
    first.serves(0, 2);
    assert_eq!(rig.hosts(2).len(), 2);
    let mut newcomer = rig.connect();
    newcomer.greet();
    rig.reactor.disconnect_all().unwrap();
    for client in [first, third, &mut newcomer] {
        client.ends();
    }
    assert!(rig.reactor.has_parted().unwrap());
    rig.hosts(0);
    assert_eq!(rig.counts().ended, [("removed", 3)].into());
    // Others wait for the process that takes over, or for this one.
    let mut waiting = rig.connect();
    let pause = Some(Duration::from_millis(100));
    waiting.0.set_read_timeout(pause).unwrap();
    let early = waiting.0.read(&mut [0]).unwrap_err().kind();
    assert_eq!(early, ErrorKind::WouldBlock);
    rig.reactor.set_paused(false).unwrap();
    waiting.0.set_read_timeout(Some(BOUND)).unwrap();
    waiting.choose("disk");
    waiting.serves(0, 3);
}

#[test]
fn an_entrance_is_removed_with_its_clients_and_its_medium_is_free_then() {
    let rig = Rig::new(4, Mode::Interrupt);
    let mut client = rig.connect();
    client.choose("disk");
    client.serves(0, 1);
    // Requests are in flight.
    for cookie in 0..8 {
        client.request(READ, cookie, (0, 1 << 20), &[]);
    }
    let mut newcomer = rig.connect();
    newcomer.greet();
    rig.reactor.remove_controller(rig.slot).unwrap();
    client.ends();
    newcomer.ends();
    assert_eq!(rig.presence.hosts(), []);
    assert!(rig.reactor.end_subsystem(rig.subsystem).unwrap());
    rig.reactor.close_channel(rig.medium.clone()).unwrap();
    let refused = UnixStream::connect(rig.folder.path().join("s"));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn an_entrance_that_is_added_when_clients_have_parted_accepts_none() {
    let rig = Rig::new(4, Mode::Interrupt);
    rig.reactor.disconnect_all().unwrap();
    let listener = UnixListener::bind(rig.folder.path().join("late")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let presence = Arc::new(Presence::new(|_, _| ()));
    let way = NbdListener::Unix(listener);
    let mut new = new_controller(rig.subsystem, way, 1, presence);
    new.config.name = "late".into();
    rig.reactor.add_controller(new).unwrap();
    let stream = UnixStream::connect(rig.folder.path().join("late")).unwrap();
    let pause = Some(Duration::from_millis(100));
    stream.set_read_timeout(pause).unwrap();
    let early = (&stream).read(&mut [0]).unwrap_err().kind();
    assert_eq!(early, ErrorKind::WouldBlock);
    rig.reactor.set_paused(false).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    Client(stream).choose("disk");
}

#[test]
fn the_queue_of_a_client_stays_on_the_reactor_of_its_controller() {
    let rig = Rig::new(1, Mode::Interrupt);
    let second = ReactorHandle::start(1, None, Mode::Interrupt).unwrap();
    second
        .open_channel(rig.medium.clone(), ChannelId(0))
        .unwrap();
    // Also where those of hosts over NVMe/TCP would go elsewhere.
    rig.reactor.spread(rig.slot, &[1]).unwrap();
    let mut client = rig.connect();
    client.choose("disk");
    client.serves(0, 1);
    rig.reactor.spread(rig.slot, &[1]).unwrap();
    let all = rig.reactor.associations(rig.slot).unwrap();
    let [(cntlid, slot)] = all[..] else {
        panic!("there is one client");
    };
    assert_eq!(cntlid, rig.hosts(1)[0].cntlid);
    assert_eq!(rig.reactor.residences(slot).unwrap(), [(1, 0)]);
    let queue = Movable {
        controller: rig.slot,
        slot,
        cqid: 1,
    };
    let moved = rig.reactor.move_queue(queue, 1).unwrap();
    assert_eq!(moved, Err(MoveError::MustStay(1)));
    client.serves(0, 2);
    assert_eq!(rig.reactor.residences(slot).unwrap(), [(1, 0)]);
}
