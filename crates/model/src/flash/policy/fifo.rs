//! Fifo: chooses the line that was filled first and has an invalid page.

use super::{Lines, Policy};

#[derive(Debug)]
pub(super) struct Fifo;

impl Policy for Fifo {
    fn victim(&mut self, lines: &Lines) -> Option<u32> {
        lines
            .by_age()
            .find(|&line| lines.valid(line) < lines.pages())
    }
}
