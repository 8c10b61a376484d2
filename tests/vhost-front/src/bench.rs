//! A client that polls one queue: rate and latency of a back end.
//!
//! The loop makes no system call while the device asks for no notifications, allocates nothing, and
//! reads the clock once for each batch of completions.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use memory::Buffer;

use crate::disk::{Disk, Queue};
use crate::protocol::{feature, status};
use crate::request::{HEADER_LEN, SECTOR, transfer_header};
use crate::ring::{DESCRIPTOR_LEN, Segment};

/// Latencies are recorded up to a minute, in nanoseconds.
const MAX_LATENCY_NS: u64 = 60_000_000_000;

/// Looks at the ring between two of the clock while nothing completes.
const LOOKS: u32 = 1024;

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Queue.
    pub queue: usize,
    /// Requests in flight.
    pub depth: usize,
    /// Length of the measurement.
    pub duration: Duration,
    /// Writes, or reads.
    pub is_write: bool,
    /// Bytes of a request: whole sectors.
    pub block: usize,
    /// Silence of the queue that is a stall: the system did not let one side run. Its time and the
    /// requests in flight in it are left out. `None` leaves nothing out.
    pub stall: Option<Duration>,
}

/// Result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Completed requests, also those in flight in stalls.
    pub requests: u64,
    /// Requests per second outside of stalls.
    pub iops: f64,
    /// Mean latency in nanoseconds.
    pub mean_ns: f64,
    /// Median latency in nanoseconds.
    pub p50_ns: u64,
    /// 99th percentile of the latency in nanoseconds.
    pub p99_ns: u64,
    /// Notifications that the device wanted.
    pub kicks: u64,
    /// Stalls that were left out.
    pub stalls: u64,
}

/// Memory of one request, used again and again.
struct Slot {
    header: Buffer,
    status: Buffer,
    /// The data, and the table of an indirect chain: kept allocated.
    _kept: Vec<Buffer>,
    chain: Vec<Segment>,
    started: Instant,
}

/// Measures random requests of one queue, by polling, with interrupts suppressed.
///
/// # Errors
/// Requests are in flight already, the load does not fit the disk, the ring or the memory, no
/// request completes outside of stalls, one fails, or none completes within [`crate::BOUND`]. The
/// queue is not usable after the last two: the device may still hold requests.
pub fn bench(disk: &mut Disk, load: &Load) -> Result<Measured> {
    ensure!(
        load.block > 0 && load.block.is_multiple_of(SECTOR),
        "blocks of {} bytes: a multiple of {SECTOR}",
        load.block
    );
    let sectors = (load.block / SECTOR) as u64;
    let blocks = disk.capacity() / sectors;
    ensure!(blocks > 0, "the disk is smaller than a block");
    ensure!(
        !load.is_write || disk.features() & feature::RO == 0,
        "the disk is read-only; measure reads"
    );
    let is_indirect = disk.options().is_indirect;
    let slots: Result<Vec<_>> = (0..load.depth)
        .map(|_| prepare(disk, load, is_indirect))
        .collect();
    let mut slots = slots?;
    let descriptors = usize::from(disk.options().size);
    let queue = disk.queue(load.queue);
    ensure!(queue.in_flight() == 0, "requests are in flight");
    let needed = slots.iter().map(|slot| slot.chain.len()).sum();
    ensure!(
        (1..=descriptors).contains(&needed),
        "depth {} does not fit a ring of {descriptors}",
        load.depth
    );
    queue.ring.suppress();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let kicks = queue.kicks;
    let mut by_id: Vec<usize> = vec![usize::MAX; descriptors];
    let begin = Instant::now();
    for (number, slot) in slots.iter_mut().enumerate() {
        let sector = random.below(blocks) * sectors;
        let id = start(queue, slot, load.is_write, sector, begin, is_indirect)?;
        by_id[usize::from(id)] = number;
    }
    queue.publish()?;
    let mut meter = Meter::new(begin, load.stall)?;
    let end = begin + load.duration;
    let mut running = load.depth;
    let mut spins = 0u32;
    while running > 0 {
        let Some(mut used) = queue.ring.pop()? else {
            std::hint::spin_loop();
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(LOOKS) {
                let waited = meter.newest.elapsed();
                ensure!(waited < crate::BOUND, "no completion for {waited:?}");
            }
            continue;
        };
        let now = Instant::now();
        meter.see(now);
        // A fast device completes what is made available here: the clock is to be read again.
        let mut taken = 0;
        loop {
            let number = by_id[usize::from(used.id)];
            let slot = &mut slots[number];
            let mut byte = [0];
            slot.status.read_into(0, &mut byte);
            ensure!(byte[0] == status::OK, "status {}", byte[0]);
            meter.count(slot.started);
            if now < end {
                let sector = random.below(blocks) * sectors;
                let id = start(queue, slot, load.is_write, sector, now, is_indirect)?;
                by_id[usize::from(id)] = number;
            } else {
                running -= 1;
            }
            taken += 1;
            if taken == load.depth {
                break;
            }
            match queue.ring.pop()? {
                Some(next) => used = next,
                None => break,
            }
        }
        queue.publish()?;
    }
    queue.ring.arm();
    meter.measured(begin, queue.kicks - kicks)
}

/// Requests and stalls, as they are seen.
struct Meter {
    latencies: Histogram<u64>,
    requests: u64,
    stall: Duration,
    stalls: u64,
    stalled: Duration,
    /// End of the last stall.
    resumed: Instant,
    /// The newest completions.
    newest: Instant,
}

