//! DEVICE_FEATURE, MIG_DATA_READ and MIG_DATA_WRITE: a host moves its controller to another one
//! over the same bytes ("VFIO_USER_DEVICE_FEATURE", "VFIO_USER_MIG_DATA_READ").

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::time::{Duration, Instant};

use tests_protocol::drive::{BASE, LEN};
use tests_protocol::{Body, Drive, Host, Options, Server, cmd, errno};

const GET: u32 = 1 << 16;
const SET: u32 = 1 << 17;
const PROBE: u32 = 1 << 18;
const MIGRATION: u32 = 1;
const DEVICE_STATE: u32 = 2;

const ERROR: u32 = 0;
const STOP: u32 = 1;
const RUNNING: u32 = 2;
const STOP_COPY: u32 = 3;
const RESUMING: u32 = 4;
const PRE_COPY: u32 = 6;

/// Bytes that are read at a time: the end is not at a multiple of it.
const PIECE: u32 = 4000;

/// Two controllers that are the same drive.
fn server() -> Server {
    crate::serve(&Options {
        controllers: 2,
        migrates: true,
        ..Options::default()
    })
}

fn feature(argsz: u32, flags: u32) -> Body {
    Body::new().u32(argsz).u32(flags)
}

fn state(host: &mut Host) -> u32 {
    let reply = host.request(cmd::DEVICE_FEATURE, &feature(16, GET | DEVICE_STATE), &[]);
    assert_eq!(reply.u32(4), GET | DEVICE_STATE);
    reply.u32(8)
}

/// The errno, 0 where it was done.
fn set(host: &mut Host, state: u32) -> u32 {
    let body = feature(16, SET | DEVICE_STATE).u32(state).u32(0);
    let reply = host.request(cmd::DEVICE_FEATURE, &body, &[]);
    if reply.error == 0 {
        assert_eq!((reply.flags, reply.u32(8)), (1, state));
    }
    reply.error
}

fn read_all(host: &mut Host) -> Vec<u8> {
    let mut stream = Vec::new();
    loop {
        let body = Body::new().u32(8 + PIECE).u32(PIECE);
        let reply = host.request(cmd::MIG_DATA_READ, &body, &[]);
        assert_eq!(reply.body.len(), 8 + reply.u32(4) as usize);
        stream.extend_from_slice(&reply.body[8..]);
        if reply.u32(4) < PIECE {
            return stream;
        }
    }
}

fn write_all(host: &mut Host, stream: &[u8]) {
    for part in stream.chunks(10_000) {
        let len = part.len() as u32;
        let body = Body::new().u32(8 + len).u32(len).bytes(part);
        let _ = host.request(cmd::MIG_DATA_WRITE, &body, &[]).ok();
    }
}

/// A host at the second controller that has the memory of the first one's.
fn there(server: &Server, drive: &Drive) -> Host {
    let mut host = Host::new(server.attach(1));
    host.dma_map(BASE, LEN, drive.fd());
    host
}

/// Fills the data page with bytes of this round.
fn fill(drive: &Drive, round: u8) {
    drive.data().fill(round);
}

/// Reads a page, and compares all of its bytes.
fn check(host: &mut Host, drive: &mut Drive, round: u8) {
    fill(drive, 0xee);
    drive.transfer(host, false, u64::from(round) * 8);
    let mut bytes = [0; 4096];
    drive.data().read_into(0, &mut bytes);
    assert!(bytes == [round; 4096], "the bytes of round {round}");
}

fn write(host: &mut Host, drive: &mut Drive, round: u8) {
    fill(drive, round);
    drive.transfer(host, true, u64::from(round) * 8);
}

