//! The program's rules, with hand-computed test vectors for each difference from the book's.

use super::*;
use crate::preset::{LINUX_WRITE_NS, preset};
use crate::{Model, Moment, ZoneOp};

fn model(name: &str, changes: &[(&str, &str)]) -> Simple {
    let mut parameters = preset(name).unwrap().parameters(1 << 30, None).unwrap();
    parameters
        .set("arithmetic", "code", Moment::Creation)
        .unwrap();
    for (name, text) in changes {
        parameters.set(name, text, Moment::Creation).unwrap();
    }
    Simple::new(&parameters).unwrap().unwrap()
}

fn optane() -> Simple {
    model("optane-p4800x@code", &[])
}

fn kv() -> Simple {
    model("samsung-kvssd", &[])
}

fn run(mut model: Simple, ops: &[(u64, Op<'_>)]) -> Vec<u64> {
    for (id, (now, op)) in ops.iter().enumerate() {
        assert!(model.has_room(op));
        assert_eq!(model.submit(*now, id as u64, op), Admission::Accepted);
    }
    let mut done = Vec::new();
    model.advance(u64::MAX, &mut done);
    assert_eq!(model.next_event(), None);
    done.sort_by_key(|due| due.id);
    done.iter().map(|due| due.at).collect()
}

fn read(len: u32) -> Op<'static> {
    Op::Read { offset: 0, len }
}

fn write(len: u32) -> Op<'static> {
    Op::Write {
        offset: 0,
        len,
        fua: false,
    }
}

fn put(len: u32) -> KvOp {
    KvOp {
        kind: KvKind::Store,
        hash: 0x1234_5678,
        len,
    }
}

/// 12 us and 2400 MiB/s less 6610 ns: time = 4096e9 / (2400 * 2^20) = 1627.6, delay = 12000 -
/// 1628 - 6610 = 3762; 14 us and 2000 MiB/s less 9870: time = 1953.1, delay = 14000 - 1953 - 9870
/// = 2177.
#[test]
fn what_the_script_sets() {
    let model = optane();
    assert_eq!(
        (model.rules.read.delay, model.rules.read.time),
        (3_762, 1_628)
    );
    assert_eq!(
        (model.rules.write.delay, model.rules.write.time),
        (2_177, 1_953)
    );
    // 56 us and 1.3 GiB/s less 9870: 2934.4, 56000 - 2934 - 9870 = 43196
    let model = kv();
    assert_eq!(
        (model.rules.write.delay, model.rules.write.time),
        (43_196, 2_934)
    );
}

#[test]
fn latency_occupies_the_unit() {
    // the book's model overlaps them
    let three = [(0, read(4096)), (0, read(4096)), (0, read(4096))];
    assert_eq!(run(optane(), &three), [5_390, 10_780, 16_170]);
}

#[test]
fn reads_and_writes_share_the_unit() {
    let both = [(0, read(4096)), (0, write(4096)), (20_000, write(512))];
    assert_eq!(run(optane(), &both), [5_390, 9_520, 24_130]);
}

#[test]
fn pages_of_a_request_come_one_after_another() {
    // 3762 + 64 * 1628 and 2177 + 64 * 1953
    assert_eq!(run(optane(), &[(0, read(256 << 10))]), [107_954]);
    assert_eq!(run(optane(), &[(0, write(256 << 10))]), [127_169]);
    assert_eq!(run(optane(), &[(0, read(4097))]), [7_018]);
}

#[test]
fn a_rate_is_not_known_and_deallocate_takes_no_time() {
    let slow = model("optane-p4800x@code", &[("read_rate", "1/s")]);
    assert_eq!(
        run(slow, &[(0, read(4096)), (0, read(4096))]),
        [5_390, 10_780]
    );
    let deallocate = Op::Deallocate {
        offset: 0,
        len: 1 << 20,
    };
    assert_eq!(
        run(optane(), &[(0, read(4096)), (7, deallocate)]),
        [5_390, 7]
    );
}

#[test]
fn what_is_of_another_kind_of_drive_takes_no_time() {
    let kv_ops = [(7, Op::Kv(put(4096))), (8, Op::Compound(&[put(4096)]))];
    assert_eq!(run(optane(), &kv_ops), [7, 8]);
    let reset = Op::Zone(ZoneOp::Reset { zone: 0 });
    assert_eq!(
        run(kv(), &[(7, read(4096)), (8, write(4096)), (9, reset)]),
        [7, 8, 9]
    );
}

#[test]
fn a_flush_waits_for_all_units() {
    assert_eq!(
        run(
            optane(),
            &[(0, write(4096)), (0, Op::Flush), (9_000, Op::Flush)]
        ),
        [4_130, 4_130, 9_000]
    );
    // a request of five pages: the last of ten units that it sets
    let five = [(0, Op::Kv(put(5 * 4096))), (0, Op::Flush)];
    assert_eq!(run(kv(), &five), [57_866, 57_866]);
}

