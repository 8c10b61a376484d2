//! Numbers of changes, by which a command that is executed again after a death of the process finds
//! whether it has had its effect.
//!
//! A change has the next number. The log has the number before the change, in the same frame, so
//! that it has both or none. The note of a command is the number that its change would have.
//!
//! Invariants:
//! - A number is used once: its upper bits are the incarnation of the log, which is durable before
//!   the first change, so that the numbers of changes which a death has lost are not used again.
//! - Numbers of one process are in the log in their order, without gaps: it has those up to its
//!   last one.
//!
//! Not included: commands without a note, whose changes have no number.

use arrayvec::ArrayVec;

use crate::journal::StateError;

/// Bits of the count in a number; the others are those of the incarnation. A million changes per
/// second use them up in 8 years.
const COUNT_BITS: u32 = 48;
/// Processes whose last numbers are known. Each of them but the last one died before it had
/// executed all commands of the one before, and three such deaths end a server.
const PROCESSES: usize = 16;
/// Bytes of a number in the log.
pub(super) const NUMBER_LEN: usize = 8;

/// The last number of each process, the oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends(ArrayVec<u64, PROCESSES>);

impl Ends {
    /// Takes a record of the log.
    ///
    /// # Errors
    /// It is no number.
    pub(super) fn take(&mut self, record: &[u8]) -> Result<(), StateError> {
        const STRANGE: StateError = StateError::Damaged("its log has a number that cannot be");
        let number = u64::from_le_bytes(record.try_into().map_err(|_| STRANGE)?);
        // A checkpoint repeats the numbers of all processes.
        if let Some(end) = self.0.iter_mut().find(|end| is_of_one(**end, number)) {
            *end = number.max(*end);
            return Ok(());
        }
        if self.0.is_full() {
            self.0.remove(0);
        }
        self.0.push(number);
        Ok(())
    }

    /// Whether the log has the change with this number.
    fn have(&self, number: u64) -> bool {
        self.0
            .iter()
            .any(|end| is_of_one(*end, number) && number <= *end)
    }
}

/// Whether two numbers are of the same process.
fn is_of_one(a: u64, b: u64) -> bool {
    a >> COUNT_BITS == b >> COUNT_BITS
}

/// Numbers of the changes of this process, and those that it has found.
#[derive(Debug)]
pub(super) struct Numbers {
    found: Ends,
    /// The last one that was used.
    last: u64,
    /// Whether the next record is of a change with a number.
    is_wanted: bool,
}

impl Numbers {
    /// Numbers of a process with this incarnation of the log, in which it has found `found`.
    pub(super) fn new(incarnation: u32, found: Ends) -> Self {
        Numbers {
            found,
            last: u64::from(incarnation) << COUNT_BITS,
            is_wanted: false,
        }
    }

    /// The number of the next change.
    pub(super) fn next(&self) -> u64 {
        self.last + 1
    }

    /// Whether a change has used this number, which is one of this process.
    pub(super) fn is_used(&self, number: u64) -> bool {
        number <= self.last
    }

    /// Whether the change with this number, of any process, has happened. 0: a command whose result
    /// had taken the place of its note.
    pub(super) fn has_happened(&self, number: u64) -> bool {
        number == 0 || self.found.have(number)
    }

    /// Has the next record begin with a number, if `is_wanted`.
    pub(super) fn want(&mut self, is_wanted: bool) {
        self.is_wanted = is_wanted;
    }

    /// Uses the next number, if the record is to have one.
    pub(super) fn use_next(&mut self) -> Option<u64> {
        std::mem::take(&mut self.is_wanted).then(|| {
            self.last += 1;
            self.last
        })
    }

    /// All that a log has to repeat when its start is cut off.
    pub(super) fn all(&self) -> impl Iterator<Item = u64> {
        self.found.0.iter().copied().chain([self.last])
    }
}

/// Bytes of [`Numbers::all`] in the log, with the heads of records.
pub(super) const ALL_LEN: usize = (PROCESSES + 1) * (NUMBER_LEN + 4);

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(numbers: impl IntoIterator<Item = u64>) -> Ends {
        let mut ends = Ends::default();
        for number in numbers {
            ends.take(&number.to_le_bytes()).unwrap();
        }
        ends
    }

    #[test]
    fn a_number_of_one_process_says_nothing_of_another_one() {
        let of = |process: u64, count: u64| process << COUNT_BITS | count;
        let ends = taken([of(3, 1), of(3, 2), of(5, 7)]);
        let numbers = Numbers::new(6, ends);
        for (number, happened) in [
            (0, true),
            (of(3, 2), true),
            (of(3, 3), false),
            (of(4, 1), false),
            (of(5, 7), true),
            (of(5, 8), false),
            (numbers.next(), false),
        ] {
            assert_eq!(numbers.has_happened(number), happened, "{number:#x}");
        }
    }

    #[test]
    fn a_checkpoint_repeats_what_its_log_had() {
        let of = |process: u64, count: u64| process << COUNT_BITS | count;
        let mut numbers = Numbers::new(21, taken((1..=20).map(|process| of(process, 5))));
        numbers.want(true);
        assert_eq!(numbers.use_next(), Some(of(21, 1)));
        assert_eq!(numbers.use_next(), None);
        let again = Numbers::new(22, taken(numbers.all()));
        // The oldest ones make room.
        assert!(!again.has_happened(of(5, 5)) && again.has_happened(of(6, 5)));
        assert!(again.has_happened(of(21, 1)) && !again.has_happened(of(21, 2)));
        assert!(numbers.all().count() * (NUMBER_LEN + 4) <= ALL_LEN);
    }

    #[test]
    fn a_record_of_another_length_is_no_number() {
        assert!(Ends::default().take(&[1; 7]).is_err());
    }
}
