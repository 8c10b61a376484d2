//! View of one controller: its latencies, the depth of its queues over time, its queues and their
//! commands.

use ratatui::style::Style;
use ratatui::text::Line;
use terminal::units;

use super::Page;
use super::overview::{mib_s, rate, time};
use super::table::{self, Row, number, pad, words};
use crate::top::app::App;
use crate::top::rates::{ControllerRates, QueueRates, Rates};
use crate::top::sample::{Command, Inspected, Ring};

/// Height of the chart in lines.
const CHART: usize = 3;
/// Minimum height of the table of queues, with its heading.
const QUEUES: u16 = 5;

pub(super) fn controller(app: &App, rates: &Rates, name: &str, page: &mut Page<'_>) -> usize {
    let mut all = rates.controllers.iter();
    let Some(controller) = all.find(|its| its.name == name) else {
        page.text(
            format!("there is no controller {name} any more"),
            page.theme.bad(),
        );
        return 0;
    };
    let inspected = app.inspected.as_ref().filter(|its| its.controller == name);
    head(controller, inspected, page);
    chart(&app.course.depths(name), page);
    // half of the rest is for the commands
    let lines = (page.left() / 2).max(QUEUES);
    queues(controller, inspected, page, lines);
    match inspected {
        None => 0,
        Some(inspected) => commands(inspected, app.selected, page),
    }
}

fn head(controller: &ControllerRates, inspected: Option<&Inspected>, page: &mut Page<'_>) {
    let per_s = controller.per_s;
    let host = match (controller.attached, inspected) {
        (false, _) => "no host".to_owned(),
        (true, None) => "host attached".to_owned(),
        (true, Some(inspected)) if inspected.has_many_hosts => {
            "hosts with queues of their own".to_owned()
        }
        (true, Some(inspected)) => format!(
            "host attached, doorbells {}, {} exits/s",
            inspected.doorbells,
            rate(per_s.map(|r| r.doorbell_messages)),
        ),
    };
    let namespaces = controller.namespaces.join(", ");
    let first = format!("{}   {host}   namespaces {namespaces}", controller.name);
    let width = page.width();
    page.text(pad(&first, width, false), page.theme.title());
    page.text(
        format!(
            "read {}/s {} MiB/s  write {}/s {} MiB/s  errors {}/s",
            rate(per_s.map(|r| r.reads)),
            mib_s(per_s.map(|r| r.read_bytes)),
            rate(per_s.map(|r| r.writes)),
            mib_s(per_s.map(|r| r.write_bytes)),
            rate(per_s.map(|r| r.errors)),
        ),
        Style::new(),
    );
    page.text(latencies(controller, width), Style::new());
    let stages = controller.stages.iter();
    let stages: Vec<String> = stages
        .filter(|(_, part)| *part >= 0.005)
        .map(|(stage, part)| format!("{stage} {:.0}%", part * 100.0))
        .collect();
    if !stages.is_empty() {
        page.text(stages.join(", "), Style::new());
    }
}

/// Percentiles of each operation, with the maximum if there is room.
fn latencies(controller: &ControllerRates, width: usize) -> String {
    if controller.by_operation.is_empty() {
        return "no command was watched in the last 10 s".to_owned();
    }
    let line = |title: &str, with_max: bool| {
        let mut line = title.to_owned();
        for (operation, its) in &controller.by_operation {
            let [p50, p99, max] = [its.p50, its.p99, its.max].map(|ns| time(Some(ns)));
            line += &format!("  {operation} {p50}/{p99}");
            if with_max {
                line += &format!("/{max}");
            }
        }
        line
    };
    let long = line("p50/p99/max", true);
    if long.chars().count() <= width {
        long
    } else {
        line("p50/p99", false)
    }
}

/// Blocks of 0 to 8 eighths of the height.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The depths over time, a column for each, the latest on the right.
fn chart(depths: &[u64], page: &mut Page<'_>) {
    let most = depths.iter().copied().max().unwrap_or(0).max(1);
    let label = most.to_string();
    let margin = label.len().max(5) + 1;
    let width = page.width().saturating_sub(margin);
    let shown = &depths[depths.len().saturating_sub(width)..];
    for line in 0..CHART {
        let above = (CHART - 1 - line) as u64 * 8;
        let columns: String = shown
            .iter()
            .map(|depth| {
                let eighths = (depth * CHART as u64 * 8).div_ceil(most);
                BLOCKS[usize::try_from(eighths.saturating_sub(above).min(8)).unwrap_or(8)]
            })
            .collect();
        let label = match line {
            0 => label.as_str(),
            1 => "depth",
            _ => "0",
        };
        let style = page.theme.good();
        let text = format!("{label:>at$} {columns}", at = margin - 1);
        page.put(&Line::styled(text, style));
    }
}

fn ring_of<'i>(inspected: Option<&'i Inspected>, name: &str) -> Option<&'i Ring> {
    let mut rings = inspected?.rings.iter();
    rings.find(|ring| ring.name == name)
}

