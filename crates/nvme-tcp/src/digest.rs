//! Digests: CRC32C of a header, and of data that arrives or leaves in pieces (TCP 1.1, 3.3.1.1).

/// Digest of a header, as it stands behind it.
pub(crate) fn of_header(header: &[u8]) -> [u8; 4] {
    crc32c::crc32c(header).to_le_bytes()
}

/// Digest of data, piece by piece.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataDigest(u32);

impl DataDigest {
    /// Takes the next piece.
    pub fn add(&mut self, piece: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, piece);
    }

    /// The digest of all pieces, as it stands behind the data.
    pub fn bytes(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}
