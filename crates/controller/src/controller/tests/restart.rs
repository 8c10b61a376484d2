//! A controller whose process dies at each store of a script: the one that continues completes each
//! admin command once, with the command's own status, and serves the queues that the host has.

use std::collections::BTreeMap;
use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;

use memory::{Iova, StateFile};
use nvme_spec::registers::sq_tail_slot;
use nvme_spec::{Cqe, Sqe};
use port::testing::{Manner, Seen};
use subsystem::{Subsystem, SubsystemConfig};

use super::rig::*;
use crate::controller::saved::ControllerState;
use crate::controller::{Controller, Interrupt};
use crate::crash::{self, Death};
use crate::lane::{LaneCommand, LaneEvent, LaneTable as _};
use crate::state::{FORMAT_VERSION, OLDEST_VERSION, QueueState, SqState};

/// Actions of the host, one after the other.
enum Act {
    /// An admin command, and the status that it ends with.
    Admin(Sqe, u16),
    /// A request for an event, which is held.
    Request,
    /// Aborts the request, which ends with the status and the aborting command.
    AbortRequest,
    /// A read by the first pair of queues.
    Read,
}

/// A host with its script.
struct World {
    rig: Rig,
    at: usize,
    /// The command identifier of the request.
    request: u16,
    /// Commands without a completion, and the statuses that they end with.
    outstanding: BTreeMap<u16, u16>,
    begun: bool,
    reads: u32,
}

impl World {
    fn new() -> Self {
        World {
            rig: Rig::enabled(),
            at: 0,
            request: 0,
            outstanding: BTreeMap::new(),
            begun: false,
            reads: 0,
        }
    }

    fn submit(&mut self, sqe: Sqe, status: u16) -> u16 {
        let cid = self.rig.submit(sqe);
        self.outstanding.insert(cid, status);
        cid
    }

    /// Turns until nothing but a held request is outstanding. The host looks after an interrupt.
    fn settle(&mut self) {
        for _ in 0..64 {
            if self.outstanding.is_empty() {
                return;
            }
            self.rig.turn();
            let raised = std::mem::take(&mut self.rig.interrupts);
            if !raised.contains(&Interrupt::Vector(0)) {
                continue;
            }
            while let Some(cqe) = self.rig.reap() {
                let status = self.outstanding.remove(&cqe.cid);
                let status = status.unwrap_or_else(|| panic!("completed twice: {cqe:?}"));
                assert_eq!(code(&cqe), status, "{cqe:?}");
            }
        }
        panic!("these never end: {:?}", self.outstanding);
    }

    fn read(&mut self) -> Cqe {
        let sqe = self.rig.read_sqe(0x100 + self.reads as u16, 2);
        if !self.begun {
            self.begun = true;
            self.rig.submit_io(1, self.reads, sqe);
        }
        for _ in 0..64 {
            self.rig.turn();
            if let Some(cqe) = self.rig.io_cqe(1, self.reads) {
                assert_eq!(cqe.cid, sqe.cid);
                return cqe;
            }
        }
        panic!("a read never ends");
    }

    fn play(&mut self, script: &[Act]) {
        while let Some(act) = script.get(self.at) {
            match act {
                Act::Read => {
                    assert_eq!(code(&self.read()), OK);
                    self.reads += 1;
                }
                Act::Request => {
                    if !self.begun {
                        self.begun = true;
                        self.request = self.rig.submit(Sqe {
                            opcode: ASYNC_EVENT,
                            ..Sqe::default()
                        });
                    }
                    self.rig.turns(3);
                    assert_eq!(self.rig.peek(), None, "it is held");
                }
                Act::Admin(sqe, status) => {
                    if !self.begun {
                        self.begun = true;
                        self.submit(*sqe, *status);
                    }
                    self.settle();
                }
                Act::AbortRequest => {
                    if !self.begun {
                        self.begun = true;
                        let abort = Sqe {
                            opcode: ABORT,
                            cdw10: u32::from(self.request) << 16,
                            ..Sqe::default()
                        };
                        self.submit(abort, OK);
                        self.outstanding.insert(self.request, ABORT_REQUESTED);
                    }
                    self.settle();
                }
            }
            self.at += 1;
            self.begun = false;
        }
    }
}

