//! `nvmirage conformance` against the server: it passes, and it can fail.

use serde_json::Value;

use crate::drives::{Drive, is_untouched};
use crate::host::Host;
use crate::world::{Server, World};

/// Runs tests against a served medium; what `--json` says.
fn report(world: &World, more: &[&str]) -> Value {
    let target = world.vfio_user("nvme.sock");
    let mut args = vec![
        "conformance",
        "--target",
        &target,
        "--destroy-data",
        "--json",
    ];
    args.extend(more);
    let ran = world.run(&args);
    let report: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}", ran.err));
    let failed: Vec<String> = report["tests"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|test| test["result"] == "failed")
        .map(|test| format!("{}/{}: {}", test["chapter"], test["name"], test["reason"]))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(ran.status.success(), "{}", ran.err);
    report
}

/// Tests that pass whatever is served: most of the specification.
const PASSED_MIN: u64 = 220;

#[test]
fn ram_conforms_however_it_is_rung() {
    let world = World::new();
    let _server = world.serve_media("ram:size=64MiB");
    for doorbells in ["shadow", "trapped"] {
        let report = report(&world, &["--doorbells", doorbells]);
        assert_eq!(report["doorbells"], doorbells);
        assert!(
            report["passed"].as_u64().unwrap() >= PASSED_MIN,
            "{report:#}"
        );
    }
}

/// A subsystem of two controllers that share a namespace, and a pool of which hosts may make more.
fn subsystem(world: &World) -> Server {
    let [one, two] = ["nvme.sock", "second.sock"].map(|name| world.vfio_user(name));
    let config = world.write(
        "subsystem.toml",
        &format!(
            r#"
[[media]]
name = "disk"
kind = "ram"
size = "64MiB"

[[media]]
name = "more"
kind = "ram"
size = "32MiB"

[[namespace]]
name = "shared"
media = "disk"
range = "0MiB..48MiB"

[[namespace]]
name = "own"
media = "disk"
range = "48MiB..64MiB"

[[controller]]
name = "one"
subsystem = "pair"
namespaces = ["shared", "own"]
pool = ["more"]
listen = "{one}"

[[controller]]
name = "two"
subsystem = "pair"
namespaces = ["shared"]
listen = "{two}"
"#
        ),
    );
    world.serve(&["--config", config.to_str().unwrap()])
}

