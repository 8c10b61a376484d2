//! Linux's ublk driver: a process serves a block device of its own machine, `/dev/ublkbN`.
//!
//! Terms and numbers are those of the kernel's `include/uapi/linux/ublk_cmd.h` and of "Userspace
//! block device driver" in its documentation. [`Control`] adds, starts, recovers and deletes
//! devices by `/dev/ublk-control`. A [`Device`] is the server's end of one, `/dev/ublkcN`, and a
//! [`Ring`] takes its requests by io_uring and commits their results.
//!
//! ```text
//! Control::add, set_parameters   Device::open   Ring::new, fetch, map   Control::start
//!                                                  take <-> commit
//! ```
//!
//! Invariants:
//! - The thread that makes a [`Ring`] is its only one: the driver takes no command of another.
//! - Memory that the kernel may write belongs to the ring, or is leaked.
//! - A call of [`Control`] ends within its bound. No call of [`Ring`] waits.
//! - Unsafe code is in `control`, `device` and `ring`.
//!
//! What it does not do: it reads and writes no data of a drive, and decides about no device.

#![deny(unsafe_op_in_unsafe_fn)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

mod abi;
mod control;
mod device;
mod ring;

pub use self::abi::{
    Attributes, Basic, Descriptor, DeviceInfo, Discard, Features, MAX_BUFFER, MAX_TAGS, Operation,
    Parameters, RequestFlags, SECTOR, State, Zone, Zoned,
};
pub use self::control::{CONTROL, Control, Error, SHORT};
pub use self::device::{Device, path_of_device, path_of_disk};
pub use self::ring::{Event, Ring};
