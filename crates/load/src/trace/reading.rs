//! Reading of recorded traces: selection of a part, and conversion into arrivals for the simulator.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nvme_spec::zoned::ZoneSendAction;
use simulate::trace::{Arrival, QUEUES_MAX};
use simulate::{Kind, Op};
use trace_file::export::{LeftOut, leave_out_further_ranges};
use trace_file::{Asked, Header, Reader, Record, Tail, TraceError};

/// Selection of commands; the default selects all.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Commands of this submission queue.
    pub queue: Option<u16>,
    /// Commands of this namespace.
    pub nsid: Option<u32>,
    /// Commands that began at least this long after the start of the recording.
    pub from: Duration,
    /// Commands that began within this time.
    pub within: Option<Duration>,
}

/// Maximum number of commands in memory, of 88 bytes each.
const COMMANDS: usize = 1 << 27;
const _: () = assert!(size_of::<Record>() == 88);

/// A trace, sorted by time.
#[derive(Debug)]
pub struct Loaded {
    /// Its header.
    pub header: Header,
    /// The commands of the selected part.
    pub records: Vec<Record>,
    /// Commands that the recorder missed.
    pub lost: u64,
    /// End of the trace; `None` if damage prevented reading it.
    pub tail: Option<Tail>,
    /// Position and kind of damage; the commands are those before it.
    pub damaged: Option<String>,
}

impl Loaded {
    /// Notes for the reader of any result, each a sentence.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.header.sample > 1 {
            notes.push(format!(
                "one in {} commands was recorded",
                self.header.sample
            ));
        }
        if self.lost > 0 {
            notes.push(format!(
                "{} commands were lost because they could not be recorded in time, or the file had no room",
                self.lost
            ));
        }
        if let Some(Tail::CutOff(bytes)) = self.tail {
            notes.push(format!(
                "the trace is truncated: {bytes} bytes behind its last complete block are ignored"
            ));
        }
        notes.extend(self.damaged.clone());
        notes
    }
}

/// Reads a trace up to its end or to the first damage.
///
/// # Errors
/// The file is not a trace, cannot be read, or has more commands than fit in memory.
pub fn load(path: &Path, part: &Part) -> anyhow::Result<Loaded> {
    load_at_most(path, part, COMMANDS)
}

fn load_at_most(path: &Path, part: &Part, most: usize) -> anyhow::Result<Loaded> {
    let shown = || path.display().to_string();
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut reader = Reader::new(BufReader::new(file)).with_context(shown)?;
    let header = reader.header().clone();
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let from = header.start_ns.saturating_add(ns(part.from));
    let until = part
        .within
        .map_or(u64::MAX, |time| from.saturating_add(ns(time)));
    let wanted = |record: &Record| {
        part.queue.is_none_or(|queue| queue == record.sqid)
            && part.nsid.is_none_or(|nsid| nsid == record.nsid)
            && (part.from.is_zero() || record.at_ns >= from)
            && record.at_ns < until
    };
    let mut records = Vec::new();
    let mut block = Vec::new();
    let damaged = loop {
        match reader.next(&mut block) {
            Ok(true) => records.extend(block.drain(..).filter(wanted)),
            Ok(false) => break None,
            Err(error @ TraceError::Damaged { .. }) => break Some(error.to_string()),
            Err(error) => return Err(error).with_context(shown),
        }
        ensure!(
            records.len() <= most,
            "{} has more than {most} commands, the maximum in memory: select a part with --from and --within",
            path.display()
        );
    };
    trace_file::by_time(&mut records);
    Ok(Loaded {
        header,
        records,
        lost: reader.lost(),
        tail: reader.tail().cloned(),
        damaged,
    })
}

