//! `nvmirage explain`, and timing in a configuration.

use crate::world::World;

#[test]
fn presets_are_listed_and_each_is_explained() {
    let world = World::new();
    let list = world.json(&["explain", "--json"]);
    let presets = list.as_array().unwrap();
    assert_eq!(presets.len(), 9);
    for preset in presets {
        let name = preset["preset"].as_str().unwrap();
        let report = world.json(&["explain", name, "--json"]);
        assert_eq!(report["preset"], name);
        for parameter in report["parameters"].as_array().unwrap() {
            assert!(!parameter["source"].as_str().unwrap().is_empty());
        }
        assert!(!report["latencies"].as_array().unwrap().is_empty());
        assert!(!report["ceilings"].as_array().unwrap().is_empty());
        let words = world.ok(&["explain", name]);
        assert!(words.contains("Published of the real drive"), "{words}");
    }
    assert!(world.ok(&["explain"]).contains("samsung-970-pro@paper"));
}

#[test]
fn a_drive_of_a_size_with_a_change() {
    let world = World::new();
    let args = [
        "explain",
        "samsung-970-pro",
        "--size",
        "8GiB",
        "--set",
        "firmware_read_4k=0ns",
        "--json",
    ];
    let report = world.json(&args);
    // 524288 pages in each of four partitions, 7 % more, in lines of 3840
    assert_eq!(report["geometry"]["lines"], 147);
    assert_eq!(report["size_bytes"], 8u64 << 30);
    // without the firmware's 21.5 us
    assert_eq!(report["latencies"][0]["least_ns"], 35_806);
    let amplification = report["write_amplification"]["fifo"].as_f64().unwrap();
    assert!((7.0..12.0).contains(&amplification), "{amplification}");
    let set = report["parameters"].as_array().unwrap();
    let set: Vec<_> = set.iter().filter(|p| p["source"] == "set: here").collect();
    assert_eq!(set.len(), 1);
    assert_eq!(set[0]["name"], "firmware_read_4k");
}

#[test]
fn what_cannot_be_explained_says_what_to_write() {
    let world = World::new();
    for (args, says) in [
        (
            &["explain", "samsung-970-pr"][..],
            "did you mean `samsung-970-pro`?",
        ),
        (&["explain", "970"], "did you mean `samsung-970-pro`?"),
        (
            &["explain", "samsung-970-pro", "--size", "1GiB"],
            "write a size of at least",
        ),
        (
            &["explain", "wd-zn540", "--size", "3GiB"],
            "no whole number of zones",
        ),
        (
            &["explain", "optane-p4800x", "--set", "read_latncy=8us"],
            "did you mean `read_latency`?",
        ),
        (
            &["explain", "optane-p4800x", "--set", "read_latency=8"],
            "with its unit, as in 8us",
        ),
    ] {
        let error = world.fails(args);
        assert!(error.contains(says), "{error}");
    }
    for args in [
        &["explain", "optane-p4800x", "--set", "read_latency"][..],
        &["explain", "--size", "8GiB"],
        &["explain", "optane-p4800x", "--size", "8GiB"],
        &["explain", "samsung-kvssd", "--size", "8GiB"],
    ] {
        assert_eq!(world.run(args).status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn timing_in_a_configuration_is_checked() {
    let world = World::new();
    let config = |timing: &str| {
        let text = format!(
            "[[media]]\nname = \"d\"\nkind = \"ram\"\nsize = \"8GiB\"\n[media.timing]\n{timing}\n"
        );
        world.write("timing.toml", &text)
    };
    let good = config("preset = \"samsung-970-pro\"\nprogram = \"200us\"");
    let full = world.ok(&["check".as_ref(), good.as_os_str()]);
    assert!(full.contains("program = \"200us\""), "{full}");
    let bad = config("preset = \"samsung-970-pro\"\nprogram = \"200\"\nchanels = 8");
    let error = world.fails(&["check".as_ref(), bad.as_os_str()]);
    assert!(error.contains("did you mean `channels`?"), "{error}");
    assert!(
        error.contains("media d: timing: program = \"200\""),
        "{error}"
    );
}
