//! Meaning of the bytes of NVMe: layouts, and nothing else.
//!
//! Registers, queue entries, commands, data structures and PCI capabilities of NVM Express Base
//! specification 2.1 ("Base 2.1"), NVM command set 1.1 ("NVM 1.1"), Key Value command set 1.1 ("KV
//! 1.1"), Zoned Namespace command set 1.1 ("ZNS 1.1"), NVMe over PCIe transport 1.1 ("PCIe 1.1")
//! and NVMe over TCP transport 1.1 ("TCP 1.1"), under the specification's own names.
//!
//! Invariants:
//! - Any bytes that a peer may send are a value of the type: enumerations are open (a number with
//!   named constants), reserved fields are kept as they came, and nothing here can panic on input.
//! - A field whose name ends in `_z` is 0's based: the number it stands for is one more.
//! - Layouts have no padding and are little-endian, so a structure is its bytes (`zerocopy`).
//!   Integers are native where the specification aligns them, and `zerocopy::little_endian` where
//!   it does not.
//!
//! Not included: checks of commands, state, and access to memory.

#![no_std]
#![forbid(unsafe_code)]
#![warn(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_lossless
)]

#[cfg(target_endian = "big")]
compile_error!("NVMe is little-endian, and the layouts of this crate use native integers");

#[macro_use]
mod open_enum;

pub mod ana;
pub mod authentication;
pub mod command;
pub mod copy;
pub mod cqe;
pub mod discovery;
pub mod event;
pub mod fabrics;
pub mod features;
pub mod firmware;
pub mod format;
pub mod identify;
pub mod key_value;
pub mod lba_status;
pub mod log;
pub mod namespace_management;
pub mod opcode;
pub mod pci;
pub mod protection;
pub mod prp;
pub mod registers;
pub mod reservation;
pub mod samsung;
pub mod sanitize;
pub mod sgl;
pub mod sqe;
pub mod status;
pub mod tcp;
pub mod zoned;

pub use cqe::Cqe;
pub use sqe::Sqe;
pub use status::Status;

/// Namespace identifier that stands for every namespace (Base 2.1, 3.2.1).
pub const NSID_ALL: u32 = 0xffff_ffff;
