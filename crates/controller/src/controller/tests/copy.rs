//! Copy and Verify as a host uses them: what must be enabled first, and what the health log counts.

use nvme_spec::Sqe;

use super::rig::*;

/// Runs command `index` of queue `qid`; its status.
fn run(rig: &mut Rig, qid: u16, index: u32, sqe: Sqe) -> u16 {
    let cid = index as u16;
    rig.submit_io(qid, index, Sqe { cid, ..sqe });
    rig.turns(8);
    code(&rig.io_cqe(qid, index).expect("a completion"))
}

/// Copy of one range of namespace 1, two blocks, to block 100; a format.
fn copy(rig: &Rig, format: u32) -> Sqe {
    let mut range = [0; 32];
    range[0] = 1;
    range[16] = 1;
    rig.host.write(rig.data_page(), &range);
    Sqe {
        opcode: 0x19,
        cdw10: 100,
        cdw12: format << 8,
        ..rig.read_sqe(0, 1)
    }
}

/// Enables (or not) ranges of other namespaces, format 2h: byte 4 of Host Behavior Support
/// (Base 2.1, 5.1.25.1.14).
fn enable(rig: &mut Rig, formats: u8) {
    let mut data = [0; 512];
    data[4] = formats;
    rig.host.write(rig.data_page(), &data);
    let sqe = rig.with_data(SET_FEATURES);
    assert_eq!(rig.status(Sqe { cdw10: 0x16, ..sqe }), OK);
}

#[test]
fn ranges_of_other_namespaces_are_enabled_by_host_behavior() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 16);
    let sqe = copy(&rig, 2);
    assert_eq!(run(&mut rig, 1, 0, sqe), INVALID_FIELD);
    let sqe = copy(&rig, 0);
    assert_eq!(run(&mut rig, 1, 1, sqe), OK);
    enable(&mut rig, 0b100);
    let sqe = copy(&rig, 2);
    assert_eq!(run(&mut rig, 1, 2, sqe), OK);
    // A queue that is created later knows it, too; a reset ends it.
    rig.create_pair(2, 16);
    let sqe = copy(&rig, 2);
    assert_eq!(run(&mut rig, 2, 0, sqe), OK);
    rig.disable();
    rig.enable();
    rig.create_pair(1, 16);
    let sqe = copy(&rig, 2);
    assert_eq!(run(&mut rig, 1, 0, sqe), INVALID_FIELD);
}

#[test]
fn health_counts_copies_as_reads_and_writes_and_verifies_as_data_read() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 16);
    let health = |rig: &mut Rig| {
        let log = rig.log(2, 0, 512).unwrap();
        [32, 48, 64, 80].map(|at| u64_at(&log, at))
    };
    assert_eq!(health(&mut rig), [0; 4]);
    let verify = Sqe {
        opcode: 0x0c,
        cdw12: 7,
        ..rig.read_sqe(0, 1)
    };
    assert_eq!(run(&mut rig, 1, 0, verify), OK);
    // Data Units Read and Written are thousands of 512 bytes, rounded up; then Host Read and Write
    // Commands.
    assert_eq!(health(&mut rig), [1, 0, 0, 0]);
    let sqe = copy(&rig, 0);
    assert_eq!(run(&mut rig, 1, 1, sqe), OK);
    assert_eq!(health(&mut rig), [1, 1, 1, 1]);
}
