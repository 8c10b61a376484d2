//! Hosts that make a key of TLS with their controller, and come again with that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use authentication::{Generated, Group, Hash, HostSide, Parties, Randomness};
use nvme_spec::Status;
use nvme_spec::fabrics::ConnectDw0;
use transport::nvme_tcp::{
    Access, Allowed, GeneratedKeys, Job, Keys, Proof, TargetConfig, Tls, powers,
};
use transport::secure::handshakes;

use super::authentication::{KEY, OTHER, fetch, property, put, secret};
use super::host::{Connect, HOSTNQN, Peer, offer};
use super::rig::{Rig, SUBNQN, config};
use super::secure::{KEY as TLS_KEY, client, connect, connected, key, secured, secured_at};

const GOOD: Status = Status::SUCCESSFUL_COMPLETION;
const REQUIRED: Status = Status::AUTHENTICATION_REQUIRED;

/// A target whose host has this secret, and the powers that it asks for.
fn target(
    text: &str,
    must_concatenate: bool,
    keys: &GeneratedKeys,
) -> (TargetConfig, Receiver<Job>) {
    let host = Allowed {
        must_concatenate,
        ..with_secret(text)
    };
    target_of(host, keys)
}

fn with_secret(text: &str) -> Allowed {
    Allowed {
        keys: Some(Keys {
            host: secret(text),
            controller: Some(secret(OTHER)),
        }),
        ..Allowed::default()
    }
}

fn target_of(host: Allowed, keys: &GeneratedKeys) -> (TargetConfig, Receiver<Job>) {
    let hosts = BTreeMap::from([(HOSTNQN.to_owned(), host)]);
    let (powers, jobs) = powers();
    let access = Access::of(hosts, powers, keys.clone());
    let (handshakes, handshaker) = handshakes().unwrap();
    thread::spawn(move || handshaker.run());
    let config = config();
    let tls = Tls::new(&access, SUBNQN, &config.discovery_nqn, handshakes).unwrap();
    let target = TargetConfig {
        access,
        tls: Some(tls),
        ..config
    };
    (target, jobs)
}

fn side() -> HostSide {
    side_that_asks(None)
}

/// A host that asks its controller to prove this secret.
fn side_that_asks(controller: Option<&str>) -> HostSide {
    let parties = Parties {
        hostnqn: HOSTNQN.to_owned(),
        subnqn: SUBNQN.to_owned(),
        host: secret(KEY),
        controller: controller.map(secret),
    };
    let random = Randomness::new(&[7; Randomness::LEN]);
    let groups = [Group::Null, Group::Ffdhe2048];
    HostSide::new(parties, random, 9, &Hash::ALL, &groups)
}

fn admin(rig: &mut Rig) -> (Peer, ConnectDw0) {
    let (peer, cqe) = Connect::new(0, 32, 0xffff).peer(rig, offer(false, false));
    assert_eq!(cqe.status.status(), GOOD);
    (peer, ConnectDw0::from(cqe.dw0))
}

/// A whole exchange, and the key of the host.
fn make(rig: &mut Rig, peer: &mut Peer, jobs: &Receiver<Job>) -> Generated {
    make_by(side(), rig, peer, jobs)
}

fn make_by(side: HostSide, rig: &mut Rig, peer: &mut Peer, jobs: &Receiver<Job>) -> Generated {
    let mut host = side.concatenating();
    assert_eq!(put(rig, peer, &host.negotiate()), GOOD);
    jobs.try_iter().for_each(Job::run);
    let reply = host.reply(&fetch(rig, peer)).unwrap();
    assert_eq!(put(rig, peer, &reply), GOOD);
    jobs.try_iter().for_each(Job::run);
    if let Some(success) = host.finish(&fetch(rig, peer)).unwrap() {
        assert_eq!(put(rig, peer, &success), GOOD);
    }
    host.take_generated().unwrap()
}

#[test]
fn a_connection_on_which_a_key_was_made_serves_nothing() {
    for must in [false, true] {
        let keys = GeneratedKeys::default();
        let (target, jobs) = target(KEY, must, &keys);
        let mut rig = Rig::with(target);
        let (mut peer, dw0) = admin(&mut rig);
        assert!(dw0.atr() && dw0.ascr() == must);
        make(&mut rig, &mut peer, &jobs);
        let proof = |rig: &Rig| rig.association.as_ref().unwrap().proof();
        assert_eq!(proof(&rig), Proof::Concatenated);
        assert_eq!(peer.status(&mut rig, &property(), &[]), REQUIRED);
        // An I/O queue of its controller.
        let io = Connect::new(1, 32, dw0.cntlid());
        let (_, cqe) = io.peer(&mut rig, offer(false, false));
        assert!(!cqe.status.status().is_success());
        // Linux sends Success2 where it has a secret of the controller.
        let mut success = [0; 16];
        (success[0], success[1], success[4]) = (1, 4, 9);
        assert_eq!(put(&mut rig, &mut peer, &success), GOOD);
        assert_eq!(proof(&rig), Proof::Concatenated);
        assert_eq!(peer.status(&mut rig, &property(), &[]), REQUIRED);
        // Its host is to close it.
        rig.advance(Duration::from_millis(2_900));
        rig.settle();
        assert!(rig.association.is_some());
        rig.advance(Duration::from_millis(200));
        rig.settle();
        assert!(rig.association.is_none());
        assert_eq!(rig.ends.last(), Some(&"not-through-tls"));
    }
}

