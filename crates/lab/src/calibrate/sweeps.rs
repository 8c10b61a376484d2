//! The sweeps that a calibration needs, and which of them are present.

use model::Kind;
use serde::Serialize;

use super::unknowns::{ALONE, DEEP, DEPTHS, RESETS, SIZES, STEADY, WRITERS};
use super::{Act, Sample};

/// Measurements that identify parameters together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sweep {
    /// Name of the sweep.
    pub(crate) name: &'static str,
    /// Kind of its commands.
    pub(crate) direction: &'static str,
    /// Whether the measurements include it.
    pub(crate) present: bool,
    /// Parameters that it identifies.
    pub(crate) tells: &'static str,
    /// Command that measures it.
    pub(crate) command: String,
}

/// Size of a large command, and a large number in flight.
const LARGE: u32 = 64 << 10;
const MANY: u32 = 8;
/// Minimum number of points of a sweep.
const POINTS: usize = 3;

/// All sweeps for a drive of `kind`.
pub(crate) fn needed(kind: Kind, samples: &[Sample]) -> Vec<Sweep> {
    let usable: Vec<Sample> = samples.iter().filter_map(|s| s.on(kind).ok()).collect();
    let mut all = Vec::new();
    for act in Act::of_kind(kind) {
        let own: Vec<&Sample> = usable
            .iter()
            .filter(|s| s.act == act && !s.sustained)
            .collect();
        let of_act = Measured { kind, act, own };
        match (kind, act) {
            (Kind::Zns, Act::Write) => of_act.by_writers(&mut all),
            _ => of_act.by_depths(&mut all),
        }
    }
    let there = |act| usable.iter().any(|s| s.act == act);
    all.extend(match kind {
        Kind::Nvm => None,
        Kind::Flash => Some(Sweep {
            name: STEADY,
            direction: Act::Write.name(),
            present: usable.iter().any(|s| s.sustained),
            tells: "the space beyond what hosts see, in a job whose name begins with sustained",
            command: format!(
                "{} --name=sustained --rw=randwrite --bs=4k --iodepth=32 --ramp_time=1h --runtime=5m --time_based",
                FIO.trim_end_matches(" --name=points")
            ),
        }),
        Kind::Zns => Some(Sweep {
            name: RESETS,
            direction: Act::Reset.name(),
            present: there(Act::Reset),
            tells: "the erase of a block, from zones that are full",
            command: format!("{FIO} --zonemode=zbd --rw=trim --bs=ZONE_SIZE --iodepth=1"),
        }),
        Kind::Kv => Some(Sweep {
            name: ALONE,
            direction: Act::Delete.name(),
            present: there(Act::Delete),
            tells: "the time of one delete",
            command: format!("{KEYS} --value-size 4KiB --qd 1 --json"),
        }),
    });
    all
}

const FIO: &str =
    "fio --output-format=json --filename=/dev/DRIVE --direct=1 --ioengine=libaio --name=points";
const KEYS: &str = "nvmirage kv --target vfio-user:PATH bench";

/// Measurements of one kind of command.
struct Measured<'a> {
    kind: Kind,
    act: Act,
    own: Vec<&'a Sample>,
}

impl Measured<'_> {
    fn sweep(
        &self,
        name: &'static str,
        present: bool,
        tells: &'static str,
        command: String,
    ) -> Sweep {
        Sweep {
            name,
            direction: self.act.name(),
            present,
            tells,
            command,
        }
    }

    /// Whether several sizes were measured one at a time.
    fn has_sizes(&self) -> bool {
        let alone = self.own.iter().filter(|s| s.depth == 1);
        distinct(alone.map(|s| s.block_bytes)) >= POINTS
    }

    fn is_alone(&self) -> bool {
        self.own.iter().any(|s| s.depth == 1)
    }

    /// Sweeps of commands to any place, by size and depth.
    fn by_depths(&self, all: &mut Vec<Sweep>) {
        let small = self.own.iter().map(|s| s.block_bytes).min().unwrap_or(0);
        let of_small = self.own.iter().filter(|s| s.block_bytes == small);
        let depths = distinct(of_small.map(|s| s.depth)) >= POINTS;
        let deep = |s: &&Sample| s.block_bytes >= LARGE && s.depth >= MANY;
        let deep = self.own.iter().copied().any(|s| deep(&s));
        let rw = self.act.name();
        let consent = if rw == "write" { " --destroy-data" } else { "" };
        let command = |sizes: &str, depths: &str| match self.kind {
            Kind::Kv => {
                let several = sizes.contains(',') || depths.contains(',');
                let each = if several { "each of: " } else { "" };
                format!("{each}{KEYS} --value-size {sizes} --qd {depths} --json")
            }
            Kind::Zns => format!(
                "{FIO} --zonemode=zbd --rw=rand{rw} --bs={} --iodepth={depths}",
                sizes.replace("KiB", "k").replace("MiB", "m")
            ),
            Kind::Nvm | Kind::Flash => format!(
                "nvmirage bench --target vfio-user:PATH{consent} --rw rand{rw} --bs {sizes} --qd {depths} --json"
            ),
        };
        all.extend([
            self.sweep(
                ALONE,
                self.is_alone(),
                "the time of one command",
                command("4KiB", "1"),
            ),
            self.sweep(
                DEPTHS,
                depths,
                match self.kind {
                    Kind::Kv => {
                        "how many small commands a second are done at most, and by how many units"
                    }
                    _ => "how many small commands a second are done at most",
                },
                command("4KiB", "1,2,4,8,16,32,64,128"),
            ),
            self.sweep(
                SIZES,
                self.has_sizes(),
                "what further bytes cost",
                command("4KiB,16KiB,64KiB,256KiB,1MiB", "1"),
            ),
            self.sweep(
                DEEP,
                deep,
                "how many bytes a second there are at most",
                command("128KiB", "8,32"),
            ),
        ]);
    }

    /// Sweeps of writes to zones, in order.
    fn by_writers(&self, all: &mut Vec<Sweep>) {
        let command = |sizes: &str, writers: &str| {
            format!(
                "{FIO} --zonemode=zbd --rw=write --bs={sizes} --iodepth=1 --numjobs={writers} --size=8z --offset_increment=8z --group_reporting"
            )
        };
        let one = |size: u32| {
            let of_size = self.own.iter().filter(move |s| s.block_bytes == size);
            distinct(of_size.map(|s| s.writers.count))
        };
        let writers = self.own.iter().map(|s| one(s.block_bytes)).max();
        all.extend([
            self.sweep(
                ALONE,
                self.is_alone(),
                "the time of one command",
                command("4k", "1"),
            ),
            self.sweep(
                SIZES,
                self.has_sizes(),
                "what further bytes cost",
                command("4k,16k,64k,192k,1m", "1"),
            ),
            self.sweep(
                WRITERS,
                writers.unwrap_or(0) >= POINTS,
                "the program of a wordline, and how many bytes a second there are at most",
                command("192k", "1,2,4,8,16"),
            ),
        ]);
    }
}

fn distinct(values: impl Iterator<Item = u32>) -> usize {
    let mut values: Vec<u32> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.len()
}
