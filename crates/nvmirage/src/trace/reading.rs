//! Traces that were recorded: read, a part of them chosen, and made into arrivals for the simulator.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufReader, Write},
    path::Path,
    time::Duration,
};

use anyhow::{Context, bail};
use nvme_spec::zoned::ZoneSendAction;
use simulate::{
    Kind, Op,
    trace::{Arrival, QUEUES_MAX},
};
use trace_file::{Asked, Header, Reader, Record, Tail, export::LeftOut};

/// Which commands are wanted; by default all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// Those of this submission queue.
    pub(crate) queue: Option<u16>,
    /// Those of this namespace.
    pub(crate) nsid: Option<u32>,
    /// Those that began so long after the recording did, or later.
    pub(crate) from: Duration,
    /// And within so long.
    pub(crate) within: Option<Duration>,
}

/// A trace, in the order of time.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) header: Header,
    pub(crate) records: Vec<Record>,
    /// Commands that were to be recorded and are not there.
    pub(crate) lost: u64,
    pub(crate) tail: Option<Tail>,
}

impl Loaded {
    /// What is to be known before anything is made of it: each a sentence.
    pub(crate) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.header.sample > 1 {
            notes.push(format!(
                "one command of {} was recorded",
                self.header.sample
            ));
        }
        if self.lost > 0 {
            notes.push(format!(
                "{} commands were lost, as they could not be taken in time",
                self.lost
            ));
        }
        if let Some(Tail::CutOff(bytes)) = self.tail {
            notes.push(format!(
                "the trace was cut off: it has no end, and {bytes} bytes behind its last whole block are of no use"
            ));
        }
        notes
    }
}

/// Reads a trace, as far as it is whole.
pub(crate) fn load(path: &Path, part: &Part) -> anyhow::Result<Loaded> {
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
    while reader.next(&mut block).with_context(shown)? {
        records.extend(block.drain(..).filter(wanted));
    }
    trace_file::by_time(&mut records);
    Ok(Loaded {
        header,
        records,
        lost: reader.lost(),
        tail: reader.tail().cloned(),
    })
}

/// What the simulator may be asked for, and what it cannot.
///
/// # Errors
/// The commands are of several namespaces, and a simulated drive has one.
pub(crate) fn arrivals(records: &[Record]) -> anyhow::Result<(Vec<Arrival>, LeftOut)> {
    let asked = records.iter().filter(|record| record.asked().is_ok());
    let with_place = asked.filter(|record| record.asked() != Ok(Asked::Flush));
    let nsids: BTreeSet<u32> = with_place.map(|record| record.nsid).collect();
    if nsids.len() > 1 {
        let nsids: Vec<_> = nsids.iter().map(u32::to_string).collect();
        bail!(
            "the trace has commands of namespaces {}, and a simulated drive has one: `nvmirage trace export --format simulate --nsid {}` takes those of one",
            nsids.join(", "),
            nsids[0]
        );
    }
    let mut left_out = LeftOut::new();
    let mut all = Vec::with_capacity(records.len());
    let first = records.first().map_or(0, |record| record.at_ns);
    for record in records {
        let op = record.asked().and_then(|asked| op(&asked, record));
        match op {
            Ok(op) => all.push(Arrival {
                at: record.at_ns - first,
                op,
                queue: record.sqid.saturating_sub(1) % QUEUES_MAX,
            }),
            Err(why) => *left_out.entry(why).or_default() += 1,
        }
        if let Ok(Asked::Deallocate { more, .. }) = record.asked()
            && more > 0
        {
            *left_out.entry("are further ranges of one").or_default() += u64::from(more);
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
        Asked::Read { start, len } => op(Kind::Read, start, len),
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
    })
}

/// Commands of a recorded trace as the text that the simulator reads.
pub(crate) fn as_text(records: &[Record]) -> anyhow::Result<(String, LeftOut)> {
    let (arrivals, left_out) = arrivals(records)?;
    let mut text = Vec::new();
    simulate::trace::write(&mut text, &arrivals, &[]).context("cannot write a trace")?;
    text.flush()?;
    Ok((String::from_utf8(text)?, left_out))
}

/// Whether bytes are a recorded trace, as their first ones tell.
pub(crate) fn is_recorded(bytes: &[u8]) -> bool {
    bytes.starts_with(&trace_file::MAGIC)
}

/// What is said of commands that are left out.
pub(crate) fn said(left_out: &LeftOut) -> Option<String> {
    let parts: Vec<_> = left_out
        .iter()
        .map(|(why, count)| format!("{count} that {why}"))
        .collect();
    (!parts.is_empty()).then(|| format!("left out: {}", parts.join(", ")))
}
