//! fio's iolog, version 3: each line has a time in microseconds, a file, and an operation.

use std::collections::BTreeSet;
use std::io::{self, Write};

use super::{LeftOut, leave_out, leave_out_further_ranges};
use crate::{Asked, Record};

/// Maximum bytes of a line, which fio parses into 32 bits.
const MOST: u64 = 1 << 30;

/// Writes the records; namespaces are the files `nvme0n1` and so on, which fio's
/// `--replay_redirect` replaces.
///
/// # Errors
/// Those of `out`.
pub fn fio(out: &mut impl Write, records: &[Record]) -> io::Result<LeftOut> {
    let mut left_out = LeftOut::new();
    writeln!(out, "fio version 3 iolog")?;
    let asked = records.iter().filter(|record| record.asked().is_ok());
    let files: BTreeSet<u32> = asked.map(|record| record.nsid).collect();
    for nsid in &files {
        writeln!(out, "0 {} add", file(*nsid))?;
        writeln!(out, "0 {} open", file(*nsid))?;
    }
    let first = records.first().map_or(0, |record| record.at_ns);
    let mut time = 0;
    for record in records {
        time = (record.at_ns - first) / 1000;
        let asked = match record.asked() {
            Ok(asked) => asked,
            Err(why) => {
                leave_out(&mut left_out, why);
                continue;
            }
        };
        leave_out_further_ranges(&mut left_out, &asked);
        let (action, mut start, mut len) = match asked {
            Asked::Read { start, len, .. } => ("read", start, len),
            Asked::Write { start, len, .. } => ("write", start, len),
            Asked::Flush => ("sync", 0, 0),
            Asked::Deallocate { start, len, .. } => ("trim", start, len),
            Asked::WriteZeroes { .. } => {
                leave_out(&mut left_out, "write zeros");
                continue;
            }
            Asked::Append { .. } | Asked::Zone { .. } => {
                leave_out(&mut left_out, "are of zones");
                continue;
            }
            Asked::Key { .. } => {
                leave_out(&mut left_out, "are of keys");
                continue;
            }
        };
        let name = file(record.nsid);
        loop {
            let part = len.min(MOST);
            writeln!(out, "{time} {name} {action} {start} {part}")?;
            (start, len) = (start + part, len - part);
            if len == 0 {
                break;
            }
        }
    }
    for nsid in &files {
        writeln!(out, "{time} {} close", file(*nsid))?;
    }
    Ok(left_out)
}

fn file(nsid: u32) -> String {
    format!("nvme0n{nsid}")
}
