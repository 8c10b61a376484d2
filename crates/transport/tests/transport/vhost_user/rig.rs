//! The back end: a session of a real controller on a thread of its own and in virtual time, served
//! as a reactor serves it. The front end is the test's thread.
//!
//! It sleeps when there is nothing to do: then only a descriptor, a deadline, a completion or the
//! test wakes it. A notification that was lost shows as a request that is not done.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use driver::bus::Bus as _;
use loopback::InProcess;
use media::{Medium, MediumKind, MediumSpec, ZoneSpec};
use memory::DoorbellPages;
use port::namespace::Namespace;
use port::time::Time;
use port::{ChannelId, Channels, MediumTraits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use subsystem::{
    Change, ControllerSet, Operation, OperatorRequest, Requester, Step, Subsystem, SubsystemConfig,
};
use tests_vhost_front::{Disk, Options, Raw};
use transport::vhost_user::{Counters, QUEUE_DEPTH, QUEUES, Session, disk};

use crate::failing::Failing;

/// Bytes of the namespace.
pub(super) const LEN: u64 = 48 << 20;
/// How long something may take on this machine.
pub(super) const BOUND: Duration = Duration::from_secs(30);
/// How long the thread waits for events.
const PAUSE: Duration = Duration::from_micros(300);
/// Turns without work after which the drivers are to notify.
const QUIET: u32 = 8;

/// What the device is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) lba_shift: u8,
    pub(super) rings: u16,
    pub(super) max_transfer: u32,
    /// Bytes of a zone, and of its part that can be written, of a device with zones.
    pub(super) zones: Option<[u64; 2]>,
    /// Most bytes of an append; 0: those of a command.
    pub(super) append_limit: u32,
    /// Its medium erases what zeroes are written to.
    pub(super) erases: bool,
}

/// Most open and most active zones of a device with zones.
pub(super) const MAX_OPEN: u32 = 3;
pub(super) const MAX_ACTIVE: u32 = 4;

impl Shape {
    fn kind(&self) -> MediumKind {
        let ram = |size| MediumKind::Ram { size };
        let Some([zone_size, zone_capacity]) = self.zones else {
            return ram(2 * LEN);
        };
        let zones = ZoneSpec {
            zone_size,
            zone_capacity,
            max_open: MAX_OPEN,
            max_active: MAX_ACTIVE,
            descriptor_extension: 0,
            append_limit: self.append_limit,
            random: None,
        };
        let of = Box::new(ram(LEN));
        MediumKind::Zoned { of, zones }
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            lba_shift: 9,
            rings: 64,
            max_transfer: 256 << 10,
            zones: None,
            append_limit: 0,
            erases: false,
        }
    }
}

type Job = Box<dyn FnOnce(&mut Server) + Send>;

/// See the module.
pub(super) struct Rig {
    folder: tempfile::TempDir,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Rig {
    pub(super) fn new(shape: Shape) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("s")).unwrap();
        let (jobs, receiver) = channel();
        let thread = std::thread::spawn(move || Server::new(shape, listener).serve(&receiver));
        Self {
            folder,
            jobs: Some(jobs),
            thread: Some(thread),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    /// Does something on the back end's side.
    pub(super) fn with<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Server) -> T + Send + 'static,
    ) -> T {
        let (sender, receiver) = channel();
        let job = Box::new(move |server: &mut Server| drop(sender.send(job(server))));
        self.jobs.as_ref().unwrap().send(job).unwrap();
        receiver.recv().unwrap()
    }

    /// Waits until something is so on the back end's side.
    pub(super) fn until(&self, is_so: impl Fn(&mut Server) -> bool + Send + Copy + 'static) {
        let deadline = Instant::now() + BOUND;
        while !self.with(is_so) {
            assert!(Instant::now() < deadline, "it does not come to that");
            std::thread::sleep(PAUSE);
        }
    }

    pub(super) fn connect(&self, options: Options) -> Disk {
        Disk::connect(&self.path(), options).unwrap()
    }

    /// A connection for messages as bytes.
    pub(super) fn raw(&self) -> Raw {
        Raw::new(UnixStream::connect(self.path()).unwrap())
    }

    /// Why the last front end ended, which it does.
    pub(super) fn end(&self) -> &'static str {
        self.until(|server| !server.ends.is_empty());
        self.with(|server| server.ends.remove(0))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.jobs = None;
        // One that blocks does not end.
        if !std::thread::panicking() {
            self.thread.take().unwrap().join().unwrap();
        }
    }
}

