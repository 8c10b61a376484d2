//! Single commands and what surrounds them: large ones, odd buffers, durability, full disks,
//! files that change underneath, sleeping, dropping.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::num::NonZeroI32;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use media::{Direct, Medium, MediumKind, MediumSpec};
use port::{ByteRange, Cause, Channel as _, Outcome, Request};

use crate::common::{Host, Runner, in_memory, on_disk, open_file, pattern};

const MIB: usize = 1 << 20;
const PAGE: usize = 4096;

fn ram(size: u64) -> Arc<Medium> {
    Medium::open(&MediumSpec {
        kind: MediumKind::Ram { size },
    })
    .expect("opened")
}

fn read(offset: u64, len: usize) -> Request<'static> {
    Request::Read {
        offset,
        len: len as u32,
    }
}

fn write(offset: u64, len: usize) -> Request<'static> {
    Request::Write {
        offset,
        len: len as u32,
        fua: false,
    }
}

/// 4 MiB that start inside a page: 1025 pieces, as a PRP walk makes them of scattered pages.
fn many_pieces(start: usize) -> Vec<(usize, usize)> {
    let first = PAGE - start % PAGE;
    let mut pieces = vec![(start, first)];
    let mut at = start + first;
    while at < start + 4 * MIB {
        let here = PAGE.min(start + 4 * MIB - at);
        pieces.push((at, here));
        at += here;
    }
    pieces
}

#[test]
fn four_mebibytes_in_1025_segments() {
    let directory = on_disk();
    let shapes: [(&str, Direct, usize); 3] = [
        ("direct", Direct::Auto, 2048),
        ("bounced", Direct::Auto, 2052),
        ("buffered", Direct::Off, 2052),
    ];
    let host = Host::new(12 * MIB);
    for (name, direct, start) in shapes {
        let path = directory.path().join(name);
        let medium = open_file(&path, Some(8 * MIB as u64), direct);
        let mut runner = Runner::new(&medium, 2);
        let pieces = many_pieces(start);
        assert_eq!(pieces.len(), 1025);
        let data = pattern(5, 4 * MIB);
        host.put(start, &data);
        assert_eq!(
            runner.run(&host, &write(MIB as u64, 4 * MIB), &pieces),
            Outcome::OK,
            "{name}"
        );

        let mut found = vec![0; 8 * MIB];
        File::open(&path)
            .and_then(|file| file.read_exact_at(&mut found, 0))
            .expect("read");
        assert!(found[MIB..5 * MIB] == data, "{name}: the file holds it");
        assert!(
            found[..MIB]
                .iter()
                .chain(&found[5 * MIB..])
                .all(|byte| *byte == 0),
            "{name}: and nothing else"
        );

        host.put(start, &vec![0; 4 * MIB]);
        assert_eq!(
            runner.run(&host, &read(MIB as u64, 4 * MIB), &pieces),
            Outcome::OK,
            "{name}"
        );
        assert!(
            host.get(start, 4 * MIB) == data,
            "{name}: and gives it back"
        );
        let compare = Request::Compare {
            offset: MIB as u64,
            len: 4 * MIB as u32,
        };
        assert_eq!(runner.run(&host, &compare, &pieces), Outcome::OK, "{name}");
        host.put(start + 4 * MIB - 1, &[data[4 * MIB - 1] ^ 1]);
        assert_eq!(
            runner.run(&host, &compare, &pieces).cause,
            Cause::CompareMismatch,
            "{name}"
        );
    }
}

#[test]
fn more_segments_than_there_can_be_are_refused() {
    let directory = on_disk();
    let medium = open_file(
        &directory.path().join("disk.img"),
        Some(2 * MIB as u64),
        Direct::Auto,
    );
    let host = Host::new(2 * MIB);
    let mut runner = Runner::new(&medium, 1);
    let pieces: Vec<_> = (0..1281).map(|n| (n * 1024, 512)).collect();
    assert_eq!(
        runner.run(&host, &read(0, 1281 * 512), &pieces).cause,
        Cause::Unsupported
    );
}

