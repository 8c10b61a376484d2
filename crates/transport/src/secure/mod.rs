//! TLS of any listening socket: the thread that does handshakes, and the bytes of a connection.
//!
//! Keys and the names that choose them are the protocols'. Before a handshake a connection waits
//! for a place among those in progress, and after it its bytes are a [`Stream`].

use tls::Failed;

mod handshake;
mod hello;
mod places;
mod stream;

pub(crate) use self::handshake::{Handshake, HandshakePlace, NoSession, Origin};
pub use self::handshake::{Handshaker, Handshakes, handshakes};
pub(crate) use self::hello::{HANDSHAKE, has_hello, peek};
pub(crate) use self::places::{Place, Places};
pub(crate) use self::stream::Stream;

/// A short name of a failed session, for counters.
pub(crate) const fn name_of(failed: &Failed) -> &'static str {
    match failed {
        Failed::Identity => "tls-identity",
        Failed::Key => "tls-key",
        Failed::Certificate(_) => "tls-certificate",
        Failed::Protocol(_) | Failed::Closed | Failed::Io(_) => "tls-protocol",
    }
}
