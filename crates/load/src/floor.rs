//! The limits of the machine itself: figures of `nvmirage bench floor`.

use std::time::Duration;

use anyhow::Context;
use driver::floor;
use machine::clock::Clock;
use machine::cpu;
use memory::HostMemory;
use serde::Serialize;

use crate::placement::{Placement, between, fastest};

/// Round trips, or copies, between two readings of the clock: few enough that some runs pass
/// undisturbed by other threads.
const ROUNDS: u32 = 4096;
/// Measuring time of each figure. The fastest run counts, because disturbances only add time.
const TIME_NS: u64 = 300_000_000;
/// Size of the copy source: much larger than the caches.
const COPY_MEMORY_LEN: usize = 256 << 20;
/// Memory for rings and words, and the allocator's own memory beside a buffer.
const SMALL_MEMORY_LEN: usize = 1 << 20;
/// Number of wake-ups. The median counts, because waking takes different paths.
const WAKE_UPS: usize = 11;
/// Sleep before each wake-up: a CPU that has been halted for longer wakes later, up to about this
/// time.
const IDLE: Duration = Duration::from_millis(200);

/// Measurements, in nanoseconds.
#[derive(Debug, Serialize)]
pub struct Figures {
    /// The CPU that calls and copies, and the CPU that answers.
    pub cpus: [u32; 2],
    /// Placement derived from the round trip of a cache line.
    pub placement: Placement,
    /// Round trip of a cache line.
    pub round_trip_ns: f64,
    /// A submission entry and its doorbell one way, a completion back.
    pub sqe_to_cqe_ns: f64,
    /// The same where one thread is host and controller, in batches of 32.
    pub one_cpu_sqe_to_cqe_ns: f64,
    /// Copies of 4 KiB.
    pub copy_4k_ns: Copies,
    /// From the signal of an eventfd until the thread that slept on it reports that it runs.
    pub eventfd_wake_ns: f64,
}

/// Copies of 4 KiB from memory at random.
#[derive(Debug, Serialize)]
pub struct Copies {
    /// Without more.
    pub plain: f64,
    /// With the source of later copies prefetched.
    pub prefetch: f64,
    /// The same with the source on huge pages; `None` if the system provides none.
    pub huge: Option<f64>,
    /// Why `huge` is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub huge_missing: Option<String>,
}

/// Measures everything. Pins the calling thread to the first CPU.
///
/// # Errors
/// The CPUs cannot be used, or there is too little memory.
pub fn measure(cpus: [u32; 2]) -> anyhow::Result<Figures> {
    let [caller, answerer] = cpus;
    cpu::pin_or_say(caller)?;
    let clock = Clock::new();
    let now = || clock.now().0;
    let rings = HostMemory::new(SMALL_MEMORY_LEN).context("cannot make memory")?;

    let (line, other) = floor::cache_line(&rings)?;
    let round_trip_ns = between(
        answerer,
        || other.serve(),
        line,
        |line| fastest(&clock, TIME_NS, || line.measure(ROUNDS, &now)),
    )?;
    let (entry, other) = floor::queue_entry(&rings)?;
    let sqe_to_cqe_ns = between(
        answerer,
        || other.serve(),
        entry,
        |entry| fastest(&clock, TIME_NS, || entry.measure(ROUNDS, &now)),
    )?;
    let mut own = floor::OwnRing::new(&rings)?;
    let one_cpu_sqe_to_cqe_ns = fastest(&clock, TIME_NS, || own.measure(ROUNDS, &now))?;
    let (waker, other) = floor::wake_up(&rings)?;
    let eventfd_wake_ns = between(
        answerer,
        || other.serve(),
        waker,
        |waker| {
            let mut all = Vec::with_capacity(WAKE_UPS);
            for _ in 0..WAKE_UPS {
                all.push(waker.measure(IDLE, &now)?);
            }
            all.sort_by(f64::total_cmp);
            Ok(all[WAKE_UPS / 2])
        },
    )?;
    Ok(Figures {
        cpus,
        placement: Placement::of(round_trip_ns),
        round_trip_ns,
        sqe_to_cqe_ns,
        one_cpu_sqe_to_cqe_ns,
        copy_4k_ns: copies(&clock)?,
        eventfd_wake_ns,
    })
}

fn copies(clock: &Clock) -> anyhow::Result<Copies> {
    let now = || clock.now().0;
    let copy = |memory: &HostMemory, prefetch| {
        let mut copies = floor::Copies::new(memory, COPY_MEMORY_LEN)?;
        fastest(clock, TIME_NS, || copies.measure(ROUNDS, prefetch, &now))
    };
    let len = COPY_MEMORY_LEN + SMALL_MEMORY_LEN;
    let memory = HostMemory::new(len).context("cannot make memory")?;
    let (plain, prefetch) = (copy(&memory, false)?, copy(&memory, true)?);
    drop(memory);
    let (huge, huge_missing) = match HostMemory::on_huge_pages(len) {
        Ok((memory, _)) => (Some(copy(&memory, true)?), None),
        Err(error) => (None, Some(format!("the system gives none: {error}"))),
    };
    Ok(Copies {
        plain,
        prefetch,
        huge,
        huge_missing,
    })
}
