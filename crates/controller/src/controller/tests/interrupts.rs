//! Which interrupts there are, and when (Base 2.1, 3.1.4.3, 3.1.4.4; PCIe Transport 1.1, 3.5).

use memory::Iova;
use nvme_spec::Sqe;

use super::rig::*;
use crate::controller::Interrupt::{self, Message, Pin, Vector};

// Configuration space (PCI 3.0): Command, Status, Message Control of MSI and of MSI-X.
const COMMAND: u64 = 0x04;
const STATUS: u64 = 0x06;
const MSI: u64 = 0x52;
const MSIX: u64 = 0xb2;
const INTERRUPT_DISABLE: u16 = 1 << 10;
const MSIX_ENABLE: u16 = 1 << 15;
/// How long a handler is waited for.
const HANDLER: u64 = 10_000_000;
/// How long the handler's look at the next queue is waited for.
const NEXT_QUEUE: u64 = 200_000;
/// The shadow doorbells' page; that of EventIdx is the next.
const SHADOW: u64 = 200;

/// A controller with a pin, and a queue pair.
fn rig() -> Rig {
    let mut config = config();
    config.intx = true;
    let mut rig = Rig::with(config);
    rig.enable();
    rig.create_pair(1, 8);
    rig.handler_ends();
    rig
}

impl Rig {
    fn set_config(&mut self, at: u64, value: u16) {
        self.controller.config_write(at, &value.to_le_bytes());
        self.turn();
        self.raised();
    }

    fn interrupt_status(&mut self) -> bool {
        self.controller.refresh_interrupt_status(&mut self.lanes);
        let mut status = [0; 2];
        self.controller.config_read(STATUS, &mut status);
        status[0] >> 3 & 1 == 1
    }

    /// Interrupts raised since the last call.
    pub(super) fn raised(&mut self) -> Vec<Interrupt> {
        std::mem::take(&mut self.interrupts)
    }

    /// Runs read `index` of queue `qid`; what it raised. The host does not acknowledge it.
    pub(super) fn raised_by_read(&mut self, qid: u16, index: u32) -> Vec<Interrupt> {
        self.turn();
        self.raised();
        let sqe = self.read_sqe(index as u16, 1);
        self.submit_io(qid, index, sqe);
        self.turns(2);
        assert!(self.io_cqe(qid, index).is_some());
        self.raised()
    }

    /// The host acknowledges everything before `head`.
    fn acknowledge(&mut self, qid: u16, head: u32) {
        self.write32(0x1004 + 8 * u64::from(qid), head);
    }

    /// The host has had its time to acknowledge.
    fn handler_ends(&mut self) {
        for _ in 0..2 {
            self.turn();
            self.now = self.now + HANDLER;
        }
        self.raised();
    }

    /// The same, when the host had time to acknowledge what came before.
    fn raised_by_late_read(&mut self, qid: u16, index: u32) -> Vec<Interrupt> {
        self.handler_ends();
        self.raised_by_read(qid, index)
    }

    /// Interrupts that another look at the queues raises, when the host had time to acknowledge.
    fn looked_again(&mut self) -> Vec<Interrupt> {
        self.handler_ends();
        self.controller.recheck_interrupts(false);
        assert!(self.controller.has_work());
        self.turn();
        self.raised()
    }
}

#[test]
fn msix_raises_the_queues_vector_whatever_is_masked_or_acknowledged() {
    let mut rig = rig();
    rig.set_config(MSIX, MSIX_ENABLE);
    rig.write32(INTMS, !0);
    assert_eq!(rig.raised_by_late_read(1, 0), [Vector(1)]);
    rig.write32(INTMC, !0);
    rig.turn();
    assert_eq!(rig.raised_by_late_read(1, 1), [Vector(1)]);
    assert!(!rig.interrupt_status());
}

#[test]
fn a_message_for_each_vector_where_there_are_enough() {
    let mut rig = rig();
    // Five vectors; Multiple Message Enable, bits 6:4: eight messages.
    rig.set_config(MSI, 0b011 << 4 | 1);
    assert_eq!(rig.raised_by_late_read(1, 0), [Message(1)]);
    rig.create_pair(3, 8);
    assert_eq!(rig.raised_by_late_read(3, 0), [Message(3)]);
    // Two messages: vectors 1 and 3 share the second.
    rig.set_config(MSI, 0b001 << 4 | 1);
    assert_eq!(rig.raised_by_late_read(3, 1), [Message(1)]);
    // One.
    rig.set_config(MSI, 1);
    assert_eq!(rig.raised_by_late_read(3, 2), [Message(0)]);
}