#[test]
fn a_host_goes_on_at_another_server() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    (1..12).for_each(|round| write(&mut here, &mut drive, round));
    assert_eq!(set(&mut here, STOP_COPY), 0);
    assert_eq!(state(&mut here), STOP_COPY);
    let stream = read_all(&mut here);
    let mut there = there(&server, &drive);
    assert_eq!(set(&mut there, RESUMING), 0);
    write_all(&mut there, &stream);
    assert_eq!(set(&mut there, STOP), 0);
    fill(&drive, 12);
    let cid = drive.submit(&mut there, true, 12 * 8);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(drive.peek(), None, "it is stopped");
    assert_eq!(set(&mut there, RUNNING), 0);
    drop(here);
    assert_eq!(drive.wait(&mut there, cid).status, 0);
    (1..13).for_each(|round| check(&mut there, &mut drive, round));
    // The admin queue has moved, too.
    drive.create_second_sq(&mut there, BASE + LEN - 4096);
    (13..40).for_each(|round| write(&mut there, &mut drive, round));
    (1..40).for_each(|round| check(&mut there, &mut drive, round));
}

#[test]
fn commands_in_flight_complete_before_the_reply() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    server.hold(true);
    fill(&drive, 9);
    let cid = drive.submit(&mut here, true, 72);
    server.wait_for_held(1);
    let body = feature(16, SET | DEVICE_STATE).u32(STOP_COPY).u32(0);
    let id = here.send(cmd::DEVICE_FEATURE, &body, &[]);
    std::thread::sleep(Duration::from_millis(50));
    assert!(here.try_receive().is_none(), "a command is in flight");
    assert_eq!(drive.peek(), None);
    server.hold(false);
    let reply = here.receive();
    assert_eq!(reply.id, id);
    assert_eq!(reply.u32(8), STOP_COPY);
    assert_eq!(drive.peek().map(|done| done.cid), Some(cid));
    let stream = read_all(&mut here);
    let mut there = there(&server, &drive);
    assert_eq!(set(&mut there, RESUMING), 0);
    write_all(&mut there, &stream);
    assert_eq!(set(&mut there, RUNNING), 0);
    assert_eq!(drive.wait(&mut there, cid).status, 0);
    check(&mut there, &mut drive, 9);
}

#[test]
fn a_medium_that_hangs_leaves_the_device_running() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    server.hold(true);
    let cid = drive.submit(&mut here, true, 0);
    server.wait_for_held(1);
    let body = feature(16, SET | DEVICE_STATE).u32(STOP_COPY).u32(0);
    let id = server.wait_for_messages(1, || here.send(cmd::DEVICE_FEATURE, &body, &[]));
    server.advance(Duration::from_millis(4600));
    let reply = here.receive();
    assert_eq!((reply.id, reply.errno()), (id, errno::ETIMEDOUT));
    assert_eq!(state(&mut here), RUNNING);
    server.hold(false);
    assert_eq!(drive.wait(&mut here, cid).status, 0);
    write(&mut here, &mut drive, 3);
    check(&mut here, &mut drive, 3);
}

#[test]
fn a_source_that_is_not_left_serves_on() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    write(&mut here, &mut drive, 5);
    assert_eq!(set(&mut here, STOP_COPY), 0);
    let first = read_all(&mut here);
    assert_eq!(set(&mut here, STOP), 0);
    let read = Body::new().u32(8 + PIECE).u32(PIECE);
    let reply = here.request(cmd::MIG_DATA_READ, &read, &[]);
    assert_eq!(reply.errno(), errno::EINVAL, "not in STOP");
    assert_eq!(set(&mut here, STOP_COPY), 0);
    assert_eq!(read_all(&mut here).len(), first.len(), "from the start");
    assert_eq!(set(&mut here, RUNNING), 0);
    check(&mut here, &mut drive, 5);
}

