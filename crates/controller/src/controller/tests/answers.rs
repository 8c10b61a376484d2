//! Commands that the subsystem executes, of a process that dies at each store and before and after
//! a record is kept: each completes once, with its own status and Dword 0, and has its effect once.

use nvme_spec::Sqe;
use nvme_spec::log::LogPageId;
use port::testing::{Seen, namespace};
use port::{ChannelId, MediumTraits};
use subsystem::{Allocated, Pool, SanitizeOutcome};

use super::rig::*;
use super::world::{
    ALREADY_ATTACHED, FORMAT, Fields, NOT_ATTACHED, NS_ATTACHMENT, NS_MANAGEMENT, SANITIZE, pool,
};
use crate::controller::Interrupt;
use crate::crash::{self, Death};

const REGISTER: u8 = 0x0d;
const REPORT: u8 = 0x0e;
const ACQUIRE: u8 = 0x11;
const RELEASE: u8 = 0x15;
const WRITE_UNCORRECTABLE: u8 = 0x04;
const CONFLICT: u16 = 0x083;
const INTERRUPTED: u16 = 0x021;
/// Set Features, Save.
const SAVE: u32 = 1 << 31;
const BLOCK_ERASE: u32 = 2;

/// Actions of the host, one after the other, with these bytes in its data page.
enum Act {
    /// An admin command, its status and Dword 0.
    Admin(Sqe, Vec<u8>, (u16, u32)),
    /// An I/O command on the first pair of queues, and its status.
    Io(Sqe, Vec<u8>, u16),
    /// A request for an event, which is held.
    Request,
    /// An admin command that aborts it.
    AbortRequest,
    /// Until nothing is sanitized any more.
    Sanitized,
}

struct World {
    rig: Rig,
    at: usize,
    begun: bool,
    /// The command that is outstanding, and the request for an event.
    cid: u16,
    request: Option<u16>,
    /// The request has completed.
    is_aborted: bool,
    /// I/O commands submitted.
    sent: u32,
}

fn volatile_pool(channel: u16) -> Pool {
    let pool = pool(channel, 1 << 20);
    Pool {
        traits: MediumTraits {
            volatile_cache: true,
            ..pool.traits
        },
        ..pool
    }
}

impl World {
    fn new() -> Self {
        let pools = vec![volatile_pool(0)];
        let mut first = namespace(1, ChannelId(0), 512);
        first.traits = pools[0].traits;
        let first = Allocated {
            medium: pools[0].medium.clone(),
            shared: true,
            ..Allocated::everywhere(first)
        };
        let mut rig = Rig::kept(vec![first], pools);
        rig.enable();
        World {
            rig,
            at: 0,
            begun: false,
            cid: 0,
            request: None,
            is_aborted: false,
            sent: 0,
        }
    }

    /// Turns until the host has the completion of an admin command: status and Dword 0. It looks
    /// after an interrupt.
    fn completion(&mut self) -> (u16, u16, u32) {
        for _ in 0..200 {
            self.rig.turn();
            crash::point();
            let raised = std::mem::take(&mut self.rig.interrupts);
            if raised.contains(&Interrupt::Vector(0))
                && let Some(cqe) = self.rig.reap()
            {
                // Another one may be there.
                self.rig.interrupts.push(Interrupt::Vector(0));
                return (cqe.cid, code(&cqe), cqe.dw0);
            }
        }
        panic!("step {} never ends", self.at);
    }

    fn begin(&mut self, submit: impl FnOnce(&mut Self)) {
        if !self.begun {
            self.begun = true;
            submit(self);
        }
    }

    fn play(&mut self, script: &[Act]) {
        while let Some(act) = script.get(self.at) {
            match act {
                Act::Admin(sqe, data, (status, dw0)) => {
                    self.begin(|it| {
                        it.rig.host.write(it.rig.data_page(), data);
                        it.cid = it.rig.submit(*sqe);
                    });
                    let ended = self.completion();
                    assert_eq!(ended, (self.cid, *status, *dw0), "step {}", self.at);
                }
                Act::Io(sqe, data, status) => {
                    self.begin(|it| {
                        it.rig.host.write(it.rig.data_page(), data);
                        let (cid, prp1) = (it.sent as u16, it.rig.data_page().0);
                        it.rig.submit_io(1, it.sent, Sqe { cid, prp1, ..*sqe });
                    });
                    let ended = (0..200).find_map(|_| {
                        self.rig.turn();
                        crash::point();
                        self.rig.io_cqe(1, self.sent)
                    });
                    let ended = ended.unwrap_or_else(|| panic!("step {} never ends", self.at));
                    assert_eq!(code(&ended), *status, "step {}", self.at);
                    assert_eq!((ended.dw0, ended.dw1), (0, 0));
                    self.sent += 1;
                    assert_eq!(
                        self.rig.io_cqe(1, self.sent),
                        None,
                        "a completion of nothing"
                    );
                }
                Act::Request => {
                    self.begin(|it| it.request = Some(it.rig.async_event()));
                    self.rig.turns(3);
                }
                Act::AbortRequest => self.abort_request(),
                Act::Sanitized => {
                    let done = |rig: &Rig| {
                        rig.subsystem.is_kept()
                            && !rig.subsystem.directory().sanitize().is_in_progress()
                    };
                    for turn in 0.. {
                        assert!(turn < 400, "it never ends");
                        if done(&self.rig) {
                            break;
                        }
                        self.rig.turn();
                        crash::point();
                    }
                }
            }
            self.at += 1;
            self.begun = false;
        }
    }

