//! A medium in memory that takes the records of another one, as at a start from the file of a clean
//! stop: another process continues with all of them.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use media::{Dialect, KeptFiles, Medium, MediumKind, MediumSpec};

use crate::common::pattern;
use crate::outlived::{Act, SPEC, ZONE, ZONES};
use crate::outlived_zones::Zones;

type Records = Vec<(u8, Vec<u8>)>;

fn records_of(medium: &Medium) -> Records {
    let mut records = Vec::new();
    let tell = &mut |kind, record: &[u8]| {
        records.push((kind, record.to_vec()));
        Ok(())
    };
    medium.records(tell).expect("told");
    records
}

/// The records that another process finds, of a medium that has taken `records` in this one.
fn outlived(spec: &MediumSpec, records: &Records) -> Records {
    let open = |files| Medium::open_kept(spec, files).expect("opened");
    let medium: Arc<Medium> = open(KeptFiles::default());
    for (kind, record) in records {
        medium.take_record(*kind, record).expect("taken");
    }
    medium.sync().expect("written");
    let copied = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().expect("copied");
    let files = KeptFiles {
        memory: medium.memory_file().map(copied),
        zones: medium.zones_file().map(copied),
    };
    drop(medium);
    records_of(&open(files))
}

/// More than the log has room for at a time.
#[test]
fn pairs_outlive_the_process_that_loaded_them() {
    let spec = MediumSpec {
        kind: MediumKind::KeyValue {
            path: None,
            size: 64 << 20,
            keys: Some(100),
            dialect: Dialect::Nvme,
        },
    };
    let pair = |n: u8| (1, [&[1, n][..], &pattern(n.into(), 2_000_000)].concat());
    let records: Records = (1..=25).map(pair).collect();
    assert!(outlived(&spec, &records) == records);
}

#[test]
fn zones_with_extensions_outlive_the_process_that_loaded_them() {
    let mut zones = Zones::new();
    zones.run(Act::Append(1, 2), None).expect("appended");
    zones.run(Act::Describe(3), None).expect("described");
    let records = records_of(&zones.end());
    assert_eq!(records.len(), 3, "two zones, and an extension");
    let spec = MediumSpec {
        kind: MediumKind::Zoned {
            of: Box::new(MediumKind::Ram { size: ZONES * ZONE }),
            zones: SPEC,
        },
    };
    assert_eq!(outlived(&spec, &records), records);
}
