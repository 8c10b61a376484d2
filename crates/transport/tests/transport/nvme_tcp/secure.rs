//! Hosts that come through TLS, and hosts that are to.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use authentication::{TlsIdentity, TlsKey, TlsPsk};
use nvme_spec::Sqe;
use nvme_spec::discovery::WELL_KNOWN_DISCOVERY_NQN;
use nvme_spec::fabrics::FabricsType;
use nvme_spec::opcode::NvmOpcode;
use nvme_tcp::Encoder;
use port::time::Time;
use tls::{Client, Psk, Session};
use transport::nvme_tcp::{
    Access, Allowed, Arrival, End, GeneratedKeys, Greeted, Greeting, Newcomer, Progress,
    TargetConfig, Tls, powers,
};
use transport::secure::handshakes;
use zerocopy::IntoBytes as _;
use zeroize::Zeroizing;

use super::host::{Connect, HOSTNQN, beside, in_capsule, offer, pattern, set_name};
use super::rig::{NSID, Rig, SUBNQN, config};

/// The bytes 0 to 31.
pub(super) const KEY: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
/// The bytes 100 to 147.
const LONG: &str =
    "NVMeTLSkey-1:02:ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoOEhYaHiImKi4yNjo+QkZKTvGwQfg==:";
const OTHER: &str = "nqn.2014-08.org.nvmexpress:uuid:other";
const FREE: &str = "nqn.2014-08.org.nvmexpress:uuid:free";
/// In which a thread answers.
const BOUND: Duration = Duration::from_secs(20);

pub(super) fn key(text: &str) -> TlsKey {
    TlsKey::read(text).unwrap()
}

/// An entrance for two hosts with keys and one without, and a thread for its handshakes.
fn entrance() -> Arc<TargetConfig> {
    let with = |text| Allowed {
        tls: Some(Arc::new(key(text))),
        ..Allowed::default()
    };
    let hosts = BTreeMap::from([
        (HOSTNQN.to_owned(), with(KEY)),
        (OTHER.to_owned(), with(LONG)),
        (FREE.to_owned(), Allowed::default()),
    ]);
    let access = Access::of(hosts, powers().0, GeneratedKeys::default());
    let (handshakes, handshaker) = handshakes().unwrap();
    thread::spawn(move || handshaker.run());
    let config = config();
    let tls = Tls::new(&access, SUBNQN, &config.discovery_nqn, handshakes).unwrap();
    Arc::new(TargetConfig {
        access,
        tls: Some(tls),
        ..config
    })
}

pub(super) fn client(identity: &str, psk: &TlsPsk) -> Client {
    let psk = Psk {
        key: Zeroizing::new(psk.bytes().to_vec()),
        is_sha384: psk.is_sha384(),
    };
    Client::new(identity.as_bytes(), psk).unwrap()
}

/// The client of a host with this key.
fn of_host(text: &str, hostnqn: &str, subnqn: &str) -> Client {
    let (identity, psk) = key(text).of(hostnqn, subnqn).unwrap();
    client(&identity, &psk)
}

fn greeting(config: &Arc<TargetConfig>) -> (Greeting, UnixStream) {
    greeting_from(config, "192.0.2.1:1", Time(0))
}

fn greeting_from(config: &Arc<TargetConfig>, from: &str, now: Time) -> (Greeting, UnixStream) {
    let (theirs, ours) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let from = from.parse().unwrap();
    let greeting = Greeting::new(ours.into(), from, config.clone(), now).unwrap();
    (greeting, theirs)
}

/// Polls once, and goes on where it can.
fn step(mut greeting: Greeting, now: Time) -> Result<Greeted, End> {
    match greeting.poll(now)? {
        Some(next) => greeting.go_on(next, now),
        None => Ok(Greeted::Greeting(greeting)),
    }
}

/// Polls until it is a newcomer or ends; the client goes on meanwhile.
fn greet(greeting: Greeting, client: Option<&mut Session>) -> Result<Newcomer, End> {
    greet_at(greeting, client, Time(1))
}

