//! Measurements that serve only the figures: throughput over time when collection starts and when
//! writers go through zones, and throughput of workers that all append to one zone.

use anyhow::Context;
use driver::program::Ran;
use model::preset::Preset;
use serde::Serialize;
use simulate::points::{self, Points};
use terminal::interrupt::Interrupt;

use super::measure::{Drive, PointReport, ZONES};
use super::real::{Bytes, Rig, Serve, Setup};

/// Minimum number of intervals of a course.
const INTERVALS: u64 = 50;

/// Throughput over time of the same commands, in virtual time and in real time.
#[derive(Debug, Serialize)]
pub(super) struct Course {
    pub(super) preset: String,
    pub(super) name: &'static str,
    pub(super) size_bytes: u64,
    /// Length of an interval; a partial last interval is left out.
    pub(super) interval_ns: u64,
    /// Time of all commands in virtual time.
    pub(super) virtual_ns: u64,
    /// The same in real time; `None` also if the machine was too slow and the run was stopped
    /// early.
    pub(super) real_ns: Option<u64>,
    pub(super) virtual_bytes_per_s: Vec<u64>,
    pub(super) real_bytes_per_s: Option<Vec<u64>>,
}

/// Measurements of a zoned drive.
pub(super) struct Zones {
    /// Writers that each go through zones in order.
    pub(super) course: Course,
    /// Workers that all append to one zone.
    pub(super) one_zone: Vec<PointReport>,
}

/// A drive that is filled and then overwritten at random, if the preset collects garbage and the
/// course's name contains `only`.
pub(super) fn collection(
    preset: &Preset,
    real: Option<(Setup, &Interrupt)>,
    only: &str,
) -> anyhow::Result<Option<Course>> {
    let name = "collection";
    let shape = preset.parameters(preset.size_bytes, None)?;
    match points::collection(&shape).filter(|_| name.contains(only)) {
        Some(points) => Course::run(preset, name, &points, real, Bytes::Forgotten).map(Some),
        None => Ok(None),
    }
}

/// Writers of zones, if the preset has zones and the course's name contains `only`.
pub(super) fn zones(
    preset: &Preset,
    real: Option<(Setup, &Interrupt)>,
    runs: u32,
    only: &str,
) -> anyhow::Result<Option<Zones>> {
    let shape = preset.parameters(preset.size_bytes, None)?;
    let in_turn = points::zones_in_turn(&shape).filter(|_| ZONES.contains(only));
    let (Some(in_turn), Some(one_zone)) = (in_turn, points::one_zone(&shape)) else {
        return Ok(None);
    };
    let course = Course::run(preset, ZONES, &in_turn, real, Bytes::Kept)?;
    let mut drive = Drive::at(preset, one_zone)?;
    if let Some((cpus, interrupt)) = real
        && !interrupt.is_set()
    {
        drive.run_for_real(cpus, runs, |_, _| !interrupt.is_set())?;
    }
    Ok(Some(Zones {
        course,
        one_zone: drive.points()?,
    }))
}

impl Course {
    /// Runs the only point of `points` once in virtual time and once in real time.
    fn run(
        preset: &Preset,
        name: &'static str,
        points: &Points,
        real: Option<(Setup, &Interrupt)>,
        bytes: Bytes,
    ) -> anyhow::Result<Self> {
        let parameters = preset.parameters(points.size_bytes, None)?;
        let [measured] = &points.measured[..] else {
            anyhow::bail!("a course has one point");
        };
        let (computed, _) = points::measure(&parameters, points, measured, 0)?;
        let seen = match real {
            Some((cpus, interrupt)) => {
                let mut rig = Rig::new(preset, &parameters, points, cpus, bytes)?;
                let ran = rig.run_once(measured, interrupt)?;
                rig.end()?;
                // An interrupted run says nothing about the drive.
                (!interrupt.is_set()).then_some(ran)
            }
            None => None,
        };
        let interval_ns = interval(computed.elapsed_ns);
        let course = |ran| points::Course::of(&measured.program, ran, interval_ns).bytes_per_s;
        let last = |ran: &Ran| ran.done_ns.iter().flatten().copied().max();
        let count = |ran: &Ran| ran.done_ns.iter().map(Vec::len).sum::<usize>();
        let whole = seen.as_ref().filter(|ran| count(ran) == count(&computed));
        Ok(Self {
            preset: preset.full_name(),
            name,
            size_bytes: points.size_bytes,
            interval_ns,
            virtual_ns: last(&computed).unwrap_or(0),
            real_ns: whole.and_then(last),
            virtual_bytes_per_s: course(&computed),
            real_bytes_per_s: seen.as_ref().map(course),
        })
    }
}

/// Interval of 1, 2 or 5 times a power of ten for a figure of this length.
fn interval(whole_ns: u64) -> u64 {
    let powers = (3..12).map(|power| 10_u64.pow(power));
    let all = powers.flat_map(|power| [1, 2, 5].map(|step| step * power));
    let mut fit = all.take_while(|step| step * INTERVALS <= whole_ns);
    fit.by_ref().last().unwrap_or(1000)
}

/// Runs a course that was interrupted before it began: the commands it did, and those it has. An
/// interrupted course submits nothing more, and waits for the commands in flight. For tests of
/// callers that can serve.
///
/// # Errors
/// The machine has no two CPUs, or the drive cannot be served.
pub fn interrupted(serve: Serve) -> anyhow::Result<(usize, usize)> {
    let (host, server) = machine::cpu::pair()?.context("this machine has no two CPUs")?;
    let preset = model::preset::preset("samsung-970-pro").context("no such preset")?;
    let shape = preset.parameters(preset.size_bytes, None)?;
    let points = points::collection(&shape).context("a drive that collects garbage")?;
    let parameters = preset.parameters(points.size_bytes, None)?;
    let setup = Setup {
        host,
        server,
        serve,
    };
    let mut rig = Rig::new(preset, &parameters, &points, setup, Bytes::Forgotten)?;
    let measured = &points.measured[0];
    let ran = rig.run_once(measured, &Interrupt::already_set())?;
    rig.end()?;
    Ok((ran.done_ns[0].len(), measured.program.workers[0].len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_round() {
        assert_eq!(interval(13_000_000_000), 200_000_000);
        assert_eq!(interval(4_000_000_000), 50_000_000);
        assert_eq!(interval(750_000_000), 10_000_000);
        assert_eq!(interval(0), 1000);
    }
}
