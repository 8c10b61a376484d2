use proptest::prelude::*;

use super::*;

/// A write of 512 bytes at 4096 with FUA, byte by byte.
const COMPACT: [u8; 28] = [
    0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 2,
    0,
];
/// The same with an extended header, where its data need PAYLOAD_LEN.
const EXTENDED: [u8; 32] = [
    0x21, 0xe4, 0x1c, 0x71, 0, 0x21, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0,
    0, 0, 0, 0, 2, 0,
];

fn write() -> Request {
    Request {
        command: Command::WRITE,
        flags: CommandFlags::new().with_fua(true),
        cookie: 0x0102_0304_0506_0708,
        offset: 4096,
        len: 512,
    }
}

fn parsed(bytes: &[u8], extended: bool) -> Request {
    Request::parse(bytes, extended).unwrap().unwrap()
}

#[test]
fn a_compact_request_is_read() {
    assert_eq!(parsed(&COMPACT, false), write());
    assert_eq!(write().payload(false), 512);
    assert_eq!(write().encode(false).unwrap()[..], COMPACT);
    assert_eq!(COMPACT.len(), REQUEST_LEN);
}

#[test]
fn an_extended_request_is_read() {
    let mut request = write();
    request.flags.set_payload_len(true);
    assert_eq!(parsed(&EXTENDED, true), request);
    assert_eq!(request.payload(true), 512);
    assert_eq!(request.encode(true).unwrap()[..], EXTENDED);
    assert_eq!(EXTENDED.len(), EXTENDED_REQUEST_LEN);
}

#[test]
fn a_request_waits_for_its_last_byte() {
    for (bytes, extended) in [(&COMPACT[..], false), (&EXTENDED[..], true)] {
        for len in 0..bytes.len() {
            assert_eq!(Request::parse(&bytes[..len], extended), Ok(None));
        }
        let more = [bytes, b"data"].concat();
        assert_eq!(parsed(&more, extended), parsed(bytes, extended));
    }
}

#[test]
fn each_style_has_its_magic_number() {
    for (bytes, extended, magic) in [
        (&COMPACT[..], true, 0x2560_9513),
        (&EXTENDED[..], false, 0x21e4_1c71),
    ] {
        // The number alone is enough.
        for len in [4, bytes.len()] {
            let end = Request::parse(&bytes[..len], extended);
            assert_eq!(end, Err(Fault::RequestMagic(magic)));
        }
    }
}

#[test]
fn data_are_bounded_and_other_lengths_are_not() {
    let request = |command, payload_len, len| Request {
        command,
        flags: CommandFlags::new().with_payload_len(payload_len),
        cookie: 1,
        offset: u64::MAX,
        len,
    };
    // 2^25, the most that every server takes.
    let most = 33_554_432;
    for (command, payload_len, len, extended, data) in [
        (Command::WRITE, false, most, false, most),
        (Command::WRITE, false, most + 1, false, most + 1),
        (Command::WRITE, true, most + 1, true, most + 1),
        (Command::WRITE, true, u64::MAX, true, u64::MAX),
        // A payload is what follows, of any command.
        (Command::BLOCK_STATUS, true, most, true, most),
        (Command(99), true, most + 1, true, most + 1),
        // Without the flag it comes from QEMU 11.
        (Command::WRITE, false, most, true, most),
        (Command::WRITE, false, u64::MAX, true, u64::MAX),
        (Command::TRIM, false, u64::MAX, true, 0),
        (Command::TRIM, false, u64::from(u32::MAX), false, 0),
        // Compact headers do not know the flag.
        (Command::READ, true, u64::from(u32::MAX), false, 0),
    ] {
        let request = request(command, payload_len, len);
        assert_eq!(request.payload(extended), data);
        let bytes = request.encode(extended).unwrap();
        let expected = if data > most {
            Err(Fault::RequestLength(data))
        } else {
            Ok(Some(request))
        };
        assert_eq!(Request::parse(&bytes, extended), expected);
    }
}

#[test]
fn a_compact_header_has_no_room_for_a_long_length() {
    let mut request = write();
    request.len = 1 << 32;
    assert_eq!(request.encode(false), None);
    assert!(request.encode(true).is_some());
}

proptest! {
    #[test]
    fn requests_come_back(
        command in any::<u16>(),
        flags in any::<u16>(),
        cookie in any::<u64>(),
        offset in any::<u64>(),
        len in 0..=MAX_PAYLOAD,
        extended in any::<bool>(),
    ) {
        let request = Request {
            command: Command(command),
            flags: CommandFlags::from_bits(flags),
            cookie,
            offset,
            len,
        };
        let bytes = request.encode(extended).unwrap();
        prop_assert_eq!(Request::parse(&bytes, extended), Ok(Some(request)));
    }
}
