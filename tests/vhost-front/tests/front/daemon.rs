//! qemu-storage-daemon: a back end of split rings.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use guest_rig::Rig;
use tempfile::TempDir;

/// Sectors of the exported file.
pub(crate) const SECTORS: u64 = 32 << 10;

/// A daemon that exports a file of [`SECTORS`] sectors, killed when it is dropped.
pub(crate) struct Daemon {
    dir: TempDir,
    process: Option<Child>,
}

impl Daemon {
    /// Starts one that serves two queues.
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("disk")).unwrap();
        file.set_len(SECTORS * 512).unwrap();
        let mut daemon = Self { dir, process: None };
        daemon.start_again();
        daemon
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// Kills the daemon.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts a daemon with the same file at the same socket.
    pub(crate) fn start_again(&mut self) {
        self.kill();
        // A socket that a killed daemon left accepts no connection.
        let _ = std::fs::remove_file(self.socket());
        let file = self.dir.path().join("disk");
        let rig = Rig::locate().unwrap_or_else(|error| panic!("{error}"));
        let mut command = rig.qemu("qemu-storage-daemon").command();
        command
            .arg("--blockdev")
            .arg(format!(
                "driver=file,filename={},node-name=disk,discard=unmap",
                file.display()
            ))
            .arg("--export")
            .arg(format!(
                "type=vhost-user-blk,id=export,node-name=disk,addr.type=unix,addr.path={},\
                 writable=on,num-queues=2",
                self.socket().display()
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.socket().exists() {
            let ended = self.process.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "qemu-storage-daemon ended: {ended:?}");
            assert!(Instant::now() < deadline, "qemu-storage-daemon: no socket");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}
