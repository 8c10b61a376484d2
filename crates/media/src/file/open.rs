//! Opening a file or block device: kind, lock, size, in this order, so that nothing is changed
//! in a file that is somebody else's.
//!
//! The lock is an open-file-description write lock on the whole file. It conflicts with a second
//! opener in this process, in another one, and with QEMU's image locks (read locks on single
//! bytes of the same kind). A block device is opened with `O_EXCL` as well, which a mounted or
//! otherwise claimed device refuses. Both are advisory: a program that asks for neither is not
//! kept out (what is noticed of it stands in [`super::health`]).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{
    FallocateFlags, FileType, Mode, OFlags, SeekFrom, fallocate, fstat, fstatfs, stat,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::direct::{self, Access, Direct};
use crate::error::MediumError;

/// The smallest LBA size there is; every size and offset is a multiple of it.
pub(super) const SECTOR: u64 = 512;

/// A file that is locked, of the right size, and ready for I/O.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
    /// Bytes; fixed from here on.
    pub(super) size: u64,
    pub(super) is_block_device: bool,
    /// It was opened for reading alone.
    pub(super) read_only: bool,
    /// It is nowhere but in memory.
    pub(super) is_memory: bool,
    /// The block device that it is, or that its file system lies on where that is one.
    pub(super) device: u64,
    pub(super) access: Access,
    /// Whether ranges can be given back to the file system or device.
    pub(super) punches: bool,
    /// Bytes that the file system or device prefers to move at once.
    pub(super) optimal_bytes: u32,
}

/// Opens `path`, or creates it sparse with `size` bytes where it does not exist and is not
/// `read_only`.
///
/// # Errors
/// Every way in which the file is not what is configured, or is somebody else's.
pub(super) fn open(
    path: &Path,
    size: Option<u64>,
    direct: Direct,
    read_only: bool,
) -> Result<Opened, MediumError> {
    if let Some(size) = size
        && (size == 0 || !size.is_multiple_of(SECTOR))
    {
        return Err(MediumError::Size { size });
    }
    let (fd, is_block_device, actual) = match (open_existing(path, read_only)?, size) {
        (Some((fd, is_block_device)), _) => {
            patiently(|| lock(&fd, path, read_only))?;
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
        read_only,
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

/// Releases the lock at once. Closing would do it too, but a ring that is being taken down can
/// keep the file open a little longer, and the next opener must not find it locked.
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

/// The file and whether it is a block device; `None` where there is no such file.
fn open_existing(path: &Path, read_only: bool) -> Result<Option<(OwnedFd, bool)>, MediumError> {
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
    let fd = patiently(|| {
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

/// Gives the last user a second to let go: of one that was killed the kernel may have to end what
/// is under way first, and a process that is being started shares the open files of its parent
/// until it becomes another program.
#[expect(
    clippy::disallowed_methods,
    reason = "nobody is served yet by a medium that is being opened"
)]
fn patiently<T>(mut take: impl FnMut() -> Result<T, MediumError>) -> Result<T, MediumError> {
    const TRIES: u32 = 50;
    const PAUSE: Duration = Duration::from_millis(20);
    for _ in 0..TRIES {
        match take() {
            Err(MediumError::Locked { .. }) => std::thread::sleep(PAUSE),
            taken => return taken,
        }
    }
    take()
}

/// Readers share a lock, which keeps writers out.
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
            // The kernel answers -1 for a holder that is an open file and no process.
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

/// Makes a sparse file that survives a crash right after this returns.
fn create(path: &Path, size: u64) -> Result<OwnedFd, MediumError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    let fd = match rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR) {
        Ok(fd) => fd,
        // EEXIST among them: somebody was quicker, or it is a link to nowhere.
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
            // It is ours, empty, and of no use: best effort, the first error is the one to tell.
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

/// Whether the file system or device takes ranges back, found without touching a byte.
fn punches(fd: &OwnedFd, is_block_device: bool, size: u64, device: u64) -> bool {
    if is_block_device {
        return queue_limit(device, "write_zeroes_max_bytes").is_some_and(|bytes| bytes > 0);
    }
    // Past the end there is nothing to lose; a file system without the operation still says so.
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

/// Whether the file's file system is memory, so that nothing in it waits for a device: tmpfs (also
/// what a memfd lives in).
fn is_memory(fd: &OwnedFd) -> bool {
    const TMPFS_MAGIC: u32 = 0x0102_1994; // linux/magic.h
    fstatfs(fd).is_ok_and(|status| status.f_type as u32 == TMPFS_MAGIC)
}

/// Whether the kernel has a block device, or a partition, as read-only: what `BLKROGET` tells.
/// Where sysfs is not to be seen nothing is known, and writes will tell.
pub(super) fn is_read_only_device(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let told = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro"));
    told.is_ok_and(|told| told.trim() == "1")
}

/// Whether the file system of a file is mounted, or became, read-only.
pub(super) fn is_read_only_mount(fd: &OwnedFd) -> bool {
    rustix::fs::fstatvfs(fd)
        .is_ok_and(|told| told.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY))
}

/// A number from a block device's queue directory; a partition uses its disk's.
pub(super) fn queue_limit(device: u64, name: &str) -> Option<u64> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let base = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let text = std::fs::read_to_string(base.join("queue").join(name))
        .or_else(|_| std::fs::read_to_string(base.join("../queue").join(name)))
        .ok()?;
    text.trim().parse().ok()
}
