//! Replay: submits the commands of a trace to a drive, at the recorded or at scaled times.
//!
//! [`plan`] translates the commands ([`make`]) and checks that the drive has the namespaces and
//! ranges that they name, before the first submission; [`run`] submits them and records how late
//! each was.

mod make;
mod plan;
mod run;

pub use plan::{Plan, Target, plan, transfer_len};
pub use run::{Drive, run};
use serde::Serialize;
use trace_file::export::LeftOut;
use trace_file::stats::Latencies;

/// When commands are submitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// At this multiple of the recorded speed.
    Times(f64),
    /// As soon as there is room in a queue.
    Max,
}

impl Speed {
    /// Submission time of a command that was recorded this many nanoseconds after the first.
    fn due(self, recorded: u64) -> u64 {
        match self {
            Speed::Max => 0,
            Speed::Times(times) => (recorded as f64 / times) as u64,
        }
    }
}

/// Minimum and maximum speed.
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

/// Options of a replay.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Timing of submissions.
    pub speed: Speed,
    /// Whether to submit commands that change data.
    pub write: bool,
    /// Whether to leave those commands out.
    pub reads_only: bool,
    /// Whether addresses beyond the end of a namespace wrap around.
    pub wrap: bool,
    /// Namespace of the drive that receives all commands.
    pub nsid: Option<u32>,
}

/// Results of a replay.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Replayed {
    /// Commands that were submitted.
    pub commands: u64,
    /// Duration of the replay, in nanoseconds.
    pub elapsed_ns: u64,
    /// Duration of the recording, in nanoseconds.
    pub recorded_ns: u64,
    /// Delay of submissions, in nanoseconds; absent with [`Speed::Max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late: Option<Latencies>,
    /// Commands that found their queue full.
    pub waited: u64,
    /// Results by command name.
    pub kinds: Vec<KindReplayed>,
    /// Errors by status.
    pub errors: Vec<(String, u64)>,
    /// Commands of the trace that were not submitted: reasons and numbers.
    pub left_out: LeftOut,
    /// Whether the replay was ended early.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
}

/// Commands of one name.
#[derive(Clone, Debug, Serialize)]
pub struct KindReplayed {
    /// The name.
    pub command: String,
    /// Their number.
    pub count: u64,
    /// Those that failed.
    pub errors: u64,
    /// From submission until the host sees the completion.
    pub latency: Latencies,
    /// Recorded latencies of the same commands: from the doorbell until the completion was posted.
    pub recorded: Latencies,
}
