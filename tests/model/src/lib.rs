//! Random programs of valid and invalid commands, run by a controller and by a model of one.
//!
//! The model is written from the specification with numbers typed from it, and shares nothing with
//! the controller, not even the crate that knows the layout of the bytes. It predicts the status of
//! every command, Dword 0 where it is defined, and all data; where the specification leaves open
//! which of several errors the controller reports, the model accepts any of them.
//!
//! - [`program`]: what programs are made of, and how they are drawn;
//! - [`model`]: what must come of them;
//! - [`host`]: registers, rings and buffers, in bytes;
//! - [`machine`]: runs a program on both and compares.
//!
//! It does NOT try races: each command ends before the next begins, except in bursts of commands
//! that concern different blocks. Statuses that depend on what a medium does are the lane's own
//! tests.

pub mod host;
pub mod machine;
pub mod model;
pub mod program;
pub mod wire;

/// The namespaces of the drive: identifier, first byte in the medium, bytes, size of a block as a
/// power of two. They touch each other, so that what misses one hits another.
pub const NAMESPACES: [(u32, u64, u64, u8); 3] = [
    (1, 0, 128 << 10, 9),
    (2, 128 << 10, 256 << 10, 12),
    (5, 384 << 10, 48 << 10, 9),
];
/// The highest namespace identifier that is valid (NN).
pub const NAMESPACE_LIMIT: u32 = 8;
/// Bytes that one command may move (MDTS): eight pages.
pub const TRANSFER_MAX: u32 = 32 << 10;
/// I/O queue pairs.
pub const QUEUES: u16 = 4;
/// Entries of an I/O queue at most.
pub const QUEUE_DEPTH: u16 = 64;
