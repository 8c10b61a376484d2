//! `nvmirage fidelity --replay`: repeats the recorded commands of a served drive in virtual time.

use std::fs;
use std::path::Path;

use anyhow::{Context, ensure};
use api::config::Timing;
use machine::files::read_text;
use serde::Serialize;
use simulate::recording;

#[derive(Debug, Serialize)]
struct Replay {
    /// The drive, as it was recorded.
    drive: String,
    size_bytes: u64,
    commands: u64,
    /// Commands whose completion times differ from the recording.
    differing: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<First>,
}

/// The first command that differs.
#[derive(Debug, Serialize)]
struct First {
    /// Number of the command, from 0.
    number: usize,
    real_ns: u64,
    virtual_ns: u64,
}

pub(super) fn run(file: &Path, json: bool) -> anyhow::Result<()> {
    let place = || format!("cannot play back {}", file.display());
    let _line = terminal::progress::waiting("playing it back");
    let text = fs::read_to_string(file).with_context(place)?;
    let recorded = recording::read(&text).with_context(place)?;
    let timing = Timing::parse(&recorded.drive, read_text)
        .map_err(|error| anyhow::anyhow!(error))
        .with_context(place)?;
    let parameters = timing.parameters(recorded.size);
    let parameters = parameters
        .map_err(|problems| anyhow::anyhow!(problems.join("; ")))
        .with_context(place)?;
    // A recording that states none is of a time when every new drive was fresh.
    let initial = timing.initial.map_or(model::Initial::Fresh, Into::into);
    let replayed = recording::replay(&parameters, initial, &recorded).with_context(place)?;
    let replay = Replay {
        drive: recorded.drive,
        size_bytes: recorded.size,
        commands: replayed.commands,
        differing: replayed.differing,
        first: replayed.first.map(|(number, real_ns, virtual_ns)| First {
            number,
            real_ns,
            virtual_ns,
        }),
    };
    if json {
        terminal::print_json(&replay)?;
    } else {
        terminal::print(&format!(
            "{} commands on {}: {} are done at another time in virtual time\n",
            replay.commands, replay.drive, replay.differing
        ))?;
    }
    match &replay.first {
        None => Ok(()),
        Some(first) => {
            ensure!(
                replay.differing == 0,
                "command {} was done at {} ns, and in virtual time at {} ns",
                first.number,
                first.real_ns,
                first.virtual_ns
            );
            Ok(())
        }
    }
}
