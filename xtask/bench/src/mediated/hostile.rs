//! A tenant of a modelled drive alone, beside an honest neighbour, and beside one that means harm
//! (`tests/soak/examples/neighbour.rs`): what its commands take.
//!
//! Both neighbours have 32 commands in flight and the tenant's weight. They have a processor of
//! their own where there is one beside the server's and the tenant's; otherwise they share the
//! tenant's, the honest one as well as the other. A hostile one that waits for answers of the
//! socket takes that from the tenant whenever it is woken, which the tenant's own clock counts as
//! the drive's time: so what the server saw, from the doorbell to the completion, stands beside it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, ensure};
use plot::{Axis, Mark, Panel, Picture, Point, Scale, Series};
use serde_json::{Value, json};

use super::super::reach::{Row, shown};
use super::super::sample::{Sample, median};
use super::Mediated;
use super::served::{Served, Setup};
use super::split::free_cpu;

const DRIVE: (&str, u64) = ("optane-p4800x", 2048);
/// Commands that the tenant has in flight.
const DEPTHS: [u32; 2] = [1, 32];
/// What is beside it.
const NEIGHBOURS: [&str; 3] = ["alone", "honest", "hostile"];
/// A figure of a sample, where it has it.
type Figure = fn(&Sample) -> Option<f64>;
/// Percentiles that are shown.
const PERCENTILES: [(&str, Figure); 3] = [
    ("p50", |sample| sample.p50_us),
    ("p99", |sample| sample.p99_us),
    ("p99.9", |sample| sample.p999_us),
];
/// The same of what the server saw.
const SEEN: [(&str, f64); 2] = [("p50", 0.5), ("p99", 0.99)];
/// Width and height of the picture in pixels.
const PANEL: (u32, u32) = (760, 480);

/// What was measured.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Of each depth, medians beside each neighbour.
    depths: Vec<(u32, Vec<Sample>)>,
    /// Of each depth, what the server saw beside each neighbour: medians, as [`SEEN`] has them.
    seen: Vec<(u32, Vec<Vec<Option<f64>>>)>,
    /// What neighbours have done in the last round, by depth.
    did: Vec<(u32, &'static str, Value)>,
}

impl Beside {
    /// Measures all of it, the neighbours in turn.
    pub(super) fn measure(mediated: &Mediated<'_>) -> Result<Self> {
        let mut build = mediated.workspace.cargo(&[
            "build",
            "--release",
            "--quiet",
            "--package",
            "tests-soak",
            "--example",
            "neighbour",
        ])?;
        ensure!(build.status()?.success(), "the neighbour cannot be built");
        let equal = "--weight 100";
        let setup = Setup::modelled(DRIVE.0, DRIVE.1).with(&[equal, equal]);
        let mut all = Beside::default();
        for depth in DEPTHS {
            let mut did = vec![Value::Null; NEIGHBOURS.len()];
            let mut rounds = vec![vec![Vec::new(); SEEN.len()]; NEIGHBOURS.len()];
            let compared = mediated.compare(NEIGHBOURS.len(), |case| {
                let served = Served::start(mediated, &setup)?;
                let neighbour = match case {
                    0 => None,
                    _ => Some(Neighbour::start(
                        mediated,
                        &served.target(1),
                        NEIGHBOURS[case],
                    )?),
                };
                let sample = served.sample(&format!("--qd {depth} --time {}", mediated.time()))?;
                let seen = served.seen(&SEEN.map(|(_, part)| part))?;
                for (all, one) in rounds[case].iter_mut().zip(seen) {
                    all.extend(one);
                }
                if let Some(neighbour) = neighbour {
                    did[case] = neighbour.stop()?;
                }
                served.stop()?;
                Ok(sample)
            })?;
            all.depths.push((depth, compared.cases));
            let medians = rounds
                .into_iter()
                .map(|case| case.into_iter().map(median).collect());
            all.seen.push((depth, medians.collect()));
            let did = NEIGHBOURS.into_iter().zip(did).skip(1);
            all.did.extend(did.map(|(name, did)| (depth, name, did)));
        }
        Ok(all)
    }

    fn is_empty(&self) -> bool {
        self.depths.is_empty()
    }

    /// A figure beside the hostile neighbour over that beside the honest one.
    fn ratio(cases: &[Sample], of: Figure) -> Option<f64> {
        Some(of(cases.get(2)?)? / of(cases.get(1)?)?)
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (depth, cases) in &self.depths {
            for (name, of) in PERCENTILES {
                let each = NEIGHBOURS.iter().zip(cases);
                let each =
                    each.map(|(beside, sample)| format!("{beside} {}", shown(of(sample), 1, "us")));
                rows.push(Row::new(
                    &format!(
                        "{name} of a tenant at QD{depth} on a modelled Optane: hostile neighbour over honest one"
                    ),
                    "reported",
                    each.collect::<Vec<_>>().join(", "),
                    Self::ratio(cases, of),
                ));
            }
        }
        for (depth, cases) in &self.seen {
            for (at, (name, _)) in SEEN.into_iter().enumerate() {
                let of = |case: usize| *cases.get(case)?.get(at)?;
                let each = NEIGHBOURS.iter().enumerate();
                let each =
                    each.map(|(case, beside)| format!("{beside} {}", shown(of(case), 1, "us")));
                rows.push(Row::new(
                    &format!("the same {name} at QD{depth}, as the server saw it"),
                    "reported",
                    each.collect::<Vec<_>>().join(", "),
                    of(2).zip(of(1)).map(|(hostile, honest)| hostile / honest),
                ));
            }
        }
        for (depth, name, did) in &self.did {
            rows.push(Row::new(
                &format!("what the {name} neighbour did beside QD{depth}"),
                "",
                did.to_string().replace(['{', '}', '"'], ""),
                None,
            ));
        }
        rows
    }

