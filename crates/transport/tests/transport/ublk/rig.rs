//! The session of a real controller in virtual time, served as a reactor serves it, by the test's
//! own thread.
//!
//! It sleeps when there is nothing to do: then only its descriptor, a deadline or a completion
//! wakes it. A notification that was lost shows as a request that is not done.

use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use driver::bus::Bus as _;
use loopback::InProcess;
use media::{Medium, MediumKind, MediumSpec, ZoneSpec};
use memory::DoorbellPages;
use port::namespace::Namespace;
use port::time::Time;
use port::{ChannelId, Channels};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use subsystem::{
    Change, ControllerSet, Operation, OperatorRequest, Requester, Step, Subsystem, SubsystemConfig,
};
use transport::ublk::{Disk, News, QUEUE_DEPTH, QUEUES, Session, disk};

use super::kernel::{Ask, Done, Double, Kernel, Shared};
use crate::failing::Failing;

/// Bytes of the namespace.
pub(super) const LEN: u64 = 16 << 20;
/// Zones of a zoned one, and bytes of each that can be written.
pub(super) const ZONES: u64 = LEN / ZONE;
pub(super) const ZONE: u64 = 1 << 20;
pub(super) const CAPACITY: u64 = 768 << 10;
/// Turns without work after which it sleeps.
const QUIET: u32 = 4;
/// Turns after which a session works for ever.
const TURNS: usize = 100_000;

/// What the device is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) lba_shift: u8,
    pub(super) tags: u16,
    pub(super) buffer_len: usize,
    pub(super) user_copy: bool,
    pub(super) is_zoned: bool,
    /// Most bytes of an append of a zoned one; 0: those of a command.
    pub(super) append_limit: u32,
    pub(super) max_transfer: u32,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            lba_shift: 9,
            tags: 16,
            buffer_len: 256 << 10,
            user_copy: false,
            is_zoned: false,
            append_limit: 0,
            max_transfer: 256 << 10,
        }
    }
}

impl Shape {
    pub(super) fn zoned(lba_shift: u8) -> Self {
        Self {
            lba_shift,
            user_copy: true,
            is_zoned: true,
            ..Self::default()
        }
    }

    fn kind(&self) -> MediumKind {
        let ram = MediumKind::Ram { size: 2 * LEN };
        if !self.is_zoned {
            return ram;
        }
        let zones = ZoneSpec {
            zone_size: ZONE,
            zone_capacity: CAPACITY,
            max_open: 3,
            max_active: 4,
            descriptor_extension: 0,
            append_limit: self.append_limit,
            random: None,
        };
        let of = Box::new(MediumKind::Ram { size: LEN });
        MediumKind::Zoned { of, zones }
    }
}

impl Done {
    pub(super) fn errno(&self) -> Errno {
        assert!(self.result < 0, "it has not failed: {self:?}");
        Errno::from_raw_os_error(-self.result)
    }
}

/// See the module.
pub(super) struct Rig {
    bus: InProcess<Failing>,
    _entrance: Controller,
    pub(super) session: Option<Session<Double>>,
    pub(super) disk: Disk,
    kernel: Shared,
    news: Receiver<News>,
    pub(super) end: Option<&'static str>,
    turns: u64,
    quiet: u32,
    is_armed: bool,
    /// Polls of the session.
    pub(super) polls: u64,
}

fn config(interface: Interface, shape: &Shape) -> ControllerConfig {
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
        max_transfer: shape.max_transfer,
        doorbells: DoorbellMode::Trapped,
        msix: false,
        intx: false,
        interface,
    }
}

