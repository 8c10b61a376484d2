//! Commands in slices compared with the same commands performed at once: lists, iterators, compound
//! commands.

use port::ticket::Ticket;
use port::{Added, ByteRange, Cause, Channel as _, Done, Request};
use proptest::prelude::*;

use super::super::index::KEY_MAX;
use super::super::pairs::Pairs;
use super::super::{KeyValueChannel, KeyValueMedium};
use super::compound::{batch, payload};
use super::{samsung, *};

const SLICE: u32 = 1024;
const BYTES: u64 = 256 << 10;
const KEYS: u32 = 2000;

/// Two media that are asked the same: one does it at once, the other in slices.
struct Both {
    whole: Rig,
    host: Rig,
    channel: KeyValueChannel,
    /// Turns of the last command, beyond the first one.
    turns: u32,
}

impl Both {
    fn new(dialect: Dialect) -> Self {
        let medium = Arc::new(KeyValueMedium::open(BYTES, KEYS, dialect).unwrap());
        Both {
            whole: Rig::new(dialect, BYTES, KEYS),
            host: Rig::new(dialect, 512, 1),
            channel: medium.channel((8, SLICE), || unreachable!()).unwrap(),
            turns: 0,
        }
    }

    fn add(&mut self, bytes: [u8; 64], len: usize) -> Added {
        let sqe = Sqe::read_from_bytes(&bytes).unwrap();
        let request = Request::Command {
            sqe: &sqe,
            extent: ByteRange { offset: 0, len: 0 },
            lba_shift: 9,
            fua: false,
        };
        let view = &self.host.view;
        let mut segments = Vec::new();
        let mut at = 0;
        while at < len {
            let part = (len - at).min(701);
            let found = view.translate(
                &mut Hint::default(),
                Iova(at as u64),
                part as u32,
                Need::DeviceWrites,
            );
            segments.push(found.unwrap());
            at += part;
        }
        let ticket = Ticket::numbered(7);
        self.channel.add(ticket, &request, &segments, view)
    }

    /// Does a command with these data on both, and sees to it that they agree.
    fn command(&mut self, bytes: [u8; 64], data: &[u8]) -> Completion {
        self.whole.memory.write_from(0, data);
        self.host.memory.write_from(0, data);
        let done = self.whole.command(bytes, data.len());
        self.turns = 0;
        let outcome = match self.add(bytes, data.len()) {
            Added::Done(ticket, outcome) => {
                ticket.retire();
                outcome
            }
            Added::Full(ticket) => panic!("{ticket:?} has to wait"),
            Added::Pending => {
                let mut done: Vec<Done> = Vec::new();
                while done.is_empty() {
                    assert!(self.channel.is_full(&Request::Flush));
                    self.channel.reap(&mut done);
                    self.turns += 1;
                }
                let Done { ticket, outcome } = done.remove(0);
                ticket.retire();
                outcome
            }
        };
        let status = match outcome.cause {
            Cause::None => 0,
            Cause::Status(status) => status.0,
            cause => panic!("{cause:?}"),
        };
        assert_eq!((status, outcome.result as u32), done);
        assert!(self.whole.host(data.len()) == self.host.host(data.len()));
        assert_eq!(
            format!("{:?}", self.channel.last_op()),
            format!("{:?}", self.whole.medium.last_op())
        );
        done
    }

    fn agree(&self) {
        self.channel.pairs().read().check();
        assert!(all(self.channel.pairs().read()) == all(self.whole.medium.pairs.read()));
    }
}

/// All keys and values.
fn all(pairs: &Pairs) -> Vec<(Vec<u8>, Vec<u8>)> {
    let slots = std::iter::successors(pairs.at_or_after(&[]), |slot| pairs.after(*slot));
    let pair = |slot| {
        let key = pairs.key(slot, &mut [0; KEY_MAX]).to_vec();
        let mut value = Vec::new();
        pairs.for_pieces(slot, 0, pairs.value_len(slot), |store, at, len| {
            let from = value.len();
            value.resize(from + len as usize, 0);
            store.read_bytes(at, &mut value[from..]);
        });
        (key, value)
    };
    slots.map(pair).collect()
}

fn key(number: u32) -> [u8; 8] {
    let mut key = *b"key-0000";
    key[4..].copy_from_slice(&number.to_be_bytes());
    key
}

#[test]
fn a_list_takes_a_turn_for_each_slice() {
    let mut both = Both::new(Dialect::Nvme);
    let sqe = |opcode, key: &[u8], size: u32| super::nvme::sqe(opcode, key, size, 0);
    for number in 0..500 {
        both.command(sqe(0x01, &key(number), 5), b"value");
    }
    // 12 bytes for each key; an examined key counts as 128, so there are eight per turn.
    for (room, turns) in [(4, 0), (15, 0), (28, 0), (5000, 52), (20_000, 62)] {
        let done = both.command(sqe(0x06, &key(0), room), &vec![0xee; room as usize]);
        assert_eq!(done, (0, 0));
        assert_eq!(both.turns, turns, "{room}");
    }
    // Its operations for a timing model are known when it ends.
    assert!(matches!(
        both.add(sqe(0x06, &key(490), 1000), 1000),
        Added::Pending
    ));
    assert!(both.channel.last_op().is_none());
    let Added::Full(ticket) = both.add(sqe(0x14, &key(0), 0), 0) else {
        panic!("another command did not wait");
    };
    ticket.retire();
    let mut done = Vec::new();
    both.channel.reap(&mut done);
    done.drain(..).for_each(|done| done.ticket.retire());
    let Some(Op::Kv(op)) = both.channel.last_op() else {
        panic!("it has not ended");
    };
    assert_eq!((op.kind, op.len), (KvKind::List, 4 + 10 * 12));
}

