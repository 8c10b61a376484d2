//! Linux, drivers/nvme/host, 6.12 and later: probe, reset work, scan work, events, removal.
//!
//! From the driver's public source: 64-bit registers are written and read as two halves, the lower
//! first; admin queues have 32 entries; the event request has the identifier 30 and there is one;
//! CNS 08h is asked for where VS is 2.0 or later; queues are deleted, all submission queues first,
//! before CC.EN is cleared.

use super::super::rig::*;
use super::*;

/// Twice: a reset goes the same way as a probe.
#[test]
fn probes_scans_and_resets() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        enable(&mut rig);
        identify(&mut rig);
        let buffers = Buffers::register(&mut rig);
        let mut pairs = queues(&mut rig);
        events(&mut rig);
        scan(&mut rig);
        for pair in &mut pairs {
            pair.buffers = Some(buffers);
            write_and_read(&mut rig, pair, 1, u64::from(pair.qid));
        }
        disable(&mut rig, &pairs);
    }
    // nvme_shutdown: EN stays, SHN is set.
    enable(&mut rig);
    rig.shut_down();
}

fn write_halves(rig: &mut Rig, register: u64, value: u64) {
    rig.write32(register, value as u32);
    rig.write32(register + 4, (value >> 32) as u32);
}

pub(super) fn enable(rig: &mut Rig) {
    assert_ne!(rig.csts(), !0, "the device is there");
    let halves = [rig.read32(CAP), rig.read32(CAP + 4)];
    let cap = u64::from(halves[1]) << 32 | u64::from(halves[0]);
    assert_eq!(cap, rig.read64(CAP));
    assert_eq!(rig.read32(VS), 0x0002_0100);
    assert_eq!(cap >> 48 & 0xf, 0, "4 KiB pages are offered");
    assert_eq!(cap >> 37 & 1, 1, "the NVM command set is offered");
    assert_eq!(cap >> 43 & 1, 1, "CC.CSS is 110b then");
    assert_eq!(cap >> 32 & 0xf, 0, "doorbells are four bytes apart");
    // The mark of an earlier reset of the subsystem is cleared.
    if rig.csts() & NSSRO != 0 {
        rig.write32(CSTS, NSSRO);
        assert_eq!(rig.csts() & NSSRO, 0);
    }
    // A disable first, whatever the firmware left.
    rig.write32(CC, rig.read32(CC) & !(0b11 << 14) & !1);
    rig.wait_ready(false);
    rig.set_admin_queues(32);
    let (asq, acq) = (rig.read64(ASQ), rig.read64(ACQ));
    write_halves(rig, ASQ, asq);
    write_halves(rig, ACQ, acq);
    rig.write32(CC, 0x0046_0060);
    assert_eq!(
        rig.read32(CC),
        0x0046_0060,
        "posted writes are flushed by a read"
    );
    // CRTO.CRWMT bounds the wait where CAP.CRMS offers it, in units of 500 ms.
    assert_eq!(rig.read64(CAP) >> 59 & 1, 1);
    assert!(rig.read32(CRTO) & 0xffff > 0);
    rig.write32(CC, 0x0046_0061);
    rig.wait_ready(true);
}

fn identify(rig: &mut Rig) {
    let id = rig.identify(0x01, 0, 0).unwrap();
    let text = |at: usize, len: usize| id[at..at + len].iter().all(|c| (0x20..0x7f).contains(c));
    assert!(
        text(4, 20) && text(24, 40) && text(64, 8),
        "serial, model and firmware are ASCII and padded"
    );
    assert!(id[768..].starts_with(b"nqn."), "else it makes one up");
    assert_ne!(u16_at(&id, 78), 0, "CNTLID tells controllers apart");
    assert_eq!(
        u32_at(&id, 272),
        0,
        "no host memory buffer is asked for (HMPRE)"
    );
    assert_eq!(id[265], 0, "no autonomous power states (APSTA)");
    let oncs = u16_at(&id, 520);
    // Commands Supported and Effects, as LPA bit 1 offers it: passthrough is decided by it.
    assert_eq!(id[261] >> 1 & 1, 1);
    let effects = rig.log(0x05, 0, 4096).unwrap();
    assert_eq!(u32_at(&effects, 0x06 * 4) & 1, 1, "Identify");
    assert_eq!(
        u32_at(&effects, 1024 + 4) & 3,
        3,
        "Write, which changes blocks"
    );
    // CNS 06h for the NVM command set: limits beside MDTS. Zero is none for Write Zeroes; ranges of
    // Deallocate are taken from it only where it has some.
    let nvm = rig.identify(0x06, 0, 0).unwrap();
    assert_eq!(nvm[..3], [0; 3]);
    assert_eq!(oncs >> 2 & 1, 1, "Dataset Management");
    assert_eq!(oncs >> 3 & 1, 1, "Write Zeroes");
    // Timestamp, where ONCS bit 6 offers it.
    assert_eq!(oncs >> 6 & 1, 1);
    let now = 1_700_000_000_000u64.to_le_bytes();
    assert_eq!(rig.set_feature_data(0x0e, 0, &now), OK);
    // Retry delays are asked for only where a controller has some (CRDT1).
    assert_eq!(u16_at(&id, 128), 0);
    // nvme_hwmon_init: the composite temperature, in kelvins, and its thresholds.
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert!((253..373).contains(&u16_at(&smart, 1)));
    assert_eq!(code(&rig.get_feature(0x04, 0, 0)), OK);
    assert_eq!(code(&rig.get_feature(0x04, 0, 1 << 20)), OK);
}

