//! Controllers with `listen = "fuse:FOLDER"`: each has a mount as its host.

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use anyhow::Context;
use api::Refusal;
use api::config::{Controller, Listen};
use driver::wait::Wait;
use fuse::{Mount, Options};
use tempfile::TempDir;

use super::State;

/// Where the host of a controller attaches.
#[derive(Debug)]
pub(super) enum Socket {
    /// A path that hosts know.
    Public(PathBuf),
    /// A path that only the mount knows: a socket in a temporary folder, which is removed once the
    /// mount has attached.
    Private(TempDir),
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
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        match self {
            Socket::Public(path) => path.clone(),
            Socket::Private(folder) => folder.path().join("host"),
        }
    }
}

/// Mounts a controller that listens at `socket`, if it is configured as a mount.
pub(super) fn mount(config: &Controller, socket: &Path) -> anyhow::Result<Option<Mount>> {
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
    Mount::start(socket, dir, &options).map(Some)
}

impl State {
    /// Unmounts a controller, if it is mounted and none of its files is in use.
    pub(super) fn unmount(&mut self, at: usize) -> Result<(), Refusal> {
        match &mut self.controllers[at].mount {
            Some(mount) => mount
                .unmount()
                .map_err(|busy| Refusal::conflict(busy.to_string())),
            None => Ok(()),
        }
    }
}
