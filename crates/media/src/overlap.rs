//! Serialization of commands that touch the same bytes, if at least one of them changes the bytes.
//!
//! This makes a write atomic with respect to other commands (AWUN; NVM 1.1, 2.1.4.1), and Compare
//! and Write with respect to all commands. The kernel promises less: a read through the page cache
//! copies while a write does, two direct writes to the same place are two requests that a device
//! may mix, and a device's own atomic unit may be smaller than a namespace's block.
//!
//! Commands without common bytes never wait for each other. A command that must wait does so for
//! the newest older command that conflicts with it, and checks again when that has ended. No
//! command overtakes one that it conflicts with, so no command starves, and a sequence of commands
//! to one place costs one check each.
//!
//! The fast path is a count per 4 KiB, modulo a fixed number of counts: a command without a
//! conflict there has none at all. Only a command with a conflict there checks every older
//! unfinished command.
//!
//! Not included: order between different channels, which [`super::order`] provides.

/// A unit of the counts, as a power of two.
const GRANULE_SHIFT: u32 = 12;
/// Number of counts: a power of two.
const GRANULES: usize = 8192;
/// A command of more granules than this is not counted in each of them; while there is one, every
/// command takes the slow path.
const MOST_COUNTED: u64 = 1100;
/// Contribution of a command to a count: the lower half for any command, and also the upper half
/// for one that changes bytes.
const READS: u32 = 1;
const CHANGES: u32 = 1 << 16 | 1;
/// No slot.
const NONE: u16 = u16::MAX;

/// The ranges of every slot's Deallocate, `stride` per slot: offset and length.
#[derive(Clone, Copy)]
pub(crate) struct Ranges<'a> {
    pub(crate) table: &'a [[u64; 2]],
    pub(crate) stride: usize,
}

impl Ranges<'_> {
    fn of(&self, slot: u16, count: u16) -> &[[u64; 2]] {
        let first = usize::from(slot) * self.stride;
        &self.table[first..first + usize::from(count)]
    }
}

/// Bytes touched by a command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    /// First byte, and the one after the last; with ranges, of all of them together.
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Whether the command may change them.
    pub(crate) changes: bool,
    /// Number of ranges (Deallocate), or 0.
    pub(crate) ranges: u16,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    touched: Touched,
    /// The next older and the next newer command.
    older: u16,
    newer: u16,
    /// The first command that waits for this one, and the next one that waits for the same command
    /// as this.
    waiters: u16,
    next_waiter: u16,
}

/// Every command of a channel that touches bytes, by slot.
#[derive(Debug)]
pub(crate) struct Overlaps {
    counts: Box<[u32]>,
    entries: Box<[Entry]>,
    newest: u16,
    /// Number of commands that are not counted.
    uncounted: u32,
}

impl Overlaps {
    pub(crate) fn new(slots: usize) -> Self {
        let nobody = Entry {
            touched: Touched {
                start: 0,
                end: 0,
                changes: false,
                ranges: 0,
            },
            older: NONE,
            newer: NONE,
            waiters: NONE,
            next_waiter: NONE,
        };
        Overlaps {
            counts: vec![0; GRANULES].into(),
            entries: vec![nobody; slots].into(),
            newest: NONE,
            uncounted: 0,
        }
    }

