//! Conventional flash: dies behind channels, a link, a shared write buffer, and a page-mapped FTL in each partition.
//!
//! All times of a command are known when it is submitted: what comes later finds the dies, channels and links as they were left. What remains are two kinds of events:
//! commands are done, and bytes come back to the buffer.
//!
//! What it does NOT do: hold data, limit the size or number of commands, or know who submits them.

mod buffer;
mod collect;
mod costs;
mod counters;
mod die;
mod extra;
mod ftl;
mod geometry;
mod lines;
mod policy;
mod prepare;
mod state;

pub use self::counters::{Counters, PartitionView, Wear};
pub use self::geometry::{DieShape, Geometry};
pub use self::lines::Lines;
pub use self::policy::Policy;
pub use self::prepare::{Method, Prepared};
pub use self::state::StateError;

pub(crate) use self::buffer::{Buffer, Share};
pub(crate) use self::costs::Costs;
pub(crate) use self::die::{Dies, Link, Sense};

use std::ops::Range;

use self::extra::background::Background;
use self::ftl::{DieWork, Ftl, NoWork, Writer};
use crate::error::ParameterError;
use crate::parameters::FlashParameters;
use crate::pending::Pending;
use crate::units::{PAGE, pages_touched, pages_within};
use crate::{Admission, Due, Op, Timing};

/// The model of a conventional drive.
#[derive(Debug)]
pub struct Flash {
    geometry: Geometry,
    costs: Costs,
    partitions: Vec<Partition>,
    dies: Dies,
    link: Link,
    buffer: Buffer,
    pending: Pending,
    background: Option<Background>,
    /// When the last command arrived.
    arrived: u64,
    stalls: u64,
}

/// One FTL, and what its open wordlines wait for.
#[derive(Debug)]
struct Partition {
    ftl: Ftl,
    /// Its first die.
    first_die: usize,
    /// Bytes of the buffer in the host's wordline that is not full.
    held: u64,
    /// When what is in collection's wordline that is not full was sensed.
    sensed: u64,
    /// When the last collection in the background has ended.
    background_end: u64,
    /// No line has an invalid page: for [`Flash::collect_in_background`] alone.
    is_clean: bool,
}

impl Flash {
    /// A fresh drive at rest: nothing was ever written.
    ///
    /// # Errors
    ///
    /// Those of [`Geometry::new`]; no memory for the map.
    pub fn new(parameters: &FlashParameters) -> Result<Self, ParameterError> {
        let geometry = Geometry::new(parameters)?;
        let hangs_on = |die: u32| {
            die / geometry.dies * geometry.channels + die % geometry.dies % geometry.channels
        };
        let all_dies = geometry.dies * geometry.partitions;
        let partition = |index: u32| {
            Ok(Partition {
                ftl: Ftl::new(geometry, parameters)?,
                first_die: (index * geometry.dies) as usize,
                held: 0,
                sensed: 0,
                background_end: 0,
                is_clean: false,
            })
        };
        Ok(Self {
            costs: Costs::new(parameters),
            dies: Dies::new(parameters, (0..all_dies).map(hangs_on).collect()),
            link: Link::new(parameters),
            buffer: Buffer::new(parameters.buffer_bytes, 1)?,
            partitions: (0..geometry.partitions)
                .map(partition)
                .collect::<Result<_, ParameterError>>()?,
            background: Background::new(&geometry, &parameters.extras)?,
            geometry,
            pending: Pending::default(),
            arrived: 0,
            stalls: 0,
        })
    }

    /// Other parameters from now on. What is under way keeps its time.
    ///
    /// # Errors
    ///
    /// As [`Flash::new`], and another shape; then nothing has changed.
    pub fn retune(&mut self, parameters: &FlashParameters) -> Result<(), ParameterError> {
        if Geometry::new(parameters)? != self.geometry {
            return Err(ParameterError::Fixed { name: "geometry" });
        }
        if parameters.arithmetic != self.link.arithmetic() {
            return Err(ParameterError::Fixed { name: "arithmetic" });
        }
        self.background = Background::new(&self.geometry, &parameters.extras)?;
        self.link.retune(parameters);
        self.dies.retune(parameters);
        self.costs = Costs::new(parameters);
        self.buffer.retune(parameters.buffer_bytes);
        for partition in &mut self.partitions {
            partition.ftl.policy = policy::policy(parameters.policy);
            partition.ftl.collect_below = parameters.collect_below;
        }
        Ok(())
    }

