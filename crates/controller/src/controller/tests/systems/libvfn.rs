//! libvfn: a driver in user space that polls, over VFIO.
//!
//! From the driver's public source: doorbell buffers are registered as soon as the controller is
//! ready, and used from then on for every queue, that for admin commands included. A doorbell is
//! stored in the buffer; its register is written only where EventIdx lies between the buffer's old
//! value and the new one, both included, in 16 bits. Command identifiers are of no order; each
//! completion is acknowledged by itself.

use super::super::rig::*;
use super::*;

const ENTRIES: u32 = 32;
/// Pages of the admin queues.
const ASQ_AND_ACQ: [u64; 2] = [0, 1];

struct Driver {
    rig: Rig,
    buffers: Buffers,
    tail: u32,
    head: u32,
    phase: bool,
}

impl Driver {
    fn start(mut rig: Rig) -> Self {
        rig.clear_enable();
        rig.set_admin_queues(ENTRIES);
        rig.write32(CC, CC_ENABLE);
        rig.wait_ready(true);
        let buffers = Buffers::register(&mut rig);
        Driver {
            rig,
            buffers,
            // The registration went by the registers.
            tail: 1,
            head: 1,
            phase: true,
        }
    }

    fn ring(&mut self, slot: u64, value: u32) {
        let at = Iova(self.buffers.shadow.0 + 4 * slot);
        let old = self.rig.host.read_u32(at) as u16;
        self.rig.host.write_u32(at, value);
        let event_idx = Iova(self.buffers.event_idx.0 + 4 * slot);
        let event_idx = self.rig.host.read_u32(event_idx) as u16;
        let new = value as u16;
        if new.wrapping_sub(event_idx) <= new.wrapping_sub(old) {
            self.rig.write32(0x1000 + 4 * slot, value);
        }
    }

    /// Runs an admin command. Its server sleeps unless it has something to do.
    fn admin(&mut self, sqe: Sqe) -> u16 {
        let words = sqe.to_words();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = self.rig.host.page(ASQ_AND_ACQ[0]).0 + 64 * u64::from(self.tail);
        self.rig.host.write(Iova(at), &bytes);
        self.tail = (self.tail + 1) % ENTRIES;
        self.ring(0, self.tail);
        for _ in 0..16 {
            if self.rig.controller.has_work() {
                self.rig.turn();
            }
            let at = self.rig.host.page(ASQ_AND_ACQ[1]).0 + 16 * u64::from(self.head) + 12;
            let word = self.rig.host.read_u32(Iova(at));
            if (word >> 16 & 1 == 1) != self.phase {
                continue;
            }
            assert_eq!(word as u16, sqe.cid);
            self.head = (self.head + 1) % ENTRIES;
            self.phase ^= self.head == 0;
            self.ring(1, self.head);
            return (word >> 17) as u16 & 0x7ff;
        }
        panic!("admin command {:#x} was not answered", sqe.opcode);
    }

    /// Create I/O Completion Queue and Submission Queue, without interrupts.
    fn pair(&mut self) -> Pair {
        let (cq, sq) = (self.rig.cq_page(1), self.rig.sq_page(1));
        for (opcode, base, cdw11) in [(CREATE_CQ, cq, PC), (CREATE_SQ, sq, 1 << 16 | PC)] {
            let sqe = Sqe {
                opcode,
                cid: 9,
                prp1: base.0,
                cdw10: (64 - 1) << 16 | 1,
                cdw11,
                ..Sqe::default()
            };
            assert_eq!(self.admin(sqe), OK);
        }
        let mut pair = Pair::new(1, 64);
        pair.buffers = Some(self.buffers);
        pair
    }

    /// Takes the memory of queue pair 1 away and clears its doorbells' buffers, then deletes it.
    fn delete_pair(&mut self) {
        let queues = [
            (self.rig.sq_page(1), 2, DELETE_SQ),
            (self.rig.cq_page(1), 3, DELETE_CQ),
        ];
        for (page, slot, opcode) in queues {
            self.rig.unmap(page);
            for buffer in [self.buffers.shadow, self.buffers.event_idx] {
                self.rig.host.write_u32(Iova(buffer.0 + 4 * slot), 0);
            }
            self.rig.turns(4);
            let sqe = Sqe {
                opcode,
                cid: 9,
                cdw10: 1,
                ..Sqe::default()
            };
            assert_eq!(self.admin(sqe), OK);
        }
    }
}

#[test]
fn uses_doorbell_buffers_for_the_admin_queue_too() {
    let mut driver = Driver::start(Rig::new());
    for cid in 0..100 {
        let identify = Sqe {
            opcode: IDENTIFY,
            cid: 0x8000 ^ (cid * 7),
            prp1: driver.rig.data_page().0,
            cdw10: 1,
            ..Sqe::default()
        };
        assert_eq!(driver.admin(identify), OK, "{cid}");
    }
    let mut pair = driver.pair();
    for slba in 0..150 {
        write_and_read(&mut driver.rig, &mut pair, 1, slba);
    }
}

#[test]
fn deletes_queues_whose_memory_it_has_taken_away() {
    let mut driver = Driver::start(Rig::new());
    let mut pair = driver.pair();
    for slba in 0..5 {
        write_and_read(&mut driver.rig, &mut pair, 1, slba);
    }
    driver.delete_pair();
    assert_eq!(driver.rig.csts(), RDY);
}

#[test]
fn begins_again_after_a_reset_with_the_same_pages() {
    let mut rig = Rig::new();
    for _ in 0..3 {
        let mut driver = Driver::start(rig);
        for cid in 0..40 {
            let alive = Sqe {
                opcode: KEEP_ALIVE,
                cid,
                ..Sqe::default()
            };
            assert_eq!(driver.admin(alive), OK);
        }
        rig = driver.rig;
    }
}
