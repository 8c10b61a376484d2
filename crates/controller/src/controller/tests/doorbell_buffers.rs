//! Doorbell Buffer Config (Base 2.1, 5.2.5): when it is taken, and how long it lasts.

use memory::Iova;
use nvme_spec::Sqe;

use super::rig::*;
use crate::config::DoorbellMode;

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

/// A host that uses the buffers for queue 0, too, as libvfn does: it stores each doorbell there and
/// writes the register only past EventIdx.
struct Buffers {
    rig: Rig,
    tail: u32,
    head: u32,
    /// Registers written.
    rung: u32,
}

const ENTRIES: u32 = 32;
const SHADOW: u64 = 200;
const EVENT_IDX: u64 = 201;

impl Buffers {
    fn new() -> Self {
        Self::on(Rig::enabled())
    }

    fn on(mut rig: Rig) -> Self {
        assert_eq!(register(&mut rig), OK);
        Buffers {
            rig,
            tail: 1,
            head: 1,
            rung: 0,
        }
    }

    fn at(&self, page: u64, slot: u64) -> Iova {
        Iova(self.rig.host.page(page).0 + 4 * slot)
    }

    fn ring(&mut self, slot: u64, value: u32) {
        let (shadow, event_idx) = (self.at(SHADOW, slot), self.at(EVENT_IDX, slot));
        let old = self.rig.host.read_u32(shadow) as u16;
        self.rig.host.write(shadow, &value.to_le_bytes());
        let event = self.rig.host.read_u32(event_idx) as u16;
        let new = value as u16;
        if new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old) {
            self.rung += 1;
            self.rig.write32(0x1000 + 4 * slot, value);
        }
    }

    fn put(&mut self, cid: u16) {
        let sqe = Sqe {
            opcode: KEEP_ALIVE,
            cid,
            ..Sqe::default()
        };
        let words = sqe.to_words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = Iova(self.rig.host.page(0).0 + u64::from(self.tail) * 64);
        self.rig.host.write(at, &bytes);
        self.tail = (self.tail + 1) % ENTRIES;
    }

    fn take(&mut self, round: u32) -> Option<u16> {
        let at = Iova(self.rig.host.page(1).0 + u64::from(self.head) * 16 + 12);
        let word = self.rig.host.read_u32(at);
        if word >> 16 & 1 != 1 - round % 2 {
            return None;
        }
        self.head = (self.head + 1) % ENTRIES;
        Some(word as u16)
    }
}

/// Doorbell Buffer Config with cleared pages.
fn register(rig: &mut Rig) -> u16 {
    let (prp1, prp2) = (rig.host.page(SHADOW).0, rig.host.page(EVENT_IDX).0);
    rig.status(Sqe {
        opcode: DOORBELL_BUFFERS,
        prp1,
        prp2,
        ..Sqe::default()
    })
}

#[test]
fn a_host_that_uses_the_buffers_for_queue_0_is_asked_to_ring_for_every_admin_command() {
    let mut host = Buffers::new();
    let mut taken = 1;
    for batch in 0..100u16 {
        // The one that completed the registration was the first of the queue.
        let count = batch % 7 + 1;
        (0..count).for_each(|index| host.put(100 + index));
        let rung = host.rung;
        host.ring(0, host.tail);
        assert_eq!(host.rung, rung + 1, "batch {batch}: it sleeps otherwise");
        host.rig.turns(2);
        for index in 0..count {
            let round = taken / ENTRIES;
            assert_eq!(host.take(round), Some(100 + index), "batch {batch}");
            taken += 1;
        }
        host.ring(1, host.head);
        host.rig.turns(2);
        let armed = |slot| host.rig.host.read_u32(host.at(EVENT_IDX, slot));
        assert_eq!((armed(0), armed(1)), (host.tail, host.head));
        let shadow = |slot| host.rig.host.read_u32(host.at(SHADOW, slot));
        assert_eq!(
            (shadow(0), shadow(1)),
            (host.tail, host.head),
            "never written by us"
        );
        assert!(!host.rig.controller.has_work());
    }
}

