//! Complete, cut-off, and damaged files.

use proptest::prelude::*;

use super::*;

fn a_record() -> impl Strategy<Value = Record> {
    let names = (
        any::<u64>(),
        any::<[u32; 6]>(),
        any::<(u16, u16, u16, u8, bool, u8)>(),
    );
    let rest = (
        any::<(u8, u16, u32)>(),
        prop_oneof![0..1u64 << 20, any::<u64>()],
        (any::<(u32, u32, u32, u16)>(), any::<[u8; 16]>()),
    );
    (names, rest).prop_map(|(names, rest)| {
        let (at_ns, stages, (cqid, sqid, cid, opcode, fua, csi)) = names;
        let ((lba_shift, status, nsid), slba, ((blocks, detail, bytes, depth), key)) = rest;
        Record {
            at_ns,
            stages,
            cqid,
            sqid,
            cid,
            opcode,
            fua,
            csi,
            lba_shift,
            status,
            nsid,
            slba,
            blocks,
            detail,
            key,
            bytes,
            depth,
        }
    })
}

fn header() -> Header {
    Header {
        controller: "vm1".into(),
        start_ns: 1000,
        started_unix_ns: 1_700_000_000_000_000_000,
        sample: 1,
        writer: "a test".into(),
        namespaces: vec![Namespace {
            nsid: 1,
            name: "root".into(),
            lba_size: 4096,
            blocks: 99,
        }],
    }
}

/// A file with these blocks, and where each of its parts ends: header, blocks, end.
fn file(blocks: &[(Vec<Record>, u64)], end: Option<&End>) -> (Vec<u8>, Vec<usize>) {
    let mut encoder = Encoder::default();
    let mut file = encoder.header(&header()).to_vec();
    let mut ends = vec![file.len()];
    for (records, lost) in blocks {
        file.extend_from_slice(encoder.records(records, *lost));
        ends.push(file.len());
    }
    if let Some(end) = end {
        file.extend_from_slice(encoder.end(end, 7));
        ends.push(file.len());
    }
    (file, ends)
}

fn end_of(blocks: &[(Vec<Record>, u64)]) -> End {
    End {
        end_ns: 5,
        reason: "it was stopped".into(),
        commands: blocks.iter().map(|(records, _)| records.len() as u64).sum(),
        lost: 9,
        queues: vec![1, 2],
    }
}

/// Contents of a file up to its end or an error.
fn read(file: &[u8]) -> (Vec<Record>, Result<Option<Tail>, TraceError>) {
    let mut records = Vec::new();
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (records, Err(error)),
    };
    loop {
        match reader.next(&mut records) {
            Ok(true) => {}
            Ok(false) => return (records, Ok(reader.tail().cloned())),
            Err(error) => return (records, Err(error)),
        }
    }
}

