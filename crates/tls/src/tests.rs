//! Both sides against each other, and bytes that are no TLS.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use zeroize::Zeroizing;

use super::*;

const NAME: &[u8] = b"NVMe0R01 nqn.host nqn.subsystem";

fn psk(is_sha384: bool, byte: u8) -> Psk {
    let len = if is_sha384 { 48 } else { 32 };
    Psk {
        key: Zeroizing::new(vec![byte; len]),
        is_sha384,
    }
}

/// A server that knows one name, and this key for it.
fn server(psk: Psk) -> Server {
    let lookup = move |offer: &Offer<'_>| {
        if offer.identity == NAME {
            Found::Psk(psk.clone())
        } else {
            Found::Nothing
        }
    };
    Server::new(Arc::new(lookup)).unwrap()
}

fn sockets() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs)
}

type Ends = (Result<Session, Failed>, Result<Session, Failed>);

/// The handshake of both sides.
fn handshake(server: &Server, client: &Client) -> Ends {
    let (ours, theirs) = sockets();
    let mut ours = Session::accept(server, ours.into()).unwrap();
    let mut theirs = Session::connect(client, theirs.into()).unwrap();
    let mut ended = (None, None);
    for _ in 0..10 {
        for (session, ended) in [(&mut theirs, &mut ended.1), (&mut ours, &mut ended.0)] {
            if ended.is_none() {
                match session.handshake() {
                    Ok(Progress::Done) => *ended = Some(Ok(())),
                    Ok(_) => {}
                    Err(failed) => *ended = Some(Err(failed)),
                }
            }
        }
    }
    let (here, there) = (ended.0.unwrap(), ended.1.unwrap());
    (here.map(|()| ours), there.map(|()| theirs))
}

fn pair(is_sha384: bool) -> (Session, Session) {
    let client = Client::new(NAME, psk(is_sha384, 7)).unwrap();
    let (ours, theirs) = handshake(&server(psk(is_sha384, 7)), &client);
    (ours.unwrap(), theirs.unwrap())
}

