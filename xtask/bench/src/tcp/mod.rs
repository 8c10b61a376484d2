//! `cargo xtask bench tcp`: our host and our server over NVMe/TCP, beside two threads that exchange
//! the same bytes without NVMe.
//!
//! Each round has the floor and the program one after the other, in turns, on the same processors
//! and with a look at their distance around both. A row has the median of the ratios of its rounds.
//! A server that cannot be reached, or stops, is an error and no row.

mod floor;
mod idle;

use std::fmt::Write as _;
use std::fs;
use std::net::TcpListener;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use self::floor::Floor;
use self::idle::Idle;
use super::Cpus;
use super::ours::{Ours, Setup, placement};
use super::process::Paused;
use super::sample::{Sample, median};

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct TcpArgs {
    /// Seconds for each figure
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How often everything is measured
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    cpus: Cpus,
    /// Without idle hosts
    #[arg(long)]
    no_idle: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Commands of `len` bytes, `depth` in flight.
#[derive(Clone, Copy, Debug)]
struct Case {
    len: usize,
    depth: u64,
}

/// What is compared: reads at random of blocks, and sequential ones of much data.
const CASES: [(Case, &str, f64); 4] = [
    (
        Case {
            len: 4 << 10,
            depth: 1,
        },
        "randread",
        1.0 / 1.15,
    ),
    (
        Case {
            len: 4 << 10,
            depth: 32,
        },
        "randread",
        0.85,
    ),
    (
        Case {
            len: 4 << 10,
            depth: 128,
        },
        "randread",
        0.85,
    ),
    (
        Case {
            len: 128 << 10,
            depth: 32,
        },
        "read",
        0.9,
    ),
];

const SIZE: &str = "1GiB";

/// A run.
struct Tcp<'a> {
    workspace: &'a Workspace,
    args: &'a TcpArgs,
}

impl Tcp<'_> {
    /// A controller with a free port of the loopback interface.
    fn setup(&self, kind: &'static str) -> Setup {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        Setup {
            tcp: port.ok().map(|address| address.port()),
            ..Setup::new(kind, SIZE)
        }
    }
}

/// One round of a case.
#[derive(Clone, Debug)]
struct Pair {
    floor: Floor,
    ours: Sample,
    placement: String,
}

/// Measures, and writes a table.
///
/// # Errors
/// A server cannot be started, cannot be reached or stops, or we are asked to stop.
pub(super) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &TcpArgs) -> Result<()> {
    let tcp = Tcp { workspace, args };
    let mut cases: Vec<Vec<Pair>> = vec![Vec::new(); CASES.len()];
    let ours = Ours::start(workspace, &tcp.setup("null"), args.cpus.pair())?;
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for ((case, rw, _), pairs) in CASES.iter().zip(&mut cases) {
            ensure!(!interrupt.is_set(), "interrupted");
            pairs.push(tcp.pair(&ours, *case, rw, round % 2 == 0)?);
        }
    }
    ours.stop()?;
    let idle = if args.no_idle {
        None
    } else {
        eprintln!("idle hosts");
        Some(idle::measure(&tcp)?)
    };
    let rows: Vec<Row> = CASES.iter().zip(&cases).map(Row::of).collect();
    report(workspace, args.json, &rows, idle)
}

impl Tcp<'_> {
    /// The floor and the program, one after the other: the second one finds other caches.
    fn pair(&self, ours: &Ours<'_>, case: Case, rw: &str, floor_first: bool) -> Result<Pair> {
        let (cpus, seconds) = (self.args.cpus, self.args.seconds);
        let measure = || {
            // It polls, on the same processor.
            let _paused = Paused::new(ours.pid())?;
            floor::measure(cpus.pair(), case, seconds)
        };
        let before = placement(self.workspace, cpus)?;
        let early = if floor_first { Some(measure()?) } else { None };
        let Case { len, depth } = case;
        let sample = ours.sample(&format!(
            "--rw {rw} --bs {len}B --qd {depth} --time {seconds}s"
        ))?;
        ensure!(sample.iops > 0.0, "the server answers no command");
        let floor = early.map_or_else(measure, Ok)?;
        let is_same = before == placement(self.workspace, cpus)? && before == sample.placement;
        Ok(Pair {
            floor,
            ours: sample,
            placement: if is_same { before } else { "mixed".into() },
        })
    }
}

/// What a case comes to: medians of its rounds.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    /// Commands a second: of the floor, and ours.
    rate: [f64; 2],
    /// Nanoseconds of the server's turns that found something, for each command.
    busy_ns: [f64; 2],
    /// Our rate, of the floor's: median, least and most.
    ratio: [f64; 3],
    /// What the ratio is to be at least.
    bar: f64,
    /// Rounds in which both processors were near each other, and in which they were far.
    near: usize,
    far: usize,
    rounds: usize,
}

