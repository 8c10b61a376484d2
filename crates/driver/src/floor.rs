//! Floors of the machine itself, as a reference for results.
//!
//! A command to a drive on another core moves a cache line there and one back, and a read copies
//! its data. Measured here, between two threads that the caller starts and pins: the round trip of
//! a line, and of a queue entry with its doorbell and completion, with no controller between; the
//! time until a thread that sleeps on an eventfd has woken and replied; and on one thread a queue
//! entry and its completion, and the copy of 4 KiB from random memory. No result depends on the
//! drive.

use std::time::Duration;

use memory::{Buffer, EventFd, HostCq, HostMemory, HostSq};
use nvme_spec::cqe::CQE_SIZE;
use nvme_spec::sqe::SQE_SIZE;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::DriverError;
use crate::workload::Clock;
use crate::workload::random::Random;

/// The value that makes the answering thread return.
const STOP: u32 = u32::MAX;
/// Two words that one core writes and the other reads lie this far apart:
/// processors fetch cache lines in pairs.
const APART: usize = 128;
/// Looks in vain between two looks at the clock.
const LOOKS_PER_CLOCK: u32 = 1 << 16;
/// How long to wait for one reply; the other thread may yet have to start.
const PATIENCE_NS: u64 = 10_000_000_000;
/// Entries of the rings.
const ENTRIES: u32 = 256;
/// Entries that one thread stores before it plays the controller, as a reactor's turn does.
const BATCH: u32 = 32;
/// Bytes of a copy, and of a page.
const COPY_LEN: usize = 4096;
/// How many copies ahead memory is prefetched, and the step in bytes within a copy. Fetching every
/// line gained nothing over every eighth.
const COPIES_AHEAD: usize = 4;
const PREFETCH_STEP: usize = 8 * 64;
/// Copies go to so many places in turn, as to the buffers of a queue's slots.
const TARGETS: usize = 32;

fn no_memory(wanted: usize) -> DriverError {
    DriverError::NoMemory { wanted }
}

/// Polls until `answered`.
fn await_answer(clock: &impl Clock, mut answered: impl FnMut() -> bool) -> Result<(), DriverError> {
    let mut started = None;
    for look in 1u32.. {
        if answered() {
            return Ok(());
        }
        std::hint::spin_loop();
        if look.is_multiple_of(LOOKS_PER_CLOCK) {
            let now = clock.now_ns();
            if now - *started.get_or_insert(now) > PATIENCE_NS {
                break;
            }
        }
    }
    Err(DriverError::Timeout {
        what: "the reply of the other thread",
        after: std::time::Duration::from_nanos(PATIENCE_NS),
    })
}

/// Mean nanoseconds of `rounds` calls.
#[expect(
    clippy::cast_precision_loss,
    reason = "a mean needs no more than 52 bits"
)]
fn mean_ns(
    rounds: u32,
    clock: &impl Clock,
    mut round: impl FnMut() -> Result<(), DriverError>,
) -> Result<f64, DriverError> {
    let begun = clock.now_ns();
    for _ in 0..rounds {
        round()?;
    }
    let elapsed = clock.now_ns() - begun;
    Ok(elapsed as f64 / f64::from(rounds.max(1)))
}

/// Two words on cache lines of their own.
struct Words(Buffer);

impl Words {
    fn call(&self) -> u32 {
        self.0.load_u32(0)
    }

    fn set_call(&self, value: u32) {
        self.0.store_u32(0, value);
    }

    fn answer(&self) -> u32 {
        self.0.load_u32(APART)
    }

    fn set_answer(&self, value: u32) {
        self.0.store_u32(APART, value);
    }
}

/// Measures round trips of a cache line. Dropped, it has the answering thread
/// return.
pub struct LineCaller {
    words: std::sync::Arc<Words>,
    next: u32,
}

/// Answers a [`LineCaller`].
pub struct LineAnswerer(std::sync::Arc<Words>);

/// Both ends of the round trip of a cache line.
///
/// # Errors
/// [`DriverError::NoMemory`].
pub fn cache_line(memory: &HostMemory) -> Result<(LineCaller, LineAnswerer), DriverError> {
    let buffer = memory
        .alloc(2 * APART, APART)
        .ok_or_else(|| no_memory(2 * APART))?;
    let words = std::sync::Arc::new(Words(buffer));
    let caller = LineCaller {
        words: words.clone(),
        next: 1,
    };
    Ok((caller, LineAnswerer(words)))
}

impl LineCaller {
    /// Mean nanoseconds of `rounds` round trips.
    ///
    /// # Errors
    /// [`DriverError::Timeout`] when the other thread does not reply.
    pub fn measure(&mut self, rounds: u32, clock: &impl Clock) -> Result<f64, DriverError> {
        mean_ns(rounds, clock, || {
            let value = self.next;
            self.next = following(value);
            self.words.set_call(value);
            await_answer(clock, || self.words.answer() == value)
        })
    }
}

