//! Greedy: chooses the line with the fewest valid pages; of several the one filled first.

use super::{Lines, Policy};

#[derive(Debug)]
pub(super) struct Greedy;

impl Policy for Greedy {
    fn victim(&mut self, lines: &Lines) -> Option<u32> {
        let victim = lines
            .with_fewest_valid()
            .max_by_key(|&line| lines.age(line))?;
        (lines.valid(victim) < lines.pages()).then_some(victim)
    }
}
