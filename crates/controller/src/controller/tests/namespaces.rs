//! Namespace Management and Namespace Attachment (Base 2.1, 5.1.20, 5.1.21 and 8.1.15; NVM 1.1,
//! 4.1.6).

use nvme_spec::Sqe;
use port::testing::namespace;
use port::{Cause, ChannelId};
use subsystem::{
    Allocated, ControllerId, ControllerSet, Host, Operation, Requester, ReservationCommand, Step,
    SubsystemConfig,
};

use super::rig::{
    DATA_TRANSFER, INVALID_FIELD, INVALID_NAMESPACE, INVALID_OPCODE, OK, Rig, u16_at, u32_at,
    u64_at,
};
use super::world::{
    ALREADY_ATTACHED, COMMAND_SET_NOT_SUPPORTED, FORMAT, Fields, IDENTIFIER_UNAVAILABLE,
    INSUFFICIENT_CAPACITY, INVALID_FORMAT, IS_PRIVATE, LIST_INVALID, NOT_ATTACHED, NS_ATTACHMENT,
    NS_MANAGEMENT, SANITIZE, THIN_PROVISIONING, World, pool,
};

const MIB: u64 = 1 << 20;
/// NSID_ALL (Base 2.1, 3.2.1.2).
const ALL: u32 = 0xffff_ffff;

/// Hosts of a subsystem with at most eight namespaces, in a pool of 4 MiB.
fn world(hosts: usize) -> World {
    let config = SubsystemConfig {
        pools: vec![pool(0, 4 * MIB)],
        identity_seed: *b"seed of the pool",
        ..SubsystemConfig::with_namespaces(8, [])
    };
    World::new(hosts, config, 4 * MIB)
}

#[test]
fn without_a_pool_neither_command_exists() {
    let mut rig = Rig::enabled();
    for opcode in [NS_MANAGEMENT, NS_ATTACHMENT] {
        let sqe = rig.with_data(opcode);
        assert_eq!(rig.status(Sqe { nsid: 1, ..sqe }), INVALID_OPCODE);
        let effects = rig.log(0x05, 0, 1024).unwrap();
        assert_eq!(u32_at(&effects, usize::from(opcode) * 4), 0);
    }
    // FFFFFFFFh asks for what namespaces have in common (NVM 1.1, 4.1.5.1).
    assert_eq!(rig.identify(0x00, ALL, 0), Err(INVALID_NAMESPACE));
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(u16_at(&id, 256) >> 3 & 1, 0, "OACS.NMS");
}

#[test]
fn what_identify_tells_of_it() {
    let mut world = world(1);
    let id = world.at(0).identify(0x01, 0, 0).unwrap();
    assert_eq!(u16_at(&id, 256) >> 3 & 1, 1, "OACS.NMS");
    assert_eq!(
        [u64_at(&id, 280), u64_at(&id, 288)],
        [4 * MIB, 0],
        "TNVMCAP"
    );
    assert_eq!(
        [u64_at(&id, 296), u64_at(&id, 304)],
        [4 * MIB, 0],
        "UNVMCAP"
    );
    world.create(0, Fields::new(9)).unwrap();
    let id = world.at(0).identify(0x01, 0, 0).unwrap();
    // Nine blocks take two granules of 4 KiB.
    assert_eq!(u64_at(&id, 296), 4 * MIB - 8192, "UNVMCAP");
    let effects = world.at(0).log(0x05, 0, 1024).unwrap();
    for opcode in [NS_MANAGEMENT, NS_ATTACHMENT] {
        // Supported, and Namespace Inventory Change.
        let entry = u32_at(&effects, usize::from(opcode) * 4);
        assert_eq!(entry & 0b1_1111, 0b0_1001, "{opcode:#x}");
    }
    // Logical Block Content Change and Namespace Capability Change.
    assert_eq!(
        u32_at(&effects, usize::from(FORMAT) * 4) & 0b1_1111,
        0b0_0111
    );
}