impl Row {
    fn of(((case, rw, bar), pairs): (&(Case, &str, f64), &Vec<Pair>)) -> Self {
        let of = |value: &dyn Fn(&Pair) -> f64| {
            median(pairs.iter().map(value).collect()).unwrap_or(f64::NAN)
        };
        let ratio = |pair: &Pair| pair.ours.iops / pair.floor.rate;
        let ratios = pairs.iter().map(ratio);
        let placed = |name| pairs.iter().filter(|pair| pair.placement == name).count();
        Self {
            name: format!("{rw} {} KiB, {} in flight", case.len >> 10, case.depth),
            rate: [of(&|pair| pair.floor.rate), of(&|pair| pair.ours.iops)],
            busy_ns: [
                of(&|pair| pair.floor.busy_ns),
                of(&|pair| pair.ours.reactor_ns.unwrap_or(f64::NAN)),
            ],
            ratio: [
                of(&ratio),
                ratios.clone().fold(f64::INFINITY, f64::min),
                ratios.fold(0.0, f64::max),
            ],
            bar: *bar,
            near: placed("near"),
            far: placed("far"),
            rounds: pairs.len(),
        }
    }

    fn in_json(&self) -> Value {
        json!({
            "subject": self.name, "rate": self.rate, "busy_ns": self.busy_ns, "ratio": self.ratio,
            "bar": self.bar, "near": self.near, "far": self.far, "rounds": self.rounds,
        })
    }
}

fn report(workspace: &Workspace, in_json: bool, rows: &[Row], idle: Option<Idle>) -> Result<()> {
    let json: Vec<Value> = rows.iter().map(Row::in_json).collect();
    let idle_json = idle.map(|Idle { cpu, host_kib }| json!({ "cpu": cpu, "host_kib": host_kib }));
    let json = json!({ "rows": json, "idle": idle_json });
    fs::create_dir_all(workspace.logs())?;
    let file = workspace.logs().join("tcp.json");
    fs::write(&file, format!("{json:#}\n")).context("cannot write results")?;
    if in_json {
        println!("{json:#}");
    } else {
        print!("{}", table(rows, idle));
    }
    Ok(())
}

/// As the book has it.
fn table(rows: &[Row], idle: Option<Idle>) -> String {
    let mut text =
        "| null medium over NVMe/TCP | floor, K/s | ours, K/s | ratio (least to most) | bar | \
                    server, ns: floor | ours | near, far |\n|---|---|---|---|---|---|---|---|\n"
            .to_owned();
    for row in rows {
        let ([floor, ours], [median, least, most]) = (row.rate.map(|rate| rate / 1e3), row.ratio);
        let [floor_ns, ours_ns] = row.busy_ns;
        let _ = writeln!(
            text,
            "| {} | {floor:.1} | {ours:.1} | {median:.2} ({least:.2} to {most:.2}) | {:.2} | \
             {floor_ns:.0} | {ours_ns:.0} | {}, {} of {} |",
            row.name, row.bar, row.near, row.far, row.rounds
        );
    }
    if let Some(Idle { cpu, host_kib }) = idle {
        let (hosts, queues, depth) = (idle::HOSTS, idle::QUEUES, idle::DEPTH);
        let _ = writeln!(
            text,
            "{hosts} idle hosts with {queues} queues of {depth} each: {:.2} % of a processor, \
             {host_kib:.0} KiB each, {:.0} KiB for a queue",
            cpu * 100.0,
            host_kib / f64::from(queues)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_of_the_ratios() {
        // The machine was slower in the second round, for both.
        let pairs = [
            (100.0, 99.0, "far"),
            (10.0, 8.0, "near"),
            (50.0, 45.0, "far"),
        ];
        let pairs = pairs.map(|(floor, ours, placement)| Pair {
            floor: Floor {
                rate: floor * 1e3,
                busy_ns: 1e6 / floor,
            },
            ours: Sample {
                iops: ours * 1e3,
                reactor_ns: Some(1e6 / ours),
                ..Sample::default()
            },
            placement: placement.to_owned(),
        });
        let row = Row::of((&CASES[1], &pairs.to_vec()));
        assert_eq!(row.ratio, [0.9, 0.8, 0.99]);
        let idle = Idle {
            cpu: 0.005,
            host_kib: 400.0,
        };
        let table = table(&[row], Some(idle));
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(
            lines[2],
            "| randread 4 KiB, 32 in flight | 50.0 | 45.0 | 0.90 (0.80 to 0.99) | 0.85 | 20000 | 22222 | 1, 2 of 3 |"
        );
        assert_eq!(
            lines[3],
            "64 idle hosts with 4 queues of 128 each: 0.50 % of a processor, 400 KiB each, 100 KiB for a queue"
        );
    }
}
