//! Conventional flash: dies behind channels, a link, a shared write buffer, and a page-mapped FTL
//! in each partition.
//!
//! All times of a command are known when it is submitted, because later commands find dies,
//! channels and links as it left them. Only two kinds of events remain: commands complete, and
//! bytes return to the buffer. These times change only if programs and erases are suspended for
//! reads.
//!
//! Not included: data, limits on the size and number of commands, and the identity of their
//! senders.

mod buffer;
mod collect;
mod costs;
mod counters;
mod die;
mod extra;
mod ftl;
mod geometry;
mod lines;
mod map_copy;
mod policy;
mod postpone;
mod prepare;
mod read;
mod snapshot;
mod state;
mod work;

use std::ops::Range;

pub(crate) use self::buffer::{Buffer, Share};
pub(crate) use self::costs::Costs;
pub use self::counters::{Collections, Counters, OpenLine, PartitionView, SlcState, Wear};
pub(crate) use self::die::{Cells, Dies, For, Link, Sense};
use self::extra::background::Background;
use self::extra::map_cache::MapCache;
use self::extra::slc::{Cached, SlcCache};
pub(crate) use self::extra::suspend::Waiting;
pub use self::ftl::Writer;
use self::ftl::{Ftl, NoWork};
pub use self::geometry::{DieShape, Geometry};
pub use self::lines::Lines;
pub use self::policy::Policy;
pub(crate) use self::postpone::{give_back, postpone};
pub use self::prepare::{Initial, Method, PLAYED_MAX, Prepared, Progress, STEADY_SEED};
use self::snapshot::Taking;
pub use self::snapshot::{Room, Snapshot};
pub use self::state::StateError;
use crate::error::ParameterError;
use crate::parameters::FlashParameters;
use crate::pending::{At, Pending};
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
    slc: Option<SlcCache>,
    /// Arrival of the last command.
    arrived: u64,
    stalls: u64,
    reads: u64,
    unmapped_reads: u64,
    /// How it was preconditioned, if it was.
    prepared: Option<Prepared>,
    /// Number of possible changes of its state.
    changes: u64,
    taking: Option<Taking>,
}

/// One FTL, with the state of its open wordlines.
#[derive(Debug)]
struct Partition {
    ftl: Ftl,
    /// Its first die.
    first_die: usize,
    /// Buffer bytes in the host's partly filled wordline.
    held: u64,
    /// Time at which the contents of collection's partly filled wordline were sensed.
    sensed: u64,
    /// Lines collected in the background.
    background: u64,
    /// End of the last background collection.
    background_end: u64,
    /// Whether no line has an invalid page; only for [`Flash::be_idle`].
    is_clean: bool,
    cached: Cached,
    /// The part of its map in memory; `None` if all of it is.
    map: Option<MapCache>,
    map_misses: u64,
}

