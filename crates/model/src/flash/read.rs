//! Reads: in each partition first missing map pages, then flash pages, which are sent over the
//! link.

use super::{Dies, Flash, For, Geometry, Link, Sense, logical_pages, postpone};
use crate::units::{PAGE, pages_touched};

impl Flash {
    /// Completion time of a read.
    pub(super) fn read(&mut self, now: u64, offset: u64, len: u32) -> u64 {
        let count = self.geometry.partitions;
        let begin = self.costs.before_read(len, PAGE * u64::from(count));
        let begin = now.saturating_add(begin);
        let pages = pages_touched(offset, len, self.geometry.pages());
        let mut done = begin;
        let mut unmapped = false;
        for (index, partition) in (0..count).zip(&mut self.partitions) {
            let logical = logical_pages(&pages, index, count);
            let at = partition.ask_map(&mut self.dies, &logical, now, begin, For::Read);
            let mut senses = Senses {
                geometry: &self.geometry,
                first_die: partition.first_die,
                dies: &mut self.dies,
                link: &mut self.link,
                now,
                at,
                run: None,
                unmapped,
                done,
            };
            for logical in logical {
                senses.page(partition.ftl.lookup(logical));
            }
            senses.end_run();
            (done, unmapped) = (senses.done, senses.unmapped);
        }
        self.reads += 1;
        self.unmapped_reads += u64::from(unmapped);
        postpone(&mut self.dies, &mut self.pending, &mut self.buffer);
        done
    }
}

/// The senses of a read, in one partition.
struct Senses<'a> {
    geometry: &'a Geometry,
    first_die: usize,
    dies: &'a mut Dies,
    link: &'a mut Link,
    now: u64,
    at: u64,
    /// Consecutive pages of one flash page: the place of the first, and their number.
    run: Option<(u32, u32)>,
    /// Whether the read has touched an unmapped page, in this partition or one before.
    unmapped: bool,
    done: u64,
}

impl Senses<'_> {
    /// Adds the next page, with its place.
    fn page(&mut self, place: Option<u32>) {
        let flash_page = self.geometry.die.flash_page;
        match (place, &mut self.run) {
            // Lines are whole flash pages, so these places are in one flash page.
            (Some(place), Some((first, count))) if place / flash_page == *first / flash_page => {
                *count += 1;
            }
            (Some(place), _) => {
                self.end_run();
                self.run = Some((place, 1));
            }
            (None, _) => {
                self.end_run();
                self.unmapped = true;
                let sent = self.link.send_unmapped(self.now, self.at);
                self.done = self.done.max(sent);
            }
        }
    }

    fn end_run(&mut self) {
        let Some((place, pages)) = self.run.take() else {
            return;
        };
        let (die, flash_page) = self.geometry.position(place);
        let sense = Sense {
            die: self.first_die + die as usize,
            flash_page,
            pages,
        };
        let arrived = self
            .dies
            .sense_for_host(self.now, self.at, sense, self.link);
        self.done = self.done.max(arrived);
    }
}
