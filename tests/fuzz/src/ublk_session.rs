//! Requests of a block device that the kernel's driver may make or not, in any number and order,
//! while the medium keeps commands or fails, and the operator changes the namespace.
//!
//! Found would be: a panic, a session that works for ever or sleeps with something to do, a request
//! that is lost, committed twice or fails without a reason, data that are not the disk's, an end
//! that is reported twice or not at all, a controller that does not stop.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use arbitrary::Arbitrary;
use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use engine::{ControllerSlot, SubsystemSlot};
use media::{Medium, MediumKind, MediumSpec, ZoneSpec};
use memory::DoorbellPages;
use port::ChannelId;
use port::namespace::Namespace;
use rustix::io::Errno;
use subsystem::{Allocated, Change, ControllerSet, OperatorRequest, Requester, Step};
use transport::ublk::{End, News, QUEUE_DEPTH, QUEUES, Session, disk};
use ublk::{Descriptor, Event, Operation, RequestFlags};

use crate::gate::{GATED_MAX, Gate, Gated};
use crate::rig::{FuzzChannel, Rig};
use crate::ublk_kernel::{Ask, Done, Double, Kernel, Shared};

const NSID: u32 = 3;
const CHANNEL: ChannelId = ChannelId(2);
/// Bytes of the namespace, of a zone, and of a buffer.
const SIZE: u64 = 1 << 20;
const ZONE: u64 = 64 << 10;
const BUFFER: usize = 16 << 10;
const SECTORS: u64 = SIZE / 512;
const TAGS_MAX: u16 = 24;
/// Most steps of a program, and sessions of it.
const STEPS_MAX: usize = 150;
const SESSIONS_MAX: usize = 8;
/// Polls after which a session has nothing to do.
const POLLS_MAX: usize = 4000;

#[derive(Arbitrary, Debug)]
pub(crate) struct Program {
    large_blocks: bool,
    user_copy: bool,
    is_zoned: bool,
    tags: u8,
    steps: Vec<Action>,
}

#[derive(Arbitrary, Debug)]
enum Action {
    /// A request, nearly right.
    Request {
        kind: u8,
        block: u16,
        blocks: u8,
        flags: u8,
    },
    /// Any request.
    Any {
        operation: u8,
        flags: u32,
        sectors: u32,
        start: u64,
    },
    /// What no driver does.
    Post {
        index: u16,
        operation: u8,
        errno: u8,
    },
    Turns(u8),
    Seconds(u8),
    Closed(bool),
    Release {
        count: u8,
        newest: bool,
    },
    Fails(u8),
    Copies(bool),
    Calls(u8),
    Namespace(u8),
    Stop(u8),
    /// The operator ends the session, and the next one comes.
    Next(u8),
}

/// Operations of the driver, the usual ones more often.
const KINDS: [u8; 16] = [0, 1, 0, 1, 2, 3, 5, 13, 13, 18, 15, 14, 12, 11, 10, 1];

/// A request that the session has.
#[derive(Clone, Copy)]
struct Flight {
    operation: Operation,
    first: u64,
    count: u64,
    /// It is right: it fails only for a reason.
    is_right: bool,
    byte: u8,
}

struct World {
    rig: Rig,
    gate: Gate,
    subsystem: SubsystemSlot,
    program: (bool, bool, bool),
    tags: u16,
    medium: Arc<Medium>,
    lba_shift: u8,
    kernel: Shared,
    session: Option<(Session<Double>, ControllerSlot)>,
    leaving: Option<ControllerSlot>,
    news: Receiver<News>,
    sessions: usize,
    is_armed: bool,
    /// What each sector is filled with, where that is known.
    model: Vec<Option<u8>>,
    flights: Vec<Option<Flight>>,
    byte: u8,
    /// Something was done for which requests may fail.
    may_fail: bool,
}

