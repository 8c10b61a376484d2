//! FreeBSD, sys/dev/nvme: attach, interrupts by MSI-X and by the pin, events, shutdown.
//!
//! From the driver's public source: admin queues have 128 entries; the threshold feature is read
//! before temperature warnings are asked for; as many event requests as AERL allows, at most eight,
//! are left outstanding; every namespace up to NN is identified and taken where NSZE is not 0;
//! interrupt coalescing is always set; a shared interrupt handler masks by INTMS, looks at all
//! queues, and unmasks by INTMC. A shutdown waits for SHST.

use super::super::rig::*;
use super::*;
use crate::controller::Interrupt;

fn attach(rig: &mut Rig) -> Vec<u32> {
    rig.write32(CC, 0);
    rig.wait_ready(false);
    rig.set_admin_queues(128);
    rig.write32(CC, CC_ENABLE);
    rig.wait_ready(true);
    let id = rig.identify(0x01, 0, 0).unwrap();
    // Its queue pairs: as many as it gets.
    let cqe = rig.set_feature(0x07, 0x000f_000f);
    assert_eq!((code(&cqe), cqe.dw0), (OK, 0x0003_0003));
    (1..=u32_at(&id, 516).min(16))
        .filter(|nsid| {
            let namespace = rig.identify(0x00, *nsid, 0).unwrap();
            u64_at(&namespace, 0) != 0
        })
        .collect()
}

/// nvme_ctrlr_configure_aer. How many requests are outstanding.
fn events(rig: &mut Rig) -> usize {
    let id = rig.identify(0x01, 0, 0).unwrap();
    let threshold = rig.get_feature(0x04, 0, 0);
    assert_eq!(code(&threshold), OK);
    let told = !matches!(threshold.dw0 & 0xffff, 0 | 0xffff);
    // Spare, reliability, read only, backup; the temperature where there is a threshold; namespaces
    // and firmware.
    let wanted = 0x1d | u32::from(told) << 1 | 1 << 8 | 1 << 9;
    assert_eq!(code(&rig.set_feature(0x0b, wanted)), OK);
    let requests = (usize::from(id[259]) + 1).min(8);
    for _ in 0..requests {
        rig.async_event();
    }
    rig.turns(4);
    assert!(rig.peek().is_none(), "all of them are held");
    requests
}

#[test]
fn attaches_with_a_vector_for_each_queue() {
    let mut rig = Rig::new();
    assert_eq!(attach(&mut rig), [1, 3]);
    assert_eq!(code(&rig.set_feature(0x08, 0)), OK, "coalescing");
    events(&mut rig);
    let mut pairs = [1, 2, 3, 4].map(|qid| Pair::with_vector(&mut rig, qid, 64));
    for pair in &mut pairs {
        rig.turns(2);
        rig.interrupts.clear();
        write_and_read(&mut rig, pair, 3, 77);
        let own = Interrupt::Vector(pair.qid);
        assert_eq!(rig.interrupts, [own, own]);
    }
    for qid in 1..=4 {
        assert_eq!(rig.delete_sq(qid), OK);
        assert_eq!(rig.delete_cq(qid), OK);
    }
    rig.shut_down();
}

/// nvme_ctrlr_shared_handler, where there is neither MSI-X nor MSI: one pin for all queues.
#[test]
fn one_pin_serves_all_queues() {
    let mut config = config();
    config.intx = true;
    let mut rig = Rig::with(config);
    // Function Mask and Enable of MSI-X stay 0.
    attach(&mut rig);
    let mut pairs = [1, 2].map(|qid| Pair::create(&mut rig, qid, 64, IEN | PC, PC));
    rig.wait(SECOND);
    for round in 0..40 {
        let read = io(&rig, READ, 1, round, 1);
        for pair in &mut pairs {
            pair.put(&rig, read);
            pair.ring(&mut rig);
        }
        rig.interrupts.clear();
        rig.turns(4);
        assert_eq!(
            rig.interrupts.last(),
            Some(&Interrupt::Pin(true)),
            "{round}"
        );
        // The handler: masked, everything is taken, unmasked.
        rig.write32(INTMS, 1);
        for pair in &mut pairs {
            assert_eq!(pair.take(&mut rig).map(|cqe| code(&cqe)), Some(OK));
        }
        rig.write32(INTMC, 1);
        rig.turns(2);
        assert_eq!(
            rig.interrupts.last(),
            Some(&Interrupt::Pin(false)),
            "nothing is left: it would be called for ever"
        );
    }
    // Unmasking raises the interrupt that came while it was masked.
    let read = io(&rig, READ, 1, 0, 1);
    rig.write32(INTMS, 1);
    rig.interrupts.clear();
    pairs[1].put(&rig, read);
    pairs[1].ring(&mut rig);
    rig.turns(4);
    assert!(!rig.interrupts.contains(&Interrupt::Pin(true)));
    rig.write32(INTMC, 1);
    rig.turns(2);
    assert_eq!(rig.interrupts.last(), Some(&Interrupt::Pin(true)));
}

/// With one message of MSI it masks in the same way.
#[test]
fn masks_interrupts_and_sets_coalescing() {
    let mut rig = Rig::enabled();
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

/// nvme_ctrlr_async_event_log_page_cb: a critical warning is read, no longer asked for, and the
/// request comes again.
#[test]
fn a_warning_is_asked_for_no_more_and_told_once() {
    let mut rig = Rig::new();
    attach(&mut rig);
    // Somebody has set a threshold, or the driver takes it that there are none.
    assert_eq!(code(&rig.set_feature(0x04, 350)), OK);
    let requests = events(&mut rig);
    assert!(rig.peek().is_none());
    // It crosses what the temperature is.
    let smart = rig.log(0x02, 0, 512).unwrap();
    let threshold = u32::from(u16_at(&smart, 1)) - 1;
    assert_eq!(code(&rig.set_feature(0x04, threshold)), OK);
    rig.turns(4);
    let event = rig.reap().expect("an event");
    assert_eq!(event.dw0, 0x0002_0101, "health: temperature threshold");
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!(smart[0], 1 << 1);
    // It asks for everything but that warning, then gives the request back.
    assert_eq!(code(&rig.set_feature(0x0b, 0x31d & !(1 << 1))), OK);
    rig.async_event();
    rig.turns(4);
    assert!(rig.peek().is_none(), "told once");
    // As many are outstanding as before: one more is refused.
    let one_more = rig.async_event();
    rig.turns(2);
    let refused = rig.reap().map(|cqe| (cqe.cid, code(&cqe)));
    assert_eq!(requests, 4);
    assert_eq!(refused, Some((one_more, AER_LIMIT_EXCEEDED)));
}
