//! Connections that have chosen no export.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use port::namespace::Namespace;
use port::{ChannelId, MediumTraits};
use transport::nbd::offer;

use super::*;
use crate::hosted::entrance::MAX_CONNECTIONS;
use crate::hosted::target::tests::template;

const BOUND: Duration = Duration::from_secs(10);
/// Time in which an export must be chosen.
const CHOOSE: Time = Time(10_000_000_000);
/// The server's greeting: its magic numbers, fixed newstyle and no zeroes.
const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";

fn exports(listener: NbdListener) -> Exports {
    let listening = NbdListening {
        listener,
        clients: 1,
        tls: None,
    };
    let presence = Arc::new(Presence::new(|_, _| ()));
    let (slot, subsystem) = (ControllerSlot(0), SubsystemSlot(0));
    let mut exports = Exports::new(template(), slot, subsystem, listening, presence).unwrap();
    exports.set_offers(1, offers(&["a", "b"]));
    exports
}

fn offers(names: &[&str]) -> Offers {
    let namespace = |nsid| Namespace {
        nsid,
        channel: ChannelId(0),
        start: 0,
        blocks: 8,
        lba_shift: 9,
        nguid: [0; 16],
        eui64: [0; 8],
        traits: MediumTraits::default(),
        restrictions: None,
        set: None,
    };
    let all = (1..).zip(names);
    all.filter_map(|(nsid, name)| offer(&namespace(nsid), name))
        .collect()
}

fn over_unix() -> (Exports, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("s")).unwrap();
    listener.set_nonblocking(true).unwrap();
    (exports(NbdListener::Unix(listener)), folder)
}

fn connect(folder: &tempfile::TempDir) -> UnixStream {
    let stream = UnixStream::connect(folder.path().join("s")).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

/// A reactor's work with its door.
fn turn(exports: &mut Exports, poller: &Poller, now: Time) {
    exports.poll(now, poller);
    if exports.is_to_greet() {
        exports.greet(now);
    }
}

/// Turns until something is so.
fn until(exports: &mut Exports, poller: &Poller, mut is_so: impl FnMut(&mut Exports) -> bool) {
    let until = Instant::now() + BOUND;
    while !is_so(exports) {
        turn(exports, poller, Time(0));
        assert!(Instant::now() < until, "it does not come to that");
    }
}

fn refused(exports: &Exports, name: &str) -> u64 {
    let refused = &exports.roster().counts().refused;
    refused.get(name).copied().unwrap_or_default()
}

/// The option by which a client chooses, without a reply that says how.
fn choose(export: &str) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    bytes.extend(b"IHAVEOPT\0\0\0\x01");
    bytes.extend((export.len() as u32).to_be_bytes());
    bytes.extend(export.as_bytes());
    bytes
}

