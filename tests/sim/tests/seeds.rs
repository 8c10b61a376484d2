//! Seeds that run with every check of a debug build: a ticket that is dropped panics there.

use tests_sim::{Options, simulate};

/// I/O commands of each.
const COMMANDS: u64 = 20_000;

fn run(seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let options = Options {
            seed,
            commands: COMMANDS,
            trace_from: u64::MAX,
            kills: false,
            more: false,
        };
        if let Err(found) = simulate(options) {
            panic!("{found}");
        }
    }
}

#[test]
fn seeds_from_1() {
    run(1..13);
}

#[test]
fn seeds_from_13() {
    run(13..25);
}

/// The process dies 1 to 30 times in each: in seeds 138 and 1097 while a queue is on its way to a
/// lane, and in seed 573 while a doorbell is in a message that was not read.
#[test]
fn seeds_with_kills() {
    for seed in (1..40).chain(80..86).chain([138, 573, 1097]) {
        let options = Options {
            seed,
            commands: 5_000,
            trace_from: u64::MAX,
            kills: true,
            more: false,
        };
        if let Err(found) = simulate(options) {
            panic!("{found}");
        }
    }
}

/// Hosts do more, and the process dies. Zones are in the worlds with one reactor.
#[test]
fn seeds_with_more() {
    for seed in 1..40 {
        let options = Options {
            seed,
            commands: 5_000,
            trace_from: u64::MAX,
            kills: true,
            more: true,
        };
        if let Err(found) = simulate(options) {
            panic!("{found}");
        }
    }
}

/// The process dies between two slices of a Write Zeroes, in the middle of a block, while a read of
/// that block is in flight.
#[test]
fn a_read_that_is_executed_again_sees_no_half_of_a_write() {
    let options = Options {
        seed: 20_845,
        commands: 50_000,
        trace_from: u64::MAX,
        kills: true,
        more: false,
    };
    if let Err(found) = simulate(options) {
        panic!("{found}");
    }
}

#[test]
fn a_seed_repeats_exactly() {
    let options = Options {
        seed: 7,
        commands: 2_000,
        trace_from: u64::MAX,
        kills: false,
        more: false,
    };
    let [first, second] = [(); 2].map(|()| simulate(options).expect("it goes well"));
    assert_eq!(first, second);
}
