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

#[test]
fn a_seed_repeats_exactly() {
    let options = Options {
        seed: 7,
        commands: 2_000,
        trace_from: u64::MAX,
    };
    let [first, second] = [(); 2].map(|()| simulate(options).expect("it goes well"));
    assert_eq!(first, second);
}
