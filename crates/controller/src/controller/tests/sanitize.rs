//! Sanitize (Base 2.1, 5.1.22, 5.1.12.1.33 and 8.1.24).

use nvme_spec::Sqe;
use port::testing::{Manner, Seen, namespace};
use port::{Cause, ChannelId};
use subsystem::{SanitizeOutcome, Subsystem, SubsystemConfig};

use super::rig::{INVALID_FIELD, OK, Rig, code, u16_at, u32_at};
use super::world::{
    FORMAT, Fields, NS_ATTACHMENT, NS_MANAGEMENT, SANITIZE, SANITIZE_FAILED, SANITIZE_IN_PROGRESS,
    World, pool,
};

const MIB: u64 = 1 << 20;
// SANACT (Base 2.1, figure 372).
const EXIT_FAILURE_MODE: u32 = 1;
const BLOCK_ERASE: u32 = 2;
const OVERWRITE: u32 = 3;
const CRYPTO_ERASE: u32 = 4;
const AUSE: u32 = 1 << 3;
const OIPBP: u32 = 1 << 8;
const NDAS: u32 = 1 << 9;
const EMVS: u32 = 1 << 10;
// SOS (Base 2.1, figure 291).
const NEVER: u16 = 0;
const SANITIZED: u16 = 1;
const SANITIZING: u16 = 2;
const FAILED: u16 = 3;
const GDE: u16 = 1 << 8;

fn sqe(cdw10: u32) -> Sqe {
    Sqe {
        opcode: SANITIZE,
        cdw10,
        cdw11: 0x1122_3344,
        ..Sqe::default()
    }
}

/// SPROG, SSTAT, SCDW10.
fn log(rig: &mut Rig) -> (u16, u16, u32) {
    let log = rig.log(0x81, 0, 512).unwrap();
    for at in (8..36).step_by(4) {
        assert_eq!(u32_at(&log, at), u32::MAX, "no estimate at {at}");
    }
    assert!(
        log[36..].iter().all(|byte| *byte == 0),
        "no SSI, as VERS is 0"
    );
    (u16_at(&log, 0), u16_at(&log, 2), u32_at(&log, 4))
}

/// Runs a sanitize operation to its end; what the first medium holds then.
fn sanitized(cdw10: u32) -> (Rig, Vec<u8>) {
    let mut rig = Rig::enabled();
    for medium in 0..2 {
        rig.medium(medium).bytes.fill(0xaa);
    }
    assert_eq!(rig.status(sqe(cdw10)), OK);
    rig.turns(200);
    let bytes = rig.medium(0).bytes.clone();
    (rig, bytes)
}

#[test]
fn nothing_was_ever_sanitized() {
    let mut rig = Rig::enabled();
    assert_eq!(log(&mut rig), (0xffff, NEVER, 0));
}

#[test]
fn a_block_erase_clears_everything() {
    let (mut rig, bytes) = sanitized(BLOCK_ERASE);
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert!(rig.medium(1).bytes.iter().all(|byte| *byte == 0));
    assert_eq!(log(&mut rig), (0xffff, SANITIZED | GDE, BLOCK_ERASE));
    // Space is given back, unless No-Deallocate After Sanitize asks for it to be kept.
    let deallocates = |rig: &mut Rig| {
        let mut seen = rig.medium(0).seen.iter();
        seen.find_map(|seen| match seen {
            Seen::WriteZeroes(_, _, deallocate, _) => Some(*deallocate),
            _ => None,
        })
    };
    assert_eq!(deallocates(&mut rig), Some(true));
    let (mut rig, bytes) = sanitized(BLOCK_ERASE | NDAS);
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert_eq!(deallocates(&mut rig), Some(false));
    assert_eq!(log(&mut rig), (0xffff, SANITIZED | GDE, BLOCK_ERASE | NDAS));
}

#[test]
fn an_overwrite_leaves_its_pattern() {
    let pattern = [0x44, 0x33, 0x22, 0x11].repeat(2048 * 128);
    // Two passes, with the pattern inverted in between: OPC is 2.
    let cdw10 = OVERWRITE | 2 << 4 | OIPBP | NDAS;
    let (mut rig, bytes) = sanitized(cdw10);
    assert_eq!(bytes, pattern);
    assert_eq!(log(&mut rig), (0xffff, SANITIZED | GDE | 2 << 3, cdw10));
    let writes = rig
        .medium(0)
        .seen
        .iter()
        .filter(|s| matches!(s, Seen::Write(..)))
        .count();
    assert_eq!(writes, 8, "two passes of four slices of 256 KiB");
    // 0 passes are 16; without No-Deallocate the space is given back at the end.
    let (mut rig, bytes) = sanitized(OVERWRITE);
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert_eq!(
        log(&mut rig),
        (0xffff, SANITIZED | GDE | 16 << 3, OVERWRITE)
    );
}

