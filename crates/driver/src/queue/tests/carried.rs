//! A queue pair whose completions somebody else brings, against rows of numbers.

use std::collections::VecDeque;

use memory::DoorbellPages;
use proptest::prelude::*;

use super::*;

const DEPTH: u16 = 3;
const ENTRIES: u32 = DEPTH as u32 + 1;

/// The controller's side: it posts while it has been told of a free place, as Base 2.1, 4.2.4 has
/// it.
struct Controller {
    memory: Arc<QueueMemory>,
    tail: u32,
    phase: bool,
    /// The head that it was told last.
    head: u32,
}

impl Controller {
    fn is_full(&self) -> bool {
        (self.tail + 1) % ENTRIES == self.head
    }

    /// Whatever it was told.
    fn post(&mut self, cid: u16, dw0: u32) {
        let cqe = Cqe {
            dw0,
            sq_id: 1,
            cid,
            status: StatusField::new()
                .with_phase(self.phase)
                .with_status(Status::SUCCESSFUL_COMPLETION),
            ..Cqe::default()
        };
        let [low, high] = cqe.to_words().map(u64::to_le_bytes);
        let at = self.tail as usize * 16;
        let cq = self.memory.posted.as_ref().unwrap().buffer();
        cq.write_from(at, &low);
        cq.write_from(at + 8, &high);
        self.tail = (self.tail + 1) % ENTRIES;
        self.phase ^= self.tail == 0;
    }

    fn hear(&mut self, bus: &Notes) {
        for (offset, value) in bus.rung.lock().unwrap().drain(..) {
            if offset == CQ_HEAD {
                self.head = value;
            }
        }
    }
}

fn carried() -> (QueuePair<Notes>, Carrier<Notes>, Controller) {
    let memory = HostMemory::new(1 << 16).unwrap();
    let page = || memory.alloc(4096, 4096).unwrap();
    let queues = QueueMemory::new(HostSq::new(page()), HostCq::new(page()), None, 0);
    let queues = Arc::new(queues.posted_to(HostCq::new(page())));
    let heads = Arc::new(DoorbellPages::new(1).unwrap());
    let ours = Ringing::Mapped(MappedDoorbells {
        pages: heads.clone(),
        start: CQ_HEAD,
    });
    let bus = Arc::new(Notes::default());
    let current = Arc::new(AtomicBool::new(true));
    let queue = QueuePair::new(Parts {
        bus: bus.clone(),
        qid: 1,
        depth: DEPTH,
        base: Iova(0x10_0000),
        memory: queues.clone(),
        sq_tail: Doorbell::new(&Ringing::Trapped, SQ_TAIL, 8),
        cq_head: Doorbell::new(&ours, CQ_HEAD, 0),
        vector: None,
        interrupt: None,
        timeout: Duration::from_secs(1),
        transfer_len: 4096,
        current: current.clone(),
    });
    let carrier = Carrier::new(CarrierParts {
        bus,
        qid: 1,
        depth: DEPTH,
        memory: queues.clone(),
        cq_head: Doorbell::new(&Ringing::Trapped, CQ_HEAD, 12),
        heads,
        current,
    });
    let controller = Controller {
        memory: queues,
        tail: 0,
        phase: true,
        head: 0,
    };
    (queue, carrier, controller)
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Submit,
    /// The controller completes the command that it has had for longest, or another one.
    Complete(usize),
    Carry,
    Heads,
    Poll(usize),
    Busy(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Submit),
        3 => (0usize..4).prop_map(Step::Complete),
        3 => Just(Step::Carry),
        2 => Just(Step::Heads),
        3 => (1usize..4).prop_map(Step::Poll),
        1 => any::<bool>().prop_map(Step::Busy),
    ]
}

