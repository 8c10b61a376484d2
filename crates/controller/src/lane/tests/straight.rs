//! Announcements to a channel that copies, and the bytes that it is asked for in a turn.

use std::cell::RefCell;
use std::sync::Arc;

use memory::{DmaView, Segment};
use nvme_spec::Sqe;
use nvme_spec::registers::sq_tail_slot;
use port::testing::{Host, namespace};
use port::ticket::Ticket;
use port::{Added, Channel, Channels, Done, Outcome, Request};

use super::rig::{DATA, MEDIUM_ID, PAGES, config};
use crate::lane::{Lane, LaneCommand, SqSpec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Expect(u64, u64),
    Read(u64, u32),
}

/// Does everything at once, and keeps what it hears.
#[derive(Default)]
struct Copier {
    keeps_time: bool,
    said: RefCell<Vec<Said>>,
}

impl Channel for Copier {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        _: &[Segment<'_>],
        _: &Arc<DmaView>,
    ) -> Added {
        let Request::Read { offset, len } = *request else {
            panic!("only reads are sent")
        };
        self.said.borrow_mut().push(Said::Read(offset, len));
        Added::Done(ticket, Outcome::OK)
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _: &mut Vec<Done>) {}

    fn in_flight(&self) -> u32 {
        0
    }

    fn copies(&self) -> bool {
        true
    }

    fn keeps_time(&self) -> bool {
        self.keeps_time
    }

    fn expect(&self, offset: u64, len: u64) {
        self.said.borrow_mut().push(Said::Expect(offset, len));
    }
}

struct Rig {
    host: Host,
    doorbells: Arc<memory::DoorbellPages>,
    lane: Lane,
    channels: Channels<Copier>,
}

impl Rig {
    fn new() -> Self {
        let host = Host::new(PAGES);
        let doorbells = Arc::new(memory::DoorbellPages::new(256).unwrap());
        let mut lane = Lane::new(config(&host, &doorbells, 64)).unwrap();
        let table = [1, 2].map(|nsid| namespace(nsid, MEDIUM_ID, 1 << 20));
        lane.command(LaneCommand::Namespaces {
            table: Arc::new(table.to_vec().into()),
            generation: 0,
        });
        let spec = SqSpec::new(&host.view(), 1, host.page(16), 64).unwrap();
        lane.command(LaneCommand::AddQueue(spec));
        let mut channels = Channels::new();
        assert!(channels.insert(Copier::default()).is_ok());
        Rig {
            host,
            doorbells,
            lane,
            channels,
        }
    }

    fn submit(&mut self, commands: &[Sqe]) {
        for (index, sqe) in (0..).zip(commands) {
            let words = sqe.to_words();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.host
                .write(memory::Iova(self.host.page(16).0 + 64 * index), &bytes);
        }
        self.doorbells.store(sq_tail_slot(1), commands.len() as u32);
    }

    fn said(&mut self) -> Vec<Said> {
        let copier = self.channels.get_mut(MEDIUM_ID).unwrap();
        std::mem::take(copier.said.get_mut())
    }
}

/// A read of some blocks of 512 bytes.
fn read(nsid: u32, slba: u32, blocks: u32) -> Sqe {
    Sqe {
        opcode: 2,
        nsid,
        prp1: Host::BASE + DATA * 4096,
        prp2: Host::BASE + (DATA + 1) * 4096,
        cdw10: slba,
        cdw12: blocks - 1,
        ..Sqe::default()
    }
}

#[test]
fn what_comes_next_is_told_once_and_before() {
    let mut rig = Rig::new();
    let commands: Vec<Sqe> = (0..10).map(|n| read(1, 100 * n, 8)).collect();
    rig.submit(&commands);
    assert_eq!(rig.lane.turn(&mut rig.channels).fetched, 10);
    let said = rig.said();
    for n in 0..10 {
        let at = 100 * 512 * n;
        let asked = said.iter().position(|said| *said == Said::Read(at, 4096));
        let told =
            |(place, said): (usize, &Said)| (*said == Said::Expect(at, 4096)).then_some(place);
        let told: Vec<_> = said.iter().enumerate().filter_map(told).collect();
        match n {
            0 => assert_eq!(told, []),
            _ => assert!(told.len() == 1 && Some(told[0]) < asked, "{n}: {said:?}"),
        }
    }
}

#[test]
fn what_is_no_read_of_the_same_namespace_is_not_told() {
    let mut rig = Rig::new();
    let outside = read(1, u32::MAX, 8);
    let flush = Sqe {
        opcode: 0,
        nsid: 9,
        ..Sqe::default()
    };
    rig.submit(&[read(1, 0, 8), read(2, 8, 8), outside, flush, read(1, 16, 8)]);
    assert_eq!(rig.lane.turn(&mut rig.channels).fetched, 5);
    let expected = [
        Said::Expect(16 * 512, 4096),
        Said::Read(0, 4096),
        Said::Expect(8 * 512, 4096),
    ];
    let said = rig.said();
    assert_eq!(said[..2], expected[..2], "{said:?}");
    assert!(!said.contains(&expected[2]), "{said:?}");
}

#[test]
fn a_tail_is_not_looked_past() {
    let mut rig = Rig::new();
    // Behind the two that are announced there are others in the ring.
    rig.submit(&[read(1, 0, 8), read(1, 8, 8), read(1, 16, 8), read(1, 24, 8)]);
    rig.doorbells.store(sq_tail_slot(1), 2);
    assert_eq!(rig.lane.turn(&mut rig.channels).fetched, 2);
    assert_eq!(
        rig.said(),
        [
            Said::Expect(8 * 512, 4096),
            Said::Read(0, 4096),
            Said::Read(8 * 512, 4096)
        ]
    );
}

#[test]
fn a_turn_copies_no_more_than_a_batch_of_small_commands() {
    let mut rig = Rig::new();
    let commands: Vec<Sqe> = (0..40).map(|n| read(1, 100 * n, 16)).collect();
    rig.submit(&commands);
    // 128 KiB are 16 times 8 KiB.
    for (fetched, pending) in [(16, 24), (16, 8), (8, 0)] {
        let turn = rig.lane.turn(&mut rig.channels);
        assert_eq!((turn.fetched, turn.pending), (fetched, pending));
    }
}

/// A channel with a clock looks for due work after at most 16 KiB of copies.
#[test]
fn a_turn_copies_less_where_a_channel_keeps_time() {
    let mut rig = Rig::new();
    rig.channels.get_mut(MEDIUM_ID).unwrap().keeps_time = true;
    let commands: Vec<Sqe> = (0..5).map(|n| read(1, 100 * n, 16)).collect();
    rig.submit(&commands);
    for (fetched, pending) in [(2, 3), (2, 1), (1, 0)] {
        let turn = rig.lane.turn(&mut rig.channels);
        assert_eq!((turn.fetched, turn.pending), (fetched, pending));
    }
}
