use proptest::prelude::*;

use super::*;

/// The definition, word for word: the earliest start at which no busy interval is met.
#[derive(Default)]
struct Slow {
    busy: Vec<(u64, u64)>,
}

impl Slow {
    fn reserve(&mut self, from: u64, length: u64) -> u64 {
        if length == 0 {
            return from;
        }
        let meets = |start: u64| {
            self.busy
                .iter()
                .any(|&(begin, end)| start < end && begin < start + length)
        };
        let ends = self.busy.iter().map(|&(_, end)| end);
        let start = ends
            .chain([from])
            .filter(|&start| start >= from && !meets(start))
            .min()
            .expect("the end of the last one is free");
        self.busy.push((start, start + length));
        start + length
    }
}

#[test]
fn a_gap_that_is_long_enough_is_filled_and_no_other() {
    let mut server = Intervals::default();
    assert_eq!(server.reserve(0, 100, 10), 110);
    assert_eq!(server.reserve(0, 120, 10), 130);
    assert_eq!(server.reserve(0, 105, 10), 120, "exactly between the two");
    assert_eq!(
        server.reserve(0, 0, 101),
        231,
        "too long for what is before"
    );
    assert_eq!(server.reserve(0, 0, 100), 100, "fits before all");
    assert_eq!(server.reserve(0, 50, 1), 232);
    assert_eq!(server.reserve(0, 70, 0), 70, "nothing takes no time");
}

#[test]
fn what_touches_is_one_interval_and_what_is_past_is_forgotten() {
    let mut server = Intervals::default();
    for start in (0..100).step_by(10) {
        assert_eq!(server.reserve(0, start, 5), start + 5);
    }
    assert_eq!(server.busy.len(), 10);
    for start in (5..95).step_by(10) {
        assert_eq!(server.reserve(0, start, 5), start + 5);
    }
    assert_eq!(server.busy, [(0, 95)]);
    assert_eq!(server.reserve(95, 95, 1), 96);
    assert_eq!(server.busy, [(95, 96)]);
}

proptest! {
    #[test]
    fn reservations_follow_the_definition(
        asked in prop::collection::vec((0u64..20, 0u64..300, 0u64..40), 1..120)
    ) {
        let mut slow = Slow::default();
        let mut server = Intervals::default();
        let mut now = 0;
        for (pause, later, length) in asked {
            now += pause;
            prop_assert_eq!(server.reserve(now, now + later, length), slow.reserve(now + later, length));
        }
        let apart = server.busy.iter().zip(server.busy.iter().skip(1)).all(|(a, b)| a.0 < a.1 && a.1 < b.0);
        prop_assert!(apart);
    }
}

fn direction(latency_ns: u64, bandwidth: u64, rate: u64) -> Direction {
    Direction {
        latency_ns,
        bandwidth_bytes_per_s: bandwidth,
        rate_per_s: rate,
    }
}

#[test]
fn fractions_of_a_nanosecond_are_carried_on() {
    // 4096 bytes at 3 GB/s are 1365 1/3 ns.
    let mut pace = Pace::new(&direction(10_000, 3_000_000_000, 0), 1);
    let mut free = Free::default();
    let ends: Vec<u64> = (0..4)
        .map(|_| {
            let end = free.take(&mut pace, 7, 4096);
            pace.ceil(end)
        })
        .collect();
    assert_eq!(ends, [1373, 2738, 4103, 5469]); // 7 + 1365.33, 2730.67, 4096, 5461.33
    let late = free.take(&mut pace, 1_000_000, 4096);
    assert_eq!(pace.ceil(late), 1_001_366);
}

#[test]
fn the_slower_of_bandwidth_and_rate_counts() {
    let mut pace = Pace::new(&direction(10_000, 1_000_000_000, 500_000), 1);
    let cost = |pace: &mut Pace, len| {
        let cost = pace.cost(len);
        pace.ceil(cost)
    };
    assert_eq!(cost(&mut pace, 0), 2000);
    assert_eq!(cost(&mut pace, 1999), 2000);
    assert_eq!(cost(&mut pace, 2001), 2001);
    assert_eq!(cost(&mut pace, 0), 2000);
    // One of ten has a tenth of each.
    let mut tenth = Pace::new(&direction(50_000, 1_000_000_000, 500_000), 10);
    assert_eq!(cost(&mut tenth, 512), 20_000);
    assert_eq!(cost(&mut tenth, 4096), 40_960);
}

#[test]
fn the_rest_of_a_latency_and_the_cost_of_a_page_are_the_latency() {
    let mut pace = Pace::new(&direction(0, 3_000_000_000, 0), 1);
    let cost = pace.cost(4096);
    for latency in [1366, 1367, 50_000] {
        let rest = pace.rest(latency);
        let whole = Exact {
            whole: latency,
            part: 0,
        };
        assert_eq!(pace.add(rest, cost), whole);
    }
    assert_eq!(pace.rest(1365), Exact::default());
}

#[test]
fn the_greatest_parameters_do_not_overflow() {
    let most = (1 << 50) - 1;
    let mut pace = Pace::new(&direction(0, most, most - 1), 4095);
    let mut free = Free::default();
    let end = free.take(&mut pace, u64::MAX, u32::MAX);
    assert_eq!(pace.ceil(end), u64::MAX);
    let mut slow = Pace::new(&direction(0, 1, 1), 4095);
    assert_eq!(slow.cost(u32::MAX).whole, u64::MAX); // some 557 000 years
}
