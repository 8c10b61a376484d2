//! Cost of collection under uniform random writes, for several seeds, and the speed at which pages
//! are placed: `cargo run --release -p model --example collection`.
//!
//! Write amplification after it has settled, with the interval of twice the standard error of the
//! seeds; for drives of 512 lines of 64 pages, as they are in published simulations, and of 8192
//! lines, where the lines that are kept free no longer count. Then page operations per second on
//! one core.

use std::time::Instant;

use model::{Arithmetic, CollectionPolicy, Flash, FlashExtras, FlashParameters};

const SEEDS: u64 = 10;

fn parameters(pages: u64, lines: u64, permille: u32, policy: CollectionPolicy) -> FlashParameters {
    FlashParameters {
        arithmetic: Arithmetic::Exact,
        size_bytes: lines * pages * 1000 / (1000 + u64::from(permille)) * 4096,
        partitions: 1,
        channels: 1,
        dies_per_channel: 1,
        flash_page_bytes: 4096,
        oneshot_bytes: 4096,
        block_bytes: pages * 4096,
        cell_bits: 1,
        overprovisioning_permille: permille,
        read_4k_ns: [0; 4],
        read_ns: [0; 4],
        program_ns: 0,
        erase_ns: 0,
        channel_bandwidth_bytes_per_s: 0,
        max_channel_transfer_bytes: 4096,
        firmware_channel_transfer_ns: 0,
        link_bandwidth_bytes_per_s: 0,
        firmware_read_4k_ns: 0,
        firmware_read_ns: 0,
        buffer_bytes: 4096,
        buffer_base_ns: 0,
        buffer_per_page_ns: 0,
        early_completion: true,
        deallocate_ns: 0,
        collect_below: 2,
        policy,
        extras: FlashExtras::default(),
    }
}

/// Numbers from a seed (xorshift, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)) * u128::from(end)) >> 64) as u64
    }
}

/// A drive that was filled, and overwritten `capacities` times at random.
fn settled(parameters: &FlashParameters, random: &mut Random, capacities: u64) -> (Flash, u64) {
    let mut flash = Flash::new(parameters).expect("the shape is a possible one");
    let pages = flash.geometry().pages();
    (0..pages).for_each(|page| flash.place_only(page));
    (0..capacities * pages).for_each(|_| flash.place_only(random.below(pages)));
    (flash, pages)
}

fn amplification(parameters: &FlashParameters, seed: u64) -> f64 {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let (mut flash, pages) = settled(parameters, &mut random, 5);
    let start = flash.counters();
    (0..5 * pages).for_each(|_| flash.place_only(random.below(pages)));
    let end = flash.counters();
    let collected = (end.collected_pages - start.collected_pages) as f64;
    1.0 + collected / (end.host_pages - start.host_pages) as f64
}

fn speed(gibibytes: u64) {
    // 32 MiB lines: four dies with blocks of 8 MiB, as of a partition of a drive.
    let size_bytes = gibibytes << 30;
    let parameters = FlashParameters {
        size_bytes,
        channels: 2,
        dies_per_channel: 2,
        flash_page_bytes: 32_768,
        oneshot_bytes: 32_768,
        block_bytes: 8 << 20,
        buffer_bytes: 1 << 20,
        ..parameters(64, 512, 70, CollectionPolicy::Greedy)
    };
    let begin = Instant::now();
    let mut random = Random(1);
    let (mut flash, pages) = settled(&parameters, &mut random, 1);
    let prepared = begin.elapsed();
    let start = flash.counters();
    let begin = Instant::now();
    (0..pages / 2).for_each(|_| flash.place_only(random.below(pages)));
    let elapsed = begin.elapsed().as_secs_f64();
    let end = flash.counters();
    let host = (end.host_pages - start.host_pages) as f64;
    let collected = (end.collected_pages - start.collected_pages) as f64;
    println!(
        "{gibibytes} GiB: {:.1} M page operations/s ({:.2} M of hosts), write amplification {:.2}, after {:.1} s of preparation",
        (host + collected) / elapsed / 1e6,
        host / elapsed / 1e6,
        1.0 + collected / host,
        prepared.as_secs_f64(),
    );
}

fn main() {
    let only_speed = std::env::args().any(|argument| argument == "--speed");
    for gibibytes in [4, 16, 64] {
        speed(gibibytes);
    }
    if only_speed {
        return;
    }
    for (lines, policy) in [
        (512, CollectionPolicy::Fifo),
        (512, CollectionPolicy::Greedy),
        (512, CollectionPolicy::CostBenefit),
        (8192, CollectionPolicy::Fifo),
        (8192, CollectionPolicy::Greedy),
    ] {
        for permille in [70, 140, 280] {
            let parameters = parameters(64, lines, permille, policy);
            let found: Vec<f64> = (1..=SEEDS)
                .map(|seed| amplification(&parameters, seed))
                .collect();
            let mean = found.iter().sum::<f64>() / SEEDS as f64;
            let squares: f64 = found.iter().map(|one| (one - mean).powi(2)).sum();
            let error = (squares / (SEEDS * (SEEDS - 1)) as f64).sqrt();
            println!(
                "{policy:?}, {lines} lines of 64 pages, {}.{} %: {mean:.3} +- {:.3} ({SEEDS} seeds)",
                permille / 10,
                permille % 10,
                2.0 * error
            );
        }
    }
}
