//! One drive at all of its points: the oracle's answers, virtual time, and real runs.

use load::placement::Placement;
use model::Parameters;
use model::preset::Preset;
use serde::Serialize;
use simulate::points::{self, Latencies, Measured, Point, PointOp, Points};

use super::Emulation;
use super::compound::Compound;
use super::published::{self, Comparison};
use super::real::{Bytes, Excluded, Rig, Run, Setup};

/// A completion that the host sees more than this after its modelled time is late.
const LATE_NS: i64 = 2_000;

/// Name of the course of zone writers, and of the points of zone writes.
pub(super) const ZONES: &str = "zones";

/// Results of one point.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PointReport {
    pub(super) preset: String,
    pub(super) op: &'static str,
    pub(super) block_size: u32,
    pub(super) queue_depth: u16,
    pub(super) workers: u16,
    /// Mean time of a command computed by the oracle; `None` if none is recorded.
    pub(super) oracle_ns: Option<u64>,
    /// Mean time of a command in virtual time.
    pub(super) virtual_ns: u64,
    /// Commands per second in virtual time.
    pub(super) virtual_per_s: f64,
    #[serde(flatten)]
    pub(super) real: Real,
    #[serde(flatten)]
    pub(super) published: Comparison,
}

/// Medians of the real runs; all `None` without real runs.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Real {
    /// Mean time of a command on the host's clock.
    pub(super) real_ns_raw: Option<f64>,
    /// The same minus the time that the path to the drive and back adds.
    pub(super) real_ns_net: Option<f64>,
    /// Commands per second.
    pub(super) real_per_s: Option<f64>,
    /// Mean time of one command at a time on the null drive.
    pub(super) baseline_ns: Option<f64>,
    /// Net time relative to virtual time.
    pub(super) error_pct: Option<f64>,
    /// Standard deviation of the runs' net times, relative to their mean.
    pub(super) spread_pct: Option<f64>,
    /// The runs' net times.
    pub(super) runs_ns_net: Vec<f64>,
    pub(super) placements: Vec<Placement>,
}

/// Delay between a command's modelled time and the host's sight of its completion, over all
/// commands of points with one in flight, whose times do not depend on earlier commands.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Errors {
    pub(super) commands: u64,
    pub(super) bias_ns: f64,
    pub(super) p50_ns: i64,
    pub(super) p99_ns: i64,
    /// Fraction of all commands seen more than 2 us late.
    pub(super) late_fraction: f64,
    /// Commands seen before their time.
    pub(super) early: u64,
}

/// A preset's drive.
pub(super) struct Drive<'p> {
    preset: &'p Preset,
    pub(super) parameters: Parameters,
    pub(super) points: Points,
    /// Real runs by point.
    runs: Vec<Vec<Run>>,
    excluded: Excluded,
}

impl<'p> Drive<'p> {
    /// Takes the points whose names contain `only`; with `drawn`, also those that share a figure
    /// with them.
    pub(super) fn new(preset: &'p Preset, only: &str, drawn: bool) -> anyhow::Result<Self> {
        let parameters = preset.parameters(preset.size_bytes, None)?;
        let mut points = points::of(&parameters);
        let is_meant = |point: Point| {
            point.name().contains(only) || drawn && is_drawn_with(&parameters, only, point)
        };
        points.measured.retain(|m| is_meant(m.point));
        Self::at(preset, points)
    }

    /// Takes exactly these points.
    pub(super) fn at(preset: &'p Preset, points: Points) -> anyhow::Result<Self> {
        Ok(Drive {
            preset,
            parameters: preset.parameters(points.size_bytes, None)?,
            runs: vec![Vec::new(); points.measured.len()],
            points,
            excluded: Excluded::default(),
        })
    }

