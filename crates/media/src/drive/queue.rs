//! A queue pair of the drive as it goes between the keeper, which creates and deletes it, and its
//! channel, which submits commands.
//!
//! The drive may write to the memory of a queue pair until the keeper has deleted the queue.

use std::sync::Arc;

use driver::QueuePair;
use driver::bus::Bus;
use memory::{Bell, Buffer};

/// Commands of a queue pair per tick from which on a reactor that does not sleep counts as busy: an
/// interrupt for each costs more than masking and unmasking them.
pub(super) const BUSY_COMMANDS: u32 = 256;
/// Number of bounce buffers of a queue pair, and bytes of each.
pub(super) const BOUNCES: u16 = 32;
pub(super) const BOUNCE_BYTES: u32 = 64 << 10;

/// A queue pair with the memory that its commands may use. The memory lives as long as the queue,
/// because the drive may write to it until the queue is deleted.
pub(super) struct Queue<B: Bus> {
    pub(super) pair: QueuePair<B>,
    pub(super) bounce: Vec<Buffer>,
    /// A page of zeros.
    pub(super) zeros: Buffer,
    pub(super) wakes: Wakes,
    /// Present if a relay brings its completions: a channel that sleeps notes that here.
    pub(super) bell: Option<Arc<Bell>>,
}

/// Whether completions of a queue pair wake its channel's reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wakes {
    /// The drive's interrupt can do so on request.
    Can,
    /// The interrupt is enabled.
    Does,
    /// The drive has no interrupt for it.
    Cannot,
}
