//! Low-latency non-volatile memory: a pipeline for reads and one for writes. Latency occupies no
//! server.

use crate::activity::{Activity, Server, Work};
use crate::error::ParameterError;
use crate::parameters::{Direction, NvmParameters, Parameters};
use crate::pending::Pending;
use crate::server::{Exact, Free, Pace, Spent};
use crate::{Admission, Due, Op, Timing};

/// The model of low-latency non-volatile memory.
#[derive(Debug)]
pub struct Nvm {
    read: Pipeline,
    write: Pipeline,
    /// End of the last write.
    written: u64,
    pending: Pending,
}

#[derive(Debug)]
struct Pipeline {
    pace: Pace,
    /// The latency minus the cost of one page.
    rest: Exact,
    free: Free,
    spent: Spent,
}

impl Pipeline {
    fn new(direction: &Direction, free: Free, spent: Spent) -> Self {
        let mut pace = Pace::new(direction, 1);
        Self {
            rest: pace.rest(direction.latency_ns),
            pace,
            free,
            spent,
        }
    }

    fn done(&mut self, now: u64, len: u32) -> u64 {
        self.spent.take(&mut self.pace, len);
        let through = self.free.take(&mut self.pace, now, len);
        let done = self.pace.add(through, self.rest);
        self.pace.ceil(done)
    }
}

impl Nvm {
    /// Creates a drive at rest.
    ///
    /// # Errors
    ///
    /// Those of [`Parameters::check`].
    pub fn new(parameters: &NvmParameters) -> Result<Self, ParameterError> {
        Parameters::Nvm(*parameters).check()?;
        Ok(Self {
            read: Pipeline::new(&parameters.read, Free::default(), Spent::default()),
            write: Pipeline::new(&parameters.write, Free::default(), Spent::default()),
            written: 0,
            pending: Pending::default(),
        })
    }

    /// Changes the parameters. Commands in flight keep their times, and later ones wait for them as
    /// before.
    ///
    /// # Errors
    ///
    /// Those of [`Nvm::new`]; then nothing has changed.
    pub fn retune(&mut self, parameters: &NvmParameters) -> Result<(), ParameterError> {
        Parameters::Nvm(*parameters).check()?;
        let again = |direction, old: &Pipeline| {
            Pipeline::new(direction, old.free.rounded(), old.spent.rounded())
        };
        self.read = again(&parameters.read, &self.read);
        self.write = again(&parameters.write, &self.write);
        Ok(())
    }

    /// Activity of its pipelines.
    pub fn activity(&self) -> Activity {
        Activity {
            servers: vec![(Server::Pipeline, 1)],
            busy: vec![
                self.read.spent.busy(Server::Pipeline, Work::Read),
                self.write.spent.busy(Server::Pipeline, Work::Write),
            ],
        }
    }
}

impl Nvm {
    /// See [`Model::release_early`](crate::Model::release_early).
    pub(crate) fn release_early(&mut self, ns: u64) {
        self.pending.set_early(ns);
    }
}

impl Timing for Nvm {
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission {
        let now = self.pending.at(now);
        let at = match *op {
            Op::Read { len, .. } => self.read.done(now, len),
            Op::Write { len, .. } => self.write_done(now, len),
            Op::Deallocate { .. } => self.write_done(now, 0),
            Op::Flush => now.max(self.written),
            Op::Zone(_) | Op::Kv(_) | Op::Compound(_) => now,
        };
        let turn = self.pending.turn();
        self.pending.push(at, turn, id);
        Admission::Accepted
    }

    fn has_room(&self, _: &Op<'_>) -> bool {
        true
    }

    fn next_event(&self) -> Option<u64> {
        self.pending.next()
    }

    fn advance(&mut self, now: u64, done: &mut Vec<Due>) {
        let now = self.pending.at(now);
        self.pending.reap(now, done);
    }
}

impl Nvm {
    fn write_done(&mut self, now: u64, len: u32) -> u64 {
        let done = self.write.done(now, len);
        self.written = self.written.max(done);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Arithmetic;

    /// An Optane P4800X as published: 12 us and 2400 MiB/s, 14 us and 2000 MiB/s, 550 K and 500 K
    /// commands per second.
    fn optane() -> NvmParameters {
        NvmParameters {
            arithmetic: Arithmetic::Exact,
            read: Direction {
                latency_ns: 12_000,
                bandwidth_bytes_per_s: 2400 << 20,
                rate_per_s: 550_000,
            },
            write: Direction {
                latency_ns: 14_000,
                bandwidth_bytes_per_s: 2000 << 20,
                rate_per_s: 500_000,
            },
        }
    }

    fn read(len: u32) -> Op<'static> {
        Op::Read { offset: 0, len }
    }

