//! A new user's way, with the command line alone: from an empty configuration to a modelled drive
//! that is measured, changed and watched while a host works, recorded, exported, stopped and there
//! again. And a word is the same wherever it is said.

use std::process::Stdio;

use serde_json::Value;

use crate::dashboard::Dashboard;
use crate::world::{Server, World, ran};

fn serve(world: &World) -> Server {
    let file = world.path("nvmirage.toml");
    world.serve(&["--config", file.to_str().unwrap()])
}

/// A 970 Pro of 8 GiB in a file, and a controller for it.
fn make(world: &World) {
    let listen = world.vfio_user("nvme0.sock");
    for command in [
        "create media pro --kind file --path pro.img --size 8GiB --timing samsung-970-pro",
        "create namespace pro --media pro",
        &format!("create controller nvme0 --namespaces pro --listen {listen}"),
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        world.ok(&world.steer(&words));
    }
}

/// Mean latency of a read that nothing else waits for, in nanoseconds.
fn read_ns(world: &World) -> f64 {
    let target = world.vfio_user("nvme0.sock");
    let bench = world.json(&[
        "bench", "--target", &target, "--time", "500ms", "--span", "4MiB", "--json",
    ]);
    assert_eq!(bench["jobs"][0]["errors"], 0);
    bench["jobs"][0]["latency_ns"]["p50"].as_f64().unwrap()
}

#[test]
fn from_nothing_to_a_drive_that_is_there_again() {
    let world = World::new();
    world.write("nvmirage.toml", "");
    let server = serve(&world);
    assert!(server.first_line.contains("no controllers yet"));
    make(&world);
    // what is read has been written: else there is no cell to read
    let target = world.vfio_user("nvme0.sock");
    let write = [
        "bench",
        "--target",
        &target,
        "--destroy-data",
        "--rw",
        "write",
        "--bs",
        "64KiB",
        "--qd",
        "8",
        "--time",
        "500ms",
        "--span",
        "4MiB",
    ];
    world.ok(&[&write[..], &["--verify"]].concat());
    let before = read_ns(&world);

    // a host works, and is watched in a terminal and by the dashboard, while its drive becomes
    // slower; how much is asked of the model, not of this machine
    let mut load = world.program();
    let random = ["--rw", "randread", "--span", "4MiB", "--time", "4s"];
    load.args([&["bench", "--target", &target], &random[..]].concat());
    let load = load.stdout(Stdio::piped()).stderr(Stdio::piped());
    let load = load.spawn().unwrap();
    let dashboard = Dashboard::start(&world);
    let reads = || dashboard.get("/v1/stats").json()["controllers"][0]["commands"]["read"].as_u64();
    let first = reads();
    let frames = world.ok(&world.steer(&["top", "--batch", "2", "--interval", "400ms"]));
    let line = frames.lines().rfind(|line| line.starts_with("nvme0 "));
    let words: Vec<_> = line.unwrap_or_default().split_whitespace().collect();
    assert!(words.len() > 3 && words[2] != "0", "{frames}");
    assert!(reads() > first, "the dashboard sees them, too");
    world.ok(&world.steer(&["set", "media", "pro", "timing.firmware_read_4k=2ms"]));
    let load = ran(load.wait_with_output().unwrap());
    assert!(load.status.success(), "{}", load.err);
    drop(dashboard);
    let after = read_ns(&world);
    assert!(
        after >= 2_000_000.0 && before < 2_000_000.0,
        "{before} ns, then {after} ns"
    );

    // what it is asked for is recorded, told, asked for again, and given to other programs
    world.ok(&world.steer(&["trace", "start", "nvme0", "--file", "nvme0.trace"]));
    assert!(read_ns(&world) >= 2_000_000.0);
    world.ok(&world.steer(&["trace", "stop", "nvme0"]));
    let stat = world.json(&["trace", "stat", "nvme0.trace", "--json"]);
    let commands = stat["commands"].as_u64().unwrap();
    assert!(commands > 0 && stat["lost"] == 0, "{stat}");
    let replay = ["trace", "replay", "nvme0.trace", "--target", &target];
    let replayed = world.json(&[&replay[..], &["--reads-only", "--json"]].concat());
    assert_eq!(replayed["commands"], commands, "{replayed}");
    let fio = world.ok(&["trace", "export", "nvme0.trace", "--format", "fio"]);
    assert_eq!(fio.matches(" read ").count() as u64, commands);

    let exported = world.ok(&world.steer(&["export"]));
    let identity = world.json(&["identify", "--target", &target, "--json"]);
    world.ok(&world.steer(&["stop"]));
    assert!(server.end().success());
    assert!(!world.path("nvme0.sock").exists());

    let again = serve(&world);
    assert_eq!(world.ok(&world.steer(&["export"])), exported);
    assert_eq!(
        world.json(&["identify", "--target", &target, "--json"]),
        identity
    );
    assert!(read_ns(&world) >= 2_000_000.0);
    again.stop();

    // what was exported is a configuration of its own
    let file = world.write("exported.toml", &exported);
    world.ok(&["check", file.to_str().unwrap()]);
}

/// Names of a value in each place.
#[test]
fn a_word_is_the_same_wherever_it_is_said() {
    let world = World::new();
    world.write("nvmirage.toml", "");
    let server = serve(&world);
    make(&world);
    world.ok(&world.steer(&["set", "media", "pro", "timing.firmware_read_4k=120us"]));
    let configuration = world.ok(&world.steer(&["export"]));
    assert!(
        configuration.contains("firmware_read_4k = \"120us\""),
        "{configuration}"
    );
    assert!(configuration.contains("size = \"8GiB\""), "{configuration}");
    let shown = world.ok(&world.steer(&["show", "media", "pro"]));
    let row = |key: &str| {
        let line = shown.lines().find(|line| line.starts_with(key));
        line.unwrap_or_else(|| panic!("no {key} in\n{shown}"))[key.len()..]
            .trim()
            .to_owned()
    };
    assert_eq!(row("timing.firmware_read_4k "), "120us");
    assert_eq!(row("size "), "8GiB");
    let medium: Value = world.ask("GET /v1/media/pro", &[], "").is(200).json();
    assert_eq!(medium["timing"]["firmware_read_4k"], "120us");
    assert_eq!(medium["size"], "8GiB");
    let metrics = world.ask("GET /metrics", &[], "").is(200).body;
    for label in ["media=\"pro\"", "controller=\"nvme0\"", "namespace=\"pro\""] {
        assert!(metrics.contains(label), "{label} is in no metric");
    }
    server.stop();
}
