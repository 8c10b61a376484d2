//! Connections over NVMe/TCP that are to close, of hosts and of those that became none.
//!
//! Each closes when its host has closed it, or after a bound ([`Farewell`]). They belong to the
//! reactor: a controller may be gone before them, and a reactor that ends waits for them.
//! The poller that watches them is watched by the reactor's.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use port::time::Time;
use transport::nvme_tcp::Farewell;

use crate::poller::{Interest, Poller, Source, source_of};

/// Connections at the same time. Of more the oldest close at once.
const MAX: usize = 4096;
/// How long a reactor that ends waits for each.
const END_NS: u64 = 1_000_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// By number, in order of their end, with the time of it.
    farewells: BTreeMap<usize, (Farewell, Time)>,
    /// Connections so far.
    seen: usize,
    poller: Poller,
}

impl Leaving {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            farewells: BTreeMap::new(),
            seen: 0,
            poller: Poller::new()?,
        })
    }

    /// Adds a connection, which no other poller watches.
    pub(crate) fn add(&mut self, mut farewell: Farewell, now: Time) {
        if farewell.poll(now) {
            return;
        }
        if self.farewells.len() >= MAX {
            self.farewells.pop_first();
        }
        let number = self.seen;
        self.seen += 1;
        self.watch(number, &farewell);
        self.farewells.insert(number, (farewell, now));
    }

    fn watch(&self, number: usize, farewell: &Farewell) {
        let interest = Interest {
            input: true,
            output: farewell.wants_write(),
        };
        let source = Source::Controller(number);
        if let Err(error) = self.poller.set(farewell, source, interest) {
            // Its deadline applies nevertheless.
            tracing::debug!("cannot watch a connection that closes: {error}");
        }
    }

    /// Sends what is left, and drops what comes; true if it did something.
    pub(crate) fn poll(&mut self, now: Time) -> bool {
        self.wait(Duration::ZERO, now)
    }

    fn wait(&mut self, at_most: Duration, now: Time) -> bool {
        let mut ready = Vec::new();
        match self.poller.wait(at_most) {
            Ok(events) => ready.extend(events.iter().map(source_of)),
            Err(error) => tracing::error!("cannot wait for connections that close: {error}"),
        }
        for source in &ready {
            let Source::Controller(number) = *source else {
                continue;
            };
            let Some((farewell, _)) = self.farewells.get_mut(&number) else {
                continue;
            };
            let wanted_write = farewell.wants_write();
            if farewell.poll(now) {
                self.farewells.remove(&number);
            } else if farewell.wants_write() != wanted_write {
                let (farewell, _) = &self.farewells[&number];
                self.watch(number, farewell);
            }
        }
        // All have the same bound, so the oldest is due first.
        while let Some(first) = self.farewells.first_entry()
            && now >= first.get().0.deadline()
        {
            first.remove();
        }
        !ready.is_empty()
    }

    /// Whether all have closed.
    pub(crate) fn is_empty(&self) -> bool {
        self.farewells.is_empty()
    }

    /// When it must be polled although nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let first = self.farewells.first_key_value();
        first.map(|(_, (farewell, _))| farewell.deadline())
    }

    /// Waits until all have closed, within a bound: the process may end after it.
    pub(crate) fn finish(&mut self, now: impl Fn() -> Time) {
        while let Some((_, (_, since))) = self.farewells.last_key_value() {
            let (now, until) = (now(), *since + END_NS);
            if now >= until {
                break;
            }
            self.wait(Duration::from_nanos(until.since(now)), now);
        }
        self.farewells.clear();
    }
}

impl AsFd for Leaving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}
