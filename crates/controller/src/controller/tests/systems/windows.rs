//! Windows 10, 11 and Server: stornvme.sys.
//!
//! Its source is not public; this is its behaviour on the bus. AQA, ASQ and ACQ are expected to
//! read back while the controller is enabled, and requests for events to be held, not failed (24H2
//! and Server 2025). Coalescing and arbitration are set before the queues; queues have a vector
//! each; data always goes by PRPs; a failure that a host may clear is met by a controller reset.
//! Hibernation and crash dumps use a second, polling driver that enables the controller again with
//! small queues and one I/O pair without interrupts.

use super::super::rig::*;
use super::*;

fn start(rig: &mut Rig) {
    rig.write32(CC, 0);
    rig.wait_ready(false);
    rig.set_admin_queues(32);
    let registers = (rig.read32(AQA), rig.read64(ASQ), rig.read64(ACQ));
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    assert_eq!(
        (rig.read32(AQA), rig.read64(ASQ), rig.read64(ACQ)),
        registers,
        "they read back"
    );
}

fn identify(rig: &mut Rig) {
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_ne!(u32_at(&id, 516), 0, "NN");
    assert_eq!(id[512], 0x66, "entries of 64 bytes, no other");
    assert_eq!(id[513], 0x44, "entries of 16 bytes, no other");
    assert_eq!(id[525] & 1, 1, "a volatile write cache");
    assert_eq!(
        u32_at(&id, 272),
        0,
        "no host memory buffer is asked for (HMPRE)"
    );
    let list = rig.identify(0x02, 0, 0).unwrap();
    assert_eq!(
        [u32_at(&list, 0), u32_at(&list, 4), u32_at(&list, 8)],
        [1, 3, 0]
    );
    for nsid in [1, 3] {
        let namespace = rig.identify(0x00, nsid, 0).unwrap();
        let (size, capacity) = (u64_at(&namespace, 0), u64_at(&namespace, 8));
        assert!(capacity > 0 && capacity <= size);
        assert!(namespace[26] & 0xf <= namespace[25], "FLBAS names a format");
        assert_eq!(namespace[29], 0, "no protection information is on (DPS)");
        // Device identification pages of SCSI are made from these.
        assert!(rig.identify(0x03, nsid, 0).is_ok());
    }
}

fn features(rig: &mut Rig) {
    // Coalescing off, and arbitration with no limit of the burst.
    assert_eq!(code(&rig.set_feature(0x08, 0)), OK);
    assert_eq!(code(&rig.set_feature(0x01, 0x07)), OK);
    assert_eq!(rig.set_feature(0x07, 0x0003_0003).dw0, 0x0003_0003);
    // Every critical warning, and changes of namespaces.
    assert_eq!(code(&rig.set_feature(0x0b, 0x11f)), OK);
    assert_eq!(
        rig.set_feature_data(0x0e, 0, &1_700_000_000_000u64.to_le_bytes()),
        OK
    );
    let wce = rig.get_feature(0x06, 0, 0);
    assert_eq!((code(&wce), wce.dw0), (OK, 1));
    // Both thresholds of the composite temperature, for its sensor pages.
    for thsel in [0, 1 << 20] {
        assert_eq!(code(&rig.get_feature(0x04, 0, thsel)), OK);
    }
    // Power states: 0 is the only one, and the one it is in.
    let power = rig.get_feature(0x02, 0, 0);
    assert_eq!((code(&power), power.dw0 & 0x1f), (OK, 0));
    // It asks for these whether or not they are offered, and accepts a rejection: autonomous power
    // states, the host memory buffer, non-operational power.
    for fid in [0x0c, 0x0d, 0x11] {
        assert_eq!(code(&rig.get_feature(fid, 0, 0)), INVALID_FIELD, "{fid:#x}");
    }
}

