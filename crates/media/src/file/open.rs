//! Opening of a file or block device: kind, lock, size, in this order, so that a file in use by
//! another program is not changed.
//!
//! The lock is an open-file-description write lock on the whole file. It conflicts with a second
//! opener in this process or another one, and with QEMU's image locks (read locks of the same kind
//! on single bytes). A block device is also opened with `O_EXCL`, which fails if it is mounted or
//! otherwise claimed. Both are advisory: they do not keep out a program that asks for neither (see
//! [`super::health`] for the detection of its effects).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{
    FallocateFlags, FileType, Mode, OFlags, SeekFrom, fallocate, fstat, fstatfs, stat,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::direct::{self, Access, Direct};
use super::{FileIo, SECTOR};
use crate::error::MediumError;

/// How long the last user of a file may take to release it.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same, where that is a process that died, of which the kernel may have operations: a host
/// waits 5 s for a reply.
const OPERATIONS_PATIENCE: Duration = Duration::from_millis(4500);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// A file that is locked, of the right size, and ready for I/O.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
    /// Size in bytes; fixed from here on.
    pub(super) size: u64,
    pub(super) is_block_device: bool,
    /// Whether it was created.
    pub(super) is_new: bool,
    /// Whether it was opened read-only.
    pub(super) read_only: bool,
    /// Whether it was locked: always, unless two servers use it in turn.
    pub(super) is_locked: bool,
    /// Whether it exists only in memory.
    pub(super) is_memory: bool,
    /// The block device itself, or the one below its file system, if any.
    pub(super) device: u64,
    pub(super) access: Access,
    /// Whether the file system or device can free ranges.
    pub(super) punches: bool,
    /// Preferred I/O size of the file system or device, in bytes.
    pub(super) optimal_bytes: u32,
}

/// Opens `path`, or creates it sparse with `size` bytes if it does not exist and `read_only` is
/// false.
///
/// # Errors
/// The file differs from its configuration, or is in use.
pub(super) fn open(
    path: &Path,
    size: Option<u64>,
    direct: Direct,
    io: FileIo,
) -> Result<Opened, MediumError> {
    let read_only = io.read_only;
    let patience = if io.survives {
        OPERATIONS_PATIENCE
    } else {
        PATIENCE
    };
    if let Some(size) = size
        && (size == 0 || !size.is_multiple_of(SECTOR))
    {
        return Err(MediumError::Size { size });
    }
    let found = open_existing(path, read_only, patience)?;
    let is_new = found.is_none();
    let mut is_locked = true;
    let (fd, is_block_device, actual) = match (found, size) {
        (Some((_, true)), _) if io.migrates => {
            return Err(MediumError::DeviceMigrates { path: path.into() });
        }
        (Some((fd, is_block_device)), _) => {
            match patiently(patience, || lock(&fd, path, read_only)) {
                Err(MediumError::Locked { .. }) if io.migrates => is_locked = false,
                locked => locked?,
            }
            let actual = length(&fd, path, is_block_device)?;
            (fd, is_block_device, actual)
        }
        (None, _) if read_only => return Err(MediumError::NothingToRead { path: path.into() }),
        (None, Some(size)) => (create(path, size)?, false, size),
        (None, None) => return Err(MediumError::Missing { path: path.into() }),
    };
    check_size(path, size, actual, is_block_device)?;
    let access = direct::choose(&fd, path, direct)?;
    let status = fstat(&fd).map_err(failed(path, "examine"))?;
    let preferred = u32::try_from(status.st_blksize).unwrap_or(0);
    if is_block_device && !read_only && is_read_only_device(status.st_rdev) {
        return Err(MediumError::ReadOnly {
            path: path.into(),
            reason: "the device is read-only (`blockdev --getro`)".to_owned(),
        });
    }
    Ok(Opened {
        punches: !read_only && punches(&fd, is_block_device, actual, status.st_rdev),
        is_new,
        read_only,
        is_locked,
        path: path.into(),
        size: actual,
        is_block_device,
        is_memory: !is_block_device && is_memory(&fd),
        device: if is_block_device {
            status.st_rdev
        } else {
            status.st_dev
        },
        access,
        optimal_bytes: preferred.clamp(SECTOR as u32, 1 << 20).next_power_of_two(),
        fd,
    })
}

