//! Dynamic controllers: their identifiers, what they see of their entrance, and what is left of
//! them.

use std::collections::BTreeSet;

use nvme_spec::NSID_ALL;
use nvme_spec::reservation::{
    AcquireAction, RegisterAction, ReservationAcquireCdw10, ReservationNotificationType,
    ReservationRegisterCdw10, ReservationType,
};

use super::*;
use crate::request::OperatorRequest;
use crate::reservation::ReservationCommand;
use crate::sanitize::SanitizeChange;
use crate::set::{DYNAMIC_IDS, MAX_DYNAMIC_CONTROLLERS};

/// A subsystem that is kept, with an entrance and another configured controller.
fn with_entrance() -> (Subsystem, ControllerId, ControllerId) {
    let namespaces = config().namespaces.into_iter();
    let mut subsystem = Subsystem::new(SubsystemConfig {
        namespaces: namespaces
            .map(|n| Allocated { shared: true, ..n })
            .collect(),
        keeping: true,
        ..config()
    })
    .unwrap();
    let entrance = subsystem.join("entrance").unwrap();
    let other = subsystem.join("other").unwrap();
    let (version, _) = subsystem.take_record().expect("two have joined");
    subsystem.kept(version);
    (subsystem, entrance, other)
}

#[test]
fn namespaces_for_every_host_have_names_of_their_own() {
    let named = |nsid, name: Option<&str>| Allocated {
        name: name.map(str::to_owned),
        shared: true,
        ..Allocated::everywhere(namespace(nsid, CHANNEL, 8))
    };
    let mut golden = named(7, Some("golden"));
    golden.namespace.traits.read_only = true;
    let mut subsystem = Subsystem::new(SubsystemConfig {
        namespaces: vec![
            named(1, Some("ns5")),
            named(2, Some("data")),
            named(3, Some("data")),
            Allocated {
                hosts: Some(["nqn.2026-11.t:host".to_owned()].into()),
                ..named(4, Some("masked"))
            },
            named(5, None),
            Allocated {
                attached: ControllerSet::NONE,
                ..named(6, Some("detached"))
            },
            golden,
            Allocated {
                busy: Some(crate::Busy::Formatting),
                ..named(8, Some("ns3"))
            },
        ],
        ..config()
    })
    .unwrap();
    let entrance = subsystem.join("entrance").unwrap();
    let all = subsystem.named(entrance);
    let names: Vec<_> = all.iter().map(|(name, it)| (it.nsid, &**name)).collect();
    let expected = [
        (1, "ns5"),
        (2, "data"),
        (3, "ns3_"),
        (5, "ns5_"),
        (7, "golden"),
        (8, "ns3"),
    ];
    assert_eq!(names, expected);
    // As commands find them: a format and a read-only medium restrict them.
    let restrictions = |nsid| {
        let found = all.iter().find(|(_, it)| it.nsid == nsid).unwrap();
        found.1.restrictions.as_deref().cloned().unwrap_or_default()
    };
    assert!(restrictions(7).read_only && !restrictions(1).read_only);
    assert_eq!(restrictions(8).all, Some(Status::FORMAT_IN_PROGRESS));
    // One that gives its name up leaves it to the other one.
    let controllers = ControllerSet::NONE.with(entrance);
    let detach = OperatorRequest::Detach {
        nsid: 2,
        controllers,
    };
    subsystem.request(1, detach);
    settle(&mut subsystem, &mut channels(Manner::Synchronous));
    let all = subsystem.named(entrance);
    assert_eq!((all[1].1.nsid, &*all[1].0), (3, "data"));
}

/// Turns in which every controller acknowledges and every record is kept.
fn settle(subsystem: &mut Subsystem, channels: &mut Channels<TestMedium>) {
    for now in 1..8 {
        subsystem.turn(Time(now), channels);
        acknowledge_all(subsystem);
        if let Some((version, _)) = subsystem.take_record() {
            subsystem.kept(version);
        }
    }
}

fn admin(controller: ControllerId, nsid: u32, steps: Vec<Step>) -> Operation {
    let by = Requester::Admin {
        controller,
        life: 0,
        cid: 1,
    };
    Operation::new(by, nsid, steps)
}

