//! Operations and the directory, with members that acknowledge as they are told to.

use std::collections::BTreeSet;

use nvme_spec::Status;
use proptest::prelude::*;

use super::*;
use crate::port::{ByteRange, ChannelId, MediumTraits};
use crate::testing::{Manner, Seen, TestMedium, namespace};

const CHANNEL: ChannelId = ChannelId(0);
const MIB: u64 = 1 << 20;

fn config() -> SubsystemConfig {
    SubsystemConfig::with_namespaces(8, [namespace(1, CHANNEL, 8), namespace(3, CHANNEL, 8)])
}

fn channels(manner: Manner) -> Channels<TestMedium> {
    let mut channels = Channels::new();
    let medium = TestMedium::new(4 * MIB as usize, manner);
    assert!(channels.insert(medium).is_ok());
    channels
}

fn acknowledge_all(subsystem: &mut Subsystem) {
    let ids: Vec<ControllerId> = subsystem.controllers().collect();
    for id in ids {
        subsystem.take_table(id);
        subsystem.acknowledge(id, subsystem.generation());
    }
}

#[test]
fn a_controller_keeps_its_identifier() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    assert_eq!(subsystem.join("a").unwrap(), ControllerId(1));
    assert_eq!(subsystem.join("b").unwrap(), ControllerId(2));
    subsystem.leave(ControllerId(1));
    assert_eq!(subsystem.join("c").unwrap(), ControllerId(3));
    assert_eq!(subsystem.join("a").unwrap(), ControllerId(1));
    for number in 4..=63 {
        subsystem.join(&format!("{number}")).unwrap();
    }
    assert!(subsystem.join("one too many").is_err());
    assert_eq!(subsystem.join("b").unwrap(), ControllerId(2));
}

#[test]
fn an_operator_is_answered_when_everybody_acknowledged_and_the_record_is_kept() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        keeping: true,
        ..config()
    })
    .unwrap();
    let mut channels = channels(Manner::Synchronous);
    let (a, b) = (subsystem.join("a").unwrap(), subsystem.join("b").unwrap());
    let request = OperatorRequest::Detach {
        nsid: 3,
        controllers: ControllerSet::NONE.with(b),
    };
    subsystem.request(7, request);
    assert!(subsystem.has_work());
    subsystem.turn(Time(1), &mut channels);
    assert_eq!(subsystem.take_table(a).len(), 2);
    assert_eq!(subsystem.take_table(b).len(), 1);
    assert_eq!(subsystem.take_changed(b), [3], "whom it concerns");
    subsystem.acknowledge(a, subsystem.generation());
    subsystem.turn(Time(2), &mut channels);
    let (version, record) = subsystem.take_record().expect("it changed");
    assert_eq!(subsystem.take_record(), None, "one at a time");
    assert!(!record.namespaces[1].attached.contains(&b));
    subsystem.kept(version);
    subsystem.turn(Time(3), &mut channels);
    assert_eq!(
        subsystem.take_operator_answer(),
        None,
        "b has commands in flight"
    );
    subsystem.acknowledge(b, subsystem.generation());
    subsystem.turn(Time(4), &mut channels);
    assert_eq!(subsystem.take_operator_answer(), Some((7, Ok(0))));
    assert_eq!(subsystem.next_deadline(), None);
}

#[test]
fn an_answer_waits_for_the_record_that_has_its_change() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        keeping: true,
        ..config()
    })
    .unwrap();
    let mut channels = channels(Manner::Synchronous);
    subsystem.touch();
    let (before, _) = subsystem.take_record().expect("it changed");
    subsystem.request(1, OperatorRequest::Delete { nsid: 1 });
    subsystem.turn(Time(1), &mut channels);
    subsystem.kept(before);
    subsystem.turn(Time(2), &mut channels);
    assert_eq!(
        subsystem.take_operator_answer(),
        None,
        "that was an older one"
    );
    let (version, record) = subsystem.take_record().expect("it changed");
    assert_eq!(record.namespaces.len(), 1);
    subsystem.kept(version);
    subsystem.turn(Time(3), &mut channels);
    assert_eq!(subsystem.take_operator_answer(), Some((1, Ok(0))));
}