#[test]
fn every_key_is_on_the_first_unit() {
    let keys = [0, 1, 2, 3].map(|hash| {
        let op = Op::Kv(KvOp { hash, ..put(4096) });
        (0, op)
    });
    assert_eq!(run(kv(), &keys), [46_130, 92_260, 138_390, 184_520]);
}

/// A request of two pages ends at 43196 + 2 * 2934 = 49064, but its first unit is free at 46130;
/// the next request begins there, and sets the second unit, which was busy until 49064, to its own
/// end.
#[test]
fn the_next_request_begins_when_the_first_page_of_this_one_is_done() {
    let two = [(0, Op::Kv(put(8192))), (0, Op::Kv(put(4096)))];
    assert_eq!(run(kv(), &two), [49_064, 92_260]);
    // with one unit only it begins when all of it is
    let one = model("samsung-kvssd", &[("units", "1")]);
    assert_eq!(run(one, &two), [49_064, 95_194]);
}

/// A busy unit is set back. On two units: four pages end at 54932 with the units busy until 51998
/// and 54932; a request for the second unit would have to wait; one of one page at address 0 leaves
/// it at 54932, and one of two pages sets it to its own end.
#[test]
fn a_unit_is_set_to_what_the_last_request_took() {
    let mut two = model("samsung-kvssd", &[("units", "2")]);
    assert_eq!(two.request(0, 0, 4 * 4096, two.rules.write), 54_932);
    assert_eq!(two.busy, [51_998, 54_932]);
    let fast = Cost { delay: 1, time: 1 };
    two.busy = vec![0, 54_932];
    assert_eq!(two.request(0, 0, 2 * 4096, fast), 3);
    assert_eq!(two.busy, [2, 3]);
}

#[test]
fn delete_exist_and_list_take_no_time() {
    for kind in [KvKind::Delete, KvKind::Exist, KvKind::List] {
        let op = Op::Kv(KvOp { kind, ..put(4096) });
        assert_eq!(run(kv(), &[(0, Op::Kv(put(4096))), (5, op)]), [46_130, 5]);
    }
}

/// Eight puts of 4 KiB one by one: 8 * 46130 = 369 us, and with the host's share of each 448 us
/// (published: 469). As one request of 32 KiB: 43196 + 8 * 2934 = 66.7 us, and with one host's
/// share 76.5 us; with a head of 512 bytes 79.5 us (published: 86).
#[test]
fn the_compound_command() {
    let puts = [put(4096); 8];
    let in_order = || model("samsung-kvssd", &[("compound", "in_order")]);
    assert_eq!(run(in_order(), &[(0, Op::Compound(&puts))]), [369_040]);
    assert_eq!(369_040 + 8 * LINUX_WRITE_NS, 448_000);
    assert_eq!(run(kv(), &[(0, Op::Compound(&puts))]), [66_668]);
    assert_eq!(66_668 + LINUX_WRITE_NS, 76_538);
    let with_head = [&puts[..], &[put(512)]].concat();
    assert_eq!(run(kv(), &[(0, Op::Compound(&with_head))]), [69_602]);
    assert_eq!(69_602 + LINUX_WRITE_NS, 79_472);
    // eight commands at once are one after another as well: all are on the first unit
    let alone = puts.map(|op| (0, Op::Kv(op)));
    assert_eq!(run(kv(), &alone).last(), Some(&369_040));
}

#[test]
fn a_compound_command_of_other_things() {
    let get = KvOp {
        kind: KvKind::Retrieve,
        ..put(4096)
    };
    let delete = KvOp {
        kind: KvKind::Delete,
        ..put(0)
    };
    // 154 us and 2.6 GiB/s less 6610: one read alone takes 147390
    assert_eq!(run(kv(), &[(0, Op::Compound(&[get]))]), [147_390]);
    assert_eq!(run(kv(), &[(3, Op::Compound(&[delete, delete]))]), [3]);
    assert_eq!(run(kv(), &[(3, Op::Compound(&[]))]), [3]);
    assert_eq!(run(kv(), &[(0, Op::Compound(&[get, put(4096)]))]), [49_064]);
}

#[test]
fn no_bandwidth_is_what_the_program_has_before_its_script() {
    let max = model(
        "optane-p4800x@code",
        &[("read_bandwidth", "none"), ("read_latency", "1ns")],
    );
    assert_eq!((max.rules.read.delay, max.rules.read.time), (1, 1));
}

fn parameters(name: &str, arithmetic: &str) -> Parameters {
    let preset = preset(name).unwrap();
    let mut parameters = preset.parameters(64 << 30, None).unwrap();
    let creation = Moment::Creation;
    parameters.set("arithmetic", arithmetic, creation).unwrap();
    parameters
}