fn register(host: Host, nrkey: u64) -> Step {
    let cdw10 = ReservationRegisterCdw10::new().with_rrega(RegisterAction::REGISTER);
    let command = ReservationCommand::Register {
        cdw10,
        crkey: 0,
        nrkey,
    };
    Step::Reserve { host, command }
}

fn acquire(host: Host, crkey: u64) -> Step {
    let cdw10 = ReservationAcquireCdw10::new().with_rtype(ReservationType::WRITE_EXCLUSIVE);
    let command = ReservationCommand::Acquire {
        cdw10,
        crkey,
        prkey: 0,
    };
    Step::Reserve { host, command }
}

#[test]
fn an_identifier_is_given_again_as_late_as_possible() {
    let (mut subsystem, entrance, _) = with_entrance();
    let mut seen = BTreeSet::new();
    let stays = subsystem.join_dynamic(entrance, "stays").unwrap();
    for _ in 0..1000 {
        let id = subsystem.join_dynamic(entrance, "comes and goes").unwrap();
        assert!(DYNAMIC_IDS.contains(&id.0) && seen.insert(id));
        subsystem.leave(id);
    }
    // Past the last one come the first ones, except those that are in use.
    subsystem.next_dynamic = 0xffef;
    let last = subsystem.join_dynamic(entrance, "last").unwrap();
    assert_eq!(last, ControllerId(0xffef));
    let first = subsystem.join_dynamic(entrance, "first").unwrap();
    assert_eq!(first, ControllerId(0x0100));
    subsystem.next_dynamic = stays.0;
    let after = subsystem.join_dynamic(entrance, "after").unwrap();
    assert_eq!(after, ControllerId(stays.0 + 1));
}

#[test]
fn another_process_begins_with_another_identifier() {
    let first = |process| {
        let config = SubsystemConfig {
            process,
            ..config()
        };
        let mut subsystem = Subsystem::new(config).unwrap();
        let entrance = subsystem.join("entrance").unwrap();
        subsystem.join_dynamic(entrance, "host").unwrap()
    };
    let ids: BTreeSet<ControllerId> = [0, 1, 7, 1 << 40, u64::MAX].map(first).into();
    assert_eq!(ids.len(), 5);
    assert!(ids.iter().all(|id| id.is_dynamic()));
    assert_eq!(first(0), ControllerId(0x0100));
    assert_eq!(first(0xfef0), ControllerId(0x0100));
    assert_eq!(first(0xfeef), ControllerId(0xffef));
}

#[test]
fn there_are_256_at_most() {
    let (mut subsystem, entrance, _) = with_entrance();
    assert_eq!(MAX_DYNAMIC_CONTROLLERS, 256);
    let join = |subsystem: &mut Subsystem| subsystem.join_dynamic(entrance, "host");
    let ids: Vec<_> = (0..256).map(|_| join(&mut subsystem).unwrap()).collect();
    assert_eq!(subsystem.controllers().count(), 258);
    let full = join(&mut subsystem).unwrap_err().to_string();
    assert!(full.contains("256 hosts over networks"), "{full}");
    // A configured controller has its place.
    subsystem.join("configured").unwrap();
    subsystem.leave(ids[7]);
    join(&mut subsystem).unwrap();
    join(&mut subsystem).unwrap_err();
}

#[test]
fn an_entrance_is_a_configured_controller_that_is_served() {
    let (mut subsystem, entrance, other) = with_entrance();
    let dynamic = subsystem.join_dynamic(entrance, "host").unwrap();
    subsystem.leave(other);
    for id in [ControllerId(9), dynamic, other] {
        let refused = subsystem.join_dynamic(id, "host").unwrap_err().to_string();
        assert!(refused.contains(&format!("serves no controller {}", id.0)));
    }
    assert_eq!(subsystem.controller_named("host"), None);
    assert_ne!(subsystem.join("host").unwrap(), dynamic);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "dynamic controllers leave before their entrance")]
fn an_entrance_leaves_last() {
    let (mut subsystem, entrance, _) = with_entrance();
    subsystem.join_dynamic(entrance, "host").unwrap();
    subsystem.leave(entrance);
}

