//! Controllers of ours, served on a thread of the test.
//!
//! Hosts come by one of two doors ([`Door`]): the server's own listening sockets, or those of a
//! holder, which relays their messages (`held`). A host may expect the same of both.
//!
//! Its clock may be moved on, so that a bound of seconds is over at once; its media may be told to
//! hold back what they have done, so that commands stay in flight for as long as a test likes.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use controller::controller::MigrateError;
use controller::{Controller, ControllerConfig, DoorbellMode, Interface, Interrupt};
use engine::{ControllerSlot, Engine, Mode};
use media::{Medium, MediumKind, MediumSpec};
use memory::{DmaView, DoorbellPages, EventFd, Reach, Segment};
use port::namespace::Namespace;
use port::ticket::Ticket;
use port::time::Time;
use port::{Added, Channel, ChannelId, Done, Outcome, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use subsystem::{Subsystem, SubsystemConfig};
use tempfile::TempDir;
use transport::vfio_user::{Caller, Entrance, Moving, Session, SessionConfig};
use vfio_user::Listener;

use crate::held::{self, Held};
use crate::lock::Lock;

/// Bytes of each controller's drive.
pub const DRIVE_LEN: u64 = 4 << 20;
/// Commands that a channel holds at most.
const CHANNEL_DEPTH: usize = 256;
/// How long to wait for what a server does at once.
const BOUND: Duration = Duration::from_secs(20);

/// How hosts reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// They connect to it.
    Direct,
    /// They connect to a holder, of this program.
    Holder(&'static str),
}

/// How controllers are served.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether hosts may map the doorbells.
    pub mapped: bool,
    /// I/O queue pairs of each controller; it has one vector more.
    pub queues: u16,
    /// Entries of an I/O queue at most.
    pub queue_depth: u16,
    /// How many there are.
    pub controllers: usize,
    /// Whether each has MSI-X.
    pub msix: bool,
    /// Whether each has an interrupt pin.
    pub intx: bool,
    /// Whether they may migrate: they are the same drive then, over the same bytes.
    pub migrates: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mapped: true,
            queues: 3,
            queue_depth: 64,
            controllers: 1,
            msix: true,
            intx: false,
            migrates: false,
        }
    }
}

/// An order to the server's thread.
enum Order {
    Raise(usize, u16, SyncSender<()>),
    /// Tell how many messages of hosts were handled.
    Count(SyncSender<u64>),
    Stop,
}

/// State of the server's thread that the test sees, and may change.
#[derive(Debug, Default)]
struct Shared {
    /// Nanoseconds that the clock was moved on.
    moved_ns: AtomicU64,
    /// Whether media hold back what they have done.
    hold: AtomicBool,
    /// Number of requests that they hold back.
    held: AtomicUsize,
    /// Whether they reach hosts' memory by themselves, and what of it.
    reaches: AtomicBool,
    reached: Mutex<Vec<Arc<Reach>>>,
    /// Whether lanes and controllers get no turns.
    stall: AtomicBool,
    /// The lock of the medium of controllers that migrate.
    lock: Arc<Lock>,
    /// Whether subsystems have what does not move.
    keeps: AtomicBool,
    /// For each controller, why its sessions have ended.
    ended: Mutex<Vec<(usize, String)>>,
    ending: Condvar,
}

/// A serving thread. It ends with this value.
pub struct Server {
    orders: Sender<Order>,
    wake: EventFd,
    shared: Arc<Shared>,
    doorbells: Vec<Arc<DoorbellPages>>,
    thread: Option<JoinHandle<()>>,
    door: Door,
    held: Option<Held>,
    folder: TempDir,
}

