//! A drive of this machine itself: served, mounted, a loop device on it, and a file system on that.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use guest_rig::Server;
use tempfile::TempDir;
use xtask_shared::workspace::Workspace;

/// How long the server may take to end.
pub(crate) const STOP: Duration = Duration::from_secs(60);

/// An NVM model, whose latency and bandwidth are live. Its rates are limits of their own and not
/// asked for here.
const CONFIGURATION: &str = r#"
state_dir = "DIR/state"
control = "unix:DIR/control"

[[media]]
name = "drive"
kind = "ram"
size = "4GiB"

[media.timing]
preset = "optane-p4800x"

[[namespace]]
name = "drive"
media = "drive"

[[controller]]
name = "drive"
namespaces = ["drive"]
listen = "fuse:DIR/drive"
"#;

/// A served drive with its loop device and mount, which are removed in the order of the fields.
pub(super) struct Drive {
    mounted: Option<Mounted>,
    device: Option<Loop>,
    server: Option<Server>,
    program: PathBuf,
    dir: TempDir,
}

impl Drive {
    /// Serves and mounts it, with an empty file system.
    ///
    /// # Errors
    /// We are not root, or a program is missing or fails.
    pub(super) fn start(workspace: &Workspace) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "only root may make loop devices and mount file systems"
        );
        let dir = tempfile::Builder::new().prefix("nvmirage-").tempdir()?;
        // whom the database runs as must reach its files
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        for name in ["drive", "data"] {
            fs::create_dir(dir.path().join(name))?;
        }
        let path = dir.path().to_str().context("a folder's name is no text")?;
        let configuration = dir.path().join("drive.toml");
        fs::write(&configuration, CONFIGURATION.replace("DIR", path))?;
        let server = Server::start(&["--config".as_ref(), configuration.as_os_str()])?;
        let mut drive = Self {
            mounted: None,
            device: None,
            server: Some(server),
            program: workspace.program(),
            dir,
        };
        let device = drive
            .device
            .insert(Loop::attach(&drive.dir.path().join("drive/ns1"))?);
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        checked(make.arg(&device.0))?;
        drive.mounted = Some(Mounted::mount(&device.0, drive.dir.path().join("data"))?);
        Ok(drive)
    }

    /// The folder of everything.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The folder whose files are on the drive.
    pub(super) fn data(&self) -> &Path {
        &self
            .mounted
            .as_ref()
            .expect("it is mounted until it stops")
            .0
    }

    /// What the kernel counts of the loop device.
    pub(super) fn stat(&self) -> PathBuf {
        let device = &self.device.as_ref().expect("it is there until it stops").0;
        let name = device.file_name().unwrap_or_default();
        Path::new("/sys/block").join(name).join("stat")
    }

    /// Changes bandwidth and latency, for reads and for writes.
    pub(super) fn set(&self, bandwidth_mib_s: u64, latency_us: u64) -> Result<()> {
        let mut command = Command::new(&self.program);
        command.args(["set", "media", "drive"]);
        for way in ["read", "write"] {
            command.arg(format!("timing.{way}_latency={latency_us}us"));
            command.arg(format!("timing.{way}_bandwidth={bandwidth_mib_s}MiB/s"));
        }
        let control = format!("unix:{}", self.dir.path().join("control").display());
        checked(command.args(["--control", &control]))
    }

    /// Writes everything back.
    pub(super) fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(fs::File::open(self.data())?)?)
    }

    /// Takes all of it down.
    pub(super) fn stop(mut self) -> Result<()> {
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount()?;
        }
        if let Some(device) = self.device.take() {
            device.detach()?;
        }
        let server = self.server.take().context("it is served")?;
        server.stop(STOP).map(drop)
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        self.mounted.take();
        self.device.take();
        // a killed server would leave a mount point that does not answer
        if let Some(server) = self.server.take() {
            let _ = server.stop(STOP);
        }
    }
}

/// A loop device.
pub(crate) struct Loop(PathBuf);

impl Loop {
    /// Makes one on the file, which asks it for blocks of 4 KiB past the page cache.
    ///
    /// # Errors
    /// We are not root, or there is none left.
    pub(crate) fn attach(file: &Path) -> Result<Self> {
        let mut command = Command::new("losetup");
        let options = [
            "--find",
            "--show",
            "--direct-io=on",
            "--sector-size",
            "4096",
        ];
        let said = super::engine::output(command.args(options).arg(file))?;
        Ok(Self(said.trim().into()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    fn detach(self) -> Result<()> {
        checked(Command::new("losetup").arg("-d").arg(&self.0))?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.0).status();
    }
}

/// A mounted file system, at its folder.
struct Mounted(PathBuf);

impl Mounted {
    fn mount(device: &Path, folder: PathBuf) -> Result<Self> {
        checked(
            Command::new("mount")
                .args(["-o", "noatime"])
                .args([device, &folder]),
        )?;
        Ok(Self(folder))
    }

    fn unmount(self) -> Result<()> {
        checked(Command::new("umount").arg(&self.0))?;
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily: a program that still uses it has failed.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn checked(command: &mut Command) -> Result<()> {
    super::engine::output(command).map(drop)
}
