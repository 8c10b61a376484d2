//! Figure of a trace: four panels with a common time axis.

use std::collections::BTreeMap;

use load::trace::reading::Loaded;
use plot::{Axis, Mark, Panel, Picture, Scale, Series};
use trace_file::Record;

/// Width and height of a panel, in pixels.
const PANEL: (u32, u32) = (1000, 300);
/// Approximate maximum of dots in a panel.
const DOTS: usize = 4000;
/// Intervals of the panels with lines.
const INTERVALS: usize = 200;
/// Maximum number of queues with a line each; with more queues, one line shows all of them.
const QUEUES: usize = 8;

/// Draws it.
pub(super) fn svg(loaded: &Loaded) -> String {
    let records = &loaded.records;
    let first = records.first().map_or(0, |record| record.at_ns);
    let ended = records.iter().map(Record::done_ns).max().unwrap_or(first);
    let time = Time {
        first,
        step: ((ended - first) / INTERVALS as u64 + 1) as f64,
    };
    let step = records.len().div_ceil(DOTS).max(1);
    let mut notes = loaded.notes();
    if step > 1 {
        notes.push(format!("one command of {step} is drawn as a dot"));
    }
    let dots: Vec<&Record> = records.iter().step_by(step).collect();
    plot::svg(&Picture {
        title: format!("controller {}", loaded.header.controller),
        columns: 1,
        panel: PANEL,
        panels: vec![
            panel(
                "latency, us",
                Scale::Decades,
                by_name(&dots, |r| Some(r.latency_ns() as f64 / 1e3), time),
            ),
            panel(
                "commands a second",
                Scale::FromZero(0.0),
                rates(records, time),
            ),
            panel(
                "commands in flight",
                Scale::FromZero(1.0),
                depths(records, time),
            ),
            panel(
                "first byte, MiB",
                Scale::FromZero(0.0),
                by_name(
                    &dots,
                    |r| Some(r.extent()?.0 as f64 / f64::from(1 << 20)),
                    time,
                ),
            ),
        ],
        notes,
    })
}

/// The time axis.
#[derive(Clone, Copy)]
struct Time {
    first: u64,
    /// Nanoseconds per interval.
    step: f64,
}

impl Time {
    fn seconds(self, at: u64) -> f64 {
        (at - self.first) as f64 / 1e9
    }

    fn interval(self, at: u64) -> usize {
        ((at - self.first) as f64 / self.step) as usize
    }

    /// Start of an interval, in seconds.
    fn start(self, interval: usize) -> f64 {
        interval as f64 * self.step / 1e9
    }
}

fn panel(up: &str, scale: Scale, series: Vec<Series>) -> Panel {
    Panel {
        title: String::new(),
        across: Axis::from_zero("time, s"),
        up: Axis::of(up, scale),
        series,
    }
}

/// Dots, coloured by command name.
fn by_name(records: &[&Record], value: impl Fn(&Record) -> Option<f64>, time: Time) -> Vec<Series> {
    let mut names = BTreeMap::<String, Vec<(f64, f64)>>::new();
    for record in records {
        if let Some(value) = value(record) {
            let points = names.entry(record.name()).or_default();
            points.push((time.seconds(record.at_ns), value));
        }
    }
    let series = names.into_iter();
    series
        .map(|(name, points)| Series::new(name, Mark::Dots, points))
        .collect()
}

/// Completions of each interval, by name.
fn rates(records: &[Record], time: Time) -> Vec<Series> {
    let mut names = BTreeMap::<String, Vec<u64>>::new();
    for record in records {
        let counts = names
            .entry(record.name())
            .or_insert_with(|| vec![0; INTERVALS]);
        let at = time.interval(record.done_ns()).min(INTERVALS - 1);
        counts[at] += 1;
    }
    let line = |(name, counts): (String, Vec<u64>)| {
        let points = counts.into_iter().enumerate();
        let points = points.map(|(at, count)| (time.start(at), count as f64 * 1e9 / time.step));
        Series::new(name, Mark::Line, points)
    };
    names.into_iter().map(line).collect()
}

/// Maximum number of commands in flight in each interval, by queue: begun and not completed.
fn depths(records: &[Record], time: Time) -> Vec<Series> {
    let mut queues = BTreeMap::<u16, Vec<(u64, i64)>>::new();
    let many = {
        let mut all: Vec<u16> = records.iter().map(|record| record.sqid).collect();
        all.sort_unstable();
        all.dedup();
        all.len() > QUEUES
    };
    for record in records {
        let queue = if many { 0 } else { record.sqid };
        let events = queues.entry(queue).or_default();
        events.push((record.at_ns, 1));
        events.push((record.done_ns(), -1));
    }
    let line = |(queue, mut events): (u16, Vec<(u64, i64)>)| {
        // a command that ends when another begins did not overlap it
        events.sort_unstable();
        let mut most = vec![0; INTERVALS];
        let (mut depth, mut reached) = (0i64, 0);
        for (at, change) in events {
            let at = time.interval(at).min(INTERVALS - 1);
            most[reached + 1..=at.max(reached)].fill(depth);
            reached = at;
            most[at] = most[at].max(depth);
            depth += change;
            most[at] = most[at].max(depth);
        }
        let points = most.into_iter().enumerate();
        let points = points.map(|(at, depth)| (time.start(at), depth as f64));
        let name = match queue {
            0 => "all queues".to_owned(),
            queue => format!("queue {queue}"),
        };
        Series::new(name, Mark::Line, points)
    };
    queues.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use trace_file::Header;

    use super::*;

    fn record(sqid: u16, at: u64, took: u32) -> Record {
        Record {
            at_ns: 1000 + at,
            stages: [0, 0, 0, took, 0, 0],
            sqid,
            opcode: 2,
            lba_shift: 9,
            blocks: 8,
            ..Record::default()
        }
    }

    #[test]
    fn depths_are_what_overlaps() {
        let records = [
            record(1, 0, 1000),
            record(1, 100, 100),
            record(1, 200, 100),
            record(2, 1900, 100),
        ];
        let time = Time {
            first: 1000,
            step: 10.0,
        };
        let lines = depths(&records, time);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].name, "queue 1");
        let at = |line: &Series, ns: usize| line.points[ns / 10].value;
        // one, then two of three that never overlap all, then one, then none
        let line = &lines[0];
        let seen = [at(line, 50), at(line, 150), at(line, 250), at(line, 500)];
        assert_eq!(seen, [1.0, 2.0, 2.0, 1.0]);
        assert_eq!((at(line, 1500), at(&lines[1], 1950)), (0.0, 1.0));
        assert_eq!(at(&lines[1], 1000), 0.0);
    }

    #[test]
    fn a_picture_has_its_panels() {
        let records = vec![record(1, 0, 1000), record(1, 5000, 2000)];
        let svg = svg(&Loaded {
            header: Header {
                controller: "vm1".into(),
                ..Header::default()
            },
            records,
            lost: 3,
            tail: None,
            damaged: None,
        });
        for words in [
            "controller vm1",
            "latency, us",
            "commands in flight",
            "queue 1",
            "3 commands were lost",
        ] {
            assert!(svg.contains(words), "{words}");
        }
    }
}
