//! Hosts that are to prove who they are, and hosts that may not connect.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use authentication::{Group, Hash, HostSide, Parties, Randomness, Secret};
use driver::bus::nvme_tcp::{Identity, NvmeTcp};
use driver::{Device, Options};
use nvme_spec::fabrics::{AuthenticationCdw10, ConnectDw0, FabricsType, SECP_NVME};
use nvme_spec::opcode::{AdminOpcode, NvmOpcode};
use nvme_spec::sqe::Fuse;
use nvme_spec::{Sqe, Status};
use transport::nvme_tcp::{
    Access, Allowed, GeneratedKeys, Job, Keys, Powers, Proof, TargetConfig, powers,
};

use super::driver::Target;
use super::host::{Connect, HOSTNQN, Host, Peer, beside, fuse, in_capsule, offer, set_name};
use super::rig::{NSID, Rig, SUBNQN, config};

const GOOD: Status = Status::SUCCESSFUL_COMPLETION;
pub(super) const KEY: &str = "DHHC-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
pub(super) const OTHER: &str = "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const CTRL: &str =
    "DHHC-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";
const FREE: &str = "nqn.2014-08.org.nvmexpress:uuid:free";
const SEND: FabricsType = FabricsType::AUTHENTICATION_SEND;
const RECEIVE: FabricsType = FabricsType::AUTHENTICATION_RECEIVE;

pub(super) fn secret(text: &str) -> Arc<Secret> {
    Arc::new(Secret::read(text).unwrap())
}

fn proving(keys: Keys) -> Allowed {
    Allowed {
        keys: Some(keys),
        ..Allowed::default()
    }
}

/// A target that admits two hosts, of which one has secrets.
fn guarded(powers: Powers) -> TargetConfig {
    let keys = Keys {
        host: secret(KEY),
        controller: Some(secret(CTRL)),
    };
    let hosts = [
        (HOSTNQN.to_owned(), proving(keys)),
        (FREE.to_owned(), Allowed::default()),
    ];
    TargetConfig {
        access: Access::of(BTreeMap::from(hosts), powers, GeneratedKeys::default()),
        ..config()
    }
}

/// With a thread that computes until the target is gone.
fn computed() -> TargetConfig {
    let (powers, jobs) = powers();
    thread::spawn(move || jobs.iter().for_each(Job::run));
    guarded(powers)
}

fn side(group: Group, controller: bool) -> HostSide {
    let parties = Parties {
        hostnqn: HOSTNQN.to_owned(),
        subnqn: SUBNQN.to_owned(),
        host: secret(KEY),
        controller: controller.then(|| secret(CTRL)),
    };
    let random = Randomness::new(&[7; Randomness::LEN]);
    HostSide::new(parties, random, 9, &Hash::ALL, &[group])
}

fn message(kind: FabricsType, len: u32, cid: u16) -> Sqe {
    let mut sqe = Sqe::fabrics(kind);
    let cdw10 = AuthenticationCdw10::new().with_spsp0(1).with_spsp1(1);
    sqe.cdw10 = cdw10.with_secp(SECP_NVME).into();
    (sqe.cdw11, sqe.cid) = (len, cid);
    if kind == SEND {
        in_capsule(&mut sqe, len);
    } else {
        beside(&mut sqe, len);
    }
    sqe
}

pub(super) fn put(rig: &mut Rig, peer: &mut Peer, bytes: &[u8]) -> Status {
    let sqe = message(SEND, bytes.len() as u32, 1);
    peer.status(rig, &sqe, bytes)
}

pub(super) fn fetch(rig: &mut Rig, peer: &mut Peer) -> Vec<u8> {
    assert_eq!(peer.status(rig, &message(RECEIVE, 4096, 2), &[]), GOOD);
    peer.data.remove(&2).unwrap()
}

fn connect() -> Connect {
    Connect::new(0, 32, 0xffff)
}

/// A whole exchange without a power.
fn prove(rig: &mut Rig, peer: &mut Peer) {
    let mut host = side(Group::Null, false);
    assert_eq!(put(rig, peer, &host.negotiate()), GOOD);
    let reply = host.reply(&fetch(rig, peer)).unwrap();
    assert_eq!(put(rig, peer, &reply), GOOD);
    assert_eq!(host.finish(&fetch(rig, peer)).unwrap(), None);
}

