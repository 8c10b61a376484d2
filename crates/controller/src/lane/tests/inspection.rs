//! Looking at a lane, against what its host knows of its own commands.

use std::collections::{BTreeMap, BTreeSet};

use nvme_spec::Sqe;
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use port::testing::Manner;
use port::time::Time;
use proptest::prelude::*;

use super::held::Doorman;
use super::rig::{CQID, Rig, VECTOR, command, read};
use super::shadow::{event_idx, register};
use crate::inspect::{CommandView, CompletionView, Look, Place, SubmissionView};
use crate::lane::LaneCommand;
use crate::queue::BadDoorbell;

fn look(rig: &Rig, commands: usize, now: u64) -> CompletionView {
    let now = Time(now);
    rig.lane.inspect(&rig.channels, Look { now, commands })
}

/// One submission queue of it.
fn sq(view: &CompletionView, sqid: u16) -> &SubmissionView {
    let mut all = view.submission_queues.iter();
    all.find(|sq| sq.sqid == sqid).unwrap()
}

fn fused(flags: u8, opcode: u8, cid: u16) -> Sqe {
    Sqe {
        flags: flags.into(),
        ..command(opcode, cid)
    }
}

fn cids(commands: &[CommandView]) -> Vec<u16> {
    commands.iter().map(|command| command.cid).collect()
}

fn places(view: &CompletionView, sqid: u16) -> Vec<Place> {
    let commands = sq(view, sqid).commands.iter();
    commands.map(|command| command.place).collect()
}

#[test]
fn a_command_is_shown_as_its_entry_has_it_and_grows_old() {
    let mut rig = Rig::new(16, &[16], Manner::Hanging);
    let mut write = command(0x01, 7);
    (write.cdw10, write.cdw11, write.cdw12) = (40, 0, 1 << 30 | 1);
    rig.lane.note_time(Time(8192));
    rig.submit(1, write);
    rig.turn();
    rig.lane.note_time(Time(40_960));
    rig.submit(1, command(0x00, 8));
    rig.turn();
    let view = look(&rig, 16, 81_920);
    let [first, second] = &sq(&view, 1).commands[..] else {
        panic!("{view:?}");
    };
    let expected = CommandView {
        cid: 7,
        opcode: 1,
        name: "Write",
        nsid: 1,
        lba: Some(40),
        bytes: Some(1024),
        fua: true,
        place: Place::Medium,
        age_ns: Some(81_920 - 8192),
    };
    assert_eq!(*first, expected);
    assert_eq!(
        (second.name, second.lba, second.bytes, second.fua),
        ("Flush", None, None, false)
    );
    assert_eq!(second.age_ns, Some(40_960));
    assert_eq!((view.cqid, view.vector), (CQID, Some(VECTOR)));
    assert_eq!((view.head, view.tail, view.phase), (0, 0, true));
    assert_eq!((view.posted, view.reserved, view.given_up), (0, 2, 0));
    // a slot that is used again is as old as what it holds then
    rig.medium().release(2);
    rig.turn();
    assert_eq!(rig.completions().len(), 2);
    rig.lane.note_time(Time(1 << 20));
    rig.submit(1, read(9));
    rig.turn();
    let view = look(&rig, 16, (1 << 20) + 5000);
    assert_eq!(sq(&view, 1).commands[0].age_ns, Some(4096));
    assert_eq!(cids(&sq(&view, 1).commands), [9]);
}

