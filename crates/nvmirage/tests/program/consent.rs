//! Changes that take something away are made only with consent: hosts keep their drives, and drives
//! their data.

use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::world::{BOUND, Server, World, wait};

/// A host of the drive at `nvme.sock` that stays until it loses it; it is attached when this
/// returns.
fn host(world: &World) -> Child {
    let mut command = world.program();
    let target = world.vfio_user("nvme.sock");
    command.args(["bench", "--target", &target, "--time", "10min"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = command.spawn().unwrap();
    let deadline = Instant::now() + BOUND;
    while world.ask("GET /v1/hosts/nvme0", &[], "").status != 200 {
        assert!(Instant::now() < deadline, "the host does not attach");
        thread::sleep(Duration::from_millis(10));
    }
    child
}

#[test]
fn a_host_keeps_its_drive_unless_the_operator_means_it() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let mut child = host(&world);
    let steps = [
        &["detach", "ns1", "nvme0"][..],
        &["delete", "controller", "nvme0"],
        &["stop"],
    ];
    for step in steps {
        let error = world.fails(&world.steer(step));
        let who = format!("nvme0 (pid {}, nvmirage)", child.id());
        assert!(error.contains(&who), "{step:?}: {error}");
        assert!(error.contains("--detach-hosts"), "{step:?}: {error}");
    }
    for request in [
        "DELETE /v1/controllers/nvme0/namespaces/ns1",
        "DELETE /v1/controllers/nvme0",
        "DELETE /v1/controllers/nvme0?detach_hosts=false",
        "POST /v1/stop",
    ] {
        let answer = world.ask(request, &[], "");
        answer.refuses(409, "a host is attached");
        let problem = answer.json();
        assert_eq!(problem["type"], "urn:nvmirage:problem:hosts-attached");
        assert_eq!(problem["errors"][0]["object"], "controller nvme0");
    }
    world
        .ask("POST /v1/stop?detach=true", &[], "")
        .refuses(422, "detach_hosts=true");
    let shown = world.ask("GET /v1/hosts/nvme0", &[], "").json();
    assert_eq!(shown["process"], child.id());
    let controller = world.ask("GET /v1/controllers/nvme0", &[], "").json();
    assert_eq!(controller["attached"], true);
    assert_eq!(controller["namespaces"][0], "ns1");
    assert!(child.try_wait().unwrap().is_none(), "the host has lost it");

    world.ok(&world.steer(&["detach", "ns1", "nvme0", "--detach-hosts"]));
    world.ok(&world.steer(&["delete", "controller", "nvme0", "--detach-hosts"]));
    assert!(!wait(&mut child).success());
    // no host is in the way any more
    world.ok(&world.steer(&["stop"]));
    assert!(server.end().success());
}

#[test]
fn a_server_with_hosts_stops_where_that_is_meant_and_at_sigterm() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let mut child = host(&world);
    world.ok(&world.steer(&["stop", "--detach-hosts"]));
    assert!(server.end().success());
    assert!(!wait(&mut child).success());

    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let mut child = host(&world);
    server.stop();
    assert!(!wait(&mut child).success());
}

/// The end of a terminal that a program has, and the other one.
fn terminal() -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    (
        rustix::fs::open(name, flags, Mode::empty()).unwrap(),
        master,
    )
}