/// An I/O queue, whose host is asked for its proof.
fn io_queue(rig: &mut Rig, qid: u16, cntlid: u16) -> Peer {
    let (peer, cqe) = Connect::new(qid, 32, cntlid).peer(rig, offer(false, false));
    let dw0 = ConnectDw0::from(cqe.dw0);
    assert_eq!((cqe.status.status(), cqe.sq_id), (GOOD, qid));
    assert!(dw0.atr() && dw0.cntlid() == cntlid);
    peer
}

/// The status of a read of a block.
fn read(rig: &mut Rig, peer: &mut Peer) -> Status {
    let mut sqe = Sqe {
        opcode: NvmOpcode::READ.0,
        nsid: NSID,
        cid: 7,
        ..Sqe::default()
    };
    beside(&mut sqe, 512);
    let status = peer.status(rig, &sqe, &[]);
    assert_eq!(peer.data.remove(&7).is_some(), status == GOOD);
    status
}

pub(super) fn property() -> Sqe {
    let mut sqe = Sqe::fabrics(FabricsType::PROPERTY_GET);
    (sqe.cid, sqe.cdw11) = (3, 0x1c);
    beside(&mut sqe, 0);
    sqe
}

#[test]
fn our_host_and_our_target_authenticate_each_other() {
    let target = Target::with(computed);
    let open = |nqn, key: Option<&str>, ctrl: Option<&str>| {
        let read = |text| Secret::read(text).unwrap();
        let host = Identity::new(Some(nqn), key.map(read), ctrl.map(read)).unwrap();
        let address = target.address(SUBNQN);
        NvmeTcp::connect_as(&host, &address, Duration::from_secs(20))
    };
    for ctrl in [Some(CTRL), None] {
        let bus = open(HOSTNQN, Some(KEY), ctrl).unwrap();
        let mut device = Device::open(bus, &Options::default()).unwrap();
        device.enable().unwrap();
        let namespace = device.namespace(NSID).unwrap();
        let buffer = device.alloc(512).unwrap();
        for _ in 0..2 {
            let mut queue = device.create_queue_pair(4, false).unwrap();
            queue.read(&namespace, 0, 1, &buffer).unwrap();
        }
    }
    for (nqn, key, ctrl, says) in [
        (HOSTNQN, Some(OTHER), None, "Authentication failed"),
        (HOSTNQN, Some(KEY), Some(KEY), "Authentication failed"),
        (HOSTNQN, None, None, "--dhchap-key"),
        (
            FREE,
            Some(KEY),
            Some(CTRL),
            "does not ask for authentication",
        ),
        (
            "nqn.2026-11.example:other",
            Some(KEY),
            None,
            "does not admit this host",
        ),
    ] {
        let error = open(nqn, key, ctrl).err().unwrap().to_string();
        assert!(error.contains(says), "{says}: {error}");
        assert!(!error.contains("AAEC"), "{error}");
    }
    // A host without secrets that the target has none of either, with one of its own or not.
    for key in [None, Some(KEY)] {
        open(FREE, key, None).unwrap();
    }
    let lone = Identity::new(None, None, Some(Secret::read(CTRL).unwrap()));
    assert!(lone.err().unwrap().contains("the host's secret"));
    assert!(Identity::new(Some("host"), None, None).is_err());
}

