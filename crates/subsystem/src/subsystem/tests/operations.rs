//! In which order operations go on, how much in a turn, and what media see of it.

use std::collections::BTreeSet;

use super::*;

#[test]
fn what_hangs_is_given_up_after_four_seconds() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let mut channels = channels(Manner::Synchronous);
    let id = subsystem.join("a").unwrap();
    subsystem.request(1, OperatorRequest::Delete { nsid: 1 });
    subsystem.turn(Time(5), &mut channels);
    subsystem.take_table(id);
    assert_eq!(subsystem.next_deadline(), Some(Time(4_000_000_005)));
    subsystem.turn(Time(4_000_000_004), &mut channels);
    assert!(!subsystem.wants_abandon(id));
    subsystem.turn(Time(4_000_000_005), &mut channels);
    assert!(subsystem.wants_abandon(id));
    subsystem.acknowledge(id, subsystem.generation());
    assert!(!subsystem.wants_abandon(id), "it has nothing in flight");
}

/// Erases the first 3.5 MiB of the medium, and what it saw.
fn erase(manner: Manner, capacity: usize) -> (Vec<Seen>, Vec<u8>) {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let mut channels = channels(manner);
    let medium = channels.get_mut(CHANNEL).unwrap();
    medium.bytes.fill(0xaa);
    medium.capacity = capacity;
    let range = ByteRange {
        offset: 0,
        len: 3 * MIB + MIB / 2,
    };
    let step = Step::Erase(Erase::zero(vec![(CHANNEL, range)]));
    subsystem.begin(Operation::new(Requester::Operator(1), 1, [step]));
    let mut done = Vec::new();
    for now in 1..100 {
        subsystem.turn(Time(now), &mut channels);
        channels.get_mut(CHANNEL).unwrap().reap(&mut done);
        for done in done.drain(..) {
            subsystem.complete(done.ticket, done.outcome);
        }
    }
    assert_eq!(subsystem.take_operator_answer(), Some((1, Ok(0))));
    let medium = channels.remove(CHANNEL).unwrap();
    (medium.seen.clone(), medium.bytes.clone())
}

#[test]
fn erasing_goes_in_slices_and_ends_with_a_flush() {
    for (manner, capacity) in [
        (Manner::Synchronous, 9),
        (Manner::Asynchronous, 9),
        (Manner::Asynchronous, 1),
    ] {
        let (seen, bytes) = erase(manner, capacity);
        let slices = [(0, MIB), (MIB, MIB), (2 * MIB, MIB), (3 * MIB, MIB / 2)];
        let zeroes = slices.map(|(offset, len)| Seen::WriteZeroes(offset, len, true, false));
        assert_eq!(seen[..4], zeroes);
        assert_eq!(seen[4..], [Seen::Flush]);
        let end = (3 * MIB + MIB / 2) as usize;
        assert!(bytes[..end].iter().all(|byte| *byte == 0));
        assert!(bytes[end..].iter().all(|byte| *byte == 0xaa));
    }
}

#[test]
fn a_medium_that_fails_undoes_the_operation() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let id = subsystem.join("a").unwrap();
    let mut channels = channels(Manner::Synchronous);
    channels.get_mut(CHANNEL).unwrap().fault = Some(port::Cause::WriteFailed);
    let range = ByteRange {
        offset: 0,
        len: MIB,
    };
    let erase = Erase::zero(vec![(CHANNEL, range)]);
    let busy = |busy| Change::SetBusy { nsid: 1, busy };
    let steps = [
        Step::Change(busy(Some(Busy::Formatting))),
        Step::Drain,
        Step::Erase(erase),
    ];
    let mut operation = Operation::new(Requester::Operator(1), 1, steps);
    operation.on_failure = vec![busy(None)];
    operation.failure = Status::WRITE_FAULT;
    subsystem.begin(operation);
    subsystem.turn(Time(1), &mut channels);
    assert!(
        subsystem
            .take_table(id)
            .get(1)
            .unwrap()
            .restrictions
            .is_some()
    );
    acknowledge_all(&mut subsystem);
    subsystem.turn(Time(2), &mut channels);
    assert!(
        subsystem
            .take_table(id)
            .get(1)
            .unwrap()
            .restrictions
            .is_none()
    );
    let answer = subsystem.take_operator_answer();
    assert_eq!(answer, Some((1, Err(Status::WRITE_FAULT))));
}

