//! REGION_WRITE: registers, doorbells, configuration space, MSI-X table; with a reply and without.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::time::{Duration, Instant};

use tests_protocol::{Body, Drive, Host, Options, Reply, Server, cmd, errno};

fn server(mapped: bool) -> Server {
    crate::serve(&Options {
        mapped,
        ..Options::default()
    })
}

fn message(region: u32, offset: u64, count: u32, data: &[u8]) -> Body {
    Body::new().u64(offset).u32(region).u32(count).bytes(data)
}

fn write(host: &mut Host, region: u32, offset: u64, data: &[u8]) -> Reply {
    let count = u32::try_from(data.len()).unwrap();
    host.request(
        cmd::REGION_WRITE,
        &message(region, offset, count, data),
        &[],
    )
}

#[test]
fn the_reply_is_the_head_of_the_request() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let reply = write(&mut host, 0, 0x24, &[0x3f, 0, 0x3f, 0]);
    assert_eq!(reply.ok(), message(0, 0x24, 4, &[]).0);
    assert_eq!(host.read32(0, 0x24), 0x003f_003f);
}

#[test]
fn a_posted_write_has_no_reply_and_takes_effect() {
    let server = server(false);
    let mut host = Host::new(server.attach(0));
    host.post(
        cmd::REGION_WRITE,
        &message(0, 0x28, 4, &[0, 0x10, 0, 0]),
        &[],
    );
    host.post(cmd::REGION_WRITE, &message(0, 0x2c, 4, &[1, 0, 0, 0]), &[]);
    // The next message that comes is the reply to this read, and the writes come before it.
    let asq = host.region_read(0, 0x28, 8);
    assert_eq!(asq, 0x1_0000_1000_u64.to_le_bytes());
}

#[test]
fn a_posted_write_that_is_wrong_has_no_reply_either() {
    let server = server(false);
    let mut host = Host::new(server.attach(0));
    host.post(cmd::REGION_WRITE, &message(9, 0, 4, &[0; 4]), &[]);
    host.post(cmd::REGION_WRITE, &message(0, u64::MAX, 4, &[0; 4]), &[]);
    host.post(cmd::REGION_WRITE, &message(0, 0, 8, &[0; 4]), &[]);
    host.expect_in_step();
}

#[test]
fn an_access_must_lie_in_its_region() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    for (region, offset) in [
        (0, 0x3ffd),
        (0, u64::MAX),
        (0, u64::MAX - 3),
        (4, 0x2000),
        (7, 4093),
        (1, 0),
        (6, 0),
        (8, 0),
        (9, 0),
        (u32::MAX, 0),
    ] {
        let reply = write(&mut host, region, offset, &[0xff; 4]);
        assert_eq!(reply.errno(), errno::EINVAL, "{region} {offset:#x}");
    }
    host.expect_in_step();
}

#[test]
fn as_much_data_as_the_count_says_must_come() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    for (count, data) in [
        (4, &[1, 2, 3][..]),
        (4, &[1, 2, 3, 4, 5]),
        (0, &[1]),
        (u32::MAX, &[1]),
    ] {
        let reply = host.request(cmd::REGION_WRITE, &message(0, 0x24, count, data), &[]);
        assert_eq!(reply.errno(), errno::EINVAL, "{count}");
    }
    assert_eq!(host.read32(0, 0x24), 0, "nothing was written");
    assert_eq!(write(&mut host, 0, 0x24, &[]).ok().len(), 16);
}

#[test]
fn the_largest_write_that_is_offered_is_taken_in() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    // No region is as long as 1 MiB, so it is refused, but it is read and the next message is
    // found.
    let reply = write(&mut host, 0, 0, &vec![0xff; 1 << 20]);
    assert_eq!(reply.errno(), errno::EINVAL);
    host.expect_in_step();
}

#[test]
fn a_base_address_register_shows_its_size() {
    // All ones are written, and what cannot be written reads as zero (PCI 3.0, 6.2.5.1).
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    host.region_write(7, 0x10, &[0xff; 4]);
    host.region_write(7, 0x14, &[0xff; 4]);
    let bar = u64::from(host.read32(7, 0x14)) << 32 | u64::from(host.read32(7, 0x10));
    assert_eq!(bar & 0xf, 0b100, "64-bit memory, not prefetchable");
    assert_eq!(!(bar & !0xf) + 1, 0x4000);
    host.region_write(7, 0x20, &[0xff; 4]);
    assert_eq!(host.read32(7, 0x20), 0xffff_e000);
    host.region_write(7, 0x30, &[0x00, 0xf8, 0xff, 0xff]);
    assert_eq!(host.read32(7, 0x30), 0, "there is no expansion ROM");
}

#[test]
fn the_msix_table_reads_back() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let entry = Body::new().u64(0xfee0_0000).u32(0x41).u32(0);
    host.region_write(4, 16, &entry.0);
    assert_eq!(host.region_read(4, 16, 16), entry.0);
}

#[test]
fn doorbells_by_message_work_where_none_is_mapped() {
    let server = server(false);
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    drive.transfer(&mut host, true, 8);
}

#[test]
fn doorbells_by_message_work_where_they_could_be_mapped() {
    // The protocol obliges no client to map, and QEMU stops using its mapping at times.
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    drive.data().fill(0x5a);
    drive.transfer(&mut host, true, 8);
    drive.data().zero();
    drive.transfer(&mut host, false, 8);
    let mut bytes = [0; 4096];
    drive.data().read_into(0, &mut bytes);
    assert_eq!(bytes, [0x5a; 4096]);
}

#[test]
fn a_disable_is_answered_at_once_and_ready_falls_when_nothing_is_in_flight() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    server.hold(true);
    drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    host.region_write(0, 0x14, &0x0046_0000_u32.to_le_bytes());
    for _ in 0..50 {
        assert_eq!(host.read32(0, 0x1c) & 1, 1, "a command is in flight");
    }
    server.hold(false);
    wait_for_disabled(&mut host);
    assert_eq!(drive.poll(&mut host), None, "nothing is posted after it");
}

#[test]
fn a_disable_takes_four_seconds_at_most() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    server.hold(true);
    drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    host.region_write(0, 0x14, &0x0046_0000_u32.to_le_bytes());
    for _ in 0..50 {
        assert_eq!(host.read32(0, 0x1c) & 1, 1, "a command is in flight");
    }
    server.advance(Duration::from_millis(4100));
    wait_for_disabled(&mut host);
    server.hold(false);
    host.expect_in_step();
}

fn wait_for_disabled(host: &mut Host) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while host.read32(0, 0x1c) & 1 == 1 {
        assert!(Instant::now() < deadline, "the controller stays ready");
        std::thread::yield_now();
    }
}

#[test]
fn a_function_level_reset_by_configuration_space_disables_the_controller() {
    let server = server(true);
    let mut host = Host::new(server.attach(0));
    let _drive = Drive::new(&mut host);
    let config = host.region_read(7, 0, 256);
    let mut at = usize::from(config[0x34]);
    while config[at] != 0x10 {
        at = usize::from(config[at + 1]);
    }
    // Device Control, bit 15: initiate function level reset (PCIe 6.0, 7.5.3.4).
    host.region_write(7, at as u64 + 8, &0x8000_u16.to_le_bytes());
    assert_eq!(host.read32(0, 0x14), 0, "CC");
    wait_for_disabled(&mut host);
}
