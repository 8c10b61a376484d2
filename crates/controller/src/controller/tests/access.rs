//! Asymmetric Namespace Access (Base 2.1, 8.1.1): two entrances of one subsystem, a host at each,
//! and the states that the operator sets.

use std::collections::BTreeMap;

use nvme_spec::Sqe;
use nvme_spec::ana::AnaState;
use port::ChannelId;
use port::namespace::Namespace;
use port::testing::{Manner, Seen, namespace};
use port::ticket::OwnerKey;
use subsystem::{
    Allocated, ControllerId, OperatorRequest, Reservation, Subsystem, SubsystemConfig,
};

use super::rig::*;
use super::world::*;
use crate::config::{Fabrics, Interface};
use crate::controller::ControllerConfig;

const MIB: u64 = 1 << 20;
const FIRST: ControllerId = ControllerId(1);
const SECOND: ControllerId = ControllerId(2);
/// Hosts of the first entrance and of the second, and the PCI function, in a [`World`].
const A: usize = 2;
const B: usize = 3;
const PCIE: usize = 4;

// Path Related statuses (Base 2.1, figure 102).
const PERSISTENT_LOSS: u16 = 0x301;
const INACCESSIBLE: u16 = 0x302;
const TRANSITION: u16 = 0x303;

const ANA_LOG: u32 = 0x0c;
/// Return Groups Only, in Log Specific Parameter.
const GROUPS_ONLY: u32 = 1 << 8;

/// Namespaces 1 and 3 are in group 1, and 2 in group 7.
fn subsystem_config() -> SubsystemConfig {
    let shared = |nsid, channel, start, ana_group| Allocated {
        shared: true,
        ana_group,
        ..Allocated::everywhere(Namespace {
            start,
            ..namespace(nsid, ChannelId(channel), 64)
        })
    };
    SubsystemConfig {
        namespaces: vec![
            shared(1, 0, 0, 1),
            shared(2, 1, 0, 7),
            shared(3, 1, 1 << 16, 1),
        ],
        ..SubsystemConfig::with_namespaces(32, [])
    }
}

fn over_fabrics(entrance: ControllerId) -> ControllerConfig {
    ControllerConfig {
        interface: Interface::Fabrics(Fabrics {
            entrance,
            in_capsule: 8192,
        }),
        ..config()
    }
}

/// Two entrances with a host each, and a PCI function.
fn world() -> World {
    let configured = |name: &str| ControllerConfig {
        name: name.to_owned(),
        ..config()
    };
    let all = [
        configured("first"),
        configured("second"),
        over_fabrics(FIRST),
        over_fabrics(SECOND),
        configured("function"),
    ];
    World::with(all, subsystem_config(), MIB)
}

fn set(world: &mut World, entrance: ControllerId, states: &[(u32, AnaState)]) {
    let states: BTreeMap<u32, AnaState> = states.iter().copied().collect();
    world.subsystem().set_ana_states(entrance, states);
    world.turn();
}

/// A descriptor of the log page: identifier, count, state, namespaces.
type Descriptor = (u32, u64, u8, Vec<u32>);

/// Change count and descriptors of the log page.
fn log(world: &mut World, host: usize) -> (u64, Vec<Descriptor>) {
    let page = world.at(host).log(ANA_LOG, 0, 256).unwrap();
    let mut at = 16;
    let mut groups = Vec::new();
    for _ in 0..u16_at(&page, 8) {
        let count = u32_at(&page, at + 4) as usize;
        let nsids = (0..count).map(|i| u32_at(&page, at + 32 + 4 * i));
        let nsids = nsids.collect();
        groups.push((
            u32_at(&page, at),
            u64_at(&page, at + 8),
            page[at + 16],
            nsids,
        ));
        at += 32 + 4 * count;
    }
    assert!(page[at..].iter().all(|byte| *byte == 0), "zeros behind it");
    (u64_at(&page, 0), groups)
}

/// Runs the next I/O command of a host on a queue pair of its own: the status.
fn io(world: &mut World, host: usize, nsid: u32, opcode: u8, data: &[u8]) -> u16 {
    let command = Sqe {
        opcode,
        nsid,
        ..Sqe::default()
    };
    run(world, host, command, data)
}

