//! `nvmirage serve`: its start, its end, and what it refuses.

use std::os::unix::fs::FileTypeExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nvme_spec::features::FeatureId;
use rustix::process::Signal;

use crate::host::Host;
use crate::metrics::samples;
use crate::world::{Server, World, names};

#[test]
fn it_says_when_it_is_ready_and_leaves_no_sockets() {
    let world = World::new();
    for signal in [Signal::TERM, Signal::INT] {
        let server = world.serve_media("ram:size=16MiB");
        let expected = format!(
            "ready: {} controller nvme0, namespaces ns1",
            world.vfio_user("nvme.sock")
        );
        assert_eq!(server.first_line, expected);
        for socket in ["nvme.sock", "control"] {
            let kind = std::fs::metadata(world.path(socket)).unwrap().file_type();
            assert!(kind.is_socket(), "{socket}");
        }
        server.signal(signal);
        assert!(server.end().success());
        assert_eq!(names(&world.path("")), ["server.log", "state"]);
    }
}

#[test]
fn identities_are_kept_between_runs() {
    let world = World::new();
    let target = world.vfio_user("nvme.sock");
    let identity = || {
        let server = world.serve_media("ram:size=16MiB");
        let identity = world.json(&["identify", "--target", &target, "--json"]);
        server.stop();
        identity
    };
    assert_eq!(identity(), identity());
}

/// Identifiers by which a host and a machine know a drive; no two in one guest may be the same.
fn known_by(world: &World, socket: &str) -> Vec<String> {
    let identity = world.json(&["identify", "--target", &world.vfio_user(socket), "--json"]);
    let (controller, namespace) = (&identity["controller"], &identity["namespaces"][0]);
    let names = [
        &controller["serial_number"],
        &controller["subnqn"],
        &namespace["nguid"],
        &namespace["eui64"],
    ];
    names
        .map(|name| name.as_str().expect("text").to_owned())
        .into()
}

#[test]
fn servers_of_a_line_each_are_told_apart_by_their_files_and_sockets() {
    let world = World::new();
    let start = |medium: &str, socket: &str| {
        let mut command = world.program();
        let listen = world.vfio_user(socket);
        command.args(["serve", "--media", medium, "--listen", &listen]);
        command.args(["--control", &world.unix(&format!("{socket}.control"))]);
        Server::start(command, world.path(&format!("{socket}.log")))
    };
    let media = [
        "file:path=a.img,size=16MiB",
        "file:path=b.img,size=16MiB",
        "ram:size=16MiB",
    ];
    let sockets = ["1.sock", "2.sock", "3.sock", "4.sock"];
    let servers: Vec<_> = [media[0], media[1], media[2], media[2]]
        .iter()
        .zip(sockets)
        .map(|(medium, socket)| start(medium, socket))
        .collect();
    let known = sockets.map(|socket| known_by(&world, socket));
    let mut all = known.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 16, "{known:?}");
    let mut host = Host::attach(&world, "1.sock");
    host.save_feature(FeatureId::ARBITRATION, 1);
    drop(host);
    servers.into_iter().for_each(Server::stop);
    // a file is the same drive wherever it is served
    let _servers = [start(media[0], "5.sock"), start(media[1], "1.sock")];
    assert_eq!(known_by(&world, "5.sock"), known[0]);
    assert_eq!(known_by(&world, "1.sock"), known[1]);
    let arbitration = |socket| Host::attach(&world, socket).feature(FeatureId::ARBITRATION);
    assert_eq!(arbitration("5.sock"), 1);
    assert_ne!(arbitration("1.sock"), 1);
}

