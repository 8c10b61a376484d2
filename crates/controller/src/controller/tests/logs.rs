//! Get Log Page (Base 2.1, 5.1.12): pages by their offsets, lengths and offsets in a page.

use std::sync::Arc;

use nvme_spec::Sqe;
use port::Cause;
use port::namespace::Namespace;
use proptest::prelude::*;

use super::rig::*;
use crate::counters::ReactorCounters;

#[test]
fn supported_pages_are_those_that_answer() {
    let mut rig = Rig::enabled();
    let there = [
        0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x0e, 0x12, 0x13, 0x80, 0x81, 0xc1,
    ];
    let supported = rig.log(0x00, 0, 1024).unwrap();
    for lid in 0..256u32 {
        let expected = there.contains(&lid);
        assert_eq!(
            u32_at(&supported, lid as usize * 4) & 1 == 1,
            expected,
            "{lid:#x}"
        );
        assert_eq!(
            rig.log(lid, 0, 4).err(),
            (!expected).then_some(INVALID_LOG_PAGE),
            "{lid:#x}"
        );
    }
}

#[test]
fn pages_are_read_in_parts() {
    let mut rig = Rig::enabled();
    let whole = rig.log(0x05, 0, 4096).unwrap();
    for (offset, len) in [(0, 4), (4, 12), (1024, 1024), (4092, 4), (16, 2048)] {
        let part = rig.log(0x05, offset, len).unwrap();
        assert_eq!(
            part,
            whole[offset as usize..][..len],
            "{len} bytes from {offset}"
        );
    }
    // Past its end a page is zeros.
    let part = rig.log(0x02, 508, 8).unwrap();
    assert_eq!(part[4..], [0; 4]);
    assert_eq!(rig.log(0x02, 512, 8), Ok(vec![0; 8]));
    for offset in [516, 1 << 32, !3] {
        assert_eq!(rig.log(0x02, offset, 4), Err(INVALID_FIELD), "{offset:#x}");
    }
    for offset in [1, 2, 3] {
        assert_eq!(
            rig.log(0x02, offset, 4),
            Err(INVALID_FIELD),
            "offsets are of dwords"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// (page, its size), of all whose contents do not depend on when they are read.
    #[test]
    fn any_part_of_a_page_is_that_part(
        page in prop::sample::select(vec![
            (0x00, 1024), (0x01, 4096), (0x02, 512), (0x03, 512), (0x04, 4096), (0x05, 4096),
            (0x0e, 16), (0x12, 1024), (0x13, 4096),
        ]),
        dword in 0..1100_u64,
        dwords in 1..=1024_usize,
    ) {
        let (lid, size) = page;
        let mut rig = Rig::enabled();
        for _ in 0..5 {
            prop_assert_eq!(rig.delete_sq(9), INVALID_QID);
        }
        rig.set_namespaces(namespaces()[1..].to_vec());
        let mut expected = rig.log_with(lid, 0, size, true).unwrap();
        expected.resize(8192, 0);
        let (offset, len) = (dword * 4, dwords * 4);
        let part = rig.log_with(lid, offset, len, true);
        let expected = match usize::try_from(offset).unwrap() {
            at if at <= size => Ok(expected[at..at + len].to_vec()),
            _ => Err(INVALID_FIELD),
        };
        prop_assert_eq!(part, expected);
    }
}

#[test]
fn lengths_are_bounded_by_mdts() {
    let mut config = config();
    config.max_transfer = 8192;
    let mut rig = Rig::with(config);
    rig.enable();
    let sqe = rig.with_data(GET_LOG);
    let prp2 = rig.host.page(DATA + 1).0;
    let numd = |dwords: u32| Sqe {
        cdw10: (dwords - 1) << 16 | 0x05,
        cdw11: (dwords - 1) >> 16,
        prp2,
        ..sqe
    };
    assert_eq!(rig.status(numd(2048)), OK);
    assert_eq!(rig.status(numd(2049)), INVALID_FIELD);
    // NUMDU counts: 65,537 dwords.
    assert_eq!(rig.status(numd(0x1_0001)), INVALID_FIELD);
    assert_eq!(
        rig.status(Sqe {
            cdw10: 0xffff_0005,
            cdw11: 0xffff,
            ..sqe
        }),
        INVALID_FIELD
    );
}

#[test]
fn pages_belong_to_the_controller() {
    let mut rig = Rig::enabled();
    for lid in [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x12, 0x13, 0xc1] {
        let sqe = rig.with_data(GET_LOG);
        for (nsid, expected) in [
            (0, OK),
            (0xffff_ffff, OK),
            (1, INVALID_FIELD),
            (2, INVALID_FIELD),
        ] {
            assert_eq!(
                rig.status(Sqe {
                    nsid,
                    cdw10: lid,
                    ..sqe
                }),
                expected,
                "{lid:#x} {nsid:#x}"
            );
        }
    }
}

#[test]
fn offset_types_and_command_sets_are_checked() {
    let mut rig = Rig::enabled();
    let sqe = rig.with_data(GET_LOG);
    // OT: no page has an index.
    assert_eq!(
        rig.status(Sqe {
            cdw10: 0x02,
            cdw14: 1 << 23,
            ..sqe
        }),
        INVALID_FIELD
    );
    // Effects of the zoned command set, which is not supported.
    assert_eq!(
        rig.status(Sqe {
            cdw10: 0x05,
            cdw14: 2 << 24,
            ..sqe
        }),
        INVALID_FIELD
    );
    assert_eq!(
        rig.status(Sqe {
            cdw10: 0x05,
            cdw14: 0,
            ..sqe
        }),
        OK
    );
}

/// Command Scope, bits 31:20 (Base 2.1, 5.1.12.1.6).
const OF_NAMESPACE: u32 = 1 << 20;
const OF_CONTROLLER: u32 = 1 << 21;
const OF_SUBSYSTEM: u32 = 1 << 25;

#[test]
fn effects_tell_every_io_command_that_is_served() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 64);
    let log = rig.log(0x05, 0, 4096).unwrap();
    // Bit 1: changes logical blocks. No scope, which Linux takes for an unusual effect. Flush,
    // Write, Read, Write Uncorrectable, Compare, Write Zeroes, Dataset Management, Verify,
    // Reservation Register, Report, Acquire and Release, Copy.
    let effects = [
        (0x00, 1),
        (0x01, 3),
        (0x02, 1),
        (0x04, 3),
        (0x05, 1),
        (0x08, 3),
        (0x09, 3),
        (0x0c, 1),
        (0x0d, 1),
        (0x0e, 1),
        (0x11, 1),
        (0x15, 1),
        (0x19, 3),
    ];
    let mut index = 0;
    for opcode in 0..=0xffu8 {
        let told = u32_at(&log, 1024 + usize::from(opcode) * 4);
        if told != 0 {
            let expected = effects.iter().find(|(served, _)| *served == opcode);
            assert_eq!(Some(told), expected.map(|(_, e)| *e), "{opcode:#x}");
            continue;
        }
        let sqe = rig.read_sqe(index as u16, 1);
        rig.submit_io(1, index, Sqe { opcode, ..sqe });
        rig.turns(4);
        let told = rig.io_cqe(1, index).map(|cqe| code(&cqe));
        assert_eq!(told, Some(INVALID_OPCODE), "{opcode:#x}");
        index += 1;
        if index == 63 {
            assert_eq!((rig.delete_sq(1), rig.delete_cq(1)), (OK, OK));
            rig.create_pair(1, 64);
            index = 0;
        }
    }
    for served in [0x00, 0x01, 0x02, 0x05, 0x08, 0x09] {
        assert_eq!(u32_at(&log, 1024 + served * 4) & 1, 1, "{served:#x}");
    }
}

