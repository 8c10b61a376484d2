//! `nvmirage up`: a first drive in one line, with a server and without one.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{BOUND, Server, World, names, ran};

#[test]
fn a_server_gets_the_drive_and_the_same_line_changes_nothing() {
    let world = World::new();
    let file = world.write("config.toml", "");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let up = world.steer(&["up", "samsung-970-pro", "--size", "8GiB", "--name", "fast"]);
    let said = world.ok(&up);
    let socket = world.path("fast.sock");
    assert!(
        said.contains(&format!("ready: vfio-user:{}", socket.display())),
        "{said}"
    );
    assert!(
        said.contains("-device ") && said.contains(socket.to_str().unwrap()),
        "{said}"
    );
    assert!(said.contains("\ndashboard: `nvmirage dashboard`"), "{said}");
    let before = world.inventory();
    assert_eq!(before["media"][0]["timing"]["preset"], "samsung-970-pro");
    assert_eq!(world.ok(&up), said);
    assert_eq!(world.inventory(), before);
    let other = world.fails(&world.steer(&["up", "ram", "--size", "8GiB", "--name", "fast"]));
    assert!(other.contains("fast"), "{other}");
    assert_eq!(world.inventory(), before);

    // each kind of preset makes the kind of medium that it is a drive of
    for (preset, size, key, value) in [
        ("zns-prototype", "4GiB", "/zoned/zone_size", "128MiB"),
        ("samsung-kvssd", "1GiB", "/kind", "keyvalue"),
        ("optane-p4800x", "1GiB", "/kind", "ram"),
    ] {
        world.ok(&world.steer(&["up", preset, "--size", size, "--name", preset]));
        let shown = world.json(&world.steer(&["show", "media", preset, "--json"]));
        assert_eq!(shown.pointer(key).unwrap(), value, "{shown:#}");
    }
    server.stop();
}

#[test]
fn without_a_server_it_serves_and_what_cannot_be_is_said() {
    let world = World::new();
    let mut command = world.program();
    command.args([
        "up",
        "file",
        "--size",
        "8MiB",
        "--path",
        "disk.img",
        "--control",
        &world.unix("control"),
    ]);
    let server = Server::start(command, world.path("server.log"));
    assert!(
        server.first_line.starts_with("ready: vfio-user:"),
        "{}",
        server.first_line
    );
    let target = world.vfio_user("nvme0.sock");
    let bench = [
        "bench",
        "--target",
        &target,
        "--destroy-data",
        "--rw",
        "randrw",
        "--time",
        "100ms",
        "--verify",
        "--json",
    ];
    world.ok(&bench);
    world.ok(&world.steer(&["stop"]));
    assert!(server.end().success());

    for (args, words) in [
        (
            &["up", "samsung-970", "--size", "8GiB"][..],
            "samsung-970-pro",
        ),
        (&["up", "samsung-970-pro", "--size", "1GiB"], "at least"),
        (
            &["up", "ram", "--size", "8GiB", "--listen", "fuse:x"],
            "vfio-user:PATH",
        ),
    ] {
        let ran = world.run(&world.steer(args));
        assert_eq!(ran.status.code(), Some(2), "{}{}", ran.out, ran.err);
        assert!(ran.err.contains(words), "{}", ran.err);
    }
}

const TAKEN: &str = r#"
[[media]]
name = "m"
kind = "ram"
size = "1MiB"
[[namespace]]
name = "n"
media = "m"
[[controller]]
name = "fast"
namespaces = ["n"]
listen = "vfio-user:other.sock"
"#;

#[test]
fn a_drive_that_a_server_refuses_leaves_nothing_there() {
    let world = World::new();
    let file = world.write("config.toml", TAKEN);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let before = world.inventory();
    let up = |path: &str| {
        let args = [
            "up", "file", "--size", "1MiB", "--name", "fast", "--path", path,
        ];
        world.fails(&world.steer(&args))
    };
    let error = up("new.img");
    assert!(error.contains("controller `fast` exists"), "{error}");
    let removed = "removed what it had made: namespace fast, media fast, file ";
    assert!(error.contains(removed), "{error}");
    assert_eq!(world.inventory(), before);
    assert!(!world.path("new.img").exists());
    // a previous file stays, and so does a medium
    let old = world.path("old.img");
    fs::write(&old, vec![7; 1 << 20]).unwrap();
    up("old.img");
    assert!(fs::read(&old).unwrap() == vec![7; 1 << 20]);
    let path = ["--path", old.to_str().unwrap()];
    let create = [
        "create", "media", "fast", "--kind", "file", "--size", "1MiB",
    ];
    world.ok(&world.steer(&[&create[..], &path[..]].concat()));
    let with_medium = world.inventory();
    let args = [
        "up", "file", "--size", "1MiB", "--name", "fast", "--path", "old.img",
    ];
    let error = world.fails(&world.steer(&args));
    assert!(
        error.contains("removed what it had made: namespace fast"),
        "{error}"
    );
    assert!(!error.contains("media fast"), "{error}");
    assert_eq!(world.inventory(), with_medium);
    server.stop();
}

