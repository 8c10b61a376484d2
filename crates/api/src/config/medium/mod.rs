//! `[[media]]`: storage behind namespaces.
//!
//! A medium is written as one flat table ([`MediumKeys`]), and is a value of its kind
//! ([`Medium`]): a file has a path, a drive has none. Errors between keys are kept with the value
//! and reported by [`Medium::validate`], together with the errors of other objects.

mod check;
mod keys;
mod vendor;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use driver::bus::place::Place as Target;
pub use keys::MediumKeys;
use serde::{Deserialize, Serialize};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
pub use vendor::Vendor;

use super::{AdminAllow, MediumKind, Read, Size, Span, Timing, Zoned};

/// Command set of a key-value medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// NVMe Key Value command set.
    #[default]
    Nvme,
    /// Vendor commands of Samsung's key-value drives.
    Samsung,
}

/// Direct I/O mode of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direct {
    /// Use `O_DIRECT` where it serves blocks of 512 bytes, else the page cache.
    #[default]
    Auto,
    /// Require `O_DIRECT`; opening fails without it.
    On,
    /// Use the page cache.
    Off,
}

/// Medium: storage behind namespaces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "MediumKeys", into = "MediumKeys")]
pub struct Medium {
    /// Name of the medium.
    pub name: String,
    /// Timing model that delays the completion of commands.
    pub timing: Option<Timing>,
    /// Vendor commands of its namespaces.
    pub vendor: Option<Vendor>,
    /// Where the data is.
    pub backing: Backing,
    /// Errors of the keys that it was written with; empty for one that was made here.
    faults: Vec<String>,
    /// Whether keys at their default are written, too.
    in_full: bool,
}

/// Where the data of a medium is.
#[derive(Clone, Debug, PartialEq)]
pub enum Backing {
    /// Nowhere: writes are discarded.
    Null {
        /// Size.
        size: Size,
        /// Zones.
        zoned: Option<Zoned>,
    },
    /// Memory of the server process.
    Ram {
        /// Size.
        size: Size,
        /// File in which the medium is saved when the server stops.
        state: Option<PathBuf>,
        /// Whether all memory is allocated when the medium is made.
        preallocate: bool,
        /// Zones.
        zoned: Option<Zoned>,
    },
    /// A regular file or block device.
    File(File),
    /// A namespace of an NVMe drive.
    Drive(Drive),
    /// Keys and values.
    KeyValue(KeyValue),
}

/// A regular file or block device.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its path.
    pub path: PathBuf,
    /// Size; `None` for that of the existing file.
    pub size: Option<Size>,
    /// Direct I/O.
    pub direct: Direct,
    /// Whether a polling kernel thread submits.
    pub poll_submissions: bool,
    /// Whether the device is polled for completions.
    pub poll_completions: bool,
    /// Whether hosts' memory is registered with the kernel.
    pub register_memory: bool,
    /// Whether it is opened read-only, and its namespaces are write protected.
    pub read_only: bool,
    /// Zones.
    pub zoned: Option<Zoned>,
}

/// A namespace of an NVMe drive.
#[derive(Clone, Debug, PartialEq)]
pub struct Drive {
    /// Address of the drive.
    pub target: Target,
    /// Host NQN of the server, for a drive over NVMe/TCP; `None`: a random one.
    pub hostnqn: Option<String>,
    /// File with the secret of that host.
    pub dhchap_key: Option<PathBuf>,
    /// File with the secret of the drive's controller.
    pub dhchap_ctrl_key: Option<PathBuf>,
    /// File with that host's key of TLS.
    pub tls_key: Option<PathBuf>,
    /// Whether a key of TLS is made by DH-HMAC-CHAP.
    pub concat: bool,
    /// Whether headers have digests over NVMe/TCP.
    pub header_digest: bool,
    /// Whether data have digests over NVMe/TCP.
    pub data_digest: bool,
    /// Namespace identifier; `None` for the first active namespace.
    pub nsid: Option<u32>,
    /// Vendor log pages that hosts may read.
    pub admin_allow: Vec<AdminAllow>,
    /// Write size that is kept atomic across a power failure, where it is more than the drive
    /// reports.
    pub awupf: Option<Size>,
    /// Reactor that polls all completion queues; `None`: each polls its own.
    pub completions: Option<usize>,
    /// Reactor that writes the head doorbells; `None`: that of `completions`.
    pub heads: Option<usize>,
}

/// Keys and values.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue {
    /// Size.
    pub size: Size,
    /// Maximum number of keys; `None`: one for each 512 bytes.
    pub max_keys: Option<u32>,
    /// Command set.
    pub dialect: Dialect,
    /// Its persistent part.
    pub kept: Kept,
}

/// Persistence of keys and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    No,
    /// All of it, in a file that is written when the server stops.
    Image(PathBuf),
    /// All of it, in a log of every change.
    Log(PathBuf),
}

