//! A controller that moves to another server: the host goes on, and a state that is not for this
//! controller is refused.

use std::sync::Arc;

use memory::DoorbellPages;
use nvme_spec::Sqe;
use port::Channels;
use port::testing::{Manner, TestMedium};
use port::ticket::OwnerKey;
use subsystem::{Subsystem, SubsystemConfig};

use super::rig::*;
use crate::controller::{Controller, Interrupt, MigrateError, Moved};
use crate::lane::{Lane, LaneCommand, LaneTable};

impl Rig {
    /// Stops the controller; whether it has halted within some turns.
    fn halt(&mut self) -> bool {
        self.controller.halt(true);
        self.turns(20);
        self.controller.has_halted()
    }

    /// Another server takes this state, with the same host and the same media.
    fn move_to(&mut self, stream: &[u8]) -> Result<(), MigrateError> {
        let mut subsystem = SubsystemConfig::with_namespaces(32, namespaces());
        subsystem.name = "there".to_owned();
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        subsystem.set_key(OwnerKey::subsystem(3));
        let doorbells = Arc::new(DoorbellPages::new(config().doorbell_slots()).unwrap());
        let fresh = Controller::new(config(), doorbells.clone(), &mut subsystem).unwrap();
        let moved = Moved::read(stream, &fresh.appearance())?;
        subsystem.leave(fresh.id());
        let mut lanes = Lanes::default();
        let view = self.host.view();
        let there = Controller::take(
            config(),
            moved,
            doorbells.clone(),
            view,
            &mut subsystem,
            &mut lanes,
        )?;
        let old = std::mem::replace(&mut self.lanes, lanes);
        old.end();
        (self.controller, self.subsystem) = (there, subsystem);
        self.doorbells = doorbells;
        self.controller.set_key(OwnerKey::controller(7));
        self.tell_view();
        self.turns(5);
        assert!(self.controller.has_halted(), "it serves nothing yet");
        Ok(())
    }
}

/// A host with a queue pair, one read done, and one request for an event held.
fn used() -> (Rig, u16) {
    let mut rig = Rig::enabled();
    rig.create_pair(1, 8);
    let request = rig.async_event();
    let read = rig.read_sqe(0x100, 2);
    rig.submit_io(1, 0, read);
    rig.turns(10);
    assert_eq!(rig.io_cqe(1, 0).map(|cqe| cqe.cid), Some(0x100));
    (rig, request)
}

#[test]
fn the_host_goes_on_with_its_queues_and_its_requests() {
    let (mut rig, request) = used();
    let table = [0x5c_u8; 16];
    rig.controller.bar_write(4, 16, &table);
    let mut before = [0; 16];
    rig.controller.bar_read(4, 16, &mut before);
    let health = rig.controller.health().counted;
    assert!(rig.halt());
    let stream = rig.controller.give("").unwrap();
    rig.move_to(&stream).unwrap();
    let read = rig.read_sqe(0x101, 2);
    rig.submit_io(1, 1, read);
    rig.turns(10);
    assert_eq!(rig.io_cqe(1, 1), None, "it is still stopped");
    rig.interrupts.clear();
    rig.controller.halt(false);
    rig.turns(10);
    let cqe = rig.io_cqe(1, 1).expect("it serves");
    assert_eq!((cqe.cid, code(&cqe), cqe.sq_head), (0x101, OK, 2));
    assert!(rig.interrupts.contains(&Interrupt::Vector(1)));
    let mut after = [0; 16];
    rig.controller.bar_read(4, 16, &mut after);
    assert_eq!(after, before);
    let now = rig.controller.health().counted;
    assert_eq!(now.power_cycles, health.power_cycles, "it had power");
    assert_eq!(now.read_commands, health.read_commands + 1);
    // The held request is still there to be aborted.
    let abort = Sqe {
        opcode: ABORT,
        cdw10: u32::from(request) << 16,
        ..Sqe::default()
    };
    let aborting = rig.submit(abort);
    rig.turns(10);
    let mut ended: Vec<u16> = std::iter::from_fn(|| rig.reap())
        .map(|cqe| cqe.cid)
        .collect();
    ended.sort_unstable();
    let mut both = vec![request, aborting];
    both.sort_unstable();
    assert_eq!(ended, both);
}

