//! Which values a block may have: the last write that completed, or one that overlaps it in time.
//!
//! Each block is a register. A write takes effect at one moment between its submission and its
//! completion, a read sees the value of one moment between its own (linearizability). The ledger
//! keeps, for each block, the writes that a read may still see, and when a write has certainly been
//! overwritten:
//!
//! - when a write that was submitted after it had completed has completed, too;
//! - when a read has seen a write that was submitted after it had completed;
//! - when a read that was submitted after it had completed has seen another.
//!
//! A write that a read has seen has taken effect by the time the read completes. A write whose
//! completion never came (a reset, say) may take effect until its medium has certainly done with it
//! ([`Ledger::settle`]).
//!
//! Moments are numbers that grow with every submission and every completion; two are never the
//! same.

use std::fmt;

use crate::stamp::{Found, Place};

/// Not yet.
const NEVER: u64 = u64::MAX;

/// A write that may be what a block holds.
#[derive(Clone, Copy, Debug)]
struct Record {
    write: u64,
    zeroes: bool,
    submitted: u64,
    /// It has taken effect by then, or never will.
    done: u64,
    /// It has certainly been overwritten by then.
    overwritten: u64,
}

#[derive(Clone, Debug)]
struct Block {
    records: Vec<Record>,
    /// Reads that have not completed.
    readers: u32,
}

/// Blocks that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Number of the namespace.
    pub space: u16,
    /// First block.
    pub lba: u64,
    /// How many.
    pub count: u32,
}

/// A read that saw what it must not.
#[derive(Debug)]
pub struct Wrong {
    place: Place,
    found: Found,
    submitted: u64,
    records: Vec<Record>,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { space, lba } = self.place;
        write!(
            f,
            "block {lba} of namespace {space} reads as {:?}, submitted at {}; it may be",
            self.found, self.submitted
        )?;
        for record in &self.records {
            let Record {
                write,
                zeroes,
                submitted,
                done,
                overwritten,
            } = *record;
            let what = if zeroes { "zeroes" } else { "write" };
            write!(f, " [{what} {write}: {submitted}")?;
            for moment in [done, overwritten] {
                match moment {
                    NEVER => write!(f, ", ...")?,
                    moment => write!(f, ", {moment}")?,
                }
            }
            write!(f, "]")?;
        }
        Ok(())
    }
}

/// A write that may still take effect, or not.
#[derive(Clone, Copy, Debug)]
struct Open {
    medium: usize,
    span: Span,
    write: u64,
    zeroes: bool,
    since: u64,
}

/// All blocks of all namespaces.
#[derive(Debug, Default)]
pub struct Ledger {
    spaces: Vec<Vec<Block>>,
    moment: u64,
    writes: u64,
    open: Vec<Open>,
}

impl Ledger {
    /// A namespace of so many blocks, all zeroes; its number.
    pub fn add_space(&mut self, blocks: u64) -> u16 {
        let zeroes = Record {
            write: 0,
            zeroes: true,
            submitted: 0,
            done: 0,
            overwritten: NEVER,
        };
        let block = Block {
            records: vec![zeroes],
            readers: 0,
        };
        self.spaces.push(vec![block; blocks as usize]);
        (self.spaces.len() - 1) as u16
    }

