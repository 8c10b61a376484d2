//! The vhost-user protocol, as its back end speaks it, and the virtio block device: messages,
//! features, the configuration space and requests.
//!
//! Terms and numbers are those of "Vhost-user Protocol" (QEMU's documentation) and of Virtual I/O
//! Device (VIRTIO) 1.3, section 5.2. A connection is a sequence of messages: each begins with a
//! [`Header`], and its body is read by [`Message::parse`].
//!
//! Invariants: every length is checked before bytes of it are kept, and a body has at most
//! [`MAX_BODY`] bytes. There is no socket, descriptor, clock or ring here, and no knowledge of
//! drives.

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

pub mod block;
mod bytes;
mod constants;
mod fault;
mod features;
mod header;
mod message;
pub mod zones;

pub use self::constants::{BackendRequest, Request};
pub use self::fault::Fault;
pub use self::features::{Features, ProtocolFeatures};
pub use self::header::{HEADER_LEN, Header};
pub use self::message::{
    ConfigAccess, Inflight, MAX_BODY, MAX_CONFIG, MAX_FDS, MAX_TABLE, Message, Region, VringAddr,
    VringFd, VringState,
};
