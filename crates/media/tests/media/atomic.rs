//! Commands that overlap do not mix, on every medium that holds bytes: what AWUN promises of a
//! block holds for whole commands (NVM 1.1, 2.1.4.1), and nothing comes between the halves of
//! Compare and Write (NVM 1.1, 2.1.3.1).

use std::sync::Arc;

use media::{Direct, Medium, MediumKind, MediumSpec};
use port::{ByteRange, Cause, Channel as _, Outcome, Request};

use crate::common::{Host, Runner, on_disk, open_file, pattern};

const SIZE: u64 = 1 << 20;
/// The host's memory for one command.
const PLACE: usize = 128 << 10;
const PLACES: usize = 24;

/// Every kind of access to a file, and memory. (On a file system without O_DIRECT the first two are
/// the same.)
fn media(directory: &tempfile::TempDir) -> Vec<Arc<Medium>> {
    let path = |name: &str| directory.path().join(name);
    let ram = MediumSpec {
        kind: MediumKind::Ram { size: SIZE },
    };
    vec![
        open_file(&path("direct"), Some(SIZE), Direct::Auto),
        open_file(&path("cached"), Some(SIZE), Direct::Off),
        Medium::open(&ram).expect("opened"),
    ]
}

fn write(offset: u64, len: u32) -> Request<'static> {
    Request::Write {
        offset,
        len,
        fua: false,
    }
}

/// The one byte that all of these are.
fn only_byte(bytes: &[u8], what: &str) -> u8 {
    let first = bytes[0];
    let torn = bytes.iter().position(|byte| *byte != first);
    assert_eq!(torn, None, "{what} is torn");
    first
}

#[test]
fn reads_and_writes_of_one_place_do_not_mix() {
    let directory = on_disk();
    for medium in media(&directory) {
        // Blocks of 512 and of 4096 bytes, and what a bounce buffer takes in two rounds; in memory
        // that direct I/O can use and in memory that it cannot.
        for (len, skew) in [(512, 0), (4096, 0), (4096, 4), (PLACE as u32 - 4096, 4)] {
            let host = Host::new(PLACES * PLACE);
            let mut runner = Runner::new(&medium, PLACES as u16);
            let piece = |place: usize| [(place * PLACE + skew, len as usize)];
            let offset = 8192;
            for round in 0..40_u8 {
                for place in 0..PLACES {
                    let fill = round.wrapping_mul(31) ^ place as u8;
                    host.put(place * PLACE, &vec![fill; PLACE]);
                    let request = match place % 2 {
                        0 => write(offset, len),
                        _ => Request::Read { offset, len },
                    };
                    runner.add(&host, &request, &piece(place));
                    if place % 5 == 4 {
                        runner.channel.submit();
                    }
                }
                let ended = runner.drain();
                assert!(ended.iter().all(|(_, outcome)| *outcome == Outcome::OK));
                for place in (1..PLACES).step_by(2) {
                    let bytes = host.get(place * PLACE + skew, len as usize);
                    only_byte(
                        &bytes,
                        &format!("a read of {len} bytes, {}", medium.describe()),
                    );
                }
                let request = Request::Read { offset, len };
                assert_eq!(runner.run(&host, &request, &piece(0)), Outcome::OK);
                let bytes = host.get(skew, len as usize);
                only_byte(&bytes, &format!("{len} bytes, {}", medium.describe()));
            }
        }
    }
}

#[test]
fn a_write_does_not_mix_with_what_clears_a_part_of_it() {
    let directory = on_disk();
    for medium in media(&directory) {
        let host = Host::new(PLACES * PLACE);
        let mut runner = Runner::new(&medium, PLACES as u16);
        let (offset, len) = (65_536, 65_536);
        let ranges = [ByteRange {
            offset: offset + 512,
            len: 40_000 / 512 * 512,
        }];
        host.put(0, &vec![0xA5; PLACE]);
        for round in 0..30 {
            runner.add(&host, &write(offset, len), &[(0, len as usize)]);
            match round % 2 {
                0 => runner.add(&host, &Request::Deallocate { ranges: &ranges }, &[]),
                _ => {
                    let request = Request::WriteZeroes {
                        offset: offset + 512,
                        len: ranges[0].len,
                        deallocate: false,
                        fua: false,
                    };
                    runner.add(&host, &request, &[])
                }
            };
            runner.drain();
            let request = Request::Read { offset, len };
            assert_eq!(
                runner.run(&host, &request, &[(PLACE, len as usize)]),
                Outcome::OK
            );
            let bytes = host.get(PLACE, len as usize);
            let cleared = &bytes[512..512 + ranges[0].len as usize];
            let byte = only_byte(cleared, &medium.describe());
            assert!(byte == 0 || byte == 0xA5);
            assert_eq!(bytes[0], 0xA5);
        }
    }
}

