//! Programs and erases that are suspended when a read wants their die.
//!
//! Of each die the last operation is known, and who waits for its end: only that one can move, as
//! what is asked of a die after it has its time from then on.
//!
//! What it does NOT do: know what else the die does. Whoever asks says from when on the die is
//! free, and takes the end that comes out of it.

use crate::flash::{Buffer, Dies};
use crate::moving::Slot;
use crate::parameters::FlashExtras;
use crate::pending::Pending;

/// What waits for the end of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waiting {
    /// A command.
    Command(Slot),
    /// Bytes that come back to the buffer.
    Bytes(Slot),
}

/// All dies.
#[derive(Debug)]
pub(in crate::flash) struct Suspension {
    limit: u32,
    suspend: u64,
    resume: u64,
    last: Vec<Last>,
    /// What waits for something that has moved, and to when.
    pub(in crate::flash) moved: Vec<(Waiting, u64)>,
}

/// The last program or erase of a die.
#[derive(Clone, Debug, Default)]
struct Last {
    begin: u64,
    end: u64,
    suspended: u32,
    /// The end of the last sense made while it was suspended.
    sensed: u64,
    waiting: Vec<Waiting>,
}

impl Last {
    fn is_suspended(&self, at: u64, resume: u64) -> bool {
        self.suspended > 0 && at < self.sensed.saturating_add(resume)
    }
}

impl Suspension {
    /// As the parameters say: none if it is off. What was asked for before that is not suspended.
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

    /// A program or erase of a die was asked for, which nobody waits for yet.
    pub(in crate::flash) fn asked(&mut self, die: usize, begin: u64, end: u64) {
        let last = &mut self.last[die];
        (last.begin, last.end, last.suspended) = (begin, end, 0);
        last.waiting.clear();
    }

    /// Something waits for the last operation of a die.
    pub(in crate::flash) fn wait(&mut self, die: usize, waiting: Waiting) {
        self.last[die].waiting.push(waiting);
    }

    /// When the sense of a read begins that is asked for at `at`, if the last operation of its die
    /// gives way to it. `free` is from when on all of the die is free; [`Suspension::sensed`]
    /// follows.
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

    /// That sense ended at `end`; gives from when on the die is free.
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

/// Bytes of a pool of the buffer come back when what was asked of a die last ends, at `end` as
/// things stand.
pub(crate) fn give_back(
    buffer: &mut Buffer,
    dies: &mut Dies,
    die: usize,
    end: u64,
    (pool, bytes): (usize, u64),
) {
    if dies.are_suspended() && bytes > 0 {
        let slot = buffer.give_back_moving(end, pool, bytes);
        dies.wait(die, Waiting::Bytes(slot));
    } else {
        buffer.give_back(end, pool, bytes);
    }
}

/// Has those wait longer who wait for what was suspended.
pub(crate) fn postpone(dies: &mut Dies, pending: &mut Pending, buffer: &mut Buffer) {
    for (waiting, until) in dies.moved() {
        match waiting {
            Waiting::Command(slot) => pending.postpone(slot, until),
            Waiting::Bytes(slot) => buffer.postpone(slot, until),
        }
    }
}
