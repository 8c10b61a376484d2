//! What is measured only to be drawn: throughput over time, when collection sets in and when zones are written in turn, and what workers get
//! that all append to one zone.

use driver::program::Ran;
use model::preset::Preset;
use serde::Serialize;
use simulate::points::{self, Points};

use super::measure::{Drive, PointReport};
use super::real::{Bytes, Cpus, Rig};

/// Intervals of a course, at least; half as long ones are more than twice as many.
const INTERVALS: u64 = 50;

/// Throughput over time, of the same commands in virtual time and for real.
#[derive(Debug, Serialize)]
pub(super) struct Course {
    pub(super) preset: String,
    pub(super) name: &'static str,
    pub(super) size_bytes: u64,
    /// Length of an interval; what is left behind the last is not told.
    pub(super) interval_ns: u64,
    /// What all commands take.
    pub(super) virtual_ns: u64,
    /// The same for real; `None` also where the machine was too slow and it was ended before.
    pub(super) real_ns: Option<u64>,
    pub(super) virtual_bytes_per_s: Vec<u64>,
    pub(super) real_bytes_per_s: Option<Vec<u64>>,
}

/// What zones are worth.
pub(super) struct Zones {
    /// Writers that go through zones in turn.
    pub(super) course: Course,
    /// Workers that all append to one zone.
    pub(super) one_zone: Vec<PointReport>,
}

/// A drive that is filled and overwritten at random, where the preset collects and `only` is part of this course's name.
pub(super) fn collection(
    preset: &Preset,
    cpus: Option<Cpus>,
    only: &str,
) -> anyhow::Result<Option<Course>> {
    let name = "collection";
    let shape = preset.parameters(preset.size_bytes, None)?;
    match points::collection(&shape).filter(|_| name.contains(only)) {
        Some(points) => Course::run(preset, name, &points, cpus, Bytes::Forgotten).map(Some),
        None => Ok(None),
    }
}

/// Writers of zones, where the preset has some and `only` is part of this course's name.
pub(super) fn zones(
    preset: &Preset,
    cpus: Option<Cpus>,
    runs: u32,
    only: &str,
) -> anyhow::Result<Option<Zones>> {
    let name = "zones";
    let shape = preset.parameters(preset.size_bytes, None)?;
    let in_turn = points::zones_in_turn(&shape).filter(|_| name.contains(only));
    let (Some(in_turn), Some(one_zone)) = (in_turn, points::one_zone(&shape)) else {
        return Ok(None);
    };
    let course = Course::run(preset, name, &in_turn, cpus, Bytes::Kept)?;
    let mut drive = Drive::at(preset, one_zone)?;
    if let Some(cpus) = cpus {
        drive.run_for_real(cpus, runs, |_, _| true)?;
    }
    Ok(Some(Zones {
        course,
        one_zone: drive.points()?,
    }))
}

impl Course {
    /// Runs the only point of `points` once each way.
    fn run(
        preset: &Preset,
        name: &'static str,
        points: &Points,
        cpus: Option<Cpus>,
        bytes: Bytes,
    ) -> anyhow::Result<Self> {
        let parameters = preset.parameters(points.size_bytes, None)?;
        let [measured] = &points.measured[..] else {
            anyhow::bail!("a course has one point");
        };
        let (computed, _) = points::measure(&parameters, points, measured, 0)?;
        let seen = match cpus {
            Some(cpus) => {
                let mut rig = Rig::new(preset, &parameters, points, cpus, bytes)?;
                let ran = rig.run_once(measured)?;
                rig.end()?;
                Some(ran)
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

/// One, two or five times a power of ten, for a picture of so long.
fn interval(whole_ns: u64) -> u64 {
    let powers = (3..12).map(|power| 10_u64.pow(power));
    let all = powers.flat_map(|power| [1, 2, 5].map(|step| step * power));
    let mut fit = all.take_while(|step| step * INTERVALS <= whole_ns);
    fit.by_ref().last().unwrap_or(1000)
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
