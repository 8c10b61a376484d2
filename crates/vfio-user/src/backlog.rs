//! Data that a socket did not accept yet: bytes in order, and descriptors with the byte that they
//! belong to.
//!
//! It holds no more than [`SEND_BACKLOG_LEN`] bytes and [`SEND_BACKLOG_FDS`] descriptors; the
//! caller checks [`Backlog::has_room`] before it commits to a message.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use arrayvec::ArrayVec;

use crate::{MAX_FDS, SEND_BACKLOG_FDS, SEND_BACKLOG_LEN};

/// The descriptors of one message.
struct Attached {
    /// Position in the stream of the byte they must be sent with.
    position: u64,
    fds: ArrayVec<OwnedFd, MAX_FDS>,
}

/// Bytes and descriptors that wait for the socket.
#[derive(Default)]
pub(crate) struct Backlog {
    bytes: VecDeque<u8>,
    attached: VecDeque<Attached>,
    attached_fds: usize,
    /// Position in the stream of the first byte of `bytes`.
    position: u64,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether a message of `len` bytes and `fds` descriptors fits even if the socket takes none
    /// of it.
    pub(crate) fn has_room(&self, len: usize, fds: usize) -> bool {
        self.bytes.len() + len <= SEND_BACKLOG_LEN && self.attached_fds + fds <= SEND_BACKLOG_FDS
    }

    /// Attaches duplicates of `fds` to the byte that is pushed next.
    ///
    /// # Errors
    /// When a descriptor cannot be duplicated; nothing is kept then.
    pub(crate) fn attach(&mut self, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        if fds.is_empty() {
            return Ok(());
        }
        let fds = fds
            .iter()
            .map(BorrowedFd::try_clone_to_owned)
            .collect::<io::Result<ArrayVec<_, MAX_FDS>>>()?;
        self.attached_fds += fds.len();
        self.attached.push_back(Attached {
            position: self.position + self.bytes.len() as u64,
            fds,
        });
        Ok(())
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The next data to send: bytes in two parts, and the descriptors that go with the first of
    /// them. The bytes end before the next message with descriptors, which needs its own call.
    pub(crate) fn front(&self) -> (&[u8], &[u8], ArrayVec<BorrowedFd<'_>, MAX_FDS>) {
        let mut fds = ArrayVec::new();
        let mut len = self.bytes.len();
        for attached in &self.attached {
            let ahead = attached.position - self.position;
            if ahead == 0 {
                fds.extend(attached.fds.iter().map(AsFd::as_fd));
                continue;
            }
            len = len.min(usize::try_from(ahead).unwrap_or(usize::MAX));
            break;
        }
        let (first, second) = self.bytes.as_slices();
        let first = &first[..first.len().min(len)];
        let second = &second[..len - first.len()];
        (first, second, fds)
    }

    /// Forgets `sent` bytes, at least one, and the descriptors that went with the first of them.
    pub(crate) fn consume(&mut self, sent: usize) {
        debug_assert!(sent > 0, "descriptors go with a byte");
        if self
            .attached
            .front()
            .is_some_and(|attached| attached.position == self.position)
            && let Some(attached) = self.attached.pop_front()
        {
            self.attached_fds -= attached.fds.len();
        }
        self.bytes.drain(..sent);
        self.position += sent as u64;
        if self.bytes.is_empty() {
            // A peer that stalled once must not cost megabytes forever.
            self.bytes = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_counted_to_the_byte_and_the_descriptor() {
        let mut backlog = Backlog::default();
        assert!(backlog.has_room(SEND_BACKLOG_LEN, SEND_BACKLOG_FDS));
        assert!(!backlog.has_room(SEND_BACKLOG_LEN + 1, 0));
        assert!(!backlog.has_room(0, SEND_BACKLOG_FDS + 1));
        backlog.attach(&[std::io::stderr().as_fd()]).unwrap();
        backlog.push(&[1, 2]);
        assert!(backlog.has_room(SEND_BACKLOG_LEN - 2, SEND_BACKLOG_FDS - 1));
        assert!(!backlog.has_room(SEND_BACKLOG_LEN - 1, 0));
        assert!(!backlog.has_room(0, SEND_BACKLOG_FDS));
        backlog.consume(2);
        assert!(backlog.is_empty());
        assert!(backlog.has_room(SEND_BACKLOG_LEN, SEND_BACKLOG_FDS));
    }
}