#[test]
fn effects_of_admin_commands_tell_their_scope() {
    let mut rig = Rig::enabled();
    let log = rig.log(0x05, 0, 4096).unwrap();
    for opcode in [
        0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7c,
    ] {
        assert_eq!(u32_at(&log, opcode * 4), 1 | OF_CONTROLLER, "{opcode:#x}");
    }
    for opcode in [0x10, 0x11] {
        assert_eq!(u32_at(&log, opcode * 4), 1 | OF_SUBSYSTEM, "{opcode:#x}");
    }
    assert_eq!(u32_at(&log, 0x86 * 4), 1 | OF_NAMESPACE);
}

#[test]
fn supported_features_are_those_that_answer() {
    let mut rig = Rig::enabled();
    let log = rig.log(0x12, 0, 1024).unwrap();
    for fid in 0..256u32 {
        let told = u32_at(&log, fid as usize * 4);
        let supported = rig.status(Sqe {
            opcode: GET_FEATURES,
            // Supported capabilities.
            cdw10: 3 << 8 | fid,
            nsid: 1,
            ..Sqe::default()
        });
        let expected = match (supported, fid) {
            (OK, 0x05 | 0x82 | 0x83) => 1 | OF_NAMESPACE,
            (OK, _) => 1 | OF_CONTROLLER,
            _ => 0,
        };
        assert_eq!(told, expected, "{fid:#x}");
    }
    assert_eq!(u32_at(&log, 0x0b * 4), 1 | OF_CONTROLLER);
}

