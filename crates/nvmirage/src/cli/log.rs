//! Where log lines go: standard error, filtered as in RUST_LOG.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use super::UsageError;

/// Where the filter comes from when the command line names none.
const VARIABLE: &str = "NVMIRAGE_LOG";

/// What is logged when nothing is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Default {
    /// A server says what it does.
    Info,
    /// Any other command says what is wrong.
    Warn,
}

/// Starts logging.
pub(super) fn start(filter: Option<&str>, default: Default) -> anyhow::Result<()> {
    let from_environment = std::env::var(VARIABLE).ok();
    let (text, place) = match (filter, &from_environment) {
        (Some(filter), _) => (filter, "--log"),
        (None, Some(filter)) => (filter.as_str(), VARIABLE),
        (None, None) => match default {
            Default::Info => ("info", "the default"),
            Default::Warn => ("warn", "the default"),
        },
    };
    let filter = EnvFilter::try_new(text).map_err(|error| {
        UsageError(format!(
            "{place}: `{text}` is no filter: {error}; write a level (error, warn, info, debug, trace) or module=level"
        ))
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    match default {
        Default::Info => builder.init(),
        Default::Warn => builder.without_time().init(),
    }
    Ok(())
}
