//! Media and their specifications.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::{fmt, io};

use driver::bus::place::AnyBus;
use memory::{Claims, Store};
use port::MediumTraits;
use port::set::CommandSet;

use crate::channel::Timing;
use crate::drive::{Drive, DriveAddress, DriveCounts, DriveIdentity, Duty, Relay, ShownPage};
use crate::error::MediumError;
use crate::file::{Direct, FileCounts, FileIo, FileMedium, IoCounts};
use crate::journal::{self, StateError, Superblock};
use crate::kept::Kept;
use crate::keyvalue::{Dialect, KeyValueMedium, default_keys};
use crate::null;
use crate::ram::{self, Preallocation};
use crate::scripted::ScriptedSet;
use crate::size::Bytes;
use crate::trouble::Troubles;
use crate::vendor::{Vendor, VendorMedium};
use crate::zoned::{ZoneLoss, ZoneLossError, ZoneSpec, ZonedMedium};

mod channels;
mod custody;
mod look;
mod pages;
mod records;
mod timing;

pub use self::records::RECORD_MAX;

/// Maximum number of commands in flight of one channel.
pub const MAX_DEPTH: u16 = 4096;

/// Specification of a medium.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumSpec {
    /// The kind and its parameters.
    pub kind: MediumKind,
}

/// The kinds of media with their parameters. Sizes are in bytes: positive multiples of 512.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// Discards writes, and leaves read buffers unchanged.
    Null {
        /// Reported size in bytes.
        size: u64,
    },
    /// Like `Null`, and accepts every operation of its timing model: see [`crate::scripted`].
    Scripted {
        /// Reported size in bytes.
        size: u64,
    },
    /// Memory, allocated as it is written to.
    Ram {
        /// Size in bytes.
        size: u64,
    },
    /// Zones over any other kind: a zone is written in order and reset as a whole.
    Zoned {
        /// The medium that stores the bytes.
        of: Box<MediumKind>,
        /// Parameters of the zones.
        zones: ZoneSpec,
    },
    /// Vendor commands over null, ram or file.
    Vendor {
        /// The medium that executes all other commands.
        of: Box<MediumKind>,
        /// The commands.
        commands: Vendor,
    },
    /// A regular file or a block device.
    File {
        /// Its path.
        path: PathBuf,
        /// Its size. A file that does not exist is created sparse with this size; an existing file
        /// or device must have exactly this size. `None`: any size.
        size: Option<u64>,
        /// Whether to bypass the page cache.
        direct: Direct,
        /// Submission and completion of its operations.
        io: FileIo,
    },
    /// A namespace of an NVMe drive, whose queues and memory are then shared between hosts.
    Drive {
        /// Address of the drive.
        place: DriveAddress,
        /// Namespace identifier; `None`: the first active namespace.
        nsid: Option<u32>,
        /// Vendor log pages of the drive that hosts may read, unless our controllers have a page
        /// with that number.
        shown: Vec<ShownPage>,
    },
    /// Keys and values in memory, allocated as they are stored.
    KeyValue {
        /// The file in which they are kept, created if it does not exist. `None`: they are not
        /// persistent.
        path: Option<PathBuf>,
        /// Bytes for values, in units of 512.
        size: u64,
        /// Maximum number of keys; `None`: one for each unit, or the number that the file was
        /// created for.
        keys: Option<u32>,
        /// Command set of its hosts.
        dialect: Dialect,
    },
}

/// Where the data lives. Shared by all reactors; each opens a [`Channel`] of its own.
pub struct Medium {
    size: u64,
    backing: Backing,
    /// Claims of commands on different channels.
    claims: Claims,
    /// Whether a NUMA node was chosen for it.
    is_placed: AtomicBool,
    /// Its allocation in advance, if that was asked for.
    preallocation: OnceLock<Preallocation>,
    /// Its timing model; empty if it runs at full speed.
    timing: Arc<Timing>,
    /// Its zones, if it has any.
    zoned: Option<Arc<ZonedMedium>>,
    /// Its vendor commands, if it has any; without zones.
    vendor: Option<Arc<VendorMedium>>,
}

enum Backing {
    Null,
    Scripted(Arc<ScriptedSet>),
    Ram(Arc<Store>),
    File(Arc<FileMedium>),
    Drive(Drive<AnyBus>),
    KeyValue(Arc<KeyValueMedium>),
}

impl Medium {
    /// Opens or creates the medium of `spec`.
    ///
    /// # Errors
    /// See [`MediumError`]; each names the remedy.
    pub fn open(spec: &MediumSpec) -> Result<Arc<Medium>, MediumError> {
        Ok(Arc::new(Self::backed(spec, [Kept::No, Kept::No])?))
    }