#[test]
fn nothing_else_is_served_before_a_host_has_proved_its_secret() {
    let (powers, _jobs) = powers();
    let mut rig = Rig::with(guarded(powers));
    let (mut peer, cqe) = connect().peer(&mut rig, offer(false, false));
    let dw0 = ConnectDw0::from(cqe.dw0);
    assert_eq!(cqe.status.status(), GOOD);
    assert!(dw0.atr() && !dw0.ascr());
    let required = Status::AUTHENTICATION_REQUIRED;
    let mut identify = Sqe {
        opcode: AdminOpcode::IDENTIFY.0,
        cid: 4,
        cdw10: 1,
        ..Sqe::default()
    };
    beside(&mut identify, 4096);
    let mut enable = Sqe::fabrics(FabricsType::PROPERTY_SET).with_property(0x46_0061);
    (enable.cid, enable.cdw11) = (5, 0x14);
    beside(&mut enable, 0);
    for sqe in [property(), identify, enable] {
        assert_eq!(peer.status(&mut rig, &sqe, &[]), required);
    }
    // An I/O queue of the same host.
    let io = Connect::new(1, 32, dw0.cntlid());
    let (_, cqe) = io.peer(&mut rig, offer(false, false));
    assert_eq!(cqe.status.status(), Status::COMMAND_SEQUENCE_ERROR);
    // Fields of the commands that carry messages.
    let invalid = Status::INVALID_FIELD_IN_COMMAND;
    for change in [0xe901_0200u32, 0xe902_0100, 0xea01_0100, 0] {
        let mut sqe = message(SEND, 72, 6);
        sqe.cdw10 = change;
        assert_eq!(peer.status(&mut rig, &sqe, &[0; 72]), invalid);
    }
    let mut sqe = message(SEND, 72, 6);
    sqe.cdw11 = 71;
    assert_eq!(
        peer.status(&mut rig, &sqe, &[0; 72]),
        Status::DATA_SGL_LENGTH_INVALID
    );
    for len in [0, 4100] {
        assert_eq!(
            peer.status(&mut rig, &message(RECEIVE, len, 6), &[]),
            invalid
        );
    }
    // With the group NULL there is no power to wait for.
    let mut host = side(Group::Null, true);
    assert_eq!(put(&mut rig, &mut peer, &host.negotiate()), GOOD);
    let challenge = fetch(&mut rig, &mut peer);
    assert_eq!(challenge.len(), 4096, "filled up");
    let reply = host.reply(&challenge).unwrap();
    assert_eq!(put(&mut rig, &mut peer, &reply), GOOD);
    assert_eq!(
        peer.status(&mut rig, &property(), &[]),
        required,
        "no proof was taken"
    );
    let last = host.finish(&fetch(&mut rig, &mut peer)).unwrap().unwrap();
    assert_eq!(rig.association.as_ref().unwrap().proof(), Proof::Pending);
    assert_eq!(put(&mut rig, &mut peer, &last), GOOD);
    assert_eq!(peer.status(&mut rig, &property(), &[]), GOOD);
    assert_eq!(rig.association.as_ref().unwrap().proof(), Proof::Both);
    // A host proves once who it is.
    assert_eq!(
        put(&mut rig, &mut peer, &host.negotiate()),
        Status::COMMAND_SEQUENCE_ERROR
    );
    assert_eq!(peer.status(&mut rig, &property(), &[]), GOOD);
}

#[test]
fn an_io_queue_of_a_proved_host_serves_only_one_that_proves_it_again() {
    let (powers, _jobs) = powers();
    let mut rig = Rig::with(guarded(powers));
    let mut host = Host::connected(&connect(), &mut rig, offer(false, false));
    prove(&mut rig, &mut host.admin);
    host.enable(&mut rig);
    let required = Status::AUTHENTICATION_REQUIRED;
    let mut own = io_queue(&mut rig, 1, host.cntlid);
    assert_eq!(read(&mut rig, &mut own), required);
    prove(&mut rig, &mut own);
    assert_eq!(read(&mut rig, &mut own), GOOD);
    let again = put(&mut rig, &mut own, &side(Group::Null, false).negotiate());
    assert_eq!(again, Status::COMMAND_SEQUENCE_ERROR);

    // Another one, who knows the host's names and its controller's, but not its secret.
    let mut stranger = io_queue(&mut rig, 2, host.cntlid);
    for opcode in [NvmOpcode::READ, NvmOpcode::WRITE, NvmOpcode::FLUSH] {
        let mut sqe = Sqe {
            opcode: opcode.0,
            nsid: NSID,
            cid: 7,
            ..Sqe::default()
        };
        let len = if opcode == NvmOpcode::FLUSH { 0 } else { 512 };
        beside(&mut sqe, len);
        assert_eq!(stranger.status(&mut rig, &sqe, &[]), required);
    }
    assert!(stranger.data.is_empty() && stranger.r2ts.is_empty());
    assert_eq!(stranger.status(&mut rig, &property(), &[]), required);
    // A half of a pair carries no message.
    let half = fuse(message(SEND, 8, 1), Fuse::FIRST);
    let invalid = Status::INVALID_FIELD_IN_COMMAND;
    assert_eq!(stranger.status(&mut rig, &half, &[0; 8]), invalid);
    let mut guess = side(Group::Null, false);
    put(&mut rig, &mut stranger, &guess.negotiate());
    let mut reply = guess.reply(&fetch(&mut rig, &mut stranger)).unwrap();
    reply[16] ^= 1;
    put(&mut rig, &mut stranger, &reply);
    assert_eq!(fetch(&mut rig, &mut stranger)[1], 0xf1, "it fails");
    stranger.pump(&mut rig);
    assert!(stranger.closed);
    // One that sends nothing ends after the same time.
    let mut silent = io_queue(&mut rig, 2, host.cntlid);
    rig.advance(Duration::from_millis(20_100));
    silent.pump(&mut rig);
    assert!(silent.closed);
    // The host does not notice.
    assert_eq!(read(&mut rig, &mut own), GOOD);
    let association = rig.association.as_ref().unwrap();
    assert_eq!(association.queues(), 1);
    let ended = association.counters().ended;
    let expected = [("authentication-failed", 1), ("authentication-late", 1)];
    assert_eq!(ended, BTreeMap::from(expected));
    let mut second = io_queue(&mut rig, 2, host.cntlid);
    prove(&mut rig, &mut second);
    assert_eq!(read(&mut rig, &mut second), GOOD);
    assert_eq!(rig.ends, <[&str; 0]>::default());
}

