//! Controllers over fabrics, beside their entrance. The test plays the transport, which plays the
//! host of each.
//!
//! Expectations are of Base 2.1 and of TCP 1.1, and what Linux 6.12 and 7.3 refuse in
//! `drivers/nvme/host`: recorded sessions of theirs are the models.

use memory::StateFile;
use nvme_spec::Sqe;
use port::testing::namespace;
use port::{ChannelId, ticket::OwnerKey};
use subsystem::{Allocated, ControllerId, SubsystemConfig};

use super::rig::*;
use super::world::*;
use crate::config::{ConfigError, Fabrics, Interface};
use crate::controller::failure::RestoreError;
use crate::controller::{Controller, ControllerConfig, Left};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;
/// KATO of Linux, in milliseconds.
const KATO: u32 = 5000;

const FID_COALESCING: u32 = 0x08;
const FID_VECTOR: u32 = 0x09;
const FID_KEEP_ALIVE: u32 = 0x0f;
const FID_HOST_IDENTIFIER: u32 = 0x81;

fn over_fabrics() -> ControllerConfig {
    ControllerConfig {
        name: "association".to_owned(),
        interface: Interface::Fabrics(Fabrics {
            entrance: ControllerId(1),
            in_capsule: 8192,
        }),
        ..config()
    }
}

fn shared() -> SubsystemConfig {
    let shared = |nsid, channel| Allocated {
        shared: true,
        ..Allocated::everywhere(namespace(nsid, ChannelId(channel), 2048))
    };
    SubsystemConfig {
        namespaces: vec![shared(1, 0), shared(3, 1)],
        ..SubsystemConfig::with_namespaces(32, [])
    }
}

/// Host 0 has the entrance, which shows what is there; the others have come over fabrics.
fn associations(count: usize, subsystem: SubsystemConfig) -> World {
    let all = std::iter::once(config()).chain((0..count).map(|_| over_fabrics()));
    World::with(all, subsystem, MIB)
}

fn id_of(world: &mut World, host: usize) -> u16 {
    world.at(host).controller.id().0
}

#[test]
fn cap_offers_what_a_host_over_a_network_can_use() {
    let mut world = associations(1, shared());
    let rig = world.at(1);
    let cap = rig.read64(CAP);
    assert_eq!(cap & 0xffff, 63, "MQES");
    assert_eq!(cap >> 16 & 1, 1, "CQR");
    assert_eq!(cap >> 17 & 0b11, 0, "AMS: round robin alone");
    assert_eq!(cap >> 24 & 0xff, 20, "TO");
    assert_eq!(cap >> 32 & 0xf, 0, "DSTRD");
    assert_eq!(cap >> 36 & 1, 0, "NSSRS");
    assert_eq!(
        cap >> 37 & 0xff,
        0b100_0001,
        "CSS: NVM, and all that there are"
    );
    assert_eq!(cap >> 48 & 0xff, 0, "MPSMIN, MPSMAX");
    assert_eq!(cap >> 59 & 0b11, 1, "CRMS: Linux asks for CRTO then");
    assert_ne!(rig.read32(CRTO) & 0xffff, 0, "CRWMT");
    // NSSR is not there: other hosts go on.
    rig.write32(NSSR, 0x4e56_4d65);
    rig.turns(4);
    assert_eq!(rig.csts(), RDY);
    rig.disable();
    rig.set_admin_queues(32);
    rig.write32(CC, CC_ENABLE | 1 << 11);
    rig.turns(4);
    assert_eq!(rig.csts() & (CFS | RDY), CFS, "weighted round robin");
}

