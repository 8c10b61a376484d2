//! A drive that hangs, and one that returns errors.

use std::sync::atomic::Ordering;
use std::time::Duration;

use port::{ByteRange, Cause, Channel as _, Outcome, Request};

use super::rig::{Host, Rig, SIZE, STUCK, Shape};
use crate::drive::channel::ABORT_TICKS;
use crate::drive::keeper::REPORT_TICKS;
use crate::drive::op::{HANG_TICKS, INTERRUPTED, SLOW_HANG_TICKS};

const READ: Request<'static> = Request::Read {
    offset: 0,
    len: 4096,
};

/// Where nothing else is in these tests.
const BESIDE: Request<'static> = Request::Read {
    offset: 2 << 20,
    len: 4096,
};

#[test]
pub(super) fn a_command_that_hangs_ends_after_4_s_and_the_next_one_is_done() {
    let mut rig = Rig::new(Shape::default());
    let host = Host::new();
    rig.run(&host, &READ, &[(0, 4096)]);
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let ids = [0, 1, 2].map(|page| rig.add(&host, &READ, &[(page * 4096, 4096)]));
    rig.tick(HANG_TICKS - 1);
    assert!(ids.iter().all(|id| !rig.ended.contains_key(id)));
    rig.mood.hangs.store(false, Ordering::Relaxed);
    rig.tick(3);
    for id in ids {
        assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED));
    }
    assert_eq!(rig.run(&host, &READ, &[(0, 4096)]), Outcome::OK);
    assert!(rig.channel.pins.is_empty());
}

/// Flushing and deallocating take drives seconds, and do not delay the release of host memory.
#[test]
pub(super) fn what_takes_drives_long_has_20_s() {
    let ranges = [ByteRange {
        offset: 0,
        len: 1 << 20,
    }];
    for slow in [
        Request::Flush,
        Request::Deallocate { ranges: &ranges },
        Request::WriteZeroes {
            offset: 0,
            len: 4096,
            deallocate: true,
            fua: false,
        },
    ] {
        let mut rig = Rig::new(Shape::default());
        rig.channel.be_cached();
        let host = Host::new();
        rig.mood.hangs.store(true, Ordering::Relaxed);
        let id = rig.add(&host, &slow, &[]);
        rig.tick(SLOW_HANG_TICKS - 1);
        assert!(!rig.ended.contains_key(&id), "{slow:?}");
        rig.mood.hangs.store(false, Ordering::Relaxed);
        rig.tick(3);
        assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED), "{slow:?}");
        // A data command at the same time still has its 4 s, and takes the queue with it.
        rig.mood.hangs.store(true, Ordering::Relaxed);
        let ids = [
            rig.add(&host, &slow, &[]),
            rig.add(&host, &BESIDE, &[(0, 4096)]),
        ];
        rig.tick(HANG_TICKS - 1);
        rig.mood.hangs.store(false, Ordering::Relaxed);
        rig.tick(3);
        for id in ids {
            assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED), "{slow:?}");
        }
    }
}

#[test]
pub(super) fn a_command_that_the_drive_aborts_ends_alone() {
    let mut rig = Rig::new(Shape::default());
    let host = Host::new();
    rig.run(&host, &READ, &[(0, 4096)]);
    let qid = rig.channel.queue_id();
    rig.mood.is_stuck.store(true, Ordering::Relaxed);
    let stuck = Request::Read {
        offset: STUCK,
        len: 4096,
    };
    let stuck = rig.add(&host, &stuck, &[(0, 4096)]);
    let behind = rig.add(&host, &READ, &[(4096, 4096)]);
    rig.tick(HANG_TICKS - ABORT_TICKS - 1);
    assert!(rig.ended.is_empty());
    rig.tick(3);
    rig.drain();
    assert_eq!(rig.ended.remove(&stuck), Some(INTERRUPTED));
    assert_eq!(rig.ended.remove(&behind), Some(Outcome::OK));
    rig.tick(HANG_TICKS);
    assert_eq!(rig.channel.queue_id(), qid, "the queue was not given up");
    assert_eq!(rig.run(&host, &READ, &[(0, 4096)]), Outcome::OK);
}

#[test]
pub(super) fn what_waits_behind_what_hangs_is_done_when_that_has_ended() {
    let mut rig = Rig::new(Shape::default());
    let host = Host::new();
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let write = Request::Write {
        offset: 0,
        len: 4096,
        fua: false,
    };
    let first = rig.add(&host, &write, &[(0, 4096)]);
    rig.reap();
    let second = rig.add(&host, &write, &[(0, 4096)]);
    rig.tick(HANG_TICKS - 1);
    rig.mood.hangs.store(false, Ordering::Relaxed);
    rig.tick(3);
    assert_eq!(rig.ended.remove(&first), Some(INTERRUPTED));
    assert_eq!(rig.ended.remove(&second), Some(Outcome::OK));
}

#[test]
pub(super) fn a_channel_whose_queue_hangs_leaves_others_alone() {
    let mut rig = Rig::new(Shape::default());
    let host = Host::new();
    let claimant = rig.claims.claimant().unwrap();
    let mut other = rig.drive.channel(8, claimant).unwrap();
    rig.tick(1);
    other.tend();
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let id = rig.add(&host, &READ, &[(0, 4096)]);
    rig.tick(HANG_TICKS - 1);
    rig.mood.hangs.store(false, Ordering::Relaxed);
    rig.tick(3);
    assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED));
    let qid = other.queue_id();
    other.tend();
    assert_eq!(other.queue_id(), qid, "its queue is the one that it had");
    assert_ne!(rig.channel.queue_id(), None);
}

