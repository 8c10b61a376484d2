//! Reading of a log from its start to its end.

use std::io;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::append::{RECORD_HEAD, of_record_head};
use super::layout::{BLOCK, FRAME_HEAD, FrameHead, frame_bytes};
use super::{StateError, Storage, Superblock};

/// Passes every record to `each`; returns the end of the log, and the incarnation of its last
/// frame.
///
/// # Errors
/// Those of [`super::Journal::recover`].
pub(super) fn replay(
    storage: &impl Storage,
    superblock: &Superblock,
    mut each: impl FnMut(u8, &[u8]) -> Result<(), StateError>,
) -> Result<(u64, u32), StateError> {
    let layout = &superblock.layout;
    let most = u64::from(layout.frame_len);
    let mut position = superblock.start;
    let mut earliest = 0;
    let mut bytes = Vec::new();
    // A whole ring after the start is the start itself.
    while position + most <= superblock.start + layout.ring_len {
        if position >= superblock.known {
            // Behind the superblock's end: an older frame that was torn may meanwhile have become
            // whole, from sectors of a newer one that equal its lost ones.
            earliest = earliest.max(superblock.incarnation);
        }
        let head = read_frame(storage, superblock, position, earliest, &mut bytes)?;
        let Some(head) = head else {
            break;
        };
        earliest = head.incarnation();
        for_each_record(&bytes[FRAME_HEAD..], &mut each)?;
        position = layout.next(position + frame_bytes(bytes.len() - FRAME_HEAD));
    }
    if position < superblock.known {
        return Err(StateError::Damaged("its log ends too early"));
    }
    Ok((position, earliest))
}

/// Reads the frame at this position of the log, head and records, into `bytes`. `None` if there is
/// no valid frame.
fn read_frame(
    storage: &impl Storage,
    superblock: &Superblock,
    position: u64,
    earliest: u32,
    bytes: &mut Vec<u8>,
) -> io::Result<Option<FrameHead>> {
    let layout = &superblock.layout;
    let at = layout.place(position);
    bytes.resize(BLOCK as usize, 0);
    storage.read_at(at, bytes)?;
    let mut head = FrameHead::new_zeroed();
    head.as_mut_bytes().copy_from_slice(&bytes[..FRAME_HEAD]);
    let place = (superblock.log, position);
    let Some(len) = head.belongs(place, earliest) else {
        return Ok(None);
    };
    if len > layout.frame_len as usize - FRAME_HEAD {
        return Ok(None);
    }
    let (first, all) = (bytes.len(), FRAME_HEAD + len);
    bytes.resize(all, 0);
    if all > first {
        storage.read_at(at + BLOCK, &mut bytes[first..])?;
    }
    Ok(head.is_of(&bytes[FRAME_HEAD..]).then_some(head))
}

/// This program never writes a frame with a valid checksum whose contents are not a sequence of
/// records.
fn for_each_record(
    mut records: &[u8],
    each: &mut impl FnMut(u8, &[u8]) -> Result<(), StateError>,
) -> Result<(), StateError> {
    const STRANGE: StateError = StateError::Damaged("a frame of its log makes no sense");
    while !records.is_empty() {
        let (head, rest) = records.split_at_checked(RECORD_HEAD).ok_or(STRANGE)?;
        let head = <[u8; RECORD_HEAD]>::read_from_bytes(head).map_err(|_| STRANGE)?;
        let (kind, len) = of_record_head(head);
        let (record, rest) = rest.split_at_checked(len).ok_or(STRANGE)?;
        each(kind, record)?;
        records = rest;
    }
    Ok(())
}
