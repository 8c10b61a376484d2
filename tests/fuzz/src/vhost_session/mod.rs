//! Front ends of a vhost-user-blk device that send any messages with any descriptors, and whose
//! guest writes anything to its rings, while the medium keeps commands or fails, and the operator
//! changes the namespace.
//!
//! Found would be: a panic, a session that works for ever, a reply that was not asked for or is no
//! reply, a request that is lost in the session, memory of the guest that changes and was not
//! shared, a controller that does not stop.

mod program;

use std::collections::VecDeque;
use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use engine::{ControllerSlot, SubsystemSlot};
use media::{Medium, MediumKind, MediumSpec, ZoneSpec};
use memory::{DoorbellPages, EventFd, HostMemory};
use port::namespace::{CommandSet, Namespace};
use port::{ChannelId, MediumTraits};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use subsystem::{Allocated, Change, ControllerSet, Operation, OperatorRequest, Requester, Step};
use transport::vhost_user::{QUEUE_DEPTH, QUEUES, Session, disk};

pub(crate) use self::program::Program;
use self::program::{Action, Descriptor};
use crate::gate::{GATED_MAX, Gate, Gated};
use crate::rig::{FuzzChannel, Rig};

const NSID: u32 = 3;
const CHANNEL: ChannelId = ChannelId(2);
/// Bytes of the namespace and of the guest's memory, whose last page is never shared.
const SIZE: u64 = 1 << 20;
const MEMORY: usize = 17 * PAGE;
const SHARED: u64 = 16 * PAGE as u64;
const PAGE: usize = 4096;
const CANARY: u8 = 0x5a;
/// Addresses of the memory for the guest and for the front end.
const GUEST: u64 = 1 << 20;
const USER: u64 = 0x7000_0000_0000;
const RINGS: u16 = 4;
/// Entries of a ring, which has three pages: descriptors, the driver's and the device's part.
const ENTRIES: u16 = 32;
/// Most steps of a program, and connections of it.
const STEPS_MAX: usize = 100;
const CONNECTIONS_MAX: usize = 4;
/// Polls after which a session has nothing to do without its front end.
const POLLS_MAX: usize = 4000;

/// Types of requests: reads, writes, flushes, identifiers, ranges, and some that there are not.
const KINDS: [u8; 16] = [0, 1, 0, 1, 4, 8, 11, 13, 0, 1, 1, 4, 13, 11, 5, 255];
/// The same of a device that erases, and of one with zones: appends, reports and changes of zones.
const ERASING_KINDS: [u8; 16] = [0, 1, 0, 14, 4, 8, 11, 13, 0, 1, 14, 4, 13, 11, 14, 15];
const ZONED_KINDS: [u8; 16] = [0, 1, 15, 16, 15, 16, 18, 20, 22, 24, 26, 15, 1, 4, 14, 17];
/// Bits of the features of a program that no feature has.
const WITH_ZONES: u16 = 4;
const WITHOUT_ZONED: u16 = 8;
const WITH_ERASE: u16 = 16;
/// Bytes of a zone.
const ZONE: u64 = 8 << 10;

/// The driver's side of a ring.
#[derive(Clone, Copy, Default)]
struct Side {
    next: u16,
    laps: u16,
    available: u16,
}

struct World {
    rig: Rig,
    gate: Gate,
    subsystem: SubsystemSlot,
    traits: MediumTraits,
    lba_shift: u8,
    is_packed: bool,
    set: Option<Arc<dyn CommandSet>>,
    memory: HostMemory,
    ram: memory::Buffer,
    event: EventFd,
    short: OwnedFd,
    session: Option<(Session, ControllerSlot)>,
    leaving: Option<ControllerSlot>,
    socket: UnixStream,
    /// Bytes that were sent and are not a reply yet.
    sent: usize,
    came: VecDeque<u8>,
    reads: bool,
    connections: usize,
    sides: [Side; RINGS as usize],
}

