//! `nvmirage bench` and `identify` against a server.

use std::process::Stdio;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use crate::world::{BOUND, World, wait};

const JOB: [&str; 6] = ["--time", "200ms", "--qd", "1,16", "--verify", "--json"];

/// Measures with verification in every direction; the reports must be without errors.
fn verifies(media: &str) {
    let world = World::new();
    let server = world.serve_media(media);
    let target = world.vfio_user("nvme.sock");
    for rw in ["randrw", "write", "randread"] {
        let mut args = vec![
            "bench",
            "--target",
            &target,
            "--destroy-data",
            "--rw",
            rw,
            "--bs",
            "4k,128k",
            "--span",
            "16MiB",
        ];
        args.extend(JOB);
        let output = world.json(&args);
        let jobs = output["jobs"].as_array().unwrap();
        assert_eq!(jobs.len(), 4);
        for job in jobs {
            assert_eq!(job["errors"], 0, "{job:#}");
            assert_eq!(job["rw"], rw);
            assert!(job["iops"].as_f64().unwrap() > 0.0, "{job:#}");
            assert!(job["bytes_per_s"].as_f64().unwrap() > 0.0, "{job:#}");
            assert!(job["blocks_verified"].as_u64().unwrap() > 0, "{job:#}");
            assert!(job["latency_ns"]["p50"].as_u64() <= job["latency_ns"]["max"].as_u64());
            assert!(
                job["reactor_busy_ns_per_command"].as_f64().unwrap() > 0.0,
                "{job:#}"
            );
        }
        assert_eq!(jobs[1]["queue_depth"], 16);
        assert_eq!(jobs[2]["block_size"], 131_072);
    }
    server.stop();
}

#[test]
fn every_byte_on_ram_is_as_it_was_written() {
    // as large as one that is written past the caches
    verifies("ram:size=64MiB");
}

#[test]
fn a_table_has_a_row_for_each_job() {
    let world = World::new();
    let _server = world.serve_media("ram:size=32MiB");
    let target = world.vfio_user("nvme.sock");
    let table = world.ok(&[
        "bench", "--target", &target, "--qd", "1,2", "--time", "50ms",
    ]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 3, "{table}");
    assert!(lines[0].contains("IOPS") && lines[0].contains("p99.9"));
    assert!(lines[2].starts_with("4 KiB randread, QD 2"));
}

#[test]
fn null_keeps_nothing_and_verification_is_refused() {
    let world = World::new();
    let _server = world.serve_media("null:size=1GiB");
    let target = world.vfio_user("nvme.sock");
    let plain = world.json(&["bench", "--target", &target, "--time", "50ms", "--json"]);
    assert_eq!(plain["jobs"][0]["errors"], 0);
    for rw in ["randread", "randwrite"] {
        let ran = world.run(&[
            "bench",
            "--target",
            &target,
            "--time",
            "50ms",
            "--rw",
            rw,
            "--verify",
            "--destroy-data",
        ]);
        assert_eq!(ran.status.code(), Some(1));
        assert!(ran.err.contains("does not store data"), "{}", ran.err);
        assert_eq!(ran.out, "");
    }
}

#[test]
fn doorbells_are_rung_as_asked_or_it_says_why_not() {
    let world = World::new();
    let target = world.vfio_user("nvme.sock");
    let bench = |how| {
        [
            "bench",
            "--target",
            &target,
            "--time",
            "50ms",
            "--json",
            "--doorbells",
            how,
        ]
    };
    let server = world.serve(&[
        "--media",
        "ram:size=32MiB",
        "--listen",
        &target,
        "--doorbells",
        "trapped",
    ]);
    let auto = world.json(&bench("auto"));
    assert_eq!(
        auto["doorbells"], "trapped",
        "neither of the others is offered"
    );
    // Registers are written once for eight commands, or for each of them.
    let mut messages = Vec::new();
    for ring in ["batch", "command"] {
        let mut args = bench("trapped").to_vec();
        args.extend(["--ring", ring, "--qd", "8"]);
        let output = world.json(&args);
        assert_eq!(output["ring"], ring);
        let job = &output["jobs"][0];
        messages.push(job["doorbell_messages_per_command"].as_f64().unwrap());
    }
    assert!(
        messages[1] >= 1.0 && messages[1] > messages[0],
        "{messages:?}"
    );
    server.stop();
    let cases = [
        (
            "mapped",
            ["mapped", "trapped"],
            "shadow",
            "does not offer Doorbell Buffer Config",
        ),
        (
            "unmapped",
            ["shadow", "trapped"],
            "mapped",
            "maps no doorbell page",
        ),
    ];
    for (served, works, refused, words) in cases {
        let args = [
            "--media",
            "ram:size=32MiB",
            "--listen",
            &target,
            "--doorbells",
            served,
        ];
        let server = world.serve(&args);
        for how in works {
            let output = world.json(&bench(how));
            assert_eq!(output["doorbells"], how);
            assert_eq!(output["jobs"][0]["errors"], 0);
        }
        let auto = world.json(&bench("auto"));
        assert_eq!(auto["doorbells"], works[0], "auto takes the fastest");
        let error = world.fails(&bench(refused));
        assert!(error.contains(words), "{error}");
        server.stop();
    }
}

