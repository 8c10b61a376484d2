//! Draws pictures.

use crate::scale::Ruler;
use crate::svg::{Anchor, At, BLACK, Color, GREY, GRID, Svg, color};
use crate::{Mark, Panel, Picture, Point, Series};

/// Sizes of letters: of the picture's title, of a panel's, of names at axes and of all else.
const TITLE: f64 = 19.0;
const CAPTION: f64 = 15.0;
const NAME: f64 = 13.0;
const SMALL: f64 = 12.0;
/// What a letter of size 1 is wide, at most on average.
const LETTER: f64 = 0.56;
/// From the edge.
const MARGIN: f64 = 14.0;
/// What stands left of and below a panel.
const LEFT: f64 = 72.0;
const BELOW: f64 = 46.0;
/// The sign before a name beside a panel, and a line of names.
const SIGN: f64 = 26.0;
const LINE: f64 = 19.0;
/// Part of a place that bars take.
const BARS: f64 = 0.76;
/// Points of a series from which on their dots are small.
const MANY: usize = 60;

fn width_of(words: &str, size: f64) -> f64 {
    words.chars().count() as f64 * size * LETTER
}

/// Breaks words into lines.
fn wrapped(words: &str, size: f64, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width_of(line, size) + width_of(word, size) + size <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The picture as the text of an SVG file.
#[must_use]
pub fn svg(picture: &Picture) -> String {
    let columns = picture.columns.max(1);
    let rows = picture.panels.len().div_ceil(columns);
    let (width, height) = (f64::from(picture.panel.0), f64::from(picture.panel.1));
    let whole = width * columns as f64;
    let titles = wrapped(&picture.title, TITLE, whole - 2.0 * MARGIN);
    let notes: Vec<Vec<String>> = picture
        .notes
        .iter()
        .map(|note| wrapped(note, SMALL, whole - 2.0 * MARGIN))
        .collect();
    let above = titles.len() as f64 * TITLE * 1.3 + if titles.is_empty() { 0.0 } else { MARGIN };
    let of_note = |lines: &Vec<String>| lines.len() as f64 * SMALL * 1.35 + 5.0;
    let below =
        notes.iter().map(of_note).sum::<f64>() + if notes.is_empty() { 0.0 } else { MARGIN };
    let mut svg = Svg::new(whole, above + height * rows as f64 + below);
    for (number, line) in titles.iter().enumerate() {
        let y = MARGIN + TITLE + number as f64 * TITLE * 1.3;
        svg.words((whole / 2.0, y), Anchor::Middle, TITLE, line);
    }
    for (number, panel) in picture.panels.iter().enumerate() {
        let column = number % columns;
        let corner = (
            column as f64 * width,
            above + (number / columns) as f64 * height,
        );
        // Axes of panels below each other end at the same place.
        let of_column = picture.panels.iter().skip(column).step_by(columns);
        let beside = of_column.map(width_of_names).fold(0.0, f64::max);
        let to = (corner.0 + width - beside, corner.1 + height);
        draw_panel(&mut svg, corner, to, panel);
    }
    let mut y = above + height * rows as f64 + SMALL;
    for note in &notes {
        for line in note {
            svg.words((MARGIN, y), Anchor::Start, SMALL, line);
            y += SMALL * 1.35;
        }
        y += 5.0;
    }
    svg.end()
}

/// Where a panel's values go.
struct Frame<'a> {
    /// The upper left and the lower right corner.
    from: At,
    to: At,
    across: Ruler<'a>,
    up: Ruler<'a>,
    /// Series of bars.
    bars: usize,
}

impl Frame<'_> {
    fn x(&self, value: f64) -> Option<f64> {
        let part = self.across.part(value)?;
        Some(self.from.0 + part * (self.to.0 - self.from.0))
    }

    fn y(&self, value: f64) -> Option<f64> {
        let part = self.up.part(value)?;
        Some(self.to.1 - part * (self.to.1 - self.from.1))
    }

    fn at(&self, point: &Point) -> Option<At> {
        Some((self.x(point.at)?, self.y(point.value)?))
    }
}

/// What the names of a panel's series take beside it.
fn width_of_names(panel: &Panel) -> f64 {
    let names = panel.series.iter().map(|series| &series.name);
    let longest = names.map(|name| width_of(name, SMALL)).fold(0.0, f64::max);
    match longest > 0.0 {
        true => longest + SIGN + 10.0,
        false => 0.0,
    }
}

/// Draws a panel between two corners; names of series stand right of them.
fn draw_panel(svg: &mut Svg, corner: At, end: At, panel: &Panel) {
    let caption = wrapped(&panel.title, CAPTION, end.0 - corner.0 - 2.0 * MARGIN);
    let from = (
        corner.0 + LEFT,
        corner.1 + MARGIN + caption.len() as f64 * CAPTION * 1.35,
    );
    let to = (end.0 - MARGIN, end.1 - BELOW - 6.0);
    for (number, line) in caption.iter().enumerate() {
        let y = corner.1 + MARGIN + CAPTION * 0.8 + number as f64 * CAPTION * 1.35;
        svg.words((from.0, y), Anchor::Start, CAPTION, line);
    }
    let points = || panel.series.iter().flat_map(|series| &series.points);
    let ups = points().flat_map(|point| {
        let (least, most) = point.range.unwrap_or((point.value, point.value));
        [least, point.value, most]
    });
    let labelled = points().any(|point| point.label.is_some());
    let frame = Frame {
        from,
        to,
        across: Ruler::new(&panel.across, points().map(|point| point.at), 0.0),
        up: Ruler::new(&panel.up, ups, if labelled { 0.12 } else { 0.06 }),
        bars: panel.series.iter().filter(|s| s.mark == Mark::Bars).count(),
    };
    draw_axes(svg, &frame, panel);
    let mut bars = 0;
    for (number, series) in panel.series.iter().enumerate() {
        let color = color(series.color.unwrap_or(number));
        if series.mark == Mark::Bars {
            draw_bars(svg, &frame, bars, series, color);
            bars += 1;
        } else {
            draw_series(svg, &frame, series, color);
        }
    }
    draw_legend(svg, (to.0 + 12.0, from.1), to.1, panel);
}

