//! `nvmirage up`: a first drive in one line, with a server and without one.

use crate::world::{Server, World};

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
        server.first_line.starts_with("for a guest: "),
        "{}",
        server.first_line
    );
    let target = world.vfio_user("nvme0.sock");
    let bench = [
        "bench", "--target", &target, "--rw", "randrw", "--time", "100ms", "--verify", "--json",
    ];
    let mut ran = world.run(&bench);
    // it says how to use it before it serves
    while !ran.status.success() && ran.err.contains("is the server running") {
        ran = world.run(&bench);
    }
    assert!(ran.status.success(), "{}", ran.err);
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
