//! The NBD server: negotiation, requests of every kind, and what a client does wrong.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

mod medium;
mod rig;
mod status;
mod tls;

use std::collections::BTreeMap;
use std::time::Duration;

use nbd::{Command, CommandFlags};

use self::rig::{LEN, Reply, Rig, Style};

const STYLES: [Style; 3] = [Style::Simple, Style::Structured, Style::Extended];
const SHIFTS: [u8; 2] = [9, 12];

const NONE: CommandFlags = CommandFlags::new();
const PERM: u32 = 1;
const INVALID: u32 = 22;
const NO_SPACE: u32 = 28;
const IO: u32 = 5;
const NOT_SUPPORTED: u32 = 95;

/// A sequence of numbers that is always the same (SplitMix64).
struct Random(u64);

impl Random {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// The bytes of a reply to a read at `offset`, whose pieces may come in any order.
fn read_of(reply: &Reply, offset: u64, len: usize) -> Vec<u8> {
    assert_eq!(reply.error, 0);
    if let [(_, bytes)] = &reply.data[..] {
        assert_eq!(bytes.len(), len);
        return bytes.clone();
    }
    let mut bytes = vec![0; len];
    let mut seen = 0;
    for (at, piece) in &reply.data {
        let at = (at - offset) as usize;
        bytes[at..at + piece.len()].copy_from_slice(piece);
        seen += piece.len();
    }
    assert_eq!(seen, len, "each byte comes once");
    bytes
}

/// A request in flight: the bytes that it names, and the expected data of a read.
enum Flight {
    Changes(u64, u64),
    Reads(u64, Vec<u8>),
}

impl Flight {
    fn range(&self) -> (u64, u64) {
        match self {
            Flight::Changes(at, len) => (*at, *len),
            Flight::Reads(at, bytes) => (*at, bytes.len() as u64),
        }
    }
}

/// Requests of bytes, many at a time, of which no two name the same bytes and many the same block.
/// A plain array says what reads find.
fn random_program(mut rig: Rig, shift: u8, seed: u64) {
    let mut random = Random(seed);
    // A small part of the export: many requests meet in a block.
    let part = 16 << shift;
    let mut bytes = vec![0u8; part as usize];
    let mut flights: BTreeMap<u64, Flight> = BTreeMap::new();
    let mut partial = 0;
    for cookie in 0..1500 {
        let len = 1 + match random.below(4) {
            0 => random.below(part / 2),
            1 => random.below(3 << shift),
            _ => random.below(1 << shift),
        };
        let at = random.below(part - len + 1);
        let overlaps = |other: &Flight| {
            let (start, other_len) = other.range();
            at < start + other_len && start < at + len
        };
        if !flights.values().any(overlaps) {
            let range = at as usize..(at + len) as usize;
            match random.below(8) {
                0..3 => {
                    let data = random.bytes(len as usize);
                    bytes[range].copy_from_slice(&data);
                    let flags = NONE.with_fua(random.below(2) == 0);
                    rig.ask(Command::WRITE, flags, cookie, (at, len), &data);
                    flights.insert(cookie, Flight::Changes(at, len));
                }
                3 => {
                    bytes[range].fill(0);
                    let flags = NONE.with_no_hole(random.below(2) == 0);
                    rig.ask(Command::WRITE_ZEROES, flags, cookie, (at, len), &[]);
                    flights.insert(cookie, Flight::Changes(at, len));
                }
                4 => {
                    // Memory reads as zeroes where it was deallocated.
                    let from = at.next_multiple_of(1 << shift);
                    let to = (at + len) >> shift << shift;
                    if from < to {
                        bytes[from as usize..to as usize].fill(0);
                    }
                    let flags = NONE.with_fua(random.below(2) == 0);
                    rig.ask(Command::TRIM, flags, cookie, (at, len), &[]);
                    flights.insert(cookie, Flight::Changes(at, len));
                }
                5 => {
                    rig.ask(Command::CACHE, NONE, cookie, (at, len), &[]);
                    flights.insert(cookie, Flight::Changes(at, len));
                }
                _ => {
                    rig.ask(Command::READ, NONE, cookie, (at, len), &[]);
                    flights.insert(cookie, Flight::Reads(at, bytes[range].to_vec()));
                }
            }
        }
        if random.below(3) == 0 {
            rig.turn();
        }
        while let Some(reply) = rig.reply(|cookie| match flights.get(&cookie) {
            Some(Flight::Reads(_, bytes)) => bytes.len() as u64,
            _ => 0,
        }) {
            match flights.remove(&reply.cookie) {
                Some(Flight::Reads(at, expected)) => {
                    assert_eq!(read_of(&reply, at, expected.len()), expected, "{seed}");
                }
                Some(Flight::Changes(..)) => {
                    assert_eq!((reply.error, reply.data.len()), (0, 0));
                }
                None => panic!("a reply to nothing"),
            }
        }
        partial = rig.client.as_ref().unwrap().counters().partial;
    }
    rig.settle();
    while let Some(reply) = rig.reply(|cookie| match flights.get(&cookie) {
        Some(Flight::Reads(_, bytes)) => bytes.len() as u64,
        _ => 0,
    }) {
        assert!(flights.remove(&reply.cookie).is_some());
    }
    assert!(flights.is_empty() && partial > 100);
    let all = rig.asked(Command::READ, (0, part), &[]);
    assert_eq!(read_of(&all, 0, bytes.len()), bytes);
}

#[test]
fn bytes_are_those_of_a_plain_array() {
    for (seed, shift) in (1..).zip(SHIFTS) {
        for style in STYLES {
            random_program(Rig::new(shift, style), shift, seed);
        }
    }
}

/// All of them change other bytes of the same block at the same time.
#[test]
fn parts_of_one_block_do_not_undo_each_other() {
    for shift in SHIFTS {
        let mut rig = Rig::new(shift, Style::Simple);
        for byte in 0..100u8 {
            rig.ask(
                Command::WRITE,
                NONE,
                byte.into(),
                (1000 + u64::from(byte), 1),
                &[byte],
            );
        }
        rig.settle();
        for _ in 0..100 {
            assert_eq!(rig.reply(|_| 0).unwrap().error, 0);
        }
        let reply = rig.asked(Command::READ, (1000, 100), &[]);
        assert_eq!(reply.data[0].1, (0..100).collect::<Vec<u8>>());
        let counters = rig.client.as_ref().unwrap().counters();
        assert_eq!((counters.partial, counters.requests), (100, 101));
        assert_eq!(counters.retried, 0, "they wait for each other");
    }
}

/// Another host has written the block between the read and the comparison.
#[test]
fn a_part_is_tried_again_where_the_block_has_changed() {
    let mut rig = Rig::new(9, Style::Simple);
    for (times, error) in [(1, 0), (7, 0), (10_000, 0), (10_001, IO)] {
        rig.differ(times);
        rig.ask(Command::WRITE, NONE, 1, (100, 3), b"abc");
        // The next one goes on where the first one has ended.
        rig.ask(Command::WRITE, NONE, 2, (103, 3), b"def");
        for _ in 0..50_000 {
            rig.turn();
        }
        assert_eq!(rig.reply(|_| 0).unwrap().error, error, "{times}");
        assert_eq!(rig.reply(|_| 0).unwrap().error, 0, "{times}");
    }
    let counters = rig.client.as_ref().unwrap().counters();
    assert_eq!(counters.retried, 1 + 7 + 10_000 + 10_000);
    let reply = rig.asked(Command::READ, (100, 6), &[]);
    assert_eq!(reply.data[0].1, b"abcdef");
}

/// The controller gives up a command that hangs, and the medium still has its memory.
#[test]
fn no_slot_is_used_again_that_a_medium_may_have() {
    let mut rig = Rig::new(9, Style::Simple);
    rig.hold();
    rig.ask(Command::WRITE, NONE, 1, (0, 512), &[1; 512]);
    rig.settle();
    rig.with_controller(|controller| controller.abandon(u64::MAX));
    rig.settle();
    assert_eq!(rig.ends, ["medium-hangs"]);
    assert_eq!(rig.reply(|_| 0), None);
}

/// Replies without data have no slots.
#[test]
fn a_client_that_reads_nothing_asks_for_little() {
    for command in [Command::FLUSH, Command(99), Command::CACHE] {
        let mut rig = Rig::new(9, Style::Structured);
        rig.reads = false;
        for cookie in 0..20_000 {
            rig.ask(command, NONE, cookie, (0, 0), &[]);
        }
        rig.settle();
        let client = rig.client.as_ref().unwrap();
        assert_eq!(client.connection().1, [false, true]);
        // Bytes that the socket has taken, and a few more.
        assert!(
            client.counters().requests < 15_000,
            "{:?}",
            client.counters()
        );
        rig.reads = true;
        rig.settle();
        let mut seen = 0;
        while rig.reply(|_| 0).is_some() {
            seen += 1;
        }
        assert_eq!(seen, 20_000);
    }
}

/// Also where its requests wait for slots.
#[test]
fn a_client_that_has_left_is_noticed_while_it_is_not_read() {
    let mut rig = Rig::new(9, Style::Simple);
    rig.hold();
    for cookie in 0..300 {
        rig.ask(Command::WRITE, NONE, cookie, (0, 512), &[1; 512]);
    }
    rig.settle();
    let client = rig.client.as_ref().unwrap();
    assert_eq!(client.connection().1, [false, false]);
    rig.socket.shutdown(std::net::Shutdown::Both).unwrap();
    rig.settle();
    assert!(rig.client.is_some());
    rig.advance(Duration::from_secs(1));
    rig.settle();
    assert_eq!(rig.ends, ["closed"]);
}

/// It has asked for the end, and its last command hangs: it keeps no place for that.
#[test]
fn a_client_that_has_asked_to_leave_and_left_is_noticed() {
    let mut rig = Rig::new(9, Style::Simple);
    rig.hold();
    rig.ask(Command::WRITE, NONE, 1, (0, 512), &[1; 512]);
    rig.ask(Command::DISC, NONE, 2, (0, 0), &[]);
    rig.settle();
    rig.advance(Duration::from_secs(2));
    rig.settle();
    assert!(rig.client.is_some(), "it waits for the reply");
    rig.socket.shutdown(std::net::Shutdown::Both).unwrap();
    rig.advance(Duration::from_secs(1));
    rig.settle();
    assert_eq!(rig.ends, ["closed"]);
}

/// Also of reads with more pieces than slots, beside which others go on.
#[test]
fn long_requests_are_served_in_pieces() {
    for style in STYLES {
        let mut rig = Rig::new(12, style);
        let mut random = Random(3);
        let bytes = random.bytes(20 << 20);
        let reply = rig.asked(Command::WRITE, (777, bytes.len() as u64), &bytes);
        assert_eq!(reply.error, 0);
        let lens: [u64; 4] = [20 << 20, 100, 17 << 20, 9 << 20];
        for (cookie, len) in (0..).zip(lens) {
            rig.ask(Command::READ, NONE, cookie, (777, len), &[]);
        }
        rig.settle();
        let mut seen = Vec::new();
        while let Some(reply) = rig.reply(|cookie| lens[cookie as usize]) {
            let len = lens[reply.cookie as usize] as usize;
            assert!(read_of(&reply, 777, len) == bytes[..len], "{style:?}");
            seen.push(reply.cookie);
        }
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3], "{style:?}");
    }
}

