//! I/O queues that are served beside their association, as on another reactor.

use std::process::Command;
use std::time::Duration;

use nvme_spec::Status;
use nvme_spec::opcode::NvmOpcode;
use transport::nvme_tcp::End;

use super::host::{Connect, Host, Manner, pattern};
use super::rig::{APART, Rig, config};

const GOOD: Status = Status::SUCCESSFUL_COMPLETION;

/// Hosts see the same wherever a queue is served.
#[test]
fn queues_that_are_served_apart_pass_the_other_tests() {
    let program = std::env::current_exe().unwrap();
    let mut run = Command::new(program);
    run.env(APART, "1").arg("nvme_tcp::");
    for seen_inside in SEEN_INSIDE {
        run.args(["--skip", seen_inside]);
    }
    let ran = run.args(["--skip", "nvme_tcp::apart"]).output();
    let ran = ran.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{said}");
    let passed = said.lines().rev().find_map(|line| {
        let passed = line.strip_prefix("test result: ok. ")?;
        passed.split(' ').next()?.parse::<u32>().ok()
    });
    assert!(passed.is_some_and(|passed| passed >= 70), "{said}");
}

/// Tests of how an association itself serves its I/O queues.
const SEEN_INSIDE: [&str; 7] = [
    "a_host_that_does_not_read_waits_for_itself_alone",
    "a_host_that_falls_silent_loses_its_association",
    "a_hot_turn_reads_the_queue",
    "a_receive_that_took_all_is_the_last_one_of_a_poll",
    "data_that_do_not_come_end_the_queue",
    "queues_that_take_no_answers_end_together",
    "what_has_completed_leaves_before_a_socket_is_read",
];

fn fill_and_read(rig: &mut Rig, host: &mut Host, queues: usize, seed: u8) {
    for queue in 0..queues {
        // In the capsule, and by R2T.
        for len in [4096, 128 << 10] {
            let data = pattern(len, seed + queue as u8);
            assert_eq!(host.write(rig, queue, 512 * queue as u64, &data), GOOD);
            let count = (len / 512) as u32;
            assert!(host.read(rig, queue, 512 * queue as u64, count) == data);
        }
    }
}

#[test]
fn queues_go_and_come_back_with_their_commands() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 3, Manner::default());
    fill_and_read(&mut rig, &mut host, 3, 1);
    for round in 0..4u8 {
        // Commands that wait for their data, and for the medium, go along.
        let data = pattern(128 << 10, round);
        let write = host.blocks(NvmOpcode::WRITE, 0, 256);
        host.io[0].send_capsule(&write, &[]);
        host.io[0].pump(&mut rig);
        rig.stall(true);
        let read = host.blocks(NvmOpcode::READ, 512, 8);
        host.io[1].send_capsule(&read, &[]);
        host.io[1].pump(&mut rig);
        assert!(host.io[1].responses.is_empty());
        if round % 2 == 0 {
            rig.serve_apart();
        } else {
            rig.recall();
        }
        rig.settle();
        assert_eq!(rig.apart(), if round % 2 == 0 { 3 } else { 0 });
        assert_eq!(rig.association.as_ref().unwrap().queues(), 3);
        rig.stall(false);
        host.io[1].pump(&mut rig);
        assert_eq!(host.io[1].responses.pop_front().unwrap().cid, read.cid);
        host.io[1].data.clear();
        let r2t = host.io[0].r2ts.pop_front().unwrap();
        host.io[0].answer(&r2t, &data);
        assert_eq!(host.io[0].response(&mut rig).cid, write.cid);
        assert!(host.read(&mut rig, 2, 0, 256) == data);
        fill_and_read(&mut rig, &mut host, 3, round);
    }
    let counters = rig.association.as_ref().unwrap().counters();
    assert!(counters.received > 5 * 3 * (132 << 10), "{counters:?}");
    assert!(counters.sent > 5 * 3 * (132 << 10), "{counters:?}");
    assert!(rig.ends.is_empty());
}

