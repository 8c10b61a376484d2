//! Namespaces whose medium takes no writes (Base 2.1, 8.1.16.2; NVM 1.1, 3.2): their Identify data,
//! and the commands that they accept.

use nvme_spec::Sqe;
use port::testing::Seen;
use subsystem::OperatorRequest;

use super::rig::*;

const READ_ONLY_RANGE: u16 = 0x182;
const WRITE_PROTECTED: u16 = 0x020;
const DEALLOCATE: u32 = 1 << 2;

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_UNCORRECTABLE: u8 = 0x04;
const COMPARE: u8 = 0x05;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;
const VERIFY: u8 = 0x0c;
const COPY: u8 = 0x19;

/// Namespace 1 takes no writes, namespace 3 does.
fn rig() -> Rig {
    let mut namespaces = namespaces();
    namespaces[0].traits.read_only = true;
    let mut rig = Rig::with_namespaces(config(), namespaces);
    rig.enable();
    rig
}

/// Currently Write Protected of Identify Namespace, and of the structure that is independent of
/// command sets.
fn protected(rig: &mut Rig, nsid: u32) -> (u8, u8) {
    let of = |rig: &mut Rig, cns, at: usize| rig.identify(cns, nsid, 0).unwrap()[at] & 1;
    (of(rig, 0x00, 99), of(rig, 0x08, 8))
}

/// One block of a namespace, on a queue pair of its own; the status.
fn io(rig: &mut Rig, nsid: u32, opcode: u8, cdw11: u32) -> u16 {
    rig.create_pair(1, 8);
    let sqe = Sqe {
        opcode,
        nsid,
        cdw11,
        ..rig.read_sqe(0, 1)
    };
    rig.submit_io(1, 0, sqe);
    rig.turns(12);
    let status = code(&rig.io_cqe(1, 0).expect("a completion"));
    assert_eq!((rig.delete_sq(1), rig.delete_cq(1)), (OK, OK));
    status
}

#[test]
fn identify_tells_that_a_namespace_is_write_protected() {
    let mut rig = rig();
    assert_eq!(protected(&mut rig, 1), (1, 1));
    assert_eq!(protected(&mut rig, 3), (0, 0));
    // It is no state that a host could change: the feature for that is not there.
    assert_eq!(rig.identify(0x01, 0, 0).unwrap()[531], 0, "NWPC");
    assert_eq!(code(&rig.get_feature(0x84, 0, 0)), INVALID_FIELD);
}

#[test]
fn writes_end_as_attempts_to_write_a_read_only_range_and_nothing_reaches_the_medium() {
    let mut rig = rig();
    for (opcode, cdw11) in [
        (WRITE, 0),
        (WRITE_ZEROES, 0),
        (DATASET_MANAGEMENT, DEALLOCATE),
        (COPY, 0),
        (WRITE_UNCORRECTABLE, 0),
    ] {
        assert_eq!(
            io(&mut rig, 1, opcode, cdw11),
            READ_ONLY_RANGE,
            "{opcode:#x}"
        );
        assert_eq!(io(&mut rig, 3, opcode, cdw11), OK, "{opcode:#x} beside it");
    }
    let seen = &rig.medium(0).seen;
    assert!(
        seen.iter().all(|seen| !matches!(seen, Seen::Write(..))),
        "{seen:?}"
    );
}

#[test]
fn what_changes_nothing_goes_on() {
    let mut rig = rig();
    for opcode in [READ, COMPARE, VERIFY, FLUSH, DATASET_MANAGEMENT] {
        assert_eq!(io(&mut rig, 1, opcode, 0), OK, "{opcode:#x}");
    }
}

#[test]
fn format_and_sanitize_are_refused_where_a_namespace_is_write_protected() {
    let mut rig = rig();
    let format = |nsid| Sqe {
        opcode: 0x80,
        nsid,
        ..Sqe::default()
    };
    for nsid in [1, 0xffff_ffff] {
        assert_eq!(rig.status(format(nsid)), WRITE_PROTECTED, "{nsid:#x}");
    }
    assert_eq!(rig.status(format(3)), OK);
    // Block erase.
    let sanitize = Sqe {
        opcode: 0x84,
        cdw10: 2,
        ..Sqe::default()
    };
    assert_eq!(rig.status(sanitize), WRITE_PROTECTED);
}

#[test]
fn a_medium_that_becomes_read_only_is_told_by_an_event_and_back_again() {
    let mut rig = Rig::enabled();
    assert_eq!(code(&rig.set_feature(0x0b, 1 << 8)), OK);
    for read_only in [true, false] {
        rig.async_event();
        rig.turns(2);
        assert!(rig.peek().is_none());
        let request = OperatorRequest::SetReadOnly { nsid: 1, read_only };
        rig.subsystem.request(7, request);
        rig.turns(8);
        assert_eq!(rig.subsystem.take_operator_answer(), Some((7, Ok(0))));
        // Namespace Attribute Changed, page 04h.
        assert_eq!(rig.reap().map(|cqe| cqe.dw0), Some(0x0004_0002));
        assert_eq!(u32_at(&rig.log(0x04, 0, 4096).unwrap(), 0), 1);
        let bit = u8::from(read_only);
        assert_eq!(protected(&mut rig, 1), (bit, bit));
        let expected = if read_only { READ_ONLY_RANGE } else { OK };
        assert_eq!(io(&mut rig, 1, WRITE, 0), expected);
    }
}
