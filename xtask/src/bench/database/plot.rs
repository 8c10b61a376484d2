//! The picture of a database on a drive, in the form of figure 8 of the NVMeVirt paper: what it uses over time by the drive's
//! bandwidth, transactions by bandwidth and by latency, requests under way over time.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use super::watch::Moment;
use super::{LATENCY_US, Point};

/// Width and height in pixels.
const SIZE: (u32, u32) = (1200, 860);

type Failed = Box<dyn std::error::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Line = (String, Vec<(f64, f64)>);

/// Draws the points of one database as SVG.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(file: &Path, version: &str, points: &[Point]) -> Result<()> {
    draw(file, version, points).map_err(|error| anyhow!("cannot write {}: {error}", file.display()))
}

fn draw(file: &Path, version: &str, points: &[Point]) -> Result<(), Failed> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let title = format!("{version} on a modelled drive: sysbench oltp_read_write");
    let below = root.titled(&title, ("sans-serif", 24))?;
    let areas = below.split_evenly((2, 2));
    let by_bandwidth: Vec<&Point> = points
        .iter()
        .filter(|point| point.latency_us == LATENCY_US)
        .collect();
    let most = points.iter().map(|point| point.bandwidth_mib_s).max();
    let mut by_latency: Vec<&Point> = points
        .iter()
        .filter(|point| Some(point.bandwidth_mib_s) == most)
        .collect();
    by_latency.sort_by_key(|point| point.latency_us);
    let at = format!("by bandwidth, at {LATENCY_US} µs");
    let over_time = |of: fn(&Moment) -> f64| {
        let line = |point: &&Point| -> Line {
            let series = point.moments.iter().map(|m| (m.at_s, of(m))).collect();
            (format!("{} MiB/s", point.bandwidth_mib_s), series)
        };
        by_bandwidth.iter().map(line).collect::<Vec<_>>()
    };
    draw_time(
        &areas[0],
        &format!("a) used bandwidth over time, {at}"),
        "MiB/s",
        &over_time(|m| m.mib_s),
    )?;
    draw_time(
        &areas[1],
        &format!("b) requests under way over time, {at}"),
        "queue depth",
        &over_time(|m| m.queue_depth),
    )?;
    let rates = |points: &[&Point], at: fn(&Point) -> u64| -> Vec<(f64, f64)> {
        let rate = |point: &&Point| (at(point) as f64, point.done.transactions_per_s);
        points.iter().map(rate).collect()
    };
    draw_rates(
        &areas[2],
        &format!("c) transactions by bandwidth, at {LATENCY_US} µs"),
        "bandwidth of the drive, MiB/s",
        &rates(&by_bandwidth, |point| point.bandwidth_mib_s),
    )?;
    draw_rates(
        &areas[3],
        &format!("d) transactions by latency, at {} MiB/s", most.unwrap_or(0)),
        "latency of the drive for 4 KiB, µs",
        &rates(&by_latency, |point| point.latency_us),
    )?;
    root.present()?;
    Ok(())
}

fn draw_time(area: &Area<'_>, caption: &str, up: &str, lines: &[Line]) -> Result<(), Failed> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let end = points().map(|point| point.0).fold(0.1, f64::max);
    let most = points().map(|point| point.1).fold(1e-3, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        // room for the names above the lines
        .build_cartesian_2d(0.0..end, 0.0..most * 1.5)?;
    chart
        .configure_mesh()
        .x_desc("seconds")
        .y_desc(up)
        .light_line_style(WHITE)
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    for (number, (name, points)) in lines.iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        chart
            .draw_series(LineSeries::new(
                points.iter().copied(),
                color.stroke_width(2),
            ))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

fn draw_rates(
    area: &Area<'_>,
    caption: &str,
    across: &str,
    points: &[(f64, f64)],
) -> Result<(), Failed> {
    let first = points.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let last = points.iter().map(|p| p.0).fold(1.0, f64::max);
    let most = points.iter().map(|p| p.1).fold(1.0, f64::max);
    let at: Vec<f64> = points.iter().map(|p| p.0).collect();
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (first.min(last) * 0.8..last * 1.25)
                .log_scale()
                .base(2.0)
                .with_key_points(at),
            0.0..most * 1.15,
        )?;
    chart
        .configure_mesh()
        .x_desc(across)
        .y_desc("transactions a second")
        .light_line_style(WHITE)
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .draw()?;
    let color = Palette99::pick(0).to_rgba();
    let line = LineSeries::new(points.iter().copied(), color.stroke_width(2));
    chart.draw_series(line.point_size(4))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::engine::Done;
    use super::*;

    #[test]
    fn every_point_has_its_place() {
        let point = |bandwidth_mib_s, latency_us, transactions_per_s| Point {
            bandwidth_mib_s,
            latency_us,
            done: Done {
                transactions_per_s,
                mean_ms: 1.0,
                p99_ms: 2.0,
            },
            moments: vec![
                Moment {
                    at_s: 1.0,
                    for_s: 1.0,
                    mib_s: 20.0,
                    queue_depth: 3.0,
                };
                2
            ],
        };
        let points = [
            point(64, LATENCY_US, 100.0),
            point(1000, LATENCY_US, 300.0),
            point(1000, 8, 400.0),
        ];
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plot.svg");
        write(&file, "PostgreSQL 15.18", &points).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        for text in ["PostgreSQL 15.18", "64 MiB/s", "d) transactions by latency"] {
            assert!(svg.contains(text), "{text}");
        }
    }
}
