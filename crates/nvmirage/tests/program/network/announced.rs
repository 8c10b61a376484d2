//! Discovery services in multicast DNS, as another program finds them: packets that the test writes
//! and reads itself (RFC 1035, 4; RFC 6762; RFC 6763; TP 8009).

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, ipproto, socket, sockopt};

use super::{DISK, Port, serve};
use crate::world::{BOUND, World};

const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const SERVICE: &str = "_nvme-disc._tcp.local";
/// Types of records: A, PTR, TXT and SRV.
const A: u16 = 1;
const PTR: u16 = 12;
const TXT: u16 = 16;
const SRV: u16 = 33;

/// A resource record: name, type, time to live and data.
#[derive(Debug)]
struct Record {
    name: String,
    kind: u16,
    ttl: u32,
    data: Vec<u8>,
    /// A name in the data, of PTR and SRV.
    target: String,
}

fn word(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

/// The name at a place, and the place behind it.
fn name(packet: &[u8], mut at: usize) -> (String, usize) {
    let (mut labels, mut end) = (Vec::new(), None);
    loop {
        match packet[at] {
            0 => return (labels.join("."), end.unwrap_or(at + 1)),
            0xc0.. => {
                end = end.or(Some(at + 2));
                at = usize::from(word(packet, at) & 0x3fff);
            }
            len => {
                let label = &packet[at + 1..at + 1 + usize::from(len)];
                labels.push(String::from_utf8_lossy(label).into_owned());
                at += 1 + label.len();
            }
        }
    }
}

/// The records of a packet, behind its questions.
fn records(packet: &[u8]) -> Vec<Record> {
    let mut at = 12;
    for _ in 0..word(packet, 4) {
        at = name(packet, at).1 + 4;
    }
    let count = [6, 8, 10].map(|at| usize::from(word(packet, at)));
    let next = |_| {
        let (owner, behind) = name(packet, at);
        let kind = word(packet, behind);
        let (upper, lower) = (word(packet, behind + 4), word(packet, behind + 6));
        let data = behind + 10;
        at = data + usize::from(word(packet, behind + 8));
        let target = match kind {
            PTR => name(packet, data).0,
            SRV => name(packet, data + 6).0,
            _ => String::new(),
        };
        Record {
            name: owner,
            kind,
            ttl: u32::from(upper) << 16 | u32::from(lower),
            data: packet[data..at].to_vec(),
            target,
        }
    };
    (0..count.iter().sum()).map(next).collect()
}

/// All that comes within a time.
fn received(socket: &UdpSocket, time: Duration) -> Vec<Record> {
    let (end, mut all) = (Instant::now() + time, Vec::new());
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        let mut packet = [0; 9000];
        socket
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))
            .unwrap();
        if let Ok(len) = socket.recv(&mut packet) {
            all.extend(records(&packet[..len]));
        }
    }
    all
}

/// What the network answers to a question for the service, over the loopback device.
fn asked() -> Vec<Record> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    sockopt::set_ip_multicast_if(&socket, &Ipv4Addr::LOCALHOST).unwrap();
    let mut packet = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in SERVICE.split('.') {
        packet.push(label.len() as u8);
        packet.extend_from_slice(label.as_bytes());
    }
    packet.extend_from_slice(&[0, 0, PTR as u8, 0, 1]);
    socket.send_to(&packet, (GROUP, 5353)).unwrap();
    received(&socket, Duration::from_millis(300))
}

/// A socket that gets what is sent to all.
fn listener() -> UdpSocket {
    let bound = socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::UDP)).unwrap();
    sockopt::set_socket_reuseaddr(&bound, true).unwrap();
    sockopt::set_socket_reuseport(&bound, true).unwrap();
    bind(&bound, &SocketAddr::from(([0, 0, 0, 0], 5353))).unwrap();
    sockopt::set_ip_add_membership(&bound, &GROUP, &Ipv4Addr::LOCALHOST).unwrap();
    bound.into()
}

/// The name of the instance at the port, among records.
fn instance(records: &[Record], port: &Port) -> Option<String> {
    let is_it = |record: &&Record| {
        // priority, weight, port
        record.kind == SRV && word(&record.data, 4) == port.number && record.ttl > 0
    };
    records.iter().find(is_it).map(|record| record.name.clone())
}

/// What is announced for the port, once it is.
fn found(port: &Port) -> (String, Vec<Record>) {
    let deadline = Instant::now() + BOUND;
    loop {
        let records = asked();
        if let Some(instance) = instance(&records, port) {
            return (instance, records);
        }
        assert!(
            Instant::now() < deadline,
            "it is not announced: {records:?}"
        );
    }
}

/// Waits for a farewell to all: a record that is valid for no longer.
fn is_gone(listener: &UdpSocket, instance: &str) {
    let deadline = Instant::now() + BOUND;
    let is_it =
        |record: &Record| record.kind == PTR && record.ttl == 0 && record.target == instance;
    while !received(listener, Duration::from_millis(100))
        .iter()
        .any(is_it)
    {
        assert!(Instant::now() < deadline, "no farewell of {instance}");
    }
}

#[test]
fn a_discovery_service_is_announced_while_the_operator_wants_it() {
    let world = World::new();
    let port = Port::new();
    let config = format!("{DISK}{}", port.controller("mdns = true\n"));
    let listener = listener();
    let server = serve(&world, &config, &[]);
    let set = |change: &str| {
        world.ok(&world.steer(&["set", "controller", "store", change]));
    };
    let (instance_name, records) = found(&port);
    assert!(instance_name.starts_with("store-"), "{instance_name}");
    assert!(instance_name.ends_with(SERVICE), "{instance_name}");
    let of = |owner: &str, kind: u16| {
        let mut all = records.iter();
        all.find(|record| record.kind == kind && record.name == owner)
            .unwrap_or_else(|| panic!("{kind} of {owner}: {records:?}"))
    };
    let listed = records
        .iter()
        .filter(|record| record.kind == PTR && record.name == SERVICE);
    assert!(listed.clone().any(|record| record.target == instance_name));
    let host = &of(&instance_name, SRV).target;
    assert_eq!(of(host, A).data, [127, 0, 0, 1]);
    let mut text = &of(&instance_name, TXT).data[..];
    let mut texts = Vec::new();
    while let Some((len, rest)) = text.split_first() {
        let (one, rest) = rest.split_at(usize::from(*len));
        texts.push(String::from_utf8(one.to_vec()).unwrap());
        text = rest;
    }
    texts.sort();
    let page = super::raw::Discovering::connect(&port, "nqn.2026-11.test:host").page(2 << 10);
    let subnqn = String::from_utf8(page[1024 + 256..1024 + 512].to_vec()).unwrap();
    let subnqn = subnqn.trim_end_matches('\0');
    assert_eq!(texts, [format!("nqn={subnqn}"), "p=tcp".to_owned()]);

    set("mdns=false");
    is_gone(&listener, &instance_name);
    assert_eq!(instance(&asked(), &port), None);
    set("mdns=true");
    assert_eq!(found(&port).0, instance_name, "the name stays");
    server.stop();
    is_gone(&listener, &instance_name);
    assert_eq!(instance(&asked(), &port), None);
}
