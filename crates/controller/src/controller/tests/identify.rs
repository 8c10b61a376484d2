//! Identify, by the byte offsets of Base 2.1 figure 312 and NVM 1.1 figure 114.

use nvme_spec::Sqe;

use super::rig::*;

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn controller_by_offset() {
    let mut rig = Rig::enabled();
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(
        (u16_at(&id, 0), u16_at(&id, 2)),
        (0x4e56, 0x4e56),
        "VID, SSVID"
    );
    assert_eq!(text(&id[4..24]), "SERIAL-1            ");
    assert_eq!(
        text(&id[24..64]),
        "a model                                 "
    );
    assert_eq!(text(&id[64..72]), "0.1     ");
    assert_eq!(id[72], 5, "RAB: 32 commands");
    assert_eq!(
        id[73..76],
        [0x56, 0x4e, 0x02],
        "IEEE OUI, least significant byte first"
    );
    assert_eq!(id[76], 0, "CMIC: one port, one controller");
    assert_eq!(id[77], 8, "MDTS: 2^8 pages of 4 KiB");
    assert_ne!(u16_at(&id, 78), 0xffff, "CNTLID");
    assert_eq!(u32_at(&id, 80), 0x0002_0100, "VER");
    assert_ne!(u32_at(&id, 88), 0, "RTD3E");
    assert_eq!(u32_at(&id, 92), 1 << 8, "OAES: namespace attribute notices");
    assert_eq!(id[111], 1, "CNTRLTYPE: I/O controller");
    assert_eq!(
        u16_at(&id, 256),
        1 << 1 | 1 << 2 | 1 << 8 | 1 << 9,
        "OACS: Format NVM, firmware commands, Doorbell Buffer Config, Get LBA Status"
    );
    assert_eq!(id[258], 3, "ACL, 0's based");
    assert_eq!(id[259], 3, "AERL, 0's based");
    assert_eq!(id[260], 0b0000_0011, "FRMW: one slot, read-only");
    assert_eq!(
        id[261], 0b0010_0110,
        "LPA: effects, extended data, pages 00h, 12h and 13h with scopes"
    );
    assert_eq!(id[262], 63, "ELPE, 0's based");
    assert_eq!(id[263], 0, "NPSS: one power state");
    assert!(
        u16_at(&id, 266) > 0 && u16_at(&id, 268) >= u16_at(&id, 266),
        "WCTEMP, CCTEMP"
    );
    assert_eq!(u32_at(&id, 272), 0, "HMPRE");
    assert_eq!(
        [u64_at(&id, 280), u64_at(&id, 296)],
        [0; 2],
        "TNVMCAP, UNVMCAP"
    );
    assert_eq!(u16_at(&id, 320), 1, "KAS: in units of 100 ms");
    // Block erase and overwrite; media are not modified besides.
    assert_eq!(u32_at(&id, 328), 0b110 | 0b01 << 30, "SANICAP");
    assert_eq!(u32_at(&id, 96), 1, "CTRATT: host identifiers of 128 bits");
    assert_eq!((id[512], id[513]), (0x66, 0x44), "SQES, CQES");
    assert_eq!(u32_at(&id, 516), 32, "NN");
    // Compare, Write Uncorrectable, Dataset Management, Write Zeroes, save and select,
    // reservations, timestamp, Verify, Copy with single atomicity.
    assert_eq!(u16_at(&id, 520), 0b11_1111_1111, "ONCS");
    assert_eq!(u16_at(&id, 534), 0b101, "CDFS: formats 0h and 2h");
    assert_eq!(u16_at(&id, 522), 1, "FUSES: Compare and Write");
    let atomic = [526, 528, 532].map(|at| u16_at(&id, at));
    assert_eq!(atomic, [0; 3], "AWUN, AWUPF, ACWU: one block");
    assert_eq!(id[524], 0, "FNA");
    assert_eq!(id[525], 0b111, "VWC: present, and Flush takes FFFFFFFFh");
    // No alignment asked for, Bit Buckets, lists longer than the data; nothing keyed, no offsets,
    // no metadata.
    assert_eq!(u32_at(&id, 536), 1 | 1 << 16 | 1 << 18, "SGLS");
    assert_eq!(&id[768..801], b"nqn.2014-08.org.nvmexpress:uuid:x");
    assert!(id[801..1024].iter().all(|byte| *byte == 0));
    assert_ne!(u16_at(&id, 2048), 0, "power state 0 has a maximum power");
}

#[test]
fn without_a_volatile_cache_vwc_says_so() {
    let mut rig = Rig::with_namespaces(config(), namespaces().split_off(1));
    rig.enable();
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(id[525], 0b110);
    // And the feature does not exist (Base 2.1, 5.1.25.1.4).
    assert_eq!(code(&rig.get_feature(0x06, 0, 0)), INVALID_FIELD);
    assert_eq!(code(&rig.set_feature(0x06, 1)), INVALID_FIELD);
}