/// The same, of these Command Dwords.
fn run(world: &mut World, host: usize, command: Sqe, data: &[u8]) -> u16 {
    world.at(host).create_pair(1, 8);
    let rig = world.at(host);
    rig.host.write(rig.data_page(), data);
    let prp1 = rig.data_page().0;
    let sqe = Sqe {
        cid: 7,
        prp1,
        ..command
    };
    rig.submit_io(1, 0, sqe);
    for _ in 0..16 {
        world.turn();
    }
    let rig = world.at(host);
    let cqe = rig.io_cqe(1, 0).expect("a completion");
    let status = code(&cqe);
    // With Do Not Retry a host would use no other path.
    assert!(status >> 8 != 3 || !cqe.status.dnr());
    assert_eq!((rig.delete_sq(1), rig.delete_cq(1)), (OK, OK));
    status
}

#[test]
fn identify_reports_groups_over_fabrics_alone() {
    let mut world = world();
    let id = world.at(A).identify(0x01, 0, 0).unwrap();
    assert_eq!(id[76], 0b1011, "CMIC: ports, controllers, ANA reporting");
    assert_eq!(
        u32_at(&id, 92),
        1 << 8 | 1 << 11,
        "OAES: ANA change notices"
    );
    assert_eq!(id[342], 10, "ANATT");
    assert_eq!(id[343], 0x1f, "ANACAP: all states, as nvmet of Linux");
    assert_eq!(
        (u32_at(&id, 344), u32_at(&id, 348)),
        (128, 128),
        "ANAGRPMAX, NANAGRPID"
    );
    let (nn, mnan) = (u32_at(&id, 516), u32_at(&id, 540));
    assert!(0 < mnan && mnan <= nn, "Linux refuses another MNAN: {mnan}");
    let id = world.at(PCIE).identify(0x01, 0, 0).unwrap();
    assert_eq!((id[76] & 1 << 3, u32_at(&id, 92) & 1 << 11), (0, 0));
    assert_eq!(id[342..352], [0; 10]);
    // ANAGRPID of Identify Namespace, of the structure that all command sets have, and the same of
    // allocated ones.
    for (cns, at) in [(0x00, 92), (0x08, 4), (0x11, 92), (0x1f, 4)] {
        for (nsid, group) in [(1, 1), (2, 7), (3, 1)] {
            let of = |world: &mut World, host| {
                u32_at(&world.at(host).identify(cns, nsid, 0).unwrap(), at)
            };
            assert_eq!((of(&mut world, A), of(&mut world, PCIE)), (group, 0));
        }
    }
}

#[test]
fn the_log_has_each_group_that_has_namespaces() {
    let mut world = world();
    let all = (0, vec![(1, 0, 1, vec![1, 3]), (7, 0, 1, vec![2])]);
    assert_eq!(log(&mut world, A), all);
    assert_eq!(log(&mut world, B), all);
    let groups = world.at(A).log(GROUPS_ONLY | ANA_LOG, 0, 256).unwrap();
    let whole = world.at(A).log(ANA_LOG, 0, 256).unwrap();
    assert_eq!(u16_at(&groups, 8), 2);
    assert_eq!([16, 48].map(|at| u32_at(&groups, at)), [1, 7]);
    assert_eq!([20, 52].map(|at| u32_at(&groups, at)), [0, 0]);
    // Offsets count bytes of the page that was asked for: 16, and 32 for each group.
    for (lid, len) in [(GROUPS_ONLY | ANA_LOG, 80), (ANA_LOG, 92)] {
        let page = world.at(A).log(lid, 0, 256).unwrap();
        for offset in [4, 16, 48, len] {
            let part = world.at(A).log(lid, offset, 64).unwrap();
            let from = offset as usize;
            assert_eq!(part, page[from..from + 64], "{lid:#x}, from byte {offset}");
        }
        assert_eq!(world.at(A).log(lid, len + 4, 4), Err(INVALID_FIELD));
        assert_eq!(world.at(A).log(lid, 2, 4), Err(INVALID_FIELD));
    }
    assert_ne!(groups, whole);
    // Supported Log Pages, and a controller without groups.
    let supported = |world: &mut World, host| {
        u32_at(
            &world.at(host).log(0, 4 * u64::from(ANA_LOG), 4).unwrap(),
            0,
        ) & 1
    };
    assert_eq!(
        (supported(&mut world, A), supported(&mut world, PCIE)),
        (1, 0)
    );
    assert_eq!(world.at(PCIE).log(ANA_LOG, 0, 64), Err(INVALID_LOG_PAGE));
}