#[test]
fn identify_controller_by_offset() {
    let mut world = associations(1, shared());
    let pcie = world.at(0).identify(0x01, 0, 0).unwrap();
    let id = world.at(1).identify(0x01, 0, 0).unwrap();
    assert_eq!(
        u16_at(&id, 78),
        id_of(&mut world, 1),
        "CNTLID, as of Connect"
    );
    assert!((0x0100..=0xffef).contains(&u16_at(&id, 78)));
    assert_eq!(id[76], 0b1010, "CMIC: several controllers, one port, ANA");
    assert_eq!(u32_at(&id, 96), 1 | 1 << 6, "CTRATT: TBKAS");
    assert_eq!(id[111], 1, "CNTRLTYPE: I/O controller");
    assert_eq!(
        u16_at(&id, 256) >> 8 & 1,
        0,
        "OACS: no Doorbell Buffer Config"
    );
    assert_eq!(u16_at(&id, 320), 1, "KAS: Linux refuses 0");
    assert_eq!(u16_at(&id, 514), 64, "MAXCMD: the queue's depth");
    // Any alignment, an offset into the capsule, and the transport's descriptor.
    assert_eq!(u32_at(&id, 536), 1 | 1 << 20 | 1 << 21, "SGLS");
    assert_eq!(u32_at(&id, 1792), (64 + 8192) / 16, "IOCCSZ");
    assert_eq!(u32_at(&id, 1796), 1, "IORCSZ");
    assert_eq!(u16_at(&id, 1800), 0, "ICDOFF: Linux refuses another");
    assert_eq!(id[1802], 0, "FCATT: the dynamic controller model");
    assert_eq!(id[1803], 1, "MSDBD");
    assert_eq!(u16_at(&id, 1804), 0, "OFCS: no Disconnect");
    assert_eq!(id[1806], 0, "DCTYPE: no Discovery controller");
    // Everything else is as over PCIe.
    let fields = [
        // ANA is tested in `access`.
        76..77,
        78..80,
        92..100,
        256..258,
        342..352,
        514..516,
        536..540,
        1792..1800,
        1803..1804,
    ];
    for at in (0..4096).filter(|at| pcie[*at] != id[*at]) {
        assert!(fields.iter().any(|field| field.contains(&at)), "byte {at}");
    }
    assert_eq!(
        &id[768..801],
        b"nqn.2014-08.org.nvmexpress:uuid:x",
        "SUBNQN"
    );
}

#[test]
fn several_configured_controllers_are_several_ports() {
    let mut second = config();
    second.name = "second".to_owned();
    let mut world = World::with([config(), second, over_fabrics()], shared(), MIB);
    assert_eq!(world.at(2).identify(0x01, 0, 0).unwrap()[76], 0b1011);
    assert_eq!(world.at(0).identify(0x01, 0, 0).unwrap()[76], 0b10);
}

#[test]
fn every_namespace_is_shared() {
    // Private ones, for hosts of configured controllers.
    let namespaces = SubsystemConfig::with_namespaces(32, namespaces());
    let mut world = associations(1, namespaces);
    let nmic = |world: &mut World, host| {
        let of = |(cns, at)| {
            world
                .at(host)
                .identify(cns, 1, 0)
                .map(|page: Vec<u8>| page[at])
        };
        [(0x00, 30), (0x08, 1), (0x11, 30), (0x1f, 1)].map(of)
    };
    assert_eq!(nmic(&mut world, 1), [Ok(1); 4]);
    assert_eq!(nmic(&mut world, 0), [Ok(0); 4]);
}

#[test]
fn effects_are_of_commands_that_a_host_may_send() {
    let mut world = associations(1, shared());
    let queues = [DELETE_SQ, CREATE_SQ, DELETE_CQ, CREATE_CQ, DOORBELL_BUFFERS];
    let (pcie, fabrics) = (
        world.at(0).log(0x05, 0, 1024).unwrap(),
        world.at(1).log(0x05, 0, 1024).unwrap(),
    );
    for opcode in 0..=u8::MAX {
        let at = 4 * usize::from(opcode);
        let (theirs, ours) = (u32_at(&pcie, at), u32_at(&fabrics, at));
        if queues.contains(&opcode) {
            assert_eq!((theirs & 1, ours), (1, 0), "opcode {opcode:#x}");
        } else {
            assert_eq!(theirs, ours, "opcode {opcode:#x}");
        }
    }
    // The transport creates queues, without interrupts.
    let rig = world.at(1);
    let (cq, sq) = (rig.create_cq_sqe(1, 64), rig.create_sq_sqe(1, 1, 64));
    let cq = Sqe { cdw11: 1, ..cq };
    assert_eq!((rig.status(cq), rig.status(sq)), (OK, OK));
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| code(&cqe)), Some(OK));
    assert_eq!((rig.delete_sq(1), rig.delete_cq(1)), (OK, OK));
    let buffers = rig.with_data(DOORBELL_BUFFERS);
    assert_eq!(rig.status(buffers), INVALID_OPCODE);
}

