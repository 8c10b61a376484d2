//! Operations and the directory, with members that acknowledge as the test says.

mod answers;
mod dynamic;
mod operations;
mod space;

use nvme_spec::Status;
use port::testing::{Manner, Seen, TestMedium, namespace};
use port::{ByteRange, ChannelId, MediumTraits};
use proptest::prelude::*;

use super::*;
use crate::allocated::{Busy, GRANULE};
use crate::erase::{Erase, Round};
use crate::operation::NSID_NONE;
use crate::request::OperatorRequest;
use crate::sanitize::SanitizeOutcome;
use crate::set::ControllerSet;

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

/// Begins an operation of the operator's; its token is its nsid times 100 plus a number.
fn begin(subsystem: &mut Subsystem, nsid: u32, number: u64, steps: Vec<Step>) {
    let token = u64::from(nsid % 10) * 100 + number;
    subsystem.begin(Operation::new(Requester::Operator(token), nsid, steps));
}

fn answered(subsystem: &mut Subsystem) -> Vec<u64> {
    let answers = std::iter::from_fn(|| subsystem.take_operator_answer());
    answers.map(|(token, _)| token).collect()
}

fn plan(plan: Plan) -> Vec<Step> {
    vec![Step::Plan(Box::new(plan))]
}

fn pool(bytes: u64) -> Pool {
    Pool {
        medium: "m".to_owned(),
        channel: CHANNEL,
        bytes,
        traits: MediumTraits::default(),
        set: None,
        min_lba_bytes: 512,
        max_lba_bytes: 4096,
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
    let (_, first) = subsystem.take_record().expect("it changed");
    assert_eq!(first.namespaces.len(), 1);
    // this one comes while the first is written: its change is in the next record only
    subsystem.request(2, OperatorRequest::Delete { nsid: 3 });
    subsystem.turn(Time(2), &mut channels);
    assert!(!subsystem.has_record());
    subsystem.keep_failed();
    assert!(subsystem.has_work());
    subsystem.turn(Time(3), &mut channels);
    for token in [1, 2] {
        assert!(subsystem.has_operator_answer());
        let failed = Some((token, Err(Status::INTERNAL_ERROR)));
        assert_eq!(subsystem.take_operator_answer(), failed);
    }
    assert!(!subsystem.has_operator_answer() && !subsystem.is_kept());
    // what comes now waits for another try
    subsystem.begin(Operation::new(Requester::Operator(3), 1, [Step::Keep]));
    subsystem.turn(Time(4), &mut channels);
    assert!(!subsystem.has_operator_answer());
    let (second, record) = subsystem.take_record().expect("it is not kept");
    assert!(record.namespaces.is_empty());
    subsystem.kept(second);
    subsystem.turn(Time(5), &mut channels);
    assert_eq!(subsystem.take_operator_answer(), Some((3, Ok(0))));
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

#[test]
fn an_operator_is_refused_while_a_sanitize_operation_goes_on() {
    let mut subsystem = Subsystem::new(SubsystemConfig {
        sanitize: SanitizeRecord {
            outcome: SanitizeOutcome::InProgress,
            cdw10: 2,
            ..SanitizeRecord::default()
        },
        ..config()
    })
    .unwrap();
    subsystem.request(1, OperatorRequest::Delete { nsid: 1 });
    let refused = Some((1, Err(Status::SANITIZE_IN_PROGRESS)));
    assert_eq!(subsystem.take_operator_answer(), refused);
}
