//! Bytes typed from the specification's tables (little-endian).

use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::{Command, HEADER_LEN, Header};

/// A `VERSION` request as QEMU 11.1.3 sends it: 214 bytes in all.
const QEMU_TEXT: &str = concat!(
    r#"{"capabilities": {"pgsizes": 4096, "max_msg_fds": 16, "max_dma_maps": 65535, "#,
    r#""max_data_xfer_size": 1048576, "migration": {"max_bitmap_size": 268435456, "#,
    r#""pgsize": 4096}, "write_multiple": true}}"#,
);

fn version_body(major: u16, minor: u16, text: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&major.to_le_bytes());
    body.extend_from_slice(&minor.to_le_bytes());
    body.extend_from_slice(text);
    body
}

fn qemu_version() -> Vec<u8> {
    let mut text = QEMU_TEXT.as_bytes().to_vec();
    text.push(0);
    version_body(0, 0, &text)
}

#[test]
fn header_bytes() {
    let bytes = [
        0x34, 0x12, // id
        0x0a, 0x00, // REGION_WRITE
        0x24, 0x00, 0x00, 0x00, // size 36
        0x10, 0x00, 0x00, 0x00, // command, no reply
        0x00, 0x00, 0x00, 0x00, // error
    ];
    let header = Header::read_from_bytes(&bytes).unwrap();
    assert_eq!(header.id, 0x1234);
    assert_eq!(header.command, Command::REGION_WRITE);
    assert_eq!(header.size, 36);
    assert!(header.is_command() && header.no_reply());
    assert!(!header.is_reply() && !header.is_error());

    let refusal = header.error_reply(22);
    assert_eq!(
        refusal.as_bytes(),
        [
            0x34, 0x12, 0x0a, 0x00, 0x10, 0x00, 0x00, 0x00, 0x21, 0x00, 0x00, 0x00, 0x16, 0x00,
            0x00, 0x00
        ]
    );
    assert!(refusal.is_reply() && refusal.is_error() && !refusal.is_command());
    assert_eq!(header.reply().as_bytes()[8..12], [1, 0, 0, 0]);
    assert_eq!(Header::request(1, Command::VERSION).flags, 0);
    assert_eq!(Header::posted(1, Command::VERSION).flags, 0x10);
}

#[test]
fn a_message_of_another_type_is_neither_command_nor_reply() {
    let mut header = Header::request(0, Command::VERSION);
    header.flags = 2;
    assert!(!header.is_command() && !header.is_reply());
    // Type is four bits wide: 0x11 is a reply with the no-reply bit.
    header.flags = 0x11;
    assert!(header.is_reply());
}

#[test]
fn command_numbers() {
    let numbers = [
        (1, "VERSION"),
        (2, "DMA_MAP"),
        (3, "DMA_UNMAP"),
        (4, "DEVICE_GET_INFO"),
        (5, "DEVICE_GET_REGION_INFO"),
        (6, "DEVICE_GET_REGION_IO_FDS"),
        (7, "DEVICE_GET_IRQ_INFO"),
        (8, "DEVICE_SET_IRQS"),
        (9, "REGION_READ"),
        (10, "REGION_WRITE"),
        (11, "DMA_READ"),
        (12, "DMA_WRITE"),
        (13, "DEVICE_RESET"),
        (15, "REGION_WRITE_MULTI"),
        (16, "DEVICE_FEATURE"),
        (17, "MIG_DATA_READ"),
        (18, "MIG_DATA_WRITE"),
    ];
    for (number, name) in numbers {
        assert_eq!(Command(number).name(), Some(name));
        assert_eq!(Command(number).to_string(), name);
    }
    for unknown in [0, 14, 19, u16::MAX] {
        assert_eq!(Command(unknown).name(), None);
    }
    assert_eq!(format!("{:?}", Command(14)), "Command(14)");
}

#[test]
fn qemu_version_bytes() {
    let body = qemu_version();
    assert_eq!(HEADER_LEN + body.len(), 214);
    let version = Version::parse(&body).unwrap();
    assert_eq!((version.major, version.minor), (0, 0));
    assert_eq!(
        version.capabilities,
        Capabilities {
            max_msg_fds: Some(16),
            max_data_xfer_size: Some(1_048_576),
            pgsizes: Some(4096),
            max_dma_maps: Some(65_535),
            write_multiple: Some(true),
            migration: Some(Migration {
                pgsize: Some(4096),
                max_bitmap_size: Some(268_435_456),
            }),
        }
    );
}

