//! Commands of a namespace's own command set: they reach the medium with their data, and its answer
//! reaches the host.

use std::sync::Arc;

use nvme_spec::{Sqe, Status};
use port::namespace::Restrictions;
use port::set::Zoned;
use port::testing::{Manner, Seen, namespace};
use port::{ByteRange, Outcome};

use super::rig::{DATA, MEDIUM_ID, Rig, command};
use crate::lane::LaneCommand;

/// Where namespace 1 is: 64 zones of 16 KiB.
const EXTENT: ByteRange = ByteRange {
    offset: 1 << 20,
    len: 1 << 20,
};

fn rig(manner: Manner) -> Rig {
    restricted(manner, Restrictions::default())
}

fn restricted(manner: Manner, restrictions: Restrictions) -> Rig {
    let mut rig = Rig::new(16, &[16], manner);
    let mut zoned = namespace(1, MEDIUM_ID, EXTENT.len / 512);
    zoned.start = EXTENT.offset;
    zoned.restrictions = restrictions.some();
    zoned.set = Some(Arc::new(Zoned {
        zone_bytes: 16 << 10,
        max_active: 0,
        max_open: 0,
        extension_units: 1,
        zasl: 0,
        random: None,
    }));
    rig.set_namespaces(vec![zoned]);
    rig
}

/// Two blocks.
fn append() -> Sqe {
    Sqe {
        cdw12: 1,
        ..command(0x7d, 5)
    }
}

#[test]
fn the_result_of_a_set_is_in_dwords_0_and_1() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = rig(manner);
        rig.medium().answer = Outcome::with_result(0x1122_3344_5566_7788);
        rig.host.write(rig.host.page(DATA), &[0xa5; 1024]);
        rig.submit(1, append());
        rig.turn();
        let done = rig.completions();
        assert_eq!(done.len(), 1);
        assert_eq!((done[0].dw0, done[0].dw1), (0x5566_7788, 0x1122_3344));
        assert_eq!(done[0].status.status(), Status::SUCCESSFUL_COMPLETION);
        let seen = Seen::Command(0x7d, EXTENT, vec![0xa5; 1024], false);
        assert_eq!(rig.medium().seen, [seen]);
        // The next one in that slot has its own.
        rig.medium().answer = Outcome::OK;
        rig.submit(1, append());
        rig.turn();
        let done = rig.completions();
        assert_eq!((done[0].dw0, done[0].dw1), (0, 0));
        let counters = rig.lane.counters();
        assert_eq!(
            (counters.writes.get(), counters.write_bytes.get()),
            (2, 2048)
        );
    }
}

#[test]
fn the_status_of_a_set_is_the_hosts() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = rig(manner);
        rig.medium().answer = Outcome::status(Status::ZONE_IS_FULL);
        assert_eq!(rig.run(append()), Status::ZONE_IS_FULL);
        // It is no error of a medium.
        assert_eq!(rig.lane.counters().media_errors.get(), 0);
        assert_eq!(rig.events(), []);
    }
}

#[test]
fn commands_without_data_have_none_and_reports_as_much_as_they_ask_for() {
    let mut rig = rig(Manner::Synchronous);
    let reset = Sqe {
        cdw13: 4,
        prp1: 3,
        ..command(0x79, 1)
    };
    assert_eq!(rig.run(reset), Status::SUCCESSFUL_COMPLETION);
    let report = Sqe {
        cdw12: 31,
        ..command(0x7a, 1)
    };
    assert_eq!(rig.run(report), Status::SUCCESSFUL_COMPLETION);
    let seen = std::mem::take(&mut rig.medium().seen);
    let [
        Seen::Command(0x79, _, nothing, _),
        Seen::Command(0x7a, _, report, _),
    ] = &seen[..]
    else {
        panic!("{seen:?}");
    };
    assert_eq!((nothing.len(), report.len()), (0, 128));
}

#[test]
fn mistakes_do_not_reach_the_medium() {
    let mut rig = rig(Manner::Synchronous);
    let field = Status::INVALID_FIELD_IN_COMMAND;
    // More than MDTS, a reserved action, a reserved PSDT.
    let long = Sqe {
        cdw12: (512 << 10) / 4,
        ..command(0x7a, 1)
    };
    assert_eq!(rig.run(long), field);
    let action = Sqe {
        cdw13: 0x77,
        ..command(0x79, 1)
    };
    assert_eq!(rig.run(action), field);
    let mut reserved = append();
    reserved.flags = 0xc0.into();
    assert_eq!(rig.run(reserved), field);
    // An opcode of no command set, and one of the NVM command set that zones do not have.
    for opcode in [0x7b, 0x80, 0x04] {
        let status = rig.run(command(opcode, 1));
        assert_eq!(status, Status::INVALID_COMMAND_OPCODE, "{opcode:#x}");
    }
    // Memory that the host does not have.
    let nowhere = Sqe {
        prp1: 1 << 60,
        ..append()
    };
    assert_eq!(rig.run(nowhere), Status::DATA_TRANSFER_ERROR);
    assert_eq!(rig.medium().seen, []);
}

#[test]
fn a_namespace_without_a_set_has_none_of_its_commands() {
    let mut rig = Rig::new(16, &[16], Manner::Synchronous);
    for opcode in [0x79, 0x7a, 0x7d] {
        let status = rig.run(command(opcode, 1));
        assert_eq!(status, Status::INVALID_COMMAND_OPCODE, "{opcode:#x}");
    }
}

#[test]
fn reservations_and_operations_that_go_on_hold_for_sets() {
    let report = || Sqe {
        cdw12: 31,
        ..command(0x7a, 1)
    };
    let conflict = Status::RESERVATION_CONFLICT;
    let write_exclusive = Restrictions {
        writes: Some(conflict),
        ..Restrictions::default()
    };
    let mut rig = restricted(Manner::Synchronous, write_exclusive.clone());
    assert_eq!(rig.run(append()), conflict);
    assert_eq!(rig.run(report()), Status::SUCCESSFUL_COMPLETION);
    let exclusive = Restrictions {
        reads: Some(conflict),
        ..write_exclusive
    };
    let mut rig = restricted(Manner::Synchronous, exclusive);
    assert_eq!(rig.run(report()), conflict);
    let formatting = Restrictions {
        all: Some(Status::FORMAT_IN_PROGRESS),
        ..Restrictions::default()
    };
    let mut rig = restricted(Manner::Synchronous, formatting);
    assert_eq!(rig.run(append()), Status::FORMAT_IN_PROGRESS);
    assert_eq!(rig.run(report()), Status::FORMAT_IN_PROGRESS);
    assert_eq!(rig.medium().seen, []);
}

#[test]
fn without_a_write_cache_what_a_set_writes_is_durable() {
    let mut rig = rig(Manner::Synchronous);
    rig.lane.command(LaneCommand::WriteThrough(true));
    assert_eq!(rig.run(append()), Status::SUCCESSFUL_COMPLETION);
    assert!(matches!(rig.medium().seen[..], [Seen::Command(.., true)]));
}

#[test]
fn a_full_channel_is_tried_again() {
    let mut rig = rig(Manner::Synchronous);
    rig.medium().capacity = 0;
    rig.submit(1, append());
    rig.turn();
    assert_eq!(rig.completions(), []);
    rig.medium().capacity = usize::MAX;
    rig.turn();
    assert_eq!(rig.completions().len(), 1);
    assert_eq!(rig.medium().seen.len(), 1);
}