    /// The shape that the parameters made.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Writes one page in no time, as a host would, with the collection that this makes necessary: to bring a drive into the state of one in use. A page beyond the
    /// end is none.
    pub fn place_only(&mut self, page: u64) {
        if page < self.geometry.pages() {
            let (partition, logical) = self.locate(page);
            self.partitions[partition].ftl.write(logical, &mut NoWork);
        }
    }

    /// The partition of a page, and which of its logical pages it is.
    fn locate(&self, page: u64) -> (usize, u32) {
        locate(page, self.geometry.partitions)
    }

    fn read(&mut self, now: u64, offset: u64, len: u32) -> u64 {
        let count = u64::from(self.geometry.partitions);
        let at = now.saturating_add(self.costs.before_read(len, PAGE * count));
        let pages = pages_touched(offset, len, self.geometry.pages());
        let mut done = at;
        for (index, partition) in (0..count).zip(&self.partitions) {
            let first = pages.start + (index + count - pages.start % count) % count;
            let mut senses = Senses {
                geometry: &self.geometry,
                first_die: partition.first_die,
                dies: &mut self.dies,
                link: &mut self.link,
                now,
                at,
                run: None,
                done,
            };
            for page in (first..pages.end).step_by(self.partitions.len()) {
                let (_, logical) = locate(page, self.geometry.partitions);
                senses.page(partition.ftl.lookup(logical));
            }
            senses.end_run();
            done = senses.done;
        }
        done
    }

    fn write(&mut self, now: u64, offset: u64, len: u32, fua: bool) -> Option<u64> {
        self.buffer.settle(now);
        let pages = pages_touched(offset, len, self.geometry.pages());
        let need = self.need(&pages);
        if !self.buffer.take(0, need) {
            self.stalls += 1;
            return None;
        }
        let copied = now.saturating_add(self.costs.before_write(len));
        let fetched = self.link.fetch(now, copied, len);
        let mut share = Share::of(need);
        let mut programmed = 0;
        for page in pages {
            let (index, logical) = self.locate(page);
            let partition = &mut self.partitions[index];
            partition.held += share.next(PAGE);
            let mut work = Work {
                dies: &mut self.dies,
                buffer: &mut self.buffer,
                first_die: partition.first_die,
                dies_count: self.geometry.dies,
                held: &mut partition.held,
                ready: &mut partition.sensed,
                now,
                fetched,
                sensed: 0,
                programmed: 0,
                erased: 0,
            };
            partition.ftl.write(logical, &mut work);
            programmed = programmed.max(work.programmed);
        }
        Some(self.costs.write_done(fua, fetched, programmed))
    }

    /// What a write of `pages` takes of the buffer: not so much that it would wait for what wordlines hold that are not full.
    fn need(&self, pages: &Range<u64>) -> u64 {
        let waiting = u64::from(self.geometry.partitions)
            * (u64::from(self.geometry.die.wordline) - 1)
            * PAGE;
        let most = self.buffer.size().saturating_sub(waiting);
        ((pages.end - pages.start) * PAGE).min(most)
    }

    /// Collects what an idle drive has had the time to begin: in the order of time, so that it does not matter how often this is called, and then of partitions.
    fn collect_in_background(&mut self, now: u64) {
        let Some(background) = self.background else {
            return;
        };
        let idle = self.arrived.saturating_add(background.idle);
        for partition in &mut self.partitions {
            partition.is_clean = false;
        }
        loop {
            let wanting = self.partitions.iter().enumerate().filter(|(_, partition)| {
                !partition.is_clean && partition.ftl.lines.free() < background.below
            });
            let next = wanting
                .map(|(index, partition)| (idle.max(partition.background_end), index))
                .min();
            let Some((begin, index)) = next.filter(|&(begin, _)| begin <= now) else {
                return;
            };
            let partition = &mut self.partitions[index];
            let mut work = Work {
                dies: &mut self.dies,
                buffer: &mut self.buffer,
                first_die: partition.first_die,
                dies_count: self.geometry.dies,
                held: &mut partition.held,
                ready: &mut partition.sensed,
                now: begin,
                fetched: begin,
                sensed: 0,
                programmed: 0,
                erased: begin,
            };
            match partition.ftl.collect(&mut work) {
                Some(_) => partition.background_end = work.erased,
                None => partition.is_clean = true,
            }
        }
    }

    fn deallocate(&mut self, now: u64, offset: u64, len: u64) -> u64 {
        let pages = pages_within(offset, len, self.geometry.pages());
        let count = u64::from(self.geometry.partitions);
        for (index, partition) in (0..count).zip(&mut self.partitions) {
            // Of partition `index` those pages that come at or after `page`, and so on.
            let from = |page: u64| {
                let logical = page.saturating_sub(index).div_ceil(count);
                u32::try_from(logical).expect("a partition has fewer than 2^32 pages")
            };
            partition.ftl.forget_all(from(pages.start)..from(pages.end));
        }
        now.saturating_add(self.costs.deallocate)
    }
}

