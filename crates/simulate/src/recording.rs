//! What a modelled drive was told for real, with when each of it was done, and the same again in virtual time.
//!
//! A recording is a [trace](crate::trace) of our format with a queue, 0, and a sixth column: the time at which the command was done, on the
//! clock of the first column. Above it stand two comments, `# drive PRESET,NAME=VALUE,...` and `# size BYTES`, which say what drive that
//! was. It began as a fresh one, and its arrivals are those at its model: after what waited for room in its buffer.
//!
//! Played back, driver, controller, engine, medium and model are given the same commands at the same times on a virtual clock. Each must be
//! done at the very nanosecond at which it was for real.

use std::io::{self, Write};

use driver::program::Command;
use model::{Arrival, Op, Parameters, Recording};

use crate::Error;
use crate::points::{Phase, Rig, START_NS};
use crate::trace::{HEADER, TraceError};

/// Commands in flight: as many as a channel holds, but one.
const DEPTH: u16 = 4095;

/// A recording that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The drive, as in `samsung-970-pro,overprovisioning=10%`.
    pub drive: String,
    /// Its bytes.
    pub size: u64,
    /// What it was told: when, what, and when that was done.
    pub arrivals: Vec<(u64, Command, u64)>,
}

/// What a recording came to in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Commands.
    pub commands: u64,
    /// Those that were done at another time.
    pub differing: u64,
    /// The first of them: its number from 0, when it was done for real, and when in virtual time.
    pub first: Option<(usize, u64, u64)>,
}

/// Writes a recording. What was not done when it ended is left out, with all behind it.
///
/// # Errors
/// Those of `out`.
pub fn write(
    out: &mut impl Write,
    drive: &str,
    size: u64,
    recording: &Recording,
) -> io::Result<()> {
    writeln!(out, "{HEADER}\n# drive {drive}\n# size {size}")?;
    for arrival in &recording.arrivals {
        let Some(due) = arrival.due() else {
            break;
        };
        let Arrival { at, op, .. } = arrival;
        match *op {
            Op::Read { offset, len } => writeln!(out, "{at} R {offset} {len} 0 {due}")?,
            Op::Write { offset, len, fua } => {
                let name = if fua { "WF" } else { "W" };
                writeln!(out, "{at} {name} {offset} {len} 0 {due}")?;
            }
            Op::Deallocate { offset, len } => writeln!(out, "{at} D {offset} {len} 0 {due}")?,
            Op::Flush => writeln!(out, "{at} F 0 0 0 {due}")?,
            // A record has none.
            Op::Zone(_) | Op::Kv(_) | Op::Compound(_) => break,
        }
    }
    Ok(())
}

/// Reads a recording.
///
/// # Errors
/// The first line that cannot be read.
pub fn read(text: &str) -> Result<Recorded, TraceError> {
    let wrong = |line, why: &str| TraceError {
        line,
        why: why.into(),
    };
    if text.lines().next().map(str::trim) != Some(HEADER) {
        return Err(wrong(
            1,
            "this is no recording: one begins with `nvmirage-trace 1`",
        ));
    }
    let (mut drive, mut size) = (None, None);
    let mut arrivals: Vec<(u64, Command, u64)> = Vec::new();
    for (line, content) in (1..).zip(text.lines()).skip(1) {
        if let Some(comment) = content.strip_prefix('#') {
            match comment.trim().split_once(' ') {
                Some(("drive", name)) => drive = Some(name.to_owned()),
                Some(("size", bytes)) => size = bytes.parse().ok(),
                _ => {}
            }
            continue;
        }
        if content.trim().is_empty() {
            continue;
        }
        let arrival = arrival(content).ok_or_else(|| {
            wrong(
                line,
                "write TIME OP OFFSET LEN 0 DUE, as a recording has it",
            )
        })?;
        if arrivals.last().is_some_and(|last| last.0 > arrival.0) {
            return Err(wrong(line, "the time falls"));
        }
        arrivals.push(arrival);
    }
    match (drive, size) {
        (Some(drive), Some(size)) if !arrivals.is_empty() => Ok(Recorded {
            drive,
            size,
            arrivals,
        }),
        _ => Err(wrong(
            1,
            "a recording has the lines `# drive` and `# size`, and a command at least",
        )),
    }
}

fn arrival(line: &str) -> Option<(u64, Command, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[at, op, offset, len, _, due] = words.as_slice() else {
        return None;
    };
    let (at, due, offset) = (at.parse().ok()?, due.parse().ok()?, offset.parse().ok()?);
    let len = len.parse().ok()?;
    let command = match op {
        "R" => Command::Read { offset, len },
        "W" => Command::Write { offset, len },
        "WF" => Command::WriteFua { offset, len },
        "D" => Command::Deallocate { offset, len },
        "F" => Command::Flush,
        _ => return None,
    };
    Some((at, command, due))
}

