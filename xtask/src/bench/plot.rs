//! The plot of `cargo xtask bench`: commands a second over queue depth, with the spread of the rounds.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use super::Series;

/// Width and height in pixels.
const SIZE: (u32, u32) = (900, 520);

/// Writes the plot as SVG.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(file: &Path, all: &[Series]) -> Result<()> {
    draw(file, all).map_err(|error| anyhow!("cannot write {}: {error}", file.display()))
}

fn draw(file: &Path, all: &[Series]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let spreads = all.iter().map(Series::spread);
    let least = spreads
        .clone()
        .map(|(least, _)| least)
        .fold(f64::INFINITY, f64::min);
    let most = spreads.map(|(_, most)| most).fold(1.0, f64::max);
    let deepest = all.iter().map(|s| s.queue_depth).max().unwrap_or(1) as f64;
    let mut chart = ChartBuilder::on(&root)
        .caption(
            "4 KiB commands a second, one reactor (median, least and most)",
            ("sans-serif", 20),
        )
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(80)
        .build_cartesian_2d(
            (0.8..deepest * 1.4).log_scale(),
            (least.max(1.0) * 0.6..most * 1.8).log_scale(),
        )?;
    let short = |value: &f64| match *value {
        v if v >= 1e6 => format!("{:.0} M", v / 1e6),
        v if v >= 1e3 => format!("{:.0} K", v / 1e3),
        v => format!("{v:.0}"),
    };
    chart
        .configure_mesh()
        .x_desc("queue depth")
        .y_desc("IOPS")
        .y_label_formatter(&short)
        .x_label_formatter(&|depth| format!("{depth:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    let mut kinds: Vec<(&str, &str)> = all.iter().map(|s| (&*s.media, &*s.rw)).collect();
    kinds.dedup();
    for (number, (media, rw)) in kinds.into_iter().enumerate() {
        let color = Palette99::pick(number).to_rgba();
        let points: Vec<&Series> = all
            .iter()
            .filter(|s| s.media == media && s.rw == rw)
            .collect();
        let line = points
            .iter()
            .map(|s| (s.queue_depth as f64, s.median(|f| f.iops)));
        chart
            .draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(4))?
            .label(format!("{media} {rw}"))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(2)));
        chart.draw_series(points.iter().map(|s| {
            let (least, most) = s.spread();
            let depth = s.queue_depth as f64;
            PathElement::new([(depth, least), (depth, most)], color.stroke_width(1))
        }))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}
