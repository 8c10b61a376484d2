//! UEFI firmware: EDK II, MdeModulePkg/Bus/Pci/NvmExpressDxe.
//!
//! From the driver's public source: admin queues of two entries; two I/O pairs, one of two entries
//! for what waits, one of up to 256 for what does not; interrupts never enabled, every completion
//! polled; older versions do not ask for a number of queues; namespaces up to NN are taken where
//! NCAP is not 0. Before the system starts, SHN is set and SHST polled.

use super::super::rig::*;
use super::*;

fn start(rig: &mut Rig) {
    rig.clear_enable();
    rig.set_admin_queues(2);
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
}

fn pairs(rig: &mut Rig) -> [Pair; 2] {
    let most = (rig.read64(CAP) as u32 & 0xffff) + 1;
    let waits = Pair::create(rig, 1, 2, PC, PC);
    let other = Pair::create(rig, 2, most.min(64), PC, PC);
    rig.turns(2);
    rig.interrupts.clear();
    [waits, other]
}

#[test]
fn boots_a_system_through_a_queue_of_two_entries() {
    let mut rig = Rig::new();
    start(&mut rig);
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(
        u16_at(&id, 256) & 1,
        0,
        "no security protocols to ask about"
    );
    let [mut waits, mut other] = pairs(&mut rig);
    let nn = u32_at(&id, 516);
    let active: Vec<u32> = (1..=nn)
        .filter(|nsid| u64_at(&rig.identify(0x00, *nsid, 0).unwrap(), 8) > 0)
        .collect();
    assert_eq!(active, [1, 3], "NCAP");
    rig.interrupts.clear();
    for slba in 0..50 {
        write_and_read(&mut rig, &mut waits, 1, slba);
    }
    // The other pair takes many at once, and is looked at by a timer.
    for slba in 0..40 {
        let read = io(&rig, READ, 3, slba, 1);
        other.put(&rig, read);
    }
    other.ring(&mut rig);
    rig.turns(8);
    let done = std::iter::from_fn(|| other.take(&mut rig)).count();
    assert_eq!(done, 40);
    // A read of a file: 64 blocks by a PRP list.
    let list = rig.host.page(150);
    for page in 1..8 {
        let at = Iova(list.0 + 8 * (page - 1));
        rig.host.write_u64(at, rig.data_page().0 + 4096 * page);
    }
    rig.medium(0).bytes[..512 * 64].fill(0x3c);
    let read = Sqe {
        prp2: list.0,
        ..io(&rig, READ, 1, 0, 64)
    };
    assert_eq!(waits.status(&mut rig, read), OK);
    let data = rig.host.read(rig.data_page(), 512 * 64);
    assert!(data.iter().all(|byte| *byte == 0x3c));
    assert!(rig.interrupts.is_empty(), "no interrupt without IEN");
    // ExitBootServices, then the system's driver.
    rig.shut_down();
    super::linux::enable(&mut rig);
    assert!(rig.identify(0x01, 0, 0).is_ok());
}

/// Later versions ask for two queues of each kind.
#[test]
fn asks_for_two_queues_where_it_asks() {
    let mut rig = Rig::new();
    start(&mut rig);
    let cqe = rig.set_feature(0x07, 0x0001_0001);
    assert_eq!((code(&cqe), cqe.dw0), (OK, 0x0001_0001));
    let [mut waits, _] = pairs(&mut rig);
    write_and_read(&mut rig, &mut waits, 1, 0);
}

/// It does not shut down before a warm reset: the next start finds the controller enabled, with
/// queues.
#[test]
fn a_warm_reset_leaves_the_controller_enabled() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        start(&mut rig);
        let [mut waits, mut other] = pairs(&mut rig);
        write_and_read(&mut rig, &mut waits, 1, 1);
        let read = io(&rig, READ, 1, 2, 1);
        other.put(&rig, read);
        other.ring(&mut rig);
    }
}
