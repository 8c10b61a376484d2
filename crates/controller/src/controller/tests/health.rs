//! SMART / Health Information and the error log over a restart of the program (Base 2.1, 5.1.12.1.2
//! and 5.1.12.1.3).

use nvme_spec::Sqe;
use subsystem::{ControllerId, ControllerRecord, HealthRecord, SubsystemConfig};

use super::rig::*;

const MINUTE: u64 = 60 * SECOND;

fn kept(rig: &Rig) -> HealthRecord {
    let record = rig.subsystem.controller_record(rig.controller.id());
    record.unwrap().health
}

/// Another process, with what the first one kept.
fn restarted(health: HealthRecord) -> Rig {
    let mut subsystem = SubsystemConfig::with_namespaces(32, namespaces());
    subsystem.controllers = vec![ControllerRecord {
        health,
        ..ControllerRecord::new("test", ControllerId(1))
    }];
    Rig::of(config(), subsystem)
}

/// Power cycles and unsafe shutdowns.
fn cycles(rig: &mut Rig) -> (u64, u64) {
    let smart = rig.log(0x02, 0, 512).unwrap();
    (u64_at(&smart, 112), u64_at(&smart, 144))
}

fn shut_down(rig: &mut Rig) {
    rig.write32(CC, CC_ENABLE | 1 << 14);
    rig.turns(8);
    assert_eq!(rig.csts() & SHST, SHST_COMPLETE);
}

#[test]
fn counters_go_on_after_a_restart() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    for (index, opcode, blocks) in [(0, 0x02, 8), (1, 0x01, 1), (2, 0x05, 1)] {
        let sqe = rig.read_sqe(index as u16, blocks);
        rig.submit_io(1, index, Sqe { opcode, ..sqe });
        rig.turns(4);
    }
    assert_eq!(rig.delete_sq(9), INVALID_QID);
    rig.wait(3 * 60 * MINUTE);
    shut_down(&mut rig);
    let record = kept(&rig);
    assert_eq!((record.bytes_read, record.bytes_written), (9 * 512, 512));
    assert_eq!((record.read_commands, record.write_commands), (2, 1));
    let mut rig = restarted(record);
    rig.enable();
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!((u64_at(&smart, 32), u64_at(&smart, 48)), (1, 1), "units");
    assert_eq!((u64_at(&smart, 64), u64_at(&smart, 80)), (2, 1), "commands");
    assert_eq!(u64_at(&smart, 128), 3, "hours");
    assert_eq!(u64_at(&smart, 176), 1, "error log entries");
    assert_eq!(
        (u32_at(&smart, 192), u32_at(&smart, 196)),
        (0, 0),
        "too warm"
    );
    // Entries are forgotten, but the count of errors goes on.
    assert_eq!(rig.log(0x01, 0, 64), Ok(vec![0; 64]));
    assert_eq!(rig.delete_sq(9), INVALID_QID);
    assert_eq!(u64_at(&rig.log(0x01, 0, 64).unwrap(), 0), 2);
}

#[test]
fn a_restart_is_a_power_cycle_and_unsafe_where_a_host_was_there() {
    let mut rig = Rig::enabled();
    assert_eq!(cycles(&mut rig), (1, 0));
    let mut rig = restarted(kept(&rig));
    rig.enable();
    assert_eq!(cycles(&mut rig), (2, 1), "no shutdown");
    shut_down(&mut rig);
    let mut rig = restarted(kept(&rig));
    assert!(!kept(&rig).in_use);
    rig.enable();
    assert_eq!(cycles(&mut rig), (3, 1), "after a shutdown");
    rig.disable();
    let mut rig = restarted(kept(&rig));
    rig.enable();
    assert_eq!(cycles(&mut rig), (4, 1), "nobody was there");
}

#[test]
fn a_client_that_goes_is_a_power_cycle() {
    let mut rig = Rig::enabled();
    rig.controller.function_reset();
    rig.turns(8);
    rig.enable();
    assert_eq!(cycles(&mut rig), (2, 1));
    shut_down(&mut rig);
    rig.controller.function_reset();
    rig.turns(8);
    rig.enable();
    assert_eq!(cycles(&mut rig), (3, 1));
}

#[test]
fn counters_are_kept_at_once_when_a_host_comes_or_goes_and_else_every_ten_minutes() {
    let mut subsystem = SubsystemConfig::with_namespaces(32, namespaces());
    subsystem.keeping = true;
    let mut rig = Rig::of(config(), subsystem);
    let take = |rig: &mut Rig| {
        let (version, record) = rig.subsystem.take_record()?;
        rig.subsystem.kept(version);
        Some(record.controllers[0].health)
    };
    assert!(take(&mut rig).is_some(), "it has joined");
    rig.turns(4);
    assert_eq!(take(&mut rig), None);
    rig.enable();
    assert_eq!(take(&mut rig).map(|health| health.in_use), Some(true));
    rig.wait(9 * MINUTE);
    assert_eq!(take(&mut rig), None);
    rig.wait(MINUTE);
    let ten = take(&mut rig).expect("ten minutes");
    assert_eq!(ten.powered_ns, 10 * MINUTE);
    shut_down(&mut rig);
    assert_eq!(take(&mut rig).map(|health| health.in_use), Some(false));
    rig.turns(4);
    assert_eq!(take(&mut rig), None);
}
