//! SPDK, lib/nvme: a driver in user space that polls.
//!
//! From the driver's public source: the steps of its initialisation in their order, with 32 admin
//! entries; every critical warning is asked for, and as many event requests as AERL allows are left
//! outstanding; where KAS is not 0 a Keep Alive Timeout of ten seconds is set, read back, and kept
//! by a command every five; the Host Identifier has 16 bytes where CTRATT says so; doorbell buffers
//! come after the namespaces and before the I/O queues, and are never used for queue 0; I/O queues
//! have no interrupts; data of several pieces goes by an SGL whose last segment is the only one.

use super::super::rig::*;
use super::*;

fn start(rig: &mut Rig) -> Buffers {
    rig.clear_enable();
    rig.set_admin_queues(32);
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    let id = rig.identify(0x01, 0, 0).unwrap();
    // Spare, temperature, reliability, read only, backup; namespaces where OAES offers them.
    let wanted = 0x1f | u32_at(&id, 92) & (1 << 8);
    assert_eq!(code(&rig.set_feature(0x0b, wanted)), OK);
    for _ in 0..=id[259] {
        rig.async_event();
    }
    rig.turns(4);
    assert!(rig.peek().is_none());
    assert_ne!(u16_at(&id, 320), 0, "KAS");
    assert_eq!(code(&rig.set_feature(0x0f, 10_000)), OK);
    let timeout = rig.get_feature(0x0f, 0, 0);
    assert_eq!((code(&timeout), timeout.dw0), (OK, 10_000));
    let cqe = rig.set_feature(0x07, 0x0003_0003);
    assert_eq!((code(&cqe), cqe.dw0), (OK, 0x0003_0003));
    namespaces_are_found(rig);
    let buffers = Buffers::register(rig);
    assert_eq!(u32_at(&id, 96) & 1, 1, "CTRATT: identifiers of 128 bits");
    assert_eq!(rig.set_feature_data(0x81, 1, b"0123456789abcdef"), OK);
    buffers
}

fn namespaces_are_found(rig: &mut Rig) {
    let list = rig.identify(0x02, 0, 0).unwrap();
    assert_eq!([0, 4, 8].map(|at| u32_at(&list, at)), [1, 3, 0]);
    for nsid in [1, 3] {
        let namespace = rig.identify(0x00, nsid, 0).unwrap();
        let format = usize::from(namespace[26] & 0xf);
        let lbads = namespace[128 + 4 * format + 2];
        assert!(lbads >= 9);
        assert!(rig.identify(0x03, nsid, 0).is_ok());
        assert!(rig.identify(0x05, nsid, 0).is_ok());
    }
}

#[test]
fn polls_with_doorbell_buffers() {
    let mut rig = Rig::new();
    let buffers = start(&mut rig);
    // A value that cannot be, in the shadow of queue 0, which it does not use: the register counts.
    rig.host.write_u32(buffers.shadow, 77);
    assert!(rig.identify(0x01, 0, 0).is_ok());
    assert_eq!(rig.host.read_u32(buffers.shadow), 77);
    let mut pair = Pair::create(&mut rig, 1, 64, PC, PC);
    pair.buffers = Some(buffers);
    rig.turns(2);
    rig.interrupts.clear();
    for slba in 0..150 {
        write_and_read(&mut rig, &mut pair, 1, slba);
    }
    assert!(rig.interrupts.is_empty());
}

/// spdk_nvme_ctrlr_process_admin_completions keeps the controller; a process that died does not.
#[test]
fn keeps_alive_and_loses_the_controller_when_it_dies() {
    let mut rig = Rig::new();
    start(&mut rig);
    let alive = Sqe {
        opcode: KEEP_ALIVE,
        ..Sqe::default()
    };
    for _ in 0..6 {
        rig.wait(5 * SECOND);
        assert_eq!(rig.status(alive), OK);
    }
    rig.wait(10 * SECOND);
    assert_eq!(rig.csts() & CFS, CFS);
    // The next process begins with a reset.
    rig.write32(CC, rig.read32(CC) & !1);
    rig.turns(8);
    assert_eq!(rig.csts() & (RDY | CFS), 0);
    start(&mut rig);
}

/// nvme_pcie_qpair_build_hw_sgl_request.
#[test]
fn pieces_go_by_a_list_of_data_blocks() {
    let mut rig = Rig::new();
    start(&mut rig);
    let mut pair = Pair::create(&mut rig, 1, 64, PC, PC);
    let list = rig.host.page(150);
    // Sixteen pieces of 256 bytes, each on a page of its own and at an odd place.
    for n in 0..16u64 {
        let at = Iova(rig.data_page().0 + 4096 * n + 13 * n);
        rig.host.write(at, &[n as u8 + 1; 256]);
        rig.host.write_u64(Iova(list.0 + 16 * n), at.0);
        rig.host.write_u64(Iova(list.0 + 16 * n + 8), 256);
    }
    let mut write = io(&rig, WRITE, 1, 40, 8);
    write.flags = 0x40.into();
    // Last Segment, type 3, of 256 bytes of descriptors.
    (write.prp1, write.prp2) = (list.0, 256 | 3 << 60);
    assert_eq!(pair.status(&mut rig, write), OK);
    let written = rig.medium(0).bytes[40 * 512..48 * 512].to_vec();
    let expected: Vec<u8> = (0..4096).map(|n| (n / 256) as u8 + 1).collect();
    assert_eq!(written, expected);
}

/// spdk_nvme_detach: the queues are deleted, and the shutdown waited for as long as RTD3E says.
#[test]
fn detaches_and_another_process_attaches() {
    let mut rig = Rig::new();
    for _ in 0..2 {
        let buffers = start(&mut rig);
        let mut pair = Pair::create(&mut rig, 1, 64, PC, PC);
        pair.buffers = Some(buffers);
        write_and_read(&mut rig, &mut pair, 3, 8);
        assert_eq!(rig.delete_sq(1), OK);
        assert_eq!(rig.delete_cq(1), OK);
        let id = rig.identify(0x01, 0, 0).unwrap();
        assert!(u32_at(&id, 88) > 0, "RTD3E");
        rig.shut_down();
    }
}
