//! Properties, enabling, resets, shutdown and the ends of associations and queues.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use nvme_spec::fabrics::{FabricsType, PropertySize};
use nvme_spec::opcode::{AdminOpcode, NvmOpcode};
use nvme_spec::{Sqe, Status};
use nvme_tcp::Piece;
use rustix::net::sockopt;
use transport::nvme_tcp::End;
use zerocopy::IntoBytes as _;

use super::host::{Connect, Host, Manner, Peer, beside, in_capsule, pattern};
use super::rig::{Rig, config};

const GOOD: Status = Status::SUCCESSFUL_COMPLETION;
const INVALID: Status = Status::INVALID_FIELD_IN_COMMAND;

#[test]
fn properties_are_the_registers_that_a_host_may_reach() {
    let mut rig = Rig::new();
    let mut host = Host::admin(&mut rig, Manner::default());
    let cap = host.get(&mut rig, 0).unwrap();
    assert_eq!(cap & 0xffff, 31, "MQES");
    assert_eq!(cap >> 32 & 0xf, 0, "DSTRD");
    assert_eq!(host.get(&mut rig, 0x08), Ok(0x0002_0100));
    assert_eq!(host.get(&mut rig, 0x14), Ok(0));
    assert_eq!(host.get(&mut rig, 0x1c), Ok(0));
    assert!(host.get(&mut rig, 0x68).unwrap() > 0, "CRTO");
    // Wrong sizes, registers of a PCI function, and none.
    let eight = PropertySize::BYTES_8;
    assert_eq!(host.get_sized(&mut rig, 0x08, eight), Err(INVALID));
    assert_eq!(host.get_sized(&mut rig, 0x14, eight), Err(INVALID));
    let four = PropertySize::BYTES_4;
    assert_eq!(host.get_sized(&mut rig, 0x00, four), Err(INVALID));
    assert_eq!(
        host.get_sized(&mut rig, 0x00, PropertySize(2)),
        Err(INVALID)
    );
    for offset in [
        0x04,
        0x0c,
        0x10,
        0x24,
        0x28,
        0x30,
        0x38,
        0x1000,
        0x1004,
        u32::MAX,
    ] {
        assert_eq!(host.get(&mut rig, offset), Err(INVALID), "{offset:#x}");
        assert_eq!(host.set(&mut rig, offset, 1), INVALID, "{offset:#x}");
    }
    for offset in [0x00, 0x08, 0x68] {
        assert_eq!(host.set(&mut rig, offset, 1), INVALID, "{offset:#x}");
    }
}

#[test]
fn commands_wait_for_enable_and_some_are_never_the_hosts() {
    let mut rig = Rig::new();
    let mut host = Host::admin(&mut rig, Manner::default());
    let sqe = host.command(AdminOpcode::IDENTIFY, 4096);
    let status = host.admin.status(&mut rig, &sqe, &[]);
    assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
    host.enable(&mut rig);
    host.identify(&mut rig, 1, 0);
    for opcode in [0x00, 0x01, 0x04, 0x05, 0x7c] {
        let sqe = host.command(AdminOpcode(opcode), 0);
        let status = host.admin.status(&mut rig, &sqe, &[]);
        assert_eq!(status, Status::INVALID_COMMAND_OPCODE, "{opcode:#x}");
    }
    // Fabrics commands: authentication, Disconnect and Connect on a queue that has one.
    for (fctype, expected) in [
        (5, Status::INVALID_COMMAND_OPCODE),
        (6, Status::INVALID_COMMAND_OPCODE),
        (8, Status::INVALID_COMMAND_OPCODE),
        (2, Status::INVALID_COMMAND_OPCODE),
        (1, Status::COMMAND_SEQUENCE_ERROR),
    ] {
        let mut sqe = host.command(AdminOpcode::FABRICS, 0);
        sqe.nsid = fctype;
        assert_eq!(host.admin.status(&mut rig, &sqe, &[]), expected, "{fctype}");
    }
    assert!(rig.ends.is_empty());
}