#[test]
fn a_wrong_state_leads_to_error_until_a_reset() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let drive = Drive::new(&mut here);
    assert_eq!(set(&mut here, STOP_COPY), 0);
    let stream = read_all(&mut here);
    let mut flipped = stream.clone();
    flipped[stream.len() / 2] ^= 1;
    // A version that is far from here.
    let mut other = stream.clone();
    other[8] = u8::MAX;
    let longer = [stream.as_slice(), b"x"].concat();
    let wrong = [
        &flipped,
        &other,
        &longer,
        &stream[..stream.len() - 1],
        &stream[..0],
    ];
    let mut there = there(&server, &drive);
    for stream in wrong {
        assert_eq!(set(&mut there, RESUMING), 0);
        write_all(&mut there, stream);
        assert_eq!(set(&mut there, STOP), errno::EINVAL);
        assert_eq!(state(&mut there), ERROR);
        for next in [ERROR, STOP, RUNNING, STOP_COPY, RESUMING] {
            assert_eq!(set(&mut there, next), errno::EINVAL, "{next}");
        }
        assert_eq!(there.read32(0, 0x14), 0, "no controller is enabled");
        expect_not_enabled(&mut there);
        let _ = there.request(cmd::DEVICE_RESET, &Body::new(), &[]).ok();
        assert_eq!(state(&mut there), RUNNING);
    }
    assert_eq!(set(&mut there, RESUMING), 0);
    write_all(&mut there, &stream);
    assert_eq!(set(&mut there, RUNNING), 0, "the right one is taken");
}

#[test]
fn the_host_s_memory_may_follow_the_state() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    write(&mut here, &mut drive, 4);
    assert_eq!(set(&mut here, STOP_COPY), 0);
    let stream = read_all(&mut here);
    let mut there = Host::new(server.attach(1));
    assert_eq!(set(&mut there, RESUMING), 0);
    write_all(&mut there, &stream);
    assert_eq!(set(&mut there, STOP), 0);
    there.dma_map(BASE, LEN, drive.fd());
    assert_eq!(set(&mut there, RUNNING), 0);
    check(&mut there, &mut drive, 4);
}

#[test]
fn the_features_are_as_specified() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut ask = |body: &Body| host.request(cmd::DEVICE_FEATURE, body, &[]);
    let reply = ask(&feature(16, GET | MIGRATION));
    assert_eq!((reply.u32(0), reply.u64(8)), (16, 1), "STOP_COPY alone");
    for known in [GET | MIGRATION, GET | DEVICE_STATE, SET | DEVICE_STATE] {
        assert_eq!(ask(&feature(8, PROBE | known)).ok().len(), 8);
    }
    assert_eq!(
        ask(&feature(8, PROBE | GET | SET | DEVICE_STATE))
            .ok()
            .len(),
        8
    );
    let invalid = [
        feature(8, PROBE | SET | MIGRATION),
        feature(16, SET | MIGRATION).u64(1),
        feature(16, DEVICE_STATE),
        feature(16, PROBE | DEVICE_STATE),
        feature(16, GET | SET | DEVICE_STATE).u64(1),
        feature(15, GET | DEVICE_STATE),
        feature(16, SET | DEVICE_STATE).u32(1),
        feature(16, GET | DEVICE_STATE | 1 << 19),
        Body::new().u32(8),
    ];
    for body in invalid {
        assert_eq!(ask(&body).errno(), errno::EINVAL, "{body:?}");
    }
    for unknown in [0, 3, 4, 5, 9, 0xffff] {
        let reply = ask(&feature(64, GET | unknown));
        assert_eq!(reply.errno(), errno::EOPNOTSUPP, "feature {unknown}");
    }
}

#[test]
fn only_the_arcs_of_what_is_offered_are_taken() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    assert_eq!(state(&mut host), RUNNING);
    for unknown in [ERROR, 5, PRE_COPY, 7, 99] {
        assert_eq!(set(&mut host, unknown), errno::EINVAL, "{unknown}");
        assert_eq!(state(&mut host), RUNNING);
    }
    for next in [
        RUNNING, STOP, STOP, STOP_COPY, STOP, RUNNING, STOP_COPY, RUNNING,
    ] {
        assert_eq!(set(&mut host, next), 0, "{next}");
        assert_eq!(state(&mut host), next);
    }
    let write = Body::new().u32(9).u32(1).bytes(&[0]);
    let reply = host.request(cmd::MIG_DATA_WRITE, &write, &[]);
    assert_eq!(reply.errno(), errno::EINVAL, "not in RUNNING");
    let too_much = Body::new().u32(u32::MAX).u32((1 << 20) + 1);
    assert_eq!(set(&mut host, STOP_COPY), 0);
    let reply = host.request(cmd::MIG_DATA_READ, &too_much, &[]);
    assert_eq!(reply.errno(), errno::EINVAL);
    let cut = Body::new().u32(8).u32(1);
    assert_eq!(
        host.request(cmd::MIG_DATA_READ, &cut, &[]).errno(),
        errno::EINVAL
    );
    host.expect_in_step();
}

