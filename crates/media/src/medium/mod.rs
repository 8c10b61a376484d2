//! A medium, and what it is made from.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::{fmt, io};

use driver::bus::place::{AnyBus, Place};
use memory::{Claims, MAX_CLAIMANTS, Pieces, Store};
use port::MediumTraits;
use port::set::CommandSet;

use crate::channel::{Channel, Kind, TimedChannel, Timing};
use crate::drive::{Drive, DriveCounts, DriveIdentity, Duty, Relay, ShownPage};
use crate::error::MediumError;
use crate::file::{Direct, FileCounts, FileIo, FileMedium, IoCounts};
use crate::journal::{self, StateError, Superblock};
use crate::keyvalue::{Dialect, KeyValueMedium};
use crate::null::{self, NullChannel};
use crate::ram::{self, RamChannel};
use crate::size::Bytes;
use crate::told::{ToldChannel, ToldSet};
use crate::trouble::Troubles;
use crate::zoned::{ZoneLoss, ZoneLossError, ZoneSpec, ZonedMedium};

mod look;
mod records;
mod timing;

pub use self::records::RECORD_MAX;

/// The most commands one channel has in flight.
pub const MAX_DEPTH: u16 = 4096;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumSpec {
    /// The kind, with what belongs to it.
    pub kind: MediumKind,
}

/// The kinds of media, each with what it needs. Sizes are bytes: positive multiples of 512.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// Discards writes, leaves read buffers untouched.
    Null {
        /// Bytes that it seems to have.
        size: u64,
    },
    /// As `Null`, and takes whatever its timing model can be asked: see [`crate::told`].
    Told {
        /// Bytes that it seems to have.
        size: u64,
    },
    /// Memory, taken as it is written to.
    Ram {
        /// Bytes.
        size: u64,
    },
    /// Zones over any other kind: what is in them is written in order and reset as a whole.
    Zoned {
        /// Where the bytes are.
        of: Box<MediumKind>,
        /// What zones there are.
        zones: ZoneSpec,
    },
    /// A regular file or a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// Its size. A file that does not exist is created with it, sparse; one that exists, and a
        /// device, must have exactly it. `None`: whatever is found.
        size: Option<u64>,
        /// Whether to go past the page cache.
        direct: Direct,
        /// How its operations reach the kernel and come back.
        io: FileIo,
    },
    /// A namespace of an NVMe drive, whose queues and memory hosts then share.
    Drive {
        /// Where it is.
        place: Place,
        /// The namespace's identifier; `None`: the first one that is active.
        nsid: Option<u32>,
        /// Log pages of its own that hosts may read: of those that controllers here do not have.
        shown: Vec<ShownPage>,
    },
    /// Keys and values in memory, taken as they are stored.
    KeyValue {
        /// The file that they are kept in; it is made where there is none. `None`: they are gone
        /// with the program.
        path: Option<PathBuf>,
        /// Bytes for values, in units of 512.
        size: u64,
        /// Most keys; `None`: one for each unit, or as many as the file was made for.
        keys: Option<u32>,
        /// What its hosts speak.
        dialect: Dialect,
    },
}

/// Where the data lives. Shared by all reactors; each opens a [`Channel`] of its own.
pub struct Medium {
    size: u64,
    backing: Backing,
    /// What commands of different channels hold of it.
    claims: Claims,
    /// A node of memory was chosen for it.
    is_placed: AtomicBool,
    /// The drive whose time it has; `None`: it is as fast as it is.
    timing: Arc<Timing>,
    /// Its zones, where it has some.
    zoned: Option<Arc<ZonedMedium>>,
}

enum Backing {
    Null,
    Told(Arc<ToldSet>),
    Ram(Arc<Store>),
    File(Arc<FileMedium>),
    Drive(Drive<AnyBus>),
    KeyValue(Arc<KeyValueMedium>),
}

impl Medium {
    /// Opens, or creates, what `spec` says.
    ///
    /// # Errors
    /// See [`MediumError`]; each says what to do.
    pub fn open(spec: &MediumSpec) -> Result<Arc<Medium>, MediumError> {
        Ok(Arc::new(Self::backed(spec)?))
    }

