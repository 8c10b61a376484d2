//! How operating systems and firmware bring a controller up, as programs. What each step expects is from the
//! specification; the order of the steps is the guest's.

use nvme_spec::Sqe;

use super::rig::*;
use crate::config::DoorbellMode;

/// Linux 6.12 and later: nvme_probe, nvme_reset_work, nvme_scan_work, and a reset.
#[test]
fn linux_probes_scans_and_resets() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        linux_enable(&mut rig);
        linux_identify(&mut rig);
        linux_queues(&mut rig);
        linux_scan(&mut rig);
        // nvme_dev_disable: queues go, then the controller.
        for qid in 1..=2 {
            assert_eq!(rig.delete_sq(qid), OK);
        }
        for qid in 1..=2 {
            assert_eq!(rig.delete_cq(qid), OK);
        }
        rig.write32(CC, CC_ENABLE & !1);
        rig.turns(2);
        assert_eq!(rig.csts() & RDY, 0);
    }
    // nvme_shutdown: EN stays, SHN is set.
    rig.write32(CC, 0x0046_4001);
    rig.turns(8);
    assert_eq!(rig.csts() & SHST, SHST_COMPLETE);
}

fn linux_enable(rig: &mut Rig) {
    assert_ne!(rig.csts(), !0, "the device is there");
    let cap = rig.read64(CAP);
    assert_eq!(rig.read32(VS), 0x0002_0100);
    assert_eq!(cap >> 48 & 0xf, 0, "4 KiB pages are offered");
    assert_eq!(cap >> 37 & 1, 1, "the NVM command set is offered");
    assert_eq!(cap >> 32 & 0xf, 0, "doorbells are four bytes apart");
    // A disable first, whatever the firmware left.
    rig.write32(CC, rig.read32(CC) & !1);
    rig.turns(4);
    assert_eq!(rig.csts() & RDY, 0);
    rig.set_admin_queues(32);
    rig.write32(CC, 0x0046_0000);
    assert_eq!(
        rig.read32(CC),
        0x0046_0000,
        "posted writes are flushed by a read"
    );
    rig.write32(CC, 0x0046_0001);
    // CRTO.CRWMT bounds the wait, in units of 500 ms.
    assert!(rig.read32(CRTO) & 0xffff > 0);
    rig.turns(2);
    assert_eq!(rig.csts() & RDY, RDY);
}

fn linux_identify(rig: &mut Rig) {
    let id = rig.identify(0x01, 0, 0).unwrap();
    let oacs = u16_at(&id, 256);
    assert_ne!(u16_at(&id, 0), 0);
    assert_eq!(
        u32_at(&id, 272),
        0,
        "no host memory buffer is asked for (HMPRE)"
    );
    // Commands Supported and Effects, as LPA bit 1 offers it.
    assert_eq!(id[261] >> 1 & 1, 1);
    let effects = rig.log(0x05, 0, 4096).unwrap();
    assert_eq!(u32_at(&effects, 0x06 * 4) & 1, 1);
    // CNS 06h for the NVM command set: limits beside MDTS.
    let nvm = rig.identify(0x06, 0, 0).unwrap();
    assert!(nvm[..16].iter().all(|byte| *byte == 0));
    // Timestamp, where ONCS bit 6 offers it.
    assert_eq!(u16_at(&id, 520) >> 6 & 1, 1);
    rig.host
        .write(rig.data_page(), &1_700_000_000_000u64.to_le_bytes());
    let sqe = rig.with_data(SET_FEATURES);
    assert_eq!(rig.status(Sqe { cdw10: 0x0e, ..sqe }), OK);
    // Autonomous power states are not offered (APSTA), so they are not configured.
    assert_eq!(id[265], 0);
    // Doorbell Buffer Config with two pages.
    assert_eq!(oacs >> 8 & 1, 1);
    let (shadow, event_idx) = (rig.host.page(200).0, rig.host.page(201).0);
    let config = Sqe {
        opcode: DOORBELL_BUFFERS,
        prp1: shadow,
        prp2: event_idx,
        ..Sqe::default()
    };
    assert_eq!(rig.status(config), OK);
}

