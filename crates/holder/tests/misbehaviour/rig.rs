//! The processes of one test, and what they use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, waitpid};
use tempfile::TempDir;

use crate::HOLDER;
use crate::host::Host;

/// A holder with its workers; dropped, it ends all of them.
pub(crate) struct Rig {
    dir: TempDir,
    holder: Child,
}

/// Resources of the holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// CPU time, in ticks of 10 ms.
    pub(crate) ticks: u64,
    pub(crate) memory_kib: u64,
    pub(crate) descriptors: usize,
}

/// Orphans of dead holders become children of this process, which can then wait for them.
pub(crate) fn adopt_orphans() {
    set_child_subreaper(Some(rustix::process::getpid())).unwrap();
}

/// Takes the status of those that are left, which were ended all.
pub(crate) fn reap_orphans() {
    let until = Instant::now() + Duration::from_secs(2);
    while waitpid(None, WaitOptions::NOHANG).is_ok() && Instant::now() < until {
        sleep(Duration::from_millis(1));
    }
}

/// Waits until something is so.
pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(15);
    while !is_so() {
        assert!(Instant::now() < until, "in vain: {what}");
        sleep(Duration::from_millis(5));
    }
}

impl Rig {
    /// Starts a holder whose workers are of this mode.
    pub(crate) fn start(mode: &str) -> Self {
        let program = std::env::current_exe().unwrap();
        Self::start_by(Command::new(program), mode)
    }

    /// Starts one whose parent ignores SIGCHLD, which it inherits.
    pub(crate) fn start_without_statuses() -> Self {
        let mut env = Command::new("env");
        env.arg("--ignore-signal=CHLD");
        env.arg(std::env::current_exe().unwrap());
        Self::start_by(env, "")
    }

    fn start_by(mut command: Command, mode: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = fs::File::create(dir.path().join("log")).unwrap();
        command.env(HOLDER, "1").arg(dir.path()).arg(mode);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let holder = command.stderr(log).spawn().unwrap();
        Self { dir, holder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn host(&self) -> Host {
        Host::connect(&self.path("n"))
    }

    /// Another program, of which the name says how it behaves.
    pub(crate) fn program(&self, name: &str) {
        fs::copy(std::env::current_exe().unwrap(), self.path(name)).unwrap();
    }

    /// The processes that were started as workers, the first one first.
    pub(crate) fn started(&self) -> Vec<Pid> {
        let lines = fs::read_to_string(self.path("started")).unwrap_or_default();
        let pids = lines.lines().map(|line| line.parse().unwrap());
        pids.map(|pid| Pid::from_raw(pid).unwrap()).collect()
    }

    pub(crate) fn usage(&self) -> Usage {
        let proc = PathBuf::from(format!("/proc/{}", self.holder.id()));
        let stat = fs::read_to_string(proc.join("stat")).expect("the holder lives");
        let after_name: Vec<_> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        assert_ne!(after_name[0], "Z", "the holder lives: {}", self.log());
        let ticks = |at: usize| after_name[at].parse::<u64>().unwrap();
        let status = fs::read_to_string(proc.join("status")).unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let memory = memory.unwrap().trim().trim_end_matches(" kB");
        Usage {
            ticks: ticks(11) + ticks(12),
            memory_kib: memory.trim().parse().unwrap(),
            descriptors: fs::read_dir(proc.join("fd")).unwrap().count(),
        }
    }

    /// Whether the holder has a file of the rig open.
    pub(crate) fn holds(&self, name: &str) -> bool {
        let fds = fs::read_dir(format!("/proc/{}/fd", self.holder.id())).unwrap();
        let mut files = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        files.any(|file| file == self.path(name))
    }

    /// While nothing happens the holder uses no CPU: at most 50 ms of 500 ms.
    pub(crate) fn is_calm(&self) {
        let before = self.usage().ticks;
        sleep(Duration::from_millis(500));
        let ticks = self.usage().ticks - before;
        assert!(ticks <= 5, "the holder ran for {ticks}0 ms of 500 ms");
    }

    /// The holder has grown by less than so much, and has no more descriptors than so many more.
    pub(crate) fn is_bounded(&self, before: Usage, mib: u64, descriptors: usize) {
        let now = self.usage();
        assert!(
            now.memory_kib < before.memory_kib + (mib << 10),
            "{before:?} {now:?}"
        );
        let most = before.descriptors + descriptors;
        assert!(now.descriptors <= most, "{before:?} {now:?}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.holder), signal).unwrap();
    }

    /// Waits for the end of the holder.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let until = Instant::now() + Duration::from_secs(15);
        loop {
            if let Some(status) = self.holder.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "the holder does not end");
            sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // It starts no more of them.
        let _ = kill_process(Pid::from_child(&self.holder), Signal::STOP);
        let others = others_of(self.dir.path(), self.holder.id());
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        for pid in others {
            // It may have ended. Its parent is this process when the holder has gone.
            let _ = kill_process(pid, Signal::KILL);
            let _ = waitpid(Some(pid), WaitOptions::empty());
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// The processes with the folder among their arguments, except the holder.
fn others_of(dir: &Path, holder: u32) -> Vec<Pid> {
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let all = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let ours = all.filter(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        *pid != holder && line.contains(dir.to_str().unwrap_or("/no/such"))
    });
    ours.filter_map(|pid| Pid::from_raw(pid as i32)).collect()
}
