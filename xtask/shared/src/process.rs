//! Runs a command with a bound, its output in a file, and its last line to show while it runs.
//!
//! A command gets a process group of its own, which is ended with it: on overrun, when a person
//! interrupts us, and when the command leaves processes behind.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// How often a running command is looked at.
const TURN: Duration = Duration::from_millis(50);

/// How long a command that was asked to end may take for it.
const GRACE: Duration = Duration::from_secs(5);

/// Set when a person or a supervisor asks us to stop.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Turns SIGINT and SIGTERM into this flag.
    ///
    /// # Errors
    /// The handlers cannot be set.
    pub fn install() -> Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&flag))?;
        }
        Ok(Self(flag))
    }

    /// Whether we were asked.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a command is run with.
pub struct Run<'a> {
    /// How long it may take.
    pub bound: Duration,
    /// Where its output goes, after what is already there.
    pub log: &'a Path,
    /// Ends it early.
    pub interrupt: &'a Interrupt,
    /// Is called every now and then with the last line of output.
    pub live: &'a mut dyn FnMut(&str),
}

/// Runs `command`, and returns its output (both streams, in order).
///
/// # Errors
/// It cannot be started, fails, overruns its bound or is interrupted.
pub fn run(command: &mut Command, with: &mut Run<'_>) -> Result<String> {
    let (output, ended) = run_to_end(command, with)?;
    match ended {
        Ended::Well => Ok(output),
        Ended::Badly(why) => bail!(why),
    }
}

/// How a command ended.
pub enum Ended {
    /// With status 0.
    Well,
    /// Otherwise: how, in words.
    Badly(String),
}

/// As [`run`], for those who need the output of a command that fails.
pub fn run_to_end(command: &mut Command, with: &mut Run<'_>) -> Result<(String, Ended)> {
    let what = format!("{} {}", program(command), arguments(command));
    let mut log = File::options().create(true).append(true).open(with.log)?;
    writeln!(log, "$ {what}")?;
    let (reader, writer) = std::io::pipe()?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot run {}", program(command)))?;
    // The command keeps its ends of the pipe, and the reader would wait for their end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let last = Arc::new(Mutex::new(String::new()));
    let shown = Arc::clone(&last);
    let reader = thread::spawn(move || collect(reader, log, &shown));

    let ended = wait(&mut child, &what, with, &last);
    end(&mut child)?;
    let output = reader.join().expect("the reader does not panic")?;
    Ok((output, ended?))
}

/// Ends all of the group, the command first of all if it is still running: it may have children in
/// groups of their own, which only it can end.
fn end(child: &mut Child) -> Result<()> {
    let group = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .expect("a process has an id");
    // Sending fails only where no process of the group is left.
    let _ = kill_process_group(group, Signal::TERM);
    let deadline = Instant::now() + GRACE;
    while child.try_wait()?.is_none() && Instant::now() < deadline {
        thread::sleep(TURN);
    }
    let _ = kill_process_group(group, Signal::KILL);
    child.wait()?;
    Ok(())
}

fn wait(child: &mut Child, what: &str, with: &mut Run<'_>, last: &Mutex<String>) -> Result<Ended> {
    let deadline = Instant::now() + with.bound;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() {
                Ended::Well
            } else {
                Ended::Badly(format!("{what}: {status}"))
            });
        }
        if with.interrupt.is_set() {
            bail!("interrupted");
        }
        if Instant::now() >= deadline {
            return Ok(Ended::Badly(format!(
                "{what}: did not end within {:?}",
                with.bound
            )));
        }
        let line = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (with.live)(&line);
        thread::sleep(TURN);
    }
}

fn collect(from: PipeReader, mut log: File, last: &Mutex<String>) -> Result<String> {
    let mut from = BufReader::new(from);
    let mut all = String::new();
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        log.write_all(&line)?;
        let text = String::from_utf8_lossy(&line);
        all += &text;
        text.trim()
            .clone_into(&mut last.lock().unwrap_or_else(PoisonError::into_inner));
        line.clear();
    }
    Ok(all)
}

fn program(command: &Command) -> String {
    let path = Path::new(command.get_program());
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

fn arguments(command: &Command) -> String {
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, bound: Duration, interrupt: &Interrupt) -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut live = |_: &str| {};
        let mut with = Run {
            bound,
            log: &log,
            interrupt,
            live: &mut live,
        };
        let result = run(Command::new("sh").args(["-c", script]), &mut with);
        let written = std::fs::read_to_string(&log).unwrap();
        assert!(
            written.starts_with(&format!("$ sh -c {script}\n")),
            "{written}"
        );
        result
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn output_of_both_streams_comes_back() {
        let output = sh("echo a; echo b >&2; echo c", LONG, &Interrupt::default()).unwrap();
        assert_eq!(output, "a\nb\nc\n");
    }

    #[test]
    fn failure_is_an_error() {
        let error = sh("exit 3", LONG, &Interrupt::default()).unwrap_err();
        assert!(error.to_string().contains("exit status: 3"), "{error}");
        let error = run_nothing().unwrap_err();
        assert!(
            error.to_string().contains("cannot run no-such-program"),
            "{error}"
        );
    }

    fn run_nothing() -> Result<String> {
        let dir = tempfile::tempdir().unwrap();
        let mut live = |_: &str| {};
        let interrupt = Interrupt::default();
        let mut with = Run {
            bound: LONG,
            log: &dir.path().join("log"),
            interrupt: &interrupt,
            live: &mut live,
        };
        run(&mut Command::new("no-such-program"), &mut with)
    }

    #[test]
    fn an_overrun_ends_all_of_its_processes() {
        // The shell's child holds the pipe: were it not ended too, this would wait for it.
        let start = Instant::now();
        let error = sh(
            "sleep 50 & sleep 60",
            Duration::from_millis(200),
            &Interrupt::default(),
        )
        .unwrap_err();
        assert!(error.to_string().contains("did not end within"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn processes_left_behind_are_ended() {
        let start = Instant::now();
        assert_eq!(
            sh("sleep 50 & echo a", LONG, &Interrupt::default()).unwrap(),
            "a\n"
        );
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn an_interrupt_ends_it() {
        let interrupt = Interrupt::default();
        interrupt.0.store(true, Ordering::Relaxed);
        let error = sh("sleep 50", LONG, &interrupt).unwrap_err();
        assert!(error.to_string().contains("interrupted"), "{error}");
    }
}