fn some_blocks() -> Vec<(Vec<Record>, u64)> {
    let record = |of: u64| Record {
        at_ns: 1_000_000 + of * 977,
        stages: [of as u32, 0, 35, 900 + of as u32 % 7, 0, 20],
        cqid: 1,
        sqid: 1,
        cid: of as u16 % 32,
        opcode: 1 + of as u8 % 2,
        lba_shift: 12,
        nsid: 1,
        slba: of * 8,
        blocks: 8,
        bytes: 32768,
        depth: 4,
        ..Record::default()
    };
    vec![
        ((0..40).map(record).collect(), 0),
        (Vec::new(), 3),
        ((40..90).map(record).collect(), 1),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_was_written_is_read(
        blocks in prop::collection::vec((prop::collection::vec(a_record(), 0..50), 0..9u64), 0..5),
    ) {
        let end = end_of(&blocks);
        let (file, _) = file(&blocks, Some(&end));
        let mut reader = Reader::new(&*file).unwrap();
        prop_assert_eq!(reader.header(), &header());
        let records = reader.rest().unwrap();
        let written: Vec<Record> = blocks.iter().flat_map(|(records, _)| records.clone()).collect();
        prop_assert_eq!(records, written);
        prop_assert_eq!(reader.lost(), blocks.iter().map(|(_, lost)| lost).sum::<u64>() + 7);
        prop_assert_eq!(reader.tail(), Some(&Tail::Ended(end)));
    }

    #[test]
    fn no_bytes_make_it_panic_or_lie(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut file = MAGIC.to_vec();
        file.extend(VERSION.to_le_bytes());
        file.extend(bytes);
        let (records, _) = read(&file);
        prop_assert!(records.is_empty());
    }

    /// Any contents of a block with a correct checksum give as many records as its frame says, or
    /// an error.
    #[test]
    fn no_payload_makes_it_panic_or_lie(count in 0..4usize, payload in a_payload(), lost in any::<u64>()) {
        let (mut file, _) = file(&[], None);
        let mut frame = vec![2, 0, 0, 0];
        for number in [count, payload.len(), payload.len()] {
            frame.extend((number as u32).to_le_bytes());
        }
        frame.extend(lost.to_le_bytes());
        let sum = crc32c::crc32c(&[&frame[..], &payload].concat());
        frame.extend(sum.to_le_bytes());
        file.extend(frame);
        file.extend(&payload);
        let (records, tail) = read(&file);
        match tail {
            Ok(tail) => {
                // each number of a record ends with a byte below 128, and there is nothing else
                let numbers = payload.iter().filter(|byte| **byte < 128).count();
                prop_assert_eq!((records.len(), numbers), (count, 18 * count));
                prop_assert!(payload.last().is_none_or(|byte| *byte < 128));
                prop_assert_eq!(tail, Some(Tail::CutOff(0)));
                let (again, _) = self::file(&[(records.clone(), lost)], None);
                prop_assert_eq!(read(&again).0, records);
            }
            Err(error) => {
                let damaged = matches!(error, TraceError::Damaged { .. });
                prop_assert!(damaged && records.is_empty(), "{}", error);
            }
        }
    }
}

/// Any bytes, or as many small numbers as some records have, of which even ones are no negative
/// differences.
fn a_payload() -> impl Strategy<Value = Vec<u8>> {
    let numbers = prop_oneof![
        9 => (0..64u8).prop_map(|half| 2 * half),
        1 => 0..128u8,
    ];
    let records =
        (0..4usize).prop_flat_map(move |count| prop::collection::vec(numbers.clone(), 18 * count));
    prop_oneof![prop::collection::vec(any::<u8>(), 0..200), records]
}

/// Zones whose first byte does not fit in 64 bits cannot be submitted.
#[test]
fn a_zone_beyond_all_bytes_is_not_asked_for() {
    let reset = Record {
        csi: 2,
        opcode: 0x79,
        lba_shift: 12,
        slba: 512,
        detail: 4,
        ..Record::default()
    };
    let zone = |start, all| Asked::Zone {
        start,
        action: 4,
        all,
    };
    assert_eq!(reset.asked(), Ok(zone(512 << 12, false)));
    let far = Record {
        slba: 1 << 52 | 512,
        ..reset
    };
    assert_eq!(far.asked(), Err("name no blocks"));
    let of_none = Record {
        lba_shift: 0,
        ..reset
    };
    assert_eq!(of_none.asked(), Err("name no blocks"));
    // SLBA means nothing with Select All
    let all = Record {
        detail: 0x104,
        ..far
    };
    assert_eq!(all.asked(), Ok(zone(0, true)));
}

/// At whatever byte a file is cut off: all whole blocks are read, and it is said how many bytes
/// behind them are of no use.
#[test]
fn a_file_that_was_cut_off_is_read_to_its_last_whole_block() {
    let blocks = some_blocks();
    let (file, ends) = file(&blocks, Some(&end_of(&blocks)));
    for len in 0..file.len() {
        let (records, tail) = read(&file[..len]);
        let whole = ends.iter().filter(|end| **end <= len).count();
        if len < 8 {
            let as_none = matches!(tail, Err(TraceError::NoTrace | TraceError::NoHeader));
            assert!(as_none, "{len}: {tail:?}");
            continue;
        }
        if whole == 0 {
            assert!(matches!(tail, Err(TraceError::NoHeader)), "{len}: {tail:?}");
            continue;
        }
        let expected: Vec<Record> = blocks[..whole - 1]
            .iter()
            .flat_map(|(records, _)| records.clone())
            .collect();
        assert_eq!(records, expected, "{len}");
        let useless = (len - ends[whole - 1]) as u64;
        assert_eq!(tail.unwrap(), Some(Tail::CutOff(useless)), "{len}");
    }
}

/// Flipping any bit of a file: every record that comes out was written.
#[test]
fn a_bit_that_flips_is_found() {
    let blocks = some_blocks();
    let written: Vec<Record> = blocks.iter().flat_map(|(r, _)| r.clone()).collect();
    let (file, ends) = file(&blocks, Some(&end_of(&blocks)));
    for byte in 0..file.len() {
        for bit in 0..8 {
            let mut file = file.clone();
            file[byte] ^= 1 << bit;
            let (records, tail) = read(&file);
            assert!(written.starts_with(&records), "byte {byte}, bit {bit}");
            let whole = ends.iter().filter(|end| **end <= byte).count();
            let before: usize = blocks[..whole.saturating_sub(1).min(3)]
                .iter()
                .map(|(records, _)| records.len())
                .sum();
            assert_eq!(records.len(), before, "byte {byte}, bit {bit}");
            match tail {
                Err(_) => {}
                // a length that grew
                Ok(Some(Tail::CutOff(bytes))) => assert!(bytes > 0),
                Ok(tail) => panic!("byte {byte}, bit {bit}: {tail:?}"),
            }
        }
    }
}

#[test]
fn another_version_is_refused_by_its_number() {
    let (mut file, _) = file(&[], None);
    for version in [0, 3] {
        file[8] = version;
        let error = Reader::new(&*file).unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains(&format!("version {version}")) && said.contains("up to 2"),
            "{said}"
        );
    }
}

