//! Contents of a raw image or a block device, as far as its first bytes show: a partition table for
//! blocks of some size, or a format that a raw reader does not understand.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// Bytes that are read: up to the end of the header of a table for blocks of 4 KiB.
const HEAD: usize = 4096 + 512;

/// Something that a guest could not use as an operator expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A GUID partition table, with the logical block size in bytes (UEFI 2.10, 5.3.2: its header
    /// is in block 1).
    Guid(u32),
    /// A DOS partition table. It does not tell its block size; images have 512.
    Dos,
    /// A file format other than raw bytes.
    Format(&'static str),
}

impl Found {
    /// Why blocks of `lba_size` bytes do not fit it, and what to do; `None` if they do. `how` sets
    /// the size of blocks: an option, or a key.
    #[must_use]
    pub fn advice(self, lba_size: u32, how: &str) -> Option<String> {
        let table = |kind: &str, size: u32| {
            format!(
                "it has a {kind} partition table for blocks of {size} bytes, and is served with blocks of {lba_size}: a guest finds no partitions; {how} {size}"
            )
        };
        match self {
            Found::Guid(size) if size != lba_size => Some(table("GUID", size)),
            Found::Dos if lba_size != 512 => Some(table("DOS", 512)),
            Found::Guid(_) | Found::Dos => None,
            Found::Format(format) => Some(format!(
                "it is {format}, and its bytes are served as they are: convert it to a raw image first, for example with `qemu-img convert -O raw`"
            )),
        }
    }
}

/// Error text for a file of another format than raw bytes; `None` for other files.
#[must_use]
pub fn not_raw(path: &Path) -> Option<String> {
    match look(path, 0) {
        Ok(Some(Found::Format(format))) => Some(format!(
            "'{}' is {format}: convert it to a raw image first, for example with `qemu-img convert -O raw`",
            path.display()
        )),
        _ => None,
    }
}

/// Looks at a regular file or a block device from byte `offset` on.
///
/// # Errors
/// The system's.
pub fn look(path: &Path, offset: u64) -> io::Result<Option<Found>> {
    let kind = path.metadata()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Ok(None);
    }
    let file = File::open(path)?;
    let mut head = vec![0; HEAD];
    let mut len = 0;
    while len < HEAD {
        match file.read_at(&mut head[len..], offset + len as u64)? {
            0 => break,
            some => len += some,
        }
    }
    Ok(of(&head))
}

/// The contents shown by these first bytes, followed by zeros.
fn of(head: &[u8]) -> Option<Found> {
    let has = |at: usize, bytes: &[u8]| head.get(at..at + bytes.len()) == Some(bytes);
    for size in [512, 4096] {
        if has(size as usize, b"EFI PART") {
            return Some(Found::Guid(size));
        }
    }
    // the magic numbers of the formats' own specifications
    let formats: [(usize, &[u8], &str); 10] = [
        (0, b"QFI\xfb", "a qcow2 image"),
        (0, b"KDMV", "a VMDK image"),
        (
            0,
            b"# Disk DescriptorFile",
            "the descriptor of a VMDK image",
        ),
        (0, b"vhdxfile", "a VHDX image"),
        (0, b"conectix", "a VHD image"),
        // 0xbeda107f, little-endian
        (0x40, b"\x7f\x10\xda\xbe", "a VDI image"),
        (0, b"\x1f\x8b\x08", "compressed with gzip"),
        (0, b"\xfd7zXZ\0", "compressed with xz"),
        (0, b"\x28\xb5\x2f\xfd", "compressed with zstd"),
        (0, b"BZh", "compressed with bzip2"),
    ];
    for (at, magic, format) in formats {
        if has(at, magic) {
            return Some(Found::Format(format));
        }
    }
    (has(510, b"\x55\xaa") && has_dos_table(head)).then_some(Found::Dos)
}

