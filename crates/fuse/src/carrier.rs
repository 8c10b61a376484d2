//! A carrier submits requests to one queue pair and handles their completions.
//!
//! The thread that reads the kernel's requests (the *reader*) submits them without waiting.
//! Completions are handled by exactly one of two threads. The reader itself polls for a moment
//! after it has submitted, because a drive that completes within microseconds is faster than waking
//! a thread. Otherwise a thread of the carrier sleeps on the queue's interrupt. The reader hands
//! over when polling found nothing, when another request waits, and when polling has not paid
//! recently.
//!
//! Invariants:
//! - While a command is in flight, one thread handles completions: the reader hands over before it
//!   leaves.
//! - Every wait is bounded. If a command times out, the drive is lost, or a thread of the mount
//!   panics, all current and later requests end with EIO; memory that the drive might still write
//!   to is not reused.

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

/// How long the reader polls for completions. The mean latency must be below this for polling to
/// pay.
const LOOK: Duration = Duration::from_micros(30);
/// Interval at which the kernel is asked whether another request waits; each check is a system
/// call.
const INPUT_LOOK: Duration = Duration::from_micros(1);
/// Interval at which a waiting thread checks for overdue commands.
const CARE: Duration = Duration::from_millis(500);

type Queue = QueuePair<VfioUser>;

/// The thread that handles completions.
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
    /// Moving average of command latencies.
    mean_ns: u64,
    /// The mount is lost, and all requests fail.
    is_lost: bool,
    is_stopped: bool,
    /// Memory that a lost drive may still write to.
    abandoned: Vec<Memory>,
}

/// A queue pair, with its requests in flight.
pub(super) struct Carrier {
    state: Mutex<State>,
    interrupt: QueueInterrupt<VfioUser>,
    /// Notified when the thread takes over completions.
    handed_over: Condvar,
    /// Notified when slots become free.
    room: Condvar,
    pool: Arc<Pool>,
    input: Arc<Input>,
    /// Whether polling can pay: not on a machine with one processor.
    may_look: bool,
    timeout: Duration,
    /// The loss of the whole mount.
    loss: Arc<Loss>,
}

/// Completed requests, to be answered after the lock is released.
type Ended = Vec<(Request, Result<(), Errno>)>;

impl State {
    /// Submits the next command of a request, or completes the request.
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

    /// Handles completions; true if there were any.
    fn take(&mut self, ended: &mut Ended) -> Result<bool, DriverError> {
        let mut any = false;
        loop {
            let taken = self.queue.poll()?;
            let submitted = self.queue.submitted();
            while let Some(cqe) = self.queue.next_completion() {
                #[cfg(feature = "testing")]
                crate::testing::strike();
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

    /// Fails all requests: the mount is lost.
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
    /// A carrier for `queue`, which has an interrupt.
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

    /// A panic under the lock leaves requests unanswered; it never gives memory to two owners.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn looking_pays(&self, state: &State) -> bool {
        self.may_look && u128::from(state.mean_ns) < LOOK.as_nanos()
    }

    /// Answers requests. The lock must not be held.
    fn answer(&self, ended: &mut Ended, scratch: &mut Vec<u8>) {
        if ended.is_empty() {
            return;
        }
        self.room.notify_all();
        for (request, result) in ended.drain(..) {
            request.end(result, &self.pool, scratch);
        }
    }

    /// Declares the drive lost.
    fn lose(&self, state: &mut State, error: &DriverError, ended: &mut Ended) {
        self.loss.declare(error);
        state.abandon(ended);
    }

    /// Submits a request of the kernel; it is answered now or later. `scratch` is the reader's.
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

    /// The reader polls for completions for a moment.
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

    /// The loop of the carrier's thread.
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

    /// Fails all current and later requests: the mount is lost.
    pub(super) fn give_up(&self) {
        let mut ended = Ended::new();
        let mut state = self.lock();
        state.abandon(&mut ended);
        drop(state);
        self.answer(&mut ended, &mut Vec::new());
    }

    /// Waits until no command is in flight; false after `timeout`.
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

    /// Stops taking requests, and ends the thread.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.handed_over.notify_all();
        // without the wake-up, the thread checks soon anyway
        let _ = self.interrupt.wake();
    }

    /// Flushes a namespace. No command is in flight, and the carrier is stopped.
    pub(super) fn flush(&self, nsid: u32) -> Result<(), DriverError> {
        self.lock().queue.flush(nsid).map(drop)
    }
}
