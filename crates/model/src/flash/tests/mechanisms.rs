//! Planes, single-bit cells, map misses, suspension: hand-computed cases, and properties under
//! random commands.

use proptest::prelude::*;

use super::*;

/// One die with two planes: flash pages of one page, wordlines of two, blocks of two wordlines.
fn two_planes() -> FlashParameters {
    let mut parameters = FlashParameters {
        oneshot_bytes: 8192,
        ..one_die()
    };
    parameters.extras.planes = 2;
    parameters
}

#[test]
fn planes_sense_apart_and_program_together() {
    let mut flash = drive(&two_planes());
    (0..4).for_each(|page| flash.place_only(page));
    let ops = [
        (0, read(0, 1)),
        (0, read(1, 1)),
        (0, read(2, 1)),
        (0, forced(8, 2)),
        (0, Op::Flush),
        (0, read(1, 1)),
    ];
    // Both sense from 1000 to 11000, kind 0, and share the channel. Page 2 is in plane 0, free from
    // 15096 on, and of kind 1.
    let third = 15_096 + 20_000 + 4096;
    let programmed = third + 8192 + 100_000;
    assert_eq!(
        durations(&mut flash, &ops),
        [
            15_096 + 1024,
            19_192 + 1024,
            third + 1024,
            programmed,
            programmed,
            programmed + 10_000 + 4096 + 1024
        ]
    );
}

#[test]
fn a_wordline_is_in_all_planes() {
    let mut parameters = two_planes();
    parameters.extras.planes = 4;
    let error = Flash::new(&parameters).unwrap_err().to_string();
    assert!(
        error.contains("write a multiple of planes times flash_page, 16KiB"),
        "{error}"
    );
    parameters.extras.planes = 1;
    let mut flash = drive(&two_planes());
    let error = flash.retune(&parameters).unwrap_err();
    assert_eq!(error, ParameterError::Fixed { name: "geometry" });
}

fn two_cached() -> FlashParameters {
    let mut parameters = one_die();
    parameters.extras.slc_cache_bytes = 2 * PAGE + 100;
    parameters.extras.slc_program_ns = 30_000;
    parameters.extras.slc_read_ns = 5000;
    parameters.extras.slc_idle_ns = 1_000_000;
    parameters
}

#[test]
fn what_fits_the_cache_is_programmed_faster_and_folded_when_the_drive_is_idle() {
    let mut flash = drive(&two_cached());
    // 3872, then the channel and 30000, twice; the third finds it full.
    let folded = |flash: &mut Flash, now| {
        let mut done = Vec::new();
        flash.advance(now, &mut done);
        (flash.counters().folded_pages, done.pop().map(|due| due.at))
    };
    flash.submit(0, 0, &forced(0, 3));
    assert_eq!(folded(&mut flash, 999_999), (0, Some(176_160)));
    assert_eq!(folded(&mut flash, 1_000_000), (1, None));
    // A flush waits for the fold, 5000 and 100000, and the next one for a pause.
    flash.submit(1_050_000, 1, &Op::Flush);
    assert_eq!(folded(&mut flash, 2_049_999), (1, Some(1_105_000)));
    assert_eq!(folded(&mut flash, 2_050_000), (2, None));
    assert_eq!(folded(&mut flash, 10_000_000), (2, None));
    // There is room again.
    assert_eq!(
        durations(&mut flash, &[(20_000_000, forced(0, 1))]),
        [1624 + 4096 + 30_000]
    );
}

#[test]
fn folds_follow_one_another() {
    let mut flash = drive(&two_cached());
    flash.submit(0, 0, &write(0, 2));
    flash.advance(1_104_999, &mut Vec::new());
    assert_eq!(flash.counters().folded_pages, 1);
    flash.advance(1_105_000, &mut Vec::new());
    assert_eq!(flash.counters().folded_pages, 2);
    assert_eq!(flash.dies.all_free(), 1_210_000);
}

