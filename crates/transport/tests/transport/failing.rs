//! A medium that fails, keeps and counts what it is asked for.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use memory::{DmaView, Segment};
use port::ticket::Ticket;
use port::{Added, Cause, Channel, Done, Outcome};

/// A medium that does not only what it is asked for, and notes what that is.
pub(crate) struct Failing {
    inner: media::Channel,
    /// Reads that begin there fail.
    pub(crate) fails: Option<Range<u64>>,
    /// Writes that begin there fail.
    pub(crate) fails_writes: Option<Range<u64>>,
    /// How often a comparison finds a difference, as if another host had written.
    pub(crate) differs: u32,
    /// It keeps the commands that change something, and does not end them.
    pub(crate) holds: bool,
    held: Vec<Ticket>,
    /// It executes commands, and completes them when [`Self::release`] says so.
    pub(crate) delays: bool,
    delayed: VecDeque<Done>,
    released: Vec<Done>,
    /// Requests to it, except reads.
    pub(crate) asked: Vec<Asked>,
    /// Commands of any kind.
    pub(crate) commands: u64,
    /// Of each command that changes something, whether it has Force Unit Access; and `true` for
    /// each flush.
    pub(crate) stable: Vec<bool>,
}

impl Failing {
    pub(crate) fn new(inner: media::Channel) -> Self {
        Self {
            inner,
            fails: None,
            fails_writes: None,
            differs: 0,
            holds: false,
            held: Vec::new(),
            delays: false,
            delayed: VecDeque::new(),
            released: Vec::new(),
            asked: Vec::new(),
            commands: 0,
            stable: Vec::new(),
        }
    }

    /// Completes so many delayed commands, those first that are oldest, or newest.
    pub(crate) fn release(&mut self, count: usize, newest: bool) {
        for _ in 0..count {
            let done = if newest {
                self.delayed.pop_back()
            } else {
                self.delayed.pop_front()
            };
            self.released.extend(done);
        }
    }

    /// Commands that it keeps.
    pub(crate) fn kept(&self) -> usize {
        self.held.len() + self.delayed.len()
    }
}

/// A request to a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Write { fua: bool },
    Zero { fua: bool, deallocates: bool },
    Deallocate,
    Flush,
    Other,
}

impl Channel for Failing {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &port::Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        self.commands += 1;
        match request {
            port::Request::Write { fua, .. }
            | port::Request::CompareAndWrite { fua, .. }
            | port::Request::WriteZeroes { fua, .. } => self.stable.push(*fua),
            port::Request::Deallocate { .. } => self.stable.push(false),
            port::Request::Flush => self.stable.push(true),
            _ => {}
        }
        if let (port::Request::Read { offset, .. }, Some(fails)) = (request, &self.fails)
            && fails.contains(offset)
        {
            return Added::Done(ticket, Outcome::of(Cause::ReadFailed));
        }
        if let (port::Request::Write { offset, .. }, Some(fails)) = (request, &self.fails_writes)
            && fails.contains(offset)
        {
            return Added::Done(ticket, Outcome::of(Cause::WriteFailed));
        }
        let asked = match request {
            port::Request::Read { .. } => None,
            port::Request::Write { fua, .. } | port::Request::CompareAndWrite { fua, .. } => {
                Some(Asked::Write { fua: *fua })
            }
            port::Request::WriteZeroes {
                fua, deallocate, ..
            } => Some(Asked::Zero {
                fua: *fua,
                deallocates: *deallocate,
            }),
            port::Request::Deallocate { .. } => Some(Asked::Deallocate),
            port::Request::Flush => Some(Asked::Flush),
            _ => Some(Asked::Other),
        };
        self.asked.extend(asked);
        if self.holds && asked.is_some() {
            self.held.push(ticket);
            return Added::Pending;
        }
        if matches!(request, port::Request::CompareAndWrite { .. }) && self.differs > 0 {
            self.differs -= 1;
            return Added::Done(ticket, Outcome::of(Cause::CompareMismatch));
        }
        match self.inner.add(ticket, request, segments, view) {
            Added::Done(ticket, outcome) if self.delays => {
                self.delayed.push_back(Done { ticket, outcome });
                Added::Pending
            }
            added => added,
        }
    }

    fn submit(&mut self) {
        self.inner.submit();
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        done.append(&mut self.released);
        if self.delays {
            let mut later = Vec::new();
            self.inner.reap(&mut later);
            self.delayed.extend(later);
        } else {
            done.extend(self.delayed.drain(..));
            self.inner.reap(done);
        }
    }

    fn in_flight(&self) -> u32 {
        let kept = self.kept() + self.released.len();
        self.inner.in_flight() + kept as u32
    }

    fn is_full(&self, request: &port::Request<'_>) -> bool {
        self.inner.is_full(request)
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        let delayed = self.delayed.drain(..).chain(self.released.drain(..));
        let delayed = delayed.map(|done| done.ticket);
        self.held.drain(..).chain(delayed).for_each(Ticket::retire);
    }
}