    /// Runs every point `runs` times, in turn. `progress` receives the numbers of finished runs and
    /// commands, and returns whether to continue.
    pub(super) fn run_for_real(
        &mut self,
        cpus: Setup,
        runs: u32,
        mut progress: impl FnMut(u64, u64) -> bool,
    ) -> anyhow::Result<()> {
        let mut rig = Rig::new(
            self.preset,
            &self.parameters,
            &self.points,
            cpus,
            Bytes::Kept,
        )?;
        'all: for run in 0..runs {
            for (measured, runs) in self.points.measured.iter().zip(&mut self.runs) {
                runs.push(rig.run(measured)?);
                let commands: usize = measured.program.workers.iter().map(Vec::len).sum();
                if !progress(run.into(), commands as u64) {
                    break 'all;
                }
            }
        }
        self.excluded = rig.excluded;
        rig.end()
    }

    pub(super) fn points(&self) -> anyhow::Result<Vec<PointReport>> {
        let recorded = points::recorded(&self.preset.full_name());
        let all = self.points.measured.iter().zip(&self.runs);
        let of_point = |(measured, runs): (&Measured, &Vec<Run>)| {
            let oracle = recorded.get(&measured.point.name());
            self.point(measured, runs, oracle)
        };
        all.map(of_point).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn point(
        &self,
        measured: &Measured,
        runs: &[Run],
        oracle: Option<&Latencies>,
    ) -> anyhow::Result<PointReport> {
        let point = measured.point;
        let (_, fast) = points::measure(&self.parameters, &self.points, measured, 0)?;
        let mut nets = Vec::new();
        for run in runs {
            nets.push(run.raw_ns - self.way_ns(measured, run.baseline_ns, fast.mean_ns())?);
        }
        let virtual_per_s = fast.count as f64 * 1e9 / fast.elapsed_ns.max(1) as f64;
        let real = Real::of(runs, nets, fast.mean_ns() as f64);
        Ok(PointReport {
            preset: self.preset.full_name(),
            op: point.op.name(),
            block_size: point.block_size,
            queue_depth: point.queue_depth,
            workers: point.workers,
            oracle_ns: oracle.map(|recorded| recorded.mean_ns()),
            virtual_ns: fast.mean_ns(),
            virtual_per_s,
            real,
            published: published::of(self.preset, point, fast.mean_ns() as f64),
        })
    }

    /// Part of `baseline_ns`, the path to the drive and back, that adds to a command's time in this
    /// loop: all of it if commands come one by one, nothing if they wait for the drive anyway.
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn way_ns(&self, measured: &Measured, baseline_ns: f64, alone_ns: u64) -> anyhow::Result<f64> {
        if self.adds_all(measured) {
            return Ok(baseline_ns);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is small"
        )]
        let delay = baseline_ns.round() as u64;
        let (_, slow) = points::measure(&self.parameters, &self.points, measured, delay)?;
        Ok((slow.mean_ns() + delay) as f64 - alone_ns as f64)
    }

    /// Whether all of the way to the drive adds to a command's time.
    pub(super) fn adds_all(&self, measured: &Measured) -> bool {
        measured.point.workers * measured.point.queue_depth == 1 && !self.has_history(measured)
    }

    /// Whether a command's time depends on earlier commands that have completed: a write continues
    /// behind the buffer.
    fn has_history(&self, measured: &Measured) -> bool {
        let is_flash = matches!(self.parameters, Parameters::Flash(_) | Parameters::Zones(_));
        is_flash && matches!(measured.point.op, PointOp::Write | PointOp::Append)
    }

    /// The comparison of eight stores of 4 KiB, if the drive has keys.
    pub(super) fn compound(&self) -> anyhow::Result<Option<Compound>> {
        match self.parameters {
            Parameters::Kv(_) => Compound::of(&self.preset.full_name(), &self.parameters).map(Some),
            _ => Ok(None),
        }
    }

    /// Net times of a point's commands as the host saw them, in order of time, and as virtual time
    /// computes them.
    pub(super) fn distribution(&self, name: &str) -> anyhow::Result<Option<[Vec<f64>; 2]>> {
        let mut all = self.points.measured.iter().zip(&self.runs);
        let Some((measured, runs)) =
            all.find(|(m, runs)| m.point.name() == name && !runs.is_empty())
        else {
            return Ok(None);
        };
        let (each, _) = points::measure(&self.parameters, &self.points, measured, 0)?;
        #[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
        let seen = runs.iter().flat_map(|run| {
            let counted = run.latencies_ns.iter().flatten();
            counted.map(|ns| *ns as f64 - run.baseline_ns)
        });
        let mut seen: Vec<f64> = seen.collect();
        #[expect(clippy::cast_precision_loss, reason = "a picture has 1000 pixels")]
        let expected = each
            .latencies_ns
            .iter()
            .flatten()
            .flatten()
            .map(|ns| *ns as f64);
        let mut expected: Vec<f64> = expected.collect();
        seen.sort_by(f64::total_cmp);
        expected.sort_by(f64::total_cmp);
        Ok(Some([seen, expected]))
    }

    /// Times of the null drive's commands, by run, in order of time; empty without real runs.
    pub(super) fn null(&self) -> Vec<&[u64]> {
        let all = self.runs.iter().flatten();
        let shown = all.filter(|run| !run.null_ns.is_empty());
        shown.map(|run| &run.null_ns[..]).collect()
    }

    pub(super) fn emulation(&self) -> anyhow::Result<Emulation> {
        let mut errors = Vec::new();
        for (measured, runs) in self.points.measured.iter().zip(&self.runs) {
            let alone = measured.point.workers * measured.point.queue_depth == 1;
            if !alone || self.has_history(measured) {
                continue;
            }
            let (each, _) = points::measure(&self.parameters, &self.points, measured, 0)?;
            let expected = each.latencies_ns.concat();
            for run in runs {
                let pairs = run.latencies_ns.iter().zip(&expected);
                let seen = pairs.filter_map(|(seen, due)| Some((*seen)? as i64 - (*due)? as i64));
                errors.extend(seen);
            }
        }
        Ok(Emulation {
            preset: self.preset.full_name(),
            errors: Errors::of(errors),
            excluded_commands: self.excluded.commands,
            host_stalls: self.excluded.host_stalls,
            host_stalled_ns: self.excluded.host_stalled_ns,
            disturbed_runs: self.excluded.runs,
        })
    }
}

