//! illumos, usr/src/uts/common/io/nvme.
//!
//! From the driver's public source: the admin queues have 256 entries where CAP allows it; an event
//! request is left outstanding before the controller is identified; error and health logs are read
//! at attach; the write cache is turned on where there is one; namespaces are identified up to NN
//! with their descriptors from version 1.3 on, and the common namespace, FFFFFFFFh, only where
//! Namespace Management is offered.

use super::super::rig::*;
use super::*;

fn attach(rig: &mut Rig) {
    let version = rig.read32(VS);
    assert!(version >> 16 >= 1);
    rig.write32(CC, rig.read32(CC) & !1);
    rig.wait_ready(false);
    let entries = (rig.read64(CAP) as u32 & 0xffff) + 1;
    rig.set_admin_queues(entries.min(64));
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    rig.async_event();
    let id = rig.identify(0x01, 0, 0).unwrap();
    assert_eq!((id[512], id[513]), (0x66, 0x44), "entry sizes it has");
    assert!(rig.log(0x01, 0, 64).is_ok());
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert!(u16_at(&smart, 1) > 0);
    assert_eq!(id[525] & 1, 1);
    assert_eq!(code(&rig.set_feature(0x06, 1)), OK);
    let management = u16_at(&id, 256) >> 3 & 1 == 1;
    match rig.identify(0x00, u32::MAX, 0) {
        Ok(common) => {
            assert!(management);
            assert_eq!(u64_at(&common, 0), 0);
        }
        Err(status) => {
            assert!(!management);
            assert_eq!(status, INVALID_NAMESPACE);
        }
    }
    let mut there = Vec::new();
    for nsid in 1..=u32_at(&id, 516) {
        let namespace = rig.identify(0x00, nsid, 0).unwrap();
        // One that is not active is all zeros, and ignored.
        if namespace.iter().any(|byte| *byte != 0) {
            there.push(nsid);
            assert!(rig.identify(0x03, nsid, 0).is_ok());
        }
    }
    assert_eq!(there, [1, 3]);
    assert!(rig.peek().is_none(), "the request is held all the time");
}

#[test]
fn attaches_reads_logs_and_works() {
    let mut rig = Rig::new();
    attach(&mut rig);
    let cqe = rig.set_feature(0x07, 0x0003_0003);
    assert_eq!((code(&cqe), cqe.dw0), (OK, 0x0003_0003));
    let mut pairs = [1, 2, 3, 4].map(|qid| Pair::with_vector(&mut rig, qid, 64));
    for pair in &mut pairs {
        write_and_read(&mut rig, pair, 1, 2000);
    }
}

/// nvme_quiesce: no time for anything but a shutdown, with everything in place; then the next
/// kernel attaches.
#[test]
fn fast_reboot_shuts_down_with_queues_in_place() {
    let mut rig = Rig::new();
    attach(&mut rig);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    write_and_read(&mut rig, &mut pair, 1, 1);
    rig.shut_down();
    rig.clear_enable();
    attach(&mut rig);
    let mut pair = Pair::with_vector(&mut rig, 1, 64);
    write_and_read(&mut rig, &mut pair, 1, 1);
}
