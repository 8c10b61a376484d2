//! The demo's server: this program again, in a separate process.
//!
//! Invariant: the server does not outlive the demo. It stops when its standard input ends, which
//! the kernel ensures even if the demo is killed; and the demo kills it if it does not stop in
//! time.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use api::config::Config;
use machine::files::may_be_regular;

/// Time limits for the server's start and stop.
const START: Duration = Duration::from_secs(10);
const STOP: Duration = Duration::from_secs(15);
/// Interval of checks whether the server has stopped.
const LOOK: Duration = Duration::from_millis(10);
/// Lines of the server's log that an error shows.
const LOG_LINES: usize = 20;

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    /// Closing it stops the server.
    input: Option<ChildStdin>,
    log: PathBuf,
}

impl Server {
    /// Starts a server of `config` with its files in `dir`, and waits until every controller is
    /// ready.
    pub(super) fn start(config: &Config, dir: &Path) -> anyhow::Result<Self> {
        let file = dir.join("demo.toml");
        let log = dir.join("server.log");
        fs::write(&file, config.with_defaults(may_be_regular))
            .with_context(|| format!("cannot write {}", file.display()))?;
        let program = std::env::current_exe().context("cannot find the path of this program")?;
        let mut child = Command::new(program)
            .arg("serve")
            .arg("--config")
            .arg(&file)
            .arg("--stop-at-eof")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(&log)?)
            // Ctrl-C on the terminal reaches only the demo, which stops its server when done with
            // it
            .process_group(0)
            .spawn()
            .context("cannot start the server")?;
        let output = child.stdout.take().context("the server has no output")?;
        let input = child.stdin.take();
        let mut server = Server { child, input, log };
        server.wait_until_ready(BufReader::new(output), config.controller.len())?;
        Ok(server)
    }

    /// Waits for the line that announces each controller.
    fn wait_until_ready(
        &mut self,
        output: impl BufRead + Send + 'static,
        count: usize,
    ) -> anyhow::Result<()> {
        let (sender, receiver) = mpsc::sync_channel(1);
        thread::Builder::new()
            .name("server's output".into())
            .spawn(move || {
                let mut lines = output.lines();
                let ready = lines.by_ref().map_while(Result::ok);
                let seen = ready
                    .filter(|line| line.starts_with("ready: "))
                    .take(count)
                    .count();
                // the demo may have stopped waiting
                let _ = sender.send(seen == count);
                // the pipe stays open, so that the server never writes to a closed one
                lines.map_while(Result::ok).for_each(drop);
            })?;
        match receiver.recv_timeout(START) {
            Ok(true) => Ok(()),
            Ok(false) => Err(anyhow!(
                "the server exited before it was ready{}",
                self.last_words()
            )),
            Err(_) => Err(anyhow!(
                "the server was not ready within {START:?}{}",
                self.last_words()
            )),
        }
    }

    /// Process ID.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The last lines of its log, for an error message.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        match &lines[lines.len().saturating_sub(LOG_LINES)..] {
            [] => String::new(),
            last => format!("; its log ends:\n{}", last.join("\n")),
        }
    }

    /// Stops the server, and waits for its end.
    pub(super) fn stop(mut self) -> anyhow::Result<()> {
        self.input = None;
        let Some(status) = self.wait(STOP)? else {
            bail!(
                "the server did not stop within {STOP:?} and was killed{}",
                self.last_words()
            );
        };
        ensure!(
            status.success(),
            "the server exited with {status}{}",
            self.last_words()
        );
        Ok(())
    }

    fn wait(&mut self, bound: Duration) -> anyhow::Result<Option<ExitStatus>> {
        let deadline = Instant::now() + bound;
        loop {
            let status = self.child.try_wait()?;
            if status.is_some() || Instant::now() >= deadline {
                return Ok(status);
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.input = None;
        // both fail only if the server has ended and was waited for
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
