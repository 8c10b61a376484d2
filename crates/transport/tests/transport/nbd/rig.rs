//! The server's side: a client on an export of a real medium, on the test's thread and in virtual
//! time; and the client's side, in bytes.

use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use driver::bus::Bus as _;
use loopback::InProcess;
use media::{Medium, MediumKind, MediumSpec};
use memory::DoorbellPages;
use nbd::{Command, CommandFlags, Request};
use port::namespace::Namespace;
use port::time::Time;
use port::{ChannelId, Channels};
use subsystem::{
    Change, ControllerSet, Operation, OperatorRequest, Requester, Step, Subsystem, SubsystemConfig,
};
use tls::Session;
use transport::nbd::{Client, Newcomer, Offers, Progress, QUEUE_DEPTH, QUEUES, Tls, offer};

pub(super) use crate::failing::Asked;
use crate::failing::Failing;

/// Bytes of each namespace.
pub(super) const LEN: u64 = 48 << 20;
/// Bytes of one command.
const MAX_TRANSFER: u32 = 256 << 10;

/// How a client negotiates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Simple,
    Structured,
    Extended,
}

/// See the module.
pub(super) struct Rig {
    bus: InProcess<Failing>,
    /// The entrance itself serves no client.
    _entrance: Controller,
    pub(super) newcomer: Option<Newcomer>,
    pub(super) client: Option<Client>,
    pub(super) ends: Vec<&'static str>,
    pub(super) socket: UnixStream,
    /// TLS over the socket.
    pub(super) session: Option<Session>,
    style: Style,
    /// It selects `base:allocation`.
    describes: bool,
    /// Bytes to be sent.
    out: VecDeque<u8>,
    /// Bytes that have come and were not taken.
    pub(super) came: Vec<u8>,
    /// It reads what comes.
    pub(super) reads: bool,
}

fn config(interface: Interface) -> ControllerConfig {
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

/// A reply, with its chunks put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) cookie: u64,
    pub(super) error: u32,
    /// Place in the export and bytes, in the order in which they came.
    pub(super) data: Vec<(u64, Vec<u8>)>,
    /// Length and state of each extent, in order.
    pub(super) extents: Vec<(u64, u64)>,
    is_over: bool,
}

impl Rig {
    /// A client on the namespace with blocks of `1 << lba_shift` bytes.
    pub(super) fn new(lba_shift: u8, style: Style) -> Self {
        Self::with(lba_shift, style, false)
    }

    /// The same, with the metadata context `base:allocation`.
    pub(super) fn described(lba_shift: u8, style: Style) -> Self {
        Self::making(lba_shift, style, false, true)
    }

    /// The same; its export may be one that takes no writes.
    pub(super) fn with(lba_shift: u8, style: Style, read_only: bool) -> Self {
        Self::making(lba_shift, style, read_only, false)
    }

    fn making(lba_shift: u8, style: Style, read_only: bool, describes: bool) -> Self {
        let mut rig = Self::connected(style, read_only, None);
        rig.describes = describes;
        rig.greet();
        rig.choose(&format!("b{}", 1 << lba_shift));
        rig
    }

