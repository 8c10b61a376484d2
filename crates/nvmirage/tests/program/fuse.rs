//! Drives as files of this machine.
//!
//! Needs /dev/fuse and the right to mount: as root, or with fusermount3.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::process::Signal;

use crate::world::{BOUND, Server, World, names, wait};

const MIB: u64 = 1 << 20;

/// A world with a folder to mount at.
fn world() -> World {
    assert!(
        fs::metadata("/dev/fuse").is_ok(),
        "there is no /dev/fuse, which these tests need: load the kernel's module (modprobe fuse)"
    );
    let world = World::new();
    fs::create_dir(world.path("drive")).unwrap();
    world
}

fn listen(world: &World) -> String {
    format!("fuse:{}", world.path("drive").display())
}

fn serve(world: &World, media: &[&str]) -> Server {
    let media = media.iter().flat_map(|media| ["--media", *media]);
    let listen = listen(world);
    let args: Vec<&str> = media.chain(["--listen", &listen]).collect();
    let server = world.serve(&args);
    assert!(
        server.first_line.starts_with("ready: fuse:"),
        "{}",
        server.first_line
    );
    server
}

fn open(world: &World, name: &str) -> File {
    let path = world.path("drive").join(name);
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap()
}

/// Bytes that differ from place to place.
fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.flat_map(u64::to_le_bytes).take(len).collect()
}

fn read_at(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xa5; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Writes, reads and holes of every alignment, compared with the same done in memory.
fn compare_with_memory(file: &File, seed: u64) {
    let len = 3 * MIB as usize;
    let mut expected = pattern(seed, len);
    file.write_all_at(&expected, 0).unwrap();
    let mut state = seed;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    for round in 0..200 {
        let most = [700, 5000, 70_000, 1 << 20][round % 4];
        let size = 1 + random(most);
        let offset = random(len - size);
        match round % 5 {
            0 => {
                let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, holes, offset as u64, size as u64).unwrap();
                expected[offset..offset + size].fill(0);
            }
            1 => {
                fallocate(file, FallocateFlags::ZERO_RANGE, offset as u64, size as u64).unwrap();
                expected[offset..offset + size].fill(0);
            }
            _ => {
                let bytes = pattern(round as u64, size);
                file.write_all_at(&bytes, offset as u64).unwrap();
                expected[offset..offset + size].copy_from_slice(&bytes);
            }
        }
        assert_eq!(
            read_at(file, offset as u64, size),
            expected[offset..offset + size]
        );
    }
    assert_eq!(read_at(file, 0, len), expected);
    file.sync_all().unwrap();
}

#[test]
fn namespaces_are_files_that_hold_what_is_written() {
    let world = world();
    let server = serve(&world, &["ram:size=64MiB", "ram:size=32MiB,lba_size=512"]);
    assert_eq!(names(&world.path("drive")), ["ns1", "ns2"]);
    let (one, two) = (open(&world, "ns1"), open(&world, "ns2"));
    let sizes = [&one, &two].map(|file| file.metadata().unwrap().size());
    assert_eq!(sizes, [64 * MIB, 32 * MIB]);
    compare_with_memory(&one, 1);
    compare_with_memory(&two, 2);
    // each is its own
    one.write_all_at(&[1; 4096], 8 * MIB).unwrap();
    assert_eq!(read_at(&two, 8 * MIB, 4096), [0; 4096]);
    // the end of the drive
    one.write_all_at(&[9; 512], 64 * MIB - 512).unwrap();
    let mut beyond = [0; 1024];
    assert_eq!(one.read_at(&mut beyond, 64 * MIB - 512).unwrap(), 512);
    assert_eq!(beyond[..512], [9; 512]);
    let error = one.write_at(&[1], 64 * MIB).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(28), "ENOSPC");
    drop((one, two));
    server.stop();
    assert!(names(&world.path("drive")).is_empty());
}

#[test]
fn files_are_neither_made_nor_removed_nor_resized() {
    let world = world();
    let server = serve(&world, &["ram:size=16MiB"]);
    let path = world.path("drive").join("ns1");
    let file = open(&world, "ns1");
    file.write_all_at(&[7; 4096], 0).unwrap();
    assert!(file.set_len(MIB).is_err());
    assert!(file.set_len(17 * MIB).is_err());
    file.set_len(16 * MIB).unwrap();
    assert!(fs::remove_file(&path).is_err());
    assert!(fs::write(world.path("drive").join("new"), "x").is_err());
    // as with a block device
    let truncated = OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    assert_eq!(truncated.metadata().unwrap().size(), 16 * MIB);
    assert_eq!(read_at(&file, 0, 4096), [7; 4096]);
    drop((file, truncated));
    server.stop();
}

