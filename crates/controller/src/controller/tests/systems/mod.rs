//! How operating systems, firmware and user-space drivers drive a controller, as programs: one file
//! for each.
//!
//! The order of the steps, the values that are written and what is looked at afterwards are the
//! driver's, told in our words from what its public source or its behaviour on the bus shows. What
//! a step must come to is from the specification. A program asserts what its driver checks, and
//! would give up or go wrong on.

mod freebsd;
mod illumos;
mod libvfn;
mod linux;
mod linux_io;
mod netbsd;
mod openbsd;
mod qemu;
mod seabios;
mod spdk;
mod uboot;
mod uefi;
mod windows;

use memory::Iova;
use nvme_spec::{Cqe, Sqe};

use super::rig::*;

// Commands of the NVM command set (NVM 1.1, figure 21).
const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;

/// Physically Contiguous, of both Create commands (Base 2.1, 5.2.1 and 5.2.2).
const PC: u32 = 1;
/// Interrupts Enabled, of Create I/O Completion Queue.
const IEN: u32 = 2;

/// The pages of Doorbell Buffer Config.
#[derive(Clone, Copy)]
struct Buffers {
    shadow: Iova,
    event_idx: Iova,
}

impl Buffers {
    /// Registers two pages.
    fn register(rig: &mut Rig) -> Self {
        let buffers = Buffers {
            shadow: rig.host.page(200),
            event_idx: rig.host.page(201),
        };
        for page in [buffers.shadow, buffers.event_idx] {
            rig.host.write(page, &[0; 4096]);
        }
        let config = Sqe {
            opcode: DOORBELL_BUFFERS,
            prp1: buffers.shadow.0,
            prp2: buffers.event_idx.0,
            ..Sqe::default()
        };
        assert_eq!(rig.status(config), OK);
        buffers
    }

    /// Stores a doorbell; whether the register is to be written, too (Base 2.1, Annex B.5): where
    /// it passes EventIdx, in 16 bits, as virtio has it.
    fn store(&self, rig: &Rig, slot: u64, value: u32) -> bool {
        let at = Iova(self.shadow.0 + 4 * slot);
        let old = rig.host.read_u32(at) as u16;
        rig.host.write_u32(at, value);
        let event_idx = rig.host.read_u32(Iova(self.event_idx.0 + 4 * slot)) as u16;
        let new = value as u16;
        new.wrapping_sub(event_idx).wrapping_sub(1) < new.wrapping_sub(old)
    }
}

/// A driver's I/O queue pair: where it is in its rings, and the phase that it waits for.
struct Pair {
    qid: u16,
    entries: u32,
    tail: u32,
    head: u32,
    phase: bool,
    cid: u16,
    buffers: Option<Buffers>,
    /// Doorbells that were registers.
    rung: u32,
}

impl Pair {
    /// Queues of so many entries, with these flags in Dword 11 beside the completion queue's
    /// identifier.
    fn create(rig: &mut Rig, qid: u16, entries: u32, cq_flags: u32, sq_flags: u32) -> Self {
        rig.host.write(rig.cq_page(qid), &[0; 4096]);
        let mut cq = rig.create_cq_sqe(qid, entries);
        cq.cdw11 = cq_flags;
        assert_eq!(rig.status(cq), OK, "completion queue {qid}");
        let mut sq = rig.create_sq_sqe(qid, qid, entries);
        sq.cdw11 = u32::from(qid) << 16 | sq_flags;
        assert_eq!(rig.status(sq), OK, "submission queue {qid}");
        Self::new(qid, entries)
    }

    /// Queues that were made otherwise.
    fn new(qid: u16, entries: u32) -> Self {
        Pair {
            qid,
            entries,
            tail: 0,
            head: 0,
            phase: true,
            cid: 0,
            buffers: None,
            rung: 0,
        }
    }

    /// With an interrupt vector of its own, of the same number.
    fn with_vector(rig: &mut Rig, qid: u16, entries: u32) -> Self {
        Self::create(rig, qid, entries, u32::from(qid) << 16 | IEN | PC, PC)
    }

    fn doorbell(&mut self, rig: &mut Rig, is_head: bool, value: u32) {
        let slot = 2 * u64::from(self.qid) + u64::from(is_head);
        let register = self
            .buffers
            .is_none_or(|buffers| buffers.store(rig, slot, value));
        if register {
            self.rung += 1;
            rig.write32(0x1000 + 4 * slot, value);
        }
    }

