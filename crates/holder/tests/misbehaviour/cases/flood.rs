//! Hosts that send more than a worker takes.

use std::io::{ErrorKind, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use super::tests;
use crate::host::{REGION_READ, REGION_WRITE, access, request};
use crate::rig::{Rig, wait_for};

tests! {
    "flood":
    a_stopped_worker_holds_its_hosts_back_and_loses_nothing,
    a_host_that_floods_a_hand_over_loses_nothing,
    a_host_that_reads_no_replies_costs_little,
}

/// The body of a REGION_WRITE with `len` bytes of data.
fn write(len: usize) -> Vec<u8> {
    let mut body = access(0, len as u32);
    body.resize(16 + len, 7);
    body
}

fn a_stopped_worker_holds_its_hosts_back_and_loses_nothing() {
    for len in [0, 8 << 10] {
        let rig = Rig::start("");
        let mut host = rig.host();
        wait_for("the worker that waits", || rig.started().len() > 1);
        let (before, worker) = (rig.usage(), rig.started()[0]);
        kill_process(worker, Signal::STOP).unwrap();
        let body = write(len);
        host.stream.set_nonblocking(true).unwrap();
        // A part of the last one is sent.
        let (mut sent, mut left) = (0_u16, Vec::new());
        let mut waits = 0;
        while waits < 20 {
            if left.is_empty() {
                left = request(sent, REGION_WRITE, &body);
                sent += 1;
            }
            match host.stream.write(&left) {
                Ok(len) => {
                    left.drain(..len);
                    waits = 0;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    waits += 1;
                    sleep(Duration::from_millis(10));
                }
            }
            assert!(sent < 20_000, "the host is held back");
        }
        rig.is_calm();
        rig.is_bounded(before, 8, 0);
        host.stream.set_nonblocking(false).unwrap();
        kill_process(worker, Signal::CONT).unwrap();
        let mut stream = host.stream.try_clone().unwrap();
        let rest = std::thread::spawn(move || stream.write_all(&left).unwrap());
        for id in 0..sent {
            assert_eq!(host.reply().id, id);
        }
        rest.join().unwrap();
        host.send(1, REGION_READ, &access(0, 8));
        // Each was executed once.
        assert_eq!(host.reply().by(), (1, u32::from(sent) + 1));
        host.sees_nothing(Duration::from_millis(50));
    }
}

fn a_host_that_floods_a_hand_over_loses_nothing() {
    let is_over = Arc::new(AtomicBool::new(false));
    let rig = Rig::start("");
    rig.program("next");
    let (mut flooding, mut host) = (rig.host(), rig.host());
    let before = rig.usage();
    let mut stream = flooding.stream.try_clone().unwrap();
    let has_begun = Arc::new(AtomicBool::new(false));
    let (ends, comes) = (is_over.clone(), has_begun.clone());
    let sender = std::thread::spawn(move || {
        let mut sent = 0_u16;
        let mut count = 0_u32;
        while count < 1_000_000 && !ends.load(Relaxed) || !count.is_multiple_of(1000) {
            let read = request(sent, REGION_READ, &access(0, 8));
            stream.write_all(&read).unwrap();
            (sent, count) = (sent.wrapping_add(1), count + 1);
        }
        // The last one is a write.
        let last = request(sent, REGION_WRITE, &access(0, 0));
        stream.write_all(&last).unwrap();
    });
    let receiver = std::thread::spawn(move || {
        let mut by = Vec::new();
        for id in (0..=u16::MAX).cycle() {
            let reply = flooding.reply();
            assert_eq!(reply.id, id);
            comes.store(true, Relaxed);
            if reply.command == REGION_WRITE {
                break;
            }
            by.push(reply.by().0);
        }
        flooding.sees_nothing(Duration::from_millis(50));
        by
    });
    wait_for("the flood", || has_begun.load(Relaxed));
    assert_eq!(host.tell("upgrade next"), "ok");
    assert_eq!(host.tell("then hand-over"), "done");
    host.is_served_by(2);
    is_over.store(true, Relaxed);
    sender.join().unwrap();
    let mut by = receiver.join().unwrap();
    assert!(by.is_sorted());
    by.dedup();
    assert_eq!(by, [1, 2]);
    rig.is_calm();
    rig.is_bounded(before, 8, 8);
}

fn a_host_that_reads_no_replies_costs_little() {
    let rig = Rig::start("");
    let mut other = rig.host();
    let mut host = rig.host();
    wait_for("the worker that waits", || rig.started().len() > 1);
    let before = rig.usage();
    host.stream.set_nonblocking(true).unwrap();
    // Replies of 512 KiB each: those to all requests that wait are more than is kept of them.
    let bytes = request(1, REGION_READ, &access(0, 512 << 10));
    let mut waits = 0;
    let (mut at, mut sent) = (0, 0);
    while waits < 50 {
        match host.stream.write(&bytes[at..]) {
            Ok(len) => {
                (at, sent) = ((at + len) % bytes.len(), sent + len);
                waits = 0;
                assert!(sent < 1 << 20, "the host is held back");
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                waits += 1;
                sleep(Duration::from_millis(10));
            }
            Err(error) => panic!("the host's connection is ended: {error}"),
        }
    }
    rig.is_calm();
    rig.is_bounded(before, 32, 0);
    assert_eq!(other.generation(), 1);
}