#[test]
fn an_idle_drive_folds_before_it_collects() {
    let mut parameters = two_cached();
    parameters.extras.background_below = 3;
    parameters.extras.background_idle_ns = parameters.extras.slc_idle_ns;
    let mut flash = drive(&parameters);
    (0..200).for_each(|page| flash.place_only(page));
    let but_the_last = (0..64).filter(|page| page % 4 != 3);
    but_the_last.for_each(|page| flash.place_only(page));
    flash.submit(0, 0, &write(100, 1));
    assert_eq!((flash.free_lines(), flash.counters().erased_lines), (1, 1));
    let idle = flash.dies.all_free();
    assert!(idle > 1_000_000);
    flash.advance(1_000_000, &mut Vec::new());
    assert_eq!(flash.counters().erased_lines, 2);
    // The collection waits for the fold on its die, and not the other way round.
    let [partition] = &flash.partitions[..] else {
        panic!("one partition");
    };
    assert_eq!(partition.cached.folded, idle + 105_000);
    assert!(partition.background_end > partition.cached.folded + 1_000_000);
}

#[test]
fn a_cache_that_is_turned_off_is_empty_and_one_of_less_than_a_wordline_is_refused() {
    let mut flash = drive(&two_cached());
    flash.submit(0, 0, &write(0, 2));
    flash.retune(&one_die()).unwrap();
    flash.retune(&two_cached()).unwrap();
    flash.advance(u64::MAX / 2, &mut Vec::new());
    assert_eq!(flash.counters().folded_pages, 0);
    let mut parameters = one_die();
    parameters.extras.slc_cache_bytes = PAGE - 1;
    let error = flash.retune(&parameters).unwrap_err().to_string();
    assert!(error.contains("write at least 4KiB, or 0B"), "{error}");
}

fn one_map_page() -> FlashParameters {
    let mut parameters = four_dies();
    parameters.extras.map_cache_pages = 1;
    parameters
}

/// Pages of the map 0 to 3, on the dies 0 to 3, each for 1024 pages.
#[test]
fn a_read_waits_for_the_map_and_a_write_does_not() {
    let mut flash = drive(&one_map_page());
    flash.place_only(0);
    flash.place_only(1);
    let hit = 1000 + 10_000 + 4096 + 1024;
    let miss = 10_000 + 4096;
    let at = |index: u64| index * 1_000_000;
    let ops = [
        // Map and page are both on die 0.
        (at(0), read(0, 1)),
        (at(1), read(1, 1)),
        // Not written, and map page 0 is forgotten.
        (at(2), read(1024, 1)),
        (at(3), read(0, 1)),
        // Map pages 0 and 1: one is in memory, the other one is sensed on die 1; the whole read
        // follows both. Die 0 has none of these pages.
        (at(4), read(1023, 2)),
        // The sense on die 2 leaves over channel 0 before the data of the wordline on die 0, which
        // does not fit before it, arrives.
        (at(5), forced(2048, 4)),
    ];
    assert_eq!(
        durations(&mut flash, &ops),
        [
            hit + miss,
            hit,
            1000 + miss + 1024,
            hit + miss,
            2000 + miss + 2 * 1024,
            miss + 16_384 + 100_000,
        ]
    );
    assert_eq!(flash.counters().map_misses, 5);
}

#[test]
fn a_smaller_memory_forgets_what_was_not_used_for_longest() {
    let with = |pages| {
        let mut parameters = four_dies();
        parameters.extras.map_cache_pages = pages;
        parameters
    };
    let mut flash = drive(&with(3));
    let misses = |flash: &mut Flash, pages: &[u64]| {
        let before = flash.counters().map_misses;
        for page in pages {
            flash.submit(0, 0, &read(page * 1024, 1));
        }
        flash.counters().map_misses - before
    };
    assert_eq!(misses(&mut flash, &[0, 1, 2, 0]), 3);
    flash.retune(&with(2)).unwrap();
    assert_eq!(misses(&mut flash, &[2, 0, 1]), 1);
    flash.retune(&four_dies()).unwrap();
    assert_eq!(misses(&mut flash, &[0, 1]), 0);
    flash.retune(&with(4)).unwrap();
    assert_eq!(misses(&mut flash, &[0, 1, 0]), 2, "all was forgotten");
}

