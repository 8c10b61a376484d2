//! Chrome's trace event format, which Perfetto also reads: JSON with a slice for each command and,
//! inside, for each of its stages.
//!
//! Slices of one track must be nested, but commands of a queue overlap. So a queue is a process in
//! the output, with as many threads as it had commands in flight at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::{self, Write};

use serde_json::json;

use crate::{Header, Record, STAGES};

/// Writes the records.
///
/// # Errors
/// Those of `out`.
pub fn chrome(out: &mut impl Write, header: &Header, records: &[Record]) -> io::Result<()> {
    let first = records.first().map_or(0, |record| record.at_ns);
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":")?;
    serde_json::to_writer(&mut *out, header)?;
    writeln!(out, ",\"traceEvents\":[")?;
    let mut tracks = BTreeMap::<u16, Tracks>::new();
    let mut comma = "";
    for record in records {
        let begun = record.at_ns - first;
        let [.., interrupt] = record.stages;
        let took = record.latency_ns() + u64::from(interrupt);
        let ended = begun.saturating_add(took);
        let its = tracks.entry(record.sqid).or_default();
        let track = its.take(begun, ended);
        let event = json!({
            "name": record.name(), "cat": "command", "ph": "X", "ts": Microseconds(begun).value(),
            "dur": Microseconds(took).value(), "pid": record.sqid, "tid": track,
            "args": {
                "cid": record.cid, "nsid": record.nsid, "slba": record.slba, "blocks": record.blocks,
                "bytes": record.bytes, "fua": record.fua, "depth": record.depth,
                "status": nvme_spec::Status(record.status).to_string(), "latency_ns": record.latency_ns(),
            },
        });
        writeln!(out, "{comma}{event}")?;
        comma = ",";
        let mut at = begun;
        for (name, stage) in STAGES.iter().zip(record.stages) {
            if stage > 0 {
                let event = json!({
                    "name": name, "cat": "stage", "ph": "X", "ts": Microseconds(at).value(),
                    "dur": Microseconds(stage.into()).value(), "pid": record.sqid, "tid": track,
                });
                writeln!(out, ",{event}")?;
            }
            at = at.saturating_add(stage.into());
        }
        let depth = json!({
            "name": "in flight", "ph": "C", "ts": Microseconds(begun).value(), "pid": record.sqid,
            "args": {"commands": record.depth},
        });
        writeln!(out, ",{depth}")?;
    }
    for queue in tracks.keys() {
        let name = format!("{}: submission queue {queue}", header.controller);
        let event =
            json!({"name": "process_name", "ph": "M", "pid": queue, "args": {"name": name}});
        writeln!(out, "{comma}{event}")?;
        comma = ",";
    }
    writeln!(out, "]}}")
}

/// The tracks of a queue, from 1.
#[derive(Default)]
pub(super) struct Tracks {
    /// End of use, and number of each track.
    taken: BinaryHeap<Reverse<(u64, usize)>>,
    free: BinaryHeap<Reverse<usize>>,
}

impl Tracks {
    /// The first track that is free for this period. Calls must be in order of their beginnings.
    pub(super) fn take(&mut self, begun: u64, ended: u64) -> usize {
        while let Some(Reverse((until, track))) = self.taken.peek().copied()
            && until <= begun
        {
            self.taken.pop();
            self.free.push(Reverse(track));
        }
        let free = self.free.pop().map(|Reverse(track)| track);
        let track = free.unwrap_or(self.taken.len() + 1);
        // a command without duration takes its track, too
        let until = ended.max(begun.saturating_add(1));
        self.taken.push(Reverse((until, track)));
        track
    }
}

/// Nanoseconds, shown as microseconds with three decimals.
struct Microseconds(u64);

impl Microseconds {
    fn value(&self) -> f64 {
        self.0 as f64 / 1000.0
    }
}
