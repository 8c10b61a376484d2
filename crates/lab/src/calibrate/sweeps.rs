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
    /// Shell command that measures it: fio on a drive of this machine, where fio can.
    pub(crate) command: String,
    /// Command that measures the same with this program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) or: Option<String>,
}

/// A shell command that runs fio for each of these sizes and values of an option. Each result has a
/// file.
fn fio(rw: &str, options: &str, sizes: &[&str], (name, values): (&str, &[u32])) -> String {
    let list: Vec<String> = values.iter().map(u32::to_string).collect();
    let loops = [("bs", sizes.join(" ")), (name, list.join(" "))];
    let several = loops.iter().filter(|(_, all)| all.contains(' '));
    let (mut before, mut after) = (String::new(), String::new());
    for (variable, all) in several {
        before += &format!("for {variable} in {all}; do ");
        after += "; done";
    }
    let [size, value] = loops.map(|(variable, all)| {
        if all.contains(' ') {
            format!("${variable}")
        } else {
            all
        }
    });
    format!(
        "{before}{FIO} --rw={rw} {options} --bs={size} --{name}={value} --output={rw}-{size}-{value}.json{after}"
    )
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
            or: None,
        }),
        Kind::Zns => Some(Sweep {
            name: RESETS,
            direction: Act::Reset.name(),
            present: there(Act::Reset),
            tells: "the erase of a block, from zones that are full",
            command: format!("{FIO} --zonemode=zbd --rw=trim --bs=ZONE_SIZE --iodepth=1"),
            or: None,
        }),
        Kind::Kv => Some(Sweep {
            name: ALONE,
            direction: Act::Delete.name(),
            present: there(Act::Delete),
            tells: "the time of one delete",
            command: format!("{KEYS} --value-size 4KiB --qd 1 --json"),
            or: None,
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
        (command, or): (String, Option<String>),
    ) -> Sweep {
        Sweep {
            name,
            direction: self.act.name(),
            present,
            tells,
            command,
            or,
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
        let command = |sizes: &[&str], depths: &[u32]| {
            let list: Vec<String> = depths.iter().map(u32::to_string).collect();
            let (bytes, depth) = (sizes.join(","), list.join(","));
            let mode = if self.kind == Kind::Zns {
                "--zonemode=zbd "
            } else {
                ""
            };
            let options = format!("{mode}--runtime=10s --time_based");
            let fio = || fio(&format!("rand{rw}"), &options, sizes, ("iodepth", depths));
            match self.kind {
                Kind::Kv => {
                    let several = sizes.len() > 1 || depths.len() > 1;
                    let each = if several { "each of: " } else { "" };
                    let keys = format!("{each}{KEYS} --value-size {bytes} --qd {depth} --json");
                    (keys, None)
                }
                Kind::Zns => (fio(), None),
                Kind::Nvm | Kind::Flash => {
                    let bench = format!(
                        "nvmirage bench --target vfio-user:PATH{consent} --rw rand{rw} --bs {bytes} --qd {depth} --json"
                    );
                    (fio(), Some(bench))
                }
            }
        };
        all.extend([
            self.sweep(
                ALONE,
                self.is_alone(),
                "the time of one command",
                command(&["4k"], &[1]),
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
                command(&["4k"], &[1, 2, 4, 8, 16, 32, 64, 128]),
            ),
            self.sweep(
                SIZES,
                self.has_sizes(),
                "what further bytes cost",
                command(&["4k", "16k", "64k", "256k", "1m"], &[1]),
            ),
            self.sweep(
                DEEP,
                deep,
                "how many bytes a second there are at most",
                command(&["128k"], &[8, 32]),
            ),
        ]);
    }

    /// Sweeps of writes to zones, in order.
    fn by_writers(&self, all: &mut Vec<Sweep>) {
        let command = |sizes: &[&str], writers: &[u32]| {
            let options =
                "--zonemode=zbd --iodepth=1 --size=8z --offset_increment=8z --group_reporting";
            (fio("write", options, sizes, ("numjobs", writers)), None)
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
                command(&["4k"], &[1]),
            ),
            self.sweep(
                SIZES,
                self.has_sizes(),
                "what further bytes cost",
                command(&["4k", "16k", "64k", "192k", "1m"], &[1]),
            ),
            self.sweep(
                WRITERS,
                writers.unwrap_or(0) >= POINTS,
                "the program of a wordline, and how many bytes a second there are at most",
                command(&["192k"], &[1, 2, 4, 8, 16]),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_of_one_file_each_and_a_shell_runs_them() {
        let one = fio("randread", "--runtime=1s", &["4k"], ("iodepth", &[1]));
        assert_eq!(
            one,
            format!(
                "{FIO} --rw=randread --runtime=1s --bs=4k --iodepth=1 --output=randread-4k-1.json"
            )
        );
        let several = fio(
            "write",
            "--zonemode=zbd",
            &["4k", "1m"],
            ("numjobs", &[1, 2]),
        );
        // The shell counts: two sizes, two numbers of writers.
        let program = several.replace(FIO, "echo");
        let output = std::process::Command::new("sh")
            .args(["-c", &program])
            .output()
            .unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let all: Vec<_> = lines.lines().collect();
        assert_eq!(all.len(), 4, "{lines}");
        assert_eq!(
            all[3],
            "--rw=write --zonemode=zbd --bs=1m --numjobs=2 --output=write-1m-2.json"
        );
    }
}