#[test]
fn no_blocks_were_found_that_cannot_be_read() {
    let mut rig = Rig::enabled();
    // Sixteen bytes long, no namespaces, no estimate (NVM 1.1, 4.1.4).
    let log = rig.log(0x0e, 0, 64).unwrap();
    assert_eq!(u32_at(&log, 0), 16);
    assert!(log[4..].iter().all(|byte| *byte == 0));
}

#[test]
fn no_command_of_the_management_interface_is_supported() {
    let mut rig = Rig::enabled();
    assert_eq!(rig.log(0x13, 0, 4096), Ok(vec![0; 4096]));
    assert_eq!(rig.log(0x13, 4100, 4), Err(INVALID_FIELD));
}

#[test]
fn smart_counts_what_the_host_moved() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 64);
    let before = rig.log(0x02, 0, 512).unwrap();
    assert_eq!((u64_at(&before, 32), u64_at(&before, 48)), (0, 0));
    // 3 reads of 8 blocks, 2 writes of 1 block, 1 compare of 1 block: 25 blocks read, 2 written.
    let mut index = 0;
    let mut run = |rig: &mut Rig, opcode, blocks| {
        let sqe = rig.read_sqe(index as u16, blocks);
        rig.submit_io(1, index, Sqe { opcode, ..sqe });
        rig.turns(4);
        index += 1;
    };
    for _ in 0..3 {
        run(&mut rig, 0x02, 8);
    }
    for _ in 0..2 {
        run(&mut rig, 0x01, 1);
    }
    run(&mut rig, 0x05, 1);
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!(smart[0], 0, "no critical warning");
    assert_eq!(u16_at(&smart, 1), 298, "composite temperature in kelvins");
    assert_eq!((smart[3], smart[5]), (100, 0), "spare, percentage used");
    // In thousands of 512 bytes, rounded up.
    assert_eq!(
        (u64_at(&smart, 32), u64_at(&smart, 48)),
        (1, 1),
        "data units"
    );
    assert_eq!((u64_at(&smart, 64), u64_at(&smart, 80)), (4, 2), "commands");
    // Counts stay when the queues go.
    assert_eq!(rig.delete_sq(1), OK);
    assert_eq!(rig.delete_cq(1), OK);
    let after = rig.log(0x02, 0, 512).unwrap();
    assert_eq!((u64_at(&after, 64), u64_at(&after, 80)), (4, 2));
    rig.disable();
    rig.enable();
    let after = rig.log(0x02, 0, 512).unwrap();
    assert_eq!(
        (u64_at(&after, 64), u64_at(&after, 80)),
        (4, 2),
        "and over a reset"
    );
}

#[test]
fn data_units_are_thousands_of_512_bytes() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 64);
    // 1008 blocks: one more unit than 1000.
    for index in 0..63 {
        let (sqe, prp2) = (rig.read_sqe(index as u16, 16), rig.host.page(DATA + 1).0);
        rig.submit_io(1, index, Sqe { prp2, ..sqe });
        rig.turns(4);
    }
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!((u64_at(&smart, 32), u64_at(&smart, 64)), (2, 63));
}