#[test]
fn version_reply_fits_qemu_and_names_two_capabilities() {
    let proposed = Version::parse(&qemu_version()).unwrap();
    let mut body = Vec::new();
    proposed.answer().unwrap().encode(&mut body);
    assert!(HEADER_LEN + body.len() <= 214);
    assert_eq!(body[..4], [0, 0, 0, 0]);
    assert_eq!(
        body[4..],
        *b"{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":1048576}}\0"
    );
}

#[test]
fn version_reply_has_the_lower_minor_and_the_same_major() {
    let answer = |major, minor| {
        Version::parse(&version_body(major, minor, b""))
            .unwrap()
            .answer()
            .map(|version| (version.major, version.minor))
    };
    assert_eq!(answer(0, 0), Some((0, 0)));
    assert_eq!(answer(0, 1), Some((0, 1)));
    assert_eq!(answer(0, 7), Some((0, 1)));
    assert_eq!(answer(1, 0), None);
}

#[test]
fn version_without_text_has_the_defaults() {
    // SPDK's host sends no text at all.
    let empty_texts: [&[u8]; 4] = [b"", b"\0", b"{}\0", b"{\"capabilities\":{}}\0"];
    for text in empty_texts {
        let version = Version::parse(&version_body(0, 1, text)).unwrap();
        assert_eq!(version.capabilities, Capabilities::default());
        assert_eq!(version.capabilities.msg_fds(), 1);
        assert_eq!(version.capabilities.data_xfer_len(), 1_048_576);
    }
}

#[test]
fn version_limits_are_clamped_to_ours() {
    let text = br#"{"capabilities":{"max_msg_fds":253,"max_data_xfer_size":18446744073709551615}}"#;
    let capabilities = Version::parse(&version_body(0, 0, text))
        .unwrap()
        .capabilities;
    assert_eq!(capabilities.msg_fds(), 16);
    assert_eq!(capabilities.data_xfer_len(), 1_048_576);
    let text = br#"{"capabilities":{"max_msg_fds":8,"max_data_xfer_size":4096}}"#;
    let capabilities = Version::parse(&version_body(0, 0, text))
        .unwrap()
        .capabilities;
    assert_eq!(capabilities.msg_fds(), 8);
    assert_eq!(capabilities.data_xfer_len(), 4096);
}

#[test]
fn version_ignores_unknown_members_and_what_follows_nul() {
    let text = b"{\"new\":[{}],\"capabilities\":{\"twin_socket\":{\"supported\":true},\"max_msg_fds\":2}}\0}{";
    let version = Version::parse(&version_body(0, 1, text)).unwrap();
    assert_eq!(version.capabilities.max_msg_fds, Some(2));
}

#[test]
fn version_text_that_is_no_object_is_malformed() {
    let texts: [&[u8]; 8] = [
        b"{",
        b"x",
        b"7\0",
        b"\xff\0",
        b"{\"capabilities\":7}\0",
        b"{\"capabilities\":{\"max_msg_fds\":-1}}\0",
        b"{\"capabilities\":{\"max_msg_fds\":\"16\"}}\0",
        b"{\"capabilities\":{\"max_msg_fds\":99999999999999999999999}}\0",
    ];
    for text in texts {
        assert_eq!(
            Version::parse(&version_body(0, 0, text)),
            Err(Malformed::VersionText),
            "{}",
            String::from_utf8_lossy(text)
        );
    }
}

#[test]
fn version_text_is_bounded_in_length_and_depth() {
    let longest = vec![b' '; Version::MAX_TEXT_LEN - 2];
    let text = [&longest[..], b"{}"].concat();
    assert!(Version::parse(&version_body(0, 0, &text)).is_ok());
    let text = [&longest[..], b" {}"].concat();
    assert_eq!(
        Version::parse(&version_body(0, 0, &text)),
        Err(Malformed::VersionTextTooLong { actual: 4097 })
    );
    let deep = [
        &b"{\"capabilities\":"[..],
        &b"[".repeat(2000),
        &b"]".repeat(2000),
        b"}",
    ]
    .concat();
    assert_eq!(
        Version::parse(&version_body(0, 0, &deep)),
        Err(Malformed::VersionText)
    );
}

