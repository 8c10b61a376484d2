//! Replies.

use arrayvec::ArrayVec;

use crate::Errno;
use crate::bytes::cut;
use crate::constants::{
    BASE_ALLOCATION_ID, ChunkType, EXTENDED_REPLY_MAGIC, ExtentState, REPLY_FLAG_DONE,
    SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC,
};

/// Room for the bytes of a reply without its data.
const HEAD_LEN: usize = 128;
/// Bytes of an error chunk beside header and message: error, length of the message, offset.
const ERROR_LEN: usize = 4 + 2 + 8;
/// Longest message of an error chunk: what an extended header leaves.
const MAX_MESSAGE: usize = HEAD_LEN - 32 - ERROR_LEN;

/// Bytes of the longest descriptor of an extent.
const EXTENT_LEN: usize = 16;

/// The bytes of a descriptor of an extent.
pub type Extent = ArrayVec<u8, EXTENT_LEN>;

/// The bytes of a reply without its data.
pub type Head = ArrayVec<u8, HEAD_LEN>;

/// How replies look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// 16 bytes, and the data of a read.
    Simple,
    /// Chunks of 20 bytes and their payload.
    Structured,
    /// Chunks of 32 bytes and their payload.
    Extended,
}

impl Style {
    /// Bytes of the descriptor of an extent.
    #[must_use]
    pub const fn extent_len(self) -> u32 {
        match self {
            Self::Simple | Self::Structured => 8,
            Self::Extended => 16,
        }
    }

    /// The descriptor of an extent of `len` bytes: at least one, and below 2^32 without extended
    /// headers.
    ///
    /// # Panics
    /// The extent is too long.
    #[must_use]
    pub fn extent(self, len: u64, state: ExtentState) -> Extent {
        debug_assert!(len > 0, "an extent is not empty");
        let mut extent = Extent::new();
        if self == Self::Extended {
            extent.extend(len.to_be_bytes());
            extent.extend(u64::from(state.into_bits()).to_be_bytes());
        } else {
            let len = u32::try_from(len).expect("no request without extended headers is longer");
            extent.extend(len.to_be_bytes());
            extent.extend(state.into_bits().to_be_bytes());
        }
        extent
    }
}

/// The replies to one request.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// How they look.
    pub style: Style,
    /// The request's.
    pub cookie: u64,
    /// The request's, which extended headers repeat.
    pub offset: u64,
}

impl Reply {
    /// The whole reply to a request that has succeeded and has no data: a simple reply, or a last
    /// chunk without payload.
    #[inline]
    #[must_use]
    pub fn done(&self) -> Head {
        match self.style {
            Style::Simple => self.simple(Errno::NONE),
            Style::Structured | Style::Extended => self.chunk(ChunkType::NONE, true, 0),
        }
    }

    /// The whole, or the last, reply to a request that has failed with `error`, which is not
    /// [`Errno::NONE`]. Chunks have `message`, cut to 82 bytes, and with `at` (a byte of the
    /// request) they are `NBD_REPLY_TYPE_ERROR_OFFSET`.
    #[must_use]
    pub fn failed(&self, error: Errno, at: Option<u64>, message: &str) -> Head {
        debug_assert_ne!(error, Errno::NONE, "an error chunk has an error");
        if self.style == Style::Simple {
            return self.simple(error);
        }
        let message = cut(message, MAX_MESSAGE);
        // It is at most 82 bytes long.
        #[allow(
            clippy::cast_possible_truncation,
            reason = "MAX_MESSAGE is less than 128"
        )]
        let message_len = message.len() as u16;
        let (chunk_type, fixed) = match at {
            Some(_) => (ChunkType::ERROR_OFFSET, 14),
            None => (ChunkType::ERROR, 6),
        };
        let mut head = self.chunk(chunk_type, true, fixed + u32::from(message_len));
        add(&mut head, &error.0.to_be_bytes());
        add(&mut head, &message_len.to_be_bytes());
        add(&mut head, message.as_bytes());
        if let Some(at) = at {
            add(&mut head, &at.to_be_bytes());
        }
        head
    }

    /// Before `len` bytes of data of a read, which lie at `at` in the export. A simple reply has
    /// all data of its request in one; a chunk has at least one byte, and `last` is the last one.
    ///
    /// # Panics
    /// A chunk would be longer than 2^32 - 1 bytes.
    #[inline]
    #[must_use]
    pub fn data(&self, at: u64, len: u32, last: bool) -> Head {
        if self.style == Style::Simple {
            return self.simple(Errno::NONE);
        }
        let payload = len
            .checked_add(8)
            .expect("callers bound the data of a reply far below 4 GiB");
        let mut head = self.chunk(ChunkType::OFFSET_DATA, last, payload);
        add(&mut head, &at.to_be_bytes());
        head
    }

    /// The whole reply to a Block Status request, before its `extents` descriptors, at least one
    /// ([`Style::extent`]). The style is not simple: such a client has no metadata context.
    ///
    /// # Panics
    /// A chunk would be longer than 2^32 - 1 bytes.
    #[must_use]
    pub fn block_status(&self, extents: u32) -> Head {
        debug_assert!(extents > 0, "a reply has an extent");
        debug_assert_ne!(self.style, Style::Simple, "a simple reply has no chunk");
        let is_extended = self.style == Style::Extended;
        let (chunk_type, fixed) = if is_extended {
            (ChunkType::BLOCK_STATUS_EXT, 8)
        } else {
            (ChunkType::BLOCK_STATUS, 4)
        };
        let len = extents.checked_mul(self.style.extent_len());
        let payload = len.and_then(|len| len.checked_add(fixed));
        let payload = payload.expect("callers bound the extents of a reply to a few thousand");
        let mut head = self.chunk(chunk_type, true, payload);
        add(&mut head, &BASE_ALLOCATION_ID.to_be_bytes());
        if is_extended {
            add(&mut head, &extents.to_be_bytes());
        }
        head
    }

    /// A simple reply.
    #[inline]
    fn simple(&self, error: Errno) -> Head {
        let mut head = Head::new();
        add(&mut head, &SIMPLE_REPLY_MAGIC.to_be_bytes());
        add(&mut head, &error.0.to_be_bytes());
        add(&mut head, &self.cookie.to_be_bytes());
        head
    }

    /// The header of a chunk with a payload of `len` bytes.
    #[inline]
    fn chunk(&self, chunk_type: ChunkType, last: bool, len: u32) -> Head {
        let extended = self.style == Style::Extended;
        let magic = if extended {
            EXTENDED_REPLY_MAGIC
        } else {
            STRUCTURED_REPLY_MAGIC
        };
        let flags = if last { REPLY_FLAG_DONE } else { 0 };
        let mut head = Head::new();
        add(&mut head, &magic.to_be_bytes());
        add(&mut head, &flags.to_be_bytes());
        add(&mut head, &chunk_type.0.to_be_bytes());
        add(&mut head, &self.cookie.to_be_bytes());
        if extended {
            add(&mut head, &self.offset.to_be_bytes());
            add(&mut head, &u64::from(len).to_be_bytes());
        } else {
            add(&mut head, &len.to_be_bytes());
        }
        head
    }
}

/// Adds bytes.
///
/// # Panics
/// They are more than the longest head has.
#[inline]
fn add(head: &mut Head, bytes: &[u8]) {
    head.try_extend_from_slice(bytes)
        .expect("messages leave room for the rest of a head");
}

#[cfg(test)]
mod tests;
