//! The successor: a process that waits for the end of the worker, of the same program or of another
//! one, which then has to serve in time.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::epoll::EventFlags;
use rustix::fs::{Mode, OFlags};

use super::child::{Child, Greeting};
use super::{Hold, Source};
use crate::wire::{self, Message, Received, field, kind};

/// How long another program may take for its first message.
const GREETING: Duration = Duration::from_secs(3);
/// How long another program waits for the worker to be quiet.
const QUIET: Duration = Duration::from_secs(10);
/// How long another program may take until it serves; then the last one goes on.
pub(super) const UPGRADE: Duration = Duration::from_secs(1);
/// How long a worker serves before the next one is started: what its hosts have waited for comes
/// first.
const SETTLED: Duration = Duration::from_millis(300);

/// A process that waits to be the worker.
#[derive(Debug)]
pub(super) struct Standby {
    pub(super) child: Child,
    /// The worker's request that it was started by, where it is of another program.
    asked: Option<u32>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Succession {
    /// The program of the next worker.
    program: Rc<OwnedFd>,
    /// The last program that has served, while another one does not yet.
    pub(super) fallback: Option<Rc<OwnedFd>>,
    standby: Option<Standby>,
    /// When to start a process that waits.
    prepares_at: Option<Instant>,
}

/// A program's file, which stays the same where another one takes its place.
fn open(path: &Path) -> io::Result<Rc<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(Rc::new(rustix::fs::open(path, flags, Mode::empty())?))
}

impl Succession {
    /// That of the program that runs.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            program: open(Path::new("/proc/self/exe"))?,
            fallback: None,
            standby: None,
            prepares_at: None,
        })
    }

    /// Whether another program is started because a worker has asked for it.
    pub(super) fn is_asked(&self) -> bool {
        self.standby.as_ref().is_some_and(|it| it.asked.is_some())
    }

    /// When [`Hold::look_at_succession`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let asked = self.standby.as_ref().filter(|it| it.asked.is_some());
        let patience = |it: &Standby| match it.child.greeting {
            None => GREETING,
            Some(_) => QUIET,
        };
        let until = asked.map(|it| it.child.started + patience(it));
        until.into_iter().chain(self.prepares_at).min()
    }

    /// A worker serves: its program is the one from now on, and another one is to wait.
    pub(super) fn settle(&mut self, program: &Rc<OwnedFd>) {
        self.program = program.clone();
        self.fallback = None;
        self.prepares_at = Some(Instant::now() + SETTLED);
    }

    /// A worker of another program did not come to serve.
    pub(super) fn fall_back(&mut self) -> bool {
        let Some(last) = self.fallback.take() else {
            return false;
        };
        self.program = last;
        true
    }
}

impl Hold {
    /// Starts the next worker, which may have waited.
    pub(super) fn start(&mut self) -> io::Result<()> {
        self.succession.prepares_at = None;
        if self.succession.standby.is_none() {
            // The other program has ended since: the last one begins, and may take longer.
            self.succession.fall_back();
        }
        let is_upgrade = self.succession.fallback.is_some();
        if let Some(standby) = &self.succession.standby
            && standby.asked.is_some() != is_upgrade
        {
            // Another program that has not been checked, or one that did not come to serve.
            self.dismiss_standby();
        }
        let child = match self.succession.standby.take() {
            Some(standby) => {
                let mut child = standby.child;
                self.poller.remove(child.pidfd.as_fd())?;
                if !child.is_deaf {
                    self.poller.remove(child.socket.as_fd())?;
                }
                child.started = Instant::now();
                child
            }
            None => Child::start(&self.succession.program, &self.arguments)?,
        };
        self.generation += 1;
        let flags = EventFlags::IN;
        self.poller
            .add(child.socket.as_fd(), Source::Control, flags)?;
        self.poller.add(child.pidfd.as_fd(), Source::Child, flags)?;
        let greeting = child.greeting.clone();
        self.child = Some(child);
        if let Some(greeting) = greeting {
            let reply = Message::new(kind::HELLO | kind::REPLY, greeting.number);
            let reply = self.welcome(reply);
            self.tell_child(&reply, None);
        }
        Ok(())
    }

    fn stand_by(&mut self, program: &Rc<OwnedFd>, asked: Option<u32>) -> io::Result<()> {
        self.dismiss_standby();
        let child = Child::start(program, &self.arguments)?;
        let flags = EventFlags::IN;
        let socket = child.socket.as_fd();
        self.poller.add(socket, Source::StandbyControl, flags)?;
        self.poller
            .add(child.pidfd.as_fd(), Source::Standby, flags)?;
        self.succession.standby = Some(Standby { child, asked });
        Ok(())
    }

    fn dismiss_standby(&mut self) {
        // Dropped, it is ended.
        self.succession.standby = None;
    }

    /// Starts another program, which waits; the worker's request is answered when that has said
    /// what it is.
    pub(super) fn prepare_upgrade(&mut self, path: &Path, asked: u32) -> Result<(), String> {
        let cannot = |error: io::Error| format!("cannot start {}: {error}", path.display());
        if self.child.as_ref().is_none_or(|it| it.ready.is_none()) {
            // One that never serves would start others without end.
            return Err("this process does not serve yet".into());
        }
        let standby = self.succession.standby.as_ref();
        if standby.is_some_and(|standby| standby.asked.is_some()) {
            return Err("an upgrade is in progress already".into());
        }
        let program = open(path).map_err(cannot)?;
        self.stand_by(&program, Some(asked)).map_err(cannot)
    }

