//! The control API: HTTP/JSON on a UNIX socket, with its server and client.
//!
//! Resources are `media`, `namespaces`, `tenants` and `controllers`, with the names and units of
//! the configuration file. Each has a file in `routes`. The socket has mode 0600: permission to
//! open it is permission to control the server.

pub mod dashboard;
mod guard;
mod limits;
mod past;
mod problem;
pub mod proxy;
mod routes;
pub(crate) mod server;
mod stalling;
mod token;

use problem::Refused;

/// Largest body of a request, in bytes.
pub(crate) const MAX_BODY_LEN: usize = 1 << 20;

/// How to open the dashboard of a server that was just started, in a sentence.
pub fn dashboard_address(control: &api::config::Control) -> String {
    match (control.tcp, &control.token_file) {
        // the log has the port that the system chose
        (Some(address), Some(file)) if address.port() != 0 => format!(
            "dashboard: http://{address}/, with the token in {}",
            file.display()
        ),
        _ => "dashboard: `nvmirage dashboard` prints its address".to_owned(),
    }
}
