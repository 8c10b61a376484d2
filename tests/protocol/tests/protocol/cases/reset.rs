//! DEVICE_RESET: everything as after power-on, and nothing in flight when the reply comes.

use std::os::fd::AsFd;
use std::time::Duration;

use tests_protocol::{Body, Drive, Host, Options, Server, cmd, errno};

fn server() -> Server {
    crate::serve(&Options::default())
}

fn reset(host: &mut Host) {
    let reply = host.request(cmd::DEVICE_RESET, &Body::new(), &[]);
    assert!(reply.ok().is_empty(), "there is no payload in the reply");
}

#[test]
fn an_idle_device_is_reset() {
    // QEMU sends one before the guest starts.
    let server = server();
    let mut host = Host::new(server.attach(0));
    reset(&mut host);
    reset(&mut host);
}

#[test]
fn a_payload_is_ignored() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let reply = host.request(cmd::DEVICE_RESET, &Body::new().u64(1), &[]);
    assert!(reply.ok().is_empty());
}

#[test]
fn registers_and_configuration_space_are_as_after_power_on() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let fresh = (
        host.region_read(0, 0, 0x1000),
        host.region_read(7, 0, 4096),
        host.region_read(4, 0, 0x2000),
    );
    let _drive = Drive::new(&mut host);
    host.region_write(7, 0x04, &0x0506_u16.to_le_bytes());
    host.region_write(7, 0x10, &0xfebf_8000_u32.to_le_bytes());
    host.region_write(4, 0, &[0x40; 16]);
    reset(&mut host);
    assert_eq!(host.region_read(0, 0, 0x1000), fresh.0);
    assert_eq!(host.region_read(7, 0, 4096), fresh.1);
    assert_eq!(host.region_read(4, 0, 0x2000), fresh.2);
    assert_eq!(server.doorbells(0).load(0), 0);
    assert_eq!(server.doorbells(0).load(2), 0);
}

#[test]
fn the_memory_map_and_the_session_stay() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let drive = Drive::new(&mut host);
    reset(&mut host);
    let again = Body::new()
        .u32(32)
        .u32(3)
        .u64(0)
        .u64(tests_protocol::drive::BASE);
    let again = again.u64(tests_protocol::drive::LEN);
    let reply = host.request(cmd::DMA_MAP, &again, &[drive.fd()]);
    assert_eq!(reply.errno(), errno::EEXIST);
}

#[test]
fn the_reply_waits_for_commands_in_flight() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    server.hold(true);
    drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    let id = host.send(cmd::DEVICE_RESET, &Body::new(), &[]);
    // A message after it finds the device reset, so it waits, too.
    let read = Body::new().u64(0x14).u32(0).u32(4);
    let later = host.send(cmd::REGION_READ, &read, &[]);
    std::thread::sleep(Duration::from_millis(20));
    assert!(host.try_receive().is_none(), "a command is in flight");
    server.hold(false);
    let reply = host.receive();
    assert_eq!(reply.id, id);
    assert!(reply.ok().is_empty());
    let reply = host.receive();
    assert_eq!((reply.id, reply.u32(16)), (later, 0), "CC");
    assert_eq!(
        drive.poll(&mut host),
        None,
        "nothing is posted after a reset"
    );
}

#[test]
fn the_reply_comes_within_its_time_whatever_hangs() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    server.hold(true);
    drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    // The clock moves on only after the reset has begun.
    let id = server.wait_for_messages(1, || host.send(cmd::DEVICE_RESET, &Body::new(), &[]));
    assert!(host.try_receive().is_none());
    server.advance(Duration::from_millis(4100));
    let reply = host.receive();
    assert_eq!(reply.id, id);
    assert!(reply.ok().is_empty());
    // A request that hung may come back now: it completes nothing.
    server.hold(false);
    host.expect_in_step();
    assert_eq!(drive.poll(&mut host), None);
}

#[test]
fn a_reset_that_does_not_end_is_answered_with_an_error() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let _drive = Drive::new(&mut host);
    server.stall(true);
    let id = server.wait_for_messages(1, || host.send(cmd::DEVICE_RESET, &Body::new(), &[]));
    server.advance(Duration::from_millis(4400));
    std::thread::sleep(Duration::from_millis(20));
    assert!(host.try_receive().is_none());
    server.advance(Duration::from_millis(200));
    let reply = host.receive();
    assert_eq!((reply.id, reply.errno()), (id, errno::ETIMEDOUT));
    server.stall(false);
    reset(&mut host);
}

#[test]
fn interrupts_of_before_are_void_and_eventfds_stay() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let assign = |host: &mut Host, vector: u32| {
        let eventfd = memory::EventFd::new().unwrap();
        // DATA_EVENTFD, ACTION_TRIGGER; MSI-X.
        let body = Body::new().u32(20).u32(1 << 2 | 1 << 5).u32(2);
        let reply = host.request(cmd::SET_IRQS, &body.u32(vector).u32(1), &[eventfd.as_fd()]);
        assert!(reply.ok().is_empty());
        eventfd
    };
    let first = assign(&mut host, 1);
    server.raise(0, 2);
    reset(&mut host);
    let second = assign(&mut host, 2);
    assert!(!second.drain());
    server.raise(0, 1);
    assert!(first.drain());
}

#[test]
fn the_device_can_be_used_again() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    for _ in 0..5 {
        let mut drive = Drive::new(&mut host);
        drive.transfer(&mut host, true, 0);
        reset(&mut host);
        let all = Body::new().u32(24).u32(1 << 1).u64(0).u64(0);
        assert_eq!(host.request(cmd::DMA_UNMAP, &all, &[]).ok(), all.0);
    }
}

#[test]
fn without_a_reply_it_is_done_all_the_same() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let _drive = Drive::new(&mut host);
    host.post(cmd::DEVICE_RESET, &Body::new(), &[]);
    assert_eq!(host.read32(0, 0x14), 0, "CC");
    assert_eq!(host.read32(0, 0x1c), 0, "CSTS");
}

#[test]
fn a_host_that_leaves_leaves_a_device_that_is_reset() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    drive.data().fill(0x77);
    drive.transfer(&mut host, true, 0);
    server.hold(true);
    drive.submit(&mut host, false, 0);
    server.wait_for_held(1);
    drop(host);
    let _ = server.wait_for_end(0);
    server.hold(false);
    let mut host = Host::new(server.attach(0));
    assert_eq!(host.read32(0, 0x14), 0, "CC");
    let mut drive = Drive::new(&mut host);
    drive.transfer(&mut host, false, 0);
    assert_eq!(
        drive.data().load_u32(0),
        0x7777_7777,
        "the data are the drive's"
    );
}