#[test]
fn io_queues_take_no_fabrics_commands() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    for (fctype, expected) in [
        (0, Status::INVALID_COMMAND_OPCODE),
        (4, Status::INVALID_COMMAND_OPCODE),
        (8, Status::INVALID_COMMAND_OPCODE),
        (1, Status::COMMAND_SEQUENCE_ERROR),
    ] {
        let mut sqe = host.command(AdminOpcode::FABRICS, 0);
        sqe.nsid = fctype;
        assert_eq!(host.io[0].status(&mut rig, &sqe, &[]), expected, "{fctype}");
    }
}

#[test]
fn events_and_aborts_go_to_the_controller() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 0, Manner::default());
    let mut event = host.command(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, 0);
    event.cid = 0x1f;
    host.admin.send_capsule(&event, &[]);
    host.admin.pump(&mut rig);
    assert!(host.admin.responses.is_empty(), "it is held");
    host.identify(&mut rig, 1, 0);
    let mut abort = host.command(AdminOpcode::ABORT, 0);
    abort.cdw10 = 0x1f << 16;
    host.admin.send_capsule(&abort, &[]);
    host.admin.pump(&mut rig);
    let mut ends: Vec<_> = host.admin.responses.drain(..).collect();
    ends.sort_by_key(|cqe| cqe.cid != 0x1f);
    assert_eq!(ends[0].cid, 0x1f);
    assert_eq!(ends[0].status.status(), Status::COMMAND_ABORT_REQUESTED);
    assert_eq!((ends[1].cid, ends[1].dw0 & 1), (abort.cid, 0), "aborted");
}

#[test]
fn a_reset_ends_the_io_queues_and_a_new_life_begins() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 2, Manner::default());
    let event = host.command(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST, 0);
    host.admin.send_capsule(&event, &[]);
    // A write whose data never come, and holds a slot.
    let write = host.blocks(NvmOpcode::WRITE, 0, 100);
    host.io[0].send_capsule(&write, &[]);
    host.io[0].pump(&mut rig);
    assert_eq!(host.set(&mut rig, 0x14, 0x46_0060), GOOD);
    rig.settle();
    assert_eq!(host.get(&mut rig, 0x1c), Ok(0));
    for mut io in host.io.drain(..) {
        // Bytes sent now are received and dropped.
        io.send(&[4; 100]);
        io.pump(&mut rig);
        assert!(io.closed);
        io.send(&[4; 100]);
    }
    let association = rig.association.as_ref().unwrap();
    assert_eq!(association.queues(), 0);
    assert_eq!(association.counters().ended["reset"], 2);

    host.enable(&mut rig);
    let (peer, cqe) = Connect::new(1, 32, host.cntlid).peer(&mut rig, host.offer);
    assert_eq!(cqe.status.status(), GOOD);
    host.io.push(peer);
    // All slots are there again.
    for seed in 0..8 {
        let data = pattern(256 * 512, seed);
        assert_eq!(host.write(&mut rig, 0, 0, &data), GOOD);
        assert!(host.read(&mut rig, 0, 0, 256) == data);
    }
    assert!(
        host.admin.responses.is_empty(),
        "the event died with the reset"
    );
}