#[test]
fn a_doorbell_that_was_rung_while_it_was_stopped_counts_there() {
    let (mut rig, _) = used();
    assert!(rig.halt());
    let read = rig.read_sqe(0x101, 2);
    rig.submit_io(1, 1, read);
    rig.turns(10);
    assert_eq!(rig.io_cqe(1, 1), None, "it is stopped");
    assert!(rig.controller.has_halted());
    let stream = rig.controller.give("").unwrap();
    rig.move_to(&stream).unwrap();
    rig.controller.halt(false);
    rig.turns(10);
    assert_eq!(rig.io_cqe(1, 1).map(|cqe| code(&cqe)), Some(OK));
}

#[test]
fn one_that_does_not_move_after_all_serves_on() {
    let (mut rig, _) = used();
    assert!(rig.halt());
    rig.controller.give("").unwrap();
    let read = rig.read_sqe(0x101, 2);
    rig.submit_io(1, 1, read);
    let identify = rig.submit(Sqe {
        cdw10: 1,
        ..rig.with_data(IDENTIFY)
    });
    rig.turns(10);
    assert_eq!(rig.io_cqe(1, 1), None);
    assert_eq!(rig.peek(), None);
    rig.controller.halt(false);
    rig.turns(10);
    assert_eq!(rig.io_cqe(1, 1).map(|cqe| code(&cqe)), Some(OK));
    assert_eq!(rig.reap().map(|cqe| cqe.cid), Some(identify));
}

#[test]
fn a_controller_with_commands_in_flight_gives_nothing() {
    let (mut rig, _) = used();
    let busy = rig.controller.give("");
    assert!(matches!(busy, Err(MigrateError::Busy)), "it serves");
    rig.medium(0).manner = Manner::Hanging;
    let read = rig.read_sqe(0x101, 2);
    rig.submit_io(1, 1, read);
    rig.turns(5);
    assert!(!rig.halt());
    assert!(matches!(rig.controller.give(""), Err(MigrateError::Busy)));
    // An aborted command has completed, but its medium may still act on it.
    let view = rig.host.view();
    let epoch = view.epoch();
    rig.controller.abandon(epoch + 1);
    rig.turns(5);
    assert!(rig.io_cqe(1, 1).is_some(), "it was aborted");
    assert!(!rig.controller.has_halted());
    assert!(matches!(rig.controller.give(""), Err(MigrateError::Busy)));
}

#[test]
fn the_state_of_another_drive_is_refused_with_the_difference() {
    let (mut rig, _) = used();
    assert!(rig.halt());
    let stream = rig.controller.give("").unwrap();
    let mut others = Vec::new();
    let change = |change: fn(&mut crate::ControllerConfig)| {
        let mut config = config();
        change(&mut config);
        Rig::with(config)
    };
    others.push((change(|c| c.serial = "SERIAL-2".into()), "serial SERIAL-2"));
    others.push((
        change(|c| c.subnqn = "nqn.2014-08.x".into()),
        "nqn.2014-08.x",
    ));
    others.push((change(|c| c.queues = 3), "queues 3"));
    others.push((change(|c| c.queue_depth = 32), "queue_depth 32"));
    others.push((change(|c| c.max_transfer = 8192), "max_transfer 8192"));
    others.push((change(|c| c.msix = false), "msix false"));
    let mut larger = namespaces();
    larger[1].blocks = 1024;
    let larger = Rig::with_namespaces(config(), larger);
    others.push((larger, "namespace 3 of 1024 blocks"));
    let mut renamed = namespaces();
    renamed[0].nguid = [7; 16];
    others.push((Rig::with_namespaces(config(), renamed), "nguid 0707"));
    let fewer = Rig::with_namespaces(config(), vec![namespaces().remove(0)]);
    others.push((fewer, "no other namespace"));
    for (other, difference) in others {
        let error = Moved::read(&stream, &other.controller.appearance()).unwrap_err();
        let shown = error.to_string();
        assert!(matches!(error, MigrateError::Other { .. }), "{shown}");
        assert!(shown.contains(difference), "{shown}");
    }
    // Another name, and another version of the program, are no difference.
    let alike = change(|c| {
        c.name = "there".into();
        c.firmware_revision = "9".into();
    });
    assert!(Moved::read(&stream, &alike.controller.appearance()).is_ok());
}

