//! A medium whose commands are executed when they come, and complete when the test lets them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use memory::{DmaView, Segment};
use port::ticket::Ticket;
use port::{Added, Cause, Channel, Done, Outcome, Request};

/// Commands that a [`Gated`] holds.
pub(crate) const GATED_MAX: usize = 256;

/// What is held, for the test.
#[derive(Clone, Default)]
pub(crate) struct Gate(Rc<RefCell<Holding>>);

#[derive(Default)]
struct Holding {
    is_closed: bool,
    /// Executed, and not released.
    held: VecDeque<Done>,
    released: Vec<Done>,
    /// The next commands that fail.
    fails: u32,
    /// The medium executes commands.
    is_busy: bool,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let all = self.held.drain(..).chain(self.released.drain(..));
        all.for_each(|done| done.ticket.retire());
    }
}

impl Gate {
    /// Whether commands stay until [`Self::release`] or until it opens.
    pub(crate) fn set_closed(&self, is_closed: bool) {
        self.0.borrow_mut().is_closed = is_closed;
    }

    /// Lets `count` commands complete: the oldest ones, or the newest ones, which come first.
    pub(crate) fn release(&self, count: usize, newest: bool) {
        let holding = &mut *self.0.borrow_mut();
        for _ in 0..count {
            let done = if newest {
                holding.held.pop_back()
            } else {
                holding.held.pop_front()
            };
            holding.released.extend(done);
        }
    }

    /// Has the next `count` commands fail, which change nothing.
    pub(crate) fn set_fails(&self, count: u32) {
        self.0.borrow_mut().fails = count;
    }

    /// Whether commands are going to fail.
    pub(crate) fn fails(&self) -> bool {
        self.0.borrow().fails > 0
    }

    /// Whether the medium has not executed all that has come.
    pub(crate) fn is_busy(&self) -> bool {
        self.0.borrow().is_busy
    }

    /// Commands that it holds.
    pub(crate) fn held(&self) -> usize {
        self.0.borrow().held.len()
    }
}

/// See the module.
pub(crate) struct Gated {
    inner: media::Channel,
    gate: Gate,
    done: Vec<Done>,
}

impl Gated {
    /// Over this medium.
    pub(crate) fn new(inner: media::Channel, gate: Gate) -> Self {
        Self {
            inner,
            gate,
            done: Vec::with_capacity(GATED_MAX),
        }
    }
}

impl Channel for Gated {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if self.in_flight() as usize >= GATED_MAX {
            return Added::Full(ticket);
        }
        let holding = &mut *self.gate.0.borrow_mut();
        let added = if holding.fails > 0 {
            holding.fails -= 1;
            let cause = match request {
                Request::Read { .. } => Cause::ReadFailed,
                _ => Cause::WriteFailed,
            };
            Added::Done(ticket, Outcome::of(cause))
        } else {
            self.inner.add(ticket, request, segments, view)
        };
        match added {
            Added::Done(ticket, outcome) if holding.is_closed => {
                holding.held.push_back(Done { ticket, outcome });
                Added::Pending
            }
            added => added,
        }
    }

    fn submit(&mut self) {
        self.inner.submit();
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        self.inner.reap(&mut self.done);
        let holding = &mut *self.gate.0.borrow_mut();
        holding.held.extend(self.done.drain(..));
        holding.is_busy = self.inner.in_flight() > 0;
        done.append(&mut holding.released);
        if !holding.is_closed {
            done.extend(holding.held.drain(..));
        }
    }

    fn in_flight(&self) -> u32 {
        let holding = self.gate.0.borrow();
        let held = holding.held.len() + holding.released.len();
        self.inner.in_flight() + u32::try_from(held).unwrap()
    }
}
