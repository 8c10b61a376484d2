//! CRC-32C (Castagnoli): the polynomial of iSCSI and ext4, eight bytes a step by tables made at compile time.

/// The polynomial 1EDC6F41h, its bits reflected.
const POLYNOMIAL: u32 = 0x82F6_3B78;
/// What a byte becomes with so many zero bytes behind it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = value >> 1 ^ if value & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        let mut byte = 0;
        while byte < 256 {
            let one = tables[behind - 1][byte];
            tables[behind][byte] = one >> 8 ^ tables[0][(one & 0xFF) as usize];
            byte += 1;
        }
        behind += 1;
    }
    tables
}

/// A checksum that is being made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crc(u32);

impl Crc {
    pub(super) const fn new() -> Self {
        Crc(!0)
    }

    /// The next bytes.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        let mut crc = self.0;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let word = u64::from_le_bytes(*word) ^ u64::from(crc);
            let at = |byte: u32| usize::from((word >> (8 * byte)) as u8);
            crc = TABLES[7][at(0)]
                ^ TABLES[6][at(1)]
                ^ TABLES[5][at(2)]
                ^ TABLES[4][at(3)]
                ^ TABLES[3][at(4)]
                ^ TABLES[2][at(5)]
                ^ TABLES[1][at(6)]
                ^ TABLES[0][at(7)];
        }
        for byte in rest {
            crc = crc >> 8 ^ TABLES[0][usize::from(crc as u8 ^ byte)];
        }
        self.0 = crc;
    }

    pub(super) const fn value(self) -> u32 {
        !self.0
    }
}

/// The checksum of these bytes.
pub(super) fn of(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.add(bytes);
    crc.value()
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
