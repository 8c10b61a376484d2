//! Files with the log of a medium's state, of zones or of keys, as any program or accident may have
//! left them: superblocks and frames with any content, their checksums right or wrong.
//!
//! The log is read a second time here, by what is written of its format. What a medium has come
//! back with is that, and nothing else; a file that is refused is left as it is; and what was taken
//! up once is taken up again as the same.

mod image;
mod oracle;

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use arbitrary::Arbitrary;
use media::{Dialect, Direct, FileIo, Medium, MediumError, MediumKind, MediumSpec, ZoneSpec};
use port::set::RandomAreas;

use self::image::{Frame, Image, Super};

/// Zones of the medium that has some, and bytes of each: to write, and to the next one.
const ZONES: u64 = 4;
const CAPACITY: u64 = 48 << 10;
const ZONE: u64 = 64 << 10;
/// Bytes of a descriptor extension.
const EXTENSION: usize = 64;
/// Bytes for values; far more than an input has.
const VALUES: u64 = 8 << 20;

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    keys: bool,
    superblocks: [Super; 2],
    frames: Vec<Frame>,
    /// Bytes of blocks that were written, changed when all checksums stand.
    changes: Vec<(u8, u16, u8)>,
}

/// The records of one medium.
type Records = Vec<(u8, Vec<u8>)>;

/// A medium's file as it was made, and a place for others of its length.
struct Place {
    spec: MediumSpec,
    new: Image,
    file: File,
}

fn spec(keys: bool, path: PathBuf) -> MediumSpec {
    let kind = if keys {
        MediumKind::KeyValue {
            path: Some(path),
            size: VALUES,
            keys: None,
            dialect: Dialect::Nvme,
        }
    } else {
        MediumKind::Zoned {
            of: Box::new(MediumKind::File {
                path,
                size: Some(ZONES * ZONE),
                direct: Direct::Off,
                io: FileIo {
                    register_memory: false,
                    ..FileIo::default()
                },
            }),
            zones: ZoneSpec {
                zone_size: ZONE,
                zone_capacity: CAPACITY,
                max_open: 0,
                max_active: 0,
                descriptor_extension: EXTENSION as u32,
                append_limit: 0,
                random: Some(RandomAreas {
                    bytes: 8192,
                    granularity: 4096,
                    zones: 2,
                }),
            },
        }
    };
    MediumSpec { kind }
}

/// A file in memory, which has a path as long as it is open.
fn memory_file() -> (File, PathBuf) {
    let fd = rustix::fs::memfd_create("state", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    (fd.into(), path.into())
}

impl Place {
    fn new(keys: bool) -> Place {
        let folder = std::path::Path::new("/dev/shm");
        let made = folder.join(format!("nvmirage-fuzz-{}-{keys}", std::process::id()));
        drop(Medium::open(&spec(keys, made.clone())).unwrap());
        let new = Image::read(&File::open(&made).unwrap());
        std::fs::remove_file(made).unwrap();
        let (file, path) = memory_file();
        let spec = spec(keys, path);
        Place { spec, new, file }
    }
}

fn records(medium: &Medium) -> Records {
    let mut records = Records::new();
    let mut tell = |kind, record: &[u8]| {
        records.push((kind, record.to_vec()));
        Ok(())
    };
    medium.records(&mut tell).unwrap();
    records
}

thread_local! {
    static PLACES: RefCell<[Place; 2]> = RefCell::new([Place::new(false), Place::new(true)]);
}

pub(crate) fn run(input: Input) {
    PLACES.with_borrow_mut(|places| {
        let place = &mut places[usize::from(input.keys)];
        read(&input, place);
    });
}

fn read(input: &Input, place: &mut Place) {
    let image = Image::of(
        &place.new,
        input.keys,
        &input.superblocks,
        &input.frames,
        &input.changes,
    );
    image.write(&place.file);
    let expected = oracle::read(&image, &place.new, input.keys);
    match Medium::open(&place.spec) {
        Ok(medium) => {
            let found = records(&medium);
            let expected = expected.expect("it was to be refused");
            assert_eq!(found, expected.records);
            drop(medium);
            match Medium::open(&place.spec) {
                Ok(again) => {
                    assert!(!expected.is_last, "there is no number for it");
                    assert!(records(&again) == found, "it is another one now");
                }
                Err(MediumError::State { source, .. }) => {
                    assert!(expected.is_last, "it was taken up before: {source}");
                }
                Err(error) => panic!("{error}"),
            }
        }
        Err(MediumError::State { source, .. }) => {
            assert_eq!(expected, None, "{source}");
            assert!(
                image.is_in(&place.file),
                "it was refused and touched: {source}"
            );
        }
        Err(error) => panic!("{error}"),
    }
}