#[test]
fn it_sees_what_its_entrance_sees_and_learns_of_changes() {
    let (mut subsystem, entrance, other) = with_entrance();
    let mut channels = channels(Manner::Synchronous);
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    let b = subsystem.join_dynamic(entrance, "b").unwrap();
    let c = subsystem.join_dynamic(other, "c").unwrap();
    let all = [entrance, a, b, other, c];
    let count = |subsystem: &mut Subsystem| all.map(|id| subsystem.take_table(id).len());
    assert_eq!(count(&mut subsystem), [2; 5]);
    let only_entrance = ControllerSet::NONE.with(entrance);
    let (nsid, controllers) = (3, only_entrance);
    let requests = [
        (
            OperatorRequest::Detach { nsid, controllers },
            [1, 1, 1, 2, 2],
        ),
        (OperatorRequest::Attach { nsid, controllers }, [2; 5]),
        (OperatorRequest::Resize { nsid, len: 512 }, [2; 5]),
        (OperatorRequest::Delete { nsid }, [1; 5]),
    ];
    for (token, (request, tables)) in (1..).zip(requests) {
        let concerned = match &request {
            OperatorRequest::Attach { .. } | OperatorRequest::Detach { .. } => &all[..3],
            _ => &all[..],
        };
        subsystem.request(token, request);
        settle(&mut subsystem, &mut channels);
        assert_eq!(subsystem.take_operator_answer(), Some((token, Ok(0))));
        assert_eq!(count(&mut subsystem), tables, "{token}");
        for id in all {
            let changed = subsystem.take_changed(id);
            assert_eq!(changed == [3], concerned.contains(&id), "{token} {id:?}");
        }
    }
    let namespace = subsystem.directory().get(1).unwrap();
    assert!(all.iter().all(|id| subsystem.is_attached(namespace, *id)));
    assert!(!subsystem.is_attached(namespace, ControllerId(64)));
}

/// A subsystem whose namespace 1 is for host `a` alone; its entrance, and dynamic controllers of
/// hosts `a`, `b` and one that has not said who it is.
fn with_hidden() -> (Subsystem, ControllerId, [ControllerId; 3]) {
    let namespaces = config().namespaces.into_iter().enumerate();
    let hosts: std::sync::Arc<[String]> = ["nqn.a".to_owned()].into();
    let mut subsystem = Subsystem::new(SubsystemConfig {
        namespaces: namespaces
            .map(|(at, n)| Allocated {
                shared: true,
                hosts: (at == 0).then(|| hosts.clone()),
                ..n
            })
            .collect(),
        ..config()
    })
    .unwrap();
    let entrance = subsystem.join("entrance").unwrap();
    let dynamic = ["a", "b", "silent"].map(|name| {
        let id = subsystem.join_dynamic(entrance, name).unwrap();
        if name != "silent" {
            subsystem.name_host(id, &format!("nqn.{name}"));
        }
        id
    });
    (subsystem, entrance, dynamic)
}

#[test]
fn changes_of_a_hidden_namespace_are_no_news() {
    let (mut subsystem, entrance, [a, b, silent]) = with_hidden();
    let mut channels = channels(Manner::Synchronous);
    let all = [entrance, a, b, silent];
    let format = Plan::Format {
        nsid: 1,
        lba_shift: 9,
        controller: a,
    };
    for plans in [format, Plan::Delete { nsid: 1 }] {
        subsystem.begin(admin(a, 1, plan(plans)));
        settle(&mut subsystem, &mut channels);
        assert_eq!(subsystem.take_answer(a).unwrap().result, Ok(0));
        let news = all.map(|id| subsystem.take_changed(id));
        assert_eq!(news, [vec![1], vec![], vec![], vec![]]);
    }
}

