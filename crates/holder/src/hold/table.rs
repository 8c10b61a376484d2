//! All hosts of a holder, and the connections that it ends.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::epoll::EventFlags;
use vfio_user::Parting;
use vfio_user::relayed::{Arrival, Outbox};

use super::session::{Fate, Session};
use super::{Poller, Source, WORDLESS, monotonic};

/// Connections of one path at most; others wait in the kernel.
const MAX_SESSIONS: usize = 16;

/// A host and how it is waited for.
#[derive(Debug)]
struct Entry {
    session: Session,
    /// The path that it came by.
    listening: usize,
    /// As the poller has them; none: it is not there.
    host: Option<EventFlags>,
    worker: Option<EventFlags>,
    /// Since when the worker's end is closed without a word.
    wordless: Option<Instant>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Table {
    entries: Vec<Option<Entry>>,
    partings: Vec<Option<Parting>>,
    /// The worker has sent what is no message.
    worker_is_broken: bool,
}

impl Table {
    /// Whether another host of a path may enter.
    pub(super) fn has_room(&self, listening: usize) -> bool {
        self.of(listening).len() < MAX_SESSIONS
    }

    fn of(&self, listening: usize) -> Vec<usize> {
        let entries = self.entries.iter().enumerate();
        let of = entries.filter_map(move |(at, entry)| {
            let entry = entry.as_ref()?;
            (entry.listening == listening).then_some(at)
        });
        of.collect()
    }

