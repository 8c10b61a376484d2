//! QEMU's block driver `nvme://`, block/nvme.c: a driver in user space over VFIO.
//!
//! From the driver's public source: queues of 128 entries or what CAP allows; one interrupt for all
//! of them, MSI-X vector 0; the controller and one namespace are identified; Write Zeroes and
//! Dataset Management are used where ONCS has them; the write cache is on where VWC says that there
//! is one, and feature 06h is not asked for.

use super::super::rig::*;
use super::*;
use crate::controller::Interrupt;

fn open(rig: &mut Rig, nsid: u32) -> Pair {
    let cap = rig.read64(CAP);
    assert_eq!(cap >> 37 & 1, 1, "the NVM command set");
    assert_eq!(cap >> 48 & 0xf, 0, "4 KiB pages");
    rig.write32(CC, 0);
    rig.wait_ready(false);
    rig.set_admin_queues(64);
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert!(u32_at(&id, 516) >= nsid);
    let oncs = u16_at(&id, 520);
    assert_eq!(
        oncs >> 2 & 0b11,
        0b11,
        "Dataset Management and Write Zeroes"
    );
    let namespace = rig.identify(0x00, nsid, 0).unwrap();
    assert!(u64_at(&namespace, 0) > 0);
    let format = usize::from(namespace[26] & 0xf);
    let lba = u32_at(&namespace, 128 + 4 * format);
    assert_eq!(lba & 0xffff, 0, "metadata is not supported");
    assert!((9..=12).contains(&(lba >> 16 & 0xff)));
    Pair::create(rig, 1, 64, IEN | PC, PC)
}

#[test]
fn one_interrupt_is_for_everything() {
    let mut rig = Rig::new();
    let mut pair = open(&mut rig, 3);
    rig.turns(2);
    rig.interrupts.clear();
    // As deep as the queue: one entry stays empty.
    for slba in 0..63 {
        let read = io(&rig, READ, 3, slba, 1);
        pair.put(&rig, read);
    }
    pair.ring(&mut rig);
    rig.turns(6);
    assert!(rig.interrupts.iter().all(|i| *i == Interrupt::Vector(0)));
    assert!(!rig.interrupts.is_empty());
    assert_eq!(std::iter::from_fn(|| pair.take(&mut rig)).count(), 63);
    for slba in 0..100 {
        write_and_read(&mut rig, &mut pair, 3, slba);
    }
}

/// nvme_co_pwrite_zeroes and nvme_co_pdiscard.
#[test]
fn zeroes_and_discards() {
    let mut rig = Rig::new();
    let mut pair = open(&mut rig, 1);
    rig.medium(0).bytes.fill(0x77);
    let mut zeroes = io(&rig, WRITE_ZEROES, 1, 0, 128);
    zeroes.prp1 = 0;
    assert_eq!(pair.status(&mut rig, zeroes), OK);
    rig.host.write_u64(rig.data_page(), 128 << 32);
    rig.host.write_u64(Iova(rig.data_page().0 + 8), 128);
    let mut discard = io(&rig, DATASET_MANAGEMENT, 1, 0, 1);
    (discard.cdw10, discard.cdw11, discard.cdw12) = (0, 4, 0);
    assert_eq!(pair.status(&mut rig, discard), OK);
    let medium = &rig.medium(0).bytes;
    assert!(medium[..256 * 512].iter().all(|byte| *byte == 0));
    assert_eq!(medium[256 * 512], 0x77);
    // bdrv_flush: always, as there is a cache.
    let flush = Sqe {
        opcode: FLUSH,
        nsid: 1,
        ..Sqe::default()
    };
    assert_eq!(pair.status(&mut rig, flush), OK);
}
