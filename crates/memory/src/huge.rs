//! Huge pages for memory of our own: those that an operator has reserved, else pages of the usual
//! size that the kernel collapses after they were touched.
//!
//! A copy from random memory spends much of its time on address translation, and one huge page
//! needs one translation instead of 512. `MADV_COLLAPSE` (Linux 6.1) works without privilege, also
//! where the machine's settings say `never`: those settings control only what the kernel does
//! unasked.
//!
//! What it does NOT do: it does not enforce huge pages (memory of usual pages remains possible),
//! and it never waits for memory.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::Advice;

use crate::map::OwnMap;
use crate::mapping::Mapping;
use crate::store::{Store, StorePages};

/// Bytes of a huge page: what a page middle directory of x86-64, and of AArch64 with pages of
/// 4 KiB, covers.
pub const HUGE_PAGE_LEN: usize = 2 << 20;
/// Maximum number of attempts to collapse pages before "try again" counts as failure.
const ATTEMPTS: u32 = 8;

/// Source of huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Set aside by the operator (`vm.nr_hugepages`).
    Reserved,
    /// Put together by the kernel because we asked.
    Collapsed,
}

/// Memory in use, as pieces of [`HUGE_PAGE_LEN`] that may each become one page.
///
/// Collapsing one copies its bytes, which takes some hundred microseconds; a thread that touches
/// the piece meanwhile waits for that.
pub trait Pieces: Send + Sync {
    /// Number of pieces; 0 if pages are huge anyway, or cannot be.
    fn count(&self) -> usize;

    /// The nodes of memory that its pages lie on, of some of those that this process has touched:
    /// how many on each.
    ///
    /// # Errors
    /// The kernel's, mostly that it knows no nodes.
    fn nodes(&self) -> io::Result<Vec<(u32, usize)>>;

    /// Has the kernel put a piece together if all of its pages are there, so that nothing is
    /// allocated that was not. True where it is one page now.
    ///
    /// # Errors
    /// The kernel's: it has no huge page free, some page is in use by a device, or it is older than
    /// Linux 6.1.
    fn collapse(&self, index: usize) -> io::Result<bool>;
}

impl Pieces for Mapping {
    fn count(&self) -> usize {
        self.huge_pieces().map_or(0, |(_, count)| count)
    }

    fn nodes(&self) -> io::Result<Vec<(u32, usize)>> {
        Mapping::nodes(self)
    }

    fn collapse(&self, index: usize) -> io::Result<bool> {
        collapse_touched(self.huge_pieces(), index)
    }
}

impl Pieces for Store {
    fn count(&self) -> usize {
        self.huge_pieces().map_or(0, |(_, count)| count)
    }

    fn nodes(&self) -> io::Result<Vec<(u32, usize)>> {
        Store::nodes(self)
    }

    fn collapse(&self, index: usize) -> io::Result<bool> {
        collapse_touched(self.huge_pieces(), index)
    }
}

