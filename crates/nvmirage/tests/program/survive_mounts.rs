//! `serve --survive` with mounts: each is a process of its own, and a host that keeps its drive.
//!
//! Needs /dev/fuse and the right to mount: as root, or with fusermount3.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::survive::{replace, wait_for_log, worker};
use crate::world::{BOUND, Server, World};

const LEN: usize = 4 << 20;

fn serve(world: &World) -> Server {
    fs::create_dir(world.path("drive")).unwrap();
    let listen = format!("fuse:{}", world.path("drive").display());
    world.serve(&[
        "--survive",
        "--media",
        "ram:size=16MiB",
        "--listen",
        &listen,
    ])
}

fn file(world: &World) -> PathBuf {
    world.path("drive").join("ns1")
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).open(path).unwrap()
}

/// Processes of mounts at that folder.
fn mounts(world: &World) -> Vec<Pid> {
    let dir = world.path("drive").display().to_string();
    let is_mount = |words: &[&str]| words.contains(&"--of-server") && words.contains(&&*dir);
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let (Ok(pid), Ok(words)) = (name.parse(), fs::read(path.join("cmdline"))) else {
            continue;
        };
        let words = String::from_utf8_lossy(&words).into_owned();
        if is_mount(&words.split('\0').collect::<Vec<_>>()) {
            found.push(Pid::from_raw(pid).unwrap());
        }
    }
    found
}

fn is_mounted(world: &World) -> bool {
    let dir = format!(" {} ", world.path("drive").display());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.contains(&dir))
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + BOUND;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }
}

/// Reads and writes pieces at random, against a copy in memory, until it is to stop; how many.
fn exercise(file: &File, stop: &AtomicBool) -> usize {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut expected = vec![0; LEN];
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        let len = 1 + random.below(20_000);
        let at = random.below(LEN - len);
        if random.below(2) == 0 {
            let byte = random.below(256) as u8;
            let bytes: Vec<u8> = (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
            file.write_all_at(&bytes, at as u64).unwrap();
            expected[at..at + len].copy_from_slice(&bytes);
        } else {
            let mut read = vec![0; len];
            file.read_exact_at(&mut read, at as u64).unwrap();
            assert!(read == expected[at..at + len], "{len} bytes at {at}");
        }
        if random.below(64) == 0 {
            file.sync_all().unwrap();
        }
        count += 1;
    }
    let mut all = vec![0; LEN];
    file.read_exact_at(&mut all, 0).unwrap();
    assert!(all == expected);
    count
}

#[test]
fn a_file_in_a_mount_is_read_and_written_while_the_server_dies() {
    let world = World::new();
    let mut server = serve(&world);
    let stop = Arc::new(AtomicBool::new(false));
    let mounted = mounts(&world);
    assert_eq!(mounted.len(), 1);
    let work = thread::spawn({
        let (file, stop) = (open(&file(&world)), stop.clone());
        move || exercise(&file, &stop)
    });
    for _ in 0..4 {
        replace(&mut server);
        assert!(!work.is_finished(), "{}", server.log());
    }
    world.ok(&world.steer(&["upgrade"]));
    thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    let count = work.join().unwrap();
    assert!(count > 100, "{count}");
    // No second mount, and the one that is there is the first one.
    assert_eq!(mounts(&world), mounted);
    server.stop();
    assert_eq!(mounts(&world), []);
    assert!(!is_mounted(&world));
}

/// Another process of the server knows the mount as the one that has started it does.
#[test]
fn a_mount_is_ended_by_a_later_process() {
    let world = World::new();
    let mut server = serve(&world);
    replace(&mut server);
    let held = open(&file(&world));
    let said = world.fails(&world.steer(&["delete", "controller", "nvme0"]));
    assert!(said.contains("1 open file of its mount"), "{said}");
    held.write_all_at(&[7; 4096], 0).unwrap();
    drop(held);
    wait_until("the file stays open", || {
        let deleted = world.run(&world.steer(&["delete", "controller", "nvme0"]));
        deleted.status.success()
    });
    assert!(!is_mounted(&world));
    assert_eq!(mounts(&world), []);
    server.stop();
}

#[test]
fn a_mount_ends_with_the_holder() {
    let world = World::new();
    let server = serve(&world);
    let [mount] = mounts(&world)[..] else {
        panic!("there is one mount: {}", server.log())
    };
    server.signal(Signal::KILL);
    server.end();
    wait_until("the mount stays", || !is_mounted(&world));
    wait_until("its process stays", || test_kill_process(mount).is_err());
}

/// A mount that has ended is not started again: its folder may be another one's by then.
#[test]
fn a_mount_that_has_ended_leaves_the_rest_of_the_server_alone() {
    let world = World::new();
    let mut server = serve(&world);
    let [mount] = mounts(&world)[..] else {
        panic!("there is one mount: {}", server.log())
    };
    kill_process(mount, Signal::KILL).unwrap();
    replace(&mut server);
    wait_for_log(&server, "its mount at ", 1);
    worker(&mut server, None);
    assert!(!is_mounted(&world), "its folder is usable again");
    world.ok(&world.steer(&["delete", "controller", "nvme0", "--detach-hosts"]));
    server.stop();

    // A stop leaves none, either.
    let world = World::new();
    let server = serve(&world);
    let [mount] = mounts(&world)[..] else {
        panic!("there is one mount: {}", server.log())
    };
    kill_process(mount, Signal::KILL).unwrap();
    server.stop();
    assert!(!is_mounted(&world));
}
