//! Attempts of a hostile host, one by one: the drive hears of none of it, and the other host goes
//! on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tests_hostile::{BLOCK, Lie, PAGE, PARTS, Tenant, Witness, Words, World, command};

const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const COMPARE: u8 = 0x05;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;
const VERIFY: u8 = 0x0c;
const COPY: u8 = 0x19;

/// Statuses (Base 2.1, 4.2.3.1; NVM 1.1, 3.1).
const INVALID_FIELD: u16 = 0x002;
const INVALID_NAMESPACE: u16 = 0x00b;
const LBA_OUT_OF_RANGE: u16 = 0x080;

/// Blocks of the hostile host's part.
const BLOCKS: u64 = (PARTS[0].end - PARTS[0].start) / BLOCK;

fn world() -> World {
    World::new(Witness::default()).expect("the drive is as it should be")
}

/// The hostile host's command ends with an error; that.
fn refused(world: &mut World, words: Words) -> u16 {
    let before = world.witness.commands();
    let status = world.run(Tenant::Hostile, words).expect("it ends").status;
    assert_ne!(status, 0, "{words:x?}");
    assert_eq!(world.witness.commands(), before, "{words:x?}");
    status
}

#[test]
fn both_hosts_use_their_parts() {
    let mut world = world();
    assert!(world.witness.commands() > 3);
    assert!(world.witness.reaches() >= 8 << 20, "data goes directly");
    let pages = [0, 1].map(|page| world.hosts[0].page(page));
    for lba in [0, BLOCKS - 16] {
        world.hosts[0].poke(pages[0], &[9; 8192]);
        let written = world.run(Tenant::Hostile, command(WRITE, lba, 16, pages));
        assert_eq!(written.expect("it ends").status, 0);
        let at = PARTS[0].start + lba * BLOCK;
        assert_eq!(world.witness.bytes(at..at + 8192), [9; 8192]);
    }
    world.honest();
    world.check();
}

#[test]
fn blocks_past_its_end() {
    let mut world = world();
    let page = world.hosts[0].page(0);
    let other = (PARTS[1].start - PARTS[0].start) / BLOCK;
    // Its first byte on the drive less that many is the drive's first.
    let before = (PARTS[0].start / BLOCK).wrapping_neg();
    for (lba, blocks) in [
        (BLOCKS, 1),
        (BLOCKS - 1, 2),
        (BLOCKS - 8, 9),
        (0, 0x1_0000),
        (other, 1),
        (u64::MAX, 1),
        (u64::MAX - 7, 8),
        (u64::MAX - 7, 16),
        (before, 1),
        (before >> 9, 1),
        // As bytes, these wrap to the part's start, and to the drive's.
        (1 << 55, 1),
        ((1 << 55) - PARTS[0].start / BLOCK, 1),
        (1 << 63, 8),
    ] {
        for opcode in [READ, WRITE, COMPARE, WRITE_ZEROES, VERIFY] {
            let status = refused(&mut world, command(opcode, lba, blocks, [page, 0]));
            // The length may be rejected first.
            let is_long = blocks == 0x1_0000;
            assert!(
                status == LBA_OUT_OF_RANGE || is_long,
                "{lba:#x} {status:#x}"
            );
        }
        // Deallocation is a wish: whatever its answer, the drive is not asked.
        let commands = world.witness.commands();
        world.hosts[0].poke(page + 4, &blocks.to_le_bytes());
        world.hosts[0].poke(page + 8, &lba.to_le_bytes());
        let mut words = command(DATASET_MANAGEMENT, 0, 1, [page, 0]);
        words[5] = 4 << 32;
        world.run(Tenant::Hostile, words).expect("it ends");
        assert_eq!(world.witness.commands(), commands, "{blocks} at {lba:#x}");
        // Copy, of these blocks to its own first.
        let mut descriptor = [0; 32];
        descriptor[8..16].copy_from_slice(&lba.to_le_bytes());
        descriptor[16..18].copy_from_slice(&(blocks as u16).wrapping_sub(1).to_le_bytes());
        world.hosts[0].poke(page, &descriptor);
        refused(&mut world, command(COPY, 0, 1, [page, 0]));
        world.honest();
    }
    world.check();
}