/// The piece `index` of so many, of which the first one lies at that address.
fn collapse_touched(pieces: Option<(NonNull<u8>, usize)>, index: usize) -> io::Result<bool> {
    const PAGES: usize = HUGE_PAGE_LEN / 4096;
    let piece = pieces.filter(|(_, count)| index < *count);
    let Some((first, _)) = piece else {
        return Ok(false);
    };
    let start = first.as_ptr().wrapping_add(index * HUGE_PAGE_LEN).cast();
    let mut is_there = [0u8; PAGES];
    // SAFETY: the range is mapped for as long as the caller's value lives, and has as many pages as
    // the array bytes. Whether pages are there, and which they are, is nothing that the program
    // sees; the advice changes no bytes.
    unsafe {
        if libc::mincore(start, HUGE_PAGE_LEN, is_there.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        if is_there.iter().any(|page| page & 1 == 0) {
            return Ok(false);
        }
        match libc::madvise(start, HUGE_PAGE_LEN, libc::MADV_COLLAPSE) {
            0 => Ok(true),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// A memfd of `len` bytes, a whole number of huge pages, with a mapping of it on huge pages. All of
/// it is touched.
///
/// # Errors
/// What the system says where it has none to give.
pub(crate) fn memfd(name: &str, len: usize) -> io::Result<(OwnedFd, OwnMap, HugePages)> {
    let sealing = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if let Ok((fd, map)) = sized_memfd(name, len, sealing | MemfdFlags::HUGETLB) {
        return Ok((fd, map, HugePages::Reserved));
    }
    let (fd, map) = sized_memfd(name, len, sealing)?;
    collapse(&map)?;
    Ok((fd, map, HugePages::Collapsed))
}

/// Mapping memory of hugetlbfs takes its pages out of the reserve, or fails.
fn sized_memfd(name: &str, len: usize, flags: MemfdFlags) -> io::Result<(OwnedFd, OwnMap)> {
    let fd = rustix::fs::memfd_create(name, flags)?;
    rustix::fs::ftruncate(&fd, len as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
    let map = OwnMap::shared_aligned(&fd, len, HUGE_PAGE_LEN)?;
    Ok((fd, map))
}

/// Private memory of `len` bytes, all zero, on huge pages where there are some, and where `len`
/// would fill one.
///
/// # Errors
/// There is no room for so many addresses.
pub(crate) fn private(len: usize) -> io::Result<(OwnMap, StorePages)> {
    if len < HUGE_PAGE_LEN {
        return Ok((OwnMap::anonymous(len)?, StorePages::Usual));
    }
    let whole = len
        .checked_next_multiple_of(HUGE_PAGE_LEN)
        .ok_or(io::ErrorKind::OutOfMemory)?;
    if let Ok(map) = OwnMap::reserved_huge(whole) {
        return Ok((map.shortened(len), StorePages::Reserved));
    }
    let map = OwnMap::anonymous_aligned(whole, HUGE_PAGE_LEN)?;
    // An error is a kernel without huge pages.
    let asked = map.advise(0, whole, Advice::LinuxHugepage).is_ok();
    let pages = if asked && gives_where_asked() {
        StorePages::HugeAsWritten
    } else {
        StorePages::Usual
    };
    Ok((map.shortened(len), pages))
}

/// Whether the system gives huge pages to memory that asks for them
/// (`transparent_hugepage=madvise`, or `always`).
fn gives_where_asked() -> bool {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    setting.is_ok_and(|setting| !setting.contains("[never]"))
}

/// Has the kernel put the pages of `map` together, which starts at a multiple of [`HUGE_PAGE_LEN`]
/// and has a whole number of them. What it holds stays.
pub(crate) fn collapse(map: &OwnMap) -> io::Result<()> {
    // There is nothing to put together where nothing was touched.
    map.advise(0, map.len(), Advice::LinuxPopulateWrite)?;
    let mut attempt = 1;
    loop {
        match map.collapse() {
            // A page was being written back or looked at just then.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempt < ATTEMPTS => {
                attempt += 1;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kilobytes of this process's memory at `map` that lie on huge pages (proc_pid_smaps(5)).
    fn huge_kib(map: &OwnMap) -> u64 {
        huge_kib_at(map.at(0, 1))
    }

    fn huge_kib_at(first: *mut u8) -> u64 {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", first.addr());
        let (_, ours) = smaps.split_once(&start).unwrap();
        let names = [
            "AnonHugePages:",
            "ShmemPmdMapped:",
            "Shared_Hugetlb:",
            "Private_Hugetlb:",
        ];
        ours.lines()
            .take_while(|line| !line.starts_with("VmFlags"))
            .filter(|line| names.iter().any(|name| line.starts_with(name)))
            .map(|line| {
                line.split_whitespace()
                    .nth(1)
                    .unwrap()
                    .parse::<u64>()
                    .unwrap()
            })
            .sum()
    }

    #[test]
    fn private_memory_lies_on_the_pages_that_it_says() {
        let (map, pages) = private(2 * HUGE_PAGE_LEN - 1).unwrap();
        assert_eq!(map.at(0, 1).addr() % HUGE_PAGE_LEN, 0);
        // SAFETY: the byte lies inside the mapping, which is writable.
        unsafe { map.at(HUGE_PAGE_LEN - 1, 1).write(1) };
        let huge = huge_kib(&map);
        match pages {
            StorePages::Reserved => assert!(huge >= 2048, "{huge}"),
            // A system that is short of memory gives usual ones.
            StorePages::HugeAsWritten => assert!(huge == 0 || huge == 2048, "{huge}"),
            StorePages::Usual => assert_eq!(huge, 0),
        }
        // What would not fill a huge page does not ask for one.
        assert_eq!(private(4096).unwrap().1, StorePages::Usual);
    }

    /// Whether pages were collapsed. A system that cannot do so (older than Linux 6.1, or short of
    /// memory) reports it here as it does elsewhere.
    fn is_done(collapsed: io::Result<bool>) -> bool {
        match (collapsed, memfd("test", HUGE_PAGE_LEN)) {
            (Ok(done), _) => {
                assert!(done, "every page was touched");
                true
            }
            (Err(error), Ok(_)) => panic!("only here: {error}"),
            (Err(_), Err(_)) => false,
        }
    }

    #[test]
    fn a_client_s_pages_are_put_together_where_all_of_them_are_there() {
        let len = 3 * HUGE_PAGE_LEN + 8192;
        let client = crate::HostMemory::new(len).unwrap();
        // A buffer is all touched; a page of the last piece is not in it.
        let memory = client.alloc(3 * HUGE_PAGE_LEN - 4096, 4096).unwrap();
        let fd = client.fd().try_clone_to_owned().unwrap();
        let mapping = crate::ClientMappings::new().map(fd).unwrap();
        let pieces: &dyn Pieces = &*mapping;
        assert_eq!(pieces.count(), 3);
        memory.write_from(HUGE_PAGE_LEN, &vec![7; HUGE_PAGE_LEN]);
        memory.write_from(0, &vec![9; HUGE_PAGE_LEN - 1]);
        memory.write_from(2 * HUGE_PAGE_LEN, &vec![5; HUGE_PAGE_LEN - 4096]);
        if !is_done(pieces.collapse(0)) {
            return;
        }
        assert!(pieces.collapse(1).unwrap());
        assert!(pieces.collapse(1).unwrap(), "it is one page already");
        assert!(!pieces.collapse(2).unwrap(), "a page is not there");
        assert!(!pieces.collapse(3).unwrap(), "it is no whole piece");
        let found = huge_kib_at(mapping.at(0, 1).unwrap().as_ptr());
        assert_eq!(found, 4096);
        // The bytes are what they were, at both ends.
        let mut bytes = vec![0; HUGE_PAGE_LEN];
        memory.read_into(HUGE_PAGE_LEN, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 7));
        memory.read_into(0, &mut bytes);
        assert!(bytes[..HUGE_PAGE_LEN - 1].iter().all(|byte| *byte == 9));
    }

    #[test]
    fn a_store_of_usual_pages_is_put_together_as_it_is_written() {
        let store = Store::new(2 * HUGE_PAGE_LEN as u64).unwrap();
        let usual = store.pages() == StorePages::Usual;
        assert_eq!(Pieces::count(&store), if usual { 2 } else { 0 });
        // As where the system gives none unasked: a store asks, this does not.
        let map = OwnMap::anonymous_aligned(2 * HUGE_PAGE_LEN, HUGE_PAGE_LEN).unwrap();
        for at in (0..HUGE_PAGE_LEN).step_by(4096) {
            // SAFETY: the byte lies inside the mapping, which is writable.
            unsafe { map.at(at, 1).write(1) };
        }
        let pieces = NonNull::new(map.at(0, 1)).map(|first| (first, 2));
        assert!(!collapse_touched(pieces, 1).unwrap());
        if is_done(collapse_touched(pieces, 0)) {
            assert_eq!(huge_kib(&map), 2048);
        }
    }

    #[test]
    fn memory_on_huge_pages_is_that_or_an_error() {
        let len = 4 * HUGE_PAGE_LEN;
        // a machine that is short of memory, or older than Linux 6.1, has none to give: that must
        // be said
        let Ok((_fd, map, _)) = memfd("test", len) else {
            return;
        };
        assert_eq!(map.at(0, 1).addr() % HUGE_PAGE_LEN, 0);
        assert_eq!(huge_kib(&map), len as u64 / 1024);
    }
}
