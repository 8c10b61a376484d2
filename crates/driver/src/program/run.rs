//! Runs programs.

use std::collections::VecDeque;

use memory::Buffer;

use super::command::{Command, Target};
use crate::bus::Bus;
use crate::workload::went_on;
use crate::{DriverError, QueuePair};

/// A drive on which nothing completes for so long does nothing any more.
const PATIENCE_NS: u64 = 20_000_000_000;

/// Time, for who runs a program.
pub trait Pace {
    /// Nanoseconds from any start.
    fn now_ns(&mut self) -> u64;

    /// Called when the drive has been notified of everything; the program itself has work at
    /// `next`.
    ///
    /// # Errors
    /// Nothing can happen any more.
    fn pass(&mut self, next: Option<u64>) -> Result<(), DriverError>;

    /// Whether to stop submitting, this long after the first command. Commands in flight are waited
    /// for.
    fn is_over(&mut self, _since_ns: u64) -> bool {
        false
    }
}

/// Rules for running a program.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// From when a completion is seen until the command that follows it is submitted.
    pub delay_ns: u64,
    /// Two looks at the clock further apart mean that the machine has not let this thread run. 0:
    /// it always does.
    pub stall_ns: u64,
}

/// A queue pair and its commands. The queue has nothing in flight.
pub struct Worker<'a, B: Bus> {
    /// Its queue pair.
    pub queue: &'a mut QueuePair<B>,
    /// Data of all its commands, at least as large as that of the largest.
    pub buffer: &'a Buffer,
    /// Commands in flight.
    pub depth: u16,
    /// Its commands.
    pub commands: &'a [Command],
}

/// The result of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// For each worker's commands, in their order: nanoseconds from the doorbell to the completion;
    /// `None` if a stall may have delayed the doorbell or the look at the completion. A stall that
    /// ended before the command did has delayed neither, so that long commands are left out no more
    /// often than short ones. Commands that were not submitted before the end have no entry.
    pub latencies_ns: Vec<Vec<Option<u64>>>,
    /// For each worker's commands, in their order: when its completion was seen, since the first
    /// command. As many as were submitted.
    pub done_ns: Vec<Vec<u64>>,
    /// From the first command to the last completion, without the stalls in which the drive waited
    /// for this thread.
    pub elapsed_ns: u64,
    /// Times at which the machine did not let this thread run.
    pub stalls: u64,
    /// How long they were.
    pub stalled_ns: u64,
}

/// A command in flight.
#[derive(Clone, Copy, Default)]
struct Slot {
    index: usize,
    submitted: u64,
    /// Whether a stall may have delayed its doorbell.
    doubtful: bool,
}

/// A running worker.
struct Running<'w, 'a, B: Bus> {
    worker: &'w mut Worker<'a, B>,
    /// Those of the worker that are to be submitted.
    commands: &'a [Command],
    next: usize,
    /// From when on each further command may be submitted.
    free: VecDeque<u64>,
    /// By command identifier.
    slots: Vec<Slot>,
    /// A look at the clock before the last one at the queue.
    polled: u64,
    /// Identifiers that wait for the doorbell.
    waiting: Vec<u16>,
    latencies: Vec<Option<u64>>,
    done: Vec<u64>,
    left: usize,
}

impl<'w, 'a, B: Bus> Running<'w, 'a, B> {
    fn new(worker: &'w mut Worker<'a, B>, now: u64) -> Result<Self, DriverError> {
        let (depth, most) = (worker.depth, worker.queue.depth());
        let alone = worker.commands.iter().any(Command::needs_buffer_alone);
        if depth == 0 || depth > most || alone && depth > 1 {
            return Err(DriverError::Unsupported(format!(
                "queue depth {depth} is out of range: the queue holds 1 to {most} commands, and a worker with compound commands one at a time"
            )));
        }
        let count = worker.commands.len();
        Ok(Self {
            commands: worker.commands,
            next: 0,
            free: (0..depth).map(|_| now).collect(),
            slots: vec![Slot::default(); usize::from(most)],
            polled: now,
            waiting: Vec::with_capacity(usize::from(depth)),
            latencies: vec![None; count],
            done: vec![0; count],
            left: count,
            worker,
        })
    }

    /// Writes the commands that may be submitted by now.
    fn fill(&mut self, target: &Target, now: u64) -> Result<(), DriverError> {
        while self.wake().is_some_and(|wake| wake <= now)
            && let Some(command) = self.commands.get(self.next)
        {
            let Some(cid) = self.worker.queue.next_cid() else {
                return Ok(());
            };
            let entry = command.entry(target, self.worker.queue, self.worker.buffer)?;
            self.worker
                .queue
                .submit(entry)
                .expect("the queue has just named a free slot");
            self.slots[usize::from(cid)].index = self.next;
            self.waiting.push(cid);
            self.free.pop_front();
            self.next += 1;
        }
        Ok(())
    }