#[test]
fn a_state_that_does_not_end_is_refused() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    assert_eq!(set(&mut host, RESUMING), 0);
    let part = vec![0; 1 << 20];
    let body = Body::new().u32(8 + (1 << 20)).u32(1 << 20).bytes(&part);
    for _ in 0..64 {
        let _ = host.request(cmd::MIG_DATA_WRITE, &body, &[]).ok();
    }
    let reply = host.request(cmd::MIG_DATA_WRITE, &body, &[]);
    assert_eq!(reply.errno(), 27, "EFBIG");
    assert_eq!(state(&mut host), ERROR);
}

#[test]
fn the_medium_changes_hands_with_the_state() {
    let server = server();
    let holder = || server.lock().holder();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    assert_eq!(holder(), Some(0));
    let mut there = there(&server, &drive);
    there.expect_in_step();
    assert_eq!(holder(), Some(0), "the other one has it");
    assert_eq!(set(&mut here, STOP), 0);
    assert_eq!(holder(), Some(0), "nothing has left");
    assert_eq!(set(&mut here, STOP_COPY), 0);
    assert_eq!(holder(), None);
    let stream = read_all(&mut here);
    assert_eq!(set(&mut there, RESUMING), 0);
    write_all(&mut there, &stream);
    assert_eq!(holder(), None, "the state is not checked");
    assert_eq!(set(&mut there, STOP), 0);
    assert_eq!(holder(), Some(1));
    assert_eq!(set(&mut here, RUNNING), errno::EBUSY, "it is elsewhere");
    assert_eq!(state(&mut here), ERROR);
    assert_eq!(here.read32(0, 0x14) & 1, 0, "no controller is enabled");
    let _ = here.request(cmd::DEVICE_RESET, &Body::new(), &[]).ok();
    expect_not_enabled(&mut here);
    assert_eq!(set(&mut there, RUNNING), 0);
    write(&mut there, &mut drive, 6);
    check(&mut there, &mut drive, 6);
}

/// Enables a controller, with queues in memory that the host has given it: it reports a fatal
/// status.
fn expect_not_enabled(host: &mut Host) {
    host.region_write(0, 0x24, &0x000f_000f_u32.to_le_bytes());
    host.region_write(0, 0x28, &BASE.to_le_bytes());
    host.region_write(0, 0x30, &(BASE + 4096).to_le_bytes());
    host.region_write(0, 0x14, &0x0046_0001_u32.to_le_bytes());
    let deadline = Instant::now() + Duration::from_secs(20);
    while host.read32(0, 0x1c) & 3 != 2 {
        assert!(Instant::now() < deadline, "it is enabled, or not yet");
        std::thread::yield_now();
    }
}

#[test]
fn a_controller_without_its_medium_gives_no_state() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let drive = Drive::new(&mut here);
    let mut there = there(&server, &drive);
    assert_eq!(set(&mut there, STOP_COPY), errno::EINVAL);
    assert_eq!(state(&mut there), STOP);
    assert_eq!(set(&mut there, RUNNING), 0);
    expect_not_enabled(&mut there);
    assert_eq!(server.lock().holder(), Some(0));
}