#[test]
fn data_that_come_after_a_reset_go_nowhere() {
    for half in [false, true] {
        let mut rig = Rig::new();
        let mut host = Host::new(&mut rig, 0, Manner::default());
        // Timestamp, with its data by R2T.
        let mut sqe = host.command(AdminOpcode::SET_FEATURES, 8);
        sqe.cdw10 = 0x0e;
        host.admin.send_capsule(&sqe, &[]);
        host.admin.pump(&mut rig);
        let r2t = host.admin.r2ts.pop_front().unwrap();
        let mut data = host.admin.h2c(
            &Piece {
                cccid: r2t.cccid,
                ttag: r2t.ttag,
                offset: 0,
                len: r2t.r2tl,
                last: true,
            },
            &[7; 8],
        );
        let mut disable = Sqe::fabrics(FabricsType::PROPERTY_SET).with_property(0x46_0060);
        disable.cid = 0x0fff;
        disable.cdw11 = 0x14;
        beside(&mut disable, 0);
        let bytes = host.admin.capsule(&disable, &[]);
        host.admin.send(&bytes);
        if half {
            let rest = data.split_off(28);
            host.admin.send(&data);
            data = rest;
        }
        assert_eq!(host.admin.response(&mut rig).cid, 0x0fff);
        host.admin.send(&data);
        host.admin.pump(&mut rig);
        assert!(rig.ends.is_empty() && host.admin.responses.is_empty());
        // Once: then there is no such transfer.
        host.enable(&mut rig);
        assert_eq!(host.identify(&mut rig, 1, 0).len(), 4096);
        let again = host.admin.h2c(
            &Piece {
                cccid: r2t.cccid,
                ttag: r2t.ttag,
                offset: 0,
                len: r2t.r2tl,
                last: true,
            },
            &[7; 8],
        );
        host.admin.send(&again);
        host.admin.pump(&mut rig);
        assert_eq!(rig.ends, ["transfer-tag"]);
    }
}

#[test]
fn data_that_never_come_after_a_reset_are_not_waited_for() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 0, Manner::default());
    let mut sqe = host.command(AdminOpcode::SET_FEATURES, 8);
    sqe.cdw10 = 0x0e;
    // More than the queue has entries.
    for _ in 0..40 {
        host.admin.send_capsule(&sqe, &[]);
        host.admin.pump(&mut rig);
        assert!(host.admin.r2ts.pop_front().is_some());
        assert_eq!(host.set(&mut rig, 0x14, 0x46_0060), GOOD);
        rig.settle();
        host.enable(&mut rig);
    }
    rig.advance(Duration::from_secs(40));
    rig.settle();
    assert!(rig.ends.is_empty(), "{:?}", rig.ends);
    assert_eq!(host.identify(&mut rig, 1, 0).len(), 4096);
}

#[test]
fn a_reset_forgets_completions_that_found_no_room() {
    let mut target = config();
    target.slots = 40 * u64::from(target.max_transfer);
    let mut rig = Rig::with(target);
    let mut host = Host::new(&mut rig, 0, Manner::default());
    // More than the socket takes: 30 times 64 KiB that are not read.
    let asked = 30;
    for _ in 0..asked {
        let mut sqe = host.command(AdminOpcode::GET_LOG_PAGE, 1 << 16);
        sqe.cdw10 = 5 | 0x3fff << 16;
        host.admin.send_capsule(&sqe, &[]);
    }
    rig.settle();
    let mut disable = Sqe::fabrics(FabricsType::PROPERTY_SET).with_property(0x46_0060);
    disable.cid = 0x0fff;
    disable.cdw11 = 0x14;
    beside(&mut disable, 0);
    host.admin.send_capsule(&disable, &[]);
    rig.settle();
    host.admin.pump(&mut rig);
    assert!(host.admin.responses.len() < asked, "some were forgotten");
    let last = host.admin.responses.pop_back().unwrap();
    assert_eq!((last.cid, last.status.status()), (0x0fff, GOOD));
    let turns = (0..200).take_while(|_| rig.turn()).count();
    assert!(turns < 200, "there is nothing to do");
    host.admin.responses.clear();
    host.admin.data.clear();
    host.enable(&mut rig);
    assert_eq!(host.identify(&mut rig, 1, 0).len(), 4096);
}

#[test]
fn a_shutdown_completes_and_the_association_ends_with_its_connection() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    assert_eq!(host.set(&mut rig, 0x14, 0x46_4061), GOOD);
    rig.settle();
    assert_eq!(
        host.get(&mut rig, 0x1c),
        Ok(0b1001),
        "complete, and still ready"
    );
    let (_peer, cqe) = Connect::new(2, 32, host.cntlid).peer(&mut rig, host.offer);
    assert_eq!(cqe.status.status(), Status::COMMAND_SEQUENCE_ERROR);
    drop(host);
    rig.settle();
    assert_eq!(rig.ends, ["closed"]);
    assert!(rig.association.is_none());
    assert!(rig.with_controller(|controller| controller.is_quiet()));
}