#[test]
fn a_namespace_is_created_attached_to_nobody() {
    let mut world = world(2);
    assert_eq!(world.create(0, Fields::shared(2048)), Ok(1));
    assert_eq!(
        world.create(1, Fields::new(16)),
        Ok(2),
        "the lowest that is free"
    );
    for host in 0..2 {
        assert_eq!(world.listed(host, 0x02), [], "active");
        assert_eq!(world.listed(host, 0x10), [1, 2], "allocated");
    }
    let ns = world.at(0).identify(0x11, 1, 0).unwrap();
    assert_eq!([u64_at(&ns, 0), u64_at(&ns, 8)], [2048; 2]);
    assert_eq!((ns[26], ns[30]), (0, 1), "FLBAS, NMIC");
    assert_eq!(u64_at(&ns, 48), MIB, "NVMCAP");
    let other = world.at(0).identify(0x11, 2, 0).unwrap();
    assert_eq!(other[30], 0, "NMIC: private");
    let coarse = Fields {
        flbas: 1,
        ..Fields::new(4)
    };
    assert_eq!(world.create(0, coarse), Ok(3));
    let ns = world.at(0).identify(0x11, 3, 0).unwrap();
    assert_eq!((ns[26], u64_at(&ns, 48)), (1, 16_384), "FLBAS, NVMCAP");
}

#[test]
fn what_cannot_be_created() {
    let mut world = world(1);
    let good = Fields::new(8);
    let cases = [
        (
            Fields {
                nsze: 0,
                ncap: 0,
                ..good
            },
            INVALID_FIELD,
        ),
        (Fields { ncap: 7, ..good }, THIN_PROVISIONING),
        (Fields { ncap: 9, ..good }, INVALID_FIELD),
        (Fields { flbas: 2, ..good }, INVALID_FORMAT),
        (Fields { flbas: 15, ..good }, INVALID_FORMAT),
        (Fields { dps: 1, ..good }, INVALID_FIELD),
        (Fields { nmic: 2, ..good }, INVALID_FIELD),
        (
            Fields {
                nvmsetid: 1,
                ..good
            },
            INVALID_FIELD,
        ),
        (Fields { endgid: 1, ..good }, INVALID_FIELD),
        // ANA Group Identifier Invalid.
        (
            Fields {
                anagrpid: 1,
                ..good
            },
            0x124,
        ),
        (Fields::new(4 * MIB / 512 + 1), INSUFFICIENT_CAPACITY),
        (Fields::new(u64::MAX), INSUFFICIENT_CAPACITY),
        (Fields::new(u64::MAX / 512), INSUFFICIENT_CAPACITY),
    ];
    for (fields, status) in cases {
        assert_eq!(world.create(0, fields), Err(status));
    }
    // The last one had no room: Command Specific Information says how much it needs, in bytes.
    assert_eq!(
        world.create(0, Fields::new(4 * MIB / 512 + 1)),
        Err(INSUFFICIENT_CAPACITY)
    );
    let entry = world.at(0).log(0x01, 0, 64).unwrap();
    assert_eq!(u64_at(&entry, 32), 4 * MIB + 4096);
    for csi in [1, 2, 0xff] {
        let refused = world.create_of(0, good, csi);
        assert_eq!(refused, Err(COMMAND_SET_NOT_SUPPORTED), "{csi}");
    }
    let unmapped = Sqe {
        opcode: NS_MANAGEMENT,
        prp1: 0x1000,
        ..Sqe::default()
    };
    assert_eq!(world.admin(0, unmapped).0, DATA_TRANSFER);
    for select in [2, 15] {
        let sqe = Sqe {
            cdw10: select,
            ..world.at(0).with_data(NS_MANAGEMENT)
        };
        assert_eq!(world.admin(0, sqe).0, INVALID_FIELD, "SEL {select}");
    }
    assert_eq!(world.listed(0, 0x10), [], "nothing was created");
    for nsid in 1..=8 {
        assert_eq!(world.create(0, good), Ok(nsid));
    }
    assert_eq!(world.create(0, good), Err(IDENTIFIER_UNAVAILABLE));
}

#[test]
fn a_format_that_no_pool_can_do_is_invalid() {
    let mut coarse = pool(0, MIB);
    coarse.min_lba_bytes = 4096;
    let config = SubsystemConfig {
        pools: vec![coarse],
        ..SubsystemConfig::with_namespaces(8, [])
    };
    let mut world = World::new(1, config, MIB);
    let common = world.at(0).identify(0x00, ALL, 0).unwrap();
    assert_eq!([u32_at(&common, 128), u32_at(&common, 132)], [0, 12 << 16]);
    assert_eq!(world.create(0, Fields::new(8)), Err(INVALID_FORMAT));
    let fields = Fields {
        flbas: 1,
        ..Fields::new(8)
    };
    assert_eq!(world.create(0, fields), Ok(1));
    // LBAFL 0: what it was created without it cannot be formatted to either.
    assert_eq!(world.format(0, 1, 0), INVALID_FORMAT);
}