#[test]
fn no_reply_comes_inside_a_long_one() {
    let mut rig = Rig::new(12, Style::Simple);
    rig.ask(Command::READ, NONE, 0, (0, 20 << 20), &[]);
    // The first one is answered at once, without a command.
    rig.ask(Command::TRIM, NONE, 1, (LEN, 1), &[]);
    rig.ask(Command::FLUSH, NONE, 2, (0, 0), &[]);
    rig.settle();
    let long = rig.reply(|_| 20 << 20).unwrap();
    assert!(long.data[0].1.iter().all(|byte| *byte == 0));
    let errors = [(); 2].map(|()| rig.reply(|_| 0).map(|reply| (reply.cookie, reply.error)));
    assert_eq!(errors, [Some((1, INVALID)), Some((2, 0))]);
}

#[test]
fn a_client_that_reads_late_gets_all() {
    for style in STYLES {
        let mut rig = Rig::new(9, style);
        rig.reads = false;
        for cookie in 0..400 {
            rig.ask(Command::READ, NONE, cookie, (cookie * 65536, 65536), &[]);
        }
        rig.settle();
        let client = rig.client.as_ref().unwrap();
        // The socket is readable all the time, and has room when the client reads.
        assert_eq!(client.connection().1, [false, true]);
        assert!(
            client.counters().requests < 400,
            "the others wait in the socket"
        );
        rig.reads = true;
        rig.settle();
        let mut seen = 0;
        while let Some(reply) = rig.reply(|_| 65536) {
            assert_eq!(reply.error, 0);
            seen += 1;
        }
        assert_eq!(seen, 400);
        assert_eq!(rig.client.as_ref().unwrap().connection().1, [true, false]);
    }
}

