//! Bytes that came and were not taken.

use std::io;

use crate::secure::Stream;

/// See the module.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Box<[u8]>,
    from: usize,
    to: usize,
}

impl Input {
    /// Room for `len` bytes, with some that came before: at most as many.
    pub(super) fn new(len: usize, before: &[u8]) -> Self {
        let mut bytes = vec![0; len].into_boxed_slice();
        bytes[..before.len()].copy_from_slice(before);
        Self {
            bytes,
            from: 0,
            to: before.len(),
        }
    }

    /// The bytes that were not taken.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.from..self.to]
    }

    /// How many more there is room for.
    pub(super) fn free(&self) -> usize {
        self.bytes.len() - self.to
    }

    pub(super) fn is_empty(&self) -> bool {
        self.from == self.to
    }

    /// The first `len` are taken.
    pub(super) fn take(&mut self, len: usize) {
        debug_assert!(len <= self.to - self.from);
        self.from += len;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        }
    }

    /// Room behind the bytes, which then begin the buffer.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.bytes.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        &mut self.bytes[self.to..]
    }

    /// The first `len` bytes of [`Self::room`] have come.
    pub(super) fn came(&mut self, len: usize) {
        self.to += len;
    }

    /// Receives what the stream has now, as far as there is room: the number of bytes; `Ok(0)` is
    /// the end of the stream.
    ///
    /// # Errors
    /// What the system says; `WouldBlock` where the stream has nothing now.
    pub(super) fn receive(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let room = self.room();
        debug_assert!(!room.is_empty());
        let len = stream.receive(room)?;
        self.came(len);
        Ok(len)
    }
}
