//! Requests of every operation, and those that no kernel makes.

use rustix::io::Errno;
use subsystem::OperatorRequest;
use transport::ublk::Counters;
use ublk::{Operation, RequestFlags};

use super::kernel::Ask;
use super::rig::{LEN, Rig, Shape};
use crate::failing::Asked;
use crate::vhost_user::Random;

fn shapes() -> impl Iterator<Item = Shape> {
    [(9, false), (12, false), (9, true), (12, true)]
        .into_iter()
        .map(|(lba_shift, user_copy)| Shape {
            lba_shift,
            user_copy,
            ..Shape::default()
        })
}

#[test]
fn data_are_where_the_kernel_wants_them() {
    for shape in shapes() {
        let mut rig = Rig::new(shape);
        let mut random = Random(shape.lba_shift.into());
        let block = 1_usize << shape.lba_shift;
        let per_block = (block / 512) as u64;
        let mut model = vec![0; LEN as usize];
        // One page, two of them, what needs a list, and the most.
        for len in [block, 4096, 8192, 12288, 128 << 10, 256 << 10] {
            for _ in 0..4 {
                let blocks = (LEN as usize - len) / block;
                let at = random.below(blocks as u64 + 1) * per_block;
                let bytes = random.bytes(len);
                model[at as usize * 512..][..len].copy_from_slice(&bytes);
                let done = rig.run(Ask::write(at, &bytes));
                assert_eq!((done.result, done.sector), (len as i32, None));
                let from = random.below(blocks as u64 + 1) * per_block;
                let done = rig.run(Ask::read(from, (len / 512) as u32));
                assert_eq!(done.result, len as i32);
                assert!(done.data == model[from as usize * 512..][..len]);
            }
        }
        // The last block.
        let last = LEN / 512 - per_block;
        rig.succeed(Ask::write(last, &vec![7; block]));
        assert_eq!(
            rig.succeed(Ask::read(last, per_block as u32)),
            vec![7; block]
        );
        let done = rig.run(Ask::new(Operation::FLUSH, u64::MAX, 0));
        assert_eq!(done.result, 0);
        let counters = rig.session.as_ref().unwrap().counters();
        let all = Counters {
            requests: 51,
            failed: 0,
        };
        assert_eq!(counters, all);
    }
}

#[test]
fn zeroes_and_discards_are_ranges_of_any_length() {
    for shape in shapes() {
        let mut rig = Rig::new(shape);
        let sector = 2048;
        rig.succeed(Ask::write(sector, &[9; 65536]));
        for operation in [Operation::WRITE_ZEROES, Operation::DISCARD] {
            let done = rig.run(Ask::new(operation, sector + 16, 32));
            assert_eq!(done.result, 0);
            let data = rig.succeed(Ask::read(sector, 128));
            assert!(data[..16 * 512].iter().all(|byte| *byte == 9));
            assert!(data[16 * 512..48 * 512].iter().all(|byte| *byte == 0));
            assert!(data[48 * 512..].iter().all(|byte| *byte == 9));
            rig.succeed(Ask::write(sector, &[9; 65536]));
        }
        // All of the disk in one request.
        let all = (LEN / 512) as u32;
        for operation in [Operation::DISCARD, Operation::WRITE_ZEROES] {
            rig.succeed(Ask::write(sector, &[9; 4096]));
            assert_eq!(rig.run(Ask::new(operation, 0, all)).result, 0);
            assert_eq!(rig.succeed(Ask::read(sector, 8)), [0; 4096]);
        }
    }
}

#[test]
fn flags_are_those_of_the_commands() {
    let mut rig = Rig::new(Shape::default());
    let zeroes = || Ask::new(Operation::WRITE_ZEROES, 0, 8);
    for (ask, asked) in [
        (Ask::write(0, &[1; 512]), Asked::Write { fua: false }),
        (Ask::write(0, &[1; 512]).fua(), Asked::Write { fua: true }),
        (
            zeroes(),
            Asked::Zero {
                fua: false,
                deallocates: true,
            },
        ),
        (
            zeroes().fua(),
            Asked::Zero {
                fua: true,
                deallocates: true,
            },
        ),
        (
            zeroes().nounmap(),
            Asked::Zero {
                fua: false,
                deallocates: false,
            },
        ),
        (Ask::new(Operation::DISCARD, 0, 8), Asked::Deallocate),
        (Ask::new(Operation::FLUSH, 0, 0), Asked::Flush),
    ] {
        rig.medium(|medium| medium.asked.clear());
        assert!(rig.run(ask).result >= 0, "{asked:?}");
        assert_eq!(rig.medium(|medium| medium.asked.clone()), [asked]);
    }
}