fn later(result: std::io::Result<usize>) -> bool {
    result.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn data_arrive_in_order_whatever_the_socket_takes() {
    for is_sha384 in [false, true] {
        let (mut ours, mut theirs) = pair(is_sha384);
        assert_eq!(ours.identity(), NAME);
        let mut bytes = [0; 1000];
        assert!(later(ours.read(&mut bytes)) && later(theirs.read(&mut bytes)));
        let data: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
        let (mut sent, mut came, mut blocked) = (0, Vec::new(), false);
        while came.len() < data.len() {
            match ours.write(&data[sent..]) {
                Ok(len) => {
                    assert!(sent == data.len() || (1..=RECORD).contains(&len));
                    sent += len;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    blocked = true;
                }
            }
            // Less than a record, and slower.
            if blocked || sent == data.len() {
                match theirs.read(&mut bytes) {
                    Ok(len) => came.extend_from_slice(&bytes[..len]),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
                assert!(theirs.pending() < RECORD);
            }
        }
        assert!(blocked && came == data);
        assert_eq!(theirs.pending(), 0);
    }
}

#[test]
fn streams_end_with_an_alert_and_without_one() {
    let mut bytes = [0; 100];
    let (mut ours, mut theirs) = pair(false);
    ours.write(b"last").unwrap();
    ours.close();
    assert_eq!(theirs.read(&mut bytes).unwrap(), 4);
    assert_eq!(theirs.read(&mut bytes).unwrap(), 0);
    let (mut ours, theirs) = pair(false);
    drop(theirs);
    assert_eq!(ours.read(&mut bytes).unwrap(), 0);
    // Nothing can be sent, and no signal ends the process.
    assert!(ours.write(b"x").is_err());
}

#[test]
fn another_key_and_another_name_are_refused() {
    let key = psk(false, 7);
    let (ours, theirs) = handshake(
        &server(key.clone()),
        &Client::new(NAME, psk(false, 8)).unwrap(),
    );
    assert!(matches!(ours, Err(Failed::Key)), "{ours:?}");
    assert!(matches!(theirs, Err(Failed::Protocol(_))), "{theirs:?}");
    let (ours, theirs) = handshake(
        &server(key.clone()),
        &Client::new(b"another", key.clone()).unwrap(),
    );
    assert!(matches!(ours, Err(Failed::Identity)), "{ours:?}");
    assert!(theirs.is_err());
    let lookup = |_: &Offer<'_>| Found::AnotherKey;
    let (ours, theirs) = handshake(
        &Server::new(Arc::new(lookup)).unwrap(),
        &Client::new(NAME, key).unwrap(),
    );
    assert!(matches!(ours, Err(Failed::Key)), "{ours:?}");
    assert!(theirs.is_err());
    // A key for the other hash function is no key for this cipher suite.
    let (ours, theirs) = handshake(
        &server(psk(true, 7)),
        &Client::new(NAME, psk(false, 7)).unwrap(),
    );
    assert!(ours.is_err() && theirs.is_err());
}

/// The bytes of a ClientHello of our own client.
fn hello() -> Vec<u8> {
    let (ours, mut theirs) = sockets();
    let client = Client::new(NAME, psk(false, 7)).unwrap();
    let mut session = Session::connect(&client, ours.into()).unwrap();
    assert_eq!(session.handshake().unwrap(), Progress::WaitsForRead);
    let mut bytes = vec![0; 4096];
    let len = theirs.read(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn a_hello_may_come_in_pieces_and_nothing_is_answered_before_it_is_whole() {
    let hello = hello();
    let (ours, mut theirs) = sockets();
    let mut session = Session::accept(&server(psk(false, 7)), ours.into()).unwrap();
    for byte in &hello {
        assert_eq!(session.handshake().unwrap(), Progress::WaitsForRead);
        assert!(later(theirs.read(&mut [0])));
        theirs.write_all(&[*byte]).unwrap();
    }
    assert_eq!(session.handshake().unwrap(), Progress::WaitsForRead);
    assert!(theirs.read(&mut [0; 100]).unwrap() > 0);
    drop(theirs);
    let ended = session.handshake();
    assert!(matches!(ended, Err(Failed::Closed)), "{ended:?}");
}

#[test]
fn bytes_that_are_no_tls_end_the_handshake() {
    let hello = hello();
    let server = server(psk(false, 7));
    // Whether it has failed, and whether it goes on.
    let try_these = |bytes: &[u8]| {
        let (ours, mut theirs) = sockets();
        let mut session = Session::accept(&server, ours.into()).unwrap();
        theirs.write_all(bytes).unwrap();
        let result = session.handshake();
        let has_failed = matches!(
            result,
            Err(Failed::Protocol(_) | Failed::Identity | Failed::Key)
        );
        assert_eq!(has_failed, result.is_err(), "{result:?}");
        (has_failed, !has_failed && theirs.read(&mut [0; 1]).is_ok())
    };
    for bytes in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0x16; 200],
        &[0x16, 3, 1, 0xff, 0xff],
    ] {
        assert_eq!(try_these(bytes), (true, false));
    }
    assert_eq!(try_these(&hello), (false, true));
    // The binder is of all bytes: a hello that was changed ends, or is not whole.
    for at in 5..hello.len() {
        let mut other = hello.clone();
        other[at] ^= 0x55;
        assert!(!try_these(&other).1, "{at}");
    }
}

#[test]
fn keys_are_not_shown() {
    let client = Client::new(NAME, psk(false, 7)).unwrap();
    let (ours, _) = pair(false);
    let text = format!(
        "{client:?} {:?} {:?} {ours:?}",
        psk(false, 7),
        server(psk(false, 7))
    );
    assert!(text.starts_with("Client Psk Server Session("), "{text}");
}

/// A ClientHello of TLS 1.2 as one record: ECDHE-RSA, no extension.
fn hello_of_tls_1_2() -> Vec<u8> {
    let body = [&[3, 3][..], &[7; 32], &[0], &[0, 2, 0xc0, 0x2f], &[1, 0]].concat();
    let len = u8::try_from(body.len()).unwrap();
    [&[22, 3, 1, 0, len + 4, 1, 0, 0, len][..], &body].concat()
}

#[test]
fn a_client_without_tls_1_3_breaks_the_protocol_and_has_no_other_key() {
    let (ours, mut theirs) = sockets();
    let mut session = Session::accept(&server(psk(false, 7)), ours.into()).unwrap();
    theirs.write_all(&hello_of_tls_1_2()).unwrap();
    let ended = session.handshake();
    assert!(matches!(ended, Err(Failed::Protocol(_))), "{ended:?}");
    // An alert: protocol_version.
    let mut alert = [0; 7];
    assert_eq!(theirs.read(&mut alert).unwrap(), 7);
    assert_eq!((alert[0], alert[6]), (21, 70));
}

#[test]
fn a_search_that_panics_ends_the_handshake_alone() {
    let lookup = |_: &Offer<'_>| panic!("a fault of the test's");
    let (ours, theirs) = handshake(
        &Server::new(Arc::new(lookup)).unwrap(),
        &Client::new(NAME, psk(false, 7)).unwrap(),
    );
    assert!(matches!(ours, Err(Failed::Protocol(_))), "{ours:?}");
    assert!(matches!(theirs, Err(Failed::Protocol(_))), "{theirs:?}");
}

#[test]
fn a_session_keeps_nothing_of_its_handshake() {
    let key = psk(false, 7);
    let lookup: Lookup = Arc::new(move |_: &Offer<'_>| Found::Psk(key.clone()));
    let server = Server::new(lookup.clone()).unwrap();
    let client = Client::new(NAME, psk(false, 7)).unwrap();
    let (ours, _theirs) = handshake(&server, &client);
    let ours = ours.unwrap();
    assert_eq!(Arc::strong_count(&lookup), 2, "the test's, the server's");
    assert_eq!(ours.identity(), NAME);
}

#[test]
fn a_refused_session_has_the_name_that_was_offered() {
    let (ours, theirs) = sockets();
    let lookup = |_: &Offer<'_>| Found::AnotherKey;
    let server = Server::new(Arc::new(lookup)).unwrap();
    let mut ours = Session::accept(&server, ours.into()).unwrap();
    let client = Client::new(NAME, psk(false, 7)).unwrap();
    let mut theirs = Session::connect(&client, theirs.into()).unwrap();
    assert_eq!(theirs.handshake().unwrap(), Progress::WaitsForRead);
    assert!(matches!(ours.handshake(), Err(Failed::Key)));
    assert_eq!(ours.identity(), NAME);
}