#[test]
fn there_are_no_features_of_interrupts_and_none_is_saved() {
    let mut world = associations(1, shared());
    let rig = world.at(1);
    for fid in [FID_COALESCING, FID_VECTOR] {
        assert_eq!(code(&rig.set_feature(fid, 0)), INVALID_FIELD);
        assert_eq!(code(&rig.get_feature(fid, 0, 0)), INVALID_FIELD);
    }
    let log = rig.log(0x12, 0, 1024).unwrap();
    let supported = |fid: u32| u32_at(&log, 4 * fid as usize) & 1;
    assert_eq!([FID_COALESCING, FID_VECTOR].map(supported), [0; 2]);
    assert_eq!(
        [0x01, 0x07, FID_KEEP_ALIVE, FID_HOST_IDENTIFIER].map(supported),
        [1; 4]
    );
    // Supported capabilities: changeable, neither saveable nor of a namespace.
    assert_eq!(rig.get_feature(0x01, 3, 0).dw0, 0b100);
    assert_eq!(code(&rig.set_feature(1 << 31 | 0x01, 0)), NOT_SAVEABLE);
    assert_eq!(code(&rig.set_feature(0x01, 0)), OK);
    assert_eq!(world.at(0).get_feature(0x01, 3, 0).dw0, 0b101);
}

#[test]
fn the_host_identifier_is_that_of_connect() {
    let mut world = associations(2, shared());
    let identifier: [u8; 16] = std::array::from_fn(|at| at as u8 + 1);
    let id = world.at(1).controller.id();
    world.at(1).controller.connect(identifier, 0);
    world.turn();
    let extended = subsystem::Host::Extended(identifier);
    assert_eq!(world.subsystem().host_of(id), extended);
    let rig = world.at(1);
    assert_eq!(code(&rig.get_feature(FID_HOST_IDENTIFIER, 0, 1)), OK);
    assert_eq!(rig.host.read(rig.data_page(), 16), identifier);
    assert_eq!(
        code(&rig.get_feature(FID_HOST_IDENTIFIER, 0, 0)),
        INVALID_FIELD
    );
    assert_eq!(
        rig.get_feature(FID_HOST_IDENTIFIER, 3, 0).dw0,
        0,
        "nothing changes it"
    );
    for exhid in [0, 1] {
        let set = Sqe {
            cdw10: FID_HOST_IDENTIFIER,
            cdw11: exhid,
            ..rig.with_data(SET_FEATURES)
        };
        assert_eq!(rig.status(set), SEQUENCE_ERROR);
    }
    // A reset is of the controller, and not of the association.
    rig.disable();
    rig.enable();
    assert_eq!(code(&rig.get_feature(FID_HOST_IDENTIFIER, 0, 1)), OK);
    assert_eq!(rig.host.read(rig.data_page(), 16), identifier);
    assert_eq!(world.subsystem().host_of(id), extended);
}