    /// All commands, the newest first, with the bytes that they touch.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u16, Touched)> {
        let mut next = self.newest;
        std::iter::from_fn(move || {
            let slot = next;
            let entry = self.entries.get(usize::from(slot))?;
            next = entry.older;
            Some((slot, entry.touched))
        })
    }

    /// Bytes touched by a command that has begun and not ended.
    pub(crate) fn touched(&self, slot: u16) -> Touched {
        self.entries[usize::from(slot)].touched
    }

    /// Registers a command. Returns false if it must wait until [`Overlaps::end`] passes it to
    /// `go`.
    pub(crate) fn begin(&mut self, slot: u16, touched: Touched, ranges: Ranges<'_>) -> bool {
        let older = std::mem::replace(&mut self.newest, slot);
        if let Some(entry) = self.entries.get_mut(usize::from(older)) {
            entry.newer = slot;
        }
        self.entries[usize::from(slot)] = Entry {
            touched,
            older,
            newer: NONE,
            waiters: NONE,
            next_waiter: NONE,
        };
        let meets = self.uncounted > 0 || self.meets(touched);
        self.count(touched, u32::wrapping_add);
        !meets || self.find_blocker(slot, ranges)
    }

    /// Registers the end of a command; calls `go` for those that may begin now.
    pub(crate) fn end(&mut self, slot: u16, ranges: Ranges<'_>, mut go: impl FnMut(u16)) {
        let entry = self.entries[usize::from(slot)];
        self.count(entry.touched, u32::wrapping_sub);
        if let Some(older) = self.entries.get_mut(usize::from(entry.older)) {
            older.newer = entry.newer;
        }
        match self.entries.get_mut(usize::from(entry.newer)) {
            Some(newer) => newer.older = entry.older,
            None => self.newest = entry.older,
        }
        let mut waiter = entry.waiters;
        while waiter != NONE {
            let next = self.entries[usize::from(waiter)].next_waiter;
            if self.find_blocker(waiter, ranges) {
                go(waiter);
            }
            waiter = next;
        }
    }

    /// Granules from the first to the last.
    fn granules(touched: Touched) -> std::ops::RangeInclusive<u64> {
        touched.start >> GRANULE_SHIFT..=(touched.end - 1) >> GRANULE_SHIFT
    }

    fn is_counted(touched: Touched) -> bool {
        touched.ranges == 0 && touched.end - touched.start <= MOST_COUNTED << GRANULE_SHIFT
    }

    /// Whether another command may be in the same place.
    #[inline]
    fn meets(&self, touched: Touched) -> bool {
        if !Self::is_counted(touched) {
            return true;
        }
        // A reading command conflicts with changing ones, a changing one with all.
        let mask = if touched.changes { u32::MAX } else { !0xFFFF };
        let mut granules = Self::granules(touched);
        granules.any(|granule| self.counts[granule as usize % GRANULES] & mask != 0)
    }

    #[inline]
    fn count(&mut self, touched: Touched, change: impl Fn(u32, u32) -> u32) {
        if !Self::is_counted(touched) {
            self.uncounted = change(self.uncounted, 1);
            return;
        }
        let by = if touched.changes { CHANGES } else { READS };
        for granule in Self::granules(touched) {
            let count = &mut self.counts[granule as usize % GRANULES];
            *count = change(*count, by);
        }
    }

    /// Makes a command wait for the newest older one that conflicts with it. Returns true if there
    /// is none.
    #[cold]
    fn find_blocker(&mut self, slot: u16, ranges: Ranges<'_>) -> bool {
        let mut other = self.entries[usize::from(slot)].older;
        while other != NONE {
            if self.must_not_meet(slot, other, ranges) {
                let first = std::mem::replace(&mut self.entries[usize::from(other)].waiters, slot);
                self.entries[usize::from(slot)].next_waiter = first;
                return false;
            }
            other = self.entries[usize::from(other)].older;
        }
        true
    }

    fn must_not_meet(&self, slot: u16, other: u16, ranges: Ranges<'_>) -> bool {
        let (one, two) = (
            self.entries[usize::from(slot)].touched,
            self.entries[usize::from(other)].touched,
        );
        if !(one.changes || two.changes) || one.start >= two.end || two.start >= one.end {
            return false;
        }
        let hits = |slot, of: Touched, bytes: Touched| {
            let mut pieces = ranges.of(slot, of.ranges).iter();
            pieces.any(|[offset, len]| *offset < bytes.end && bytes.start < offset + len)
        };
        match (one.ranges, two.ranges) {
            (0, 0) => true,
            (_, 0) => hits(slot, one, two),
            (0, _) => hits(other, two, one),
            // Both discard bytes: in either order, nothing is torn.
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SLOTS: usize = 12;
    const STRIDE: usize = 4;

    #[derive(Clone, Debug)]
    enum Step {
        Begin {
            start: u64,
            len: u64,
            changes: bool,
        },
        Deallocate(Vec<(u64, u64)>),
        /// The running command with this index ends.
        End(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let place = || {
            prop_oneof![
                6 => (0u64..40, 1u64..9).prop_map(|(at, len)| (at * 512, len * 512)),
                // A granule that shares its count with the first ones.
                1 => (0u64..4).prop_map(|at| ((GRANULES as u64) << GRANULE_SHIFT | at << 12, 4096)),
                // More than is counted.
                1 => (0u64..40).prop_map(|at| (at * 512, MOST_COUNTED << (GRANULE_SHIFT + 1))),
            ]
        };
        prop_oneof![
            6 => (place(), any::<bool>()).prop_map(|((start, len), changes)| Step::Begin { start, len, changes }),
            1 => prop::collection::vec(place(), 1..STRIDE).prop_map(Step::Deallocate),
            6 => (0..SLOTS).prop_map(Step::End),
        ]
    }

    /// A command of the model.
    #[derive(Clone, Debug)]
    struct Command {
        slot: u16,
        pieces: Vec<(u64, u64)>,
        changes: bool,
        deallocates: bool,
        runs: bool,
    }

    impl Command {
        fn conflicts(&self, other: &Command) -> bool {
            let meet = |(a, m): (u64, u64), (b, n): (u64, u64)| a < b + n && b < a + m;
            let touch = self
                .pieces
                .iter()
                .any(|one| other.pieces.iter().any(|two| meet(*one, *two)));
            touch && (self.changes || other.changes) && !(self.deallocates && other.deallocates)
        }
    }

    proptest! {
        /// A command runs exactly when none that is older and not done conflicts with it.
        #[test]
        fn commands_run_as_a_list_of_them_says(steps in prop::collection::vec(step(), 1..120)) {
            let mut overlaps = Overlaps::new(SLOTS);
            let mut table = vec![[0u64; 2]; SLOTS * STRIDE];
            let mut free: Vec<u16> = (0..SLOTS as u16).collect();
            let mut model: Vec<Command> = Vec::new();
            for step in steps {
                let (pieces, changes, deallocates) = match step {
                    Step::Begin { start, len, changes } => (vec![(start, len)], changes, false),
                    Step::Deallocate(pieces) => (pieces, true, true),
                    Step::End(which) => {
                        let running: Vec<usize> = (0..model.len()).filter(|at| model[*at].runs).collect();
                        if running.is_empty() {
                            continue;
                        }
                        let ended = model.remove(running[which % running.len()]);
                        let ranges = Ranges { table: &table, stride: STRIDE };
                        overlaps.end(ended.slot, ranges, |slot| {
                            let went = model.iter_mut().find(|command| command.slot == slot).unwrap();
                            assert!(!went.runs, "once");
                            went.runs = true;
                        });
                        free.push(ended.slot);
                        for at in 0..model.len() {
                            let waits = model[..at].iter().any(|older| older.conflicts(&model[at]));
                            prop_assert_eq!(model[at].runs, !waits);
                        }
                        continue;
                    }
                };
                let Some(slot) = free.pop() else { continue };
                let ranges = if deallocates { pieces.len() as u16 } else { 0 };
                for (place, (offset, len)) in table[usize::from(slot) * STRIDE..].iter_mut().zip(&pieces) {
                    *place = [*offset, *len];
                }
                let touched = Touched {
                    start: pieces.iter().map(|(offset, _)| *offset).min().unwrap(),
                    end: pieces.iter().map(|(offset, len)| offset + len).max().unwrap(),
                    changes,
                    ranges,
                };
                let runs = overlaps.begin(slot, touched, Ranges { table: &table, stride: STRIDE });
                let command = Command { slot, pieces, changes, deallocates, runs };
                let waits = model.iter().any(|older| older.conflicts(&command));
                prop_assert_eq!(runs, !waits);
                model.push(command);
            }
            // Everything ends, and nothing is left behind.
            while let Some(at) = model.iter().position(|command| command.runs) {
                let ended = model.remove(at);
                overlaps.end(ended.slot, Ranges { table: &table, stride: STRIDE }, |slot| {
                    model.iter_mut().find(|command| command.slot == slot).unwrap().runs = true;
                });
            }
            prop_assert!(model.is_empty());
            prop_assert!(overlaps.counts.iter().all(|count| *count == 0));
            prop_assert_eq!((overlaps.uncounted, overlaps.newest), (0, NONE));
        }
    }
}
