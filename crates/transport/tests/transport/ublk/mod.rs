//! Block devices of the machine: requests, zones and ends of a session whose kernel is a double.
//!
//! The double keeps the rules of `drivers/block/ublk_drv.c`, and panics where the session does not:
//! where it commits what it does not have, or twice. Expectations come from
//! `include/uapi/linux/ublk_cmd.h` and `blkzoned.h`, and from plain arrays.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

mod kernel;
mod life;
mod requests;
mod rig;
mod streams;
mod zones;
