//! Submission entries for a ring, of its one file.
//!
//! [`super::ring`], which pushes the entries, is responsible for the memory that they point to.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use io_uring::{opcode, squeue, types};
use libc::iovec;

/// The file of a ring's operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    /// Index of the registered file, or descriptor.
    number: types::Fd,
    flags: squeue::Flags,
}

impl Target {
    /// The one file that is registered with the ring.
    pub(super) const REGISTERED: Self = Self {
        number: types::Fd(0),
        flags: squeue::Flags::FIXED_FILE,
    };

    /// A file by its descriptor, which stays open as long as the ring.
    pub(super) fn plain(file: BorrowedFd<'_>) -> Self {
        Self {
            number: types::Fd(file.as_raw_fd()),
            flags: squeue::Flags::empty(),
        }
    }

    /// Space of the file that is allocated, freed or zeroed.
    pub(super) fn fallocate(self, mode: i32, offset: u64, len: u64) -> squeue::Entry {
        let entry = opcode::Fallocate::new(self.number, len);
        entry.offset(offset).mode(mode).build().flags(self.flags)
    }

    /// The file's data made durable.
    pub(super) fn sync(self) -> squeue::Entry {
        let entry = opcode::Fsync::new(self.number);
        let entry = entry.flags(types::FsyncFlags::DATASYNC);
        entry.build().flags(self.flags)
    }
}

/// Memory of an operation.
pub(super) enum Pointed {
    Bytes(*mut u8, u32),
    Iovecs(*const iovec, u32),
}

/// A read into memory; `registered` is the registered buffer that contains all of it.
pub(super) fn read(
    of: Target,
    into: Pointed,
    registered: Option<u16>,
    offset: u64,
) -> squeue::Entry {
    use opcode::{Read, ReadFixed, Readv, ReadvFixed};
    let file = of.number;
    let entry = match (into, registered) {
        (Pointed::Bytes(at, len), None) => Read::new(file, at, len).offset(offset).build(),
        (Pointed::Bytes(at, len), Some(index)) => {
            let read = ReadFixed::new(file, at, len, index);
            read.offset(offset).build()
        }
        (Pointed::Iovecs(at, n), None) => Readv::new(file, at, n).offset(offset).build(),
        (Pointed::Iovecs(at, n), Some(index)) => {
            let read = ReadvFixed::new(file, at, n, index);
            read.offset(offset).build()
        }
    };
    entry.flags(of.flags)
}

/// A write from memory, with `RWF_*` flags; `registered` is the registered buffer that contains all
/// of it.
pub(super) fn write(
    of: Target,
    from: Pointed,
    registered: Option<u16>,
    offset: u64,
    flags: i32,
) -> squeue::Entry {
    use opcode::{Write, WriteFixed, Writev, WritevFixed};
    let file = of.number;
    let entry = match (from, registered) {
        (Pointed::Bytes(at, len), None) => {
            let write = Write::new(file, at, len).offset(offset);
            write.rw_flags(flags).build()
        }
        (Pointed::Bytes(at, len), Some(index)) => {
            let write = WriteFixed::new(file, at, len, index).offset(offset);
            write.rw_flags(flags).build()
        }
        (Pointed::Iovecs(at, n), None) => {
            let write = Writev::new(file, at, n).offset(offset);
            write.rw_flags(flags).build()
        }
        (Pointed::Iovecs(at, n), Some(index)) => {
            let write = WritevFixed::new(file, at, n, index).offset(offset);
            write.rw_flags(flags).build()
        }
    };
    entry.flags(of.flags)
}
