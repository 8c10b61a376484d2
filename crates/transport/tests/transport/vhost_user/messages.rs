//! Messages as bytes: wrong ones, and descriptors that are something else.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use memory::EventFd;
use rustix::fs::MemfdFlags;
use tests_vhost_front::{Message, Options, Raw, Request};

use super::rig::{BOUND, Rig, Shape};

const NEED_REPLY: u32 = 8;
const VERSION: u32 = 1;
/// Bit 40 of the features, and bit 30: any rings, and features of the protocol.
const PROTOCOL: u64 = 1 << 30;
const VERSION_1: u64 = 1 << 32;
const REPLY_ACK: u64 = 1 << 3;
/// The private memory of the session: no region may reach there.
const PRIVATE: u64 = 1 << 62;
const SHORT: Duration = Duration::from_millis(30);

const GET_FEATURES: u32 = 1;
const SET_FEATURES: u32 = 2;
const SET_OWNER: u32 = 3;
const RESET_OWNER: u32 = 4;
const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const SET_VRING_ERR: u32 = 14;
const GET_PROTOCOL_FEATURES: u32 = 15;
const SET_PROTOCOL_FEATURES: u32 = 16;
const GET_QUEUE_NUM: u32 = 17;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const GET_CONFIG: u32 = 24;
const SET_CONFIG: u32 = 25;
const GET_INFLIGHT_FD: u32 = 31;
const SET_INFLIGHT_FD: u32 = 32;
const RESET_DEVICE: u32 = 34;
const GET_MAX_MEM_SLOTS: u32 = 36;
const ADD_MEM_REG: u32 = 37;
const REM_MEM_REG: u32 = 38;
const SET_STATUS: u32 = 39;
const GET_STATUS: u32 = 40;

/// Each message: bytes of its body, and its descriptors.
const MESSAGES: [(u32, usize, usize); 27] = [
    (GET_FEATURES, 0, 0),
    (SET_FEATURES, 8, 0),
    (SET_OWNER, 0, 0),
    (RESET_OWNER, 0, 0),
    (SET_MEM_TABLE, 8, 0),
    (SET_VRING_NUM, 8, 0),
    (SET_VRING_ADDR, 40, 0),
    (SET_VRING_BASE, 8, 0),
    (GET_VRING_BASE, 8, 0),
    (SET_VRING_KICK, 8, 1),
    (SET_VRING_CALL, 8, 1),
    (SET_VRING_ERR, 8, 1),
    (GET_PROTOCOL_FEATURES, 0, 0),
    (SET_PROTOCOL_FEATURES, 8, 0),
    (GET_QUEUE_NUM, 0, 0),
    (SET_VRING_ENABLE, 8, 0),
    (SET_BACKEND_REQ_FD, 0, 1),
    (GET_CONFIG, 12, 0),
    (SET_CONFIG, 12, 0),
    (GET_INFLIGHT_FD, 24, 0),
    (SET_INFLIGHT_FD, 24, 1),
    (RESET_DEVICE, 0, 0),
    (GET_MAX_MEM_SLOTS, 0, 0),
    (ADD_MEM_REG, 40, 1),
    (REM_MEM_REG, 40, 0),
    (SET_STATUS, 8, 0),
    (GET_STATUS, 0, 0),
];

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn pair(index: u32, num: u32) -> Vec<u8> {
    words(&[u64::from(index) | u64::from(num) << 32])
}

fn memfd(len: u64) -> OwnedFd {
    let fd = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, len).unwrap();
    fd
}

/// A connection that takes acknowledgements.
fn negotiated(rig: &Rig) -> Raw {
    let raw = rig.raw();
    for (request, number) in [
        (SET_FEATURES, PROTOCOL | VERSION_1),
        (SET_PROTOCOL_FEATURES, 0xffff_ffff & 0x1_b229),
    ] {
        raw.send(request, 0, &words(&[number]), &[]).unwrap();
    }
    raw
}

