//! DMA_MAP: the host's memory, with and without a descriptor.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use tests_protocol::{Body, Drive, Host, Options, Reply, Server, cmd, drive, errno};

const READ: u32 = 1;
const WRITE: u32 = 1 << 1;

const PAGE: u64 = 4096;

fn server() -> Server {
    crate::serve(&Options::default())
}

fn memfd(len: u64) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("host", flags).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    fd
}

fn body(flags: u32, offset: u64, iova: u64, size: u64) -> Body {
    Body::new()
        .u32(32)
        .u32(flags)
        .u64(offset)
        .u64(iova)
        .u64(size)
}

fn map(host: &mut Host, body: &Body, fds: &[BorrowedFd<'_>]) -> Reply {
    host.request(cmd::DMA_MAP, body, fds)
}

fn expect_mapped(reply: Reply) {
    assert!(reply.fds.is_empty());
    assert!(reply.ok().is_empty(), "there is no payload in the reply");
}

#[test]
fn shared_memory_is_mapped_and_reached() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    drive.data().fill(0xc3);
    drive.transfer(&mut host, true, 0);
    drive.data().zero();
    drive.transfer(&mut host, false, 0);
    assert_eq!(drive.data().load_u32(0), 0xc3c3_c3c3);
}

#[test]
fn maps_may_be_sent_before_anything_is_asked_and_without_waiting() {
    // QEMU does: RAM with a descriptor, the firmware's ROM without one.
    let server = server();
    let mut host = Host::silent(server.attach(0));
    let ram = memfd(16 * PAGE);
    let version = host.send(cmd::VERSION, &Host::qemu_version(), &[]);
    let first = host.send(
        cmd::DMA_MAP,
        &body(READ | WRITE, 0, 0, 16 * PAGE),
        &[ram.as_fd()],
    );
    let second = host.send(cmd::DMA_MAP, &body(READ, 0, 0xfffc_0000, 0x4_0000), &[]);
    assert_eq!(host.receive().id, version);
    for id in [first, second] {
        let reply = host.receive();
        assert_eq!(reply.id, id);
        expect_mapped(reply);
    }
}

#[test]
fn memory_without_a_descriptor_is_accepted() {
    // Also our own doorbells, which QEMU maps back to us for the sake of other devices.
    let server = server();
    let mut host = Host::new(server.attach(0));
    expect_mapped(map(
        &mut host,
        &body(READ | WRITE, 0, 0xfebf_9000, PAGE),
        &[],
    ));
    host.expect_in_step();
}

#[test]
fn a_region_may_start_anywhere_in_its_file() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let ram = memfd(16 * PAGE);
    expect_mapped(map(&mut host, &body(3, 15 * PAGE, 0, PAGE), &[ram.as_fd()]));
    expect_mapped(map(
        &mut host,
        &body(3, 0, 15 * PAGE, 15 * PAGE),
        &[ram.as_fd()],
    ));
    for (offset, size) in [(15 * PAGE, 2 * PAGE), (16 * PAGE, PAGE), (!0xfff, PAGE)] {
        let reply = map(&mut host, &body(3, offset, 1 << 40, size), &[ram.as_fd()]);
        assert_eq!(reply.errno(), errno::EINVAL, "{offset:#x}");
    }
}

#[test]
fn many_small_regions_of_one_file_are_mapped() {
    // A guest behind a vIOMMU makes thousands of 4 KiB.
    let server = server();
    let mut host = Host::new(server.attach(0));
    const REGIONS: u64 = 4096;
    let ram = memfd(REGIONS * PAGE);
    for index in 0..REGIONS {
        // Far apart, and in no order.
        let iova = (index * 2_654_435_761 % REGIONS) << 20;
        host.post(
            cmd::DMA_MAP,
            &body(3, index * PAGE, iova, PAGE),
            &[ram.as_fd()],
        );
    }
    host.expect_in_step();
    for index in 0..REGIONS {
        let unmap = Body::new().u32(24).u32(0).u64(index << 20).u64(PAGE);
        assert_eq!(host.request(cmd::DMA_UNMAP, &unmap, &[]).ok(), unmap.0);
    }
}

#[test]
fn there_is_a_limit_of_65535_regions() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    for index in 0..65_535 {
        host.post(cmd::DMA_MAP, &body(3, 0, index << 16, PAGE), &[]);
    }
    let one_more = body(3, 0, 65_535 << 16, PAGE);
    assert_eq!(map(&mut host, &one_more, &[]).errno(), errno::ENOSPC);
    let unmap = Body::new().u32(24).u32(0).u64(0).u64(PAGE);
    let _ = host.request(cmd::DMA_UNMAP, &unmap, &[]).ok();
    expect_mapped(map(&mut host, &one_more, &[]));
}