fn feature(fid: u32, value: u32) -> Sqe {
    Sqe {
        opcode: SET_FEATURES,
        cdw10: fid,
        cdw11: value,
        ..Sqe::default()
    }
}

fn delete(opcode: u8, qid: u32) -> Sqe {
    Sqe {
        opcode,
        cdw10: qid,
        ..Sqe::default()
    }
}

fn script(rig: &Rig) -> Vec<Act> {
    let invalid = Sqe {
        opcode: 0x7F,
        ..Sqe::default()
    };
    let buffers = Sqe {
        opcode: DOORBELL_BUFFERS,
        prp1: rig.host.page(200).0,
        prp2: rig.host.page(201).0,
        ..Sqe::default()
    };
    vec![
        Act::Request,
        Act::Admin(feature(0x07, 3 << 16 | 3), OK),
        Act::Admin(rig.create_cq_sqe(1, 8), OK),
        Act::Admin(rig.create_sq_sqe(1, 1, 8), OK),
        Act::Admin(rig.create_cq_sqe(2, 8), OK),
        Act::Admin(rig.create_sq_sqe(2, 2, 8), OK),
        Act::Read,
        Act::Admin(buffers, OK),
        Act::Admin(feature(0x08, 0x0203), OK),
        Act::Admin(invalid, INVALID_OPCODE),
        Act::Admin(rig.create_cq_sqe(2, 8), INVALID_QID),
        Act::Read,
        Act::Admin(delete(DELETE_SQ, 2), OK),
        Act::Admin(delete(DELETE_CQ, 2), OK),
        Act::Admin(delete(DELETE_CQ, 1), INVALID_DELETION),
        Act::AbortRequest,
        Act::Admin(rig.create_cq_sqe(2, 16), OK),
        Act::Read,
    ]
}

/// Plays the script through a death at each of the points; how many the last process has passed.
fn play(points: &[u64]) -> Option<u64> {
    let mut world = World::new();
    let script = script(&world.rig);
    for point in points {
        match crash::run(*point, || world.play(&script)) {
            Err(Death) => world.rig.revive(),
            Ok(_) => return None,
        }
    }
    let (_, passed) = crash::run(u64::MAX, || world.play(&script)).expect("it dies no more");
    let rig = &mut world.rig;
    rig.turns(3);
    assert_eq!(rig.reap(), None, "a completion of nothing");
    assert_eq!(rig.lanes.live(), 2);
    assert_eq!(rig.csts() & (RDY | CFS), RDY);
    assert_eq!(rig.get_feature(0x08, 0, 0).dw0, 0x0203);
    Some(passed)
}

#[test]
fn every_admin_command_completes_once_wherever_the_process_dies() {
    let count = play(&[]).expect("it plays");
    assert!(count > 80, "{count} points");
    for point in 0..count {
        assert!(play(&[point]).is_some());
        for second in [0, 1, 3, 7] {
            play(&[point, second]);
        }
    }
}

/// An action that a host begins with a register, and the status (CSTS) that shows its end.
fn ends(begin: impl Fn(&mut Rig), status: u32) {
    let mut died = true;
    for point in 0.. {
        let mut rig = Rig::enabled();
        rig.create_pair(1, 8);
        rig.create_pair(2, 8);
        let read = rig.read_sqe(7, 2);
        rig.submit_io(1, 0, read);
        // The host has written when the process dies, or not: then it writes again.
        let mut begun = false;
        died = crash::run(point, || {
            begin(&mut rig);
            begun = true;
            rig.turns(20);
        })
        .is_err();
        if died {
            rig.revive();
        }
        if !begun {
            begin(&mut rig);
        }
        rig.turns(20);
        assert_eq!(rig.csts(), status, "after {point} points");
        assert_eq!(rig.lanes.live(), 0, "after {point} points");
        rig.write32(CC, 0);
        rig.turns(20);
        assert_eq!(rig.csts(), 0, "after {point} points");
        rig.enable();
        rig.create_pair(1, 8);
        if !died {
            assert!(point > 4, "{point} points");
            break;
        }
    }
    assert!(!died);
}