/// The number by which a message is acknowledged.
fn acked(raw: &Raw, request: u32, body: &[u8], fds: &[BorrowedFd<'_>]) -> u64 {
    raw.send(request, NEED_REPLY, body, fds).unwrap();
    let reply: Message = raw.receive(BOUND).unwrap().unwrap();
    assert_eq!(reply.request, request);
    reply.u64().unwrap()
}

fn refused(raw: &Raw, request: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
    assert_eq!(acked(raw, request, body, fds), 1, "{request} {body:?}");
}

fn done(raw: &Raw, request: u32, body: &[u8], fds: &[BorrowedFd<'_>]) {
    assert_eq!(acked(raw, request, body, fds), 0, "{request} {body:?}");
}

/// "Vhost-user Protocol", the formats of the messages.
#[test]
fn a_wrong_length_or_number_of_descriptors_ends_the_connection() {
    let rig = Rig::new(Shape::default());
    let event = EventFd::new().unwrap();
    for (request, len, fds) in MESSAGES {
        // A table may have room for more regions than it has.
        let room = if request == SET_MEM_TABLE { 256 } else { 0 };
        let wrong = [
            (len + room + 1, fds),
            (len.wrapping_sub(1).min(4096), fds),
            (len, fds + 1 + usize::from(request == REM_MEM_REG)),
            (len, fds.wrapping_sub(1).min(8)),
            (4096, fds),
        ];
        for (len, count) in wrong {
            let raw = negotiated(&rig);
            let descriptors = vec![event.as_fd(); count];
            raw.send(request, NEED_REPLY, &vec![0; len], &descriptors)
                .unwrap();
            assert!(raw.is_closed(BOUND).unwrap(), "{request} {len} {count}");
            let end = rig.end();
            assert!(
                !["closed", "refused", "io"].contains(&end),
                "{request} {len} {count}: {end}"
            );
        }
    }
}

#[test]
fn a_wrong_header_ends_the_connection() {
    let rig = Rig::new(Shape::default());
    for (flags, len) in [(0, 0), (2, 0), (3, 0), (VERSION | 4, 0), (VERSION, 4097)] {
        let raw = rig.raw();
        let header: Vec<u8> = [GET_FEATURES, flags, len]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        raw.send_bytes(&header, &[]).unwrap();
        assert!(raw.is_closed(BOUND).unwrap(), "{flags} {len}");
        assert_ne!(rig.end(), "closed");
    }
}

/// Without REPLY_ACK a refusal has no other way to be known.
#[test]
fn a_refused_message_ends_a_connection_that_takes_no_acknowledgement() {
    let rig = Rig::new(Shape::default());
    for (request, body) in [
        (200, vec![]),
        (SET_VRING_NUM, pair(64, 8)),
        (SET_CONFIG, words(&[1 << 32, 0])[..13].to_vec()),
        (SET_FEATURES, words(&[1 << 63])),
    ] {
        let raw = rig.raw();
        raw.send(request, NEED_REPLY, &body, &[]).unwrap();
        assert!(raw.is_closed(BOUND).unwrap(), "{request}");
        assert_eq!(rig.end(), "refused");
    }
    // These have replies of their own, in which there is no failure.
    let inflight = words(&[0, 0, 65 | 128 << 16]);
    for (request, body) in [(GET_VRING_BASE, pair(64, 0)), (GET_INFLIGHT_FD, inflight)] {
        let raw = negotiated(&rig);
        raw.send(request, NEED_REPLY, &body, &[]).unwrap();
        assert!(raw.is_closed(BOUND).unwrap(), "{request}");
        assert_eq!(rig.end(), "refused");
    }
}

#[test]
fn numbers_that_the_device_does_not_have_are_refused() {
    let rig = Rig::new(Shape {
        rings: 4,
        ..Shape::default()
    });
    let raw = negotiated(&rig);
    let event = EventFd::new().unwrap();
    for request in [SET_VRING_NUM, SET_VRING_BASE, SET_VRING_ENABLE] {
        refused(&raw, request, &pair(4, 1), &[]);
        refused(&raw, request, &pair(u32::MAX, 1), &[]);
        done(&raw, request, &pair(3, 1), &[]);
    }
    for request in [SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR] {
        refused(&raw, request, &words(&[4]), &[event.as_fd()]);
        refused(&raw, request, &words(&[255]), &[event.as_fd()]);
    }
    refused(&raw, SET_VRING_NUM, &pair(0, 0), &[]);
    refused(&raw, SET_VRING_NUM, &pair(0, 32769), &[]);
    refused(&raw, SET_VRING_NUM, &pair(0, 65536 + 8), &[]);
    done(&raw, SET_VRING_NUM, &pair(0, 32768), &[]);
    refused(&raw, SET_VRING_ADDR, &words(&[4, 0, 0, 0, 0]), &[]);
    // The used ring is to be logged.
    refused(&raw, SET_VRING_ADDR, &words(&[1 << 32, 0, 0, 0, 0]), &[]);
    refused(&raw, SET_FEATURES, &words(&[1 << 63 | PROTOCOL]), &[]);
    // VHOST_F_LOG_ALL and VIRTIO_F_ACCESS_PLATFORM.
    refused(&raw, SET_FEATURES, &words(&[1 << 26 | PROTOCOL]), &[]);
    refused(&raw, SET_FEATURES, &words(&[1 << 33 | PROTOCOL]), &[]);
    refused(
        &raw,
        SET_PROTOCOL_FEATURES,
        &words(&[1 << 63 | REPLY_ACK]),
        &[],
    );
    refused(&raw, SET_STATUS, &words(&[256]), &[]);
    refused(&raw, SET_CONFIG, &words(&[1 << 32, 0])[..13], &[]);
    refused(&raw, 200, &[1; 100], &[event.as_fd()]);
    assert_eq!(
        raw.ask(GET_QUEUE_NUM, 0, &[], BOUND)
            .unwrap()
            .u64()
            .unwrap(),
        4
    );
    assert!(rig.with(|server| server.ends.is_empty()));
}

/// "If the front end asks for more than there is, it gets zeroes."
#[test]
fn the_configuration_space_ends_in_zeroes() {
    let rig = Rig::new(Shape::default());
    let raw = negotiated(&rig);
    let ask = |offset: u32, len: u32| {
        let mut body = [offset, len, 0].map(u32::to_le_bytes).concat();
        body.resize(12 + len as usize, 7);
        raw.ask(GET_CONFIG, 0, &body, BOUND).unwrap().body
    };
    let all = ask(0, 256);
    assert_eq!(all.len(), 12 + 256);
    assert_eq!(all[12..20], (super::rig::LEN / 512).to_le_bytes());
    assert_eq!(all[12 + 34..12 + 36], 64u16.to_le_bytes());
    assert!(all[12 + 57..].iter().all(|byte| *byte == 0));
    for offset in [57, 1 << 20, u32::MAX] {
        assert!(ask(offset, 256)[12..].iter().all(|byte| *byte == 0));
    }
    assert_eq!(ask(34, 2)[12..], 64u16.to_le_bytes());
}

#[test]
fn memory_that_cannot_be_used_is_refused() {
    let rig = Rig::new(Shape::default());
    let raw = negotiated(&rig);
    let fd = memfd(1 << 20);
    let region = |guest, len, user, offset| words(&[0, guest, len, user, offset]);
    let file = tempfile::tempfile().unwrap();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let event = EventFd::new().unwrap();
    done(
        &raw,
        ADD_MEM_REG,
        &region(1 << 20, 65536, 1 << 40, 0),
        &[fd.as_fd()],
    );
    for (body, fd) in [
        // It overlaps for the guest, or for the front end.
        (region((1 << 20) + 4096, 65536, 2 << 40, 0), fd.as_fd()),
        (region(1 << 30, 65536, (1 << 40) + 65535, 0), fd.as_fd()),
        // It ends above the addresses of guests.
        (region(PRIVATE - 4096, 8192, 2 << 40, 0), fd.as_fd()),
        (region(PRIVATE, 4096, 2 << 40, 0), fd.as_fd()),
        (region(PRIVATE + (1 << 40), 4096, 2 << 40, 0), fd.as_fd()),
        (region(u64::MAX - 4095, 8192, 2 << 40, 0), fd.as_fd()),
        (region(1 << 30, 8192, u64::MAX - 4095, 0), fd.as_fd()),
        (region(1 << 30, u64::MAX, 2 << 40, 0), fd.as_fd()),
        (region(1 << 30, 0, 2 << 40, 0), fd.as_fd()),
        // The file is shorter.
        (region(1 << 30, 65536, 2 << 40, 1 << 20), fd.as_fd()),
        (region(1 << 30, 2 << 20, 2 << 40, 0), fd.as_fd()),
        (region(1 << 30, 65536, 2 << 40, u64::MAX - 4095), fd.as_fd()),
        // There is no memory.
        (region(1 << 30, 4096, 2 << 40, 0), reader.as_fd()),
        (region(1 << 30, 4096, 2 << 40, 0), event.as_fd()),
        (region(1 << 30, 4096, 2 << 40, 0), file.as_fd()),
        (region(1 << 30, 4096, 2 << 40, 0), raw.stream().as_fd()),
    ] {
        refused(&raw, ADD_MEM_REG, &body, &[fd]);
    }
    for body in [
        region(1 << 21, 65536, 1 << 40, 0),
        region(1 << 20, 65536, 1 << 41, 0),
        region(1 << 20, 4096, 1 << 40, 0),
    ] {
        refused(&raw, REM_MEM_REG, &body, &[]);
    }
    done(&raw, REM_MEM_REG, &region(1 << 20, 65536, 1 << 40, 9), &[]);
    refused(&raw, REM_MEM_REG, &region(1 << 20, 65536, 1 << 40, 0), &[]);
    // As many regions as there may be, and no more.
    let most = raw
        .ask(GET_MAX_MEM_SLOTS, 0, &[], BOUND)
        .unwrap()
        .u64()
        .unwrap();
    for at in 0..most + 1 {
        let body = region(at << 16, 4096, at << 16, 0);
        let expected = u64::from(at == most);
        assert_eq!(acked(&raw, ADD_MEM_REG, &body, &[fd.as_fd()]), expected);
    }
    assert!(rig.with(|server| server.ends.is_empty()));
}

/// A table of which one region is wrong leaves no region.
#[test]
fn a_wrong_table_leaves_no_memory() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    disk.write(0, &[5; 512]).unwrap();
    let region = disk.guest().regions()[0];
    let good = [region.guest, region.len, region.user, region.offset];
    let table = [&[2u64][..], &good, &good].concat();
    let fd = disk.guest().memory().fd();
    refused(disk.raw(), SET_MEM_TABLE, &words(&table), &[fd, fd]);
    rig.until(|server| server.counters().broken == 1);
    // It is not there, and can be there again.
    let body = words(&[&[0u64][..], &good].concat());
    let fd = disk.guest().memory().fd();
    refused(disk.raw(), REM_MEM_REG, &body, &[]);
    done(disk.raw(), ADD_MEM_REG, &body, &[fd]);
    disk.reset().unwrap();
    assert_eq!(disk.read(0, 512).unwrap(), [5; 512]);
}

#[test]
fn numbers_of_a_ring_that_runs_do_not_change() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options {
        inflight: true,
        ..Options::default()
    });
    disk.write(0, &[5; 512]).unwrap();
    let features = disk.features();
    let raw = disk.raw();
    refused(raw, SET_VRING_NUM, &pair(0, 64), &[]);
    refused(raw, SET_VRING_BASE, &pair(0, 0), &[]);
    refused(raw, SET_VRING_ADDR, &words(&[0, 0, 0, 0, 0]), &[]);
    refused(raw, SET_FEATURES, &words(&[features ^ 1 << 29]), &[]);
    done(raw, SET_FEATURES, &words(&[features]), &[]);
    let (file, len) = disk.inflight().unwrap();
    let body = words(&[len, 0, 1 | 128 << 16]);
    refused(raw, SET_INFLIGHT_FD, &body, &[file.as_fd()]);
    // Those of another one do.
    done(raw, SET_VRING_NUM, &pair(1, 64), &[]);
    assert_eq!(disk.read(0, 512).unwrap(), [5; 512]);
}