    /// A connection that is to be greeted, to an entrance that may have TLS.
    pub(super) fn connected(style: Style, read_only: bool, tls: Option<Arc<Tls>>) -> Self {
        let kind = MediumKind::Ram { size: 2 * LEN };
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        let mut channels = Channels::new();
        let channel = Failing::new(medium.channel(64).unwrap());
        assert!(channels.insert(channel).is_ok());
        let namespace = |shift: u8, nsid: u32| Namespace {
            nsid,
            channel: ChannelId(0),
            start: LEN * u64::from(nsid - 1),
            blocks: LEN >> shift,
            lba_shift: shift,
            nguid: [nsid as u8; 16],
            eui64: [nsid as u8; 8],
            traits: medium.traits(),
            restrictions: None,
            set: None,
        };
        let namespaces = [namespace(9, 1), namespace(12, 2)];
        let offers: Offers = namespaces
            .iter()
            .filter_map(|namespace| offer(namespace, &format!("b{}", 1 << namespace.lba_shift)))
            .map(|mut offer| {
                offer.export.flags.set_read_only(read_only);
                offer
            })
            .collect();
        let subsystem = SubsystemConfig::with_namespaces(4, namespaces);
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        let pages = |config: &ControllerConfig| {
            Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap())
        };
        let of_entrance = config(Interface::Pcie);
        let doorbells = pages(&of_entrance);
        let entrance = Controller::new(of_entrance, doorbells, &mut subsystem).unwrap();
        let of_client = config(Interface::Fabrics(Fabrics {
            entrance: entrance.id(),
            in_capsule: 0,
        }));
        let doorbells = pages(&of_client);
        let controller = Controller::new(of_client, doorbells.clone(), &mut subsystem).unwrap();
        let bus = InProcess::new(controller, subsystem, doorbells, false, channels);
        let (theirs, ours) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let (fd, offers, now) = (ours.into(), Arc::new(offers), Time(bus.now_ns()));
        let newcomer = match tls {
            None => Newcomer::new(fd, offers, now),
            Some(tls) => Newcomer::with_tls(fd, offers, tls, None, now),
        };
        Self {
            bus,
            _entrance: entrance,
            newcomer: Some(newcomer.unwrap()),
            client: None,
            ends: Vec::new(),
            socket: theirs,
            session: None,
            style,
            describes: false,
            out: VecDeque::new(),
            came: Vec::new(),
            reads: true,
        }
    }

    /// Is greeted, and answers: as `doc/proto.md` has it, byte for byte.
    pub(super) fn greet(&mut self) {
        self.settle();
        let greeting = self.take(18);
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        assert_eq!(greeting[16..], [0, 3], "fixed newstyle, no zeroes");
        self.send(&[0, 0, 0, 3]);
    }

    /// Negotiates.
    pub(super) fn choose(&mut self, export: &str) {
        let option = match self.style {
            Style::Simple => None,
            Style::Structured => Some(8),
            Style::Extended => Some(11),
        };
        if let Some(option) = option {
            self.option(option, &[]);
            self.settle();
            let reply = self.take(20);
            assert_eq!(reply[12..16], [0, 0, 0, 1], "NBD_REP_ACK");
        }
        let mut data = (export.len() as u32).to_be_bytes().to_vec();
        data.extend_from_slice(export.as_bytes());
        if self.describes {
            // NBD_OPT_SET_META_CONTEXT: one unknown context, and one that is there.
            let mut contexts = data.clone();
            contexts.extend_from_slice(&[0, 0, 0, 2]);
            for context in ["base:other", "base:allocation"] {
                contexts.extend_from_slice(&(context.len() as u32).to_be_bytes());
                contexts.extend_from_slice(context.as_bytes());
            }
            self.option(10, &contexts);
            self.settle();
            let reply = self.take(20 + 4 + 15);
            assert_eq!(reply[12..16], [0, 0, 0, 4], "NBD_REP_META_CONTEXT");
            assert_eq!(reply[20..], *b"\0\0\0\x01base:allocation");
            assert_eq!(self.take(20)[12..16], [0, 0, 0, 1], "NBD_REP_ACK");
        }
        data.extend_from_slice(&[0, 0]);
        // NBD_OPT_GO
        self.option(7, &data);
        self.settle();
        let info = self.take(32);
        assert_eq!(info[12..16], [0, 0, 0, 3], "NBD_REP_INFO");
        assert_eq!(info[16..22], [0, 0, 0, 12, 0, 0], "NBD_INFO_EXPORT");
        assert_eq!(info[22..30], LEN.to_be_bytes());
        let acked = self.take(20);
        assert_eq!(acked[12..16], [0, 0, 0, 1], "NBD_REP_ACK");
        assert!(self.client.is_some() && self.came.is_empty());
    }

    pub(super) fn option(&mut self, option: u32, data: &[u8]) {
        self.send(b"IHAVEOPT");
        self.send(&option.to_be_bytes());
        self.send(&(data.len() as u32).to_be_bytes());
        self.send(data);
    }

    /// Has bytes sent.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
    }

    /// Has a request sent, with its data.
    pub(super) fn ask(
        &mut self,
        command: Command,
        flags: CommandFlags,
        cookie: u64,
        (offset, len): (u64, u64),
        data: &[u8],
    ) {
        let is_extended = self.style == Style::Extended;
        // QEMU 11 leaves the flag out, which a write must have.
        let has_flag = is_extended && command == Command::WRITE && cookie.is_multiple_of(2);
        let flags = flags.with_payload_len(has_flag);
        let request = Request {
            command,
            flags,
            cookie,
            offset,
            len,
        };
        self.send(&request.encode(is_extended).unwrap());
        self.send(data);
    }

    /// A request alone, and its reply.
    pub(super) fn asked(&mut self, command: Command, range: (u64, u64), data: &[u8]) -> Reply {
        self.asked_with(command, CommandFlags::new(), range, data)
    }

    pub(super) fn asked_with(
        &mut self,
        command: Command,
        flags: CommandFlags,
        range: (u64, u64),
        data: &[u8],
    ) -> Reply {
        self.ask(command, flags, 77, range, data);
        let read = if command == Command::READ { range.1 } else { 0 };
        for _ in 0..10_000 {
            self.turn();
            if let Some(reply) = self.reply(|_| read) {
                assert_eq!(reply.cookie, 77);
                return reply;
            }
            if command == Command::BLOCK_STATUS {
                // A thread of the medium answers.
                std::thread::park_timeout(Duration::from_millis(1));
            }
        }
        panic!("no reply to {command:?}: {:?}", self.ends);
    }

    /// The next whole reply of which all has come; `len` gives the bytes that a simple reply to
    /// that cookie has.
    pub(super) fn reply(&mut self, len: impl Fn(u64) -> u64) -> Option<Reply> {
        let be32 = |at: &[u8]| u32::from_be_bytes(at[..4].try_into().unwrap());
        let be64 = |at: &[u8]| u64::from_be_bytes(at[..8].try_into().unwrap());
        if self.style == Style::Simple {
            if self.came.len() < 16 {
                return None;
            }
            assert_eq!(be32(&self.came), 0x6744_6698);
            let (error, cookie) = (be32(&self.came[4..]), be64(&self.came[8..]));
            let len = if error == 0 { len(cookie) as usize } else { 0 };
            if self.came.len() < 16 + len {
                return None;
            }
            self.came.drain(..16);
            let data: Vec<u8> = self.came.drain(..len).collect();
            return Some(Reply {
                cookie,
                error,
                data: if len > 0 { vec![(0, data)] } else { Vec::new() },
                extents: Vec::new(),
                is_over: true,
            });
        }
        let head = if self.style == Style::Extended {
            32
        } else {
            20
        };
        let magic = if head == 32 { 0x6e8a_278c } else { 0x668e_33ef };
        // Chunks of several replies may be mixed: looks for the first reply that is whole.
        let mut replies: Vec<(Reply, Vec<Range<usize>>)> = Vec::new();
        let mut at = 0;
        while self.came.len() >= at + head {
            let bytes = &self.came[at..];
            assert_eq!(be32(bytes), magic);
            let (flags, kind) = (bytes[5], u16::from_be_bytes([bytes[6], bytes[7]]));
            let cookie = be64(&bytes[8..]);
            let payload = if head == 32 {
                be64(&bytes[24..]) as usize
            } else {
                be32(&bytes[16..]) as usize
            };
            let end = at + head + payload;
            if self.came.len() < end {
                return None;
            }
            let payload = &self.came[at + head..end];
            let found = replies.iter().position(|(reply, _)| reply.cookie == cookie);
            let found = found.unwrap_or_else(|| {
                let reply = Reply {
                    cookie,
                    ..Reply::default()
                };
                replies.push((reply, Vec::new()));
                replies.len() - 1
            });
            let (reply, parts) = &mut replies[found];
            parts.push(at..end);
            match kind {
                0 => assert!(payload.is_empty()),
                1 => reply.data.push((be64(payload), payload[8..].to_vec())),
                5 | 6 => {
                    assert_eq!((kind == 6, flags), (head == 32, 1));
                    assert_eq!(be32(payload), 1, "the context");
                    let (fixed, len) = if kind == 6 { (8, 16) } else { (4, 8) };
                    let extents = payload[fixed..].chunks_exact(len);
                    assert!(extents.len() > 0 && extents.remainder().is_empty());
                    if kind == 6 {
                        assert_eq!(be32(&payload[4..]) as usize, extents.len());
                    }
                    reply.extents.extend(extents.map(|extent| match kind {
                        6 => (be64(extent), be64(&extent[8..])),
                        _ => (be32(extent).into(), be32(&extent[4..]).into()),
                    }));
                }
                0x8001 | 0x8002 => reply.error = be32(payload),
                other => panic!("chunk of type {other}"),
            }
            if flags & 1 != 0 {
                reply.is_over = true;
                let (reply, parts) = replies.swap_remove(found);
                for part in parts.into_iter().rev() {
                    self.came.drain(part);
                }
                return Some(reply);
            }
            at = end;
        }
        None
    }

    /// Takes bytes that have come.
    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        assert!(self.came.len() >= len, "{} of {len}", self.came.len());
        self.came.drain(..len).collect()
    }

    pub(super) fn now(&self) -> Time {
        Time(self.bus.now_ns())
    }

    pub(super) fn advance(&self, by: Duration) {
        self.bus.advance(by);
    }

    /// Reads that begin in this range of the medium fail from now on.
    pub(super) fn fail(&self, fails: Option<Range<u64>>) {
        self.bus.with_channels(|channels| {
            channels.get_mut(ChannelId(0)).unwrap().fails = fails;
        });
    }

    /// The next comparisons find a difference.
    pub(super) fn differ(&self, times: u32) {
        self.bus.with_channels(|channels| {
            channels.get_mut(ChannelId(0)).unwrap().differs = times;
        });
    }

    /// The medium keeps commands that change something from now on.
    pub(super) fn hold(&self) {
        self.bus.with_channels(|channels| {
            channels.get_mut(ChannelId(0)).unwrap().holds = true;
        });
    }

    /// Requests to the medium since the last call, except reads.
    pub(super) fn take_asked(&self) -> Vec<Asked> {
        self.bus.with_channels(|channels| {
            std::mem::take(&mut channels.get_mut(ChannelId(0)).unwrap().asked)
        })
    }

    /// Whether each change since the last call was to be stable: see [`Failing`].
    pub(super) fn take_stable(&self) -> Vec<bool> {
        self.bus.with_channels(|channels| {
            std::mem::take(&mut channels.get_mut(ChannelId(0)).unwrap().stable)
        })
    }

    /// A namespace gets blocks of `1 << lba_shift` bytes, as another controller formats it.
    pub(super) fn format(&self, nsid: u32, lba_shift: u8) {
        self.bus.with_subsystem(|subsystem| {
            let change = Step::Change(Change::Reformat { nsid, lba_shift });
            let by = Requester::Operator(1);
            subsystem.begin(Operation::new(by, nsid, [change, Step::Drain]));
        });
    }

    /// Another host marks blocks of a namespace by Write Uncorrectable.
    pub(super) fn mark(&mut self, nsid: u32, slba: u64, blocks: u64) {
        self.bus.with_subsystem(|subsystem| {
            let mark = Step::Change(Change::MarkUncorrectable { nsid, slba, blocks });
            let by = Requester::Operator(1);
            subsystem.begin(Operation::new(by, nsid, [mark, Step::Drain]));
        });
        self.settle();
    }

    /// The operator detaches a namespace.
    pub(super) fn detach(&self, nsid: u32) {
        let controllers = ControllerSet::ALL;
        self.bus.with_subsystem(|subsystem| {
            subsystem.request(1, OperatorRequest::Detach { nsid, controllers });
        });
    }

    pub(super) fn with_controller<T>(&self, look: impl FnOnce(&mut Controller) -> T) -> T {
        self.bus.with_controller(look)
    }

    /// Everything that is due, and a turn of the controller; whether the client worked.
    pub(super) fn turn(&mut self) -> bool {
        self.talk();
        let now = self.now();
        let mut worked = false;
        if let Some(mut newcomer) = self.newcomer.take() {
            match newcomer.poll(now) {
                Progress::Waits => self.newcomer = Some(newcomer),
                Progress::Ended(end) => self.ends.push(end.name()),
                Progress::Moves => match newcomer.go_on(now) {
                    Ok(newcomer) => self.newcomer = Some(newcomer),
                    Err(end) => self.ends.push(end.name()),
                },
                Progress::Chosen => {
                    let arrival = newcomer.arrive();
                    let make = |controller: &mut Controller| Client::new(arrival, controller, now);
                    self.client = Some(self.bus.with_controller(make).unwrap());
                }
            }
        }
        if let Some(client) = &mut self.client {
            let polled = self.bus.with_controller(|it| client.poll(it, now));
            worked = polled.worked;
            if let Some(end) = polled.ended {
                self.ends.push(end.name());
                self.client = None;
                self.bus.with_controller(|it| it.function_reset());
            }
        }
        self.bus.turn();
        let now = self.now();
        if let Some(client) = &mut self.client {
            worked |= self.bus.with_controller(|it| client.drain(it, now));
        }
        self.talk();
        worked
    }

    /// Sends and receives on the client's side.
    fn talk(&mut self) {
        while !self.out.is_empty() {
            let (bytes, _) = self.out.as_slices();
            let sent = match &mut self.session {
                Some(session) => session.write(bytes),
                None => self.socket.write(bytes),
            };
            match sent {
                Ok(sent) => drop(self.out.drain(..sent)),
                Err(_) => break,
            }
        }
        let mut bytes = [0; 65536];
        while self.reads {
            let read = match &mut self.session {
                Some(session) => session.read(&mut bytes),
                None => self.socket.read(&mut bytes),
            };
            match read {
                Ok(len) if len > 0 => self.came.extend_from_slice(&bytes[..len]),
                _ => break,
            }
        }
    }

    /// Turns until nothing happens.
    pub(super) fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..100_000 {
            quiet = if self.turn() { 0 } else { quiet + 1 };
            if quiet > 8 && (self.out.is_empty() || !self.reads) {
                return;
            }
        }
        panic!("it does not come to rest");
    }
}
