//! Random hosts against a model of queues: every command completes exactly once, with the right
//! identifier, SQ head and phase, and the places of a shared queue add up.

use std::collections::{BTreeMap, VecDeque};

use nvme_spec::Cqe;
use port::testing::Manner;
use proptest::prelude::*;

use super::rig::{Rig, read};
use super::watch::watching;
use crate::lane::{AbortRequest, LaneCommand, LaneEvent};

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Store commands and, perhaps, ring.
    Submit {
        sq: u16,
        count: u32,
        ring: bool,
    },
    Turn,
    /// The medium ends so many of what it holds.
    Release(usize),
    /// The medium has room for so many.
    Capacity(usize),
    /// The host takes completions and, perhaps, rings.
    Consume {
        count: u32,
        ring: bool,
    },
    /// The map changes.
    Map,
    /// The queue is deleted and, once gone, created again.
    Replace {
        sq: u16,
    },
    Abort {
        sq: u16,
    },
    AbandonAll,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u16..5, 1u32..12, any::<bool>()).prop_map(|(sq, count, ring)| Step::Submit { sq, count, ring }),
        8 => Just(Step::Turn),
        6 => (0usize..20).prop_map(Step::Release),
        2 => (0usize..12).prop_map(Step::Capacity),
        6 => (1u32..20, any::<bool>()).prop_map(|(count, ring)| Step::Consume { count, ring }),
        1 => Just(Step::Map),
        1 => (1u16..5).prop_map(|sq| Step::Replace { sq }),
        1 => (1u16..5).prop_map(|sq| Step::Abort { sq }),
        1 => Just(Step::AbandonAll),
    ]
}

/// A submission queue as the host knows it.
#[derive(Debug, Default)]
struct Queue {
    entries: u32,
    /// Submitted and not completed: (identifier, how many were submitted before it).
    submitted: VecDeque<(u16, u32)>,
    /// Commands submitted.
    tail: u32,
    /// Commands fetched, as the last SQ head said.
    head: u32,
    going: bool,
}

struct World {
    rig: Rig,
    queues: BTreeMap<u16, Queue>,
    next_cid: u16,
    aborts: u32,
    synchronous: bool,
}

impl World {
    fn new(cq: u32, sizes: &[u32], manner: Manner) -> Self {
        let rig = Rig::new(cq, sizes, manner);
        let queue = |entries: &u32| Queue {
            entries: *entries,
            ..Queue::default()
        };
        World {
            rig,
            queues: (1..).zip(sizes.iter().map(queue)).collect(),
            next_cid: 0,
            aborts: 0,
            synchronous: manner == Manner::Synchronous,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit { sq, count, ring } => self.submit(sq, count, ring),
            Step::Turn => {
                self.rig.lane.turn(&mut self.rig.channels);
            }
            Step::Release(count) => {
                self.rig.medium().release(count);
                self.rig.reap();
            }
            Step::Capacity(room) => self.rig.medium().capacity = room,
            Step::Consume { count, ring } => {
                for _ in 0..count {
                    let Some(cqe) = self.rig.consume() else { break };
                    self.completed(cqe);
                }
                if ring {
                    self.rig.ring_head();
                }
            }
            Step::Map => {
                self.rig
                    .host
                    .map_without_descriptor(super::rig::PAGES + 1, 1);
                self.rig.map_changed();
                self.rig.host.unmap_pages(super::rig::PAGES + 1, 1);
                self.rig.map_changed();
            }
            Step::Replace { sq } => {
                if let Some(queue) = self.queues.get_mut(&sq)
                    && !queue.going
                {
                    queue.going = true;
                    self.rig.lane.command(LaneCommand::RemoveQueue { sqid: sq });
                }
            }
            Step::Abort { sq } => {
                let queue = self.queues.get(&sq);
                if let Some((cid, _)) = queue.and_then(|q| q.submitted.front()) {
                    self.aborts += 1;
                    self.rig.lane.command(LaneCommand::Abort(AbortRequest {
                        sqid: sq,
                        cid: *cid,
                        number: 4 * self.aborts,
                    }));
                }
            }
            Step::AbandonAll => self.rig.lane.command(LaneCommand::AbandonAll),
        }
        self.events();
    }

