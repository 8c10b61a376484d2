//! Get LBA Status (NVM 1.1, 4.2.1).

use nvme_spec::Sqe;
use port::BlockRanges;
use subsystem::{Allocated, Busy, SubsystemConfig};

use super::rig::*;

/// Scan, and return what is tracked.
const SCAN: u32 = 0x10;
const TRACKED: u32 = 0x11;

/// Namespace 1 has blocks 100 to 104 and 2047 marked.
fn rig() -> Rig {
    let mut subsystem = SubsystemConfig::with_namespaces(32, namespaces());
    let mut marked = BlockRanges::default();
    marked.insert(100, 5).unwrap();
    marked.insert(2047, 1).unwrap();
    subsystem.namespaces[0].uncorrectable = marked;
    let mut rig = Rig::of(config(), subsystem);
    rig.enable();
    rig
}

fn sqe(rig: &Rig, slba: u64, len: u32, action: u32, dwords: u32) -> Sqe {
    Sqe {
        nsid: 1,
        cdw10: slba as u32,
        cdw11: (slba >> 32) as u32,
        cdw12: dwords - 1,
        cdw13: action << 24 | len,
        ..rig.with_data(GET_LBA_STATUS)
    }
}

/// The list, over a page of EEh.
fn list(rig: &mut Rig, sqe: Sqe) -> Vec<u8> {
    rig.host.write(rig.data_page(), &[0xee; 4096]);
    assert_eq!(rig.status(sqe), OK);
    rig.host.read(rig.data_page(), 4096)
}

#[test]
fn marked_blocks_are_listed() {
    let mut rig = rig();
    for action in [SCAN, TRACKED] {
        // A length of 0 is up to the end of the namespace.
        let all = sqe(&rig, 0, 0, action, 1024);
        let list = list(&mut rig, all);
        assert_eq!((u32_at(&list, 0), list[4]), (2, 2), "two, and complete");
        assert_eq!(list[5..8], [0; 3]);
        assert_eq!((u64_at(&list, 8), u32_at(&list, 16)), (100, 4), "0's based");
        assert_eq!(list[20..24], [0, 0b011, 0, 0], "by Write Uncorrectable");
        assert_eq!((u64_at(&list, 24), u32_at(&list, 32)), (2047, 0));
        assert_eq!(list[40], 0xee, "nothing behind the list");
    }
    let some = sqe(&rig, 102, 10, TRACKED, 1024);
    let list = list(&mut rig, some);
    assert_eq!((u32_at(&list, 0), list[4]), (1, 2));
    assert_eq!((u64_at(&list, 8), u32_at(&list, 16)), (102, 2));
}

#[test]
fn no_more_is_returned_than_was_asked_for() {
    let mut rig = rig();
    // Six dwords hold the head and one descriptor.
    let short = sqe(&rig, 0, 0, TRACKED, 6);
    let page = list(&mut rig, short);
    assert_eq!((u32_at(&page, 0), page[4]), (1, 1), "not complete");
    assert_eq!(page[24], 0xee);
    let one = sqe(&rig, 0, 0, TRACKED, 1);
    let page = list(&mut rig, one);
    assert_eq!(page[..5], [0, 0, 0, 0, 0xee]);
    // As many as there may ever be (MNDW is 0's based).
    let mut most = sqe(&rig, 0, 0, TRACKED, 1);
    most.cdw12 = !0;
    assert_eq!(u32_at(&list(&mut rig, most), 0), 2);
}

#[test]
fn a_namespace_without_marked_blocks_has_an_empty_list() {
    let mut rig = rig();
    let mut other = sqe(&rig, 0, 0, SCAN, 1024);
    other.nsid = 3;
    let page = list(&mut rig, other);
    assert_eq!(page[..9], [0, 0, 0, 0, 2, 0, 0, 0, 0xee]);
}

#[test]
fn what_cannot_be_asked_is_refused() {
    let mut rig = rig();
    let fine = sqe(&rig, 0, 0, TRACKED, 1024);
    for action in [0x00, 0x01, 0x02, 0x0f, 0x12, 0xff] {
        let sqe = Sqe {
            cdw13: action << 24,
            ..fine
        };
        assert_eq!(rig.status(sqe), INVALID_FIELD, "ATYPE {action:#x}");
    }
    for (nsid, expected) in [
        (0, INVALID_NAMESPACE),
        (2, INVALID_FIELD),
        (33, INVALID_NAMESPACE),
        (0xffff_ffff, INVALID_NAMESPACE),
    ] {
        assert_eq!(rig.status(Sqe { nsid, ..fine }), expected, "{nsid:#x}");
    }
    for (slba, len) in [(2048, 0), (2048, 1), (2047, 2), (!0, 0), (!0, 1)] {
        let sqe = sqe(&rig, slba, len, TRACKED, 1024);
        assert_eq!(rig.status(sqe), LBA_OUT_OF_RANGE, "{slba:#x} {len}");
    }
    assert_eq!(rig.status(Sqe { prp1: 0, ..fine }), DATA_TRANSFER);
}

#[test]
fn a_namespace_that_is_being_formatted_tells_nothing() {
    let mut subsystem = SubsystemConfig::with_namespaces(32, []);
    let mut first = Allocated::everywhere(namespaces()[0].clone());
    first.busy = Some(Busy::Formatting);
    subsystem.namespaces = vec![first];
    let mut rig = Rig::of(config(), subsystem);
    rig.enable();
    let fine = sqe(&rig, 0, 0, TRACKED, 1024);
    assert_eq!(rig.status(fine), FORMAT_IN_PROGRESS);
}
