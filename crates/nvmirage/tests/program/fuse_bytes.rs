//! Bytes of mounted drives under many hands: unaligned writes, holes and reads at the same time,
//! against copies in memory.
//!
//! Every thread has a file of its own. A thread that hangs is left behind: the test fails, and the
//! end of the server frees it.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::Signal;

use crate::world::{BOUND, Server, World, names, wait};

const KIB: usize = 1 << 10;
/// Fill byte before the test: no writer writes it.
const BEFORE: u8 = 0xf5;

fn world() -> World {
    let world = World::new();
    std::fs::create_dir(world.path("drive")).unwrap();
    world
}

/// Serves a drive with blocks of that size, and commands of at most so many bytes.
fn serve(world: &World, lba_size: u32, max_transfer: &str) -> (Server, PathBuf) {
    let drive = world.path("drive");
    let config = format!(
        r#"
        [[media]]
        name = "disk"
        kind = "ram"
        size = "32MiB"
        [[namespace]]
        name = "disk"
        media = "disk"
        lba_size = {lba_size}
        [[controller]]
        name = "host"
        namespaces = ["disk"]
        listen = "fuse:{}"
        max_transfer = "{max_transfer}"
        "#,
        drive.display()
    );
    let file = world.write("config.toml", &config);
    let server = world.serve(&["--config", file.to_str().unwrap()]);
    (server, drive.join("ns1"))
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).open(path).unwrap()
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