#[test]
fn namespaces_of_others() {
    let mut world = world();
    let page = world.hosts[0].page(0);
    for nsid in [0, 2, 3, 0x8000_0001, 0xffff_fffe, 0xffff_ffff] {
        for opcode in [
            READ,
            WRITE,
            COMPARE,
            WRITE_ZEROES,
            DATASET_MANAGEMENT,
            VERIFY,
        ] {
            let mut words = command(opcode, 0, 1, [page, 0]);
            words[0] = nsid << 32 | u64::from(opcode);
            let status = refused(&mut world, words);
            // Of the four that there may be, those that are not active (Base 2.1, 3.2.1.4 and
            // 3.2.1.5).
            let expected = match nsid {
                2 | 3 => INVALID_FIELD,
                _ => INVALID_NAMESPACE,
            };
            assert_eq!(status, expected, "{opcode:#x} of {nsid:#x}");
        }
    }
    world.honest();
    world.check();
}

/// Addresses that are not the hostile host's to use: its read-only memory, what it has not mapped,
/// the other host's, the windows and the driver's memory on the drive's bus, and what goes round
/// the end of all addresses.
fn not_its_own(world: &World) -> Vec<u64> {
    let [hostile, honest] = &world.hosts;
    let windows = world.witness.windows();
    let bus = windows
        .iter()
        .flat_map(|(base, len, _)| [*base, base + len - PAGE]);
    let others = [
        honest.page(0),
        honest.base,
        u64::MAX - 4095,
        u64::MAX - 3,
        0,
    ];
    let all = hostile.forbidden().into_iter().chain(others).chain(bus);
    all.collect()
}

#[test]
fn pointers_to_what_is_not_its_own() {
    let mut world = world();
    let page = |world: &World, number| world.hosts[0].page(number);
    let (own, list) = (page(&world, 0), page(&world, 8));
    for address in not_its_own(&world) {
        for first in [
            address,
            address.wrapping_add(PAGE - 512),
            address.wrapping_add(4),
        ] {
            refused(&mut world, command(READ, 0, 8, [first, own]));
        }
        refused(&mut world, command(READ, 0, 16, [own, address]));
        // In a list, at its first, its last, and the place behind which the next list is.
        for place in [0u64, 1, 2] {
            for number in 0..3 {
                let entry = if number == place {
                    address
                } else {
                    page(&world, number + 1)
                };
                world.hosts[0].poke(list + number * 8, &entry.to_le_bytes());
            }
            refused(&mut world, command(READ, 0, 32, [own, list]));
        }
        // A list that is not its own, or begins at the end of its own page.
        if address != world.hosts[0].forbidden()[0] {
            refused(&mut world, command(READ, 0, 32, [own, address]));
            world.hosts[0].poke(list + PAGE - 8, &address.to_le_bytes());
            refused(&mut world, command(READ, 0, 32, [own, list + PAGE - 8]));
        }
    }
    // An SGL of one Data Block descriptor: its address, its length, type 0.
    for address in not_its_own(&world) {
        let mut words = command(READ, 0, 8, [address, 4096]);
        words[0] |= 1 << 14;
        refused(&mut world, words);
    }
    world.honest();
    world.check();
}

#[test]
fn lists_rewritten_while_the_drive_has_the_command() {
    let mut world = world();
    let (list, own) = (world.hosts[0].page(8), world.hosts[0].page(0));
    let others = not_its_own(&world);
    for turns in 0..6 {
        for number in 0..4u64 {
            let page = world.hosts[0].page(number);
            world.hosts[0].poke(page, &[turns as u8 + 1; PAGE as usize]);
        }
        for number in 1..4u64 {
            let entry = world.hosts[0].page(number);
            world.hosts[0].poke(list + (number - 1) * 8, &entry.to_le_bytes());
        }
        world.witness.lie(Some(Lie::Hangs));
        let host = world.host(Tenant::Hostile);
        host.put(1, turns, command(WRITE, 0, 32, [own, list]));
        host.ring(1);
        world.turns(turns.into());
        let before = world.witness.commands();
        for (place, address) in (0..).zip(others.iter().take(32)) {
            world.hosts[0].poke(list + place * 8, &address.to_le_bytes());
        }
        world.witness.lie(None);
        world.turns(20);
        let done = world.host(Tenant::Hostile).reap(1);
        assert_eq!(done.len(), 1);
        // As it was, where it was read in time; else refused, and the drive has heard nothing.
        match done[0].status {
            0 => {
                let at = PARTS[0].start;
                let found = world.witness.bytes(at..at + 4 * PAGE);
                assert!(found == vec![turns as u8 + 1; 4 * PAGE as usize]);
            }
            _ => assert_eq!(world.witness.commands(), before),
        }
        world.honest();
    }
    world.check();
}

