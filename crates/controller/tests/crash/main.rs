//! A lane whose process dies at each store of a script, and once more while it goes on: the lane
//! that continues from its area completes each command once, with the command's own status.
//!
//! The host looks at its completion queue after an interrupt only, so that a lost one shows, and
//! counts its submissions itself. The data that a command reads and leaves is compared with the
//! data that the host wrote.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

mod world;

use std::collections::BTreeSet;

use controller::crash::{self, Death};
use controller::lane::{LaneCommand, LaneEvent};
use controller::state::{QueueState, area_bytes, slots_for};
use nvme_spec::{Sqe, Status};
use port::testing::{Host, Manner};
use port::{Channel as _, ChannelId};

use self::world::{Act, BLOCK, CQ, DATA, Ends, PAIR, Poison, World};

const READ: u8 = 0x02;
const WRITE: u8 = 0x01;
const FLUSH: u8 = 0x00;
const COMPARE: u8 = 0x05;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;
const VERIFY: u8 = 0x0C;
const COPY: u8 = 0x19;
const WRITE_UNCORRECTABLE: u8 = 0x04;
const RESERVATION_REGISTER: u8 = 0x0D;
const RESERVATION_REPORT: u8 = 0x0E;
const RESERVATION_ACQUIRE: u8 = 0x11;
const RESERVATION_RELEASE: u8 = 0x15;
const FIRST: u8 = 0b01;
const SECOND: u8 = 0b10;

const OK: Ends = Ends::With(Status::SUCCESSFUL_COMPLETION);

/// A command with its data in the page that its identifier names.
fn command(opcode: u8, cid: u16, slba: u64, blocks: u32) -> Sqe {
    let page = Host::BASE + (DATA + u64::from(cid)) * 4096;
    Sqe {
        opcode,
        cid,
        nsid: 1,
        prp1: page,
        prp2: if blocks > 8 { page + 4096 } else { 0 },
        cdw10: slba as u32,
        cdw12: blocks - 1,
        ..Sqe::default()
    }
}

/// Bytes that no two commands share.
fn bytes(of: u16, blocks: u32) -> Vec<u8> {
    let bytes = 0..BLOCK as u32 * blocks;
    bytes
        .map(|at| (at * 7 + at / 251 + u32::from(of) * 31) as u8)
        .collect()
}

