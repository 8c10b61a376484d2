//! qemu-storage-daemon: its vhost-user-blk export of a file, through QEMU's own client.
//!
//! `qemu-img bench` reports the time of all requests together, not of single ones: latency at a
//! depth is depth over rate (Little's law). Alone in flight, requests of `qemu-io` tell their time
//! one by one; those have percentiles.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use guest_rig::Rig;

use super::process::{Running, cpu_time, output_on, spawn_on};
use super::sample::{Sample, median};

/// How far apart requests are: an odd number of blocks, so that they come by every block of a file
/// whose blocks are a power of two, in no order that anybody reads ahead.
const STEP: u64 = 9767 * 4096;
/// Requests that are timed one by one.
const SINGLE: u64 = 2000;
/// How long the daemon may take until it serves.
const START: Duration = Duration::from_secs(10);

/// A daemon that exports a file.
pub(super) struct Export<'a> {
    rig: &'a Rig,
    daemon: Running,
    socket: PathBuf,
    file_len: u64,
    host_cpu: u32,
}

impl<'a> Export<'a> {
    pub(super) fn start(
        rig: &'a Rig,
        file: &Path,
        dir: &Path,
        (server_cpu, host_cpu): (u32, u32),
    ) -> Result<Self> {
        let socket = dir.join("vhost.sock");
        // A previous daemon has left its socket, on which no process listens.
        match std::fs::remove_file(&socket) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut command = rig.qemu("qemu-storage-daemon").command();
        command
            .arg("--blockdev")
            .arg(format!(
                "driver=file,filename={},node-name=f0",
                file.display()
            ))
            .arg("--export")
            .arg(format!(
                "type=vhost-user-blk,id=e0,node-name=f0,addr.type=unix,addr.path={},writable=on",
                socket.display()
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let mut daemon = spawn_on(server_cpu, &mut command)?;
        let deadline = Instant::now() + START;
        while !socket.exists() {
            if let Some(status) = daemon.0.try_wait()? {
                bail!("qemu-storage-daemon ended with {status}");
            }
            ensure!(
                Instant::now() < deadline,
                "qemu-storage-daemon does not serve"
            );
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Self {
            rig,
            daemon,
            socket,
            file_len: file.metadata()?.len(),
            host_cpu,
        })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.daemon.0.id()
    }

    /// Where it listens for its front end.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    fn options(&self) -> String {
        let socket = self.socket.display();
        format!("driver=virtio-blk-vhost-user,path={socket},cache.direct=on")
    }

    /// Requests a second, for about so long.
    pub(super) fn measure(&self, rw: &str, depth: u64, seconds: u32) -> Result<Sample> {
        let write = rw.ends_with("write");
        let few = 1000 * depth.min(8);
        let rate = few as f64 / self.timed(few, depth, write)?;
        let count = (rate * f64::from(seconds)).max(few as f64) as u64;
        let pid = self.pid();
        let before = cpu_time(pid)?;
        let took = self.timed(count, depth, write)?;
        let spent = cpu_time(pid)? - before;
        let iops = count as f64 / took;
        let mut sample = Sample {
            iops,
            mean_us: depth as f64 / iops * 1e6,
            server_ns: Some(spent.as_nanos() as f64 / count as f64),
            ..Sample::default()
        };
        if depth == 1 {
            let mut single = self.single(write)?;
            single.sort_by(f64::total_cmp);
            let late = single.len() * 99 / 100;
            sample.p99_us = single.get(late).copied();
            sample.p50_us = median(single);
        }
        Ok(sample)
    }

    /// Seconds that so many requests take.
    fn timed(&self, count: u64, depth: u64, write: bool) -> Result<f64> {
        let mut command = self.rig.qemu("qemu-img").command();
        command
            .args(["bench", "--image-opts", &self.options(), "-s", "4096"])
            .args(["-c", &count.to_string(), "-d", &depth.to_string()])
            .args(["-S", &STEP.to_string()]);
        if write {
            command.arg("-w");
        }
        parse_bench(&output_on(self.host_cpu, &mut command, "")?)
    }

    /// Microseconds of requests, each alone in flight.
    fn single(&self, write: bool) -> Result<Vec<f64>> {
        let verb = if write { "write" } else { "read" };
        let mut script = String::new();
        for number in 0..SINGLE {
            let at = number * STEP % self.file_len;
            script += &format!("{verb} {at} 4096\n");
        }
        let mut command = self.rig.qemu("qemu-io").command();
        command.args(["--image-opts", &self.options()]);
        let times = parse_io(&output_on(self.host_cpu, &mut command, &script)?);
        ensure!(!times.is_empty(), "qemu-io printed no times");
        Ok(times)
    }
}

/// Seconds of `qemu-img bench`.
fn parse_bench(output: &str) -> Result<f64> {
    let line = output.lines().find_map(|line| {
        let rest = line.strip_prefix("Run completed in ")?;
        rest.strip_suffix(" seconds.")
    });
    let seconds: f64 = line
        .with_context(|| format!("qemu-img printed no time: {}", output.trim()))?
        .parse()?;
    ensure!(seconds > 0.0, "qemu-img took no time");
    Ok(seconds)
}

/// Microseconds of each request of `qemu-io`, which tells what rate it would be.
fn parse_io(output: &str) -> Vec<f64> {
    let rates = output.lines().filter_map(|line| {
        let (_, rest) = line.split_once(" and ")?;
        let rate: f64 = rest.strip_suffix(" ops/sec)")?.parse().ok()?;
        (rate > 0.0).then(|| 1e6 / rate)
    });
    rates.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_qemu_img_prints() {
        let output = "Sending 20000 read requests, 4096 bytes each, 1 in parallel (starting at offset 0, step size 4096)\n\
             Run completed in 0.292 seconds.\n";
        assert_eq!(parse_bench(output).unwrap(), 0.292);
        assert!(parse_bench("qemu-img: Could not open").is_err());
        assert!(parse_bench("Run completed in 0.000 seconds.").is_err());
    }

    #[test]
    fn what_qemu_io_prints() {
        let output = "qemu-io> read 4096/4096 bytes at offset 4096\n\
             4 KiB, 1 ops; 00.00 sec (1.613 MiB/sec and 400.0000 ops/sec)\n\
             qemu-io> read 4096/4096 bytes at offset 8192\n\
             4 KiB, 1 ops; 00.00 sec (61.778 MiB/sec and 16000.0000 ops/sec)\n\
             qemu-io> read failed: Input/output error\n";
        assert_eq!(parse_io(output), [2500.0, 62.5]);
    }
}
