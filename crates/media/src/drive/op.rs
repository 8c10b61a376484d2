//! What a slot of a channel is doing at its drive, and what an answer of the drive means.

use std::num::NonZeroI32;

use memory::PinId;
use nvme_spec::Status;
use port::ticket::Parked;
use port::{Cause, Outcome};

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Compare,
    /// Compare and Write of `len` bytes.
    Fused {
        stage: Fused,
        len: u32,
    },
    /// Write Zeroes.
    Zeroes {
        deallocate: bool,
    },
    /// Write Zeroes by writing zeros.
    ZeroWrites,
    /// Dataset Management of this many ranges.
    Deallocate {
        ranges: u16,
    },
    Flush,
}

/// How far a Compare and Write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fused {
    /// What was written before is put onto the media.
    Commit,
    Compare,
    Write,
}

/// Ticks of the keeper, which is 4 s, that the drive may take for a command with data of a host's,
/// and that one may wait for a drive that is not there.
pub(super) const HANG_TICKS: u32 = 16;
/// Ticks, which is 20 s, that it may take for one without: flushing a large cache, or deallocating
/// much, takes drives seconds; and hosts wait for 30 s as a rule. No unmap waits for these.
pub(super) const SLOW_HANG_TICKS: u32 = 80;

impl Kind {
    /// How long the drive may take for a command of this, in ticks of the keeper.
    pub(super) fn hang_ticks(self) -> u32 {
        match self {
            Kind::Read | Kind::Write | Kind::Compare | Kind::ZeroWrites => HANG_TICKS,
            Kind::Fused { stage, .. } => match stage {
                Fused::Commit => SLOW_HANG_TICKS,
                Fused::Compare | Fused::Write => HANG_TICKS,
            },
            Kind::Zeroes { .. } | Kind::Deallocate { .. } | Kind::Flush => SLOW_HANG_TICKS,
        }
    }

    /// Bytes of the drive are read, and none is changed yet.
    pub(super) fn reads(self) -> bool {
        match self {
            Kind::Read | Kind::Compare => true,
            Kind::Fused { stage, .. } => stage != Fused::Write,
            _ => false,
        }
    }

    /// Bytes go to the drive or come from it.
    pub(super) fn moves(self) -> bool {
        !matches!(
            self,
            Kind::Flush | Kind::Deallocate { .. } | Kind::Zeroes { .. }
        )
    }

    /// Bytes of the drive may change.
    pub(super) fn changes(self) -> bool {
        !matches!(self, Kind::Read | Kind::Compare | Kind::Flush)
    }
}

#[derive(Debug)]
pub(super) struct Op {
    /// It touches bytes, and so may have to wait for others.
    pub(super) touches: bool,
    /// It stands in a row of those that are to be placed.
    pub(super) is_queued: bool,
    /// Its data does not go where it is: it is copied to or from memory of ours.
    pub(super) bounced: bool,
    /// In a slot that is in use.
    pub(super) ticket: Option<Parked>,
    pub(super) kind: Kind,
    pub(super) fua: bool,
    /// What the drive has not been asked for yet: bytes from the namespace's first.
    pub(super) offset: u64,
    pub(super) left: u64,
    /// Where in its data what is left begins.
    pub(super) cursor: Cursor,
    /// Commands at the drive.
    pub(super) outstanding: u16,
    /// The buffer of ours that its one command at the drive has, and how many bytes of its data are
    /// there.
    pub(super) bounce: Option<u16>,
    pub(super) round: u32,
    /// The first failure.
    pub(super) outcome: Outcome,
    /// When it came, or when the drive was last asked for something of it: in ticks of the keeper.
    pub(super) since: u32,
    /// The drive was asked to abort what it has of it.
    pub(super) is_aborted: bool,
    pub(super) pin: Option<PinId>,
}

/// A place in a command's data: the piece, and the byte of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) piece: u16,
    pub(super) within: u32,
}

impl Op {
    pub(super) fn idle() -> Self {
        Op {
            touches: false,
            is_queued: false,
            bounced: false,
            ticket: None,
            kind: Kind::Flush,
            fua: false,
            offset: 0,
            left: 0,
            cursor: Cursor::default(),
            outstanding: 0,
            bounce: None,
            round: 0,
            outcome: Outcome::OK,
            since: 0,
            is_aborted: false,
            pin: None,
        }
    }

    /// Whether something of it has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.outcome.cause != Cause::None
    }
}

/// It was given up with its queue, or the drive is not there: the same command may succeed when it
/// is sent again.
pub(super) const INTERRUPTED: Outcome = Outcome::status(Status::COMMAND_INTERRUPTED);

/// What is counted when the drive is lost.
pub(super) const GONE: Outcome = Outcome {
    cause: Cause::WriteFailed,
    os_error: NonZeroI32::new(libc::ENODEV),
    result: 0,
};

/// What a drive's answer to a part of a command means to the host.
///
/// A drive may say anything: what concerns its media and what may pass reaches the host as it is;
/// of the rest, which would tell of mistakes that a host cannot have made (everything was checked),
/// it is told that its bytes cannot be had.
pub(super) fn outcome_of(status: Status, kind: Kind) -> Outcome {
    /// Media and Data Integrity Errors (Base 2.1, 4.2.3.3).
    const MEDIA: u8 = 2;
    match status {
        Status::SUCCESSFUL_COMPLETION => Outcome::OK,
        Status::ABORTED_SQ_DELETION
        | Status::COMMAND_ABORT_REQUESTED
        | Status::COMMAND_INTERRUPTED => INTERRUPTED,
        Status::NAMESPACE_NOT_READY
        | Status::INTERNAL_ERROR
        | Status::FORMAT_IN_PROGRESS
        | Status::SANITIZE_IN_PROGRESS => Outcome::status(status),
        Status::CAPACITY_EXCEEDED => Outcome::of(Cause::NoSpace),
        _ if status.sct() == MEDIA => Outcome::status(status),
        _ if kind.reads() => Outcome::of(Cause::ReadFailed),
        _ => Outcome::of(Cause::WriteFailed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_see_what_concerns_them() {
        let of = |status| port::status::of(outcome_of(status, Kind::Read).cause).0;
        for (status, seen) in [
            (0x000, 0x000),
            // Unrecovered Read Error, and one of protection information.
            (0x281, 0x281),
            (0x282, 0x282),
            // Aborted by the deletion of a queue that the host does not know.
            (0x008, 0x021),
            (0x007, 0x021),
            // LBA Out of Range, Invalid Field, something of a vendor.
            (0x080, 0x281),
            (0x002, 0x281),
            (0x7c0, 0x281),
        ] {
            assert_eq!(of(Status(status)), seen, "{status:#x}");
        }
        let written = outcome_of(Status(0x080), Kind::Write);
        assert_eq!(written.cause, Cause::WriteFailed);
    }
}