/// The back end's side.
pub(super) struct Server {
    shape: Shape,
    medium: Arc<Medium>,
    listener: UnixListener,
    bus: InProcess<Failing>,
    _entrance: Controller,
    pub(super) session: Option<Session>,
    pub(super) ends: Vec<&'static str>,
    /// Polls of sessions.
    pub(super) polls: u64,
    turns: u64,
    quiet: u32,
    is_armed: bool,
}

fn config(interface: Interface, shape: Shape) -> ControllerConfig {
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

/// A controller over a medium, as a process begins with it.
fn begin(shape: Shape, medium: &Arc<Medium>) -> (InProcess<Failing>, Controller) {
    let mut channels = Channels::new();
    let channel = Failing::new(medium.channel(64).unwrap());
    assert!(channels.insert(channel).is_ok());
    let namespace = Namespace {
        nsid: 1,
        channel: ChannelId(0),
        start: 0,
        blocks: LEN >> shape.lba_shift,
        lba_shift: shape.lba_shift,
        nguid: [1; 16],
        eui64: [1; 8],
        traits: MediumTraits {
            erases: shape.erases,
            ..medium.traits()
        },
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
    let of_front_end = config(interface, shape);
    let doorbells = pages(&of_front_end);
    let made = Controller::new(of_front_end, doorbells.clone(), &mut subsystem);
    let bus = InProcess::new(made.unwrap(), subsystem, doorbells, false, channels);
    // Turns without an end must not reach a deadline.
    bus.set_turn_ns(20);
    (bus, entrance)
}

impl Server {
    fn new(shape: Shape, listener: UnixListener) -> Self {
        listener.set_nonblocking(true).unwrap();
        let kind = shape.kind();
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        let (bus, entrance) = begin(shape, &medium);
        Self {
            shape,
            medium,
            listener,
            bus,
            _entrance: entrance,
            session: None,
            ends: Vec::new(),
            polls: 0,
            turns: 0,
            quiet: 0,
            is_armed: false,
        }
    }

    fn serve(mut self, jobs: &Receiver<Job>) {
        loop {
            match jobs.try_recv() {
                Ok(job) => job(&mut self),
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) => {}
            }
            if !self.turn() && (self.is_armed || self.session.is_none()) {
                self.pause();
            }
        }
    }

    pub(super) fn now(&self) -> Time {
        Time(self.bus.now_ns())
    }

    /// Moves time on.
    pub(super) fn advance(&self, by: Duration) {
        self.bus.advance(by);
    }

    /// Drops the session, its controller and the commands that the medium keeps, as the death of
    /// the process does. What the medium has stays.
    pub(super) fn die(&mut self) {
        self.session = None;
        // A medium with zones has one channel.
        let kind = MediumKind::Ram { size: 4096 };
        let other = Medium::open(&MediumSpec { kind }).unwrap();
        let other = Failing::new(other.channel(1).unwrap());
        self.medium(|it| drop(std::mem::replace(it, other)));
        (self.bus, self._entrance) = begin(self.shape, &self.medium);
    }

    pub(super) fn medium<T>(&mut self, look: impl FnOnce(&mut Failing) -> T) -> T {
        self.bus
            .with_channels(|channels| look(channels.get_mut(ChannelId(0)).unwrap()))
    }

    /// Whether commands are at the controller.
    pub(super) fn is_busy(&self) -> bool {
        self.session.as_ref().is_some_and(Session::has_io_in_flight)
    }

    pub(super) fn counters(&self) -> Counters {
        self.session.as_ref().unwrap().counters()
    }

    pub(super) fn resize(&self, len: u64) {
        self.ask(OperatorRequest::Resize { nsid: 1, len });
    }

    pub(super) fn set_read_only(&self, read_only: bool) {
        self.ask(OperatorRequest::SetReadOnly { nsid: 1, read_only });
    }

    pub(super) fn detach(&self) {
        let controllers = ControllerSet::ALL;
        self.ask(OperatorRequest::Detach {
            nsid: 1,
            controllers,
        });
    }

    fn ask(&self, request: OperatorRequest) {
        self.bus
            .with_subsystem(|subsystem| subsystem.request(1, request));
    }

    /// The namespace gets blocks of another size, as another controller formats it.
    pub(super) fn format(&self, lba_shift: u8) {
        self.bus.with_subsystem(|subsystem| {
            let change = Step::Change(Change::Reformat { nsid: 1, lba_shift });
            subsystem.begin(Operation::new(
                Requester::Operator(1),
                1,
                [change, Step::Drain],
            ));
        });
    }

    fn accept(&mut self) -> bool {
        let Ok((stream, _)) = self.listener.accept() else {
            return false;
        };
        if self.turns > 0 {
            self.die();
        }
        let (rings, now) = (self.shape.rings, self.now());
        let disk = self.bus.with_subsystem(|subsystem| {
            let namespace = &subsystem.directory().get(1).unwrap().namespace;
            disk(namespace, "serial of a disk").unwrap()
        });
        let session = self.bus.with_controller(|controller| {
            Session::new(stream.into(), disk, rings, controller, now)
        });
        self.session = Some(session.unwrap());
        (self.quiet, self.is_armed) = (0, false);
        true
    }

    /// A turn as a reactor gives it; whether something was done.
    fn turn(&mut self) -> bool {
        self.turns += 1;
        let Some(mut session) = self.session.take() else {
            return self.accept();
        };
        let now = self.now();
        let is_due = session.next_deadline().is_some_and(|due| due <= now);
        let is_valid = self.bus.with_controller(|it| session.is_valid(it));
        let is_called = is_due || !is_valid || is_ready(&session, Duration::ZERO);
        let mut worked = false;
        if is_called || !self.is_armed {
            let is_hot = !is_called && !self.turns.is_multiple_of(4);
            let polled = self.bus.with_controller(|it| session.poll(it, now, is_hot));
            worked = polled.worked;
            // A poll disarms, one that finds nothing too.
            self.is_armed = false;
            self.polls += 1;
            if let Some(end) = polled.ended {
                self.ends.push(end.name());
                self.bus.with_controller(|it| it.function_reset());
                return true;
            }
        }
        self.bus.turn();
        if session.has_posted(true) {
            let now = self.now();
            worked |= self.bus.with_controller(|it| session.drain(it, now));
        }
        if worked {
            (self.quiet, self.is_armed) = (0, false);
        } else if !self.is_armed {
            self.quiet += 1;
            self.is_armed = self.quiet >= QUIET && session.arm();
        }
        self.session = Some(session);
        worked
    }

    /// Waits for an event, for a bounded time.
    fn pause(&self) {
        match &self.session {
            Some(session) => drop(is_ready(session, PAUSE)),
            None => std::thread::sleep(PAUSE),
        }
    }
}

/// Whether a descriptor is ready within a time.
fn is_ready(session: &Session, within: Duration) -> bool {
    let ([(connection, [reads, writes])], kicks) = session.descriptors();
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, reads);
    flags.set(PollFlags::OUT, writes);
    let mut fds = [
        PollFd::from_borrowed_fd(connection, flags),
        PollFd::from_borrowed_fd(kicks, PollFlags::IN),
    ];
    let within = Timespec::try_from(within).unwrap();
    poll(&mut fds, Some(&within)).is_ok_and(|count| count > 0)
}