#[test]
fn a_host_that_must_make_a_key_does_not_prove_its_secret_alone() {
    let keys = GeneratedKeys::default();
    let (target, _jobs) = target(KEY, true, &keys);
    let mut rig = Rig::with(target);
    let (mut peer, dw0) = admin(&mut rig);
    assert!(dw0.ascr());
    assert_eq!(peer.status(&mut rig, &property(), &[]), REQUIRED);
    put(&mut rig, &mut peer, &side().negotiate());
    let said = fetch(&mut rig, &mut peer);
    assert_eq!((said[1], said[7]), (0xf1, 3), "concatenation mismatch");
    peer.pump(&mut rig);
    assert_eq!(rig.ends, ["authentication-concatenation"]);
    // Nor does an I/O queue of its come in clear.
    let (_, cqe) = Connect::new(1, 32, dw0.cntlid()).peer(&mut rig, offer(false, false));
    assert_eq!(cqe.status.status(), Status::CONNECT_INVALID_HOST);
}

#[test]
fn a_host_comes_with_the_key_that_it_has_made_for_as_long_as_it_has_its_secret() {
    let keys = GeneratedKeys::default();
    let (first, jobs) = target(KEY, false, &keys);
    let mut rig = Rig::with(first.clone());
    let (mut peer, _) = admin(&mut rig);
    let made = make(&mut rig, &mut peer, &jobs);
    let ours = client(&made.name, &made.psk);
    let arrival = connect(&Arc::new(first.clone()), &ours, [HOSTNQN, SUBNQN]).unwrap();
    assert!(arrival.is_secured() && !arrival.is_asked());
    let end = |target: TargetConfig, name: &str| {
        let ours = client(name, &made.psk);
        secured(&Arc::new(target), &ours).unwrap_err().name()
    };
    let strange = made.name.replace("NVMe1G01", "NVMe1G02");
    assert_eq!(end(first.clone(), &strange), "tls-identity");
    // Another secret; the same one, read again; and another server.
    let (changed, _jobs) = target(OTHER, false, &keys);
    assert_eq!(end(changed, &made.name), "tls-identity");
    let (same, _jobs) = target(KEY, true, &keys);
    assert!(secured(&Arc::new(same), &ours).is_ok());
    let (alone, _jobs) = target(KEY, false, &GeneratedKeys::default());
    assert_eq!(end(alone, &made.name), "tls-identity");
    // It has no secret any more, or a key of its own.
    let bare = Allowed::default();
    let keyed = Allowed {
        tls: Some(Arc::new(key(TLS_KEY))),
        ..with_secret(KEY)
    };
    for host in [bare, keyed] {
        let (target, _jobs) = target_of(host, &keys);
        assert_eq!(end(target, &made.name), "tls-identity");
    }
    let refused = connect(&Arc::new(first), &ours, ["nqn.none", SUBNQN]);
    assert_eq!(refused.unwrap_err(), Some("host"));
}

#[test]
fn a_host_has_proved_what_the_exchange_of_its_key_has_proved() {
    for (controller, proof) in [(None, Proof::Host), (Some(OTHER), Proof::Both)] {
        let (target, jobs) = target(KEY, false, &GeneratedKeys::default());
        let mut rig = Rig::with(target.clone());
        let (mut peer, _) = admin(&mut rig);
        let made = make_by(side_that_asks(controller), &mut rig, &mut peer, &jobs);
        let mut rig = Rig::with(target.clone());
        let ours = client(&made.name, &made.psk);
        let names = [HOSTNQN, SUBNQN];
        let (arrival, _session) = connected(&Arc::new(target), &ours, names).unwrap();
        rig.take(arrival);
        assert_eq!(rig.association.as_ref().unwrap().proof(), proof);
    }
}

#[test]
fn a_key_is_refused_when_its_hour_is_over() {
    let (target, jobs) = target(KEY, false, &GeneratedKeys::default());
    let mut rig = Rig::with(target.clone());
    let (mut peer, _) = admin(&mut rig);
    let before = rig.now();
    let made = make(&mut rig, &mut peer, &jobs);
    let after = rig.now();
    let (target, ours) = (Arc::new(target), client(&made.name, &made.psk));
    let hour = 3_600_000_000_000;
    assert!(secured_at(&target, &ours, before + (hour - 1)).is_ok());
    let end = secured_at(&target, &ours, after + hour).unwrap_err();
    assert_eq!(end.name(), "tls-identity");
}

#[test]
fn an_exchange_that_has_made_a_key_leaves_its_place() {
    let (target, jobs) = target(KEY, false, &GeneratedKeys::default());
    // More than one host may have in progress.
    let rigs = (0..6).map(|_| {
        let mut rig = Rig::with(target.clone());
        let (mut peer, _) = admin(&mut rig);
        make(&mut rig, &mut peer, &jobs);
        (rig, peer)
    });
    assert_eq!(rigs.collect::<Vec<_>>().len(), 6);
}

#[test]
fn a_host_whose_admin_queue_has_tls_has_no_queue_in_clear() {
    let (target, jobs) = target(KEY, false, &GeneratedKeys::default());
    let mut rig = Rig::with(target.clone());
    let (mut peer, _) = admin(&mut rig);
    let made = make(&mut rig, &mut peer, &jobs);
    let mut rig = Rig::with(target.clone());
    let ours = client(&made.name, &made.psk);
    let names = [HOSTNQN, SUBNQN];
    let (arrival, _session) = connected(&Arc::new(target), &ours, names).unwrap();
    rig.take(arrival);
    let cntlid = rig.association.as_ref().unwrap().cntlid();
    let (_, cqe) = Connect::new(1, 32, cntlid).peer(&mut rig, offer(false, false));
    assert_eq!(cqe.status.status(), Status::CONNECT_INVALID_HOST);
    assert!(rig.association.is_some());
}
