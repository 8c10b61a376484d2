//! Clients' memory files, each mapped once.
//!
//! A client passes a descriptor with every piece of memory that it maps for its device. Behind a
//! vIOMMU those pieces are thousands of 4 KiB ranges of one file, and the kernel limits the number
//! of mappings per process. So a [`Mapping`] is the whole file, and a region is an offset into it.
//!
//! Invariants:
//! - Only memory is mapped: a regular file of tmpfs (a memfd is one) or hugetlbfs. A file of any
//!   other file system could block a reactor for as long as its disk, network or FUSE daemon takes.
//! - Every mapping is watched for SIGBUS ([`crate::guest::lost`]) from before its first use until
//!   after its last.
//! - One client can exhaust neither the table of mappings nor the address space: both are bounded
//!   per session.
//!
//! Not included: access to bytes; [`crate::DmaView`] and [`crate::DoorbellPages`] give it, each
//! with its own rules.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{AtFlags, FileType, OFlags, SealFlags, StatxFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::guest::lost::{LostFlag, MAX_MAPPINGS, Watch, WatchError};
use crate::numa;
use crate::own::PAGE;
use crate::own::huge::HUGE_PAGE_LEN;
use crate::own::map::OwnMap;

/// The most files of one session that are mapped at one time.
pub const MAX_SESSION_MAPPINGS: usize = 512;
/// The most files of one session whose descriptors are kept, so that a drive in another process can
/// be shown them too. A guest has one or two; more would let one client use up the descriptors that
/// all of them have.
pub const MAX_SESSION_DESCRIPTORS: usize = 16;
/// The most bytes of address space for one session's files: 16 TiB of the 128 TiB that a process
/// has.
pub const MAX_SESSION_BYTES: u64 = 1 << 44;

const TMPFS_MAGIC: u32 = 0x0102_1994;
const HUGETLBFS_MAGIC: u32 = 0x9584_58f6;

/// Why a descriptor cannot be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Not a regular file: a pipe, a socket, a device, a directory.
    #[error(
        "the descriptor is {0}, not memory: share the memory as a memfd, or a file of tmpfs or hugetlbfs"
    )]
    NotFile(&'static str),
    /// A regular file whose pages a disk, a network or a daemon stands behind.
    #[error(
        "the file {0:?} is not on a memory file system: share the memory as a memfd (memory-backend-memfd,share=on in QEMU), or as a file of tmpfs or hugetlbfs (memory-backend-file,share=on,mem-path=/dev/shm)"
    )]
    NotMemory(PathBuf),
    /// The descriptor does not allow reading.
    #[error("the descriptor is not readable: open it for reading and writing")]
    NotReadable,
    /// The file has no bytes.
    #[error("the file is empty: set its size before sharing it")]
    Empty,
    /// An offset or a length that the file does not have, or that is not a whole number of pages.
    #[error("{len} bytes at {offset} are not whole pages within the file's {file_len} bytes")]
    OutOfFile {
        /// Bytes from the file's start.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes in the file.
        file_len: u64,
    },
    /// This session has [`MAX_SESSION_MAPPINGS`] files or [`MAX_SESSION_BYTES`] of address space
    /// mapped.
    #[error(
        "the client exceeds its limit of {MAX_SESSION_MAPPINGS} mapped files or {MAX_SESSION_BYTES} mapped bytes; unmap some, or share fewer and smaller files"
    )]
    SessionLimit,
    /// The process has [`MAX_MAPPINGS`] files mapped.
    #[error("all {MAX_MAPPINGS} mappings of client memory are in use: disconnect a client")]
    TableFull,
    /// The handler that guards against memory that is taken away could not be installed.
    #[error("cannot install the SIGBUS handler: {0}")]
    Handler(io::Error),
    /// The system refused.
    #[error("cannot map the client's memory: {0}")]
    System(#[from] io::Error),
}

impl From<rustix::io::Errno> for MapError {
    fn from(errno: rustix::io::Errno) -> Self {
        MapError::System(errno.into())
    }
}

/// One mmap of one file, or of memory of our own, unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    /// Bytes of the file when it was mapped.
    file_len: u64,
    /// Bytes of address space: `file_len` rounded up to the file's page size.
    span: usize,
    writable: bool,
    /// Its pages are smaller than huge ones, and could be put together.
    usual_pages: bool,
    /// Taken out before the memory is unmapped: see `drop`.
    watch: Option<Watch>,
    /// The file, where others may be shown it.
    file: Option<OwnedFd>,
    budget: Arc<Budget>,
}

