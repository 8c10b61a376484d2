//! A channel of pairs that another process left: when its commands end, and what their notes say.

use media::{Channel, Dialect, KeptFiles};
use nvme_spec::Sqe;
use port::ticket::Ticket;
use port::{Added, ByteRange, Channel as _, Done, Outcome, Request};

use crate::common::Host;
use crate::outlived_keys::{Act, Rule, open_sized};

/// A channel of pairs in memory, without a lane, and what its process leaves.
struct Pairs {
    host: Host,
    channel: Option<Channel>,
    kept: KeptFiles,
    number: u32,
}

const LARGE: u64 = 8 << 20;

impl Pairs {
    fn new() -> Pairs {
        let mut pairs = Pairs {
            host: Host::new(2 << 20),
            channel: None,
            kept: KeptFiles::default(),
            number: 0,
        };
        pairs.begin();
        pairs
    }

    /// Another process continues.
    fn begin(&mut self) {
        self.channel = None;
        let files = std::mem::take(&mut self.kept);
        let (medium, kept) = open_sized(&None, (Dialect::Nvme, LARGE), files);
        self.kept = kept;
        self.channel = Some(medium.channel(16).expect("a channel"));
    }

    fn channel(&mut self) -> &mut Channel {
        self.channel.as_mut().expect("it lives")
    }

    fn note(&mut self, act: Act) -> Option<u64> {
        let sqe = act.sqe(Dialect::Nvme, 0);
        self.channel().note(&request(&sqe))
    }

    fn has_begun(&mut self, act: Act, note: u64) -> bool {
        let sqe = act.sqe(Dialect::Nvme, 0);
        self.channel().has_begun(&request(&sqe), note)
    }

    /// Adds a command; whether it has ended at once.
    fn add(&mut self, sqe: &Sqe, len: usize) -> Option<Outcome> {
        self.number += 1;
        let pieces = if len > 0 { vec![(0, len)] } else { vec![] };
        let segments = self.host.segments(&pieces);
        let channel = self.channel.as_mut().expect("it lives");
        let ticket = Ticket::numbered(self.number);
        match channel.add(ticket, &request(sqe), &segments, &self.host.view) {
            Added::Done(ticket, outcome) => {
                ticket.retire();
                Some(outcome)
            }
            Added::Pending => None,
            // A checkpoint is behind.
            Added::Full(ticket) => {
                ticket.retire();
                self.reap(0);
                self.add(sqe, len)
            }
        }
    }

    /// The outcomes of this many commands that are in flight, in their order.
    fn reap(&mut self, count: usize) -> Vec<Outcome> {
        let mut done = Vec::with_capacity(16);
        for _ in 0..1_000_000_u32 {
            let channel = self.channel();
            channel.submit();
            channel.reap(&mut done);
            if done.len() == count {
                break;
            }
        }
        assert_eq!(done.len(), count, "a command hangs");
        let ended = |Done { ticket, outcome }| {
            ticket.retire();
            outcome
        };
        done.into_iter().map(ended).collect()
    }

    fn run(&mut self, act: Act) -> Outcome {
        let sqe = act.sqe(Dialect::Nvme, 0);
        match self.add(&sqe, act.len() as usize) {
            Some(outcome) => outcome,
            None => self.reap(1)[0],
        }
    }
}

fn request(sqe: &Sqe) -> Request<'_> {
    Request::Command {
        sqe,
        extent: ByteRange {
            offset: 0,
            len: LARGE,
        },
        lba_shift: 9,
        fua: false,
    }
}

const STORE: Act = Act::Store(1, Rule::Any, 100);

#[test]
fn a_store_ends_and_is_seen_when_no_death_can_lose_it() {
    let mut pairs = Pairs::new();
    assert_eq!(pairs.add(&STORE.sqe(Dialect::Nvme, 0), 100), None);
    // Exist
    let sqe = Sqe {
        opcode: 0x14,
        ..STORE.sqe(Dialect::Nvme, 1)
    };
    assert_eq!(pairs.add(&sqe, 0), None, "what it has seen may be lost");
    let outcomes = [Outcome::with_result(Outcome::NO_RESULT), Outcome::OK];
    assert_eq!(pairs.reap(2), outcomes);
    assert_eq!(
        pairs.add(&sqe, 0),
        Some(Outcome::OK),
        "nothing is unwritten"
    );
    pairs.begin();
    assert_eq!(pairs.add(&sqe, 0), Some(Outcome::OK));
}

#[test]
fn a_command_that_is_rejected_leaves_its_note_to_the_next() {
    let mut pairs = Pairs::new();
    let missing = Act::Delete(2);
    let note = pairs.note(missing).expect("a note");
    let rejected = pairs.run(missing);
    assert_ne!(rejected.cause, Outcome::OK.cause);
    assert!(!pairs.channel().uses_note(note));
    assert_eq!(pairs.note(STORE), Some(note));
    assert_eq!(pairs.run(STORE).cause, Outcome::OK.cause);
    assert!(pairs.channel().uses_note(note));
    let reads = Sqe {
        opcode: 0x14,
        ..STORE.sqe(Dialect::Nvme, 1)
    };
    assert_eq!(pairs.channel().note(&request(&reads)), None);
}

#[test]
fn a_number_that_a_death_has_lost_is_not_used_again() {
    let mut pairs = Pairs::new();
    pairs.run(STORE);
    let lost = pairs.note(STORE).expect("a note");
    pairs.begin();
    assert!(!pairs.has_begun(STORE, lost));
    for number in 2..5 {
        pairs.run(Act::Store(number, Rule::Any, 10));
    }
    pairs.begin();
    assert!(!pairs.has_begun(STORE, lost), "it was another command");
}

#[test]
fn a_log_that_was_cut_off_has_the_numbers_of_former_processes() {
    let mut pairs = Pairs::new();
    let note = pairs.note(STORE).expect("a note");
    pairs.run(STORE);
    pairs.begin();
    // Several times the length at which a checkpoint takes the place of what was before it; each in
    // slices.
    for round in 0..60 {
        let long = Act::Store(2 + round % 3, Rule::Any, 2 << 20);
        assert_eq!(pairs.run(long).cause, Outcome::OK.cause);
    }
    for _ in 0..200 {
        let mut none = Vec::with_capacity(16);
        let channel = pairs.channel();
        channel.tend();
        channel.submit();
        channel.reap(&mut none);
        assert!(none.is_empty());
    }
    let last = pairs.note(STORE).expect("a note");
    pairs.run(STORE);
    pairs.begin();
    assert!(pairs.has_begun(STORE, note) && pairs.has_begun(STORE, last));
    assert!(!pairs.has_begun(STORE, last + 1));
}
