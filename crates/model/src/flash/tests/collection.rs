//! Collection, step by step, on drives that were filled in no time.

use super::*;

const START: u64 = 1_000_000_000;

/// 248 pages are placed: the lines 0 to 49 hold pages 0 to 199 in order, and of the first 16 of
/// them all but the last page were written again, into lines 50 to 61. Two lines are free, and the
/// next write has no credit.
fn about_to_collect(parameters: &FlashParameters) -> Flash {
    let mut flash = drive(parameters);
    (0..200).for_each(|page| flash.place_only(page));
    let but_the_last = (0..64).filter(|page| page % 4 != 3);
    but_the_last.for_each(|page| flash.place_only(page));
    assert_eq!(flash.free_lines(), 2);
    assert_eq!(flash.counters().collected_pages, 0);
    flash
}

fn lines(flash: &Flash) -> &Lines {
    flash.partitions().next().unwrap().lines
}

#[test]
fn a_line_is_collected_before_the_page_that_has_no_credit() {
    let mut flash = about_to_collect(&one_die());
    let collected = 20_000 + 4096 + 4096 + 100_000; // the last page is of the second kind
    let erased = collected + 1_000_000;
    // The data arrives long before the die is free.
    assert_eq!(
        durations(&mut flash, &[(START, forced(199, 1))]),
        [erased + 4096 + 100_000]
    );
    let counters = flash.counters();
    assert_eq!(
        counters,
        Counters {
            host_pages: 249,
            collected_pages: 1,
            erased_lines: 1,
            ..Counters::default()
        }
    );
    // Line 62 was opened for the collected page, line 63 for the host's, and line 0 is free.
    assert_eq!(lines(&flash).free(), 1);
    assert_eq!((lines(&flash).erases(0), lines(&flash).valid(0)), (1, 0));
    assert_eq!((lines(&flash).valid(62), lines(&flash).valid(63)), (1, 1));
    assert_eq!(
        flash.wear(),
        Wear {
            least: 0,
            most: 1,
            total: 1,
            lines: 64
        }
    );
}

#[test]
fn credits_are_what_the_victim_gained() {
    let mut flash = about_to_collect(&one_die());
    let collected = |flash: &Flash| flash.counters().erased_lines;
    // Three pages of each victim were not valid: every third write collects.
    for (page, expected) in (100..).step_by(4).zip([1, 1, 1, 2, 2, 2, 3, 3, 3, 4]) {
        flash.place_only(page);
        assert_eq!(collected(&flash), expected, "{page}");
    }
    assert_eq!(flash.counters().collected_pages, 4);
}

#[test]
fn lines_are_opened_in_the_order_in_which_they_came_free() {
    let mut flash = about_to_collect(&one_die());
    // Writes take line 63 and then line 0, which came free first.
    (100..105).for_each(|page| flash.place_only(page));
    assert_eq!(lines(&flash).valid(63), 4);
    assert_eq!(lines(&flash).valid(0), 1);
}

#[test]
fn what_is_collected_is_programmed_when_its_whole_wordline_is_sensed() {
    // Flash pages and wordlines of two pages; lines of four pages, two wordlines.
    let mut parameters = one_die();
    parameters.flash_page_bytes = 8192;
    parameters.oneshot_bytes = 8192;
    let mut flash = drive(&parameters);
    (0..200).for_each(|page| flash.place_only(page));
    // Lines 0 to 23 keep their pages 0 and 2, one in each flash page.
    (0..96)
        .filter(|page| page % 2 == 1)
        .for_each(|page| flash.place_only(page));
    assert_eq!(flash.free_lines(), 2);
    let first = 10_000 + 4096; // the first flash page, of the first kind
    let second = first + 20_000 + 4096;
    let programmed = second + 8192 + 100_000;
    let erased = programmed + 1_000_000;
    let ops = [(START, forced(198, 2))];
    assert_eq!(durations(&mut flash, &ops), [erased + 8192 + 100_000]);
    assert_eq!(flash.counters().collected_pages, 2);
}