impl Drop for LineCaller {
    fn drop(&mut self) {
        self.words.set_call(STOP);
    }
}

impl LineAnswerer {
    /// Answers until the caller is dropped.
    pub fn serve(self) {
        let mut last = 0;
        loop {
            let call = self.0.call();
            if call == STOP {
                return;
            }
            if call != last {
                last = call;
                self.0.set_answer(call);
            }
            std::hint::spin_loop();
        }
    }
}

/// A value that differs from the last, and from [`STOP`].
fn following(value: u32) -> u32 {
    match value + 1 {
        STOP => 1,
        next => next,
    }
}

/// The rings and the doorbell of a controller that does nothing.
struct Rings {
    sq: HostSq,
    cq: HostCq,
    /// A tail, or [`STOP`].
    doorbell: Buffer,
}

/// Measures round trips of a queue entry. Dropped, it has the answering thread
/// return.
pub struct EntryCaller {
    rings: std::sync::Arc<Rings>,
    index: u32,
    phase: u64,
}

/// Answers an [`EntryCaller`].
pub struct EntryAnswerer(std::sync::Arc<Rings>);

impl Rings {
    fn new(memory: &HostMemory) -> Result<Self, DriverError> {
        let alloc = |len: usize| memory.alloc(len, COPY_LEN).ok_or_else(|| no_memory(len));
        let entries = usize::try_from(ENTRIES).expect("u32 fits in usize");
        Ok(Rings {
            sq: HostSq::new(alloc(entries * SQE_SIZE)?),
            cq: HostCq::new(alloc(entries * CQE_SIZE)?),
            doorbell: alloc(COPY_LEN)?,
        })
    }

    /// Copies an entry, and posts its completion.
    fn answer(&self, head: u32, phase: u32) {
        let at = usize::try_from(head).expect("u32 fits in usize");
        let mut entry = [0; SQE_SIZE];
        self.sq.buffer().read_into(at * SQE_SIZE, &mut entry);
        // The first three dwords, then the one with the phase, released.
        let at = at * CQE_SIZE;
        self.cq.buffer().write_from(at, &entry[..12]);
        self.cq.buffer().store_u32(at + 12, phase << 16);
    }
}

/// Measures an entry, its doorbell and its completion where one thread is host and controller: what
/// the rings cost a front end that is a host inside the server.
pub struct OwnRing {
    rings: Rings,
    index: u32,
    phase: u32,
}

impl OwnRing {
    /// Rings in this memory.
    ///
    /// # Errors
    /// [`DriverError::NoMemory`].
    pub fn new(memory: &HostMemory) -> Result<Self, DriverError> {
        Ok(Self {
            rings: Rings::new(memory)?,
            index: 0,
            phase: 1,
        })
    }

    /// Mean nanoseconds of an entry; `rounds` are rounded up to whole batches of 32.
    ///
    /// # Errors
    /// None that is known.
    pub fn measure(&mut self, rounds: u32, clock: &impl Clock) -> Result<f64, DriverError> {
        let batch = mean_ns(rounds.div_ceil(BATCH), clock, || {
            let Rings { sq, cq, doorbell } = &self.rings;
            let first = self.index;
            for index in first..first + BATCH {
                sq.store(index, [u64::from(index); 8]);
            }
            doorbell.store_u32(0, first + BATCH);
            for index in first..doorbell.load_u32(0) {
                self.rings.answer(index, self.phase);
            }
            for index in first..first + BATCH {
                let is_there = cq.load(index)[1] >> 48 & 1 == u64::from(self.phase);
                debug_assert!(is_there, "entry {index}");
                std::hint::black_box(is_there);
            }
            self.index = (first + BATCH) % ENTRIES;
            if self.index == 0 {
                self.phase ^= 1;
            }
            Ok(())
        })?;
        Ok(batch / f64::from(BATCH))
    }
}

/// Both ends of the round trip of an entry of 64 bytes and a doorbell to a
/// completion of 16 bytes.
///
/// # Errors
/// [`DriverError::NoMemory`].
pub fn queue_entry(memory: &HostMemory) -> Result<(EntryCaller, EntryAnswerer), DriverError> {
    let rings = std::sync::Arc::new(Rings::new(memory)?);
    let caller = EntryCaller {
        rings: rings.clone(),
        index: 0,
        phase: 1,
    };
    Ok((caller, EntryAnswerer(rings)))
}

