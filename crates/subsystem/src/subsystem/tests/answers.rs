//! Answers in the record: with the effect, and as long as their commands need them.

use super::*;
use crate::answers::KeptAnswer;
use crate::record::NamespaceRecord;

const NAME: u64 = 77;

fn keeping() -> SubsystemConfig {
    SubsystemConfig {
        pools: vec![pool(4 * MIB)],
        keeping: true,
        ..config()
    }
}

fn named(controller: ControllerId, nsid: u32, plan: Plan) -> Operation {
    let by = Requester::Admin {
        controller,
        life: 0,
        cid: 1,
    };
    Operation {
        name: NAME,
        ..Operation::new(by, nsid, super::plan(plan))
    }
}

fn create() -> Plan {
    Plan::Create {
        blocks: 8,
        lba_shift: 9,
        shared: false,
    }
}

fn turns(subsystem: &mut Subsystem, channels: &mut Channels<TestMedium>) {
    for now in 1..8 {
        subsystem.turn(Time(now), channels);
        acknowledge_all(subsystem);
    }
}

#[test]
fn a_second_execution_finds_the_answer_and_changes_nothing() {
    let mut subsystem = Subsystem::new(keeping()).unwrap();
    let mut channels = channels(Manner::Synchronous);
    let id = subsystem.join("a").unwrap();
    subsystem.begin(named(id, NSID_NONE, create()));
    assert_eq!(subsystem.record().answers, [], "it has no effect");
    turns(&mut subsystem, &mut channels);
    let record = subsystem.record();
    let answer = KeptAnswer {
        controller: id,
        name: NAME,
        dw0: 2,
    };
    assert_eq!(record.answers, [answer]);
    let medium = pool(4 * MIB);
    let restored = |n: NamespaceRecord| n.restore(&medium).unwrap();
    let mut next = Subsystem::new(SubsystemConfig {
        namespaces: record.namespaces.into_iter().map(restored).collect(),
        controllers: record.controllers,
        created: record.created,
        answers: record.answers,
        ..keeping()
    })
    .unwrap();
    assert_eq!(next.join("a").unwrap(), id);
    assert!(next.has_answer(id, NAME) && !next.has_answer(id, NAME + 1));
    next.begin(named(id, NSID_NONE, create()));
    turns(&mut next, &mut channels);
    let answer = next.take_answer(id).unwrap();
    assert_eq!((answer.result, answer.name), (Ok(2), NAME));
    assert_eq!(next.record().created, 1, "nothing was created again");
    next.completed(id, NAME);
    assert_eq!(next.record().answers, []);
}

#[test]
fn what_is_undone_has_no_answer() {
    let mut subsystem = Subsystem::new(keeping()).unwrap();
    let mut channels = channels(Manner::Synchronous);
    let id = subsystem.join("a").unwrap();
    subsystem.begin(named(id, NSID_NONE, create()));
    turns(&mut subsystem, &mut channels);
    assert_eq!(subsystem.record().answers.len(), 1);
    let taken = subsystem.take_record().unwrap();
    assert_eq!(taken.1.namespaces.len(), 3);
    subsystem.keep_failed();
    turns(&mut subsystem, &mut channels);
    let answer = subsystem.take_answer(id).unwrap();
    assert_eq!(answer.result, Err(Status::INTERNAL_ERROR));
    let record = subsystem.record();
    assert_eq!((record.namespaces.len(), record.answers), (2, Vec::new()));
}

#[test]
fn an_answer_of_an_earlier_life_is_forgotten() {
    let config = SubsystemConfig {
        answers: vec![KeptAnswer {
            controller: ControllerId(1),
            name: NAME,
            dw0: 0,
        }],
        ..keeping()
    };
    let mut subsystem = Subsystem::new(config).unwrap();
    let id = subsystem.join("a").unwrap();
    assert!(subsystem.has_answer(id, NAME));
    subsystem.controller_was_reset(id);
    assert!(!subsystem.has_answer(id, NAME));
}
