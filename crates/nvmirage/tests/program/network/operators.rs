//! Operators' work while there are hosts.

use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::raw::Raw;
use super::{DISK, NQN, Port, busy, hosts, metric, serve, served, until, until_hosts};
use crate::host::Host;
use crate::world::{World, wait};

fn identify(world: &World, port: &Port) {
    world.ok(&["identify", "--target", &port.target()]);
}

#[test]
fn a_controller_with_hosts_is_deleted_with_consent_and_its_port_is_free() {
    let world = World::new();
    let (server, port) = served(&world, "");
    let mut host = busy(&world, &port.target());
    let mut silent = Raw::connect(&port, 0, 1).unwrap();
    until_hosts(&world, 2);
    let delete = ["delete", "controller", "store"];
    let error = world.fails(&world.steer(&delete));
    assert!(error.contains("2 hosts over NVMe/TCP"), "{error}");
    assert_eq!(hosts(&world).len(), 2);
    world.ok(&world.steer(&[&delete[..], &["--detach-hosts"]].concat()));
    assert!(!wait(&mut host).success());
    assert!(silent.is_closed());
    // no one listens, and someone may
    TcpListener::bind(port.address()).unwrap();
    server.stop();
}

#[test]
fn a_reload_adds_and_removes_controllers() {
    let world = World::new();
    let (port, other) = (Port::new(), Port::new());
    let one = format!("{DISK}{}", port.controller("subsystem = \"s\"\n"));
    let second = other.controller("subsystem = \"s\"\n");
    let both = format!("{one}{}", second.replace("\"store\"", "\"second\""));
    let server = serve(&world, &one, &[]);
    let mut host = Host::at(&port.target()).unwrap();
    host.fill(1, 3, 0x5a);
    world.write("config.toml", &both);
    world.ok(&world.steer(&["reload"]));
    let mut second = Host::at(&other.target()).unwrap();
    assert!(second.block(1, 3).iter().all(|byte| *byte == 0x5a));
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    world.write("config.toml", &one);
    let kept = world.run(&world.steer(&["reload"]));
    assert!(!kept.status.success());
    assert!(kept.out.contains("controller second"), "{}", kept.out);
    assert!(kept.out.contains("--detach-hosts"), "{}", kept.out);
    assert!(second.block(1, 3).iter().all(|byte| *byte == 0x5a));
    world.ok(&world.steer(&["reload", "--detach-hosts"]));
    assert!(TcpStream::connect(other.address()).is_err());
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    drop((host, second));
    server.stop();
}

#[test]
fn a_port_in_use_is_an_error_of_one_controller() {
    let world = World::new();
    let (server, port) = served(&world, "");
    let mut host = Host::at(&port.target()).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("nvme-tcp:{}", taken.local_addr().unwrap());
    let create = [
        "create",
        "controller",
        "other",
        "--namespaces",
        "",
        "--listen",
        &listen,
    ];
    let error = world.fails(&world.steer(&create));
    assert!(
        error.contains(&format!("cannot listen on {listen}")),
        "{error}"
    );
    assert!(error.contains("in use"), "{error}");
    host.fill(1, 3, 7);
    drop(taken);
    world.ok(&world.steer(&create));
    drop(host);
    server.stop();
    // at the start it is the server's error
    let taken = TcpListener::bind(port.address()).unwrap();
    let config = world.path("config.toml");
    let error = world.fails(&["serve", "--config", config.to_str().unwrap()]);
    assert!(error.contains("cannot listen on"), "{error}");
    drop(taken);
}