/// A reset would lose answers, and is a SIGPIPE for a program of a Linux host.
#[test]
fn the_end_of_an_association_is_an_end_of_file_and_what_comes_is_dropped() {
    for closes in [true, false] {
        let mut rig = Rig::new();
        let mut host = Host::new(&mut rig, 2, Manner::default());
        let read = host.blocks(NvmOpcode::READ, 0, 8);
        host.io[0].send_capsule(&read, &[]);
        rig.settle();
        let mut peers: Vec<_> = host.io.drain(..).chain([host.admin]).collect();
        for peer in &mut peers {
            // A part of a PDU, which is not received before the end.
            peer.send(&[4; 60]);
        }
        rig.end(&End::Removed);
        rig.settle();
        for peer in &mut peers {
            let mut end = [0; 1 << 16];
            while peer.stream.read(&mut end).expect("an end, and no reset") > 0 {}
            for _ in 0..8 {
                peer.send(&[4; 40_000]);
                rig.settle();
            }
        }
        assert_eq!(rig.others(), 3);
        if closes {
            peers.clear();
        } else {
            rig.advance(Duration::from_secs(2));
        }
        rig.turn();
        assert_eq!(rig.others(), 0);
        for mut peer in peers {
            peer.stream.write_all(&[4]).unwrap_err();
        }
    }
}

/// The memory of what the socket did not take is another queue's soon.
#[test]
fn a_queue_that_ends_sends_no_data_any_more() {
    const LEN: usize = 256 * 512;
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    for _ in 0..6 {
        let read = host.blocks(NvmOpcode::READ, 0, 256);
        host.io[0].send_capsule(&read, &[]);
    }
    // More than its socket takes.
    rig.settle();
    assert_eq!(host.set(&mut rig, 0x14, 0x46_0060), GOOD);
    let (mut all, mut bytes) = (0, [0; 1 << 16]);
    loop {
        rig.settle();
        match host.io[0].stream.read(&mut bytes) {
            Ok(0) => break,
            Ok(len) => all += len,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
    assert!(all > 0 && all < 5 * LEN, "{all}");
}

#[test]
fn a_queue_that_is_being_made_is_refused_by_a_shutdown() {
    for turns in 1..6 {
        let mut rig = Rig::new();
        let mut host = Host::new(&mut rig, 0, Manner::default());
        let mut peer = Peer::new(rig.connect(), host.offer);
        peer.icreq();
        peer.pump(&mut rig);
        let connect = Connect::new(1, 32, host.cntlid);
        peer.send_capsule(&connect.sqe, connect.data.as_bytes());
        for _ in 0..turns {
            rig.turn();
        }
        let opened = rig.association.as_ref().unwrap().queues();
        assert_eq!(host.set(&mut rig, 0x14, 0x46_4061), GOOD);
        let cqe = peer.response(&mut rig);
        if opened == 0 {
            assert_eq!(cqe.status.status(), Status::COMMAND_SEQUENCE_ERROR);
            peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
            peer.pump(&mut rig);
            assert!(peer.closed);
        }
        assert!(opened == 0 || turns > 1, "it was being made");
        // And the next life has it.
        assert_eq!(host.set(&mut rig, 0x14, 0x46_0060), GOOD);
        host.enable(&mut rig);
        let (_peer, cqe) = connect.peer(&mut rig, host.offer);
        assert_eq!(cqe.status.status(), GOOD);
    }
}

#[test]
fn a_queue_that_closes_is_deleted_and_can_be_made_again() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    for seed in 0..6 {
        // It closes with data in flight in both directions.
        let read = host.blocks(NvmOpcode::READ, 0, 256);
        let write = host.blocks(NvmOpcode::WRITE, 0, 200);
        let mut small = host.blocks(NvmOpcode::WRITE, 0, 8);
        in_capsule(&mut small, 4096);
        let io = &mut host.io[0];
        io.send_capsule(&read, &[]);
        io.send_capsule(&write, &[]);
        let bytes = io.capsule(&small, &pattern(4096, seed));
        io.send(&bytes[..1000]);
        if seed % 2 == 0 {
            rig.turn();
        }
        drop(host.io.remove(0));
        rig.settle();
        let association = rig.association.as_ref().unwrap();
        assert_eq!(association.queues(), 0);
        assert_eq!(association.counters().ended["closed"], u64::from(seed) + 1);
        let (peer, cqe) = Connect::new(1, 32, host.cntlid).peer(&mut rig, host.offer);
        assert_eq!(cqe.status.status(), GOOD);
        host.io.push(peer);
        let data = pattern(256 * 512, seed);
        assert_eq!(host.write(&mut rig, 0, 0, &data), GOOD);
        assert!(host.read(&mut rig, 0, 0, 256) == data);
    }
}

#[test]
fn queues_that_take_no_answers_end_together() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 3, Manner::default());
    for queue in 0..2 {
        let read = host.blocks(NvmOpcode::READ, 0, 8);
        host.io[queue].send_capsule(&read, &[]);
        let stream = &host.io[queue].stream;
        stream.shutdown(std::net::Shutdown::Read).unwrap();
    }
    rig.turn();
    let association = rig.association.as_ref().unwrap();
    assert_eq!(association.counters().ended["closed"], 2);
    rig.settle();
    assert_eq!(host.read(&mut rig, 2, 0, 8).len(), 4096);
}