impl Server {
    /// Serves the controllers of `options` to hosts that come by this door.
    ///
    /// # Panics
    /// When a controller cannot be made, or the door fails.
    #[must_use]
    pub fn start(options: &Options, door: Door) -> Self {
        let folder = tempfile::tempdir().expect("there is a folder for temporary files");
        let (held, entrances) = entrances(door, folder.path(), options.controllers);
        let shared = Arc::new(Shared::default());
        let wake = EventFd::new().expect("there is a descriptor");
        let (orders, ordered) = channel();
        let mut engine = Engine::new(Mode::Poll, Time(0));
        let mut served = Vec::new();
        let kind = MediumKind::Ram { size: DRIVE_LEN };
        let open = || Medium::open(&MediumSpec { kind: kind.clone() }).expect("there is memory");
        let one = open();
        for (index, entrance) in entrances.into_iter().enumerate() {
            let medium = if options.migrates {
                one.clone()
            } else {
                open()
            };
            served.push(Served::new(
                index,
                entrance,
                options,
                &mut engine,
                &shared,
                &medium,
            ));
        }
        let doorbells = served
            .iter()
            .map(|served| served.doorbells.clone())
            .collect();
        let reactor = Reactor {
            engine,
            served,
            orders: ordered,
            wake: wake.clone(),
            shared: shared.clone(),
            start: Instant::now(),
            messages: 0,
        };
        let thread = thread::spawn(move || reactor.run());
        Self {
            orders,
            wake,
            shared,
            doorbells,
            thread: Some(thread),
            door,
            held,
            folder,
        }
    }

    /// How hosts reach it.
    #[must_use]
    pub fn door(&self) -> Door {
        self.door
    }

    /// Where the hosts of a controller connect.
    #[must_use]
    pub fn path(&self, controller: usize) -> PathBuf {
        held::path(self.folder.path(), controller)
    }

    /// Connects a host to a controller; its end of the socket.
    ///
    /// # Panics
    /// When the path is not listened at.
    #[must_use]
    pub fn attach(&self, controller: usize) -> UnixStream {
        UnixStream::connect(self.path(controller)).expect("it listens")
    }

    /// Raises a vector of a controller, as a completion does; on return it is raised.
    ///
    /// # Panics
    /// When no host is attached.
    pub fn raise(&self, controller: usize, vector: u16) {
        let (done, raised) = sync_channel(1);
        self.order(Order::Raise(controller, vector, done));
        raised.recv_timeout(BOUND).expect("the server runs");
    }

    fn order(&self, order: Order) {
        self.orders.send(order).expect("the server runs");
        self.wake.signal().expect("it is an eventfd");
    }