#[test]
fn a_wordline_of_collection_that_is_not_full_waits_for_the_next_victim() {
    let mut parameters = one_die();
    parameters.flash_page_bytes = 8192;
    parameters.oneshot_bytes = 8192;
    let mut flash = drive(&parameters);
    (0..200).for_each(|page| flash.place_only(page));
    // As in `about_to_collect`: each victim has one valid page, its last, in a flash page of the
    // second kind.
    (0..64)
        .filter(|page| page % 4 != 3)
        .for_each(|page| flash.place_only(page));
    let erased = 20_000 + 4096 + 1_000_000;
    // The collected page fills no wordline; the host's first page fills none either.
    let durations_of = |flash: &mut Flash, now, page| {
        let mut done = Vec::new();
        flash.advance(now, &mut done);
        flash.submit(now, page, &forced(page, 1));
        flash.dies.all_free().saturating_sub(now)
    };
    assert_eq!(durations_of(&mut flash, START, 100), erased);
    // Its second page does.
    let second = durations_of(&mut flash, START + 10_000_000, 101);
    assert_eq!(second, 500 + 100 + 1024 + 8192 + 100_000);
    // The fourth collects again: now two pages are there, sensed far apart, and programmed after
    // the second.
    assert_eq!(durations_of(&mut flash, START + 20_000_000, 102), 0);
    let again = durations_of(&mut flash, START + 30_000_000, 103);
    let collected = 20_000 + 4096 + 8192 + 100_000 + 1_000_000;
    assert_eq!(again, collected + 8192 + 100_000);
}

/// Two dies with a channel each, flash pages of one page, wordlines of two, blocks of two
/// wordlines. The first die is busy for 43288 ns with reads when a line is collected whose pages
/// `kept` are valid; gives from when on the second die is free.
fn second_die_after_collection(kept: [u64; 4]) -> u64 {
    let mut parameters = one_die();
    parameters.size_bytes = 400 * PAGE;
    parameters.channels = 2;
    parameters.oneshot_bytes = 8192;
    let mut flash = drive(&parameters);
    (0..400).for_each(|page| flash.place_only(page));
    let others = (0..192).filter(|page| !kept.contains(&(page % 8)));
    others.for_each(|page| flash.place_only(page));
    assert_eq!(flash.free_lines(), 2);
    let mut ops = vec![(START, read(392, 1)); 3];
    ops.extend([(START, write(399, 1)), (START, read(394, 1))]);
    let done = durations(&mut flash, &ops);
    assert_eq!(flash.counters().collected_pages, 4);
    assert_eq!(done[2], 43_288 + 1024);
    done[4] - (10_000 + 4096 + 1024)
}

#[test]
fn a_wordline_of_collection_waits_for_the_slowest_of_its_own_senses() {
    // The first wordline has pages 2 and 3, of the second die, sensed to 14096 and 38192; it goes
    // to the first die, 43288 to 51480, programmed at 151480. Of the second wordline page 4 is
    // sensed there after that, to 165576, page 6 on the second die, to 52288. It goes to the second
    // die at 165576.
    assert_eq!(
        second_die_after_collection([2, 3, 4, 6]),
        165_576 + 8192 + 100_000 + 1_000_000
    );
    // The first wordline has page 0, sensed to 57384, and page 2, to 14096. The second has 3 and 6,
    // of the second die, sensed to 38192 and 52288, and does not wait for what the first waited
    // for.
    assert_eq!(
        second_die_after_collection([0, 2, 3, 6]),
        52_288 + 8192 + 100_000 + 1_000_000
    );
}

#[test]
fn every_die_of_the_victim_is_erased_and_flash_pages_go_before_dies() {
    // Two dies on one channel, a flash page and wordline of one page, two rows: line pages 0, 1 are
    // row 0 of dies 0, 1, and 2, 3 row 1.
    let mut parameters = one_die();
    parameters.dies_per_channel = 2;
    parameters.block_bytes = 8192;
    let mut flash = drive(&parameters);
    (0..200).for_each(|page| flash.place_only(page));
    // Lines 0 to 23 keep pages 1 and 2: row 0 of die 1 and row 1 of die 0.
    (0..96)
        .filter(|page| page % 4 == 0 || page % 4 == 3)
        .for_each(|page| flash.place_only(page));
    assert_eq!(flash.free_lines(), 2);
    // Row 0 first: die 1 senses (kind 0) to 10000 and is on the channel to 14096. Its page goes to
    // die 0 of the new line: on the channel from 14096 to 18192, programmed at 118192. Then die 0
    // senses (kind 1) after that, to 138192, channel to 142288; goes to die 1, which is free since
    // 14096: channel 142288 to 146384, programmed at 246384. Erased: die 0 at 1142288, die 1
    // at 1246384.
    let mut done = Vec::new();
    flash.submit(START, 0, &forced(199, 1));
    assert_eq!(flash.dies.all_free() - START, 1_246_384);
    flash.advance(u64::MAX, &mut done);
    // The host's page goes to die 0 of its line.
    assert_eq!(done[0].at - START, 1_142_288 + 4096 + 100_000);
}

