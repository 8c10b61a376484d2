//! DEVICE_GET_REGION_INFO: nine regions, one area that may be mapped.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use memory::DoorbellPages;
use tests_protocol::{Body, Host, Options, Reply, Server, cmd, errno};

const READ: u32 = 1;
const WRITE: u32 = 1 << 1;
const MMAP: u32 = 1 << 2;
const CAPS: u32 = 1 << 3;

fn server(mapped: bool) -> Server {
    crate::serve(&Options {
        mapped,
        ..Options::default()
    })
}

fn ask(host: &mut Host, argsz: u32, index: u32) -> Reply {
    let body = Body::new()
        .u32(argsz)
        .u32(0)
        .u32(index)
        .u32(0)
        .u64(0)
        .u64(0);
    host.request(cmd::GET_REGION_INFO, &body, &[])
}

/// A region without capabilities.
fn plain(flags: u32, index: u32, size: u64) -> Vec<u8> {
    let info = Body::new().u32(32).u32(flags).u32(index).u32(0);
    info.u64(size).u64(0).0
}

#[test]
fn all_nine_regions_answer() {
    let server = server(false);
    let mut host = Host::new(server.attach(0));
    for (index, size) in [(0, 0x4000), (4, 0x2000), (7, 4096)] {
        let reply = ask(&mut host, 32, index);
        assert!(reply.fds.is_empty());
        assert_eq!(reply.ok(), plain(READ | WRITE, index, size));
    }
    for index in [1, 2, 3, 5, 6, 8] {
        assert_eq!(ask(&mut host, 32, index).ok(), plain(0, index, 0));
    }
    for index in [9, u32::MAX] {
        assert_eq!(ask(&mut host, 32, index).errno(), errno::EINVAL);
    }
}

#[test]
fn bar0_is_at_least_16_kib_and_a_power_of_two() {
    for queues in [1, 3, 64] {
        let server = crate::serve(&Options {
            queues,
            mapped: false,
            ..Options::default()
        });
        let mut host = Host::new(server.attach(0));
        let size = ask(&mut host, 32, 0).u64(16);
        assert!(size >= 16384 && size.is_power_of_two(), "{size}");
    }
}

#[test]
fn mapped_doorbells_are_one_area_with_one_descriptor() {
    // QEMU takes one descriptor for a reply, SPDK's host one for each area: with one area both are
    // right.
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let reply = ask(&mut host, 64, 0);
    assert_eq!(reply.fds.len(), 1);
    let info = Body::new().u32(64).u32(READ | WRITE | MMAP | CAPS).u32(0);
    let info = info.u32(32).u64(0x4000).u64(0);
    // VFIO_REGION_INFO_CAP_SPARSE_MMAP, version 1, the last; one area: a page at 1000h.
    let capability = Body::new()
        .u16(1)
        .u16(1)
        .u32(0)
        .u32(1)
        .u32(0)
        .u64(0x1000)
        .u64(0x1000);
    assert_eq!(reply.ok(), info.bytes(&capability.0).0);
}

#[test]
fn the_descriptor_maps_the_doorbells_at_the_areas_offset() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let reply = ask(&mut host, 64, 0);
    let (offset, area, size) = (reply.u64(24), reply.u64(48), reply.u64(56));
    let fd = reply.fds.into_iter().next().unwrap();
    let len = usize::try_from(size).unwrap();
    let mapped = DoorbellPages::map_client(fd, offset + area, len).unwrap();
    mapped.store(3, 0x5a5a_0001);
    assert_eq!(server.doorbells(0).load(3), 0x5a5a_0001);
}

#[test]
fn the_descriptor_cannot_be_made_shorter() {
    // Else a host could take the page away from under the reactor that polls it.
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let reply = ask(&mut host, 64, 0);
    let shorter = rustix::fs::ftruncate(&reply.fds[0], 0);
    assert_eq!(shorter, Err(rustix::io::Errno::PERM));
}

#[test]
fn too_small_a_buffer_learns_the_length_and_gets_no_capability() {
    // QEMU asks with 32, then with what it was told; the flag CAPS with an offset of 0 makes it
    // fail.
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    for argsz in [32, 48, 63] {
        let reply = ask(&mut host, argsz, 0);
        assert!(
            reply.fds.is_empty(),
            "the descriptor belongs to the whole reply"
        );
        let expected = Body::new().u32(64).u32(READ | WRITE | MMAP).u32(0).u32(0);
        assert_eq!(reply.ok(), expected.u64(0x4000).u64(0).0);
    }
    assert_eq!(ask(&mut host, 4096, 0).ok().len(), 64);
}

#[test]
fn requests_longer_than_the_structure_are_answered() {
    // SPDK's host sends 4096 bytes.
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let body = Body::new()
        .u32(4096)
        .u32(0)
        .u32(7)
        .u32(0)
        .u64(0)
        .u64(0)
        .bytes(&[0; 4048]);
    let reply = host.request(cmd::GET_REGION_INFO, &body, &[]);
    assert_eq!(reply.ok(), plain(READ | WRITE, 7, 4096));
}

#[test]
fn a_request_or_a_buffer_that_is_too_short_is_refused() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    for argsz in [0, 31] {
        assert_eq!(ask(&mut host, argsz, 0).errno(), errno::EINVAL);
    }
    let reply = host.request(cmd::GET_REGION_INFO, &Body::new().u32(32).u64(0), &[]);
    assert_eq!(reply.errno(), errno::EINVAL);
    host.expect_in_step();
}

#[test]
fn every_reply_has_a_descriptor_of_its_own() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let first = ask(&mut host, 64, 0);
    let second = ask(&mut host, 64, 0);
    assert_eq!((first.fds.len(), second.fds.len()), (1, 1));
}