#[test]
fn what_waits_for_a_record_that_cannot_be_kept_fails_and_the_next_record_is_due() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        keeping: true,
        ..config()
    })
    .unwrap();
    let mut channels = channels(Manner::Synchronous);
    subsystem.request(1, OperatorRequest::Delete { nsid: 1 });
    subsystem.turn(Time(1), &mut channels);
    let (first, _) = subsystem.take_record().expect("it changed");
    // this one comes while the first is written: its change is in the next record only
    subsystem.request(2, OperatorRequest::Delete { nsid: 3 });
    subsystem.turn(Time(2), &mut channels);
    assert!(!subsystem.has_record());
    subsystem.keep_failed(first);
    assert!(subsystem.has_work());
    subsystem.turn(Time(3), &mut channels);
    assert!(subsystem.has_operator_answer());
    let failed = Some((1, Err(Status::INTERNAL_ERROR)));
    assert_eq!(subsystem.take_operator_answer(), failed);
    assert_eq!(subsystem.take_operator_answer(), None);
    assert!(!subsystem.is_kept());
    let (second, record) = subsystem.take_record().expect("it is not kept");
    assert!(record.namespaces.is_empty());
    subsystem.kept(second);
    subsystem.turn(Time(4), &mut channels);
    assert_eq!(subsystem.take_operator_answer(), Some((2, Ok(0))));
    assert!(subsystem.is_kept() && !subsystem.has_record());
}

#[test]
fn controllers_learn_of_what_changes_for_them() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let mut channels = channels(Manner::Synchronous);
    let (a, b) = (subsystem.join("a").unwrap(), subsystem.join("b").unwrap());
    let only_b = ControllerSet::NONE.with(b);
    let requests = [
        OperatorRequest::Detach {
            nsid: 3,
            controllers: only_b,
        },
        OperatorRequest::Resize { nsid: 3, len: 512 },
        OperatorRequest::Resize { nsid: 1, len: 512 },
    ];
    let told: [(&[u32], &[u32]); 3] = [(&[], &[3]), (&[3], &[]), (&[1], &[1])];
    for (token, (request, (to_a, to_b))) in (1..).zip(requests.into_iter().zip(told)) {
        subsystem.request(token, request);
        subsystem.turn(Time(token), &mut channels);
        assert_eq!(subsystem.take_changed(a), to_a, "{token}");
        assert_eq!(subsystem.take_changed(b), to_b, "{token}");
        acknowledge_all(&mut subsystem);
        subsystem.turn(Time(token), &mut channels);
        assert_eq!(subsystem.take_operator_answer(), Some((token, Ok(0))));
    }
}

#[test]
fn an_operator_cannot_take_what_a_host_has_taken_meanwhile() {
    let pool = Pool {
        medium: String::new(),
        channel: CHANNEL,
        bytes: 4 * MIB,
        traits: MediumTraits::default(),
        min_lba_bytes: 512,
    };
    let at = |nsid, start| {
        let mut new = Allocated::everywhere(namespace(nsid, CHANNEL, 8));
        new.namespace.start = start;
        new
    };
    let mut subsystem = Subsystem::new(SubsystemConfig {
        namespaces: vec![at(1, 0), at(2, 8192)],
        pools: vec![pool],
        ..config()
    })
    .unwrap();
    let mut channels = channels(Manner::Synchronous);
    let capacity = Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY);
    let requests = [
        (OperatorRequest::Create(Box::new(at(3, 4096))), Ok(0)),
        (
            OperatorRequest::Create(Box::new(at(4, 8192 + 512))),
            capacity,
        ),
        (OperatorRequest::Resize { nsid: 3, len: 4097 }, capacity),
        (OperatorRequest::Resize { nsid: 3, len: 4096 }, Ok(0)),
        (OperatorRequest::Resize { nsid: 2, len: 8192 }, Ok(0)),
    ];
    for (token, (request, ends)) in (1..).zip(requests) {
        subsystem.request(token, request);
        for now in 0..8 {
            subsystem.turn(Time(10 * token + now), &mut channels);
        }
        assert_eq!(subsystem.take_operator_answer(), Some((token, ends)));
    }
}