    /// The next moment.
    #[inline]
    pub fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// The moment that was last.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.moment
    }

    fn blocks(&mut self, span: Span) -> impl Iterator<Item = (u64, &mut Block)> {
        let first = span.lba as usize;
        let blocks = &mut self.spaces[usize::from(span.space)];
        let blocks = &mut blocks[first..first + span.count as usize];
        (span.lba..).zip(blocks)
    }

    /// A read is submitted: when.
    #[inline]
    pub fn begin_read(&mut self, span: Span) -> u64 {
        let moment = self.moment();
        self.blocks(span).for_each(|(_, block)| block.readers += 1);
        moment
    }

    /// A read that was submitted at `submitted` has completed; `found` says what it saw of each
    /// block.
    ///
    /// # Errors
    /// A block cannot have been that.
    pub fn end_read(
        &mut self,
        span: Span,
        submitted: u64,
        mut found: impl FnMut(u32, Place) -> Found,
    ) -> Result<(), Wrong> {
        let now = self.moment();
        let space = span.space;
        for (at, (lba, block)) in (0..).zip(self.blocks(span)) {
            let place = Place { space, lba };
            let found = found(at, place);
            block.readers -= 1;
            if !block.saw(found, submitted, now) {
                return Err(Wrong {
                    place,
                    found,
                    submitted,
                    records: block.records.clone(),
                });
            }
        }
        Ok(())
    }

    /// A read has ended without data.
    pub fn drop_read(&mut self, span: Span) {
        for (_, block) in self.blocks(span) {
            block.readers -= 1;
            block.forget();
        }
    }

    /// A block certainly holds that write; 0 is zeroes. Nothing was submitted for it yet.
    pub fn set(&mut self, place: Place, write: u64) {
        let block = &mut self.spaces[usize::from(place.space)][place.lba as usize];
        block.records = vec![Record {
            write,
            zeroes: write == 0,
            submitted: 0,
            done: 0,
            overwritten: NEVER,
        }];
    }

    /// Writes up to this number are somebody else's.
    pub fn skip_writes(&mut self, to: u64) {
        self.writes = self.writes.max(to);
    }

    /// A number for a write.
    #[inline]
    pub fn next_write(&mut self) -> u64 {
        self.writes += 1;
        self.writes
    }

    /// That write, or the part of it that concerns these blocks, is submitted.
    #[inline]
    pub fn begin_write(&mut self, span: Span, write: u64, zeroes: bool) {
        let submitted = self.moment();
        let record = Record {
            write,
            zeroes,
            submitted,
            done: NEVER,
            overwritten: NEVER,
        };
        for (_, block) in self.blocks(span) {
            // Ranges of one command may overlap.
            if block.records.last().is_none_or(|last| last.write != write) {
                block.records.push(record);
            }
        }
    }

    /// It has completed.
    #[inline]
    pub fn end_write(&mut self, span: Span, write: u64) {
        let now = self.moment();
        for (_, block) in self.blocks(span) {
            block.wrote(write, now);
        }
    }

    /// It has failed, or its host gets no outcome: the channel of `medium` that has it may still
    /// perform it, but no channel gets it after now.
    pub fn leave_open(&mut self, medium: usize, span: Span, write: u64, zeroes: bool) {
        let since = self.moment();
        self.open.push(Open {
            medium,
            span,
            write,
            zeroes,
            since,
        });
    }

    /// The process dies that has these writes: another one may perform them a second time, also
    /// those whose host gets no outcome. Whatever was known of when they took effect is void.
    pub fn repeat(&mut self, writes: &[(Span, u64, bool)]) {
        let open = self
            .open
            .iter()
            .map(|open| (open.span, open.write, open.zeroes));
        let all: Vec<_> = writes.iter().copied().chain(open).collect();
        for (span, write, zeroes) in all {
            for (_, block) in self.blocks(span) {
                block.repeat(write, zeroes);
            }
        }
    }

    /// What the dead process had fetched has been performed: no channel gets an open write after
    /// now.
    pub fn repeated(&mut self) {
        let now = self.moment();
        for open in &mut self.open {
            open.since = now;
        }
    }

    /// Whether there are writes with an unknown outcome.
    #[must_use]
    pub fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// `medium` has nothing in flight that it was given before `oldest`, a moment.
    pub fn settle(&mut self, medium: usize, oldest: u64) {
        let mut open = std::mem::take(&mut self.open);
        open.retain(|write| {
            let over = write.medium == medium && write.since <= oldest;
            if over {
                let now = self.moment();
                for (_, block) in self.blocks(write.span) {
                    block.closed(write.write, now);
                }
            }
            !over
        });
        self.open = open;
    }

    /// Certain contents of blocks without a write in flight: the write for each, 0 for zeroes.
    #[must_use]
    pub fn certain(&self, span: Span) -> Option<Vec<u64>> {
        let blocks = &self.spaces[usize::from(span.space)];
        let first = span.lba as usize;
        let blocks = &blocks[first..first + span.count as usize];
        let one = |block: &Block| match block.records[..] {
            [one] if one.done != NEVER => Some(if one.zeroes { 0 } else { one.write }),
            _ => None,
        };
        blocks.iter().map(one).collect()
    }

    /// Whether a comparison with what blocks held at `submitted` may have found a difference.
    #[must_use]
    pub fn may_differ(&self, span: Span, expected: &[u64], submitted: u64) -> bool {
        let blocks = &self.spaces[usize::from(span.space)];
        let blocks = &blocks[span.lba as usize..];
        blocks.iter().zip(expected).any(|(block, expected)| {
            let mut records = block.records.iter();
            records.any(|r| {
                let value = if r.zeroes { 0 } else { r.write };
                value != *expected && r.overwritten >= submitted
            })
        })
    }
}