#[test]
fn a_drive_that_cannot_be_served_here_leaves_no_file_and_no_folder() {
    let world = World::new();
    let before = names(&world.path(""));
    let listen = world.vfio_user("missing/nvme.sock");
    for (control, says) in [
        ("typo/control", "create the folder "),
        ("control", "removed what it had made: file "),
    ] {
        let control = world.unix(control);
        let args = ["up", "file", "--size", "1MiB", "--path", "disk.img"];
        let at = ["--listen", &listen, "--control", &control];
        let error = world.fails(&[&args[..], &at].concat());
        assert!(error.contains(says), "{says} in {error}");
    }
    let mut after = names(&world.path(""));
    // what tells drives apart is kept for all that come
    after.retain(|name| name != "state");
    assert_eq!(after, before);
    let marks = std::fs::read_dir(world.path("state/nvmirage/presence"));
    let marks = marks.map_or(0, Iterator::count);
    assert_eq!(marks, 0, "the file that was removed is not missed");
}

#[test]
fn a_file_of_state_that_is_not_there_yet_is_said() {
    let world = World::new();
    let file = world.write("config.toml", "");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let state = world.path("aged.state");
    let state = state.to_str().unwrap();
    let up = |name: &str| {
        let args = ["up", "samsung-970-pro", "--size", "5GiB", "--name", name];
        let args = [&args[..], &["--state", state]].concat();
        let ran = world.run(&world.steer(&args));
        assert!(ran.status.success(), "{}", ran.err);
        ran.err
    };
    let said = up("first");
    let expected = format!("note: {state} does not exist: a new drive is created");
    assert!(said.contains(&expected), "{said}");
    world.ok(&world.steer(&["down", "first"]));
    assert!(world.path("aged.state").is_file(), "it was not saved");
    let said = up("second");
    assert!(!said.contains("does not exist"), "{said}");
    server.stop();
}

#[test]
fn ctrl_c_in_between_leaves_nothing() {
    let world = World::new();
    let file = world.write("config.toml", "");
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let before = world.inventory();
    server.stand_still();
    let mut up = world.program();
    up.args(world.steer(&["up", "ram", "--size", "1MiB", "--name", "fast"]));
    let up = up.stdout(Stdio::piped()).stderr(Stdio::piped());
    let up = up.spawn().unwrap();
    until_it_catches_sigint(&up);
    kill_process(Pid::from_child(&up), Signal::INT).unwrap();
    // it has heard that before the server answers
    thread::sleep(Duration::from_millis(100));
    server.signal(Signal::CONT);
    let ran = ran(up.wait_with_output().unwrap());
    assert_eq!(ran.status.code(), Some(130), "{}{}", ran.out, ran.err);
    assert!(
        ran.err.contains("removed what it had made: media fast"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("interrupted"), "{}", ran.err);
    assert_eq!(world.inventory(), before);
    server.stop();
}

/// Waits until a process has taken over SIGINT, the second signal.
fn until_it_catches_sigint(child: &Child) {
    let deadline = Instant::now() + BOUND;
    loop {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = u64::from_str_radix(mask.unwrap().trim(), 16).unwrap();
        if mask & 0b10 != 0 {
            return;
        }
        assert!(Instant::now() < deadline, "it does not take over SIGINT");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_drive_of_keys_has_no_block_size() {
    let world = World::new();
    let args = ["up", "keyvalue", "--size", "64MiB", "--lba-size", "512"];
    let ran = world.run(&world.steer(&args));
    assert_eq!(ran.status.code(), Some(2), "{}", ran.err);
    assert!(ran.err.contains("has no blocks"), "{}", ran.err);
}