#[test]
fn namespace_by_offset() {
    let mut rig = Rig::enabled();
    let ns = rig.identify(0x00, 1, 0).unwrap();
    assert_eq!(
        [u64_at(&ns, 0), u64_at(&ns, 8), u64_at(&ns, 16)],
        [2048; 3],
        "NSZE, NCAP, NUSE"
    );
    assert_eq!(
        ns[24],
        1 << 4,
        "NSFEAT: optimal sizes are told, nothing else"
    );
    assert_eq!(
        (ns[25], ns[26]),
        (1, 0),
        "two LBA formats; the first is in use"
    );
    assert_eq!(ns[32], 0x80, "FPI: nothing is left to format");
    assert_eq!((ns[29], ns[30]), (0, 0), "no protection, not shared");
    assert_eq!(ns[33], 0b1001, "DLFEAT: reads zeroes, DEAC is obeyed");
    assert_eq!(u64_at(&ns, 48), 2048 * 512, "NVMCAP");
    for at in [64, 66, 68, 70, 72] {
        assert_eq!(u16_at(&ns, at), 7, "4096 bytes are eight blocks, 0's based");
    }
    let copy = (u16_at(&ns, 74), u32_at(&ns, 76), ns[80]);
    assert_eq!(
        copy,
        (2048, 8192, 127),
        "MSSRL, MCL, MSRC: 1 MiB, 4 MiB, 128"
    );
    assert_eq!(&ns[104..120], b"ABCDEFGHIJKLMNOP");
    assert_eq!(&ns[120..128], b"12345678");
    assert_eq!(
        u32_at(&ns, 128),
        9 << 16,
        "LBA format 0: 512 bytes, no metadata"
    );
    assert_eq!(u32_at(&ns, 132), 12 << 16, "LBA format 1: 4096 bytes");
    assert!(ns[136..384].iter().all(|byte| *byte == 0));
    let other = rig.identify(0x00, 3, 0).unwrap();
    assert_eq!((other[24], other[33]), (0, 0b1000));
}

#[test]
fn namespace_ids_are_valid_inactive_or_invalid() {
    let mut rig = Rig::enabled();
    for cns in [0x00, 0x05, 0x08] {
        for nsid in [2, 4, 32] {
            let page = rig.identify(cns, nsid, 0).unwrap();
            assert!(
                page.iter().all(|byte| *byte == 0),
                "CNS {cns:#x}: inactive is zeros"
            );
        }
        for nsid in [0, 33, 0xffff_fffe, 0xffff_ffff] {
            assert_eq!(
                rig.identify(cns, nsid, 0),
                Err(INVALID_NAMESPACE),
                "CNS {cns:#x} {nsid:#x}"
            );
        }
    }
    for nsid in [0, 2, 33, 0xffff_ffff] {
        assert_eq!(
            rig.identify(0x03, nsid, 0),
            Err(INVALID_NAMESPACE),
            "{nsid:#x}"
        );
    }
}

#[test]
fn active_lists_start_above_the_id() {
    let mut rig = Rig::enabled();
    for cns in [0x02, 0x07] {
        for (nsid, expected) in [
            (0, [1, 3, 0]),
            (1, [3, 0, 0]),
            (2, [3, 0, 0]),
            (3, [0, 0, 0]),
            (0xffff_fffd, [0; 3]),
        ] {
            let list = rig.identify(cns, nsid, 0).unwrap();
            assert_eq!(
                [u32_at(&list, 0), u32_at(&list, 4), u32_at(&list, 8)],
                expected,
                "above {nsid}"
            );
            assert!(list[12..].iter().all(|byte| *byte == 0));
        }
        for nsid in [0xffff_fffe, 0xffff_ffff] {
            assert_eq!(rig.identify(cns, nsid, 0), Err(INVALID_NAMESPACE));
        }
    }
}

