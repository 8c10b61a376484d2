//! What a model would have shown: the mean time of a command when so many are always in flight.
//!
//! One case after the other on one drive, each begun when the drive has been at rest for long.
//! Reads go to a part that was written in order before, and on a zoned drive to all zones; writes
//! to a drive that is as new, and no more than it takes without collection. A zone that is reset is
//! full.

mod run;

use driver::workload::random::Random;
use model::parameter::Shape;
use model::{Admission, Flash, FlashParameters, Model, Op, Parameters, Timing, ZonesParameters};

use self::run::{Places, Run};
use super::samples::{Keys, Writers};
use super::{Act, Sample, float};

/// What is asked of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) act: Act,
    pub(super) random: bool,
    pub(super) len: u32,
    pub(super) depth: u32,
    pub(super) writers: Writers,
    pub(super) keys: Keys,
}

impl Case {
    pub(super) fn of(sample: &Sample) -> Self {
        Case {
            act: sample.act,
            random: sample.random,
            len: sample.block_bytes,
            depth: sample.depth,
            writers: sample.writers,
            keys: sample.keys,
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
/// Sizes of drives without lines: of no account.
const ANY_SIZE: u64 = 1 << 40;
/// Zones of a drive that is tried, at most.
const ZONES_MAX: u64 = 4096;

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
        match parameters {
            Parameters::Flash(flash) => forward.fill(flash)?,
            Parameters::Zones(zones) => {
                let zone = zones.zone_size_bytes.max(1);
                forward.size = (zones.flash.size_bytes / zone).min(ZONES_MAX) * zone;
                let mut model = made(&forward.sized(parameters))?;
                for zone in 0..forward.size / zone {
                    written(&mut model, zone, zones.zone_capacity_bytes)?;
                }
                forward.filled = Some(model);
            }
            Parameters::Nvm(_) | Parameters::Kv(_) => {}
        }
        Ok(forward)
    }

    /// The same with so much less computed, for a kind of drive that needs nothing written before
    /// it is read.
    pub(super) fn like(&self, of_effort: u64) -> Self {
        let Effort {
            commands,
            per_depth,
        } = self.effort;
        Forward {
            effort: Effort {
                commands: commands / of_effort,
                per_depth: per_depth / of_effort,
            },
            host_ns: self.host_ns,
            filled: None,
            now: self.now,
            size: self.size,
        }
    }

    /// Something to read, on the smallest drive of the shape.
    fn fill(&mut self, flash: &FlashParameters) -> Result<(), String> {
        let small = small(flash)?;
        self.size = small.size_bytes;
        let mut model = made(&Parameters::Flash(small))?;
        let part = self.size.min(READ_FROM) / u64::from(FILL_LEN);
        let mut done = Vec::new();
        for number in 0..part {
            let op = Op::Write {
                offset: number * u64::from(FILL_LEN),
                len: FILL_LEN,
                fua: false,
            };
            while model.submit(self.now, number, &op) == Admission::Stall {
                self.now = model.next_event().ok_or("a write finds no room")?;
                model.advance(self.now, &mut done);
            }
        }
        self.filled = Some(model);
        Ok(())
    }

    /// Mean times of the cases with these parameters, in nanoseconds. What a drive's shape follows
    /// from is as in [`Forward::new`].
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
            .map(|case| self.mean(&parameters, case))
            .collect()
    }

    fn mean(&mut self, parameters: &Parameters, case: &Case) -> Result<f64, String> {
        let mut new;
        let (model, start) = match (&mut self.filled, case.act) {
            (Some(filled), Act::Read) => {
                filled
                    .retune(parameters)
                    .map_err(|error| error.to_string())?;
                let mut idle = Vec::new();
                let start = self.now.saturating_add(REST_NS);
                filled.advance(start, &mut idle);
                (filled, start)
            }
            _ => {
                new = made(parameters)?;
                if let (Act::Reset, Parameters::Zones(zones)) = (case.act, parameters) {
                    written(&mut new, 0, zones.zone_capacity_bytes)?;
                }
                (&mut new, REST_NS)
            }
        };
        let places = Places::new(case, parameters, self.size)?;
        let run = Run::new(case, places, self.effort, parameters);
        let (mean, end) = run.on(model, start, self.host_ns)?;
        // The next one on the same drive.
        self.now = self.now.max(end);
        Ok(mean)
    }