#[test]
fn smart_tells_hours_and_busy_minutes() {
    let mut rig = Rig::enabled();
    rig.wait(2 * 3600 * SECOND);
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!(
        (u64_at(&smart, 96), u64_at(&smart, 128)),
        (0, 2),
        "idle minutes do not count as busy"
    );
    rig.create_pair(1, 8);
    rig.medium(0).manner = port::testing::Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.wait(90 * SECOND);
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!(u64_at(&smart, 96), 1);
}

#[test]
fn media_errors_are_logged_and_counted() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).fault = Some(Cause::ReadFailed);
    let read = Sqe {
        cdw10: 77,
        ..rig.read_sqe(0x4321, 1)
    };
    rig.submit_io(1, 0, read);
    rig.turns(4);
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!((u64_at(&smart, 160), u64_at(&smart, 176)), (1, 1));
    let entry = rig.log(0x01, 0, 64).unwrap();
    assert_eq!(u64_at(&entry, 0), 1, "error count");
    assert_eq!((u16_at(&entry, 8), u16_at(&entry, 10)), (1, 0x4321));
    // Unrecovered Read Error: type 2, code 81h, above the phase.
    assert_eq!(u16_at(&entry, 12) >> 1 & 0x7ff, 0x281);
    assert_eq!((u64_at(&entry, 16), u32_at(&entry, 24)), (77, 1));
    // Command Set Indicator, Opcode (Read), and the Log Page Version that says that they count.
    assert_eq!((entry[30], entry[31], entry[63]), (0, 0x02, 1));
    assert_eq!(u16_at(&entry, 14), 0xffff, "of no parameter");
}

#[test]
fn the_error_log_holds_sixty_four_entries_newest_first() {
    let mut rig = Rig::enabled();
    for _ in 0..70 {
        assert_eq!(rig.delete_sq(9), INVALID_QID);
    }
    let log = rig.log(0x01, 0, 4096).unwrap();
    for (place, entry) in log.chunks_exact(64).enumerate() {
        assert_eq!(u64_at(entry, 0), 70 - place as u64);
        assert_eq!(u16_at(entry, 8), 0, "the admin queue");
        assert_eq!(u16_at(entry, 12) >> 1 & 0x7ff, INVALID_QID);
        // Delete I/O Submission Queue.
        assert_eq!((entry[31], entry[63]), (0x00, 1));
    }
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!(u64_at(&smart, 176), 70);
    // It survives a reset.
    rig.disable();
    rig.enable();
    assert_eq!(u64_at(&rig.log(0x01, 0, 64).unwrap(), 0), 70);
}

#[test]
fn a_completion_that_is_logged_says_more() {
    let mut rig = Rig::enabled();
    let logged = rig.admin(Sqe {
        opcode: DELETE_SQ,
        cdw10: 9,
        ..Sqe::default()
    });
    assert!(logged.status.more() && logged.status.dnr());
    let unlogged = rig.admin(Sqe {
        opcode: 0xff,
        ..Sqe::default()
    });
    assert!(!unlogged.status.more() && unlogged.status.dnr());
    let fine = rig.get_feature(0x01, 0, 0);
    assert!(!fine.status.more() && !fine.status.dnr());
}

#[test]
fn questions_about_what_is_supported_leave_the_error_log_empty() {
    let mut rig = Rig::enabled();
    assert_eq!(rig.identify(0xff, 0, 0), Err(INVALID_FIELD));
    assert_eq!(
        rig.status(Sqe {
            opcode: 0xff,
            ..Sqe::default()
        }),
        INVALID_OPCODE
    );
    assert_eq!(rig.log(0x99, 0, 4), Err(INVALID_LOG_PAGE));
    assert_eq!(rig.log(0x01, 0, 4096).unwrap(), vec![0; 4096]);
}

