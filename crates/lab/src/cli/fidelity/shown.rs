//! The report as tables: one for each claim.

use std::fmt::Write as _;

use terminal::table::{Align, Table};
use terminal::units;

use super::measure::PointReport;
use super::{Emulation, Report, published};

impl Report {
    pub(super) fn in_words(&self) -> String {
        let mut text = self.implementation();
        if self.runs > 0 {
            text.push_str(&self.seen());
        }
        text.push_str(&self.validity());
        for compound in &self.compound {
            text.push_str(&compound.in_words());
        }
        text
    }

    /// The model against the oracle.
    fn implementation(&self) -> String {
        let differ = |point: &&PointReport| point.oracle_ns != Some(point.virtual_ns);
        let differing: Vec<&PointReport> = self.points.iter().filter(differ).collect();
        let mut text = format!(
            "Implementation: {} points in virtual time against the oracle's recorded answers, to the nanosecond: {} differ\n",
            self.points.len(),
            differing.len()
        );
        for point in differing {
            let _ = writeln!(
                text,
                "  {} {}: {} ns, the oracle {:?}",
                point.preset,
                name(point),
                point.virtual_ns,
                point.oracle_ns
            );
        }
        text
    }

    /// The host's clock against the model.
    fn seen(&self) -> String {
        let mut table = Table::new(&[
            ("preset", Align::Left),
            ("commands", Align::Left),
            ("virtual", Align::Right),
            ("raw", Align::Right),
            ("null", Align::Right),
            ("net", Align::Right),
            ("error", Align::Right),
            ("spread", Align::Right),
        ]);
        let time = |ns: Option<f64>| ns.map_or("-".into(), units::nanoseconds);
        let percent = |value: Option<f64>| value.map_or("-".into(), |v| format!("{v:+.2} %"));
        for point in &self.points {
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            let virtual_ns = point.virtual_ns as f64;
            table.row(vec![
                point.preset.clone(),
                name(point),
                units::nanoseconds(virtual_ns),
                time(point.real.real_ns_raw),
                time(point.real.baseline_ns),
                time(point.real.real_ns_net),
                percent(point.real.error_pct),
                percent(point.real.spread_pct),
            ]);
        }
        let mut text = format!(
            "\nEmulation: {} real runs of each point, medians; net is raw without what the way to the null drive adds\n{table}",
            self.runs
        );
        text.push_str(&errors(&self.emulation));
        text
    }

    /// The model against real drives.
    fn validity(&self) -> String {
        let mut table = Table::new(&[
            ("preset", Align::Left),
            ("commands", Align::Left),
            ("model", Align::Right),
            ("published", Align::Right),
            ("difference", Align::Right),
            ("as published", Align::Left),
        ]);
        for point in &self.points {
            let published = &point.published;
            if let (Some(of_drive), Some(of_model), Some(difference)) = (
                published.published,
                published.compared_ns,
                published.difference_pct,
            ) {
                let figure = published.published_figure.unwrap_or_default();
                table.row(vec![
                    point.preset.clone(),
                    name(point),
                    units::nanoseconds(of_model),
                    units::nanoseconds(of_drive),
                    format!("{difference:+.1} %"),
                    format!("{figure}: {}", published.published_source),
                ]);
            }
        }
        let mut text = String::from(
            "\nValidity: against published measurements of real drives that no parameter was taken from; times of a command, those of throughputs by depth\n",
        );
        if !table.is_empty() {
            let _ = write!(text, "{table}");
        }
        let mut last = "";
        for point in &self.points {
            if point.preset == last {
                continue;
            }
            last = &point.preset;
            let of_preset = self.points.iter().filter(|p| p.preset == last);
            if of_preset.clone().all(|p| p.published.published.is_none()) {
                let _ = writeln!(text, "{last}: {}", point.published.published_source);
            }
            let bare = last.split('@').next().unwrap_or(last);
            if let Some(worst) = published::of_nvmevirt(bare) {
                let _ = writeln!(
                    text,
                    "{last}: NVMeVirt's authors found {worst} % between their model and the drive at most (FAST 2023, figure 4)"
                );
            }
        }
        text
    }
}

fn errors(all: &[Emulation]) -> String {
    let mut table = Table::new(&[
        ("preset", Align::Left),
        ("commands", Align::Right),
        ("bias", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("late", Align::Right),
        ("early", Align::Right),
        ("left out", Align::Right),
        ("stalls", Align::Right),
        ("runs again", Align::Right),
    ]);
    for one in all {
        let errors = &one.errors;
        table.row(vec![
            one.preset.clone(),
            errors.commands.to_string(),
            format!("{:.0} ns", errors.bias_ns),
            format!("{} ns", errors.p50_ns),
            format!("{} ns", errors.p99_ns),
            format!("{:.3} %", errors.late_fraction * 100.0),
            errors.early.to_string(),
            one.excluded_commands.to_string(),
            one.host_stalls.to_string(),
            one.disturbed_runs.to_string(),
        ]);
    }
    format!(
        "\nHow much later than its time a host sees a command done, one in flight; late: by more than 2 us\n{table}"
    )
}

fn name(point: &PointReport) -> String {
    let in_flight = (point.queue_depth, point.workers);
    name_of(point.op, point.block_size, in_flight)
}

/// A point as tables name it, with the commands in flight of each worker.
pub(super) fn name_of(op: &str, block_size: u32, (depth, workers): (u16, u16)) -> String {
    let workers = match workers {
        1 => String::new(),
        more => format!(" x {more}"),
    };
    format!("{op} {} QD{depth}{workers}", units::block(block_size))
}
