//! Drawing of the views as lines of cells, for any size from 40 columns and 8 lines.
//!
//! A view is a list of lines. Rows that do not fit are scrolled ([`table`]), columns that do not
//! fit are left out from the right, and nothing wraps. Text repeats all information of colours, so
//! that NO_COLOR loses nothing.

mod controller;
mod overview;
mod table;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use self::table::pad;
use super::app::{App, Link, View};

/// Styles by meaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Theme {
    is_colored: bool,
}

impl Theme {
    pub(super) fn new(is_colored: bool) -> Self {
        Theme { is_colored }
    }

    fn colored(self, color: Color) -> Style {
        if self.is_colored {
            Style::new().fg(color)
        } else {
            Style::new()
        }
    }

    fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Style of column headings.
    fn heading(self) -> Style {
        self.colored(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn bad(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn warning(self) -> Style {
        self.colored(Color::Yellow)
    }

    fn good(self) -> Style {
        self.colored(Color::Green)
    }

    fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

/// Writes lines one below the other.
pub(super) struct Page<'b> {
    buffer: &'b mut Buffer,
    area: Rect,
    next: u16,
    theme: Theme,
}

impl Page<'_> {
    /// Remaining lines.
    fn left(&self) -> u16 {
        self.area.height.saturating_sub(self.next)
    }

    fn width(&self) -> usize {
        self.area.width.into()
    }

    fn put(&mut self, line: &Line<'_>) {
        if self.left() > 0 {
            let y = self.area.y + self.next;
            self.buffer.set_line(self.area.x, y, line, self.area.width);
            self.next += 1;
        }
    }

    fn text(&mut self, text: impl Into<String>, style: Style) {
        self.put(&Line::styled(text.into(), style));
    }

    /// A line whose style extends to the right edge.
    fn filled(&mut self, text: &str, style: Style) {
        let width = self.width();
        self.text(pad(text, width, false), style);
    }
}

/// Draws the screen, and sets `app.page`.
pub(super) fn draw(app: &mut App, theme: Theme, area: Rect, buffer: &mut Buffer) {
    let height = area.height.saturating_sub(1);
    let mut page = Page {
        buffer,
        area: Rect { height, ..area },
        next: 0,
        theme,
    };
    title(app, &mut page);
    if let Link::Down(why) = &app.link {
        let bad = theme.bad();
        page.text(format!("no answer, trying again: {why}"), bad);
    }
    let lines = if app.shows_help {
        help(&mut page);
        app.page
    } else {
        body(app, &mut page)
    };
    app.page = lines;
    let mut foot = Page {
        buffer,
        area: Rect {
            y: area.y + height,
            height: area.height - height,
            ..area
        },
        next: 0,
        theme,
    };
    foot.filled(keys(app), theme.chosen());
}

fn body(app: &App, page: &mut Page<'_>) -> usize {
    let Some(rates) = app.course.rates() else {
        if app.link == Link::Waiting {
            page.text("waiting for the server", Style::new());
        }
        return 0;
    };
    match &app.view {
        View::Overview => overview::overview(app, &rates, page),
        View::Reactors => overview::reactors(app, &rates, page),
        View::Tenants => overview::tenants(app, &rates, page),
        View::Controller(name) => controller::controller(app, &rates, name, page),
    }
}

fn title(app: &App, page: &mut Page<'_>) {
    let theme = page.theme;
    let mut right = format!("every {}", interval(app));
    if let Some(rates) = app.course.rates() {
        right = format!("up {}  {right}", uptime(rates.uptime_ns));
    }
    if app.is_paused {
        right = format!("PAUSED  {right}");
    }
    let width = page.width();
    let left = format!("nvmirage top  {}", app.server);
    let room = width.saturating_sub(right.chars().count() + 2);
    page.put(&Line::from(vec![
        Span::styled(pad(&left, room, false), theme.title()),
        Span::styled(format!("  {right}"), Style::new()),
    ]));
}

fn interval(app: &App) -> String {
    match app.interval.as_millis() {
        ms if ms.is_multiple_of(1000) => format!("{} s", ms / 1000),
        ms => format!("{ms} ms"),
    }
}

fn uptime(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes:02} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

/// Help on keys for the last line.
fn keys(app: &App) -> &'static str {
    match (app.shows_help, &app.view) {
        (true, _) => " any key: back",
        (_, View::Overview) => {
            " up/down enter:open  s:sort  r:reactors  t:tenants  p:pause  +/-  ?:help  q:quit"
        }
        (_, View::Controller(_)) => {
            " esc:back  left/right:controller  up/down  p:pause  +/-  ?:help  q:quit"
        }
        _ => " esc:back  up/down  r:reactors  t:tenants  p:pause  +/-  ?:help  q:quit",
    }
}

const HELP: &str = "
  up, down, k, j           choose a line     page up, page down, home, end
  enter                    open the controller that is chosen
  esc, o                   back to all of them
  left, right              the controller before, the one behind
  r                        reactors: what they do with their time
  t                        tenants
  s                        sort controllers: creation, name, IOPS, MiB/s, p99,
                           depth, errors
  p                        pause, and go on
  + -                      look less often, more often: 100 ms to 10 s
  q, ctrl-c                quit

  IOPS are reads and writes each second. p50 and p99 are those of the watched
  commands (one of 256 unless set) of the last 10 s, doorbell to completion.
  DEPTH is commands fetched and not completed. A reactor is BUSY with work,
  spins without any, sleeps, or is stalled as the system runs something else.
  A command is stuck that was fetched a second ago or earlier.";

fn help(page: &mut Page<'_>) {
    HELP.lines().for_each(|line| page.text(line, Style::new()));
}
