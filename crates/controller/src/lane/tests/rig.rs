//! A host with rings, a lane, and media to put under it.

use std::collections::BTreeMap;
use std::sync::Arc;

use memory::{DoorbellPages, Iova, StateFile};
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use nvme_spec::{Cqe, Sqe, Status};
use port::namespace::{Namespace, NamespaceTable};
use port::testing::{Host, Manner, TestMedium, namespace};
use port::{Channel, ChannelId, Channels};

use crate::counters::LaneCounters;
use crate::lane::{
    BATCH, Copying, Lane, LaneCommand, LaneConfig, LaneEvent, LaneTurn, Quota, ShadowSpec, SqSpec,
};
use crate::state::{FORMAT_VERSION, area_bytes, slots_for};

/// Pages of the host's memory: 0 to 15 for the completion ring, 16 for each submission ring after
/// that, then data.
pub(super) const PAGES: u64 = 2048;
const RING_PAGES: u64 = 16;
/// First page of data.
pub(super) const DATA: u64 = 512;
/// Bytes of the medium.
pub(super) const MEDIUM: usize = 4 << 20;

/// The host's side of a submission queue.
pub(super) struct HostQueue {
    pub(super) entries: u32,
    pub(super) tail: u32,
    /// As the completions say.
    pub(super) head: u32,
    base: Iova,
}

pub(super) struct Rig {
    pub(super) host: Host,
    pub(super) doorbells: Arc<DoorbellPages>,
    pub(super) lane: Lane,
    pub(super) channels: Channels<TestMedium>,
    pub(super) sqs: BTreeMap<u16, HostQueue>,
    pub(super) cq_entries: u32,
    pub(super) cq_head: u32,
    phase: bool,
    /// Doorbells go to the shadow instead of the register.
    pub(super) shadow: Option<ShadowSpec>,
}

pub(super) const CQID: u16 = 7;
pub(super) const VECTOR: u16 = 3;
pub(super) const MEDIUM_ID: ChannelId = ChannelId(0);

impl Rig {
    /// A lane with a completion queue of `cq` entries and submission queues 1, 2, ... of the given
    /// sizes; namespace 1 is on a medium of [`MEDIUM`] bytes that answers in this `manner`.
    pub(super) fn new(cq: u32, sqs: &[u32], manner: Manner) -> Self {
        Self::on(Host::new(PAGES), cq, sqs, manner)
    }

    pub(super) fn on(host: Host, cq: u32, sqs: &[u32], manner: Manner) -> Self {
        Self::of(host, cq, sqs, manner, false)
    }

    /// The same, of a host inside the process.
    pub(super) fn inside(cq: u32, sqs: &[u32], manner: Manner) -> Self {
        Self::of(Host::new(PAGES), cq, sqs, manner, true)
    }

    fn of(host: Host, cq: u32, sqs: &[u32], manner: Manner, is_inside: bool) -> Self {
        let mut channels = Channels::new();
        let id = channels.insert(TestMedium::new(MEDIUM, manner)).ok();
        assert_eq!(id, Some(MEDIUM_ID));
        let doorbells = Arc::new(DoorbellPages::new(256).unwrap());
        let config = LaneConfig {
            is_inside,
            ..config(&host, &doorbells, cq)
        };
        let lane = Lane::new(config).unwrap();
        let mut rig = Rig {
            host,
            doorbells,
            lane,
            channels,
            sqs: BTreeMap::new(),
            cq_entries: cq,
            cq_head: 0,
            phase: true,
            shadow: None,
        };
        rig.set_namespaces(vec![namespace(1, MEDIUM_ID, MEDIUM as u64 / 512)]);
        for (sqid, entries) in (1..).zip(sqs) {
            rig.add_queue(sqid, *entries);
        }
        rig
    }

    pub(super) fn set_namespaces(&mut self, namespaces: Vec<Namespace>) {
        let table = Arc::new(NamespaceTable::from(namespaces));
        self.lane.command(LaneCommand::Namespaces {
            table,
            generation: 0,
        });
    }

    pub(super) fn add_queue(&mut self, sqid: u16, entries: u32) {
        let base = self.sq_base(sqid);
        self.doorbells.store(sq_tail_slot(sqid), 0);
        let spec = SqSpec::new(&self.host.view(), sqid, base, entries).unwrap();
        self.lane.command(LaneCommand::AddQueue(spec));
        let queue = HostQueue {
            entries,
            tail: 0,
            head: 0,
            base,
        };
        self.sqs.insert(sqid, queue);
    }

    pub(super) fn sq_base(&self, sqid: u16) -> Iova {
        self.host.page(u64::from(sqid) * RING_PAGES)
    }

    pub(super) fn medium(&mut self) -> &mut TestMedium {
        self.channels.get_mut(MEDIUM_ID).unwrap()
    }

    /// Entries that the host may submit, as far as it knows.
    pub(super) fn room(&self, sqid: u16) -> u32 {
        let q = &self.sqs[&sqid];
        q.entries - 1 - (q.tail + q.entries - q.head) % q.entries
    }

    /// Stores a command, without ringing.
    pub(super) fn store(&mut self, sqid: u16, sqe: Sqe) {
        assert!(self.room(sqid) > 0, "a host does not overrun its queue");
        let q = self.sqs.get_mut(&sqid).unwrap();
        let at = Iova(q.base.0 + u64::from(q.tail) * 64);
        let bytes: Vec<u8> = sqe
            .to_words()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        self.host.write(at, &bytes);
        q.tail = (q.tail + 1) % q.entries;
    }

    /// Rings the tail doorbell.
    pub(super) fn ring(&mut self, sqid: u16) {
        let tail = self.sqs[&sqid].tail;
        self.set_doorbell(sq_tail_slot(sqid), tail);
    }