#[test]
fn iterators_take_turns_whatever_they_do() {
    for (option, bytes) in [(1, 8000), (1 | 8, 12_000), (1 | 8, 60_000), (1 | 16, 8000)] {
        let mut both = Both::new(Dialect::Samsung);
        for number in 0..300u32 {
            let value = vec![number as u8; if number % 40 == 7 { 9001 } else { 3 }];
            both.command(samsung::sqe(0x81, &key(number), value.len(), 0), &value);
        }
        let opened = both.command(samsung::request(0, option, b"key-", &[0xff; 4]), &[]);
        assert_eq!(opened.0, 0, "{option:#x}");
        let handle = opened.1 as u8;
        let mut turns = 0;
        for _ in 0..200 {
            let read = samsung::read(handle, bytes);
            let (status, len) = both.command(read, &vec![0xee; bytes as usize]);
            // 12 bytes for each key and 16 for its value; eight keys count as a slice.
            let least = len / SLICE;
            assert!(both.turns >= least, "{} for {len}", both.turns);
            turns += both.turns;
            both.agree();
            if status != 0 {
                break;
            }
        }
        assert!(turns >= 300 / 8, "{turns}");
    }
}

#[test]
fn an_iterator_that_finds_nothing_takes_turns() {
    let mut both = Both::new(Dialect::Samsung);
    for number in 0..400 {
        both.command(samsung::sqe(0x81, &key(number), 3, 0), b"abc");
    }
    // No key has such a second byte, but all might.
    let request = samsung::request(0, 1, b"k-y-", &[0, 0xff, 0, 0]);
    let handle = both.command(request, &[]).1 as u8;
    let done = both.command(samsung::read(handle, 64), &[0xee; 64]);
    assert_eq!((done.0, both.turns), (0x393, 50));
}

#[test]
fn a_compound_command_takes_a_turn_for_each_slice() {
    let mut both = Both::new(Dialect::Samsung);
    let values: Vec<Vec<u8>> = (0..8).map(|n| vec![n; 4096]).collect();
    let keys: Vec<[u8; 8]> = (0..8).map(key).collect();
    let subs: Vec<_> = (0..8)
        .map(|n| (0x81, &keys[n][..], &values[n][..], 0))
        .collect();
    let data = payload(&subs);
    assert_eq!(both.command(batch(8, data.len()), &data), (0, 0));
    assert_eq!(both.turns, 32);
    both.agree();
}

#[test]
fn values_that_a_compound_command_replaces_are_not_copied_over_what_took_their_place() {
    let mut both = Both::new(Dialect::Samsung);
    let (long, other) = ([b'x'; 200], [b'y'; 255]);
    let data = payload(&[
        (0x81, &key(1), &[1; 3000], 0),
        (0xa1, &key(1), &[], 0),
        // These lie where that was, with the ends of their keys in front.
        (0x81, &long, &[2; 600], 0),
        (0x81, &other, &[3; 900], 0),
        (0x81, &long, &[4; 100], 0),
        (0x81, &key(2), &[5; 3000], 0),
    ]);
    assert_eq!(both.command(batch(6, data.len()), &data).0, 0);
    // Of the remaining values.
    assert_eq!(both.turns, 4000u32.div_ceil(SLICE));
    both.agree();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn compound_commands_do_the_same_in_slices(
        commands in prop::collection::vec(
            prop::collection::vec((0..4u32, any::<bool>(), prop::bool::weighted(0.3), 0..2500usize, 0..3u8), 1..=8),
            1..12,
        ),
    ) {
        let mut both = Both::new(Dialect::Samsung);
        for (number, subs) in commands.iter().enumerate() {
            let values: Vec<Vec<u8>> = subs.iter().enumerate()
                .map(|(at, sub)| vec![(number * 8 + at) as u8; sub.3]).collect();
            let keys: Vec<Vec<u8>> = subs.iter()
                .map(|sub| [&key(sub.0)[..], &[b'l'; 90][..if sub.1 { 90 } else { 0 }]].concat()).collect();
            let subs: Vec<_> = subs.iter().enumerate()
                .map(|(at, sub)| if sub.2 { (0xa1, &keys[at][..], &[][..], 0) } else { (0x81, &keys[at][..], &values[at][..], sub.4) })
                .collect();
            let data = payload(&subs);
            both.command(batch(subs.len() as u8, data.len()), &data);
            both.agree();
        }
    }
}
