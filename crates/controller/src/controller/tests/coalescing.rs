//! Interrupt Coalescing and Interrupt Vector Configuration (Base 2.1, 5.1.25.2.2 and 5.1.25.2.3).

use port::time::Time;

use super::rig::*;
use crate::controller::Interrupt::{Message, Pin, Vector};

const US: u64 = 1000;

/// Aggregation Threshold (0's based) of `entries`, Aggregation Time of `time` units of 100 us.
fn set(rig: &mut Rig, entries: u32, time: u32) {
    let cqe = rig.set_feature(0x08, time << 8 | (entries - 1));
    assert_eq!(code(&cqe), OK);
    rig.turn();
    rig.raised();
}

/// By MSI-X, with two queue pairs and these settings.
fn rig(entries: u32, time: u32) -> Rig {
    let mut rig = Rig::enabled();
    rig.controller.config_write(0xb2, &0x8000u16.to_le_bytes());
    rig.create_pair(1, 16);
    rig.create_pair(2, 16);
    set(&mut rig, entries, time);
    rig
}

#[test]
fn the_threshold_counts_entries() {
    let mut rig = rig(3, 255);
    for index in [0, 3, 6] {
        assert_eq!(rig.raised_by_read(1, index), []);
        assert_eq!(rig.raised_by_read(1, index + 1), []);
        assert_eq!(rig.raised_by_read(1, index + 2), [Vector(1)]);
    }
    assert_eq!(rig.raised_by_read(2, 0), [], "a vector counts for itself");
}

#[test]
fn a_batch_beyond_the_threshold_is_one_interrupt() {
    let mut rig = rig(3, 255);
    rig.raised();
    for index in 0..5 {
        let read = rig.read_sqe(index as u16, 1);
        rig.submit_io(1, index, read);
    }
    rig.turns(2);
    assert_eq!(rig.raised(), [Vector(1)]);
}

#[test]
fn the_time_counts_from_the_first_entry() {
    let mut rig = rig(100, 2);
    let start = rig.now;
    assert_eq!(rig.raised_by_read(1, 0), []);
    let due = Time(start.0 + 200 * US);
    assert_eq!(rig.controller.next_deadline(), Some(due));
    rig.now = Time(start.0 + 150 * US);
    assert_eq!(rig.raised_by_read(1, 1), []);
    assert_eq!(rig.controller.interrupts_due(), Some(due));
    rig.now = Time(due.0 - 1);
    rig.turn();
    assert_eq!(rig.raised(), []);
    rig.now = due;
    rig.turn();
    assert_eq!(rig.raised(), [Vector(1)]);
    assert_eq!(rig.controller.next_deadline(), None);
    rig.now = Time(due.0 + 500 * US);
    rig.turn();
    assert_eq!(rig.raised(), [], "once");
}

#[test]
fn each_vector_has_a_time_of_its_own() {
    let mut rig = rig(100, 2);
    let start = rig.now;
    rig.raised_by_read(1, 0);
    rig.now = Time(start.0 + 50 * US);
    rig.raised_by_read(2, 0);
    rig.now = Time(start.0 + 200 * US);
    rig.turn();
    assert_eq!(rig.raised(), [Vector(1)]);
    assert_eq!(
        rig.controller.interrupts_due(),
        Some(Time(start.0 + 250 * US))
    );
    rig.now = Time(start.0 + 250 * US);
    rig.turn();
    assert_eq!(rig.raised(), [Vector(2)]);
}

#[test]
fn no_time_or_no_threshold_is_no_delay() {
    for (entries, time) in [(100, 0), (1, 100)] {
        let mut rig = rig(entries, time);
        assert_eq!(rig.raised_by_read(1, 0), [Vector(1)]);
    }
}

#[test]
fn the_admin_queue_waits_for_nothing() {
    let mut rig = rig(100, 100);
    rig.get_feature(0x08, 0, 0);
    assert_eq!(rig.raised(), [Vector(0)]);
}