/// Whether the four entries of the table are those of a table, and not code or data that ends with
/// the same signature: flags of 00h or 80h, at least one partition, and no protective one.
fn has_dos_table(head: &[u8]) -> bool {
    let Some(entries) = head.get(446..510) else {
        return false;
    };
    let entries = entries.chunks_exact(16);
    let number = |entry: &[u8], at: usize| {
        u32::from_le_bytes([entry[at], entry[at + 1], entry[at + 2], entry[at + 3]])
    };
    let is_used = |entry: &[u8]| entry[4] != 0 && number(entry, 8) > 0 && number(entry, 12) > 0;
    let is_entry = |entry: &[u8]| {
        let is_empty = entry.iter().all(|byte| *byte == 0);
        matches!(entry[0], 0 | 0x80) && entry[4] != 0xee && (is_empty || is_used(entry))
    };
    entries.clone().all(is_entry) && entries.clone().any(is_used)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(parts: &[(usize, &[u8])]) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        for (at, bytes) in parts {
            head[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    /// An entry of a DOS table: flags, type, first block, number of blocks.
    fn entry(flags: u8, kind: u8) -> [u8; 16] {
        [flags, 0, 0, 0, kind, 0, 0, 0, 0, 8, 0, 0, 0, 0, 1, 0]
    }

    #[test]
    fn a_table_tells_the_size_of_its_blocks() {
        let protective = entry(0, 0xee);
        let parts: [(usize, &[u8]); 3] =
            [(446, &protective), (510, b"\x55\xaa"), (512, b"EFI PART")];
        let found = of(&head(&parts));
        assert_eq!(found, Some(Found::Guid(512)));
        let advice = found.unwrap().advice(4096, "write lba_size =").unwrap();
        assert!(advice.ends_with("write lba_size = 512"), "{advice}");
        assert_eq!(found.unwrap().advice(512, ""), None);
        assert_eq!(of(&head(&[(4096, b"EFI PART")])), Some(Found::Guid(4096)));
        let dos = head(&[(446, &entry(0x80, 0x83)), (510, b"\x55\xaa")]);
        assert_eq!(of(&dos), Some(Found::Dos));
        assert_eq!(Found::Dos.advice(512, ""), None);
    }

    #[test]
    fn a_boot_sector_without_a_table_is_no_table() {
        assert_eq!(of(&head(&[])), None);
        assert_eq!(of(&head(&[(510, b"\x55\xaa")])), None);
        // a protective entry alone, whose table is elsewhere
        let parts: [(usize, &[u8]); 2] = [(446, &entry(0, 0xee)), (510, b"\x55\xaa")];
        assert_eq!(of(&head(&parts)), None);
        // code where the table would be
        let parts: [(usize, &[u8]); 2] = [(446, &entry(0x33, 0x83)), (510, b"\x55\xaa")];
        assert_eq!(of(&head(&parts)), None);
    }

    #[test]
    fn images_of_other_formats_are_named() {
        for (at, magic, words) in [
            (0, &b"QFI\xfb\0\0\0\x03"[..], "qcow2"),
            (0x40, b"\x7f\x10\xda\xbe", "VDI"),
            (0, b"\xfd7zXZ\0", "xz"),
        ] {
            let found = of(&head(&[(at, magic)])).unwrap();
            let advice = found.advice(4096, "").unwrap();
            assert!(
                advice.contains(words) && advice.contains("raw image"),
                "{advice}"
            );
        }
    }

    #[test]
    fn files_are_read_from_an_offset_and_pipes_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, [vec![0; 1 << 20], b"QFI\xfb".to_vec()].concat()).unwrap();
        assert_eq!(look(&path, 0).unwrap(), None);
        let found = look(&path, 1 << 20).unwrap();
        assert_eq!(found, Some(Found::Format("a qcow2 image")));
        assert_eq!(look(Path::new("/dev/null"), 0).unwrap(), None);
        assert!(look(&dir.path().join("none"), 0).is_err());
    }
}