    /// Moves the server's clock on.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.shared.moved_ns.fetch_add(by, Ordering::Relaxed);
    }

    /// Makes the media hold back what they have done, or give it back.
    pub fn hold(&self, hold: bool) {
        self.shared.hold.store(hold, Ordering::Relaxed);
    }

    /// Makes the media reach, as drives do, the memory of commands whose completions they defer, or
    /// releases that memory.
    ///
    /// # Panics
    /// When the server's thread has panicked.
    pub fn reach(&self, reaches: bool) {
        self.shared.reaches.store(reaches, Ordering::Relaxed);
        if !reaches {
            let mut reached = self.shared.reached.lock().expect("nobody panics with it");
            reached.drain(..).for_each(|reach| reach.let_go());
        }
    }

    /// The lock of the medium of controllers that migrate.
    #[must_use]
    pub fn lock(&self) -> &Lock {
        &self.shared.lock
    }

    /// Has subsystems have what does not move.
    pub fn keep(&self, keeps: bool) {
        self.shared.keeps.store(keeps, Ordering::Relaxed);
    }

    /// Gives lanes and controllers no turns, or again: only messages are handled.
    pub fn stall(&self, stall: bool) {
        self.shared.stall.store(stall, Ordering::Relaxed);
    }

    /// Waits until media hold back `count` commands: those are in flight for sure.
    ///
    /// # Panics
    /// When they do not.
    pub fn wait_for_held(&self, count: usize) {
        let deadline = Instant::now() + BOUND;
        while self.shared.held.load(Ordering::Relaxed) != count {
            assert!(
                Instant::now() < deadline,
                "{count} commands are not fetched"
            );
            thread::yield_now();
        }
    }

    /// Sends messages, and waits until the server has handled `count` more than before.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait_for_messages<T>(&self, count: u64, send: impl FnOnce() -> T) -> T {
        let messages = || {
            let (count, counted) = sync_channel(1);
            self.order(Order::Count(count));
            counted.recv_timeout(BOUND).expect("the server runs")
        };
        let (before, deadline) = (messages(), Instant::now() + BOUND);
        let sent = send();
        while messages() < before + count {
            assert!(Instant::now() < deadline, "{count} messages do not come");
            thread::yield_now();
        }
        sent
    }

    /// The doorbells of a controller, as the server has them.
    #[must_use]
    pub fn doorbells(&self, controller: usize) -> &DoorbellPages {
        &self.doorbells[controller]
    }

    /// Waits for a session of a controller to end, and returns why it did.
    ///
    /// # Panics
    /// When none ends within a bound.
    #[must_use]
    pub fn wait_for_end(&self, controller: usize) -> String {
        let ended = self.shared.ended.lock().expect("nobody panics with it");
        let is_open =
            |ended: &mut Vec<(usize, String)>| !ended.iter().any(|(of, _)| *of == controller);
        let (mut ended, timeout) = self
            .shared
            .ending
            .wait_timeout_while(ended, BOUND, is_open)
            .expect("nobody panics with it");
        assert!(!timeout.timed_out(), "no session of {controller} has ended");
        let at = ended.iter().position(|(of, _)| *of == controller);
        ended.remove(at.expect("it was seen")).1
    }

    /// Whether no session has ended.
    ///
    /// # Panics
    /// When the server's thread has panicked.
    #[must_use]
    pub fn all_attached(&self) -> bool {
        let ended = self.shared.ended.lock();
        ended.expect("nobody panics with it").is_empty()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Without a receiver the thread has panicked already, which shows below.
        let _ = self.orders.send(Order::Stop);
        let _ = self.wake.signal();
        let ended = self.thread.take().map(JoinHandle::join);
        let panicked = matches!(ended, Some(Err(_)));
        drop(self.held.take());
        assert!(!panicked || thread::panicking(), "the server panicked");
    }
}

/// Where the hosts of each controller come from.
fn entrances(door: Door, folder: &Path, controllers: usize) -> (Option<Held>, Vec<Entrance>) {
    match door {
        Door::Direct => {
            let listen = |at| Listener::bind(&held::path(folder, at)).expect("nothing is there");
            let listeners = (0..controllers).map(listen);
            (None, listeners.map(Entrance::listening).collect())
        }
        Door::Holder(program) => {
            let (held, inboxes) = Held::start(Path::new(program), folder, controllers);
            let entrances = inboxes.into_iter().map(Entrance::relayed);
            (Some(held), entrances.collect())
        }
    }
}

/// One controller of the thread.
struct Served {
    entrance: Entrance,
    slot: ControllerSlot,
    doorbells: Arc<DoorbellPages>,
    config: SessionConfig,
    session: Option<Session>,
    /// Connected while the last host was still there, or its commands were.
    next: Option<Caller>,
}

impl Served {
    fn new(
        index: usize,
        entrance: Entrance,
        options: &Options,
        engine: &mut Engine<HeldChannel>,
        shared: &Arc<Shared>,
        medium: &Arc<Medium>,
    ) -> Self {
        let depth = u16::try_from(CHANNEL_DEPTH).expect("it is small");
        let channel = HeldChannel {
            inner: medium.channel(depth).expect("memory needs nothing"),
            shared: shared.clone(),
            held: Vec::new(),
        };
        let id = ChannelId(u16::try_from(index).expect("there are few"));
        let taken = engine.add_channel(id, channel, CHANNEL_DEPTH);
        assert!(taken.is_ok(), "each has its own");
        let (config, subsystem) = config(index, options, id, medium);
        let doorbells = DoorbellPages::new(config.doorbell_slots()).expect("there is memory");
        let doorbells = Arc::new(doorbells);
        let custody = || shared.lock.of(index);
        let custody = options.migrates.then(custody);
        let session_config = SessionConfig {
            custody,
            ..SessionConfig::of(&config)
        };
        let mut subsystem = Subsystem::new(subsystem).expect("it is a good one");
        let controller = Controller::new(config, doorbells.clone(), &mut subsystem);
        let controller = controller.expect("it is a good one");
        let subsystem = engine.add_subsystem(subsystem);
        Self {
            entrance,
            slot: engine.add_controller(controller, subsystem),
            doorbells,
            config: session_config,
            session: None,
            next: None,
        }
    }
}

