//! Large values, copied 16 KiB at a time.

use nvme_spec::Status;
use nvme_spec::key_value::set_key;
use port::ticket::Ticket;
use port::{Added, ByteRange, Channel as _, Done, Outcome, Request};

use super::super::{KeyValueChannel, KeyValueMedium};
use super::*;

const SLICE: u32 = 16 << 10;

struct Sliced {
    rig: Rig,
    medium: Arc<KeyValueMedium>,
    channel: KeyValueChannel,
    /// Slices of the last command.
    slices: u32,
}

impl Sliced {
    fn new() -> Self {
        let medium = KeyValueMedium::open(4 << 20, 100, Dialect::Nvme).unwrap();
        let medium = Arc::new(medium);
        Sliced {
            // For its host alone.
            rig: Rig::new(Dialect::Nvme, 512, 1),
            channel: medium.channel((8, SLICE), || unreachable!()).unwrap(),
            medium,
            slices: 0,
        }
    }

    /// Adds a command whose data are `len` bytes of the host from `at` on, in pieces of odd
    /// lengths.
    fn add(&mut self, opcode: u8, key: &[u8], at: usize, len: u32) -> Added {
        let mut sqe = Sqe {
            opcode,
            cdw10: len,
            ..Sqe::default()
        };
        set_key(&mut sqe, key);
        let request = Request::Command {
            sqe: &sqe,
            extent: ByteRange { offset: 0, len: 0 },
            lba_shift: 9,
            fua: false,
        };
        let view = &self.rig.view;
        let mut segments = Vec::new();
        let mut done = 0;
        while done < len {
            let part = (len - done).min(5003);
            let at = Iova(at as u64 + u64::from(done));
            let found = view.translate(&mut Hint::default(), at, part, Need::DeviceWrites);
            segments.push(found.unwrap());
            done += part;
        }
        let ticket = Ticket::numbered(7);
        self.channel.add(ticket, &request, &segments, view)
    }

    fn run(&mut self, opcode: u8, key: &[u8], at: usize, len: u32) -> Outcome {
        self.slices = 0;
        match self.add(opcode, key, at, len) {
            Added::Done(ticket, outcome) => {
                ticket.retire();
                return outcome;
            }
            Added::Full(ticket) => panic!("{ticket:?} has to wait"),
            Added::Pending => {}
        }
        let mut done: Vec<Done> = Vec::with_capacity(1);
        while done.is_empty() {
            assert_eq!(self.channel.in_flight(), 1);
            assert!(self.channel.is_due().0);
            self.channel.reap(&mut done);
            self.slices += 1;
        }
        assert_eq!(self.channel.in_flight(), 0);
        let Done { ticket, outcome } = done.remove(0);
        assert_eq!(port::testing::number(ticket), 7);
        outcome
    }

    fn store(&mut self, key: &[u8], value: &[u8]) -> Outcome {
        self.rig.memory.write_from(MIB, value);
        self.run(0x01, key, MIB, value.len() as u32)
    }

    fn retrieve(&mut self, key: &[u8], room: u32) -> (Outcome, Vec<u8>) {
        self.rig.memory.write_from(0, &vec![0xee; room as usize]);
        let outcome = self.run(0x02, key, 0, room);
        (outcome, self.rig.host(room as usize))
    }
}

fn value(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n / 7) as u8 ^ n as u8 ^ seed).collect()
}

#[test]
fn a_large_value_takes_a_turn_for_each_slice() {
    let mut sliced = Sliced::new();
    for (len, slices) in [
        (SLICE as usize, 0),
        (SLICE as usize + 1, 2),
        (100_003, 7),
        (MIB - 1, 64),
    ] {
        let bytes = value(len as u8, len);
        assert_eq!(sliced.store(b"key", &bytes), Outcome::OK);
        assert_eq!(sliced.slices, slices, "{len}");
        let (outcome, found) = sliced.retrieve(b"key", len as u32);
        assert_eq!(outcome, Outcome::with_result(len as u64));
        assert!(found == bytes, "{len}");
        assert_eq!(sliced.slices, slices, "{len}");
    }
    // Only the existing bytes are copied, into a larger buffer.
    let (outcome, found) = sliced.retrieve(b"key", MIB as u32);
    assert_eq!(outcome, Outcome::with_result(MIB as u64 - 1));
    assert!(found[..MIB - 1] == value((MIB - 1) as u8, MIB - 1) && found[MIB - 1] == 0xee);
}

#[test]
fn a_value_in_many_pieces_comes_back() {
    let mut sliced = Sliced::new();
    // Alternates units of ten values, so that the space freed between them is scattered.
    for round in 1..=40 {
        for key in 0..10u8 {
            let outcome = sliced.store(&[key], &value(key, 512 * round));
            assert_eq!(outcome, Outcome::OK);
        }
    }
    for key in 0..10u8 {
        if key % 2 == 0 {
            sliced.run(0x10, &[key], 0, 0);
        }
    }
    let bytes = value(99, 90_001);
    assert_eq!(sliced.store(b"apart", &bytes), Outcome::OK);
    assert!(sliced.retrieve(b"apart", 90_001).1 == bytes);
    for key in (1..10u8).step_by(2) {
        assert!(sliced.retrieve(&[key], 512 * 40).1 == value(key, 512 * 40));
    }
}

#[test]
fn others_wait_for_the_last_slice() {
    let mut sliced = Sliced::new();
    assert_eq!(sliced.store(b"small", b"value"), Outcome::OK);
    assert!(matches!(
        sliced.add(0x01, b"large", MIB, 100_000),
        Added::Pending
    ));
    for opcode in [0x02, 0x10, 0x14] {
        let Added::Full(ticket) = sliced.add(opcode, b"small", 0, 0) else {
            panic!("opcode {opcode:#x} did not wait");
        };
        ticket.retire();
    }
    assert!(sliced.channel.is_full(&Request::Flush));
    let mut done = Vec::with_capacity(1);
    while done.is_empty() {
        sliced.channel.reap(&mut done);
    }
    done.drain(..).for_each(|done| done.ticket.retire());
    assert!(!sliced.channel.is_full(&Request::Flush));
    assert_eq!(sliced.run(0x14, b"small", 0, 0), Outcome::OK);
}

#[test]
fn a_dropped_channel_leaves_a_whole_value() {
    let mut sliced = Sliced::new();
    let bytes = value(3, 70_000);
    sliced.rig.memory.write_from(MIB, &bytes);
    assert!(matches!(
        sliced.add(0x01, b"large", MIB, 70_000),
        Added::Pending
    ));
    let Sliced {
        rig,
        medium,
        channel,
        ..
    } = sliced;
    drop(channel);
    let channel = medium.channel((8, SLICE), || unreachable!()).unwrap();
    let mut sliced = Sliced {
        rig,
        medium,
        channel,
        slices: 0,
    };
    assert!(sliced.retrieve(b"large", 70_000).1 == bytes);
}

#[test]
fn what_is_refused_has_no_slices() {
    let mut sliced = Sliced::new();
    let missing = Outcome::status(Status::KV_KEY_DOES_NOT_EXIST);
    assert_eq!(sliced.retrieve(b"none", 100_000).0, missing);
    for key in 0..4u8 {
        sliced.store(&[key], &value(key, MIB - 512));
    }
    let full = sliced.store(b"more", &value(0, 100_000));
    assert_eq!(full, Outcome::status(Status::CAPACITY_EXCEEDED));
    assert_eq!(sliced.slices, 0);
}