fn begin(shape: &Shape, medium: &Arc<Medium>) -> (InProcess<Failing>, Controller) {
    let mut channels = Channels::new();
    let channel = Failing::new(medium.channel(1024).unwrap());
    assert!(channels.insert(channel).is_ok());
    let namespace = Namespace {
        nsid: 1,
        channel: ChannelId(0),
        start: 0,
        blocks: LEN >> shape.lba_shift,
        lba_shift: shape.lba_shift,
        nguid: [1; 16],
        eui64: [1; 8],
        traits: medium.traits(),
        restrictions: None,
        set: medium.set(),
    };
    let subsystem = SubsystemConfig::with_namespaces(4, [namespace]);
    let mut subsystem = Subsystem::new(subsystem).unwrap();
    let pages =
        |config: &ControllerConfig| Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
    let of_entrance = config(Interface::Pcie, shape);
    let doorbells = pages(&of_entrance);
    let entrance = Controller::new(of_entrance, doorbells, &mut subsystem).unwrap();
    let interface = Interface::Fabrics(Fabrics {
        entrance: entrance.id(),
        in_capsule: 0,
    });
    let of_device = config(interface, shape);
    let doorbells = pages(&of_device);
    let made = Controller::new(of_device, doorbells.clone(), &mut subsystem);
    let bus = InProcess::new(made.unwrap(), subsystem, doorbells, false, channels);
    // Turns without an end must not reach a deadline.
    bus.set_turn_ns(20);
    (bus, entrance)
}

impl Rig {
    /// A device whose tags are fetched, and that sleeps.
    pub(super) fn new(shape: Shape) -> Self {
        let mut rig = Self::try_new(shape, |_| ()).unwrap();
        rig.settle();
        assert_eq!(rig.news(), [News::Fetched]);
        assert_eq!(rig.kernel().free(), usize::from(shape.tags));
        rig
    }

    /// A session that has just begun.
    pub(super) fn try_new(shape: Shape, change: impl FnOnce(&mut Kernel)) -> std::io::Result<Self> {
        let medium = Medium::open(&MediumSpec { kind: shape.kind() }).unwrap();
        let (bus, entrance) = begin(&shape, &medium);
        let mut kernel = Kernel::new(shape.tags, shape.buffer_len, shape.user_copy);
        change(&mut kernel);
        let kernel = Rc::new(RefCell::new(kernel));
        let (sender, news) = channel();
        let found = bus.with_subsystem(|subsystem| {
            let namespaces = subsystem.directory();
            let namespace = &namespaces.get(1).unwrap().namespace;
            disk(namespace).unwrap()
        });
        let (now, device) = (Time(bus.now_ns()), kernel.clone());
        let session = bus
            .with_controller(|it| Session::<Double>::new(device, found.clone(), sender, it, now));
        Ok(Self {
            bus,
            _entrance: entrance,
            session: Some(session?),
            disk: found,
            kernel,
            news,
            end: None,
            turns: 0,
            quiet: 0,
            is_armed: false,
            polls: 0,
        })
    }

