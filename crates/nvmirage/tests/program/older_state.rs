//! State folders that an older program left, served by this one.
//!
//! `older-state/make.sh` made them with the program of commit 312f995: a configuration, changes at
//! run time, and then a clean stop, a kill, or a kill after a reload that failed halfway.
//! `expected` holds the objects and identities that the older program itself served from the same
//! state.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::host::Host;
use crate::world::{Server, World, names};

/// The folder that the older program ran in, which its files mention.
const ITS_FOLDER: &str = "/tmp/nvmirage-older-state";
const CONTROLLERS: [&str; 5] = ["a", "b", "c", "d", "e"];

fn state(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/older-state")
        .join(name)
}

/// A text of the older program, with the paths of this world.
fn read(world: &World, path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.replace(
        ITS_FOLDER,
        world.path("").to_str().unwrap().trim_end_matches('/'),
    )
}

fn hex(path: &Path, len: usize) -> String {
    let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
    digest[..len].iter().map(|b| format!("{b:02x}")).collect()
}

/// Copies one of the folders into a world, as if the older program had run there. Two kinds of
/// files have the digest of a path in their names.
fn copy(name: &str) -> World {
    let world = World::new();
    let from = state(name);
    let to = world.path("state/nvmirage");
    for folder in ["partitions", "runtime", "subsystems"] {
        fs::create_dir_all(to.join(folder)).unwrap();
        for file in names(&from.join("state/nvmirage").join(folder)) {
            let renamed = match folder {
                "partitions" => format!("disk_img-{}.json", hex(&world.path("disk.img"), 8)),
                "runtime" => format!("config-{}.json", hex(&world.path("config.toml"), 6)),
                _ => file.clone(),
            };
            let text = read(&world, &from.join("state/nvmirage").join(folder).join(file));
            fs::write(to.join(folder).join(renamed), text).unwrap();
        }
    }
    fs::copy(from.join("state/nvmirage/identity"), to.join("identity")).unwrap();
    let config = read(&world, &from.join("config.toml"));
    fs::write(world.path("config.toml"), config).unwrap();
    for file in ["flash.timing", "memory.image"] {
        let packed = from.join(format!("{file}.gz"));
        let unpacked = Command::new("gzip").arg("-dc").arg(packed).output();
        let unpacked = unpacked.unwrap();
        assert!(unpacked.status.success());
        fs::write(world.path(file), unpacked.stdout).unwrap();
    }
    let disk = fs::File::create(world.path("disk.img")).unwrap();
    disk.set_len(8 << 20).unwrap();
    world
}

fn serve(world: &World) -> Server {
    let file = world.path("config.toml");
    world.serve(&["--config", file.to_str().unwrap()])
}

/// Checks that everything that is expected is there. Newer programs may say more.
fn contains(at: &str, actual: &Value, expected: &Value) {
    match (actual, expected) {
        (Value::Object(actual), Value::Object(expected)) => {
            for (key, expected) in expected {
                let actual = actual.get(key).unwrap_or(&Value::Null);
                contains(&format!("{at}.{key}"), actual, expected);
            }
        }
        (Value::Array(actual), Value::Array(expected)) => {
            assert_eq!(actual.len(), expected.len(), "{at}");
            for (index, expected) in expected.iter().enumerate() {
                contains(&format!("{at}[{index}]"), &actual[index], expected);
            }
        }
        _ => assert_eq!(actual, expected, "{at}"),
    }
}

/// Objects as the older program served them, without counters, descriptions and its version.
fn objects(world: &World, name: &str) -> Value {
    let text = read(world, &state(name).join("expected/objects.json"));
    let mut all: Value = serde_json::from_str(&text).unwrap();
    for (kind, left_out) in [
        ("media", &["description", "io", "file", "model"][..]),
        (
            "tenants",
            &["commands", "bytes", "capped", "held", "at_media"],
        ),
        (
            "controllers",
            &[
                "doorbell_messages",
                "attached",
                "placement",
                "firmware_revision",
            ],
        ),
    ] {
        for one in all[kind].as_array_mut().unwrap() {
            let keys = one.as_object_mut().unwrap();
            keys.retain(|key, _| !left_out.contains(&key.as_str()));
        }
    }
    all.as_object_mut().unwrap().remove("reactors");
    all
}