#[test]
fn dma_map_bytes() {
    let bytes = [
        32, 0, 0, 0, // argsz
        0x03, 0, 0, 0, // readable, writeable
        0, 0, 0x10, 0, 0, 0, 0, 0, // offset 1 MiB
        0, 0, 0, 0, 1, 0, 0, 0, // address 4 GiB
        0, 0, 0xf0, 0x0f, 0, 0, 0, 0, // size
    ];
    let map = DmaMap {
        argsz: 32,
        flags: DmaMapFlags::READ | DmaMapFlags::WRITE,
        offset: 0x10_0000,
        iova: 0x1_0000_0000,
        size: 0xff0_0000,
    };
    assert_eq!(DmaMap::parse(&bytes), Ok(map));
    let mut out = Vec::new();
    map.encode(&mut out);
    assert_eq!(out, bytes);
    assert_eq!(DmaMapFlags::MMAP.0, 4);
    assert_eq!(DmaMapFlags::FILE_IO.0, 8);
}

#[test]
fn dma_unmap_bytes() {
    let bytes = [
        24, 0, 0, 0, // argsz
        0x02, 0, 0, 0, // all
        0, 0x10, 0, 0, 0, 0, 0, 0, // address
        0, 0x20, 0, 0, 0, 0, 0, 0, // size
    ];
    let unmap = DmaUnmap {
        argsz: 24,
        flags: DmaUnmapFlags::UNMAP_ALL,
        iova: 0x1000,
        size: 0x2000,
    };
    assert_eq!(DmaUnmap::parse(&bytes), Ok(unmap));
    let mut out = Vec::new();
    unmap.encode(&mut out);
    assert_eq!(out, bytes);
    // With the header the reply is 40 bytes.
    assert_eq!(HEADER_LEN + out.len(), 40);
    assert_eq!(DmaUnmapFlags::GET_DIRTY.0, 1);
}

#[test]
fn device_info_bytes() {
    let bytes = [16, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0];
    let info = DeviceInfo {
        argsz: 16,
        flags: DeviceFlags::RESET | DeviceFlags::PCI,
        num_regions: region_index::COUNT,
        num_irqs: irq_index::COUNT,
    };
    assert_eq!(DeviceInfo::parse(&bytes), Ok(info));
    let mut out = Vec::new();
    info.encode(&mut out);
    assert_eq!(out, bytes);
}

#[test]
fn irq_info_bytes() {
    let bytes = [16, 0, 0, 0, 0x07, 0, 0, 0, 2, 0, 0, 0, 65, 0, 0, 0];
    let info = IrqInfo {
        argsz: 16,
        flags: IrqFlags::EVENTFD | IrqFlags::MASKABLE | IrqFlags::AUTOMASKED,
        index: irq_index::MSIX,
        count: 65,
    };
    assert_eq!(IrqInfo::parse(&bytes), Ok(info));
    let mut out = Vec::new();
    info.encode(&mut out);
    assert_eq!(out, bytes);
    assert_eq!(IrqFlags::NORESIZE.0, 8);
}

#[test]
fn set_irqs_bytes() {
    let bytes = [
        22, 0, 0, 0, // argsz
        0x12, 0, 0, 0, // booleans, unmask
        1, 0, 0, 0, // MSI
        4, 0, 0, 0, // start
        2, 0, 0, 0, // count
        1, 0, // the booleans
    ];
    let set = SetIrqs::parse(&bytes).unwrap();
    assert_eq!((set.argsz, set.index, set.start, set.count), (22, 1, 4, 2));
    assert_eq!(
        set.operation(),
        Ok((IrqAction::Unmask, IrqData::Bool(&[1, 0])))
    );
    let mut out = Vec::new();
    set.encode(&mut out);
    assert_eq!(out, bytes);
}

