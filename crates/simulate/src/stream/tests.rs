//! Generated streams, compared with hand-written ones.

use super::*;
use crate::job::Extent;

fn stream(job: &Job, drive: u64) -> Stream {
    Stream::new(job, 0, drive, 1).unwrap()
}

fn take(stream: &mut Stream, count: usize) -> Vec<Op> {
    std::iter::from_fn(|| stream.next()).take(count).collect()
}

fn random() -> Job {
    Job {
        random: true,
        ..Job::default()
    }
}

#[test]
fn in_order_until_its_size_is_done() {
    let job = Job {
        offset: Extent::Bytes(8192),
        size: Some(Extent::Bytes(3 * 4096 + 512)),
        ..Job::default()
    };
    let all = take(&mut stream(&job, 1 << 20), 10);
    let offsets: Vec<_> = all.iter().map(|op| op.offset).collect();
    assert_eq!(offsets, [8192, 12_288, 16_384]);
    assert!(all.iter().all(|op| op.kind == Kind::Read && op.len == 4096));
}

/// The counts are those of fio 3.33.
#[test]
fn a_rest_smaller_than_a_command_is_left_out_of_the_size_and_not_of_io_size() {
    for (size, io_size, loops, commands) in [
        (10 << 10, None, 1, 2),
        (10 << 10, None, 3, 6),
        (1 << 20, Some(10 << 10), 1, 3),
        (1 << 20, Some(2500 << 10), 1, 625),
    ] {
        let job = Job {
            size: Some(Extent::Bytes(size)),
            io_size: io_size.map(Extent::Bytes),
            loops,
            ..random()
        };
        let count = take(&mut stream(&job, 1 << 20), 1000).len();
        assert_eq!(count, commands, "{size} {io_size:?} {loops}");
    }
}

#[test]
fn loops_and_time_go_around() {
    let size = Some(Extent::Percent(1));
    let job = Job {
        size,
        loops: 2,
        ..Job::default()
    };
    assert_eq!(take(&mut stream(&job, 4096 * 400), 100).len(), 8);
    let job = Job {
        time_based: true,
        ..job
    };
    assert_eq!(take(&mut stream(&job, 4096 * 400), 100).len(), 100);
    let job = Job {
        commands: Some(7),
        ..job
    };
    assert_eq!(take(&mut stream(&job, 4096 * 400), 100).len(), 7);
    let job = Job {
        commands: None,
        time_based: false,
        loops: 1,
        io_size: Some(Extent::Bytes(12_288)),
        ..job
    };
    assert_eq!(take(&mut stream(&job, 4096 * 400), 100).len(), 3);
}

#[test]
fn random_places_come_once_unless_told_to_forget() {
    let job = Job {
        time_based: true,
        ..random()
    };
    let mut order = stream(&job, 4096 * 64);
    let mut rounds = [0, 1].map(|_| take(&mut order, 64));
    assert_ne!(rounds[0], rounds[1]);
    for round in &mut rounds {
        round.sort_by_key(|op| op.offset);
        assert!(round.iter().map(|op| op.offset / 4096).eq(0..64));
    }
    let job = Job {
        forgets: true,
        ..job
    };
    let mut seen: Vec<_> = take(&mut stream(&job, 4096 * 64), 64)
        .iter()
        .map(|op| op.offset)
        .collect();
    seen.sort_unstable();
    seen.dedup();
    assert!((20..60).contains(&seen.len()), "{}", seen.len());
}

#[test]
fn mixes_are_as_asked() {
    let job = Job {
        kinds: vec![Kind::Read, Kind::Write],
        read_percent: 70,
        time_based: true,
        sizes: [
            vec![(4096, 100)],
            vec![(4096, 25), (16_384, 75)],
            vec![(4096, 100)],
        ],
        ..random()
    };
    let all = take(&mut stream(&job, 1 << 24), 10_000);
    let reads = all.iter().filter(|op| op.kind == Kind::Read).count();
    assert!((6800..7200).contains(&reads), "{reads}");
    let large = all.iter().filter(|op| op.len == 16_384).count();
    assert!((2050..2450).contains(&large), "{large}");
    assert!(all.iter().all(|op| op.offset + op.len <= 1 << 24));
    assert!(
        all.iter()
            .all(|op| op.kind == Kind::Write || op.len == 4096)
    );
}

#[test]
fn writes_are_flushed_and_durable_as_asked() {
    let job = Job {
        kinds: vec![Kind::Write],
        flush_every: 3,
        fua: true,
        time_based: true,
        ..Job::default()
    };
    let kinds: Vec<_> = take(&mut stream(&job, 1 << 20), 8)
        .iter()
        .map(|op| (op.kind, op.fua))
        .collect();
    let write = (Kind::Write, true);
    let flush = (Kind::Flush, false);
    assert_eq!(
        kinds,
        [write, write, write, flush, write, write, write, flush]
    );
}

#[test]
fn workers_differ_and_seeds_repeat() {
    let job = Job {
        offset_increment: Extent::Percent(25),
        size: Some(Extent::Percent(25)),
        ..Job::default()
    };
    let third = Stream::new(&job, 2, 1 << 20, 1).unwrap().next().unwrap();
    assert_eq!(third.offset, 1 << 19);
    assert!(Stream::new(&job, 4, 1 << 20, 1).is_err());
    let job = random();
    let of = |seed| take(&mut Stream::new(&job, 0, 1 << 20, seed).unwrap(), 50);
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
    assert_ne!(seed_of(1, 0, 0), seed_of(1, 0, 1));
    assert_ne!(seed_of(1, 0, 1), seed_of(1, 1, 0));
    let own = Job {
        seed: Some(9),
        ..random()
    };
    let of = |seed| take(&mut Stream::new(&own, 0, 1 << 20, seed).unwrap(), 50);
    assert_eq!(of(1), of(2));
}

#[test]
fn what_does_not_fit_is_refused() {
    let too_long = Job {
        size: Some(Extent::Bytes(2 << 20)),
        ..Job::default()
    };
    let error = Stream::new(&too_long, 0, 1 << 20, 1).unwrap_err();
    assert!(error.to_string().contains("--size"), "{error}");
    let too_short = Job {
        size: Some(Extent::Bytes(512)),
        ..Job::default()
    };
    let error = Stream::new(&too_short, 0, 1 << 20, 1).unwrap_err();
    assert!(error.to_string().contains("less than one command"));
}
