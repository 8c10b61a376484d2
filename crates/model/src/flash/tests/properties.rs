//! Random programs: after any writes, trims and collections, map and counters agree with a simple
//! reference.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Write { page: u64, pages: u32, fua: bool },
    Read { page: u64, pages: u32 },
    Deallocate { page: u64, pages: u64 },
    Flush,
    Wait(u64),
}

fn steps(pages: u64) -> impl Strategy<Value = Vec<Step>> {
    // Half of the commands go to an eighth of the drive, so that lines differ.
    let page = prop_oneof![0..pages, 0..pages / 8];
    let step = prop_oneof![
        12 => (page.clone(), 1u32..24, any::<bool>()).prop_map(|(page, pages, fua)| Step::Write { page, pages, fua }),
        2 => (page.clone(), 1u32..24).prop_map(|(page, pages)| Step::Read { page, pages }),
        1 => (page, 0u64..40).prop_map(|(page, pages)| Step::Deallocate { page, pages }),
        1 => Just(Step::Flush),
        4 => (0u64..3_000_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..300)
}

/// Reference state of a drive, kept separately.
#[derive(Default)]
struct Book {
    mapped: BTreeSet<u64>,
    host_pages: u64,
    /// Places that were written, and how often their line had been erased then.
    written: BTreeMap<(usize, u32), u32>,
    places: BTreeMap<u64, u32>,
}

impl Book {
    fn check(&mut self, flash: &Flash) {
        for page in 0..flash.geometry.pages() {
            let (index, logical) = flash.locate(page);
            let ftl = &flash.partitions[index].ftl;
            let place = ftl.lookup(logical);
            assert_eq!(place.is_some(), self.mapped.contains(&page), "page {page}");
            let Some(place) = place else {
                self.places.remove(&page);
                continue;
            };
            assert_eq!(ftl.held(place), Some(logical));
            if self.places.insert(page, place) != Some(place) {
                // A place is written once between two erases.
                let erases = ftl.lines.erases(place / flash.geometry.line);
                assert_ne!(self.written.insert((index, place), erases), Some(erases));
            }
        }
        for partition in &flash.partitions {
            let ftl = &partition.ftl;
            let lines = &ftl.lines;
            let held = |line: u32| {
                let places = line * lines.pages()..(line + 1) * lines.pages();
                places.filter(|&place| ftl.held(place).is_some()).count()
            };
            assert!(
                lines
                    .all()
                    .all(|line| held(line) == lines.valid(line) as usize)
            );
            let valid: usize = lines.all().map(held).sum();
            let mapped = (0..flash.geometry.logical).filter(|&page| ftl.lookup(page).is_some());
            assert_eq!(valid, mapped.count());
            // Full, free, and at most two open.
            let full: Vec<u32> = lines.by_age().collect();
            assert!(
                full.windows(2)
                    .all(|pair| lines.age(pair[0]) > lines.age(pair[1]))
            );
            let open = lines.all().len() - full.len() - lines.free();
            assert!(open <= 2, "{open} lines are open");
            let fewest = full.iter().map(|&line| lines.valid(line)).min();
            let found: Vec<u32> = lines.with_fewest_valid().collect();
            assert!(found.iter().all(|&line| Some(lines.valid(line)) == fewest));
            assert_eq!(found.is_empty(), full.is_empty());
        }
        assert_eq!(flash.counters().host_pages, self.host_pages);
    }
}

fn run(parameters: &FlashParameters, prepared: bool, steps: &[Step]) {
    let mut flash = drive(parameters);
    let mut book = Book::default();
    let total = flash.geometry.pages();
    if prepared {
        for page in 0..total {
            flash.place_only(page);
            book.mapped.insert(page);
            book.host_pages += 1;
        }
        book.check(&flash);
    }
    let mut now = 0;
    let mut done = Vec::new();
    let mut expected = 0;
    for step in steps {
        let op = match *step {
            Step::Wait(time) => {
                now += time;
                flash.advance(now, &mut done);
                continue;
            }
            Step::Write { page, pages, fua } => Op::Write {
                offset: page * PAGE,
                len: pages * PAGE_LEN,
                fua,
            },
            Step::Read { page, pages } => read(page, pages),
            Step::Deallocate { page, pages } => Op::Deallocate {
                offset: page * PAGE,
                len: pages * PAGE,
            },
            Step::Flush => Op::Flush,
        };
        while {
            let room = flash.has_room(&op);
            let admission = flash.submit(now, expected, &op);
            assert_eq!(room, admission == Admission::Accepted);
            admission == Admission::Stall
        } {
            now = flash.next_event().expect("what stalls waits for something");
            flash.advance(now, &mut done);
        }
        expected += 1;
        match *step {
            Step::Write { page, pages, .. } => {
                let touched = page..(page + u64::from(pages)).min(total);
                book.host_pages += touched.end - touched.start;
                book.mapped.extend(touched);
            }
            Step::Deallocate { page, pages } => {
                book.mapped
                    .retain(|held| !(page..page + pages).contains(held));
            }
            _ => (),
        }
        book.check(&flash);
    }
    flash.advance(u64::MAX, &mut done);
    assert_eq!(flash.next_event(), None);
    let ids: BTreeSet<u64> = done.iter().map(|due| due.id).collect();
    assert_eq!((done.len() as u64, ids.len() as u64), (expected, expected));
    assert!(done.windows(2).all(|pair| pair[0].at <= pair[1].at));
    // The rest in the buffer belongs to partly filled wordlines.
    let held: u64 = flash
        .partitions
        .iter()
        .map(|partition| partition.held)
        .sum();
    assert_eq!(flash.buffer_used(), held);
    let most = u64::from(flash.geometry.die.wordline - 1) * PAGE;
    assert!(
        flash
            .partitions
            .iter()
            .all(|partition| partition.held <= most)
    );
}

/// Two partitions of two dies; 64 lines of 16 pages each.
fn small(policy: CollectionPolicy) -> FlashParameters {
    FlashParameters {
        size_bytes: 2 * 900 * PAGE,
        partitions: 2,
        overprovisioning_permille: 130,
        block_bytes: 32_768,
        policy,
        ..four_dies()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_map_and_the_counts_agree_with_the_book(
        policy in prop_oneof![
            Just(CollectionPolicy::Greedy),
            Just(CollectionPolicy::Fifo),
            Just(CollectionPolicy::CostBenefit),
        ],
        prepared in prop::bool::weighted(0.8),
        steps in steps(1800),
    ) {
        run(&small(policy), prepared, &steps);
    }
}

#[test]
fn placing_in_no_time_is_the_same_as_writing() {
    let mut timed = drive(&small(CollectionPolicy::Greedy));
    let mut placed = drive(&small(CollectionPolicy::Greedy));
    let mut now = 0;
    let mut done = Vec::new();
    let mut random = Random(7);
    for _ in 0..20_000 {
        let page = random.below(1800);
        placed.place_only(page);
        while timed.submit(now, 0, &write(page, 1)) == Admission::Stall {
            now = timed.next_event().unwrap();
            timed.advance(now, &mut done);
        }
    }
    assert_eq!(timed.valid_histogram(16), placed.valid_histogram(16));
    assert_eq!(timed.wear(), placed.wear());
    for (timed, placed) in timed.partitions.iter().zip(&placed.partitions) {
        assert!((0..900).all(|page| timed.ftl.lookup(page) == placed.ftl.lookup(page)));
        assert!(placed.held == 0 && placed.sensed == 0);
    }
    assert_eq!(placed.next_event(), None);
}
