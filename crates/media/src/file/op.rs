//! What a slot of a channel is doing, what it asks of the kernel, and what an error of that means.

use std::num::NonZeroI32;

use nvme_spec::Status;
use port::ticket::Parked;
use port::{Cause, Outcome, Request};
use rustix::fs::FallocateFlags;

use super::Clear;

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
    /// Write Zeroes by a request to the file system or device.
    Clear {
        how: Clear,
        deallocate: bool,
    },
    /// Write Zeroes by writing zeros.
    Zeros,
    /// From range `next` of the slot on.
    Deallocate {
        next: usize,
        ranges: usize,
    },
    /// A flush, or the durable end of a Write Zeroes.
    Sync,
}

/// How far a Compare and Write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fused {
    /// What was written before is put onto the media.
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
    /// What is still to be done.
    pub(super) offset: u64,
    pub(super) left: u64,
    pub(super) fua: bool,
    /// The host's segments cannot be used where they are.
    pub(super) bounced: bool,
    /// It is done in slices that are not durable one by one, but together after the last.
    pub(super) sliced: bool,
    pub(super) repeats: u8,
}

impl Kind {
    /// Bytes of the file are read, and none is changed yet.
    pub(super) fn reads(self) -> bool {
        match self {
            Kind::Read | Kind::Compare => true,
            Kind::Fused { stage, .. } => stage != Fused::Write,
            _ => false,
        }
    }

    /// The operation moves bytes to the file or from it.
    pub(super) fn moves(self) -> bool {
        !matches!(
            self,
            Kind::Sync | Kind::Clear { .. } | Kind::Deallocate { .. }
        )
    }

    /// The operation changes bytes of the file.
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

/// What the kernel is asked to do for a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Io {
    Read {
        into: Buffer,
        offset: u64,
    },
    /// `durable`: ends only when the bytes, and what is needed to find them, are on the media.
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
    /// All data written before, and what is needed to find it, onto the media.
    Sync,
}

/// The memory that is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffer {
    /// The slot's segments from its cursor on, as many as the kernel takes at once.
    Segments,
    /// This many bytes of the slot's bounce buffer.
    Bounce(u32),
    /// This many zeros.
    Zeros(u32),
}

impl Io {
    /// Rings that ask the device for completions take it.
    pub(super) fn is_polled_for(self) -> bool {
        matches!(self, Io::Read { .. } | Io::Write { durable: false, .. })
    }
}

/// Whether a failure of the request is one of reading.
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
        // EFBIG: the file system's limit of a file, or this process's (RLIMIT_FSIZE).
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => Cause::NoSpace,
        _ => Cause::WriteFailed,
    };
    Outcome {
        cause,
        os_error: NonZeroI32::new(errno),
        ..Outcome::OK
    }
}

/// The outcome for an errno of an operation that reads or writes data. A file system that takes no
/// writes has EROFS for one, a device EPERM.
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