#[test]
fn a_drive_that_forgets_fails() {
    let world = World::new();
    let _server = world.serve_media("null:size=64MiB");
    let target = world.vfio_user("nvme.sock");
    let ran = world.run(&[
        "conformance",
        "--target",
        &target,
        "--destroy-data",
        "--only",
        "io,registers",
    ]);
    assert_eq!(ran.status.code(), Some(1), "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("tests failed"), "{}", ran.err);
    let (_, failed) = ran.out.split_once("\nfailed:\n").unwrap();
    assert!(
        failed.contains("  io/first_and_last\n    NVM 1.1, 3.3.6: "),
        "{failed}"
    );
    assert!(failed.contains("byte 0 of "), "{failed}");
    assert!(!failed.contains("registers/cap_fields"), "{failed}");
}

#[test]
fn nothing_is_written_without_leave() {
    let world = World::new();
    let _server = world.serve_media("ram:size=64MiB");
    let target = world.vfio_user("nvme.sock");
    let ran = world.run(&["conformance", "--target", &target]);
    assert_eq!(ran.status.code(), Some(2), "{}", ran.err);
    assert!(ran.err.contains("--destroy-data"), "{}", ran.err);
    assert_eq!(ran.out, "");
}

#[test]
fn tests_are_chosen_by_name() {
    let world = World::new();
    let _server = world.serve_media("ram:size=64MiB");
    let one = report(&world, &["--only", "queues/full_cq"]);
    assert_eq!(one["passed"], 1);
    assert_eq!(one["tests"][0]["section"], "Base 2.1, 3.3.1.2");
    let chapter = report(&world, &["--only", "registers,fua"]);
    let tests = chapter["tests"].as_array().unwrap();
    assert!(tests.len() > 20);
    assert_eq!(tests.last().unwrap()["name"], "fua");
    let target = world.vfio_user("nvme.sock");
    let ran = world.run(&[
        "conformance",
        "--target",
        &target,
        "--destroy-data",
        "--only",
        "queues,nonsense",
    ]);
    assert_eq!(ran.status.code(), Some(2));
    assert!(
        ran.err.contains("nonsense") && ran.err.contains("--list"),
        "{}",
        ran.err
    );
}

#[test]
fn the_list_needs_no_drive() {
    let world = World::new();
    let list = world.ok(&["conformance", "--list"]);
    assert!(list.lines().count() > 300, "{list}");
    assert!(list.contains("queues/full_cq "), "{list}");
    let chapter = world.json(&["conformance", "--list", "--only", "queues", "--json"]);
    let tests = chapter.as_array().unwrap();
    assert!(tests.iter().all(|test| test["chapter"] == "queues"));
    assert!(tests[0].get("result").is_none());
}

#[test]
fn a_drive_that_is_not_there_is_an_error() {
    let world = World::new();
    let target = world.vfio_user("nothing.sock");
    let error = world.fails(&["conformance", "--target", &target, "--destroy-data"]);
    assert!(error.contains("nothing.sock"), "{error}");
}

mod slow {
    use super::*;

    #[test]
    fn a_file_conforms() {
        let world = World::new();
        let _server = world.serve_media("file:path=disk.img,size=64MiB");
        let report = report(&world, &[]);
        assert!(
            report["passed"].as_u64().unwrap() >= PASSED_MIN,
            "{report:#}"
        );
    }

    /// A controller whose namespaces lie on two drives, each by mediated pass-through: every
    /// command is done as the specification says (Compare, Verify, Copy between the two), each
    /// drive gets its own namespace's bytes, and nothing beside the parts changes.
    #[test]
    fn a_controller_on_parts_of_two_drives_conforms() {
        let (one, its) = Drive::new();
        let (two, others) = Drive::new();
        let world = &one.world;
        let part = |name: &str, drive: &Drive, range: &str| {
            format!(
                "[[media]]\nname = \"{name}\"\nkind = \"drive\"\ntarget = \"{}\"\n\
                 [[namespace]]\nname = \"{name}\"\nmedia = \"{name}\"\nrange = \"{range}\"\nlba_size = 512\n",
                drive.target()
            )
        };
        let text = format!(
            "{}{}[[controller]]\nname = \"both\"\nnamespaces = [\"a\", \"b\"]\nlisten = \"{}\"\n",
            part("a", &one, "4MiB..20MiB"),
            part("b", &two, "24MiB..40MiB"),
            world.vfio_user("nvme.sock")
        );
        let config = world.write("two.toml", &text);
        let server = world.serve(&["--config", config.to_str().unwrap()]);
        let report = report(world, &[]);
        assert!(
            report["passed"].as_u64().unwrap() >= PASSED_MIN,
            "{report:#}"
        );
        let mut host = Host::attach(world, "nvme.sock");
        host.fill(1, 100, 0x11);
        host.fill(2, 200, 0x22);
        drop(host);
        server.stop();
        assert_eq!(one.read((4 << 20) + 100 * 512, 512), [0x11; 512]);
        assert_eq!(two.read((24 << 20) + 200 * 512, 512), [0x22; 512]);
        for (drive, parts) in [(&one, [(0, 4), (20, 48)]), (&two, [(0, 24), (40, 48)])] {
            for (start, end) in parts {
                let bytes = drive.read(start << 20, (end - start) << 20);
                assert!(is_untouched(&bytes), "{start} to {end} MiB");
            }
        }
        its.stop();
        others.stop();
    }

    #[test]
    fn two_hosts_of_a_subsystem_with_a_pool_conform() {
        let world = World::new();
        let _server = subsystem(&world);
        let second = world.vfio_user("second.sock");
        let report = report(&world, &["--second", &second]);
        assert!(
            report["passed"].as_u64().unwrap() >= PASSED_MIN,
            "{report:#}"
        );
        for chapter in ["namespaces", "sharing", "reservations"] {
            let tests = report["tests"].as_array().unwrap().iter();
            let passed = tests.filter(|t| t["chapter"] == chapter && t["result"] == "passed");
            assert!(passed.count() >= 10, "{chapter}: {report:#}");
        }
    }
}