fn linux_queues(rig: &mut Rig) {
    let cqe = rig.set_feature(0x07, 0x0007_0007);
    assert_eq!(
        (code(&cqe), cqe.dw0),
        (OK, 0x0003_0003),
        "eight wanted, four offered"
    );
    rig.create_pair(1, 64);
    rig.create_pair(2, 64);
    // Asynchronous events: OAES tells which, then one request is left outstanding.
    let id = rig.identify(0x01, 0, 0).unwrap();
    let oaes = u32_at(&id, 92);
    assert_eq!(oaes, 1 << 8);
    assert_eq!(code(&rig.set_feature(0x0b, oaes)), OK);
    rig.async_event();
    rig.turns(2);
    assert!(rig.peek().is_none(), "the request is held");
}

fn linux_scan(rig: &mut Rig) {
    let list = rig.identify(0x02, 0, 0).unwrap();
    assert_eq!(
        [u32_at(&list, 0), u32_at(&list, 4), u32_at(&list, 8)],
        [1, 3, 0]
    );
    for nsid in [1, 3] {
        let descriptors = rig.identify(0x03, nsid, 0).unwrap();
        assert_ne!(descriptors[0], 0);
        let independent = rig.identify(0x08, nsid, 0).unwrap();
        assert_eq!(independent[14] & 1, 1, "the namespace is ready");
        let namespace = rig.identify(0x00, nsid, 0).unwrap();
        assert_eq!(u64_at(&namespace, 0), 2048);
        assert!(rig.identify(0x05, nsid, 0).is_ok());
    }
    // I/O through the shadow: the host writes it, and rings because EventIdx asks for that.
    let read = rig.read_sqe(5, 1);
    let bytes: Vec<u8> = read
        .to_words()
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    rig.host.write(rig.sq_page(1), &bytes);
    let slot = memory::Iova(rig.host.page(200).0 + 8);
    rig.host.write_u32(slot, 1);
    rig.write32(0x1008, 1);
    rig.turns(6);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| cqe.cid), Some(5));
    rig.host.write_u32(slot, 0);
}

/// Windows Server 2025: registers read back while enabled, several requests for events, SHN before it goes.
#[test]
fn windows_starts_and_hibernates() {
    let mut rig = Rig::new();
    rig.write32(CC, 0);
    rig.turns(2);
    rig.set_admin_queues(32);
    let registers = (rig.read32(AQA), rig.read64(ASQ), rig.read64(ACQ));
    rig.write32(CC, CC_ENABLE);
    rig.turns(2);
    assert_eq!(rig.csts() & RDY, RDY);
    assert_eq!(
        (rig.read32(AQA), rig.read64(ASQ), rig.read64(ACQ)),
        registers
    );
    assert!(rig.identify(0x01, 0, 0).is_ok());
    // Coalescing and arbitration are set before the queues.
    assert_eq!(code(&rig.set_feature(0x08, 0)), OK);
    assert_eq!(code(&rig.set_feature(0x01, 0)), OK);
    assert_eq!(rig.set_feature(0x07, 0x0003_0003).dw0, 0x0003_0003);
    assert_eq!(code(&rig.set_feature(0x0b, 0x11f)), OK);
    // Four requests are held; they are not failed.
    for _ in 0..4 {
        rig.async_event();
    }
    rig.turns(4);
    assert!(rig.peek().is_none());
    rig.create_pair(1, 64);
    assert!(rig.identify(0x00, 1, 0).is_ok());
    assert_eq!(rig.log(0x02, 0, 512).unwrap().len(), 512);
    let wce = rig.get_feature(0x06, 0, 0);
    assert_eq!((code(&wce), wce.dw0), (OK, 1));
    // Hibernation: a normal shutdown, then a fresh start.
    rig.write32(CC, CC_ENABLE | 1 << 14);
    rig.turns(8);
    assert_eq!(rig.csts() & SHST, SHST_COMPLETE);
    rig.disable();
    rig.enable();
    rig.create_pair(1, 64);
}

