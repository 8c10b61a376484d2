//! Enable, disable, resets and failure (Base 2.1, 3.5 to 3.7 and 9.5): both edges of RDY are
//! bounded.

use std::sync::Arc;

use memory::DoorbellPages;
use nvme_spec::Sqe;
use port::testing::Manner;
use subsystem::{Subsystem, SubsystemConfig};

use super::rig::*;
use crate::controller::{Controller, EnableError, Failure, Interrupt};

/// Tries to enable with these settings; CSTS after a few turns.
fn enable_with(cc: u32, prepare: impl Fn(&mut Rig)) -> u32 {
    let mut rig = Rig::new();
    rig.set_admin_queues(32);
    prepare(&mut rig);
    rig.write32(CC, cc);
    assert_eq!(
        rig.csts(),
        0,
        "the write is answered before anything happens"
    );
    rig.turns(4);
    rig.csts()
}

#[test]
fn rdy_follows_en_on_both_edges() {
    let mut rig = Rig::new();
    rig.set_admin_queues(32);
    rig.write32(CC, CC_ENABLE);
    assert_eq!(rig.csts(), 0);
    assert!(rig.controller.has_work());
    rig.turn();
    assert_eq!(rig.csts(), RDY);
    rig.write32(CC, CC_ENABLE & !1);
    assert_eq!(rig.csts(), RDY);
    assert!(rig.controller.has_work());
    rig.turn();
    assert_eq!(rig.csts(), 0);
    assert!(!rig.controller.has_work());
}

#[test]
fn a_controller_reset_keeps_the_admin_queue_registers_and_forgets_the_rest() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.write32(INTMS, 1);
    assert_eq!(code(&rig.set_feature(0x0b, 0x100)), OK);
    let queue = (rig.read32(AQA), rig.read64(ASQ), rig.read64(ACQ));
    rig.disable();
    assert_eq!((rig.read32(AQA), rig.read64(ASQ), rig.read64(ACQ)), queue);
    assert_eq!(rig.read32(INTMS), 0);
    assert_eq!(rig.lanes.live(), 0);
    for slot in 0..rig.doorbells.slots() {
        assert_eq!(rig.doorbells.load(slot), 0, "slot {slot}");
    }
    rig.enable();
    assert_eq!(
        rig.get_feature(0x0b, 0, 0).dw0,
        0,
        "features are at their defaults"
    );
    // The identifiers are free again.
    rig.create_pair(1, 8);
}

/// A host that did not notice a reset submits one more command, and then enables the controller
/// with the same queues.
#[test]
fn what_was_submitted_while_disabled_is_not_done() {
    let mut rig = Rig::enabled();
    rig.disable();
    let abort = Sqe {
        opcode: 0x08,
        ..Sqe::default()
    };
    rig.submit(abort);
    // by a doorbell that it has mapped, so no write reaches the controller
    rig.doorbells.store(0, 1);
    rig.turns(4);
    rig.write32(CC, CC_ENABLE);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY);
    assert!(rig.peek().is_none(), "nothing is completed");
}

#[test]
fn linux_resets_and_rebinds_in_a_loop() {
    let mut rig = Rig::new();
    for round in 0..50 {
        rig.enable();
        rig.create_pair(1, 8);
        rig.create_pair(2, 64);
        let read = rig.read_sqe(round, 1);
        rig.submit_io(1, 0, read);
        if round % 2 == 0 {
            rig.turns(4);
        }
        rig.disable();
    }
    assert_eq!(rig.lanes.live(), 0);
}

