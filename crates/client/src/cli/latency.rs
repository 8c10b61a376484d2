//! `nvmirage latency`: shows the latencies of a controller's commands, and the stages that take the
//! time.

use std::thread;

use api::config::Span;
use api::{Latency, LatencyReport};
use terminal::table::{Align, Table};
use terminal::units;

use super::live;
use super::parse::{self, Control};
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage latency vm1
      Percentiles of reads and writes, time by stage, and errors by status
  nvmirage latency vm1 --for 10s
      Only the commands of the next ten seconds
  nvmirage latency vm1 --last 20
      Also the last 20 timed commands, with the time in each stage
  nvmirage latency store --cntlid 0x100
      One host over NVMe/TCP, NBD, vhost-user-blk or ublk
  nvmirage latency vm1 --json | jq '.latency[0].buckets'
      The whole distribution";

/// Show the command latencies of a controller, by stage
///
/// On average one in 256 commands is timed, selected at random; the others run without overhead.
/// `nvmirage set controller NAME sample=N` changes the sampling rate. Every error is counted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct LatencyCommand {
    /// Name of the controller
    #[arg(add = live::controllers())]
    controller: String,

    /// Number of the last timed commands to show
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    last: usize,

    /// Wait this long, up to 1h, and show only what happened meanwhile; default: everything since
    /// the controller was created
    #[arg(long = "for", value_name = "TIME", value_parser = window)]
    window: Option<Span>,

    /// Only the commands of one host over NVMe/TCP, NBD, vhost-user-blk or ublk since it connected,
    /// by its controller identifier in `nvmirage hosts`; default: the sums of all hosts
    #[arg(long, value_name = "ID", value_parser = parse::cntlid)]
    cntlid: Option<u16>,

    #[command(flatten)]
    control: Control,

    /// Print JSON: everything, with the distributions
    #[arg(long, conflicts_with = "last")]
    json: bool,
}

impl LatencyCommand {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let server = self.control.to_read()?;
        let ask = || requests::latency(&server, &self.controller, self.cntlid);
        let mut report = ask()?;
        if let Some(window) = self.window {
            thread::sleep(window.0);
            report = since(ask()?, &report);
        }
        if self.json {
            return terminal::print_json(&report);
        }
        terminal::print(&shown(&report, self.last))
    }
}

/// Reads how long to wait.
fn window(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    if span.0.is_zero() || span.0.as_secs() > 3600 {
        return Err("write a time above 0 and up to 1h".to_owned());
    }
    Ok(span)
}

/// Difference of a report to an earlier one. A controller that was created again in between has
/// everything.
fn since(mut now: LatencyReport, before: &LatencyReport) -> LatencyReport {
    let count = |report: &LatencyReport, operation: &str| {
        let mut all = report.latency.iter();
        all.find(|one| one.operation == operation)
            .map_or(0, |one| one.count)
    };
    let mut earlier = before.latency.iter();
    if earlier.any(|then| count(&now, &then.operation) < then.count) {
        return now;
    }
    for one in &mut now.latency {
        let mut earlier = before.latency.iter();
        let Some(then) = earlier.find(|then| then.operation == one.operation) else {
            continue;
        };
        one.count -= then.count;
        one.sum_ns = one.sum_ns.saturating_sub(then.sum_ns);
        for (latency, count) in &mut one.buckets {
            let then = then.buckets.iter().find(|(other, _)| other == latency);
            *count = count.saturating_sub(then.map_or(0, |(_, count)| *count));
        }
        one.buckets.retain(|(_, count)| *count > 0);
    }
    for one in &mut now.stages {
        let then = before.stages.iter().find(|then| then.stage == one.stage);
        one.sum_ns = one
            .sum_ns
            .saturating_sub(then.map_or(0, |then| then.sum_ns));
    }
    for one in &mut now.errors_by_status {
        let mut earlier = before.errors_by_status.iter();
        let then = earlier.find(|then| then.status == one.status);
        one.count = one.count.saturating_sub(then.map_or(0, |then| then.count));
    }
    now.errors_by_status.retain(|one| one.count > 0);
    let last = before.commands.last().map_or(0, |last| last.time_ns);
    now.commands.retain(|one| one.time_ns > last);
    now
}

fn shown(report: &LatencyReport, last: usize) -> String {
    let watched: u64 = report.latency.iter().map(|one| one.count).sum();
    let mut parts = Vec::new();
    if watched == 0 {
        parts.push(match report.sample {
            0 => "latency sampling is disabled: `nvmirage set controller NAME sample=256` times one in 256 commands\n".to_owned(),
            sample => format!("no command was timed yet: one in {sample} is\n"),
        });
    } else {
        parts.push(operations(&report.latency).to_string());
        parts.push(stages(report, watched).to_string());
    }
    if !report.errors_by_status.is_empty() {
        parts.push(errors(report).to_string());
    }
    if last > 0 && !report.commands.is_empty() {
        parts.push(commands(report, last).to_string());
    }
    parts.join("\n")
}

