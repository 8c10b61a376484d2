//! Numbers and strings in bytes that came.

use crate::constants::MAX_STRING;

/// The rest of bytes that came. Each method takes from their front, or returns `None` where they
/// are too few.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    #[inline]
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string behind its length of 32 bits. `None` also where it is longer than the specification
    /// allows.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        if len > MAX_STRING {
            return None;
        }
        let (string, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(string)
    }

    /// Whether all bytes were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The first characters of a text that fit into `len` bytes.
pub(crate) fn cut(text: &str, len: usize) -> &str {
    let mut end = len.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}
