//! A real block device: a loop device over a file. That takes rights; without them, what an
//! ordinary user meets is checked instead.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use media::{Direct, Medium, MediumError, MediumKind};
use port::{ByteRange, Cause, Outcome, Request};

use crate::common::{Host, Runner, file_spec, is_open_direct, on_disk, open_file, pattern};

const MIB: usize = 1 << 20;
const SIZE: usize = 8 * MIB;

struct Loop {
    device: PathBuf,
    backing: PathBuf,
    _directory: tempfile::TempDir,
}

impl Loop {
    /// `None` where this user may not make one.
    fn new(sector: usize) -> Option<Loop> {
        let directory = on_disk();
        let backing = directory.path().join("backing");
        File::create(&backing)
            .and_then(|file| file.set_len(SIZE as u64))
            .expect("a file");
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(&backing)
            .output()
            .ok()
            .filter(|made| made.status.success())?;
        let device: PathBuf = String::from_utf8(made.stdout)
            .expect("a path")
            .trim()
            .into();
        // A program that was killed may have left it read-only.
        let _ = Command::new("blockdev")
            .arg("--setrw")
            .arg(&device)
            .status();
        Some(Loop {
            device,
            backing,
            _directory: directory,
        })
    }

    /// "flush I/Os completed", by the kernel's account (Documentation/block/stat.rst).
    fn flushes(&self) -> u64 {
        let name = self.device.file_name().expect("a name");
        let stat = std::fs::read_to_string(Path::new("/sys/block").join(name).join("stat"))
            .expect("sysfs");
        stat.split_whitespace()
            .nth(15)
            .expect("Linux 5.5 and later")
            .parse()
            .expect("a number")
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.device)
            .status();
    }
}

/// Runs `check` on a loop device, or meets the refusal that a user without rights meets.
fn on_a_device(sector: usize, check: impl FnOnce(&Loop)) {
    if let Some(device) = Loop::new(sector) {
        check(&device);
        return;
    }
    let device = std::fs::read_dir("/dev")
        .expect("devices")
        .flatten()
        .map(|entry| entry.path())
        .find(|path| {
            use std::os::unix::fs::FileTypeExt;
            std::fs::metadata(path).is_ok_and(|status| status.file_type().is_block_device())
        });
    // No rights, or mounted: never opened. Where there is no block device, nothing is found.
    let path = device.unwrap_or_else(|| "/dev/there-is-none".into());
    let error = Medium::open(&file_spec(&path, None, Direct::Auto)).expect_err("refused");
    assert!(
        error
            .to_string()
            .contains(path.to_str().expect("a plain name")),
        "{error}"
    );
    assert!(matches!(
        error,
        MediumError::Io { .. }
            | MediumError::ReadOnly { .. }
            | MediumError::Locked { .. }
            | MediumError::Missing { .. }
    ));
}

fn read(offset: usize, len: usize) -> Request<'static> {
    Request::Read {
        offset: offset as u64,
        len: len as u32,
    }
}

fn write(offset: usize, len: usize, fua: bool) -> Request<'static> {
    Request::Write {
        offset: offset as u64,
        len: len as u32,
        fua,
    }
}

