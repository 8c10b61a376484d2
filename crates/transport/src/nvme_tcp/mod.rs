//! The NVMe/TCP target: hosts that reach a controller over sockets.
//!
//! [`Newcomer`] is a connection that has not sent a whole Connect command, [`Arrival`] one whose
//! Connect is there, and [`Association`] one host: its admin queue, its I/O queues and their
//! connections. [`Farewell`] is a connection that is to close. The reading order is `connection`
//! (bytes), `connect` (the Connect command), `commands` and `judge` (one command), `queue` (one
//! queue), `association` (one host).
//!
//! An association is the host of an ordinary controller: it has private memory, which the
//! controller sees as its host's, with the rings of all queues and with slots for data. A command
//! that arrived becomes an entry of a private submission queue, and an entry of a private
//! completion queue becomes an answer. The controller does not know of sockets.
//!
//! Invariants:
//! - Nothing here blocks, reads a clock, or allocates or logs per command.
//! - Everything that a host sends is checked before it is stored: a fault of a command is its
//!   status, a fault of the framing ends its connection.
//! - Memory is bounded: a newcomer has [`NEWCOMER_INPUT`] bytes; an association has one input of
//!   [`INPUT`] bytes for each queue, its rings, a small slot for each entry of a queue, and at most
//!   [`TargetConfig::slots`] bytes of large slots. A page is used when data first come there, or
//!   when a medium registers the memory, which takes all at once; it stays until the association
//!   ends, as no medium sees a page replaced that it has registered or pinned.
//! - A large slot is never waited for by a command that has one, so waiting ends.
//!
//! A queue whose lane lives on another reactor than the controller is served there as a [`Branch`],
//! which its association gives away and gets back.
//!
//! [`DiscoverySession`] is a connection to the discovery controller, which has no namespaces and is
//! no controller of a subsystem.
//!
//! A host that [`Access`] has secrets for proves that it knows them before anything else of its
//! association is served. The powers that this needs are computed by another thread ([`Powers`]).
//! One that it has a key of TLS for comes through TLS ([`Greeting`]): another thread does the
//! handshake ([`crate::secure`]), and the bytes of a `Connection` are a `Stream`. One that has a
//! secret may make such a key with its controller in its exchange ([`GeneratedKeys`]): that
//! connection serves nothing else, and the host comes again through TLS.
//!
//! Not included: listening sockets.

mod access;
mod association;
mod authentication;
mod branch;
mod cids;
mod commands;
mod connect;
mod connection;
mod counters;
mod discovery;
mod entry;
mod generated;
mod greeting;
mod judge;
mod newcomer;
mod output;
mod pace;
mod peer;
mod proof;
mod properties;
mod queue;
mod remains;
mod secure;
mod sizes;
mod slots;

pub use nvme_spec::tcp::Digests;
pub use tls::available as tls_available;

pub use self::access::{Access, Allowed, Keys};
pub use self::association::Association;
pub use self::authentication::{Job, Powers, powers};
pub use self::branch::Branch;
pub use self::connect::{Host, Refusal};
pub use self::connection::{End, INPUT, NEWCOMER_INPUT};
pub use self::counters::Counters;
pub use self::discovery::{Channel, DiscoveryLog, DiscoverySession, Listed};
pub use self::generated::GeneratedKeys;
pub use self::greeting::{Greeted, Greeting, Next};
pub use self::newcomer::{Arrival, Farewell, Newcomer, Progress};
pub use self::pace::Polled;
pub use self::proof::Proof;
pub use self::secure::Tls;

/// Common state of the associations of one entrance.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Name in the log.
    pub name: String,
    /// NVM Subsystem NQN.
    pub subnqn: String,
    /// Name of the discovery subsystem, beside the well-known one.
    pub discovery_nqn: String,
    /// Hosts that may connect, and what they prove.
    pub access: Access,
    /// TLS, where some of them have keys or may make them: each connection is then a [`Greeting`]
    /// first.
    pub tls: Option<Tls>,
    /// I/O queues of a host at most, as its controller has them.
    pub queues: u16,
    /// Entries of an I/O queue at most, as its controller has them.
    pub queue_depth: u16,
    /// Bytes that one command may move, as its controller has them.
    pub max_transfer: u32,
    /// Bytes of data in a command capsule of an I/O queue at most.
    pub in_capsule: u32,
    /// Digests that may be used.
    pub digests: Digests,
    /// When data to a host stand for the completion of their command.
    pub success: Success,
    /// Bytes of large data slots of one association at most; one slot is there in any case.
    pub slots: u64,
}

/// When data to a host stand for the completion of their command, which then has no response
/// capsule (TCP 1.1, 3.3.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Success {
    /// Where the host has disabled SQ flow control: a response would only carry the head.
    #[default]
    AsSpecified,
    /// For every command that succeeded with a Dword 0 of 0.
    Always,
}
