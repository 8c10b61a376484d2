//! Measurements in addition to the points: throughput over time, and the effect of zones on hosts
//! that know them. They have the form of the NVMeVirt paper's figures 5b and 5c, whose plots are
//! not printed as numbers; sizes and depths are ours.
//!
//! They are [`Points`] like others, and run the same ways, but are not compared with the oracle.

use driver::program::{Command, Ran};
use driver::workload::random::Random;
use model::Parameters;

use super::table::{ZONE_WRITE, ZONES, one, point};
use super::{Phase, PointOp, Points};

const KIB: u32 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Size of a drive with enough lines that its write amplification is that of larger ones, for the
/// conventional presets.
const COLLECTED: u64 = 8192 * MIB;
/// Bytes of the commands that fill it.
const FILL: u32 = 128 * KIB;
/// Random page writes: their number, and the number in flight.
const OVERWRITES: u64 = 1 << 18;
const DEPTH: u16 = 32;
/// Seed of their positions.
const SEED: u64 = 5;

/// Total size of the appends of one point, which fits in a zone.
const APPENDED: u64 = 24 * MIB;
/// Number of writers that go through zones in order.
const WRITERS: u64 = 8;
/// Bytes that each writes to a zone before the next, or the whole zone if that is smaller.
const ZONE_PART: u64 = 96 * MIB;
/// Number of zones that each writes.
const TURNS: u64 = 4;
/// Zones of each writer: one is reset and written after the other.
const ZONES_EACH: u64 = 2;

/// Throughput over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// Length of each interval.
    pub interval_ns: u64,
    /// Bytes per second in each interval. A partial last interval is left out.
    pub bytes_per_s: Vec<u64>,
}

impl Course {
    /// The course of a phase that was run, in intervals of this length.
    #[must_use]
    pub fn of(phase: &Phase, ran: &Ran, interval_ns: u64) -> Self {
        let done = || ran.done_ns.iter().flatten().copied();
        let count = done().max().unwrap_or(0) / interval_ns;
        let mut bytes = vec![0; usize::try_from(count).unwrap_or(0)];
        let workers = phase.workers.iter().zip(&ran.done_ns);
        for (command, at) in workers.flat_map(|(commands, done)| commands.iter().zip(done)) {
            let interval = usize::try_from(at / interval_ns).unwrap_or(usize::MAX);
            if let Some(bytes) = bytes.get_mut(interval) {
                *bytes += u64::from(command.data_len());
            }
        }
        let per_s = |bytes: u64| {
            let per_s = u128::from(bytes) * 1_000_000_000 / u128::from(interval_ns);
            u64::try_from(per_s).unwrap_or(u64::MAX)
        };
        Self {
            interval_ns,
            bytes_per_s: bytes.into_iter().map(per_s).collect(),
        }
    }
}

/// A fresh drive is filled in order, and then overwritten at random until collection has started.
/// `None` if it does not collect.
#[must_use]
pub fn collection(parameters: &Parameters) -> Option<Points> {
    let Parameters::Flash(_) = parameters else {
        return None;
    };
    let fill = (0..COLLECTED / u64::from(FILL)).map(|at| Command::Write {
        offset: at * u64::from(FILL),
        len: FILL,
    });
    let mut random = Random::new(SEED);
    let overwrites = (0..OVERWRITES).map(|_| Command::Write {
        offset: random.below(COLLECTED / 4096) * 4096,
        len: 4096,
    });
    let program = vec![fill.chain(overwrites).collect()];
    Some(Points {
        size_bytes: COLLECTED,
        prepare: Phase::none(),
        measured: vec![point(PointOp::Write, 4096, DEPTH, Phase::none(), program)],
    })
}

/// Workers without knowledge of zones: as many as at the points, but all append to the same zone.
/// `None` without zones.
#[must_use]
pub fn one_zone(parameters: &Parameters) -> Option<Points> {
    let Parameters::Zones(zones) = parameters else {
        return None;
    };
    let offset = ZONES * zones.zone_size_bytes;
    let of_workers = |workers: u16| {
        let each = APPENDED / u64::from(ZONE_WRITE) / u64::from(workers);
        let append = Command::Append {
            offset,
            len: ZONE_WRITE,
        };
        let program = (0..workers).map(|_| (0..each).map(|_| append).collect());
        let before = one(1, std::iter::once(Command::ResetZone { offset }));
        point(PointOp::Append, ZONE_WRITE, 1, before, program.collect())
    };
    Some(Points {
        size_bytes: 2 * ZONES * zones.zone_size_bytes,
        prepare: Phase::none(),
        measured: super::table::WORKERS.map(of_workers).into(),
    })
}

/// Writers with their own zones, each of which is reset and written after the previous one. `None`
/// without zones.
#[must_use]
pub fn zones_in_turn(parameters: &Parameters) -> Option<Points> {
    let Parameters::Zones(zones) = parameters else {
        return None;
    };
    let start =
        |writer: u64, turn: u64| (writer * ZONES_EACH + turn % ZONES_EACH) * zones.zone_size_bytes;
    let of_turn = |writer: u64, turn: u64| {
        let offset = start(writer, turn);
        let reset = (turn >= ZONES_EACH).then_some(Command::ResetZone { offset });
        let part = ZONE_PART.min(zones.zone_capacity_bytes);
        let writes = (0..part / u64::from(ZONE_WRITE)).map(move |at| Command::Write {
            offset: offset + at * u64::from(ZONE_WRITE),
            len: ZONE_WRITE,
        });
        reset.into_iter().chain(writes)
    };
    let writer = |writer| (0..TURNS).flat_map(move |turn| of_turn(writer, turn));
    let program = (0..WRITERS).map(|number| writer(number).collect());
    Some(Points {
        size_bytes: WRITERS * ZONES_EACH * zones.zone_size_bytes,
        prepare: Phase::none(),
        measured: vec![point(
            PointOp::Write,
            ZONE_WRITE,
            1,
            Phase::none(),
            program.collect(),
        )],
    })
}
