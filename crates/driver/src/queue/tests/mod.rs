//! A queue pair against completions written by hand.

mod carried;

use std::sync::Mutex;

use memory::{EventFd, HostMemory};
use nvme_spec::Status;
use nvme_spec::cqe::StatusField;

use super::*;
use crate::bus::MappedDoorbells;
use crate::doorbell::{Ringing, ShadowBuffers};

/// A bus that notes doorbells, and has nothing else behind it.
#[derive(Default)]
struct Notes {
    rung: Mutex<Vec<(u64, u32)>>,
    gone: AtomicBool,
    /// Somebody else uses it.
    busy: AtomicBool,
}

impl Bus for Notes {
    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.rung.lock().unwrap().push((offset, value));
        Ok(())
    }

    fn try_ring(&self, offset: u64, value: u32) -> Result<bool, DriverError> {
        if self.busy.load(Ordering::Relaxed) {
            Ok(false)
        } else {
            self.ring(offset, value).map(|()| true)
        }
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        if self.gone.load(Ordering::Relaxed) {
            return Err(DriverError::Gone);
        }
        Ok(())
    }

    fn read32(&self, _: u64) -> Result<u32, DriverError> {
        unreachable!("a queue pair reads no register")
    }

    fn read64(&self, _: u64) -> Result<u64, DriverError> {
        unreachable!("a queue pair reads no register")
    }

    fn write32(&self, _: u64, _: u32) -> Result<(), DriverError> {
        unreachable!("a queue pair writes doorbells only")
    }

    fn write64(&self, _: u64, _: u64) -> Result<(), DriverError> {
        unreachable!("a queue pair writes doorbells only")
    }

    fn config_read(&self, _: u64, _: &mut [u8]) -> Result<(), DriverError> {
        unreachable!("a queue pair is no function")
    }

    fn config_write(&self, _: u64, _: &[u8]) -> Result<(), DriverError> {
        unreachable!("a queue pair is no function")
    }

    fn bar_len(&self, _: u8) -> Result<u64, DriverError> {
        unreachable!("a queue pair is no function")
    }

    fn bar_read(&self, _: u8, _: u64, _: &mut [u8]) -> Result<(), DriverError> {
        unreachable!("a queue pair is no function")
    }

    fn bar_write(&self, _: u8, _: u64, _: &[u8]) -> Result<(), DriverError> {
        unreachable!("a queue pair is no function")
    }

    fn reset_function(&self) -> Result<(), DriverError> {
        unreachable!("a queue pair is no function")
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        None
    }

    fn share(&self, _: &HostMemory, _: Iova) -> Result<(), DriverError> {
        unreachable!("a queue pair shares no memory")
    }

    fn unshare(&self, _: Iova, _: u64) -> Result<(), DriverError> {
        unreachable!("a queue pair shares no memory")
    }

    fn vectors(&self) -> u16 {
        0
    }

    fn set_interrupt(&self, _: u16, _: &EventFd) -> Result<(), DriverError> {
        unreachable!("there are no vectors")
    }

    fn set_message_interrupt(&self, _: u16, _: &EventFd) -> Result<(), DriverError> {
        unreachable!("there are no messages")
    }

    fn wait(&self, _: &EventFd, _: Duration) -> Result<bool, DriverError> {
        unreachable!("there are no vectors")
    }

    fn now_ns(&self) -> u64 {
        0
    }
}

const SQ_TAIL: u64 = 0x1008;
const CQ_HEAD: u64 = 0x100c;

/// Queue 1 of 3 commands, with trapped doorbells.
fn queue() -> QueuePair<Notes> {
    let memory = HostMemory::new(1 << 16).unwrap();
    let page = || memory.alloc(4096, 4096).unwrap();
    QueuePair::new(Parts {
        bus: Arc::new(Notes::default()),
        qid: 1,
        depth: 3,
        base: Iova(0x10_0000),
        memory: Arc::new(QueueMemory::new(
            HostSq::new(page()),
            HostCq::new(page()),
            None,
            0,
        )),
        sq_tail: Doorbell::new(&Ringing::Trapped, SQ_TAIL, 8),
        cq_head: Doorbell::new(&Ringing::Trapped, CQ_HEAD, 12),
        vector: None,
        interrupt: None,
        timeout: Duration::from_secs(1),
        transfer_len: 4096,
        current: Arc::new(AtomicBool::new(true)),
    })
}

/// Writes a completion as a controller does.
fn post(queue: &QueuePair<Notes>, index: usize, sq_id: u16, cid: u16, phase: bool) {
    let cqe = Cqe {
        sq_id,
        cid,
        status: StatusField::new()
            .with_phase(phase)
            .with_status(Status::SUCCESSFUL_COMPLETION),
        ..Cqe::default()
    };
    let cq = queue.memory.cq.buffer();
    let words = cqe.to_words();
    cq.write_from(index * 16, &words[0].to_le_bytes());
    cq.write_from(index * 16 + 8, &words[1].to_le_bytes());
}

