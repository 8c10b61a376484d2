//! Features (Base 2.1, 5.1.11 and 5.1.25): values, selections, scopes, and what is refused.

use nvme_spec::Sqe;
use port::Cause;
use port::testing::{Manner, Seen};

use super::rig::*;

const CURRENT: u32 = 0;
const DEFAULT: u32 = 1;
const SAVED: u32 = 2;
const SUPPORTED: u32 = 3;

/// (feature, a value that can be set, its default), for those whose value is Dword 11 and Dword 0.
const PLAIN: [(u32, u32, u32); 8] = [
    (0x01, 0x0403_0207, 5),
    (0x02, 0x0000_0040, 0),
    (0x04, 0x0000_0150, 343),
    (0x06, 1, 1),
    (0x08, 0x0000_0a07, 0),
    (0x0a, 1, 0),
    (0x0b, 0x0000_0102, 0),
    (0x05, 0x0000_0064, 0),
];

#[test]
fn values_are_set_read_back_and_reset() {
    let mut rig = Rig::enabled();
    let nsid = |fid| u32::from(fid == 0x05);
    for (fid, value, default) in PLAIN {
        let set = Sqe {
            opcode: SET_FEATURES,
            cdw10: fid,
            cdw11: value,
            nsid: nsid(fid),
            ..Sqe::default()
        };
        let get = |sel: u32| Sqe {
            opcode: GET_FEATURES,
            cdw10: sel << 8 | fid,
            nsid: nsid(fid),
            ..Sqe::default()
        };
        assert_eq!(rig.admin(get(CURRENT)).dw0, default, "{fid:#x}");
        assert_eq!(rig.status(set), OK, "{fid:#x}");
        // Of a temperature threshold, Dword 0 holds the threshold alone.
        assert_eq!(rig.admin(get(CURRENT)).dw0, value, "{fid:#x}");
        assert_eq!(rig.admin(get(DEFAULT)).dw0, default, "{fid:#x}");
        assert_eq!(rig.admin(get(SAVED)).dw0, default, "nothing was saved");
        let supported = 1 << 2 | nsid(fid) << 1 | 1;
        assert_eq!(
            rig.admin(get(SUPPORTED)).dw0,
            supported,
            "{fid:#x}: changeable, and saveable"
        );
        for reserved in 4..8 {
            assert_eq!(rig.status(get(reserved)), INVALID_FIELD);
        }
    }
    rig.disable();
    rig.enable();
    for (fid, _, default) in PLAIN {
        let get = Sqe {
            opcode: GET_FEATURES,
            cdw10: fid,
            nsid: nsid(fid),
            ..Sqe::default()
        };
        assert_eq!(rig.admin(get).dw0, default, "{fid:#x} after a reset");
    }
}

#[test]
fn reserved_bits_are_not_kept() {
    let mut rig = Rig::enabled();
    for (fid, kept) in [
        (0x01, 0xffff_ff07),
        (0x08, 0xffff),
        (0x0a, 1),
        (0x0b, 0x1ff),
    ] {
        assert_eq!(code(&rig.set_feature(fid, !0)), OK);
        assert_eq!(rig.get_feature(fid, CURRENT, 0).dw0, kept, "{fid:#x}");
    }
}

#[test]
fn features_that_do_not_exist_are_invalid_fields() {
    let mut rig = Rig::enabled();
    let there = [
        0x01, 0x02, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0e, 0x0f, 0x16, 0x19, 0x81,
        0x82, 0x83,
    ];
    for fid in (0..=0xff).filter(|fid| !there.contains(fid)) {
        for sel in [CURRENT, SUPPORTED] {
            assert_eq!(
                code(&rig.get_feature(fid, sel, 0)),
                INVALID_FIELD,
                "{fid:#x}"
            );
        }
        assert_eq!(code(&rig.set_feature(fid, 0)), INVALID_FIELD, "{fid:#x}");
        assert_eq!(
            code(&rig.set_feature(fid | 1 << 31, 0)),
            INVALID_FIELD,
            "{fid:#x}, to be saved"
        );
    }
    // Among them Host Memory Buffer (0Dh) and power transitions (0Ch).
}