impl Meter {
    fn new(begin: Instant, stall: Option<Duration>) -> Result<Self> {
        let latencies = Histogram::new_with_bounds(1, MAX_LATENCY_NS, 3);
        Ok(Self {
            latencies: latencies.context("a histogram of three digits")?,
            requests: 0,
            stall: stall.unwrap_or(Duration::MAX),
            stalls: 0,
            stalled: Duration::ZERO,
            resumed: begin,
            newest: begin,
        })
    }

    /// There are completions.
    #[inline]
    fn see(&mut self, now: Instant) {
        let silent = now.saturating_duration_since(self.newest);
        if silent > self.stall {
            self.stalls += 1;
            self.stalled += silent;
            self.resumed = now;
        }
        self.newest = now;
    }

    /// One of them is of a request that was started then.
    #[inline]
    fn count(&mut self, started: Instant) {
        self.requests += 1;
        if started >= self.resumed {
            let latency = self.newest.saturating_duration_since(started).as_nanos();
            let latency = u64::try_from(latency).unwrap_or(u64::MAX);
            self.latencies.saturating_record(latency);
        }
    }

    fn measured(&self, begin: Instant, kicks: u64) -> Result<Measured> {
        let took = self.newest.duration_since(begin) - self.stalled;
        ensure!(
            !self.latencies.is_empty() && !took.is_zero(),
            "each of {} requests was in flight in one of {} stalls; raise Load::stall",
            self.requests,
            self.stalls
        );
        Ok(Measured {
            requests: self.requests,
            iops: self.latencies.len() as f64 / took.as_secs_f64(),
            mean_ns: self.latencies.mean(),
            p50_ns: self.latencies.value_at_quantile(0.5),
            p99_ns: self.latencies.value_at_quantile(0.99),
            kicks,
            stalls: self.stalls,
        })
    }
}

/// Allocates a request's memory, with its chain.
fn prepare(disk: &mut Disk, load: &Load, is_indirect: bool) -> Result<Slot> {
    let guest = disk.guest();
    let header = guest.alloc(HEADER_LEN, 64)?;
    let data = guest.alloc(load.block, 4096)?;
    let status = guest.alloc(1, 64)?;
    let len = u32::try_from(load.block).context("blocks of more than 4 GiB")?;
    let segment = |buffer: &Buffer, len, is_writable| Segment {
        address: guest.guest_address(buffer, 0),
        len,
        is_writable,
    };
    let mut chain = vec![
        segment(&header, HEADER_LEN as u32, false),
        segment(&data, len, !load.is_write),
        segment(&status, 1, true),
    ];
    let mut kept = vec![data];
    if is_indirect {
        let table = guest.alloc(chain.len() * DESCRIPTOR_LEN, DESCRIPTOR_LEN)?;
        let indirect = segment(&table, table.len() as u32, false);
        table.write_from(0, &disk.queue(load.queue).ring.table(&chain));
        chain = vec![indirect];
        kept.push(table);
    }
    Ok(Slot {
        header,
        status,
        _kept: kept,
        chain,
        started: Instant::now(),
    })
}

/// Makes a request available: its number in the ring.
#[inline]
fn start(
    queue: &mut Queue,
    slot: &mut Slot,
    is_write: bool,
    sector: u64,
    now: Instant,
    is_indirect: bool,
) -> Result<u16> {
    slot.header
        .write_from(0, &transfer_header(is_write, sector));
    slot.status.write_from(0, &[status::UNWRITTEN]);
    slot.started = now;
    let id = queue.ring.add(&slot.chain, is_indirect);
    id.context("the ring is full")
}

/// An xorshift generator: the same requests each time.
struct Random(u64);

impl Random {
    #[inline]
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sees completions at these microseconds, each of a request that was started at the other.
    fn measured(stall: Option<u64>, requests: &[(u64, u64)]) -> Result<Measured> {
        let begin = Instant::now();
        let at = |us| begin + Duration::from_micros(us);
        let mut meter = Meter::new(begin, stall.map(Duration::from_micros))?;
        for (started, done) in requests {
            meter.see(at(*done));
            meter.count(at(*started));
        }
        meter.measured(begin, 7)
    }

    /// Two requests in flight, of which one always takes 20 us; from 60 to 2060 nothing runs.
    const STALLED: [(u64, u64); 6] = [
        (0, 20),
        (20, 40),
        (40, 60),
        (60, 2060),
        (0, 2060),
        (2060, 2100),
    ];

    #[test]
    fn a_stall_and_the_requests_in_flight_in_it_are_left_out() {
        let found = measured(Some(1000), &STALLED).unwrap();
        assert_eq!((found.requests, found.stalls, found.kicks), (6, 1, 7));
        // Four requests in the 100 us outside.
        assert_eq!(found.iops.round(), 40_000.0);
        assert_eq!((found.mean_ns / 1e3).round(), 25.0);
        assert_eq!((found.p50_ns + 500) / 1000, 20);
    }

    #[test]
    fn without_a_limit_everything_counts() {
        let found = measured(None, &STALLED).unwrap();
        assert_eq!((found.requests, found.stalls), (6, 0));
        assert_eq!(found.iops.round(), (6.0f64 / 2100e-6).round());
        // A silence of the limit is none.
        assert_eq!(measured(Some(2000), &STALLED).unwrap().stalls, 0);
    }

    #[test]
    fn nothing_outside_of_stalls_is_an_error() {
        let found = measured(Some(10), &STALLED[..2]);
        let error = found.unwrap_err().to_string();
        assert!(error.contains("each of 2 requests") && error.contains("raise Load::stall"));
    }
}
