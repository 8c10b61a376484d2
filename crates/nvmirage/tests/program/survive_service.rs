//! `serve --survive` under a service manager, played by the test: it knows the holder only.

use std::os::unix::net::{UnixDatagram, UnixListener};
use std::time::Instant;

use rustix::process::{Signal, kill_process};

use crate::host::Host;
use crate::service::activated;
use crate::survive::{replace, wait_for_log, worker};
use crate::world::{BOUND, Server, World};

#[test]
fn the_manager_hears_of_the_service_and_a_hung_worker_is_replaced() {
    let world = World::new();
    let path = world.path("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(BOUND)).unwrap();
    let hear = || {
        let mut message = [0; 1024];
        let len = manager.recv(&mut message).expect("it says nothing");
        String::from_utf8(message[..len].to_vec()).unwrap()
    };
    let hear_until = |line: &str| {
        let deadline = Instant::now() + BOUND;
        while !hear().lines().any(|heard| heard == line) {
            assert!(Instant::now() < deadline, "no {line}");
        }
    };
    let listen = world.vfio_user("nvme.sock");
    let control = world.unix("control");
    let mut command = world.program();
    let args = ["serve", "--survive", "--media", "ram:size=16MiB"];
    command
        .args(args)
        .args(["--listen", &listen, "--control", &control])
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "3000000");
    let mut server = Server::start(command, world.path("server.log"));
    hear_until("READY=1");
    hear_until("WATCHDOG=1");
    let mut host = Host::attach(&world, "nvme.sock");
    host.fill(1, 3, 0x5a);

    let hung = worker(&mut server, None);
    kill_process(hung, Signal::STOP).unwrap();
    wait_for_log(&server, "has shown no life for 1 s", 1);
    wait_for_log(&server, "hosts continue after", 1);
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    let listed = world.ok(&world.steer(&["ls"]));
    assert!(
        listed.contains("the last one ended (no sign of life)"),
        "{listed}"
    );
    // The next one is heard, too.
    hear_until("READY=1");
    hear_until("WATCHDOG=1");

    drop(host);
    server.signal(Signal::TERM);
    hear_until("STOPPING=1");
    assert!(server.end().success());
}

#[test]
fn the_managers_control_socket_outlives_a_worker() {
    let world = World::new();
    let path = world.path("managers.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let listen = world.vfio_user("nvme.sock");
    let args = [
        "serve",
        "--survive",
        "--media",
        "null:size=16MiB",
        "--listen",
        &listen,
    ];
    let command = activated(&world, &listener, &args);
    let mut server = Server::start(command, world.path("server.log"));
    let control = format!("unix:{}", path.display());
    for process in 1..4 {
        let listed = world.ok(&["ls", "--control", &control]);
        let line = format!("process {process} of this server");
        assert_eq!(listed.contains(&line), process > 1, "{listed}");
        if process < 3 {
            replace(&mut server);
        }
    }
    server.stop();
    assert!(path.exists(), "the manager's socket is gone");
}
