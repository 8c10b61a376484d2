//! Which sockets a look reads.

use std::io::Write as _;
use std::net::TcpStream;

use nvme_spec::Sqe;
use nvme_spec::opcode::AdminOpcode;
use zerocopy::IntoBytes;

use super::connection::tests::{connection, response};
use super::rings::Sq;
use super::*;

fn bus() -> NvmeTcp {
    let target = "127.0.0.1:1/nqn.2026-11.t:s0".parse().unwrap();
    let host = Identity::of_process().unwrap();
    NvmeTcp::unconnected(host, &target, Duration::from_secs(10)).unwrap()
}

/// Adds a queue to a bus: its other end.
fn add(bus: &NvmeTcp, qid: u16) -> TcpStream {
    let (connection, target, ..) = connection();
    let queue = bus.queue(qid, connection, None).unwrap();
    *lock(&bus.queues[usize::from(qid)]) = Some(queue);
    target
}

/// A queue sends a command without data.
fn submit(bus: &NvmeTcp, qid: u16, opcode: u8, cid: u16) {
    let sqe = Sqe {
        opcode,
        cid,
        ..Sqe::default()
    };
    let mut queue = lock(&bus.queues[usize::from(qid)]);
    let queue = queue.as_mut().unwrap();
    queue.connection.add(sqe, None).unwrap();
    bus.submit(queue, &bus.read_shared()).unwrap();
}

/// Commands in flight, of a connection with room for four.
fn in_flight(bus: &NvmeTcp, qid: u16) -> usize {
    let queue = lock(&bus.queues[usize::from(qid)]);
    4 - queue.as_ref().unwrap().connection.free()
}

/// The target answers a command, and the socket has it.
fn answer(bus: &NvmeTcp, qid: u16, target: &mut TcpStream, cid: u16) {
    target.write_all(&response(cid)).unwrap();
    let queue = lock(&bus.queues[usize::from(qid)]);
    let deadline = Instant::now() + Duration::from_secs(10);
    assert!(queue.as_ref().unwrap().connection.wait(deadline).unwrap());
}

#[test]
fn the_only_busy_queue_is_read_itself_and_now_and_then_all_are() {
    let bus = bus();
    let (mut admin, mut io) = (add(&bus, 0), add(&bus, 1));
    submit(&bus, 0, AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST.0, 0);
    submit(&bus, 1, 0, 0);
    submit(&bus, 1, 0, 1);
    answer(&bus, 0, &mut admin, 0);
    bus.look();
    assert_eq!(in_flight(&bus, 0), 1, "its socket is not read");
    answer(&bus, 1, &mut io, 0);
    bus.look();
    assert_eq!((in_flight(&bus, 0), in_flight(&bus, 1)), (1, 1));
    for _ in 2..LOOKS_AT_ALL {
        bus.look();
    }
    assert_eq!((in_flight(&bus, 0), in_flight(&bus, 1)), (0, 1));
}

#[test]
fn a_queue_that_is_busy_after_another_one_is_found_at_once() {
    for closes in [false, true] {
        let bus = bus();
        let mut targets = [1, 2].map(|qid| add(&bus, qid));
        submit(&bus, 1, 0, 0);
        submit(&bus, 2, 0, 0);
        if closes {
            bus.close(2);
        } else {
            answer(&bus, 2, &mut targets[1], 0);
            bus.look();
            assert_eq!(in_flight(&bus, 2), 0);
        }
        answer(&bus, 1, &mut targets[0], 0);
        bus.look();
        assert_eq!(in_flight(&bus, 1), 0, "with its end: {closes}");
    }
}

#[test]
fn an_admin_command_is_found_at_once_beside_a_busy_queue() {
    let bus = bus();
    let (mut admin, _io) = (add(&bus, 0), add(&bus, 1));
    submit(&bus, 0, AdminOpcode::IDENTIFY.0, 0);
    submit(&bus, 1, 0, 0);
    answer(&bus, 0, &mut admin, 0);
    bus.look();
    assert_eq!(in_flight(&bus, 0), 0);
}

/// A reactor that looks at the Admin Queue must not wait for the target, and Create I/O Submission
/// Queue connects.
#[test]
fn a_look_fetches_no_admin_command() {
    let bus = bus();
    let _target = add(&bus, 0);
    let memory = HostMemory::new(1 << 20).unwrap();
    bus.share(&memory, Iova(1 << 32)).unwrap();
    let shared = bus.read_shared();
    let mut sq = Sq::new(&shared, 1 << 32, 4, 0).unwrap();
    let sqe = Sqe {
        opcode: AdminOpcode::DOORBELL_BUFFER_CONFIG.0,
        ..Sqe::default()
    };
    memory.write(0, sqe.as_bytes());
    assert!(sq.set_tail(1));
    lock(&bus.queues[0]).as_mut().unwrap().sq = Some(sq);
    let head = || {
        let queue = lock(&bus.queues[0]);
        queue.as_ref().unwrap().sq.as_ref().unwrap().head()
    };
    bus.serve_if_free(0, &shared);
    assert_eq!(head(), 0);
    bus.submit(lock(&bus.queues[0]).as_mut().unwrap(), &shared)
        .unwrap();
    assert_eq!(head(), 1);
}
