//! A socket's bytes, to and from memory that is shared with a controller.
//!
//! The kernel gets addresses and copies: no reference to the memory exists, and no copy of it is
//! made here. Neither function waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use arrayvec::ArrayVec;

use crate::guest::host::HostMemory;

/// Most parts of one [`send`].
pub const MAX_PARTS: usize = 192;

/// Bytes to send.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Bytes of the caller.
    Bytes(&'a [u8]),
    /// `len` bytes of the memory, from `at` on.
    Memory {
        /// The memory.
        memory: &'a HostMemory,
        /// The first byte.
        at: usize,
        /// How many.
        len: usize,
    },
}

impl Part<'_> {
    /// Bytes that it has.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Memory { len, .. } => *len,
        }
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Without its first `count` bytes.
    ///
    /// # Panics
    /// It has fewer.
    #[must_use]
    pub fn behind(self, count: usize) -> Self {
        match self {
            Self::Bytes(bytes) => Self::Bytes(&bytes[count..]),
            Self::Memory { memory, at, len } => Self::Memory {
                memory,
                at: at + count,
                len: len
                    .checked_sub(count)
                    .expect("a part is not cut behind its end"),
            },
        }
    }

    fn raw(&self) -> libc::iovec {
        let (base, len) = match self {
            Self::Bytes(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
            Self::Memory { memory, at, len } => (memory.at(*at, *len), *len),
        };
        libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        }
    }
}

/// Sends the first [`MAX_PARTS`] parts in one call, as far as the socket takes them now: the number
/// of bytes.
///
/// # Errors
/// What the system says; `WouldBlock` where the socket takes nothing now.
///
/// # Panics
/// A part does not lie inside its memory.
pub fn send(socket: impl AsFd, parts: &[Part<'_>]) -> io::Result<usize> {
    let raw = parts.iter().take(MAX_PARTS).map(Part::raw);
    let mut raw: ArrayVec<libc::iovec, MAX_PARTS> = raw.collect();
    // SAFETY: all fields of the structure may be zero: no name, no control data, no parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = raw.as_mut_ptr();
    message.msg_iovlen = raw.len();
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the parts are the bytes of slices and of mappings that the caller holds, and the
    // kernel only reads them. A controller may write a mapping meanwhile: any mixture is a valid
    // result.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives up to `len` bytes, which the socket has now, to `at` of the memory: their number, and 0
/// at the end of the stream.
///
/// # Errors
/// What the system says; `WouldBlock` where the socket has nothing now.
///
/// # Panics
/// The range does not lie inside the memory, or is empty.
pub fn receive(socket: impl AsFd, memory: &HostMemory, at: usize, len: usize) -> io::Result<usize> {
    assert!(len > 0, "0 bytes look like the end of the stream");
    let to = memory.at(at, len);
    // SAFETY: the range is mapped and writable for as long as `memory` lives. A controller may
    // access it meanwhile: any mixture is a valid result.
    let received = unsafe {
        let flags = libc::MSG_DONTWAIT;
        libc::recv(socket.as_fd().as_raw_fd(), to.cast(), len, flags)
    };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// As [`receive`], with what comes behind those bytes in `rest`: in one call, up to `len` bytes and
/// then up to those of `rest`.
///
/// # Errors
/// As [`receive`].
///
/// # Panics
/// As [`receive`].
pub fn receive_with(
    socket: impl AsFd,
    memory: &HostMemory,
    at: usize,
    len: usize,
    rest: &mut [u8],
) -> io::Result<usize> {
    assert!(len > 0, "0 bytes look like the end of the stream");
    let part = |base: *mut u8, len| libc::iovec {
        iov_base: base.cast(),
        iov_len: len,
    };
    let mut parts = [
        part(memory.at(at, len), len),
        part(rest.as_mut_ptr(), rest.len()),
    ];
    // SAFETY: all fields of the structure may be zero: no name, no control data, no parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = parts.len();
    // SAFETY: the first part is mapped and writable for as long as `memory` lives, and a controller
    // may access it meanwhile: any mixture is a valid result. The second one is borrowed alone.
    let received = unsafe {
        let flags = libc::MSG_DONTWAIT;
        libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags)
    };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn parts_leave_in_order_and_arrive_where_they_were_to() {
        let memory = HostMemory::new(8192).unwrap();
        memory.write(4090, b"memory");
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let part = |at, len| Part::Memory {
            memory: &memory,
            at,
            len,
        };
        let parts = [
            Part::Bytes(b"head "),
            part(4090, 6).behind(2),
            Part::Bytes(b"."),
        ];
        assert_eq!(send(&ours, &parts).unwrap(), 10);
        let mut bytes = [0; 10];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"head mory.");

        let nothing = receive(&ours, &memory, 0, 4).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        theirs.write_all(b"12345678").unwrap();
        assert_eq!(receive(&ours, &memory, 8188, 4).unwrap(), 4);
        assert_eq!(receive(&ours, &memory, 0, 100).unwrap(), 4);
        let mut end = [0; 4];
        memory.read(8188, &mut end);
        assert_eq!(&end, b"1234");
        drop(theirs);
        assert_eq!(receive(&ours, &memory, 0, 4).unwrap(), 0);
        assert!(send(&ours, &parts).is_err(), "and no signal");
    }

    #[test]
    #[should_panic(expected = "2 bytes at 4095 of 4096")]
    fn nothing_is_received_past_the_end() {
        let memory = HostMemory::new(4096).unwrap();
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let _ = receive(&ours, &memory, 4095, 2);
    }
}
