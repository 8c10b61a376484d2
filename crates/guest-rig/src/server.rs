//! `nvmirage serve` as a child of ours: it outlives neither its [`Server`] nor its bounds.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use crate::lines::{Lines, tail};

/// How long the program may take until it serves.
const START: Duration = Duration::from_secs(30);
/// How often a program that is about to end is looked at.
const TURN: Duration = Duration::from_millis(20);

/// Where the workspace builds.
fn target() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join(env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from))
}

/// The workspace's Debian package.
///
/// # Errors
/// There is none, or several: says how to build it.
pub fn package() -> Result<PathBuf> {
    let folder = target().join("package");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let mut found = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"));
    match (found.next(), found.next()) {
        (Some(package), None) => Ok(package),
        (Some(_), Some(_)) => bail!(
            "{} has several packages: remove the old ones",
            folder.display()
        ),
        (None, _) => bail!(
            "there is no package in {}: run `cargo xtask package`",
            folder.display()
        ),
    }
}

/// The release build of the program: the one that `NVMIRAGE_BIN` names, else the workspace's.
///
/// # Errors
/// There is none: says how to build it.
pub fn program() -> Result<PathBuf> {
    let built = || target().join("release/nvmirage");
    let path = env::var_os("NVMIRAGE_BIN").map_or_else(built, PathBuf::from);
    ensure!(
        path.is_file(),
        "there is no {}: run `cargo build --release`",
        path.display()
    );
    Ok(path)
}

/// A running `nvmirage serve`.
#[derive(Debug)]
pub struct Server {
    child: Child,
    output: Lines,
}

impl Server {
    /// Starts `nvmirage serve` with `args`, and waits until its first controller is ready. Where it
    /// serves several, [`Server::wait_for_line`] waits for the others' lines (`ready: `).
    ///
    /// # Errors
    /// It cannot be started, ends, or is not ready in time: with what it printed.
    pub fn start<S: AsRef<OsStr>>(args: &[S]) -> Result<Self> {
        let (reader, writer) = std::io::pipe()?;
        let child = Command::new(program()?)
            .args(["serve", "--stop-at-eof"]) // so that it ends with us, however we end
            .args(args)
            .stdin(Stdio::piped())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .spawn()
            .context("cannot start nvmirage")?;
        let mut server = Self {
            child,
            output: Lines::collect(reader),
        };
        server.wait_for_line("ready: ", START)?;
        Ok(server)
    }

    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process that serves where this one is the holder of `serve --survive`: its oldest child.
    /// `None` while it has none.
    ///
    /// # Errors
    /// It has ended.
    pub fn worker(&self) -> Result<Option<u32>> {
        let holder = self.pid();
        let children = fs::read_to_string(format!("/proc/{holder}/task/{holder}/children"))?;
        let first = children.split_whitespace().next();
        Ok(first.map(str::parse).transpose()?)
    }

    /// Kills its worker with SIGKILL ([`Server::worker`]).
    ///
    /// # Errors
    /// There is none.
    pub fn kill_worker(&self) -> Result<()> {
        let worker = self.worker()?.context("the server has no worker")?;
        let worker = i32::try_from(worker).ok().and_then(Pid::from_raw);
        kill_process(worker.context("a process has an id")?, Signal::KILL)?;
        Ok(())
    }

    /// The time that it has spent on processors, in all its threads.
    ///
    /// # Errors
    /// It has ended.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()))?;
        // proc_pid_stat(5): fields 14 and 15 are ticks; the name, field 2, may have spaces in it
        let (_, fields) = stat.rsplit_once(") ").context("no name in the status")?;
        let ticks: Vec<u64> = fields
            .split(' ')
            .skip(11)
            .take(2)
            .map(|field| Ok(field.parse()?))
            .collect::<Result<_>>()?;
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_secs(ticks.iter().sum()) / u32::try_from(per_second)?)
    }

    /// The lines that it has printed, on both outputs.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.output.so_far()
    }

    /// Waits for a line that contains `text`, and returns it. Lines up to it are not looked at
    /// again.
    ///
    /// # Errors
    /// It ended, or `bound` passed: with what it printed.
    pub fn wait_for_line(&mut self, text: &str, bound: Duration) -> Result<String> {
        let found = self.output.wait_for(text, bound);
        found.map_err(|why| anyhow!("no line with {text:?}: {why}{}", self.tail()))
    }

    /// Asks it to end (SIGTERM), and returns the lines that it printed.
    ///
    /// # Errors
    /// It had ended before, does not end within `bound` (it is killed then), or ends with another
    /// status than 0.
    pub fn stop(mut self, bound: Duration) -> Result<Vec<String>> {
        if let Some(status) = self.child.try_wait()? {
            bail!("nvmirage had ended with {status}{}", self.tail());
        }
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("a process has an id")?, Signal::TERM)?;
        let Some(status) = self.wait(bound)? else {
            bail!(
                "nvmirage did not end within {bound:?} of SIGTERM{}",
                self.tail()
            );
        };
        ensure!(
            status.success(),
            "nvmirage ended with {status}{}",
            self.tail()
        );
        Ok(self.lines())
    }

    /// Kills it with SIGKILL.
    pub fn kill(self) {
        drop(self);
    }

    fn wait(&mut self, bound: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + bound;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(TURN);
        }
    }

    fn tail(&self) -> String {
        tail("server", &self.lines().join("\n"), 60)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only where the process has already been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