impl World {
    fn new(program: &Program) -> Self {
        let mut rig = Rig::new(DoorbellMode::Trapped);
        let ram = MediumKind::Ram { size: SIZE };
        let kind = if program.is_zoned {
            let zones = ZoneSpec {
                zone_size: ZONE,
                zone_capacity: ZONE / 4 * 3,
                max_open: 3,
                max_active: 4,
                descriptor_extension: 0,
                append_limit: 0,
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
        let tags = u16::from(program.tags) % TAGS_MAX + 1;
        let mut world = Self {
            rig,
            gate,
            subsystem,
            program: (program.user_copy, program.is_zoned, program.large_blocks),
            tags,
            medium,
            lba_shift: if program.large_blocks { 12 } else { 9 },
            kernel: Rc::new(RefCell::new(Kernel::new(tags, BUFFER, false))),
            session: None,
            leaving: None,
            news: channel_of_none(),
            sessions: 0,
            is_armed: false,
            model: vec![Some(0); SECTORS as usize],
            flights: vec![None; tags.into()],
            byte: 0,
            may_fail: false,
        };
        let created = Allocated {
            len: SIZE,
            ..Allocated::everywhere(world.namespace())
        };
        world.ask(OperatorRequest::Create(Box::new(created)));
        world.rig.turns(8);
        world.begin();
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
            traits: self.medium.traits(),
            restrictions: None,
            set: self.medium.set(),
        }
    }

    fn ask(&mut self, request: OperatorRequest) {
        let subsystem = self.rig.engine.subsystem_mut(self.subsystem).unwrap();
        subsystem.request(1, request);
    }

    /// A session, where the one before is gone.
    fn begin(&mut self) {
        let is_free = self.session.is_none() && self.leaving.is_none();
        if !is_free || self.sessions == SESSIONS_MAX {
            return;
        }
        self.sessions += 1;
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
        let subsystem = self.rig.engine.subsystem_mut(self.subsystem).unwrap();
        let found = subsystem.directory().get(NSID);
        let found = found.and_then(|it| disk(&it.namespace));
        let controller = Controller::new(config, doorbells, subsystem).unwrap();
        let slot = self.rig.engine.add_controller(controller, self.subsystem);
        let now = self.rig.now();
        let controller = self.rig.engine.controller_mut(slot).unwrap();
        let Some(disk) = found else {
            controller.function_reset();
            self.leaving = Some(slot);
            return;
        };
        let (user_copy, is_zoned, _) = self.program;
        let kernel = Kernel::new(self.tags, BUFFER, user_copy || is_zoned);
        self.kernel = Rc::new(RefCell::new(kernel));
        let (sender, news) = channel();
        let device = self.kernel.clone();
        let session = Session::new(device, disk, sender, controller, now).unwrap();
        self.session = Some((session, slot));
        (self.news, self.is_armed) = (news, false);
    }

    fn leave(&mut self, end: &End) {
        let Some((session, slot)) = self.session.take() else {
            return;
        };
        let controller = self.rig.engine.controller_mut(slot).unwrap();
        controller.function_reset();
        session.end(end);
        self.leaving = Some(slot);
        self.collect();
        // Whether they were done is not known.
        for flight in self.flights.iter_mut().filter_map(Option::take) {
            forget(&mut self.model, &flight);
        }
        let ends = self.news.try_iter();
        let ends = ends.filter(|news| matches!(news, News::Ended(_) | News::Stopped));
        let ends = ends.count();
        assert_eq!(ends, 1, "an end is reported once");
    }

    fn collect(&mut self) {
        let done: Vec<Done> = self.kernel.borrow_mut().done.drain(..).collect();
        for done in done {
            let flight = self.flights[usize::from(done.tag)].take();
            self.check(&done, &flight.expect("a request that was given"));
        }
    }

    /// Compares what a request has come to with the model.
    fn check(&mut self, done: &Done, flight: &Flight) {
        let is_zoned = self.program.1;
        if done.result < 0 {
            assert!(done.result > -4096, "no error number: {}", done.result);
            assert_eq!(done.sector, None);
            let has_reason = !flight.is_right || self.may_fail || is_zoned;
            assert!(has_reason, "it fails: {}", done.result);
            // A part of a discard may have been done.
            if flight.is_right {
                forget(&mut self.model, flight);
            }
            return;
        }
        let len = flight.count as usize * 512;
        let sectors = flight.first as usize..(flight.first + flight.count) as usize;
        match flight.operation {
            Operation::READ => {
                assert_eq!(done.result as usize, len);
                for (sector, data) in sectors.zip(done.data.chunks(512)) {
                    let expected = self.model[sector].filter(|_| !is_zoned);
                    let is_same = |byte: u8| data.iter().all(|it| *it == byte);
                    assert!(expected.is_none_or(is_same), "sector {sector}");
                }
            }
            Operation::WRITE => {
                assert_eq!(done.result as usize, len);
                self.model[sectors].fill(Some(flight.byte));
            }
            Operation::WRITE_ZEROES | Operation::DISCARD => self.model[sectors].fill(Some(0)),
            Operation::ZONE_APPEND => {
                let sector = done.sector.expect("an append has a place");
                let zone = ZONE / 512;
                assert_eq!(sector / zone, flight.first / zone, "another zone");
                assert!(sector % zone + flight.count <= zone / 4 * 3);
            }
            Operation::REPORT_ZONES => assert!(done.result as usize >= done.data.len()),
            _ => {}
        }
    }

    /// A request, unless one of the same sectors is in flight.
    fn give(&mut self, mut ask: Ask, is_right: bool) {
        let (first, count) = (ask.start, u64::from(ask.sectors));
        let meets = |flight: &Flight| {
            first < flight.first.saturating_add(flight.count)
                && flight.first < first.saturating_add(count)
        };
        if self.session.is_none() || self.flights.iter().flatten().any(meets) {
            return;
        }
        self.byte = self.byte.wrapping_add(1);
        ask.data.fill(self.byte);
        let flight = Flight {
            operation: ask.operation,
            first,
            count,
            is_right,
            byte: self.byte,
        };
        let given = self.kernel.borrow_mut().give(ask);
        if let Some(tag) = given {
            let before = self.flights[usize::from(tag)].replace(flight);
            assert!(before.is_none(), "a request is lost");
        }
    }

    fn request(&mut self, kind: u8, block: u16, blocks: u8, flags: u8) {
        let operation = Operation(KINDS[usize::from(kind % 16)]);
        let per_block = 1_u64 << (self.lba_shift - 9);
        let all = SECTORS / per_block;
        let first = u64::from(block) % all;
        let most = (BUFFER as u64 / 512 / per_block).min(all - first);
        let count = 1 + u64::from(blocks) % most;
        let zone = first * per_block / (ZONE / 512) * (ZONE / 512);
        let (start, sectors) = (first * per_block, (count * per_block) as u32);
        let data = vec![0; sectors as usize * 512];
        let ask = match operation {
            Operation::READ => Ask::read(start, sectors),
            Operation::WRITE => Ask::write(start, &data),
            Operation::ZONE_APPEND => Ask::append(zone, &data),
            Operation::REPORT_ZONES => Ask::report(start, 1 + u32::from(blocks)),
            Operation::FLUSH | Operation::ZONE_RESET_ALL => Ask::new(operation, 0, 0),
            _ if operation.0 >= 10 => Ask::new(operation, zone, 0),
            _ => Ask::new(operation, start, sectors),
        };
        let ask = if flags & 1 != 0 { ask.fua() } else { ask };
        let ask = if flags & 2 != 0 { ask.nounmap() } else { ask };
        self.give(ask, operation.0 < 10 && !self.program.1);
    }

    /// A poll of everything; whether there was something to do.
    fn poll(&mut self) -> bool {
        let now = self.rig.now();
        let mut worked = self.gate.is_busy();
        let mut ended = None;
        if let Some((session, slot)) = &mut self.session {
            let controller = self.rig.engine.controller_mut(*slot).unwrap();
            let is_due = session.next_deadline().is_some_and(|due| due <= now);
            let is_hot = now.0.is_multiple_of(3) && !is_due && session.is_valid(controller);
            let polled = session.poll(controller, now, is_hot);
            worked |= polled.worked;
            ended = polled.ended;
        }
        if let Some(end) = ended {
            self.leave(&end);
        }
        self.rig.turns(1);
        let now = self.rig.now();
        if let Some((session, slot)) = &mut self.session {
            let controller = self.rig.engine.controller_mut(*slot).unwrap();
            worked |= session.drain(controller, now);
            self.is_armed = !worked && session.arm();
            worked |= !self.is_armed;
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
        self.collect();
        worked
    }

    /// Polls until nothing more happens without time.
    fn settle(&mut self) {
        let mut idle = 0;
        for _ in 0..POLLS_MAX {
            idle = if self.poll() { 0 } else { idle + 1 };
            if idle == 4 {
                return;
            }
        }
        panic!("it works for ever");
    }

    fn namespace_changes(&mut self, how: u8) {
        self.may_fail = true;
        let nsid = NSID;
        let controllers = ControllerSet::ALL;
        match how % 5 {
            0 if !self.program.1 => {
                self.lba_shift ^= 9 ^ 12;
                let lba_shift = self.lba_shift;
                let change = Step::Change(Change::Reformat { nsid, lba_shift });
                let by = Requester::Operator(1);
                let subsystem = self.rig.engine.subsystem_mut(self.subsystem).unwrap();
                let steps = [change, Step::Drain];
                subsystem.begin(subsystem::Operation::new(by, nsid, steps));
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
        match *action {
            Action::Request {
                kind,
                block,
                blocks,
                flags,
            } => self.request(kind, block, blocks, flags),
            Action::Any {
                operation,
                flags,
                sectors,
                start,
            } => {
                let data = vec![0; BUFFER];
                let ask = Ask {
                    operation: Operation(operation),
                    flags: RequestFlags::from(flags),
                    sectors,
                    start,
                    data: data[..BUFFER.min(sectors as usize * 512)].to_vec(),
                    read: 1 << 20,
                };
                // What it has changed is not known.
                if let Some(end) = start.checked_add(sectors.into())
                    && end <= SECTORS
                {
                    self.model[start as usize..end as usize].fill(None);
                }
                self.give(ask, false);
            }
            Action::Post {
                index,
                operation,
                errno,
            } if is_rare(operation) => {
                let event = match errno {
                    0..128 => Event::Request(Descriptor {
                        flags: RequestFlags::new().with_op(operation),
                        sectors: 8,
                        start: 0,
                    }),
                    errno => Event::Failed(Errno::from_raw_os_error(i32::from(errno) - 127)),
                };
                // One to a tag that has none would be a request of which the driver knows nothing.
                let has_none = |at: usize| self.flights.get(at).is_some_and(Option::is_none);
                let is_request = matches!(event, Event::Request(_));
                if !(is_request && has_none(index.into())) {
                    self.kernel.borrow_mut().post(index, event);
                }
            }
            Action::Post { .. } => {}
            Action::Turns(count) => {
                for _ in 0..count % 8 {
                    self.poll();
                }
            }
            Action::Seconds(seconds) => self.rig.advance(u64::from(seconds) * 1_000_000_000),
            Action::Closed(is_closed) => self.gate.set_closed(is_closed),
            Action::Release { count, newest } => self.gate.release(count.into(), newest),
            Action::Fails(count) => {
                self.may_fail |= count % 8 > 0;
                self.gate.set_fails(u32::from(count % 8));
            }
            Action::Copies(fail) => {
                self.may_fail |= fail;
                self.kernel.borrow_mut().fails_copies = fail;
            }
            Action::Calls(chance) if is_rare(chance) => self.kernel.borrow_mut().fails_calls = true,
            Action::Namespace(how) if how < 128 => self.namespace_changes(how),
            Action::Stop(chance) if is_rare(chance) => self.kernel.borrow_mut().stop(),
            Action::Calls(_) | Action::Namespace(_) | Action::Stop(_) => {}
            Action::Next(chance) if !is_rare(chance) && self.session.is_some() => {}
            Action::Next(_) => {
                self.leave(&End::Removed);
                self.begin();
            }
        }
    }

    /// All commands end, and so does the session with its device.
    fn finish(mut self) {
        self.gate.set_closed(false);
        self.gate.set_fails(0);
        for _ in 0..4 {
            self.settle();
            self.rig.advance(200_000_000);
        }
        if let Some((session, _)) = &self.session {
            assert!(!session.has_io_in_flight(), "a command is lost");
            let kernel = self.kernel.borrow();
            let (busy, free) = (kernel.busy(), kernel.free());
            assert_eq!((busy, free), (0, self.tags.into()), "a request is lost");
        }
        self.kernel.borrow_mut().stop();
        for _ in 0..16 {
            self.settle();
            self.rig.advance(2_000_000_000);
        }
        assert!(self.session.is_none(), "a session outlives its device");
        assert!(self.leaving.is_none(), "a controller does not stop");
        self.rig.finish();
    }
}

/// What the sectors of a request have is not known.
fn forget(model: &mut [Option<u8>], flight: &Flight) {
    let end = flight.first.saturating_add(flight.count);
    if end <= SECTORS && flight.operation != Operation::READ {
        model[flight.first as usize..end as usize].fill(None);
    }
}

/// What ends most sessions is chosen seldom.
fn is_rare(chance: u8) -> bool {
    chance < 16
}

fn channel_of_none() -> Receiver<News> {
    channel().1
}

pub(crate) fn run(program: Program) {
    let mut world = World::new(&program);
    world.settle();
    for action in program.steps.iter().take(STEPS_MAX) {
        world.act(action);
        if !matches!(action, Action::Turns(_)) {
            world.poll();
        }
    }
    world.finish();
}