/// The host's memory of the script, and what it does: every kind of command and of end, more of
/// them than either ring has entries. The commands of one step do not depend on each other.
fn script(host: &Host) -> Vec<Act> {
    let page = |cid: u16| host.page(DATA + u64::from(cid));
    let fill = |cid, of, blocks| host.write(page(cid), &bytes(of, blocks));
    let mut script = Vec::new();

    let mut writes = Vec::new();
    for cid in 1..=12_u16 {
        let blocks = [1, 8, 9, 2][usize::from(cid) % 4];
        // A command of 9 blocks has a second page.
        let cid = 2 * cid;
        fill(cid, cid, blocks);
        let sqe = command(WRITE, cid, 16 * u64::from(cid), blocks);
        writes.push((1 + cid / 2 % 2, sqe, OK));
    }
    let written = writes.clone();
    writes.insert(3, (1, command(FLUSH, 40, 0, 1), OK));
    let invalid = Ends::With(Status::INVALID_COMMAND_OPCODE);
    writes.insert(5, (2, command(0x7F, 41, 0, 1), invalid));
    let outside = Ends::With(Status::LBA_OUT_OF_RANGE);
    writes.insert(8, (1, command(READ, 42, 1 << 20, 1), outside));
    writes.push((2, command(WRITE_ZEROES, 43, 1000, 4), OK));
    let absent = Sqe {
        nsid: 9,
        ..command(WRITE, 44, 0, 1)
    };
    let no_namespace = Ends::With(Status::INVALID_FIELD_IN_COMMAND);
    writes.push((2, absent, no_namespace));
    script.push(Act::Run(writes));

    let mut reads = Vec::new();
    for (at, (sqid, sqe, _)) in (0..).zip(&written) {
        let (slba, blocks) = (u64::from(sqe.cdw10), sqe.cdw12 + 1);
        let cid = 50 + 2 * at;
        reads.push((*sqid, command(READ, cid, slba, blocks), OK));
    }
    fill(80, 2, 1);
    reads.insert(2, (1, command(COMPARE, 80, 32, 1), OK));
    fill(81, 3, 1);
    let differs = Ends::With(Status::COMPARE_FAILURE);
    reads.insert(4, (2, command(COMPARE, 81, 32, 1), differs));
    reads.insert(6, (2, command(VERIFY, 82, 32, 9), OK));
    // 13 blocks from two places to 1200, and 4 from 1100 to 1102
    let copies = |cid, to: u64, from: &[(u64, u16)]| {
        let mut list = Vec::new();
        for (slba, blocks) in from {
            let mut entry = [0; 32];
            entry[8..16].copy_from_slice(&slba.to_le_bytes());
            entry[16..18].copy_from_slice(&(blocks - 1).to_le_bytes());
            list.extend(entry);
        }
        host.write(page(cid), &list);
        command(COPY, cid, to, from.len() as u32)
    };
    reads.insert(7, (1, copies(83, 1200, &[(32, 1), (64, 2)]), OK));
    let overlaps = Ends::Or(Status::SUCCESSFUL_COMPLETION);
    reads.insert(9, (2, copies(84, 1102, &[(1100, 4)]), overlaps));
    host.write(page(85), &[0; 16]);
    reads.push((1, command(DATASET_MANAGEMENT, 85, 0, 1), OK));
    let fused = |fuse: u8, opcode, cid| Sqe {
        flags: fuse.into(),
        ..command(opcode, cid, 1300, 1)
    };
    host.write(page(PAIR), &[0; BLOCK]);
    fill(87, 87, 1);
    let pair = Ends::Or(Status::SUCCESSFUL_COMPLETION);
    reads.push((2, fused(FIRST, COMPARE, PAIR), pair));
    reads.push((2, fused(SECOND, WRITE, 87), pair));
    let missing = Ends::Or(Status::ABORTED_MISSING_FUSED);
    reads.push((1, fused(FIRST, COMPARE, 88), missing));
    reads.push((1, command(READ, 89, 32, 1), OK));
    script.push(Act::Run(reads));

    for (at, (_, sqe, _)) in (0..).zip(&written) {
        let data = bytes(sqe.cid, sqe.cdw12 + 1);
        script.push(Act::Expect(u64::from(sqe.cdw10), data.clone()));
        script.push(Act::Read(DATA + 50 + 2 * at, data));
    }
    script.push(Act::Read(DATA + 89, bytes(2, 1)));
    script.push(Act::Expect(1200, bytes(2, 1)));

    fill(90, 90, 1);
    script.push(Act::DeleteUnder(2, command(WRITE, 90, 1400, 1)));
    script.push(Act::Create(2));
    fill(92, 92, 9);
    let again = vec![
        (2, command(WRITE, 92, 1500, 9), OK),
        (1, command(READ, 94, 32, 1), OK),
    ];
    script.push(Act::Run(again));
    script.push(Act::Expect(1500, bytes(92, 9)));
    script.push(Act::Read(DATA + 94, bytes(2, 1)));
    script.extend(reservations(host));
    script
}

