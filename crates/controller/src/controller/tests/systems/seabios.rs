//! SeaBIOS, src/hw/nvme.c, as recorded with QEMU.
//!
//! Registers go by dwords; AQA before ASQ and ACQ; admin queues have as many entries as fit into a
//! page, 64 and 256; one I/O pair without interrupts; namespaces up to NN, with blocks of 512 bytes
//! only. While CC.EN is 1 the machine remaps its memory.

use super::super::rig::*;
use super::*;

fn enable(rig: &mut Rig) {
    assert_eq!(rig.read32(VS) >> 16, 2);
    rig.write32(CC, 0);
    assert_eq!(rig.read32(CSTS), 0);
    rig.write32(AQA, 0x00ff_003f);
    let (asq, acq) = (rig.host.page(0).0 as u32, rig.host.page(1).0 as u32);
    for (register, value) in [(ASQ, asq), (ASQ + 4, 0), (ACQ, acq), (ACQ + 4, 0)] {
        rig.write32(register, value);
    }
    rig.write32(CC, 0x0046_0001);
    rig.turns(2);
    assert_eq!(rig.read32(CSTS), 1);
}

#[test]
fn enables_and_remaps_memory() {
    let mut rig = Rig::new();
    enable(&mut rig);
    rig.host.unmap_pages(0, PAGES);
    rig.tell_view();
    rig.turn();
    for (first, count) in [(0, 10), (10, 90), (100, PAGES - 100)] {
        rig.host.map_pages(first, count);
        rig.tell_view();
        rig.turn();
    }
    assert_eq!(rig.read32(CSTS), 1);
    let sqe = rig.with_data(IDENTIFY);
    rig.submit(Sqe { cdw10: 1, ..sqe });
    rig.turns(2);
    assert_eq!(rig.reap().map(|cqe| code(&cqe)), Some(OK));
}

/// Its I/O pair survives a remap, too: it reads the boot loader, and the shadows of the BIOS are
/// switched in between.
#[test]
fn reads_a_boot_sector_between_remaps() {
    let mut rig = Rig::new();
    enable(&mut rig);
    // Its own rings are as large; the rig's are enough for what it sends.
    rig.set_admin_queues(64);
    rig.clear_enable();
    rig.write32(CC, 0x0046_0001);
    rig.wait_ready(true);
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert!(u32_at(&id, 516) >= 1);
    let mut pair = Pair::create(&mut rig, 1, 64, PC, PC);
    let namespace = rig.identify(0x00, 1, 0).unwrap();
    let format = usize::from(namespace[26] & 0xf);
    assert_eq!(namespace[128 + 4 * format + 2], 9, "blocks of 512 bytes");
    rig.medium(0).bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    for _ in 0..3 {
        rig.host.unmap_pages(0, PAGES);
        rig.tell_view();
        rig.turn();
        rig.host.map_pages(0, 100);
        rig.host.map_pages(100, PAGES - 100);
        rig.tell_view();
        rig.turns(4);
        let read = io(&rig, READ, 1, 0, 1);
        assert_eq!(pair.status(&mut rig, read), OK);
        assert_eq!(rig.host.read(rig.data_page(), 512)[510..], [0x55, 0xaa]);
        rig.host.unmap_pages(0, 100);
        rig.host.unmap_pages(100, PAGES - 100);
        rig.host.map_pages(0, PAGES);
        rig.tell_view();
        rig.turns(4);
    }
}