#[test]
fn operations_on_one_namespace_wait_for_each_other() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    subsystem.join("a").unwrap();
    let mut channels = channels(Manner::Synchronous);
    // A namespace that shrinks keeps its bytes until nothing is in flight.
    let requests = [(1, 1024), (1, 512), (3, 1024)];
    for (token, (nsid, len)) in (1..).zip(requests) {
        subsystem.request(token, OperatorRequest::Resize { nsid, len });
    }
    subsystem.turn(Time(1), &mut channels);
    let size = |subsystem: &Subsystem, nsid| {
        let n = subsystem.directory().get(nsid).unwrap();
        (n.namespace.blocks, n.len)
    };
    assert_eq!(size(&subsystem, 1), (2, 4096), "the second waits");
    assert_eq!(size(&subsystem, 3), (2, 4096), "the third does not");
    for now in 2..8 {
        acknowledge_all(&mut subsystem);
        subsystem.turn(Time(now), &mut channels);
    }
    assert_eq!(size(&subsystem, 1), (1, 512));
    let tokens: BTreeSet<u64> = std::iter::from_fn(|| subsystem.take_operator_answer())
        .map(|(token, _)| token)
        .collect();
    assert_eq!(tokens, BTreeSet::from([1, 2, 3]));
}

#[test]
fn one_about_all_namespaces_waits_for_earlier_ones_and_later_ones_for_it() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let id = subsystem.join("a").unwrap();
    let mut channels = channels(Manner::Synchronous);
    let busy = |nsid| Step::Change(Change::SetBusy { nsid, busy: None });
    let holds = |nsid| vec![busy(nsid), Step::Drain, busy(nsid)];
    begin(&mut subsystem, 1, 1, holds(1));
    // FFFFFFFFh: its tokens begin with 5.
    begin(&mut subsystem, u32::MAX, 2, holds(1));
    begin(&mut subsystem, 3, 3, holds(3));
    begin(&mut subsystem, NSID_NONE, 4, vec![busy(1)]);
    subsystem.turn(Time(1), &mut channels);
    assert_eq!(
        answered(&mut subsystem),
        [4],
        "about none: it waits for nobody"
    );
    let mut tokens = Vec::new();
    for now in 2..12 {
        subsystem.acknowledge(id, subsystem.generation());
        subsystem.turn(Time(now), &mut channels);
        tokens.extend(answered(&mut subsystem));
    }
    assert_eq!(tokens, [101, 502, 303]);
    assert!(!subsystem.operations_can_move());
}

#[test]
fn what_only_waits_holds_nobody_up() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        keeping: true,
        ..config()
    })
    .unwrap();
    let mut channels = channels(Manner::Synchronous);
    let mark = |slba| {
        let (nsid, blocks) = (1, 1);
        Step::Change(Change::MarkUncorrectable { nsid, slba, blocks })
    };
    // More than one turn begins.
    for number in 0..600 {
        begin(
            &mut subsystem,
            1,
            number,
            vec![mark(2 * number), Step::Drain, Step::Keep],
        );
    }
    let marked = |subsystem: &Subsystem| {
        let n = subsystem.directory().get(1).unwrap();
        n.uncorrectable.iter().count()
    };
    subsystem.turn(Time(1), &mut channels);
    let begun = marked(&subsystem);
    assert!((1..600).contains(&begun), "{begun} in one turn");
    for now in 2..20 {
        subsystem.turn(Time(now), &mut channels);
    }
    assert_eq!(marked(&subsystem), 600);
    assert_eq!(answered(&mut subsystem), []);
    let (version, record) = subsystem.take_record().unwrap();
    assert_eq!(record.namespaces[0].uncorrectable.len(), 600);
    subsystem.kept(version);
    for now in 20..40 {
        subsystem.turn(Time(now), &mut channels);
    }
    let tokens: Vec<u64> = (100..700).collect();
    assert_eq!(
        answered(&mut subsystem),
        tokens,
        "one record for all, in their order"
    );
}

#[test]
fn what_was_asked_for_before_a_sanitize_operation_began_finds_that_it_goes_on() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        pools: vec![pool(4 * MIB)],
        ..SubsystemConfig::with_namespaces(8, [])
    })
    .unwrap();
    let controller = subsystem.join("a").unwrap();
    let mut channels = channels(Manner::Hanging);
    let sanitize = Plan::Sanitize {
        cdw10: 2.into(),
        pattern: 0,
        controller,
    };
    let create = Plan::Create {
        blocks: 8,
        lba_shift: 9,
        shared: false,
    };
    begin(&mut subsystem, u32::MAX, 0, plan(sanitize));
    begin(&mut subsystem, NSID_NONE, 0, plan(create));
    subsystem.turn(Time(1), &mut channels);
    assert_eq!(subsystem.take_operator_answer(), Some((500, Ok(0))));
    let refused = Some((0, Err(Status::SANITIZE_IN_PROGRESS)));
    assert_eq!(subsystem.take_operator_answer(), refused);
}

