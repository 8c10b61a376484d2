//! One or more clients of one export over NBD that do anything, while its medium keeps commands or
//! fails, and the operator changes its namespace.
//!
//! Found would be: a panic, a reply to what was not asked, or a second one, a reply that breaks the
//! protocol, an end of a connection without a reason, a client that works for ever, a slot or a
//! request that is lost, and a byte that is not what a plain array says.

mod model;
mod peer;
mod server;

use std::os::unix::net::UnixStream;
use std::time::Duration;

use arbitrary::Arbitrary;

use self::model::Model;
use self::peer::{Ask, CACHE, DISC, FLUSH, Peer, READ, STATUS, Style, TRIM, WRITE, ZERO};
use self::server::Server;

/// Bytes of the export: a read of all of it has more pieces than there are slots, where commands
/// are short.
const SIZE: u64 = 1 << 20;
/// Most steps of a program, and most connections.
const STEPS_MAX: usize = 120;
const PEERS_MAX: usize = 6;
/// Polls after which a server has nothing to do without its clients.
const POLLS_MAX: usize = 4000;
/// Waits for a thread that answers queries, and how long one is.
const WAITS_MAX: usize = 1_000_000;
const WAIT: Duration = Duration::from_micros(20);
/// Commands in flight of a client: requests, and slots of more than 8 KiB.
const REQUESTS: usize = 128;
const LARGE: usize = transport::nbd::LARGE;

#[derive(Arbitrary, Debug)]
pub(crate) struct Program {
    large_blocks: bool,
    /// Bytes of a command, from 8 KiB on.
    max_transfer: u8,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// A client that chooses the export, or one that takes no writes.
    Open {
        style: Style,
        read_only: bool,
        how: u8,
        holds: u8,
    },
    Ask {
        peer: u8,
        asks: Asks,
        /// So many times 16 bytes at the end of it are sent later.
        holds: u8,
    },
    Raw(u8, Vec<u8>),
    /// The client sends the rest.
    More(u8),
    Close(u8),
    /// The client reads nothing, or everything again.
    Reads(u8, bool),
    Turns(u8),
    Seconds(u8),
    /// Whether the medium keeps commands.
    Closed(bool),
    Release {
        count: u8,
        newest: bool,
    },
    /// The next commands fail.
    Fails(u8),
    Namespace(u8),
    Reset(u8),
}

/// Requests, one behind the other.
#[derive(Arbitrary, Debug)]
struct Asks {
    command: u8,
    flags: u8,
    at: (u16, u8),
    len: (u16, u8),
    times: u8,
}

const COMMANDS: [u16; 16] = [
    READ, WRITE, READ, WRITE, ZERO, TRIM, FLUSH, CACHE, WRITE, READ, ZERO, TRIM, WRITE, STATUS, 9,
    DISC,
];

impl Asks {
    fn requests(&self) -> impl Iterator<Item = Ask> {
        let unit = |unit: u8| [1, 512, 4096, 16384][usize::from(unit % 4)];
        let command = COMMANDS[usize::from(self.command % 16)];
        // Half of them have only flags that may be.
        let flags = u16::from(self.flags);
        let flags = match (command, self.flags) {
            (_, 128..) => flags & 0x3f,
            (ZERO, _) => flags & 3,
            (STATUS, _) => flags & 9,
            _ => flags & 1,
        };
        let far = self.at.1 == u8::MAX;
        let is_exact = self.len.1 >= 128;
        let first = u64::from(self.at.0) * unit(self.at.1) % SIZE;
        let len = u64::from(self.len.0) * unit(self.len.1);
        (0..u64::from(self.times % 40) + 1).map(move |time| {
            let offset = if far {
                u64::MAX - first
            } else {
                (first + time * len) % SIZE
            };
            let len = if is_exact || far {
                len
            } else {
                len.min(SIZE - offset)
            };
            Ask {
                command,
                flags,
                offset,
                len,
            }
        })
    }
}

struct World {
    server: Server,
    peers: Vec<Peer>,
    model: Model,
    /// A command may have failed, and connections have ended, for what was done to the medium or
    /// the namespace.
    is_excused: bool,
    has_waited: bool,
}

impl World {
    fn open(&mut self, style: Style, read_only: bool, how: u8) -> &mut Peer {
        let (theirs, ours) = UnixStream::pair().unwrap();
        let number = self.peers.len();
        self.server.accept(number, ours);
        let lba_shift = self.server.lba_shift();
        let peer = Peer::new((number, theirs), style, lba_shift, (read_only, how));
        self.peers.push(peer);
        self.peers.last_mut().unwrap()
    }

    fn ask(&mut self, peer: usize, ask: Ask) {
        let excused = self.is_excused || self.server.gate.fails();
        self.peers[peer].ask(ask, excused, &mut self.model);
        if self.peers[peer].is_raw {
            self.set_wild(peer);
        }
    }

