//! The map of one partition: the place of each logical page, and the next place to write.
//!
//! This module has no time. It passes the work of the dies to a [`DieWork`], so that the same code
//! places pages for a host, with time, and preconditions a drive, without time.
//!
//! Map entries are stored relative to the map with which the drive began: empty, or every logical
//! page at the place of the same number. So the map of a drive without writes is untouched memory
//! in both cases.
//!
//! Invariants:
//! - the map from logical pages to places and the reverse map agree;
//! - the number of valid pages of a line is the number of its places that hold a page;
//! - a free line exists whenever one is needed ([`Geometry`] rejects parameters that would violate
//!   this).

use std::ops::Range;

use super::geometry::{FlashPage, Geometry};
use super::lines::{Lines, SavedLines};
use super::map_copy::MapCopy;
use super::policy::{Policy, policy};
use crate::error::{ParameterError, zeros};
use crate::parameters::FlashParameters;

/// A source of writes, each with its own open line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A host.
    Host,
    /// Collection.
    Collection,
}

/// Work of the dies. `die` counts from 0 in the partition.
pub(super) trait DieWork {
    /// Programs a writer's full wordline.
    fn program(&mut self, writer: Writer, die: u32);

    /// Senses `pages` pages of a flash page for collection; [`DieWork::moved`] follows for each.
    fn sense(&mut self, die: u32, flash_page: FlashPage, pages: u32);

    /// Called after a page of the last sense was placed. If that filled a wordline,
    /// [`DieWork::program`] follows.
    fn moved(&mut self);

    /// Erases a block of each die.
    fn erase(&mut self);
}

/// Does nothing: pages are placed in no time.
#[derive(Debug)]
pub(super) struct NoWork;

impl DieWork for NoWork {
    fn program(&mut self, _: Writer, _: u32) {}
    fn sense(&mut self, _: u32, _: FlashPage, _: u32) {}
    fn moved(&mut self) {}
    fn erase(&mut self) {}
}

/// A line being written.
#[derive(Clone, Copy, Debug)]
struct Open {
    line: u32,
    /// Pages taken of it.
    taken: u32,
    /// The die of the next page, and the pages taken of that wordline.
    die: u32,
    of_wordline: u32,
}

impl Open {
    /// A line of which `taken` pages are taken.
    fn new(line: u32, taken: u32, shape: &Geometry) -> Self {
        Self {
            line,
            taken,
            die: taken / shape.die.wordline % shape.dies,
            of_wordline: taken % shape.die.wordline,
        }
    }
}

/// State of a partition at rest, without its map.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) lines: SavedLines,
    /// The open lines of the host and of collection, and the pages taken of each.
    pub(super) open: [Option<(u32, u32)>; 2],
    pub(super) credits: i64,
    pub(super) refill: u32,
    pub(super) host_pages: u64,
    pub(super) collected_pages: u64,
}

/// A place that was taken.
#[derive(Clone, Copy, Debug)]
struct Slot {
    place: u32,
    line: u32,
    die: u32,
    /// Whether it is the last of its wordline.
    fills_wordline: bool,
    /// Whether it is the last of its line.
    fills_line: bool,
}

/// The FTL of one partition.
#[derive(Debug)]
pub(super) struct Ftl {
    pub(super) geometry: Geometry,
    pub(super) lines: Lines,
    pub(super) policy: Box<dyn Policy>,
    /// Place of each logical page and logical page of each place, as stored by [`Ftl::entry`].
    place_of: Vec<u32>,
    held_at: Vec<u32>,
    /// Pages that were written in order at the beginning: all logical pages, or none.
    filled: u32,
    /// The part of the map that an unfinished snapshot has copied.
    pub(super) taken: Option<Box<MapCopy>>,
    host_line: Option<Open>,
    collection_line: Option<Open>,
    credits: i64,
    refill: u32,
    pub(super) collect_below: u32,
    pub(super) host_pages: u64,
    pub(super) collected_pages: u64,
    /// Lines collected because a host wrote.
    pub(super) foreground: u64,
}

impl Ftl {
    pub(super) fn new(
        geometry: Geometry,
        parameters: &FlashParameters,
    ) -> Result<Self, ParameterError> {
        Ok(Self {
            geometry,
            lines: Lines::new(geometry.lines, geometry.line),
            policy: policy(parameters.policy),
            place_of: zeros(geometry.logical as usize)?,
            held_at: zeros(geometry.physical() as usize)?,
            filled: 0,
            taken: None,
            host_line: None,
            collection_line: None,
            credits: i64::from(geometry.line),
            refill: geometry.line,
            collect_below: parameters.collect_below,
            host_pages: 0,
            collected_pages: 0,
            foreground: 0,
        })
    }