/// Commands that the subsystem executes: a second execution of most of them fails.
fn reservations(host: &Host) -> impl Iterator<Item = Act> {
    let conflict = Ends::With(Status::RESERVATION_CONFLICT);
    let keyed = |cid: u16, opcode, cdw10, keys: [u64; 2], ends| {
        let keys = keys.map(u64::to_le_bytes).concat();
        host.write(host.page(DATA + u64::from(cid)), &keys);
        let sqe = Sqe {
            cdw10,
            cdw12: 0,
            ..command(opcode, cid, 0, 1)
        };
        Act::Run(vec![(2, sqe, ends)])
    };
    let whole = Sqe {
        cdw10: 1023,
        cdw12: 0,
        ..command(RESERVATION_REPORT, 106, 0, 1)
    };
    let reading = vec![
        (1, whole, OK),
        (2, command(WRITE_UNCORRECTABLE, 107, 1600, 8), OK),
        (1, command(READ, 108, 32, 1), OK),
    ];
    let script = [
        keyed(100, RESERVATION_REGISTER, 0, [0, 5], OK),
        keyed(101, RESERVATION_ACQUIRE, 1 << 8, [5, 0], OK),
        keyed(102, RESERVATION_REGISTER, 2, [5, 6], OK),
        keyed(103, RESERVATION_REGISTER, 2, [5, 6], conflict),
        keyed(104, RESERVATION_RELEASE, 1 << 8, [6, 0], OK),
        keyed(105, RESERVATION_ACQUIRE, 2 << 8, [6, 0], OK),
        Act::Run(reading),
        keyed(109, RESERVATION_REGISTER, 1, [6, 0], OK),
        keyed(110, RESERVATION_REGISTER, 1, [6, 0], conflict),
    ];
    script.into_iter()
}

/// Plays the script to its end, through a death at each of the points; how many the last process
/// has passed.
fn play(manner: Manner, with_shadow: bool, points: &[u64]) -> Option<u64> {
    let mut world = World::new(manner, with_shadow);
    let script = script(&world.host);
    for point in points {
        match crash::run(*point, || world.play(&script)) {
            Err(Death) => world.revive(),
            // It has ended before it could die.
            Ok(_) => return None,
        }
    }
    let (_, passed) = crash::run(u64::MAX, || world.play(&script)).expect("it dies no more");
    all_have_ended(&mut world, &script);
    Some(passed)
}

fn all_have_ended(world: &mut World, script: &[Act]) {
    // Its queue was deleted.
    let found = world.bytes_at(1400, BLOCK);
    let whole = [vec![0; BLOCK], bytes(90, 1)];
    assert!(whole.contains(&found), "half of a block");
    let commands = script.iter().map(|act| match act {
        Act::Run(commands) => commands.len(),
        _ => 0,
    });
    let ended = world.ended.iter().filter(|cid| **cid != 90).count();
    assert_eq!(ended, commands.sum::<usize>());
    assert!(world.interrupted.len() <= 4, "{:?}", world.interrupted);
    // The generation counts each registration that has changed something.
    let namespace = world.subsystem.directory().get(1).expect("it is there");
    let reservation = format!("{:?}", namespace.reservation);
    assert!(reservation.contains("generation: 3"), "{reservation}");
}

const WAYS: [(Manner, bool); 4] = [
    (Manner::Synchronous, false),
    (Manner::Synchronous, true),
    (Manner::Asynchronous, false),
    (Manner::Asynchronous, true),
];

#[test]
fn every_command_completes_once_wherever_the_process_dies() {
    for (manner, with_shadow) in WAYS {
        let count = play(manner, with_shadow, &[]).expect("it plays");
        assert!(count > 300, "{count} points");
        for point in 0..count {
            assert!(play(manner, with_shadow, &[point]).is_some());
        }
    }
}

/// State that a process of version 4 left at the point [`VERSION_4_POINT`] of the script, with
/// [`Manner::Asynchronous`] and doorbell buffers: commands at a medium, between two steps, and
/// fetched.
const VERSION_4: &[u8] = include_bytes!("version-4.state");
const VERSION_4_POINT: u64 = 200;

