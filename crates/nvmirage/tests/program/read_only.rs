//! Media that take no writes: files and block devices that are read-only, from the start or while
//! they are served.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use driver::DriverError;
use nvme_spec::Status;

use crate::host::Host;
use crate::world::{BOUND, World};

const SIZE: u64 = 8 << 20;

/// A loop device over a file of the world's; root makes one.
struct Loop(PathBuf);

impl Loop {
    /// `None` where this user, or this machine, has none.
    fn new(file: &Path, options: &[&str]) -> Option<Self> {
        let made = Command::new("losetup")
            .args(options)
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()
            .filter(|made| made.status.success())?;
        let device = String::from_utf8(made.stdout).unwrap();
        let made = Loop(device.trim().into());
        if !options.contains(&"--read-only") {
            // A test that was killed may have left it read-only.
            made.set("--setrw");
        }
        Some(made)
    }

    fn set(&self, option: &str) {
        let set = Command::new("blockdev").arg(option).arg(&self.0).status();
        assert!(set.unwrap().success(), "blockdev {option}");
    }

    fn media(&self, rest: &str) -> String {
        format!("file:path={}{rest}", self.0.display())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
    }
}

/// A file whose every block has a byte of its own kind.
fn image(world: &World) -> PathBuf {
    let path = world.path("disk.img");
    let file = File::create(&path).unwrap();
    file.set_len(SIZE).unwrap();
    file.write_all_at(&[0x5a; 4096], 0).unwrap();
    path
}

fn loop_device(world: &World, options: &[&str]) -> Option<Loop> {
    let device = Loop::new(&image(world), options);
    if device.is_none() {
        assert!(
            !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists(),
            "root could not make a loop device"
        );
    }
    device
}

/// The status of a write of one block.
fn write(host: &mut Host) -> Status {
    let device = host.device();
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(4, false).unwrap();
    let buffer = device.alloc(4096).unwrap();
    buffer.write_from(0, &[0xa5; 4096]);
    let written = queue.write(&namespace, 1, 1, &buffer, false);
    device.delete_queue_pair(queue).unwrap();
    match written {
        Ok(_) => Status::SUCCESSFUL_COMPLETION,
        Err(DriverError::Status { status, .. }) => status,
        Err(error) => panic!("{error}"),
    }
}

fn is_protected(host: &mut Host) -> bool {
    host.device().identify_namespace(1).unwrap().nsattr.cwp()
}

/// A host's findings: reads, no writes, and a namespace that reports it.
fn meets(world: &World) {
    let mut host = Host::attach(world, "nvme.sock");
    assert!(is_protected(&mut host));
    assert_eq!(host.block(1, 0), [0x5a; 4096]);
    assert_eq!(write(&mut host), Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE);
    assert_eq!(host.block(1, 1), [0; 4096]);
}

#[test]
fn a_read_only_device_is_refused_unless_it_is_to_be_served_write_protected() {
    let world = World::new();
    let Some(device) = loop_device(&world, &["--read-only"]) else {
        return;
    };
    let listen = world.vfio_user("nvme.sock");
    let serve = ["serve", "--media", &device.media(""), "--listen", &listen];
    let error = world.fails(&serve);
    for word in [
        "is not writable",
        "read_only = true",
        device.0.to_str().unwrap(),
    ] {
        assert!(error.contains(word), "{word} in {error}");
    }
    let server = world.serve_media(&device.media(",read_only=true"));
    meets(&world);
    server.stop();
}

#[test]
fn a_file_that_must_not_be_written_to_is_served_write_protected() {
    let world = World::new();
    let path = image(&world);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let media = format!("file:path={},read_only=true", path.display());
    let server = world.serve_media(&media);
    meets(&world);
    let shown = world.json(&world.steer(&["ls", "--json"]));
    assert!(shown.to_string().contains("\"read_only\":true"), "{shown}");
    server.stop();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
    // Nothing is made where there is nothing to read.
    let missing = format!(
        "file:path={},size=8MiB,read_only=true",
        world.path("none").display()
    );
    let listen = world.vfio_user("nvme.sock");
    let error = world.fails(&["serve", "--media", &missing, "--listen", &listen]);
    assert!(
        error.contains("read_only = true creates nothing"),
        "{error}"
    );
    assert!(!world.path("none").exists());
}

#[test]
fn a_device_that_becomes_read_only_while_it_is_served_is_write_protected_until_it_is_not() {
    let world = World::new();
    let Some(device) = loop_device(&world, &[]) else {
        return;
    };
    let server = world.serve_media(&device.media(""));
    let mut host = Host::attach(&world, "nvme.sock");
    assert!(!is_protected(&mut host));
    assert_eq!(write(&mut host), Status::SUCCESSFUL_COMPLETION);
    let deadline = Instant::now() + BOUND;
    for (option, protected) in [("--setro", true), ("--setrw", false)] {
        host.listen();
        device.set(option);
        if protected {
            // The first write finds out, and fails with the status that says so.
            assert_eq!(write(&mut host), Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE);
        }
        assert_eq!(host.changed(), [1], "{option}");
        assert_eq!(is_protected(&mut host), protected);
    }
    assert_eq!(write(&mut host), Status::SUCCESSFUL_COMPLETION);
    while !server.log().contains("accepts writes again") {
        assert!(Instant::now() < deadline, "{}", server.log());
        thread::sleep(Duration::from_millis(10));
    }
    let log = server.log();
    assert_eq!(log.matches("became read-only").count(), 1, "{log}");
    server.stop();
}

#[test]
fn a_mount_of_a_write_protected_drive_takes_no_writes() {
    let world = World::new();
    let path = image(&world);
    fs::create_dir(world.path("drive")).unwrap();
    let media = format!("file:path={},read_only=true", path.display());
    let listen = format!("fuse:{}", world.path("drive").display());
    let server = world.serve(&["--media", &media, "--listen", &listen]);
    let file = world.path("drive").join("ns1");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o400
    );
    let mut block = [0; 4096];
    File::open(&file)
        .unwrap()
        .read_exact_at(&mut block, 0)
        .unwrap();
    assert_eq!(block, [0x5a; 4096]);
    let error = OpenOptions::new().write(true).open(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
    server.stop();
}

#[test]
fn what_is_written_to_cannot_be_read_only() {
    let world = World::new();
    let path = image(&world);
    let check = |rest: &str, says: &str| {
        let config = format!(
            "[[media]]\nname = \"m\"\n{rest}\n[[controller]]\nname = \"c\"\nlisten = \"vfio-user:{}\"\npool = [\"m\"]\n",
            world.path("nvme.sock").display()
        );
        let file = world.write("config.toml", &config);
        let error = world.fails(&["check", file.to_str().unwrap()]);
        assert!(error.contains(says), "{says} in {error}");
    };
    let file = format!(
        "kind = \"file\"\npath = \"{}\"\nread_only = true",
        path.display()
    );
    check(&file, "is read_only, and hosts need to write");
    check(
        &format!("{file}\n[media.zoned]\nzone_size = \"2MiB\""),
        "zones write a log",
    );
    check(
        "kind = \"ram\"\nsize = \"8MiB\"\nread_only = true",
        "only kind = \"file\" has `read_only`",
    );
}
