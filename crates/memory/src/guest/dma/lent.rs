//! The memory of one region that a host lends, from its map to its unmap.
//!
//! Code that prepares I/O into a region (for example, registers its pages with the kernel) must not
//! reuse that preparation for the next region at the same address: the host may have released the
//! pages in between, and the file has others there now. So each map creates a [`Lent`] with its own
//! number, and every segment carries that number. A `Lent` without holders (`Weak::strong_count` is
//! 0) is one that no view and no command can still reach.
//!
//! A device with its own access to the memory, as a drive has, may keep using it after an unmap
//! while it hangs. So a region records whether its host has unmapped it, and how many devices reach
//! it ([`Reach`]).
//!
//! Not included: reading and writing.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::mm::Advice;

use crate::guest::mapping::Mapping;

/// State of a region beside its bytes: whether it is still mapped, and whether devices reach it.
///
/// Both sides store their own word before they load the other's (sequentially consistent). So if a
/// device begins to reach a region while a host unmaps it, at least one of them sees the other.
#[derive(Debug, Default)]
pub struct Reach {
    is_taken_back: AtomicBool,
    devices: AtomicU32,
}

/// Each region's is its own.
impl PartialEq for Reach {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Reach {}

impl Reach {
    /// Whether its host has unmapped the region, or is gone.
    #[must_use]
    pub fn is_taken_back(&self) -> bool {
        self.is_taken_back.load(Ordering::SeqCst)
    }

    /// Whether a device reaches the memory.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.devices.load(Ordering::SeqCst) > 0
    }

    /// A device is about to reach the memory. False where its host has taken that back: then it
    /// must not.
    #[must_use]
    pub fn hold(&self) -> bool {
        self.devices.fetch_add(1, Ordering::SeqCst);
        if self.is_taken_back() {
            self.let_go();
            return false;
        }
        true
    }

    /// A device that held it reaches it no more.
    pub fn let_go(&self) {
        let before = self.devices.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "it was held");
    }

    /// Its host takes it back; whether a device reaches it.
    pub(super) fn take_back(&self) -> bool {
        self.is_taken_back.store(true, Ordering::SeqCst);
        self.is_held()
    }
}

/// The memory of a region.
#[derive(Debug)]
pub struct Lent {
    id: u64,
    base: *mut u8,
    len: u64,
    is_writable: bool,
    /// Keeps `base` valid.
    mapping: Arc<Mapping>,
    reach: Arc<Reach>,
}

// SAFETY: `base` points into the mapping, which is Send and Sync and outlives it; the rest is plain
// data.
unsafe impl Send for Lent {}
// SAFETY: as above.
unsafe impl Sync for Lent {}

impl Lent {
    /// `base` is the address of the `len` bytes in `mapping`.
    pub(super) fn new(mapping: Arc<Mapping>, base: *mut u8, len: u64, is_writable: bool) -> Self {
        // never given twice, so that a number stands for one region for ever; 0 is none
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Lent {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            base,
            len,
            is_writable,
            mapping,
            reach: Arc::default(),
        }
    }

    /// Whether it is still mapped, and whether devices reach it; valid also after the memory is
    /// gone.
    #[must_use]
    pub fn reach(&self) -> &Arc<Reach> {
        &self.reach
    }

    /// Its number: never 0, and never that of another region.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The address of its first byte, valid while this value is, and its bytes.
    #[must_use]
    pub fn as_raw(&self) -> (*mut u8, u64) {
        (self.base, self.len)
    }

    /// The file that it is a part of, and where in that its first byte is: for a device in another
    /// process. `None` for memory of this process alone.
    #[must_use]
    pub fn file(&self) -> Option<(BorrowedFd<'_>, u64)> {
        let offset = self.base.addr() - self.mapping.base().addr();
        Some((self.mapping.file()?, offset as u64))
    }

    /// Whether a device may write to it.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// Makes the system allocate `len` bytes from `offset` on, whole pages, without changing their
    /// contents.
    ///
    /// # Errors
    /// The system's: there is no memory, the file has been cut short, the bytes may not be written,
    /// or the kernel is older than 5.14.
    pub fn populate(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > self.len) || !self.is_writable {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let fits = |bytes| usize::try_from(bytes).expect("a mapping's lengths fit a usize");
        // SAFETY: the range lies in the mapping that this value holds; the advice changes no bytes.
        unsafe {
            let start = self.base.add(fits(offset));
            rustix::mm::madvise(start.cast(), fits(len), Advice::LinuxPopulateWrite)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::Reach;
    use crate::{Access, ClientMappings, DmaMap, HostMemory, Iova};

    /// A map of two regions of a page each, at 0 and at 1 MiB, and what is known of them.
    fn map() -> (DmaMap, Vec<Arc<Reach>>) {
        let memory = HostMemory::new(8192).unwrap();
        let fd = memory.fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        let mut map = DmaMap::new(4);
        for (at, offset) in [(0, 0), (1 << 20, 4096)] {
            let backing = Some((mapping.clone(), offset));
            map.map(Iova(at), 4096, Access::READ_WRITE, backing)
                .unwrap();
        }
        let view = map.view();
        let reaches = view.lent().map(|lent| lent.reach().clone()).collect();
        (map, reaches)
    }

    #[test]
    fn a_region_that_is_taken_back_is_held_no_more() {
        let (mut map, reaches) = map();
        assert!(reaches.iter().all(|reach| reach.hold() && reach.is_held()));
        reaches[1].let_go();
        map.unmap(Iova(0), 4096).unwrap();
        assert_eq!(map.take_reached(), [reaches[0].clone()]);
        assert!(map.take_reached().is_empty(), "it was told");
        assert!(!reaches[0].hold(), "not by another device");
        assert!(reaches[0].is_held(), "still by the first");
        reaches[0].let_go();
        assert!(!reaches[0].is_held());
        // The other one is mapped until its host is gone.
        assert!(reaches[1].hold());
        reaches[1].let_go();
        drop(map);
        assert!(!reaches[1].hold());
    }

    #[test]
    fn what_no_device_reaches_is_nobodys_concern() {
        let (mut map, _) = map();
        map.unmap_all();
        assert!(map.take_reached().is_empty());
    }
}