impl World {
    fn new(program: &Program) -> Self {
        let mut rig = Rig::new(DoorbellMode::Trapped);
        let features = program.starts.map_or(0, |(features, _)| features);
        let ram = MediumKind::Ram { size: SIZE };
        let kind = if features & WITH_ZONES != 0 {
            let zones = ZoneSpec {
                zone_size: ZONE,
                zone_capacity: ZONE / 2,
                max_open: 3,
                max_active: 4,
                descriptor_extension: 0,
                append_limit: 8192,
                random: None,
            };
            let of = Box::new(ram);
            MediumKind::Zoned { of, zones }
        } else {
            ram
        };
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        let gate = Gate::default();
        let channel = Gated::new(medium.channel(64).unwrap(), gate.clone());
        let channel = FuzzChannel::Gated(channel);
        assert!(rig.engine.add_channel(CHANNEL, channel, GATED_MAX).is_ok());
        let (subsystem, _) = rig.engine.subsystems_mut().next().unwrap();
        let memory = HostMemory::new(MEMORY).unwrap();
        let ram = memory.alloc(MEMORY, PAGE).unwrap();
        ram.write_from(MEMORY - PAGE, &[CANARY; PAGE]);
        let short = HostMemory::new(PAGE).unwrap();
        let mut world = Self {
            rig,
            gate,
            subsystem,
            traits: MediumTraits {
                erases: features & WITH_ERASE != 0,
                ..medium.traits()
            },
            set: medium.set(),
            lba_shift: if program.large_blocks { 12 } else { 9 },
            is_packed: program.is_packed,
            memory,
            ram,
            event: EventFd::new().unwrap(),
            short: short.fd().try_clone_to_owned().unwrap(),
            session: None,
            leaving: None,
            socket: UnixStream::pair().unwrap().0,
            sent: 0,
            came: VecDeque::new(),
            reads: true,
            connections: 0,
            sides: [Side::default(); RINGS as usize],
        };
        let created = Allocated::everywhere(world.namespace());
        world.ask(OperatorRequest::Create(Box::new(created)));
        world.rig.turns(8);
        world.connect();
        world
    }

    fn namespace(&self) -> Namespace {
        Namespace {
            nsid: NSID,
            channel: CHANNEL,
            start: 0,
            blocks: SIZE >> self.lba_shift,
            lba_shift: self.lba_shift,
            nguid: [3; 16],
            eui64: [3; 8],
            traits: self.traits,
            restrictions: None,
            set: self.set.clone(),
        }
    }

    fn ask(&mut self, request: OperatorRequest) {
        let subsystem = self.rig.engine.subsystem_mut(self.subsystem).unwrap();
        subsystem.request(1, request);
    }

    /// A front end connects, where the namespace is there and the controller before is gone.
    fn connect(&mut self) {
        let is_free = self.session.is_none() && self.leaving.is_none();
        if !is_free || self.connections == CONNECTIONS_MAX {
            return;
        }
        let entrance = self.rig.controller();
        let config = ControllerConfig {
            queues: QUEUES,
            queue_depth: QUEUE_DEPTH,
            max_transfer: 16 << 10,
            msix: false,
            intx: false,
            interface: Interface::Fabrics(Fabrics {
                entrance: entrance.id(),
                in_capsule: 0,
            }),
            ..entrance.config().clone()
        };
        let doorbells = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let id = entrance.id();
        let subsystem = self.rig.engine.subsystem_mut(self.subsystem).unwrap();
        let mut named = subsystem.named(id).into_iter();
        let found = named
            .find(|(_, it)| it.nsid == NSID)
            .and_then(|(_, it)| disk(&it, "s"));
        let controller = Controller::new(config, doorbells, subsystem).unwrap();
        let slot = self.rig.engine.add_controller(controller, self.subsystem);
        let now = self.rig.now();
        let controller = self.rig.engine.controller_mut(slot).unwrap();
        let Some(disk) = found else {
            controller.function_reset();
            self.leaving = Some(slot);
            return;
        };
        let (theirs, ours) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        self.connections += 1;
        let session = Session::new(ours.into(), disk, RINGS, controller, now).unwrap();
        self.session = Some((session, slot));
        (self.socket, self.sent) = (theirs, 0);
        self.came.clear();
    }