#[test]
fn a_server_stops_while_hosts_have_commands_in_flight() {
    let world = World::new();
    let port = Port::new();
    // commands that are in flight for as long as the server waits for them
    let slow = "[[media]]\nname = \"disk\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
                timing = { preset = \"optane-p4800x\", read_latency = \"2s\" }\n\
                [[namespace]]\nname = \"data\"\nmedia = \"disk\"\n";
    let server = serve(&world, &format!("{slow}{}", port.controller("")), &[]);
    let mut children: Vec<_> = (0..3).map(|_| busy(&world, &port.target())).collect();
    until_hosts(&world, 3);
    until("no command arrives", || {
        metric(&world, "nvmirage_tcp_commands_total{controller=\"store\"}") > 60.0
    });
    let begun = Instant::now();
    server.stop();
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    assert!(children.iter_mut().all(|child| !wait(child).success()));
}

#[test]
fn hosts_are_disconnected_by_name_by_identifier_or_all() {
    let world = World::new();
    let (server, port) = served(&world, "");
    let disconnect = |which: &[&str]| {
        let args = world.steer(&[&["disconnect", "store"], which].concat());
        world.run(&args)
    };
    let said = |which: &[&str]| {
        let ran = disconnect(which);
        assert!(ran.status.success(), "{}", ran.err);
        ran.out
    };
    let connect = |id| Raw::connect(&port, 0, id).unwrap();
    let (mut one, mut two, mut three) = (connect(1), connect(2), connect(3));
    let stays = connect(4);
    until_hosts(&world, 4);
    let by_name = ["--host", "nqn.2026-11.test:host-1"];
    assert_eq!(said(&by_name), "disconnected 1 host of controller store\n");
    assert!(one.is_closed());
    let id = format!("{:#x}", two.cntlid);
    assert_eq!(
        said(&["--cntlid", &id]),
        "disconnected 1 host of controller store\n"
    );
    assert!(two.is_closed());
    until_hosts(&world, 2);
    for (which, word) in [
        (&by_name[..], "nqn.2026-11.test:host-1"),
        (&["--cntlid", &id], &id),
        (&["--cntlid", "1"], "0x1"),
    ] {
        let error = disconnect(which);
        assert_eq!(error.status.code(), Some(1), "{which:?}");
        assert!(error.err.contains(word), "{}", error.err);
        assert!(error.err.contains("nvmirage hosts"), "{}", error.err);
    }
    for wrong in [&[][..], &["--all", "--cntlid", "256"], &["--cntlid", "x"]] {
        assert_eq!(disconnect(wrong).status.code(), Some(2), "{wrong:?}");
    }
    let error = world.fails(&world.steer(&["disconnect", "nothing", "--all"]));
    assert!(error.contains("nothing"), "{error}");
    assert_eq!(hosts(&world).len(), 2);
    assert_eq!(
        said(&["--all"]),
        "disconnected 2 hosts of controller store\n"
    );
    assert!(three.is_closed());
    until_hosts(&world, 0);
    drop(stays);
    assert_eq!(
        said(&["--all"]),
        "disconnected 0 hosts of controller store\n"
    );
    // the controller still listens
    identify(&world, &port);
    let ended = |reason| {
        metric(
            &world,
            &format!("nvmirage_tcp_hosts_ended_total{{controller=\"store\",reason=\"{reason}\"}}"),
        )
    };
    assert_eq!(ended("removed"), 4.0);
    for body in ["{}", "{\"all\":false}", "{\"cntlid\":256,\"all\":true}"] {
        world
            .ask("POST /v1/hosts/store/disconnect", &[], body)
            .refuses(422, "exactly one of nqn, export, cntlid and all");
    }
    server.stop();
}

/// Linux sends a command in the context of a program, which gets a SIGPIPE from a reset.
#[test]
fn no_connection_of_a_host_is_reset() {
    let time = Duration::from_millis(300);
    let world = World::new();
    let (server, port) = served(&world, "");
    let connect = || Raw::with_queue(&port, 1);
    let mut host = connect();
    world.ok(&world.steer(&["disconnect", "store", "--all"]));
    host.ends_in_order(time).unwrap();
    // not for ever
    until("it sends without end", || {
        host.ends_in_order(Duration::from_millis(20)).is_err()
    });
    // the controller is gone before the connection
    let mut host = connect();
    world.ok(&world.steer(&["delete", "controller", "store", "--detach-hosts"]));
    host.ends_in_order(time).unwrap();
    let listen = port.listen();
    let create = ["create", "controller", "store", "--namespaces", "data"];
    let more = ["--subnqn", NQN, "--listen", &listen];
    world.ok(&world.steer(&[&create[..], &more].concat()));
    // and the end of the process waits for it
    let mut host = connect();
    let parting = thread::spawn(move || host.ends_in_order(time));
    server.stop();
    parting.join().unwrap().unwrap();
}

#[test]
fn only_hosts_over_tcp_are_disconnected() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let mut host = Host::attach(&world, "nvme.sock");
    let error = world.fails(&world.steer(&["disconnect", "nvme0", "--all"]));
    assert!(error.contains("no hosts over NVMe/TCP"), "{error}");
    host.fill(1, 3, 7);
    drop(host);
    server.stop();
}

#[test]
fn counters_of_hosts_stay_when_they_leave() {
    let world = World::new();
    let (server, port) = served(&world, "");
    let count = |name: &str, more: &str| {
        metric(
            &world,
            &format!("nvmirage_tcp_{name}_total{{controller=\"store\"{more}}}"),
        )
    };
    let moved = |op| {
        metric(
            &world,
            &format!("nvmirage_controller_commands_total{{controller=\"store\",op=\"{op}\"}}"),
        )
    };
    let all = || {
        [
            count("commands", ""),
            count("data_bytes", ",direction=\"received\""),
            count("data_bytes", ",direction=\"sent\""),
            count("hosts_connected", ""),
            moved("read"),
            moved("write"),
        ]
    };
    assert_eq!(all(), [0.0; 6]);
    let mut host = Host::at(&port.target()).unwrap();
    host.fill(1, 3, 0x5a);
    host.block(1, 3);
    let there = all();
    assert!(there.iter().all(|count| *count > 0.0), "{there:?}");
    assert!(there[1] > 512.0 && there[2] > 4096.0, "{there:?}");
    drop(host);
    until_hosts(&world, 0);
    let left = all();
    assert!(
        left.iter()
            .zip(&there)
            .all(|(after, before)| after >= before),
        "{left:?} {there:?}"
    );
    let mut host = Host::at(&port.target()).unwrap();
    host.fill(1, 3, 0x5a);
    host.block(1, 3);
    drop(host);
    until_hosts(&world, 0);
    let last = all();
    let grew = last.iter().zip(&left).all(|(after, before)| after > before);
    assert!(grew, "{last:?} {left:?}");
    assert_eq!(last[3..], [2.0; 3]);
    assert_eq!(count("hosts_ended", ",reason=\"closed\""), 2.0);
    let other = port.target().replace("store", "other");
    world.fails(&["identify", "--target", &other]);
    assert_eq!(count("connections_refused", ",reason=\"parameters\""), 1.0);
    server.stop();
}
