//! Rows of what was measured: medians, bars, and the tables of the book.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use xtask_shared::workspace::Workspace;

use super::client::Ring;
use super::{FILE_DEPTHS, RAM_DEPTH, idle};
use crate::sample::{Sample, Summary, median};

/// Nanoseconds for each request that vhost-user-blk may take beyond vfio-user.
const RAM_BAR_NS: f64 = 60.0;
/// Latency and processor time for each request, of those of qemu-storage-daemon.
const FILE_BAR: f64 = 0.4;
/// Part of a processor that a server takes for all idle front ends.
const IDLE_BAR: f64 = 0.01;

/// Everything that was measured.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) null: Vec<NullCase>,
    /// vhost-user-blk and vfio-user, of each round.
    pub(super) ram: Vec<Pair>,
    /// The program and qemu-storage-daemon, of each round, at each of [`FILE_DEPTHS`].
    pub(super) files: Vec<[Pair; 2]>,
    /// Part of a processor.
    pub(super) idle: Option<f64>,
}

/// A ring and a depth, with a sample of each round.
#[derive(Debug)]
pub(super) struct NullCase {
    ring: Ring,
    depth: u64,
    pub(super) samples: Vec<Sample>,
}

impl NullCase {
    pub(super) fn new(ring: Ring, depth: u64) -> Self {
        let samples = Vec::new();
        Self {
            ring,
            depth,
            samples,
        }
    }
}

/// Two samples of one round.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    ours: Sample,
    other: Sample,
}

impl Pair {
    pub(super) fn new(ours: Sample, other: Sample) -> Self {
        Self { ours, other }
    }

    fn placement(&self) -> &str {
        if self.ours.placement == self.other.placement {
            &self.ours.placement
        } else {
            "mixed"
        }
    }
}

/// Those whose processors were near each other, and those with far ones; where there are neither,
/// all.
fn placed<T>(all: &[T], placement: impl Fn(&T) -> &str) -> Vec<(&'static str, Vec<&T>)> {
    let mut groups: Vec<_> = ["near", "far"]
        .map(|name| {
            let members = all.iter().filter(|it| placement(it) == name);
            (name, members.collect::<Vec<_>>())
        })
        .into();
    groups.retain(|(_, members)| !members.is_empty());
    if groups.is_empty() && !all.is_empty() {
        groups.push(("unknown", all.iter().collect()));
    }
    groups
}

/// A figure of both sides of pairs: medians.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Compared {
    ours: f64,
    other: f64,
    /// How far they are apart: median, least and most of the pairs.
    apart: [f64; 3],
}

impl Compared {
    /// Of the pairs that have the figure; none where none has.
    fn of(
        pairs: &[&Pair],
        figure: impl Fn(&Sample) -> Option<f64>,
        apart: impl Fn(f64, f64) -> f64,
    ) -> Option<Self> {
        let figures = pairs
            .iter()
            .filter_map(|pair| figure(&pair.ours).zip(figure(&pair.other)));
        let (ours, other): (Vec<f64>, Vec<f64>) = figures.unzip();
        let aparts: Vec<f64> = ours
            .iter()
            .zip(&other)
            .map(|(a, b)| apart(*a, *b))
            .collect();
        let least = aparts.iter().copied().fold(f64::INFINITY, f64::min);
        let most = aparts.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self {
            ours: median(ours)?,
            other: median(other)?,
            apart: [median(aparts)?, least, most],
        })
    }
}

/// A line of two sides.
#[derive(Debug, PartialEq)]
struct Row {
    name: String,
    depth: u64,
    placement: &'static str,
    /// Decimals of the figures.
    digits: usize,
    compared: Compared,
    bar: Option<f64>,
    rounds: usize,
}

impl Row {
    fn in_json(&self) -> Value {
        let Compared { ours, other, apart } = self.compared;
        json!({
            "subject": self.name, "queue_depth": self.depth, "placement": self.placement,
            "ours": ours, "other": other, "apart": apart, "bar": self.bar, "rounds": self.rounds,
        })
    }
}

/// vhost-user-blk beside vfio-user, by placement: the time of a request from outside, and that of
/// the reactor.
fn ram_rows(pairs: &[Pair]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (placement, pairs) in placed(pairs, Pair::placement) {
        let mut push = |name: &str, figure: &dyn Fn(&Sample) -> Option<f64>| {
            let compared = Compared::of(&pairs, figure, |ours, other| ours - other);
            rows.extend(compared.map(|compared| Row {
                name: name.to_owned(),
                depth: RAM_DEPTH,
                placement,
                digits: 0,
                compared,
                bar: Some(RAM_BAR_NS),
                rounds: pairs.len(),
            }));
        };
        push("1/IOPS, ns", &|sample| Some(1e9 / sample.iops));
        push("reactor, ns for each", &|sample| sample.reactor_ns);
    }
    rows
}

