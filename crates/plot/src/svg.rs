//! The elements that pictures are made of, as text.

use std::fmt::Write as _;

/// A colour of the web.
pub(crate) type Color = &'static str;

pub(crate) const BLACK: Color = "#000000";
pub(crate) const GREY: Color = "#666666";
pub(crate) const GRID: Color = "#e4e4e4";

/// Colours that people who see few of them can tell apart (Okabe and Ito, 2008), on white; the yellow is left out.
const COLORS: [Color; 7] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000",
];

/// The colour of a number.
pub(crate) fn color(number: usize) -> Color {
    COLORS[number % COLORS.len()]
}

/// A place in pixels, from the upper left.
pub(crate) type At = (f64, f64);

/// Which end of a text its place is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        }
    }
}

/// A picture that is being written.
#[derive(Debug)]
pub(crate) struct Svg {
    text: String,
}

impl Svg {
    /// A white one.
    pub(crate) fn new(width: f64, height: f64) -> Self {
        let mut svg = Self {
            text: format!(
                "<svg width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\">\n"
            ),
        };
        svg.rect((0.0, 0.0), (width, height), "#ffffff");
        svg
    }

    /// Between two corners.
    pub(crate) fn rect(&mut self, from: At, to: At, fill: Color) {
        let (x, y) = (from.0.min(to.0), from.1.min(to.1));
        let (width, height) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
        self.element(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\"/>"
        ));
    }

    /// Through all of these.
    pub(crate) fn path(&mut self, points: &[At], stroke: Color, width: f64) {
        let mut all = String::new();
        for (x, y) in points {
            let _ = write!(all, "{x:.1},{y:.1} ");
        }
        let all = all.trim_end();
        self.element(format_args!(
            "<polyline points=\"{all}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"{width}\" stroke-linejoin=\"round\"/>"
        ));
    }

    /// Around a place.
    pub(crate) fn dot(&mut self, (x, y): At, radius: f64, fill: Color) {
        self.element(format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"/>"
        ));
    }

    /// Words whose base line is at that height.
    pub(crate) fn words(&mut self, (x, y): At, anchor: Anchor, size: f64, words: &str) {
        let (anchor, words) = (anchor.name(), escaped(words));
        self.element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{words}</text>"
        ));
    }

    /// Words from below to above, around that place.
    pub(crate) fn words_up(&mut self, (x, y): At, size: f64, words: &str) {
        let words = escaped(words);
        self.element(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" font-size=\"{size}\" transform=\"rotate(-90 {x:.1} {y:.1})\">{words}</text>"
        ));
    }

    fn element(&mut self, element: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.text, "{element}");
    }

    /// All of it.
    pub(crate) fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }
}

/// XML 1.0, 2.4: what may not stand in text as it is.
fn escaped(words: &str) -> String {
    let mut text = String::with_capacity(words.len());
    for character in words.chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            c if c.is_control() => text.push(' '),
            c => text.push(c),
        }
    }
    text
}
