//! The machine that the program runs on: its clock, processors and their topology, its QEMU, its
//! NVMe/TCP initiator, its NBD clients, and its monitors of guests with vhost-user disks.
//!
//! It does NOT change the machine, except for the processors that a thread of ours may use.
#![forbid(unsafe_code)]

pub mod clock;
pub mod cpu;
pub mod files;
pub mod image;
pub mod initiator;
pub mod nbd;
pub mod qemu;
pub mod secret;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests")]
pub mod testing;
pub mod topology;
pub mod ublk;
pub mod vhost_user;
