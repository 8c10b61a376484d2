//! The mount point: checks before mounting, and unmounting.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use anyhow::{Context, bail};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

const DEVICE: &str = "/dev/fuse";
/// The helper that mounts and unmounts for users without privileges, from the package fuse3.
const HELPER: &str = "fusermount3";
/// Folder of the kernel's FUSE connections.
const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// Checks that `dir` can be a mount point, and unmounts what a killed process left there.
pub(super) fn prepare(dir: &Path) -> anyhow::Result<()> {
    check_device()?;
    let metadata = match fs::metadata(dir) {
        Err(error) if is_dead(&error) => {
            tracing::warn!(
                "{} is mounted by a process that no longer exists: unmounting it",
                dir.display()
            );
            unmount(dir, true)?;
            fs::metadata(dir)
        }
        other => other,
    };
    match metadata {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => bail!("{} is not a folder: name an empty folder", dir.display()),
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(
            "the folder {} does not exist: create it, as with mkdir -p",
            dir.display()
        ),
        Err(error) => return Err(error).with_context(|| format!("cannot use {}", dir.display())),
    }
    let mut entries =
        fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    if entries.next().is_some() {
        bail!(
            "{} is not empty, and its files would be hidden: name an empty folder, or unmount the file system there",
            dir.display()
        );
    }
    Ok(())
}

/// Whether a folder is mounted by a process that no longer exists, by the error of a look at it.
fn is_dead(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOTCONN)
}

/// Unmounts `dir` if the process that had mounted it no longer exists. No effect on other folders.
///
/// # Errors
/// The system's.
pub fn unmount_dead(dir: &Path) -> io::Result<()> {
    match fs::metadata(dir) {
        Err(error) if is_dead(&error) => unmount(dir, true),
        _ => Ok(()),
    }
}

fn check_device() -> anyhow::Result<()> {
    match rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) {
        Ok(_) => {}
        Err(Errno::NOENT | Errno::NODEV | Errno::NXIO) => {
            bail!("{DEVICE} does not exist: load the kernel's module, as with modprobe fuse")
        }
        Err(Errno::ACCESS | Errno::PERM) => {
            bail!(
                "cannot open {DEVICE}: permission denied; make it readable and writable, or run as root"
            )
        }
        Err(errno) => bail!("cannot open {DEVICE}: {errno}"),
    }
    if !rustix::process::geteuid().is_root() && !is_on_path(HELPER) {
        bail!("only root may mount without {HELPER}: install the package fuse3");
    }
    Ok(())
}

fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Advice for a mount that the system refused.
pub(super) fn explain(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            ": only root may, or write user_allow_other into /etc/fuse.conf for allow_other"
        }
        _ => "",
    }
}

/// Unmounts a folder; lazily with `in_use`, otherwise only if no file is in use.
pub(super) fn unmount(dir: &Path, in_use: bool) -> io::Result<()> {
    let flags = if in_use {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    match rustix::mount::unmount(dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::PERM) => ask_helper(dir, in_use),
        Err(errno) => Err(errno.into()),
    }
}

/// Aborts a connection: the kernel fails its current and later requests. The file belongs to the
/// user of the mount (Documentation/filesystems/fuse.rst).
pub(super) fn abort(connection: u32) -> io::Result<()> {
    fs::write(format!("{CONNECTIONS}/{connection}/abort"), "1")
}

/// Unmounts a folder even with files in use, and has the kernel fail its current and later
/// requests. `connection` is its number, for users who may not force an unmount.
pub(super) fn end(dir: &Path, connection: Option<u32>) -> io::Result<()> {
    match rustix::mount::unmount(dir, UnmountFlags::FORCE | UnmountFlags::DETACH) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(errno) => return Err(errno.into()),
    }
    let unmounted = ask_helper(dir, true);
    if let Some(connection) = connection
        && let Err(error) = abort(connection)
    {
        tracing::debug!("{}: its connection is not aborted: {error}", dir.display());
    }
    unmounted
}

/// The connection number of the mount at `dir`.
pub(super) fn connection(dir: &Path) -> io::Result<u32> {
    Ok(rustix::fs::minor(rustix::fs::stat(dir)?.st_dev))
}

/// Unmounts through the helper, for users other than root.
fn ask_helper(dir: &Path, in_use: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u").args(in_use.then_some("-z"));
    command.arg("--").arg(dir).stdin(Stdio::null());
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.trim().to_owned()))
}
