//! Work of a job: the directions, sizes and places of its commands, their order and their end.
//!
//! A [`Job`] is a section of a job file, read but not yet put on a drive. It knows no time and no
//! queues.

use crate::error::Error;

/// Effect of a command.
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
    /// List of keys, and what else a drive has for that.
    List,
    /// Several of the commands with keys as one.
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

    /// Whether it is for a drive with keys. A flush is for any.
    pub(crate) const fn is_of_keys(self) -> bool {
        self.index() >= Kind::Store.index()
    }

    /// Whether it is done to a zone as a whole.
    pub(crate) const fn is_of_zones(self) -> bool {
        matches!(self, Kind::Reset | Kind::Finish | Kind::Open | Kind::Close)
    }

    /// Which of the sizes of a job such commands have, where they have one: reads, writes, trims.
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
    /// Its effect.
    pub kind: Kind,
    /// First byte, a multiple of 512; of a command with a key the key's hash ([`model::key_hash`]);
    /// of a compound one its number among those of its trace.
    pub offset: u64,
    /// Bytes, of blocks a multiple of 512; 0 for a flush, and where a key has no value.
    pub len: u64,
    /// Force Unit Access.
    pub fua: bool,
}

/// A part of a drive, as it is written in a job file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// So many bytes.
    Bytes(u64),
    /// So many per cent of the drive.
    Percent(u8),
    /// So many zones; [`Job::on_zones`] makes bytes of them.
    Zones(u64),
}

impl Extent {
    /// The same in bytes, on a drive with zones of `zone` bytes.
    fn on_zones(self, zone: u64) -> Self {
        match self {
            Extent::Zones(zones) => Extent::Bytes(zones.saturating_mul(zone)),
            other => other,
        }
    }

    pub(crate) fn of(self, drive: u64) -> u64 {
        match self {
            Extent::Bytes(bytes) => bytes,
            // No drive is as large.
            Extent::Zones(_) => u64::MAX,
            Extent::Percent(percent) => {
                let bytes = u128::from(drive) * u128::from(percent) / 100;
                u64::try_from(bytes).expect("at most 100 %")
            }
        }
    }
}

/// How places are chosen that are not in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Each as often as any other.
    #[default]
    Uniform,
    /// By Zipf's law, with this exponent in millionths.
    Zipf(u64),
    /// By Pareto's law: this part of the places, in millionths, gets all but this part of the
    /// commands.
    Pareto(u64),
    /// By the normal distribution, with this standard deviation in millionths of all places.
    Normal(u64),
    /// Ranges of reads, of writes and of trims: the share of commands in per cent, and the length.
    Zoned([Vec<(u8, Extent)>; 3]),
}

/// The most commands of a job in a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Commands of the smallest size.
    Commands(u64),
    /// Bytes.
    Bytes(u64),
}

/// How far apart commands of a rate are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arrivals {
    /// Always as far.
    #[default]
    Even,
    /// Independent of each other.
    Poisson,
}

