//! Logging to standard error. Filter and format come from the command line, the environment or the
//! configuration, and can change at run time.
//!
//! `--log` takes precedence over NVMIRAGE_LOG, and that over the configuration. A change over the
//! control socket applies until the next one.

use std::fmt;
use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock, PoisonError};

use api::config;
use api::config::log::{Filter, Format, Log};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layered, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::service;

/// The environment variable with the filter.
const VARIABLE: &str = "NVMIRAGE_LOG";

/// Default filter of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Default {
    /// For a server: what it does.
    Info,
    /// For any other command: what goes wrong.
    Warn,
}

type Lines = Box<dyn Layer<Registry> + Send + Sync>;
type Written = Layered<reload::Layer<Lines, Registry>, Registry>;

/// The changeable parts of the process's log.
struct Live {
    /// Whether the command line or the environment has set the filter, which then overrides the
    /// configuration.
    is_said: bool,
    /// A global filter beside the layer of lines. A filter around that layer could not be replaced.
    filter: reload::Handle<Targets, Written>,
    lines: reload::Handle<Lines, Registry>,
    /// Current filter and format.
    now: Mutex<(Filter, Format)>,
}

static LIVE: OnceLock<Live> = OnceLock::new();

/// Starts logging; `said` is the command line's filter.
///
/// # Errors
/// The filter is invalid: its source, and what to write.
pub fn start(said: Option<&str>, default: Default) -> Result<(), String> {
    let from_environment = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
    let from_environment = from_environment.map(std::ffi::OsString::into_string);
    let from_environment = from_environment
        .transpose()
        .map_err(|text| format!("{VARIABLE}: {} is not UTF-8", text.display()))?;
    let is_said = said.is_some() || from_environment.is_some();
    let (text, place) = match (said, &from_environment) {
        (Some(text), _) => (text, "--log"),
        (None, Some(text)) => (text.as_str(), VARIABLE),
        (None, None) => match default {
            Default::Info => ("info", "the default"),
            Default::Warn => ("warn", "the default"),
        },
    };
    let format = format_of(default);
    let wrong = |why| format!("{place}: {why}");
    let said = Filter::try_from(text.to_owned()).map_err(wrong)?;
    let only = filter(&said).map_err(wrong)?;
    let (only, filter) = reload::Layer::new(only);
    let (written, lines) = reload::Layer::new(lines(format, default));
    tracing_subscriber::registry()
        .with(written)
        .with(only)
        .init();
    let live = Live {
        is_said,
        filter,
        lines,
        now: Mutex::new((said, format)),
    };
    // a process starts logging once
    let _ = LIVE.set(live);
    Ok(())
}

/// Default format.
fn format_of(default: Default) -> Format {
    match default {
        Default::Info if service::logs_to_journal() => Format::Journal,
        _ => Format::Text,
    }
}

/// Applies a configuration, except for a filter that the command line or the environment has set.
///
/// # Errors
/// As [`change`].
pub fn configure(log: &Log) -> Result<(), String> {
    let is_said = LIVE.get().is_some_and(|live| live.is_said);
    change(&Log {
        filter: log.filter.clone().filter(|_| !is_said),
        format: log.format,
    })
}

/// Applies a reloaded configuration: omitted keys return to their defaults, whatever was changed
/// since.
///
/// # Errors
/// As [`change`].
pub(crate) fn configure_anew(log: &Log) -> Result<(), String> {
    configure(&Log {
        filter: log.filter.clone().or_else(|| Some(Filter::default())),
        format: log.format.or_else(|| Some(format_of(Default::Info))),
    })
}

/// Changes the log from the next line on; what `change` omits stays.
///
/// # Errors
/// The filter is invalid, and nothing changes.
pub(crate) fn change(change: &Log) -> Result<(), String> {
    let Some(live) = LIVE.get() else {
        return Ok(());
    };
    let mut now = live.now.lock().unwrap_or_else(PoisonError::into_inner);
    let text = change.filter.clone().unwrap_or_else(|| now.0.clone());
    let format = change.format.unwrap_or(now.1);
    if *now == (text.clone(), format) {
        return Ok(());
    }
    let filter = filter(&text)?;
    let failed = |error: reload::Error| error.to_string();
    live.filter.reload(filter).map_err(failed)?;
    if now.1 != format {
        let lines = lines(format, Default::Info);
        live.lines.reload(lines).map_err(failed)?;
    }
    *now = (text, format);
    Ok(())
}

/// A filter as the subscriber takes it. Only `config::log` parses its directives, so that a
/// module that does not exist is an error, and not a filter that passes nothing.
fn filter(text: &Filter) -> Result<Targets, String> {
    let text = config::log::filter(text.as_str())?;
    text.parse()
        .map_err(|why| format!("invalid log filter `{text}`: {why}"))
}

/// The current filter and format.
pub(crate) fn now() -> Log {
    let Some(live) = LIVE.get() else {
        return Log::default();
    };
    let now = live.now.lock().unwrap_or_else(PoisonError::into_inner);
    Log {
        filter: Some(now.0.clone()),
        format: Some(now.1),
    }
}

/// Whether lines have colours: on a terminal, unless the user does not want them (no-color.org).
fn has_colours() -> bool {
    let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !is_off
}

fn lines(format: Format, default: Default) -> Lines {
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // it would report to standard error, and panic if that is closed
        .log_internal_errors(false)
        .with_ansi(format == Format::Text && has_colours());
    match (format, default) {
        (Format::Json, _) => lines.json().flatten_event(true).boxed(),
        (Format::Journal, _) => {
            let text = format::format().with_target(false).with_level(false);
            lines.event_format(Prioritised(text.without_time())).boxed()
        }
        (Format::Text, Default::Info) => lines.with_target(false).boxed(),
        (Format::Text, Default::Warn) => lines.with_target(false).without_time().boxed(),
    }
}

/// Lines with a priority prefix (sd-daemon(3)).
struct Prioritised<F>(F);

/// The priority of syslog(3) for a level.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

impl<S, N, F> FormatEvent<S, N> for Prioritised<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modules_of_a_filter_are_those_of_this_crate() {
        let lines = include_str!("lib.rs").lines();
        let modules = lines.filter_map(|line| {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            line.strip_prefix("mod ")?.strip_suffix(';')
        });
        assert_eq!(modules.collect::<Vec<_>>(), config::log::MODULES);
    }
}
