//! Records by columns, because a field of one record is usually close to that of the previous one.

use crate::Record;

/// Fields stored as differences, in the order of the file. The times of stages follow the first.
const DIFFERENCES: usize = 14;
/// Number of them in a version of the format.
const OF_VERSION_1: usize = 12;

/// The fields as numbers, in the order of the file.
fn fields(record: &Record) -> [u64; DIFFERENCES] {
    let Record {
        at_ns,
        stages: _,
        cqid,
        sqid,
        cid,
        opcode,
        fua,
        csi,
        lba_shift,
        status,
        nsid,
        slba,
        blocks,
        detail,
        key,
        bytes,
        depth,
    } = *record;
    let key = u128::from_le_bytes(key);
    let kind = u32::from_le_bytes([opcode, fua.into(), csi, lba_shift]);
    [
        at_ns,
        cqid.into(),
        sqid.into(),
        cid.into(),
        kind.into(),
        status.into(),
        nsid.into(),
        slba,
        blocks.into(),
        detail.into(),
        bytes.into(),
        depth.into(),
        key as u64,
        (key >> 64) as u64,
    ]
}

/// The record for these numbers; `None` if one is not a valid value of its field.
fn record(numbers: &[u64; DIFFERENCES], stages: [u32; 6]) -> Option<Record> {
    let [
        at_ns,
        cqid,
        sqid,
        cid,
        kind,
        status,
        nsid,
        slba,
        blocks,
        detail,
        bytes,
        depth,
        key_low,
        key_high,
    ] = *numbers;
    let [opcode, fua, csi, lba_shift] = u32::try_from(kind).ok()?.to_le_bytes();
    Some(Record {
        at_ns,
        stages,
        cqid: cqid.try_into().ok()?,
        sqid: sqid.try_into().ok()?,
        cid: cid.try_into().ok()?,
        opcode,
        fua: match fua {
            0 => false,
            1 => true,
            _ => return None,
        },
        csi,
        lba_shift,
        status: status.try_into().ok()?,
        nsid: nsid.try_into().ok()?,
        slba,
        blocks: blocks.try_into().ok()?,
        detail: detail.try_into().ok()?,
        key: (u128::from(key_low) | u128::from(key_high) << 64).to_le_bytes(),
        bytes: bytes.try_into().ok()?,
        depth: depth.try_into().ok()?,
    })
}

/// Appends the columns of records to `out`.
pub(crate) fn pack(records: &[Record], out: &mut Vec<u8>) {
    let rows: Vec<_> = records.iter().map(fields).collect();
    for column in 0..DIFFERENCES {
        let mut before = 0;
        for row in &rows {
            put(zigzag(row[column].wrapping_sub(before)), out);
            before = row[column];
        }
        if column > 0 {
            continue;
        }
        for stage in 0..6 {
            records
                .iter()
                .for_each(|record| put(record.stages[stage].into(), out));
        }
    }
}

/// Decodes the columns of `count` records in a version of the format, and appends the records to
/// `out`; `None` if the bytes are not exactly that.
pub(crate) fn unpack(
    mut bytes: &[u8],
    version: u32,
    count: usize,
    out: &mut Vec<Record>,
) -> Option<()> {
    let columns = match version {
        1 => OF_VERSION_1,
        _ => DIFFERENCES,
    };
    let mut rows = vec![[0; DIFFERENCES]; count];
    let mut stages = vec![[0; 6]; count];
    for column in 0..columns {
        let mut before = 0u64;
        for row in &mut rows {
            before = before.wrapping_add(unzigzag(take(&mut bytes)?));
            row[column] = before;
        }
        if column > 0 {
            continue;
        }
        for stage in 0..6 {
            for its in &mut stages {
                its[stage] = take(&mut bytes)?.try_into().ok()?;
            }
        }
    }
    if !bytes.is_empty() {
        return None;
    }
    out.reserve(count);
    for (row, stages) in rows.iter().zip(stages) {
        out.push(record(row, stages)?);
    }
    Some(())
}

fn zigzag(difference: u64) -> u64 {
    let sign = (difference.cast_signed() >> 63).cast_unsigned();
    (difference << 1) ^ sign
}

fn unzigzag(coded: u64) -> u64 {
    (coded >> 1) ^ (coded & 1).wrapping_neg()
}

/// LEB128: seven bits per byte, the lowest first; the high bit marks that more follow.
fn put(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}
