//! State of a channel's slot, its operations in the kernel, and the translation of their errors.

use std::num::NonZeroI32;

use nvme_spec::Status;
use port::ticket::Parked;
use port::{Cause, Outcome, Request};
use rustix::fs::FallocateFlags;

use super::Clear;

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
    /// Write Zeroes by a request to the file system or device.
    Clear {
        how: Clear,
        deallocate: bool,
    },
    /// Write Zeroes by writing zeros.
    Zeros,
    /// Deallocate, from range `next` of the slot on.
    Deallocate {
        next: usize,
        ranges: usize,
    },
    /// A flush, or the durable end of a Write Zeroes.
    Sync,
}

/// Stage of a Compare and Write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fused {
    /// Flushing earlier writes to the media.
    Commit,
    Compare,
    Write,
}

#[derive(Debug)]
pub(super) struct Op {
    /// It touches bytes, and so may have to wait.
    pub(super) touches: bool,
    /// In a slot that is in use.
    pub(super) ticket: Option<Parked>,
    pub(super) kind: Kind,
    /// Remaining range.
    pub(super) offset: u64,
    pub(super) left: u64,
    pub(super) fua: bool,
    /// Whether the data goes through the bounce buffer.
    pub(super) bounced: bool,
    /// Whether it runs in slices that are made durable together after the last one.
    pub(super) sliced: bool,
    pub(super) repeats: u8,
}

impl Kind {
    /// Whether the operation reads bytes of the file and has not changed any yet.
    pub(super) fn reads(self) -> bool {
        match self {
            Kind::Read | Kind::Compare => true,
            Kind::Fused { stage, .. } => stage != Fused::Write,
            _ => false,
        }
    }

    /// Whether the operation moves bytes to or from the file.
    pub(super) fn moves(self) -> bool {
        !matches!(
            self,
            Kind::Sync | Kind::Clear { .. } | Kind::Deallocate { .. }
        )
    }

    /// Whether the operation changes bytes of the file.
    pub(super) fn changes(self) -> bool {
        !(self.reads() || self == Kind::Sync)
    }
}

impl Op {
    pub(super) fn idle() -> Self {
        Op {
            touches: false,
            ticket: None,
            kind: Kind::Sync,
            offset: 0,
            left: 0,
            fua: false,
            bounced: false,
            sliced: false,
            repeats: 0,
        }
    }
}

/// An operation for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Io {
    Read {
        into: Buffer,
        offset: u64,
    },
    /// `durable`: ends only when the bytes, and the metadata needed to find them, are on the media.
    Write {
        from: Buffer,
        offset: u64,
        durable: bool,
    },
    Fallocate {
        mode: FallocateFlags,
        offset: u64,
        len: u64,
    },
    /// Makes all earlier written data, and the metadata needed to find it, durable.
    Sync,
}

/// The memory of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffer {
    /// The slot's segments from its cursor on, as many as the kernel accepts at once.
    Segments,
    /// This many bytes of the slot's bounce buffer.
    Bounce(u32),
    /// This many zeros.
    Zeros(u32),
}

impl Io {
    /// Whether rings that poll the device accept the operation.
    pub(super) fn is_polled_for(self) -> bool {
        matches!(self, Io::Read { .. } | Io::Write { durable: false, .. })
    }
}

/// Whether a failure of the request counts as a read failure.
pub(super) fn request_reads(request: &Request<'_>) -> bool {
    matches!(
        request,
        Request::Read { .. } | Request::Compare { .. } | Request::CompareAndWrite { .. }
    )
}

/// The outcome for an errno.
pub(super) fn failed(reads: bool, errno: i32) -> Outcome {
    let cause = match errno {
        _ if reads => Cause::ReadFailed,
        // EFBIG: the file system's limit on file sizes, or this process's (RLIMIT_FSIZE).
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Cause::NoSpace,
        _ => Cause::WriteFailed,
    };
    Outcome {
        cause,
        os_error: NonZeroI32::new(errno),
        ..Outcome::OK
    }
}

/// The outcome for an error of a data operation. A read-only file system reports EROFS, a read-only
/// device EPERM.
pub(super) fn moved_wrong(reads: bool, errno: i32) -> Outcome {
    let outcome = failed(reads, errno);
    match errno {
        libc::EROFS | libc::EPERM if !reads => Outcome {
            cause: Cause::Status(Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE),
            ..outcome
        },
        _ => outcome,
    }
}