#[test]
fn reservations_of_a_hidden_namespace_are_no_news() {
    let (mut subsystem, _, [a, b, silent]) = with_hidden();
    let mut channels = channels(Manner::Synchronous);
    let (first, second) = (Host::Extended([1; 16]), Host::Extended([2; 16]));
    // The others say that they are the same host.
    for id in [a, b, silent] {
        subsystem.continue_host(id, &[1; 16]);
    }
    let cdw10 = ReservationAcquireCdw10::new()
        .with_racqa(AcquireAction::PREEMPT)
        .with_rtype(ReservationType::WRITE_EXCLUSIVE);
    let preempt = Step::Reserve {
        host: second,
        command: ReservationCommand::Acquire {
            cdw10,
            crkey: 8,
            prkey: 7,
        },
    };
    for step in [register(first, 7), register(second, 8), preempt] {
        subsystem.begin(admin(a, 1, vec![step, Step::Drain]));
    }
    settle(&mut subsystem, &mut channels);
    let notices = [a, b, silent].map(|id| subsystem.take_notices(id).len());
    assert_eq!(notices, [1, 0, 0]);
}

#[test]
fn a_namespace_for_certain_hosts_is_hidden_from_others() {
    let (mut subsystem, entrance, [a, b, silent]) = with_hidden();
    let mut channels = channels(Manner::Synchronous);
    let count = |subsystem: &mut Subsystem, id| subsystem.take_table(id).iter().count();
    let all = count(&mut subsystem, entrance);
    assert!(all > 1);
    // A host of a PCI function has what its controller has.
    for (id, hidden) in [(entrance, 0), (a, 0), (b, 1), (silent, 1)] {
        assert_eq!(count(&mut subsystem, id), all - hidden, "{id:?}");
        let namespace = subsystem.directory().get(1).unwrap();
        assert_eq!(subsystem.is_visible(namespace, id), hidden == 0);
        assert_eq!(subsystem.is_attached(namespace, id), hidden == 0);
    }
    // What its host does not know of, it does not manage either.
    let format = |nsid, controller| Plan::Format {
        nsid,
        lba_shift: 9,
        controller,
    };
    let delete = |nsid| Plan::Delete { nsid };
    for (plans, refusal) in [
        (format(1, b), Some(Status::INVALID_FIELD_IN_COMMAND)),
        (delete(1), Some(Status::INVALID_FIELD_IN_COMMAND)),
        (delete(NSID_ALL), Some(Status::OPERATION_DENIED)),
        (format(NSID_ALL, b), None),
    ] {
        subsystem.begin(admin(b, 1, plan(plans)));
        settle(&mut subsystem, &mut channels);
        let answer = subsystem.take_answer(b).unwrap();
        assert_eq!(answer.result.err(), refusal);
    }
    assert!(subsystem.directory().get(1).is_some());
}

#[test]
fn a_host_identifier_is_of_one_name_while_its_host_is_there() {
    let (mut subsystem, entrance, other) = with_entrance();
    let (one, two) = ([1; 16], [2; 16]);
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    subsystem.name_host(a, "nqn.a");
    assert!(!subsystem.is_anothers(&one, "nqn.b"), "it has none yet");
    subsystem.continue_host(a, &one);
    assert!(subsystem.is_anothers(&one, "nqn.b"));
    assert!(!subsystem.is_anothers(&one, "nqn.a"), "a path more");
    assert!(!subsystem.is_anothers(&two, "nqn.b"));
    // A host over vfio-user has no name, and none is no identifier.
    subsystem.continue_host(other, &two);
    subsystem.continue_host(a, &[0; 16]);
    for identifier in [one, two, [0; 16]] {
        assert!(!subsystem.is_anothers(&identifier, "nqn.b"));
    }
    subsystem.continue_host(a, &one);
    subsystem.leave(a);
    assert!(!subsystem.is_anothers(&one, "nqn.b"));
}

#[test]
fn its_own_change_is_no_news_to_it() {
    let (mut subsystem, entrance, _) = with_entrance();
    let mut channels = channels(Manner::Synchronous);
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    let b = subsystem.join_dynamic(entrance, "b").unwrap();
    // All that it has attached.
    let format = Plan::Format {
        nsid: NSID_ALL,
        lba_shift: 9,
        controller: a,
    };
    subsystem.begin(admin(a, NSID_ALL, plan(format)));
    settle(&mut subsystem, &mut channels);
    assert!(subsystem.take_answer(a).is_some_and(|it| it.result.is_ok()));
    assert_eq!(subsystem.take_changed(a), [0; 0]);
    assert_eq!(subsystem.take_changed(b), [1, 3]);
    assert_eq!(subsystem.take_changed(entrance), [1, 3]);
}

