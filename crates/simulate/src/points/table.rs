//! The points and their commands.
//!
//! They are those of the NVMeVirt paper's figure 4, as far as its text describes them: 4 to 256 KiB
//! one at a time for low-latency memory and conventional flash, reads and writes of 192 KiB by 1 to
//! 16 writers for zones, values of several sizes for keys; and in addition deep queues, at which
//! bandwidth rather than latency matters.

use driver::program::Command;
use model::Parameters;

use super::{Measured, Phase, Point, PointOp, Points};

const KIB: u32 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Range of reads; that of writes follows it.
const REGION: u64 = 64 * MIB;
/// Step between positions: a prime, modulo the region.
const STEP: u64 = 7919;
/// Block sizes, one at a time.
const SIZES: [u32; 7] = [
    4 * KIB,
    8 * KIB,
    16 * KIB,
    32 * KIB,
    64 * KIB,
    128 * KIB,
    256 * KIB,
];
/// Deep queues: bytes, and commands in flight. Data sheets use these. Four queues of 32 there are
/// one queue here, because the order in which queues continue after a stall depends on the
/// controller rather than the model.
const DEEP: [(u32, u16); 4] = [(4 * KIB, 16), (4 * KIB, 32), (4 * KIB, 128), (64 * KIB, 32)];
/// Value sizes.
const VALUES: [u32; 6] = [512, KIB, 2 * KIB, 4 * KIB, 16 * KIB, 64 * KIB];
/// Numbers of zone workers.
pub(super) const WORKERS: [u16; 5] = [1, 2, 4, 8, 16];
/// Zones for reads; as many for writes follow.
pub(super) const ZONES: u64 = 16;
/// Bytes of each zone that are written first.
const ZONE_FILL: u64 = 24 * MIB;
/// Size of a write to a zone.
pub(super) const ZONE_WRITE: u32 = 192 * KIB;
/// Writes of each zone worker.
const ZONE_WRITES: u64 = 64;
/// Index of the keys of compound commands, after those of the value sizes.
const EIGHT: usize = VALUES.len();
/// Values of each size for retrieves.
const KEYS: u64 = 512;

/// The points for drives with these parameters.
#[must_use]
pub fn of(parameters: &Parameters) -> Points {
    match parameters {
        Parameters::Nvm(_) | Parameters::Flash(_) => blocks(),
        Parameters::Kv(_) => keys(),
        Parameters::Zones(zones) => self::zones(zones.zone_size_bytes),
    }
}

/// Number of commands of a point: enough for its mean, and no more than 128 MiB.
fn count(block_size: u32, depth: u16) -> u64 {
    let most = if depth > 1 { 4096 } else { 1024 };
    (128 * MIB / u64::from(block_size)).clamp(256, most)
}

fn blocks() -> Points {
    let whole = 128 * KIB;
    let fill = (0..REGION / u64::from(whole)).map(|at| Command::Write {
        offset: at * u64::from(whole),
        len: whole,
    });
    let alone = SIZES.map(|size| (size, 1));
    let mut measured = Vec::new();
    for op in [PointOp::Read, PointOp::Write] {
        for (block_size, queue_depth) in alone.into_iter().chain(DEEP) {
            let places = REGION / u64::from(block_size);
            let count = count(block_size, queue_depth);
            let command = |at: u64| {
                let offset = at * STEP % places * u64::from(block_size);
                match op {
                    PointOp::Read => Command::Read {
                        offset,
                        len: block_size,
                    },
                    _ => Command::Write {
                        offset: REGION + offset,
                        len: block_size,
                    },
                }
            };
            let program = vec![(0..count).map(command).collect()];
            measured.push(point(op, block_size, queue_depth, Phase::none(), program));
        }
    }
    Points {
        size_bytes: 8 << 30,
        prepare: one(16, fill),
        measured,
    }
}

fn zones(zone_size: u64) -> Points {
    let start = |zone: u64| zone * zone_size;
    let writes = |zones: std::ops::Range<u64>, each: u64| {
        (0..each).flat_map(move |at| {
            zones.clone().map(move |zone| Command::Write {
                offset: start(zone) + at * u64::from(ZONE_WRITE),
                len: ZONE_WRITE,
            })
        })
    };
    let mut measured = Vec::new();
    for workers in WORKERS {
        let places = ZONE_FILL / 4096;
        let reads = |worker: u64| {
            (0..count(4 * KIB, 1)).map(move |at| Command::Read {
                offset: start(worker) + (at + worker) * STEP % places * 4096,
                len: 4 * KIB,
            })
        };
        let programs = (0..u64::from(workers)).map(|worker| reads(worker).collect());
        measured.push(point(
            PointOp::Read,
            4 * KIB,
            1,
            Phase::none(),
            programs.collect(),
        ));
    }
    for workers in WORKERS {
        let zones = ZONES..ZONES + u64::from(workers);
        let resets = zones.clone().map(|zone| Command::ResetZone {
            offset: start(zone),
        });
        let programs = zones.map(|zone| writes(zone..zone + 1, ZONE_WRITES).collect());
        measured.push(point(
            PointOp::Write,
            ZONE_WRITE,
            1,
            one(1, resets),
            programs.collect(),
        ));
    }
    Points {
        size_bytes: 2 * ZONES * zone_size,
        // One in flight for each zone, so that its writes stay in order.
        prepare: one(16, writes(0..ZONES, ZONE_FILL / u64::from(ZONE_WRITE))),
        measured,
    }
}

/// Number of a key for a value of that size; keys that points store differ from those that they
/// retrieve.
fn key(size: usize, stored: bool, at: u64) -> u64 {
    (size as u64) << 32 | u64::from(stored) << 24 | at
}

fn keys() -> Points {
    let sizes = || VALUES.into_iter().enumerate();
    let fill = sizes().flat_map(|(index, len)| {
        (0..KEYS).map(move |at| Command::Store {
            key: key(index, false, at),
            len,
        })
    });
    let mut measured = Vec::new();
    for op in [PointOp::Store, PointOp::Retrieve] {
        for queue_depth in [1, 32] {
            for (index, len) in sizes() {
                let commands = (0..KEYS * 2).map(|at| match op {
                    PointOp::Store => Command::Store {
                        key: key(index, true, at % KEYS),
                        len,
                    },
                    _ => Command::Retrieve {
                        key: key(index, false, at * STEP % KEYS),
                        len,
                    },
                });
                measured.push(point(
                    op,
                    len,
                    queue_depth,
                    Phase::none(),
                    vec![commands.collect()],
                ));
            }
        }
    }
    let eight = (0..KEYS / 2).map(|at| Command::StoreTogether {
        key: key(EIGHT, true, at * 8),
        count: 8,
        len: 4 * KIB,
    });
    let program = vec![eight.collect()];
    measured.push(point(
        PointOp::StoreEight,
        4 * KIB,
        1,
        Phase::none(),
        program,
    ));
    Points {
        size_bytes: 256 * MIB,
        prepare: one(16, fill),
        measured,
    }
}

pub(super) fn one(depth: u16, commands: impl Iterator<Item = Command>) -> Phase {
    Phase {
        depth,
        workers: vec![commands.collect()],
    }
}

pub(super) fn point(
    op: PointOp,
    block_size: u32,
    queue_depth: u16,
    before: Phase,
    workers: Vec<Vec<Command>>,
) -> Measured {
    Measured {
        point: Point {
            op,
            block_size,
            queue_depth,
            workers: workers.len() as u16,
        },
        before,
        program: Phase {
            depth: queue_depth,
            workers,
        },
    }
}
