//! `nvmirage fidelity`.

use serde_json::Value;

use crate::world::World;

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

/// What a host sees is never early, and the way to the drive is not in the net time.
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
    let way = number("real_ns_raw") - number("real_ns_net");
    assert!((way - number("baseline_ns")).abs() < 1e-3, "{alone:#}");
    assert_eq!(alone["published"], 8900.0);
    let seen = &report["emulation"][0]["errors"];
    assert_eq!(seen["early"], 0, "{seen:#}");
    assert!(seen["commands"].as_u64().unwrap() > 1000, "{seen:#}");
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let world = World::new();
    for (args, says) in [
        (&["--preset", "optane"][..], "did you mean `optane-p4800x`?"),
        (&["--cpu", "0", "--server-cpu", "0"], "a CPU each"),
    ] {
        let ran = world.run(&[&["fidelity"], args].concat());
        assert_eq!(ran.status.code(), Some(2), "{}", ran.err);
        assert!(ran.err.contains(says), "{}", ran.err);
    }
}
