//! `nvmirage fidelity`.

use serde_json::Value;

use crate::network::{NQN, Port, serve};
use crate::world::{Server, World};

fn points(report: &Value) -> &Vec<Value> {
    report["points"].as_array().unwrap()
}

fn at<'r>(report: &'r Value, op: &str, block_size: u64, depth: u64) -> &'r Value {
    let is_it = |point: &&Value| {
        point["op"] == op
            && point["block_size"] == block_size
            && point["queue_depth"] == depth
            && point["workers"] == 1
    };
    points(report).iter().find(is_it).unwrap()
}

#[test]
fn what_cannot_be_recorded_or_played_back_is_refused() {
    let world = World::new();
    let config = |kind: &str, preset: &str| {
        format!(
            "[[media]]\nname = \"d\"\nkind = \"{kind}\"\nsize = \"8GiB\"\npath = \"d.img\"\n[media.timing]\npreset = \"{preset}\"\nrecord = \"d.trace\"\n"
        )
    };
    let file = world.write("file.toml", &config("file", "samsung-970-pro"));
    let error = world.fails(&["check", file.to_str().unwrap()]);
    assert!(error.contains("`record` needs a new drive"), "{error}");
    let no_trace = world.write("no.trace", "nvmirage-trace 1\n0 R 0 4096\n");
    let error = world.fails(&["fidelity", "--replay", no_trace.to_str().unwrap()]);
    assert!(error.contains("cannot play back"), "{error}");
}

/// An Optane drive of the size that its points need, and beside it a null medium and one of other
/// timing, behind one controller.
fn behind_tcp(world: &World) -> (Server, Port) {
    let port = Port::new();
    let mut config = String::new();
    for (name, keys) in [
        (
            "opt",
            "kind = \"ram\"\nsize = \"8GiB\"\ntiming = { preset = \"optane-p4800x\" }",
        ),
        ("null", "kind = \"null\"\nsize = \"64MiB\""),
        ("small", "kind = \"ram\"\nsize = \"64MiB\""),
    ] {
        config += &format!(
            "[[media]]\nname = \"{name}\"\n{keys}\n[[namespace]]\nname = \"{name}\"\nmedia = \"{name}\"\n"
        );
    }
    config += &format!(
        "[[controller]]\nname = \"store\"\nnamespaces = [\"opt\", \"null\", \"small\"]\nsubnqn = \"{NQN}\"\nlisten = \"{}\"\n",
        port.listen()
    );
    (serve(world, &config, &[]), port)
}

