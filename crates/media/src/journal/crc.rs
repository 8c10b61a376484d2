//! CRC-32C (Castagnoli): the polynomial of iSCSI and ext4, by the processor's own instruction where
//! it has one.

/// A checksum that is being made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc(u32);

impl Crc {
    pub(super) const fn new() -> Self {
        Crc(0)
    }

    /// The next bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, bytes);
    }

    pub(super) const fn value(self) -> u32 {
        self.0
    }
}

/// The checksum of these bytes.
pub(super) fn of(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_that_were_published() {
        // The catalogue's check value, and the vectors of RFC 3720, B.4.
        assert_eq!(of(b"123456789"), 0xE306_9283);
        assert_eq!(of(&[0; 32]), 0x8A91_36AA);
        assert_eq!(of(&[0xFF; 32]), 0x62A8_AB43);
        let up: Vec<u8> = (0..32).collect();
        assert_eq!(of(&up), 0x46DD_794E);
    }

    #[test]
    fn pieces_make_what_the_whole_makes() {
        let bytes: Vec<u8> = (0..100u8).map(|n| n.wrapping_mul(37)).collect();
        for cut in 0..bytes.len() {
            let mut crc = Crc::new();
            crc.add(&bytes[..cut]);
            crc.add(&bytes[cut..]);
            assert_eq!(crc.value(), of(&bytes), "{cut}");
        }
    }
}
