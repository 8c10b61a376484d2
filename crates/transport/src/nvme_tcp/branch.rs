//! An I/O queue of an association whose lane lives on another reactor than the controller: it is
//! served there.
//!
//! It has all that serving it needs, so it is given from one reactor to the other as it is, at any
//! time, and no other thread has a part of it. Its Connect, its authentication and its end are its
//! association's.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use controller::lane::Lane;
use port::namespace::NamespaceTable;
use port::time::Time;

use super::TargetConfig;
use super::connection::End;
use super::newcomer::Farewell;
use super::pace::{CHECK_NS, HOT_NS, Polled, SLOT_NS};
use super::queue::{Queue, Shared};
use super::slots::LargeSlots;
use crate::host::Bells;

impl Bells for Lane {
    fn namespaces(&self) -> &NamespaceTable {
        Lane::namespaces(self)
    }

    fn ring(&mut self, qid: u16, tail: u32, head: u32) {
        Lane::ring(self, qid, tail, head);
    }
}

/// See the module.
#[derive(Debug)]
pub struct Branch {
    pub(super) queue: Box<Queue>,
    config: Arc<TargetConfig>,
    large: Arc<LargeSlots>,
    polled: Time,
    check_at: Time,
}

impl Branch {
    pub(super) fn new(
        queue: Box<Queue>,
        config: Arc<TargetConfig>,
        large: Arc<LargeSlots>,
        now: Time,
    ) -> Self {
        Self {
            queue,
            config,
            large,
            polled: now,
            check_at: now + CHECK_NS,
        }
    }

    /// Its queue identifier, which is also that of its completion queue.
    #[must_use]
    pub fn qid(&self) -> u16 {
        self.queue.qid()
    }

    /// Reads its socket, gives commands to its lane and answers to its host. Due when the socket is
    /// readable, or writable where that is wanted, at [`Self::next_deadline`], and after a turn
    /// while it works. The queue is over when it has ended: its association is to know.
    pub fn poll(&mut self, lane: &mut Lane, now: Time) -> Polled {
        self.poll_some(lane, now, true)
    }

    /// As [`Self::poll`], in a turn in which no poller has said that the socket is readable: it is
    /// read only if something came or was sent a moment ago.
    pub fn poll_hot(&mut self, lane: &mut Lane, now: Time) -> Polled {
        let is_hot = now.since(self.queue.active) <= HOT_NS || self.queue.connection.has_pending();
        self.poll_some(lane, now, is_hot)
    }

    fn poll_some(&mut self, lane: &mut Lane, now: Time, reads: bool) -> Polled {
        let (worked, ended) = match self.serve(lane, now, reads) {
            Ok(worked) => (worked, None),
            Err(end) => (true, Some(end)),
        };
        Polled { worked, ended }
    }

    fn serve(&mut self, lane: &mut Lane, now: Time, reads: bool) -> Result<bool, End> {
        self.polled = now;
        let queue = &mut *self.queue;
        // Completions leave first: the host waits for them.
        let mut worked = queue.drain(&mut None) && queue.send(now)?;
        if reads {
            worked |= queue.read(&Shared {
                namespaces: lane.namespaces(),
                config: &self.config,
                ready: true,
                lane: Some(lane),
                now,
            })?;
        }
        while let Some((index, sqe)) = queue.next_fabrics() {
            queue.take_message(index, sqe.fabrics_type(), now);
            worked = true;
        }
        queue.grant(now);
        worked |= queue.submit(lane);
        worked |= queue.drain(&mut None);
        worked |= queue.send(now)?;
        if self.large.are_lost() {
            return Err(End::MediumHangs);
        }
        if now >= self.check_at {
            self.check_at = now + CHECK_NS;
            queue.check(now)?;
        }
        Ok(worked || queue.has_work(true) || queue.connection.has_pending())
    }

    /// Whether its lane has completed something, seen without the lane.
    #[must_use]
    pub fn has_posted(&self) -> bool {
        !self.queue.is_idle() && self.queue.rings.has_completion()
    }

    /// Whether its socket is to be polled for writing.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        self.queue.connection.is_blocked()
    }

    /// When it must be polled although nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let waits_for_slot = self.queue.waits_for_slot();
        let slot = waits_for_slot.then_some(self.polled + SLOT_NS);
        let check = self.queue.has_deadline().then_some(self.check_at);
        slot.into_iter().chain(check).min()
    }

    /// The connection of a queue whose association is over: the caller polls it until it has
    /// closed.
    #[must_use]
    pub fn leave(self, now: Time) -> Farewell {
        let mut connection = self.queue.part().0;
        connection.forget();
        Farewell::new(connection, now)
    }
}

impl AsFd for Branch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.connection.as_fd()
    }
}