#[test]
fn a_reset_or_a_shutdown_that_was_going_on_ends() {
    ends(|rig| rig.write32(CC, 0), 0);
    ends(|rig| rig.controller.function_reset(), 0);
    let normal = CC_ENABLE | 1 << 14;
    ends(|rig| rig.write32(CC, normal), RDY | SHST_COMPLETE);
}

/// A write may have left half of a block when the process died, until it is executed again, and a
/// copy that read that half would write it elsewhere.
#[test]
fn copies_go_on_after_the_writes_of_all_lanes_and_before_the_reads() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.create_pair(2, 8);
    // Block 40 becomes what block 8 has.
    let mut list = [0; 32];
    list[8..16].copy_from_slice(&8_u64.to_le_bytes());
    rig.host.write(rig.host.page(210), &list);
    let copy = Sqe {
        opcode: 0x19,
        prp1: rig.host.page(210).0,
        cdw10: 40,
        ..rig.read_sqe(1, 1)
    };
    let read = Sqe {
        cdw10: 40,
        ..rig.read_sqe(2, 1)
    };
    let write = Sqe {
        opcode: 0x01,
        cdw10: 8,
        ..rig.read_sqe(3, 1)
    };
    rig.medium(0).manner = Manner::Hanging;
    rig.submit_io(1, 0, copy);
    rig.submit_io(1, 1, read);
    rig.submit_io(2, 0, write);
    rig.turns(4);
    assert_eq!(rig.medium(0).seen.len(), 3);
    rig.revive();
    let (from, to) = (8 * 512, 40 * 512);
    let order = [
        Seen::Write(from, 512, false),
        Seen::Read(from, 512),
        Seen::Write(to, 512, false),
        Seen::Read(to, 512),
    ];
    for so_far in 1..=order.len() {
        rig.turns(8);
        assert_eq!(rig.medium(0).seen, order[..so_far]);
        rig.medium(0).release(1);
    }
    rig.turns(8);
    let ended = [(1, 0), (1, 1), (2, 0)].map(|(qid, index)| rig.io_cqe(qid, index));
    assert!(ended.iter().flatten().all(|cqe| code(cqe) == OK));
    assert_eq!(ended.iter().flatten().count(), 3);
}

/// A lane has left the bus when nothing is in flight, and answers nevertheless.
#[test]
fn a_copy_that_ended_with_its_queue_keeps_no_controller_waiting() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    rig.medium(0).manner = Manner::Hanging;
    rig.host.write(rig.host.page(210), &[0; 32]);
    let copy = Sqe {
        opcode: 0x19,
        prp1: rig.host.page(210).0,
        cdw10: 40,
        ..rig.read_sqe(1, 1)
    };
    rig.submit_io(1, 0, copy);
    rig.turns(4);
    rig.revive();
    let key = rig.lanes.iter().next().expect("a queue pair").key();
    let lane = rig.lanes.local(key).expect("its lane");
    let events = std::iter::from_fn(|| lane.take_event()).collect::<Vec<_>>();
    assert_eq!(events, [LaneEvent::Replayed { copies: true }]);
    lane.command(LaneCommand::RemoveQueue { sqid: 1 });
    lane.command(LaneCommand::LeaveBus {
        round: 1,
        idle: false,
    });
    assert_eq!(lane.take_event(), None, "it is to copy before");
    // Other lanes take too long.
    lane.command(LaneCommand::AbandonAll);
    let events = std::iter::from_fn(|| lane.take_event()).collect::<Vec<_>>();
    let left = LaneEvent::LeftBus { round: 1 };
    assert_eq!(events, [LaneEvent::QueueRemoved { sqid: 1 }, left]);
    lane.command(LaneCommand::ReleaseCopies);
    let event = lane.take_event();
    assert_eq!(event, Some(LaneEvent::Replayed { copies: false }));
}

