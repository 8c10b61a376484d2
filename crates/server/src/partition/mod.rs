//! Partitions: persistent, named parts of a drive or file, which namespaces refer to by name.
//!
//! The partitions of a drive are in its [`Table`]; the table is saved in a [`Store`], a file in the
//! state folder that is identified by the drive's serial number, and not by the drive's address.
//!
//! Invariants:
//! - A partition's start never changes. It is a multiple of 1 MiB, and no two partitions overlap.
//! - A change is on stable storage before it takes effect.
//!
//! This module neither opens drives nor writes to them: a drive carries no trace of its partitions.

mod store;
mod table;

pub use store::{Store, stored};
pub use table::{Owner, Table, Taken};
