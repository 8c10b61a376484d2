//! A drive that has no bytes, with a timing model.

use std::sync::Arc;

use controller::port::{Added, Channel, Done, MediumTraits, Outcome, Request};
use controller::ticket::Ticket;
use controller::time::Time;
use memory::{DmaView, Segment};
use model::{Admission, Due, Model, Op, Parameters, Timing};
use simulate::{Drive, Figures};

pub(crate) const TRAITS: MediumTraits = MediumTraits {
    deallocate: true,
    deallocated_reads_zero: false,
    volatile_cache: true,
    optimal_bytes: 4096,
};

pub(crate) struct Timed {
    model: Model,
    now: u64,
    tickets: Vec<Option<Ticket>>,
    free: Vec<usize>,
    due: Vec<Due>,
    held: u32,
}

impl Timed {
    pub(crate) fn new(parameters: &Parameters) -> Self {
        Self {
            model: Model::new(parameters).unwrap(),
            now: 0,
            tickets: Vec::new(),
            free: Vec::new(),
            due: Vec::new(),
            held: 0,
        }
    }
}

impl Drive for Timed {
    fn figures(&self) -> Figures {
        let Model::Flash(flash) = &self.model else {
            return Figures::default();
        };
        let counters = flash.counters();
        Figures {
            pages_written: counters.host_pages,
            pages_collected: counters.collected_pages,
            lines_collected: counters.erased_lines,
            lines_free: flash.partitions().map(|p| p.lines.free() as u64).sum(),
            has_lines: true,
        }
    }
}

impl Channel for Timed {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        _: &[Segment<'_>],
        _: &Arc<DmaView>,
    ) -> Added {
        let op = match *request {
            Request::Read { offset, len } => Op::Read { offset, len },
            Request::Write { offset, len, fua } => Op::Write { offset, len, fua },
            Request::Deallocate { ranges } => Op::Deallocate {
                offset: ranges[0].offset,
                len: ranges[0].len,
            },
            Request::Flush => Op::Flush,
            _ => return Added::Done(ticket, Outcome::OK),
        };
        let id = self.free.pop().unwrap_or_else(|| {
            self.tickets.push(None);
            self.tickets.len() - 1
        });
        if self.model.submit(self.now, id as u64, &op) == Admission::Stall {
            self.free.push(id);
            return Added::Full(ticket);
        }
        self.tickets[id] = Some(ticket);
        self.held += 1;
        Added::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut Vec<Done>) {
        self.model.advance(self.now, &mut self.due);
        for Due { id, .. } in self.due.drain(..) {
            let ticket = self.tickets[id as usize].take().unwrap();
            self.free.push(id as usize);
            self.held -= 1;
            done.push(Done {
                ticket,
                outcome: Outcome::OK,
            });
        }
    }

    fn in_flight(&self) -> u32 {
        self.held
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn set_time(&mut self, now: Time) {
        self.now = now.0;
        self.model.advance(now.0, &mut self.due);
    }

    fn next_due(&self) -> Option<Time> {
        match self.due.is_empty() {
            true => self.model.next_event().map(Time),
            false => Some(Time(self.now)),
        }
    }
}
