//! Reference measurements beside a job on the same thread, so that both happen in one run, on one
//! processor, under the same load of the machine.

use hdrhistogram::Histogram;
use memory::{Buffer, HostMemory};
use nvme_spec::Sqe;
use nvme_spec::opcode::NvmOpcode;

use super::random::Random;
use super::{Clock, LATENCY_MAX_NS, Latency, STALL_NS, summary};
use crate::bus::{Bus, MappedDoorbells};
use crate::io::{Blocks, Namespace};
use crate::{DriverError, QueuePair};

/// Something done in every turn of a job's loop.
pub trait Beside {
    /// One turn; `now` is when the job looked at the clock last.
    ///
    /// # Errors
    /// Those of a queue; they end the job.
    fn turn(&mut self, now: u64) -> Result<(), DriverError>;

    /// The job submits a command.
    #[inline]
    fn submitted(&mut self, _command: Submitted) {}
}

/// A command of a job, as it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// When the job looked at the clock last.
    pub at_ns: u64,
    /// Index of the queue pair, from 0.
    pub queue: usize,
    /// Whether it is a write.
    pub write: bool,
    /// Its first byte in the namespace.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
}

/// Nothing.
impl Beside for () {
    #[inline]
    fn turn(&mut self, _: u64) -> Result<(), DriverError> {
        Ok(())
    }
}

impl<T: Beside> Beside for Option<T> {
    #[inline]
    fn turn(&mut self, now: u64) -> Result<(), DriverError> {
        self.as_mut().map_or(Ok(()), |beside| beside.turn(now))
    }

    #[inline]
    fn submitted(&mut self, command: Submitted) {
        if let Some(beside) = self {
            beside.submitted(command);
        }
    }
}

/// One after the other.
impl<S: Beside, T: Beside> Beside for (S, T) {
    #[inline]
    fn turn(&mut self, now: u64) -> Result<(), DriverError> {
        self.0.turn(now)?;
        self.1.turn(now)
    }

    #[inline]
    fn submitted(&mut self, command: Submitted) {
        self.0.submitted(command);
        self.1.submitted(command);
    }
}

/// One after the other.
impl<T: Beside> Beside for Vec<T> {
    #[inline]
    fn turn(&mut self, now: u64) -> Result<(), DriverError> {
        self.iter_mut().try_for_each(|beside| beside.turn(now))
    }

    #[inline]
    fn submitted(&mut self, command: Submitted) {
        for beside in self {
            beside.submitted(command);
        }
    }
}

impl<T: Beside> Beside for &mut T {
    #[inline]
    fn turn(&mut self, now: u64) -> Result<(), DriverError> {
        (**self).turn(now)
    }

    #[inline]
    fn submitted(&mut self, command: Submitted) {
        (**self).submitted(command);
    }
}

/// A queue pair that is used now and then: one read of one block, and then
/// nothing for a while. It measures the first command on a cold queue.
pub struct Cold<'a, B: Bus, K> {
    queue: &'a mut QueuePair<B>,
    clock: &'a K,
    entry: Sqe,
    every_ns: u64,
    due_ns: Option<u64>,
    submitted_ns: Option<u64>,
    /// When it last looked for the completion.
    looked_ns: u64,
    /// This thread did not run for a while since then: the read's latency says nothing about the
    /// drive.
    stalled: bool,
    latency: Histogram<u64>,
    errors: u64,
    _buffer: Buffer,
}