// SAFETY: the value is an address, lengths and atomics. The bytes are only copied or accessed by
// atomics, through this crate; which threads do so at one time does not matter, the client races
// with all of them anyway.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method of a shared reference makes a reference to the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Bytes of the file that are mapped, from its first.
    pub fn len(&self) -> u64 {
        self.file_len
    }

    /// Never: an empty file is not mapped.
    pub fn is_empty(&self) -> bool {
        self.file_len == 0
    }

    /// Whether the bytes may be written; false for a read-only descriptor and for a file sealed
    /// against writing.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// The nodes of memory that its pages lie on, of some of those that this process has touched:
    /// how many on each.
    ///
    /// # Errors
    /// The system's, mostly that it knows no nodes.
    pub fn nodes(&self) -> io::Result<Vec<(u32, usize)>> {
        numa::nodes_of(self.base, self.span)
    }

    /// The pieces that could become huge pages: the first one's address, and their number.
    pub(crate) fn huge_pieces(&self) -> Option<(NonNull<u8>, usize)> {
        let count = self.span / HUGE_PAGE_LEN;
        (self.usual_pages && self.writable && count > 0).then_some((self.base, count))
    }

    /// The file, to be shown to a drive in another process; its first byte is the first one here.
    /// `None` for memory of this process alone, and where the session has
    /// [`MAX_SESSION_DESCRIPTORS`] others.
    pub fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
    }

    /// The address of the first byte.
    #[inline]
    pub(crate) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The address of byte `offset`; `None` when the `len` bytes from there are not all in the
    /// file.
    pub(crate) fn at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        self.within(offset, len, self.file_len)
    }

    /// The same of whole pages. The last page of the file is there as a whole: what lies behind the
    /// end of the file in it reads as zero, and what is written there is lost.
    pub(crate) fn pages_at(&self, offset: u64, len: u64) -> Option<NonNull<u8>> {
        self.within(offset, len, self.file_len.next_multiple_of(PAGE))
    }

    fn within(&self, offset: u64, len: u64, all: u64) -> Option<NonNull<u8>> {
        let end = offset.checked_add(len)?;
        if end > all {
            return None;
        }
        let offset = usize::try_from(offset).ok()?;
        // SAFETY: offset <= all <= span, the size of the mapping at `base`, which is whole pages of
        // the file's file system.
        Some(unsafe { self.base.add(offset) })
    }

    /// `len` bytes of zeros of this process alone, a whole number of pages. No client can take them
    /// away, so they are not watched.
    pub(crate) fn anonymous(len: usize) -> io::Result<Mapping> {
        let budget = Arc::<Budget>::default();
        let charge = Charge::new(&budget, len as u64).map_err(io::Error::other)?;
        // SAFETY: a new mapping at an address that the system chooses overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        charge.keep();
        Ok(Mapping {
            base: NonNull::new(base.cast()).expect("mmap does not return a null pointer"),
            file_len: len as u64,
            span: len,
            writable: true,
            usual_pages: false,
            watch: None,
            file: None,
            budget,
        })
    }

    /// Maps `range` of `fd`. `unit` is the page size of the file's file system.
    fn new(
        fd: &OwnedFd,
        range: Range,
        writable: bool,
        unit: usize,
        budget: &Arc<Budget>,
        flag: &LostFlag,
    ) -> Result<Mapping, MapError> {
        let too_large = || MapError::System(io::Error::from_raw_os_error(libc::ENOMEM));
        let span = usize::try_from(range.len)
            .ok()
            .and_then(|len| len.checked_next_multiple_of(unit))
            .ok_or_else(too_large)?;
        let charge = Charge::new(budget, span as u64)?;
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        // Pages can be put together only where address and place in the file are both at a huge
        // page's start.
        let usual_pages = unit < HUGE_PAGE_LEN && span >= HUGE_PAGE_LEN && range.offset == 0;
        let (room, flags) = if usual_pages {
            let room = OwnMap::room(span, HUGE_PAGE_LEN)?;
            (Some(room), MapFlags::SHARED | MapFlags::FIXED)
        } else {
            (None, MapFlags::SHARED)
        };
        let place = room
            .as_ref()
            .map_or(ptr::null_mut(), |room| room.at(0, span).cast());
        // SAFETY: a new mapping, at an address that the system chooses or in the place of `room`,
        // which is reserved and unused.
        let base = unsafe { rustix::mm::mmap(place, span, protection, flags, fd, range.offset)? };
        std::mem::forget(room);
        let base = NonNull::new(base.cast()).expect("mmap does not return a null pointer");
        charge.keep();
        let mut mapping = Mapping {
            base,
            file_len: range.len,
            span,
            writable,
            usual_pages,
            watch: None,
            file: None,
            budget: budget.clone(),
        };
        // A guest's memory does not belong into our core dump. SAFETY: the range is the mapping
        // just made; the advice changes no bytes. An error changes nothing.
        let _ = unsafe { rustix::mm::madvise(base.as_ptr().cast(), span, Advice::LinuxDontDump) };
        let start = base.as_ptr() as usize;
        let bits = protection.bits() as c_int;
        let watch = Watch::new(start, span, unit, bits, flag).map_err(|error| match error {
            WatchError::TableFull => MapError::TableFull,
            WatchError::Handler(error) => MapError::Handler(error),
        })?;
        mapping.watch = Some(watch);
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // First out of the table: once the range is unmapped, somebody else's mapping may get the
        // same addresses.
        self.watch = None;
        // SAFETY: the mapping is ours, and every user of it held this value. An error changes
        // nothing.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.span) };
        self.budget.give_back(self.span as u64);
    }
}