/// UEFI: small admin queues, one I/O pair of depth two, polling, interrupts never enabled, namespaces asked for in turn
/// up to NN; then a reset hands over to the system.
#[test]
fn uefi_polls_one_small_pair_and_walks_the_namespaces() {
    let mut rig = Rig::new();
    rig.write32(CC, 0);
    rig.turns(2);
    rig.set_admin_queues(2);
    rig.write32(CC, CC_ENABLE);
    rig.turns(2);
    assert_eq!(rig.csts() & RDY, RDY);
    let id = rig.identify(0x01, 0, 0).unwrap();
    // It creates its queues without Number of Queues.
    let mut cq = rig.create_cq_sqe(1, 2);
    cq.cdw11 = 1;
    assert_eq!(rig.status(cq), OK);
    let sq = rig.create_sq_sqe(1, 1, 2);
    assert_eq!(rig.status(sq), OK);
    let nn = u32_at(&id, 516);
    let mut active = Vec::new();
    for nsid in 1..=nn {
        let namespace = rig.identify(0x00, nsid, 0).unwrap();
        if u64_at(&namespace, 0) > 0 {
            active.push(nsid);
        }
    }
    assert_eq!(active, [1, 3]);
    rig.interrupts.clear();
    for round in 0..4u16 {
        let index = u32::from(round % 2);
        let read = rig.read_sqe(round, 1);
        let bytes: Vec<u8> = read
            .to_words()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        rig.host.write(
            memory::Iova(rig.sq_page(1).0 + 64 * u64::from(index)),
            &bytes,
        );
        rig.write32(0x1008, (index + 1) % 2);
        rig.turns(4);
        let cqe = rig
            .host
            .read(memory::Iova(rig.cq_page(1).0 + 16 * u64::from(index)), 16);
        assert_eq!(u16_at(&cqe, 12), round);
        assert_eq!(
            u16_at(&cqe, 14),
            u16::from(round < 2),
            "phase alternates by round"
        );
        rig.write32(0x100c, (index + 1) % 2);
    }
    assert!(rig.interrupts.is_empty(), "no interrupt without IEN");
    // ExitBootServices: shutdown, then the system's driver disables and enables.
    rig.write32(CC, CC_ENABLE | 1 << 14);
    rig.turns(8);
    assert_eq!(rig.csts() & SHST, SHST_COMPLETE);
    rig.disable();
    linux_enable(&mut rig);
}

/// SeaBIOS as recorded with QEMU: dword accesses, AQA before ASQ and ACQ, CC 460001h, memory remapped while enabled.
#[test]
fn seabios_enables_and_remaps_memory() {
    let mut rig = Rig::new();
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

/// FreeBSD: INTMS and INTMC around its handler, coalescing and vector features.
#[test]
fn freebsd_masks_interrupts_and_sets_coalescing() {
    let mut rig = Rig::enabled();
    // One message of MSI.
    rig.controller.config_write(0x52, &1u16.to_le_bytes());
    rig.write32(INTMS, 1);
    let cqe = rig.set_feature(0x08, 0x0a07);
    assert_eq!(code(&cqe), OK);
    assert!(rig.interrupts.is_empty(), "its handler polls meanwhile");
    rig.async_event();
    rig.write32(INTMC, 1);
    rig.turn();
    assert!(rig.interrupts.is_empty(), "it has seen everything");
    assert_eq!(rig.get_feature(0x08, 0, 0).dw0, 0x0a07);
    for vector in 0..5u32 {
        assert_eq!(code(&rig.set_feature(0x09, 1 << 16 | vector)), OK);
        assert_eq!(rig.get_feature(0x09, 0, vector).dw0, 1 << 16 | vector);
    }
    assert_eq!(code(&rig.set_feature(0x09, 5)), INVALID_FIELD);
}

/// SPDK: doorbell buffers before the I/O queues, and the register for queue 0 all the same.
#[test]
fn spdk_uses_the_shadow_for_io_queues_only() {
    let mut rig = Rig::enabled();
    let buffers = (rig.host.page(200).0, rig.host.page(201).0);
    let config = Sqe {
        opcode: DOORBELL_BUFFERS,
        prp1: buffers.0,
        prp2: buffers.1,
        ..Sqe::default()
    };
    assert_eq!(rig.status(config), OK);
    // What the shadow says of queue 0 is not looked at.
    rig.host.write_u32(memory::Iova(buffers.0), 77);
    assert!(rig.identify(0x01, 0, 0).is_ok());
    assert_eq!(
        rig.host.read_u32(memory::Iova(buffers.0)),
        77,
        "the shadow is the host's to write"
    );
    rig.create_pair(1, 8);
    let read = rig.read_sqe(9, 1);
    let bytes: Vec<u8> = read
        .to_words()
        .iter()
        .flat_map(|w| w.to_le_bytes())
        .collect();
    rig.host.write(rig.sq_page(1), &bytes);
    rig.host.write_u32(memory::Iova(buffers.0 + 8), 1);
    rig.turns(6);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| cqe.cid), Some(9));
}