#[test]
fn a_host_is_introduced_when_it_has_proved_who_it_is() {
    let mut world = associations(3, shared());
    let ids = [1, 2, 3].map(|at| world.at(at).controller.id());
    let anonymous = ids.map(subsystem::Host::Anonymous);
    let one = subsystem::Host::Extended([1; 16]);
    for (at, nqn) in [(1, "nqn.a"), (2, "nqn.a"), (3, "nqn.b")] {
        let controller = &mut world.at(at).controller;
        controller.name_host(nqn);
        controller.connect([1; 16], 0);
        controller.await_proof();
    }
    let hosts = |world: &mut World| ids.map(|id| world.subsystem().host_of(id));
    world.turn();
    assert_eq!(hosts(&mut world), anonymous);
    // Also in a reset, which ends an association.
    world.at(1).controller.function_reset();
    world.turn();
    assert_eq!(hosts(&mut world), anonymous);
    for at in [1, 2, 3] {
        world.at(at).controller.host_has_proved();
        world.turn();
    }
    // Two paths of one host; another one that claims to be the same.
    assert_eq!(hosts(&mut world), [one, one, anonymous[2]]);
}

/// An association whose host has connected with this timeout, before its first turn.
fn connected(kato: u32) -> Rig {
    let mut subsystem = subsystem::Subsystem::new(shared()).unwrap();
    subsystem.set_key(OwnerKey::subsystem(3));
    subsystem.join("entrance").unwrap();
    let mut rig = Rig::in_subsystem(over_fabrics(), subsystem);
    rig.controller.connect([7; 16], kato);
    rig.turns(2);
    rig
}

/// So much time passes, with turns that are a millisecond apart.
fn live(rig: &mut Rig, ns: u64) {
    for _ in 0..ns / MS {
        rig.now = rig.now + MS;
        rig.turn();
    }
}

#[test]
fn all_that_comes_from_a_host_keeps_it_alive() {
    let mut rig = connected(KATO);
    rig.enable();
    assert_eq!(rig.get_feature(FID_KEEP_ALIVE, 0, 0).dw0, KATO);
    // Bytes on any connection, whatever they are.
    for _ in 0..3 {
        rig.controller.heard();
        live(&mut rig, 4999 * MS);
    }
    assert_eq!(rig.csts(), RDY);
    let keep_alive = Sqe {
        opcode: KEEP_ALIVE,
        ..Sqe::default()
    };
    assert_eq!(rig.status(keep_alive), OK);
    live(&mut rig, 5099 * MS);
    assert_eq!(rig.csts(), RDY, "the timeout, and the unit of KAS");
    live(&mut rig, 2 * MS);
    assert_eq!(rig.csts() & CFS, CFS);
}

#[test]
fn a_reactor_that_was_stopped_blames_no_host() {
    let mut rig = connected(KATO);
    rig.enable();
    // The turn after the stop may come before the sockets are read.
    rig.now = rig.now + 60 * SECOND;
    rig.turn();
    assert_eq!(rig.csts(), RDY);
    rig.controller.heard();
    rig.now = rig.now + 60 * SECOND;
    rig.turn();
    assert_eq!(rig.csts(), RDY);
    // Nothing has come: it wakes up for that.
    rig.now = rig.now + 60 * SECOND;
    rig.turn();
    let due = rig.controller.next_deadline().unwrap();
    assert_eq!(due, rig.now + 100 * MS);
    live(&mut rig, 99 * MS);
    assert_eq!(rig.csts(), RDY);
    live(&mut rig, MS);
    assert_eq!(rig.csts() & CFS, CFS);
}

#[test]
fn the_timer_runs_from_connect_on() {
    let mut rig = connected(1001);
    live(&mut rig, 1100 * MS);
    assert_eq!(rig.csts(), 0, "1100 ms and the grace");
    live(&mut rig, 101 * MS);
    assert_eq!(rig.csts(), CFS, "a host that never enables its controller");
    // Without a timeout it waits.
    let mut rig = connected(0);
    live(&mut rig, 10 * SECOND);
    assert_eq!((rig.csts(), rig.controller.next_deadline()), (0, None));
    // A controller that no host has connected to waits as well.
    let mut subsystem = subsystem::Subsystem::new(shared()).unwrap();
    subsystem.join("entrance").unwrap();
    let mut rig = Rig::in_subsystem(over_fabrics(), subsystem);
    live(&mut rig, 10 * SECOND);
    assert_eq!((rig.csts(), rig.controller.next_deadline()), (0, None));
}

