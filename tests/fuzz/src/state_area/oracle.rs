//! A second reader of the log, written from its format: plain, slow, and without the program's
//! code.

use std::collections::BTreeMap;

use super::image::{BLOCK, FRAME_HEAD, Image, crc};
use super::{CAPACITY, EXTENSION, Records, ZONES};

struct Superblock {
    ring: u64,
    ring_len: u64,
    frame_len: u64,
    incarnation: u64,
    log: u64,
    sequence: u64,
    start: u64,
    known: u64,
}

/// A log that can be taken up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) records: Records,
    /// It is the last time, as incarnations have 32 bits.
    pub(crate) is_last: bool,
}

/// What a medium finds that takes this up; `None` where it is refused.
pub(crate) fn read(image: &Image, new: &Image, keys: bool) -> Option<Found> {
    if image.is_blank() {
        // A file that was created, and no more: a log is begun.
        return Some(Found {
            records: Records::new(),
            is_last: false,
        });
    }
    let superblock = superblock(image, new)?;
    let mut frames = Vec::new();
    let (mut position, mut earliest) = (superblock.start, 0_u64);
    while position + superblock.frame_len <= superblock.start + superblock.ring_len {
        if position >= superblock.known {
            earliest = earliest.max(superblock.incarnation);
        }
        let Some((incarnation, records)) = frame(image, &superblock, position, earliest) else {
            break;
        };
        earliest = incarnation;
        let bytes = (FRAME_HEAD + records.len()) as u64;
        frames.push(records);
        position += bytes.next_multiple_of(BLOCK);
        if superblock.ring_len - position % superblock.ring_len < superblock.frame_len {
            position = position.next_multiple_of(superblock.ring_len);
        }
    }
    let incarnation = earliest.max(superblock.incarnation);
    if position < superblock.known || incarnation >= u32::MAX.into() {
        return None;
    }
    let records = split(&frames)?;
    let records = if keys {
        pairs(&records)?
    } else {
        zones(&records)?
    };
    Some(Found {
        records,
        is_last: incarnation + 1 == u64::from(u32::MAX),
    })
}

/// The newer of the two that are whole; nothing where it is not of this medium.
fn superblock(image: &Image, new: &Image) -> Option<Superblock> {
    let like = new.get(new.len - 2 * BLOCK, BLOCK as usize);
    let whole = |at: u64| {
        let mut bytes = image.get(at, BLOCK as usize);
        let said = Image::word(&bytes, 12, 4);
        bytes[12..16].fill(0);
        let word = |at, len| Image::word(&bytes, at, len);
        let superblock = Superblock {
            frame_len: word(20, 4),
            incarnation: word(24, 4),
            log: word(32, 8),
            sequence: word(40, 8),
            ring: word(48, 8),
            ring_len: word(56, 8),
            start: word(64, 8),
            known: word(72, 8),
        };
        let is_ours = bytes[..8] == *b"nvmirage" && u64::from(crc(&[&bytes])) == said;
        let is_kind = word(8, 4) == 1 && (1..=2).contains(&word(16, 4));
        (is_ours && is_kind && is_possible(&superblock, image.len)).then_some((superblock, bytes))
    };
    let both = [image.len - 2 * BLOCK, image.len - BLOCK].map(whole);
    let newest = both
        .into_iter()
        .flatten()
        .max_by_key(|(one, _)| one.sequence);
    let (superblock, bytes) = newest?;
    // Kind, frames, ring, and the words that there are of its shape: of keys the size and the
    // dialect. Their number is free where the caller has asked for none, as long as their log is as
    // long as this one.
    let is_zoned = bytes[16] == 1;
    let words = if is_zoned {
        [16..24, 48..64, 80..112, 112..112]
    } else {
        [16..24, 48..64, 80..88, 96..104]
    };
    let is_its = words
        .into_iter()
        .all(|words| bytes[words.clone()] == like[words])
        && (is_zoned
            || has_room_for(
                &superblock,
                Image::word(&bytes, 80, 8),
                Image::word(&bytes, 88, 8),
            ));
    is_its.then_some(superblock)
}

/// Five times the pairs with 32 bytes for each key, and sixteen frames, in whole frames.
fn has_room_for(superblock: &Superblock, size: u64, keys: u64) -> bool {
    let frame = u128::from(superblock.frame_len);
    let state = u128::from(size) + 32 * u128::from(keys);
    let all = (5 * state + 16 * frame).next_multiple_of(frame);
    keys <= u32::MAX.into() && all == superblock.ring_len.into()
}

