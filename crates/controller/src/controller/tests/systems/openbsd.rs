//! OpenBSD, sys/dev/ic/nvme.c and sys/dev/pci/nvme_pci.c.
//!
//! From the driver's public source: it asks for no number of queues and makes one I/O pair of 128
//! entries at most, on vector 0 as the admin queue is; with the pin, its handler masks by INTMS and
//! unmasks by INTMC, and unmasks once when it has attached; every namespace up to NN is a SCSI
//! target; a shutdown deletes the queues, then sets SHN and polls SHST for four seconds.

use super::super::rig::*;
use super::*;
use crate::controller::Interrupt;

fn attach(rig: &mut Rig) -> Pair {
    assert_ne!(rig.read32(VS), u32::MAX);
    rig.write32(CC, 0);
    rig.wait_ready(false);
    rig.set_admin_queues(128);
    // First all of CC but EN, then EN.
    rig.write32(CC, CC_ENABLE & !1);
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert!(id[77] < 16, "MDTS is a power of two of pages");
    let most = rig.read64(CAP) as u16;
    let pair = Pair::create(rig, 1, 128.min(u32::from(most) + 1).min(64), IEN | PC, PC);
    rig.write32(INTMC, 1);
    pair
}

#[test]
fn one_vector_is_for_both_queues() {
    let mut rig = Rig::new();
    let mut pair = attach(&mut rig);
    rig.turns(2);
    rig.interrupts.clear();
    write_and_read(&mut rig, &mut pair, 1, 2047);
    assert_eq!(rig.interrupts, [Interrupt::Vector(0); 2]);
    assert!(rig.identify(0x00, 1, 0).is_ok());
    assert!(rig.interrupts.len() > 2 && rig.interrupts[2] == Interrupt::Vector(0));
}

/// scsi_probe: targets from 1 to NN; those without blocks are not there.
#[test]
fn targets_are_namespaces() {
    let mut rig = Rig::new();
    let mut pair = attach(&mut rig);
    let id = rig.identify(0x01, 0, 0).unwrap();
    let blocks: Vec<u64> = (1..=u32_at(&id, 516))
        .map(|nsid| u64_at(&rig.identify(0x00, nsid, 0).unwrap(), 0))
        .collect();
    assert_eq!(blocks[..4], [2048, 0, 2048, 0]);
    assert!(blocks[4..].iter().all(|blocks| *blocks == 0));
    // The last block of READ CAPACITY can be read, the one behind it cannot.
    let last = io(&rig, READ, 3, 2047, 1);
    assert_eq!(pair.status(&mut rig, last), OK);
    let behind = io(&rig, READ, 3, 2048, 1);
    assert_eq!(pair.status(&mut rig, behind), LBA_OUT_OF_RANGE);
    // SYNCHRONIZE CACHE.
    let flush = Sqe {
        opcode: FLUSH,
        nsid: 3,
        ..Sqe::default()
    };
    assert_eq!(pair.status(&mut rig, flush), OK);
}

#[test]
fn the_pin_is_masked_while_its_handler_runs() {
    let mut config = config();
    config.intx = true;
    let mut rig = Rig::with(config);
    let mut pair = attach(&mut rig);
    rig.wait(SECOND);
    for slba in 0..200 {
        let read = io(&rig, READ, 1, slba, 1);
        pair.put(&rig, read);
        pair.ring(&mut rig);
        rig.interrupts.clear();
        rig.turns(4);
        assert_eq!(rig.interrupts.last(), Some(&Interrupt::Pin(true)));
        rig.write32(INTMS, 1);
        assert!(pair.take(&mut rig).is_some());
        rig.write32(INTMC, 1);
        rig.turns(2);
        assert_eq!(rig.interrupts.last(), Some(&Interrupt::Pin(false)));
    }
}

#[test]
fn shuts_down_when_its_queues_are_gone() {
    let mut rig = Rig::new();
    let mut pair = attach(&mut rig);
    write_and_read(&mut rig, &mut pair, 1, 3);
    rig.write32(INTMC, 0);
    assert_eq!(rig.delete_sq(1), OK);
    assert_eq!(rig.delete_cq(1), OK);
    rig.shut_down();
    // It waits four seconds for that, and the medium has been flushed.
    assert_eq!(rig.medium(0).seen.last(), Some(&port::testing::Seen::Flush));
}
