//! A block device of the machine itself, which Linux's ublk driver presents and a namespace of a
//! controller backs.
//!
//! A [`Session`] is the server's side of one device. It is the host of an ordinary controller: it
//! has private memory with the rings of an admin and an I/O queue, and a buffer for each tag of the
//! device. A request of the driver becomes one command whose data lie in the buffer of its tag, and
//! its completion becomes the request's result. The kernel copies between that buffer and the pages
//! of a request.
//!
//! Invariants:
//! - Nothing here blocks, reads a clock, or allocates or logs per request.
//! - A tag has one request at a time, and its request one command: limits of the device see to
//!   that.
//!
//! What it does not do: it adds, starts and deletes no device. The receiver of [`News`] does.

mod counters;
mod disk;
mod end;
mod requests;
mod session;
mod work;
mod zones;

pub use self::counters::Counters;
pub use self::disk::{Disk, MAX_IO, TAGS, disk};
pub use self::end::End;
pub use self::requests::Requests;
pub use self::session::{News, Polled, Session};

/// Entries of the I/O queue of a device's controller. Its configuration must have them.
pub const QUEUE_DEPTH: u16 = 1024;
/// I/O queues of a device's controller. Its configuration must have them.
pub const QUEUES: u16 = 1;

// The submission queue has room for the commands of all tags.
const _: () = assert!(TAGS < QUEUE_DEPTH);