#[test]
fn namespace_ids_fit_the_scope() {
    let mut rig = Rig::enabled();
    let set = |fid: u32, nsid: u32| Sqe {
        opcode: SET_FEATURES,
        cdw10: fid,
        nsid,
        ..Sqe::default()
    };
    assert_eq!(rig.status(set(0x01, 0)), OK);
    assert_eq!(rig.status(set(0x01, 0xffff_ffff)), OK);
    assert_eq!(rig.status(set(0x01, 1)), NOT_NAMESPACE_SPECIFIC);
    assert_eq!(rig.status(set(0x01, 33)), INVALID_NAMESPACE);
    assert_eq!(rig.status(set(0x05, 1)), OK);
    assert_eq!(rig.status(set(0x05, 0xffff_ffff)), OK);
    assert_eq!(rig.status(set(0x05, 0)), INVALID_NAMESPACE);
    assert_eq!(rig.status(set(0x05, 33)), INVALID_NAMESPACE);
    let get = |nsid: u32| Sqe {
        opcode: GET_FEATURES,
        cdw10: 0x05,
        nsid,
        ..Sqe::default()
    };
    for nsid in [33, 0xffff_fffe, 0xffff_ffff] {
        assert_eq!(rig.status(get(nsid)), INVALID_NAMESPACE);
    }
    // An identifier that is valid and inactive (Base 2.1, 3.2.1.5).
    assert_eq!(rig.status(get(2)), INVALID_FIELD);
    assert_eq!(rig.status(set(0x05, 2)), INVALID_FIELD);
    // Of the controller's features any namespace may be named to read them (Base 2.1, 4.4).
    let arbitration = |nsid: u32| Sqe {
        opcode: GET_FEATURES,
        cdw10: 0x01,
        nsid,
        ..Sqe::default()
    };
    for nsid in [0, 1, 3, 32, 0xffff_ffff] {
        assert_eq!(rig.status(arbitration(nsid)), OK, "{nsid:#x}");
    }
    for nsid in [33, 0xffff_fffe] {
        assert_eq!(rig.status(arbitration(nsid)), INVALID_NAMESPACE);
    }
}

#[test]
fn error_recovery_is_each_namespaces_own() {
    let mut rig = Rig::enabled();
    let set = |nsid: u32, cdw11: u32| Sqe {
        opcode: SET_FEATURES,
        cdw10: 0x05,
        nsid,
        cdw11,
        ..Sqe::default()
    };
    let get = |nsid: u32| Sqe {
        opcode: GET_FEATURES,
        cdw10: 0x05,
        nsid,
        ..Sqe::default()
    };
    assert_eq!(rig.status(set(1, 7)), OK);
    assert_eq!((rig.admin(get(1)).dw0, rig.admin(get(3)).dw0), (7, 0));
    assert_eq!(rig.status(set(0xffff_ffff, 9)), OK);
    assert_eq!((rig.admin(get(1)).dw0, rig.admin(get(3)).dw0), (9, 9));
    // DULBE: no namespace supports that error.
    assert_eq!(rig.status(set(1, 1 << 16)), INVALID_FIELD);
}

#[test]
fn error_recovery_without_a_namespace_is_the_value_that_all_share() {
    let mut rig = Rig::enabled();
    let set = |nsid: u32, cdw11: u32| Sqe {
        opcode: SET_FEATURES,
        cdw10: 0x05,
        nsid,
        cdw11,
        ..Sqe::default()
    };
    let get = |sel: u32| Sqe {
        opcode: GET_FEATURES,
        cdw10: sel << 8 | 0x05,
        ..Sqe::default()
    };
    for sel in [CURRENT, DEFAULT, SAVED] {
        let cqe = rig.admin(get(sel));
        assert_eq!((code(&cqe), cqe.dw0), (OK, 0), "{sel}");
    }
    assert_eq!(rig.admin(get(SUPPORTED)).dw0, 0b111);
    assert_eq!(rig.status(set(0xffff_ffff, 9)), OK);
    assert_eq!(rig.admin(get(CURRENT)).dw0, 9);
    // No one value is true of both, and setting names a namespace.
    assert_eq!(rig.status(set(3, 7)), OK);
    assert_eq!(rig.status(get(CURRENT)), INVALID_NAMESPACE);
    assert_eq!(rig.status(get(SUPPORTED)), OK);
    assert_eq!(rig.status(set(0, 9)), INVALID_NAMESPACE);
    let mut rig = Rig::with_namespaces(config(), Vec::new());
    rig.enable();
    let cqe = rig.admin(get(CURRENT));
    assert_eq!((code(&cqe), cqe.dw0), (OK, 0), "no namespaces");
}