    /// Writes every logical page of a fresh FTL in order, without the page operations and not
    /// counted as written by hosts.
    pub(super) fn fill(&mut self) {
        let shape = self.geometry;
        self.filled = shape.logical;
        let mut left = shape.logical;
        while left > 0 {
            let line = self.lines.open();
            debug_assert_eq!(line * shape.line, shape.logical - left, "the next pages");
            let taken = left.min(shape.line);
            self.lines.place(line, taken);
            if taken == shape.line {
                self.lines.fill(line);
            } else {
                self.host_line = Some(Open::new(line, taken, &shape));
            }
            left -= taken;
        }
        // As after that many calls of `pay`, each increase being that of a fresh drive.
        let (pages, line) = (i64::from(shape.logical), i64::from(shape.line));
        self.credits = i64::from(shape.logical.div_ceil(shape.line)) * line - pages;
    }

    /// Conversion of a map entry, and back: a number as its complement, 0 for none, is stored as
    /// the difference from the entry at the beginning.
    #[inline]
    fn entry(&self, index: u32, stored: u32) -> u32 {
        stored ^ if index < self.filled { !index } else { 0 }
    }

    /// The map entry of a logical page: the complement of its place; 0: none.
    #[inline]
    pub(super) fn place_entry(&self, logical: u32) -> u32 {
        self.entry(logical, self.place_of[logical as usize])
    }

    /// All of them, in order.
    pub(super) fn place_entries(&self) -> impl Iterator<Item = u32> {
        (0..self.geometry.logical).map(|logical| self.place_entry(logical))
    }

    #[inline]
    fn set_place(&mut self, logical: u32, entry: u32) {
        self.place_of[logical as usize] = self.entry(logical, entry);
    }

    #[inline]
    fn set_held(&mut self, place: u32, entry: u32) {
        self.held_at[place as usize] = self.entry(place, entry);
    }

    /// Place of a logical page.
    #[inline]
    pub(super) fn lookup(&self, logical: u32) -> Option<u32> {
        decode(self.place_entry(logical))
    }

    /// The logical page that a place holds.
    #[inline]
    pub(super) fn held(&self, place: u32) -> Option<u32> {
        decode(self.entry(place, self.held_at[place as usize]))
    }

    /// Writes a logical page for a host: takes its credit, which may collect a line, and gives it a
    /// new place.
    pub(super) fn write(&mut self, logical: u32, work: &mut impl DieWork) {
        self.pay(work);
        self.forget(logical);
        self.host_pages += 1;
        self.place(Writer::Host, logical, work);
    }

    /// Unmaps a logical page.
    pub(super) fn forget(&mut self, logical: u32) {
        self.keep(logical);
        if let Some(place) = self.lookup(logical) {
            self.set_place(logical, 0);
            self.set_held(place, 0);
            self.lines.invalidate(place / self.geometry.line);
        }
    }

    /// Called before the place of a logical page changes.
    #[inline]
    fn keep(&mut self, logical: u32) {
        let entry = self.place_entry(logical);
        if let Some(map) = &mut self.taken {
            map.keep(logical, entry);
        }
    }

    /// Unmaps many pages, most of which may be unmapped already.
    pub(super) fn forget_all(&mut self, logical: Range<u32>) {
        for logical in logical {
            if self.lookup(logical).is_some() {
                self.forget(logical);
            }
        }
    }

    /// Takes a credit before a host's page is placed.
    fn pay(&mut self, work: &mut impl DieWork) {
        if self.credits <= 0 {
            if self.lines.free() <= self.collect_below as usize
                && let Some(invalid) = self.collect(work)
            {
                self.refill = invalid;
                self.foreground += 1;
            }
            self.credits += i64::from(self.refill);
        }
        self.credits -= 1;
    }

    /// Places an unmapped logical page at the next place of a writer's line.
    pub(super) fn place(&mut self, writer: Writer, logical: u32, work: &mut impl DieWork) {
        let slot = self.take(writer);
        self.keep(logical);
        self.set_place(logical, !slot.place);
        self.set_held(slot.place, !logical);
        self.lines.place(slot.line, 1);
        if slot.fills_line {
            self.lines.fill(slot.line);
        }
        if writer == Writer::Collection {
            work.moved();
        }
        if slot.fills_wordline {
            work.program(writer, slot.die);
        }
    }

