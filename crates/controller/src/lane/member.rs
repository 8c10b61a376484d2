//! A submission queue in its lane, with what the lane keeps about its commands.

use crate::queue::Sq;

/// A submission queue of the lane.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) sq: Sq,
    /// Commands fetched and not completed.
    pub(super) outstanding: u32,
    /// The slot of the command that found its channel full. Nothing behind it is fetched.
    pub(super) waiting: Option<u16>,
    /// Being deleted.
    pub(super) removing: bool,
    /// Number of commands that may be fetched in a turn.
    pub(super) quota: u32,
}
