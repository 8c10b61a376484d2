//! The report as tables.

use std::fmt::Write as _;

use terminal::table::{Align, Table};
use terminal::units;

use super::{Geometry, Listed, Report, bytes_of_pages};

pub(super) fn list(all: &[Listed]) -> String {
    let mut table = Table::new(&[
        ("preset", Align::Left),
        ("kind", Align::Left),
        ("size", Align::Right),
        ("what it is", Align::Left),
    ]);
    for one in all {
        let (bare, _) = one.preset.split_once('@').unwrap_or((&one.preset, ""));
        let name = if one.is_default && bare != one.preset {
            format!("{} = {bare}", one.preset)
        } else {
            one.preset.clone()
        };
        table.row(vec![
            name,
            one.kind.into(),
            units::bytes(one.size_bytes),
            one.about.into(),
        ]);
    }
    table.to_string()
}

impl Report {
    pub(super) fn in_words(&self) -> String {
        let mut text = format!("{}: {}\n", self.preset, self.about);
        let others = self.variants.iter().filter(|v| **v != self.preset);
        let others: Vec<&str> = others.map(String::as_str).collect();
        if !others.is_empty() {
            let bare = if self.default_of_its_name {
                "the bare name means this one"
            } else {
                "the bare name means another one"
            };
            let _ = writeln!(
                text,
                "Variants: {bare}; there is also {}",
                others.join(", ")
            );
        }
        let parts = [
            ("Geometry", self.geometry()),
            ("One command alone (device time)", self.alone()),
            ("Ceilings", self.most()),
            ("Write amplification", self.amplification()),
            ("Published of the real drive", self.published()),
            ("Parameters", self.parameters()),
        ];
        for (heading, part) in parts {
            if !part.is_empty() {
                let _ = write!(text, "\n{heading}\n{part}");
            }
        }
        text
    }

    fn geometry(&self) -> String {
        if let Some(zones) = &self.zones {
            let mut table = Table::new(&[("", Align::Left), ("this drive", Align::Right)]);
            for (what, value) in [
                ("size", units::bytes(self.size_bytes)),
                ("zones", zones.zones.to_string()),
                ("capacity of all zones", units::bytes(zones.capacity_bytes)),
                ("dies", zones.dies.to_string()),
                ("wordlines of a zone", zones.wordlines_per_zone.to_string()),
                ("blocks of a zone", zones.blocks_per_zone.to_string()),
            ] {
                table.row(vec![what.into(), value]);
            }
            return table.to_string();
        }
        let (Some(this), Some(real)) = (&self.geometry, &self.real.geometry) else {
            return String::new();
        };
        let mut table = Table::new(&[
            ("", Align::Left),
            ("this drive", Align::Right),
            ("real drive", Align::Right),
        ]);
        let mut row = |what: &str, value: &dyn Fn(&Geometry) -> String| {
            table.row(vec![what.into(), value(this), value(real)]);
        };
        row("dies", &|g| g.dies.to_string());
        row("dies of a partition", &|g| g.dies_per_partition.to_string());
        row("pages of a block", &|g| g.pages_per_block.to_string());
        row("pages of a line", &|g| g.pages_per_line.to_string());
        row("bytes of a line", &|g| {
            units::bytes(bytes_of_pages(g.pages_per_line))
        });
        row("lines of a partition", &|g| g.lines.to_string());
        row("  before rounding up", &|g| {
            format!("{:.2}", g.lines_before_rounding)
        });
        row("  beyond its data", &|g| format!("{:.1}", g.spare_lines));
        table.row(vec![
            "size".into(),
            units::bytes(self.size_bytes),
            units::bytes(self.real.size_bytes),
        ]);
        format!(
            "{table}Pages of a block and dies are the real drive's; blocks of a die follow from the size.\n"
        )
    }

    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn alone(&self) -> String {
        let mut table = Table::new(&[
            ("command", Align::Left),
            ("size", Align::Right),
            ("time", Align::Right),
        ]);
        for alone in &self.latencies {
            let ns = |ns: u64| units::nanoseconds(ns as f64);
            let time = if alone.least_ns == alone.most_ns {
                ns(alone.least_ns)
            } else {
                format!("{} to {}", ns(alone.least_ns), ns(alone.most_ns))
            };
            table.row(vec![alone.what.into(), block(alone.bytes), time]);
        }
        table.to_string()
    }

    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn most(&self) -> String {
        let mut table = Table::new(&[
            ("commands", Align::Left),
            ("size", Align::Right),
            ("IOPS", Align::Right),
            ("MiB/s", Align::Right),
            ("limited by", Align::Left),
        ]);
        for most in &self.ceilings {
            let rate = most.per_s.map(|per_s| units::rate(per_s as f64));
            let bandwidth = most.bytes_per_s.map(|b| units::mib_s(b as f64 / 1048576.0));
            table.row(vec![
                most.what.into(),
                block(most.bytes),
                rate.unwrap_or_else(|| "-".into()),
                bandwidth.unwrap_or_else(|| "-".into()),
                most.limited_by.into(),
            ]);
        }
        table.to_string()
    }

    fn amplification(&self) -> String {
        let Some(expected) = &self.write_amplification else {
            return String::new();
        };
        format!(
            "Uniformly random writes of 4 KiB over the whole drive, in the long run: {:.2} with greedy, {:.2} with fifo\n\
             (closed forms: Desnoyers, SYSTOR 2012; {:.1} % of space beyond the data, without what collection keeps free).\n\
             With greedy the dies then have time for {} such writes a second at most.\n",
            expected.greedy,
            expected.fifo,
            expected.effective_overprovisioning * 100.0,
            units::rate(expected.most_sustained_random_writes_per_s)
        )
    }

    fn published(&self) -> String {
        let mut table = Table::new(&[
            ("what", Align::Left),
            ("figure", Align::Right),
            ("source", Align::Left),
        ]);
        if !self.real.size_source.starts_with("assumed") {
            table.row(vec![
                "size".into(),
                units::bytes(self.real.size_bytes),
                self.real.size_source.clone(),
            ]);
        }
        for figure in &self.real.published {
            table.row(vec![
                figure.what.clone(),
                figure.figure.clone(),
                figure.source.clone(),
            ]);
        }
        table.to_string()
    }

    fn parameters(&self) -> String {
        let mut table = Table::new(&[
            ("parameter", Align::Left),
            ("value", Align::Right),
            ("change", Align::Left),
            ("source", Align::Left),
        ]);
        for row in &self.parameters {
            let source = match (&row.published_as, row.host_ns, &row.interval) {
                (Some(published), Some(host_ns), _) => {
                    format!("{}; {published} less {host_ns}ns of the host's", row.source)
                }
                (_, _, Some([low, high])) => format!("{}; {low} to {high}", row.source),
                _ => row.source.clone(),
            };
            table.row(vec![
                row.name.into(),
                row.value.clone(),
                row.change.into(),
                source,
            ]);
        }
        table.to_string()
    }
}

fn block(bytes: u64) -> String {
    u32::try_from(bytes).map_or_else(|_| units::bytes(bytes), units::block)
}
