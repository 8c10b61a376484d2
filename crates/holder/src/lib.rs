//! The process that keeps the sockets of a server's hosts, and replaces the server's process.
//!
//! A host of vfio-user that loses its server loses its drive: neither QEMU nor cloud-hypervisor
//! connects again. So a small process of ours is the host's peer ([`hold`]). It owns the listening
//! and the connected sockets and relays whole messages to the server's process, its **worker**.
//! When that dies, it starts another one, tells it what the host has set up, and gives it the
//! requests that have no reply yet. The worker's side is [`Holder`].
//!
//! The reading order is [`hold`], `hold/session` (one host), `hold/known` (what another worker must
//! know of it), `wire` (the messages between holder and worker).
//!
//! Invariants:
//! - A host gets one reply to each request; a worker gets each request at least once.
//! - Nothing that a host or a worker sends panics or blocks the holder, and what it keeps is
//!   bounded.
//!
//! Not included: it knows no NVMe but the one register that says that a controller has failed,
//! opens no medium, and starts no thread.
#![forbid(unsafe_code)]

mod hold;
mod wire;
mod worker;

pub use hold::{Ended, HoldError, hold, monotonic};
pub use wire::Malformed;
pub use worker::{Before, Holder, HolderError, Program};