#[test]
fn the_timeout_of_connect_has_the_unit_of_kas() {
    for (asked, kept) in [(1, 100), (100, 100), (101, 200), (!0, 4_294_967_200)] {
        let mut rig = connected(asked);
        rig.enable();
        assert_eq!(rig.get_feature(FID_KEEP_ALIVE, 0, 0).dw0, kept);
    }
    // A host may set another one.
    let mut rig = connected(KATO);
    rig.enable();
    assert_eq!(code(&rig.set_feature(FID_KEEP_ALIVE, 100)), OK);
    live(&mut rig, 201 * MS);
    assert_eq!(rig.csts() & CFS, CFS);
}

#[test]
fn no_process_goes_on_with_it() {
    let rig = connected(KATO);
    let fd = rig.controller.state().fd().try_clone_to_owned().unwrap();
    let left = Left {
        file: StateFile::open(fd).unwrap(),
        doorbells: rig.doorbells.clone(),
        view: rig.host.view(),
        crashed: false,
    };
    let mut subsystem = subsystem::Subsystem::new(shared()).unwrap();
    let restored = Controller::restore(over_fabrics(), left, &mut subsystem, &mut Lanes::default());
    assert!(matches!(restored, Err(RestoreError::Dynamic)));
    assert_eq!(subsystem.controllers().count(), 0);
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |in_capsule| {
        let config = ControllerConfig {
            interface: Interface::Fabrics(Fabrics {
                entrance: ControllerId(1),
                in_capsule,
            }),
            ..config()
        };
        config.check().err()
    };
    assert!(refused(0).is_none() && refused(16).is_none() && refused(65_536).is_none());
    assert!(matches!(refused(8), Some(ConfigError::InCapsule(8))));
    assert!(matches!(refused(65_552), Some(ConfigError::Subsystem(_))));
    // Without its entrance.
    let mut subsystem = subsystem::Subsystem::new(shared()).unwrap();
    let slots = over_fabrics().doorbell_slots();
    let doorbells = std::sync::Arc::new(memory::DoorbellPages::new(slots).unwrap());
    let made = Controller::new(over_fabrics(), doorbells, &mut subsystem);
    assert!(matches!(made, Err(ConfigError::Subsystem(_))));
}

/// CNS 12h or 13h: identifiers of controllers.
fn listed(world: &mut World, cns: u32, nsid: u32) -> Vec<u16> {
    let list = world.at(1).identify(cns, nsid, 0).unwrap();
    let count = usize::from(u16_at(&list, 0));
    (1..=count).map(|at| u16_at(&list, 2 * at)).collect()
}

#[test]
fn namespaces_are_attached_to_the_entrance() {
    let mut pools = shared();
    pools.pools = vec![pool(1, MIB)];
    pools.namespaces.pop();
    let mut world = associations(2, pools);
    let ids = [0, 1, 2].map(|host| id_of(&mut world, host));
    assert_eq!(listed(&mut world, 0x13, 0), ids);
    assert_eq!(listed(&mut world, 0x12, 1), ids);
    let nsid = world.create(1, Fields::shared(64)).unwrap();
    assert_eq!(listed(&mut world, 0x12, nsid), [0; 0]);
    // A dynamic controller has what its entrance has, and no other namespace.
    for dynamic in [ids[1], ids[2]] {
        assert_eq!(world.attach(1, nsid, &[dynamic]), LIST_INVALID);
        assert_eq!(world.attach(1, nsid, &[ids[0], dynamic]), LIST_INVALID);
    }
    assert_eq!(world.listed(1, 0x02), [1]);
    assert_eq!(world.attach(1, nsid, &[ids[0]]), OK);
    for host in 0..3 {
        assert_eq!(world.listed(host, 0x02), [1, nsid], "{host}");
    }
    assert_eq!(listed(&mut world, 0x12, nsid), ids);
    assert_eq!(world.attach(2, nsid, &[ids[0]]), ALREADY_ATTACHED);
    assert_eq!(world.detach(1, nsid, &[ids[1]]), LIST_INVALID);
    assert_eq!(world.detach(1, nsid, &[ids[0]]), OK);
    for host in 0..3 {
        assert_eq!(world.listed(host, 0x02), [1], "{host}");
    }
}

