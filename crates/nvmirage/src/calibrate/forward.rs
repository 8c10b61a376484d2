//! What a model would have shown: the mean time of a command when so many are always in flight.
//!
//! One case after the other on one drive, each begun when the drive has been at rest for long. Reads go to a part that was written in
//! order before; writes to a drive that is as new, and no more than it takes without collection.

use std::collections::VecDeque;

use driver::workload::random::Random;
use model::{
    Admission, Due, Flash, FlashParameters, Model, Op, Parameters, Timing, parameter::Shape,
};

use super::{Direction, Sample, float};

/// What is asked of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) direction: Direction,
    pub(super) random: bool,
    pub(super) len: u32,
    pub(super) depth: u32,
}

impl Case {
    pub(super) fn of(sample: &Sample) -> Self {
        Case {
            direction: sample.direction,
            random: sample.random,
            len: sample.block_bytes,
            depth: sample.depth,
        }
    }
}

/// How much is computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Commands that are counted of each case, and for each that is in flight so many more.
    pub(super) commands: u64,
    pub(super) per_depth: u64,
}

/// Bytes that reads go to at most.
const READ_FROM: u64 = 256 << 20;
/// Bytes of the writes that fill it.
const FILL_LEN: u32 = 1 << 20;
/// A drive that has had nothing to do for so long is at rest.
const REST_NS: u64 = 100_000_000_000;
/// A buffer is as full as it gets after this many times its size, and after so many commands at most.
const BUFFERS: u64 = 6;
const WARM_MAX: u64 = 20_000;
/// What a case takes of a drive at most, in bytes.
const WRITTEN_MAX: u64 = 1 << 30;
/// And at least, so that a buffer's worth more or less does not count.
const WRITTEN_MIN: u64 = 96 << 20;
/// Sizes of drives without lines: of no account.
const ANY_SIZE: u64 = 1 << 40;

/// Drives that cases are tried on.
#[derive(Debug)]
pub(super) struct Forward {
    effort: Effort,
    /// What a host's software adds to each command.
    host_ns: u64,
    /// A drive with something to read, if it needs that.
    filled: Option<Model>,
    /// Up to when time has passed on it.
    now: u64,
    size: u64,
}

impl Forward {
    /// For drives of the shape of `parameters`.
    ///
    /// # Errors
    /// They make no drive.
    pub(super) fn new(
        parameters: &Parameters,
        host_ns: u64,
        effort: Effort,
    ) -> Result<Self, String> {
        let mut forward = Forward {
            effort,
            host_ns,
            filled: None,
            now: REST_NS,
            size: ANY_SIZE,
        };
        if let Parameters::Flash(flash) = parameters {
            let small = small(flash)?;
            forward.size = small.size_bytes;
            let mut model = made(&Parameters::Flash(small))?;
            let part = forward.size.min(READ_FROM) / u64::from(FILL_LEN);
            let mut done = Vec::new();
            for number in 0..part {
                let op = Op::Write {
                    offset: number * u64::from(FILL_LEN),
                    len: FILL_LEN,
                    fua: false,
                };
                while model.submit(forward.now, number, &op) == Admission::Stall {
                    forward.now = model.next_event().ok_or("a write finds no room")?;
                    model.advance(forward.now, &mut done);
                }
            }
            forward.filled = Some(model);
        }
        Ok(forward)
    }

    /// Mean times of the cases with these parameters, in nanoseconds. What a drive's shape follows from is as in [`Forward::new`].
    ///
    /// # Errors
    /// They make no drive.
    pub(super) fn means(
        &mut self,
        parameters: &Parameters,
        cases: &[Case],
    ) -> Result<Vec<f64>, String> {
        let parameters = self.sized(parameters);
        parameters.check().map_err(|error| error.to_string())?;
        cases
            .iter()
            .map(|case| match (&mut self.filled, case.direction) {
                (Some(filled), Direction::Read) => {
                    filled
                        .retune(&parameters)
                        .map_err(|error| error.to_string())?;
                    let mut idle = Vec::new();
                    self.now = self.now.saturating_add(REST_NS);
                    filled.advance(self.now, &mut idle);
                    let run = Run::new(case, self.size.min(READ_FROM), self.effort, 0);
                    let (mean, now) = run.on(filled, self.now, self.host_ns)?;
                    self.now = now;
                    Ok(mean)
                }
                _ => {
                    let mut model = made(&parameters)?;
                    let buffer = match &parameters {
                        Parameters::Flash(flash) => flash.buffer_bytes,
                        _ => 0,
                    };
                    let run = Run::new(case, self.size, self.effort, buffer);
                    run.on(&mut model, REST_NS, self.host_ns)
                        .map(|(mean, _)| mean)
                }
            })
            .collect()
    }

    fn sized(&self, parameters: &Parameters) -> Parameters {
        match parameters {
            Parameters::Flash(flash) => Parameters::Flash(FlashParameters {
                size_bytes: self.size,
                ..flash.clone()
            }),
            other => other.clone(),
        }
    }
}

/// Random writes of a page to a drive in steady state: those that warm it up, and those that count.
const STEADY_WARM: u64 = 20_000;
const STEADY_COUNT: u64 = 60_000;
/// Bytes of the drive that they are tried on, at most, unless its lines need more.
const STEADY_SIZE: u64 = 8 << 30;

