//! Memory as SGLs describe it: pieces of any number of bytes at any address, and bytes that are
//! discarded.

use std::sync::Arc;

use media::{Direct, Medium, MediumKind, MediumSpec};
use port::{Cause, Outcome, Request};

use crate::common::{DISCARDED, Host, Runner, is_open_direct, on_disk, open_file, pattern};

const SIZE: usize = 1 << 20;

/// Every medium that keeps bytes, with the directory that it needs.
fn media() -> (tempfile::TempDir, Vec<(&'static str, Arc<Medium>)>) {
    let directory = on_disk();
    let direct = directory.path().join("direct.img");
    let ram = MediumKind::Ram { size: SIZE as u64 };
    let media = vec![
        (
            "ram",
            Medium::open(&MediumSpec { kind: ram }).expect("opened"),
        ),
        (
            "direct",
            open_file(&direct, Some(SIZE as u64), Direct::Auto),
        ),
        (
            "buffered",
            open_file(
                &directory.path().join("buffered.img"),
                Some(SIZE as u64),
                Direct::Off,
            ),
        ),
    ];
    assert!(is_open_direct(&direct), "the build folder takes O_DIRECT");
    (directory, media)
}

/// Each piece's bytes out of the host's memory, in order.
fn gathered(host: &Host, pieces: &[(usize, usize)]) -> Vec<u8> {
    let bytes = pieces.iter().map(|&(at, len)| host.get(at, len));
    bytes.collect::<Vec<_>>().concat()
}

/// Writes, reads and compares `len` bytes at `offset` through these pieces.
fn check(pieces: &[(usize, usize)], offset: u64) {
    let len = pieces.iter().map(|(_, len)| len).sum::<usize>();
    let request_len = u32::try_from(len).expect("it fits");
    let host = Host::new(SIZE);
    let (_directory, media) = media();
    for (name, medium) in media {
        let mut runner = Runner::new(&medium, 1);
        let background = pattern(1, SIZE);
        host.put(0, &background);
        let data = gathered(&host, pieces);
        let write = Request::Write {
            offset,
            len: request_len,
            fua: false,
        };
        assert_eq!(runner.run(&host, &write, pieces), Outcome::OK, "{name}");
        assert!(
            host.get(0, SIZE) == background,
            "{name}: a write changes no memory"
        );

        let compare = Request::Compare {
            offset,
            len: request_len,
        };
        assert_eq!(runner.run(&host, &compare, pieces), Outcome::OK, "{name}");
        for &(at, len) in [pieces.first(), pieces.last()].into_iter().flatten() {
            let at = at + len - 1;
            let byte = host.get(at, 1)[0];
            host.put(at, &[byte ^ 1]);
            let outcome = runner.run(&host, &compare, pieces);
            assert_eq!(outcome.cause, Cause::CompareMismatch, "{name}");
            host.put(at, &[byte]);
        }

        // Read in one piece what was written in many, and in many what is in one piece.
        let plain = Request::Read {
            offset,
            len: request_len,
        };
        let whole = [(SIZE - len - 512, len)];
        assert_eq!(runner.run(&host, &plain, &whole), Outcome::OK, "{name}");
        assert!(gathered(&host, &whole) == data, "{name}");
        let other = pattern(2, SIZE);
        host.put(0, &other);
        assert_eq!(runner.run(&host, &plain, pieces), Outcome::OK, "{name}");
        let mut expected = other;
        let mut at = 0;
        for &(start, len) in pieces {
            expected[start..start + len].copy_from_slice(&data[at..at + len]);
            at += len;
        }
        assert!(
            host.get(0, SIZE) == expected,
            "{name}: no other byte changes"
        );
    }
}

#[test]
fn one_piece_at_any_byte() {
    for at in [0, 1, 511, 513, 4095] {
        check(&[(4096 + at, 512)], 512);
        check(&[(4096 + at, 8192)], 4096);
    }
}

#[test]
fn a_block_in_as_many_pieces_as_it_has_bytes() {
    // Backwards, every other byte.
    let pieces: Vec<_> = (0..512).map(|n| (5000 - 2 * n, 1)).collect();
    check(&pieces, 1024);
}

#[test]
fn aligned_at_one_end_only() {
    check(&[(4096, 513), (9001, 511)], 0);
    check(&[(4097, 511), (8192, 512), (12_288, 513)], 0);
    check(&[(4096, 512), (8192, 1024), (12_289, 512)], 512);
}

#[test]
fn more_pieces_than_one_system_call_takes_of_odd_lengths() {
    // 1280 of 127 bytes and a bit: 159 KiB, in rounds of a bounce buffer that end inside pieces.
    let mut pieces: Vec<_> = (0..1279).map(|n| (3 + 300 * n, 127)).collect();
    pieces.push((400_001, 383));
    assert_eq!(pieces.len(), 1280);
    check(&pieces, 512);
}

#[test]
fn what_is_discarded_is_nowhere() {
    let host = Host::new(SIZE);
    let (_directory, media) = media();
    for (name, medium) in media {
        let mut runner = Runner::new(&medium, 1);
        let data = pattern(3, 256 << 10);
        host.put(0, &data);
        let write = Request::Write {
            offset: 0,
            len: 256 << 10,
            fua: false,
        };
        assert_eq!(runner.run(&host, &write, &[(0, 256 << 10)]), Outcome::OK);
        for (pieces, len) in [
            // Wholly.
            (vec![(DISCARDED, 512)], 512),
            (vec![(DISCARDED, 65_536); 4], 262_144),
            // In part: aligned, where direct I/O reads into the same place several times, and not.
            (vec![(DISCARDED, 512), (4096, 512), (DISCARDED, 512)], 1536),
            (
                vec![
                    (DISCARDED, 65_536),
                    (4096, 512),
                    (DISCARDED, 65_536),
                    (0, 512),
                ],
                132_096,
            ),
            (
                vec![(DISCARDED, 7), (4097, 500), (DISCARDED, 1), (1, 4)],
                512,
            ),
        ] {
            let mut expected = pattern(4, SIZE);
            host.put(0, &expected);
            let read = Request::Read { offset: 0, len };
            assert_eq!(runner.run(&host, &read, &pieces), Outcome::OK, "{name}");
            let mut at = 0;
            for &(start, len) in &pieces {
                if start != DISCARDED {
                    expected[start..start + len].copy_from_slice(&data[at..at + len]);
                }
                at += len;
            }
            assert!(host.get(0, SIZE) == expected, "{name}: {pieces:?}");
        }
    }
}
