//! Programs that are to take a worker's place, and do not.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::tests;
use crate::host::{REGION_READ, access};
use crate::rig::{Rig, wait_for};

tests! {
    "upgrade":
    a_program_that_never_serves_is_replaced_by_the_last_one,
    a_program_that_reads_no_such_state_is_refused,
    a_program_that_does_not_greet_is_refused,
    a_program_that_sends_no_greeting_is_refused,
    a_program_that_greets_without_end_is_refused,
    a_second_upgrade_is_refused,
    a_program_that_never_serves_does_not_pass_on,
    an_upgrade_that_is_not_wanted_is_forgotten,
    an_upgrade_while_the_process_that_waits_dies_is_none_of_its_business,
}

fn a_program_that_never_serves_is_replaced_by_the_last_one() {
    let rig = Rig::start("");
    rig.program("unready");
    let mut host = rig.host();
    let before = rig.usage();
    assert_eq!(host.tell("upgrade unready"), "ok");
    assert_eq!(host.tell("then hand-over"), "done");
    let begin = Instant::now();
    // The worker answers until it is ended.
    sleep(Duration::from_millis(30));
    for id in 0..30 {
        host.send(id, REGION_READ, &access(0, 8));
    }
    for id in 0..30 {
        let reply = host.reply();
        assert_eq!((reply.id, reply.by().0), (id, 3));
    }
    let pause = begin.elapsed().as_millis();
    assert!((800..3000).contains(&pause), "{pause} ms");
    host.sees_nothing(Duration::from_millis(50));
    rig.is_calm();
    rig.is_bounded(before, 4, 8);
}

/// An upgrade to a program is refused for a reason; the worker goes on.
fn is_refused(program: &str, why: &str) {
    let rig = Rig::start("");
    rig.program(program);
    rig.program("next");
    let mut host = rig.host();
    let before = rig.usage();
    let said = host.tell(&format!("upgrade {program}"));
    assert!(said.contains(why), "{said}");
    let said = host.tell("hand-over");
    assert!(said.contains("no other program waits"), "{said}");
    assert_eq!(host.generation(), 1, "{}", rig.log());
    rig.is_calm();
    rig.is_bounded(before, 4, 8);
    // Another one may be tried.
    assert_eq!(host.tell("upgrade next"), "ok");
    assert_eq!(host.tell("then hand-over"), "done");
    host.is_served_by(2);
}

fn a_program_that_reads_no_such_state_is_refused() {
    is_refused(
        "old",
        "of the formats 1 to 1, and this server writes format 2",
    );
}

fn a_program_that_does_not_greet_is_refused() {
    is_refused("mute", "it sent no greeting within 3 s");
}

fn a_program_that_sends_no_greeting_is_refused() {
    is_refused("garbled", "it sends what is no greeting");
}

fn a_program_that_greets_without_end_is_refused() {
    let rig = Rig::start("");
    rig.program("chatty");
    let mut host = rig.host();
    let before = rig.usage();
    // Its first greeting is as it should be.
    host.tell("upgrade chatty");
    wait_for("its end", || rig.log().contains("asks before it is wanted"));
    let said = host.tell("hand-over");
    assert!(said.contains("no other program waits"), "{said}");
    assert_eq!(host.generation(), 1, "{}", rig.log());
    rig.is_calm();
    rig.is_bounded(before, 4, 8);
}

fn a_second_upgrade_is_refused() {
    let rig = Rig::start("");
    rig.program("next");
    let mut host = rig.host();
    let said = host.tell("upgrade-twice next");
    assert_eq!(said, "ok; an upgrade is in progress already");
    assert_eq!(host.tell("then hand-over"), "done");
    host.is_served_by(2);
}

fn a_program_that_never_serves_does_not_pass_on() {
    let rig = Rig::start("");
    rig.program("hopper");
    let mut host = rig.host();
    assert_eq!(host.tell("upgrade hopper"), "ok");
    assert_eq!(host.tell("then hand-over"), "done");
    host.is_served_by(3);
    let said = std::fs::read_to_string(rig.path("hopped")).unwrap();
    assert!(said.contains("does not serve yet"), "{said}");
    rig.is_calm();
}

fn an_upgrade_that_is_not_wanted_is_forgotten() {
    let rig = Rig::start("");
    rig.program("next");
    let mut host = rig.host();
    let before = rig.usage();
    assert_eq!(host.tell("upgrade next"), "ok");
    let waiting = rig.started().len();
    wait_for("the end of what waits", || {
        rig.log().contains("the upgrade is cancelled")
    });
    wait_for("the next one", || rig.started().len() > waiting);
    let said = host.tell("hand-over");
    assert!(said.contains("no other program waits"), "{said}");
    assert_eq!(host.generation(), 1);
    rig.is_bounded(before, 4, 8);
}

fn an_upgrade_while_the_process_that_waits_dies_is_none_of_its_business() {
    let rig = Rig::start("");
    rig.program("next");
    let mut host = rig.host();
    wait_for("the worker that waits", || rig.started().len() > 1);
    host.tell("then upgrade-late next");
    // The holder finds both at once, the request first.
    rig.signal(Signal::STOP);
    sleep(Duration::from_millis(500));
    kill_process(rig.started()[1], Signal::KILL).unwrap();
    sleep(Duration::from_millis(50));
    rig.signal(Signal::CONT);
    assert_eq!(host.generation(), 1);
    wait_for("the other program", || rig.started().len() > 2);
    sleep(Duration::from_millis(100));
    host.tell("then hand-over");
    host.is_served_by(2);
}
