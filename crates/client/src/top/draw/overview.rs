//! Views of all controllers, reactors and tenants.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use terminal::units;

use super::Page;
use super::table::{self, Row, number, words};
use crate::top::app::{App, Sort};
use crate::top::rates::{ControllerRates, Rates, ReactorPerSecond, ReactorRates};

const MIB: f64 = 1_048_576.0;
/// Maximum number of reactors above the controllers.
const REACTORS: usize = 4;

/// A rate, or a mark if it is not yet known.
pub(super) fn rate(value: Option<f64>) -> String {
    value.map_or("-".into(), units::rate)
}

pub(super) fn mib_s(bytes: Option<f64>) -> String {
    match bytes {
        None => "-".into(),
        Some(bytes) if bytes < 1.0 => "0".into(),
        Some(bytes) => units::mib_s(bytes / MIB),
    }
}

pub(super) fn time(ns: Option<u64>) -> String {
    ns.map_or("-".into(), |ns| units::nanoseconds(ns as f64))
}

pub(super) fn overview(app: &App, rates: &Rates, page: &mut Page<'_>) -> usize {
    totals(rates, page);
    let shown = rates.reactors.iter().take(REACTORS);
    for reactor in shown {
        reactor_line(reactor, page);
    }
    if rates.reactors.len() > REACTORS {
        let more = rates.reactors.len() - REACTORS;
        let faint = page.theme.faint();
        page.text(format!("{more} more reactors: r shows them"), faint);
    }
    let order = match app.sort {
        Sort::Made => String::new(),
        sort => format!("sorted by {}", sort.word()),
    };
    page.text(order, page.theme.faint());
    let columns = [
        words("CONTROLLER", 15),
        words("HOST", 4),
        number("IOPS", 6),
        number("READ MiB/s", 10),
        number("WRITE MiB/s", 11),
        number("p50", 7),
        number("p99", 7),
        number("DEPTH", 5),
        number("ERR/s", 6),
    ];
    let controllers = app.controllers(rates);
    let rows: Vec<_> = controllers
        .iter()
        .map(|c| controller_row(c, page))
        .collect();
    if rows.is_empty() {
        page.text(
            "it serves no controller: `nvmirage create` makes one",
            Style::new(),
        );
        return 0;
    }
    table::put(page, &columns, &rows, Some(app.selected), page.left())
}

fn totals(rates: &Rates, page: &mut Page<'_>) {
    let all = &rates.controllers;
    let hosts = all.iter().filter(|c| c.attached).count();
    let sum = |of: fn(&crate::top::rates::ControllerPerSecond) -> f64| {
        let known: Vec<f64> = all
            .iter()
            .filter_map(|c| c.per_s.as_ref().map(of))
            .collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>())
    };
    let depth = units::count(all.iter().map(|c| c.depth).sum());
    let controllers = match all.len() {
        1 => "1 controller".to_owned(),
        count => format!("{count} controllers"),
    };
    let hosts = match hosts {
        1 => "1 host".to_owned(),
        count => format!("{count} hosts"),
    };
    page.text(
        format!(
            "{controllers}, {hosts}  IOPS {}  r/w {}/{} MiB/s  depth {depth}",
            rate(sum(|r| r.reads + r.writes)),
            mib_s(sum(|r| r.read_bytes)),
            mib_s(sum(|r| r.write_bytes)),
        ),
        Style::new(),
    );
}

fn controller_row(controller: &ControllerRates, page: &Page<'_>) -> Row {
    let per_s = controller.per_s;
    let errors = per_s.map(|r| r.errors);
    let style = match errors {
        Some(errors) if errors > 0.0 => page.theme.bad(),
        _ if !controller.attached => page.theme.faint(),
        _ => Style::new(),
    };
    Row {
        cells: vec![
            controller.name.clone(),
            if controller.attached { "yes" } else { "no" }.to_owned(),
            rate(per_s.map(|r| r.reads + r.writes)),
            mib_s(per_s.map(|r| r.read_bytes)),
            mib_s(per_s.map(|r| r.write_bytes)),
            time(controller.latency.map(|l| l.p50)),
            time(controller.latency.map(|l| l.p99)),
            units::count(controller.depth),
            rate(errors),
        ],
        style,
    }
}

fn percent(part: f64) -> String {
    format!("{:.0}%", part * 100.0)
}

/// A bar of `width` characters: `#` busy, `=` spinning, `.` asleep, `!` stalled.
fn bar(reactor: &ReactorPerSecond, width: usize) -> [(char, usize); 4] {
    let parts = [
        ('#', reactor.busy),
        ('=', reactor.spinning),
        ('.', reactor.asleep),
        ('!', reactor.stalled),
    ];
    let mut until = 0.0;
    let mut filled = 0;
    parts.map(|(sign, part)| {
        until += part;
        let end = ((until * width as f64).round() as usize).min(width);
        let count = end - filled;
        filled = end;
        (sign, count)
    })
}

