//! Positions of a job's commands on a zoned drive (`zonemode=zbd`): writes at write pointers, reads
//! of written data.
//!
//! All jobs share the write pointers; a worker writes only its own zones, so that no two collide at
//! a write pointer. A full zone is reset when its worker returns to it.
//!
//! Not included: appends, finishing and opening of zones, and limits of the drive other than the
//! job's.

use std::cell::RefCell;
use std::rc::Rc;

use driver::workload::random::Random;
use model::Parameters;

use crate::error::Error;
use crate::job::{Job, Kind};

/// Write pointers of a drive's zones.
#[derive(Debug)]
pub(crate) struct Table {
    zone: u64,
    capacity: u64,
    written: Vec<u64>,
}

/// The table shared by all hosts.
pub(crate) type Shared = Rc<RefCell<Table>>;

impl Table {
    /// The empty zones of a drive of `size` bytes; `None` for a drive without zones.
    pub(crate) fn of(parameters: &Parameters, size: u64) -> Option<Shared> {
        let Parameters::Zones(zones) = parameters else {
            return None;
        };
        let count = usize::try_from(size / zones.zone_size_bytes).ok()?;
        Some(Rc::new(RefCell::new(Self {
            zone: zones.zone_size_bytes,
            capacity: zones.zone_capacity_bytes,
            written: vec![0; count],
        })))
    }

    /// Takes the next `len` bytes of a zone; `None` if it has too few.
    fn take(&mut self, zone: usize, len: u64) -> Option<u64> {
        let written = self.written[zone];
        if written + len > self.capacity {
            return None;
        }
        self.written[zone] = written + len;
        Some(zone as u64 * self.zone + written)
    }
}

/// Next step of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A command at this offset.
    At(u64),
    /// Reset this zone, of this size, first.
    Reset(u64, u64),
    /// There is no such position.
    Nowhere,
}

/// A worker's path through its zones.
#[derive(Debug)]
pub(crate) struct Walk {
    table: Shared,
    /// Zones for reads.
    part: std::ops::Range<usize>,
    /// Zones for writes.
    own: Vec<usize>,
    open: Vec<usize>,
    open_max: usize,
    /// Index of its current zone for sequential writes.
    cursor: usize,
    /// Position of sequential reads: the zone, and the offset in it.
    reads: (usize, u64),
    random: bool,
}

impl Walk {
    /// Worker `worker` of `job`, whose part of the drive is `len` bytes from `start` on.
    pub(crate) fn new(
        job: &Job,
        worker: u16,
        (start, len): (u64, u64),
        table: Shared,
    ) -> Result<Self, Error> {
        let unfit = |why: String| Error::Job {
            name: job.name.clone(),
            why,
        };
        let (zone, capacity) = {
            let table = table.borrow();
            (table.zone, table.capacity)
        };
        if !start.is_multiple_of(zone) {
            return Err(unfit(format!(
                "it begins at {start}, and a zone begins at multiples of {zone}: write such an offset"
            )));
        }
        if u64::from(job.largest()) > capacity {
            return Err(unfit(format!(
                "a command of {} bytes does not fit a zone of {capacity}",
                job.largest()
            )));
        }
        let first = usize::try_from(start / zone).unwrap_or(usize::MAX);
        let count = usize::try_from(len / zone).unwrap_or(0);
        // With an offset increment each worker has a separate part; otherwise they take turns.
        let apart = job.offset_increment.of(u64::MAX) > 0;
        let (turn, of) = if apart {
            (0, 1)
        } else {
            (usize::from(worker), usize::from(job.workers))
        };
        let own: Vec<usize> = (first..first + count).skip(turn).step_by(of).collect();
        if own.is_empty() {
            return Err(unfit(format!(
                "{count} zones are too few for {} workers: give it a larger part",
                job.workers
            )));
        }
        Ok(Self {
            table,
            part: first..first + count,
            own,
            open: Vec::new(),
            open_max: usize::try_from(job.open_zones.unwrap_or(u32::MAX)).unwrap_or(usize::MAX),
            cursor: 0,
            reads: (first, 0),
            random: job.random,
        })
    }

    /// Position of a command of `len` bytes.
    pub(crate) fn place(&mut self, kind: Kind, len: u64, random: &mut Random) -> Place {
        match (kind, self.random) {
            (Kind::Write, false) => self.write_in_order(len),
            (Kind::Write, true) => self.write_somewhere(len, random),
            (Kind::Read, false) => self.read_in_order(len),
            (Kind::Read, true) => self.read_somewhere(len, random),
            _ => Place::Nowhere,
        }
    }

