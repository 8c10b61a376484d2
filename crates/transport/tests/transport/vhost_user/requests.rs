//! Requests of every type, divided in many ways.

use tests_vhost_front::{
    Completion, Disk, Layout, Options, Range, Request, config, feature, status,
};

use super::Random;
use super::rig::{LEN, Rig, Shape};
use crate::failing::Asked;

fn shape(lba_shift: u8) -> Shape {
    Shape {
        lba_shift,
        ..Shape::default()
    }
}

fn run(disk: &mut Disk, request: &Request) -> Completion {
    disk.run(0, request, &Layout::plain(request)).unwrap()
}

fn range(sector: u64, count: u32, may_unmap: bool) -> Range {
    Range {
        sector,
        count,
        may_unmap,
    }
}

fn other(kind: u32, sector: u64, out: &[u8], in_len: usize) -> Request {
    Request::Other {
        kind,
        sector,
        out: out.to_vec(),
        in_len,
    }
}

/// How a request may be divided: all of them mean the same.
fn layouts(request: &Request) -> Vec<Layout> {
    let data = request.readable().len() - 16 + request.in_len();
    let longest = data.div_ceil(253).max(1);
    let mut layouts = vec![
        Layout::plain(request),
        Layout::merged(),
        Layout::pieces(request, longest.max(512), 0),
        Layout::pieces(request, longest, 1),
        Layout::pieces(request, longest.max(4097), 63),
        Layout::pieces(request, longest.max(777), 4),
    ];
    // The header ends within a piece, and the outcome shares one with the data.
    layouts.push(Layout {
        readable: vec![3, 4, 8, 1 + data.min(200)],
        writable: vec![data / 3, data / 5],
        skew: 7,
        is_indirect: false,
    });
    let indirect: Vec<_> = layouts.iter().map(|it| it.clone().indirect(true)).collect();
    layouts.extend(indirect);
    layouts
}

fn every_layout(shift: u8, is_packed: bool, event_idx: bool) {
    let rig = Rig::new(shape(shift));
    let mut disk = rig.connect(Options {
        size: 512,
        is_packed,
        event_idx,
        regions: 3,
        memory_len: 24 << 20,
        ..Options::default()
    });
    let mut random = Random(u64::from(shift));
    let sectors = 1u64 << (shift - 9);
    let part = 64 << shift;
    let mut model = vec![0; part];
    for round in 0..3u64 {
        let len = [1, 3, 40][round as usize] << shift;
        let sample = Request::Read { sector: 0, len };
        for at in 0..layouts(&sample).len() {
            let block = random.below(64 - (len >> shift) as u64 + 1);
            let from = (block as usize) << shift;
            let sector = block * sectors;
            let data = random.bytes(len);
            model[from..from + len].copy_from_slice(&data);
            let write = Request::Write { sector, data };
            let done = disk.run(0, &write, &layouts(&write)[at]).unwrap();
            assert_eq!((done.status, done.written), (status::OK, 1), "{at}");
            let read = Request::Read { sector, len };
            let done = disk.run(0, &read, &layouts(&read)[at]).unwrap();
            assert_eq!((done.status, done.written), (status::OK, len as u32 + 1));
            assert!(done.data == model[from..from + len], "{at}");
        }
    }
    for at in 0..4 {
        for (request, len) in [(Request::Flush, 0), (Request::GetId, 20)] {
            let done = disk.run(0, &request, &layouts(&request)[at]).unwrap();
            assert_eq!((done.status, done.written), (status::OK, len + 1));
            if len > 0 {
                assert_eq!(done.data, *b"serial of a disk\0\0\0\0");
            }
        }
    }
    let all = run(
        &mut disk,
        &Request::Read {
            sector: 0,
            len: part,
        },
    );
    assert!(all.data == model);
    assert_eq!(rig.with(|server| server.counters().failed), 0);
}

#[test]
fn data_are_the_same_however_a_request_is_divided() {
    for shift in [9, 12] {
        for is_packed in [false, true] {
            every_layout(shift, is_packed, !is_packed);
        }
    }
    every_layout(9, false, false);
    every_layout(9, true, true);
}