#[test]
fn what_is_deleted_is_remembered_until_it_is_made_again() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        deleted: vec!["root".to_owned(), "home".to_owned()],
        created: 4,
        ..config()
    })
    .unwrap();
    let mut new = Allocated::everywhere(namespace(2, CHANNEL, 8));
    new.name = Some("root".to_owned());
    subsystem.request(1, OperatorRequest::Create(Box::new(new)));
    subsystem.turn(Time(1), &mut channels(Manner::Synchronous));
    assert_eq!(subsystem.take_operator_answer(), Some((1, Ok(0))));
    let record = subsystem.record();
    assert_eq!(
        (record.deleted, record.created),
        (vec!["home".to_owned()], 4)
    );
}

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

#[test]
fn requests_that_cannot_be_are_refused() {
    let mut subsystem = Subsystem::new(config()).unwrap();
    let some = ControllerSet::NONE.with(ControllerId(1));
    let mut new = Allocated::everywhere(namespace(3, CHANNEL, 8));
    let mut channels = channels(Manner::Synchronous);
    let mut refused = |request| {
        subsystem.request(1, request);
        subsystem.turn(Time(1), &mut channels);
        subsystem.take_operator_answer().expect("at once").1
    };
    let missing = Err(Status::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(refused(OperatorRequest::Delete { nsid: 2 }), missing);
    let (nsid, controllers) = (2, some);
    assert_eq!(
        refused(OperatorRequest::Attach { nsid, controllers }),
        missing
    );
    assert_eq!(
        refused(OperatorRequest::Detach { nsid, controllers }),
        missing
    );
    let unavailable = Err(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE);
    for nsid in [0, 3, 9, u32::MAX] {
        new.namespace.nsid = nsid;
        let request = OperatorRequest::Create(Box::new(new.clone()));
        assert_eq!(refused(request), unavailable, "{nsid}");
    }
    let resize = OperatorRequest::Resize { nsid: 1, len: 511 };
    assert_eq!(refused(resize), Err(Status::INVALID_FIELD_IN_COMMAND));
    let second = OperatorRequest::Attach {
        nsid: 1,
        controllers: some,
    };
    assert_eq!(refused(second), Err(Status::NAMESPACE_IS_PRIVATE));
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
    channels.get_mut(CHANNEL).unwrap().fault = Some(crate::port::Cause::WriteFailed);
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

/// Begins an operation of the operator's; its token is its nsid times 100 plus a number.
fn begin(subsystem: &mut Subsystem, nsid: u32, number: u64, steps: Vec<Step>) {
    let token = u64::from(nsid % 10) * 100 + number;
    subsystem.begin(Operation::new(Requester::Operator(token), nsid, steps));
}

fn answered(subsystem: &mut Subsystem) -> Vec<u64> {
    let answers = std::iter::from_fn(|| subsystem.take_operator_answer());
    answers.map(|(token, _)| token).collect()
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
    let erase = Step::Erase(Erase { targets, rounds });
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
fn what_an_operator_creates_or_grows_in_a_pool_is_erased_and_nobody_elses() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        pools: vec![pool(4 * MIB)],
        ..SubsystemConfig::with_namespaces(8, [namespace(1, CHANNEL, 8)])
    })
    .unwrap();
    let mut channels = channels(Manner::Synchronous);
    channels.get_mut(CHANNEL).unwrap().bytes.fill(0xaa);
    let mut new = Allocated::everywhere(namespace(5, CHANNEL, 8));
    new.namespace.start = 8192;
    let mut ask = |subsystem: &mut Subsystem, request| {
        subsystem.request(1, request);
        for now in 1..8 {
            subsystem.turn(Time(now), &mut channels);
        }
        let answer = subsystem.take_operator_answer().expect("at once").1;
        let bytes = &channels.get_mut(CHANNEL).unwrap().bytes;
        let clear = bytes.iter().position(|byte| *byte == 0);
        (
            answer,
            clear,
            bytes.iter().filter(|byte| **byte == 0).count(),
        )
    };
    let insufficient = Err(Status::NAMESPACE_INSUFFICIENT_CAPACITY);
    let mut overlapping = new.clone();
    overlapping.namespace.start = 4095;
    let create = OperatorRequest::Create(Box::new(overlapping));
    assert_eq!(ask(&mut subsystem, create), (insufficient, None, 0));
    let create = OperatorRequest::Create(Box::new(new));
    assert_eq!(ask(&mut subsystem, create), (Ok(0), Some(8192), 4096));
    let attached = subsystem.directory().get(5).unwrap().attached;
    assert_eq!(attached, ControllerSet::ALL, "as it says");
    let resize = |nsid, len| OperatorRequest::Resize { nsid, len };
    assert_eq!(ask(&mut subsystem, resize(1, 8193)).0, insufficient);
    assert_eq!(
        ask(&mut subsystem, resize(5, 8192)),
        (Ok(0), Some(8192), 8192)
    );
    assert_eq!(subsystem.directory().get(5).unwrap().namespace.blocks, 16);
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

fn pool(bytes: u64) -> Pool {
    Pool {
        medium: "m".to_owned(),
        channel: CHANNEL,
        bytes,
        traits: MediumTraits::default(),
        min_lba_bytes: 512,
    }
}

proptest! {
    /// Against a byte map of the pool: allocations never overlap, are found whenever a gap is large enough, and the
    /// unallocated capacity is what the map says.
    #[test]
    fn allocations_fill_gaps_and_never_overlap(
        steps in proptest::collection::vec((any::<bool>(), 1_u64..20, 0_usize..8), 1..40),
    ) {
        const GRANULES: usize = 32;
        let mut directory = Directory::new(Vec::new(), vec![pool(32 * GRANULE + 7)], 64).unwrap();
        let mut map = [0_u32; GRANULES];
        for (create, granules, pick) in steps {
            let live: Vec<u32> = directory.iter().map(Allocated::nsid).collect();
            if !create {
                if let Some(&nsid) = live.get(pick) {
                    directory.apply(Change::Delete { nsid }).unwrap();
                    map.iter_mut().filter(|owner| **owner == nsid).for_each(|owner| *owner = 0);
                }
                continue;
            }
            let wanted = granules as usize;
            let fits = |at: usize| map[at..at + wanted].iter().all(|owner| *owner == 0);
            let first = (0..=GRANULES - wanted).find(|at| fits(*at));
            let found = directory.allocate(granules * GRANULE - 5, 512);
            prop_assert_eq!(found.map(|(_, range)| range.offset), first.map(|at| at as u64 * GRANULE));
            let Some((_, range)) = found else { continue };
            let nsid = directory.free_nsid().unwrap();
            let mut new = Allocated::everywhere(namespace(nsid, CHANNEL, 1));
            new.namespace.start = range.offset;
            new.len = range.len;
            directory.apply(Change::Create(Box::new(new))).unwrap();
            let at = first.unwrap();
            map[at..at + wanted].fill(nsid);
            let free = map.iter().filter(|owner| **owner == 0).count() as u128;
            let total = 32 * u128::from(GRANULE) + 7;
            prop_assert_eq!(directory.capacity(), (total, free * u128::from(GRANULE)));
        }
    }
}
