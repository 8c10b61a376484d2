//! What hosts that are connected and do nothing cost a server: its processor, and its memory.

use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Tcp;
use crate::ours::{Ours, Setup, output};
use crate::process::{Running, cpu_time, spawn_on};
use crate::reach::footprint::{resident_kib, smaps};

/// Number of hosts, I/O queues of each host, and entries of each queue.
pub(super) const HOSTS: usize = 64;
pub(super) const QUEUES: u16 = 4;
pub(super) const DEPTH: u16 = 128;
/// How long all hosts may take to connect.
const CONNECTED: Duration = Duration::from_secs(60);
/// How long the server has had to become idle, and is watched.
const SETTLED: Duration = Duration::from_secs(2);
const WATCHED: Duration = Duration::from_secs(5);

/// What idle hosts cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    /// Part of a processor.
    pub(super) cpu: f64,
    /// KiB of a host with its queues, in the memory that the server has made for it and elsewhere.
    pub(super) host_kib: f64,
}

/// Connects hosts, has each read once, and watches the server.
pub(super) fn measure(tcp: &Tcp<'_>) -> Result<Idle> {
    let setup = Setup {
        mode: "adaptive",
        queues: QUEUES,
        ..tcp.setup("null")
    };
    let ours = Ours::start(tcp.workspace, &setup, tcp.args.cpus.pair())?;
    let before = resident_kib(&smaps(ours.pid())?);
    let host = connect(tcp, &ours)?;
    thread::sleep(SETTLED);
    let (spent, since) = (cpu_time(ours.pid())?, Instant::now());
    thread::sleep(WATCHED);
    let spent = cpu_time(ours.pid())? - spent;
    let cpu = spent.as_secs_f64() / since.elapsed().as_secs_f64();
    ensure!(hosts(tcp, &ours)? == HOSTS, "hosts have left");
    let after = resident_kib(&smaps(ours.pid())?);
    drop(host);
    ours.stop()?;
    let host_kib = (after as f64 - before as f64) / HOSTS as f64;
    Ok(Idle { cpu, host_kib })
}

fn connect(tcp: &Tcp<'_>, ours: &Ours<'_>) -> Result<Running> {
    let others = vec![ours.target(0); HOSTS - 1].join(",");
    // Beside the queue that waits a long time between two commands.
    let idle = (HOSTS * usize::from(QUEUES) - 1).to_string();
    let depth = (DEPTH - 1).to_string();
    let mut command = tcp.workspace.command(&tcp.workspace.program())?;
    command
        .args(["bench", "--target", &ours.target(0), "--qd", "1"])
        .args(["--pause", "60min", "--time", "60min"])
        .args(["--idle-queues", &idle, "--idle-qd", &depth])
        .args(["--idle-at", &others])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut host = spawn_on(tcp.args.cpus.host_cpu, &mut command)?;
    let begun = Instant::now();
    while hosts(tcp, ours)? < HOSTS {
        ensure!(host.0.try_wait()?.is_none(), "the idle hosts have ended");
        ensure!(begun.elapsed() < CONNECTED, "hosts do not connect in time");
        thread::sleep(Duration::from_millis(100));
    }
    Ok(host)
}

/// Hosts with all their queues.
fn hosts(tcp: &Tcp<'_>, ours: &Ours<'_>) -> Result<usize> {
    let mut command = tcp.workspace.command(&tcp.workspace.program())?;
    command.args(["ls", "--json", "--control", &ours.control()]);
    count(&output(&mut command)?)
}

fn count(inventory: &Value) -> Result<usize> {
    let hosts = inventory["controllers"][0]["hosts"].as_array();
    let hosts = hosts.context("the controller has no list of hosts")?;
    let whole = |host: &&Value| host["io_queues"].as_u64() == Some(QUEUES.into());
    Ok(hosts.iter().filter(whole).count())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hosts_count_with_all_their_queues() {
        let hosts = json!([{ "io_queues": 4 }, { "io_queues": 3 }, { "io_queues": 4 }]);
        let inventory = json!({ "controllers": [{ "hosts": hosts }] });
        assert_eq!(count(&inventory).unwrap(), 2);
        assert!(count(&json!({ "controllers": [] })).is_err());
    }
}
