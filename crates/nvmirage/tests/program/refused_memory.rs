//! Memory of a host that the server cannot use: the host gets an error number, and the operator the
//! reason.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vfio_user::Client;
use vfio_user::message::DmaMapFlags;

use crate::world::{BOUND, World};

const SIZE: u64 = 2 << 20;

fn map(client: &mut Client, iova: u64, file: BorrowedFd<'_>) -> bool {
    let both = DmaMapFlags::READ | DmaMapFlags::WRITE;
    client.dma_map(iova, SIZE, both, Some((file, 0))).is_ok()
}

#[test]
fn memory_that_is_refused_is_logged_with_the_reason_and_does_not_fill_the_log() {
    let world = World::new();
    let server = world.serve_media("null:size=8MiB");
    let attach = || Client::connect(world.path("nvme.sock"), BOUND).unwrap();
    // A file on a disk, which has no seals.
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("memory.img");
    let on_disk = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path);
    let on_disk = on_disk.unwrap();
    on_disk.set_len(SIZE).unwrap();
    let mut client = attach();
    for _ in 0..10 {
        assert!(!map(&mut client, 0, on_disk.as_fd()));
    }
    // It serves on: memory that it can use is taken.
    let memory = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, SIZE).unwrap();
    assert!(map(&mut client, 0, memory.as_fd()));
    drop(client);
    let refused = |log: &str| {
        log.matches("the controller cannot access that memory")
            .count()
    };
    let log = server.log();
    assert_eq!(refused(&log), 3, "{log}");
    for word in [
        "nvme",
        path.to_str().unwrap(),
        "memory-backend-memfd",
        "tmpfs or hugetlbfs",
    ] {
        assert!(log.contains(word), "{word} in {log}");
    }
    // The server logs what it refuses the next host, too, also where the range is the trouble.
    let deadline = Instant::now() + BOUND;
    while refused(&server.log()) < 4 {
        assert!(Instant::now() < deadline, "{}", server.log());
        let mut client = attach();
        assert!(map(&mut client, 0, memory.as_fd()));
        assert!(!map(&mut client, 4096, memory.as_fd()));
    }
    assert!(server.log().contains("overlap"), "{}", server.log());
    server.stop();
    std::fs::remove_file(path).unwrap();
}
