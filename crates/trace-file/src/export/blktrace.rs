//! Text in blkparse's format: events queued (Q: its doorbell was seen), issued (D: handed to its
//! medium) and completed (C), each with a processor, which is its submission queue, from 0.

use std::io::{self, Write};

use super::{LeftOut, leave_out};
use crate::{Asked, Record};

/// Writes the records.
///
/// # Errors
/// Those of `out`.
pub fn blktrace(out: &mut impl Write, records: &[Record]) -> io::Result<LeftOut> {
    let mut left_out = LeftOut::new();
    let mut events = Vec::new();
    for (index, record) in records.iter().enumerate() {
        let what = match what(record) {
            Ok(what) => what,
            Err(why) => {
                leave_out(&mut left_out, why);
                continue;
            }
        };
        let [ring, fairness, translation, ..] = record.stages;
        let before = u64::from(ring) + u64::from(fairness) + u64::from(translation);
        events.push((record.at_ns, 'Q', index, what));
        events.push((record.at_ns.saturating_add(before), 'D', index, what));
        events.push((record.done_ns(), 'C', index, what));
    }
    events.sort_by_key(|(at, ..)| *at);
    let first = events.first().map_or(0, |(at, ..)| *at);
    for (number, (at, action, index, (flags, place))) in (1..).zip(events) {
        let record = &records[index];
        let at = at - first;
        let (seconds, part) = (at / 1_000_000_000, at % 1_000_000_000);
        let cpu = record.sqid.saturating_sub(1);
        write!(
            out,
            "259,{:<2} {cpu:>3} {number:>8} {seconds:>5}.{part:09} {:>5}  {action} {flags:>3}",
            record.nsid.min(99),
            0
        )?;
        match place {
            Some((start, len)) => write!(out, " {} + {}", start / 512, len / 512)?,
            None => write!(out, " 0 + 0")?,
        }
        match action {
            'C' => writeln!(out, " [{}]", u8::from(!record.is_success()))?,
            _ => writeln!(out, " [host]")?,
        }
    }
    Ok(left_out)
}

type What = (&'static str, Option<(u64, u64)>);

fn what(record: &Record) -> Result<What, &'static str> {
    // a failed command was submitted, too
    let done = Record {
        status: 0,
        ..*record
    };
    Ok(match done.asked()? {
        Asked::Read { start, len, .. } => ("R", Some((start, len))),
        Asked::Write {
            start,
            len,
            fua: false,
        } => ("W", Some((start, len))),
        Asked::Write { start, len, .. } => ("WF", Some((start, len))),
        Asked::Flush => ("FN", None),
        Asked::Deallocate { start, len, .. } => ("D", Some((start, len))),
        Asked::WriteZeroes { .. } => return Err("write zeros"),
        Asked::Append { .. } | Asked::Zone { .. } => return Err("are of zones"),
        Asked::Key { .. } => return Err("are of keys"),
    })
}