#[test]
fn what_was_written_durably_is_on_the_medium() {
    let world = world();
    let disk = format!("file:path={},size=16MiB", world.path("disk.img").display());
    let server = serve(&world, &[&disk]);
    let file = open(&world, "ns1");
    let bytes = pattern(3, 100_000);
    file.write_all_at(&bytes, 4096).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let durable = OpenOptions::new()
        .write(true)
        .custom_flags(OFlags::DSYNC.bits().cast_signed())
        .open(world.path("drive").join("ns1"))
        .unwrap();
    durable.write_all_at(&[5; 4096], 2 * MIB).unwrap();
    drop(durable);
    server.stop();
    let medium = fs::read(world.path("disk.img")).unwrap();
    assert_eq!(medium[4096..4096 + bytes.len()], bytes);
    assert_eq!(medium[2 * MIB as usize..][..4096], [5; 4096]);

    let server = serve(&world, &[&disk]);
    assert_eq!(read_at(&open(&world, "ns1"), 4096, bytes.len()), bytes);
    server.stop();
}

#[test]
fn files_follow_namespaces_while_they_are_mounted() {
    let world = world();
    let config = format!(
        r#"
        [[media]]
        name = "disk"
        kind = "ram"
        size = "64MiB"
        [[namespace]]
        name = "a"
        media = "disk"
        range = "0MiB..16MiB"
        [[namespace]]
        name = "b"
        media = "disk"
        range = "32MiB..48MiB"
        [[controller]]
        name = "host"
        namespaces = ["a", "b"]
        listen = "{}"
        fuse = {{ allow_other = true, page_cache = true }}
        "#,
        listen(&world)
    );
    let file = world.write("config.toml", &config);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    let drive = world.path("drive");
    let size = || fs::metadata(drive.join("ns1")).unwrap().size();
    assert_eq!(size(), 16 * MIB);
    assert_eq!(
        fs::metadata(drive.join("ns1")).unwrap().mode() & 0o777,
        0o666
    );
    let one = open(&world, "ns1");
    one.write_all_at(&[3; 4096], 15 * MIB).unwrap();
    world.ok(&world.steer(&["resize", "a", "24MiB"]));
    await_that("the file did not grow", || size() == 24 * MIB);
    one.write_all_at(&[4; 4096], 23 * MIB).unwrap();
    assert_eq!(read_at(&one, 15 * MIB, 4096), [3; 4096]);
    assert_eq!(read_at(&one, 23 * MIB, 4096), [4; 4096]);

    let two = open(&world, "ns2");
    world.ok(&world.steer(&["detach", "b", "host", "--detach-hosts"]));
    await_that("the file did not go", || names(&drive) == ["ns1"]);
    two.write_all_at(&[1; 4096], 0)
        .and_then(|()| two.sync_all())
        .unwrap_err();
    world.ok(&world.steer(&["attach", "b", "host"]));
    await_that("the file did not come", || names(&drive) == ["ns1", "ns2"]);
    assert_eq!(read_at(&open(&world, "ns2"), 0, 4096), [0; 4096]);

    // in use, it stays
    let error = world.fails(&world.steer(&["delete", "controller", "host"]));
    assert!(error.contains("open file"), "{error}");
    assert_eq!(size(), 24 * MIB);
    drop((one, two));
    // a process in the folder uses no file, and the mount is busy all the same
    let mut inside = std::process::Command::new("sleep")
        .arg("60")
        .current_dir(&drive)
        .spawn()
        .unwrap();
    await_that("the files did not close", || {
        let error = world.fails(&world.steer(&["delete", "controller", "host"]));
        !error.contains("open file")
    });
    assert_eq!(names(&drive), ["ns1", "ns2"]);
    inside.kill().unwrap();
    inside.wait().unwrap();
    // the kernel tells of a close a moment later
    await_that("the controller did not go", || {
        let delete = world.steer(&["delete", "controller", "host"]);
        world.run(&delete).status.success()
    });
    assert!(names(&drive).is_empty());
    server.stop();
}

