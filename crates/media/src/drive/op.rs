//! State of a channel's slot, and the translation of the drive's answers.

use std::num::NonZeroI32;

use memory::PinId;
use nvme_spec::Status;
use port::ticket::Parked;
use port::{Cause, Outcome};

/// Operation of a slot.
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
    /// Write Zeroes by writes of zeros.
    ZeroWrites,
    /// Dataset Management of this many ranges.
    Deallocate {
        ranges: u16,
    },
    Flush,
}

/// Stage of a Compare and Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fused {
    /// Flushing earlier writes to the media.
    Commit,
    Compare,
    Write,
}

/// Ticks, 4 s in all, that the drive may take for a command with host data, and that a command may
/// wait for an absent drive.
pub(super) const HANG_TICKS: u32 = 16;
/// Ticks, 20 s in all, for a command without data: flushing a large cache, or deallocating much,
/// takes drives seconds, and hosts usually wait for 30 s. No unmap waits for these commands.
pub(super) const SLOW_HANG_TICKS: u32 = 80;

impl Kind {
    /// Ticks that the drive may take for a command of this operation.
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

    /// Whether the operation reads bytes of the drive and has not changed any yet.
    pub(super) fn reads(self) -> bool {
        match self {
            Kind::Read | Kind::Compare => true,
            Kind::Fused { stage, .. } => stage != Fused::Write,
            _ => false,
        }
    }

    /// Whether bytes move to or from the drive.
    pub(super) fn moves(self) -> bool {
        !matches!(
            self,
            Kind::Flush | Kind::Deallocate { .. } | Kind::Zeroes { .. }
        )
    }

    /// Whether bytes of the drive may change.
    pub(super) fn changes(self) -> bool {
        !matches!(self, Kind::Read | Kind::Compare | Kind::Flush)
    }
}

#[derive(Debug)]
pub(super) struct Op {
    /// It touches bytes, and so may have to wait for others.
    pub(super) touches: bool,
    /// Whether it is in a row of requests to be placed.
    pub(super) is_queued: bool,
    /// Whether its data goes through a bounce buffer.
    pub(super) bounced: bool,
    /// In a slot that is in use.
    pub(super) ticket: Option<Parked>,
    pub(super) kind: Kind,
    pub(super) fua: bool,
    /// Remaining part that the drive has not been asked for, in bytes from the namespace's first.
    pub(super) offset: u64,
    pub(super) left: u64,
    /// Position of the remaining part in its data.
    pub(super) cursor: Cursor,
    /// Commands at the drive.
    pub(super) outstanding: u16,
    /// Bounce buffer of its one command at the drive, and the number of data bytes in it.
    pub(super) bounce: Option<u16>,
    pub(super) round: u32,
    /// The first failure.
    pub(super) outcome: Outcome,
    /// Tick of its arrival, or of its latest command to the drive.
    pub(super) since: u32,
    /// Whether the drive was asked to abort its commands.
    pub(super) is_aborted: bool,
    pub(super) pin: Option<PinId>,
}

/// A position in a command's data: the piece, and the byte in it.
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

    /// Whether a part of it has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.outcome.cause != Cause::None
    }
}

/// Aborted with its queue, or the drive is absent: the same command may succeed when retried.
pub(super) const INTERRUPTED: Outcome = Outcome::status(Status::COMMAND_INTERRUPTED);

/// Outcome counted when the drive is lost.
pub(super) const GONE: Outcome = Outcome {
    cause: Cause::WriteFailed,
    os_error: NonZeroI32::new(libc::ENODEV),
    result: 0,
};

/// Translates a drive's status for a part of a command into the host's status.
///
/// A drive may return any status. Media errors and transient errors reach the host unchanged. Other
/// statuses would report mistakes that a host cannot have made, because everything was checked, so
/// the host gets a media error for its data.
pub(super) fn outcome_of(status: Status, kind: Kind) -> Outcome {
    /// Media and Data Integrity Errors (Base 2.1, 4.2.3.3).
    const MEDIA: u8 = 2;
    match status {
        Status::SUCCESSFUL_COMPLETION => Outcome::OK,
        Status::ABORTED_SQ_DELETION
        | Status::COMMAND_ABORT_REQUESTED
        | Status::COMMAND_INTERRUPTED
        | Status::TRANSIENT_TRANSPORT_ERROR
        // The target may be reached later, or have the namespace again.
        | Status::INTERNAL_PATH_ERROR
        | Status::ASYMMETRIC_ACCESS_INACCESSIBLE
        | Status::ASYMMETRIC_ACCESS_TRANSITION
        | Status::CONTROLLER_PATHING_ERROR
        | Status::HOST_PATHING_ERROR => INTERRUPTED,
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
            // A wrong digest; asymmetric access: inaccessible, lost for good; the host's path.
            (0x022, 0x021),
            (0x302, 0x021),
            (0x301, 0x281),
            (0x370, 0x021),
            // Aborted by the host.
            (0x371, 0x281),
            // Unrecovered Read Error, and an error of protection information.
            (0x281, 0x281),
            (0x282, 0x282),
            // Aborted by the deletion of a queue, which the host does not know about.
            (0x008, 0x021),
            (0x007, 0x021),
            // LBA Out of Range, Invalid Field, a vendor's status.
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