    /// Leaves the next place of a writer's line empty.
    pub(super) fn skip(&mut self, writer: Writer) {
        let slot = self.take(writer);
        self.lines.skip();
        if slot.fills_line {
            self.lines.fill(slot.line);
        }
    }

    /// Takes the next place of a writer's line, and opens a line if necessary.
    fn take(&mut self, writer: Writer) -> Slot {
        let shape = self.geometry;
        let open_line = match writer {
            Writer::Host => &mut self.host_line,
            Writer::Collection => &mut self.collection_line,
        };
        let open = open_line.get_or_insert_with(|| Open {
            line: self.lines.open(),
            taken: 0,
            die: 0,
            of_wordline: 0,
        });
        let (line, die) = (open.line, open.die);
        let place = line * shape.line + open.taken;
        open.taken += 1;
        open.of_wordline += 1;
        let fills_wordline = open.of_wordline == shape.die.wordline;
        if fills_wordline {
            open.of_wordline = 0;
            open.die = if die + 1 == shape.dies { 0 } else { die + 1 };
        }
        let fills_line = open.taken == shape.line;
        if fills_line {
            *open_line = None;
        }
        Slot {
            place,
            line,
            die,
            fills_wordline,
            fills_line,
        }
    }

    /// Pages taken of a writer's line, and the number of valid ones.
    pub(super) fn open(&self, writer: Writer) -> (u32, u32) {
        let open_line = match writer {
            Writer::Host => self.host_line,
            Writer::Collection => self.collection_line,
        };
        open_line.map_or((0, 0), |open| (open.taken, self.lines.valid(open.line)))
    }

    /// The open lines, with the pages taken of each.
    pub(super) fn open_lines(&self) -> [Option<(Writer, u32, u32)>; 2] {
        let of = |writer, open: &Option<Open>| open.map(|open| (writer, open.line, open.taken));
        [
            of(Writer::Host, &self.host_line),
            of(Writer::Collection, &self.collection_line),
        ]
    }

    /// Credits, and their increase when they are used up.
    pub(super) fn credits(&self) -> (i64, u32) {
        (self.credits, self.refill)
    }

    /// Sets both.
    pub(super) fn set_credits(&mut self, credits: i64, refill: u32) {
        (self.credits, self.refill) = (credits, refill);
    }

    /// State without the map.
    pub(super) fn saved(&self) -> Saved {
        let open = [self.host_line, self.collection_line];
        Saved {
            lines: self.lines.saved(),
            open: open.map(|open| open.map(|open| (open.line, open.taken))),
            credits: self.credits,
            refill: self.refill,
            host_pages: self.host_pages,
            collected_pages: self.collected_pages,
        }
    }

    /// Restores this state in a fresh FTL. [`Ftl::restore_page`] follows for each mapped page, then
    /// [`Ftl::restored`].
    pub(super) fn restore(&mut self, saved: Saved) {
        let shape = self.geometry;
        let open = saved
            .open
            .map(|open| open.map(|(line, taken)| Open::new(line, taken, &shape)));
        [self.host_line, self.collection_line] = open;
        (self.credits, self.refill) = (saved.credits, saved.refill);
        (self.host_pages, self.collected_pages) = (saved.host_pages, saved.collected_pages);
        self.lines.restore(saved.lines);
    }

    /// Restores a page's place; returns whether that is possible.
    #[must_use]
    pub(super) fn restore_page(&mut self, logical: u32, place: u32) -> bool {
        let shape = self.geometry;
        let (line, page) = (place / shape.line, place % shape.line);
        let open = [self.host_line, self.collection_line];
        let open = open.iter().flatten().find(|open| open.line == line);
        let taken = match open {
            _ if line >= shape.lines => 0,
            Some(open) => open.taken,
            None if self.lines.is_full(line) => shape.line,
            None => 0,
        };
        if page >= taken || self.held(place).is_some() {
            return false;
        }
        self.set_place(logical, !place);
        self.set_held(place, !logical);
        self.lines.restore_valid(line);
        true
    }

    /// Called after all pages were restored.
    pub(super) fn restored(&mut self) {
        self.lines.restored();
    }

    /// Removes the page from a place.
    pub(super) fn lift(&mut self, place: u32) -> Option<u32> {
        let held = self.held(place)?;
        self.set_held(place, 0);
        Some(held)
    }
}

fn decode(entry: u32) -> Option<u32> {
    (entry != 0).then_some(!entry)
}
