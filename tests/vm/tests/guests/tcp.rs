//! Hosts over NVMe/TCP: the same script on the target of the guest's own kernel, which is the
//! reference, and on a drive of ours.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::{Duration, Instant};

use guest_rig::{Boot, Guest, Kernel, Options, Report};
use serde_json::json as value;

use crate::served::{BOUND, Served, finish, json, rig, tell, wait};

/// Functions of a host, and its network.
const FUNCTIONS: &str = concat!(
    include_str!("jobs/functions.sh"),
    include_str!("jobs/tcp.sh")
);

/// One namespace, as that of the reference.
const CONFIG: &str = r#"
[[media]]
name = "memory"
kind = "ram"
size = "64MiB"

[[namespace]]
name = "data"
media = "memory"
lba_size = 512

[[controller]]
name = "store"
namespaces = ["data"]
listen = "nvme-tcp:127.0.0.1:PORT"
subnqn = "nqn.2026-11.org.example:ours"
"#;

/// The test looks at the server while the first connection is there. PORT is that of the server.
const OURS: &str = "
NAME=ours ADDRESS=10.0.2.2 PORT=PORT NQN=nqn.2026-11.org.example:ours
step ours-discover discovered
step ours-first connect
say connected
await seen
step ours-gone disconnect
say gone
await absent
as_a_host
step quiet no_complaints
";

/// The host's secret and the controller's: the bytes 0 to 31 and 100 to 147.
const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const CONTROLLER_KEY: &str =
    "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";

/// The guest's host alone may connect, and both sides prove who they are.
const HOST: &str = r#"
[[host]]
nqn = "nqn.2014-08.org.nvmexpress:uuid:8c1d1f6e-5a2b-4c59-9a35-6f0b6f3d7c01"
name = "guest"
dhchap_key = "DIR/host.key"
dhchap_ctrl_key = "DIR/controller.key"
"#;

/// Hosts that are refused come first and last: the target goes on after each.
const SECURE: &str = "
NAME=ours ADDRESS=10.0.2.2 PORT=PORT NQN=nqn.2026-11.org.example:ours
step no-secret refused
step wrong-secret refused --dhchap-secret=WRONG
step wrong-controller refused --dhchap-secret=KEY --dhchap-ctrl-secret=WRONG
step secret connect --dhchap-secret=KEY
step secret-disconnect disconnect
step both connect --dhchap-secret=KEY --dhchap-ctrl-secret=CONTROLLER
say connected
await seen
step both-checks checks
step both-reset reset_once
step both-disconnect disconnect
HOST_ID=8c1d1f6e-5a2b-4c59-9a35-6f0b6f3d7c02
step stranger refused --dhchap-secret=KEY
";

/// Keys of two hosts for TLS, of the same bytes. GnuTLS before 3.8.11, which Debian has, proves no
/// key for SHA-384.
const TLS_KEY: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const PLAIN_TLS_KEY: &str = "NVMeTLSkey-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

/// Two hosts, each with a key.
const TLS_HOSTS: &str = r#"
[[host]]
nqn = "nqn.2014-08.org.nvmexpress:uuid:8c1d1f6e-5a2b-4c59-9a35-6f0b6f3d7c01"
tls_key = "DIR/host.key"

[[host]]
nqn = "nqn.2014-08.org.nvmexpress:uuid:8c1d1f6e-5a2b-4c59-9a35-6f0b6f3d7c02"
tls_key = "DIR/plain.key"
"#;

/// GnuTLS does the handshakes, and the kernel the records. The first host has names of version 1,
/// and the second one of version 0.
const TLS: &str = "
NAME=ours ADDRESS=10.0.2.2 PORT=PORT NQN=nqn.2026-11.org.example:ours
step handshakes handshakes
step without refused
step key insert_key KEY --identity=1
step tls connect --tls
step tls-checks checks
step tls-reset reset_once
step tls-disconnect disconnect
HOST_ID=8c1d1f6e-5a2b-4c59-9a35-6f0b6f3d7c02
step wrong-key insert_key WRONG --identity=0
step wrong refused --tls
step plain-key insert_key PLAIN --identity=0
step plain connect --tls
step plain-checks checks
step plain-disconnect disconnect
";

