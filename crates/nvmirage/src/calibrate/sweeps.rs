//! The measurements that a calibration needs, and which of them are there.

use model::Kind;
use serde::Serialize;

use super::unknowns::{ALONE, DEEP, DEPTHS, SIZES, STEADY};
use super::{Direction, Sample};

/// Measurements that say something together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sweep {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Of reads or of writes.
    pub(crate) direction: &'static str,
    /// Whether it is there.
    pub(crate) present: bool,
    /// What it tells.
    pub(crate) tells: &'static str,
    /// How it is measured.
    pub(crate) command: String,
}

/// A command that is large, and many of them in flight.
const LARGE: u32 = 64 << 10;
const MANY: u32 = 8;
/// Points that make a sweep.
const POINTS: usize = 3;

/// All that a drive of `kind` needs.
pub(crate) fn needed(kind: Kind, samples: &[Sample]) -> Vec<Sweep> {
    let mut all = Vec::new();
    for direction in [Direction::Read, Direction::Write] {
        let own: Vec<&Sample> = samples
            .iter()
            .filter(|s| s.direction == direction && !s.sustained)
            .collect();
        let small = own.iter().map(|s| s.block_bytes).min().unwrap_or(0);
        let depths = distinct(
            own.iter()
                .filter(|s| s.block_bytes == small)
                .map(|s| s.depth),
        );
        let sizes = distinct(own.iter().filter(|s| s.depth == 1).map(|s| s.block_bytes));
        let deep = own
            .iter()
            .any(|s| s.block_bytes >= LARGE && s.depth >= MANY);
        let rw = direction.name();
        let mut sweep = |name, present, tells, options: &str| {
            all.push(Sweep {
                name,
                direction: rw,
                present,
                tells,
                command: format!(
                    "nvmirage bench --target vfio-user:PATH --rw rand{rw} {options} --json"
                ),
            });
        };
        sweep(
            ALONE,
            own.iter().any(|s| s.depth == 1),
            "the time of one command",
            "--bs 4KiB --qd 1",
        );
        sweep(
            DEPTHS,
            depths >= POINTS,
            "how many small commands a second are done at most",
            "--bs 4KiB --qd 1,2,4,8,16,32,64,128",
        );
        sweep(
            SIZES,
            sizes >= POINTS,
            "what further bytes cost",
            "--bs 4KiB,16KiB,64KiB,256KiB,1MiB --qd 1",
        );
        sweep(
            DEEP,
            deep,
            "how many bytes a second there are at most",
            "--bs 128KiB --qd 8,32",
        );
    }
    if kind == Kind::Flash {
        all.push(Sweep {
            name: STEADY,
            direction: Direction::Write.name(),
            present: samples.iter().any(|s| s.sustained),
            tells: "the space beyond what hosts see, in a job whose name begins with sustained",
            command: "fio --name=sustained --filename=/dev/DRIVE --direct=1 --ioengine=libaio --rw=randwrite --bs=4k --iodepth=32 --ramp_time=1h --runtime=5m --time_based --output-format=json"
                .to_owned(),
        });
    }
    all
}

fn distinct(values: impl Iterator<Item = u32>) -> usize {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}