#[test]
fn bad_settings_set_cfs_and_not_rdy() {
    for (what, cc) in [
        ("MPS 1: 8 KiB pages", CC_ENABLE | 1 << 7),
        ("CSS 001b: reserved", CC_ENABLE | 0b001 << 4),
        ("CSS 111b: admin only", CC_ENABLE | 0b111 << 4),
        ("AMS 2: reserved", CC_ENABLE | 2 << 11),
        ("AMS 7: vendor specific", CC_ENABLE | 7 << 11),
        ("IOSQES 7", CC_ENABLE & !(0xf << 16) | 7 << 16),
        ("IOCQES 5", CC_ENABLE & !(0xf << 20) | 5 << 20),
    ] {
        assert_eq!(enable_with(cc, |_| ()), CFS, "{what}");
    }
    assert_eq!(enable_with(CC_ENABLE, |_| ()), RDY);
    // All supported command sets.
    assert_eq!(enable_with(CC_ENABLE | 0b110 << 4, |_| ()), RDY);
    // Weighted round robin with urgent priority class.
    assert_eq!(enable_with(CC_ENABLE | 1 << 11, |_| ()), RDY);
}

#[test]
fn bad_admin_queues_set_cfs() {
    let page = |rig: &Rig, n| rig.host.page(n).0;
    type Prepare<'a> = &'a dyn Fn(&mut Rig);
    let cases: [(&str, Prepare<'_>); 6] = [
        ("AQA 0: queues of one entry", &|rig| rig.write32(AQA, 0)),
        ("a submission queue of one entry", &|rig| {
            rig.write32(AQA, 31 << 16)
        }),
        ("a completion queue of one entry", &|rig| {
            rig.write32(AQA, 31)
        }),
        ("ASQ inside a page", &|rig| {
            rig.write64(ASQ, page(rig, 0) + 64)
        }),
        ("ACQ outside the host's memory", &|rig| {
            rig.write64(ACQ, page(rig, PAGES))
        }),
        ("ASQ that wraps", &|rig| rig.write64(ASQ, !0xfff)),
    ];
    for (what, prepare) in cases {
        assert_eq!(enable_with(CC_ENABLE, prepare), CFS, "{what}");
    }
}

#[test]
fn memory_that_is_not_shared_sets_cfs_and_the_log_says_what_to_do() {
    let said = Failure::from(EnableError::NoDescriptor).to_string();
    assert!(said.contains("memory-backend-memfd,share=on"), "{said}");
    let mut rig = Rig::new();
    rig.set_admin_queues(32);
    rig.host.unmap_pages(0, PAGES);
    rig.host.map_without_descriptor(0, PAGES);
    rig.tell_view();
    rig.write32(CC, CC_ENABLE);
    rig.turns(4);
    assert_eq!(rig.csts(), CFS);
}

#[test]
fn a_buffer_that_is_not_shared_is_logged_with_what_to_do_and_one_that_is_missing_is_not() {
    let mut rig = Rig::new();
    let memory = rig.host.page(PAGES);
    rig.host.map_without_descriptor(PAGES, 1);
    rig.tell_view();
    rig.enable();
    rig.create_pair(1, 8);
    for (index, (page, unshared)) in (0..).zip([(PAGES + 1, false), (PAGES, true)]) {
        let mut read = rig.read_sqe(index as u16, 8);
        read.prp1 = memory.0 + (page - PAGES) * 4096;
        rig.submit_io(1, index, read);
        rig.turns(8);
        let cqe = rig.io_cqe(1, index).expect("it completes");
        assert_eq!(code(&cqe), DATA_TRANSFER);
        assert_eq!(rig.controller.life.warned.unshared, unshared);
    }
    let entry = rig.log(0x01, 0, 64).unwrap();
    assert_eq!(u64_at(&entry, 0), 2, "both are in the error log");
}

#[test]
fn a_read_only_completion_queue_sets_cfs() {
    let mut rig = Rig::new();
    rig.set_admin_queues(32);
    rig.host.unmap_pages(0, PAGES);
    let access = memory::Access {
        read: true,
        write: false,
    };
    rig.host.map_as(0, PAGES, access);
    rig.tell_view();
    rig.write32(CC, CC_ENABLE);
    rig.turns(4);
    assert_eq!(rig.csts(), CFS);
}

#[test]
fn a_host_may_set_entry_sizes_after_enabling_but_before_io_queues() {
    let mut rig = Rig::new();
    rig.set_admin_queues(32);
    rig.write32(CC, 1);
    rig.turns(2);
    assert_eq!(rig.csts(), RDY);
    let cq = rig.create_cq_sqe(1, 8);
    assert_eq!(rig.status(cq), INVALID_QSIZE);
    rig.write32(CC, CC_ENABLE);
    rig.create_pair(1, 8);
}

#[test]
fn fields_that_may_not_change_while_enabled_do_not() {
    let mut rig = Rig::enabled();
    rig.write32(CC, CC_ENABLE | 0b110 << 4 | 3 << 7 | 1 << 11);
    assert_eq!(rig.read32(CC), CC_ENABLE);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY);
}