/// The guest's host makes its keys of TLS with the target, by its secret.
const CONCATENATING_HOST: &str = r#"
[[host]]
nqn = "nqn.2014-08.org.nvmexpress:uuid:8c1d1f6e-5a2b-4c59-9a35-6f0b6f3d7c01"
dhchap_key = "DIR/host.key"
dhchap_ctrl_key = "DIR/controller.key"
concatenation = "required"
"#;

/// Each connection and each reset makes a key. In clear the host is refused.
const CONCATENATES: &str = "
NAME=ours ADDRESS=10.0.2.2 PORT=PORT NQN=nqn.2026-11.org.example:ours
step handshakes handshakes
step clear refused --dhchap-secret=KEY
step wrong-secret refused --dhchap-secret=WRONG --concat
step concat connect --dhchap-secret=KEY --concat
say connected
await seen
step concat-reset reset_once
step concat-checks checks
step concat-disconnect disconnect
step both connect --dhchap-secret=KEY --dhchap-ctrl-secret=CONTROLLER_KEY --concat
step both-disconnect disconnect
";

/// The guest's kernel as host and as target.
const REFERENCE: &str = "
step reference reference 4420 nqn.2026-11.org.example:reference
NAME=reference ADDRESS=127.0.0.1 PORT=4420 NQN=nqn.2026-11.org.example:reference
as_a_host
step quiet no_complaints
";

/// Two entrances of one subsystem.
const TWO: &str = r#"
[[media]]
name = "memory"
kind = "ram"
size = "64MiB"

[[namespace]]
name = "data"
media = "memory"
ana_group = 2

[[controller]]
name = "a"
subsystem = "ours"
namespaces = ["data"]
listen = "nvme-tcp:127.0.0.1:PORT_A"
subnqn = "nqn.2026-11.org.example:ours"

[[controller]]
name = "b"
subsystem = "ours"
namespaces = ["data"]
listen = "nvme-tcp:127.0.0.1:PORT_B"
subnqn = "nqn.2026-11.org.example:ours"
"#;

/// The guest's part of the test with two paths.
const PATHS: &str = "
step path-a add_path $PORT_A
step path-b add_path $PORT_B
step head one_head
step listed both_listed
tell id-ctrl sh -c \"nvme id-ctrl /dev/$(path $PORT_A) -o json\"
tell ana-log sh -c \"nvme ana-log /dev/$(path $PORT_A) -o json\"
in_background load load
switches
step stops stops
step listed both_listed
step quiet quiet_paths
";

/// A guest with a network and no drive.
fn options(kernel: Kernel, job: &str) -> Options {
    let network = [
        "-netdev",
        "user,id=network",
        "-device",
        "virtio-net-pci,netdev=network,addr=0x1d",
    ];
    Options {
        boot: Boot::Kernel(kernel),
        job: Some(format!("{FUNCTIONS}\n{job}")),
        share_memory: false,
        qemu_args: network.map(Into::into).to_vec(),
        ..Options::default()
    }
}

/// Boots a guest that runs the job after [`FUNCTIONS`].
pub(crate) fn boot(kernel: Kernel, job: &str) -> Guest {
    let guest = Guest::boot(&rig(), &options(kernel, job));
    guest.unwrap_or_else(|error| panic!("{error}"))
}

/// Checks what the kernel has read from the controller of the drive `name`.
fn check(report: &Report, name: &str) {
    let controller = json(report, &format!("{name}-id-ctrl"));
    let number = |key: &str| controller[key].as_u64().unwrap_or_else(|| panic!("{key}"));
    assert_eq!(number("cntrltype"), 1, "an I/O controller");
    assert!(number("kas") > 0, "keep alive");
    assert!(number("ioccsz") >= 4, "a command fits into a capsule");
    assert_eq!(number("iorcsz"), 1);
    assert_eq!(number("icdoff"), 0);
}

fn uses_the_kernels_target(kernel: Kernel) {
    check(&finish(boot(kernel, REFERENCE)), "reference");
}

