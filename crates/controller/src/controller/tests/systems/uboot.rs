//! U-Boot, drivers/nvme/nvme.c.
//!
//! From the driver's public source: admin and I/O queues have two entries; it asks for one I/O
//! queue; Create I/O Completion Queue enables interrupts, on vector 0, without a handler for them;
//! completions are polled; namespaces up to NN are identified; transfers are cut to MDTS. It leaves
//! the controller enabled when it starts a system.

use super::super::rig::*;
use super::*;

fn start(rig: &mut Rig) -> Pair {
    rig.clear_enable();
    rig.set_admin_queues(2);
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    assert_eq!(rig.set_feature(0x07, 0).dw0, 0, "one of each");
    Pair::create(rig, 1, 2, IEN | PC, PC)
}

#[test]
fn loads_a_kernel_in_pieces_of_mdts() {
    let mut rig = Rig::new();
    let mut pair = start(&mut rig);
    let id = rig.identify(0x01, 0, 0).unwrap();
    let mdts = 4096u64 << id[77];
    assert_eq!(mdts, 1 << 20);
    // A read of that much passes, and one block more does not.
    let pages = mdts / 4096;
    let list = rig.host.page(150);
    for page in 1..pages {
        // All of it goes to one page: nothing looks at it.
        rig.host
            .write_u64(Iova(list.0 + 8 * (page - 1)), rig.data_page().0);
    }
    let blocks = (mdts / 512) as u32;
    let mut whole = io(&rig, READ, 1, 0, blocks);
    whole.prp2 = list.0;
    assert_eq!(pair.status(&mut rig, whole), OK);
    whole.cdw12 += 1;
    assert_ne!(pair.status(&mut rig, whole), OK);
    let nn = u32_at(&id, 516);
    for nsid in 1..=nn {
        assert!(rig.identify(0x00, nsid, 0).is_ok());
    }
}

/// Interrupts without a handler delay no command, and the next system finds the controller
/// enabled.
#[test]
fn hands_over_without_a_shutdown() {
    let mut rig = Rig::new();
    let mut pair = start(&mut rig);
    for slba in 0..100 {
        write_and_read(&mut rig, &mut pair, 1, slba);
    }
    super::linux::enable(&mut rig);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    write_and_read(&mut rig, &mut pair, 1, 0);
}
