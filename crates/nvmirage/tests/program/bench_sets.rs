//! `identify`, `bench` and `zone report` on drives with other command sets than NVM.

use serde_json::{Value, json};

use crate::world::{Server, World};

/// A drive in memory with eight zones of 1 MiB, of which 768 KiB can be written, two at a time.
fn zones(world: &World) -> Server {
    let text = format!(
        "[[media]]\nname = \"m\"\nkind = \"ram\"\nsize = \"8MiB\"\n\
         [media.zoned]\nzone_size = \"1MiB\"\nzone_capacity = \"760KiB\"\nmax_open = 2\nmax_active = 3\n\
         [[namespace]]\nname = \"n\"\nmedia = \"m\"\n\
         [[controller]]\nname = \"c\"\nnamespaces = [\"n\"]\nlisten = \"{}\"\n",
        world.vfio_user("nvme.sock")
    );
    let file = world.write("config.toml", &text);
    world.serve(&["--config", file.to_str().unwrap()])
}

fn bench(world: &World, more: &[&str]) -> Vec<String> {
    bench_for(world, "100ms", more)
}

fn bench_for(world: &World, time: &str, more: &[&str]) -> Vec<String> {
    let target = world.vfio_user("nvme.sock");
    let args = ["bench", "--target", &target, "--time", time, "--json"];
    args.iter()
        .chain(more)
        .map(|arg| (*arg).to_owned())
        .collect()
}

/// The report of a job that went around all zones, which takes a busy machine longer.
fn around(world: &World, more: &[&str]) -> Value {
    for time in ["100ms", "500ms", "3s", "15s"] {
        let report = world.json(&bench_for(world, time, more));
        let job = &report["jobs"][0];
        assert_eq!(job["errors"], 0, "{job:#}");
        if job["zone_resets"].as_u64().unwrap() > 8 {
            return report;
        }
    }
    panic!("no job went around all zones");
}

fn states(world: &World) -> Vec<String> {
    let target = world.vfio_user("nvme.sock");
    let report = world.json(&["zone", "report", "--target", &target, "--json"]);
    assert_eq!(report["zone_blocks"], 256);
    assert_eq!(
        (&report["max_open"], &report["max_active"]),
        (&json!(2), &json!(3))
    );
    let zones = report["zones"].as_array().unwrap();
    for (number, zone) in zones.iter().enumerate() {
        assert_eq!(zone["start"], json!(number * 256));
        assert_eq!(zone["capacity"], 190);
    }
    let state = |zone: &Value| zone["state"].as_str().unwrap().to_owned();
    zones.iter().map(state).collect()
}

