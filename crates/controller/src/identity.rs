//! Names that are unique in the world: the layouts of NGUID, EUI-64 and NQN, and how each comes from a seed.
//!
//! The seed is random, made once and kept by the program, so that a drive keeps its names for life. Invariant: equal seeds give equal names. What is made here carries
//! the "locally administered" bit of an OUI, as it was bought from nobody.

/// An OUI of our own: the second lowest bit of the first octet says "locally administered" (IEEE 802, 8.2).
pub const LOCAL_OUI: [u8; 3] = [0x02, 0x4e, 0x56];

/// A namespace's NGUID: eight bytes of extension, the OUI, five bytes of extension, big endian (Base 2.1, 4.7).
pub fn nguid(seed: [u8; 16]) -> [u8; 16] {
    let mut id = seed;
    id[8..11].copy_from_slice(&LOCAL_OUI);
    id
}

/// A namespace's EUI-64: the OUI, then five bytes of extension, big endian (Base 2.1, 4.7).
pub fn eui64(seed: [u8; 16]) -> [u8; 8] {
    let mut id = [0; 8];
    id[..3].copy_from_slice(&LOCAL_OUI);
    id[3..].copy_from_slice(&seed[..5]);
    id
}

/// A controller's serial number: 20 hexadecimal digits.
pub fn serial(seed: [u8; 16]) -> String {
    seed[..10]
        .iter()
        .map(|byte| format!("{byte:02X}"))
        .collect()
}

/// A subsystem's NQN in the form that is made of a UUID (Base 2.1, 4.7): version 4, variant 1 (RFC 9562).
pub fn subnqn(seed: [u8; 16]) -> String {
    let mut uuid = seed;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "nqn.2014-08.org.nvmexpress:uuid:{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: [u8; 16] = [0xff; 16];

    #[test]
    fn nguid_has_the_oui_after_eight_bytes() {
        let mut expected = [0xff; 16];
        (expected[8], expected[9], expected[10]) = (0x02, 0x4e, 0x56);
        assert_eq!(nguid(SEED), expected);
    }

    #[test]
    fn eui64_starts_with_the_oui() {
        assert_eq!(
            eui64(SEED),
            [0x02, 0x4e, 0x56, 0xff, 0xff, 0xff, 0xff, 0xff]
        );
    }

    #[test]
    fn the_oui_says_locally_administered_and_unicast() {
        assert_eq!(LOCAL_OUI[0] & 0b11, 0b10);
    }

    #[test]
    fn serial_fills_its_twenty_characters() {
        assert_eq!(serial([0x0a; 16]), "0A0A0A0A0A0A0A0A0A0A");
    }

    #[test]
    fn subnqn_is_a_version_4_uuid() {
        assert_eq!(
            subnqn(SEED),
            "nqn.2014-08.org.nvmexpress:uuid:ffffffff-ffff-4fff-bfff-ffffffffffff"
        );
        assert_eq!(
            subnqn([0; 16]),
            "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000000"
        );
    }
}
