//! Traces in other programs' formats.

use super::{Arrival, Parsed};
use crate::job::{Kind, Op};

/// Sector size, in formats that count sectors.
const SECTOR: u64 = 512;

fn number(what: &str, word: &str) -> Result<u64, String> {
    let word = word.trim();
    word.parse()
        .map_err(|_| format!("the {what} `{word}` is no whole number"))
}

fn sectors(what: &str, word: &str) -> Result<u64, String> {
    let bytes = number(what, word)?.checked_mul(SECTOR);
    bytes.ok_or_else(|| format!("the {what} `{word}` is too large"))
}

fn arrival(at: u64, kind: Kind, offset: u64, len: u64) -> Arrival {
    Arrival {
        at,
        op: Op {
            kind,
            offset,
            len,
            fua: false,
        },
        queue: 0,
    }
}

/// MSR Cambridge: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`, the time in units
/// of 100 ns, offset and size in bytes.
pub(super) fn msr(line: &str) -> Parsed {
    let fields: Vec<&str> = line.split(',').collect();
    let &[at, _, _, kind, offset, len, _] = fields.as_slice() else {
        return Err(format!("{} fields with commas, not seven", fields.len()));
    };
    let at = number("time", at)?;
    let at = at.checked_mul(100).ok_or("the time is too late")?;
    let kind = match kind.trim().to_ascii_lowercase().as_str() {
        "read" => Kind::Read,
        "write" => Kind::Write,
        other => return Err(format!("`{other}` is neither Read nor Write")),
    };
    let (offset, len) = (number("offset", offset)?, number("size", len)?);
    // Some requests are not aligned to blocks; they are extended to the blocks that they touch.
    let start = offset / SECTOR * SECTOR;
    let end = offset
        .checked_add(len)
        .and_then(|end| end.checked_next_multiple_of(SECTOR));
    let end = end.ok_or_else(|| format!("{len} bytes at {offset} have no end"))?;
    Ok(Some(arrival(at, kind, start, end - start)))
}

/// MQSim: time in ns, device, first sector, sectors, 0 for a write and 1 for a read.
pub(super) fn mqsim(line: &str) -> Parsed {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[at, _, offset, len, kind] = fields.as_slice() else {
        return Err(format!("{} fields, not five", fields.len()));
    };
    let kind = match kind {
        "0" => Kind::Write,
        "1" => Kind::Read,
        other => {
            return Err(format!(
                "the type `{other}` is neither 0 (write) nor 1 (read)"
            ));
        }
    };
    let at = number("time", at)?;
    let (offset, len) = (
        sectors("first sector", offset)?,
        sectors("number of sectors", len)?,
    );
    Ok(Some(arrival(at, kind, offset, len)))
}

/// The action of a line of blkparse.
pub(super) fn action(line: &str) -> Option<&str> {
    line.split_whitespace().nth(5)
}

/// Requests issued to the drive, in blkparse's default output.
pub(super) fn blkparse_issued(line: &str) -> Parsed {
    blkparse(line, "D")
}

/// Requests queued, if the drive's requests were not recorded.
pub(super) fn blkparse_queued(line: &str) -> Parsed {
    blkparse(line, "Q")
}

/// `8,0 3 1 0.000000000 697 Q W 223490 + 8 [kjournald]`: device, processor, number, time, process,
/// action, kind, first sector, sectors. The summary after the events has no device.
fn blkparse(line: &str, wanted: &str) -> Parsed {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_event = words.first().is_some_and(|word| {
        word.split_once(',')
            .is_some_and(|(a, b)| number("", a).is_ok() && number("", b).is_ok())
    });
    if !is_event || words.get(5) != Some(&wanted) {
        return Ok(None);
    }
    let &[_, cpu, _, time, _, _, what, ref place @ ..] = words.as_slice() else {
        return Err("the line ends early".into());
    };
    let at = seconds(time)?;
    let (mut kind, fua) = match what {
        what if what.contains('D') => (Kind::Trim, false),
        what if what.contains('W') => (Kind::Write, what.trim_start_matches('F').contains('F')),
        what if what.contains('R') => (Kind::Read, false),
        what if what.starts_with('F') => (Kind::Flush, false),
        // Notes and similar lines move no data.
        _ => return Ok(None),
    };
    let (offset, len) = match place {
        [first, "+", count, ..] => (
            sectors("first sector", first)?,
            sectors("number of sectors", count)?,
        ),
        _ => (0, 0),
    };
    if len == 0 {
        if !what.starts_with('F') {
            return Ok(None);
        }
        kind = Kind::Flush;
    }
    let queue = number("processor", cpu)? % u64::from(super::QUEUES_MAX);
    Ok(Some(Arrival {
        queue: queue as u16,
        op: Op {
            kind,
            offset,
            len,
            fua: fua && kind == Kind::Write,
        },
        ..arrival(at, kind, offset, len)
    }))
}

/// Seconds with nine decimals, as nanoseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("the time `{text}` is none, as in 0.000001234");
    let (whole, part) = text.split_once('.').ok_or_else(wrong)?;
    if part.is_empty() || part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    let ns = whole.checked_mul(1_000_000_000);
    ns.and_then(|ns| ns.checked_add(part)).ok_or_else(wrong)
}
