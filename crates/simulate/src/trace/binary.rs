//! blktrace's binary files, as text in blkparse's form.
//!
//! A file is a series of records of 48 bytes in the byte order of the machine that wrote them
//! (`struct blk_io_trace` in Linux, include/uapi/linux/blktrace_api.h), each followed by as many
//! bytes as it says. Only requests queued and issued are converted.

use std::fmt::Write as _;

/// The upper three bytes of a record's first word; the last one is the version.
const MAGIC: u32 = 0x6561_7400;
const VERSION: u32 = 7;
const RECORD: usize = 48;

/// Actions, in the lower half of a record's action.
const QUEUE: u32 = 1;
const ISSUE: u32 = 7;
/// Categories, in the upper half.
const WRITE: u32 = 1 << 1;
const FLUSH: u32 = 1 << 2;
const NOTIFY: u32 = 1 << 10;
const DISCARD: u32 = 1 << 13;
const FUA: u32 = 1 << 15;

/// Whether bytes begin like a file of blktrace.
#[must_use]
pub fn is_binary(bytes: &[u8]) -> bool {
    order(bytes).is_some()
}

/// How numbers are read.
type Order = (fn([u8; 4]) -> u32, fn([u8; 8]) -> u64);

fn order(bytes: &[u8]) -> Option<Order> {
    let first = *bytes.first_chunk::<4>()?;
    let is = |number: u32| number & !0xff == MAGIC;
    if is(u32::from_le_bytes(first)) {
        return Some((u32::from_le_bytes, u64::from_le_bytes));
    }
    is(u32::from_be_bytes(first)).then_some((u32::from_be_bytes, u64::from_be_bytes))
}

/// The text.
///
/// # Errors
/// The bytes are damaged, or of another version.
pub fn text_of(bytes: &[u8]) -> Result<String, String> {
    let (word, long) = order(bytes).ok_or("it is no file of blktrace")?;
    let mut text = String::new();
    let mut rest = bytes;
    while let Some(record) = rest.first_chunk::<RECORD>() {
        let at = bytes.len() - rest.len();
        let word_at =
            |at: usize| word([record[at], record[at + 1], record[at + 2], record[at + 3]]);
        let long_at = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&record[at..at + 8]);
            long(eight)
        };
        let magic = word_at(0);
        if magic != MAGIC | VERSION {
            return Err(format!(
                "its record at byte {at} begins with {magic:#x}, and a record of version {VERSION} with {:#x}",
                MAGIC | VERSION
            ));
        }
        // Two numbers of 16 bits: an error, and the length of what follows.
        let pair = word_at(44);
        let is_little = word([1, 0, 0, 0]) == 1;
        let behind = if is_little { pair >> 16 } else { pair & 0xffff };
        let (action, device) = (word_at(28), word_at(36));
        let what = action >> 16;
        let letter = match action & 0xffff {
            QUEUE => 'Q',
            ISSUE => 'D',
            _ => ' ',
        };
        if letter != ' ' && what & NOTIFY == 0 {
            let ns = long_at(8);
            let kind = match () {
                () if what & DISCARD != 0 => "D",
                () if what & WRITE != 0 && what & FUA != 0 => "WF",
                () if what & WRITE != 0 => "W",
                () if what & FLUSH != 0 => "F",
                () => "R",
            };
            let _ = writeln!(
                text,
                "{},{} {} {} {}.{:09} {} {letter} {kind} {} + {} [blktrace]",
                device >> 20,
                device & 0xf_ffff,
                word_at(40),
                word_at(4),
                ns / 1_000_000_000,
                ns % 1_000_000_000,
                word_at(32),
                long_at(16),
                word_at(24) / 512,
            );
        }
        rest = rest.get(RECORD + behind as usize..).unwrap_or_default();
    }
    if rest.is_empty() {
        Ok(text)
    } else {
        Err(format!(
            "its last record has {} of {RECORD} bytes",
            rest.len()
        ))
    }
}
