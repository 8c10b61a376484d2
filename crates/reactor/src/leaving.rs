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

/// Connections of hosts at the same time. Of more the oldest close at once.
const MAX: usize = 4096;
/// The same of strangers.
const STRANGERS_MAX: usize = 256;
/// Connections that are served at a time: hosts have their turn.
const AT_ONCE: usize = 8;
/// How long a reactor that ends waits for each.
const END_NS: u64 = 1_000_000_000;

/// Whose connection it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// A host's.
    Host,
    /// Of one that has become no host. Anyone can have many: those of hosts do not give way to
    /// them.
    Stranger,
}

/// By number, in order of their end, with the time of it.
type Farewells = BTreeMap<usize, (Farewell, Time)>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Leaving {
    hosts: Farewells,
    strangers: Farewells,
    /// Connections so far.
    seen: usize,
    /// Where the next look begins: behind those that the last one served.
    next: usize,
    poller: Poller,
}

impl Leaving {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            hosts: BTreeMap::new(),
            strangers: BTreeMap::new(),
            seen: 0,
            next: 0,
            poller: Poller::new()?,
        })
    }

    /// Adds a connection, which no other poller watches.
    pub(crate) fn add(&mut self, mut farewell: Farewell, whose: Whose, now: Time) {
        if farewell.poll(now) {
            return;
        }
        let number = self.seen;
        self.seen += 1;
        watch(&self.poller, number, &farewell);
        let (farewells, most) = match whose {
            Whose::Host => (&mut self.hosts, MAX),
            Whose::Stranger => (&mut self.strangers, STRANGERS_MAX),
        };
        if farewells.len() >= most {
            farewells.pop_first();
        }
        farewells.insert(number, (farewell, now));
    }

    /// Sends what is left, and drops what comes; true if it did something.
    pub(crate) fn poll(&mut self, now: Time) -> bool {
        self.wait(Duration::ZERO, now)
    }

    fn wait(&mut self, at_most: Duration, now: Time) -> bool {
        let mut ready = Vec::new();
        let number = |source| match source {
            Source::Controller(number) => Some(number),
            _ => None,
        };
        match self.poller.wait(at_most) {
            Ok(events) => ready.extend(events.iter().map(source_of).filter_map(number)),
            Err(error) => tracing::error!("cannot wait for connections that close: {error}"),
        }
        // By turns.
        ready.sort_unstable();
        let next = ready.partition_point(|number| *number < self.next);
        ready.rotate_left(next);
        ready.truncate(AT_ONCE);
        for &number in &ready {
            self.serve(number, now);
            self.next = number + 1;
        }
        for farewells in [&mut self.hosts, &mut self.strangers] {
            // All have the same bound, so the oldest is due first.
            while let Some(first) = farewells.first_entry()
                && now >= first.get().0.deadline()
            {
                first.remove();
            }
        }
        !ready.is_empty()
    }

    fn serve(&mut self, number: usize, now: Time) {
        for farewells in [&mut self.hosts, &mut self.strangers] {
            let Some((farewell, _)) = farewells.get_mut(&number) else {
                continue;
            };
            let wanted_write = farewell.wants_write();
            if farewell.poll(now) {
                farewells.remove(&number);
            } else if farewell.wants_write() != wanted_write {
                watch(&self.poller, number, farewell);
            }
        }
    }

    /// Whether connections of hosts are to close.
    pub(crate) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty()
    }

    /// When it must be polled although nothing happens.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        let firsts = [&self.hosts, &self.strangers].map(Farewells::first_key_value);
        let deadlines = firsts.into_iter().flatten();
        deadlines
            .map(|(_, (farewell, _))| farewell.deadline())
            .min()
    }

    /// Waits until all have closed, within a bound: the process may end after it.
    pub(crate) fn finish(&mut self, now: impl Fn() -> Time) {
        let newest = |farewells: &Farewells| farewells.last_key_value().map(|it| it.1.1);
        while let Some(since) = newest(&self.hosts).max(newest(&self.strangers)) {
            let (now, until) = (now(), since + END_NS);
            if now >= until {
                break;
            }
            self.wait(Duration::from_nanos(until.since(now)), now);
        }
        self.hosts.clear();
        self.strangers.clear();
    }
}

fn watch(poller: &Poller, number: usize, farewell: &Farewell) {
    let interest = Interest {
        input: true,
        output: farewell.wants_write(),
    };
    let source = Source::Controller(number);
    if let Err(error) = poller.set(farewell, source, interest) {
        // Its deadline applies nevertheless.
        tracing::debug!("cannot watch a connection that closes: {error}");
    }
}

impl AsFd for Leaving {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    use transport::nvme_tcp::Newcomer;

    use super::*;
    use crate::hosted::target::tests::config;

    /// A connection that leaves, and its other end.
    fn parting() -> (Farewell, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let newcomer = Newcomer::new(ours.into(), Arc::new(config(None)), Time(0)).unwrap();
        (newcomer.arrive(Time(0)).unwrap_err(), theirs)
    }

    #[test]
    fn connections_of_hosts_do_not_give_way_to_those_of_strangers() {
        let mut leaving = Leaving::new().unwrap();
        let (host, _host) = parting();
        leaving.add(host, Whose::Host, Time(0));
        let mut strangers = Vec::new();
        for _ in 0..STRANGERS_MAX + 9 {
            let (farewell, other) = parting();
            leaving.add(farewell, Whose::Stranger, Time(0));
            strangers.push(other);
        }
        assert!(leaving.has_hosts());
        assert_eq!(leaving.strangers.len(), STRANGERS_MAX);
        // The oldest have closed, the others receive.
        assert!(strangers[8].write(&[4]).is_err() && strangers[9].write(&[4]).is_ok());
        let due = leaving.next_deadline().unwrap();
        leaving.poll(due);
        assert!(!leaving.has_hosts() && leaving.strangers.is_empty());
    }

    #[test]
    fn a_look_serves_some_connections_and_the_next_one_others() {
        let mut leaving = Leaving::new().unwrap();
        let mut others = Vec::new();
        for _ in 0..3 * AT_ONCE {
            let (farewell, other) = parting();
            leaving.add(farewell, Whose::Host, Time(0));
            others.push(other);
        }
        // All have more than is received at once.
        for other in &mut others {
            other.set_nonblocking(true).unwrap();
            while other.write(&[4; 4096]).is_ok() {}
        }
        for look in 1..=3 {
            assert!(leaving.poll(Time(0)));
            assert_eq!(leaving.next, look * AT_ONCE);
        }
    }
}