#[test]
fn a_device_is_opened_whole_and_alone() {
    on_a_device(512, |device| {
        let medium = open_file(&device.device, None, Direct::Auto);
        assert_eq!(medium.size(), SIZE as u64);
        assert!(
            medium.describe().starts_with("block device"),
            "{}",
            medium.describe()
        );
        assert!(is_open_direct(&device.device), "{}", medium.describe());
        let second =
            Medium::open(&file_spec(&device.device, None, Direct::Auto)).expect_err("refused");
        assert!(matches!(second, MediumError::Locked { .. }), "{second}");
        // Anybody who asks for the device alone, as mount does, is kept out.
        use std::os::unix::fs::OpenOptionsExt;
        let exclusive = || {
            File::options()
                .read(true)
                .custom_flags(libc::O_EXCL)
                .open(&device.device)
        };
        assert_eq!(
            exclusive().expect_err("busy").raw_os_error(),
            Some(libc::EBUSY)
        );
        drop(medium);
        // A process that another test starts has our open files for a moment.
        let mut again = exclusive();
        for _ in 0..1000 {
            if again.is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            again = exclusive();
        }
        let mounted = again.expect("free again");
        let refused =
            Medium::open(&file_spec(&device.device, None, Direct::Auto)).expect_err("refused");
        assert!(matches!(refused, MediumError::Locked { .. }), "{refused}");
        drop(mounted);
        let wrong = Medium::open(&file_spec(&device.device, Some(MIB as u64), Direct::Auto))
            .expect_err("refused");
        assert!(matches!(wrong, MediumError::SizeMismatch { .. }), "{wrong}");
        // A channel that was used does not hold the device any longer either.
        let medium = open_file(&device.device, None, Direct::Auto);
        assert_eq!(
            Runner::new(&medium, 1).run(&Host::new(4096), &Request::Flush, &[]),
            Outcome::OK
        );
        drop(medium);
        open_file(&device.device, None, Direct::Auto);
    });
}

#[test]
fn a_device_holds_and_gives_back() {
    on_a_device(512, |device| {
        let medium = open_file(&device.device, None, Direct::Auto);
        assert!(medium.traits().deallocate);
        let host = Host::new(SIZE);
        let mut runner = Runner::new(&medium, 4);
        let data = pattern(8, 4 * MIB);
        // Aligned, and not.
        for start in [0, 4] {
            host.put(start, &data);
            assert_eq!(
                runner.run(&host, &write(512, 4 * MIB, false), &[(start, 4 * MIB)]),
                Outcome::OK
            );
            host.put(start, &vec![0; 4 * MIB]);
            assert_eq!(
                runner.run(&host, &read(512, 4 * MIB), &[(start, 4 * MIB)]),
                Outcome::OK
            );
            assert!(host.get(start, 4 * MIB) == data);
        }
        assert_eq!(runner.run(&host, &Request::Flush, &[]), Outcome::OK);
        let allocated =
            || std::fs::metadata(&device.backing).expect("there").blocks() as usize * 512;
        assert!(allocated() >= 4 * MIB);
        let ranges = [ByteRange {
            offset: 0,
            len: 2 * MIB as u64,
        }];
        assert_eq!(
            runner.run(&host, &Request::Deallocate { ranges: &ranges }, &[]),
            Outcome::OK
        );
        assert!(allocated() <= 3 * MIB, "given back down to the file below");
        let zeroes = Request::WriteZeroes {
            offset: 0,
            len: 3 * MIB as u64,
            deallocate: false,
            fua: true,
        };
        assert_eq!(runner.run(&host, &zeroes, &[]), Outcome::OK);
        assert_eq!(
            runner.run(&host, &read(MIB, 3 * MIB + 512), &[(0, 3 * MIB + 512)]),
            Outcome::OK
        );
        let found = host.get(0, 3 * MIB + 512);
        assert!(found[..2 * MIB].iter().all(|byte| *byte == 0));
        assert!(found[2 * MIB..] == data[3 * MIB - 512..]);
    });
}

#[test]
fn flushes_and_durable_writes_reach_the_device() {
    on_a_device(512, |device| {
        for direct in [Direct::Auto, Direct::Off] {
            let medium = open_file(&device.device, None, direct);
            let host = Host::new(MIB);
            let mut runner = Runner::new(&medium, 4);
            let mut flushes_of = |request: &Request<'_>| {
                let before = device.flushes();
                assert_eq!(runner.run(&host, request, &[(0, 4096)]), Outcome::OK);
                device.flushes() - before
            };
            assert_eq!(
                flushes_of(&write(0, 4096, false)),
                0,
                "{direct:?}: a plain write may stay in a cache"
            );
            assert!(flushes_of(&Request::Flush) > 0, "{direct:?}");
            assert!(flushes_of(&write(0, 4096, true)) > 0, "{direct:?}");
            let zeroes = |fua| Request::WriteZeroes {
                offset: 4096,
                len: 4096,
                deallocate: false,
                fua,
            };
            assert_eq!(flushes_of(&zeroes(false)), 0, "{direct:?}");
            assert!(flushes_of(&zeroes(true)) > 0, "{direct:?}");
            assert_eq!(flushes_of(&read(0, 4096)), 0, "{direct:?}");
            let before = device.flushes();
            medium.sync().expect("synced");
            assert!(device.flushes() > before, "{direct:?}");
        }
    });
}