/// A host knows from a reply what the lane learns from mail, such as a namespace's format.
#[test]
fn commands_wait_until_their_lane_knows_what_their_host_may_know() {
    let mut rig = Rig::new();
    rig.serve_apart();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    rig.with_lane(1, |lane| {
        lane.leave_home();
        lane.mail_count().add();
    });
    let commands = |rig: &Rig| rig.association.as_ref().unwrap().counters().commands;
    let before = commands(&rig);
    let read = host.blocks(NvmOpcode::READ, 0, 8);
    host.io[0].send_capsule(&read, &[]);
    host.io[0].pump(&mut rig);
    assert_eq!(
        commands(&rig),
        before,
        "it was judged by what may be outdated"
    );
    rig.with_lane(1, |lane| {
        let mail_count = lane.mail_count().count();
        lane.has_taken(mail_count);
    });
    assert_eq!(host.io[0].response(&mut rig).cid, read.cid);
    assert_eq!(commands(&rig), before + 1);
}

#[test]
fn slots_are_shared_by_queues_wherever_they_are() {
    let mut target = config();
    target.slots = 2 * u64::from(target.max_transfer);
    let mut rig = Rig::with(target);
    rig.serve_apart();
    let mut host = Host::new(&mut rig, 2, Manner::default());
    // One queue has both.
    let mut writes = Vec::new();
    for queue in [0, 0, 0, 1] {
        let write = host.blocks(NvmOpcode::WRITE, 0, 256);
        host.io[queue].send_capsule(&write, &[]);
        host.io[queue].pump(&mut rig);
        writes.push(write.cid);
    }
    assert_eq!((host.io[0].r2ts.len(), host.io[1].r2ts.len()), (2, 0));
    // The one that is free is the other queue's, though a command of the first waits longer.
    let data = pattern(128 << 10, 3);
    let r2t = host.io[0].r2ts.pop_front().unwrap();
    host.io[0].answer(&r2t, &data);
    assert_eq!(host.io[0].response(&mut rig).cid, writes[0]);
    host.io[1].pump(&mut rig);
    assert_eq!((host.io[0].r2ts.len(), host.io[1].r2ts.len()), (1, 1));
    for (queue, cid) in [(0, writes[1]), (1, writes[3]), (0, writes[2])] {
        host.io[queue].pump(&mut rig);
        let r2t = host.io[queue].r2ts.pop_front().unwrap();
        host.io[queue].answer(&r2t, &data);
        assert_eq!(host.io[queue].response(&mut rig).cid, cid);
    }
    fill_and_read(&mut rig, &mut host, 2, 9);
}

/// A queue that has sent an answer looks for a slot before the others can.
#[test]
fn queues_that_share_one_slot_have_turns_wherever_they_are() {
    for is_apart in [false, true] {
        let mut target = config();
        target.slots = u64::from(target.max_transfer);
        let mut rig = Rig::with(target);
        if is_apart {
            rig.serve_apart();
        }
        let mut host = Host::new(&mut rig, 2, Manner::default());
        let mut writes = [Vec::new(), Vec::new()];
        for queue in [0, 0, 0, 1, 1, 1] {
            let write = host.blocks(NvmOpcode::WRITE, 0, 256);
            host.io[queue].send_capsule(&write, &[]);
            host.io[queue].pump(&mut rig);
            writes[queue].push(write.cid);
        }
        let data = pattern(128 << 10, 3);
        for turn in 0..6 {
            let (queue, other) = (turn % 2, 1 - turn % 2);
            rig.settle();
            host.io[other].pump(&mut rig);
            host.io[queue].pump(&mut rig);
            assert!(host.io[other].r2ts.is_empty(), "apart {is_apart}, {turn}");
            let r2t = host.io[queue].r2ts.pop_front();
            let r2t = r2t.unwrap_or_else(|| panic!("apart {is_apart}, {turn}"));
            host.io[queue].answer(&r2t, &data);
            assert_eq!(
                host.io[queue].response(&mut rig).cid,
                writes[queue][turn / 2]
            );
        }
    }
}