#[test]
fn hosts_learn_of_a_change_of_what_the_entrance_has() {
    let mut world = associations(2, shared());
    for host in [1, 2] {
        // Attached Namespace Attribute Notices, and a request for the event.
        assert_eq!(code(&world.at(host).set_feature(0x0b, 1 << 8)), OK);
        world.at(host).async_event();
    }
    // To blocks of 4096 bytes.
    assert_eq!(world.at(2).identify(0x00, 1, 0).unwrap()[26] & 0xf, 0);
    let format = Sqe {
        opcode: FORMAT,
        nsid: 1,
        cdw10: 1,
        ..Sqe::default()
    };
    assert_eq!(world.admin(1, format).0, OK);
    world.turn();
    let event = world.at(2).reap().expect("it is held");
    assert_eq!(
        (code(&event), event.dw0),
        (OK, 0x0004_0002),
        "notice, 00h, log 04h"
    );
    assert_eq!(u32_at(&world.at(2).log(0x04, 0, 4).unwrap(), 0), 1);
    for host in [1, 2] {
        assert_eq!(world.at(host).identify(0x00, 1, 0).unwrap()[26] & 0xf, 1);
    }
    // The controller that asked is not notified.
    assert!(world.at(1).reap().is_none());
}

/// Runs the I/O command with this number on queue 1 of a host to its end.
fn io(world: &mut World, host: usize, number: u32, sqe: Sqe, data: &[u8]) -> u16 {
    let rig = world.at(host);
    rig.host.write(rig.data_page(), data);
    let (cid, prp1) = (number as u16, rig.data_page().0);
    rig.submit_io(1, number, Sqe { cid, prp1, ..sqe });
    for _ in 0..16 {
        world.turn();
        if let Some(cqe) = world.at(host).io_cqe(1, number) {
            return code(&cqe);
        }
    }
    panic!("I/O command {:#x} was not answered", sqe.opcode);
}

#[test]
fn reservations_are_between_hosts_however_they_come() {
    let mut configured = config();
    configured.name = "configured".to_owned();
    let all = [config(), over_fabrics(), over_fabrics(), configured];
    let mut world = World::with(all, shared(), MIB);
    // The first host has two paths: over a network, and as a PCI function.
    let (first, second, also_first) = (1, 2, 3);
    world.at(first).controller.connect([1; 16], 0);
    world.at(second).controller.connect([2; 16], 0);
    let rig = world.at(also_first);
    rig.host.write(rig.data_page(), &[1; 16]);
    let set = Sqe {
        cdw10: FID_HOST_IDENTIFIER,
        cdw11: 1,
        ..rig.with_data(SET_FEATURES)
    };
    assert_eq!(world.admin(also_first, set).0, OK);
    for host in [first, second, also_first] {
        world.at(host).create_pair(1, 64);
    }
    let command = |opcode, cdw10| Sqe {
        opcode,
        nsid: 1,
        cdw10,
        ..Sqe::default()
    };
    let (register, acquire) = (command(0x0d, 0), command(0x11, 1 << 8));
    let (write, conflict) = (command(0x01, 0), 0x083);
    let mut key = [0; 16];
    key[8] = 7;
    assert_eq!(io(&mut world, first, 0, register, &key), OK);
    assert_eq!(io(&mut world, second, 0, register, &key), OK);
    assert_eq!(
        io(&mut world, first, 1, acquire, &[7, 0, 0, 0, 0, 0, 0, 0]),
        OK
    );
    assert_eq!(io(&mut world, second, 1, write, &[0; 512]), conflict);
    assert_eq!(io(&mut world, also_first, 0, write, &[0; 512]), OK);
    assert_eq!(io(&mut world, first, 2, write, &[0; 512]), OK);
    // Reservation Report with extended data: a header, and 64 bytes for each path.
    let report = Sqe {
        cdw11: 1,
        ..command(0x0e, 1023)
    };
    assert_eq!(io(&mut world, second, 2, report, &[]), OK);
    let rig = world.at(second);
    let data = rig.host.read(rig.data_page(), 256);
    assert_eq!((data[4], u16_at(&data, 5)), (1, 3), "RTYPE, REGSTRNT");
    let paths = [64, 128, 192].map(|at| (u16_at(&data, at), data[at + 2], data[at + 16]));
    let ids = [first, second, also_first].map(|host| id_of(&mut world, host));
    assert_eq!(paths, [(ids[2], 1, 1), (ids[0], 1, 1), (ids[1], 0, 2)]);
}

