//! Allocation of bytes: which parts of a store or a file have memory or space.
//!
//! Every other part reads as zeros. The answer is the system's: of a file its holes, of private
//! memory the pages that the process has. A memfd on reserved huge pages has no holes: all of its
//! memory was taken at once. All calls may wait for the system, so that a thread makes them that
//! may wait.
//!
//! It does NOT say which allocated bytes are zero.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;

use super::{PAGE_LEN, Store};

/// Pages of private memory that one call looks at: 64 MiB.
const PAGES_PER_CALL: u64 = 16 << 10;
/// Bytes of an entry of `/proc/self/pagemap`, one for each page.
const ENTRY_LEN: u64 = 8;
/// Bits of an entry of a page that has bytes: it is present, or swapped out (Linux,
/// admin-guide/mm/pagemap).
const HAS_BYTES: u64 = 1 << 63 | 1 << 62;

/// Consecutive bytes that are all allocated, or none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// They have memory, or space in a file system. Otherwise they read as zeros.
    pub is_allocated: bool,
    /// Number of bytes.
    pub len: u64,
}

impl Run {
    fn new(is_allocated: bool, len: u64) -> Self {
        Self { is_allocated, len }
    }

    /// The run that begins at a byte of a file, of at most `len` bytes, which are not 0. The file's
    /// position changes.
    ///
    /// # Errors
    /// The system's. `InvalidInput`: it does not know the holes of such a file. `UnexpectedEof`:
    /// the file has fewer bytes.
    pub fn of_file(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Self> {
        match seek(file, SeekFrom::Data(offset)) {
            Ok(data) if data > offset => Ok(Self::new(false, len.min(data - offset))),
            Ok(_) => {
                let hole = seek(file, SeekFrom::Hole(offset))?;
                // Another process may have made the hole meanwhile.
                let found = hole.saturating_sub(offset).max(1);
                Ok(Self::new(true, len.min(found)))
            }
            // There are no data behind it: a hole, or the file's end.
            Err(Errno::NXIO) => {
                let size = u64::try_from(fstat(file)?.st_size).unwrap_or(0);
                if offset.checked_add(len).is_none_or(|end| end > size) {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(Self::new(false, len))
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Store {
    /// The run that begins at a byte, of at most `len` bytes, which are not 0. It may end where the
    /// next run is of the same kind: a call examines a limited number of pages.
    ///
    /// # Errors
    /// The system's: it does not say.
    ///
    /// # Panics
    /// If the range does not lie inside the store.
    pub fn run_at(&self, offset: u64, len: u64) -> io::Result<Run> {
        let bytes = usize::try_from(len).expect("a length inside the store fits an address");
        let address = self.at(offset, bytes).addr() as u64;
        if let Some(file) = self.file() {
            return Run::of_file(file, offset, len);
        }
        let page = PAGE_LEN as u64;
        let (first, end) = (address / page, (address + len).div_ceil(page));
        let last = end.min(first + PAGES_PER_CALL);
        let map = File::open("/proc/self/pagemap")?;
        let mut entries = [0; PAGE_LEN];
        let (mut at, mut kind) = (first, None);
        'pages: while at < last {
            let count = (last - at).min(PAGE_LEN as u64 / ENTRY_LEN);
            let entries = &mut entries[..(count * ENTRY_LEN) as usize];
            map.read_exact_at(entries, at * ENTRY_LEN)?;
            let (entries, _) = entries.as_chunks();
            for entry in entries {
                let is_allocated = u64::from_ne_bytes(*entry) & HAS_BYTES != 0;
                if *kind.get_or_insert(is_allocated) != is_allocated {
                    break 'pages;
                }
                at += 1;
            }
        }
        let is_allocated = kind.unwrap_or(true);
        Ok(Run::new(is_allocated, len.min(at * page - address)))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::StorePages;

    /// Whether all of a store is allocated from the start: of a memfd on huge pages that this
    /// machine has reserved, which the system reports no holes of.
    fn is_taken_at_once(store: &Store) -> bool {
        store.pages() == StorePages::Reserved && store.file().is_some()
    }

    /// Runs from the start of a store to its end; neighbours of the same kind put together.
    fn runs(store: &Store) -> Vec<Run> {
        let mut all: Vec<Run> = Vec::new();
        let mut at = 0;
        while at < store.len() {
            let run = store.run_at(at, store.len() - at).unwrap();
            assert!(run.len > 0);
            at += run.len;
            match all.last_mut() {
                Some(last) if last.is_allocated == run.is_allocated => last.len += run.len,
                _ => all.push(run),
            }
        }
        all
    }

    #[test]
    fn a_store_has_memory_where_it_was_written() {
        const LEN: u64 = 200 << 20;
        for store in [Store::new(LEN).unwrap(), Store::shared(LEN).unwrap()] {
            if is_taken_at_once(&store) {
                assert_eq!(runs(&store), [Run::new(true, LEN)]);
                continue;
            }
            assert_eq!(runs(&store), [Run::new(false, LEN)]);
            // Far enough apart for huge pages.
            let places = [8 << 20, 100 << 20];
            for at in places {
                store.write_bytes(at, &[7; 512]);
            }
            let found = runs(&store);
            let kinds: Vec<bool> = found.iter().map(|run| run.is_allocated).collect();
            assert_eq!(kinds, [false, true, false, true, false]);
            for at in places {
                assert!(store.run_at(at, 512).unwrap().is_allocated);
                assert_eq!(store.run_at(at, 512).unwrap().len, 512);
            }
            let (whole, huge) = (found[1].len, crate::HUGE_PAGE_LEN as u64);
            assert!([4096, huge].contains(&whole), "{whole}");
            store.zero(8 << 20, huge, true);
            assert!(!store.run_at(8 << 20, 512).unwrap().is_allocated);
            assert!(store.run_at(100 << 20, 512).unwrap().is_allocated);
        }
    }

    /// A process that goes on with the bytes has mapped none of their pages yet.
    #[test]
    fn pages_that_another_process_has_written_are_allocated() {
        const LEN: u64 = 8 << 20;
        let store = Store::shared(LEN).unwrap();
        store.write_bytes(4 << 20, &[7; 512]);
        let file = store.file().unwrap().try_clone_to_owned().unwrap();
        let adopted = Store::adopt(file, LEN).unwrap();
        let first = adopted.run_at(0, 512).unwrap();
        assert_eq!(first.is_allocated, is_taken_at_once(&adopted));
        assert!(adopted.run_at(4 << 20, 512).unwrap().is_allocated);
    }

    #[test]
    fn a_call_is_bounded() {
        let store = Store::new(1 << 30).unwrap();
        let run = store.run_at(512, (1 << 30) - 512).unwrap();
        assert!(!run.is_allocated);
        assert!((1..=64 << 20).contains(&run.len), "{}", run.len);
    }

    #[test]
    fn a_file_has_space_where_it_was_written() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("allocated", flags).unwrap();
        let mut file = File::from(file);
        file.set_len(1 << 20).unwrap();
        let of = |file: &File, at, len| Run::of_file(file.as_fd(), at, len);
        assert_eq!(of(&file, 512, 1024).unwrap(), Run::new(false, 1024));
        file.seek(io::SeekFrom::Start(64 << 10)).unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let before = of(&file, 512, 1 << 19).unwrap();
        assert_eq!(before, Run::new(false, (64 << 10) - 512));
        assert_eq!(of(&file, 66 << 10, 512).unwrap(), Run::new(true, 512));
        let data = of(&file, 64 << 10, 1 << 19).unwrap();
        assert!(data.is_allocated && data.len >= 8192);
        let behind = (64 << 10) + data.len;
        let rest = of(&file, behind, (1 << 20) - behind).unwrap();
        assert_eq!(rest, Run::new(false, (1 << 20) - behind));
        // A file that has become shorter reads as no zeros there.
        let error = of(&file, (1 << 20) - 512, 1024).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
