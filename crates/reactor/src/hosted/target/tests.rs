//! Connections that are no host's.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use controller::DoorbellMode;
use controller::counters::{Counted, Past};
use transport::nvme_tcp::{Digests, Success};
use transport::secure::{Handshaker, handshakes};

use super::*;

const SUBNQN: &str = "nqn.2026-11.t:s0";

const DISCOVERY: &str = "nqn.2014-08.org.example:discovery";
const BOUND: Duration = Duration::from_secs(10);

/// An entrance with TLS and a connection to it, and who would do its handshakes.
fn secured() -> (Target, TcpStream, Handshaker) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (handshakes, handshaker) = handshakes().unwrap();
    let access = Access::anyone();
    let tls = Tls::new(&access, SUBNQN, DISCOVERY, handshakes).unwrap();
    (target(listener, Some(tls)), stream, handshaker)
}

pub(crate) fn config(tls: Option<Tls>) -> TargetConfig {
    TargetConfig {
        name: "t".into(),
        subnqn: SUBNQN.into(),
        access: Access::anyone(),
        tls,
        queues: 1,
        queue_depth: 32,
        max_transfer: 4096,
        in_capsule: 4096,
        digests: Digests::new(),
        success: Success::AsSpecified,
        discovery_nqn: DISCOVERY.to_owned(),
        slots: 4096,
    }
}

pub(crate) fn template() -> ControllerConfig {
    ControllerConfig {
        name: "t".into(),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: "S".into(),
        model_number: "M".into(),
        firmware_revision: "1".into(),
        subnqn: SUBNQN.into(),
        queues: 1,
        queue_depth: 32,
        max_transfer: 4096,
        doorbells: DoorbellMode::Trapped,
        msix: false,
        intx: false,
        interface: controller::Interface::Pcie,
    }
}

pub(crate) fn listening(listener: TcpListener, tls: Option<Tls>) -> Listening {
    Listening {
        listener,
        config: Arc::new(config(tls)),
        hosts: 1,
    }
}

fn target(listener: TcpListener, tls: Option<Tls>) -> Target {
    let (template, listening) = (template(), listening(listener, tls));
    let presence = Arc::new(Presence::new(|_, _| ()));
    let (slot, subsystem) = (ControllerSlot(0), SubsystemSlot(0));
    Target::new(template, slot, subsystem, listening, presence).unwrap()
}

/// A PDU of zeroes, with its type and the length of its header.
pub(crate) fn pdu(pdu_type: u8, header: u8, len: u16) -> Vec<u8> {
    let mut pdu = vec![0; len.into()];
    (pdu[0], pdu[2]) = (pdu_type, header);
    pdu[4..6].copy_from_slice(&len.to_le_bytes());
    pdu
}

/// A capsule with Connect of the Admin Queue, and its data.
fn connect() -> Vec<u8> {
    let mut pdu = pdu(4, 72, 72 + 1024);
    pdu[3] = 72;
    let (sqe, data) = pdu[8..].split_at_mut(64);
    for (at, word) in [(0, 0x407f_u32), (1, 1), (8, 1024), (9, 1 << 24), (11, 31)] {
        sqe[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
    }
    data[..16].fill(1);
    data[16..18].fill(0xff);
    data[256..][..SUBNQN.len()].copy_from_slice(SUBNQN.as_bytes());
    let host = b"nqn.2026-11.t:host";
    data[512..][..host.len()].copy_from_slice(host);
    pdu
}

#[test]
fn the_socket_of_a_host_is_not_watched_with_those_that_are_none() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut host = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    host.set_nonblocking(true).unwrap();
    let (mut target, poller) = (target(listener, None), Poller::new().unwrap());
    let until = Instant::now() + Duration::from_secs(10);
    host.write_all(&pdu(0, 128, 128)).unwrap();
    let mut answer = [0; 128];
    while host.read(&mut answer).is_err() {
        target.poll(Time(0), &poller);
        assert!(Instant::now() < until, "no answer to ICReq");
    }
    host.write_all(&connect()).unwrap();
    let _arrival = loop {
        target.poll(Time(0), &poller);
        if let Some(arrival) = target.take_arrival() {
            break arrival;
        }
        assert!(Instant::now() < until, "no Connect");
    };
    host.write_all(&[4]).unwrap();
    assert_eq!(target.entrance.callers.events(Duration::from_millis(50)), 0);
}