#[test]
fn a_failed_controller_recovers_by_a_reset() {
    let mut rig = Rig::new();
    rig.set_admin_queues(32);
    rig.write32(CC, CC_ENABLE | 1 << 7);
    rig.turns(4);
    assert_eq!(rig.csts(), CFS);
    rig.turns(4);
    assert!(!rig.controller.has_work());
    rig.write32(CC, 0);
    rig.turns(4);
    assert_eq!(rig.csts(), 0);
    rig.enable();
}

#[test]
fn a_host_that_was_never_ready_meets_no_stale_failure() {
    let mut rig = Rig::new();
    rig.set_admin_queues(32);
    rig.write32(CC, CC_ENABLE | 1 << 7);
    rig.turns(4);
    assert_eq!(rig.csts(), CFS);
    // RDY is 0 already: the host need not wait, and enables again before any turn.
    rig.write32(CC, 0);
    assert_eq!(rig.csts(), 0);
    rig.write32(CC, CC_ENABLE);
    assert_eq!(rig.csts(), 0);
    rig.turns(8);
    assert_eq!(rig.csts(), RDY);
}

#[test]
fn enabling_before_the_reset_has_finished_waits_for_it() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.write32(CC, CC_ENABLE & !1);
    rig.write32(CC, CC_ENABLE);
    rig.turns(8);
    assert_eq!(rig.csts(), RDY);
    assert_eq!(
        rig.lanes.live(),
        0,
        "the queues of the former life are gone"
    );
}

#[test]
fn disable_waits_for_commands_in_flight() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    rig.write32(CC, CC_ENABLE & !1);
    rig.turns(4);
    assert_eq!(
        rig.csts(),
        RDY,
        "a command may still write to the host's memory"
    );
    rig.medium(0).release(1);
    rig.turns(4);
    assert_eq!(rig.csts(), 0);
    assert!(
        rig.io_cqe(1, 0).is_none(),
        "nothing is posted once the host has disabled us"
    );
}

#[test]
fn disable_is_bounded_where_a_medium_hangs() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    rig.write32(CC, CC_ENABLE & !1);
    rig.wait(4 * SECOND - 1);
    assert_eq!(rig.csts(), RDY);
    let deadline = rig
        .controller
        .next_deadline()
        .expect("the reset is bounded");
    assert_eq!(deadline.since(rig.now), 1);
    rig.wait(1);
    assert_eq!(rig.csts(), 0, "given up after four seconds");
    rig.enable();
    rig.create_pair(1, 8);
    // The late completion of the former life finds no command.
    rig.medium(0).release(1);
    rig.turns(4);
    assert!(rig.io_cqe(1, 0).is_none());
}

