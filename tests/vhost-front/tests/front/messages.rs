//! The order of messages, as QEMU 11.1 sends them to a back end with all of these features.

use std::time::{Duration, Instant};

use tests_vhost_front::{Disk, Options, code};

use super::device::{Device, Seen};

const REPLY: u32 = 8;

/// Before the driver of the guest starts: negotiation, eventfds, configuration space.
const PREPARE: &[Seen] = &[
    (1, 0, 0, 0),
    (15, 0, 0, 0),
    (16, 0, 8, 0),
    (17, 0, 0, 0),
    (36, 0, 0, 0),
    (21, REPLY, 0, 1),
    (3, 0, 0, 0),
    (1, 0, 0, 0),
    (13, REPLY, 8, 1),
    (14, REPLY, 8, 1),
    (13, REPLY, 8, 1),
    (14, REPLY, 8, 1),
    (24, 0, 69, 0),
];
/// Of a start, up to the memory.
const BEGIN: &[Seen] = &[(2, 0, 8, 0), (40, 0, 0, 0), (39, 0, 8, 0)];
const INFLIGHT: &[Seen] = &[(31, 0, 24, 0), (32, 0, 24, 1)];
const CALLS: &[Seen] = &[
    (13, REPLY, 8, 1),
    (13, REPLY, 8, 1),
    (2, 0, 8, 0),
    (40, 0, 0, 0),
];
const MEMORY: &[Seen] = &[(37, REPLY, 40, 1)];
const RINGS: &[Seen] = &[
    (8, 0, 8, 0),
    (10, 0, 8, 0),
    (9, 0, 40, 0),
    (12, REPLY, 8, 1),
    (8, 0, 8, 0),
    (10, 0, 8, 0),
    (9, 0, 40, 0),
    (12, REPLY, 8, 1),
    (18, REPLY, 8, 0),
    (18, REPLY, 8, 0),
    (40, 0, 0, 0),
    (39, 0, 8, 0),
];
const STOP: &[Seen] = &[
    (18, REPLY, 8, 0),
    (18, REPLY, 8, 0),
    (11, 0, 8, 0),
    (11, 0, 8, 0),
    (39, 0, 8, 0),
];
const RESET: &[Seen] = &[(34, 0, 0, 0)];

/// Asserts which messages have come, the last of which needs no reply and may still be on its way.
fn assert_seen(device: &Device, parts: &[&[Seen]]) {
    let expected = parts.concat();
    let mut seen = Vec::new();
    let deadline = Instant::now() + tests_vhost_front::BOUND;
    while seen.len() < expected.len() && Instant::now() < deadline {
        seen.extend(device.seen());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(seen, expected);
}

fn options() -> Options {
    Options {
        queues: 2,
        is_packed: true,
        inflight: true,
        ..Options::default()
    }
}

#[test]
fn messages_come_in_qemus_order() {
    let device = Device::start();
    let mut disk = Disk::connect(&device.socket(), options()).unwrap();
    let first = [PREPARE, RESET, BEGIN, INFLIGHT, CALLS, MEMORY, RINGS];
    assert_seen(&device, &first);
    assert_eq!(disk.status().unwrap(), 15);
    assert_seen(&device, &[&[(40, 0, 0, 0)]]);
    disk.stop().unwrap();
    assert_seen(&device, &[STOP]);
    disk.restart().unwrap();
    // The memory is known, and the record of requests exists.
    let again = [BEGIN, &[INFLIGHT[1]], CALLS, RINGS];
    assert_seen(&device, &again);
    disk.reset().unwrap();
    assert_seen(&device, &[STOP, RESET, BEGIN, INFLIGHT, CALLS, RINGS]);
    device.die();
    disk.reconnect().unwrap();
    let next = [PREPARE, BEGIN, &[INFLIGHT[1]], CALLS, MEMORY, RINGS];
    assert_seen(&device, &next);
}

#[test]
fn replies_are_asked_for_on_demand() {
    let device = Device::start();
    let options = Options {
        need_reply: false,
        ..options()
    };
    let disk = Disk::connect(&device.socket(), options).unwrap();
    disk.status().unwrap();
    let seen = device.seen();
    assert!(seen.iter().all(|(_, flags, _, _)| *flags == 0), "{seen:?}");
}

#[test]
fn a_back_end_that_does_not_answer_is_an_error() {
    let device = Device::start();
    let bound = Duration::from_millis(500);
    let options = Options { bound, ..options() };
    let mut disk = Disk::connect(&device.socket(), options).unwrap();
    device.be_mute();
    let begin = Instant::now();
    let error = disk.read_config().unwrap_err();
    assert!(error.to_string().contains("the back end"), "{error}");
    let took = begin.elapsed();
    assert!((bound..bound * 8).contains(&took), "{took:?}");
}

#[test]
fn raw_messages_are_what_they_are() {
    let device = Device::start();
    let disk = Disk::connect(&device.socket(), options()).unwrap();
    device.seen();
    let bound = tests_vhost_front::BOUND;
    let features = disk.raw().ask(code::GET_FEATURES, 0, &[], bound).unwrap();
    assert_eq!(features.u64().unwrap(), disk.offered());
    disk.raw().send_bytes(&[40, 0, 0, 0, 1, 0], &[]).unwrap();
    disk.raw().send_bytes(&[0, 0, 0, 0, 0, 0], &[]).unwrap();
    let status = disk.raw().receive(tests_vhost_front::BOUND).unwrap();
    assert_eq!(status.unwrap().u64().unwrap(), 15);
    assert!(!disk.raw().is_closed(Duration::ZERO).unwrap());
    device.die();
    assert!(disk.raw().is_closed(tests_vhost_front::BOUND).unwrap());
}
