//! Small traces by hand, and bad ones.

use super::*;

fn op(kind: Kind, offset: u64, len: u64) -> Op {
    Op {
        kind,
        offset,
        len,
        fua: false,
    }
}

fn all(text: &str) -> Vec<(u64, Op, u16)> {
    let trace = parse(text).unwrap();
    let arrivals = trace.arrivals.iter();
    arrivals.map(|one| (one.at, one.op, one.queue)).collect()
}

#[test]
fn our_own_format() {
    let text = "nvmirage-trace 1\n# a comment\n1000 R 0 4096\n\n1000 W 8192 512 3\n2500 WF 512 512\n2600 D 0 1048576\n2600 F 0 0\n";
    assert!(is_trace(text));
    let fua = Op {
        fua: true,
        ..op(Kind::Write, 512, 512)
    };
    let expected = [
        (0, op(Kind::Read, 0, 4096), 0),
        (0, op(Kind::Write, 8192, 512), 3),
        (1500, fua, 0),
        (1600, op(Kind::Trim, 0, 1 << 20), 0),
        (1600, op(Kind::Flush, 0, 0), 0),
    ];
    assert_eq!(all(text), expected);
    let trace = parse(text).unwrap();
    let mut written = Vec::new();
    write(&mut written, &trace.arrivals, &trace.compounds).unwrap();
    let again = parse(str::from_utf8(&written).unwrap()).unwrap();
    assert_eq!(again, trace);
}

#[test]
fn keys_and_zones() {
    // The hashes of "a" and "foobar" as published with FNV.
    let text = "nvmirage-trace 2\n5 KS 61 100\n6 KR #bf9cf968 100 1\n6 KD 666f6f626172 0\n7 KE #00000000 0\n8 KA 61 1\n9 KL - 4096\n10 ZO 0 512\n11 ZC 0 512\n12 ZF 0 512\n13 KC KS:61:7,KD:666f6f626172:0 7 2\n";
    let (a, foobar) = (0xe40c_292c, 0xbf9c_f968);
    let expected = [
        (0, op(Kind::Store, a, 100), 0),
        (1, op(Kind::Retrieve, foobar, 100), 1),
        (1, op(Kind::Delete, foobar, 0), 0),
        (2, op(Kind::Exist, 0, 0), 0),
        (3, op(Kind::Append, a, 1), 0),
        (4, op(Kind::List, 0, 4096), 0),
        (5, op(Kind::Open, 0, 512), 0),
        (6, op(Kind::Close, 0, 512), 0),
        (7, op(Kind::Finish, 0, 512), 0),
        (8, op(Kind::Compound, 0, 7), 2),
    ];
    assert_eq!(all(text), expected);
    let trace = parse(text).unwrap();
    let part = |kind, hash: u64, len| KvOp {
        kind,
        hash: hash as u32,
        len,
    };
    let parts = vec![
        part(model::KvKind::Store, a, 7),
        part(model::KvKind::Delete, foobar, 0),
    ];
    assert_eq!(trace.compounds, [parts]);
    let mut written = Vec::new();
    write(&mut written, &trace.arrivals, &trace.compounds).unwrap();
    let again = parse(str::from_utf8(&written).unwrap()).unwrap();
    assert_eq!(again, trace);
    for (line, word) in [
        ("1 KS 6 100", "no key"),
        ("1 KS 6g 100", "no key"),
        ("1 KS #1bf9cf968 100", "no key"),
        ("1 KR - 100", "no key"),
        ("1 KS \u{e9}\u{e9} 1", "no key"),
        ("1 KS 61 4294967296", "cannot be"),
        ("1 KC KS:61:7 8", "7 bytes in all, not 8"),
        ("1 KC R:61:7 7", "no part"),
        ("1 KC KS:61 7", "no part"),
        (
            "1 KC KD:61:0,KD:61:0,KD:61:0,KD:61:0,KD:61:0,KD:61:0,KD:61:0,KD:61:0,KD:61:0 0",
            "8 at most",
        ),
        ("1 KX 61 0", "no operation of version 2"),
    ] {
        let error = parse(&format!("{HEADER}\n{line}\n")).unwrap_err();
        assert!(error.why.contains(word), "{line}: {error}");
    }
    let long = "61".repeat(256);
    let error = parse(&format!("{HEADER}\n1 KE {long} 0\n")).unwrap_err();
    assert!(error.why.contains("no key"), "{error}");
}