#[test]
fn a_command_that_failed_is_told_at_once() {
    let mut rig = rig(100, 100);
    assert_eq!(rig.raised_by_read(1, 0), []);
    let mut read = rig.read_sqe(1, 1);
    read.cdw10 = u32::MAX;
    rig.submit_io(1, 1, read);
    rig.turns(2);
    assert_eq!(rig.raised(), [Vector(1)]);
    assert_eq!(rig.raised_by_read(1, 2), [], "the next one waits again");
}

#[test]
fn a_vector_may_be_left_out() {
    let mut rig = rig(100, 100);
    // Coalescing Disable, bit 16, of vector 1.
    assert_eq!(code(&rig.set_feature(0x09, 1 << 16 | 1)), OK);
    assert_eq!(rig.raised_by_read(1, 0), [Vector(1)]);
    assert_eq!(rig.raised_by_read(2, 0), []);
    assert_eq!(code(&rig.set_feature(0x09, 1)), OK);
    assert_eq!(rig.raised_by_read(1, 1), []);
}

#[test]
fn new_settings_hold_for_what_is_withheld() {
    // Coalescing goes; the threshold falls to what there is; the time falls; the vector is left
    // out.
    for (fid, value, raised) in [
        (0x08, 0, true),
        (0x08, 100 << 8 | 1, true),
        (0x08, 100 << 8 | 2, false),
        (0x08, 1 << 8 | 99, true),
        (0x09, 1 << 16 | 1, true),
        (0x09, 1 << 16 | 2, false),
    ] {
        let mut rig = rig(100, 100);
        rig.raised_by_read(1, 0);
        rig.raised_by_read(1, 1);
        rig.now = Time(rig.now.0 + 100 * US);
        rig.set_feature(fid, value);
        rig.turn();
        let told = rig.raised().contains(&Vector(1));
        assert_eq!(told, raised, "{fid:#x} {value:#x}");
    }
}

#[test]
fn nothing_is_withheld_beyond_a_reset() {
    let mut rig = rig(100, 100);
    rig.raised_by_read(1, 0);
    rig.disable();
    rig.raised();
    rig.wait(1_000_000_000);
    assert_eq!(rig.raised(), []);
    assert_eq!(rig.controller.next_deadline(), None);
    rig.enable();
    rig.create_pair(1, 16);
    assert_eq!(rig.raised_by_read(1, 0), [Vector(1)], "the default is off");
}

#[test]
fn a_deleted_queue_takes_its_withheld_interrupt_along() {
    let mut rig = rig(100, 100);
    rig.raised_by_read(1, 0);
    assert_eq!((rig.delete_sq(1), rig.delete_cq(1)), (OK, OK));
    rig.raised();
    rig.wait(1_000_000_000);
    assert_eq!(rig.raised(), []);
    assert_eq!(rig.controller.next_deadline(), None);
}

#[test]
fn messages_and_the_pin_are_withheld_too_and_need_not_come_for_what_was_acknowledged() {
    let mut config = config();
    config.intx = true;
    let mut rig = Rig::with(config);
    rig.enable();
    rig.create_pair(1, 16);
    set(&mut rig, 100, 1);
    for (msi, interrupt) in [(0u16, Pin(true)), (1, Message(0))] {
        let first = u32::from(msi) * 2;
        rig.controller.config_write(0x52, &msi.to_le_bytes());
        rig.wait(1_000_000_000);
        assert_eq!(rig.raised_by_read(1, first), []);
        rig.now = Time(rig.now.0 + 100 * US);
        rig.turn();
        assert_eq!(rig.raised(), [interrupt]);
        assert_eq!(rig.raised_by_read(1, first + 1), []);
        // The head doorbell in its page, as a host with a mapping writes it.
        rig.doorbells.store(3, first + 2);
        rig.now = Time(rig.now.0 + 100 * US);
        rig.turn();
        assert!(!rig.raised().contains(&interrupt));
    }
}
