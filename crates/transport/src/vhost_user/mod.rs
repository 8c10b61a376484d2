//! The back end of vhost-user-blk: front ends that reach one namespace of a controller through the
//! rings of a virtio block device.
//!
//! A [`Session`] is one front end. It is the host of an ordinary controller: it has private memory
//! with the rings of an admin and an I/O queue and with lists of pieces, and the guest's memory
//! lies in the same map, at the guest's own addresses. A request of a ring becomes commands whose
//! data lie in the guest's memory, and their completions become its outcome: data are not copied.
//!
//! Invariants:
//! - Nothing here blocks, reads a clock, or allocates or logs per request.
//! - Memory that a guest can change is read once, and only the copy is checked and used.
//! - A ring that breaks a rule stops until the front end starts it again; the others go on.
//!
//! It does not listen at a socket.

mod config;
mod connection;
mod counters;
mod disk;
mod end;
mod entry;
mod kicks;
mod news;
mod protocol;
mod queue;
mod regions;
mod replies;
mod request;
mod ring;
mod ring_set;
mod session;
mod waiting;
mod work;
mod zones;

pub use self::counters::Counters;
pub use self::disk::{Disk, disk};
pub use self::end::End;
pub use self::session::{Polled, Session};

/// Entries of the I/O queue of a front end's controller. Its configuration must have them.
pub const QUEUE_DEPTH: u16 = 1024;
/// I/O queues of a front end's controller. Its configuration must have them.
pub const QUEUES: u16 = 1;
/// Rings of a device.
pub const RINGS: usize = 64;
