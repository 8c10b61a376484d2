//! Drawing of figures with the library `plotters`: layout and style.

use plotters::coord::cartesian::Cartesian2d;
use plotters::coord::ranged1d::Ranged as _;
use plotters::prelude::{
    BLACK, ChartBuilder, ChartContext, Circle, Color as _, EmptyElement, ErrorBar,
    IntoDrawingArea as _, LineSeries, PathElement, RGBColor, Rectangle, SVGBackend, ShapeStyle,
    Text, WHITE,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::scale::Ruler;
use crate::text::{self, Area, CAPTION, NAME, Outcome, SMALL, TITLE};
use crate::{Mark, Panel, Picture, Point, Series};

type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<Ruler, Ruler>>;

/// Colours for readers with impaired colour vision (Okabe and Ito, 2008), on white; without yellow.
const COLORS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x00, 0x00),
];
const GREY: RGBColor = RGBColor(0x66, 0x66, 0x66);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);
/// Minimum width and height of a panel: the space of its axes and their names.
const LEAST: (u32, u32) = (240, 160);
/// Distance from the edge.
const MARGIN: i32 = 14;
/// Space left of and below a panel's axes.
const LEFT: i32 = 64;
const BELOW: i32 = 46;
const TICK: i32 = 4;
/// Width of the sign before a name beside a panel, and height of a line of names.
const SIGN: i32 = 26;
const LINE: i32 = 19;
/// Part of a place covered by bars, and the space at each side of a bar.
const BARS: f64 = 0.76;
const AIR: f64 = 0.012;
/// Number of points of a series from which on dots are small.
const MANY: usize = 60;

/// The figure as SVG text.
#[must_use]
pub fn svg(picture: &Picture) -> String {
    let mut text = String::new();
    draw(picture, &mut text).expect("a text takes all that is written");
    text
}