fn waits(target: &Target) -> bool {
    let first = target.entrance.callers.get(0);
    matches!(first, Some(Connection::Greeting(greeting)) if !greeting.wants_read())
}

#[test]
fn one_that_has_not_sent_its_hello_is_not_watched_and_keeps_its_number() {
    const RETRY: u64 = 100_000_000;
    let (mut target, mut host, _handshaker) = secured();
    let poller = Poller::new().unwrap();
    host.write_all(&[22]).unwrap();
    let until = Instant::now() + BOUND;
    while !waits(&target) {
        target.poll(Time(0), &poller);
        assert!(Instant::now() < until, "it is not accepted");
    }
    // Neither its bytes nor its end wake the reactor.
    host.write_all(&[3]).unwrap();
    host.shutdown(std::net::Shutdown::Both).unwrap();
    drop(host);
    assert_eq!(target.entrance.callers.events(Duration::from_millis(50)), 0);
    for turn in 0..5 {
        target.poll(Time(turn * RETRY), &poller);
        assert_eq!(target.next_deadline(), Some(Time((turn + 1) * RETRY)));
        assert!(waits(&target) && target.entrance.callers.called() == 1);
    }
    target.poll(Time(100 * RETRY), &poller);
    assert_eq!(target.entrance.callers.len(), 0);
}

#[test]
fn one_whose_handshake_is_in_progress_stays_longer_than_a_silent_one() {
    let (mut target, mut host, _handshaker) = secured();
    let poller = Poller::new().unwrap();
    let until = Instant::now() + BOUND;
    while target.entrance.callers.len() == 0 {
        target.poll(Time(0), &poller);
        assert!(Instant::now() < until, "it is not accepted");
    }
    let rank = |target: &Target| target.entrance.callers.get(0).map(Connection::rank);
    assert_eq!(rank(&target), Some(0));
    // A ClientHello without content, in a record.
    host.write_all(&[22, 3, 1, 0, 4, 1, 0, 0, 0]).unwrap();
    while rank(&target) == Some(0) {
        target.poll(Time(0), &poller);
        assert!(Instant::now() < until, "no handshake begins");
    }
    assert_eq!(
        (rank(&target), target.entrance.callers.called()),
        (Some(1), 1)
    );
}

#[test]
fn hosts_wait_in_the_socket_of_a_closed_entrance_until_it_opens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let mut first = TcpStream::connect(address).unwrap();
    let (mut target, mut poller) = (target(listener, None), Poller::new().unwrap());
    let until = Instant::now() + BOUND;
    let accept = |target: &mut Target, poller: &Poller| {
        while target.entrance.callers.len() == 0 {
            target.poll(Time(0), poller);
            assert!(Instant::now() < until, "it is not accepted");
        }
    };
    accept(&mut target, &poller);
    target.close(Time(0), &poller);
    assert_eq!(first.read(&mut [0]).unwrap(), 0);
    let _second = TcpStream::connect(address).unwrap();
    let events = poller.wait(Duration::from_millis(50)).unwrap();
    assert!(events.is_empty());
    target.poll(Time(0), &poller);
    assert_eq!(target.entrance.callers.len(), 0);
    target.open(&poller);
    let events = poller.wait(BOUND).unwrap();
    assert!(!events.is_empty());
    accept(&mut target, &poller);
}

#[test]
fn a_host_that_leaves_is_in_no_earlier_snapshot() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut target = target(listener, None);
    let before = target.roster().past().clone();
    let gone = controller::counters::LaneCounters::default();
    gone.namespaces.of(1).reads.add(3);
    let counted = Counted {
        past: Arc::new(Past::default().with_queue(1, &gone, None)),
        ..Counted::default()
    };
    target.roster_mut().dissociated(ControllerSlot(1), &counted);
    let reads = |past: &Past| past.namespaces.of(1).reads.get();
    assert_eq!((reads(&before), reads(target.roster().past())), (0, 3));
}