/// A reactor polls a connection for other events only where the count has grown.
#[test]
fn each_change_of_the_awaited_events_is_counted() {
    let mut rig = Rig::new(9, Style::Structured);
    rig.settle();
    let mut before = (0, [true, false]);
    let mut seen = Vec::new();
    let mut see = |rig: &Rig| {
        let client = rig.client.as_ref().unwrap();
        let now = (client.changes(), client.connection().1);
        assert!(now.1 == before.1 || now.0 > before.0);
        if now.1 != before.1 {
            seen.push(now.1);
        }
        before = now;
    };
    // More requests than there may be at the same time, whose replies the socket takes.
    for cookie in 0..200 {
        rig.ask(Command::FLUSH, NONE, cookie, (0, 0), &[]);
    }
    for _ in 0..20 {
        rig.turn();
        see(&rig);
    }
    // And replies that it does not take.
    rig.reads = false;
    for cookie in 0..8 {
        rig.ask(Command::READ, NONE, cookie, (0, 65536), &[]);
    }
    for reads in [false, true] {
        rig.reads = reads;
        for _ in 0..20 {
            rig.turn();
            see(&rig);
        }
    }
    let (idle, full, late) = ([true, false], [false, false], [true, true]);
    assert_eq!(seen, [full, idle, late, idle]);
}

