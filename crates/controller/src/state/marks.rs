//! Marks of a command, and the two fields of a slot whose value depends on [`Marks::noted`].
//!
//! A slot has 128 bytes and no spare ones, so each of these fields holds one of two values. The
//! bytes are private to this module: code outside gets one value or the other, by a function that
//! names it, and a note or a name only with the marks that say that there is one.
//!
//! It does NOT know in which order a field and its mark are stored: [`super::slot`] does.

use bitfield_struct::bitfield;
use port::time::Time;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Samples that a lane takes at a time at most, as many as [`Marks`] can name.
pub(crate) const MAX_SAMPLES: usize = (1 << 12) - 1;

/// Additional work at the completion of a command.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Marks {
    /// It writes to blocks that are marked as uncorrectable; success clears their marks.
    #[inline]
    pub clears: bool,
    /// A medium may have acted on it, and a second time would have another result. No work at its
    /// completion: a restart decides by it.
    pub acted: bool,
    /// It has been executed again after a process died by its own fault. A restart decides by it.
    pub suspected: bool,
    /// The sample that it is (`lane::watch`), plus one; 0 for none.
    #[bits(12)]
    #[inline]
    sample_plus_one: u16,
    /// Its result is the note of its medium, which may have acted on the command: a second time
    /// the medium gets the note, too ([`port::Channel::add_again`]). Of a command for the
    /// subsystem, it has a name. A restart decides by it.
    pub noted: bool,
}

impl Marks {
    /// Whether there is any work.
    #[inline(always)]
    pub(crate) fn is_any(self) -> bool {
        const NO_WORK: u16 = Marks::new()
            .with_acted(true)
            .with_suspected(true)
            .with_noted(true)
            .into_bits();
        self.into_bits() & !NO_WORK != 0
    }

    /// The sample that the command is.
    #[inline]
    pub(crate) fn sample(self) -> Option<u16> {
        self.sample_plus_one().checked_sub(1)
    }

    /// Makes the command this sample, which is below [`MAX_SAMPLES`], or none.
    #[inline]
    pub(crate) fn set_sample(&mut self, sample: Option<u16>) {
        self.set_sample_plus_one(sample.map_or(0, |sample| sample + 1));
    }
}

/// A medium's note of a request that it may have acted on ([`port::Channel::note`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note(u64);

impl Note {
    #[inline]
    pub(crate) fn get(self) -> u64 {
        self.0
    }
}

/// Dwords 0 and 1 of a completion. While the command is noted and a medium has it: the medium's
/// note, which is the result that it will have unless the outcome brings another one.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct ResultOrNote(u64);

impl ResultOrNote {
    pub(super) const NONE: Self = Self(0);

    #[inline(always)]
    pub(super) fn of_result(result: u64) -> Self {
        Self(result)
    }

    pub(super) fn of_note(note: u64) -> Self {
        Self(note)
    }

    /// Dwords 0 and 1, the first one in the lower half.
    #[inline(always)]
    pub(super) fn result(self) -> u64 {
        self.0
    }

    /// The note, if the command has one by its `marks`.
    #[inline]
    pub(super) fn note(self, marks: Marks) -> Option<Note> {
        marks.noted().then_some(Note(self.0))
    }
}

/// Time at which a medium got a command, for its gate. While a command for the subsystem is noted:
/// its name. A gate has no command for the subsystem.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
pub struct TimeOrName(u64);

impl TimeOrName {
    #[inline(always)]
    pub(super) fn of_time(time: Time) -> Self {
        Self(time.0)
    }

    pub(super) fn of_name(name: u64) -> Self {
        Self(name)
    }

    /// The time.
    #[inline(always)]
    pub(super) fn time(self) -> Time {
        Time(self.0)
    }

    /// The name, if the command has one by its `marks`.
    #[inline]
    pub(super) fn name(self, marks: Marks) -> Option<u64> {
        marks.noted().then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_or_a_name_is_there_only_with_its_mark() {
        let (unmarked, noted) = (Marks::new().with_acted(true), Marks::new().with_noted(true));
        let note = ResultOrNote::of_note(9);
        assert_eq!(note.note(unmarked), None);
        assert_eq!(note.note(noted).map(Note::get), Some(9));
        let name = TimeOrName::of_name(0);
        assert_eq!((name.name(unmarked), name.name(noted)), (None, Some(0)));
        assert_eq!(ResultOrNote::of_result(5).result(), 5);
        assert_eq!(TimeOrName::of_time(Time(7)).time(), Time(7));
    }

    #[test]
    fn a_sample_and_a_clear_are_apart() {
        let mut marks = Marks::new().with_clears(true);
        for sample in [0, 1, MAX_SAMPLES as u16 - 1] {
            marks.set_sample(Some(sample));
            assert_eq!((marks.sample(), marks.clears()), (Some(sample), true));
        }
        marks.set_clears(false);
        assert!(marks.is_any());
        marks.set_sample(None);
        assert!(!marks.is_any());
        assert!(!marks.with_acted(true).is_any(), "no work");
    }
}