#[test]
fn a_state_is_of_one_group_and_one_entrance() {
    let mut world = world();
    for (state, number, refusal) in [
        (AnaState::NON_OPTIMIZED, 2, OK),
        (AnaState::INACCESSIBLE, 3, INACCESSIBLE),
        (AnaState::PERSISTENT_LOSS, 4, PERSISTENT_LOSS),
        (AnaState::CHANGE, 15, TRANSITION),
        (AnaState::OPTIMIZED, 1, OK),
    ] {
        set(&mut world, FIRST, &[(1, state)]);
        let (_, groups) = log(&mut world, A);
        assert_eq!((groups[0].2, groups[1].2), (number, 1));
        let (_, groups) = log(&mut world, B);
        assert_eq!((groups[0].2, groups[1].2), (1, 1));
        for nsid in [1, 3] {
            // Read, Write, Flush, Dataset Management.
            for opcode in [0x02, 0x01, 0x00, 0x09] {
                assert_eq!(
                    io(&mut world, A, nsid, opcode, &[1; 512]),
                    refusal,
                    "{opcode:#x}"
                );
            }
        }
        for (host, nsid) in [(A, 2), (B, 1), (B, 3), (PCIE, 1)] {
            assert_eq!(io(&mut world, host, nsid, 0x02, &[]), OK, "{host}, {nsid}");
        }
    }
}

#[test]
fn reservations_of_an_inaccessible_group_are_refused_and_unchanged() {
    let mut world = world();
    let key = 7_u64.to_le_bytes();
    let register = [[0; 8], key].concat();
    let acquire = [key, [0; 8]].concat();
    /// Type Write Exclusive (Base 2.1, 8.1.22.1).
    const EXCLUSIVE: u32 = 1 << 8;
    // Reservation Register, Report, Acquire and Release.
    let all: [(u8, u32, &[u8]); 4] = [
        (0x0d, 0, &register),
        (0x0e, 0, &[]),
        (0x11, EXCLUSIVE, &acquire),
        (0x15, EXCLUSIVE, &key),
    ];
    for (state, expected) in [
        (AnaState::INACCESSIBLE, INACCESSIBLE),
        (AnaState::OPTIMIZED, OK),
    ] {
        set(&mut world, FIRST, &[(1, state)]);
        for (opcode, cdw10, data) in all {
            let command = Sqe {
                opcode,
                nsid: 1,
                cdw10,
                ..Sqe::default()
            };
            let status = run(&mut world, A, command, data);
            assert_eq!(status, expected, "{opcode:#x}, {state:?}");
        }
        let namespace = world.subsystem().directory().get(1).unwrap();
        let is_unchanged = namespace.reservation == Reservation::default();
        assert_eq!(is_unchanged, expected != OK, "{state:?}");
    }
}

#[test]
fn a_flush_of_all_namespaces_needs_all_of_their_groups() {
    let mut world = world();
    set(&mut world, FIRST, &[(7, AnaState::INACCESSIBLE)]);
    for (host, expected) in [(A, INACCESSIBLE), (B, OK)] {
        assert_eq!(io(&mut world, host, 0xffff_ffff, 0x00, &[]), expected);
    }
}

#[test]
fn nothing_reaches_the_medium_through_an_inaccessible_group() {
    let mut world = world();
    set(&mut world, FIRST, &[(1, AnaState::INACCESSIBLE)]);
    world.medium(0).seen.clear();
    for opcode in [0x01, 0x02, 0x04, 0x05, 0x08, 0x0c] {
        assert_eq!(
            io(&mut world, A, 1, opcode, &[2; 512]),
            INACCESSIBLE,
            "{opcode:#x}"
        );
    }
    let seen = &world.medium(0).seen;
    assert!(seen.is_empty(), "{seen:?}");
    assert_eq!(io(&mut world, B, 1, 0x01, &[2; 512]), OK);
    let seen = &world.medium(0).seen;
    assert!(
        seen.iter().any(|seen| matches!(seen, Seen::Write(..))),
        "{seen:?}"
    );
}

#[test]
fn what_one_entrance_writes_the_other_reads() {
    let mut world = world();
    assert_eq!(io(&mut world, A, 1, 0x01, &[0x5a; 512]), OK);
    assert_eq!(io(&mut world, B, 1, 0x02, &[0; 512]), OK);
    let rig = world.at(B);
    assert_eq!(rig.host.read(rig.data_page(), 512), [0x5a; 512]);
    let names = |world: &mut World, host| world.at(host).identify(0x03, 1, 0).unwrap();
    assert_eq!(names(&mut world, A), names(&mut world, B));
}