impl Real {
    fn of(runs: &[Run], nets: Vec<f64>, virtual_ns: f64) -> Self {
        if runs.is_empty() {
            return Real::default();
        }
        let net = median(nets.clone());
        Real {
            real_ns_raw: Some(median(runs.iter().map(|run| run.raw_ns).collect())),
            real_ns_net: Some(net),
            real_per_s: Some(median(runs.iter().map(|run| run.rate).collect())),
            baseline_ns: Some(median(runs.iter().map(|run| run.baseline_ns).collect())),
            error_pct: Some((net / virtual_ns - 1.0) * 100.0),
            spread_pct: Some(spread_pct(&nets)),
            runs_ns_net: nets,
            placements: runs.iter().map(|run| run.placement).collect(),
        }
    }
}

/// Whether the figure of the points that `only` selects shows this point too: writers with a zone
/// each beside writers that share one, and single stores beside stores of eight.
fn is_drawn_with(parameters: &Parameters, only: &str, point: Point) -> bool {
    match parameters {
        Parameters::Zones(_) => ZONES.contains(only) && point.op == PointOp::Write,
        Parameters::Kv(_) => {
            "store-eight 4096 qd1 x1".contains(only) && point.name() == "store 4096 qd1 x1"
        }
        Parameters::Nvm(_) | Parameters::Flash(_) => false,
    }
}

/// Median of at least one number.
pub(super) fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    let half = all.len() / 2;
    match all.len() % 2 {
        1 => all[half],
        _ => (all[half - 1] + all[half]) / 2.0,
    }
}

/// Mean and standard deviation of at least one number.
#[expect(clippy::cast_precision_loss, reason = "a few runs")]
pub(super) fn mean_and_deviation(all: &[f64]) -> (f64, f64) {
    let count = all.len() as f64;
    let mean = all.iter().sum::<f64>() / count;
    let squares: f64 = all.iter().map(|one| (one - mean).powi(2)).sum();
    (mean, (squares / count).sqrt())
}

pub(super) fn spread_pct(all: &[f64]) -> f64 {
    let (mean, deviation) = mean_and_deviation(all);
    deviation / mean * 100.0
}

impl Errors {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn of(mut all: Vec<i64>) -> Self {
        all.sort_unstable();
        let count = all.len();
        let Some(last) = count.checked_sub(1) else {
            return Errors::default();
        };
        let at = |percent: usize| all[(count * percent / 100).min(last)];
        let late = all.iter().filter(|error| **error > LATE_NS).count();
        Errors {
            commands: count as u64,
            bias_ns: all.iter().sum::<i64>() as f64 / count as f64,
            p50_ns: at(50),
            p99_ns: at(99),
            late_fraction: late as f64 / count as f64,
            early: all.iter().filter(|error| **error < 0).count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        // 9 and 11 deviate from 10 by a tenth.
        assert!((spread_pct(&[9.0, 11.0]) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn errors_are_told_by_rank() {
        let errors = Errors::of((-1..=2_098).collect());
        assert_eq!((errors.commands, errors.early), (2_100, 1));
        assert_eq!((errors.p50_ns, errors.p99_ns), (1_049, 2_078));
        // 98 of 2,100 are more than 2 us late.
        assert!((errors.late_fraction - 98.0 / 2_100.0).abs() < 1e-9);
        assert!((errors.bias_ns - 1_048.5).abs() < 1e-9);
        assert_eq!(Errors::of(Vec::new()).commands, 0);
    }
}