#[test]
fn a_function_reset_is_quiet_when_nothing_is_in_flight() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.controller.config_write(0x04, &[0x06, 0x01]);
    rig.controller
        .config_write(0x10, &0xfebf_8000u32.to_le_bytes());
    rig.controller.config_write(0xb2, &0x8000u16.to_le_bytes());
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    rig.controller.function_reset();
    assert!(!rig.controller.is_quiet());
    assert_eq!(
        (
            rig.read32(CC),
            rig.read32(AQA),
            rig.read64(ASQ),
            rig.read64(ACQ)
        ),
        (0, 0, 0, 0)
    );
    for (at, expected) in [(0x04, 0), (0x10, 0b100), (0xb2, 4)] {
        let mut bytes = [0; 2];
        rig.controller.config_read(at, &mut bytes);
        assert_eq!(u16::from_le_bytes(bytes), expected, "{at:#x}");
    }
    rig.turns(8);
    assert!(!rig.controller.is_quiet());
    assert_eq!(rig.csts(), RDY);
    rig.medium(0).release(1);
    rig.turns(4);
    assert!(rig.controller.is_quiet());
    assert_eq!(rig.csts(), 0);
    assert_eq!(rig.lanes.live(), 0);
}

#[test]
fn a_function_reset_is_bounded_where_a_medium_hangs() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    rig.controller.function_reset();
    rig.turns(4);
    rig.wait(4 * SECOND);
    assert!(rig.controller.is_quiet());
}

#[test]
fn a_function_level_reset_by_configuration_space_does_the_same() {
    let mut rig = Rig::enabled();
    // Device Control of the PCI Express capability, bit 15.
    rig.controller.config_write(0x78, &0xa810u16.to_le_bytes());
    assert_eq!((rig.read32(CC), rig.read64(ASQ)), (0, 0));
    rig.turns(4);
    assert!(rig.controller.is_quiet());
    rig.enable();
}

/// A host without I/O queues has no lanes; RDY still falls in a later turn.
#[test]
fn a_reset_in_progress_is_not_quiet_without_lanes() {
    let mut rig = Rig::enabled();
    assert!(rig.controller.is_quiet());
    rig.controller.function_reset();
    assert!(!rig.controller.is_quiet());
    assert_eq!(rig.csts(), RDY);
    rig.turns(4);
    assert!(rig.controller.is_quiet());
    assert_eq!(rig.csts(), 0);
}

/// Its lanes may have commands in flight that reach the memory of its host.
#[test]
fn a_controller_with_lanes_is_not_quiet() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.turns(4);
    assert!(!rig.controller.is_quiet());
    rig.controller.function_reset();
    rig.turns(4);
    assert!(rig.controller.is_quiet());
}

#[test]
fn memory_that_was_truncated_fails_this_controller() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.lost.raise();
    rig.turns(8);
    assert_eq!(rig.csts(), RDY | CFS);
    assert_eq!(rig.lanes.live(), 0);
    // As long as that memory is all there is, a reset does not help.
    rig.write32(CC, CC_ENABLE & !1);
    rig.turns(8);
    rig.write32(CC, CC_ENABLE);
    rig.turns(8);
    assert_eq!(rig.csts(), CFS);
    // Another client comes.
    rig.controller.function_reset();
    rig.turns(8);
    rig.lost = memory::LostFlag::default();
    rig.tell_view();
    rig.enable();
}

#[test]
fn a_failure_stops_lanes_and_is_told_by_cfs() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.controller.fail(Failure::ClientLost);
    assert_eq!(rig.csts() & CFS, CFS);
    rig.turns(4);
    assert_eq!(rig.lanes.live(), 0);
    assert_eq!(rig.csts(), RDY | CFS);
    rig.disable();
    rig.enable();
}

#[test]
fn firmware_remaps_memory_under_the_admin_queue() {
    // SeaBIOS unmaps all memory and maps it again in pieces while CC.EN is 1.
    let mut rig = Rig::enabled();
    rig.host.unmap_pages(0, PAGES);
    rig.tell_view();
    rig.turns(4);
    rig.host.map_pages(0, 100);
    rig.host.map_pages(100, PAGES - 100);
    rig.tell_view();
    rig.turns(4);
    assert_eq!(rig.csts(), RDY);
    assert!(rig.identify(1, 0, 0).is_ok());
}