impl EntryCaller {
    /// Mean nanoseconds of `rounds` round trips.
    ///
    /// # Errors
    /// [`DriverError::Timeout`] when the other thread does not reply.
    pub fn measure(&mut self, rounds: u32, clock: &impl Clock) -> Result<f64, DriverError> {
        mean_ns(rounds, clock, || {
            let (index, phase) = (self.index, self.phase);
            self.rings.sq.store(index, [u64::from(index); 8]);
            self.index = (index + 1) % ENTRIES;
            if self.index == 0 {
                self.phase ^= 1;
            }
            self.rings.doorbell.store_u32(0, self.index);
            await_answer(clock, || self.rings.cq.load(index)[1] >> 48 & 1 == phase)
        })
    }
}

impl Drop for EntryCaller {
    fn drop(&mut self) {
        self.rings.doorbell.store_u32(0, STOP);
    }
}

impl EntryAnswerer {
    /// Answers until the caller is dropped.
    pub fn serve(self) {
        let rings = &*self.0;
        let (mut head, mut phase) = (0, 1u32);
        loop {
            let tail = rings.doorbell.load_u32(0);
            if tail == STOP {
                return;
            }
            if tail == head {
                std::hint::spin_loop();
                continue;
            }
            rings.answer(head, phase);
            head = (head + 1) % ENTRIES;
            if head == 0 {
                phase ^= 1;
            }
        }
    }
}

/// Wakes a [`Sleeper`]. Dropped, it has the sleeping thread return.
pub struct Waker {
    words: std::sync::Arc<Words>,
    event: EventFd,
    next: u32,
}

/// Sleeps, and answers a [`Waker`].
pub struct Sleeper {
    words: std::sync::Arc<Words>,
    event: EventFd,
}

/// Both ends of a wake-up.
///
/// # Errors
/// [`DriverError::NoMemory`], [`DriverError::System`] without descriptors.
pub fn wake_up(memory: &HostMemory) -> Result<(Waker, Sleeper), DriverError> {
    let system = |source| DriverError::System {
        what: "create an eventfd",
        source,
    };
    let buffer = memory
        .alloc(2 * APART, APART)
        .ok_or_else(|| no_memory(2 * APART))?;
    let words = std::sync::Arc::new(Words(buffer));
    let event = EventFd::new().map_err(system)?;
    let sleeper = Sleeper {
        words: words.clone(),
        event: event.clone(),
    };
    let waker = Waker {
        words,
        event,
        next: 1,
    };
    Ok((waker, sleeper))
}

impl Waker {
    /// Nanoseconds from just before the signal until the answer is seen, once:
    /// after `idle` in which the other thread has gone to sleep.
    ///
    /// # Errors
    /// [`DriverError::Timeout`] when the other thread does not reply.
    pub fn measure(&mut self, idle: Duration, clock: &impl Clock) -> Result<f64, DriverError> {
        let idle_ns = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        let begun = clock.now_ns();
        while clock.now_ns() - begun < idle_ns {
            std::hint::spin_loop();
        }
        let value = self.next;
        self.next = following(value);
        mean_ns(1, clock, || {
            self.words.set_call(value);
            self.signal();
            await_answer(clock, || self.words.answer() == value)
        })
    }

    fn signal(&self) {
        // An eventfd of our own is there, and a full one is signalled.
        let _ = self.event.signal();
    }
}

impl Drop for Waker {
    fn drop(&mut self) {
        self.words.set_call(STOP);
        self.signal();
    }
}

impl Sleeper {
    /// Answers until the other end is dropped.
    pub fn serve(self) {
        let bound = Timespec::try_from(Duration::from_nanos(PATIENCE_NS))
            .expect("a few seconds fit in a timespec");
        loop {
            let mut fds = [PollFd::new(&self.event, PollFlags::IN)];
            match poll(&mut fds, Some(&bound)) {
                Ok(1..) | Err(Errno::INTR) => {}
                Ok(0) | Err(_) => return,
            }
            self.event.drain();
            let call = self.words.call();
            if call == STOP {
                return;
            }
            self.words.set_answer(call);
        }
    }
}

/// Memory at random to copy from.
pub struct Copies {
    source: Buffer,
    targets: Vec<[u8; COPY_LEN]>,
    /// Measurements so far: each goes to places of its own, or the caches would hold them from the
    /// last one.
    measured: u64,
}

impl Copies {
    /// Takes `len` bytes of memory, at least a page, much more than the caches
    /// hold.
    ///
    /// # Errors
    /// [`DriverError::NoMemory`].
    pub fn new(memory: &HostMemory, len: usize) -> Result<Self, DriverError> {
        let len = len.max(COPY_LEN);
        let source = memory.alloc(len, COPY_LEN).ok_or_else(|| no_memory(len))?;
        source.fill(1);
        Ok(Self {
            source,
            targets: vec![[0; COPY_LEN]; TARGETS],
            measured: 0,
        })
    }