/// Checks the objects, and each controller as a host sees it: its subsystem, and the identities,
/// sizes and identifiers of its namespaces.
fn serves_the_same(world: &World, name: &str) {
    contains("objects", &world.inventory(), &objects(world, name));
    for controller in CONTROLLERS {
        let path = state(name).join(format!("expected/{controller}.json"));
        let mut expected: Value = serde_json::from_str(&read(world, &path)).unwrap();
        let of_host = ["serial_number", "subnqn", "controller_id"];
        let keys = expected["controller"].as_object_mut().unwrap();
        keys.retain(|key, _| of_host.contains(&key.as_str()));
        assert_eq!(keys.len(), 3);
        let target = world.vfio_user(&format!("{controller}.sock"));
        let actual = world.json(&["identify", "--json", "--target", &target]);
        contains(controller, &actual, &expected);
    }
}

/// The bytes that the script wrote to the medium in memory: the first numbers, a line each, in
/// three blocks from the second on.
fn written() -> Vec<u8> {
    let lines = (1..=4000).map(|number| format!("{number}\n"));
    let mut bytes = lines.collect::<String>().into_bytes();
    bytes.truncate(3 * 4096);
    bytes
}

fn memory(world: &World) -> Vec<u8> {
    let mut host = Host::attach(world, "c.sock");
    let blocks = [1, 2, 3].map(|lba| host.block(1, lba));
    assert_eq!(host.block(1, 0), [0; 4096]);
    blocks.concat()
}

/// The changes of the script, as far as a reader of it can tell.
fn has_the_changes(world: &World) {
    let all = world.inventory();
    let one = |kind: &str, name: &str| {
        let objects = all[kind].as_array().unwrap();
        let found = objects.iter().find(|one| one["name"] == name);
        found.unwrap_or(&Value::Null).clone()
    };
    assert_eq!(one("tenants", "web")["iops"], 2000);
    assert_eq!(one("tenants", "old"), Value::Null);
    assert_eq!(one("tenants", "db")["weight"], 3);
    assert_eq!(one("media", "disk")["partitions"][0]["range"], "0B..3MiB");
    assert_eq!(one("media", "flash")["timing"]["read_cell0"], "300us");
    assert_eq!(one("namespaces", "late")["range"], "0B..2MiB");
    assert_eq!(one("namespaces", "late")["tenant"], "db");
    assert_eq!(one("namespaces", "spare")["range"], "4MiB..6MiB");
    assert_eq!(one("namespaces", "data")["range"], "2MiB..4MiB");
    assert_eq!(one("controllers", "e")["queues"], 3);
    assert_eq!(one("controllers", "d")["serial"], "WRITTEN");
}

fn is_attached_as_before(world: &World) {
    let attached = |name: &str| {
        let shown = world.json(&world.steer(&["show", "namespace", name, "--json"]));
        shown["controllers"].clone()
    };
    assert_eq!(attached("root"), serde_json::json!(["a", "b"]));
    assert_eq!(attached("data"), serde_json::json!([]));
    assert_eq!(attached("spare"), serde_json::json!(["b"]));
    assert_eq!(attached("late"), serde_json::json!(["e"]));
}

#[test]
fn the_state_of_a_clean_stop_is_served_the_same() {
    let world = copy("stopped");
    for run in 0..2 {
        let server = serve(&world);
        assert!(!server.log().contains("lost"), "{run}: {}", server.log());
        serves_the_same(&world, "stopped");
        has_the_changes(&world);
        is_attached_as_before(&world);
        assert_eq!(memory(&world), written(), "{run}");
        server.stop();
    }
}

#[test]
fn the_state_of_a_killed_server_is_served_the_same_without_its_memory() {
    let world = copy("killed");
    let server = serve(&world);
    let log = server.log();
    assert!(
        log.contains("empty: its last server did not stop cleanly"),
        "{log}"
    );
    serves_the_same(&world, "killed");
    has_the_changes(&world);
    is_attached_as_before(&world);
    assert_eq!(memory(&world), [0; 3 * 4096]);
    server.stop();
}

/// The server was killed after a reload had deleted the pool and had failed to create it in a
/// missing folder. No object is lost, and the pool is in that folder once that is there.
#[test]
fn a_reload_that_failed_halfway_goes_on_at_the_next_start() {
    let world = copy("reloaded");
    let folder = world.path("missing");
    fs::create_dir(&folder).unwrap();
    let server = serve(&world);
    has_the_changes(&world);
    let all = world.inventory();
    let pool = folder.join("pool.img");
    assert_eq!(all["media"][1]["path"], pool.to_str().unwrap());
    assert_eq!(fs::metadata(pool).unwrap().len(), 8 << 20);
    let expected = objects(&world, "reloaded");
    for kind in ["media", "namespaces", "tenants", "controllers"] {
        let names = |all: &Value| {
            let all = all[kind].as_array().unwrap().iter();
            all.map(|one| one["name"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&all), names(&expected), "{kind}");
    }
    let reload = world.run(&world.steer(&["reload"]));
    assert!(reload.status.success(), "{}", reload.err);
    server.stop();
}
