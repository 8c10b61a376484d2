//! Which of two servers has the media of a controller that may move.

use std::fmt;

/// The media of one controller, which no other controller of this server uses.
///
/// Two servers have them open, and at any time at most one has their locks. The controller issues
/// no command while this server has not.
pub trait Custody: fmt::Debug + Send + Sync {
    /// Whether this server has the locks.
    fn is_here(&self) -> bool;

    /// Where the media are, for the server that is to have them next.
    fn place(&self) -> String;

    /// Whether media at that place can be these.
    ///
    /// # Errors
    /// They are others, as far as that can be known here.
    fn compare(&self, place: &str) -> Result<(), String>;

    /// Begins to make durable what was written, on another thread. [`Self::synced`] has the result.
    fn begin_sync(&self);

    /// The result, once: `None` before the end.
    fn synced(&self) -> Option<Result<(), String>>;

    /// Releases the locks. Does not block.
    fn release(&self);

    /// Takes all locks, or none. Does not block; does nothing where they are here.
    ///
    /// # Errors
    /// The reason: another server has one, or the medium has changed its size.
    fn claim(&self) -> Result<(), String>;
}