/// A section of a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The section's name.
    pub name: String,
    /// The directions that are taken, by [`Kind`]; reads and writes may both be.
    pub kinds: Vec<Kind>,
    /// At random, not in order.
    pub random: bool,
    /// Sizes of reads, writes and trims, each with the share of commands in per cent.
    pub sizes: [Vec<(u32, u8)>; 3],
    /// Commands in flight.
    pub depth: u16,
    /// Workers.
    pub workers: u16,
    /// Where its part of the drive begins.
    pub offset: Extent,
    /// And by how much later for each further worker.
    pub offset_increment: Extent,
    /// How long the part is; `None`: to the end of the drive.
    pub size: Option<Extent>,
    /// How much is done of it, or more than that; `None`: its size.
    pub io_size: Option<Extent>,
    /// How many commands are done at most.
    pub commands: Option<u64>,
    /// How long it takes at most, and with `time_based` at least, too.
    pub runtime_ns: Option<u64>,
    /// Starts over when it has done its size.
    pub time_based: bool,
    /// How often its size is done.
    pub loops: u64,
    /// Share of reads where there are writes, too.
    pub read_percent: u8,
    /// Rates of reads, writes and trims of each worker, at most.
    pub rates: [Option<Rate>; 3],
    /// How these are apart.
    pub arrivals: Arrivals,
    /// Pause after each `think_commands` commands that are done.
    pub think_ns: u64,
    /// See there.
    pub think_commands: u64,
    /// Random places may come again before all have come.
    pub forgets: bool,
    /// How random places are chosen.
    pub distribution: Distribution,
    /// Where the distribution has its most frequent place, in millionths of all places.
    pub center: Option<u64>,
    /// Share of random reads, writes and trims at random places, in per cent; the others follow the
    /// last one of their kind.
    pub random_percent: [u8; 3],
    /// Its own seed.
    pub seed: Option<u64>,
    /// How long after its group it begins.
    pub start_delay_ns: u64,
    /// A flush after so many writes; 0: none.
    pub flush_every: u64,
    /// A flush when all is done, if there were writes.
    pub flush_at_end: bool,
    /// When a worker is done, all jobs of its reporting group end.
    pub exit_all: bool,
    /// Begins another reporting group.
    pub new_group: bool,
    /// Time after its start that does not count, and by which it takes longer.
    pub ramp_ns: u64,
    /// Submissions for one doorbell, where a host takes time.
    pub batch: u16,
    /// Once all of its depth is in flight, it goes on when no more than that is.
    pub refill_at: Option<u16>,
    /// The depth that was asked for, where its engine submits one at a time.
    pub capped: Option<u16>,
    /// The file that it was written for.
    pub file: Option<String>,
    /// Writes are FUA.
    pub fua: bool,
    /// Begins only when all sections before it are done.
    pub after_others: bool,
    /// Goes by zones: writes to write pointers, and reads what was written.
    pub zoned: bool,
    /// Zones that each worker writes to at a time; `None`: any number.
    pub open_zones: Option<u32>,
    /// Its drive has keys: a place is a key ([`key_of`]), reads are retrieves, writes stores and
    /// trims deletes.
    pub keyed: bool,
}

/// The hash of the key that stands for a place: its first byte, in sixteen hexadecimal digits.
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
            rates: [None; 3],
            arrivals: Arrivals::Even,
            think_ns: 0,
            think_commands: 1,
            forgets: false,
            distribution: Distribution::Uniform,
            center: None,
            random_percent: [100; 3],
            seed: None,
            start_delay_ns: 0,
            flush_every: 0,
            flush_at_end: false,
            exit_all: false,
            new_group: false,
            ramp_ns: 0,
            batch: 1,
            refill_at: None,
            capped: None,
            file: None,
            fua: false,
            after_others: false,
            zoned: false,
            open_zones: None,
            keyed: false,
        }
    }
}

impl Job {
    /// The same on a drive with zones of `zone` bytes, where it goes by them.
    ///
    /// # Errors
    /// It counts zones, and does not go by them or the drive has none.
    pub(crate) fn on_zones(&self, zone: Option<u64>) -> Result<Self, Error> {
        let counted = [
            Some(self.offset),
            Some(self.offset_increment),
            self.size,
            self.io_size,
        ];
        let counted = counted.iter().any(|e| matches!(e, Some(Extent::Zones(_))));
        let zone = zone.filter(|_| self.zoned);
        if counted && zone.is_none() {
            return Err(Error::Job {
                name: self.name.clone(),
                why: "its size or offset counts zones: add zonemode=zbd, and a preset of kind zns"
                    .to_owned(),
            });
        }
        let of = |extent: Extent| extent.on_zones(zone.unwrap_or(0));
        Ok(Self {
            offset: of(self.offset),
            offset_increment: of(self.offset_increment),
            size: self.size.map(of),
            io_size: self.io_size.map(of),
            ..self.clone()
        })
    }

    /// Sizes of its commands of all kinds.
    pub(crate) fn all_sizes(&self) -> impl Iterator<Item = u32> {
        let sizes = self
            .kinds
            .iter()
            .filter_map(|kind| self.sizes.get(kind.index()));
        sizes.flatten().map(|(size, _)| *size)
    }

    /// The largest of its commands that carry data.
    pub(crate) fn largest(&self) -> u32 {
        let data = self.kinds.iter().filter(|kind| **kind != Kind::Trim);
        let sizes = data.filter_map(|kind| self.sizes.get(kind.index()));
        sizes.flatten().map(|(size, _)| *size).max().unwrap_or(0)
    }
}