fn queues(rig: &mut Rig) -> [Pair; 2] {
    let cqe = rig.set_feature(0x07, 0x0007_0007);
    assert_eq!(
        (code(&cqe), cqe.dw0),
        (OK, 0x0003_0003),
        "eight wanted, four offered"
    );
    [1, 2].map(|qid| Pair::with_vector(rig, qid, 64))
}

/// Asynchronous events: OAES tells which, then one request is left outstanding.
fn events(rig: &mut Rig) {
    let id = rig.identify(0x01, 0, 0).unwrap();
    // Namespace attributes, firmware activation, asymmetric access, discovery: what it knows of
    // them.
    let wanted = u32_at(&id, 92) & (1 << 8 | 1 << 9 | 1 << 11 | 1 << 31);
    assert_eq!(wanted >> 8 & 1, 1, "changes of namespaces are told");
    assert_eq!(code(&rig.set_feature(0x0b, wanted)), OK);
    rig.async_event();
    rig.turns(2);
    assert!(rig.peek().is_none(), "the request is held");
}

fn scan(rig: &mut Rig) {
    let list = rig.identify(0x02, 0, 0).unwrap();
    assert_eq!(
        [u32_at(&list, 0), u32_at(&list, 4), u32_at(&list, 8)],
        [1, 3, 0]
    );
    for nsid in [1, 3] {
        let descriptors = rig.identify(0x03, nsid, 0).unwrap();
        assert!((1..=4).contains(&descriptors[0]), "a type it knows");
        assert!(has_command_set(&descriptors), "CSI: the NVM command set");
        let independent = rig.identify(0x08, nsid, 0).unwrap();
        assert_eq!(independent[14] & 1, 1, "the namespace is ready");
        let namespace = rig.identify(0x00, nsid, 0).unwrap();
        assert_eq!(u64_at(&namespace, 0), 2048);
        let format = usize::from(namespace[26] & 0xf);
        assert_eq!(namespace[128 + 4 * format + 2], 9, "LBADS");
        assert!(rig.identify(0x05, nsid, 0).is_ok());
    }
    // Identifiers that stay tell a disk from another: at least one of the two is there for
    // namespace 1.
    let namespace = rig.identify(0x00, 1, 0).unwrap();
    assert!(namespace[104..128].iter().any(|byte| *byte != 0));
}

/// Whether the list of descriptors has type 4 with CSI 0 (Base 2.1, 5.1.13.2.3).
fn has_command_set(descriptors: &[u8]) -> bool {
    let mut at = 0;
    while descriptors[at] != 0 {
        if descriptors[at] == 4 {
            return descriptors[at + 1] == 1 && descriptors[at + 4] == 0;
        }
        at += 4 + usize::from(descriptors[at + 1]);
    }
    false
}

/// nvme_dev_disable: queues go, then the controller.
fn disable(rig: &mut Rig, pairs: &[Pair]) {
    for pair in pairs {
        assert_eq!(rig.delete_sq(pair.qid), OK);
    }
    for pair in pairs {
        assert_eq!(rig.delete_cq(pair.qid), OK);
    }
    rig.clear_enable();
}

