//! Requests to a medium, by the clients' requests.

use nbd::{Command, CommandFlags};

use super::rig::{Asked, LEN, Rig, Style};
use super::{NONE, SHIFTS};

/// A request of a range, and what its medium is asked for.
type Case<'a> = (Command, CommandFlags, (u64, u64), &'a [Asked]);

#[test]
fn flags_reach_the_medium() {
    let mut rig = Rig::new(9, Style::Simple);
    let (fua, hole) = (NONE.with_fua(true), NONE.with_no_hole(true));
    let write = |fua| Asked::Write { fua };
    let zero = |fua, deallocates| Asked::Zero { fua, deallocates };
    let cases: &[Case<'_>] = &[
        (Command::WRITE, NONE, (0, 512), &[write(false)]),
        (Command::WRITE, fua, (0, 512), &[write(true)]),
        (Command::WRITE, NONE, (7, 9), &[write(false)]),
        (Command::WRITE, fua, (7, 9), &[write(true)]),
        (Command::WRITE_ZEROES, NONE, (0, 512), &[zero(false, true)]),
        (Command::WRITE_ZEROES, hole, (0, 512), &[zero(false, false)]),
        (Command::WRITE_ZEROES, fua, (0, 512), &[zero(true, true)]),
        (Command::WRITE_ZEROES, fua, (1, 9), &[write(true)]),
        (Command::TRIM, NONE, (1, 1535), &[Asked::Deallocate]),
        (
            Command::TRIM,
            fua,
            (0, 512),
            &[Asked::Deallocate, Asked::Flush],
        ),
        (Command::TRIM, NONE, (1, 1000), &[]),
        (Command::FLUSH, NONE, (0, 0), &[Asked::Flush]),
        (Command::CACHE, NONE, (0, 512), &[]),
    ];
    rig.take_asked();
    for (command, flags, range, asked) in cases {
        let data = vec![1; range.1 as usize];
        let data = if *command == Command::WRITE {
            &data[..]
        } else {
            &[]
        };
        let reply = rig.asked_with(*command, *flags, *range, data);
        assert_eq!(reply.error, 0);
        assert_eq!(rig.take_asked(), *asked, "{command:?} {flags:?} {range:?}");
    }
}

/// More blocks than one command has room for.
#[test]
fn all_of_an_export_becomes_zero() {
    for shift in SHIFTS {
        let mut rig = Rig::new(shift, Style::Simple);
        let places = [0, (32 << 20) - 2, (32 << 20) + 4096, LEN - 5];
        for at in places {
            assert_eq!(rig.asked(Command::WRITE, (at, 5), b"abcde").error, 0);
        }
        rig.take_asked();
        assert_eq!(rig.asked(Command::WRITE_ZEROES, (0, LEN), &[]).error, 0);
        assert_eq!(rig.take_asked().len(), if shift == 9 { 2 } else { 1 });
        for at in places {
            let reply = rig.asked(Command::READ, (at, 5), &[]);
            assert_eq!(reply.data[0].1, [0; 5]);
        }
    }
}
