//! State of the view, and the actions of keys.

use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::rates::{ControllerRates, Course, Rates};
use super::sample::{Inspected, Sample};

/// Refresh intervals, selected with `+` and `-`.
pub(super) const INTERVALS: [Duration; 7] = [
    Duration::from_millis(100),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
];

/// The view on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    /// Reactors and controllers.
    Overview,
    /// Time of the reactors by use.
    Reactors,
    /// Tenants.
    Tenants,
    /// One controller, by name.
    Controller(String),
}

/// Order of the controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// In order of creation.
    Made,
    Name,
    Iops,
    Bytes,
    P99,
    Depth,
    Errors,
}

impl Sort {
    pub(super) fn word(self) -> &'static str {
        match self {
            Sort::Made => "creation",
            Sort::Name => "name",
            Sort::Iops => "IOPS",
            Sort::Bytes => "MiB/s",
            Sort::P99 => "p99",
            Sort::Depth => "depth",
            Sort::Errors => "errors",
        }
    }

    fn next(self) -> Self {
        match self {
            Sort::Made => Sort::Name,
            Sort::Name => Sort::Iops,
            Sort::Iops => Sort::Bytes,
            Sort::Bytes => Sort::P99,
            Sort::P99 => Sort::Depth,
            Sort::Depth => Sort::Errors,
            Sort::Errors => Sort::Made,
        }
    }
}

/// Connection to the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// No answer yet.
    Waiting,
    Up,
    /// No answer; the reason, in one line.
    Down(String),
}

/// Request of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Nothing,
    Quit,
}

/// The state of the view.
#[derive(Debug)]
pub(super) struct App {
    /// Address of the server, for display.
    pub(super) server: String,
    pub(super) view: View,
    pub(super) sort: Sort,
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    pub(super) interval: Duration,
    pub(super) link: Link,
    pub(super) course: Course,
    /// Queues of the controller in view.
    pub(super) inspected: Option<Inspected>,
    /// Selected line of the view.
    pub(super) selected: usize,
    /// The controller that was selected when another view was opened.
    chosen: Option<String>,
    /// Number of selectable lines that fit on the screen; set by the drawing code.
    pub(super) page: usize,
}

impl App {
    pub(super) fn new(server: String, interval: Duration) -> Self {
        App {
            server,
            view: View::Overview,
            sort: Sort::Made,
            is_paused: false,
            shows_help: false,
            interval,
            link: Link::Waiting,
            course: Course::default(),
            inspected: None,
            selected: 0,
            chosen: None,
            page: 10,
        }
    }

    /// Takes a new sample.
    pub(super) fn take(&mut self, sample: Sample, inspected: Option<Inspected>) {
        self.link = Link::Up;
        let chosen = self.name_at(self.selected);
        self.course.take(sample);
        if self.view == View::Overview
            && let Some(at) = self.position(chosen.as_deref())
        {
            self.selected = at;
        }
        if let Some(inspected) = inspected {
            self.inspected = Some(inspected);
        }
        self.selected = self.selected.min(self.lines().saturating_sub(1));
    }

    /// The server does not answer. The old picture stays, and no rate spans the gap.
    pub(super) fn lose(&mut self, why: String) {
        if !matches!(self.link, Link::Down(_)) {
            self.course.break_off();
        }
        self.link = Link::Down(why);
    }

    /// The controllers in the selected order.
    pub(super) fn controllers(&self, rates: &Rates) -> Vec<ControllerRates> {
        let mut all = rates.controllers.clone();
        let by = |key: fn(&ControllerRates) -> f64| {
            move |a: &ControllerRates, b: &ControllerRates| {
                key(b).total_cmp(&key(a)).then_with(|| a.name.cmp(&b.name))
            }
        };
        match self.sort {
            Sort::Made => {}
            Sort::Name => all.sort_by(|a, b| a.name.cmp(&b.name)),
            Sort::Iops => all.sort_by(by(|c| c.per_s.map_or(0.0, |r| r.reads + r.writes))),
            Sort::Bytes => {
                all.sort_by(by(|c| {
                    c.per_s.map_or(0.0, |r| r.read_bytes + r.write_bytes)
                }));
            }
            Sort::P99 => all.sort_by(by(|c| c.latency.map_or(0.0, |l| l.p99 as f64))),
            Sort::Depth => all.sort_by(by(|c| c.depth)),
            Sort::Errors => all.sort_by(by(|c| c.per_s.map_or(0.0, |r| r.errors))),
        }
        all
    }