#[test]
fn descriptors_are_eui64_nguid_uuid_and_command_set() {
    let mut rig = Rig::enabled();
    let list = rig.identify(0x03, 1, 0).unwrap();
    let mut expected = vec![1, 8, 0, 0];
    expected.extend(b"12345678");
    expected.extend([2, 16, 0, 0]);
    expected.extend(b"ABCDEFGHIJKLMNOP");
    expected.extend([3, 16, 0, 0]);
    let uuid = &list[expected.len()..][..16];
    // RFC 9562, 4: version 8, variant 1.
    assert_eq!((uuid[6] >> 4, uuid[8] >> 6), (8, 0b10));
    expected.extend(uuid);
    expected.extend([4, 1, 0, 0, 0]);
    assert_eq!(&list[..expected.len()], expected);
    // It is the same for every process and controller: a name of the namespace.
    let another = Rig::enabled().identify(0x03, 1, 0).unwrap();
    assert_eq!(another, list);
    assert!(list[expected.len()..].iter().all(|byte| *byte == 0));
    // One without identifiers tells its command set only.
    let list = rig.identify(0x03, 3, 0).unwrap();
    assert_eq!(list[..8], [4, 1, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn independent_namespace_tells_readiness_and_the_cache() {
    let mut rig = Rig::enabled();
    let first = rig.identify(0x08, 1, 0).unwrap();
    assert_eq!((first[0], first[14]), (0, 1));
    let second = rig.identify(0x08, 3, 0).unwrap();
    assert_eq!((second[0], second[14]), (1 << 5, 1), "VWCNP");
}

#[test]
fn only_the_nvm_command_set_is_known() {
    let mut rig = Rig::enabled();
    for cns in [0x05, 0x06, 0x07] {
        assert!(rig.identify(cns, 1, 0).is_ok());
        for csi in [1, 2, 0xff] {
            assert_eq!(
                rig.identify(cns, 1, csi),
                Err(INVALID_FIELD),
                "CNS {cns:#x} CSI {csi}"
            );
        }
    }
    let nvm = rig.identify(0x06, 0, 0).unwrap();
    assert!(
        nvm[..16].iter().all(|byte| *byte == 0),
        "no limits beside MDTS"
    );
    let sets = rig.identify(0x1c | 0xffff << 16, 0, 0).unwrap();
    assert_eq!((u64_at(&sets, 0), u64_at(&sets, 8)), (1, 0));
    assert_eq!(rig.identify(0x1c | 0x1234 << 16, 0, 0), Err(INVALID_FIELD));
}

#[test]
fn other_structures_are_invalid_fields() {
    let mut rig = Rig::enabled();
    for cns in [
        0x04, 0x09, 0x0a, 0x0b, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1d, 0x1e, 0x20, 0xff,
    ] {
        assert_eq!(rig.identify(cns, 1, 0), Err(INVALID_FIELD), "CNS {cns:#x}");
    }
}

#[test]
fn data_goes_where_the_prps_say() {
    let mut rig = Rig::enabled();
    let page = rig.identify(0x01, 0, 0).unwrap();
    // From inside one page into the next that PRP2 names.
    let (first, second) = (rig.host.page(170), rig.host.page(180));
    let sqe = Sqe {
        opcode: IDENTIFY,
        cdw10: 1,
        prp1: first.0 + 0x800,
        prp2: second.0,
        ..Sqe::default()
    };
    assert_eq!(rig.status(sqe), OK);
    assert_eq!(
        rig.host.read(memory::Iova(first.0 + 0x800), 0x800),
        page[..0x800]
    );
    assert_eq!(rig.host.read(second, 0x800), page[0x800..]);
    for (prp1, prp2, expected) in [
        (first.0 + 2, second.0, PRP_OFFSET),
        (first.0 + 0x800, second.0 + 4, PRP_OFFSET),
        (0, 0, DATA_TRANSFER),
        (first.0 + 0x800, 0, DATA_TRANSFER),
        (!0xfff, 0, DATA_TRANSFER),
        (rig.host.page(PAGES).0, 0, DATA_TRANSFER),
    ] {
        let sqe = Sqe { prp1, prp2, ..sqe };
        assert_eq!(rig.status(sqe), expected, "{prp1:#x} {prp2:#x}");
    }
}

#[test]
fn sgls_and_fused_admin_commands_are_invalid_fields() {
    let mut rig = Rig::enabled();
    for flags in [0b0100_0000u8, 0b1000_0000, 0b1100_0000, 0b01, 0b10, 0b11] {
        let sqe = rig.with_data(IDENTIFY);
        let sqe = Sqe {
            cdw10: 1,
            flags: flags.into(),
            ..sqe
        };
        assert_eq!(rig.status(sqe), INVALID_FIELD, "{flags:#b}");
    }
    // Reserved bits are ignored.
    let sqe = rig.with_data(IDENTIFY);
    let sqe = Sqe {
        cdw10: 1,
        flags: 0b0011_1100u8.into(),
        cdw2: !0,
        cdw3: !0,
        mptr: !0,
        cdw15: !0,
        ..sqe
    };
    assert_eq!(rig.status(sqe), OK);
}

#[test]
fn opcodes_that_are_not_served_are_invalid() {
    let mut rig = Rig::enabled();
    let served = [
        0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x10, 0x11, 0x18, 0x7c, 0x80,
        0x84, 0x86,
    ];
    for opcode in (0..=0xff).filter(|opcode| !served.contains(opcode)) {
        let sqe = rig.with_data(opcode);
        assert_eq!(
            rig.status(Sqe { nsid: 1, ..sqe }),
            INVALID_OPCODE,
            "{opcode:#x}"
        );
    }
    // Device Self-test (14h), Security (81h, 82h) and, without a pool, Namespace Management (0Dh)
    // are among them.
    let effects = rig.log(0x05, 0, 4096).unwrap();
    for opcode in 0..256 {
        let expected = u32::from(served.contains(&(opcode as u8)));
        assert_eq!(u32_at(&effects, opcode * 4) & 1, expected, "{opcode:#x}");
    }
}
