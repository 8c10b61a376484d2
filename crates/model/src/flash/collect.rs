//! Garbage collection: the valid pages of a line are rewritten elsewhere, and the line is erased.

use super::ftl::{DieWork, Ftl, Writer};
use super::geometry::FlashPage;

impl Ftl {
    /// Collects one line; returns the number of its invalid pages, or `None` if no line has any.
    pub(super) fn collect(&mut self, work: &mut impl DieWork) -> Option<u32> {
        let victim = self.policy.victim(&self.lines)?;
        let shape = self.geometry;
        let valid = self.lines.valid(victim);
        self.lines.take(victim);
        self.collected_pages += u64::from(valid);
        // By ascending flash page of the block, then by die.
        let per_row = shape.die.wordline / shape.die.flash_page;
        let row_pages = shape.dies * shape.die.wordline;
        let mut left = valid;
        for index in 0..shape.die.rows * per_row {
            if left == 0 {
                break;
            }
            let flash_page = shape.die.flash_page_at(u64::from(index));
            let first = victim * shape.line
                + index / per_row * row_pages
                + index % per_row * shape.die.flash_page;
            for die in 0..shape.dies {
                let first = first + die * shape.die.wordline;
                left -= self.collect_flash_page(first, die, flash_page, work);
            }
        }
        work.erase();
        self.lines.release(victim);
        Some(shape.line - valid)
    }

    /// Collects the flash page that begins at `first`; returns the number of its valid pages.
    fn collect_flash_page(
        &mut self,
        first: u32,
        die: u32,
        flash_page: FlashPage,
        work: &mut impl DieWork,
    ) -> u32 {
        let places = first..first + self.geometry.die.flash_page;
        let count = places.clone().filter(|&place| self.held(place).is_some());
        let valid = count.map(|_| 1).sum();
        if valid > 0 {
            work.sense(die, flash_page, valid);
        }
        for place in places {
            if let Some(logical) = self.lift(place) {
                self.place(Writer::Collection, logical, work);
            }
        }
        valid
    }
}
