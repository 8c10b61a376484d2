//! The control socket: HTTP/JSON on a UNIX socket, its server and its client.
//!
//! Resources are `media`, `namespaces`, `tenants` and `controllers`, with the names and units of the configuration file. Each has
//! a file in `routes`. The socket has mode 0600: who can open it is who may steer.

pub(crate) mod client;
mod dashboard;
mod guard;
mod limits;
mod problem;
mod routes;
pub(crate) mod server;
mod stalling;
mod token;
mod types;

use std::path::{Path, PathBuf};

pub(crate) use dashboard::{Proxy, is_built as has_dashboard};
pub(crate) use problem::{FieldProblem, Refusal};
pub(crate) use types::*;

/// Largest body of a request, in bytes.
pub(crate) const MAX_BODY_LEN: usize = 1 << 20;

/// Largest reply that the client takes, in bytes: the numbers of many controllers, or the commands in many queues.
pub(crate) const MAX_REPLY_LEN: usize = 64 << 20;

/// How whoever has started a server gets to its dashboard, in a sentence.
pub(crate) fn dashboard_address(control: &crate::config::Control) -> String {
    match (control.tcp, &control.token_file) {
        // which port the system has chosen stands in the log
        (Some(address), Some(file)) if address.port() != 0 => format!(
            "dashboard: http://{address}/, with the token in {}",
            file.display()
        ),
        _ => "dashboard: `nvmirage dashboard` prints its address".to_owned(),
    }
}

/// Where the control socket lies when nothing else is said: `$XDG_RUNTIME_DIR/nvmirage/control.sock`, or
/// that of the system's service where that variable is not set.
pub(crate) fn default_socket() -> PathBuf {
    std::env::var_os("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|dir| dir.is_absolute())
        .map_or_else(|| SERVICE.into(), |dir| dir.join("nvmirage/control.sock"))
}

/// Where a server is looked for when nothing else is said: the user's own, else the system's service.
pub(crate) fn socket_to_ask() -> PathBuf {
    let own = default_socket();
    let service = Path::new(SERVICE);
    match !own.exists() && service.exists() {
        true => service.to_owned(),
        false => own,
    }
}

/// The control socket of the system's service.
const SERVICE: &str = "/run/nvmirage/control.sock";
