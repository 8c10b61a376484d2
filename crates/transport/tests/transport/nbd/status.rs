//! Block status: extents of `base:allocation`, and what is refused.

use nbd::{Command, CommandFlags};

use super::rig::{LEN, Rig, Style};
use super::{INVALID, NONE, Random, SHIFTS, read_of};

/// Styles with chunks: others have no context.
const CHUNKED: [Style; 2] = [Style::Structured, Style::Extended];
/// `NBD_STATE_HOLE` and `NBD_STATE_ZERO`.
const HOLE: u64 = 1 | 2;

const ONE: CommandFlags = NONE.with_req_one(true);

/// The extents of a range.
///
/// # Panics
/// They break a rule of the specification.
fn extents(rig: &mut Rig, flags: CommandFlags, range: (u64, u64)) -> Vec<(u64, u64)> {
    let reply = rig.asked_with(Command::BLOCK_STATUS, flags, range, &[]);
    assert_eq!(reply.error, 0, "{range:?}");
    let extents = reply.extents;
    assert!((1..=1024).contains(&extents.len()));
    if flags.req_one() {
        assert_eq!(extents.len(), 1);
    }
    let sum: u64 = extents.iter().map(|(len, _)| len).sum();
    assert!(sum <= range.1, "they end within the request");
    for (at, (len, state)) in extents.iter().enumerate() {
        assert!(*len > 0 && [0, HOLE].contains(state));
        assert!(at == 0 || extents[at - 1].1 != *state, "neighbours differ");
    }
    extents
}

#[test]
fn a_new_export_is_a_hole_until_it_is_written() {
    for style in CHUNKED {
        for shift in SHIFTS {
            let mut rig = Rig::described(shift, style);
            assert_eq!(extents(&mut rig, NONE, (0, LEN)), [(LEN, HOLE)]);
            assert_eq!(extents(&mut rig, NONE, (100, 7)), [(7, HOLE)]);
            assert_eq!(
                extents(&mut rig, ONE, (511, LEN - 511)),
                [(LEN - 511, HOLE)]
            );
            // A part of a block.
            let at = (20 << 20) + 5;
            assert_eq!(rig.asked(Command::WRITE, (at, 3), b"abc").error, 0);
            assert_eq!(extents(&mut rig, NONE, (at, 3)), [(3, 0)]);
            let all = extents(&mut rig, NONE, (0, LEN));
            let states: Vec<u64> = all.iter().map(|(_, state)| *state).collect();
            assert_eq!(states, [HOLE, 0, HOLE]);
            assert!(all[0].0 <= at && all[0].0 + all[1].0 >= at + 3);
            assert_eq!(all.iter().map(|(len, _)| len).sum::<u64>(), LEN);
            assert_eq!(extents(&mut rig, ONE, (0, LEN)), all[..1]);
            assert_eq!(rig.asked(Command::TRIM, (0, LEN), &[]).error, 0);
            assert_eq!(extents(&mut rig, NONE, (0, LEN)), [(LEN, HOLE)]);
        }
    }
}

#[test]
fn wrong_requests_are_refused() {
    for style in CHUNKED {
        let mut rig = Rig::described(9, style);
        let cases = [
            (NONE, (0, 0)),
            (NONE, (LEN, 1)),
            (NONE, (LEN - 5, 6)),
            (NONE, (u64::MAX, 2)),
            (NONE.with_df(true), (0, 512)),
            (NONE.with_no_hole(true), (0, 512)),
        ];
        for (flags, range) in cases {
            let reply = rig.asked_with(Command::BLOCK_STATUS, flags, range, &[]);
            assert_eq!((reply.error, reply.extents), (INVALID, vec![]), "{range:?}");
        }
        assert_eq!(extents(&mut rig, NONE, (LEN - 5, 5)), [(5, HOLE)]);
        assert!(rig.ends.is_empty());
        // As every request without its context: see `wrong_requests_get_their_errors`.
        let mut rig = Rig::new(9, style);
        let reply = rig.asked(Command::BLOCK_STATUS, (0, 512), &[]);
        assert_eq!((reply.error, reply.extents), (INVALID, vec![]));
    }
}