#[test]
fn a_failure_is_told_and_ends_the_association() {
    let (powers, _jobs) = powers();
    let mut rig = Rig::with(guarded(powers));
    for zero in [false, true] {
        let (mut peer, _) = connect().peer(&mut rig, offer(true, true));
        let mut host = side(Group::Null, false);
        put(&mut rig, &mut peer, &host.negotiate());
        let mut reply = host.reply(&fetch(&mut rig, &mut peer)).unwrap();
        if zero {
            reply[16..80].fill(0);
        } else {
            reply[16] ^= 1;
        }
        assert_eq!(put(&mut rig, &mut peer, &reply), GOOD);
        let failure = fetch(&mut rig, &mut peer);
        assert_eq!(failure[..8], [0, 0xf1, 0, 0, 9, 0, 1, 1]);
        peer.pump(&mut rig);
        assert!(peer.closed);
    }
    let (mut peer, _) = connect().peer(&mut rig, offer(false, false));
    let mut host = side(Group::Null, true);
    put(&mut rig, &mut peer, &host.negotiate());
    host.reply(&fetch(&mut rig, &mut peer)).unwrap();
    put(
        &mut rig,
        &mut peer,
        &host.failure(authentication::Failed::Hash),
    );
    // A message for which its host has no room.
    let (mut peer, _) = connect().peer(&mut rig, offer(false, false));
    put(&mut rig, &mut peer, &host.negotiate());
    let short = message(RECEIVE, 16, 2);
    assert_eq!(
        peer.status(&mut rig, &short, &[]),
        Status::INVALID_FIELD_IN_COMMAND
    );
    drop(peer);
    rig.settle();
    assert_eq!(
        rig.ends,
        [
            "authentication-failed",
            "authentication-failed",
            "authentication-hash",
            "closed"
        ]
    );
}