impl Timing for Flash {
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission {
        let now = self.pending.at(now);
        self.collect_in_background(now);
        let at = match *op {
            Op::Read { offset, len } => self.read(now, offset, len),
            Op::Write { offset, len, fua } => match self.write(now, offset, len, fua) {
                Some(at) => at,
                None => return Admission::Stall,
            },
            Op::Deallocate { offset, len } => self.deallocate(now, offset, len),
            Op::Flush => now.max(self.dies.all_free()),
            Op::Zone(_) | Op::Kv(_) | Op::Compound(_) => now,
        };
        self.arrived = now;
        let turn = self.pending.turn();
        self.pending.push(at, turn, id);
        Admission::Accepted
    }

    fn has_room(&self, op: &Op<'_>) -> bool {
        match *op {
            Op::Write { offset, len, .. } => {
                let pages = pages_touched(offset, len, self.geometry.pages());
                self.buffer.has(0, self.need(&pages))
            }
            _ => true,
        }
    }

    fn next_event(&self) -> Option<u64> {
        let room = self.buffer.next();
        let done = self.pending.next();
        room.into_iter().chain(done).min()
    }

    fn advance(&mut self, now: u64, done: &mut Vec<Due>) {
        let now = self.pending.at(now);
        self.collect_in_background(now);
        self.buffer.settle(now);
        self.pending.reap(now, done);
    }
}

fn locate(page: u64, partitions: u32) -> (usize, u32) {
    let count = u64::from(partitions);
    let logical = u32::try_from(page / count).expect("a partition has fewer than 2^32 pages");
    let partition = usize::try_from(page % count).expect("partitions are few");
    (partition, logical)
}

/// The senses of a read, in one partition.
struct Senses<'a> {
    geometry: &'a Geometry,
    first_die: usize,
    dies: &'a mut Dies,
    link: &'a mut Link,
    now: u64,
    at: u64,
    /// Pages of one flash page that come one after another: the place of the first, and how many.
    run: Option<(u32, u32)>,
    done: u64,
}

impl Senses<'_> {
    /// The next page, and where it lies.
    fn page(&mut self, place: Option<u32>) {
        let flash_page = self.geometry.die.flash_page;
        match (place, &mut self.run) {
            // Lines are whole flash pages, and so places that differ in nothing else lie in one.
            (Some(place), Some((first, count))) if place / flash_page == *first / flash_page => {
                *count += 1;
            }
            (Some(place), _) => {
                self.end_run();
                self.run = Some((place, 1));
            }
            (None, _) => {
                self.end_run();
                let sent = self.link.send_unmapped(self.now, self.at);
                self.done = self.done.max(sent);
            }
        }
    }

    fn end_run(&mut self) {
        let Some((place, pages)) = self.run.take() else {
            return;
        };
        let (die, cell) = self.geometry.position(place);
        let sense = Sense {
            die: self.first_die + die as usize,
            cell,
            pages,
        };
        let arrived = self
            .dies
            .sense_for_host(self.now, self.at, sense, self.link);
        self.done = self.done.max(arrived);
    }
}

/// What a write, and the collection that it makes necessary, have the dies of a partition do.
struct Work<'a> {
    dies: &'a mut Dies,
    buffer: &'a mut Buffer,
    first_die: usize,
    dies_count: u32,
    held: &'a mut u64,
    /// When all of collection's wordline was sensed.
    ready: &'a mut u64,
    now: u64,
    /// When the data of the write is there.
    fetched: u64,
    /// The end of collection's last sense.
    sensed: u64,
    /// The last end of what it programmed for a host.
    programmed: u64,
    /// And of what it erased.
    erased: u64,
}

impl DieWork for Work<'_> {
    fn program(&mut self, writer: Writer, die: u32) {
        let die = self.first_die + die as usize;
        match writer {
            Writer::Host => {
                let end = self.dies.program(self.now, self.fetched, die);
                self.programmed = end.max(self.programmed);
                self.buffer.give_back(end, 0, std::mem::take(self.held));
            }
            Writer::Collection => {
                let ready = std::mem::take(self.ready);
                self.dies.program(self.now, ready, die);
            }
        }
    }

    fn sense(&mut self, die: u32, cell: usize, pages: u32) {
        let sense = Sense {
            die: self.first_die + die as usize,
            cell,
            pages,
        };
        self.sensed = self.dies.sense_for_drive(self.now, self.now, sense);
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

#[cfg(test)]
mod tests;