/// Bytes of a file.
#[derive(Clone, Copy)]
struct Range {
    offset: u64,
    len: u64,
}

/// Mapped memory of one session, including unmapped memory that commands in flight still hold.
#[derive(Debug, Default)]
struct Budget {
    mappings: AtomicUsize,
    bytes: AtomicU64,
}

impl Budget {
    // Relaxed: the counts guard no other memory. Only a session's own thread takes; any thread that
    // drops the last user of a mapping gives back.
    fn take(&self, bytes: u64) -> Result<(), MapError> {
        let mappings = self.mappings.load(Ordering::Relaxed) + 1;
        let total = self.bytes.load(Ordering::Relaxed).checked_add(bytes);
        if mappings > MAX_SESSION_MAPPINGS || total.is_none_or(|total| total > MAX_SESSION_BYTES) {
            return Err(MapError::SessionLimit);
        }
        self.mappings.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.mappings.fetch_sub(1, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// A part of the budget, returned unless a mapping keeps it.
struct Charge<'b> {
    budget: &'b Budget,
    bytes: u64,
}

impl<'b> Charge<'b> {
    fn new(budget: &'b Budget, bytes: u64) -> Result<Self, MapError> {
        budget.take(bytes)?;
        Ok(Charge { budget, bytes })
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

/// The memory files of one session, each mapped once.
///
/// A file stays mapped when its last region goes: a guest behind a vIOMMU maps and unmaps all day.
/// Files without regions are unmapped when the client shares another file, and all files when the
/// session ends.
#[derive(Debug, Default)]
pub struct ClientMappings {
    files: Vec<KnownFile>,
    /// Grows with every file that is mapped.
    changes: u64,
    lost: LostFlag,
    budget: Arc<Budget>,
}

#[derive(Debug)]
struct KnownFile {
    identity: Identity,
    mapping: Arc<Mapping>,
}

/// A file's identity and access mode. An inode number cannot be reused for another file while its
/// mapping holds the file. A read-only descriptor never gets a writable mapping, even if another
/// descriptor would allow one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    writable: bool,
}

impl ClientMappings {
    /// No files, nothing lost.
    pub fn new() -> Self {
        Self::default()
    }

    /// The mapping of the file behind `fd`, created now or before. The descriptor is kept
    /// ([`Mapping::file`]) or closed: a mapping needs none.
    ///
    /// A file whose size has changed since it was mapped is mapped again; regions keep their
    /// previous mapping.
    ///
    /// # Errors
    /// See [`MapError`]. The mappings that regions use have not changed then.
    pub fn map(&mut self, fd: OwnedFd) -> Result<Arc<Mapping>, MapError> {
        let may_write = may_write(&fd)?;
        let seals = seals_of_memory(&fd)?;
        let stat = rustix::fs::fstat(&fd)?;
        let unit = unit_of_memory(&fd)?;
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        if len == 0 {
            return Err(MapError::Empty);
        }
        let identity = Identity {
            device: stat.st_dev,
            inode: stat.st_ino,
            // A seal forbids new writable mappings.
            writable: may_write && !seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE),
        };
        let known = self.files.iter().find(|file| file.identity == identity);
        if let Some(file) = known
            && file.mapping.len() == len
        {
            return Ok(file.mapping.clone());
        }
        // Before the charge for the new mapping, drops unused ones and that of the file's old size.
        self.files
            .retain(|file| Arc::strong_count(&file.mapping) > 1 && file.identity != identity);
        let range = Range { offset: 0, len };
        let mut mapping = Mapping::new(
            &fd,
            range,
            identity.writable,
            unit,
            &self.budget,
            &self.lost,
        )?;
        let files = self.budget.mappings.load(Ordering::Relaxed);
        mapping.file = (files <= MAX_SESSION_DESCRIPTORS).then_some(fd);
        let mapping = Arc::new(mapping);
        self.files.push(KnownFile {
            identity,
            mapping: mapping.clone(),
        });
        self.changes += 1;
        Ok(mapping)
    }

    /// The files that are mapped now.
    pub fn mappings(&self) -> impl Iterator<Item = &Arc<Mapping>> {
        self.files.iter().map(|file| &file.mapping)
    }

    /// Number of files mapped so far: a change shows that there is a new one.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The flag that is raised when any of this session's memory is lost.
    pub fn lost(&self) -> LostFlag {
        self.lost.clone()
    }
}

/// Maps whole pages of a server's file for a host: doorbells, writable.
pub(crate) fn map_pages(
    fd: &OwnedFd,
    offset: u64,
    len: u64,
    flag: &LostFlag,
) -> Result<Mapping, MapError> {
    if let Some(kind) = kind_of(fd) {
        return Err(MapError::NotFile(kind));
    }
    let stat = rustix::fs::fstat(fd)?;
    let unit = rustix::param::page_size();
    let file_len = u64::try_from(stat.st_size).unwrap_or(0);
    let out_of_file = MapError::OutOfFile {
        offset,
        len,
        file_len,
    };
    let whole = |bytes: u64| bytes.is_multiple_of(unit as u64);
    let inside = offset.checked_add(len).is_some_and(|end| end <= file_len);
    if len == 0 || !whole(offset) || !whole(len) || !inside {
        return Err(out_of_file);
    }
    let range = Range { offset, len };
    Mapping::new(fd, range, true, unit, &Arc::default(), flag)
}

/// Maps whole pages of a device's registers, writable. `fd` is VFIO's, which defines what may be
/// mapped.
pub(crate) fn map_device(
    fd: &OwnedFd,
    offset: u64,
    len: u64,
    flag: &LostFlag,
) -> Result<Mapping, MapError> {
    let unit = rustix::param::page_size();
    let range = Range { offset, len };
    Mapping::new(fd, range, true, unit, &Arc::default(), flag)
}

/// The seals of a file that is memory.
///
/// This question comes first, because it is answered without asking the file: fstat(2) and
/// fstatfs(2) of a file that a client's own FUSE daemon serves may never return. Only tmpfs and
/// hugetlbfs know seals.
fn seals_of_memory(fd: &OwnedFd) -> Result<SealFlags, MapError> {
    rustix::fs::fcntl_get_seals(fd).map_err(|_| match kind_of(fd) {
        Some(kind) => MapError::NotFile(kind),
        None => not_memory(fd),
    })
}

/// Names the file: its path is known to the kernel without asking its file system.
fn not_memory(fd: &OwnedFd) -> MapError {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    MapError::NotMemory(std::fs::read_link(link).unwrap_or_default())
}

/// The type of a descriptor that is not a regular file.
fn kind_of(fd: &OwnedFd) -> Option<&'static str> {
    // DONT_SYNC: the kind is known without asking a disk, a server or a daemon.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(fd, c"", flags, StatxFlags::TYPE).ok()?;
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::RegularFile => None,
        FileType::Directory => Some("a directory"),
        FileType::Fifo => Some("a pipe"),
        FileType::Socket => Some("a socket"),
        FileType::CharacterDevice => Some("a character device"),
        FileType::BlockDevice => Some("a block device"),
        FileType::Symlink => Some("a symbolic link"),
        // eventfd, epoll, io_uring and their like have no type.
        _ => Some("not a file at all"),
    }
}

/// The page size of a memory file's file system: a huge page for hugetlbfs.
fn unit_of_memory(fd: &OwnedFd) -> Result<usize, MapError> {
    let stat = rustix::fs::fstatfs(fd)?;
    // The field's type differs by architecture; the magic numbers have 32 bits.
    match stat.f_type as u32 {
        TMPFS_MAGIC => Ok(rustix::param::page_size()),
        HUGETLBFS_MAGIC => usize::try_from(stat.f_bsize)
            .ok()
            .filter(|size| size.is_power_of_two())
            .ok_or_else(|| not_memory(fd)),
        _ => Err(not_memory(fd)),
    }
}

/// Whether the descriptor was opened for writing; it must be open for reading.
fn may_write(fd: &OwnedFd) -> Result<bool, MapError> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    if flags.contains(OFlags::PATH) {
        return Err(MapError::NotReadable);
    }
    match flags & OFlags::ACCMODE {
        OFlags::RDWR => Ok(true),
        OFlags::RDONLY => Ok(false),
        _ => Err(MapError::NotReadable),
    }
}
