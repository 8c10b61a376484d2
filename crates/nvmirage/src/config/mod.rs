//! The configuration file: what it may say, its defaults, and what is wrong with one that cannot be used.
//!
//! The same types are the bodies of the control socket's requests, so that a key has one name, one unit and one
//! default everywhere. Nothing is opened here: a configuration that passes [`Config::validate`] can still name a file
//! that does not exist.

mod allow;
mod control;
pub(crate) mod drive;
pub(crate) mod log;
mod read;
pub(crate) mod size;
mod socket_mode;
mod subsystems;
pub(crate) mod tenant;
pub(crate) mod timing;
pub(crate) mod trace;
mod validate;
mod zoned;

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::identity;

pub(crate) use allow::AdminAllow;
pub(crate) use control::Control;
#[cfg(test)]
pub(crate) use read::from_toml;
pub(crate) use read::{from_file, from_file_again, from_json};
pub(crate) use size::{Range, Size, Span};
pub(crate) use socket_mode::SocketMode;
pub(crate) use timing::{Text, Timing};
pub(crate) use validate::Problem;
pub(crate) use zoned::Zoned;

/// Most I/O queue pairs of a controller.
pub(crate) const MAX_QUEUES: u16 = 64;
/// Most entries of a queue.
pub(crate) const MAX_QUEUE_DEPTH: u16 = 4096;
/// The largest `sample` of a controller.
pub(crate) const MAX_SAMPLE: u32 = 65_536;
/// Bytes of a logical block.
pub(crate) const DEFAULT_LBA_SIZE: u32 = 4096;

/// Everything one process serves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Where what must be kept between runs lies: the seed of derived identities, and what hosts changed.
    /// Default: `$XDG_STATE_HOME/nvmirage`, or `~/.local/state/nvmirage`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) state_dir: Option<PathBuf>,
    /// Where the server is steered, as `unix:PATH` or as a table. Default: a socket in the folder for run-time files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) control: Option<Control>,
    /// Which log lines are written, and how.
    #[serde(default, skip_serializing_if = "log::Log::is_default")]
    pub(crate) log: log::Log,
    /// Whether memory in use is put together into huge pages.
    #[serde(default, skip_serializing_if = "HugePages::is_default")]
    pub(crate) huge_pages: HugePages,
    /// Threads that serve. Default: one, adaptive, not pinned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reactor: Vec<Reactor>,
    /// Where bytes live.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) media: Vec<Medium>,
    /// Parts of media, as hosts see them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) namespace: Vec<Namespace>,
    /// Who shares media with whom. Default: nobody, every command goes at once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) tenant: Vec<tenant::Tenant>,
    /// What hosts attach to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) controller: Vec<Controller>,
    /// It was made of a command line: what tells it apart from others, as the names in it are always the same. Its first
    /// file, else its socket, from the root. A drive in memory is then a new one at every start, of which nothing is kept.
    #[serde(skip)]
    #[schema(value_type = Option<String>)]
    pub(crate) short_form: Option<PathBuf>,
}

/// What is done about the pages of memory in use: hosts' and that of media in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HugePages {
    /// Pages that are all there are put together into huge ones.
    Collapse,
    /// They stay as they are.
    #[default]
    Off,
}

impl HugePages {
    fn is_default(&self) -> bool {
        *self == HugePages::default()
    }
}

/// How a reactor waits for work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// Never sleeps.
    Poll,
    /// Spins for a while after work, then sleeps.
    #[default]
    Adaptive,
    /// Sleeps as soon as nothing is to do.
    Interrupt,
}

impl Mode {
    /// The word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Poll => "poll",
            Mode::Adaptive => "adaptive",
            Mode::Interrupt => "interrupt",
        }
    }
}

/// One serving thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Reactor {
    /// The CPU it is pinned to. Default: not pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<u32>,
    /// How it waits.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// How long an adaptive reactor looks for more work before it sleeps, at most: it learns for how long that pays.
    #[serde(default = "default_spin")]
    pub(crate) spin: Span,
    /// The share of its CPU that an adaptive reactor may spend on that, in per cent.
    #[serde(default = "default_budget")]
    pub(crate) budget: u32,
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

/// What a medium is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MediumKind {
    /// Discards writes and leaves read buffers untouched: for measuring.
    Null,
    /// Memory of this process; gone when it ends.
    Ram,
    /// A regular file or a block device.
    File,
    /// A namespace of an NVMe drive, which hosts share.
    Drive,
    /// Keys and values in memory of this process; gone when it ends.
    KeyValue,
}

