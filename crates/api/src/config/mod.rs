//! The configuration file: its keys, their defaults, and validation.
//!
//! The same types are the bodies of the control socket's requests, so that a key has one name, one
//! unit and one default everywhere. This module opens nothing: a configuration that passes
//! [`Config::validate`] can still name a file that does not exist.

mod allow;
mod control;
mod controller;
pub mod drive;
pub mod log;
mod namespace;
pub mod object;
mod reactor;
mod read;
pub mod size;
mod socket_mode;
mod subsystems;
pub mod tenant;
pub mod timing;
pub mod trace;
mod validate;
mod zoned;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use allow::AdminAllow;
pub use control::Control;
pub use controller::{Controller, Doorbells, Fuse};
pub use namespace::Namespace;
pub use reactor::{Mode, Reactor};
pub use read::{from_file, from_file_again, from_toml, with_suggestion};
use serde::{Deserialize, Serialize};
pub use size::{Range, Size, Span};
pub use socket_mode::SocketMode;
pub use timing::{Text, Timing};
use utoipa::ToSchema;
pub use validate::Problem;
pub use zoned::Zoned;

/// Most I/O queue pairs of a controller.
pub const MAX_QUEUES: u16 = 64;
/// Most entries of a queue.
pub const MAX_QUEUE_DEPTH: u16 = 4096;
/// Bytes of a logical block.
pub const DEFAULT_LBA_SIZE: u32 = 4096;

/// Configuration of one server process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Folder of persistent state: the seed of derived identities, and changes that hosts and
    /// operators made. Default: `$XDG_STATE_HOME/nvmirage`, or `~/.local/state/nvmirage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state_dir: Option<PathBuf>,
    /// Addresses of the control API: `unix:PATH`, or a table. Default: a socket in the runtime
    /// folder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<Control>,
    /// Log filter and format.
    #[serde(default, skip_serializing_if = "log::Log::is_default")]
    pub log: log::Log,
    /// Collapse memory in use into huge pages: `"collapse"` or `"off"`. Default: `"off"`.
    #[serde(default, skip_serializing_if = "HugePages::is_default")]
    pub huge_pages: HugePages,
    /// Serving threads, numbered from 0. Default: one reactor, adaptive, not pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reactor: Vec<Reactor>,
    /// Media: the storage behind namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Medium>,
    /// Namespaces: parts of media, as hosts see them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace: Vec<Namespace>,
    /// Tenants that share media by weights and rate limits, at most 1024. Default: none; every
    /// command starts at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenant: Vec<tenant::Tenant>,
    /// NVMe controllers that hosts attach to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controller: Vec<Controller>,
    /// Identity of a configuration that was built from a command line, where names are always the
    /// same: the absolute path of its first file, else of its socket. A medium in memory is then
    /// new at every start, and nothing of it is persistent.
    #[serde(skip)]
    #[schema(value_type = Option<String>)]
    pub short_form: Option<PathBuf>,
}

/// Treatment of the pages of memory in use: hosts' memory and media in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum HugePages {
    /// Collapse ranges that are fully populated into huge pages.
    Collapse,
    /// Leave pages as they are.
    #[default]
    Off,
}

impl HugePages {
    fn is_default(&self) -> bool {
        *self == HugePages::default()
    }
}

/// Kind of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum MediumKind {
    /// Discard writes and leave read buffers untouched; for measuring.
    Null,
    /// Memory of the server process; not persistent without `state`.
    Ram,
    /// Regular file or block device.
    File,
    /// Namespace of an NVMe drive, shared by hosts.
    Drive,
    /// Keys and values in memory of the server process; persistent with `path` or `state`.
    KeyValue,
}

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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Medium {
    /// Name of the medium: 1 to 64 letters, digits, `.`, `_` or `-`.
    pub name: String,
    /// Kind of the medium.
    pub kind: MediumKind,
    /// File or block device. Required for `kind = "file"`; optional for `kind = "keyvalue"`, where
    /// it is the regular file with the log of pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub path: Option<PathBuf>,
    /// Size: 64KiB to 8EiB, a multiple of 512B; for `kind = "keyvalue"` at most 1TiB. Required for
    /// `null`, `ram` and `keyvalue`, and for a file that does not exist; invalid for
    /// `kind = "drive"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<Size>,
    /// Address of the drive: `vfio-user:PATH` or `pci:ADDRESS`. Required for, and only for,
    /// `kind = "drive"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Namespace identifier on the drive, from 1. Only for `kind = "drive"`. Default: the first
    /// active namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nsid: Option<u32>,
    /// Vendor log pages of the drive that hosts may read, as `get-log-page:0xc0` or
    /// `get-log-page:0xc0:BYTES`: at most 16 pages, LID 0xc0 to 0xff except 0xc1, 4 to 4096 bytes.
    /// Only for `kind = "drive"`. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub admin_allow: Vec<AdminAllow>,
    /// Write size that the drive keeps atomic across a power failure, where it is more than the
    /// drive reports (AWUPF, NAWUPF): `512B` or `4KiB`. Only for `kind = "drive"`. Default: the
    /// size that the drive reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awupf: Option<Size>,
    /// Reactor that polls all completion queues of the drive, and passes completions to the
    /// reactors that submitted the commands. Only for `kind = "drive"`. Default: each reactor polls
    /// its own completion queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completions: Option<usize>,
    /// Reactor that writes the drive's completion queue head doorbells. Only with `completions`,
    /// and a different reactor. Default: the reactor in `completions`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<usize>,
    /// Direct I/O: `auto`, `on` or `off`. Only for `kind = "file"`. Default: `auto`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct: Option<Direct>,
    /// Submit through a polling kernel thread (`IORING_SETUP_SQPOLL`), which occupies a CPU while
    /// there is work. Only for `kind = "file"`. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_submissions: Option<bool>,
    /// Poll the device for completions instead of taking interrupts (`IORING_SETUP_IOPOLL`). Needs
    /// direct I/O and a device with polled queues. Only for `kind = "file"`. Default: false.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub poll_completions: Option<bool>,
    /// Register hosts' memory with the kernel, up to the limit of locked memory (`RLIMIT_MEMLOCK`).
    /// Only for `kind = "file"`. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub register_memory: Option<bool>,
    /// Open the file or device read-only, and serve its namespaces write protected. Only for
    /// `kind = "file"`. Default: false; a file or device that cannot be written is then rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// Command set: `nvme` or `samsung`. Only for `kind = "keyvalue"`. Default: `nvme`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<Dialect>,
    /// Maximum number of keys, 1 to 4294967294. Only for `kind = "keyvalue"`. Default: one for each
    /// 512 bytes of `size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_keys: Option<u32>,
    /// File in which a medium in memory, with its zones, is saved when the server stops. Only for
    /// `kind = "ram"`, and `kind = "keyvalue"` without `path`. Default: none; the contents are not
    /// persistent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub state: Option<PathBuf>,
    /// Timing model that delays the completion of commands. Default: none; commands complete as
    /// soon as they are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timing: Option<Timing>,
    /// Zones, which hosts write sequentially and reset as a whole. Only for `null`, `ram`, and
    /// regular files. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zoned: Option<Zoned>,
}