#[test]
fn policies_choose_differently() {
    let victim = |policy, rewrite: &[u64]| {
        let mut parameters = one_die();
        parameters.policy = policy;
        let mut flash = drive(&parameters);
        (0..200).for_each(|page| flash.place_only(page));
        rewrite.iter().for_each(|&page| flash.place_only(page));
        assert_eq!(flash.counters().erased_lines, 0);
        flash.place_only(199);
        let erased = lines(&flash)
            .all()
            .filter(|&line| lines(&flash).erases(line) > 0);
        erased.collect::<Vec<_>>()
    };
    // Line 3 loses three pages, line 1 one, all others none, until 48 pages are written again. Of
    // those, 44 are written again at once.
    let mut rewrite = vec![12, 13, 14, 4];
    rewrite.extend((0..44).map(|_| 199));
    // Lines 51 to 60 hold only copies of page 199 that are not valid any more; line 51 is the first
    // of them.
    assert_eq!(victim(CollectionPolicy::Greedy, &rewrite), [51]);
    assert_eq!(victim(CollectionPolicy::Fifo, &rewrite), [1]);
    assert_eq!(victim(CollectionPolicy::CostBenefit, &rewrite), [51]);
    // Pages of lines 20 to 31: line 40 loses three pages, line 5 two.
    let mut rewrite = vec![160, 161, 162, 20, 21];
    rewrite.extend((0..43).map(|index| 80 + index));
    assert_eq!(victim(CollectionPolicy::Greedy, &rewrite), [20]);
    // Line 5: 2 / (2 * 2) * 225, less than line 20 without a valid page, which comes before all.
    assert_eq!(victim(CollectionPolicy::CostBenefit, &rewrite), [20]);
    assert_eq!(victim(CollectionPolicy::Fifo, &rewrite), [5]);
}

#[test]
fn cost_benefit_weighs_age_against_gain() {
    let mut lines = Lines::new(4, 8);
    let fill = |lines: &mut Lines, invalid: u32| {
        let line = lines.open();
        (0..8).for_each(|_| lines.place(line, 1));
        lines.fill(line);
        (0..invalid).for_each(|_| lines.invalidate(line));
    };
    fill(&mut lines, 3); // 3 * 24 / 10 = 7.2
    fill(&mut lines, 4); // 4 * 16 / 8 = 8
    fill(&mut lines, 6); // 6 * 8 / 4 = 12
    fill(&mut lines, 7); // 7 * 0 / 2 = 0
    let victim = |lines: &Lines, named| policy::policy(named).victim(lines);
    assert_eq!(victim(&lines, CollectionPolicy::CostBenefit), Some(2));
    assert_eq!(victim(&lines, CollectionPolicy::Greedy), Some(3));
    assert_eq!(victim(&lines, CollectionPolicy::Fifo), Some(0));
    lines.take(2);
    assert_eq!(victim(&lines, CollectionPolicy::CostBenefit), Some(1));
    lines.take(3);
    lines.take(1);
    lines.take(0);
    assert_eq!(victim(&lines, CollectionPolicy::CostBenefit), None);
    assert_eq!(victim(&lines, CollectionPolicy::Greedy), None);
}

#[test]
fn a_line_without_an_invalid_page_is_no_victim() {
    let mut lines = Lines::new(2, 4);
    for _ in 0..2 {
        let line = lines.open();
        (0..4).for_each(|_| lines.place(line, 1));
        lines.fill(line);
    }
    for named in [
        CollectionPolicy::Greedy,
        CollectionPolicy::Fifo,
        CollectionPolicy::CostBenefit,
    ] {
        assert_eq!(policy::policy(named).victim(&lines), None);
    }
    // Among lines with equally few valid pages the one filled first, regardless of the order of
    // changes.
    lines.invalidate(0);
    lines.invalidate(1);
    assert_eq!(
        policy::policy(CollectionPolicy::Greedy).victim(&lines),
        Some(0)
    );
}
