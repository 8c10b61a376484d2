//! A reactor that sleeps with commands at a drive: what wakes it.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use controller::port::{Outcome, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::rig::{Host, Rig, Shape};
use crate::drive::op::{HANG_TICKS, INTERRUPTED};

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

/// A rig whose drive has a command that it does not end, and whose channel may sleep.
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
    // Who looks again before it sleeps sees it, too.
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
    // Without a queue there is nothing to look for: the keeper's news wake.
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
