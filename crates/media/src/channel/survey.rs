//! Queries for allocated blocks ([`port::allocation`]), on a thread that may wait.
//!
//! A reactor must not ask a file system for its holes: that may read from a disk. So the first
//! query of a channel starts a thread, which asks and answers one query after another, and wakes
//! the reactor by the channel's descriptor. It ends with the channel.
//!
//! Invariants: what the system does not know is allocated. The thread uses a medium only while a
//! query is in flight, so it keeps no file open behind its medium.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Weak;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use arrayvec::ArrayVec;
use memory::{EventFd, Run, Store};
use port::allocation::{self, OPCODE, Query};
use port::ticket::{Parked, Ticket};
use port::{Added, Cause, Done, Outcome, Request};

use crate::file::FileMedium;

/// Queries in flight of a channel.
const MOST: usize = 16;
/// How long a channel that is dropped waits for them.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where bytes lie.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Ram(Weak<Store>),
    File(Weak<FileMedium>),
}

impl Source {
    /// The run at `offset`, as far as the system knows: see [`Run`].
    fn run_at(&self, offset: u64, len: u64) -> Run {
        let run = match self {
            Source::Ram(store) => store.upgrade().and_then(|store| {
                let is_inside = offset.checked_add(len)? <= store.len();
                is_inside.then(|| store.run_at(offset, len).ok())?
            }),
            Source::File(file) => file
                .upgrade()
                .and_then(|file| file.run_at(offset, len).ok()),
        };
        run.unwrap_or(Run {
            is_allocated: true,
            len,
        })
    }
}

/// A query in bytes of the medium.
#[derive(Clone, Copy, Debug)]
struct Question {
    number: u8,
    offset: u64,
    len: u64,
    lba_shift: u8,
}

/// The result of the query with a number.
#[derive(Clone, Copy, Debug)]
struct Answer {
    number: u8,
    result: u64,
}

/// The thread.
#[derive(Debug)]
struct Worker {
    questions: SyncSender<Question>,
    answers: Receiver<Answer>,
}

/// The queries of a channel. See the module.
#[derive(Debug)]
pub(crate) struct Surveyor {
    source: Source,
    /// Signalled behind each answer.
    wake: EventFd,
    worker: Option<Worker>,
    /// Tickets of the queries in flight, by number.
    tickets: [Option<Parked>; MOST],
    in_flight: u32,
    /// Answers that were not reaped.
    ready: ArrayVec<Answer, MOST>,
}

impl Surveyor {
    /// For the channel of a medium, whose descriptor belongs to `wake`.
    pub(crate) fn new(source: Source, wake: EventFd) -> Self {
        Self {
            source,
            wake,
            worker: None,
            tickets: [const { None }; MOST],
            in_flight: 0,
            ready: ArrayVec::new(),
        }
    }

    /// Whether a request is a query.
    #[inline]
    pub(crate) fn is_query(request: &Request<'_>) -> bool {
        matches!(request, Request::Command { sqe, .. } if sqe.nvm_opcode() == OPCODE)
    }

    pub(crate) fn wait_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    pub(crate) fn is_full(&self) -> bool {
        self.in_flight as usize == MOST
    }

    /// Takes a query.
    #[cold]
    pub(crate) fn add(&mut self, ticket: Ticket, request: &Request<'_>) -> Added {
        let free = self.tickets.iter().position(Option::is_none);
        let Some(number) = free else {
            return Added::Full(ticket);
        };
        let Some(question) = question(number as u8, request) else {
            return Added::Done(ticket, Outcome::of(Cause::Unsupported));
        };
        let worker = match &self.worker {
            Some(worker) => worker,
            None => match Worker::start(self.source.clone(), self.wake.clone()) {
                Some(worker) => self.worker.insert(worker),
                // There is no thread: all is allocated.
                None => return Added::Done(ticket, allocated(&question)),
            },
        };
        if worker.questions.try_send(question).is_err() {
            return Added::Done(ticket, allocated(&question));
        }
        self.tickets[number] = Some(ticket.park());
        self.in_flight += 1;
        Added::Pending
    }

    /// Takes answers from the thread.
    fn collect(&mut self) {
        if let Some(worker) = &self.worker {
            while !self.ready.is_full()
                && let Ok(answer) = worker.answers.try_recv()
            {
                self.ready.push(answer);
            }
        }
    }

