//! Zones on real files: over an end without a clean stop, over a clean one, and what is refused.

use std::path::Path;
use std::sync::Arc;

use media::{Direct, Medium, MediumError, MediumKind, MediumSpec, ZoneLoss, ZoneSpec};
use nvme_spec::Sqe;
use port::{ByteRange, Outcome, Request};

use crate::common::{Host, Runner, file_spec, in_memory, on_disk, pattern};

const ZONE: u64 = 1 << 20;
const ZONES: u64 = 8;
const SIZE: u64 = ZONES * ZONE;
const EXTENT: ByteRange = ByteRange {
    offset: 0,
    len: SIZE,
};
const SPEC: ZoneSpec = ZoneSpec {
    zone_size: ZONE,
    zone_capacity: 768 << 10,
    max_open: 3,
    max_active: 4,
    descriptor_extension: 64,
    append_limit: 0,
    random: None,
};
const RESET: u32 = 4;
const FINISH: u32 = 2;

fn open(path: &Path, size: Option<u64>, zones: ZoneSpec) -> Result<Arc<Medium>, MediumError> {
    Medium::open(&MediumSpec {
        kind: MediumKind::Zoned {
            of: Box::new(file_spec(path, size, Direct::Auto).kind),
            zones,
        },
    })
}

struct Rig {
    host: Host,
    runner: Runner,
}

impl Rig {
    fn new(medium: &Arc<Medium>) -> Rig {
        Rig {
            host: Host::new(2 << 20),
            runner: Runner::new(medium, 16),
        }
    }

    fn ok(&mut self, request: &Request<'_>, pieces: &[(usize, usize)]) -> u64 {
        let outcome = self.runner.run(&self.host, request, pieces);
        assert_eq!(outcome.cause, Outcome::OK.cause, "{request:?}");
        outcome.result
    }

    fn write(&mut self, zone: u64, at: u64, bytes: &[u8]) {
        self.host.put(0, bytes);
        let (offset, len) = (zone * ZONE + at, bytes.len() as u32);
        self.ok(
            &Request::Write {
                offset,
                len,
                fua: false,
            },
            &[(0, bytes.len())],
        );
    }

    /// Appends durably; the block that was written first.
    fn append(&mut self, zone: u64, bytes: &[u8]) -> u64 {
        self.host.put(0, bytes);
        let sqe = Sqe {
            opcode: 0x7d,
            cdw10: (zone * ZONE / 4096) as u32,
            cdw12: bytes.len() as u32 / 4096 - 1,
            ..Sqe::default()
        };
        self.command(&sqe, true, &[(0, bytes.len())])
    }

    fn send(&mut self, zone: u64, action: u32) {
        let sqe = Sqe {
            opcode: 0x79,
            cdw10: (zone * ZONE / 4096) as u32,
            cdw13: action,
            ..Sqe::default()
        };
        self.command(&sqe, false, &[]);
    }

    fn command(&mut self, sqe: &Sqe, fua: bool, pieces: &[(usize, usize)]) -> u64 {
        let request = Request::Command {
            sqe,
            extent: EXTENT,
            lba_shift: 12,
            fua,
        };
        self.ok(&request, pieces)
    }

    fn flush(&mut self) {
        self.ok(&Request::Flush, &[]);
    }

    fn read(&mut self, zone: u64, at: u64, len: usize) -> Vec<u8> {
        let request = Request::Read {
            offset: zone * ZONE + at,
            len: len as u32,
        };
        self.ok(&request, &[(0, len)]);
        self.host.get(0, len)
    }

    /// State and write pointer, in blocks from its start, of every zone (ZNS 1.1, 3.4.2.2).
    fn zones(&mut self) -> Vec<(u8, u64)> {
        let len = 64 + ZONES as usize * 64;
        let sqe = Sqe {
            opcode: 0x7a,
            cdw12: len as u32 / 4 - 1,
            ..Sqe::default()
        };
        self.command(&sqe, false, &[(0, len)]);
        let report = self.host.get(0, len);
        let (zones, _) = report[64..].as_chunks::<64>();
        let word = |zone: &[u8; 64], at| {
            u64::from_le_bytes(*zone[at..].first_chunk().expect("eight bytes"))
        };
        zones
            .iter()
            .map(|zone| (zone[1] >> 4, word(zone, 24).wrapping_sub(word(zone, 16))))
            .collect()
    }
}

const EMPTY: (u8, u64) = (1, 0);

