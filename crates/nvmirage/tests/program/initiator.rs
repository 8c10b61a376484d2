//! Our own host over NVMe/TCP, on our own target.

use std::net::TcpListener;

use serde_json::Value;

use crate::world::{Server, World};

const NQN: &str = "nqn.2026-11.test:store";

/// A server with a TCP address, and the address of its drive.
fn served(world: &World, medium: &str) -> (Server, String) {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let config = format!(
        "[[media]]\nname = \"disk\"\n{medium}\n\
         [[namespace]]\nname = \"data\"\nmedia = \"disk\"\n\
         [[controller]]\nname = \"store\"\nnamespaces = [\"data\"]\nsubnqn = \"{NQN}\"\n\
         listen = \"nvme-tcp:127.0.0.1:{port}\"\n"
    );
    let config = world.write("target.toml", &config);
    let server = world.serve(&["--config", config.to_str().unwrap()]);
    (server, format!("nvme-tcp:127.0.0.1:{port}/{NQN}"))
}

#[test]
fn every_byte_over_tcp_comes_back() {
    let world = World::new();
    let (_server, target) = served(&world, "kind = \"ram\"\nsize = \"64MiB\"");
    let identity = world.json(&["identify", "--target", &target, "--json"]);
    assert_eq!(identity["controller"]["subnqn"], NQN);
    for size in ["4KiB", "128KiB"] {
        let args = [
            "bench",
            "--target",
            &target,
            "--rw",
            "randrw",
            "--bs",
            size,
            "--qd",
            "1,16",
            "--time",
            "300ms",
            "--destroy-data",
            "--verify",
            "--json",
        ];
        let report = world.json(&args);
        let jobs = report["jobs"].as_array().unwrap();
        assert_eq!(jobs.len(), 2);
        for job in jobs {
            assert!(job["iops"].as_f64().unwrap() > 0.0, "{job}");
            assert_eq!(job["errors"], 0, "{job}");
        }
    }
    // With digests, of data in capsules, by R2T, and to the host.
    let mut digests = vec![
        "bench",
        "--target",
        &target,
        "--hdr-digest",
        "--data-digest",
    ];
    digests.extend(["--rw", "randrw", "--bs", "4KiB,128KiB", "--qd", "1,16"]);
    digests.extend(["--time", "300ms", "--destroy-data", "--verify", "--json"]);
    let report = world.json(&digests);
    for job in report["jobs"].as_array().unwrap() {
        assert!(job["iops"].as_f64().unwrap() > 0.0, "{job}");
        assert_eq!(job["errors"], 0, "{job}");
    }
    let other = target.replace(NQN, "nqn.2026-11.test:other");
    let error = world.fails(&["identify", "--target", &other]);
    assert!(
        error.contains("no subsystem nqn.2026-11.test:other"),
        "{error}"
    );
}

/// The tests of `nvmirage conformance` with a result, as `chapter/name`.
fn with_result(report: &Value, result: &str) -> Vec<String> {
    let tests = report["tests"].as_array().unwrap().iter();
    let with = tests.filter(|test| test["result"] == result);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    with.map(|test| format!("{}/{}", text(&test["chapter"]), text(&test["name"])))
        .collect()
}

/// Tests over TCP that pass, each for a guard: one that is not applicable is noticed.
const MUST_PASS: [&str; 14] = [
    "registers/ready_edges",
    "registers/shutdown_keeps_data",
    "admin/unknown_opcodes",
    "identify/active_list",
    "features/mandatory",
    "logs/effects_admin",
    "io/overflow",
    "errors/each_its_own",
    "reservations/survives_reset",
    "sharing/preempt",
    "fabrics/property_get_refused",
    "fabrics/connect_twice",
    "fabrics/keep_alive_timeout",
    "fabrics/ana_log",
];

#[test]
fn a_controller_over_tcp_conforms() {
    let world = World::new();
    let (_server, target) = served(&world, "kind = \"ram\"\nsize = \"64MiB\"");
    let args = ["conformance", "--destroy-data", "--target", &target];
    let ran = world.run(&[&args[..], &["--second", &target, "--json"]].concat());
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.err));
    let failed = report["tests"].as_array().unwrap().iter();
    let failed: Vec<_> = failed.filter(|test| test["result"] == "failed").collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(ran.status.success(), "{}", ran.err);
    let passed = with_result(&report, "passed");
    assert!(passed.len() >= 200, "{} passed: {passed:?}", passed.len());
    for name in MUST_PASS {
        assert!(
            passed.iter().any(|passed| passed == name),
            "{name}: {passed:?}"
        );
    }
    // A feature that a target does not have itself proves nothing.
    for chapter in ["pci/", "queues/", "doorbells/", "interrupts/", "pointers/"] {
        let own = passed.iter().filter(|name| name.starts_with(chapter));
        assert_eq!(own.count(), 0, "{chapter}");
    }
    let excluded = with_result(&report, "not applicable");
    assert_eq!(report["not_applicable"], excluded.len());
    assert!(
        excluded
            .iter()
            .any(|name| name == "identify/identify_prp_rules")
    );
    assert!(!excluded.iter().any(|name| name.starts_with("fabrics/")));
    let table = world.ok(&[&args[..], &["--only", "pci,fabrics/property_get"]].concat());
    let reason = "  over NVMe/TCP there is no PCI function: pci/";
    assert!(table.contains(reason), "{table}");
    let doorbells = world.run(&[&args[..], &["--doorbells", "trapped"]].concat());
    assert_eq!(doorbells.status.code(), Some(2), "{}", doorbells.err);
    assert!(doorbells.err.contains("no doorbells"), "{}", doorbells.err);
}

#[test]
fn a_controller_over_tcp_that_forgets_fails() {
    let world = World::new();
    let (_server, target) = served(&world, "kind = \"null\"\nsize = \"64MiB\"");
    let args = ["conformance", "--destroy-data", "--target", &target];
    let ran = world.run(&[&args[..], &["--only", "io/each_block_its_own"]].concat());
    assert_eq!(ran.status.code(), Some(1), "{}", ran.err);
    assert!(ran.out.contains("byte "), "{}", ran.out);
    let missing = target.replace(NQN, "nqn.2026-11.test:other");
    let error = world.fails(&["conformance", "--destroy-data", "--target", &missing]);
    assert!(error.contains("no subsystem"), "{error}");
}

#[test]
fn keys_and_values_travel_over_tcp() {
    let world = World::new();
    let (_server, target) = served(&world, "kind = \"keyvalue\"\nsize = \"64MiB\"");
    let kv = |args: &[&str]| world.ok(&[&["kv", "--target", &target], args].concat());
    let bytes: Vec<u8> = (0..100_003u32).map(|n| ((n * 7) >> 3) as u8).collect();
    std::fs::write(world.path("in"), &bytes).unwrap();
    kv(&["put", "large", "--file", "in"]);
    kv(&["put", "small", "blue"]);
    assert_eq!(kv(&["get", "small"]), "blue");
    kv(&["get", "large", "--output", "out"]);
    assert!(std::fs::read(world.path("out")).unwrap() == bytes);
    assert_eq!(kv(&["ls"]), "large\nsmall\n");
    kv(&["del", "large"]);
    assert_eq!(kv(&["ls"]), "small\n");
}