impl Flash {
    /// Creates a fresh drive at rest, without any written data.
    ///
    /// # Errors
    ///
    /// Those of [`Geometry::new`]; not enough memory for the map.
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
                background: 0,
                background_end: 0,
                is_clean: false,
                cached: Cached::default(),
                map: None,
                map_misses: 0,
            })
        };
        let mut flash = Self {
            costs: Costs::new(parameters),
            dies: Dies::new(parameters, (0..all_dies).map(hangs_on).collect()),
            link: Link::new(parameters),
            buffer: Buffer::new(parameters.buffer_bytes, 1)?,
            partitions: (0..geometry.partitions)
                .map(partition)
                .collect::<Result<_, ParameterError>>()?,
            background: Background::new(&geometry, &parameters.extras)?,
            slc: None,
            geometry,
            pending: Pending::default(),
            arrived: 0,
            stalls: 0,
            reads: 0,
            unmapped_reads: 0,
            prepared: None,
            changes: 0,
            taking: None,
        };
        flash.retune_caches(parameters);
        Ok(flash)
    }

    /// Ends everything in flight, and restarts time: the result is the drive that
    /// [`Flash::restore`] makes of its state.
    pub fn rest(&mut self, parameters: &FlashParameters) {
        self.dies.rest(parameters);
        self.link = Link::new(parameters);
        self.buffer.empty();
        self.pending = Pending::default();
        self.arrived = 0;
        for partition in &mut self.partitions {
            partition.held = 0;
            partition.sensed = 0;
            partition.background_end = 0;
            partition.cached.folded = 0;
            partition.map = None;
            partition.ftl.taken = None;
        }
        self.taking = None;
        self.retune_caches(parameters);
    }

    /// How it was preconditioned, if it was.
    pub fn prepared(&self) -> Option<Prepared> {
        self.prepared
    }

    /// A number that grows with each possible change of the result of [`Flash::save`].
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Changes the parameters. Commands in flight keep their times.
    ///
    /// # Errors
    ///
    /// Those of [`Flash::new`], and another shape; then nothing has changed.
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
        self.retune_caches(parameters);
        Ok(())
    }

    /// Empties caches that are now off.
    fn retune_caches(&mut self, parameters: &FlashParameters) {
        self.slc = SlcCache::new(parameters);
        let map_pages = parameters.extras.map_cache_pages;
        for partition in &mut self.partitions {
            if self.slc.is_none() {
                partition.cached.clear();
            }
            match &mut partition.map {
                _ if map_pages == 0 => partition.map = None,
                Some(map) => map.retune(map_pages),
                None => partition.map = Some(MapCache::new(map_pages, self.geometry.logical)),
            }
        }
    }

    /// Geometry from the parameters.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Writes one page in no time, as a host would, with the necessary collection: for
    /// preconditioning. A page beyond the end is ignored.
    pub fn place_only(&mut self, page: u64) {
        self.changes += 1;
        if page < self.geometry.pages() {
            let (partition, logical) = self.locate(page);
            self.partitions[partition].ftl.write(logical, &mut NoWork);
        }
    }

    /// The partition of a page, and its logical page number there.
    fn locate(&self, page: u64) -> (usize, u32) {
        locate(page, self.geometry.partitions)
    }

    fn write(&mut self, now: u64, offset: u64, len: u32, fua: bool) -> Option<At> {
        self.buffer.settle(now);
        let pages = pages_touched(offset, len, self.geometry.pages());
        let need = self.need(&pages);
        if !self.buffer.take(0, need) {
            self.stalls += 1;
            return None;
        }
        let copied = now.saturating_add(self.costs.before_write(len));
        let fetched = self.link.fetch(now, copied, len);
        self.ask_map(&pages, now);
        let waits = self.costs.waits_for_programs(fua) && self.dies.are_suspended();
        let slot = waits.then(|| self.pending.reserve());
        let mut share = Share::of(need);
        let mut programmed = 0;
        for page in pages {
            let (index, logical) = self.locate(page);
            let partition = &mut self.partitions[index];
            partition.held += share.next(PAGE);
            let cache = self.slc.as_ref();
            let (ftl, mut work) = partition.at_work(&mut self.dies, &mut self.buffer, cache, now);
            (work.fetched, work.command) = (fetched, slot);
            ftl.write(logical, &mut work);
            programmed = programmed.max(work.programmed);
        }
        let at = self.costs.write_done(fua, fetched, programmed);
        Some(At { at, slot })
    }

    /// Buffer bytes of a write of `pages`, limited so that it need not wait for bytes in partly
    /// filled wordlines.
    fn need(&self, pages: &Range<u64>) -> u64 {
        let waiting = u64::from(self.geometry.partitions)
            * (u64::from(self.geometry.die.wordline) - 1)
            * PAGE;
        let most = self.buffer.size().saturating_sub(waiting);
        ((pages.end - pages.start) * PAGE).min(most)
    }

    fn deallocate(&mut self, now: u64, offset: u64, len: u64) -> u64 {
        let pages = pages_within(offset, len, self.geometry.pages());
        let count = self.geometry.partitions;
        for (index, partition) in (0..count).zip(&mut self.partitions) {
            let logical = logical_pages(&pages, index, count);
            partition.ftl.forget_all(logical);
        }
        now.saturating_add(self.costs.deallocate)
    }
}

impl Flash {
    /// See [`Model::release_early`](crate::Model::release_early).
    pub(crate) fn release_early(&mut self, ns: u64) {
        self.pending.set_early(ns);
    }
}

impl Timing for Flash {
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission {
        let now = self.pending.at(now);
        self.be_idle(now);
        let at = match *op {
            Op::Read { offset, len } => self.read(now, offset, len).into(),
            Op::Write { offset, len, fua } => match self.write(now, offset, len, fua) {
                Some(at) => at,
                None => return Admission::Stall,
            },
            Op::Deallocate { offset, len } => self.deallocate(now, offset, len).into(),
            Op::Flush => now.max(self.dies.all_free()).into(),
            Op::Zone(_) | Op::Kv(_) | Op::Compound(_) => now.into(),
        };
        self.changes += u64::from(!matches!(op, Op::Read { .. } | Op::Flush));
        self.arrived = now;
        self.pending.push_at(at, id);
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
        self.be_idle(now);
        self.buffer.settle(now);
        self.pending.reap(now, done);
    }
}

/// Logical pages of partition `index` of `count` in a range of the drive's pages.
fn logical_pages(pages: &Range<u64>, index: u32, count: u32) -> Range<u32> {
    // The number of those pages before `page`.
    let from = |page: u64| {
        let logical = page.saturating_sub(index.into()).div_ceil(count.into());
        u32::try_from(logical).expect("a partition has fewer than 2^32 pages")
    };
    from(pages.start)..from(pages.end)
}

fn locate(page: u64, partitions: u32) -> (usize, u32) {
    let count = u64::from(partitions);
    let logical = u32::try_from(page / count).expect("a partition has fewer than 2^32 pages");
    let partition = usize::try_from(page % count).expect("partitions are few");
    (partition, logical)
}

#[cfg(test)]
mod tests;
