//! The host's side of a dynamic controller: an association over NVMe/TCP, an NBD client, a front
//! end of vhost-user-blk, or a block device of this machine.

use std::fmt;

use ::ublk::Ring;
use controller::Controller;
use port::time::Time;
use transport::nbd::{self, Client};
use transport::nvme_tcp::{Association, End, Farewell, Proof};
use transport::ublk;
use transport::vhost_user::{self, Session};

use crate::network::Done;

/// See the module.
#[derive(Debug)]
pub(crate) enum Link {
    Tcp(Box<Association>),
    Nbd(Box<Client>),
    Vhost(Box<Session>),
    Ublk(Box<ublk::Session<Ring>>),
}

/// Why the reactor ends a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Others have come first.
    TooMany,
    /// The operator has ended it, or its entrance is being removed.
    Removed,
}

/// How it has ended by itself.
#[derive(Debug)]
pub(super) enum Ended {
    Tcp(End),
    Nbd(nbd::End),
    Vhost(vhost_user::End),
    Ublk(ublk::End),
}

impl Ended {
    /// A short name, for counters.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Ended::Tcp(end) => end.name(),
            Ended::Nbd(end) => end.name(),
            Ended::Vhost(end) => end.name(),
            Ended::Ublk(end) => end.name(),
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Tcp(end) => end.fmt(f),
            Ended::Nbd(end) => end.fmt(f),
            Ended::Vhost(end) => end.fmt(f),
            Ended::Ublk(end) => end.fmt(f),
        }
    }
}

impl Link {
    /// Proof of the host. Only one over NVMe/TCP has something to prove.
    #[inline]
    pub(super) fn proof(&self) -> Proof {
        match self {
            Link::Tcp(association) => association.proof(),
            Link::Nbd(_) | Link::Vhost(_) | Link::Ublk(_) => Proof::Unasked,
        }
    }

    /// Whether a hot poll of a front end only carries commands and completions.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        match self {
            Link::Vhost(session) => session.is_running(),
            Link::Ublk(session) => session.is_running(),
            Link::Tcp(_) | Link::Nbd(_) => false,
        }
    }

    /// Reads its sockets, takes completions, and sends. Whether it did something, and its end. A
    /// hot poll, which no event has led to, may leave sockets alone.
    #[inline]
    pub(super) fn poll(
        &mut self,
        controller: &mut Controller,
        now: Time,
        is_hot: bool,
    ) -> (bool, Option<Ended>) {
        match self {
            Link::Tcp(association) => {
                let polled = if is_hot {
                    association.poll_hot(controller, now)
                } else {
                    association.poll(controller, now)
                };
                (polled.worked, polled.ended.map(Ended::Tcp))
            }
            Link::Nbd(client) => {
                let polled = client.poll(controller, now);
                (polled.worked, polled.ended.map(Ended::Nbd))
            }
            Link::Vhost(session) => {
                let polled = session.poll(controller, now, is_hot);
                (polled.worked, polled.ended.map(Ended::Vhost))
            }
            Link::Ublk(session) => {
                let polled = session.poll(controller, now, is_hot);
                (polled.worked, polled.ended.map(Ended::Ublk))
            }
        }
    }

    #[inline]
    pub(super) fn has_io_in_flight(&self) -> bool {
        match self {
            Link::Tcp(association) => association.has_io_in_flight(),
            Link::Nbd(client) => client.has_io_in_flight(),
            Link::Vhost(session) => session.has_io_in_flight(),
            Link::Ublk(session) => session.has_io_in_flight(),
        }
    }

    #[inline]
    pub(super) fn next_deadline(&self) -> Option<Time> {
        match self {
            Link::Tcp(association) => association.next_deadline(),
            Link::Nbd(client) => client.next_deadline(),
            Link::Vhost(session) => session.next_deadline(),
            Link::Ublk(session) => session.next_deadline(),
        }
    }

    #[inline]
    pub(super) fn has_posted(&self, io: bool) -> bool {
        match self {
            Link::Tcp(association) => association.has_posted(io),
            Link::Nbd(client) => client.has_posted(io),
            Link::Vhost(session) => session.has_posted(io),
            Link::Ublk(session) => session.has_posted(io),
        }
    }

    /// Whether it can go on with the namespaces that its controller has now.
    #[inline]
    pub(super) fn is_valid(&self, controller: &Controller) -> bool {
        match self {
            // Its host is notified of changes.
            Link::Tcp(_) => true,
            Link::Nbd(client) => client.is_valid(controller),
            Link::Vhost(session) => session.is_valid(controller),
            Link::Ublk(session) => session.is_valid(controller),
        }
    }

    #[inline]
    pub(super) fn drain(&mut self, controller: &mut Controller, now: Time) -> bool {
        match self {
            Link::Tcp(association) => association.drain(controller, now),
            Link::Nbd(client) => client.drain(controller, now),
            Link::Vhost(session) => session.drain(controller, now),
            Link::Ublk(session) => session.drain(controller, now),
        }
    }

    /// Grows where the connections, or what they are watched for, have changed.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        match self {
            Link::Tcp(association) => association.changes(),
            Link::Nbd(client) => client.changes(),
            Link::Vhost(session) => session.changes(),
            // It is watched by one descriptor for as long as it lives.
            Link::Ublk(_) => 0,
        }
    }

    /// How it ends by the reactor.
    pub(super) fn ended_by(&self, cause: Cause) -> Ended {
        match (self, cause) {
            (Link::Tcp(_), Cause::TooMany) => Ended::Tcp(End::TooManyHosts),
            (Link::Tcp(_), Cause::Removed) => Ended::Tcp(End::Removed),
            (Link::Nbd(_), Cause::TooMany) => Ended::Nbd(nbd::End::TooManyClients),
            (Link::Nbd(_), Cause::Removed) => Ended::Nbd(nbd::End::Removed),
            (Link::Vhost(_), Cause::TooMany) => Ended::Vhost(vhost_user::End::Taken),
            (Link::Vhost(_), Cause::Removed) => Ended::Vhost(vhost_user::End::Removed),
            (Link::Ublk(_), Cause::TooMany) => Ended::Ublk(ublk::End::Taken),
            (Link::Ublk(_), Cause::Removed) => Ended::Ublk(ublk::End::Removed),
        }
    }

    pub(super) fn counters(&self) -> Done {
        match self {
            Link::Tcp(association) => Done::Tcp(association.counters()),
            Link::Nbd(client) => Done::Nbd(client.counters()),
            Link::Vhost(session) => Done::Vhost(session.counters()),
            Link::Ublk(session) => Done::Ublk(session.counters()),
        }
    }

    /// Ends it, with an end of its own kind: its queues that are to come back from other reactors,
    /// and the connections that are to close. The socket of an NBD client or front end closes here.
    pub(super) fn end(self, ended: &Ended, now: Time) -> (Vec<u16>, Vec<Farewell>) {
        match (self, ended) {
            (Link::Tcp(mut association), Ended::Tcp(end)) => {
                association.recall_all();
                let recalls = association.take_recalls();
                (recalls, association.end(end, now))
            }
            (Link::Ublk(session), Ended::Ublk(end)) => {
                session.end(end);
                (Vec::new(), Vec::new())
            }
            _ => (Vec::new(), Vec::new()),
        }
    }
}