fn greet_at(
    mut greeting: Greeting,
    mut client: Option<&mut Session>,
    now: Time,
) -> Result<Newcomer, End> {
    let until = Instant::now() + BOUND;
    while Instant::now() < until {
        if let Some(client) = &mut client {
            // The target's own statement counts.
            let _ = client.handshake();
        }
        greeting = match step(greeting, now)? {
            Greeted::Newcomer(newcomer) => return Ok(*newcomer),
            Greeted::Greeting(greeting) => greeting,
        };
        thread::sleep(Duration::from_millis(1));
    }
    panic!("nothing came of it");
}

/// A connection through TLS.
pub(super) fn secured(
    config: &Arc<TargetConfig>,
    client: &Client,
) -> Result<(Newcomer, Session), End> {
    secured_at(config, client, Time(1))
}

/// The same, at a time.
pub(super) fn secured_at(
    config: &Arc<TargetConfig>,
    client: &Client,
    now: Time,
) -> Result<(Newcomer, Session), End> {
    let (greeting, socket) = greeting_from(config, "192.0.2.1:1", now);
    let mut client = Session::connect(client, socket.into()).unwrap();
    let newcomer = greet_at(greeting, Some(&mut client), now)?;
    Ok((newcomer, client))
}

/// Bytes of a host up to its Connect command.
fn opening(hostnqn: &str, subnqn: &str) -> (Vec<u8>, Vec<u8>) {
    opening_of(Connect::new(0, 32, 0xffff), hostnqn, subnqn)
}

fn opening_of(mut connect: Connect, hostnqn: &str, subnqn: &str) -> (Vec<u8>, Vec<u8>) {
    let offer = offer(false, false);
    let (_, agreement) = offer.answer(&offer.request()).unwrap();
    set_name(&mut connect.data.hostnqn, hostnqn);
    set_name(&mut connect.data.subnqn, subnqn);
    let mut capsule = Encoder::new(agreement).capsule(&connect.sqe, 1024).to_vec();
    capsule.extend_from_slice(connect.data.as_bytes());
    let request = nvme_tcp::Head::from(&offer.request()).to_vec();
    (request, capsule)
}

/// Connects through TLS with the key of one host as another: what it is refused for.
pub(super) fn connect(
    config: &Arc<TargetConfig>,
    client: &Client,
    [hostnqn, subnqn]: [&str; 2],
) -> Result<Arrival, Option<&'static str>> {
    connected(config, client, [hostnqn, subnqn]).map(|(arrival, _)| arrival)
}

/// The same, with the host's end of the connection.
pub(super) fn connected(
    config: &Arc<TargetConfig>,
    client: &Client,
    [hostnqn, subnqn]: [&str; 2],
) -> Result<(Arrival, Session), Option<&'static str>> {
    let (mut newcomer, mut session) = secured(config, client).unwrap();
    let (request, capsule) = opening(hostnqn, subnqn);
    assert_eq!(session.write(&request).unwrap(), request.len());
    assert!(matches!(newcomer.poll(Time(1)), Progress::Waits));
    let mut answer = [0; 200];
    assert_eq!(session.read(&mut answer).unwrap(), 128);
    assert_eq!(session.write(&capsule).unwrap(), capsule.len());
    assert!(matches!(newcomer.poll(Time(1)), Progress::Connects));
    match newcomer.arrive(Time(1)) {
        Ok(arrival) => Ok((arrival, session)),
        Err(mut farewell) => {
            assert!(!farewell.poll(Time(1)));
            // The refusal, and then the end of the stream.
            assert_eq!(session.read(&mut answer).unwrap(), 24);
            assert_eq!(session.read(&mut answer).unwrap(), 0);
            Err(farewell.refused())
        }
    }
}

#[test]
fn a_host_connects_with_its_key_in_each_form() {
    let config = entrance();
    for (text, nqn) in [(KEY, HOSTNQN), (LONG, OTHER)] {
        let client = of_host(text, nqn, SUBNQN);
        let arrival = connect(&config, &client, [nqn, SUBNQN]).unwrap();
        assert_eq!(arrival.host().nqn, nqn);
    }
    // Version 0, by RFC 8446 and as libnvme before 1.16 derives the key.
    let name = format!("NVMe0R01 {HOSTNQN} {SUBNQN}");
    let psks = key(KEY).psks(&TlsIdentity::parse(name.as_bytes()).unwrap());
    assert_eq!(psks.len(), 2);
    for psk in &psks {
        assert!(connect(&config, &client(&name, psk), [HOSTNQN, SUBNQN]).is_ok());
    }
    let discovery = WELL_KNOWN_DISCOVERY_NQN;
    let client = of_host(KEY, HOSTNQN, discovery);
    let arrival = connect(&config, &client, [HOSTNQN, discovery]).unwrap();
    assert!(arrival.is_discovery());
}