#[test]
fn a_mark_is_checked_against_the_namespace_as_it_is_by_then() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let controller = subsystem.join("a").unwrap();
    let mut channels = channels(Manner::Synchronous);
    let mark = |slba| {
        plan(Plan::MarkUncorrectable {
            nsid: 1,
            slba,
            blocks: 1,
            controller,
        })
    };
    // Formatted meanwhile: one block of 4096 bytes is left of eight.
    let reformat = Change::Reformat {
        nsid: 1,
        lba_shift: 12,
    };
    begin(&mut subsystem, 1, 0, vec![Step::Change(reformat)]);
    begin(&mut subsystem, 1, 1, mark(1));
    begin(&mut subsystem, 1, 2, mark(0));
    let controllers = ControllerSet::ALL;
    let detach = Change::Detach {
        nsid: 1,
        controllers,
    };
    begin(&mut subsystem, 1, 3, vec![Step::Change(detach)]);
    begin(&mut subsystem, 1, 4, mark(0));
    subsystem.turn(Time(1), &mut channels);
    let ends: Vec<_> = std::iter::from_fn(|| subsystem.take_operator_answer()).collect();
    let expected = [
        Ok(0),
        Err(Status::LBA_OUT_OF_RANGE),
        Ok(0),
        Ok(0),
        Err(Status::INVALID_FIELD_IN_COMMAND),
    ];
    assert_eq!(
        ends.into_iter().map(|(_, end)| end).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn what_resets_leave_behind_is_bounded() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let controller = subsystem.join("a").unwrap();
    let mut channels = channels(Manner::Synchronous);
    let begin = |subsystem: &mut Subsystem, life, steps: Vec<Step>| {
        let cid = 1;
        let by = Requester::Admin {
            controller,
            life,
            cid,
        };
        subsystem.begin(Operation::new(by, 1, steps));
    };
    let busy = Step::Change(Change::SetBusy {
        nsid: 1,
        busy: None,
    });
    // The first one hangs, and the others wait for it, life after life.
    for life in 0..8192 {
        begin(
            &mut subsystem,
            life,
            vec![busy.clone(), Step::Drain, busy.clone()],
        );
    }
    subsystem.turn(Time(1), &mut channels);
    assert!(subsystem.take_answer(controller).is_none());
    begin(&mut subsystem, 8192, vec![busy.clone()]);
    let refused = subsystem.take_answer(controller).expect("at once");
    assert_eq!(refused.result, Err(Status::COMMAND_INTERRUPTED));
    acknowledge_all(&mut subsystem);
    subsystem.turn(Time(2), &mut channels);
    assert_eq!(subsystem.take_answer(controller).unwrap().result, Ok(0));
    begin(&mut subsystem, 8193, vec![busy]);
    assert!(
        subsystem.take_answer(controller).is_none(),
        "there is room again"
    );
}

#[test]
fn too_many_marks_are_refused() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let mut channels = channels(Manner::Synchronous);
    for number in 0..1025 {
        let (nsid, slba, blocks) = (1, 2 * number, 1);
        let mark = Step::Change(Change::MarkUncorrectable { nsid, slba, blocks });
        begin(&mut subsystem, 1, number, vec![mark]);
    }
    for now in 1..20 {
        subsystem.turn(Time(now), &mut channels);
    }
    for number in 0..1024 {
        assert_eq!(
            subsystem.take_operator_answer(),
            Some((100 + number, Ok(0)))
        );
    }
    let refused = Some((100 + 1024, Err(Status::INTERNAL_ERROR)));
    assert_eq!(subsystem.take_operator_answer(), refused);
}

#[test]
fn one_slice_of_a_medium_that_works_at_once_is_done_in_a_turn() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let mut channels = channels(Manner::Synchronous);
    for nsid in [1, 3] {
        let range = ByteRange {
            offset: 0,
            len: 2 * MIB,
        };
        let erase = Step::Erase(Erase::zero(vec![(CHANNEL, range)]));
        begin(&mut subsystem, nsid, 0, vec![erase]);
    }
    for turn in 1..=6 {
        assert!(subsystem.has_work());
        assert!(subsystem.turn(Time(turn), &mut channels));
        let seen = channels.get_mut(CHANNEL).unwrap().seen.len();
        assert_eq!(seen as u64, turn, "two slices and a flush of each");
    }
    assert!(!subsystem.turn(Time(9), &mut channels) || answered(&mut subsystem).len() == 2);
}

#[test]
fn a_medium_that_is_full_lets_the_reactor_sleep() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let mut channels = channels(Manner::Synchronous);
    channels.get_mut(CHANNEL).unwrap().capacity = 0;
    let range = ByteRange {
        offset: 0,
        len: MIB,
    };
    let erase = Step::Erase(Erase::zero(vec![(CHANNEL, range)]));
    begin(&mut subsystem, 1, 0, vec![erase]);
    subsystem.turn(Time(1), &mut channels);
    assert!(!subsystem.has_work(), "whoever makes room wakes it");
    channels.get_mut(CHANNEL).unwrap().capacity = 1;
    assert!(subsystem.turn(Time(2), &mut channels));
    assert!(subsystem.has_work());
    subsystem.turn(Time(3), &mut channels);
    assert_eq!(answered(&mut subsystem), [100]);
}

