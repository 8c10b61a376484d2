//! Traces in other programs' formats.
//!
//! Each line has a time, a place and a length, and says which of several devices it is for. Times
//! have any start. Requests that are not aligned to blocks are extended to the blocks that they
//! touch.

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

/// A command for the blocks that a range of bytes touches; none for an empty range.
fn touched<'a>(at: u64, kind: Kind, (offset, len): (u64, u64), device: &'a str) -> Parsed<'a> {
    if len == 0 {
        return Ok(None);
    }
    let start = offset / SECTOR * SECTOR;
    let end = offset
        .checked_add(len)
        .and_then(|end| end.checked_next_multiple_of(SECTOR));
    let end = end.ok_or_else(|| format!("{len} bytes at {offset} have no end"))?;
    Ok(Some((arrival(at, kind, start, end - start), device.trim())))
}

/// A direction by its first letter, in any case.
fn letter(word: &str) -> Result<Kind, String> {
    match word.trim() {
        "R" | "r" => Ok(Kind::Read),
        "W" | "w" => Ok(Kind::Write),
        other => Err(format!("`{other}` is neither R nor W")),
    }
}

fn fields<const N: usize>(line: &str) -> Result<[&str; N], String> {
    let fields: Vec<&str> = line.split(',').collect();
    let count = fields.len();
    fields
        .try_into()
        .map_err(|_| format!("{count} fields with commas, not {N}"))
}

/// MSR Cambridge, as in SNIA's repository: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,
/// ResponseTime`, the time in units of 100 ns, offset and size in bytes. A disk is its host's and
/// number (Narayanan and others, Write Off-Loading, FAST '08; the README of the traces).
pub(super) fn msr(line: &str) -> Parsed<'_> {
    let [at, host, disk, kind, offset, len, _] = fields::<7>(line)?;
    // Host and disk are adjacent.
    let from = at.len() + 1;
    let device = &line[from..from + host.len() + 1 + disk.len()];
    let at = number("time", at)?;
    let at = at.checked_mul(100).ok_or("the time is too late")?;
    let kind = match kind.trim().to_ascii_lowercase().as_str() {
        "read" => Kind::Read,
        "write" => Kind::Write,
        other => return Err(format!("`{other}` is neither Read nor Write")),
    };
    let extent = (number("offset", offset)?, number("size", len)?);
    touched(at, kind, extent, device)
}

/// Alibaba's block traces: `device_id,opcode,offset,length,timestamp`, the time in microseconds,
/// offset and length in bytes (github.com/alibaba/block-traces).
pub(super) fn alibaba(line: &str) -> Parsed<'_> {
    let [device, kind, offset, len, at] = fields::<5>(line)?;
    let at = number("time", at)?;
    let at = at.checked_mul(1000).ok_or("the time is too late")?;
    let extent = (number("offset", offset)?, number("length", len)?);
    touched(at, letter(kind)?, extent, device)
}

/// Tencent's traces of its block storage: `Timestamp,Offset,Size,IOType,VolumeID`, the time in
/// seconds, offset and size in sectors, 0 for a read and 1 for a write (SNIA IOTTA, trace 27917).
pub(super) fn tencent(line: &str) -> Parsed<'_> {
    let [at, offset, len, kind, device] = fields::<5>(line)?;
    let at = number("time", at)?;
    let at = at
        .checked_mul(1_000_000_000)
        .ok_or("the time is too late")?;
    let kind = match kind.trim() {
        "0" => Kind::Read,
        "1" => Kind::Write,
        other => {
            return Err(format!(
                "the type `{other}` is neither 0 (read) nor 1 (write)"
            ));
        }
    };
    let extent = (sectors("offset", offset)?, sectors("size", len)?);
    touched(at, kind, extent, device)
}

/// SYSTOR '17: `Timestamp,Response,IOType,LUN,Offset,Size`, the time in seconds with decimals,
/// offset and size in bytes (Lee and others, Understanding storage traffic characteristics on
/// enterprise virtual desktop infrastructure; SNIA IOTTA, trace 4964).
pub(super) fn systor(line: &str) -> Parsed<'_> {
    let [at, _, kind, device, offset, len] = fields::<6>(line)?;
    // Some lines have no operation.
    if kind.trim().is_empty() {
        return Ok(None);
    }
    let extent = (number("offset", offset)?, number("size", len)?);
    touched(seconds(at.trim())?, letter(kind)?, extent, device)
}

