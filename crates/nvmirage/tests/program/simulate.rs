//! `nvmirage simulate`, and the traces that `bench` records for it.

use crate::world::World;

const READS: &str = "[reads]\nrw=randread\nnorandommap\nioengine=libaio\niodepth=4\ntime_based\n";

#[test]
fn the_same_command_line_gives_the_same_bytes() {
    let world = World::new();
    world.write("reads.fio", READS);
    let args = [
        "simulate",
        "--preset",
        "optane-p4800x",
        "--workload",
        "reads.fio",
        "--virtual-time",
        "5ms",
        "--warmup",
        "1ms",
        "--interval",
        "1ms",
        "--sweep",
        "iodepth=1,8",
        "--csv",
        "series.csv",
        "--plot",
        "series.svg",
        "--json",
    ];
    let first = world.ok(&args);
    assert_eq!(world.ok(&args), first);
    let value: serde_json::Value = serde_json::from_str(&first).unwrap();
    assert_eq!(value["nvmirage"], env!("CARGO_PKG_VERSION"));
    assert_eq!(value["configuration"]["seed"], 1);
    assert_eq!(value["configuration"]["warmup_ns"], 1_000_000);
    let runs = value["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[1]["point"][0][1], "8");
    for run in runs {
        assert_eq!(run["elapsed_ns"], 4_000_000);
        assert_eq!(run["series"].as_array().unwrap().len(), 5);
        let kind = &run["jobs"][0]["kinds"][0];
        assert_eq!(kind["kind"], "read");
        assert!(kind["iops"].as_u64().unwrap() > 10_000, "{kind}");
        assert_eq!(run["jobs"][0]["errors"], 0);
    }
    let csv = std::fs::read_to_string(world.path("series.csv")).unwrap();
    assert_eq!(csv.lines().count(), 11);
    let svg = std::fs::read_to_string(world.path("series.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("iodepth=8"));
}

#[test]
fn a_table_has_what_the_drive_did_inside() {
    let world = World::new();
    let jobs = "[fill]\nrw=write\nbs=1m\nsize=64m\n[read]\nstonewall\nrw=read\nsize=1m\n";
    world.write("fill.fio", jobs);
    let table = world.ok(&[
        "simulate",
        "--preset",
        "samsung-970-pro@code",
        "--size",
        "256MiB",
        "--set",
        "block=128KiB",
        "--workload",
        "fill.fio",
        "--virtual-time",
        "1h",
    ]);
    assert!(
        table.contains("write amplification 1.000: 16384 pages written"),
        "{table}"
    );
    assert!(table.contains("fill") && table.contains("read"), "{table}");
}

/// One job file, on blocks and on keys.
#[test]
fn a_job_file_is_for_every_preset() {
    let world = World::new();
    world.write(
        "mix.fio",
        "[fill]\nrw=write\nbs=4k\nsize=1m\n[mix]\nstonewall\nrw=randrw\nbs=4k\nsize=1m\nioengine=libaio\niodepth=4\n[trim]\nstonewall\nrw=trim\nbs=4k\nsize=1m\n",
    );
    let kinds = |preset: &str| -> Vec<Vec<String>> {
        let report = world.json(&[
            "simulate",
            "--preset",
            preset,
            "--size",
            "1GiB",
            "--workload",
            "mix.fio",
            "--virtual-time",
            "10s",
            "--json",
        ]);
        let jobs = report["runs"][0]["jobs"].as_array().unwrap();
        let kinds = jobs.iter().map(|job| job["kinds"].as_array().unwrap());
        let names = kinds.map(|kinds| {
            assert_eq!(
                kinds
                    .iter()
                    .map(|k| k["commands"].as_u64().unwrap())
                    .sum::<u64>(),
                256
            );
            let names = kinds.iter().map(|kind| kind["kind"].as_str().unwrap());
            names.map(str::to_owned).collect()
        });
        names.collect()
    };
    let blocks = [&["write"][..], &["read", "write"], &["trim"]];
    assert_eq!(kinds("optane-p4800x"), blocks);
    let keys = [&["store"][..], &["store", "retrieve"], &["delete"]];
    assert_eq!(kinds("samsung-kvssd"), keys);
}

#[test]
fn what_bench_has_submitted_can_be_replayed() {
    let world = World::new();
    let server = world.serve_media("null:size=1GiB");
    let target = world.vfio_user("nvme.sock");
    let output = world.json(&[
        "bench",
        "--target",
        &target,
        "--destroy-data",
        "--rw",
        "randrw",
        "--qd",
        "4",
        "--queues",
        "2",
        "--pause",
        "1ms",
        "--time",
        "100ms",
        "--record-trace",
        "recorded.trace",
        "--json",
    ]);
    server.stop();
    let trace = std::fs::read_to_string(world.path("recorded.trace")).unwrap();
    let mut lines = trace.lines();
    assert_eq!(lines.next(), Some("nvmirage-trace 2"));
    let submitted = lines.count() as u64;
    let measured = output["jobs"][0]["commands"].as_u64().unwrap();
    assert!(
        submitted >= measured && measured > 0,
        "{submitted} {measured}"
    );
    let replayed = world.json(&[
        "simulate",
        "--preset",
        "optane-p4800x",
        "--size",
        "1GiB",
        "--workload",
        "recorded.trace",
        "--virtual-time",
        "10s",
        "--json",
    ]);
    let run = &replayed["runs"][0];
    assert_eq!(run["commands"], submitted);
    let kinds = run["jobs"][0]["kinds"].as_array().unwrap();
    let counted: u64 = kinds.iter().map(|k| k["commands"].as_u64().unwrap()).sum();
    assert_eq!((counted, kinds.len()), (submitted, 2));
    // the first half of it, and what comes after is said
    let half = [
        "simulate",
        "--preset",
        "optane-p4800x",
        "--size",
        "1GiB",
        "--workload",
        "recorded.trace",
        "--virtual-time",
        "50ms",
    ];
    let words = world.ok(&half);
    assert!(words.contains("come after --virtual-time"), "{words}");
    let cut = world.json(&[&half[..], &["--json"]].concat());
    let run = &cut["runs"][0];
    let done = run["commands"].as_u64().unwrap();
    assert_eq!(run["unsubmitted"], submitted - done);
    assert!(replayed["runs"][0].get("unsubmitted").is_none());
}

#[test]
fn a_measured_time_without_commands_is_told() {
    let world = World::new();
    world.write("slow.fio", "[slow]\nrw=randread\nrate_iops=1\n");
    let args = [
        "simulate",
        "--preset",
        "optane-p4800x",
        "--size",
        "1GiB",
        "--workload",
        "slow.fio",
        "--virtual-time",
        "500ms",
        "--warmup",
        "400ms",
    ];
    let words = world.ok(&args);
    assert!(words.contains("no command completed"), "{words}");
}

#[test]
fn what_cannot_be_simulated_is_refused_with_what_to_do() {
    let world = World::new();
    world.write("reads.fio", READS);
    world.write("zones.fio", "[a]\nrw=write\nzonemode=zbd\n");
    world.write("bad.fio", "[a]\nrw=randread\nverify=crc32c\n");
    world.write("far.trace", "nvmirage-trace 1\n0 R 1073741824 4096\n");
    let refused = |preset: &str, workload: &str, more: &[&str]| {
        let mut args = vec![
            "simulate",
            "--preset",
            preset,
            "--size",
            "1GiB",
            "--workload",
            workload,
        ];
        if !more.contains(&"--virtual-time") {
            args.extend(["--virtual-time", "1ms"]);
        }
        args.extend(more);
        let ran = world.run(&args);
        assert!(!ran.status.success() && ran.out.is_empty(), "{args:?}");
        ran.err
    };
    for (preset, workload, more, word) in [
        ("optane-p4801x", "reads.fio", &[][..], "optane-p4800x"),
        (
            "samsung-kvssd",
            "zones.fio",
            &[],
            "line 3: zonemode: a key-value drive has no zones",
        ),
        (
            "samsung-kvssd",
            "far.trace",
            &[],
            "a drive of kind kv has no such command",
        ),
        ("optane-p4800x", "none.fio", &[], "cannot read none.fio"),
        (
            "optane-p4800x",
            "reads.fio",
            &["--interval", "0s"],
            "write at least 1ns",
        ),
        (
            "optane-p4800x",
            "reads.fio",
            &["--virtual-time", "1s", "--interval", "999ns"],
            "write at least 1us",
        ),
        (
            "optane-p4800x",
            "reads.fio",
            &["--wrap"],
            "--wrap is only for traces",
        ),
        (
            "optane-p4800x",
            "reads.fio",
            &["--trace-depth", "4"],
            "--trace-depth is only for traces",
        ),
        ("optane-p4800x", "bad.fio", &[], "line 3: verify"),
        ("optane-p4800x", "far.trace", &[], "--wrap"),
        (
            "optane-p4800x",
            "reads.fio",
            &["--set", "read_latencie=8us"],
            "read_latency",
        ),
        (
            "optane-p4800x",
            "reads.fio",
            &["--sweep", "nothing=1"],
            "nothing",
        ),
        (
            "optane-p4800x",
            "far.trace",
            &["--sweep", "iodepth=1"],
            "a trace has no keys",
        ),
        (
            "optane-p4800x",
            "reads.fio",
            &["--warmup", "1ms"],
            "leaves no time",
        ),
    ] {
        let error = refused(preset, workload, more);
        assert!(
            error.contains(word),
            "{preset} {workload} {more:?}: {error}"
        );
    }
}

#[test]
fn zones_and_drives_that_were_in_use() {
    let world = World::new();
    let jobs = "[w]\nzonemode=zbd\nrw=randwrite\nbs=128k\nmax_open_zones=2\nio_size=512m\n";
    world.write("zones.fio", jobs);
    let zones = world.json(&[
        "simulate",
        "--preset",
        "zns-prototype@code",
        "--size",
        "256MiB",
        "--workload",
        "zones.fio",
        "--virtual-time",
        "1h",
        "--json",
    ]);
    let kinds = zones["runs"][0]["jobs"][0]["kinds"].as_array().unwrap();
    let names: Vec<_> = kinds
        .iter()
        .map(|kind| kind["kind"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["write", "reset"]);
    world.write("writes.fio", "[w]\nrw=randwrite\nnorandommap\nio_size=4m\n");
    let of = |preset: &str, more: &[&str]| {
        let base = [
            "simulate",
            "--preset",
            preset,
            "--size",
            "256MiB",
            "--workload",
            "writes.fio",
        ];
        let all = [
            &base[..],
            &["--virtual-time", "1m", "--prepared", "--json"],
            more,
        ]
        .concat();
        world.run(&all)
    };
    let run = of("samsung-970-pro", &["--set", "block=128KiB"]);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(value["configuration"]["initial"], "steady");
    assert!(
        value["runs"][0]["drive"]["pages_collected"]
            .as_u64()
            .unwrap()
            > 1024
    );
    let refused = of("optane-p4800x", &[]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        refused.err.contains("of kind nvm: remove it"),
        "{}",
        refused.err
    );
}

#[test]
fn a_simulation_begins_with_a_state_or_refuses_it() {
    let world = World::new();
    world.write(
        "writes.fio",
        "[w]\nrw=randwrite\nnorandommap\nioengine=libaio\niodepth=8\nio_size=4m\n",
    );
    let block = "block=128KiB";
    let preset = format!("samsung-970-pro,{block}");
    world.ok(&[
        "precondition",
        "--preset",
        &preset,
        "--size",
        "256MiB",
        "--state",
        "pro.timing",
    ]);
    world.ok(&["clone", "pro.timing", "clone.timing"]);
    let args = |size: &'static str, set: &'static str| {
        [
            "simulate",
            "--preset",
            "samsung-970-pro",
            "--size",
            size,
            "--set",
            block,
            "--set",
            set,
            "--workload",
            "writes.fio",
            "--virtual-time",
            "1m",
            "--json",
        ]
    };
    let fresh = world.json(&args("256MiB", "program=185us"));
    assert_eq!(fresh["runs"][0]["drive"]["pages_collected"], 0);
    let from_state = world.json(&args("256MiB", "state=pro.timing"));
    assert_ne!(from_state["runs"][0]["drive"]["pages_collected"], 0);
    let from_clone = world.json(&args("256MiB", "state=clone.timing"));
    assert_eq!(from_clone["runs"], from_state["runs"]);
    for (size, set, word) in [
        ("256MiB", "state=none.timing", "cannot open none.timing"),
        ("512MiB", "state=pro.timing", "from another drive"),
        (
            "256MiB",
            "state=writes.fio",
            "not a state of a timing model",
        ),
        ("256MiB", "record=x.trace", "writes no recording"),
    ] {
        let ran = world.run(&args(size, set));
        assert!(!ran.status.success() && ran.out.is_empty());
        assert!(ran.err.contains(word), "{set}: {}", ran.err);
    }
    let ran = world.run(&["explain", "samsung-970-pro", "--set", "state=pro.timing"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(ran.err.contains("does not use the state"), "{}", ran.err);
    let stated = format!("{preset},state=x");
    let ran = world.run(&[
        "precondition",
        "--preset",
        &stated,
        "--size",
        "256MiB",
        "--state",
        "y",
    ]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(ran.err.contains("write --state FILE"), "{}", ran.err);
}

/// Reads of a new drive cost what they cost on a drive with data, unless it is to be fresh; then a
/// line under the table says so, and the JSON, too.
#[test]
fn a_fresh_drive_says_so() {
    let world = World::new();
    world.write("reads.fio", READS);
    let of = |more: &[&'static str]| {
        let all = [
            "simulate",
            "--preset",
            "samsung-970-pro",
            "--size",
            "8GiB",
            "--workload",
            "reads.fio",
            "--virtual-time",
            "5ms",
        ];
        [&all[..], more].concat()
    };
    let json = |more: &[&'static str]| world.json(&of(&[more, &["--json"]].concat()));
    let line = "reads found unwritten blocks, which cost no flash read";
    let mean = |report: &serde_json::Value| {
        let latency = &report["runs"][0]["jobs"][0]["kinds"][0]["latency_ns"]["mean"];
        latency.as_u64().unwrap()
    };

    let filled = json(&[]);
    assert_eq!(filled["configuration"]["initial"], "filled");
    assert_eq!(filled["runs"][0]["drive"]["unmapped_reads"], 0);
    assert_eq!(filled["runs"][0]["drive"]["pages_written"], 0);
    assert!(!world.ok(&of(&[])).contains("unwritten"));

    let fresh = json(&["--fresh"]);
    assert_eq!(fresh["configuration"]["initial"], "fresh");
    let drive = &fresh["runs"][0]["drive"];
    assert!(drive["reads"].as_u64().unwrap() > 100, "{drive}");
    assert_eq!(drive["unmapped_reads"], drive["reads"]);
    let text = world.ok(&of(&["--fresh"]));
    let all = format!("{0} of {0} {line}", drive["reads"]);
    assert!(text.contains(&all), "{text}");
    // The preset's shortest sense of 4 KiB takes 29.76 us, and a fresh drive has none.
    assert!(mean(&filled) > mean(&fresh) + 29_000, "{filled} {fresh}");
    let by_set = json(&["--set", "initial=fresh"]);
    assert_eq!(by_set["runs"], fresh["runs"]);

    for (more, says) in [
        (&["--fresh", "--prepared"][..], "cannot be used with"),
        (
            &["--fresh", "--set", "initial=filled"],
            "--fresh and --set initial= both say",
        ),
        (
            &["--set", "state=x.timing", "--set", "initial=filled"],
            "--set initial= and --set state=FILE both say",
        ),
        (&["--set", "initial=full"], "write fresh, filled or steady"),
    ] {
        let ran = world.run(&of(more));
        assert_eq!(ran.status.code(), Some(2), "{}", ran.err);
        assert!(ran.err.contains(says), "{more:?}: {}", ran.err);
    }
}
