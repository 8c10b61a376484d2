//! The control socket: HTTP/JSON on a UNIX socket, its server and its client.
//!
//! Resources are `media`, `namespaces`, `tenants` and `controllers`, with the names and units of the configuration file. Each has
//! a file in `routes`. The socket has mode 0600: who can open it is who may steer.

pub(crate) mod client;
mod problem;
mod routes;
pub(crate) mod server;
mod types;

use std::path::PathBuf;

pub(crate) use problem::Refusal;
pub(crate) use types::*;

/// Largest body of a request or a reply, in bytes.
pub(crate) const MAX_BODY_LEN: usize = 1 << 20;

/// Where the control socket lies when nothing else is said: `$XDG_RUNTIME_DIR/nvmirage/control.sock`, or
/// `/run/nvmirage/control.sock` where that variable is not set.
pub(crate) fn default_socket() -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .unwrap_or_else(|| "/run".into())
        .join("nvmirage/control.sock")
}
