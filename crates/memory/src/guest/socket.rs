//! A socket's bytes, to and from memory that is shared with a controller.
//!
//! The kernel gets addresses and copies: no reference to the memory exists, and no copy of it is
//! made here. Neither function waits.

use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};
use std::{io, ptr};

use arrayvec::ArrayVec;

use crate::guest::host::HostMemory;

/// Most parts of one [`send`].
pub const MAX_PARTS: usize = 192;

/// Bytes to send, which lie in several places: up to [`MAX_PARTS`] parts.
pub struct Parts<'a> {
    raw: ArrayVec<libc::iovec, MAX_PARTS>,
    len: usize,
    /// Bytes that are still to be left out.
    skip: usize,
    _of: PhantomData<&'a [u8]>,
}

impl<'a> Parts<'a> {
    /// None yet. Of what is added, the first `skip` bytes are left out.
    #[must_use]
    pub const fn behind(skip: usize) -> Self {
        Self {
            raw: ArrayVec::new_const(),
            len: 0,
            skip,
            _of: PhantomData,
        }
    }

    /// Bytes that they have.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether they have none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Parts that may be added.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.raw.remaining_capacity()
    }

    /// Adds bytes of the caller.
    ///
    /// # Panics
    /// There is no room.
    #[inline]
    pub fn add(&mut self, bytes: &'a [u8]) {
        self.add_raw(bytes.as_ptr().cast_mut(), bytes.len());
    }

    /// Adds `len` bytes of a memory, from `at` on.
    ///
    /// # Panics
    /// There is no room, or they do not lie inside the memory.
    #[inline]
    pub fn add_memory(&mut self, memory: &'a HostMemory, at: usize, len: usize) {
        self.add_raw(memory.at(at, len), len);
    }

    /// Adds bytes that may be read for as long as `'a`.
    #[inline]
    fn add_raw(&mut self, base: *mut u8, len: usize) {
        if len > self.skip {
            let gone = std::mem::take(&mut self.skip);
            self.len += len - gone;
            self.raw.push(libc::iovec {
                iov_base: base.wrapping_add(gone).cast(),
                iov_len: len - gone,
            });
        } else {
            self.skip -= len;
        }
    }

    /// Copies the bytes behind the first `skip` to `room`, as far as it goes: their number.
    pub fn copy_behind(&self, mut skip: usize, room: &mut [u8]) -> usize {
        let mut copied = 0;
        for part in &self.raw {
            let gone = skip.min(part.iov_len);
            skip -= gone;
            let room = &mut room[copied..];
            let len = (part.iov_len - gone).min(room.len());
            let from = part.iov_base.cast::<u8>().wrapping_add(gone);
            // SAFETY: the part can be read for as long as `'a`, and `room` is borrowed alone. A
            // controller may write a memory meanwhile: any mixture of bytes is a valid result.
            unsafe { ptr::copy_nonoverlapping(from, room.as_mut_ptr(), len) };
            copied += len;
        }
        copied
    }
}

/// Sends parts in one call, as far as the socket takes them now: the number of bytes.
///
/// # Errors
/// What the system says; `WouldBlock` where the socket takes nothing now.
pub fn send(socket: impl AsFd, parts: &Parts<'_>) -> io::Result<usize> {
    // SAFETY: all fields of the structure may be zero: no name, no control data, no parts.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.raw.as_ptr().cast_mut();
    message.msg_iovlen = parts.raw.len();
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: the parts are the bytes of slices and of mappings that the caller has lent, and the
    // kernel only reads them and their list. A controller may write a mapping meanwhile: any
    // mixture is a valid result.
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
        let mut parts = Parts::behind(7);
        parts.add(b"before ");
        parts.add(b"head ");
        parts.add_memory(&memory, 4092, 4);
        parts.add(b".");
        assert_eq!((parts.len(), parts.room()), (10, MAX_PARTS - 3));
        assert_eq!(send(&ours, &parts).unwrap(), 10);
        let mut bytes = [0; 10];
        theirs.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"head mory.");
        let mut copy = [0; 6];
        assert_eq!(parts.copy_behind(3, &mut copy), 6);
        assert_eq!(&copy, b"d mory");
        assert_eq!(parts.copy_behind(8, &mut copy), 2);
        assert_eq!(&copy[..2], b"y.");

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