    /// What of it lets it have one channel at a time: timing, zones, keys. `None` where it has any
    /// number.
    #[must_use]
    pub fn why_single(&self) -> Option<&'static str> {
        if self.has_timing() {
            Some("timing")
        } else if self.zoned.is_some() {
            Some("zones")
        } else {
            matches!(self.backing, Backing::KeyValue(_)).then_some("keys")
        }
    }

    fn backed(spec: &MediumSpec) -> Result<Medium, MediumError> {
        let MediumKind::Zoned { of, zones } = &spec.kind else {
            return Self::plain(&spec.kind);
        };
        if let MediumKind::File {
            path,
            size,
            direct,
            io,
        } = &**of
        {
            let (file, zoned, size) = ZonedMedium::on_file(path, *size, (*direct, *io), zones)?;
            let mut medium = Self::of(size, Backing::File(Arc::new(file)));
            medium.zoned = Some(Arc::new(zoned));
            return Ok(medium);
        }
        let mut medium = Self::plain(of)?;
        if matches!(medium.backing, Backing::KeyValue(_) | Backing::Drive(_)) {
            let what = "they lie over null, ram or file";
            return Err(MediumError::Zones { what });
        }
        let deallocates = matches!(medium.backing, Backing::Ram(_));
        let zoned = ZonedMedium::new(zones, medium.size, deallocates)?;
        medium.zoned = Some(Arc::new(zoned));
        Ok(medium)
    }

    /// The bytes alone.
    fn plain(kind: &MediumKind) -> Result<Medium, MediumError> {
        let (size, backing) = match kind {
            MediumKind::Zoned { .. } => {
                let what = "zones cannot be nested";
                return Err(MediumError::Zones { what });
            }
            MediumKind::Null { size } => (checked(*size)?, Backing::Null),
            MediumKind::Told { size } => (checked(*size)?, Backing::Told(Arc::new(ToldSet))),
            MediumKind::Ram { size } => {
                let size = checked(*size)?;
                let store =
                    Store::new(size).map_err(|source| MediumError::Memory { size, source })?;
                (size, Backing::Ram(Arc::new(store)))
            }
            MediumKind::File {
                path,
                size,
                direct,
                io,
            } => {
                let file = open_bytes(path, *size, *direct, *io)?;
                (file.size(), Backing::File(Arc::new(file)))
            }
            MediumKind::Drive { place, nsid, shown } => {
                let drive = Drive::at(place, *nsid, shown);
                let drive = drive.map_err(|source| MediumError::Drive {
                    target: place.to_string(),
                    source,
                })?;
                (drive.size(), Backing::Drive(drive))
            }
            MediumKind::KeyValue {
                path,
                size,
                keys,
                dialect,
            } => {
                let size = checked(*size)?;
                let medium = match path {
                    Some(path) => KeyValueMedium::on_file(path, size, *keys, *dialect)?,
                    None => {
                        let keys = keys.unwrap_or_else(|| KeyValueMedium::keys_of(size));
                        KeyValueMedium::open(size, keys, *dialect)?
                    }
                };
                (size, Backing::KeyValue(Arc::new(medium)))
            }
        };
        Ok(Self::of(size, backing))
    }

    fn of(size: u64, backing: Backing) -> Medium {
        Medium {
            size,
            backing,
            claims: Claims::new(),
            is_placed: AtomicBool::new(false),
            timing: Arc::default(),
            zoned: None,
        }
    }

    /// Bytes; never changes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its name in configurations: `null`, `ram`, `file`, `drive` or `keyvalue`; and `told`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.backing {
            Backing::Null => "null",
            Backing::Told(_) => "told",
            Backing::Ram(_) => "ram",
            Backing::File(_) => "file",
            Backing::Drive(_) => "drive",
            Backing::KeyValue(_) => "keyvalue",
        }
    }

    /// What it can do.
    #[must_use]
    pub fn traits(&self) -> MediumTraits {
        let traits = match &self.backing {
            Backing::Null | Backing::Told(_) => null::TRAITS,
            Backing::Ram(_) => ram::TRAITS,
            Backing::File(file) => file.traits(),
            Backing::Drive(drive) => drive.traits(),
            Backing::KeyValue(medium) => medium.traits(),
        };
        match self.zoned {
            // What is in a zone goes when that is reset.
            Some(_) => MediumTraits {
                deallocate: false,
                ..traits
            },
            None => traits,
        }
    }

    /// Asks the device or file system again whether it takes writes: for who has time, now and
    /// then. Whether that is another answer than before; [`Medium::traits`] has it.
    pub fn look_read_only(&self) -> bool {
        match &self.backing {
            Backing::File(file) => file.look_read_only(),
            _ => false,
        }
    }

    /// What tells the drive from others; `None` of other media.
    #[must_use]
    pub fn drive(&self) -> Option<DriveIdentity<'_>> {
        match &self.backing {
            Backing::Drive(drive) => Some(drive.identity()),
            _ => None,
        }
    }

    /// Has a part of a file or a drive, in multiples of 4096 bytes, read as zeros, on stable
    /// storage: for who has time, where no host has that part.
    ///
    /// # Errors
    /// It could not be done, or not all of it; it is another kind of medium.
    pub fn erase(&self, offset: u64, len: u64) -> io::Result<()> {
        match &self.backing {
            Backing::File(file) => file.erase(offset, len),
            Backing::Drive(drive) => drive.erase(offset, len),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The commands that namespaces on it have beside, or instead of, the NVM command set's;
    /// `None`: just those.
    #[must_use]
    pub fn set(&self) -> Option<Arc<dyn CommandSet>> {
        if let Some(zoned) = &self.zoned {
            return Some(zoned.set());
        }
        match &self.backing {
            Backing::KeyValue(medium) => Some(medium.set()),
            Backing::Told(set) => Some(Arc::clone(set) as Arc<dyn CommandSet>),
            Backing::Null | Backing::Ram(_) | Backing::File(_) | Backing::Drive(_) => None,
        }
    }

    /// The smallest LBA size, in bytes, that a namespace on it may have. A request that is no
    /// multiple of it, or does not start at one, is not done (`Cause::Unsupported`). 512 unless a
    /// file was opened with [`Direct::On`] on a device of larger blocks, or a drive has such.
    #[must_use]
    pub fn min_lba_bytes(&self) -> u32 {
        match &self.backing {
            Backing::Null | Backing::Told(_) | Backing::Ram(_) | Backing::KeyValue(_) => 512,
            Backing::File(file) => file.min_lba_bytes(),
            Backing::Drive(drive) => drive.min_lba_bytes(),
        }
    }

    /// The largest LBA size, in bytes, of which it promises that a block is written wholly or not
    /// at all when the power fails (AWUPF): 4096 unless a drive promises less. Of a file nothing is
    /// known: its disk may tear what is larger than a sector of its.
    #[must_use]
    pub fn max_lba_bytes(&self) -> u32 {
        match &self.backing {
            Backing::Null
            | Backing::Told(_)
            | Backing::Ram(_)
            | Backing::KeyValue(_)
            | Backing::File(_) => 4096,
            Backing::Drive(drive) => drive.max_lba_bytes(),
        }
    }

    /// One line for the log: what it is, how large, and how it is accessed and why.
    #[must_use]
    pub fn describe(&self) -> String {
        let bytes = self.describe_bytes();
        match &self.zoned {
            Some(zoned) => format!("{bytes}; {}", zoned.describe()),
            None => bytes,
        }
    }

    fn describe_bytes(&self) -> String {
        match &self.backing {
            Backing::Null | Backing::Told(_) => {
                format!(
                    "{}, {}: writes are discarded",
                    self.kind(),
                    Bytes(self.size)
                )
            }
            Backing::Ram(store) => ram::describe(store),
            Backing::File(file) => file.describe(),
            Backing::Drive(drive) => drive.describe(),
            Backing::KeyValue(medium) => medium.describe(),
        }
    }

    /// How many commands of all its channels used registered memory of their hosts, as of the last
    /// [`Channel::tend`] of each. `None` where none is to be registered.
    #[must_use]
    pub fn io_counts(&self) -> Option<IoCounts> {
        match &self.backing {
            Backing::Null
            | Backing::Told(_)
            | Backing::Drive(_)
            | Backing::Ram(_)
            | Backing::KeyValue(_) => None,
            Backing::File(file) => file.io_counts(),
        }
    }

    /// What all its channels have had a file do, as of the last [`Channel::tend`] of each; `None`
    /// where it is no file.
    #[must_use]
    pub fn file_counts(&self) -> Option<FileCounts> {
        match &self.backing {
            Backing::File(file) => Some(file.counts()),
            _ => None,
        }
    }

    /// Failures of its backing, by cause; `None` where it is memory, which cannot fail.
    #[must_use]
    pub fn troubles(&self) -> Option<&Arc<Troubles>> {
        match &self.backing {
            Backing::Null | Backing::Told(_) | Backing::Ram(_) => None,
            Backing::File(file) => Some(file.troubles()),
            Backing::Drive(drive) => Some(drive.troubles()),
            Backing::KeyValue(medium) => medium.file().map(FileMedium::troubles),
        }
    }

    /// What became of commands at a drive, and of the drive, as of the last [`Channel::tend`] of
    /// each channel; `None` where it is none.
    #[must_use]
    pub fn drive_counts(&self) -> Option<DriveCounts> {
        match &self.backing {
            Backing::Drive(drive) => Some(drive.counts()),
            _ => None,
        }
    }

    /// A handle for one reactor, with at most `depth` commands in flight (between 1 and
    /// [`MAX_DEPTH`]). It may be made on any thread; it belongs to the one that first submits.
    ///
    /// # Errors
    /// The system's, for a file where io_uring cannot be had; and there are [`MAX_CLAIMANTS`]
    /// channels at most, of a medium with timing one.
    pub fn channel(self: &Arc<Self>, depth: u16) -> io::Result<Channel> {
        let depth = depth.clamp(1, MAX_DEPTH);
        if !self.timing.is_there() {
            return self.with_zones(depth);
        }
        let model = self.timing.lend().ok_or_else(|| {
            io::Error::other(
                "a medium with a timing model is served by one reactor: give all controllers that use it the same `reactor`",
            )
        })?;
        let inner = self.with_zones(depth)?;
        let timed = TimedChannel::new(inner, model, depth);
        Ok(Channel(Kind::Timed(Box::new(timed))))
    }

    /// A handle for a reactor that does a part of what there is to do for completions of channels
    /// of a drive that are made after it.
    ///
    /// # Errors
    /// It is no drive; the system has no descriptor.
    pub fn relay(&self, duty: Duty) -> io::Result<Relay<AnyBus>> {
        match &self.backing {
            Backing::Drive(drive) => drive.relay(duty),
            _ => Err(io::Error::other(
                "only a drive has completion queues that another reactor may poll",
            )),
        }
    }

    /// As [`Channel::lose_zone`], while no channel is open.
    ///
    /// # Errors
    /// See there; and that a channel has the zones.
    pub fn lose_zone(&self, zone: u32, to: ZoneLoss) -> Result<u64, ZoneLossError> {
        let zoned = self.zoned.as_ref().ok_or(ZoneLossError::NoZones)?;
        zoned.lose(zone, to)
    }

    /// Its pairs, where it has some.
    pub(crate) fn key_value(&self) -> Option<&KeyValueMedium> {
        match &self.backing {
            Backing::KeyValue(medium) => Some(medium),
            _ => None,
        }
    }

    /// Its zones, where it has some.
    pub(crate) fn zones(&self) -> Option<&ZonedMedium> {
        self.zoned.as_deref()
    }

    /// The drive whose time it has.
    pub(crate) fn timing(&self) -> &Timing {
        &self.timing
    }

    /// A handle without the time.
    fn with_zones(self: &Arc<Self>, depth: u16) -> io::Result<Channel> {
        let below = self.bytes(depth)?;
        let Some(zoned) = &self.zoned else {
            return Ok(below);
        };
        let channel = zoned.channel(below, (depth, self.slice()))?;
        Ok(Channel(Kind::Zoned(Box::new(channel))))
    }

    /// Bytes that are copied at a time.
    fn slice(&self) -> u32 {
        if self.has_timing() {
            ram::TIMED_SLICE
        } else {
            ram::SLICE
        }
    }

    /// A handle on the bytes alone.
    fn bytes(self: &Arc<Self>, depth: u16) -> io::Result<Channel> {
        let claimant = || {
            let claimant = self.claims.claimant();
            claimant.ok_or_else(|| {
                io::Error::other(format!(
                    "a medium has at most {MAX_CLAIMANTS} channels: let fewer reactors use it"
                ))
            })
        };
        let slice = self.slice();
        Ok(Channel(match &self.backing {
            Backing::Null => Kind::Null(NullChannel),
            Backing::Told(_) => Kind::Told(Box::new(ToldChannel::new())),
            Backing::Ram(store) => {
                let store = Arc::clone(store);
                Kind::Ram(Box::new(RamChannel::new(store, claimant()?, slice)))
            }
            Backing::File(file) => {
                let slice = self.has_timing().then_some(slice);
                Kind::File(Box::new(file.channel(depth, claimant()?, slice)?))
            }
            Backing::Drive(drive) => Kind::Drive(Box::new(drive.channel(depth, claimant()?)?)),
            Backing::KeyValue(medium) => {
                let channel = medium.channel((depth, slice), claimant)?;
                Kind::KeyValue(Box::new(channel))
            }
        }))
    }

    /// Has memory of the medium that is taken from now on come from a node of memory, as long as
    /// that has some: for a reactor there that is about to use it. The first one has its wish. Of
    /// no meaning for media that are no memory.
    ///
    /// # Errors
    /// The system's: it has no such node.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        match &self.backing {
            Backing::Ram(store) if !self.is_placed.swap(true, Relaxed) => store.prefer_node(node),
            _ => Ok(()),
        }
    }

    /// The memory that holds its bytes; `None` where they are elsewhere, or it has keys and values.
    #[must_use]
    pub fn memory(&self) -> Option<&Store> {
        match &self.backing {
            Backing::Ram(store) => Some(store),
            _ => None,
        }
    }

    /// Its memory, to be looked after; `None` where it has none.
    #[must_use]
    pub fn pieces(&self) -> Option<Arc<dyn Pieces>> {
        match &self.backing {
            Backing::Ram(store) => Some(Arc::clone(store) as Arc<dyn Pieces>),
            Backing::Null
            | Backing::Told(_)
            | Backing::Drive(_)
            | Backing::File(_)
            | Backing::KeyValue(_) => None,
        }
    }

    /// Blocks until everything that has completed is on the media; for a clean stop.
    ///
    /// # Errors
    /// The system's, and that of a flush that failed earlier: then data is lost.
    pub fn sync(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Null | Backing::Told(_) | Backing::Ram(_) => Ok(()),
            Backing::KeyValue(medium) => medium.finish(),
            Backing::Drive(drive) => drive.sync(),
            Backing::File(file) => {
                self.zoned.as_ref().map_or(Ok(()), |zoned| zoned.finish())?;
                file.sync()
            }
        }
    }
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Medium({})", self.describe())
    }
}

