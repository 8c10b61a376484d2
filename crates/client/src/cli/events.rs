//! `nvmirage events`: follows the events of a running server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::Event;
use terminal::hangup;

use super::parse::Control;
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage events
      Follow created, changed and deleted objects and hosts, until interrupted
  nvmirage events --since 0 --json
      Also print the events that the server still has, one JSON object per line";

/// Follow the events of a running server
///
/// The server keeps the last 1024 events, numbered. A reader that asks for older events gets the
/// number of lost ones.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Events {
    /// Number of the last known event; output starts with the next one. Default: only new events
    #[arg(long, value_name = "ID")]
    since: Option<u64>,

    /// Exit after N events
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Print one JSON object per line
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    control: Control,
}

impl Events {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let mut left = self.count.unwrap_or(u64::MAX);
        if left == 0 {
            return Ok(());
        }
        hangup::end_with_reader()?;
        requests::events(&self.control.to_read()?, self.since, |event| {
            if self.json {
                terminal::print(&format!("{}\n", serde_json::to_string(&event)?))?
            } else {
                terminal::print(&shown(&event, SystemTime::now()))?
            }
            left -= 1;
            Ok(left > 0)
        })
    }
}

/// An event as a line of text, with its age.
fn shown(event: &Event, now: SystemTime) -> String {
    let then = UNIX_EPOCH + Duration::from_nanos(event.time_ns);
    let ago = now.duration_since(then).unwrap_or_default().as_secs();
    let Event {
        id,
        event,
        kind,
        name,
        cause,
        ..
    } = event;
    let event = event.name();
    let cause = cause.as_ref();
    let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
    format!("{id:>6}  {ago:>6} s ago  {event:<14} {kind} {name}{cause}\n")
}
