//! Questions of an operator to a server: which drive is which, who has it, and what was done.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{BOUND, Server, World};

#[test]
fn a_drive_is_found_by_what_its_guest_sees() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let target = world.vfio_user("nvme.sock");
    let seen = world.json(&["identify", "--target", &target, "--json"]);
    let all = world.json(&world.steer(&["ls", "--json"]));
    let controller = &all["controllers"][0];
    assert_eq!(
        controller["identity"]["serial"],
        seen["controller"]["serial_number"]
    );
    let nqn = controller["identity"]["subnqn"].as_str().unwrap();
    assert!(nqn.starts_with("nqn.2014-08.org.nvmexpress:uuid:"), "{nqn}");
    let nguid = all["namespaces"][0]["identity"]["nguid"].as_str().unwrap();
    assert_eq!(nguid.len(), 32, "{nguid}");
    let uuid = all["namespaces"][0]["identity"]["uuid"].as_str().unwrap();
    let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{uuid}");
    let serial = controller["identity"]["serial"].as_str().unwrap();
    assert!(world.ok(&world.steer(&["ls"])).contains(serial));
    let shown = world.ok(&world.steer(&["show", "controller", "nvme0"]));
    assert!(shown.contains(serial) && shown.contains(nqn), "{shown}");
    // what is derived is not exported as if it had been configured
    assert!(!world.ok(&world.steer(&["export"])).contains(nguid));
    assert!(controller.get("host").is_none(), "{controller:#}");

    let mut host = world
        .program()
        .args(["bench", "--target", &target, "--rw", "randread"])
        .args(["--time", "60s"])
        .spawn()
        .unwrap();
    let began = Instant::now();
    let its = loop {
        let all = world.json(&world.steer(&["ls", "--json"]));
        if let Some(its) = all["controllers"][0].get("host") {
            break its.clone();
        }
        assert!(began.elapsed() < BOUND, "no host has come");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(its["process"], host.id());
    assert_eq!(its["command"], "nvmirage");
    let row = format!("nvmirage ({})", host.id());
    assert!(world.ok(&world.steer(&["ls"])).contains(&row));

    // a command that a signal ends has the status that a shell gives it
    let pid = Pid::from_raw(i32::try_from(host.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(host.wait().unwrap().code(), Some(130));
    server.stop();
}

#[test]
fn every_change_is_confirmed_by_a_line() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let listen = world.vfio_user("b.sock");
    for (args, said) in [
        (
            &["create", "media", "m", "--kind", "ram", "--size", "1.5MiB"][..],
            "created media m\n",
        ),
        (
            &[
                "create",
                "namespace",
                "n",
                "--media",
                "m",
                "--range",
                "0.5MiB..1MiB",
            ],
            "created namespace n\n",
        ),
        (&["create", "tenant", "t"], "created tenant t\n"),
        (
            &[
                "create",
                "controller",
                "c",
                "--namespaces",
                "",
                "--listen",
                &listen,
            ],
            "created controller c\n",
        ),
        (
            &["attach", "n", "c"],
            "attached namespace n to controller c\n",
        ),
        (
            &["set", "controller", "c", "sample=16"],
            "changed controller c\n",
        ),
        (&["set", "log", "filter=warn"], "changed log\n"),
        (
            &["detach", "n", "c"],
            "detached namespace n from controller c\n",
        ),
        (&["delete", "controller", "c"], "deleted controller c\n"),
        (&["delete", "namespace", "n"], "deleted namespace n\n"),
        (&["delete", "media", "m"], "deleted media m\n"),
        (&["delete", "tenant", "t"], "deleted tenant t\n"),
    ] {
        assert_eq!(world.ok(&world.steer(args)), said, "{args:?}");
    }
    server.stop();
}

#[test]
fn what_up_makes_goes_with_down() {
    let world = World::new();
    let file = world.write("config.toml", "");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let before = world.inventory();
    let said = world.ok(&world.steer(&[
        "up",
        "samsung-970-pro",
        "--size",
        "8GiB",
        "--name",
        "pro",
        "--serial",
        "PRO1",
        "--memory",
        "1.5GiB",
        "--set",
        "program=200us",
    ]));
    assert!(said.contains("-m 1536M"), "{said}");
    let all = world.inventory();
    assert_eq!(all["controllers"][0]["serial"], "PRO1");
    assert_eq!(all["media"][0]["timing"]["program"], "200us");
    assert!(world.ok(&world.steer(&["ls"])).contains("samsung-970-pro"));
    let gone = world.ok(&world.steer(&["down", "pro"]));
    assert_eq!(gone, "deleted controller, namespace, media pro\n");
    assert_eq!(world.inventory(), before);
    assert!(
        world
            .fails(&world.steer(&["down", "pro"]))
            .contains("no drive `pro`")
    );
    let none = world.run(&world.steer(&["up", "ram", "--name", "x"]));
    assert_eq!(none.status.code(), Some(2));
    assert!(none.err.contains("--size 8GiB"), "{}", none.err);
    let none = world.fails(&world.steer(&["create", "media", "y", "--kind", "ram"]));
    assert!(none.contains("write --size 8GiB"), "{none}");
    // a server that runs has its folder for state
    let own = world.run(&world.steer(&["up", "null", "--size", "1MiB", "--state-dir", "s"]));
    assert_eq!(own.status.code(), Some(2));
    assert!(own.err.contains("has its own"), "{}", own.err);
    // a file that exists has a size
    std::fs::write(world.path("disk.img"), vec![0; 1 << 20]).unwrap();
    world.ok(&world.steer(&["up", "file", "--path", "disk.img", "--name", "x"]));
    assert_eq!(world.inventory()["media"][0]["bytes"], 1 << 20);
    server.stop();
}

#[test]
fn down_deletes_nothing_of_a_drive_that_another_controller_has() {
    let world = World::new();
    let file = world.write("config.toml", "");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    world.ok(&world.steer(&["create", "media", "a", "--kind", "ram", "--size", "1MiB"]));
    world.ok(&world.steer(&["create", "namespace", "a", "--media", "a"]));
    for name in ["a", "b"] {
        let listen = world.vfio_user(name);
        let of = ["--subsystem", "s", "--namespaces", "a", "--listen", &listen];
        world.ok(&world.steer(&[&["create", "controller", name], &of[..]].concat()));
    }
    let before = world.inventory();
    let error = world.fails(&world.steer(&["down", "a"]));
    assert!(error.contains("nvmirage detach a b"), "{error}");
    assert_eq!(world.inventory(), before);
    server.stop();
}

#[test]
fn paths_are_absolute_for_clients_in_other_folders() {
    let world = World::new();
    let server = world.serve(&[
        "--media",
        "null:size=1GiB",
        "--listen",
        "vfio-user:disk.sock",
    ]);
    let all = world.inventory();
    assert_eq!(
        all["controllers"][0]["listen"],
        world.vfio_user("disk.sock")
    );
    server.stop();
}

#[test]
fn a_drive_in_memory_needs_no_folder_for_state() {
    let world = World::new();
    // no folder can be made in a file
    let nowhere = world.write("file", "").join("state");
    let mut command = world.program();
    command.env("XDG_STATE_HOME", &nowhere);
    command.args(["serve", "--media", "ram:size=16MiB"]);
    command.args([
        "--listen",
        &world.vfio_user("nvme.sock"),
        "--control",
        &world.unix("control"),
    ]);
    let server = Server::start(command, world.path("log"));
    let log = std::fs::read_to_string(world.path("log")).unwrap();
    assert!(log.contains("change at the next start"), "{log}");
    // nor does such a server take a file later
    let late = [
        "create", "media", "late", "--kind", "file", "--path", "late.img", "--size", "16MiB",
    ];
    world.ok(&world.steer(&late));
    world.ok(&world.steer(&["create", "namespace", "late", "--media", "late"]));
    let listen = world.vfio_user("late.sock");
    let late = [
        "create",
        "controller",
        "late",
        "--listen",
        &listen,
        "--namespaces",
        "late",
    ];
    let error = world.fails(&world.steer(&late));
    assert!(error.contains("--state-dir"), "{error}");
    server.stop();

    // a file outlives the server: its drive must be the same one again
    let mut command = world.program();
    command.env("XDG_STATE_HOME", &nowhere);
    command.args(["serve", "--media", "file:path=disk.img,size=16MiB"]);
    command.args(["--listen", &world.vfio_user("nvme.sock")]);
    let ran = command.output().unwrap();
    assert!(!ran.status.success());
    let err = String::from_utf8_lossy(&ran.stderr).into_owned();
    let why = "error: subsystem nvme0: cannot save identities";
    assert!(err.contains(why) && err.contains("--state-dir"), "{err}");
    let server = world.serve(&[
        "--media",
        "file:path=disk.img,size=16MiB",
        "--listen",
        &world.vfio_user("nvme.sock"),
        "--state-dir",
        "kept",
    ]);
    server.stop();
    assert!(world.path("kept/identity").exists());
}

#[test]
fn a_supervisor_can_ask_whether_the_server_works() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let reply = world.ask("GET /healthz", &[], "");
    assert_eq!((reply.status, reply.body.as_str()), (200, "ok\n"));
    let metrics = world.ask("GET /metrics", &[], "").body;
    for name in [
        "process_resident_memory_bytes",
        "process_cpu_seconds_total",
        "process_open_fds",
        "process_start_time_seconds",
    ] {
        let line = metrics
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")));
        let value: f64 = line.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
        assert!(value > 0.0, "{name} {value}");
    }
    server.stop();
}

#[test]
fn the_version_says_what_it_was_built_from() {
    let world = World::new();
    let said = world.ok(&["--version"]);
    assert!(said.starts_with("nvmirage "), "{said}");
    assert!(
        said.contains("\ncommit: ") && said.contains("\ntarget: "),
        "{said}"
    );
}
