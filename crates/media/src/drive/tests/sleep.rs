//! Wake-ups of a reactor that sleeps with commands at a drive.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use port::{Outcome, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::rig::{Host, Rig, Shape};
use crate::drive::op::{HANG_TICKS, INTERRUPTED};
use crate::drive::queue::BUSY_COMMANDS;

const READ: Request<'static> = Request::Read {
    offset: 0,
    len: 4096,
};

/// Whether the channel's descriptor would end a sleep.
fn is_woken(rig: &Rig) -> bool {
    let fd = rig.channel.wait_fd();
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
}

/// A rig whose drive has a command that it does not complete, and whose channel may sleep.
fn asleep(host: &Host) -> (Rig, u64) {
    let mut rig = Rig::new(Shape::default());
    rig.run(host, &READ, &[(0, 4096)]);
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let id = rig.add(host, &READ, &[(0, 4096)]);
    rig.reap();
    assert!(rig.channel.is_due(), "nobody would wake it yet");
    assert!(!rig.channel.is_polled(), "but that is coming");
    rig.tick(1);
    assert!(!rig.channel.is_due());
    assert!(!is_woken(&rig));
    (rig, id)
}

#[test]
fn a_completion_of_the_drive_wakes_who_sleeps() {
    let host = Host::new();
    let (mut rig, id) = asleep(&host);
    rig.keeper.turn_drive();
    assert!(!is_woken(&rig), "there is nothing yet");
    rig.mood.releases.store(true, Ordering::Relaxed);
    rig.keeper.turn_drive();
    assert!(is_woken(&rig));
    assert!(!rig.ended.contains_key(&id));
    // The second check before the sleep sees it, too.
    assert!(rig.channel.is_due());
    rig.reap();
    assert_eq!(rig.ended.remove(&id), Some(Outcome::OK));
    assert!(!rig.channel.is_due());
    assert!(!is_woken(&rig), "it was heard");
}

#[test]
fn a_drive_signals_nobody_who_has_not_slept() {
    let mut rig = Rig::new(Shape::default());
    let host = Host::new();
    assert!(!rig.channel.is_due());
    for _ in 0..10 {
        rig.run(&host, &READ, &[(0, 4096)]);
    }
    assert!(!is_woken(&rig));
}

#[test]
fn another_queue_wakes_as_the_one_before() {
    let host = Host::new();
    let (mut rig, first) = asleep(&host);
    rig.tick(HANG_TICKS);
    // Without a queue there are no completions to check: messages of the keeper wake.
    rig.mood.hangs.store(false, Ordering::Relaxed);
    rig.tick(3);
    assert_eq!(rig.ended.remove(&first), Some(INTERRUPTED));
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let second = rig.add(&host, &READ, &[(0, 4096)]);
    rig.reap();
    assert!(!rig.channel.is_due(), "it need not ask again");
    rig.mood.releases.store(true, Ordering::Relaxed);
    rig.keeper.turn_drive();
    assert!(is_woken(&rig));
    rig.drain();
    assert_eq!(rig.ended.remove(&second), Some(Outcome::OK));
}

#[test]
fn a_drive_that_was_lost_and_comes_back_wakes_as_before() {
    let host = Host::new();
    let (mut rig, first) = asleep(&host);
    rig.keeper.lose("the test takes it away");
    assert!(is_woken(&rig), "by the keeper");
    rig.mood.hangs.store(false, Ordering::Relaxed);
    rig.tick(8);
    assert_eq!(rig.ended.remove(&first), Some(INTERRUPTED));
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let second = rig.add(&host, &READ, &[(0, 4096)]);
    rig.reap();
    assert!(!rig.channel.is_due());
    rig.mood.releases.store(true, Ordering::Relaxed);
    rig.keeper.turn_drive();
    assert!(is_woken(&rig));
    rig.drain();
    assert_eq!(rig.ended.remove(&second), Some(Outcome::OK));
}

