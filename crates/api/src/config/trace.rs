//! Traces: which commands of a controller are recorded, where, and how many.
//!
//! Traces exist only at run time; a configuration file has none.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::validate::{Place, Problem};
use super::{Size, Span};

/// Largest `sample`: a trace of fewer commands says little.
pub const MAX_SAMPLE: u32 = 128;
/// Smallest `max_size`: room for a few commands.
const MIN_SIZE: Size = Size(64 << 10);
/// The shortest `max_time`.
const MIN_TIME: Duration = Duration::from_millis(1);

/// Trace of a controller's commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// Name of the trace: 1 to 64 letters, digits, `.`, `_` or `-`.
    pub name: String,
    /// Name of the controller.
    pub controller: String,
    /// File that the server creates; it must not exist. A relative path starts at the server's
    /// working directory.
    #[schema(value_type = String)]
    pub file: PathBuf,
    /// Trace sampling rate: on average one in N commands is recorded, 1 to 128. Default: 1, every
    /// command.
    #[serde(default = "every")]
    pub sample: u32,
    /// Maximum file size, at least 64KiB; the trace ends before it is exceeded. Default: 1GiB.
    #[serde(default = "max_size")]
    pub max_size: Size,
    /// Maximum duration, at least 1ms. Default: unlimited; the trace runs until it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_time: Option<Span>,
}

/// Default sampling rate: every command.
pub fn every() -> u32 {
    1
}

/// Default maximum file size.
pub fn max_size() -> Size {
    Size(1 << 30)
}

impl Trace {
    /// Everything that is wrong with it.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut place = Place {
            name: format!("trace {}", self.name),
            problems: &mut problems,
        };
        place.name(&self.name);
        place.require((1..=MAX_SAMPLE).contains(&self.sample), || {
            format!(
                "sample = {}: write 1 for every command, up to {MAX_SAMPLE} for one of {MAX_SAMPLE}",
                self.sample
            )
        });
        place.require(self.max_size >= MIN_SIZE, || {
            format!("max_size = \"{}\": write {MIN_SIZE} or more", self.max_size)
        });
        place.require(self.max_time.is_none_or(|time| time.0 >= MIN_TIME), || {
            "max_time: write 1ms or more".into()
        });
        place.require(self.file.file_name().is_some(), || {
            format!(
                "file = \"{}\": write the name of a file",
                self.file.display()
            )
        });
        problems
    }
}
