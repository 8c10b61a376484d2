//! Traces: which commands of a controller are recorded, where, and how many.
//!
//! Traces exist only at run time; a configuration file has none.

use std::path::PathBuf;

use super::object::{Bounds, Names, object};
use super::problem::{Place, Problem};
use super::{Size, Span};

/// Largest `sample`: a trace of fewer commands says little.
const MAX_SAMPLE: u64 = 128;
/// Smallest `max_size`: room for a few commands.
const MIN_SIZE: u64 = 64 << 10;
/// The shortest `max_time`, in nanoseconds.
const MIN_TIME_NS: u64 = 1_000_000;

object! {
    /// Trace of a controller's commands.
    pub struct Trace(TraceKeys, "trace") {
        /// Name of the trace.
        name: String => Fixed { bounds: Bounds::Name };
        /// Name of the controller.
        controller: String => Fixed { names: Names::Controllers };
        /// File that the server creates; it must not exist. A relative path starts at the server's
        /// working directory.
        #[schema(value_type = String)]
        file: PathBuf => Fixed { value: "PATH", names: Names::Files };
        /// Trace sampling rate: on average one in N commands is recorded; 1 records all.
        sample: u32 = 1 => Fixed {
            bounds: Bounds::Whole(1, MAX_SAMPLE),
            hint: "1 records every command",
            value: "N",
        };
        /// Maximum file size; the trace ends before it is exceeded.
        max_size: Size = Size(1 << 30) => Fixed {
            bounds: Bounds::Bytes(MIN_SIZE, u64::MAX),
            value: "SIZE",
        };
        /// Maximum duration.
        max_time: Option<Span> | unset => Fixed {
            bounds: Bounds::Time(MIN_TIME_NS, u64::MAX),
            unset: "unlimited; the trace runs until it is stopped",
            value: "TIME",
        };
    }
}

impl Trace {
    /// Everything that is wrong with it.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut place = Place {
            name: format!("trace {}", self.name),
            problems: &mut problems,
        };
        place.keys(self);
        place.require(self.file.file_name().is_some(), || {
            format!(
                "file = \"{}\": write the name of a file",
                self.file.display()
            )
        });
        problems
    }
}
