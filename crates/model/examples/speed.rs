//! How many commands a model takes in a second of wall time, on one core:
//! `cargo run --release -p model --example speed`.
//!
//! Closed loops: the depth is the number of commands in flight, and the next command follows each
//! completion.

use std::time::Instant;

use model::preset::preset;
use model::{Admission, Model, Op, Parameters, Timing};

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

struct Case {
    name: &'static str,
    size: u64,
    depth: u64,
    len: u32,
    reads_of_ten: u64,
}

fn run(case: &Case) {
    const COMMANDS: u64 = 1_000_000;
    let preset = preset(case.name).expect("a preset that is there");
    let parameters: Parameters = preset
        .parameters(case.size, None)
        .expect("a size that will do");
    let mut model = Model::new(&parameters).expect("parameters that were checked");
    let mut random = Random(1);
    if let Model::Flash(flash) = &mut model {
        let pages = flash.geometry().pages();
        (0..pages).for_each(|page| flash.place_only(page));
        (0..pages).for_each(|_| flash.place_only(random.below(pages)));
    }
    let mut op = || {
        let offset = random.below(case.size / u64::from(case.len)) * u64::from(case.len);
        if random.below(10) < case.reads_of_ten {
            Op::Read {
                offset,
                len: case.len,
            }
        } else {
            Op::Write {
                offset,
                len: case.len,
                fua: false,
            }
        }
    };
    let begin = Instant::now();
    let (mut now, mut submitted, mut under_way) = (0, 0, 0);
    let mut next = op();
    let mut done = Vec::new();
    while submitted < COMMANDS {
        while under_way < case.depth && model.submit(now, submitted, &next) == Admission::Accepted {
            submitted += 1;
            under_way += 1;
            next = op();
        }
        now = model.next_event().expect("commands are in flight");
        model.advance(now, &mut done);
        under_way -= done.len() as u64;
        done.clear();
    }
    let elapsed = begin.elapsed().as_secs_f64();
    println!(
        "{} {} B, {} of 10 read, depth {}: {:.2} M commands/s of wall time, {:.0} K/s of the model's",
        case.name,
        case.len,
        case.reads_of_ten,
        case.depth,
        COMMANDS as f64 / elapsed / 1e6,
        COMMANDS as f64 / (now as f64 / 1e9) / 1e3,
    );
}

fn main() {
    for (name, size, depth, len, reads_of_ten) in [
        ("optane-p4800x", 1 << 30, 32, 4096, 10),
        ("optane-p4800x", 1 << 30, 32, 65_536, 5),
        ("samsung-970-pro", 8 << 30, 1, 4096, 10),
        ("samsung-970-pro", 8 << 30, 128, 4096, 10),
        ("samsung-970-pro", 8 << 30, 32, 131_072, 10),
        ("samsung-970-pro", 8 << 30, 32, 4096, 7),
        ("samsung-970-pro", 8 << 30, 32, 4096, 0),
        ("wd-zn540", 64 << 30, 32, 4096, 10),
    ] {
        run(&Case {
            name,
            size,
            depth,
            len,
            reads_of_ten,
        });
    }
}