#[test]
fn wrong_requests_get_their_errors_and_cost_nothing_else() {
    for style in STYLES {
        let mut rig = Rig::new(9, style);
        let over = LEN - 100;
        let df = style != Style::Simple;
        let cases: &[(Command, CommandFlags, (u64, u64), u32)] = &[
            (Command::READ, NONE, (over, 101), INVALID),
            (Command::READ, NONE, (u64::MAX, 2), INVALID),
            (Command::READ, NONE, (0, (32 << 20) + 1), INVALID),
            (Command::TRIM, NONE, (over, 101), INVALID),
            (Command::CACHE, NONE, (LEN, 1), INVALID),
            (Command::WRITE_ZEROES, NONE, (over, 101), NO_SPACE),
            (Command::BLOCK_STATUS, NONE, (0, 512), INVALID),
            (Command(8), NONE, (0, 512), INVALID),
            (Command::READ, NONE.with_no_hole(true), (0, 1), INVALID),
            (Command::TRIM, NONE.with_df(true), (0, 1), INVALID),
            (
                Command::WRITE_ZEROES,
                NONE.with_fast_zero(true),
                (0, 512),
                0,
            ),
            (
                Command::WRITE_ZEROES,
                NONE.with_fast_zero(true).with_no_hole(true),
                (0, 512),
                NOT_SUPPORTED,
            ),
            (Command::TRIM, NONE.with_fast_zero(true), (0, 512), INVALID),
            (
                Command::READ,
                NONE.with_df(true),
                (0, 512),
                if df { 0 } else { INVALID },
            ),
            (
                Command::READ,
                NONE.with_df(true),
                (0, 9 << 20),
                if df { 75 } else { INVALID },
            ),
            (Command::READ, NONE, (over, 100), 0),
            (Command::READ, NONE, (5, 0), 0),
            (Command::TRIM, NONE, (5, 0), 0),
            (Command::FLUSH, NONE, (0, 0), 0),
            (Command::FLUSH, NONE.with_fua(true), (9, 9), 0),
        ];
        for (command, flags, range, error) in cases {
            let reply = rig.asked_with(*command, *flags, *range, &[]);
            assert_eq!(
                reply.error, *error,
                "{style:?} {command:?} {flags:?} {range:?}"
            );
        }
        // Of a refused write the data are left out.
        let reply = rig.asked(Command::WRITE, (over, 100_000), &[7; 100_000]);
        assert_eq!(reply.error, NO_SPACE);
        let reply = rig.asked(Command::READ, (over, 100), &[]);
        assert_eq!(reply.data[0].1, [0; 100]);
        assert_eq!(rig.asked(Command::WRITE, (5, 0), &[]).error, 0);
        assert!(rig.ends.is_empty());
    }
}