#[test]
fn what_a_file_holds_is_there_after_a_restart() {
    let world = World::new();
    let target = world.vfio_user("nvme.sock");
    let server = world.serve_media("file:path=disk.img,size=16MiB");
    world.ok(&[
        "bench",
        "--target",
        &target,
        "--destroy-data",
        "--rw",
        "write",
        "--bs",
        "64k",
        "--time",
        "100ms",
    ]);
    server.stop();
    let len = std::fs::metadata(world.path("disk.img")).unwrap().len();
    assert_eq!(len, 16 << 20);
    // a file that exists needs no size
    let server = world.serve_media("file:path=disk.img");
    let identity = world.json(&["identify", "--target", &target, "--json"]);
    assert_eq!(identity["namespaces"][0]["bytes"], 16 << 20);
    server.stop();
}

#[test]
fn it_stops_at_the_end_of_its_input_where_asked() {
    let world = World::new();
    let mut command = world.program();
    let target = world.vfio_user("nvme.sock");
    command
        .args([
            "serve",
            "--media",
            "ram:size=16MiB",
            "--listen",
            &target,
            "--stop-at-eof",
        ])
        .args(["--control", &world.unix("control")])
        .stdin(Stdio::piped());
    let mut server = Server::start(command, world.path("server.log"));
    drop(server.child().stdin.take());
    assert!(server.end().success());
    assert!(!world.path("nvme.sock").exists());
}

#[test]
fn a_socket_that_is_served_is_left_alone() {
    let world = World::new();
    let _server = world.serve_media("ram:size=16MiB");
    let target = world.vfio_user("nvme.sock");
    let other = world.unix("other");
    let second = [
        "serve",
        "--media",
        "ram:size=16MiB",
        "--listen",
        &target,
        "--control",
        &other,
    ];
    let error = world.fails(&second);
    assert!(error.contains("in use by another process"), "{error}");
    assert!(!world.path("other").exists());
    // the first goes on
    world.ok(&["identify", "--target", &target]);
}

#[test]
fn a_socket_that_a_killed_server_left_is_taken_over() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    server.signal(Signal::KILL);
    assert!(!server.end().success());
    assert!(world.path("nvme.sock").exists());
    world.serve_media("ram:size=16MiB").stop();
}

#[test]
fn a_file_that_is_served_is_refused_to_another() {
    let world = World::new();
    let media = "file:path=disk.img,size=16MiB";
    let _server = world.serve_media(media);
    let error = world.fails(&[
        "serve",
        "--media",
        media,
        "--listen",
        &world.vfio_user("b.sock"),
        "--control",
        &world.unix("other"),
    ]);
    assert!(
        error.contains("disk.img") && error.contains("in use"),
        "{error}"
    );
    assert!(!world.path("b.sock").exists());
}

#[test]
fn control_sockets_in_use() {
    let world = World::new();
    let _server = world.serve_media("ram:size=16MiB");
    let media = ["--media", "ram:size=16MiB"];
    let b = world.vfio_user("b.sock");
    // one that was asked for is a must
    let error = world.fails(&[
        "serve",
        media[0],
        media[1],
        "--listen",
        &b,
        "--control",
        &world.unix("control"),
    ]);
    assert!(error.contains("in use by another server"), "{error}");
    // the default one is not
    let serve = |listen: &str, log: &str| {
        let mut command = world.program();
        command.args(["serve", media[0], media[1], "--listen", listen]);
        Server::start(command, world.path(log))
    };
    let first = serve(&b, "first.log");
    assert!(world.path("run/nvmirage/control.sock").exists());
    let second = serve(&world.vfio_user("c.sock"), "second.log");
    assert!(
        second.log().contains("another server uses it"),
        "{}",
        second.log()
    );
    assert!(world.ok(&["ls"]).contains("b.sock"));
    second.stop();
    assert!(
        world.path("run/nvmirage/control.sock").exists(),
        "it is not the second's"
    );
    first.stop();
    assert!(!world.path("run/nvmirage/control.sock").exists());
}