#[test]
fn a_host_that_only_uses_queues_that_are_apart_is_kept() {
    for kato_ms in [5000, 400] {
        let mut rig = Rig::new();
        rig.serve_apart();
        let manner = Manner {
            kato_ms,
            ..Manner::default()
        };
        let mut host = Host::new(&mut rig, 1, manner);
        assert_eq!(rig.apart(), 1);
        let step = Duration::from_millis(u64::from(kato_ms) / 5);
        for _ in 0..50 {
            rig.advance(step);
            rig.settle();
            host.read(&mut rig, 0, 0, 8);
        }
        assert!(rig.ends.is_empty(), "{:?}", rig.ends);
        // One that says nothing is not: the association looks each second at most.
        let silent = Duration::from_millis(u64::from(kato_ms) + 3000);
        for _ in 0..silent.as_millis() / 100 {
            rig.advance(Duration::from_millis(100));
            rig.settle();
        }
        assert_eq!(rig.ends, ["keep-alive"]);
    }
}

/// A host with one queue apart and a timeout of 5 s, which was last heard at `last_ms`, and its
/// rig.
fn heard_last_at(last_ms: u64) -> (Rig, Host) {
    let mut rig = Rig::new();
    rig.serve_apart();
    let manner = Manner {
        kato_ms: 5000,
        ..Manner::default()
    };
    let mut host = Host::new(&mut rig, 1, manner);
    assert_eq!(rig.apart(), 1);
    pass(&mut rig, last_ms);
    host.get(&mut rig, 0x1c).unwrap();
    rig.settle();
    (rig, host)
}

fn pass(rig: &mut Rig, ms: u64) {
    for _ in 0..ms / 20 {
        rig.advance(Duration::from_millis(20));
        rig.settle();
    }
}

#[test]
fn what_comes_apart_just_before_a_timeout_is_seen() {
    for last_ms in (0..1000).step_by(100) {
        for is_recalled in [false, true] {
            let (mut rig, mut host) = heard_last_at(last_ms);
            pass(&mut rig, 4980);
            host.read(&mut rig, 0, 0, 8);
            if is_recalled {
                rig.recall();
                rig.settle();
                assert_eq!(rig.apart(), 0);
            }
            pass(&mut rig, 1000);
            assert!(rig.ends.is_empty(), "{last_ms} {is_recalled}");
            let csts = host.get(&mut rig, 0x1c).unwrap();
            assert_eq!(csts & 3, 1, "{last_ms} {is_recalled}: it has failed");
        }
    }
}

/// After a stop of the process, the association looks before the other reactor has read.
#[test]
fn what_came_apart_during_a_stop_is_seen() {
    let (mut rig, mut host) = heard_last_at(0);
    let read = host.blocks(NvmOpcode::READ, 0, 8);
    host.io[0].send_capsule(&read, &[]);
    rig.advance(Duration::from_secs(20));
    rig.settle();
    pass(&mut rig, 1000);
    assert_eq!(host.io[0].response(&mut rig).cid, read.cid);
    assert!(rig.ends.is_empty());
    let csts = host.get(&mut rig, 0x1c).unwrap();
    assert_eq!(csts & 3, 1, "it is ready, and has not failed");
}

/// The lanes of a host's queues are looked for only when a queue could leave that could not before.
#[test]
fn a_socket_that_blocks_is_no_opening() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 2, Manner::default());
    let seen = |rig: &Rig| {
        let association = rig.association.as_ref().unwrap();
        (association.changes(), association.openings())
    };
    let (changes, openings) = seen(&rig);
    let reads: Vec<_> = (0..4)
        .map(|_| host.blocks(NvmOpcode::READ, 0, 256))
        .collect();
    for read in &reads {
        host.io[0].send_capsule(read, &[]);
    }
    rig.settle();
    for read in &reads {
        assert_eq!(host.io[0].response(&mut rig).cid, read.cid);
        host.io[0].data.clear();
    }
    let (blocked, opened) = seen(&rig);
    assert!(blocked > changes, "its socket did not block");
    assert_eq!(opened, openings);
    // One that goes and comes back is an opening.
    let branch = rig.association.as_mut().unwrap().depart(1).unwrap();
    assert_eq!(seen(&rig).1, openings);
    assert!(rig.give_back(branch).is_ok());
    assert_eq!(seen(&rig).1, openings + 1);
    let (_, cqe) = Connect::new(3, 32, host.cntlid).peer(&mut rig, host.offer);
    assert_eq!(cqe.status.status(), GOOD);
    assert_eq!(seen(&rig).1, openings + 2);
}