#[test]
fn number_of_queues_is_asked_once_before_the_first_queue() {
    let mut rig = Rig::enabled();
    assert_eq!(
        rig.get_feature(0x07, CURRENT, 0).dw0,
        0x0003_0003,
        "all that are offered"
    );
    assert_eq!(rig.set_feature(0x07, 0).dw0, 0, "one of each");
    assert_eq!(rig.set_feature(0x07, 0xfffe_0001).dw0, 0x0003_0001);
    assert_eq!(rig.get_feature(0x07, CURRENT, 0).dw0, 0x0003_0001);
    assert_eq!(rig.get_feature(0x07, DEFAULT, 0).dw0, 0x0003_0003);
    // 65,535 is more than there can be (Base 2.1, 5.1.25.2.1).
    assert_eq!(code(&rig.set_feature(0x07, 0x0000_ffff)), INVALID_FIELD);
    assert_eq!(code(&rig.set_feature(0x07, 0xffff_0000)), INVALID_FIELD);
    rig.create_pair(1, 8);
    assert_eq!(code(&rig.set_feature(0x07, 0x0003_0003)), SEQUENCE_ERROR);
    assert_eq!(rig.get_feature(0x07, CURRENT, 0).dw0, 0x0003_0001);
}

#[test]
fn there_is_one_power_state() {
    let mut rig = Rig::enabled();
    for ps in 1..32 {
        assert_eq!(code(&rig.set_feature(0x02, ps)), INVALID_FIELD);
    }
}

#[test]
fn thresholds_are_of_the_composite_temperature() {
    let mut rig = Rig::enabled();
    // TMPSEL 0 composite, THSEL 1 under.
    assert_eq!(code(&rig.set_feature(0x04, 1 << 20 | 0x111)), OK);
    assert_eq!(rig.get_feature(0x04, CURRENT, 1 << 20).dw0, 0x111);
    assert_eq!(rig.get_feature(0x04, CURRENT, 0).dw0, 343, "WCTEMP");
    // TMPSEL 15 sets all of them.
    assert_eq!(code(&rig.set_feature(0x04, 15 << 16 | 0x160)), OK);
    assert_eq!(rig.get_feature(0x04, CURRENT, 0).dw0, 0x160);
    for refused in [1 << 16, 8 << 16, 2 << 20, 1 << 22] {
        assert_eq!(
            code(&rig.set_feature(0x04, refused)),
            INVALID_FIELD,
            "{refused:#x}"
        );
    }
    for refused in [1 << 16, 15 << 16, 2 << 20] {
        assert_eq!(
            code(&rig.get_feature(0x04, CURRENT, refused)),
            INVALID_FIELD,
            "{refused:#x}"
        );
    }
}

#[test]
fn vectors_have_their_own_coalescing() {
    let mut rig = Rig::enabled();
    assert_eq!(code(&rig.set_feature(0x09, 1 << 16 | 3)), OK);
    assert_eq!(rig.get_feature(0x09, CURRENT, 3).dw0, 1 << 16 | 3);
    assert_eq!(rig.get_feature(0x09, CURRENT, 2).dw0, 2);
    assert_eq!(rig.get_feature(0x09, DEFAULT, 3).dw0, 3);
    assert_eq!(code(&rig.set_feature(0x09, 3)), OK);
    assert_eq!(rig.get_feature(0x09, CURRENT, 3).dw0, 3);
    for vector in [5, 64, 0xffff] {
        assert_eq!(code(&rig.set_feature(0x09, vector)), INVALID_FIELD);
        assert_eq!(code(&rig.get_feature(0x09, CURRENT, vector)), INVALID_FIELD);
    }
}