#[test]
fn set_irqs_takes_one_kind_of_data_and_one_action() {
    let operation = |flags, count, data| {
        SetIrqs {
            argsz: 20,
            flags: SetIrqsFlags(flags),
            index: 2,
            start: 0,
            count,
            data,
        }
        .operation()
    };
    assert_eq!(
        operation(0x21, 0, &[]),
        Ok((IrqAction::Trigger, IrqData::None))
    );
    assert_eq!(
        operation(0x24, 8, &[]),
        Ok((IrqAction::Trigger, IrqData::EventFd))
    );
    assert_eq!(
        operation(0x09, 1, &[]),
        Ok((IrqAction::Mask, IrqData::None))
    );
    for bad in [0, 0x1, 0x20, 0x23, 0x31, 0x61, 0x3f, u32::MAX] {
        assert_eq!(operation(bad, 0, &[]), Err(Malformed::IrqFlags(bad)));
    }
    assert_eq!(
        operation(0x22, u32::MAX, &[1]),
        Err(Malformed::DataLength {
            count: u64::from(u32::MAX),
            actual: 1
        })
    );
}

#[test]
fn access_bytes() {
    let bytes = [
        0x00, 0x10, 0, 0, 0, 0, 0, 0, // offset
        0, 0, 0, 0, // BAR0
        4, 0, 0, 0, // count
        0xde, 0xad, 0xbe, 0xef,
    ];
    let (head, data) = Access::parse_with_data(&bytes).unwrap();
    assert_eq!(
        head,
        Access {
            offset: 0x1000,
            region: region_index::BAR0,
            count: 4
        }
    );
    assert_eq!(data, [0xde, 0xad, 0xbe, 0xef]);
    // SPDK's host sends a read with room for the data behind it.
    assert_eq!(Access::parse(&bytes), Ok(head));
    for wrong in [&bytes[..19], &[&bytes[..], &[0]].concat()[..]] {
        assert_eq!(
            Access::parse_with_data(wrong),
            Err(Malformed::DataLength {
                count: 4,
                actual: wrong.len() - 16
            })
        );
    }
}

#[test]
fn dma_access_bytes() {
    let bytes = [
        0, 0, 0, 0, 1, 0, 0, 0, // address
        2, 0, 0, 0, 0, 0, 0, 0, // count
        7, 8,
    ];
    let head = DmaAccess {
        address: 1 << 32,
        count: 2,
    };
    assert_eq!(DmaAccess::parse_with_data(&bytes), Ok((head, &[7, 8][..])));
    let mut out = Vec::new();
    head.encode(&mut out);
    assert_eq!(out, bytes[..16]);
    let mut huge = bytes;
    huge[15] = 0xff;
    assert!(DmaAccess::parse_with_data(&huge).is_err());
}

const DOORBELLS: SparseArea = SparseArea {
    offset: 0x1000,
    size: 0x1000,
};

fn bar0() -> RegionInfo {
    RegionInfo {
        argsz: 0,
        flags: RegionFlags::READ | RegionFlags::WRITE | RegionFlags::MMAP,
        index: region_index::BAR0,
        cap_offset: 0,
        size: 0x4000,
        offset: 0,
    }
}

#[test]
fn region_info_bytes_with_a_mappable_area() {
    let mut out = Vec::new();
    assert!(bar0().encode_reply(&[DOORBELLS], 64, &mut out));
    assert_eq!(
        out,
        [
            64, 0, 0, 0, // argsz
            0x0f, 0, 0, 0, // read, write, mmap, capabilities
            0, 0, 0, 0, // index
            32, 0, 0, 0, // first capability
            0, 0x40, 0, 0, 0, 0, 0, 0, // size
            0, 0, 0, 0, 0, 0, 0, 0, // offset
            1, 0, 1, 0, 0, 0, 0, 0, // sparse mmap, version 1, no next
            1, 0, 0, 0, 0, 0, 0, 0, // one area
            0, 0x10, 0, 0, 0, 0, 0, 0, // offset
            0, 0x10, 0, 0, 0, 0, 0, 0, // size
        ]
    );
    let (info, areas) = RegionInfo::parse_reply(&out).unwrap();
    assert_eq!((info.size, info.cap_offset), (0x4000, 32));
    assert_eq!(areas, [DOORBELLS]);
}

#[test]
fn region_info_for_too_small_an_argsz_has_no_capabilities() {
    for argsz in [0, 32, 63] {
        let mut out = Vec::new();
        assert!(!bar0().encode_reply(&[DOORBELLS], argsz, &mut out));
        assert_eq!(out.len(), 32);
        let info = RegionInfo::parse(&out).unwrap();
        assert_eq!(info.argsz, 64);
        assert_eq!(info.cap_offset, 0);
        assert_eq!(info.flags.0, 0x07);
    }
}

