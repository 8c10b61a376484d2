//! Messages as bytes: in pieces, at once, with impossible sizes, and from hosts that do not read or
//! go away.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tests_protocol::{Body, Door, Host, Options, Server, cmd, errno};

/// A whole message.
fn message(id: u16, command: u16, size: u32, flags: u32, body: &[u8]) -> Vec<u8> {
    let header = Body::new().u16(id).u16(command).u32(size).u32(flags).u32(0);
    header.bytes(body).0
}

/// DEVICE_GET_INFO.
fn info(id: u16) -> Vec<u8> {
    let body = Body::new().u32(16).u32(0).u32(0).u32(0);
    message(id, cmd::GET_INFO, 32, 0, &body.0)
}

fn two() -> Server {
    crate::serve(&Options {
        controllers: 2,
        ..Options::default()
    })
}

#[test]
fn a_message_may_come_byte_by_byte() {
    let server = two();
    let mut host = Host::new(server.attach(0));
    for byte in info(7) {
        assert!(host.try_receive().is_none());
        host.send_raw(&[byte]);
    }
    let reply = host.receive();
    assert_eq!((reply.id, reply.command), (7, cmd::GET_INFO));
    assert_eq!(reply.ok().len(), 16);
}

#[test]
fn many_messages_may_come_at_once() {
    let server = two();
    let mut host = Host::new(server.attach(0));
    let all: Vec<u8> = (0..1000).flat_map(info).collect();
    host.send_raw(&all);
    for id in 0..1000 {
        let reply = host.receive();
        assert_eq!(reply.id, id, "replies come in the order of requests");
        assert_eq!(reply.ok().len(), 16);
    }
}

#[test]
fn ids_are_repeated_whatever_they_are() {
    let server = two();
    let mut host = Host::new(server.attach(0));
    for id in [0, 5, 5, u16::MAX] {
        host.send_raw(&info(id));
    }
    for id in [0, 5, 5, u16::MAX] {
        assert_eq!(host.receive().id, id);
    }
}

#[test]
fn the_error_field_of_a_command_is_ignored() {
    let server = two();
    let mut host = Host::new(server.attach(0));
    let mut bytes = info(1);
    bytes[12..16].copy_from_slice(&[0xff; 4]);
    host.send_raw(&bytes);
    assert_eq!(host.receive().ok().len(), 16);
}

#[test]
fn a_size_below_the_header_ends_this_session_and_no_other() {
    for size in [0, 1, 15] {
        let server = two();
        let mut host = Host::new(server.attach(0));
        let mut other = Host::new(server.attach(1));
        host.send_raw(&message(1, cmd::GET_INFO, size, 0, &[]));
        host.expect_closed();
        let why = server.wait_for_end(0);
        match server.door() {
            Door::Direct => assert!(why.contains(&format!("{size} bytes")), "{why}"),
            // The framing is the holder's (book/src/internals/crates/holder.md).
            Door::Holder(_) => assert_eq!(why, "it closed its socket"),
        }
        other.expect_in_step();
        // The controller serves the next host.
        Host::new(server.attach(0)).expect_in_step();
    }
}

#[test]
fn a_size_above_the_limit_ends_this_session_and_no_other() {
    for size in [(1 << 20) + 4096 + 1, u32::MAX] {
        let server = two();
        let mut host = Host::new(server.attach(0));
        let mut other = Host::new(server.attach(1));
        host.send_raw(&message(1, cmd::REGION_WRITE, size, 0, &[]));
        host.expect_closed();
        let _ = server.wait_for_end(0);
        other.expect_in_step();
        Host::new(server.attach(0)).expect_in_step();
    }
}

#[test]
fn framing_may_be_lost_before_the_version() {
    let server = two();
    let mut host = Host::silent(server.attach(0));
    host.send_raw(b"GET / HTTP/1.1\r\n\r\n");
    host.expect_closed();
    let _ = server.wait_for_end(0);
}

#[test]
fn a_size_that_does_not_fit_the_command_is_only_a_wrong_message() {
    let server = two();
    let mut host = Host::new(server.attach(0));
    // A header alone, where a body belongs.
    host.send_raw(&message(3, cmd::DMA_MAP, 16, 0, &[]));
    assert_eq!(host.receive().errno(), errno::EINVAL);
    host.expect_in_step();
}