#[test]
fn a_change_of_state_is_notified_where_it_is_asked_for() {
    let mut world = world();
    for host in [A, B] {
        // Attached Namespace Attribute Notices, and ANA Change Notices, as Linux.
        assert_eq!(code(&world.at(host).set_feature(0x0b, 0x900)), OK);
        assert_eq!(world.at(host).get_feature(0x0b, 0, 0).dw0, 0x900);
        world.at(host).async_event();
    }
    set(&mut world, FIRST, &[(7, AnaState::INACCESSIBLE)]);
    world.turn();
    // Notice (2), Asymmetric Namespace Access Change (3), log page 0Ch.
    let event = world.at(A).reap().expect("it is held");
    assert_eq!((code(&event), event.dw0), (OK, 0x000c_0302));
    assert!(world.at(B).reap().is_none(), "of another entrance");
    // Masked until the page is read.
    world.at(A).async_event();
    set(&mut world, FIRST, &[(7, AnaState::OPTIMIZED)]);
    world.turn();
    assert!(world.at(A).peek().is_none());
    let retained = world.at(A).log_with(ANA_LOG, 0, 64, true);
    assert!(retained.is_ok() && world.at(A).peek().is_none());
    world.at(A).log(ANA_LOG, 0, 64).unwrap();
    set(&mut world, FIRST, &[(7, AnaState::INACCESSIBLE)]);
    world.turn();
    assert_eq!(world.at(A).reap().map(|event| event.dw0), Some(0x000c_0302));
    // The same states again are no change, and a group without namespaces is none of its own.
    world.at(A).log(ANA_LOG, 0, 64).unwrap();
    world.at(A).async_event();
    let before = log(&mut world, A);
    let same = [
        (7, AnaState::INACCESSIBLE),
        (1, AnaState::OPTIMIZED),
        (9, AnaState::CHANGE),
    ];
    set(&mut world, FIRST, &same);
    world.turn();
    assert!(world.at(A).reap().is_none());
    assert_eq!(log(&mut world, A), before);
    // A function has no such notices.
    assert_eq!(code(&world.at(PCIE).set_feature(0x0b, 0x900)), OK);
    assert_eq!(world.at(PCIE).get_feature(0x0b, 0, 0).dw0, 0x100);
}

/// A host keeps the state that it has read, and Linux reads the page for this event alone.
#[test]
fn a_state_that_changes_while_its_group_has_no_namespace_is_notified_when_it_has_one() {
    let mut world = world();
    let set_attached = |world: &mut World, is_attached| {
        let (nsid, controllers) = (2, [FIRST].into_iter().collect());
        let request = if is_attached {
            OperatorRequest::Attach { nsid, controllers }
        } else {
            OperatorRequest::Detach { nsid, controllers }
        };
        world.subsystem().request(1, request);
        for _ in 0..8 {
            world.turn();
        }
    };
    set(&mut world, FIRST, &[(7, AnaState::INACCESSIBLE)]);
    assert_eq!(code(&world.at(A).set_feature(0x0b, 0x800)), OK);
    world.at(A).async_event();
    assert_eq!(log(&mut world, A).1[1].2, 3, "the host has read it");
    for (before, after) in [
        (AnaState::INACCESSIBLE, None),
        (AnaState::OPTIMIZED, Some(0x000c_0302)),
        (AnaState::OPTIMIZED, None),
    ] {
        set_attached(&mut world, false);
        set(&mut world, FIRST, &[(7, before)]);
        assert!(world.at(A).peek().is_none(), "the group is not there");
        set_attached(&mut world, true);
        assert_eq!(world.at(A).reap().map(|event| event.dw0), after);
        if after.is_some() {
            assert_eq!(log(&mut world, A).1[1].2, 1);
            world.at(A).async_event();
        }
    }
    // A reset forgets what the host has read.
    set_attached(&mut world, false);
    world.at(A).disable();
    world.at(A).enable();
    assert_eq!(code(&world.at(A).set_feature(0x0b, 0x800)), OK);
    world.at(A).async_event();
    set(&mut world, FIRST, &[(7, AnaState::INACCESSIBLE)]);
    set_attached(&mut world, true);
    assert!(world.at(A).peek().is_none());
}