#[test]
fn a_drive_behind_a_transport() {
    let world = World::new();
    let (server, port) = behind_tcp(&world);
    let target = port.target();
    let one = ["fidelity", "--target", &target, "--runs", "1", "--json"];
    let optane = ["--preset", "optane-p4800x", "--only", "read 4096 qd1 "];
    let measure =
        |more: &[&str]| world.json(&[&one[..], &optane, &["--destroy-data"], more].concat());
    let report = measure(&["--null-nsid", "2"]);
    assert_eq!(
        (&report["target"], &report["preset"]),
        (&target.clone().into(), &"optane-p4800x@paper".into())
    );
    let point = &points(&report)[0];
    let number = |name: &str| point[name].as_f64().unwrap();
    // 5.39 us of the drive; no host sees it sooner.
    assert_eq!(point["virtual_ns_p50"], 5_390.0);
    let (seen, transport) = (number("seen_ns_p50"), number("transport_ns_p50"));
    assert!(seen > 5_390.0 && transport > 0.0, "{point:#}");
    let is = |name: &str, expected: f64| {
        assert!(
            (number(name) - expected).abs() < 1e-6,
            "{name}: {expected}, {point:#}"
        );
    };
    let count = point["excluded_commands"].as_u64().unwrap();
    assert!(count < 10_000, "{point:#}");
    is("error_pct", (seen / 5_390.0 - 1.0) * 100.0);
    is("net_ns", seen - number("transport_alone_ns_p50"));
    is(
        "unhidden_pct",
        ((transport / 5_390.0 - 1.0) * 100.0).max(0.0),
    );
    assert!(points(&measure(&[]))[0]["transport_ns_p50"].is_null());

    let refused = |args: &[&str], status: i32, says: &str| {
        let ran = world.run(&[&one[..], args].concat());
        assert_eq!(ran.status.code(), Some(status), "{}", ran.err);
        assert!(ran.err.contains(says), "{}", ran.err);
    };
    refused(&optane, 2, "add --destroy-data");
    let optane = [&optane[..], &["--destroy-data"]].concat();
    let with = |more: &[&'static str]| [&optane[..], more].concat();
    refused(&with(&["--null-nsid", "1"]), 2, "that is the drive");
    refused(&with(&["--null-nsid", "3"]), 1, "the namespace keeps data");
    refused(&with(&["--nsid", "3"]), 1, "need 8GiB");
    refused(
        &["--preset", "zns-prototype", "--destroy-data"],
        1,
        "of another kind than the preset",
    );
    refused(
        &["--preset", "samsung-kvssd"],
        2,
        "`nvmirage kv bench` measures it there",
    );
    server.stop();
}

mod slow {
    use super::*;

    /// A host's commands take as long as the model says and more, and the way to the drive is not
    /// in the net time.
    #[test]
    fn a_host_sees_a_drive_for_real() {
        let world = World::new();
        let report = world.json(&[
            "fidelity",
            "--preset",
            "optane-p4800x",
            "--runs",
            "1",
            "--json",
        ]);
        assert_eq!(report["runs"], 1);
        let alone = at(&report, "read", 4096, 1);
        let number = |name: &str| alone[name].as_f64().unwrap();
        assert!(number("real_ns_raw") > number("virtual_ns"), "{alone:#}");
        assert!(number("baseline_ns") > 0.0);
        assert!(number("real_ns_net") < number("real_ns_raw"), "{alone:#}");
        assert_eq!(alone["published"], 8900.0);
        let seen = &report["emulation"][0]["errors"];
        let commands = seen["commands"].as_u64().unwrap();
        assert!(commands > 100, "{seen:#}");
        // Where the machine keeps the reactor from running behind its look at the clock, a command
        // arrives too early.
        assert!(seen["early"].as_u64().unwrap() * 20 < commands, "{seen:#}");
    }

    /// A small flash drive under reads and writes at random, for so long that it collects; stopped,
    /// and played back.
    #[test]
    fn what_a_reactor_recorded_takes_the_same_time_again() {
        let world = World::new();
        let config = r#"
    [[media]]
    name = "pro"
    kind = "null"
    size = "160MiB"
    [media.timing]
    preset = "samsung-970-pro"
    block = "64KiB"
    record = "pro.trace"
    [[namespace]]
    name = "ns"
    media = "pro"
    [[controller]]
    name = "nvme"
    namespaces = ["ns"]
    listen = "vfio-user:nvme.sock"
    "#;
        let file = world.write("config.toml", config);
        let server = world.serve(&["--config", file.to_str().unwrap()]);
        let target = world.vfio_user("nvme.sock");
        let load = |rw: &str, block_size: &str| {
            let job = world.json(&[
                "bench",
                "--target",
                &target,
                "--destroy-data",
                "--rw",
                rw,
                "--bs",
                block_size,
                "--qd",
                "32",
                "--time",
                "300ms",
                "--json",
            ]);
            job["jobs"][0]["commands"].as_u64().unwrap()
        };
        // Twice its size at least, however little time the machine has for it; then all kinds
        // together.
        let mut written = 0;
        while written < 320 << 20 {
            written += load("randwrite", "64KiB") * 65536;
        }
        load("randrw", "16KiB");
        server.stop();
        let trace = world.path("pro.trace");
        let replay = world.json(&["fidelity", "--replay", trace.to_str().unwrap(), "--json"]);
        assert_eq!(replay["differing"], 0, "{replay:#}");
        assert!(replay["commands"].as_u64().unwrap() > 2_000, "{replay:#}");
        // One nanosecond in one place is found.
        let text = std::fs::read_to_string(&trace).unwrap();
        let longer = text.replace(
            "# drive samsung-970-pro,block=64KiB",
            "# drive samsung-970-pro,block=64KiB,program=185001ns",
        );
        let other = world.write("other.trace", &longer);
        let ran = world.run(&["fidelity", "--replay", other.to_str().unwrap()]);
        assert_eq!(ran.status.code(), Some(1), "{}", ran.out);
        assert!(ran.err.contains("in virtual time at"), "{}", ran.err);
    }

    #[test]
    fn all_drives_take_what_the_oracle_says() {
        let world = World::new();
        let report = world.json(&["fidelity", "--no-real", "--json"]);
        for point in points(&report) {
            assert_eq!(point["oracle_ns"], point["virtual_ns"], "{point:#}");
            assert!(point["real_ns_raw"].is_null() && point["error_pct"].is_null());
            assert!(!point["published_source"].as_str().unwrap().is_empty());
        }
        let mut presets: Vec<&str> = points(&report)
            .iter()
            .map(|point| point["preset"].as_str().unwrap())
            .collect();
        presets.dedup();
        assert!(presets.contains(&"samsung-970-pro@code"), "{presets:?}");
        assert!(presets.contains(&"zns-prototype@paper"), "{presets:?}");
        // Low-latency memory at a depth at which its rate decides: 550 K reads a second.
        let of_optane = |point: &&Value| point["preset"] == "optane-p4800x@paper";
        let optane: Vec<&Value> = points(&report).iter().filter(of_optane).collect();
        let deep = optane
            .iter()
            .find(|p| p["op"] == "read" && p["queue_depth"] == 32);
        let rate = deep.unwrap()["virtual_per_s"].as_f64().unwrap();
        assert!((0.95 * 550e3..=550e3).contains(&rate), "{rate}");
    }

    /// Pictures of virtual time alone: of a drive that collects, of zones, and of compound
    /// commands, each with its numbers in the report.
    #[test]
    fn figures_are_drawn() {
        let world = World::new();
        let draw = |preset: &str, only: &str| {
            let args = ["fidelity", "--no-real", "--json", "--plots", "figures"];
            world.json(&[&args[..], &["--preset", preset, "--only", only]].concat())
        };
        let picture = |name: &str| {
            std::fs::read_to_string(world.path("figures").join(format!("{name}.svg"))).unwrap()
        };
        let report = draw("samsung-970-pro@code", "collection");
        let course = &report["courses"][0];
        assert_eq!(course["preset"], "samsung-970-pro@code");
        let rates = course["virtual_bytes_per_s"].as_array().unwrap();
        assert!(
            rates[1].as_u64() > rates[rates.len() - 2].as_u64().map(|late| late * 10),
            "{course:#}"
        );
        assert!(course["real_ns"].is_null());
        assert!(picture("samsung-970-pro@code-collection").contains("overwritten at random"));

        let report = draw("zns-prototype@paper", "zones");
        assert_eq!(report["one_zone"].as_array().unwrap().len(), 5);
        assert_eq!(report["courses"][0]["name"], "zones");
        let zones = picture("zns-prototype@paper-zones");
        for line in ["a zone each, virtual time", "one zone, virtual time"] {
            assert!(zones.contains(line), "{line}");
        }

        let report = draw("samsung-kvssd@paper", "store-eight");
        let bars = picture("samsung-kvssd@paper-compound");
        // The rules with the authors' host, and what they published.
        for time in ["448.0", "76.5", "79.5", "469.0", "86.0"] {
            assert!(bars.contains(&format!("\n{time}\n</text>")), "{time}");
        }
        // The means of its points, which have single stores as well.
        let point = |op: &str| {
            let mut points = report["points"].as_array().unwrap().iter();
            points.find(|point| point["op"] == op).unwrap()["virtual_ns"]
                .as_f64()
                .unwrap()
        };
        for us in [8.0 * point("store") / 1e3, point("store-eight") / 1e3] {
            assert!(bars.contains(&format!("\n{us:.1}\n</text>")), "{us}");
        }
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let world = World::new();
        for (args, says) in [
            (&["--preset", "optane"][..], "did you mean `optane-p4800x`?"),
            (&["--cpu", "0", "--server-cpu", "0"], "a CPU each"),
            (&["--only", "nothing"], "no point"),
            (&["--no-real", "--hdr-digest"], "to connect to a --target"),
            (
                &["--target", "pci:0000:01:00.0", "--preset", "optane-p4800x"],
                "has no model",
            ),
        ] {
            let ran = world.run(&[&["fidelity"], args].concat());
            assert_eq!(ran.status.code(), Some(2), "{}", ran.err);
            assert!(ran.err.contains(says), "{}", ran.err);
        }
    }
}
