//! A host's access to a controller: the vfio-user server and the NVMe/TCP target.
//!
//! A transport turns messages from a socket into calls of [`controller::Controller`], and the
//! controller's interrupts into signals to the host. It belongs to the reactor that serves the
//! controller, which polls it.
//!
//! Invariants: nothing here blocks, keeps a thread or reads a clock; nothing that a host sends
//! panics or allocates without a bound; a host's mistake is answered with an error and never logged
//! above debug.
//!
//! Not included: this crate executes no command. Over vfio-user no I/O command passes through it:
//! the controller's lanes fetch those from the host's memory. Over NVMe/TCP it judges the data
//! pointer of a command, and stores the command in private memory for the lanes.

#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

mod eventfd;
mod host;
pub mod nbd;
pub mod nvme_tcp;
pub mod secure;
pub mod ublk;
pub mod vfio_user;
pub mod vhost_user;
