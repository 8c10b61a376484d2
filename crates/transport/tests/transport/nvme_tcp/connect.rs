//! Newcomers and their Connect commands.

use std::time::Duration;

use nvme_spec::fabrics::{InvalidParameterDw0, NQN_SIZE};
use nvme_spec::tcp::{FatalErrorStatus, PduType};
use nvme_spec::{Cqe, Sqe, Status};
use nvme_tcp::Head;
use zerocopy::IntoBytes as _;

use super::host::{Connect, Host, Manner, Peer, beside, offer, set_name};
use super::rig::Rig;

const GOOD: Status = Status::SUCCESSFUL_COMPLETION;

/// Answer to a Connect: status, IPO, IATTR, and DNR.
fn verdict(cqe: &Cqe) -> (Status, u16, bool, bool) {
    let dw0 = InvalidParameterDw0::from(cqe.dw0);
    (
        cqe.status.status(),
        dw0.ipo(),
        dw0.iattr(),
        cqe.status.dnr(),
    )
}

#[test]
fn a_host_learns_its_controller_and_its_head() {
    let mut rig = Rig::new();
    let (mut admin, cqe) = Connect::new(0, 32, 0xffff).peer(&mut rig, offer(false, false));
    assert_eq!((cqe.status.status(), cqe.sq_head, cqe.sq_id), (GOOD, 1, 0));
    assert!((0x100..=0xffef).contains(&cqe.dw0), "a dynamic controller");
    assert!(!admin.closed);
    admin.take();
    drop(admin);
    rig.settle();
    assert_eq!(rig.ends, ["closed"]);

    let mut rig = Rig::new();
    let connect = Connect::new(0, 32, 0xffff).without_flow_control();
    let (_admin, cqe) = connect.peer(&mut rig, offer(true, true));
    assert_eq!((cqe.status.status(), cqe.sq_head), (GOOD, 0xffff));
}