    /// A host has connected.
    pub(super) fn enter(
        &mut self,
        listening: usize,
        stream: UnixStream,
        outbox: &Outbox,
        poller: &Poller,
    ) {
        let session = match Session::new(Arrival::ours(stream)) {
            Ok(session) => session,
            Err(error) => return tracing::error!("cannot take a host: {error}"),
        };
        let entry = Entry {
            session,
            listening,
            host: None,
            worker: None,
            wordless: None,
        };
        let free = self.entries.iter().position(Option::is_none);
        let at = free.unwrap_or(self.entries.len());
        match free {
            Some(at) => self.entries[at] = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        self.give(at, outbox, poller);
    }

    /// Gives the hosts of a path to a worker; the one that a former worker served comes first.
    pub(super) fn give_all(&mut self, listening: usize, outbox: &Outbox, poller: &Poller) {
        let resumed = |table: &Self, at: usize| {
            let entry = table.entries[at].as_ref();
            entry.is_some_and(|entry| entry.session.is_resumed())
        };
        let mut all = self.of(listening);
        all.sort_by_key(|at| !resumed(self, *at));
        for at in all {
            self.give(at, outbox, poller);
        }
    }

    fn give(&mut self, at: usize, outbox: &Outbox, poller: &Poller) {
        let Some(entry) = &mut self.entries[at] else {
            return;
        };
        let session = &mut entry.session;
        let given = UnixStream::pair().and_then(|(ours, theirs)| {
            let is_given = outbox.give(theirs.as_fd(), session.process, session.is_resumed())?;
            if is_given {
                session.give_to(ours)?;
            }
            Ok(is_given)
        });
        match given {
            Ok(true) => {
                entry.worker = None;
                entry.wordless = None;
                match entry.session.begin_lessons() {
                    Ok(()) => self.look(at, false, poller),
                    Err(fate) => self.settle(at, fate, poller),
                }
            }
            Ok(false) => self.end(at, poller),
            Err(error) => {
                // Mostly it has died: then the next one gets the host.
                tracing::debug!("cannot give a host to the server's process: {error}");
                self.settle(at, Fate::WorkerGone, poller);
            }
        }
    }

    /// Relays the messages between a host and the worker. `is_gone`: the host has closed its
    /// socket.
    pub(super) fn look(&mut self, at: usize, is_gone: bool, poller: &Poller) {
        let Some(entry) = self.entries.get_mut(at).and_then(Option::as_mut) else {
            return;
        };
        let fate = entry.session.look();
        let (_, reads, _) = entry.session.host_interest();
        let fate = match fate {
            Fate::Goes if is_gone && !reads => Fate::Over,
            fate => fate,
        };
        self.settle(at, fate, poller);
    }

    fn settle(&mut self, at: usize, fate: Fate, poller: &Poller) {
        match fate {
            Fate::Goes => {}
            Fate::Over => return self.end(at, poller),
            Fate::WorkerGone | Fate::WorkerBroken => {
                self.worker_is_broken |= fate == Fate::WorkerBroken;
                if let Some(entry) = &mut self.entries[at] {
                    entry.wordless.get_or_insert_with(Instant::now);
                }
            }
        }
        if let Some(entry) = &mut self.entries[at]
            && let Err(error) = entry.watch(at, poller)
        {
            tracing::error!("cannot wait for a host: {error}");
            self.end(at, poller);
        }
    }

    /// Whether the worker has sent what is no message since the last call.
    pub(super) fn take_worker_is_broken(&mut self) -> bool {
        std::mem::take(&mut self.worker_is_broken)
    }

    /// The worker has died.
    pub(super) fn lose_worker(&mut self, crashed: bool, poller: &Poller) {
        for at in 0..self.entries.len() {
            let Some(entry) = &mut self.entries[at] else {
                continue;
            };
            entry.forget_worker(poller);
            let fate = entry.session.lose_worker(crashed);
            entry.wordless = None;
            self.settle(at, fate, poller);
        }
    }

    /// There is no worker any more.
    pub(super) fn strike(&mut self, poller: &Poller) {
        for at in 0..self.entries.len() {
            if let Some(entry) = &mut self.entries[at] {
                entry.session.strike();
                self.look(at, false, poller);
            }
        }
    }

    /// Ends the hosts of a path.
    pub(super) fn end_all(&mut self, listening: usize, poller: &Poller) {
        for at in self.of(listening) {
            self.end(at, poller);
        }
    }

    fn end(&mut self, at: usize, poller: &Poller) {
        let Some(mut entry) = self.entries[at].take() else {
            return;
        };
        entry.forget_worker(poller);
        if entry.host.is_some() {
            let (host, ..) = entry.session.host_interest();
            if let Err(error) = poller.remove(host) {
                tracing::error!("cannot forget a host: {error}");
            }
        }
        let mut parting = entry.session.part();
        if parting.poll(now()) {
            return;
        }
        let free = self.partings.iter().position(Option::is_none);
        let at = free.unwrap_or(self.partings.len());
        // Its deadline applies nevertheless.
        let _ = poller.add(parting.as_fd(), Source::Parting(at), EventFlags::IN);
        match free {
            Some(at) => self.partings[at] = Some(parting),
            None => self.partings.push(Some(parting)),
        }
    }

    /// Reads what a host still sends whose connection ends.
    pub(super) fn look_parting(&mut self, at: usize, poller: &Poller) {
        let Some(parting) = self.partings.get_mut(at) else {
            return;
        };
        if parting.as_mut().is_some_and(|parting| parting.poll(now())) {
            let _ = parting.take().map(|parting| poller.remove(parting.as_fd()));
        }
    }

    /// Ends what has waited for too long. A worker that is dying is waited for: the kernel closes
    /// its sockets first.
    pub(super) fn look_at_time(&mut self, worker_is_dying: impl Fn() -> bool, poller: &Poller) {
        for at in 0..self.partings.len() {
            self.look_parting(at, poller);
        }
        for at in 0..self.entries.len() {
            let entry = self.entries[at].as_mut();
            let Some(since) = entry.and_then(|entry| entry.wordless.as_mut()) else {
                continue;
            };
            if since.elapsed() < WORDLESS {
                continue;
            }
            if worker_is_dying() {
                *since = Instant::now();
                continue;
            }
            self.end(at, poller);
        }
    }

    /// When [`Self::look_at_time`] has something to do.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let entries = self.entries.iter().flatten();
        let wordless = entries.filter_map(|entry| Some(entry.wordless? + WORDLESS));
        let partings = self.partings.iter().flatten();
        let partings = partings.filter_map(|parting| {
            let left = parting.deadline()?.saturating_sub(now());
            Some(Instant::now() + std::time::Duration::from_nanos(left))
        });
        wordless.chain(partings).min()
    }
}

impl Entry {
    /// Has the poller wait for what the session can do next.
    fn watch(&mut self, at: usize, poller: &Poller) -> std::io::Result<()> {
        let (host, reads, writes) = self.session.host_interest();
        let wanted = flags(reads, writes);
        update(poller, host, Source::Host(at), &mut self.host, wanted)?;
        if self.wordless.is_some() {
            self.forget_worker(poller);
        } else if let Some((worker, reads, writes)) = self.session.worker_interest() {
            let wanted = flags(reads, writes);
            if wanted.is_empty() {
                // Its end would be an event again and again.
                self.forget_worker(poller);
                return Ok(());
            }
            update(poller, worker, Source::Worker(at), &mut self.worker, wanted)?;
        }
        Ok(())
    }

    fn forget_worker(&mut self, poller: &Poller) {
        if self.worker.take().is_some()
            && let Some((worker, ..)) = self.session.worker_interest()
            && let Err(error) = poller.remove(worker)
        {
            tracing::error!("cannot forget a connection: {error}");
        }
    }
}

fn flags(reads: bool, writes: bool) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, reads);
    flags.set(EventFlags::OUT, writes);
    flags
}

fn update(
    poller: &Poller,
    fd: BorrowedFd<'_>,
    source: Source,
    now: &mut Option<EventFlags>,
    wanted: EventFlags,
) -> std::io::Result<()> {
    match *now {
        Some(flags) if flags == wanted => return Ok(()),
        Some(_) => poller.modify(fd, source, wanted)?,
        None => poller.add(fd, source, wanted)?,
    }
    *now = Some(wanted);
    Ok(())
}

fn now() -> u64 {
    u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX)
}
