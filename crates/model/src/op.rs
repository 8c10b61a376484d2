//! Operations of a drive, as far as they matter for time. Offsets and lengths are in bytes, from
//! the start of the medium.

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
    /// Write; on zones also Append, at its assigned position.
    Write {
        /// First byte.
        offset: u64,
        /// Number of bytes, not 0.
        len: u32,
        /// Whether it completes only on non-volatile media.
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
    /// A zone management operation.
    Zone(ZoneOp),
    /// One command of a key-value drive.
    Kv(KvOp),
    /// Several of them in one command.
    Compound(&'a [KvOp]),
}

/// A zone management operation. `zone` counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneOp {
    /// Reset: erases the blocks with data.
    Reset {
        /// Number of the zone.
        zone: u32,
    },
    /// Finish: fills the unwritten part.
    Finish {
        /// Number of the zone.
        zone: u32,
    },
    /// Open explicitly.
    Open {
        /// Number of the zone.
        zone: u32,
    },
    /// Close.
    Close {
        /// Number of the zone.
        zone: u32,
    },
}

/// One key-value operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvOp {
    /// Its kind.
    pub kind: KvKind,
    /// Hash of the key: see [`key_hash`].
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

/// Hash of a key as the drive sees it: 32-bit FNV-1a of its bytes; 0 for no key.
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
