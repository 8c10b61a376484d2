//! The holder's process: one thread that waits for hosts, for its worker and for signals.

mod child;
mod known;
mod poller;
mod session;
mod stricken;
mod succession;
mod table;
mod watch;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use vfio_user::Listener;
use vfio_user::relayed::{self, Outbox};

use self::child::{Child, Deaths};
use self::poller::{Poller, Source};
use self::succession::Succession;
use self::table::Table;
use self::watch::Manager;
use crate::wire::{self, Message, Received, field, kind};

/// Descriptors that are kept for workers at most.
const MAX_KEPT: usize = 4096;
/// Paths that hosts connect to at most.
const MAX_LISTENING: usize = 1024;
/// How long a worker may take until it serves.
const START: Duration = Duration::from_secs(60);
/// How long a worker may live after it has closed its end of a connection without a word.
const WORDLESS: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Requests of a worker that one look reads.
const MAX_REQUESTS: usize = 64;
/// Events of one wait.
const MAX_EVENTS: usize = 64;

/// Why a holder cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// The worker cannot be started.
    #[error("cannot start the server's process: {0}")]
    Start(io::Error),
    /// The system's.
    #[error("cannot hold sockets: {0}")]
    Io(#[from] io::Error),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The worker ended by its own will, with this exit status.
    Worker(u8),
    /// A signal came while there was no worker to end.
    Signal,
}

/// A path that hosts connect to.
#[derive(Debug)]
struct Listening {
    path: PathBuf,
    listener: Listener,
    /// Where the worker takes its connections; none without a worker.
    outbox: Option<Outbox>,
    is_watched: bool,
    /// When hosts are accepted again, after that has failed.
    accepts_at: Option<Instant>,
    /// The last worker that asked for it.
    generation: u64,
}

/// A descriptor that is kept.
#[derive(Debug)]
struct Kept {
    fd: OwnedFd,
    /// The last worker that named it.
    generation: u64,
    /// A device reaches memory of hosts by it.
    is_device: bool,
}

/// Starts the program `arguments`, of which the first is its name, as a worker, and another one
/// whenever it dies; returns when one ends by its own will. With `until_eof` the end of standard
/// input ends the worker. Call it before the process has threads.
///
/// # Errors
/// [`HoldError`].
pub fn hold(arguments: Vec<OsString>, until_eof: bool) -> Result<Ended, HoldError> {
    let mut hold = Hold::new(arguments, until_eof)?;
    hold.start().map_err(HoldError::Start)?;
    loop {
        if let Some(ended) = hold.turn()? {
            return Ok(ended);
        }
    }
}

/// See the module.
#[derive(Debug)]
struct Hold {
    arguments: Vec<OsString>,
    poller: Poller,
    signals: SignalFd,
    child: Option<Child>,
    generation: u64,
    deaths: Deaths,
    /// How the last worker ended, and when the next one is started.
    next: Option<(String, Instant)>,
    succession: Succession,
    /// The cause of the last worker's end, and its time.
    before: Option<(String, Instant, Duration)>,
    listening: Vec<Option<Listening>>,
    table: Table,
    kept: BTreeMap<Vec<u8>, Kept>,
    /// A signal has asked for the end.
    is_ending: bool,
    manager: Option<Manager>,
}

