//! Huge pages for memory of our own: those that an operator has reserved, else pages of the usual
//! size that the kernel collapses after they were touched.
//!
//! A copy from random memory spends much of its time on address translation, and one huge page
//! needs one translation instead of 512. `MADV_COLLAPSE` (Linux 6.1) works without privilege, also
//! where the machine's settings say `never`: those settings control only what the kernel does
//! unasked.
//!
//! Not included: it does not enforce huge pages (memory of usual pages remains possible), and it
//! never waits for memory.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::Advice;

use crate::own::map::OwnMap;

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

/// A memfd of `len` bytes, a whole number of huge pages, with a mapping of it on huge pages. All of
/// it is touched.
///
/// # Errors
/// What the system says where it has none to give.
pub(crate) fn memfd(name: &str, len: usize) -> io::Result<(OwnedFd, OwnMap, HugePages)> {
    let sealing = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if let Ok((fd, map)) = sized_memfd(name, len, sealing | MemfdFlags::HUGETLB)
        && map.advise(0, len, Advice::LinuxPopulateWrite).is_ok()
    {
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

/// Has the kernel put the pages of `map` together, which starts at a multiple of [`HUGE_PAGE_LEN`]
/// and has a whole number of them. Its bytes stay.
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
pub(crate) mod tests {
    use super::*;

    /// Kilobytes of this process's memory at `map` that lie on huge pages (proc_pid_smaps(5)).
    pub(crate) fn huge_kib(map: &OwnMap) -> u64 {
        huge_kib_at(map.at(0, 1))
    }

    /// The same of the memory that begins there.
    pub(crate) fn huge_kib_at(first: *mut u8) -> u64 {
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
