//! Format NVM (Base 2.1, 5.1.10; NVM 1.1, 4.1.3).

use nvme_spec::Sqe;
use port::testing::{Manner, namespace};
use port::{Cause, ChannelId};
use subsystem::{Allocated, ControllerId, ControllerSet, SubsystemConfig};

use super::rig::{INTERNAL, INVALID_FIELD, OK, Rig, code, config, namespaces, u64_at};
use super::world::{FORMAT, FORMAT_IN_PROGRESS, Fields, INVALID_FORMAT, SANITIZE, World, pool};

const MIB: u64 = 1 << 20;
const ALL: u32 = 0xffff_ffff;
/// Reservation-like use of SES: User Data Erase, Cryptographic Erase (bits 11:9).
const USER_DATA_ERASE: u32 = 1 << 9;
const CRYPTOGRAPHIC_ERASE: u32 = 2 << 9;

/// Two hosts: namespaces 1 and 3 are both hosts', 2 is the second's.
fn world() -> World {
    let of = |nsid, channel, start: u64, ids: &[u16]| {
        let mut namespace = namespace(nsid, ChannelId(channel), 2048);
        namespace.start = start;
        let mut new = Allocated::everywhere(namespace);
        new.shared = true;
        new.attached = ids
            .iter()
            .map(|id| ControllerId(*id))
            .collect::<ControllerSet>();
        new
    };
    let namespaces = vec![
        of(1, 0, 0, &[1, 2]),
        of(2, 0, MIB, &[2]),
        of(3, 1, 0, &[1, 2]),
    ];
    let config = SubsystemConfig {
        namespaces,
        ..SubsystemConfig::with_namespaces(8, [])
    };
    World::new(2, config, 4 * MIB)
}

fn block_size(world: &mut World, nsid: u32) -> (u8, u64) {
    let ns = world.at(1).identify(0x00, nsid, 0).unwrap();
    (ns[26], u64_at(&ns, 0))
}

#[test]
fn a_format_changes_the_size_of_blocks_and_erases() {
    let mut world = world();
    assert_eq!(world.format(0, 1, 1), OK);
    assert_eq!(block_size(&mut world, 1), (1, 256));
    let bytes = &world.medium(0).bytes;
    assert!(bytes[..MIB as usize].iter().all(|byte| *byte == 0));
    assert!(
        bytes[MIB as usize..].iter().all(|byte| *byte == 0xaa),
        "no other"
    );
    assert_eq!(block_size(&mut world, 3), (0, 2048));
    // It survives, with its size.
    let record = world.subsystem().record();
    assert_eq!(
        (record.namespaces[0].lba_size, record.namespaces[0].blocks),
        (4096, 256)
    );
    assert_eq!(world.format(1, 1, 0), OK);
    assert_eq!(block_size(&mut world, 1), (0, 2048));
}

#[test]
fn user_data_erase_is_the_same_and_cryptographic_erase_is_not_there() {
    let mut world = world();
    assert_eq!(world.format(0, 1, CRYPTOGRAPHIC_ERASE), INVALID_FIELD);
    assert_eq!(world.medium(0).bytes[0], 0xaa);
    for ses in 3..8 {
        assert_eq!(world.format(0, 1, ses << 9), INVALID_FIELD, "SES {ses}");
    }
    assert_eq!(world.format(0, 1, USER_DATA_ERASE), OK);
    assert_eq!(world.medium(0).bytes[0], 0);
    assert_eq!(block_size(&mut world, 1), (0, 2048));
}