    /// The worker is quiet. It is ended, and the program that waits goes on.
    pub(super) fn hand_over(&mut self) -> Result<(), String> {
        let standby = self.succession.standby.as_ref();
        let is_upgrade =
            standby.is_some_and(|it| it.asked.is_some() && it.child.greeting.is_some());
        let Some(child) = self.child.as_mut().filter(|_| is_upgrade) else {
            return Err("no other program waits to go on".into());
        };
        child.hands_over = true;
        self.succession.fallback = Some(child.program.clone());
        Ok(())
    }

    /// Hears what the process says that waits.
    pub(super) fn hear_standby(&mut self) {
        let Some(standby) = &mut self.succession.standby else {
            return;
        };
        let has_greeted = standby.child.greeting.is_some();
        let received = wire::receive(&standby.child.socket);
        let greeting = match received {
            Ok(Received::Nothing) => return,
            Ok(Received::Message(Ok(message))) if message.kind == kind::HELLO => {
                greeting_of(&message)
            }
            Ok(Received::End) => {
                if !standby.child.is_deaf {
                    standby.child.is_deaf = true;
                    // Its end is seen on its own descriptor.
                    let _ = self.poller.remove(standby.child.socket.as_fd());
                }
                return;
            }
            _ => None,
        };
        if has_greeted {
            return self.reject_standby("it asks before it is wanted");
        }
        let Some(greeting) = greeting else {
            return self.reject_standby("it sends what is no greeting");
        };
        let child = self.child.as_ref();
        let writes = child.and_then(|child| Some(*child.greeting.as_ref()?.formats.end()));
        let (formats, version) = (greeting.formats.clone(), greeting.version.clone());
        standby.child.greeting = Some(greeting);
        let Some(asked) = standby.asked else {
            return;
        };
        if writes.is_none_or(|writes| formats.contains(&writes)) {
            let reply = Message::new(kind::UPGRADE | kind::REPLY, asked);
            let reply = reply.with(field::VERSION, version.as_bytes());
            return self.tell_child(&reply, None);
        }
        self.reject_standby(&format!(
            "it reads controllers' states of the formats {} to {}, and this server writes format {}",
            formats.start(),
            formats.end(),
            writes.unwrap_or_default()
        ));
    }

    /// The process that waits has ended.
    pub(super) fn bury_standby(&mut self) {
        self.hear_standby();
        // The event may be that of one before.
        let ended = |it: &mut Standby| it.child.has_ended();
        let Some(standby) = self.succession.standby.take_if(ended) else {
            return;
        };
        let has_greeted = standby.child.greeting.is_some();
        let said = match standby.child.wait() {
            Ok(end) if !has_greeted => format!(
                "it ended ({end}) before it said what it can read: is it nvmirage, of a version with --survive? What it printed is in the server's log"
            ),
            Ok(end) => format!("it ended ({end})"),
            Err(error) => error.to_string(),
        };
        self.refuse_upgrade(standby.asked, &said);
    }

    fn reject_standby(&mut self, why: &str) {
        let asked = self.succession.standby.as_ref().and_then(|it| it.asked);
        self.dismiss_standby();
        self.refuse_upgrade(asked, why);
    }

    fn refuse_upgrade(&mut self, asked: Option<u32>, why: &str) {
        if let Some(asked) = asked {
            tracing::warn!("an upgrade is refused: {why}");
            let why = format!("the program cannot go on where this one ends: {why}");
            let reply = Message::new(kind::UPGRADE | kind::REPLY, asked);
            self.tell_child(&reply.with(field::REFUSED, why.as_bytes()), None);
            self.succession.prepares_at = Some(Instant::now() + SETTLED);
        } else {
            tracing::warn!("a process that was to wait for the worker's end is gone: {why}");
        }
    }

    /// Does what the time has come for.
    pub(super) fn look_at_succession(&mut self) {
        let now = Instant::now();
        let standby = self.succession.standby.as_ref();
        let is_silent = standby.is_some_and(|it| {
            it.asked.is_some() && it.child.greeting.is_none() && now >= it.child.started + GREETING
        });
        let is_unwanted = standby.is_some_and(|it| {
            it.asked.is_some() && it.child.greeting.is_some() && now >= it.child.started + QUIET
        });
        if is_unwanted {
            tracing::error!("the server's process did not become quiet: the upgrade is cancelled");
            self.dismiss_standby();
            self.succession.prepares_at = Some(now);
        }
        if is_silent {
            self.reject_standby(&format!(
                "it sent no greeting within {} s",
                GREETING.as_secs()
            ));
        }
        if self.succession.prepares_at.is_some_and(|at| now >= at) {
            self.succession.prepares_at = None;
            let program = self.succession.program.clone();
            if !self.is_ending
                && self.succession.standby.is_none()
                && let Err(error) = self.stand_by(&program, None)
            {
                tracing::warn!("cannot start a process that waits for the worker's end: {error}");
            }
        }
    }
}

/// Content of a greeting.
pub(super) fn greeting_of(hello: &Message) -> Option<Greeting> {
    let number = |field| hello.number_in(field).ok().flatten();
    let (from, to) = (number(field::READS_FROM)?, number(field::WRITES)?);
    Some(Greeting {
        number: hello.number,
        version: hello.text(field::VERSION)?,
        formats: from..=to,
    })
}
