//! State that a process leaves behind when it dies, read from the state file as its successor reads
//! it, at the moments when another party can act on it: when a medium gets a request, and when the
//! host sees a completion.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use memory::{DmaView, Segment, StateFile};
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use port::testing::{Host, Manner, namespace};
use port::ticket::Ticket;
use port::{Added, Channel, Channels, Done, Outcome, Request};
use zerocopy::FromBytes;

use super::rig::{CQID, MEDIUM_ID, PAGES, Rig, VECTOR, config, read};
use crate::lane::{Lane, LaneCommand, SqSpec};
use crate::state::{
    CommandState, FORMAT_VERSION, QueueState, SlotState, SqLife, area_bytes, slots_for,
};

/// The state in the file: the queues and the slots that hold a command.
fn saved(file: &StateFile, entries: u32) -> (QueueState, Vec<SlotState>) {
    let file = File::from(file.fd().try_clone_to_owned().unwrap());
    // The first area begins behind the header's page.
    let mut bytes = vec![0; area_bytes(entries)];
    file.read_exact_at(&mut bytes, 4096).unwrap();
    let (queue, slots) = QueueState::read_from_prefix(&bytes).unwrap();
    let slots = slots[..slots_for(entries) * 128].chunks_exact(128);
    let slots = slots.map(|slot| SlotState::read_from_bytes(slot).unwrap());
    (
        queue,
        slots
            .filter(|slot| slot.state() != CommandState::FREE)
            .collect(),
    )
}

/// Looks at the state file whenever it is asked for something.
struct Witness {
    file: Arc<StateFile>,
    asked: u32,
}

impl Channel for Witness {
    fn add(
        &mut self,
        ticket: Ticket,
        _: &Request<'_>,
        _: &[Segment<'_>],
        _: &Arc<DmaView>,
    ) -> Added {
        let (queue, slots) = saved(&self.file, 4);
        let [slot] = &slots[..] else {
            panic!("one command at a time")
        };
        assert_eq!(slot.state(), CommandState::FETCHED);
        assert_eq!((slot.sqid(), slot.number()), (1, self.asked));
        assert_eq!(slot.sqe(), read(slot.cid()));
        self.asked += 1;
        let head = self.asked % 5;
        let progress = (u64::from(self.asked) << 32) | u64::from(head);
        assert_eq!(
            queue.sqs[0].progress.into_bits(),
            progress,
            "the head is past it"
        );
        Added::Done(ticket, Outcome::OK)
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _: &mut Vec<Done>) {}

    fn in_flight(&self) -> u32 {
        0
    }
}

#[test]
fn a_command_is_saved_before_a_medium_is_asked() {
    let host = Host::new(PAGES);
    let doorbells = Arc::new(memory::DoorbellPages::new(256).unwrap());
    let file = StateFile::create("test", FORMAT_VERSION, &[area_bytes(4)]).unwrap();
    let mut made = config(&host, &doorbells, 4);
    made.state = file.take(0, slots_for(4)).unwrap();
    made.namespaces = Arc::new(vec![namespace(1, MEDIUM_ID, 8)].into());
    let mut lane = Lane::new(made).unwrap();
    let spec = SqSpec::new(&host.view(), 1, host.page(16), 5).unwrap();
    lane.command(LaneCommand::AddQueue(spec));
    let mut channels = Channels::new();
    let witness = Witness {
        file: file.clone(),
        asked: 0,
    };
    assert!(channels.insert(witness).is_ok());
    for count in 0..13u32 {
        let bytes: Vec<u8> = read(count as u16)
            .to_words()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let at = host.page(16).0 + u64::from(count % 5) * 64;
        host.write(memory::Iova(at), &bytes);
        let tail = (count + 1) % 5;
        doorbells.store(sq_tail_slot(1), tail);
        lane.turn(&mut channels);
        doorbells.store(cq_head_slot(CQID), (count + 1) % 4);
        let (queue, slots) = saved(&file, 4);
        assert!(slots.is_empty(), "completed");
        let phase = u32::from((count + 1) / 4 % 2 == 0);
        let next = (count + 1) % 4;
        assert_eq!(queue.cq_tail.into_bits(), phase << 16 | next);
        assert_eq!(queue.sqs[0].tail, tail);
    }
    assert_eq!(channels.get(MEDIUM_ID).unwrap().asked, 13);
}

#[test]
fn queues_are_saved_as_they_come_and_go() {
    let mut rig = Rig::new(8, &[], Manner::Hanging);
    let file = StateFile::create("test", FORMAT_VERSION, &[area_bytes(8)]).unwrap();
    let mut made = config(&rig.host, &rig.doorbells, 8);
    made.state = file.take(0, slots_for(8)).unwrap();
    rig.lane = Lane::new(made).unwrap();
    rig.set_namespaces(vec![namespace(1, MEDIUM_ID, 8)]);
    rig.add_queue(3, 16);
    let (queue, _) = saved(&file, 8);
    assert_eq!(
        (queue.cqid, queue.cq_entries, queue.cq_base),
        (CQID, 8, rig.host.page(0).0)
    );
    assert_eq!(
        (queue.vector, queue.ien, queue.cq_tail.into_bits()),
        (VECTOR, 1, 1 << 16)
    );
    let sq = queue.sqs[2];
    assert_eq!((sq.sqid, sq.entries, sq.base), (3, 16, rig.sq_base(3).0));
    assert_eq!((sq.life, sq.progress.into_bits()), (SqLife::LIVE, 0));
    // In flight, aborted, gone.
    rig.submit(3, read(9));
    rig.turn();
    let (_, slots) = saved(&file, 8);
    assert_eq!(
        (slots.len(), slots[0].state()),
        (1, CommandState::IN_FLIGHT)
    );
    assert_eq!(
        (slots[0].cid(), slots[0].epoch),
        (9, rig.host.view().epoch())
    );
    rig.lane.command(LaneCommand::RemoveQueue { sqid: 3 });
    assert_eq!(saved(&file, 8).0.sqs[2].life, SqLife::REMOVING);
    rig.lane.command(LaneCommand::AbandonAll);
    let (queue, slots) = saved(&file, 8);
    assert_eq!((slots.len(), slots[0].state()), (1, CommandState::ZOMBIE));
    assert_eq!(queue.sqs[2].life, SqLife::NONE);
    rig.medium().release(1);
    rig.turn();
    assert!(saved(&file, 8).1.is_empty());
    rig.completions();
    rig.turn();
    assert_eq!(saved(&file, 8).0.cq_head, 1);
}
