//! Traces: which commands of a controller are recorded, where, and how many.
//!
//! They are made and ended while a server runs; no configuration file has some.

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Size, Span,
    validate::{Place, Problem},
};

/// The largest `sample`: of a trace of fewer commands little could be said.
pub(crate) const MAX_SAMPLE: u32 = 128;
/// The smallest `max_size` that has room for a few commands.
const MIN_SIZE: Size = Size(64 << 10);
/// The shortest `max_time`.
const MIN_TIME: Duration = Duration::from_millis(1);

/// What is recorded of a controller's commands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Trace {
    /// Its name.
    pub(crate) name: String,
    /// The controller.
    pub(crate) controller: String,
    /// The file that the server makes for it, which must not be there: from the root, or from the folder that the server works in.
    #[schema(value_type = String)]
    pub(crate) file: PathBuf,
    /// One command of so many is recorded, at random distances: 1 to 128. Default: every one.
    #[serde(default = "every")]
    pub(crate) sample: u32,
    /// The trace ends before its file is larger. Default: 1 GiB.
    #[serde(default = "max_size")]
    pub(crate) max_size: Size,
    /// The trace ends after so long. Default: when it is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_time: Option<Span>,
}

/// Every command, unless told otherwise.
pub(crate) fn every() -> u32 {
    1
}

/// How large a file may become, unless told otherwise.
pub(crate) fn max_size() -> Size {
    Size(1 << 30)
}

impl Trace {
    /// Everything that is wrong with it.
    pub(crate) fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut place = Place {
            name: format!("trace {}", self.name),
            problems: &mut problems,
        };
        place.name("name", &self.name);
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