#[test]
fn what_was_flushed_survives_an_end_without_a_stop() {
    for folder in [on_disk(), in_memory()] {
        let path = folder.path().join("zns.img");
        let medium = open(&path, Some(SIZE), SPEC).unwrap();
        assert_eq!(medium.size(), SIZE);
        let mut rig = Rig::new(&medium);
        rig.write(0, 0, &pattern(1, 12288));
        rig.write(1, 0, &pattern(2, 4096));
        rig.send(1, FINISH);
        rig.write(2, 0, &pattern(3, 768 << 10));
        rig.write(3, 0, &pattern(4, 4096));
        rig.flush();
        rig.send(3, RESET);
        assert_eq!(rig.append(4, &pattern(5, 8192)), 4 * ZONE / 4096);
        // This write is never flushed.
        rig.write(0, 12288, &pattern(6, 4096));
        // The medium is dropped without a clean stop: its log is not brought up to date.
        drop(rig);
        drop(medium);
        let medium = open(&path, Some(SIZE), SPEC).unwrap();
        let mut rig = Rig::new(&medium);
        let zones = rig.zones();
        assert!([(4, 3), (4, 4)].contains(&zones[0]), "{:?}", zones[0]);
        assert_eq!((zones[1].0, zones[2].0), (14, 14), "full");
        assert_eq!(zones[3..], [EMPTY, (4, 2), EMPTY, EMPTY, EMPTY]);
        assert_eq!(rig.read(0, 0, 12288), pattern(1, 12288));
        assert_eq!(rig.read(1, 0, 4096), pattern(2, 4096));
        assert_eq!(rig.read(2, 0, 768 << 10), pattern(3, 768 << 10));
        assert_eq!(rig.read(4, 0, 8192), pattern(5, 8192));
        let behind = zones[0].1 * 4096;
        assert_eq!(rig.read(0, behind, 65536), vec![0; 65536]);
        assert_eq!(rig.read(3, 0, 65536), vec![0; 65536]);
        // And it goes on from there.
        rig.write(0, behind, &pattern(7, 4096));
        rig.write(3, 0, &pattern(8, 4096));
        assert_eq!(rig.read(3, 0, 4096), pattern(8, 4096));
    }
}

#[test]
fn a_clean_stop_keeps_everything() {
    let folder = on_disk();
    let path = folder.path().join("zns.img");
    let medium = open(&path, Some(SIZE), SPEC).unwrap();
    let mut rig = Rig::new(&medium);
    rig.write(5, 0, &pattern(1, 4096));
    rig.host.put(0, &[0x5a; 64]);
    let extend = Sqe {
        opcode: 0x79,
        cdw10: (6 * ZONE / 4096) as u32,
        cdw13: 0x10,
        ..Sqe::default()
    };
    rig.command(&extend, false, &[(0, 64)]);
    drop(rig);
    medium.sync().unwrap();
    drop(medium);
    // Its size is known from the file.
    let medium = open(&path, None, SPEC).unwrap();
    assert_eq!(medium.size(), SIZE);
    let mut rig = Rig::new(&medium);
    assert_eq!(rig.zones()[5..], [(4, 1), (4, 0), EMPTY]);
    assert_eq!(rig.read(5, 0, 4096), pattern(1, 4096));
    let report = Sqe {
        opcode: 0x7a,
        cdw10: (6 * ZONE / 4096) as u32,
        cdw12: (64 + 128) / 4 - 1,
        cdw13: 1,
        ..Sqe::default()
    };
    rig.command(&report, false, &[(0, 192)]);
    assert_eq!(rig.host.get(128, 64), [0x5a; 64]);
}

/// Also zones that were never written. While a channel has the zones, only its reactor can make one
/// read-only or offline.
#[test]
fn zones_that_were_given_up_stay_so() {
    let folder = on_disk();
    let path = folder.path().join("zns.img");
    let medium = open(&path, Some(SIZE), SPEC).unwrap();
    let start = medium.lose_zone(2, ZoneLoss::ReadOnly);
    assert_eq!(start, Ok(2 * ZONE));
    let channel = medium.channel(4).unwrap();
    let error = medium.lose_zone(3, ZoneLoss::Offline).unwrap_err();
    assert!(error.to_string().contains("the reactor"), "{error}");
    drop(channel);
    medium.lose_zone(3, ZoneLoss::Offline).unwrap();
    medium.sync().unwrap();
    drop(medium);
    let medium = open(&path, None, SPEC).unwrap();
    let states: Vec<u8> = Rig::new(&medium)
        .zones()
        .iter()
        .map(|zone| zone.0)
        .collect();
    assert_eq!(states, [1, 1, 13, 15, 1, 1, 1, 1]);
    assert!(medium.lose_zone(3, ZoneLoss::ReadOnly).is_err());
    medium.lose_zone(2, ZoneLoss::Offline).unwrap();
}

fn refused(path: &Path, size: Option<u64>, zones: ZoneSpec) -> String {
    let before = std::fs::read(path).ok();
    let error = open(path, size, zones)
        .expect_err("it is refused")
        .to_string();
    assert!(
        std::fs::read(path).ok() == before,
        "it was touched: {error}"
    );
    error
}

