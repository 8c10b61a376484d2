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
//! A copy is a write of what its source may hold from the copy's submission to its completion. So
//! it reads its source as long as it is in flight.
//!
//! Moments are numbers that grow with every submission and every completion; two are never the
//! same.

use std::collections::BTreeSet;
use std::fmt;

use crate::stamp::{Found, Place};

/// Not yet.
const NEVER: u64 = u64::MAX;
/// More values than this are many.
const VAGUE: usize = 6;
/// As many copies may go on at a time.
const COPIES: usize = 24;

/// Possible content of a block: zeroes, or data that a write has written, there or elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Zeroes,
    Of(Place, u64),
}

impl Value {
    /// The content found in a block; `None` for data that no write has written.
    fn of(place: Place, found: Found) -> Option<Value> {
        match found {
            Found::Zeroes => Some(Value::Zeroes),
            Found::Write(write) => Some(Value::Of(place, write)),
            Found::Copy(from, write) => Some(Value::Of(from, write)),
            Found::Wrong { .. } => None,
        }
    }
}

/// Effect of a write on a block.
#[derive(Clone, Debug)]
enum Content {
    Zeroes,
    Data,
    /// Possible contents of this block from that moment on; the copy is in flight.
    Copying(Place, u64),
    /// One of these.
    Copied(Vec<Value>),
}

/// Effect of a command on the blocks that it writes.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It writes zeroes.
    Zeroes,
    /// It writes data.
    Data,
    /// It writes what these blocks hold, which it has read since that moment.
    Copy(Vec<Span>, u64),
}