#[test]
fn a_wrong_record_of_requests_in_flight_is_refused() {
    let rig = Rig::new(Shape {
        rings: 2,
        ..Shape::default()
    });
    let raw = negotiated(&rig);
    let wish = words(&[0, 0, 2 | 64 << 16]);
    let granted = raw.ask(GET_INFLIGHT_FD, 0, &wish, BOUND).unwrap();
    let [len, _, shape] = [0, 8, 16].map(|at| {
        let bytes = granted.body[at..at + 8].try_into().unwrap();
        u64::from_le_bytes(bytes)
    });
    assert_eq!(shape, 2 | 64 << 16);
    let file = &granted.fds[0];
    let long = memfd(2 * len);
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    for (body, fd) in [
        ([len - 1, 0, shape], file.as_fd()),
        ([len + 8192, 0, shape], file.as_fd()),
        ([len, 1, shape], file.as_fd()),
        ([len, 1 << 20, shape], file.as_fd()),
        ([len, u64::MAX - 63, shape], file.as_fd()),
        // The device has two rings.
        ([2 * len, 0, 3 | 64 << 16], long.as_fd()),
        ([len, 0, 64 << 16], file.as_fd()),
        ([len, 0, 2], file.as_fd()),
        ([len, 0, 2 | 32769 << 16], file.as_fd()),
        ([len, 0, 2 | 128 << 16], file.as_fd()),
        ([len, 0, shape], reader.as_fd()),
    ] {
        refused(&raw, SET_INFLIGHT_FD, &words(&body), &[fd]);
    }
    let version = |version: u8| {
        let fd = memfd(len);
        rustix::io::pwrite(&fd, &[version], 8).unwrap();
        fd
    };
    let body = words(&[len, 0, shape]);
    refused(&raw, SET_INFLIGHT_FD, &body, &[version(2).as_fd()]);
    done(&raw, SET_INFLIGHT_FD, &body, &[version(1).as_fd()]);
    done(&raw, SET_INFLIGHT_FD, &body, &[file.as_fd()]);
}