#[test]
fn fields_that_are_wrong_are_named() {
    const INVALID: Status = Status::CONNECT_INVALID_PARAMETERS;
    let admin = || Connect::new(0, 32, 0xffff);
    let changed = |change: &dyn Fn(&mut Connect)| {
        let mut connect = admin();
        change(&mut connect);
        connect
    };
    let command = |ipo| (INVALID, ipo, false, true);
    let data = |ipo| (INVALID, ipo, true, true);
    let other = |status| (status, 0, false, false);
    let cases = [
        (Connect::new(0, 1, 0xffff), command(44)),
        (Connect::new(0, 129, 0xffff), command(44)),
        (Connect::new(1, 33, 0x100), command(44)),
        (Connect::new(5, 32, 0x100), command(42)),
        (Connect::new(0, 32, 0xfffe), data(16)),
        (Connect::new(0, 32, 0x100), data(16)),
        (Connect::new(1, 32, 0xffff), data(16)),
        // A controller that is not there: the host may try again with a new one.
        (Connect::new(1, 32, 0x100), (INVALID, 16, true, false)),
        (
            changed(&|connect| set_name(&mut connect.data.subnqn, "nqn.2026-11.t:s1")),
            data(256),
        ),
        (
            changed(&|connect| connect.data.subnqn = [b'a'; NQN_SIZE]),
            data(256),
        ),
        (
            changed(&|connect| set_name(&mut connect.data.hostnqn, &"n".repeat(224))),
            data(512),
        ),
        (
            changed(&|connect| connect.sqe.cdw10 = 1),
            other(Status::CONNECT_INCOMPATIBLE_FORMAT),
        ),
        (
            changed(&|connect| connect.sqe.prp2 ^= 1 << 32 | 1),
            other(Status::DATA_SGL_LENGTH_INVALID),
        ),
        (
            changed(&|connect| connect.sqe.prp1 = 4),
            other(Status::SGL_OFFSET_INVALID),
        ),
        (
            changed(&|connect| beside(&mut connect.sqe, 1024)),
            other(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ),
        (
            changed(&|connect| connect.sqe.nsid = 4),
            other(Status::COMMAND_SEQUENCE_ERROR),
        ),
        (
            changed(&|connect| connect.sqe.opcode = 6),
            other(Status::COMMAND_SEQUENCE_ERROR),
        ),
    ];
    for (number, (connect, expected)) in cases.into_iter().enumerate() {
        let mut rig = Rig::new();
        let (mut peer, cqe) = connect.peer(&mut rig, offer(false, false));
        assert_eq!(verdict(&cqe), expected, "case {number}");
        assert!(rig.association.is_none());
        peer.pump(&mut rig);
        assert!(peer.closed, "case {number}");
        drop(peer);
        rig.settle();
        assert_eq!(rig.others(), 0, "case {number}");
    }
}

#[test]
fn a_host_without_a_name_is_one_where_any_host_may_come() {
    let mut rig = Rig::new();
    let nameless = |qid, cntlid| {
        let mut connect = Connect::new(qid, 32, cntlid);
        set_name(&mut connect.data.hostnqn, "");
        connect
    };
    let (_peer, cqe) = nameless(0, 0xffff).peer(&mut rig, offer(false, false));
    assert_eq!(cqe.status.status(), GOOD);
    let association = rig.association.as_ref().expect("it is a host");
    assert_eq!(association.host().nqn, "");
}

#[test]
fn a_connect_without_data_in_its_capsule_asks_for_none() {
    let mut rig = Rig::new();
    let mut peer = Peer::new(rig.connect(), offer(false, false));
    peer.icreq();
    peer.pump(&mut rig);
    let mut connect = Connect::new(0, 32, 0xffff);
    beside(&mut connect.sqe, 1024);
    let cqe = peer.run(&mut rig, &connect.sqe, &[]);
    assert_eq!(cqe.status.status(), Status::SGL_DESCRIPTOR_TYPE_INVALID);
    assert!(peer.r2ts.is_empty());
}

#[test]
fn an_io_queue_is_of_the_same_host_and_after_enable() {
    let mut rig = Rig::new();
    let mut host = Host::admin(&mut rig, Manner::default());
    let connect = Connect::new(1, 32, host.cntlid);
    let (_peer, cqe) = connect.peer(&mut rig, host.offer);
    assert_eq!(cqe.status.status(), Status::COMMAND_SEQUENCE_ERROR);
    host.enable(&mut rig);

    let mut of_another = connect.clone();
    of_another.data.hostid = [8; 16];
    let (_peer, cqe) = of_another.peer(&mut rig, host.offer);
    let invalid = Status::CONNECT_INVALID_PARAMETERS;
    assert_eq!(verdict(&cqe), (invalid, 0, true, true));
    let mut of_another = connect.clone();
    set_name(
        &mut of_another.data.hostnqn,
        "nqn.2014-08.org.nvmexpress:uuid:two",
    );
    let (_peer, cqe) = of_another.peer(&mut rig, host.offer);
    assert_eq!(verdict(&cqe), (invalid, 512, true, true));

    let (_peer, cqe) = connect.peer(&mut rig, host.offer);
    assert_eq!(cqe.status.status(), GOOD);
    assert_eq!(rig.association.as_ref().unwrap().queues(), 1);
}

#[test]
fn queues_beyond_those_that_were_allocated_are_refused() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 0, Manner::default());
    let mut sqe = host.command(nvme_spec::opcode::AdminOpcode::SET_FEATURES, 0);
    sqe.cdw10 = 7;
    sqe.cdw11 = 0x0001_0001;
    assert_eq!(host.admin.status(&mut rig, &sqe, &[]), GOOD);
    let (mut peer, cqe) = Connect::new(3, 32, host.cntlid).peer(&mut rig, host.offer);
    let invalid = Status::CONNECT_INVALID_PARAMETERS;
    assert_eq!(verdict(&cqe), (invalid, 42, false, true));
    peer.pump(&mut rig);
    assert!(peer.closed);
    let (_peer, cqe) = Connect::new(2, 32, host.cntlid).peer(&mut rig, host.offer);
    assert_eq!(cqe.status.status(), GOOD);
}

#[test]
fn an_identifier_in_use_is_waited_for_and_then_refused() {
    let mut rig = Rig::new();
    let mut host = Host::new(&mut rig, 1, Manner::default());
    // Its connection is closed in the moment in which the next one connects.
    let mut next = Peer::new(rig.connect(), host.offer);
    next.icreq();
    next.pump(&mut rig);
    let connect = Connect::new(1, 32, host.cntlid);
    next.send_capsule(&connect.sqe, connect.data.as_bytes());
    drop(host.io.remove(0));
    assert_eq!(next.response(&mut rig).status.status(), GOOD);
    host.io.push(next);
    assert_eq!(host.read(&mut rig, 0, 0, 8).len(), 4096);

    let mut third = Peer::new(rig.connect(), host.offer);
    third.icreq();
    third.pump(&mut rig);
    third.send_capsule(&connect.sqe, connect.data.as_bytes());
    third.pump(&mut rig);
    assert!(third.responses.is_empty(), "it waits");
    rig.advance(Duration::from_millis(100));
    let status = third.response(&mut rig).status.status();
    assert_eq!(status, Status::COMMAND_SEQUENCE_ERROR);
    assert_eq!(host.read(&mut rig, 0, 0, 8).len(), 4096);
}