#[test]
fn a_reader_that_is_killed_leaves_the_drive_as_it_was() {
    let world = world();
    let server = serve(&world, &["ram:size=64MiB"]);
    let file = open(&world, "ns1");
    let bytes = pattern(4, 1 << 20);
    file.write_all_at(&bytes, 0).unwrap();
    for _ in 0..10 {
        let path: PathBuf = world.path("drive").join("ns1");
        let input = File::open(path).unwrap();
        let mut reader = Command::new("sh")
            .args([
                "-c",
                "while :; do dd bs=1M count=1 iflag=direct status=none; done",
            ])
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = [0; 4096];
        reader
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut first)
            .unwrap();
        reader.kill().unwrap();
        wait(&mut reader);
    }
    assert_eq!(read_at(&file, 0, bytes.len()), bytes);
    drop(file);
    server.stop();
}

#[test]
fn a_mount_of_a_killed_server_is_cleaned_by_the_next() {
    let world = world();
    let mut server = serve(&world, &["ram:size=16MiB"]);
    server.signal(Signal::KILL);
    wait(server.child());
    let dead = fs::read_dir(world.path("drive")).unwrap_err();
    assert_eq!(dead.raw_os_error(), Some(107), "ENOTCONN");
    drop(server);
    let server = serve(&world, &["ram:size=16MiB"]);
    assert_eq!(names(&world.path("drive")), ["ns1"]);
    assert!(
        server.log().contains("by a process that no longer exists"),
        "{}",
        server.log()
    );
    server.stop();
    assert!(names(&world.path("drive")).is_empty());
}

#[test]
fn a_server_that_stops_while_its_files_are_open_ends_all_the_same() {
    let world = world();
    let server = serve(&world, &["ram:size=16MiB"]);
    let file = open(&world, "ns1");
    file.write_all_at(&[1; 4096], 0).unwrap();
    server.stop();
    assert!(names(&world.path("drive")).is_empty());
    file.write_all_at(&[1; 4096], 0).unwrap_err();
}

#[test]
fn any_server_can_be_mounted() {
    let world = world();
    let mut server = world.serve_media("ram:size=16MiB");
    let (target, drive) = (world.vfio_user("nvme.sock"), world.path("drive"));
    let mount = |log: &str| {
        let mut command = world.program();
        command.args(["mount", "--target", &target]).arg(&drive);
        Server::start(command, world.path(log))
    };
    let mounted = mount("mount.log");
    let line = &mounted.first_line;
    assert!(
        line.starts_with("ready: ") && line.ends_with(": ns1 16MiB"),
        "{line}"
    );
    open(&world, "ns1").write_all_at(&[6; 5000], 100).unwrap();
    mounted.stop();
    assert!(names(&drive).is_empty());

    let mut mounted = mount("again.log");
    assert_eq!(read_at(&open(&world, "ns1"), 100, 5000), [6; 5000]);
    // without its server it is of no use
    server.signal(Signal::KILL);
    wait(server.child());
    assert_eq!(wait(mounted.child()).code(), Some(1));
    assert!(mounted.log().contains("is lost"), "{}", mounted.log());
    assert!(names(&drive).is_empty());
}

#[test]
fn what_cannot_be_mounted_says_why() {
    let world = world();
    let control = world.unix("control");
    let fails = |folder: &str| {
        let listen = format!("fuse:{}", world.path(folder).display());
        world.fails(&[
            "serve",
            "--media",
            "ram:size=16MiB",
            "--listen",
            &listen,
            "--control",
            &control,
        ])
    };
    assert!(fails("nowhere").contains("does not exist: create it"));
    world.write("file", "");
    assert!(fails("file").contains("is not a folder"));
    world.write("drive/in-the-way", "");
    assert!(fails("drive").contains("is not empty"));
    let ran = world.run(&["check", world.write("bad.toml", BAD).to_str().unwrap()]);
    assert!(
        ran.err.contains("fuse: only for a controller with listen"),
        "{}",
        ran.err
    );
}

const BAD: &str = r#"
[[controller]]
name = "a"
listen = "vfio-user:a.sock"
fuse = { page_cache = true }
"#;

#[test]
fn files_of_a_mount_are_not_made_or_removed_by_its_users() {
    let world = world();
    let server = serve(&world, &["ram:size=4MiB"]);
    let folder = world.path("drive");
    let (ours, other) = (folder.join("ns1"), folder.join("other"));
    for (what, ended) in [
        ("create", fs::write(&other, b"x")),
        ("mkdir", fs::create_dir(&other)),
        ("unlink", fs::remove_file(&ours)),
        ("rename", fs::rename(&ours, &other)),
        ("link", fs::hard_link(&ours, &other)),
        ("symlink", std::os::unix::fs::symlink(&ours, &other)),
    ] {
        let error = ended.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(1), "EPERM: {what}: {error}");
    }
    assert!(ours.exists() && !other.exists());
    server.stop();
}