    pub(super) fn set_doorbell(&mut self, slot: usize, value: u32) {
        match self.shadow {
            Some(spec) => self
                .host
                .write_u32(Iova(spec.shadow.0 + 4 * slot as u64), value),
            None => self.doorbells.store(slot, value),
        }
    }

    pub(super) fn submit(&mut self, sqid: u16, sqe: Sqe) {
        self.store(sqid, sqe);
        self.ring(sqid);
    }

    /// One turn, and one reap.
    /// One turn; commands for a subsystem stay unanswered.
    pub(super) fn turn(&mut self) -> LaneTurn {
        let turn = self.lane.turn(&mut self.channels);
        while let Some(forward) = self.lane.take_forward() {
            let refused = Err(nvme_spec::Status::INVALID_COMMAND_OPCODE);
            self.lane.answer(forward.ticket, refused);
        }
        self.reap();
        turn
    }

    pub(super) fn reap(&mut self) {
        let mut done = Vec::new();
        for (_, channel) in self.channels.iter_mut() {
            channel.submit();
            channel.reap(&mut done);
        }
        for one in done {
            assert_eq!(one.ticket.owner(), self.lane.key());
            self.lane.complete(one.ticket, one.outcome);
        }
    }

    /// The next completion, if one has been posted; without ringing.
    pub(super) fn peek(&self) -> Option<Cqe> {
        let at = Iova(self.host.page(0).0 + u64::from(self.cq_head) * 16);
        let bytes = self.host.read(at, 16);
        let (low, high) = bytes.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let cqe = Cqe::from_words([word(low), word(high)]);
        (cqe.status.phase() == self.phase).then_some(cqe)
    }

    /// Takes the next completion; without ringing.
    pub(super) fn consume(&mut self) -> Option<Cqe> {
        let cqe = self.peek()?;
        self.cq_head = (self.cq_head + 1) % self.cq_entries;
        self.phase ^= self.cq_head == 0;
        if let Some(q) = self.sqs.get_mut(&cqe.sq_id) {
            q.head = u32::from(cqe.sq_head);
        }
        Some(cqe)
    }

    pub(super) fn ring_head(&mut self) {
        self.set_doorbell(cq_head_slot(CQID), self.cq_head);
    }

    /// All completions that have been posted, consumed and rung.
    pub(super) fn completions(&mut self) -> Vec<Cqe> {
        let all = std::iter::from_fn(|| self.consume()).collect();
        self.ring_head();
        all
    }

    /// Runs one command to its end.
    pub(super) fn run(&mut self, sqe: Sqe) -> Status {
        self.submit(1, sqe);
        self.turn();
        let done = self.completions();
        assert_eq!(done.len(), 1, "one completion for one command");
        assert_eq!((done[0].sq_id, done[0].cid), (1, sqe.cid));
        done[0].status.status()
    }

    pub(super) fn events(&mut self) -> Vec<LaneEvent> {
        std::iter::from_fn(|| self.lane.take_event()).collect()
    }

    /// Whether nothing is left to do once its interrupt was taken.
    pub(super) fn is_idle(&mut self) -> bool {
        self.lane.take_posted();
        !self.lane.has_work()
    }

    /// Tells the lane of the host's present map; its epoch.
    pub(super) fn map_changed(&mut self) -> u64 {
        let view = self.host.view();
        let epoch = view.epoch();
        self.lane.command(LaneCommand::Map(view));
        epoch
    }
}

pub(super) fn config(host: &Host, doorbells: &Arc<DoorbellPages>, entries: u32) -> LaneConfig {
    let bytes = area_bytes(entries);
    let state = StateFile::create("test", FORMAT_VERSION, &[bytes]).unwrap();
    LaneConfig {
        cqid: CQID,
        entries,
        base: host.page(0),
        vector: Some(VECTOR),
        doorbells: doorbells.clone(),
        shadow: None,
        view: host.view(),
        namespaces: Arc::default(),
        generation: 0,
        state: state.take(0, slots_for(entries)).unwrap(),
        mdts_bytes: 512 << 10,
        write_through: false,
        quota: Quota::Each(BATCH),
        is_inside: false,
        copying: Copying {
            across: true,
            namespace_limit: 32,
        },
        counters: Arc::<LaneCounters>::default(),
        mail_count: Arc::default(),
        first_name: 1,
    }
}

/// A command with an opcode, for namespace 1, with its data in one page.
pub(super) fn command(opcode: u8, cid: u16) -> Sqe {
    Sqe {
        opcode,
        cid,
        nsid: 1,
        prp1: Host::BASE + DATA * 4096,
        ..Sqe::default()
    }
}

/// One block.
pub(super) fn read(cid: u16) -> Sqe {
    command(0x02, cid)
}

/// `blocks` blocks from `slba` on, at the host's page `page`, whose list is at the page before it.
pub(super) fn transfer(host: &Host, opcode: u8, slba: u64, blocks: u32, page: u64) -> Sqe {
    let pages = u64::from(blocks).div_ceil(8);
    let prp2 = match pages {
        0..=1 => 0,
        2 => host.page(page + 1).0,
        _ => {
            for n in 1..pages {
                let at = Iova(host.page(page - 1).0 + 8 * (n - 1));
                host.write_u64(at, host.page(page + n).0);
            }
            host.page(page - 1).0
        }
    };
    Sqe {
        opcode,
        nsid: 1,
        prp1: host.page(page).0,
        prp2,
        cdw10: slba as u32,
        cdw11: (slba >> 32) as u32,
        cdw12: blocks - 1,
        ..Sqe::default()
    }
}
