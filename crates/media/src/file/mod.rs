//! A regular file or a block device, through io_uring.
//!
//! Invariants:
//! - The size is fixed when the file is opened; nothing here makes the file longer. If another
//!   program makes it shorter, it fails ([`health`]).
//! - Flush is `fdatasync`; a FUA write carries `RWF_DSYNC`; Write Zeroes with FUA is followed by
//!   `fdatasync`. All other data stays in volatile caches until then.
//! - Deallocated bytes read as zero, or are unchanged if the file system or device cannot free
//!   space.
//! - One ring per channel, one operation per command at a time, and all memory allocated when the
//!   channel is created.
//! - Overlapping commands never run at the same time if they could mix their bytes
//!   ([`crate::order`]).
//!
//! Not included: an order of overlapping commands, a cache, and protection from programs that take
//! no lock.
//!
//! [`open`] finds and locks the file, [`direct`] chooses the access mode, [`ring`] holds the
//! io_uring and all unsafe code, [`channel`] turns requests into operations and results into
//! outcomes.

mod channel;
mod direct;
mod entry;
mod health;
mod op;
mod open;
mod pace;
#[allow(unsafe_code)] // the one place: see there
mod ring;
mod storage;
mod uring;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use memory::{Claimant, Run};
use port::{Cause, MediumTraits, Outcome};
use rustix::fs::{FallocateFlags, fdatasync, fstat};

pub(crate) use self::channel::FileChannel;
pub use self::direct::Direct;
use self::direct::{Access, Alignment};
use self::health::Health;
use self::op::Kind;
use self::open::Opened;
pub(crate) use self::storage::FileStorage;
use self::uring::Looks;
use crate::error::MediumError;
use crate::journal::Storage as _;
use crate::size::Bytes;
use crate::trouble::{Trouble, Troubles};

/// The smallest LBA size in bytes; every size and offset is a multiple of it.
const SECTOR: u64 = 512;

/// How a file's operations reach the kernel and come back. Of no meaning for a file in memory
/// (tmpfs), whose operations are done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIo {
    /// A kernel thread polls for submissions (`IORING_SETUP_SQPOLL`): no system calls, but a thread
    /// that spins while there is work.
    pub poll_submissions: bool,
    /// The device is asked for completions instead of interrupting (`IORING_SETUP_IOPOLL`). Needs
    /// direct I/O and a device with polled queues, or else the file is not opened.
    pub poll_completions: bool,
    /// Hosts' memory is registered with the kernel once it has been in use for a while, as far as
    /// the process may lock memory (`RLIMIT_MEMLOCK`). Registered memory is all allocated, and
    /// stays where it is.
    pub register_memory: bool,
    /// Another process goes on with the file if this one dies. So the file is not registered with
    /// the kernel, which spares each operation the search for it, but keeps file and lock for some
    /// 40 ms after a process; and opening waits for the operations of a process that died.
    pub survives: bool,
    /// It is opened for reading alone, never created, and takes no writes: for files and devices
    /// that cannot be written to, or must not be.
    pub read_only: bool,
    /// Two servers use it in turn ([`crate::Medium::release`]). A file whose lock another server
    /// has is opened without it, and takes no I/O before [`crate::Medium::claim`].
    pub migrates: bool,
}

impl Default for FileIo {
    fn default() -> Self {
        FileIo {
            poll_submissions: false,
            poll_completions: false,
            register_memory: true,
            survives: false,
            read_only: false,
            migrates: false,
        }
    }
}

/// Commands of a channel that moved bytes, by what the kernel had to do for their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// It was registered.
    pub registered: u64,
    /// It was not: every page is looked up and held for each command.
    pub plain: u64,
}