    pub(super) fn in_json(&self) -> Value {
        let depths = self.depths.iter().map(|(depth, cases)| {
            let percentiles = PERCENTILES.map(|(name, of)| {
                let each = NEIGHBOURS.iter().zip(cases);
                let us = each.map(|(beside, sample)| ((*beside).to_owned(), json!(of(sample))));
                json!({
                    "percentile": name,
                    "us": Value::Object(us.collect()),
                    "ratio": Self::ratio(cases, of),
                })
            });
            let seen = self.seen.iter().find(|(of, _)| of == depth);
            let seen = seen.map(|(_, cases)| {
                let each = NEIGHBOURS.iter().zip(cases);
                let each = each.map(|(beside, us)| ((*beside).to_owned(), json!(us)));
                Value::Object(each.collect())
            });
            json!({ "queue_depth": depth, "percentiles": percentiles, "server_us": seen })
        });
        json!(depths.collect::<Vec<_>>())
    }

    /// The percentiles as bars; nothing where nothing was measured.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn plot(&self, file: &Path) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let places = self
            .depths
            .iter()
            .flat_map(|(depth, _)| PERCENTILES.map(|(name, _)| format!("{name}, QD{depth}")));
        let series = NEIGHBOURS.iter().enumerate().map(|(at, name)| {
            let of_all = self
                .depths
                .iter()
                .flat_map(|(_, cases)| PERCENTILES.map(|(_, of)| cases.get(at).and_then(of)));
            let points = of_all.enumerate();
            let points = points.filter_map(|(place, us)| Some(Point::from((place as f64, us?))));
            Series {
                name: (*name).to_owned(),
                mark: Mark::Bars,
                color: None,
                points: points.collect(),
            }
        });
        let picture = Picture {
            title: "A tenant of a modelled Optane, and what is beside it; 4 KiB, medians"
                .to_owned(),
            columns: 1,
            panel: PANEL,
            panels: vec![Panel {
                title: String::new(),
                across: Axis::places("", places.collect()),
                up: Axis::of("latency, us", Scale::Decades),
                series: series.collect(),
            }],
            ..Picture::default()
        };
        fs::write(file, plot::svg(&picture))
            .with_context(|| format!("cannot write {}", file.display()))
    }
}

/// A neighbour that runs. It ends with its standard input.
struct Neighbour {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Neighbour {
    fn start(mediated: &Mediated<'_>, target: &str, kind: &str) -> Result<Self> {
        let workspace = mediated.workspace;
        let program = workspace.program();
        let folder = program.parent().context("a program is in a folder")?;
        let cpus = mediated.args.cpus.pair();
        let mut child = workspace
            .command(&folder.join("examples/neighbour"))?
            .args([target, kind, &free_cpu(cpus)?.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the neighbour")?;
        let lines = child.stdout.take().context("its output is a pipe")?;
        let mut neighbour = Self {
            child,
            lines: BufReader::new(lines),
        };
        ensure!(neighbour.line()? == "ready", "the neighbour is not ready");
        Ok(neighbour)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// Ends it: what it has done.
    fn stop(mut self) -> Result<Value> {
        drop(self.child.stdin.take());
        let did = self.line()?;
        let ended = self.child.wait()?;
        ensure!(ended.success(), "the neighbour has ended with {ended}");
        Ok(serde_json::from_str(&did)?)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // It has ended already, unless something went wrong.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_hostile_one_over_the_honest_one() {
        let sample = |us| Sample {
            p50_us: Some(us),
            p99_us: Some(3.0 * us),
            ..Sample::default()
        };
        let all = Beside {
            depths: vec![(1, vec![sample(1.0), sample(2.0), sample(3.0)])],
            seen: vec![(1, vec![vec![Some(1.0), Some(2.0)], vec![None, Some(3.0)]])],
            did: vec![(1, "hostile", json!({"commands": 7}))],
        };
        let rows = all.rows();
        assert_eq!(rows.len(), 6);
        assert_eq!(
            rows[4].in_json()["measured"],
            "alone 2.0 us, honest 3.0 us, hostile -"
        );
        assert_eq!(rows[0].in_json()["ratio"], 1.5);
        assert_eq!(
            rows[1].in_json()["measured"],
            "alone 3.0 us, honest 6.0 us, hostile 9.0 us"
        );
        assert_eq!(rows[2].in_json()["ratio"], Value::Null);
        assert_eq!(rows[5].in_json()["measured"], "commands:7");
        let json = all.in_json();
        assert_eq!(json[0]["percentiles"][0]["us"]["hostile"], 3.0);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plot.svg");
        all.plot(&file).unwrap();
        assert!(fs::read_to_string(&file).unwrap().contains("hostile"));
        assert!(Beside::default().rows().is_empty());
    }
}
