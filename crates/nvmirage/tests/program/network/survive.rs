//! `serve --survive` and `upgrade` with hosts over NVMe/TCP.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use driver::DriverError;
use driver::bus::place::AnyBus;
use rustix::process::{Signal, kill_process};

use super::raw::{Raw, ic_req};
use super::{DISK, Port, serve, until_hosts};
use crate::host::Host;
use crate::survive::{replace, wait_for_log, worker};
use crate::world::{BOUND, Server, World};

/// A server of one disk, for hosts over vfio-user and over NVMe/TCP.
fn both(world: &World) -> (Server, Port) {
    let port = Port::new();
    let near = format!(
        "[[controller]]\nname = \"near\"\nsubsystem = \"s\"\nnamespaces = [\"data\"]\nlisten = \"{}\"\n",
        world.vfio_user("nvme.sock")
    );
    let config = format!("{DISK}{}{near}", port.controller("subsystem = \"s\"\n"));
    (serve(world, &config, &["--survive"]), port)
}

/// A host that connects again, as Linux does.
fn again(port: &Port) -> Host<AnyBus> {
    let deadline = Instant::now() + BOUND;
    loop {
        match Host::at(&port.target()) {
            Ok(host) => return host,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

fn has(host: &mut Host<AnyBus>, byte: u8) -> bool {
    host.block(1, 3).iter().all(|other| *other == byte)
}

#[test]
fn a_host_over_tcp_connects_again_after_a_death() {
    let world = World::new();
    let (mut server, port) = both(&world);
    let mut near = Host::attach(&world, "nvme.sock");
    let mut far = Host::at(&port.target()).unwrap();
    for byte in 1..3 {
        far.fill(1, 3, byte);
        replace(&mut server);
        assert!(near.block(1, 3).iter().all(|other| *other == byte));
        let gone = far.device().active_namespaces();
        assert!(matches!(gone, Err(DriverError::Gone)), "{gone:?}");
        far = again(&port);
        assert!(has(&mut far, byte));
        until_hosts(&world, 1);
    }
    drop((near, far));
    server.stop();
    TcpListener::bind(port.address()).unwrap();
}

/// Between two processes no other program gets the port, and hosts that connect wait.
#[test]
fn the_port_is_never_free_between_two_processes() {
    let world = World::new();
    let (mut server, port) = both(&world);
    thread::sleep(Duration::from_millis(1100));
    let old = worker(&mut server, None);
    kill_process(old, Signal::KILL).unwrap();
    let mut tries = 0;
    while !server.log().contains("hosts continue after") {
        TcpListener::bind(port.address()).unwrap_err();
        tries += 1;
    }
    assert!(tries > 3, "{tries}");
    wait_for_log(&server, "hosts continue after", 1);
    // and once more, with a host that comes while there is no process
    thread::sleep(Duration::from_millis(1100));
    kill_process(worker(&mut server, None), Signal::KILL).unwrap();
    let mut host = Host::at(&port.target()).unwrap();
    host.fill(1, 3, 7);
    wait_for_log(&server, "hosts continue after", 2);
    assert!(has(&mut host, 7));
    drop(host);
    server.stop();
}

#[test]
fn an_upgrade_keeps_the_port() {
    let world = World::new();
    let (server, port) = both(&world);
    let mut near = Host::attach(&world, "nvme.sock");
    let mut far = Host::at(&port.target()).unwrap();
    for byte in 1..3 {
        far.fill(1, 3, byte);
        let mut other = Raw::with_queue(&port, byte);
        let target = port.address();
        let parting = thread::spawn(move || {
            // one that comes before this process ends is the next one's
            other.ends_in_order(Duration::from_millis(100)).unwrap();
            let early = TcpStream::connect(target).unwrap();
            (&early).write_all(&ic_req()).unwrap();
            other.ends_in_order(Duration::from_millis(200)).unwrap();
            early
        });
        let said = world.ok(&world.steer(&["upgrade"]));
        assert!(said.starts_with("upgraded server: "), "{said}");
        // a reset would be a SIGPIPE for a program of a Linux host
        let mut early = parting.join().unwrap();
        early.set_read_timeout(Some(BOUND)).unwrap();
        early.read_exact(&mut [0; 128]).unwrap();
        assert!(near.block(1, 3).iter().all(|other| *other == byte));
        far = again(&port);
        assert!(has(&mut far, byte));
    }
    drop((near, far));
    server.stop();
}

/// The holder keeps no socket of a controller that is deleted, also after a death.
#[test]
fn a_deleted_controller_leaves_its_port_to_others() {
    let world = World::new();
    let (mut server, port) = both(&world);
    for _ in 0..2 {
        world.ok(&world.steer(&["delete", "controller", "store"]));
        drop(TcpListener::bind(port.address()).unwrap());
        let listen = port.listen();
        let create = ["create", "controller", "store", "--namespaces", "data"];
        let more = ["--subsystem", "s", "--listen", &listen];
        world.ok(&world.steer(&[&create[..], &more].concat()));
        let mut host = Host::at(&target_of(&world)).unwrap();
        host.fill(1, 3, 1);
        drop(host);
        until_hosts(&world, 0);
        replace(&mut server);
    }
    server.stop();
}

#[test]
fn a_port_that_a_reload_changes_is_kept_and_the_old_one_is_free() {
    let world = World::new();
    let (mut server, port) = both(&world);
    let other = Port::new();
    let config = std::fs::read_to_string(world.path("config.toml")).unwrap();
    world.write(
        "config.toml",
        &config.replace(&port.listen(), &other.listen()),
    );
    world.ok(&world.steer(&["reload"]));
    for byte in 1..3 {
        drop(TcpListener::bind(port.address()).unwrap());
        let mut far = again(&other);
        far.fill(1, 3, byte);
        replace(&mut server);
        TcpListener::bind(other.address()).unwrap_err();
        assert!(has(&mut again(&other), byte));
    }
    server.stop();
}

/// Address of the drive with the NQN that its subsystem has now.
fn target_of(world: &World) -> String {
    let shown = world
        .ask("GET /v1/controllers/store", &[], "")
        .is(200)
        .json();
    let (listen, nqn) = (&shown["listen"], &shown["identity"]["subnqn"]);
    format!("{}/{}", listen.as_str().unwrap(), nqn.as_str().unwrap())
}