#[test]
fn an_aborted_request_that_waits_for_a_place_completes() {
    let mut rig = Rig::new();
    // One place for completions: the aborting command's.
    rig.set_admin_queues(2);
    rig.write32(CC, CC_ENABLE);
    rig.turns(2);
    let request = rig.submit(Sqe {
        opcode: ASYNC_EVENT,
        ..Sqe::default()
    });
    rig.turns(2);
    let abort = rig.submit(Sqe {
        opcode: ABORT,
        cdw10: u32::from(request) << 16,
        ..Sqe::default()
    });
    rig.turns(2);
    rig.revive();
    let mut ended = Vec::new();
    for _ in 0..4 {
        rig.turns(2);
        ended.extend(rig.reap().map(|cqe| (cqe.cid, code(&cqe))));
    }
    assert_eq!(ended, [(abort, OK), (request, ABORT_REQUESTED)]);
}

#[test]
fn a_host_keeps_its_identifier() {
    // 64 bits, and 128 (EXHID).
    for (exhid, len) in [(0, 8), (1, 16)] {
        let mut rig = Rig::enabled();
        let id = rig.controller.id();
        let identifier: Vec<u8> = (1..=len).collect();
        rig.host.write(rig.data_page(), &identifier);
        let sqe = rig.with_data(SET_FEATURES);
        let set = Sqe {
            cdw10: 0x81,
            cdw11: exhid,
            ..sqe
        };
        assert_eq!(rig.status(set), OK);
        let host = rig.subsystem.host_of(id);
        rig.revive();
        assert_eq!(rig.controller.id(), id);
        assert_eq!(rig.subsystem.host_of(id), host);
        rig.turns(2);
        assert_eq!(rig.subsystem.host_of(id), host);
    }
}

const SHADOW: u64 = 200;

/// Registers doorbell buffers in which the place of queue 1 has a value from before.
fn register_buffers(rig: &mut Rig) {
    let (shadow, event_idx) = (rig.host.page(SHADOW), rig.host.page(SHADOW + 1));
    ring_buffers(rig, 5);
    let config = Sqe {
        opcode: DOORBELL_BUFFERS,
        prp1: shadow.0,
        prp2: event_idx.0,
        ..Sqe::default()
    };
    assert_eq!(rig.status(config), OK);
}

/// The tail of queue 1, in the buffers alone.
fn ring_buffers(rig: &Rig, tail: u32) {
    let at = rig.host.page(SHADOW).0 + 4 * sq_tail_slot(1) as u64;
    rig.host.write(Iova(at), &tail.to_le_bytes());
}

/// Overwrites a part of what the lane of queue 1 has saved with zeroes: it dies before it had that.
fn unheard(rig: &Rig, at: usize, len: usize) {
    let file = File::from(rig.controller.state().fd().try_clone_to_owned().unwrap());
    let mut word = [0; 8];
    file.read_exact_at(&mut word, 32 + 16 * 2).unwrap();
    let area = u64::from_le_bytes(word);
    file.write_all_at(&vec![0; len], area + at as u64).unwrap();
}

/// The host submits a command by the buffers or by the register, the process dies, and the next one
/// executes it.
fn executes_what_was_submitted(mut rig: Rig, by_register: bool) {
    let read = rig.read_sqe(4, 1);
    rig.submit_io(1, 0, read);
    if !by_register {
        rig.doorbells.store(sq_tail_slot(1), 0);
        ring_buffers(&rig, 1);
    }
    rig.revive();
    rig.turns(2);
    rig.controller.release(&mut rig.lanes);
    rig.turns(6);
    let cid = rig.io_cqe(1, 0).map(|cqe| cqe.cid);
    assert_eq!(cid, Some(4), "by the register: {by_register}");
}

