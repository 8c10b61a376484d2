//! `[log]`: which log lines are written, and how.

use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use utoipa::ToSchema;

/// Which log lines are written, and how. All of it may change while the program runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    /// A level (error, warn, info, debug, trace), and others for modules: `info,transport=debug`. Default: `info`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) filter: Option<String>,
    /// How a line is written. Default: `journal` where standard error is the journal's, else `text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) format: Option<Format>,
}

/// How a log line is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// Time, level and text, with colours on a terminal.
    Text,
    /// An object of JSON a line.
    Json,
    /// Text with a priority in front, as the journal reads it (sd-daemon(3)), and without the time, which it adds.
    Journal,
}

impl Format {
    /// All of them, by the word for each.
    pub(crate) const ALL: [(&str, Self); 3] = [
        ("text", Format::Text),
        ("json", Format::Json),
        ("journal", Format::Journal),
    ];
}

/// The filter that `text` says.
///
/// # Errors
/// It is none: why, and what to write.
pub(crate) fn filter(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::try_new(text).map_err(|error| {
        format!(
            "`{text}` is no filter: {error}; write a level (error, warn, info, debug, trace) or module=level, with commas between several"
        )
    })
}

impl Log {
    /// Whether nothing is said.
    pub(crate) fn is_default(&self) -> bool {
        *self == Log::default()
    }
}
