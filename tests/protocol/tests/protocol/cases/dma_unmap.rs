//! DMA_UNMAP: answered when nothing reaches the memory any more.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::os::fd::AsFd;
use std::time::Duration;

use tests_protocol::drive::{BASE, LEN};
use tests_protocol::{Body, Drive, Host, Options, Reply, Server, cmd, errno};

const GET_DIRTY: u32 = 1;
const UNMAP_ALL: u32 = 1 << 1;

const PAGE: u64 = 4096;

fn server() -> Server {
    crate::serve(&Options::default())
}

fn body(flags: u32, iova: u64, size: u64) -> Body {
    Body::new().u32(24).u32(flags).u64(iova).u64(size)
}

fn unmap(host: &mut Host, flags: u32, iova: u64, size: u64) -> Reply {
    host.request(cmd::DMA_UNMAP, &body(flags, iova, size), &[])
}

/// Regions without memory: pages `at`.
fn map(host: &mut Host, at: u64, pages: u64) {
    let body = Body::new()
        .u32(32)
        .u32(3)
        .u64(0)
        .u64(at * PAGE)
        .u64(pages * PAGE);
    assert!(host.request(cmd::DMA_MAP, &body, &[]).ok().is_empty());
}

#[test]
fn the_reply_repeats_the_request() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    map(&mut host, 1, 2);
    let reply = unmap(&mut host, 0, PAGE, 2 * PAGE).ok();
    assert_eq!(reply, body(0, PAGE, 2 * PAGE).0);
    assert_eq!(16 + reply.len(), 40);
}

#[test]
fn what_is_not_mapped_cannot_be_unmapped() {
    // QEMU does it behind a vIOMMU, and goes on.
    let server = server();
    let mut host = Host::new(server.attach(0));
    assert_eq!(unmap(&mut host, 0, 0, PAGE).errno(), errno::ENOENT);
    map(&mut host, 4, 1);
    assert_eq!(unmap(&mut host, 0, 0, 4 * PAGE).errno(), errno::ENOENT);
    assert_eq!(unmap(&mut host, 0, 5 * PAGE, PAGE).errno(), errno::ENOENT);
    let _ = unmap(&mut host, 0, 4 * PAGE, PAGE).ok();
    assert_eq!(unmap(&mut host, 0, 4 * PAGE, PAGE).errno(), errno::ENOENT);
}

#[test]
fn a_part_of_a_region_cannot_be_unmapped() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    map(&mut host, 4, 4);
    for (start, pages) in [(4, 1), (7, 1), (5, 2), (3, 2), (7, 2)] {
        let reply = unmap(&mut host, 0, start * PAGE, pages * PAGE);
        assert_eq!(reply.errno(), errno::EINVAL, "{start} {pages}");
    }
    let _ = unmap(&mut host, 0, 4 * PAGE, 4 * PAGE).ok();
}

#[test]
fn a_range_may_cover_several_regions() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    for at in [1, 2, 5] {
        map(&mut host, at, 1);
    }
    let reply = unmap(&mut host, 0, 0, 16 * PAGE).ok();
    assert_eq!(reply, body(0, 0, 16 * PAGE).0);
    assert_eq!(unmap(&mut host, 0, 0, 16 * PAGE).errno(), errno::ENOENT);
}

#[test]
fn all_can_be_unmapped_at_once() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    map(&mut host, 0, 1);
    map(&mut host, 1 << 30, 7);
    let reply = unmap(&mut host, UNMAP_ALL, 0, 0).ok();
    assert_eq!(reply, body(UNMAP_ALL, 0, 0).0);
    assert_eq!(unmap(&mut host, 0, 0, PAGE).errno(), errno::ENOENT);
    // Nothing is there to unmap, and that is all of it.
    assert_eq!(unmap(&mut host, UNMAP_ALL, 0, 0).ok().len(), 24);
    for (iova, size) in [(PAGE, 0), (0, PAGE)] {
        let reply = unmap(&mut host, UNMAP_ALL, iova, size);
        assert_eq!(reply.errno(), errno::EINVAL);
    }
}

