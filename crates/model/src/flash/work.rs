//! Die work of partitions: for a write and its collection, for map pages that are not in memory,
//! and while the drive is idle.

use std::ops::Range;

use super::extra::map_cache;
use super::extra::slc::{Cached, SlcCache};
use super::ftl::{DieWork, Ftl, Writer};
use super::geometry::FlashPage;
use super::{Buffer, Cells, Dies, Flash, For, Partition, Sense, Waiting, give_back, logical_pages};
use crate::moving::Slot;

impl Partition {
    /// The partition's map, and the work of its dies from `now` on.
    pub(super) fn at_work<'a>(
        &'a mut self,
        dies: &'a mut Dies,
        buffer: &'a mut Buffer,
        cache: Option<&SlcCache>,
        now: u64,
    ) -> (&'a mut Ftl, Work<'a>) {
        let work = Work {
            dies,
            buffer,
            first_die: self.first_die,
            dies_count: self.ftl.geometry.dies,
            held: &mut self.held,
            cached: &mut self.cached,
            cache: cache.map_or(0, |cache| cache.wordlines),
            ready: &mut self.sensed,
            now,
            fetched: now,
            sensed: 0,
            command: None,
            programmed: 0,
            erased: now,
        };
        (&mut self.ftl, work)
    }

    /// Requests, at `at`, the map pages of `logical` pages; returns the time at which all are
    /// present.
    pub(super) fn ask_map(
        &mut self,
        dies: &mut Dies,
        logical: &Range<u32>,
        now: u64,
        at: u64,
        why: For,
    ) -> u64 {
        let Some(map) = self.map.as_mut().filter(|_| !logical.is_empty()) else {
            return at;
        };
        let shape = &self.ftl.geometry;
        let mut there = at;
        for page in logical.start / map_cache::PAGES..=(logical.end - 1) / map_cache::PAGES {
            if map.ask(page) {
                continue;
            }
            self.map_misses += 1;
            let sense = Sense {
                die: self.first_die + (page % shape.dies) as usize,
                flash_page: shape.die.flash_page_at(0),
                pages: 1,
            };
            there = there.max(dies.sense_for_drive(now, at, sense, why));
        }
        there
    }
}

impl Flash {
    /// Requests, at `now`, the map pages of `pages`, without waiting for them.
    pub(super) fn ask_map(&mut self, pages: &Range<u64>, now: u64) {
        let count = self.geometry.partitions;
        for (index, partition) in (0..count).zip(&mut self.partitions) {
            if partition.map.is_some() {
                let logical = logical_pages(pages, index, count);
                partition.ask_map(&mut self.dies, &logical, now, now, For::Drive);
            }
        }
    }
}

/// Work of an idle drive, in the order in which it runs at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Chore {
    Fold,
    Collect,
}

impl Flash {
    /// Performs the work that an idle drive has had time to begin: in the order of time, so that
    /// the number of calls does not matter, and then of partitions.
    pub(super) fn be_idle(&mut self, now: u64) {
        if self.background.is_none() && self.slc.is_none() {
            return;
        }
        for partition in &mut self.partitions {
            partition.is_clean = false;
        }
        while let Some((begin, chore, index)) = self.next_chore().filter(|&(at, ..)| at <= now) {
            let partition = &mut self.partitions[index];
            match chore {
                Chore::Fold => {
                    let Some(die) = partition.cached.dies.pop_front() else {
                        return; // there is one, or this were not the next
                    };
                    self.changes += 1;
                    partition.cached.folded = self.dies.fold(begin, die);
                    partition.cached.folded_pages += u64::from(self.geometry.die.wordline);
                    self.changes += 1;
                }
                Chore::Collect => {
                    let cache = self.slc.as_ref();
                    let (ftl, mut work) =
                        partition.at_work(&mut self.dies, &mut self.buffer, cache, begin);
                    match ftl.collect(&mut work) {
                        Some(_) => {
                            partition.background_end = work.erased;
                            partition.background += 1;
                            self.changes += 1;
                        }
                        None => partition.is_clean = true,
                    }
                }
            }
        }
    }

    /// The next work of an idle drive: its time, its kind, and its partition.
    fn next_chore(&self) -> Option<(u64, Chore, usize)> {
        let after = |idle| self.arrived.saturating_add(idle);
        let collect = self.background.iter().flat_map(|background| {
            let wanting = self.partitions.iter().enumerate().filter(|(_, partition)| {
                !partition.is_clean && partition.ftl.lines.free() < background.below
            });
            let idle = after(background.idle);
            wanting.map(move |(index, partition)| {
                (idle.max(partition.background_end), Chore::Collect, index)
            })
        });
        let fold = self.slc.iter().flat_map(|cache| {
            let all = self.partitions.iter().enumerate();
            let holding = all.filter(|(_, partition)| !partition.cached.dies.is_empty());
            let idle = after(cache.idle);
            holding.map(move |(index, partition)| {
                (idle.max(partition.cached.folded), Chore::Fold, index)
            })
        });
        fold.chain(collect).min()
    }
}

/// Die work of a partition for a write and its collection.
pub(super) struct Work<'a> {
    dies: &'a mut Dies,
    buffer: &'a mut Buffer,
    first_die: usize,
    dies_count: u32,
    held: &'a mut u64,
    cached: &'a mut Cached,
    /// Wordlines for which the cache has room.
    cache: usize,
    /// Time at which all of collection's wordline was sensed.
    ready: &'a mut u64,
    now: u64,
    /// Time at which the write's data is present.
    pub(super) fetched: u64,
    /// End of collection's last sense.
    sensed: u64,
    /// The command that waits for its programs, if these may become later.
    pub(super) command: Option<Slot>,
    /// Latest end of programs for a host.
    pub(super) programmed: u64,
    /// Latest end of erases.
    erased: u64,
}

impl Work<'_> {
    /// Programs the host's wordline, after which its buffer bytes return.
    fn program_for_host(&mut self, die: usize) {
        let cells = if self.cached.dies.len() < self.cache {
            Cells::Single
        } else {
            Cells::Proper
        };
        if cells == Cells::Single {
            self.cached.dies.push_back(die);
        }
        let end = self.dies.program(self.now, self.fetched, die, cells);
        self.programmed = end.max(self.programmed);
        let held = std::mem::take(self.held);
        give_back(self.buffer, self.dies, die, end, (0, held));
        if let Some(command) = self.command {
            self.dies.wait(die, Waiting::Command(command));
        }
    }
}

impl DieWork for Work<'_> {
    fn program(&mut self, writer: Writer, die: u32) {
        let die = self.first_die + die as usize;
        match writer {
            Writer::Host => self.program_for_host(die),
            Writer::Collection => {
                let ready = std::mem::take(self.ready);
                self.dies.program(self.now, ready, die, Cells::Proper);
            }
        }
    }

    fn sense(&mut self, die: u32, flash_page: FlashPage, pages: u32) {
        let sense = Sense {
            die: self.first_die + die as usize,
            flash_page,
            pages,
        };
        let (now, why) = (self.now, For::Drive);
        self.sensed = self.dies.sense_for_drive(now, now, sense, why);
    }

    fn moved(&mut self) {
        *self.ready = self.sensed.max(*self.ready);
    }

    fn erase(&mut self) {
        for die in (self.first_die..).take(self.dies_count as usize) {
            let end = self.dies.erase(self.now, die, 1);
            self.erased = end.max(self.erased);
        }
    }
}
