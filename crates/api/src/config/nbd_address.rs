//! `PATH` or `ADDRESS:PORT` of `listen = "nbd:…"`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::socket_address::{check_socket_path, socket_address};

/// The port of NBD that IANA has assigned.
const NBD_PORT: u16 = 10809;

/// Where NBD clients connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NbdAddress {
    /// UNIX socket.
    Unix(PathBuf),
    /// TCP address.
    Tcp(SocketAddr),
}

impl NbdAddress {
    /// Reads it from the part of `whole` behind its scheme. A path begins with `/`, `./` or `../`:
    /// so no mistake in an address makes it a path.
    pub(super) fn read(text: &str, whole: &str) -> Result<Self, String> {
        if ["/", "./", "../"]
            .iter()
            .any(|start| text.starts_with(start))
        {
            check_socket_path(text, whole)?;
            return Ok(Self::Unix(text.into()));
        }
        let form = "write nbd:ADDRESS:PORT, as in nbd:127.0.0.1:10809 or nbd:[::1]:10809, or for a UNIX socket nbd:/PATH or nbd:./PATH";
        socket_address(text, whole, NBD_PORT, form).map(Self::Tcp)
    }
}

impl fmt::Display for NbdAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}
