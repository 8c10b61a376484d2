//! `nvmirage top`: shows a running server's activity live.

use std::time::Duration;

use api::config::Span;

use super::parse::Control;
use crate::top::{self, Options};

const EXAMPLES: &str = "\
Examples:
  nvmirage top
      All controllers and reactors, refreshed every second; ? explains keys
  nvmirage top vm1 --interval 200ms
      One controller: its latencies, its queue depth over time, its queues and the commands in them
  nvmirage top --once
      One frame as text, for a script or a report
  nvmirage top vm1 --batch 60 --width 120 > vm1.txt
      A minute of one controller";

/// Monitor a running server in the terminal
///
/// Needs a terminal of 80 x 24 or more. Shows controllers, reactors, tenants, and one controller
/// with its commands in flight. Rates cover the time between two refreshes; latencies are those of
/// commands timed in the last 10 s.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Top {
    /// Controller to show first
    controller: Option<String>,

    /// Refresh interval, 100ms to 1min
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Span,

    /// Print one frame as text and exit
    #[arg(long, conflicts_with = "batch")]
    once: bool,

    /// Print N frames as text and exit
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,

    /// Width of a printed frame, in columns
    #[arg(long, value_name = "COLUMNS", default_value_t = 80, value_parser = clap::value_parser!(u16).range(40..=500))]
    width: u16,

    #[command(flatten)]
    control: Control,
}

fn interval(text: &str) -> Result<Span, String> {
    let span: Span = text.parse()?;
    let bounds = Duration::from_millis(100)..=Duration::from_secs(60);
    if bounds.contains(&span.0) {
        Ok(span)
    } else {
        Err(format!("`{text}` is not between 100ms and 1min"))
    }
}

impl Top {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let options = Options {
            socket: self.control.to_read()?,
            controller: self.controller,
            interval: self.interval.0,
        };
        let frames = if self.once { Some(1) } else { self.batch };
        match frames {
            Some(frames) => top::print(&options, frames, self.width),
            None => top::run(options),
        }
    }
}
