//! Commands that wait for their flow's turn: whom they hold up, and what becomes of them meanwhile.

use std::collections::BTreeMap;

use nvme_spec::{Cqe, Sqe, Status};
use port::Channel;
use port::namespace::Namespace;
use port::testing::{Manner, namespace};
use port::time::Time;

use super::rig::{DATA, MEDIUM, MEDIUM_ID, Rig, command, read};
use crate::gate::{FlowId, Gate, Pass, Work};
use crate::lane::{AbortRequest, LaneCommand, LaneEvent, LaneTurn};

const OK: Status = Status::SUCCESSFUL_COMPLETION;

/// Lets so many commands of each namespace go, and keeps books.
#[derive(Default)]
pub(super) struct Doorman {
    /// By namespace; what is not there goes free.
    may: BTreeMap<u16, u32>,
    issued: Vec<(u16, Work, bool)>,
    /// Those that media have.
    inside: BTreeMap<u16, i32>,
}

impl Gate for &mut Doorman {
    const HOLDS: bool = true;

    fn pass(&mut self, namespace: &Namespace) -> Pass {
        let flow = FlowId(namespace.nsid as u16);
        match self.may.get(&flow.0) {
            None => Pass::Free,
            Some(0) => Pass::Wait(flow),
            Some(_) => Pass::Go(flow),
        }
    }

    fn pass_again(&mut self, flow: FlowId) -> bool {
        self.may[&flow.0] > 0
    }

    fn held(&mut self, flow: FlowId) {
        assert_eq!(self.may[&flow.0], 0);
    }

    fn issued(&mut self, flow: FlowId, work: Work, pending: bool) -> Time {
        *self.may.get_mut(&flow.0).unwrap() -= 1;
        self.issued.push((flow.0, work, pending));
        *self.inside.entry(flow.0).or_default() += i32::from(pending);
        Time(77)
    }

    fn ended(&mut self, flow: FlowId, work: Work, since: Time) {
        assert_eq!(since, Time(77));
        assert!(self.issued.contains(&(flow.0, work, true)));
        *self.inside.get_mut(&flow.0).unwrap() -= 1;
    }
}

impl Doorman {
    pub(super) fn new(may: &[(u16, u32)]) -> Self {
        Doorman {
            may: may.iter().copied().collect(),
            ..Doorman::default()
        }
    }

    fn let_go(&mut self, flow: u16, commands: u32) {
        self.may.insert(flow, commands);
    }
}

impl Rig {
    pub(super) fn turn_through(&mut self, gate: &mut Doorman) -> LaneTurn {
        let turn = self.lane.turn_through(&mut self.channels, &mut *gate);
        let mut done = Vec::new();
        for (_, channel) in self.channels.iter_mut() {
            channel.submit();
            channel.reap(&mut done);
        }
        for one in done {
            let gate = &mut &mut *gate;
            self.lane.complete_through(one.ticket, one.outcome, gate);
        }
        turn
    }
}

/// Two namespaces on one medium.
fn two(manner: Manner) -> Rig {
    let mut rig = Rig::new(64, &[64, 64], manner);
    let half = MEDIUM as u64 / 1024;
    rig.set_namespaces(vec![
        namespace(1, MEDIUM_ID, half),
        namespace(2, MEDIUM_ID, half),
    ]);
    rig
}

fn to(nsid: u32, cid: u16) -> Sqe {
    Sqe { nsid, ..read(cid) }
}

fn ends(done: &[Cqe]) -> Vec<(u16, Status)> {
    done.iter()
        .map(|cqe| (cqe.cid, cqe.status.status()))
        .collect()
}

fn oks(cids: &[u16]) -> Vec<(u16, Status)> {
    cids.iter().map(|cid| (*cid, OK)).collect()
}

#[test]
fn a_namespace_that_is_held_back_holds_up_none_beside_it() {
    let mut rig = two(Manner::Synchronous);
    let mut gate = Doorman::new(&[(1, 0), (2, 100)]);
    for (cid, nsid) in [(0, 1), (1, 2), (2, 1), (3, 1), (4, 2)] {
        rig.store(1, to(nsid, cid));
    }
    rig.ring(1);
    let turn = rig.turn_through(&mut gate);
    assert_eq!((turn.fetched, turn.released), (5, 0));
    assert_eq!(ends(&rig.completions()), oks(&[1, 4]));
    assert_eq!(rig.lane.held(), 3);
    assert!(rig.is_idle(), "what waits is no work");
    // One at a time, in the order in which they came, and what comes later goes behind them.
    rig.submit(1, to(1, 5));
    gate.let_go(1, 1);
    let turn = rig.turn_through(&mut gate);
    assert_eq!((turn.released, turn.pending), (1, 2));
    assert_eq!(ends(&rig.completions()), oks(&[0]));
    gate.let_go(1, 100);
    rig.turn_through(&mut gate);
    assert_eq!(ends(&rig.completions()), oks(&[2, 3, 5]));
    assert_eq!(rig.lane.held(), 0);
}