#[test]
fn a_damaged_state_changes_nothing() {
    let (mut rig, _) = used();
    assert!(rig.halt());
    let stream = rig.controller.give("").unwrap();
    let step = (stream.len() / 61).max(1);
    for at in (0..stream.len()).step_by(step) {
        let mut damaged = stream.clone();
        damaged[at] ^= 0x10;
        assert!(rig.move_to(&damaged).is_err(), "byte {at}");
        assert!(rig.move_to(&stream[..at]).is_err(), "{at} bytes");
    }
    rig.controller.halt(false);
    let read = rig.read_sqe(0x101, 2);
    rig.submit_io(1, 1, read);
    rig.turns(10);
    assert_eq!(
        rig.io_cqe(1, 1).map(|cqe| code(&cqe)),
        Some(OK),
        "it serves on"
    );
}

#[test]
fn a_controller_whose_medium_is_elsewhere_is_not_enabled() {
    let mut rig = Rig::new();
    rig.controller.set_elsewhere(true);
    rig.set_admin_queues(16);
    rig.write32(0x14, 0x0046_0001);
    rig.turns(3);
    assert_eq!(rig.csts() & 3, 2, "CFS, and not RDY");
    rig.write32(0x14, 0);
    rig.turns(3);
    rig.controller.set_elsewhere(false);
    rig.enable();
    assert_eq!(rig.csts() & 3, 1);
}

/// Lanes that take a turn after each message, as those on other reactors may.
struct Apart<'a> {
    lanes: &'a mut Lanes,
    channels: Channels<TestMedium>,
}

impl LaneTable for Apart<'_> {
    fn insert(&mut self, lane: Lane) -> OwnerKey {
        self.lanes.insert(lane)
    }

    fn local(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        self.lanes.local(key)
    }

    fn command(&mut self, key: OwnerKey, command: LaneCommand) -> bool {
        let lane = self.lanes.local(key).expect("it lives");
        lane.command(command);
        lane.turn(&mut self.channels);
        true
    }

    fn remove(&mut self, key: OwnerKey) {
        self.lanes.remove(key);
    }
}

impl Rig {
    /// One turn of the controller alone, with lanes on another reactor.
    fn turn_apart(&mut self) {
        let mut channels = Channels::new();
        for _ in 0..2 {
            let medium = TestMedium::new(2048 * 512, Manner::Asynchronous);
            assert!(channels.insert(medium).is_ok());
        }
        let mut lanes = Apart {
            lanes: &mut self.lanes,
            channels,
        };
        let (now, media) = (self.now, &mut self.channels);
        self.controller
            .turn(now, media, &mut lanes, &mut self.subsystem);
    }

    fn fetched(&self) -> u64 {
        let lanes = self.lanes.iter();
        lanes.map(|lane| lane.counters().fetched.get()).sum()
    }
}

#[test]
fn a_device_that_is_let_go_fetches_nothing_before_its_reset_ends() {
    for resets_first in [true, false] {
        let (mut rig, _) = used();
        assert!(rig.halt());
        // The host has gone on elsewhere.
        let read = rig.read_sqe(0x101, 2);
        rig.submit_io(1, 1, read);
        rig.turns(3);
        let fetched = rig.fetched();
        if resets_first {
            rig.controller.function_reset();
            rig.controller.halt(false);
        } else {
            rig.controller.halt(false);
            rig.controller.function_reset();
        }
        rig.turn_apart();
        // A lane that has stopped is gone, with its count.
        assert!(rig.fetched() <= fetched);
        rig.turns(10);
        assert!(rig.controller.is_quiet());
        rig.enable();
        rig.create_pair(1, 8);
    }
}