#[test]
fn a_read_that_fails_is_an_error_or_the_end() {
    for style in STYLES {
        let mut rig = Rig::new(9, style);
        rig.fail(Some(1 << 20..2 << 20));
        let reply = rig.asked(Command::READ, (1 << 20, 512), &[]);
        assert_eq!(reply.error, IO);
        // A part of a block that cannot be read is not written.
        assert_eq!(
            rig.asked(Command::WRITE, ((1 << 20) + 1, 1), &[1]).error,
            IO
        );
        assert_eq!(
            rig.asked(Command::WRITE, (1 << 20, 512), &[1; 512]).error,
            0
        );
        let reply = rig.asked(Command::READ, (0, 3 << 20), &[]);
        assert_eq!(reply.error, IO, "{style:?}");
        // With fewer slots than pieces the first pieces are gone before the error is known.
        rig.fail(Some(15 << 20..16 << 20));
        rig.ask(Command::READ, NONE, 1, (0, 20 << 20), &[]);
        rig.settle();
        if style == Style::Simple {
            assert_eq!(rig.ends, ["read-failed"]);
            continue;
        }
        assert_eq!(rig.reply(|_| 0).unwrap().error, IO);
        rig.fail(None);
        let reply = rig.asked(Command::READ, (0, 20 << 20), &[]);
        assert_eq!(reply.error, 0, "no slot is lost");
    }
}

#[test]
fn an_export_that_is_read_only_takes_no_change() {
    for style in STYLES {
        let mut rig = Rig::with(9, style, true);
        for command in [Command::WRITE, Command::WRITE_ZEROES, Command::TRIM] {
            let data: &[u8] = if command == Command::WRITE {
                &[1; 512]
            } else {
                &[]
            };
            assert_eq!(rig.asked(command, (512, 512), data).error, PERM);
        }
        for command in [Command::FLUSH, Command::CACHE] {
            assert_eq!(rig.asked(command, (0, 512), &[]).error, 0);
        }
        let reply = rig.asked(Command::READ, (0, 2048), &[]);
        assert_eq!(read_of(&reply, 0, 2048), [0; 2048]);
        assert_eq!(rig.take_stable(), [true], "the flush");
    }
}

#[test]
fn what_has_fua_is_stable_when_it_is_answered() {
    let whole = (4096, 4096);
    let part = (4097, 3);
    // A part at each end, and a block between them.
    let both = (4000, 4096 + 200);
    for (command, range, commands) in [
        (Command::WRITE, whole, 1),
        (Command::WRITE, part, 1),
        (Command::WRITE, both, 3),
        (Command::WRITE_ZEROES, whole, 1),
        (Command::WRITE_ZEROES, part, 1),
        (Command::WRITE_ZEROES, both, 3),
    ] {
        for fua in [false, true] {
            let mut rig = Rig::new(12, Style::Structured);
            let data = vec![1; range.1 as usize];
            let data = if command == Command::WRITE {
                &data[..]
            } else {
                &[]
            };
            let reply = rig.asked_with(command, NONE.with_fua(fua), range, data);
            assert_eq!(reply.error, 0);
            assert_eq!(
                rig.take_stable(),
                vec![fua; commands],
                "{command:?} {range:?}"
            );
        }
    }
    // There is no such flag of Dataset Management: a Flush is behind it.
    let mut rig = Rig::new(12, Style::Structured);
    assert_eq!(rig.asked(Command::TRIM, whole, &[]).error, 0);
    assert_eq!(rig.take_stable(), [false]);
    let reply = rig.asked_with(Command::TRIM, NONE.with_fua(true), whole, &[]);
    assert_eq!((reply.error, rig.take_stable()), (0, vec![false, true]));
}

