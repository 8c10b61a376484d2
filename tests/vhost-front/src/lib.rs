//! A vhost-user-blk front end with a virtio driver, for tests and benchmarks of back ends.
//!
//! It shares no code with the back end of this project, so that it is an oracle for it: messages
//! are those of the crate `vhost`, or raw bytes ([`Raw`]) where that crate has no message or
//! refuses to send a wrong one; the rings are written from VIRTIO 1.3, sections 2.7 (split) and
//! 2.8 (packed), and the requests from section 5.2.
//!
//! - [`Disk`] connects, starts the rings in QEMU's order of messages, does requests, stops, and
//!   reconnects to a back end that died.
//! - [`ring`] is the driver's side of a virtqueue; its memory may be written directly by tests that
//!   break rules.
//! - [`bench()`] measures one queue by polling.
//!
//! What this does NOT do: it emulates no PCI device and no IOMMU, and logs no written pages.

mod bench;
mod disk;
mod event;
mod guest;
mod protocol;
mod raw;
mod request;
pub mod ring;

pub use bench::{Load, Measured, bench};
pub use disk::{Completion, Disk, Options, Queue, Slots};
pub use event::Event;
pub use guest::{Guest, Region};
pub use protocol::{config, feature, protocol_feature, status};
pub use raw::{FLAG_NEED_REPLY, FLAG_REPLY, Message, Raw, VERSION, code};
pub use request::{Layout, Range, Request, SECTOR};

/// How long a back end may take for the answer of a message, a connection or a request.
pub const BOUND: std::time::Duration = std::time::Duration::from_secs(10);