#[test]
fn counts_start_at_a_reset_and_follow_what_the_page_shows() {
    let mut world = world();
    let counts = |world: &mut World, host| {
        let (all, groups) = log(world, host);
        (all, groups.iter().map(|group| group.1).collect::<Vec<_>>())
    };
    assert_eq!(counts(&mut world, A), (0, vec![0, 0]));
    set(&mut world, FIRST, &[(7, AnaState::INACCESSIBLE)]);
    assert_eq!(counts(&mut world, A), (1, vec![0, 1]));
    set(&mut world, FIRST, &[(1, AnaState::INACCESSIBLE)]);
    assert_eq!(counts(&mut world, A), (2, vec![1, 2]));
    assert_eq!(counts(&mut world, B), (0, vec![0, 0]));
    // A namespace that goes: group 1 has another list, then group 7 is no more.
    for (nsid, expected) in [(3, (3, vec![2, 2])), (2, (4, vec![2]))] {
        assert_eq!(code(&world.at(A).set_feature(0x0b, 0x800)), OK);
        world.at(A).async_event();
        let request = OperatorRequest::Detach {
            nsid,
            controllers: [FIRST].into_iter().collect(),
        };
        world.subsystem().request(1, request);
        for _ in 0..8 {
            world.turn();
        }
        assert_eq!(counts(&mut world, A), expected);
        assert!(world.at(A).peek().is_none(), "another event is for that");
    }
    world.at(A).disable();
    world.at(A).enable();
    assert_eq!(log(&mut world, A), (0, vec![(1, 0, 3, vec![1])]));
}

#[test]
fn identify_shows_a_namespace_and_hides_how_much_of_it_is_used() {
    let mut world = world();
    let sizes = |world: &mut World, host| {
        let id = world.at(host).identify(0x00, 1, 0).unwrap();
        [0, 8, 16].map(|at| u64_at(&id, at))
    };
    for (state, used) in [
        (AnaState::NON_OPTIMIZED, 64),
        (AnaState::INACCESSIBLE, 0),
        (AnaState::PERSISTENT_LOSS, 0),
        (AnaState::CHANGE, 64),
    ] {
        set(&mut world, FIRST, &[(1, state)]);
        assert_eq!(sizes(&mut world, A), [64, 64, used], "{state:?}");
        assert_eq!(sizes(&mut world, B), [64, 64, 64]);
    }
    assert_eq!(world.listed(A, 0x02), [1, 2, 3]);
}

#[test]
fn admin_commands_to_an_inaccessible_namespace_are_refused() {
    let mut world = world();
    set(&mut world, FIRST, &[(1, AnaState::INACCESSIBLE)]);
    let command = |opcode, nsid, cdw10| Sqe {
        opcode,
        nsid,
        cdw10,
        ..Sqe::default()
    };
    let mask = |opcode, nsid| command(opcode, nsid, 0x82);
    for (host, expected) in [(A, INACCESSIBLE), (B, OK)] {
        assert_eq!(world.admin(host, mask(GET_FEATURES, 1)).0, expected);
        assert_eq!(world.admin(host, mask(SET_FEATURES, 1)).0, expected);
        assert_eq!(
            world.admin(host, mask(SET_FEATURES, 0xffff_ffff)).0,
            expected
        );
    }
    assert_eq!(world.admin(A, mask(GET_FEATURES, 2)).0, OK);
    assert_eq!(world.format(A, 2, 0), OK);
    assert_eq!(world.format(A, 1, 0), INACCESSIBLE);
    assert_eq!(world.format(A, 0xffff_ffff, 0), INACCESSIBLE, "one of them");
    assert_eq!(world.format(B, 1, 0), OK);
    assert_eq!(world.format(PCIE, 1, 0), OK);
    // Features of the controller, events and logs go on.
    assert_eq!(code(&world.at(A).get_feature(0x07, 0, 0)), OK);
    assert!(world.at(A).log(0x02, 0, 512).is_ok());
}

#[test]
fn commands_in_flight_complete_when_their_group_becomes_inaccessible() {
    let mut subsystem = Subsystem::new(subsystem_config()).unwrap();
    subsystem.set_key(OwnerKey::subsystem(3));
    subsystem.join("entrance").unwrap();
    let mut rig = Rig::in_subsystem(over_fabrics(FIRST), subsystem);
    rig.medium(0).manner = Manner::Hanging;
    rig.enable();
    rig.create_pair(1, 8);
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(2);
    let states = [(1, AnaState::INACCESSIBLE)].into_iter().collect();
    rig.subsystem.set_ana_states(FIRST, states);
    rig.turns(2);
    let read = rig.read_sqe(2, 1);
    rig.submit_io(1, 1, read);
    rig.turns(4);
    // The later one is refused at once, and the earlier one is the medium's.
    let first = rig.io_cqe(1, 0).expect("the refusal");
    assert_eq!((first.cid, code(&first)), (2, INACCESSIBLE));
    rig.medium(0).release(1);
    rig.turns(4);
    let second = rig.io_cqe(1, 1).expect("it completes");
    assert_eq!((second.cid, code(&second)), (1, OK));
}