#[test]
fn msr_cambridge() {
    let text = "128166372003061629,hm,1,Read,383496192,32768,413\n128166372016382155,hm,1,Write,2822144,4096,3\n128166372016382100,hm,1,write,512,100,3\n";
    assert_eq!(
        all(text),
        [
            (0, op(Kind::Read, 383_496_192, 32_768), 0),
            (1_332_047_100, op(Kind::Write, 512, 512), 0),
            (1_332_052_600, op(Kind::Write, 2_822_144, 4096), 0),
        ]
    );
    assert_eq!(parse(text).unwrap().format, "msr");
}

#[test]
fn mqsim() {
    let text = "4851300 0 16 8 1\n4951300 0 32 16 0\n";
    assert_eq!(
        all(text),
        [
            (0, op(Kind::Read, 8192, 4096), 0),
            (100_000, op(Kind::Write, 16_384, 8192), 0),
        ]
    );
    assert_eq!(parse(text).unwrap().format, "mqsim");
}

#[test]
fn blkparse() {
    let text = "\
  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
  8,0    3        1     0.000001000   697  Q   W 223490 + 8 [kjournald]
  8,0    1        2     0.000003500   697  D   R 16 + 8 [fio]
  8,0    3        4     0.000002500   697  D  WFS 8 + 8 [fio]
  8,0    3        5     0.000004500   697  D  FN [fio]
  8,0    3        6     1.000004500   697  D   D 0 + 2048 [fstrim]
  8,0    3        7     1.000004600   697  C   D 0 + 2048 [0]
CPU0 (sda):
 Reads Queued:           1,        4KiB\t Writes Queued:           1,        4KiB
";
    let fua = Op {
        fua: true,
        ..op(Kind::Write, 4096, 4096)
    };
    assert_eq!(
        all(text),
        [
            (0, fua, 3),
            (1000, op(Kind::Read, 8192, 4096), 1),
            (2000, op(Kind::Flush, 0, 0), 3),
            (1_000_002_000, op(Kind::Trim, 0, 1 << 20), 3),
        ]
    );
    let queued = "8,16 0 1 0.5 9 Q FWS 0 + 8 [a]\n8,16 70 1 0.500000001 9 Q R 8 + 8 [a]\n";
    assert_eq!(
        all(queued),
        [
            (0, op(Kind::Write, 0, 4096), 0),
            (1, op(Kind::Read, 4096, 4096), 6),
        ]
    );
}

#[test]
fn bad_ones_are_refused_with_their_line() {
    let head = |line: &str| format!("nvmirage-trace 1\n0 R 0 512\n{line}\n");
    for (text, line, word) in [
        (head("1 X 0 512"), 3, "no operation"),
        (head("1"), 3, "no operation"),
        (head("x R 0 512"), 3, "whole number"),
        (head("1 R 0"), 3, "no length"),
        (head("1 R 0 0"), 3, "no whole blocks"),
        (head("1 R 100 512"), 3, "no whole blocks"),
        (head("1 R 18446744073709551104 1024"), 3, "no end"),
        (head("1 R 0 512 64"), 3, "queue 64"),
        (head("1 R 0 512 0 9 9"), 3, "behind"),
        (head("1 R 0 512 0 x"), 3, "due time"),
        (head("5 R 0 512\n4 R 0 512"), 4, "falls"),
        ("nvmirage-trace 3\n".into(), 1, "version"),
        ("nvmirage-trace\n".into(), 1, "version"),
        (head("1 ZF 0 512"), 3, "of version 1"),
        ("nvmirage-trace 1\n".into(), 1, "no command"),
        ("hello\n".into(), 1, "no trace"),
        (String::new(), 1, "no trace"),
        (
            "1,h,0,Read,0,512,1\n2,h,0,Erase,0,512,1\n".into(),
            2,
            "neither",
        ),
        ("1,h,0,Read,0,512,1\n2,h\n".into(), 2, "fields"),
        (
            "1,h,0,Read,18446744073709551615,512,1\n".into(),
            1,
            "no end",
        ),
        (
            "99999999999999999999,h,0,Read,0,512,1\n".into(),
            1,
            "whole number",
        ),
        ("0 0 0 8 1\n0 0 0 8 2\n".into(), 2, "neither"),
        ("0 0 36028797018963968 8 1\n".into(), 1, "too large"),
        ("8,0 0 1 x 9 Q R 8 + 8 [a]\n".into(), 1, "none, as in"),
        (
            "fio version 3 iolog\n0 a write 0\n".into(),
            2,
            "whole number",
        ),
        ("fio version 3 iolog\n0 a wait 0 0\n".into(), 2, "no action"),
        ("1,R,0,512,1\n1,X,0,512,1\n".into(), 2, "neither R nor W"),
        ("1,0,8,0,7\n1,0,8,2,7\n".into(), 2, "neither 0"),
    ] {
        let error = parse(&text).unwrap_err();
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.why.contains(word), "{text}: {error}");
    }
    assert!(!is_trace("[global]\nbs=4k\n"));
}

