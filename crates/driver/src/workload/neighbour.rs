//! The same job on another drive, in the same turns: a neighbour whose figures are measured, too.
//!
//! A stall affects the thread that both share, so the neighbour excludes the same stalls as the
//! job. It does NOT pause, verify, or distinguish lulls from the latency of a drive.

use memory::HostMemory;

use super::beside::Beside;
use super::drive::{Line, Record, Times, entry};
use super::traffic::Plain;
use super::{Clock, Job, JobResult, STALL_NS, check, result};
use crate::bus::Bus;
use crate::io::Namespace;
use crate::{DriverError, QueuePair};

/// See the module.
pub struct Neighbour<'a, B: Bus, K> {
    job: Job,
    line: Line<'a, B>,
    clock: &'a K,
    traffic: Plain,
    blocks_per_unit: u64,
    record: Record,
    /// When the job beside it had looked at the clock, first and last.
    first: Option<u64>,
    seen: u64,
}

impl<'a, B: Bus, K: Clock> Neighbour<'a, B, K> {
    /// Does `job` on `queue` of a drive, with buffers from `memory` that is shared with it, for as
    /// long as the job beside it lasts.
    ///
    /// # Errors
    /// As [`super::run`]; [`DriverError::Unsupported`] also for a job that verifies.
    pub fn new(
        job: &Job,
        namespace: &Namespace,
        queue: &'a mut QueuePair<B>,
        memory: &HostMemory,
        clock: &'a K,
    ) -> Result<Self, DriverError> {
        if job.verify {
            return Err(DriverError::Unsupported(
                "a neighbour job cannot verify data".to_owned(),
            ));
        }
        let units = check(job, namespace, queue.depth(), 1)?;
        let (blocks, words) = entry(job, namespace)?;
        Ok(Self {
            line: Line::new(job, queue, memory, words, job.buffers)?,
            clock,
            traffic: Plain::new(job, units),
            blocks_per_unit: u64::from(blocks.get()),
            record: Record::new(),
            first: None,
            seen: 0,
            job: job.clone(),
        })
    }

    /// Its measurements.
    #[must_use]
    pub fn result(&self) -> JobResult {
        result(&self.job, &self.record, None)
    }

    /// Takes what has completed without submitting more, until nothing is in flight.
    ///
    /// # Errors
    /// [`DriverError::Timeout`] and those of the queue.
    pub fn finish(&mut self) -> Result<(), DriverError> {
        let deadline = self.line.queue.deadline(self.line.queue.timeout());
        self.line.queue.ring()?;
        while self.line.queue.in_flight() > 0 {
            if self.line.queue.poll()? == 0 {
                if self.line.queue.bus().now_ns() > deadline {
                    return Err(DriverError::Timeout {
                        what: "a neighbour's commands",
                        after: self.line.queue.timeout(),
                    });
                }
                self.line.queue.relax()?;
            }
            while self.line.queue.next_completion().is_some() {}
        }
        self.line.queue.ring()
    }
}

impl<B: Bus, K: Clock> Beside for Neighbour<'_, B, K> {
    #[inline]
    fn turn(&mut self, now: u64) -> Result<(), DriverError> {
        let first = *self.first.get_or_insert(now);
        let since = now.saturating_sub(std::mem::replace(&mut self.seen, now));
        let taken = self.line.queue.poll()?;
        let record = &mut self.record;
        // Where nothing is found then, nothing was missed.
        let stalled = now > first && since > STALL_NS && taken > 0;
        if stalled {
            record.stalls += 1;
            record.stalled_ns += since;
        }
        let mut times = Times::default();
        if taken > 0 {
            times.now = self.clock.now_ns();
            while let Some(cqe) = self.line.queue.next_completion() {
                self.line
                    .complete(&mut self.traffic, &cqe, &times, stalled, record);
            }
        }
        record.elapsed_ns = now - first - record.stalled_ns;
        let free = self.line.queue.in_flight() < self.job.queue_depth;
        if free {
            let at = if taken > 0 {
                times.now
            } else {
                self.clock.now_ns()
            };
            self.line
                .submit(&mut self.traffic, at, self.blocks_per_unit, |_| {})?;
        }
        self.line.queue.ring()
    }
}