#[test]
fn a_host_that_falls_silent_loses_its_association() {
    let mut rig = Rig::new();
    let manner = Manner {
        kato_ms: 5000,
        ..Manner::default()
    };
    let mut host = Host::new(&mut rig, 1, manner);
    // Any bytes are a sign of life, on any connection.
    for _ in 0..4 {
        rig.advance(Duration::from_secs(4));
        rig.turn();
        assert_eq!(host.read(&mut rig, 0, 0, 1).len(), 512);
    }
    let deadline = rig.association.as_ref().unwrap().next_deadline();
    let from = rig.now();
    assert!(deadline.is_some_and(|at| (4_000_000_000..6_000_000_000).contains(&at.since(from))));
    rig.advance(Duration::from_secs(6));
    for _ in 0..8 {
        rig.settle();
        rig.advance(Duration::from_millis(500));
    }
    assert_eq!(rig.ends, ["keep-alive"]);
    host.admin.pump(&mut rig);
    host.io[0].pump(&mut rig);
    assert!(host.admin.closed && host.io[0].closed);
}

#[test]
fn a_timeout_that_a_feature_has_set_is_kept() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 0, Manner::default());
    let deadline = |rig: &Rig| rig.association.as_ref().unwrap().next_deadline();
    assert_eq!(deadline(&rig), None);
    let mut sqe = host.command(AdminOpcode::SET_FEATURES, 0);
    (sqe.cdw10, sqe.cdw11) = (0x0f, 5000);
    assert_eq!(host.admin.status(&mut rig, &sqe, &[]), GOOD);
    let from = rig.now();
    assert!(
        deadline(&rig).is_some_and(|at| (4_000_000_000..6_000_000_000).contains(&at.since(from)))
    );
    // It is polled when that says so, and not before.
    for _ in 0..12 {
        let Some(at) = rig.association.as_ref().and_then(|it| it.next_deadline()) else {
            break;
        };
        rig.advance(Duration::from_nanos(at.0.saturating_sub(rig.now().0)));
        rig.turn();
    }
    assert_eq!(rig.ends, ["keep-alive"]);
}

#[test]
fn a_silent_connection_is_probed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    let seen = ours.try_clone().unwrap();
    let mut rig = Rig::new();
    rig.accept(ours.into());
    assert!(sockopt::socket_keepalive(&seen).unwrap());
    let probes = sockopt::tcp_keepintvl(&seen).unwrap() * sockopt::tcp_keepcnt(&seen).unwrap();
    let all = sockopt::tcp_keepidle(&seen).unwrap() + probes;
    assert_eq!(all, Duration::from_secs(60));
}