    pub(super) fn kernel(&self) -> Ref<'_, Kernel> {
        self.kernel.borrow()
    }

    pub(super) fn kernel_mut(&self) -> RefMut<'_, Kernel> {
        self.kernel.borrow_mut()
    }

    pub(super) fn medium<T>(&self, look: impl FnOnce(&mut Failing) -> T) -> T {
        self.bus
            .with_channels(|channels| look(channels.get_mut(ChannelId(0)).unwrap()))
    }

    /// News since the last look.
    pub(super) fn news(&self) -> Vec<News> {
        self.news.try_iter().collect()
    }

    /// As if the one who looks after the device had gone.
    pub(super) fn forget_news(&mut self) {
        (_, self.news) = channel();
    }

    /// Moves time on.
    pub(super) fn advance(&self, by: Duration) {
        self.bus.advance(by);
    }

    pub(super) fn ask_operator(&self, request: OperatorRequest) {
        self.bus
            .with_subsystem(|subsystem| subsystem.request(1, request));
    }

    pub(super) fn resize(&self, len: u64) {
        self.ask_operator(OperatorRequest::Resize { nsid: 1, len });
    }

    pub(super) fn detach(&self) {
        let controllers = ControllerSet::ALL;
        self.ask_operator(OperatorRequest::Detach {
            nsid: 1,
            controllers,
        });
    }

    /// The namespace gets blocks of another size, as another controller formats it.
    pub(super) fn format(&self, lba_shift: u8) {
        self.bus.with_subsystem(|subsystem| {
            let change = Step::Change(Change::Reformat { nsid: 1, lba_shift });
            let by = Requester::Operator(1);
            subsystem.begin(Operation::new(by, 1, [change, Step::Drain]));
        });
    }

    pub(super) fn with_controller<T>(&self, look: impl FnOnce(&mut Controller) -> T) -> T {
        self.bus.with_controller(look)
    }

    /// Ends the session as the reactor does.
    pub(super) fn end_with(&mut self, end: &transport::ublk::End) {
        self.end = Some(end.name());
        if let Some(session) = self.session.take() {
            self.bus.with_controller(Controller::function_reset);
            session.end(end);
        }
    }

    /// A turn as a reactor gives it; whether something was done.
    pub(super) fn turn(&mut self) -> bool {
        self.turns += 1;
        let Some(session) = &mut self.session else {
            self.bus.turn();
            return false;
        };
        let now = Time(self.bus.now_ns());
        let is_due = session.next_deadline().is_some_and(|due| due <= now);
        let is_valid = self.bus.with_controller(|it| session.is_valid(it));
        let is_called = is_due || !is_valid || is_awake(session);
        let mut worked = false;
        if is_called || !self.is_armed {
            let is_hot = !is_called && !self.turns.is_multiple_of(4);
            let polled = self.bus.with_controller(|it| session.poll(it, now, is_hot));
            (worked, self.is_armed) = (polled.worked, false);
            self.polls += 1;
            if let Some(end) = polled.ended {
                self.end_with(&end);
                return true;
            }
        }
        self.bus.turn();
        let Some(session) = &mut self.session else {
            return worked;
        };
        // What is not at the controller has no completion.
        if session.has_posted(session.has_io_in_flight()) {
            let now = Time(self.bus.now_ns());
            worked |= self.bus.with_controller(|it| session.drain(it, now));
        }
        if worked {
            (self.quiet, self.is_armed) = (0, false);
        } else if !self.is_armed {
            self.quiet += 1;
            self.is_armed = self.quiet >= QUIET && session.arm();
        }
        worked
    }

    /// A poll that no event has led to, of a session that sleeps.
    pub(super) fn wake_up(&mut self) {
        let now = Time(self.bus.now_ns());
        let session = self.session.as_mut().unwrap();
        let polled = self.bus.with_controller(|it| session.poll(it, now, true));
        assert!(polled.ended.is_none());
        (self.quiet, self.is_armed) = (0, false);
    }

    /// Turns until the session sleeps, or has ended.
    pub(super) fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..TURNS {
            let worked = self.turn();
            let sleeps = self
                .session
                .as_ref()
                .is_none_or(|session| self.is_armed && !is_awake(session));
            quiet = if worked || !sleeps { 0 } else { quiet + 1 };
            // A command may take some turns of the controller while the session sleeps.
            if quiet > 8 {
                return;
            }
        }
        panic!("the session works for ever");
    }

    /// Gives a request, for which there is a tag.
    pub(super) fn give(&self, ask: Ask) -> u16 {
        self.kernel_mut().give(ask).unwrap()
    }

    /// Requests that are done, since the last look.
    pub(super) fn done(&self) -> Vec<Done> {
        self.kernel_mut().done.drain(..).collect()
    }

    /// Does a request.
    pub(super) fn run(&mut self, ask: Ask) -> Done {
        let tag = self.give(ask);
        self.settle();
        let mut done = self.done();
        assert_eq!(done.len(), 1, "{done:?} {:?}", self.end);
        let done = done.remove(0);
        assert_eq!(done.tag, tag);
        done
    }

    /// Does a request that succeeds: its data.
    pub(super) fn succeed(&mut self, ask: Ask) -> Vec<u8> {
        let len = match ask.data.len() {
            0 => ask.read,
            len => len,
        };
        let done = self.run(ask);
        assert!(done.result >= len as i32, "{done:?}");
        done.data
    }
}

/// Whether the descriptor is readable.
fn is_awake(session: &Session<Double>) -> bool {
    let wake = session.wake();
    let mut fds = [PollFd::from_borrowed_fd(wake, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
}