fn is_possible(superblock: &Superblock, file_len: u64) -> bool {
    let Superblock {
        ring,
        ring_len,
        frame_len,
        start,
        known,
        sequence,
        ..
    } = *superblock;
    let blocks = [ring, ring_len, frame_len, start]
        .iter()
        .all(|at| at % BLOCK == 0);
    let end = ring
        .checked_add(ring_len)
        .and_then(|end| end.checked_add(2 * BLOCK));
    let last = start
        .checked_add(ring_len)
        .filter(|last| *last < u64::MAX / 2);
    blocks
        && sequence < u64::MAX / 2
        && (BLOCK..=16 << 20).contains(&frame_len)
        && ring_len >= 8 * frame_len
        && end == Some(file_len)
        && last.is_some_and(|last| start <= known && known <= last)
}

/// The frame at a position: the incarnation that wrote it, and its records.
fn frame(image: &Image, of: &Superblock, position: u64, earliest: u64) -> Option<(u64, Vec<u8>)> {
    let at = of.ring + position % of.ring_len;
    let mut head = image.get(at, FRAME_HEAD);
    let word = |at, len| Image::word(&head, at, len);
    let (magic, said, log) = (word(0, 4), word(4, 4), word(8, 8));
    let (incarnation, len) = (word(24, 4), word(28, 4) as usize);
    let belongs = magic == 0x6d72_666e && log == of.log && word(16, 8) == position;
    if !belongs || incarnation < earliest || len + FRAME_HEAD > of.frame_len as usize {
        return None;
    }
    let records = image.get(at, FRAME_HEAD + len).split_off(FRAME_HEAD);
    head[4..8].fill(0);
    (u64::from(crc(&[&records, &head])) == said).then_some((incarnation, records))
}

/// Kind and bytes of each record.
fn split(frames: &[Vec<u8>]) -> Option<Records> {
    let mut found = Records::new();
    for frame in frames {
        let mut rest = &frame[..];
        while !rest.is_empty() {
            let (head, behind) = rest.split_at_checked(4)?;
            let len = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
            let (record, behind) = behind.split_at_checked(len)?;
            found.push((head[3], record.to_vec()));
            rest = behind;
        }
    }
    Some(found)
}

const EMPTY: u8 = 1;
const CLOSED: u8 = 4;

/// The last record of each zone.
fn zones(records: &Records) -> Option<Records> {
    let mut zones = BTreeMap::<u64, Vec<u8>>::new();
    let mut extensions = BTreeMap::<u64, Vec<u8>>::new();
    for (kind, record) in records {
        let zone = (record.len() >= 4).then(|| Image::word(record, 0, 4))?;
        if zone >= ZONES {
            return None;
        }
        match (kind, record.len()) {
            (1, 24) => {
                let (state, flags) = (record[4], record[5]);
                let [written, reached] = [8, 16].map(|at| Image::word(record, at, 8));
                let nothing = flags == 0 && reached == 0;
                let is_one = match state {
                    EMPTY => nothing,
                    CLOSED => flags < 4,
                    0xd..=0xf => flags < 2,
                    _ => false,
                };
                let whole = written % 512 == 0 && reached % 512 == 0;
                if !is_one || !whole || written > reached || reached > CAPACITY {
                    return None;
                }
                let mut said = record.clone();
                said[6..8].fill(0);
                zones.insert(zone, said);
            }
            (2, len) if len == 4 + EXTENSION => {
                extensions.insert(zone, record.clone());
            }
            _ => return None,
        }
    }
    let mut told = Records::new();
    for (zone, said) in zones {
        let extended = said[5] & 1 != 0;
        // What is active and has nothing is empty after a restart.
        let nothing = said[4] == CLOSED && !extended && Image::word(&said, 16, 8) == 0;
        if said[4] == EMPTY || nothing {
            continue;
        }
        if extended {
            let none = || [&(zone as u32).to_le_bytes()[..], &[0; EXTENSION]].concat();
            told.push((2, extensions.remove(&zone).unwrap_or_else(none)));
        }
        told.push((1, said));
    }
    Some(told)
}

/// The pairs that are left.
fn pairs(records: &Records) -> Option<Records> {
    let mut pairs = BTreeMap::<Vec<u8>, Vec<u8>>::new();
    for (kind, record) in records {
        if *kind == 4 {
            pairs.clear();
            continue;
        }
        let (len, rest) = record.split_first()?;
        let (key, value) = rest.split_at_checked(usize::from(*len))?;
        if key.is_empty() || value.len() > 2 << 20 {
            return None;
        }
        match kind {
            1 => drop(pairs.insert(key.to_vec(), value.to_vec())),
            2 => {
                if let Some(before) = pairs.get_mut(key) {
                    before.extend(value);
                }
            }
            3 => drop(pairs.remove(key)),
            _ => return None,
        }
    }
    let told = |(key, value): (Vec<u8>, Vec<u8>)| {
        let record = [&[key.len() as u8], &key[..], &value[..]].concat();
        (1, record)
    };
    Some(pairs.into_iter().map(told).collect())
}
