//! Two channels of one medium, each on a thread of its own: commands of one do not mix with those
//! of the other, from the moment on at which the second is opened while the first is at work.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use media::{Direct, Medium, MediumKind, MediumSpec};
use port::{ByteRange, Cause, Channel as _, Outcome, Request};

use crate::common::{Host, Runner, in_memory, on_disk, open_file};

const SIZE: u64 = 16 << 20;
/// Commands of one thread at a time, and the host's memory for each.
const DEPTH: usize = 6;

/// Every way in which bytes are kept, with how many commands a thread does there.
fn media(directories: &[tempfile::TempDir; 2]) -> Vec<(Arc<Medium>, usize)> {
    let ram = MediumSpec {
        kind: MediumKind::Ram { size: SIZE },
    };
    let [disk, memory] = directories.each_ref().map(|directory| directory.path());
    let open = |path, direct| open_file(path, Some(SIZE), direct);
    vec![
        (open(&disk.join("direct"), Direct::Auto), 400),
        (open(&disk.join("cached"), Direct::Off), 1500),
        (open(&memory.join("tmpfs"), Direct::Auto), 1500),
        (Medium::open(&ram).expect("opened"), 4000),
    ]
}

fn directories() -> [tempfile::TempDir; 2] {
    [on_disk(), in_memory()]
}

/// Runs `first` and, once that has begun its work, `second` on another thread.
fn beside(
    medium: &Arc<Medium>,
    first: impl FnOnce(&mut Runner, &dyn Fn()) + Send,
    second: impl FnOnce(&mut Runner) + Send,
) {
    let (begun, has_begun) = mpsc::sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut runner = Runner::new(medium, DEPTH as u16);
            first(&mut runner, &|| begun.send(()).expect("somebody waits"));
        });
        scope.spawn(move || {
            has_begun.recv().expect("the first has begun");
            second(&mut Runner::new(medium, DEPTH as u16));
        });
    });
}

/// One of the commands that change all of a place to some byte, or a part of it to zeros; or read
/// it.
fn command(number: usize, offset: u64, len: u32) -> (Request<'static>, bool) {
    match number % 7 {
        0 | 3 | 6 => (Request::Read { offset, len }, true),
        1 | 4 => {
            let fua = number % 70 == 1;
            (Request::Write { offset, len, fua }, true)
        }
        2 => {
            let (len, deallocate) = (len.into(), number.is_multiple_of(2));
            let request = Request::WriteZeroes {
                offset,
                len,
                deallocate,
                fua: false,
            };
            (request, false)
        }
        _ => (Request::Flush, false),
    }
}

/// Does `count` commands at a place and looks at all that is read. `at_half` is called half way.
fn work(runner: &mut Runner, own: u8, len: u32, count: usize, at_half: &dyn Fn()) {
    let place = len as usize;
    let host = Host::new(DEPTH * place);
    let mut reads = 0;
    for round in 0..count / DEPTH {
        for at in 0..DEPTH {
            let number = round * DEPTH + at;
            host.put(at * place, &vec![own ^ (number % 64) as u8; place]);
            // A place of its own for each length.
            let (request, moves) = command(number, 4 * u64::from(len) + 512, len);
            let piece = [(at * place, place)];
            while runner
                .try_add(&host, &request, if moves { &piece } else { &[] })
                .is_none()
            {
                runner.channel.submit();
                runner.reap();
            }
        }
        if round == count / DEPTH / 2 {
            at_half();
        }
        let ended = runner.drain();
        assert!(ended.iter().all(|(_, outcome)| *outcome == Outcome::OK));
        for at in 0..DEPTH {
            let bytes = host.get(at * place, place);
            let torn = bytes.iter().position(|byte| *byte != bytes[0]);
            assert_eq!(torn, None, "{len} bytes are torn");
            reads += usize::from(bytes[0] != own ^ ((round * DEPTH + at) % 64) as u8);
        }
    }
    assert!(
        reads > 0,
        "something was read that this one has not written"
    );
}

#[test]
fn commands_of_two_threads_do_not_mix() {
    let directories = directories();
    for (medium, count) in media(&directories) {
        for len in [4096_u32, 64 << 10, 512 << 10] {
            let count = (count * 4096 / len as usize).max(120);
            beside(
                &medium,
                |runner, begun| work(runner, 0x40, len, 2 * count, begun),
                |runner| work(runner, 0x80, len, count, &|| ()),
            );
        }
    }
}

/// A counter to which both add by Compare and Write: none of what they add is lost.
#[test]
fn of_two_threads_that_expect_the_same_one_succeeds() {
    let directories = directories();
    let len = 512;
    let size = len as usize;
    let read = Request::Read { offset: 512, len };
    let value = |host: &Host| u32::from_le_bytes(host.get(0, 4).try_into().expect("four"));
    for (medium, count) in media(&directories) {
        let added = AtomicU32::new(0);
        let count_up = |runner: &mut Runner, begun: &dyn Fn()| {
            let host = Host::new(4096);
            for round in 0..count / 2 {
                if round == 3 {
                    begun();
                }
                assert_eq!(runner.run(&host, &read, &[(0, size)]), Outcome::OK);
                host.put(size, &host.get(0, size));
                host.put(size, &(value(&host) + 1).to_le_bytes());
                let request = Request::CompareAndWrite {
                    offset: 512,
                    len,
                    commit: false,
                    fua: false,
                };
                match runner.run(&host, &request, &[(0, size), (size, size)]) {
                    Outcome::OK => drop(added.fetch_add(1, Ordering::Relaxed)),
                    other => assert_eq!(other, Outcome::of(Cause::CompareMismatch)),
                }
            }
        };
        beside(&medium, count_up, |runner| count_up(runner, &|| ()));
        let host = Host::new(4096);
        let mut runner = Runner::new(&medium, 1);
        assert_eq!(runner.run(&host, &read, &[(0, size)]), Outcome::OK);
        assert_eq!(value(&host), added.into_inner(), "{}", medium.describe());
    }
}