    fn send(&mut self, bytes: &[u8], fds: &[Descriptor]) {
        let socket = self.socket.try_clone().unwrap();
        let (memory, short) = (self.memory.fd(), self.short.as_fd());
        let fds: Vec<_> = fds
            .iter()
            .take(12)
            .map(|fd| match fd {
                Descriptor::Memory => memory,
                Descriptor::Event => self.event.as_fd(),
                Descriptor::Socket => socket.as_fd(),
                Descriptor::Short => short,
            })
            .collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(12))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // One that is closed or full takes no more.
        let sent = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags);
        self.sent += sent.unwrap_or(0);
    }

    fn message(&mut self, request: u32, flags: u32, body: &[u8], fds: &[Descriptor]) {
        let header = [request, flags, body.len() as u32];
        let mut bytes = header.map(u32::to_le_bytes).concat();
        bytes.extend_from_slice(body);
        self.send(&bytes, fds);
    }

    /// A message that is right, of words.
    fn say(&mut self, request: u32, words: &[u64], fds: &[Descriptor]) {
        let body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.message(request, 9, &body, fds);
    }

    /// Takes what was sent, which is replies, and not more of them than messages.
    fn take(&mut self) {
        let mut bytes = [0; 4096];
        while self.reads
            && let Ok(len) = self.socket.read(&mut bytes)
            && len > 0
        {
            self.came.extend(&bytes[..len]);
        }
        while self.came.len() >= 12 {
            let word = |at: usize| {
                let bytes: Vec<u8> = self.came.range(at..at + 4).copied().collect();
                u32::from_le_bytes(bytes.try_into().unwrap())
            };
            let (flags, len) = (word(4), word(8) as usize);
            assert!(flags == 5 && len <= 4096, "no reply: {flags:#x} {len}");
            if self.came.len() < 12 + len {
                return;
            }
            self.came.drain(..12 + len);
            let left = self.sent.checked_sub(12);
            self.sent = left.expect("a reply to nothing");
        }
    }

    /// A poll of everything; whether there was something to do.
    fn poll(&mut self) -> bool {
        self.take();
        let now = self.rig.now();
        let mut worked = self.gate.is_busy();
        if let Some((mut session, slot)) = self.session.take() {
            let controller = self.rig.engine.controller_mut(slot).unwrap();
            let is_due = session.next_deadline().is_some_and(|due| due <= now);
            let is_hot = now.0.is_multiple_of(3) && !is_due && session.is_valid(controller);
            let polled = session.poll(controller, now, is_hot);
            worked |= polled.worked;
            if let Some(end) = polled.ended {
                assert!(!end.name().is_empty());
                self.leave(slot);
            } else {
                let due = session.next_deadline();
                assert!(
                    polled.worked || due.is_none_or(|due| due > now),
                    "it is late"
                );
                self.session = Some((session, slot));
            }
        }
        self.rig.turns(1);
        let now = self.rig.now();
        if let Some((session, slot)) = &mut self.session {
            let controller = self.rig.engine.controller_mut(*slot).unwrap();
            worked |= session.drain(controller, now);
            if !worked {
                worked = !session.arm();
            }
        }
        if let Some(slot) = self.leaving.take() {
            let controller = self.rig.engine.controller_mut(slot).unwrap();
            if controller.is_quiet() {
                self.rig.engine.remove_controller(slot).unwrap();
            } else {
                self.leaving = Some(slot);
            }
        }
        let subsystem = self.rig.engine.subsystem_mut(self.subsystem).unwrap();
        while subsystem.take_operator_answer().is_some() {}
        worked
    }

    fn leave(&mut self, slot: ControllerSlot) {
        let controller = self.rig.engine.controller_mut(slot).unwrap();
        controller.function_reset();
        self.leaving = Some(slot);
    }

    /// Polls until nothing more happens without the front end and without time.
    fn settle(&mut self) -> bool {
        let mut idle = 0;
        for _ in 0..POLLS_MAX {
            idle = if self.poll() { 0 } else { idle + 1 };
            if idle == 4 {
                return true;
            }
        }
        false
    }

    fn setup(&mut self, features: u16, rings: u8) {
        // The protocol, version 1, and any of flush, discard and zeroes, tables, event index.
        let chosen = u64::from(features);
        let mut agreed = 1 << 30 | 1 << 32 | (chosen & 3) << 28;
        if self.set.is_some() {
            let is_zoned = features & WITHOUT_ZONED == 0;
            agreed |= chosen & 0x200 | u64::from(is_zoned) << 17;
        } else {
            agreed |= chosen & 0x6200 | u64::from(self.traits.erases) << 16;
        }
        agreed |= u64::from(self.is_packed) << 34;
        self.say(16, &[0x1_b229], &[]);
        self.say(2, &[agreed], &[]);
        self.say(37, &[0, GUEST, SHARED, USER, 0], &[Descriptor::Memory]);
        for ring in 0..u64::from(rings % 3) + 1 {
            let at = USER + ring * 3 * PAGE as u64;
            let page = PAGE as u64;
            self.say(8, &[ring | u64::from(ENTRIES) << 32], &[]);
            let base = if self.is_packed { 0x8000_8000 } else { 0 };
            self.say(10, &[ring | base << 32], &[]);
            self.say(9, &[ring, at, at + 2 * page, at + page, 0], &[]);
            self.say(13, &[ring], &[Descriptor::Event]);
            self.say(12, &[ring], &[Descriptor::Event]);
            self.say(18, &[ring | 1 << 32], &[]);
            self.sides[ring as usize] = Side::default();
        }
    }

    /// Writes a request's descriptors, and makes it available.
    fn request(
        &mut self,
        ring: u8,
        (kind, sector): (u8, u64),
        pieces: &[(u16, u16)],
        is_indirect: bool,
    ) {
        let ring = usize::from(ring) % 3;
        let base = ring * 3 * PAGE;
        let header = 9 * PAGE;
        let mut bytes = [0; 16];
        let kinds = match (&self.set, self.traits.erases) {
            (Some(_), _) => &ZONED_KINDS,
            (None, true) => &ERASING_KINDS,
            (None, false) => &KINDS,
        };
        let kind = kinds[usize::from(kind % 16)];
        bytes[0] = kind;
        // Most requests are on the disk, and have whole blocks.
        let is_wild = sector >> 56 == 0xff;
        let mut sector = if is_wild { sector } else { sector % 2200 };
        if !is_wild && matches!(kind, 15 | 18..) {
            sector -= sector % (ZONE / 512);
        }
        bytes[8..].copy_from_slice(&sector.to_le_bytes());
        self.ram.write_from(header, &bytes);
        let mut chain = vec![(GUEST + header as u64, 16, 0)];
        let is_written = matches!(kind, 0 | 8 | 16);
        let unit = match kind {
            11 | 13 | 14 => 16,
            16 => 64,
            _ => 512,
        };
        for (at, len) in pieces.iter().take(20) {
            let flags = if is_written { 2u16 } else { 0 };
            let len = if is_wild { *len } else { len % 20 * unit };
            chain.push((GUEST + u64::from(*at), u32::from(len), flags));
        }
        // An append has room for its sector there.
        let outcome = if kind == 15 { 9 } else { 1 };
        chain.push((GUEST + header as u64 + 64, outcome, 2));
        let side = &mut self.sides[ring];
        let is_packed = self.is_packed;
        if is_indirect {
            let mut table = Vec::new();
            for (index, (at, len, flags)) in chain.iter().enumerate() {
                let is_last = index + 1 == chain.len();
                let (next, flags) = match (is_packed, is_last) {
                    (true, _) => (*flags, 0),
                    (false, true) => (0, *flags),
                    (false, false) => (index as u16 + 1, flags | 1),
                };
                let (third, fourth) = if is_packed { (0, next) } else { (flags, next) };
                table.extend(at.to_le_bytes());
                table.extend(len.to_le_bytes());
                table.extend(third.to_le_bytes());
                table.extend(fourth.to_le_bytes());
            }
            self.ram.write_from(10 * PAGE, &table);
            chain = vec![(GUEST + 10 * PAGE as u64, table.len() as u32, 4)];
        }
        let first = side.next;
        let count = chain.len();
        for (index, (at, len, flags)) in chain.into_iter().enumerate() {
            let slot = side.next;
            let goes_on = u16::from(index + 1 < count);
            let [third, fourth] = if is_packed {
                let wrap = side.laps.is_multiple_of(2);
                let marks = if wrap { 1 << 7 } else { 1 << 15 };
                [first, flags | goes_on | marks]
            } else {
                [flags | goes_on, (slot + 1) % ENTRIES]
            };
            let mut bytes = at.to_le_bytes().to_vec();
            bytes.extend(len.to_le_bytes());
            bytes.extend(third.to_le_bytes());
            bytes.extend(fourth.to_le_bytes());
            self.ram.write_from(base + usize::from(slot) * 16, &bytes);
            side.next = (slot + 1) % ENTRIES;
            side.laps += u16::from(side.next == 0);
        }
        if !is_packed {
            let at = base + PAGE + 4 + usize::from(side.available % ENTRIES) * 2;
            self.ram.write_from(at, &first.to_le_bytes());
            self.ahead(ring, 1);
        }
    }

    fn ahead(&mut self, ring: usize, count: u16) {
        let side = &mut self.sides[ring];
        side.available = side.available.wrapping_add(count);
        let at = ring * 3 * PAGE + PAGE + 2;
        self.ram.write_from(at, &side.available.to_le_bytes());
    }

    fn inflight(&mut self, queues: u8, entries: u16, changes: Option<(u16, u8)>) {
        let shape = u64::from(queues % 6) | u64::from(entries % 80) << 16;
        self.say(31, &[0, 0, shape], &[]);
        // A file of the front end's own, in the place of the one that was made.
        if let Some((at, byte)) = changes {
            let at = 11 * PAGE + usize::from(at) % PAGE;
            self.ram.write_from(at, &[byte]);
        }
        let (len, offset) = (4 * PAGE as u64, 11 * PAGE as u64);
        self.say(32, &[len, offset, shape], &[Descriptor::Memory]);
    }

    fn namespace_changes(&mut self, how: u8) {
        let nsid = NSID;
        let controllers = ControllerSet::ALL;
        match how % 5 {
            0 => {
                self.lba_shift ^= 9 ^ 12;
                let lba_shift = self.lba_shift;
                let change = Step::Change(Change::Reformat { nsid, lba_shift });
                let by = Requester::Operator(1);
                let subsystem = self.rig.engine.subsystem_mut(self.subsystem).unwrap();
                subsystem.begin(Operation::new(by, nsid, [change, Step::Drain]));
            }
            1 => self.ask(OperatorRequest::Detach { nsid, controllers }),
            2 => self.ask(OperatorRequest::Attach { nsid, controllers }),
            3 => self.ask(OperatorRequest::SetReadOnly {
                nsid,
                read_only: how & 64 != 0,
            }),
            _ => self.ask(OperatorRequest::Resize {
                nsid,
                len: (1 + u64::from(how % 4)) * (SIZE / 4),
            }),
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Setup { features, rings } => self.setup(*features, *rings),
            Action::Message {
                request,
                flags,
                body,
                fds,
            } => {
                let flags = u32::from(*flags);
                let flags = if flags < 240 { flags & 8 | 1 } else { flags };
                let body = &body[..body.len().min(512)];
                self.message(u32::from(*request % 48), flags, body, fds);
            }
            Action::Number { request, ring, num } => {
                let request = [8, 10, 11, 18][usize::from(request % 4)];
                let ring = u64::from(ring % 5);
                self.say(request, &[ring | u64::from(*num) << 32], &[]);
            }
            Action::Region {
                adds,
                at,
                pages,
                place,
                fd,
            } => {
                let far = if *at == u8::MAX { 1 << 62 } else { 0 };
                let (at, len) = (u64::from(*at) << 12, u64::from(*pages) << 12);
                let offset = u64::from(place % 16) << 12;
                // The last page of the memory is not shared.
                let len = if *fd == Descriptor::Memory {
                    len.min(SHARED - offset)
                } else {
                    len
                };
                let words = [0, far + (GUEST / 2) + at, len, USER / 2 + at, offset];
                let fds: &[Descriptor] = if *adds { &[*fd] } else { &[] };
                self.say(if *adds { 37 } else { 38 }, &words, fds);
            }
            Action::Place { ring, parts } => {
                let [one, two, three] = parts.map(|at| USER + u64::from(at));
                self.say(9, &[u64::from(ring % 5), one, two, three, 0], &[]);
            }
            Action::Inflight {
                queues,
                entries,
                changes,
            } => self.inflight(*queues, *entries, *changes),
            Action::Raw(bytes) => self.send(&bytes[..bytes.len().min(512)], &[]),
            Action::Store { at, bytes } => {
                let at = usize::from(*at).min(MEMORY - PAGE);
                let len = bytes.len().min(MEMORY - PAGE - at);
                self.ram.write_from(at, &bytes[..len]);
            }
            Action::Request {
                ring,
                kind,
                sector,
                pieces,
                is_indirect,
            } => self.request(*ring, (*kind, *sector), pieces, *is_indirect),
            Action::Ahead { ring, count } => self.ahead(usize::from(ring % 3), *count),
            Action::Kick => self.event.signal().unwrap(),
            Action::Turns(count) => {
                for _ in 0..count % 8 {
                    self.poll();
                }
            }
            Action::Seconds(seconds) => self.rig.advance(u64::from(*seconds) * 1_000_000_000),
            Action::Closed(is_closed) => self.gate.set_closed(*is_closed),
            Action::Release { count, newest } => self.gate.release((*count).into(), *newest),
            Action::Fails(count) => self.gate.set_fails(u32::from(count % 8)),
            Action::Namespace(how) => self.namespace_changes(*how),
            Action::Reads(reads) => self.reads = *reads,
            Action::Reconnect => {
                if let Some((_, slot)) = self.session.take() {
                    self.leave(slot);
                }
                self.connect();
            }
        }
    }

    /// All commands end, and so does the session with its connection.
    fn finish(mut self) {
        self.gate.set_closed(false);
        self.gate.set_fails(0);
        self.reads = true;
        // What waits for commands, or works for the front end, comes to an end.
        for _ in 0..4 {
            self.settle();
            self.rig.advance(200_000_000);
        }
        if let Some((session, _)) = &self.session {
            assert!(!session.has_io_in_flight(), "a request is lost");
        }
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
        for _ in 0..16 {
            self.settle();
            self.rig.advance(2_000_000_000);
        }
        assert!(self.session.is_none(), "a session outlives its connection");
        assert!(self.leaving.is_none(), "a controller does not stop");
        let mut kept = [0; PAGE];
        self.ram.read_into(MEMORY - PAGE, &mut kept);
        assert!(kept.iter().all(|byte| *byte == CANARY), "a wild write");
        self.rig.finish();
    }
}

pub(crate) fn run(program: Program) {
    let mut world = World::new(&program);
    if let Some((features, rings)) = program.starts {
        world.setup(features, rings);
        world.settle();
    }
    for action in program.steps.iter().take(STEPS_MAX) {
        world.act(action);
        if !matches!(action, Action::Turns(_)) {
            for _ in 0..3 {
                world.poll();
            }
        }
    }
    world.finish();
}
