//! A controller's listening socket, and the connections on it that are not hosts yet.
//!
//! Up to [`MAX_CALLERS`] connections introduce themselves at the same time, so a silent one does
//! not block the others. The first to finish becomes the next host; while a host is attached, the
//! others are refused. Further connections wait in the kernel's backlog, which is bounded, too.
//!
//! The controller decides when the next host may attach: it must be quiet.

use std::io;
use std::os::fd::AsFd;

use port::time::Time;
use transport::vfio_user::{Caller, CallerEnd, Entrance};

use super::poller::{Poller, Source};

/// Connections that may introduce themselves at the same time.
const MAX_CALLERS: usize = 8;
/// Pause after a failed accept, such as with too many open files.
const PAUSE_NS: u64 = 100_000_000;

/// Whether the drive has a host, as reported to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    /// No host, or one that is leaving.
    Free,
    /// Attached host, with its process where known.
    Taken(Option<u32>),
}

impl Seat {
    fn is_taken(self) -> bool {
        matches!(self, Seat::Taken(_))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Door {
    entrance: Entrance,
    source: Source,
    /// In order of arrival.
    callers: Vec<Caller>,
    /// Whether the listening socket is watched.
    is_watched: bool,
    /// Time of the next accept, after a failure.
    accepts_at: Option<Time>,
    /// Messages logged since the last host attached.
    logged: Logged,
}

#[derive(Debug, Default)]
struct Logged {
    cannot_accept: bool,
    silent: bool,
    refused: bool,
}

impl Door {
    pub(crate) fn new(entrance: Entrance, source: Source) -> Self {
        Door {
            entrance,
            source,
            callers: Vec::new(),
            is_watched: false,
            accepts_at: None,
            logged: Logged::default(),
        }
    }

    /// Watches the listening socket only while there is room: a full door would wake the reactor
    /// continuously.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        let watches = self.callers.len() < MAX_CALLERS && self.accepts_at.is_none();
        if watches && !self.is_watched {
            poller.add(self.entrance.as_fd(), self.source)?;
        } else if !watches && self.is_watched {
            poller.remove(self.entrance.as_fd())?;
        }
        self.is_watched = watches;
        Ok(())
    }

    /// Accepts connections, reads their introductions, and refuses or closes them. Returns whether
    /// it did anything.
    pub(crate) fn poll(&mut self, name: &str, seat: Seat, now: Time, poller: &Poller) -> bool {
        let accepted = self.accept(name, now, poller);
        let dismissed = self.hear(name, seat, now, poller);
        self.rewatch(name, poller);
        accepted || dismissed
    }

    fn rewatch(&mut self, name: &str, poller: &Poller) {
        if let Err(error) = self.watch(poller) {
            tracing::error!(controller = name, "cannot wait for hosts: {error}");
        }
    }

    fn accept(&mut self, name: &str, now: Time, poller: &Poller) -> bool {
        if self.accepts_at.is_some_and(|at| now < at) {
            return false;
        }
        self.accepts_at = None;
        let before = self.callers.len();
        while self.callers.len() < MAX_CALLERS {
            let accepted = self.entrance.accept().and_then(|arrival| {
                let caller = arrival.map(|arrival| Caller::new(arrival, now));
                let caller = caller.transpose()?;
                if let Some(caller) = &caller {
                    poller.add(caller.as_fd(), self.source)?;
                }
                Ok(caller)
            });
            match accepted {
                Ok(Some(caller)) => self.callers.push(caller),
                Ok(None) => break,
                Err(error) => {
                    self.accepts_at = Some(now + PAUSE_NS);
                    if !std::mem::replace(&mut self.logged.cannot_accept, true) {
                        tracing::error!(controller = name, "cannot accept a host: {error}");
                    }
                    break;
                }
            }
        }
        self.callers.len() > before
    }

    fn hear(&mut self, name: &str, seat: Seat, now: Time, poller: &Poller) -> bool {
        let mut dismissed = false;
        let mut at = 0;
        while at < self.callers.len() {
            let caller = &mut self.callers[at];
            let was_silent = !caller.is_introduced();
            match caller.poll(now, seat.is_taken()) {
                Ok(()) => {
                    if was_silent && caller.is_introduced() {
                        // further messages belong to the session
                        forget(name, caller, poller);
                    }
                    at += 1;
                }
                Err(end) => {
                    let caller = self.callers.remove(at);
                    if !caller.is_introduced() {
                        forget(name, &caller, poller);
                    }
                    self.dismiss(name, caller, &end, seat);
                    dismissed = true;
                }
            }
        }
        dismissed
    }

    fn dismiss(&mut self, name: &str, caller: Caller, end: &CallerEnd, seat: Seat) {
        let process = of_process(caller.process());
        match (end, seat) {
            (CallerEnd::Waited, Seat::Taken(host)) => {
                let host_process = of_process(host);
                if !std::mem::replace(&mut self.logged.refused, true) {
                    tracing::info!(
                        controller = name,
                        "a host is refused{process}: the drive has one{host_process}"
                    );
                }
                drop(caller.refuse(host));
            }
            (CallerEnd::Silent, _) => {
                if !std::mem::replace(&mut self.logged.silent, true) {
                    tracing::info!(controller = name, "a connection is closed{process}: {end}");
                }
                drop(caller.part());
            }
            _ => {
                tracing::debug!(controller = name, "a connection ended{process}: {end}");
                drop(caller.part());
            }
        }
    }

    /// Whether a connection is ready to become the host.
    pub(crate) fn has_next(&self) -> bool {
        self.callers.iter().any(Caller::is_introduced)
    }

    /// Takes the next host, whose socket is then no longer watched.
    pub(crate) fn take_next(&mut self, name: &str, poller: &Poller) -> Option<Caller> {
        let at = self.callers.iter().position(Caller::is_introduced)?;
        let caller = self.callers.remove(at);
        self.rewatch(name, poller);
        Some(caller)
    }

    /// Resets the messages logged once per host, because a host has attached.
    pub(crate) fn host_came(&mut self) {
        self.logged = Logged::default();
    }

    /// The next deadline of its connections.
    pub(crate) fn next_deadline(&self, seat: Seat) -> Option<Time> {
        let callers = self.callers.iter();
        let bounds = callers.filter_map(|caller| caller.deadline(seat.is_taken()));
        bounds.chain(self.accepts_at).min()
    }

    /// Closes all connections, and stops watching.
    pub(crate) fn close(&mut self, name: &str, poller: &Poller) {
        for caller in std::mem::take(&mut self.callers) {
            if !caller.is_introduced() {
                forget(name, &caller, poller);
            }
            drop(caller.part());
        }
        if std::mem::take(&mut self.is_watched)
            && let Err(error) = poller.remove(self.entrance.as_fd())
        {
            tracing::error!(controller = name, "cannot forget a socket: {error}");
        }
    }
}

fn forget(name: &str, caller: &Caller, poller: &Poller) {
    if let Err(error) = poller.remove(caller.as_fd()) {
        tracing::error!(controller = name, "cannot forget a connection: {error}");
    }
}

/// The process, for the log.
fn of_process(process: Option<u32>) -> String {
    process.map_or_else(String::new, |process| format!(" (process {process})"))
}
