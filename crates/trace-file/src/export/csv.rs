//! Comma-separated values: a line for each command, with all of its fields.

use std::io::{self, Write};

use crate::{Record, STAGES};

/// Writes the records, with times in nanoseconds since the start of the recording, `start_ns`.
///
/// # Errors
/// Those of `out`.
pub fn csv(out: &mut impl Write, start_ns: u64, records: &[Record]) -> io::Result<()> {
    write!(
        out,
        "time_ns,cq,sq,cid,command,opcode,nsid,slba,blocks,lba_size,bytes,fua,detail,key,depth,status,latency_ns"
    )?;
    for stage in STAGES {
        write!(out, ",{stage}_ns")?;
    }
    writeln!(out)?;
    for record in records {
        let lba_size = match record.lba_shift {
            shift @ 9..=16 => 1u32 << shift,
            _ => 0,
        };
        let key = record.key().map_or(String::new(), |key| key.to_string());
        write!(
            out,
            "{},{},{},{},{},{},{},{},{},{lba_size},{},{},{},{key},{},{},{}",
            record.at_ns.saturating_sub(start_ns),
            record.cqid,
            record.sqid,
            record.cid,
            record.name(),
            record.opcode,
            record.nsid,
            record.slba,
            record.blocks,
            record.bytes,
            u8::from(record.fua),
            record.detail,
            record.depth,
            record.status,
            record.latency_ns(),
        )?;
        for stage in record.stages {
            write!(out, ",{stage}")?;
        }
        writeln!(out)?;
    }
    Ok(())
}
