//! Hosts over NVMe/TCP: zones, keys and values as over PCIe, and servers that die under a load.

use std::thread;
use std::time::{Duration, Instant};

use guest_rig::{Guest, Kernel};

use crate::served::{BOUND, Served, finish, tell, wait};
use crate::tcp::{boot, free_port};
use crate::{key_value, zoned};

/// Connects to the subsystems.
const CONNECT: &str = include_str!("jobs/over_tcp.sh");

/// A file: what was written outlives the server.
const FILE: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk.img"
size = "64MiB"

[[namespace]]
name = "data"
media = "disk"

[[controller]]
name = "vm"
namespaces = ["data"]
listen = "vfio-user:DIR/vm.sock"
"#;

/// How often a server is killed, or its worker.
const DEATHS: u32 = 4;
/// How often a host is disconnected.
const DISCONNECTS: u32 = 12;

/// The configuration with these controllers over NVMe/TCP, and the lines that name their ports.
fn over_tcp(toml: &str, controllers: &[&str]) -> (String, String) {
    let mut toml = toml.to_owned();
    let mut job = String::new();
    for name in controllers {
        let port = free_port();
        let before = format!("vfio-user:DIR/{name}.sock\"");
        assert!(toml.contains(&before), "{name}");
        let now =
            format!("nvme-tcp:127.0.0.1:{port}\"\nsubnqn = \"nqn.2026-11.org.example:{name}\"");
        toml = toml.replace(&before, &now);
        job += &format!("PORT_OF_{name}={port}\n");
    }
    (toml, format!("{job}{CONNECT}"))
}

#[test]
fn zones_over_tcp_are_those_of_the_hosts_kernel() {
    let (toml, connect) = over_tcp(zoned::CONFIG, &["vm"]);
    let served = Served::start(&toml);
    let job = format!("{connect}\nstep connect connect_to vm\n{}", zoned::JOB);
    let mut guest = boot(Kernel::Stable, &job);
    wait(&mut guest, "ready");
    served.steer(&["set", "media", "zones", "zone.9=offline"]);
    tell(&mut guest, "lost");
    zoned::check(&finish(guest));
    served.stop();
}

#[test]
fn pairs_over_tcp_are_stored_and_listed_in_both_dialects() {
    let (toml, connect) = over_tcp(key_value::CONFIG, &["pairs", "ssd"]);
    let served = Served::start(&toml);
    let job = format!(
        "{connect}\nstep pairs keys pairs\nstep ssd keys ssd\n{}",
        key_value::JOB
    );
    key_value::check(&finish(boot(Kernel::Stable, &job)));
    served.stop();
}

/// Connects a guest to the server of [`FILE`], under a load of writes that are read back.
fn loaded(connect: &str) -> Guest {
    let job = format!("{connect}\n{}", include_str!("jobs/over_tcp_deaths.sh"));
    let mut guest = boot(Kernel::Stable, &job);
    wait(&mut guest, "again");
    guest
}

/// Waits until the host has connected again, and its load goes on.
fn goes_on(guest: &mut Guest) {
    tell(guest, "killed");
    wait(guest, "again");
}

#[test]
fn a_host_loses_nothing_by_a_server_that_is_killed_and_started_again() {
    let (toml, connect) = over_tcp(FILE, &["vm"]);
    let mut served = Served::start(&toml);
    let mut guest = loaded(&connect);
    for _ in 0..DEATHS {
        let stopped = served.kill();
        // Longer than the host waits before it tries to connect.
        thread::sleep(Duration::from_secs(3));
        served = stopped.start_again();
        goes_on(&mut guest);
    }
    tell(&mut guest, "enough");
    finish(guest);
    served.stop();
}

/// A program with I/O in flight gets no SIGPIPE, whose connections the server ends.
#[test]
fn a_host_that_is_disconnected_again_and_again_notices_a_pause() {
    let (toml, connect) = over_tcp(FILE, &["vm"]);
    let served = Served::start(&toml);
    let mut guest = loaded(&format!("{connect}\nENDS=ordered"));
    for _ in 0..DISCONNECTS {
        served.steer(&["disconnect", "vm", "--all"]);
        goes_on(&mut guest);
    }
    tell(&mut guest, "enough");
    finish(guest);
    served.stop();
}

#[test]
fn a_host_loses_nothing_by_workers_that_die() {
    let (toml, connect) = over_tcp(FILE, &["vm"]);
    let mut served = Served::start_surviving(&toml);
    let mut guest = loaded(&connect);
    for _ in 0..DEATHS {
        let killed = Instant::now();
        served.kill_worker();
        goes_on(&mut guest);
        assert!(killed.elapsed() < BOUND);
        // A worker that served for a second is always replaced.
        thread::sleep(Duration::from_millis(1050));
    }
    tell(&mut guest, "enough");
    finish(guest);
    served.stop();
}