/// Commands that the simulator supports, and those that it does not.
///
/// # Errors
/// The commands are of several namespaces, but a simulated drive has one.
pub fn arrivals(records: &[Record]) -> anyhow::Result<(Vec<Arrival>, LeftOut)> {
    let asked = records.iter().filter(|record| record.asked().is_ok());
    let with_place = asked.filter(|record| record.asked() != Ok(Asked::Flush));
    let nsids: BTreeSet<u32> = with_place.map(|record| record.nsid).collect();
    if nsids.len() > 1 {
        let nsids: Vec<_> = nsids.iter().map(u32::to_string).collect();
        bail!(
            "the trace has commands of namespaces {}, and a simulated drive has one: select one with `nvmirage trace export --format simulate --nsid {}`",
            nsids.join(", "),
            nsids[0]
        );
    }
    let mut left_out = LeftOut::new();
    let mut all = Vec::with_capacity(records.len());
    let first = records.first().map_or(0, |record| record.at_ns);
    for record in records {
        let asked = record.asked();
        if let Ok(asked) = asked {
            leave_out_further_ranges(&mut left_out, &asked);
        }
        match asked.and_then(|asked| op(&asked, record)) {
            Ok(op) => all.push(Arrival {
                at: record.at_ns - first,
                op,
                queue: record.sqid.saturating_sub(1) % QUEUES_MAX,
            }),
            Err(why) => *left_out.entry(why).or_default() += 1,
        }
    }
    Ok((all, left_out))
}

fn op(asked: &Asked, record: &Record) -> Result<Op, &'static str> {
    let op = |kind, offset, len| Op {
        kind,
        offset,
        len,
        fua: false,
    };
    Ok(match *asked {
        Asked::Read { start, len, .. } => op(Kind::Read, start, len),
        Asked::Write { start, len, fua } => Op {
            fua,
            ..op(Kind::Write, start, len)
        },
        Asked::Flush => op(Kind::Flush, 0, 0),
        Asked::Deallocate { start, len, .. } => op(Kind::Trim, start, len),
        Asked::Zone {
            start,
            action,
            all: false,
        } => {
            let kind = match ZoneSendAction(action) {
                ZoneSendAction::RESET => Kind::Reset,
                ZoneSendAction::FINISH => Kind::Finish,
                ZoneSendAction::OPEN => Kind::Open,
                ZoneSendAction::CLOSE => Kind::Close,
                _ => return Err("change zones in another way"),
            };
            op(kind, start, 1 << record.lba_shift)
        }
        Asked::Zone { .. } => return Err("change zones in another way"),
        Asked::Append { .. } => return Err("append to zones, at places that are not in a trace"),
        Asked::WriteZeroes { .. } => return Err("write zeros"),
        Asked::Key { .. } => return Err("are of keys, and a simulated drive has blocks"),
    })
}

/// Converts a recorded trace into the text that the simulator reads.
pub fn as_text(records: &[Record]) -> anyhow::Result<(String, LeftOut)> {
    let (arrivals, left_out) = arrivals(records)?;
    let mut text = Vec::new();
    simulate::trace::write(&mut text, &arrivals, &[]).context("cannot write a trace")?;
    text.flush()?;
    Ok((String::from_utf8(text)?, left_out))
}

/// Whether the bytes begin like a recorded trace.
pub fn is_recorded(bytes: &[u8]) -> bool {
    bytes.starts_with(&trace_file::MAGIC)
}

/// Message about commands that were left out.
pub fn said(left_out: &LeftOut) -> Option<String> {
    let parts: Vec<_> = left_out
        .iter()
        .map(|(why, count)| format!("{count} that {why}"))
        .collect();
    (!parts.is_empty()).then(|| format!("left out: {}", parts.join(", ")))
}

#[cfg(test)]
mod tests {
    use trace_file::Encoder;

    use super::*;

    #[test]
    fn more_commands_than_are_held_in_memory_are_refused_until_a_part_is_chosen() {
        let at = |at_ns| Record {
            at_ns,
            ..Record::default()
        };
        let mut encoder = Encoder::default();
        let mut bytes = encoder.header(&Header::default()).to_vec();
        bytes.extend_from_slice(encoder.records(&[at(1), at(2), at(3)], 0));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        std::fs::write(&path, bytes).unwrap();
        let all = Part::default();
        assert_eq!(load_at_most(&path, &all, 3).unwrap().records.len(), 3);
        let error = load_at_most(&path, &all, 2).unwrap_err().to_string();
        assert!(
            error.contains("more than 2 commands") && error.contains("--within"),
            "{error}"
        );
        let part = Part {
            from: Duration::from_nanos(2),
            ..Part::default()
        };
        assert_eq!(load_at_most(&path, &part, 2).unwrap().records.len(), 2);
    }
}