#[test]
fn dirty_pages_are_not_reported() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    map(&mut host, 0, 1);
    let reply = unmap(&mut host, GET_DIRTY, 0, PAGE);
    assert_eq!(reply.errno(), errno::EOPNOTSUPP);
    let reply = unmap(&mut host, GET_DIRTY | UNMAP_ALL, 0, 0);
    assert_eq!(reply.errno(), errno::EOPNOTSUPP);
    assert_eq!(unmap(&mut host, 1 << 2, 0, PAGE).errno(), errno::EINVAL);
    assert_eq!(
        unmap(&mut host, 0, 0, PAGE).ok().len(),
        24,
        "it is still mapped"
    );
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
        (last, 2 * PAGE),
        (2 * PAGE, last),
    ] {
        let reply = unmap(&mut host, 0, iova, size);
        assert_eq!(reply.errno(), errno::EINVAL, "{iova:#x} {size:#x}");
    }
    let short = Body::new().u32(24).u32(0).u64(0);
    assert_eq!(
        host.request(cmd::DMA_UNMAP, &short, &[]).errno(),
        errno::EINVAL
    );
    let argsz = Body::new().u32(23).u32(0).u64(0).u64(PAGE);
    assert_eq!(
        host.request(cmd::DMA_UNMAP, &argsz, &[]).errno(),
        errno::EINVAL
    );
}

#[test]
fn a_descriptor_that_comes_with_it_is_closed() {
    // SPDK's host sends one.
    let server = server();
    let mut host = Host::new(server.attach(0));
    map(&mut host, 0, 1);
    let (reader, writer) = std::io::pipe().unwrap();
    let reply = host.request(cmd::DMA_UNMAP, &body(0, 0, PAGE), &[writer.as_fd()]);
    assert_eq!(reply.ok().len(), 24);
    drop(writer);
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
}

#[test]
fn without_a_reply_it_is_done_all_the_same() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    map(&mut host, 0, 1);
    host.post(cmd::DMA_UNMAP, &body(0, 0, PAGE), &[]);
    assert_eq!(unmap(&mut host, 0, 0, PAGE).errno(), errno::ENOENT);
}

#[test]
fn the_reply_waits_for_commands_in_flight_and_nothing_else_does() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    server.hold(true);
    let cid = drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    let id = host.send(cmd::DMA_UNMAP, &body(0, BASE, LEN), &[]);
    for _ in 0..50 {
        // Replies to these come first.
        host.expect_in_step();
        assert_eq!(host.read32(0, 0x1c) & 0b11, 1, "ready and not failed");
    }
    // Another unmap waits beside it; a map does not wait at all.
    map(&mut host, 0, 1);
    let other = host.send(cmd::DMA_UNMAP, &body(0, 0, PAGE), &[]);
    host.expect_in_step();
    host.dma_map(BASE, LEN, drive.fd());
    server.hold(false);
    let mut replies = [host.receive(), host.receive()];
    replies.sort_by_key(|reply| reply.id != id);
    let [first, second] = replies;
    assert_eq!((first.id, first.ok()), (id, body(0, BASE, LEN).0));
    assert_eq!((second.id, second.ok()), (other, body(0, 0, PAGE).0));
    assert_eq!(drive.wait(&mut host, cid).status, 0);
}

#[test]
fn after_four_seconds_what_hangs_is_aborted_and_the_reply_sent() {
    // A host waits 5 s for a reply at most.
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    map(&mut host, 0, 1);
    server.hold(true);
    let cid = drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    let id = host.send(cmd::DMA_UNMAP, &body(0, 0, PAGE), &[]);
    server.advance(Duration::from_millis(3900));
    for _ in 0..20 {
        host.expect_in_step();
    }
    assert_eq!(drive.poll(&mut host), None, "it is not given up yet");
    server.advance(Duration::from_millis(200));
    let reply = host.receive();
    assert_eq!(reply.id, id);
    assert_eq!(reply.ok(), body(0, 0, PAGE).0);
    // Generic, Command Abort Requested (Base 2.1, figure 101).
    assert_eq!(drive.wait(&mut host, cid).status, 0x07);
    // Requests that the medium still held complete nothing twice.
    server.hold(false);
    drive.transfer(&mut host, false, 8);
    assert_eq!(drive.poll(&mut host), None);
}