#[test]
fn what_cannot_be_done_is_said_before_anything_is_written() {
    let world = World::new();
    let _server = world.serve_media("ram:size=32MiB");
    let target = world.vfio_user("nvme.sock");
    let bench = |more: &[&str]| {
        let mut args = vec!["bench", "--target", &target, "--time", "50ms"];
        args.extend(more);
        world.run(&args)
    };
    for (args, words) in [
        (["--nsid", "7"], "namespace 7"),
        (["--bs", "1000B"], "is not 1 to 65536 times"),
        (["--bs", "8MiB"], "8388608"),
        (["--qd", "60000"], "holds 1 to"),
        (["--span", "64MiB"], "is more than the namespace"),
        (["--queues", "200"], "all of them are in use: use fewer"),
        (
            ["--cpu", "4000"],
            "cannot run on CPU 4000; this process may use",
        ),
    ] {
        let ran = bench(&args);
        assert_eq!(ran.status.code(), Some(1), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
    let ran = bench(&["--buffers", "1024TiB"]);
    assert_eq!(ran.status.code(), Some(1));
    assert!(ran.err.contains("of memory available"), "{}", ran.err);
    for (args, words) in [
        (["--reads", "50"], "--reads is for --rw randrw"),
        (["--idle-qd", "5"], "--idle-queues"),
        (["--storm", "wild"], "--storm-at"),
        (["--cold-every", "0s"], "write a time above 0"),
    ] {
        let ran = bench(&args);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
    let trace = world.path("none/trace");
    let ran = bench(&["--record-trace", trace.to_str().unwrap()]);
    assert!(
        ran.err.contains("cannot write") && ran.out.is_empty(),
        "{}",
        ran.err
    );
    let ran = bench(&["--bs", "64MiB"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(ran.err.contains("cannot be transferred"), "{}", ran.err);
    let ran = world.run(&["bench", "--target", &target, "--time", "0s"]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(ran.err.contains("write at least 1ms"), "{}", ran.err);
}

#[test]
fn a_job_says_where_it_ran_and_how_it_rang() {
    let world = World::new();
    let target = world.vfio_user("nvme.sock");
    let args = [
        "--media",
        "ram:size=32MiB",
        "--listen",
        &target,
        "--doorbells",
        "unmapped",
    ];
    let server = world.serve(&args);
    let bench = |how| {
        world.json(&[
            "bench",
            "--target",
            &target,
            "--time",
            "100ms",
            "--qd",
            "8",
            "--queues",
            "2",
            "--buffers",
            "8MiB",
            "--doorbells",
            how,
            "--json",
        ])
    };
    let (trapped, shadow) = (bench("trapped"), bench("shadow"));
    for output in [&trapped, &shadow] {
        let job = &output["jobs"][0];
        assert_eq!((&job["errors"], &job["queues"]), (&0.into(), &2.into()));
        let placements = ["near", "far", "mixed", "unknown"];
        assert!(
            placements.contains(&job["placement"].as_str().unwrap()),
            "{job:#}"
        );
        let batch = job["batch"].as_f64().unwrap();
        assert!((1.0..=8.0).contains(&batch), "{job:#}");
    }
    let messages_of_a_batch = |output: &serde_json::Value| {
        let job = &output["jobs"][0];
        let number = |name: &str| job[name].as_f64().unwrap();
        number("doorbell_messages_per_command") * number("batch")
    };
    // a register write for each tail, and more for heads
    assert!(messages_of_a_batch(&trapped) > 0.9, "{trapped:#}");
    // a reactor that sleeps each time wants the tail rung; heads ring once in a round of the queue
    assert!(messages_of_a_batch(&shadow) < 2.1, "{shadow:#}");
    server.stop();
}

#[test]
fn queue_pairs_that_nobody_uses_stand_beside_the_busy_one() {
    let world = World::new();
    let sockets: Vec<_> = ["a", "b", "c"].map(|name| world.vfio_user(name)).into();
    let controllers: String = sockets
        .iter()
        .enumerate()
        .map(|(n, listen)| {
            format!(
                "[[media]]\nname = \"m{n}\"\nkind = \"ram\"\nsize = \"16MiB\"\n\
                 [[namespace]]\nname = \"n{n}\"\nmedia = \"m{n}\"\n\
                 [[controller]]\nname = \"c{n}\"\nnamespaces = [\"n{n}\"]\nlisten = \"{listen}\"\nqueues = 8\n"
            )
        })
        .collect();
    let file = world.write("config.toml", &controllers);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let bench_for = |time, more: &[&str]| {
        let mut args = vec!["bench", "--target", &sockets[0], "--time", time, "--json"];
        args.extend(more);
        world.run(&args)
    };
    let bench = |more: &[&str]| bench_for("200ms", more);
    let output = |ran: &crate::world::Ran| -> serde_json::Value {
        assert_eq!(ran.status.code(), Some(0), "{}", ran.err);
        serde_json::from_str(&ran.out).unwrap()
    };
    // one is busy, seven are left
    assert_eq!(output(&bench(&["--idle-queues", "7"]))["idle_queues"], 7);
    let ran = bench(&["--idle-queues", "8"]);
    assert!(
        ran.err
            .contains("exceed the 7 that the controllers have left"),
        "{}",
        ran.err
    );
    let two = format!("{},{}", sockets[1], sockets[2]);
    // of 24, one is busy and one is cold
    let three = |idle| {
        let more = [
            "--idle-queues",
            idle,
            "--idle-at",
            &two,
            "--cold-every",
            "10ms",
        ];
        bench(&more)
    };
    assert!(three("23").err.contains("exceed the 22"));
    assert_eq!(output(&three("22"))["jobs"][0]["errors"], 0);
    // A result with a stall of the machine in it is not counted: again, until two had none.
    let beside = ["--cold-every", "10ms", "--storm-at", &sockets[1]];
    let cold = (0..20)
        .map(|_| output(&bench_for("1s", &beside))["jobs"][0]["cold"].clone())
        .find(|cold| {
            cold["commands"]
                .as_u64()
                .is_some_and(|commands| commands >= 2)
        })
        .expect("no two cold commands in twenty seconds");
    assert_eq!(cold["errors"], 0);
    server.stop();
}

#[test]
fn drives_that_do_the_job_at_the_same_time_have_figures_of_their_own() {
    let world = World::new();
    let sockets = ["a", "b", "c"].map(|name| world.vfio_user(name));
    let mut config = "[[media]]\nname = \"m\"\nkind = \"null\"\nsize = \"48MiB\"\n".to_owned();
    for (n, listen) in sockets.iter().enumerate() {
        let (from, until) = (16 * n, 16 * (n + 1));
        config += &format!(
            "[[namespace]]\nname = \"n{n}\"\nmedia = \"m\"\nrange = \"{from}MiB..{until}MiB\"\n\
             [[controller]]\nname = \"c{n}\"\nnamespaces = [\"n{n}\"]\nlisten = \"{listen}\"\n"
        );
    }
    let file = world.write("config.toml", &config);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let others = format!("{},{}", sockets[1], sockets[2]);
    let mut args = vec!["bench", "--target", &sockets[0], "--time", "200ms"];
    args.extend([
        "--rw",
        "randrw",
        "--reads",
        "70",
        "--qd",
        "2",
        "--destroy-data",
    ]);
    args.extend(["--also", &others]);
    let refused = world.run(&[args.clone(), vec!["--verify"]].concat());
    assert_eq!(refused.status.code(), Some(2), "{}", refused.err);
    args.extend(["--also-qd", "4", "--json"]);
    let job = &world.json(&args)["jobs"][0];
    let also = job["also"].as_array().unwrap();
    assert_eq!(also.len(), 2, "{job:#}");
    for (one, target) in also.iter().zip(&sockets[1..]) {
        assert_eq!(one["target"].as_str(), Some(target.as_str()));
        assert_eq!(
            (&one["queue_depth"], &one["errors"]),
            (&4.into(), &0.into())
        );
        assert!(one["commands"].as_u64().unwrap() > 10, "{job:#}");
        assert!(one["latency_ns"]["p50"].as_u64().unwrap() > 0, "{job:#}");
    }
    server.stop();
}

#[test]
fn nobody_at_the_socket() {
    let world = World::new();
    let target = world.vfio_user("nobody.sock");
    for command in ["bench", "identify"] {
        let error = world.fails(&[command, "--target", &target]);
        assert!(
            error.contains("check that the server is running"),
            "{error}"
        );
    }
}

#[test]
fn a_drive_that_another_host_has_says_so() {
    let world = World::new();
    let _server = world.serve_media("ram:size=32MiB");
    let target = world.vfio_user("nvme.sock");
    let mut other = world.program();
    other.args(["bench", "--target", &target, "--time", "60s"]);
    let mut other = other
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let is_attached = || {
        let inventory = world.json(&["ls", "--json", "--control", &world.unix("control")]);
        inventory["controllers"][0]["attached"] == true
    };
    let deadline = Instant::now() + BOUND;
    while !is_attached() {
        assert!(Instant::now() < deadline, "the other host does not attach");
    }
    let error = world.fails(&["identify", "--target", &target]);
    assert!(
        error.contains("the drive has another host (process "),
        "{error}"
    );
    // it is there for others when it has ended
    let pid = Pid::from_raw(i32::try_from(other.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(wait(&mut other).code(), Some(130));
    world.ok(&["identify", "--target", &target]);
}

#[test]
fn identify_in_words_and_for_machines() {
    let world = World::new();
    let config = format!(
        r#"
[[media]]
name = "a"
kind = "ram"
size = "32MiB"
[[namespace]]
name = "first"
media = "a"
range = "0MiB..16MiB"
lba_size = 512
nguid = "00112233445566778899aabbccddeeff"
[[namespace]]
name = "second"
media = "a"
range = "16MiB..32MiB"
[[controller]]
name = "vm1"
namespaces = ["first", "second"]
listen = "{}"
serial = "SN-1"
model_number = "a model"
queues = 3
queue_depth = 128
max_transfer = "128KiB"
"#,
        world.vfio_user("vm1.sock")
    );
    let file = world.write("config.toml", &config);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let target = world.vfio_user("vm1.sock");
    let identity = world.json(&["identify", "--target", &target, "--json"]);
    let controller = &identity["controller"];
    assert_eq!(controller["serial_number"], "SN-1");
    assert_eq!(controller["model_number"], "a model");
    assert_eq!(controller["version"], "2.1");
    assert_eq!(controller["io_queue_pairs"], 3);
    // a queue of 128 entries holds 127 commands
    assert_eq!(controller["queue_depth"], 127);
    assert_eq!(controller["max_transfer"], 128 << 10);
    let namespaces = identity["namespaces"].as_array().unwrap();
    assert_eq!(namespaces.len(), 2);
    assert_eq!(namespaces[0]["nguid"], "00112233445566778899aabbccddeeff");
    assert_eq!(namespaces[0]["block_size"], 512);
    assert_eq!(namespaces[1]["bytes"], 16 << 20);
    let words = world.ok(&["identify", "--target", &target]);
    assert!(
        words.contains("serial       SN-1") && words.contains("namespace 2  16.0 MiB"),
        "{words}"
    );
    server.stop();
}

mod slow {
    use super::*;

    #[test]
    fn every_byte_in_a_file_is_as_it_was_written() {
        verifies("file:path=disk.img,size=32MiB,lba_size=512");
    }

    #[test]
    fn the_floor_has_its_figures_or_says_that_one_cpu_has_none() {
        let world = World::new();
        let ran = world.run(&["bench", "floor", "--json"]);
        if std::thread::available_parallelism().unwrap().get() == 1 {
            assert!(
                ran.err.contains("the floor lies between two"),
                "{}",
                ran.err
            );
            return;
        }
        let floor: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        for name in ["round_trip_ns", "sqe_to_cqe_ns", "eventfd_wake_ns"] {
            assert!(floor[name].as_f64().unwrap() > 0.0, "{name}: {floor:#}");
        }
        let copies = &floor["copy_4k_ns"];
        assert!(
            copies["plain"].as_f64().unwrap() > 0.0 && copies["prefetch"].as_f64().unwrap() > 0.0
        );
        // huge pages are the system's to give: a figure, or a reason
        assert_ne!(
            copies["huge"].is_f64(),
            copies["huge_missing"].is_string(),
            "{floor:#}"
        );
        assert!(["near", "far"].contains(&floor["placement"].as_str().unwrap()));
        let brief = world.json(&["bench", "floor", "--brief", "--json"]);
        assert!(brief["placement"].is_string() && brief.get("copy_4k_ns").is_none());
    }
}