/// AWUPF promises that one logical block at least is written wholly or not at all when the power
/// fails: so there is no format with blocks of which a medium says no such thing.
#[test]
fn blocks_that_a_medium_may_tear_are_no_format() {
    let mut tearing = pool(0, MIB);
    tearing.max_lba_bytes = 512;
    let config = SubsystemConfig {
        pools: vec![tearing],
        ..SubsystemConfig::with_namespaces(8, [])
    };
    let mut world = World::new(1, config, MIB);
    let common = world.at(0).identify(0x00, ALL, 0).unwrap();
    assert_eq!([u32_at(&common, 128), u32_at(&common, 132)], [9 << 16, 0]);
    let of_4096 = Fields {
        flbas: 1,
        ..Fields::new(8)
    };
    assert_eq!(world.create(0, of_4096), Err(INVALID_FORMAT));
    assert_eq!(world.create(0, Fields::new(8)), Ok(1));
    assert_eq!(world.format(0, 1, 1), INVALID_FORMAT);
    assert_eq!(world.format(0, 1, 0), OK);
}

#[test]
fn a_new_namespace_holds_no_earlier_data() {
    let mut world = world(1);
    assert_eq!(world.create(0, Fields::new(16)), Ok(1));
    let bytes = &world.medium(0).bytes;
    assert!(bytes[..8192].iter().all(|byte| *byte == 0), "AAh is gone");
    assert!(
        bytes[8192..].iter().all(|byte| *byte == 0xaa),
        "and no more"
    );
    world.medium(0).bytes[..8192].fill(0x55);
    assert_eq!(world.delete(0, 1), OK);
    assert_eq!(
        world.medium(0).bytes[0],
        0x55,
        "it is erased when it is given again"
    );
    assert_eq!(world.create(0, Fields::new(8)), Ok(1));
    let bytes = &world.medium(0).bytes;
    assert!(bytes[..4096].iter().all(|byte| *byte == 0));
    assert_eq!(bytes[4096], 0x55);
}

#[test]
fn a_namespace_whose_bytes_cannot_be_erased_does_not_come_to_be() {
    let mut world = world(1);
    world.medium(0).fault = Some(Cause::WriteFailed);
    // Internal Error.
    assert_eq!(world.create(0, Fields::new(16)), Err(0x006));
    assert_eq!(world.listed(0, 0x10), []);
    assert!(world.subsystem().record().namespaces.is_empty());
    world.medium(0).fault = None;
    assert_eq!(world.create(0, Fields::new(16)), Ok(1));
}

#[test]
fn names_never_come_twice() {
    let mut world = world(1);
    let mut names = std::collections::BTreeSet::new();
    for _ in 0..20 {
        let nsid = world.create(0, Fields::new(8)).unwrap();
        let ns = world.at(0).identify(0x11, nsid, 0).unwrap();
        let (nguid, eui64) = (ns[104..120].to_vec(), ns[120..128].to_vec());
        // OUIs, locally administered (Base 2.1, 4.7).
        assert_eq!(
            (&nguid[8..11], &eui64[..3]),
            (&[2, 0x4e, 0x56][..], &[2, 0x4e, 0x56][..])
        );
        assert!(names.insert(nguid) && names.insert(eui64));
        assert_eq!(world.delete(0, nsid), OK);
    }
    // After a restart the count goes on.
    let record = world.subsystem().record();
    assert_eq!(record.created, 20);
    let config = SubsystemConfig {
        pools: vec![pool(0, 4 * MIB)],
        identity_seed: *b"seed of the pool",
        created: record.created,
        ..SubsystemConfig::with_namespaces(8, [])
    };
    let mut again = World::new(1, config, 4 * MIB);
    let nsid = again.create(0, Fields::new(8)).unwrap();
    let ns = again.at(0).identify(0x11, nsid, 0).unwrap();
    assert!(!names.contains(&ns[104..120]) && !names.contains(&ns[120..128]));
}