fn logs(rig: &mut Rig) {
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!(smart[0], 0, "no critical warning");
    assert!(smart[3] > smart[4], "spare above its threshold");
    let firmware = rig.log(0x03, 0, 512).unwrap();
    assert_eq!(firmware[0] & 7, 1, "slot 1 is active");
    assert!(firmware[8..16].iter().any(|byte| *byte != 0));
    let effects = rig.log(0x05, 0, 4096).unwrap();
    assert_eq!(u32_at(&effects, 1024 + 4 * 2) & 1, 1, "Read");
    assert_eq!(rig.log(0x01, 0, 64).unwrap().len(), 64);
}

#[test]
fn starts_and_works() {
    let mut rig = Rig::new();
    start(&mut rig);
    identify(&mut rig);
    features(&mut rig);
    // Four requests are held; they are not failed, and an event completes one of them.
    let requests: Vec<u16> = (0..4).map(|_| rig.async_event()).collect();
    rig.turns(4);
    assert!(rig.peek().is_none());
    logs(&mut rig);
    let mut pairs = [1, 2, 3, 4].map(|qid| Pair::with_vector(&mut rig, qid, 64));
    for pair in &mut pairs {
        for slba in 0..70 {
            write_and_read(&mut rig, pair, 1, slba);
        }
    }
    rig.set_namespaces(vec![namespaces().remove(0)]);
    rig.turns(4);
    let told = rig.reap().map(|cqe| (cqe.cid, cqe.dw0));
    assert_eq!(told, Some((requests[0], 0x0004_0002)));
    assert_eq!(u32_at(&rig.log(0x04, 0, 4096).unwrap(), 0), 3);
    rig.async_event();
    rig.turns(2);
    assert!(rig.peek().is_none());
}

/// An unmap of SCSI is one range at least; a synchronize cache a flush; FUA comes with the write.
#[test]
fn scsi_commands_become_commands_here() {
    let mut rig = Rig::new();
    start(&mut rig);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    rig.medium(0).seen.clear();
    let mut write = io(&rig, WRITE, 1, 9, 8);
    write.cdw12 |= 1 << 30;
    assert_eq!(pair.status(&mut rig, write), OK);
    let flush = Sqe {
        opcode: FLUSH,
        nsid: 1,
        ..Sqe::default()
    };
    assert_eq!(pair.status(&mut rig, flush), OK);
    rig.host.write_u64(rig.data_page(), 8 << 32);
    rig.host.write_u64(Iova(rig.data_page().0 + 8), 9);
    let mut unmap = io(&rig, DATASET_MANAGEMENT, 1, 0, 1);
    (unmap.cdw10, unmap.cdw11, unmap.cdw12) = (0, 1 << 2, 0);
    assert_eq!(pair.status(&mut rig, unmap), OK);
    use port::testing::Seen;
    let range = port::ByteRange {
        offset: 9 * 512,
        len: 8 * 512,
    };
    assert_eq!(
        rig.medium(0).seen,
        [
            Seen::Write(9 * 512, 8 * 512, true),
            Seen::Flush,
            Seen::Deallocate(vec![range])
        ]
    );
}

/// Its cluster's disks are shared by reservations: an identifier of the host, a registration that
/// ignores keys, a reservation for registrants, and a report.
#[test]
fn a_cluster_reserves_its_disk() {
    let mut rig = Rig::new();
    start(&mut rig);
    assert_eq!(rig.set_feature_data(0x81, 1, b"a cluster's node"), OK);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    let key = 0x1122_3344_5566_7788u64;
    rig.host.write_u64(rig.data_page(), 0);
    rig.host.write_u64(Iova(rig.data_page().0 + 8), key);
    let command = |rig: &Rig, opcode, cdw10| Sqe {
        opcode,
        nsid: 1,
        prp1: rig.data_page().0,
        cdw10,
        ..Sqe::default()
    };
    // Register (0Dh) with IEKEY; Acquire (11h) write exclusive for registrants, type 3.
    let register = command(&rig, 0x0d, 1 << 3);
    assert_eq!(pair.status(&mut rig, register), OK);
    rig.host.write_u64(rig.data_page(), key);
    let acquire = command(&rig, 0x11, 3 << 8);
    assert_eq!(pair.status(&mut rig, acquire), OK);
    // Report (0Eh), with the extended structure: 64 bytes and 64 for each registrant.
    let mut report = command(&rig, 0x0e, 128 / 4 - 1);
    report.cdw11 = 1;
    assert_eq!(pair.status(&mut rig, report), OK);
    let status = rig.host.read(rig.data_page(), 128);
    assert_eq!(
        (status[4], u16_at(&status, 5)),
        (3, 1),
        "type and registrants"
    );
    assert_eq!(status[64 + 2] & 1, 1, "the holder");
    assert_eq!(u64_at(&status, 64 + 8), key);
    assert_eq!(status[64 + 16..64 + 32], *b"a cluster's node");
    // Release (15h).
    rig.host.write_u64(rig.data_page(), key);
    let release = command(&rig, 0x15, 3 << 8);
    assert_eq!(pair.status(&mut rig, release), OK);
}