fn draw(picture: &Picture, text: &mut String) -> Outcome<()> {
    let columns = picture.columns.max(1);
    let rows = picture.panels.len().div_ceil(columns);
    let panel = (
        picture.panel.0.max(LEAST.0) as i32,
        picture.panel.1.max(LEAST.1) as i32,
    );
    let (width, height) = (panel.0 * columns as i32, panel.1 * rows as i32);
    let inner = width - 2 * MARGIN;
    let title = text::wrapped(&picture.title, TITLE, inner);
    let notes = picture.notes.iter();
    let notes: Vec<_> = notes
        .map(|note| text::wrapped(note, SMALL, inner))
        .collect();
    let taken = |lines: &Vec<String>, size: i32, air: i32| match lines.len() {
        0 => 0,
        count => count as i32 * text::line(size) + air,
    };
    let above = taken(&title, TITLE, MARGIN);
    let below: i32 = notes.iter().map(|note| taken(note, SMALL, 5)).sum();
    let size = (width, above + height + MARGIN + below);
    let root = SVGBackend::with_string(text, (size.0 as u32, size.1 as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    text::write(&root, (width / 2, MARGIN), TITLE, HPos::Center, &title)?;
    let (_, rest) = root.split_vertically(above);
    let (panels, of_notes) = rest.split_vertically(height);
    let areas = panels.split_evenly((rows, columns));
    for (number, (panel, area)) in picture.panels.iter().zip(&areas).enumerate() {
        // Axes of panels below each other end at the same position.
        let of_column = picture
            .panels
            .iter()
            .skip(number % columns)
            .step_by(columns);
        let beside = of_column.map(width_of_names).max().unwrap_or(0);
        draw_panel(area, panel, beside)?;
    }
    let mut y = MARGIN;
    for note in &notes {
        text::write(&of_notes, (MARGIN, y), SMALL, HPos::Left, note)?;
        y += taken(note, SMALL, 5);
    }
    root.present()
}

/// Width of the names of a panel's series beside it.
fn width_of_names(panel: &Panel) -> i32 {
    let names = panel.series.iter().map(|series| &series.name);
    match names.map(|name| text::width(name, SMALL)).max() {
        Some(longest @ 1..) => longest + SIGN + 10,
        _ => 0,
    }
}

/// Draws a panel, with a space of this width for the names of its series on the right.
fn draw_panel<'a>(area: &Area<'a>, panel: &Panel, beside: i32) -> Outcome<()> {
    let width = area.dim_in_pixel().0 as i32;
    let beside = beside.min(width - LEAST.0 as i32).max(0);
    let caption = text::wrapped(&panel.title, CAPTION, width - 2 * MARGIN);
    text::write(
        area,
        (MARGIN + LEFT, MARGIN / 2),
        CAPTION,
        HPos::Left,
        &caption,
    )?;
    let above = MARGIN + caption.len() as i32 * text::line(CAPTION);
    let (_, area) = area.split_vertically(above);
    let (area, names) = area.split_horizontally(width - beside);
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let ups = points().flat_map(|point| {
        let (least, most) = point.range.unwrap_or((point.value, point.value));
        [least, point.value, most]
    });
    let labelled = points().any(|point| point.label.is_some());
    let across = Ruler::new(&panel.across, points().map(|point| point.at), 0.0);
    let across = across.along(&panel.across, width - beside - LEFT - 2 * MARGIN);
    let more_lines = across.ticks.iter().map(|tick| tick.lines.len()).max();
    let more_lines = more_lines.unwrap_or(1).saturating_sub(1) as i32;
    let chart: Chart<'a> = ChartBuilder::on(&area)
        .margin_left(MARGIN)
        .margin_right(MARGIN)
        .margin_bottom(MARGIN / 2)
        .x_label_area_size(BELOW + more_lines * text::line(SMALL))
        .y_label_area_size(LEFT)
        .build_cartesian_2d(
            across,
            Ruler::new(&panel.up, ups, if labelled { 0.12 } else { 0.06 }),
        )?;
    draw_chart(chart, panel)?;
    draw_names(&names, panel)
}

fn draw_chart(mut chart: Chart<'_>, panel: &Panel) -> Outcome<()> {
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .axis_style(GREY)
        .label_style(text::style(SMALL, HPos::Left))
        .axis_desc_style(text::style(NAME, HPos::Left))
        .x_desc(&panel.across.name)
        .y_desc(&panel.up.name)
        .set_all_tick_mark_size(TICK)
        .draw()?;
    draw_more_lines(&chart)?;
    let bars = panel.series.iter().filter(|s| s.mark == Mark::Bars).count();
    let mut bar = 0;
    for (number, series) in panel.series.iter().enumerate() {
        let axes = chart.as_coord_spec();
        let shown =
            |point: &Point| axes.x_spec().shows(point.at) && axes.y_spec().shows(point.value);
        let parts = series.points.split(|point| !shown(point));
        let parts: Vec<&[Point]> = parts.collect();
        let color = color(series, number);
        if series.mark == Mark::Bars {
            let each = BARS / bars as f64;
            let left = each * (bar as f64 - bars as f64 / 2.0);
            bar += 1;
            draw_bars(&mut chart, &parts.concat(), (left, left + each), color)?;
        } else {
            for part in parts {
                draw_joined(&mut chart, part, series, color)?;
            }
        }
    }
    Ok(())
}

/// Draws the further lines of names, because the library writes only one line.
fn draw_more_lines(chart: &Chart<'_>) -> Outcome<()> {
    let area = chart.plotting_area().strip_coord_spec();
    let (width, height) = area.dim_in_pixel();
    let across = chart.plotting_area().as_coord_spec().x_spec();
    for tick in &across.ticks {
        let x = across.map(&tick.value, (0, width as i32));
        let below = (x, height as i32 + 2 * TICK + text::line(SMALL));
        let more = tick.lines.get(1..).unwrap_or_default();
        text::write(&area, below, SMALL, HPos::Center, more)?;
    }
    Ok(())
}

/// Consecutive points without a gap.
fn draw_joined(
    chart: &mut Chart<'_>,
    points: &[Point],
    series: &Series,
    color: RGBColor,
) -> Outcome<()> {
    if series.mark != Mark::Dots && points.len() > 1 {
        let points = points.iter().map(|point| (point.at, point.value));
        chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
    }
    let radius = if series.points.len() > MANY { 2 } else { 4 };
    if series.mark != Mark::Line {
        let dot = |point: &Point| Circle::new((point.at, point.value), radius, color.filled());
        chart.draw_series(points.iter().map(dot))?;
    }
    for point in points {
        draw_beside(chart, point, point.at, radius, color.filled())?;
    }
    Ok(())
}

/// Bars at the places of their points, each beside those of other series.
fn draw_bars(
    chart: &mut Chart<'_>,
    points: &[Point],
    (left, right): (f64, f64),
    color: RGBColor,
) -> Outcome<()> {
    for point in points {
        let corners = [
            (point.at + left + AIR, point.value.max(0.0)),
            (point.at + right - AIR, point.value.min(0.0)),
        ];
        chart.draw_series([Rectangle::new(corners, color.filled())])?;
        let middle = point.at + (left + right) / 2.0;
        draw_beside(chart, point, middle, 4, BLACK.into())?;
    }
    Ok(())
}

/// A point's range, and its label.
fn draw_beside(
    chart: &mut Chart<'_>,
    point: &Point,
    at: f64,
    radius: u32,
    style: ShapeStyle,
) -> Outcome<()> {
    let up = chart.as_coord_spec().y_spec();
    if let Some((least, most)) = point.range
        && up.shows(least)
        && up.shows(most)
    {
        let bar = ErrorBar::new_vertical(at, least, point.value, most, style, 2 * radius);
        chart.draw_series([bar])?;
    }
    if let Some(label) = &point.label {
        let style = text::style(SMALL, HPos::Center).pos(Pos::new(HPos::Center, VPos::Bottom));
        let label = Text::new(label.clone(), (0, -4), style);
        chart.draw_series([EmptyElement::at((at, point.value)) + label])?;
    }
    Ok(())
}

/// The names of the series, one below the other, as far as there is room.
fn draw_names(area: &Area<'_>, panel: &Panel) -> Outcome<()> {
    let bottom = area.dim_in_pixel().1 as i32 - BELOW;
    let named = panel.series.iter().enumerate();
    let named = named.filter(|(_, series)| !series.name.is_empty());
    for ((number, series), y) in named.zip((LINE / 2..bottom).step_by(LINE as usize)) {
        let color = color(series, number);
        match series.mark {
            Mark::Bars => area.draw(&Rectangle::new([(3, y - 5), (15, y + 5)], color.filled()))?,
            Mark::Dots => area.draw(&Circle::new((9, y), 4, color.filled()))?,
            Mark::Line | Mark::LineAndDots => {
                area.draw(&PathElement::new([(0, y), (18, y)], color.stroke_width(2)))?;
            }
        }
        if series.mark == Mark::LineAndDots {
            area.draw(&Circle::new((9, y), 4, color.filled()))?;
        }
        let style = text::style(SMALL, HPos::Left).pos(Pos::new(HPos::Left, VPos::Center));
        area.draw_text(&series.name, &style, (SIGN, y))?;
    }
    Ok(())
}

fn color(series: &Series, number: usize) -> RGBColor {
    COLORS[series.color.unwrap_or(number) % COLORS.len()]
}