#[test]
fn a_queue_that_was_on_its_way_to_its_lane_is_rung_where_its_host_rings() {
    for by_register in [false, true] {
        let mut rig = Rig::enabled();
        register_buffers(&mut rig);
        rig.create_pair(1, 8);
        unheard(&rig, offset_of!(QueueState, sqs), size_of::<SqState>());
        executes_what_was_submitted(rig, by_register);
    }
}

#[test]
fn doorbell_buffers_that_were_on_their_way_to_a_lane_are_known_to_it() {
    for by_register in [false, true] {
        let mut rig = Rig::enabled();
        rig.create_pair(1, 8);
        register_buffers(&mut rig);
        let sq = offset_of!(QueueState, sqs);
        for at in [
            offset_of!(QueueState, shadow),
            offset_of!(QueueState, registration),
        ] {
            unheard(&rig, at, 4);
        }
        unheard(&rig, offset_of!(QueueState, bell), 1);
        unheard(&rig, sq + offset_of!(SqState, shadow), 4);
        unheard(&rig, sq + offset_of!(SqState, bell), 1);
        executes_what_was_submitted(rig, by_register);
    }
}

#[test]
fn what_another_version_or_controller_has_saved_is_refused() {
    let mut rig = Rig::enabled();
    rig.create_pair(3, 8);
    let nothing_left = |subsystem: &Subsystem, lanes: &Lanes| {
        assert_eq!(lanes.live(), 0);
        assert_eq!(subsystem.controllers().count(), 0);
    };
    let restore = |rig: &mut Rig, config, version: u32| {
        let fd = rig.controller.state().fd().try_clone_to_owned().unwrap();
        let file = File::from(fd);
        file.write_all_at(&version.to_le_bytes(), 12).unwrap();
        let file = StateFile::open(file.into()).unwrap();
        let left = rig.left(file);
        rig.subsystem.leave(rig.controller.id());
        let (subsystem, lanes) = (&mut rig.subsystem, &mut Lanes::default());
        let restored = Controller::restore(config, left, subsystem, lanes);
        if restored.is_err() {
            nothing_left(subsystem, lanes);
        }
        std::mem::take(lanes).end();
        restored.map(drop).map_err(|error| error.to_string())
    };
    let older = "the saved state has format version 3, and this program reads 4 to 8";
    assert_eq!(restore(&mut rig, config(), 3), Err(older.to_owned()));
    let mut fewer = config();
    fewer.queues = 2;
    let damaged =
        "the saved state of the controller is damaged: it has more queues than there can be";
    assert_eq!(
        restore(&mut rig, fewer, FORMAT_VERSION),
        Err(damaged.to_owned())
    );
    assert_eq!(restore(&mut rig, config(), FORMAT_VERSION), Ok(()));
}

#[test]
fn the_version_before_can_go_on_until_the_next_one_serves() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    let state = rig.controller.state();
    state.set_format_version(OLDEST_VERSION).unwrap();
    rig.revive();
    assert_eq!(rig.controller.state().format_version(), OLDEST_VERSION);
    rig.controller.release(&mut rig.lanes);
    let fd = rig.controller.state().fd().try_clone_to_owned().unwrap();
    assert_eq!(
        StateFile::open(fd).unwrap().format_version(),
        FORMAT_VERSION
    );
}