/// What hosts of a key-value medium speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Dialect {
    /// The Key Value command set.
    #[default]
    Nvme,
    /// The commands of Samsung's drives.
    Samsung,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direct {
    /// `O_DIRECT` where the file system has it.
    #[default]
    Auto,
    /// `O_DIRECT`, or an error.
    On,
    /// Through the page cache.
    Off,
}

/// A place where bytes live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Medium {
    /// Its name.
    pub(crate) name: String,
    /// What it is made of.
    pub(crate) kind: MediumKind,
    /// The file or block device; only for `kind = "file"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) path: Option<PathBuf>,
    /// Its size; a file that exists may leave it out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<Size>,
    /// Where a drive is: `vfio-user:PATH` or `pci:ADDRESS`; only for `kind = "drive"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    /// The drive's namespace. Default: its first one; only for `kind = "drive"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nsid: Option<u32>,
    /// What of a drive's own hosts may ask for, as `get-log-page:0xc0`; only for `kind = "drive"`. Default: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) admin_allow: Vec<AdminAllow>,
    /// What a drive writes wholly or not at all when the power fails, where that is more than it says (AWUPF, NAWUPF); only for
    /// `kind = "drive"`. Default: what it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) awupf: Option<Size>,
    /// The reactor that polls a drive's completion queues, whichever places the commands. Default: each its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) completions: Option<usize>,
    /// The reactor that tells a drive which completions were taken. Default: who polls them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heads: Option<usize>,
    /// How a file is opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) direct: Option<Direct>,
    /// A thread of the kernel looks for submissions; only for `kind = "file"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) poll_submissions: Option<bool>,
    /// The device is asked for completions and does not interrupt; only for `kind = "file"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) poll_completions: Option<bool>,
    /// Hosts' memory is registered with the kernel, as far as the limit of locked memory allows; only for `kind = "file"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) register_memory: Option<bool>,
    /// Open the file or device for reading alone, and serve it write protected; only for `kind = "file"`. Default: false, and
    /// what cannot be written to is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read_only: Option<bool>,
    /// What its hosts speak; only for `kind = "keyvalue"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dialect: Option<Dialect>,
    /// Most keys; only for `kind = "keyvalue"`. Default: one for each 512 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_keys: Option<u32>,
    /// The file that holds a medium in memory, with its zones, while it is not served; only for `kind = "ram"`, and
    /// `kind = "keyvalue"` without a path. Default: none, it is gone when the program ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub(crate) state: Option<PathBuf>,
    /// The model that says when its commands are done. Default: none, as fast as they go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timing: Option<Timing>,
    /// Zones, which hosts write in order and reset as a whole. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zoned: Option<Zoned>,
}

impl Medium {
    /// A medium with everything else at its default.
    pub(crate) fn new(name: String, kind: MediumKind) -> Self {
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

/// A part of a medium, as a host sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Namespace {
    /// Its name.
    pub(crate) name: String,
    /// The medium that holds its bytes.
    pub(crate) media: String,
    /// The part of the medium. Default: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) range: Option<Range>,
    /// The partition of the drive or file that it is, in place of a range.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) partition: Option<String>,
    /// Bytes of a logical block: 512 or 4096.
    #[serde(default = "default_lba_size")]
    pub(crate) lba_size: u32,
    /// 32 hexadecimal digits. Default: derived once and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) nguid: Option<String>,
    /// 16 hexadecimal digits. Default: derived once and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) eui64: Option<String>,
    /// Whose its commands are, whichever controller they come by. Default: the controller's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// Its part of what its tenant has of the medium, beside other namespaces of that: 1 to 10000. Default: 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) weight: Option<u32>,
}

/// How doorbells reach the reactor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Doorbells {
    /// Mapped where every reactor of the controller is in `poll` mode, unmapped otherwise.
    #[default]
    Auto,
    /// The page is mapped into the host: no exit, but nobody wakes a sleeping reactor.
    Mapped,
    /// A write is a message, or a shadow doorbell where the host uses Doorbell Buffer Config.
    Unmapped,
    /// Every write is a message: Doorbell Buffer Config is not offered. For measuring.
    Trapped,
}

/// How the namespaces of a controller are mounted as files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Fuse {
    /// Other users of the machine may open the files.
    #[serde(default)]
    pub(crate) allow_other: bool,
    /// Reads and writes go through the machine's page cache, which hides the drive's time.
    #[serde(default)]
    pub(crate) page_cache: bool,
}