/// A command that holds a place is not submitted, and so does not end: only other commands at that
/// place wait.
#[test]
fn who_waits_for_another_channel_goes_on_when_that_has_ended() {
    let directories = directories();
    for (medium, _) in media(&directories) {
        let what = medium.describe();
        let host = Host::new(2 << 20);
        let [mut one, mut two] = [(); 2].map(|()| Runner::new(&medium, 16));
        let (offset, len) = (1 << 20, 1_u32 << 20);
        let write = Request::Write {
            offset,
            len,
            fua: false,
        };
        let fill = |byte: u8| host.put(0, &vec![byte; len as usize]);
        let ranges = [0, offset + 512].map(|offset| ByteRange { offset, len: 1024 });
        let requests = [
            Request::Read { offset, len: 4096 },
            Request::Read { offset, len },
            Request::Write {
                offset,
                len: 512,
                fua: true,
            },
            Request::WriteZeroes {
                offset: offset - 512,
                len: 1024,
                deallocate: false,
                fua: true,
            },
            Request::Deallocate { ranges: &ranges },
            Request::CompareAndWrite {
                offset,
                len: 512,
                commit: false,
                fua: false,
            },
        ];
        for (number, request) in requests.into_iter().enumerate() {
            fill(number as u8 + 1);
            let half = len as usize;
            host.put(half, &vec![number as u8 + 1; 512]);
            host.put(half + 512, &vec![0xEE; half - 512]);
            let pieces: &[(usize, usize)] = match request {
                Request::Read { len, .. } | Request::Write { len, .. } => &[(half, len as usize)],
                Request::CompareAndWrite { .. } => &[(half, 512), (half + 512, 512)],
                _ => &[],
            };
            one.add(&host, &write, &[(0, half)]);
            two.add(&host, &request, pieces);
            two.channel.submit();
            for _ in 0..3 {
                assert!(two.channel.is_due(), "it is to be looked at again, {what}");
                two.reap();
                assert_eq!(two.channel.in_flight(), 1, "{request:?}, {what}");
            }
            // Elsewhere it goes on, and what only flushes does.
            let elsewhere = Request::Write {
                offset: 8 << 20,
                len: 4096,
                fua: false,
            };
            let others = [
                two.add(&host, &elsewhere, &[(0, 4096)]),
                two.add(&host, &Request::Flush, &[]),
            ];
            two.channel.submit();
            let mut looks = 0;
            while two.channel.in_flight() > 1 {
                two.reap();
                thread::yield_now();
                looks += 1;
                assert!(looks < 10_000_000, "{others:?} wait, {what}");
            }
            assert!(
                one.drain()
                    .iter()
                    .all(|(_, outcome)| *outcome == Outcome::OK)
            );
            assert!(
                two.drain()
                    .iter()
                    .all(|(_, outcome)| *outcome == Outcome::OK)
            );
            let found = match request {
                Request::Read { .. } => host.get(half, 512),
                _ => {
                    let read = Request::Read { offset, len: 512 };
                    assert_eq!(one.run(&host, &read, &[(0, 512)]), Outcome::OK);
                    host.get(0, 512)
                }
            };
            let expected = match request {
                Request::WriteZeroes { .. } => 0,
                Request::CompareAndWrite { .. } => 0xEE,
                _ => number as u8 + 1,
            };
            assert!(found == [expected; 512], "{request:?}, {what}");
        }
    }
}

/// A channel that was alone has its commands claimed at its next look.
#[test]
fn a_second_channel_waits_until_the_first_has_looked() {
    let directories = directories();
    for (medium, _) in media(&directories) {
        let what = medium.describe();
        let host = Host::new(2 << 20);
        let len = 1 << 20;
        let write = |offset| Request::Write {
            offset,
            len,
            fua: false,
        };
        let mut one = Runner::new(&medium, 4);
        one.add(&host, &write(0), &[(0, len as usize)]);
        let mut two = Runner::new(&medium, 4);
        let small = |offset| Request::Read { offset, len: 4096 };
        two.add(&host, &small(4096), &[(len as usize, 4096)]);
        two.add(&host, &small(4 << 20), &[(len as usize, 4096)]);
        two.channel.submit();
        two.reap();
        assert_eq!(two.channel.in_flight(), 2, "{what}");
        one.channel.tend();
        let mut looks = 0;
        while two.channel.in_flight() > 1 {
            two.channel.submit();
            two.reap();
            thread::yield_now();
            looks += 1;
            assert!(
                looks < 10_000_000,
                "it waits for what it does not meet, {what}"
            );
        }
        for _ in 0..3 {
            two.channel.submit();
            two.reap();
            assert_eq!(two.channel.in_flight(), 1, "what it meets, {what}");
        }
        assert_eq!(one.drain().len(), 1);
        assert_eq!(two.drain().len(), 2, "{what}");
    }
}

#[test]
fn a_channel_that_sleeps_keeps_nobody_waiting() {
    let directories = directories();
    for (medium, _) in media(&directories) {
        let host = Host::new(4096);
        let read = Request::Read {
            offset: 0,
            len: 4096,
        };
        let mut one = Runner::new(&medium, 4);
        assert_eq!(one.run(&host, &read, &[(0, 4096)]), Outcome::OK);
        assert!(!one.channel.is_due());
        let mut two = Runner::new(&medium, 4);
        for runner in [&mut two, &mut one] {
            assert_eq!(runner.run(&host, &read, &[(0, 4096)]), Outcome::OK);
        }
    }
}
