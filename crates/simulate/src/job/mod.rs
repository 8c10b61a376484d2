//! Jobs: directions, sizes and positions of commands, their order, and their end.
//!
//! A [`Job`] is a parsed section of a job file, independent of a drive; a [`Stream`] is one of its
//! workers on a drive of a certain size, which generates the next command. Neither has queues, nor
//! time other than what the caller passes in.

use driver::workload::random::{Random, mix};

use crate::Error;
use crate::places::{Shuffle, Zipf};
use crate::zones::{Place, Shared, Walk};

/// Kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Dataset Management, Deallocate.
    Trim,
    /// Flush.
    Flush,
    /// Reset of a zone.
    Reset,
    /// Finish of a zone.
    Finish,
    /// Open of a zone.
    Open,
    /// Close of a zone.
    Close,
    /// Store of a value.
    Store,
    /// Append to a value.
    Append,
    /// Retrieve of a value.
    Retrieve,
    /// Delete of a key.
    Delete,
    /// Exist, of a key.
    Exist,
    /// List of keys, and other commands of a drive for that purpose.
    List,
    /// Several key commands in one.
    Compound,
}

impl Kind {
    /// All of them, in the order of reports.
    pub const ALL: [Kind; 15] = [
        Kind::Read,
        Kind::Write,
        Kind::Trim,
        Kind::Flush,
        Kind::Reset,
        Kind::Finish,
        Kind::Open,
        Kind::Close,
        Kind::Store,
        Kind::Append,
        Kind::Retrieve,
        Kind::Delete,
        Kind::Exist,
        Kind::List,
        Kind::Compound,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Trim => "trim",
            Kind::Flush => "flush",
            Kind::Reset => "reset",
            Kind::Finish => "finish",
            Kind::Open => "open",
            Kind::Close => "close",
            Kind::Store => "store",
            Kind::Append => "append",
            Kind::Retrieve => "retrieve",
            Kind::Delete => "delete",
            Kind::Exist => "exist",
            Kind::List => "list",
            Kind::Compound => "compound",
        }
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Whether it applies to a drive with keys. A flush applies to any drive.
    pub(crate) const fn is_of_keys(self) -> bool {
        self.index() >= Kind::Store.index()
    }

    /// Whether it is a zone management command.
    pub(crate) const fn is_of_zones(self) -> bool {
        matches!(self, Kind::Reset | Kind::Finish | Kind::Open | Kind::Close)
    }

    /// Index of the job's sizes for such commands, if they have a size: reads, writes, trims.
    pub(crate) const fn size_index(self) -> Option<usize> {
        match self {
            Kind::Read | Kind::Retrieve => Some(0),
            Kind::Write | Kind::Store => Some(1),
            Kind::Trim => Some(2),
            _ => None,
        }
    }
}

/// One command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Kind of the command.
    pub kind: Kind,
    /// First byte, a multiple of 512; for a command with a key the key's hash
    /// ([`model::key_hash`]); for a compound one its number among those of its trace.
    pub offset: u64,
    /// Length in bytes, for blocks a multiple of 512; 0 for a flush, and for a key without a value.
    pub len: u64,
    /// Force Unit Access.
    pub fua: bool,
}

/// Size or position on a drive, as written in a job file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Number of bytes.
    Bytes(u64),
    /// Percentage of the drive.
    Percent(u8),
}

impl Extent {
    pub(crate) fn of(self, drive: u64) -> u64 {
        match self {
            Extent::Bytes(bytes) => bytes,
            Extent::Percent(percent) => {
                let bytes = u128::from(drive) * u128::from(percent) / 100;
                u64::try_from(bytes).expect("at most 100 %")
            }
        }
    }
}

/// Distribution of random positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// All equally often.
    #[default]
    Uniform,
    /// Zipf's law, with this exponent in millionths.
    Zipf(u64),
}

/// Intervals between commands of a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Constant.
    #[default]
    Even,
    /// Random and independent.
    Poisson,
}

