//! A drive that a former process of the server had.

use port::{Outcome, Request};

use super::rig::{Host, Rig, Shape};
use crate::drive::op::{HANG_TICKS, INTERRUPTED};

const WRITE: Request<'static> = Request::Write {
    offset: 0,
    len: 4096,
    fua: false,
};
const READ: Request<'static> = Request::Read {
    offset: 0,
    len: 4096,
};

fn known() -> Vec<u8> {
    Rig::new(Shape::default()).drive.to_bytes()
}

#[test]
fn it_is_there_at_once() {
    let mut rig = Rig::again(&known(), Shape::default(), 0);
    let host = Host::new();
    let counts = rig.drive.counts();
    assert!(counts.is_there);
    assert_eq!((counts.losses, counts.resets), (0, 0));
    host.put(&[(0, 4096)], &[7; 4096]);
    assert_eq!(rig.run(&host, &WRITE, &[(0, 4096)]), Outcome::OK);
    assert_eq!(rig.run(&host, &READ, &[(8192, 4096)]), Outcome::OK);
    assert_eq!(host.get(&[(8192, 4096)]), [7; 4096]);
}

/// A server that is not there in time costs its commands nothing but the wait.
#[test]
fn commands_wait_for_it() {
    let mut rig = Rig::again(&known(), Shape::default(), HANG_TICKS - 2);
    let host = Host::new();
    let id = rig.add(&host, &WRITE, &[(0, 4096)]);
    // The first attempt was made with the rig.
    rig.tick(HANG_TICKS - 3);
    assert!(!rig.ended.contains_key(&id));
    assert!(!rig.drive.counts().is_there);
    rig.tick(1);
    rig.drain();
    assert_eq!(rig.ended.remove(&id), Some(Outcome::OK));
    let counts = rig.drive.counts();
    assert!(counts.is_there);
    assert_eq!((counts.losses, counts.interrupted), (1, 0));
}

/// As at a drive that is lost while a process has it.
#[test]
fn commands_wait_for_4_s_and_the_drive_is_tried_every_second() {
    // One with the rig, one in each tick for 4 s, and two later.
    let mut rig = Rig::again(&known(), Shape::default(), 1 + HANG_TICKS + 2);
    let host = Host::new();
    let id = rig.add(&host, &WRITE, &[(0, 4096)]);
    rig.tick(HANG_TICKS - 2);
    assert!(!rig.ended.contains_key(&id));
    rig.tick(3);
    assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED));
    // 1 s after the attempts of each tick, and 1 s later, it is not there yet.
    rig.tick(10);
    assert!(!rig.drive.counts().is_there);
    rig.tick(1);
    assert!(rig.drive.counts().is_there);
    assert_eq!(rig.run(&host, &WRITE, &[(0, 4096)]), Outcome::OK);
}

#[test]
fn another_drive_is_not_used() {
    let larger = Shape {
        max_transfer: 64 << 10,
        ..Shape::default()
    };
    let mut rig = Rig::again(&known(), larger, 0);
    let host = Host::new();
    let id = rig.add(&host, &WRITE, &[(0, 4096)]);
    rig.tick(2 * HANG_TICKS);
    assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED));
    let counts = rig.drive.counts();
    assert!(!counts.is_there);
    assert_eq!((counts.losses, counts.commands), (1, 0));
}
