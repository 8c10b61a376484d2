//! Requests of a worker to its holder, and messages for its hosts, that are none or too many.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{hex, tests};
use crate::control::{self, packet};
use crate::host::Host;
use crate::rig::{Rig, wait_for};
use crate::worker::KINDS;

tests! {
    "requests":
    what_is_no_request_ends_the_worker_and_no_host,
    a_request_that_cannot_be_granted_is_refused,
    an_empty_packet_makes_a_worker_deaf_and_nothing_else,
    what_is_kept_has_a_limit,
    paths_have_a_limit,
    to_listen_again_costs_nothing,
    a_worker_is_ready_once,
    a_storm_of_requests_stops_neither_hosts_nor_signals,
    a_worker_that_reads_no_replies_is_replaced,
    messages_that_answer_nothing_reach_no_host,
    what_is_no_message_ends_the_worker_and_no_host,
    descriptors_that_are_no_memory_are_kept_like_others,
    too_many_descriptors_are_closed,
    the_state_of_a_host_is_two_descriptors,
}

const NAME: u16 = control::NAME;

/// Has the worker do something that ends it; the next one serves the host on the connection.
fn is_replaced(rig: &Rig, host: &mut Host, what: &str) {
    let before = host.generation();
    assert_eq!(host.tell(&format!("then {what}")), "done");
    host.is_served_by(before + 1);
    rig.is_calm();
}

fn what_is_no_request_ends_the_worker_and_no_host() {
    let version = [8, 0, 9, 0, 1, 0, 0, 0];
    // A field of 40 bytes, of which there are three.
    let long = [&packet(control::KEEP, 1, &[])[..], &[1, 0, 40, 0, 1, 2, 3]].concat();
    let half = [&packet(control::KEEP, 1, &[])[..], &[1, 0, 0]].concat();
    let huge = vec![0; 8193];
    let all: [&[u8]; 6] = [b"x", &[0xff; 64], &version, &long, &half, &huge];
    // Two deaths of three that would be the end.
    for two in all.chunks(2) {
        let rig = Rig::start("");
        let mut host = rig.host();
        let before = rig.usage();
        for packet in two {
            is_replaced(&rig, &mut host, &format!("send {}", hex(packet)));
        }
        // A worker that waits.
        rig.is_bounded(before, 4, 6);
    }
}

fn a_request_that_cannot_be_granted_is_refused() {
    let rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    let unknown = host.tell(&format!("ask {}", hex(&packet(77, 900, &[]))));
    assert_eq!(unknown, "there is no request 77");
    let all = [
        packet(control::LISTEN, 901, &[]),
        packet(control::LISTEN, 902, &[(NAME, b"/no/such/folder/n")]),
        packet(control::LISTEN, 903, &[(NAME, b"")]),
        packet(control::LISTEN, 904, &[(NAME, &[b'x'; 4000])]),
        packet(control::LISTEN, 905, &[(NAME, b"/tmp/x"), (2, &[1])]),
        packet(control::LISTEN, 906, &[(NAME, b"/tmp/x"), (2, &[0xff; 8])]),
        packet(control::KEEP, 907, &[(NAME, b"x")]),
        packet(control::FETCH, 908, &[]),
        packet(control::UPGRADE, 909, &[(NAME, b"/no/such/program")]),
        packet(control::UPGRADE, 910, &[(NAME, b"/dev/null")]),
        packet(control::HAND_OVER, 911, &[]),
        packet(0x8000 | control::FETCH, 912, &[(NAME, b"x")]),
    ];
    for packet in all {
        let said = host.tell(&format!("ask {}", hex(&packet)));
        assert_ne!(said, "ok", "{packet:?}");
    }
    assert_eq!(host.generation(), 1);
    rig.is_calm();
    rig.is_bounded(before, 4, 6);
}

fn an_empty_packet_makes_a_worker_deaf_and_nothing_else() {
    let rig = Rig::start("");
    let mut host = rig.host();
    host.tell("then send ");
    assert_eq!(host.generation(), 1);
    rig.is_calm();
    is_replaced(&rig, &mut host, "die");
}