/// A section of a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The section's name.
    pub name: String,
    /// Kinds of commands; reads and writes may be combined.
    pub kinds: Vec<Kind>,
    /// Random rather than in order.
    pub random: bool,
    /// Sizes of reads, writes and trims, each with the percentage of commands.
    pub sizes: [Vec<(u32, u8)>; 3],
    /// Commands in flight of each worker.
    pub depth: u16,
    /// Number of workers.
    pub workers: u16,
    /// Start of its part of the drive.
    pub offset: Extent,
    /// Additional offset of each further worker.
    pub offset_increment: Extent,
    /// Length of the part; `None`: to the end of the drive.
    pub size: Option<Extent>,
    /// Bytes to process, possibly more than the size; `None`: its size.
    pub io_size: Option<Extent>,
    /// Maximum number of commands.
    pub commands: Option<u64>,
    /// Maximum duration; with `time_based` also the minimum.
    pub runtime_ns: Option<u64>,
    /// Whether it starts over after its size.
    pub time_based: bool,
    /// Number of passes over its size.
    pub loops: u64,
    /// Percentage of reads among reads and writes.
    pub read_percent: u8,
    /// Maximum rate of each worker, in commands per second.
    pub rate: Option<u64>,
    /// Intervals of the rate.
    pub arrivals: Arrivals,
    /// Pause after each `think_commands` completed commands.
    pub think_ns: u64,
    /// Number of commands between pauses.
    pub think_commands: u64,
    /// Whether random positions may repeat before all were used.
    pub forgets: bool,
    /// Distribution of random positions.
    pub distribution: Distribution,
    /// Its own seed.
    pub seed: Option<u64>,
    /// Delay after the start of its group.
    pub start_delay_ns: u64,
    /// Number of writes between flushes; 0: none.
    pub flush_every: u64,
    /// Whether writes are FUA.
    pub fua: bool,
    /// Whether it begins only after all previous sections have ended.
    pub after_others: bool,
    /// Whether it follows zones: writes at write pointers, and reads written data.
    pub zoned: bool,
    /// Zones that each worker writes at a time; `None`: any number.
    pub open_zones: Option<u32>,
    /// Whether its drive has keys: a position is a key ([`key_of`]), reads are retrieves, writes
    /// stores and trims deletes.
    pub keyed: bool,
}

/// Hash of the key for a position: its first byte, in sixteen hexadecimal digits.
#[must_use]
pub fn key_of(offset: u64) -> u32 {
    model::key_hash(&driver::program::key(offset))
}

impl Default for Job {
    fn default() -> Self {
        let sizes = vec![(4096, 100)];
        Self {
            name: String::new(),
            kinds: vec![Kind::Read],
            random: false,
            sizes: [sizes.clone(), sizes.clone(), sizes],
            depth: 1,
            workers: 1,
            offset: Extent::Bytes(0),
            offset_increment: Extent::Bytes(0),
            size: None,
            io_size: None,
            commands: None,
            runtime_ns: None,
            time_based: false,
            loops: 1,
            read_percent: 50,
            rate: None,
            arrivals: Arrivals::Even,
            think_ns: 0,
            think_commands: 1,
            forgets: false,
            distribution: Distribution::Uniform,
            seed: None,
            start_delay_ns: 0,
            flush_every: 0,
            fua: false,
            after_others: false,
            zoned: false,
            open_zones: None,
            keyed: false,
        }
    }
}

impl Job {
    /// Sizes of its commands of all kinds.
    fn all_sizes(&self) -> impl Iterator<Item = u32> {
        let sizes = self
            .kinds
            .iter()
            .filter_map(|kind| self.sizes.get(kind.index()));
        sizes.flatten().map(|(size, _)| *size)
    }

    /// Size of its largest command with data.
    pub(crate) fn largest(&self) -> u32 {
        let data = self.kinds.iter().filter(|kind| **kind != Kind::Trim);
        let sizes = data.filter_map(|kind| self.sizes.get(kind.index()));
        sizes.flatten().map(|(size, _)| *size).max().unwrap_or(0)
    }
}

/// Generator of random positions.
#[derive(Debug)]
enum Places {
    InOrder { next: [u64; 3] },
    Uniform,
    Once { order: Shuffle, next: u64 },
    Zipf(Zipf),
}

