//! A trace of keys: a drive that is asked for the same has the same keys, with values as long.

use driver::DriverError;
use driver::key_value::{Dialect, Keys, Rule};
use nvme_spec::Status;

use crate::every_kind::Drive;
use crate::traces::{dump, start, stop};
use crate::world::World;

const PAIRS: &str = r#"
[[media]]
name = "pairs"
kind = "keyvalue"
size = "16MiB"
[[namespace]]
name = "pairs"
media = "pairs"
[[controller]]
name = "nvme0"
namespaces = ["pairs"]
listen = "vfio-user:nvme0.sock"
"#;

const KEYS: Keys = Keys {
    nsid: 1,
    dialect: Dialect::Nvme,
};

fn store(drive: &mut Drive, key: &[u8], len: u32, rule: Rule) -> Result<(), DriverError> {
    let stored = drive.queue.kv_store(&KEYS, key, &drive.buffer, len, rule);
    stored.map(drop)
}

/// The keys of the drive with the lengths of their values, as a host finds them that comes now.
fn pairs(world: &World) -> Vec<(Vec<u8>, u32)> {
    let mut drive = Drive::attach(world, "nvme0");
    let keys = drive.queue.kv_list(1, b"", &drive.buffer, 4096).unwrap();
    let pair = |key: Vec<u8>| {
        let len = drive.queue.kv_retrieve(&KEYS, &key, &drive.buffer, 4096);
        (key, len.unwrap())
    };
    let mut pairs: Vec<_> = keys.into_iter().map(pair).collect();
    pairs.sort();
    pairs
}

#[test]
fn keys_become_what_they_were() {
    let world = World::new();
    let config = world.write("pairs.toml", PAIRS);
    let args = ["--config", config.to_str().unwrap()];
    let server = world.serve(&args);
    start(&world, "t.trace", &[]);
    let mut drive = Drive::attach(&world, "nvme0");
    let long = b"sixteen bytes ok";
    store(&mut drive, b"colour", 4, Rule::MustNotExist).unwrap();
    store(&mut drive, long, 3000, Rule::Any).unwrap();
    store(&mut drive, b"n", 0, Rule::Any).unwrap();
    store(&mut drive, b"gone", 9, Rule::Any).unwrap();
    store(&mut drive, b"colour", 7, Rule::MustExist).unwrap();
    // one that ends with an error, which the replay leaves out
    match store(&mut drive, b"colour", 1, Rule::MustNotExist) {
        Err(DriverError::Status { status, .. }) => assert_eq!(status, Status::KEY_EXISTS),
        other => panic!("{other:?}"),
    }
    let len = drive.queue.kv_retrieve(&KEYS, long, &drive.buffer, 4096);
    assert_eq!(len.unwrap(), 3000);
    drive.queue.kv_exist(&KEYS, b"gone").unwrap();
    drive.queue.kv_delete(&KEYS, b"gone").unwrap();
    drive.queue.kv_list(1, b"", &drive.buffer, 4096).unwrap();
    drop(drive);
    stop(&world, "nvme0");
    let were = pairs(&world);
    let expected = [(&b"colour"[..], 7), (b"n", 0), (long, 3000)];
    let expected = expected.map(|(key, len)| (key.to_vec(), len));
    assert_eq!(were, expected);
    server.stop();

    let told = |command: &serde_json::Value| {
        let text = |key: &str| command[key].as_str().unwrap_or_default().to_owned();
        (
            text("command"),
            text("key"),
            command["blocks"].as_u64().unwrap(),
        )
    };
    let told: Vec<_> = dump(&world, "t.trace").iter().map(told).collect();
    // the bytes in hexadecimal, and CDW10
    let expected = [
        ("Store", "0x636f6c6f7572", 4),
        ("Store", "0x7369787465656e206279746573206f6b", 3000),
        ("Store", "0x6e", 0),
        ("Store", "0x676f6e65", 9),
        ("Store", "0x636f6c6f7572", 7),
        ("Store", "0x636f6c6f7572", 1),
        ("Retrieve", "0x7369787465656e206279746573206f6b", 4096),
        ("Exist", "0x676f6e65", 0),
        ("Delete", "0x676f6e65", 0),
        ("List", "", 4096),
    ];
    let expected = expected.map(|(command, key, len)| (command.into(), key.into(), len));
    assert_eq!(told, expected);

    let server = world.serve(&args);
    assert_eq!(pairs(&world), []);
    let target = world.vfio_user("nvme0.sock");
    let replay = ["trace", "replay", "t.trace", "--target", &target];
    let error = world.fails(&replay);
    assert!(
        error.contains("6 commands of the trace overwrite data"),
        "{error}"
    );
    // one after the other, so that none comes before one that it was behind
    let more = ["--destroy-data", "--qd", "1", "--json"];
    let report = world.json(&[&replay[..], &more].concat());
    assert_eq!(report["commands"], 8, "{report}");
    let left_out = serde_json::json!({ "ended with an error": 1, "list keys": 1 });
    assert_eq!(report["left_out"], left_out);
    assert_eq!(pairs(&world), were);
    server.stop();
}