/// The timestamp: milliseconds, and the attribute byte.
fn timestamp(rig: &mut Rig) -> (u64, u8) {
    rig.host.write(rig.data_page(), &[0xee; 8]);
    assert_eq!(code(&rig.get_feature(0x0e, CURRENT, 0)), OK);
    let data = rig.host.read(rig.data_page(), 8);
    assert_eq!(data[7], 0);
    (u64_at(&data, 0) & 0xffff_ffff_ffff, data[6])
}

#[test]
fn the_timestamp_goes_on() {
    let mut rig = Rig::enabled();
    rig.wait(5 * SECOND);
    // Origin 000b: milliseconds since the reset.
    assert_eq!(timestamp(&mut rig), (5000, 0));
    rig.host
        .write(rig.data_page(), &1_700_000_000_000u64.to_le_bytes());
    let sqe = rig.with_data(SET_FEATURES);
    assert_eq!(rig.status(Sqe { cdw10: 0x0e, ..sqe }), OK);
    rig.wait(SECOND);
    // Origin 001b: set by Set Features.
    assert_eq!(timestamp(&mut rig), (1_700_000_001_000, 0b0010));
    rig.disable();
    rig.enable();
    assert_eq!(timestamp(&mut rig), (0, 0));
}

#[test]
fn host_behavior_is_kept() {
    let mut rig = Rig::enabled();
    let mut data = vec![0; 512];
    data[..3].copy_from_slice(&[1, 1, 1]);
    rig.host.write(rig.data_page(), &data);
    let sqe = rig.with_data(SET_FEATURES);
    let set = Sqe { cdw10: 0x16, ..sqe };
    assert_eq!(rig.status(set), OK);
    rig.host.write(rig.data_page(), &[0xee; 512]);
    assert_eq!(code(&rig.get_feature(0x16, CURRENT, 0)), OK);
    assert_eq!(rig.host.read(rig.data_page(), 512), data);
    // Bytes 0 to 3 are 0 or 1 each; of the formats of Copy descriptors (bytes 4 and 5) only 2h can
    // be enabled.
    for (at, value) in [
        (0, 2),
        (1, 2),
        (2, 0xff),
        (3, 2),
        (4, 1),
        (4, 0b1000),
        (4, 0b1_0100),
        (5, 1),
    ] {
        let mut refused = data.clone();
        refused[at] = value;
        rig.host.write(rig.data_page(), &refused);
        assert_eq!(rig.status(set), INVALID_FIELD, "byte {at} {value:#x}");
    }
    data[4] = 1 << 2;
    rig.host.write(rig.data_page(), &data);
    assert_eq!(rig.status(set), OK);
    assert_eq!(code(&rig.get_feature(0x16, CURRENT, 0)), OK);
    assert_eq!(rig.host.read(rig.data_page(), 512), data);
    // Data that cannot be read changes nothing.
    assert_eq!(rig.status(Sqe { prp1: 0, ..set }), DATA_TRANSFER);
    assert_eq!(code(&rig.get_feature(0x16, CURRENT, 0)), OK);
    assert_eq!(rig.host.read(rig.data_page(), 1), [1]);
}

#[test]
fn the_host_identifier_has_eight_or_sixteen_bytes() {
    let mut rig = Rig::enabled();
    let set = |rig: &mut Rig, exhid: u32, id: &[u8]| {
        rig.host.write(rig.data_page(), id);
        let sqe = rig.with_data(SET_FEATURES);
        rig.status(Sqe {
            cdw10: 0x81,
            cdw11: exhid,
            ..sqe
        })
    };
    let get = |rig: &mut Rig, exhid: u32| {
        rig.host.write(rig.data_page(), &[0xee; 20]);
        assert_eq!(code(&rig.get_feature(0x81, CURRENT, exhid)), OK);
        rig.host.read(rig.data_page(), 20)
    };
    assert_eq!(
        get(&mut rig, 1)[..17],
        [[0; 16].as_slice(), &[0xee]].concat()
    );
    assert_eq!(set(&mut rig, 1, b"0123456789abcdef"), OK);
    assert_eq!(&get(&mut rig, 1)[..17], b"0123456789abcdef\xee");
    // EXHID is 0: eight bytes, and what was there before is gone.
    assert_eq!(set(&mut rig, 0, b"ABCDEFGHijklmnop"), OK);
    assert_eq!(&get(&mut rig, 0)[..9], b"ABCDEFGH\xee");
    assert_eq!(&get(&mut rig, 1)[..16], b"ABCDEFGH\0\0\0\0\0\0\0\0");
    rig.disable();
    rig.enable();
    assert_eq!(get(&mut rig, 1)[..16], [0; 16]);
}

