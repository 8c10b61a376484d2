//! Keep Alive (Base 2.1, 3.9, 5.1.14 and 5.1.25.1.8).

use nvme_spec::Sqe;

use super::rig::*;

const KATO: u32 = 0x0f;
const MS: u64 = 1_000_000;

fn keep_alive(rig: &mut Rig) -> u16 {
    rig.status(Sqe {
        opcode: KEEP_ALIVE,
        ..Sqe::default()
    })
}

#[test]
fn without_a_timeout_a_host_may_be_silent() {
    let mut rig = Rig::enabled();
    assert_eq!(rig.get_feature(KATO, 0, 0).dw0, 0);
    assert_eq!(rig.controller.next_deadline(), None);
    rig.wait(1000 * SECOND);
    assert_eq!(rig.csts(), RDY);
    assert_eq!(keep_alive(&mut rig), OK);
}

#[test]
fn a_host_that_is_silent_too_long_loses_its_controller() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    assert_eq!(code(&rig.set_feature(KATO, 2000)), OK);
    let until = rig.now + 2000 * MS;
    assert_eq!(rig.controller.next_deadline(), Some(until));
    rig.wait(1999 * MS);
    assert_eq!(rig.csts(), RDY);
    assert_eq!(keep_alive(&mut rig), OK);
    rig.wait(1999 * MS);
    // Other commands, of either kind, do not restart the timer: traffic based keep alive is not
    // offered.
    assert!(rig.identify(1, 0, 0).is_ok());
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    assert!(rig.io_cqe(1, 0).is_some());
    rig.wait(MS);
    assert_eq!(rig.csts() & CFS, CFS);
    // It stopped processing commands.
    rig.submit(Sqe {
        opcode: KEEP_ALIVE,
        ..Sqe::default()
    });
    rig.turns(4);
    assert!(rig.peek().is_none());
    rig.disable();
    rig.enable();
    assert_eq!(rig.csts(), RDY);
    assert_eq!(rig.get_feature(KATO, 0, 0).dw0, 0, "the default again");
    // An entry of the error log that belongs to no command: Keep Alive Timer Expired (0h, 19h).
    let entry = rig.log(0x01, 0, 64).unwrap();
    assert_eq!((u16_at(&entry, 8), u16_at(&entry, 10)), (0xffff, 0xffff));
    assert_eq!(u16_at(&entry, 12) >> 1 & 0x7ff, 0x019);
}

#[test]
fn a_keep_alive_that_waits_in_the_queue_counts() {
    let mut rig = Rig::enabled();
    assert_eq!(code(&rig.set_feature(KATO, 1000)), OK);
    // The reactor is late; the host was not.
    rig.submit(Sqe {
        opcode: KEEP_ALIVE,
        ..Sqe::default()
    });
    rig.now = rig.now + 1500 * MS;
    rig.turns(2);
    assert_eq!(rig.csts(), RDY);
    assert!(rig.reap().is_some());
}

#[test]
fn the_timeout_is_rounded_up_to_the_unit_of_kas() {
    let mut rig = Rig::enabled();
    for (asked, kept) in [(1, 100), (100, 100), (101, 200), (0, 0)] {
        assert_eq!(code(&rig.set_feature(KATO, asked)), OK);
        assert_eq!(rig.get_feature(KATO, 0, 0).dw0, kept, "{asked}");
    }
    assert_eq!(code(&rig.set_feature(KATO, !0)), KEEP_ALIVE_INVALID);
    assert_eq!(rig.get_feature(KATO, 0, 0).dw0, 0);
}

#[test]
fn setting_the_timeout_restarts_the_timer_and_zero_stops_it() {
    let mut rig = Rig::enabled();
    assert_eq!(code(&rig.set_feature(KATO, 1000)), OK);
    rig.wait(900 * MS);
    assert_eq!(code(&rig.set_feature(KATO, 1000)), OK);
    rig.wait(900 * MS);
    assert_eq!(rig.csts(), RDY);
    assert_eq!(code(&rig.set_feature(KATO, 0)), OK);
    rig.wait(100 * SECOND);
    assert_eq!(rig.csts(), RDY);
}

#[test]
fn the_timer_stops_when_a_shutdown_is_asked_for() {
    let mut rig = Rig::enabled();
    assert_eq!(code(&rig.set_feature(KATO, 1000)), OK);
    rig.write32(CC, CC_ENABLE | 1 << 14);
    rig.turns(8);
    assert_eq!(rig.csts() & SHST, SHST_COMPLETE);
    rig.wait(100 * SECOND);
    assert_eq!(rig.csts() & CFS, 0);
}