fn suspending(limit: u32) -> FlashParameters {
    let mut parameters = one_die();
    parameters.extras.suspend_limit = limit;
    parameters.extras.suspend_ns = 3000;
    parameters.extras.resume_ns = 2000;
    parameters
}

/// The program of the forced write runs from 5720 to 105720.
#[test]
fn a_program_gives_way_to_reads_so_often() {
    let mut flash = drive(&suspending(2));
    flash.place_only(0);
    let ops = [
        (0, forced(10, 1)),
        (10, Op::Flush),
        // Asked for at 21000: from 24000 to 34000, 38096 off the channel. The program ends 17096 +
        // 2000 later, at 124816.
        (20_000, read(0, 1)),
        // At 40000, before 40096: from there to 54096; 16000 later, at 140816.
        (39_000, read(0, 1)),
        // At 61000: from 64000 to 78096; 17096 + 2000 later, at 159912.
        (60_000, read(0, 1)),
        // At 86000: it was suspended twice, and the sense waits, to 174008.
        (85_000, read(0, 1)),
        (90_000, read(0, 1)),
    ];
    assert_eq!(
        durations(&mut flash, &ops),
        [
            159_912,
            105_710,
            19_120,
            55_120 - 39_000,
            79_120 - 60_000,
            175_032 - 85_000,
            174_008 + 14_096 + 1024 - 90_000
        ]
    );
}

#[test]
fn what_waits_for_a_program_moves_with_it() {
    let mut parameters = suspending(1);
    parameters.buffer_bytes = PAGE;
    let mut flash = drive(&parameters);
    flash.place_only(0);
    flash.submit(0, 0, &write(10, 1));
    assert_eq!(flash.next_event(), Some(1624));
    let mut done = Vec::new();
    flash.advance(10_000, &mut done);
    assert_eq!(flash.next_event(), Some(105_720));
    flash.submit(20_000, 1, &read(0, 1));
    flash.advance(39_120, &mut done);
    assert_eq!(flash.next_event(), Some(124_816));
    flash.advance(124_815, &mut done);
    assert_eq!(flash.buffer_used(), PAGE);
    assert!(!flash.has_room(&write(0, 1)));
    flash.advance(124_816, &mut done);
    assert_eq!(flash.buffer_used(), 0);
    assert_eq!(flash.next_event(), None);
    let done: Vec<_> = done.iter().map(|due| (due.at, due.id)).collect();
    assert_eq!(done, [(1624, 0), (39_120, 1)]);
}

#[test]
fn nothing_gives_way_before_it_begins_or_when_something_waits_behind_it() {
    // At 1000 the data of the program is not there: the sense waits for it, and the next one for
    // that.
    let mut flash = drive(&suspending(9));
    flash.place_only(0);
    let ops = [
        (0, forced(10, 1)),
        (0, read(0, 1)),
        (20_000, read(0, 1)),
        // An operation that has ended is not suspended.
        (1_000_000, read(0, 1)),
    ];
    assert_eq!(
        durations(&mut flash, &ops),
        [
            105_720,
            105_720 + 15_120,
            105_720 + 14_096 + 15_120 - 20_000,
            16_120
        ]
    );
}

