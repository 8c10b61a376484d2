//! Argument parsers that several commands share.

use std::path::PathBuf;

use anyhow::Context as _;
use api::config::Listen;
use api::config::object::Shape;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde::de::{DeserializeOwned, IntoDeserializer, value};
use terminal::progress;

use super::UsageError;
use crate::{Address, Intent};

/// A keyword of the configuration file, with the same meaning.
pub fn word<T>() -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    let words = match Shape::of::<T>() {
        Shape::Words(words) => words,
        _ => &[],
    };
    PossibleValuesParser::new(words).try_map(|word| {
        let from: value::StringDeserializer<value::Error> = word.into_deserializer();
        T::deserialize(from)
    })
}

/// The socket of a vfio-user server: `vfio-user:PATH`.
pub fn vfio_user(text: &str) -> Result<PathBuf, String> {
    match text.parse()? {
        Listen::VfioUser(path) => Ok(path),
        Listen::Fuse(_) => Err(format!("`{text}` is a folder: write vfio-user:PATH")),
        Listen::NvmeTcp(_) => Err(format!("`{text}` is no socket: write vfio-user:PATH")),
        Listen::Nbd(_) => Err(format!("`{text}` is for NBD clients: write vfio-user:PATH")),
        Listen::VhostUserBlk(_) => Err(format!(
            "`{text}` is for a vhost-user-blk front end: write vfio-user:PATH"
        )),
        Listen::Ublk(_) => Err(format!(
            "`{text}` is for a block device of this machine: write vfio-user:PATH"
        )),
        Listen::Unix(_) => Err(format!(
            "`{text}` is a control socket: write vfio-user:PATH"
        )),
    }
}

/// Controller identifier of a host over NVMe/TCP, NBD, vhost-user-blk or ublk, decimal or
/// hexadecimal.
pub fn cntlid(text: &str) -> anyhow::Result<u16> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.context("write the identifier of `nvmirage hosts`, as 0x100")
}

/// Address of a controller: `vfio-user:PATH`, `fuse:FOLDER`, `nvme-tcp:ADDRESS:PORT`, `nbd:PATH`,
/// `nbd:ADDRESS:PORT`, `vhost-user-blk:PATH`, `ublk:` or `ublk:ID`.
pub fn listen(text: &str) -> Result<Listen, String> {
    match text.parse()? {
        Listen::Unix(_) => Err(format!(
            "`{text}` is a control socket: write vfio-user:PATH, fuse:FOLDER, nvme-tcp:ADDRESS:PORT, nbd:PATH, nbd:ADDRESS:PORT, vhost-user-blk:PATH, ublk: or ublk:ID"
        )),
        listen => Ok(listen),
    }
}

/// A control socket: `unix:PATH`.
pub fn unix(text: &str) -> Result<PathBuf, String> {
    match text.parse()? {
        Listen::Unix(path) => Ok(path),
        _ => Err(format!(
            "`{text}` is the address of a controller: write unix:PATH"
        )),
    }
}

/// `path` from the root, because the server may run in another folder.
pub fn absolute(path: PathBuf) -> anyhow::Result<PathBuf> {
    Ok(std::path::absolute(path)?)
}

/// Address of a running server.
#[derive(Clone, Debug, clap::Args)]
pub struct Control {
    /// Control socket of the server
    ///
    /// Default: NVMIRAGE_CONTROL, else $XDG_RUNTIME_DIR/nvmirage/control.sock, or
    /// /run/nvmirage/control.sock without XDG_RUNTIME_DIR. A read-only command falls back to the
    /// latter, with a notice.
    #[arg(long, value_name = "unix:PATH", value_parser = unix)]
    control: Option<PathBuf>,
}

impl Control {
    /// The server of a command that only reads.
    pub fn to_read(&self) -> Result<Address, UsageError> {
        self.find(Intent::Read)
    }

    /// The server of a command that changes something.
    pub fn to_change(&self) -> Result<Address, UsageError> {
        self.find(Intent::Change)
    }

    fn find(&self, intent: Intent) -> Result<Address, UsageError> {
        let found = Address::find(self.control.clone(), intent);
        let found = found.map_err(UsageError)?;
        if let Some(note) = found.note(intent)
            && found.path().exists()
        {
            progress::note(&note);
        }
        Ok(found)
    }

    /// Whether the command line names a server.
    pub fn is_given(&self) -> bool {
        self.control.is_some()
    }
}
