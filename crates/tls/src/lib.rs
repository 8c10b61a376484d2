//! TLS 1.3 with pre-shared keys and certificates over non-blocking sockets, by the system's
//! OpenSSL 3.
//!
//! The library is loaded at the first use, and not before, so that a program without such keys
//! runs where there is none. [`Server`] and [`Client`] are the two sides, and [`Session`] is one
//! connection of either.
//!
//! Invariants:
//! - Both sides have the same key, or there is no session, except with a server that has a
//!   certificate. Where that has authorities of clients, a client without a key has a certificate
//!   of theirs. Tickets, early data and other versions are off, and each handshake has a
//!   Diffie-Hellman exchange.
//! - No call waits. A call handles one record.
//! - Unsafe code is in `library`, `context`, `certificate` and `session`.
//! - Keys have no text form, and are cleared when they are dropped.
//!
//! The process ignores SIGPIPE, as programs in Rust do: the library writes to sockets without
//! preventing it. Kernel TLS is not used.

mod certificate;
mod context;
mod hello;
mod library;
mod session;

pub use self::certificate::Certificate;
pub use self::context::{Client, Found, Lookup, Psk, Server};
pub use self::hello::{Offer, offers};
pub use self::library::available;
pub use self::session::{Failed, Progress, RECORD, Session};

#[cfg(test)]
mod tests;