/// VIRTIO 1.3, 5.2.6.2: what cannot be done is UNSUPP or IOERR.
#[test]
fn outcomes_of_what_cannot_be_done() {
    for shift in [9u8, 12] {
        let rig = Rig::new(shape(shift));
        let mut disk = rig.connect(Options::default());
        let capacity = LEN / 512;
        let block = 1usize << shift;
        let per_block = 1u64 << (shift - 9);
        let (ok, ioerr, unsupp) = (status::OK, status::IOERR, status::UNSUPP);
        let read = |sector, len| Request::Read { sector, len };
        let write = |sector, len| Request::Write {
            sector,
            data: vec![7; len],
        };
        let mut cases = vec![
            (read(0, block - 1), ioerr),
            (read(0, block + 1), ioerr),
            (write(0, block / 2), ioerr),
            (read(capacity, block), ioerr),
            (read(capacity - per_block, 2 * block), ioerr),
            (write(capacity - per_block, 2 * block), ioerr),
            (read(capacity - per_block, block), ok),
            (read(u64::MAX, block), ioerr),
            (write(u64::MAX, block), ioerr),
            (read(u64::MAX - per_block + 1, block), ioerr),
            (write(u64::MAX - per_block + 1, 3 * block), ioerr),
            (read((u64::MAX >> 9) + 1, block), ioerr),
            (read(0, 0), ok),
            // Types that this device does not have: 2 and 3 were SCSI commands, 10 is lifetime.
            (other(2, 0, &[], 8), unsupp),
            (other(3, 0, &[], 8), unsupp),
            (other(5, 0, &[], 8), unsupp),
            (other(10, 0, &[], 8), unsupp),
            (other(14, 0, &[0; 16], 0), unsupp),
            (other(15, 0, &[1; 4096], 8), unsupp),
            (other(16, 0, &[], 128), unsupp),
            (other(18, 0, &[], 0), unsupp),
            (other(20, 0, &[], 0), unsupp),
            (other(22, 0, &[], 0), unsupp),
            (other(24, 0, &[], 0), unsupp),
            (other(26, 0, &[], 0), unsupp),
            (other(u32::MAX, 0, &[1; 512], 512), unsupp),
            (other(8, 0, &[], 5), ok),
            // No range, half a range, more ranges than max_discard_seg.
            (other(11, 0, &[], 0), ioerr),
            (other(11, 0, &[0; 17], 0), ioerr),
            (other(13, 0, &[0; 15], 0), ioerr),
            (other(13, 0, &[0; 32], 0), ioerr),
            (Request::Discard(vec![range(0, 8, false); 257]), ioerr),
            (Request::Discard(vec![range(0, 8, false); 256]), ok),
            // 5.2.6.2: unmap is reserved in a discard.
            (Request::Discard(vec![range(0, 8, true)]), unsupp),
            (Request::Discard(vec![range(0, 0, false)]), ok),
            (
                Request::Discard(vec![range(0, 8, false), range(capacity, 8, false)]),
                ioerr,
            ),
            (Request::Discard(vec![range(u64::MAX, 1, false)]), ioerr),
            (Request::Discard(vec![range(0, u32::MAX, false)]), ioerr),
            (Request::WriteZeroes(vec![range(0, 0, false)]), ok),
            (Request::WriteZeroes(vec![range(capacity, 8, false)]), ioerr),
            (Request::WriteZeroes(vec![range(u64::MAX, 1, true)]), ioerr),
            (
                Request::WriteZeroes(vec![range(u64::MAX - 7, 8, true)]),
                ioerr,
            ),
            (Request::WriteZeroes(vec![range(0, u32::MAX, true)]), ioerr),
        ];
        for bit in 1..32 {
            let mut bytes = [0; 16];
            bytes[8] = 8;
            bytes[12..].copy_from_slice(&(1u32 << bit).to_le_bytes());
            cases.push((other(11, 0, &bytes, 0), unsupp));
            cases.push((other(13, 0, &bytes, 0), unsupp));
        }
        if per_block > 1 {
            cases.push((read(1, block), ioerr));
            cases.push((write(per_block - 1, block), ioerr));
            cases.push((Request::Discard(vec![range(1, 8, false)]), ioerr));
            cases.push((Request::Discard(vec![range(0, 9, false)]), ioerr));
            cases.push((Request::WriteZeroes(vec![range(4, 8, false)]), ioerr));
        }
        for (request, expected) in cases {
            let done = disk
                .run(0, &request, &Layout::plain(&request).indirect(true))
                .unwrap();
            assert_eq!(done.status, expected, "{shift}: {request:?}");
        }
        assert_eq!(run(&mut disk, &Request::GetId).status, ok);
    }
}

