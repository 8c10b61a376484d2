//! One of a job's workers on a drive of a certain size, which says what comes next.
//!
//! It knows no time beyond the one that its caller passes, and no queues.

use driver::workload::random::{Random, mix};

use crate::error::Error;
use crate::job::{Distribution, Extent, Job, Kind, Op, key_of};
use crate::places::{Normal, Pareto, Ranges, Scattered, Shuffle, Zipf};
use crate::zones::{Place, Shared, Walk};

/// How random places are chosen.
#[derive(Debug)]
enum Places {
    InOrder { next: [u64; 3] },
    Uniform,
    Once { order: Shuffle, next: u64 },
    Zipf(Zipf),
    Pareto(Box<Pareto>),
    Normal(Normal),
    Zoned([Ranges; 3]),
}

impl Places {
    /// Places of `units` units of `unit` bytes.
    fn of(job: &Job, (units, unit): (u64, u64), random: &mut Random) -> Result<Self, String> {
        let one_size = job.all_sizes().all(|size| u64::from(size) == unit);
        let scattered = |random: &mut Random| Scattered::new(units, job.center, random.next_u64());
        Ok(match (job.random, &job.distribution) {
            (false, _) => Places::InOrder { next: [0; 3] },
            (true, Distribution::Zipf(theta)) => {
                Places::Zipf(Zipf::new(units, *theta, scattered(random)))
            }
            (true, Distribution::Pareto(h)) => {
                Places::Pareto(Box::new(Pareto::new(units, *h, scattered(random))))
            }
            (true, Distribution::Normal(deviation)) => {
                let center = job.center.unwrap_or(500_000);
                Places::Normal(Normal::new(units, *deviation, center))
            }
            (true, Distribution::Zoned(all)) => {
                let mut ranges = Vec::new();
                for own in all {
                    ranges.push(zoned(own, (units, unit))?);
                }
                let ranges = ranges.try_into().map_err(|_| "it has three kinds")?;
                Places::Zoned(ranges)
            }
            (true, Distribution::Uniform) if job.forgets || !one_size => Places::Uniform,
            (true, Distribution::Uniform) => Places::Once {
                order: Shuffle::new(units, random.next_u64()),
                next: 0,
            },
        })
    }
}

/// Ranges of a zoned distribution, one behind the other. The last one also has what is left.
fn zoned(all: &[(u8, Extent)], (units, unit): (u64, u64)) -> Result<Ranges, String> {
    let (mut percent, mut bytes) = (0u64, 0u64);
    let mut from = 0;
    let mut ranges = Vec::new();
    for (number, (share, len)) in all.iter().enumerate() {
        let end = match len {
            Extent::Percent(part) => {
                percent += u64::from(*part);
                let end = u128::from(units) * u128::from(percent) / 100;
                u64::try_from(end).unwrap_or(units)
            }
            len => {
                bytes = bytes.saturating_add(len.of(u64::MAX));
                bytes / unit
            }
        };
        let end = if number + 1 == all.len() {
            units.max(from)
        } else {
            end.min(units)
        };
        ranges.push((*share, from..end));
        from = end;
    }
    Ranges::new(ranges).ok_or_else(|| {
        "a range of random_distribution lies behind its part, or is smaller than a command"
            .to_owned()
    })
}

/// One worker of a job on a drive.
#[derive(Debug)]
pub(crate) struct Stream {
    kinds: Vec<Kind>,
    sizes: [Vec<(u32, u8)>; 3],
    start: u64,
    len: u64,
    /// Places begin at multiples of this from the start: the smallest command.
    unit: u64,
    units: u64,
    places: Places,
    /// See [`Job::random_percent`], and the ends of the last commands of each kind.
    random_percent: [u8; 3],
    last: [u64; 3],
    random: Random,
    /// Kind of the next command, if it was asked for before.
    chosen: Option<Kind>,
    read_percent: u8,
    /// Bytes and commands that are left.
    bytes_left: u64,
    commands_left: u64,
    flush_every: u64,
    writes: u64,
    has_written: bool,
    fua: bool,
    /// Its way through zones, where it goes by them.
    walk: Option<Walk>,
    /// See [`Job::keyed`].
    keyed: bool,
}

