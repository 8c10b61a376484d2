//! Connections of an entrance that are no host's: bounded in number, each with a deadline.
//!
//! They have a poller of their own, which the reactor's poller watches: each is looked at when it
//! has something, or at its deadline, whatever the others do.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use port::time::Time;

use crate::poller::{Interest, Poller, Source, source_of};

/// Connections at the same time. A host over NVMe/TCP opens all of its connections before it
/// connects the first I/O queue (Linux), so this is several hosts that connect at once.
pub(crate) const MAX_CONNECTIONS: usize = 512;

/// A connection that is no host's.
pub(crate) trait Caller: AsFd {
    /// When it must be served although nothing happens.
    fn deadline(&self) -> Time;

    /// Events that its socket is watched for.
    fn interest(&self) -> Interest;

    /// Which gives way first where there are too many: low before high.
    fn rank(&self) -> u8;
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Callers<C> {
    /// By number, in order of arrival.
    all: BTreeMap<usize, C>,
    /// Connections so far.
    called: usize,
    poller: Poller,
    /// No deadline of a connection is before.
    due: Option<Time>,
}

impl<C: Caller> Callers<C> {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            all: BTreeMap::new(),
            called: 0,
            poller: Poller::new()?,
            due: None,
        })
    }

    /// The poller that watches them.
    pub(super) fn poller(&self) -> &Poller {
        &self.poller
    }

    /// Adds a connection; its number. Where there are too many, one gives way, which is returned:
    /// of the lowest rank the oldest.
    pub(crate) fn add(&mut self, caller: C) -> (usize, Option<C>) {
        let mut displaced = None;
        if self.all.len() >= MAX_CONNECTIONS {
            let first = self.all.iter().min_by_key(|(_, caller)| caller.rank());
            let first = first.map(|(number, _)| *number);
            displaced = first.and_then(|number| self.all.remove(&number));
        }
        let number = self.called;
        self.called += 1;
        self.insert(number, caller);
        (number, displaced)
    }

    /// Watches and keeps a connection by this number.
    pub(crate) fn insert(&mut self, number: usize, caller: C) {
        let source = Source::Controller(number);
        if let Err(error) = self.poller.set(&caller, source, caller.interest()) {
            // Its deadline applies nevertheless.
            tracing::debug!("cannot watch a connection: {error}");
        }
        self.look_at(caller.deadline());
        self.all.insert(number, caller);
    }

    /// Those whose sockets have something, or whose deadline has come. Some may be there no more.
    /// They are to be served, and then comes [`Self::note_deadlines`].
    pub(crate) fn take_ready(&mut self, now: Time) -> Vec<usize> {
        let number = |source| match source {
            Source::Controller(number) => Some(number),
            _ => None,
        };
        let mut all: Vec<usize> = match self.poller.wait(Duration::ZERO) {
            Ok(events) => events.iter().map(source_of).filter_map(number).collect(),
            Err(error) => {
                tracing::error!("cannot wait for connections: {error}");
                Vec::new()
            }
        };
        if self.due.is_some_and(|due| now >= due) {
            let late = self.all.iter().filter(|(_, it)| now >= it.deadline());
            all.extend(late.map(|(number, _)| *number));
            all.sort_unstable();
            all.dedup();
        }
        all
    }

    /// Finds the next deadline, where that has come.
    pub(super) fn note_deadlines(&mut self, now: Time) {
        if self.due.is_some_and(|due| now >= due) {
            self.due = self.all.values().map(Caller::deadline).min();
        }
    }

    /// A connection has this deadline.
    fn look_at(&mut self, deadline: Time) {
        self.due = Some(self.due.map_or(deadline, |due| due.min(deadline)));
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut C> {
        self.all.get_mut(&number)
    }

    /// All of them, with their numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut C)> {
        self.all
            .iter_mut()
            .map(|(number, caller)| (*number, caller))
    }

    /// Takes a connection out. Its socket may live on as a host's, which another poller watches.
    pub(crate) fn remove(&mut self, number: usize) -> Option<C> {
        let caller = self.all.remove(&number);
        // One that could not be watched is not to be found.
        if let Some(caller) = &caller {
            let _ = self.poller.remove(caller);
        }
        caller
    }

    /// Watches a connection, which has been served, for what it waits for now.
    pub(crate) fn rewatch(&mut self, number: usize, before: Interest) {
        let Some(caller) = self.all.get(&number) else {
            return;
        };
        let (interest, source) = (caller.interest(), Source::Controller(number));
        let deadline = caller.deadline();
        if interest != before
            && let Err(error) = self.poller.set(caller, source, interest)
        {
            tracing::debug!("cannot watch a connection: {error}");
        }
        self.look_at(deadline);
    }

    /// Closes those that do not stay.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&C) -> bool) {
        let poller = &self.poller;
        self.all.retain(|_, caller| {
            let stays = stays(caller);
            if !stays {
                // Its socket is closed here.
                let _ = poller.remove(&*caller);
            }
            stays
        });
    }

    /// Takes all of them out.
    pub(crate) fn take_all(&mut self) -> Vec<C> {
        self.due = None;
        let all = std::mem::take(&mut self.all);
        let poller = &self.poller;
        let unwatched = all.into_values().inspect(|caller| {
            let _ = poller.remove(caller);
        });
        unwatched.collect()
    }

    /// A time before which no connection is due.
    pub(super) fn due(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
impl<C: Caller> Callers<C> {
    pub(crate) fn get(&self, number: usize) -> Option<&C> {
        self.all.get(&number)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn called(&self) -> usize {
        self.called
    }

    /// Number of events that wait in its poller.
    pub(crate) fn events(&mut self, wait: Duration) -> usize {
        self.poller.wait(wait).map_or(0, <[_]>::len)
    }
}