/// An open file or block device.
#[derive(Debug)]
pub(crate) struct FileMedium {
    opened: Opened,
    looks: Looks,
    register_memory: bool,
    health: Health,
    troubles: Arc<Troubles>,
    /// Whether it rejects writes: it was opened read-only, or its device or file system has become
    /// read-only.
    is_read_only: AtomicBool,
    /// Whether this process has the lock.
    is_held: AtomicBool,
    /// Set when the first attempt found the operation unsupported; it is not tried again.
    no_punch: AtomicBool,
    no_zero_range: AtomicBool,
    /// Sums over all channels; see [`IoCounts`].
    registered: AtomicU64,
    plain: AtomicU64,
    /// See [`FileCounts`].
    submissions: AtomicU64,
    flushes: AtomicU64,
}

/// Work of a file's channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Submission calls to the kernel: several for a large batch, and one for each operation of a
    /// file in memory.
    pub submissions: u64,
    /// Successful flushes (`fdatasync`), for hosts and for durable writes.
    pub flushes: u64,
}

/// A way to make a range read as zero without writing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clear {
    /// Frees the space in the file system or device.
    Punch,
    /// The space stays allocated.
    ZeroRange,
}

impl Clear {
    /// Neither mode grows the file.
    fn mode(self) -> FallocateFlags {
        let kind = match self {
            Clear::Punch => FallocateFlags::PUNCH_HOLE,
            Clear::ZeroRange => FallocateFlags::ZERO_RANGE,
        };
        kind | FallocateFlags::KEEP_SIZE
    }
}

impl FileMedium {
    /// Sum over all channels so far; `None` if hosts' memory is not to be registered.
    pub(crate) fn io_counts(&self) -> Option<IoCounts> {
        self.register_memory.then(|| IoCounts {
            registered: self.registered.load(Relaxed),
            plain: self.plain.load(Relaxed),
        })
    }

    /// Adds a channel's counts.
    fn add_counts(&self, more: IoCounts) {
        self.registered.fetch_add(more.registered, Relaxed);
        self.plain.fetch_add(more.plain, Relaxed);
    }

