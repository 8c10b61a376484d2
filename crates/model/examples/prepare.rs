//! Drives brought into the state of long use, played and seeded: how long that takes, and how far
//! apart they are. `cargo run --release -p model --example prepare -- 8 64` (sizes in GiB; played
//! up to 64, above that seeded only).

use std::time::Instant;

use model::preset::preset;
use model::{Flash, Parameters};

fn main() {
    let mut sizes: Vec<u64> = std::env::args()
        .skip(1)
        .flat_map(|size| size.parse())
        .collect();
    if sizes.is_empty() {
        sizes.push(8);
    }
    for size in sizes {
        let preset = preset("samsung-970-pro").expect("a preset that is there");
        let parameters = preset.parameters(size << 30, None);
        let Ok(Parameters::Flash(parameters)) = parameters else {
            panic!("the preset is one of flash");
        };
        let begin = Instant::now();
        let (seeded, said) = Flash::seeded(&parameters, 1).expect("a size that will do");
        println!(
            "{size} GiB: {said:?} in {:.1} s",
            begin.elapsed().as_secs_f64()
        );
        if size > 64 {
            continue;
        }
        let mut played = Flash::new(&parameters).expect("a size that will do");
        let begin = Instant::now();
        let said = played.precondition(1);
        let seconds = begin.elapsed().as_secs_f64();
        println!(
            "{size} GiB: {said:?} in {seconds:.1} s, {:.1} M page operations/s; valid pages: greatest distance of the shares of lines {:.4}",
            said.page_operations as f64 / seconds / 1e6,
            distance(&played.valid_histogram(64), &seeded.valid_histogram(64))
        );
    }
}

/// The greatest difference of the shares of lines that have at most so many valid pages.
fn distance(left: &[u64], right: &[u64]) -> f64 {
    let all = |histogram: &[u64]| histogram.iter().sum::<u64>() as f64;
    let (mut below, mut greatest) = ((0.0, 0.0), 0.0f64);
    for (one, other) in left.iter().zip(right) {
        below.0 += *one as f64 / all(left);
        below.1 += *other as f64 / all(right);
        greatest = greatest.max((below.0 - below.1).abs());
    }
    greatest
}
