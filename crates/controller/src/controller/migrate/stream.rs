//! The bytes of a controller that moves to another server: a head, and sections in a fixed order.
//!
//! All numbers are little-endian. The head has 32 bytes: magic (8), version (u32), 0 (u32), length
//! of everything (u64), CRC-32C of what follows the head (u32), 0 (u32). A section is its kind
//! (u32), 0 (u32), the length of its content (u64), and the content. Any change of a bit, a missing
//! end and bytes after the end are found. Any bytes may be given to the reader.
//!
//! It does NOT know what a section means.

use super::MigrateError;

/// First bytes of every stream.
const MAGIC: [u8; 8] = *b"nvmiraMG";
/// Version of the stream; that of the state inside it is in the state's own header. Version 1 had
/// one section less.
pub(super) const VERSION: u32 = 2;
/// The oldest version that is taken.
pub(super) const OLDEST: u32 = 1;
const HEAD_LEN: usize = 32;
const SECTION_HEAD_LEN: usize = 16;

/// Longest stream, in bytes: 64 queues of 4096 entries, all of whose slots were in use, have 36
/// MiB.
pub const MAX_STREAM_LEN: usize = 64 << 20;

/// The contents of the sections, of which section `n` has the kind `n + 1`.
pub(super) type Sections<T, const N: usize> = [T; N];

/// A stream with these sections.
pub(super) fn write<const N: usize>(sections: &Sections<Vec<u8>, N>) -> Vec<u8> {
    let content: usize = sections.iter().map(|s| SECTION_HEAD_LEN + s.len()).sum();
    let mut stream = Vec::with_capacity(HEAD_LEN + content);
    stream.extend(MAGIC);
    stream.extend(VERSION.to_le_bytes());
    stream.extend([0; 4]);
    stream.extend(((HEAD_LEN + content) as u64).to_le_bytes());
    stream.extend([0; 8]);
    for (kind, section) in (1_u32..).zip(sections) {
        stream.extend(kind.to_le_bytes());
        stream.extend([0; 4]);
        stream.extend((section.len() as u64).to_le_bytes());
        stream.extend(section);
    }
    let crc = crc32c::crc32c(&stream[HEAD_LEN..]);
    stream[24..28].copy_from_slice(&crc.to_le_bytes());
    stream
}

/// The sections of a stream; those that its version does not have, at the end, are empty.
///
/// # Errors
/// [`MigrateError`]: the first thing that is wrong with it.
pub(super) fn read<const N: usize>(stream: &[u8]) -> Result<Sections<&[u8], N>, MigrateError> {
    if stream.len() > MAX_STREAM_LEN {
        return Err(MigrateError::TooLong);
    }
    let Some((head, mut rest)) = stream.split_at_checked(HEAD_LEN) else {
        return Err(MigrateError::Truncated);
    };
    if head[..8] != MAGIC {
        return Err(MigrateError::Magic);
    }
    let found = word(head, 8);
    if !(OLDEST..=VERSION).contains(&found) {
        return Err(MigrateError::Version { found });
    }
    let said = u64::from(word(head, 16)) | u64::from(word(head, 20)) << 32;
    if said > stream.len() as u64 {
        return Err(MigrateError::Truncated);
    }
    let zeros = word(head, 12) | word(head, 28);
    if said != stream.len() as u64 || zeros != 0 {
        return Err(MigrateError::Damaged("its head is wrong"));
    }
    if crc32c::crc32c(rest) != word(head, 24) {
        return Err(MigrateError::Damaged("its checksum is wrong"));
    }
    let mut sections = [&[][..]; N];
    let count = N - (VERSION - found) as usize;
    for (kind, section) in (1_u32..).zip(&mut sections[..count]) {
        let head = rest.split_at_checked(SECTION_HEAD_LEN);
        let (head, behind) = head.ok_or(MigrateError::Damaged("a section is missing"))?;
        if word(head, 0) != kind || word(head, 4) != 0 {
            return Err(MigrateError::Damaged("a section is not the one expected"));
        }
        let len = u64::from(word(head, 8)) | u64::from(word(head, 12)) << 32;
        let content = usize::try_from(len).ok();
        let content = content.and_then(|len| behind.split_at_checked(len));
        let content = content.ok_or(MigrateError::Damaged("a section ends outside it"))?;
        (*section, rest) = content;
    }
    if !rest.is_empty() {
        return Err(MigrateError::Damaged("bytes follow its last section"));
    }
    Ok(sections)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let four = bytes[at..at + 4].try_into();
    u32::from_le_bytes(four.expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        write(&[vec![1, 2, 3], Vec::new(), vec![9; 40]])
    }

    #[test]
    fn sections_are_read_as_they_were_written() {
        let stream = stream();
        assert_eq!(stream.len(), 32 + 3 * 16 + 43);
        let sections: [&[u8]; 3] = read(&stream).unwrap();
        assert_eq!(sections, [&[1, 2, 3][..], &[], &[9; 40]]);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let stream = stream();
        for bit in 0..stream.len() * 8 {
            let mut damaged = stream.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read::<3>(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn every_missing_end_is_found_and_so_is_more() {
        let stream = stream();
        for len in 0..stream.len() {
            let read = read::<3>(&stream[..len]).unwrap_err();
            assert!(matches!(read, MigrateError::Truncated), "{len}: {read}");
        }
        let more = [stream.as_slice(), &[0]].concat();
        assert!(matches!(read::<3>(&more), Err(MigrateError::Damaged(_))));
        assert!(read::<2>(&stream).is_err() && read::<4>(&stream).is_err());
        let long = vec![0; MAX_STREAM_LEN + 1];
        assert!(matches!(read::<3>(&long), Err(MigrateError::TooLong)));
    }

    #[test]
    fn a_stream_of_the_version_before_has_no_last_section() {
        let mut before = write(&[vec![1, 2, 3], Vec::new()]);
        before[8] = 1;
        let sections: [&[u8]; 3] = read(&before).unwrap();
        assert_eq!(sections, [&[1, 2, 3][..], &[], &[]]);
        before[8] = 2;
        assert!(read::<3>(&before).is_err(), "this version has it");
    }

    #[test]
    fn another_version_is_named() {
        let mut stream = stream();
        stream[8] = 3;
        let error = read::<3>(&stream).unwrap_err();
        assert!(
            matches!(error, MigrateError::Version { found: 3 }),
            "{error}"
        );
    }
}
