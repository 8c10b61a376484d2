//! The terminal: shows frames and reads keys; or writes frames as text to standard output.
//!
//! Invariant: the terminal is restored however the view ends: by a key, a signal, an error, or a
//! panic of any thread.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event};
use ratatui::layout::Rect;
use terminal::hangup;
use terminal::interrupt::Interrupt;

use super::app::{App, Asked, View};
use super::draw::{Theme, draw};
use super::source::{self, News, Order};
use crate::Address;

/// Maximum wait for a key before checking for news of the server.
const TICK: Duration = Duration::from_millis(50);

/// Options of the view.
#[derive(Debug)]
pub(crate) struct Options {
    /// The server's control socket.
    pub(crate) socket: Address,
    /// The controller to show first; without it, the overview.
    pub(crate) controller: Option<String>,
    /// Refresh interval.
    pub(crate) interval: Duration,
}

impl Options {
    fn app(&self) -> App {
        let mut app = App::new(self.socket.path().display().to_string(), self.interval);
        if let Some(name) = &self.controller {
            app.open_controller(name);
        }
        app
    }
}

/// Colours, unless the user does not want them (no-color.org).
fn theme() -> Theme {
    let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    Theme::new(!is_off)
}

/// Runs the view in the terminal until the user quits.
pub(crate) fn run(options: Options) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() {
        bail!(
            "standard output is no terminal: `nvmirage top --once` prints a frame as text, and `nvmirage ls` what is served"
        );
    }
    let mut app = options.app();
    // before the terminal is changed, so that after a signal it is restored
    let interrupt = Interrupt::install().context("cannot take over signals")?;
    hangup::end_with_terminal().context("cannot watch the terminal")?;
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let ended = show(&mut terminal, &mut app, options.socket, &interrupt);
    let restored = ratatui::try_restore().context("cannot change the terminal back");
    ended.and(restored)
}

fn order(app: &App) -> Order {
    Order {
        interval: app.interval,
        is_paused: app.is_paused,
        controller: app.inspects().map(str::to_owned),
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    app: &mut App,
    socket: Address,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let theme = theme();
    let mut ordered = order(app);
    let (orders, news) = source::start(socket, ordered.clone())?;
    let mut has_changed = true;
    while !interrupt.is_set() {
        for said in news.try_iter() {
            match said {
                News::Up(sample, inspected) => app.take(*sample, inspected),
                News::Down(why) => app.lose(why),
            }
            has_changed = true;
        }
        if has_changed {
            terminal.draw(|frame| {
                let area = frame.area();
                draw(app, theme, area, frame.buffer_mut());
            })?;
            has_changed = false;
        }
        match next_event()? {
            Some(Event::Key(key)) => {
                if app.key(key) == Asked::Quit {
                    break;
                }
                has_changed = true;
            }
            Some(Event::Resize(..)) => has_changed = true,
            _ => {}
        }
        if order(app) != ordered {
            ordered = order(app);
            orders
                .send(ordered.clone())
                .context("the thread that asks the server has ended")?;
        }
    }
    Ok(())
}

/// The next event within a tick. A signal is no event.
fn next_event() -> io::Result<Option<Event>> {
    let came = match event::poll(TICK) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
        came => came?,
    };
    if came {
        event::read().map(Some)
    } else {
        Ok(None)
    }
}

/// Prints frames as text, each with the rates since the previous one. The first frame follows after
/// one interval.
pub(crate) fn print(options: &Options, frames: u64, width: u16) -> anyhow::Result<()> {
    hangup::end_with_reader()?;
    let mut app = options.app();
    let look = |app: &mut App| -> anyhow::Result<()> {
        let (sample, inspected) = source::look(&options.socket, app.inspects())?;
        let is_there = |name: &str| sample.controllers.iter().any(|its| its.name == name);
        if let View::Controller(name) = &app.view
            && !is_there(name)
        {
            bail!("there is no controller `{name}`; `nvmirage ls` shows what there is");
        }
        app.take(sample, inspected);
        Ok(())
    };
    look(&mut app)?;
    for frame in 0..frames {
        thread::sleep(options.interval);
        look(&mut app)?;
        let between = if frame > 0 { "\n" } else { "" };
        terminal::print(&format!("{between}{}", text(&mut app, width)))?;
    }
    Ok(())
}

/// A frame as text, as high as needed.
pub(super) fn text(app: &mut App, width: u16) -> String {
    let queues = app.course.rates().map_or(0, |rates| {
        let all = rates.controllers.iter().map(|its| its.queues.len());
        all.sum::<usize>() + rates.reactors.len()
    });
    // each of two tables may get only half
    let lines = 2 * (app.lines() + queues) + 24;
    let area = Rect::new(0, 0, width, u16::try_from(lines).unwrap_or(u16::MAX));
    let mut buffer = Buffer::empty(area);
    draw(app, Theme::new(false), area, &mut buffer);
    let line = |y| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    // the line of keys is useless in text
    let lines: Vec<String> = (0..area.height - 1).map(line).collect();
    format!("{}\n", lines.join("\n").trim_end())
}