#[test]
fn zones_are_identified_reported_written_and_appended_to() {
    let world = World::new();
    let server = zones(&world);
    let target = world.vfio_user("nvme.sock");
    let identity = world.json(&["identify", "--target", &target, "--json"]);
    let namespace = &identity["namespaces"][0];
    assert_eq!(namespace["command_set"], "zoned");
    let expected = json!({"count": 8, "size": 1 << 20, "max_open": 2, "max_active": 3});
    assert_eq!(namespace["zones"], expected);
    let text = world.ok(&["identify", "--target", &target]);
    assert!(
        text.contains("zones 8 of 1.00 MiB, 2 open and 3 active at a time"),
        "{text}"
    );
    assert_eq!(states(&world), ["empty"; 8]);

    // 8 KiB fill a zone, 16 KiB leave a rest; both go around all zones many times
    for (rw, bs, qd) in [
        ("write", "16k", "2"),
        ("append", "8k", "8"),
        ("append", "16k", "4"),
    ] {
        let more = ["--destroy-data", "--rw", rw, "--bs", bs, "--qd", qd];
        let report = around(&world, &more);
        let job = &report["jobs"][0];
        assert_eq!(job["rw"], rw);
        let per_zone = if bs == "8k" { 95 } else { 47 };
        let commands = job["commands"].as_u64().unwrap();
        let resets = job["zone_resets"].as_u64().unwrap();
        // the first zones were reset before, the last ones are not full, and commands that complete
        // while the client's thread is stalled are not in `commands`
        let elapsed = job["elapsed_ns"].as_u64().unwrap();
        let uncounted = commands * job["stalled_ns"].as_u64().unwrap() / elapsed;
        let counted = commands..=commands + 2 * uncounted;
        let expected = resets * per_zone;
        let is_near = |count: u64| count.abs_diff(expected) <= 4 * per_zone;
        assert!(
            counted.contains(&expected) || is_near(*counted.start()) || is_near(*counted.end()),
            "{job:#}"
        );
    }
    let used = states(&world);
    assert!(used.iter().any(|state| state == "full"), "{used:?}");

    // the first two zones alone, and the others stay as they are
    let span = [
        "--destroy-data",
        "--rw",
        "append",
        "--open-zones",
        "2",
        "--span",
        "2MiB",
    ];
    let report = world.json(&bench(
        &world,
        &[&span[..], &["--bs", "16k", "--qd", "4"]].concat(),
    ));
    assert_eq!(report["jobs"][0]["errors"], 0);
    let is_full = |states: &[String]| {
        let full = states.iter().map(|state| state == "full");
        full.collect::<Vec<_>>()
    };
    assert_eq!(is_full(&states(&world)[2..]), is_full(&used[2..]));
    // reads go anywhere
    let report = world.json(&bench(&world, &["--rw", "randread", "--qd", "8"]));
    assert_eq!(report["jobs"][0]["errors"], 0);

    for (more, words) in [
        (&["--rw", "append"][..], "--destroy-data"),
        (
            &["--destroy-data", "--rw", "write", "--qd", "3"],
            "3 zones are needed at a time, one for each command in flight, and 2 can be open",
        ),
        (
            &["--destroy-data", "--rw", "randwrite"],
            "zones are written in order",
        ),
        (
            &["--destroy-data", "--rw", "append", "--bs", "24k"],
            "no multiple of",
        ),
        (&["--destroy-data", "--verify"], "remove the option"),
        (
            &["--destroy-data", "--rw", "append", "--span", "512KiB"],
            "write at least that",
        ),
        (&["--open-zones", "2"], "--open-zones is for --rw append"),
    ] {
        let ran = world.run(&bench(&world, more));
        assert!(!ran.status.success());
        assert!(ran.err.contains(words), "{more:?}: {}", ran.err);
    }
    server.stop();
}

#[test]
fn keys_and_values_are_identified_and_have_a_benchmark_of_their_own() {
    let world = World::new();
    let server = world.serve_media("keyvalue:size=16MiB");
    let target = world.vfio_user("nvme.sock");
    let identity = world.json(&["identify", "--target", &target, "--json"]);
    let namespace = &identity["namespaces"][0];
    assert_eq!(namespace["command_set"], "key-value");
    assert_eq!(namespace["bytes"], 16 << 20);
    // NVMe's Key Value command set has keys of up to 16 bytes
    assert_eq!(namespace["pairs"]["max_key"], 16);
    let text = world.ok(&["identify", "--target", &target]);
    assert!(text.contains("16.0 MiB of keys and values"), "{text}");
    let error = world.fails(&bench(&world, &[]));
    assert!(error.contains("nvmirage kv --target vfio-user:"), "{error}");
    let error = world.fails(&["zone", "report", "--target", &target]);
    assert!(error.contains("namespace 1 has no zones"), "{error}");
    server.stop();
}

#[test]
fn a_drive_without_zones_has_nothing_to_append_to() {
    let world = World::new();
    let server = world.serve_media("ram:size=16MiB");
    let error = world.fails(&bench(&world, &["--destroy-data", "--rw", "append"]));
    assert!(error.contains("no zones to append to"), "{error}");
    server.stop();
}
