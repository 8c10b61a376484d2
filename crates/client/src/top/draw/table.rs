//! Tables of cells with headings: column widths, scrolling, and the selected row.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::Page;

/// A column: words to the left, numbers to the right.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: usize,
    pub(super) is_number: bool,
}

pub(super) const fn words(title: &'static str, width: usize) -> Column {
    Column {
        title,
        width,
        is_number: false,
    }
}

pub(super) const fn number(title: &'static str, width: usize) -> Column {
    Column {
        title,
        width,
        is_number: true,
    }
}

/// The text in exactly `width` characters; a `~` marks cut text.
pub(super) fn pad(text: &str, width: usize, is_number: bool) -> String {
    let len = text.chars().count();
    if len > width {
        let kept: String = text.chars().take(width.saturating_sub(1)).collect();
        return match width {
            0 => String::new(),
            _ => format!("{kept}~"),
        };
    }
    if is_number {
        format!("{text:>width$}")
    } else {
        format!("{text:<width$}")
    }
}

/// A row, with its style while not selected.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    pub(super) style: Style,
}

/// The columns that fit. The first one takes the remaining width; columns without room are left out
/// from the right.
fn fit(columns: &[Column], width: usize) -> Vec<Column> {
    let mut fitted = columns.to_vec();
    let needed = |columns: &[Column]| columns.iter().map(|c| c.width + 1).sum::<usize>() - 1;
    while fitted.len() > 1 && needed(&fitted) > width {
        fitted.pop();
    }
    if !fitted.is_empty() {
        let over = width.saturating_sub(needed(&fitted));
        // limit the first column, so that related columns stay close
        fitted[0].width += over.min(24);
    }
    fitted
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = cells.collect();
    cells.join(" ")
}

/// Draws the headings and as many rows around the selected one as fit in `lines`. Returns their
/// number.
pub(super) fn put(
    page: &mut Page<'_>,
    columns: &[Column],
    rows: &[Row],
    chosen: Option<usize>,
    lines: u16,
) -> usize {
    let columns = fit(columns, page.width());
    let headings = columns.iter().map(|c| pad(c.title, c.width, c.is_number));
    let heading = page.theme.heading();
    page.text(line(headings), heading);
    let lines = usize::from(lines.min(page.left() + 1).saturating_sub(1));
    if lines == 0 {
        return 0;
    }
    let all_fit = rows.len() <= lines;
    // the last line says how many rows are not shown
    let shown = if all_fit { rows.len() } else { lines - 1 };
    let at = chosen.unwrap_or(0).min(rows.len().saturating_sub(1));
    let first = at.saturating_sub(shown.saturating_sub(1));
    for (index, row) in rows.iter().enumerate().skip(first).take(shown) {
        let cells = row.cells.iter().zip(&columns);
        let text = line(cells.map(|(cell, c)| pad(cell, c.width, c.is_number)));
        if chosen == Some(index) {
            let style = page.theme.chosen();
            page.filled(&text, style);
        } else {
            page.put(&Line::from(Span::styled(text, row.style)));
        }
    }
    if !all_fit {
        let (from, to, count) = (first + 1, first + shown, rows.len());
        let faint = page.theme.faint();
        page.text(format!("{from} to {to} of {count}"), faint);
    }
    shown
}