/// A namespace comes while the system runs: the event, the list of changed namespaces, a scan, the
/// next request.
#[test]
fn a_namespace_that_comes_is_scanned() {
    let mut rig = Rig::new();
    enable(&mut rig);
    let mut pairs = queues(&mut rig);
    events(&mut rig);
    let mut added = namespaces();
    added.push(port::testing::namespace(2, port::ChannelId(1), 1024));
    rig.set_namespaces(added);
    rig.turns(4);
    let event = rig.reap().expect("an event");
    assert_eq!(
        event.dw0, 0x0004_0002,
        "a notice: namespace attribute changed"
    );
    // nvme_clear_changed_ns_log reads all of the page, which lets the next event come.
    let changed = rig.log(0x04, 0, 4096).unwrap();
    assert_eq!([u32_at(&changed, 0), u32_at(&changed, 4)], [2, 0]);
    let list = rig.identify(0x02, 0, 0).unwrap();
    assert_eq!(
        [0, 4, 8].map(|at| u32_at(&list, at)),
        [1, 2, 3],
        "the scan finds it"
    );
    assert_eq!(
        u64_at(&rig.identify(0x00, 2, 0).unwrap(), 0),
        1024,
        "its size"
    );
    rig.async_event();
    write_and_read(&mut rig, &mut pairs[0], 2, 1023);
    // And goes: the list names it again, and its commands fail for good.
    rig.set_namespaces(namespaces());
    rig.turns(4);
    assert_eq!(rig.reap().map(|event| event.dw0), Some(0x0004_0002));
    let changed = rig.log(0x04, 0, 4096).unwrap();
    assert_eq!(u32_at(&changed, 0), 2);
    let read = io(&rig, READ, 2, 0, 1);
    let cqe = pairs[0].run(&mut rig, read);
    assert_ne!(code(&cqe), OK);
    assert!(cqe.status.dnr(), "or it would be tried again");
}

/// nvme_timeout: an Abort, and when the command still does not come, a reset; then everything is
/// created again.
#[test]
fn a_command_that_hangs_is_aborted_and_then_reset() {
    use port::testing::Manner;
    let mut rig = Rig::new();
    enable(&mut rig);
    let mut pairs = queues(&mut rig);
    rig.medium(0).manner = Manner::Hanging;
    let read = io(&rig, READ, 1, 0, 1);
    let cid = pairs[0].put(&rig, read);
    pairs[0].ring(&mut rig);
    rig.turns(4);
    // It has polled the queue before: nothing is there.
    assert!(pairs[0].take(&mut rig).is_none());
    let abort = Sqe {
        opcode: ABORT,
        cdw10: u32::from(cid) << 16 | 1,
        ..Sqe::default()
    };
    let aborted = rig.admin(abort);
    assert_eq!(
        (code(&aborted), aborted.dw0),
        (OK, 1),
        "answered, and not aborted"
    );
    // The reset does not wait for queues that do not answer.
    rig.write32(CC, rig.read32(CC) & !1);
    rig.turns(4);
    assert_eq!(rig.csts() & RDY, RDY, "the read still hangs");
    rig.wait(4 * SECOND);
    rig.wait_ready(false);
    rig.medium(0).manner = Manner::Asynchronous;
    rig.medium(0).release(1);
    enable(&mut rig);
    let mut pairs = queues(&mut rig);
    write_and_read(&mut rig, &mut pairs[0], 1, 5);
}

/// `nvme format`: the effects of the command tell the kernel to look at everything again, and the
/// disk has other blocks then.
#[test]
fn a_format_is_followed_by_a_scan() {
    let mut rig = Rig::new();
    enable(&mut rig);
    let mut pairs = queues(&mut rig);
    events(&mut rig);
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!(u16_at(&id, 256) >> 1 & 1, 1, "OACS: Format NVM");
    let effects = u32_at(&rig.log(0x05, 0, 4096).unwrap(), 4 * 0x80);
    assert_eq!(effects & 1, 1, "it is supported");
    assert_eq!(
        effects >> 1 & 1,
        1,
        "and changes blocks: the disk is frozen"
    );
    assert_ne!(effects >> 2 & 0b11, 0, "and namespaces: the kernel scans");
    let namespace = rig.identify(0x00, 1, 0).unwrap();
    assert_eq!(namespace[25], 1, "two formats");
    assert_eq!(namespace[128 + 4 + 2], 12, "the second has blocks of 4 KiB");
    write_and_read(&mut rig, &mut pairs[0], 1, 8);
    let format = Sqe {
        opcode: 0x80,
        nsid: 1,
        cdw10: 1,
        ..Sqe::default()
    };
    assert_eq!(rig.status(format), OK);
    // nvme_passthru_end: the controller first, then all namespaces.
    assert!(rig.identify(0x01, 0, 0).is_ok());
    let namespace = rig.identify(0x00, 1, 0).unwrap();
    assert_eq!((namespace[26] & 0xf, u64_at(&namespace, 0)), (1, 256));
    // The partition table is read from the first block, and nothing is left of what was there.
    let read = io(&rig, READ, 1, 1, 1);
    assert_eq!(pairs[0].status(&mut rig, read), OK);
    let block = rig.host.read(rig.data_page(), 4096);
    assert!(block.iter().all(|byte| *byte == 0));
    let behind = io(&rig, READ, 1, 256, 1);
    assert_eq!(pairs[0].status(&mut rig, behind), LBA_OUT_OF_RANGE);
    assert!(rig.peek().is_none(), "its own change is no event to it");
}
