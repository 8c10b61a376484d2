//! A connection that is no host yet: what it may do, for how long, and how it is sent away.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use port::time::Time;
use transport::vfio_user::{Caller, CallerEnd, SessionEnd};
use vfio_user::relayed::Arrival;

const SECOND: u64 = 1_000_000_000;
const VERSION: u16 = 1;
const GET_INFO: u16 = 4;

fn pair() -> (UnixStream, Caller) {
    let (host, server) = UnixStream::pair().unwrap();
    host.set_nonblocking(true).unwrap();
    (host, Caller::new(Arrival::ours(server), Time(0)).unwrap())
}

fn message(command: u16, body: &[u8]) -> Vec<u8> {
    let size = 16 + u32::try_from(body.len()).unwrap();
    let mut message = vec![7, 0];
    message.extend(command.to_le_bytes());
    message.extend(size.to_le_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// The errno and body of the next message.
fn receive(host: &mut UnixStream) -> (u32, Vec<u8>) {
    let mut header = [0; 16];
    host.read_exact(&mut header).unwrap();
    let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    let mut body = vec![0; field(4) as usize - 16];
    host.read_exact(&mut body).unwrap();
    (field(12), body)
}

#[test]
fn one_that_says_nothing_is_given_up() {
    let (_host, mut caller) = pair();
    let until = caller.deadline(false).unwrap();
    assert!((2 * SECOND..=5 * SECOND).contains(&until.0));
    caller.poll(Time(until.0 - 1), false).unwrap();
    assert!(matches!(caller.poll(until, false), Err(CallerEnd::Silent)));
}

#[test]
fn half_a_message_and_messages_before_version_win_no_time() {
    let version = message(VERSION, &[0; 4]);
    for (sent, errno) in [
        (version[..9].to_vec(), None),
        (version[..18].to_vec(), None),
        (message(GET_INFO, &[0; 16]), Some(22)),
        (message(VERSION, &[9, 9, 9, 9]), Some(22)),
    ] {
        let (mut host, mut caller) = pair();
        host.write_all(&sent).unwrap();
        caller.poll(Time(2 * SECOND), false).unwrap();
        assert!(!caller.is_introduced());
        if let Some(errno) = errno {
            assert_eq!(receive(&mut host).0, errno);
        }
        let until = caller.deadline(false).unwrap();
        assert_eq!(until, pair().1.deadline(false).unwrap());
        assert!(matches!(caller.poll(until, false), Err(CallerEnd::Silent)));
    }
}

#[test]
fn one_that_closes_or_breaks_the_framing_ends() {
    let (host, mut caller) = pair();
    drop(host);
    let ended = caller.poll(Time(0), false);
    assert!(matches!(ended, Err(CallerEnd::Ended(SessionEnd::Closed))));

    let (mut host, mut caller) = pair();
    host.write_all(&[0; 16]).unwrap();
    let ended = caller.poll(Time(0), false);
    let lost = SessionEnd::FramingLost { size: 0 };
    assert!(matches!(ended, Err(CallerEnd::Ended(end)) if end.to_string() == lost.to_string()));
}

#[test]
fn one_that_introduces_itself_waits_for_its_turn_and_not_for_long() {
    let (mut host, mut caller) = pair();
    host.write_all(&message(VERSION, &[0; 4])).unwrap();
    caller.poll(Time(5), true).unwrap();
    assert!(caller.is_introduced());
    let until = caller.deadline(true).unwrap();
    assert!((SECOND / 2..=2 * SECOND).contains(&until.0));
    caller.poll(Time(until.0 - 1), true).unwrap();
    // a host that is going keeps the next one waiting, not more
    assert_eq!(caller.deadline(false), None);
    caller.poll(Time(60 * SECOND), false).unwrap();
    assert!(matches!(caller.poll(until, true), Err(CallerEnd::Waited)));
    let error = host.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "nothing is answered");
}

#[test]
fn one_that_is_refused_reads_that_the_drive_is_busy_and_then_the_end() {
    let json = b"{\"capabilities\":{}, \"more\":\"than this is never answered\"}\0";
    let long = [&[0; 4], &json[..]].concat();
    for (body, host_text) in [(&[0; 4][..], ""), (&long, "{\"host\":4242}\0")] {
        let (mut host, mut caller) = pair();
        host.write_all(&message(VERSION, body)).unwrap();
        caller.poll(Time(0), true).unwrap();
        // unread bytes do not turn the end of the connection into a reset
        host.write_all(&message(GET_INFO, &[0; 16])).unwrap();
        drop(caller.refuse(Some(4242)));
        let (errno, told) = receive(&mut host);
        assert_eq!(errno, 16, "EBUSY");
        assert_eq!(told.get(4..).unwrap_or_default(), host_text.as_bytes());
        assert!(16 + told.len() <= 16 + body.len(), "its buffer");
        assert_eq!(host.read(&mut [0; 8]).unwrap(), 0);
    }
}