#[test]
fn operations_wait_for_it_until_it_leaves() {
    let (mut subsystem, entrance, other) = with_entrance();
    let mut channels = channels(Manner::Synchronous);
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    let b = subsystem.join_dynamic(entrance, "b").unwrap();
    subsystem.request(
        1,
        OperatorRequest::SetReadOnly {
            nsid: 1,
            read_only: true,
        },
    );
    subsystem.turn(Time(1), &mut channels);
    for id in [entrance, other, a] {
        subsystem.acknowledge(id, subsystem.generation());
    }
    subsystem.turn(Time(2), &mut channels);
    assert_eq!(
        subsystem.take_operator_answer(),
        None,
        "b has commands in flight"
    );
    subsystem.turn(Time(4_000_000_001), &mut channels);
    assert!(subsystem.wants_abandon(b) && !subsystem.wants_abandon(a));
    subsystem.leave(b);
    assert!(!subsystem.wants_abandon(b));
    subsystem.turn(Time(4_000_000_002), &mut channels);
    assert_eq!(subsystem.take_operator_answer(), Some((1, Ok(0))));
}

#[test]
fn one_that_left_keeps_its_place_until_its_operations_have_ended() {
    let (mut subsystem, entrance, _) = with_entrance();
    let mut channels = channels(Manner::Synchronous);
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    subsystem.begin(admin(a, NSID_NONE, vec![Step::Keep]));
    subsystem.touch();
    subsystem.turn(Time(1), &mut channels);
    subsystem.leave(a);
    assert!(subsystem.controllers().all(|id| id != a));
    assert_eq!(
        subsystem.entrance_of(a),
        entrance,
        "the operation has its rights"
    );
    subsystem.next_dynamic = a.0;
    let next = subsystem.join_dynamic(entrance, "b").unwrap();
    assert_ne!(next, a, "its answer would be the other one's");
    let (version, _) = subsystem.take_record().expect("it changed");
    subsystem.kept(version);
    subsystem.turn(Time(2), &mut channels);
    assert_eq!(subsystem.entrance_of(a), a, "it is forgotten");
    subsystem.next_dynamic = a.0;
    let again = subsystem.join_dynamic(entrance, "c").unwrap();
    assert_eq!(again, a);
    assert!(subsystem.take_answer(again).is_none());
}

#[test]
fn it_has_1024_operations_outstanding_at_most() {
    let (mut subsystem, entrance, _) = with_entrance();
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    for _ in 0..1024 {
        subsystem.begin(admin(a, NSID_NONE, vec![Step::Drain]));
    }
    assert!(subsystem.take_answer(a).is_none());
    subsystem.begin(admin(a, NSID_NONE, vec![Step::Drain]));
    let refused = subsystem.take_answer(a).expect("at once").result;
    assert_eq!(refused, Err(Status::COMMAND_INTERRUPTED));
}

#[test]
fn nothing_of_it_is_in_the_record() {
    let (mut subsystem, entrance, _) = with_entrance();
    let mut channels = channels(Manner::Synchronous);
    let before = subsystem.record();
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    subsystem.update_controller(a, |record| record.features.write_atomicity = Some(1));
    assert!(!subsystem.has_record(), "nothing is to be kept");
    // It has no Host Identifier, and a command with a name.
    let steps = vec![
        register(Host::Anonymous(a), 7),
        acquire(Host::Anonymous(a), 7),
        Step::Keep,
    ];
    let mut operation = admin(a, 1, steps);
    operation.name = 77;
    subsystem.begin(operation);
    subsystem.turn(Time(1), &mut channels);
    let namespace = subsystem.directory().get(1).unwrap();
    assert_eq!(
        namespace.reservation.access(Host::Anonymous(entrance)),
        (true, false)
    );
    let record = subsystem.record();
    assert_eq!(record.controllers, before.controllers);
    assert_eq!(
        (record.namespaces, record.answers),
        (before.namespaces, vec![])
    );
    let kept = &record.reservations[0].reservation;
    assert_eq!(
        kept.access(Host::Anonymous(entrance)),
        (true, true),
        "no other process has it"
    );
    assert_eq!(record.reservations[0].answers, []);
    settle(&mut subsystem, &mut channels);
    // And it takes its registration along.
    subsystem.leave(a);
    let namespace = subsystem.directory().get(1).unwrap();
    assert_eq!(
        namespace.reservation.access(Host::Anonymous(entrance)),
        (true, true)
    );
}