/// Each form with a line that was published, or written by its definition.
#[test]
fn traces_of_other_places() {
    let read = |offset, len| op(Kind::Read, offset, len);
    let write = |offset, len| op(Kind::Write, offset, len);
    for (text, format, expected) in [
        (
            "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n128166372003061629,hm,1,Read,512,1024,413\n",
            "msr",
            vec![(0, read(512, 1024), 0)],
        ),
        (
            "419,W,8792731648,16384,1577808144360767\n419,R,8792735744,4096,1577808144361240\n",
            "alibaba",
            vec![
                (0, write(8_792_731_648, 16_384), 0),
                (473_000, read(8_792_735_744, 4096), 0),
            ],
        ),
        (
            "device_id,opcode,offset,length,timestamp\n725,R,512,4096,1\n",
            "alibaba",
            vec![(0, read(512, 4096), 0)],
        ),
        (
            "1538323200,12910952,128,0,1063\n1538323201,6338688,8,1,1063\n",
            "tencent",
            vec![
                (0, read(12_910_952 * 512, 65_536), 0),
                (1_000_000_000, write(6_338_688 * 512, 4096), 0),
            ],
        ),
        (
            "Timestamp,Response,IOType,LUN,Offset,Size\n1456066810.006243001,0.000150,W,3,1024,512\n1456066810.5,,R,3,100,1000\n1456066811.5,0.1,,3,,\n",
            "systor",
            vec![(0, write(1024, 512), 0), (493_756_999, read(0, 1536), 0)],
        ),
        (
            "0,20941264,8192,W,0.551706,a\n0,20939840,8192,r,0.554041\n",
            "spc",
            vec![
                (0, write(20_941_264 * 512, 8192), 0),
                (2_335_000, read(20_939_840 * 512, 8192), 0),
            ],
        ),
        (
            "89968195792462 20782 gzip 283193184 8 R 6 0 56f11b711d91a065a2b6458eca924523\n89968195792562 1 x 8 8 W 6 0 0\n",
            "fiu",
            vec![
                (0, read(283_193_184 * 512, 4096), 0),
                (100, write(4096, 4096), 0),
            ],
        ),
        (
            "fio version 3 iolog\n0 nvme0n1 add\n0 nvme0n1 open\n5 nvme0n1 write 4096 512\n7 nvme0n1 sync 0 0\n8 nvme0n1 trim 0 4096\n8 nvme0n1 close\n",
            "iolog",
            vec![
                (0, write(4096, 512), 0),
                (2000, op(Kind::Flush, 0, 0), 0),
                (3000, op(Kind::Trim, 0, 4096), 0),
            ],
        ),
        (
            "fio version 2 iolog\n/a add\n/a open\n/a read 0 512\n/a wait 200 0\n/a read 512 512\n/a wait 100 0\n/a datasync\n/a close\n",
            "iolog",
            vec![
                (0, read(0, 512), 0),
                (200_000, read(512, 512), 0),
                (300_000, op(Kind::Flush, 0, 0), 0),
            ],
        ),
    ] {
        let trace = parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(trace.format, format, "{text}");
        assert_eq!(all(text), expected, "{text}");
        assert_eq!(all(&format!("\u{feff}{text}")), expected, "{text}");
    }
}

