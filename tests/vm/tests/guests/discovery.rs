//! Hosts over NVMe/TCP that connect to all that discovery logs list, and hosts whose server is gone
//! for a while.

use std::thread;
use std::time::Duration;

use guest_rig::Kernel;

use crate::served::{Served, finish, tell, wait};
use crate::tcp::{boot, free_port};

/// A subsystem with two entrances and another one with one, for hosts that reach this machine at
/// 10.0.2.2; the first entrance refers to another server.
const HERE: &str = r#"
[[media]]
name = "memory"
kind = "ram"
size = "32MiB"

[[media]]
name = "more"
kind = "ram"
size = "32MiB"

[[namespace]]
name = "data"
media = "memory"

[[namespace]]
name = "other"
media = "more"

[[controller]]
name = "a"
subsystem = "two"
namespaces = ["data"]
subnqn = "nqn.2026-11.org.example:two"
listen = "nvme-tcp:127.0.0.1:PORT_A"
advertise = "10.0.2.2"
referrals = ["10.0.2.2:PORT_D"]

[[controller]]
name = "b"
subsystem = "two"
namespaces = ["data"]
listen = "nvme-tcp:127.0.0.1:PORT_B"
advertise = "10.0.2.2"

[[controller]]
name = "c"
namespaces = ["other"]
subnqn = "nqn.2026-11.org.example:one"
listen = "nvme-tcp:127.0.0.1:PORT_C"
advertise = "10.0.2.2"
"#;

/// Another server, which refers to the first one.
const THERE: &str = r#"
[[media]]
name = "memory"
kind = "ram"
size = "32MiB"

[[namespace]]
name = "data"
media = "memory"

[[controller]]
name = "d"
namespaces = ["data"]
subnqn = "nqn.2026-11.org.example:far"
listen = "nvme-tcp:127.0.0.1:PORT_D"
advertise = "10.0.2.2"
referrals = ["10.0.2.2:PORT_A"]
"#;

/// The guest's part.
const CONNECTS: &str = r#"
N=nqn.2026-11.org.example
step lists-a lists $PORT_A "nvme subsystem $PORT_A $ADDRESS" "nvme subsystem $PORT_B $ADDRESS" \
    "nvme subsystem $PORT_C $ADDRESS" "discovery subsystem referral $PORT_D $ADDRESS"
step connects as_host connect-all -s $PORT_A
step all eventually are_live 2 $N:two 1 $N:one 1 $N:far
step again as_host connect-all -s $PORT_A
step no-more are_live 2 $N:two 1 $N:one 1 $N:far
step disconnects nvme disconnect-all
step none none
step stays stays $PORT_D
step by-device connect_by_device $PORT_D
step all-by-device eventually are_live 2 $N:two 1 $N:one 1 $N:far 0 $N:new
say connected
await changed
step told eventually is_told
step changed-by-device connect_by_device $PORT_D
step new eventually are_live 2 $N:two 1 $N:one 1 $N:far 1 $N:new
step end nvme disconnect-all
step none-again none
step quiet no_complaints
"#;

/// A file, so that a server that was killed has what hosts have written.
const KEPT: &str = r#"
[[media]]
name = "disk"
kind = "file"
path = "DIR/disk"
size = "64MiB"

[[namespace]]
name = "data"
media = "disk"
lba_size = 512

[[controller]]
name = "store"
namespaces = ["data"]
listen = "nvme-tcp:127.0.0.1:PORT"
subnqn = "nqn.2026-11.org.example:ours"
"#;

