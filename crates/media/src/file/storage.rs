//! Blocking calls on the file through the page cache: for its state, while no channel uses it.
//!
//! The calls use a separate open file description without O_DIRECT, and so without alignment. The
//! two kinds of access never happen to the same bytes at the same time, and data written here is
//! synced before a channel works.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;

use super::Clear;
use crate::journal::Storage;

/// Zeros per write if space cannot be freed.
const ZEROS: usize = 1 << 20;

/// A file for blocking calls; see the module.
#[derive(Debug)]
pub(crate) struct FileStorage(File);

impl FileStorage {
    pub(super) fn of(fd: &OwnedFd, writes: bool) -> io::Result<FileStorage> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let file = OpenOptions::new().read(true).write(writes).open(path)?;
        Ok(FileStorage(file))
    }
}

impl Storage for FileStorage {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(bytes, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn clear(&self, offset: u64, len: u64) -> io::Result<()> {
        match fallocate(&self.0, Clear::Punch.mode(), offset, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            other => return Ok(other?),
        }
        let zeros = vec![0; ZEROS];
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let now = (end - at).min(ZEROS as u64);
            self.0.write_all_at(&zeros[..now as usize], at)?;
            at += now;
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        Ok(fallocate(&self.0, FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    fn find_data(&self, offset: u64, end: u64) -> io::Result<Option<u64>> {
        match seek(&self.0, SeekFrom::Data(offset)) {
            Ok(at) => Ok((at < end).then_some(at)),
            // No data after the offset.
            Err(Errno::NXIO) => Ok(None),
            // Unknown: the file system does not report holes.
            Err(Errno::INVAL) => Ok(Some(offset)),
            Err(errno) => Err(errno.into()),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cleared_reads_as_zero_and_is_no_data() {
        let file = tempfile::tempfile_in(env!("CARGO_MANIFEST_DIR")).expect("a file");
        file.set_len(1 << 20).expect("sized");
        let storage = FileStorage::of(&file.into(), true).expect("opened again");
        assert_eq!(storage.find_data(0, 1 << 20).unwrap(), None);
        storage.write_at(64 << 10, &[7; 8192]).unwrap();
        assert_eq!(storage.find_data(0, 1 << 20).unwrap(), Some(64 << 10));
        assert_eq!(storage.find_data(0, 64 << 10).unwrap(), None);
        assert_eq!(
            storage.find_data(66 << 10, 1 << 20).unwrap(),
            Some(66 << 10)
        );
        storage.clear(64 << 10, 4096).unwrap();
        let mut bytes = [1; 8192];
        storage.read_at(64 << 10, &mut bytes).unwrap();
        assert_eq!(
            (&bytes[..4096], &bytes[4096..]),
            (&[0; 4096][..], &[7; 4096][..])
        );
        storage.sync().unwrap();
        assert!(storage.read_at((1 << 20) - 1, &mut bytes).is_err());
    }
}