    fn sized(&self, parameters: &Parameters) -> Parameters {
        match parameters {
            Parameters::Flash(flash) => Parameters::Flash(FlashParameters {
                size_bytes: self.size,
                ..flash.clone()
            }),
            Parameters::Zones(zones) => Parameters::Zones(ZonesParameters {
                flash: FlashParameters {
                    size_bytes: self.size,
                    ..zones.flash.clone()
                },
                ..zones.clone()
            }),
            other => other.clone(),
        }
    }
}

/// Fills a zone before time begins.
fn written(model: &mut Model, zone: u64, capacity: u64) -> Result<(), String> {
    let zones = model.zones_mut().ok_or("the model has no zones")?;
    let zone = u32::try_from(zone).map_err(|_| "a drive that is tried has few zones")?;
    zones.restore_fill(zone, capacity, true);
    Ok(())
}

/// Bytes of the drive that they are tried on, at most, unless its lines need more.
const STEADY_SIZE: u64 = 8 << 30;

/// How often it is looked at how long writes take. Partitions that collect at the same time hold
/// them up less than such as do so in turns, by 15 %, and they drift from one to the other within a
/// million writes: so each look is at another of their courses.
const STEADY_ROUNDS: u64 = 8;

/// The mean time of random writes of a page to a drive in the steady state of them, so many of them
/// in flight; tried on a small drive.
///
/// # Errors
/// The parameters make no drive.
pub(super) fn sustained(flash: &FlashParameters, depth: u32, host_ns: u64) -> Result<f64, String> {
    let small = steady(flash)?;
    let shape = Shape::of(&small).map_err(|error| error.to_string())?;
    let mut drive = Flash::new(&small).map_err(|error| error.to_string())?;
    drive.precondition(1);
    let mut model = Model::Flash(drive);
    let mut random = Random::new(2);
    let (mut now, mut sum) = (REST_NS, 0.0);
    for round in 0..STEADY_ROUNDS {
        now = shift(&mut model, now, &small, (shape.pages_per_line, &mut random))?;
        let run = Run::steady(small.size_bytes, depth, round);
        let (mean, end) = run.on(&mut model, now.saturating_add(REST_NS), host_ns)?;
        (now, sum) = (end, sum + mean);
    }
    Ok(sum / float(STEADY_ROUNDS))
}

/// Writes up to a line more to each partition than to others, so that they are anywhere in their
/// courses; gives when that is done.
fn shift(
    model: &mut Model,
    mut now: u64,
    flash: &FlashParameters,
    (most, random): (u64, &mut Random),
) -> Result<u64, String> {
    let partitions = u64::from(flash.partitions);
    let pages = flash.size_bytes / 4096 / partitions;
    let mut done = Vec::new();
    for partition in 0..partitions {
        for _ in 0..random.below(most.max(1)) {
            let page = random.below(pages.max(1)) * partitions + partition;
            let op = Op::Write {
                offset: page * 4096,
                len: 4096,
                fua: false,
            };
            while model.submit(now, 0, &op) == Admission::Stall {
                now = model.next_event().ok_or("a write finds no room")?;
                model.advance(now, &mut done);
                done.clear();
            }
        }
    }
    now = now.saturating_add(REST_NS);
    model.advance(now, &mut done);
    Ok(now)
}

/// By how much the space of a drive that can hold data exceeds the data: without the lines that
/// collection keeps free.
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

/// The drive whose steady state is tried: itself, where it is small, or one of the same shape with
/// as many lines as collection needs to be a large one's.
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

/// The smallest drive of the same shape that can be, of sizes that are powers of two, and room for
/// what a case writes.
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