#[test]
fn each_place_is_told() {
    let mut rig = Rig::new(8, &[16, 16], Manner::Hanging);
    rig.medium().capacity = 2;
    (0..3).for_each(|cid| rig.store(1, read(cid)));
    rig.ring(1);
    rig.turn();
    use Place::{Channel, Medium, Model, Pair, Ring, Steps, Subsystem};
    assert_eq!(places(&look(&rig, 9, 0), 1), [Medium, Medium, Channel]);
    rig.medium().keeps_time = true;
    assert_eq!(places(&look(&rig, 9, 0), 1), [Model, Model, Channel]);
    rig.medium().keeps_time = false;
    rig.medium().capacity = 99;
    // Verify, before its first step and at it; Reservation Report; two fused commands that find no
    // room
    rig.submit(2, command(0x0c, 20));
    rig.turn();
    assert_eq!(places(&look(&rig, 9, 0), 2), [Steps]);
    rig.turn();
    rig.submit(2, command(0x0e, 21));
    rig.lane.turn(&mut rig.channels);
    rig.medium().capacity = 0;
    rig.store(2, fused(0b01, 0x05, 22));
    rig.store(2, fused(0b10, 0x01, 23));
    rig.ring(2);
    rig.lane.turn(&mut rig.channels);
    let expected = [Steps, Subsystem, Pair, Pair];
    assert_eq!(places(&look(&rig, 9, 0), 2), expected);
    rig.medium().capacity = 99;
    rig.lane.turn(&mut rig.channels);
    assert_eq!(places(&look(&rig, 9, 0), 2)[2..], [Medium, Medium]);
    // seven places and no more: the last is in its ring
    rig.submit(1, read(30));
    rig.lane.turn(&mut rig.channels);
    let view = look(&rig, 9, 0);
    assert_eq!(places(&view, 1)[3..], [Ring]);
    assert_eq!(sq(&view, 1).commands[3].age_ns, None);
    assert_eq!((sq(&view, 1).waiting, sq(&view, 1).in_flight), (1, 3));
    let forward = rig.lane.take_forward().unwrap();
    forward.ticket.retire();
}

#[test]
fn what_waits_for_its_tenant_is_told() {
    let mut rig = Rig::new(16, &[16], Manner::Hanging);
    let mut doorman = Doorman::new(&[(1, 1)]);
    (0..3).for_each(|cid| rig.store(1, read(cid)));
    rig.ring(1);
    rig.turn_through(&mut doorman);
    let view = look(&rig, 9, 0);
    // With one namespace the commands behind the first deferred one stay in the ring.
    let expected = [Place::Medium, Place::Fairness, Place::Ring];
    assert_eq!(places(&view, 1), expected);
}

#[test]
fn of_128_commands_all_are_shown_or_the_oldest() {
    let mut rig = Rig::new(256, &[256], Manner::Hanging);
    for round in 0..3u16 {
        // the slots are used in another order each time
        for cid in 0..128 {
            let mut sqe = read(1000 * round + cid);
            sqe.cdw10 = cid.into();
            rig.store(1, sqe);
            if cid % 5 == 4 {
                rig.ring(1);
                rig.turn();
            }
        }
        rig.ring(1);
        rig.turn();
        let all: Vec<u16> = (0..128).map(|cid| 1000 * round + cid).collect();
        let view = look(&rig, 1024, 0);
        assert_eq!(cids(&sq(&view, 1).commands), all);
        for (lba, command) in (0..).zip(&sq(&view, 1).commands) {
            assert_eq!((command.lba, command.bytes), (Some(lba), Some(512)));
        }
        assert_eq!(cids(&sq(&look(&rig, 10, 0), 1).commands), all[..10]);
        let none = look(&rig, 0, 0);
        assert_eq!(sq(&none, 1).commands, []);
        assert_eq!((sq(&none, 1).in_flight, none.reserved), (128, 128));
        rig.medium().release(128);
        rig.turn();
        assert_eq!(rig.completions().len(), 128);
    }
}

