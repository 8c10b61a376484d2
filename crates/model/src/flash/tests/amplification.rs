//! What collection costs, against closed forms and simulations of others, under uniform random writes.

use super::*;

/// One die whose pages are its wordlines: nothing but lines of `pages` pages.
fn lines_of(pages: u64, lines: u64, permille: u32, policy: CollectionPolicy) -> FlashParameters {
    FlashParameters {
        size_bytes: lines * pages * 1000 / (1000 + u64::from(permille)) * PAGE,
        block_bytes: pages * PAGE,
        overprovisioning_permille: permille,
        policy,
        ..one_die()
    }
}

/// Write amplification of `measured` capacities of uniform random writes, after one in order and `before` random ones.
fn amplification(parameters: &FlashParameters, seed: u64, before: u64, measured: u64) -> f64 {
    let mut flash = drive(parameters);
    let pages = flash.geometry.pages();
    let mut random = Random(seed);
    (0..pages).for_each(|page| flash.place_only(page));
    (0..before * pages).for_each(|_| flash.place_only(random.below(pages)));
    let start = flash.counters();
    (0..measured * pages).for_each(|_| flash.place_only(random.below(pages)));
    let end = flash.counters();
    let host = (end.host_pages - start.host_pages) as f64;
    1.0 + (end.collected_pages - start.collected_pages) as f64 / host
}

/// First in, first out: a page of the oldest line is still valid with probability p = exp(-(1 - p) (1 + OP)), as (1 - p) (1 + OP) capacities were
/// written since; and what is written again is 1 / (1 - p).
fn fifo_in_theory(overprovisioning: f64) -> f64 {
    let mut valid: f64 = 0.5;
    for _ in 0..10_000 {
        valid = (-(1.0 - valid) * (1.0 + overprovisioning)).exp();
    }
    1.0 / (1.0 - valid)
}

#[test]
fn fifo_costs_what_the_closed_form_says() {
    for (permille, published) in [(70, 7.82), (140, 4.25), (280, 2.48)] {
        let theory = fifo_in_theory(f64::from(permille) / 1000.0);
        assert!((theory - published).abs() < 0.01, "{theory}");
        let parameters = lines_of(32, 8192, permille, CollectionPolicy::Fifo);
        let measured = amplification(&parameters, u64::from(permille), 2, 2);
        println!("fifo, {permille} tenths of a percent: {measured:.3}, in theory {theory:.3}");
        assert!(
            (measured / theory - 1.0).abs() < 0.02,
            "{permille}: {measured} {theory}"
        );
    }
}
