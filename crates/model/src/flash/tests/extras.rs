//! Mechanisms that are off by default.

use super::*;

/// Like `about_to_collect`: full except for two free lines; the lines 0 to 15 have one valid page
/// each.
fn full(parameters: &FlashParameters) -> Flash {
    let mut flash = drive(parameters);
    (0..200).for_each(|page| flash.place_only(page));
    let but_the_last = (0..64).filter(|page| page % 4 != 3);
    but_the_last.for_each(|page| flash.place_only(page));
    assert_eq!(flash.free_lines(), 2);
    flash
}

fn with_background(below: u32) -> FlashParameters {
    let mut parameters = one_die();
    parameters.extras.background_below = below;
    parameters.extras.background_idle_ns = 1_000_000;
    parameters
}

#[test]
fn an_idle_drive_collects_until_it_has_free_lines_enough() {
    let mut flash = full(&with_background(5));
    // One collection: a sense (kind 1), the channel twice, a program, an erase, on one die.
    let one = 20_000 + 4096 + 4096 + 100_000 + 1_000_000;
    let erased = |flash: &mut Flash, now| {
        flash.advance(now, &mut Vec::new());
        flash.counters().erased_lines
    };
    flash.submit(100, 0, &Op::Flush);
    assert_eq!(erased(&mut flash, 1_000_099), 0);
    assert_eq!(erased(&mut flash, 1_000_100), 1);
    assert_eq!(erased(&mut flash, 1_000_100 + one - 1), 1);
    assert_eq!(erased(&mut flash, 1_000_100 + one), 2);
    // A command comes, and waits for the die; after it there has to be a pause again.
    let arrived = 1_000_100 + one + 900_000;
    flash.submit(arrived, 1, &read(199, 1));
    assert_eq!(erased(&mut flash, arrived + 999_999), 2);
    assert_eq!(erased(&mut flash, arrived + 1_000_000), 3);
    assert_eq!(flash.dies.all_free() - one, arrived + 1_000_000);
    // All pages of the first line except one were invalid: four victims give three lines.
    assert_eq!(erased(&mut flash, u64::MAX), 4);
    assert_eq!(flash.free_lines(), 5);
    assert_eq!(flash.counters().collected_pages, 4);
}

#[test]
fn a_stall_is_no_arrival_and_what_is_off_does_nothing() {
    let mut flash = full(&one_die());
    flash.advance(u64::MAX, &mut Vec::new());
    assert_eq!(flash.counters().erased_lines, 0);
    // Sixteen pages fill the buffer for long; the next command stalls, and the drive has been idle
    // since the first.
    let mut parameters = with_background(3);
    parameters.program_ns = 10_000_000;
    let mut flash = full(&parameters);
    let begin = flash.counters().erased_lines;
    flash.submit(0, 0, &write(100, 16));
    let foreground = flash.counters().erased_lines - begin;
    assert_eq!(flash.submit(900_000, 1, &write(120, 1)), Admission::Stall);
    flash.advance(1_000_000, &mut Vec::new());
    assert_eq!(flash.counters().erased_lines - begin, foreground + 1);
}

#[test]
fn more_free_lines_than_there_can_be_are_refused() {
    // 64 lines, of which 50 hold all pages.
    assert!(Flash::new(&with_background(11)).is_ok());
    let refused = Flash::new(&with_background(12)).unwrap_err().to_string();
    assert!(refused.contains("11 free lines at most"), "{refused}");
    let mut flash = full(&with_background(11));
    flash.advance(u64::MAX, &mut Vec::new());
    assert_eq!(flash.free_lines(), 11, "it ends, and where it should");
}

#[test]
fn chance_is_the_same_from_the_same_seed_and_in_the_order_of_operations() {
    let mut parameters = four_dies();
    parameters.extras.read_jitter_permille = 300;
    parameters.extras.read_retry_ppm = 200_000;
    parameters.extras.seed = 5;
    let run = |parameters: &FlashParameters| {
        let mut flash = drive(parameters);
        (0..64).for_each(|page| flash.place_only(page));
        let ops: Vec<_> = (0..64)
            .map(|page| (page * 1_000_000_000, read(page, 1)))
            .collect();
        durations(&mut flash, &ops)
    };
    let first = run(&parameters);
    assert_eq!(first, run(&parameters));
    parameters.extras.seed = 6;
    assert_ne!(first, run(&parameters));
    // All that is not the sense is as it was.
    assert!(first.iter().all(|&time| time > 1000 + 4096 + 1024));
    assert!(
        first.iter().any(|&time| time > 2 * 20_000 + 6120),
        "repeats"
    );
}

#[test]
fn programs_and_erases_are_spread_on_their_own() {
    let program = |parameters: &FlashParameters| {
        let mut flash = drive(parameters);
        durations(&mut flash, &[(0, forced(0, 4))])[0] - (4996 + 16_384)
    };
    let mut parameters = four_dies();
    parameters.extras.read_jitter_permille = 500;
    parameters.extras.erase_jitter_permille = 500;
    assert_eq!(program(&parameters), 100_000);
    parameters.extras.program_jitter_permille = 500;
    assert_ne!(program(&parameters), 100_000);
}

#[test]
fn a_change_of_the_spread_goes_on_with_the_numbers_and_another_seed_begins_anew() {
    let mut parameters = four_dies();
    parameters.extras.program_jitter_permille = 400;
    let mut flash = drive(&parameters);
    let first = durations(&mut flash, &[(0, forced(0, 4))])[0];
    let again = |flash: &mut Flash, now| {
        flash.pending = Pending::default();
        durations(flash, &[(now, forced(0, 4))])[0]
    };
    flash.retune(&parameters).unwrap();
    assert_ne!(again(&mut flash, 1 << 30), first);
    parameters.extras.seed = 1;
    flash.retune(&parameters).unwrap();
    parameters.extras.seed = 0;
    flash.retune(&parameters).unwrap();
    assert_eq!(
        again(&mut flash, 1 << 31),
        first,
        "from the start of the seed"
    );
}
