//! A host of a controller inside this process: what every such host has, whatever speaks through
//! it.
//!
//! It has private memory at [`BASE`], in which the rings of its queues lie ([`Rings`]), and
//! commands of its own that make and delete I/O queues ([`Step`]). It does NOT know where commands
//! come from and what their data are.

mod entries;
mod identity;
mod opening;
mod registers;
mod rings;
mod steps;
mod zones;

pub(crate) use self::entries::{Blocks, Entries};
pub(crate) use self::identity::Identity;
pub(crate) use self::opening::{ADMIN_LEN, Failed, Opening, QID};
pub(crate) use self::registers::{point, state};
pub(crate) use self::rings::{BASE, Bells, PAGE, Rings, rings_len};
pub(crate) use self::steps::{Step, command};
pub(crate) use self::zones::{REPORT_UNIT, Zones, reported};