fn compare_and_write(offset: u64, len: u32) -> Request<'static> {
    Request::CompareAndWrite {
        offset,
        len,
        commit: false,
        fua: false,
    }
}

#[test]
fn compare_and_write_writes_where_it_finds_what_is_expected() {
    let directory = on_disk();
    let media = media(&directory);
    for (medium, volatile) in media.iter().zip([true, true, false]) {
        assert_eq!(medium.traits().volatile_cache, volatile);
        let host = Host::new(1 << 20);
        let mut runner = Runner::new(medium, 4);
        let (old, new) = (pattern(1, 4096), pattern(2, 4096));
        for len in [512_u32, 4096] {
            let size = len as usize;
            // Old and new each in one piece, and in many of any bytes.
            let whole = vec![(0, size), (8192, size)];
            let pieces = vec![(4, 100), (104, size - 100), (8193, 7), (8200, size - 7)];
            for (at, pieces) in [(0, whole), (1, pieces)] {
                for (commit, fua) in [(false, false), (true, true)] {
                    let request = Request::CompareAndWrite {
                        offset: 4096,
                        len,
                        commit,
                        fua,
                    };
                    host.put(16_384, &old);
                    runner.run(&host, &write(4096, len), &[(16_384, size)]);
                    host.put(4 * at, &old[..size]);
                    host.put(8192 + at, &new[..size]);
                    assert_eq!(runner.run(&host, &request, &pieces), Outcome::OK);
                    let read = Request::Read { offset: 4096, len };
                    runner.run(&host, &read, &[(16_384, size)]);
                    assert!(host.get(16_384, size) == new[..size]);
                    // Again: now it is not there any more.
                    let outcome = runner.run(&host, &request, &pieces);
                    assert_eq!(outcome, Outcome::of(Cause::CompareMismatch));
                    runner.run(&host, &read, &[(16_384, size)]);
                    assert!(host.get(16_384, size) == new[..size]);
                }
            }
        }
        // More than a block, and what lies outside.
        for (offset, len, pieces) in [
            (0, 8192, [(0, 8192), (8192, 8192)]),
            (SIZE, 512, [(0, 512), (8192, 512)]),
            (0, 512, [(0, 512), (8192, 1024)]),
        ] {
            let outcome = runner.run(&host, &compare_and_write(offset, len), &pieces);
            assert_eq!(outcome, Outcome::of(Cause::Unsupported));
        }
    }
}

/// Counters that many commands in flight add one to: each Compare and Write expects what is there,
/// or another value. As many succeed as the counter has moved.
#[test]
fn of_those_that_expect_the_same_exactly_one_succeeds() {
    let directory = on_disk();
    for medium in media(&directory) {
        let host = Host::new(PLACES * PLACE);
        let mut runner = Runner::new(&medium, PLACES as u16);
        let len = 4096;
        let size = len as usize;
        host.put(0, &vec![0; size]);
        assert_eq!(runner.run(&host, &write(0, len), &[(0, size)]), Outcome::OK);
        for round in 0..60_u8 {
            for place in 0..PLACES {
                host.put(place * PLACE, &vec![round; size]);
                host.put(place * PLACE + size, &vec![round + 1; size]);
                let request = compare_and_write(0, len);
                runner.add(&host, &request, &[(place * PLACE, 2 * size)]);
            }
            let ended = runner.drain();
            let ok = ended.iter().filter(|(_, outcome)| *outcome == Outcome::OK);
            assert_eq!(ok.count(), 1, "round {round}, {}", medium.describe());
            let read = Request::Read { offset: 0, len };
            runner.run(&host, &read, &[(0, size)]);
            let byte = only_byte(&host.get(0, size), &medium.describe());
            assert_eq!(byte, round + 1);
        }
    }
}
