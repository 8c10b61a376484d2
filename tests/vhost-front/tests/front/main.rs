//! The front end against back ends that are not this project's.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

mod daemon;
mod device;
mod messages;
mod packed;
mod split;

use tests_vhost_front::{Disk, Layout, Range, Request, SECTOR, status};

/// Bytes that look random, other ones for each seed.
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut number = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Writes and reads in all layouts, with a ring that wraps several times.
fn layouts_hold_the_same_bytes(disk: &mut Disk) {
    let is_indirect = disk.options().is_indirect;
    let mut seed = 0;
    for len in [SECTOR, 3 * SECTOR, 9 * SECTOR] {
        for (piece, skew) in [(0, 0), (100, 3), (512, 8), (513, 1), (4096, 0)] {
            for indirect in [false, is_indirect] {
                seed += 1;
                let data = bytes(len, seed);
                let sector = seed % 50;
                let layout = |request: &Request| {
                    let layout = match piece {
                        0 => Layout::merged(),
                        piece => Layout::pieces(request, piece, skew),
                    };
                    layout.indirect(indirect)
                };
                let write = Request::Write {
                    sector,
                    data: data.clone(),
                };
                let done = disk.run(0, &write, &layout(&write)).unwrap();
                assert_eq!((done.status, done.written), (status::OK, 1), "{piece}");
                let read = Request::Read { sector, len };
                let done = disk.run(0, &read, &layout(&read)).unwrap();
                assert_eq!((done.status, done.written), (status::OK, len as u32 + 1));
                assert_eq!(done.data, data, "pieces of {piece} at {skew}");
                assert_eq!(disk.read(sector, len).unwrap(), data);
            }
        }
    }
}

/// Keeps the ring full of reads: each gets its own bytes.
fn many_requests_in_flight_get_their_bytes(disk: &mut Disk, queue: usize, count: usize) {
    let patterns: Vec<_> = (0..32).map(|at| bytes(SECTOR, 100 + at)).collect();
    for (sector, pattern) in patterns.iter().enumerate() {
        disk.write(sector as u64, pattern).unwrap();
    }
    let mut sectors = std::collections::BTreeMap::new();
    let (mut sent, mut completed) = (0, 0);
    while completed < count {
        while sent < count {
            let sector = (sent % patterns.len()) as u64;
            let request = Request::Read {
                sector,
                len: SECTOR,
            };
            let layout = Layout::plain(&request);
            let Some(token) = disk.submit(queue, &request, &layout).unwrap() else {
                break;
            };
            sectors.insert(token, sector as usize);
            sent += 1;
        }
        assert!(disk.wait(queue, tests_vhost_front::BOUND).unwrap());
        while let Some(done) = disk.poll(queue).unwrap() {
            let sector = sectors.remove(&done.token).unwrap();
            assert_eq!(done.status, status::OK);
            assert_eq!(done.data, patterns[sector]);
            completed += 1;
        }
    }
    assert!(sectors.is_empty());
    assert_eq!(disk.queue(queue).in_flight(), 0);
}

fn range(sector: u64, count: u32) -> Range {
    Range {
        sector,
        count,
        may_unmap: false,
    }
}
