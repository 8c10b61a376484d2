use super::*;
use crate::{Arithmetic, Direction};

/// Ten units; 154 us and 2600 MiB/s, 56 us and 1300 MiB/s; the latencies of the others are made up.
fn drive(compound: CompoundRule) -> KvParameters {
    KvParameters {
        arithmetic: Arithmetic::Exact,
        units: 10,
        read: Direction {
            latency_ns: 154_000,
            bandwidth_bytes_per_s: 2600 << 20,
            rate_per_s: 0,
        },
        write: Direction {
            latency_ns: 56_000,
            bandwidth_bytes_per_s: 1300 << 20,
            rate_per_s: 0,
        },
        delete_latency_ns: 40_000,
        exist_latency_ns: 1000,
        list_latency_ns: 200_000,
        compound,
    }
}

fn op(kind: KvKind, hash: u32, len: u32) -> KvOp {
    KvOp { kind, hash, len }
}

fn finish(model: &mut Kv) -> Vec<(u64, u64)> {
    let mut done = Vec::new();
    model.advance(u64::MAX, &mut done);
    done.iter().map(|due| (due.at, due.id)).collect()
}

fn run(model: &mut Kv, now: u64, ops: &[Op<'_>]) -> Vec<(u64, u64)> {
    for (id, op) in ops.iter().enumerate() {
        assert_eq!(model.submit(now, id as u64, op), Admission::Accepted);
    }
    finish(model)
}

// One unit: a write of 4096 bytes costs 40960 / (1300 MiB/s) = 30048.08 ns, a read 15024.04.

#[test]
fn keys_of_one_unit_wait_for_each_other_and_those_of_others_do_not() {
    let mut model = Kv::new(&drive(CompoundRule::Together)).unwrap();
    let store = |hash| Op::Kv(op(KvKind::Store, hash, 4096));
    assert_eq!(
        run(&mut model, 0, &[store(3), store(13), store(4)]),
        [(56_000, 0), (56_000, 2), (86_049, 1)]
    );
}

#[test]
fn every_kind_has_its_server_and_its_latency() {
    let mut model = Kv::new(&drive(CompoundRule::Together)).unwrap();
    let ops = [
        op(KvKind::Append, 1, 2048),   // 56000 - 15024.04
        op(KvKind::Retrieve, 1, 4096), // the other server
        op(KvKind::Delete, 1, 99), // after the append, 15024.04, at no cost: 40000 - 30048.08 more
        op(KvKind::Exist, 2, 99),  // less than the cost of a page: at once
        op(KvKind::List, 2, 8192), // unit 0; a page more than one: 200000 + 15024.04
        op(KvKind::Retrieve, 0, 0), // after the list: 30048.08 + 154000 - 15024.04
    ];
    let ops = ops.map(Op::Kv);
    assert_eq!(
        run(&mut model, 0, &ops),
        [
            (0, 3),
            (24_976, 2),
            (40_976, 0),
            (154_000, 1),
            (169_025, 5),
            (215_025, 4)
        ]
    );
}

#[test]
fn sub_commands_start_together_and_the_compound_ends_with_the_last() {
    let ops: Vec<KvOp> = [1, 2, 11, 3]
        .map(|hash| op(KvKind::Store, hash, 4096))
        .into();
    let mut model = Kv::new(&drive(CompoundRule::Together)).unwrap();
    let commands = [Op::Compound(&ops), Op::Compound(&[]), Op::Flush];
    assert_eq!(
        run(&mut model, 7, &commands),
        [(7, 1), (86_056, 0), (86_056, 2)]
    );
}

#[test]
fn in_order_each_begins_when_the_one_before_is_done() {
    let ops: Vec<KvOp> = (0..8).map(|hash| op(KvKind::Store, hash, 4096)).collect();
    let mut model = Kv::new(&drive(CompoundRule::InOrder)).unwrap();
    assert_eq!(
        run(&mut model, 7, &[Op::Compound(&ops), Op::Compound(&[])]),
        [(7, 1), (448_007, 0)]
    );
}

#[test]
fn what_waits_for_its_turn_holds_no_unit() {
    let ops = [op(KvKind::Store, 0, 4096), op(KvKind::Store, 1, 4096)];
    let mut model = Kv::new(&drive(CompoundRule::InOrder)).unwrap();
    model.submit(0, 0, &Op::Compound(&ops));
    assert_eq!(model.next_event(), Some(56_000));
    // Arrives before the second sub-command begins, on its unit: 50000 to 80048.08.
    model.submit(50_000, 1, &Op::Kv(ops[1]));
    // Arrives when it begins, and comes after it: 80048.08 to 110096.15, and this to 140144.23.
    model.submit(56_000, 2, &Op::Kv(ops[1]));
    assert_eq!(
        finish(&mut model),
        [(106_000, 1), (136_049, 0), (166_097, 2)]
    );
    assert_eq!(model.next_event(), None);
}

#[test]
fn chains_due_together_go_by_their_submission() {
    let first = [op(KvKind::Store, 5, 4096), op(KvKind::Store, 1, 4096)];
    let second = [op(KvKind::Store, 6, 4096), op(KvKind::Store, 1, 4096)];
    let mut model = Kv::new(&drive(CompoundRule::InOrder)).unwrap();
    let commands = [Op::Compound(&first), Op::Compound(&second)];
    assert_eq!(run(&mut model, 0, &commands), [(112_000, 0), (142_049, 1)]);
    assert_eq!(model.chains.free.len(), 2);
    model.submit(1_000_000, 7, &commands[0]);
    assert_eq!(model.chains.slots.len(), 2, "slots are used again");
}

#[test]
fn what_is_refused_says_what_would_do() {
    let mut parameters = drive(CompoundRule::Together);
    parameters.units = 0;
    assert!(Kv::new(&parameters).is_err());
    parameters.units = 10;
    parameters.write.latency_ns = 30_048;
    let refused = Kv::new(&parameters).unwrap_err().to_string();
    assert!(refused.contains("30049ns"), "{refused}");
    let mut model = Kv::new(&drive(CompoundRule::Together)).unwrap();
    parameters.write.latency_ns = 30_049;
    model.retune(&parameters).unwrap();
    assert_eq!(
        run(&mut model, 0, &[Op::Kv(op(KvKind::Store, 1, 4096))]),
        [(30_049, 0)]
    );
    parameters.units = 11;
    assert_eq!(
        model.retune(&parameters),
        Err(ParameterError::Fixed { name: "units" })
    );
}
