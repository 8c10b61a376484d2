//! The configuration file: its keys, their defaults, and validation.
//!
//! The same types are the bodies of the control socket's requests, so that a key has one name, one
//! unit and one default everywhere. This module opens nothing: its callers read files for it, and a
//! configuration that passes [`Config::validate`] can still name a file that does not exist.

mod allow;
mod control;
pub mod drive;
pub mod log;
pub mod medium;
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

use std::path::{Path, PathBuf};

pub use allow::AdminAllow;
pub use control::Control;
pub use medium::{Backing, Dialect, Direct, Medium, MediumKeys, MediumKind};
pub use read::{MAX_FILE_LEN, Read, from_file, from_text, from_toml, with_suggestion};
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
/// The largest `sample` of a controller.
pub const MAX_SAMPLE: u32 = 65_536;
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

/// Wait policy of a reactor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Poll without sleeping.
    Poll,
    /// Spin for a while after work, then sleep.
    #[default]
    Adaptive,
    /// Sleep as soon as there is no work.
    Interrupt,
}

impl Mode {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Poll => "poll",
            Mode::Adaptive => "adaptive",
            Mode::Interrupt => "interrupt",
        }
    }
}

/// Serving thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reactor {
    /// CPU that the reactor is pinned to, 0 to 4095; the process must be allowed to use it.
    /// Default: not pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Wait policy: `poll`, `adaptive` or `interrupt`. Default: `adaptive`.
    #[serde(default)]
    pub mode: Mode,
    /// Longest time that an adaptive reactor spins after work before it sleeps, less than 1s. The
    /// reactor spins only for as long as spinning has recently paid. Only for `mode = "adaptive"`.
    /// Default: `50us`.
    #[serde(default = "default_spin")]
    pub spin: Span,
    /// CPU budget for spinning in adaptive mode, in percent of one CPU: 1 to 100. Default: 100.
    #[serde(default = "default_budget")]
    pub budget: u32,
}

impl Default for Reactor {
    fn default() -> Self {
        Reactor {
            cpu: None,
            mode: Mode::default(),
            spin: default_spin(),
            budget: default_budget(),
        }
    }
}

/// Namespace: a part of a medium, as hosts see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Namespace {
    /// Name of the namespace: 1 to 64 letters, digits, `.`, `_` or `-`.
    pub name: String,
    /// Name of the medium that stores the namespace.
    pub media: String,
    /// Byte range of the medium, as in `0GiB..16GiB`: starts at a multiple of 4KiB, holds at least
    /// one block, and overlaps no other namespace. Default: all of the medium.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
    /// Partition of the drive or file, instead of `range`. Only for `drive`, and for `file` without
    /// zones. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// Logical block size in bytes: 512 or 4096. Default: 4096.
    #[serde(default = "default_lba_size")]
    pub lba_size: u32,
    /// Namespace globally unique identifier: 32 hexadecimal digits, not all zero. Default: derived
    /// once and persistent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nguid: Option<String>,
    /// IEEE extended unique identifier: 16 hexadecimal digits, not all zero. Default: derived once
    /// and persistent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eui64: Option<String>,
    /// Tenant that commands of this namespace count for, on every controller. Default: the
    /// controller's tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Weight among the namespaces of one tenant on the medium: 1 to 10000. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// Doorbell delivery to the reactor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Doorbells {
    /// Mapped where every reactor of the controller is in `poll` mode, else unmapped.
    #[default]
    Auto,
    /// Map the doorbell page into the host. Doorbell writes cause no VM exit, and do not wake a
    /// sleeping reactor.
    Mapped,
    /// Deliver each write as a message, or through shadow doorbells where the host uses Doorbell
    /// Buffer Config.
    Unmapped,
    /// Deliver each write as a message; Doorbell Buffer Config is unsupported. For measuring.
    Trapped,
}

/// Mount options of a controller's namespaces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Fuse {
    /// Let other users of the machine open the files. Default: false.
    #[serde(default)]
    pub allow_other: bool,
    /// Use the machine's page cache for reads and writes, which hides the drive's latency. Default:
    /// false.
    #[serde(default)]
    pub page_cache: bool,
}

