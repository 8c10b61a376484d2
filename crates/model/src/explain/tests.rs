//! Closed forms, compared with hand computations.

use super::*;
use crate::preset::{preset, presets};
use crate::{Admission, KvKind, KvOp, Model, Op, Timing};

fn explain(name: &str, size: u64) -> Explanation {
    let preset = preset(name).unwrap();
    preset
        .parameters(size, None)
        .and_then(|p| p.explain())
        .unwrap()
}

fn ceiling(explanation: &Explanation, what: &str) -> (u64, &'static str) {
    let found = explanation.ceilings.iter().find(|c| c.what == what);
    let found = found.unwrap_or_else(|| panic!("no {what}"));
    (found.per_s.unwrap(), found.limit)
}

#[test]
fn the_970_pro_alone_and_at_its_ceilings() {
    let all = explain("samsung-970-pro", 64 << 30);
    // 21500 + 29760 + ceil(4096e9 / (800 * 2^20)) + ceil(4096e9 / (3360 * 2^20))
    //   = 21500 + 29760 + 4883 + 1163, and 12000 more for the other kind of page
    assert_eq!(
        (all.latencies[0].least_ns, all.latencies[0].most_ns),
        (57_306, 69_306)
    );
    // 4000 + 460 + 1163
    assert_eq!(all.latencies[1].least_ns, 5_623);
    // 16 dies / (35760 + 4883) ns
    assert_eq!(ceiling(&all, "random read"), (393_671, "dies"));
    // 16 dies * 32 KiB / (185000 + 39063) ns = 2.34 GB/s
    let write = all
        .ceilings
        .iter()
        .find(|c| c.what.starts_with("write"))
        .unwrap();
    assert_eq!(write.bytes_per_s, Some(2_339_913_327));
    assert_eq!(write.limit, "dies");
}

#[test]
fn pipelines_are_limited_by_rate_or_bandwidth() {
    let optane = explain("optane-p4800x", 1 << 30);
    assert_eq!(optane.latencies[0].least_ns, 5_390);
    assert_eq!(ceiling(&optane, "read"), (550_000, "rate"));
    assert_eq!(ceiling(&optane, "write"), (500_000, "rate"));
    let kv = explain("samsung-kvssd", 1 << 30);
    // 1.3 * 2^30 / 4096
    assert_eq!(ceiling(&kv, "store"), (340_787, "bandwidth, of all units"));
}

/// The bandwidth of a row is that of its own size: commands per second times bytes.
#[test]
fn a_ceiling_has_one_size() {
    let p3600 = explain("intel-p3600", 1 << 30);
    let row = |what: &str, bytes: u64| {
        let mut rows = p3600.ceilings.iter();
        let row = rows.find(|c| c.what == what && c.bytes == bytes).unwrap();
        (row.per_s.unwrap(), row.bytes_per_s.unwrap(), row.limit)
    };
    // The data sheet's 450,000 and 56,000 commands per second, of 4096 bytes each.
    assert_eq!(row("read", 4096), (450_000, 1_843_200_000, "rate"));
    assert_eq!(row("write", 4096), (56_000, 229_376_000, "rate"));
    // Its 2600 MB/s and 1700 MB/s, in commands of 128 KiB.
    assert_eq!(row("read", 131_072), (19_836, 2_600_000_000, "bandwidth"));
    assert_eq!(row("write", 131_072), (12_969, 1_700_000_000, "bandwidth"));
    for preset in presets() {
        let all = preset.parameters(64 << 30, None).unwrap();
        for row in all.explain().unwrap().ceilings {
            let (Some(per_s), Some(bytes_per_s)) = (row.per_s, row.bytes_per_s) else {
                continue;
            };
            let whole = bytes_per_s / row.bytes;
            assert_eq!(whole, per_s, "{} {}", preset.name, row.what);
        }
    }
}

#[test]
fn the_published_rules_let_latency_limit_throughput() {
    let preset = preset("optane-p4800x@code").unwrap();
    let mut parameters = preset.parameters(1 << 30, None).unwrap();
    let creation = crate::Moment::Creation;
    parameters.set("arithmetic", "code", creation).unwrap();
    let all = parameters.explain().unwrap();
    // 1 / 5390 ns
    assert_eq!(ceiling(&all, "read").0, 185_528);
    // 1 / 4130 ns
    assert_eq!(ceiling(&all, "write").0, 242_130);
}