impl Block {
    /// A read from `submitted` to `now` has seen this.
    #[inline]
    fn saw(&mut self, found: Found, submitted: u64, now: u64) -> bool {
        let is = |r: &Record| {
            r.overwritten >= submitted
                && match found {
                    Found::Zeroes => r.zeroes,
                    Found::Write(write) => !r.zeroes && r.write == write,
                    Found::Copy(..) | Found::Wrong { .. } => false,
                }
        };
        let mut seen = self.records.iter_mut().filter(|r| is(r));
        let Some(first) = seen.next() else {
            return false;
        };
        if seen.next().is_none() {
            let first = self.records.iter_mut().find(|r| is(r));
            let first = first.expect("it was just there");
            first.done = first.done.min(now);
            let (write, began) = (first.write, first.submitted);
            for other in self.records.iter_mut().filter(|r| r.write != write) {
                if other.done < began || other.done < submitted {
                    other.overwritten = other.overwritten.min(now);
                }
            }
        } else {
            let _ = first;
            for other in self.records.iter_mut().filter(|r| !r.zeroes) {
                if other.done < submitted {
                    other.overwritten = other.overwritten.min(now);
                }
            }
        }
        self.forget();
        true
    }

    #[inline]
    fn wrote(&mut self, write: u64, now: u64) {
        let own = self.records.iter_mut().find(|r| r.write == write);
        // One that was overwritten is forgotten.
        let Some(own) = own else { return };
        own.done = own.done.min(now);
        let began = own.submitted;
        for other in self.records.iter_mut().filter(|r| r.done < began) {
            other.overwritten = other.overwritten.min(now);
        }
        self.forget();
    }

    /// A write may take effect once more, or not.
    fn repeat(&mut self, write: u64, zeroes: bool) {
        if let Some(own) = self.records.iter_mut().find(|r| r.write == write) {
            (own.done, own.overwritten) = (NEVER, NEVER);
        } else {
            self.records.push(Record {
                write,
                zeroes,
                // It was overwritten: its completion says nothing about others.
                submitted: 0,
                done: NEVER,
                overwritten: NEVER,
            });
        }
    }

    /// A write has taken effect by now, or never will.
    fn closed(&mut self, write: u64, now: u64) {
        if let Some(own) = self.records.iter_mut().find(|r| r.write == write) {
            own.done = own.done.min(now);
        }
    }