/// The order of messages is the front end's: a ring may be there before its memory.
#[test]
fn a_ring_waits_for_its_memory() {
    let rig = Rig::new(Shape::default());
    let raw = negotiated(&rig);
    let (kick, error) = (EventFd::new().unwrap(), EventFd::new().unwrap());
    let fd = memfd(1 << 20);
    let user = 1 << 40;
    done(&raw, SET_VRING_ERR, &[0; 8], &[error.as_fd()]);
    done(&raw, SET_VRING_NUM, &pair(0, 64), &[]);
    let address = words(&[0, user, user + 8192, user + 4096]);
    let address = [address, vec![0; 8]].concat();
    done(&raw, SET_VRING_ADDR, &address, &[]);
    done(&raw, SET_VRING_KICK, &[0; 8], &[kick.as_fd()]);
    let needs_reset = || raw.ask(GET_STATUS, 0, &[], BOUND).unwrap().u64().unwrap() & 0x40 != 0;
    assert!(needs_reset() && error.drain());
    assert_eq!(rig.with(|server| server.counters().broken), 1);
    let region = |guest, user| words(&[0, guest, 65536, user, 0]);
    done(&raw, ADD_MEM_REG, &region(1 << 20, 2 << 40), &[fd.as_fd()]);
    assert!(needs_reset() && !error.drain());
    assert_eq!(rig.with(|server| server.counters().broken), 1);
    done(&raw, ADD_MEM_REG, &region(1 << 30, user), &[fd.as_fd()]);
    assert!(!needs_reset() && !error.drain());
    refused(&raw, SET_VRING_NUM, &pair(0, 64), &[]);
}

