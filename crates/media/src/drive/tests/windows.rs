//! Reachability of memory for the drive, and its use.

use std::sync::atomic::Ordering;

use port::{Channel as _, Outcome, Request};

use super::rig::{Host, Rig, Shape};
use crate::drive::op::INTERRUPTED;
use crate::drive::warden::REVOKE_TICKS;

fn read(offset: u64, len: u32) -> Request<'static> {
    Request::Read { offset, len }
}

fn write(offset: u64, len: u32) -> Request<'static> {
    Request::Write {
        offset,
        len,
        fua: false,
    }
}

#[test]
pub(super) fn data_is_copied_until_the_drive_reaches_it_and_then_no_more() {
    let mut rig = Rig::new(Shape::default());
    let host = Host::new();
    host.put(&[(0, 4096)], &[7; 4096]);
    assert_eq!(rig.run(&host, &write(0, 4096), &[(0, 4096)]), Outcome::OK);
    rig.tick(3);
    // Without a bounce buffer nothing can be copied.
    let buffers = rig.channel.take_bounces();
    for (request, pieces) in [
        (write(8192, 4096), vec![(0, 4096)]),
        // From inside a page, page by page, and more than the drive takes at once.
        (read(0, 1024), vec![(512, 1024)]),
        (read(0, 65_536), vec![(4096, 4096), (40_960, 61_440)]),
        (read(512, 65_536), vec![(2048, 2048), (40_960, 63_488)]),
    ] {
        assert_eq!(rig.run(&host, &request, &pieces), Outcome::OK);
    }
    assert_eq!(rig.mood.largest.load(Ordering::Relaxed), 16 << 10);
    assert_eq!(host.get(&[(2048, 2048)]), [7; 2048]);
    // Layouts that PRP entries cannot express.
    for pieces in [
        vec![(4098, 512)],
        vec![(4096, 256), (8192, 256)],
        vec![(8192, 4096 - 512), (4096, 1024)],
        vec![(u64::MAX, 512)],
    ] {
        let len = pieces.iter().map(|(_, len)| len).sum();
        let id = rig.add(&host, &read(0, len), &pieces);
        (0..1000).for_each(|_| rig.reap());
        assert_eq!(rig.channel.in_flight(), 1, "{pieces:?} needs a buffer");
        rig.channel.put_bounces(buffers.clone());
        rig.drain();
        assert_eq!(rig.ended.remove(&id), Some(Outcome::OK));
        assert_eq!(rig.channel.take_bounces().len(), buffers.len());
    }
}

#[test]
pub(super) fn what_a_host_takes_back_is_taken_back_from_the_drive() {
    let mut rig = Rig::new(Shape::default());
    let mut host = Host::new();
    rig.run(&host, &read(0, 4096), &[(0, 4096)]);
    rig.tick(3);
    assert_eq!(rig.keeper.shared().len(), 1);
    let first = rig.keeper.shared()[0];
    host.unmap();
    rig.tick(2);
    assert!(rig.keeper.shared().is_empty());
    // The same memory once more is another region.
    host.map();
    rig.run(&host, &read(0, 4096), &[(0, 4096)]);
    rig.tick(3);
    assert_eq!(rig.keeper.shared().len(), 1);
    assert_ne!(rig.keeper.shared()[0], first);
}

#[test]
pub(super) fn memory_is_kept_for_the_drive_as_long_as_it_has_a_command_there() {
    let mut rig = Rig::new(Shape::default());
    let mut host = Host::new();
    rig.run(&host, &read(0, 4096), &[(0, 4096)]);
    rig.tick(3);
    rig.mood.hangs.store(true, Ordering::Relaxed);
    rig.add(&host, &read(0, 4096), &[(0, 4096)]);
    rig.reap();
    host.unmap();
    rig.tick(4);
    assert_eq!(rig.keeper.shared().len(), 1, "the command is at the drive");
    rig.mood.hangs.store(false, Ordering::Relaxed);
    rig.tick(20);
    assert_eq!(rig.channel.in_flight(), 0);
    assert!(rig.keeper.shared().is_empty());
}

/// A host whose memory the drive reaches, with a hanging command there. The host unmaps the memory.
fn taken_back(rig: &mut Rig) -> (Host, u64) {
    let mut host = Host::new();
    rig.run(&host, &read(0, 4096), &[(0, 4096)]);
    rig.tick(3);
    rig.mood.hangs.store(true, Ordering::Relaxed);
    let id = rig.add(&host, &read(0, 4096), &[(0, 4096)]);
    rig.reap();
    host.unmap();
    (host, id)
}

#[test]
pub(super) fn a_command_in_memory_that_is_taken_back_has_two_seconds() {
    let mut rig = Rig::new(Shape::default());
    let (mut host, id) = taken_back(&mut rig);
    let reached = host.reached();
    assert_eq!(reached.len(), 1);
    rig.tick(8);
    assert!(!rig.ended.contains_key(&id));
    assert!(reached[0].is_held());
    rig.tick(4);
    assert_eq!(rig.ended.remove(&id), Some(INTERRUPTED));
    assert!(!reached[0].is_held(), "the drive has nothing of it");
}

#[test]
pub(super) fn memory_is_taken_from_a_drive_whose_keeper_waits() {
    is_taken(Rig::new(Shape::default()));
}

/// From one that a former process had, too.
#[test]
fn memory_is_taken_from_a_drive_of_the_last_process() {
    let known = Rig::new(Shape::default()).drive.to_bytes();
    is_taken(Rig::again(&known, Shape::default(), 0));
}

fn is_taken(mut rig: Rig) {
    let mut warden = rig.keeper.take_warden().unwrap();
    warden.look(rig.now);
    let (mut host, id) = taken_back(&mut rig);
    let reached = host.reached();
    // The keeper has no turn.
    let now = rig.now + 1;
    warden.look(now);
    warden.look(now + REVOKE_TICKS - 1);
    assert!(reached[0].is_held());
    warden.look(now + REVOKE_TICKS);
    assert!(!reached[0].is_held(), "before the host has its answer");
    assert!(!rig.ended.contains_key(&id));
    // The keeper finds nothing to unmap, and the address can be used again.
    rig.mood.hangs.store(false, Ordering::Relaxed);
    rig.tick(20);
    assert!(rig.keeper.shared().is_empty());
    host.map();
    rig.run(&host, &read(0, 4096), &[(0, 4096)]);
    rig.tick(3);
    assert_eq!(rig.keeper.shared().len(), 1);
}