/// Ends a thread however its scope ends.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn lists_and_entries_rewritten_all_the_time() {
    let mut world = world();
    let (list, own) = (world.hosts[0].page(8), world.hosts[0].page(0));
    let others = not_its_own(&world);
    let good: Vec<u64> = (1..4).map(|number| world.hosts[0].page(number)).collect();
    let (meddler, entries) = (world.hosts[0].meddler(), world.hosts[0].sq(1));
    let stop = AtomicBool::new(false);
    let meddle = |turn: usize| {
        let bad = others[turn % others.len()];
        for (place, good) in (0..).zip(&good) {
            let entry = if turn.is_multiple_of(3) { bad } else { *good };
            meddler.poke(list + place * 8, entry);
        }
        // The second data pointer of some entry, and its first block.
        let entry = entries + (turn % 32) as u64 * 64;
        let (prp2, lba) = if turn.is_multiple_of(5) {
            (bad, bad)
        } else {
            (list, 0)
        };
        meddler.poke(entry + 32, prp2);
        meddler.poke(entry + 40, lba);
    };
    meddle(1);
    thread::scope(|scope| {
        let _ends = Ends(&stop);
        let mut turn = 0;
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                meddle(turn);
            }
        });
        let (mut refused, mut done) = (0, 0);
        for round in 0..100_000u32 {
            let opcode = if round % 2 == 0 { READ } else { WRITE };
            let words = command(opcode, 0, 32, [own, list]);
            match world.run(Tenant::Hostile, words).expect("it ends").status {
                0 => done += 1,
                _ => refused += 1,
            }
            if refused.min(done) > 200 {
                return;
            }
        }
        panic!("{refused} refused, {done} done: it was not rewritten at the right time");
    });
    world.honest();
    world.check();
}

#[test]
fn identifiers_that_are_in_use() {
    let mut world = world();
    let page = world.hosts[0].page(0);
    world.witness.lie(Some(Lie::Hangs));
    for queue in [1, 2, 1] {
        let host = world.host(Tenant::Hostile);
        host.put(queue, 5, command(READ, 0, 8, [page, 0]));
        host.put(queue, 5, command(WRITE, 8, 8, [page, 0]));
        host.ring(queue);
        world.turns(3);
    }
    world.witness.lie(None);
    world.turns(30);
    let done: Vec<_> = [1, 2]
        .map(|queue| world.host(Tenant::Hostile).reap(queue))
        .concat();
    assert_eq!(done.len(), 6, "each ends once: {done:?}");
    assert!(done.iter().all(|completion| completion.cid == 5));
    world.honest();
    world.check();
}

#[test]
fn wild_doorbells() {
    let mut world = world();
    for (slot, value) in [
        (2, 32),
        (2, 0xffff),
        (2, 0xffff_ffff),
        (3, 31),
        (3, 0x8000_0000),
        (4, 33),
        (5, 7),
        (0, 0xffff),
        (1, 0xffff),
        // Queues that it has not made, up to the page's end.
        (6, 1),
        (7, 1),
        (9, 31),
        (500, 1),
        (1023, u32::MAX),
    ] {
        world.host(Tenant::Hostile).bell(slot, value);
        world.turns(20);
        world.honest();
        world.reset(Tenant::Hostile);
        world.start(Tenant::Hostile);
        let page = world.hosts[0].page(0);
        let read = world.run(Tenant::Hostile, command(READ, 0, 1, [page, 0]));
        assert_eq!(
            read.expect("it ends").status,
            0,
            "after {value:#x} in {slot}"
        );
    }
    world.check();
}

