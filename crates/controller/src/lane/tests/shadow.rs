//! Doorbell Buffer Config (Base 2.1, 5.2.5): which value counts, and when the host is asked to
//! ring.

use memory::Iova;
use nvme_spec::Status;
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use port::testing::{Host, Manner, namespace};

use super::rig::{CQID, DATA, PAGES, Rig, config, read};
use crate::lane::{Lane, LaneCommand, LaneEvent, Registration, ShadowSpec};

const SHADOW: u64 = 400;
const EVENT_IDX: u64 = 401;

fn spec(host: &Host) -> ShadowSpec {
    ShadowSpec {
        shadow: host.page(SHADOW),
        event_idx: host.page(EVENT_IDX),
    }
}

/// A host that registered its buffers and writes its doorbells there.
fn rig(cq: u32, sqs: &[u32]) -> Rig {
    let mut rig = Rig::new(cq, sqs, Manner::Synchronous);
    register(&mut rig);
    rig
}

pub(super) fn register(rig: &mut Rig) {
    let spec = spec(&rig.host);
    let registration = Registration::new(&rig.host.view(), spec, 1).unwrap();
    rig.lane.command(LaneCommand::Shadow(Some(registration)));
    rig.shadow = Some(spec);
}

pub(super) fn event_idx(rig: &Rig, slot: usize) -> u32 {
    let at = rig.host.page(EVENT_IDX).0 + 4 * slot as u64;
    rig.host.read_u32(Iova(at))
}

#[test]
fn the_shadow_drives_without_a_trapped_write() {
    let mut rig = rig(8, &[8]);
    for cid in 0..40 {
        assert_eq!(rig.run(read(cid)), Status::SUCCESSFUL_COMPLETION);
    }
    assert_eq!(rig.doorbells.load(sq_tail_slot(1)), 0);
}

#[test]
fn quirk_a_queue_whose_shadow_is_never_written_is_driven_by_the_register() {
    let mut rig = rig(16, &[8, 8]);
    for cid in 0..20 {
        // Queue 1 and the completion queue by the register, queue 2 by the shadow.
        let spec = rig.shadow.take();
        rig.submit(1, read(cid));
        rig.shadow = spec;
        rig.submit(2, read(cid));
        rig.turn();
        rig.shadow = None;
        assert_eq!(rig.completions().len(), 2);
        rig.shadow = spec;
    }
    assert_eq!(rig.events(), []);
}

#[test]
fn quirk_a_late_trapped_write_does_not_turn_a_queue_back() {
    let mut rig = rig(16, &[8]);
    // The host wrote 1 to the shadow and, asked to ring, to the register; the register's write is
    // still on its way when it goes on by the shadow alone.
    rig.submit(1, read(0));
    rig.turn();
    for cid in 1..4 {
        rig.submit(1, read(cid));
    }
    rig.turn();
    rig.doorbells.store(sq_tail_slot(1), 1);
    rig.lane.kick();
    assert!(!rig.is_idle());
    rig.turn();
    assert_eq!(rig.events(), [], "no frozen queue");
    rig.submit(1, read(4));
    rig.turn();
    assert_eq!(rig.completions().len(), 5);
    assert!(rig.is_idle());
}

#[test]
fn quirk_a_shadow_that_comes_round_to_its_first_value_still_counts() {
    // The shadow was registered at 0, and a late trapped write left 5 in the register; eight
    // commands later it is 0 again.
    let mut rig = rig(16, &[8]);
    for cid in 0..7 {
        assert_eq!(rig.run(read(cid)), Status::SUCCESSFUL_COMPLETION);
    }
    rig.doorbells.store(sq_tail_slot(1), 5);
    assert_eq!(rig.run(read(7)), Status::SUCCESSFUL_COMPLETION);
    assert!(rig.is_idle());
    assert_eq!(rig.turn().fetched, 0);
    assert_eq!(rig.events(), []);
}

#[test]
fn quirk_what_the_shadow_held_before_is_no_doorbell() {
    // A queue created again after a host let its shadow stand: 5 of the old queue is not a tail of
    // the new one.
    let mut rig = Rig::new(16, &[], Manner::Synchronous);
    let at = rig.host.page(SHADOW).0 + 4 * sq_tail_slot(1) as u64;
    rig.host.write_u32(Iova(at), 5);
    register(&mut rig);
    rig.add_queue(1, 16);
    assert_eq!(rig.turn().fetched, 0);
    assert!(rig.is_idle());
    assert_eq!(rig.run(read(1)), Status::SUCCESSFUL_COMPLETION);
    assert_eq!(rig.events(), []);
}

#[test]
fn a_lane_made_after_the_registration_uses_it() {
    let host = Host::new(PAGES);
    let mut rig = Rig::on(host, 16, &[], Manner::Synchronous);
    let mut made = config(&rig.host, &rig.doorbells, 16);
    let spec = spec(&rig.host);
    made.shadow = Some(Registration::new(&rig.host.view(), spec, 1).unwrap());
    rig.shadow = Some(spec);
    rig.lane = Lane::new(made).unwrap();
    rig.set_namespaces(vec![namespace(1, super::rig::MEDIUM_ID, 8)]);
    rig.add_queue(1, 16);
    assert_eq!(rig.run(read(1)), Status::SUCCESSFUL_COMPLETION);
}

