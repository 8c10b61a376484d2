//! The NBD server: clients that reach the namespaces of a controller over sockets.
//!
//! [`Newcomer`] is a connection that has not chosen an export, [`Arrival`] one that has, and
//! [`Client`] one that sends requests. A client is the host of an ordinary controller: it has
//! private memory with the rings of an admin and an I/O queue and with slots for data. A request
//! becomes commands of whole blocks (`split`), and their completions become its reply.
//!
//! Invariants:
//! - Nothing here blocks, reads a clock, or allocates or logs per request.
//! - An export is made of bytes: a request that covers a part of a block changes no other byte of
//!   it, whatever other clients and hosts write meanwhile (`work`).
//! - Memory is bounded: a client has one input, and [`SMALL`] and [`LARGE`] slots. Requests for
//!   which there is no slot wait in the socket.
//!
//! Not included: listening sockets.

mod client;
mod counters;
mod end;
mod entry;
mod extents;
mod input;
mod judge;
mod newcomer;
mod offer;
mod output;
mod requests;
mod slots;
mod split;
mod status;
mod tls;
mod users;
mod work;

use std::io;

pub use ::tls::Certificate;

pub use self::client::{Client, Polled};
pub use self::counters::Counters;
pub use self::end::End;
pub use self::newcomer::{Arrival, Newcomer, Progress};
pub use self::offer::{Offer, Offers, offer};
pub use self::tls::Tls;
pub use self::users::{USERS_LEN, Users, UsersError};

/// Entries of the I/O queue of a client's controller. Its configuration must have them.
pub const QUEUE_DEPTH: u16 = 512;
/// I/O queues of a client's controller. Its configuration must have them.
pub const QUEUES: u16 = 1;
/// Small slots of a client: of 8 KiB each.
pub const SMALL: usize = 128;
/// Large slots of a client: of 128 KiB each.
pub const LARGE: usize = 32;

/// Whether a socket would have to wait.
fn is_later(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// The end of a connection whose socket has failed.
fn failed(error: io::Error) -> End {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => End::Closed,
        // Of TLS: sockets have no such error.
        io::ErrorKind::InvalidData => End::Tls(::tls::Failed::Protocol(error.to_string())),
        _ => End::Io(error),
    }
}
