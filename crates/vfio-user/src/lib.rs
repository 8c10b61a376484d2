//! The vfio-user protocol: codec, framing and descriptor passing for both sides.
//!
//! The reading order is [`header`] (the 16 bytes before every message), [`message`] (the bodies,
//! one module per group), [`Connection`] (whole messages over a non-blocking UNIX stream socket),
//! [`Client`] (a blocking client built on it), [`Listener`] (a server's listening socket), and
//! [`relayed`] (connections behind a process that holds them).
//!
//! Invariants:
//! - Nothing that a peer sends panics, blocks, or allocates more than [`MAX_MESSAGE_LEN`] for
//!   receiving and [`SEND_BACKLOG_LEN`] for sending, per connection.
//! - A descriptor belongs to the message whose bytes it arrived with, and is closed when dropped.
//! - An error is local to one message unless the framing itself is lost.
//!
//! Not included: NVMe and other knowledge of a device, a memory map, mapping memory, and sessions.
//! It implements neither migration data nor the twin-socket mode, and it sends no
//! `REGION_WRITE_MULTI`.
//!
//! Section names in comments are those of the "vfio-user Protocol Specification" (QEMU,
//! `docs/interop/vfio-user.rst`). All fields are in the machine's byte order, as specified.

#![forbid(unsafe_code)]

mod backlog;
mod client;
mod connection;
pub mod header;
mod listener;
pub mod message;
mod migrate;
mod parting;
pub mod relayed;

pub use client::{Client, ClientError, Region, Reply};
pub use connection::{Connection, ConnectionError, Message};
pub use header::{Command, Header};
pub use listener::{BindError, Listener};
pub use message::Malformed;
pub use parting::Parting;

/// Length of the header before every message, in bytes.
pub const HEADER_LEN: usize = 16;

/// Data that one `REGION_READ`, `REGION_WRITE`, `DMA_READ` or `DMA_WRITE` carries at most, in
/// bytes: the protocol's default for `max_data_xfer_size`.
pub const MAX_DATA_XFER_LEN: usize = 1 << 20;

/// Length of the longest fixed part of a body that precedes data (DMA_LOGGING_REPORT), in bytes.
const MAX_BODY_HEAD_LEN: usize = 32;

/// The largest message either side accepts, in bytes: a header, the head of an access and 1 MiB
/// of data, rounded up to a page of 4 KiB.
pub const MAX_MESSAGE_LEN: usize =
    (HEADER_LEN + MAX_BODY_HEAD_LEN + MAX_DATA_XFER_LEN).next_multiple_of(4096);

/// Descriptors that one message carries at most; the control buffer is sized for it.
pub const MAX_FDS: usize = 16;

/// Bytes that a connection keeps at most for a peer that does not read.
pub const SEND_BACKLOG_LEN: usize = 4 * MAX_MESSAGE_LEN;

/// Descriptors that a connection keeps at most for a peer that does not read.
pub const SEND_BACKLOG_FDS: usize = 4 * MAX_FDS;