/// One worker of a job on a drive.
#[derive(Debug)]
pub(crate) struct Stream {
    kinds: Vec<Kind>,
    sizes: [Vec<(u32, u8)>; 3],
    start: u64,
    len: u64,
    /// Alignment of positions to the start: the smallest command.
    unit: u64,
    units: u64,
    places: Places,
    random: Random,
    read_percent: u8,
    /// Remaining bytes and commands.
    bytes_left: u64,
    commands_left: u64,
    flush_every: u64,
    writes: u64,
    fua: bool,
    /// Its path through zones, if it follows them.
    walk: Option<Walk>,
    /// See [`Job::keyed`].
    keyed: bool,
}

impl Stream {
    /// The same on a drive with `zones`.
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
        let one_size = u64::from(largest) == unit;
        let units = len / unit;
        let mut random = Random::new(job.seed.unwrap_or(seed));
        let places = match (job.random, job.distribution) {
            (false, _) => Places::InOrder { next: [0; 3] },
            (true, Distribution::Zipf(theta)) => {
                Places::Zipf(Zipf::new(units, theta, random.next_u64()))
            }
            (true, Distribution::Uniform) if job.forgets || !one_size => Places::Uniform,
            (true, Distribution::Uniform) => Places::Once {
                order: Shuffle::new(units, random.next_u64()),
                next: 0,
            },
        };
        let once = job.io_size.map_or(len, |size| size.of(drive));
        let endless = job.time_based;
        Ok(Self {
            kinds: job.kinds.clone(),
            sizes: job.sizes.clone(),
            start,
            len,
            unit,
            units,
            places,
            random,
            read_percent: job.read_percent,
            bytes_left: if endless {
                u64::MAX
            } else {
                once.saturating_mul(job.loops)
            },
            commands_left: job.commands.unwrap_or(u64::MAX),
            flush_every: job.flush_every,
            writes: 0,
            fua: job.fua,
            walk: None,
            keyed: job.keyed,
        })
    }

    /// The next command; `None` at the end.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Op> {
        if self.commands_left == 0 || self.bytes_left == 0 {
            return None;
        }
        if self.flush_every > 0 && self.writes == self.flush_every {
            self.writes = 0;
            return Some(Op {
                kind: Kind::Flush,
                offset: 0,
                len: 0,
                fua: false,
            });
        }
        let mut kind = self.kind();
        let mut len = self.size(kind);
        let at = match &mut self.walk {
            None => self.start + self.place(kind, len),
            Some(walk) => {
                let mut place = walk.place(kind, len, &mut self.random);
                if place == Place::Nowhere && self.kinds.len() > 1 {
                    // No data has been written yet that could be read.
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
        let mut draw = self.random.below(100);
        for (size, percent) in sizes {
            match draw.checked_sub((*percent).into()) {
                Some(left) => draw = left,
                None => return (*size).into(),
            }
        }
        sizes.last().map_or(self.unit, |(size, _)| (*size).into())
    }

    /// Position of a command of `len` bytes, from the start of the part.
    #[inline]
    fn place(&mut self, kind: Kind, len: u64) -> u64 {
        let unit = match &mut self.places {
            Places::InOrder { next } => {
                let next = &mut next[kind.index()];
                let at = if *next + len > self.len { 0 } else { *next };
                *next = at + len;
                return at;
            }
            Places::Uniform => self.random.below(self.units),
            Places::Zipf(zipf) => zipf.next(&mut self.random),
            Places::Once { order, next } => {
                if *next == order.count() {
                    *order = Shuffle::new(order.count(), self.random.next_u64());
                    *next = 0;
                }
                *next += 1;
                order.at(*next - 1)
            }
        };
        // A large command among small ones could extend beyond the end.
        (unit * self.unit).min((self.len - len) / self.unit * self.unit)
    }
}

/// The same command for the key of its position.
fn keyed(op: Op) -> Op {
    let (kind, len) = match op.kind {
        Kind::Read => (Kind::Retrieve, op.len),
        Kind::Write => (Kind::Store, op.len),
        // Delete has no size.
        _ => (Kind::Delete, 0),
    };
    Op {
        kind,
        len,
        offset: key_of(op.offset).into(),
        fua: false,
    }
}

/// Seed of a worker, independent of other workers' seeds.
pub(crate) fn seed_of(seed: u64, job: usize, worker: u16) -> u64 {
    mix(mix(seed).wrapping_add(mix((job as u64) << 16 | u64::from(worker))))
}

#[cfg(test)]
mod tests;