    /// Whether the file is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.opened.is_memory
    }

    /// Whether the file was created when it was opened.
    pub(crate) fn is_new(&self) -> bool {
        self.opened.is_new
    }

    /// Errors of its channels.
    pub(crate) fn troubles(&self) -> &Arc<Troubles> {
        &self.troubles
    }

    /// Records the outcome of a request.
    #[inline]
    fn note(&self, kind: Kind, outcome: &Outcome) {
        match outcome.cause {
            // A flush or a deallocation succeeds on a full disk, too.
            Cause::None if kind.moves() => self.troubles.succeeded(kind.reads()),
            Cause::None => {}
            _ => self.troubles.note(outcome),
        }
    }

    /// Sum over all channels so far.
    pub(crate) fn counts(&self) -> FileCounts {
        FileCounts {
            submissions: self.submissions.load(Relaxed),
            flushes: self.flushes.load(Relaxed),
        }
    }

    /// Adds a channel's counts.
    fn add_done(&self, more: FileCounts) {
        self.submissions.fetch_add(more.submissions, Relaxed);
        self.flushes.fetch_add(more.flushes, Relaxed);
    }

    /// See [`crate::MediumKind::File`].
    pub(crate) fn open(
        path: &Path,
        size: Option<u64>,
        direct: Direct,
        io: FileIo,
    ) -> Result<FileMedium, MediumError> {
        let opened = open::open(path, size, direct, io)?;
        let looks = Looks {
            kernel_thread: io.poll_submissions,
            at_device: io.poll_completions,
            plain_file: io.survives,
        };
        if io.poll_completions {
            try_polled(&opened, looks).map_err(|reason| MediumError::PollRefused {
                path: path.into(),
                reason,
            })?;
        }
        Ok(FileMedium {
            looks,
            register_memory: io.register_memory,
            no_punch: AtomicBool::new(!opened.punches),
            no_zero_range: AtomicBool::new(false),
            registered: AtomicU64::new(0),
            plain: AtomicU64::new(0),
            submissions: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            health: Health::default(),
            troubles: Arc::new(Troubles::of_file(opened.room())),
            is_read_only: AtomicBool::new(io.read_only),
            is_held: AtomicBool::new(opened.is_locked),
            opened,
        })
    }

    pub(crate) fn is_block_device(&self) -> bool {
        self.opened.is_block_device
    }

    /// See [`crate::Medium::file_id`].
    pub(crate) fn id(&self) -> io::Result<(u64, u64)> {
        let status = fstat(&self.opened.fd)?;
        Ok((status.st_dev, status.st_ino))
    }

    /// See [`crate::Medium::is_held`].
    pub(crate) fn is_held(&self) -> bool {
        self.is_held.load(Relaxed)
    }

    /// See [`crate::Medium::release`].
    pub(crate) fn release(&self) {
        self.is_held.store(false, Relaxed);
        open::unlock(self.opened.fd.as_fd());
    }

    /// See [`crate::Medium::claim`].
    pub(crate) fn claim(&self) -> Result<(), MediumError> {
        self.opened.claim()?;
        self.is_held.store(true, Relaxed);
        Ok(())
    }

    /// See [`crate::Medium::erase`].
    pub(crate) fn erase(&self, offset: u64, len: u64) -> io::Result<()> {
        let storage = FileStorage::of(&self.opened.fd, true)?;
        storage.clear(offset, len)?;
        storage.sync()
    }

    pub(crate) fn size(&self) -> u64 {
        self.opened.size
    }

    pub(crate) fn path(&self) -> &Path {
        &self.opened.path
    }

    /// The file for blocking calls; `None` for a block device.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn storage(&self) -> io::Result<Option<FileStorage>> {
        let is_file = !self.opened.is_block_device;
        is_file
            .then(|| FileStorage::of(&self.opened.fd, !self.opened.read_only))
            .transpose()
    }

    pub(crate) fn traits(&self) -> MediumTraits {
        MediumTraits {
            deallocate: self.opened.punches,
            deallocated_reads_zero: true,
            volatile_cache: true,
            optimal_bytes: self.opened.optimal_bytes,
            read_only: self.is_read_only.load(Relaxed),
            notes: false,
            // A block device has no holes to find.
            allocation: !self.opened.is_block_device,
            erases: false,
        }
    }

    /// The run of bytes at `offset` that have space in the file system, or none. May wait for the
    /// file system.
    ///
    /// # Errors
    /// The file system does not know, or the file has become shorter.
    pub(crate) fn run_at(&self, offset: u64, len: u64) -> io::Result<Run> {
        Run::of_file(self.opened.fd.as_fd(), offset, len)
    }

    /// See [`crate::Medium::look_read_only`].
    pub(crate) fn look_read_only(&self) -> bool {
        if self.opened.read_only {
            return false;
        }
        let now = match self.opened.is_block_device {
            true => open::is_read_only_device(self.opened.device),
            // The file system is queried only after it rejected a write, because a network file
            // system may not answer.
            false if self.troubles.met(Trouble::ReadOnly) => {
                open::is_read_only_mount(&self.opened.fd)
            }
            false => return false,
        };
        let changed = self.is_read_only.swap(now, Relaxed) != now;
        match now {
            true if changed => self.troubles.note_lasting(Trouble::ReadOnly, libc::EROFS),
            false if changed => self.troubles.pass(Trouble::ReadOnly),
            _ => {}
        }
        changed
    }

    pub(crate) fn min_lba_bytes(&self) -> u32 {
        match self.opened.access {
            Access::Direct(alignment) => alignment.offset as u32,
            Access::Buffered(_) => SECTOR as u32,
        }
    }

    pub(crate) fn describe(&self) -> String {
        let kind = match (self.opened.is_block_device, self.opened.read_only) {
            (true, false) => "block device",
            (true, true) => "block device opened for reading",
            (false, false) => "file",
            (false, true) => "file opened for reading",
        };
        let access = match &self.opened.access {
            Access::Direct(Alignment { memory, offset }) => {
                format!(
                    "direct I/O (O_DIRECT), buffers aligned to {memory} and blocks to {offset} bytes"
                )
            }
            Access::Buffered(why) => format!("buffered I/O: {why}"),
        };
        let submissions = if self.looks.kernel_thread {
            ", submissions polled for by the kernel"
        } else {
            ""
        };
        let completions = if self.looks.at_device {
            ", completions polled for"
        } else {
            ""
        };
        let elsewhere = if self.is_held() {
            ""
        } else {
            ", in use by another server"
        };
        format!(
            "{kind} '{}', {}, {access}{submissions}{completions}{elsewhere}",
            self.opened.path.display(),
            Bytes(self.opened.size)
        )
    }

    pub(crate) fn channel(
        self: &Arc<Self>,
        depth: u16,
        claimant: Claimant,
        slice: Option<u32>,
    ) -> io::Result<FileChannel> {
        FileChannel::new(Arc::clone(self), depth, claimant, slice)
    }

    /// Blocks until all written data is on the media.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if self.look_shrunk() {
            return Err(io::Error::other("the file shrank while it was in use"));
        }
        if let Some(errno) = self.health.flush_errno() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        fdatasync(&self.opened.fd).map_err(|errno| {
            self.flush_failed(errno.raw_os_error());
            errno.into()
        })
    }

    /// Checks the file's length, unless it is known to have shrunk. One system call; none for a
    /// block device.
    fn look_shrunk(&self) -> bool {
        if self.health.shrank() {
            return true;
        }
        if self.opened.is_block_device {
            return false;
        }
        let now = match fstat(&self.opened.fd) {
            Ok(status) => u64::try_from(status.st_size).unwrap_or(0),
            // The I/O itself will report the error.
            Err(_) => return false,
        };
        if now >= self.opened.size {
            return false;
        }
        if self.health.note_shrank() {
            self.troubles.note_lasting(Trouble::Gone, 0);
            tracing::error!(
                path = %self.opened.path.display(), from = self.opened.size, to = now,
                "a file shrank while it was in use: all its I/O fails until it is opened again"
            );
        }
        true
    }

    fn flush_failed(&self, errno: i32) {
        if self.health.note_flush_failed(errno) {
            self.troubles.note_lasting(Trouble::Write, errno);
            tracing::error!(
                path = %self.opened.path.display(), error = %io::Error::from_raw_os_error(errno),
                "written data could not be made durable: every flush fails until the file is opened again"
            );
        }
    }

    /// The way to clear a range: the host's preference, to free the space or to keep it, comes
    /// first.
    fn clear(&self, deallocate: bool) -> Option<Clear> {
        if deallocate && !self.no_punch.load(Relaxed) {
            return Some(Clear::Punch);
        }
        (!self.no_zero_range.load(Relaxed)).then_some(Clear::ZeroRange)
    }

    fn cannot(&self, clear: Clear) {
        match clear {
            Clear::Punch => self.no_punch.store(true, Relaxed),
            Clear::ZeroRange => self.no_zero_range.store(true, Relaxed),
        }
    }
}

/// Reads a little, to test whether the device behind a file supports polling for completions; the
/// error is the reason why not.
fn try_polled(opened: &Opened, looks: Looks) -> Result<(), String> {
    let alignment = match &opened.access {
        Access::Direct(alignment) if !opened.is_memory => alignment,
        Access::Direct(_) => return Err("it is in memory".to_owned()),
        Access::Buffered(why) => return Err(format!("it needs direct I/O; {why}")),
    };
    // Kernels before 6.12 accept the request although the device interrupts.
    if open::queue_limit(opened.device, "io_poll") == Some(0) {
        return Err(
            "its device has no polled queues; for an NVMe drive, load the driver nvme with poll_queues=N"
                .to_owned(),
        );
    }
    ring::try_read(opened.fd.as_fd(), looks, alignment.offset as u32)
        .map_err(|error| error.to_string())
}

impl Drop for FileMedium {
    fn drop(&mut self) {
        open::unlock(self.opened.fd.as_fd());
    }
}
