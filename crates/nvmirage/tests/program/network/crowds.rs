//! Many hosts, silent ones, and those that vanish.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::raw::{Raw, ic_req};
use super::{DISK, Port, busy, hosts, metric, serve, served, until, until_hosts};
use crate::host::Host;
use crate::world::{Server, World, wait};

/// Connect Controller Busy: type 1, code 81h (Fabrics 1.1, 3.3).
const BUSY: u16 = 0x181;

/// The server's memory in use, in bytes.
fn resident(server: &mut Server) -> u64 {
    let path = format!("/proc/{}/status", server.child().id());
    let status = std::fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.unwrap().trim().trim_end_matches(" kB");
    kilobytes.parse::<u64>().unwrap() << 10
}

#[test]
fn one_host_too_many_is_refused_until_another_has_left() {
    let world = World::new();
    let (server, port) = served(&world, "hosts = 2");
    let one = Raw::connect(&port, 0, 1).unwrap();
    let _two = Raw::connect(&port, 0, 2).unwrap();
    for _ in 0..3 {
        assert_eq!(Raw::connect(&port, 0, 3).err(), Some(BUSY));
    }
    let refused = "nvmirage_tcp_connections_refused_total{controller=\"store\",reason=\"busy\"}";
    assert_eq!(metric(&world, refused), 3.0);
    drop(one);
    until_hosts(&world, 1);
    until("the place stays taken", || {
        Raw::connect(&port, 0, 3).is_ok()
    });
    server.stop();
}

#[test]
fn hosts_that_connect_again_and_again_do_not_fill_the_log() {
    const CONNECTS: u32 = 80;
    let world = World::new();
    let (server, port) = served(&world, "");
    for number in 0..CONNECTS {
        until("a host connects", || {
            Raw::connect(&port, 0, number as u8).is_ok()
        });
    }
    until_hosts(&world, 0);
    let log = server.log();
    // The minute may have ended once.
    for line in ["host attached", "host detached"] {
        let lines = log.matches(line).count();
        assert!((30..=60).contains(&lines), "{lines} of {line}");
    }
    assert!(log.contains("leaves others out"), "{log}");
    server.stop();
}

#[test]
fn hosts_that_vanish_leave_their_places() {
    let world = World::new();
    let (server, port) = served(&world, "hosts = 2");
    // its process ends, with commands in flight
    let mut killed = busy(&world, &port.target());
    // it says nothing more, and its connection stays
    let mut silent = Raw::connect(&port, 1000, 1).unwrap();
    until_hosts(&world, 2);
    assert_eq!(Raw::connect(&port, 0, 2).err(), Some(BUSY));
    killed.kill().unwrap();
    assert!(!wait(&mut killed).success());
    until_hosts(&world, 1);
    assert!(silent.is_closed());
    until_hosts(&world, 0);
    let ended = |reason: &str| {
        metric(
            &world,
            &format!("nvmirage_tcp_hosts_ended_total{{controller=\"store\",reason=\"{reason}\"}}"),
        )
    };
    assert_eq!([ended("closed"), ended("keep-alive")], [1.0, 1.0]);
    for id in 3..5 {
        let host = Raw::connect(&port, 0, id).unwrap();
        std::mem::forget(host);
    }
    server.stop();
}

#[test]
fn a_host_that_leaves_lets_those_that_came_later_work() {
    let world = World::new();
    let (server, port) = served(&world, "");
    let done = || metric(&world, "nvmirage_tcp_commands_total{controller=\"store\"}");
    for id in 1..7 {
        let mut first = Raw::connect(&port, 0, id).unwrap();
        let mut second = busy(&world, &port.target());
        until_hosts(&world, 2);
        let before = done();
        until("no command is served", || done() > before + 100.0);
        // it leaves while the server still looks at its connection in each turn
        first.send(0x18, 1, 0).unwrap();
        first.stream.read_exact(&mut [0; 24]).unwrap();
        drop(first);
        until_hosts(&world, 1);
        let before = done();
        until("the second host waits", || done() > before + 100.0);
        second.kill().unwrap();
        assert!(!wait(&mut second).success());
        until_hosts(&world, 0);
    }
    server.stop();
}