#[test]
fn a_sanitize_operation_of_it_has_no_owner_in_another_process() {
    let (mut subsystem, entrance, _) = with_entrance();
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    for (asked, kept) in [(a, None), (entrance, Some(entrance))] {
        let begin = SanitizeChange::Begin {
            cdw10: 2.into(),
            pattern: 0,
            controller: asked,
        };
        subsystem.apply(Change::Sanitize(begin), None).unwrap();
        assert_eq!(
            subsystem.directory().sanitize().record().controller,
            Some(asked)
        );
        assert_eq!(subsystem.record().sanitize.controller, kept);
    }
}

#[test]
fn hosts_over_networks_reserve_as_others_do() {
    let (mut subsystem, entrance, other) = with_entrance();
    let mut channels = channels(Manner::Synchronous);
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    let b = subsystem.join_dynamic(entrance, "b").unwrap();
    // The first path of a host, a path of another one, and the second path of the first.
    let (first, second) = (Host::Extended([1; 16]), Host::Extended([2; 16]));
    subsystem.continue_host(a, &[1; 16]);
    subsystem.continue_host(b, &[2; 16]);
    subsystem.set_host(other, &[1; 16]).unwrap();
    assert_eq!(subsystem.host_of(a), first);
    for (by, host, key) in [(a, first, 7), (b, second, 8)] {
        subsystem.begin(admin(by, 1, vec![register(host, key), Step::Drain]));
    }
    subsystem.begin(admin(a, 1, vec![acquire(first, 7), Step::Drain]));
    settle(&mut subsystem, &mut channels);
    let refusal = [a, b, other, entrance].map(|id| subsystem.write_refusal(id, 1).is_some());
    assert_eq!(refusal, [false, true, false, true]);
    let writes = |subsystem: &mut Subsystem, id| {
        let table = subsystem.take_table(id);
        let restrictions = table.get(1).unwrap().restrictions.clone();
        restrictions.is_none_or(|it| it.writes.is_none())
    };
    assert!(writes(&mut subsystem, a) && !writes(&mut subsystem, b));
    // The holder's path goes, and the reservation stays: the host has another one.
    subsystem.leave(a);
    settle(&mut subsystem, &mut channels);
    assert!(subsystem.write_refusal(b, 1).is_some() && subsystem.write_refusal(other, 1).is_none());
    // Back again, with another identifier.
    let back = subsystem.join_dynamic(entrance, "a").unwrap();
    subsystem.continue_host(back, &[1; 16]);
    assert!(writes(&mut subsystem, back));
}

#[test]
fn a_host_is_notified_on_each_of_its_paths() {
    let (mut subsystem, entrance, other) = with_entrance();
    let mut channels = channels(Manner::Synchronous);
    let a = subsystem.join_dynamic(entrance, "a").unwrap();
    let b = subsystem.join_dynamic(entrance, "b").unwrap();
    let (first, second) = (Host::Extended([1; 16]), Host::Extended([2; 16]));
    subsystem.continue_host(a, &[1; 16]);
    subsystem.continue_host(b, &[2; 16]);
    subsystem.set_host(other, &[1; 16]).unwrap();
    let cdw10 = ReservationAcquireCdw10::new()
        .with_racqa(AcquireAction::PREEMPT)
        .with_rtype(ReservationType::WRITE_EXCLUSIVE);
    let preempt = ReservationCommand::Acquire {
        cdw10,
        crkey: 8,
        prkey: 7,
    };
    let preempt = Step::Reserve {
        host: second,
        command: preempt,
    };
    for (by, step) in [
        (a, register(first, 7)),
        (b, register(second, 8)),
        (b, preempt),
    ] {
        subsystem.begin(admin(by, 1, vec![step, Step::Drain]));
    }
    settle(&mut subsystem, &mut channels);
    let preempted = ReservationNotificationType::REGISTRATION_PREEMPTED;
    for id in [a, other] {
        let notices = subsystem.take_notices(id);
        let what: Vec<_> = notices.iter().map(|it| (it.nsid, it.what)).collect();
        assert_eq!(what, [(1, preempted)], "{id:?}");
    }
    for id in [b, entrance] {
        assert_eq!(subsystem.take_notices(id), [], "{id:?}");
    }
}