#[test]
fn null_leaves_buffers_and_takes_everything() {
    let medium = Medium::open(&MediumSpec {
        kind: MediumKind::Null { size: MIB as u64 },
    })
    .expect("opened");
    let host = Host::new(MIB);
    let data = pattern(9, 64 << 10);
    host.put(0, &data);
    let mut runner = Runner::new(&medium, 1);
    let ranges = [ByteRange {
        offset: 0,
        len: 4096,
    }];
    for request in [
        read(0, 64 << 10),
        write(0, 64 << 10),
        Request::Compare {
            offset: 0,
            len: 64 << 10,
        },
        Request::WriteZeroes {
            offset: 0,
            len: 4096,
            deallocate: true,
            fua: true,
        },
        Request::Deallocate { ranges: &ranges },
        Request::Flush,
    ] {
        assert_eq!(runner.run(&host, &request, &[(0, 64 << 10)]), Outcome::OK);
    }
    assert!(host.get(0, 64 << 10) == data);
    assert!(runner.channel.wait_fd().is_none() && !runner.channel.is_due());
}

#[test]
fn ram_refuses_what_does_not_fit() {
    let medium = ram(MIB as u64);
    let host = Host::new(MIB);
    let mut runner = Runner::new(&medium, 1);
    let ranges = [ByteRange {
        offset: MIB as u64 - 512,
        len: 1024,
    }];
    for request in [
        read(MIB as u64, 512),
        write(u64::MAX - 511, 512),
        read(0, 1024), // and one segment of 512
        Request::Compare {
            offset: MIB as u64,
            len: 512,
        },
        Request::WriteZeroes {
            offset: 512,
            len: MIB as u64,
            deallocate: false,
            fua: false,
        },
        Request::WriteZeroes {
            offset: 512,
            len: u64::MAX,
            deallocate: true,
            fua: false,
        },
        Request::Deallocate { ranges: &ranges },
    ] {
        assert_eq!(
            runner.run(&host, &request, &[(0, 512)]).cause,
            Cause::Unsupported,
            "{request:?}"
        );
    }
}

#[test]
fn reactors_share_a_medium() {
    let directory = on_disk();
    for medium in [
        ram(MIB as u64),
        open_file(
            &directory.path().join("disk.img"),
            Some(MIB as u64),
            Direct::Auto,
        ),
    ] {
        let host = Host::new(MIB);
        let data = pattern(3, 8192);
        host.put(0, &data);
        assert_eq!(
            Runner::new(&medium, 1).run(&host, &write(4096, 8192), &[(0, 8192)]),
            Outcome::OK
        );
        // A channel made here works on the thread that uses it.
        let mut other = Runner::new(&medium, 1);
        let host = std::thread::spawn(move || {
            assert_eq!(
                other.run(&host, &read(4096, 8192), &[(65536, 8192)]),
                Outcome::OK
            );
            host
        })
        .join()
        .expect("the other reactor");
        assert!(host.get(65536, 8192) == data);
    }
}

#[test]
fn a_channel_dropped_on_another_thread_does_not_keep_the_lock() {
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    for _ in 0..20 {
        let medium = open_file(&path, Some(MIB as u64), Direct::Auto);
        let mut runner = Runner::new(&medium, 1);
        drop(medium);
        let used = std::thread::spawn(move || {
            let host = Host::new(MIB);
            assert_eq!(
                runner.run(&host, &write(0, 4096), &[(0, 4096)]),
                Outcome::OK
            );
            runner
        });
        drop(used.join().expect("the reactor"));
    }
}

#[test]
fn a_full_channel_takes_nothing_and_goes_on_after_a_reap() {
    let directory = on_disk();
    let medium = open_file(
        &directory.path().join("disk.img"),
        Some(MIB as u64),
        Direct::Auto,
    );
    let host = Host::new(MIB);
    let mut runner = Runner::new(&medium, 3);
    for n in 0..3 {
        assert!(
            runner
                .try_add(&host, &read(n * 4096, 4096), &[(n as usize * 4096, 4096)])
                .is_some()
        );
    }
    assert!(runner.try_add(&host, &Request::Flush, &[]).is_none());
    assert_eq!(runner.channel.in_flight(), 3);
    assert_eq!(runner.drain().len(), 3);
    assert!(runner.try_add(&host, &Request::Flush, &[]).is_some());
    assert_eq!(runner.drain().len(), 1);
}