#[test]
fn an_exchange_has_a_time_limit_whatever_its_host_does() {
    let (powers, jobs) = powers();
    let mut rig = Rig::with(guarded(powers));
    for negotiates in [false, true] {
        let (mut peer, _) = connect().peer(&mut rig, offer(false, false));
        if negotiates {
            put(
                &mut rig,
                &mut peer,
                &side(Group::Ffdhe2048, true).negotiate(),
            );
        }
        rig.advance(Duration::from_millis(19_900));
        rig.settle();
        assert!(rig.association.is_some());
        rig.advance(Duration::from_millis(200));
        rig.settle();
        assert!(rig.association.is_none());
    }
    assert_eq!(rig.ends, ["authentication-late"; 2]);
    // The result of the work comes to nothing.
    assert_eq!(jobs.try_iter().map(Job::run).count(), 1);
    // A fetch that waits for work is answered when the work is done.
    let (mut peer, _) = connect().peer(&mut rig, offer(false, false));
    let mut host = side(Group::Ffdhe2048, false);
    put(&mut rig, &mut peer, &host.negotiate());
    peer.send_capsule(&message(RECEIVE, 4096, 2), &[]);
    peer.pump(&mut rig);
    assert!(peer.responses.is_empty());
    let due = rig.association.as_ref().unwrap().next_deadline().unwrap();
    assert!(due.since(rig.now()) <= 1_000_000, "it looks for the result");
    // A second one meanwhile is out of order.
    let second = message(RECEIVE, 4096, 8);
    assert_eq!(
        peer.status(&mut rig, &second, &[]),
        Status::COMMAND_SEQUENCE_ERROR
    );
    jobs.try_iter().for_each(Job::run);
    assert_eq!(peer.response(&mut rig).status.status(), GOOD);
    assert!(host.reply(&peer.data.remove(&2).unwrap()).is_ok());
    // Without a thread that computes, an exchange fails.
    drop(peer);
    rig.settle();
    drop(jobs);
    let (mut peer, _) = connect().peer(&mut rig, offer(false, false));
    put(&mut rig, &mut peer, &host.negotiate());
    assert_eq!(fetch(&mut rig, &mut peer)[1], 0xf1);
}

#[test]
fn a_host_that_is_not_allowed_is_refused() {
    let (powers, _jobs) = powers();
    let mut rig = Rig::with(guarded(powers));
    let name = "nqn.2026-11.example:stranger";
    for (qid, cntlid, name) in [(0, 0xffff, name), (1, 0x100, name), (0, 0xffff, "")] {
        let mut stranger = Connect::new(qid, 32, cntlid);
        set_name(&mut stranger.data.hostnqn, name);
        let (_, cqe) = stranger.peer(&mut rig, offer(false, false));
        // As Linux's target answers.
        assert_eq!((u16::from(cqe.status) >> 1, cqe.dw0), (0x4184, 0x1_0200));
    }
    rig.settle();
    assert_eq!(rig.ends, ["host", "host", "host"]);
}

/// As [`connect`], of the host with that number.
fn connect_of(number: usize) -> Connect {
    let mut connect = connect();
    set_name(&mut connect.data.hostnqn, &format!("{HOSTNQN}:{number}"));
    connect
}

#[test]
fn exchanges_are_limited_for_each_host_and_for_all() {
    let (powers, _jobs) = powers();
    let keys = Keys {
        host: secret(KEY),
        controller: None,
    };
    let named = |number| (format!("{HOSTNQN}:{number}"), proving(keys.clone()));
    let mut hosts: BTreeMap<_, _> = (0..17).map(named).collect();
    hosts.insert(FREE.to_owned(), Allowed::default());
    // Every rig is another entrance with the same thread for its powers.
    let rig = || {
        Rig::with(TargetConfig {
            access: Access::of(hosts.clone(), powers.clone(), GeneratedKeys::default()),
            ..config()
        })
    };
    let begin = |number: usize| {
        let mut rig = rig();
        let (peer, cqe) = connect_of(number).peer(&mut rig, offer(false, false));
        assert_eq!(cqe.status.status(), GOOD);
        (rig, peer)
    };
    let mut other = rig();
    let mut busy = |number: usize| {
        let (_, cqe) = connect_of(number).peer(&mut other, offer(false, false));
        assert_eq!(cqe.status.status(), Status::CONNECT_CONTROLLER_BUSY);
        assert!(!cqe.status.dnr(), "it tries again");
    };
    let mut begun: Vec<_> = [0; 4].map(begin).into();
    busy(0);
    // Another host is not kept out, and one that leaves makes room.
    drop(begun.pop());
    begun.push(begin(0));
    begun.extend((4..64).map(|at| begin(at / 4)));
    busy(16);
    // A host without secrets has no exchange.
    let mut free = connect();
    set_name(&mut free.data.hostnqn, FREE);
    let mut entrance = rig();
    let (_free, cqe) = free.peer(&mut entrance, offer(false, false));
    assert_eq!(cqe.status.status(), GOOD);
    assert!(!ConnectDw0::from(cqe.dw0).atr());
    drop(begun.pop());
    begun.push(begin(16));
}