/// The program beside qemu-storage-daemon. The distance of the processors is far less than a
/// request of the latter, so all rounds count.
fn file_rows(rounds: &[[Pair; 2]]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (at, depth) in FILE_DEPTHS.into_iter().enumerate() {
        let pairs: Vec<&Pair> = rounds.iter().map(|round| &round[at]).collect();
        let mut push = |name: &str, digits, bar, figure: &dyn Fn(&Sample) -> Option<f64>| {
            let compared = Compared::of(&pairs, figure, |ours, other| ours / other);
            rows.extend(compared.map(|compared| Row {
                name: name.to_owned(),
                depth,
                placement: "any",
                digits,
                compared,
                bar,
                rounds: pairs.len(),
            }));
        };
        let bar = Some(FILE_BAR);
        push("mean latency, µs", 1, bar, &|sample| Some(sample.mean_us));
        push("p50, µs", 1, bar, &|sample| sample.p50_us);
        push("server's CPU, ns for each", 0, bar, &|sample| {
            sample.server_ns
        });
        push("IOPS, K/s", 1, None, &|sample| Some(sample.iops / 1e3));
    }
    rows
}

/// Writes JSON beside the logs of the tests, and prints it or tables.
///
/// # Errors
/// The file cannot be written.
pub(super) fn report(workspace: &Workspace, in_json: bool, measured: &Measured) -> Result<()> {
    let json = json!({
        "null": measured.null.iter().flat_map(null_in_json).collect::<Vec<_>>(),
        "ram": ram_rows(&measured.ram).iter().map(Row::in_json).collect::<Vec<_>>(),
        "file": file_rows(&measured.files).iter().map(Row::in_json).collect::<Vec<_>>(),
        "idle": measured.idle.map(|cpu| json!({
            "front_ends": idle::FRONT_ENDS, "cpu": cpu, "bar": IDLE_BAR,
        })),
    });
    fs::create_dir_all(workspace.logs())?;
    let file = workspace.logs().join("vhost.json");
    fs::write(&file, format!("{json:#}\n")).context("cannot write results")?;
    if in_json {
        println!("{json:#}");
    } else {
        print!("{}", tables(measured));
        println!("{} has all of it", file.display());
    }
    Ok(())
}

fn null_in_json(case: &NullCase) -> Vec<Value> {
    let groups = placed(&case.samples, |sample| &sample.placement);
    let rows = groups.iter().filter_map(|(placement, samples)| {
        let mut row = Summary::of(samples)?.in_json();
        row["ring"] = case.ring.name().into();
        row["queue_depth"] = case.depth.into();
        row["placement"] = (*placement).into();
        Some(row)
    });
    rows.collect()
}

/// As the book has them.
fn tables(measured: &Measured) -> String {
    let mut text = String::new();
    if !measured.null.is_empty() {
        null_table(&mut text, &measured.null);
    }
    let rows = ram_rows(&measured.ram);
    if !rows.is_empty() {
        text += "| 4 KiB random reads of memory | QD | CPUs | vhost-user-blk | vfio-user | \
                 difference (least to most) | bar | rounds |\n|---|---|---|---|---|---|---|---|\n";
        for row in &rows {
            line(&mut text, row, row.digits);
        }
        text.push('\n');
    }
    let rows = file_rows(&measured.files);
    if !rows.is_empty() {
        text += "| 4 KiB random reads of a file in memory | QD | CPUs | nvmirage | \
                 qemu-storage-daemon | ratio (least to most) | bar | rounds |\n\
                 |---|---|---|---|---|---|---|---|\n";
        for row in &rows {
            line(&mut text, row, 2);
        }
        text.push('\n');
    }
    if let Some(cpu) = measured.idle {
        let _ = writeln!(
            text,
            "{} idle front ends: {:.2} % of a CPU over {} s (bar: {:.0} %)",
            idle::FRONT_ENDS,
            cpu * 100.0,
            idle::WATCHED.as_secs(),
            IDLE_BAR * 100.0
        );
    }
    text
}