/// Does that in as many threads, beginning together; what each gives. Waits for [`BOUND`] at most.
fn at_once<T: Send + 'static>(
    threads: usize,
    work: impl Fn(usize) -> T + Clone + Send + 'static,
) -> Vec<T> {
    let begin = Arc::new(Barrier::new(threads));
    let (done, results) = mpsc::channel();
    for thread in 0..threads {
        let (begin, done, work) = (begin.clone(), done.clone(), work.clone());
        thread::spawn(move || {
            begin.wait();
            let _ = done.send((thread, work(thread)));
        });
    }
    drop(done);
    let result = |_| {
        results
            .recv_timeout(BOUND)
            .expect("a thread hangs or panicked")
    };
    let mut results: Vec<_> = (0..threads).map(result).collect();
    results.sort_by_key(|(thread, _)| *thread);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Makes a range zero.
fn zero(file: &File, punches: bool, offset: usize, len: usize) {
    let flags = if punches {
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE
    } else {
        FallocateFlags::ZERO_RANGE
    };
    fallocate(file, flags, offset as u64, len as u64).unwrap();
}

/// Lengths of the pieces that a region is divided into: parts of blocks, whole blocks, more than a
/// command.
const PIECES: [usize; 8] = [512, 13, 1000, 4096, 300, 20_000, 3, 7000];
const REGION: usize = 2048 * KIB;
const OWNERS: usize = 6;

/// Pieces of the region, by their owner; the last list is of pieces without one.
fn pieces() -> Vec<Vec<(usize, usize)>> {
    let mut owned = vec![Vec::new(); OWNERS + 1];
    let mut at = 0;
    for index in 0.. {
        let len = PIECES[index % PIECES.len()];
        if at + len > REGION {
            return owned;
        }
        owned[index * 5 % (OWNERS + 1)].push((at, len));
        at += len;
    }
    unreachable!()
}

/// One thread's writes, holes and reads in its own pieces, each read compared; what the pieces hold
/// at last.
fn own(path: &Path, pieces: &[(usize, usize)], seed: usize) -> Vec<(usize, Vec<u8>)> {
    let file = open(path);
    let mut random = Random(seed as u64 * 0x9e37_79b9 + 1);
    let mut all: Vec<_> = pieces
        .iter()
        .map(|&(at, len)| (at, vec![BEFORE; len]))
        .collect();
    for round in 0..600 {
        // mostly a few, so that neighbours meet in the same blocks
        let most = if round % 4 == 0 { all.len() } else { 24 };
        let (at, bytes) = &mut all[random.below(most)];
        let from = random.below(bytes.len());
        let len = 1 + random.below(bytes.len() - from);
        let (offset, part) = (*at + from, &mut bytes[from..from + len]);
        match random.below(10) {
            kind @ 0..2 => {
                zero(&file, kind == 0, offset, len);
                part.fill(0);
            }
            2..5 => {
                let mut read = vec![0xa5; len];
                file.read_exact_at(&mut read, offset as u64).unwrap();
                assert!(
                    read == part,
                    "thread {seed}: {len} bytes at {offset} differ"
                );
            }
            _ => {
                part.fill_with(|| random.below(256) as u8);
                file.write_all_at(part, offset as u64).unwrap();
            }
        }
        if round % 100 == 99 {
            file.sync_data().unwrap();
        }
    }
    all
}

#[test]
fn writers_of_parts_of_the_same_blocks_do_not_change_each_others_bytes() {
    for (lba_size, max_transfer) in [(4096, "1MiB"), (512, "1MiB"), (4096, "8KiB")] {
        let world = world();
        let (server, path) = serve(&world, lba_size, max_transfer);
        let file = open(&path);
        file.write_all_at(&vec![BEFORE; REGION + 64 * KIB], 0)
            .unwrap();
        let owned = Arc::new(pieces());
        let ends = {
            let path = path.clone();
            at_once(OWNERS, move |thread| own(&path, &owned[thread], thread))
        };
        let mut expected = vec![BEFORE; REGION + 64 * KIB];
        for (at, bytes) in ends.into_iter().flatten() {
            expected[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        let mut found = vec![0; expected.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        let differs = (0..found.len()).find(|&at| found[at] != expected[at]);
        assert_eq!(
            differs, None,
            "blocks of {lba_size}, commands of {max_transfer}"
        );
        drop(file);
        server.stop();
    }
}

#[test]
fn bytes_that_many_write_are_one_of_what_was_written() {
    const SHARED: usize = 40 * KIB;
    for lba_size in [4096, 512] {
        let world = world();
        let (server, path) = serve(&world, lba_size, "64KiB");
        let file = open(&path);
        file.write_all_at(&vec![BEFORE; 3 * SHARED], 0).unwrap();
        let its = path.clone();
        at_once(8, move |thread| {
            let file = open(&its);
            let mut random = Random(thread as u64 + 77);
            for round in 0..400 {
                let offset = random.below(SHARED);
                let most = [600, 5000, SHARED][round % 3].min(SHARED - offset);
                let len = 1 + random.below(most);
                match random.below(8) {
                    0 => zero(&file, true, SHARED + offset, len),
                    1 | 2 => {
                        let mut read = vec![0xa5; len];
                        file.read_exact_at(&mut read, (SHARED + offset) as u64)
                            .unwrap();
                        let known = |byte: &u8| *byte <= 8 || *byte == BEFORE;
                        assert!(read.iter().all(known), "{len} bytes at {offset}");
                    }
                    _ => {
                        let bytes = vec![1 + thread as u8; len];
                        file.write_all_at(&bytes, (SHARED + offset) as u64).unwrap();
                    }
                }
            }
        });
        let mut found = vec![0; 3 * SHARED];
        file.read_exact_at(&mut found, 0).unwrap();
        let (before, rest) = found.split_at(SHARED);
        let (shared, after) = rest.split_at(SHARED);
        assert!(shared.iter().all(|byte| *byte <= 8 || *byte == BEFORE));
        assert!(before.iter().chain(after).all(|byte| *byte == BEFORE));
        drop(file);
        server.stop();
    }
}

#[test]
fn small_writers_far_from_each_other_write_what_they_write() {
    const APART: usize = 64 * KIB;
    let world = world();
    let disk = "ram:size=32MiB";
    let listen = format!("fuse:{}", world.path("drive").display());
    let server = world.serve(&["--media", disk, "--listen", &listen]);
    let path = world.path("drive/ns1");
    let file = open(&path);
    file.write_all_at(&vec![BEFORE; 5 * APART], 0).unwrap();
    at_once(4, move |thread| {
        let file = open(&path);
        for round in 0..1500_usize {
            let bytes = [round as u8; 512];
            file.write_all_at(&bytes, (thread * APART + 512) as u64)
                .unwrap();
        }
    });
    let mut found = vec![0; 5 * APART];
    file.read_exact_at(&mut found, 0).unwrap();
    for (at, byte) in found.into_iter().enumerate() {
        let is_written = at < 4 * APART && (512..1024).contains(&(at % APART));
        let expected = if is_written { 1499_usize as u8 } else { BEFORE };
        assert_eq!(byte, expected, "at {at}");
    }
    drop(file);
    server.stop();
}

#[test]
fn writes_that_end_behind_the_end_are_cut_there() {
    let world = world();
    let (server, path) = serve(&world, 4096, "64KiB");
    let file = open(&path);
    let size = file.metadata().unwrap().len();
    file.write_all_at(&[BEFORE; 8192], size - 8192).unwrap();
    assert_eq!(file.write_at(&[1; 5000], size - 100).unwrap(), 100);
    // more than a command, from the inside of a block
    assert_eq!(
        file.write_at(&vec![2; 400 * KIB], size - 100 * 1024 - 7)
            .unwrap(),
        100 * KIB + 7
    );
    let mut found = vec![0; 100 * KIB + 8];
    file.read_exact_at(&mut found, size - 100 * 1024 - 8)
        .unwrap();
    assert_eq!(found[0], 0);
    assert!(found[1..].iter().all(|byte| *byte == 2));
    let mut appends = OpenOptions::new().append(true).open(&path).unwrap();
    let error = std::io::Write::write(&mut appends, &[1]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(28), "ENOSPC");
    // a hole goes to the end, and no further
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, holes, size - 5000, 100_000).unwrap();
    let mut found = vec![0; 5001];
    file.read_exact_at(&mut found, size - 5001).unwrap();
    assert_eq!((found[0], found[1..].iter().max()), (2, Some(&0)));
    assert_eq!(file.metadata().unwrap().len(), size);
    drop((file, appends));
    server.stop();
}

#[test]
fn who_writes_to_a_drive_that_is_lost_gets_an_error_and_the_folder_is_free() {
    let world = world();
    let mut server = world.serve_media("ram:size=32MiB");
    let (target, drive) = (world.vfio_user("nvme.sock"), world.path("drive"));
    let mut command = world.program();
    command.args(["mount", "--target", &target]).arg(&drive);
    let mut mounted = Server::start(command, world.path("mount.log"));
    let path = drive.join("ns1");
    let (wrote, is_writing) = mpsc::channel();
    let writers = thread::spawn(move || {
        at_once(4, move |thread| {
            let file = open(&path);
            let mut writes = 0_u32;
            while file.write_at(&[9; 512], (thread * 600) as u64).is_ok() {
                writes += 1;
                if writes == 20 {
                    wrote.send(()).unwrap();
                }
            }
            file
        })
    });
    (0..4).for_each(|_| is_writing.recv_timeout(BOUND).unwrap());
    server.signal(Signal::KILL);
    wait(server.child());
    // they keep their files open, and all of it ends all the same
    let files = writers.join().unwrap();
    assert_eq!(wait(mounted.child()).code(), Some(1));
    assert_eq!(
        mounted.log().matches("is lost").count(),
        2,
        "{}",
        mounted.log()
    );
    assert!(names(&drive).is_empty());
    assert!(
        files
            .iter()
            .all(|file| file.write_at(&[9; 512], 0).is_err())
    );
}

#[test]
fn a_copy_of_the_mount_in_another_mount_namespace_does_not_keep_the_server() {
    // as a container that was started meanwhile; making one needs root
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let world = world();
    let (server, path) = serve(&world, 4096, "64KiB");
    let script = format!(
        "exec 3<>{0}; echo ready; while dd bs=512 count=1 <&3 >&3; do sleep 0.01; done; exec sleep 90",
        path.display()
    );
    let mut other = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = [0; 5];
    other
        .stdout
        .as_mut()
        .unwrap()
        .read_exact(&mut ready)
        .unwrap();
    // It ends in time, or this fails.
    server.stop();
    assert!(names(&world.path("drive")).is_empty());
    other.kill().unwrap();
    wait(&mut other);
}

/// Runs the exerciser of file systems on a file, without what changes its size; `holes` is how
/// often it punches some, where reads are 10.
pub(crate) fn fsx(world: &World, file: &Path, seed: &str, holes: u32) {
    let rules = format!(
        r#"
        blockmode = true
        flen = 4194304
        [opsize]
        max = 300000
        [weights]
        close_open = 0
        truncate = 0
        posix_fallocate = 0
        read = 10
        write = 10
        punch_hole = {holes}
        fsync = 1
        fdatasync = 1
        mapread = 0
        mapwrite = 0
        invalidate = 0
        "#
    );
    let rules = world.write("fsx.toml", &rules);
    let mut fsx = Command::new("fsx");
    fsx.args(["-N", "2000", "-S", seed, "-P"])
        .arg(world.path(""));
    let output = fsx.arg("-f").arg(&rules).arg(file).output();
    let output =
        output.expect("no fsx: cargo xtask setup fetches it, cargo xtask test has it on its PATH");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn fsx_finds_no_difference() {
    let world = world();
    for (lba_size, seed) in [(4096, "4096"), (512, "512")] {
        let (server, path) = serve(&world, lba_size, "128KiB");
        fsx(&world, &path, seed, 3);
        server.stop();
    }
}