#[test]
fn what_is_mapped_cannot_be_mapped_over() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    expect_mapped(map(&mut host, &body(3, 0, 4 * PAGE, 4 * PAGE), &[]));
    for (start, pages) in [(4, 4), (3, 2), (7, 2), (5, 1), (0, 100)] {
        let reply = map(&mut host, &body(3, 0, start * PAGE, pages * PAGE), &[]);
        assert_eq!(reply.errno(), errno::EEXIST, "{start} {pages}");
    }
    expect_mapped(map(&mut host, &body(3, 0, 3 * PAGE, PAGE), &[]));
    expect_mapped(map(&mut host, &body(3, 0, 8 * PAGE, PAGE), &[]));
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let last = !0xfff_u64;
    for (iova, size) in [
        (0, 0),
        (1, PAGE),
        (0, 1),
        (0, PAGE + 1),
        (last, 2 * PAGE),
        (2 * PAGE, last),
    ] {
        let reply = map(&mut host, &body(3, 0, iova, size), &[]);
        assert_eq!(reply.errno(), errno::EINVAL, "{iova:#x} {size:#x}");
    }
    let ram = memfd(4 * PAGE);
    let reply = map(&mut host, &body(3, 8, 0, PAGE), &[ram.as_fd()]);
    assert_eq!(reply.errno(), errno::EINVAL, "an offset within a page");
    expect_mapped(map(&mut host, &body(3, 0, last, PAGE), &[]));
}

#[test]
fn unknown_flags_are_ignored() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    // MMAP and FILE_IO, and whatever comes later.
    for (index, flags) in [0b111, 0b1011, 0xffff_fff3].into_iter().enumerate() {
        let iova = index as u64 * PAGE;
        expect_mapped(map(&mut host, &body(flags, 0, iova, PAGE), &[]));
    }
}

#[test]
fn descriptors_that_are_no_memory_are_refused() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = folder.path().join("file");
    std::fs::write(&disk, [0; 4096]).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let eventfd = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let files: [(&str, OwnedFd); 5] = [
        ("a pipe", reader.into()),
        ("an eventfd", eventfd),
        ("a directory", File::open(folder.path()).unwrap().into()),
        ("a device", File::open("/dev/zero").unwrap().into()),
        ("an empty memfd", memfd(0)),
    ];
    for (what, file) in &files {
        let reply = map(&mut host, &body(READ, 0, 0, PAGE), &[file.as_fd()]);
        assert_eq!(reply.errno(), errno::EINVAL, "{what}");
    }
    drop(writer);
    host.expect_in_step();
}

#[test]
fn a_descriptor_that_cannot_be_written_maps_read_only() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let ram = memfd(4 * PAGE);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&ram));
    let read_only = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).unwrap();
    let reply = map(
        &mut host,
        &body(READ | WRITE, 0, 0, PAGE),
        &[read_only.as_fd()],
    );
    assert_eq!(reply.errno(), errno::EACCES);
    expect_mapped(map(
        &mut host,
        &body(READ, 0, 0, PAGE),
        &[read_only.as_fd()],
    ));

    let sealed = memfd(4 * PAGE);
    rustix::fs::fcntl_add_seals(&sealed, SealFlags::WRITE).unwrap();
    let reply = map(
        &mut host,
        &body(READ | WRITE, 0, PAGE, PAGE),
        &[sealed.as_fd()],
    );
    assert_eq!(reply.errno(), errno::EACCES);
    expect_mapped(map(
        &mut host,
        &body(READ, 0, PAGE, PAGE),
        &[sealed.as_fd()],
    ));
}

#[test]
fn a_region_takes_one_descriptor() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let ram = memfd(4 * PAGE);
    let reply = map(&mut host, &body(3, 0, 0, PAGE), &[ram.as_fd(), ram.as_fd()]);
    assert_eq!(reply.errno(), errno::EINVAL);
    expect_mapped(map(&mut host, &body(3, 0, 0, PAGE), &[ram.as_fd()]));
}

#[test]
fn a_request_that_is_too_short_is_refused_and_its_descriptor_closed() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (reader, writer) = std::io::pipe().unwrap();
    let short = Body::new().u32(32).u32(3).u64(0).u64(0).u32(4096);
    let reply = map(&mut host, &short, &[writer.as_fd()]);
    assert_eq!(reply.errno(), errno::EINVAL);
    let argsz = Body::new().u32(31).u32(3).u64(0).u64(0).u64(PAGE);
    assert_eq!(
        map(&mut host, &argsz, &[writer.as_fd()]).errno(),
        errno::EINVAL
    );
    drop(writer);
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
    expect_mapped(map(&mut host, &body(3, 0, 0, PAGE).bytes(&[0; 8]), &[]));
}

#[test]
fn queues_are_found_again_after_every_change_of_the_map() {
    // Firmware unmaps and maps RAM in pieces while CC.EN is 1 and the admin queues lie in it.
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    drive.data().fill(0x11);
    for _ in 0..3 {
        let all = Body::new().u32(24).u32(0).u64(drive::BASE).u64(drive::LEN);
        assert_eq!(host.request(cmd::DMA_UNMAP, &all, &[]).ok(), all.0);
        let half = drive::LEN / 2;
        for offset in [0, half] {
            let piece = body(3, offset, drive::BASE + offset, half);
            expect_mapped(map(&mut host, &piece, &[drive.fd()]));
        }
        drive.transfer(&mut host, true, 16);
        drive.transfer(&mut host, false, 16);
        for offset in [0, half] {
            let piece = Body::new()
                .u32(24)
                .u32(0)
                .u64(drive::BASE + offset)
                .u64(half);
            assert_eq!(host.request(cmd::DMA_UNMAP, &piece, &[]).ok(), piece.0);
        }
        host.dma_map(drive::BASE, drive::LEN, drive.fd());
        drive.transfer(&mut host, false, 16);
    }
}