#[test]
fn media_that_cannot_be_opened() {
    let world = World::new();
    let listen = world.vfio_user("nvme.sock");
    let control = world.unix("control");
    let error_of = |media: &str| {
        world.fails(&[
            "serve",
            "--media",
            media,
            "--listen",
            &listen,
            "--control",
            &control,
        ])
    };
    let missing = error_of("file:path=missing.img");
    assert!(
        missing.contains("missing.img") && missing.contains("size"),
        "{missing}"
    );
    std::fs::create_dir(world.path("folder")).unwrap();
    assert!(error_of("file:path=folder").contains("folder"));
    assert!(error_of("file:path=no/such/disk.img,size=1GiB").contains("no/such"));
    assert!(!world.path("nvme.sock").exists() && !world.path("control").exists());
}

#[test]
fn a_command_line_that_is_wrong_has_status_2() {
    let world = World::new();
    let listen = world.vfio_user("nvme.sock");
    for (media, words) in [
        ("ram", "it needs a size"),
        (
            "ram:size=1GiB,path=a",
            "only kind = \"file\" and kind = \"keyvalue\" have a path",
        ),
        ("file:size=1GiB", "a file needs a path"),
        ("ram:size=1KiB", "at least 64KiB"),
        ("ram:size=1GiB,lba_size=4097", "write 512 or 4096"),
        (
            "file:path=a,size=1MiB,preallocate=true",
            "only kind = \"ram\" has `preallocate`",
        ),
    ] {
        let ran = world.run(&["serve", "--media", media, "--listen", &listen]);
        assert_eq!(ran.status.code(), Some(2), "{media}: {}", ran.err);
        assert!(ran.err.contains(words), "{media}: {}", ran.err);
    }
    let ran = world.run(&[
        "serve",
        "--media",
        "ram:size=1GiB",
        "--listen",
        &listen,
        "--log",
        "no=such=level",
    ]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(ran.err.contains("invalid log filter"), "{}", ran.err);
}

/// Inventory entry of a medium in memory: its bytes allocated in advance, and its description.
fn allocated(world: &World) -> (Option<u64>, String) {
    let medium = &world.inventory()["media"][0];
    let description = medium["description"].as_str().unwrap().to_owned();
    (medium["preallocated_bytes"].as_u64(), description)
}

#[test]
fn memory_is_allocated_in_advance_where_asked() {
    const SIZE: u64 = 65 << 20;
    let world = World::new();
    let mut server = world.serve_media("ram:size=65MiB,preallocate=true");
    let deadline = Instant::now() + Duration::from_secs(30);
    while allocated(&world).0 != Some(SIZE) {
        assert!(Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let (_, description) = allocated(&world);
    assert!(
        description.ends_with("all allocated in advance"),
        "{description}"
    );
    let scraped = world.ask("GET /metrics", &[], "").is(200).body;
    let name = "nvmirage_medium_preallocated_bytes{";
    let mut samples = samples(&scraped).into_iter();
    let sample = samples.find(|(sample, _)| sample.starts_with(name));
    assert_eq!(
        sample.map(|(_, bytes)| bytes),
        Some(SIZE as f64),
        "{scraped}"
    );
    let memory = format!("/proc/{}/smaps_rollup", server.child().id());
    let memory = std::fs::read_to_string(memory).unwrap();
    // Reserved huge pages do not count as resident.
    let names = ["Rss:", "Shared_Hugetlb:", "Private_Hugetlb:"];
    let lines = memory.lines().map(|line| line.split_whitespace());
    let kib: u64 = lines
        .filter_map(|mut words| names.contains(&words.next()?).then(|| words.next())?)
        .map(|kib| kib.parse::<u64>().unwrap())
        .sum();
    assert!(kib << 10 > SIZE, "{memory}");
    server.stop();

    let _server = world.serve_media("ram:size=65MiB");
    let (bytes, description) = allocated(&world);
    assert_eq!(bytes, None);
    assert!(description.ends_with("not persistent"), "{description}");
}

#[test]
fn a_configuration_without_controllers_waits_for_them() {
    let world = World::new();
    let file = world.write("empty.toml", "");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    assert!(
        server.first_line.contains("no controllers yet"),
        "{}",
        server.first_line
    );
    server.stop();
}