#[test]
fn a_key_is_for_one_host_and_one_subsystem() {
    let config = entrance();
    let client = of_host(KEY, HOSTNQN, SUBNQN);
    let refused = |names| connect(&config, &client, names).unwrap_err();
    assert_eq!(refused([OTHER, SUBNQN]), Some("tls-host"));
    assert_eq!(refused([FREE, SUBNQN]), Some("tls-host"));
    assert_eq!(refused([HOSTNQN, "nqn.2026-11.t:s1"]), Some("parameters"));
    let other = [HOSTNQN, WELL_KNOWN_DISCOVERY_NQN];
    assert_eq!(refused(other), Some("parameters"));
    let other = [FREE, WELL_KNOWN_DISCOVERY_NQN];
    assert_eq!(refused(other), Some("tls-host"));
}

#[test]
fn a_host_that_has_a_key_does_not_connect_without_tls() {
    let config = entrance();
    let arrive = |hostnqn, subnqn| {
        let (greeting, mut socket) = greeting(&config);
        let (request, capsule) = opening(hostnqn, subnqn);
        socket.write_all(&request).unwrap();
        let mut newcomer = greet(greeting, None).unwrap();
        assert!(matches!(newcomer.poll(Time(1)), Progress::Waits));
        socket.write_all(&capsule).unwrap();
        assert!(matches!(newcomer.poll(Time(1)), Progress::Connects));
        newcomer
            .arrive(Time(1))
            .map_err(|farewell| farewell.refused())
    };
    assert_eq!(arrive(HOSTNQN, SUBNQN).unwrap_err(), Some("tls-required"));
    assert_eq!(arrive("nqn.none", SUBNQN).unwrap_err(), Some("host"));
    assert!(arrive(FREE, SUBNQN).is_ok());
    assert!(arrive(HOSTNQN, WELL_KNOWN_DISCOVERY_NQN).is_ok());
}

#[test]
fn other_keys_and_names_are_refused_and_counted() {
    let config = entrance();
    let end = |client: &Client| secured(&config, client).unwrap_err().name();
    let other = KEY.replace("NVMeTLSkey-1:01", "NVMeTLSkey-1:00");
    assert_eq!(end(&of_host(&other, HOSTNQN, SUBNQN)), "tls-key");
    let (_, wrong) = key(&other).of(HOSTNQN, SUBNQN).unwrap();
    let (name, _) = key(KEY).of(HOSTNQN, SUBNQN).unwrap();
    assert_eq!(end(&client(&name, &wrong)), "tls-key");
    assert_eq!(end(&of_host(KEY, "nqn.none", SUBNQN)), "tls-identity");
    assert_eq!(end(&of_host(KEY, FREE, SUBNQN)), "tls-identity");
    assert_eq!(end(&of_host(KEY, HOSTNQN, "nqn.other")), "tls-identity");
    assert_eq!(end(&client("none", &wrong)), "tls-identity");
    let (garbage, mut socket) = greeting(&config);
    socket.write_all(&[22; 5 + 0x1616]).unwrap();
    assert_eq!(greet(garbage, None).unwrap_err().name(), "tls-protocol");
    // A record that is too long, one with a part of a message, and another message.
    for head in [
        [22, 3, 1, 0x40, 1, 1, 0, 0x3f, 0xfd],
        [22, 3, 1, 0, 4, 1, 0, 0, 1],
        [22, 3, 1, 0, 4, 2, 0, 0, 0],
    ] {
        let (no_hello, mut socket) = greeting(&config);
        socket.write_all(&head).unwrap();
        assert_eq!(greet(no_hello, None).unwrap_err().name(), "tls-protocol");
    }
    let (closes, socket) = greeting(&config);
    drop(socket);
    assert_eq!(greet(closes, None).unwrap_err().name(), "closed");
}

