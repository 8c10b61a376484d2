//! Hand-computed vectors from the book's page, properties under random programs, and the known cost
//! of collection.

mod amplification;
mod collection;
mod commands;
mod extras;
mod mechanisms;
mod prepare;
mod properties;
mod state;

use super::*;
use crate::units::PAGE_LEN;
use crate::{Arithmetic, CollectionPolicy, FlashExtras};

/// Four dies on two channels, flash pages of two pages, wordlines of four, blocks of four
/// wordlines; 64 lines of 64 pages, 3200 of them logical. A channel carries a byte per nanosecond,
/// the link four.
fn four_dies() -> FlashParameters {
    FlashParameters {
        arithmetic: Arithmetic::Exact,
        size_bytes: 3200 * PAGE,
        partitions: 1,
        channels: 2,
        dies_per_channel: 2,
        flash_page_bytes: 8192,
        oneshot_bytes: 16_384,
        block_bytes: 65_536,
        cell_bits: 2,
        overprovisioning_permille: 280,
        read_4k_ns: [10_000, 20_000, 0, 0],
        read_ns: [15_000, 25_000, 0, 0],
        program_ns: 100_000,
        erase_ns: 1_000_000,
        channel_bandwidth_bytes_per_s: 1_000_000_000,
        max_channel_transfer_bytes: 8192,
        firmware_channel_transfer_ns: 0,
        link_bandwidth_bytes_per_s: 4_000_000_000,
        firmware_read_4k_ns: 1000,
        firmware_read_ns: 2000,
        buffer_bytes: 65_536,
        buffer_base_ns: 500,
        buffer_per_page_ns: 100,
        early_completion: true,
        deallocate_ns: 3000,
        collect_below: 2,
        policy: CollectionPolicy::Greedy,
        extras: FlashExtras::default(),
    }
}

/// One die, all of whose units are one page; 64 lines of four pages, 200 pages of them logical.
fn one_die() -> FlashParameters {
    FlashParameters {
        size_bytes: 200 * PAGE,
        channels: 1,
        dies_per_channel: 1,
        flash_page_bytes: 4096,
        oneshot_bytes: 4096,
        block_bytes: 16_384,
        ..four_dies()
    }
}

fn drive(parameters: &FlashParameters) -> Flash {
    Flash::new(parameters).unwrap()
}

fn read(page: u64, pages: u32) -> Op<'static> {
    Op::Read {
        offset: page * PAGE,
        len: pages * PAGE_LEN,
    }
}

fn write(page: u64, pages: u32) -> Op<'static> {
    Op::Write {
        offset: page * PAGE,
        len: pages * PAGE_LEN,
        fua: false,
    }
}

fn forced(page: u64, pages: u32) -> Op<'static> {
    Op::Write {
        offset: page * PAGE,
        len: pages * PAGE_LEN,
        fua: true,
    }
}

/// Submits operations, all of which are accepted, at their times, and gives how long each takes.
fn durations(flash: &mut Flash, ops: &[(u64, Op<'_>)]) -> Vec<u64> {
    let mut done = Vec::new();
    for (id, (now, op)) in ops.iter().enumerate() {
        flash.advance(*now, &mut done);
        assert!(flash.has_room(op));
        assert_eq!(flash.submit(*now, id as u64, op), Admission::Accepted);
    }
    flash.advance(u64::MAX, &mut done);
    assert_eq!(flash.next_event(), None);
    let mut durations = vec![0; ops.len()];
    for due in done {
        durations[due.id as usize] = due.at - ops[due.id as usize].0;
    }
    durations
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
