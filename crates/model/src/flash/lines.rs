//! The lines of a partition: free, open and full ones, their numbers of valid pages, and their
//! ages.
//!
//! Full lines are in two orders: by the time at which they were filled, and by their number of
//! valid pages. Both are lists through the lines themselves, so that invalidating a page and
//! finding a victim take constant time.
//!
//! Not included: the places of pages.

use std::collections::VecDeque;

const NONE: u32 = u32::MAX;

/// The lines of one partition.
#[derive(Debug)]
pub struct Lines {
    pages: u32,
    lines: Vec<Line>,
    free: VecDeque<u32>,
    /// The first full line for each number of valid pages.
    by_valid: Vec<u32>,
    /// Lower bound on the valid pages of any full line.
    fewest: u32,
    oldest: u32,
    newest: u32,
    /// Pages placed since the start.
    placed: u64,
    erased: u64,
}

/// State of the lines without their valid pages.
#[derive(Debug)]
pub(super) struct SavedLines {
    /// Erases of each, and the value of `placed` when it was filled.
    pub(super) each: Vec<(u32, u64)>,
    /// Full lines, the one filled first at the front.
    pub(super) full: Vec<u32>,
    /// Free lines, the one free for longest at the front.
    pub(super) free: Vec<u32>,
    pub(super) placed: u64,
    pub(super) erased: u64,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    valid: u32,
    full: bool,
    /// Neighbours among the full lines with the same number of valid pages.
    next: u32,
    previous: u32,
    /// Neighbours among all full lines, by the time at which they were filled.
    newer: u32,
    older: u32,
    erases: u32,
    /// Value of `placed` when it was filled.
    filled_at: u64,
}

impl Lines {
    /// Creates `count` free lines of `pages` pages.
    pub(super) fn new(count: u32, pages: u32) -> Self {
        let line = Line {
            valid: 0,
            full: false,
            next: NONE,
            previous: NONE,
            newer: NONE,
            older: NONE,
            erases: 0,
            filled_at: 0,
        };
        Self {
            pages,
            lines: vec![line; count as usize],
            free: (0..count).collect(),
            by_valid: vec![NONE; pages as usize + 1],
            fewest: pages,
            oldest: NONE,
            newest: NONE,
            placed: 0,
            erased: 0,
        }
    }