#[test]
fn the_reply_to_what_hangs_waits_until_no_device_reaches_the_memory() {
    for lets_go in [true, false] {
        let server = server();
        let mut host = Host::new(server.attach(0));
        let mut drive = Drive::new(&mut host);
        // Memory that can be reached.
        host.dma_map(0, PAGE, drive.fd());
        server.hold(true);
        server.reach(true);
        let cid = drive.submit(&mut host, false, 0);
        server.wait_for_held(1);
        let id = host.send(cmd::DMA_UNMAP, &body(0, 0, PAGE), &[]);
        host.expect_in_step();
        server.advance(Duration::from_millis(4100));
        assert_eq!(drive.wait(&mut host, cid).status, 0x07, "it is given up");
        for _ in 0..20 {
            host.expect_in_step();
        }
        // A request that ends is waited for, and one that does not no longer than a host waits.
        if lets_go {
            server.reach(false)
        } else {
            server.advance(Duration::from_millis(500))
        }
        let reply = host.receive();
        assert_eq!((reply.id, reply.ok()), (id, body(0, 0, PAGE).0));
        server.reach(false);
        server.hold(false);
    }
}

#[test]
fn the_reply_comes_within_its_time_even_if_nothing_can_be_aborted() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let _drive = Drive::new(&mut host);
    map(&mut host, 0, 1);
    server.stall(true);
    let id = host.send(cmd::DMA_UNMAP, &body(0, 0, PAGE), &[]);
    host.expect_in_step();
    server.advance(Duration::from_millis(4400));
    host.expect_in_step();
    server.advance(Duration::from_millis(200));
    let reply = host.receive();
    assert_eq!((reply.id, reply.ok()), (id, body(0, 0, PAGE).0));
    server.stall(false);
}

#[test]
fn a_host_may_have_many_unmaps_out() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    const COUNT: u64 = 200;
    for at in 0..COUNT {
        map(&mut host, at, 1);
    }
    server.hold(true);
    let cid = drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    let ids: Vec<_> = (0..COUNT)
        .map(|at| host.send(cmd::DMA_UNMAP, &body(0, at * PAGE, PAGE), &[]))
        .collect();
    server.hold(false);
    let mut replies: Vec<_> = (0..COUNT).map(|_| host.receive()).collect();
    replies.sort_by_key(|reply| reply.id);
    for (at, (id, reply)) in (0..).zip(ids.into_iter().zip(replies)) {
        assert_eq!((reply.id, reply.ok()), (id, body(0, at * PAGE, PAGE).0));
    }
    assert_eq!(drive.wait(&mut host, cid).status, 0);
}

#[test]
fn a_command_after_it_does_not_reach_the_memory() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    // The queues stay, the data page goes.
    let data = drive.data().iova(memory::Iova(BASE)).0;
    assert_eq!(unmap(&mut host, 0, BASE, LEN).ok().len(), 24);
    for (start, end) in [(BASE, data), (data + PAGE, BASE + LEN)] {
        if start < end {
            let piece = Body::new().u32(32).u32(3).u64(start - BASE).u64(start);
            let piece = piece.u64(end - start);
            assert!(
                host.request(cmd::DMA_MAP, &piece, &[drive.fd()])
                    .ok()
                    .is_empty()
            );
        }
    }
    let cid = drive.submit(&mut host, false, 0);
    // Generic, Data Transfer Error.
    assert_eq!(drive.wait(&mut host, cid).status, 0x04);
}