    fn write_in_order(&mut self, len: u64) -> Place {
        let mut table = self.table.borrow_mut();
        if let Some(at) = table.take(self.own[self.cursor], len) {
            return Place::At(at);
        }
        self.cursor = (self.cursor + 1) % self.own.len();
        let zone = self.own[self.cursor];
        match table.written[zone] {
            0 => table.take(zone, len).map_or(Place::Nowhere, Place::At),
            _ => reset(&mut table, zone),
        }
    }

    fn write_somewhere(&mut self, len: u64, random: &mut Random) -> Place {
        let mut table = self.table.borrow_mut();
        loop {
            let may_open = self.open.len() < self.open_max.min(self.own.len());
            if may_open {
                let closed: Vec<usize> = self
                    .own
                    .iter()
                    .copied()
                    .filter(|zone| !self.open.contains(zone))
                    .collect();
                let zone = closed[pick(closed.len(), random)];
                self.open.push(zone);
                if table.written[zone] + len > table.capacity {
                    return reset(&mut table, zone);
                }
            }
            let which = pick(self.open.len(), random);
            match table.take(self.open[which], len) {
                Some(at) => return Place::At(at),
                None => drop(self.open.swap_remove(which)),
            }
        }
    }

    fn read_in_order(&mut self, len: u64) -> Place {
        let table = self.table.borrow();
        for _ in 0..=self.part.len() {
            let (zone, from) = self.reads;
            if from + len <= table.written[zone] {
                self.reads.1 += len;
                return Place::At(zone as u64 * table.zone + from);
            }
            let next = zone + 1;
            self.reads = if self.part.contains(&next) {
                (next, 0)
            } else {
                (self.part.start, 0)
            };
        }
        Place::Nowhere
    }

    fn read_somewhere(&mut self, len: u64, random: &mut Random) -> Place {
        let table = self.table.borrow();
        let first = pick(self.part.len(), random);
        let zones = (0..self.part.len()).map(|by| (first + by) % self.part.len());
        let mut zones = zones.map(|zone| self.part.start + zone);
        let found = zones.find(|zone| table.written[*zone] >= len);
        found.map_or(Place::Nowhere, |zone| {
            let at = random.below(table.written[zone] / len) * len;
            Place::At(zone as u64 * table.zone + at)
        })
    }
}

fn reset(table: &mut Table, zone: usize) -> Place {
    table.written[zone] = 0;
    Place::Reset(zone as u64 * table.zone, table.zone)
}

fn pick(count: usize, random: &mut Random) -> usize {
    usize::try_from(random.below(count as u64)).expect("below a usize")
}

/// Rejects jobs that do not fit the drive, and jobs that would write to the same zones at the same
/// time.
pub(crate) fn check(jobs: &[Job], drive: u64, is_zoned: bool) -> Result<(), Error> {
    let unfit = |job: &Job, why: String| {
        Err(Error::Job {
            name: job.name.clone(),
            why,
        })
    };
    for (at, job) in jobs.iter().enumerate() {
        match (is_zoned, job.zoned) {
            (false, true) => {
                return unfit(
                    job,
                    "zonemode=zbd is for a drive that has zones: take a preset of kind zns".into(),
                );
            }
            (true, false) if job.kinds != [Kind::Read] => {
                return unfit(
                    job,
                    "the drive has zones, which are written in order: write zonemode=zbd".into(),
                );
            }
            (true, true) if job.kinds.contains(&Kind::Trim) => {
                return unfit(
                    job,
                    "zones are not deallocated: they are reset when they are written again".into(),
                );
            }
            _ => {}
        }
        let begun = jobs[..=at]
            .iter()
            .rposition(|job| job.after_others)
            .unwrap_or(0);
        let other = jobs[begun..at].iter().find(|other| {
            let both = other.zoned && job.zoned;
            let write = |job: &Job| job.kinds.contains(&Kind::Write);
            both && write(other) && write(job) && meet(part(other, drive), part(job, drive))
        });
        if let Some(other) = other {
            return unfit(
                job,
                format!(
                    "it writes to zones that [{}] writes to at the same time: give each its own by offset and size, or add stonewall",
                    other.name
                ),
            );
        }
    }
    Ok(())
}

/// The range of a job's workers.
fn part(job: &Job, drive: u64) -> std::ops::Range<u64> {
    let start = job.offset.of(drive);
    let last = job
        .offset_increment
        .of(drive)
        .saturating_mul(u64::from(job.workers - 1));
    let len = job.size.map_or(drive, |size| size.of(drive));
    start..start.saturating_add(last).saturating_add(len)
}

fn meet(a: std::ops::Range<u64>, b: std::ops::Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}
