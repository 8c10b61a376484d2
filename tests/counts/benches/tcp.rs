//! Instructions of NVMe/TCP under callgrind: what a target does from a capsule to its answer.
//!
//! Every function here does what it does for [`COMMANDS`] commands.

#![expect(
    missing_docs,
    reason = "the macros make public items without documentation"
)]

use gungraun::prelude::*;
use tests_counts::{COMMANDS, Tcp, TcpLoad};

const BATCH: u16 = 32;

// From the socket to the socket, by an association and its controller.
#[library_benchmark]
#[bench::read(Tcp::new(TcpLoad::Read, BATCH))]
#[bench::read_and_response(Tcp::new(TcpLoad::ReadAndResponse, BATCH))]
#[bench::write(Tcp::new(TcpLoad::Write, BATCH))]
fn tcp_batch_of_32(mut host: Tcp) -> Tcp {
    host.batches(COMMANDS / u32::from(BATCH), BATCH.into());
    host
}

// The same, one command at a time.
#[library_benchmark]
#[bench::read(Tcp::new(TcpLoad::Read, 1))]
fn tcp_one_by_one(mut host: Tcp) -> Tcp {
    host.batches(COMMANDS, 1);
    host
}

library_benchmark_group!(name = tcp, benchmarks = [tcp_batch_of_32, tcp_one_by_one]);

/// As for the other counts.
fn settings() -> LibraryBenchmarkConfig {
    let mut settings = LibraryBenchmarkConfig::default();
    let features = "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-AVX512F,-ERMS,-FSRM";
    settings.env("GLIBC_TUNABLES", features);
    settings
}

main!(config = settings(), library_benchmark_groups = tcp);