#[test]
fn formats_that_cannot_be() {
    let mut world = world();
    for lbafl in 2..16 {
        assert_eq!(world.format(0, 1, lbafl), INVALID_FORMAT, "LBAFL {lbafl}");
    }
    // MSET, PI, PIL.
    for cdw10 in [1 << 4, 1 << 5, 7 << 5, 1 << 8] {
        assert_eq!(world.format(0, 1, cdw10), INVALID_FORMAT, "{cdw10:#x}");
    }
    assert_eq!(world.medium(0).bytes[0], 0xaa, "nothing was erased");
    // LBAFU counts only where the host has set LBAFEE.
    assert_eq!(world.format(0, 1, 1 << 12 | 1), OK);
    assert_eq!(block_size(&mut world, 1), (1, 256));
    let rig = world.at(0);
    let mut behavior = vec![0; 512];
    behavior[2] = 1;
    rig.host.write(rig.data_page(), &behavior);
    let sqe = Sqe {
        cdw10: 0x16,
        ..rig.with_data(0x09)
    };
    assert_eq!(world.admin(0, sqe).0, OK, "Host Behavior Support");
    assert_eq!(world.format(0, 1, 1 << 12), INVALID_FORMAT);
    assert_eq!(world.format(0, 1, 0), OK);
}

#[test]
fn any_allocated_namespace_or_all_that_are_attached() {
    let mut world = world();
    // Figure 188: all other values are invalid fields.
    for nsid in [0, 4, 8, 9, ALL - 1] {
        assert_eq!(world.format(0, nsid, 0), INVALID_FIELD, "{nsid:#x}");
    }
    assert_eq!(world.format(0, 2, 1), OK, "allocated, attached to another");
    assert_eq!(block_size(&mut world, 2), (1, 256));
    world.medium(0).bytes.fill(0x55);
    assert_eq!(world.format(0, ALL, 1), OK);
    assert_eq!(block_size(&mut world, 1), (1, 256));
    assert_eq!(block_size(&mut world, 3), (1, 256));
    let bytes = &world.medium(0).bytes;
    assert_eq!(
        (bytes[0], bytes[MIB as usize]),
        (0, 0x55),
        "2 is not its own"
    );
}

#[test]
fn a_broadcast_with_nothing_attached_succeeds() {
    let mut rig = Rig::with_namespaces(config(), Vec::new());
    rig.enable();
    let sqe = Sqe {
        opcode: FORMAT,
        nsid: ALL,
        cdw10: USER_DATA_ERASE,
        ..Sqe::default()
    };
    assert_eq!(rig.status(sqe), OK);
}

#[test]
fn one_that_cannot_be_formatted_stops_a_broadcast() {
    let mut small = namespace(2, ChannelId(1), 7);
    small.start = 2 * MIB;
    let config = SubsystemConfig::with_namespaces(8, [namespace(1, ChannelId(0), 8), small]);
    let mut world = World::new(1, config, 4 * MIB);
    assert_eq!(
        world.format(0, ALL, 1),
        INVALID_FORMAT,
        "3584 bytes are no block"
    );
    assert_eq!(world.medium(0).bytes[0], 0xaa);
    assert_eq!(world.format(0, 2, 0), OK);
}

#[test]
fn others_are_told_of_it() {
    let mut world = world();
    for host in 0..2 {
        world.at(host).set_feature(0x0b, 1 << 8);
        world.at(host).async_event();
    }
    assert_eq!(world.format(0, 3, 1), OK);
    world.turn();
    assert_eq!(world.at(0).peek(), None);
    assert_eq!(world.at(1).reap().unwrap().dw0, 0x0004_0002);
    let changed = world.at(1).log(0x04, 0, 8).unwrap();
    assert_eq!(changed, [3, 0, 0, 0, 0, 0, 0, 0]);
}

/// A controller with namespaces 1 and 3, of which 1 hangs in a format.
fn formatting() -> (Rig, u16) {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 16);
    rig.medium(0).manner = Manner::Hanging;
    let cid = rig.submit(Sqe {
        opcode: FORMAT,
        nsid: 1,
        cdw10: 1,
        ..Sqe::default()
    });
    rig.turns(4);
    (rig, cid)
}