/// Plays a recording back on a fresh drive of these parameters.
///
/// # Errors
/// Parameters that make no drive; commands that do not fit it.
pub fn replay(parameters: &Parameters, recorded: &Recorded) -> Result<Replayed, Error> {
    let commands = recorded.arrivals.iter().map(|(_, command, _)| *command);
    let times: Vec<u64> = recorded
        .arrivals
        .iter()
        .map(|(at, ..)| at.saturating_add(START_NS))
        .collect();
    let phase = Phase {
        depth: DEPTH,
        workers: vec![commands.collect()],
    };
    let mut rig = Rig::new(parameters, recorded.size, (phase.largest(), 1, DEPTH))?;
    let ran = rig.run_at(&phase, &times, 0)?;
    let mut replayed = Replayed {
        commands: 0,
        differing: 0,
        first: None,
    };
    let latencies = ran.latencies_ns.iter().flatten();
    for (number, ((at, _, due), latency)) in recorded.arrivals.iter().zip(latencies).enumerate() {
        replayed.commands += 1;
        let done = latency.map_or(0, |latency| at + latency);
        if done != *due {
            replayed.differing += 1;
            replayed.first.get_or_insert((number, *due, done));
        }
    }
    Ok(replayed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace;
    use model::{Model, Timing as _, preset::preset};

    /// A drive so small that it collects, under reads, writes, deallocations and flushes of chance; and played back.
    #[test]
    fn what_was_recorded_takes_the_same_time_again() {
        let size = 1 << 30;
        let preset = preset("samsung-970-pro").unwrap();
        let mut parameters = preset.parameters(size, None).unwrap();
        parameters
            .set("block", "256KiB", model::Moment::Creation)
            .unwrap();
        parameters.check().unwrap();
        let mut model = Model::new(&parameters).unwrap().recorded(60_000);
        let (mut now, mut seed, mut done) = (777_777_777, 1u64, Vec::new());
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for number in 0..50_000 {
            now += next(20_000);
            let offset = next(size / 65_536) * 65_536;
            let op = match next(20) {
                0..4 => Op::Read { offset, len: 4096 },
                4 => Op::Deallocate {
                    offset,
                    len: 65_536,
                },
                5 if number % 100 == 0 => Op::Flush,
                _ => Op::Write {
                    offset,
                    len: 65_536,
                    fua: next(10) == 0,
                },
            };
            while !model.has_room(&op) {
                now = model.next_event().unwrap().max(now);
                model.advance(now, &mut done);
            }
            model.submit(now, number, &op);
        }
        while let Some(event) = model.next_event() {
            model.advance(event, &mut done);
        }
        let counters = model.flash().unwrap().counters();
        assert!(counters.collected_pages > 0, "{counters:?}");
        let recording = model.take_recording().unwrap();
        let mut text = Vec::new();
        write(&mut text, "samsung-970-pro,block=256KiB", size, &recording).unwrap();
        let text = String::from_utf8(text).unwrap();
        let recorded = read(&text).unwrap();
        assert_eq!(recorded.drive, "samsung-970-pro,block=256KiB");
        assert_eq!(recorded.arrivals.len(), 50_000);
        let replayed = replay(&parameters, &recorded).unwrap();
        assert_eq!((replayed.commands, replayed.first), (50_000, None));
        assert_eq!(replayed.differing, 0);
        // Any trace reader takes it, too.
        assert_eq!(trace::parse(&text).unwrap().arrivals.len(), 50_000);
        // A drive that programs a nanosecond longer is another one.
        parameters
            .set("program", "185001ns", model::Moment::Creation)
            .unwrap();
        assert!(replay(&parameters, &recorded).unwrap().differing > 1_000);
    }

    #[test]
    fn what_is_no_recording_is_refused() {
        let header = "nvmirage-trace 1\n# drive optane-p4800x\n# size 4096\n";
        for (text, line, says) in [
            ("nvmirage-trace 2\n".to_owned(), 1, "no recording"),
            ("nvmirage-trace 1\n5 R 0 512 0 9\n".to_owned(), 1, "# drive"),
            (header.to_owned(), 1, "a command"),
            (format!("{header}5 R 0 512\n"), 4, "DUE"),
            (format!("{header}5 X 0 512 0 9\n"), 4, "DUE"),
            (
                format!("{header}5 R 0 512 0 9\n4 R 0 512 0 9\n"),
                5,
                "falls",
            ),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.line == line && error.why.contains(says), "{error}");
        }
    }
}