/// Hibernation: a normal shutdown; the dump driver starts the controller with what memory it has
/// and polls; the resumed system starts it again.
#[test]
fn hibernates_through_its_dump_driver() {
    let mut rig = Rig::new();
    start(&mut rig);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    write_and_read(&mut rig, &mut pair, 1, 1);
    rig.medium(0).seen.clear();
    rig.shut_down();
    assert_eq!(
        rig.medium(0).seen.last(),
        Some(&port::testing::Seen::Flush),
        "nothing is left in the cache"
    );
    rig.clear_enable();
    rig.set_admin_queues(2);
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    assert!(rig.identify(0x01, 0, 0).is_ok());
    let mut dump = Pair::create(&mut rig, 1, 2, PC, PC);
    rig.turns(4);
    rig.interrupts.clear();
    for slba in 0..9 {
        write_and_read(&mut rig, &mut dump, 1, slba);
    }
    assert!(rig.interrupts.is_empty());
    rig.shut_down();
    start(&mut rig);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    write_and_read(&mut rig, &mut pair, 1, 2);
}

/// A crash: the dump driver comes while commands are in flight and takes the controller by CC.EN
/// alone.
#[test]
fn dumps_after_a_crash() {
    use port::testing::Manner;
    let mut rig = Rig::new();
    start(&mut rig);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    rig.medium(0).manner = Manner::Hanging;
    for slba in 0..20 {
        let read = io(&rig, READ, 1, slba, 1);
        pair.put(&rig, read);
    }
    pair.ring(&mut rig);
    rig.turns(4);
    rig.write32(CC, rig.read32(CC) & !1);
    rig.turns(2);
    rig.medium(0).manner = Manner::Asynchronous;
    rig.wait_ready(false);
    rig.set_admin_queues(2);
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    let mut dump = Pair::create(&mut rig, 1, 2, PC, PC);
    for slba in 0..5 {
        write_and_read(&mut rig, &mut dump, 1, slba);
    }
}

/// Reset of a PC, or of a disk by its owner: a block erase where SANICAP offers it, whose log is
/// polled, and which a restart in between does not end.
#[test]
fn erases_its_disk_for_good() {
    let mut rig = Rig::new();
    start(&mut rig);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    write_and_read(&mut rig, &mut pair, 1, 500);
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(u32_at(&id, 328) >> 1 & 1, 1, "SANICAP: block erase");
    let erase = Sqe {
        opcode: 0x84,
        cdw10: 2,
        ..Sqe::default()
    };
    assert_eq!(rig.status(erase), OK);
    rig.clear_enable();
    start(&mut rig);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    for _ in 0..100 {
        let log = rig.log(0x81, 0, 512).unwrap();
        if u16_at(&log, 2) & 7 == 1 {
            assert_eq!(u16_at(&log, 0), 0xffff, "SPROG: done");
            break;
        }
        assert_eq!(u16_at(&log, 2) & 7, 2, "in progress");
        rig.turns(4);
    }
    assert_eq!(u16_at(&rig.log(0x81, 0, 512).unwrap(), 2) & 7, 1);
    let read = io(&rig, READ, 1, 500, 1);
    assert_eq!(pair.status(&mut rig, read), OK);
    let block = rig.host.read(rig.data_page(), 512);
    assert!(block.iter().all(|byte| *byte == 0));
}