#[test]
fn a_frozen_queue_tells_the_value_that_froze_it() {
    let mut rig = Rig::new(16, &[8, 8], Manner::Synchronous);
    rig.doorbells.store(sq_tail_slot(1), 999);
    rig.turn();
    rig.doorbells.store(sq_tail_slot(1), 5);
    let view = look(&rig, 9, 0);
    let bell = sq(&view, 1).bell;
    // what froze it stays, and what stands there now is shown beside
    assert_eq!(bell.frozen, Some(BadDoorbell { value: 999 }));
    assert_eq!((bell.doorbell, sq(&view, 1).tail), (5, 0));
    assert_eq!(sq(&view, 2).bell.frozen, None);
    assert_eq!(view.bell.frozen, None);
    rig.doorbells.store(cq_head_slot(CQID), 3);
    rig.turn();
    let bell = look(&rig, 9, 0).bell;
    assert_eq!(bell.frozen, Some(BadDoorbell { value: 3 }));
}

#[test]
fn shadows_and_event_indices_are_those_that_the_host_has() {
    let mut rig = Rig::new(16, &[8], Manner::Synchronous);
    let plain = look(&rig, 9, 0);
    let bells = [plain.bell, sq(&plain, 1).bell];
    let none = (None, None);
    assert_eq!(bells.map(|bell| (bell.shadow, bell.event_idx)), [none; 2]);
    register(&mut rig);
    (0..3).for_each(|cid| assert!(rig.run(read(cid)).is_success()));
    rig.lane.arm();
    rig.submit(1, read(3));
    let view = look(&rig, 9, 0);
    let bell = sq(&view, 1).bell;
    // submitted up to 4, looked at up to 3, and to be told from there on
    assert_eq!((bell.shadow, bell.event_idx), (Some(4), Some(3)));
    assert_eq!(event_idx(&rig, sq_tail_slot(1)), 3);
    assert_eq!((bell.doorbell, sq(&view, 1).tail), (0, 3));
    assert_eq!(view.bell.shadow, Some(3));
}

#[test]
fn what_was_given_up_is_counted_and_not_shown() {
    let mut rig = Rig::new(16, &[16], Manner::Hanging);
    (0..4).for_each(|cid| rig.store(1, read(cid)));
    rig.ring(1);
    rig.turn();
    rig.lane.command(LaneCommand::AbandonAll);
    rig.submit(1, read(9));
    rig.turn();
    let view = look(&rig, 9, 0);
    assert_eq!((view.given_up, view.posted), (4, 4));
    assert_eq!(cids(&sq(&view, 1).commands), [9]);
    assert_eq!(sq(&view, 1).in_flight, 1);
    rig.lane.command(LaneCommand::Stop);
    assert!(look(&rig, 9, 0).is_stopped);
}

#[test]
fn commands_in_flight_are_counted_for_whoever_does_not_ask_the_lane() {
    let mut rig = Rig::new(32, &[32], Manner::Hanging);
    let in_flight = |rig: &Rig| {
        let counters = rig.lane.counters();
        counters.fetched.get() - counters.completions.get()
    };
    (0..9).for_each(|cid| rig.store(1, read(cid)));
    rig.store(1, command(0x0c, 9));
    rig.ring(1);
    rig.turn();
    assert_eq!(in_flight(&rig), 10);
    // the second of two fused commands is fetched with the first
    rig.store(1, fused(0b01, 0x05, 10));
    rig.store(1, fused(0b10, 0x01, 11));
    rig.ring(1);
    rig.turn();
    assert_eq!(in_flight(&rig), 12);
    // also where both wait
    rig.medium().capacity = 0;
    rig.store(1, fused(0b01, 0x05, 12));
    rig.store(1, fused(0b10, 0x01, 13));
    rig.ring(1);
    rig.turn();
    assert_eq!(in_flight(&rig), 14);
    rig.medium().capacity = usize::MAX;
    while in_flight(&rig) > 0 {
        rig.medium().release(3);
        rig.turn();
        rig.completions();
    }
    assert_eq!(rig.lane.counters().completions.get(), 14);
}

/// Actions of a host.
#[derive(Clone, Debug)]
enum Act {
    Submit(u16, u8),
    Ring(u16),
    Turn,
    Release(usize),
    Consume,
}

