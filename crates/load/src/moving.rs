//! A job on a drive that moves to another server meanwhile: that of `nvmirage migrate`.

use std::ops::ControlFlow;
use std::path::Path;

use driver::bus::Bus as _;
use driver::bus::movable::{MemoryCopy, Movable, Move, MoveError};
use driver::io::Namespace;
use driver::workload::beside::{Beside, Submitted};
use driver::workload::{self, Job, JobResult, Progress, Setting};
use driver::{DriverError, QueuePair};
use memory::HostMemory;

/// Rounds of the copy of the host's memory before the stop; the first one copies everything.
const ROUNDS: u64 = 5;
/// Time from one to the next, in nanoseconds.
const ROUND_NS: u64 = 10_000_000;

/// Moves the drive at some time, in a turn of the job's loop.
pub struct Mover<'a> {
    bus: &'a Movable,
    to: &'a Path,
    /// When the next round is due.
    due_ns: u64,
    /// The copy of the memory, once it has begun.
    pub copy: Option<MemoryCopy>,
    /// The move, once it is over.
    pub moved: Option<Result<Move, MoveError>>,
    /// Commands that were submitted before it.
    pub before: u64,
    /// Commands that were submitted after it.
    pub after: u64,
}

impl Beside for Mover<'_> {
    fn turn(&mut self, now: u64) -> Result<(), DriverError> {
        if self.moved.is_none() && now >= self.due_ns {
            self.due_ns = now + ROUND_NS;
            if let Err(error) = self.go_on() {
                self.moved = Some(Err(error));
            }
        }
        Ok(())
    }

    fn submitted(&mut self, _: Submitted) {
        match self.moved {
            None => self.before += 1,
            Some(_) => self.after += 1,
        }
    }
}

impl<'a> Mover<'a> {
    /// Begins at this time of the bus to copy, and then moves the drive to the server at `to`.
    #[must_use]
    pub fn new(bus: &'a Movable, to: &'a Path, due_ns: u64) -> Self {
        Mover {
            bus,
            to,
            due_ns,
            copy: None,
            moved: None,
            before: 0,
            after: 0,
        }
    }

    /// The next round, or the move.
    fn go_on(&mut self) -> Result<(), MoveError> {
        match &mut self.copy {
            None => self.copy = Some(self.bus.copy_memory().map_err(MoveError::Stayed)?),
            Some(copy) if copy.rounds < ROUNDS => {
                self.bus.copy_written(copy).map_err(MoveError::Stayed)?;
            }
            Some(copy) => self.moved = Some(Ok(self.bus.move_copied(self.to, copy)?)),
        }
        Ok(())
    }
}

/// Runs a job while the drive moves.
///
/// # Errors
/// Those of [`workload::run_in`].
pub fn run(
    job: &Job,
    namespace: &Namespace,
    queue: &mut QueuePair<Movable>,
    memory: &HostMemory,
    mover: &mut Mover<'_>,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<JobResult, DriverError> {
    let bus = mover.bus;
    let setting = Setting {
        namespace,
        queues: std::slice::from_mut(queue),
        memory,
        clock: &|| bus.now_ns(),
        beside: mover,
    };
    workload::run_in(job, setting, progress)
}
