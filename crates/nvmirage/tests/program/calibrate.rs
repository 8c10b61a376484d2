//! `nvmirage calibrate`, and the files that it writes.

use crate::world::World;

const FIO: &str = "[reads]\nrw=randread\nnorandommap\nioengine=libaio\niodepth=1\ntime_based\n";

/// Figures of a drive in virtual time, at some sizes and depths.
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
    assert!(error.contains("cannot create mine.toml"), "{error}");
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
        told.contains("missing: for iodepth in 1 2")
            && told.contains("or: nvmirage bench")
            && told.contains("randwrite"),
        "{told}"
    );
    assert!(told.contains("not identifiable"), "{told}");
    world.write("empty.json", "{}");
    let error = world.fails(&["calibrate", "--from", "empty.json"]);
    assert!(error.contains("empty.json is not a measurement"), "{error}");
    let error = world.fails(&[
        "calibrate",
        "--from",
        "reads.json",
        "--like",
        "samsung-kvssd",
    ]);
    assert!(
        error.contains("nothing was measured that is of use"),
        "{error}"
    );
    let set = ["calibrate", "--from", "reads.json", "--set", "units=2"];
    let wrong = |args: &[&str], says: &str| {
        let run = world.run(args);
        assert_eq!(run.status.code(), Some(2), "{}", run.err);
        assert!(run.err.contains(says), "{}", run.err);
    };
    wrong(&set, "--like");
    let again = ["calibrate", "--from", "reads.json", "./reads.json"];
    wrong(&again, "is named twice");
    let cost = ["calibrate", "--from", "reads.json", "--host-cost", "1s"];
    wrong(&cost, "as a whole");
    let size = ["calibrate", "--from", "reads.json", "--size", "0B"];
    wrong(&size, "positive multiple of 512");
    let set = [&set[..], &["--like", "optane-p4800x"]].concat();
    wrong(&set, "a parameter of kind nvm");
    let error = world.fails(&["explain", "nothing.toml"]);
    assert!(
        error.contains("cannot read the preset nothing.toml"),
        "{error}"
    );
}

/// Figures of a drive in virtual time for a job file, with sweeps.
fn simulated(world: &World, preset: &[&str], jobs: &str, sweeps: &[&str], name: &str) {
    world.write("jobs.fio", jobs);
    let mut args = vec!["simulate", "--preset"];
    args.extend_from_slice(preset);
    args.extend_from_slice(&[
        "--workload",
        "jobs.fio",
        "--virtual-time",
        "300ms",
        "--json",
    ]);
    for sweep in sweeps {
        args.extend_from_slice(&["--sweep", sweep]);
    }
    world.write(name, &world.ok(&args));
}

/// The number of a parameter in a preset's file.
fn number(world: &World, file: &str, name: &str) -> u64 {
    let explained = world.json(&["explain", file, "--json"]);
    let rows = explained["parameters"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == name).unwrap();
    row["number"].as_u64().unwrap()
}

#[test]
fn zones_that_were_measured_become_a_drive_with_zones() {
    let world = World::new();
    let shape = [
        "channels=2",
        "dies_per_channel=2",
        "zone_size=16MiB",
        "zone_capacity=12MiB",
        "block=12MiB",
    ];
    let mut truth = vec!["zns-prototype", "--size", "1GiB", "--set", "program=1ms"];
    truth.extend(shape.iter().flat_map(|value| ["--set", value]));
    let jobs = "[a]\nzonemode=zbd\nrw=write\nio_size=24m\n";
    let sweeps = ["bs=64k,192k,768k", "numjobs=1,2,4"];
    simulated(&world, &truth, jobs, &sweeps, "writes.json");
    let mut args = vec![
        "calibrate",
        "--from",
        "writes.json",
        "--size",
        "1GiB",
        "--like",
        "zns-prototype",
    ];
    args.extend(shape.iter().flat_map(|value| ["--set", value]));
    args.extend_from_slice(&["--output", "zones.toml", "--json"]);
    let told = world.json(&args);
    assert_eq!(told["kind"], "zns");
    let program = number(&world, "zones.toml", "program");
    assert!((900_000..=1_100_000).contains(&program), "{program}");
    assert_eq!(number(&world, "zones.toml", "zone_capacity"), 12 << 20);
    let text = std::fs::read_to_string(world.path("zones.toml")).unwrap();
    assert!(text.contains("set: when it was calibrated"), "{text}");
    world.write("config.toml", "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"1GiB\"\n[media.zoned]\nzone_size = \"16MiB\"\nzone_capacity = \"12MiB\"\n[media.timing]\npreset = \"zones.toml\"\n");
    world.ok(&["check", "config.toml"]);
    simulated(&world, &["zones.toml"], jobs, &[], "again.json");
}

/// Only a part of these run at each commit (CONTRIBUTING.md).
mod slow {
    use super::*;

    #[test]
    fn keys_that_were_measured_become_a_drive_with_keys() {
        let world = World::new();
        let truth = [
            "samsung-kvssd",
            "--set",
            "units=4",
            "--set",
            "write_latency=90us",
        ];
        let sweeps = ["bs=512,4k,64k", "iodepth=1,4,16,64"];
        for rw in ["randread", "randwrite"] {
            let jobs = format!("[a]\nrw={rw}\nnorandommap\nioengine=libaio\ntime_based\n");
            simulated(&world, &truth, &jobs, &sweeps, &format!("{rw}.json"));
        }
        let told = world.json(&[
            "calibrate",
            "--from",
            "randread.json",
            "randwrite.json",
            "--size",
            "8GiB",
            "--output",
            "keys.toml",
            "--json",
        ]);
        assert_eq!(told["kind"], "kv");
        assert_eq!(number(&world, "keys.toml", "units"), 4);
        let latency = number(&world, "keys.toml", "write_latency");
        assert!((89_000..=91_000).contains(&latency), "{latency}");
        // deletes were not measured
        let sweeps = told["sweeps"].as_array().unwrap();
        let missing: Vec<_> = sweeps.iter().filter(|s| s["present"] == false).collect();
        assert!(
            missing.iter().any(|s| s["direction"] == "delete"),
            "{missing:?}"
        );
        world.write("config.toml", "[[media]]\nname = \"m\"\nkind = \"keyvalue\"\nsize = \"1GiB\"\n[media.timing]\npreset = \"keys.toml\"\n");
        world.ok(&["check", "config.toml"]);
        let jobs = "[a]\nrw=randwrite\nnorandommap\ntime_based\n";
        simulated(&world, &["keys.toml"], jobs, &[], "again.json");
    }
}