#[test]
fn actions_that_are_not_there() {
    let mut rig = Rig::enabled();
    for cdw10 in [
        0,
        CRYPTO_ERASE,
        5,
        6,
        7,
        BLOCK_ERASE | EMVS,
        OVERWRITE | EMVS,
    ] {
        assert_eq!(rig.status(sqe(cdw10)), INVALID_FIELD, "{cdw10:#x}");
    }
    assert_eq!(
        rig.status(sqe(EXIT_FAILURE_MODE)),
        OK,
        "no error, nothing to exit"
    );
    // With an action that starts nothing, the other bits are ignored.
    assert_eq!(rig.status(sqe(EXIT_FAILURE_MODE | AUSE | EMVS)), OK);
    assert_eq!(log(&mut rig), (0xffff, NEVER, 0));
}

/// A controller that was asked for a block erase, on media that hang.
fn in_progress() -> Rig {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 16);
    for medium in 0..2 {
        rig.medium(medium).manner = Manner::Hanging;
    }
    assert_eq!(rig.status(sqe(BLOCK_ERASE)), OK, "it completes at once");
    rig.turns(4);
    rig
}

fn finish(rig: &mut Rig) {
    for medium in 0..2 {
        rig.medium(medium).manner = Manner::Asynchronous;
    }
    rig.turns(40);
}

#[test]
fn while_it_goes_on_only_some_admin_commands_are_served() {
    let mut rig = in_progress();
    assert_eq!(log(&mut rig).1 & 0b111, SANITIZING);
    // Get Log Page: Error Information, SMART, Changed Namespaces, Reservation Notification,
    // Sanitize Status.
    for lid in 0..256 {
        let expected = match lid {
            0x01 | 0x02 | 0x04 | 0x80 | 0x81 => None,
            _ => Some(SANITIZE_IN_PROGRESS),
        };
        assert_eq!(rig.log(lid, 0, 4).err(), expected, "{lid:#x}");
    }
    for opcode in [FORMAT, SANITIZE, 0x10, 0x11, 0x7c, 0x86] {
        let sqe = rig.with_data(opcode);
        let sqe = Sqe { nsid: 1, ..sqe };
        assert_eq!(rig.status(sqe), SANITIZE_IN_PROGRESS, "{opcode:#x}");
    }
    assert!(rig.identify(0x01, 0, 0).is_ok());
    assert_eq!(code(&rig.get_feature(0x07, 0, 0)), OK);
    assert_eq!(code(&rig.set_feature(0x0b, 0)), OK);
    rig.create_pair(2, 16);
    assert_eq!((rig.delete_sq(2), rig.delete_cq(2)), (OK, OK));
    finish(&mut rig);
    assert_eq!(log(&mut rig), (0xffff, SANITIZED | GDE, BLOCK_ERASE));
    assert!(rig.log(0x05, 0, 4).is_ok());
}

#[test]
fn while_it_goes_on_io_commands_end_with_sanitize_in_progress() {
    let mut rig = in_progress();
    // Write, Read, Compare, Write Zeroes, Dataset Management, Verify, of both namespaces.
    let mut index = 0;
    for nsid in [1, 3] {
        for opcode in [0x01, 0x02, 0x05, 0x08, 0x09, 0x0c] {
            let sqe = Sqe {
                opcode,
                nsid,
                ..rig.read_sqe(index as u16, 1)
            };
            rig.submit_io(1, index, sqe);
            rig.turns(2);
            let cqe = rig.io_cqe(1, index).unwrap();
            assert_eq!(code(&cqe), SANITIZE_IN_PROGRESS, "{opcode:#x}");
            assert!(!cqe.status.dnr());
            index += 1;
        }
    }
    finish(&mut rig);
    let sqe = rig.read_sqe(99, 1);
    rig.submit_io(1, index, sqe);
    rig.turns(4);
    assert_eq!(code(&rig.io_cqe(1, index).unwrap()), OK);
}

#[test]
fn progress_rises_and_a_reset_does_not_stop_it() {
    let mut rig = in_progress();
    let (before, _, _) = log(&mut rig);
    assert!(before < 0xffff);
    rig.disable();
    rig.enable();
    rig.create_pair(1, 16);
    assert_eq!(log(&mut rig).1 & 0b111, SANITIZING);
    rig.medium(0).manner = Manner::Asynchronous;
    rig.turns(8);
    let (after, sstat, _) = log(&mut rig);
    assert!(before < after && after < 0xffff, "{before} {after}");
    assert_eq!(sstat & 0b111, SANITIZING, "the second medium hangs");
    finish(&mut rig);
    assert_eq!(log(&mut rig), (0xffff, SANITIZED | GDE, BLOCK_ERASE));
}

