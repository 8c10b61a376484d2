//! Contents of other formats for a few commands. Tests of the program check them with those
//! formats' own readers.

use serde_json::Value;

use super::*;
use crate::{Header, Record, stats};

/// A command like `read`, this much later, with a change.
fn with(read: &Record, at: u64, opcode: u8, change: fn(&mut Record)) -> Record {
    let at_ns = read.at_ns + at;
    let mut record = Record {
        at_ns,
        opcode,
        ..*read
    };
    change(&mut record);
    record
}

/// Six commands of two queues: two reads that overlap, a write with FUA that follows the first, a
/// flush, a trim of 2 ranges, and one that failed.
fn records() -> Vec<Record> {
    let read = Record {
        at_ns: 5_000_000,
        stages: [100, 0, 200, 9_000, 700, 50],
        cqid: 1,
        sqid: 1,
        cid: 1,
        opcode: 2,
        lba_shift: 9,
        nsid: 1,
        slba: 8,
        blocks: 8,
        bytes: 4096,
        depth: 1,
        ..Record::default()
    };
    vec![
        read,
        with(&read, 3_000, 2, |r| (r.cid, r.slba, r.depth) = (2, 16, 2)),
        with(&read, 20_000, 1, |r| {
            (r.sqid, r.slba, r.fua) = (2, 16, true)
        }),
        with(&read, 40_000, 0, |r| {
            (r.blocks, r.bytes, r.slba) = (0, 0, 0)
        }),
        with(&read, 60_000, 9, |r| {
            (r.detail, r.bytes, r.blocks) = (2, 32, 1 << 22)
        }),
        with(&read, 80_000, 2, |r| (r.status, r.bytes) = (0x80, 0)),
    ]
}

#[test]
fn fio_has_lines_of_its_third_version() {
    let mut out = Vec::new();
    let left_out = fio(&mut out, &records()).unwrap();
    let text = String::from_utf8(out).unwrap();
    let expected = "fio version 3 iolog\n0 nvme0n1 add\n0 nvme0n1 open\n0 nvme0n1 read 4096 4096\n\
                    3 nvme0n1 read 8192 4096\n20 nvme0n1 write 8192 4096\n40 nvme0n1 sync 0 0\n\
                    60 nvme0n1 trim 4096 1073741824\n60 nvme0n1 trim 1073745920 1073741824\n80 nvme0n1 close\n";
    assert_eq!(text, expected);
    let left_out: Vec<_> = left_out.into_iter().collect();
    assert_eq!(
        left_out,
        [("are further ranges of one", 1), ("ended with an error", 1)]
    );
}

/// A number of ranges that a file says is counted, not counted up to: for that there is no time
/// before a test is ended.
#[test]
fn further_ranges_are_not_counted_one_by_one() {
    let most = Record {
        detail: u32::MAX,
        ..records()[4]
    };
    let left_out = fio(&mut std::io::sink(), &[most; 4]).unwrap();
    let count = 4 * u64::from(u32::MAX - 1);
    assert_eq!(left_out["are further ranges of one"], count);
}

#[test]
fn blkparse_has_three_events_of_each_in_order() {
    let mut out = Vec::new();
    let left_out = blktrace(&mut out, &records()).unwrap();
    assert!(left_out.is_empty());
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(lines.len(), 18);
    let first: Vec<&str> = lines[0].clone();
    assert_eq!(
        first,
        [
            "259,1",
            "0",
            "1",
            "0.000000000",
            "0",
            "Q",
            "R",
            "8",
            "+",
            "8",
            "[host]"
        ]
    );
    assert_eq!(lines[1][3..7], ["0.000000300", "0", "D", "R"]);
    assert_eq!(lines[4][3..7], ["0.000010000", "0", "C", "R"]);
    let failed: Vec<_> = lines.iter().filter(|l| l.last() == Some(&"[1]")).collect();
    assert_eq!(failed.len(), 1);
    let times: Vec<&str> = lines.iter().map(|line| line[3]).collect();
    assert!(times.is_sorted());
}

