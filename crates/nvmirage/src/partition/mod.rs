//! Partitions: named parts of a drive, or of a file, that last and that namespaces name.
//!
//! What is known of the partitions of one drive is its [`Table`]; where that is kept between runs
//! is its [`Store`], a file in the state folder that belongs to the drive's serial number and not
//! to where the drive is found.
//!
//! Invariants:
//! - A partition's start never changes. It begins at a multiple of 1 MiB, and no two have a byte in
//!   common.
//! - A change is on stable storage before anybody acts on it.
//!
//! What it does NOT do: open drives, or write anything to them: a drive has no mark of its
//! partitions.

mod store;
mod table;

pub(crate) use store::{Store, stored};
pub(crate) use table::{Owner, Partition, Table, Taken};