impl Hold {
    fn new(arguments: Vec<OsString>, until_eof: bool) -> io::Result<Self> {
        raise_limit();
        lock_memory();
        let poller = Poller::new()?;
        let mut mask = SigSet::empty();
        for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&mask, flags)?;
        poller.add(signals.as_fd(), Source::Signals, epoll::EventFlags::IN)?;
        if until_eof {
            // An input that cannot be waited for, such as a file, has ended.
            let input = io::stdin();
            let added = poller.add(input.as_fd(), Source::Input, epoll::EventFlags::IN);
            added.map_err(|_| {
                io::Error::other("standard input cannot be waited for: do without --stop-at-eof")
            })?;
        }
        Ok(Self {
            arguments,
            poller,
            signals,
            child: None,
            generation: 0,
            deaths: Deaths::default(),
            next: None,
            succession: Succession::new()?,
            before: None,
            listening: Vec::new(),
            table: Table::default(),
            kept: BTreeMap::new(),
            is_ending: false,
            manager: Manager::of_environment()?,
        })
    }

    /// Waits for the next events, and handles them.
    fn turn(&mut self) -> io::Result<Option<Ended>> {
        self.watch_listeners()?;
        let mut events = Vec::with_capacity(MAX_EVENTS);
        let wait = self.next_deadline().map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs() as i64,
                // A wait that ends too early is repeated.
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        match epoll::wait(&self.poller.0, spare_capacity(&mut events), wait.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut has_ended = false;
        for event in events {
            let flags = event.flags;
            match Source::of(event.data.u64()) {
                Source::Control => self.hear_worker(MAX_REQUESTS),
                Source::Signals => self.take_signals()?,
                Source::Child => has_ended = true,
                Source::Input => self.read_input()?,
                Source::Listener(at) => self.accept(at),
                Source::Host(at) => {
                    let is_gone = flags.contains(epoll::EventFlags::HUP);
                    self.table.look(at, is_gone, &self.poller);
                }
                Source::Worker(at) => self.table.look(at, false, &self.poller),
                Source::Parting(at) => self.table.look_parting(at, &self.poller),
                Source::Standby => self.bury_standby(),
                Source::StandbyControl => self.hear_standby(),
            }
        }
        let child = self.child.as_ref();
        let is_dying = || child.is_some_and(Child::is_dying);
        self.table.look_at_time(is_dying, &self.poller);
        if self.table.take_worker_is_broken()
            && let Some(child) = &mut self.child
        {
            child.kill();
        }
        self.watch_over_start();
        self.watch();
        self.look_at_succession();
        if has_ended {
            return self.bury();
        }
        self.start_next();
        let is_idle = self.child.is_none() && self.is_ending;
        Ok(is_idle.then_some(Ended::Signal))
    }

    fn next_deadline(&self) -> Option<Instant> {
        let start = self.child.as_ref().filter(|child| child.is_starting());
        let start = start.map(|child| child.started + self.start_bound());
        let listening = self.listening.iter().flatten();
        let accepts = listening.filter_map(|listening| listening.accepts_at);
        let others = [
            self.table.next_deadline(),
            self.succession.next_deadline(),
            self.watches_at(),
            self.next.as_ref().map(|(_, at)| *at),
        ];
        let others = others.into_iter().flatten();
        others.chain(start).chain(accepts).min()
    }

    /// How long the present worker may take until it serves.
    fn start_bound(&self) -> Duration {
        if self.succession.fallback.is_some() {
            succession::UPGRADE
        } else {
            START
        }
    }

    /// A worker that does not get ready is ended, and counts as one that died.
    fn watch_over_start(&mut self) {
        let bound = self.start_bound();
        if let Some(child) = &mut self.child
            && child.is_starting()
            && child.started.elapsed() >= bound
        {
            tracing::error!("the server's process does not get ready: it is killed");
            child.kill();
        }
    }

    /// Hosts are accepted only while a worker takes them.
    fn watch_listeners(&mut self) -> io::Result<()> {
        for (at, listening) in self.listening.iter_mut().enumerate() {
            let Some(listening) = listening else {
                continue;
            };
            if listening.accepts_at.is_some_and(|at| at <= Instant::now()) {
                listening.accepts_at = None;
            }
            let watches = listening.outbox.is_some()
                && listening.accepts_at.is_none()
                && self.table.has_room(at);
            if watches == listening.is_watched {
                continue;
            }
            listening.is_watched = watches;
            let fd = listening.listener.as_fd();
            if watches {
                self.poller
                    .add(fd, Source::Listener(at), epoll::EventFlags::IN)?;
            } else {
                self.poller.remove(fd)?;
            }
        }
        Ok(())
    }

    fn accept(&mut self, at: usize) {
        let Some(listening) = self.listening.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let Some(outbox) = &listening.outbox else {
            return;
        };
        while self.table.has_room(at) {
            match listening.listener.accept() {
                Ok(Some(stream)) => self.table.enter(at, stream, outbox, &self.poller),
                Ok(None) => break,
                Err(error) => {
                    // Mostly too many descriptors: the socket stays readable meanwhile.
                    tracing::error!("cannot accept a host: {error}");
                    listening.accepts_at = Some(Instant::now() + ACCEPT_PAUSE);
                    break;
                }
            }
        }
    }

    fn read_input(&mut self) -> io::Result<()> {
        let mut bytes = [0; 4096];
        let input = io::stdin();
        match rustix::io::read(&input, &mut bytes) {
            Ok(len) if len > 0 => Ok(()),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(()),
            _ => {
                self.poller.remove(input.as_fd())?;
                self.is_ending = true;
                self.tell_worker(Signal::SIGTERM);
                Ok(())
            }
        }
    }

    fn take_signals(&mut self) -> io::Result<()> {
        while let Some(signal) = self.signals.read_signal()? {
            let Ok(number) = Signal::try_from(signal.ssi_signo as i32) else {
                continue;
            };
            // A worker may take the first SIGINT for a mistake, and SIGHUP for a wish to reload.
            self.is_ending |= number == Signal::SIGTERM || self.child.is_none();
            self.tell_worker(number);
        }
        Ok(())
    }

    fn tell_worker(&self, signal: Signal) {
        if let Some(child) = &self.child {
            child.signal(signal);
        }
    }

    /// The worker has ended.
    fn bury(&mut self) -> io::Result<Option<Ended>> {
        // Its earlier requests count; a process that it leaves cannot ask more.
        if let Some(child) = &self.child {
            let _ = shutdown(&child.socket, Shutdown::Read);
        }
        self.hear_worker(usize::MAX);
        let Some(child) = self.child.take() else {
            return Ok(None);
        };
        let (by_own_will, ready) = (child.said_bye, child.ready);
        let (hands_over, is_hung) = (child.hands_over, child.is_hung);
        let now = Instant::now();
        let end = child.wait()?;
        let is_first = self.generation == 1 && ready.is_none();
        if by_own_will || is_first || self.is_ending {
            if !by_own_will && end.signal.is_some() {
                tracing::error!("the server's process ended: {end}");
            }
            return Ok(Some(Ended::Worker(end.status())));
        }
        for listening in self.listening.iter_mut().flatten() {
            listening.outbox = None;
        }
        self.table
            .lose_worker(is_hung || end.is_crash(), &self.poller);
        let cause = if hands_over {
            "upgrade".to_owned()
        } else if is_hung {
            "no sign of life".to_owned()
        } else {
            end.to_string()
        };
        if !hands_over && self.succession.fall_back() {
            tracing::error!("the other program does not serve ({end}): the last one goes on");
        }
        self.before = Some((cause, now, monotonic()));
        if hands_over {
            tracing::info!("another program takes the place of the server's process");
            self.next = Some((end.to_string(), now));
        } else {
            self.try_again(end.to_string(), now, ready);
        }
        self.start_next();
        Ok(None)
    }

    /// Has another worker be started after one that ended, or gives up.
    fn try_again(&mut self, end: String, now: Instant, ready: Option<Instant>) {
        let Some(pause) = self.deaths.note(now, ready) else {
            return self.give_up(&end);
        };
        if pause.is_zero() {
            tracing::error!("the server's process ended ({end}): another one goes on");
        } else {
            tracing::error!(
                "the server's process ended ({end}): another one goes on in {} s, the last one if it does not serve",
                pause.as_secs()
            );
        }
        self.next = Some((end, now + pause));
    }

    /// Starts the next worker if it is time.
    fn start_next(&mut self) {
        if self.is_ending {
            return;
        }
        while let Some((end, _)) = self.next.take_if(|(_, at)| *at <= Instant::now()) {
            if let Err(error) = self.start() {
                tracing::error!("cannot start the server's process: {error}");
                self.try_again(end, Instant::now(), None);
            }
        }
    }

    /// Hosts find a failed controller from now on.
    fn give_up(&mut self, end: &str) {
        // An unmap is granted from now on: no device may reach memory of hosts any more. Closing
        // one may take as long as its reset.
        self.kept.retain(|_, kept| !kept.is_device);
        tracing::error!(
            "the server's process ended ({end}), {} times within {} s: hosts find a fatal status from now on; see the errors above, stop this process, and start the hosts' machines again after it",
            Deaths::MAX,
            Deaths::WITHIN.as_secs()
        );
        self.table.strike(&self.poller);
    }

    /// Handles what the worker asks, so many requests at most.
    fn hear_worker(&mut self, most: usize) {
        for _ in 0..most {
            let Some(child) = &mut self.child else {
                return;
            };
            let received = match wire::receive(&child.socket) {
                Ok(received) => received,
                Err(error) => {
                    tracing::error!("the server's process cannot be heard: {error}");
                    return child.kill();
                }
            };
            let request = match received {
                Received::Nothing => return,
                Received::End => {
                    if !child.is_deaf {
                        child.is_deaf = true;
                        // Its end is seen on its own descriptor.
                        let _ = self.poller.remove(child.socket.as_fd());
                    }
                    return;
                }
                Received::Message(Ok(request)) => request,
                Received::Message(Err(error)) => {
                    tracing::error!("the server's process sends what is no request: {error}");
                    return child.kill();
                }
            };
            let reply = || Message::new(request.kind | kind::REPLY, request.number);
            match self.grant(&request, reply()) {
                Ok(Some((reply, fd))) => self.tell_child(&reply, fd),
                Ok(None) => {}
                Err(why) => self.tell_child(&reply().with(field::REFUSED, why.as_bytes()), None),
            }
            if let Some(child) = &mut self.child
                && child.hands_over
            {
                return child.kill();
            }
        }
    }

    /// Sends the worker a reply.
    fn tell_child(&mut self, reply: &Message, fd: Option<OwnedFd>) {
        let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
        let Some(child) = &mut self.child else {
            return;
        };
        // Where it cannot be sent, the worker's end is seen on its own descriptor.
        if matches!(wire::send(child.socket.as_fd(), reply, &fds), Ok(false)) {
            tracing::error!("the server's process does not read the replies to it");
            child.kill();
        }
    }

    /// The reply to the first message of a worker.
    fn welcome(&self, reply: Message) -> Message {
        let reply = reply.with(field::GENERATION, &self.generation.to_le_bytes());
        let Some((cause, _, ended)) = &self.before else {
            return reply;
        };
        let ended = u64::try_from(ended.as_nanos()).unwrap_or(u64::MAX);
        reply
            .with(field::CAUSE, cause.as_bytes())
            .with(field::ENDED, &ended.to_le_bytes())
    }

    /// The reply to a request, or why it is refused; none where it is answered later.
    fn grant(
        &mut self,
        request: &Message,
        reply: Message,
    ) -> Result<Option<(Message, Option<OwnedFd>)>, String> {
        let name = || request.bytes(field::NAME).map(<[u8]>::to_vec);
        let name = || name().ok_or("the request has no name");
        match request.kind {
            kind::HELLO => {
                if let Some(child) = &mut self.child {
                    child.greeting = succession::greeting_of(request);
                }
                Ok(Some((self.welcome(reply), None)))
            }
            kind::LISTEN => {
                let mode = request.number_in(field::MODE);
                let mode = mode.map_err(|error| error.to_string())?.unwrap_or(0o600);
                let mode = u32::try_from(mode).map_err(|error| error.to_string())?;
                let inbox = self.listen(PathBuf::from(OsString::from_vec(name()?)), mode)?;
                Ok(Some((reply, Some(inbox))))
            }
            kind::CLOSE => {
                let path = PathBuf::from(OsString::from_vec(name()?));
                let mut all = self.listening.iter();
                let at = all.position(|it| it.as_ref().is_some_and(|it| it.path == path));
                at.into_iter().for_each(|at| self.close(at));
                Ok(Some((reply, None)))
            }
            kind::KEEP => {
                let fd = request.fds.first().ok_or("the request has no descriptor")?;
                let fd = fd.try_clone().map_err(|error| error.to_string())?;
                let name = name()?;
                if self.kept.len() >= MAX_KEPT && !self.kept.contains_key(&name) {
                    return Err(format!("{MAX_KEPT} descriptors are kept already"));
                }
                let kept = Kept {
                    fd,
                    generation: self.generation,
                    is_device: request.bytes(field::DEVICE).is_some(),
                };
                self.kept.insert(name, kept);
                Ok(Some((reply, None)))
            }
            kind::FETCH => {
                let kept = self.kept.get_mut(&name()?);
                let fd = kept.map(|kept| {
                    kept.generation = self.generation;
                    kept.fd.try_clone()
                });
                let fd = fd.transpose().map_err(|error| error.to_string())?;
                Ok(Some((reply, fd)))
            }
            kind::NOTIFY => {
                let state = request.bytes(field::STATE);
                self.take_notice(state.ok_or("the request has no text")?);
                Ok(Some((reply, None)))
            }
            kind::FORGET => {
                self.kept.remove(&name()?);
                Ok(Some((reply, None)))
            }
            kind::READY => {
                self.worker_is_ready();
                Ok(Some((reply, None)))
            }
            kind::BYE => {
                if let Some(child) = &mut self.child {
                    child.said_bye = true;
                }
                Ok(Some((reply, None)))
            }
            kind::UPGRADE => {
                let path = PathBuf::from(OsString::from_vec(name()?));
                self.prepare_upgrade(&path, request.number)?;
                Ok(None)
            }
            kind::HAND_OVER => {
                self.hand_over()?;
                Ok(Some((reply, None)))
            }
            other => Err(format!("there is no request {other}")),
        }
    }

    /// Listens at a path for the present worker, and gives it the hosts that are there.
    fn listen(&mut self, path: PathBuf, mode: u32) -> Result<OwnedFd, String> {
        let (outbox, inbox) = relayed::way().map_err(|error| error.to_string())?;
        let mut all = self.listening.iter();
        let known = all.position(|it| it.as_ref().is_some_and(|it| it.path == path));
        let at = match known {
            Some(at) => at,
            None if self.listening.iter().flatten().count() >= MAX_LISTENING => {
                return Err(format!("{MAX_LISTENING} sockets are open already"));
            }
            None => {
                let listener = Listener::bind(&path).map_err(|error| error.to_string())?;
                let new = Listening {
                    path,
                    listener,
                    outbox: None,
                    is_watched: false,
                    accepts_at: None,
                    generation: 0,
                };
                let free = self.listening.iter().position(Option::is_none);
                let at = free.unwrap_or(self.listening.len());
                match free {
                    Some(at) => self.listening[at] = Some(new),
                    None => self.listening.push(Some(new)),
                }
                at
            }
        };
        let Some(listening) = &mut self.listening[at] else {
            return Err("it is gone".into());
        };
        let opened = listening.listener.open_to(mode);
        opened.map_err(|error| error.to_string())?;
        listening.generation = self.generation;
        let outbox = listening.outbox.insert(outbox);
        self.table.give_all(at, outbox, &self.poller);
        Ok(inbox.into())
    }

    fn close(&mut self, at: usize) {
        let Some(listening) = self.listening[at].take() else {
            return;
        };
        if listening.is_watched
            && let Err(error) = self.poller.remove(listening.listener.as_fd())
        {
            tracing::error!("cannot forget a socket: {error}");
        }
        self.table.end_all(at, &self.poller);
    }

    /// State that this worker does not want any more is not kept for the next one.
    fn worker_is_ready(&mut self) {
        let now = Instant::now();
        let Some(child) = self.child.as_mut().filter(|it| it.ready.is_none()) else {
            return;
        };
        child.ready = Some(now);
        self.succession.settle(&child.program);
        if let Some((_, ended, _)) = &self.before {
            let pause = now.duration_since(*ended);
            tracing::info!("hosts continue after {} ms", pause.as_millis());
        }
        let generation = self.generation;
        for at in 0..self.listening.len() {
            let listening = self.listening[at].as_ref();
            if listening.is_some_and(|listening| listening.generation != generation) {
                self.close(at);
            }
        }
        self.kept.retain(|_, kept| kept.generation == generation);
    }
}

/// Allows as many descriptors as the system does: each host has its eventfds here.
fn raise_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // Where that fails, hosts find the limit sooner.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Keeps what is in our memory from being paged out: where memory is short, a host would wait for
/// the holder, and a worker that dies for its successor. Not where locked memory is limited: the
/// limit counts what is allocated later, which would then fail.
fn lock_memory() {
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none();
    let may =
        || capabilities(None).is_ok_and(|ours| ours.effective.contains(CapabilitySet::IPC_LOCK));
    if is_unlimited || may() {
        // Where that fails, the holder is as other processes are.
        let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
    }
}

/// The time of CLOCK_MONOTONIC.
#[must_use]
pub fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
