//! Processes that are measured: started on one processor, and how long they ran.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

/// How long a process takes to stop at most.
const STOPS: Duration = Duration::from_secs(5);

/// A process that ends with us.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only where the process has already been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs on one processor: on a thread of its own, so that the caller keeps its processors.
///
/// # Errors
/// There is no such processor, or `run` fails.
pub(crate) fn on_cpu<T: Send>(cpu: u32, run: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    let number = usize::try_from(cpu)?;
    ensure!(number < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(number);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sched_setaffinity(None, &set).with_context(|| format!("cannot use CPU {cpu}"))?;
            run()
        });
        thread.join().expect("the thread does not panic")
    })
}

/// Starts a command on one processor: a child has the processors of the thread that starts it.
pub(crate) fn spawn_on(cpu: u32, command: &mut Command) -> Result<Running> {
    let program = command.get_program().to_string_lossy().into_owned();
    on_cpu(cpu, || {
        let child = command.spawn();
        Ok(Running(
            child.with_context(|| format!("cannot run {program}"))?,
        ))
    })
}

/// Runs a command to its end on one processor, and returns what it printed.
pub(crate) fn output_on(cpu: u32, command: &mut Command, input: &str) -> Result<String> {
    use std::io::{Read as _, Write as _};
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = spawn_on(cpu, command)?;
    let child = &mut running.0;
    let mut stdin = child.stdin.take().context("standard input is a pipe")?;
    let mut stdout = child.stdout.take().context("standard output is a pipe")?;
    let mut stderr = child.stderr.take().context("standard error is a pipe")?;
    let (output, said) = thread::scope(|scope| -> Result<_> {
        let errors = scope.spawn(move || {
            let mut said = String::new();
            stderr.read_to_string(&mut said).map(|_| said)
        });
        let writer = scope.spawn(move || stdin.write_all(input.as_bytes()));
        let mut output = String::new();
        stdout.read_to_string(&mut output)?;
        // A program that does not read its input has ended, and says why itself.
        let _ = writer.join();
        Ok((output, errors.join().expect("the reader does not panic")?))
    })?;
    let status = child.wait()?;
    ensure!(
        status.success(),
        "{name} ended with {status}: {}",
        said.trim()
    );
    Ok(output)
}

/// A process that does not run until this is dropped.
pub(crate) struct Paused(Pid);

impl Paused {
    /// Stops a process, and waits until it has stopped.
    pub(crate) fn new(pid: u32) -> Result<Self> {
        let process = Pid::from_raw(i32::try_from(pid)?).context("0 is no process")?;
        kill_process(process, Signal::STOP).context("cannot stop a process")?;
        let paused = Self(process);
        let begun = Instant::now();
        while !is_stopped(&fs::read_to_string(format!("/proc/{pid}/stat"))?) {
            ensure!(begun.elapsed() < STOPS, "a process does not stop");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(paused)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        // It fails only where the process has ended.
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// Whether a process is stopped, by its `/proc/PID/stat`: the field behind its name, which is in
/// brackets and may have some itself (proc_pid_stat(5)).
fn is_stopped(stat: &str) -> bool {
    let behind = stat.rsplit(") ").next().unwrap_or_default();
    behind.starts_with('T')
}

/// The time that a process has spent on processors, in all threads that it has.
pub(crate) fn cpu_time(pid: u32) -> Result<Duration> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread that has ended since is not there, or cannot be read any more.
        if let Ok(schedstat) = fs::read_to_string(task?.path().join("schedstat")) {
            sum += run_ns(&schedstat)?;
        }
    }
    Ok(Duration::from_nanos(sum))
}

/// The first field: nanoseconds on a processor (Documentation/scheduler/sched-stats.rst of Linux).
pub(crate) fn run_ns(schedstat: &str) -> Result<u64> {
    let first = schedstat.split(' ').next().unwrap_or_default();
    first
        .parse()
        .with_context(|| format!("{schedstat:?} is no schedstat"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_paused_does_not_run() {
        let mut running = Running(Command::new("yes").stdout(Stdio::null()).spawn().unwrap());
        let pid = running.0.id();
        let paused = Paused::new(pid).unwrap();
        let before = cpu_time(pid).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(cpu_time(pid).unwrap(), before);
        drop(paused);
        while cpu_time(pid).unwrap() == before {
            assert!(running.0.try_wait().unwrap().is_none());
        }
        assert!(is_stopped("7 (a) S) T 1 7") && !is_stopped("7 (T) R 1 7"));
    }

    #[test]
    fn the_first_field_is_the_time_on_a_processor() {
        assert_eq!(run_ns("182736455 1223 77\n").unwrap(), 182_736_455);
        assert!(run_ns("").is_err());
    }

    #[test]
    fn this_process_has_run() {
        let before = cpu_time(std::process::id()).unwrap();
        let mut sum = 0u64;
        // other tests' threads come and go, so it may also be less
        while cpu_time(std::process::id()).unwrap() == before {
            sum = std::hint::black_box(sum + 1);
        }
    }

    #[test]
    fn a_command_runs_where_it_is_told_and_reads_its_input() {
        let cpu = (0..1024)
            .find(|cpu| {
                rustix::thread::sched_getaffinity(None)
                    .unwrap()
                    .is_set(*cpu)
            })
            .unwrap();
        let cpu = u32::try_from(cpu).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "cat; grep Cpus_allowed_list /proc/self/status"]);
        let output = output_on(cpu, &mut command, "hello\n").unwrap();
        assert!(output.starts_with("hello\n"), "{output}");
        assert!(output.trim_end().ends_with(&format!("\t{cpu}")), "{output}");
        assert!(output_on(cpu, &mut Command::new("false"), "").is_err());
    }
}