#[test]
fn ctrl_c_in_a_terminal_warns_once_where_hosts_are_attached() {
    let world = World::new();
    let serve = || {
        let (slave, master) = terminal();
        let mut command = world.program();
        command.stdin(Stdio::from(slave)).args(["serve"]);
        command.args(["--media", "ram:size=16MiB"]);
        command.args(["--listen", &world.vfio_user("nvme.sock")]);
        command.args(["--control", &world.unix("control"), "--log", "off"]);
        (Server::start(command, world.path("server.log")), master)
    };
    let (server, _master) = serve();
    let mut child = host(&world);
    server.signal(Signal::INT);
    let deadline = Instant::now() + BOUND;
    while server.log().is_empty() {
        assert!(Instant::now() < deadline, "it says nothing");
        thread::sleep(Duration::from_millis(5));
    }
    let log = server.log();
    let warning = format!(
        "1 host is attached: nvme0 (pid {}, nvmirage). Press Ctrl-C again within 10 s",
        child.id()
    );
    assert!(log.contains(&warning), "{log}");
    // A server that ends would be gone by then.
    thread::sleep(Duration::from_secs(1));
    assert!(child.try_wait().unwrap().is_none(), "the host has lost it");
    world.ok(&world.steer(&["ls"]));
    server.signal(Signal::INT);
    assert!(server.end().success());
    assert!(!wait(&mut child).success());

    // no host loses anything
    let (server, _master) = serve();
    server.signal(Signal::INT);
    assert!(server.end().success());
}

#[test]
fn a_bench_that_would_overwrite_data_says_so_first() {
    let world = World::new();
    let image = world.path("disk.img");
    let bytes = vec![0xa5; 4 << 20];
    fs::write(&image, &bytes).unwrap();
    let server = world.serve_media(&format!("file:path={}", image.display()));
    let target = world.vfio_user("nvme.sock");
    let bench = |more: &[&str]| {
        let args = ["bench", "--target", &target, "--time", "50ms"];
        world.run(&[&args[..], more].concat())
    };
    for (more, says) in [
        (
            &["--verify", "--span", "1MiB"][..],
            "--verify overwrites data: the first 1MiB of namespace 1 of ",
        ),
        (
            &["--rw", "randwrite"],
            "--rw randwrite overwrites data: namespace 1 of ",
        ),
        (
            &["--rw", "write", "--verify"],
            "--rw write overwrites data: ",
        ),
        (
            &["--rw", "randrw", "--reads", "99"],
            "--rw randrw overwrites data: ",
        ),
    ] {
        let ran = bench(more);
        assert_eq!(ran.status.code(), Some(2), "{more:?}: {}", ran.err);
        assert!(ran.err.contains(says), "{more:?}: {}", ran.err);
        assert!(
            ran.err.contains(&target) && ran.err.contains("--destroy-data"),
            "{}",
            ran.err
        );
    }
    for reads in [
        &[][..],
        &["--rw", "read"],
        &["--rw", "randrw", "--reads", "100"],
    ] {
        let ran = bench(reads);
        assert!(ran.status.success(), "{reads:?}: {}", ran.err);
    }
    assert!(
        fs::read(&image).unwrap() == bytes,
        "it has overwritten data"
    );
    let ran = bench(&["--rw", "randwrite", "--destroy-data"]);
    assert!(ran.status.success(), "{}", ran.err);
    let conformance = world.run(&["conformance", "--target", &target]);
    assert_eq!(conformance.status.code(), Some(2));
    let says = format!("conformance overwrites data: all namespaces of {target}");
    assert!(conformance.err.contains(&says), "{}", conformance.err);
    server.stop();
}

#[test]
fn a_bench_of_keys_spares_those_of_others() {
    let world = World::new();
    let server = world.serve_media("keyvalue:size=1MiB");
    let target = world.vfio_user("nvme.sock");
    let kv = |args: &[&str]| -> Vec<String> {
        let args = [&["kv", "--target", &target], args].concat();
        args.into_iter().map(str::to_owned).collect()
    };
    let bench = ["bench", "--count", "16", "--value-size", "64B", "--qd", "4"];
    world.ok(&kv(&bench));
    world.ok(&kv(&["put", "bench-0000000007", "mine"]));
    let error = world.fails(&kv(&bench));
    assert!(
        error.contains("bench-0000000000 to bench-000000000f"),
        "{error}"
    );
    assert!(error.contains("--destroy-data"), "{error}");
    assert_eq!(world.ok(&kv(&["get", "bench-0000000007"])), "mine");
    world.ok(&kv(&[&bench[..], &["--destroy-data"]].concat()));
    assert_eq!(world.ok(&kv(&["ls"])), "");
    server.stop();
}