#[test]
fn traces_of_several_devices() {
    for (text, devices) in [
        (
            include_str!("inputs/two-devices.blkparse"),
            ["259,0", "259,2"],
        ),
        (include_str!("inputs/alibaba.csv"), ["419", "725"]),
        (
            "1,hm,0,Read,0,512,1\n2,hm,1,Read,0,512,1\n",
            ["hm,0", "hm,1"],
        ),
        ("1,1,0,Read,0,512,1\n2,1,1,Read,0,512,1\n", ["1,0", "1,1"]),
        ("0 0 16 8 1\n1 3 16 8 1\n", ["0", "3"]),
        ("1,0,8,0,7\n1,0,8,1,8\n", ["7", "8"]),
        ("1 1 a 8 8 R 6 0 0\n2 1 a 8 8 R 6 1 0\n", ["6 0", "6 1"]),
        (
            "fio version 3 iolog\n0 a read 0 512\n1 b read 0 512\n",
            ["a", "b"],
        ),
    ] {
        let error = parse(text).unwrap_err();
        for device in devices {
            assert!(error.why.contains(&format!("{device} (")), "{error}");
            let chosen = parse_of(text, Some(device)).unwrap();
            assert!(!chosen.arrivals.is_empty(), "{text}");
            assert!(chosen.arrivals.len() < text.lines().count(), "{text}");
        }
        assert!(error.why.contains("--device"), "{error}");
        let none = parse_of(text, Some("none")).unwrap_err();
        assert!(none.why.contains("no device none"), "{none}");
    }
    let flushed = "fio version 3 iolog\n0 a read 0 512\n1 all sync 0 0\n";
    assert_eq!(parse(flushed).unwrap().arrivals.len(), 2);
    let second = parse_of(include_str!("inputs/two-devices.blkparse"), Some("259,2")).unwrap();
    let ops: Vec<Op> = second.arrivals.iter().map(|arrival| arrival.op).collect();
    assert_eq!(ops, [op(Kind::Write, 0, 4096), op(Kind::Read, 4096, 4096)]);
}

#[test]
fn what_is_no_known_trace_is_named() {
    for (text, word) in [
        (include_str!("inputs/mqsim-float.txt"), "DiskSim"),
        ("fio version 1 iolog\n", "version 1"),
        ("a,b,c\n1,2,3\n", "looks like a table"),
        ("{\"x\": 1}\n", "looks like JSON"),
        ("hello\n", "neither a job file"),
        ("\n", "empty"),
    ] {
        assert!(!is_trace(text), "{text}");
        let why = not_a_trace(text);
        assert!(why.contains(word) && why.contains("Alibaba"), "{why}");
    }
}

/// A record by `struct blk_io_trace`, in either byte order.
#[test]
fn blktrace_in_binary() {
    let file = |little: bool| {
        let mut bytes = Vec::new();
        let word = |bytes: &mut Vec<u8>, value: u32| {
            bytes.extend(if little {
                value.to_le_bytes()
            } else {
                value.to_be_bytes()
            });
        };
        let long = |bytes: &mut Vec<u8>, value: u64| {
            bytes.extend(if little {
                value.to_le_bytes()
            } else {
                value.to_be_bytes()
            });
        };
        let half = |bytes: &mut Vec<u8>, value: u16| {
            bytes.extend(if little {
                value.to_le_bytes()
            } else {
                value.to_be_bytes()
            });
        };
        for (at, sector, len, action, behind) in [
            (1_000u64, 8u64, 4096u32, 7 | 1 << 16 | 1 << 22, 0u16),
            (1_500, 16, 512, 7 | 1 << 17 | 1 << 31, 3),
            (2_000, 0, 0, 7 | 1 << 18, 0),
            (2_500, 0, 1 << 20, 7 | 1 << 17 | 1 << 29, 0),
            (2_600, 0, 4096, 8 | 1 << 16, 0),
        ] {
            word(&mut bytes, 0x6561_7407);
            word(&mut bytes, 1);
            long(&mut bytes, at);
            long(&mut bytes, sector);
            word(&mut bytes, len);
            word(&mut bytes, action);
            word(&mut bytes, 77);
            word(&mut bytes, 259 << 20 | 2);
            word(&mut bytes, 3);
            half(&mut bytes, 0);
            half(&mut bytes, behind);
            bytes.extend(vec![0; behind.into()]);
        }
        bytes
    };
    let fua = Op {
        fua: true,
        ..op(Kind::Write, 8192, 512)
    };
    for little in [true, false] {
        let bytes = file(little);
        assert!(is_binary(&bytes));
        let text = text_of_binary(&bytes).unwrap();
        assert_eq!(
            all(&text),
            [
                (0, op(Kind::Read, 4096, 4096), 3),
                (500, fua, 3),
                (1000, op(Kind::Flush, 0, 0), 3),
                (1500, op(Kind::Trim, 0, 1 << 20), 3),
            ]
        );
        assert!(parse_of(&text, Some("259,2")).is_ok());
        let cut = text_of_binary(&bytes[..bytes.len() - 1]).unwrap_err();
        assert!(cut.contains("47 of 48 bytes"), "{cut}");
        let mut other = bytes.clone();
        other[if little { 0 } else { 3 }] = 6;
        assert!(text_of_binary(&other).unwrap_err().contains("version 7"));
    }
    assert!(!is_binary(b"[global]\n"));
}