#[test]
pub(super) fn requests_that_no_medium_may_get_are_refused_here_too() {
    let mut rig = Rig::new(Shape {
        lba_shift: 12,
        ..Shape::default()
    });
    let host = Host::new();
    for (offset, len) in [
        (SIZE, 4096),
        (SIZE - 4096, 8192),
        (u64::MAX - 4095, 4096),
        (512, 4096),
        (0, 512),
    ] {
        let request = Request::Read { offset, len };
        let outcome = rig.run(&host, &request, &[(0, len)]);
        assert_eq!(outcome.cause, Cause::Unsupported, "{len} at {offset:#x}");
    }
    let before = rig.mood.commands.load(Ordering::Relaxed);
    assert_eq!(before, 0, "the drive has heard of none");
    assert_eq!(rig.channel.in_flight(), 0);
}

#[test]
pub(super) fn a_drive_has_no_more_channels_than_queues() {
    let rig = Rig::new(Shape::default());
    let open = || rig.drive.channel(8, rig.claims.claimant().unwrap());
    let others = [open(), open(), open()].map(Result::unwrap);
    let error = open().unwrap_err();
    assert!(error.to_string().contains("4 queue pairs"), "{error}");
    drop(others);
    assert!(open().is_ok());
}

/// A reactor that was paused finds old commands that the drive has completed meanwhile: it takes
/// the posted completions, and gives nothing up.
#[test]
fn what_the_drive_has_answered_is_taken_before_it_is_given_up() {
    let mut rig = Rig::new(Shape::default());
    let host = Host::new();
    let queue = rig.channel.queue_id();
    let id = rig.add(&host, &READ, &[(0, 4096)]);
    rig.channel.submit();
    rig.keeper.turn_drive();
    rig.pass(HANG_TICKS + 2);
    rig.channel.tend();
    rig.drain();
    assert_eq!(rig.ended.remove(&id), Some(Outcome::OK));
    rig.tick(2);
    assert_eq!(rig.channel.queue_id(), queue, "it is the same");
    // The channel also abandons a queue of which the drive has answered some commands.
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let kept = rig.add(&host, &READ, &[(0, 4096)]);
    rig.reap();
    rig.mood.hangs.store(false, Ordering::Relaxed);
    for _ in 0..2 {
        rig.pass(HANG_TICKS);
        rig.add(&host, &BESIDE, &[(4096, 4096)]);
        rig.channel.submit();
        rig.keeper.turn_drive();
        rig.channel.tend();
    }
    rig.tick(3);
    assert_eq!(rig.ended.remove(&kept), Some(INTERRUPTED));
}

/// The keeper is busy for longer than a command may take, with mapping memory. The clock of
/// channels continues, so commands that arrive meanwhile are young when the keeper is done, and one
/// that hangs is detected by then.
#[test]
fn time_goes_on_while_the_keeper_is_busy() {
    let mut rig = Rig::new(Shape::default());
    let host = Host::new();
    rig.run(&host, &READ, &[(0, 4096)]);
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let hangs = rig.add(&host, &READ, &[(0, 4096)]);
    rig.reap();
    rig.mood.hangs.store(false, Ordering::Relaxed);
    for _ in 0..HANG_TICKS - 1 {
        rig.pass(1);
        rig.channel.tend();
        let id = rig.add(&host, &BESIDE, &[(4096, 4096)]);
        while !rig.ended.contains_key(&id) {
            rig.reap();
        }
        assert_eq!(rig.ended.remove(&id), Some(Outcome::OK));
    }
    assert!(!rig.ended.contains_key(&hangs));
    rig.pass(1);
    rig.channel.tend();
    assert_eq!(rig.channel.queue_id(), None, "it is given up");
    rig.tick(1);
    assert_eq!(rig.ended.remove(&hangs), Some(INTERRUPTED));
}

/// Another driver disables the drive, which then answers nothing: it is reset when that is
/// detected, and the commands in flight end as interrupted. Detection does not wait for the timeout
/// of an admin command.
#[test]
fn a_drive_that_somebody_else_has_disabled_is_reset() {
    // Detected when a queue is abandoned, and by the health report.
    for ticks_before in [0, REPORT_TICKS - 3] {
        let mut rig = Rig::new(Shape::default());
        let host = Host::new();
        rig.run(&host, &READ, &[(0, 4096)]);
        rig.tick(ticks_before);
        let before = rig.keeper.drive_time();
        rig.mood.hangs.store(true, Ordering::Relaxed);
        let lost = rig.add(&host, &READ, &[(0, 4096)]);
        rig.reap();
        rig.keeper.disable_drive();
        // which it is as soon as nothing is in flight
        rig.mood.releases.store(true, Ordering::Relaxed);
        rig.keeper.turn_drive();
        rig.mood.hangs.store(false, Ordering::Relaxed);
        rig.tick(HANG_TICKS + 3);
        assert_eq!(rig.ended.remove(&lost), Some(INTERRUPTED));
        assert_eq!(rig.run(&host, &READ, &[(0, 4096)]), Outcome::OK);
        assert_eq!(rig.drive.counts().resets, 1);
        let took = rig.keeper.drive_time() - before;
        assert!(took < 2_000_000_000, "{took} ns");
    }
}

/// A clock counts one tick at a time, and ends with the drive's keeper and channels.
#[test]
fn a_drives_clock_ends_with_it() {
    let rig = Rig::new(Shape::default());
    let clock = rig.keeper.clock();
    let before = rig.drive.ticks();
    let thread = std::thread::spawn(move || clock.run(Duration::from_millis(1)));
    while rig.drive.ticks() == before {
        std::thread::yield_now();
    }
    drop(rig);
    thread.join().unwrap();
}
