//! Carries requests over one queue pair.
//!
//! The thread that reads the kernel's requests (the *reader*) submits them and does not wait. Who
//! takes completions is one of two, never both: the reader itself, which looks for them for a
//! moment after it has submitted, as a drive that answers within microseconds is done before any
//! thread could be woken; or else a thread of its own, which sleeps on the queue's interrupt. The
//! reader hands over when it has looked in vain, when another request waits, and where looking has
//! not paid lately.
//!
//! Invariants:
//! - While a command is in flight, somebody takes completions: the reader does not leave before it
//!   has handed over.
//! - Every wait is bounded. A command that is not done in time, a drive that is gone, or a panic of
//!   a thread of the mount ends all requests with EIO, then and from then on; memory that the drive
//!   might still write to is not used again.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use driver::bus::vfio_user::VfioUser;
use driver::{DriverError, QueueInterrupt, QueuePair};
use fuser::Errno;

use super::errno;
use super::input::Input;
use super::loss::Loss;
use super::memory::Pool;
use super::request::{Memory, Request};

/// How long the reader looks for completions, and how quick they must be on average for that to
/// pay.
const LOOK: Duration = Duration::from_micros(30);
/// Between two questions to the kernel whether another request waits: each is a system call.
const INPUT_LOOK: Duration = Duration::from_micros(1);
/// How often a thread that waits looks whether anything is overdue.
const CARE: Duration = Duration::from_millis(500);

type Queue = QueuePair<VfioUser>;

/// Who takes completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taker {
    Reader,
    Thread,
}

struct State {
    queue: Queue,
    /// By command identifier.
    requests: Vec<Option<Request>>,
    taker: Taker,
    /// Mean time of a command, of the last ones most.
    mean_ns: u64,
    /// The mount is lost: nothing is carried any more.
    is_lost: bool,
    is_stopped: bool,
    /// What a lost drive may still write to.
    abandoned: Vec<Memory>,
}

/// A queue pair with what is in flight in it.
pub(super) struct Carrier {
    state: Mutex<State>,
    interrupt: QueueInterrupt<VfioUser>,
    /// Told when completions are the thread's to take.
    handed_over: Condvar,
    /// Told when slots are free again.
    room: Condvar,
    pool: Arc<Pool>,
    input: Arc<Input>,
    /// Whether looking for completions can pay: not on a machine with one processor.
    may_look: bool,
    timeout: Duration,
    /// That of the mount.
    loss: Arc<Loss>,
}

/// Requests that have ended, to be answered without the lock.
type Ended = Vec<(Request, Result<(), Errno>)>;

impl State {
    /// Gives the drive the next command of a request, or ends it.
    fn advance(&mut self, mut request: Request, ended: &mut Ended) {
        let cid = self.queue.next_cid().expect("a slot is free");
        match request.next_command(&self.queue, cid) {
            Ok(Some(sqe)) => {
                request.since = Instant::now();
                let cid = self.queue.submit(sqe).expect("a slot is free");
                self.requests[usize::from(cid)] = Some(request);
            }
            Ok(None) => ended.push((request, Ok(()))),
            Err(error) => {
                tracing::debug!("cannot submit a request to the drive: {error}");
                ended.push((request, Err(errno::of_error(&error))));
            }
        }
    }

    /// Takes what has completed; true when there was something.
    fn take(&mut self, ended: &mut Ended) -> Result<bool, DriverError> {
        let mut any = false;
        loop {
            let taken = self.queue.poll()?;
            let submitted = self.queue.submitted();
            while let Some(cqe) = self.queue.next_completion() {
                #[cfg(test)]
                super::tests::strike();
                let request = self.requests[usize::from(cqe.cid)].take();
                let request =
                    request.expect("the queue pair gives completions of commands in flight");
                self.count(request.since);
                let status = cqe.status.status();
                if status.is_success() {
                    self.advance(request, ended);
                } else {
                    let nsid = request.namespace.nsid;
                    tracing::debug!("a command for namespace {nsid} failed: {status}");
                    ended.push((request, Err(errno::of_status(status))));
                }
            }
            any |= taken > 0;
            if self.queue.submitted() != submitted {
                self.queue.ring()?;
            }
            if taken < Queue::BATCH {
                return Ok(any);
            }
        }
    }

    fn count(&mut self, since: Instant) {
        let ns = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.mean_ns = self.mean_ns - self.mean_ns / 8 + ns / 8;
    }

    fn is_overdue(&self, timeout: Duration) -> bool {
        let mut requests = self.requests.iter().flatten();
        requests.any(|request| request.since.elapsed() > timeout)
    }

    /// Ends everything: the mount is lost.
    fn abandon(&mut self, ended: &mut Ended) {
        self.is_lost = true;
        for mut request in self.requests.iter_mut().filter_map(Option::take) {
            self.abandoned.push(std::mem::take(&mut request.memory));
            ended.push((request, Err(Errno::EIO)));
        }
    }

    fn is_idle(&self) -> bool {
        self.requests.iter().all(Option::is_none)
    }
}