#[test]
fn what_the_drive_was_not_asked_for_is_not_slept_over() {
    let host = Host::new();
    let (mut rig, _) = asleep(&host);
    // It was added behind the last submit.
    rig.add(&host, &READ, &[(4096, 4096)]);
    assert!(rig.channel.is_due());
    rig.reap();
    assert!(!rig.channel.is_due());
}

/// A rig that has slept once, has been awake since, and has nothing in flight.
fn awake(host: &Host) -> Rig {
    let (mut rig, id) = asleep(host);
    rig.mood.hangs.store(false, Ordering::Relaxed);
    rig.mood.releases.store(true, Ordering::Relaxed);
    rig.drain();
    rig.mood.releases.store(false, Ordering::Relaxed);
    assert_eq!(rig.ended.remove(&id), Some(Outcome::OK));
    // The tick in which it slept.
    rig.tick(1);
    rig
}

/// Runs this many commands within a tick; returns whether the drive signals one that comes after
/// it.
fn signals_after(rig: &mut Rig, host: &Host, commands: u32) -> bool {
    for _ in 0..commands {
        rig.run(host, &READ, &[(0, 4096)]);
    }
    // The tick is over, and the keeper has handled the request.
    rig.tick(2);
    // Drains earlier signals; with nothing at the drive the reactor could sleep.
    assert!(!rig.channel.is_due());
    assert!(!is_woken(rig));
    rig.run(host, &READ, &[(0, 4096)]);
    is_woken(rig)
}

#[test]
fn a_drive_stops_signalling_a_reactor_that_is_busy_without_sleep() {
    let host = Host::new();
    let mut rig = awake(&host);
    assert!(
        signals_after(&mut rig, &host, BUSY_COMMANDS / 2),
        "for so few it is not worth it"
    );
    let mut rig = awake(&host);
    assert!(!signals_after(&mut rig, &host, BUSY_COMMANDS));
    // Before it sleeps it asks as the first time, and does not rely on a masked interrupt.
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let id = rig.add(&host, &READ, &[(0, 4096)]);
    rig.reap();
    assert!(rig.channel.is_due(), "nobody would wake it");
    rig.tick(1);
    assert!(!rig.channel.is_due());
    assert!(!is_woken(&rig));
    rig.mood.releases.store(true, Ordering::Relaxed);
    rig.keeper.turn_drive();
    assert!(is_woken(&rig));
    rig.drain();
    assert_eq!(rig.ended.remove(&id), Some(Outcome::OK));
}

#[test]
fn who_wanted_to_sleep_keeps_the_drives_signals() {
    let host = Host::new();
    let mut rig = awake(&host);
    for _ in 0..2 * BUSY_COMMANDS {
        rig.run(&host, &READ, &[(0, 4096)]);
    }
    assert!(!rig.channel.is_due());
    assert!(signals_after(&mut rig, &host, BUSY_COMMANDS));
}

/// The queue is deleted while its interrupts are masked, and recreated: the channel asks for those
/// of the new one.
#[test]
fn another_queue_is_as_quiet_as_the_one_before() {
    let host = Host::new();
    let mut rig = awake(&host);
    assert!(!signals_after(&mut rig, &host, BUSY_COMMANDS));
    rig.keeper.lose("the test takes it away");
    rig.tick(8);
    assert!(!rig.channel.is_due());
    rig.run(&host, &READ, &[(0, 4096)]);
    assert!(!is_woken(&rig));
    rig.mood.hangs.store(true, Ordering::Relaxed);
    rig.add(&host, &READ, &[(0, 4096)]);
    rig.reap();
    assert!(rig.channel.is_due(), "nobody would wake it");
    rig.tick(1);
    assert!(!rig.channel.is_due());
    rig.mood.releases.store(true, Ordering::Relaxed);
    rig.keeper.turn_drive();
    assert!(is_woken(&rig));
}