/// Runs steps beside rows of what the controller has, what it has posted, and what was brought.
fn run(steps: &[Step], splits: bool) {
    let (mut queue, mut carrier, mut controller) = carried();
    let mut heads = splits.then(|| carrier.split_heads());
    let mut at_controller: Vec<u16> = Vec::new();
    let (mut posted, mut brought) = (VecDeque::new(), VecDeque::new());
    let mut stamp = 0;
    let rest = [
        Step::Busy(false),
        Step::Carry,
        Step::Poll(8),
        Step::Poll(1),
        Step::Heads,
    ];
    let ending = std::iter::repeat_n([Step::Complete(0)].into_iter().chain(rest), 8).flatten();
    for step in steps.iter().copied().chain(ending) {
        match step {
            Step::Submit => {
                if let Ok(cid) = queue.submit(Sqe::default()) {
                    at_controller.push(cid);
                }
                queue.ring().unwrap();
            }
            Step::Complete(which) => {
                controller.hear(&queue.bus);
                if !at_controller.is_empty() && !controller.is_full() {
                    let cid = at_controller.remove(which % at_controller.len());
                    stamp += 1;
                    controller.post(cid, stamp);
                    posted.push_back((cid, stamp));
                }
            }
            Step::Carry => {
                let is_due = carrier.is_due();
                let count = carrier.carry().unwrap();
                assert_eq!(
                    count,
                    posted.len(),
                    "a controller that keeps to its places finds room"
                );
                assert!(is_due || count == 0);
                brought.extend(posted.drain(..));
            }
            Step::Heads => {
                if let Some(heads) = &mut heads {
                    heads.carry().unwrap();
                }
            }
            Step::Poll(most) => {
                let count = queue.poll_up_to(most).unwrap();
                assert_eq!(count, brought.len().min(most));
                while let Some(cqe) = queue.next_completion() {
                    assert_eq!(brought.pop_front(), Some((cqe.cid, cqe.dw0)));
                }
            }
            Step::Busy(busy) => queue.bus.busy.store(busy, Ordering::Relaxed),
        }
    }
    assert_eq!(
        (queue.in_flight(), at_controller.len()),
        (0, 0),
        "all have ended"
    );
    assert!(!carrier.is_due());
    controller.hear(&queue.bus);
    assert_eq!(controller.head, controller.tail, "every place is told of");
    assert!(heads.is_none_or(|heads| !heads.is_due()));
}

proptest! {
    #[test]
    fn every_completion_comes_once_in_order_and_every_place_is_given_back(
        steps in prop::collection::vec(step(), 0..200),
        splits in any::<bool>(),
    ) {
        run(&steps, splits);
    }
}

#[test]
fn a_controller_that_posts_more_than_it_was_asked_for_is_kept_waiting() {
    let (mut queue, mut carrier, mut controller) = carried();
    queue.submit(Sqe::default()).unwrap();
    // Four entries that the queue has not taken: there is room for three.
    controller.post(0, 1);
    (1..4).for_each(|dw0| controller.post(1, dw0));
    assert_eq!(carrier.carry().unwrap(), 3);
    assert!(!carrier.is_due());
    assert_eq!(carrier.carry().unwrap(), 0);
    // The caller, which knows its commands, finds the invented identifier.
    let error = queue.poll().unwrap_err();
    assert!(matches!(error, DriverError::Broken(_)), "{error}");
}

#[test]
fn the_controller_learns_of_places_from_the_carrier_or_when_they_are_taken() {
    for splits in [false, true] {
        let (mut queue, mut carrier, mut controller) = carried();
        let mut heads = splits.then(|| carrier.split_heads());
        queue.submit(Sqe::default()).unwrap();
        queue.ring().unwrap();
        rung(&queue);
        controller.post(0, 7);
        assert!(carrier.is_due());
        assert_eq!(carrier.carry().unwrap(), 1);
        let Some(heads) = &mut heads else {
            assert_eq!(rung(&queue), [(CQ_HEAD, 1)]);
            continue;
        };
        assert!(heads.is_due(), "it is about to be taken");
        assert!(!heads.carry().unwrap());
        assert_eq!(queue.poll().unwrap(), 1);
        queue.ring().unwrap();
        assert_eq!(rung(&queue), []);
        assert!(heads.carry().unwrap());
        assert_eq!(rung(&queue), [(CQ_HEAD, 1)]);
        assert!(!heads.is_due());
        assert!(!heads.carry().unwrap());
    }
}

#[test]
fn after_a_reset_no_doorbell_is_rung() {
    for splits in [false, true] {
        let (mut queue, mut carrier, mut controller) = carried();
        let heads = splits.then(|| carrier.split_heads());
        queue.submit(Sqe::default()).unwrap();
        controller.post(0, 1);
        queue.current.store(false, Ordering::Relaxed);
        let error = match heads {
            None => carrier.carry().unwrap_err(),
            Some(mut heads) => {
                carrier.carry().unwrap();
                queue.poll().unwrap();
                // The queue pair's own doorbell has no controller behind it.
                queue.current.store(true, Ordering::Relaxed);
                queue.ring().unwrap();
                queue.current.store(false, Ordering::Relaxed);
                rung(&queue);
                heads.carry().unwrap_err()
            }
        };
        assert!(error.to_string().contains("reset"), "{error}");
        assert_eq!(rung(&queue), []);
    }
}

#[test]
fn carrying_in_vain_notices_that_the_server_is_gone() {
    let (queue, mut carrier, _) = carried();
    queue.bus.gone.store(true, Ordering::Relaxed);
    let mut looks = 0;
    while carrier.carry().is_ok() {
        looks += 1;
        assert!(looks < 1_000_000, "nobody asked");
    }
    assert!(looks > 1000, "but not for every look");
}
