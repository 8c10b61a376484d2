//! Bus Master Enable and D3hot (PCI 3.0, 6.2.2; PCIe 6.0, 7.5.1.1.3; PCI PM 1.2, 5.4.1): no memory
//! request while the function may issue none, and everything follows when it may again.

use nvme_spec::Sqe;
use port::testing::Manner;

use super::rig::*;
use crate::lane::LaneTable;

// Configuration space: Command, and control and status of Power Management.
const COMMAND: u64 = 0x04;
const POWER: u64 = 0x44;
const MEMORY_AND_MASTER: u16 = 0b110;
const MEMORY: u16 = 0b010;
const D0: u16 = 0;
const D3_HOT: u16 = 0b11;

impl Rig {
    fn set_bus(&mut self, at: u64, value: u16) {
        self.controller.config_write(at, &value.to_le_bytes());
    }

    fn leave_bus(&mut self) {
        self.set_bus(COMMAND, MEMORY);
        self.turns(4);
        assert!(self.controller.has_left_bus());
    }

    fn take_bus(&mut self) {
        self.set_bus(COMMAND, MEMORY_AND_MASTER);
        self.turns(6);
    }

    fn hang(&mut self) {
        for (_, medium) in self.channels.iter_mut() {
            medium.manner = Manner::Hanging;
        }
    }

    /// All memory of the host except the pages of its own rings.
    fn memory(&self) -> Vec<u8> {
        self.host.read(self.host.page(0), (PAGES * 4096) as usize)
    }
}

/// A controller whose host has set Bus Master Enable, with a queue pair.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.set_bus(COMMAND, MEMORY_AND_MASTER);
    rig.enable();
    rig.create_pair(1, 8);
    rig
}

#[test]
fn nothing_is_fetched_or_posted_without_bus_mastering_and_all_of_it_follows() {
    let mut rig = rig();
    rig.leave_bus();
    rig.interrupts.clear();
    for index in 0..3 {
        let read = rig.read_sqe(10 + index, 1);
        rig.submit_io(1, index.into(), read);
    }
    let identify = rig.with_data(IDENTIFY);
    let cid = rig.submit(Sqe {
        cdw10: 1,
        ..identify
    });
    let before = rig.memory();
    rig.wait(20 * SECOND);
    assert!(rig.memory() == before, "the host's memory was written");
    assert!(rig.interrupts.is_empty());
    assert!(!rig.controller.has_work(), "it may sleep");
    assert!(rig.lanes.iter().all(|lane| !lane.has_work()));
    assert_eq!(rig.csts() & (RDY | CFS), RDY);
    rig.take_bus();
    for index in 0..3 {
        assert_eq!(
            rig.io_cqe(1, index).map(|cqe| cqe.cid),
            Some(10 + index as u16)
        );
    }
    assert_eq!(rig.reap().map(|cqe| cqe.cid), Some(cid));
    assert!(!rig.interrupts.is_empty());
}

#[test]
fn what_is_with_a_medium_ends_before_the_bus_is_left() {
    let mut rig = rig();
    rig.hang();
    let read = rig.read_sqe(4, 1);
    rig.submit_io(1, 0, read);
    rig.turns(2);
    rig.set_bus(COMMAND, MEMORY);
    let late = rig.read_sqe(5, 1);
    rig.submit_io(1, 1, late);
    rig.turns(4);
    assert!(
        !rig.controller.has_left_bus(),
        "the medium has an address of the host's"
    );
    for (_, medium) in rig.channels.iter_mut() {
        medium.release(usize::MAX);
    }
    rig.turns(4);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| cqe.cid), Some(4));
    assert!(rig.controller.has_left_bus());
    assert_eq!(rig.io_cqe(1, 1), None, "not fetched");
    for (_, medium) in rig.channels.iter_mut() {
        medium.manner = Manner::Asynchronous;
    }
    rig.take_bus();
    assert_eq!(rig.io_cqe(1, 1).map(|cqe| cqe.cid), Some(5));
}

#[test]
fn what_hangs_is_aborted_after_four_seconds() {
    let mut rig = rig();
    rig.hang();
    let read = rig.read_sqe(4, 1);
    rig.submit_io(1, 0, read);
    rig.turns(2);
    rig.set_bus(COMMAND, MEMORY);
    rig.wait(3 * SECOND);
    assert!(!rig.controller.has_left_bus());
    assert!(rig.controller.next_deadline().is_some());
    rig.wait(SECOND + 1);
    assert!(rig.controller.has_left_bus());
    let status = rig.io_cqe(1, 0).map(|cqe| cqe.status);
    assert_eq!(
        status.map(|status| status.sc()),
        Some(ABORT_REQUESTED as u8)
    );
    for (_, medium) in rig.channels.iter_mut() {
        medium.release(usize::MAX);
    }
    let before = rig.memory();
    rig.turns(4);
    assert!(rig.memory() == before, "its completion is not posted twice");
}

