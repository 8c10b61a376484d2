//! The cost of mediation for a reactor, by the clock: a drive of nothing behind a controller and
//! driven
//! directly, and a medium of nothing, in one thread, so that no data moves between the caches of
//! two cores. Prints nanoseconds per command, as JSON; medians of rounds that take turns.

use std::time::Instant;

use tests_counts::{DirectDrive, Doorbells, Load, Mediated, Rig, null};

const ROUNDS: usize = 101;
/// Commands of a round.
const COMMANDS: u32 = 31 * 32 * 40;

/// Nanoseconds per command of a round in batches of so many.
fn round(size: u32, batches: &mut dyn FnMut(u32, u32)) -> f64 {
    let start = Instant::now();
    batches(COMMANDS / size, size);
    start.elapsed().as_nanos() as f64 / f64::from(COMMANDS)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    for size in [1, 32] {
        let mut null = Rig::new(null(), Doorbells::Mapped, Load::READ);
        let mut direct = DirectDrive::new(Load::READ);
        let mut mediated = Mediated::new(Load::READ);
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            times[0].push(round(size, &mut |count, size| null.batches(count, size)));
            times[1].push(round(size, &mut |count, size| direct.batches(count, size)));
            times[2].push(round(size, &mut |count, size| {
                mediated.batches(count, size)
            }));
        }
        let [null, direct, mediated] = times.map(median);
        println!(
            "{{\"batch\":{size},\"null_ns\":{null:.1},\"direct_ns\":{direct:.1},\"mediated_ns\":{mediated:.1},\"added_ns\":{:.1}}}",
            mediated - direct
        );
    }
}