#[test]
fn a_command_in_an_admin_queue_that_is_unmapped_waits_and_then_fails() {
    let mut rig = Rig::enabled();
    rig.host.unmap_pages(0, PAGES);
    rig.tell_view();
    rig.submit(Sqe {
        opcode: IDENTIFY,
        ..Sqe::default()
    });
    rig.wait(3 * SECOND);
    assert_eq!(rig.csts(), RDY);
    assert!(rig.controller.next_deadline().is_some());
    rig.wait(SECOND);
    assert_eq!(rig.csts(), RDY | CFS);
}

#[test]
fn an_unmap_is_drained_when_nothing_from_before_is_in_flight() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    rig.host.unmap_pages(0, PAGES);
    rig.host.map_pages(0, PAGES);
    let epoch = rig.host.view().epoch();
    rig.tell_view();
    assert!(!rig.controller.drained(epoch));
    rig.turns(4);
    assert!(
        !rig.controller.drained(epoch),
        "the read writes to what was unmapped"
    );
    rig.medium(0).release(1);
    rig.turns(4);
    assert!(rig.controller.drained(epoch));
}

#[test]
fn what_hangs_over_an_unmap_is_given_up_on_demand() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(9, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    rig.host.unmap_pages(0, PAGES);
    rig.host.map_pages(0, PAGES);
    let epoch = rig.host.view().epoch();
    rig.tell_view();
    rig.turns(4);
    rig.controller.abandon(epoch);
    assert!(rig.controller.has_work());
    rig.turns(4);
    assert!(rig.controller.drained(epoch));
    let cqe = rig.io_cqe(1, 0).expect("it was completed");
    assert_eq!((cqe.cid, code(&cqe)), (9, ABORT_REQUESTED));
}

#[test]
fn without_lanes_every_epoch_is_drained() {
    let rig = Rig::enabled();
    assert!(rig.controller.drained(u64::MAX));
}

fn subsystem() -> Subsystem {
    Subsystem::new(SubsystemConfig::with_namespaces(32, namespaces())).unwrap()
}

#[test]
fn wrong_configurations_are_refused_with_the_field() {
    let refused = |change: &dyn Fn(&mut crate::ControllerConfig)| {
        let mut config = config();
        change(&mut config);
        let doorbells = Arc::new(DoorbellPages::new(200).unwrap());
        Controller::new(config, doorbells, &mut subsystem())
            .expect_err("refused")
            .to_string()
    };
    assert!(refused(&|c| c.serial.clear()).starts_with("serial"));
    assert!(refused(&|c| c.serial = "123456789012345678901".into()).starts_with("serial"));
    assert!(refused(&|c| c.model_number = "\u{fc}".into()).starts_with("model_number"));
    assert!(refused(&|c| c.firmware_revision = "123456789".into()).starts_with("firmware"));
    assert!(refused(&|c| c.subnqn = "iqn.x".into()).starts_with("subnqn"));
    assert!(refused(&|c| c.subnqn = format!("nqn.{}", "x".repeat(220))).starts_with("subnqn"));
    assert!(refused(&|c| c.queues = 0).starts_with("queues"));
    assert!(refused(&|c| c.queues = 65).starts_with("queues"));
    assert!(refused(&|c| c.queue_depth = 1).starts_with("queue_depth"));
    assert!(refused(&|c| c.queue_depth = 4097).starts_with("queue_depth"));
    assert!(refused(&|c| c.max_transfer = 2048).starts_with("max_transfer"));
    assert!(refused(&|c| c.max_transfer = 8 << 20).starts_with("max_transfer"));
    assert!(refused(&|c| c.max_transfer = 12288).starts_with("max_transfer"));
    let refused = |limit| {
        let config = SubsystemConfig::with_namespaces(limit, namespaces());
        Subsystem::new(config).expect_err("refused").to_string()
    };
    assert!(refused(0).starts_with("namespace_limit"));
    assert!(refused(2).starts_with("namespace id"));
    let mut twice = namespaces();
    twice[1].nsid = 1;
    let twice = Subsystem::new(SubsystemConfig::with_namespaces(32, twice));
    let refused = twice.expect_err("refused").to_string();
    assert!(refused.starts_with("namespace id 1"));
    let few = Arc::new(DoorbellPages::new(2).unwrap());
    let mut large = config();
    large.queues = 64;
    // Doorbells come in whole pages, so even the fewest are enough for every queue.
    assert!(Controller::new(large, few, &mut subsystem()).is_ok());
    assert!(config().check().is_ok());
}