fn draw_axes(svg: &mut Svg, frame: &Frame<'_>, panel: &Panel) {
    let (from, to) = (frame.from, frame.to);
    for (value, name) in frame.up.ticks() {
        let Some(y) = frame.y(value) else { continue };
        svg.path(&[(from.0, y), (to.0, y)], GRID, 1.0);
        svg.words((from.0 - 7.0, y + SMALL * 0.36), Anchor::End, SMALL, &name);
    }
    let mut free = f64::NEG_INFINITY;
    for (value, name) in frame.across.ticks() {
        let Some(x) = frame.x(value) else { continue };
        svg.path(&[(x, to.1), (x, to.1 + 4.0)], GREY, 1.0);
        let half = width_of(&name, SMALL) / 2.0;
        // One that would lie on the last one is left out.
        if x - half >= free {
            svg.words((x, to.1 + 5.0 + SMALL), Anchor::Middle, SMALL, &name);
            free = x + half + 3.0;
        }
    }
    let corners = [(from.0, from.1), (from.0, to.1), (to.0, to.1)];
    svg.path(&corners, GREY, 1.0);
    let middle = (from.0 + to.0) / 2.0;
    svg.words(
        (middle, to.1 + 38.0),
        Anchor::Middle,
        NAME,
        &panel.across.name,
    );
    let left = (from.0 - LEFT + 18.0, (from.1 + to.1) / 2.0);
    svg.words_up(left, NAME, &panel.up.name);
}

fn draw_series(svg: &mut Svg, frame: &Frame<'_>, series: &Series, color: Color) {
    if series.mark != Mark::Dots {
        let places: Vec<Option<At>> = series.points.iter().map(|point| frame.at(point)).collect();
        // A line ends where a point cannot be shown.
        for part in places.split(Option::is_none) {
            let part: Vec<At> = part.iter().flatten().copied().collect();
            if part.len() > 1 {
                svg.path(&part, color, 2.0);
            }
        }
    }
    let radius = if series.points.len() > MANY { 2.2 } else { 4.0 };
    for point in &series.points {
        let Some(at) = frame.at(point) else { continue };
        draw_range(svg, frame, at.0, point, color);
        if series.mark != Mark::Line {
            svg.dot(at, radius, color);
        }
        draw_label(svg, at, point);
    }
}

fn draw_bars(svg: &mut Svg, frame: &Frame<'_>, number: usize, series: &Series, color: Color) {
    let place = |at: f64| frame.x(at);
    let width = match (place(0.0), place(1.0)) {
        (Some(first), Some(second)) => second - first,
        _ => frame.to.0 - frame.from.0,
    };
    let each = width * BARS / frame.bars as f64;
    let ground = frame.to.1 - frame.up.ground() * (frame.to.1 - frame.from.1);
    for point in &series.points {
        let Some((x, y)) = frame.at(point) else {
            continue;
        };
        let left = x + each * (number as f64 - frame.bars as f64 / 2.0);
        svg.rect((left + 1.0, ground), (left + each - 1.0, y), color);
        let middle = left + each / 2.0;
        draw_range(svg, frame, middle, point, BLACK);
        draw_label(svg, (middle, y), point);
    }
}

fn draw_range(svg: &mut Svg, frame: &Frame<'_>, x: f64, point: &Point, color: Color) {
    let Some((least, most)) = point.range else {
        return;
    };
    let (Some(low), Some(high)) = (frame.y(least), frame.y(most)) else {
        return;
    };
    svg.path(&[(x, low), (x, high)], color, 1.5);
    for y in [low, high] {
        svg.path(&[(x - 4.0, y), (x + 4.0, y)], color, 1.5);
    }
}

fn draw_label(svg: &mut Svg, (x, y): At, point: &Point) {
    if let Some(label) = &point.label {
        svg.words((x, y - 6.0), Anchor::Middle, SMALL, label);
    }
}

/// The names of the series, one below the other, as far as there is room.
fn draw_legend(svg: &mut Svg, (x, top): At, bottom: f64, panel: &Panel) {
    let mut y = top + LINE / 2.0;
    for (number, series) in panel.series.iter().enumerate() {
        if series.name.is_empty() {
            continue;
        }
        if y > bottom {
            return;
        }
        let color = color(series.color.unwrap_or(number));
        match series.mark {
            Mark::Bars => svg.rect((x + 3.0, y - 5.0), (x + 15.0, y + 5.0), color),
            Mark::Dots => svg.dot((x + 9.0, y), 4.0, color),
            Mark::Line | Mark::LineAndDots => svg.path(&[(x, y), (x + 18.0, y)], color, 2.5),
        }
        if series.mark == Mark::LineAndDots {
            svg.dot((x + 9.0, y), 4.0, color);
        }
        svg.words(
            (x + SIGN, y + SMALL * 0.36),
            Anchor::Start,
            SMALL,
            &series.name,
        );
        y += LINE;
    }
}