impl<'a, B: Bus, K: Clock> Cold<'a, B, K> {
    /// Reads the first block of `namespace` on `queue`, which must be idle,
    /// `every_ns` after the last such read was done.
    ///
    /// # Errors
    /// [`DriverError::NoMemory`].
    pub fn new(
        namespace: &Namespace,
        queue: &'a mut QueuePair<B>,
        memory: &HostMemory,
        clock: &'a K,
        every_ns: u64,
    ) -> Result<Self, DriverError> {
        let len = usize::try_from(namespace.block_len).expect("u32 fits in usize");
        let buffer = memory
            .alloc(len, 4096)
            .ok_or(DriverError::NoMemory { wanted: len })?;
        let one = Blocks::new(1).expect("a command carries one block");
        let mut entry = namespace.transfer(NvmOpcode::READ, 0, one, false);
        queue.pointer(0, &buffer, 0, len)?.put(&mut entry);
        Ok(Self {
            queue,
            clock,
            entry,
            every_ns,
            due_ns: None,
            submitted_ns: None,
            looked_ns: 0,
            stalled: false,
            latency: Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3)
                .expect("the bounds are in order and three digits are possible"),
            errors: 0,
            _buffer: buffer,
        })
    }

    /// Latencies of its reads, how many there were, and how many failed.
    #[must_use]
    pub fn result(&self) -> (Latency, u64, u64) {
        (summary(&self.latency), self.latency.len(), self.errors)
    }
}

impl<B: Bus, K: Clock> Beside for Cold<'_, B, K> {
    #[inline]
    fn turn(&mut self, now: u64) -> Result<(), DriverError> {
        let Some(submitted) = self.submitted_ns else {
            let due = *self
                .due_ns
                .get_or_insert_with(|| now.saturating_add(self.every_ns));
            if now >= due {
                self.looked_ns = self.clock.now_ns();
                self.stalled = false;
                self.submitted_ns = Some(self.looked_ns);
                self.queue
                    .submit(self.entry)
                    .expect("nothing is in flight, and a queue holds one command");
                self.queue.ring()?;
            }
            return Ok(());
        };
        self.queue.poll()?;
        let completion = self.queue.next_completion();
        let now = self.clock.now_ns();
        self.stalled |= now - self.looked_ns > STALL_NS;
        self.looked_ns = now;
        if let Some(cqe) = completion {
            if !self.stalled {
                self.latency.saturating_record(now - submitted);
            }
            self.errors += u64::from(!cqe.status.status().is_success());
            // The completion's entry is given back now: afterwards the queue is cold.
            self.queue.ring()?;
            self.submitted_ns = None;
            self.due_ns = Some(now.saturating_add(self.every_ns));
        }
        Ok(())
    }
}

/// Values that a [`Storm`] stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Any value: most lie outside the queue.
    Wild,
    /// The value that is there.
    Valid,
}

/// A host that stores into its doorbells without end, a store a turn, and
/// submits nothing: a neighbour to measure beside.
pub struct Storm<'a, B: Bus> {
    bus: &'a B,
    mapped: Option<MappedDoorbells>,
    offsets: Vec<u64>,
    stores: Stores,
    random: Random,
    next: usize,
    /// Stores so far.
    pub count: u64,
}

impl<'a, B: Bus> Storm<'a, B> {
    /// Over the doorbells of `queues`, which have not been used.
    #[must_use]
    pub fn new(bus: &'a B, queues: &[QueuePair<B>], stores: Stores) -> Self {
        Self {
            bus,
            mapped: bus.doorbells(),
            offsets: queues
                .iter()
                .flat_map(QueuePair::doorbell_offsets)
                .collect(),
            stores,
            random: Random::new(1),
            next: 0,
            count: 0,
        }
    }
}

impl<B: Bus> Beside for Storm<'_, B> {
    #[inline]
    fn turn(&mut self, _: u64) -> Result<(), DriverError> {
        let Some(&offset) = self.offsets.get(self.next) else {
            return Ok(());
        };
        self.next = (self.next + 1) % self.offsets.len();
        self.count += 1;
        let [a, b, c, d, ..] = self.random.next_u64().to_le_bytes();
        let value = match self.stores {
            Stores::Wild => u32::from_le_bytes([a, b, c, d]),
            Stores::Valid => 0,
        };
        match self
            .mapped
            .as_ref()
            .and_then(|m| Some((m, m.slot(offset)?)))
        {
            Some((mapped, slot)) => {
                mapped.pages.store(slot, value);
                Ok(())
            }
            None => self.bus.ring(offset, value),
        }
    }
}