#[test]
fn a_mark_of_one_host_is_read_by_another() {
    let mut world = associations(2, shared());
    for host in [1, 2] {
        world.at(host).create_pair(1, 64);
    }
    let (write_uncorrectable, read) = (0x04, 0x02);
    let command = |opcode, slba| Sqe {
        opcode,
        nsid: 1,
        cdw10: slba,
        ..Sqe::default()
    };
    assert_eq!(
        io(&mut world, 1, 0, command(write_uncorrectable, 5), &[]),
        OK
    );
    let unrecovered_read_error = 0x281;
    for (host, next) in [(1, 1), (2, 0)] {
        let status = io(&mut world, host, next, command(read, 5), &[]);
        assert_eq!(status, unrecovered_read_error);
        assert_eq!(io(&mut world, host, next + 1, command(read, 6), &[]), OK);
    }
}

#[test]
fn linux_connects_as_it_was_recorded() {
    // CC, and what Linux reads and writes before and after it; `nvme connect` of 6.12 and 7.3.
    let mut rig = connected(KATO);
    assert_eq!(
        rig.read64(CAP) >> 37 & 1 << 6,
        1 << 6,
        "so it selects all command sets"
    );
    rig.write32(CC, 0x0046_0060);
    rig.turns(2);
    assert_eq!(rig.csts(), 0);
    rig.set_admin_queues(32);
    rig.write32(CC, 0x0046_0061);
    rig.turns(2);
    assert_eq!((rig.csts(), rig.read32(VS)), (RDY, 0x0002_0100));
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(u16_at(&id, 78), rig.controller.id().0);
    assert!(rig.log(0x05, 0, 4096).is_ok());
    // Two queues for two CPUs, then the events.
    assert_eq!(rig.set_feature(0x07, 0x0001_0001).dw0, 0x0001_0001);
    for qid in [1, 2] {
        rig.create_pair(qid, 64);
    }
    assert_eq!(code(&rig.set_feature(0x0b, 0x900)), OK);
    rig.async_event();
    assert!(rig.identify(0x06, 0, 0).is_ok());
    let active = rig.identify(0x02, 0, 0).unwrap();
    assert_eq!([0, 4, 8].map(|at| u32_at(&active, at)), [1, 3, 0]);
    for cns in [0x03, 0x08, 0x00, 0x05] {
        assert!(rig.identify(cns, 1, 0).is_ok(), "CNS {cns:#x}");
    }
    let read = rig.read_sqe(1, 8);
    rig.submit_io(2, 0, read);
    rig.turns(4);
    assert!(rig.io_cqe(2, 0).is_some());
    // `nvme disconnect`.
    rig.write32(CC, 0x0046_4061);
    rig.turns(8);
    assert_eq!(rig.csts() & SHST, SHST_COMPLETE);
    assert_eq!(rig.lanes.live(), 0);
}
