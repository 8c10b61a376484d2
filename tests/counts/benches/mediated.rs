//! Instructions of mediated pass-through under callgrind: what a reactor does between a host's
//! queue and a drive's.
//!
//! Every function here does what it does for [`COMMANDS`] commands. The drive is a controller of
//! ours in the same thread, and what it does for them is counted, too: what mediation adds is
//! `mediated` less `driven`.

#![expect(
    missing_docs,
    reason = "the macros make public items without documentation"
)]

use gungraun::prelude::*;
use tests_counts::{COMMANDS, DirectDrive, Load, Mediated};

const READ_32K: Load = Load {
    opcode: 2,
    bytes: 32 << 10,
};

// Commands of a host that become commands of a drive: fetched, checked, translated, placed, done by
// the drive, completed.
#[library_benchmark]
#[bench::batch_of_32((Mediated::new(Load::READ), 32))]
#[bench::batch_of_32_writes((Mediated::new(Load::WRITE), 32))]
#[bench::batch_of_32_of_32k((Mediated::new(READ_32K), 32))]
#[bench::one_by_one((Mediated::new(Load::READ), 1))]
fn mediated((mut rig, size): (Mediated, u32)) -> Mediated {
    rig.batches(COMMANDS / size, size);
    rig
}

// The same drive driven directly.
#[library_benchmark]
#[bench::batch_of_32((DirectDrive::new(Load::READ), 32))]
#[bench::one_by_one((DirectDrive::new(Load::READ), 1))]
fn driven((mut rig, size): (DirectDrive, u32)) -> DirectDrive {
    rig.batches(COMMANDS / size, size);
    rig
}

library_benchmark_group!(name = drive, benchmarks = [mediated, driven]);

/// As for the other counts.
fn settings() -> LibraryBenchmarkConfig {
    let mut settings = LibraryBenchmarkConfig::default();
    let features = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512F,-ERMS,-FSRM";
    settings.env("GLIBC_TUNABLES", features);
    settings
}

main!(config = settings(), library_benchmark_groups = drive);