#[test]
fn it_is_chosen_when_the_drive_is_made() {
    for preset in crate::preset::presets() {
        let name = preset.full_name();
        let (exact, code) = (parameters(&name, "exact"), parameters(&name, "code"));
        for (made, other) in [(&exact, &code), (&code, &exact)] {
            let mut model = Model::new(made).unwrap();
            let error = model.retune(other).unwrap_err().to_string();
            assert!(error.starts_with("arithmetic cannot be changed"), "{error}");
            model.retune(made).unwrap();
        }
    }
}

#[test]
fn other_parameters_may_change_but_for_units_and_kind() {
    let mut model = Model::new(&parameters("samsung-kvssd", "code")).unwrap();
    assert!(matches!(model, Model::Code(_)));
    assert!(model.retune(&parameters("optane-p4800x", "code")).is_err());
    let mut other = parameters("samsung-kvssd", "code");
    other.set("units", "11", Moment::Creation).unwrap();
    assert!(model.retune(&other).is_err());
    other.set("units", "10", Moment::Creation).unwrap();
    other.set("write_latency", "56us", Moment::Running).unwrap();
    model.retune(&other).unwrap();
    model.submit(0, 0, &Op::Kv(put(4096)));
    assert_eq!(model.next_event(), Some(56_000));
}

/// One command on a drive that has been idle for a second.
fn alone(model: &mut Model, now: &mut u64, op: &Op<'_>) -> u64 {
    *now += 1_000_000_000;
    assert_eq!(model.submit(*now, 0, op), Admission::Accepted);
    let mut done = Vec::new();
    while let Some(at) = model.next_event() {
        model.advance(at, &mut done);
    }
    done[0].at - *now
}

/// Firmware, sense, 32 credits over the channel and 32 over the link; and of writes the buffer and
/// 32 credits.
///
/// 970 PRO: 21500 + 29760 + 32 * 152 + 32 * 36, 12000 more for the other kind of page; 4000 + 460 +
/// 32 * 36. Prototype: 32150 + 25485 + 32 * (152 + 12) + 32 * 38; 32 * 38. ZN540: 20000 + 50000 +
/// 32 * 271 + 32 * 40; 5600 + 600 + 32 * 40.
#[test]
fn pages_of_flash_and_zones_alone() {
    for (name, first_write, reads) in [
        ("samsung-970-pro", 5_612, [57_276, 69_276]),
        ("zns-prototype@code", 1_216, [64_099, 64_099]),
        ("wd-zn540", 7_480, [79_952, 79_952]),
    ] {
        let mut model = Model::new(&parameters(name, "code")).unwrap();
        let mut now = 0;
        for page in 0..1024u64 {
            let op = Op::Write {
                offset: page * 4096,
                len: 4096,
                fua: false,
            };
            let took = alone(&mut model, &mut now, &op);
            assert!(page > 0 || took == first_write, "{name}: {took}");
        }
        let took: Vec<u64> = (0..512u64)
            .map(|page| {
                alone(
                    &mut model,
                    &mut now,
                    &Op::Read {
                        offset: page * 4096,
                        len: 4096,
                    },
                )
            })
            .collect();
        let bounds = [*took.iter().min().unwrap(), *took.iter().max().unwrap()];
        assert_eq!(bounds, reads, "{name}");
    }
}

#[test]
fn what_the_program_does_not_time() {
    // a page that is not mapped: the firmware only
    let mut model = Model::new(&parameters("samsung-970-pro", "code")).unwrap();
    let mut now = 0;
    let unmapped = Op::Read {
        offset: 0,
        len: 4096,
    };
    assert_eq!(alone(&mut model, &mut now, &unmapped), 21_500);
    let mut exact = Model::new(&parameters("samsung-970-pro", "exact")).unwrap();
    assert_eq!(alone(&mut exact, &mut now, &unmapped), 21_500 + 1_163);
    // zones: reset, finish and open
    let mut model = Model::new(&parameters("wd-zn540", "code")).unwrap();
    let write = Op::Write {
        offset: 0,
        len: 512 << 10,
        fua: false,
    };
    alone(&mut model, &mut now, &write);
    for op in [
        ZoneOp::Open { zone: 0 },
        ZoneOp::Finish { zone: 0 },
        ZoneOp::Reset { zone: 0 },
    ] {
        assert_eq!(alone(&mut model, &mut now, &Op::Zone(op)), 0);
    }
    // and it is empty again: a read senses nothing
    let read = Op::Read {
        offset: 0,
        len: 4096,
    };
    assert_eq!(alone(&mut model, &mut now, &read), 20_000 + 32 * 40);
}