/// Time after which one that waits looks again.
const RETRY: Time = Time(200_000_000);

/// A connection that has sent a ClientHello, and goes on no further.
fn hello(config: &Arc<TargetConfig>, from: &str) -> (Greeting, Session) {
    let (greeting, socket) = greeting_from(config, from, Time(0));
    let client = of_host(KEY, HOSTNQN, SUBNQN);
    let mut client = Session::connect(&client, socket.into()).unwrap();
    let sent = client.handshake().unwrap();
    assert_eq!(sent, tls::Progress::WaitsForRead);
    match step(greeting, Time(1)) {
        Ok(Greeted::Greeting(greeting)) => (greeting, client),
        other => panic!("{other:?}"),
    }
}

#[test]
fn handshakes_of_one_address_are_few_and_have_a_time_limit() {
    let config = entrance();
    let here = "192.0.2.1:1";
    let mut all: Vec<_> = (0..4).map(|_| hello(&config, here)).collect();
    assert!(all.iter().all(|(greeting, _)| greeting.is_shaking()));
    // The fifth waits, and has a place when another one has none.
    let (mut waiting, _client) = hello(&config, here);
    assert!(!waiting.wants_read() && waiting.deadline() < RETRY);
    assert!(waiting.poll(RETRY).unwrap().is_none());
    // Handshakes with others have places. One machine may have many addresses of IPv6.
    let six = "[2001:db8::1]:1";
    let others: Vec<_> = (0..4).map(|_| hello(&config, six)).collect();
    assert!(others.iter().all(|(greeting, _)| greeting.is_shaking()));
    assert!(!hello(&config, "[2001:db8::ffff:1]:1").0.is_shaking());
    assert!(hello(&config, "[2001:db8:0:1::1]:1").0.is_shaking());
    let limit = Time(3_000_000_001);
    let (mut first, _stays) = all.remove(0);
    assert_eq!(first.deadline(), limit);
    assert!(matches!(first.poll(limit), Err(End::Silent)));
    drop(first);
    let until = Instant::now() + BOUND;
    while !waiting.is_shaking() {
        assert!(Instant::now() < until, "no place");
        thread::sleep(Duration::from_millis(1));
        let Ok(Greeted::Greeting(next)) = step(waiting, RETRY) else {
            panic!("it is not over");
        };
        waiting = next;
    }
    // It has waited, and has as much time as the others.
    assert_eq!(waiting.deadline(), RETRY + limit.since(Time(1)));
}

#[test]
fn one_that_has_not_sent_a_whole_hello_has_no_place() {
    let config = entrance();
    let (second, limit) = (1_000_000_000, Time(10_000_000_000));
    // As many as an address has places, with all but the last byte.
    let mut parts: Vec<_> = (0..4).map(|_| greeting(&config)).collect();
    for (part, socket) in &mut parts {
        socket.write_all(&[22]).unwrap();
        assert!(part.poll(Time(1)).unwrap().is_none());
        // A record of 256 bytes, and a ClientHello of 252 behind the header of its message.
        socket.write_all(&[3, 1, 1, 0, 1, 0, 0, 252]).unwrap();
        socket.write_all(&[1; 251]).unwrap();
        assert!(part.poll(RETRY).unwrap().is_none());
        assert!(!part.is_shaking() && !part.wants_read());
        assert!(part.deadline() < Time(second));
    }
    let client = of_host(KEY, HOSTNQN, SUBNQN);
    assert!(secured(&config, &client).is_ok());
    let (mut part, mut socket) = parts.remove(0);
    socket.write_all(&[1]).unwrap();
    assert!(part.poll(Time(second)).unwrap().is_some());
    for (part, _) in &mut parts {
        assert!(matches!(part.poll(limit), Err(End::Silent)));
    }
    let (mut silent, _socket) = greeting(&config);
    assert_eq!(silent.deadline(), limit);
    assert!(matches!(silent.poll(limit), Err(End::Silent)));
    // One that ends while it waits is found.
    let (mut ends, mut socket) = greeting(&config);
    socket.write_all(&[22, 3]).unwrap();
    assert!(ends.poll(Time(1)).unwrap().is_none());
    drop(socket);
    let polled = ends.poll(RETRY);
    assert!(
        matches!(polled, Ok(None)),
        "its bytes are there: {polled:?}"
    );
}