fn queues(
    controller: &ControllerRates,
    inspected: Option<&Inspected>,
    page: &mut Page<'_>,
    lines: u16,
) {
    let columns = [
        words("QUEUE", 5),
        number("ON", 2),
        number("CMDS/s", 6),
        number("DEPTH", 5),
        number("INT/s", 6),
        number("SIZE", 5),
        number("HEAD", 5),
        number("TAIL", 5),
        number("PH", 2),
        number("DOORBELL", 8),
        number("SHADOW", 6),
        number("EVENT", 5),
        words("STATE", 8),
    ];
    let mut rows = Vec::new();
    for queue in &controller.queues {
        let name = format!("CQ {}", queue.queue);
        let ring = ring_of(inspected, &name);
        rows.push(queue_row(name, Some(queue), ring, page));
        // followed by its submission queues
        let rings = inspected.map_or(&[][..], |inspected| &inspected.rings);
        let behind = rings.iter().skip_while(|its| Some(*its) != ring).skip(1);
        let behind = behind.take_while(|its| its.name.starts_with("SQ"));
        let behind = behind.filter(|_| ring.is_some());
        rows.extend(behind.map(|sq| queue_row(sq.name.clone(), None, Some(sq), page)));
    }
    if rows.is_empty() {
        let text = if inspected.is_some_and(|inspected| inspected.has_many_hosts) {
            format!("queues of its hosts: nvmirage queues {}", controller.name)
        } else {
            "its host has created no I/O queues".to_owned()
        };
        page.text(text, Style::new());
        return;
    }
    let lines = lines.min(rows.len() as u16 + 1);
    table::put(page, &columns, &rows, None, lines);
}

fn queue_row(
    name: String,
    queue: Option<&QueueRates>,
    ring: Option<&Ring>,
    page: &Page<'_>,
) -> Row {
    let per_s = |at: usize| match queue {
        None => String::new(),
        Some(queue) => rate(queue.per_s.map(|per_s| per_s[at])),
    };
    let of = |value: Option<u32>| value.map_or(String::new(), |value| value.to_string());
    let state = ring.map_or("", |ring| &ring.state);
    Row {
        cells: vec![
            name,
            queue.map_or(String::new(), |queue| queue.reactor.to_string()),
            per_s(0),
            queue.map_or(String::new(), |queue| queue.in_flight.to_string()),
            per_s(2),
            of(ring.map(|ring| ring.size)),
            of(ring.map(|ring| ring.head)),
            of(ring.map(|ring| ring.tail)),
            of(ring.and_then(|ring| ring.phase).map(u32::from)),
            of(ring.map(|ring| ring.doorbell)),
            of(ring.and_then(|ring| ring.shadow)),
            of(ring.and_then(|ring| ring.event_idx)),
            state.to_owned(),
        ],
        style: match state {
            "frozen" | "stopped" => page.theme.bad(),
            "full" | "moving" | "deleting" => page.theme.warning(),
            _ => Style::new(),
        },
    }
}

fn commands(inspected: &Inspected, selected: usize, page: &mut Page<'_>) -> usize {
    let columns = [
        words("COMMAND", 18),
        number("SQ", 2),
        number("CID", 5),
        number("NSID", 4),
        number("LBA", 12),
        number("BYTES", 7),
        words("AT", 9),
        number("AGE", 8),
        words("", 5),
    ];
    let under_way = inspected.commands.len() as u64 + inspected.left_out;
    let stuck = inspected.commands.iter().filter(|one| one.stuck).count();
    let title = page.theme.title();
    let count = match (under_way, stuck) {
        (0, _) => return put_nothing(page),
        (count, 0) => format!("{count} commands in flight"),
        (count, stuck) => format!("{count} commands in flight, {stuck} STUCK"),
    };
    page.text(count, if stuck > 0 { page.theme.bad() } else { title });
    let row = |one: &Command| Row {
        cells: vec![
            one.command.clone(),
            one.queue.to_string(),
            one.cid.to_string(),
            one.nsid.to_string(),
            one.lba.map_or(String::new(), |lba| lba.to_string()),
            one.bytes.map_or(String::new(), |bytes| {
                u32::try_from(bytes).map_or_else(|_| units::bytes(bytes), units::block)
            }),
            one.at.clone(),
            one.age_ns.map_or(String::new(), |ns| time(Some(ns))),
            if one.stuck { "STUCK" } else { "" }.to_owned(),
        ],
        style: if one.stuck {
            page.theme.bad()
        } else {
            Style::new()
        },
    };
    let rows: Vec<_> = inspected.commands.iter().map(row).collect();
    table::put(page, &columns, &rows, Some(selected), page.left())
}

fn put_nothing(page: &mut Page<'_>) -> usize {
    page.text("no command is in flight", Style::new());
    0
}