#[test]
fn while_it_goes_on_commands_to_the_namespace_end_with_format_in_progress() {
    let (mut rig, cid) = formatting();
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.submit_io(
        1,
        1,
        Sqe {
            nsid: 3,
            cid: 2,
            ..read
        },
    );
    rig.turns(2);
    assert_eq!(code(&rig.io_cqe(1, 0).unwrap()), FORMAT_IN_PROGRESS);
    assert!(!rig.io_cqe(1, 0).unwrap().status.dnr(), "later it will do");
    assert_eq!(code(&rig.io_cqe(1, 1).unwrap()), OK, "another namespace");
    // FPI: 100 percent are left, less the part that the medium was asked for.
    let ns = rig.identify(0x00, 1, 0).unwrap();
    assert_eq!(ns[32] & 0x80, 0x80);
    let (sanitize, format) = (SANITIZE, FORMAT);
    for (opcode, nsid, cdw10) in [(format, 1, 0), (format, ALL, 0), (sanitize, 0, 2)] {
        let sqe = Sqe {
            opcode,
            nsid,
            cdw10,
            ..Sqe::default()
        };
        assert_eq!(rig.status(sqe), FORMAT_IN_PROGRESS, "{opcode:#x}");
    }
    rig.medium(0).manner = Manner::Asynchronous;
    rig.turns(8);
    let cqe = rig.reap().unwrap();
    assert_eq!((cqe.cid, code(&cqe)), (cid, OK));
    let ns = rig.identify(0x00, 1, 0).unwrap();
    assert_eq!((u64_at(&ns, 0), ns[32]), (256, 0x80));
    rig.submit_io(1, 2, Sqe { cid: 3, ..read });
    rig.turns(4);
    assert_eq!(code(&rig.io_cqe(1, 2).unwrap()), OK);
}

#[test]
fn it_waits_for_what_is_in_flight() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 16);
    rig.medium(0).manner = Manner::Hanging;
    let write = Sqe {
        opcode: 0x01,
        ..rig.read_sqe(7, 1)
    };
    rig.submit_io(1, 0, write);
    rig.turns(2);
    rig.submit(Sqe {
        opcode: FORMAT,
        nsid: 1,
        ..Sqe::default()
    });
    rig.turns(8);
    assert_eq!(
        rig.medium(0).seen.len(),
        1,
        "only the write has reached the medium"
    );
    assert_eq!(rig.peek(), None);
    rig.medium(0).manner = Manner::Asynchronous;
    rig.turns(12);
    assert_eq!(code(&rig.reap().unwrap()), OK);
    assert_eq!(code(&rig.io_cqe(1, 0).unwrap()), OK);
}

#[test]
fn a_reset_does_not_stop_it() {
    let (mut rig, _) = formatting();
    rig.disable();
    rig.medium(0).manner = Manner::Asynchronous;
    rig.turns(12);
    rig.enable();
    rig.turns(4);
    assert_eq!(rig.peek(), None, "nobody of this life asked");
    let ns = rig.identify(0x00, 1, 0).unwrap();
    assert_eq!(u64_at(&ns, 0), 256);
}

#[test]
fn a_medium_that_fails_leaves_the_format_as_it_was() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 16);
    rig.medium(0).fault = Some(Cause::WriteFailed);
    let sqe = Sqe {
        opcode: FORMAT,
        nsid: 1,
        cdw10: 1,
        ..Sqe::default()
    };
    assert_eq!(rig.status(sqe), INTERNAL);
    rig.medium(0).fault = None;
    let ns = rig.identify(0x00, 1, 0).unwrap();
    assert_eq!((ns[26], u64_at(&ns, 0)), (0, 2048));
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    assert_eq!(code(&rig.io_cqe(1, 0).unwrap()), OK, "and it can be used");
}

#[test]
fn created_and_formatted_namespaces_keep_their_bytes() {
    let config = SubsystemConfig {
        pools: vec![pool(0, 4 * MIB)],
        ..SubsystemConfig::with_namespaces(8, [])
    };
    let mut world = World::new(1, config, 4 * MIB);
    assert_eq!(world.create(0, Fields::new(1001)), Ok(1));
    assert_eq!(world.attach(0, 1, &[1]), OK);
    assert_eq!(world.format(0, 1, 1), OK);
    let ns = world.at(0).identify(0x00, 1, 0).unwrap();
    assert_eq!(u64_at(&ns, 0), 125, "1001 * 512 / 4096");
    assert_eq!(world.format(0, 1, 0), OK);
    let ns = world.at(0).identify(0x00, 1, 0).unwrap();
    assert_eq!(u64_at(&ns, 0), 1001);
    assert_eq!(namespaces().len(), 2);
}