impl Medium {
    /// A medium with everything else at its default.
    pub fn new(name: String, kind: MediumKind) -> Self {
        Medium {
            name,
            kind,
            path: None,
            size: None,
            target: None,
            nsid: None,
            admin_allow: Vec::new(),
            awupf: None,
            completions: None,
            heads: None,
            direct: None,
            poll_submissions: None,
            poll_completions: None,
            register_memory: None,
            read_only: None,
            dialect: None,
            max_keys: None,
            state: None,
            timing: None,
            zoned: None,
        }
    }
}

/// Address with its scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `vfio-user:PATH`: vfio-user server on a UNIX socket.
    VfioUser(PathBuf),
    /// `fuse:FOLDER`: files in a folder of this machine.
    Fuse(PathBuf),
    /// `unix:PATH`: HTTP on a UNIX socket.
    Unix(PathBuf),
}

/// Longest path of a UNIX socket: `sun_path` holds 108 bytes, the last of them NUL (unix(7)).
const MAX_SOCKET_PATH_LEN: usize = 107;

impl Listen {
    /// The path of the socket or the folder.
    pub fn path(&self) -> &std::path::Path {
        match self {
            Listen::VfioUser(path) | Listen::Fuse(path) | Listen::Unix(path) => path,
        }
    }
}

impl std::str::FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (scheme, path) = text
            .split_once(':')
            .ok_or_else(|| format!("`{text}` has no scheme: write vfio-user:/path/to/socket"))?;
        if scheme == "fuse" {
            return match path {
                "" => Err(format!("`{text}`: name a folder")),
                path => Ok(Listen::Fuse(path.into())),
            };
        }
        if path.is_empty() || path.len() > MAX_SOCKET_PATH_LEN {
            return Err(format!(
                "`{text}`: a socket path has 1 to {MAX_SOCKET_PATH_LEN} bytes; shorten it"
            ));
        }
        match scheme {
            "vfio-user" => Ok(Listen::VfioUser(path.into())),
            "unix" => Ok(Listen::Unix(path.into())),
            _ => Err(format!(
                "`{text}` has an unknown scheme `{scheme}`: use vfio-user:PATH or fuse:FOLDER for a controller, unix:PATH for control"
            )),
        }
    }
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Listen::VfioUser(path) => write!(f, "vfio-user:{}", path.display()),
            Listen::Fuse(path) => write!(f, "fuse:{}", path.display()),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

use size::serde_as_text;

serde_as_text!(Listen => "an address in quotes, as in \"vfio-user:/run/nvmirage/vm1.sock\"");

impl Config {
    /// The configuration with every default written out, as TOML.
    pub fn with_defaults(&self) -> String {
        let mut full = self.clone();
        if full.reactor.is_empty() {
            full.reactor.push(Reactor::default());
        }
        for medium in &mut full.media {
            if let Some(timing) = &mut medium.timing
                && let Some(file) = timing.state_file(medium.kind, medium.path.as_deref())
            {
                timing.state = Some(file);
                let interval = timing.state_interval().unwrap_or_default();
                timing.state_interval = Some(Span(interval));
            }
            if medium.kind == MediumKind::KeyValue {
                medium.dialect.get_or_insert_default();
            }
            if medium.kind == MediumKind::File {
                medium.direct.get_or_insert_default();
                medium.poll_submissions.get_or_insert(false);
                medium.poll_completions.get_or_insert(false);
                medium.register_memory.get_or_insert(true);
                medium.read_only.get_or_insert(false);
            }
        }
        full.as_toml()
    }

    /// The configuration without defaults, as TOML.
    pub fn as_toml(&self) -> String {
        toml::to_string(self).expect("every value of a configuration has a TOML form")
    }
}