    /// The feature that limits it to one channel at a time: timing, zones, vendor commands, or
    /// keys. `None` without a limit.
    #[must_use]
    pub fn why_single(&self) -> Option<&'static str> {
        if self.has_timing() {
            Some("timing")
        } else if self.zoned.is_some() {
            Some("zones")
        } else if self.vendor.is_some() {
            Some("vendor commands")
        } else {
            matches!(self.backing, Backing::KeyValue(_)).then_some("keys")
        }
    }

    /// Opens the medium, with what it has in memory: its bytes, and the state of its zones.
    fn backed(spec: &MediumSpec, [memory, zones_kept]: [Kept; 2]) -> Result<Medium, MediumError> {
        let (of, zones) = match &spec.kind {
            MediumKind::Zoned { of, zones } => (of, zones),
            MediumKind::Vendor { of, commands } => {
                let mut medium = Self::plain(of, memory)?;
                if matches!(medium.backing, Backing::KeyValue(_) | Backing::Drive(_)) {
                    return Err(MediumError::Vendor);
                }
                let vendor = VendorMedium::new(*commands, None);
                let vendor = vendor.map_err(|source| MediumError::VendorState { source })?;
                medium.vendor = Some(Arc::new(vendor));
                return Ok(medium);
            }
            plain => return Self::plain(plain, memory),
        };
        if let MediumKind::File {
            path,
            size,
            direct,
            io,
        } = &**of
        {
            let (file, zoned, size) =
                ZonedMedium::on_file(path, *size, (*direct, *io), (zones, zones_kept))?;
            let mut medium = Self::of(size, Backing::File(Arc::new(file)));
            medium.zoned = Some(Arc::new(zoned));
            return Ok(medium);
        }
        let mut medium = Self::plain(of, memory)?;
        if matches!(medium.backing, Backing::KeyValue(_) | Backing::Drive(_)) {
            let what = "they lie over null, ram or file";
            return Err(MediumError::Zones { what });
        }
        let deallocates = matches!(medium.backing, Backing::Ram(_));
        let zoned = ZonedMedium::new((zones, zones_kept), medium.size, deallocates)?;
        if let Backing::Ram(store) = &medium.backing {
            zoned.sweep(store);
        }
        medium.zoned = Some(Arc::new(zoned));
        Ok(medium)
    }

    /// Opens the medium without zones and timing.
    fn plain(kind: &MediumKind, memory: Kept) -> Result<Medium, MediumError> {
        let (size, backing) = match kind {
            MediumKind::Zoned { .. } => {
                let what = "zones cannot be nested";
                return Err(MediumError::Zones { what });
            }
            MediumKind::Vendor { .. } => return Err(MediumError::Vendor),
            MediumKind::Null { size } => (checked(*size)?, Backing::Null),
            MediumKind::Scripted { size } => {
                (checked(*size)?, Backing::Scripted(Arc::new(ScriptedSet)))
            }
            MediumKind::Ram { size } => {
                let size = checked(*size)?;
                let store = match memory {
                    Kept::No => Store::new(size),
                    Kept::New => Store::shared(size),
                    Kept::Of(file) => Store::adopt(file, size),
                };
                let store = store.map_err(|source| MediumError::Memory { size, source })?;
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
                let drive = Drive::at(place, *nsid, shown, None);
                let drive = drive.map_err(|source| MediumError::Drive {
                    target: place.0.to_string(),
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
                let shape = (size, *keys);
                let medium = match (path, memory) {
                    (Some(path), kept) => {
                        let outlives = !matches!(kept, Kept::No);
                        KeyValueMedium::on_file(path, shape, *dialect, outlives)?
                    }
                    (None, Kept::New) => KeyValueMedium::outliving(None, shape, *dialect)?,
                    (None, Kept::Of(file)) => {
                        KeyValueMedium::outliving(Some(file), shape, *dialect)?
                    }
                    (None, Kept::No) => {
                        let keys = keys.unwrap_or_else(|| default_keys(size));
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
            preallocation: OnceLock::new(),
            timing: Arc::default(),
            zoned: None,
            vendor: None,
        }
    }

    /// Size in bytes; never changes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its name in configurations: `null`, `ram`, `file`, `drive` or `keyvalue`; also `scripted`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.backing {
            Backing::Null => "null",
            Backing::Scripted(_) => "scripted",
            Backing::Ram(_) => "ram",
            Backing::File(_) => "file",
            Backing::Drive(_) => "drive",
            Backing::KeyValue(_) => "keyvalue",
        }
    }

    /// Its capabilities.
    #[must_use]
    pub fn traits(&self) -> MediumTraits {
        let traits = match &self.backing {
            Backing::Null | Backing::Scripted(_) => null::TRAITS,
            Backing::Ram(store) => ram::traits(store),
            Backing::File(file) => file.traits(),
            Backing::Drive(drive) => drive.traits(),
            Backing::KeyValue(medium) => medium.traits(),
        };
        match &self.zoned {
            // A reset discards the contents of a zone.
            Some(zoned) => MediumTraits {
                deallocate: false,
                notes: zoned.kept().is_some(),
                allocation: false,
                erases: false,
                ..traits
            },
            None => MediumTraits {
                allocation: traits.allocation && self.vendor.is_none(),
                ..traits
            },
        }
    }

    /// Queries the device or file system again whether it accepts writes. May block. Returns
    /// whether the answer has changed; [`Medium::traits`] has it.
    pub fn look_read_only(&self) -> bool {
        match &self.backing {
            Backing::File(file) => file.look_read_only(),
            _ => false,
        }
    }

    /// Identity of the drive; `None` for other media.
    #[must_use]
    pub fn drive(&self) -> Option<DriveIdentity<'_>> {
        match &self.backing {
            Backing::Drive(drive) => Some(drive.identity()),
            _ => None,
        }
    }

    /// State that another process of this server needs to continue with the drive
    /// ([`Known::from_bytes`]); `None` for other media.
    #[must_use]
    pub fn known_drive(&self) -> Option<Vec<u8>> {
        match &self.backing {
            Backing::Drive(drive) => Some(drive.to_bytes()),
            _ => None,
        }
    }

    /// Zeroes a part of a file or drive, in multiples of 4096 bytes, durably. Blocks; no host may
    /// use that part.
    ///
    /// # Errors
    /// Zeroing failed, at least partly; or the medium is of another kind.
    pub fn erase(&self, offset: u64, len: u64) -> io::Result<()> {
        match &self.backing {
            Backing::File(file) => file.erase(offset, len),
            Backing::Drive(drive) => drive.erase(offset, len),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Commands of its namespaces in addition to, or instead of, the NVM command set; `None` for
    /// the NVM command set alone.
    #[must_use]
    pub fn set(&self) -> Option<Arc<dyn CommandSet>> {
        if let Some(zoned) = &self.zoned {
            return Some(zoned.set());
        }
        if let Some(vendor) = &self.vendor {
            return Some(vendor.set());
        }
        match &self.backing {
            Backing::KeyValue(medium) => Some(medium.set()),
            Backing::Scripted(set) => Some(Arc::clone(set) as Arc<dyn CommandSet>),
            Backing::Null | Backing::Ram(_) | Backing::File(_) | Backing::Drive(_) => None,
        }
    }

    /// The smallest LBA size, in bytes, of its namespaces. A request that is not a multiple of it,
    /// or is not aligned to it, fails (`Cause::Unsupported`). 512 unless a file was opened with
    /// [`Direct::On`] on a device with larger blocks, or a drive has such blocks.
    #[must_use]
    pub fn min_lba_bytes(&self) -> u32 {
        match &self.backing {
            Backing::Null | Backing::Scripted(_) | Backing::Ram(_) | Backing::KeyValue(_) => 512,
            Backing::File(file) => file.min_lba_bytes(),
            Backing::Drive(drive) => drive.min_lba_bytes(),
        }
    }

    /// The largest LBA size, in bytes, for which it promises that a block is written completely or
    /// not at all across a power failure (AWUPF): 4096 unless a drive promises less. For a file
    /// nothing is known: its disk may tear anything larger than one of its sectors.
    #[must_use]
    pub fn max_lba_bytes(&self) -> u32 {
        match &self.backing {
            Backing::Null
            | Backing::Scripted(_)
            | Backing::Ram(_)
            | Backing::KeyValue(_)
            | Backing::File(_) => 4096,
            Backing::Drive(drive) => drive.max_lba_bytes(),
        }
    }

    /// Description in one line, for the log: kind, size, and access mode with the reason.
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
            Backing::Null | Backing::Scripted(_) => {
                format!(
                    "{}, {}: writes are discarded",
                    self.kind(),
                    Bytes(self.size)
                )
            }
            Backing::Ram(store) => ram::describe(store, self.preallocated()),
            Backing::File(file) => file.describe(),
            Backing::Drive(drive) => drive.describe(),
            Backing::KeyValue(medium) => medium.describe(),
        }
    }

    /// Commands of all channels by use of registered host memory, as of the last [`Channel::tend`]
    /// of each. `None` if registration is off.
    #[must_use]
    pub fn io_counts(&self) -> Option<IoCounts> {
        match &self.backing {
            Backing::Null
            | Backing::Scripted(_)
            | Backing::Drive(_)
            | Backing::Ram(_)
            | Backing::KeyValue(_) => None,
            Backing::File(file) => file.io_counts(),
        }
    }

    /// Work of all channels on a file, as of the last [`Channel::tend`] of each; `None` for other
    /// media.
    #[must_use]
    pub fn file_counts(&self) -> Option<FileCounts> {
        match &self.backing {
            Backing::File(file) => Some(file.counts()),
            _ => None,
        }
    }

    /// Whether its bytes outlive the machine's next start: it is no memory, nor a file in memory.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        let is_lasting = |file: &FileMedium| !file.is_in_memory();
        match &self.backing {
            Backing::Null | Backing::Scripted(_) | Backing::Ram(_) => false,
            Backing::File(file) => is_lasting(file),
            Backing::Drive(_) => true,
            Backing::KeyValue(medium) => medium.file().is_some_and(is_lasting),
        }
    }

    /// Whether its file did not exist before.
    #[must_use]
    pub fn is_new(&self) -> bool {
        match &self.backing {
            Backing::File(file) => file.is_new(),
            Backing::KeyValue(medium) => medium.file().is_some_and(FileMedium::is_new),
            Backing::Null | Backing::Scripted(_) | Backing::Ram(_) | Backing::Drive(_) => false,
        }
    }

    /// Failures of its backing, by cause; `None` for memory, which cannot fail.
    #[must_use]
    pub fn troubles(&self) -> Option<&Arc<Troubles>> {
        match &self.backing {
            Backing::Null | Backing::Scripted(_) | Backing::Ram(_) => None,
            Backing::File(file) => Some(file.troubles()),
            Backing::Drive(drive) => Some(drive.troubles()),
            Backing::KeyValue(medium) => medium.file().map(FileMedium::troubles),
        }
    }

    /// Counters of a drive, as of the last [`Channel::tend`] of each channel; `None` for other
    /// media.
    #[must_use]
    pub fn drive_counts(&self) -> Option<DriveCounts> {
        match &self.backing {
            Backing::Drive(drive) => Some(drive.counts()),
            _ => None,
        }
    }

    /// Creates a handle for a reactor that performs one duty for completions of a drive's channels
    /// opened later.
    ///
    /// # Errors
    /// The medium is not a drive; the system has no descriptor.
    pub fn relay(&self, duty: Duty) -> io::Result<Relay<AnyBus>> {
        match &self.backing {
            Backing::Drive(drive) => drive.relay(duty),
            _ => Err(io::Error::other(
                "only a drive has completion queues that another reactor may poll",
            )),
        }
    }

    /// Like [`Channel::lose_zone`], while no channel is open.
    ///
    /// # Errors
    /// Those of that function; and a channel has the zones.
    pub fn lose_zone(&self, zone: u32, to: ZoneLoss) -> Result<u64, ZoneLossError> {
        let zoned = self.zoned.as_ref().ok_or(ZoneLossError::NoZones)?;
        zoned.lose(zone, to)
    }

    /// Its pairs, if it has any.
    pub(crate) fn key_value(&self) -> Option<&KeyValueMedium> {
        match &self.backing {
            Backing::KeyValue(medium) => Some(medium),
            _ => None,
        }
    }

    /// Its zones, if it has any.
    pub(crate) fn zones(&self) -> Option<&ZonedMedium> {
        self.zoned.as_deref()
    }

    /// Its timing.
    pub(crate) fn timing(&self) -> &Timing {
        &self.timing
    }

    /// Blocks until everything completed is on the media; for a clean stop.
    ///
    /// # Errors
    /// The system's, and that of an earlier failed flush: then data is lost.
    pub fn sync(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Null | Backing::Scripted(_) | Backing::Ram(_) => Ok(()),
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

/// Opens a file that has only bytes.
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
        // If the file has a state, its size differs from that of its bytes, and correcting the size
        // would be wrong advice.
        Err(differs @ MediumError::SizeMismatch { .. }) => {
            if let Ok(file) = FileMedium::open(path, None, direct, io) {
                refuse_state(&file)?;
            }
            Err(differs)
        }
        Err(error) => Err(error),
    }
}

/// Rejects a file with a state, even an unreadable one: a host would overwrite it.
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
