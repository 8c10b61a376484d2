//! The map of one partition: which logical page lies where, and what is written next.
//!
//! It knows no time. What has to be done on dies it says to a [`DieWork`], so that the same code
//! places pages for a host, with time, and prepares a drive, without.
//!
//! Invariants:
//! - a logical page that is mapped to a place is what that place says it holds, and the other way
//!   round;
//! - the valid pages of a line are its places that hold something;
//! - a line is free when one is needed ([`Geometry`] refuses what would not keep that).

use std::ops::Range;

use super::geometry::{FlashPage, Geometry};
use super::lines::{Lines, SavedLines};
use super::policy::{Policy, policy};
use super::snapshot::Map;
use crate::error::{ParameterError, zeros};
use crate::parameters::FlashParameters;

/// What writes: each has a line of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A host.
    Host,
    /// Collection.
    Collection,
}

/// What has to be done on dies. `die` counts from 0 in the partition.
pub(super) trait DieWork {
    /// A wordline of a writer is full.
    fn program(&mut self, writer: Writer, die: u32);

    /// `pages` pages of a flash page are collected; [`DieWork::moved`] follows for each.
    fn sense(&mut self, die: u32, flash_page: FlashPage, pages: u32);

    /// A page of the last sense was placed. If that filled a wordline, [`DieWork::program`] comes
    /// after.
    fn moved(&mut self);

    /// A block of each die is erased.
    fn erase(&mut self);
}

/// Nothing is done: pages are placed in no time.
#[derive(Debug)]
pub(super) struct NoWork;

impl DieWork for NoWork {
    fn program(&mut self, _: Writer, _: u32) {}
    fn sense(&mut self, _: u32, _: FlashPage, _: u32) {}
    fn moved(&mut self) {}
    fn erase(&mut self) {}
}

/// A line that is being written.
#[derive(Clone, Copy, Debug)]
struct Open {
    line: u32,
    /// Pages of it that were taken.
    taken: u32,
    /// The die of the next page, and how many pages of that wordline were taken.
    die: u32,
    of_wordline: u32,
}

/// What a partition is like at rest but for its map.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) lines: SavedLines,
    /// The open line of the host and of collection, and the pages taken of each.
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
    /// It is the last of its wordline.
    fills_wordline: bool,
    /// It is the last of its line.
    fills_line: bool,
}

/// The FTL of one partition.
#[derive(Debug)]
pub(super) struct Ftl {
    pub(super) geometry: Geometry,
    pub(super) lines: Lines,
    pub(super) policy: Box<dyn Policy>,
    /// Place of each logical page and logical page of each place, as their complements: 0 is none.
    /// So a fresh drive's map is memory that was never touched.
    pub(super) place_of: Vec<u32>,
    held_at: Vec<u32>,
    /// What was taken of the map by a snapshot that is not whole.
    pub(super) taken: Option<Box<Map>>,
    host_line: Option<Open>,
    collection_line: Option<Open>,
    credits: i64,
    refill: u32,
    pub(super) collect_below: u32,
    pub(super) host_pages: u64,
    pub(super) collected_pages: u64,
    /// Lines that were collected because a host wrote.
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

    /// Where a logical page lies.
    pub(super) fn lookup(&self, logical: u32) -> Option<u32> {
        decode(self.place_of[logical as usize])
    }

    /// The logical page that a place holds.
    pub(super) fn held(&self, place: u32) -> Option<u32> {
        decode(self.held_at[place as usize])
    }

    /// A host writes a logical page: its credit is paid, which may collect a line, and it gets a
    /// new place.
    pub(super) fn write(&mut self, logical: u32, work: &mut impl DieWork) {
        self.pay(work);
        self.forget(logical);
        self.host_pages += 1;
        self.place(Writer::Host, logical, work);
    }

    /// A logical page lies nowhere any more.
    pub(super) fn forget(&mut self, logical: u32) {
        self.keep(logical);
        let place = std::mem::take(&mut self.place_of[logical as usize]);
        if let Some(place) = decode(place) {
            self.held_at[place as usize] = 0;
            self.lines.invalidate(place / self.geometry.line);
        }
    }

    /// A logical page is about to lie elsewhere.
    #[inline]
    fn keep(&mut self, logical: u32) {
        if let Some(map) = &mut self.taken {
            map.keep(logical, self.place_of[logical as usize]);
        }
    }

    /// Has many lie nowhere, most of which may do so already.
    pub(super) fn forget_all(&mut self, logical: Range<u32>) {
        for logical in logical {
            if self.place_of[logical as usize] != 0 {
                self.forget(logical);
            }
        }
    }

    /// Before a page of a host is placed.
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

    /// Gives a logical page, which lies nowhere, the next place of a writer's line.
    pub(super) fn place(&mut self, writer: Writer, logical: u32, work: &mut impl DieWork) {
        let slot = self.take(writer);
        self.keep(logical);
        self.place_of[logical as usize] = !slot.place;
        self.held_at[slot.place as usize] = !logical;
        self.lines.place(slot.line);
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

    /// Takes the next place of a writer's line, which is opened if there is none.
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

    /// Pages taken of a writer's line, and how many of them are valid.
    pub(super) fn open(&self, writer: Writer) -> (u32, u32) {
        let open_line = match writer {
            Writer::Host => self.host_line,
            Writer::Collection => self.collection_line,
        };
        open_line.map_or((0, 0), |open| (open.taken, self.lines.valid(open.line)))
    }

    /// The lines that are being written, with the pages that were taken of each.
    pub(super) fn open_lines(&self) -> [Option<(Writer, u32, u32)>; 2] {
        let of = |writer, open: &Option<Open>| open.map(|open| (writer, open.line, open.taken));
        [
            of(Writer::Host, &self.host_line),
            of(Writer::Collection, &self.collection_line),
        ]
    }

    /// Credits, and what they become more by when they are used up.
    pub(super) fn credits(&self) -> (i64, u32) {
        (self.credits, self.refill)
    }

    /// Sets both.
    pub(super) fn set_credits(&mut self, credits: i64, refill: u32) {
        (self.credits, self.refill) = (credits, refill);
    }

    /// What it is like but for its map.
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

    /// Makes a fresh one like that. [`Ftl::restore_page`] follows for each page that lies
    /// somewhere, then [`Ftl::restored`].
    pub(super) fn restore(&mut self, saved: Saved) {
        let shape = self.geometry;
        let open = saved.open.map(|open| {
            open.map(|(line, taken)| Open {
                line,
                taken,
                die: taken / shape.die.wordline % shape.dies,
                of_wordline: taken % shape.die.wordline,
            })
        });
        [self.host_line, self.collection_line] = open;
        (self.credits, self.refill) = (saved.credits, saved.refill);
        (self.host_pages, self.collected_pages) = (saved.host_pages, saved.collected_pages);
        self.lines.restore(saved.lines);
    }

    /// Puts a page where it was; gives whether one can be there.
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
        self.place_of[logical as usize] = !place;
        self.held_at[place as usize] = !logical;
        self.lines.restore_valid(line);
        true
    }

    /// All pages are where they were.
    pub(super) fn restored(&mut self) {
        self.lines.restored();
    }

    /// Takes what the place holds out of it.
    pub(super) fn lift(&mut self, place: u32) -> Option<u32> {
        decode(std::mem::take(&mut self.held_at[place as usize]))
    }
}

fn decode(entry: u32) -> Option<u32> {
    (entry != 0).then_some(!entry)
}