    /// Number of selectable lines.
    pub(super) fn lines(&self) -> usize {
        let rates = self.course.rates();
        let rates = rates.as_ref();
        match &self.view {
            View::Overview => rates.map_or(0, |rates| rates.controllers.len()),
            View::Reactors => rates.map_or(0, |rates| rates.reactors.len()),
            View::Tenants => rates.map_or(0, |rates| rates.tenants.len()),
            View::Controller(_) => self.inspected.as_ref().map_or(0, |its| its.commands.len()),
        }
    }

    /// The controller whose queues the view shows.
    pub(super) fn inspects(&self) -> Option<&str> {
        match &self.view {
            View::Controller(name) => Some(name),
            _ => None,
        }
    }

    fn open(&mut self, view: View) {
        if self.view == view {
            return;
        }
        if self.view == View::Overview {
            self.chosen = self.name_at(self.selected);
        }
        self.selected = match view {
            View::Overview => self.position(self.chosen.as_deref()).unwrap_or(0),
            _ => 0,
        };
        self.inspected = None;
        self.view = view;
    }

    /// Opens the view of a controller.
    pub(super) fn open_controller(&mut self, name: &str) {
        self.open(View::Controller(name.to_owned()));
    }

    fn names(&self) -> Vec<String> {
        let rates = self.course.rates().unwrap_or_default();
        let all = self.controllers(&rates).into_iter();
        all.map(|its| its.name).collect()
    }

    fn name_at(&self, line: usize) -> Option<String> {
        self.names().into_iter().nth(line)
    }

    fn position(&self, name: Option<&str>) -> Option<usize> {
        self.names().iter().position(|its| Some(&**its) == name)
    }

    /// Moves to the previous or next controller.
    fn step_controller(&mut self, by: isize) {
        let View::Controller(name) = &self.view else {
            return;
        };
        let names = self.names();
        let at = names.iter().position(|its| its == name).unwrap_or(0);
        let to = at
            .saturating_add_signed(by)
            .min(names.len().saturating_sub(1));
        if let Some(name) = names.into_iter().nth(to) {
            self.chosen = Some(name.clone());
            self.open_controller(&name);
        }
    }

    fn choose(&mut self, by: isize) {
        let last = self.lines().saturating_sub(1);
        self.selected = self.selected.saturating_add_signed(by).min(last);
    }

    fn step_interval(&mut self, by: isize) {
        let at = INTERVALS.iter().position(|its| *its >= self.interval);
        let at = at.unwrap_or(INTERVALS.len() - 1);
        let to = at.saturating_add_signed(by).min(INTERVALS.len() - 1);
        self.interval = INTERVALS[to];
    }

    /// Handles a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Asked {
        if key.kind == KeyEventKind::Release {
            return Asked::Nothing;
        }
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        if is_control && matches!(key.code, KeyCode::Char('c')) {
            return Asked::Quit;
        }
        if self.shows_help {
            self.shows_help = false;
            return Asked::Nothing;
        }
        let page = isize::try_from(self.page.max(1)).unwrap_or(1);
        match key.code {
            KeyCode::Char('q') => return Asked::Quit,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Up | KeyCode::Char('k') => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.choose(1),
            KeyCode::PageUp => self.choose(-page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.choose(page),
            KeyCode::Home | KeyCode::Char('g') => self.selected = 0,
            KeyCode::End | KeyCode::Char('G') => self.choose(isize::MAX),
            KeyCode::Left => self.step_controller(-1),
            KeyCode::Right => self.step_controller(1),
            KeyCode::Enter if self.view == View::Overview => {
                if let Some(name) = self.name_at(self.selected) {
                    self.open_controller(&name);
                }
            }
            KeyCode::Esc | KeyCode::Backspace | KeyCode::Char('o') => self.open(View::Overview),
            KeyCode::Char('r') => self.open(View::Reactors),
            KeyCode::Char('t') => self.open(View::Tenants),
            KeyCode::Char('s') => self.sort_otherwise(),
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('+' | '=') => self.step_interval(1),
            KeyCode::Char('-') => self.step_interval(-1),
            _ => {}
        }
        Asked::Nothing
    }

    /// Switches to the next order, and keeps the selected controller.
    fn sort_otherwise(&mut self) {
        let chosen = self.name_at(self.selected);
        self.sort = self.sort.next();
        if self.view == View::Overview
            && let Some(at) = self.position(chosen.as_deref())
        {
            self.selected = at;
        }
    }
}