#[test]
fn an_icreq_may_come_in_two_records_and_more_than_a_record_at_once() {
    let config = entrance();
    let client = of_host(KEY, HOSTNQN, SUBNQN);
    let (mut newcomer, mut session) = secured(&config, &client).unwrap();
    let (request, capsule) = opening(HOSTNQN, SUBNQN);
    session.write(&request[..5]).unwrap();
    assert!(matches!(newcomer.poll(Time(1)), Progress::Waits));
    let rest = [&request[5..], &capsule].concat();
    session.write(&rest).unwrap();
    assert!(matches!(newcomer.poll(Time(1)), Progress::Connects));
    // The target has answered, and reads no more.
    let mut answer = [0; 200];
    assert_eq!(session.read(&mut answer).unwrap(), 128);
    let later = session.read(&mut answer).unwrap_err();
    assert_eq!(later.kind(), ErrorKind::WouldBlock);
}

#[test]
fn a_host_with_a_key_has_time_for_the_handshakes_of_its_other_connections() {
    let config = entrance();
    let client = of_host(KEY, HOSTNQN, SUBNQN);
    let (mut newcomer, mut session) = secured(&config, &client).unwrap();
    assert!(!newcomer.is_silent(), "it has proved a key");
    let second = 1_000_000_000;
    assert_eq!(newcomer.deadline(), Time(1 + 5 * second), "for its ICReq");
    let (request, capsule) = opening(HOSTNQN, SUBNQN);
    session.write(&request).unwrap();
    let agreed = Time(2 * second);
    assert!(matches!(newcomer.poll(agreed), Progress::Waits));
    let limit = Time(62 * second);
    assert_eq!(newcomer.deadline(), limit);
    assert!(matches!(newcomer.poll(Time(limit.0 - 1)), Progress::Waits));
    session.write(&capsule).unwrap();
    assert!(matches!(
        newcomer.poll(Time(limit.0 - 1)),
        Progress::Connects
    ));
    let (mut newcomer, _session) = secured(&config, &client).unwrap();
    let ended = newcomer.poll(Time(1 + 5 * second));
    assert!(matches!(ended, Progress::Ended(End::Silent)), "{ended:?}");
    let (mut newcomer, mut session) = secured(&config, &client).unwrap();
    session.write(&request).unwrap();
    assert!(matches!(newcomer.poll(agreed), Progress::Waits));
    let ended = newcomer.poll(limit);
    assert!(matches!(ended, Progress::Ended(End::Silent)), "{ended:?}");
}

#[test]
fn a_key_that_was_removed_is_none_after_its_handshake() {
    let config = entrance();
    let client = of_host(KEY, HOSTNQN, SUBNQN);
    let hosts = BTreeMap::from([(HOSTNQN.to_owned(), Allowed::default())]);
    let config = Arc::new(TargetConfig {
        access: Access::of(hosts, powers().0, GeneratedKeys::default()),
        ..TargetConfig::clone(&config)
    });
    let refused = connect(&config, &client, [HOSTNQN, SUBNQN]).unwrap_err();
    assert_eq!(refused, Some("tls-host"));
    // The discovery subsystem answers every host.
    let discovery = WELL_KNOWN_DISCOVERY_NQN;
    let client = of_host(KEY, HOSTNQN, discovery);
    assert!(connect(&config, &client, [HOSTNQN, discovery]).is_ok());
}