#[test]
fn quirk_after_arming_a_second_look_finds_what_came_meanwhile() {
    let mut rig = rig(16, &[8, 8]);
    rig.run(read(0));
    assert!(rig.is_idle());
    // The host submits before it can see EventIdx, and so does not ring.
    rig.submit(2, read(1));
    rig.lane.arm();
    memory::full_fence();
    assert!(!rig.is_idle());
    rig.turn();
    rig.lane.arm();
    assert!(rig.is_idle());
}

#[test]
fn quirk_event_idx_is_written_only_when_armed_and_is_the_known_tail() {
    let mut rig = rig(16, &[8, 8]);
    for cid in 0..5 {
        rig.run(read(cid));
    }
    assert_eq!(event_idx(&rig, sq_tail_slot(1)), 0, "busy: not armed");
    rig.lane.arm();
    assert_eq!(event_idx(&rig, sq_tail_slot(1)), 5);
    assert_eq!(event_idx(&rig, sq_tail_slot(2)), 0);
    // One that the lane has not seen is not in it: the host rings for it.
    rig.submit(1, read(5));
    rig.lane.arm();
    assert_eq!(event_idx(&rig, sq_tail_slot(1)), 5);
    assert!(!rig.is_idle());
}

#[test]
fn quirk_event_idx_of_a_full_completion_queue_is_the_head_and_lags_the_tail() {
    let mut rig = rig(4, &[16]);
    let slot = cq_head_slot(CQID);
    for cid in 0..2 {
        rig.run(read(cid));
    }
    for cid in 0..9 {
        rig.store(1, read(cid));
    }
    rig.ring(1);
    rig.turn();
    assert_eq!(event_idx(&rig, slot), 0);
    rig.lane.arm();
    assert_eq!(event_idx(&rig, slot), 2, "three are posted behind head 2");
    assert!(rig.is_idle());
    // The host consumes one: that is what it was to ring for, and what a second look sees.
    assert!(rig.consume().is_some());
    rig.ring_head();
    assert!(!rig.is_idle());
    assert_eq!(rig.turn().fetched, 1);
    // With room, its EventIdx is left alone: no host need ring for a head.
    rig.completions();
    while rig.turn().fetched > 0 {
        rig.completions();
    }
    rig.lane.arm();
    assert_eq!(event_idx(&rig, slot), 2);
}

#[test]
fn quirk_the_hosts_shadow_is_never_written() {
    let mut rig = rig(4, &[16]);
    for cid in 0..30 {
        rig.run(read(cid));
        rig.lane.arm();
    }
    let page = rig.host.read(rig.host.page(SHADOW), 4096);
    let word = |slot: usize| u32::from_le_bytes(page[4 * slot..][..4].try_into().unwrap());
    let expected = [(sq_tail_slot(1), 30 % 16), (cq_head_slot(CQID), 30 % 4)];
    for slot in 0..1024 {
        let host = expected.iter().find(|(s, _)| *s == slot);
        assert_eq!(word(slot), host.map_or(0, |(_, value)| *value), "{slot}");
    }
}

#[test]
fn quirk_the_registration_ends_and_the_hosts_memory_is_left_alone() {
    let mut rig = rig(8, &[8]);
    rig.run(read(0));
    rig.lane.command(LaneCommand::Shadow(None));
    rig.doorbells.store(sq_tail_slot(1), 1);
    rig.doorbells.store(cq_head_slot(CQID), 1);
    rig.host.write(rig.host.page(SHADOW), &[0xFF; 4096]);
    rig.host.write(rig.host.page(EVENT_IDX), &[0xEE; 4096]);
    rig.shadow = None;
    for cid in 1..20 {
        assert_eq!(rig.run(read(cid)), Status::SUCCESSFUL_COMPLETION);
        rig.lane.arm();
    }
    assert_eq!(rig.events(), []);
    let page = rig.host.read(rig.host.page(EVENT_IDX), 4096);
    assert!(page.iter().all(|byte| *byte == 0xEE));
}

#[test]
fn a_shadow_that_vanishes_says_nothing_until_it_returns() {
    let mut host = Host::unmapped(PAGES);
    host.map_pages(0, SHADOW);
    host.map_pages(SHADOW, 2);
    host.map_pages(DATA, 64);
    let mut rig = Rig::on(host, 16, &[8], Manner::Synchronous);
    register(&mut rig);
    rig.run(read(0));
    rig.host.unmap_pages(SHADOW, 2);
    let epoch = rig.map_changed();
    rig.submit(1, read(1));
    assert_eq!(rig.turn().fetched, 0);
    assert!(!rig.is_idle(), "there is the acknowledgement to take");
    assert_eq!(rig.events(), [LaneEvent::Drained { epoch }]);
    rig.lane.arm();
    assert!(rig.is_idle());
    rig.host.map_pages(SHADOW, 2);
    rig.map_changed();
    assert_eq!(rig.turn().fetched, 1);
    assert_eq!(rig.completions().len(), 1);
}

#[test]
fn a_bad_value_in_the_shadow_freezes_too() {
    let mut rig = rig(8, &[8]);
    rig.set_doorbell(sq_tail_slot(1), 8);
    rig.turn();
    rig.turn();
    assert_eq!(rig.events().len(), 1);
}
