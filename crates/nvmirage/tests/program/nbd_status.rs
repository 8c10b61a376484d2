//! Holes of drives over NBD, as libnbd's tools and QEMU's see and skip them.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::PathBuf;

use serde_json::Value;

use crate::nbd::{bytes, libnbd, qemu_ok};
use crate::network::metric;
use crate::world::{Server, World};

/// Bytes of each namespace.
const LEN: u64 = 1 << 30;
/// Where the images have data, and how many bytes.
const PLACES: [u64; 3] = [0, 300 << 20, (1 << 30) - (1 << 20)];
const DATA: usize = 1 << 20;

struct Served {
    world: World,
    server: Server,
}

impl Served {
    /// A sparse file, memory, and a null medium.
    fn new() -> Self {
        let world = World::new();
        let image = fs::File::create(world.path("disk.img")).unwrap();
        image.set_len(LEN).unwrap();
        for (seed, at) in (1..).zip(PLACES) {
            image.write_all_at(&bytes(DATA, seed), at).unwrap();
        }
        let config = format!(
            r#"
            [[media]]
            name = "disk"
            kind = "file"
            path = "{}"
            [[media]]
            name = "memory"
            kind = "ram"
            size = "1GiB"
            [[media]]
            name = "nothing"
            kind = "null"
            size = "1GiB"
            [[namespace]]
            name = "disk"
            media = "disk"
            lba_size = 4096
            [[namespace]]
            name = "memory"
            media = "memory"
            [[namespace]]
            name = "nothing"
            media = "nothing"
            [[controller]]
            name = "door"
            namespaces = ["disk", "memory", "nothing"]
            listen = "nbd:{}"
            "#,
            world.path("disk.img").display(),
            world.path("nbd.sock").display(),
        );
        let file = world.write("config.toml", &config);
        let server = world.serve(&["--config", file.to_str().unwrap()]);
        Self { world, server }
    }

    fn uri(&self, export: &str) -> String {
        let socket = self.world.path("nbd.sock");
        format!("nbd+unix:///{export}?socket={}", socket.display())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.world.path(name)
    }

    fn nbd(&self, name: &str, args: &[&str]) -> String {
        libnbd(&self.world, name, args)
    }

    /// Offset, length and type of each extent.
    fn map(&self, export: &str) -> Vec<(u64, u64, u64)> {
        let map = self.nbd("nbdinfo", &["--map", "--json", &self.uri(export)]);
        let map: Value = serde_json::from_str(&map).unwrap();
        let number = |extent: &Value, key: &str| extent[key].as_u64().unwrap();
        let extents = map.as_array().unwrap().iter();
        extents
            .map(|it| {
                (
                    number(it, "offset"),
                    number(it, "length"),
                    number(it, "type"),
                )
            })
            .collect()
    }

    /// Bytes that the server has sent.
    fn sent(&self) -> u64 {
        let sample = "nvmirage_nbd_data_bytes_total{controller=\"door\",direction=\"sent\"}";
        metric(&self.world, sample) as u64
    }
}

/// Data where the image has data, and holes that read as zeroes (3) elsewhere.
fn check(map: &[(u64, u64, u64)], unit: u64) {
    let mut end = 0;
    for (offset, len, state) in map {
        assert_eq!(*offset, end, "one behind the other");
        assert!([0, 3].contains(state), "{map:?}");
        end += len;
    }
    assert_eq!(end, LEN);
    let data: Vec<_> = map.iter().filter(|(_, _, state)| *state == 0).collect();
    assert_eq!(data.len(), PLACES.len(), "{map:?}");
    for ((offset, len, _), at) in data.into_iter().zip(PLACES) {
        assert!(
            at - offset < unit && offset + len >= at + DATA as u64,
            "{map:?}"
        );
        assert!(*len <= DATA as u64 + 2 * unit, "{map:?}");
    }
}

#[test]
fn clients_see_holes_and_copy_only_data() {
    let served = Served::new();
    check(&served.map("disk"), 1 << 20);
    assert_eq!(served.map("memory"), [(0, LEN, 3)]);
    // A drive without the context is all data to those that do not insist on it.
    let list = served.nbd("nbdinfo", &["--list", "--json", &served.uri("")]);
    let list: Value = serde_json::from_str(&list).unwrap();
    for export in list["exports"].as_array().unwrap() {
        let contexts = export["contexts"].as_array().unwrap();
        let has_holes = export["export-name"] != "nothing";
        assert_eq!(contexts.len(), usize::from(has_holes), "{export}");
        assert!(contexts.iter().all(|it| it == "base:allocation"));
    }
    // From the file to memory, which becomes as sparse.
    let (disk, memory) = (served.uri("disk"), served.uri("memory"));
    let before = served.sent();
    served.nbd("nbdcopy", &["--destination-is-zero", &disk, &memory]);
    let sent = served.sent() - before;
    assert!(sent >= 3 * DATA as u64 && sent < 32 << 20, "{sent} bytes");
    check(&served.map("memory"), 2 << 20);
    // Out of memory, into a file.
    let copy = served.path("copy.img");
    served.nbd("nbdcopy", &[&memory, copy.to_str().unwrap()]);
    let copied = fs::metadata(&copy).unwrap();
    assert!(copied.blocks() * 512 < 64 << 20, "it has no holes");
    for (name, one, other) in [
        ("both exports", disk.as_str(), memory.as_str()),
        ("export and copy", &memory, copy.to_str().unwrap()),
    ] {
        let args = ["compare", "-f", "raw", "-F", "raw", one, other];
        let same = qemu_ok("qemu-img", &args);
        assert!(same.contains("identical"), "{name}: {same}");
    }
    served.server.stop();
}

#[test]
fn qemu_maps_and_converts_holes() {
    let served = Served::new();
    let disk = served.uri("disk");
    let map = qemu_ok("qemu-img", &["map", "-f", "raw", "--output=json", &disk]);
    let map: Value = serde_json::from_str(&map).unwrap();
    let extents = map.as_array().unwrap();
    let data: u64 = extents
        .iter()
        .filter(|it| it["data"] == true)
        .map(|it| it["length"].as_u64().unwrap())
        .sum();
    assert!(data >= 3 * DATA as u64 && data < 16 << 20, "{map}");
    let zero = extents.iter().filter(|it| it["zero"] == true).count();
    assert!(zero >= 2, "{map}");
    let before = served.sent();
    let image = served.path("image.qcow2").display().to_string();
    qemu_ok(
        "qemu-img",
        &["convert", "-f", "raw", "-O", "qcow2", &disk, &image],
    );
    let sent = served.sent() - before;
    assert!(sent < 32 << 20, "{sent} bytes");
    let same = qemu_ok(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "qcow2", &disk, &image],
    );
    assert!(same.contains("identical"), "{same}");
    // A range that a client trims is a hole, and one that it writes is none.
    let memory = served.uri("memory");
    let commands = [
        "-c",
        "write -P 7 8M 4M",
        "-c",
        "discard 8M 2M",
        "-c",
        "flush",
    ];
    let args = [&["-f", "raw", memory.as_str()][..], &commands].concat();
    qemu_ok("qemu-io", &args);
    let map = served.map("memory");
    let data: Vec<_> = map.iter().filter(|(.., state)| *state == 0).collect();
    assert_eq!(data, [&(10 << 20, 2 << 20, 0)], "{map:?}");
    served.server.stop();
}