#[test]
fn firmware_slot_one_is_active() {
    let mut rig = Rig::enabled();
    let log = rig.log(0x03, 0, 512).unwrap();
    assert_eq!(log[0], 1);
    assert_eq!(&log[8..16], b"0.1     ");
    assert!(log[16..].iter().all(|byte| *byte == 0));
}

#[test]
fn changed_namespaces_are_listed_until_they_were_read() {
    let mut rig = Rig::enabled();
    let mut changed: Vec<Namespace> = namespaces();
    // 1 shrinks, 3 goes, 2 comes.
    changed[0].blocks = 1024;
    changed[1].nsid = 2;
    rig.set_namespaces(changed.clone());
    rig.turns(2);
    assert_eq!(u64_at(&rig.identify(0x00, 1, 0).unwrap(), 0), 1024);
    assert_eq!(u32_at(&rig.identify(0x02, 1, 0).unwrap(), 0), 2);
    let retained = rig.log_with(0x04, 0, 4096, true).unwrap();
    let list = rig.log(0x04, 0, 4096).unwrap();
    assert_eq!(retained, list, "Retain Asynchronous Event keeps the list");
    assert_eq!([0, 4, 8, 12].map(|at| u32_at(&list, at)), [1, 2, 3, 0]);
    assert_eq!(rig.log(0x04, 0, 4096).unwrap(), vec![0; 4096]);
    // The same again is no change.
    rig.set_namespaces(changed);
    assert_eq!(rig.log(0x04, 0, 4096).unwrap(), vec![0; 4096]);
    assert_eq!(u32_at(&rig.identify(0x02, 0, 0).unwrap(), 4), 2);
}

#[test]
fn namespaces_that_changed_before_a_death_are_not_forgotten() {
    let mut rig = Rig::enabled();
    // 3 goes: nothing that is still attached tells of it.
    rig.set_namespaces(namespaces()[..1].to_vec());
    rig.turns(2);
    rig.revive();
    rig.turns(2);
    let list = rig.log(0x04, 0, 4096).unwrap();
    // FFFFFFFFh: more than the page has room for (Base 2.1, 5.1.12.1.5).
    assert_eq!([0, 4].map(|at| u32_at(&list, at)), [u32::MAX, 0]);
    assert_eq!(rig.log(0x04, 0, 4096).unwrap(), vec![0; 4096]);
    rig.revive();
    rig.turns(2);
    assert_eq!(
        rig.log(0x04, 0, 4096).unwrap(),
        vec![0; 4096],
        "it was read"
    );
}

#[test]
fn a_detached_namespace_takes_no_commands() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.set_namespaces(Vec::new());
    rig.turns(2);
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| code(&cqe)), Some(INVALID_FIELD));
}

#[test]
fn the_reactors_counters_are_page_c1() {
    let mut rig = Rig::enabled();
    let log = rig.log(0xc1, 0, 80).unwrap();
    assert_eq!((u64_at(&log, 0), u64_at(&log, 8)), (3, 0));
    let counters = Arc::new(ReactorCounters::default());
    counters.busy_ns.add(1234);
    counters.completions.add(5);
    counters.turns.add(600);
    counters.turns_with_work.add(70);
    counters.spun_ns.add(8);
    counters.slept_ns.add(90);
    counters.sleeps.add(1);
    counters.stalls.add(2);
    counters.stalled_ns.add(300);
    rig.controller.set_reactor_counters(counters);
    let log = rig.log(0xc1, 0, 80).unwrap();
    let words: Vec<u64> = (0..10).map(|n| u64_at(&log, n * 8)).collect();
    assert_eq!(words, [3, 1234, 5, 600, 70, 8, 90, 1, 2, 300]);
}

#[test]
fn a_host_that_is_not_there_yet_is_told_of_no_change() {
    let mut rig = Rig::new();
    rig.set_namespaces(vec![namespaces()[1].clone()]);
    rig.enable();
    assert_eq!(u32_at(&rig.identify(0x02, 0, 0).unwrap(), 0), 3);
    assert_eq!(rig.log(0x04, 0, 4096).unwrap(), vec![0; 4096]);
}