fn operations(latencies: &[Latency]) -> Table {
    let mut table = Table::new(&[
        ("operation", Align::Left),
        ("watched", Align::Right),
        ("mean", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("max", Align::Right),
    ]);
    for one in latencies {
        let Some(mean) = one.mean() else { continue };
        let mut row = vec![one.operation.clone(), one.count.to_string()];
        row.push(units::nanoseconds(mean));
        for of_a_million in [500_000, 990_000, 999_000, 1_000_000] {
            let at = one.at(of_a_million).unwrap_or_default();
            row.push(units::nanoseconds(at as f64));
        }
        table.row(row);
    }
    table
}

fn stages(report: &LatencyReport, watched: u64) -> Table {
    let mut table = Table::new(&[
        ("stage", Align::Left),
        ("mean", Align::Right),
        ("share", Align::Right),
    ]);
    let all: u64 = report.stages.iter().map(|one| one.sum_ns).sum();
    // fairness takes no time where there are no tenants
    for one in report.stages.iter().filter(|one| one.sum_ns > 0) {
        table.row(vec![
            one.stage.clone(),
            units::nanoseconds(one.sum_ns as f64 / watched as f64),
            format!("{:.1} %", one.sum_ns as f64 * 100.0 / all.max(1) as f64),
        ]);
    }
    table
}

fn errors(report: &LatencyReport) -> Table {
    let mut table = Table::new(&[("errors", Align::Right), ("status", Align::Left)]);
    for one in &report.errors_by_status {
        table.row(vec![one.count.to_string(), one.status.clone()]);
    }
    table
}

/// The last commands, the newest at the end.
fn commands(report: &LatencyReport, last: usize) -> Table {
    let mut table = Table::new(&[
        ("queue", Align::Right),
        ("cid", Align::Right),
        ("command", Align::Left),
        ("nsid", Align::Right),
        ("lba", Align::Right),
        ("size", Align::Right),
        ("depth", Align::Right),
        ("latency", Align::Right),
        ("stages", Align::Left),
        ("status", Align::Left),
    ]);
    let skipped = report.commands.len().saturating_sub(last);
    for one in &report.commands[skipped..] {
        let stages = report.stages.iter().map(|stage| &stage.stage);
        let took = stages.filter_map(|name| {
            let ns = one.stages.get(name)?;
            Some(format!("{name} {}", units::nanoseconds(f64::from(*ns))))
        });
        let fua = if one.fua { " FUA" } else { "" };
        table.row(vec![
            one.queue.to_string(),
            one.cid.to_string(),
            format!("{}{fua}", one.operation()),
            one.nsid.to_string(),
            one.lba.to_string(),
            units::bytes(one.bytes.into()),
            one.depth.to_string(),
            units::nanoseconds(one.latency_ns as f64),
            took.collect::<Vec<_>>().join(", "),
            one.status.clone(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_what_happened_in_it() {
        let report = |text: &str| serde_json::from_str::<LatencyReport>(text).unwrap();
        let command = |time: u32| {
            format!(
                r#"{{"time_ns":{time},"queue":1,"cid":1,"opcode":2,"nsid":1,"lba":0,"bytes":512,"fua":false,"depth":1,
                     "status":"Successful Completion","latency_ns":9,"stages":{{}}}}"#
            )
        };
        let at = |count: u32, more: &str, errors: u32, commands: &str| {
            format!(
                r#"{{"sample":1,"latency":[{{"operation":"read","count":{count},"sum_ns":{count}00,"buckets":[[10,2]{more}]}}],
                     "stages":[{{"stage":"ring","sum_ns":{count}0}}],
                     "errors_by_status":[{{"status":"A","count":{errors}}},{{"status":"B","count":1}}],
                     "commands":[{commands}]}}"#
            )
        };
        let before = report(&at(2, "", 1, &command(5)));
        let both = format!("{},{}", command(5), command(6));
        let after = report(&at(5, ",[20,3]", 3, &both));
        let window = since(after.clone(), &before);
        let read = &window.latency[0];
        assert_eq!(
            (read.count, read.sum_ns, &read.buckets),
            (3, 300, &vec![(20, 3)])
        );
        assert_eq!(window.stages[0].sum_ns, 30);
        let errors: Vec<_> = window
            .errors_by_status
            .iter()
            .map(|one| (&*one.status, one.count))
            .collect();
        assert_eq!(errors, [("A", 2)]);
        assert_eq!(window.commands.len(), 1);
        // created again meanwhile
        assert_eq!(since(before.clone(), &after).latency[0].count, 2);
        for wrong in ["0s", "2h", "x"] {
            assert!(super::window(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_known_is_in_the_tables() {
        let report: LatencyReport = serde_json::from_str(
            r#"{"sample":256,
                "latency":[{"operation":"read","count":2,"sum_ns":3000,"buckets":[[1000,1],[2000,1]]},
                           {"operation":"write","count":0,"sum_ns":0,"buckets":[]}],
                "stages":[{"stage":"ring","sum_ns":600},{"stage":"medium","sum_ns":2400}],
                "errors_by_status":[{"status":"LBA Out of Range (sct 0h, sc 80h)","count":7}],
                "commands":[{"time_ns":1,"queue":3,"cid":4,"opcode":2,"nsid":1,"lba":8,"bytes":4096,"fua":false,"depth":9,
                             "status":"Successful Completion","latency_ns":1000,"stages":{"medium":800,"ring":200}},
                            {"time_ns":2,"queue":3,"cid":5,"opcode":1,"nsid":1,"lba":9,"bytes":512,"fua":true,"depth":1,
                             "status":"Successful Completion","latency_ns":2000,"stages":{"medium":2000}}]}"#,
        )
        .unwrap();
        let text = shown(&report, 1);
        let row = |start: &str| {
            let line = text.lines().find(|line| line.trim().starts_with(start));
            let line = line.unwrap_or_else(|| panic!("{start} in {text}"));
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            row("read"),
            "read 2 1.50 us 1.00 us 2.00 us 2.00 us 2.00 us"
        );
        assert_eq!(row("medium"), "medium 1.20 us 80.0 %");
        assert_eq!(row("7"), "7 LBA Out of Range (sct 0h, sc 80h)");
        assert_eq!(
            row("3 "),
            "3 5 Write FUA 1 9 512 B 1 2.00 us medium 2.00 us Successful Completion"
        );
        assert!(!text.contains("write "), "{text}");
        assert!(!shown(&report, 0).contains("FUA"));
    }
}
