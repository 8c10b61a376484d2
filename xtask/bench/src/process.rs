//! Processes that are measured: started on one processor, and how long they ran.

use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_setaffinity};

/// A process that ends with us.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only where the process has already been waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a command on one processor: a child has the processors of the thread that starts it.
pub(crate) fn spawn_on(cpu: u32, command: &mut Command) -> Result<Running> {
    let cpu = usize::try_from(cpu)?;
    ensure!(cpu < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu);
    let program = command.get_program().to_string_lossy().into_owned();
    thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<Running> {
            sched_setaffinity(None, &set).with_context(|| format!("cannot use CPU {cpu}"))?;
            let child = command.spawn();
            Ok(Running(
                child.with_context(|| format!("cannot run {program}"))?,
            ))
        });
        thread.join().expect("the thread does not panic")
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
