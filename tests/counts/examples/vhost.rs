//! Nanoseconds per request over vhost-user-blk, in one thread, so that no data moves between the
//! caches of two cores.

use std::time::Instant;

use tests_counts::{Vhost, VhostLoad};

fn main() {
    for load in [
        VhostLoad::NullSplit,
        VhostLoad::NullPacked,
        VhostLoad::RamSplit,
    ] {
        for size in [1, 32] {
            let mut vhost = Vhost::new(load, 32);
            let mut best = f64::MAX;
            for _ in 0..50 {
                let start = Instant::now();
                vhost.batches(32_000 / size, size);
                best = best.min(start.elapsed().as_nanos() as f64 / 32_000.0);
            }
            println!("{load:?} {size}: {best:.1} ns");
        }
    }
}