/// Writes a block through queue 1 and tells whether the medium was asked for FUA.
fn write_is_fua(rig: &mut Rig, index: u32) -> bool {
    let sqe = rig.read_sqe(index as u16, 1);
    rig.medium(0).seen.clear();
    rig.submit_io(
        1,
        index,
        Sqe {
            opcode: 0x01,
            ..sqe
        },
    );
    rig.turns(4);
    match rig.medium(0).seen[..] {
        [Seen::Write(0, 512, fua)] => fua,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn turning_the_write_cache_off_takes_effect() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    assert!(!write_is_fua(&mut rig, 0));
    // Data that was written before is flushed before the command completes.
    rig.medium(0).seen.clear();
    rig.medium(0).manner = Manner::Hanging;
    let cid = rig.submit(Sqe {
        opcode: SET_FEATURES,
        cdw10: 0x06,
        ..Sqe::default()
    });
    rig.turns(4);
    assert_eq!(rig.medium(0).seen, [Seen::Flush]);
    assert!(rig.peek().is_none());
    assert_eq!(
        code(&rig.set_feature(0x06, 1)),
        SEQUENCE_ERROR,
        "one at a time"
    );
    rig.medium(0).release(1);
    rig.medium(0).manner = Manner::Asynchronous;
    rig.turns(4);
    assert_eq!(rig.reap().map(|cqe| (cqe.cid, code(&cqe))), Some((cid, OK)));
    assert_eq!(rig.get_feature(0x06, CURRENT, 0).dw0, 0);
    assert!(write_is_fua(&mut rig, 1));
    // Of a queue that is created now as well.
    assert_eq!(rig.delete_sq(1), OK);
    assert_eq!(rig.delete_cq(1), OK);
    rig.create_pair(1, 8);
    assert!(write_is_fua(&mut rig, 0));
    assert_eq!(code(&rig.set_feature(0x06, 1)), OK);
    assert!(!write_is_fua(&mut rig, 1));
    // And a reset turns it on.
    assert_eq!(code(&rig.set_feature(0x06, 0)), OK);
    rig.disable();
    rig.enable();
    assert_eq!(rig.get_feature(0x06, CURRENT, 0).dw0, 1);
    rig.create_pair(1, 8);
    assert!(!write_is_fua(&mut rig, 0));
}

#[test]
fn turning_the_write_cache_off_fails_where_the_flush_does() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).fault = Some(Cause::WriteFailed);
    assert_eq!(code(&rig.set_feature(0x06, 0)), INTERNAL);
    rig.medium(0).fault = None;
    // The error log tells of the command that waited: Set Features.
    let entry = rig.log(0x01, 0, 64).unwrap();
    assert_eq!((entry[31], entry[63]), (0x09, 1));
    assert_eq!(u16_at(&entry, 12) >> 1 & 0x7ff, INTERNAL);
    assert_eq!(
        rig.get_feature(0x06, CURRENT, 0).dw0,
        1,
        "it did not falsely succeed"
    );
    assert!(!write_is_fua(&mut rig, 0));
    // A medium that does not answer: bounded.
    rig.medium(0).manner = Manner::Hanging;
    let cid = rig.submit(Sqe {
        opcode: SET_FEATURES,
        cdw10: 0x06,
        ..Sqe::default()
    });
    rig.wait(30 * SECOND - 1);
    assert_eq!(rig.reap(), None);
    let due = rig.controller.next_deadline();
    assert_eq!(due.map(|at| at.since(rig.now)), Some(1));
    rig.wait(1);
    assert_eq!(
        rig.reap().map(|cqe| (cqe.cid, code(&cqe))),
        Some((cid, INTERNAL))
    );
}