    /// Mean nanoseconds of `rounds` copies of 4 KiB, with the memory of later
    /// copies prefetched or not.
    ///
    /// # Errors
    /// None that is known.
    pub fn measure(
        &mut self,
        rounds: u32,
        prefetch: bool,
        clock: &impl Clock,
    ) -> Result<f64, DriverError> {
        let pages = self.source.len() / COPY_LEN;
        let pages = u64::try_from(pages).expect("usize fits in 64 bits");
        let page = |random: &mut Random| {
            usize::try_from(random.below(pages)).expect("below a usize") * COPY_LEN
        };
        self.measured += 1;
        // The same sequence, so many steps ahead.
        let (mut random, mut ahead) = (Random::new(self.measured), Random::new(self.measured));
        for _ in 0..COPIES_AHEAD {
            page(&mut ahead);
        }
        let mut to = 0;
        mean_ns(rounds, clock, || {
            if prefetch {
                let later = page(&mut ahead);
                for line in (0..COPY_LEN).step_by(PREFETCH_STEP) {
                    self.source.prefetch(later + line);
                }
            }
            let from = page(&mut random);
            self.source.read_into(from, &mut self.targets[to]);
            to = (to + 1) % TARGETS;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    fn clock() -> impl Clock {
        let begun = Instant::now();
        move || u64::try_from(begun.elapsed().as_nanos()).unwrap()
    }

    #[test]
    fn a_line_comes_back_and_the_answerer_returns() {
        let memory = HostMemory::new(1 << 16).unwrap();
        let (mut caller, answerer) = cache_line(&memory).unwrap();
        let thread = thread::spawn(move || answerer.serve());
        assert!(caller.measure(1000, &clock()).unwrap() > 0.0);
        drop(caller);
        thread.join().unwrap();
    }

    #[test]
    fn entries_come_back_around_the_ring() {
        let memory = HostMemory::new(1 << 16).unwrap();
        let (mut caller, answerer) = queue_entry(&memory).unwrap();
        let thread = thread::spawn(move || answerer.serve());
        assert!(caller.measure(3 * ENTRIES + 7, &clock()).unwrap() > 0.0);
        assert_eq!((caller.index, caller.phase), (7, 0), "three times around");
        // The completion carries the entry's first bytes: it was read.
        assert_eq!(caller.rings.cq.load(6)[0], 6);
        drop(caller);
        thread.join().unwrap();
    }

    #[test]
    fn one_thread_goes_around_its_own_ring() {
        let memory = HostMemory::new(1 << 16).unwrap();
        let mut ring = OwnRing::new(&memory).unwrap();
        assert!(ring.measure(ENTRIES + 1, &clock()).unwrap() > 0.0);
        assert_eq!((ring.index, ring.phase), (BATCH, 0), "once around");
        let completions = |from: u32| (from..from + BATCH).map(|at| ring.rings.cq.load(at));
        // Each has the first bytes of its entry, and the phase of its round.
        for (from, phase) in [(0, 0), (ENTRIES - BATCH, 1)] {
            for (cqe, at) in completions(from).zip(from..) {
                assert_eq!((cqe[0], cqe[1] >> 48), (at.into(), phase));
            }
        }
    }

    #[test]
    fn a_sleeper_wakes_and_returns() {
        let memory = HostMemory::new(1 << 16).unwrap();
        let (mut waker, sleeper) = wake_up(&memory).unwrap();
        let thread = thread::spawn(move || sleeper.serve());
        for idle in [Duration::ZERO, Duration::from_millis(1)] {
            let ns = waker.measure(idle, &clock()).unwrap();
            assert!(ns > 0.0 && ns < PATIENCE_NS as f64, "{ns}");
        }
        drop(waker);
        thread.join().unwrap();
    }

    #[test]
    fn copies_move_bytes_with_and_without_prefetch() {
        let memory = HostMemory::new(2 << 20).unwrap();
        let mut copies = Copies::new(&memory, 1 << 20).unwrap();
        for prefetch in [false, true] {
            assert!(copies.measure(1000, prefetch, &clock()).unwrap() > 0.0);
        }
        assert_eq!(copies.targets[7], [1; COPY_LEN]);
    }

    #[test]
    fn nobody_answering_is_an_error_and_no_hang() {
        let memory = HostMemory::new(1 << 16).unwrap();
        let (mut caller, _answerer) = cache_line(&memory).unwrap();
        let now = std::cell::Cell::new(0);
        let clock = || {
            now.set(now.get() + PATIENCE_NS);
            now.get()
        };
        let result = caller.measure(1, &clock);
        assert!(matches!(result, Err(DriverError::Timeout { .. })));
    }
}