#[test]
fn each_queue_of_a_host_comes_through_tls_with_its_own_key() {
    let config = entrance();
    let connect = Connect::new(1, 32, 0x100);
    let (request, capsule) = opening_of(connect, HOSTNQN, SUBNQN);
    // In clear.
    let (greeting, mut socket) = greeting(&config);
    socket.write_all(&request).unwrap();
    let mut newcomer = greet(greeting, None).unwrap();
    assert!(matches!(newcomer.poll(Time(1)), Progress::Waits));
    socket.write_all(&capsule).unwrap();
    assert!(matches!(newcomer.poll(Time(1)), Progress::Connects));
    let farewell = newcomer.arrive(Time(1)).unwrap_err();
    assert_eq!(farewell.refused(), Some("tls-required"));
    assert_eq!(farewell.host(), Some(HOSTNQN));
    // With another host's key, and with its own.
    let arrive = |client: &Client| {
        let (mut newcomer, mut session) = secured(&config, client).unwrap();
        session.write(&[&request[..], &capsule].concat()).unwrap();
        assert!(matches!(newcomer.poll(Time(1)), Progress::Connects));
        newcomer.arrive(Time(1)).map_err(Box::new)
    };
    let farewell = arrive(&of_host(LONG, OTHER, SUBNQN)).unwrap_err();
    assert_eq!(farewell.refused(), Some("tls-host"));
    let arrival = arrive(&of_host(KEY, HOSTNQN, SUBNQN)).unwrap();
    assert_eq!((arrival.qid(), arrival.is_secured()), (1, true));
}

/// Connects a queue by one record of TLS with all of these, and the bytes that come back.
fn at_once(rig: &mut Rig, config: &Arc<TargetConfig>, connect: Connect, more: &[u8]) -> Vec<u8> {
    let client = of_host(KEY, HOSTNQN, SUBNQN);
    let now = rig.now();
    let (mut newcomer, mut session) = secured_at(config, &client, now).unwrap();
    let (request, capsule) = opening_of(connect, HOSTNQN, SUBNQN);
    let bytes = [&request[..], &capsule, more].concat();
    assert!(bytes.len() <= tls::RECORD);
    assert_eq!(session.write(&bytes).unwrap(), bytes.len());
    assert!(matches!(newcomer.poll(now), Progress::Connects));
    rig.take(newcomer.arrive(now).unwrap());
    rig.settle();
    let mut came = Vec::new();
    let mut bytes = vec![0; tls::RECORD];
    loop {
        match session.read(&mut bytes) {
            Ok(len) => came.extend_from_slice(&bytes[..len]),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                // Its connection stays there.
                std::mem::forget(session);
                return came;
            }
        }
    }
}

#[test]
fn one_record_may_have_all_that_a_host_sends() {
    let config = entrance();
    let mut rig = Rig::with(TargetConfig::clone(&config));
    let offer = offer(false, false);
    let (_, agreement) = offer.answer(&offer.request()).unwrap();
    let encoder = Encoder::new(agreement);
    // ICReq, Connect, and Property Set of CC, which enables the controller.
    let mut enable = Sqe::fabrics(FabricsType::PROPERTY_SET).with_property(0x46_0061);
    enable.cdw11 = 0x14;
    beside(&mut enable, 0);
    let connect = Connect::new(0, 32, 0xffff);
    let came = at_once(&mut rig, &config, connect, &encoder.capsule(&enable, 0));
    assert_eq!(came.len(), 128 + 2 * 24);
    // ICReq, Connect, a write with its data in the capsule, and a read of them: more than the room
    // of one that has not connected.
    let data = pattern(4096, 3);
    let command = |opcode: NvmOpcode, cid| Sqe {
        opcode: opcode.0,
        cid,
        nsid: NSID,
        cdw12: 7,
        ..Sqe::default()
    };
    let mut write = command(NvmOpcode::WRITE, 1);
    in_capsule(&mut write, 4096);
    let mut read = command(NvmOpcode::READ, 2);
    beside(&mut read, 4096);
    let commands = [
        &encoder.capsule(&write, 4096)[..],
        &data,
        &encoder.capsule(&read, 0),
    ]
    .concat();
    let connect = Connect::new(1, 32, rig.association.as_ref().unwrap().cntlid());
    let came = at_once(&mut rig, &config, connect, &commands);
    // ICResp, the responses to Connect and to the write, the data and the response to the read.
    let statuses = [128, 152, 200 + 4096].map(|at| {
        let status = &came[at + 22..at + 24];
        (came[at], u16::from_le_bytes([status[0], status[1]]) >> 1)
    });
    assert_eq!(statuses, [(5, 0); 3]);
    assert_eq!((came[176], &came[200..200 + 4096]), (7, &data[..]));
    assert_eq!(came.len(), 224 + 4096);
    assert!(rig.association.is_some() && rig.ends.is_empty());
}