impl Served {
    /// A connection that is no host yet.
    fn next_caller(&mut self, now: Time) -> Option<Caller> {
        let accept = || {
            let arrival = self.entrance.accept().expect("the entrance is open")?;
            Some(Caller::new(arrival, now).expect("it is a socket"))
        };
        self.next.take().or_else(accept)
    }
}

fn config(
    index: usize,
    options: &Options,
    channel: ChannelId,
    medium: &Arc<Medium>,
) -> (ControllerConfig, SubsystemConfig) {
    let namespace = Namespace {
        nsid: 1,
        channel,
        start: 0,
        blocks: DRIVE_LEN / 512,
        lba_shift: 9,
        nguid: [7; 16],
        eui64: [7; 8],
        traits: medium.traits(),
        restrictions: None,
        set: None,
    };
    let drive = if options.migrates { 0 } else { index };
    let config = ControllerConfig {
        name: format!("c{index}"),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: format!("S{drive}"),
        model_number: "protocol test".into(),
        firmware_revision: "1".into(),
        subnqn: format!("nqn.2024-01.org.example:c{drive}"),
        queues: options.queues,
        queue_depth: options.queue_depth,
        max_transfer: 1 << 20,
        doorbells: if options.mapped {
            DoorbellMode::Mapped
        } else {
            DoorbellMode::Unmapped
        },
        msix: options.msix,
        intx: options.intx,
        interface: Interface::Pcie,
    };
    (config, SubsystemConfig::with_namespaces(4, [namespace]))
}

/// The thread itself.
struct Reactor {
    engine: Engine<HeldChannel>,
    served: Vec<Served>,
    orders: Receiver<Order>,
    wake: EventFd,
    shared: Arc<Shared>,
    start: Instant,
    /// Of hosts, that were handled.
    messages: u64,
}

impl Reactor {
    fn run(mut self) {
        loop {
            while let Ok(order) = self.orders.try_recv() {
                match order {
                    Order::Raise(index, vector, done) => {
                        let session = self.served[index].session.as_mut();
                        let session = session.expect("a host is attached");
                        session.raise(Interrupt::Vector(vector));
                        done.send(()).expect("the test waits");
                    }
                    Order::Count(count) => {
                        count.send(self.messages).expect("the test waits");
                    }
                    Order::Stop => return,
                }
            }
            let now = self.now();
            let mut worked = !self.shared.stall.load(Ordering::Relaxed) && self.turn(now);
            for index in 0..self.served.len() {
                worked |= self.look_at(index, now);
            }
            if !worked {
                self.wait();
            }
        }
    }

    fn turn(&mut self, now: Time) -> bool {
        let served = &mut self.served;
        let turn = self.engine.turn(now, |slot, interrupt| {
            let mut served = served.iter_mut();
            let of_slot = served.find(|served| served.slot == slot);
            if let Some(session) = of_slot.and_then(|served| served.session.as_mut()) {
                session.raise(interrupt);
            }
        });
        turn.worked
    }

    fn now(&self) -> Time {
        let real = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Time(real) + self.shared.moved_ns.load(Ordering::Relaxed)
    }