#[test]
fn a_host_that_goes_away_within_a_message_ends_its_session() {
    let server = two();
    let mut host = Host::new(server.attach(0));
    host.send_raw(&info(1)[..20]);
    drop(host);
    assert_eq!(server.wait_for_end(0), "it closed its socket");
    Host::new(server.attach(0)).expect_in_step();
}

#[test]
fn a_host_that_goes_away_without_a_word_ends_its_session() {
    let server = two();
    drop(server.attach(0));
    assert_eq!(server.wait_for_end(0), "it closed its socket");
}

#[test]
fn a_host_that_only_asks_is_given_up_or_waits_and_no_other_notices() {
    let server = two();
    let stream = server.attach(0);
    let raw = stream.try_clone().unwrap();
    let mut host = Host::new(stream);
    let mut other = Host::new(server.attach(1));
    let asker = Asker::start(raw);
    for _ in 0..100 {
        other.expect_in_step();
    }
    match server.door() {
        Door::Direct => {
            let why = server.wait_for_end(0);
            assert_eq!(why, "it does not read the replies to its requests");
            asker.thread.join().unwrap();
        }
        // A holder reads no more of it (book/src/internals/crates/holder.md): nothing is lost.
        Door::Holder(_) => {
            asker.read_all(&mut host);
            host.expect_in_step();
            assert!(server.all_attached());
        }
    }
    other.expect_in_step();
}

/// A host's thread that asks for 16 KiB again and again, and reads nothing.
struct Asker {
    asked: Arc<AtomicU32>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Asker {
    fn start(mut raw: UnixStream) -> Self {
        let read = Body::new().u64(0).u32(0).u32(0x4000);
        let ask = message(1, cmd::REGION_READ, 32, 0, &read.0);
        let (asked, ends) = (
            Arc::new(AtomicU32::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        raw.set_nonblocking(false).unwrap();
        let (count, is_over) = (asked.clone(), ends.clone());
        // Ends when the server closes the socket, too.
        let thread = thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) && raw.write_all(&ask).is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self {
            asked,
            ends,
            thread,
        }
    }

    /// Waits until it asks no more, and then reads the replies to all that it has asked.
    fn read_all(self, host: &mut Host) {
        let asked = || self.asked.load(Ordering::Relaxed);
        let mut before = None;
        while before.replace(asked()) != Some(asked()) {
            thread::sleep(Duration::from_millis(100));
        }
        self.ends.store(true, Ordering::Relaxed);
        let mut read = 0;
        while !self.thread.is_finished() || read < asked() {
            if let Some(reply) = host.try_receive() {
                assert_eq!(reply.ok().len(), 16 + 0x4000);
                read += 1;
            }
        }
        assert!(read > 100, "{read} requests are no flood");
        self.thread.join().unwrap();
    }
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let server = two();
    let mut host = Host::new(server.attach(0));
    // More than a socket holds, less than the server keeps.
    const COUNT: u16 = 128;
    for _ in 0..COUNT {
        let read = Body::new().u64(0).u32(0).u32(0x4000);
        host.send(cmd::REGION_READ, &read, &[]);
    }
    for _ in 0..COUNT {
        assert_eq!(host.receive().ok().len(), 16 + 0x4000);
    }
    host.expect_in_step();
}

#[test]
fn more_descriptors_than_agreed_lose_the_message_and_not_the_session() {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::AsFd;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

    let server = two();
    let stream = server.attach(0);
    let raw = stream.try_clone().unwrap();
    let mut host = Host::new(stream);
    let eventfd = memory::EventFd::new().unwrap();
    let fds = [eventfd.as_fd(); 40];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(40))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    // SET_IRQS for as many as could be taken.
    let body = Body::new()
        .u32(20)
        .u32(1 << 2 | 1 << 5)
        .u32(2)
        .u32(0)
        .u32(1);
    let bytes = message(9, cmd::SET_IRQS, 36, 0, &body.0);
    let parts = [IoSlice::new(&bytes)];
    rustix::net::sendmsg(&raw, &parts, &mut control, SendFlags::empty()).unwrap();
    assert_eq!(host.receive().errno(), errno::EINVAL);
    host.expect_in_step();
}