    fn abort_request(&mut self) {
        self.begin(|it| {
            let request = it.request.unwrap();
            it.cid = it.rig.submit(Sqe {
                opcode: ABORT,
                cdw10: u32::from(request) << 16,
                ..Sqe::default()
            });
        });
        while let Some(request) = self.request {
            let (cid, status, dw0) = self.completion();
            if self.is_aborted {
                assert_eq!((cid, status, dw0), (self.cid, OK, 0), "it was aborted");
                self.request = None;
            } else {
                assert_eq!((cid, status), (request, ABORT_REQUESTED));
                self.is_aborted = true;
            }
        }
    }
}

fn with_nsid(rig: &Rig, opcode: u8, nsid: u32, cdw10: u32) -> Sqe {
    Sqe {
        nsid,
        cdw10,
        ..rig.with_data(opcode)
    }
}

fn script(rig: &Rig) -> Vec<Act> {
    let none = Vec::new;
    let admin = |sqe, status| Act::Admin(sqe, none(), (status, 0));
    let feature = |fid: u32, value| Sqe {
        opcode: SET_FEATURES,
        cdw10: fid,
        cdw11: value,
        ..Sqe::default()
    };
    let create = |nsid| {
        let sqe = with_nsid(rig, NS_MANAGEMENT, 0, 0);
        Act::Admin(sqe, Fields::new(128).bytes(), (OK, nsid))
    };
    let delete = |nsid, status| admin(with_nsid(rig, NS_MANAGEMENT, nsid, 1), status);
    let attachment = |nsid, select, status| {
        let mut list = vec![0; 4096];
        (list[0], list[2]) = (1, 1);
        let sqe = with_nsid(rig, NS_ATTACHMENT, nsid, select);
        Act::Admin(sqe, list, (status, 0))
    };
    let io = |opcode, cdw10, data: &[u64], status| {
        let data = data.iter().flat_map(|key| key.to_le_bytes()).collect();
        Act::Io(with_nsid(rig, opcode, 1, cdw10), data, status)
    };
    vec![
        admin(rig.create_cq_sqe(1, 64), OK),
        admin(rig.create_sq_sqe(1, 1, 64), OK),
        // Reading and idempotent commands.
        admin(with_nsid(rig, IDENTIFY, 0, 1), OK),
        Act::Admin(with_nsid(rig, GET_FEATURES, 0, 0x06), none(), (OK, 1)),
        admin(
            Sqe {
                cdw10: u32::from(LogPageId::SMART_HEALTH_INFORMATION.0) | 127 << 16,
                nsid: 0xffff_ffff,
                ..rig.with_data(GET_LOG)
            },
            OK,
        ),
        admin(feature(SAVE | 0x08, 0x0203), OK),
        // It flushes, and then it is saved.
        admin(feature(SAVE | 0x06, 0), OK),
        admin(feature(0x06, 1), OK),
        admin(feature(0x06, 0), OK),
        Act::Request,
        Act::AbortRequest,
        create(2),
        attachment(2, 0, OK),
        attachment(2, 0, ALREADY_ATTACHED),
        create(3),
        delete(3, OK),
        delete(3, INVALID_FIELD),
        create(3),
        io(REGISTER, 0, &[0, 5], OK),
        io(ACQUIRE, 1 << 8, &[5, 0], OK),
        io(REGISTER, 2, &[5, 6], OK),
        io(REGISTER, 2, &[5, 6], CONFLICT),
        io(RELEASE, 1 << 8, &[6], OK),
        io(ACQUIRE, 2 << 8, &[6, 0], OK),
        io(REPORT, 1023, &[], OK),
        io(WRITE_UNCORRECTABLE, 0, &[], OK),
        io(REGISTER, 1, &[6, 0], OK),
        io(REGISTER, 1, &[6, 0], CONFLICT),
        // Reservation Persistence of namespace 1.
        admin(
            Sqe {
                nsid: 1,
                ..feature(0x83, 1)
            },
            OK,
        ),
        attachment(2, 1, OK),
        attachment(2, 1, NOT_ATTACHED),
        admin(with_nsid(rig, FORMAT, 1, 1), OK),
        delete(2, OK),
        admin(with_nsid(rig, SANITIZE, 0, BLOCK_ERASE), OK),
        Act::Sanitized,
        admin(with_nsid(rig, SANITIZE, 0, 1), OK),
        admin(feature(0x08, 0x0304), OK),
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
    rig.turns(8);
    assert_eq!(rig.reap(), None, "a completion of nothing");
    let kept = rig.keeper.as_ref().unwrap().kept();
    let nsids: Vec<u32> = kept.namespaces.iter().map(|n| n.nsid).collect();
    assert_eq!(nsids, [1, 3]);
    assert_eq!(kept.namespaces[0].lba_size, 4096);
    assert_eq!(kept.sanitize.outcome, SanitizeOutcome::Succeeded);
    assert_eq!(
        kept.controllers[0].features.volatile_write_cache,
        Some(false)
    );
    assert_eq!(
        kept.controllers[0].features.interrupt_coalescing,
        Some(0x0203)
    );
    // Generation: it counts the registrations that changed something, and each one once.
    let reservation = format!("{:?}", kept.reservations[0].reservation);
    assert!(reservation.contains("generation: 3"), "{reservation}");
    assert!(reservation.contains("ptpl: true"), "{reservation}");
    Some(passed)
}

#[test]
fn every_command_of_the_subsystem_completes_once_wherever_the_process_dies() {
    let count = play(&[]).expect("it plays");
    assert!(count > 300, "{count} points");
    for point in 0..count {
        assert!(play(&[point]).is_some());
        if point % 5 == 0 {
            for second in [0, 2, 5, 9] {
                play(&[point, second]);
            }
        }
    }
}

#[test]
fn a_command_without_a_name_is_interrupted() {
    let mut world = World::new();
    let create = with_nsid(&world.rig, NS_MANAGEMENT, 0, 0);
    let rig = &mut world.rig;
    rig.host.write(rig.data_page(), &Fields::new(128).bytes());
    let cid = rig.submit(create);
    rig.turns(2);
    assert_eq!(rig.peek(), None, "it waits");
    // The state of a process that knew no names.
    rig.controller.state().set_format_version(6).unwrap();
    rig.revive();
    rig.turns(4);
    let cqe = rig.reap().expect("it ends");
    assert_eq!((cqe.cid, code(&cqe)), (cid, INTERRUPTED));
    rig.turns(8);
    assert_eq!(rig.reap(), None);
}

#[test]
fn a_cache_that_is_turned_off_is_flushed_again() {
    let mut world = World::new();
    let rig = &mut world.rig;
    let cid = rig.submit(Sqe {
        opcode: SET_FEATURES,
        cdw10: 0x06,
        ..Sqe::default()
    });
    rig.turn();
    assert_eq!(rig.peek(), None, "it waits for the flush");
    rig.revive();
    rig.turns(8);
    assert_eq!(rig.reap().map(|cqe| (cqe.cid, code(&cqe))), Some((cid, OK)));
    assert!(rig.medium(0).seen.contains(&Seen::Flush));
    assert_eq!(rig.get_feature(0x06, 0, 0).dw0, 0);
}

/// Two namespaces are created while the function is off the bus, with a death then and one more at
/// this point after it is on again; whether it came to that.
fn off_the_bus(point: u64) -> bool {
    const COMMAND: u64 = 0x04;
    const MEMORY: u16 = 1 << 1;
    const MASTER: u16 = 1 << 2;
    let mut world = World::new();
    let create = with_nsid(&world.rig, NS_MANAGEMENT, 0, 0);
    let rig = &mut world.rig;
    rig.controller
        .config_write(COMMAND, &(MEMORY | MASTER).to_le_bytes());
    rig.host.write(rig.data_page(), &Fields::new(128).bytes());
    let cids = [rig.submit(create), rig.submit(create)];
    rig.turns(1);
    rig.controller.config_write(COMMAND, &MEMORY.to_le_bytes());
    rig.turns(10);
    assert_eq!(rig.peek(), None, "the bus is off");
    // Another record does not have the answers any more.
    rig.subsystem.touch();
    rig.turns(4);
    rig.revive();
    rig.turns(4);
    assert_eq!(rig.peek(), None);
    let begin = |rig: &mut Rig| {
        rig.controller
            .config_write(COMMAND, &(MEMORY | MASTER).to_le_bytes());
        rig.turns(10);
    };
    let died = crash::run(point, || begin(rig)).is_err();
    if died {
        rig.revive();
        begin(rig);
    }
    let ended = std::iter::from_fn(|| rig.reap()).map(|cqe| (cqe.cid, code(&cqe), cqe.dw0));
    let mut ended: Vec<_> = ended.collect();
    ended.sort_unstable();
    assert_eq!(ended, [(cids[0], OK, 2), (cids[1], OK, 3)], "point {point}");
    died
}

#[test]
fn completions_that_wait_for_the_bus_are_kept() {
    let points = (0..).take_while(|point| off_the_bus(*point)).count();
    assert!(points > 8, "{points} points");
}
