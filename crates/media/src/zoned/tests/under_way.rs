//! Requests in flight when a disk crashes, or when a command comes that would rely on them.

use super::*;

/// The write pointer of zone 0 after a crash during a write that was submitted after others, which
/// a flush has covered: expected from the completed writes, and including the one in flight. `None`
/// if the disk has completed that one, too, with this seed.
fn pointer_after_crash(random: bool, seed: u64) -> Option<(u64, u64)> {
    let mut rig = Rig::new(new_image(), seed, &[]);
    if random {
        take(&mut rig, &Step::Open { zone: 0 });
    }
    let write = |rig: &mut Rig, skip| {
        let (zone, blocks, fua) = (0, 1, false);
        take(
            rig,
            &Step::Write {
                zone,
                skip,
                blocks,
                fua,
            },
        );
    };
    write(&mut rig, 0);
    write(&mut rig, 1);
    while !rig.ongoing.is_empty() {
        rig.turn();
    }
    let before = rig.channel.zones().get(0).written;
    // Behind the area, which moves the write pointer.
    write(&mut rig, 2);
    assert!(rig.channel.zones().get(0).written > before);
    take(&mut rig, &Step::Flush);
    let is_under_way = |rig: &Rig| {
        matches!(
            rig.channel.out[..],
            [Out {
                what: Taken::Write { .. },
                ..
            }]
        )
    };
    while rig.ongoing.len() > 1 && is_under_way(&rig) {
        rig.turn();
    }
    if !is_under_way(&rig) {
        return None;
    }
    let (image, past) = rig.crash();
    let mut rig = Rig::new(image, seed, &past);
    Some((before, rig.channel.zones().get(0).written))
}

#[test]
fn a_write_pointer_does_not_come_back_ahead_of_bytes_under_way() {
    for random in [false, true] {
        let found: Vec<_> = (0..200)
            .filter_map(|seed| pointer_after_crash(random, seed))
            .collect();
        assert!(found.len() > 10, "{} crashes", found.len());
        assert!(
            found.iter().all(|(before, after)| before == after),
            "{random}: {found:?}"
        );
    }
}

/// Otherwise bytes in flight would end up in the empty zone.
#[test]
fn a_reset_waits_for_writes() {
    let mut rig = Rig::new(new_image(), 7, &[]);
    let (zone, skip, blocks, fua) = (0, 0, 2, false);
    let write = Step::Write {
        zone,
        skip,
        blocks,
        fua,
    };
    let reset = Step::Send {
        zone,
        action: 4,
        all: false,
    };
    take(&mut rig, &write);
    take(&mut rig, &reset);
    assert_eq!(rig.channel.zones().get(0).written, 2 * BLOCK);
    while !rig.ongoing.is_empty() {
        rig.turn();
    }
    take(&mut rig, &reset);
    assert_eq!(rig.channel.zones().get(0), Zone::EMPTY);
}

/// Otherwise bytes that a reset has not erased yet would be before the write pointer.
#[test]
fn a_commit_waits_for_a_reset() {
    let mut rig = Rig::new(new_image(), 7, &[]);
    let (zone, skip, blocks, fua) = (0, 0, 2, false);
    let write = Step::Write {
        zone,
        skip,
        blocks,
        fua,
    };
    let reset = Step::Send {
        zone,
        action: 4,
        all: false,
    };
    let commit = Step::Commit { zone, blocks: 2 };
    take(&mut rig, &write);
    while !rig.ongoing.is_empty() {
        rig.turn();
    }
    take(&mut rig, &reset);
    take(&mut rig, &Step::Open { zone });
    take(&mut rig, &commit);
    assert_eq!(rig.channel.zones().get(0).written, 0);
    while !rig.ongoing.is_empty() {
        rig.turn();
    }
    take(&mut rig, &commit);
    assert_eq!(rig.channel.zones().get(0).written, 2 * BLOCK);
    assert!(rig.channel.below().now()[..2 * BLOCK as usize] == [0; 2 * BLOCK as usize]);
}