#[test]
fn a_device_of_large_blocks_serves_small_ones_through_the_cache() {
    on_a_device(4096, |device| {
        let medium = open_file(&device.device, None, Direct::Auto);
        assert!(medium.describe().contains("4096"), "{}", medium.describe());
        assert!(!is_open_direct(&device.device));
        assert_eq!(medium.min_lba_bytes(), 512);
        let host = Host::new(MIB);
        let mut runner = Runner::new(&medium, 8);
        // Eight neighbours of one block at once: none is lost.
        let data = pattern(2, 4096);
        host.put(0, &data);
        for n in 0..8 {
            runner.add(&host, &write(8192 + n * 512, 512, false), &[(n * 512, 512)]);
        }
        assert!(
            runner
                .drain()
                .iter()
                .all(|(_, outcome)| *outcome == Outcome::OK)
        );
        assert_eq!(
            runner.run(&host, &read(8192, 4096), &[(65_536, 4096)]),
            Outcome::OK
        );
        assert!(host.get(65_536, 4096) == data);
        // A range below a block is zeroed by writing, and not deallocated.
        let zeroes = Request::WriteZeroes {
            offset: 8704,
            len: 512,
            deallocate: true,
            fua: true,
        };
        assert_eq!(runner.run(&host, &zeroes, &[]), Outcome::OK);
        let ranges = [
            ByteRange {
                offset: 9216,
                len: 512,
            },
            ByteRange {
                offset: 12_288,
                len: 4096,
            },
        ];
        assert_eq!(
            runner.run(&host, &Request::Deallocate { ranges: &ranges }, &[]),
            Outcome::OK
        );
        assert_eq!(
            runner.run(&host, &read(8192, 4096), &[(65_536, 4096)]),
            Outcome::OK
        );
        let mut expected = data;
        expected[512..1024].fill(0);
        assert!(host.get(65_536, 4096) == expected);
    });
}

#[test]
fn insisting_on_direct_io_costs_small_blocks() {
    on_a_device(4096, |device| {
        let medium = open_file(&device.device, None, Direct::On);
        assert!(is_open_direct(&device.device));
        assert_eq!(medium.min_lba_bytes(), 4096);
        let host = Host::new(MIB);
        let mut runner = Runner::new(&medium, 2);
        let data = pattern(6, 64 << 10);
        host.put(2, &data);
        assert_eq!(
            runner.run(&host, &write(4096, 64 << 10, true), &[(2, 64 << 10)]),
            Outcome::OK
        );
        let mut found = vec![0; 64 << 10];
        medium.sync().expect("synced");
        File::open(&device.device)
            .and_then(|file| file.read_exact_at(&mut found, 4096))
            .expect("read");
        assert!(found == data);
        assert_eq!(
            runner
                .run(&host, &write(4096, 512, false), &[(0, 512)])
                .cause,
            Cause::Unsupported
        );
    });
}

#[test]
fn a_device_without_polled_queues_is_told_so() {
    on_a_device(512, |device| {
        let mut spec = file_spec(&device.device, None, Direct::Auto);
        let MediumKind::File { io, .. } = &mut spec.kind else {
            unreachable!()
        };
        io.poll_completions = true;
        let error = Medium::open(&spec).expect_err("refused").to_string();
        assert!(error.contains("no polled queues"), "{error}");
        assert!(error.contains("poll_queues=N"), "{error}");
    });
}