#[test]
fn the_same_file_blocks_are_freed_and_kept() {
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    let medium = open_file(&path, Some(8 * MIB as u64), Direct::Auto);
    assert!(
        medium.traits().deallocate,
        "the build folder's file system punches holes"
    );
    let host = Host::new(4 * MIB);
    let mut runner = Runner::new(&medium, 4);
    let blocks = || std::fs::metadata(&path).expect("there").blocks() as usize * 512;
    let fill = |runner: &mut Runner| {
        host.put(0, &pattern(1, 4 * MIB));
        assert_eq!(
            runner.run(&host, &write(0, 4 * MIB), &[(0, 4 * MIB)]),
            Outcome::OK
        );
        assert_eq!(runner.run(&host, &Request::Flush, &[]), Outcome::OK);
        assert!(blocks() >= 4 * MIB);
    };
    let reads_zero = |runner: &mut Runner, offset: usize| {
        assert_eq!(
            runner.run(&host, &read(offset as u64, MIB), &[(0, MIB)]),
            Outcome::OK
        );
        host.get(0, MIB).iter().all(|byte| *byte == 0)
    };

    fill(&mut runner);
    let ranges = [0, 2].map(|n| ByteRange {
        offset: n * MIB as u64,
        len: MIB as u64,
    });
    assert_eq!(
        runner.run(&host, &Request::Deallocate { ranges: &ranges }, &[]),
        Outcome::OK
    );
    assert!(
        blocks() <= 2 * MIB + (64 << 10),
        "{} bytes are allocated",
        blocks()
    );
    assert!(reads_zero(&mut runner, 0) && reads_zero(&mut runner, 2 * MIB));
    assert!(!reads_zero(&mut runner, MIB) && !reads_zero(&mut runner, 3 * MIB));

    fill(&mut runner);
    let mut zeroes = |deallocate, fua| {
        let request = Request::WriteZeroes {
            offset: 0,
            len: 4 * MIB as u64,
            deallocate,
            fua,
        };
        assert_eq!(runner.run(&host, &request, &[]), Outcome::OK);
        assert!((0..4).all(|n| reads_zero(&mut runner, n * MIB)));
    };
    zeroes(false, true);
    assert!(blocks() >= 4 * MIB, "the space is kept");
    zeroes(true, false);
    assert!(blocks() <= 64 << 10, "the space is given back");
    assert_eq!(
        std::fs::metadata(&path).expect("there").len(),
        8 * MIB as u64
    );
}

#[test]
fn zeroes_where_the_file_system_only_punches() {
    // tmpfs has no FALLOC_FL_ZERO_RANGE.
    let directory = in_memory();
    let path = directory.path().join("disk.img");
    let medium = open_file(&path, Some(4 * MIB as u64), Direct::Off);
    let host = Host::new(MIB);
    let mut runner = Runner::new(&medium, 2);
    for round in 0..2 {
        host.put(0, &pattern(round, MIB));
        assert_eq!(
            runner.run(&host, &write(512, MIB), &[(0, MIB)]),
            Outcome::OK
        );
        let request = Request::WriteZeroes {
            offset: 1024,
            len: MIB as u64 - 1024,
            deallocate: false,
            fua: true,
        };
        assert_eq!(runner.run(&host, &request, &[]), Outcome::OK);
        let mut found = vec![0; MIB + 1024];
        File::open(&path)
            .and_then(|file| file.read_exact_at(&mut found, 0))
            .expect("read");
        assert!(found[512..1024] == pattern(round, MIB)[..512]);
        assert!(found[1024..MIB].iter().all(|byte| *byte == 0));
        assert!(found[MIB..MIB + 512] == pattern(round, MIB)[MIB - 512..]);
        assert!(
            std::fs::metadata(&path).expect("there").blocks() as usize * 512 >= MIB,
            "written, not punched"
        );
    }
}