/// A write that may be what a block holds.
#[derive(Clone, Debug)]
struct Record {
    write: u64,
    content: Content,
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

impl Span {
    /// Whether it shares blocks with another one.
    #[must_use]
    pub fn meets(self, other: Span) -> bool {
        let end = |span: Span| span.lba + u64::from(span.count);
        self.space == other.space && self.lba < end(other) && other.lba < end(self)
    }
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
                content,
                submitted,
                done,
                overwritten,
            } = record;
            write!(f, " [{content:?} {write}: {submitted}")?;
            for moment in [done, overwritten] {
                match *moment {
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
#[derive(Clone, Debug)]
struct Open {
    medium: usize,
    span: Span,
    write: u64,
    effect: Effect,
    since: u64,
}

/// All blocks of all namespaces.
#[derive(Debug, Default)]
pub struct Ledger {
    spaces: Vec<Vec<Block>>,
    moment: u64,
    writes: u64,
    open: Vec<Open>,
    /// Copies in flight, or with an unknown outcome.
    copies: usize,
}

impl Ledger {
    /// A namespace of so many blocks, all zeroes; its number.
    pub fn add_space(&mut self, blocks: u64) -> u16 {
        let zeroes = Record {
            write: 0,
            content: Content::Zeroes,
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
        for (at, lba) in (0..span.count).zip(span.lba..) {
            let place = Place { space, lba };
            let found = found(at, place);
            let value = Value::of(place, found);
            let copies = value.map(|value| self.copies_to(place, value, submitted));
            let block = self.block_mut(place);
            block.readers -= 1;
            let seen = value.zip(copies);
            if !seen.is_some_and(|(value, copies)| block.saw(place, value, &copies, submitted, now))
            {
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

    fn block(&self, place: Place) -> &Block {
        &self.spaces[usize::from(place.space)][place.lba as usize]
    }

    fn block_mut(&mut self, place: Place) -> &mut Block {
        &mut self.spaces[usize::from(place.space)][place.lba as usize]
    }

    /// The copies in flight to a block that may write that. If another write has, all of them: that
    /// tells less, and takes less time.
    fn copies_to(&self, place: Place, value: Value, submitted: u64) -> Vec<u64> {
        let records = &self.block(place).records;
        let is_simple = records
            .iter()
            .any(|record| record.overwritten >= submitted && record.may_be(place, value, &[]));
        let copies = records.iter().filter_map(|record| match record.content {
            Content::Copying(from, since) => {
                let may = is_simple || self.may_hold(from, since, value, &mut vec![from]);
                may.then_some(record.write)
            }
            _ => None,
        });
        copies.collect()
    }

    /// Whether a block may have held that since a moment, in which it has been read.
    fn may_hold(&self, place: Place, since: u64, value: Value, seen: &mut Vec<Place>) -> bool {
        let mut records = self.block(place).records.iter();
        records.any(|record| {
            record.overwritten >= since
                && match record.content {
                    Content::Copying(from, _) if seen.contains(&from) => false,
                    Content::Copying(from, since) => {
                        seen.push(from);
                        self.may_hold(from, since, value, seen)
                    }
                    _ => record.may_be(place, value, &[]),
                }
        })
    }

    /// Possible contents of a block since a moment, in which it has been read.
    fn collect(
        &self,
        place: Place,
        since: u64,
        seen: &mut Vec<Place>,
        values: &mut BTreeSet<Value>,
    ) {
        let records = self.block(place).records.iter();
        for record in records.filter(|record| record.overwritten >= since) {
            let one = match &record.content {
                Content::Zeroes => &[Value::Zeroes][..],
                Content::Data => &[Value::Of(place, record.write)],
                Content::Copied(values) => values,
                Content::Copying(from, since) => {
                    if !seen.contains(from) {
                        seen.push(*from);
                        self.collect(*from, *since, seen, values);
                    }
                    continue;
                }
            };
            values.extend(one);
        }
    }

    /// Whether some block may hold one of many values: a read tells which, and a copy that came
    /// before would make more of such blocks.
    #[must_use]
    pub fn is_vague(&self, span: Span) -> bool {
        each(span).any(|place| {
            let mut values = BTreeSet::new();
            self.collect(place, 0, &mut vec![place], &mut values);
            values.len() > VAGUE
        })
    }

    /// Whether one more copy is too many: what a block may hold follows from all of those that
    /// have not ended, and those of a medium that hangs add up.
    #[must_use]
    pub fn has_many_copies(&self) -> bool {
        self.copies >= COPIES
    }

    /// A copy from blocks to as many others is submitted: when.
    pub fn begin_copy(&mut self, span: Span, sources: &[Span], write: u64) -> u64 {
        self.copies += 1;
        let submitted = self.moment();
        for (to, from) in each(span).zip(sources.iter().copied().flat_map(each)) {
            self.block_mut(from).readers += 1;
            self.block_mut(to).records.push(Record {
                write,
                content: Content::Copying(from, submitted),
                submitted,
                done: NEVER,
                overwritten: NEVER,
            });
        }
        submitted
    }

    /// A copy reads no more: what it has written is known.
    fn fix_copy(&mut self, span: Span, sources: &[Span], write: u64) {
        self.copies -= 1;
        let known: Vec<_> = each(span)
            .map(|to| {
                let mut values = BTreeSet::new();
                let mut records = self.block(to).records.iter();
                let own = records.find(|record| record.write == write);
                if let Some(Content::Copying(from, since)) = own.map(|own| &own.content) {
                    self.collect(*from, *since, &mut vec![*from], &mut values);
                }
                (to, values)
            })
            .collect();
        for (to, values) in known {
            let mut records = self.block_mut(to).records.iter_mut();
            if let Some(record) = records.find(|record| record.write == write) {
                record.content = Content::Copied(values.iter().copied().collect());
            }
        }
        for source in sources {
            self.drop_read(*source);
        }
    }

    /// It has completed.
    pub fn end_copy(&mut self, span: Span, sources: &[Span], write: u64) {
        self.fix_copy(span, sources, write);
        self.end_write(span, write);
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
            content: if write == 0 {
                Content::Zeroes
            } else {
                Content::Data
            },
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
            content: if zeroes {
                Content::Zeroes
            } else {
                Content::Data
            },
            submitted,
            done: NEVER,
            overwritten: NEVER,
        };
        for (_, block) in self.blocks(span) {
            // Ranges of one command may overlap.
            if block.records.last().is_none_or(|last| last.write != write) {
                block.records.push(record.clone());
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

    /// It has had no effect.
    pub fn refuse(&mut self, span: Span, write: u64) {
        for (_, block) in self.blocks(span) {
            block.records.retain(|record| record.write != write);
        }
    }

    /// It has failed, or its host gets no outcome: the channel of `medium` that has it may still
    /// perform it, but no channel gets it after now.
    pub fn leave_open(&mut self, medium: usize, span: Span, write: u64, effect: Effect) {
        let since = self.moment();
        self.open.push(Open {
            medium,
            span,
            write,
            effect,
            since,
        });
    }

    /// The process dies that has these writes: another one may perform them a second time, also
    /// those whose host gets no outcome. Whatever was known of when they took effect is void.
    pub fn repeat(&mut self, writes: &[(Span, u64, Effect)]) {
        let open = self.open.iter();
        let open = open.map(|open| (open.span, open.write, open.effect.clone()));
        let all: Vec<_> = writes.iter().cloned().chain(open).collect();
        for (span, write, effect) in all {
            let contents: Vec<Content> = match effect {
                Effect::Zeroes => vec![Content::Zeroes; span.count as usize],
                Effect::Data => vec![Content::Data; span.count as usize],
                Effect::Copy(sources, since) => {
                    let from = sources.into_iter().flat_map(each);
                    from.map(|from| Content::Copying(from, since)).collect()
                }
            };
            for ((_, block), content) in self.blocks(span).zip(contents) {
                block.repeat(write, content);
            }
        }
    }

    /// Commands that the dead process had fetched have been performed: no channel gets an open
    /// write after now.
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
                if let Effect::Copy(sources, _) = &write.effect {
                    self.fix_copy(write.span, sources, write.write);
                }
                let now = self.moment();
                for (_, block) in self.blocks(write.span) {
                    block.closed(write.write, now);
                }
            }
            !over
        });
        self.open = open;
    }

    /// Certain contents of blocks without a write in flight, and without copies: the write for
    /// each, 0 for zeroes.
    #[must_use]
    pub fn certain(&self, span: Span) -> Option<Vec<u64>> {
        let blocks = &self.spaces[usize::from(span.space)];
        let first = span.lba as usize;
        let blocks = &blocks[first..first + span.count as usize];
        let one = |block: &Block| match &block.records[..] {
            [one] if one.done != NEVER => one.number(),
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
            records.any(|r| r.number() != Some(*expected) && r.overwritten >= submitted)
        })
    }
}

/// The blocks of a span, one by one.
fn each(span: Span) -> impl Iterator<Item = Place> {
    let Span { space, lba, count } = span;
    (lba..lba + u64::from(count)).map(move |lba| Place { space, lba })
}

impl Record {
    /// The number of the write that the block holds, 0 for zeroes; `None` for a copy.
    fn number(&self) -> Option<u64> {
        match self.content {
            Content::Zeroes => Some(0),
            Content::Data => Some(self.write),
            Content::Copying(..) | Content::Copied(_) => None,
        }
    }

    /// Whether a block may be that by this write; `copies` as of [`Ledger::copies_to`].
    fn may_be(&self, place: Place, value: Value, copies: &[u64]) -> bool {
        match &self.content {
            Content::Zeroes => value == Value::Zeroes,
            Content::Data => value == Value::Of(place, self.write),
            Content::Copied(values) => values.contains(&value),
            Content::Copying(..) => copies.contains(&self.write),
        }
    }
}

impl Block {
    /// A read from `submitted` to `now` has seen this; `copies` as of [`Ledger::copies_to`].
    #[inline]
    fn saw(
        &mut self,
        place: Place,
        value: Value,
        copies: &[u64],
        submitted: u64,
        now: u64,
    ) -> bool {
        let is = |r: &Record| r.overwritten >= submitted && r.may_be(place, value, copies);
        let mut seen = self.records.iter_mut().filter(|r| is(r));
        let Some(first) = seen.next() else {
            return false;
        };
        if seen.next().is_none() {
            let first = self.records.iter_mut().find(|r| is(r));
            let first = first.expect("it was just there");
            if let Content::Copied(values) = &mut first.content
                && first.done < submitted
            {
                *values = vec![value];
            }
            first.done = first.done.min(now);
            let (write, began) = (first.write, first.submitted);
            for other in self.records.iter_mut().filter(|r| r.write != write) {
                if other.done < began || other.done < submitted {
                    other.overwritten = other.overwritten.min(now);
                }
            }
        } else {
            let _ = first;
            for other in self.records.iter_mut().filter(|r| !is(r)) {
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
    fn repeat(&mut self, write: u64, content: Content) {
        if let Some(own) = self.records.iter_mut().find(|r| r.write == write) {
            (own.done, own.overwritten) = (NEVER, NEVER);
        } else {
            self.records.push(Record {
                write,
                content,
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
mod tests;