    fn submit(&mut self, sq: u16, count: u32, ring: bool) {
        let Some(queue) = self.queues.get_mut(&sq) else {
            return;
        };
        if queue.going {
            return;
        }
        for _ in 0..count.min(self.rig.room(sq)) {
            self.rig.store(sq, read(self.next_cid));
            queue.submitted.push_back((self.next_cid, queue.tail));
            queue.tail += 1;
            self.next_cid = self.next_cid.wrapping_add(1);
        }
        if ring {
            self.rig.ring(sq);
        }
    }

    fn completed(&mut self, cqe: Cqe) {
        let queue = self
            .queues
            .get_mut(&cqe.sq_id)
            .expect("a queue that is there");
        let at = queue.submitted.iter().position(|(cid, _)| *cid == cqe.cid);
        let at = at.expect("a command that is outstanding");
        if self.synchronous && !queue.going {
            assert_eq!(at, 0, "in order");
        }
        let (_, number) = queue.submitted.remove(at).unwrap();
        // The head goes forward only, has passed the command's entry, and has not passed what was
        // submitted.
        let entries = queue.entries;
        let head = u32::from(cqe.sq_head);
        assert!(head < entries);
        queue.head += (head + entries - queue.head % entries) % entries;
        assert!(number < queue.head && queue.head <= queue.tail, "{queue:?}");
    }

    /// The controller's part: a deleted queue is created again when its last completion was
    /// consumed.
    fn events(&mut self) {
        let mut epoch = 0;
        for event in self.rig.events() {
            match event {
                LaneEvent::QueueRemoved { sqid } => self.remake(sqid),
                LaneEvent::Drained { epoch: e } => {
                    assert!(e > epoch);
                    epoch = e;
                }
                LaneEvent::AbortDone { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn remake(&mut self, sqid: u16) {
        // Every command that was fetched has been posted; those that were not are gone with the
        // queue.
        while let Some(cqe) = self.rig.consume() {
            self.completed(cqe);
        }
        self.rig.ring_head();
        let queue = self.queues.get_mut(&sqid).unwrap();
        assert!(queue.going);
        let entries = queue.entries;
        *queue = Queue {
            entries,
            ..Queue::default()
        };
        self.rig.add_queue(sqid, entries);
    }

    /// The host rings everything, the medium ends everything: nothing may remain.
    fn settle(&mut self) {
        self.rig.medium().capacity = usize::MAX;
        for _ in 0..2000 {
            for (sq, queue) in &self.queues {
                if !queue.going {
                    self.rig.ring(*sq);
                }
            }
            self.step(Step::Turn);
            self.step(Step::Release(usize::MAX / 2));
            self.step(Step::Consume {
                count: u32::MAX,
                ring: true,
            });
            if self.queues.values().all(|q| q.submitted.is_empty()) {
                break;
            }
        }
        for (sq, queue) in &self.queues {
            assert!(queue.submitted.is_empty(), "{sq}: {queue:?}");
            assert_eq!(queue.head, queue.tail);
        }
        self.step(Step::Turn);
        assert_eq!(self.rig.peek(), None);
        assert_eq!(self.rig.lane.in_flight(), 0);
        assert!(self.rig.is_idle());
        assert_eq!(self.rig.lane.queues.cq.free(), self.rig.cq_entries - 1);
        assert_eq!(self.rig.lane.queues.slots.reserved(), 0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_command_completes_exactly_once(
        cq in prop_oneof![Just(2u32), Just(3), 2u32..12, Just(40)],
        sizes in prop::collection::vec(2u32..14, 1..5),
        manner in prop_oneof![Just(Manner::Synchronous), Just(Manner::Hanging)],
        watched in 0u32..4,
        steps in prop::collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(cq, &sizes, manner);
        // 0: none; every one; one of so many
        let watching = (watched > 0).then(|| watching(watched, 16));
        world.rig.lane.command(LaneCommand::Watch(watching));
        for step in steps {
            world.step(step);
        }
        world.settle();
    }
}
