//! Reservation notifications of a host whose controller's process dies at each store, and before
//! and after a record is kept: each comes once, with its event.

use nvme_spec::Sqe;
use nvme_spec::reservation::{ReservationAcquireCdw10, ReservationRegisterCdw10};
use port::ChannelId;
use port::testing::namespace;
use subsystem::{
    Allocated, ControllerId, Operation, Requester, ReservationCommand, Step, Subsystem,
};

use super::rig::*;
use super::world::pool;
use crate::crash::{self, Death};

const REGISTER: u8 = 0x0d;
/// The keys of the two hosts.
const KEYS: [u64; 2] = [1, 2];
/// Commands of the other host: it registers, and preempts this one.
const COMMANDS: usize = 2;

struct World {
    rig: Rig,
    other: ControllerId,
    /// Commands of the other host that have completed, and whether the next one has begun.
    done: usize,
    begun: bool,
    /// Dword 0 of the events that came.
    events: Vec<u32>,
    /// The pages that were read: count, type and namespace.
    pages: Vec<(u64, u8, u32)>,
    reading: Option<u16>,
}

impl World {
    fn new() -> Self {
        let pools = vec![pool(0, 1 << 20)];
        let mut first = namespace(1, ChannelId(0), 512);
        first.traits = pools[0].traits;
        let first = Allocated {
            medium: pools[0].medium.clone(),
            shared: true,
            ..Allocated::everywhere(first)
        };
        let mut rig = Rig::kept(vec![first], pools);
        let other = rig.subsystem.join("other").unwrap();
        rig.enable();
        rig.create_pair(1, 64);
        let mut world = World {
            rig,
            other,
            done: 0,
            begun: false,
            events: Vec::new(),
            pages: Vec::new(),
            reading: None,
        };
        let rig = &mut world.rig;
        let keys = [0, KEYS[0]].map(u64::to_le_bytes).concat();
        rig.host.write(rig.data_page(), &keys);
        let register = Sqe {
            opcode: REGISTER,
            nsid: 1,
            prp1: rig.data_page().0,
            ..Sqe::default()
        };
        rig.submit_io(1, 0, register);
        // Another one would show an event that comes twice.
        rig.async_event();
        rig.async_event();
        for _ in 0..8 {
            world.turn();
        }
        let registered = world.rig.io_cqe(1, 0).expect("it has registered");
        assert_eq!(code(&registered), OK);
        world
    }

    fn revive(&mut self) {
        self.rig.revive();
        let other = self.rig.subsystem.join("other").unwrap();
        assert_eq!(other, self.other);
        self.begun = false;
    }

    /// A command of the other host's, which has the same name when it is executed again.
    fn command(&self) -> Operation {
        let command = match self.done {
            0 => ReservationCommand::Register {
                cdw10: ReservationRegisterCdw10::new(),
                crkey: 0,
                nrkey: KEYS[1],
            },
            // Preempt, Write Exclusive.
            _ => ReservationCommand::Acquire {
                cdw10: ReservationAcquireCdw10::from(1 << 8 | 1),
                crkey: KEYS[1],
                prkey: KEYS[0],
            },
        };
        let by = Requester::Admin {
            controller: self.other,
            life: 0,
            cid: self.done as u16,
        };
        let host = self.rig.subsystem.host_of(self.other);
        let steps = [Step::Reserve { host, command }, Step::Drain, Step::Keep];
        let mut operation = Operation::new(by, 1, steps);
        operation.name = 0x7700 + self.done as u64;
        operation
    }

    fn turn(&mut self) {
        self.rig.turn();
        crash::point();
        let subsystem: &mut Subsystem = &mut self.rig.subsystem;
        subsystem.acknowledge(self.other, subsystem.generation());
        while let Some(answer) = subsystem.take_answer(self.other) {
            assert_eq!(answer.result, Ok(0));
            subsystem.completed(self.other, answer.name);
            self.done += 1;
            self.begun = false;
        }
        while let Some(cqe) = self.rig.reap() {
            assert_eq!(code(&cqe), OK);
            if self.reading == Some(cqe.cid) {
                self.reading = None;
                let page = self.rig.host.read(self.rig.data_page(), 64);
                let count = u64::from_le_bytes(page[..8].try_into().unwrap());
                self.pages.push((count, page[8], u32_at(&page, 12)));
            } else {
                self.events.push(cqe.dw0);
            }
        }
    }

    /// The commands of the other host, and a page that this one reads after each event.
    fn play(&mut self) {
        for turn in 0.. {
            assert!(
                turn < 400,
                "{} {:?} {:?}",
                self.done,
                self.events,
                self.pages
            );
            if !self.begun && self.done < COMMANDS {
                self.begun = true;
                let command = self.command();
                self.rig.subsystem.begin(command);
            }
            if self.events.len() > self.pages.len() && self.reading.is_none() {
                let log = Sqe {
                    cdw10: 0x80 | 15 << 16,
                    ..self.rig.with_data(GET_LOG)
                };
                self.reading = Some(self.rig.submit(log));
            }
            if self.done == COMMANDS && !self.pages.is_empty() && self.reading.is_none() {
                return;
            }
            self.turn();
        }
    }
}

/// Plays through a death at each of the points; how many the last process has passed.
fn play(points: &[u64]) -> Option<u64> {
    let mut world = World::new();
    for point in points {
        match crash::run(*point, || world.play()) {
            Err(Death) => world.revive(),
            Ok(_) => return None,
        }
    }
    let ((), passed) = crash::run(u64::MAX, || world.play()).expect("it dies no more");
    for _ in 0..8 {
        world.turn();
    }
    assert_eq!(world.events, [0x0080_0006], "one event");
    // Registration Preempted, of namespace 1.
    assert_eq!(world.pages, [(1, 1, 1)]);
    assert_eq!(world.rig.log(0x80, 0, 64), Ok(vec![0; 64]), "it was read");
    Some(passed)
}

#[test]
fn a_notification_comes_once_wherever_the_process_dies() {
    let count = play(&[]).expect("it plays");
    assert!(count > 20, "{count} points");
    for point in 0..count {
        assert!(play(&[point]).is_some());
        for second in [0, 1, 2, 3, 5, 8, 13, 21] {
            play(&[point, second]);
        }
    }
}