    /// Pages of each.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// All lines.
    pub fn all(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.lines.len()).expect("they are made from 32 bits")
    }

    /// Number of free lines.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Valid pages of a line.
    pub fn valid(&self, line: u32) -> u32 {
        self.lines[line as usize].valid
    }

    /// Erases of a line.
    pub fn erases(&self, line: u32) -> u32 {
        self.lines[line as usize].erases
    }

    /// Total erases.
    pub fn erased(&self) -> u64 {
        self.erased
    }

    /// Pages placed in the partition since a full line was filled.
    pub fn age(&self, line: u32) -> u64 {
        self.placed - self.lines[line as usize].filled_at
    }

    /// The full lines, in the order in which they were filled.
    pub fn by_age(&self) -> impl Iterator<Item = u32> {
        let from = Some(self.oldest).filter(|&line| line != NONE);
        std::iter::successors(from, |&line| {
            Some(self.lines[line as usize].newer).filter(|&line| line != NONE)
        })
    }

    /// The full lines with the fewest valid pages, in no particular order.
    pub fn with_fewest_valid(&self) -> impl Iterator<Item = u32> {
        let from = Some(self.by_valid[self.fewest as usize]).filter(|&line| line != NONE);
        std::iter::successors(from, |&line| {
            Some(self.lines[line as usize].next).filter(|&line| line != NONE)
        })
    }

    /// Opens the line that has been free for longest.
    pub(super) fn open(&mut self) -> u32 {
        let line = self.free.pop_front();
        line.expect("a geometry has spare lines enough for one to be free")
    }

    /// Places pages in an open line.
    pub(super) fn place(&mut self, line: u32, pages: u32) {
        self.placed += u64::from(pages);
        self.lines[line as usize].valid += pages;
    }

    /// Leaves a page of an open line empty.
    pub(super) fn skip(&mut self) {
        self.placed += 1;
    }

    /// Marks an open line as full.
    pub(super) fn fill(&mut self, line: u32) {
        let placed = self.placed;
        let filled = &mut self.lines[line as usize];
        filled.full = true;
        filled.filled_at = placed;
        let valid = filled.valid;
        self.append(line);
        self.link(line, valid);
    }

    /// Invalidates a page of a line.
    pub(super) fn invalidate(&mut self, line: u32) {
        let Line { valid, full, .. } = self.lines[line as usize];
        if full {
            self.unlink(line, valid);
            self.lines[line as usize].valid = valid - 1;
            self.link(line, valid - 1);
        } else {
            self.lines[line as usize].valid = valid - 1;
        }
    }

    /// Removes a full line from both orders, to be emptied.
    pub(super) fn take(&mut self, line: u32) {
        let Line {
            valid,
            newer,
            older,
            ..
        } = self.lines[line as usize];
        self.unlink(line, valid);
        match older {
            NONE => self.oldest = newer,
            older => self.lines[older as usize].newer = newer,
        }
        match newer {
            NONE => self.newest = older,
            newer => self.lines[newer as usize].older = older,
        }
        let taken = &mut self.lines[line as usize];
        taken.full = false;
        taken.erases = taken.erases.saturating_add(1);
        self.erased += 1;
        self.fewest = self.fewest_from(self.fewest);
    }

    /// Frees a line that was taken and is empty.
    pub(super) fn release(&mut self, line: u32) {
        self.lines[line as usize].valid = 0;
        self.free.push_back(line);
    }

    /// Whether a line is full.
    pub fn is_full(&self, line: u32) -> bool {
        self.lines[line as usize].full
    }

    /// State without the valid pages.
    pub(super) fn saved(&self) -> SavedLines {
        SavedLines {
            each: self
                .lines
                .iter()
                .map(|line| (line.erases, line.filled_at))
                .collect(),
            full: self.by_age().collect(),
            free: self.free.iter().copied().collect(),
            placed: self.placed,
            erased: self.erased,
        }
    }

    /// Restores this state in fresh lines. Every line must be open or in one list.
    /// [`Lines::restore_valid`] follows for each valid page, then [`Lines::restored`].
    pub(super) fn restore(&mut self, saved: SavedLines) {
        for (line, (erases, filled_at)) in self.lines.iter_mut().zip(saved.each) {
            (line.erases, line.filled_at) = (erases, filled_at);
        }
        (self.oldest, self.newest) = (NONE, NONE);
        for line in saved.full {
            self.lines[line as usize].full = true;
            self.append(line);
        }
        self.free = saved.free.into();
        (self.placed, self.erased) = (saved.placed, saved.erased);
    }

    /// Counts a valid page of a full or open line.
    pub(super) fn restore_valid(&mut self, line: u32) {
        self.lines[line as usize].valid += 1;
    }

    /// Called after all valid pages were restored.
    pub(super) fn restored(&mut self) {
        for line in self.all() {
            let Line { full, valid, .. } = self.lines[line as usize];
            if full {
                self.link(line, valid);
            }
        }
    }

    /// Adds a full line as the newest.
    fn append(&mut self, line: u32) {
        let newest = std::mem::replace(&mut self.newest, line);
        let appended = &mut self.lines[line as usize];
        appended.older = newest;
        appended.newer = NONE;
        match newest {
            NONE => self.oldest = line,
            newest => self.lines[newest as usize].newer = line,
        }
    }

    fn fewest_from(&self, from: u32) -> u32 {
        let found = (from..self.pages).find(|&valid| self.by_valid[valid as usize] != NONE);
        found.unwrap_or(self.pages)
    }

    fn link(&mut self, line: u32, valid: u32) {
        let next = std::mem::replace(&mut self.by_valid[valid as usize], line);
        let linked = &mut self.lines[line as usize];
        linked.next = next;
        linked.previous = NONE;
        if next != NONE {
            self.lines[next as usize].previous = line;
        }
        self.fewest = self.fewest.min(valid);
    }

    fn unlink(&mut self, line: u32, valid: u32) {
        let Line { next, previous, .. } = self.lines[line as usize];
        match previous {
            NONE => self.by_valid[valid as usize] = next,
            previous => self.lines[previous as usize].next = next,
        }
        if next != NONE {
            self.lines[next as usize].previous = previous;
        }
    }
}