#[test]
fn its_end_is_told_to_the_controller_that_was_asked_for_it() {
    let config = SubsystemConfig::with_namespaces(8, [namespace(1, ChannelId(0), 64)]);
    let mut world = World::new(2, config, MIB);
    let cids = [0, 1].map(|host| world.at(host).async_event());
    assert_eq!(world.admin(1, sqe(BLOCK_ERASE)).0, OK);
    for _ in 0..8 {
        world.turn();
    }
    let told = world.at(1).reap().unwrap();
    // I/O command specific: Sanitize Operation Completed, log page 81h.
    assert_eq!((told.cid, told.dw0), (cids[1], 0x0081_0106));
    assert_eq!(world.at(0).peek(), None);
    // Until the page is read the event is sent once; a new operation clears it.
    world.at(1).async_event();
    assert_eq!(world.admin(1, sqe(BLOCK_ERASE)).0, OK);
    for _ in 0..8 {
        world.turn();
    }
    assert_eq!(world.at(1).reap().unwrap().dw0, 0x0081_0106);
    assert_eq!(world.at(0).peek(), None);
}

#[test]
fn erased_until_somebody_writes() {
    let (mut rig, _) = sanitized(BLOCK_ERASE);
    rig.create_pair(1, 16);
    let read = rig.read_sqe(1, 1);
    rig.submit_io(1, 0, read);
    rig.turns(4);
    assert_eq!(log(&mut rig).1, SANITIZED | GDE, "a read changes nothing");
    rig.disable();
    rig.enable();
    rig.create_pair(1, 16);
    assert_eq!(log(&mut rig).1, SANITIZED | GDE, "nor does a reset");
    rig.submit_io(1, 0, Sqe { opcode: 1, ..read });
    rig.turns(4);
    assert_eq!(log(&mut rig).1, SANITIZED);
    assert!(!rig.subsystem.record().sanitize.data_erased);
}

fn failed(cdw10: u32) -> Rig {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 16);
    rig.medium(1).fault = Some(Cause::WriteFailed);
    assert_eq!(rig.status(sqe(cdw10)), OK);
    rig.turns(20);
    rig.medium(1).fault = None;
    assert_eq!(log(&mut rig), (0xffff, FAILED, cdw10));
    rig
}

fn read_status(rig: &mut Rig, index: u32) -> u16 {
    let read = rig.read_sqe(index as u16, 1);
    rig.submit_io(1, index, read);
    rig.turns(4);
    code(&rig.io_cqe(1, index).unwrap())
}

#[test]
fn a_failure_in_restricted_mode_is_left_only_by_another_one() {
    let mut rig = failed(BLOCK_ERASE);
    assert_eq!(read_status(&mut rig, 0), SANITIZE_FAILED);
    assert_eq!(rig.log(0x05, 0, 4), Err(SANITIZE_FAILED));
    assert!(rig.identify(0x01, 0, 0).is_ok());
    assert_eq!(rig.status(sqe(EXIT_FAILURE_MODE)), SANITIZE_FAILED);
    assert_eq!(rig.status(sqe(BLOCK_ERASE | AUSE)), SANITIZE_FAILED);
    assert_eq!(rig.status(sqe(CRYPTO_ERASE)), INVALID_FIELD);
    assert_eq!(log(&mut rig).1, FAILED);
    assert_eq!(rig.status(sqe(OVERWRITE | 1 << 4)), OK);
    rig.turns(40);
    assert_eq!(log(&mut rig).1, SANITIZED | GDE | 1 << 3);
    assert_eq!(read_status(&mut rig, 1), OK);
}

#[test]
fn a_failure_in_unrestricted_mode_can_be_left() {
    let mut rig = failed(BLOCK_ERASE | AUSE);
    assert_eq!(read_status(&mut rig, 0), SANITIZE_FAILED);
    assert_eq!(rig.status(sqe(EXIT_FAILURE_MODE)), OK);
    assert_eq!(read_status(&mut rig, 1), OK);
    assert_eq!(log(&mut rig).1, FAILED, "it still is what happened last");
    let mut rig = failed(BLOCK_ERASE | AUSE);
    assert_eq!(rig.status(sqe(BLOCK_ERASE | AUSE)), OK);
    rig.turns(20);
    assert_eq!(log(&mut rig).1, SANITIZED | GDE);
}

