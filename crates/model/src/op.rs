//! What a drive is asked for, as far as time is concerned. Offsets and lengths are bytes, from the
//! start of the medium.

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// Read, Compare, Verify.
    Read {
        /// First byte.
        offset: u64,
        /// Number of bytes, not 0.
        len: u32,
    },
    /// Write, and on zones Append, where it was put.
    Write {
        /// First byte.
        offset: u64,
        /// Number of bytes, not 0.
        len: u32,
        /// Not done before it is on non-volatile media.
        fua: bool,
    },
    /// Deallocate, Write Zeroes.
    Deallocate {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Flush.
    Flush,
    /// What is done to a zone as a whole.
    Zone(ZoneOp),
    /// One command of a key-value drive.
    Kv(KvOp),
    /// Several of them that arrive as one command.
    Compound(&'a [KvOp]),
}

/// What is done to a zone as a whole. `zone` counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneOp {
    /// Reset: the blocks that hold something are erased.
    Reset {
        /// Which one.
        zone: u32,
    },
    /// Finish: what is not written is filled up.
    Finish {
        /// Which one.
        zone: u32,
    },
    /// Open explicitly.
    Open {
        /// Which one.
        zone: u32,
    },
    /// Close.
    Close {
        /// Which one.
        zone: u32,
    },
}

/// One key-value operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvOp {
    /// Which.
    pub kind: KvKind,
    /// Of the key: see [`key_hash`].
    pub hash: u32,
    /// Bytes of the value that are stored or returned.
    pub len: u32,
}

/// The kinds of key-value operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvKind {
    /// Store.
    Store,
    /// Append (Samsung's dialect only).
    Append,
    /// Retrieve.
    Retrieve,
    /// Delete.
    Delete,
    /// Exist.
    Exist,
    /// List, iterator request, iterator read.
    List,
}

/// What a key is to a drive: FNV-1a, 32 bits, of its bytes; 0 for no key.
#[must_use]
pub fn key_hash(key: &[u8]) -> u32 {
    if key.is_empty() {
        return 0;
    }
    key.iter().fold(2_166_136_261, |hash: u32, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(16_777_619)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_published_vectors() {
        // The test vectors of the draft of FNV (Fowler, Noll, Vo, Eastlake).
        assert_eq!(key_hash(b"a"), 0xe40c_292c);
        assert_eq!(key_hash(b"foobar"), 0xbf9c_f968);
        assert_eq!(key_hash(b""), 0);
    }
}
