//! Partitions of a drive: made while no server has it, and changed while it is served.

use std::path::Path;

use serde_json::Value;

use crate::drives::{Drive, is_untouched};
use crate::host::Host;
use crate::world::{Server, World};

const MIB: u64 = 1 << 20;

/// A configuration of tenants, each of a partition that is called as it is.
fn config(media: &str, world: &World, tenants: &[&str]) -> String {
    let tenants = tenants.iter().map(|name| {
        format!(
            "[[namespace]]\nname = \"{name}\"\nmedia = \"disk\"\npartition = \"{name}\"\nlba_size = 512\n\
             [[controller]]\nname = \"{name}\"\nnamespaces = [\"{name}\"]\nlisten = \"{}\"\n",
            world.vfio_user(name)
        )
    });
    format!(
        "[[media]]\nname = \"disk\"\n{media}\n{}",
        tenants.collect::<String>()
    )
}

fn serve(drive: &Drive, tenants: &[&str]) -> Server {
    let media = format!("kind = \"drive\"\ntarget = \"{}\"", drive.target());
    let text = config(&media, &drive.world, tenants);
    let file = drive.world.write("tenants.toml", &text);
    drive.world.serve(&["--config", file.to_str().unwrap()])
}

/// Names and ranges of the partitions of the one drive, as listed.
fn listed(world: &World) -> Vec<(String, String)> {
    let all = world.json(&["partition", "ls", "--json"]);
    let [drive] = &all.as_array().unwrap()[..] else {
        panic!("{all}");
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let partitions = drive["partitions"].as_array().unwrap().iter();
    let all = partitions.map(|p| (text(&p["name"]), text(&p["range"])));
    all.collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    let all = all.iter();
    all.map(|(name, range)| ((*name).to_owned(), (*range).to_owned()))
        .collect()
}

#[test]
fn tenants_of_partitions_have_them_and_nothing_else_changes() {
    let (drive, _server) = Drive::new();
    let world = &drive.world;
    let target = drive.target();
    let said = world.ok(&["partition", "create", &target, "a", "16MiB", "--at", "4MiB"]);
    assert_eq!(said, "partition a has 4MiB..20MiB\n");
    let said = world.ok(&["partition", "create", &target, "b", "12MiB"]);
    assert_eq!(said, "partition b has 20MiB..32MiB\n");
    let error = world.fails(&["partition", "create", &target, "c", "32MiB"]);
    assert!(error.contains("the largest one has 16MiB"), "{error}");
    let tenants = serve(&drive, &["a", "b"]);
    for (tenant, at, bytes) in [("a", 4 * MIB, 16 * MIB), ("b", 20 * MIB, 12 * MIB)] {
        let mut host = Host::attach(world, tenant);
        assert_eq!(host.size(1), (bytes, 512));
        host.fill(1, 0, 1);
        host.fill(1, bytes / 512 - 1, 2);
        for (at, byte) in [(at, 1), (at + bytes - 512, 2)] {
            assert_eq!(drive.read(at as usize, 512), [byte; 512], "{tenant} {at}");
        }
    }
    tenants.stop();
    for (start, end) in [(0, 4), (32, 48)] {
        let bytes = drive.read(start << 20, (end - start) << 20);
        assert!(is_untouched(&bytes), "{start} to {end} MiB");
    }
    // grown while no server has it, and in use so at the next start
    world.ok(&["partition", "resize", &target, "b", "16MiB"]);
    let tenants = serve(&drive, &["a", "b"]);
    assert_eq!(Host::attach(world, "b").size(1), (16 * MIB, 512));
    tenants.stop();
}

#[test]
fn a_partition_grows_while_its_guest_looks_on() {
    let (drive, _server) = Drive::new();
    let world = &drive.world;
    let target = drive.target();
    let steer = |args: &[&str]| world.steer(args);
    world.ok(&["partition", "create", &target, "a", "8MiB"]);
    world.ok(&["partition", "create", &target, "b", "8MiB", "--at", "24MiB"]);
    let tenants = serve(&drive, &["a"]);
    let mut host = Host::attach(world, "a");
    host.fill(1, 0, 7);
    host.listen();
    // It has its own size, and nothing else gives it another one.
    let error = world.fails(&steer(&["resize", "a", "16MiB"]));
    assert!(
        error.contains("nvmirage partition resize disk a"),
        "{error}"
    );
    let error = world.fails(&steer(&["partition", "resize", "disk", "a", "32MiB"]));
    assert!(error.contains("at most 24MiB: partition `b`"), "{error}");
    let said = world.ok(&steer(&["partition", "resize", "disk", "a", "16MiB"]));
    assert_eq!(said, "partition a has 0B..16MiB\n");
    assert_eq!(host.changed(), [1]);
    assert_eq!(host.size(1), (16 * MIB, 512));
    // The new end is there, and the old bytes are where they were.
    host.fill(1, 16 * MIB / 512 - 1, 9);
    assert_eq!(host.block(1, 0), [7; 512]);
    assert_eq!(drive.read((16 << 20) - 512, 512), [9; 512]);
    drop(host);
    // It is kept: also of a server that gets no time to stop.
    let mut killed = tenants;
    killed.child().kill().unwrap();
    killed.end();
    assert_eq!(
        listed(world),
        pairs(&[("a", "0B..16MiB"), ("b", "24MiB..32MiB")])
    );
    let tenants = serve(&drive, &["a"]);
    assert_eq!(Host::attach(world, "a").size(1), (16 * MIB, 512));
    tenants.stop();
}

#[test]
fn partitions_come_and_go_while_others_are_in_use() {
    let (drive, _server) = Drive::new();
    let world = &drive.world;
    let target = drive.target();
    let steer = |args: &[&str]| world.steer(args);
    world.ok(&["partition", "create", &target, "a", "8MiB"]);
    let tenants = serve(&drive, &["a"]);
    // A drive that a server has is that server's.
    let error = world.fails(&["partition", "create", &target, "c", "4MiB"]);
    assert!(error.contains("the name of its medium"), "{error}");
    let error = world.fails(&steer(&["partition", "delete", "disk", "a"]));
    assert!(error.contains("is namespace `a`"), "{error}");
    let error = world.fails(&steer(&["partition", "create", "ram", "c", "4MiB"]));
    assert!(error.contains("no medium `ram`"), "{error}");
    world.ok(&steer(&["partition", "create", "disk", "c", "8MiB"]));
    // A range that overlaps one is no namespace, but the one that names it is.
    let namespace = |name: &str, part: &[&str]| {
        let mut args = vec!["create", "namespace", name, "--media", "disk"];
        args.extend(["--lba-size", "512"]);
        args.extend(part);
        steer(&args)
    };
    let error = world.fails(&namespace("x", &["--range", "12MiB..20MiB"]));
    assert!(error.contains("partition `c` has 8MiB..16MiB"), "{error}");
    let error = world.fails(&namespace("x", &["--partition", "d"]));
    assert!(
        error.contains("there is no partition `d`; there are a, c"),
        "{error}"
    );
    world.ok(&namespace("c", &["--partition", "c"]));
    let error = world.fails(&namespace("x", &["--partition", "c"]));
    assert!(error.contains("the range overlaps namespace c"), "{error}");
    world.ok(&namespace("r", &["--range", "32MiB..40MiB"]));
    let error = world.fails(&steer(&["partition", "create", "disk", "d", "20MiB"]));
    assert!(error.contains("the largest one has 16MiB"), "{error}");
    let error = world.fails(&steer(&[
        "partition",
        "create",
        "disk",
        "d",
        "8MiB",
        "--at",
        "36MiB",
    ]));
    assert!(error.contains("overlaps namespace `r`"), "{error}");
    let listen = world.vfio_user("c");
    world.ok(&steer(&[
        "create",
        "controller",
        "c",
        "--namespaces",
        "c",
        "--listen",
        &listen,
    ]));
    let last = 8 * MIB / 512 - 1;
    for tenant in ["a", "c"] {
        let mut host = Host::attach(world, tenant);
        host.fill(1, 0, 7);
        host.fill(1, last, 7);
    }
    world.ok(&steer(&["delete", "controller", "c"]));
    world.ok(&steer(&["delete", "namespace", "c"]));
    let before = drive.read(0, 8 << 20);
    world.ok(&steer(&["partition", "delete", "disk", "c", "--erase"]));
    // All of it is zeros, and nothing beside it.
    assert!(drive.read(8 << 20, 8 << 20).iter().all(|byte| *byte == 0));
    assert_eq!(drive.read(0, 8 << 20), before);
    assert!(is_untouched(&drive.read(16 << 20, 32 << 20)));
    assert_eq!(listed(world), pairs(&[("a", "0B..8MiB")]));
    assert_eq!(Host::attach(world, "a").block(1, last), [7; 512]);
    tenants.stop();
}

#[test]
fn files_have_partitions_too_and_what_cannot_be_is_told() {
    let world = World::new();
    let image = world.path("disk.img");
    std::fs::write(&image, vec![0xA5; 16 << 20]).unwrap();
    let path = image.to_str().unwrap();
    world.ok(&["partition", "create", path, "a", "4MiB"]);
    world.ok(&["partition", "create", path, "b", "4MiB"]);
    let media = format!("kind = \"file\"\npath = \"{path}\"");
    let file = world.write("config.toml", &config(&media, &world, &["b"]));
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    Host::attach(&world, "b").fill(1, 0, 1);
    let error = world.fails(&["partition", "delete", path, "a"]);
    assert!(error.contains("is in use"), "{error}");
    server.stop();
    world.ok(&["partition", "delete", path, "b", "--erase"]);
    let bytes = std::fs::read(&image).unwrap();
    let mib = |from: usize, to: usize| &bytes[from << 20..to << 20];
    assert!(is_untouched(mib(0, 4)) && is_untouched(mib(8, 16)));
    assert!(mib(4, 8).iter().all(|byte| *byte == 0));
    // A namespace of all of it would have the partition's bytes.
    let whole = format!(
        "[[media]]\nname = \"disk\"\n{media}\n[[namespace]]\nname = \"n\"\nmedia = \"disk\"\n"
    );
    refused(
        &world,
        &whole,
        "it has 0B..16MiB of medium disk, and partition `a`",
    );
    let pool = format!(
        "[[media]]\nname = \"disk\"\n{media}\n[[controller]]\nname = \"p\"\npool = [\"disk\"]\nlisten = \"vfio-user:p\"\n"
    );
    refused(&world, &pool, "medium disk has partition `a`");
    refused(
        &world,
        &config(&media, &world, &["b"]),
        "there is no partition `b`; there are a",
    );
    let ram = "kind = \"ram\"\nsize = \"16MiB\"";
    for (text, says) in [
        (config(ram, &world, &["a"]), "medium disk is neither"),
        (
            config(&media, &world, &["a"]).replace("lba_size", "range = \"0MiB..4MiB\"\nlba_size"),
            "remove range, or partition",
        ),
        (
            config(&media, &world, &["a"]).replace("partition = \"a\"", "partition = \"a/b\""),
            "partition = \"a/b\"",
        ),
        (
            config(&media, &world, &["a"]).replace("listen", "pool = [\"disk\"]\nlisten"),
            "has partitions, between which hosts",
        ),
    ] {
        let file = world.write("wrong.toml", &text);
        let error = world.run(&["check", file.to_str().unwrap()]).err;
        assert!(error.contains(says), "{error}");
    }
}

fn refused(world: &World, text: &str, says: &str) {
    let file: &Path = &world.write("wrong.toml", text);
    let error = world.fails(&["serve", "--config", file.to_str().unwrap()]);
    assert!(error.contains(says), "{error}");
}
