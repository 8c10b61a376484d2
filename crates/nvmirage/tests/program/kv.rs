//! Key-value drives: served, and used by `nvmirage kv` as a host uses them.

use std::process::Stdio;

use serde_json::json;

use crate::world::{World, ran};

/// Arguments of `kv` for the drive at `nvme.sock`.
fn kv(world: &World, dialect: &str, args: &[&str]) -> Vec<String> {
    let target = world.vfio_user("nvme.sock");
    let all = [&["kv", "--target", &target, "--dialect", dialect], args].concat();
    all.into_iter().map(str::to_owned).collect()
}

#[test]
fn values_come_back_and_keys_are_listed() {
    let world = World::new();
    let _server = world.serve_media("keyvalue:size=64MiB");
    let kv = |args: &[&str]| kv(&world, "auto", args);
    assert_eq!(world.ok(&kv(&["put", "colour", "blue"])), "");
    assert_eq!(world.ok(&kv(&["get", "colour"])), "blue");
    // The options of all verbs stand before the verb or after it.
    let target = world.vfio_user("nvme.sock");
    let after = ["kv", "get", "colour", "--wait=2s", "--target", &target];
    assert_eq!(world.ok(&after), "blue");
    let error = world.fails(&["kv", "--target", &target, "get", "colour", "--nsid", "7"]);
    assert!(error.contains("no namespace 7"), "{error}");
    let none = world.run(&["kv", "get", "colour"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(none.err.contains("--target vfio-user:PATH"), "{}", none.err);
    // From a file to a file, of a size that is no multiple of anything.
    let bytes: Vec<u8> = (0..100_003u32).map(|n| ((n * 7) >> 3) as u8).collect();
    std::fs::write(world.path("in"), &bytes).unwrap();
    world.ok(&kv(&["put", "0x00ff", "--file", "in"]));
    world.ok(&kv(&["get", "0x00ff", "--output", "out"]));
    assert!(std::fs::read(world.path("out")).unwrap() == bytes);
    // From standard input.
    let mut command = world.program();
    command.args(kv(&["put", "piped"])).stdin(Stdio::piped());
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"through a pipe").unwrap();
    assert!(ran(child.wait_with_output().unwrap()).status.success());
    assert_eq!(world.ok(&kv(&["get", "piped"])), "through a pipe");

    assert_eq!(world.ok(&kv(&["ls"])), "0x00ff\ncolour\npiped\n");
    assert_eq!(world.ok(&kv(&["ls", "--prefix", "p"])), "piped\n");
    assert_eq!(world.ok(&kv(&["ls", "--from", "colp"])), "piped\n");
    let listed = world.json(&kv(&["ls", "--from", "colour", "--json"]));
    let hex = "636f6c6f7572";
    assert_eq!(listed["keys"][0], json!({"key": "colour", "hex": hex}));
    assert_eq!(listed["keys"].as_array().unwrap().len(), 2);

    world.ok(&kv(&["exist", "colour"]));
    world.ok(&kv(&["del", "colour", "piped"]));
    assert_eq!(world.ok(&kv(&["ls"])), "0x00ff\n");
    for args in [
        &["exist", "colour"][..],
        &["get", "colour"],
        &["del", "colour"],
    ] {
        let error = world.fails(&kv(args));
        assert!(error.contains("key colour does not exist"), "{error}");
    }
    let error = world.fails(&kv(&["put", "colour", "red", "--must-exist"]));
    assert!(error.contains("does not exist"), "{error}");
    world.ok(&kv(&["put", "colour", "red", "--must-not-exist"]));
    let error = world.fails(&kv(&["put", "colour", "red", "--must-not-exist"]));
    assert!(error.contains("key colour exists"), "{error}");
}

#[test]
fn a_drive_of_samsung_is_used_alike() {
    let world = World::new();
    let _server = world.serve_media("keyvalue:size=64MiB,dialect=samsung");
    let error = world.fails(&kv(&world, "auto", &["ls"]));
    assert!(error.contains("--dialect samsung"), "{error}");
    let kv = |args: &[&str]| kv(&world, "samsung", args);
    for n in 0..5000 {
        if n % 1250 == 0 {
            world.ok(&kv(&["put", &format!("key{n:05}"), &format!("value {n}")]));
        }
    }
    assert_eq!(world.ok(&kv(&["get", "key02500"])), "value 2500");
    assert_eq!(world.ok(&kv(&["ls", "--prefix", "key0125"])), "key01250\n");
    world.ok(&kv(&["del", "key02500"]));
    assert_eq!(world.ok(&kv(&["ls"])), "key00000\nkey01250\nkey03750\n");
    let error = world.fails(&kv(&["exist", "key02500"]));
    assert!(error.contains("does not exist"), "{error}");
    let error = world.fails(&kv(&["put", "abc", "too short a key"]));
    assert!(error.contains("4 to 16 bytes"), "{error}");
}

#[test]
fn a_full_drive_says_so_and_a_bench_leaves_nothing() {
    let world = World::new();
    let _server = world.serve_media("keyvalue:size=1MiB,max_keys=100");
    let kv = |args: &[&str]| kv(&world, "auto", args);
    let figures = world.json(&kv(&[
        "bench",
        "--count",
        "90",
        "--value-size",
        "4KiB",
        "--qd",
        "8",
        "--json",
    ]));
    assert_eq!(
        (&figures["count"], &figures["queue_depth"]),
        (&json!(90), &json!(8))
    );
    let jobs = figures["jobs"].as_array().unwrap();
    let names: Vec<_> = jobs
        .iter()
        .map(|job| job["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["store", "retrieve", "delete"]);
    for job in jobs {
        assert!(job["iops"].as_f64().unwrap() > 0.0, "{figures}");
        assert_eq!(job["commands"], 90);
        let latency = &job["latency_ns"];
        assert!(latency["min"].as_u64() <= latency["p50"].as_u64());
        assert!(latency["p50"].as_u64() <= latency["max"].as_u64());
    }
    assert_eq!(world.ok(&kv(&["ls"])), "");
    std::fs::write(world.path("big"), vec![1; 1 << 20]).unwrap();
    world.ok(&kv(&["put", "big", "--file", "big"]));
    let error = world.fails(&kv(&["put", "more", "x"]));
    assert!(error.contains("the drive is full"), "{error}");
    // Larger than what one command moves here, of which the default is 1 MiB.
    std::fs::write(world.path("big"), vec![1; (1 << 20) + 1]).unwrap();
    let error = world.fails(&kv(&["put", "big", "--file", "big"]));
    assert!(error.contains("max_transfer"), "{error}");
    world.ok(&kv(&["get", "big", "--output", "copy"]));
    assert!(std::fs::read(world.path("copy")).unwrap() == vec![1; 1 << 20]);
    world.ok(&kv(&["del", "big"]));
}

/// Whole commands of eight, a last one of fewer, and every key as if it had been stored alone.
#[test]
fn a_bench_stores_many_keys_by_each_command() {
    let world = World::new();
    let _server = world.serve_media("keyvalue:size=1MiB,dialect=samsung,max_keys=100");
    let bench = |dialect: &str, more: &[&str]| {
        let args = [&["bench", "--count", "92", "--json"], more].concat();
        kv(&world, dialect, &args)
    };
    let figures = world.json(&bench(
        "samsung",
        &["--value-size", "256B", "--compound", "8", "--qd", "4"],
    ));
    assert_eq!(
        (&figures["compound"], &figures["count"]),
        (&json!(8), &json!(92))
    );
    for job in figures["jobs"].as_array().unwrap() {
        assert!(job["iops"].as_f64().unwrap() > 0.0, "{figures}");
    }
    assert_eq!(world.ok(&kv(&world, "samsung", &["ls"])), "");
    let error = world.fails(&bench(
        "samsung",
        &["--value-size", "256KiB", "--compound", "8"],
    ));
    assert!(error.contains("max_transfer"), "{error}");
    let nvme = World::new();
    let _server = nvme.serve_media("keyvalue:size=1MiB");
    let error = nvme.fails(&kv(&nvme, "auto", &["bench", "--compound", "8"]));
    assert!(error.contains("--dialect samsung"), "{error}");
}

#[test]
fn what_a_configuration_cannot_say_is_named() {
    let world = World::new();
    let config = |media: &str, namespace: &str| {
        let text = format!(
            "[[media]]\nname = \"keys\"\n{media}\n[[namespace]]\nname = \"n\"\nmedia = \"keys\"\n{namespace}\n"
        );
        world.write("config.toml", &text);
        world.fails(&["check", "config.toml"])
    };
    let keys = "kind = \"keyvalue\"\nsize = \"1MiB\"";
    let error = config(keys, "range = \"0KiB..64KiB\"");
    assert!(error.contains("has one namespace"), "{error}");
    let error = config("kind = \"ram\"\nsize = \"1MiB\"\ndialect = \"nvme\"", "");
    assert!(
        error.contains("only kind = \"keyvalue\" has `dialect`"),
        "{error}"
    );
    let error = config(&format!("{keys}\nmax_keys = 0"), "");
    assert!(error.contains("max_keys = 0"), "{error}");
    let timing = |preset: &str| format!("[media.timing]\npreset = \"{preset}\"");
    let error = config(&format!("{keys}\n{}", timing("optane-p4800x")), "");
    assert!(error.contains("needs a preset of kind kv"), "{error}");
    let ram = "kind = \"ram\"\nsize = \"1GiB\"";
    let error = config(&format!("{ram}\n{}", timing("samsung-kvssd")), "");
    assert!(error.contains("is only for kind = \"keyvalue\""), "{error}");
    let error = config("kind = \"keyvalue\"\nsize = \"2TiB\"", "");
    assert!(error.contains("at most 1TiB"), "{error}");
}