/// The first piece of a long read fails, before anything was sent.
#[test]
fn a_long_read_that_fails_at_once_is_an_error() {
    let mut rig = Rig::new(9, Style::Simple);
    rig.fail(Some(0..1));
    for _ in 0..3 {
        assert_eq!(rig.asked(Command::READ, (0, 20 << 20), &[]).error, IO);
    }
    rig.fail(None);
    let reply = rig.asked(Command::READ, (0, 20 << 20), &[]);
    assert_eq!((reply.error, reply.data[0].1.len()), (0, 20 << 20));
}

#[test]
fn a_client_that_leaves_is_answered_first() {
    let mut rig = Rig::new(9, Style::Structured);
    rig.ask(Command::WRITE, NONE, 1, (3, 3), b"abc");
    rig.ask(Command::DISC, NONE, 2, (0, 0), &[]);
    rig.ask(Command::WRITE, NONE, 3, (3, 3), b"xyz");
    rig.settle();
    assert_eq!(rig.reply(|_| 0).map(|reply| reply.cookie), Some(1));
    assert_eq!(
        rig.reply(|_| 0),
        None,
        "nothing is taken behind the request to end"
    );
    assert_eq!(rig.ends, ["closed"]);
}

#[test]
fn what_is_no_request_ends_the_connection() {
    for (bytes, end) in [
        (&[0x25, 0x60, 0x95, 0x14][..], "request-magic"),
        (&[][..], "request-length"),
    ] {
        let mut rig = Rig::new(9, Style::Simple);
        if bytes.is_empty() {
            rig.ask(Command::WRITE, NONE, 1, (0, (32 << 20) + 1), &[]);
        } else {
            rig.send(bytes);
            rig.send(&[0; 24]);
        }
        rig.settle();
        assert_eq!(rig.ends, [end]);
    }
}

#[test]
fn a_client_that_stops_has_two_minutes() {
    for case in ["data", "head", "skipped", "replies"] {
        let mut rig = Rig::new(9, Style::Simple);
        match case {
            "data" => rig.ask(Command::WRITE, NONE, 1, (0, 4096), &[1; 4095]),
            "head" => rig.send(&[0x25, 0x60, 0x95, 0x13, 0, 0]),
            "skipped" => rig.ask(Command::WRITE, NONE, 1, (LEN, 4096), &[1; 4095]),
            _ => {
                rig.reads = false;
                for cookie in 0..100 {
                    rig.ask(Command::READ, NONE, cookie, (0, 65536), &[]);
                }
            }
        }
        rig.settle();
        let due = rig.client.as_ref().unwrap().next_deadline();
        assert!(due.is_some_and(|due| due > rig.now()), "{case}");
        rig.advance(Duration::from_secs(119));
        rig.settle();
        assert!(rig.client.is_some(), "{case}");
        rig.advance(Duration::from_secs(2));
        rig.settle();
        let end = if case == "replies" {
            "does-not-read"
        } else {
            "slow-data"
        };
        assert_eq!(rig.ends, [end], "{case}");
    }
    // One that asks for nothing may stay.
    let mut rig = Rig::new(9, Style::Simple);
    assert_eq!(rig.asked(Command::READ, (0, 1), &[]).error, 0);
    rig.settle();
    assert_eq!(rig.client.as_ref().unwrap().next_deadline(), None);
    rig.advance(Duration::from_secs(10_000));
    assert_eq!(rig.asked(Command::READ, (0, 1), &[]).error, 0);
}

#[test]
fn a_controller_that_is_reset_ends_its_client() {
    let mut rig = Rig::new(9, Style::Simple);
    rig.with_controller(|controller| controller.function_reset());
    rig.settle();
    assert_eq!(rig.ends, ["controller"]);
}

#[test]
fn a_namespace_with_other_blocks_ends_its_clients() {
    for (lba_shift, nsid) in [(9, 1), (12, 2)] {
        let mut rig = Rig::new(lba_shift, Style::Simple);
        // The other one is not theirs.
        rig.format(3 - nsid, lba_shift);
        rig.settle();
        assert_eq!(rig.asked(Command::READ, (0, 1), &[]).error, 0);
        rig.format(nsid, lba_shift ^ 9 ^ 12);
        rig.settle();
        assert_eq!(rig.ends, ["changed"]);
    }
}

#[test]
fn a_namespace_that_is_detached_ends_its_clients() {
    let mut rig = Rig::new(9, Style::Simple);
    rig.detach(1);
    rig.settle();
    assert_eq!(rig.ends, ["changed"]);
}