fn rung(queue: &QueuePair<Notes>) -> Vec<(u64, u32)> {
    std::mem::take(&mut queue.bus.rung.lock().unwrap())
}

/// Polls, and takes all of it: the identifiers.
fn take(queue: &mut QueuePair<Notes>) -> Vec<u16> {
    let taken = queue.poll().unwrap();
    let cids: Vec<u16> = std::iter::from_fn(|| queue.next_completion())
        .map(|cqe| cqe.cid)
        .collect();
    assert_eq!(cids.len(), taken);
    cids
}

#[test]
fn each_batch_rings_each_doorbell_once_head_before_tail() {
    let mut queue = queue();
    for cid in 0..3 {
        assert_eq!(queue.submit(Sqe::default()), Ok(cid));
    }
    assert_eq!(queue.submit(Sqe::default()), Err(Full));
    assert_eq!(rung(&queue), [], "not before ring");
    queue.ring().unwrap();
    assert_eq!(rung(&queue), [(SQ_TAIL, 3)]);
    queue.ring().unwrap();
    assert_eq!(rung(&queue), [], "nothing is new");
    post(&queue, 0, 1, 2, true);
    post(&queue, 1, 1, 0, true);
    assert_eq!(take(&mut queue), [2, 0]);
    assert_eq!(queue.in_flight(), 1);
    assert_eq!(rung(&queue), []);
    queue.submit(Sqe::default()).unwrap();
    queue.ring().unwrap();
    // Four entries: the tail goes around.
    assert_eq!(rung(&queue), [(CQ_HEAD, 2), (SQ_TAIL, 0)]);
    // Without a ring the next look gives the entries back.
    post(&queue, 2, 1, 1, true);
    assert_eq!(take(&mut queue), [1]);
    assert!(take(&mut queue).is_empty());
    assert_eq!(rung(&queue), [(CQ_HEAD, 3)]);
}

#[test]
fn what_a_busy_bus_did_not_take_is_rung_once_when_it_does() {
    let mut queue = queue();
    let busy = |queue: &QueuePair<Notes>, busy| queue.bus.busy.store(busy, Ordering::Relaxed);
    busy(&queue, true);
    queue.submit(Sqe::default()).unwrap();
    assert!(!queue.try_ring().unwrap());
    queue.submit(Sqe::default()).unwrap();
    assert!(!queue.try_ring().unwrap());
    assert_eq!(rung(&queue), []);
    busy(&queue, false);
    assert!(queue.try_ring().unwrap());
    assert!(queue.try_ring().unwrap());
    assert_eq!(rung(&queue), [(SQ_TAIL, 2)]);
    // A poll does not wait either, and the head is not forgotten.
    busy(&queue, true);
    assert!(!queue.is_posted());
    post(&queue, 0, 1, 0, true);
    assert!(queue.is_posted());
    assert_eq!(take(&mut queue), [0]);
    assert!(take(&mut queue).is_empty());
    assert_eq!(rung(&queue), []);
    busy(&queue, false);
    assert!(queue.try_ring().unwrap());
    assert_eq!(rung(&queue), [(CQ_HEAD, 1)]);
}

#[test]
fn a_shadow_doorbell_that_could_not_wake_its_controller_does_so_later() {
    let memory = HostMemory::new(8192).unwrap();
    let page = || memory.alloc(4096, 4096).unwrap();
    let buffers = Arc::new(ShadowBuffers::new(page(), page()));
    let mut doorbell = Doorbell::new(&Ringing::Shadow(buffers), SQ_TAIL, 8);
    let bus = Notes::default();
    let mut ring = |value, takes| {
        let write = |bus: &Notes, _, _| bus.check_alive().map(|()| takes);
        doorbell.ring(&bus, value, write).unwrap()
    };
    // It sleeps with nothing fetched (EventIdx 0): the first entry wakes it, and no later one.
    assert_eq!(ring(1, false), Rang::NotYet);
    assert_eq!(ring(3, false), Rang::NotYet);
    assert_eq!(ring(3, true), Rang::Written);
    assert_eq!(ring(4, true), Rang::Stored);
}

#[test]
fn entries_carry_their_slot_and_stand_at_the_tail() {
    let mut queue = queue();
    let sqe = Sqe {
        opcode: 2,
        cid: 0xffff,
        nsid: 7,
        cdw15: 0x1234_5678,
        ..Sqe::default()
    };
    queue.submit(sqe).unwrap();
    assert_eq!(queue.submit(sqe), Ok(1));
    let mut words = [0; 8];
    for (at, word) in words.iter_mut().enumerate() {
        let mut bytes = [0; 8];
        queue.memory.sq.buffer().read_into(64 + at * 8, &mut bytes);
        *word = u64::from_le_bytes(bytes);
    }
    assert_eq!(Sqe::from_words(words), Sqe { cid: 1, ..sqe });
}