    fn write(len: u32) -> Op<'static> {
        Op::Write {
            offset: 0,
            len,
            fua: false,
        }
    }

    /// Submits all at `now` and returns all completions.
    fn run(model: &mut impl Timing, now: u64, ops: &[Op<'_>]) -> Vec<(u64, u64)> {
        for (id, op) in ops.iter().enumerate() {
            assert_eq!(model.submit(now, id as u64, op), Admission::Accepted);
        }
        let mut done = Vec::new();
        model.advance(u64::MAX, &mut done);
        done.iter().map(|due| (due.at, due.id)).collect()
    }

    #[test]
    fn one_page_alone_takes_the_latency() {
        for (op, latency) in [(read(4096), 12_000), (write(4096), 14_000)] {
            let mut model = Nvm::new(&optane()).unwrap();
            assert_eq!(
                run(&mut model, 1_000_000, &[op]),
                [(1_000_000 + latency, 0)]
            );
        }
    }

    #[test]
    fn larger_ones_take_what_bandwidth_adds() {
        // 256 KiB at 2400 MiB/s: 104166.67 ns; less a page at 550 K per second (1818.18): 12000 +
        // 102348.48.
        let mut model = Nvm::new(&optane()).unwrap();
        assert_eq!(run(&mut model, 0, &[read(256 << 10)]), [(114_349, 0)]);
    }

    #[test]
    fn directions_do_not_delay_each_other_and_commands_of_one_do() {
        let mut model = Nvm::new(&optane()).unwrap();
        let ops = [read(4096), write(4096), read(512), write(0)];
        // The cost of a small read is 1818.18 ns, of a small write 2000, and the pages' own cost is
        // part of the latency.
        assert_eq!(
            run(&mut model, 0, &ops),
            [(12_000, 0), (13_819, 2), (14_000, 1), (16_000, 3)]
        );
    }

    #[test]
    fn a_flush_is_done_with_the_last_write() {
        let mut model = Nvm::new(&optane()).unwrap();
        let trim = Op::Deallocate { offset: 0, len: 1 };
        let ops = [
            Op::Flush,
            write(4096),
            trim,
            Op::Flush,
            read(4096),
            Op::Flush,
        ];
        assert_eq!(
            run(&mut model, 5, &ops),
            [
                (5, 0),
                (12_005, 4),
                (14_005, 1),
                (16_005, 2),
                (16_005, 3),
                (16_005, 5)
            ]
        );
    }

    /// Closed loop: `depth` commands at any time; gives how many are done in one second.
    fn rate(parameters: &NvmParameters, depth: u64, op: &Op<'_>) -> u64 {
        let mut model = Nvm::new(parameters).unwrap();
        let mut done = Vec::new();
        let mut count = 0;
        for id in 0..depth {
            model.submit(0, id, op);
        }
        while let Some(at) = model.next_event().filter(|&at| at <= 1_000_000_000) {
            model.advance(at, &mut done);
            count += done.len() as u64;
            for due in done.drain(..) {
                model.submit(at, due.id, op);
            }
        }
        count
    }

    #[test]
    fn the_rate_is_the_lesser_of_depth_over_latency_and_the_ceiling() {
        for depth in [1, 2, 4, 6, 7, 8, 32, 256] {
            let expected = (depth * 1_000_000_000 / 12_000).min(550_000);
            let reached = rate(&optane(), depth, &read(4096));
            assert!(
                reached.abs_diff(expected) <= depth,
                "{depth}: {reached} {expected}"
            );
        }
        // Bandwidth alone: 2400 MiB/s are 614400 pages per second.
        let mut parameters = optane();
        parameters.read.rate_per_s = 0;
        assert!(rate(&parameters, 32, &read(4096)).abs_diff(614_400) <= 32);
        assert!(rate(&parameters, 32, &read(32 << 10)).abs_diff(614_400 / 8) <= 32);
    }

    #[test]
    fn what_is_refused_says_what_would_do() {
        let mut parameters = optane();
        parameters.write.latency_ns = 1999;
        let refused = Nvm::new(&parameters).unwrap_err();
        assert!(refused.to_string().contains("2000ns"), "{refused}");
        let mut model = Nvm::new(&optane()).unwrap();
        assert!(model.retune(&parameters).is_err());
        parameters.write.latency_ns = 2000;
        parameters.read.latency_ns = 8000;
        model.retune(&parameters).unwrap();
        assert_eq!(
            run(&mut model, 0, &[read(4096), write(1)]),
            [(2000, 1), (8000, 0)]
        );
    }

    #[test]
    fn time_never_falls() {
        let mut model = Nvm::new(&optane()).unwrap();
        model.submit(1000, 0, &read(4096));
        model.submit(10, 1, &Op::Flush);
        let mut done = Vec::new();
        assert_eq!(model.next_event(), Some(1000));
        model.advance(1000, &mut done);
        assert_eq!(done, [Due { at: 1000, id: 1 }]);
        assert_eq!(model.next_event(), Some(13_000));
    }
}