#[test]
fn a_process_continues_what_the_version_before_it_left() {
    let mut world = World::new(Manner::Asynchronous, true);
    let script = script(&world.host);
    let died = crash::run(VERSION_4_POINT, || world.play(&script));
    assert_eq!(died, Err(Death));
    // The same script, so that only the version and the ticks of this machine's clock differ.
    let now = world.file_bytes(VERSION_4.len());
    assert_eq!(VERSION_4[12..16], 4_u32.to_le_bytes());
    assert_eq!(now[..12], VERSION_4[..12]);
    assert_eq!(now[16..4096], VERSION_4[16..4096]);
    world.replace_file(VERSION_4);
    // Bit 15 of a slot's marks was the highest bit of a sample's number.
    let marks = 4096 + size_of::<QueueState>() + 100;
    let mut sampled = VERSION_4.to_vec();
    sampled[marks + 1] |= 0x80;
    world.replace_file(&sampled);
    world.revive();
    assert_eq!(world.file_bytes(VERSION_4.len())[marks + 1] & 0x80, 0);
    crash::run(u64::MAX, || world.play(&script)).expect("it dies no more");
    all_have_ended(&mut world, &script);
}

/// Commands that are outstanding together, with one among them that ends the process; how each of
/// the others ended, and how often the process died.
fn with_poison(
    poison: Poison,
    manner: Manner,
    crashed: bool,
) -> (Option<Status>, Vec<Status>, u32) {
    let mut world = World::new(manner, false);
    world.poison = Some(poison);
    world.channels.get_mut(ChannelId(0)).unwrap().poison = Some(poison);
    let commands = (1..=6_u16).map(|cid| {
        let sqid = 1 + cid % 2;
        let sqe = command(WRITE, 2 * cid, 16 * u64::from(cid), 1);
        (sqid, sqe, Ends::Any)
    });
    let script = [Act::Run(commands.collect())];
    while world.deaths < 6 && crash::run(u64::MAX, || world.play(&script)) == Err(Death) {
        world.revive_after(crashed);
    }
    let mut others = world.statuses;
    (
        others.remove(&(2 * POISON)),
        others.into_values().collect(),
        world.deaths,
    )
}

/// The number of the poisoned one of six commands, and the byte at which it begins.
const POISON: u16 = 3;
const POISONED: u64 = 16 * POISON as u64 * BLOCK as u64;

#[test]
fn a_command_that_ends_the_process_twice_ends_with_an_error_and_no_other_does() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let (its, others, deaths) = with_poison(Poison::AtOnce(POISONED), manner, true);
        assert_eq!((its, deaths), (Some(Status::INTERNAL_ERROR), 2));
        assert_eq!(others, [Status::SUCCESSFUL_COMPLETION; 5]);
    }
}

#[test]
fn where_nothing_tells_which_command_it_was_all_that_were_in_flight_twice_are_interrupted() {
    let poison = Poison::Later(POISONED);
    let (its, others, deaths) = with_poison(poison, Manner::Asynchronous, true);
    assert_eq!((its, deaths), (Some(Status::COMMAND_INTERRUPTED), 2));
    let interrupted = |status: &&Status| **status == Status::COMMAND_INTERRUPTED;
    let count = others.iter().filter(interrupted).count();
    assert!((1..5).contains(&count), "{others:?}");
}

#[test]
fn a_process_that_others_end_accuses_no_command() {
    let poison = Poison::AtOnce(POISONED);
    let (its, _, deaths) = with_poison(poison, Manner::Asynchronous, false);
    assert_eq!((its, deaths), (None, 6));
}

#[test]
fn a_write_that_a_reset_has_ended_leaves_no_half_of_a_block() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        for point in 0.. {
            let mut world = World::new(manner, false);
            world.host.write(world.host.page(DATA + 2), &bytes(2, 1));
            let write = command(WRITE, 2, 16, 1);
            let mut died = crash::run(point, || world.stop_under(1, write)).is_err();
            if !died {
                assert!(point > 8, "{point} points");
                break;
            }
            // A second death, wherever that is.
            for second in [3, 6, u64::MAX] {
                world.revive();
                died = crash::run(second, || world.stop_under(1, write)).is_err();
                if !died {
                    break;
                }
            }
            assert!(!died, "it has stopped");
            let found = world.bytes_at(16, BLOCK);
            let whole = [vec![0; BLOCK], bytes(2, 1)];
            assert!(whole.contains(&found), "half of a block, after {point}");
        }
    }
}

