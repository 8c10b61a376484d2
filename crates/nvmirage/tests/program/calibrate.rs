//! `nvmirage calibrate`, and the files that it writes.

use crate::world::World;

const FIO: &str = "[reads]\nrw=randread\nnorandommap\niodepth=1\ntime_based\n";

/// What a drive shows in virtual time, at some sizes and depths.
fn measure(world: &World, rw: &str, name: &str) {
    world.write("one.fio", &FIO.replace("randread", rw));
    let out = world.ok(&[
        "simulate",
        "--preset",
        "optane-p4800x",
        "--set",
        "read_latency=7us",
        "--set",
        "write_rate=300K/s",
        "--workload",
        "one.fio",
        "--virtual-time",
        "5ms",
        "--sweep",
        "bs=4k,16k,64k",
        "--sweep",
        "iodepth=1,2,4,8,32",
        "--json",
    ]);
    world.write(name, &out);
}

#[test]
fn what_was_measured_becomes_a_drive_that_everything_takes() {
    let world = World::new();
    measure(&world, "randread", "reads.json");
    measure(&world, "randwrite", "writes.json");
    let args = [
        "calibrate",
        "--from",
        "reads.json",
        "writes.json",
        "--size",
        "375GB",
        "--name",
        "mine",
        "--output",
        "mine.toml",
        "--json",
    ];
    let told = world.json(&args);
    assert_eq!(told["kind"], "nvm");
    assert_eq!(told["written"], "mine.toml");
    let rows = told["parameters"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["identifiable"] == true),
        "{rows:?}"
    );
    assert!(!told["held_out"].as_array().unwrap().is_empty());
    let sweeps = told["sweeps"].as_array().unwrap();
    assert!(
        sweeps.iter().all(|sweep| sweep["present"] == true),
        "{sweeps:?}"
    );

    // explained, with where each value is from
    let explained = world.json(&["explain", "mine.toml", "--json"]);
    assert_eq!(explained["preset"], "mine");
    assert_eq!(explained["size_bytes"], 375_000_000_000_u64);
    let rows = explained["parameters"].as_array().unwrap();
    let latency = rows
        .iter()
        .find(|row| row["name"] == "read_latency")
        .unwrap();
    let ns = latency["number"].as_u64().unwrap();
    assert!((6_950..=7_050).contains(&ns), "{latency}");
    assert!(
        latency["source"]
            .as_str()
            .unwrap()
            .starts_with("measured: fitted")
    );
    assert!(latency["interval"].is_array());
    assert!(
        world
            .ok(&["explain", "mine.toml"])
            .contains("measured: fitted")
    );

    // simulated
    let run = world.json(&[
        "simulate",
        "--preset",
        "./mine.toml",
        "--workload",
        "one.fio",
        "--virtual-time",
        "5ms",
        "--json",
    ]);
    assert_eq!(run["configuration"]["preset"], "mine");

    // served, from another folder than the file's
    let config = "[[media]]\nname = \"m\"\nkind = \"null\"\nsize = \"1GiB\"\n[media.timing]\npreset = \"mine.toml\"\n";
    world.write("config.toml", config);
    world.ok(&["check", "config.toml"]);

    // nothing is overwritten
    let before = std::fs::read(world.path("mine.toml")).unwrap();
    let error = world.fails(&args);
    assert!(error.contains("cannot make mine.toml"), "{error}");
    assert_eq!(std::fs::read(world.path("mine.toml")).unwrap(), before);
}

#[test]
fn a_file_makes_a_drive_of_a_running_server() {
    let world = World::new();
    measure(&world, "randread", "reads.json");
    world.ok(&[
        "calibrate",
        "--from",
        "reads.json",
        "--like",
        "optane-p4800x",
        "--output",
        "mine.toml",
    ]);
    let server = world.serve_media("null:size=1GiB");
    let create = [
        "create",
        "media",
        "timed",
        "--kind",
        "null",
        "--size",
        "1GiB",
        "--timing",
        "mine.toml",
    ];
    world.ok(&world.steer(&create));
    let set = |value: &str| world.steer(&["set", "media", "timed", value]);
    world.ok(&set("timing.read_latency=9us"));
    // what the file says now is of no matter to a drive that was made from it
    std::fs::remove_file(world.path("mine.toml")).unwrap();
    world.ok(&set("timing.read_latency=8us"));
    server.stop();
}

#[test]
fn what_is_missing_is_said() {
    let world = World::new();
    measure(&world, "randread", "reads.json");
    let error = world.fails(&["calibrate", "--from", "reads.json"]);
    assert!(error.contains("nothing was measured of writes"), "{error}");
    let told = world.ok(&[
        "calibrate",
        "--from",
        "reads.json",
        "--like",
        "optane-p4800x",
    ]);
    assert!(
        told.contains("missing: nvmirage bench") && told.contains("randwrite"),
        "{told}"
    );
    assert!(told.contains("not identifiable"), "{told}");
    world.write("empty.json", "{}");
    let error = world.fails(&["calibrate", "--from", "empty.json"]);
    assert!(error.contains("empty.json is no measurement"), "{error}");
    let error = world.fails(&["calibrate", "--from", "reads.json", "--like", "wd-zn540"]);
    assert!(error.contains("kind zns are not calibrated"), "{error}");
    let error = world.fails(&["explain", "nothing.toml"]);
    assert!(
        error.contains("cannot read the preset nothing.toml"),
        "{error}"
    );
}
