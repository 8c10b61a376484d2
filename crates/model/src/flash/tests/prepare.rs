//! Drives in the state of long use.

use super::*;
use crate::flash::prepare::Method;

/// The layout of a drive of 8 GiB with four partitions of 32 KiB wordlines, at a sixteenth of its
/// blocks' size: about 147 lines in each.
fn eight_gibibytes(policy: CollectionPolicy) -> FlashParameters {
    FlashParameters {
        size_bytes: (8 << 30) / 16,
        partitions: 4,
        channels: 8,
        dies_per_channel: 2,
        flash_page_bytes: 32_768,
        oneshot_bytes: 32_768,
        block_bytes: 8 * 32_768,
        overprovisioning_permille: 70,
        buffer_bytes: 1 << 20,
        policy,
        ..four_dies()
    }
}

fn amplification(flash: &mut Flash, seed: u64) -> f64 {
    let pages = flash.geometry.pages();
    let mut random = Random(seed);
    let start = flash.counters();
    (0..pages).for_each(|_| flash.place_only(random.below(pages)));
    let end = flash.counters();
    let host = (end.host_pages - start.host_pages) as f64;
    1.0 + (end.collected_pages - start.collected_pages) as f64 / host
}

/// Maximum difference between the cumulative distributions of lines over valid pages.
fn distance(left: &[u64], right: &[u64]) -> f64 {
    let all = |histogram: &[u64]| histogram.iter().sum::<u64>() as f64;
    let (mut below, mut greatest) = ((0.0, 0.0), 0.0f64);
    for (one, other) in left.iter().zip(right) {
        below.0 += *one as f64 / all(left);
        below.1 += *other as f64 / all(right);
        greatest = greatest.max((below.0 - below.1).abs());
    }
    greatest
}

#[test]
fn a_drive_that_was_seeded_is_as_one_that_was_played() {
    for policy in [CollectionPolicy::Greedy, CollectionPolicy::CostBenefit] {
        let parameters = eight_gibibytes(policy);
        let mut played = drive(&parameters);
        let done = played.precondition(1);
        assert_eq!(done.method, Method::Played);
        assert!((2..20).contains(&done.rounds), "{done:?}");
        let (mut seeded, by_hand) = Flash::seeded(&parameters, 2).unwrap();
        assert_eq!(by_hand.method, Method::Seeded);
        let apart = distance(&played.valid_histogram(64), &seeded.valid_histogram(64));
        let (first, second) = (amplification(&mut played, 3), amplification(&mut seeded, 4));
        println!(
            "{policy:?}: {done:?}, {by_hand:?}; then {first:.3} and {second:.3}; histograms {apart:.4} apart"
        );
        assert!((first / second - 1.0).abs() < 0.03);
        assert!(apart < 0.03);
        let said = done.write_amplification_permille as f64 / 1000.0;
        assert!((first / said - 1.0).abs() < 0.03);
    }
}

#[test]
fn a_seeded_drive_holds_every_page_and_keeps_its_counts() {
    let (mut flash, _) = Flash::seeded(&eight_gibibytes(CollectionPolicy::Fifo), 5).unwrap();
    let check = |flash: &Flash| {
        for partition in &flash.partitions {
            let ftl = &partition.ftl;
            for logical in 0..flash.geometry.logical {
                let place = ftl.lookup(logical).expect("all pages are written");
                assert_eq!(ftl.held(place), Some(logical));
            }
            let valid: u32 = ftl.lines.all().map(|line| ftl.lines.valid(line)).sum();
            assert_eq!(valid, flash.geometry.logical);
        }
    };
    check(&flash);
    assert_eq!(flash.counters(), Counters::default());
    amplification(&mut flash, 6);
    check(&flash);
    // The same seed, the same drive; another seed, another.
    let (again, _) = Flash::seeded(&eight_gibibytes(CollectionPolicy::Fifo), 5).unwrap();
    let (other, _) = Flash::seeded(&eight_gibibytes(CollectionPolicy::Fifo), 7).unwrap();
    let (first, _) = Flash::seeded(&eight_gibibytes(CollectionPolicy::Fifo), 5).unwrap();
    let map = |flash: &Flash| -> Vec<_> {
        let ftl = &flash.partitions[3].ftl;
        (0..1000).map(|logical| ftl.lookup(logical)).collect()
    };
    assert_eq!(map(&again), map(&first));
    assert_ne!(map(&again), map(&other));
}

#[test]
fn what_is_kept_free_is_kept_in_the_small_drive_too() {
    // As many lines as are kept free are spare, and few more; in a drive of many small lines.
    let parameters = FlashParameters {
        size_bytes: 10_500 * 4 * PAGE,
        overprovisioning_permille: 100,
        collect_below: 1000,
        ..one_die()
    };
    let (mut flash, _) = Flash::seeded(&parameters, 1).unwrap();
    amplification(&mut flash, 1);
    assert!(flash.free_lines() >= 999);
}