#[test]
fn region_info_without_areas_is_whole_at_once() {
    let mut out = Vec::new();
    let mut info = bar0();
    info.flags = RegionFlags::READ | RegionFlags::CAPS;
    assert!(info.encode_reply(&[], 32, &mut out));
    assert_eq!(out.len(), 32);
    let (info, areas) = RegionInfo::parse_reply(&out).unwrap();
    assert_eq!((info.argsz, info.flags), (32, RegionFlags::READ));
    assert!(areas.is_empty());
}

#[test]
fn region_info_request_longer_than_the_structure_is_taken() {
    let mut body = Vec::new();
    bar0().encode(&mut body);
    body.resize(4096, 0);
    assert_eq!(RegionInfo::parse(&body), Ok(bar0()));
}

#[test]
fn region_capabilities_of_other_kinds_are_skipped() {
    let mut body = Vec::new();
    assert!(bar0().encode_reply(&[DOORBELLS], 64, &mut body));
    // A capability of 8 bytes behind the area list, and one of another kind before it.
    body[12..16].copy_from_slice(&64u32.to_le_bytes());
    body.extend_from_slice(&[9, 0, 1, 0, 32, 0, 0, 0]);
    assert_eq!(
        RegionInfo::parse_reply(&body),
        Err(Malformed::RegionCapability { offset: 32 }),
        "a list that goes back is refused"
    );
    body[68..72].copy_from_slice(&72u32.to_le_bytes());
    let list = body[32..64].to_vec();
    body.extend_from_slice(&list);
    assert_eq!(RegionInfo::parse_reply(&body).unwrap().1, [DOORBELLS]);
}

#[test]
fn hostile_region_capabilities_are_refused() {
    let mut good = Vec::new();
    assert!(bar0().encode_reply(&[DOORBELLS], 64, &mut good));
    let mutate = |at: usize, value: u32| {
        let mut body = good.clone();
        body[at..at + 4].copy_from_slice(&value.to_le_bytes());
        RegionInfo::parse_reply(&body)
    };
    let refused = |offset| Err(Malformed::RegionCapability { offset });
    // The first capability within the structure, past the end, at the very end.
    assert_eq!(mutate(12, 4), refused(4));
    assert_eq!(mutate(12, 64), refused(64));
    assert_eq!(mutate(12, u32::MAX), refused(u32::MAX));
    // The next one is itself.
    assert_eq!(mutate(36, 32), refused(32));
    assert_eq!(mutate(36, 33), refused(33));
    // More areas than bytes.
    assert_eq!(mutate(40, 2), refused(32));
    assert_eq!(mutate(40, u32::MAX), refused(32));
}

#[test]
fn every_body_shorter_than_its_structure_is_short() {
    let zeros = [0u8; 32];
    for len in 0..32 {
        let body = &zeros[..len];
        let short = |expected| Malformed::Short {
            expected,
            actual: len,
        };
        let expect = |error: Option<Malformed>, expected| {
            assert_eq!(error, (len < expected).then(|| short(expected)));
        };
        expect(DmaMap::parse(body).err(), 32);
        expect(RegionInfo::parse(body).err(), 32);
        expect(DmaUnmap::parse(body).err(), 24);
        expect(SetIrqs::parse(body).err(), 20);
        expect(DeviceInfo::parse(body).err(), 16);
        expect(IrqInfo::parse(body).err(), 16);
        expect(Access::parse(body).err(), 16);
        expect(DmaAccess::parse(body).err(), 16);
        expect(Version::parse(body).err(), 4);
    }
}

#[test]
fn a_refusal_names_the_other_host_where_it_is_known() {
    for refusal in [Refusal { host: None }, Refusal { host: Some(4242) }] {
        let mut body = Vec::new();
        refusal.encode(&mut body);
        assert_eq!(Refusal::parse(&body), refusal);
        assert!(HEADER_LEN + body.len() <= 214, "QEMU's buffer");
    }
    for body in [
        &b""[..],
        b"\0",
        b"\0\0\x01\0",
        b"\0\0\x01\0{\"host\":-1}\0",
        b"\0\0\x01\0[[]]",
    ] {
        assert_eq!(Refusal::parse(body), Refusal::default());
    }
}
