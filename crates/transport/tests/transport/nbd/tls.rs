//! Clients that come through TLS, and those that do otherwise.

use std::io::{Read as _, Write as _};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nbd::Command;
use tls::{Client, Progress, Psk, Session};
use transport::nbd::{Tls, Users};
use transport::secure::{Handshaker, handshakes};
use zeroize::Zeroizing;

use super::rig::{LEN, Rig, Style};
use super::{NONE, STYLES, random_program};

/// Key of the user alice, as psktool prints one.
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

const TLS_REQUIRED: [u8; 4] = [0x80, 0, 0, 5];
const ACK: [u8; 4] = [0, 0, 0, 1];
const STARTTLS: u32 = 5;
const GO: u32 = 7;

/// TLS with a key, and who does its handshakes.
fn keyed() -> (Arc<Tls>, Handshaker) {
    let (handshakes, handshaker) = handshakes().unwrap();
    let users = Users::read(&format!("alice:{KEY}\n")).unwrap();
    let tls = Tls::new(None, Some(users), handshakes).unwrap();
    (Arc::new(tls), handshaker)
}

/// The same, with a thread for its handshakes.
fn served() -> Arc<Tls> {
    let (tls, handshaker) = keyed();
    thread::spawn(move || handshaker.run());
    tls
}

fn client(name: &str, first: u8) -> Client {
    let mut key: Vec<u8> = (0..32).collect();
    key[0] = first;
    let psk = Psk {
        key: Zeroizing::new(key),
        is_sha384: false,
    };
    Client::new(name.as_bytes(), psk).unwrap()
}

/// A connection whose STARTTLS is acknowledged.
fn started(tls: Arc<Tls>, style: Style) -> Rig {
    let mut rig = Rig::connected(style, false, Some(tls));
    rig.greet();
    rig.option(STARTTLS, &[]);
    rig.settle();
    assert_eq!(rig.take(20)[12..16], ACK);
    assert!(rig.came.is_empty() && rig.ends.is_empty());
    rig
}

/// Its handshake: whether it is complete on the client's side.
fn shake(rig: &mut Rig, client: &Client) -> bool {
    let socket = rig.socket.try_clone().unwrap();
    let mut session = Session::connect(client, socket.into()).unwrap();
    // Its socket is not read otherwise meanwhile.
    rig.reads = false;
    let mut is_done = false;
    for _ in 0..10_000 {
        if !is_done {
            is_done = matches!(session.handshake(), Ok(Progress::Done));
        }
        rig.turn();
        let is_there = rig.newcomer.as_ref().is_none_or(|it| it.is_secured());
        if is_done && is_there || !rig.ends.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        // One that waits for its ClientHello looks again.
        rig.advance(Duration::from_millis(1));
    }
    rig.reads = true;
    rig.session = is_done.then_some(session);
    is_done && rig.ends.is_empty()
}

fn secured(shift: u8, style: Style) -> Rig {
    let mut rig = started(served(), style);
    assert!(shake(&mut rig, &client("alice", 0)), "{:?}", rig.ends);
    rig.choose(&format!("b{}", 1 << shift));
    rig
}

#[test]
fn bytes_through_tls_are_those_of_a_plain_array() {
    for (style, seed) in STYLES.into_iter().zip(11..) {
        random_program(secured(9, style), 9, seed);
    }
}