/// The other option by which a client chooses, which has replies.
fn go(export: &str) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    bytes.extend(b"IHAVEOPT\0\0\0\x07");
    bytes.extend((4 + export.len() as u32 + 2).to_be_bytes());
    bytes.extend((export.len() as u32).to_be_bytes());
    bytes.extend(export.as_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// Kinds of the replies that a client was sent.
fn replies(stream: &mut UnixStream) -> Vec<u32> {
    let mut bytes = vec![0; 4096];
    let len = stream.read(&mut bytes).unwrap();
    let mut left = bytes[..len].strip_prefix(GREETING).unwrap();
    let mut kinds = Vec::new();
    while !left.is_empty() {
        // Magic number, option, kind and length of a reply.
        let word = |at: usize| u32::from_be_bytes(left[at..at + 4].try_into().unwrap());
        kinds.push(word(12));
        left = &left[20 + word(16) as usize..];
    }
    kinds
}

/// Whether its other end is closed. Bytes that came before are dropped.
fn is_closed(mut stream: impl io::Read) -> bool {
    loop {
        match stream.read(&mut [0; 64]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn one_that_has_chosen_is_not_watched_with_those_that_have_not() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut exports, poller) = (exports(NbdListener::Tcp(listener)), Poller::new().unwrap());
    until(&mut exports, &poller, |it| it.entrance.callers.len() == 1);
    let mut greeting = [0; GREETING.len()];
    client.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting, GREETING);
    // It was offered what was there when it came.
    assert!(exports.has_offers_of(1));
    exports.set_offers(2, offers(&["c"]));
    assert!(exports.has_offers_of(2) && !exports.has_offers_of(1));
    client.write_all(&choose("b")).unwrap();
    let mut arrived = None;
    until(&mut exports, &poller, |it| {
        arrived = it.take_arrival();
        arrived.is_some()
    });
    let (arrival, from) = arrived.unwrap();
    assert_eq!(arrival.export(), "b");
    assert_eq!(from, Some(client.local_addr().unwrap()));
    assert_eq!(exports.entrance.callers.len(), 0);
    client.write_all(&[4]).unwrap();
    assert_eq!(
        exports.entrance.callers.events(Duration::from_millis(50)),
        0
    );
}

#[test]
fn one_over_a_unix_socket_has_no_address_and_chooses_of_what_is_new() {
    let (mut exports, folder) = over_unix();
    let poller = Poller::new().unwrap();
    exports.set_offers(2, offers(&["c"]));
    let mut gone = connect(&folder);
    gone.write_all(&choose("a")).unwrap();
    let mut client = connect(&folder);
    client.write_all(&choose("c")).unwrap();
    until(&mut exports, &poller, |it| !it.arrivals.is_empty());
    let (arrival, from) = exports.take_arrival().unwrap();
    assert_eq!((arrival.export(), from), ("c", None));
    // An export that is not there ends the connection (`NBD_OPT_EXPORT_NAME` has no other answer).
    until(&mut exports, &poller, |it| it.entrance.callers.len() == 0);
    assert!(is_closed(&mut gone) && !is_closed(&mut client));
    assert_eq!(exports.roster().counts().refused.values().sum::<u64>(), 1);
}

#[test]
fn of_two_that_choose_at_the_same_time_one_gets_the_last_place() {
    const ACK: u32 = 1;
    const POLICY: u32 = 0x8000_0002;
    let (mut exports, folder) = over_unix();
    let poller = Poller::new().unwrap();
    let mut clients = [connect(&folder), connect(&folder)];
    until(&mut exports, &poller, |it| it.entrance.callers.len() == 2);
    for client in &mut clients {
        client.write_all(&go("a")).unwrap();
    }
    // Both have spoken before the entrance looks.
    turn(&mut exports, &poller, Time(0));
    until(&mut exports, &poller, |it| !it.arrivals.is_empty());
    let mut last: Vec<_> = clients
        .iter_mut()
        .filter_map(|client| replies(client).pop())
        .collect();
    last.sort_unstable();
    assert_eq!(last, [ACK, POLICY]);
    assert_eq!(exports.arrivals.len(), 1);
    assert_eq!(refused(&exports, "too-many-clients"), 1);
}

#[test]
fn one_that_leaves_without_an_export_is_no_refusal() {
    let (mut exports, folder) = over_unix();
    let poller = Poller::new().unwrap();
    let mut client = connect(&folder);
    client.write_all(&[0, 0, 0, 3]).unwrap();
    client.write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0").unwrap();
    client.write_all(b"IHAVEOPT\0\0\0\x02\0\0\0\0").unwrap();
    turn(&mut exports, &poller, Time(0));
    until(&mut exports, &poller, |it| it.entrance.callers.len() == 0);
    assert!(is_closed(&mut client));
    assert!(exports.roster().counts().refused.is_empty());
    // One that ends the connection instead is counted.
    drop(connect(&folder));
    until(&mut exports, &poller, |it| refused(it, "closed") == 1);
}

#[test]
fn one_that_chooses_nothing_is_closed_at_its_deadline() {
    let (mut exports, folder) = over_unix();
    let poller = Poller::new().unwrap();
    let mut client = connect(&folder);
    turn(&mut exports, &poller, Time(0));
    assert_eq!(exports.next_deadline(), Some(CHOOSE));
    // Bytes that it sends do not move that.
    client.write_all(&[0, 0, 0, 3]).unwrap();
    turn(&mut exports, &poller, Time(CHOOSE.0 - 1));
    assert_eq!(exports.next_deadline(), Some(CHOOSE));
    assert!(!is_closed(&mut client));
    turn(&mut exports, &poller, CHOOSE);
    assert!(is_closed(&mut client));
    assert_eq!(refused(&exports, "silent"), 1);
    assert_eq!(exports.next_deadline(), None);
}

/// Ends of connections that say nothing, and what keeps them open: they wait to be accepted, which
/// needs no descriptor.
fn silent(count: usize) -> (Vec<OwnedFd>, impl Sized) {
    const EACH: usize = 64;
    let folder = tempfile::tempdir().unwrap();
    let listeners: Vec<_> = (0..count.div_ceil(EACH))
        .map(|at| UnixListener::bind(folder.path().join(at.to_string())).unwrap())
        .collect();
    let connect = |at: usize| UnixStream::connect(folder.path().join((at / EACH).to_string()));
    let all = (0..count).map(|at| connect(at).unwrap().into()).collect();
    (all, (folder, listeners))
}

#[test]
fn one_that_says_nothing_gives_way_where_there_are_too_many() {
    let (mut exports, folder) = over_unix();
    let poller = Poller::new().unwrap();
    let mut speaks = connect(&folder);
    speaks.write_all(&[0, 0, 0, 3]).unwrap();
    turn(&mut exports, &poller, Time(0));
    let first_silent = connect(&folder);
    turn(&mut exports, &poller, Time(0));
    assert_eq!(exports.entrance.callers.get(0).unwrap().rank(), 1);
    assert_eq!(exports.entrance.callers.get(1).unwrap().rank(), 0);
    let (others, _kept) = silent(MAX_CONNECTIONS - 2);
    exports
        .accepted
        .extend(others.into_iter().map(|fd| (fd, None)));
    exports.greet(Time(0));
    assert_eq!(exports.entrance.callers.len(), 512);
    assert!(!is_closed(&first_silent) && refused(&exports, "displaced") == 0);
    let mut last = connect(&folder);
    turn(&mut exports, &poller, Time(0));
    assert_eq!(exports.entrance.callers.len(), 512);
    assert!(is_closed(&first_silent) && refused(&exports, "displaced") == 1);
    assert!(!is_closed(&mut last) && !is_closed(&mut speaks));
}

#[test]
fn a_failed_accept_is_tried_again_after_a_pause() {
    const PAUSE: u64 = 100_000_000;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_nonblocking(true).unwrap();
    let mut exports = exports(NbdListener::Tcp(listener));
    let mut poller = Poller::new().unwrap();
    exports.watch(&poller).unwrap();
    assert!(!poller.wait(BOUND).unwrap().is_empty());
    turn(&mut exports, &poller, Time(0));
    assert_eq!(exports.entrance.callers.len(), 1);
    exports.close(&poller);
    assert!(is_closed(&client));
    exports.open(&poller);
    // It listens no more: accept fails, and its poller reports it.
    rustix::net::shutdown(exports.entrance.socket(), rustix::net::Shutdown::Both).unwrap();
    assert!(!poller.wait(BOUND).unwrap().is_empty());
    for (now, due) in [(0, PAUSE), (PAUSE - 1, PAUSE), (PAUSE, 2 * PAUSE)] {
        turn(&mut exports, &poller, Time(now));
        assert_eq!(exports.next_deadline(), Some(Time(due)));
        let events = poller.wait(Duration::from_millis(20)).unwrap();
        assert!(events.is_empty(), "the reactor would spin");
    }
}

#[test]
fn clients_wait_in_the_socket_of_a_closed_entrance_until_it_opens() {
    let (mut exports, folder) = over_unix();
    let mut poller = Poller::new().unwrap();
    let mut first = connect(&folder);
    turn(&mut exports, &poller, Time(0));
    let mut chosen = connect(&folder);
    chosen.write_all(&choose("a")).unwrap();
    until(&mut exports, &poller, |it| !it.arrivals.is_empty());
    exports.close(&poller);
    assert!(is_closed(&mut first) && is_closed(&mut chosen));
    assert!(exports.take_arrival().is_none());
    let mut second = connect(&folder);
    assert!(poller.wait(Duration::from_millis(50)).unwrap().is_empty());
    turn(&mut exports, &poller, Time(0));
    assert_eq!(exports.entrance.callers.len(), 0);
    assert!(!is_closed(&mut second));
    exports.open(&poller);
    assert!(!poller.wait(BOUND).unwrap().is_empty());
    until(&mut exports, &poller, |it| it.entrance.callers.len() == 1);
}