impl Stream {
    /// The same on a drive whose zones are `zones`.
    pub(crate) fn on_zones(
        job: &Job,
        worker: u16,
        drive: u64,
        seed: u64,
        zones: Shared,
    ) -> Result<Self, Error> {
        let stream = Self::new(job, worker, drive, seed)?;
        let part = (stream.start, stream.len);
        Ok(Self {
            walk: Some(Walk::new(job, worker, part, zones)?),
            ..stream
        })
    }

    /// Worker `worker` of `job` on a drive of `drive` bytes.
    pub(crate) fn new(job: &Job, worker: u16, drive: u64, seed: u64) -> Result<Self, Error> {
        let unfit = |why: String| Error::Job {
            name: job.name.clone(),
            why,
        };
        let increment = job.offset_increment.of(drive).saturating_mul(worker.into());
        let start = job.offset.of(drive).saturating_add(increment) / 512 * 512;
        let room = drive.saturating_sub(start);
        let len = job.size.map_or(room, |size| size.of(drive));
        if len > room {
            return Err(unfit(format!(
                "its {len} bytes from {start} on do not lie on a drive of {drive} bytes: lower size or offset, or give --size"
            )));
        }
        let largest = job.all_sizes().max().unwrap_or(0);
        let unit = u64::from(job.all_sizes().min().unwrap_or(512));
        if len < u64::from(largest) {
            return Err(unfit(format!(
                "its {len} bytes are less than one command of {largest}"
            )));
        }
        let units = len / unit;
        let mut random = Random::new(job.seed.unwrap_or(seed));
        let places = Places::of(job, (units, unit), &mut random).map_err(unfit)?;
        // as in fio, of the size a rest that is smaller than a command is left out
        let once = job.io_size.map_or(units * unit, |size| size.of(drive));
        let endless = job.time_based;
        Ok(Self {
            kinds: job.kinds.clone(),
            sizes: job.sizes.clone(),
            start,
            len,
            unit,
            units,
            places,
            random_percent: job.random_percent,
            last: [0; 3],
            random,
            chosen: None,
            read_percent: job.read_percent,
            bytes_left: if endless {
                u64::MAX
            } else {
                once.saturating_mul(job.loops)
            },
            commands_left: job.commands.unwrap_or(u64::MAX),
            flush_every: job.flush_every,
            writes: 0,
            has_written: false,
            fua: job.fua,
            walk: None,
            keyed: job.keyed,
        })
    }

    fn is_done(&self) -> bool {
        self.commands_left == 0 || self.bytes_left == 0
    }

    fn flush_is_next(&self) -> bool {
        self.flush_every > 0 && self.writes == self.flush_every
    }

    /// Whether any command was a write.
    pub(crate) fn has_written(&self) -> bool {
        self.has_written
    }

    /// Index of the kind of the next command among reads, writes and trims; `None` if it has none
    /// or if that is a flush.
    pub(crate) fn direction(&mut self) -> Option<usize> {
        if self.is_done() || self.flush_is_next() {
            return None;
        }
        let kind = self.chosen.take().unwrap_or_else(|| self.kind());
        self.chosen = Some(kind);
        Some(kind.index())
    }

    /// Makes the next command one of the other kind, where it has reads and writes.
    pub(crate) fn turn(&mut self) {
        if let Some(kind) = self.chosen {
            let other = self.kinds.iter().find(|other| **other != kind);
            self.chosen = Some(*other.unwrap_or(&kind));
        }
    }

    /// Whether it has reads and writes, and the mix has some of both.
    pub(crate) fn is_mixed(&self) -> bool {
        self.kinds.len() > 1 && (1..100).contains(&self.read_percent)
    }

