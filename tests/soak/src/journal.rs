//! Writes of a host, in a file, so that the next one can verify them when this one is killed.
//!
//! For each block: the write that was acknowledged last, and one that was submitted after it and
//! may or may not have happened. The file is written with a system call for each, which a process
//! that is killed has done or has not.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

const ENTRY: u64 = 16;

/// State of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The last write that was acknowledged; 0 where none was.
    pub(crate) acknowledged: u64,
    /// A write that was submitted after it; 0 where there is none.
    pub(crate) submitted: u64,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    /// Opens it, or makes it; what it says of each of so many blocks.
    pub(crate) fn open(path: &Path, blocks: u64) -> io::Result<(Self, Vec<Entry>)> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        file.set_len(blocks * ENTRY)?;
        let mut bytes = vec![0; (blocks * ENTRY) as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let entries = bytes.chunks_exact(ENTRY as usize).map(|entry| Entry {
            acknowledged: number(&entry[..8]),
            submitted: number(&entry[8..]),
        });
        let entries = entries.collect();
        Ok((Journal(file), entries))
    }

    /// A write of a block is about to be submitted.
    pub(crate) fn submit(&self, lba: u64, write: u64) -> io::Result<()> {
        self.0.write_all_at(&write.to_le_bytes(), lba * ENTRY + 8)
    }

    /// A block holds this write, and nothing else can come.
    pub(crate) fn acknowledge(&self, lba: u64, write: u64) -> io::Result<()> {
        let mut bytes = [0; ENTRY as usize];
        bytes[..8].copy_from_slice(&write.to_le_bytes());
        self.0.write_all_at(&bytes, lba * ENTRY)
    }
}
