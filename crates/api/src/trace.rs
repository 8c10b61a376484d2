//! Traces and their status.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config;

/// State of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Condition {
    /// The trace is running.
    Recording,
    /// The trace has ended, and its file is closed.
    Ended,
}

/// Trace and its status.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TraceStatus {
    /// Configuration, with `file` as an absolute path.
    #[serde(flatten)]
    pub config: config::trace::Trace,
    /// State: `recording` or `ended`.
    pub state: Condition,
    /// Reason for the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Start time, in nanoseconds since 1970 (UTC).
    pub started_ns: u64,
    /// End time, in nanoseconds since 1970 (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ns: Option<u64>,
    /// Commands recorded, including those not yet in the file.
    pub commands: u64,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// Commands that could not be recorded in time.
    pub lost: u64,
}