#[test]
fn a_reset_that_ends_before_a_queue_is_back_leaves_its_memory_free() {
    let mut rig = Rig::new();
    rig.serve_apart();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    for _ in 0..6 {
        assert_eq!(rig.apart(), 1);
        // Reads and writes of large slots are in flight; four slots are there.
        rig.stall(true);
        let read = host.blocks(NvmOpcode::READ, 0, 256);
        host.io[0].send_capsule(&read, &[]);
        host.io[0].pump(&mut rig);
        rig.stall(false);
        rig.detain(true);
        assert_eq!(host.set(&mut rig, 0x14, 0x46_0060), GOOD);
        rig.settle();
        host.enable(&mut rig);
        let association = rig.association.as_ref().unwrap();
        assert_eq!(association.queues(), 1, "it is not back");
        rig.detain(false);
        rig.settle();
        host.io[0].pump(&mut rig);
        assert!(host.io.pop().unwrap().closed);
        let (peer, cqe) = Connect::new(1, 32, host.cntlid).peer(&mut rig, host.offer);
        assert_eq!(cqe.status.status(), GOOD);
        host.io.push(peer);
        rig.settle();
        fill_and_read(&mut rig, &mut host, 1, 7);
    }
    let counters = rig.association.as_ref().unwrap().counters();
    assert_eq!((counters.lost, counters.ended["reset"]), (0, 6));
}

#[test]
fn a_queue_of_an_association_that_is_over_closes() {
    let mut rig = Rig::new();
    rig.serve_apart();
    let mut host = Host::new(&mut rig, 2, Manner::default());
    assert_eq!(rig.apart(), 2);
    let read = host.blocks(NvmOpcode::READ, 0, 8);
    host.io[0].send_capsule(&read, &[]);
    rig.end(&End::Removed);
    rig.settle();
    for io in &mut host.io {
        io.pump(&mut rig);
        assert!(io.closed);
    }
    assert!(rig.with_controller(|controller| controller.is_quiet()));
}

#[test]
fn a_queue_of_an_earlier_association_does_not_come_to_the_next_one() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let stray = rig.association.as_mut().unwrap().depart(1).unwrap();
    rig.end(&End::Removed);
    rig.settle();
    rig.serve_apart();
    let mut next = Host::new(&mut rig, 1, Manner::default());
    let stray = rig.give_back(stray).unwrap_err();
    rig.leave(stray);
    rig.settle();
    host.io[0].pump(&mut rig);
    assert!(host.io[0].closed);
    fill_and_read(&mut rig, &mut next, 1, 3);
}

#[test]
fn queues_come_back_when_the_controller_is_shut_down() {
    let mut rig = Rig::new();
    rig.serve_apart();
    let mut host = Host::new(&mut rig, 2, Manner::default());
    assert_eq!(rig.apart(), 2);
    // A command that hangs delays the shutdown, and no queue.
    rig.stall(true);
    let hangs = host.blocks(NvmOpcode::READ, 0, 8);
    host.io[1].send_capsule(&hangs, &[]);
    host.io[1].pump(&mut rig);
    assert_eq!(host.set(&mut rig, 0x14, 0x46_4061), GOOD);
    rig.settle();
    assert_eq!(rig.apart(), 0);
    rig.stall(false);
    rig.settle();
    let read = host.blocks(NvmOpcode::READ, 0, 8);
    let status = host.io[0].status(&mut rig, &read, &[]);
    assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
}