impl File {
    /// A file with everything else at its default.
    pub fn new(path: PathBuf, size: Option<Size>) -> Self {
        File {
            path,
            size,
            direct: Direct::default(),
            poll_submissions: false,
            poll_completions: false,
            register_memory: true,
            read_only: false,
            zoned: None,
        }
    }
}

impl Medium {
    /// A medium without a timing model.
    pub fn new(name: String, backing: Backing) -> Self {
        Medium {
            name,
            timing: None,
            vendor: None,
            backing,
            faults: Vec::new(),
            in_full: false,
        }
    }

    /// A medium in memory that is lost at the end.
    pub fn ram(name: String, size: Size) -> Self {
        let backing = Backing::Ram {
            size,
            state: None,
            preallocate: false,
            zoned: None,
        };
        Medium::new(name, backing)
    }

    /// A medium without data.
    pub fn null(name: String, size: Size) -> Self {
        Medium::new(name, Backing::Null { size, zoned: None })
    }

    /// Its kind.
    pub fn kind(&self) -> MediumKind {
        match &self.backing {
            Backing::Null { .. } => MediumKind::Null,
            Backing::Ram { .. } => MediumKind::Ram,
            Backing::File(_) => MediumKind::File,
            Backing::Drive(_) => MediumKind::Drive,
            Backing::KeyValue(_) => MediumKind::KeyValue,
        }
    }

    /// Its size, where the configuration has it.
    pub fn size(&self) -> Option<Size> {
        if !self.faults.is_empty() {
            return None;
        }
        match &self.backing {
            Backing::Null { size, .. } | Backing::Ram { size, .. } => Some(*size),
            Backing::File(file) => file.size,
            Backing::Drive(_) => None,
            Backing::KeyValue(keys) => Some(keys.size),
        }
    }

    /// The file or device that it is.
    pub fn path(&self) -> Option<&Path> {
        match &self.backing {
            Backing::File(file) => Some(&file.path),
            Backing::KeyValue(KeyValue {
                kept: Kept::Log(path),
                ..
            }) => Some(path),
            _ => None,
        }
    }

    /// The file in which it is saved when the server stops.
    pub fn state(&self) -> Option<&Path> {
        match &self.backing {
            Backing::Ram { state, .. } => state.as_deref(),
            Backing::KeyValue(KeyValue {
                kept: Kept::Image(state),
                ..
            }) => Some(state),
            _ => None,
        }
    }

    /// Its zones.
    pub fn zoned(&self) -> Option<&Zoned> {
        match &self.backing {
            Backing::Null { zoned, .. } | Backing::Ram { zoned, .. } => zoned.as_ref(),
            Backing::File(file) => file.zoned.as_ref(),
            Backing::Drive(_) | Backing::KeyValue(_) => None,
        }
    }

    /// The drive, if it is one.
    pub fn drive(&self) -> Option<&Drive> {
        match &self.backing {
            Backing::Drive(drive) => Some(drive),
            _ => None,
        }
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&File> {
        match &self.backing {
            Backing::File(file) => Some(file),
            _ => None,
        }
    }

    /// Whether its data is in memory of the server.
    pub fn is_in_memory(&self) -> bool {
        match &self.backing {
            Backing::Ram { .. } => true,
            Backing::KeyValue(keys) => !matches!(keys.kept, Kept::Log(_)),
            _ => false,
        }
    }

    /// Reads the file of its preset, if it names one, once.
    pub fn read_preset(&self, read: Read) {
        if let Some(timing) = &self.timing {
            // An error is kept with it.
            let _ = timing.find(read);
        }
    }

    /// File of the state of its timing model. `None`: the state is not saved. `may_be_regular`
    /// returns whether a path is a regular file, or does not exist.
    pub fn timing_state_file(&self, may_be_regular: fn(&Path) -> bool) -> Option<PathBuf> {
        let timing = self.timing.as_ref()?;
        if !timing.has_state() || timing.state.is_some() {
            return timing.state.clone();
        }
        // Not beside a device node: /dev holds no files.
        let path = &self.file().filter(|file| may_be_regular(&file.path))?.path;
        let mut name = path.as_os_str().to_owned();
        name.push(".timing");
        Some(name.into())
    }

    /// Has every default written out with it. `may_be_regular` returns whether a path is a regular
    /// file, or does not exist.
    pub(super) fn write_out(&mut self, may_be_regular: fn(&Path) -> bool) {
        self.in_full = true;
        if let Some(timing) = &mut self.timing {
            timing.initial = timing.initial();
        }
        let file = self.timing_state_file(may_be_regular);
        if let (Some(timing), Some(file)) = (&mut self.timing, file) {
            timing.state = Some(file);
            let interval = timing.state_interval().unwrap_or_default();
            timing.state_interval = Some(Span(interval));
        }
    }
}

impl PartialSchema for Medium {
    fn schema() -> RefOr<Schema> {
        MediumKeys::schema()
    }
}

impl ToSchema for Medium {
    fn name() -> Cow<'static, str> {
        MediumKeys::name()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        MediumKeys::schemas(schemas);
    }
}