    /// The next command; `None` when it has done all.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Op> {
        if self.is_done() {
            return None;
        }
        if self.flush_is_next() {
            self.writes = 0;
            return Some(Op {
                kind: Kind::Flush,
                offset: 0,
                len: 0,
                fua: false,
            });
        }
        let mut kind = self.chosen.take().unwrap_or_else(|| self.kind());
        let mut len = self.size(kind);
        let at = match &mut self.walk {
            None => self.start + self.place(kind, len),
            Some(walk) => {
                let mut place = walk.place(kind, len, &mut self.random);
                if place == Place::Nowhere && self.kinds.len() > 1 {
                    // Nothing is written yet that could be read.
                    kind = Kind::Write;
                    len = self.size(kind);
                    let walk = self.walk.as_mut().expect("it was there just now");
                    place = walk.place(kind, len, &mut self.random);
                }
                match place {
                    Place::At(at) => at,
                    Place::Reset(offset, len) => {
                        return Some(Op {
                            kind: Kind::Reset,
                            offset,
                            len,
                            fua: false,
                        });
                    }
                    Place::Nowhere => return None,
                }
            }
        };
        self.commands_left -= 1;
        self.bytes_left = match self.bytes_left {
            u64::MAX => u64::MAX,
            left => left.saturating_sub(len),
        };
        self.writes += u64::from(kind == Kind::Write);
        self.has_written |= kind == Kind::Write;
        let op = Op {
            kind,
            offset: at,
            len,
            fua: self.fua && kind == Kind::Write,
        };
        Some(if self.keyed { keyed(op) } else { op })
    }

    #[inline]
    fn kind(&mut self) -> Kind {
        match *self.kinds.as_slice() {
            [kind] => kind,
            _ if self.random.below(100) < self.read_percent.into() => Kind::Read,
            _ => Kind::Write,
        }
    }

    #[inline]
    fn size(&mut self, kind: Kind) -> u64 {
        let sizes = &self.sizes[kind.index()];
        if let [(size, _)] = sizes.as_slice() {
            return (*size).into();
        }
        let all: u64 = sizes.iter().map(|(_, share)| u64::from(*share)).sum();
        let mut draw = self.random.below(all.max(1));
        if all == sizes.len() as u64 {
            // All have the same share.
            return sizes[usize::try_from(draw).unwrap_or(0)].0.into();
        }
        for (size, percent) in sizes {
            match draw.checked_sub((*percent).into()) {
                Some(left) => draw = left,
                None => return (*size).into(),
            }
        }
        sizes.last().map_or(self.unit, |(size, _)| (*size).into())
    }

    /// Where a command of `len` bytes begins, counted from the start of the part.
    #[inline]
    fn place(&mut self, kind: Kind, len: u64) -> u64 {
        let at = self.any_place(kind, len);
        self.last[kind.index()] = at + len;
        at
    }

    fn any_place(&mut self, kind: Kind, len: u64) -> u64 {
        let percent = self.random_percent[kind.index()];
        if percent < 100 && self.random.below(100) >= percent.into() {
            let last = self.last[kind.index()];
            return if last + len > self.len { 0 } else { last };
        }
        let unit = match &mut self.places {
            Places::InOrder { next } => {
                let next = &mut next[kind.index()];
                let at = if *next + len > self.len { 0 } else { *next };
                *next = at + len;
                return at;
            }
            Places::Uniform => self.random.below(self.units),
            Places::Zipf(zipf) => zipf.next(&mut self.random),
            Places::Pareto(pareto) => pareto.next(&mut self.random),
            Places::Normal(normal) => normal.next(&mut self.random),
            Places::Zoned(ranges) => ranges[kind.index()].next(&mut self.random),
            Places::Once { order, next } => {
                if *next == order.count() {
                    *order = Shuffle::new(order.count(), self.random.next_u64());
                    *next = 0;
                }
                *next += 1;
                order.at(*next - 1)
            }
        };
        // A large one among small ones may begin too late.
        (unit * self.unit).min((self.len - len) / self.unit * self.unit)
    }
}

/// The same of the key that stands for its place.
fn keyed(op: Op) -> Op {
    let (kind, len) = match op.kind {
        Kind::Read => (Kind::Retrieve, op.len),
        Kind::Write => (Kind::Store, op.len),
        // A key has no size.
        _ => (Kind::Delete, 0),
    };
    Op {
        kind,
        len,
        offset: key_of(op.offset).into(),
        fua: false,
    }
}

/// The seed of a worker, independent of the seeds of all others.
pub(crate) fn seed_of(seed: u64, job: usize, worker: u16) -> u64 {
    mix(mix(seed).wrapping_add(mix((job as u64) << 16 | u64::from(worker))))
}

#[cfg(test)]
mod tests;