/// SPC, as in the UMass repository: `ASU,LBA,Size,Opcode,Timestamp` and optional fields, the place
/// in blocks of 512 bytes, the size in bytes, the time in seconds with decimals (Storage
/// Performance Council, SPC Trace File Format Specification 1.0.1).
pub(super) fn spc(line: &str) -> Parsed<'_> {
    let mut all = line.split(',');
    let mut next = || {
        all.next()
            .ok_or("a line has ASU, LBA, size, opcode and time")
    };
    let (device, place, len, kind, at) = (next()?, next()?, next()?, next()?, next()?);
    let extent = (sectors("LBA", place)?, number("size", len)?);
    touched(seconds(at.trim())?, letter(kind)?, extent, device)
}

/// FIU, of SRCMap and I/O deduplication: time in ns, process, its name, first sector, sectors, R or
/// W, major and minor number of the device, and a digest (SNIA IOTTA, traces 390 and 391).
pub(super) fn fiu(line: &str) -> Parsed<'_> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[at, _, _, offset, len, kind, major, minor, ..] = words.as_slice() else {
        return Err(format!("{} fields, not nine", words.len()));
    };
    let at = number("time", at)?;
    let extent = (
        sectors("first sector", offset)?,
        sectors("number of sectors", len)?,
    );
    let offset_in_line = |word: &str| word.as_ptr().addr() - line.as_ptr().addr();
    let device = &line[offset_in_line(major)..offset_in_line(minor) + minor.len()];
    touched(at, letter(kind)?, extent, device)
}

/// fio's iolog, versions 2 and 3: `FILE ACTION [OFFSET LENGTH]`, in version 3 behind a time in
/// microseconds; in version 2 `wait` lines have the time since the one before (fio's HOWTO, "Trace
/// file format"). `waited` is the sum of these.
pub(super) fn iolog<'a>(line: &'a str, version: u8, waited: &mut u64) -> Parsed<'a> {
    let mut words = line.split_whitespace();
    let at = match version {
        3 => number("time", words.next().unwrap_or_default())?,
        _ => *waited,
    };
    let at = at.checked_mul(1000).ok_or("the time is too late")?;
    let (Some(file), Some(action)) = (words.next(), words.next()) else {
        return Err("a line has a file and an action".to_owned());
    };
    let mut operand = |what: &str| number(what, words.next().unwrap_or_default());
    let kind = match action {
        "add" | "open" | "close" => return Ok(None),
        "sync" | "datasync" => return Ok(Some((arrival(at, Kind::Flush, 0, 0), file))),
        "wait" if version == 2 => {
            *waited = waited.saturating_add(operand("time")?);
            return Ok(None);
        }
        "read" => Kind::Read,
        "write" => Kind::Write,
        "trim" => Kind::Trim,
        other => return Err(format!("`{other}` is no action of fio's iolog")),
    };
    let extent = (operand("offset")?, operand("length")?);
    touched(at, kind, extent, file)
}

/// MQSim: time in ns, device, first sector, sectors, 0 for a write and 1 for a read.
pub(super) fn mqsim(line: &str) -> Parsed<'_> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let &[at, device, offset, len, kind] = fields.as_slice() else {
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
    Ok(Some((arrival(at, kind, offset, len), device)))
}

/// The action of a line of blkparse.
pub(super) fn action(line: &str) -> Option<&str> {
    line.split_whitespace().nth(5)
}

/// Requests issued to the drive, in blkparse's default output.
pub(super) fn blkparse_issued(line: &str) -> Parsed<'_> {
    blkparse(line, "D")
}

/// Requests queued, if the drive's requests were not recorded.
pub(super) fn blkparse_queued(line: &str) -> Parsed<'_> {
    blkparse(line, "Q")
}

/// `8,0 3 1 0.000000000 697 Q W 223490 + 8 [kjournald]`: device, processor, number, time, process,
/// action, kind, first sector, sectors. The summary after the events has no device.
fn blkparse<'a>(line: &'a str, wanted: &str) -> Parsed<'a> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_event = words.first().is_some_and(|word| {
        word.split_once(',')
            .is_some_and(|(a, b)| number("", a).is_ok() && number("", b).is_ok())
    });
    if !is_event || words.get(5) != Some(&wanted) {
        return Ok(None);
    }
    let &[device, cpu, _, time, _, _, what, ref place @ ..] = words.as_slice() else {
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
    let arrival = Arrival {
        queue: queue as u16,
        op: Op {
            kind,
            offset,
            len,
            fua: fua && kind == Kind::Write,
        },
        ..arrival(at, kind, offset, len)
    };
    Ok(Some((arrival, device)))
}

/// Seconds with up to nine decimals, as nanoseconds.
fn seconds(text: &str) -> Result<u64, String> {
    let wrong = || format!("the time `{text}` is none, as in 0.000001234");
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    if part.is_empty() || part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    let ns = whole.checked_mul(1_000_000_000);
    ns.and_then(|ns| ns.checked_add(part)).ok_or_else(wrong)
}