#[test]
fn queues_that_it_does_not_own() {
    let mut world = world();
    let others = not_its_own(&world);
    let own = world.hosts[0].page(0);
    let size_and_id = |qid: u64| 31 << 16 | qid;
    let mut tries: Vec<Words> = Vec::new();
    for qid in [0, 1, 5, 9, 0xffff] {
        tries.push([5, 0, 0, own, 0, size_and_id(qid) | 1 << 32, 0, 0]);
        tries.push([
            1,
            0,
            0,
            own,
            0,
            size_and_id(qid) | (1 << 16 | 1) << 32,
            0,
            0,
        ]);
    }
    for cqid in [0, 3, 4, 9, 0xffff] {
        tries.push([
            1,
            0,
            0,
            own,
            0,
            size_and_id(3) | (cqid << 16 | 1) << 32,
            0,
            0,
        ]);
    }
    for qid in [0, 3, 4, 9, 0xffff] {
        tries.push([0, 0, 0, 0, 0, qid, 0, 0]);
        tries.push([4, 0, 0, 0, 0, qid, 0, 0]);
    }
    for words in tries {
        let done = world.admin(Tenant::Hostile, words).expect("it ends");
        assert_ne!(done.status, 0, "{words:x?}");
        world.honest();
    }
    // Rings where it may not write, or not even read: the controller may find that out when it uses
    // them.
    for at in others {
        let at = at & !(PAGE - 1);
        world.admin(
            Tenant::Hostile,
            [5, 0, 0, at, 0, size_and_id(3) | 1 << 32, 0, 0],
        );
        let words = [1, 0, 0, at, 0, size_and_id(3) | (3 << 16 | 1) << 32, 0, 0];
        world.admin(Tenant::Hostile, words);
        world.host(Tenant::Hostile).bell(6, 3);
        world.turns(20);
        world.honest();
        world.reset(Tenant::Hostile);
        world.start(Tenant::Hostile);
    }
    world.check();
}

/// A number from a seed (splitmix64).
fn random(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *seed;
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[test]
fn every_opcode() {
    let mut world = world();
    let mut seed = 7;
    let page = world.hosts[0].page(0);
    for round in 0..4 {
        for opcode in 0..=0xffu64 {
            for queue in [0, 1] {
                let mut words = [0; 8];
                words[0] = opcode | 1 << 32;
                (words[3], words[4]) = (page, page + PAGE);
                for word in &mut words[5..] {
                    // Small fields, so that some are what the command has; and any.
                    *word = match round % 2 {
                        0 => random(&mut seed) & 0x0000_0007_0000_0007,
                        _ => random(&mut seed),
                    };
                }
                match queue {
                    0 => world.admin(Tenant::Hostile, words),
                    _ => world.run(Tenant::Hostile, words),
                };
            }
            if opcode % 16 == 15 {
                // It may have deleted its queues, its namespace, or lost its way.
                world.honest();
                world.reset(Tenant::Hostile);
                world.start(Tenant::Hostile);
            }
        }
    }
    world.check();
}

#[test]
fn memory_taken_away_under_load() {
    let mut world = world();
    for turns in 0..12 {
        for is_slow in [false, true] {
            world.witness.lie(is_slow.then_some(Lie::Hangs));
            for number in 0..16 {
                let pages = [number, number + 1].map(|page| world.hosts[0].page(page));
                let host = world.host(Tenant::Hostile);
                let words = command(1 + (number % 2) as u8, number * 16, 16, pages);
                host.put(1 + (number % 2) as usize, number as u16, words);
            }
            for queue in [1, 2] {
                world.host(Tenant::Hostile).ring(queue);
            }
            world.turns(turns);
            world.map(Tenant::Hostile, false);
            world.turns(turns);
            world.witness.lie(None);
            world.honest();
            world.tick(2);
            world.map(Tenant::Hostile, true);
            world.honest();
            world.reset(Tenant::Hostile);
            world.start(Tenant::Hostile);
        }
    }
    let page = world.hosts[0].page(0);
    let read = world.run(Tenant::Hostile, command(READ, 0, 1, [page, 0]));
    assert_eq!(read.expect("it ends").status, 0);
    world.check();
}

#[test]
fn death_at_every_step() {
    let mut world = world();
    for turns in 0..16 {
        let host = world.host(Tenant::Hostile);
        for number in 0..8 {
            let pages = [number, number + 1].map(|page| host.page(page));
            host.put(1, number as u16, command(READ, number, 16, pages));
        }
        host.ring(1);
        world.turns(turns);
        // As a session that has ended: its memory goes, and its controller is reset.
        world.map(Tenant::Hostile, false);
        world.controller(Tenant::Hostile).function_reset();
        world.turns(turns);
        world.honest();
        world.tick(2);
        assert_eq!(
            world.witness.reaches(),
            4 << 20,
            "what is dead is not reached"
        );
        world.reset(Tenant::Hostile);
        world.map(Tenant::Hostile, true);
        world.start(Tenant::Hostile);
        let page = world.hosts[0].page(0);
        let read = world.run(Tenant::Hostile, command(READ, 0, 1, [page, 0]));
        assert_eq!(read.expect("it ends").status, 0);
        world.tick(2);
    }
    world.check();
}
