//! Workers that die.

use std::time::Duration;

use rustix::process::Signal;

use super::tests;
use crate::host::{CSTS, DMA_MAP, REGION_READ, REGION_WRITE, access, map};
use crate::rig::{Rig, wait_for};

tests! {
    "deaths":
    three_deaths_are_a_fatal_status,
    a_worker_that_dies_greeted_counts_as_well,
    a_device_is_closed_before_an_unmap_is_granted_without_a_worker,
    each_request_has_one_reply_whenever_the_worker_dies,
    each_request_has_one_reply_when_the_worker_dies_within_one,
    what_a_dead_worker_s_child_sends_ends,
    a_worker_that_learns_nothing_costs_nothing,
    a_death_without_a_status_is_one,
    a_worker_that_takes_a_second_to_die_keeps_its_hosts,
}

const EIO: u32 = 5;

fn three_deaths_are_a_fatal_status() {
    hosts_find_a_fatal_status("dies-at-start");
}

fn a_worker_that_dies_greeted_counts_as_well() {
    hosts_find_a_fatal_status("dies-greeted");
}

fn hosts_find_a_fatal_status(mode: &str) {
    let mut rig = Rig::start(mode);
    let mut host = rig.host();
    let before = rig.usage();
    host.tell("then die");
    for id in 0..200 {
        host.send(id, REGION_READ, &access(CSTS, 4));
        let reply = host.reply();
        assert_eq!((reply.id, reply.error), (id, None));
        assert_eq!(reply.body[16..], [2, 0, 0, 0]);
        host.send(id, REGION_READ, &access(0, 8));
        assert_eq!(host.reply().error, Some(EIO));
        host.send(id, DMA_MAP, &map(u64::from(id) << 12));
        assert_eq!(host.reply().error, None);
    }
    let started = rig.started().len();
    // The one that died, and two more; another one may have waited.
    assert!((3..=4).contains(&started), "{started}");
    rig.is_calm();
    assert_eq!(rig.started().len(), started);
    rig.is_bounded(before, 4, 2);
    rig.signal(Signal::TERM);
    assert!(rig.ended().success());
}

fn a_device_is_closed_before_an_unmap_is_granted_without_a_worker() {
    let rig = Rig::start("dies-at-start");
    let mut host = rig.host();
    for (name, what) in [("drive", "device"), ("memory", "file")] {
        assert_eq!(host.tell(&format!("keep-file {name} {what}")), "ok");
        assert!(rig.holds(name));
    }
    host.tell("then die");
    host.send(1, DMA_MAP, &map(0x1000));
    // No worker is there to answer.
    assert_eq!(host.reply().error, None);
    assert!(!rig.holds("drive"), "{}", rig.log());
    assert!(rig.holds("memory"));
}

fn each_request_has_one_reply_whenever_the_worker_dies() {
    for read in 0..=4 {
        each_has_one_reply(&format!("dies-reading {read} 2"));
    }
}

fn each_request_has_one_reply_when_the_worker_dies_within_one() {
    for replied in 0..=3 {
        each_has_one_reply(&format!("dies-replying {replied} 2"));
    }
}

fn each_has_one_reply(mode: &str) {
    let rig = Rig::start(mode);
    let mut host = rig.host();
    for id in [40, 41, 41, 43] {
        host.send(id, REGION_READ, &access(u64::from(id), 8));
    }
    let mut last = (0, 0);
    for id in [40, 41, 41, 43] {
        let reply = host.reply();
        assert_eq!((reply.id, reply.command), (id, REGION_READ), "{mode}");
        assert_eq!(reply.body[..16], access(u64::from(id), 8), "{mode}");
        assert!(reply.by() > last, "{mode}: {last:?}, {:?}", reply.by());
        last = reply.by();
    }
    // A request that wants no reply is executed, and not answered.
    let mut posted = crate::host::request(50, REGION_WRITE, &access(0, 0));
    posted[8] = 0x10;
    std::io::Write::write_all(&mut host.stream, &posted).unwrap();
    host.send(51, REGION_WRITE, &access(8, 0));
    assert_eq!(host.reply().id, 51, "{mode}");
    host.sees_nothing(Duration::from_millis(50));
}

fn what_a_dead_worker_s_child_sends_ends() {
    let rig = Rig::start("");
    let mut host = rig.host();
    let before = rig.usage();
    host.tell("then leave-a-scribbler");
    assert_eq!(host.generation(), 2, "{}", rig.log());
    rig.is_calm();
    rig.is_bounded(before, 4, 6);
}

fn a_death_without_a_status_is_one() {
    let rig = Rig::start_without_statuses();
    let mut host = rig.host();
    host.tell("then die");
    assert_eq!(host.generation(), 2, "{}", rig.log());
    assert!(rig.log().contains("ended (no status)"), "{}", rig.log());
}

fn a_worker_that_learns_nothing_costs_nothing() {
    let rig = Rig::start("learns-nothing");
    let mut host = rig.host();
    // More than the socket to the next worker takes at once.
    for iova in 0..4000_u64 {
        host.send(1, DMA_MAP, &map(iova << 12));
        assert_eq!(host.reply().error, None);
    }
    host.tell("then die");
    wait_for("the next worker", || rig.path("ignores").exists());
    rig.is_calm();
    host.sees_nothing(Duration::from_millis(50));
}

/// The kernel closes its sockets before it has freed its memory.
fn a_worker_that_takes_a_second_to_die_keeps_its_hosts() {
    let rig = Rig::start("");
    let mut host = rig.host();
    host.tell("then die-slowly");
    assert_eq!(host.generation(), 2, "{}", rig.log());
}
