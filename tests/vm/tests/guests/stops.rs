//! Servers that stop while a guest uses their drives, as for an update: the guest loses the drives
//! and goes on.

use std::thread;
use std::time::Duration;

use guest_rig::Options;

use crate::served::{BOUND, Served, boot_on_all, tell, wait};

/// Doorbells are not mapped: the more messages are on their way when a server stops, the better.
const CONFIG: &str = r#"
[[media]]
name = "memory"
kind = "ram"
size = "64MiB"

[[namespace]]
name = "root"
media = "memory"

[[controller]]
name = "vm"
namespaces = ["root"]
listen = "vfio-user:DIR/vm.sock"
doorbells = "trapped"
"#;

const STOPS: usize = 10;

#[test]
fn a_guest_outlives_servers_that_stop_under_load() {
    let servers: Vec<Served> = (0..STOPS).map(|_| Served::start(CONFIG)).collect();
    let sockets = servers.iter().map(|served| served.file("vm.sock"));
    let job = include_str!("jobs/stops.sh");
    let mut guest = boot_on_all(sockets.collect(), job, Options::default());
    wait(&mut guest, "loaded");
    let status = r#"{"execute":"query-status"}"#;
    for (at, served) in servers.into_iter().enumerate() {
        served.stop();
        thread::sleep(Duration::from_millis(500));
        if let Err(error) = guest.ask(status, BOUND) {
            panic!("QEMU after stop {}: {error}", at + 1);
        }
    }
    tell(&mut guest, "end");
    wait(&mut guest, "alive");
    // its driver would give each of the drives up after half a minute
    guest.kill();
}