    /// Puts a command into the ring, without ringing; its identifier.
    fn put(&mut self, rig: &Rig, mut sqe: Sqe) -> u16 {
        self.cid = self.cid.wrapping_add(1);
        sqe.cid = self.cid;
        let at = rig.sq_page(self.qid).0 + 64 * u64::from(self.tail);
        for (word, value) in (0..).zip(sqe.to_words()) {
            rig.host.write_u64(Iova(at + 8 * word), value);
        }
        self.tail = (self.tail + 1) % self.entries;
        self.cid
    }

    fn ring(&mut self, rig: &mut Rig) {
        self.doorbell(rig, false, self.tail);
    }

    /// Takes the next completion, and tells so.
    fn take(&mut self, rig: &mut Rig) -> Option<Cqe> {
        let at = rig.cq_page(self.qid).0 + 16 * u64::from(self.head);
        let bytes = rig.host.read(Iova(at), 16);
        let cqe = Cqe::from_words([u64_at(&bytes, 0), u64_at(&bytes, 8)]);
        if cqe.status.phase() != self.phase {
            return None;
        }
        assert_eq!(cqe.sq_id, self.qid);
        self.head = (self.head + 1) % self.entries;
        self.phase ^= self.head == 0;
        self.doorbell(rig, true, self.head);
        Some(cqe)
    }

    /// Runs a command to its end.
    fn run(&mut self, rig: &mut Rig, sqe: Sqe) -> Cqe {
        let cid = self.put(rig, sqe);
        self.ring(rig);
        for _ in 0..16 {
            rig.turn();
            if let Some(cqe) = self.take(rig) {
                assert_eq!(cqe.cid, cid);
                assert_eq!(u32::from(cqe.sq_head), self.tail, "everything was fetched");
                return cqe;
            }
        }
        panic!("command {:#x} was not answered", sqe.opcode);
    }

    /// Type and code of a command's status.
    fn status(&mut self, rig: &mut Rig, sqe: Sqe) -> u16 {
        code(&self.run(rig, sqe))
    }
}

/// A command for blocks, with its data at the data page.
fn io(rig: &Rig, opcode: u8, nsid: u32, slba: u64, blocks: u32) -> Sqe {
    Sqe {
        opcode,
        nsid,
        prp1: rig.data_page().0,
        cdw10: slba as u32,
        cdw11: (slba >> 32) as u32,
        cdw12: blocks - 1,
        ..Sqe::default()
    }
}

/// Writes a pattern to a block and reads it back.
fn write_and_read(rig: &mut Rig, pair: &mut Pair, nsid: u32, slba: u64) {
    let pattern = [slba as u8 ^ 0xa5; 512];
    rig.host.write(rig.data_page(), &pattern);
    let write = io(rig, WRITE, nsid, slba, 1);
    assert_eq!(pair.status(rig, write), OK);
    rig.host.write(rig.data_page(), &[0; 512]);
    let read = io(rig, READ, nsid, slba, 1);
    assert_eq!(pair.status(rig, read), OK);
    assert_eq!(rig.host.read(rig.data_page(), 512), pattern);
}

impl Rig {
    /// CC.EN from 1 to 0 as most drivers do it: every other field stays.
    fn clear_enable(&mut self) {
        self.write32(CC, self.read32(CC) & !1);
        self.wait_ready(false);
    }

    /// Polls CSTS.RDY, as long as CAP.TO allows at most.
    fn wait_ready(&mut self, ready: bool) {
        assert!(self.read64(CAP) >> 24 & 0xff > 0, "CAP.TO bounds the wait");
        for _ in 0..16 {
            let csts = self.csts();
            assert_ne!(csts, u32::MAX, "the device is there");
            assert_eq!(csts & CFS, 0);
            if csts & RDY == u32::from(ready) {
                return;
            }
            self.turn();
        }
        panic!("RDY did not become {ready}");
    }

    /// CC.SHN = 01b, and SHST polled until it is complete.
    fn shut_down(&mut self) {
        self.write32(CC, self.read32(CC) & !(0b11 << 14) | 1 << 14);
        for _ in 0..16 {
            if self.csts() & SHST == SHST_COMPLETE {
                return;
            }
            self.turn();
        }
        panic!("the shutdown did not complete");
    }

    /// Set Features of a data structure.
    fn set_feature_data(&mut self, fid: u32, cdw11: u32, data: &[u8]) -> u16 {
        self.host.write(self.data_page(), data);
        let sqe = self.with_data(SET_FEATURES);
        self.status(Sqe {
            cdw10: fid,
            cdw11,
            ..sqe
        })
    }
}