#[test]
fn long_requests_go_through_tls_in_records() {
    let mut rig = secured(12, Style::Simple);
    let data: Vec<u8> = (0..5_000_001u32).map(|at| (at % 249) as u8).collect();
    let range = (4097, data.len() as u64);
    let reply = rig.asked(Command::WRITE, range, &data);
    assert_eq!(reply.error, 0);
    let reply = rig.asked(Command::READ, range, &[]);
    assert!(reply.error == 0 && reply.data[0].1 == data);
    assert_eq!(rig.asked(Command::READ, (LEN, 1), &[]).error, 22);
    // The client leaves, and sees an end that nothing on the way can make.
    rig.ask(Command::DISC, NONE, 1, (0, 0), &[]);
    rig.settle();
    assert_eq!(rig.ends, ["closed"]);
    let session = rig.session.as_mut().unwrap();
    assert_eq!(session.read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn a_client_that_reads_late_gets_all_through_tls() {
    let mut rig = secured(9, Style::Simple);
    rig.reads = false;
    for cookie in 0..200 {
        rig.ask(Command::READ, NONE, cookie, (cookie * 4096, 65536), &[]);
    }
    for _ in 0..2000 {
        rig.turn();
    }
    rig.reads = true;
    let mut came = 0;
    for _ in 0..100_000 {
        rig.turn();
        while let Some(reply) = rig.reply(|_| 65536) {
            assert_eq!((reply.error, reply.data[0].1.len()), (0, 65536));
            came += 1;
        }
        if came == 200 {
            return;
        }
    }
    panic!("{came} replies, {:?}", rig.ends);
}

#[test]
fn nothing_is_served_in_clear_where_tls_is_required() {
    let go = [&[0, 0, 0, 4][..], b"b512", &[0, 0]].concat();
    let mut rig = Rig::connected(Style::Simple, false, Some(served()));
    rig.greet();
    // LIST, INFO, GO, STRUCTURED_REPLY, LIST_META_CONTEXT, EXTENDED_HEADERS, and one that is none.
    for (option, data) in [
        (3, &[][..]),
        (6, &go),
        (GO, &go),
        (8, &[]),
        (9, &go),
        (11, &[]),
        (99, &[]),
    ] {
        rig.option(option, data);
        rig.settle();
        let reply = rig.take(20);
        assert_eq!(reply[8..12], option.to_be_bytes());
        assert_eq!(reply[12..16], TLS_REQUIRED, "{option}");
        rig.came.clear();
    }
    assert!(rig.ends.is_empty() && rig.client.is_none());
    // EXPORT_NAME has no reply with an error.
    rig.option(1, b"b512");
    rig.settle();
    assert_eq!((&rig.ends[..], rig.came.len()), (&["export-name"][..], 0));
}

#[test]
fn bytes_in_clear_behind_starttls_end_the_connection() {
    let go = [&[0, 0, 0, 4][..], b"b512", &[0, 0]].concat();
    // Together with it, and behind its reply.
    let mut rig = Rig::connected(Style::Simple, false, Some(served()));
    rig.greet();
    rig.option(STARTTLS, &[]);
    rig.option(GO, &go);
    rig.settle();
    assert_eq!(rig.ends, ["clear-bytes"]);
    assert!(rig.client.is_none() && rig.came.is_empty());
    let mut rig = started(served(), Style::Simple);
    rig.option(GO, &go);
    rig.settle();
    assert_eq!(rig.ends, ["clear-bytes"]);
    assert!(rig.client.is_none() && rig.came.is_empty());
}

#[test]
fn other_keys_and_names_are_refused() {
    for (name, first, end) in [("alice", 1, "tls-key"), ("bob", 0, "tls-identity")] {
        let mut rig = started(served(), Style::Simple);
        assert!(!shake(&mut rig, &client(name, first)));
        assert_eq!(rig.ends, [end]);
        assert!(rig.client.is_none());
    }
}

/// The bytes of a ClientHello.
fn hello() -> Vec<u8> {
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let mut session = Session::connect(&client("alice", 0), ours.into()).unwrap();
    let _ = session.handshake().unwrap();
    let mut bytes = vec![0; 4096];
    let len = theirs.read(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn one_that_stalls_in_a_handshake_ends() {
    let hello = hello();
    // It sends nothing, a part, or all of a ClientHello, and is silent then.
    for (len, at_ms) in [(0, 10_000), (7, 10_000), (hello.len(), 3_000)] {
        let mut rig = started(served(), Style::Simple);
        rig.reads = false;
        rig.socket.write_all(&hello[..len]).unwrap();
        rig.turn();
        let begun = rig.now();
        let bound = begun + at_ms * 1_000_000;
        while rig.ends.is_empty() {
            assert!(rig.now() < bound + 200_000_000, "{len}: no end");
            let deadline = rig.newcomer.as_ref().unwrap().deadline();
            assert!(deadline <= bound, "{len}");
            rig.advance(Duration::from_millis(50));
            rig.turn();
        }
        assert_eq!(rig.ends, ["silent"], "{len}");
        assert!(
            rig.now().since(begun) + 100_000_000 >= at_ms * 1_000_000,
            "{len}"
        );
    }
}

#[test]
fn handshakes_of_one_user_are_few() {
    // Nothing does them.
    let (tls, handshaker) = keyed();
    let hello = hello();
    let mut rigs: Vec<Rig> = (0..5)
        .map(|_| started(tls.clone(), Style::Simple))
        .collect();
    for rig in &mut rigs {
        rig.socket.write_all(&hello).unwrap();
        rig.turn();
    }
    let waits = |rig: &Rig| !rig.newcomer.as_ref().unwrap().wants_read();
    let waiting: Vec<bool> = rigs.iter().map(waits).collect();
    assert_eq!(waiting, [false, false, false, false, true]);
    // The thread finds that one of them has left, whose place the last one gets.
    drop(rigs.remove(0));
    thread::spawn(move || handshaker.run());
    let last = rigs.last_mut().unwrap();
    for _ in 0..1000 {
        last.advance(Duration::from_millis(1));
        last.turn();
        if !waits(last) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("it has no place");
}