#[test]
fn slices_of_a_track_lie_within_each_other() {
    let mut out = Vec::new();
    chrome(&mut out, &Header::default(), &records()).unwrap();
    let value: Value = serde_json::from_slice(&out).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let slices: Vec<_> = events.iter().filter(|e| e["ph"] == "X").collect();
    let commands: Vec<_> = slices.iter().filter(|e| e["cat"] == "command").collect();
    assert_eq!(commands.len(), 6);
    assert_eq!(commands[0]["ts"], 0.0);
    assert_eq!(commands[0]["dur"], 10.05);
    assert_eq!(
        (&commands[0]["tid"], &commands[1]["tid"]),
        (&1.into(), &2.into())
    );
    let ns = |value: &Value| (value.as_f64().unwrap() * 1000.0).round() as u64;
    let span = |e: &Value| (ns(&e["ts"]), ns(&e["ts"]) + ns(&e["dur"]));
    for one in &slices {
        for other in &slices {
            if (&one["pid"], &one["tid"]) != (&other["pid"], &other["tid"]) {
                continue;
            }
            let ((a, b), (c, d)) = (span(one), span(other));
            let apart = b <= c || d <= a;
            let within = (a <= c && d <= b) || (c <= a && b <= d);
            assert!(apart || within, "{one} {other}");
        }
    }
    let names: Vec<_> = events
        .iter()
        .filter(|e| e["name"] == "process_name")
        .collect();
    assert_eq!(names.len(), 2);
}

/// As a list that is searched from its start would give them.
#[test]
fn a_command_has_the_first_track_that_is_free() {
    let mut tracks = chrome::Tracks::default();
    let mut list = Vec::<u64>::new();
    let mut state = 1u32;
    for step in 0..5000u64 {
        // a linear congruential generator (Numerical Recipes)
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (begun, took) = (step / 3 * 7, u64::from(state >> 24));
        let free = list.iter().position(|until| *until <= begun);
        let expected = free.unwrap_or(list.len());
        if free.is_none() {
            list.push(0);
        }
        list[expected] = begun + took.max(1);
        assert_eq!(tracks.take(begun, begun + took), expected + 1, "{step}");
    }
    assert!(list.len() > 50, "{}", list.len());
}

/// Commands that all overlap have a track each; for a search of all of them there is no time before
/// a test is ended.
#[test]
fn many_commands_in_flight_are_many_tracks() {
    let mut tracks = chrome::Tracks::default();
    for at in 0..1_000_000 {
        assert_eq!(tracks.take(at, u64::MAX), at as usize + 1);
    }
}

#[test]
fn a_table_has_a_line_of_as_many_columns_for_each() {
    let mut out = Vec::new();
    csv(&mut out, 4_000_000, &records()).unwrap();
    let text = String::from_utf8(out).unwrap();
    let columns: Vec<usize> = text.lines().map(|line| line.split(',').count()).collect();
    assert_eq!(columns, [23; 7]);
    assert!(
        text.contains("\n1020000,1,2,1,Write,1,1,16,8,512,4096,1,0,,1,0,10000,100,"),
        "{text}"
    );
}

#[test]
fn numbers_of_a_few_commands() {
    let stats = stats::of(&records());
    assert_eq!((stats.commands, stats.span_ns), (6, 90_000));
    let names: Vec<_> = stats
        .operations
        .iter()
        .map(|o| (&*o.name, o.count, o.bytes))
        .collect();
    assert_eq!(
        names,
        [
            ("Read", 3, 8192),
            ("Flush", 1, 0),
            ("Write", 1, 4096),
            ("Dataset Management", 1, 32)
        ]
    );
    assert_eq!(stats.operations[0].errors, 1);
    assert_eq!(stats.errors, [(0x80, 1)]);
    assert_eq!(stats.stages[3].mean_ns, 9000.0);
    // of two reads and a write, the second read continues where the first ended
    assert_eq!(stats.sequential_percent, Some(100.0 / 3.0));
    assert_eq!(
        (stats.queues[0].commands, stats.queues[0].depth_max),
        (5, 2)
    );
    assert_eq!((stats.hottest[0].start, stats.hottest[0].commands), (0, 3));
    // the nearest-rank method
    let hundred = stats::Latencies::of((1..=100).rev().collect());
    assert_eq!(
        (
            hundred.p50_ns,
            hundred.p90_ns,
            hundred.p99_ns,
            hundred.p99_9_ns
        ),
        (50, 90, 99, 100)
    );
    assert_eq!((hundred.mean_ns, hundred.max_ns), (50.5, 100));
}
