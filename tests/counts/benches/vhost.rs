//! Instructions of vhost-user-blk under callgrind: what a back end and its driver do from one
//! request to the next.
//!
//! Every function here does what it does for [`COMMANDS`] requests.

#![expect(
    missing_docs,
    reason = "the macros make public items without documentation"
)]

use gungraun::prelude::*;
use tests_counts::{COMMANDS, Vhost, VhostLoad};

const BATCH: u16 = 32;

// From the ring to the ring, by a session and its controller.
#[library_benchmark]
#[bench::null_split(Vhost::new(VhostLoad::NullSplit, BATCH))]
#[bench::null_packed(Vhost::new(VhostLoad::NullPacked, BATCH))]
#[bench::ram_split(Vhost::new(VhostLoad::RamSplit, BATCH))]
fn vhost_batch_of_32(mut driver: Vhost) -> Vhost {
    driver.batches(COMMANDS / u32::from(BATCH), BATCH.into());
    driver
}

// The same, one request at a time.
#[library_benchmark]
#[bench::null_split(Vhost::new(VhostLoad::NullSplit, 1))]
fn vhost_one_by_one(mut driver: Vhost) -> Vhost {
    driver.batches(COMMANDS, 1);
    driver
}

library_benchmark_group!(
    name = vhost,
    benchmarks = [vhost_batch_of_32, vhost_one_by_one]
);

/// As for the other counts.
fn settings() -> LibraryBenchmarkConfig {
    let mut settings = LibraryBenchmarkConfig::default();
    let features = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512F,-ERMS,-FSRM";
    settings.env("GLIBC_TUNABLES", features);
    settings
}

main!(config = settings(), library_benchmark_groups = vhost);