/// An NVMe controller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Controller {
    /// Its name.
    pub(crate) name: String,
    /// The NVM subsystem it belongs to, with every other controller that names it. Default: one of its own, called as
    /// the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subsystem: Option<String>,
    /// Names of its namespaces. In a subsystem they are counted from 1 in the order of first mention.
    #[serde(default)]
    pub(crate) namespaces: Vec<String>,
    /// Names of media whose unallocated space hosts may make namespaces of; it is the pool of the whole subsystem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) pool: Vec<String>,
    /// Where hosts reach it: `vfio-user:PATH`, or `fuse:FOLDER` for this machine itself.
    pub(crate) listen: Listen,
    /// Who may connect to its socket beside its owner, as in chmod(1): `0660` for the group, `0666` for all.
    #[serde(default, skip_serializing_if = "SocketMode::is_default")]
    pub(crate) socket_mode: SocketMode,
    /// How its namespaces are mounted; only with `fuse:FOLDER`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fuse: Option<Fuse>,
    /// I/O queue pairs it offers, 1 to 64.
    #[serde(default = "default_queues")]
    pub(crate) queues: u16,
    /// Entries of a queue at most, 2 to 4096.
    #[serde(default = "default_queue_depth")]
    pub(crate) queue_depth: u16,
    /// The largest transfer of one command (MDTS): a power of two, 8KiB to 4MiB.
    #[serde(default = "default_max_transfer")]
    pub(crate) max_transfer: Size,
    /// How doorbells reach the reactor.
    #[serde(default)]
    pub(crate) doorbells: Doorbells,
    /// Offer MSI-X. `false`: MSI alone, up to 32 messages, for monitors that abort when a device with MSI-X is unplugged.
    #[serde(default = "default_msix")]
    pub(crate) msix: bool,
    /// Whether it has an interrupt pin (INTx), for guests without MSI-X.
    #[serde(default)]
    pub(crate) intx: bool,
    /// Which `[[reactor]]` serves it, counted from 0. Default: the one with the fewest controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reactor: Option<usize>,
    /// Which reactors serve its I/O queues: the first completion queue is the first one's, with the submission queues that
    /// complete into it, and so on in turn. Default: all of them are of the reactor that serves the controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reactors: Vec<usize>,
    /// Whose the commands of its hosts are. Default: nobody's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tenant: Option<String>,
    /// Of so many I/O commands the times of one are taken, at random distances: 1 to 65536, or 0 for none.
    #[serde(default = "default_sample")]
    pub(crate) sample: u32,
    /// Serial number, up to 20 ASCII characters. Default: derived once and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) serial: Option<String>,
    /// Model number, up to 40 ASCII characters.
    #[serde(default = "default_model_number")]
    pub(crate) model_number: String,
    /// Firmware revision, up to 8 ASCII characters.
    #[serde(default = "default_firmware_revision")]
    pub(crate) firmware_revision: String,
    /// NVM Subsystem NQN, up to 223 bytes. Default: derived once and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) subnqn: Option<String>,
    /// PCI vendor id. Default: the controller's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) vendor_id: Option<u16>,
    /// PCI device id. Default: the controller's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device_id: Option<u16>,
}

impl Controller {
    /// A controller without namespaces, everything else at its default.
    pub(crate) fn new(name: String, listen: Listen) -> Self {
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
    pub(crate) fn subsystem(&self) -> &str {
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

/// Often enough for a second of a slow drive, and rarely enough to cost the fastest one less than 2 % of its instructions.
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

/// An address with its scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    /// `vfio-user:PATH`: a vfio-user server on a UNIX socket.
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
    pub(crate) fn path(&self) -> &std::path::Path {
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
                "`{text}`: the path of a socket has 1 to {MAX_SOCKET_PATH_LEN} bytes"
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
    /// What identities and kept state of a subsystem or namespace go by: its name, and in a configuration that was made
    /// of a command line a digest of what tells that apart, too.
    pub(crate) fn lasting_name(&self, name: &str) -> String {
        match &self.short_form {
            None => name.to_owned(),
            Some(path) => identity::name_apart(name, path),
        }
    }

    /// The configuration with every default written out, as TOML.
    pub(crate) fn with_defaults(&self) -> String {
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

    /// The configuration as a file has it, without defaults.
    pub(crate) fn as_toml(&self) -> String {
        toml::to_string(self).expect("every value of a configuration has a TOML form")
    }
}