#[test]
fn zones_are_counted() {
    let all = explain("wd-zn540", 64 << 30);
    let zones = all.zones.unwrap();
    assert_eq!((zones.zones, zones.dies), (32, 32));
    assert_eq!(zones.capacity_bytes, 32 * 1077 * (1 << 20));
    assert_eq!(zones.wordlines, 11_488);
    assert_eq!(zones.blocks, 32);
    // 20000 + 50000 + ceil(4096e9 / (450 * 2^20)) + ceil(4096e9 / (3050 * 2^20))
    assert_eq!(all.latencies[0].least_ns, 20_000 + 50_000 + 8_681 + 1_281);
    // 5600 + 600 + 1281
    assert_eq!(all.latencies[1].least_ns, 7_481);
    let prototype = explain("zns-prototype", 64 << 30);
    let (to_one, _) = ceiling(&prototype, "write, to one zone");
    // one die: 192 KiB / (1913000 + 234375 + 48 * 413) ns
    assert_eq!(to_one, 22_148);
}

/// Runs one command on a drive that has been idle for a second; returns its duration.
fn alone(model: &mut Model, now: &mut u64, op: &Op<'_>) -> u64 {
    *now += 1_000_000_000;
    assert_eq!(model.submit(*now, 0, op), Admission::Accepted);
    let mut done = Vec::new();
    while let Some(at) = model.next_event() {
        model.advance(at, &mut done);
    }
    done[0].at - *now
}

/// The closed forms agree with the models.
#[test]
fn models_take_what_is_explained() {
    for (preset, arithmetic) in presets().flat_map(|p| [(p, "exact"), (p, "code")]) {
        let mut parameters = preset.parameters(64 << 30, None).unwrap();
        let creation = crate::Moment::Creation;
        parameters.set("arithmetic", arithmetic, creation).unwrap();
        let explained = parameters.explain().unwrap();
        let latency = |what: &str| {
            let found = explained.latencies.iter().find(|l| l.what == what);
            found.unwrap_or_else(|| panic!("no {what}"))
        };
        let mut model = Model::new(&parameters).unwrap();
        let mut now = 0;
        if let Parameters::Kv(_) = parameters {
            for (kind, what) in [(KvKind::Store, "store"), (KvKind::Retrieve, "retrieve")] {
                let op = KvOp {
                    kind,
                    hash: 7,
                    len: 4096,
                };
                let took = alone(&mut model, &mut now, &Op::Kv(op));
                assert_eq!(took, latency(what).least_ns);
            }
            continue;
        }
        let write = |offset, len| Op::Write {
            offset,
            len,
            fua: false,
        };
        let first = alone(&mut model, &mut now, &write(0, 4096));
        assert_eq!(first, latency("write").least_ns, "{}", preset.full_name());
        // whole wordlines follow, so that there is something in every kind of page
        for page in 1..1024u64 {
            alone(&mut model, &mut now, &write(page * 4096, 4096));
        }
        let read = latency("read");
        let took: Vec<u64> = (0..512u64)
            .map(|page| {
                let offset = page * 4096;
                alone(&mut model, &mut now, &Op::Read { offset, len: 4096 })
            })
            .collect();
        let bounds = (took.iter().min().copied(), took.iter().max().copied());
        assert_eq!(
            bounds,
            (Some(read.least_ns), Some(read.most_ns)),
            "{}",
            preset.full_name()
        );
    }
}

/// The 970 PRO has 32 dies on 8 channels; flash pages of 32 KiB that are wordlines, senses of 29760
/// and 41760 ns.
#[test]
fn optional_mechanisms_show_in_what_follows() {
    let plain = preset("samsung-970-pro").unwrap();
    let plain = plain.parameters(64 << 30, None).unwrap();
    let mut parameters = plain.clone();
    for (name, text) in [
        ("flash_page", "16KiB"),
        ("planes", "2"),
        ("slc_cache", "1GiB"),
        ("slc_program", "100us"),
        ("map_cache_pages", "3"),
    ] {
        let creation = crate::Moment::Creation;
        parameters.set(name, text, creation).unwrap();
    }
    let (before, after) = (plain.explain().unwrap(), parameters.explain().unwrap());
    let latency = |explained: &Explanation, index: usize| {
        let latency = &explained.latencies[index];
        (latency.least_ns, latency.most_ns)
    };
    let Parameters::Flash(flash) = &plain else {
        panic!("another kind");
    };
    let map = flash.read_4k_ns[0] + transfer(flash, 4096);
    let (least, most) = latency(&before, 0);
    assert_eq!(latency(&after, 0), (least, most + map));
    let (least, most) = latency(&before, 2);
    assert_eq!(least, most);
    assert_eq!(
        latency(&after, 2),
        (most - flash.program_ns + 100_000, most)
    );
    // Twice as many senses at a time, as long as it is not the channels that limit them.
    let random = |explained: &Explanation| explained.ceilings[0].per_s.unwrap();
    assert_eq!(before.ceilings[0].limit, "dies");
    assert!(
        random(&after) > random(&before) * 3 / 2,
        "{:?}",
        after.ceilings[0]
    );
    let cached = &after.ceilings[3];
    assert_eq!(cached.what, "write, to single-bit cells");
    assert!(cached.per_s > after.ceilings[2].per_s);
    assert_eq!(before.ceilings.len(), 3);
}