#[test]
fn a_device_without_its_medium_is_not_let_go() {
    let (mut rig, _) = used();
    assert!(rig.halt());
    rig.controller.set_elsewhere(true);
    rig.controller.halt(false);
    let read = rig.read_sqe(0x101, 2);
    rig.submit_io(1, 1, read);
    rig.turns(10);
    assert_eq!(rig.io_cqe(1, 1), None);
    rig.controller.set_elsewhere(false);
    rig.turns(10);
    assert_eq!(rig.io_cqe(1, 1).map(|cqe| code(&cqe)), Some(OK));
}

#[test]
fn saved_values_of_features_move() {
    let (mut rig, _) = used();
    // Save, of the controller; of namespace 3; and one that is set and not saved.
    let set = |rig: &mut Rig, nsid, fid: u32, value| {
        let sqe = Sqe {
            opcode: SET_FEATURES,
            nsid,
            cdw10: fid,
            cdw11: value,
            ..Sqe::default()
        };
        assert_eq!(rig.status(sqe), OK);
    };
    const SAVE: u32 = 1 << 31;
    set(&mut rig, 0, SAVE | 0x08, 0x0203);
    set(&mut rig, 3, SAVE | 0x05, 7);
    set(&mut rig, 0, 0x08, 0x0405);
    assert!(rig.halt());
    let stream = rig.controller.give("").unwrap();
    rig.move_to(&stream).unwrap();
    rig.controller.halt(false);
    rig.turns(5);
    let get = |rig: &mut Rig, nsid, cdw10| {
        let sqe = Sqe {
            opcode: GET_FEATURES,
            nsid,
            cdw10,
            ..Sqe::default()
        };
        rig.admin(sqe).dw0
    };
    // Select: current, and saved.
    assert_eq!(get(&mut rig, 0, 0x08), 0x0405);
    assert_eq!(get(&mut rig, 0, 2 << 8 | 0x08), 0x0203);
    assert_eq!(get(&mut rig, 3, 2 << 8 | 0x05), 7);
    let id = rig.controller.id();
    let record = rig.subsystem.controller_record(id).unwrap();
    assert_eq!(record.features.interrupt_coalescing, Some(0x0203));
    // A reset takes the saved values.
    rig.disable();
    rig.enable();
    assert_eq!(get(&mut rig, 0, 0x08), 0x0203);
}

#[test]
fn a_state_that_is_not_taken_leaves_the_saved_values() {
    let (mut rig, _) = used();
    assert!(rig.halt());
    // Of no version that is read.
    rig.controller.state().set_format_version(3).unwrap();
    let stream = rig.controller.give("").unwrap();
    let moved = Moved::read(&stream, &rig.controller.appearance()).unwrap();
    let id = rig.controller.id();
    let coalescing = |subsystem: &Subsystem| {
        let record = subsystem.controller_record(id).unwrap();
        record.features.interrupt_coalescing
    };
    let set = |record: &mut subsystem::ControllerRecord| {
        record.features.interrupt_coalescing = Some(5);
    };
    rig.subsystem.update_controller(id, set);
    rig.subsystem.leave(id);
    let doorbells = Arc::new(DoorbellPages::new(config().doorbell_slots()).unwrap());
    let view = rig.host.view();
    let (subsystem, lanes) = (&mut rig.subsystem, &mut Lanes::default());
    let taken = Controller::take(config(), moved, doorbells, view, subsystem, lanes);
    assert!(taken.is_err());
    assert_eq!(coalescing(&rig.subsystem), Some(5));
}