fn act() -> impl Strategy<Value = Act> {
    let opcode = prop::sample::select(vec![0u8, 1, 2, 2, 2, 5, 8, 0x0c]);
    prop_oneof![
        8 => (1u16..=3, opcode).prop_map(|(sqid, opcode)| Act::Submit(sqid, opcode)),
        3 => (1u16..=3).prop_map(Act::Ring),
        4 => Just(Act::Turn),
        2 => (0usize..6).prop_map(Act::Release),
        2 => Just(Act::Consume),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// After every turn: what is shown is what the host has rung for and found no completion of.
    #[test]
    fn what_is_shown_is_what_was_submitted_and_has_not_completed(
        acts in prop::collection::vec(act(), 1..120),
        capacity in 1usize..20,
    ) {
        let mut rig = Rig::new(24, &[8, 16, 32], Manner::Hanging);
        rig.medium().capacity = capacity;
        let mut stored: BTreeMap<u16, BTreeMap<u16, u8>> = BTreeMap::new();
        let mut rung: BTreeMap<u16, BTreeMap<u16, u8>> = BTreeMap::new();
        let mut next = 0;
        for act in acts {
            match act {
                Act::Submit(sqid, opcode) if rig.room(sqid) > 0 => {
                    next += 1;
                    rig.store(sqid, command(opcode, next));
                    stored.entry(sqid).or_default().insert(next, opcode);
                }
                Act::Submit(..) => {}
                Act::Ring(sqid) => {
                    rig.ring(sqid);
                    let new = stored.remove(&sqid).unwrap_or_default();
                    rung.entry(sqid).or_default().extend(new);
                }
                Act::Turn => {
                    rig.turn();
                }
                Act::Release(count) => rig.medium().release(count),
                Act::Consume => {
                    for done in rig.completions() {
                        rung.get_mut(&done.sq_id).unwrap().remove(&done.cid);
                    }
                }
            }
            rig.turn();
            let view = look(&rig, 1024, 0);
            // completions that stand in the ring are the host's already
            let (head, posted) = (rig.cq_head, view.posted);
            let mut posted_cids = BTreeSet::new();
            for at in 0..posted {
                let at = (head + at) % rig.cq_entries;
                let at = rig.host.page(0).0 + u64::from(at) * 16 + 12;
                let word = rig.host.read_u32(memory::Iova(at));
                posted_cids.insert(word as u16);
            }
            let mut in_flight = 0;
            for sq in &view.submission_queues {
                let mut expected = rung.get(&sq.sqid).cloned().unwrap_or_default();
                expected.retain(|cid, _| !posted_cids.contains(cid));
                let shown: BTreeMap<_, _> = sq.commands.iter().map(|c| (c.cid, c.opcode)).collect();
                prop_assert_eq!(&shown, &expected);
                prop_assert_eq!(sq.commands.len(), expected.len());
                prop_assert_eq!((sq.waiting + sq.in_flight) as usize, expected.len());
                in_flight += sq.in_flight;
                // what was fetched is older than what was not
                let fetched = sq.commands.iter().take(sq.in_flight as usize);
                prop_assert!(fetched.clone().all(|c| c.place != Place::Ring));
                let order: Vec<_> = fetched.map(|c| c.cid).collect();
                prop_assert!(order.is_sorted(), "{:?}", order);
            }
            prop_assert_eq!(view.reserved, in_flight);
            prop_assert_eq!(view.given_up, 0);
        }
    }

    /// Entries of any bytes are shown, whatever they say.
    #[test]
    fn any_entry_can_be_shown(entries in prop::collection::vec(prop::array::uniform8(any::<u64>()), 1..14)) {
        let mut rig = Rig::new(4, &[16], Manner::Hanging);
        for words in &entries {
            rig.store(1, Sqe::from_words(*words));
        }
        rig.ring(1);
        for _ in 0..3 {
            let view = look(&rig, 1024, u64::MAX);
            let shown = &sq(&view, 1).commands;
            prop_assert!(shown.len() <= entries.len());
            rig.turn();
        }
    }
}