/// Requests that no kernel makes have an outcome, and change nothing.
#[test]
fn outcomes_of_what_cannot_be_done() {
    for shape in shapes() {
        let mut rig = Rig::new(shape);
        let (big, all) = (shape.lba_shift == 12, LEN / 512);
        let ask = Ask::new;
        let mut cases = vec![
            // No sectors.
            (ask(Operation::READ, 0, 0), Errno::INVAL),
            (ask(Operation::WRITE, 0, 0), Errno::INVAL),
            (ask(Operation::DISCARD, 0, 0), Errno::INVAL),
            (ask(Operation::WRITE_ZEROES, 0, 0), Errno::INVAL),
            // Behind the buffer, and the longest one.
            (ask(Operation::READ, 0, 520), Errno::INVAL),
            (ask(Operation::WRITE, 0, 520), Errno::INVAL),
            (ask(Operation::READ, 0, u32::MAX - 7), Errno::INVAL),
            (ask(Operation::WRITE_ZEROES, 0, u32::MAX - 7), Errno::INVAL),
            // Behind the disk.
            (Ask::read(all, 8), Errno::IO),
            (Ask::read(all - 8, 16), Errno::IO),
            (Ask::write(all, &[1; 4096]), Errno::IO),
            (ask(Operation::DISCARD, 0, u32::MAX - 7), Errno::IO),
            (ask(Operation::DISCARD, all, 8), Errno::IO),
            (ask(Operation::WRITE_ZEROES, all - 8, 16), Errno::IO),
            // Sectors whose end has no number.
            (Ask::read(u64::MAX - 7, 8), Errno::IO),
            (Ask::read(u64::MAX - 7, 512), Errno::IO),
            (Ask::write(u64::MAX - 7, &[1; 8192]), Errno::IO),
            (ask(Operation::DISCARD, u64::MAX - 7, 8192), Errno::IO),
            (ask(Operation::WRITE_ZEROES, u64::MAX - 7, 8), Errno::IO),
        ];
        if big {
            for (start, sectors) in [(1, 8), (4, 8), (0, 4), (8, 7), (u64::MAX, 8)] {
                cases.push((Ask::read(start, sectors), Errno::INVAL));
                for operation in [
                    Operation::WRITE,
                    Operation::DISCARD,
                    Operation::WRITE_ZEROES,
                ] {
                    cases.push((ask(operation, start, sectors), Errno::INVAL));
                }
            }
        } else {
            cases.push((Ask::read(u64::MAX, 1), Errno::IO));
            cases.push((ask(Operation::WRITE_ZEROES, 0, 65537), Errno::INVAL));
        }
        // Operations on zones where the disk has none, and unknown operations.
        for operation in [4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 255] {
            cases.push((ask(Operation(operation), 0, 8), Errno::OPNOTSUPP));
        }
        rig.succeed(Ask::write(0, &[5; 4096]));
        let count = cases.len() as u64;
        for (ask, errno) in cases {
            let what = format!("{ask:?}");
            assert_eq!(rig.run(ask).errno(), errno, "{what}");
        }
        assert_eq!(rig.end, None);
        assert_eq!(rig.succeed(Ask::read(0, 8)), [5; 4096]);
        let counters = rig.session.as_ref().unwrap().counters();
        assert_eq!((counters.requests, counters.failed), (count + 2, count));
    }
}

/// Flags that mean nothing here change nothing.
#[test]
fn unknown_flags_are_no_reason_to_fail() {
    let mut rig = Rig::new(Shape::default());
    for flags in [u32::MAX, 0xfff0_0000, 0x0001_ff00] {
        let flags = RequestFlags::from(flags);
        let write = Ask {
            flags,
            ..Ask::write(8, &[3; 512])
        };
        rig.succeed(write);
        let read = Ask {
            flags,
            ..Ask::read(8, 1)
        };
        assert_eq!(rig.succeed(read), [3; 512]);
    }
}

/// The driver turns error numbers into the block layer's by `errno_to_blk_status`.
#[test]
fn failures_have_the_error_numbers_of_the_block_layer() {
    let mut rig = Rig::new(Shape::default());
    rig.succeed(Ask::write(0, &[1; 512]));
    rig.medium(|medium| {
        medium.fails = Some(0..4096);
        medium.fails_writes = Some(0..4096);
    });
    // BLK_STS_MEDIUM, and BLK_STS_IOERR.
    assert_eq!(rig.run(Ask::read(0, 1)).errno(), Errno::NODATA);
    assert_eq!(rig.run(Ask::write(0, &[2; 512])).errno(), Errno::IO);
    rig.medium(|medium| (medium.fails, medium.fails_writes) = (None, None));
    rig.ask_operator(OperatorRequest::SetReadOnly {
        nsid: 1,
        read_only: true,
    });
    rig.settle();
    assert_eq!(rig.run(Ask::write(0, &[2; 512])).errno(), Errno::IO);
    assert_eq!(
        rig.run(Ask::new(Operation::DISCARD, 0, 8)).errno(),
        Errno::IO
    );
    assert_eq!(rig.succeed(Ask::read(0, 1)), [1; 512]);
    assert_eq!(rig.session.as_ref().unwrap().counters().failed, 4);
}

/// Data that cannot be copied fail their request alone.
#[test]
fn a_copy_that_fails_is_an_error_of_its_request() {
    let mut rig = Rig::new(Shape {
        user_copy: true,
        ..Shape::default()
    });
    rig.succeed(Ask::write(0, &[1; 4096]));
    rig.kernel_mut().fails_copies = true;
    let commands = rig.medium(|medium| medium.commands);
    assert_eq!(rig.run(Ask::write(0, &[2; 4096])).errno(), Errno::IO);
    assert_eq!(rig.medium(|medium| medium.commands), commands);
    assert_eq!(rig.run(Ask::read(0, 8)).errno(), Errno::IO);
    assert_eq!(rig.run(Ask::new(Operation::FLUSH, 0, 0)).result, 0);
    rig.kernel_mut().fails_copies = false;
    assert_eq!(rig.succeed(Ask::read(0, 8)), [1; 4096]);
}
