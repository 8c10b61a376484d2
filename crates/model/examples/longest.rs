//! The longest duration of one call of a model, during which its reactor serves nothing else:
//! `cargo run --release -p model --example longest`.
//!
//! Drives in steady state under random writes, and then deallocated. The same commands are run
//! several times, and of each call the shortest time counts, as the others were interrupted by
//! something else on the machine.

use std::time::Instant;

use model::preset::preset;
use model::{Admission, Model, Op, Parameters, Timing};

const ROUNDS: usize = 5;
const COMMANDS: u64 = 200_000;
const DEPTH: u64 = 32;
/// Bytes of a deallocation.
const PIECE: u64 = 1 << 20;

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

/// Tells a drive that all of it is deallocated, in pieces of `len` bytes: nanoseconds of each.
fn deallocate(model: &mut Model, size: u64, len: u64) -> Vec<u64> {
    let piece = |(id, offset): (u64, u64)| {
        let begin = Instant::now();
        let admission = model.submit(0, id, &Op::Deallocate { offset, len });
        let took = begin.elapsed().as_nanos() as u64;
        assert_eq!(admission, Admission::Accepted);
        took
    };
    (0..size / len)
        .map(|at| (at, at * len))
        .map(piece)
        .collect()
}

/// Nanoseconds of each call.
#[derive(Default)]
struct Calls {
    submit: Vec<u64>,
    advance: Vec<u64>,
}

/// Runs the commands; gives when the last one was done.
fn run(model: &mut Model, size: u64, len: u32, calls: &mut Calls) -> u64 {
    let mut random = Random(1);
    let (mut now, mut submitted, mut under_way) = (0, 0, 0);
    let mut done = Vec::new();
    while submitted < COMMANDS {
        while under_way < DEPTH {
            let offset = random.below(size / u64::from(len)) * u64::from(len);
            let fua = false;
            let op = Op::Write { offset, len, fua };
            if !model.has_room(&op) {
                break;
            }
            let begin = Instant::now();
            let admission = model.submit(now, submitted, &op);
            calls.submit.push(begin.elapsed().as_nanos() as u64);
            assert_eq!(admission, Admission::Accepted);
            submitted += 1;
            under_way += 1;
        }
        now = model.next_event().expect("commands are in flight");
        let begin = Instant::now();
        model.advance(now, &mut done);
        calls.advance.push(begin.elapsed().as_nanos() as u64);
        under_way -= done.len() as u64;
        done.clear();
    }
    now
}

fn least(kept: &mut Vec<u64>, other: Vec<u64>) {
    if kept.is_empty() {
        *kept = other;
        return;
    }
    assert_eq!(
        kept.len(),
        other.len(),
        "the same commands make the same calls"
    );
    for (kept, other) in kept.iter_mut().zip(other) {
        *kept = other.min(*kept);
    }
}

fn tell(name: &str, calls: &mut [u64]) {
    calls.sort_unstable();
    let at = |permyriad: usize| calls[(calls.len() - 1) * permyriad / 10_000] as f64 / 1e3;
    println!(
        "  {name}: p50 {:.2} us, p99 {:.2}, p99.99 {:.2}, longest {:.2}",
        at(5000),
        at(9900),
        at(9999),
        at(10_000),
    );
}

fn measure(name: &str, size: u64, len: u32) {
    let preset = preset(name).expect("a preset that is there");
    let parameters: Parameters = preset.parameters(size, None).expect("a size that will do");
    let mut prepared = Model::new(&parameters).expect("parameters that were checked");
    let flash = prepared.flash_mut().expect("a conventional drive");
    let pages = flash.geometry().pages();
    let mut random = Random(7);
    (0..pages).for_each(|page| flash.place_only(page));
    (0..pages).for_each(|_| flash.place_only(random.below(pages)));
    let mut state = Vec::new();
    flash.save(&mut state);
    let mut kept = Calls::default();
    let mut deallocated = Vec::new();
    let mut ended = None;
    for _ in 0..ROUNDS {
        let mut model = Model::restore(&parameters, &state).expect("a state that was just saved");
        let mut calls = Calls::default();
        let end = run(&mut model, size, len, &mut calls);
        assert_eq!(*ended.get_or_insert(end), end);
        let calls_of_pieces = deallocate(&mut model, size, PIECE);
        least(&mut deallocated, calls_of_pieces);
        least(&mut kept.submit, calls.submit);
        least(&mut kept.advance, calls.advance);
    }
    let flash = prepared.flash().expect("a conventional drive");
    println!(
        "{name}, {} MiB, lines of {} pages, writes of {len} B at random:",
        size >> 20,
        flash.geometry().line
    );
    tell("submit", &mut kept.submit);
    tell("advance", &mut kept.advance);
    tell("deallocation of a MiB", &mut deallocated);
}

fn main() {
    for (size, len) in [
        (5 << 30, 4096),
        (5 << 30, 131_072),
        (16 << 30, 4096),
        (64 << 30, 4096),
    ] {
        measure("samsung-970-pro", size, len);
    }
}