    /// Appends the queries that are answered.
    #[cold]
    pub(crate) fn reap(&mut self, done: &mut Vec<Done>) {
        self.collect();
        for answer in std::mem::take(&mut self.ready) {
            let parked = self.tickets.get_mut(usize::from(answer.number));
            if let Some(parked) = parked.and_then(Option::take) {
                self.in_flight -= 1;
                done.push(Done {
                    ticket: parked.unpark(),
                    outcome: Outcome::with_result(answer.result),
                });
            }
        }
    }

    /// Takes the signals of answers that were reaped, before the reactor looks for completions and
    /// sleeps.
    pub(crate) fn quiet(&self) {
        if self.worker.is_some() {
            self.wake.drain();
        }
    }

    /// Whether a query is answered, after [`Self::quiet`].
    pub(crate) fn is_due(&mut self) -> bool {
        if self.in_flight > 0 {
            self.collect();
        }
        !self.ready.is_empty()
    }
}

/// Dropping it completes no query.
impl Drop for Surveyor {
    fn drop(&mut self) {
        let mut left = self.in_flight as usize - self.ready.len();
        if let Some(worker) = self.worker.take() {
            while left > 0 && worker.answers.recv_timeout(PATIENCE).is_ok() {
                left -= 1;
            }
        }
        for parked in self.tickets.iter_mut().filter_map(Option::take) {
            parked.unpark().retire();
        }
    }
}

impl Worker {
    /// `None`: the system has no thread.
    fn start(source: Source, wake: EventFd) -> Option<Self> {
        let (questions, asked) = sync_channel::<Question>(MOST);
        let (answer, answers) = sync_channel(MOST);
        let run = move || {
            for question in asked {
                let result = outcome(&question, source.run_at(question.offset, question.len));
                let number = question.number;
                if answer.send(Answer { number, result }).is_err() {
                    return;
                }
                // The reactor finds the answer in any case when it is awake.
                let _ = wake.signal();
            }
        };
        let thread = std::thread::Builder::new().name("allocation".to_owned());
        if let Err(error) = thread.spawn(run) {
            tracing::warn!(%error, "no thread for block status: all blocks count as allocated");
            return None;
        }
        Some(Self { questions, answers })
    }
}

/// The bytes of a query; `None` if it has none, or lies outside the namespace.
fn question(number: u8, request: &Request<'_>) -> Option<Question> {
    let Request::Command {
        sqe,
        extent,
        lba_shift,
        ..
    } = request
    else {
        return None;
    };
    let Query { slba, blocks } = Query::of(sqe);
    let len = u64::from(blocks) << lba_shift;
    let start = slba.checked_mul(1 << lba_shift)?;
    let is_inside = blocks > 0 && start.checked_add(len)? <= extent.len;
    is_inside.then_some(Question {
        number,
        offset: extent.offset.checked_add(start)?,
        len,
        lba_shift: *lba_shift,
    })
}

/// The answer that is always true.
fn allocated(question: &Question) -> Outcome {
    let run = Run {
        is_allocated: true,
        len: question.len,
    };
    Outcome::with_result(outcome(question, run))
}

/// The result for a run of bytes: a block is a hole only if all of its bytes are.
fn outcome(question: &Question, run: Run) -> u64 {
    let shift = question.lba_shift;
    let whole = run.len.min(question.len) >> shift;
    let is_hole = !run.is_allocated && whole > 0;
    let blocks = if is_hole {
        whole
    } else if run.is_allocated {
        run.len.min(question.len).div_ceil(1 << shift)
    } else {
        1
    };
    // A query has at most as many blocks.
    let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
    allocation::Run { blocks, is_hole }.to_result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_a_hole_only_as_a_whole() {
        let question = Question {
            number: 0,
            offset: 0,
            len: 64 << 10,
            lba_shift: 12,
        };
        let told = |is_allocated, len| {
            let result = outcome(&question, Run { is_allocated, len });
            let run = allocation::Run::of(result as u32, (result >> 32) as u32);
            (run.is_hole, run.blocks)
        };
        assert_eq!(told(false, 8192), (true, 2));
        assert_eq!(told(false, 8191), (true, 1));
        assert_eq!(told(false, 4095), (false, 1));
        assert_eq!(told(true, 4095), (false, 1));
        assert_eq!(told(true, 4097), (false, 2));
        assert_eq!(told(false, 1 << 40), (true, 16));
    }
}