/// What a request has the medium do.
#[test]
fn commands_of_requests() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    let write = Request::Write {
        sector: 8,
        data: vec![9; 4096],
    };
    let zero = |deallocates| Asked::Zero {
        fua: false,
        deallocates,
    };
    let cases = [
        (write, vec![Asked::Write { fua: false }]),
        (
            Request::WriteZeroes(vec![range(8, 8, false)]),
            vec![zero(false)],
        ),
        (
            Request::WriteZeroes(vec![range(8, 8, true)]),
            vec![zero(true)],
        ),
        (
            Request::Discard(vec![range(8, 8, false)]),
            vec![Asked::Deallocate],
        ),
        (Request::Discard(vec![range(8, 0, false)]), vec![]),
        (Request::Flush, vec![Asked::Flush]),
    ];
    for (request, expected) in cases {
        rig.with(|server| server.medium(|it| it.asked.clear()));
        assert_eq!(run(&mut disk, &request).status, status::OK);
        let asked = rig.with(|server| server.medium(|it| std::mem::take(&mut it.asked)));
        assert_eq!(asked, expected, "{request:?}");
    }
}

/// 5.2.6.2: without VIRTIO_BLK_F_FLUSH a write is on stable storage when it is done.
#[test]
fn writes_are_stable_for_a_driver_that_cannot_flush() {
    for (without, fua) in [(0, false), (feature::FLUSH, true)] {
        let rig = Rig::new(Shape {
            max_transfer: 64 << 10,
            ..Shape::default()
        });
        let mut disk = rig.connect(Options {
            without,
            ..Options::default()
        });
        rig.with(|server| server.medium(|it| it.stable.clear()));
        disk.write(0, &[1; 200 << 10]).unwrap();
        disk.write_zeroes(&[range(0, 8, true)]).unwrap();
        disk.write(8, &[1; 4096]).unwrap();
        let stable = rig.with(|server| server.medium(|it| std::mem::take(&mut it.stable)));
        assert_eq!(stable, [fua; 6]);
        disk.flush().unwrap();
        let stable = rig.with(|server| server.medium(|it| std::mem::take(&mut it.stable)));
        assert_eq!(stable, [true]);
    }
}

/// 5.2.6: the type says what a request does, and not in which direction its pieces are.
#[test]
fn a_request_does_what_its_header_says() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    disk.write(8, &[3; 4096]).unwrap();
    // A read that has only data to read from, and a write that has only room.
    for request in [other(0, 8, &[7; 4096], 0), other(1, 8, &[], 4096)] {
        rig.with(|server| server.medium(|it| it.asked.clear()));
        run(&mut disk, &request);
        let asked = rig.with(|server| server.medium(|it| std::mem::take(&mut it.asked)));
        assert_eq!(asked, [], "{request:?}");
    }
    assert!(disk.read(8, 4096).unwrap() == [3; 4096]);
}

#[test]
fn long_requests_go_on_in_parts() {
    let rig = Rig::new(Shape {
        max_transfer: 64 << 10,
        ..Shape::default()
    });
    let mut disk = rig.connect(Options {
        size: 512,
        memory_len: 32 << 20,
        ..Options::default()
    });
    let mut random = Random(3);
    let len = 600 << 10;
    let data = random.bytes(len);
    let write = Request::Write {
        sector: 24,
        data: data.clone(),
    };
    let read = Request::Read { sector: 24, len };
    for (piece, skew) in [(len, 0), (len.div_ceil(252), 3), (70_001, 1)] {
        rig.with(|server| server.medium(|it| it.asked.clear()));
        let layout = Layout::pieces(&write, piece, skew);
        let done = disk.run(0, &write, &layout).unwrap();
        assert_eq!((done.status, done.written), (status::OK, 1));
        let asked = rig.with(|server| server.medium(|it| std::mem::take(&mut it.asked)));
        assert_eq!(asked, [Asked::Write { fua: false }; 10]);
        let layout = Layout::pieces(&read, piece, skew).indirect(true);
        let done = disk.run(0, &read, &layout).unwrap();
        assert_eq!(done.status, status::OK);
        assert!(done.data == data);
        disk.write_zeroes(&[range(24, (len / 512) as u32, false)])
            .unwrap();
    }
    // The third part fails: those before have happened, those behind have not.
    let from = 24 * 512 + (128 << 10);
    rig.with(move |server| server.medium(|it| it.fails_writes = Some(from..from + 1)));
    rig.with(|server| server.medium(|it| it.asked.clear()));
    let done = disk.run(0, &write, &Layout::plain(&write)).unwrap();
    assert_eq!(done.status, status::IOERR);
    let asked = rig.with(|server| server.medium(|it| std::mem::take(&mut it.asked)));
    assert_eq!(asked.len(), 2);
    let read = disk.read(24, len).unwrap();
    assert!(read[..128 << 10] == data[..128 << 10]);
    assert!(read[128 << 10..].iter().all(|byte| *byte == 0));
    rig.with(move |server| server.medium(|it| it.fails = Some(from..from + 1)));
    let read = run(&mut disk, &Request::Read { sector: 24, len });
    assert_eq!(read.status, status::IOERR);
    assert_eq!(rig.with(|server| server.counters().failed), 2);
}