#[test]
fn attaching_and_detaching() {
    let mut world = world(3);
    assert_eq!(world.create(0, Fields::shared(8)), Ok(1));
    assert_eq!(world.attach(0, 1, &[3, 1]), OK, "in any order");
    assert_eq!(world.listed(0, 0x02), [1]);
    assert_eq!(world.listed(1, 0x02), []);
    assert_eq!(world.listed(2, 0x02), [1]);
    // All of the list, or none.
    assert_eq!(world.attach(0, 1, &[2, 3]), ALREADY_ATTACHED);
    assert_eq!(world.listed(1, 0x02), []);
    assert_eq!(world.detach(0, 1, &[1, 2]), NOT_ATTACHED);
    assert_eq!(world.listed(0, 0x02), [1]);
    assert_eq!(world.detach(1, 1, &[1, 3]), OK, "whoever asks");
    assert_eq!(world.listed(0, 0x02), []);
    assert_eq!(world.listed(2, 0x02), []);
    assert_eq!(world.listed(2, 0x10), [1], "it still exists");
}

#[test]
fn a_private_namespace_is_attached_to_one_controller() {
    let mut world = world(2);
    assert_eq!(world.create(0, Fields::new(8)), Ok(1));
    assert_eq!(world.attach(0, 1, &[1, 2]), IS_PRIVATE);
    assert_eq!(world.attach(0, 1, &[2]), OK);
    assert_eq!(world.attach(0, 1, &[1]), IS_PRIVATE);
    assert_eq!(world.attach(0, 1, &[2]), ALREADY_ATTACHED);
    assert_eq!(world.detach(0, 1, &[2]), OK);
    assert_eq!(world.attach(0, 1, &[1]), OK);
}

#[test]
fn lists_and_namespaces_that_cannot_be() {
    let mut world = world(2);
    assert_eq!(world.create(0, Fields::shared(8)), Ok(1));
    for list in [&[][..], &[0], &[3], &[1, 1], &[1, 64], &[0xffff]] {
        assert_eq!(world.attach(0, 1, list), LIST_INVALID, "{list:?}");
        assert_eq!(world.detach(0, 1, list), LIST_INVALID, "{list:?}");
    }
    for (nsid, status) in [
        (0, INVALID_NAMESPACE),
        (2, INVALID_FIELD),
        (8, INVALID_FIELD),
        (9, INVALID_NAMESPACE),
        (ALL - 1, INVALID_NAMESPACE),
        (ALL, INVALID_FIELD),
    ] {
        assert_eq!(world.attach(0, nsid, &[1]), status, "{nsid:#x}");
        assert_eq!(world.detach(0, nsid, &[1]), status, "{nsid:#x}");
        if nsid != ALL {
            assert_eq!(world.delete(0, nsid), status, "{nsid:#x}");
        }
    }
    let sqe = Sqe {
        nsid: 1,
        cdw10: 2,
        ..world.at(0).with_data(NS_ATTACHMENT)
    };
    assert_eq!(world.admin(0, sqe).0, INVALID_FIELD, "SEL");
    assert_eq!(world.listed(0, 0x02), []);
}

#[test]
fn others_are_told_and_the_one_that_asked_is_not() {
    let mut world = world(3);
    assert_eq!(world.create(0, Fields::shared(8)), Ok(1));
    let mut events = Vec::new();
    for host in 0..3 {
        // Attached Namespace Attribute Notices.
        world.at(host).set_feature(0x0b, 1 << 8);
        events.push(world.at(host).async_event());
    }
    assert_eq!(world.attach(0, 1, &[1, 2]), OK);
    world.turn();
    assert_eq!(world.at(0).peek(), None, "it asked");
    assert_eq!(world.at(2).peek(), None, "it has nothing to do with it");
    let told = world.at(1).reap().unwrap();
    assert_eq!((told.cid, told.dw0), (events[1], 0x0004_0002));
    let changed = world.at(1).log(0x04, 0, 8).unwrap();
    assert_eq!([u32_at(&changed, 0), u32_at(&changed, 4)], [1, 0]);
    let cid = world.at(1).async_event();
    assert_eq!(world.delete(0, 1), OK);
    world.turn();
    let told = world.at(1).reap().unwrap();
    assert_eq!((told.cid, told.dw0), (cid, 0x0004_0002));
    assert_eq!((world.at(0).peek(), world.at(2).peek()), (None, None));
}

