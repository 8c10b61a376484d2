//! Memory of our own: anonymous or of a memfd, mapped for as long as the value lives.

use std::ffi::c_void;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A readable and writable mapping that only its owner can resize.
#[derive(Debug)]
pub(crate) struct OwnMap {
    base: NonNull<u8>,
    /// Bytes that are used.
    len: usize,
    /// Bytes that are mapped.
    span: usize,
}

// SAFETY: the value is an address and a length; who uses the memory decides how threads share it.
unsafe impl Send for OwnMap {}
// SAFETY: as above; no method of a shared reference touches the memory.
unsafe impl Sync for OwnMap {}

impl OwnMap {
    /// `len` bytes of zeros of this process alone, taken from the system page by page as they are
    /// touched.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?
        };
        Ok(Self::of(base, len))
    }

    /// The first `len` bytes of a memfd of ours, which is never shrunk.
    pub(crate) fn shared(fd: impl AsFd, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let base =
            unsafe { rustix::mm::mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, fd, 0)? };
        Ok(Self::of(base, len))
    }

    /// As [`OwnMap::shared`], at an address that is a multiple of `align`, a power of two of whole
    /// pages.
    pub(crate) fn shared_aligned(fd: impl AsFd, len: usize, align: usize) -> io::Result<Self> {
        let room = Self::room(len, align)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is that of `room`, which is unused.
        let base =
            unsafe { rustix::mm::mmap(room.at(0, len).cast(), len, protection, flags, fd, 0)? };
        std::mem::forget(room);
        Ok(Self::of(base, len))
    }

    /// As [`OwnMap::anonymous`], at such an address.
    pub(crate) fn anonymous_aligned(len: usize, align: usize) -> io::Result<Self> {
        let room = Self::room(len, align)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as in `shared_aligned`.
        let base =
            unsafe { rustix::mm::mmap_anonymous(room.at(0, len).cast(), len, protection, flags)? };
        std::mem::forget(room);
        Ok(Self::of(base, len))
    }

    /// `len` bytes of zeros on huge pages that were set aside; all of them are taken now.
    pub(crate) fn reserved_huge(len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, protection, flags)? };
        Ok(Self::of(base, len))
    }

    /// Unused addresses: `len` bytes from a multiple of `align` on.
    pub(crate) fn room(len: usize, align: usize) -> io::Result<Self> {
        let both = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let start = unsafe {
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
            rustix::mm::mmap_anonymous(ptr::null_mut(), both, ProtFlags::empty(), flags)?
        };
        let skipped = start.addr().next_multiple_of(align) - start.addr();
        // The parts before and behind it go. Errors change nothing.
        // SAFETY: both ranges were reserved above and have never been used.
        unsafe {
            if skipped > 0 {
                let _ = rustix::mm::munmap(start, skipped);
            }
            if skipped < align {
                let _ = rustix::mm::munmap(start.byte_add(skipped + len), align - skipped);
            }
            Ok(Self::of(start.byte_add(skipped), len))
        }
    }

    /// Maps another file of the same length in the place of what is mapped: its bytes are at these
    /// addresses from then on.
    pub(crate) fn replace(&self, fd: impl AsFd) -> io::Result<()> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        let place = self.base.as_ptr().cast();
        // SAFETY: the range is our own mapping. Users of the memory find other bytes there, as
        // after a write of another process that shares it.
        unsafe { rustix::mm::mmap(place, self.span, protection, flags, fd, 0)? };
        Ok(())
    }

    fn of(base: *mut c_void, len: usize) -> Self {
        OwnMap {
            base: NonNull::new(base.cast()).expect("mmap does not return a null pointer"),
            len,
            span: len,
        }
    }

    /// Keeps no more than the first `len` bytes in use; the others stay mapped.
    pub(crate) fn shortened(self, len: usize) -> Self {
        let mut map = self;
        map.len = map.len.min(len);
        map
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of byte `at`.
    ///
    /// # Panics
    /// If the `len` bytes from `at` do not lie inside.
    #[inline]
    pub(crate) fn at(&self, at: usize, len: usize) -> *mut u8 {
        let fits = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {at} of {}", self.len);
        // SAFETY: `at` lies inside the mapping or at its end.
        unsafe { self.base.as_ptr().add(at) }
    }

    /// Gives whole pages back to the system; they read as zeros from then on. For anonymous memory.
    pub(crate) fn discard(&self, at: usize, len: usize) -> io::Result<()> {
        self.advise(at, len, Advice::LinuxDontNeed)
    }

    /// Gives whole pages of a memfd back to the system; they read as zeros from then on.
    pub(crate) fn remove(&self, at: usize, len: usize) -> io::Result<()> {
        self.advise(at, len, Advice::LinuxRemove)
    }

    /// Has the kernel put all its pages together into huge ones; their bytes stay.
    pub(crate) fn collapse(&self) -> io::Result<()> {
        // SAFETY: the range is our mapping, and the advice changes no bytes.
        match unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Gives the system advice about whole pages.
    pub(crate) fn advise(&self, at: usize, len: usize, advice: Advice) -> io::Result<()> {
        let address = self.at(at, len).cast();
        // SAFETY: the range lies inside our mapping; at most its pages become zeros, which every
        // user of this memory that asks for such advice allows.
        unsafe { Ok(rustix::mm::madvise(address, len, advice)?) }
    }
}

impl Drop for OwnMap {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from a value that is dropped. An error
        // changes nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.span) };
    }
}