#[test]
fn a_file_cut_short_fails_and_never_grows_again() {
    let directory = on_disk();
    for (name, direct) in [("direct", Direct::Auto), ("buffered", Direct::Off)] {
        let path = directory.path().join(name);
        let medium = open_file(&path, Some(MIB as u64), direct);
        let host = Host::new(MIB);
        let mut runner = Runner::new(&medium, 4);
        assert_eq!(runner.run(&host, &write(0, MIB), &[(0, MIB)]), Outcome::OK);
        let other = File::options().write(true).open(&path).expect("opened");
        other.set_len(300_000).expect("cut");

        // Over the new end, at it, and past it.
        let reads = [(0, MIB), (299_520, 512), (300_032, 512), (MIB - 4096, 4096)];
        let all: Vec<_> = reads
            .iter()
            .map(|&(at, len)| runner.add(&host, &read(at as u64, len), &[(0, len)]))
            .collect();
        let ended = runner.drain();
        assert_eq!(ended.iter().map(|(id, _)| *id).collect::<Vec<_>>(), all);
        assert!(
            ended
                .iter()
                .all(|(_, outcome)| outcome.cause == Cause::ReadFailed),
            "{name}: {ended:?}"
        );

        let zeroes = Request::WriteZeroes {
            offset: 0,
            len: MIB as u64,
            deallocate: false,
            fua: false,
        };
        for request in [
            write(MIB as u64 - 4096, 4096),
            write(0, 4096),
            zeroes,
            Request::Flush,
        ] {
            assert_eq!(
                runner.run(&host, &request, &[(0, 4096)]).cause,
                Cause::WriteFailed,
                "{name}"
            );
        }
        assert!(medium.sync().is_err());
        assert_eq!(other.metadata().expect("there").len(), 300_000, "{name}");
    }
}

#[test]
fn a_write_is_the_first_to_meet_a_file_cut_short() {
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    let medium = open_file(&path, Some(MIB as u64), Direct::Auto);
    let host = Host::new(MIB);
    let mut runner = Runner::new(&medium, 4);
    assert_eq!(runner.run(&host, &Request::Flush, &[]), Outcome::OK);
    File::options()
        .write(true)
        .open(&path)
        .and_then(|file| file.set_len(4096))
        .expect("cut");
    let (first, second) = (
        runner.add(&host, &write(MIB as u64 - 4096, 4096), &[(0, 4096)]),
        runner.add(&host, &read(0, 4096), &[(8192, 4096)]),
    );
    let ended: Vec<_> = runner
        .drain()
        .into_iter()
        .map(|(id, outcome)| (id, outcome.cause))
        .collect();
    assert_eq!(
        ended,
        [(first, Cause::WriteFailed), (second, Cause::ReadFailed)]
    );
    assert_eq!(std::fs::metadata(&path).expect("there").len(), 4096);
}

/// A tmpfs of one mebibyte, in a mount namespace of its own that ends with its process.
struct SmallDisk {
    holder: Child,
    _directory: tempfile::TempDir,
    path: std::path::PathBuf,
}