/// A filled drive is one whose pages were placed in order, page by page, in all but the count of
/// pages that hosts wrote; and it stays that under any further load.
#[test]
fn a_filled_drive_is_as_one_whose_pages_were_placed() {
    let small_lines = FlashParameters {
        size_bytes: 3000 * PAGE,
        overprovisioning_permille: 600,
        partitions: 2,
        ..four_dies()
    };
    for parameters in [
        four_dies(),
        one_die(),
        small_lines,
        eight_gibibytes(CollectionPolicy::Greedy),
        eight_gibibytes(CollectionPolicy::CostBenefit),
    ] {
        let saved = |flash: &mut Flash| {
            let partitions = flash.partitions.iter_mut();
            partitions.for_each(|partition| partition.ftl.host_pages = 0);
            let mut bytes = Vec::new();
            flash.save(&mut bytes);
            bytes
        };
        let mut placed = drive(&parameters);
        let pages = placed.geometry.pages();
        (0..pages).for_each(|page| placed.place_only(page));
        let mut filled = Flash::in_state(&parameters, Initial::Filled, 1).unwrap();
        assert_eq!(filled.counters(), Counters::default());
        assert_eq!(saved(&mut placed), saved(&mut filled));

        let load = |flash: &mut Flash| {
            let mut random = Random(5);
            let mut now = 0;
            let mut done = Vec::new();
            for id in 0..3 * pages.min(4000) {
                let page = random.below(pages);
                let op = match random.below(8) {
                    0 => Op::Deallocate {
                        offset: page * PAGE,
                        len: 5 * PAGE,
                    },
                    1 => read(page, 1),
                    _ => write(page, 1),
                };
                while flash.submit(now, id, &op) == Admission::Stall {
                    now = flash.next_event().unwrap();
                    flash.advance(now, &mut done);
                }
            }
            flash.advance(u64::MAX, &mut done);
            (done, flash.counters().unmapped_reads)
        };
        assert_eq!(load(&mut placed), load(&mut filled));
        assert_eq!(saved(&mut placed), saved(&mut filled));
        // A snapshot converts the entries as well.
        let room = Room::new(&filled.geometry).unwrap();
        filled.begin_snapshot(room);
        filled.place_only(3);
        let snapshot = std::iter::repeat_with(|| filled.continue_snapshot(100)).find_map(|s| s);
        assert_eq!(snapshot.unwrap().into_bytes(), saved(&mut placed));
    }
}

/// Every read of a filled drive senses; a read of what was deallocated does not, and counts once,
/// however many of its pages are without data.
#[test]
fn reads_of_pages_without_data_count() {
    let counts = |flash: &Flash| (flash.counters().reads, flash.counters().unmapped_reads);
    let mut fresh = drive(&four_dies());
    let of_fresh = durations(&mut fresh, &[(0, read(8, 4))]);
    assert_eq!(counts(&fresh), (1, 1));

    let mut filled = Flash::in_state(&four_dies(), Initial::Filled, 1).unwrap();
    let of_filled = durations(&mut filled, &[(0, read(8, 4))]);
    assert_eq!(counts(&filled), (1, 0));
    // Two senses of 15 us on dies of one channel or of two, against none at all.
    assert!(
        of_filled[0] >= of_fresh[0] + 15_000,
        "{of_fresh:?} {of_filled:?}"
    );

    let mut filled = Flash::in_state(&four_dies(), Initial::Filled, 1).unwrap();
    let unmap = Op::Deallocate {
        offset: 9 * PAGE,
        len: 2 * PAGE,
    };
    let second = 1_000_000_000;
    let ops = [
        (0, unmap),
        (second, read(8, 4)),
        (2 * second, read(9, 2)),
        (3 * second, read(8, 1)),
        (4 * second, write(9, 2)),
        (5 * second, read(8, 4)),
    ];
    durations(&mut filled, &ops);
    assert_eq!(counts(&filled), (4, 2));
    // Pages of two partitions are one read.
    let two = FlashParameters {
        partitions: 2,
        ..four_dies()
    };
    let mut fresh = drive(&two);
    durations(&mut fresh, &[(0, read(8, 4))]);
    assert_eq!(counts(&fresh), (1, 1));
    for unmapped in [8, 9] {
        let mut filled = Flash::in_state(&two, Initial::Filled, 1).unwrap();
        let unmap = Op::Deallocate {
            offset: unmapped * PAGE,
            len: PAGE,
        };
        durations(&mut filled, &[(0, unmap), (second, read(8, 2))]);
        assert_eq!(counts(&filled), (1, 1), "page {unmapped}");
    }
}

#[test]
fn the_steady_state_is_that_of_preconditioning() {
    let parameters = eight_gibibytes(CollectionPolicy::Greedy);
    let mut by_hand = drive(&parameters);
    by_hand.precondition(7);
    let steady = Flash::in_state(&parameters, Initial::Steady, 7).unwrap();
    let saved = [by_hand, steady].map(|flash| {
        let mut bytes = Vec::new();
        flash.save(&mut bytes);
        bytes
    });
    assert!(saved[0] == saved[1]);
}