#[test]
fn an_erase_and_a_fold_give_way_and_a_collections_sense_does_not_ask_for_it() {
    // As in `a_line_is_collected`: the erase is the last work of the die for a page write before
    // its own program.
    let mut parameters = suspending(1);
    parameters.extras.background_below = 3;
    let mut flash = drive(&parameters);
    (0..200).for_each(|page| flash.place_only(page));
    let but_the_last = (0..64).filter(|page| page % 4 != 3);
    but_the_last.for_each(|page| flash.place_only(page));
    // In the background at 0: the erase begins at 128192. Asked for at 201000, sensed to 218096
    // (kind 1), and 2000.
    let erase = 20_000 + 4096 + 4096 + 100_000;
    let moved = 3000 + 20_000 + 4096 + 2000;
    assert_eq!(
        durations(&mut flash, &[(0, Op::Flush), (200_000, read(199, 1))]),
        // The flush came after it, and knew no better.
        [erase + 1_000_000, 1000 + 3000 + 20_000 + 4096 + 1024]
    );
    // A second line is collected after the read, as the first one gave none in the end.
    assert_eq!(flash.dies.all_free(), 2 * (erase + 1_000_000) + moved);

    let mut parameters = two_cached();
    parameters.extras.suspend_limit = 1;
    let mut flash = drive(&parameters);
    flash.submit(0, 0, &write(0, 1));
    flash.advance(1_000_000, &mut Vec::new());
    // The fold senses to 1005000 and programs to 1105000.
    let ops = [(1_003_999, read(0, 1))];
    let before = durations(&mut flash, &ops);
    assert_eq!(before, [101_001 + 15_120], "it has not begun to program");
    let mut flash = drive(&parameters);
    flash.submit(0, 0, &write(0, 1));
    flash.advance(1_000_000, &mut Vec::new());
    flash.pending = Pending::default();
    assert_eq!(durations(&mut flash, &[(1_004_000, read(0, 1))]), [16_120]);
    assert_eq!(flash.dies.all_free(), 1_105_000 + 14_096);
}

#[test]
fn what_was_asked_for_while_suspension_was_off_is_not_suspended() {
    let mut flash = drive(&one_die());
    flash.place_only(0);
    flash.submit(0, 0, &forced(10, 1));
    flash.retune(&suspending(5)).unwrap();
    flash.pending = Pending::default();
    let waited = 105_720 + 14_096 + 1024 - 20_000;
    assert_eq!(durations(&mut flash, &[(20_000, read(0, 1))]), [waited]);
    // An operation from before the change keeps its waiting commands.
    let mut flash = drive(&suspending(5));
    flash.place_only(0);
    flash.submit(0, 0, &forced(10, 1));
    flash.submit(20_000, 1, &read(0, 1));
    flash.retune(&one_die()).unwrap();
    let mut done = Vec::new();
    flash.advance(u64::MAX, &mut done);
    assert_eq!((done[1].at, done[1].id), (124_816, 0));
    assert_eq!(flash.buffer_used(), 0);
}

/// Two partitions of two dies, two planes; everything on.
fn everything(limit: u32, pages: u32, wordlines: u64) -> FlashParameters {
    let mut parameters = FlashParameters {
        size_bytes: 2 * 900 * PAGE,
        partitions: 2,
        overprovisioning_permille: 130,
        block_bytes: 32_768,
        ..four_dies()
    };
    parameters.extras = FlashExtras {
        background_below: 4,
        background_idle_ns: 400_000,
        program_jitter_permille: 100,
        planes: 2,
        suspend_limit: limit,
        suspend_ns: 3000,
        resume_ns: 2000,
        slc_cache_bytes: 2 * wordlines * 16_384,
        slc_program_ns: 30_000,
        slc_read_ns: 5000,
        slc_idle_ns: 300_000,
        map_cache_pages: pages,
        ..FlashExtras::default()
    };
    parameters
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u32, bool),
    Read(u64, u32),
    Flush,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..1800u64, 1u32..12, any::<bool>()).prop_map(|(page, pages, fua)| Step::Write(page, pages, fua)),
        4 => (0..1800u64, 1u32..6).prop_map(|(page, pages)| Step::Read(page, pages)),
        1 => Just(Step::Flush),
        3 => (0u64..400_000).prop_map(Step::Wait),
    ];
    prop::collection::vec(step, 1..200)
}