#[test]
fn a_message_is_sent_when_its_mask_goes_and_entries_are_unacknowledged() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.set_config(MSI, 0b011 << 4 | 1);
    rig.write32(INTMS, 0b10);
    assert_eq!(rig.raised_by_late_read(1, 0), []);
    rig.write32(INTMC, 0b01);
    rig.turn();
    assert_eq!(rig.raised(), [], "another vector's mask");
    rig.write32(INTMC, 0b10);
    rig.turn();
    assert_eq!(rig.raised(), [Message(1)]);
    // Acknowledged while masked: there is nothing to tell.
    rig.write32(INTMS, 0b10);
    assert_eq!(rig.raised_by_late_read(1, 1), []);
    rig.acknowledge(1, 2);
    rig.write32(INTMC, 0b10);
    rig.turn();
    assert_eq!(rig.raised(), []);
    // Masked and unmasked between two turns, with an entry that its handler has left.
    assert_eq!(rig.raised_by_late_read(1, 2), [Message(1)]);
    rig.write32(INTMS, 0b10);
    rig.write32(INTMC, 0b10);
    rig.turn();
    assert_eq!(rig.raised(), [Message(1)]);
}

#[test]
fn the_pin_is_a_level_of_every_queue() {
    let mut rig = rig();
    assert_eq!(rig.looked_again(), [Pin(false)]);
    assert!(!rig.interrupt_status());
    assert_eq!(rig.raised_by_late_read(1, 0), [Pin(true)]);
    assert_eq!(rig.looked_again(), [Pin(true)]);
    assert!(rig.interrupt_status());
    // The admin queue asserts it, too.
    rig.submit(Sqe {
        opcode: 0x7f,
        ..Sqe::default()
    });
    rig.turns(2);
    rig.acknowledge(1, 1);
    assert_eq!(rig.looked_again(), [Pin(true)]);
    rig.reap();
    assert_eq!(rig.looked_again(), [Pin(false)]);
    assert!(!rig.interrupt_status());
    // The next one asserts it again.
    assert_eq!(rig.raised_by_late_read(1, 1), [Pin(true)]);
}

#[test]
fn an_acknowledgement_by_message_is_looked_at() {
    let mut rig = rig();
    rig.raised_by_read(1, 0);
    rig.raised_by_read(1, 1);
    rig.acknowledge(1, 1);
    rig.turn();
    assert_eq!(
        rig.raised(),
        [],
        "the handler may be about to find the other"
    );
    rig.now = rig.now + NEXT_QUEUE;
    rig.turn();
    assert_eq!(rig.raised(), [Pin(true)]);
    rig.acknowledge(1, 2);
    rig.turn();
    assert_eq!(rig.raised(), [Pin(false)]);
}

#[test]
fn intms_holds_the_pin_down_and_intmc_lets_it_rise() {
    let mut rig = rig();
    rig.write32(INTMS, 0b10);
    assert_eq!(rig.raised_by_late_read(1, 0), [Pin(false)]);
    assert_eq!(rig.looked_again(), [Pin(false)]);
    assert!(!rig.interrupt_status());
    rig.write32(INTMC, 0b10);
    rig.turn();
    assert_eq!(rig.raised(), [Pin(true)]);
    assert!(rig.interrupt_status());
}

#[test]
fn a_disabled_pin_is_not_asserted_and_its_status_shows() {
    let mut rig = rig();
    rig.set_config(COMMAND, INTERRUPT_DISABLE);
    assert_eq!(rig.raised_by_late_read(1, 0), []);
    assert!(
        rig.interrupt_status(),
        "PCI 3.0, 6.2.3: pending all the same"
    );
    rig.controller.config_write(COMMAND, &[0, 0]);
    rig.turn();
    assert_eq!(rig.raised(), [Pin(true)]);
}

#[test]
fn messages_take_the_pin_down() {
    for (at, value, by_message) in [(MSI, 1, Message(0)), (MSIX, MSIX_ENABLE, Vector(1))] {
        let mut rig = rig();
        rig.raised_by_late_read(1, 0);
        rig.controller.config_write(at, &u16::to_le_bytes(value));
        rig.turn();
        let raised = rig.raised();
        assert_eq!(raised[0], Pin(false));
        assert_eq!(raised[1..].contains(&by_message), at == MSI);
        assert!(!rig.interrupt_status());
        assert_eq!(rig.raised_by_late_read(1, 1), [by_message]);
        // And back.
        rig.controller.config_write(at, &[0, 0]);
        rig.turn();
        assert_eq!(rig.raised(), [Pin(true)]);
    }
}

