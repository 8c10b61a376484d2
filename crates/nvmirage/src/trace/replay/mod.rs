//! Asking a drive what a trace's hosts have asked theirs, at the same times or scaled ones.
//!
//! [`plan`] makes the commands ([`make`]) and looks whether the drive has what they name, before
//! the first is submitted; [`run`] submits them and notes how late that was.

mod make;
mod plan;
mod run;

pub(crate) use plan::{Plan, Target, plan, transfer_len};
pub(crate) use run::{Drive, run};
use serde::Serialize;
use trace_file::export::LeftOut;
use trace_file::stats::Latencies;

/// When commands are submitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Speed {
    /// So many times as fast as they were recorded.
    Times(f64),
    /// As soon as there is room.
    Max,
}

impl Speed {
    /// When something is due that was so many nanoseconds after the first command.
    fn due(self, recorded: u64) -> u64 {
        match self {
            Speed::Max => 0,
            Speed::Times(times) => (recorded as f64 / times) as u64,
        }
    }
}

/// The slowest and the fastest.
const SLOWEST: f64 = 0.001;
const FASTEST: f64 = 1000.0;

impl std::str::FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        let times = text.parse().ok();
        let times = times.filter(|times| (SLOWEST..=FASTEST).contains(times));
        times.map(Speed::Times).ok_or_else(|| {
            format!("`{text}` is not a speed: write max, or {SLOWEST} to {FASTEST} times that of the recording")
        })
    }
}

/// What may be done to the drive, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// When commands are submitted.
    pub(crate) speed: Speed,
    /// Commands that change data are submitted.
    pub(crate) write: bool,
    /// They are left out.
    pub(crate) reads_only: bool,
    /// What lies beyond the end of a namespace goes around.
    pub(crate) wrap: bool,
    /// The one namespace of the drive that has them all.
    pub(crate) nsid: Option<u32>,
}

/// What a replay came to.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Replayed {
    /// Commands that were submitted.
    pub(crate) commands: u64,
    /// How long that took, in nanoseconds, and how long the recording did.
    pub(crate) elapsed_ns: u64,
    pub(crate) recorded_ns: u64,
    /// How late commands were submitted, in nanoseconds; nothing where they were as soon as there
    /// was room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) late: Option<Latencies>,
    /// Commands that found their queue full.
    pub(crate) waited: u64,
    /// By name.
    pub(crate) kinds: Vec<KindReplayed>,
    /// Errors by status.
    pub(crate) errors: Vec<(String, u64)>,
    /// Commands of the trace that were not submitted: why, and how many.
    pub(crate) left_out: LeftOut,
    /// It was ended early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) interrupted: bool,
}

/// Commands of one name.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KindReplayed {
    pub(crate) command: String,
    pub(crate) count: u64,
    pub(crate) errors: u64,
    /// From the submission until the completion was seen.
    pub(crate) latency: Latencies,
    /// What was recorded of the same commands: from the doorbell until the completion was posted.
    pub(crate) recorded: Latencies,
}
