//! Globally unique names: the layouts of NGUID, EUI-64 and NQN, and their derivation from a seed.
//!
//! The seed is random, created once and kept by the program, so that a drive keeps its names for
//! life. Invariant: equal seeds give equal names. These names carry the "locally administered" bit
//! of an OUI, as no OUI was bought.

/// An OUI of our own: the second lowest bit of the first octet means "locally administered" (IEEE
/// 802, 8.2).
pub const LOCAL_OUI: [u8; 3] = [0x02, 0x4e, 0x56];

/// A namespace's NGUID: eight bytes of extension, the OUI, five bytes of extension, big endian
/// (Base 2.1, 4.7).
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

/// A subsystem's NQN in the UUID-based form (Base 2.1, 4.7): version 4, variant 1 (RFC 9562).
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

/// A namespace's UUID: made from its other names, so that it is as lasting as they are; `None`
/// where it has none. Version 8, variant 1 (RFC 9562, 5.8).
#[must_use]
pub fn uuid(nguid: [u8; 16], eui64: [u8; 8]) -> Option<[u8; 16]> {
    if nguid == [0; 16] && eui64 == [0; 8] {
        return None;
    }
    // Names may differ in few bits, and in those that version and variant replace: every bit is
    // mixed into every other.
    let mut bits = u128::from_be_bytes(nguid);
    for name in [0, u64::from_be_bytes(eui64)] {
        bits ^= u128::from(name);
        bits = (bits ^ bits >> 65).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        bits ^= bits >> 61;
    }
    let mut uuid = bits.to_be_bytes();
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Some(uuid)
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
    fn uuids_are_of_version_8_and_differ_where_any_bit_of_a_name_does() {
        assert_eq!(uuid([0; 16], [0; 8]), None);
        let bit = |n: usize, bytes: &mut [u8]| bytes[n / 8] ^= 1 << (n % 8);
        let mut seen = std::collections::BTreeSet::from([uuid(SEED, [7; 8])]);
        for n in 0..192 {
            let (mut nguid, mut eui64) = (SEED, [7; 8]);
            match n {
                0..128 => bit(n, &mut nguid),
                _ => bit(n - 128, &mut eui64),
            }
            let made = uuid(nguid, eui64);
            assert_eq!(made, uuid(nguid, eui64));
            let made = made.expect("it has names");
            assert_eq!((made[6] >> 4, made[8] >> 6), (8, 0b10));
            assert!(seen.insert(Some(made)), "bit {n}");
        }
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