#[test]
fn doorbell_buffers_are_two_pages_of_the_hosts() {
    let mut rig = Rig::enabled();
    let (a, b) = (rig.host.page(200).0, rig.host.page(201).0);
    let outside = rig.host.page(PAGES).0;
    for (prp1, prp2, expected) in [
        (a + 4, b, INVALID_FIELD),
        (a, b + 8, INVALID_FIELD),
        (outside, b, DATA_TRANSFER),
        (a, outside, DATA_TRANSFER),
        (a, b, OK),
    ] {
        let config = Sqe {
            opcode: DOORBELL_BUFFERS,
            prp1,
            prp2,
            ..Sqe::default()
        };
        assert_eq!(rig.status(config), expected, "{prp1:#x} {prp2:#x}");
    }
}

#[test]
fn doorbell_buffers_are_not_offered_where_the_page_is_mapped() {
    let mut config = config();
    config.doorbells = DoorbellMode::Mapped;
    let mut rig = Rig::with(config);
    rig.enable();
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(u16_at(&id, 256) >> 8 & 1, 0, "OACS");
    let (prp1, prp2) = (rig.host.page(200).0, rig.host.page(201).0);
    let config = Sqe {
        opcode: DOORBELL_BUFFERS,
        prp1,
        prp2,
        ..Sqe::default()
    };
    assert_eq!(rig.status(config), INVALID_OPCODE);
    let effects = rig.log(0x05, 0, 4096).unwrap();
    assert_eq!(u32_at(&effects, 0x7c * 4), 0);
}

#[test]
fn the_registration_of_doorbell_buffers_ends_at_every_reset() {
    let resets: [&dyn Fn(&mut Rig); 3] = [
        &|rig| rig.disable(),
        &|rig| rig.controller.function_reset(),
        &|rig| rig.write32(NSSR, 0x4e56_4d65),
    ];
    for reset in resets {
        let mut rig = Rig::enabled();
        let buffers = (rig.host.page(200), rig.host.page(201));
        let config = Sqe {
            opcode: DOORBELL_BUFFERS,
            prp1: buffers.0.0,
            prp2: buffers.1.0,
            ..Sqe::default()
        };
        assert_eq!(rig.status(config), OK);
        reset(&mut rig);
        rig.turns(4);
        rig.enable();
        rig.create_pair(1, 8);
        // The next system uses these pages for something else.
        rig.host.write(buffers.0, &[0xaa; 4096]);
        rig.host.write(buffers.1, &[0xbb; 4096]);
        let read = rig.read_sqe(4, 1);
        rig.submit_io(1, 0, read);
        rig.turns(6);
        assert_eq!(
            rig.io_cqe(1, 0).map(|cqe| cqe.cid),
            Some(4),
            "the register counts"
        );
        assert!(
            rig.host
                .read(buffers.0, 4096)
                .iter()
                .all(|byte| *byte == 0xaa)
        );
        assert!(
            rig.host
                .read(buffers.1, 4096)
                .iter()
                .all(|byte| *byte == 0xbb)
        );
    }
}