/// A port of the loopback device that no program uses now.
pub(crate) fn free_port() -> u16 {
    let socket = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback device has a port");
    socket.local_addr().expect("it has an address").port()
}

fn uses_our_target(kernel: Kernel) {
    let port = free_port().to_string();
    let served = Served::start(&CONFIG.replace("PORT", &port));
    let job = OURS.replace("PORT=PORT", &format!("PORT={port}"));
    let mut guest = boot(kernel, &job);
    wait(&mut guest, "connected");
    let hosts = served.ask("/v1/hosts");
    let host = &hosts[0]["hosts"][0];
    let nqn = host["nqn"].as_str().unwrap_or_default();
    assert!(
        nqn.starts_with("nqn.2014-08.org.nvmexpress:uuid:8c1d1f6e"),
        "{hosts}"
    );
    assert_eq!(host["io_queues"], 2, "{hosts}");
    assert_eq!(host["keep_alive_ms"], 5000, "{hosts}");
    assert!(host["cntlid"].as_u64() >= Some(0x100), "{hosts}");
    tell(&mut guest, "seen");
    wait(&mut guest, "gone");
    let bound = Instant::now() + BOUND;
    while served.ask("/v1/hosts") != value!([]) {
        assert!(Instant::now() < bound, "the host stays in the list");
        thread::sleep(Duration::from_millis(50));
    }
    tell(&mut guest, "absent");
    check(&finish(guest), "ours");
    served.stop();
}

/// A host whose load goes on over two paths, whichever of them the operator closes.
fn changes_paths(kernel: Kernel) {
    let [a, b] = [free_port(), free_port()].map(|port| port.to_string());
    let toml = TWO.replace("PORT_A", &a).replace("PORT_B", &b);
    let served = Served::start(&toml);
    let ports = format!(
        "ADDRESS=10.0.2.2 PORT_A={a} PORT_B={b} NQN=nqn.2026-11.org.example:ours\n{}",
        include_str!("jobs/paths.sh")
    );
    let mut guest = boot(kernel, &format!("{ports}{PATHS}"));
    let set = |controller: &str, state: &str| {
        served.steer(&["set", "controller", controller, &format!("ana.2={state}")]);
    };
    for _ in 0..3 {
        for (controller, port, state) in [
            ("a", &a, "inaccessible"),
            ("a", &a, "non-optimized"),
            ("b", &b, "inaccessible"),
            ("a", &a, "optimized"),
            ("b", &b, "optimized"),
            ("a", &a, "persistent-loss"),
            ("a", &a, "optimized"),
        ] {
            wait(&mut guest, "next");
            set(controller, state);
            tell(&mut guest, &format!("{port} {state}"));
        }
    }
    wait(&mut guest, "next");
    served.steer(&["delete", "controller", "b", "--detach-hosts"]);
    tell(&mut guest, &format!("gone {b}"));
    wait(&mut guest, "next");
    let listen = format!("nvme-tcp:127.0.0.1:{b}");
    let again = ["create", "controller", "b", "--subsystem", "ours"];
    let more = ["--namespaces", "data", "--listen", &listen];
    served.steer(&[&again[..], &more].concat());
    tell(&mut guest, &format!("back {b}"));
    wait(&mut guest, "next");
    tell(&mut guest, "end");
    let report = finish(guest);
    let controller = json(&report, "id-ctrl");
    assert_eq!(controller["anacap"], 0x1f, "{controller}");
    assert_eq!(controller["nanagrpid"], 128, "{controller}");
    served.stop();
}

#[test]
fn a_host_changes_paths_as_the_operator_sets_them() {
    changes_paths(Kernel::Stable);
}