/// Runs the steps on a drive; returns everything that completed, with its end.
fn run(flash: &mut Flash, steps: &[Step]) -> Vec<(u64, u64)> {
    let (mut now, mut id) = (0, 0);
    let mut done = Vec::new();
    let mut present = 0;
    let mut advance = |flash: &mut Flash, to: u64| {
        // Whatever is due next comes at its time, and nothing comes before.
        while let Some(at) = flash.next_event().filter(|&at| at <= to) {
            let (before, used) = (done.len(), flash.buffer_used());
            if at > present {
                flash.advance(at - 1, &mut done);
                assert_eq!((done.len(), flash.buffer_used()), (before, used));
            }
            flash.advance(at, &mut done);
            assert!(done.len() > before || flash.buffer_used() < used, "at {at}");
            assert!(done[before..].iter().all(|due| due.at == at));
            present = at;
        }
        flash.advance(to, &mut done);
        present = to;
    };
    for step in steps {
        let op = match *step {
            Step::Wait(time) => {
                now += time;
                advance(flash, now);
                continue;
            }
            Step::Write(page, pages, true) => forced(page, pages),
            Step::Write(page, pages, false) => write(page, pages),
            Step::Read(page, pages) => read(page, pages),
            Step::Flush => Op::Flush,
        };
        while flash.submit(now, id, &op) == Admission::Stall {
            now = flash.next_event().expect("what stalls waits for something");
            advance(flash, now);
        }
        id += 1;
    }
    advance(flash, u64::MAX / 2);
    assert_eq!(flash.next_event(), None);
    assert_eq!(done.len() as u64, id);
    done.iter().map(|due| (due.at, due.id)).collect()
}

fn prepared(parameters: &FlashParameters) -> Flash {
    let mut flash = drive(parameters);
    (0..1800).for_each(|page| flash.place_only(page));
    flash
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn all_comes_when_it_is_due_and_counts_add_up(
        limit in 0u32..4,
        pages in 0u32..3,
        wordlines in 0u64..9,
        steps in steps(),
    ) {
        let mut flash = prepared(&everything(limit, pages, wordlines));
        run(&mut flash, &steps);
        let held: u64 = flash.partitions.iter().map(|partition| partition.held).sum();
        prop_assert_eq!(flash.buffer_used(), held);
        let counters = flash.counters();
        prop_assert_eq!(counters.map_misses > 0, pages > 0 && steps.iter().any(|step| matches!(step, Step::Read(..) | Step::Write(..))));
        prop_assert!(counters.folded_pages <= counters.host_pages);
        prop_assert_eq!(counters.folded_pages % 4, 0);
        prop_assert!(flash.partitions.iter().all(|partition| partition.cached.dies.is_empty()), "an idle drive folds all");
    }

    /// Mechanisms that are on but never have a reason to act change nothing.
    #[test]
    fn what_never_acts_changes_nothing(steps in steps()) {
        let mut plain = everything(0, 0, 0);
        plain.extras = FlashExtras { planes: 2, ..FlashExtras::default() };
        let mut idle = plain.clone();
        idle.extras.slc_cache_bytes = 1 << 30;
        idle.extras.slc_program_ns = plain.program_ns;
        idle.extras.slc_idle_ns = 10_000_000_000;
        let mut reads_only_the_map = plain.clone();
        reads_only_the_map.extras.map_cache_pages = 8;
        let mut suspending = plain.clone();
        suspending.extras.suspend_limit = 3;
        let expected = run(&mut prepared(&plain), &steps);
        let writes: Vec<Step> = steps.iter().filter(|step| !matches!(step, Step::Read(..))).cloned().collect();
        prop_assert_eq!(run(&mut prepared(&suspending), &writes), run(&mut prepared(&plain), &writes));
        let mut cached = prepared(&idle);
        prop_assert_eq!(run(&mut cached, &steps), expected.clone());
        let mut warm = prepared(&reads_only_the_map);
        for partition in &mut warm.partitions {
            partition.map.as_mut().map(|map| map.ask(0));
        }
        prop_assert_eq!(run(&mut warm, &steps), expected);
    }
}
