//! Submission entries for a ring: reads and writes of the registered file.
//!
//! [`super::ring`], which pushes the entries, is responsible for the memory that they point to.

use io_uring::{opcode, squeue, types};
use libc::iovec;

/// The registered file's index.
pub(super) const FILE: types::Fixed = types::Fixed(0);

/// Memory of an operation.
pub(super) enum Pointed {
    Bytes(*mut u8, u32),
    Iovecs(*const iovec, u32),
}

/// A read into memory; `registered` is the registered buffer that contains all of it.
pub(super) fn read(into: Pointed, registered: Option<u16>, offset: u64) -> squeue::Entry {
    use opcode::{Read, ReadFixed, Readv, ReadvFixed};
    match (into, registered) {
        (Pointed::Bytes(at, len), None) => Read::new(FILE, at, len).offset(offset).build(),
        (Pointed::Bytes(at, len), Some(index)) => {
            let read = ReadFixed::new(FILE, at, len, index);
            read.offset(offset).build()
        }
        (Pointed::Iovecs(at, n), None) => Readv::new(FILE, at, n).offset(offset).build(),
        (Pointed::Iovecs(at, n), Some(index)) => {
            let read = ReadvFixed::new(FILE, at, n, index);
            read.offset(offset).build()
        }
    }
}

/// A write from memory, with `RWF_*` flags; `registered` is the registered buffer that contains all
/// of it.
pub(super) fn write(
    from: Pointed,
    registered: Option<u16>,
    offset: u64,
    flags: i32,
) -> squeue::Entry {
    use opcode::{Write, WriteFixed, Writev, WritevFixed};
    match (from, registered) {
        (Pointed::Bytes(at, len), None) => {
            let write = Write::new(FILE, at, len).offset(offset);
            write.rw_flags(flags).build()
        }
        (Pointed::Bytes(at, len), Some(index)) => {
            let write = WriteFixed::new(FILE, at, len, index).offset(offset);
            write.rw_flags(flags).build()
        }
        (Pointed::Iovecs(at, n), None) => {
            let write = Writev::new(FILE, at, n).offset(offset);
            write.rw_flags(flags).build()
        }
        (Pointed::Iovecs(at, n), Some(index)) => {
            let write = WritevFixed::new(FILE, at, n, index).offset(offset);
            write.rw_flags(flags).build()
        }
    }
}