    fn submitted(&mut self, now: u64, doubtful: bool) {
        for cid in self.waiting.drain(..) {
            let slot = &mut self.slots[usize::from(cid)];
            (slot.submitted, slot.doubtful) = (now, doubtful);
        }
    }

    /// Returns whether the command's time is known.
    fn finished(&mut self, cid: u16, now: u64, look: &Look, rules: Rules) -> bool {
        let slot = self.slots[usize::from(cid)];
        let known = !slot.doubtful && look.stall_end <= self.polled;
        self.latencies[slot.index] = known.then(|| now - slot.submitted);
        self.done[slot.index] = now;
        self.free.push_back(now + rules.delay_ns);
        self.left -= 1;
        known
    }

    /// Submits nothing more.
    fn cut(&mut self) {
        self.left -= self.commands.len() - self.next;
        self.commands = &self.commands[..self.next];
        self.latencies.truncate(self.next);
        self.done.truncate(self.next);
    }

    /// When the next command may be submitted, where there is one.
    fn wake(&self) -> Option<u64> {
        let more = self.next < self.commands.len();
        self.free.front().copied().filter(|_| more)
    }
}

/// Looks at the clock.
struct Look {
    last: u64,
    /// End and length of the last stall.
    stall_end: u64,
    stall_ns: u64,
    /// Whether it has delayed a command.
    harmful: bool,
    /// Length of the stalls that have, and number of commands that they have delayed.
    lost_ns: u64,
    delayed: u64,
}

impl Look {
    fn new(now: u64) -> Self {
        Look {
            last: now,
            stall_end: 0,
            stall_ns: 0,
            harmful: false,
            lost_ns: 0,
            delayed: 0,
        }
    }

    fn at(&mut self, now: u64, rules: Rules, ran: &mut Ran) -> u64 {
        let since = now - self.last;
        if rules.stall_ns > 0 && since > rules.stall_ns {
            ran.stalls += 1;
            ran.stalled_ns += since;
            (self.stall_end, self.stall_ns, self.harmful) = (now, since, false);
        }
        self.last = now;
        now
    }

    /// The last stall has delayed a command.
    fn delayed(&mut self) {
        self.delayed += 1;
        if !self.harmful {
            self.harmful = true;
            self.lost_ns += self.stall_ns;
        }
    }
}

/// Runs a program to its end, or until its pace says that it is over.
///
/// # Errors
/// A command that fails, or that does not fit its target; a drive that does nothing any more.
pub fn run<B: Bus>(
    workers: &mut [Worker<'_, B>],
    target: &Target,
    rules: Rules,
    pace: &mut impl Pace,
) -> Result<Ran, DriverError> {
    let begun = pace.now_ns();
    let all = workers.iter_mut().map(|worker| Running::new(worker, begun));
    let mut all: Vec<Running<'_, '_, B>> = all.collect::<Result<_, _>>()?;
    let mut ran = Ran::default();
    let mut last_taken = begun;
    let mut look = Look::new(begun);
    while all.iter().any(|running| running.left > 0) {
        for running in &mut all {
            running.fill(target, look.last)?;
            if !running.waiting.is_empty() {
                let now = look.at(pace.now_ns(), rules, &mut ran);
                running.worker.queue.ring()?;
                look.at(pace.now_ns(), rules, &mut ran);
                running.submitted(now, look.stall_end > now);
            }
        }
        pace.pass(all.iter().filter_map(Running::wake).min())?;
        for running in &mut all {
            let before = look.last;
            if running.worker.queue.poll()? > 0 {
                let now = look.at(pace.now_ns(), rules, &mut ran);
                last_taken = now;
                while let Some(cqe) = running.worker.queue.next_completion() {
                    DriverError::check("a command of a program", cqe.status.status())?;
                    if !running.finished(cqe.cid, now, &look, rules) {
                        look.delayed();
                    }
                }
            }
            running.polled = before;
        }
        look.at(pace.now_ns(), rules, &mut ran);
        if pace.is_over(look.last - begun) {
            all.iter_mut().for_each(Running::cut);
        }
        if look.last - last_taken > PATIENCE_NS.saturating_add(rules.delay_ns) {
            return Err(DriverError::Timeout {
                what: "a command of a program",
                after: std::time::Duration::from_nanos(PATIENCE_NS),
            });
        }
    }
    for running in &mut all {
        // The controller learns that the last entries are free.
        running.worker.queue.ring()?;
    }
    let elapsed_ns = last_taken - begun;
    let rest_ns = elapsed_ns.saturating_sub(look.lost_ns);
    let count: usize = all.iter().map(|running| running.commands.len()).sum();
    let rest = count as u64 - look.delayed;
    ran.elapsed_ns = if went_on((look.delayed, look.lost_ns), (rest, rest_ns)) {
        elapsed_ns
    } else {
        rest_ns
    };
    for running in all {
        ran.latencies_ns.push(running.latencies);
        let since = running.done.into_iter().map(|at| at - begun);
        ran.done_ns.push(since.collect());
    }
    Ok(ran)
}