fn what_is_kept_has_a_limit() {
    let rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    assert_eq!(host.tell("keep-many 6000"), "4096");
    rig.is_bounded(before, 8, 4096 + 6);
    assert_eq!(host.generation(), 1);
    // The next worker names none of them.
    is_replaced(&rig, &mut host, "die");
    rig.is_bounded(before, 8, 6);
}

fn paths_have_a_limit() {
    let rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    let granted: usize = host.tell("listen-many 3000").parse().unwrap();
    assert!((64..=1024).contains(&granted), "{granted}");
    // A socket, the lock of its file, and the way to the worker.
    rig.is_bounded(before, 8, 3 * granted + 6);
    is_replaced(&rig, &mut host, "die");
    rig.is_bounded(before, 8, 6);
}

fn to_listen_again_costs_nothing() {
    let rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    host.tell("then listen-again 2000");
    assert_eq!(host.generation(), 1);
    rig.is_calm();
    rig.is_bounded(before, 4, 6);
}

fn a_worker_is_ready_once() {
    let rig = Rig::start("");
    let mut host = rig.host();
    host.tell("then die");
    assert_eq!(host.generation(), 2);
    host.tell("ready-many 1000");
    let said = rig.log().matches("hosts continue after").count();
    assert_eq!(said, 1, "{}", rig.log());
}

fn a_storm_of_requests_stops_neither_hosts_nor_signals() {
    let mut rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    host.tell("storm 20");
    let begin = Instant::now();
    for _ in 0..20 {
        assert_eq!(host.generation(), 1);
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{begin:?}");
    rig.is_bounded(before, 4, 6);
    // The worker takes it, and what it dies of is its own will.
    rig.signal(Signal::TERM);
    assert_eq!(rig.ended().code(), Some(128 + 15));
}

fn a_worker_that_reads_no_replies_is_replaced() {
    let rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    is_replaced(&rig, &mut host, "ask-without-end");
    rig.is_bounded(before, 4, 6);
}

fn messages_that_answer_nothing_reach_no_host() {
    let rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    assert_eq!(host.tell("noise 20000"), "done");
    assert_eq!(host.generation(), 1);
    host.sees_nothing(Duration::from_millis(50));
    rig.is_calm();
    rig.is_bounded(before, 4, 6);
}

fn what_is_no_message_ends_the_worker_and_no_host() {
    // Shorter than a header, and longer than any message.
    for size in [3_u32, u32::MAX] {
        let frame = [0x0009_0001, size, 1, 0].map(u32::to_le_bytes).concat();
        let rig = Rig::start("");
        let mut host = rig.host();
        is_replaced(&rig, &mut host, &format!("frame {}", hex(&frame)));
    }
}

fn descriptors_that_are_no_memory_are_kept_like_others() {
    let rig = Rig::start("fetches");
    let mut host = rig.host();
    let before = rig.usage();
    for what in &KINDS[..6] {
        assert_eq!(host.tell(&format!("keep {what} {what}")), "ok");
    }
    // A worker whose end of the holder's own socket is kept is seen to die, nevertheless.
    is_replaced(&rig, &mut host, "die");
    let fetched = std::fs::read_to_string(rig.path("fetched")).unwrap();
    let kinds = "Fifo Directory CharacterDevice Socket Socket Directory none";
    assert_eq!(fetched, kinds);
    rig.is_calm();
    rig.is_bounded(before, 4, 12);
}

fn too_many_descriptors_are_closed() {
    let rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    is_replaced(&rig, &mut host, "pass 3");
    is_replaced(&rig, &mut host, "pass 253");
    rig.is_bounded(before, 4, 6);
}

fn the_state_of_a_host_is_two_descriptors() {
    let rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    for what in ["pipe", "directory", "socket", "null"] {
        host.tell(&format!("keep-state 2 {what}"));
    }
    // None of these is: what was kept before is given to the next worker.
    for count in [0, 1] {
        host.tell(&format!("keep-state {count} pipe"));
    }
    wait_for("the worker that waits", || rig.started().len() > 1);
    is_replaced(&rig, &mut host, "die");
    rig.is_bounded(before, 4, 8);
    assert_eq!(host.tell("resumed"), "true");
}