/// Shorter than the time after which the host gives up, and longer.
const LOSES: &str = r#"
load() {
    ignore_broken_pipes
    until [ -e /tmp/stop ]; do
        verified --filename=/dev/$NAME --rw=randwrite --name=load --bs=4k --iodepth=16 --size=4m
    done
}
stop_load() {
    touch /tmp/stop
    done_in_background load
}
until_error() {
    ignore_broken_pipes
    fails fio --filename=/dev/$NAME --direct=1 --ioengine=libaio --rw=randwrite --name=load --bs=4k \
        --iodepth=16 --offset=16m --size=4m --time_based --runtime=200 --eta=never >/tmp/fio.log 2>&1
    cat /tmp/fio.log
    grep -i -E 'Input/output error|No such device' /tmp/fio.log
}
NAME=ours ADDRESS=10.0.2.2 NQN=nqn.2026-11.org.example:ours
step patient connect --reconnect-delay=1 --ctrl-loss-tmo=60
in_background load load
step writes more_writes $NAME 200
say short
await back
step live eventually is_live
step goes-on more_writes $NAME 200
step nothing-lost stop_load
step disconnect disconnect
step impatient connect --reconnect-delay=1 --ctrl-loss-tmo=3
in_background error until_error
step writes-again more_writes $NAME 200
say long
await gone
step given-up eventually fails controller
step error done_in_background error
rm /dev/$NAME
say up
await back
step again connect
step readable verified --filename=/dev/$NAME --rw=randwrite --name=small --bs=4k --iodepth=16 --size=4m
step disconnect-again disconnect
"#;

/// Connects to all that two servers list, which refer to each other.
fn connects_to_all(kernel: Kernel) {
    let ports = [(); 5].map(|()| free_port().to_string());
    let [a, b, c, d, e] = &ports;
    let with_ports = |toml: &str| {
        let toml = toml.replace("PORT_A", a).replace("PORT_B", b);
        toml.replace("PORT_C", c).replace("PORT_D", d)
    };
    let (here, there) = (with_ports(HERE), with_ports(THERE));
    let (here, there) = (Served::start(&here), Served::start(&there));
    let job = format!(
        "ADDRESS=10.0.2.2 PORT_A={a} PORT_B={b} PORT_C={c} PORT_D={d}\n{}{CONNECTS}",
        include_str!("jobs/discovery.sh")
    );
    let mut guest = boot(kernel, &job);
    wait(&mut guest, "connected");
    let listen = format!("nvme-tcp:127.0.0.1:{e}");
    let create = ["create", "controller", "e", "--subsystem", "new"];
    let how = [
        "--subnqn",
        "nqn.2026-11.org.example:new",
        "--advertise",
        "10.0.2.2",
    ];
    there.steer(&[&create[..], &how, &["--listen", &listen]].concat());
    tell(&mut guest, "changed");
    finish(guest);
    here.stop();
    there.stop();
}

/// A load while the server is gone, shorter and longer than its host waits.
fn loses_its_server(kernel: Kernel) {
    let port = free_port().to_string();
    let served = Served::start(&KEPT.replace("PORT", &port));
    let mut guest = boot(kernel, &format!("PORT={port}\n{LOSES}"));
    wait(&mut guest, "short");
    let stopped = served.kill();
    thread::sleep(Duration::from_secs(3));
    let served = stopped.start_again();
    tell(&mut guest, "back");
    wait(&mut guest, "long");
    let stopped = served.kill();
    tell(&mut guest, "gone");
    wait(&mut guest, "up");
    let served = stopped.start_again();
    tell(&mut guest, "back");
    finish(guest);
    served.stop();
}

mod slow {
    use guest_rig::Kernel;

    #[test]
    fn a_host_connects_to_all_that_two_servers_list() {
        super::connects_to_all(Kernel::Backports);
    }

    #[test]
    fn a_host_with_an_older_kernel_connects_to_all() {
        super::connects_to_all(Kernel::Stable);
    }

    #[test]
    fn a_host_waits_for_its_server_or_gives_it_up() {
        super::loses_its_server(Kernel::Stable);
    }

    #[test]
    fn a_host_with_a_newer_kernel_waits_for_its_server_or_gives_it_up() {
        super::loses_its_server(Kernel::Backports);
    }
}