/// NVMe controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Controller {
    /// Name of the controller: 1 to 64 letters, digits, `.`, `_` or `-`.
    pub name: String,
    /// NVM subsystem of the controller, shared by all controllers that name it. Default: a
    /// subsystem of its own, named after the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subsystem: Option<String>,
    /// Names of the namespaces attached to the controller. Their identifiers in the subsystem count
    /// from 1 in the order of first mention. Default: none.
    #[serde(default)]
    pub namespaces: Vec<String>,
    /// Names of media in whose unallocated space hosts may create namespaces; the pool belongs to
    /// the whole subsystem. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pool: Vec<String>,
    /// Address that hosts attach to: `vfio-user:PATH`, or `fuse:FOLDER` for a mount on this
    /// machine.
    pub listen: Listen,
    /// Mode of the socket, as in chmod(1): `0600` for its owner, `0660` for its group too, `0666`
    /// for all users. Default: `0600`.
    #[serde(default, skip_serializing_if = "SocketMode::is_default")]
    pub socket_mode: SocketMode,
    /// Mount options. Only for `listen = "fuse:FOLDER"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuse: Option<Fuse>,
    /// Maximum number of I/O queue pairs: 1 to 64. Default: 64.
    #[serde(default = "default_queues")]
    pub queues: u16,
    /// Maximum number of entries of an I/O queue: 2 to 4096. Default: 1024.
    #[serde(default = "default_queue_depth")]
    pub queue_depth: u16,
    /// Maximum data transfer size of one command (MDTS): a power of two, 8KiB to 4MiB. Default:
    /// 1MiB.
    #[serde(default = "default_max_transfer")]
    pub max_transfer: Size,
    /// Doorbell delivery to the reactor: `auto`, `mapped`, `unmapped` or `trapped`. Default:
    /// `auto`.
    #[serde(default)]
    pub doorbells: Doorbells,
    /// Offer MSI-X. With `false` the controller offers only MSI, with up to 32 messages, for
    /// monitors that abort when a device with MSI-X is unplugged. Default: true.
    #[serde(default = "default_msix")]
    pub msix: bool,
    /// Provide an interrupt pin (INTx), for guests without MSI-X. Default: false.
    #[serde(default)]
    pub intx: bool,
    /// Number of the `[[reactor]]` that serves the controller, from 0. Default: the reactor with
    /// the fewest controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reactor: Option<usize>,
    /// Numbers of the reactors that serve the I/O queues. The first completion queue, with the
    /// submission queues that complete into it, is on the first reactor, and so on in turn.
    /// Default: all queues are on the controller's reactor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reactors: Vec<usize>,
    /// Tenant that the commands of its hosts count for, except on namespaces with a tenant of their
    /// own. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Latency sampling rate: on average one in N I/O commands is timed. 1 to 65536; 0 disables
    /// sampling. Default: 256.
    #[serde(default = "default_sample")]
    pub sample: u32,
    /// Serial number: 1 to 20 ASCII characters. Default: derived once and persistent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Model number: 1 to 40 ASCII characters. Default: `nvmirage`.
    #[serde(default = "default_model_number")]
    pub model_number: String,
    /// Firmware revision: 1 to 8 ASCII characters. Default: the program's version.
    #[serde(default = "default_firmware_revision")]
    pub firmware_revision: String,
    /// NVM subsystem NQN, up to 223 bytes: `nqn.YYYY-MM.reverse.domain:name`. Default: derived once
    /// and persistent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subnqn: Option<String>,
    /// PCI vendor ID: 1 to 0xfffe. Default: 0x4e56.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vendor_id: Option<u16>,
    /// PCI device ID: 1 to 0xfffe. Default: 0x0001.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<u16>,
}

impl Controller {
    /// A controller without namespaces, everything else at its default.
    pub fn new(name: String, listen: Listen) -> Self {
        Controller {
            name,
            subsystem: None,
            namespaces: Vec::new(),
            pool: Vec::new(),
            listen,
            socket_mode: SocketMode::default(),
            fuse: None,
            queues: default_queues(),
            queue_depth: default_queue_depth(),
            max_transfer: default_max_transfer(),
            doorbells: Doorbells::default(),
            msix: default_msix(),
            intx: false,
            reactor: None,
            reactors: Vec::new(),
            tenant: None,
            sample: default_sample(),
            serial: None,
            model_number: default_model_number(),
            firmware_revision: default_firmware_revision(),
            subnqn: None,
            vendor_id: None,
            device_id: None,
        }
    }

    /// The name of its subsystem.
    pub fn subsystem(&self) -> &str {
        self.subsystem.as_deref().unwrap_or(&self.name)
    }
}

fn default_spin() -> Span {
    Span(std::time::Duration::from_micros(50))
}

fn default_budget() -> u32 {
    100
}

fn default_lba_size() -> u32 {
    DEFAULT_LBA_SIZE
}

fn default_queues() -> u16 {
    MAX_QUEUES
}

/// Often enough for statistics of one second on a slow drive, and rarely enough to cost the fastest
/// one less than 2 % of its instructions.
fn default_sample() -> u32 {
    256
}

fn default_queue_depth() -> u16 {
    1024
}

fn default_max_transfer() -> Size {
    Size(1 << 20)
}

fn default_msix() -> bool {
    true
}

fn default_model_number() -> String {
    "nvmirage".to_owned()
}

fn default_firmware_revision() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
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
    /// Reads the files of presets that media name, once: later changes of the files do not affect
    /// these media. [`Config::validate`] returns what is wrong with them.
    pub fn read_presets(&self, read: Read) {
        self.media
            .iter()
            .for_each(|medium| medium.read_preset(read));
    }

    /// The configuration with every default written out, as TOML. `may_be_regular` returns whether
    /// a path is a regular file, or does not exist.
    pub fn with_defaults(&self, may_be_regular: fn(&Path) -> bool) -> String {
        let mut full = self.clone();
        if full.reactor.is_empty() {
            full.reactor.push(Reactor::default());
        }
        for medium in &mut full.media {
            medium.write_out(may_be_regular);
        }
        full.as_toml()
    }

    /// The configuration without defaults, as TOML.
    pub fn as_toml(&self) -> String {
        toml::to_string(self).expect("every value of a configuration has a TOML form")
    }
}
