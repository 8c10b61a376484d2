//! Text in a figure: fonts and line breaks.

use plotters::coord::Shift;
use plotters::prelude::{
    DrawingArea, DrawingAreaErrorKind, FontFamily, IntoFont as _, SVGBackend, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Area to draw on.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Result of drawing on it.
pub(crate) type Outcome<T> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

/// Font sizes in pixels: of the figure's title, of a panel's, of names at axes and of all other
/// text.
pub(crate) const TITLE: i32 = 19;
pub(crate) const CAPTION: i32 = 15;
pub(crate) const NAME: i32 = 13;
pub(crate) const SMALL: i32 = 12;
/// The library's font size is the height of a line rather than of a letter.
const LINE_OF_FONT: f64 = 1.24;

/// Style of text of this size, right of its position, centred, or left of it, and below it.
pub(crate) fn style(size: i32, stands: HPos) -> TextStyle<'static> {
    let font = (FontFamily::SansSerif, f64::from(size) * LINE_OF_FONT).into_font();
    TextStyle::from(font).pos(Pos::new(stands, VPos::Top))
}

/// Distance of lines of this size.
pub(crate) const fn line(size: i32) -> i32 {
    size * 4 / 3
}

/// Estimated maximum width of text in pixels: the viewer chooses the font, so the estimate is
/// generous.
pub(crate) fn width(words: &str, size: i32) -> i32 {
    let letters = i32::try_from(words.chars().count()).unwrap_or(i32::MAX / 100);
    letters.saturating_mul(size) * 56 / 100
}

/// Breaks text into lines.
pub(crate) fn wrapped(words: &str, size: i32, pixels: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.split_whitespace() {
        match lines.last_mut() {
            Some(line) if width(line, size) + width(word, size) + size <= pixels => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Writes lines, the first below that position.
pub(crate) fn write(
    area: &Area<'_>,
    (x, y): (i32, i32),
    size: i32,
    stands: HPos,
    lines: &[String],
) -> Outcome<()> {
    let style = style(size, stands);
    let below = (y..).step_by(line(size) as usize);
    for (y, words) in below.zip(lines) {
        area.draw_text(words, &style, (x, y))?;
    }
    Ok(())
}
