//! Hosts that mean harm to a drive that they share with others, and drives that lie to their host.
//!
//! Two hosts have a controller each, on one engine, whose namespaces are parts of one drive. The
//! drive is a [`Witness`]: a second, small reading of the specification with an address space of
//! its own. It looks at every entry that it finds in its queues, and writes down what must never
//! come: another command than those that mediated pass-through makes, a block outside every part,
//! one host's block with another host's memory, an address that nothing was mapped at.
//!
//! Not included: threads, clocks and sockets; a run repeats exactly.

mod drive;
mod host;
mod world;

pub use drive::{Identity, Lie, Witness};
pub use host::{Completion, Host, Meddler, Words, command};
pub use world::{Tenant, World, size_of};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a logical block.
pub const BLOCK: u64 = 512;
/// Bytes of the drive.
pub const DRIVE_LEN: u64 = 1 << 20;
/// Where each host's part of the drive begins and ends: with a gap before, between and behind them.
pub const PARTS: [std::ops::Range<u64>; 2] = [128 << 10..384 << 10, 640 << 10..896 << 10];
/// Byte of drive blocks that were never written.
pub const UNTOUCHED: u8 = 0xa5;