#[test]
fn a_file_that_was_made_before_registrations_were_kept_goes_on_and_stays() {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    let file = File::from(rig.controller.state().fd().try_clone_to_owned().unwrap());
    // The length of area 0, as version 5 made it for 32 namespaces.
    let len = size_of::<[ControllerState; 2]>().next_multiple_of(64) + 2 * 2 * 32 * 4;
    let len = len.next_multiple_of(4096);
    assert!(Some(len) < rig.controller.state().area_lens().next());
    file.write_all_at(&(len as u64).to_le_bytes(), 40).unwrap();
    rig.controller.state().set_format_version(5).unwrap();
    for death in 0..3 {
        rig.revive();
        rig.turns(2);
        rig.controller.release(&mut rig.lanes);
        let cid = 4 + death as u16;
        let read = rig.read_sqe(cid, 1);
        rig.submit_io(1, death, read);
        rig.turns(6);
        assert_eq!(rig.io_cqe(1, death).map(|cqe| cqe.cid), Some(cid));
        assert_eq!(rig.controller.state().format_version(), FORMAT_VERSION);
    }
}

#[test]
fn damaged_state_is_refused_or_goes_on() {
    // The copies of the controller and of the admin queue, and the positions of a lane; where areas
    // begin is in the header.
    let offset = |area: u64| {
        let rig = Rig::enabled();
        let file = File::from(rig.controller.state().fd().try_clone_to_owned().unwrap());
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 32 + 16 * area).unwrap();
        u64::from_le_bytes(word)
    };
    let areas = [(0, 1600), (1, 400), (2, 160)];
    let offsets = areas.map(|(area, len)| offset(area)..offset(area) + len);
    let offsets = offsets.into_iter().flatten();
    let (mut refused, mut went_on) = (0, 0);
    for at in offsets.step_by(3) {
        let mut rig = Rig::enabled();
        rig.create_pair(2, 8);
        rig.create_pair(1, 8);
        rig.async_event();
        rig.turns(2);
        let fd = rig.controller.state().fd().try_clone_to_owned().unwrap();
        let file = File::from(fd);
        file.write_all_at(&[0xFF, 0xFF, 0x7F], at).unwrap();
        let file = StateFile::open(file.into()).unwrap();
        let left = rig.left(file);
        let config = SubsystemConfig::with_namespaces(32, namespaces());
        let mut subsystem = Subsystem::new(config).unwrap();
        let mut lanes = Lanes::default();
        let restored = Controller::restore(self::config(), left, &mut subsystem, &mut lanes);
        match restored {
            Err(_) => {
                refused += 1;
                assert_eq!(lanes.live(), 0);
                assert_eq!(subsystem.controllers().count(), 0);
            }
            Ok(controller) => {
                (rig.controller, rig.subsystem, rig.lanes) = (controller, subsystem, lanes);
                rig.turns(8);
                went_on += 1;
            }
        }
    }
    assert!(refused > 20 && went_on > 200, "{refused}, {went_on}");
}

#[test]
fn the_msix_table_is_as_the_host_has_left_it() {
    let table = |rig: &Rig| {
        let mut bytes = [0; 80];
        rig.controller.bar_read(4, 0, &mut bytes);
        bytes
    };
    let mut rig = Rig::enabled();
    let entry: Vec<u8> = (0x10..0x1c).chain([0; 4]).collect();
    rig.controller.bar_write(4, 32, &entry);
    rig.controller.bar_write(4, 4, &[7]);
    let before = table(&rig);
    assert_eq!(before[12..16], [1, 0, 0, 0], "masked");
    assert_eq!(before[44..48], [0; 4]);
    for _ in 0..2 {
        rig.revive();
        assert_eq!(table(&rig), before);
    }
    // After a reset it is as after power-on.
    rig.controller.function_reset();
    let reset = table(&rig);
    assert_ne!(reset, before);
    rig.revive();
    assert_eq!(table(&rig), reset);
    // A process before version 7 has not saved it.
    rig.controller.bar_write(4, 32, &entry);
    rig.controller.state().set_format_version(6).unwrap();
    rig.revive();
    assert_eq!(table(&rig), reset);
}
