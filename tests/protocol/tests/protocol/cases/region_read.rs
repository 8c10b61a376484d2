//! REGION_READ: registers, configuration space, MSI-X table and pending bits.

use tests_protocol::{Body, Host, Options, Reply, cmd, errno};

fn read(host: &mut Host, region: u32, offset: u64, count: u32) -> Reply {
    let body = Body::new().u64(offset).u32(region).u32(count);
    host.request(cmd::REGION_READ, &body, &[])
}

#[test]
fn the_reply_repeats_the_request_and_has_the_data() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    let body = read(&mut host, 0, 0x08, 4).ok();
    assert_eq!(body[..16], Body::new().u64(0x08).u32(0).u32(4).0[..]);
    // VS: 2.1 (Base 2.1, 3.1.4.2).
    assert_eq!(body[16..], [0, 1, 2, 0]);
}

#[test]
fn cap_reads_the_same_in_halves_and_as_a_whole() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    let whole = host.region_read(0, 0, 8);
    let halves = [host.region_read(0, 0, 4), host.region_read(0, 4, 4)].concat();
    assert_eq!(whole, halves);
    assert_ne!(whole, [0; 8]);
}

#[test]
fn configuration_space_has_4096_bytes() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    let space = host.region_read(7, 0, 4096);
    assert_eq!(space[..2], 0x4e56_u16.to_le_bytes());
    // Class: mass storage, non-volatile memory, NVM Express (PCIe Transport 1.1, 3.1).
    assert_eq!(space[9..12], [0x02, 0x08, 0x01]);
    assert_eq!(host.region_read(7, 0, 256), space[..256]);
    assert_eq!(host.region_read(7, 4095, 1).len(), 1);
    let past = read(&mut host, 7, 4095, 2);
    assert_eq!(past.errno(), errno::EINVAL);
}

#[test]
fn an_access_must_lie_in_its_region() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for (region, offset, count) in [
        (0, 0x3ffd, 4),
        (0, 0x4000, 1),
        (0, u64::MAX, 1),
        (0, u64::MAX - 3, 4),
        (4, 0x1fff, 2),
        (7, 0, 4097),
        (0, 0, u32::MAX),
        // Regions that are empty, and one that is not there.
        (1, 0, 1),
        (5, 0, 1),
        (6, 0, 4),
        (8, 0, 1),
        (9, 0, 1),
        (u32::MAX, 0, 1),
    ] {
        let reply = read(&mut host, region, offset, count);
        assert_eq!(reply.errno(), errno::EINVAL, "{region} {offset:#x} {count}");
    }
    host.expect_in_step();
}

#[test]
fn the_last_bytes_of_a_region_can_be_read() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for (region, offset) in [(0, 0x3ffc), (4, 0x1ffc), (7, 0xffc)] {
        assert_eq!(host.region_read(region, offset, 4), [0; 4]);
    }
    assert_eq!(host.region_read(0, 0, 0x4000).len(), 0x4000);
}

#[test]
fn nothing_is_read_at_a_count_of_zero() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    assert!(host.region_read(0, 0x4000, 0).is_empty());
}

#[test]
fn a_request_that_is_too_short_is_refused() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    let reply = host.request(cmd::REGION_READ, &Body::new().u64(0).u32(0), &[]);
    assert_eq!(reply.errno(), errno::EINVAL);
    host.expect_in_step();
}

#[test]
fn doorbells_read_as_zero() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    server.doorbells(0).store(0, 3);
    assert_eq!(host.read32(0, 0x1000), 0);
}

#[test]
fn the_pending_bits_are_those_of_interrupts_that_wait() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    assert_eq!(host.region_read(4, 0x1000, 8), [0; 8]);
    server.raise(0, 0);
    server.raise(0, 3);
    let pending = host.region_read(4, 0x1000, 8);
    assert_eq!(pending, 0b1001_u64.to_le_bytes());
}