#[test]
fn a_controller_without_a_pin_asserts_none() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    assert_eq!(rig.raised_by_late_read(1, 0), [Vector(1)]);
    assert_eq!(rig.looked_again(), []);
    assert!(!rig.interrupt_status());
}

#[test]
fn a_queue_without_interrupts_asserts_nothing() {
    let mut rig = rig();
    let cq = rig.create_cq_sqe(2, 8);
    // IEN, bit 1.
    let cdw11 = cq.cdw11 & !0b10;
    assert_eq!(rig.status(Sqe { cdw11, ..cq }), OK);
    let sq = rig.create_sq_sqe(2, 2, 8);
    assert_eq!(rig.status(sq), OK);
    assert_eq!(rig.raised_by_late_read(2, 0), []);
    assert_eq!(rig.looked_again(), [Pin(false)]);
}

#[test]
fn a_frozen_queue_does_not_hold_the_pin_up() {
    let mut rig = rig();
    rig.raised_by_late_read(1, 0);
    rig.acknowledge(1, 5);
    assert_eq!(rig.looked_again(), [Pin(false)], "5 was never posted");
}

#[test]
fn the_pin_falls_with_a_reset_and_with_a_deleted_queue() {
    let mut rig = rig();
    rig.raised_by_late_read(1, 0);
    assert_eq!((rig.delete_sq(1), rig.delete_cq(1)), (OK, OK));
    assert_eq!(rig.looked_again(), [Pin(false)]);
    rig.create_pair(2, 8);
    rig.raised_by_late_read(2, 0);
    assert_eq!(rig.looked_again(), [Pin(true)]);
    rig.disable();
    assert_eq!(rig.looked_again(), [Pin(false)]);
    assert!(!rig.interrupt_status());
}

/// Neither the register nor a mapped page shows it: the host acknowledges in its doorbell buffers.
#[test]
fn with_doorbell_buffers_the_host_is_asked_to_ring_for_each_acknowledgement() {
    let mut rig = rig();
    let (shadow, event_idx) = (rig.host.page(SHADOW), rig.host.page(SHADOW + 1));
    assert_eq!(
        rig.status(Sqe {
            opcode: DOORBELL_BUFFERS,
            prp1: shadow.0,
            prp2: event_idx.0,
            ..Sqe::default()
        }),
        OK
    );
    // Head doorbell of queue 1: slot 3.
    let (head, wanted) = (shadow.0 + 12, event_idx.0 + 12);
    rig.host.write(Iova(wanted), &[0xee; 4]);
    assert_eq!(rig.raised_by_late_read(1, 0), [Pin(true)]);
    assert_eq!(rig.host.read_u32(Iova(wanted)), 0, "ring past 0");
    rig.host.write(Iova(head), &1u32.to_le_bytes());
    assert_eq!(rig.looked_again(), [Pin(false)]);
    let armed = rig.host.read_u32(Iova(wanted));
    assert_eq!(armed, 1, "for what is not posted yet, too");
    rig.raised_by_late_read(1, 1);
    assert_eq!(rig.raised_by_late_read(1, 2), [Pin(true)]);
    assert_eq!(rig.host.read_u32(Iova(wanted)), 1);
    // It has acknowledged one of two, and has rung: the next look asks for the next.
    rig.host.write(Iova(head), &2u32.to_le_bytes());
    assert_eq!(rig.looked_again(), []);
    assert_eq!(rig.host.read_u32(Iova(wanted)), 2);
    rig.now = rig.now + NEXT_QUEUE;
    rig.turn();
    assert_eq!(rig.raised(), [Pin(true)]);
}

/// Where the buffers' page went away for a while, it is asked again.
#[test]
fn the_host_is_asked_to_ring_again_after_its_memory_was_mapped_anew() {
    let mut rig = rig();
    let (shadow, event_idx) = (rig.host.page(SHADOW), rig.host.page(SHADOW + 1));
    let sqe = Sqe {
        opcode: DOORBELL_BUFFERS,
        prp1: shadow.0,
        prp2: event_idx.0,
        ..Sqe::default()
    };
    assert_eq!(rig.status(sqe), OK);
    let wanted = Iova(event_idx.0 + 12);
    rig.host.write(wanted, &[0xee; 4]);
    rig.host.unmap_pages(0, PAGES);
    for (first, count) in [(0, SHADOW), (SHADOW + 2, PAGES - SHADOW - 2)] {
        rig.host.map_pages(first, count);
    }
    rig.tell_view();
    assert_eq!(rig.raised_by_late_read(1, 0), [Pin(true)]);
    rig.host.map_pages(SHADOW, 2);
    rig.tell_view();
    rig.turns(2);
    assert_eq!(rig.host.read_u32(wanted), 0);
}