/// A driver in user space that ends may unmap a ring and clear its doorbell's buffer before it
/// deletes the queue.
#[test]
fn a_submission_queue_whose_memory_is_gone_waits_until_it_is_deleted() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.create_pair(2, 8);
    rig.unmap(rig.sq_page(1));
    rig.turns(4);
    assert_eq!(rig.csts(), RDY, "it may come back");
    rig.write32(0x1008, 1);
    rig.turns(8);
    assert_eq!(rig.csts(), RDY);
    // Everything else goes on.
    let read = rig.read_sqe(0, 8);
    rig.submit_io(2, 0, read);
    rig.turns(8);
    assert!(rig.io_cqe(2, 0).is_some());
    assert_eq!(rig.delete_sq(1), OK);
    assert_eq!(rig.delete_cq(1), OK);
    rig.host.unmap_pages(0, PAGES);
    rig.host.map_pages(0, PAGES);
    rig.tell_view();
    rig.create_pair(1, 8);
}

#[test]
fn a_completion_queue_in_use_that_is_unmapped_fails_the_controller() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.unmap(rig.cq_page(1));
    rig.turns(4);
    assert_eq!(rig.csts(), RDY, "it may come back");
    let read = rig.read_sqe(0, 8);
    rig.submit_io(1, 0, read);
    rig.turns(8);
    assert_eq!(rig.csts(), RDY | CFS);
    assert_eq!(rig.lanes.live(), 0);
    rig.disable();
    rig.enable();
}

#[test]
fn admin_completions_raise_vector_zero_once_per_turn() {
    let mut rig = Rig::enabled();
    rig.turns(2);
    assert!(rig.interrupts.is_empty());
    for _ in 0..3 {
        let sqe = rig.with_data(IDENTIFY);
        rig.submit(Sqe { cdw10: 1, ..sqe });
    }
    rig.turns(4);
    assert_eq!(rig.interrupts, [Interrupt::Vector(0)]);
    // A held request posts nothing.
    rig.async_event();
    rig.turns(4);
    assert_eq!(rig.interrupts, [Interrupt::Vector(0)]);
}

#[test]
fn a_second_reset_does_not_give_the_first_more_time() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    rig.write32(CC, CC_ENABLE & !1);
    rig.wait(3 * SECOND);
    rig.controller.function_reset();
    rig.wait(SECOND);
    assert!(rig.controller.is_quiet());
    assert_eq!((rig.csts(), rig.read32(CC)), (0, 0));
}

#[test]
fn a_doorbell_by_message_kicks_its_lane_once() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.create_pair(2, 8);
    let kicks = |rig: &mut Rig| rig.controller.take_kicks().count();
    assert_eq!(kicks(&mut rig), 0);
    // Tail and head of queue 2, and the admin queue's, which is looked at in every turn.
    for offset in [0x1010, 0x1014, 0x1000, 0x1004] {
        rig.write32(offset, 0);
    }
    assert_eq!(kicks(&mut rig), 1);
    assert_eq!(kicks(&mut rig), 0);
    // Both lanes by one message that covers several doorbells.
    rig.controller.bar_write(0, 0x1008, &[0; 12]);
    assert_eq!(kicks(&mut rig), 2);
}
