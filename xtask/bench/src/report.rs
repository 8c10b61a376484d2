//! What was measured, for people and for machines.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::sample::{Results, Summary, of_placement};

/// Medians of one placement, a row for each subject; then what failed. `cpu ns` is the server's
/// time on processors for a command, `reactor` the part of it in turns that found work, `messages`
/// the doorbells that were messages, for a command.
pub(super) fn table(results: &Results, placement: &str) -> String {
    let mut table = format!("medians of samples with the CPUs {placement}\n");
    let _ = writeln!(
        table,
        "{:<26} {:<9} {:>4} {:>2} {:>10} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>7} {:>7} {:>6} {:>8} {:>6}",
        "4 KiB",
        "",
        "qd",
        "n",
        "iops",
        "least",
        "most",
        "mean us",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "cpu ns",
        "reactor",
        "batch",
        "messages",
        "stalls"
    );
    for (subject, samples) in &results.series {
        let head = format!(
            "{:<26} {:<9} {:>4}",
            subject.name, subject.rw, subject.queue_depth
        );
        let Some(s) = Summary::of(&of_placement(samples, placement)) else {
            let _ = writeln!(table, "{head}  0 no sample with this placement");
            continue;
        };
        let of = &s.median;
        let some = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let _ = writeln!(
            table,
            "{head} {:>2} {:>10.0} {:>10.0} {:>10.0} {:>9.2} {:>9} {:>9} {:>9} {:>7} {:>7} {:>6} {:>8} {:>6}",
            s.samples,
            of.iops,
            s.least,
            s.most,
            of.mean_us,
            some(of.p50_us, 2),
            some(of.p99_us, 2),
            some(of.p999_us, 2),
            some(of.server_ns, 0),
            some(of.reactor_ns, 0),
            some(of.batch, 1),
            some(of.messages, 3),
            of.stalls
                .map_or("-".to_owned(), |stalls| stalls.to_string()),
        );
    }
    for (subject, why) in &results.failures {
        let _ = writeln!(table, "not measured: {subject}: {}", first_line(why));
    }
    table
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// All of it: medians for each placement, and what failed.
pub(super) fn in_json(results: &Results, floors: &[Value], placement: &str) -> Value {
    let series = results.series.iter().map(|(subject, samples)| {
        let mut placements = serde_json::Map::new();
        for placement in ["near", "far", "mixed", "unknown"] {
            let of: Vec<_> = samples
                .iter()
                .filter(|s| s.placement == placement)
                .collect();
            if let Some(summary) = Summary::of(&of) {
                placements.insert(placement.to_owned(), summary.in_json());
            }
        }
        json!({
            "subject": subject.name,
            "rw": subject.rw,
            "block_size": 4096,
            "queue_depth": subject.queue_depth,
            "placements": placements,
        })
    });
    json!({
        "placement": placement,
        "floor": floors,
        "series": series.collect::<Vec<_>>(),
        "not_measured": results.failures,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, Subject};

    #[test]
    fn rows_have_medians_and_failures_have_lines() {
        let mut results = Results::default();
        for iops in [30.0, 1_000_000.0, 20.0, 40.0, 10.0] {
            let sample = Sample {
                iops,
                mean_us: 1.5,
                p50_us: Some(1.0),
                p99_us: Some(2.0),
                reactor_ns: Some(250.4),
                stalls: Some(1),
                placement: "far".into(),
                ..Sample::default()
            };
            results.add(Subject::new("nvmirage null", "randread", 32), sample);
        }
        results
            .failures
            .insert("fio io_uring".into(), "it is missing\nand more".into());
        let table = table(&results, "far");
        let words: Vec<_> = table.lines().nth(2).unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            [
                "nvmirage", "null", "randread", "32", "5", "30", "10", "1000000", "1.50", "1.00",
                "2.00", "-", "-", "250", "-", "-", "5"
            ]
        );
        assert!(
            table.ends_with("not measured: fio io_uring: it is missing\n"),
            "{table}"
        );
        let json = in_json(&results, &[], "far");
        assert_eq!(json["series"][0]["placements"]["far"]["iops"], 30.0);
        assert_eq!(json["series"][0]["placements"]["far"]["stalls_left_out"], 5);
        assert!(json["series"][0]["placements"].get("near").is_none());
        assert!(
            json["not_measured"]["fio io_uring"]
                .as_str()
                .unwrap()
                .contains("and more")
        );
    }
}