#[test]
fn a_pattern_is_written_round_by_round() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let mut channels = channels(Manner::Asynchronous);
    let targets = vec![
        (
            CHANNEL,
            ByteRange {
                offset: 512,
                len: 1024,
            },
        ),
        (
            CHANNEL,
            ByteRange {
                offset: MIB,
                len: 512 * 1024 + 512,
            },
        ),
    ];
    let rounds = vec![Round::Pattern(0x0403_0201), Round::Pattern(!0x0403_0201)];
    let erase = Step::Erase(Erase::of(targets, rounds));
    begin(&mut subsystem, u32::MAX, 0, vec![erase]);
    let mut done = Vec::new();
    for now in 1..40 {
        subsystem.turn(Time(now), &mut channels);
        channels.get_mut(CHANNEL).unwrap().reap(&mut done);
        for done in done.drain(..) {
            subsystem.complete(done.ticket, done.outcome);
        }
    }
    assert_eq!(answered(&mut subsystem), [500]);
    let medium = channels.get_mut(CHANNEL).unwrap();
    let round = [
        Seen::Write(512, 1024, false),
        Seen::Flush,
        Seen::Write(MIB, 256 * 1024, false),
        Seen::Write(MIB + 256 * 1024, 256 * 1024, false),
        Seen::Write(MIB + 512 * 1024, 512, false),
        Seen::Flush,
    ];
    assert_eq!(medium.seen, [round.clone(), round].concat());
    let inverse = [0xfe, 0xfd, 0xfc, 0xfb];
    assert_eq!(medium.bytes[512..1536], inverse.repeat(256));
    assert_eq!(medium.bytes[1536..1540], [0; 4]);
    assert_eq!(
        medium.bytes[MIB as usize..][..512 * 1024 + 512],
        inverse.repeat(131_200)
    );
}

#[test]
fn a_drain_gives_up_only_what_it_waits_for() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let (a, b) = (subsystem.join("a").unwrap(), subsystem.join("b").unwrap());
    let mut channels = channels(Manner::Synchronous);
    subsystem.request(1, OperatorRequest::Resize { nsid: 1, len: 512 });
    subsystem.turn(Time(0), &mut channels);
    subsystem.acknowledge(b, subsystem.generation());
    // Something else changes, and both are behind again.
    subsystem.request(2, OperatorRequest::Resize { nsid: 3, len: 512 });
    subsystem.turn(Time(4_000_000_000), &mut channels);
    assert!(subsystem.wants_abandon(a));
    assert!(!subsystem.wants_abandon(b), "it is not what is waited for");
}

/// Whatever a host manages: a power failure after the answer undoes no change.
#[test]
fn what_a_host_manages_is_kept_before_it_is_told() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        pools: vec![pool(4 * MIB)],
        keeping: true,
        ..SubsystemConfig::with_namespaces(8, [])
    })
    .unwrap();
    let mut channels = channels(Manner::Synchronous);
    let id = subsystem.join("a").unwrap();
    let controllers = ControllerSet::NONE.with(id);
    let plans = [
        Plan::Create {
            blocks: 8,
            lba_shift: 9,
            shared: false,
        },
        Plan::Attach {
            nsid: 1,
            controllers,
        },
        Plan::Format {
            nsid: 1,
            lba_shift: 12,
            controller: id,
        },
        Plan::Detach {
            nsid: 1,
            controllers,
        },
        Plan::Delete { nsid: 1 },
    ];
    let mut now = 0;
    let mut settle = |subsystem: &mut Subsystem| {
        for _ in 0..8 {
            now += 1;
            subsystem.turn(Time(now), &mut channels);
            acknowledge_all(subsystem);
        }
    };
    settle(&mut subsystem);
    while let Some((version, _)) = subsystem.take_record() {
        subsystem.kept(version);
        settle(&mut subsystem);
    }
    for wanted in plans {
        let what = format!("{wanted:?}");
        let before = subsystem.record();
        begin(&mut subsystem, NSID_NONE, 0, plan(wanted));
        settle(&mut subsystem);
        assert_eq!(answered(&mut subsystem), [], "{what}: it is not kept yet");
        let (version, record) = subsystem.take_record().expect("it changed");
        assert_ne!(record.namespaces, before.namespaces, "{what}");
        subsystem.kept(version);
        settle(&mut subsystem);
        assert_eq!(answered(&mut subsystem).len(), 1, "{what}");
    }
}
