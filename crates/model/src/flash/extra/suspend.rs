//! Suspension of programs and erases when a read needs their die.
//!
//! For each die the last operation is known, and what waits for its end. Only the last one can
//! move, because a later operation gets its time when it is requested.
//!
//! Not included: other operations of the die. The caller provides the time from which on the die is
//! free, and takes the resulting end.

use crate::moving::Slot;
use crate::parameters::FlashExtras;

/// Something that waits for the end of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    /// A command.
    Command(Slot),
    /// Bytes that return to the buffer.
    Bytes(Slot),
}

/// Suspension state of all dies.
#[derive(Debug)]
pub(in crate::flash) struct Suspension {
    limit: u32,
    suspend: u64,
    resume: u64,
    last: Vec<Last>,
    /// Waiting things that were postponed, with their new times.
    pub(in crate::flash) moved: Vec<(Waiting, u64)>,
}

/// The last program or erase of a die.
#[derive(Clone, Debug, Default)]
struct Last {
    begin: u64,
    end: u64,
    suspended: u32,
    /// End of the last sense during its suspension.
    sensed: u64,
    waiting: Vec<Waiting>,
}

impl Last {
    fn is_suspended(&self, at: u64, resume: u64) -> bool {
        self.suspended > 0 && at < self.sensed.saturating_add(resume)
    }
}

impl Suspension {
    /// From the parameters; `None` if it is off. Earlier operations are not suspended.
    pub(in crate::flash) fn new(
        extras: &FlashExtras,
        dies: usize,
        before: Option<Self>,
    ) -> Option<Self> {
        if extras.suspend_limit == 0 {
            return None;
        }
        let (last, moved) = before.map_or_else(
            || (vec![Last::default(); dies], Vec::new()),
            |before| (before.last, before.moved),
        );
        Some(Self {
            limit: extras.suspend_limit,
            suspend: extras.suspend_ns,
            resume: extras.resume_ns,
            last,
            moved,
        })
    }

    /// Records a program or erase of a die; nothing waits for it yet.
    pub(in crate::flash) fn asked(&mut self, die: usize, begin: u64, end: u64) {
        let last = &mut self.last[die];
        (last.begin, last.end, last.suspended) = (begin, end, 0);
        last.waiting.clear();
    }

    /// Registers something that waits for the last operation of a die.
    pub(in crate::flash) fn wait(&mut self, die: usize, waiting: Waiting) {
        self.last[die].waiting.push(waiting);
    }

    /// Begin of a read's sense that is requested at `at`, if it suspends the last operation of its
    /// die. `free` is the time from which on the whole die is free; [`Suspension::sensed`] follows.
    pub(in crate::flash) fn begin(&self, die: usize, at: u64, free: u64) -> Option<u64> {
        let last = &self.last[die];
        if free > last.end || !(last.begin..last.end).contains(&at) {
            return None;
        }
        if last.is_suspended(at, self.resume) {
            return Some(at.max(last.sensed));
        }
        (last.suspended < self.limit).then(|| at.saturating_add(self.suspend))
    }

    /// Ends that sense at `end`; returns the time from which on the die is free.
    pub(in crate::flash) fn sensed(&mut self, die: usize, at: u64, end: u64) -> u64 {
        let last = &mut self.last[die];
        let longer = if last.is_suspended(at, self.resume) {
            end - last.sensed
        } else {
            last.suspended += 1;
            (end - at).saturating_add(self.resume)
        };
        last.sensed = end;
        last.end = last.end.saturating_add(longer);
        let moved = last.waiting.iter().map(|&waiting| (waiting, last.end));
        self.moved.extend(moved);
        last.end
    }
}