#[test]
fn it_reaches_unallocated_space_and_nobody_elses_bytes() {
    let mut own = namespace(1, ChannelId(1), 64);
    own.start = 32_768;
    let config = SubsystemConfig {
        pools: vec![pool(0, 2 * MIB)],
        ..SubsystemConfig::with_namespaces(8, [own])
    };
    let mut world = World::new(1, config, 2 * MIB);
    assert_eq!(world.create(0, Fields::new(100)), Ok(2));
    world.medium(0).bytes.fill(0x55);
    assert_eq!(world.admin(0, sqe(BLOCK_ERASE)).0, OK);
    for _ in 0..40 {
        world.turn();
    }
    assert_eq!(log(world.at(0)).1, SANITIZED | GDE);
    assert!(
        world.medium(0).bytes.iter().all(|byte| *byte == 0),
        "the pool, all of it"
    );
    let other = world.medium(1).bytes.clone();
    assert!(other[32_768..65_536].iter().all(|byte| *byte == 0));
    // Bytes beside it are another subsystem's.
    assert!(
        other[..32_768]
            .iter()
            .chain(&other[65_536..])
            .all(|byte| *byte == 0xaa)
    );
    for opcode in [NS_MANAGEMENT, NS_ATTACHMENT] {
        let sqe = Sqe {
            nsid: 2,
            cdw10: 1,
            ..world.at(0).with_data(opcode)
        };
        assert_ne!(world.admin(0, sqe).0, SANITIZE_IN_PROGRESS);
    }
}

#[test]
fn a_restart_begins_it_again_and_later_ones_do_not() {
    let keeping = || SubsystemConfig {
        keeping: true,
        ..SubsystemConfig::with_namespaces(8, [namespace(1, ChannelId(0), 64)])
    };
    let mut world = World::new(1, keeping(), MIB);
    let keep = |world: &mut World| {
        if let Some((version, record)) = world.subsystem().take_record() {
            world.subsystem().kept(version);
            return Some(record);
        }
        None
    };
    keep(&mut world);
    world.at(0).submit(sqe(BLOCK_ERASE));
    for _ in 0..4 {
        world.turn();
    }
    assert_eq!(world.at(0).peek(), None, "the state is not kept yet");
    assert_eq!(world.medium(0).bytes[0], 0xaa, "and nothing is erased");
    let record = keep(&mut world).unwrap();
    assert_eq!(record.sanitize.outcome, SanitizeOutcome::InProgress);
    world.turn();
    world.turn();
    assert_eq!(code(&world.at(0).reap().unwrap()), OK);
    // The program ends here, and starts again with what was kept.
    let config = SubsystemConfig {
        sanitize: record.sanitize,
        ..keeping()
    };
    let mut world = World::new(1, config, MIB);
    assert_eq!(log(world.at(0)).1 & 0b111, SANITIZING);
    assert_eq!(world.at(0).log(0x05, 0, 4), Err(SANITIZE_IN_PROGRESS));
    let mut record = None;
    for _ in 0..20 {
        world.turn();
        assert!(
            log(world.at(0)).1 & 0b111 != SANITIZED || record.is_some(),
            "kept first"
        );
        record = keep(&mut world).or(record);
    }
    assert_eq!(world.medium(0).bytes[0], 0);
    assert_eq!(log(world.at(0)), (0xffff, SANITIZED | GDE, BLOCK_ERASE));
    let sanitize = record.unwrap().sanitize;
    assert_eq!(sanitize.outcome, SanitizeOutcome::Succeeded);
    // Data written from now on stays, whatever happens.
    let config = SubsystemConfig {
        sanitize,
        ..keeping()
    };
    let mut world = World::new(1, config, MIB);
    for _ in 0..20 {
        world.turn();
    }
    assert_eq!(world.medium(0).bytes[0], 0xaa);
    assert_eq!(log(world.at(0)), (0xffff, SANITIZED | GDE, BLOCK_ERASE));
}

#[test]
fn a_state_that_cannot_be_kept_is_none() {
    let config = SubsystemConfig {
        keeping: true,
        ..SubsystemConfig::with_namespaces(8, [namespace(1, ChannelId(0), 64)])
    };
    let mut world = World::new(1, config, MIB);
    let fail = |subsystem: &mut Subsystem| {
        if subsystem.take_record().is_some() {
            subsystem.keep_failed();
        }
    };
    world.at(0).submit(sqe(BLOCK_ERASE));
    for _ in 0..6 {
        world.turn();
        fail(world.subsystem());
    }
    // Internal Error; nothing was started, and the log page is what it was (Base 2.1, 5.1.22).
    assert_eq!(code(&world.at(0).reap().unwrap()), 0x006);
    assert_eq!(log(world.at(0)), (0xffff, NEVER, 0));
    assert_eq!(world.medium(0).bytes[0], 0xaa);
}
