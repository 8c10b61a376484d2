//! Words in a picture: how they look, and where they break.

use plotters::coord::Shift;
use plotters::prelude::{
    DrawingArea, DrawingAreaErrorKind, FontFamily, IntoFont as _, SVGBackend, TextStyle,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What is drawn on.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// What drawing on it comes to.
pub(crate) type Outcome<T> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

/// Sizes of letters in pixels: of the picture's title, of a panel's, of names at axes and of all
/// else.
pub(crate) const TITLE: i32 = 19;
pub(crate) const CAPTION: i32 = 15;
pub(crate) const NAME: i32 = 13;
pub(crate) const SMALL: i32 = 12;
/// What the library takes a font's size for: the height of a line, and not of a letter.
const LINE_OF_FONT: f64 = 1.24;

/// Letters of that size that stand right of their place, around it, or left of it, and below it.
pub(crate) fn style(size: i32, stands: HPos) -> TextStyle<'static> {
    let font = (FontFamily::SansSerif, f64::from(size) * LINE_OF_FONT).into_font();
    TextStyle::from(font).pos(Pos::new(stands, VPos::Top))
}

/// From a line of that size to the next one.
pub(crate) const fn line(size: i32) -> i32 {
    size * 4 / 3
}

/// What words of that size take at most, in pixels; who shows them has the font, so it is a guess
/// on the wide side.
pub(crate) fn width(words: &str, size: i32) -> i32 {
    let letters = i32::try_from(words.chars().count()).unwrap_or(i32::MAX / 100);
    letters.saturating_mul(size) * 56 / 100
}

/// Breaks words into lines.
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

/// Writes lines, the first below that place.
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
