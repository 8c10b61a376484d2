//! The configuration file: its keys, their defaults, and validation.
//!
//! The same types are the bodies of the control socket's requests, so that a key has one name, one
//! unit and one default everywhere. This module opens nothing: its callers read files for it, and a
//! configuration that passes [`Config::validate`] can still name a file that does not exist.

mod allow;
mod ana;
mod control;
mod controller;
pub mod drive;
mod host;
mod host_address;
mod index;
mod initial;
mod listen;
pub mod log;
pub mod medium;
mod medium_kind;
mod migration;
mod namespace;
mod nbd;
mod nbd_address;
mod not_nvme;
pub mod object;
mod over_nbd;
mod over_tcp;
mod over_ublk;
mod over_vhost;
mod parameter;
mod problem;
mod reactor;
mod read;
pub mod schema;
mod single_namespace;
pub mod size;
mod socket_address;
mod socket_mode;
mod subsystems;
pub mod survival;
mod tcp;
pub mod tenant;
pub mod timing;
pub mod trace;
mod validate;
mod zoned;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

pub use allow::AdminAllow;
pub use ana::{Ana, AnaState};
pub use control::Control;
pub use controller::{Controller, Doorbells, Fuse};
pub use host::{Concatenation, Host};
pub use host_address::{DISCOVERY_PORT, HostAddress};
pub use initial::Initial;
pub use listen::Listen;
pub use medium::{Backing, Dialect, Direct, Drive as DriveMedium, Medium, MediumKeys, Vendor};
pub use medium_kind::MediumKind;
pub use namespace::Namespace;
pub use nbd::Nbd;
pub use nbd_address::NbdAddress;
pub use parameter::parameter_error;
pub use problem::Problem;
pub use reactor::{Mode, Reactor, reactors_in_words};
pub use read::{MAX_FILE_LEN, Read, from_file, from_text, from_toml, text_of, with_suggestion};
use serde::{Deserialize, Serialize};
pub use size::{Range, Size, Span};
pub use socket_mode::SocketMode;
pub use tcp::{Success, Tcp};
pub use tenant::Tenant;
pub use timing::{MAX_ALLOWANCE, Text, Timing};
use utoipa::ToSchema;
pub use zoned::Zoned;

use self::log::Log;
use self::object::object;
use self::survival::Survival;

/// Most I/O queue pairs of a controller.
pub const MAX_QUEUES: u16 = 64;
/// Most entries of a queue.
pub const MAX_QUEUE_DEPTH: u16 = 4096;
/// Bytes of a logical block.
pub const DEFAULT_LBA_SIZE: u32 = 4096;

object! {
    /// Configuration of one server process.
    #[derive(Default)]
    pub struct Config(ConfigKeys, "configuration") {
        /// Folder of persistent state: the seed of derived identities, and changes that hosts and
        /// operators made.
        #[schema(value_type = Option<String>)]
        state_dir: Option<PathBuf> | unset => Restart {
            unset: "`$XDG_STATE_HOME/nvmirage`, or `~/.local/state/nvmirage`",
        };
        /// Addresses of the control API: `unix:PATH`, or a table.
        control: Option<Control> | unset => Restart {
            table: Control::KEYS,
            unset: control::DEFAULT_SOCKET,
        };
        /// Log filter and format.
        log: Log | unset => Live { table: Log::KEYS };
        /// Collapse memory in use, of hosts and of media, into huge pages.
        huge_pages: HugePages | unset => Restart;
        /// Survival of hosts when the server's process dies or is replaced.
        survival: Survival | unset => Restart { table: Survival::KEYS };
        /// Serving threads, numbered from 0.
        reactor: Vec<Reactor> | unset => Restart { unset: "one reactor, adaptive, not pinned" };
        /// Media: the storage behind namespaces.
        media: Vec<Medium> | unset => Step;
        /// Namespaces: parts of media, as hosts see them.
        namespace: Vec<Namespace> | unset => Step;
        /// Tenants that share media by weights and rate limits, up to 1024.
        tenant: Vec<Tenant> | unset => Step { unset: "none; every command starts at once" };
        /// Hosts that connect over NVMe/TCP.
        host: Vec<Host> | unset => Step { unset: "every host may connect" };
        /// NVMe controllers that hosts attach to.
        controller: Vec<Controller> | unset => Step;
    }
    beside {
        /// Identity of a configuration that was built from a command line, where names are always
        /// the same: the absolute path of its first file, else of its socket. A medium in memory is
        /// then new at every start, and its state is not persistent.
        short_form: Option<PathBuf>,
    }
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
