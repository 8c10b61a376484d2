//! Recordings of a modelled drive's operations in real time with their completion times, and their
//! replay in virtual time.
//!
//! A recording is a [trace](crate::trace) in our format with one queue, 0, and a sixth column: the
//! completion time, on the clock of the first column. Two comments precede it, `# drive
//! PRESET,NAME=VALUE,...` and `# size BYTES`, which describe the drive. The drive was fresh at the
//! start, and the arrivals are those at its model: after waiting for room in its buffer, appends
//! with their assigned positions, each zone and each range separately, and only hashes of keys.
//!
//! In a replay, driver, controller, engine and model get the same operations at the same times on a
//! virtual clock, over a medium whose hosts choose its model's operations ([`media::scripted`]).
//! Each must complete at exactly the recorded nanosecond.

use std::io::{self, Write};

use model::{Initial, KvOp, Op as ModelOp, Parameters, Recording, STEADY_SEED, ZoneOp};

use crate::job::{Kind, Op};
use crate::trace::{self, Arrival, HEADER, Trace, TraceError};
use crate::world::World;
use crate::{Error, Plan, Workload};

/// Commands in flight: one less than a channel holds.
const DEPTH: u16 = 4095;

/// A parsed recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The drive, as in `samsung-970-pro,overprovisioning=10%`.
    pub drive: String,
    /// Size of the drive in bytes.
    pub size: u64,
    /// The operations, on the recording's clock.
    trace: Trace,
    /// Completion time of each.
    due: Vec<u64>,
}

/// Result of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Number of commands.
    pub commands: u64,
    /// Commands with another completion time.
    pub differing: u64,
    /// The first of them: its number from 0, its recorded time, and its virtual time.
    pub first: Option<(usize, u64, u64)>,
}

/// Writes a recording of the drive described by these words and parameters. Omits commands that
/// were not complete at the end, and all later ones.
///
/// # Errors
/// Those of `out`.
pub fn write(
    out: &mut impl Write,
    (drive, parameters): (&str, &Parameters),
    size: u64,
    recording: &Recording,
) -> io::Result<()> {
    writeln!(out, "{HEADER}\n# drive {drive}\n# size {size}")?;
    let zone_size = match parameters {
        Parameters::Zones(zones) => zones.zone_size_bytes,
        _ => 0,
    };
    let mut compounds: [Vec<KvOp>; 1] = Default::default();
    for model::Arrival { at, op, due } in recording.arrivals() {
        let Some(due) = due else {
            break;
        };
        if let ModelOp::Compound(parts) = op {
            compounds[0].clear();
            compounds[0].extend_from_slice(parts);
        }
        let op = op_of(&op, zone_size);
        let arrival = Arrival { at, op, queue: 0 };
        trace::put(out, &arrival, &compounds, Some(due))?;
    }
    Ok(())
}

/// A model's operation in a trace's form; a compound one refers to the first of the trace's.
fn op_of(op: &ModelOp<'_>, zone_size: u64) -> Op {
    let zone = |kind, zone: u32| (kind, u64::from(zone) * zone_size, zone_size);
    let (kind, offset, len) = match *op {
        ModelOp::Read { offset, len } => (Kind::Read, offset, len.into()),
        ModelOp::Write { offset, len, .. } => (Kind::Write, offset, len.into()),
        ModelOp::Deallocate { offset, len } => (Kind::Trim, offset, len),
        ModelOp::Flush => (Kind::Flush, 0, 0),
        ModelOp::Zone(ZoneOp::Reset { zone: number }) => zone(Kind::Reset, number),
        ModelOp::Zone(ZoneOp::Finish { zone: number }) => zone(Kind::Finish, number),
        ModelOp::Zone(ZoneOp::Open { zone: number }) => zone(Kind::Open, number),
        ModelOp::Zone(ZoneOp::Close { zone: number }) => zone(Kind::Close, number),
        ModelOp::Kv(KvOp { kind, hash, len }) => (Kind::of_key(kind), hash.into(), len.into()),
        ModelOp::Compound(parts) => {
            let len = parts.iter().map(|part| u64::from(part.len)).sum();
            (Kind::Compound, 0, len)
        }
    };
    Op {
        kind,
        offset,
        len,
        fua: matches!(op, ModelOp::Write { fua: true, .. }),
    }
}

/// Parses a recording.
///
/// # Errors
/// The first line that is invalid.
pub fn read(text: &str) -> Result<Recorded, TraceError> {
    let wrong = |line, why: &str| TraceError {
        line,
        why: why.into(),
    };
    let (trace, due) = trace::parse_with_due(text)?;
    let comments = text.lines().filter_map(|line| line.strip_prefix('#'));
    let comments = comments.filter_map(|comment| comment.trim().split_once(' '));
    let (mut drive, mut size) = (None, None);
    for (name, value) in comments {
        match name {
            "drive" => drive = Some(value.to_owned()),
            "size" => size = value.parse().ok(),
            _ => {}
        }
    }
    let (Some(drive), Some(size)) = (drive, size) else {
        return Err(wrong(
            1,
            "this is no recording: one has the lines `# drive` and `# size`",
        ));
    };
    let due: Option<Vec<u64>> = due.into_iter().collect();
    let due = due.ok_or_else(|| {
        wrong(
            1,
            "a command does not say when it was done: write TIME OP PLACE LEN 0 DUE, as a recording has it",
        )
    })?;
    Ok(Recorded {
        drive,
        size,
        trace,
        due,
    })
}

/// Replays a recording on a new drive with these parameters, in the state `initial`.
///
/// # Errors
/// Invalid parameters; commands that do not fit the drive.
pub fn replay(
    parameters: &Parameters,
    initial: Initial,
    recorded: &Recorded,
) -> Result<Replayed, Error> {
    let workload = Workload::Trace(recorded.trace.clone());
    let plan = Plan {
        trace_depth: DEPTH,
        initial,
        ..Plan::new(workload, u64::MAX, STEADY_SEED)
    };
    let done = World::replay(parameters, recorded.size, &plan)?;
    let mut replayed = Replayed {
        commands: 0,
        differing: 0,
        first: None,
    };
    for (number, (real, done)) in recorded.due.iter().zip(done).enumerate() {
        replayed.commands += 1;
        if done != *real {
            replayed.differing += 1;
            replayed.first.get_or_insert((number, *real, done));
        }
    }
    Ok(replayed)
}

#[cfg(test)]
mod tests;
