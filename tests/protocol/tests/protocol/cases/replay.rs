//! Messages of QEMU, sent again: the server gives the same answers, to the byte.
//!
//! `cargo xtask record --doorbells mapped tests/protocol/fixtures/qemu-mapped.txt` records a
//! session again, and the same with `unmapped`: needed where the configuration space or the
//! registers have changed on purpose. The guest's memory is not recorded, so every command that is
//! fetched here is one of zeros; messages do not depend on that.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use memory::EventFd;
use rustix::fs::MemfdFlags;
use tests_protocol::recording::{self, From, Recorded};
use tests_protocol::{Host, Options, Reply, cmd};

const BOUND: Duration = Duration::from_secs(20);

/// A field of a message.
fn field<const N: usize>(message: &[u8], at: usize) -> [u8; N] {
    message[at..at + N].try_into().unwrap()
}

fn id(message: &[u8]) -> u16 {
    u16::from_le_bytes(field(message, 0))
}

fn command(message: &[u8]) -> u16 {
    u16::from_le_bytes(field(message, 2))
}

/// Whether it reads CSTS, which changes by itself.
fn reads_csts(message: &[u8]) -> bool {
    let csts_in_bar0 = [0x1c_u64.to_le_bytes().as_slice(), &[0; 4]].concat();
    command(message) == cmd::REGION_READ && message[16..28] == csts_in_bar0
}

/// The answers that came and were not looked for yet: a DMA_UNMAP's may come late.
struct Replay {
    host: Host,
    early: HashMap<(u16, u16), Reply>,
}

impl Replay {
    /// The server's answer to what `recorded` answers.
    fn answer(&mut self, recorded: &Recorded) -> Reply {
        let wanted = (id(&recorded.bytes), command(&recorded.bytes));
        loop {
            if let Some(reply) = self.early.remove(&wanted) {
                return reply;
            }
            let reply = self.host.receive();
            let twice = self.early.insert((reply.id, reply.command), reply);
            assert!(twice.is_none(), "{twice:?} was never asked");
        }
    }

    /// CSTS follows what was written; the last value that QEMU saw comes in the end.
    fn wait_for_csts(&mut self, request: &[u8], recorded: &Recorded) {
        let deadline = Instant::now() + BOUND;
        while self.answer(recorded).bytes() != recorded.bytes {
            assert!(Instant::now() < deadline, "CSTS never is {recorded:?}");
            std::thread::yield_now();
            self.host.send_message(request, &[]);
        }
    }
}

/// The guest's memory: one file for all of it.
fn memory(session: &[Recorded]) -> OwnedFd {
    let maps = session.iter().filter(|message| {
        message.from == From::Host && command(&message.bytes) == cmd::DMA_MAP && message.fds > 0
    });
    let end = maps.map(|message| {
        let offset = u64::from_le_bytes(field(&message.bytes, 16 + 8));
        offset + u64::from_le_bytes(field(&message.bytes, 16 + 24))
    });
    let memory = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&memory, end.max().unwrap()).unwrap();
    memory
}

/// Descriptors of the kind that went with a message.
fn descriptors<'a>(
    message: &Recorded,
    memory: &'a OwnedFd,
    eventfds: &'a [EventFd],
) -> Vec<BorrowedFd<'a>> {
    match command(&message.bytes) {
        cmd::DMA_MAP => vec![memory.as_fd(); message.fds],
        cmd::SET_IRQS => eventfds[..message.fds].iter().map(AsFd::as_fd).collect(),
        _ => {
            assert_eq!(message.fds, 0);
            Vec::new()
        }
    }
}

/// Sends what the host sent, and compares what the server answers.
fn replay(text: &str, options: &Options) {
    let session = recording::parse(text).unwrap();
    let memory = memory(&session);
    let eventfds: Vec<_> = (0..16).map(|_| EventFd::new().unwrap()).collect();
    let server = crate::serve(options);
    let mut replay = Replay {
        host: Host::silent(server.attach(0)),
        early: HashMap::new(),
    };
    let mut requests = HashMap::new();
    for (at, message) in session.iter().enumerate() {
        if message.from == From::Host {
            let fds = descriptors(message, &memory, &eventfds);
            replay.host.send_message(&message.bytes, &fds);
            requests.insert(id(&message.bytes), &message.bytes);
            continue;
        }
        let request = requests[&id(&message.bytes)];
        if reads_csts(request) {
            let next = session[at + 1..]
                .iter()
                .find(|next| next.from == From::Host);
            if next.is_some_and(|next| reads_csts(&next.bytes)) {
                // QEMU has seen it change, and we may have changed it sooner.
                let _ = replay.answer(message).ok();
            } else {
                replay.wait_for_csts(request, message);
            }
            continue;
        }
        let reply = replay.answer(message);
        assert_eq!(reply.bytes(), message.bytes, "the answer to {request:02x?}");
        assert_eq!(reply.fds.len(), message.fds, "descriptors with {reply:?}");
    }
    assert!(replay.early.is_empty(), "{:?}", replay.early);
    replay.host.expect_in_step();
    assert!(server.all_attached());
}

/// As `nvmirage serve` makes a controller without being told more.
fn options(mapped: bool) -> Options {
    Options {
        mapped,
        queues: 64,
        queue_depth: 1024,
        ..Options::default()
    }
}

#[test]
fn qemu_with_mapped_doorbells() {
    replay(
        include_str!("../../../fixtures/qemu-mapped.txt"),
        &options(true),
    );
}

#[test]
fn qemu_with_doorbells_by_message() {
    replay(
        include_str!("../../../fixtures/qemu-unmapped.txt"),
        &options(false),
    );
}

#[test]
fn the_sessions_are_those_of_a_guest_that_lives_on_the_drive() {
    // Nothing else would be worth replaying: memory comes and goes, the controller is enabled and
    // shut down.
    for text in [
        include_str!("../../../fixtures/qemu-mapped.txt"),
        include_str!("../../../fixtures/qemu-unmapped.txt"),
    ] {
        let session = recording::parse(text).unwrap();
        let count = |wanted| {
            let of_host = session.iter().filter(|message| message.from == From::Host);
            of_host
                .filter(|message| command(&message.bytes) == wanted)
                .count()
        };
        assert!(count(cmd::DMA_MAP) > 10 && count(cmd::DMA_UNMAP) > 10);
        assert_eq!(count(cmd::DEVICE_RESET), 1);
        assert!(count(cmd::SET_IRQS) > 3);
        assert!(count(cmd::REGION_READ) > 100 && count(cmd::REGION_WRITE) > 100);
        let shut_down = session.iter().any(|message| {
            message.from == From::Server
                && reads_csts(&message.bytes)
                && message.bytes[32..] == [0b1001, 0, 0, 0]
        });
        assert!(shut_down, "CSTS.SHST is complete in the end");
    }
}