#[test]
fn a_hot_turn_reads_the_queues_that_had_something_a_moment_ago() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 2, Manner::default());
    rig.advance(Duration::from_secs(1));
    let reads = [0, 1].map(|_| host.blocks(NvmOpcode::READ, 0, 1));
    host.io[0].send_capsule(&reads[0], &[]);
    assert!(!rig.poll_hot(), "no poller has named it");
    assert!(rig.poll_association());
    host.io[0].send_capsule(&reads[1], &[]);
    host.io[1].send_capsule(&reads[0], &[]);
    let commands = |rig: &Rig| rig.association.as_ref().unwrap().counters().commands;
    let before = commands(&rig);
    rig.poll_hot();
    assert_eq!(commands(&rig), before + 1, "of the first queue alone");
    host.io[0].pump(&mut rig);
    host.io[1].pump(&mut rig);
    assert_eq!(host.io[0].responses.len() + host.io[1].responses.len(), 3);
}

#[test]
fn a_hot_turn_reads_the_queue_that_was_just_answered() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 2, Manner::default());
    let [slow, next, other] = [0, 1, 2].map(|_| host.blocks(NvmOpcode::READ, 0, 1));
    rig.stall(true);
    host.io[0].send_capsule(&slow, &[]);
    rig.turn();
    rig.advance(Duration::from_millis(1));
    rig.stall(false);
    rig.turn();
    rig.poll_hot();
    host.io[0].send_capsule(&next, &[]);
    host.io[1].send_capsule(&other, &[]);
    let commands = |rig: &Rig| rig.association.as_ref().unwrap().counters().commands;
    let before = commands(&rig);
    rig.poll_hot();
    assert_eq!(commands(&rig), before + 1, "of the queue with an answer");
    host.io[0].pump(&mut rig);
    let answered: Vec<u16> = host.io[0].responses.iter().map(|cqe| cqe.cid).collect();
    assert_eq!(answered, [slow.cid, next.cid]);
}

#[test]
fn what_has_completed_leaves_before_a_socket_is_read() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    rig.stall(true);
    let read = host.blocks(NvmOpcode::READ, 0, 1);
    host.io[0].send_capsule(&read, &[]);
    rig.turn();
    rig.stall(false);
    rig.turn_controller();
    // A fault of the admin queue ends the association before anything else is served.
    host.admin.send(&[0xff; 72]);
    rig.turn();
    host.io[0].pump(&mut rig);
    assert_eq!(host.io[0].responses.len(), 1);
    assert_eq!(rig.ends, ["type"]);
}

#[test]
fn a_receive_that_took_all_is_the_last_one_of_a_poll() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    let read = host.blocks(NvmOpcode::READ, 0, 1);
    host.io[0].send_capsule(&read, &[]);
    host.io[0].stream.shutdown(Shutdown::Write).unwrap();
    // A second receive would find the end of the stream.
    assert!(rig.poll_association());
    let association = rig.association.as_ref().unwrap();
    assert_eq!(association.queues(), 1);
    rig.settle();
    assert_eq!(rig.association.as_ref().unwrap().queues(), 0);
}

#[test]
fn a_fault_of_one_queue_is_no_other_ones() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 2, Manner::default());
    host.io[0].send(&[0xff; 72]);
    host.io[0].pump(&mut rig);
    assert!(host.io[0].terminated.is_some() && host.io[0].closed);
    assert_eq!(host.read(&mut rig, 1, 0, 8).len(), 4096);
    assert_eq!(rig.association.as_ref().unwrap().queues(), 1);
    // One of the admin queue ends all.
    host.admin.send(&[0xff; 72]);
    host.admin.pump(&mut rig);
    host.io[1].pump(&mut rig);
    assert!(host.admin.terminated.is_some());
    assert!(host.admin.closed && host.io[1].closed);
    assert_eq!(rig.ends, ["type"]);
}