#[test]
fn with_one_namespace_the_others_wait_in_the_hosts_ring() {
    for plain in [true, false] {
        let mut rig = Rig::new(64, &[64, 64], Manner::Synchronous);
        let mut gate = Doorman::new(&[(1, 0)]);
        for cid in 0..8 {
            // One with Force Unit Access goes the general way.
            let cdw12 = if plain { 0 } else { 1 << 30 };
            rig.store(1, Sqe { cdw12, ..read(cid) });
        }
        rig.ring(1);
        for _ in 0..4 {
            rig.turn_through(&mut gate);
        }
        assert_eq!((rig.lane.held(), rig.lane.sq_head(1)), (1, Some(1)));
        gate.let_go(1, 100);
        rig.turn_through(&mut gate);
        assert_eq!(ends(&rig.completions()), oks(&[0, 1, 2, 3, 4, 5, 6, 7]));
    }
}

#[test]
fn what_waits_holds_up_no_unmap_and_no_change_of_namespaces() {
    let mut rig = two(Manner::Synchronous);
    let mut gate = Doorman::new(&[(1, 0), (2, 0)]);
    rig.submit(1, to(1, 0));
    rig.submit(1, to(2, 1));
    rig.turn_through(&mut gate);
    assert_eq!(rig.lane.held(), 2);
    let epoch = rig.map_changed();
    assert_eq!(rig.events(), [LaneEvent::Drained { epoch }]);
    // Its namespace goes: it ends as one that came later.
    let half = MEDIUM as u64 / 1024;
    rig.set_namespaces(vec![namespace(2, MEDIUM_ID, half)]);
    gate.let_go(1, 9);
    gate.let_go(2, 9);
    rig.turn_through(&mut gate);
    let gone = Status::INVALID_FIELD_IN_COMMAND;
    assert_eq!(ends(&rig.completions()), [(0, gone), (1, OK)]);
}

#[test]
fn what_waits_is_aborted_deleted_and_dropped() {
    let mut rig = two(Manner::Synchronous);
    let mut gate = Doorman::new(&[(1, 0), (2, 0)]);
    for (sqid, cid) in [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)] {
        rig.submit(sqid, to(1 + u32::from(cid % 2), cid));
    }
    rig.turn_through(&mut gate);
    assert_eq!(rig.lane.held(), 5);
    for (number, cid, aborted) in [(4, 2, true), (8, 2, false), (12, 3, false)] {
        let sqid = 1;
        let request = AbortRequest { sqid, cid, number };
        rig.lane.command(LaneCommand::Abort(request));
        let done = LaneEvent::AbortDone { request, aborted };
        assert_eq!(rig.events()[..1], [done]);
    }
    let aborted = Status::COMMAND_ABORT_REQUESTED;
    assert_eq!(ends(&rig.completions()), [(2, aborted)]);
    rig.lane.command(LaneCommand::RemoveQueue { sqid: 1 });
    assert_eq!(rig.events(), [LaneEvent::QueueRemoved { sqid: 1 }]);
    let mut deleted = ends(&rig.completions());
    deleted.sort_by_key(|(cid, _)| *cid);
    let status = Status::ABORTED_SQ_DELETION;
    assert_eq!(deleted, [(0, status), (1, status)]);
    assert_eq!(rig.lane.held(), 2);
    // The lists are whole: what is left goes.
    gate.let_go(1, 9);
    gate.let_go(2, 9);
    rig.turn_through(&mut gate);
    let mut left = ends(&rig.completions());
    left.sort_by_key(|(cid, _)| *cid);
    assert_eq!(left, oks(&[3, 4]));
    gate.let_go(1, 0);
    rig.submit(2, to(1, 6));
    rig.turn_through(&mut gate);
    rig.lane.command(LaneCommand::Stop);
    assert_eq!(rig.events(), [LaneEvent::Stopped]);
    assert_eq!(rig.lane.held(), 0);
}

