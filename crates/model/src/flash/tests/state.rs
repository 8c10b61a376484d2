//! State as bytes: a saved state comes back, and a damaged one does not become a drive.

use proptest::prelude::*;

use super::*;

fn small() -> FlashParameters {
    FlashParameters {
        size_bytes: 2 * 900 * PAGE,
        partitions: 2,
        overprovisioning_permille: 130,
        block_bytes: 32_768,
        ..four_dies()
    }
}

/// A drive that was used: some pages written often, some trimmed, some never written.
fn used(parameters: &FlashParameters, writes: u64) -> Flash {
    let mut flash = drive(parameters);
    let mut random = Random(3);
    (0..writes).for_each(|_| flash.place_only(random.below(1700)));
    let range = Op::Deallocate {
        offset: 0,
        len: 30 * PAGE,
    };
    flash.submit(0, 0, &range);
    flash.advance(u64::MAX / 2, &mut Vec::new());
    flash
}

fn saved(flash: &Flash) -> Vec<u8> {
    let mut bytes = Vec::new();
    flash.save(&mut bytes);
    bytes
}

/// Makes the checksum match again.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let body = bytes.len() - 8;
    let sum = bytes[..body]
        .chunks(4)
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, word| {
            let word = word
                .iter()
                .rev()
                .fold(0, |word, &byte| word << 8 | u64::from(byte));
            (sum ^ word).wrapping_mul(0x0100_0000_01b3)
        });
    bytes[body..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn what_was_saved_goes_on_as_before() {
    for writes in [0, 5, 1000, 50_001] {
        let mut before = used(&small(), writes);
        let bytes = saved(&before);
        let mut after = Flash::restore(&small(), &bytes).unwrap();
        assert_eq!(saved(&after), bytes, "{writes}");
        assert_eq!(after.counters(), before.counters());
        assert_eq!(after.wear(), before.wear());
        let mut random = Random(9);
        for _ in 0..20_000 {
            let page = random.below(1800);
            before.place_only(page);
            after.place_only(page);
        }
        assert_eq!(saved(&after), saved(&before), "{writes}");
    }
}

#[test]
fn a_restored_drive_takes_the_time_that_the_first_takes_at_rest() {
    let mut before = used(&small(), 30_000);
    let mut after = Flash::restore(&small(), &saved(&before)).unwrap();
    let start = before.pending.at(0) + 1_000_000_000;
    let mut random = Random(4);
    let ops: Vec<_> = (0..500)
        .map(|index| {
            let page = random.below(1700);
            let op = if index % 3 == 0 {
                read(page, 3)
            } else {
                forced(page, 2)
            };
            (start + index * 2_000_000, op)
        })
        .collect();
    assert_eq!(durations(&mut before, &ops), durations(&mut after, &ops));
}

#[test]
fn what_is_no_state_of_this_drive_is_refused() {
    let bytes = saved(&used(&small(), 20_000));
    let refused = |bytes: &[u8]| Flash::restore(&small(), bytes).unwrap_err();
    assert_eq!(refused(b""), StateError::Unknown);
    assert_eq!(refused(b"something else altogether"), StateError::Unknown);
    let mut newer = bytes.clone();
    newer[8] = 4;
    assert_eq!(refused(&newer), StateError::Version { found: 4 });
    let mut other = small();
    other.size_bytes += 2 * PAGE;
    let shape = Flash::restore(&other, &bytes).unwrap_err();
    assert!(
        shape
            .to_string()
            .contains("pages of a partition is 900, here 901"),
        "{shape}"
    );
    other.policy = CollectionPolicy::Fifo;
    other.size_bytes = small().size_bytes;
    other.program_ns = 1;
    assert!(
        Flash::restore(&other, &bytes).is_ok(),
        "times and policies may be others"
    );
    for cut in [1, 7, 8, 9, bytes.len() / 2, bytes.len() - 17] {
        let refused = refused(&bytes[..bytes.len() - cut]);
        assert!(
            matches!(refused, StateError::Damaged { .. } | StateError::Unknown),
            "{refused}"
        );
    }
    let mut longer = bytes.clone();
    longer.extend_from_slice(&[0; 4]);
    assert!(matches!(
        refused(&sealed(longer)),
        StateError::Damaged { .. }
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_bit_is_found(position in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = saved(&used(&small(), 3000));
        let position = position.index(bytes.len());
        bytes[position] ^= 1 << bit;
        prop_assert!(Flash::restore(&small(), &bytes).is_err());
    }

    #[test]
    fn what_is_wrong_on_purpose_is_refused_or_works(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0u32..70), 1..4),
        early in any::<bool>(),
    ) {
        let mut bytes = saved(&used(&small(), 3000));
        for (position, value) in changes {
            // In the first part are the counts and lines of the first partition, in the rest mostly
            // the map.
            let end = if early { 1632 } else { bytes.len() - 12 };
            let at = 104 + position.index((end - 104) / 4) * 4;
            bytes[at..at + 4].copy_from_slice(&value.wrapping_sub(3).to_le_bytes());
        }
        if let Ok(mut flash) = Flash::restore(&small(), &sealed(bytes)) {
            let mut random = Random(1);
            (0..5000).for_each(|_| flash.place_only(random.below(1800)));
            let valid = flash.partitions().map(|p| p.lines.all().map(|line| p.lines.valid(line)).sum::<u32>());
            prop_assert!(valid.into_iter().all(|valid| valid <= 900));
        }
    }
}

/// Takes a snapshot in parts of `pages`, with `between` done to the drive after each.
fn snapshot(flash: &mut Flash, pages: u32, mut between: impl FnMut(&mut Flash)) -> Vec<u8> {
    flash.begin_snapshot(Room::new(flash.geometry()).unwrap());
    loop {
        between(flash);
        assert!(flash.takes_snapshot());
        if let Some(snapshot) = flash.continue_snapshot(pages) {
            assert!(!flash.takes_snapshot());
            return snapshot.into_bytes();
        }
    }
}

#[test]
fn a_snapshot_is_what_was_there_when_it_was_begun() {
    for (writes, pages) in [(0, 1), (3000, 1), (3000, 64), (50_000, 200), (50_000, 5000)] {
        let mut flash = used(&small(), writes);
        let begun = saved(&flash);
        let mut random = Random(writes + u64::from(pages));
        let taken = snapshot(&mut flash, pages, |flash| {
            (0..40).for_each(|_| flash.place_only(random.below(1800)));
            let offset = random.below(1800) * PAGE;
            let len = 7 * PAGE;
            flash.submit(0, 0, &Op::Deallocate { offset, len });
        });
        assert_eq!(taken, begun, "{writes} {pages}");
        assert_ne!(saved(&flash), begun);
        // And another one after that.
        let now = saved(&flash);
        assert_eq!(snapshot(&mut flash, 300, |_| ()), now);
    }
}

#[test]
fn a_snapshot_takes_so_many_pages_at_a_time() {
    let mut flash = used(&small(), 100);
    flash.begin_snapshot(Room::new(flash.geometry()).unwrap());
    // 1800 pages, 64 at a time.
    let parts = (1..).find(|_| flash.continue_snapshot(64).is_some());
    assert_eq!(parts, Some(29));
}

#[test]
fn at_rest_a_drive_is_as_it_is_restored() {
    let mut flash = used(&small(), 30_000);
    flash.submit(5_000_000_000_000, 7, &forced(3, 2));
    let mut restored = Flash::restore(&small(), &saved(&flash)).unwrap();
    flash.rest(&small());
    assert_eq!(flash.next_event(), None);
    let mut random = Random(4);
    let ops: Vec<_> = (0..500)
        .map(|index| (index * 1_000_000, forced(random.below(1700), 2)))
        .collect();
    assert_eq!(durations(&mut flash, &ops), durations(&mut restored, &ops));
    assert_eq!(saved(&flash), saved(&restored));
}

#[test]
fn how_a_drive_was_prepared_is_saved_with_it() {
    let mut flash = drive(&small());
    assert_eq!(flash.prepared(), None);
    let mut told = 0;
    let prepared = flash.precondition_telling(1, &mut |progress| {
        assert_eq!((progress.round, progress.pages), (told, 1800));
        told += 1;
    });
    assert_eq!(told, prepared.rounds + 1);
    let restored = Flash::restore(&small(), &saved(&flash)).unwrap();
    assert_eq!(restored.prepared(), Some(prepared));
    let (seeded, said) = Flash::seeded(&small(), 1).unwrap();
    let restored = Flash::restore(&small(), &saved(&seeded)).unwrap();
    assert_eq!(restored.prepared(), Some(said));
    assert_eq!(said.method, Method::Seeded);
}

#[test]
fn what_changes_the_state_is_counted() {
    let mut flash = drive(&small());
    let mut before = flash.changes();
    for (op, changes) in [
        (read(0, 1), false),
        (Op::Flush, false),
        (forced(0, 1), true),
        (read(0, 1), false),
        (
            Op::Deallocate {
                offset: 0,
                len: PAGE,
            },
            true,
        ),
    ] {
        flash.submit(0, 0, &op);
        assert_eq!(flash.changes() > before, changes, "{op:?}");
        before = flash.changes();
    }
}

/// As [`small`], with a cache of single-bit cells that is folded after a second, and suspension.
fn caching() -> FlashParameters {
    let mut parameters = small();
    parameters.extras = FlashExtras {
        slc_cache_bytes: 20 * 16_384,
        slc_program_ns: 30_000,
        slc_idle_ns: 1_000_000_000,
        suspend_limit: 3,
        map_cache_pages: 1,
        ..FlashExtras::default()
    };
    parameters
}

#[test]
fn what_is_cached_is_saved_and_folded_later() {
    let mut flash = drive(&caching());
    let (mut now, mut id) = (0, 0);
    let mut ask = |flash: &mut Flash, op: &Op<'_>| {
        id += 1;
        while flash.submit(now, id, op) == Admission::Stall {
            now = flash.next_event().expect("room comes back");
            flash.advance(now, &mut Vec::new());
        }
    };
    for page in 0..64 {
        ask(&mut flash, &write(page, 1));
        ask(&mut flash, &read(page / 2, 1));
    }
    let count = |flash: &Flash| {
        let cached = flash.partitions.iter().map(|p| p.cached.dies.len());
        cached.collect::<Vec<_>>()
    };
    assert_eq!(count(&flash), [8, 8]);
    let bytes = saved(&flash);
    let before = flash.changes();
    let mut restored = Flash::restore(&caching(), &bytes).unwrap();
    assert_eq!(saved(&restored), bytes);
    assert_eq!(
        restored.partitions[1].cached.dies,
        flash.partitions[1].cached.dies
    );
    let without = Flash::restore(&small(), &bytes).unwrap();
    assert_eq!(count(&without), [0, 0]);
    // At rest no bytes return to the buffer that were not taken.
    flash.rest(&caching());
    for flash in [&mut flash, &mut restored] {
        assert_eq!(flash.next_event(), None);
        flash.advance(10_000_000_000, &mut Vec::new());
        assert_eq!(
            (count(flash), flash.counters().folded_pages),
            (vec![0, 0], 64)
        );
    }
    assert!(flash.changes() > before);
    assert_eq!(saved(&flash), saved(&restored));
    // A die that there is not, of the first wordline of the first partition.
    let shape = flash.geometry;
    let lines = 20 * shape.lines as usize + 16; // none is open
    let at = 104 + 10 * 8 + lines + 16;
    let mut damaged = bytes.clone();
    assert_eq!(damaged[at - 8], 8, "their number");
    damaged[at] = 2;
    let error = Flash::restore(&caching(), &sealed(damaged)).unwrap_err();
    assert_eq!(
        error,
        StateError::Damaged {
            what: "a wordline is on no die"
        }
    );
}