impl SmallDisk {
    fn new() -> SmallDisk {
        let directory = on_disk();
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        let mut holder = command
            .args([
                "--mount",
                "sh",
                "-c",
                "mount -t tmpfs -o size=1m none \"$1\" && echo ready && cat",
                "sh",
            ])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line");
        assert_eq!(line, "ready\n", "a small tmpfs is mounted");
        let inside = directory.path().canonicalize().expect("a path");
        let path = format!("/proc/{}/root{}", holder.id(), inside.display()).into();
        SmallDisk {
            holder,
            _directory: directory,
            path,
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

#[test]
fn a_full_disk_says_so_and_reads_go_on() {
    let disk = SmallDisk::new();
    let medium = open_file(
        &disk.path.join("disk.img"),
        Some(8 * MIB as u64),
        Direct::Auto,
    );
    let host = Host::new(2 * MIB);
    let data = pattern(4, 2 * MIB);
    host.put(0, &data);
    let mut runner = Runner::new(&medium, 2);
    assert_eq!(
        runner.run(&host, &write(0, MIB / 2), &[(0, MIB / 2)]),
        Outcome::OK
    );
    let full = Outcome {
        cause: Cause::NoSpace,
        os_error: NonZeroI32::new(libc::ENOSPC),
        ..Outcome::OK
    };
    assert_eq!(
        runner.run(&host, &write(MIB as u64, 2 * MIB), &[(0, 2 * MIB)]),
        full
    );
    assert_eq!(
        runner.run(&host, &read(0, MIB / 2), &[(MIB, MIB / 2)]),
        Outcome::OK
    );
    assert!(host.get(MIB, MIB / 2) == data[..MIB / 2]);
    // Space that comes back can be used.
    let ranges = [ByteRange {
        offset: MIB as u64,
        len: 2 * MIB as u64,
    }];
    assert_eq!(
        runner.run(&host, &Request::Deallocate { ranges: &ranges }, &[]),
        Outcome::OK
    );
    assert_eq!(
        runner.run(&host, &write(MIB as u64, 4096), &[(0, 4096)]),
        Outcome::OK
    );
}

#[test]
fn a_channel_dropped_in_flight_waits_and_lets_go_of_everything() {
    let directory = on_disk();
    let path = directory.path().join("disk.img");
    let data = pattern(7, 8 * MIB);
    std::fs::write(&path, &data).expect("written");
    File::open(&path)
        .and_then(|file| file.sync_all())
        .expect("synced");
    let host = Host::new(8 * MIB);
    let views = Arc::strong_count(&host.view);
    for submitted in [false, true] {
        let medium = open_file(&path, None, Direct::Auto);
        let mut runner = Runner::new(&medium, 8);
        for n in 0..8 {
            runner.add(&host, &read((n * MIB) as u64, MIB), &[(n * MIB, MIB)]);
        }
        assert_eq!(
            Arc::strong_count(&host.view),
            views + 1,
            "pinned once for all of them"
        );
        if submitted {
            runner.channel.submit();
        }
        drop(medium);
        drop(runner);
        assert_eq!(Arc::strong_count(&host.view), views);
        // Requests that the kernel had were done before the memory was released; the rest was not
        // begun.
        let expected = if submitted { &data } else { &vec![0; 8 * MIB] };
        assert!(host.get(0, 8 * MIB) == *expected);
    }
    open_file(&path, None, Direct::Auto);
}

#[test]
fn views_are_pinned_as_long_as_their_commands() {
    let directory = on_disk();
    let medium = open_file(
        &directory.path().join("disk.img"),
        Some(MIB as u64),
        Direct::Auto,
    );
    let mut runner = Runner::new(&medium, 4);
    let hosts = [Host::new(MIB), Host::new(MIB)];
    let idle = hosts.each_ref().map(|host| Arc::strong_count(&host.view));
    for host in &hosts {
        runner.add(host, &read(0, 4096), &[(4, 4096)]);
    }
    runner.add(&hosts[0], &read(0, 4096), &[(8192, 4096)]);
    assert_eq!(
        hosts.each_ref().map(|host| Arc::strong_count(&host.view)),
        idle.map(|count| count + 1)
    );
    assert!(
        runner
            .drain()
            .iter()
            .all(|(_, outcome)| *outcome == Outcome::OK)
    );
    assert_eq!(
        hosts.each_ref().map(|host| Arc::strong_count(&host.view)),
        idle
    );
}

#[test]
fn commands_on_a_file_in_memory_take_turns_with_what_else_a_reactor_does() {
    let directory = in_memory();
    let path = directory.path().join("disk.img");
    let medium = open_file(&path, Some(2 * MIB as u64), Direct::Auto);
    let host = Host::new(2 * MIB);
    let mut runner = Runner::new(&medium, 16);
    let data = pattern(9, 2 * MIB);
    host.put(0, &data);
    let piece = MIB / 8;
    for n in 0..16 {
        let at = n * piece;
        runner.add(&host, &write(at as u64, piece), &[(at, piece)]);
    }
    let mut turns = 0;
    while runner.channel.in_flight() > 0 {
        let before = runner.channel.in_flight();
        runner.channel.submit();
        runner.reap();
        turns += 1;
        let ended = before - runner.channel.in_flight();
        assert!((1..=4).contains(&ended), "{ended} of 128 KiB in one turn");
        assert_eq!(runner.channel.is_due(), runner.channel.in_flight() > 0);
    }
    assert!(turns >= 4);
    assert!(
        runner
            .drain()
            .iter()
            .all(|(_, outcome)| *outcome == Outcome::OK)
    );
    assert!(std::fs::read(&path).expect("read") == data);
}