#[test]
fn files_that_do_not_fit_are_refused_and_left_alone() {
    let folder = on_disk();
    let path = folder.path().join("zns.img");
    assert!(refused(&path, None, SPEC).contains("does not exist"));
    drop(open(&path, Some(SIZE), SPEC).unwrap());
    let larger = refused(&path, Some(2 * SIZE), SPEC);
    assert!(
        larger.contains("its size is 8 MiB, but 16 MiB is configured"),
        "{larger}"
    );
    for (what, spec) in [
        (
            "zone size is 1 MiB, but 2 MiB",
            ZoneSpec {
                zone_size: 2 * ZONE,
                ..SPEC
            },
        ),
        (
            "zone capacity is 768 KiB, but 1 MiB",
            ZoneSpec {
                zone_capacity: ZONE,
                ..SPEC
            },
        ),
        (
            "descriptor extension is 64 bytes, but 128",
            ZoneSpec {
                descriptor_extension: 128,
                ..SPEC
            },
        ),
    ] {
        let error = refused(&path, Some(SIZE), spec);
        assert!(error.contains(what), "{error}");
    }
    // Limits are no shape of the bytes.
    drop(
        open(
            &path,
            None,
            ZoneSpec {
                max_open: 1,
                max_active: 1,
                ..SPEC
            },
        )
        .unwrap(),
    );

    // Files of somebody else: of the length that it would have, of the zones' length, too short for
    // anything, cut.
    let whole = std::fs::read(&path).unwrap();
    let other = folder.path().join("other.img");
    for content in [
        vec![7; whole.len()],
        vec![0; SIZE as usize],
        vec![7; 512],
        whole[..whole.len() - 65536].to_vec(),
    ] {
        std::fs::write(&other, content).unwrap();
        let error = refused(&other, Some(SIZE), SPEC);
        assert!(
            error.contains("was not created for such a medium"),
            "{error}"
        );
    }
    // An empty file of the right length is one that was just created.
    std::fs::File::create(&other)
        .unwrap()
        .set_len(whole.len() as u64)
        .unwrap();
    assert_eq!(open(&other, Some(SIZE), SPEC).unwrap().size(), SIZE);
}

/// That a file is refused as a medium of bytes, with and without a size, and left as it is.
fn refused_as_bytes(path: &Path, sizes: &[u64], says: &str) {
    let whole = std::fs::read(path).expect("it is there");
    let sizes = sizes.iter().copied().map(Some);
    for size in sizes.chain([None, Some(whole.len() as u64)]) {
        let error = Medium::open(&file_spec(path, size, Direct::Auto)).expect_err("it is refused");
        let error = error.to_string();
        assert!(error.contains(says), "{size:?}: {error}");
        assert!(std::fs::read(path).expect("it is there") == whole);
    }
}

/// A host that was given the log as blocks would write over it.
#[test]
fn a_file_with_zones_is_no_medium_of_bytes() {
    let folder = on_disk();
    let path = folder.path().join("zones.img");
    drop(open(&path, Some(SIZE), SPEC).unwrap());
    // The size of the zones is what stood in the configuration that has lost them.
    refused_as_bytes(&path, &[SIZE], "add [media.zoned]");
    // Another size in the configuration gives the same error.
    let other = Medium::open(&file_spec(&path, Some(4096), Direct::Auto)).unwrap_err();
    assert!(other.to_string().contains("add [media.zoned]"), "{other}");

    // One superblock is enough to know it; two broken ones are no reason to write over what was
    // kept.
    let mut bytes = std::fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 4096 + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    refused_as_bytes(&path, &[SIZE], "add [media.zoned]");
    bytes[end - 8192 + 100] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    refused_as_bytes(&path, &[], "its state is damaged");
    // A file without a superblock is a medium of plain bytes.
    bytes[end - 8192..].fill(7);
    std::fs::write(&path, &bytes).unwrap();
    let medium = Medium::open(&file_spec(&path, None, Direct::Auto)).unwrap();
    assert_eq!(medium.size(), end as u64);
}

fn pairs(path: &Path, size: u64) -> Result<Arc<Medium>, MediumError> {
    Medium::open(&MediumSpec {
        kind: MediumKind::KeyValue {
            path: Some(path.into()),
            size,
            keys: None,
            dialect: media::Dialect::Nvme,
        },
    })
}

#[test]
fn a_file_with_keys_is_no_medium_of_bytes_or_zones_nor_one_with_zones_of_keys() {
    let folder = on_disk();
    let (keys, zones) = (folder.path().join("pairs.kv"), folder.path().join("zns"));
    drop(pairs(&keys, SIZE).unwrap());
    refused_as_bytes(&keys, &[SIZE], "write kind = \"keyvalue\"");
    for size in [None, Some(SIZE)] {
        let error = refused(&keys, size, SPEC);
        assert!(error.contains("its kind of state is keys"), "{error}");
    }
    drop(open(&zones, Some(SIZE), SPEC).unwrap());
    let before = std::fs::read(&zones).unwrap();
    let error = pairs(&zones, SIZE).unwrap_err().to_string();
    assert!(error.contains("its kind of state is zones"), "{error}");
    assert!(std::fs::read(&zones).unwrap() == before);
}