#[test]
fn states_of_groups_are_an_entrances_and_restrict_its_hosts_alone() {
    let (mut subsystem, entrance, other) = with_entrance();
    let host = subsystem.join_dynamic(entrance, "host").unwrap();
    let elsewhere = subsystem.join_dynamic(other, "elsewhere").unwrap();
    let refusals = |subsystem: &mut Subsystem, id| {
        let table = subsystem.take_table(id);
        let refusal =
            |n: &port::namespace::Namespace| n.restrictions.as_ref().and_then(|its| its.all);
        table.iter().map(refusal).collect::<BTreeSet<_>>()
    };
    let open = BTreeSet::from([None]);
    assert_eq!(refusals(&mut subsystem, host), open);
    let generation = subsystem.generation();
    let state = |state| AnaStates::from([(1, state), (5, AnaState::CHANGE)]);
    for (given, refusal) in [
        (
            AnaState::INACCESSIBLE,
            Status::ASYMMETRIC_ACCESS_INACCESSIBLE,
        ),
        (
            AnaState::PERSISTENT_LOSS,
            Status::ASYMMETRIC_ACCESS_PERSISTENT_LOSS,
        ),
        (AnaState::CHANGE, Status::ASYMMETRIC_ACCESS_TRANSITION),
    ] {
        subsystem.set_ana_states(entrance, state(given));
        assert_eq!(refusals(&mut subsystem, host), [Some(refusal)].into());
        assert_eq!(refusals(&mut subsystem, elsewhere), open);
        assert_eq!(subsystem.ana_state(host, 1), given);
        assert_eq!(subsystem.ana_state(elsewhere, 1), AnaState::OPTIMIZED);
    }
    assert_eq!(subsystem.generation(), generation + 3);
    // The same states are no change, and no record has them.
    subsystem.set_ana_states(entrance, state(AnaState::CHANGE));
    subsystem.set_ana_states(other, [(1, AnaState::OPTIMIZED)].into());
    assert_eq!(subsystem.generation(), generation + 3);
    assert!(!subsystem.has_record());
    subsystem.set_ana_states(entrance, state(AnaState::NON_OPTIMIZED));
    assert_eq!(refusals(&mut subsystem, host), open);
    // Before another status, by which a host would look for no other path.
    subsystem.set_ana_states(entrance, state(AnaState::INACCESSIBLE));
    let busy = Change::SetBusy {
        nsid: 1,
        busy: Some(Busy::Formatting),
    };
    subsystem.apply(busy, None).unwrap();
    let refusal = Status::ASYMMETRIC_ACCESS_INACCESSIBLE;
    assert_eq!(refusals(&mut subsystem, host), [Some(refusal)].into());
}

#[test]
fn states_of_groups_end_with_their_entrance() {
    let (mut subsystem, entrance, other) = with_entrance();
    let states = AnaStates::from([(1, AnaState::INACCESSIBLE)]);
    subsystem.set_ana_states(entrance, states.clone());
    subsystem.set_ana_states(other, states);
    subsystem.leave(entrance);
    // The next one with its name, which may be a PCI function.
    assert_eq!(subsystem.join("entrance").unwrap(), entrance);
    let refusals = |subsystem: &mut Subsystem, id| {
        let table = subsystem.take_table(id);
        let restricted = table.iter().filter(|n| n.restrictions.is_some());
        restricted.count()
    };
    assert_eq!(subsystem.ana_state(entrance, 1), AnaState::OPTIMIZED);
    assert_eq!(refusals(&mut subsystem, entrance), 0);
    assert_ne!(refusals(&mut subsystem, other), 0);
}
