//! Arbitration (Base 2.1, 3.4.4), by counting what is fetched from submission queues that always
//! have commands.

use nvme_spec::Sqe;
use nvme_spec::registers::sq_tail_slot;
use port::testing::PAGE;

use super::rig::*;

/// CC.AMS 001b.
const WEIGHTED: u32 = 1 << 11;
const URGENT: u32 = 0;
const HIGH: u32 = 1;
const MEDIUM: u32 = 2;
const LOW: u32 = 3;
/// Entries of a queue.
const ENTRIES: u32 = 64;

/// Submission queues 1, 2, ... with a priority and a completion queue each, full of commands and
/// kept so.
struct Load {
    rig: Rig,
    fetched: Vec<u32>,
}

impl Load {
    /// `queues`: the priority and the completion queue of each.
    fn new(cc: u32, arbitration: u32, queues: &[(u32, u16)]) -> Load {
        let mut rig = Rig::new();
        rig.set_admin_queues(32);
        rig.write32(CC, CC_ENABLE | cc);
        rig.turns(2);
        assert_eq!(code(&rig.set_feature(0x01, arbitration)), OK);
        let mut cqids: Vec<u16> = queues.iter().map(|(_, cqid)| *cqid).collect();
        cqids.sort_unstable();
        cqids.dedup();
        for cqid in cqids {
            rig.host.write(rig.cq_page(cqid), &[0; PAGE as usize]);
            let sqe = rig.create_cq_sqe(cqid, ENTRIES);
            assert_eq!(rig.status(sqe), OK);
        }
        for (sqid, (priority, cqid)) in (1..).zip(queues) {
            let sqe = rig.create_sq_sqe(sqid, *cqid, ENTRIES);
            let cdw11 = sqe.cdw11 | priority << 1;
            assert_eq!(rig.status(Sqe { cdw11, ..sqe }), OK);
            // Every entry is a command, over and over.
            let bytes: Vec<u8> = Sqe {
                opcode: 0,
                nsid: 3,
                ..Sqe::default()
            }
            .to_words()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
            rig.host
                .write(rig.sq_page(sqid), &bytes.repeat(ENTRIES as usize));
        }
        Load {
            rig,
            fetched: vec![0; queues.len()],
        }
    }

    /// The host has consumed every completion: the head doorbell follows the tail.
    fn consume(&mut self) {
        for lane in self.rig.lanes.iter() {
            let (tail, _) = lane.cq_positions();
            let slot = nvme_spec::registers::cq_head_slot(lane.cqid());
            self.rig.doorbells.store(slot, tail);
        }
    }

    /// One turn in which the queues in `busy` are full; what was fetched of each.
    fn turn(&mut self, busy: impl Fn(usize) -> bool) -> Vec<u32> {
        self.consume();
        for (at, fetched) in self.fetched.iter().enumerate() {
            if busy(at) {
                let tail = (fetched + ENTRIES - 1) % ENTRIES;
                let slot = sq_tail_slot(at as u16 + 1);
                self.rig.doorbells.store(slot, tail);
            }
        }
        self.rig.turn();
        let mut turn = Vec::new();
        for (at, fetched) in self.fetched.iter_mut().enumerate() {
            let mut lanes = self.rig.lanes.iter();
            let head = lanes.find_map(|lane| lane.sq_head(at as u16 + 1)).unwrap();
            let news = (head + ENTRIES - *fetched % ENTRIES) % ENTRIES;
            *fetched += news;
            turn.push(news);
        }
        turn
    }

    fn turns(&mut self, count: u32) -> Vec<u32> {
        let mut sums = vec![0; self.fetched.len()];
        for _ in 0..count {
            for (sum, news) in sums.iter_mut().zip(self.turn(|_| true)) {
                *sum += news;
            }
        }
        sums
    }
}

/// Weights (from 1 on) and burst as Arbitration holds them.
fn arbitration(high: u32, medium: u32, low: u32, ab: u32) -> u32 {
    (high - 1) << 24 | (medium - 1) << 16 | (low - 1) << 8 | ab
}

#[test]
fn weights_are_shares_whether_queues_share_a_completion_queue_or_not() {
    for cqids in [[1, 1, 1], [1, 2, 3], [1, 1, 2]] {
        let queues = [(LOW, cqids[0]), (HIGH, cqids[1]), (MEDIUM, cqids[2])];
        // 16 commands a round: two rounds a turn.
        let mut load = Load::new(WEIGHTED, arbitration(10, 5, 1, 7), &queues);
        assert_eq!(load.turns(20), [40, 400, 200], "{cqids:?}");
    }
}

#[test]
fn queues_of_one_level_share_its_weight() {
    let queues = [(HIGH, 1), (LOW, 2), (HIGH, 3), (LOW, 4)];
    let mut load = Load::new(WEIGHTED, arbitration(6, 1, 2, 1), &queues);
    // 8 a round: 160 rounds.
    assert_eq!(load.turns(40), [480, 160, 480, 160]);
}

#[test]
fn urgent_commands_go_first_and_alone() {
    let queues = [(HIGH, 1), (URGENT, 2), (LOW, 1)];
    let mut load = Load::new(WEIGHTED, arbitration(1, 1, 1, 7), &queues);
    assert_eq!(load.turns(10), [0, 320, 0]);
    // The urgent queue has no more: what it had is fetched first, then the others share.
    assert_eq!(load.turn(|at| at != 1), [0, 31, 0]);
    assert_eq!(load.turn(|at| at != 1), [16, 0, 16]);
}

#[test]
fn weights_that_are_set_later_count_from_then_on() {
    let queues = [(HIGH, 1), (LOW, 2)];
    let mut load = Load::new(WEIGHTED, arbitration(1, 1, 1, 7), &queues);
    assert_eq!(load.turns(2), [32, 32]);
    let cqe = load.rig.set_feature(0x01, arbitration(15, 1, 1, 7));
    assert_eq!(code(&cqe), OK);
    load.turn(|_| true);
    assert_eq!(load.turns(10), [300, 20]);
}

#[test]
fn round_robin_knows_no_priorities() {
    let queues = [(LOW, 1), (URGENT, 1), (HIGH, 2)];
    let mut load = Load::new(0, arbitration(200, 1, 1, 7), &queues);
    for turn in [load.turn(|_| true), load.turn(|_| true)] {
        // Queues 1 and 2 share the places of one completion queue; the third has one of its own.
        assert!(turn.iter().all(|fetched| *fetched > 0), "{turn:?}");
        assert_eq!(turn[2], 32);
    }
    // Arbitration Burst: so many of each in a turn (Base 2.1, 5.1.25.1.1).
    let cqe = load.rig.set_feature(0x01, arbitration(1, 1, 1, 2));
    assert_eq!(code(&cqe), OK);
    load.turn(|_| true);
    assert_eq!(load.turn(|_| true), [4, 4, 4]);
}

#[test]
fn the_priority_of_a_queue_is_saved() {
    let load = Load::new(WEIGHTED, 0, &[(URGENT, 1), (HIGH, 1), (LOW, 2)]);
    let saved = load.rig.controller.saved_state();
    assert_eq!(saved.sq_priorities[..4], [0, 1, 3, 0]);
    assert_eq!(saved.sq_cqids[..4], [1, 1, 2, 0]);
}
