//! The commands of a process that died which have not gone on yet.
//!
//! It does NOT decide how one goes on, or do it: [`super::restore`] does.

use std::collections::VecDeque;

use nvme_spec::{Sqe, Status};

/// A command of the process that died.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay {
    pub(super) slot: u16,
    pub(super) way: Way,
}

/// How it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Its completion was being written: it is written again.
    Post,
    /// It is executed again.
    Again,
    /// As well; a channel was full, and parts of it may be with media.
    Begun,
    /// It ends with this status.
    End(Status),
}

/// Those commands.
#[derive(Debug, Default)]
pub(super) struct Replays {
    /// In the order in which they go on.
    pub(super) left: VecDeque<Replay>,
    /// Those that read, which follow when all lanes have written: a process that is killed while it
    /// copies into memory leaves half of a block, until the write is executed again, on whatever
    /// lane. Copies come before those that only read.
    pub(super) late: VecDeque<Replay>,
    /// The process has died by its own fault, perhaps by one of them.
    pub(super) suspected: bool,
    /// Those that do not go on because it may have died by them twice, each with its status.
    pub(super) accused: Vec<(Sqe, Status)>,
}
