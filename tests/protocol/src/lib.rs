//! The vfio-user server as a host sees it: in bytes, message by message.
//!
//! [`Server`] runs controllers of ours on a thread, as a reactor of the program does; [`Host`] is
//! the other end of the socket and knows only bytes; [`Drive`] is the least of an NVMe driver, for
//! what needs commands in flight. Each file under `tests/protocol/` is about one message; each test
//! runs twice, for hosts that connect to the server and for those that connect to a holder;
//! `replay.rs` is about a whole session of QEMU, and `cloud_hypervisor_client.rs` about a client
//! that is not ours.
//!
//! Expectations are numbers of the specification, not of the code under test: a body is built and
//! taken apart by [`Body`], never by the codec that the server uses.

pub mod drive;
pub mod held;
pub mod host;
pub mod lock;
pub mod recording;
pub mod server;

pub use drive::Drive;
pub use host::{Body, Host, Reply, cmd, errno, wait_for};
pub use server::{Door, Options, Server};