fn reactor_line(reactor: &ReactorRates, page: &mut Page<'_>) {
    let theme = page.theme;
    let name = format!("reactor {:<2} {:<9} ", reactor.reactor, reactor.mode);
    let Some(per_s) = &reactor.per_s else {
        return page.text(name, Style::new());
    };
    let numbers = format!(
        " busy {:>4} spinning {:>4} asleep {:>4} stalled {:>4}",
        percent(per_s.busy),
        percent(per_s.spinning),
        percent(per_s.asleep),
        percent(per_s.stalled),
    );
    let width = page.width();
    let width = width.saturating_sub(name.chars().count() + numbers.chars().count() + 2);
    let mut spans = vec![Span::raw(name), Span::raw("[")];
    for (sign, count) in bar(per_s, width.min(48)) {
        let style = match sign {
            '#' => theme.good(),
            '=' => theme.warning(),
            '!' => theme.bad(),
            _ => theme.faint(),
        };
        spans.push(Span::styled(sign.to_string().repeat(count), style));
    }
    spans.push(Span::raw("]"));
    spans.push(Span::raw(numbers));
    page.put(&Line::from(spans));
}

pub(super) fn reactors(app: &App, rates: &Rates, page: &mut Page<'_>) -> usize {
    let columns = [
        words("REACTOR", 7),
        words("MODE", 9),
        number("CPU", 4),
        number("CMDS/s", 6),
        number("TURNS/s", 7),
        number("FOUND", 5),
        number("BUSY", 5),
        number("SPINNING", 8),
        number("ASLEEP", 6),
        number("STALLED", 7),
        number("QUEUES", 6),
    ];
    let queues_of = |reactor: usize| {
        let all = rates.controllers.iter().flat_map(move |controller| {
            let queues = controller.queues.iter();
            let its = queues.filter(move |queue| queue.reactor == reactor);
            its.map(move |queue| (&controller.name, queue))
        });
        all.collect::<Vec<_>>()
    };
    let row = |reactor: &ReactorRates| {
        let per_s = reactor.per_s.as_ref();
        let part = |of: fn(&ReactorPerSecond) -> f64| {
            per_s.map_or("-".to_owned(), |per_s| percent(of(per_s)))
        };
        Row {
            cells: vec![
                reactor.reactor.to_string(),
                reactor.mode.clone(),
                reactor.cpu.map_or("any".to_owned(), |cpu| cpu.to_string()),
                rate(per_s.map(|r| r.commands)),
                rate(per_s.map(|r| r.turns)),
                part(|r| r.found),
                part(|r| r.busy),
                part(|r| r.spinning),
                part(|r| r.asleep),
                part(|r| r.stalled),
                queues_of(reactor.reactor).len().to_string(),
            ],
            style: Style::new(),
        }
    };
    let rows: Vec<_> = rates.reactors.iter().map(row).collect();
    let half = page.left() / 2;
    let shown = table::put(page, &columns, &rows, Some(app.selected), half);
    let Some(chosen) = rates.reactors.get(app.selected) else {
        return shown;
    };
    page.text("", Style::new());
    let title = page.theme.title();
    page.text(format!("queues of reactor {}", chosen.reactor), title);
    let columns = [
        words("CONTROLLER", 20),
        number("CQ", 3),
        number("CMDS/s", 6),
        number("DEPTH", 5),
        number("INTERRUPTS/s", 12),
        number("SPARED/s", 8),
        number("ERR/s", 6),
    ];
    let rows: Vec<_> = queues_of(chosen.reactor)
        .into_iter()
        .map(|(controller, queue)| {
            let per_s = |at: usize| rate(queue.per_s.map(|per_s| per_s[at]));
            Row {
                cells: vec![
                    controller.clone(),
                    queue.queue.to_string(),
                    per_s(0),
                    queue.in_flight.to_string(),
                    per_s(2),
                    per_s(3),
                    per_s(1),
                ],
                style: Style::new(),
            }
        })
        .collect();
    table::put(page, &columns, &rows, None, page.left());
    shown
}

const TENANTS_NOTE: &str =
    "CAPPED waited for a cap, WAITED for their turn; SHARE is of all tenants' bytes";

pub(super) fn tenants(app: &App, rates: &Rates, page: &mut Page<'_>) -> usize {
    if rates.tenants.is_empty() {
        page.text(
            "no tenants: no controller has a cap or a weight",
            Style::new(),
        );
        return 0;
    }
    let columns = [
        words("TENANT", 20),
        number("CMDS/s", 7),
        number("MiB/s", 7),
        number("CAPPED/s", 8),
        number("WAITED/s", 8),
        number("AT MEDIA", 8),
        number("SHARE", 6),
    ];
    let all: f64 = rates
        .tenants
        .iter()
        .filter_map(|t| t.per_s)
        .map(|p| p[1])
        .sum();
    let rows: Vec<_> = rates
        .tenants
        .iter()
        .map(|tenant| {
            let per_s = |at: usize| tenant.per_s.map(|per_s| per_s[at]);
            let share = per_s(1).filter(|_| all > 0.0);
            Row {
                cells: vec![
                    tenant.name.clone(),
                    rate(per_s(0)),
                    mib_s(per_s(1)),
                    rate(per_s(2)),
                    rate(per_s(3)),
                    tenant.at_media.to_string(),
                    share.map_or("-".into(), |bytes| percent(bytes / all)),
                ],
                style: Style::new(),
            }
        })
        .collect();
    let shown = table::put(page, &columns, &rows, Some(app.selected), page.left());
    let faint = page.theme.faint();
    page.text(TENANTS_NOTE, faint);
    shown
}