#[test]
fn a_write_that_a_deletion_ends_leaves_no_half_of_a_block() {
    // After deaths at these points; false where it has ended before.
    let play = |points: &[u64]| {
        let mut world = World::new(Manner::Asynchronous, false);
        world.host.write(world.host.page(DATA + 90), &bytes(90, 1));
        let script = [Act::DeleteUnder(2, command(WRITE, 90, 1400, 1))];
        for point in points {
            if crash::run(*point, || world.play(&script)).is_ok() {
                return false;
            }
            world.revive();
        }
        crash::run(u64::MAX, || world.play(&script)).expect("it dies no more");
        let found = world.bytes_at(1400, BLOCK);
        let whole = [vec![0; BLOCK], bytes(90, 1)];
        assert!(whole.contains(&found), "half of a block, after {points:?}");
        true
    };
    let points = (0..).take_while(|point| play(&[*point])).count() as u64;
    assert!(points > 12, "{points} points");
    for point in 0..points {
        // The deletion is saved before the second one.
        (0..).find(|second| !play(&[point, *second]));
    }
}

#[test]
fn nothing_is_fetched_before_the_release() {
    let mut world = World::new(Manner::Asynchronous, false);
    let script = script(&world.host);
    assert_eq!(crash::run(40, || world.play(&script)), Err(Death));
    world.revive();
    let fetched = |world: &mut World| world.lane().counters().fetched.get();
    let mut lane = world.lane.take().unwrap();
    let mut done = Vec::new();
    let mut replayed = false;
    for _ in 0..20 {
        lane.turn(&mut world.channels);
        world
            .channels
            .get_mut(ChannelId(0))
            .unwrap()
            .reap(&mut done);
        done.drain(..)
            .for_each(|one| lane.complete(one.ticket, one.outcome));
        replayed |= std::iter::from_fn(|| lane.take_event())
            .any(|e| matches!(e, LaneEvent::Replayed { .. }));
    }
    world.lane = Some(lane);
    assert!(replayed);
    assert_eq!(fetched(&mut world), 0, "the host has submitted more");
    world.lane().command(LaneCommand::Release);
    world.consume();
    world.turn();
    assert!(fetched(&mut world) > 0);
}

mod slow {
    use super::*;

    #[test]
    fn a_second_death_while_it_goes_on_changes_nothing() {
        for (manner, with_shadow) in WAYS {
            let count = play(manner, with_shadow, &[]).expect("it plays");
            for point in (0..count).step_by(7) {
                for second in [0, 1, 2, 3, 5, 8, 13, 21] {
                    play(manner, with_shadow, &[point, second]);
                }
            }
        }
    }

    #[test]
    fn a_damaged_area_is_refused_or_goes_on() {
        let mut refused = BTreeSet::new();
        let mut gone_on = 0;
        // The completion queue, both submission queues, and the first slots.
        let queues = (0..128).chain(area_bytes(CQ) as u64 - 128 * slots_for(CQ) as u64..);
        for at in queues.take(128 + 10 * 128) {
            for bytes in [[0xFF, 0xFF], [7, 0x80]] {
                let mut world = World::new(Manner::Asynchronous, false);
                let script = script(&world.host);
                // It dies with commands in every state.
                let died = crash::run(150, || world.play(&script));
                assert_eq!(died, Err(Death));
                match world.revive_damaged(at, bytes) {
                    Ok(()) => gone_on += 1,
                    Err(error) => drop(refused.insert(error.to_string())),
                }
            }
        }
        assert!(gone_on > 500, "{gone_on}");
        assert!(refused.len() >= 8, "{refused:#?}");
    }
}
