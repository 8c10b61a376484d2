//! The Network Block Device protocol, as its server speaks it: negotiation, requests and replies.
//!
//! Terms and numbers are those of the protocol's specification (`doc/proto.md` of the NBD project).
//! A connection begins with [`Negotiation`] (fixed newstyle); then requests come ([`Request`]) and
//! replies go ([`Reply`]).
//!
//! Invariants: every length is checked before bytes of it are kept; a negotiation keeps at most
//! [`MAX_OPTION`] bytes of a client; no reply repeats a client's bytes, except the number of an
//! option and the cookie and offset of a request. There is no socket, clock or buffer of data here,
//! and no knowledge of drives.

#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]
#![warn(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_lossless
)]

mod bytes;
mod constants;
mod export;
mod fault;
mod negotiation;
mod reply;
mod request;

pub use self::constants::{Command, CommandFlags, Errno, ExtentState, TransmissionFlags};
pub use self::export::{BlockSizes, Export};
pub use self::fault::Fault;
pub use self::negotiation::{
    Agreed, MAX_ANSWER, MAX_OPTION, MAX_OPTIONS, MAX_SKIPPED, Negotiation, Outcome, Tls,
};
pub use self::reply::{Extent, Head, Reply, Style};
pub use self::request::{EXTENDED_REQUEST_LEN, MAX_PAYLOAD, REQUEST_LEN, Request};