#[test]
fn what_was_raised_is_counted() {
    let mut rig = rig();
    rig.raised_by_late_read(1, 0);
    rig.raised_by_late_read(1, 1);
    let counted: u64 = rig
        .lanes
        .iter()
        .map(|lane| lane.counters().interrupts.get())
        .sum();
    assert_eq!(counted, 2);
}

/// A monitor that takes any access for the end of an interrupt asks again while the handler is
/// still busy.
#[test]
fn a_level_that_was_told_is_not_told_again_before_the_handler_had_its_time() {
    let mut rig = rig();
    assert_eq!(rig.raised_by_read(1, 0), [Pin(true)]);
    let told = rig.now;
    rig.now = told + (HANDLER - 1);
    rig.controller.recheck_interrupts(false);
    rig.turn();
    assert_eq!(rig.raised(), []);
    // Nor what is posted meanwhile: the handler finds it.
    assert_eq!(rig.raised_by_read(1, 1), []);
    assert_eq!(rig.controller.next_deadline(), Some(told + HANDLER));
    // The handler does nothing, so it may not have been called.
    rig.now = told + HANDLER;
    rig.turn();
    assert_eq!(rig.raised(), [Pin(true)]);
    assert_eq!(rig.controller.next_deadline(), None);
    rig.controller.recheck_interrupts(false);
    rig.turn();
    assert_eq!(rig.raised(), [], "and that holds again");
    rig.acknowledge(1, 2);
    rig.turn();
    assert_eq!(rig.raised(), [Pin(false)]);
    assert_eq!(rig.controller.next_deadline(), None);
    // Entries that follow an acknowledgement raise the interrupt soon.
    assert_eq!(rig.raised_by_read(1, 2), []);
    assert_eq!(rig.controller.next_deadline(), Some(rig.now + NEXT_QUEUE));
    rig.now = rig.now + NEXT_QUEUE;
    rig.turn();
    assert_eq!(rig.raised(), [Pin(true)]);
}

#[test]
fn when_handlers_have_ended_a_level_is_told_at_once() {
    let mut rig = rig();
    assert_eq!(rig.raised_by_read(1, 0), [Pin(true)]);
    rig.controller.recheck_interrupts(true);
    rig.turn();
    assert_eq!(rig.raised(), [Pin(true)]);
    assert_eq!(rig.raised_by_read(1, 1), []);
    rig.acknowledge(1, 1);
    rig.turn();
    assert_eq!(rig.raised(), []);
    rig.controller.recheck_interrupts(true);
    rig.turn();
    assert_eq!(rig.raised(), [Pin(true)]);
    assert_eq!(rig.controller.next_deadline(), None);
}

#[test]
fn what_a_mask_held_back_is_told_at_once() {
    let mut rig = rig();
    assert_eq!(rig.raised_by_read(1, 0), [Pin(true)]);
    rig.write32(INTMS, 0b10);
    rig.turn();
    rig.write32(INTMC, 0b10);
    rig.turn();
    assert_eq!(rig.raised(), [Pin(true)]);
    rig.controller
        .config_write(COMMAND, &INTERRUPT_DISABLE.to_le_bytes());
    rig.turn();
    rig.controller.config_write(COMMAND, &[0, 0]);
    rig.turn();
    assert_eq!(rig.raised(), [Pin(false), Pin(true)]);
}

#[test]
fn the_admin_queue_is_masked_by_the_first_bit_and_asks_for_nothing_when_frozen() {
    let mut rig = rig();
    rig.submit(Sqe {
        opcode: 0x7f,
        ..Sqe::default()
    });
    rig.turns(2);
    assert_eq!(rig.looked_again(), [Pin(true)]);
    rig.write32(INTMS, 0b01);
    assert_eq!(rig.looked_again(), [Pin(false)]);
    rig.write32(INTMC, 0b01);
    assert_eq!(rig.looked_again(), [Pin(true)]);
    // A head that was never posted.
    rig.write32(0x1004, 31);
    assert_eq!(rig.looked_again(), [Pin(false)]);
}
