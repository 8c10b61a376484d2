//! Selects the next command, and fills or checks its data.

use std::ops::Range;

use memory::Buffer;

use super::random::Random;
use super::verify::Ledger;
use super::{Job, Rw};

/// Effect of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Read,
    Write,
    /// A write at the write pointer of the zone that starts at the unit.
    Append,
    /// Resets the zone that starts at the unit.
    Reset,
    /// Finishes the zone that starts at the unit.
    Finish,
}

impl Kind {
    /// Whether it moves a unit of data; otherwise it manages a zone.
    #[inline]
    pub(super) fn moves_data(self) -> bool {
        matches!(self, Kind::Read | Kind::Write | Kind::Append)
    }

    /// A read or a write.
    pub(super) fn of(is_write: bool) -> Self {
        if is_write { Kind::Write } else { Kind::Read }
    }
}

/// One command: mostly a read or a write of one unit of the job's block size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) kind: Kind,
    pub(super) unit: u64,
}

impl Op {
    /// Whether it writes data.
    #[inline]
    pub(super) fn is_write(self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Append)
    }
}

/// A source of commands.
pub(super) trait Traffic {
    /// The next command; `None` when there is none, or none until one that is
    /// in flight is done.
    fn next(&mut self) -> Option<Op>;

    /// `op` is about to be submitted with the data at `at` in `buffer`.
    fn start(&mut self, _op: Op, _buffer: &Buffer, _at: usize) {}

    /// `op` is done; `ok` is whether it succeeded.
    fn finish(&mut self, _op: Op, _ok: bool, _buffer: &Buffer, _at: usize) {}
}

/// The commands of a job, without end.
pub(super) struct Plain {
    rw: Rw,
    reads_percent: u64,
    units: u64,
    random: Random,
    next: u64,
}

impl Plain {
    pub(super) fn new(job: &Job, units: u64) -> Self {
        Self {
            rw: job.rw,
            reads_percent: job.reads_percent.into(),
            units,
            random: Random::new(job.seed),
            next: 0,
        }
    }

    fn in_order(&mut self) -> u64 {
        let unit = self.next;
        self.next = if unit + 1 == self.units { 0 } else { unit + 1 };
        unit
    }
}

impl Traffic for Plain {
    #[inline]
    fn next(&mut self) -> Option<Op> {
        let (kind, unit) = match self.rw {
            Rw::RandRead => (Kind::Read, self.random.below(self.units)),
            Rw::RandWrite => (Kind::Write, self.random.below(self.units)),
            Rw::RandRw => {
                let write = self.random.below(100) >= self.reads_percent;
                (Kind::of(write), self.random.below(self.units))
            }
            Rw::Read => (Kind::Read, self.in_order()),
            Rw::Write | Rw::Append => (Kind::Write, self.in_order()),
        };
        Some(Op { kind, unit })
    }
}

impl<T: Traffic> Traffic for &mut T {
    fn next(&mut self) -> Option<Op> {
        (**self).next()
    }
}

/// Every unit of a range once, in order.
pub(super) struct Sequence {
    units: Range<u64>,
    write: bool,
}

impl Sequence {
    pub(super) fn new(units: Range<u64>, write: bool) -> Self {
        Self { units, write }
    }
}

impl Traffic for Sequence {
    fn next(&mut self) -> Option<Op> {
        let kind = Kind::of(self.write);
        self.units.next().map(|unit| Op { kind, unit })
    }
}

/// Other traffic with marked data: writes enter it in the ledger, reads are
/// checked against that. No two commands are in flight in one unit, since
/// their order would not be known.
pub(super) struct Verified<'l, T> {
    inner: T,
    ledger: &'l mut Ledger,
    only_written: bool,
}

impl<'l, T: Traffic> Verified<'l, T> {
    pub(super) fn new(inner: T, ledger: &'l mut Ledger) -> Self {
        Self {
            inner,
            ledger,
            only_written: false,
        }
    }

    /// Leaves out units whose contents are not known.
    pub(super) fn only_written(mut self) -> Self {
        self.only_written = true;
        self
    }
}

impl<T: Traffic> Traffic for Verified<'_, T> {
    fn next(&mut self) -> Option<Op> {
        loop {
            let op = self.inner.next()?;
            if self.only_written && !self.ledger.is_written(op.unit) {
                continue;
            }
            // There are as many units as commands in flight, so one is free.
            let unit = self.ledger.take_free(op.unit)?;
            return Some(Op { unit, ..op });
        }
    }

    fn start(&mut self, op: Op, buffer: &Buffer, at: usize) {
        if op.is_write() {
            self.ledger.fill(op.unit, buffer, at);
        } else {
            self.ledger.poison(buffer, at);
        }
    }

    fn finish(&mut self, op: Op, ok: bool, buffer: &Buffer, at: usize) {
        if op.is_write() {
            self.ledger.written(op.unit, ok);
        } else if ok {
            self.ledger.check(op.unit, buffer, at);
        }
        self.ledger.release(op.unit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(rw: Rw, count: usize, seed: u64) -> Vec<Op> {
        take_of(
            Job {
                rw,
                seed,
                ..Job::default()
            },
            count,
        )
    }

    fn take_of(job: Job, count: usize) -> Vec<Op> {
        let mut plain = Plain::new(&job, 10);
        (0..count).map(|_| plain.next().unwrap()).collect()
    }

    #[test]
    fn in_order_goes_around() {
        let units: Vec<_> = take(Rw::Read, 12, 0).iter().map(|op| op.unit).collect();
        assert_eq!(units, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]);
        assert!(take(Rw::Write, 3, 0).iter().all(|op| op.is_write()));
    }

    #[test]
    fn a_mix_is_half_reads_half_writes_and_repeats_by_seed() {
        let mix = take(Rw::RandRw, 10_000, 3);
        let writes = mix.iter().filter(|op| op.is_write()).count();
        assert!((4700..5300).contains(&writes), "{writes} of 10000");
        assert_eq!(mix, take(Rw::RandRw, 10_000, 3));
        assert_ne!(mix, take(Rw::RandRw, 10_000, 4));
    }

    #[test]
    fn a_mix_has_as_many_reads_as_it_is_told() {
        for (percent, writes) in [(0, 10_000..=10_000), (70, 2850..=3150), (100, 0..=0)] {
            let job = Job {
                rw: Rw::RandRw,
                reads_percent: percent,
                ..Job::default()
            };
            let mix = take_of(job, 10_000);
            let count = mix.iter().filter(|op| op.is_write()).count();
            assert!(
                writes.contains(&count),
                "{count} writes at {percent} % reads"
            );
        }
    }
}
