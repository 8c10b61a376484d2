//! A host that takes its memory away: its controller fails, and nothing else does.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;
use tests_protocol::{Body, Drive, Host, Options, Server, cmd};

/// Controller Fatal Status.
const CFS: u32 = 1 << 1;

/// Bytes of the memory that is taken away.
const LEN: u64 = 1 << 20;

fn two() -> Server {
    crate::serve(&Options {
        controllers: 2,
        ..Options::default()
    })
}

/// Memory at address 0, beside that of a drive.
fn share(host: &mut Host) -> OwnedFd {
    let memory = rustix::fs::memfd_create("host", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, LEN).unwrap();
    host.dma_map(0, LEN, memory.as_fd());
    memory
}

fn wait_for_failure(host: &mut Host) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while host.read32(0, 0x1c) & CFS == 0 {
        assert!(Instant::now() < deadline, "the controller does not fail");
        std::thread::yield_now();
    }
}

/// An access to memory that is gone fails its own controller.
fn check(act: impl Fn(&mut Host, &mut Drive, &OwnedFd)) {
    let server = two();
    let mut host = Host::new(server.attach(0));
    let mut other = Host::new(server.attach(1));
    let mut drive = Drive::new(&mut host);
    let mut other_drive = Drive::new(&mut other);
    let memory = share(&mut host);
    act(&mut host, &mut drive, &memory);
    wait_for_failure(&mut host);
    host.expect_in_step();
    for lba in 0..100 {
        other_drive.transfer(&mut other, lba % 2 == 0, lba);
    }
    assert_eq!(other.read32(0, 0x1c) & CFS, 0);
    assert!(server.all_attached(), "it is no reason to end a session");
}

#[test]
fn data_that_are_gone_when_they_are_written_to() {
    check(|host, drive, memory| {
        rustix::fs::ftruncate(memory, 0).unwrap();
        drive.submit_at(host, false, 0, 0x8000);
    });
}

#[test]
fn data_that_are_gone_when_they_are_read() {
    check(|host, drive, memory| {
        rustix::fs::ftruncate(memory, 0x8000).unwrap();
        drive.submit_at(host, true, 0, 0x8000);
    });
}

#[test]
fn a_queue_that_is_gone() {
    check(|host, drive, memory| {
        drive.create_second_sq(host, 0x1_0000);
        rustix::fs::ftruncate(memory, 0).unwrap();
        host.region_write(0, 0x1010, &1_u32.to_le_bytes());
    });
}

#[test]
fn the_controller_serves_the_next_host() {
    let server = two();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    let memory = share(&mut host);
    rustix::fs::ftruncate(&memory, 0).unwrap();
    drive.submit_at(&mut host, false, 0, 0);
    wait_for_failure(&mut host);
    drop(host);
    let _ = server.wait_for_end(0);
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    drive.transfer(&mut host, true, 0);
    assert_eq!(host.read32(0, 0x1c) & CFS, 0);
}

#[test]
fn memory_that_is_gone_and_not_touched_does_no_harm() {
    let server = two();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    let memory = share(&mut host);
    rustix::fs::ftruncate(&memory, 0).unwrap();
    drive.transfer(&mut host, true, 0);
    let all = Body::new().u32(24).u32(0).u64(0).u64(LEN);
    assert_eq!(host.request(cmd::DMA_UNMAP, &all, &[]).ok(), all.0);
    drive.transfer(&mut host, false, 0);
    assert_eq!(host.read32(0, 0x1c) & CFS, 0);
}