impl Opened {
    /// Takes the lock again, or for the first time, without waiting for it. The file must not have
    /// another length by now.
    pub(super) fn claim(&self) -> Result<(), MediumError> {
        lock(&self.fd, &self.path, self.read_only)?;
        let actual = length(&self.fd, &self.path, self.is_block_device);
        let same = actual.and_then(|actual| {
            check_size(&self.path, Some(self.size), actual, self.is_block_device)
        });
        same.inspect_err(|_| unlock(&self.fd))
    }

    /// A handle whose file system tells how much is free; `None` for a block device. It holds
    /// neither the lock nor the content.
    pub(super) fn room(&self) -> Option<OwnedFd> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let path = (!self.is_block_device).then_some(&self.path)?;
        rustix::fs::open(path, flags, Mode::empty()).ok()
    }
}

/// Releases the lock at once. Closing would do it too, but a ring that is being destroyed can keep
/// the file open a little longer, and the next opener must not find it locked.
pub(super) fn unlock(fd: impl AsFd) {
    // A failure leaves the lock to the closing of the file, which cannot fail to release it.
    let _ = fcntl(fd, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_UNLCK)));
}

fn failed(path: &Path, what: &'static str) -> impl Fn(Errno) -> MediumError {
    move |errno| MediumError::Io {
        path: path.into(),
        what,
        source: errno.into(),
    }
}

/// The file, and whether it is a block device; `None` if the file does not exist.
fn open_existing(
    path: &Path,
    read_only: bool,
    patience: Duration,
) -> Result<Option<(OwnedFd, bool)>, MediumError> {
    let kind = match stat(path) {
        Ok(status) => FileType::from_raw_mode(status.st_mode),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(failed(path, "open")(errno)),
    };
    let exclusive = match kind {
        FileType::RegularFile => OFlags::empty(),
        FileType::BlockDevice => OFlags::EXCL,
        other => {
            return Err(MediumError::NotAFile {
                path: path.into(),
                what: article(other),
            });
        }
    };
    let access = if read_only {
        OFlags::RDONLY
    } else {
        OFlags::RDWR
    };
    let flags = access | OFlags::CLOEXEC | exclusive;
    let fd = patiently(patience, || {
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::BUSY => MediumError::Locked {
                path: path.into(),
                pid: None,
            },
            errno if read_only => failed(path, "open for reading")(errno),
            errno @ (Errno::ROFS | Errno::ACCESS | Errno::PERM) => MediumError::ReadOnly {
                path: path.into(),
                reason: format!("cannot open it for reading and writing: {errno}"),
            },
            errno => failed(path, "open for reading and writing")(errno),
        })
    })?;
    // The path may have been replaced between the two calls.
    let opened = FileType::from_raw_mode(fstat(&fd).map_err(failed(path, "examine"))?.st_mode);
    if opened != kind {
        return Err(MediumError::NotAFile {
            path: path.into(),
            what: "being replaced",
        });
    }
    Ok(Some((fd, kind == FileType::BlockDevice)))
}

fn article(kind: FileType) -> &'static str {
    match kind {
        FileType::Directory => "a directory",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "no file",
    }
}

fn whole_file(kind: i32) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0, // to the end, however far that moves
        l_pid: 0, // must be 0 for locks of this kind
    }
}

/// Waits for the previous user to release the file, up to `patience`: the kernel may have to end
/// operations of a killed process first, and a starting process shares its parent's open files
/// until it executes another program.
#[expect(
    clippy::disallowed_methods,
    reason = "a medium that is being opened serves no host yet"
)]
fn patiently<T>(
    patience: Duration,
    mut take: impl FnMut() -> Result<T, MediumError>,
) -> Result<T, MediumError> {
    let until = Instant::now() + patience;
    loop {
        match take() {
            Err(MediumError::Locked { .. }) if Instant::now() < until => {
                std::thread::sleep(PAUSE);
            }
            taken => return taken,
        }
    }
}

/// Readers use a shared lock, which keeps writers out.
fn lock(fd: &OwnedFd, path: &Path, read_only: bool) -> Result<(), MediumError> {
    let kind = if read_only {
        libc::F_RDLCK
    } else {
        libc::F_WRLCK
    };
    match fcntl(fd, FcntlArg::F_OFD_SETLK(&whole_file(kind))) {
        Ok(_) => Ok(()),
        Err(nix::Error::EAGAIN | nix::Error::EACCES) => {
            let mut holder = whole_file(kind);
            let asked = fcntl(fd, FcntlArg::F_OFD_GETLK(&mut holder));
            // The kernel answers -1 if the holder is an open file rather than a process.
            let pid = asked
                .ok()
                .and_then(|_| u32::try_from(holder.l_pid).ok())
                .filter(|pid| *pid != 0);
            Err(MediumError::Locked {
                path: path.into(),
                pid,
            })
        }
        Err(errno) => Err(MediumError::Io {
            path: path.into(),
            what: "lock",
            source: errno.into(),
        }),
    }
}

