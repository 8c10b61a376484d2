//! Controllers with `listen = "fuse:FOLDER"`: each has a mount as its host. It is in this process,
//! unless a holder replaces that.

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::Context;
use api::Refusal;
use api::config::{Controller, Listen};
use driver::wait::Wait;
use fuse::process::{self, Child};
use fuse::{Mount, Options};
use holder::Holder;
use tempfile::TempDir;

use super::State;
use crate::survival;

/// A path of a socket is shorter.
const MAX_PATH: u64 = 4096;

/// Where the host of a controller attaches.
#[derive(Debug)]
pub(super) enum Socket {
    /// A path that hosts know.
    Public(PathBuf),
    /// A path that only the mount knows: a socket in a temporary folder, which is removed once the
    /// mount has attached; where a holder has the socket, once the mount has ended.
    Private(TempDir),
    /// The socket of a mount that a former process of this server has started.
    Found(PathBuf),
}

impl Socket {
    /// The socket of a controller; it is not bound yet.
    pub(super) fn of(listen: &Listen) -> anyhow::Result<Self> {
        match listen {
            Listen::VfioUser(path) | Listen::Unix(path) => Ok(Socket::Public(path.clone())),
            Listen::Fuse(_) => {
                let folder = tempfile::Builder::new().prefix("nvmirage-").tempdir();
                let folder = folder.context("cannot make a folder for a socket")?;
                Ok(Socket::Private(folder))
            }
            Listen::NvmeTcp(_) | Listen::Nbd(_) | Listen::VhostUserBlk(_) | Listen::Ublk(_) => {
                anyhow::bail!("no host over vfio-user attaches at {listen}")
            }
        }
    }

    /// Leaves the folder where it is: for a mount that outlives this process.
    pub(super) fn leave(self) {
        if let Socket::Private(folder) = self {
            let _ = folder.keep();
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        match self {
            Socket::Public(path) | Socket::Found(path) => path.clone(),
            Socket::Private(folder) => folder.path().join("host"),
        }
    }
}

/// The mount of a controller.
#[derive(Debug)]
pub(super) enum Mounted {
    /// In this process.
    Here(Mount),
    /// In a process of its own, which outlives this one.
    Apart(Child),
}

impl Mounted {
    /// Number of open files.
    pub(super) fn open_files(&self) -> usize {
        match self {
            Self::Here(mount) => mount.open_files(),
            Self::Apart(child) => child.open_files(),
        }
    }

    /// Ends the mount.
    pub(super) fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Here(mount) => mount.stop(),
            Self::Apart(child) => child.stop(),
        }
    }
}

/// Mounts a controller that listens at `socket`, if it is configured as a mount.
pub(super) fn mount(config: &Controller, socket: &Path) -> anyhow::Result<Option<Mounted>> {
    let Listen::Fuse(dir) = &config.listen else {
        return Ok(None);
    };
    let fuse = config.fuse.unwrap_or_default();
    let options = Options {
        allow_other: fuse.allow_other,
        page_cache: fuse.page_cache,
        queues: config.queues.into(),
        name: config.name.clone(),
        wait: Wait::Not,
        interrupt: None,
    };
    let mount = Mount::start(socket, dir, &options)?;
    Ok(Some(Mounted::Here(mount)))
}

/// As [`mount`], in a process of its own that the next process of this server finds.
pub(super) fn mount_apart(
    config: &Controller,
    socket: &Path,
    holder: &Holder,
) -> anyhow::Result<Option<Mounted>> {
    let Listen::Fuse(dir) = &config.listen else {
        return Ok(None);
    };
    let (ours, theirs) = process::socket().context("cannot make a socket")?;
    // First: the mount ends when its socket has no other owner.
    let path = socket.as_os_str().as_bytes();
    holder.keep_bytes(&survival::mount_socket_name(&config.name), path)?;
    holder.keep(&survival::mount_name(&config.name), ours.as_fd())?;
    let fuse = config.fuse.unwrap_or_default();
    let mut target = OsString::from("vfio-user:");
    target.push(socket);
    let mut arguments: Vec<OsString> = vec!["mount".into(), "--of-server".into()];
    arguments.extend(["--target".into(), target]);
    arguments.extend(["--name".into(), config.name.clone().into()]);
    arguments.extend(["--queues".into(), config.queues.to_string().into()]);
    arguments.extend(fuse.allow_other.then(|| "--allow-other".into()));
    arguments.extend(fuse.page_cache.then(|| "--page-cache".into()));
    arguments.extend(["--".into(), dir.clone().into()]);
    let program = Path::new("/proc/self/exe");
    let child = Child::start(program, &arguments, socket, (ours, theirs));
    if child.is_err() {
        forget(holder, &config.name);
    }
    Ok(Some(Mounted::Apart(child?)))
}

/// Unmounts the folder of a mount whose process no longer exists.
pub(super) fn unmount_dead(listen: &Listen) {
    if let Listen::Fuse(dir) = listen
        && let Err(error) = fuse::unmount_dead(dir)
    {
        tracing::warn!("{} stays mounted: {error}", dir.display());
    }
}

/// Has the holder forget the mount of a controller.
fn forget(holder: &Holder, controller: &str) {
    let names = [survival::mount_name, survival::mount_socket_name].map(|of| of(controller));
    for name in &names {
        if let Err(error) = holder.forget(name) {
            tracing::warn!("{name} is kept until the server ends: {error}");
        }
    }
}

impl State {
    /// The mount that a former process has started for a controller, where it runs.
    pub(super) fn find_mount(&self, config: &Controller) -> anyhow::Result<Option<Child>> {
        let (Some(holder), Listen::Fuse(dir)) = (&self.holder, &config.listen) else {
            return Ok(None);
        };
        if !self.is_continuing {
            return Ok(None);
        }
        let socket = holder.fetch(&survival::mount_name(&config.name))?;
        let path = survival::mount_socket_name(&config.name);
        let path = holder.fetch_bytes(&path, MAX_PATH)?;
        let found = socket.zip(path).map(|(socket, path)| {
            let path = PathBuf::from(OsString::from_vec(path));
            Child::of(socket, &path)
        });
        let found = found.filter(Child::is_running);
        if found.is_none() {
            tracing::error!(
                controller = config.name,
                "its mount at {} has ended: delete the controller, and create it again",
                dir.display()
            );
            unmount_dead(&config.listen);
        }
        Ok(found)
    }

    /// Has the holder forget the mount of a controller, which has ended, and its socket.
    pub(super) fn forget_mount(&self, controller: &str, socket: &Path) {
        let Some(holder) = &self.holder else {
            return;
        };
        forget(holder, controller);
        self.close_at_holder(socket);
        if let Some(folder) = socket.parent()
            && let Err(error) = fs::remove_dir(folder)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!("{} cannot be removed: {error}", folder.display());
        }
    }

    /// Unmounts a controller, if it is mounted and none of its files is in use.
    pub(super) fn unmount(&mut self, at: usize) -> Result<(), Refusal> {
        let unmounted = match &mut self.controllers[at].mount {
            Some(Mounted::Here(mount)) => mount.unmount().map_err(Into::into),
            Some(Mounted::Apart(child)) => child.unmount(),
            None => Ok(()),
        };
        unmounted.map_err(|busy| Refusal::conflict(busy.to_string()))
    }
}