fn null_table(text: &mut String, cases: &[NullCase]) {
    *text += "| null medium, 4 KiB random reads | QD | CPUs | IOPS, K/s (least to most) | mean, µs | \
              p50, µs | reactor, ns for each | rounds |\n|---|---|---|---|---|---|---|---|\n";
    for case in cases {
        for (placement, samples) in placed(&case.samples, |sample| &sample.placement) {
            let Some(summary) = Summary::of(&samples) else {
                continue;
            };
            let of = &summary.median;
            let shown = |value: Option<f64>, digits: usize| {
                value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let _ = writeln!(
                text,
                "| {} | {} | {placement} | {:.1} ({:.1} to {:.1}) | {:.2} | {} | {} | {} of {} |",
                case.ring.name(),
                case.depth,
                of.iops / 1e3,
                summary.least / 1e3,
                summary.most / 1e3,
                of.mean_us,
                shown(of.p50_us, 2),
                shown(of.reactor_ns, 0),
                summary.samples,
                case.samples.len()
            );
        }
    }
    text.push('\n');
}

/// A row of two sides, with so many decimals of what is between them.
fn line(text: &mut String, row: &Row, decimals: usize) {
    let digits = row.digits;
    let Compared { ours, other, apart } = row.compared;
    let [median, least, most] = apart.map(|value| format!("{value:.decimals$}"));
    let bar = row
        .bar
        .map_or(String::new(), |bar| format!("{bar:.decimals$}"));
    let _ = writeln!(
        text,
        "| {} | {} | {} | {ours:.digits$} | {other:.digits$} | {median} ({least} to {most}) | \
         {bar} | {} |",
        row.name, row.depth, row.placement, row.rounds
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sample with so many microseconds for each request, one in flight.
    fn sample(us: f64, placement: &str) -> Sample {
        Sample {
            iops: 1e6 / us,
            mean_us: us,
            p50_us: Some(us / 2.0),
            server_ns: Some(us * 500.0),
            reactor_ns: Some(us * 100.0),
            placement: placement.to_owned(),
            ..Sample::default()
        }
    }

    #[test]
    fn placements_have_rows_of_their_own() {
        let mut case = NullCase::new(Ring::Packed, 32);
        for (us, placement) in [
            (1.0, "near"),
            (4.0, "far"),
            (9.0, "mixed"),
            (2.0, "near"),
            (1.0, "near"),
        ] {
            case.samples.push(sample(us, placement));
        }
        let rows = null_in_json(&case);
        let of = |name: &str| rows.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
        assert_eq!(of("placement"), ["near", "far"]);
        assert_eq!(of("samples"), [3, 1]);
        assert_eq!(of("iops"), [1e6, 2.5e5]);
        assert_eq!(
            (of("ring"), of("queue_depth")),
            (vec!["packed".into(); 2], vec![32.into(); 2])
        );
        let mut text = String::new();
        null_table(&mut text, &[case]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[2],
            "| packed | 32 | near | 1000.0 (500.0 to 1000.0) | 1.00 | 0.50 | 100 | 3 of 5 |"
        );
        assert!(lines[3].starts_with("| packed | 32 | far | 250.0 (250.0 to 250.0) | 4.00 |"));
        assert_eq!(
            lines[4..],
            [""],
            "a pair of processors that moved has no row"
        );
        // A machine with one processor has no distance.
        let unknown = [sample(1.0, "unknown"), sample(1.0, "mixed")];
        let groups = placed(&unknown, |sample| &sample.placement);
        assert_eq!(
            (groups[0].0, groups[0].1.len(), groups.len()),
            ("unknown", 2, 1)
        );
        assert!(placed(&[], |sample: &Sample| &sample.placement).is_empty());
    }

    #[test]
    fn a_difference_is_that_of_each_round() {
        // The machine was slower in the second round, for both.
        let pairs = [(0.3, 0.25), (0.9, 0.87), (0.4, 0.28)]
            .map(|(ours, other)| Pair::new(sample(ours, "far"), sample(other, "far")));
        let rows = ram_rows(&pairs);
        assert_eq!(rows.len(), 2);
        let apart = rows[0].compared.apart.map(f64::round);
        assert_eq!(apart, [50.0, 30.0, 120.0]);
        let measured = Measured {
            ram: pairs.into(),
            idle: Some(0.0043),
            ..Measured::default()
        };
        let text = tables(&measured);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[2],
            "| 1/IOPS, ns | 32 | far | 400 | 280 | 50 (30 to 120) | 60 | 3 |"
        );
        assert!(lines[3].starts_with("| reactor, ns for each | 32 | far | 40 | 28 | 5 ("));
        assert_eq!(
            lines.last(),
            Some(&"100 idle front ends: 0.43 % of a CPU over 10 s (bar: 1 %)")
        );
    }

    #[test]
    fn rounds_whose_sides_had_other_placements_are_left_out() {
        let far = sample(0.2, "far");
        let pairs = [
            Pair::new(far.clone(), sample(0.1, "near")),
            Pair::new(sample(0.5, "far"), far),
        ];
        let rows = ram_rows(&pairs);
        assert_eq!((rows[0].placement, rows[0].rounds), ("far", 1));
        assert_eq!(rows[0].compared.apart[0].round(), 300.0);
    }

    #[test]
    fn a_ratio_is_that_of_each_round_at_its_depth() {
        let pair = |ours, other| Pair::new(sample(ours, "near"), sample(other, "far"));
        let rounds = [
            [pair(4.0, 20.0), pair(20.0, 100.0)],
            [pair(9.0, 30.0), pair(40.0, 80.0)],
            [pair(5.0, 10.0), pair(21.0, 70.0)],
        ];
        let rows = file_rows(&rounds);
        assert_eq!(rows.len(), 8);
        let measured = Measured {
            files: rounds.into(),
            ..Measured::default()
        };
        let text = tables(&measured);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines[2],
            "| mean latency, µs | 1 | any | 5.0 | 20.0 | 0.30 (0.20 to 0.50) | 0.40 | 3 |"
        );
        assert!(lines[4].starts_with("| server's CPU, ns for each | 1 | any | 2500 | 10000 |"));
        assert!(lines[6].starts_with("| mean latency, µs | 32 | any | 21.0 | 80.0 | 0.30 "));
        assert!(lines[9].starts_with("| IOPS, K/s | 32 | any | 47.6 | 12.5 |"));
        assert!(lines[9].ends_with("|  | 3 |"));
    }
}