impl Carrier {
    /// Carries over `queue`, which has an interrupt.
    pub(super) fn new(
        queue: Queue,
        pool: Arc<Pool>,
        input: Arc<Input>,
        loss: Arc<Loss>,
        timeout: Duration,
    ) -> Self {
        let interrupt = queue
            .interrupt()
            .expect("the queue pair was made with an interrupt");
        let requests = (0..queue.depth()).map(|_| None).collect();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Carrier {
            state: Mutex::new(State {
                queue,
                requests,
                taker: Taker::Reader,
                mean_ns: 0,
                is_lost: false,
                is_stopped: false,
                abandoned: Vec::new(),
            }),
            interrupt,
            handed_over: Condvar::new(),
            room: Condvar::new(),
            pool,
            input,
            may_look: processors > 1,
            timeout,
            loss,
        }
    }

    /// A panic under the lock leaves requests unanswered, not memory in two hands.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looking_pays(&self, state: &State) -> bool {
        self.may_look && u128::from(state.mean_ns) < LOOK.as_nanos()
    }

    /// Answers requests; the lock is not held.
    fn answer(&self, ended: &mut Ended, scratch: &mut Vec<u8>) {
        if ended.is_empty() {
            return;
        }
        self.room.notify_all();
        for (request, result) in ended.drain(..) {
            request.end(result, &self.pool, scratch);
        }
    }

    /// The drive cannot be used any more.
    fn lose(&self, state: &mut State, error: &DriverError, ended: &mut Ended) {
        self.loss.declare(error);
        state.abandon(ended);
    }

    /// Takes a request of the kernel; answers it now or later. `scratch` is the reader's.
    pub(super) fn carry(&self, request: Request, scratch: &mut Vec<u8>) {
        let mut ended = Ended::new();
        let mut state = self.lock();
        let deadline = Instant::now() + self.timeout;
        while state.queue.next_cid().is_none() && !state.is_lost {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.room.wait_timeout(state, left.min(CARE));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.is_lost || state.is_stopped || state.queue.next_cid().is_none() {
            drop(state);
            request.end(Err(Errno::EIO), &self.pool, scratch);
            return;
        }
        state.advance(request, &mut ended);
        if let Err(error) = state.queue.ring() {
            self.lose(&mut state, &error, &mut ended);
        }
        if state.taker == Taker::Reader {
            state = self.look(state, &mut ended, scratch);
            if !state.is_idle() && state.taker == Taker::Reader {
                state.taker = Taker::Thread;
                self.handed_over.notify_one();
            }
        }
        drop(state);
        self.answer(&mut ended, scratch);
    }

    /// The reader looks for completions for a moment.
    fn look<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        ended: &mut Ended,
        scratch: &mut Vec<u8>,
    ) -> MutexGuard<'a, State> {
        if !self.looking_pays(&state) {
            return state;
        }
        let begun = Instant::now();
        let mut input_looked = begun;
        while !state.is_idle() {
            match state.take(ended) {
                Err(error) => self.lose(&mut state, &error, ended),
                Ok(false) => std::hint::spin_loop(),
                Ok(true) => {
                    drop(state);
                    self.answer(ended, scratch);
                    state = self.lock();
                }
            }
            let now = Instant::now();
            if now - begun > LOOK {
                break;
            }
            if now - input_looked > INPUT_LOOK {
                input_looked = now;
                if self.input.is_waiting() {
                    break;
                }
            }
        }
        state
    }

    /// What the thread does until it is told to stop.
    pub(super) fn complete(&self) {
        let mut ended = Ended::new();
        let mut scratch = Vec::new();
        let mut state = self.lock();
        while !state.is_stopped {
            if state.taker == Taker::Reader || state.is_lost {
                let waited = self.handed_over.wait_timeout(state, CARE);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let taken = state.take(&mut ended);
            match &taken {
                Err(error) => self.lose(&mut state, error, &mut ended),
                Ok(_) if state.is_overdue(self.timeout) => {
                    let error = DriverError::Timeout {
                        what: "a command",
                        after: self.timeout,
                    };
                    self.lose(&mut state, &error, &mut ended);
                }
                Ok(_) => {}
            }
            if state.is_idle() && self.looking_pays(&state) {
                state.taker = Taker::Reader;
            }
            let waits = state.taker == Taker::Thread && !matches!(taken, Ok(true));
            drop(state);
            self.answer(&mut ended, &mut scratch);
            if waits && let Err(error) = self.interrupt.wait(CARE) {
                let mut state = self.lock();
                self.lose(&mut state, &error, &mut ended);
                drop(state);
                self.answer(&mut ended, &mut scratch);
            }
            state = self.lock();
        }
    }

    /// Ends every request with an error, now and from now on: the mount is lost.
    pub(super) fn give_up(&self) {
        let mut ended = Ended::new();
        let mut state = self.lock();
        state.abandon(&mut ended);
        drop(state);
        self.answer(&mut ended, &mut Vec::new());
    }

    /// Waits until nothing is in flight; false when that takes longer.
    pub(super) fn drain(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        while !state.is_idle() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.room.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Takes no more requests, and ends the thread.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.handed_over.notify_all();
        // it looks anyway before long
        let _ = self.interrupt.wake();
    }

    /// Makes a namespace durable; nothing is in flight, and the carrier is stopped.
    pub(super) fn flush(&self, nsid: u32) -> Result<(), DriverError> {
        self.lock().queue.flush(nsid).map(drop)
    }
}
