//! How a host reaches a controller: the vfio-user server.
//!
//! A transport turns what arrives on a socket into calls of [`controller::Controller`], and the
//! controller's interrupts into what the host waits for. It belongs to the reactor that serves the
//! controller and is polled by it.
//!
//! Invariants: nothing here blocks, keeps a thread or reads a clock; nothing that a host sends
//! panics or allocates without a bound; a host's mistake is answered to it and never logged above
//! debug.
//!
//! What this crate does NOT do: it knows no NVMe command, and no I/O command passes through it:
//! those are fetched from the host's memory by the controller's lanes.

#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

pub mod vfio_user;