/// Writing to anything but an eventfd may block, or do worse.
#[test]
fn kicks_and_calls_are_eventfds() {
    let rig = Rig::new(Shape::default());
    let raw = negotiated(&rig);
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let file = tempfile::tempfile().unwrap();
    let memory = memfd(4096);
    for fd in [
        reader.as_fd(),
        writer.as_fd(),
        file.as_fd(),
        memory.as_fd(),
        raw.stream().as_fd(),
    ] {
        for request in [SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR] {
            refused(&raw, request, &[0; 8], &[fd]);
        }
    }
    assert_eq!(rustix::fs::fstat(&file).unwrap().st_size, 0);
    // A counter that is full, of a descriptor that blocks, blocks no one.
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    for request in [SET_VRING_CALL, SET_VRING_ERR, SET_VRING_KICK] {
        done(&raw, request, &[0; 8], &[event.as_fd()]);
    }
    // A kick that stays readable costs nothing.
    rig.with(|server| server.polls = 0);
    std::thread::sleep(SHORT * 4);
    let polls = rig.with(|server| server.polls);
    assert!(polls < 20, "{polls}");
}

/// How long the rest of a message, and a reader of a reply, may take.
#[test]
fn a_front_end_that_stops_in_a_message_is_bounded() {
    let rig = Rig::new(Shape::default());
    for bytes in [1, 11, 12, 15] {
        let raw = rig.raw();
        let message: Vec<u8> = [SET_FEATURES, VERSION, 8, 0, 0]
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect();
        raw.send_bytes(&message[..bytes], &[]).unwrap();
        assert!(!raw.is_closed(SHORT).unwrap());
        rig.with(|server| server.advance(Duration::from_secs(119)));
        assert!(!raw.is_closed(SHORT).unwrap());
        rig.with(|server| server.advance(Duration::from_secs(2)));
        assert!(raw.is_closed(BOUND).unwrap());
        assert_eq!(rig.end(), "cut");
    }
    // The connection closes in the middle of one.
    let raw = rig.raw();
    raw.send_bytes(&[1; 5], &[]).unwrap();
    drop(raw);
    assert_eq!(rig.end(), "cut");
    // One without any message is not bounded, and one byte at a time is a message.
    let raw = rig.raw();
    std::thread::sleep(SHORT);
    rig.with(|server| server.advance(Duration::from_secs(1000)));
    for byte in [1u8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0] {
        raw.send_bytes(&[byte], &[]).unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(raw.receive(BOUND).unwrap().unwrap().request, GET_FEATURES);
}

#[test]
fn a_front_end_that_reads_no_replies_is_bounded() {
    let rig = Rig::new(Shape::default());
    let raw = rig.raw();
    raw.stream().set_nonblocking(true).unwrap();
    let message: Vec<u8> = [GET_CONFIG, VERSION, 12 + 256, 0, 256, 0]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .chain([0; 256])
        .collect();
    let mut sent = 0u64;
    let mut full = 0;
    while full < 100 {
        match std::io::Write::write(&mut raw.stream(), &message) {
            Ok(len) => (sent, full) = (sent + len as u64, 0),
            Err(_) => {
                full += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(sent < 64 << 20, "it takes messages without an end");
    }
    assert!(rig.with(|server| server.ends.is_empty()));
    rig.with(|server| server.advance(Duration::from_secs(119)));
    std::thread::sleep(SHORT);
    assert!(rig.with(|server| server.ends.is_empty()));
    rig.with(|server| server.advance(Duration::from_secs(2)));
    assert_eq!(rig.end(), "does-not-read");
}

/// One that sends many descriptors gets rid of its connection, and the descriptors are closed.
#[test]
fn descriptors_do_not_add_up() {
    let rig = Rig::new(Shape::default());
    let event = EventFd::new().unwrap();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let raw = negotiated(&rig);
    done(&raw, SET_OWNER, &[], &[]);
    let before = open();
    for _ in 0..50 {
        for request in [SET_VRING_KICK, SET_VRING_CALL, SET_VRING_ERR] {
            done(&raw, request, &[0; 8], &[event.as_fd()]);
        }
        refused(&raw, 200, &[], &[event.as_fd(); 8]);
        done(&raw, SET_BACKEND_REQ_FD, &[], &[event.as_fd()]);
    }
    // Other tests of this process open some, too.
    assert!(open() < before + 100, "{} after {before}", open());
    raw.send(SET_VRING_CALL, 0, &[0; 8], &[event.as_fd(); 9])
        .unwrap();
    assert_ne!(rig.end(), "closed");
}

/// Everything that a driver needs still works after a sequence of refused messages.
#[test]
fn refused_messages_change_nothing() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    disk.write(8, &[6; 512]).unwrap();
    for body in [pair(77, 1), pair(0, 0), pair(0, 5)] {
        refused(disk.raw(), SET_VRING_NUM, &body, &[]);
        refused(disk.raw(), SET_VRING_BASE, &body, &[]);
    }
    let read = Request::Read {
        sector: 8,
        len: 512,
    };
    let layout = tests_vhost_front::Layout::merged();
    assert_eq!(disk.run(0, &read, &layout).unwrap().data, [6; 512]);
}
