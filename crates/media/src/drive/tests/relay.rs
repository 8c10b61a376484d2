//! The completion side on other reactors: the behaviour is the same, and sleeping reactors are
//! woken.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use port::{Outcome, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::rig::{Host, Rig, Shape, split};
use super::{faults, model, windows};
use crate::drive::op::{HANG_TICKS, INTERRUPTED};

const READ: Request<'static> = Request::Read {
    offset: 0,
    len: 4096,
};

#[test]
fn commands_do_what_they_do_without() {
    split(model::programs);
}

#[test]
fn a_drive_that_hangs_costs_what_it_does_without() {
    split(faults::a_command_that_hangs_ends_after_4_s_and_the_next_one_is_done);
    split(faults::a_command_that_the_drive_aborts_ends_alone);
    split(faults::what_waits_behind_what_hangs_is_done_when_that_has_ended);
    split(faults::a_channel_whose_queue_hangs_leaves_others_alone);
}

#[test]
fn memory_is_taken_back_as_it_is_without() {
    split(windows::what_a_host_takes_back_is_taken_back_from_the_drive);
    split(windows::memory_is_kept_for_the_drive_as_long_as_it_has_a_command_there);
    split(windows::a_command_in_memory_that_is_taken_back_has_two_seconds);
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
}

fn wakes_channel(rig: &Rig) -> bool {
    is_readable(rig.channel.wait_fd())
}

fn wakes_relay(rig: &Rig, at: usize) -> bool {
    is_readable(rig.relays[at].wait_fd())
}

/// A rig whose drive has a command that it does not complete, and in which all reactors sleep.
fn asleep(host: &Host) -> (Rig, u64) {
    let mut rig = Rig::new(Shape::default());
    rig.run(host, &READ, &[(0, 4096)]);
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let id = rig.add(host, &READ, &[(0, 4096)]);
    rig.reap();
    assert!(rig.relays[0].is_due(), "nobody would wake it yet");
    assert!(!rig.relays[0].is_polled(), "but that is coming");
    rig.tick(1);
    assert!(wakes_relay(&rig, 0), "the keeper has told");
    for relay in &mut rig.relays {
        assert!(!relay.is_due());
    }
    assert!(!rig.channel.is_due());
    assert!(!wakes_channel(&rig));
    (rig, id)
}

#[test]
fn each_wakes_the_next_one() {
    split(|| {
        let host = Host::new();
        let (mut rig, id) = asleep(&host);
        rig.mood.releases.store(true, Ordering::Relaxed);
        rig.keeper.turn_drive();
        assert!(wakes_relay(&rig, 0), "by the drive's interrupt");
        assert!(!wakes_channel(&rig), "nothing was brought yet");
        assert!(rig.relays[0].is_due());
        assert!(rig.relays[0].carry());
        assert!(wakes_channel(&rig), "something was");
        if rig.relays.len() > 1 {
            assert!(wakes_relay(&rig, 1), "that is about to be taken");
            assert!(rig.relays[1].is_due());
            assert!(!rig.relays[1].carry(), "and is not yet");
        }
        assert!(rig.channel.is_due());
        rig.reap();
        assert_eq!(rig.ended.remove(&id), Some(Outcome::OK));
        // A reactor that goes to sleep leaves no message unsent.
        assert!(!rig.channel.is_due());
        if rig.relays.len() > 1 {
            assert!(rig.relays[1].is_due());
            assert!(rig.relays[1].carry());
            assert!(!rig.relays[1].is_due());
        }
    });
}

#[test]
fn who_does_not_sleep_is_not_woken() {
    split(|| {
        let host = Host::new();
        let mut rig = Rig::new(Shape::default());
        // Messages of the keeper arrive.
        assert!(wakes_channel(&rig));
        rig.channel.is_due();
        assert_eq!(rig.run(&host, &READ, &[(0, 4096)]), Outcome::OK);
        assert!(
            !wakes_channel(&rig),
            "with nothing in flight it has not asked to be woken"
        );
    });
}

#[test]
fn a_queue_is_deleted_when_its_halves_have_come_back() {
    split(|| {
        let host = Host::new();
        let mut rig = Rig::new(Shape::default());
        rig.mood.hangs.store(true, Ordering::Relaxed);
        let hung = rig.add(&host, &READ, &[(0, 4096)]);
        rig.tick(HANG_TICKS);
        // The channel has given its queue pair up. Relays that do not react delay the deletion.
        for _ in 0..3 {
            rig.now += 1;
            rig.keeper.look(rig.now);
            rig.channel.tend();
            assert_eq!(rig.channel.queue_id(), None);
            assert_eq!(rig.ended.get(&hung), None);
        }
        rig.mood.hangs.store(false, Ordering::Relaxed);
        rig.tick(2);
        assert_eq!(rig.ended.remove(&hung), Some(INTERRUPTED));
        assert_eq!(rig.run(&host, &READ, &[(0, 4096)]), Outcome::OK);
    });
}

#[test]
fn without_relays_channels_go_on_by_themselves() {
    split(|| {
        let host = Host::new();
        let mut rig = Rig::new(Shape::default());
        assert_eq!(rig.run(&host, &READ, &[(0, 4096)]), Outcome::OK);
        rig.relays.clear();
        rig.tick(4);
        assert_eq!(rig.run(&host, &READ, &[(0, 4096)]), Outcome::OK);
    });
}

#[test]
fn a_drive_that_comes_back_is_split_as_before() {
    split(|| {
        let host = Host::new();
        let (mut rig, first) = asleep(&host);
        rig.keeper.lose("the test takes it away");
        rig.mood.hangs.store(false, Ordering::Relaxed);
        rig.tick(8);
        assert_eq!(rig.ended.remove(&first), Some(INTERRUPTED));
        let relays = std::mem::take(&mut rig.relays);
        let second = rig.add(&host, &READ, &[(0, 4096)]);
        (0..100).for_each(|_| rig.reap());
        assert_eq!(rig.ended.get(&second), None, "nobody has brought it");
        rig.relays = relays;
        rig.drain();
        assert_eq!(rig.ended.remove(&second), Some(Outcome::OK));
    });
}

/// The drive has as many queue pairs as channels: a new channel waits for the queue pair of one
/// that was closed.
#[test]
fn a_channel_waits_for_a_queue_that_is_to_come_back() {
    split(|| {
        let host = Host::new();
        let mut rig = Rig::new(Shape::default());
        let open = |rig: &mut Rig| rig.drive.channel(8, rig.claims.claimant().unwrap());
        let mut others = Vec::new();
        while let Ok(other) = open(&mut rig) {
            others.push(other);
        }
        rig.tick(1);
        others.iter_mut().for_each(|other| other.tend());
        assert!(others.iter().all(|other| other.queue_id().is_some()));
        let qid = rig.channel.queue_id();
        others.pop();
        let mut last = open(&mut rig).unwrap();
        rig.now += 1;
        rig.keeper.look(rig.now);
        last.tend();
        assert_eq!(last.queue_id(), None, "its relay has the old one still");
        rig.tick(1);
        last.tend();
        assert_ne!(last.queue_id(), None);
        assert_eq!(rig.channel.queue_id(), qid, "the drive was not given up");
        assert_eq!(rig.run(&host, &READ, &[(0, 4096)]), Outcome::OK);
    });
}