#[test]
fn what_stands_behind_the_end_or_is_missing_before_it_is_found() {
    let blocks = some_blocks();
    let end = end_of(&blocks);
    let (mut longer, _) = file(&blocks, Some(&end));
    longer.push(0);
    assert!(matches!(read(&longer).1, Err(TraceError::Damaged { .. })));
    // a whole block is gone: every checksum stands
    let (whole, ends) = file(&blocks, Some(&end));
    let without = [&whole[..ends[2]], &whole[ends[3]..]].concat();
    assert!(matches!(read(&without).1, Err(TraceError::Damaged { .. })));
}

/// Blocks that the format's description gives, made by hand: of this version and of the first,
/// which had no keys.
#[test]
fn blocks_made_by_hand_are_read() {
    // one record: at 3, stages 1 to 6, queues 1 and 2, identifier 4, Read with FUA on a namespace
    // of 512-byte blocks, status 80h, namespace 1, block 300, 8 blocks, detail 0, 4096 bytes, depth
    // 1
    let blocks = Record {
        at_ns: 3,
        stages: [1, 2, 3, 4, 5, 6],
        cqid: 1,
        sqid: 2,
        cid: 4,
        opcode: 2,
        fua: true,
        csi: 0,
        lba_shift: 9,
        status: 0x80,
        nsid: 1,
        slba: 300,
        blocks: 8,
        detail: 0,
        key: [0; 16],
        bytes: 4096,
        depth: 1,
    };
    let first = [1, 2, 4, 0x0900_0102u64, 0x80, 1, 300, 8, 0, 4096, 1];
    // Retrieve of the key "blue" into 4096 bytes, which moved 8
    let keys = Record {
        csi: 1,
        fua: false,
        lba_shift: 0,
        status: 0,
        slba: 0,
        blocks: 4096,
        detail: 4,
        key: *b"blue\0\0\0\0\x01\0\0\0\0\0\0\0",
        bytes: 8,
        ..blocks
    };
    let blue = u64::from_le_bytes(*b"blue\0\0\0\0");
    let second = [1, 2, 4, 0x0001_0002, 0, 1, 0, 4096, 4, 8, 1, blue, 1];
    for (version, numbers, expected) in [
        (1, &first[..], blocks),
        (2, &[&first[..], &[0, 0]].concat(), blocks),
        (2, &second, keys),
    ] {
        let file = by_hand(version, numbers);
        let mut reader = Reader::new(&*file).unwrap();
        assert_eq!(reader.rest().unwrap(), [expected]);
        assert_eq!((reader.lost(), expected.latency_ns()), (5, 15));
    }
    assert_eq!(blocks.extent(), Some((300 * 512, 4096)));
    assert_eq!((blocks.name().as_str(), blocks.key()), ("Read", None));
    assert_eq!((keys.name().as_str(), keys.extent()), ("Retrieve", None));
    assert_eq!(keys.key().unwrap().bytes(), b"blue");
    assert_eq!(keys.key().unwrap().to_string(), "0x626c7565");
}

/// A file of a version with one record, at 3 with stages 1 to 6, and these numbers in the columns
/// behind.
fn by_hand(version: u32, numbers: &[u64]) -> Vec<u8> {
    let (mut made, _) = file(&[], None);
    made[8..12].copy_from_slice(&version.to_le_bytes());
    let mut raw = vec![6, 1, 2, 3, 4, 5, 6];
    for number in numbers {
        let mut coded = number * 2;
        while coded >= 128 {
            raw.push(coded as u8 & 127 | 128);
            coded >>= 7;
        }
        raw.push(coded as u8);
    }
    let mut frame = vec![2, 0, 0, 0, 1, 0, 0, 0];
    frame.extend((raw.len() as u32).to_le_bytes());
    frame.extend((raw.len() as u32).to_le_bytes());
    frame.extend(5u64.to_le_bytes());
    let sum = crc32c::crc32c(&[&frame[..], &raw[..]].concat());
    frame.extend(sum.to_le_bytes());
    made.extend(frame);
    made.extend(raw);
    made
}

/// Efficiency of the format: records of 64 bytes and more take only a handful of bytes.
#[test]
fn records_of_a_usual_load_are_small() {
    let (file, _) = file(&some_blocks(), None);
    assert!(file.len() < 90 * 12 + 400, "{} bytes of 90", file.len());
}