    /// Any byte may come from a client that is not gone.
    fn set_wild(&mut self, peer: usize) {
        if self.server.has(peer) {
            self.model.set_wild(peer);
        }
    }

    /// A poll; whether there was something to do.
    fn poll(&mut self) -> bool {
        self.peers.iter_mut().for_each(Peer::send);
        let mut worked = self.server.poll() | self.server.gate.is_busy();
        for peer in &mut self.peers {
            peer.take(&mut self.model);
        }
        for (peer, end) in std::mem::take(&mut self.server.ends) {
            worked = true;
            self.peers[peer].ended(end, (self.is_excused, self.has_waited));
        }
        for peer in std::mem::take(&mut self.server.left) {
            worked = true;
            self.model.left(peer);
        }
        worked
    }

    /// Polls until nothing more happens without a client.
    fn settle(&mut self) {
        let mut idle = 0;
        let (mut polls, mut waits) = (0, 0);
        while polls < POLLS_MAX && waits < WAITS_MAX {
            idle = if self.poll() { 0 } else { idle + 1 };
            if idle == 4 {
                return;
            }
            if self.server.gate.is_busy() {
                // A thread answers.
                std::thread::park_timeout(WAIT);
                waits += 1;
            } else {
                polls += 1;
            }
        }
        panic!("it works for ever");
    }

    fn take_step(&mut self, step: Step) {
        let count = self.peers.len().max(1);
        let index = |at: u8| usize::from(at) % count;
        match step {
            Step::Open {
                style,
                read_only,
                how,
                holds,
            } => {
                if self.peers.len() < PEERS_MAX {
                    self.open(style, read_only, how).held_back = holds.into();
                }
            }
            Step::Ask { peer, asks, holds } => {
                let at = index(peer);
                if at < self.peers.len() {
                    self.peers[at].held_back = 0;
                    asks.requests().for_each(|ask| self.ask(at, ask));
                    self.peers[at].held_back = usize::from(holds) * 16;
                }
            }
            Step::Raw(at, bytes) => {
                let at = index(at);
                if let Some(peer) = self.peers.get_mut(at) {
                    peer.held_back = 0;
                    peer.raw(&bytes);
                    if peer.is_raw {
                        self.set_wild(at);
                    }
                }
            }
            Step::More(at) => {
                if let Some(peer) = self.peers.get_mut(index(at)) {
                    peer.held_back = 0;
                }
            }
            Step::Close(at) => {
                if let Some(peer) = self.peers.get_mut(index(at)) {
                    peer.close();
                }
            }
            Step::Reads(at, reads) => {
                if let Some(peer) = self.peers.get_mut(index(at)) {
                    peer.reads = reads;
                }
            }
            Step::Turns(count) => {
                for _ in 0..count % 8 {
                    self.poll();
                }
                return;
            }
            Step::Seconds(seconds) => {
                self.has_waited = true;
                self.peers.iter_mut().for_each(Peer::wait);
                self.server.rig.advance(u64::from(seconds) * 1_000_000_000);
            }
            Step::Closed(is_closed) => self.server.gate.set_closed(is_closed),
            Step::Release { count, newest } => self.server.gate.release(count.into(), newest),
            Step::Fails(count) => {
                self.server.gate.set_fails(u32::from(count % 8));
                self.excuse();
            }
            Step::Namespace(how) => {
                self.server.change_namespace(how);
                self.excuse();
                if how % 4 == 0 {
                    // Commands that are not fetched mean blocks of another size.
                    (0..self.peers.len()).for_each(|peer| self.set_wild(peer));
                }
            }
            Step::Reset(at) => {
                self.server.reset(at);
                self.excuse();
            }
        }
        self.settle();
    }

    /// From now on requests may fail.
    fn excuse(&mut self) {
        self.is_excused = true;
        self.peers.iter_mut().for_each(Peer::excuse);
    }

    /// Everything is released, sent and read.
    fn release(&mut self) {
        self.server.gate.set_closed(false);
        self.server.gate.set_fails(0);
        if self.is_excused {
            self.server.change_namespace(2);
        }
        for peer in &mut self.peers {
            peer.held_back = 0;
            peer.reads = true;
        }
        self.settle();
    }

    /// Every request of an open client is answered, and it waits for the next one.
    fn check_idle(&self, peer: usize) {
        assert!(!self.peers[peer].has_asked(), "a request is not answered");
        let client = self.server.client(peer).unwrap();
        assert!(!client.has_io_in_flight() && !client.has_posted(true));
        assert_eq!(client.connection().1, [true, false]);
        assert_eq!(client.next_deadline(), None);
    }