#[test]
fn a_medium_that_is_not_durable_stays() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    write(&mut here, &mut drive, 2);
    server.lock().fail(true);
    assert_eq!(set(&mut here, STOP_COPY), errno::EIO);
    assert_eq!(state(&mut here), STOP);
    server.lock().fail(false);
    server.lock().hang(true);
    let body = feature(16, SET | DEVICE_STATE).u32(STOP_COPY).u32(0);
    let id = server.wait_for_messages(1, || here.send(cmd::DEVICE_FEATURE, &body, &[]));
    std::thread::sleep(Duration::from_millis(50));
    assert!(here.try_receive().is_none(), "it is not durable yet");
    server.advance(Duration::from_millis(4600));
    let reply = here.receive();
    assert_eq!((reply.id, reply.errno()), (id, errno::ETIMEDOUT));
    assert_eq!(server.lock().holder(), Some(0));
    server.lock().hang(false);
    assert_eq!(set(&mut here, RUNNING), 0);
    check(&mut here, &mut drive, 2);
    assert_eq!(set(&mut here, STOP_COPY), 0, "it is durable now");
}

#[test]
fn a_subsystem_with_what_does_not_move_stays() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    write(&mut here, &mut drive, 2);
    server.keep(true);
    assert_eq!(set(&mut here, STOP_COPY), errno::EINVAL);
    assert_eq!(state(&mut here), STOP);
    assert_eq!(server.lock().holder(), Some(0));
    assert_eq!(set(&mut here, RUNNING), 0);
    check(&mut here, &mut drive, 2);
}

#[test]
fn a_state_of_another_medium_is_not_taken() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    write(&mut here, &mut drive, 7);
    assert_eq!(set(&mut here, STOP_COPY), 0);
    let stream = read_all(&mut here);
    let mut there = there(&server, &drive);
    assert_eq!(set(&mut there, RESUMING), 0);
    write_all(&mut there, &stream);
    server.lock().differ(true);
    assert_eq!(set(&mut there, STOP), errno::EINVAL);
    assert_eq!(server.lock().holder(), None);
    assert_eq!(set(&mut here, RUNNING), 0);
    check(&mut here, &mut drive, 7);
}

#[test]
fn a_target_with_what_does_not_move_gives_the_medium_back() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    write(&mut here, &mut drive, 7);
    assert_eq!(set(&mut here, STOP_COPY), 0);
    let stream = read_all(&mut here);
    let mut there = there(&server, &drive);
    assert_eq!(set(&mut there, RESUMING), 0);
    write_all(&mut there, &stream);
    server.keep(true);
    assert_eq!(set(&mut there, RUNNING), errno::EINVAL);
    assert_eq!(state(&mut there), ERROR);
    assert_eq!(server.lock().holder(), None);
    server.keep(false);
    assert_eq!(set(&mut here, RUNNING), 0);
    check(&mut here, &mut drive, 7);
}

#[test]
fn a_target_that_fails_leaves_the_medium_to_the_source() {
    let server = server();
    let mut here = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut here);
    write(&mut here, &mut drive, 7);
    assert_eq!(set(&mut here, STOP_COPY), 0);
    let mut stream = read_all(&mut here);
    // The target takes the medium when its host attaches, and gives it back.
    let mut there = there(&server, &drive);
    there.expect_in_step();
    assert_eq!(server.lock().holder(), Some(1));
    assert_eq!(set(&mut there, RESUMING), 0);
    assert_eq!(server.lock().holder(), None);
    let last = stream.len() - 1;
    stream[last] ^= 1;
    write_all(&mut there, &stream);
    assert_eq!(set(&mut there, STOP), errno::EINVAL);
    assert_eq!(server.lock().holder(), None);
    assert_eq!(set(&mut here, RUNNING), 0);
    assert_eq!(server.lock().holder(), Some(0));
    check(&mut here, &mut drive, 7);
}

#[test]
fn a_host_that_leaves_a_stopped_device_leaves_a_usable_one() {
    let server = server();
    for last in [STOP, STOP_COPY, RESUMING] {
        let mut here = Host::new(server.attach(0));
        let _ = Drive::new(&mut here);
        assert_eq!(set(&mut here, last), 0);
        drop(here);
        let _ = server.wait_for_end(0);
        let mut next = Host::new(server.attach(0));
        assert_eq!(state(&mut next), RUNNING);
        let mut drive = Drive::new(&mut next);
        write(&mut next, &mut drive, 8);
        check(&mut next, &mut drive, 8);
    }
}