#[test]
fn all_namespaces_are_deleted_at_once_and_configured_ones_stay_away() {
    let mut configured = Allocated::everywhere(namespace(3, ChannelId(1), 16));
    configured.name = Some("root".to_owned());
    configured.attached = ControllerSet::NONE.with(ControllerId(1));
    let config = SubsystemConfig {
        pools: vec![pool(0, 4 * MIB)],
        namespaces: vec![configured],
        ..SubsystemConfig::with_namespaces(8, [])
    };
    let mut world = World::new(2, config, 4 * MIB);
    assert_eq!(world.create(1, Fields::new(8)), Ok(1));
    assert_eq!(world.attach(1, 1, &[2]), OK);
    assert_eq!(world.delete(1, ALL), OK);
    for host in 0..2 {
        assert_eq!(
            (world.listed(host, 0x02), world.listed(host, 0x10)),
            (vec![], vec![])
        );
    }
    assert_eq!(world.subsystem().record().deleted, ["root"]);
    assert_eq!(world.delete(1, ALL), OK, "there is none");
}

#[test]
fn a_reservation_keeps_others_from_managing_formatting_and_sanitizing() {
    let mut world = world(2);
    assert_eq!(world.create(0, Fields::shared(8)), Ok(1));
    assert_eq!(world.create(0, Fields::shared(8)), Ok(2));
    assert_eq!(world.attach(0, 1, &[1, 2]), OK);
    // The first host registers with key 7 and takes a Write Exclusive reservation.
    let host = Host::Anonymous(ControllerId(1));
    let register = ReservationCommand::Register {
        cdw10: 0.into(),
        crkey: 0,
        nrkey: 7,
    };
    let acquire = ReservationCommand::Acquire {
        cdw10: (1 << 8).into(),
        crkey: 7,
        prkey: 0,
    };
    let steps = [register, acquire].map(|command| Step::Reserve { host, command });
    let reserve = Operation::new(Requester::Operator(1), 1, steps);
    world.subsystem().begin(reserve);
    world.turn();
    assert_eq!(world.subsystem().take_operator_answer(), Some((1, Ok(0))));
    // Figure 646: commands that write conflict. Reservation Conflict is 083h.
    let sanitize = Sqe {
        opcode: SANITIZE,
        cdw10: 2,
        ..Sqe::default()
    };
    assert_eq!(world.format(1, 1, 0), 0x083);
    assert_eq!(world.format(1, ALL, 0), 0x083);
    assert_eq!(world.detach(1, 1, &[2]), 0x083);
    assert_eq!(world.attach(1, 1, &[2]), 0x083);
    assert_eq!(world.delete(1, 1), 0x083);
    assert_eq!(world.delete(1, ALL), 0x083);
    assert_eq!(world.admin(1, sanitize).0, 0x083);
    assert_eq!(world.listed(1, 0x10), [1, 2]);
    assert_eq!(world.format(1, 2, 0), OK, "another namespace");
    assert_eq!(world.format(0, 1, 0), OK, "the holder");
    assert_eq!(world.detach(0, 1, &[2]), OK);
    assert_eq!(world.admin(0, sanitize).0, OK);
}

#[test]
fn two_that_want_the_same_space_do_not_both_get_it() {
    let mut world = world(2);
    let most = Fields::new(4 * MIB / 512);
    let mut cids = Vec::new();
    for host in 0..2 {
        let rig = world.at(host);
        let page = most.bytes();
        rig.host.write(rig.data_page(), &page);
        let sqe = rig.with_data(NS_MANAGEMENT);
        cids.push(rig.submit(sqe));
    }
    let mut results = Vec::new();
    for _ in 0..64 {
        world.turn();
        for host in 0..2 {
            results.extend(world.at(host).reap().map(|cqe| super::rig::code(&cqe)));
        }
    }
    results.sort_unstable();
    assert_eq!(results, [OK, INSUFFICIENT_CAPACITY]);
    assert_eq!(world.listed(0, 0x10), [1]);
}