/// Linux' shpchp, a kexec and a monitor's reset clear the bit on functions whose driver never set
/// it.
#[test]
fn a_host_that_never_set_the_bit_is_served() {
    let mut rig = Rig::new();
    rig.set_bus(COMMAND, MEMORY);
    rig.enable();
    rig.create_pair(1, 8);
    let read = rig.read_sqe(4, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| cqe.cid), Some(4));
    // And so is one that came after a reset of the function.
    rig.set_bus(COMMAND, MEMORY_AND_MASTER);
    rig.leave_bus();
    rig.controller.function_reset();
    rig.turns(6);
    rig.enable();
    assert!(rig.identify(1, 0, 0).is_ok());
}

#[test]
fn d3hot_is_left_as_the_bus_is() {
    let mut rig = rig();
    rig.set_bus(POWER, D3_HOT);
    rig.turns(4);
    assert!(rig.controller.has_left_bus());
    let read = rig.read_sqe(4, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    assert_eq!(rig.io_cqe(1, 0), None);
    rig.set_bus(POWER, D0);
    rig.turns(6);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| cqe.cid), Some(4));
}

#[test]
fn a_change_back_and_forth_is_followed_as_the_last_one_says() {
    let mut rig = rig();
    for _ in 0..3 {
        rig.leave_bus();
        // A lane gets none of these before the last.
        rig.set_bus(COMMAND, MEMORY_AND_MASTER);
        rig.set_bus(COMMAND, MEMORY);
        assert!(
            !rig.controller.has_left_bus(),
            "the lanes have yet to say so"
        );
        rig.turns(2);
        assert!(rig.controller.has_left_bus());
        rig.set_bus(COMMAND, MEMORY_AND_MASTER);
        rig.turns(2);
        assert!(rig.identify(1, 0, 0).is_ok());
    }
}

#[test]
fn resets_and_shutdowns_do_not_wait_for_the_bus() {
    let mut rig = rig();
    rig.leave_bus();
    rig.disable();
    rig.set_admin_queues(32);
    rig.write32(CC, CC_ENABLE);
    rig.turns(2);
    assert_eq!(rig.csts() & (RDY | CFS), RDY);
    rig.take_bus();
    assert!(rig.identify(1, 0, 0).is_ok());
    rig.create_pair(1, 8);
    rig.leave_bus();
    rig.write32(CC, CC_ENABLE | 1 << 14);
    rig.turns(12);
    assert_eq!(rig.csts() & SHST, SHST_COMPLETE);
}

#[test]
fn a_deletion_that_waits_completes_with_the_bus() {
    let mut rig = rig();
    rig.hang();
    let read = rig.read_sqe(4, 1);
    rig.submit_io(1, 0, read);
    rig.turns(2);
    let cid = rig.submit(Sqe {
        opcode: DELETE_SQ,
        cdw10: 1,
        ..Sqe::default()
    });
    rig.turns(2);
    rig.set_bus(COMMAND, MEMORY);
    for (_, medium) in rig.channels.iter_mut() {
        medium.release(usize::MAX);
    }
    rig.turns(6);
    assert!(rig.controller.has_left_bus());
    assert_eq!(rig.peek(), None, "its completion waits");
    rig.take_bus();
    assert_eq!(rig.reap().map(|cqe| cqe.cid), Some(cid));
}

#[test]
fn event_idx_is_not_written_without_bus_mastering() {
    let mut rig = rig();
    let buffers = (rig.host.page(200), rig.host.page(201));
    let registered = rig.status(Sqe {
        opcode: DOORBELL_BUFFERS,
        prp1: buffers.0.0,
        prp2: buffers.1.0,
        ..Sqe::default()
    });
    assert_eq!(registered, OK);
    rig.leave_bus();
    rig.host.write(buffers.1, &[0xbb; 4096]);
    let key = rig.lanes.iter().next().expect("a queue pair").key();
    let lane = rig.lanes.local(key).expect("its lane");
    assert!(lane.rest(), "it may rest");
    assert!(
        rig.host
            .read(buffers.1, 4096)
            .iter()
            .all(|byte| *byte == 0xbb)
    );
}

#[test]
fn a_controller_that_is_off_the_bus_goes_on_in_another_process() {
    let mut rig = rig();
    rig.set_bus(COMMAND, MEMORY);
    rig.turns(4);
    assert!(rig.controller.has_left_bus());
    rig.revive();
    rig.turns(10);
    assert!(rig.controller.has_replayed(), "it has nothing to replay");
    assert!(rig.controller.has_left_bus());
    rig.controller.release(&mut rig.lanes);
    rig.take_bus();
    let read = rig.read_sqe(5, 1);
    rig.submit_io(1, 0, read);
    rig.turns(6);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| cqe.cid), Some(5));
}
