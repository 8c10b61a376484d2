//! A ring of the latest records of one writer, which others read without a lock while it writes.
//!
//! Each entry has a word with the number of its record. The writer clears the word, stores the
//! record, and sets the word again; a reader that finds the same number before and after has read
//! one whole record. A reader never delays the writer. A reader that is too slow finds a later
//! record in place of the one that it wants.

use crate::sync::atomics::{AtomicU64, Ordering, fence};

/// Words of a record; few where every order of loads and stores is tried.
pub const RECORD_WORDS: usize = if cfg!(feature = "loom") { 2 } else { 11 };

#[derive(Debug)]
struct Entry {
    /// The record's number and one; 0 while it is written, and before there is one.
    number: AtomicU64,
    words: [AtomicU64; RECORD_WORDS],
}

/// The last records of one writer.
#[derive(Debug)]
pub struct Records {
    entries: Box<[Entry]>,
    written: AtomicU64,
}

impl Records {
    /// Room for `entries` records, at least one.
    #[must_use]
    pub fn new(entries: usize) -> Self {
        let empty = |_| Entry {
            number: AtomicU64::new(0),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Records {
            entries: (0..entries.max(1)).map(empty).collect(),
            written: AtomicU64::new(0),
        }
    }

    /// Maximum number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// It has room for one at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Records written, ever: the number of the next one.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Adds a record; only its one writer calls this.
    #[inline]
    pub fn push(&self, record: [u64; RECORD_WORDS]) {
        let number = self.written.load(Ordering::Relaxed);
        let entry = self.entry(number);
        entry.number.store(0, Ordering::Relaxed);
        // The race: a reader has the old number, and reads words while they change. A reader
        // that sees one of the new words (the fences pair) sees the 0, too, when it looks at the
        // number again.
        fence(Ordering::Release);
        for (word, value) in entry.words.iter().zip(record) {
            word.store(value, Ordering::Relaxed);
        }
        entry.number.store(number + 1, Ordering::Release);
        self.written.store(number + 1, Ordering::Release);
    }

    /// Record `number`, if it is there still and whole.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<[u64; RECORD_WORDS]> {
        let entry = self.entry(number);
        if entry.number.load(Ordering::Acquire) != number + 1 {
            return None;
        }
        let words = std::array::from_fn(|at| entry.words[at].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (entry.number.load(Ordering::Relaxed) == number + 1).then_some(words)
    }

    fn entry(&self, number: u64) -> &Entry {
        &self.entries[(number % self.entries.len() as u64) as usize]
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn record(of: u64) -> [u64; RECORD_WORDS] {
        std::array::from_fn(|at| of * 100 + at as u64)
    }

    #[test]
    fn the_last_ones_are_there() {
        let records = Records::new(4);
        assert_eq!((records.len(), records.written()), (4, 0));
        assert_eq!(records.get(0), None);
        (0..6).for_each(|of| records.push(record(of)));
        assert_eq!(records.written(), 6);
        let found: Vec<_> = (0..7).map(|number| records.get(number)).collect();
        let kept = |of| Some(record(of));
        assert_eq!(
            found,
            [None, None, kept(2), kept(3), kept(4), kept(5), None]
        );
    }

    /// A read beside a writer gives a whole record, and the one that was asked for.
    #[test]
    fn a_record_is_whole_or_not_there() {
        let records = Records::new(2);
        const COUNT: u64 = 200_000;
        std::thread::scope(|scope| {
            scope.spawn(|| (0..COUNT).for_each(|of| records.push(record(of))));
            while records.written() < COUNT {
                let last = records.written().saturating_sub(1);
                if let Some(words) = records.get(last) {
                    assert_eq!(words, record(last));
                }
            }
            assert_eq!(records.get(COUNT - 1), Some(record(COUNT - 1)));
        });
    }
}