#[test]
fn a_host_is_served_beside_connections_that_introduce_themselves_never() {
    let world = World::new();
    let (mut server, port) = served(&world, "");
    let before = resident(&mut server);
    let connect = || TcpStream::connect(port.address()).unwrap();
    let mut silent: Vec<TcpStream> = (0..500).map(|_| connect()).collect();
    let half = |mut stream: TcpStream| {
        // the server may have closed it: others have come
        let _ = stream.write_all(&ic_req()[..64]);
        stream
    };
    silent.extend((0..300).map(|_| half(connect())));
    let begun = Instant::now();
    let mut host = Host::at(&port.target()).unwrap();
    host.fill(1, 3, 0x5a);
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(hosts(&world).len(), 1);
    let grown = resident(&mut server).saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
    let refused = |reason: &str| {
        let name = "nvmirage_tcp_connections_refused_total{controller=\"store\"";
        metric(&world, &format!("{name},reason=\"{reason}\"}}"))
    };
    assert!(refused("displaced") >= 200.0, "{}", refused("displaced"));
    // the others have their time
    until("silent connections stay", || {
        refused("displaced") + refused("silent") >= 800.0
    });
    assert!(host.block(1, 3).iter().all(|byte| *byte == 0x5a));
    drop((host, silent));
    server.stop();
}

#[test]
fn a_host_that_reads_no_answer_costs_bounded_memory_and_no_other_host() {
    let world = World::new();
    let (mut server, port) = served(&world, "memory = \"2MiB\"");
    let mut stopped = busy(&world, &port.target());
    until_hosts(&world, 1);
    let mut deaf = Raw::connect(&port, 0, 1).unwrap();
    let before = resident(&mut server);
    kill_process(Pid::from_child(&stopped), Signal::STOP).unwrap();
    // admin commands whose answers stay unread, until the sockets are full
    deaf.stream
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let sent = (0..1_000_000).take_while(|cid| {
        // Get Features, Number of Queues
        deaf.send(0x0a, (cid % 16) as u16, 7).is_ok()
    });
    let sent = sent.count();
    let mut host = Host::at(&port.target()).unwrap();
    for byte in 0..50 {
        host.fill(1, 3, byte);
        assert!(host.block(1, 3).iter().all(|other| *other == byte));
    }
    let grown = resident(&mut server).saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes after {sent} commands");
    kill_process(Pid::from_child(&stopped), Signal::KILL).unwrap();
    wait(&mut stopped);
    drop((deaf, host));
    until_hosts(&world, 0);
    server.stop();
}

#[test]
fn two_hosts_verify_every_byte_at_the_same_time() {
    let world = World::new();
    let port = Port::new();
    let halves = "[[media]]\nname = \"disk\"\nkind = \"ram\"\nsize = \"64MiB\"\n\
                  [[namespace]]\nname = \"data\"\nmedia = \"disk\"\nrange = \"0MiB..32MiB\"\n\
                  [[namespace]]\nname = \"rest\"\nmedia = \"disk\"\nrange = \"32MiB..64MiB\"\n";
    let controller = port
        .controller("")
        .replace("[\"data\"]", "[\"data\", \"rest\"]");
    let server = serve(&world, &format!("{halves}{controller}"), &[]);
    let children = ["1", "2"].map(|nsid| {
        let mut command = world.program();
        command.args(["bench", "--target", &port.target(), "--nsid", nsid]);
        command.args(["--rw", "randrw", "--bs", "16k", "--qd", "8", "--time", "1s"]);
        command.args(["--destroy-data", "--verify", "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    });
    until_hosts(&world, 2);
    for child in children {
        let ran = crate::world::ran(child.wait_with_output().unwrap());
        assert!(ran.status.success(), "{}", ran.err);
        let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let job = &report["jobs"][0];
        assert_eq!(job["errors"], 0, "{job}");
        assert!(job["iops"].as_f64().unwrap() > 0.0, "{job}");
    }
    until_hosts(&world, 0);
    server.stop();
}

/// The served default is no limit: as many as `hosts` says, at the same time.
#[test]
fn as_many_hosts_as_the_limit_says_are_there_at_the_same_time() {
    let world = World::new();
    let port = Port::new();
    let tcp = "tcp = { hosts = 256, memory = \"2MiB\" }\nqueue_depth = 16\nqueues = 1\n";
    let server = serve(&world, &format!("{DISK}{}", port.controller(tcp)), &[]);
    let all: Vec<Raw> = (0..=255)
        .map(|id| Raw::connect(&port, 0, id).unwrap())
        .collect();
    assert_eq!(hosts(&world).len(), 256);
    assert_eq!(Raw::connect(&port, 0, 0).err(), Some(BUSY));
    drop(all);
    until_hosts(&world, 0);
    server.stop();
}
