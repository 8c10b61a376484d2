//! Cost-benefit: the gain times its age, divided by the cost of reading and rewriting the valid
//! pages (Rosenblum and Ousterhout, *The Design and Implementation of a Log-Structured File
//! System*, 1992, section 3.6).
//!
//! Chooses the greatest `(pages - valid) * age / (2 * valid)`; of several the line filled first. A
//! line without valid pages comes before all others.

use std::cmp::Ordering;

use super::{Lines, Policy};

#[derive(Debug)]
pub(super) struct CostBenefit;

impl Policy for CostBenefit {
    fn victim(&mut self, lines: &Lines) -> Option<u32> {
        lines
            .by_age()
            .filter(|&line| lines.valid(line) < lines.pages())
            .reduce(|best, line| match compare(lines, line, best) {
                Ordering::Greater => line,
                Ordering::Less | Ordering::Equal => best,
            })
    }
}

/// Compares the fractions exactly. Two lines without valid pages are equal.
fn compare(lines: &Lines, left: u32, right: u32) -> Ordering {
    let valid = |line| u128::from(lines.valid(line));
    let gain = |line| {
        (u128::from(lines.pages()) - valid(line)) * u128::from(lines.age(line)) // below 2^96
    };
    match (valid(left), valid(right)) {
        (0, 0) => Ordering::Equal,
        (0, _) => Ordering::Greater,
        (_, 0) => Ordering::Less,
        (ours, theirs) => (gain(left) * theirs).cmp(&(gain(right) * ours)), // below 2^128
    }
}