    /// An open client has all of its requests and slots.
    fn check_slots(&mut self, peer: usize, len: u64, count: usize) {
        self.server.gate.set_closed(true);
        for at in 0..count as u64 {
            let ask = Ask {
                command: READ,
                flags: 0,
                offset: at * 4096 % (SIZE - len),
                len,
            };
            self.ask(peer, ask);
        }
        self.settle();
        if self.peers[peer].is_open() {
            assert_eq!(self.server.gate.held(), count, "a slot is lost");
        }
        self.server.gate.set_closed(false);
        self.settle();
    }

    /// A request of each kind, and a read of all.
    fn check_requests(&mut self, peer: usize) {
        for command in [WRITE, ZERO, TRIM, CACHE, FLUSH, READ] {
            let (offset, len) = if command == READ {
                (0, SIZE)
            } else {
                (5000, 20_000)
            };
            if command == READ || command == CACHE || !self.peers[peer].is_read_only() {
                let ask = Ask {
                    command,
                    flags: 0,
                    offset,
                    len,
                };
                self.ask(peer, ask);
            }
        }
        self.settle();
    }
}

pub(crate) fn run(program: Program) {
    let lba_shift = if program.large_blocks { 12 } else { 9 };
    let max_transfer = 8192 << (program.max_transfer % 5);
    let mut world = World {
        server: Server::new(lba_shift, max_transfer),
        peers: Vec::new(),
        model: Model::new(SIZE as usize),
        is_excused: false,
        has_waited: false,
    };
    world.settle();
    for step in program.steps.into_iter().take(STEPS_MAX) {
        world.take_step(step);
    }
    world.release();
    // One more, which finds what the others have left.
    world.open(Style::Structured, false, 0);
    world.settle();
    for peer in 0..world.peers.len() {
        if !world.peers[peer].is_open() {
            continue;
        }
        world.check_idle(peer);
        world.check_slots(peer, 512, REQUESTS);
        if max_transfer >= 16384 {
            world.check_slots(peer, 16384, LARGE);
        }
        world.check_requests(peer);
        if world.peers[peer].is_open() {
            world.check_idle(peer);
        }
    }
    world.peers.iter_mut().for_each(Peer::close);
    world.has_waited = true;
    for _ in 0..8 {
        world.settle();
        world.server.rig.advance(subsystem::DEADLINE_NS);
    }
    world.settle();
    assert!(world.server.is_empty(), "a client is still there");
    let World { server, .. } = world;
    server.rig.finish();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client with simple replies does this where commands have 8 KiB.
    fn run_steps(steps: impl IntoIterator<Item = Step>) {
        let open = Step::Open {
            style: Style::Simple,
            read_only: false,
            how: 0,
            holds: 0,
        };
        run(Program {
            large_blocks: false,
            max_transfer: 0,
            steps: [open].into_iter().chain(steps).collect(),
        });
    }

    /// One request of `len` times 16 KiB, from the start of the export on.
    fn ask(command: u16, len: u16) -> Step {
        ask_of(0, command, len)
    }

    fn ask_of(peer: u8, command: u16, len: u16) -> Step {
        let index = COMMANDS.iter().position(|other| *other == command);
        let asks = Asks {
            command: index.unwrap() as u8,
            flags: 0,
            at: (0, 0),
            len: (len, 131),
            times: 0,
        };
        Step::Ask {
            peer,
            asks,
            holds: 0,
        }
    }

    #[test]
    fn a_read_that_has_failed_keeps_no_slot() {
        run_steps([Step::Fails(1), ask(READ, 8)]);
    }

    #[test]
    fn a_reply_that_waits_for_a_long_one_is_sent() {
        let release = Step::Release {
            count: 1,
            newest: false,
        };
        // The trim goes beyond the end: it is answered without a command.
        run_steps([Step::Closed(true), ask(READ, 64), release, ask(TRIM, 65)]);
    }

    /// A client that knows holes, beside writes, and a request whose queries are kept for a while.
    #[test]
    fn block_status_is_answered() {
        let open = |style| Step::Open {
            style,
            read_only: false,
            how: 8 | 16,
            holds: 0,
        };
        for style in [Style::Structured, Style::Extended] {
            let mut steps = vec![
                open(style),
                ask_of(1, STATUS, 64),
                ask_of(1, WRITE, 3),
                Step::Closed(true),
                ask_of(1, STATUS, 64),
                Step::Closed(false),
                ask_of(1, TRIM, 2),
                Step::Fails(1),
                ask_of(1, STATUS, 64),
            ];
            steps.push(ask_of(1, STATUS, 65));
            run_steps(steps);
        }
    }

    /// The data of the second one are there before the first one has ended.
    #[test]
    fn one_long_read_is_sent_behind_another() {
        let release = |count, newest| Step::Release { count, newest };
        run_steps([
            Step::Closed(true),
            ask(READ, 33),
            ask(READ, 33),
            release(8, false),
            release(66, true),
        ]);
    }
}