/// More blocks than a Write Zeroes command has.
#[test]
fn all_of_the_disk_becomes_zero() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    let last = LEN / 512 - 1;
    for sector in [0, 65535, 65536, last] {
        disk.write(sector, &[5; 512]).unwrap();
    }
    rig.with(|server| server.medium(|it| it.asked.clear()));
    disk.write_zeroes(&[range(0, last as u32 + 1, false)])
        .unwrap();
    assert_eq!(rig.with(|server| server.medium(|it| it.asked.len())), 2);
    for sector in [0, 65535, 65536, last] {
        assert_eq!(disk.read(sector, 512).unwrap(), [0; 512]);
    }
}

/// 5.2.6: where the medium keeps no copy, secure erase writes zeroes that are data, and never
/// deallocates.
#[test]
fn erased_blocks_are_overwritten() {
    for shift in [9u8, 12] {
        let rig = Rig::new(Shape {
            erases: true,
            ..shape(shift)
        });
        let mut disk = rig.connect(Options::default());
        assert_ne!(disk.offered() & feature::SECURE_ERASE, 0);
        let word = |at: usize| {
            let at = config::SECURE_ERASE + at * 4;
            u32::from_le_bytes(disk.config()[at..at + 4].try_into().unwrap())
        };
        // 1 TiB, one range, blocks.
        assert_eq!([word(0), word(1), word(2)], [1 << 31, 1, 1 << (shift - 9)]);
        disk.write(0, &[5; 16384]).unwrap();
        rig.with(|server| server.medium(|it| it.asked.clear()));
        let erase = |sector: u64, count: u32, flags: u32| {
            let mut bytes = sector.to_le_bytes().to_vec();
            bytes.extend(count.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            other(14, 0, &bytes, 0)
        };
        assert_eq!(run(&mut disk, &erase(8, 16, 0)).status, status::OK);
        let asked = rig.with(|server| server.medium(|it| std::mem::take(&mut it.asked)));
        let expected = Asked::Zero {
            fua: false,
            deallocates: false,
        };
        assert_eq!(asked, [expected]);
        let read = disk.read(0, 16384).unwrap();
        assert!(read[..4096] == [5; 4096] && read[4096..12288] == [0; 8192]);
        assert!(read[12288..] == [5; 4096]);
        let capacity = LEN / 512;
        for (request, expected) in [
            (erase(0, 8, 1), status::UNSUPP),
            (erase(0, 8, 1 << 31), status::UNSUPP),
            (erase(capacity, 8, 0), status::IOERR),
            (erase(u64::MAX, 8, 0), status::IOERR),
            (erase(0, 0, 0), status::OK),
            (other(14, 0, &[0; 15], 0), status::IOERR),
            (other(14, 0, &[0; 32], 0), status::IOERR),
        ] {
            assert_eq!(run(&mut disk, &request).status, expected, "{request:?}");
        }
        // More than one command has.
        let all = erase(0, capacity as u32, 0);
        assert_eq!(run(&mut disk, &all).status, status::OK);
        assert_eq!(disk.read(0, 4096).unwrap(), [0; 4096]);
    }
    let rig = Rig::new(Shape::default());
    assert_eq!(
        rig.connect(Options::default()).offered() & feature::SECURE_ERASE,
        0
    );
}