#[test]
fn a_completion_of_the_old_phase_is_none() {
    let mut queue = queue();
    queue.submit(Sqe::default()).unwrap();
    post(&queue, 0, 1, 0, false);
    assert!(take(&mut queue).is_empty());
    post(&queue, 0, 1, 0, true);
    assert_eq!(take(&mut queue), [0]);
}

#[test]
fn completions_that_fit_no_command_are_the_drives_mistake() {
    // Another queue's, one that is not in flight, and one that cannot be.
    for (sqid, cid) in [(2, 0), (1, 1), (1, 3), (1, 0xffff)] {
        let mut queue = queue();
        queue.submit(Sqe::default()).unwrap();
        post(&queue, 0, sqid, cid, true);
        let error = queue.poll().unwrap_err();
        assert!(matches!(error, DriverError::Broken(_)), "{error}");
        assert_eq!(queue.in_flight(), 1);
    }
}

#[test]
fn an_identifier_is_free_once_its_completion_is_handed_out_and_not_before() {
    let mut queue = queue();
    (0..3).for_each(|_| assert!(queue.submit(Sqe::default()).is_ok()));
    for (index, cid) in [1, 2, 0].into_iter().enumerate() {
        post(&queue, index, 1, cid, true);
    }
    assert_eq!(queue.poll().unwrap(), 3);
    // The drive has none of them any more, and their identifiers are in use all the same.
    assert!((0..3).all(|cid| !queue.is_in_flight(cid)));
    assert_eq!((queue.in_flight(), queue.next_cid()), (3, None));
    assert_eq!(queue.submit(Sqe::default()), Err(Full));
    for cid in [1, 2, 0] {
        assert_eq!(queue.next_completion().unwrap().cid, cid);
        // The follow-up command has its identifier, never that of one to be handed out yet.
        assert_eq!(queue.submit(Sqe::default()), Ok(cid));
        assert_eq!(queue.submit(Sqe::default()), Err(Full));
    }
    assert_eq!(queue.next_completion(), None);
    assert_eq!(queue.in_flight(), 3);
}

#[test]
fn a_poll_with_completions_left_takes_no_others_and_loses_none() {
    let mut queue = queue();
    (0..3).for_each(|_| assert!(queue.submit(Sqe::default()).is_ok()));
    post(&queue, 0, 1, 0, true);
    post(&queue, 1, 1, 1, true);
    assert_eq!(queue.poll().unwrap(), 2);
    assert_eq!(queue.next_completion().unwrap().cid, 0);
    // A controller that goes on posting, also over entries that were taken.
    post(&queue, 2, 1, 2, true);
    post(&queue, 1, 1, 0xffff, true);
    assert_eq!(queue.poll().unwrap(), 1);
    assert!(queue.is_posted());
    assert_eq!(queue.next_completion().unwrap().cid, 1);
    assert_eq!(take(&mut queue), [2]);
    assert_eq!(queue.in_flight(), 0);
    // At most as many as asked for.
    (0..2).for_each(|_| assert!(queue.submit(Sqe::default()).is_ok()));
    let cids = [2, 1];
    post(&queue, 3, 1, cids[0], true);
    post(&queue, 0, 1, cids[1], false);
    assert_eq!(queue.poll_up_to(1).unwrap(), 1);
    assert_eq!(queue.next_completion().unwrap().cid, cids[0]);
    assert_eq!(take(&mut queue), [cids[1]]);
}

#[test]
fn completions_before_a_wrong_one_are_handed_out() {
    let mut queue = queue();
    (0..2).for_each(|_| assert!(queue.submit(Sqe::default()).is_ok()));
    post(&queue, 0, 1, 1, true);
    // The same again, in one batch.
    post(&queue, 1, 1, 1, true);
    assert!(matches!(queue.poll(), Err(DriverError::Broken(_))));
    assert_eq!(queue.next_completion().unwrap().cid, 1);
    assert_eq!(queue.next_completion(), None);
    assert_eq!(queue.next_cid(), Some(1), "once");
    assert!(matches!(queue.poll(), Err(DriverError::Broken(_))));
}

#[test]
fn polling_in_vain_notices_that_the_server_is_gone() {
    let mut queue = queue();
    queue.submit(Sqe::default()).unwrap();
    queue.bus.gone.store(true, Ordering::Relaxed);
    let mut looks = 0;
    let error = loop {
        match queue.poll() {
            Ok(_) => looks += 1,
            Err(error) => break error,
        }
        assert!(looks < 1_000_000, "nobody asked");
    };
    assert!(matches!(error, DriverError::Gone));
    assert!(looks > 1000, "but not for every look");
}