#[test]
fn a_newcomer_that_is_silent_ends() {
    let mut rig = Rig::new();
    let mut first = Peer::new(rig.connect(), offer(false, false));
    let mut second = Peer::new(rig.connect(), offer(false, false));
    second.icreq();
    second.pump(&mut rig);
    rig.advance(Duration::from_millis(4900));
    first.pump(&mut rig);
    assert!(!first.closed && rig.ends.is_empty());
    rig.advance(Duration::from_millis(200));
    first.pump(&mut rig);
    second.pump(&mut rig);
    assert!(first.closed && second.closed);
    assert_eq!(rig.ends, ["silent", "silent"]);
    assert_eq!(rig.others(), 0);
}

#[test]
fn a_connect_may_come_in_any_pieces() {
    let mut whole = Rig::new();
    let mut peer = Peer::new(whole.connect(), offer(true, true));
    peer.icreq();
    peer.pump(&mut whole);
    let connect = Connect::new(0, 32, 0xffff);
    let bytes = peer.capsule(&connect.sqe, connect.data.as_bytes());
    let icreq = Head::from(&offer(true, true).request()).to_vec();
    for cut in (1..icreq.len()).step_by(9) {
        let mut rig = Rig::new();
        let mut peer = Peer::new(rig.connect(), offer(true, true));
        peer.send(&icreq[..cut]);
        peer.pump(&mut rig);
        peer.send(&icreq[cut..]);
        peer.pump(&mut rig);
        assert!(!peer.closed && peer.max_h2c > 0, "{cut}");
    }
    for cut in (1..bytes.len()).step_by(7) {
        let mut rig = Rig::new();
        let mut peer = Peer::new(rig.connect(), offer(true, true));
        peer.icreq();
        peer.pump(&mut rig);
        peer.send(&bytes[..cut]);
        peer.pump(&mut rig);
        assert!(peer.responses.is_empty());
        peer.send(&bytes[cut..]);
        assert_eq!(peer.response(&mut rig).status.status(), GOOD, "{cut}");
    }
}

#[test]
fn what_follows_connect_is_not_lost() {
    let mut rig = Rig::new();
    let mut peer = Peer::new(rig.connect(), offer(false, false));
    peer.icreq();
    peer.pump(&mut rig);
    let connect = Connect::new(0, 32, 0xffff);
    let mut bytes = peer.capsule(&connect.sqe, connect.data.as_bytes());
    let mut get = Sqe::fabrics(nvme_spec::fabrics::FabricsType::PROPERTY_GET);
    get.cid = 1;
    get.cdw11 = 8;
    beside(&mut get, 0);
    bytes.extend(peer.capsule(&get, &[]));
    peer.send(&bytes);
    peer.pump(&mut rig);
    let cids: Vec<_> = peer
        .responses
        .iter()
        .map(|cqe| (cqe.cid, cqe.status.status()))
        .collect();
    assert_eq!(cids, [(0, GOOD), (1, GOOD)]);
    assert_eq!(peer.responses[1].dw0, 0x0002_0100);
}

#[test]
fn a_first_pdu_that_cannot_be_ends_the_connection_with_its_reason() {
    let right = Head::from(&offer(false, false).request()).to_vec();
    let changed = |at: usize, to: u8| {
        let mut bytes = right.clone();
        bytes[at] = to;
        bytes
    };
    let field = FatalErrorStatus::INVALID_PDU_HEADER_FIELD;
    for (bytes, fes, fei, name) in [
        (changed(0, 7), field, 0, "type"),
        (
            changed(0, PduType::CAPSULE_CMD.0),
            field,
            2,
            "header-length",
        ),
        (changed(2, 127), field, 2, "header-length"),
        (changed(4, 129), field, 4, "length"),
        (
            changed(8, 1),
            FatalErrorStatus::UNSUPPORTED_PARAMETER,
            8,
            "format-version",
        ),
        (changed(10, 32), field, 10, "alignment"),
    ] {
        let mut rig = Rig::new();
        let mut peer = Peer::new(rig.connect(), offer(false, false));
        peer.send(&bytes);
        peer.pump(&mut rig);
        assert_eq!(peer.terminated, Some((fes, fei)), "{name}");
        assert!(peer.closed);
        assert_eq!(rig.ends, [name]);
    }
    // A second ICReq, and a capsule in its place.
    let mut rig = Rig::new();
    let mut peer = Peer::new(rig.connect(), offer(false, false));
    peer.icreq();
    peer.pump(&mut rig);
    peer.icreq();
    peer.pump(&mut rig);
    assert_eq!(
        peer.terminated,
        Some((FatalErrorStatus::PDU_SEQUENCE_ERROR, 0))
    );
    assert_eq!(rig.ends, ["sequence"]);
}
