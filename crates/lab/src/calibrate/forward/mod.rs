//! Predictions of a model: the mean time of a command with a constant number of commands in flight.
//!
//! All cases run one after the other on one drive, and each begins after a long rest. Reads go to a
//! part that was written in order before, or to all zones of a zoned drive. Writes go to a new
//! drive, and stay below the amount that starts collection. A zone that is reset is full.

mod run;

use driver::workload::random::Random;
use model::parameter::Shape;
use model::{Admission, Flash, FlashParameters, Model, Op, Parameters, Timing, ZonesParameters};

use self::run::{Places, Run};
use super::samples::{Keys, Writers};
use super::{Act, Sample, float};

/// Commands of one measured point.
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

/// Amount of computation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Counted commands of each case, plus `per_depth` for each command in flight.
    pub(super) commands: u64,
    pub(super) per_depth: u64,
}

/// Maximum size of the range that is read.
const READ_FROM: u64 = 256 << 20;
/// Bytes of each write that fills the range.
const FILL_LEN: u32 = 1 << 20;
/// Idle time after which a drive is at rest.
const REST_NS: u64 = 100_000_000_000;
/// Size of drives without lines, whose size has no influence.
const ANY_SIZE: u64 = 1 << 40;
/// Maximum number of zones of a simulated drive.
const ZONES_MAX: u64 = 4096;

/// Drives that the cases run on.
#[derive(Debug)]
pub(super) struct Forward {
    effort: Effort,
    /// Time that a host's software adds to each command.
    host_ns: u64,
    /// A drive with data to read, if reads need it.
    filled: Option<Model>,
    /// Time reached on that drive.
    now: u64,
    size: u64,
}

impl Forward {
    /// Predictions for drives of the shape of `parameters`.
    ///
    /// # Errors
    /// The parameters do not describe a valid drive.
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

    /// The same with the effort divided by `of_effort`, for a kind of drive that can be read
    /// without being written before.
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

    /// Writes data to read, on the smallest drive of the shape.
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

    /// Mean times of the cases with these parameters, in nanoseconds. The parameters that determine
    /// the drive's shape must be those given to [`Forward::new`].
    ///
    /// # Errors
    /// The parameters do not describe a valid drive.
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
        // The next case runs on the same drive.
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

/// Maximum size of the simulated drive, unless its lines need more.
const STEADY_SIZE: u64 = 8 << 30;

/// Number of measurements of the steady state. Partitions that collect at the same time delay
/// writes less than partitions that take turns, by 15 %, and they drift between the two within a
/// million writes: so each measurement starts from other relative positions.
const STEADY_ROUNDS: u64 = 8;

/// The mean time of random page writes in the steady state of such writes, with `depth` in flight,
/// on a small drive.
///
/// # Errors
/// The parameters do not describe a valid drive.
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

/// Writes up to a line more to some partitions than to others, so that their positions in the
/// collection cycle differ. Returns the time after that.
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

/// Ratio by which the space that can hold data exceeds the data, without the lines that collection
/// keeps free.
///
/// # Errors
/// The parameters do not describe a valid drive.
pub(super) fn spare(flash: &FlashParameters) -> Result<f64, String> {
    let parameters = Parameters::Flash(flash.clone());
    parameters.check().map_err(|error| error.to_string())?;
    let shape = Shape::of(flash).map_err(|error| error.to_string())?;
    let lines = shape.lines.saturating_sub(flash.collect_below.into());
    let pages = float(lines) * float(shape.pages_per_line);
    Ok(pages / float(shape.logical_pages.max(1)) - 1.0)
}

/// The drive whose steady state is simulated: the drive itself if it is small, or one of the same
/// shape with enough lines for collection to behave as on a large one.
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

/// The smallest valid drive of the same shape, of a size that is a power of two, with room for the
/// writes of a case.
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