    /// Forgets what no read can see any more.
    #[inline]
    fn forget(&mut self) {
        if self.readers == 0 && self.records.len() > 1 {
            self.records.retain(|r| r.overwritten == NEVER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span {
        space: 0,
        lba: 0,
        count: 1,
    };

    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.add_space(1);
        ledger
    }

    fn write(ledger: &mut Ledger) -> u64 {
        let write = ledger.next_write();
        ledger.begin_write(SPAN, write, false);
        write
    }

    fn reads(ledger: &mut Ledger, submitted: u64, found: Found) -> bool {
        ledger.end_read(SPAN, submitted, |_, _| found).is_ok()
    }

    #[test]
    fn a_read_sees_the_last_write_or_one_that_overlaps_it() {
        let mut ledger = ledger();
        let first = write(&mut ledger);
        ledger.end_write(SPAN, first);
        let read = ledger.begin_read(SPAN);
        let second = write(&mut ledger);
        for found in [Found::Write(first), Found::Write(second)] {
            let mut other = Ledger {
                spaces: ledger.spaces.clone(),
                ..Ledger::default()
            };
            other.moment = ledger.moment;
            assert!(reads(&mut other, read, found), "{found:?}");
        }
        assert!(!reads(&mut ledger, read, Found::Zeroes));
    }

    #[test]
    fn what_was_overwritten_is_not_read_again() {
        let mut ledger = ledger();
        let [first, second] = [(); 2].map(|()| {
            let write = write(&mut ledger);
            ledger.end_write(SPAN, write);
            write
        });
        let read = ledger.begin_read(SPAN);
        assert!(!reads(&mut ledger, read, Found::Write(first)));
        let read = ledger.begin_read(SPAN);
        assert!(reads(&mut ledger, read, Found::Write(second)));
    }

    #[test]
    fn reads_do_not_go_back() {
        let mut ledger = ledger();
        let (first, second) = (write(&mut ledger), write(&mut ledger));
        // Both are out: a read sees one of them, and then it has happened.
        let read = ledger.begin_read(SPAN);
        assert!(reads(&mut ledger, read, Found::Write(second)));
        let read = ledger.begin_read(SPAN);
        assert!(!reads(&mut ledger, read, Found::Zeroes));
        // The other one may still come, after which it is the other way round.
        let read = ledger.begin_read(SPAN);
        assert!(reads(&mut ledger, read, Found::Write(first)));
        ledger.end_write(SPAN, first);
        ledger.end_write(SPAN, second);
        let read = ledger.begin_read(SPAN);
        assert!(reads(&mut ledger, read, Found::Write(first)));
        let read = ledger.begin_read(SPAN);
        assert!(!reads(&mut ledger, read, Found::Write(second)));
    }

    #[test]
    fn a_write_that_nobody_hears_of_may_come_until_its_medium_is_done_with_it() {
        let mut ledger = ledger();
        let lost = write(&mut ledger);
        ledger.leave_open(0, SPAN, lost, false);
        let last = write(&mut ledger);
        ledger.end_write(SPAN, last);
        let read = ledger.begin_read(SPAN);
        assert!(reads(&mut ledger, read, Found::Write(last)));
        let read = ledger.begin_read(SPAN);
        assert!(reads(&mut ledger, read, Found::Write(lost)));
        let next = write(&mut ledger);
        ledger.end_write(SPAN, next);
        ledger.settle(0, u64::MAX);
        assert!(!ledger.has_open());
        let read = ledger.begin_read(SPAN);
        assert!(!reads(&mut ledger, read, Found::Write(lost)));
    }

    #[test]
    fn a_write_that_is_settled_overwrites_nothing() {
        let mut ledger = ledger();
        let first = write(&mut ledger);
        ledger.end_write(SPAN, first);
        let lost = write(&mut ledger);
        ledger.leave_open(0, SPAN, lost, false);
        ledger.settle(0, u64::MAX);
        assert_eq!(ledger.certain(SPAN), None);
        let read = ledger.begin_read(SPAN);
        assert!(reads(&mut ledger, read, Found::Write(first)));
        // It has not happened, and never will.
        assert_eq!(ledger.certain(SPAN), Some(vec![first]));
    }
}