#[test]
fn a_buffered_tail_of_queue_0_is_found_without_its_register_write_before_a_sleep() {
    let mut host = Buffers::new();
    host.rig.turns(2);
    host.put(7);
    // The host saw a previous EventIdx, so it wrote no register.
    let tail = host.tail;
    let shadow = host.at(SHADOW, 0);
    host.rig.host.write(shadow, &tail.to_le_bytes());
    assert!(host.rig.controller.has_work(), "the second look");
    host.rig.turns(2);
    assert_eq!(host.take(0), Some(7));
}

#[test]
fn an_admin_command_in_the_buffers_waits_for_the_messages_that_were_sent_before_it() {
    let mut rig = Rig::enabled();
    rig.controller.expect_messages();
    let mut host = Buffers::on(rig);
    // A write of another doorbell is on its way when this one shows.
    for cid in [7, 8] {
        host.put(cid);
        host.ring(0, host.tail);
        host.rig.turns(2);
        assert_eq!(host.take(0), None);
        assert!(host.rig.controller.waits_for_messages());
        assert!(host.rig.controller.has_work(), "it does not sleep");
        host.rig.controller.messages_read();
        assert!(!host.rig.controller.waits_for_messages());
        host.rig.turns(2);
        assert_eq!(host.take(0), Some(cid));
    }
    // One that shows after the messages were read waits for the next time.
    host.put(9);
    host.ring(0, host.tail);
    host.rig.turns(1);
    host.put(10);
    host.ring(0, host.tail);
    host.rig.controller.messages_read();
    host.rig.turns(2);
    assert_eq!((host.take(0), host.take(0)), (Some(9), None));
    host.rig.controller.messages_read();
    host.rig.turns(2);
    assert_eq!(host.take(0), Some(10));
}

#[test]
fn a_late_register_write_of_queue_0_does_not_take_its_tail_back() {
    let mut host = Buffers::new();
    host.put(1);
    host.ring(0, host.tail);
    host.rig.turns(2);
    host.put(2);
    host.ring(0, host.tail);
    host.rig.turns(2);
    host.rig.write32(0x1000, 2);
    host.rig.turns(2);
    assert_eq!(host.rig.csts() & CFS, 0);
    assert_eq!((host.take(0), host.take(0)), (Some(1), Some(2)));
    host.put(3);
    host.ring(0, host.tail);
    host.rig.turns(2);
    assert_eq!(host.take(0), Some(3), "the queue is not frozen");
}

#[test]
fn a_host_that_writes_only_the_registers_of_queue_0_is_served_as_before() {
    let mut rig = Rig::enabled();
    assert_eq!(register(&mut rig), OK);
    for _ in 0..100 {
        assert!(rig.identify(0x01, 0, 0).is_ok());
    }
    let page = rig.host.page(SHADOW);
    assert!(rig.host.read(page, 4096).iter().all(|byte| *byte == 0));
}

#[test]
fn event_idx_of_queue_0_is_written_again_when_its_page_comes_back() {
    let mut host = Buffers::new();
    host.rig.turns(2);
    host.rig.host.unmap_pages(0, PAGES);
    host.rig.host.map_pages(0, EVENT_IDX);
    host.rig
        .host
        .map_pages(EVENT_IDX + 1, PAGES - EVENT_IDX - 1);
    host.rig.tell_view();
    host.rig.turns(2);
    // The register counts until the buffer has moved.
    host.put(1);
    host.rig.write32(0x1000, host.tail);
    host.rig.turns(2);
    assert_eq!(host.take(0), Some(1));
    host.rig.host.map_pages(EVENT_IDX, 1);
    host.rig.tell_view();
    host.rig.turns(2);
    let at = host.at(EVENT_IDX, 0);
    assert_eq!(host.rig.host.read_u32(at), host.tail);
}

#[test]
fn a_tail_of_queue_0_that_cannot_be_in_both_places_freezes_it() {
    let mut host = Buffers::new();
    host.rig.async_event();
    host.rig.turns(2);
    host.tail = 2;
    host.ring(0, host.tail);
    host.rig.turns(2);
    host.ring(0, 77);
    host.put(3);
    host.ring(0, host.tail);
    host.rig.turns(4);
    let posted = host.take(0).and_then(|_| host.take(0));
    assert_eq!(posted, None, "no more than the event");
}