/// The mean time of random writes of a page to a drive in the steady state of them, so many of them in flight; and by how much the
/// space that can hold data exceeds the data, of the small drive that they are tried on.
///
/// # Errors
/// The parameters make no drive.
pub(super) fn sustained(
    flash: &FlashParameters,
    depth: u32,
    host_ns: u64,
) -> Result<(f64, f64), String> {
    let small = steady(flash)?;
    let (drive, _) = Flash::seeded(&small, 1).map_err(|error| error.to_string())?;
    let run = Run {
        case: Case {
            direction: Direction::Write,
            random: true,
            len: 4096,
            depth,
        },
        places: small.size_bytes / 4096,
        next: 0,
        random: Random::new(2),
        warm: STEADY_WARM,
        count: STEADY_COUNT,
    };
    let (mean, _) = run.on(&mut Model::Flash(drive), REST_NS, host_ns)?;
    Ok((mean, spare(&small)?))
}

/// By how much the space of a drive that can hold data exceeds the data: without the lines that collection keeps free.
///
/// # Errors
/// The parameters make no drive.
pub(super) fn spare(flash: &FlashParameters) -> Result<f64, String> {
    let parameters = Parameters::Flash(flash.clone());
    parameters.check().map_err(|error| error.to_string())?;
    let shape = Shape::of(flash).map_err(|error| error.to_string())?;
    let lines = shape.lines.saturating_sub(flash.collect_below.into());
    let pages = float(lines) * float(shape.pages_per_line);
    Ok(pages / float(shape.logical_pages.max(1)) - 1.0)
}

/// The drive whose steady state is tried: itself, where it is small, or one of the same shape with as many lines as collection needs to be a
/// large one's.
pub(super) fn steady(flash: &FlashParameters) -> Result<FlashParameters, String> {
    let least = small(flash)?.size_bytes.max(STEADY_SIZE);
    Ok(FlashParameters {
        size_bytes: flash.size_bytes.min(least),
        ..flash.clone()
    })
}

fn made(parameters: &Parameters) -> Result<Model, String> {
    Model::new(parameters).map_err(|error| error.to_string())
}

/// The smallest drive of the same shape that can be, of sizes that are powers of two, and room for what a case writes.
fn small(flash: &FlashParameters) -> Result<FlashParameters, String> {
    let sizes = (31..50).map(|bits| FlashParameters {
        size_bytes: 1 << bits,
        ..flash.clone()
    });
    let mut possible = sizes.filter(|small| Parameters::Flash(small.clone()).check().is_ok());
    possible.next().ok_or_else(|| {
        let check = Parameters::Flash(flash.clone()).check();
        check.err().map_or_else(
            || "no drive of this shape is small enough to be tried".to_owned(),
            |error| error.to_string(),
        )
    })
}

/// One case on one drive.
struct Run {
    case: Case,
    /// Places of commands.
    places: u64,
    next: u64,
    random: Random,
    warm: u64,
    count: u64,
}

impl Run {
    fn new(case: &Case, bytes: u64, effort: Effort, buffer: u64) -> Self {
        let len = u64::from(case.len);
        let depth = u64::from(case.depth);
        let count = effort.commands + effort.per_depth * depth;
        let warm = (BUFFERS * buffer / len).min(WARM_MAX) + 4 * depth;
        let (warm, count) = match (case.direction, buffer) {
            // What a case writes must not make collection begin.
            (Direction::Write, 1..) => {
                let most = (WRITTEN_MAX / len).max(2);
                let count = count.max(WRITTEN_MIN / len);
                (warm.min(most / 2), count.min(most / 2))
            }
            _ => (warm, count),
        };
        Run {
            case: *case,
            places: (bytes / len).max(1),
            next: 0,
            random: Random::new(1),
            warm,
            count,
        }
    }

    fn op(&mut self) -> Op<'static> {
        let place = match self.case.random {
            true => self.random.below(self.places),
            false => self.next % self.places,
        };
        self.next += 1;
        let (offset, len) = (place * u64::from(self.case.len), self.case.len);
        match self.case.direction {
            Direction::Read => Op::Read { offset, len },
            Direction::Write => Op::Write {
                offset,
                len,
                fua: false,
            },
        }
    }

    /// The mean time of the commands that count, and the time at the end.
    fn on(mut self, model: &mut Model, start: u64, host_ns: u64) -> Result<(f64, u64), String> {
        // Who comes next, and when; one that found no room stands first.
        let mut waiting: VecDeque<u64> = (0..self.case.depth).map(|_| start).collect();
        let mut held: Option<Op<'static>> = None;
        let mut done: Vec<Due> = Vec::new();
        let (mut now, mut finished, mut since) = (start, 0, start);
        let end = self.warm + self.count;
        while finished < end {
            while waiting.front().is_some_and(|at| *at <= now) {
                let op = held.take().unwrap_or_else(|| self.op());
                if model.submit(now, 0, &op) == Admission::Stall {
                    held = Some(op);
                    break;
                }
                waiting.pop_front();
            }
            let arrival = waiting.front().copied().filter(|_| held.is_none());
            let next = [model.next_event(), arrival].into_iter().flatten().min();
            now = next.ok_or("nothing happens any more")?.max(now);
            done.clear();
            model.advance(now, &mut done);
            for due in &done {
                waiting.push_back(due.at + host_ns);
                finished += 1;
                if finished == self.warm {
                    since = due.at;
                }
            }
        }
        // As many are in flight all the time, so the mean follows from the rate.
        let counted = finished - self.warm;
        let mean = float(now - since) * f64::from(self.case.depth) / float(counted);
        Ok((mean, now))
    }
}