/// Opens a file that has bytes and nothing else.
fn open_bytes(
    path: &Path,
    size: Option<u64>,
    direct: Direct,
    io: FileIo,
) -> Result<FileMedium, MediumError> {
    match FileMedium::open(path, size, direct, io) {
        Ok(file) => {
            refuse_state(&file)?;
            Ok(file)
        }
        // The size of what a file has beside its log is another one than the file's: that is no
        // reason to correct it.
        Err(differs @ MediumError::SizeMismatch { .. }) => {
            if let Ok(file) = FileMedium::open(path, None, direct, io) {
                refuse_state(&file)?;
            }
            Err(differs)
        }
        Err(error) => Err(error),
    }
}

/// Refuses a file that has more than bytes, also where that can no longer be read: a host would
/// write over it.
fn refuse_state(file: &FileMedium) -> Result<(), MediumError> {
    let failed = |source: StateError| MediumError::State {
        path: file.path().into(),
        source,
    };
    let storage = file.storage().map_err(|error| failed(error.into()))?;
    let Some(storage) = storage else {
        return Ok(());
    };
    let superblock = match Superblock::read(&storage, file.size()) {
        Ok(superblock) => superblock,
        Err(StateError::NotOurs) => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    let (what, remedy) = match superblock.shape.kind {
        journal::Kind::Zoned => ("zones", "add [media.zoned]"),
        journal::Kind::KeyValue => ("keys and values", "write kind = \"keyvalue\""),
    };
    Err(failed(StateError::IsOurs { what, remedy }))
}

fn checked(size: u64) -> Result<u64, MediumError> {
    if size == 0 || !size.is_multiple_of(512) {
        return Err(MediumError::Size { size });
    }
    Ok(size)
}