#[test]
fn every_command_that_a_medium_has_leaves_the_gate_once() {
    let mut rig = two(Manner::Hanging);
    let mut gate = Doorman::new(&[(1, 100), (2, 100)]);
    for cid in 0..6 {
        rig.submit(1, to(1 + u32::from(cid % 2), cid));
    }
    rig.turn_through(&mut gate);
    assert_eq!(gate.inside, [(1, 3), (2, 3)].into());
    let work = Work {
        opcode: 2,
        bytes: 512,
    };
    assert!(
        gate.issued
            .iter()
            .all(|issued| (issued.1, issued.2) == (work, true))
    );
    rig.medium().release(2);
    rig.turn_through(&mut gate);
    assert_eq!(gate.inside, [(1, 2), (2, 2)].into());
    // The aborted command is still with the medium.
    rig.lane.command(LaneCommand::AbandonAll);
    rig.turn_through(&mut gate);
    assert_eq!(gate.inside, [(1, 2), (2, 2)].into());
    rig.medium().release(2);
    rig.turn_through(&mut gate);
    assert_eq!(gate.inside, [(1, 1), (2, 1)].into());
    rig.lane.leave(&mut &mut gate);
    assert_eq!(gate.inside, [(1, 0), (2, 0)].into());
    rig.medium().release(2);
    rig.turn_through(&mut gate);
    assert_eq!(gate.inside, [(1, 0), (2, 0)].into());
}

#[test]
fn a_full_channel_keeps_a_command_that_was_let_go_first_in_its_list() {
    let mut rig = two(Manner::Hanging);
    let mut gate = Doorman::new(&[(1, 0), (2, 0)]);
    for cid in 0..4 {
        rig.submit(1, to(1, cid));
    }
    rig.turn_through(&mut gate);
    rig.medium().capacity = 1;
    gate.let_go(1, 100);
    rig.turn_through(&mut gate);
    assert_eq!((rig.lane.held(), gate.inside[&1]), (3, 1));
    assert_eq!(gate.issued.len(), 1, "what found no room is not charged");
    rig.medium().capacity = 9;
    rig.medium().release(1);
    rig.turn_through(&mut gate);
    rig.turn_through(&mut gate);
    rig.medium().release(3);
    rig.turn_through(&mut gate);
    assert_eq!(ends(&rig.completions()), oks(&[0, 1, 2, 3]));
}

#[test]
fn two_fused_commands_wait_together() {
    const COMPARE: u8 = 5;
    const WRITE: u8 = 1;
    let mut rig = two(Manner::Synchronous);
    let mut gate = Doorman::new(&[(1, 0), (2, 100)]);
    rig.host.write(rig.host.page(DATA), &[0; 4096]);
    let part = |opcode, fuse: u8, cid| Sqe {
        flags: fuse.into(),
        ..command(opcode, cid)
    };
    rig.store(1, part(COMPARE, 1, 0));
    rig.store(1, part(WRITE, 2, 1));
    rig.ring(1);
    rig.submit(2, to(2, 2));
    for _ in 0..3 {
        rig.turn_through(&mut gate);
    }
    assert_eq!(ends(&rig.completions()), oks(&[2]));
    gate.let_go(1, 1);
    rig.turn_through(&mut gate);
    assert_eq!(ends(&rig.completions()), oks(&[0, 1]));
    let bytes = gate.issued.iter().filter(|(flow, ..)| *flow == 1);
    let bytes: Vec<u32> = bytes.map(|(_, work, _)| work.bytes).collect();
    assert_eq!(bytes, [1024], "both are charged, once");
}

#[test]
fn each_step_of_a_long_command_is_let_go_and_charged() {
    const VERIFY: u8 = 0x0c;
    let mut rig = Rig::new(64, &[64], Manner::Asynchronous);
    let mut gate = Doorman::new(&[(1, 1)]);
    // Two steps of a MiB.
    let verify = Sqe {
        cdw12: 4095,
        ..command(VERIFY, 0)
    };
    rig.submit(1, verify);
    for _ in 0..6 {
        rig.turn_through(&mut gate);
    }
    assert_eq!(rig.completions(), []);
    assert_eq!(gate.issued.len(), 1);
    gate.let_go(1, 1);
    for _ in 0..6 {
        rig.turn_through(&mut gate);
    }
    assert_eq!(ends(&rig.completions()), oks(&[0]));
    let bytes: u32 = gate.issued.iter().map(|(_, work, _)| work.bytes).sum();
    assert_eq!((bytes, gate.inside[&1]), (2 << 20, 0));
}