    fn look_at(&mut self, index: usize, now: Time) -> bool {
        let served = &mut self.served[index];
        let controller = self.engine.controller_mut(served.slot);
        let controller = controller.expect("it is never removed");
        let Some(session) = &mut served.session else {
            let Some(mut caller) = served.next_caller(now) else {
                return false;
            };
            if let Err(end) = caller.poll(now, false) {
                drop(caller.part());
                let mut ended = self.shared.ended.lock().expect("nobody panics with it");
                ended.push((index, end.to_string()));
                self.shared.ending.notify_all();
                return true;
            }
            if !caller.is_introduced() || !controller.is_quiet() {
                served.next = Some(caller);
                return false;
            }
            controller.halt(false);
            let (doorbells, config) = (served.doorbells.clone(), served.config.clone());
            let session = caller.attach(doorbells, config, controller);
            served.session = session.ok();
            return true;
        };
        let polled = session.poll(controller, now);
        self.messages += u64::from(polled.messages);
        let kept = if self.shared.keeps.load(Ordering::Relaxed) {
            Err(MigrateError::Kept("it has a reservation".to_owned()))
        } else {
            Ok(())
        };
        if session.asks_to_leave() {
            session.may_leave(controller, kept);
            return true;
        }
        if let Some(moving) = session.take_arrived(controller) {
            let Moving {
                state,
                doorbells,
                view,
            } = moving;
            let engine = &mut self.engine;
            let replace = || engine.replace_controller(served.slot, state, doorbells, view);
            let taken = kept.and_then(|()| replace());
            let there = engine.controller_mut(served.slot);
            let there = there.expect("another one is in its place");
            session.moved(there, taken).expect("its holder is there");
            return true;
        }
        if let Some(end) = polled.ended {
            drop(served.session.take().map(Session::part));
            controller.function_reset();
            let mut ended = self.shared.ended.lock().expect("nobody panics with it");
            ended.push((index, end.to_string()));
            self.shared.ending.notify_all();
        }
        polled.messages > 0
    }

    /// Waits for a message, and for a doorbell no longer than it takes to look at it again.
    fn wait(&self) {
        let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
        for session in self
            .served
            .iter()
            .filter_map(|served| served.session.as_ref())
        {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, session.wants_write());
            fds.push(PollFd::new(session, flags));
            let unmasked = session.unmasked();
            fds.extend(unmasked.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        }
        for served in self.served.iter().filter(|it| it.session.is_none()) {
            match &served.next {
                None => fds.push(PollFd::new(&served.entrance, PollFlags::IN)),
                Some(caller) if caller.is_introduced() => {}
                Some(caller) => fds.push(PollFd::new(caller, PollFlags::IN)),
            }
        }
        let look = Timespec {
            tv_sec: 0,
            tv_nsec: 500_000,
        };
        // An interrupted wait is a short one.
        let _ = poll(&mut fds, Some(&look));
        self.wake.drain();
    }
}

/// A channel of a medium that defers its completions while [`Server::hold`] says so.
struct HeldChannel {
    inner: media::Channel,
    shared: Arc<Shared>,
    held: Vec<(Ticket, Outcome)>,
}

impl Channel for HeldChannel {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        let added = self.inner.add(ticket, request, segments, view);
        match added {
            Added::Done(ticket, outcome) if self.shared.hold.load(Ordering::Relaxed) => {
                if self.shared.reaches.load(Ordering::Relaxed) {
                    let all = view.lent().map(|lent| lent.reach().clone());
                    let held = all.filter(|reach| reach.hold());
                    let mut reached = self.shared.reached.lock().expect("nobody panics with it");
                    reached.extend(held);
                }
                self.held.push((ticket, outcome));
                self.shared.held.fetch_add(1, Ordering::Relaxed);
                Added::Pending
            }
            added => added,
        }
    }

    fn submit(&mut self) {
        self.inner.submit();
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        self.inner.reap(done);
        if !self.shared.hold.load(Ordering::Relaxed) {
            let count = self.held.len();
            self.shared.held.fetch_sub(count, Ordering::Relaxed);
            let held = self.held.drain(..);
            done.extend(held.map(|(ticket, outcome)| Done { ticket, outcome }));
        }
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }
}

impl Drop for HeldChannel {
    fn drop(&mut self) {
        for (ticket, _) in self.held.drain(..) {
            ticket.retire();
        }
    }
}