fn length(fd: &OwnedFd, path: &Path, is_block_device: bool) -> Result<u64, MediumError> {
    if is_block_device {
        return rustix::fs::seek(fd, SeekFrom::End(0)).map_err(failed(path, "find the size of"));
    }
    let status = fstat(fd).map_err(failed(path, "examine"))?;
    Ok(u64::try_from(status.st_size).unwrap_or(0))
}

fn check_size(
    path: &Path,
    configured: Option<u64>,
    actual: u64,
    is_block_device: bool,
) -> Result<(), MediumError> {
    if let Some(configured) = configured
        && configured != actual
    {
        return Err(MediumError::SizeMismatch {
            path: path.into(),
            configured,
            actual,
        });
    }
    if actual == 0 || !actual.is_multiple_of(SECTOR) {
        let remedy = match (is_block_device, actual) {
            (true, _) => "attach a device with a capacity",
            (false, 0) => "remove it and give a size to have it created",
            (false, _) => {
                "extend it with `truncate`, or move it away and give a size to have it created"
            }
        };
        return Err(MediumError::FileSize {
            path: path.into(),
            size: actual,
            remedy,
        });
    }
    Ok(())
}

/// Creates a sparse file that survives a crash right after this returns.
fn create(path: &Path, size: u64) -> Result<OwnedFd, MediumError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    let fd = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => fd,
        // Includes EEXIST: another process was faster, or the name is a dangling link.
        Err(errno) => return Err(failed(path, "create")(errno)),
    };
    lock(&fd, path, false)?;
    let fill = || -> io::Result<()> {
        rustix::fs::ftruncate(&fd, size)?;
        rustix::fs::fsync(&fd)?;
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(parent)?.sync_all()
    };
    match fill() {
        Ok(()) => Ok(fd),
        Err(source) => {
            // The new file is empty and useless. Removal is best effort; the first error is the one
            // to report.
            let _ = std::fs::remove_file(path);
            let limit = getrlimit(Resource::Fsize).current;
            if let Some(limit) = limit.filter(|limit| *limit < size) {
                let path = path.into();
                return Err(MediumError::FileSizeLimit { path, size, limit });
            }
            Err(MediumError::Io {
                path: path.into(),
                what: "give its size to",
                source,
            })
        }
    }
}

/// Whether the file system or device can free ranges, tested without changing any data.
fn punches(fd: &OwnedFd, is_block_device: bool, size: u64, device: u64) -> bool {
    if is_block_device {
        return queue_limit(device, "write_zeroes_max_bytes").is_some_and(|bytes| bytes > 0);
    }
    // Beyond the end there is no data to lose; a file system without the operation still reports
    // that.
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let past = size.next_multiple_of(4096);
    loop {
        match fallocate(fd, flags, past, 4096) {
            Ok(()) => return true,
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Whether the file's file system is in memory (tmpfs, also for a memfd), so that no operation
/// waits for a device.
fn is_memory(fd: &OwnedFd) -> bool {
    const TMPFS_MAGIC: u32 = 0x0102_1994; // linux/magic.h
    fstatfs(fd).is_ok_and(|status| status.f_type as u32 == TMPFS_MAGIC)
}

/// Whether the kernel reports a block device, or a partition, as read-only, as `BLKROGET` would.
/// Without access to sysfs this is unknown, and writes will show it.
pub(super) fn is_read_only_device(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let told = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    told.is_ok_and(|told| told.trim() == "1")
}

/// Whether the file's file system is mounted read-only, or has become read-only.
pub(super) fn is_read_only_mount(fd: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(fd)
        .is_ok_and(|told| told.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// A value from a block device's queue directory; a partition uses its disk's.
pub(super) fn queue_limit(device: u64, name: &str) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let base = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let text = std::fs::read_to_string(base.join("queue").join(name))
        .or_else(|_| std::fs::read_to_string(base.join("../queue").join(name)))
        .ok()?;
    text.trim().parse().ok()
}