fn proves_who_it_is(kernel: Kernel) {
    let port = free_port().to_string();
    let config = format!("{HOST}{}", CONFIG.replace("PORT", &port));
    let served = Served::start_with(&config, |dir| {
        for (name, text) in [("host.key", KEY), ("controller.key", CONTROLLER_KEY)] {
            let path = dir.join(name);
            fs::write(&path, text).expect("the folder is ours");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        }
    });
    // The same bytes as another key: they are not bound to the host's name.
    let wrong = KEY.replace("DHHC-1:01", "DHHC-1:00");
    let job = SECURE
        .replace("PORT=PORT", &format!("PORT={port}"))
        .replace("=WRONG", &format!("={wrong}"))
        .replace("=CONTROLLER", &format!("={CONTROLLER_KEY}"))
        .replace("=KEY", &format!("={KEY}"));
    let mut guest = boot(kernel, &job);
    wait(&mut guest, "connected");
    let hosts = served.ask("/v1/hosts");
    assert_eq!(hosts[0]["hosts"][0]["authentication"], "both", "{hosts}");
    tell(&mut guest, "seen");
    finish(guest);
    served.stop();
}

fn encrypts(kernel: Kernel) {
    let port = free_port().to_string();
    let config = format!("{TLS_HOSTS}{}", CONFIG.replace("PORT", &port));
    let served = Served::start_with(&config, |dir| {
        for (name, text) in [("host.key", TLS_KEY), ("plain.key", PLAIN_TLS_KEY)] {
            let path = dir.join(name);
            fs::write(&path, text).expect("the folder is ours");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        }
    });
    let job = TLS
        .replace("PORT=PORT", &format!("PORT={port}"))
        // It has the same name in version 0.
        .replace("insert_key WRONG", &format!("insert_key {TLS_KEY}"))
        .replace("insert_key PLAIN", &format!("insert_key {PLAIN_TLS_KEY}"))
        .replace("insert_key KEY", &format!("insert_key {TLS_KEY}"));
    finish(boot(kernel, &job));
    served.stop();
}

fn concatenates(kernel: Kernel) {
    let port = free_port().to_string();
    let config = format!("{CONCATENATING_HOST}{}", CONFIG.replace("PORT", &port));
    let served = Served::start_with(&config, |dir| {
        for (name, text) in [("host.key", KEY), ("controller.key", CONTROLLER_KEY)] {
            let path = dir.join(name);
            fs::write(&path, text).expect("the folder is ours");
            fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        }
    });
    let wrong = KEY.replace("DHHC-1:01", "DHHC-1:00");
    let job = CONCATENATES
        .replace("PORT=PORT", &format!("PORT={port}"))
        .replace("=WRONG", &format!("={wrong}"))
        .replace("=CONTROLLER_KEY", &format!("={CONTROLLER_KEY}"))
        .replace("=KEY", &format!("={KEY}"));
    let mut guest = boot(kernel, &job);
    wait(&mut guest, "connected");
    let hosts = served.ask("/v1/hosts");
    let host = &hosts[0]["hosts"][0];
    assert_eq!(host["tls"], true, "{hosts}");
    assert_eq!(host["authentication"], "host", "{hosts}");
    assert_eq!(host["io_queues"], 2, "{hosts}");
    tell(&mut guest, "seen");
    finish(guest);
    served.stop();
}

#[test]
fn a_host_encrypts_its_connections() {
    encrypts(Kernel::Backports);
}

#[test]
fn a_host_uses_our_target() {
    uses_our_target(Kernel::Stable);
}

#[test]
fn a_host_and_our_target_prove_who_they_are() {
    proves_who_it_is(Kernel::Backports);
}

mod slow {
    use guest_rig::Kernel;

    #[test]
    fn a_host_with_a_newer_kernel_uses_our_target() {
        super::uses_our_target(Kernel::Backports);
    }

    #[test]
    fn a_host_with_a_newer_kernel_changes_paths() {
        super::changes_paths(Kernel::Backports);
    }

    #[test]
    fn a_host_makes_its_key_with_our_target() {
        super::concatenates(Kernel::Backports);
    }

    #[test]
    fn a_host_with_an_older_kernel_encrypts() {
        super::encrypts(Kernel::Stable);
    }

    #[test]
    fn a_host_with_an_older_kernel_proves_who_it_is() {
        super::proves_who_it_is(Kernel::Stable);
    }

    #[test]
    fn a_host_uses_its_own_kernels_target() {
        super::uses_the_kernels_target(Kernel::Stable);
    }

    #[test]
    fn a_host_with_a_newer_kernel_uses_its_own_target() {
        super::uses_the_kernels_target(Kernel::Backports);
    }
}