/// Blocks of which some cannot be read are data: a client reads them, and finds what is wrong.
#[test]
fn what_cannot_be_read_is_no_hole() {
    for style in CHUNKED {
        let mut rig = Rig::described(9, style);
        assert_eq!(extents(&mut rig, NONE, (0, 8192)), [(8192, HOLE)]);
        rig.mark(1, 4, 2);
        assert_eq!(extents(&mut rig, NONE, (0, 8192)), [(8192, 0)]);
        assert_eq!(extents(&mut rig, NONE, (0, 2048)), [(2048, HOLE)]);
        assert_eq!(extents(&mut rig, NONE, (3072, 512)), [(512, HOLE)]);
    }
}

/// Random changes, and the extents of random ranges against a plain array.
#[test]
fn zeroes_are_zeroes() {
    for (seed, style) in CHUNKED.into_iter().enumerate() {
        for shift in SHIFTS {
            let mut random = Random(seed as u64 + u64::from(shift));
            let mut rig = Rig::described(shift, style);
            let mut bytes = vec![0; LEN as usize];
            let mut holes = 0;
            for _ in 0..80 {
                let len = 1 + random.below(300_000);
                let at = random.below(LEN - len);
                let range = at as usize..(at + len) as usize;
                match random.below(4) {
                    0 => {
                        assert_eq!(rig.asked(Command::WRITE_ZEROES, (at, len), &[]).error, 0);
                        bytes[range.clone()].fill(0);
                    }
                    1 => {
                        assert_eq!(rig.asked(Command::TRIM, (at, len), &[]).error, 0);
                        let (from, to) = (at.next_multiple_of(1 << shift), (at + len) >> shift);
                        let (from, to) = (from as usize, (to << shift) as usize);
                        if from < to {
                            bytes[from..to].fill(0);
                        }
                    }
                    _ => {
                        let data = random.bytes(len as usize);
                        assert_eq!(rig.asked(Command::WRITE, (at, len), &data).error, 0);
                        bytes[range.clone()].copy_from_slice(&data);
                    }
                }
                let found = extents(&mut rig, NONE, (at, len));
                let len = 1 + random.below(LEN / 2);
                let far = random.below(LEN - len);
                let one = NONE.with_req_one(random.below(2) == 0);
                let others = extents(&mut rig, one, (far, len));
                for (mut at, all) in [(at, found), (far, others)] {
                    for (len, state) in all {
                        if state == HOLE {
                            holes += 1;
                            let hole = &bytes[at as usize..(at + len) as usize];
                            assert!(hole.iter().all(|byte| *byte == 0), "{len} at {at}");
                        }
                        at += len;
                    }
                }
            }
            assert!(holes > 20, "there are holes");
            let reply = rig.asked(Command::READ, (0, 32 << 20), &[]);
            assert!(read_of(&reply, 0, 32 << 20) == bytes[..32 << 20]);
        }
    }
}

/// Requests of which only a part is answered at once, beside writes, one behind the other.
#[test]
fn many_requests_are_answered_each() {
    for style in CHUNKED {
        let mut rig = Rig::described(9, style);
        for cookie in 0..200_u64 {
            let range = (cookie << 9, 512);
            if cookie % 3 == 0 {
                rig.ask(Command::WRITE, NONE, cookie, range, &[7; 512]);
            } else {
                rig.ask(Command::BLOCK_STATUS, NONE, cookie, range, &[]);
            }
        }
        let mut seen = [false; 200];
        for _ in 0..10_000 {
            rig.turn();
            while let Some(reply) = rig.reply(|_| 0) {
                assert_eq!(reply.error, 0);
                let is_write = reply.cookie % 3 == 0;
                let sum: u64 = reply.extents.iter().map(|(len, _)| len).sum();
                assert_eq!(sum, if is_write { 0 } else { 512 });
                assert!(!std::mem::replace(&mut seen[reply.cookie as usize], true));
            }
            if seen == [true; 200] {
                break;
            }
            std::thread::park_timeout(std::time::Duration::from_micros(100));
        }
        assert_eq!(seen, [true; 200]);
        rig.settle();
        assert!(rig.client.as_ref().is_some_and(|it| !it.has_io_in_flight()));
    }
}
